"""Two rank variables that a bound ties together: their points, tile by tile, as intervals of one row each.

A diagonal (causal masks), two of them (sliding windows) or the edges of a padded convolution leave of a box
of two variables a region that is convex. So each value of one variable, a row, has an interval of values of
the other, and what tiles hold is a union of pieces of intervals. Extents are numbers; tiles may be symbols,
and are looked at once for each choice of their sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal

from polymodel.errors import NotSeparable

Ints = Any
Tiles = tuple[tuple[int, int], ...]  # per loop, outermost first: (size of the first tile, of the others)
# What is counted besides the counters of tiles: nothing, values of the one or the other variable, or those of
# a rank of both.
What = Literal["none", "u", "v", "both", "rank"]
MOST_ROWS = 2**18
MOST_PIECES = 20_000_000


@dataclass(frozen=True)
class Region:
    """Points of a box from 0 on with `a u + b v + c >= 0` for each of `bounds` (a, b, c)."""

    extents: tuple[int, int]
    bounds: tuple[tuple[int, int, int], ...]

    @cached_property
    def turned(self) -> Region:
        """The same with the variables in the other order."""
        u, v = self.extents
        return Region((v, u), tuple((b, a, c) for a, b, c in self.bounds))

    @cached_property
    def rows(self) -> tuple[Ints, Ints, Ints]:
        """(u, first v, last v) of every u that has points."""
        return _rows(self)


@lru_cache(maxsize=256)
def _rows(region: Region) -> tuple[Ints, Ints, Ints]:
    import numpy as np

    u = np.arange(region.extents[0])
    low, high = np.zeros_like(u), np.full_like(u, region.extents[1] - 1)
    for a, b, c in region.bounds:
        rest = a * u + c
        if b > 0:
            low = np.maximum(low, -(rest // b))
        elif b < 0:
            high = np.minimum(high, rest // -b)
        else:
            high = np.where(rest >= 0, high, -1)
    some = low <= high
    return u[some], low[some], high[some]


@lru_cache(maxsize=4096)
def starts(extent: int, tiles: Tiles) -> Ints:
    """Where the innermost of nested tiles begin, in order; not to be written to."""
    import numpy as np

    begin, size = np.zeros(1, np.int64), np.array([extent], np.int64)
    for first, tile in tiles:
        behind = np.maximum(size - first, 0)
        count = 1 + -(-behind // tile)
        if int(count.sum()) > MOST_ROWS:
            raise NotSeparable("there are too many tiles to list", "use engine exact, or larger tiles")
        which = np.repeat(np.arange(len(begin)), count)
        number = np.arange(len(which)) - (np.cumsum(count) - count)[which]
        inside = np.where(number > 0, first + (number - 1) * tile, 0)
        width = np.where(number > 0, tile, first)
        begin, size = begin[which] + inside, np.minimum(width, size[which] - inside)
    return begin


def tile_of(begin: Ints, values: Ints) -> Ints:
    """The number of the tile that each value is in."""
    import numpy as np

    return np.searchsorted(begin, values, side="right") - 1


def united(group: Ints, low: Ints, high: Ints, groups: int) -> Ints:
    """By group, how many integers its intervals `low..high` hold together."""
    import numpy as np

    if not len(group):
        return np.zeros(groups, np.int64)
    order = np.lexsort((low, group))
    group, low, high = group[order], low[order], high[order]
    base = int(low.min())
    width = int(high.max()) - base + 2
    at = group * width
    top = np.maximum.accumulate(at + high - base)  # of all before in the group: groups lie apart
    before = np.concatenate(([-1], top[:-1]))
    seen = np.maximum(before, at + low - base - 1)
    fresh = np.maximum(at + high - base - seen, 0)
    return np.bincount(group, weights=fresh, minlength=groups).astype(np.int64)


@lru_cache(maxsize=65536)
def total(region: Region, u: Tiles, v: Tiles, what: What, rank: tuple[int, int]) -> int:
    """How many different (innermost tile of u, innermost tile of v, element) there are."""
    if what == "v":
        return total(region.turned, v, u, "u", (0, 0))
    row, low, high = region.rows
    if what == "both":
        return int((high - low + 1).sum())
    if what == "rank":
        return int(tile_sizes(region, u, v, what, rank)[2].sum())
    begin = starts(region.extents[1], v)
    first, last = tile_of(begin, low), tile_of(begin, high)
    if what == "u":
        return int((last - first + 1).sum())
    group = tile_of(starts(region.extents[0], u), row)
    return int(united(group, first, last, int(group[-1]) + 1 if len(group) else 0).sum())


@lru_cache(maxsize=8)
def pairs(region: Region, u: Tiles, v: Tiles) -> tuple[Ints, Ints]:
    """The pairs of tiles that have points, by u, then by v; not to be written to."""
    import numpy as np

    cuts = starts(region.extents[0], u), starts(region.extents[1], v)
    row, low, high = region.rows
    first, last, group = tile_of(cuts[1], low), tile_of(cuts[1], high), tile_of(cuts[0], row)
    tiles, begin = np.unique(group, return_index=True)
    lowest, highest = np.minimum.reduceat(first, begin), np.maximum.reduceat(last, begin)
    count = highest - lowest + 1
    if int(united(group, first, last, len(cuts[0])).sum()) != int(count.sum()):
        _, code, _, _ = pieces(region, *cuts)  # tiles of v with points are not side by side
        codes = np.unique(code)
        return codes // len(cuts[1]), codes % len(cuts[1])
    which = repeated(count)
    return tiles[which], lowest[which] + numbered(count)


def repeated(count: Ints) -> Ints:
    """The number of each entry, as often as `count` says."""
    import numpy as np

    if int(count.sum()) > MOST_PIECES:
        raise NotSeparable(
            "tiles at the edge of the iteration space are too many to list",
            "use engine exact, or larger tiles",
        )
    return np.repeat(np.arange(len(count)), count)


def numbered(count: Ints) -> Ints:
    """0, 1, 2, ... for each entry, `count` numbers of it."""
    import numpy as np

    return np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)


@lru_cache(maxsize=8)
def tile_sizes(
    region: Region, u: Tiles, v: Tiles, what: What, rank: tuple[int, int]
) -> tuple[Ints, Ints, Ints]:
    """(tile of u, tile of v, elements) of every pair of tiles that has points, in order."""
    import numpy as np

    one, two = pairs(region, u, v)
    if what == "none":
        return one, two, np.ones(len(one), np.int64)
    cuts = starts(region.extents[0], u), starts(region.extents[1], v)
    if what == "rank":
        return one, two, _rank_sizes(region, cuts, rank)
    if len(cuts[0]) * len(cuts[1]) > MOST_PIECES:
        raise NotSeparable("there are too many tiles to list", "use engine exact, or larger tiles")
    if what == "v":
        table = _rows_by_tile(region.turned, cuts[1], cuts[0], False).T
    else:
        table = _rows_by_tile(region, *cuts, what == "both")
    return one, two, table[one, two]


def _rows_by_tile(region: Region, u: Ints, v: Ints, points: bool) -> Ints:
    """[tile of u, tile of v]: how many rows have points there, or how many `points` there are."""
    import numpy as np

    row, low, high = region.rows
    group, first, last = tile_of(u, row), tile_of(v, low), tile_of(v, high)
    table = np.zeros((len(u), len(v) + 1), np.int64)
    np.add.at(table, (group, first), 1)
    np.add.at(table, (group, last + 1), -1)
    table = np.cumsum(table, axis=1)[:, :-1]
    if not points:
        return table
    end = np.append(v[1:], region.extents[1])
    table *= end - v  # as if rows filled the tiles in which they begin and end
    np.subtract.at(table, (group, first), low - v[first])
    np.subtract.at(table, (group, last), end[last] - 1 - high)
    return table


def _rank_sizes(region: Region, cuts: tuple[Ints, Ints], rank: tuple[int, int]) -> Ints:
    """How many values a rank of both variables takes in each pair of tiles, in order."""
    import numpy as np

    turned = rank[1] != 1
    if turned:
        region, cuts, rank = region.turned, cuts[::-1], rank[::-1]
    row, code, begin, stop = pieces(region, *cuts)
    codes, group = np.unique(code, return_inverse=True)
    moved = rank[0] * row
    found = united(group, moved + begin, moved + stop, len(codes))
    if not turned:
        return found
    return found[np.lexsort((codes // len(cuts[1]), codes % len(cuts[1])))]


def pieces(region: Region, u: Ints, v: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """The pieces into which tiles of v cut the intervals of all rows.

    Of each its row, the number of its pair of tiles, and its first and last value of v.
    """
    import numpy as np

    row, low, high = region.rows
    first = tile_of(v, low)
    count = tile_of(v, high) - first + 1
    which = repeated(count)
    tile = first[which] + numbered(count)
    code = tile_of(u, row)[which] * len(v) + tile
    end = np.append(v[1:], region.extents[1]) - 1
    return row[which], code, np.maximum(low[which], v[tile]), np.minimum(high[which], end[tile])
