"""Rank variables that depend on each other, listed value by value: once for each choice of their tile sizes.

For some variables all points within bounds are listed, with the counters of the loops that lead to each
point, and the elements that ranks of these variables have at it. So instances may share any part of a window,
a bound may couple any number of variables, and loops over these may be spread over instances. The time grows
with the number of points, so a formula, or pieces of intervals (`regions`), are used instead where they
suffice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from math import prod
from typing import Any

from polymodel.analysis.symbolic.atoms import TAKEN, ChainLevel, LevelWalk, Ops, Size, Tile, Value
from polymodel.analysis.symbolic.pair_atoms import LoopTable, Side, Tabled
from polymodel.analysis.symbolic.regions import (
    BoxUnion,
    LoopStep,
    Made,
    NeededRegion,
    Region,
    Tiles,
    Turn,
    values_under,
)
from polymodel.errors import NotSeparable
from polymodel.frozen import dataclass
from polymodel.integers import distinct_numbers

Ints = Any
MOST_POINTS = 2**22
MOST_WITHIN_BOUNDS = 2**20  # above this, engine exact, which counts pieces, is as fast
PEAKS = 6  # the most stamps of which none has all tiles at least as large as another


@dataclass(frozen=True)
class Listing(LoopTable):
    """The distinct (kept counters, element); with `step` those that stay over the steps of a loop.

    `turns`: all loops, outermost first. `ranks`: for each rank the factors of the variables. An element stays
    if every instance that has it had it before. `settled`: 1 if the tiles of each instance do not depend on
    the loop that steps.
    """

    ranks: tuple[tuple[int, ...], ...]
    turns: tuple[Turn, ...]
    made: tuple[Made | None, ...] = ()
    step: LoopStep | None = None
    settled: bool = False

    __hash__ = Tabled.__hash__

    @property
    def named(self) -> str:
        return "independent" if self.settled else "kept" if self.step is not None else "elements"

    def number(self, *tiles: Tiles) -> int:
        nameless = replace(self, loops=((),) * len(self.loops))
        if self.settled:
            return int(_settled(nameless, tiles))
        return _counted(nameless, tiles)


@dataclass(frozen=True)
class _StampPoints:
    """Points at stamps: for each choice of values of all variables, whether the point is `there`.

    `columns`: for each loop its counter for the values of its variable; `index`: one number for each
    different element. Both have one axis for each variable. `widths`: how many values each counter may take;
    `elements`: how many values `index` may take.
    """

    there: Ints
    columns: tuple[Ints, ...]
    index: Ints
    widths: tuple[int, ...]
    elements: int

    @cached_property
    def element(self) -> Ints:
        """The element of each point."""
        return self._of(self.index)

    def size(self, places: Iterable[int]) -> int:
        """The number of combinations of the counters of some loops."""
        return prod(self.widths[place] for place in places)

    def number_of(self, places: Iterable[int]) -> Ints:
        """For each point one number for the counters of some loops, outermost first."""
        import numpy as np

        result = np.zeros([1] * self.there.ndim, np.int64)
        for place in places:
            result = result * self.widths[place] + self.columns[place]
        return self._of(result)

    def _of(self, values: Ints) -> Ints:
        import numpy as np

        return np.broadcast_to(values, self.there.shape)[self.there]


def _require_numbers(*sizes: int) -> None:
    """Refuse codes that would be too large for one integer."""
    if prod(sizes) > 2**62:
        raise _too_large()


def _too_large() -> NotSeparable:
    return NotSeparable(
        "tiles of rank variables that depend on each other are too many to list",
        "use engine exact, or reuse: refill",
        code="too-large",
    )


@lru_cache(maxsize=8)
def _points(
    region: Region,
    tiles: tuple[Tiles, ...],
    variables: tuple[int, ...],
    made: tuple[Made | None, ...],
    ranks: tuple[tuple[int, ...], ...],
) -> _StampPoints:
    """`variables`: the variable of each loop, outermost first."""
    import numpy as np

    if isinstance(region, NeededRegion):
        return _points_of_rows(region, tiles, variables, ranks)
    count = len(region.extents)
    listed = [values_under(n, tiles[k], made[k] if made else None) for k, n in enumerate(region.extents)]
    if prod(len(values) for values, _ in listed) > (MOST_WITHIN_BOUNDS if region.bounds else MOST_POINTS):
        raise _too_large()
    shape = [len(values) for values, _ in listed]

    def along(k: int, column: Ints) -> Ints:
        return column.reshape([-1 if i == k else 1 for i in range(count)])

    def affine(factors: Sequence[int]) -> Ints:
        result = np.zeros([1] * count, np.int64)
        for k, factor in enumerate(factors):
            if factor:
                result = result + along(k, factor * listed[k][0])
        return result

    there = np.ones(shape, bool)
    for *factors, constant in region.bounds:
        there &= affine(factors) + constant >= 0
    for k in range(count):
        if not any(rank[k] for rank in ranks):  # the values of a tile are equivalent
            first = _first_of_tiles(listed[k][1], len(listed[k][0]))
            there = np.logical_or.reduceat(there, first, axis=k)
            listed[k] = listed[k][0][first], [c[first] for c in listed[k][1]]
    element = np.zeros([1] * count, np.int64)
    for rank in ranks:
        index = affine(rank)
        index = index - index.min()
        element = element * (int(index.max()) + 1) + index
    columns, taken = [], [0] * count
    for k in variables:
        columns.append(along(k, listed[k][1][taken[k]]))
        taken[k] += 1
    widths = tuple(int(c.max(initial=0)) + 1 for c in columns)
    return _StampPoints(there, tuple(columns), element, widths, int(element.max(initial=0)) + 1)


def _points_of_rows(
    region: Region, tiles: tuple[Tiles, ...], variables: tuple[int, ...], ranks: tuple[tuple[int, ...], ...]
) -> _StampPoints:
    """Return the points at stamps for points that are listed one by one."""
    import numpy as np

    from polymodel.analysis.symbolic.needed_sets import rows_of

    wanted = [any(rank[k] for rank in ranks) for k in range(len(region.extents))]
    rows = rows_of(region, tiles, variables, wanted)
    element = np.zeros(len(rows.values), np.int64)
    for rank in ranks:
        index = rows.values @ np.array(rank, np.int64)
        index = index - index.min(initial=0)
        element = element * (int(index.max(initial=0)) + 1) + index
    widths = tuple(int(c.max(initial=0)) + 1 for c in rows.counters.T)
    there = np.ones(len(element), bool)
    return _StampPoints(there, tuple(rows.counters.T), element, widths, int(element.max(initial=0)) + 1)


def _first_of_tiles(counters: list[Ints], count: int) -> Ints:
    """The positions, in ordered values, at which the innermost tiles begin."""
    import numpy as np

    begins = np.zeros(count, bool)
    begins[0] = True
    for c in counters:
        begins[1:] |= c[1:] != c[:-1]
    return np.nonzero(begins)[0]


def values_of(region: Region, factors: tuple[int, ...]) -> tuple[int, int, int]:
    """The lowest and highest value of a rank, counted from the smallest values of its variables, and the
    number of values."""

    if isinstance(region, BoxUnion):
        from polymodel.analysis.symbolic.box_unions import values_by_marks

        found = values_by_marks(region, factors)
        if found is not None:
            return found
    points = _points(region, ((),) * len(region.extents), (), (), (factors,))
    lowest = sum(min(0, c * (n - 1)) for c, n in zip(factors, region.extents, strict=True))
    result = distinct_numbers(points.element)
    return lowest + int(result[0]), lowest + int(result[-1]), len(result)


def _all(asked: Listing, tiles: tuple[Tiles, ...]) -> _StampPoints:
    return _points(asked.region, tiles, tuple(t.variable for t in asked.turns), asked.made, asked.ranks)


def _places(asked: Listing, spatial: bool | None, use: str) -> list[int]:
    return [i for i, t in enumerate(asked.turns) if t.use == use and spatial in (None, t.spatial)]


def _counted(asked: Listing, tiles: tuple[Tiles, ...]) -> int:
    """The count. It is computed for all instances together, of which a single one may be requested."""
    held = [(i, t.use) for i, t in enumerate(asked.turns) if isinstance(t.use, int)]
    turns = tuple(replace(t, use="apart") if isinstance(t.use, int) else t for t in asked.turns)
    widths, counts = _by_instance(replace(asked, turns=turns), tiles)
    place = 0
    for i, number in held:
        if number >= widths[i]:
            return 0
        place = place * widths[i] + number
    return int(counts[place])


@lru_cache(maxsize=4096)
def _by_instance(asked: Listing, tiles: tuple[Tiles, ...]) -> tuple[tuple[int, ...], Ints]:
    """The number of values of each counter, and the count for each combination of the counters kept
    `apart`."""
    import numpy as np

    if isinstance(asked.region, BoxUnion) and not any(asked.made):
        from polymodel.analysis.symbolic.box_unions import number_by_marks

        _require_numbers(*asked.region.extents)
        found = number_by_marks(asked.region, asked.ranks, tiles, asked.turns, asked.step)
        if found is not None:
            return found
    points = _all(asked, tiles)
    apart = _places(asked, None, "apart")
    if asked.step is not None:
        return points.widths, _staying(asked, points, apart)
    most, kept = _places(asked, None, "most"), _places(asked, None, "keep")
    if _are_distinct(asked, tiles):
        codes, below = points.number_of([*apart, *most]), 1
    else:
        below = points.elements * points.size(kept)
        _require_numbers(below, points.size([*apart, *most]))
        codes = distinct_numbers(points.number_of([*apart, *most, *kept]) * points.elements + points.element)
    counts = np.bincount(codes // below, minlength=points.size([*apart, *most]))
    return points.widths, counts.reshape(points.size(apart), -1).max(axis=1)


def _are_distinct(asked: Listing, tiles: tuple[Tiles, ...]) -> bool:
    """Return whether no two points have the same counters and element.

    If so, each variable is determined by a rank of its own, or by counters down to single values.
    """
    if isinstance(asked.region, NeededRegion):
        return False
    for k, own in enumerate(tiles):
        alone = any(rank[k] and not any(rank[:k] + rank[k + 1 :]) for rank in asked.ranks)
        merged = any(t.variable == k and t.use == "merge" for t in asked.turns)
        if not alone and (merged or not own or own[-1] != (1, 1)):
            return False
    return not any(made is not None for made in asked.made)


def _staying(asked: Listing, points: _StampPoints, apart: list[int]) -> Ints:
    """The number of elements, over all steps of a loop, that every instance which has them also had before
    the step."""
    import numpy as np

    kept, merged = _places(asked, True, "keep"), _places(asked, True, "merge")
    steps = _steps(asked, points)
    count, instances = 1 + int(max(s.max(initial=0) for s in steps)), points.size(merged)
    below, codes = count * points.size(kept) * points.elements, []
    _require_numbers(below, instances, points.size(apart))
    places, inside = points.number_of(apart), points.number_of(kept)
    merged_numbers, element = points.number_of(merged), points.element
    for step in steps:
        rows = step >= 0
        code = (places[rows] * count + step[rows]) * points.size(kept) + inside[rows]
        codes.append(
            distinct_numbers((code * points.elements + element[rows]) * instances + merged_numbers[rows])
        )
    before, after = codes
    new = after[~np.isin(after, before, assume_unique=True)]
    each = [distinct_numbers(code // instances) // below for code in (after, new)]
    size = points.size(apart)
    result: Ints = np.bincount(each[0], minlength=size) - np.bincount(each[1], minlength=size)
    return result


def _steps(asked: Listing, points: _StampPoints) -> tuple[Ints, Ints]:
    """For each point, the number of the step that follows its visit and of the step that precedes it, or -1.

    Visits are those of all instances together.
    """
    import numpy as np

    assert asked.step is not None
    times = _places(asked, False, "keep")
    outside = [i for i in times if i < asked.step.outside]
    through = [i for i in times if i < asked.step.outside + asked.step.moves]
    _require_numbers(points.size(times))
    visits, first, which = np.unique(points.number_of(times), return_index=True, return_inverse=True)
    same = np.diff(points.number_of(outside)[first]) == 0
    if asked.step.moves:
        (before,) = np.nonzero(same & (np.diff(points.number_of(through)[first]) != 0))
        after = before + 1
    else:
        after = np.concatenate(([0], 1 + np.nonzero(~same)[0]))
        before = np.append(after[1:], len(visits)) - 1
    result = []
    for side in (before, after):
        step = np.full(len(visits), -1, np.int64)
        step[side] = np.arange(len(side))
        result.append(step[which.reshape(-1)])
    return result[0], result[1]


def _settled(asked: Listing, tiles: tuple[Tiles, ...]) -> bool:
    """Whether visits that are equal except for the counter of a loop have equal tiles in each instance."""
    import numpy as np

    assert asked.step is not None
    if isinstance(asked.region, BoxUnion) and not any(asked.made):
        from polymodel.analysis.symbolic.box_unions import is_settled_by_marks

        alike = is_settled_by_marks(asked.region, asked.ranks, tiles, asked.turns, asked.step.outside)
        if alike is not None:
            return alike
    points, axis = _all(asked, tiles), asked.step.outside
    others = [i for i, t in enumerate(asked.turns) if i != axis and (t.spatial or t.use == "keep")]
    _require_numbers(points.size(others), points.elements, points.widths[axis])
    stamp, counter, width = points.number_of(others), points.number_of([axis]), points.widths[axis]
    _, visits = np.unique(np.unique(stamp * width + counter) // width, return_counts=True)
    touched = distinct_numbers((stamp * points.elements + points.element) * width + counter) // width
    element, times = np.unique(touched, return_counts=True)
    stamps = distinct_numbers(stamp)
    return bool((times == visits[stamps.searchsorted(element // points.elements)]).all())


# Ranks of three or more rank variables, where tiles are boxes: a count for the tile sizes of each variable.


@dataclass(frozen=True)
class DistinctValues:
    """The sum over tiles of the number of values that a rank `a p + b r + c s ...` takes in them."""

    sides: tuple[Side, ...]
    factors: tuple[int, ...]

    @cached_property
    def sizes(self) -> tuple[Size, ...]:
        return tuple(s for side in self.sides for s in side.sizes)

    @cached_property
    def symbols(self) -> frozenset[str]:
        """Names of the symbols it depends on."""
        return frozenset(s for s in self.sizes if isinstance(s, str))

    @cached_property
    def _hash(self) -> int:
        return hash((self.sides, self.factors))

    def __hash__(self) -> int:
        return self._hash

    def value(self, ops: Ops, values: Mapping[str, Value]) -> Value:
        """The number (or array, or expression) for given symbols."""
        table = SumTable(Region((), ()), self.factors)

        def of(found: tuple[Value, ...]) -> Value:
            if len(found) == len(self.sides):
                return ops.counted(table, found)
            side = self.sides[len(found)]
            walk = LevelWalk(ops, values, any(lv.spatial for lv in side.levels))

            def down(levels: tuple[ChainLevel, ...], tile: Tile) -> Value:
                if not levels:
                    return of((*found, tile.e))
                return TAKEN[levels[0].role](walk, tile, levels[0], lambda inside: down(levels[1:], inside))

            whole = walk.size(side.extent)
            more = next((lv.more for lv in side.levels if lv.role == "window"), 0)
            return down(side.levels, Tile(whole, whole, more or 0))

        return of(())


@dataclass(frozen=True)
class SumTable(Tabled):
    """The number of values of `a i + b j + c k ...`, for given numbers of values of i, j, k ... from 0 on."""

    factors: tuple[int, ...]

    __hash__ = Tabled.__hash__

    @property
    def named(self) -> str:
        return "sums_of_" + "_".join(map(str, self.factors))

    def without_sizes(self) -> SumTable:
        return self

    def shown(self, sizes: Sequence[Any]) -> list[Any]:
        return list(sizes)

    def at(self, *sizes: int) -> int:
        return _sums(self.factors, tuple(map(int, sizes)))


@lru_cache(maxsize=65536)
def _sums(factors: tuple[int, ...], sizes: tuple[int, ...]) -> int:
    import numpy as np

    if 0 in sizes:
        return 0
    reach = interval(zip(sizes, factors, strict=True))
    if reach is not None:
        return reach
    span = 1 + sum(c * (n - 1) for c, n in zip(factors, sizes, strict=True))
    if span * max(sizes) > MOST_POINTS * 16:
        raise _too_large()
    there = np.zeros(span, bool)
    there[0], end = True, 1
    for c, n in zip(factors, sizes, strict=True):
        before, end = there[:end].copy(), end + c * (n - 1)
        for i in range(1, n):
            there[c * i : c * i + len(before)] |= before
    return int(there.sum())


def interval(sides: Iterable[tuple[int, int]]) -> int | None:
    """The number of values of a sum if they are consecutive; `sides`: extents and factors."""
    reach = 1
    for factor, extent in sorted((c, n) for n, c in sides):
        if extent > 1 and factor > reach:
            return None
        reach += factor * (extent - 1)
    return reach


@dataclass(frozen=True)
class BuffetLoops:
    """A buffet's tile along some variables: the number of loops of each that determine it, and its ranks."""

    depth: tuple[int, ...]
    ranks: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class ListedPeak(LoopTable):
    """The size of tile number `item` of those in `asked`, at the stamp with number `place` among those that
    may be the peak."""

    asked: tuple[BuffetLoops, ...]
    item: int
    place: int

    __hash__ = Tabled.__hash__

    @property
    def named(self) -> str:
        return "peak"

    def number(self, *tiles: Tiles) -> int:
        rows = _peaks(self.region, tiles, self.asked)
        if len(rows) > PEAKS:
            raise NotSeparable(
                f"at these tiles more than {PEAKS} stamps may be the peak",
                "use engine exact there",
                code="too-large",
            )
        # If there is no stamp, nothing is ever held.
        return rows[min(self.place, len(rows) - 1)][self.item] if rows else 0


