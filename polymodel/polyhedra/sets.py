"""Small operations on sets over `[p..., t..., x...]`."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import islpy as isl

from polymodel.polyhedra.build import parse_set
from polymodel.polyhedra.counting import size


def parsed(text: str) -> isl.Set:
    return parse_set(text)


def without(points: isl.Set, drop: tuple[int, ...]) -> isl.Set:
    """`points` with the dimensions at positions `drop` projected out."""
    if drop and drop == tuple(range(drop[0], drop[0] + len(drop))):
        return points.project_out(isl.dim_type.set, drop[0], len(drop))
    for position in sorted(drop, reverse=True):
        points = points.project_out(isl.dim_type.set, position, 1)
    return points


def located(points: isl.Set, places: isl.Set, np: int, nt: int, np_where: int) -> isl.Set:
    """`{ [p_where, t, x] }`: points `[p, t, x]` joined with places `[p_where, x]`, p a prefix of p_where."""
    nx = points.dim(isl.dim_type.set) - np - nt
    wide = points.insert_dims(isl.dim_type.set, np, np_where - np)
    assert places.dim(isl.dim_type.set) == np_where + nx
    return wide.intersect(places.insert_dims(isl.dim_type.set, np_where, nt))


def lacking(points: isl.Set, sizes: Sequence[int]) -> tuple[int, tuple[int, ...]] | None:
    """How many points of the box `0 <= x < sizes` `points` lacks, and the first of them; None if none."""
    dims = [f"x{k}" for k in range(len(sizes))]
    bounds = " and ".join(f"0 <= {x} < {n}" for x, n in zip(dims, sizes, strict=True)) or "true"
    box = isl.Set(f"{{ [{', '.join(dims)}] : {bounds} }}")
    missing = box.subtract(points.reset_tuple_id())
    if missing.is_empty():
        return None
    first = missing.lexmin()
    at = tuple(int(first.dim_min_val(k).to_python()) for k in range(len(sizes)))
    return prod(sizes) - size(points), at


def is_subset(one: str, other: str) -> bool:
    """Every point of `one` is in `other` (texts over the same dimensions)."""
    return bool(parse_set(one).is_subset(parse_set(other)))


def same(one: str, other: str) -> bool:
    return one == other or bool(parse_set(one).is_equal(parse_set(other)))
