"""Who comes first: elements that are used out of order, in one factor of a touch."""

from __future__ import annotations

import islpy as isl

from polymodel.polyhedra.build import parse_set
from polymodel.polyhedra.counting import points_of


def meeting(one: str, other: str, np: int, nt: int, equal: int, later: bool) -> tuple[int, ...] | None:
    """An element x with t in `one`, t' in `other`, both touching x, t and t' equal in their first
    `equal` counters and, if `later`, t greater in the next; None if there is none."""
    a = parse_set(one).project_out(isl.dim_type.set, 0, np)
    b = parse_set(other).project_out(isl.dim_type.set, 0, np)
    nx = a.dim(isl.dim_type.set) - nt
    pairs = isl.Map.from_domain_and_range(a, b)
    for i in [*range(equal), *range(nt, nt + nx)]:
        pairs = pairs.equate(isl.dim_type.in_, i, isl.dim_type.out, i)
    if later:
        pairs = pairs.order_gt(isl.dim_type.in_, equal, isl.dim_type.out, equal)
    found = pairs.domain().project_out(isl.dim_type.set, 0, nt)
    return sample(found)


def sample(points: isl.Set) -> tuple[int, ...] | None:
    """The first point of a set, None if it has none."""
    if points.is_empty():
        return None
    if points.dim(isl.dim_type.set) == 0:
        return ()
    return points_of(isl.Set.from_point(points.lexmin().sample_point()))[0]


def missing(wanted: str, made: str | None, drop: int) -> tuple[int, ...] | None:
    """A point of `wanted` that is not in `made` (None: any), both without their first `drop` dimensions."""
    points = parse_set(wanted).project_out(isl.dim_type.set, 0, drop)
    if made is not None:
        points = points.subtract(parse_set(made).project_out(isl.dim_type.set, 0, drop))
    return sample(points)


def made_once(made: str, np: int, nt: int) -> bool:
    """True if each element is touched at one stamp only, counters of instances included."""
    return bool(_where(made, np, nt).is_single_valued())


def made_apart(made: str, np: int, nt: int) -> tuple[int, ...]:
    """An element that is touched at several stamps, any element if none is."""
    where = _where(made, np, nt)
    others = where.subtract(where.lexmin()).domain()
    return sample(where.domain() if others.is_empty() else others) or ()


def _where(made: str, np: int, nt: int) -> isl.Map:
    """`{ [element] -> [stamp] }` of a factor."""
    points = parse_set(made)
    identity = isl.Map.identity(points.get_space().map_from_set()).intersect_domain(points)
    nx = points.dim(isl.dim_type.set) - np - nt
    return identity.project_out(isl.dim_type.in_, 0, np + nt).project_out(isl.dim_type.out, np + nt, nx)
