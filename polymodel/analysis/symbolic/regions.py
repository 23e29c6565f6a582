"""Two rank variables that a bound couples: their points, and the stamps at which tiles are visited.

A diagonal (causal masks), two of them (sliding windows) or the edges of a padded convolution cut a box of two
variables to a convex region. So each value of one variable, a row, has an interval of values of the other,
and a tile holds a union of pieces of intervals. Extents are numbers; tiles may be symbols, and are evaluated
once for each choice of their sizes.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Any, Literal

from polymodel.errors import NotSeparable
from polymodel.frozen import dataclass
from polymodel.integers import distinct_numbers
from polymodel.reuse import Reuse

Ints = Any
Tiles = tuple[tuple[int, int], ...]  # per loop, outermost first: (size of the first tile, of the others)
# What is counted in addition to the counters of tiles: nothing, values of the one or the other variable, or
# those of a rank that both index.
What = Literal["none", "u", "v", "both", "rank"]
PEAKS = 6  # at most this many stamps may be the peak, where different tiles are largest at different stamps
MOST_ROWS = 2**18
MOST_PIECES = 20_000_000


@dataclass(frozen=True)
class Turn:
    """One loop: its variable, whether it is spatial, and the use of its counter.

    The counter is kept apart (`keep`), merged in a union (`merge`), fixed at one instance (its number, or
    each of them: `apart`), or kept apart while only the largest of all counts is requested (`most`).
    """

    variable: int
    spatial: bool
    use: Literal["keep", "merge", "most", "apart"] | int


@dataclass(frozen=True)
class LoopStep:
    """A step of a temporal loop: the number of loops outside it, and whether the next loop is the one that
    steps."""

    outside: int
    moves: bool


@dataclass(frozen=True)
class Region:
    """Points of a box from 0 on with `a u + b v + ... + c >= 0` for each of `bounds` (a, b, ..., c)."""

    extents: tuple[int, ...]
    bounds: tuple[tuple[int, ...], ...]

    @cached_property
    def turned(self) -> Region:
        """The same region of two variables in the other order."""
        u, v = self.extents
        return Region((v, u), tuple((b, a, c) for a, b, c in self.bounds))

    @cached_property
    def rows(self) -> tuple[Ints, Ints, Ints]:
        """For a region of two variables, (u, first v, last v) of every u that has points."""
        return _rows(self)

    @property
    def period(self) -> tuple[int, ...]:
        """The distance between copies, of which this is one (`Copies`)."""
        return self.extents

    def starts(self, side: int, tiles: Tiles) -> Ints:
        """The starts of a variable's innermost tiles, in order. Read-only."""
        return starts(self.extents[side], tiles)


@dataclass(frozen=True)
class Copies(Region):
    """Copies of a region of two variables, each placed after the previous one along both, so that they share
    no tile.

    Their tiles have different sizes: a loop has one size for each copy.
    """

    one: Region
    count: int

    __hash__ = Region.__hash__

    @classmethod
    def of(cls, one: Region, count: int) -> Copies:
        u, v = one.extents
        return cls((u * count, v * count), (), one, count)

    @property
    def turned(self) -> Copies:
        return Copies.of(self.one.turned, self.count)

    @property
    def rows(self) -> tuple[Ints, Ints, Ints]:
        return _rows_of_copies(self)

    @property
    def period(self) -> tuple[int, ...]:
        return self.one.extents

    def starts(self, side: int, tiles: Tiles) -> Ints:
        return _starts_of_copies(self.period[side], self.count, tiles)


@dataclass(frozen=True)
class Made:
    """The executed values of a variable of an inferred Einsum: `scale * e` and more for a tile of e values.

    More by `start` at the very first stamp. At other stamps `later` gives the amount, with an entry for each
    loop that cuts tiles: that of the innermost one whose counter is above 0 counts; None: as outside that
    loop.
    """

    scale: int
    start: int
    later: tuple[int | None, ...]


@dataclass(frozen=True)
class MadeRegion(Region):
    """Variables of a box of which only windows execute."""

    made: tuple[Made | None, ...]

    __hash__ = Region.__hash__


