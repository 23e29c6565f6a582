"""What tiles of two rank variables that a bound ties together hold at the stamps that may be the peak."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache

from polymodel.analysis.symbolic.regions import (
    PEAKS,
    Ints,
    Loops,
    Region,
    TileQuery,
    Tiles,
    What,
    pairs,
    starts,
    tile_of,
    tile_sizes,
)
from polymodel.analysis.symbolic.stamp_order import resident
from polymodel.frozen import dataclass

TRIED = 8  # tiles of one variable at which whole tiles are looked for


@lru_cache(maxsize=65536)
def front(
    region: Region, u: Tiles, v: Tiles, asked: tuple[TileQuery, ...], stamps: tuple[int, int] | None = None
) -> tuple[tuple[int, ...], ...]:
    """The sizes of several tiles at one stamp that no other stamp exceeds, one number for each of `asked`.

    `stamps`: how many of the loops of either variable stamps are told by; all unless it is given.
    """
    depth = (len(u), len(v)) if stamps is None else stamps
    alike, turned = _alike(depth, asked), tuple(a.turned for a in asked)
    if alike is None and _alike(depth[::-1], turned) is not None:
        return front(region.turned, v, u, turned, depth[::-1])
    inner = u[: depth[0]], v[: depth[1]]
    # Of very many stamps these are large: they go with this call.
    sizes = _TileSizes(region, u, v, None if alike is None else u[:alike])
    full = _full(sizes, inner, asked)
    if full is not None:
        return (full,)
    import numpy as np

    extents = region.extents
    ends = starts(extents[0], inner[0]), starts(extents[1], inner[1])
    one, two = pairs(region, *inner, sizes.alike)
    table = np.empty((len(one), len(asked)), np.int64)
    for k, a in enumerate(asked):
        width, codes, held = sizes.of(a)
        p, q = (starts(n, tiles) for n, tiles in zip(extents, _outside(u, v, a), strict=True))
        mine = tile_of(p, ends[0])[one] * width + tile_of(q, ends[1])[two]
        table[:, k] = held[np.searchsorted(codes, mine)]
    return _exceeded_by_none(table)


def _alike(depth: tuple[int, int], asked: Sequence[TileQuery]) -> int | None:
    """How many loops over u cut the largest tiles of u whose rows make stamps alike that are side by side.

    Neighbours along the only loop over v hold the same where all these rows fill them, as do the stamps next
    to them in time if this loop is the innermost one. None: stamps have to be listed one by one.
    """
    result, innermost = depth[0], depth[1] <= 1
    for a in asked:
        innermost = innermost and a.v <= 1 and a.what != "rank"
        if a.gap is not None:
            told = a.order[: a.gap.shared]
            innermost = innermost and "v" not in told[:-1]
            innermost = innermost and not a.gap.inside and not a.gap.policy.by_tile
        if a.v:
            result = min(result, a.u)
    return result if innermost else None


def _exceeded_by_none(table: Ints) -> tuple[tuple[int, ...], ...]:
    """The rows that no other row exceeds, in descending order; of very many a few."""
    totals = table.sum(axis=1)
    kept: list[tuple[int, ...]] = []
    while len(table) and len(kept) <= PEAKS:
        row = table[totals.argmax()]  # what exceeds a row has more in total
        kept.append(tuple(int(x) for x in row))
        left = (table > row).any(axis=1)
        table, totals = table[left], totals[left]
    return tuple(sorted(kept, reverse=True))


def _outside(u: Tiles, v: Tiles, asked: TileQuery) -> tuple[Tiles, Tiles]:
    """The loops whose tiles tell what is held."""
    if asked.gap is None:
        return u[: asked.u], v[: asked.v]
    above = asked.order[: asked.gap.shared]
    return u[: above.count("u")], v[: above.count("v")]


class _TileSizes:
    """What pairs of tiles hold, listed once for each query; `alike` leaves some out (`regions.pairs`)."""

    def __init__(self, region: Region, u: Tiles, v: Tiles, alike: Tiles | None) -> None:
        self.region, self.u, self.v, self.alike = region, u, v, alike
        self._known: dict[TileQuery, tuple[int, Ints, Ints]] = {}

    def of(self, asked: TileQuery) -> tuple[int, Ints, Ints]:
        """How many tiles of v there are, numbers of the pairs in order, and sizes."""
        if asked not in self._known:
            self._known[asked] = self._listed(asked)
        return self._known[asked]

    def _listed(self, asked: TileQuery) -> tuple[int, Ints, Ints]:
        one, two = _outside(self.u, self.v, asked)
        width, gap = len(starts(self.region.extents[1], two)), asked.gap
        if gap is None:
            p, q, result = tile_sizes(self.region, one, two, asked.what, asked.rank, self.alike)
            return width, p * width + q, result
        mine = tuple(self.u[k] for k in asked.own[0]), tuple(self.v[k] for k in asked.own[1])
        loops = Loops(self.region, *mine, asked.order, self.alike)
        stamps, result = resident(loops, gap, asked.what, asked.rank)
        codes = stamps.one * width + stamps.two
        order = codes.argsort(kind="stable")
        return width, codes[order], result[order]


@dataclass(frozen=True)
class TileRanges:
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
def _ranges(region: Region, tiles: Tiles) -> TileRanges:
    """The tiles of u in a region of which every row has points."""
    import numpy as np

    begin = starts(region.extents[0], tiles)
    _, low, high = region.rows
    size = np.append(begin[1:], region.extents[0]) - begin
    return TileRanges(begin, size, np.maximum.reduceat(low, begin), np.minimum.reduceat(high, begin))


def _full(
    sizes: _TileSizes, innermost: tuple[Tiles, Tiles], asked: tuple[TileQuery, ...]
) -> tuple[int, ...] | None:
    """The size of each tile in the whole box, if some stamp has all of them; a few stamps are tried."""
    import numpy as np

    region, turned = sizes.region, sizes.region.turned
    if len(region.rows[0]) < region.extents[0] or len(turned.rows[0]) < region.extents[1]:
        return None
    u, v = sizes.u, sizes.v
    inner = starts(region.extents[0], innermost[0]), starts(region.extents[1], innermost[1])
    tried = inner[0][:: max(1, len(inner[0]) // TRIED)]
    one, two = _ranges(region, innermost[0]), _ranges(turned, innermost[1])
    good = _met(one, two, tile_of(one.begin, tried), np.arange(len(inner[1])))
    result = []
    for a in asked:
        one, two = _ranges(region, u[: a.u]), _ranges(turned, v[: a.v])
        i, j = tile_of(one.begin, tried), tile_of(two.begin, inner[1])
        whole = _box(a, one.widest, two.widest)
        if a.gap is not None:
            good &= _there(sizes, a, (tried, inner[1])) == whole
        else:
            good &= (one.size[i] == one.widest)[:, None] & (two.size[j] == two.widest)[None, :]
            good &= _touched(a.what, one, two, i, j)
        result.append(whole)
    return tuple(result) if good.any() else None


def _met(one: TileRanges, two: TileRanges, i: Ints, j: Ints) -> Ints:
    """[i, j]: whether every row of a tile of u has points in a tile of v."""
    begin, end = two.begin[j], two.begin[j] + two.size[j] - 1
    return (one.low[i][:, None] <= end) & (one.high[i][:, None] >= begin)


def _touched(what: What, one: TileRanges, two: TileRanges, i: Ints, j: Ints) -> Ints:
    """[i, j]: whether all elements of a pair of tiles are in the region."""
    begin, end = two.begin[j], two.begin[j] + two.size[j] - 1
    if what == "u":
        return _met(one, two, i, j)
    if what == "v":
        first, last = one.begin[i][:, None], (one.begin[i] + one.size[i] - 1)[:, None]
        return (two.low[j] <= last) & (two.high[j] >= first)
    return (one.low[i][:, None] <= begin) & (one.high[i][:, None] >= end)


def _there(sizes: _TileSizes, asked: TileQuery, at: tuple[Ints, Ints]) -> Ints:
    """[i, j]: what is there of a buffet with a gap where tiles begin, 0 where no stamp is listed."""
    import numpy as np

    width, codes, held = sizes.of(asked)
    i, j = (
        tile_of(starts(n, outside), begin)
        for n, outside, begin in zip(sizes.region.extents, _outside(sizes.u, sizes.v, asked), at, strict=True)
    )
    mine = i[:, None] * width + j[None, :]
    place = np.minimum(codes.searchsorted(mine), len(codes) - 1)
    return np.where(codes[place] == mine, held[place], 0)


def _box(asked: TileQuery, n: int, m: int) -> int:
    """How many elements a whole tile of n by m values has."""
    if asked.what == "rank":
        a, b = asked.rank
        return n * m - max(0, n - b) * max(0, m - a)
    return {"none": 1, "u": n, "v": m, "both": n * m}[asked.what]
