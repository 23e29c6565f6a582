"""Which stamp coordinates may share, broadcast or carry a tensor."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from polymodel.analysis.exact.buffets import Layout, Node
from polymodel.errors import Refused
from polymodel.mapping.looptree import ties
from polymodel.schedule.touch import View


def shared_axes(layout: Layout, einsum: str, tensor: str) -> frozenset[int]:
    """Loop positions on the Einsum's path along which the tensor may be multicast or reduced."""
    found = set()
    variables = layout.problem.cascade[einsum].access_of(tensor).variables
    for position, (_, loop) in enumerate(layout.problem.tree.loops(einsum)):
        if loop.spatial:
            dim = layout.problem.hierarchy[loop.component].dim(loop.dim)
            if dim.shares(einsum, tensor, indexed=loop.variable_in(einsum) in variables):
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
    found = [chain[0].policy_carries if chain[0].forgets else frozenset(range(chain[0].loops))]
    for parent, node in pairwise(chain):
        above = found[-1]
        found.append(frozenset(a for a in node.policy_carries if a >= parent.loops or a in above))
    return tuple(found)


def result_view(layout: Layout, einsum: str, tensor: str) -> View:
    """How compute touches an output, with the loops in whose iterations its elements are made afresh."""
    nodes = layout.chain(einsum, tensor)
    return replace(layout.full[einsum, tensor], versions=_versions(layout, einsum, tensor, nodes))


def _versions(layout: Layout, einsum: str, tensor: str, nodes: tuple[Node, ...]) -> tuple[int, ...]:
    """Temporal loops (node ids) in whose iterations results are made afresh, all of them.

    Counting an element of each iteration as an element of its own, nothing is carried or read between them.
    What is inferred is made once while the outermost storage holds it.
    """
    tree = layout.problem.tree
    tied = ties(layout.problem.cascade, tree, einsum)
    inferred = "inferred" in tied.values()
    free = [i for i, loop in tree.loops(einsum) if tied[i] != "bound" and not loop.spatial]
    found = tuple(i for i in free if not inferred or i < nodes[0].id)
    for node in nodes[1:]:
        if found and not inferred and (node.id < max(found) or node.policy_carries):
            raise Refused(
                f"{einsum} is executed again in each iteration of a loop, from one to the next of which "
                f"{node.component} (node {node.id}) keeps {tensor}",
                "use reuse: refill for this node, below that loop",
            )
    return found
