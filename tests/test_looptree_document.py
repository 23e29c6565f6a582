"""What the LoopTree document says of tile size, reuse, lifetime and fusion, on its two products.

A = I WA, then B = A WB, for four vectors (rank M), with nI = 32, nA = 24, nB = 16 and one byte a value.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

import polymodel as pm
from polymodel.analysis.enumerate import ENGINE as REFEREE
from polymodel.analysis.result import Analysis, Problem
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Node, Split, StorageNode, storage_chain
from tests.generators import legal, problems

M, NI, NA, NB = 4, 32, 24, 16
SPEC = pm.load("two_buffers", "matvec_chain", M=M, NI=NI, NA=NA, NB=NB)
OUT, ON = "OffChipBuffer", "OnChipBuffer"


def loop(variable: str, tile: int = 1) -> Loop:
    return Loop(variable, tile)


def off(*tensors: str) -> StorageNode:
    return StorageNode(OUT, tensors)


def on(*tensors: str) -> StorageNode:
    return StorageNode(ON, tensors)


def tree(above: list[Node], first: list[Node], second: list[Node]) -> LoopTree:
    """The nodes above the split, and in each branch."""
    a, b = ComputeNode("EinsumA", "ComputeUnit"), ComputeNode("EinsumB", "ComputeUnit")
    return LoopTree((*above, Split(((*first, a), (*second, b)))))


def report(*parts: list[Node]) -> pm.Report:
    return pm.evaluate(SPEC.with_mapping(tree(*parts)))


def value(found: pm.Report, table: str, column: str, tensor: str, component: str = ON) -> int:
    """The sum of a column over the rows of one tensor at one component."""
    rows = getattr(found, table)
    return int(rows[(rows["component"] == component) & (rows["tensor"] == tensor)][column].sum())


def test_tile_shrinks_below_a_loop_that_indexes_the_tensor() -> None:
    backing = off("I", "WA", "WB", "B")
    above = report([backing, on("I", "B", "WA"), loop("nA", 4), on("A", "WB")], [], [])
    below = report([backing, on("I", "B"), loop("nA", 4), on("A", "WB", "WA")], [], [])
    assert value(above, "tiles", "tile_elements", "WA") == NI * NA
    assert value(below, "tiles", "tile_elements", "WA") == NI * 4
    # The loop indexes WA, so every element is still fetched once.
    assert value(above, "accesses", "fill_elements", "WA") == NI * NA
    assert value(below, "accesses", "fill_elements", "WA") == NI * NA


def test_reuse_is_lost_below_a_loop_that_does_not_index_the_tensor() -> None:
    backing = off("I", "WA", "WB", "B")
    above = report([backing, on("WA", "WB"), loop("m"), on("I", "A", "B")], [], [])
    below = report([backing, on("WB"), loop("m"), on("WA", "I", "A", "B")], [], [])
    assert value(above, "tiles", "tile_elements", "WA") == value(below, "tiles", "tile_elements", "WA")
    assert value(above, "accesses", "fill_elements", "WA") == NI * NA
    assert value(below, "accesses", "fill_elements", "WA") == NI * NA * M
    assert value(above, "accesses", "read_elements", "WA", OUT) * M == value(
        below, "accesses", "read_elements", "WA", OUT
    )


def resident(found: pm.Report, einsum: str) -> set[str]:
    """The tensors that are on chip at the peak of one Einsum's branch."""
    rows = found.working_sets
    row = rows[(rows["component"] == ON) & (rows["einsum"] == einsum) & (rows["measure"] == "tile")]
    return {entry.split("=")[0] for entry in row["residents"].iloc[0].split()}


def test_lifetime_ends_with_the_branch_that_uses_the_tile() -> None:
    backing = off("I", "WA", "WB", "B")
    whole = report([backing, on("I", "B", "WA"), loop("nA", 4), on("A", "WB")], [], [])
    tiled = report([backing, on("I", "B"), loop("nA", 4), on("A", "WB", "WA")], [], [])
    # Above the loop, WA is needed again in the next iteration and so lives through both branches; below the
    # loop but above the split it is alive in the left branch only, as it is when it stands in that branch.
    assert "WA" in resident(whole, "EinsumA")
    assert "WA" in resident(whole, "EinsumB")
    assert "WA" in resident(tiled, "EinsumA")
    assert "WA" not in resident(tiled, "EinsumB")
    inside = report([backing, on("I", "B"), loop("nA", 4), on("A", "WB")], [on("WA")], [])
    assert resident(inside, "EinsumA") == resident(tiled, "EinsumA")
    assert resident(inside, "EinsumB") == resident(tiled, "EinsumB")


