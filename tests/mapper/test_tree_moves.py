"""Moves from mapping to mapping: they stay in the space, and lead from any mapping to every other one."""

from __future__ import annotations

from typing import Any

import pytest

import polymodel as pm
from polymodel.analysis.result import Problem
from polymodel.api.evaluation import evaluate_problem
from polymodel.errors import SpecError
from polymodel.mapper.membership import outside
from polymodel.mapper.records import Limits
from polymodel.mapper.space import einsum_spaces
from polymodel.mapper.tree_moves import own_part
from polymodel.mapping.looptree import Loop, LoopTree, Split, StorageNode
from polymodel.reuse import Reuse
from tests.mapper.sparse_spaces import distinct
from tests.mapper.test_sparse import Case

SPACES = [
    Case((2, 2, 1), {"A": 0.5}, {}, glb=10**4),
    Case((2, 1, 2), {"A": 0.5}, {}, glb=10**4),
    Case((1, 3, 1), {"A": 0.5}, {}, glb=10**4),
]


def spec_of(case: Case, fanout: int = 1, registers: str = "") -> pm.Spec:
    document: dict[str, Any] = case.document
    nodes = document["arch"]["nodes"]
    if fanout > 1:
        nodes[1]["spatial"] = [{"name": "X", "fanout": fanout, "broadcast_partials": True}]
    if registers:
        nodes[1]["tensors"] = {"may_keep": "A"}
        nodes.insert(2, {**nodes[1], "name": "RF", "tensors": {"may_keep": registers}})
        nodes[2].pop("spatial", None)
    return pm.load(document)


@pytest.mark.parametrize(
    "spec",
    [*map(spec_of, SPACES[:2]), spec_of(SPACES[2], 3), spec_of(SPACES[0], 2, "Z")],
    ids=["square", "wide", "spread", "three memories"],
)
def test_moves_lead_from_one_mapping_to_every_other(spec: pm.Spec) -> None:
    """Against the lister of all mappings, which knows nothing of moves."""
    (one,), every = spec.workload.einsums, {t.nodes for t in distinct(spec)}
    first = next(t for t in distinct(spec) if len(t.nodes) == min(map(len, every)))
    seen, waiting, tried = {first.nodes}, [first], set()
    while waiting:
        tree = waiting.pop()
        part = own_part(tree, one, spec.arch)
        assert part is not None
        assert part.planted(tree).nodes == tree.nodes
        for near in part.neighbours():
            moved = near.planted(tree)
            if moved.nodes not in tried:
                tried.add(moved.nodes)
                assert _is_mapping(spec, moved) == (moved.nodes in every)
            if moved.nodes in every and moved.nodes not in seen:
                seen.add(moved.nodes)
                waiting.append(moved)
    assert seen == every


def _is_mapping(spec: pm.Spec, tree: LoopTree) -> bool:
    (space,) = einsum_spaces(spec.workload, spec.arch, Limits())
    try:
        evaluate_problem(Problem(spec.workload, spec.arch, tree))
    except SpecError:
        return False
    return not outside(space, tree, Limits(), spec.arch)


def test_a_branch_alone_moves() -> None:
    """Of two Einsums one keeps its mapping, and what stands above the split stays."""
    spec = pm.load("matmul_chain_2", "simple_two_level", M=4, N0=4, N1=4, N2=2)
    tree = pm.explore(spec, objectives=("energy",), constraints={"max_fused_loops": 0})[0].candidate.tree
    one, two = spec.workload.einsums
    part = own_part(tree, two, spec.arch)
    assert part is not None
    moved = [near.planted(tree) for near in part.neighbours()]
    assert moved
    for t in moved:
        assert _own_nodes(t, one.name) == _own_nodes(tree, one.name)
        assert len(t.path(two.name)) > 2


def _own_nodes(tree: LoopTree, einsum: str) -> list[object]:
    return [s.node for s in tree.path(einsum) if not isinstance(s.node, Split)]


def test_what_has_no_neighbours() -> None:
    """Tiles that do not divide, and storage that slides."""
    spec = spec_of(Case((4, 1, 1), {"A": 0.5}, {}))
    (one,) = spec.workload.einsums
    (tree, *_) = distinct(spec)
    root, *_, unit = tree.nodes
    odd = LoopTree((root, Loop("m", 3), Loop("m", 1), unit))
    sliding = LoopTree((root, Loop("m", 1), StorageNode("GLB", ("A",), Reuse.SLIDE), unit))
    assert own_part(odd, one, spec.arch) is None
    assert own_part(sliding, one, spec.arch) is None
