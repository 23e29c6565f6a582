"""Counts for loops and tiles whose stamps are listed one by one: trips, widest tiles, and joint peaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Literal, Self

from polymodel.analysis.symbolic.atoms import ChainLevel, Size
from polymodel.analysis.symbolic.box_unions import sizes_at, tiles_touched
from polymodel.analysis.symbolic.forms import ChainSize, names_in, size_in
from polymodel.analysis.symbolic.needed_sets import (
    MOST_ROWS,
    Rows,
    coded,
    distinct,
    innermost,
    rows_of,
    too_many,
)
from polymodel.analysis.symbolic.pair_atoms import LoopTable, Tabled
from polymodel.analysis.symbolic.regions import BoxUnion, Region, Tiles, numbered, repeated
from polymodel.errors import NotSeparable
from polymodel.reuse import Reuse

Ints = Any


@dataclass(frozen=True)
class OneTrip(LoopTable):
    """1 if a loop has one trip at every stamp, else 0. `turns`: the variable of each loop, outermost first;
    `place`: the loop among them."""

    turns: tuple[int, ...]
    place: int

    __hash__ = Tabled.__hash__

    @property
    def named(self) -> str:
        return "single"

    def number(self, *tiles: Tiles) -> int:
        rows = rows_of(self.region, tiles, self.turns, [False] * len(tiles))
        return int(not rows.counters[:, self.place].any())


@dataclass(frozen=True)
class NominalTrips(Tabled):
    """The trips of a loop in the widest window; `first`, `tile`: the sizes of its tiles."""

    width: ChainSize
    first: Size
    tile: Size

    __hash__ = Tabled.__hash__

    @property
    def chains(self) -> tuple[tuple[ChainLevel, ...], ...]:
        return ()

    @property
    def named(self) -> str:
        return "trips"

    @cached_property
    def sizes(self) -> tuple[Size, ...]:
        return (*dict.fromkeys(names_in((self.width,))), self.first, self.tile)

    def at(self, *sizes: int) -> int:
        names = dict.fromkeys(names_in((self.width,)))
        width = int(size_in(self.width, dict(zip(names, sizes, strict=False))))
        return 1 + max(0, -(-(width - sizes[-2]) // sizes[-1]))

    def without_sizes(self) -> NominalTrips:
        return replace(self, first=1, tile=1)

    def shown(self, sizes: Sequence[Any]) -> list[Any]:
        return [*sizes[:-2], sizes[-1]]


@dataclass(frozen=True)
class ListedTiles:
    """Tiles along some variables with which no other variable of the tensor is coupled. `loops`: the loops of
    each variable, by their place among those of the peak; `tile_loops`: those that distinguish tiles,
    outermost first; `ranks`: for each rank of the tensor, the factors of the variables."""

    region: Region
    loops: tuple[tuple[int, ...], ...]
    tile_loops: tuple[int, ...]
    ranks: tuple[tuple[int, ...], ...] = ()

    def own(self, tiles: Tiles) -> tuple[Tiles, ...]:
        """The tiles of the loops of each variable."""
        return tuple(tuple(tiles[p] for p in mine) for mine in self.loops)

    @property
    def turns(self) -> list[tuple[int, int]]:
        """For each loop that distinguishes tiles, its variable, and its place among the loops over that
        variable."""
        of = {p: (k, n) for k, mine in enumerate(self.loops) for n, p in enumerate(mine)}
        return [of[p] for p in self.tile_loops]

    def rows(self, own: tuple[Tiles, ...]) -> Rows:
        """Counters of the loops that distinguish tiles, and values."""
        return _rows(self, own)

    def elements(self, own: tuple[Tiles, ...]) -> Ints:
        """Distinct rows of the counters that distinguish tiles and the index along each rank."""
        import numpy as np

        rows = self.rows(own)
        ranks = np.array(self.ranks, np.int64).reshape(len(self.ranks), len(self.loops))
        index = rows.values @ ranks.T
        return distinct(np.concatenate([rows.counters, index - index.min(axis=0, initial=0)], axis=1))


@lru_cache(maxsize=2048)
def _rows(asked: ListedTiles, own: tuple[Tiles, ...]) -> Rows:
    order = {p: k for k, mine in enumerate(asked.loops) for p in mine}
    wanted = [any(rank[k] for rank in asked.ranks) for k in range(len(asked.loops))]
    places = sorted(order)
    result = rows_of(asked.region, own, [order[p] for p in places], wanted)
    return Rows(result.counters[:, [places.index(p) for p in asked.tile_loops]], result.values)


@dataclass(frozen=True)
class ListedUses:
    """The stamps of an Einsum that uses a buffet, and its relation to the one that runs. `shared`: temporal
    loops above both, outermost first; `before`: whether it runs before."""

    stamps: tuple[ListedTiles, ...]
    shared: tuple[int, ...]
    before: bool


@dataclass(frozen=True)
class CoordinateDigit:
    """What the counter of a spatial loop adds to the coordinate of instances along a dimension: `weight` for
    each step. `radix`: the number of its values, 0 for the outermost loop."""

    dimension: int
    weight: int = 1
    radix: int = 0

    def of(self, coordinate: Ints) -> Ints:
        """The counter at a coordinate."""
        counter = coordinate // self.weight
        return counter % self.radix if self.radix else counter


@dataclass(frozen=True)
class ListedBuffet:
    """What a buffet holds while an Einsum runs. `tiles`: the factors of its tile; `times` and `places`: the
    temporal and spatial loops above it, outermost first; `along`: for each spatial loop the dimension along
    which it distinguishes instances, and what its counter adds to their coordinate. `uses`: those of other
    Einsums, if the running one does not use the buffet; `on_path`: whether it is above the running one;
    `reuse`: whether it stays from one of their visits to the next; `outer`: buffets further out that must
    keep its elements too. `weights`: bits of an element of the factors, numerator, denominator, and how often
    they are held."""

    tiles: tuple[ListedTiles, ...]
    times: tuple[int, ...]
    places: tuple[int, ...]
    along: tuple[CoordinateDigit, ...]
    uses: tuple[ListedUses, ...]
    on_path: bool
    reuse: Reuse
    outer: tuple[ListedBuffet, ...]
    weights: tuple[int, int, int, int]

    @property
    def above(self) -> tuple[int, ...]:
        """All loops above it, the temporal ones first."""
        return (*self.times, *self.places)

    def counters(self, coordinates: Ints) -> Ints:
        """The counters of the spatial loops above, for given coordinates along each dimension."""
        import numpy as np

        columns = [digit.of(coordinates[:, digit.dimension]) for digit in self.along]
        return np.stack(columns, axis=1) if columns else np.zeros((len(coordinates), 0), np.int64)

    def coordinates(self, counters: Ints, dimensions: int) -> Ints:
        """The coordinates along each dimension, from these counters."""
        import numpy as np

        result = np.zeros((len(counters), dimensions), np.int64)
        for k, digit in enumerate(self.along):
            result[:, digit.dimension] += digit.weight * counters[:, k]
        return result


@dataclass(frozen=True)
class PeakTable(Tabled):
    """The elements of buffet number `item` at the stamp where all together have most bits, for the sizes of
    all loops. Many choices of tile sizes are computed together."""

    every: tuple[ChainLevel, ...]
    item: int

    @property
    def chains(self) -> tuple[tuple[ChainLevel, ...], ...]:
        return (self.every,)

    def without_sizes(self) -> Self:
        return replace(self, every=(ChainLevel(1, "each"),) * len(self.every))

    def number(self, *tiles: Tiles) -> int:
        import numpy as np

        return int(self.each(np.array([[size for pair in tiles[0] for size in pair]], np.int64))[0])

    def each(self, rows: Ints) -> Sequence[int]:
        found = _of_all(replace(self, every=(), item=0), rows.tobytes(), len(rows))
        result: list[int] = found[:, self.item].tolist()
        return result

    def peaks(self, points: Ints) -> Ints:
        """The elements of each buffet at the peak, for several choices of tile sizes (points): for each loop
        its first tile size and the other one. Raises NotSeparable if these are too many at a time."""
        raise NotImplementedError


@lru_cache(maxsize=128)  # buffets of one peak are requested one after another, each for the same points
def _of_all(asked: PeakTable, sizes: bytes, count: int) -> Ints:
    import numpy as np

    return _in_parts(asked, np.frombuffer(sizes, np.int64).reshape(count, -1, 2))


def _in_parts(asked: PeakTable, points: Ints) -> Ints:
    import numpy as np

    found: list[Ints] = []
    begin, size = 0, len(points)
    while begin < len(points):
        part = points[begin : begin + size]
        try:
            found.append(asked.peaks(part))
        except NotSeparable:
            if len(part) < 2:
                raise
            size = len(part) // 2  # later calls have at least as many points at a time
        else:
            begin += len(part)
    return np.concatenate(found)


@dataclass(frozen=True)
class JointPeak(PeakTable):
    """The tile sizes at the stamp where all `held` buffets together have most bits. `stamps`: those of the
    Einsum that runs; `own`: its temporal loops; `along`: the spatial loops that distinguish instances, with
    what they add to coordinates; `dimensions`: the number of dimensions."""

    stamps: tuple[ListedTiles, ...]
    own: tuple[int, ...]
    along: tuple[tuple[int, CoordinateDigit], ...]
    dimensions: int
    held: tuple[ListedBuffet, ...]

    __hash__ = Tabled.__hash__

    @property
    def named(self) -> str:
        return "peak"

    def peaks(self, points: Ints) -> Ints:
        choices = tuple(tuple((first, tile) for first, tile in point) for point in points.tolist())
        return _Stamps(self, choices).peaks()


class _TileFactor:
    """The factor of a tile at several choices of tile sizes (points).

    Rows begin with a number for the sizes that it depends on; `number` has that of each point.
    """

    def __init__(self, one: ListedTiles, points: tuple[Tiles, ...]) -> None:
        import numpy as np

        self.one = one
        every = [one.own(tiles) for tiles in points]
        self.owns = list(dict.fromkeys(every))
        numbers = {own: k for k, own in enumerate(self.owns)}
        self.number = np.array([numbers[own] for own in every], np.int64)

    def stamps(self, loops: Sequence[int]) -> Ints:
        """The distinct counters of some loops."""
        places = [self.one.tile_loops.index(p) for p in loops]
        if isinstance(self.one.region, BoxUnion):
            turns = [self.one.turns[p] for p in places]
            found = tiles_touched(self.one.region, self.owns, turns)
            if found is not None:
                return _numbered(found)
        return _numbered([distinct(self.one.rows(own).counters[:, places]) for own in self.owns])

    @cached_property
    def elements(self) -> Ints:
        return _numbered([self.one.elements(own) for own in self.owns])

    def at(self, stamps: Ints, above: Sequence[int]) -> Ints:
        """The counters that distinguish tiles, at stamps given by the point and the counters of the loops
        above."""
        import numpy as np

        places = [1 + above.index(p) for p in self.one.tile_loops]
        return np.concatenate([self.number[stamps[:, :1]], stamps[:, places]], axis=1)

    def sizes(self, stamps: Ints) -> Ints:
        """The number of elements at these counters."""
        import numpy as np

        one = self.one
        if isinstance(one.region, BoxUnion):
            found = sizes_at(one.region, one.ranks, self.owns, one.turns, stamps)
            if found is not None:
                return found
        prefixes = self.elements[:, : stamps.shape[1]]
        both = coded(prefixes, stamps)
        names, count = np.unique(both[: len(prefixes)], return_counts=True)
        theirs = both[len(prefixes) :]
        place = np.minimum(names.searchsorted(theirs), max(0, len(names) - 1))
        return np.where(names[place] == theirs, count[place], 0) if len(names) else np.zeros_like(theirs)

    def innermost(self, times: Sequence[int]) -> Ints:
        """At each point the innermost loop of `times` on which tiles depend, by its place in `times`, or
        -1."""
        import numpy as np

        loops = self.one.tile_loops
        mine = [p for p in loops if p in times]
        order = [loops.index(p) for p in loops if p not in mine] + [loops.index(p) for p in mine]
        result = []
        for own in self.owns:
            rows = self.one.elements(own)
            axis = innermost(rows[:, order], coded(rows[:, len(loops) :]), len(order) - len(mine))
            result.append(times.index(mine[axis]) if axis >= 0 else -1)
        return np.array(result)[self.number]


def _numbered(tables: list[Ints]) -> Ints:
    """The rows of several tables stacked, each preceded by the number of its table."""
    import numpy as np

    numbers = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    return np.concatenate([numbers[:, None], np.concatenate(tables)], axis=1)


def _together(factors: Sequence[_TileFactor], loops: Sequence[int], points: int) -> Ints:
    """The combined stamps of groups of variables at each point: the point, and the counter of each loop (0
    for loops of no group)."""
    import numpy as np

    result = np.zeros((points, 1 + len(loops)), np.int64)
    result[:, 0] = np.arange(points)
    for factor in factors:
        mine = [p for p in factor.one.tile_loops if p in loops]
        found = factor.stamps(mine)
        number = factor.number[result[:, 0]]
        count = np.bincount(found[:, 0], minlength=len(factor.owns))
        if int(count[number].sum()) > MOST_ROWS:
            raise too_many()
        begin = np.cumsum(count) - count
        rows = np.repeat(begin[number], count[number]) + numbered(count[number])
        result = result[repeated(count[number])]
        result[:, [1 + loops.index(p) for p in mine]] = found[rows][:, 1:]
    return distinct(result)


class _Stamps:
    """The stamps of an Einsum at several choices of tile sizes (points), and what is held at each of them. A
    stamp consists of the point, the counters of all loops, and the coordinates of the Einsum along each
    dimension."""

    def __init__(self, asked: JointPeak, points: tuple[Tiles, ...]) -> None:
        self.asked, self.points, self.count = asked, points, len(points)
        self.loops = len(points[0])
        self.known: dict[ListedTiles, _TileFactor] = {}

    def factors(self, groups: Sequence[ListedTiles]) -> list[_TileFactor]:
        for one in groups:
            if one not in self.known:
                self.known[one] = _TileFactor(one, self.points)
        return [self.known[one] for one in groups]

    def together(self, groups: Sequence[ListedTiles], loops: Sequence[int]) -> Ints:
        return _together(self.factors(groups), loops, self.count)

    def peaks(self) -> Ints:
        """At each point the size of each tile at the stamp with most bits."""
        import numpy as np

        held, stamps = self.asked.held, self.active
        idle = self.idle(stamps)
        sizes = [self.resident(one, stamps) for one in held]
        if len(idle):
            # Other buffets may be held in instances in which the Einsum does not run at that time.
            most = [self.resident(one, idle) for one in held]
            least = [size * bool(one.uses) for one, size in zip(held, most, strict=True)]
            known = np.zeros(self.count, np.int64)
            np.maximum.at(known, stamps[:, 0], _bits(held, sizes))
            np.maximum.at(known, idle[:, 0], _bits(held, least))
            if (_bits(held, most) > known[idle[:, 0]]).any():
                raise NotSeparable(
                    "an instance may hold most while it is idle, when its contents are not known",
                    code="unsupported-instances",
                )
            sizes = [np.concatenate(both) for both in zip(sizes, least, strict=True)]
            stamps = np.concatenate([stamps, idle])
        # The first stamp with most bits at each point.
        order = np.lexsort((np.arange(len(stamps)), -_bits(held, sizes), stamps[:, 0]))
        points, first = np.unique(stamps[order, 0], return_index=True)
        result = np.zeros((self.count, len(held)), np.int64)
        result[points] = np.stack([size[order[first]] for size in sizes], axis=1)
        return result

    @cached_property
    def active(self) -> Ints:
        import numpy as np

        asked, depth = self.asked, len(self.asked.own)
        every = self.together(asked.stamps, (*asked.own, *(place for place, _ in asked.along)))
        result = np.zeros((len(every), 1 + self.loops + asked.dimensions), np.int64)
        result[:, [0, *(1 + p for p in asked.own)]] = every[:, : 1 + depth]
        for k, (_, digit) in enumerate(asked.along, 1 + depth):
            result[:, 1 + self.loops + digit.dimension] += digit.weight * every[:, k]
        return distinct(result)

    def idle(self, active: Ints) -> Ints:
        """Stamps of the Einsum in instances in which it does not run at that time, but which may hold
        buffets."""
        import numpy as np

        asked, until = self.asked, 1 + self.loops
        if not asked.dimensions:
            return active[:0]
        sizes = np.ones(asked.dimensions, np.int64)
        for one in asked.held:
            visits = self.together(one.tiles, one.above)[:, 1 + len(one.times) :]
            sizes = np.maximum(sizes, 1 + one.coordinates(visits, asked.dimensions).max(axis=0, initial=0))
        times, count = distinct(active[:, :until]), int(sizes.prod())
        if len(times) * count > MOST_ROWS:
            raise too_many()
        grids = np.indices(tuple(sizes)).reshape(len(sizes), count).T
        result = np.repeat(times, len(grids), axis=0)
        result = np.concatenate([result, np.tile(grids, (len(times), 1))], axis=1)
        both = coded(active, result)
        return result[~np.isin(both[len(active) :], both[: len(active)])]

    def resident(self, one: ListedBuffet, stamps: Ints) -> Ints:
        """The number of elements of the factors that a buffet holds at each stamp."""
        import numpy as np

        coordinates = stamps[:, 1 + self.loops :]
        absent = sorted(set(range(coordinates.shape[1])) - {digit.dimension for digit in one.along})
        there = ~coordinates[:, absent].any(axis=1)
        times, place = stamps[:, [0, *(1 + p for p in one.times)]], one.counters(coordinates)
        if not one.uses:
            return np.where(there, self.sizes(one, np.concatenate([times, place], axis=1)), 0)
        visits = _Visits(one, self)
        if not len(visits.times):  # its users read only what is before the first generation
            return np.zeros(len(stamps), np.int64)
        before, after = visits.around(stamps, place)
        some = there & (before >= 0) & (after < len(visits.times))
        before, after = np.where(some, before, 0), np.where(some, after, 0)
        at = np.concatenate([visits.times[before], place], axis=1)
        follows = np.concatenate([visits.times[after], place], axis=1)
        stays = before == after
        if one.reuse.carries:
            consecutive = some & (after == before + 1)
            stays[consecutive] |= visits.carried(at[consecutive], follows[consecutive])
        if one.on_path:  # during a visit it holds the tile of that visit, also before its first use
            begun = (times == visits.times[after]).all(axis=1)
            at = np.where(begun[:, None], follows, at)
        return np.where(some & stays, self.sizes(one, at), 0)

    def sizes(self, one: ListedBuffet, stamps: Ints) -> Ints:
        """The size of a buffet's tile at stamps, which have the point and the loops above it."""
        import numpy as np

        result = np.ones(len(stamps), np.int64)
        for factor in self.factors(one.tiles):
            result *= factor.sizes(factor.at(stamps, one.above))
        return result


