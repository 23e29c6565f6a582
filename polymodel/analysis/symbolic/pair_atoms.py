"""Factors of closed forms for two rank variables: each replaces an atom of a single variable.

Two variables depend on each other if both index one rank (their windows overlap), or if a bound couples them
(sums and peaks over the tiles of a region).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property, lru_cache
from itertools import chain, islice
from typing import Any, Self

from polymodel.analysis.symbolic.atoms import TAKEN, ChainLevel, LevelWalk, Ops, Role, Size, Tile, Value
from polymodel.analysis.symbolic.regions import (
    PEAKS,
    Ints,
    Kind,
    Loops,
    Region,
    TileQuery,
    Tiles,
    What,
    total,
)
from polymodel.errors import NotSeparable
from polymodel.frozen import dataclass

# The common part of the windows of two rank variables before and after a step of a loop.
#
# Of a rank `a p + b r` (no common factor), let a tile hold n values of p and m of r. Values with p = i + b u
# and r = j + a v, for fixed i < b and j < a, give the elements a i + b j + a b (u + v): different classes (i,
# j) give different elements, and one class gives an interval of u + v. So, class by class, tiles share what
# two intervals share. Where both variables move at once (loops over either wrap from their last to their
# first tile), that is not a product of a factor for p and one for r.

ONTO: tuple[Role, ...] = ("to second", "to third", "to fourth")


@dataclass(frozen=True)
class Side:
    """One rank variable: its extent and its loops. One loop may step (`pair`), and the loops inside it then
    `wrap`.

    Loops outside the step, and spatial ones, are as in an atom.
    """

    extent: Size
    levels: tuple[ChainLevel, ...]

    @property
    def sizes(self) -> tuple[Size, ...]:
        return (self.extent, *(s for lv in self.levels for s in lv.sizes))


@dataclass(frozen=True)
class StepOverlap:
    """The sum over the steps of |tile before & tile after| along the rank `a p + b r`.

    `any`: 1 if that is more than 0, else 0.
    """

    p: Side
    r: Side
    a: int
    b: int
    any: bool = False

    @cached_property
    def sizes(self) -> tuple[Size, ...]:
        return (*self.p.sizes, *self.r.sizes)

    @cached_property
    def symbols(self) -> frozenset[str]:
        """Names of the symbols it depends on."""
        return frozenset(s for s in self.sizes if isinstance(s, str))

    @cached_property
    def _hash(self) -> int:
        return hash((self.p, self.r, self.a, self.b, self.any))

    def __hash__(self) -> int:
        return self._hash

    def value(self, ops: Ops, values: Mapping[str, Value]) -> Value:
        """The number (or array, or expression) for given symbols."""

        def steps(side: Side, inner: Callable[[TileChange], Value]) -> Value:
            uneven = any(lv.spatial for lv in side.levels)
            walk = _StepRecursion(LevelWalk(ops, values, uneven), inner)
            whole = walk.walk.size(side.extent)
            more = next((lv.more for lv in side.levels if lv.role == "window"), 0)
            return walk.still(side.levels, Tile(whole, whole, more))

        result = steps(self.p, lambda p: steps(self.r, lambda r: shared(ops, self.a, p, self.b, r)))
        return ops.positive(result) if self.any else result


@dataclass(frozen=True)
class TileChange:
    """A variable's tile before and after a step; `gap`: the distance between their starts."""

    gap: Value
    before: Tile
    after: Tile


