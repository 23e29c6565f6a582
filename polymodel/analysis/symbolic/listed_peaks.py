"""Numbers of loops and tiles whose stamps are listed one by one: trips, widest tiles, and joint peaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Literal

from polymodel.analysis.symbolic.atoms import ChainLevel, Size
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
from polymodel.analysis.symbolic.regions import Region, Tiles, numbered, repeated
from polymodel.errors import NotSeparable
from polymodel.reuse import Reuse

Ints = Any
EXACT = "use engine exact"


@dataclass(frozen=True)
class OneTrip(LoopTable):
    """1 if a loop has one trip at every stamp, else 0.

    `turns`: of each loop, as they stand, its variable; `place`: the loop among them.
    """

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
    """Tiles along some variables, of which no other variable of the tensor is tied to any.

    `loops`: of each variable its loops, by their place among those of the peak; `told`: those that tell
    tiles apart, as they stand; `ranks`: of each rank of the tensor the factors of the variables.
    """

    region: Region
    loops: tuple[tuple[int, ...], ...]
    told: tuple[int, ...]
    ranks: tuple[tuple[int, ...], ...] = ()

    def rows(self, tiles: Tiles) -> Rows:
        """Counters of the loops that tell tiles, and values."""
        order = {p: k for k, mine in enumerate(self.loops) for p in mine}
        own = [tuple(tiles[p] for p in mine) for mine in self.loops]
        wanted = [any(rank[k] for rank in self.ranks) for k in range(len(self.loops))]
        places = sorted(order)
        result = rows_of(self.region, own, [order[p] for p in places], wanted)
        return Rows(result.counters[:, [places.index(p) for p in self.told]], result.values)

    def elements(self, tiles: Tiles) -> Ints:
        """Different rows of the counters that tell tiles and the index along each rank."""
        import numpy as np

        rows = self.rows(tiles)
        ranks = np.array(self.ranks, np.int64).reshape(len(self.ranks), len(self.loops))
        index = rows.values @ ranks.T
        return distinct(np.concatenate([rows.counters, index - index.min(axis=0, initial=0)], axis=1))


@dataclass(frozen=True)
class ListedUses:
    """The stamps of an Einsum that uses a buffet, and how it stands to the one that runs.

    `shared`: loops in time above both, as they stand; `before`: whether it runs before.
    """

    stamps: tuple[ListedTiles, ...]
    shared: tuple[int, ...]
    before: bool


@dataclass(frozen=True)
class CoordinateDigit:
    """What the counter of a loop in space adds to the coordinate of instances along a dimension: `weight` for
    each step. `radix`: how many values it has, 0 for the outermost loop, above which there is none."""

    dimension: int
    weight: int = 1
    radix: int = 0

    def of(self, coordinate: Ints) -> Ints:
        """The counter at a coordinate."""
        counter = coordinate // self.weight
        return counter % self.radix if self.radix else counter


@dataclass(frozen=True)
class ListedBuffet:
    """What a buffet holds while an Einsum runs.

    `tiles`: the factors of its tile; `times` and `places`: the loops above it in time and in space, as they
    stand; `along`: of each of the latter the dimension along which it tells instances, and what its counter
    adds to their coordinate. `uses`: of Einsums that use it, if the one that runs does not;
    `on_path`: whether it stands above that one; `reuse`: whether it stays from one of their visits to the
    next; `outer`: buffets further out that have to keep its elements too. `weights`: bits of an element of
    the factors, numerator, denominator, and how often they are held.
    """

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
        """All loops above it: those in time first."""
        return (*self.times, *self.places)

    def counters(self, coordinates: Ints) -> Ints:
        """The counters of the loops above in space, where it is at coordinates along each dimension."""
        import numpy as np

        columns = [digit.of(coordinates[:, digit.dimension]) for digit in self.along]
        return np.stack(columns, axis=1) if columns else np.zeros((len(coordinates), 0), np.int64)

    def coordinates(self, counters: Ints, dimensions: int) -> Ints:
        """Where it is along each dimension, told by these counters."""
        import numpy as np

        result = np.zeros((len(counters), dimensions), np.int64)
        for k, digit in enumerate(self.along):
            result[:, digit.dimension] += digit.weight * counters[:, k]
        return result


@dataclass(frozen=True)
class JointPeak(Tabled):
    """The size of the tile number `item` of those `held` at the stamp at which all have most bits together.

    `every`: all loops; `stamps`: those of the Einsum that runs; `own`: its loops in time; `along`: those in
    space that tell instances, with what they add to their coordinates along so many `dimensions`.
    """

    every: tuple[ChainLevel, ...]
    stamps: tuple[ListedTiles, ...]
    own: tuple[int, ...]
    along: tuple[tuple[int, CoordinateDigit], ...]
    dimensions: int
    held: tuple[ListedBuffet, ...]
    item: int

    __hash__ = Tabled.__hash__

    @property
    def chains(self) -> tuple[tuple[ChainLevel, ...], ...]:
        return (self.every,)

    @property
    def named(self) -> str:
        return "peak"

    def without_sizes(self) -> JointPeak:
        return replace(self, every=(ChainLevel(1, "each"),) * len(self.every))

    def number(self, *tiles: Tiles) -> int:
        return _peak(replace(self, every=(), item=0), tiles[0])[self.item]


@lru_cache(maxsize=4096)
def _peak(asked: JointPeak, tiles: Tiles) -> tuple[int, ...]:
    """The sizes of several tiles at the stamp at which they have most bits together."""
    import numpy as np

    active = _active(asked, tiles)
    idle = _idle(asked, tiles, active)
    sizes = [_resident_elements(one, tiles, active) for one in asked.held]
    total = _bits(asked.held, sizes)
    if len(idle):
        # Others may be there in instances in which the Einsum does not run at the time.
        least = [_resident_elements(one, tiles, idle) * bool(one.uses) for one in asked.held]
        most = [_resident_elements(one, tiles, idle) for one in asked.held]
        if _bits(asked.held, most).max() > max(total.max(), _bits(asked.held, least).max()):
            raise NotSeparable(
                "an instance may hold most while it is idle, and it is not known what stays there", EXACT
            )
        sizes = [np.concatenate(both) for both in zip(sizes, least, strict=True)]
        total = _bits(asked.held, sizes)
    peak = int(total.argmax())
    return tuple(int(size[peak]) for size in sizes)


def _bits(held: tuple[ListedBuffet, ...], sizes: list[Ints]) -> Ints:
    total: Ints = 0
    for one, size in zip(held, sizes, strict=True):
        bits, numerator, denominator, count = one.weights
        total = total + -(-size * bits * numerator // denominator) * count
    return total


def _active(asked: JointPeak, tiles: Tiles) -> Ints:
    """The stamps of the Einsum: counters of its loops in time, and where it runs along each dimension."""
    import numpy as np

    every = _together(asked.stamps, tiles, tuple(range(len(tiles))))
    result = np.zeros((len(every), len(tiles) + asked.dimensions), np.int64)
    result[:, list(asked.own)] = every[:, list(asked.own)]
    for place, digit in asked.along:
        result[:, len(tiles) + digit.dimension] += digit.weight * every[:, place]
    return distinct(result)


def _idle(asked: JointPeak, tiles: Tiles, active: Ints) -> Ints:
    """Stamps of the Einsum in instances in which it does not run at the time, but buffets may be."""
    import numpy as np

    sizes = np.ones(asked.dimensions, np.int64)
    for one in asked.held:
        visits = _together(one.tiles, tiles, one.above)[:, len(one.times) :]
        sizes = np.maximum(sizes, 1 + one.coordinates(visits, asked.dimensions).max(axis=0, initial=0))
    times, count = distinct(active[:, : len(tiles)]), int(sizes.prod())
    if len(times) * count > MOST_ROWS:
        raise too_many()
    grids = np.indices(tuple(sizes)).reshape(len(sizes), count).T.reshape(count, len(sizes))
    result = np.repeat(times, len(grids), axis=0)
    result = np.concatenate([result, np.tile(grids, (len(times), 1))], axis=1)
    both = coded(active, result)
    return result[~np.isin(both[len(active) :], both[: len(active)])]


def _together(groups: tuple[ListedTiles, ...], tiles: Tiles, loops: tuple[int, ...]) -> Ints:
    """The stamps that groups of variables have together: the counter of each loop, 0 of those of none."""
    import numpy as np

    counters = np.zeros((1, len(loops)), np.int64)
    for one in groups:
        mine = [p for p in one.told if p in loops]
        found = distinct(one.rows(tiles).counters[:, [one.told.index(p) for p in mine]])
        if len(counters) * len(found) > MOST_ROWS:
            raise too_many()
        first = np.repeat(np.arange(len(counters)), len(found))
        second = np.tile(np.arange(len(found)), len(counters))
        counters = counters[first]
        counters[:, [loops.index(p) for p in mine]] = found[second]
    return distinct(counters)


def _resident_elements(one: ListedBuffet, tiles: Tiles, stamps: Ints) -> Ints:
    """At each stamp how many elements of the factors a buffet holds."""
    import numpy as np

    coordinates = stamps[:, len(tiles) :]
    absent = sorted(set(range(coordinates.shape[1])) - {digit.dimension for digit in one.along})
    there = ~coordinates[:, absent].any(axis=1)
    times, place = stamps[:, list(one.times)], one.counters(coordinates)
    if not one.uses:
        return np.where(there, _sizes(one, tiles, np.concatenate([times, place], axis=1)), 0)
    visits = _Visits(one, tiles)
    before, after = visits.around(stamps, place)
    some = there & (before >= 0) & (after < len(visits.times))
    before, after = np.where(some, before, 0), np.where(some, after, 0)
    at = np.concatenate([visits.times[before], place], axis=1)
    follows = np.concatenate([visits.times[after], place], axis=1)
    stays = before == after
    if one.reuse.carries:
        consecutive = some & (after == before + 1)
        stays[consecutive] |= visits.carried(before[consecutive], at[consecutive], follows[consecutive])
    if one.on_path:  # during a visit it holds the tile of that visit, also before its first use
        begun = (times == visits.times[after]).all(axis=1)
        at = np.where(begun[:, None], follows, at)
    return np.where(some & stays, _sizes(one, tiles, at), 0)


def _sizes(one: ListedBuffet, tiles: Tiles, stamps: Ints) -> Ints:
    """The size of a buffet's tile at stamps, which have the counters of the loops above it."""
    import numpy as np

    result = np.ones(len(stamps), np.int64)
    for factor in one.tiles:
        told = factor.elements(tiles)[:, : len(factor.told)]
        both = coded(told, stamps[:, [one.above.index(p) for p in factor.told]])
        names, count = np.unique(both[: len(told)], return_counts=True)
        theirs = both[len(told) :]
        place = np.minimum(names.searchsorted(theirs), max(0, len(names) - 1))
        result *= np.where(names[place] == theirs, count[place], 0) if len(names) else 0
    return result