@dataclass(frozen=True)
class BoxUnion(Region):
    """The points of several accesses, each of which touches elements only within a box of its own.

    `guards`: for each access the first and last value of each of the `own` variables. After these, `extents`
    have one number for each access but the first; at most one of them is 1, which identifies the access.
    """

    guards: tuple[tuple[tuple[int, int], ...], ...]

    __hash__ = Region.__hash__

    @property
    def own(self) -> int:
        return len(self.extents) - len(self.guards) + 1


@dataclass(frozen=True)
class NeededRegion(Region):
    """The executed values of some rank variables of an inferred Einsum.

    `extents`: those of its own variables, then those of the consumer's variables over which deciding loops
    run. `bounds` are on its own variables, counted from their smallest values. `sources`: the consumer's
    variables, region by region. For each deciding loop, outermost first: `loops`: the consumer's variable
    that it is over; `binds`: the own variable that it cuts as well, or -1; `spatial`: whether it is spatial.
    `image`: for each own variable the factors of the consumer's variables and a constant; None: all values
    within its bounds. `home`: how many of the loops are above the storage; `above`: how many are above the
    Einsum; the others, further in, decide what executes of the consumer.
    """

    own: int
    sources: tuple[Region, ...]
    loops: tuple[int, ...]
    binds: tuple[int, ...]
    spatial: tuple[bool, ...]
    image: tuple[tuple[int, ...] | None, ...]
    home: int
    above: int
    reuse: Reuse

    __hash__ = Region.__hash__

    @property
    def over(self) -> tuple[int, ...]:
        """The consumer's variables over which deciding loops run, in the order of `extents`."""
        return tuple(dict.fromkeys(self.loops))


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


@lru_cache(maxsize=8)
def _rows_of_copies(copies: Copies) -> tuple[Ints, Ints, Ints]:
    import numpy as np

    row, low, high = copies.one.rows
    u, v = (np.repeat(np.arange(copies.count) * n, len(row)) for n in copies.period)
    return np.tile(row, copies.count) + u, np.tile(low, copies.count) + v, np.tile(high, copies.count) + v


@lru_cache(maxsize=4096)
def starts(extent: int, tiles: Tiles) -> Ints:
    """The starts of the innermost of nested tiles, in order. Read-only."""
    import numpy as np

    return _nested(np.zeros(1, np.int64), np.array([extent], np.int64), np.array([tiles], np.int64))


@lru_cache(maxsize=32)
def _starts_of_copies(extent: int, count: int, tiles: Tiles) -> Ints:
    import numpy as np

    sizes = np.array(tiles, np.int64).reshape(len(tiles), 2, count).transpose(2, 0, 1)
    return _nested(np.arange(count) * extent, np.full(count, extent, np.int64), sizes)


