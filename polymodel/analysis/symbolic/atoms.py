"""Functions of the tiles of one rank variable: the factors of all closed forms.

An extent X under tiles t1, t2, ... splits into tiles; an atom sums a leaf function over them
(docs/semantics.md, What has closed forms). The same recursion runs on integers, on numpy arrays and on SymPy:
everything other than `+ - *` is a method of `Ops`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, Protocol

from polymodel.frozen import dataclass

Size = int | str
Value = Any  # an int, an int64 array or a SymPy expression, depending on the Ops

# Which of a loop's tiles count: `each` of them, or a single one. `widest`: the largest one, which is the
# first or the second; `only`: everything is one tile; `two`, `three`: there are at most so many; `last`: the
# tile at the last counter that any instance reaches; `before last`: the one before it, which must exist;
# `nominal`: as large as the loop's sizes allow; `hops`: all of them, each weighted by its counter, from 1 on.
# `window` is not a loop: it stands for what a tile of a consumer needs of its producer.
Way = Literal[
    "each", "first", "second", "third", "widest", "nominal", "only", "two", "three", "last", "before last",
    "hops", "window",
]  # fmt: skip
# For two stamps: `pair`: neighbours k and k + 1; `wrap`: from the last tile before a step to the first one
# after it (pair_atoms.py); `to second`, `to third`, `to fourth`, `to last`: the step onto that tile.
Role = Way | Literal["pair", "wrap", "to second", "to third", "to fourth", "to last"]


class NumberTable(Protocol):
    """A number that no formula gives, for each choice of some sizes: `at` takes numbers, `of` arrays of
    them."""

    def at(self, *sizes: int) -> int: ...
    def of(self, *sizes: Value) -> Value: ...


class Ops(Protocol):
    """Integer arithmetic of one kind of value; `le` and `positive` are 1 if true, else 0.

    `beyond`: the amount by which a exceeds b, at least 0; `counted`: the number that a table has for some
    sizes.
    """

    def floordiv(self, a: Value, b: Value) -> Value: ...
    def ceildiv(self, a: Value, b: Value) -> Value: ...
    def least(self, a: Value, b: Value) -> Value: ...
    def most(self, a: Value, b: Value) -> Value: ...
    def above_zero(self, a: Value) -> Value: ...
    def beyond(self, a: Value, b: Value) -> Value: ...
    def le(self, a: Value, b: Value) -> Value: ...
    def positive(self, a: Value) -> Value: ...
    def counted(self, table: NumberTable, sizes: Sequence[Value]) -> Value: ...


@dataclass(frozen=True)
class ChainLevel:
    """One loop of a chain: its tile (a number or a symbol), and how its tiles are taken.

    `start`: the size of its first tile, if it differs.

    If a producer is inferred, loops over its consumer are above a `window`: it turns a tile of extent e > 0
    into one of `tile * e + more`. `more` is the window's at the very first stamp, then that of the innermost
    loop whose counter is above 0; None: that of the loops outside.
    """

    tile: Size
    role: Role
    spatial: bool = False
    more: int | None = None
    start: Size | None = None

    @property
    def begin(self) -> Size:
        """The size of the first tile."""
        return self.tile if self.start is None else self.start

    @property
    def sizes(self) -> tuple[Size, ...]:
        return (self.tile,) if self.start is None else (self.start, self.tile)


@dataclass(frozen=True)
class Leaf:
    """What is summed over the tiles, a function of a tile's extent e (0 for an empty tile).

    `one`: 1. `size`: e. `over`: max(0, e - shift). `reaches`: 1 if the loop `rest` cuts it into more than
    `shift` tiles. `steady`: 1 if as many instances are active at the
    last counters of `rest` as at the first ones. Of a pair (b, a): `both`: instances active in b's last
    and a's first tile; `kept`: 1 if those active in a's first tile were active in b's last; `seam`: what
    b's last and a's first tile have in common, o, which is 0 but for windows; `bridge`:
    (b + a - o - shift)^+ - (b - shift)^+ - (a - shift)^+.
    """

    kind: Literal["one", "size", "over", "reaches", "steady", "both", "kept", "seam", "bridge"] = "one"
    shift: int = 0
    rest: tuple[ChainLevel, ...] = ()


ONE, SIZE = Leaf(), Leaf("size")


@dataclass(frozen=True)
class Atom:
    """The sum of `leaf` over the tiles that `levels` (outermost first) cut from `extent`."""

    extent: Size
    levels: tuple[ChainLevel, ...]
    leaf: Leaf = ONE

    @cached_property
    def sizes(self) -> tuple[Size, ...]:
        return (self.extent, *(s for lv in (*self.levels, *self.leaf.rest) for s in lv.sizes))

    @cached_property
    def symbols(self) -> frozenset[str]:
        """Names of the symbols it depends on."""
        return frozenset(s for s in self.sizes if isinstance(s, str))

    @cached_property
    def _hash(self) -> int:
        return hash((self.extent, self.levels, self.leaf))

    def __hash__(self) -> int:
        return self._hash

    def value(self, ops: Ops, values: Mapping[str, Value]) -> Value:
        """The number (or array, or expression) for given symbols."""
        every = (*self.levels, *self.leaf.rest)
        walk = LevelWalk(ops, values, any(lv.spatial for lv in every))
        e = walk.size(self.extent)
        more = next((lv.more for lv in every if lv.role == "window"), 0)
        return walk.down(self.levels, self.leaf, Tile(e, e, more))


@dataclass(frozen=True, eq=False)
class FullAgain(Atom):
    """1 if some tile after the first one is as large as it, else 0."""

    def value(self, ops: Ops, values: Mapping[str, Value]) -> Value:
        walk = LevelWalk(ops, values, False)
        whole, *tiles = (walk.size(s) for s in (self.extent, *(lv.tile for lv in self.levels)))
        none = 1
        for tile in tiles:
            none = none * (1 - ops.le(tile + tiles[-1], whole))
            whole = tile
        return 1 - none


@dataclass(frozen=True)
class RoundedActions:
    """The number of actions of `each` bits that move all tiles of several rank variables, each tile in whole
    actions.

    `chains`: for each variable its extent and the tiles of its loops, outermost first; `bits`: per element.
    """

    chains: tuple[tuple[Size, ...], ...]
    bits: int
    each: int

    @cached_property
    def sizes(self) -> tuple[Size, ...]:
        return tuple(s for chain in self.chains for s in chain)

    @cached_property
    def symbols(self) -> frozenset[str]:
        """Names of the symbols it depends on."""
        return frozenset(s for s in self.sizes if isinstance(s, str))

    def value(self, ops: Ops, values: Mapping[str, Value]) -> Value:
        """The number (or array, or expression) for given symbols."""
        return ops.counted(self, [values[s] if isinstance(s, str) else s for s in self.sizes])

    def at(self, *sizes: Value) -> Value:
        """The number for the sizes of all chains."""
        return self.by(INTEGERS, sizes)

    def of(self, *sizes: Value) -> Value:
        """The same for arrays of sizes, in Python integers if int64 may overflow."""
        import numpy as np

        from polymodel.integers import dtype_of, largest

        most, begin = 1, 0
        for chain in self.chains:
            most, begin = most * largest(sizes[begin]), begin + len(chain)
        kind = dtype_of(most * (self.bits + self.each))
        return self.by(ArrayOps(), [np.asarray(s).astype(kind) for s in sizes])

    def by(self, ops: Ops, sizes: Sequence[Value]) -> Value:
        """The sum over the classes of tiles: along each variable full ones, and the remainders at the
        ends."""
        classes: list[tuple[Value, Value]] = [(self.bits, 1)]  # bits of a tile, and the number of such tiles
        begin = 0
        for chain in self.chains:
            mine = sizes[begin : begin + len(chain)]
            along: list[tuple[Value, Value]] = [(mine[0], 1)]
            for tile in mine[1:]:
                along = [part for size, count in along for part in _cut(ops, size, tile, count)]
            classes = [(b * size, n * count) for b, n in classes for size, count in along]
            begin += len(chain)
        total: Value = 0
        for bits, count in classes:
            total = total + count * ops.ceildiv(bits, self.each)
        return total


def _cut(ops: Ops, size: Value, tile: Value, count: Value) -> list[tuple[Value, Value]]:
    """Tiles of one size cut into smaller ones: the full ones and the remainder."""
    full = ops.floordiv(size, tile)
    left = size - full * tile
    result = [(tile, count * full), (left, count)]
    return [pair for pair in result if not any(isinstance(x, int) and x == 0 for x in pair)]


@dataclass(frozen=True)
class Tile:
    """A tile's extent, that of the first instance at the same counters, and what a window adds to it."""

    e: Value
    ref: Value
    more: Value