def _bits(held: tuple[ListedBuffet, ...], sizes: list[Ints]) -> Ints:
    total: Ints = 0
    for one, size in zip(held, sizes, strict=True):
        bits, numerator, denominator, count = one.weights
        total = total + -(-size * bits * numerator // denominator) * count
    return total


class _Visits:
    """The visits of a buffet that the running Einsum does not use."""

    def __init__(self, one: ListedBuffet, stamps: _Stamps) -> None:
        self.one, self.stamps = one, stamps
        visits = stamps.together(one.tiles, one.above)
        self.times = distinct(visits[:, : 1 + len(one.times)])

    def around(self, stamps: Ints, place: Ints) -> tuple[Ints, Ints]:
        """At each stamp, in instances given by the counters of spatial loops: the visit of the last use
        before it, -1 if there is none, and the visit of the next use."""
        import numpy as np

        one, depth = self.one, len(self.one.times)
        before, after = np.full(len(stamps), -1), np.full(len(stamps), len(self.times))
        point = stamps[:, :1]
        for use in one.uses:
            side: Literal["left", "right"] = "right" if use.before else "left"
            shared = stamps[:, [1 + p for p in use.shared]]
            if not set(one.times) <= set(use.shared):  # in its own branch: its visits decide
                every, outside = self.times[:, : 1 + len(use.shared)], 1
                now, visit = np.concatenate([point, shared], axis=1), np.arange(len(self.times))
            else:
                every = self.stamps.together(use.stamps, (*one.places, *use.shared))
                outside = 1 + len(one.places)
                visits = every[:, [0, *range(outside, outside + depth)]]
                both = coded(self.times, visits)  # a use that touches nothing is no visit
                some = np.isin(both[len(self.times) :], both[: len(self.times)])
                every, visit = every[some], self._number(visits[some])
                now = np.concatenate([point, place, shared], axis=1)
            both, inside = coded(every, now), coded(every[:, :outside], now[:, :outside])
            last = both[: len(every)].searchsorted(both[len(every) :], side=side) - 1
            visit, mine = np.append(visit, 0), np.append(inside[: len(every)], -1)
            theirs = inside[len(every) :]
            before = np.maximum(before, np.where(mine[last] == theirs, visit[last], -1))
            follows = np.where(mine[last + 1] == theirs, visit[last + 1], len(self.times))
            after = np.minimum(after, follows)
        return before, after

    def _number(self, stamps: Ints) -> Ints:
        """The numbers of visits."""
        both = coded(self.times, stamps)
        return both[: len(self.times)].searchsorted(both[len(self.times) :])

    def carried(self, at: Ints, follows: Ints) -> Ints:
        """Return whether any elements stay from visits to the following ones."""
        import numpy as np

        times = len(self.one.times)
        if not times or not len(at):
            return np.zeros(len(at), bool)
        result = self._over(at, follows)
        for factor in self.stamps.factors(self.one.tiles):
            above = self.one.above
            result &= _overlap(factor.elements, factor.at(at, above), factor.at(follows, above))
        for outer in self.one.outer:
            result &= _Visits(outer, self.stamps).retains(result, at, follows)
        return result

    def retains(self, asked: Ints, at: Ints, follows: Ints) -> Ints:
        """Return whether the outer buffet keeps its elements from one stamp to a later one."""
        until = 1 + len(self.one.times)
        now, then = (self._number(stamps[:, :until]) for stamps in (at, follows))
        if (asked & (then > now + 1)).any():
            raise NotSeparable(
                "whether storage further out keeps what stays is not known", code="unsupported-reuse"
            )
        return (now == then) | self._over(at, follows) if until > 1 else now == then

    def _over(self, at: Ints, follows: Ints) -> Ints:
        """Return whether the policy lets elements stay over the step from stamps to the following ones."""
        import numpy as np

        times = len(self.one.times)
        if not self.one.reuse.carries:
            return np.zeros(len(at), bool)
        step = (at[:, 1 : 1 + times] != follows[:, 1 : 1 + times]).argmax(axis=1)
        last = np.full(self.stamps.count, -1)
        if self.one.reuse.by_tile:
            for factor in self.stamps.factors(self.one.tiles):
                last = np.maximum(last, factor.innermost(self.one.times))
        stays = [[self.one.reuse.stays(a, k) for a in range(times)] for k in range(-1, times)]
        return np.array(stays)[1 + last[at[:, 0]], step]


def _overlap(rows: Ints, at: Ints, follows: Ints) -> Ints:
    """Whether tiles at stamps have an element in common with the tiles that follow."""
    import numpy as np

    depth = at.shape[1]
    n, m = len(rows), len(at)
    stamp = coded(np.concatenate([rows[:, :depth], at, follows]))
    element = coded(rows[:, depth:])
    size = int(element.max(initial=0)) + 1
    pairs = stamp[:n] * size + element
    names, begin, count = np.unique(stamp[:n], return_index=True, return_counts=True)
    place = np.minimum(names.searchsorted(stamp[n : n + m]), max(0, len(names) - 1))
    some = names[place] == stamp[n : n + m] if len(names) else np.zeros(m, bool)
    many = np.where(some, count[place], 0) if len(names) else np.zeros(m, np.int64)
    which = repeated(many)
    there = begin[place][which] + numbered(many)
    met = np.isin(stamp[n + m :][which] * size + element[there], pairs)
    return np.bincount(which[met], minlength=m) > 0