@dataclass(frozen=True)
class _StepRecursion:
    """The recursion over the levels of one variable; `inner` is summed over its changes."""

    walk: LevelWalk
    inner: Callable[[TileChange], Value]

    def still(self, levels: tuple[ChainLevel, ...], tile: Tile) -> Value:
        """The recursion while both tiles of a step are in one tile."""
        if not levels or levels[0].role == "wrap":
            return self.apart(levels, TileChange(0, tile, tile))
        level, rest = levels[0], levels[1:]
        if level.role in TAKEN:
            return TAKEN[level.role](self.walk, tile, level, lambda inside: self.still(rest, inside))
        if level.role != "pair":
            return self.onto(level, rest, tile)
        ops = self.walk.ops
        begun: Value = 0
        if level.start is not None or level.more is not None:
            first, second = self.walk.head(tile, level), self.walk.after(tile, level, 0)
            begun = ops.positive(second.e) * self.apart(rest, TileChange(first.e, first, second))
            tile = self.walk.after_first(tile, level)
        n, whole, left = self.walk.parts(tile, level)
        begun = begun + ops.above_zero(n - 1) * self.apart(rest, TileChange(whole.e, whole, whole))
        return begun + ops.positive(n) * self.apart(rest, TileChange(whole.e, whole, left))

    def onto(self, level: ChainLevel, rest: tuple[ChainLevel, ...], tile: Tile) -> Value:
        """One step, from the previous tile to that of the role. The caller ensures that both exist."""
        walk = self.walk
        if level.role == "to last":
            before = walk.before_that(tile, level, lambda found: found)
            after = walk.last(tile, level, lambda found: found)
        else:
            skipped = ONTO.index(level.role)
            before = walk.after(tile, level, skipped - 1) if skipped else walk.head(tile, level)
            after = walk.after(tile, level, skipped)
        return self.apart(rest, TileChange(before.e, before, after))

    def apart(self, levels: tuple[ChainLevel, ...], change: TileChange) -> Value:
        """The recursion once the tiles of a step are in two tiles."""
        if not levels:
            return self.inner(change)
        level, rest = levels[0], levels[1:]
        if level.role == "wrap":
            skipped = self.walk.before_last(change.before, level)
            last = self.walk.last(change.before, level, lambda tile: tile)
            first = self.walk.first(change.after, level, lambda tile: tile)
            return self.apart(rest, TileChange(change.gap - skipped, last, first))
        if level.role == "window":
            now = (self.walk.window(t, level, lambda tile: tile) for t in (change.before, change.after))
            # A window ends where that of its tile ends, and begins earlier by what it adds.
            gap = self.walk.size(level.tile) * change.gap + change.before.more - change.after.more
            return self.apart(rest, TileChange(gap, *now))
        if level.role == "first":
            tiles = (self.walk.first(t, level, lambda tile: tile) for t in (change.before, change.after))
            return self.apart(rest, TileChange(change.gap, *tiles))
        return self.adjacent_instances(level, rest, change)

    def adjacent_instances(
        self, level: ChainLevel, rest: tuple[ChainLevel, ...], change: TileChange
    ) -> Value:
        """Adjacent instances, counter by counter, as long as both sides have a tile."""
        walk, ops = self.walk, self.walk.ops
        sides, t = (change.before, change.after), walk.size(level.tile)
        refs = [walk.widest_of(tile.ref, level) for tile in sides]
        extents = [tile.e for tile in sides]

        def instances(before: Value, after: Value) -> Value:
            tiles = (Tile(e, ref, 0) for e, ref in zip((before, after), refs, strict=True))
            return self.apart(rest, TileChange(change.gap, *tiles))

        first: Value = 0
        if level.start is not None:
            f = walk.size(level.start)
            first = instances(*(ops.least(e, f) for e in extents))
            extents = [ops.beyond(e, f) for e in extents]
        wholes = ops.least(*(ops.floordiv(e, t) for e in extents))
        left = (ops.least(e - wholes * t, t) for e in extents)
        return first + wholes * instances(t, t) + instances(*left)


def shared(ops: Ops, a: int, p: TileChange, b: int, r: TileChange) -> Value:
    """The number of elements of the rank `a p + b r` that are held both before and after."""
    total: Value = 0
    for i in range(b):
        for j in range(a):
            total = total + _of_class(ops, _Class(ops, p, i, b), _Class(ops, r, j, a))
    return total


class _Class:
    """Values `first + every * u` of a variable: 0 <= u < count before, start <= u < end after."""

    def __init__(self, ops: Ops, change: TileChange, first: int, every: int) -> None:
        def steps(to: Value) -> Value:
            return to - first if every == 1 else ops.ceildiv(to - first, every)

        self.count = change.before.e if every == 1 else ops.above_zero(steps(change.before.e))
        self.start, self.end = steps(change.gap), steps(change.gap + change.after.e)
        after = change.after.e if every == 1 else self.end - self.start
        self.present = ops.positive(self.count) * ops.positive(after)


