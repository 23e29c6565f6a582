"""Factors of closed forms for two rank variables: each stands where an atom stands for a single variable.

Two variables depend on each other where one rank is indexed by both (their windows overlap), and where a
bound ties them together (sums and peaks over the tiles of a region).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any, Self

from polymodel.analysis.symbolic.atoms import TAKEN, ChainLevel, LevelWalk, Ops, Role, Size, Tile, Value
from polymodel.analysis.symbolic.regions import (
    Gap,
    Kind,
    Loops,
    Region,
    Tiles,
    What,
    loop_demand,
    pairs,
    resident,
    starts,
    tile_of,
    tile_sizes,
    total,
)
from polymodel.errors import NotSeparable
from polymodel.frozen import dataclass

# What the windows of two rank variables have in common before and after a step of a loop.
#
# Of a rank `a p + b r` (no common factor), let a tile hold n values of p and m of r. Values with
# p = i + b u and r = j + a v, for fixed i < b and j < a, give the elements a i + b j + a b (u + v): different
# classes (i, j) different elements, and in one class an interval of u + v. So tiles share, class by class,
# what two intervals share. Where both variables move at once (loops over either wrap from their last to
# their first tile), that is not a product of a factor for p and one for r.

ONTO: tuple[Role, ...] = ("to second", "to third", "to fourth")


@dataclass(frozen=True)
class Side:
    """One rank variable: its extent and its loops, of which one may step (`pair`) and those inside it `wrap`.

    Loops outside the step, and spatial ones, are as in an atom.
    """

    extent: Size
    levels: tuple[ChainLevel, ...]

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

        def steps(side: Side, inner: Callable[[TileChange], Value]) -> Value:
            uneven = any(lv.spatial for lv in side.levels)
            walk = _Steps(LevelWalk(ops, values, uneven), inner)
            whole = walk.walk.size(side.extent)
            more = next((lv.more for lv in side.levels if lv.role == "window"), 0)
            return walk.still(side.levels, Tile(whole, whole, more))

        result = steps(self.p, lambda p: steps(self.r, lambda r: shared(ops, self.a, p, self.b, r)))
        return ops.positive(result) if self.any else result


@dataclass(frozen=True)
class TileChange:
    """A variable's tile before and after a step; `gap`: how much further on it starts after it."""

    gap: Value
    before: Tile
    after: Tile


@dataclass(frozen=True)
class _Steps:
    """The recursion over the levels of one variable; `inner` is summed over its changes."""

    walk: LevelWalk
    inner: Callable[[TileChange], Value]

    def still(self, levels: tuple[ChainLevel, ...], tile: Tile) -> Value:
        """Both tiles of a step lie in one tile so far."""
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
        """One step, from the tile before that of the role; the caller sees to it that there are both."""
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
        """The tiles of a step inside two tiles."""
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
            # Windows end where their tiles' do, and begin the earlier the more they add.
            gap = self.walk.size(level.tile) * change.gap + change.before.more - change.after.more
            return self.apart(rest, TileChange(gap, *now))
        if level.role == "first":
            tiles = (self.walk.first(t, level, lambda tile: tile) for t in (change.before, change.after))
            return self.apart(rest, TileChange(change.gap, *tiles))
        return self.adjacent_instances(level, rest, change)

    def adjacent_instances(
        self, level: ChainLevel, rest: tuple[ChainLevel, ...], change: TileChange
    ) -> Value:
        """Instances side by side: counter by counter, as long as there is a tile on either side."""
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
    """How many elements of the rank `a p + b r` are there before and after."""
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


# What tiles of two tied rank variables hold at the stamps that may be the peak.

Ints = Any
TRIED = 8  # tiles of one variable at which whole tiles are looked for


@dataclass(frozen=True)
class TileQuery:
    """What a tile holds: tiles of the outermost `u` and `v` loops of either variable; elements of `what`.

    `rank`: the coefficients of both variables in a rank of both, one of which is 1. With a `gap`, what is
    there of the tile while its users do not run: `order` has its loops as they stand, one letter each, and
    `own` which loops of either variable these are.
    """

    u: int
    v: int
    what: What
    rank: tuple[int, int] = (0, 0)
    gap: Gap | None = None
    order: str = ""
    own: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())


