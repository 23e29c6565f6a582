"""How far a range may grow before its entries fill a buffer: the parts of dynamic tiles."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from polymodel.tiling.matmul.product import Places, Product, changes
from polymodel.tiling.plane.pattern import Flags, Index, Ints

LEAST = 7  # words of a tile with one entry
Grown = dict[int, tuple[int, int]]


@dataclass(frozen=True, eq=False)
class Listed:
    """Entries along one rank: coordinates `x` ascending, the row of the stored tile each is in, and where in
    this list that row was last met (-1: never). A row is new to a tile that begins after that."""

    x: Index
    rows: Index
    last: Ints

    def at(self, coordinate: int) -> int:
        """Position of the first entry at or after a coordinate."""
        # A number of another type would make a copy of the whole list.
        return int(self.x.searchsorted(self.x.dtype.type(coordinate)))

    def reach(self, at: int, capacity: int, extent: int) -> int:
        """The largest end for which the entries from position `at` fit; `extent` if all do."""
        half = max(0, capacity - 3) // 2  # every entry counts one, every new row one more
        load = (self.last[at : at + half + 1] < at).cumsum()
        load += self.ramp[: load.size]
        over = int(load.searchsorted(half, side="right"))
        return extent if over == load.size else int(self.x[at + over])

    def fits(self, at: int, to: int, capacity: int) -> bool:
        """Whether the entries at these positions fit."""
        half, held = max(0, capacity - 3) // 2, to - at
        if 2 * held <= half or held > half:
            return held <= half
        return held + int(np.count_nonzero(self.last[at:to] < at)) <= half

    def words(self, at: int, to: int) -> int:
        """2 nnz + 2 rows + 3 of the entries at these positions, 0 without any."""
        if to <= at:
            return 0
        return 2 * (to - at) + 2 * int(np.count_nonzero(self.last[at:to] < at)) + 3

    @cached_property
    def ramp(self) -> Ints:
        """1, 2, 3, ..."""
        return np.arange(1, self.x.size + 1)

    @cached_property
    def by_row(self) -> Index:
        """Positions row by row, ascending within each."""
        return np.argsort(self.rows, kind="stable")

    def taken(self, which: Flags) -> Listed:
        """Some of the entries."""
        place = np.cumsum(which) - 1
        order = self.by_row[which[self.by_row]]
        return _linked(self.x[which], self.rows[which], place[order])


@dataclass(frozen=True, eq=False)
class Stacked(Listed):
    """Entries whose rows are the coordinates themselves: sums before each position say all.

    Positions that are asked for begin a coordinate.
    """

    @cached_property
    def sums(self) -> Ints:
        """Entries and rows before each position, and all."""
        found = np.zeros(self.x.size + 1, dtype=np.int64)
        np.cumsum(1 + changes(self.x), out=found[1:])
        return found

    def reach(self, at: int, capacity: int, extent: int) -> int:
        most = self.sums[at] + max(0, capacity - 3) // 2
        over = int(self.sums.searchsorted(most, side="right")) - 1
        return extent if over == self.x.size else int(self.x[over])

    def fits(self, at: int, to: int, capacity: int) -> bool:
        return int(self.sums[to] - self.sums[at]) <= max(0, capacity - 3) // 2

    def words(self, at: int, to: int) -> int:
        return 2 * int(self.sums[to] - self.sums[at]) + 3 if to > at else 0

    def taken(self, which: Flags) -> Listed:
        return _stacked(self.x[which])


def listed(x: Index, rows: Index) -> tuple[Listed, Index]:
    """Entries in order of `x`, and the order that this took; `rows` may be `x` itself."""
    order = np.argsort(x, kind="stable")
    return _stacked(x[order]) if rows is x else _with_last(x[order], rows[order]), order


def _stacked(x: Index) -> Listed:
    return Stacked(x, x, np.zeros(0, dtype=np.int64))


def _with_last(x: Index, rows: Index) -> Listed:
    return _linked(x, rows, np.argsort(rows, kind="stable"))


def _linked(x: Index, rows: Index, order: Index) -> Listed:
    """`order`: positions row by row, ascending within each."""
    last = np.full(rows.size, -1, dtype=np.int64)
    same = rows[order[1:]] == rows[order[:-1]]
    last[order[1:][same]] = order[:-1][same]
    return Listed(x, rows, last)


@dataclass(frozen=True, eq=False)
class Sides:
    """The product: its stationary operand `s` (own rank, k), the other one `v` (k, own rank), the result `z`.

    `flip`: B is stationary, so the rows of stored tiles are along the second rank of `s`, `v` and `z`.
    `touched`: room for a flag per k coordinate.
    """

    s: Places
    v: Places
    z: Places
    first_k: Index
    buffers: tuple[int, int, int]
    flip: bool
    touched: Flags
    remembered: dict[tuple[int, int], tuple[Listed, Index, Grown]] = field(default_factory=dict)

    def part(self, places: Places, rows: tuple[int, int]) -> Listed:
        """Some rows, listed along the columns."""
        piece = slice(places.starts[rows[0]], places.starts[rows[1]])
        across = places.cols[piece]
        return listed(across, across if self.flip else places.rows[piece])[0]

    def result(self, band: tuple[int, int]) -> tuple[Listed, Index]:
        """Z within a band, listed along the other operand's own rank, with the first k of each entry."""
        piece = slice(self.z.starts[band[0]], self.z.starts[band[1]])
        across = self.z.cols[piece]
        found, order = listed(across, across if self.flip else self.z.rows[piece])
        return found, self.first_k[piece][order]

    def other(self, k: int, end: int) -> tuple[Listed, Index, Grown]:
        """The other operand within a range of k, listed along its own rank, with the k of each entry, and how
        far its tiles are known to grow: position of the first entry -> end, position of the end."""
        if (k, end) not in self.remembered:
            self.remembered.clear()  # ranges mostly come again at once, or never
            piece = slice(self.v.starts[k], self.v.starts[end])
            across = self.v.cols[piece]
            found, order = listed(across, across if self.flip else self.v.rows[piece])
            self.remembered[k, end] = found, self.v.rows[piece][order], {}
        return self.remembered[k, end]


