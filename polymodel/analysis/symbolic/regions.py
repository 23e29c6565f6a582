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
TRIED = 8  # tiles of one variable at which whole tiles are looked for


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


@dataclass(frozen=True)
class Asked:
    """What a tile holds: tiles of the outermost `u` and `v` loops of either variable; elements of `what`.

    `rank`: the coefficients of both variables in a rank of both, one of which is 1.
    """

    u: int
    v: int
    what: What
    rank: tuple[int, int] = (0, 0)


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


def _tile(begin: Ints, values: Ints) -> Ints:
    """The number of the tile that each value is in."""
    import numpy as np

    return np.searchsorted(begin, values, side="right") - 1


def _united(group: Ints, low: Ints, high: Ints, groups: int) -> Ints:
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
        return int(
            _sizes(region, starts(region.extents[0], u), starts(region.extents[1], v), what, rank)[2].sum()
        )
    begin = starts(region.extents[1], v)
    first, last = _tile(begin, low), _tile(begin, high)
    if what == "u":
        return int((last - first + 1).sum())
    group = _tile(starts(region.extents[0], u), row)
    return int(_united(group, first, last, int(group[-1]) + 1 if len(group) else 0).sum())


_TURNED: dict[What, What] = {"u": "v", "v": "u"}


def _sizes(region: Region, u: Ints, v: Ints, what: What, rank: tuple[int, int]) -> tuple[Ints, Ints, Ints]:
    """(tile of u, tile of v, elements) of every pair of tiles that has points, in order."""
    import numpy as np

    fewer = _pieces(region.turned, u) < _pieces(region, v)
    if not (rank[1] != 1 if what == "rank" else fewer):
        return _sizes_by_rows(region, u, v, what, rank)
    two, one, sizes = _sizes_by_rows(region.turned, v, u, _TURNED.get(what, what), rank[::-1])
    order = np.lexsort((two, one))
    return one[order], two[order], sizes[order]


def _pieces(region: Region, v: Ints) -> int:
    """Into how many pieces tiles of v cut the intervals of all rows."""
    _, low, high = region.rows
    return int((_tile(v, high) - _tile(v, low) + 1).sum())


def _sizes_by_rows(
    region: Region, u: Ints, v: Ints, what: What, rank: tuple[int, int]
) -> tuple[Ints, Ints, Ints]:
    import numpy as np

    if _pieces(region, v) > MOST_PIECES:
        raise NotSeparable(
            "tiles at the edge of the iteration space are too many to list",
            "use engine exact, or larger tiles",
        )
    row, low, high = region.rows
    first = _tile(v, low)
    count = _tile(v, high) - first + 1
    which = np.repeat(np.arange(len(row)), count)
    tile = first[which] + np.arange(len(which)) - (np.cumsum(count) - count)[which]
    code = _tile(u, row)[which] * len(v) + tile
    end = np.append(v[1:], region.extents[1]) - 1
    begin, stop = np.maximum(low[which], v[tile]), np.minimum(high[which], end[tile])
    codes, group = np.unique(code, return_inverse=True)
    if what == "none":
        found = np.ones(len(codes), np.int64)
    elif what == "u":
        found = np.bincount(group, minlength=len(codes))
    elif what == "both":
        found = np.bincount(group, weights=stop - begin + 1, minlength=len(codes)).astype(np.int64)
    elif what == "v":
        found = _united(group, begin, stop, len(codes))
    else:
        moved = rank[0] * row[which]
        found = _united(group, moved + begin, moved + stop, len(codes))
    return codes // len(v), codes % len(v), found


@lru_cache(maxsize=65536)
def front(region: Region, u: Tiles, v: Tiles, asked: tuple[Asked, ...]) -> tuple[tuple[int, ...], ...]:
    """The sizes of several tiles at one stamp that no other stamp exceeds, one number for each of `asked`."""
    full = _full(region, u, v, asked)
    if full is not None:
        return (full,)
    import numpy as np

    ends = starts(region.extents[0], u), starts(region.extents[1], v)
    one, two, _ = _sizes(region, *ends, "none", (0, 0))
    table = np.empty((len(one), len(asked)), np.int64)
    for k, a in enumerate(asked):
        outer = starts(region.extents[0], u[: a.u]), starts(region.extents[1], v[: a.v])
        p, q, sizes = _sizes(region, *outer, a.what, a.rank)
        codes = p * len(outer[1]) + q
        mine = _tile(outer[0], ends[0][one]) * len(outer[1]) + _tile(outer[1], ends[1][two])
        table[:, k] = sizes[np.searchsorted(codes, mine)]
    rows = np.unique(table, axis=0)[::-1]
    kept: list[Ints] = []
    for row in rows:  # in descending order: what exceeds a row comes before it
        if not any((row <= other).all() for other in kept):
            kept.append(row)
    return tuple(tuple(int(x) for x in row) for row in kept)


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


def _full(region: Region, u: Tiles, v: Tiles, asked: tuple[Asked, ...]) -> tuple[int, ...] | None:
    """The size of each tile in the whole box, if some stamp has all of them; a few stamps are tried."""
    import numpy as np

    turned = region.turned
    if len(region.rows[0]) < region.extents[0] or len(turned.rows[0]) < region.extents[1]:
        return None
    inner = starts(region.extents[0], u), starts(region.extents[1], v)
    tried = inner[0][:: max(1, len(inner[0]) // TRIED)]
    good = np.ones((len(tried), len(inner[1])), bool)
    sizes = []
    for a in asked:
        one, two = _ranges(region, u[: a.u]), _ranges(turned, v[: a.v])
        i, j = _tile(one.begin, tried), _tile(two.begin, inner[1])
        good &= (one.size[i] == one.widest)[:, None] & (two.size[j] == two.widest)[None, :]
        begin, end = two.begin[j], two.begin[j] + two.size[j] - 1
        if a.what == "u":
            good &= (one.low[i][:, None] <= end) & (one.high[i][:, None] >= begin)
        elif a.what == "v":
            first, last = one.begin[i][:, None], (one.begin[i] + one.size[i] - 1)[:, None]
            good &= (two.low[j] <= last) & (two.high[j] >= first)
        else:
            good &= (one.low[i][:, None] <= begin) & (one.high[i][:, None] >= end)
        sizes.append(_box(a, one.widest, two.widest))
    return tuple(sizes) if good.any() else None


def _box(asked: Asked, n: int, m: int) -> int:
    """How many elements a whole tile of n by m values has."""
    if asked.what == "rank":
        a, b = asked.rank
        return n * m - max(0, n - b) * max(0, m - a)
    return {"u": n, "v": m, "both": n * m}[asked.what]
