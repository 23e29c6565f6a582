"""Sparse counts of drawn mappings over all their tile sizes at once are those of each point."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from polymodel.analysis.result import Problem
from polymodel.analysis.symbolic import closed_counts
from polymodel.architecture.hierarchy import ActionCost, FanoutDim, Hierarchy, SparseRules
from polymodel.cost.costs import costs
from polymodel.errors import NotSeparable, Refused
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Node, StorageNode
from polymodel.schedule.legality import check
from polymodel.sparse.actions.counts import sparse_counts
from polymodel.sparse.actions.rescale import sparse_analysis
from polymodel.sweeps.axes import SymbolAxis
from polymodel.sweeps.kernel import ArrayKernel
from polymodel.sweeps.metrics import Block
from polymodel.sweeps.plan import FormRows, costing
from polymodel.sweeps.sparse.columns import bound_problem
from polymodel.sweeps.sparse.figures import SparseEvaluator, SparseFound
from polymodel.sweeps.sparse.plan import SparsePlan, sparse_plan
from tests.sparse.actions.small import (
    RANKS,
    TENSORS,
    WINDOWS,
    hierarchy,
    product_of,
    rule,
    small_problems,
)

Projections = dict[str, tuple[str, ...]]
RUNS = {"format": "RLE", "rbits": 1}
FORMATS: dict[int, tuple[object, ...]] = {
    1: ("COO", ["CP"], ["B"], [RUNS]),
    2: ("COO", "CSR", ["U", "CP"], ["CP", "B"], ["U", "B"], ["CP", RUNS], ["CP", "U"]),
}
DENSITIES = (None, 0.0, 0.2, 0.5, 1.0)


def symbolic(problem: Problem) -> tuple[Problem, dict[str, list[str]]]:
    """A symbol for the tile of every loop, and these by rank variable, outermost first."""
    symbols: dict[str, list[str]] = {}
    nodes: list[Node] = []
    for node in problem.tree.nodes:
        if isinstance(node, Loop):
            name = f"T{len(nodes)}"
            symbols.setdefault(node.rank_variable, []).append(name)
            node = replace(node, tile_shape=name)
        nodes.append(node)
    return replace(problem, tree=LoopTree(tuple(nodes))), symbols


def axes_of(problem: Problem, symbols: dict[str, list[str]], together: bool) -> tuple[SymbolAxis, ...]:
    """Every legal chain of tiles along each variable; along all of them together, if asked."""
    (einsum,) = problem.cascade.einsums
    chains = []
    for variable, names in symbols.items():
        extent = einsum.bound(variable)[1] + 1
        picks = [
            c for c in product(range(1, extent + 1), repeat=len(names)) if all(a >= b for a, b in pairwise(c))
        ]
        chains.append((names, picks))
    if together and chains:
        every = [tuple(x for c in some for x in c) for some in product(*(picks for _, picks in chains))]
        chains = [([n for names, _ in chains for n in names], every[:: max(1, len(every) // 60)])]
    return tuple(
        SymbolAxis(
            tuple(names),
            {n: np.array(c) for n, c in zip(names, zip(*picks, strict=True), strict=True)},
            np.arange(len(picks)),
            len(picks),
            len(picks),
        )
        for names, picks in chains
    )


@st.composite
def drawn(draw: st.DrawFn, projections: Projections) -> Problem:
    """A problem with densities, formats, policies, energies and times."""
    problem = draw(small_problems(3 if projections is WINDOWS else 5, projections))
    nodes = tuple(
        replace(n, reuse=draw(st.sampled_from(["refill", "slide", "keep_previous"])))
        if isinstance(n, StorageNode) and n.component != "DRAM" and draw(st.integers(0, 3)) == 0
        else n
        for n in problem.tree.nodes
    )
    (einsum,) = problem.cascade.einsums
    known = {t: draw(st.sampled_from(DENSITIES)) for t in TENSORS}
    accesses = tuple(replace(a, density=known[a.tensor], bits_per_value=8) for a in einsum.accesses)
    components = []
    for i, c in enumerate(problem.hierarchy.components):
        asked = [t for t in TENSORS if draw(st.integers(0, 3)) == 0]
        formats = {t: draw(st.sampled_from(FORMATS[len(projections[t])])) for t in asked}
        if c.kind == "memory":
            rules = c.sparse or SparseRules()
            c = replace(c, sparse=replace(rules, formats=tuple(formats.items())))
        if c.kind != "container":
            c = replace(
                c, actions=tuple(actions(c.kind, i, draw(st.booleans()))), fill_drain_latency=0.01 * i
            )
        else:
            c = replace(c, spatial=tuple(FanoutDim(d.name, 64) for d in c.spatial))
        if c.kind == "memory" and draw(st.booleans()):
            c = replace(c, ports="separate", read_first=draw(st.booleans()))
        components.append(c)
    cascade = replace(problem.cascade, einsums=(replace(einsum, accesses=accesses),))
    return Problem(cascade, Hierarchy(tuple(components)), LoopTree(nodes))


def actions(kind: str, i: int, named: bool) -> Iterator[ActionCost]:
    if kind == "compute":
        yield ActionCost("compute", 0.5, 2.0)
        if named:
            yield ActionCost("gated_compute", 0.05)
        return
    yield ActionCost("read", 3.0 / (i + 1), 4.0 * (i + 1))
    yield ActionCost("write", 4.0 / (i + 1), 3.0 * (i + 1))
    if named:
        yield ActionCost("gated_read", 0.3)
        yield ActionCost("metadata_write", 0.7)


def whole_block(
    problem: Problem, axes: tuple[SymbolAxis, ...]
) -> tuple[SparseFound, ArrayKernel, SparsePlan, Any]:
    forms, rows = closed_counts(problem), FormRows()
    cost = costing(problem, forms, rows)
    plan = sparse_plan(problem, forms, cost, rows, axes, {}, "")
    kernel = ArrayKernel(axes, rows, {})
    digits = kernel.left_digits(0, kernel.height)
    everything = slice(0, kernel.height), slice(0, kernel.width)
    lefts = kernel.left(digits, kernel.height)
    block = Block(kernel.rows, lefts, *everything, None, kernel.placed(digits, everything[1]))
    return SparseEvaluator(cost, plan)(block), kernel, plan, forms


def compare(problem: Problem, together: bool, picks: list[int]) -> None:
    open_problem, symbols = symbolic(problem)
    axes = axes_of(open_problem, symbols, together)
    found, kernel, plan, forms = whole_block(open_problem, axes)
    energy, latency = found.sparse_energy, found.sparse_latency
    shape = kernel.height, kernel.width
    for pick in picks:
        place = np.unravel_index(pick % (shape[0] * shape[1]), shape)
        choices = (
            np.unravel_index(pick % (shape[0] * shape[1]), [a.size for a in kernel.axes]) if axes else ()
        )
        values = {
            n: int(c[k]) for a, k in zip(kernel.axes, choices, strict=True) for n, c in a.columns.items()
        }
        bound, analysis = bound_problem(open_problem, values), forms.at(values)
        counts = sparse_counts(bound, analysis, plan.data)
        wanted = costs(bound, sparse_analysis(bound, analysis, counts))

        def at(value: Any, place: Any = place) -> float:
            return float(np.broadcast_to(value, shape)[place])

        records = {(a.node, a.tensor, a.kind): a for a in counts.accesses}
        for moved in found.left.accesses:
            record = records.get((moved.node, moved.tensor, moved.kind))
            numbers = (
                (record.dense, record.actual, record.gated, record.metadata_bits) if record else (0,) * 4
            )
            mine = tuple(map(at, (moved.dense, moved.actual, moved.gated, moved.metadata_bits)))
            assert mine == pytest.approx(numbers, rel=1e-9, abs=1e-9), (moved, values)
        assert at(energy) == pytest.approx(wanted.total_energy, rel=1e-9)
        assert at(latency) == pytest.approx(wanted.total_latency, rel=1e-9)
        for need in wanted.needs:
            assert at(found.working_sets[need.component]) == pytest.approx(need.bits, rel=1e-9)


CHECKS = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
PICKS = st.lists(st.integers(0, 10**6), min_size=3, max_size=3)


def compare_drawn(problem: Problem, together: bool, picks: list[int]) -> None:
    assume(not check(problem))
    try:
        compare(problem, together, picks)
    except (NotSeparable, Refused):
        assume(False)


@CHECKS
@given(drawn(RANKS), PICKS)
def test_products_of_drawn_mappings(problem: Problem, picks: list[int]) -> None:
    compare_drawn(problem, False, picks)


@CHECKS
@given(drawn(WINDOWS), PICKS)
def test_windows_of_drawn_mappings(problem: Problem, picks: list[int]) -> None:
    compare_drawn(problem, True, picks)


@pytest.mark.slow
def test_windows_that_slide_are_bounded_by_the_part_that_is_empty_most_rarely() -> None:
    """Transfers of A are not followed one by one here: what counts is a probability, not elements."""
    problem = product_of(WINDOWS, {"p": 3, "r": 3, "n": 1})
    (einsum,) = problem.einsums
    accesses = tuple(replace(a, density=0.5 if a.tensor == "A" else None) for a in einsum.accesses)
    nodes = (
        StorageNode("DRAM", TENSORS), Loop("n", 1), Loop("r", 2), StorageNode("GLB", ("B", "Z")),
        Loop("p", 2), StorageNode("RF", TENSORS, "slide"), Loop("r", 2), Loop("r", 2),
        ComputeNode("Z", "MAC"),
    )  # fmt: skip
    cascade = replace(problem, einsums=(replace(einsum, accesses=accesses),))
    arch = hierarchy({"DRAM": (rule("gate", ("A",), ("A",)),)})
    compare(Problem(cascade, arch, LoopTree(nodes)), True, list(range(60)))