Inner = Callable[[Tile], Value]


@dataclass(frozen=True)
class LevelWalk:
    """The recursion over levels.

    Visits are those of all instances together, so the last counter is the one that the largest
    (the first) instance reaches; an instance with fewer trips is idle then.
    """

    ops: Ops
    values: Mapping[str, Value]
    uneven: bool

    def size(self, size: Size) -> Value:
        return self.values[size] if isinstance(size, str) else size

    def down(self, levels: tuple[ChainLevel, ...], leaf: Leaf, tile: Tile) -> Value:
        if not levels:
            return self.leaf(leaf, tile)
        level, rest = levels[0], levels[1:]
        if level.role == "pair":
            return self.pair(tile, level, rest, leaf)
        if level.role == "each" and not rest and leaf.kind == "one":
            return self.trips(tile.e, level)
        return TAKEN[level.role](self, tile, level, lambda inner: self.down(rest, leaf, inner))

    def least(self, a: Value, b: Value) -> Value:
        return self.ops.least(a, b)

    def trips(self, e: Value, level: ChainLevel) -> Value:
        t = self.size(level.tile)
        if level.start is None:
            return self.ops.ceildiv(e, t)
        return self.ops.positive(e) + self.ops.ceildiv(self.ops.beyond(e, self.size(level.start)), t)

    def parts(self, tile: Tile, level: ChainLevel) -> tuple[Value, Tile, Tile]:
        """The number of whole tiles, one of them, and the partial one at the end."""
        t = self.size(level.tile)
        n = self.ops.floordiv(tile.e, t)
        left = tile.e - n * t
        if not self.uneven:
            ref = left
        else:
            ref = self.least(tile.ref, t) if level.spatial else self.least(t, tile.ref - n * t)
        return n, Tile(t, t, tile.more), Tile(left, ref, tile.more)

    def after_first(self, tile: Tile, level: ChainLevel) -> Tile:
        """Everything after the first tile, as a single tile."""
        t = self.size(level.begin)
        e = self.ops.beyond(tile.e, t)
        more = tile.more if level.more is None else level.more
        return Tile(e, self.ops.beyond(tile.ref, t) if self.uneven else e, more)

    def each(self, tile: Tile, level: ChainLevel, inner: Inner) -> Value:
        plain = ChainLevel(level.tile, "each", level.spatial)
        if level.start is not None and level.spatial:
            n, _, left = self.parts(self.after_first(tile, level), plain)
            ref, t = self.widest_of(tile.ref, level), self.size(level.tile)
            here = (replace(one, ref=ref) for one in (self.head(tile, level), Tile(t, t, tile.more), left))
            begun, whole, rest = (inner(one) for one in here)
            return begun + n * whole + rest
        if level.more is not None or level.start is not None:
            return self.first(tile, level, inner) + self.each(self.after_first(tile, level), plain, inner)
        n, whole, left = self.parts(tile, level)
        return n * inner(whole) + inner(left)

    def hops(self, tile: Tile, level: ChainLevel, inner: Inner) -> Value:
        n, whole, left = self.parts(tile, level)
        return self.ops.floordiv(n * (n + 1), 2) * inner(whole) + (n + 1) * inner(left)

    def head(self, tile: Tile, level: ChainLevel) -> Tile:
        t = self.size(level.begin)
        small = self.least(tile.e, t)
        return Tile(small, self.least(tile.ref, t) if self.uneven else small, tile.more)

    def after(self, tile: Tile, level: ChainLevel, skipped: int) -> Tile:
        """The first tile after the first one and `skipped` more."""
        t = self.size(level.tile)
        rest = self.after_first(tile, level)

        def cut(e: Value) -> Value:
            return self.least(self.ops.beyond(e, skipped * t) if skipped else e, t)

        e = cut(rest.e)
        return Tile(e, cut(rest.ref) if self.uneven else e, rest.more)

    def first(self, tile: Tile, level: ChainLevel, inner: Inner) -> Value:
        return inner(self.head(tile, level))

    def second(self, tile: Tile, level: ChainLevel, inner: Inner) -> Value:
        return inner(self.after(tile, level, 0))

    def third(self, tile: Tile, level: ChainLevel, inner: Inner) -> Value:
        return inner(self.after(tile, level, 1))

    def widest_of(self, e: Value, level: ChainLevel) -> Value:
        """The extent of the largest tile; of all tiles from the second on, that is the second one."""
        t, f = self.size(level.tile), self.size(level.begin)
        if level.start is None:
            return self.least(e, t)
        return self.ops.most(self.least(e, f), self.least(self.ops.beyond(e, f), t))

    def widest(self, tile: Tile, level: ChainLevel, inner: Inner) -> Value:
        if level.more is not None:  # every use of a widest tile is monotone in what the tile needs
            return self.ops.most(self.first(tile, level, inner), self.second(tile, level, inner))
        e = self.widest_of(tile.e, level)
        return inner(Tile(e, self.widest_of(tile.ref, level) if self.uneven else e, tile.more))

    def nominal(self, tile: Tile, level: ChainLevel, inner: Inner) -> Value:
        e = self.least(tile.e, self.ops.most(self.size(level.tile), self.size(level.begin)))
        return inner(Tile(e, e, tile.more))

    def only(self, tile: Tile, level: ChainLevel, inner: Inner) -> Value:
        return self.at_most(0, tile, level) * inner(tile)

    def two(self, tile: Tile, level: ChainLevel, inner: Inner) -> Value:
        return self.at_most(1, tile, level) * inner(tile)

    def three(self, tile: Tile, level: ChainLevel, inner: Inner) -> Value:
        return self.at_most(2, tile, level) * inner(tile)

    def at_most(self, more: int, tile: Tile, level: ChainLevel) -> Value:
        """1 if the loop has at most 1 + `more` trips, else 0."""
        t, begin = self.size(level.tile), self.size(level.begin)
        return self.ops.le(tile.ref, begin + more * t)

    def before_last(self, tile: Tile, level: ChainLevel) -> Value:
        """The offset at which the last tile begins; 0 for an empty one, which has no last tile."""
        t = self.size(level.tile)
        if level.start is None:
            return self.ops.above_zero(self.ops.ceildiv(tile.ref, t) - 1) * t
        f = self.size(level.start)
        behind = self.ops.beyond(tile.ref, f)
        return self.ops.positive(behind) * (f + (self.ops.ceildiv(behind, t) - 1) * t)

    def last(self, tile: Tile, level: ChainLevel, inner: Inner) -> Value:
        before = self.before_last(tile, level)
        more = tile.more
        if level.more is not None:
            more = level.more + (tile.more - level.more) * self.at_most(0, tile, level)
        if not self.uneven:
            return inner(Tile(tile.e - before, tile.e - before, more))
        return inner(Tile(self.ops.above_zero(tile.e - before), tile.ref - before, more))

    def before_that(self, tile: Tile, level: ChainLevel, inner: Inner) -> Value:
        first, t = self.head(tile, level), self.size(level.tile)
        later = tile.more if level.more is None else level.more
        if level.start is None and level.more is None:
            if not self.uneven:
                return inner(Tile(t, t, later))
            begin = self.before_last(tile, level) - t  # in an instance that ends earlier it may be truncated
            return inner(Tile(self.least(self.ops.beyond(tile.e, begin), t), t, later))
        two = self.at_most(1, tile, level)
        return inner(
            Tile(t + (first.e - t) * two, t + (first.ref - t) * two, later + (tile.more - later) * two)
        )

    def window(self, tile: Tile, level: ChainLevel, inner: Inner) -> Value:
        scale = self.size(level.tile)

        def grown(e: Value) -> Value:
            return scale * e + tile.more * self.ops.positive(e)

        e = grown(tile.e)
        return inner(Tile(e, grown(tile.ref) if self.uneven else e, 0))

    def pair(self, tile: Tile, level: ChainLevel, rest: tuple[ChainLevel, ...], leaf: Leaf) -> Value:
        if leaf.kind in ("both", "kept") and not leaf.rest:
            return self.trips(tile.e, level) - self.ops.positive(tile.e)
        begun: Value = 0
        if level.more is not None or level.start is not None:
            t = self.size(level.begin)
            later, second = self.after_first(tile, level), self.after(tile, level, 0)
            begun = self.ops.positive(later.e) * self.neighbor_leaf(leaf, Tile(t, t, tile.more), second)
            tile = later
        n, whole, left = self.parts(tile, level)
        begun = begun + self.ops.above_zero(n - 1) * self.neighbor_leaf(leaf, whole, whole)
        return begun + self.ops.positive(n) * self.neighbor_leaf(leaf, whole, left)

    def neighbor_leaf(self, leaf: Leaf, b: Tile, a: Tile) -> Value:
        """The leaf of a pair of neighbouring tiles."""
        if leaf.kind in ("bridge", "seam"):
            before, after = self.end(leaf, "last", b), self.end(leaf, "first", a)
            common: Value = 0
            if any(lv.role == "window" for lv in leaf.rest):
                common = self.least(before, a.more) * self.ops.positive(after)
            if leaf.kind == "seam":
                return common
            joined = self.ops.above_zero(before + after - common - leaf.shift)
            return joined - self.over(before, leaf) - self.over(after, leaf)
        active_before = self.active(leaf.rest, "last", b)
        active_after = self.active(leaf.rest, "first", a)
        if leaf.kind == "both":
            return self.least(active_before, active_after)
        return self.ops.positive(active_after) * self.ops.le(active_after, active_before)

    def end(self, leaf: Leaf, role: Role, tile: Tile) -> Value:
        """The extent of the last or first tile inside a tile."""
        levels = tuple(_as(lv, role) for lv in leaf.rest if not lv.spatial)
        return self.down(levels, SIZE, tile)

    def active(self, rest: tuple[ChainLevel, ...], role: Role, tile: Tile) -> Value:
        """The number of instances of the spatial levels that are active at the first or last counters."""
        levels = tuple(_as(lv, "each" if lv.spatial else role) for lv in rest)
        return self.down(levels, ONE, tile)

    def over(self, e: Value, leaf: Leaf) -> Value:
        return self.ops.above_zero(e - leaf.shift)

    def leaf(self, leaf: Leaf, tile: Tile) -> Value:
        if leaf.kind == "one":
            return self.ops.positive(tile.e)
        if leaf.kind == "size":
            return tile.e
        if leaf.kind == "over":
            return self.over(tile.e, leaf)
        if leaf.kind == "reaches":
            return self.ops.positive(self.ops.beyond(tile.e, self.size(leaf.rest[0].tile) * leaf.shift))
        first = self.active(leaf.rest, "first", tile)
        return self.ops.le(first, self.active(leaf.rest, "last", tile)) * self.ops.positive(tile.e)


