"""What the windows of two rank variables have in common before and after a step of a loop.

Of a rank `a p + b r` (no common factor), let a tile hold n values of p and m of r. Values with
p = i + b u and r = j + a v, for fixed i < b and j < a, give the elements a i + b j + a b (u + v): different
classes (i, j) different elements, and in one class an interval of u + v. So tiles share, class by class,
what two intervals share. Where both variables move at once (loops over either wrap from their last to
their first tile), that is no product of a factor for p and one for r.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from polymodel.analysis.symbolic.atoms import TAKEN, Level, Ops, Role, Size, Tile, Value, Walk

ONTO: tuple[Role, ...] = ("to second", "to third", "to fourth")


@dataclass(frozen=True)
class Side:
    """One rank variable: its extent and its loops, of which one may step (`pair`) and those inside it `wrap`.

    Loops outside the step, and spatial ones, are as in an atom.
    """

    extent: Size
    levels: tuple[Level, ...]

    @property
    def sizes(self) -> tuple[Size, ...]:
        return (self.extent, *(s for lv in self.levels for s in lv.sizes))


@dataclass(frozen=True)
class Meet:
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

        def steps(side: Side, inner: Callable[[Change], Value]) -> Value:
            uneven = any(lv.spatial for lv in side.levels)
            walk = _Steps(Walk(ops, values, uneven), inner)
            whole = walk.walk.size(side.extent)
            more = next((lv.more for lv in side.levels if lv.role == "window"), 0)
            return walk.still(side.levels, Tile(whole, whole, more))

        found = steps(self.p, lambda p: steps(self.r, lambda r: shared(ops, self.a, p, self.b, r)))
        return ops.positive(found) if self.any else found


@dataclass(frozen=True)
class Change:
    """A variable's tile before and after a step; `gap`: how much further on it starts after it."""

    gap: Value
    before: Tile
    after: Tile


@dataclass(frozen=True)
class _Steps:
    """The recursion over the levels of one variable; `inner` is summed over its changes."""

    walk: Walk
    inner: Callable[[Change], Value]

    def still(self, levels: tuple[Level, ...], tile: Tile) -> Value:
        """Both tiles of a step lie in one tile so far."""
        if not levels or levels[0].role == "wrap":
            return self.apart(levels, Change(0, tile, tile))
        level, rest = levels[0], levels[1:]
        if level.role in TAKEN:
            return TAKEN[level.role](self.walk, tile, level, lambda inside: self.still(rest, inside))
        if level.role != "pair":
            return self.onto(level, rest, tile)
        ops = self.walk.ops
        begun: Value = 0
        if level.start is not None or level.more is not None:
            first, second = self.walk.head(tile, level), self.walk.after(tile, level, 0)
            begun = ops.positive(second.e) * self.apart(rest, Change(first.e, first, second))
            tile = self.walk.after_first(tile, level)
        n, whole, left = self.walk.parts(tile, level)
        begun = begun + ops.above_zero(n - 1) * self.apart(rest, Change(whole.e, whole, whole))
        return begun + ops.positive(n) * self.apart(rest, Change(whole.e, whole, left))

    def onto(self, level: Level, rest: tuple[Level, ...], tile: Tile) -> Value:
        """One step, from the tile before that of the role; the caller sees to it that there are both."""
        walk = self.walk
        if level.role == "to last":
            before = walk.before_that(tile, level, lambda found: found)
            after = walk.last(tile, level, lambda found: found)
        else:
            skipped = ONTO.index(level.role)
            before = walk.after(tile, level, skipped - 1) if skipped else walk.head(tile, level)
            after = walk.after(tile, level, skipped)
        return self.apart(rest, Change(before.e, before, after))

    def apart(self, levels: tuple[Level, ...], change: Change) -> Value:
        """The tiles of a step inside two tiles."""
        if not levels:
            return self.inner(change)
        level, rest = levels[0], levels[1:]
        if level.role == "wrap":
            skipped = self.walk.before_last(change.before, level)
            last = self.walk.last(change.before, level, lambda tile: tile)
            first = self.walk.first(change.after, level, lambda tile: tile)
            return self.apart(rest, Change(change.gap - skipped, last, first))
        if level.role == "window":
            now = (self.walk.window(t, level, lambda tile: tile) for t in (change.before, change.after))
            # Windows end where their tiles' do, and begin the earlier the more they add.
            gap = self.walk.size(level.tile) * change.gap + change.before.more - change.after.more
            return self.apart(rest, Change(gap, *now))
        if level.role == "first":
            tiles = (self.walk.first(t, level, lambda tile: tile) for t in (change.before, change.after))
            return self.apart(rest, Change(change.gap, *tiles))
        return self.beside(level, rest, change)

    def beside(self, level: Level, rest: tuple[Level, ...], change: Change) -> Value:
        """Instances side by side: counter by counter, as long as there is a tile on either side."""
        walk, ops = self.walk, self.walk.ops
        sides, t = (change.before, change.after), walk.size(level.tile)
        refs = [walk.widest_of(tile.ref, level) for tile in sides]
        extents = [tile.e for tile in sides]

        def instances(before: Value, after: Value) -> Value:
            tiles = (Tile(e, ref, 0) for e, ref in zip((before, after), refs, strict=True))
            return self.apart(rest, Change(change.gap, *tiles))

        first: Value = 0
        if level.start is not None:
            f = walk.size(level.start)
            first = instances(*(ops.least(e, f) for e in extents))
            extents = [ops.beyond(e, f) for e in extents]
        wholes = ops.least(*(ops.floordiv(e, t) for e in extents))
        left = (ops.least(e - wholes * t, t) for e in extents)
        return first + wholes * instances(t, t) + instances(*left)


def shared(ops: Ops, a: int, p: Change, b: int, r: Change) -> Value:
    """How many elements of the rank `a p + b r` are there before and after."""
    total: Value = 0
    for i in range(b):
        for j in range(a):
            total = total + _of_class(ops, _Class(ops, p, i, b), _Class(ops, r, j, a))
    return total


class _Class:
    """Values `first + every * u` of a variable: 0 <= u < count before, start <= u < end after."""

    def __init__(self, ops: Ops, change: Change, first: int, every: int) -> None:
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