@lru_cache(maxsize=65536)
def front(
    region: Region, u: Tiles, v: Tiles, asked: tuple[TileQuery, ...], stamps: tuple[int, int] | None = None
) -> tuple[tuple[int, ...], ...]:
    """The sizes of several tiles at one stamp that no other stamp exceeds, one number for each of `asked`.

    `stamps`: how many of the loops of either variable stamps are told by; all unless it is given.
    """
    inner = (u, v) if stamps is None else (u[: stamps[0]], v[: stamps[1]])
    known: HeldSizes = {}  # of very many stamps these are large: they go with this call
    full = _full(region, (u, v), inner, asked, known)
    if full is not None:
        return (full,)
    import numpy as np

    extents = region.extents
    ends = starts(extents[0], inner[0]), starts(extents[1], inner[1])
    one, two = pairs(region, *inner)
    table = np.empty((len(one), len(asked)), np.int64)
    for k, a in enumerate(asked):
        width, codes, held = _resident_pairs(region, u, v, a, known)
        p, q = (starts(n, tiles) for n, tiles in zip(extents, _outside(u, v, a), strict=True))
        mine = tile_of(p, ends[0])[one] * width + tile_of(q, ends[1])[two]
        table[:, k] = held[np.searchsorted(codes, mine)]
    return _exceeded_by_none(table)


def _exceeded_by_none(table: Ints) -> tuple[tuple[int, ...], ...]:
    """The rows that no other row exceeds, in descending order; of very many a few."""
    totals = table.sum(axis=1)
    kept: list[tuple[int, ...]] = []
    while len(table) and len(kept) <= PEAKS:
        row = table[totals.argmax()]  # what exceeds a row has more in total
        kept.append(tuple(int(x) for x in row))
        left = (table > row).any(axis=1)
        table, totals = table[left], totals[left]
    return tuple(sorted(kept, reverse=True))


def _outside(u: Tiles, v: Tiles, asked: TileQuery) -> tuple[Tiles, Tiles]:
    """The loops whose tiles tell what is held."""
    if asked.gap is None:
        return u[: asked.u], v[: asked.v]
    above = asked.order[: asked.gap.shared]
    return u[: above.count("u")], v[: above.count("v")]


HeldSizes = dict[TileQuery, tuple[int, Ints, Ints]]


def _resident_pairs(
    region: Region, u: Tiles, v: Tiles, asked: TileQuery, known: HeldSizes
) -> tuple[int, Ints, Ints]:
    """What is held by pairs of tiles: how many tiles of v there are, numbers of the pairs, and sizes."""
    if asked not in known:
        known[asked] = _held_by_pairs(region, u, v, asked)
    return known[asked]


def _held_by_pairs(region: Region, u: Tiles, v: Tiles, asked: TileQuery) -> tuple[int, Ints, Ints]:
    one, two = _outside(u, v, asked)
    width, gap = len(starts(region.extents[1], two)), asked.gap
    if gap is None:
        p, q, result = tile_sizes(region, one, two, asked.what, asked.rank)
        return width, p * width + q, result
    mine = tuple(u[k] for k in asked.own[0]), tuple(v[k] for k in asked.own[1])
    stamps, result = resident(Loops(region, *mine, asked.order), gap, asked.what, asked.rank)
    codes = stamps.one * width + stamps.two
    order = codes.argsort(kind="stable")
    return width, codes[order], result[order]


@dataclass(frozen=True)
class TileRanges:
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
def _ranges(region: Region, tiles: Tiles) -> TileRanges:
    """The tiles of u in a region of which every row has points."""
    import numpy as np

    begin = starts(region.extents[0], tiles)
    _, low, high = region.rows
    size = np.append(begin[1:], region.extents[0]) - begin
    return TileRanges(begin, size, np.maximum.reduceat(low, begin), np.minimum.reduceat(high, begin))


