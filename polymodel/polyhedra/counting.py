"""Exact counts of integer points with barvinok; the one place that calls `card`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

import islpy as isl

from polymodel.arrays import np
from polymodel.errors import Refused
from polymodel.integers import SUMMED, largest
from polymodel.polyhedra.build import parse_set

if TYPE_CHECKING:
    from numpy.typing import NDArray

_POINT_LIMIT = 200_000
# Tiles in tiles in tiles: with so many counters barvinok may take minutes for a few hundred points, while isl
# scans them in milliseconds. Sets are scanned if even their bounding box is small.
_MANY, _SCANNED = 4, 1_000_000
_VERY_MANY, _STAMPS = 8, 500  # the same for sizes by stamp, where few stamps make few pieces


def _box(points: isl.Set) -> int:
    """How many points the bounding box has."""
    return prod(1 + high - low for low, high in spans(points))


def spans(points: isl.Set) -> tuple[tuple[int, int], ...]:
    """The lowest and the highest value of each dimension of a bounded set that has points."""
    dims = range(points.dim(isl.dim_type.set))
    ends = [(points.dim_min_val(i), points.dim_max_val(i)) for i in dims]
    return tuple((int(low.to_python()), int(high.to_python())) for low, high in ends)


def size(points: isl.Set) -> int:
    """How many integer points a bounded set has."""
    if points.dim(isl.dim_type.set) == 0:
        return 0 if points.is_empty() else 1
    if points.is_empty():
        return 0
    if points.dim(isl.dim_type.set) >= _MANY and _box(points) <= _SCANNED:
        return int(points.count_val().to_python())
    counted = points.card()
    pieces = counted.get_pieces()
    if not pieces:
        return 0
    total = counted.eval(isl.Point.zero(counted.domain().get_space().params()))
    return int(total.to_python())


@dataclass(frozen=True)
class SizePiece:
    """On every point of `domain` the counted fibre has `size` elements."""

    domain: isl.Set
    size: int


def _constant(poly: isl.QPolynomial) -> int | None:
    terms = poly.get_terms()
    if not terms:
        return 0
    if len(terms) > 1:
        return None
    term = terms[0]
    for kind in (isl.dim_type.set, isl.dim_type.div, isl.dim_type.param):
        for i in range(term.dim(kind)):
            if term.get_exp(kind, i):
                return None
    value = term.get_coefficient_val().to_python()
    return int(value)


def points_of(domain: isl.Set) -> list[tuple[int, ...]]:
    """All points of a small bounded set, in isl's order; refuses more than 200,000."""
    return [tuple(point) for point in point_table(domain).tolist()]


def point_table(domain: isl.Set) -> NDArray[np.int64]:
    """The same as a table of one row per point and one column per dimension."""
    count, width = size(domain), domain.dim(isl.dim_type.set)
    # isl swallows exceptions of callbacks, so the size is checked before.
    if count > _POINT_LIMIT:
        raise Refused(
            "a piece of the iteration space has too many different tile sizes to enumerate",
            "use rectangular tiles or a smaller workload",
        )
    found: list[str] = []
    # Read off the points' text, "{ [1, 2] }": five times as fast as asking for each coordinate.
    domain.flatten().reset_tuple_id().foreach_point(lambda point: found.append(str(point)[3:-3]))
    table = (
        np.fromstring(",".join(found), dtype=np.int64, sep=",") if width and found else np.zeros(0, np.int64)
    )
    if largest(table) >= SUMMED:  # what does not fit at all reads as the largest of int64
        raise Refused("coordinates exceed 62 bits: they cannot be listed", "use smaller coefficients")
    return table.reshape(len(found), width)


@lru_cache(maxsize=256)
def listed_points(text: str) -> NDArray[np.int64]:
    """The table of a set given as text; it is kept, and so cannot be written to."""
    table = point_table(parse_set(text))
    table.flags.writeable = False
    return table


