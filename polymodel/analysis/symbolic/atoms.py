"""Functions of the tiles of one rank variable: the factors that every closed form is made of.

An extent X under tiles t1, t2, ... splits into tiles; an atom sums a leaf function over them
(DESIGN 4, `symbolic`). The same recursion runs on integers, on numpy arrays and on SymPy: it asks
`Ops` for everything that is more than `+ - *`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

Size = int | str
Value = Any  # an int, an int64 array or a SymPy expression, as the Ops at hand has it

# How a loop's tiles are taken: all of them, the first or the second only; `only`: all is one tile;
# `two`: there are at most two; `last`: the tile at the last counter that any instance reaches;
# `pair`: neighbours k, k + 1.
Role = Literal["each", "first", "second", "only", "two", "last", "pair"]


class Ops(Protocol):
    """Integer arithmetic of one kind of value; `le` and `positive` are 1 where true, else 0."""

    def floordiv(self, a: Value, b: Value) -> Value: ...
    def ceildiv(self, a: Value, b: Value) -> Value: ...
    def least(self, a: Value, b: Value) -> Value: ...
    def above_zero(self, a: Value) -> Value: ...
    def le(self, a: Value, b: Value) -> Value: ...
    def positive(self, a: Value) -> Value: ...


@dataclass(frozen=True)
class Level:
    """One loop of a chain: its tile (a number or a symbol), and how its tiles are taken."""

    tile: Size
    role: Role
    spatial: bool = False


@dataclass(frozen=True)
class Leaf:
    """What is summed over the tiles, a function of a tile's extent e (0 for an empty tile).

    `one`: 1. `size`: e. `over`: max(0, e - shift). `steady`: 1 if as many instances are active at the
    last counters of `rest` as at the first ones. Of a pair (b, a): `both`: instances active in b's last
    and a's first tile; `kept`: 1 if those active in a's first tile were active in b's last; `bridge`:
    (b + a - shift)^+ - (b - shift)^+ - (a - shift)^+ of b's last and a's first tile.
    """

    kind: Literal["one", "size", "over", "steady", "both", "kept", "bridge"] = "one"
    shift: int = 0
    rest: tuple[Level, ...] = ()


ONE, SIZE = Leaf(), Leaf("size")


@dataclass(frozen=True)
class Atom:
    """The sum of `leaf` over the tiles that `levels` (outermost first) cut from `extent`."""

    extent: Size
    levels: tuple[Level, ...]
    leaf: Leaf = ONE

    @cached_property
    def symbols(self) -> frozenset[str]:
        """Names of the symbols it depends on."""
        sizes = (self.extent, *(lv.tile for lv in self.levels), *(lv.tile for lv in self.leaf.rest))
        return frozenset(s for s in sizes if isinstance(s, str))

    @cached_property
    def _hash(self) -> int:
        return hash((self.extent, self.levels, self.leaf))

    def __hash__(self) -> int:
        return self._hash

    def value(self, ops: Ops, values: Mapping[str, Value]) -> Value:
        """The number (or array, or expression) for given symbols."""
        walk = _Walk(ops, values, any(lv.spatial for lv in (*self.levels, *self.leaf.rest)))
        e = walk.size(self.extent)
        return walk.down(self.levels, self.leaf, e, e)


@dataclass(frozen=True)
class _Walk:
    """The recursion. `ref` is the extent of the first instance at the same counters.

    Visits are those of all instances together, so the last counter is the one that the largest
    (the first) instance reaches; an instance with fewer trips is idle then.
    """

    ops: Ops
    values: Mapping[str, Value]
    uneven: bool

    def size(self, size: Size) -> Value:
        return self.values[size] if isinstance(size, str) else size

    def down(self, levels: tuple[Level, ...], leaf: Leaf, e: Value, ref: Value) -> Value:
        if not levels:
            return self.leaf(leaf, e, ref)
        level, rest = levels[0], levels[1:]
        t = self.size(level.tile)

        def inner(e: Value, ref: Value) -> Value:
            return self.down(rest, leaf, e, ref)

        return _TAKEN[level.role](self, e, ref, t, level.spatial, rest, leaf, inner)

    def least(self, a: Value, b: Value) -> Value:
        return self.ops.least(a, b)

    def rest_ref(self, e: Value, ref: Value, n: Value, t: Value, spatial: bool) -> Value:
        """The first instance's extent where this one has its last, partial tile."""
        if not self.uneven:
            return e - n * t
        return self.least(ref, t) if spatial else self.least(t, ref - n * t)

    def each(self, e: Value, ref: Value, t: Value, spatial: bool, rest: Any, leaf: Leaf, inner: Any) -> Value:
        if not rest and leaf.kind == "one":
            return self.ops.ceildiv(e, t)
        n = self.ops.floordiv(e, t)
        return n * inner(t, t) + inner(e - n * t, self.rest_ref(e, ref, n, t, spatial))

    def first(self, e: Value, ref: Value, t: Value, *others: Any) -> Value:
        inner = others[-1]
        small = self.least(e, t)
        return inner(small, self.least(ref, t) if self.uneven else small)

    def second(self, e: Value, ref: Value, t: Value, *others: Any) -> Value:
        inner = others[-1]
        e = self.least(self.ops.above_zero(e - t), t)
        return inner(e, self.least(self.ops.above_zero(ref - t), t) if self.uneven else e)

    def only(self, e: Value, ref: Value, t: Value, *others: Any) -> Value:
        inner = others[-1]
        return self.ops.le(ref, t) * inner(e, ref)

    def two(self, e: Value, ref: Value, t: Value, *others: Any) -> Value:
        inner = others[-1]
        return self.ops.le(ref, 2 * t) * inner(e, ref)

    def last(self, e: Value, ref: Value, t: Value, *others: Any) -> Value:
        inner = others[-1]
        before = (self.ops.ceildiv(ref, t) - 1) * t
        if not self.uneven:
            return inner(e - before, e - before)
        return inner(self.least(self.ops.above_zero(e - before), t), ref - before)

    def pair(self, e: Value, ref: Value, t: Value, spatial: bool, rest: Any, leaf: Leaf, inner: Any) -> Value:
        n = self.ops.floordiv(e, t)
        if leaf.kind in ("both", "kept") and not leaf.rest:
            return self.ops.ceildiv(e, t) - self.ops.positive(e)
        tail = self.rest_ref(e, ref, n, t, spatial)
        whole = self.ops.above_zero(n - 1) * self.meet(leaf, (t, t), (t, t))
        return whole + self.ops.positive(n) * self.meet(leaf, (t, t), (e - n * t, tail))

    def meet(self, leaf: Leaf, b: tuple[Value, Value], a: tuple[Value, Value]) -> Value:
        """The leaf of a pair of neighbouring tiles, each given as (extent, reference)."""
        temporal = tuple(lv for lv in leaf.rest if not lv.spatial)
        if leaf.kind == "bridge":
            before = self.down(tuple(Level(lv.tile, "last") for lv in temporal), SIZE, *b)
            after = self.down(tuple(Level(lv.tile, "first") for lv in temporal), SIZE, *a)
            joined = self.ops.above_zero(before + after - leaf.shift)
            return joined - self.over(before, leaf) - self.over(after, leaf)
        before = self.active(leaf.rest, "last", *b)
        after = self.active(leaf.rest, "first", *a)
        if leaf.kind == "both":
            return self.least(before, after)
        return self.ops.positive(after) * self.ops.le(after, before)

    def active(self, rest: tuple[Level, ...], role: Role, e: Value, ref: Value) -> Value:
        """How many instances of the spatial levels are active at the first or last counters."""
        levels = tuple(Level(lv.tile, "each" if lv.spatial else role, lv.spatial) for lv in rest)
        return self.down(levels, ONE, e, ref)

    def over(self, e: Value, leaf: Leaf) -> Value:
        return self.ops.above_zero(e - leaf.shift)

    def leaf(self, leaf: Leaf, e: Value, ref: Value) -> Value:
        if leaf.kind == "one":
            return self.ops.positive(e)
        if leaf.kind == "size":
            return e
        if leaf.kind == "over":
            return self.over(e, leaf)
        first = self.active(leaf.rest, "first", e, ref)
        return self.ops.le(first, self.active(leaf.rest, "last", e, ref)) * self.ops.positive(e)


_TAKEN: dict[Role, Callable[..., Value]] = {
    "each": _Walk.each,
    "first": _Walk.first,
    "second": _Walk.second,
    "only": _Walk.only,
    "two": _Walk.two,
    "last": _Walk.last,
    "pair": _Walk.pair,
}


def atom(extent: Size, levels: tuple[Level, ...], leaf: Leaf) -> Atom:
    """The atom in its shortest form: levels that cannot change the sum are left out."""
    spatial = any(lv.spatial for lv in levels)
    while levels:
        tail = levels[-1]
        if (
            (leaf.kind == "size" and tail.role == "each")
            or (leaf.kind == "one" and tail.role == "first")
            or (leaf.kind == "one" and tail.role == "last" and not spatial)
        ):
            pass
        elif tail.tile == 1 and leaf.kind == "one" and tail.role == "each":
            leaf = SIZE
        elif tail.tile == 1 and leaf.kind == "size" and tail.role == "first":
            leaf = ONE
        else:
            break
        levels = levels[:-1]
    return Atom(extent, levels, leaf)
