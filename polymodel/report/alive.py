"""In which Einsums a buffet's tile is alive: docs/semantics.md, Occupancy."""

from __future__ import annotations

from collections.abc import Sequence

from polymodel.analysis.engine import Problem
from polymodel.analysis.result import Buffet
from polymodel.mapping.looptree import Loop, Split, Step


def alive_in(problem: Problem, b: Buffet) -> tuple[str, ...]:
    """The Einsums that run from the first to the last use of a visit's tile, in order of execution.

    A loop between the storage node and a split runs the split's branches again and again: a tile that one
    of them uses in every iteration is alive in all of them. Where one Einsum alone uses the tile and no such
    loop is there, it is alive in that one. A persistent tensor stays in its backing node while anything runs.
    """
    order = problem.tree.einsums
    accesses = problem.cascade.accesses_of(b.tensor)
    if b.parent is None and any(a.persistent for a in accesses):
        return order
    found = set(b.einsums)
    for user in b.einsums:
        path = problem.tree.path(user)
        start = next(i for i, step in enumerate(path) if step.id == b.node)
        split = _repeated(problem, path[start:])
        if split is not None:
            found.update(problem.tree.below[split])
    places = [order.index(e) for e in found]
    return order[min(places) : max(places) + 1]


def _repeated(problem: Problem, path: Sequence[Step]) -> int | None:
    """The outermost split on the path that stands below a temporal loop of more than one iteration."""
    again = False
    for step in path:
        if isinstance(step.node, Split) and again:
            return step.id
        again |= isinstance(step.node, Loop) and not step.node.spatial and _iterates(problem, step)
    return None


def _iterates(problem: Problem, step: Step) -> bool:
    """True if a loop splits the range of any Einsum below it into more than one tile."""
    return any(_trips(problem, einsum, step) > 1 for einsum in problem.tree.below[step.id])


def _trips(problem: Problem, einsum: str, step: Step) -> int:
    """Tiles of the largest enclosing tile; 1 where the Einsum has no such rank variable."""
    assert isinstance(step.node, Loop)
    one = problem.cascade[einsum]
    variable = step.node.variable_in(einsum)
    if variable not in one.rank_variables:
        return 1
    low, high = one.bound(variable)
    extent = high - low + 1
    for here, loop in problem.tree.loops(einsum):
        if loop.variable_in(einsum) == variable:
            tile = int(loop.tile_shape)
            if here == step.id:
                first = extent if loop.initial_tile_shape is None else int(loop.initial_tile_shape)
                return 1 + -(-(extent - min(first, tile)) // tile) if extent > min(first, tile) else 1
            extent = min(extent, max(tile, int(loop.initial_tile_shape or 0)))
    return 1
