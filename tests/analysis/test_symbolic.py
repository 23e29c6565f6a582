"""symbolic = enumerate (and exact) on every problem that has closed forms, and forms = SymPy = numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from polymodel.analysis.enumerate import ENGINE as REFEREE
from polymodel.analysis.result import Engine, Problem
from polymodel.analysis.symbolic import ENGINE as symbolic_engine
from polymodel.analysis.symbolic import closed_counts
from polymodel.analysis.symbolic.forms import Form
from polymodel.analysis.symbolic.render import Renderer
from polymodel.errors import NotSeparable, Refused
from polymodel.mapping.looptree import Loop, LoopTree, Node, Split
from polymodel.reuse import Reuse
from tests.analysis.test_agreement import SETTINGS, differences, drawing
from tests.generators import problems
from tests.matmul import matmul

SYMBOLIC: Engine = symbolic_engine
POLICIES = st.sampled_from([None, *Reuse])
EITHER = st.one_of(problems(simple=True), problems())


def named(tree: LoopTree, size: str = "tile_shape", letter: str = "T") -> tuple[LoopTree, dict[str, int]]:
    """The tree with a symbol for every tile (or first tile: `initial_tile_shape`), and their values."""
    values: dict[str, int] = {}

    def renamed(nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        found: list[Node] = []
        for node in nodes:
            if isinstance(node, Split):
                node = replace(node, branches=tuple(renamed(b) for b in node.branches))
            elif isinstance(node, Loop) and isinstance(getattr(node, size), int):
                name = f"{letter}{len(values)}"
                values[name] = getattr(node, size)
                node = replace(node, **{size: name})
            found.append(node)
        return tuple(found)

    return replace(tree, nodes=renamed(tree.nodes)), values


def run_many(count: int) -> Counter[str]:
    """Compare with the referee; returns how many problems have closed forms."""
    tally: Counter[str] = Counter()

    @settings(max_examples=count, **SETTINGS)
    @given(EITHER, POLICIES)
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
            event("the overriding policy makes the mapping illegal")
            return
        tally["closed"] += 1
        found = differences(ours, referee)
        assert not found, "\n".join([*found, f"reuse={reuse}", drawing(problem)])

    cast(Callable[[], None], agree)()
    return tally


def test_closed_forms_agree_with_the_referee() -> None:
    tally = run_many(40)
    assert tally["closed"] >= 0.4 * tally["examples"]


@pytest.mark.slow
def test_closed_forms_agree_with_the_referee_at_length() -> None:
    tally = run_many(10_000)
    assert tally["closed"] >= 0.4 * tally["examples"]


@settings(max_examples=100, **SETTINGS)
@given(problems(simple=True), POLICIES)
def test_forms_in_symbols_give_the_numbers(problem: Problem, reuse: Reuse | None) -> None:
    """Symbols for all tiles and extents: the forms at their values are the engine's numbers."""
    try:
        plain = SYMBOLIC.analyse(problem, reuse=reuse)
        tree, values = named(problem.tree)
        ranges: dict[str, set[int]] = {}
        for e in problem.cascade:
            for v, (low, high) in zip(e.rank_variables, e.bounds, strict=True):
                ranges.setdefault(v, set()).add(high - low + 1)
        ranks = {v: f"X_{v}" for v, found in ranges.items() if len(found) == 1}
        open_ = closed_counts(replace(problem, tree=tree), reuse=reuse, ranks=ranks)
    except NotSeparable:
        return
    values |= {f"X_{v}": next(iter(ranges[v])) for v in ranks}
    assert not differences(open_.at(values), plain)


def _all_forms(problem: Problem, reuse: Reuse | None) -> tuple[list[Form], Renderer, dict[str, int]]:
    tree, values = named(problem.tree)
    found = closed_counts(replace(problem, tree=tree), reuse=reuse)
    cells: list[Any] = [*found.buffets, *found.traffic, *found.compute, *found.loads]
    every = [f for cell in cells for f in vars(cell).values() if isinstance(f, Form)]
    return every, Renderer(found.chains), values


@settings(max_examples=25, **SETTINGS)
@given(problems(simple=True), POLICIES)
def test_sympy_gives_the_same_numbers(problem: Problem, reuse: Reuse | None) -> None:
    try:
        every, renderer, values = _all_forms(problem, reuse)
    except NotSeparable:
        return
    at = {renderer.symbols[name]: value for name, value in values.items()}
    for form in every:
        assert renderer.form(form).subs(at) == form.at(values), (form, values)


def test_dividing_tiles_give_the_textbook_forms(
    three_level: Problem,
) -> None:
    """`assume="divides"` is right at every chain of divisors, and has no floor or ceiling in it."""
    import sympy

    found = closed_counts(three_level)
    plain, textbook = Renderer(found.chains), Renderer(found.chains, "divides")
    cells: list[Any] = [*found.buffets, *found.traffic, *found.compute, *found.loads]
    every = [f for cell in cells for f in vars(cell).values() if isinstance(f, Form)]
    assert any(f.symbols for f in every)
    for form in every:
        short = textbook.form(form)
        assert not short.has(sympy.floor, sympy.ceiling)
        for outer, inner, k in ((24, 12, 6), (12, 4, 18), (6, 6, 3), (1, 1, 1)):
            values = {"TM": outer, "TM1": inner, "TK": k}
            at = {textbook.symbols[n]: v for n, v in values.items()}
            assert short.subs(at) == plain.form(form).subs(at) == form.at(values)


@pytest.fixture
def three_level() -> Problem:
    spec = matmul("DRAM m:TM k:TK GLB:slide m:TM1 RF", {"M": 48, "K": 36, "N": 10})
    assert spec.template is not None
    return Problem(spec.workload, spec.arch, spec.template)