def _nested(begin: Ints, size: Ints, tiles: Ints) -> Ints:
    """The starts of the innermost tiles of several ranges; `tiles`: for each range its first and its other
    sizes, loop by loop."""
    import numpy as np

    of = np.arange(len(begin))
    for k in range(tiles.shape[1]):
        first, tile = tiles[of, k, 0], tiles[of, k, 1]
        behind = np.maximum(size - first, 0)
        count = 1 + -(-behind // tile)
        if int(np.bincount(of, weights=count).max()) > MOST_ROWS:
            raise NotSeparable(
                "there are too many tiles to list", "use engine exact, or larger tiles", code="too-large"
            )
        which = np.repeat(np.arange(len(begin)), count)
        number = np.arange(len(which)) - (np.cumsum(count) - count)[which]
        inside = np.where(number > 0, first[which] + (number - 1) * tile[which], 0)
        width = np.where(number > 0, tile[which], first[which])
        begin, size = begin[which] + inside, np.minimum(width, size[which] - inside)
        of = of[which]
    return begin


def tile_of(begin: Ints, values: Ints) -> Ints:
    """The number of the tile that each value is in."""
    result = begin.searchsorted(values, side="right")
    result -= 1
    return result


def united(group: Ints, low: Ints, high: Ints, groups: int) -> Ints:
    """By group, the number of integers in the union of its intervals `low..high`."""
    import numpy as np

    if not len(group):
        return np.zeros(groups, np.int64)
    order = np.lexsort((low, group))
    group, low, high = group[order], low[order], high[order]
    base = int(low.min())
    width = int(high.max()) - base + 2
    at = group * width
    top = np.maximum.accumulate(at + high - base)  # over earlier intervals: groups are disjoint
    before = np.concatenate(([-1], top[:-1]))
    seen = np.maximum(before, at + low - base - 1)
    fresh = np.maximum(at + high - base - seen, 0)
    return np.bincount(group, weights=fresh, minlength=groups).astype(np.int64)


@lru_cache(maxsize=65536)
def total(region: Region, u: Tiles, v: Tiles, what: What, rank: tuple[int, int]) -> int:
    """The number of distinct (innermost tile of u, innermost tile of v, element)."""
    if what == "v":
        return total(region.turned, v, u, "u", (0, 0))
    row, low, high = region.rows
    if what == "both":
        return int((high - low + 1).sum())
    if what == "rank":
        return int(tile_sizes(region, u, v, what, rank)[2].sum())
    begin = region.starts(1, v)
    first, last = tile_of(begin, low), tile_of(begin, high)
    if what == "u":
        return int((last - first + 1).sum())
    group = tile_of(region.starts(0, u), row)
    return int(united(group, first, last, int(group[-1]) + 1 if len(group) else 0).sum())


@lru_cache(maxsize=16)
def rows_in_tiles(region: Region, u: Tiles, v: Tiles) -> tuple[Ints, Ints, Ints]:
    """For every row that has points, its tile of u, and the tiles of v in which it begins and ends.
    Read-only."""
    row, low, high = region.rows
    one, two = _tile_numbers(region, 0, u), _tile_numbers(region, 1, v)
    return one[row], two[low], two[high]


def _tile_numbers(region: Region, side: int, tiles: Tiles) -> Ints:
    """The number of the tile that each value of a variable is in."""
    import numpy as np

    begin = region.starts(side, tiles)
    return np.repeat(np.arange(len(begin)), np.diff(begin, append=region.extents[side]))


@lru_cache(maxsize=8)
def pairs(region: Region, u: Tiles, v: Tiles, alike: Tiles | None = None) -> tuple[Ints, Ints]:
    """The pairs of tiles that have points, by u, then by v. Read-only.

    With `alike` (loops over u) and at most one loop over v: of the tiles of v in the middle that all rows of
    such a tile of u fill, only the first two and the last one, since the others equal the second one.
    """
    import numpy as np

    cuts = region.starts(0, u), region.starts(1, v)
    group, first, last = rows_in_tiles(region, u, v)
    (begin,) = np.nonzero(np.append(True, group[1:] != group[:-1])[: len(group)])
    tiles = group[begin]
    lowest, highest = np.minimum.reduceat(first, begin), np.maximum.reduceat(last, begin)
    count = highest - lowest + 1
    touch = (first[1:] <= last[:-1] + 1) & (last[1:] >= first[:-1] - 1) | (group[1:] != group[:-1])
    if not touch.all() and int(united(group, first, last, len(cuts[0])).sum()) != int(count.sum()):
        _, code, _, _ = pieces(region, *cuts)  # tiles of v with points are not adjacent
        codes = distinct_numbers(code)
        return codes // len(cuts[1]), codes % len(cuts[1])
    if alike is not None:
        stop, again = _filled(region, alike, cuts[1], cuts[0][tiles])
        some = again > stop + 1
        stop, again = np.where(some, stop, highest), np.where(some, again, highest + 1)
        lowest = np.stack((lowest, again), axis=1).ravel()
        count = np.stack((stop + 1, highest + 1), axis=1).ravel() - lowest
        tiles = tiles.repeat(2)
    which = repeated(count)
    return tiles[which], lowest[which] + numbered(count)


def _filled(region: Region, alike: Tiles, v: Ints, at: Ints) -> tuple[Ints, Ints]:
    """The second and the last of the tiles of v that all rows of a tile of u fill, for the tile of u of each
    of the values `at`; the first and the last tile of v, which may be smaller, are not among them."""
    import numpy as np

    row, low, high = region.rows
    outer = region.starts(0, alike)
    tiles, begin = np.unique(tile_of(outer, row), return_index=True)
    least, most = np.maximum.reduceat(low, begin), np.minimum.reduceat(high, begin)
    end = np.append(v[1:], region.extents[1]) - 1
    home = outer[tiles] // region.period[0] * region.period[1]
    first = np.maximum(v.searchsorted(least), v.searchsorted(home) + 1)
    last = np.minimum(end.searchsorted(most, side="right"), v.searchsorted(home + region.period[1]) - 1) - 1
    which = tiles.searchsorted(tile_of(outer, at))
    return first[which] + 1, last[which]


def repeated(count: Ints) -> Ints:
    """The number of each entry, repeated `count` times."""
    import numpy as np

    if int(count.sum()) > MOST_PIECES:
        raise NotSeparable(
            "tiles at the edge of the iteration space are too many to list",
            "use engine exact, or larger tiles",
            code="too-large",
        )
    return np.repeat(np.arange(len(count)), count)


def numbered(count: Ints) -> Ints:
    """For each entry, the numbers 0, 1, 2, ... below its `count`."""
    import numpy as np

    return np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)


