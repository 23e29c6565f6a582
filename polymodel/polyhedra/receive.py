"""First events and receivers of partial sums, for one factor `[p..., t..., x...]` of a link.

`np`, `nt`: the child's spatial and temporal dimensions; `np_parent`, `nt_parent`: those that are
the parent's, which lead. Sets, not counts: docs/semantics.md, Links.
"""

from __future__ import annotations

import islpy as isl

SET = isl.dim_type.set


def drop(points: isl.Set, positions: tuple[int, ...]) -> isl.Set:
    for position in sorted(positions, reverse=True):
        points = points.project_out(SET, position, 1)
    return points


def widen(points: isl.Set, positions: tuple[int, ...]) -> isl.Set:
    """Insert free dimensions so that they end up at `positions` (ascending)."""
    for position in sorted(positions):
        points = points.insert_dims(SET, position, 1)
    return points


def of_each(points: isl.Set, touched: isl.Set) -> isl.Set:
    """Touches that are in `points` by all dimensions but the last ones, which `points` does not have."""
    total = points.dim(SET)
    return touched.intersect(points.insert_dims(SET, total, touched.dim(SET) - total))


def inner_first(points: isl.Set, np: int, nt: int, np_parent: int, nt_parent: int) -> isl.Set:
    """Touches at the first time, over all children of one parent instance, within the parent's stamp."""
    between = tuple(range(np_parent, np))
    times = drop(points, between)
    spread = isl.Map.identity(times.get_space().map_from_set()).intersect_domain(times)
    spread = spread.project_out(isl.dim_type.in_, np_parent + nt_parent, nt - nt_parent)
    first = spread.lexmin().range()
    return points.intersect(widen(first, between))


def receivers(points: isl.Set, single: tuple[int, ...], every: tuple[int, ...]) -> isl.Set:
    """Per stamp and element the instances that receive: first along `single`, all along `every`."""
    if not single:
        return points
    narrow = drop(points, every)
    positions = [s - sum(1 for e in every if e < s) for s in single]
    spread = isl.Map.identity(narrow.get_space().map_from_set()).intersect_domain(narrow)
    for position in sorted(positions, reverse=True):
        spread = spread.project_out(isl.dim_type.in_, position, 1)
    return points.intersect(widen(spread.lexmin().range(), every))


def under(points: isl.Set, parents: isl.Set, np: int, nt: int, np_parent: int, nt_parent: int) -> isl.Set:
    """Touches whose parent's stamp and element are in `parents` (`[p_parent, t_parent, x]`)."""
    wide = widen(parents, tuple(range(np_parent, np)))
    return points.intersect(widen(wide, tuple(range(np + nt_parent, np + nt))))
