"""What tiles of two tied rank variables hold at the stamps that may be the peak."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from polymodel.analysis.symbolic.regions import Region, Tiles, What, pairs, starts, tile_of, tile_sizes
from polymodel.analysis.symbolic.visits import Gap, Loops, resident

Ints = Any
TRIED = 8  # tiles of one variable at which whole tiles are looked for


@dataclass(frozen=True)
class Asked:
    """What a tile holds: tiles of the outermost `u` and `v` loops of either variable; elements of `what`.

    `rank`: the coefficients of both variables in a rank of both, one of which is 1. With a `gap`, what is
    there of the tile while its users do not run: `order` has its loops as they stand, one letter each, and
    `own` which loops of either variable these are.
    """

    u: int
    v: int
    what: What
    rank: tuple[int, int] = (0, 0)
    gap: Gap | None = None
    order: str = ""
    own: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())


@lru_cache(maxsize=65536)
def front(
    region: Region, u: Tiles, v: Tiles, asked: tuple[Asked, ...], stamps: tuple[int, int] | None = None
) -> tuple[tuple[int, ...], ...]:
    """The sizes of several tiles at one stamp that no other stamp exceeds, one number for each of `asked`.

    `stamps`: how many of the loops of either variable stamps are told by; all unless it is given.
    """
    inner = (u, v) if stamps is None else (u[: stamps[0]], v[: stamps[1]])
    full = _full(region, (u, v), inner, asked)
    if full is not None:
        return (full,)
    import numpy as np

    extents = region.extents
    ends = starts(extents[0], inner[0]), starts(extents[1], inner[1])
    one, two = pairs(region, *inner)
    table = np.empty((len(one), len(asked)), np.int64)
    for k, a in enumerate(asked):
        width, codes, held = _held(region, u, v, a)
        p, q = (starts(n, tiles) for n, tiles in zip(extents, _outside(u, v, a), strict=True))
        mine = tile_of(p, ends[0][one]) * width + tile_of(q, ends[1][two])
        table[:, k] = held[np.searchsorted(codes, mine)]
    rows = np.unique(table, axis=0)[::-1]
    kept: list[Ints] = []
    for row in rows:  # in descending order: what exceeds a row comes before it
        if not any((row <= other).all() for other in kept):
            kept.append(row)
    return tuple(tuple(int(x) for x in row) for row in kept)


def _outside(u: Tiles, v: Tiles, asked: Asked) -> tuple[Tiles, Tiles]:
    """The loops whose tiles tell what is held."""
    if asked.gap is None:
        return u[: asked.u], v[: asked.v]
    above = asked.order[: asked.gap.shared]
    return u[: above.count("u")], v[: above.count("v")]


def _held(region: Region, u: Tiles, v: Tiles, asked: Asked) -> tuple[int, Ints, Ints]:
    """What is held by pairs of tiles: how many tiles of v there are, numbers of the pairs, and sizes."""
    one, two = _outside(u, v, asked)
    width, gap = len(starts(region.extents[1], two)), asked.gap
    if gap is None:
        p, q, found = tile_sizes(region, one, two, asked.what, asked.rank)
        return width, p * width + q, found
    mine = tuple(u[k] for k in asked.own[0]), tuple(v[k] for k in asked.own[1])
    stamps, found = resident(Loops(region, *mine, asked.order), gap, asked.what, asked.rank)
    codes = stamps.one * width + stamps.two
    order = codes.argsort(kind="stable")
    return width, codes[order], found[order]


@dataclass(frozen=True)
class Ranges:
    """All tiles of one variable: where they begin, how wide they are, and the largest first and the smallest
    last value of the other variable in their rows."""

    begin: Ints
    size: Ints
    low: Ints
    high: Ints

    @cached_property
    def widest(self) -> int:
        return int(self.size.max())


@lru_cache(maxsize=4096)
def _ranges(region: Region, tiles: Tiles) -> Ranges:
    """The tiles of u in a region of which every row has points."""
    import numpy as np

    begin = starts(region.extents[0], tiles)
    _, low, high = region.rows
    size = np.append(begin[1:], region.extents[0]) - begin
    return Ranges(begin, size, np.maximum.reduceat(low, begin), np.minimum.reduceat(high, begin))


def _full(
    region: Region, tiles: tuple[Tiles, Tiles], innermost: tuple[Tiles, Tiles], asked: tuple[Asked, ...]
) -> tuple[int, ...] | None:
    """The size of each tile in the whole box, if some stamp has all of them; a few stamps are tried."""
    import numpy as np

    turned = region.turned
    if len(region.rows[0]) < region.extents[0] or len(turned.rows[0]) < region.extents[1]:
        return None
    u, v = tiles
    inner = starts(region.extents[0], innermost[0]), starts(region.extents[1], innermost[1])
    tried = inner[0][:: max(1, len(inner[0]) // TRIED)]
    one, two = _ranges(region, innermost[0]), _ranges(turned, innermost[1])
    good = _met(one, two, tile_of(one.begin, tried), np.arange(len(inner[1])))
    found = []
    for a in asked:
        one, two = _ranges(region, u[: a.u]), _ranges(turned, v[: a.v])
        i, j = tile_of(one.begin, tried), tile_of(two.begin, inner[1])
        whole = _box(a, one.widest, two.widest)
        if a.gap is not None:
            good &= _there(region, tiles, a, (tried, inner[1])) == whole
        else:
            good &= (one.size[i] == one.widest)[:, None] & (two.size[j] == two.widest)[None, :]
            good &= _touched(a.what, one, two, i, j)
        found.append(whole)
    return tuple(found) if good.any() else None


def _met(one: Ranges, two: Ranges, i: Ints, j: Ints) -> Ints:
    """[i, j]: whether every row of a tile of u has points in a tile of v."""
    begin, end = two.begin[j], two.begin[j] + two.size[j] - 1
    return (one.low[i][:, None] <= end) & (one.high[i][:, None] >= begin)


def _touched(what: What, one: Ranges, two: Ranges, i: Ints, j: Ints) -> Ints:
    """[i, j]: whether all elements of a pair of tiles are in the region."""
    begin, end = two.begin[j], two.begin[j] + two.size[j] - 1
    if what == "u":
        return _met(one, two, i, j)
    if what == "v":
        first, last = one.begin[i][:, None], (one.begin[i] + one.size[i] - 1)[:, None]
        return (two.low[j] <= last) & (two.high[j] >= first)
    return (one.low[i][:, None] <= begin) & (one.high[i][:, None] >= end)


def _there(region: Region, tiles: tuple[Tiles, Tiles], asked: Asked, at: tuple[Ints, Ints]) -> Ints:
    """[i, j]: what is there of a buffet with a gap where tiles begin, 0 where there is no stamp."""
    import numpy as np

    width, codes, held = _held(region, *tiles, asked)
    i, j = (
        tile_of(starts(n, outside), begin)
        for n, outside, begin in zip(region.extents, _outside(*tiles, asked), at, strict=True)
    )
    mine = i[:, None] * width + j[None, :]
    place = np.minimum(codes.searchsorted(mine), len(codes) - 1)
    return np.where(codes[place] == mine, held[place], 0)


def _box(asked: Asked, n: int, m: int) -> int:
    """How many elements a whole tile of n by m values has."""
    if asked.what == "rank":
        a, b = asked.rank
        return n * m - max(0, n - b) * max(0, m - a)
    return {"none": 1, "u": n, "v": m, "both": n * m}[asked.what]
