"""Which stamp coordinates may share, broadcast or carry a tensor."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from polymodel.analysis.exact.buffets import Layout, Node
from polymodel.mapping.looptree import ties
from polymodel.polyhedra import needs
from polymodel.schedule.touch import Part, View


def shared_axes(layout: Layout, einsum: str, tensor: str) -> frozenset[int]:
    """Loop positions on the Einsum's path along which the tensor may be multicast or reduced."""
    found = set()
    variables = layout.problem.cascade[einsum].indexing(tensor)
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
    home = layout.chain(einsum, tensor)[0]
    return replace(layout.full[einsum, tensor], versions=_versions(layout, einsum, home))


def _versions(layout: Layout, einsum: str, home: Node) -> tuple[int, ...]:
    """Temporal loops (node ids) in each iteration of which inferred results are made afresh, all of them.

    Counting an element of each iteration as an element of its own, nothing is carried or read between them.
    What is inferred is made once while the outermost storage holds it.
    """
    tree = layout.problem.tree
    tied = ties(layout.problem.cascade, tree, einsum)
    if "inferred" not in tied.values():
        return ()
    return tuple(
        i for i, loop in tree.loops(einsum) if tied[i] != "bound" and not loop.spatial and i < home.id
    )


def repeating_loops(layout: Layout, einsum: str) -> tuple[int, ...]:
    """Temporal loops (node ids) of several iterations, each of which executes the Einsum again.

    Storage may keep results from one iteration to the next. Partial sums are never read between them.
    """
    tree = layout.problem.tree
    tied = ties(layout.problem.cascade, tree, einsum)
    if "inferred" in tied.values():
        return ()
    view = next(v for (e, _), v in layout.full.items() if e == einsum)
    return tuple(
        i
        for i, loop in tree.loops(einsum)
        if tied[i] == "repeated" and not loop.spatial and _iterates(view.parts, i)
    )


def _iterates(parts: tuple[Part, ...], node: int) -> bool:
    """True if the counter of a loop takes several values."""
    part = next(p for p in parts if node in p.loops)
    low, high = needs.extent(part.text, part.loops.index(node))
    return high > low