@lru_cache(maxsize=8)
def tile_sizes(
    region: Region, u: Tiles, v: Tiles, what: What, rank: tuple[int, int], alike: Tiles | None = None
) -> tuple[Ints, Ints, Ints]:
    """(tile of u, tile of v, elements) of the pairs of tiles that `pairs` returns; of all pairs for ranks of
    both."""
    import numpy as np

    one, two = pairs(region, u, v, alike)
    if what == "none":
        return one, two, np.ones(len(one), np.int64)
    cuts = region.starts(0, u), region.starts(1, v)
    if what == "rank":
        return one, two, _rank_sizes(region, cuts, rank)
    if what != "v":
        return one, two, _sizes_of_pairs(region, (u, v), one * len(cuts[1]) + two, what == "both")
    codes = two * len(cuts[0]) + one
    order = codes.argsort(kind="stable")
    result = np.empty_like(codes)
    result[order] = _sizes_of_pairs(region.turned, (v, u), codes[order], False)
    return one, two, result


def _sizes_of_pairs(region: Region, tiles: tuple[Tiles, Tiles], codes: Ints, points: bool) -> Ints:
    """The number of rows with points in each of the pairs of tiles with these numbers, which are in order;
    or, with `points`, the number of points."""
    import numpy as np

    begin = region.starts(1, tiles[1])
    group, first, last = rows_in_tiles(region, *tiles)
    first_code, last_code = group * len(begin) + first, group * len(begin) + last
    enter, leave = codes.searchsorted(first_code), codes.searchsorted(last_code, side="right")
    steps = (np.bincount(at, minlength=len(codes) + 1) for at in (enter, leave))
    result = np.cumsum(np.subtract(*steps))[:-1]
    if not points:
        return result
    _, low, high = region.rows
    end = np.append(begin[1:], region.extents[1])
    result *= (end - begin)[codes % len(begin)]  # as if rows filled their first and last tiles
    edges = (enter, first_code, low - begin[first]), (leave - 1, last_code, end[last] - 1 - high)
    for at, code, missing in edges:
        listed = codes[np.minimum(at, len(codes) - 1)] == code
        np.subtract.at(result, at[listed], missing[listed])
    return result