def _of_class(ops: Ops, p: _Class, r: _Class) -> Value:
    begin = ops.above_zero(p.start + r.start)
    end = ops.least(p.count + r.count, p.end + r.end) - 1
    return ops.above_zero(end - begin) * p.present * r.present


# Factors of closed forms for two rank variables that a bound couples: sums and peaks over their tiles.
#
# Each replaces an atom of a single variable. Their values come from the region itself (`regions`), once for
# each distinct choice of tile sizes.


MOST_DIGITS = 2**20  # up to this range, values of a column are coded by their distance from the smallest


def _distinct_rows(columns: Sequence[Any]) -> tuple[Any, Any]:
    """The first row of each kind, and the kind of each row; rows are given by their columns.

    Each column adds a digit to a number, which is renumbered before it becomes too large.
    """
    import numpy as np

    code, size = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        low, high = (int(column.min()), int(column.max())) if len(column) else (0, 0)
        width = high - low + 1
        if width > MOST_DIGITS:  # values far apart become one digit each
            values, column = np.unique(column, return_inverse=True)
            column, low, width = column.reshape(-1), 0, len(values)
        if size * width > 2**62:
            numbers, code = np.unique(code, return_inverse=True)
            code, size = code.reshape(-1), len(numbers)
        if width > 1:
            code, size = code * width + (column - low), size * width
    _, first, which = np.unique(code, return_index=True, return_inverse=True)
    return first, which.reshape(-1)


_NAMES = {"none": "tiles", "u": "elements", "v": "elements", "both": "points", "rank": "elements"}


@dataclass(frozen=True)
class Tabled:
    """A number of a region under tiles of its variables, computed for each choice of tile sizes."""

    region: Region

    @property
    def chains(self) -> tuple[tuple[ChainLevel, ...], ...]:
        """The loops over each variable, outermost first."""
        raise NotImplementedError

    @cached_property
    def sizes(self) -> tuple[Size, ...]:
        """The sizes of all tiles: first and others of each loop, variable by variable."""
        return tuple(s for lv in chain(*self.chains) for s in (lv.begin, lv.tile))

    @cached_property
    def symbols(self) -> frozenset[str]:
        """Names of the symbols it depends on."""
        return frozenset(s for s in self.sizes if isinstance(s, str))

    @cached_property
    def _hash(self) -> int:
        return hash((type(self).__name__, *(getattr(self, f.name) for f in fields(self))))

    def __hash__(self) -> int:
        return self._hash

    def value(self, ops: Ops, values: Mapping[str, Value]) -> Value:
        """The number (or array, or expression) for given symbols."""
        return ops.counted(self, [values[s] if isinstance(s, str) else s for s in self.sizes])

    def at(self, *sizes: int) -> int:
        """The number for the sizes of all tiles."""
        pairs, tiles = iter(zip(sizes[::2], sizes[1::2], strict=True)), []
        for levels in self.chains:
            tiles.append(tuple(islice(pairs, len(levels))))
        return self.number(*tiles)

    def number(self, *tiles: Tiles) -> int:
        """The same for the tiles of each variable."""
        raise NotImplementedError

    def without_sizes(self) -> Tabled:
        """The same number with equal tiles: a key that distinguishes counts whose sizes are equal."""
        raise NotImplementedError

    def shown(self, sizes: Sequence[Any]) -> list[Any]:
        """The sizes that are shown to a reader: the first tiles are omitted."""
        return list(sizes[1::2])

    @property
    def named(self) -> str:
        """The name of what is counted."""
        raise NotImplementedError

    def of(self, *sizes: Value) -> Value:
        """The same for numbers or arrays of them, computed once for each distinct row of sizes."""
        import numpy as np

        arrays = np.broadcast_arrays(*(np.asarray(s, np.int64) for s in sizes)) if sizes else []
        if not sizes or not arrays[0].ndim:
            return self.at(*(int(s) for s in sizes))
        columns = [a.reshape(-1) for a in arrays]
        first, which = _distinct_rows(columns)
        result = self.each(np.stack([c[first] for c in columns], axis=1))
        return np.array(result, np.int64)[which].reshape(arrays[0].shape)

    def each(self, rows: Ints) -> Sequence[int]:
        """The numbers for several choices [choice, size] of the sizes of all tiles."""
        return [self.at(*row) for row in rows.tolist()]


