"""Capacity by the additive and maximal formula, beside the tree's: equal or more, exactly as it should be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import polymodel as pm
from polymodel.analysis.exact import ENGINE
from polymodel.analysis.result import Problem
from polymodel.architecture.hierarchy import Component, Hierarchy
from polymodel.cost.records import Counts
from polymodel.errors import Refused
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Node, Split, StorageNode
from polymodel.report.evaluated import capacities, ffmr
from polymodel.schedule.legality import check
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess
from tests.analysis.test_agreement import drawing
from tests.faults import refused
from tests.fused import fused_problems, ranks
from tests.generators import problems
from tests.seeds import seeds
from tests.workloads import box

MACHINE = Hierarchy(tuple(Component(n, "memory") for n in ("DRAM", "GLB")) + (Component("MAC", "compute"),))
KINDS = {
    "matmul": ("m,{i}", "{i},{o}", "m,{o}"),
    "batched": ("m,b,{i}", "{i},{o}", "m,b,{o}"),
    "scaled": ("m,b,{i}", "b,{i},{o}", "m,b,{o}"),
}


def einsum(i: int, kind: str, sizes: dict[str, int]) -> Einsum:
    """T{i+1} = T{i} W{i}; `m` (and `b`) go through the whole chain."""
    texts = [t.format(i=f"n{i}", o=f"n{i + 1}") for t in KINDS[kind]]
    forms = ((f"T{i}", texts[0], False), (f"W{i}", texts[1], False), (f"T{i + 1}", texts[2], True))
    accesses = tuple(
        TensorAccess(t, tuple(f"R{n}" for n in range(len(ranks(x)))), ranks(x), output=out)
        for t, x, out in forms
    )
    variables = tuple(dict.fromkeys(v for a in accesses for v in a.variables))
    ranges = {v: (0, sizes[v] - 1) for v in variables}
    return Einsum(f"E{i}", variables, box(ranges), accesses, tuple(ranges.values()))


def glb(*tensors: str) -> list[Node]:
    return [StorageNode("GLB", (t,)) for t in tensors]


@st.composite
def chains(draw: st.DrawFn) -> Problem:
    """2 to 4 Einsums with fused loops over what goes through the chain, each tensor on chip somewhere."""
    count, kind = draw(st.integers(2, 4)), draw(st.sampled_from(list(KINDS)))
    sizes = {v: draw(st.integers(2, 9)) for v in ("m", "b")}
    sizes |= {f"n{i}": draw(st.integers(1, 5)) for i in range(count + 1)}
    einsums = tuple(einsum(i, kind, sizes) for i in range(count))
    cascade = Cascade(einsums)
    backing = [t for t in cascade.tensors if t not in cascade.intermediates]
    extents = dict(sizes)
    fused: list[Node] = []
    for _ in range(draw(st.integers(0, 3))):
        v = draw(st.sampled_from(["m"] if kind == "matmul" else ["m", "b"]))
        fitting = [t for t in range(1, extents[v] + 1) if extents[v] % t == 0 or t == 3]
        tile = draw(st.sampled_from(fitting))
        fused.append(Loop(v, tile))
        extents[v] = tile
    # Every weight, input and output: above everything, among or below the fused loops, or in its branch.
    depth = {t: draw(st.integers(0, len(fused) + 1)) for t in backing}
    depth |= {t: draw(st.sampled_from([0, len(fused), len(fused)])) for t in cascade.intermediates}
    if draw(st.booleans()):
        depth |= {t: 0 for t in backing if t.startswith("W")}
    above: list[Node] = []
    for place, loop in enumerate([*fused, None]):
        above += glb(*(t for t in cascade.tensors if depth[t] == place))
        above += [loop] if loop is not None else []
    branches = []
    for e in einsums:
        nodes: list[Node] = []
        here = [t for t in e.tensors if depth[t] == len(fused) + 1]
        inside = dict(extents)
        for v in draw(st.permutations(e.rank_variables)):
            if here and draw(st.booleans()):
                nodes += glb(here.pop())
            if draw(st.booleans()):
                inside[v] = draw(st.integers(1, inside.get(v, sizes[v])))
                nodes.append(Loop(v, inside[v]))
        branches.append((*nodes, *glb(*here), ComputeNode(e.name, "MAC")))
    tree = LoopTree((StorageNode("DRAM", tuple(backing)), *above, Split(tuple(branches))))
    return Problem(cascade, MACHINE, tree)


def run_many(count: int, test: Callable[[Problem], None]) -> None:
    @settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))
    @given(chains())
    def run(problem: Problem) -> None:
        assert not check(problem), drawing(problem)
        test(problem)

    cast(Callable[[], None], run)()


@pytest.mark.slow
@pytest.mark.parametrize("count", seeds(1, [60, 200]))
def test_the_tree_needs_what_the_formula_says_or_less(count: int) -> None:
    tally: Counter[str] = Counter()

    def compare(problem: Problem) -> None:
        for c in capacities(Counts(problem, ENGINE.analyse(problem))):
            assert c.tree_bits <= c.formula_bits, drawing(problem)
            if c.equal:
                assert c.tree_bits == c.formula_bits, drawing(problem)
            tally[
                f"{c.variant} {'sure' if c.equal else 'equal' if c.tree_bits == c.formula_bits else 'less'}"
            ] += 1

    run_many(count, compare)
    for case in (
        "ffmr_drop sure",
        "ffmr_retain sure",
        "untiled_fused sure",
    ):
        assert tally[case] > 0, tally
    assert tally["ffmr_drop less"] + tally["ffmr_retain less"] > 0, tally


@pytest.mark.slow
@pytest.mark.parametrize("count", seeds(1, [40, 150]))
def test_halos_policies_and_inferred_einsums_need_no_more_than_the_formula(count: int) -> None:
    counted: Counter[bool] = Counter()

    @settings(max_examples=count, deadline=None, suppress_health_check=list(HealthCheck))
    @given(problems() | fused_problems())
    def compare(problem: Problem) -> None:
        try:
            found = capacities(Counts(problem, ENGINE.analyse(problem)))
        except Refused:
            return
        for c in found:
            assert c.tree_bits <= c.formula_bits, drawing(problem)
            assert not c.equal or c.tree_bits == c.formula_bits, drawing(problem)
            counted[c.tree_bits == c.formula_bits] += 1

    compare()
    assert counted[True] > 0, counted
    assert counted[False] > 0, counted


def alone(problem: Problem, name: str) -> Problem:
    """One Einsum under its path of the tree, as if there were no others."""
    one = problem.cascade[name]
    nodes: list[Node] = []
    for step in problem.tree.path(name):
        node = step.node
        if isinstance(node, StorageNode):
            mine = tuple(t for t in node.tensors if t in one.tensors)
            nodes += [replace(node, tensors=mine)] if mine else []
        elif not isinstance(node, Split):
            nodes.append(node)
    return Problem(Cascade((one,)), problem.hierarchy, LoopTree(tuple(nodes)))


@pytest.mark.slow
@pytest.mark.parametrize("count", seeds(1, [6, 60]))
def test_accesses_are_those_of_each_einsum_alone(count: int) -> None:
    def moves(problem: Problem, name: str) -> dict[tuple[str, str], tuple[int, ...]]:
        return {
            (t.component, t.tensor): (t.reads_fill, t.reads_drain, t.writes_fill, t.writes_drain)
            for t in ENGINE.analyse(problem).traffic
            if t.einsum == name and t.component != "MAC"
        }

    def agree(problem: Problem) -> None:
        for e in problem.cascade:
            assert moves(problem, e.name) == moves(alone(problem, e.name), e.name), drawing(problem)

    run_many(count, agree)


def three(tile: int, rows: int) -> Problem:
    """Three products of which the middle one has the largest tiles of A and B; weights stay on chip."""
    sizes = {"m": rows, "n0": 1, "n1": 8, "n2": 8, "n3": 1}
    cascade = Cascade(tuple(einsum(i, "matmul", sizes) for i in range(3)))
    weights, maps = ("W0", "W1", "W2"), ("T0", "T1", "T2", "T3")
    nodes = (
        StorageNode("DRAM", ("T0", *weights, "T3")),
        StorageNode("GLB", weights),
        Loop("m", tile),
        StorageNode("GLB", maps),
        Split(tuple((ComputeNode(f"E{i}", "MAC"),) for i in range(3))),
    )
    return Problem(cascade, MACHINE, LoopTree(nodes))


def test_in_the_middle_of_three_two_iterations_are_not_enough() -> None:
    """W0 is used for the last time before the middle Einsum's last iteration, W2 first after its first."""
    for rows, equal in ((8, False), (12, True), (11, True), (10, True)):
        problem = three(4, rows)
        found = {c.component: c for c in capacities(Counts(problem, ENGINE.analyse(problem)))}["GLB"]
        assert found.formula_bits == 8 * (8 + 64 + 8 + 4 * 16)
        assert (found.tree_bits == found.formula_bits) == found.equal == equal, rows
        assert found.variant == "ffmr_drop"
    assert found.additive_bits == 8 * 80


def test_shipped_chain_in_one_table() -> None:
    found = pm.evaluate(pm.load("two_buffers", "matvec_chain/tiled_fused", M=4)).ffmr().set_index("component")
    row = found.loc["OnChipBuffer"]
    assert (row["variant"], row["additive_bits"], row["maximal_bits"]) == ("ffmr_drop", 1536, 1152)
    assert (row["formula_bits"], row["tree_bits"], row["equal"], row["sure"]) == (2688, 2688, True, True)
    untiled = pm.evaluate(pm.load("two_buffers", "matvec_chain/untiled_fused", M=4)).ffmr()
    assert set(untiled["variant"]) == {"untiled_fused"}


def test_other_forms_are_refused_by_name() -> None:
    with refused("invalid-structure"):
        pm.evaluate(pm.load("matmul", "edge_npu")).ffmr()
    problem = three(4, 12)
    lasting = replace(
        problem.cascade["E0"],
        accesses=tuple(replace(a, persistent=a.tensor == "W0") for a in problem.cascade["E0"].accesses),
    )
    held = replace(problem, cascade=Cascade((lasting, *problem.cascade.einsums[1:])))
    with refused("unsupported-memory", "W0"):
        ffmr(Counts(held, ENGINE.analyse(held)))