def _rank_sizes(region: Region, cuts: tuple[Ints, Ints], rank: tuple[int, int]) -> Ints:
    """The number of values of a rank of both variables in each pair of tiles, in order."""
    import numpy as np

    turned = rank[1] != 1
    if turned:
        region, cuts, rank = region.turned, cuts[::-1], rank[::-1]
    row, code, begin, stop = pieces(region, *cuts)
    codes, group = np.unique(code, return_inverse=True)
    moved = rank[0] * row
    result = united(group, moved + begin, moved + stop, len(codes))
    if not turned:
        return result
    return result[np.lexsort((codes // len(cuts[1]), codes % len(cuts[1])))]


def pieces(region: Region, u: Ints, v: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """The pieces into which tiles of v cut the intervals of all rows.

    Each has its row, the number of its pair of tiles, and its first and last value of v.
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


# The counts of tiles and of loops over both variables.

# The count of a loop: the elements that stay when it advances (`moves`), or when a loop over another variable
# advances and this variable's loops further in go back to their first tiles (`wraps`); or 1 if tiles do not
# depend on it (`settled`).
Kind = Literal["moves", "wraps", "settled"]


def transposed_query(what: What) -> What:
    """What is counted, with the variables in the other order."""
    other: dict[What, What] = {"u": "v", "v": "u"}
    return other.get(what, what)


def turned_order(order: str) -> str:
    return order.translate(str.maketrans("uv", "vu"))


@dataclass(frozen=True)
class Loops:
    """Loops over both variables, and their order: one letter each, outermost first.

    `alike`: stamps between equal ones are omitted (`regions.pairs`); None: all are listed.
    """

    region: Region
    u: Tiles
    v: Tiles
    order: str
    alike: Tiles | None = None

    def outermost(self, count: int) -> tuple[Tiles, Tiles]:
        """The tiles of the outermost `count` loops."""
        order = self.order[:count]
        return self.u[: order.count("u")], self.v[: order.count("v")]

    @property
    def turned(self) -> Loops:
        """The same with the variables in the other order."""
        return Loops(self.region.turned, self.v, self.u, turned_order(self.order), self.alike)


@dataclass(frozen=True)
class Gap:
    """When a buffet is held while an Einsum runs that does not use it, and how its users relate to that
    Einsum.

    `shared`: the number of loops above both; `inside`: the buffet is in the users' branch, below all of the
    `depth` loops; otherwise it is above both, below the outermost `depth` loops. `before`: its users run
    first in each iteration of the shared loops. `since`: nothing stays over steps of that many outermost
    loops.
    """

    shared: int
    depth: int
    inside: bool
    before: bool
    policy: Reuse
    since: int


@dataclass(frozen=True)
class TileQuery:
    """What a tile holds: a tile of the outermost `u` and `v` loops of either variable; the elements of
    `what`.

    `rank`: the coefficients of both variables in a rank of both; one of them is 1. With a `gap`: what is held
    of the tile while its users do not run; `order` has its loops, one letter each, outermost first, and `own`
    the loops of either variable among them.
    """

    u: int
    v: int
    what: What
    rank: tuple[int, int] = (0, 0)
    gap: Gap | None = None
    order: str = ""
    own: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())

    @cached_property
    def turned(self) -> TileQuery:
        """The same with the variables in the other order."""
        what, order = transposed_query(self.what), turned_order(self.order)
        return TileQuery(self.v, self.u, what, self.rank[::-1], self.gap, order, self.own[::-1])


def values_under(extent: int, tiles: Tiles, made: Made | None) -> tuple[Ints, list[Ints]]:
    """Values in order of stamps, and the counters of the loops, outermost first."""
    import numpy as np

    begin, size = np.zeros(1, np.int64), np.array([extent], np.int64)
    counters: list[Ints] = []
    own = len(tiles) if made is None else len(made.later)
    for k, (first, tile) in enumerate(tiles):
        if k == own and made is not None:
            begin, size = _grown(begin, size, counters, made)
        count = 1 + -(-np.maximum(size - first, 0) // tile)
        which, number = repeated(count), numbered(count)
        inside = np.where(number > 0, first + (number - 1) * tile, 0)
        width = np.where(number > 0, tile, first)
        counters = [*(c[which] for c in counters), number]
        begin, size = begin[which] + inside, np.minimum(width, size[which] - inside)
    if own == len(tiles) and made is not None:
        begin, size = _grown(begin, size, counters, made)
    which = repeated(size)
    return begin[which] + numbered(size), [c[which] for c in counters]


def _grown(begin: Ints, size: Ints, counters: list[Ints], made: Made) -> tuple[Ints, Ints]:
    import numpy as np

    more = np.full_like(size, made.start)
    for counter, later in zip(counters, made.later, strict=True):
        more = more if later is None else np.where(counter > 0, later, more)
    end = made.scale * (begin + size) + made.start
    size = made.scale * size + more
    return end - size, size