@dataclass(frozen=True)
class LoopTable(Tabled):
    """A count of a region whose variables have `loops`, outermost first, by the sizes of their tiles."""

    loops: tuple[tuple[ChainLevel, ...], ...]

    __hash__ = Tabled.__hash__

    @property
    def chains(self) -> tuple[tuple[ChainLevel, ...], ...]:
        return self.loops

    def without_sizes(self) -> Self:
        return replace(self, loops=tuple((ChainLevel(1, "each"),) * len(x) for x in self.loops))


@dataclass(frozen=True)
class TiedRegion(Tabled):
    """A count of two variables `u` and `v`, by their loops."""

    u: tuple[ChainLevel, ...]
    v: tuple[ChainLevel, ...]

    __hash__ = Tabled.__hash__

    @property
    def chains(self) -> tuple[tuple[ChainLevel, ...], ...]:
        return self.u, self.v

    def without_sizes(self) -> Tabled:
        alike = ((ChainLevel(1, "each"),) * len(x) for x in self.chains)
        u, v = alike
        return replace(self, u=u, v=v)


@dataclass(frozen=True)
class CutAtom(TiedRegion):
    """The distinct (tile of u, tile of v, element of `what`).

    With `asked`: the size of tile number `item` at the stamp with number `place` among those that may be the
    peak; the outermost `stamps` loops of either variable determine stamps, the others belong to buffets.
    """

    what: What = "none"
    rank: tuple[int, int] = (0, 0)
    asked: tuple[TileQuery, ...] = ()
    item: int = 0
    place: int = 0
    stamps: tuple[int, int] | None = None

    __hash__ = TiedRegion.__hash__

    @property
    def named(self) -> str:
        return "peak" if self.asked else _NAMES[self.what]

    def number(self, *tiles: Tiles) -> int:
        u, v = tiles
        if not self.asked:
            return total(self.region, u, v, self.what, self.rank)
        from polymodel.analysis.symbolic.pair_peaks import front

        return self._of_peaks(front(self.region, u, v, self.asked, self.stamps), tiles)

    def each(self, rows: Ints) -> Sequence[int]:
        if not self.asked:
            return super().each(rows)
        from polymodel.analysis.symbolic.pair_peaks import fronts

        choices = _choices(len(self.u), len(self.v), tuple(rows.ravel().tolist()))
        found = fronts(self.region, choices, self.asked, self.stamps)
        return [self._of_peaks(peaks, tiles) for peaks, tiles in zip(found, choices, strict=True)]

    def _of_peaks(self, rows: tuple[tuple[int, ...], ...], tiles: tuple[Tiles, ...]) -> int:
        if len(rows) > PEAKS:
            sizes = ", ".join(str(t) for _, t in chain(*tiles))
            raise NotSeparable(
                f"at tiles {sizes} more than {PEAKS} stamps may be the peak",
                "use engine exact there",
                code="too-large",
            )
        if not rows:  # nothing is ever held: all reads are before the first generation
            return 0
        return rows[min(self.place, len(rows) - 1)][self.item]


@lru_cache(maxsize=4)
def _choices(u: int, v: int, sizes: tuple[int, ...]) -> tuple[tuple[Tiles, Tiles], ...]:
    """The tiles of these many loops over either variable, from rows that give the sizes of all."""
    pairs = list(zip(sizes[::2], sizes[1::2], strict=True))
    begin = range(0, len(pairs), u + v)
    return tuple((tuple(pairs[i : i + u]), tuple(pairs[i + u : i + u + v])) for i in begin)


@dataclass(frozen=True)
class StepAtom(TiedRegion):
    """The count that `kind` names for a loop (`visits`): what stays over its steps, or whether tiles depend
    on it.

    `order`: the loops over both variables, outermost first; `axis`: how many of them are outside.
    """

    order: str
    axis: int
    kind: Kind
    what: What
    rank: tuple[int, int] = (0, 0)

    __hash__ = TiedRegion.__hash__

    @property
    def named(self) -> str:
        return "independent" if self.kind == "settled" else "kept"

    def number(self, *tiles: Tiles) -> int:
        from polymodel.analysis.symbolic.stamp_order import loop_demand

        u, v = tiles
        loops = Loops(self.region, u, v, self.order)
        return loop_demand(loops, self.axis, self.kind, self.what, self.rank)
