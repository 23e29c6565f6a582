"""Sparse costs of drawn cascades at many tile sizes at once are those of each point."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from polymodel.analysis.result import Problem
from polymodel.analysis.symbolic import closed_counts
from polymodel.architecture.hierarchy import ActionKind, Component, SparseOptimization, SparseRules
from polymodel.cost.costs import costs
from polymodel.errors import NotSeparable, Refused
from polymodel.mapping.looptree import Loop, Node, Split
from polymodel.schedule.legality import check
from polymodel.sparse.actions.counts import sparse_counts
from polymodel.sparse.actions.rescale import sparse_analysis
from polymodel.sweeps.axes import SymbolAxis, _fits
from polymodel.sweeps.sparse.columns import bound_problem
from tests.fused import fused_problems
from tests.separable import separable_problems
from tests.sweep.test_sparse_blocks import actions, whole_block

MOST = 10  # points of one problem
KINDS: tuple[ActionKind, ...] = ("gate", "skip")


def symbolic(nodes: tuple[Node, ...], symbols: dict[str, int]) -> tuple[Node, ...]:
    """A symbol for the tile of every loop."""
    found: list[Node] = []
    for node in nodes:
        if isinstance(node, Split):
            node = replace(node, branches=tuple(symbolic(b, symbols) for b in node.branches))
        elif isinstance(node, Loop) and isinstance(node.tile_shape, int):
            name = f"T{len(symbols)}"
            symbols[name] = node.tile_shape
            node = replace(node, tile_shape=name)
        found.append(node)
    return tuple(found)


@st.composite
def sparse(draw: st.DrawFn, problem: Problem) -> Problem:
    """The problem with densities of its inputs, formats, actions and energies."""
    cascade = problem.cascade
    written = {a.tensor for e in cascade.einsums for a in e.outputs}
    densities = {t: draw(st.sampled_from((None, 0.2, 0.5))) for t in cascade.tensors if t not in written}

    def rules(c: Component) -> SparseRules:
        kinds = draw(st.lists(st.sampled_from(KINDS), max_size=2))
        found = []
        for kind in kinds[: None if c.kind == "memory" else 1]:
            by = []
            for e in cascade.einsums:
                on = draw(st.sampled_from(e.inputs)).tensor
                targets = (draw(st.sampled_from(e.accesses)).tensor,) if c.kind == "memory" else ()
                by.append((e.name, targets, (on,)))
            found.append(SparseOptimization(kind, tuple(by)))
        packed = [t for t in cascade.tensors if c.kind == "memory" and draw(st.integers(0, 4)) == 0]
        return SparseRules(tuple((t, "COO") for t in packed), tuple(found))

    components = []
    for i, c in enumerate(problem.hierarchy.components):
        if c.kind in ("memory", "compute"):
            c = replace(c, sparse=rules(c), actions=tuple(actions(c.kind, i, draw(st.booleans()))))
        elif c.kind == "toll":
            c = replace(c, actions=tuple(actions(c.kind, i, False)))
        components.append(replace(c, spatial=tuple(replace(d, fanout=10**6) for d in c.spatial)))
    einsums = tuple(
        replace(e, accesses=tuple(replace(a, density=densities.get(a.tensor)) for a in e.accesses))
        for e in cascade.einsums
    )
    hierarchy = replace(problem.hierarchy, components=tuple(components))
    return replace(problem, cascade=replace(cascade, einsums=einsums), hierarchy=hierarchy)


def legal_tiles(problem: Problem, chains: Any, symbols: dict[str, int], seed: int) -> list[dict[str, int]]:
    """The tiles as drawn, and some others, that make legal mappings."""
    pick = random.Random(seed)
    near = [{s: max(1, v + pick.randint(-1, 1)) for s, v in symbols.items()} for _ in range(60)]
    far = [{s: pick.randint(1, 6) for s in symbols} for _ in range(60)]
    wanted = [symbols, *near, *far] if symbols else [symbols]
    columns = {s: np.array([w[s] for w in wanted]) for s in symbols}
    good = np.ones(len(wanted), bool)
    for chain in chains:
        good &= _fits(chain, columns)
    some = [wanted[i] for i in np.flatnonzero(good)[:MOST]]
    return [w for w in some if not check(bound_problem(problem, w))]


def compare(problem: Problem, seed: int) -> None:
    symbols: dict[str, int] = {}
    opened = replace(problem, tree=replace(problem.tree, nodes=symbolic(problem.tree.nodes, symbols)))
    try:
        tiles = legal_tiles(opened, closed_counts(opened).chains, symbols, seed)
        assume(tiles)
        columns = {s: np.array([t[s] for t in tiles]) for s in symbols}
        axes = (SymbolAxis(tuple(symbols), columns, np.arange(len(tiles)), len(tiles), len(tiles)),)
        found, kernel, plan, forms = whole_block(opened, axes if symbols else ())
        energy, latency = found.sparse_energy, found.sparse_latency
    except (NotSeparable, Refused):
        assume(False)
    shape = kernel.height, kernel.width
    for i, values in enumerate(tiles):
        bound, analysis = bound_problem(opened, values), forms.at(values)
        counts = sparse_counts(bound, analysis, plan.data)
        wanted = costs(bound, sparse_analysis(bound, analysis, counts))

        def at(value: Any, i: int = i) -> float:
            return float(np.broadcast_to(value, shape).reshape(-1)[i])

        assert at(energy) == pytest.approx(wanted.total_energy, rel=1e-9)
        assert at(latency) == pytest.approx(wanted.total_latency, rel=1e-9)
        needs: dict[str, float] = {}
        for need in wanted.needs:
            if need.counts:
                needs[need.component] = max(needs.get(need.component, 0), need.bits)
        for component, bits in needs.items():
            assert at(found.working_sets[component]) == pytest.approx(bits, rel=1e-9)


CHECKS = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.slow
@CHECKS
@given(separable_problems().flatmap(sparse), st.integers(0, 10**6))
def test_separable_cascades(problem: Problem, seed: int) -> None:
    compare(problem, seed)


@pytest.mark.slow
@CHECKS
@given(fused_problems().flatmap(sparse), st.integers(0, 10**6))
def test_fused_chains(problem: Problem, seed: int) -> None:
    compare(problem, seed)
