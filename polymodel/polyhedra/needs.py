"""What an Einsum executes at which stamps, as sets: first needs, what stays, and its own tiles.

Factors are over `[p..., t..., x...]` as in `steps`. Parts are over `[loops..., variables..., offsets...]`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import islpy as isl

from polymodel.polyhedra import steps
from polymodel.polyhedra.build import parse_set
from polymodel.polyhedra.counting import fibre_sizes, size
from polymodel.polyhedra.steps import Mode

SET, IN = isl.dim_type.set, isl.dim_type.in_


@lru_cache(maxsize=4096)
def first_need(text: str, np: int, nt: int, keep_p: int, keep_t: int) -> str | None:
    """The points at the first of the inner stamps (`t[keep_t:]`) that needs them, in each outer one.

    None if at that stamp several instances (along `p[keep_p:]`) need the same element at once.
    """
    points = parse_set(text)
    if nt > keep_t:
        together = points.project_out(SET, keep_p, np - keep_p)
        spread = isl.Map.identity(together.get_space().map_from_set()).intersect_domain(together)
        spread = spread.project_out(IN, keep_p + keep_t, nt - keep_t)
        first = spread.lexmin().range()
        points = points.intersect(first.insert_dims(SET, keep_p, np - keep_p))
    if np > keep_p:
        where = isl.Map.identity(points.get_space().map_from_set()).intersect_domain(points)
        where = where.project_out(IN, keep_p, np - keep_p)
        if not where.is_single_valued():
            return None
    return str(points.coalesce())


@lru_cache(maxsize=4096)
def staying(text: str, np: int, nt: int, mode: Mode) -> tuple[str, str, bool]:
    """(stamps and elements with a preceding visit of `mode`, those of them that it holds, all of them?)."""
    candidates, stay = steps.kept(text, text, np, nt, mode, False)
    return str(candidates), str(stay), bool(candidates.is_subset(stay))


@lru_cache(maxsize=4096)
def without_stamps(text: str, gone: str, np: int, nt: int, outer_p: int, outer_t: int, ranks: int) -> str:
    """`text` over `[p, t, x]` less `gone` over `[p[:outer_p], t[:outer_t], x]`.

    With `ranks` 0 whole stamps go, with all their elements; else only the elements that `gone` has.
    """
    points, lost = parse_set(text), parse_set(gone)
    nx = points.dim(SET) - np - nt
    if not ranks:
        lost = lost.project_out(SET, outer_p + outer_t, nx).insert_dims(SET, outer_p + outer_t, nx)
    lost = lost.insert_dims(SET, outer_p + outer_t, nt - outer_t).insert_dims(SET, outer_p, np - outer_p)
    return str(points.subtract(lost).coalesce())


@lru_cache(maxsize=4096)
def is_empty(text: str) -> bool:
    return bool(parse_set(text).is_empty())


@lru_cache(maxsize=4096)
def pulled_back(points: str, image: str, facts: str) -> str:
    """`{ [loops, variables] }` that satisfy `facts` and that the map `image` takes into `points`."""
    return str(
        isl.Map(image).intersect_range(parse_set(points)).domain().intersect(parse_set(facts)).coalesce()
    )


@lru_cache(maxsize=4096)
def starts(text: str, loops: int, variables: int) -> tuple[str, ...]:
    """For each variable `{ [loops, b] }`, b its smallest value at each stamp of `[loops, variables]`."""
    points = parse_set(text)
    found = []
    for k in range(variables):
        mine = points.project_out(SET, loops + k + 1, variables - k - 1).project_out(SET, loops, k)
        spread = isl.Map.identity(mine.get_space().map_from_set()).intersect_domain(mine)
        found.append(str(spread.project_out(IN, loops, 1).lexmin().range().coalesce()))
    return tuple(found)


@lru_cache(maxsize=4096)
def tiled(text: str, outer: int, variables: int, inner: int, facts: str, begins: tuple[str, ...]) -> str:
    """The part `[outer loops, inner loops, variables, offsets]` of a set over `[outer loops, variables]`.

    `facts` is a set over `[outer, inner, variables, offsets, starts]`; `begins` gives each variable's
    starts as `starts` does, or is empty where they are constant zero.
    """
    points = parse_set(text).insert_dims(SET, outer, inner)
    points = points.insert_dims(SET, outer + inner + variables, 2 * variables)
    for k, begin in enumerate(begins):
        start = parse_set(begin)
        start = start.insert_dims(SET, outer, inner + 2 * variables + k)
        points = points.intersect(
            start.insert_dims(SET, outer + inner + 2 * variables + k + 1, variables - k - 1)
        )
    points = points.intersect(parse_set(facts))
    return str(points.project_out(SET, outer + inner + 2 * variables, variables).coalesce())


@lru_cache(maxsize=8192)
def image(parts: tuple[str, ...], outputs: str) -> str:
    """The image of the product of some sets under a map from their dimensions in a row."""
    return str(_product(parts).apply(isl.Map(outputs)).coalesce())


def _product(parts: tuple[str, ...]) -> isl.Set:
    whole = isl.Set("{ [] }")
    for text in parts:
        part = parse_set(text)
        dims = whole.dim(SET)
        whole = whole.insert_dims(SET, dims, part.dim(SET)).intersect(part.insert_dims(SET, 0, dims))
    return whole


def named_relation(
    parts: tuple[str, ...],
    names: Sequence[str],
    pair: tuple[str, str],
    ins: Sequence[str],
    outs: Sequence[str],
) -> isl.Map:
    """The image of a product of sets, whose dimensions are `names`, under `pair`: `"[a]", "T[a + b]"`.

    `ins` and `outs` name the dimensions of the two sides.
    """
    source, target = pair
    whole = _product(parts).apply(isl.Map(f"{{ [{', '.join(names)}] -> [{source} -> {target}] }}"))
    relation = whole.unwrap().coalesce()
    for kind, dims in ((IN, ins), (isl.dim_type.out, outs)):
        for i, name in enumerate(dims):
            relation = relation.set_dim_name(kind, i, name)
    return relation


def points(text: str, first: int, count: int) -> int:
    """How many different values the dimensions from `first` on take together."""
    found = parse_set(text)
    found = found.project_out(SET, first + count, found.dim(SET) - first - count).project_out(SET, 0, first)
    return size(found)


@lru_cache(maxsize=8192)
def union(texts: tuple[str, ...]) -> str:
    points = parse_set(texts[0])
    for text in texts[1:]:
        points = points.union(parse_set(text))
    return str(points.coalesce())


@lru_cache(maxsize=8192)
def extent(text: str, position: int) -> tuple[int, int]:
    """Smallest and largest value of one dimension of a non-empty set."""
    points = parse_set(text)
    low, high = points.dim_min_val(position), points.dim_max_val(position)
    return int(low.to_python()), int(high.to_python())


@lru_cache(maxsize=4096)
def widest(text: str, outer: int, position: int) -> int:
    """The most values, from smallest to largest, of the dimension at `position` at one outer stamp."""
    points = parse_set(text)
    total = points.dim(SET)
    mine = points.project_out(SET, position + 1, total - position - 1)
    mine = mine.project_out(SET, outer, position - outer)
    pair = mine.insert_dims(SET, outer + 1, 1).intersect(mine.insert_dims(SET, outer, 1))
    names = [f"c{i}" for i in range(outer)]
    gap = isl.Map(f"{{ [{', '.join([*names, 'a', 'b'])}] -> [b - a] }}")
    return 1 + int(pair.apply(gap).dim_max_val(0).to_python())


@lru_cache(maxsize=4096)
def determined(text: str, stamps: int, free: tuple[int, ...]) -> bool:
    """True if data `[x...]` are touched at one stamp only, but for the counters at positions `free`."""
    points = parse_set(text)
    relation = isl.Map.identity(points.get_space().map_from_set()).intersect_domain(points)
    relation = relation.project_out(IN, 0, stamps)
    relation = relation.project_out(isl.dim_type.out, stamps, points.dim(SET) - stamps)
    for position in sorted(free, reverse=True):
        relation = relation.project_out(isl.dim_type.out, position, 1)
    return bool(relation.is_single_valued())


@lru_cache(maxsize=4096)
def first_covers(made: str, stamps: int, read: str) -> bool:
    """True if the elements `[x...]` of `read` are all among those made while the counters are zero."""
    points = parse_set(made)
    for position in range(stamps):
        points = points.fix_val(SET, position, isl.Val(0))
    return bool(parse_set(read).is_subset(points.project_out(SET, 0, stamps)))


@lru_cache(maxsize=4096)
def leaves_out(text: str, outer: int, whole: str) -> bool:
    """True if some point of `whole` is at none of the stamps of a set over `[outer stamps, point]`."""
    return not parse_set(whole).is_subset(parse_set(text).project_out(SET, 0, outer))


@lru_cache(maxsize=4096)
def is_subset(one: str, other: str) -> bool:
    return bool(parse_set(one).is_subset(parse_set(other)))


def kept_from_before(
    tiles: isl.Map, spatial: Sequence[int], kept: Sequence[int]
) -> tuple[isl.Map, int] | None:
    """Of `{ stamp -> element }` what the visit before held too, if it stays over the step between them.

    `spatial`: positions of spatial counters; `kept`: of the temporal ones over whose steps elements stay.
    With it the largest size at any stamp; None if nothing ever stays.
    """
    stamps = tiles.domain()
    count = stamps.dim(SET)
    times = [i for i in range(count) if i not in spatial]
    visits = stamps
    for position in sorted(spatial, reverse=True):
        visits = visits.project_out(SET, position, 1)
    before = isl.Map.lex_gt(visits.get_space()).intersect_domain(visits).intersect_range(visits).lexmax()
    allowed = isl.Map.empty(before.get_space())
    for k, axis in enumerate(times):
        if axis in kept:
            step = before
            for i in range(k):
                step = step.equate(IN, i, isl.dim_type.out, i)
            allowed = allowed.union(step.subtract(step.equate(IN, k, isl.dim_type.out, k)))
    for position in sorted(spatial):
        allowed = allowed.insert_dims(IN, position, 1).insert_dims(isl.dim_type.out, position, 1)
        allowed = allowed.equate(IN, position, isl.dim_type.out, position)
    found = tiles.intersect(allowed.apply_range(tiles)).coalesce()
    if found.is_empty():
        return None
    return found, max(piece.size for piece in fibre_sizes(found))