def fibre_sizes(relation: isl.Map) -> tuple[SizePiece, ...]:
    """The sizes of `relation`'s images as disjoint pieces of its domain, each of constant size.

    Pieces where the size varies from point to point are split into single points.
    """
    whole = relation.wrap()
    many = whole.dim(isl.dim_type.set) >= _VERY_MANY
    if many and not whole.is_empty() and _box(whole) <= _SCANNED and relation.domain().count_val() <= _STAMPS:
        return _scanned(relation, points_of(whole))
    found: list[SizePiece] = []
    for domain, poly in relation.card().get_pieces():
        constant = _constant(poly)
        if constant is not None:
            if constant:
                found.append(SizePiece(domain, constant))
            continue
        by_size: dict[int, isl.Set] = {}
        for point in points_of(domain):
            single = _single(domain, point)
            value = int(poly.eval(single.sample_point()).to_python())
            if value:
                by_size[value] = by_size[value].union(single) if value in by_size else single
        found.extend(SizePiece(d.coalesce(), s) for s, d in by_size.items())
    return tuple(found)


def _scanned(relation: isl.Map, points: list[tuple[int, ...]]) -> tuple[SizePiece, ...]:
    """The pieces from all points of a small relation."""
    width = relation.dim(isl.dim_type.in_)
    by_size: dict[int, isl.Set] = {}
    universe = isl.Set.universe(relation.domain().get_space())
    for stamp, value in Counter(point[:width] for point in points).items():
        single = _single(universe, stamp)
        by_size[value] = by_size[value].union(single) if value in by_size else single
    return tuple(SizePiece(d.coalesce(), s) for s, d in by_size.items())


def _single(domain: isl.Set, point: tuple[int, ...]) -> isl.Set:
    for i, value in enumerate(point):
        domain = domain.fix_val(isl.dim_type.set, i, isl.Val(value))
    return domain


def count_by(points: isl.Set, keep: int) -> NDArray[np.object_]:
    """Counts per value of the first `keep` dimensions (all >= 0), as a dense array of Python ints.

    Shape: one axis per kept dimension, as long as its largest value plus one.
    """
    return count_at(points, tuple(range(keep)))


def count_at(points: isl.Set, kept: tuple[int, ...]) -> NDArray[np.object_]:
    """The same per value of the dimensions at positions `kept`, which ascend."""
    if not kept:
        out = np.empty((), dtype=object)
        out[()] = size(points)
        return out
    total = points.dim(isl.dim_type.set)
    if points.is_empty():
        return np.zeros((0,) * len(kept), dtype=object)
    outer = points
    for position in reversed(range(total)):
        if position not in kept:
            outer = outer.project_out(isl.dim_type.set, position, 1)
    shape = tuple(int(outer.dim_max_val(i).to_python()) + 1 for i in range(len(kept)))
    result = np.zeros(shape, dtype=object)
    if total == len(kept):
        for point in points_of(points):
            result[point] = 1
        return result
    relation = isl.Map.from_domain_and_range(
        isl.Set.universe(outer.get_space()), isl.Set.universe(points.get_space())
    )
    for i, position in enumerate(kept):
        relation = relation.equate(isl.dim_type.in_, i, isl.dim_type.out, position)
    relation = relation.intersect_range(points)
    for piece in fibre_sizes(relation):
        for point in points_of(piece.domain):
            result[point] += piece.size
    return result


def missing_points(points: isl.Set, sizes: Sequence[int]) -> tuple[int, tuple[int, ...]] | None:
    """How many points of the box `0 <= x < sizes` are not in `points`, and the first; None if all are."""
    dims = [f"x{k}" for k in range(len(sizes))]
    bounds = " and ".join(f"0 <= {x} < {n}" for x, n in zip(dims, sizes, strict=True)) or "true"
    box = isl.Set(f"{{ [{', '.join(dims)}] : {bounds} }}")
    missing = box.subtract(points.reset_tuple_id())
    if missing.is_empty():
        return None
    first = missing.lexmin()
    at = tuple(int(first.dim_min_val(k).to_python()) for k in range(len(sizes)))
    return prod(sizes) - size(points), at