def _as(level: ChainLevel, role: Role) -> ChainLevel:
    return level if level.role == "window" else replace(level, role=role)


TAKEN: dict[Role, Callable[..., Value]] = {
    "each": LevelWalk.each,
    "hops": LevelWalk.hops,
    "first": LevelWalk.first,
    "second": LevelWalk.second,
    "third": LevelWalk.third,
    "widest": LevelWalk.widest,
    "nominal": LevelWalk.nominal,
    "only": LevelWalk.only,
    "two": LevelWalk.two,
    "three": LevelWalk.three,
    "before last": LevelWalk.before_that,
    "last": LevelWalk.last,
    "window": LevelWalk.window,
}


def _gained(level: ChainLevel) -> bool:
    return (level.role, level.more) == ("each", 0)


def atom(extent: Size, levels: tuple[ChainLevel, ...], leaf: Leaf) -> Atom:
    """The atom in its shortest form: levels that cannot change the sum are left out."""
    spatial = any(lv.spatial for lv in levels)
    while levels:
        tail = levels[-1]
        if (
            (leaf.kind == "size" and tail.role == "each")
            or (leaf.kind == "one" and tail.role in ("first", "widest", "nominal"))
            or (leaf.kind == "one" and tail.role == "last" and not spatial)
        ):
            pass
        elif tail.role == "window" and (leaf.kind == "one" or (tail.tile, tail.more) == (1, 0)):
            pass  # no tile of a window is empty
        elif tail.tile == tail.begin == 1 and leaf.kind == "one" and tail.role == "each":
            leaf = SIZE
        elif tail.begin == 1 and leaf.kind == "size" and tail.role == "first":
            leaf = ONE
        elif tail.role == "window" and leaf.kind == "size" and levels[-2:-1] and _gained(levels[-2]):
            levels = (*levels[:-2], tail)  # additions to tiles sum to that of the whole window
            continue
        else:
            break
        levels = levels[:-1]
    if not any(lv.role == "window" for lv in (*levels, *leaf.rest)):
        levels = tuple(replace(lv, more=None) for lv in levels)
    return Atom(extent, levels, leaf)