class _Visits:
    """The visits of a buffet that the Einsum which runs does not use."""

    def __init__(self, one: ListedBuffet, tiles: Tiles) -> None:
        self.one, self.tiles = one, tiles
        visits = _together(one.tiles, tiles, one.above)
        self.times = distinct(visits[:, : len(one.times)])

    def around(self, stamps: Ints, place: Ints) -> tuple[Ints, Ints]:
        """At each stamp, in instances told by the counters of loops in space, the visits of the last use
        before it, -1 if there is none, and of the next one."""
        import numpy as np

        one, depth = self.one, len(self.one.times)
        before, after = np.full(len(stamps), -1), np.full(len(stamps), len(self.times))
        for use in one.uses:
            side: Literal["left", "right"] = "right" if use.before else "left"
            if not set(one.times) <= set(use.shared):  # in a branch of its own: its visits tell
                both = coded(self.times[:, : len(use.shared)], stamps[:, list(use.shared)])
                last = both[: len(self.times)].searchsorted(both[len(self.times) :], side=side) - 1
                before, after = np.maximum(before, last), np.minimum(after, last + 1)
                continue
            loops = (*one.places, *use.shared)
            every = _together(use.stamps, self.tiles, loops)
            now = np.concatenate([place, stamps[:, list(use.shared)]], axis=1)
            both, inside = coded(every, now), coded(every[:, : len(one.places)], now[:, : len(one.places)])
            last = both[: len(every)].searchsorted(both[len(every) :], side=side) - 1
            visit = np.append(self._number(every[:, len(one.places) :][:, :depth]), 0)
            mine, theirs = np.append(inside[: len(every)], -1), inside[len(every) :]
            before = np.maximum(before, np.where(mine[last] == theirs, visit[last], -1))
            follows = np.where(mine[last + 1] == theirs, visit[last + 1], len(self.times))
            after = np.minimum(after, follows)
        return before, after

    def _number(self, stamps: Ints) -> Ints:
        """The numbers of visits."""
        both = coded(self.times, stamps)
        return both[: len(self.times)].searchsorted(both[len(self.times) :])

    def carried(self, before: Ints, at: Ints, follows: Ints) -> Ints:
        """Whether anything stays from visits, by number, to those that follow."""
        import numpy as np

        times = len(self.one.times)
        if not times or not len(before):
            return np.zeros(len(before), bool)
        step = (at[:, :times] != follows[:, :times]).argmax(axis=1)
        result = self._over(step)
        for factor in self.one.tiles:
            told = [self.one.above.index(p) for p in factor.told]
            result &= _overlap(factor.elements(self.tiles), at[:, told], follows[:, told])
        for outer in self.one.outer:
            result &= _Visits(outer, self.tiles).retains(result, at, follows)
        return result

    def retains(self, asked: Ints, at: Ints, follows: Ints) -> Ints:
        """Whether the buffet, further out, keeps its elements from one stamp to a later one."""
        depth = len(self.one.times)
        now, then = (self._number(stamps[:, :depth]) for stamps in (at, follows))
        if (asked & (then > now + 1)).any():
            raise NotSeparable("whether storage further out keeps what stays is not known", EXACT)
        if not depth:
            return now == then
        step = (at[:, :depth] != follows[:, :depth]).argmax(axis=1)
        return (now == then) | self._over(step)

    def _over(self, step: Ints) -> Ints:
        """Whether the policy lets elements stay over steps of loops."""
        import numpy as np

        if not self.one.reuse.carries:
            return np.zeros(len(step), bool)
        innermost = self._innermost() if self.one.reuse.by_tile else -1
        return np.array([self.one.reuse.stays(a, innermost) for a in range(len(self.one.times))])[step]

    def _innermost(self) -> int:
        """The innermost loop in time on which the tile depends, or -1."""
        result = -1
        for factor in self.one.tiles:
            rows = factor.elements(self.tiles)
            depth = len(factor.told)
            element = coded(rows[:, depth:])
            mine = [p for p in factor.told if p in self.one.times]
            order = [factor.told.index(p) for p in factor.told if p not in mine]
            order += [factor.told.index(p) for p in mine]
            axis = innermost(rows[:, order], element, len(order) - len(mine))
            if axis >= 0:
                result = max(result, self.one.times.index(mine[axis]))
        return result


def _overlap(rows: Ints, at: Ints, follows: Ints) -> Ints:
    """Whether tiles at stamps have an element in common with those that follow."""
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
