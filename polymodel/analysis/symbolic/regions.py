"""Two rank variables that a bound ties together: their points, and the stamps at which tiles are visited.

A diagonal (causal masks), two of them (sliding windows) or the edges of a padded convolution leave of a box
of two variables a region that is convex. So each value of one variable, a row, has an interval of values of
the other, and what tiles hold is a union of pieces of intervals. Extents are numbers; tiles may be symbols,
and are looked at once for each choice of their sizes.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import Any, Literal

from polymodel.errors import NotSeparable
from polymodel.frozen import dataclass
from polymodel.reuse import Reuse

Ints = Any
Tiles = tuple[tuple[int, int], ...]  # per loop, outermost first: (size of the first tile, of the others)
# What is counted besides the counters of tiles: nothing, values of the one or the other variable, or those of
# a rank of both.
What = Literal["none", "u", "v", "both", "rank"]
MOST_ROWS = 2**18
MOST_PIECES = 20_000_000


@dataclass(frozen=True)
class Region:
    """Points of a box from 0 on with `a u + b v + ... + c >= 0` for each of `bounds` (a, b, ..., c)."""

    extents: tuple[int, ...]
    bounds: tuple[tuple[int, ...], ...]

    @cached_property
    def turned(self) -> Region:
        """Of two variables the same in the other order."""
        u, v = self.extents
        return Region((v, u), tuple((b, a, c) for a, b, c in self.bounds))

    @cached_property
    def rows(self) -> tuple[Ints, Ints, Ints]:
        """Of two variables, (u, first v, last v) of every u that has points."""
        return _rows(self)


@dataclass(frozen=True)
class Made:
    """What executes of a variable of an inferred Einsum: of a tile of e values `scale * e` and more.

    `start` more at the first stamp of all, at others what `later` says of the innermost of the loops that cut
    tiles (one entry for each) whose counter is above 0; None: as outside it.
    """

    scale: int
    start: int
    later: tuple[int | None, ...]


@dataclass(frozen=True)
class MadeRegion(Region):
    """Variables of a box of which windows execute."""

    made: tuple[Made | None, ...]

    __hash__ = Region.__hash__


@dataclass(frozen=True)
class NeededRegion(Region):
    """What executes of some rank variables of an inferred Einsum.

    `extents`: of its own variables, then those of the consumer's over which loops decide what executes.
    `bounds` are on its own, from their smallest values on. `sources`: the consumer's variables, region by
    region. `loops`: of each loop that decides, outermost first, which of these it is over; `binds`: which of
    the own variables it cuts as well, or -1; `spatial`: whether it is in space. `image`: of each own variable
    the factors of the consumer's and a constant; None: whatever its bounds leave. `home`: how many of the
    loops stand above the storage; `told`: how many stand above the Einsum, others decide further in what
    executes of the consumer.
    """

    own: int
    sources: tuple[Region, ...]
    loops: tuple[int, ...]
    binds: tuple[int, ...]
    spatial: tuple[bool, ...]
    image: tuple[tuple[int, ...] | None, ...]
    home: int
    told: int
    reuse: Reuse

    __hash__ = Region.__hash__

    @property
    def over(self) -> tuple[int, ...]:
        """The consumer's variables over which loops decide, in the order in which `extents` have them."""
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
    result = united(group, moved + begin, moved + stop, len(codes))
    if not turned:
        return result
    return result[np.lexsort((codes // len(cuts[1]), codes % len(cuts[1])))]


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


# Stamps of two tied rank variables in order of time: what their tiles share, and what stays between uses.
#
# A stamp is a pair of tiles, one of either variable, that has points. Stamps are listed in the order in which
# the loops over both variables run through them, and neighbours in that order are compared as sets.

# What is asked of a loop: elements that stay when it moves on, or when a loop over another variable does and
# this variable's loops further in go back to their first tiles; or 1 if tiles do not depend on it.
Kind = Literal["moves", "wraps", "settled"]


@dataclass(frozen=True)
class Loops:
    """Loops over both variables, and the order in which they stand: one letter each, outermost first."""

    region: Region
    u: Tiles
    v: Tiles
    order: str

    def outermost(self, count: int) -> tuple[Tiles, Tiles]:
        """The tiles of the outermost `count` loops."""
        order = self.order[:count]
        return self.u[: order.count("u")], self.v[: order.count("v")]


@dataclass(frozen=True)
class StampOrder:
    """The stamps of loops in order of time: numbers of the innermost tile of either variable."""

    loops: Loops
    one: Ints
    two: Ints

    @cached_property
    def starts(self) -> tuple[Ints, Ints]:
        """Where the innermost tiles of either variable begin."""
        u, v = self.loops.region.extents
        return starts(u, self.loops.u), starts(v, self.loops.v)

    def outermost(self, count: int) -> tuple[Ints, Ints]:
        """For each stamp the tiles of the outermost `count` loops that it lies in."""
        u, v = self.loops.outermost(count)
        n, m = self.loops.region.extents
        return (
            tile_of(starts(n, u), self.starts[0][self.one]),
            tile_of(starts(m, v), self.starts[1][self.two]),
        )

    def same(self, count: int) -> Ints:
        """Whether each stamp and the next one agree in the outermost `count` loops."""
        one, two = self.outermost(count)
        return (one[1:] == one[:-1]) & (two[1:] == two[:-1])

    def counters(self) -> list[Ints]:
        """For each loop its counter at every stamp, from 0 on within the enclosing tile."""
        result, extents = [], self.loops.region.extents
        for k, letter in enumerate(self.loops.order):
            side = "uv".index(letter)
            inner = starts(extents[side], self.loops.outermost(k + 1)[side])
            outer = starts(extents[side], self.loops.outermost(k)[side])
            here, enclosing = self.outermost(k + 1)[side], self.outermost(k)[side]
            result.append(here - tile_of(inner, outer[enclosing]))
        return result

    def sizes(self, what: What, rank: tuple[int, int]) -> Ints:
        """How many elements each stamp's tile has."""
        one, two, result = tile_sizes(self.loops.region, self.loops.u, self.loops.v, what, rank)
        width = len(self.starts[1])
        return result[(one * width + two).searchsorted(self.one * width + self.two)]

    def common(self, before: Ints, after: Ints, what: What, rank: tuple[int, int]) -> Ints:
        """How many elements the tiles at two stamps share, for several pairs of stamps."""
        import numpy as np

        if what == "none":
            return np.ones(len(before), np.int64)
        one, two = self.one[before] == self.one[after], self.two[before] == self.two[after]
        if what == "both":
            return np.where(one & two, self.sizes(what, rank)[before], 0)
        if what == "rank":
            return self._common_of_ranks(before, after, rank)
        region, cuts, columns = self.loops.region, self.starts, (self.one, self.two)
        if what == "v":
            region, cuts, columns, one = region.turned, cuts[::-1], columns[::-1], two
        result = np.zeros(len(before), np.int64)
        ends = columns[1][before[one]], columns[1][after[one]]
        result[one] = _rows_in_both(region, cuts, columns[0][before[one]], *ends)
        return result

    def _common_of_ranks(self, before: Ints, after: Ints, rank: tuple[int, int]) -> Ints:
        import numpy as np

        each = self.sizes("rank", rank)
        region, cuts, columns = self.loops.region, self.starts, (self.one, self.two)
        if rank[1] != 1:
            region, cuts, columns, rank = region.turned, cuts[::-1], columns[::-1], rank[::-1]
        row, code, begin, stop = pieces(region, *cuts)
        order = np.argsort(code, kind="stable")
        moved = rank[0] * row
        code, low, high = code[order], (moved + begin)[order], (moved + stop)[order]
        codes = columns[0] * len(cuts[1]) + columns[1]
        taken, group = [], []
        for stamps in (before, after):
            first, last = (code.searchsorted(codes[stamps], side) for side in ("left", "right"))
            which = repeated(last - first)
            taken.append(first[which] + numbered(last - first))
            group.append(which)
        at, of = np.concatenate(taken), np.concatenate(group)
        together = united(of, low[at], high[at], len(before))
        return each[before] + each[after] - together


def _rows_in_both(region: Region, cuts: tuple[Ints, Ints], tile: Ints, before: Ints, after: Ints) -> Ints:
    """How many rows of a tile of u have points in both of two tiles of v, for several such choices."""
    import numpy as np

    row, low, high = region.rows
    first, last, group = tile_of(cuts[1], low), tile_of(cuts[1], high), tile_of(cuts[0], row)
    begin, end = group.searchsorted(tile, "left"), group.searchsorted(tile, "right")
    least, most = np.minimum(before, after), np.maximum(before, after)
    # Of two tiles with none in between, a row without points in both either begins behind the first one or
    # ends before the second one: these are counted without a look at each row.
    width = len(cuts[1]) + 1
    late = end - np.sort(group * width + first).searchsorted(tile * width + least, "right")
    early = np.sort(group * width + last).searchsorted(tile * width + most, "left") - begin
    result = end - begin - late - early
    (apart,) = np.nonzero(most - least > 1)
    if len(apart):
        ends = begin[apart], end[apart]
        result[apart] = _rows_around(first, last, ends, least[apart], most[apart])
    return result


def _rows_around(first: Ints, last: Ints, ends: tuple[Ints, Ints], least: Ints, most: Ints) -> Ints:
    """How many of some rows begin no later than a tile and end no earlier than another one, row by row."""
    import numpy as np

    begin, end = ends
    which = repeated(end - begin)
    at = begin[which] + numbered(end - begin)
    both = (first[at] <= least[which]) & (last[at] >= most[which])
    return np.bincount(which[both], minlength=len(begin)).astype(np.int64)


@lru_cache(maxsize=8)
def visits(loops: Loops) -> StampOrder:
    """All stamps that have points, in order of time."""
    import numpy as np

    one, two = pairs(loops.region, loops.u, loops.v)
    result = StampOrder(loops, one, two)
    if "vu" not in loops.order:  # then they are in order as they are
        return result
    keys = [result.outermost(k + 1)["uv".index(letter)] for k, letter in enumerate(loops.order)]
    order = np.lexsort(keys[::-1])
    return StampOrder(loops, one[order], two[order])


@lru_cache(maxsize=65536)
def loop_demand(loops: Loops, axis: int, kind: Kind, what: What, rank: tuple[int, int]) -> int:
    """What `kind` asks of the loop number `axis`; `wraps`: of the loops from there on."""
    import numpy as np

    result = visits(loops)
    if kind == "settled":
        return int(_settled(result, axis, what, rank))
    outside = result.same(axis)
    if kind == "moves":
        (before,) = np.nonzero(outside & ~result.same(axis + 1))
        after = before + 1
    else:
        after = np.concatenate(([0], 1 + np.nonzero(~outside)[0]))
        before = np.append(after[1:], len(result.one)) - 1
    return int(result.common(before, after, what, rank).sum())


def _settled(found: StampOrder, axis: int, what: What, rank: tuple[int, int]) -> bool:
    """True if stamps that are equal but for the counter of a loop have equal tiles."""
    import numpy as np

    counters = found.counters()
    others = [c for k, c in enumerate(counters) if k != axis]
    order = np.lexsort([counters[axis], *others])
    equal = np.ones(len(order) - 1, bool)
    for c in others:
        equal &= c[order[1:]] == c[order[:-1]]
    before, after = order[:-1][equal], order[1:][equal]
    each = found.sizes(what, rank)
    shared = found.common(before, after, what, rank)
    return bool(((shared == each[before]) & (shared == each[after])).all())


@dataclass(frozen=True)
class Gap:
    """When a buffet is there while an Einsum runs that does not use it, and how its users lie to that one.

    `shared`: how many of its loops stand above both; `inside`: the buffet stands in the users' branch, below
    `depth` loops, which are all; else above both, below the outermost `depth` loops. `before`: its users run
    first in each iteration of the shared loops. Nothing stays over steps of the outermost `since` loops.
    """

    shared: int
    depth: int
    inside: bool
    before: bool
    policy: Reuse
    since: int


def resident(loops: Loops, gap: Gap, what: What, rank: tuple[int, int]) -> tuple[StampOrder, Ints]:
    """What a buffet holds while others run, at each stamp of the loops above both.

    It is there between two uses in one visit, and between two visits over whose step something stays.
    """
    import numpy as np

    result = visits(loops)
    held = StampOrder(
        Loops(loops.region, *loops.outermost(gap.depth), loops.order[: gap.depth]),
        *result.outermost(gap.depth),
    )
    size, within = held.sizes(what, rank), result.same(gap.depth)
    ends = np.zeros(0, np.int64)
    if gap.inside:  # what it held last in each stamp
        within = np.zeros(len(within), bool)
        (ends,) = np.nonzero(~result.same(gap.shared))
        steps = ends
    else:
        (steps,) = np.nonzero(~within)
    joined = np.zeros(len(within), bool)
    if gap.policy.carries and len(steps):
        steps = steps[held.same(gap.since)[steps]]
        steps = steps[_allowed(held, steps, gap.policy, what, rank)]
        joined[steps] = held.common(steps, steps + 1, what, rank) > 0
    if gap.inside:
        last = np.append(ends, len(result.one) - 1)
        stamps = StampOrder(
            Loops(loops.region, *loops.outermost(gap.shared), loops.order[: gap.shared]),
            *(tiles[last] for tiles in result.outermost(gap.shared)),
        )
        stays = np.where(joined[ends], size[ends], 0)
        return stamps, np.append(stays, 0) if gap.before else np.insert(stays, 0, 0)
    there = within | joined
    there = np.append(there, False) if gap.before else np.insert(there, 0, False)
    return result, np.where(there, size, 0)


def _allowed(held: StampOrder, steps: Ints, policy: Reuse, what: What, rank: tuple[int, int]) -> Ints:
    """Over which steps the policy lets elements stay."""
    import numpy as np

    depth = len(held.loops.order)
    depends = (k for k in reversed(range(depth)) if not loop_demand(held.loops, k, "settled", what, rank))
    innermost = next(depends, -1) if policy.by_tile else -1
    allowed = np.zeros(len(steps), bool)
    for axis in range(depth):
        if policy.stays(axis, innermost):
            allowed |= (held.same(axis) & ~held.same(axis + 1))[steps]
    return allowed


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
