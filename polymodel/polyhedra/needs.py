"""Sets of stamps: those at which an Einsum executes, and those at which tiles have equal sizes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from polymodel.polyhedra import isl, steps
from polymodel.polyhedra.sets import count_by, fibre_sizes, parse_set, points_of, size, without
from polymodel.polyhedra.steps import Mode, _prefix_map

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# What an Einsum executes at which stamps, as sets: first needs, what stays, and its own tiles.
#
# Factors are over `[p..., t..., x...]` as in `steps`. Parts are over `[loops..., variables..., offsets...]`.


@lru_cache(maxsize=4096)
def first_need(text: str, np: int, nt: int, keep_p: int, keep_t: int) -> str | None:
    """The points at the first inner stamp (`t[keep_t:]`) that needs them, in each outer stamp.

    Returns None if several instances (along `p[keep_p:]`) need the same element at that stamp.
    """
    points = parse_set(text)
    if nt > keep_t:
        together = points.project_out(isl.dim_type.set, keep_p, np - keep_p)
        spread = isl.Map.identity(together.get_space().map_from_set()).intersect_domain(together)
        spread = spread.project_out(isl.dim_type.in_, keep_p + keep_t, nt - keep_t)
        first = spread.lexmin().range()
        points = points.intersect(first.insert_dims(isl.dim_type.set, keep_p, np - keep_p))
    if np > keep_p:
        where = isl.Map.identity(points.get_space().map_from_set()).intersect_domain(points)
        where = where.project_out(isl.dim_type.in_, keep_p, np - keep_p)
        if not where.is_single_valued():
            return None
    return str(points.coalesce())


@lru_cache(maxsize=4096)
def staying(text: str, np: int, nt: int, mode: Mode) -> tuple[str, str, bool]:
    """Returns (stamps and elements that have a preceding visit under `mode`, those of them that this visit
    holds, whether these are all of them)."""
    candidates, stay = steps.resident_at_neighbor(text, text, np, nt, mode, False)
    return str(candidates), str(stay), bool(candidates.is_subset(stay))


@lru_cache(maxsize=4096)
def without_stamps(text: str, gone: str, np: int, nt: int, outer_p: int, outer_t: int, ranks: int) -> str:
    """`text` over `[p, t, x]` minus `gone` over `[p[:outer_p], t[:outer_t], x]`.

    With `ranks` 0, whole stamps are removed with all their elements; otherwise only the elements in `gone`.
    """
    points, lost = parse_set(text), parse_set(gone)
    nx = points.dim(isl.dim_type.set) - np - nt
    if not ranks:
        lost = lost.project_out(isl.dim_type.set, outer_p + outer_t, nx).insert_dims(
            isl.dim_type.set, outer_p + outer_t, nx
        )
    lost = lost.insert_dims(isl.dim_type.set, outer_p + outer_t, nt - outer_t).insert_dims(
        isl.dim_type.set, outer_p, np - outer_p
    )
    return str(points.subtract(lost).coalesce())


@lru_cache(maxsize=4096)
def is_empty(text: str) -> bool:
    return bool(parse_set(text).is_empty())


@lru_cache(maxsize=4096)
def pulled_back(points: str, image: str, facts: str) -> str:
    """The set `{ [loops, variables] }` that satisfies `facts` and that the map `image` takes into
    `points`.
    """
    return str(
        isl.Map(image).intersect_range(parse_set(points)).domain().intersect(parse_set(facts)).coalesce()
    )


@lru_cache(maxsize=4096)
def starts(text: str, loops: int, variables: int) -> tuple[str, ...]:
    """For each variable, the set `{ [loops, b] }` where b is its smallest value at each stamp of `[loops,
    variables]`."""
    points = parse_set(text)
    result = []
    for k in range(variables):
        mine = points.project_out(isl.dim_type.set, loops + k + 1, variables - k - 1).project_out(
            isl.dim_type.set, loops, k
        )
        spread = isl.Map.identity(mine.get_space().map_from_set()).intersect_domain(mine)
        result.append(str(spread.project_out(isl.dim_type.in_, loops, 1).lexmin().range().coalesce()))
    return tuple(result)


@lru_cache(maxsize=4096)
def tiled(text: str, outer: int, variables: int, inner: int, facts: str, begins: tuple[str, ...]) -> str:
    """The part `[outer loops, inner loops, variables, offsets]` of a set over `[outer loops, variables]`.

    `facts` is a set over `[outer, inner, variables, offsets, starts]`. `begins` gives the starts of each
    variable in the form that `starts` returns, or is empty where all starts are zero.
    """
    points = parse_set(text).insert_dims(isl.dim_type.set, outer, inner)
    points = points.insert_dims(isl.dim_type.set, outer + inner + variables, 2 * variables)
    for k, begin in enumerate(begins):
        start = parse_set(begin)
        start = start.insert_dims(isl.dim_type.set, outer, inner + 2 * variables + k)
        points = points.intersect(
            start.insert_dims(isl.dim_type.set, outer + inner + 2 * variables + k + 1, variables - k - 1)
        )
    points = points.intersect(parse_set(facts))
    return str(points.project_out(isl.dim_type.set, outer + inner + 2 * variables, variables).coalesce())


@lru_cache(maxsize=8192)
def image(parts: tuple[str, ...], outputs: str) -> str:
    """The image of the product of several sets under a map from their concatenated dimensions."""
    return str(_product(parts).apply(isl.Map(outputs)).coalesce())


def _product(parts: tuple[str, ...]) -> isl.Set:
    whole = isl.Set("{ [] }")
    for text in parts:
        part = parse_set(text)
        dims = whole.dim(isl.dim_type.set)
        whole = whole.insert_dims(isl.dim_type.set, dims, part.dim(isl.dim_type.set)).intersect(
            part.insert_dims(isl.dim_type.set, 0, dims)
        )
    return whole


def named_relation(
    parts: tuple[str, ...],
    names: Sequence[str],
    pair: tuple[str, str],
    ins: Sequence[str],
    outs: Sequence[str],
) -> isl.Map:
    """The image of a product of sets with dimensions `names` under `pair`, for instance `"[a]", "T[a + b]"`.

    `ins` and `outs` name the dimensions of the two sides.
    """
    source, target = pair
    whole = _product(parts).apply(isl.Map(f"{{ [{', '.join(names)}] -> [{source} -> {target}] }}"))
    relation = whole.unwrap().coalesce()
    for kind, dims in ((isl.dim_type.in_, ins), (isl.dim_type.out, outs)):
        for i, name in enumerate(dims):
            relation = relation.set_dim_name(kind, i, name)
    return relation


def points(text: str, first: int, count: int) -> int:
    """The number of different values that the dimensions from `first` on take together."""
    result = parse_set(text)
    result = result.project_out(
        isl.dim_type.set, first + count, result.dim(isl.dim_type.set) - first - count
    ).project_out(isl.dim_type.set, 0, first)
    return size(result)


@lru_cache(maxsize=8192)
def union(texts: tuple[str, ...]) -> str:
    points = parse_set(texts[0])
    for text in texts[1:]:
        points = points.union(parse_set(text))
    return str(points.coalesce())


@lru_cache(maxsize=8192)
def extent(text: str, position: int) -> tuple[int, int]:
    """The smallest and the largest value of one dimension of a non-empty set."""
    points = parse_set(text)
    low, high = points.dim_min_val(position), points.dim_max_val(position)
    return int(low.to_python()), int(high.to_python())


@lru_cache(maxsize=4096)
def widest(text: str, outer: int, position: int) -> int:
    """The largest range, over all outer stamps, from the smallest to the largest value of the dimension at
    `position`."""
    points = parse_set(text)
    total = points.dim(isl.dim_type.set)
    mine = points.project_out(isl.dim_type.set, position + 1, total - position - 1)
    mine = mine.project_out(isl.dim_type.set, outer, position - outer)
    pair = mine.insert_dims(isl.dim_type.set, outer + 1, 1).intersect(
        mine.insert_dims(isl.dim_type.set, outer, 1)
    )
    names = [f"c{i}" for i in range(outer)]
    gap = isl.Map(f"{{ [{', '.join([*names, 'a', 'b'])}] -> [b - a] }}")
    return 1 + int(pair.apply(gap).dim_max_val(0).to_python())


@lru_cache(maxsize=4096)
def determined(text: str, stamps: int, free: tuple[int, ...]) -> bool:
    """True if each element `[x...]` is touched at one stamp only, apart from the counters at positions
    `free`."""
    points = parse_set(text)
    relation = isl.Map.identity(points.get_space().map_from_set()).intersect_domain(points)
    relation = relation.project_out(isl.dim_type.in_, 0, stamps)
    relation = relation.project_out(isl.dim_type.out, stamps, points.dim(isl.dim_type.set) - stamps)
    for position in sorted(free, reverse=True):
        relation = relation.project_out(isl.dim_type.out, position, 1)
    return bool(relation.is_single_valued())


@lru_cache(maxsize=4096)
def first_covers(made: str, stamps: int, read: str) -> bool:
    """True if all elements `[x...]` of `read` are made while the counters are zero."""
    points = parse_set(made)
    for position in range(stamps):
        points = points.fix_val(isl.dim_type.set, position, isl.Val(0))
    return bool(parse_set(read).is_subset(points.project_out(isl.dim_type.set, 0, stamps)))


@lru_cache(maxsize=4096)
def leaves_out(text: str, outer: int, whole: str) -> bool:
    """True if some point of `whole` is at none of the stamps of a set over `[outer stamps, point]`."""
    return not parse_set(whole).is_subset(parse_set(text).project_out(isl.dim_type.set, 0, outer))


@lru_cache(maxsize=4096)
def is_subset(one: str, other: str) -> bool:
    return bool(parse_set(one).is_subset(parse_set(other)))


def retained_from_previous(
    tiles: isl.Map, spatial: Sequence[int], kept: Sequence[int]
) -> tuple[isl.Map, int] | None:
    """The part of `{ stamp -> element }` that the preceding visit held too, provided that it stays over the
    step between them.

    `spatial` holds the positions of spatial counters, `kept` those of the temporal counters over whose steps
    elements stay. Also returns the largest size at any stamp. Returns None if nothing ever stays.
    """
    stamps = tiles.domain()
    count = stamps.dim(isl.dim_type.set)
    times = [i for i in range(count) if i not in spatial]
    visits = stamps
    for position in sorted(spatial, reverse=True):
        visits = visits.project_out(isl.dim_type.set, position, 1)
    before = isl.Map.lex_gt(visits.get_space()).intersect_domain(visits).intersect_range(visits).lexmax()
    allowed = isl.Map.empty(before.get_space())
    for k, axis in enumerate(times):
        if axis in kept:
            step = before
            for i in range(k):
                step = step.equate(isl.dim_type.in_, i, isl.dim_type.out, i)
            allowed = allowed.union(step.subtract(step.equate(isl.dim_type.in_, k, isl.dim_type.out, k)))
    for position in sorted(spatial):
        allowed = allowed.insert_dims(isl.dim_type.in_, position, 1).insert_dims(
            isl.dim_type.out, position, 1
        )
        allowed = allowed.equate(isl.dim_type.in_, position, isl.dim_type.out, position)
    result = tiles.intersect(allowed.apply_range(tiles)).coalesce()
    if result.is_empty():
        return None
    return result, max(piece.size for piece in fibre_sizes(result))


# Classes of stamps at which tiles have equal sizes, and the stamps themselves where they are listed.

Request = tuple[tuple[tuple[str, tuple[int, ...]], ...], tuple[int, ...], tuple[int, ...]]
Row = tuple[tuple[int, bool, bool], ...]


@lru_cache(maxsize=16384)
def sizes(text: str, stamp_dims: int) -> tuple[tuple[isl.Set, int], ...]:
    """Disjoint pairs (stamps, tile size) of the touched set `[stamp..., x...]`; all sizes are positive."""
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
    """Stamps `[p..., t...]` that combine every time of `text` with all instances `0 <= p < extents`."""
    times = parse_set(text).project_out(isl.dim_type.set, 0, len(extents))
    box = " and ".join(f"0 <= p{i} < {extent}" for i, extent in enumerate(extents))
    places = isl.Set(f"{{ [{', '.join(f'p{i}' for i in range(len(extents)))}] : {box} }}")
    more = times.dim(isl.dim_type.set)
    wide = places.insert_dims(isl.dim_type.set, len(extents), more)
    return str(times.insert_dims(isl.dim_type.set, 0, len(extents)).intersect(wide))


@lru_cache(maxsize=4096)
def at_times_of(one: str, other: str, np: int) -> tuple[bool, bool]:
    """Compares the stamps `[p..., t...]` of `one` at the times of `other`: whether there are any, and whether
    one of them is not in `other`."""
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
    """The distinct rows over all stamps `[p..., t...]` of `text`; a row has one entry (size, is first, is
    last) for each request.

    A request names tile factors by their text and the positions of their stamp dimensions, then the temporal
    counters that have to be at their first value, and those that have to be at their last.
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
                for piece, elements in pieces:
                    wide = _widen(piece, positions, width)
                    finer.append((domain.intersect(wide), value * elements))
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
    """All points without the dimensions at positions `drop`. Raises Refused for more than 200,000 points."""
    return tuple(points_of(without(parse_set(text), drop).coalesce()))


@lru_cache(maxsize=1024)
def stamp_sizes(text: str, width: int) -> tuple[tuple[Point, int], ...]:
    """Pairs (stamp, number of elements); the stamps are the first `width` dimensions."""
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
    """Disjoint pairs (stamps, number of points of `[stamp..., x...]` at each); all numbers are positive."""
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
    """Each distinct row of sizes, with the number of its stamps per value of the first `keep` counters.

    `members` are sets `[stamp..., x...]` with `stamps` leading stamp dimensions. Stamps at which all of them
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
            for piece, elements in pieces:
                _add(found, (*sizes, elements), where.intersect(piece))
            _add(found, (*sizes, 0), where.subtract(filled))
            fresh = fresh.subtract(where)
        for piece, elements in pieces:
            _add(found, (*done, elements), piece.intersect(fresh))
        groups = list(found.items())
        done = (*done, 0)
    return [(sizes, count_by(where, keep)) for sizes, where in groups]


def _add(found: dict[Sizes, isl.Set], sizes: Sizes, where: isl.Set) -> None:
    if not where.is_empty():
        found[sizes] = found[sizes].union(where) if sizes in found else where
