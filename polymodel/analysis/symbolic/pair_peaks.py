"""The occupancy of tiles of two rank variables that a bound couples, at the stamps that may be the peak."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any

from polymodel.analysis.symbolic.regions import (
    PEAKS,
    Copies,
    Ints,
    Loops,
    Region,
    TileQuery,
    Tiles,
    What,
    pairs,
    tile_of,
    tile_sizes,
)
from polymodel.analysis.symbolic.stamp_order import resident
from polymodel.frozen import dataclass

TRIED = 8  # how many tiles of one variable are tried in the search for whole tiles
TOGETHER = 2**17  # at most this many rows, tiles and stamps of several choices are listed together

Choice = tuple[Tiles, Tiles]  # sizes of the tiles of either variable
Rows = tuple[tuple[int, ...], ...]


@lru_cache(maxsize=65536)
def front(
    region: Region, u: Tiles, v: Tiles, asked: tuple[TileQuery, ...], stamps: tuple[int, int] | None = None
) -> Rows:
    """The sizes of several tiles at the stamps that no other stamp exceeds, one number for each of `asked`.

    `stamps`: the number of loops of either variable that determine stamps; all by default.
    """
    return _fronts(region, ((u, v),), asked, stamps)[0]


@lru_cache(maxsize=16)  # the contents at one peak are requested tile by tile, always for the same choices
def fronts(
    region: Region,
    choices: tuple[Choice, ...],
    asked: tuple[TileQuery, ...],
    stamps: tuple[int, int] | None = None,
) -> tuple[Rows, ...]:
    """Return the fronts at several choices of tile sizes."""
    return _fronts(region, choices, asked, stamps)


def _fronts(
    region: Region,
    choices: tuple[Choice, ...],
    asked: tuple[TileQuery, ...],
    stamps: tuple[int, int] | None,
) -> tuple[Rows, ...]:
    u, v = choices[0]
    depth = (len(u), len(v)) if stamps is None else stamps
    alike, turned = _alike(depth, asked), tuple(a.turned for a in asked)
    if alike is None and _alike(depth[::-1], turned) is not None:
        return _fronts(region.turned, tuple((v, u) for u, v in choices), turned, depth[::-1])
    result: dict[int, Rows] = {}
    if all(a.gap is None for a in asked):
        whole = (_full(region, choice, depth, asked) for choice in choices)
        result = {k: (row,) for k, row in enumerate(whole) if row is not None}
    listed = _Listed(region, depth, asked, alike)
    for part in _parts(listed, [k for k in range(len(choices)) if k not in result], choices):
        result |= zip(part, _exceeded_by_none(*listed.table([choices[k] for k in part])), strict=True)
    return tuple(result[k] for k in range(len(choices)))


def _parts(listed: _Listed, numbers: Sequence[int], choices: Sequence[Choice]) -> Iterator[list[int]]:
    """Groups of choices that are listed together, as many as fit in each."""
    part: list[int] = []
    size = 0
    for k in numbers:
        more = listed.size(choices[k])
        if part and (size + more > TOGETHER or not listed.together):
            yield part
            part, size = [], 0
        part.append(k)
        size += more
    if part:
        yield part


def _alike(depth: tuple[int, int], asked: Sequence[TileQuery]) -> int | None:
    """The number of loops over u that cut the largest tiles of u in whose rows adjacent stamps hold the same.

    Neighbours along the only loop over v hold the same where all rows of such a tile fill them, and so do
    their neighbours in time if this loop is the innermost one. None: stamps have to be listed one by one.
    """
    result, innermost = depth[0], depth[1] <= 1
    for a in asked:
        innermost = innermost and a.v <= 1 and a.what != "rank"
        if a.gap is not None:
            shared = a.order[: a.gap.shared]
            innermost = innermost and "v" not in shared[:-1]
            innermost = innermost and not a.gap.inside and not a.gap.policy.by_tile
        if a.v:
            result = min(result, a.u)
    return result if innermost else None


def _exceeded_by_none(table: Ints, home: Ints, count: int) -> list[Rows]:
    """The rows of each choice that none of its other rows exceeds, in descending order; only a few if there
    are very many.

    `home`: the choice of each row, in order.
    """
    import numpy as np

    kept: list[list[tuple[int, ...]]] = [[] for _ in range(count)]
    totals = table.sum(axis=1)
    for _ in range(PEAKS + 1):
        if not len(table):
            break
        begin = np.flatnonzero(np.diff(home, prepend=-1))
        which = np.cumsum(np.bincount(begin, minlength=len(home))) - 1
        # What exceeds a row has more in total.
        (tops,) = np.nonzero(totals == np.maximum.reduceat(totals, begin)[which])
        rows = table[tops[np.flatnonzero(np.diff(home[tops], prepend=-1))]]
        for k, row in zip(home[begin].tolist(), rows.tolist(), strict=True):
            kept[k].append(tuple(row))
        left = (table > rows[which]).any(axis=1)
        table, totals, home = table[left], totals[left], home[left]
    return [tuple(sorted(rows, reverse=True)) for rows in kept]


def _outside(u: Tiles, v: Tiles, asked: TileQuery) -> tuple[Tiles, Tiles]:
    """The loops whose tiles determine what is held."""
    if asked.gap is None:
        return u[: asked.u], v[: asked.v]
    above = asked.order[: asked.gap.shared]
    return u[: above.count("u")], v[: above.count("v")]


@dataclass(frozen=True)
class _Listed:
    """What tiles hold, stamp by stamp. The `alike` outermost loops over u cut tiles in which stamps between
    equal ones are omitted (`regions.pairs`)."""

    region: Region
    depth: tuple[int, int]
    asked: tuple[TileQuery, ...]
    alike: int | None

    @property
    def together(self) -> bool:
        """Whether several choices may be listed at once: no policy distinguishes loops by whether tiles
        depend on them."""
        return not any(a.gap is not None and a.gap.policy.by_tile for a in self.asked)

    def size(self, choice: Choice) -> int:
        """The approximate number of rows, tiles and stamps."""
        one, two = (
            len(self.region.starts(k, t[:n])) for k, (t, n) in enumerate(zip(choice, self.depth, strict=True))
        )
        return sum(self.region.extents) + one + two + (one * two if self.alike is None else 4 * one)

    def table(self, choices: Sequence[Choice]) -> tuple[Ints, Ints, int]:
        """What tiles hold as [stamp, asked], the choice of each stamp, and the number of choices."""
        import numpy as np

        count, every = len(choices), self.region
        u, v = choices[0]
        if count > 1:
            every = Copies.of(self.region, count)
            u, v = (_side_by_side([c[side] for c in choices]) for side in (0, 1))
        inner, alike = (
            (u[: self.depth[0]], v[: self.depth[1]]),
            None if self.alike is None else u[: self.alike],
        )
        ends = every.starts(0, inner[0]), every.starts(1, inner[1])
        one, two = pairs(every, *inner, alike)
        table = np.empty((len(one), len(self.asked)), np.int64)
        for k, a in enumerate(self.asked):
            width, codes, held = _sizes(every, u, v, a, alike)
            p, q = (every.starts(side, tiles) for side, tiles in enumerate(_outside(u, v, a)))
            mine = tile_of(p, ends[0])[one] * width + tile_of(q, ends[1])[two]
            table[:, k] = held[np.searchsorted(codes, mine)]
        return table, ends[0][one] // self.region.extents[0], count


def _side_by_side(choices: Sequence[Tiles]) -> Any:
    """The sizes of each loop's tiles at all choices, as copies of a region have them."""
    return tuple(tuple(zip(*loop, strict=True)) for loop in zip(*choices, strict=True))


