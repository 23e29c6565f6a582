"""Dynamic tiles: ranges of coordinates grow at run time until the buffers are full.

After dynamic reflexive tiling (Odemuyiwa et al., ASPLOS 2023): a tile of the stationary operand grows first;
its range of the shared rank k is imposed on the other operand, whose tile then grows along its own rank.
docs/tiling/matmul.md says what is modelled and what is not.

Each tile begins where the previous one ends and stops where the data fill a buffer, so that tiles are found
in sequence; the work within each is one pass over the entries that a buffer can hold.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from polymodel.errors import Diagnostic, SpecError
from polymodel.governor import look
from polymodel.tiling.matmul.product import EntryCoordinates, PatternProduct, changes
from polymodel.tiling.matmul.walk import OrderTraffic
from polymodel.tiling.plane.pattern import Flags, Index, Ints, sorted_by

# The growth of a range until its entries fill a buffer: the parts of dynamic tiles.

LEAST = 7  # words of a tile with one entry
Grown = dict[int, tuple[int, int]]


@dataclass(frozen=True, eq=False)
class ListedEntries:
    """Entries along one rank: coordinates `x` in ascending order, the row of the stored tile that contains
    each, and the position in this list at which that row occurred before (-1: never). A row is new to a tile
    that begins after that position."""

    x: Index
    rows: Index
    last: Ints

    def at(self, coordinate: int) -> int:
        """Return the position of the first entry at or after a coordinate."""
        # A number of another type would cause a copy of the whole list.
        return int(self.x.searchsorted(self.x.dtype.type(coordinate)))

    def reach(self, at: int, capacity: int, extent: int) -> int:
        """Return the largest end for which the entries from position `at` fit; `extent` if all do."""
        half = max(0, capacity - 3) // 2  # every entry counts one, and every new row one more
        load = (self.last[at : at + half + 1] < at).cumsum()
        load += self.ramp[: load.size]
        over = int(load.searchsorted(half, side="right"))
        return extent if over == load.size else int(self.x[at + over])

    def fits(self, at: int, to: int, capacity: int) -> bool:
        """Return whether the entries at these positions fit."""
        half, held = max(0, capacity - 3) // 2, to - at
        if 2 * held <= half or held > half:
            return held <= half
        return held + int(np.count_nonzero(self.last[at:to] < at)) <= half

    def words(self, at: int, to: int) -> int:
        """Return 2 nnz + 2 rows + 3 of the entries at these positions, 0 if there are none."""
        if to <= at:
            return 0
        return 2 * (to - at) + 2 * int(np.count_nonzero(self.last[at:to] < at)) + 3

    @cached_property
    def ramp(self) -> Ints:
        """Return 1, 2, 3, ..."""
        return np.arange(1, self.x.size + 1)

    @cached_property
    def by_row(self) -> Index:
        """Return the positions ordered by row, ascending within each row."""
        return np.argsort(self.rows, kind="stable")

    def taken(self, which: Flags) -> ListedEntries:
        """Some of the entries."""
        place = np.cumsum(which) - 1
        order = self.by_row[which[self.by_row]]
        return _linked(self.x[which], self.rows[which], place[order])


@dataclass(frozen=True, eq=False)
class Stacked(ListedEntries):
    """Entries whose rows are the coordinates themselves, so that prefix sums suffice.

    Requested positions are always the first of a coordinate.
    """

    @cached_property
    def sums(self) -> Ints:
        """The number of entries and of rows before each position, and in total."""
        result = np.zeros(self.x.size + 1, dtype=np.int64)
        np.cumsum(1 + changes(self.x), out=result[1:])
        return result

    def reach(self, at: int, capacity: int, extent: int) -> int:
        most = self.sums[at] + max(0, capacity - 3) // 2
        over = int(self.sums.searchsorted(most, side="right")) - 1
        return extent if over == self.x.size else int(self.x[over])

    def fits(self, at: int, to: int, capacity: int) -> bool:
        return int(self.sums[to] - self.sums[at]) <= max(0, capacity - 3) // 2

    def words(self, at: int, to: int) -> int:
        return 2 * int(self.sums[to] - self.sums[at]) + 3 if to > at else 0

    def taken(self, which: Flags) -> ListedEntries:
        return _stacked(self.x[which])


def listed(x: Index, rows: Index) -> tuple[ListedEntries, Index]:
    """Return the entries ordered by `x`, and the permutation; `rows` may be `x` itself."""
    order = np.argsort(x, kind="stable")
    return _stacked(x[order]) if rows is x else _with_last(x[order], rows[order]), order


def _stacked(x: Index) -> ListedEntries:
    return Stacked(x, x, np.zeros(0, dtype=np.int64))


def _with_last(x: Index, rows: Index) -> ListedEntries:
    return _linked(x, rows, np.argsort(rows, kind="stable"))


def _linked(x: Index, rows: Index, order: Index) -> ListedEntries:
    """`order`: the positions ordered by row, ascending within each row."""
    last = np.full(rows.size, -1, dtype=np.int64)
    same = rows[order[1:]] == rows[order[:-1]]
    last[order[1:][same]] = order[:-1][same]
    return ListedEntries(x, rows, last)


@dataclass(frozen=True, eq=False)
class Sides:
    """The product: its stationary operand `s` (own rank, k), the other operand `v` (k, own rank), and the
    result `z`.

    `flip`: B is stationary, so that the rows of stored tiles are along the second rank of `s`, `v` and `z`.
    `touched`: a buffer with one flag per k coordinate.
    """

    s: EntryCoordinates
    v: EntryCoordinates
    z: EntryCoordinates
    first_k: Index
    buffers: tuple[int, int, int]
    flip: bool
    touched: Flags
    remembered: dict[tuple[int, int], tuple[ListedEntries, Index, Grown]] = field(default_factory=dict)

    def part(self, places: EntryCoordinates, rows: tuple[int, int]) -> ListedEntries:
        """Return some rows, listed along the columns."""
        piece = slice(places.starts[rows[0]], places.starts[rows[1]])
        across = places.cols[piece]
        return listed(across, across if self.flip else places.rows[piece])[0]

    def result(self, band: tuple[int, int]) -> tuple[ListedEntries, Index]:
        """Return Z within a band, listed along the own rank of the other operand, with the first k of each
        entry."""
        piece = slice(self.z.starts[band[0]], self.z.starts[band[1]])
        across = self.z.cols[piece]
        result, order = listed(across, across if self.flip else self.z.rows[piece])
        return result, self.first_k[piece][order]

    def other(self, k: int, end: int) -> tuple[ListedEntries, Index, Grown]:
        """Return the other operand within a range of k, listed along its own rank with the k of each entry,
        and the known extents of its tiles: position of the first entry -> end, and position of the end."""
        if (k, end) not in self.remembered:
            self.remembered.clear()  # ranges recur immediately or not at all
            piece = slice(self.v.starts[k], self.v.starts[end])
            across = self.v.cols[piece]
            found, order = listed(across, across if self.flip else self.v.rows[piece])
            self.remembered[k, end] = found, self.v.rows[piece][order], {}
        return self.remembered[k, end]


def sides_of(product: PatternProduct, buffers: tuple[int, int, int], stationary: str) -> Sides:
    """`buffers`: words for A, B and Z."""
    touched = np.zeros(product.extents[1], dtype=np.bool_)
    if stationary == "A":
        return Sides(product.a, product.b, product.z, product.first_k, buffers, False, touched)
    z = product.z.transposed
    first = product.first_k[sorted_by(product.z.cols, product.z.shape[1])]
    swapped = (buffers[1], buffers[0], buffers[2])
    return Sides(product.b.transposed, product.a.transposed, z, first, swapped, True, touched)


def limits_of(sides: Sides) -> tuple[Ints, Ints]:
    """Return, for every start, how far the own rank of the stationary operand, and k, may extend so that one
    coordinate across still fits each buffer: then no growth meets a slice that overflows by itself."""
    s, v, z = ((m - 5) // 2 if sides.flip else (m - 3) // 4 for m in sides.buffers)
    outer = np.minimum(_limit(sides.s, s), _limit(sides.z, z))
    return outer, _limit(sides.v, v)


def _limit(places: EntryCoordinates, most: int) -> Ints:
    """Return, for every first row, the largest end with at most `most` entries in each column of that
    range.
    """
    across = places.transposed
    result = np.full(places.shape[0] + 1, places.shape[0], dtype=np.int64)
    if across.nnz > most:
        same = across.rows[most:] == across.rows[:-most]
        np.minimum.at(result, across.cols[:-most][same], across.cols[most:][same].astype(np.int64))
    return np.minimum.accumulate(result[::-1])[::-1]


def band_end(sides: Sides, outer: int, outer_limit: int, k_limit: int, grow: str) -> int:
    """Return the end of the band that begins at `outer`, which its first tile determines."""
    capacity = sides.buffers[0]
    if grow == "k":
        wide = min(sides.part(sides.s, (outer, outer + 1)).reach(0, capacity, k_limit), k_limit)
        return _down(sides, outer, outer_limit, wide)
    if grow == "outer":
        return _down(sides, outer, outer_limit, 1)
    high = wide = 1
    while True:
        taller, wider = min(2 * high, outer_limit - outer), min(2 * wide, k_limit)
        grown = taller > high and _load(sides, (outer, outer + taller), wide) <= capacity
        high = taller if grown else high
        if wider > wide and _load(sides, (outer, outer + high), wider) <= capacity:
            wide, grown = wider, True
        if not grown:
            return outer + high


def _down(sides: Sides, outer: int, limit: int, wide: int) -> int:
    """Return how far the stationary tile extends along its own rank when it covers k from 0 to `wide`."""
    begin, end = int(sides.s.starts[outer]), int(sides.s.starts[limit])
    many = sides.buffers[0]
    while True:
        piece = slice(begin, min(begin + many, end))
        inside = sides.s.cols[piece] < wide
        x, across = sides.s.rows[piece][inside], sides.s.cols[piece][inside]
        piled = _with_last(x, across) if sides.flip else _stacked(x)
        reached = piled.reach(0, sides.buffers[0], limit)
        if reached < limit or piece.stop == end:
            return reached
        many *= 2


def _load(sides: Sides, band: tuple[int, int], wide: int) -> int:
    tile = sides.part(sides.s, band)
    return tile.words(0, tile.at(wide))


Stationary = Literal["A", "B"]
Grow = Literal["k", "outer", "alternate"]
GROWS: tuple[Grow, ...] = ("k", "outer", "alternate")
STEPS = 10**6  # tiles tried: about a minute
# Columns of `Dynamic.visits`: ranges of the stationary operand's own rank, of k, of the other's own rank.
_COLUMNS = ("outer", "outer_end", "k", "k_end", "inner", "inner_end", "s", "v", "before", "after",
            "s_nnz", "v_nnz", "after_nnz")  # fmt: skip


@dataclass(frozen=True, eq=False)
class Dynamic:
    """Pairs of tiles in launch order.

    `visits`: pairs x (first and last + 1 along the own rank of the stationary operand, along k, and along the
    own rank of the other operand; words of the stationary tile and of the other tile; words of the region of
    Z before and after; entries of the stationary tile, of the other tile, and of the region of Z after).
    """

    product: PatternProduct
    stationary: Stationary
    grow: Grow
    visits: Ints

    @property
    def order(self) -> str:
        return "ikj" if self.stationary == "A" else "jki"

    @property
    def launches(self) -> int:
        return int(self.visits.shape[0])

    def column(self, name: str) -> Ints:
        result: Ints = self.visits[:, _COLUMNS.index(name)]
        return result

    @cached_property
    def largest(self) -> tuple[int, int, int]:
        """Words of the largest tile of A, of B and of Z."""
        s, v, z = (int(self.column(name).max(initial=0)) for name in ("s", "v", "after"))
        return (s, v, z) if self.stationary == "A" else (v, s, z)

    @cached_property
    def new(self) -> tuple[Flags, Flags, Flags]:
        """Masks of the launches at which the tile of the stationary operand, of the other operand, and the
        region of Z change."""
        at = self.column
        outer, k, inner = ((at(f"{name}"), at(f"{name}_end")) for name in ("outer", "k", "inner"))
        return changes(*outer, *k), changes(*k, *inner), changes(*outer, *inner)

    def traffic(self) -> OrderTraffic:
        """A tile is read when it differs from the resident one; a region of Z is written when it is left, and
        its partial sums are read when it is entered again."""
        new_s, new_v, new_z = self.new
        left = np.ones(self.launches, dtype=np.bool_)
        left[:-1] = new_z[1:]
        s, v = (int(self.column(n)[new].sum()) for n, new in (("s", new_s), ("v", new_v)))
        s_count, v_count, visits = (int(np.count_nonzero(new)) for new in self.new)
        z_read, z_write = int(self.column("before")[new_z].sum()), int(self.column("after")[left].sum())
        if self.stationary == "B":
            s, v, s_count, v_count = v, s, v_count, s_count
        return OrderTraffic(self.order, s_count, v_count, visits, s, v, z_read, z_write)


def dynamic(
    product: PatternProduct,
    buffers: tuple[int, int, int],
    stationary: Stationary = "A",
    grow: Grow = "k",
    stop: Callable[[int], bool] | None = None,
) -> Dynamic | None:
    """Return tiles that grow until their buffer (words for A, B and Z) is full; none exceeds it.

    `grow`: how the stationary tile grows: `k` covers as much of the shared rank as fits, then of its own
    rank; `outer` the other way round; `alternate` doubles both in turn. `stop` is called after each band with
    the number of launches so far: if it returns True, or after 10^6 tiles, None is returned. Raises SpecError
    if a buffer does not hold one entry (7 words).
    """
    small = [(name, m) for name, m in zip("ABZ", buffers, strict=True) if m < LEAST]
    if small:
        raise SpecError(
            [
                Diagnostic(
                    f"the buffer of {n} holds {m} words, a tile with one entry takes {LEAST}",
                    "enlarge it",
                    code="over-capacity",
                )
                for n, m in small
            ]
        )
    sides = sides_of(product, buffers, stationary)
    limits = limits_of(sides)
    found: list[tuple[int, ...]] = []
    steps, outer = 0, 0
    while outer < sides.s.shape[0]:
        end = band_end(sides, outer, int(limits[0][outer]), int(limits[1][0]), grow)
        steps += _band(sides, (outer, end), limits[1], found)
        outer = end
        if steps > STEPS or (stop is not None and stop(len(found))):
            return None
    visits = np.array(found, dtype=np.int64).reshape(-1, len(_COLUMNS))
    return Dynamic(product, stationary, grow, visits)


def _band(sides: Sides, band: tuple[int, int], k_limit: Ints, found: list[tuple[int, ...]]) -> int:
    """All pairs of one range of the own rank of the stationary operand; returns the number of grown tiles."""
    ours = sides.part(sides.s, band)
    z, z_first = sides.result(band)
    at, k, steps, extent = 0, 0, 0, sides.s.shape[1]
    before = z.taken(z_first < 0)
    while at < ours.x.size:
        look()
        end = min(ours.reach(at, sides.buffers[0], extent), int(k_limit[k]))
        to = ours.at(end)
        if to > at:
            after = z.taken(z_first < end)
            sides.touched[ours.x[at:to]] = True
            tile = (*band, k, end), ours.words(at, to), to - at
            steps += _swept(sides, tile, before, after, found)
            sides.touched[ours.x[at:to]] = False
            before = after
        at, k, steps = to, end, steps + 1
    return steps


def _swept(
    sides: Sides,
    tile: tuple[tuple[int, int, int, int], int, int],
    before: ListedEntries,
    after: ListedEntries,
    found: list[tuple[int, ...]],
) -> int:
    """The tiles of the other operand under one stationary tile; those without a common k are skipped."""
    (outer, outer_end, k, k_end), words, nnz = tile
    theirs, shared, grown = sides.other(k, k_end)
    met = np.flatnonzero(sides.touched[shared]).tolist()
    at, at_z, inner, steps, extent = 0, 0, 0, 0, sides.v.shape[1]
    while at < theirs.x.size:
        if at not in grown:
            end = theirs.reach(at, sides.buffers[1], extent)
            grown[at] = end, theirs.at(end)
        end, to = grown[at]
        to_z = after.at(end)
        if not after.fits(at_z, to_z, sides.buffers[2]):
            end = after.reach(at_z, sides.buffers[2], extent)
            to, to_z = theirs.at(end), after.at(end)
        first = bisect_left(met, at)
        if first < len(met) and met[first] < to:
            held = before.words(before.at(inner), before.at(end))
            both = theirs.words(at, to), held, after.words(at_z, to_z)
            found.append((outer, outer_end, k, k_end, inner, end, words, *both, nnz, to - at, to_z - at_z))
        at, at_z, inner, steps = to, to_z, end, steps + 1
    return steps
