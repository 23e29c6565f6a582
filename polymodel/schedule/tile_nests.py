"""Factors as nests of tiles, with the stamps and elements of their ISL text, to be counted by classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from polymodel.affine import Affine, Constraint
from polymodel.polyhedra.nests import Bound, Cut, Nest
from polymodel.schedule.text import essential_constraints, tile_sizes

if TYPE_CHECKING:
    from polymodel.schedule.touch import Block, View

Named = tuple[Nest | None, tuple[str, ...]]


def nest_of(views: Sequence[View], block: Block, order: Sequence[int]) -> Named:
    """The nest of one block and its variables, if it is the same for all views; else (None, ())."""
    nest, variables = _nest(views[0], block, order)
    if nest is None or any(_nest(view, block, order)[0] != nest for view in views[1:]):
        return None, ()
    # A nest does not know where its elements lie: those of several views have to be the same.
    if len({_first(view, block) for view in views}) > 1:
        return None, ()
    return nest, variables


def _first(view: View, block: Block) -> tuple[int, ...]:
    """The element at the beginning of every variable's range."""
    begin = {v: view.einsum.bound(v)[0] for v in view.einsum.rank_variables}
    for _, loop, origin in reversed(view.loops):
        if loop.variable_in(view.einsum.name) in begin:
            begin[loop.variable_in(view.einsum.name)] = origin
    return tuple(view.access.projection[r].value(begin) for r in block.ranks)


def _nest(view: View, block: Block, order: Sequence[int]) -> Named:
    name = view.einsum.name
    variables = tuple(v for v in view.einsum.rank_variables if (name, v) in block.variables)
    if view.parts or view.versions or view.access.guard:
        return None, ()
    origins = {v: view.einsum.bound(v)[0] for v in variables}
    for _, loop, origin in reversed(view.loops):
        if loop.variable_in(name) in origins:
            origins[loop.variable_in(name)] = origin
    extents = tuple(view.einsum.bound(v)[1] - origins[v] + 1 for v in variables)
    bounds = _bounds(view, variables, origins, extents)
    loops = []
    for position in order:
        if position >= len(view.loops):
            loops.append(Cut(variables.index(view.offsets[position - len(view.loops)]), 1, 1))
            continue
        _, loop, _ = view.loops[position]
        tile, first = tile_sizes(loop)
        loops.append(Cut(variables.index(loop.variable_in(name)), tile, tile if first is None else first))
    if bounds is None:
        return None, ()
    ranks = tuple(_row(view.access.projection[r], variables) for r in block.ranks)
    path = tuple(sorted(range(len(order)), key=lambda k: order[k]))
    nest = Nest(extents, tuple(loops), path, bounds, ranks)
    return (nest, variables) if nest.countable else (None, ())


def _row(expr: Affine, variables: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(expr.coefficient(v) for v in variables)


def _bounds(
    view: View, variables: tuple[str, ...], origins: dict[str, int], extents: tuple[int, ...]
) -> tuple[Bound, ...] | None:
    """The bounds that the box does not imply, from the origins on; None if one is no inequality."""
    found: dict[Bound, None] = {}
    for constraint in essential_constraints(view.einsum):
        if not set(constraint.expr.variables) & set(variables):
            continue
        bound = _bound(constraint, variables, origins)
        if bound is None:
            return None
        reach = zip(bound.coefficients, extents, strict=True)
        if bound.constant + sum(min(c, 0) * (e - 1) for c, e in reach) < 0:
            found[bound] = None
    return tuple(found)


def _bound(constraint: Constraint, variables: tuple[str, ...], origins: dict[str, int]) -> Bound | None:
    if constraint.kind != "ge":
        return None
    row = _row(constraint.expr, variables)
    moved = sum(c * origins[v] for v, c in zip(variables, row, strict=True))
    return Bound(row, constraint.expr.constant + moved)