def _sizes(
    region: Region, u: Tiles, v: Tiles, asked: TileQuery, alike: Tiles | None
) -> tuple[int, Ints, Ints]:
    """The number of tiles of v, the numbers of the pairs of tiles in order, and what these pairs hold."""
    one, two = _outside(u, v, asked)
    width, gap = len(region.starts(1, two)), asked.gap
    if gap is None:
        p, q, result = tile_sizes(region, one, two, asked.what, asked.rank, alike)
        return width, p * width + q, result
    mine = tuple(u[k] for k in asked.own[0]), tuple(v[k] for k in asked.own[1])
    stamps, result = resident(Loops(region, *mine, asked.order, alike), gap, asked.what, asked.rank)
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

    begin = region.starts(0, tiles)
    _, low, high = region.rows
    size = np.append(begin[1:], region.extents[0]) - begin
    return TileRanges(begin, size, np.maximum.reduceat(low, begin), np.minimum.reduceat(high, begin))


def _full(
    region: Region, choice: Choice, depth: tuple[int, int], asked: tuple[TileQuery, ...]
) -> tuple[int, ...] | None:
    """The sizes of the tiles in the whole box, if some stamp attains all of them; only a few stamps are
    tried."""
    import numpy as np

    turned, (u, v) = region.turned, choice
    if len(region.rows[0]) < region.extents[0] or len(turned.rows[0]) < region.extents[1]:
        return None
    innermost = u[: depth[0]], v[: depth[1]]
    inner = region.starts(0, innermost[0]), region.starts(1, innermost[1])
    tried = inner[0][:: max(1, len(inner[0]) // TRIED)]
    one, two = _ranges(region, innermost[0]), _ranges(turned, innermost[1])
    good = _met(one, two, tile_of(one.begin, tried), np.arange(len(inner[1])))
    result = []
    for a in asked:
        one, two = _ranges(region, u[: a.u]), _ranges(turned, v[: a.v])
        i, j = tile_of(one.begin, tried), tile_of(two.begin, inner[1])
        result.append(_box(a, one.widest, two.widest))
        good &= (one.size[i] == one.widest)[:, None] & (two.size[j] == two.widest)[None, :]
        good &= _touched(a.what, one, two, i, j)
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


def _box(asked: TileQuery, n: int, m: int) -> int:
    """The number of elements of an uncut tile of n by m values."""
    if asked.what == "rank":
        a, b = asked.rank
        return n * m - max(0, n - b) * max(0, m - a)
    return {"none": 1, "u": n, "v": m, "both": n * m}[asked.what]