# Integer arithmetic for atoms: on Python integers and on int64 arrays alike.


class Integers:
    """Python integers: never rounded, no overflow."""

    def floordiv(self, a: int, b: int) -> int:
        return a // b

    def ceildiv(self, a: int, b: int) -> int:
        return -(-a // b)

    def least(self, a: int, b: int) -> int:
        return a if a < b else b

    def most(self, a: int, b: int) -> int:
        return a if a > b else b

    def above_zero(self, a: int) -> int:
        return a if a > 0 else 0

    def beyond(self, a: int, b: int) -> int:
        return a - b if a > b else 0

    def le(self, a: int, b: int) -> int:
        return int(a <= b)

    def positive(self, a: int) -> int:
        return int(a > 0)

    def counted(self, table: NumberTable, sizes: Sequence[int]) -> int:
        return table.at(*map(int, sizes))


class ArrayOps:
    """int64 arrays (and integers among them), elementwise."""

    def __init__(self) -> None:
        import numpy

        self._np = numpy

    def floordiv(self, a: Value, b: Value) -> Value:
        return a // b

    def ceildiv(self, a: Value, b: Value) -> Value:
        return -(-a // b)

    def least(self, a: Value, b: Value) -> Value:
        return self._np.minimum(a, b)

    def most(self, a: Value, b: Value) -> Value:
        return self._np.maximum(a, b)

    def above_zero(self, a: Value) -> Value:
        return self._np.maximum(a, 0)

    def beyond(self, a: Value, b: Value) -> Value:
        return self._np.maximum(a - b, 0)

    def le(self, a: Value, b: Value) -> Value:
        return self._np.less_equal(a, b).astype(self._np.int64)

    def positive(self, a: Value) -> Value:
        return self._np.greater(a, 0).astype(self._np.int64)

    def counted(self, table: NumberTable, sizes: Sequence[Value]) -> Value:
        return table.of(*sizes)


INTEGERS = Integers()
