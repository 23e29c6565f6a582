"""Which stamp coordinates may share, broadcast or carry a tensor."""

from __future__ import annotations

from itertools import pairwise

from polymodel.analysis.exact.buffets import Layout, Node


def shared_axes(layout: Layout, einsum: str, tensor: str) -> frozenset[int]:
    """Loop positions on the Einsum's path along which the tensor may be multicast or reduced."""
    found = set()
    for position, (_, loop) in enumerate(layout.problem.tree.loops(einsum)):
        if loop.spatial:
            dim = layout.problem.hierarchy[loop.component].dim(loop.dim)
            if dim.reuses(einsum, tensor):
                found.add(position)
    return frozenset(found)


def broadcast_axes(layout: Layout, einsum: str) -> frozenset[int]:
    """Loop positions whose dimension broadcasts refilled partial sums."""
    found = set()
    for position, (_, loop) in enumerate(layout.problem.tree.loops(einsum)):
        if loop.spatial and layout.problem.hierarchy[loop.component].dim(loop.dim).broadcast_partials:
            found.add(position)
    return frozenset(found)


def output_carries(layout: Layout, chain: tuple[Node, ...]) -> tuple[frozenset[int], ...]:
    """Per level of an output's chain, where it may stay: its parent must keep it too."""
    found = [frozenset(range(chain[0].loops))]
    for parent, node in pairwise(chain):
        above = found[-1]
        found.append(frozenset(a for a in node.policy_carries if a >= parent.loops or a in above))
    return tuple(found)
