"""Closed forms of loops with an initial_tile_shape: symbolic = enumerate, forms = SymPy = numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, cast

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from polymodel.analysis.enumerate import ENGINE as REFEREE
from polymodel.analysis.result import Problem
from polymodel.analysis.symbolic import ENGINE as SYMBOLIC
from polymodel.analysis.symbolic import closed_counts
from polymodel.analysis.symbolic.forms import Form
from polymodel.analysis.symbolic.render import Renderer
from polymodel.errors import NotSeparable, Refused
from polymodel.mapping.checks import check_extents
from polymodel.mapping.looptree import LoopTree, Split, StorageNode
from polymodel.mapping.resolve import ResolvedMapping
from polymodel.reuse import Reuse
from polymodel.spec.faults import Faults
from tests.analysis.small import dram, einsum, glb, loop, mac, problem, rf, spread
from tests.analysis.test_agreement import SETTINGS, differences, drawing
from tests.analysis.test_symbolic import POLICIES, named
from tests.analysis.test_symbolic_fused import fused_layers_agree
from tests.first_tiles import first_tile_problems
from tests.layers import fused_layers
from tests.seeds import seeds


def run_many(count: int) -> Counter[str]:
    """Compare with the referee; returns how many problems have closed forms."""
    tally: Counter[str] = Counter()

    @settings(max_examples=count, **SETTINGS)
    @given(first_tile_problems(), POLICIES)
    def agree(problem: Problem, reuse: Reuse | None) -> None:
        tally["examples"] += 1
        try:
            ours = SYMBOLIC.analyse(problem, reuse=reuse)
        except NotSeparable as refusal:
            event(f"refused: {refusal.message[-50:]}")
            return
        try:
            referee = REFEREE.analyse(problem, reuse=reuse)
        except Refused:
            return
        tally["closed"] += 1
        found = differences(ours, referee)
        assert not found, "\n".join([*found, f"reuse={reuse}", drawing(problem)])

    cast(Callable[[], None], agree)()
    return tally


@pytest.mark.slow
def test_fused_layers_agree_with_the_referee() -> None:
    assert fused_layers_agree(40, 11, 0.4) > 0.5


@pytest.mark.slow
def test_fused_layers_agree_with_the_referee_at_length() -> None:
    assert fused_layers_agree(20_000, 11, 0.4) > 0.5


@pytest.mark.parametrize("start", [1, 3, 4])
def test_other_branches_may_be_largest_in_another_instance(start: int) -> None:
    """W1 stays in RF over the steps of m: 3 columns in one instance, 1 in another, while E0 holds 3 and 1."""
    e0 = einsum("E0", "A[m,k]", "W0[k]", "T[m]", sizes={"m": 4, "k": 4})
    e1 = einsum("E1", "T[m]", "W1[n]", "Z[m,n]", sizes={"m": 4, "n": 4})
    one = (replace(spread("k", 1), initial_tile_shape=3), rf("A", "W0"), mac("E0"))
    other = (
        replace(spread("n", 3), initial_tile_shape=start),
        StorageNode("RF", ("W1",), "slide"),
        mac("E1"),
    )
    tree = (dram("A", "W0", "W1", "Z"), loop("m", 1), glb("T"), Split((one, other)))
    spec = problem((e0, e1), *tree)
    referee = REFEREE.analyse(spec)
    assert not differences(SYMBOLIC.analyse(spec), referee)
    held = {(w.einsum, w.measure): w.bits for w in referee.working_sets if w.component == "RF"}
    assert held["E0", "tile"] == {1: 8 * 7, 3: 8 * 9, 4: 8 * 10}[start]


def test_an_instance_that_is_idle_at_times_is_filled_again() -> None:
    """Of m = 0..2 in tiles of 2 one instance has no second one: it takes W twice, the other once."""
    e0 = einsum("E0", "A[m,p]", "W[r]", "Z[m,p]", sizes={"m": 3, "p": 2, "r": 1})
    for tile, start, alike in (
        (2, None, False),
        (3, None, True),
        (2, 1, False),
        (1, 2, False),
        (1, 3, True),
    ):
        steps = replace(loop("m", tile), initial_tile_shape=start)
        held = StorageNode("RF", ("W",), "slide")
        spec = problem(e0, dram("A", "W", "Z"), loop("p", 1), steps, spread("m", 1), held, mac())
        referee = REFEREE.analyse(spec)
        (loads,) = (x.loads for x in referee.loads if x.component == "RF")
        assert loads == (((16, 8),) if alike else ((16, 16), (32, 8)))
        assert not differences(SYMBOLIC.analyse(spec), referee)


def first_named(tree: LoopTree) -> tuple[LoopTree, dict[str, int]]:
    """The tree with a symbol for every tile and every first tile, and their values."""
    tree, values = named(tree)
    tree, more = named(tree, "initial_tile_shape", "F")
    return tree, values | more


def symbols_agree(problem: Problem, reuse: Reuse | None, extents: bool) -> bool:
    """Symbols for tiles, first tiles and some extents: forms and SymPy at their values are the numbers.

    False where there are no closed forms.
    """
    tree, values = first_named(problem.tree)
    ranges: dict[str, set[int]] = {}
    for e in problem.cascade:
        for v, (low, high) in zip(e.rank_variables, e.bounds, strict=True):
            ranges.setdefault(v, set()).add(high - low + 1)
    ranks = {v: f"X_{v}" for v, found in ranges.items() if extents and len(found) == 1}
    values |= {name: next(iter(ranges[v])) for v, name in ranks.items()}
    try:
        plain = SYMBOLIC.analyse(problem, reuse=reuse)
        open_ = closed_counts(replace(problem, tree=tree), reuse=reuse, ranks=ranks)
    except NotSeparable:
        return False
    assert not differences(open_.at(values), plain), drawing(problem)
    renderer = Renderer(open_.chains)
    at = {renderer.symbols[name]: value for name, value in values.items() if name in renderer.symbols}
    cells: list[Any] = [*open_.buffets, *open_.traffic[:4], *open_.compute, *open_.loads[:2]]
    every = [f for cell in cells for f in vars(cell).values() if isinstance(f, Form)]
    for form in (*every, *(f for *_, f in open_.fanouts), *open_.single_trips):
        assert renderer.form(form).subs(at) == form.at(values), (form, values, drawing(problem))
    return True


def fits(problem: Problem) -> bool:
    """Expressions take tiles to be at most as large as what encloses them, as specs are checked to be."""
    faults = Faults()
    check_extents(ResolvedMapping(problem.tree), problem.cascade, problem.hierarchy, faults)
    return not len(faults)


@pytest.mark.slow
def test_forms_in_symbols_give_the_numbers() -> None:
    tally: Counter[bool] = Counter()

    @settings(max_examples=30, **SETTINGS)
    @given(first_tile_problems(), POLICIES, st.booleans())
    def agree(problem: Problem, reuse: Reuse | None, extents: bool) -> None:
        assume(fits(problem))
        tally[symbols_agree(problem, reuse, extents)] += 1

    cast(Callable[[], None], agree)()
    assert tally[True] > 0.3 * tally[False], tally


def layers_in_symbols(count: int) -> int:
    pick, closed = Random(12), 0
    for _ in range(count):
        problem = fused_layers(pick, 0.4)
        closed += fits(problem) and symbols_agree(problem, None, extents=False)
    return closed


@pytest.mark.parametrize("count", seeds(1, [1, 4]))
def test_fused_layers_in_symbols_give_the_numbers(count: int) -> None:
    assert layers_in_symbols(count) > count // 2


def test_what_is_left_of_a_tile_may_be_nothing() -> None:
    """Tiles of 1 fit every tile, but not an empty one."""
    renderer = Renderer([(6, "T")])
    ops, tile = renderer.ops, renderer.symbols["T"]
    left = 6 - tile * ops.floordiv(6, tile)
    for size, rest in ((3, 0), (4, 2)):
        assert ops.ceildiv(left, 1).subs(tile, size) == rest
        assert ops.least(left, 1).subs(tile, size) == min(rest, 1)
        assert ops.positive(left).subs(tile, size) == min(rest, 1)


@pytest.mark.slow
def test_first_tiles_agree_with_the_referee() -> None:
    tally = run_many(30)
    assert tally["closed"] > 0.5 * tally["examples"], tally


@pytest.mark.slow
def test_first_tiles_agree_with_the_referee_at_length() -> None:
    tally = run_many(10_000)
    assert tally["closed"] > 0.5 * tally["examples"], tally
