"""Classes of stamps at which tiles have equal sizes, and the stamps themselves where they are listed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import islpy as isl
import numpy as np
from numpy.typing import NDArray

from polymodel.polyhedra.build import parse_set, without
from polymodel.polyhedra.counting import count_by, fibre_sizes, points_of
from polymodel.polyhedra.steps import _prefix_map

Request = tuple[tuple[tuple[str, tuple[int, ...]], ...], tuple[int, ...], tuple[int, ...]]
Row = tuple[tuple[int, bool, bool], ...]


@lru_cache(maxsize=16384)
def sizes(text: str, stamp_dims: int) -> tuple[tuple[isl.Set, int], ...]:
    """Disjoint (stamps, tile size) of a touch `[stamp..., x...]`; sizes are positive."""
    points = parse_set(text)
    total = points.dim(isl.dim_type.set)
    if total == stamp_dims:
        return ((points, 1),) if not points.is_empty() else ()
    identity = isl.Map.identity(points.get_space().map_from_set()).intersect_domain(points)
    relation = identity.project_out(isl.dim_type.in_, stamp_dims, total - stamp_dims)
    relation = relation.project_out(isl.dim_type.out, 0, stamp_dims)
    if stamp_dims == 0:
        return tuple((p.domain, p.size) for p in fibre_sizes(relation))
    return tuple((p.domain, p.size) for p in fibre_sizes(relation))


def _widen(points: isl.Set, positions: tuple[int, ...], width: int) -> isl.Set:
    """The set over `width` dimensions whose dimensions at `positions` are in `points`."""
    result = points
    have = list(positions)
    for target in range(width):
        if target not in have:
            at = sum(1 for p in have if p < target)
            result = result.insert_dims(isl.dim_type.set, at, 1)
            have = sorted([*have, target])
    return result


@lru_cache(maxsize=4096)
def at_all_places(text: str, extents: tuple[int, ...]) -> str:
    """Stamps `[p..., t...]` with every time of `text` at all places `0 <= p < extents`."""
    times = parse_set(text).project_out(isl.dim_type.set, 0, len(extents))
    box = " and ".join(f"0 <= p{i} < {extent}" for i, extent in enumerate(extents))
    places = isl.Set(f"{{ [{', '.join(f'p{i}' for i in range(len(extents)))}] : {box} }}")
    more = times.dim(isl.dim_type.set)
    wide = places.insert_dims(isl.dim_type.set, len(extents), more)
    return str(times.insert_dims(isl.dim_type.set, 0, len(extents)).intersect(wide))


@lru_cache(maxsize=4096)
def at_times_of(one: str, other: str, np: int) -> tuple[bool, bool]:
    """Of the stamps `[p..., t...]` of `one` at any time of `other`: are there some, is one not in `other`?"""
    points, stamps = parse_set(one), parse_set(other)
    times = stamps.project_out(isl.dim_type.set, 0, np).insert_dims(isl.dim_type.set, 0, np)
    together = points.intersect(times)
    return not together.is_empty(), not together.is_subset(stamps)


def _edge(stamps: isl.Set, np: int, nt: int, loops: tuple[int, ...], last: bool) -> isl.Set:
    """Stamps whose counters `loops` are all at their first (last) value, given the counters before them."""
    width = np + nt
    if not loops:
        return isl.Set.universe(stamps.get_space())
    times = stamps.project_out(isl.dim_type.set, 0, np)
    end = max(loops) + 1
    heads = times.project_out(isl.dim_type.set, end, nt - end)
    spread = _prefix_map(heads, end, min(loops))
    edge = (spread.lexmax() if last else spread.lexmin()).range()
    return _widen(edge, tuple(range(np, np + end)), width)


@lru_cache(maxsize=8192)
def rows(text: str, np: int, nt: int, requests: tuple[Request, ...]) -> tuple[Row, ...]:
    """Distinct rows over all stamps `[p..., t...]` of `text`; per request (size, at first, at last).

    A request names tile factors by text and the positions of their stamp dimensions, then the
    temporal counters that must be first, and those that must be last.
    """
    stamps = parse_set(text)
    width = np + nt
    groups: list[tuple[isl.Set, list[tuple[int, bool, bool]]]] = [(stamps, [])]
    for inside, first_loops, last_loops in requests:
        split: list[tuple[isl.Set, int]] = [(isl.Set.universe(stamps.get_space()), 1)]
        for factor, positions in inside:
            finer = []
            pieces = sizes(factor, len(positions))
            for domain, value in split:
                rest = domain
                for piece, size in pieces:
                    wide = _widen(piece, positions, width)
                    finer.append((domain.intersect(wide), value * size))
                    rest = rest.subtract(wide)
                finer.append((rest, 0))
            split = [(d, v) for d, v in finer if not d.intersect(stamps).is_empty()]
        first = _edge(stamps, np, nt, first_loops, last=False)
        last = _edge(stamps, np, nt, last_loops, last=True)
        grown = []
        for domain, row in groups:
            for piece, value in split:
                here = domain.intersect(piece)
                for at_first, part in _halves(here, first, bool(first_loops)):
                    for at_last, cell in _halves(part, last, bool(last_loops)):
                        if not cell.is_empty():
                            grown.append((cell, [*row, (value, at_first, at_last)]))
        groups = _merge(grown)
    return tuple(dict.fromkeys(tuple(row) for _, row in groups))


def _halves(domain: isl.Set, edge: isl.Set, needed: bool) -> list[tuple[bool, isl.Set]]:
    if not needed:
        return [(True, domain)]
    return [(True, domain.intersect(edge)), (False, domain.subtract(edge))]


def _merge(
    groups: list[tuple[isl.Set, list[tuple[int, bool, bool]]]],
) -> list[tuple[isl.Set, list[tuple[int, bool, bool]]]]:
    merged: dict[tuple[tuple[int, bool, bool], ...], isl.Set] = {}
    for domain, row in groups:
        key = tuple(row)
        merged[key] = merged[key].union(domain) if key in merged else domain
    return [(d, list(k)) for k, d in merged.items()]


Point = tuple[int, ...]


@lru_cache(maxsize=1024)
def list_stamps(text: str, drop: tuple[int, ...]) -> tuple[Point, ...]:
    """All points without the dimensions at positions `drop`; refuses more than 200,000."""
    return tuple(points_of(without(parse_set(text), drop).coalesce()))


@lru_cache(maxsize=1024)
def stamp_sizes(text: str, width: int) -> tuple[tuple[Point, int], ...]:
    """(stamp, elements): stamps are the first `width` dimensions."""
    return tuple((point, size) for domain, size in sizes(text, width) for point in points_of(domain))


@lru_cache(maxsize=65536)
def overlap(text: str, width: int, one: Point, other: Point) -> bool:
    """True if two stamps hold a common element."""
    return not _elements_at(text, width, one).intersect(_elements_at(text, width, other)).is_empty()


@lru_cache(maxsize=16384)
def _elements_at(text: str, width: int, stamp: Point) -> isl.Set:
    points = parse_set(text)
    for i, value in enumerate(stamp):
        points = points.fix_val(isl.dim_type.set, i, isl.Val(value))
    return points.project_out(isl.dim_type.set, 0, width)


@lru_cache(maxsize=1024)
def counter_extent(text: str, dim: int) -> int:
    """One more than the largest value of a counter."""
    return int(parse_set(text).dim_max_val(dim).to_python()) + 1


Sizes = tuple[int, ...]


def _pieces(points: isl.Set, stamps: int) -> list[tuple[isl.Set, int]]:
    """Disjoint (stamps, how many points of `[stamp..., x...]` have them); sizes are positive."""
    data = points.dim(isl.dim_type.set) - stamps
    if points.is_empty():
        return []
    if data == 0:
        return [(points, 1)]
    identity = isl.Map.identity(points.get_space().map_from_set()).intersect_domain(points)
    relation = identity.project_out(isl.dim_type.in_, stamps, data)
    relation = relation.project_out(isl.dim_type.out, 0, stamps)
    return [(p.domain, p.size) for p in fibre_sizes(relation)]


def size_classes(
    members: Sequence[isl.Set], stamps: int, keep: int
) -> list[tuple[Sizes, NDArray[np.object_]]]:
    """Each different row of sizes, with the number of its stamps per value of the first `keep` counters.

    `members`: sets `[stamp..., x...]` with `stamps` leading stamp dimensions. Stamps at which all of them
    are empty are left out.
    """
    groups: list[tuple[Sizes, isl.Set]] = []
    done: Sizes = ()
    for points in members:
        found: dict[Sizes, isl.Set] = {}
        pieces = _pieces(points, stamps)
        filled = points.project_out(isl.dim_type.set, stamps, points.dim(isl.dim_type.set) - stamps)
        fresh = filled  # stamps that no member before has
        for sizes, where in groups:
            for piece, size in pieces:
                _add(found, (*sizes, size), where.intersect(piece))
            _add(found, (*sizes, 0), where.subtract(filled))
            fresh = fresh.subtract(where)
        for piece, size in pieces:
            _add(found, (*done, size), piece.intersect(fresh))
        groups = list(found.items())
        done = (*done, 0)
    return [(sizes, count_by(where, keep)) for sizes, where in groups]


def _add(found: dict[Sizes, isl.Set], sizes: Sizes, where: isl.Set) -> None:
    if not where.is_empty():
        found[sizes] = found[sizes].union(where) if sizes in found else where