@pytest.mark.parametrize(
    ("mapping", "fused"), [("unfused", False), ("untiled_fused", True), ("tiled_fused", True)]
)
def test_fusion_is_the_absence_of_the_intermediate_off_chip(mapping: str, fused: bool) -> None:
    found = pm.evaluate(pm.load("two_buffers", f"matvec_chain/{mapping}", M=M))
    rows = found.accesses
    off_chip = rows[(rows["component"] == OUT) & (rows["tensor"] == "A")]
    assert off_chip.empty == fused
    if not fused:
        assert int(off_chip["write_elements"].sum()) == M * NA
        assert int(off_chip["read_elements"].sum()) == M * NA


# --- Moving a storage node lower never raises tile size, reuse or lifetime.


def lowered(nodes: tuple[Node, ...], at: int, tensor: str) -> tuple[Node, ...] | None:
    """The list with `tensor` of storage node `at` held below the next temporal loop or split instead."""
    node = nodes[at]
    assert isinstance(node, StorageNode)
    alone = replace(node, tensors=(tensor,))
    rest = tuple(t for t in node.tensors if t != tensor)
    kept = (replace(node, tensors=rest),) if rest else ()
    for i in range(at + 1, len(nodes)):
        below = nodes[i]
        if isinstance(below, StorageNode) and tensor not in below.tensors:
            continue
        if isinstance(below, Loop) and not below.spatial:
            return (*nodes[:at], *kept, *nodes[at + 1 : i + 1], alone, *nodes[i + 1 :])
        if isinstance(below, Split):
            split = replace(below, branches=tuple((alone, *branch) for branch in below.branches))
            return (*nodes[:at], *kept, *nodes[at + 1 : i], split)
        return None
    return None


def used(nodes: tuple[Node, ...], uses: dict[str, tuple[str, ...]]) -> tuple[Node, ...]:
    """The list without tensors that no Einsum below uses."""

    def below(some: tuple[Node, ...]) -> set[str]:
        found: set[str] = set()
        for n in some:
            if isinstance(n, ComputeNode):
                found |= set(uses[n.einsum])
            elif isinstance(n, Split):
                for branch in n.branches:
                    found |= below(branch)
        return found

    result: list[Node] = []
    for i, n in enumerate(nodes):
        if isinstance(n, StorageNode):
            tensors = tuple(t for t in n.tensors if t in below(nodes[i:]))
            if tensors:
                result.append(replace(n, tensors=tensors))
        elif isinstance(n, Split):
            result.append(replace(n, branches=tuple(used(b, uses) for b in n.branches)))
        else:
            result.append(n)
    return tuple(result)


def figures(found: Analysis, component: str, tensor: str) -> tuple[int, int, int, int, set[str]]:
    """Largest tile, largest live count, moves over the link, visits and users of a tensor at a component."""
    held = [b for b in found.buffets if (b.component, b.tensor) == (component, tensor)]
    nodes = {b.node for b in held}
    rows = [t for t in found.traffic if t.node in nodes and t.tensor == tensor]
    return (
        max(b.tile_max for b in held),
        max(b.live or 0 for b in held),
        sum(t.writes_fill + t.reads_drain for t in rows),
        sum(b.visits for b in held),
        {e for b in held for e in b.einsums},
    )


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(problem=problems(simple=True), choose=st.data())
def test_moving_storage_lower_never_raises_tile_reuse_or_lifetime(
    problem: Problem, choose: st.DataObject
) -> None:
    uses = {e.name: e.tensors for e in problem.cascade}
    nodes = problem.tree.nodes
    moves = [
        (i, tensor, moved)
        for i, n in enumerate(nodes)
        if isinstance(n, StorageNode)
        for tensor in n.tensors
        if all(
            [s.node.component for s in chain if isinstance(s.node, StorageNode)].count(n.component) == 1
            and (not chain or chain[0].node is not n)
            for chain in (storage_chain(problem.tree, e, tensor) for e in uses)
            if chain
        )
        if (moved := lowered(nodes, i, tensor)) is not None
    ]
    assume(moves)
    at, tensor, moved = choose.draw(st.sampled_from(moves))
    node = nodes[at]
    assert isinstance(node, StorageNode)
    after = replace(problem, tree=LoopTree(used(moved, uses)))
    assume(legal(after) is None)
    event("split" if any(isinstance(n, Split) for n in moved) else "loop")
    tile, live, traffic, visits, users = figures(REFEREE.analyse(problem, live=True), node.component, tensor)
    low = figures(REFEREE.analyse(after, live=True), node.component, tensor)
    assert low[0] <= tile
    assert low[1] <= live
    assert low[2] >= traffic
    assert low[3] >= visits
    assert low[4] <= users