@lru_cache(maxsize=65536)
def _peaks(
    region: Region, tiles: tuple[Tiles, ...], asked: tuple[BuffetLoops, ...]
) -> tuple[tuple[int, ...], ...]:
    """The sizes of several tiles at the stamps that no other stamp exceeds."""
    import numpy as np

    found = _peaks_of_union(region, tiles, asked)
    rows = np.unique(_stamps(region, tiles, asked) if found is None else found, axis=0)[::-1]
    kept: list[Ints] = []
    for row in rows:  # in descending order: what exceeds a row comes before it
        if not any((row <= other).all() for other in kept):
            kept.append(row)
    return tuple(tuple(int(x) for x in row) for row in kept)


def _peaks_of_union(region: Region, tiles: tuple[Tiles, ...], asked: tuple[BuffetLoops, ...]) -> Ints | None:
    """The same sizes at all stamps that differ in them, if marks decide them."""
    if not isinstance(region, BoxUnion):
        return None
    from polymodel.analysis.symbolic.box_unions import peaks_by_marks

    _require_numbers(*region.extents)
    return peaks_by_marks(region, tiles, [(held.depth, held.ranks) for held in asked])


def _stamps(region: Region, tiles: tuple[Tiles, ...], asked: tuple[BuffetLoops, ...]) -> Ints:
    """The sizes of several tiles at every stamp."""
    import numpy as np

    variables = tuple(k for k, chain in enumerate(tiles) for _ in chain)
    columns = []
    for held in asked:
        points = _points(region, tiles, variables, (), held.ranks)
        inside = [0] * len(tiles)
        places = []
        for place, k in enumerate(variables):
            places += [place] if inside[k] < held.depth[k] else []
            inside[k] += 1
        _require_numbers(points.size(range(len(variables))), points.elements)
        stamp, tile = points.number_of(range(len(variables))), points.number_of(places)
        pairs = distinct_numbers(tile * points.elements + points.element) // points.elements
        which, counts = np.unique(pairs, return_counts=True)
        _, first = np.unique(stamp, return_index=True)
        columns.append(counts[which.searchsorted(tile[first])])
    return np.stack(columns, axis=-1)