def _full(
    region: Region,
    tiles: tuple[Tiles, Tiles],
    innermost: tuple[Tiles, Tiles],
    asked: tuple[TileQuery, ...],
    known: HeldSizes,
) -> tuple[int, ...] | None:
    """The size of each tile in the whole box, if some stamp has all of them; a few stamps are tried."""
    import numpy as np

    turned = region.turned
    if len(region.rows[0]) < region.extents[0] or len(turned.rows[0]) < region.extents[1]:
        return None
    u, v = tiles
    inner = starts(region.extents[0], innermost[0]), starts(region.extents[1], innermost[1])
    tried = inner[0][:: max(1, len(inner[0]) // TRIED)]
    one, two = _ranges(region, innermost[0]), _ranges(turned, innermost[1])
    good = _met(one, two, tile_of(one.begin, tried), np.arange(len(inner[1])))
    result = []
    for a in asked:
        one, two = _ranges(region, u[: a.u]), _ranges(turned, v[: a.v])
        i, j = tile_of(one.begin, tried), tile_of(two.begin, inner[1])
        whole = _box(a, one.widest, two.widest)
        if a.gap is not None:
            good &= _there(region, tiles, a, (tried, inner[1]), known) == whole
        else:
            good &= (one.size[i] == one.widest)[:, None] & (two.size[j] == two.widest)[None, :]
            good &= _touched(a.what, one, two, i, j)
        result.append(whole)
    return tuple(result) if good.any() else None


def _met(one: TileRanges, two: TileRanges, i: Ints, j: Ints) -> Ints:
    """[i, j]: whether every row of a tile of u has points in a tile of v."""
    begin, end = two.begin[j], two.begin[j] + two.size[j] - 1
    return (one.low[i][:, None] <= end) & (one.high[i][:, None] >= begin)


def _touched(what: What, one: TileRanges, two: TileRanges, i: Ints, j: Ints) -> Ints:
    """[i, j]: whether all elements of a pair of tiles are in the region."""
    begin, end = two.begin[j], two.begin[j] + two.size[j] - 1
    if what == "u":
        return _met(one, two, i, j)
    if what == "v":
        first, last = one.begin[i][:, None], (one.begin[i] + one.size[i] - 1)[:, None]
        return (two.low[j] <= last) & (two.high[j] >= first)
    return (one.low[i][:, None] <= begin) & (one.high[i][:, None] >= end)


def _there(
    region: Region,
    tiles: tuple[Tiles, Tiles],
    asked: TileQuery,
    at: tuple[Ints, Ints],
    known: HeldSizes,
) -> Ints:
    """[i, j]: what is there of a buffet with a gap where tiles begin, 0 where there is no stamp."""
    import numpy as np

    width, codes, held = _resident_pairs(region, *tiles, asked, known)
    i, j = (
        tile_of(starts(n, outside), begin)
        for n, outside, begin in zip(region.extents, _outside(*tiles, asked), at, strict=True)
    )
    mine = i[:, None] * width + j[None, :]
    place = np.minimum(codes.searchsorted(mine), len(codes) - 1)
    return np.where(codes[place] == mine, held[place], 0)


def _box(asked: TileQuery, n: int, m: int) -> int:
    """How many elements a whole tile of n by m values has."""
    if asked.what == "rank":
        a, b = asked.rank
        return n * m - max(0, n - b) * max(0, m - a)
    return {"none": 1, "u": n, "v": m, "both": n * m}[asked.what]


# Factors of closed forms for two rank variables that a bound ties together: sums and peaks over their tiles.
#
# They stand where an atom stands for a single variable. Their values come from the region itself (`regions`),
# once for each different choice of tile sizes.

_NAMES = {"none": "tiles", "u": "elements", "v": "elements", "both": "points", "rank": "elements"}
PEAKS = 6  # tiles of which now one, now another is larger: so many stamps may be the peak


@dataclass(frozen=True)
class Tabled:
    """A number of a region under tiles of its variables, worked out for each choice of tile sizes."""

    region: Region

    @property
    def chains(self) -> tuple[tuple[ChainLevel, ...], ...]:
        """The loops over each variable, outermost first."""
        raise NotImplementedError

    @cached_property
    def sizes(self) -> tuple[Size, ...]:
        """The sizes of all tiles: first and others of each loop, variable by variable."""
        return tuple(s for chain in self.chains for lv in chain for s in (lv.begin, lv.tile))

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
        for chain in self.chains:
            tiles.append(tuple(islice(pairs, len(chain))))
        return self.number(*tiles)

    def number(self, *tiles: Tiles) -> int:
        """The same for the tiles of each variable."""
        raise NotImplementedError

    def without_sizes(self) -> Tabled:
        """The same with all tiles alike: what is left tells numbers of equal sizes apart."""
        raise NotImplementedError

    def shown(self, sizes: Sequence[Any]) -> list[Any]:
        """Those of the sizes that a reader is shown: the first tiles are left out."""
        return list(sizes[1::2])

    @property
    def named(self) -> str:
        """What is counted, in a word."""
        raise NotImplementedError

    def of(self, *sizes: Value) -> Value:
        """The same for numbers or arrays of them, once for each different row of sizes."""
        import numpy as np

        arrays = np.broadcast_arrays(*(np.asarray(s, np.int64) for s in sizes)) if sizes else []
        if not sizes or not arrays[0].ndim:
            return self.at(*(int(s) for s in sizes))
        rows, which = np.unique(
            np.stack(arrays, axis=-1).reshape(-1, len(sizes)), axis=0, return_inverse=True
        )
        result = [self.at(*row) for row in rows.tolist()]
        return np.array(result, np.int64)[which.reshape(-1)].reshape(arrays[0].shape)


@dataclass(frozen=True)
class LoopTable(Tabled):
    """Numbers of a region whose variables have `loops`, outermost first, by the sizes of their tiles."""

    loops: tuple[tuple[ChainLevel, ...], ...]

    __hash__ = Tabled.__hash__

    @property
    def chains(self) -> tuple[tuple[ChainLevel, ...], ...]:
        return self.loops

    def without_sizes(self) -> Self:
        return replace(self, loops=tuple((ChainLevel(1, "each"),) * len(chain) for chain in self.loops))


@dataclass(frozen=True)
class TiedRegion(Tabled):
    """A number of two variables `u` and `v`, by their loops."""

    u: tuple[ChainLevel, ...]
    v: tuple[ChainLevel, ...]

    __hash__ = Tabled.__hash__

    @property
    def chains(self) -> tuple[tuple[ChainLevel, ...], ...]:
        return self.u, self.v

    def without_sizes(self) -> Tabled:
        alike = ((ChainLevel(1, "each"),) * len(chain) for chain in self.chains)
        u, v = alike
        return replace(self, u=u, v=v)


@dataclass(frozen=True)
class CutAtom(TiedRegion):
    """The different (tile of u, tile of v, element of `what`).

    With `asked` the size of the tile number `item` of those at the stamp number `place` that may be the peak;
    the outermost `stamps` loops of either variable tell stamps, others are buffets' own.
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
        rows = front(self.region, u, v, self.asked, self.stamps)
        if len(rows) > PEAKS:
            raise NotSeparable(
                f"at tiles {', '.join(str(t) for _, t in (*u, *v))} more than {PEAKS} stamps may be the peak",
                "use engine exact there",
            )
        return rows[min(self.place, len(rows) - 1)][self.item]


@dataclass(frozen=True)
class StepAtom(TiedRegion):
    """What `kind` asks of a loop (`visits`): what stays over its steps, or whether tiles depend on it.

    `order`: the loops over both variables as they stand, `axis` of them outside.
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
        u, v = tiles
        loops = Loops(self.region, u, v, self.order)
        return loop_demand(loops, self.axis, self.kind, self.what, self.rank)