def sides_of(product: Product, buffers: tuple[int, int, int], stationary: str) -> Sides:
    """`buffers`: words for A, B and Z."""
    touched = np.zeros(product.extents[1], dtype=np.bool_)
    if stationary == "A":
        return Sides(product.a, product.b, product.z, product.first_k, buffers, False, touched)
    z = product.z.transposed
    first = product.first_k[np.argsort(product.z.cols, kind="stable")]
    swapped = (buffers[1], buffers[0], buffers[2])
    return Sides(product.b.transposed, product.a.transposed, z, first, swapped, True, touched)


def limits_of(sides: Sides) -> tuple[Ints, Ints]:
    """For every start, how far the stationary operand's own rank, and k, may reach, so that one coordinate
    across still fits each buffer: no growth can then meet a slice that overflows by itself."""
    s, v, z = ((m - 5) // 2 if sides.flip else (m - 3) // 4 for m in sides.buffers)
    outer = np.minimum(_limit(sides.s, s), _limit(sides.z, z))
    return outer, _limit(sides.v, v)


def _limit(places: Places, most: int) -> Ints:
    """For every first row the largest end with at most `most` entries in each column between them."""
    across = places.transposed
    found = np.full(places.shape[0] + 1, places.shape[0], dtype=np.int64)
    if across.nnz > most:
        same = across.rows[most:] == across.rows[:-most]
        np.minimum.at(found, across.cols[:-most][same], across.cols[most:][same].astype(np.int64))
    return np.minimum.accumulate(found[::-1])[::-1]


def band_end(sides: Sides, outer: int, outer_limit: int, k_limit: int, grow: str) -> int:
    """Where the band that begins at `outer` ends, decided by its first tile."""
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
    """How far the stationary tile reaches along its own rank when it takes k from 0 to `wide`."""
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
