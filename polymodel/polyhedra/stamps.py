"""The stamps of one factor that has too many points to list, and what they hold."""

from __future__ import annotations

from functools import lru_cache

import islpy as isl

from polymodel.polyhedra import classes, sets
from polymodel.polyhedra.build import parse_set
from polymodel.polyhedra.counting import points_of

Point = tuple[int, ...]


@lru_cache(maxsize=1024)
def stamps(text: str, drop: tuple[int, ...]) -> tuple[Point, ...]:
    """All points without the dimensions at positions `drop`; refuses more than 200,000."""
    return tuple(points_of(sets.without(parse_set(text), drop).coalesce()))


@lru_cache(maxsize=1024)
def sizes(text: str, width: int) -> tuple[tuple[Point, int], ...]:
    """(stamp, elements): stamps are the first `width` dimensions."""
    return tuple((point, size) for domain, size in classes.sizes(text, width) for point in points_of(domain))


@lru_cache(maxsize=65536)
def meet(text: str, width: int, one: Point, other: Point) -> bool:
    """Whether two stamps hold a common element."""
    return not _held(text, width, one).intersect(_held(text, width, other)).is_empty()


@lru_cache(maxsize=16384)
def _held(text: str, width: int, stamp: Point) -> isl.Set:
    points = parse_set(text)
    for i, value in enumerate(stamp):
        points = points.fix_val(isl.dim_type.set, i, isl.Val(value))
    return points.project_out(isl.dim_type.set, 0, width)


@lru_cache(maxsize=1024)
def steps(text: str, dim: int) -> int:
    """One more than the largest value of a counter."""
    return int(parse_set(text).dim_max_val(dim).to_python()) + 1
