"""The places where two operands have entries, on the plane of the two tiled ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Stable orders of short keys.

# Number of keys from which loading SciPy pays off; number of keys up to which its indices have 32 bits.
_MANY, _MOST = 1 << 20, (1 << 31) - 1


def sorted_by(keys: Index, number: int) -> Index:
    """Stable order of keys below `number`; short keys are sorted by their digits, several times faster."""
    if number <= min(keys.size, _MOST) and _MANY <= keys.size <= _MOST:
        return _counted(keys, number)
    if number <= 1 << 16:
        return np.argsort(keys.astype(np.uint16), kind="stable")
    if number <= 1 << 32:
        low = np.argsort((keys & 0xFFFF).astype(np.uint16), kind="stable")
        return low[np.argsort((keys[low] >> 16).astype(np.uint16), kind="stable")]
    return np.argsort(keys, kind="stable")


def _counted(keys: Index, number: int) -> Index:
    """The same for keys most of which occur: SciPy's conversion of a matrix with one row counts them."""
    from scipy.sparse import csr_array

    places = np.arange(keys.size, dtype=np.int32)
    ends = np.array([0, keys.size], dtype=np.int32)
    result: Index = (
        csr_array((places, keys.astype(np.int32, copy=False), ends), shape=(1, number)).tocsc().data
    )
    return result


Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
# Coordinates and numbers of tiles: 32 bits if they are sufficient, which halves the memory traffic.
Index = NDArray[Any]


class _Held:
    """Arrays of frozen records are frozen with them."""

    def __post_init__(self) -> None:
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False


@dataclass(frozen=True, eq=False)
class Pattern(_Held):
    """The entries of A and of B: one point for every position that either holds.

    `ranks`, `shape`: names and sizes of the two tiled ranks, rows first. `rows`, `cols`: coordinates of the
    points (int32, or int64 for ranks of 2^31 and more), in lexicographic order. `in_a`, `in_b`: which
    operands hold the point; at least one does. `depth`: number of points of the tensor for each position of
    the plane (1 for a matrix); if it is larger, several points share a row and column, one per entry.
    `levels`: ranks of the operands. `inner_a`, `inner_b`: for each point, the number of fibers of operand A
    (B) that begin there at the levels between the row and the innermost rank (none for matrices, whose only
    inner level is the entry itself). `own`: the operands' ranks in the order (row, column, others), for a
    vector its only rank; `sizes`, `deep`: sizes and coordinates (others x points) of the others. `name`,
    `second`: the name of A, and a description of how B was derived.
    """

    name: str
    second: str
    ranks: tuple[str, str]
    shape: tuple[int, int]
    rows: Index
    cols: Index
    in_a: Flags
    in_b: Flags
    depth: int = 1
    levels: int = 2
    inner_a: Index | None = None
    inner_b: Index | None = None
    own: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    deep: Index | None = None

    def __repr__(self) -> str:
        rows, cols = self.shape
        return f"Pattern({self.name}, {self.second}: {rows:,} x {cols:,}, {self.rows.size:,} places in use)"

    @property
    def points(self) -> int:
        """Places that A or B holds."""
        return int(self.rows.size)

    @property
    def nnz_a(self) -> int:
        return int(np.count_nonzero(self.in_a))

    @property
    def nnz_b(self) -> int:
        return int(np.count_nonzero(self.in_b))

    def taken(self, which: Index | Flags | slice) -> Pattern:
        """Some of the points (a mask, ascending positions or a slice), in the same order."""
        inner = tuple(None if x is None else x[which] for x in (self.inner_a, self.inner_b))
        return replace(
            self,
            rows=self.rows[which],
            cols=self.cols[which],
            in_a=self.in_a[which],
            in_b=self.in_b[which],
            inner_a=inner[0],
            inner_b=inner[1],
            deep=None if self.deep is None else self.deep[:, which],
        )


@dataclass(frozen=True, eq=False)
class Rects(_Held):
    """Rectangles of the plane, one per tile: first row, first column, height and width (int64 arrays)."""

    row: Ints
    col: Ints
    height: Ints
    width: Ints

    @classmethod
    def of(cls, rects: Sequence[Sequence[int]] | NDArray[Any]) -> Rects:
        """From (row, col, height, width) per tile."""
        table = np.asarray(rects, dtype=np.int64).reshape(-1, 4)
        return cls(*(np.ascontiguousarray(column) for column in table.T))

    @classmethod
    def whole(cls, shape: tuple[int, int]) -> Rects:
        """One tile: everything."""
        return cls.of([(0, 0, *shape)])

    def __repr__(self) -> str:
        return f"Rects({self.tiles:,})"

    @property
    def tiles(self) -> int:
        return int(self.row.size)

    def table(self) -> Ints:
        """Tiles x (row, col, height, width)."""
        return np.stack([self.row, self.col, self.height, self.width], axis=1)

    def taken(self, which: Index | Flags) -> Rects:
        return Rects(self.row[which], self.col[which], self.height[which], self.width[which])

    def transposed(self) -> Rects:
        """Rows and columns exchanged."""
        return Rects(self.col, self.row, self.width, self.height)


@dataclass(frozen=True, eq=False)
class Cut(_Held):
    """A partition of the plane: tiles in order of (row, col), and the tile of every point.

    `tiler`: the full name of the tiler that made it, e.g. `qtree+merge`. `notes`: remarks for the user.
    """

    rects: Rects
    ids: Index
    tiler: str
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Cut({self.tiler}: {self.tiles:,} tile{'s' if self.tiles != 1 else ''})"

    @property
    def tiles(self) -> int:
        return self.rects.tiles


def ordered(rects: Rects, ids: Index, tiler: str, notes: tuple[str, ...] = ()) -> Cut:
    """A cut with its tiles in order of (row, col). The cut takes over the array `ids`."""
    order = np.lexsort((rects.col, rects.row))
    if (order[1:] > order[:-1]).all():
        return Cut(rects, ids.astype(np.int32, copy=False), tiler, notes)
    place = np.empty(rects.tiles, dtype=np.int32)
    place[order] = np.arange(rects.tiles, dtype=np.int32)
    return Cut(rects.taken(order), place[ids], tiler, notes)


# Contents of tiles: entries, nonempty rows and fibers of each operand, of their union and intersection.
#
# Everything is counted for all tiles at once, from points in row-major order that have the number of their
# tile. A tile has contiguous columns, so within one row the points of a tile follow each other: a row of a
# tile begins where the row or the tile changes.

# Points counted at a time.
_PIECE = 1 << 17


@dataclass(frozen=True, eq=False)
class TileCounts:
    """Counts per tile (int64 arrays of `tiles` numbers), each computed at its first use.

    `pattern`: the points, in row-major order (all, or those of the relevant tiles). `ids`: their tiles.
    """

    pattern: Pattern
    ids: Index
    tiles: int

    @cached_property
    def _points_by_operand(self) -> Ints:
        """For each tile the number of its points in A only, in B only, and in both."""
        return points_by_operand(self.pattern, self.ids, self.tiles)

    @cached_property
    def nnz_a(self) -> Ints:
        result: Ints = self._points_by_operand[:, 1] + self._points_by_operand[:, 3]
        return result

    @cached_property
    def nnz_b(self) -> Ints:
        result: Ints = self._points_by_operand[:, 2] + self._points_by_operand[:, 3]
        return result

    @cached_property
    def union(self) -> Ints:
        """Number of places that A or B holds."""
        return self.nnz_a + self.nnz_b - self.both

    @cached_property
    def both(self) -> Ints:
        """Number of places that both A and B hold."""
        return self._points_by_operand[:, 3]

    @cached_property
    def rows_a(self) -> Ints:
        """Number of rows in which A has entries."""
        return self._rows(self.pattern.in_a)

    @cached_property
    def rows_b(self) -> Ints:
        return self._rows(self.pattern.in_b)

    @cached_property
    def rows_union(self) -> Ints:
        return self._rows(None)

    def _rows(self, which: Flags | None) -> Ints:
        rows, ids = self.pattern.rows, self.ids
        if which is not None:
            rows, ids = rows[which], ids[which]
        result, tiles = np.zeros(self.tiles, dtype=np.int64), self.tiles
        # With few tiles per point the counting is done piece by piece, so that intermediate arrays stay in
        # the cache.
        step = max(_PIECE, 4 * tiles)
        for at in range(0, rows.size, step):
            piece = slice(max(at - 1, 0), at + step)
            first = starts(rows[piece], ids[piece])
            first[: at - piece.start] = False
            result += np.bincount(ids[piece][first], minlength=tiles)
        return result

    @cached_property
    def inner_a(self) -> Ints:
        """Fibers of A between its rows and its entries (0 for matrices)."""
        return self._inner(self.pattern.inner_a)

    @cached_property
    def inner_b(self) -> Ints:
        return self._inner(self.pattern.inner_b)

    def _inner(self, begun: Index | None) -> Ints:
        if begun is None:
            return np.zeros(self.tiles, dtype=np.int64)
        return np.bincount(self.ids, weights=begun, minlength=self.tiles).astype(np.int64)


def points_by_operand(pattern: Pattern, ids: Index, tiles: int, points: slice = slice(None)) -> Ints:
    """Tiles x 4: for each tile, the number of points in A only (column 1), in B only (2), and in both (3).

    `ids`: the tiles of these `points`.
    """
    in_a, in_b = pattern.in_a[points].view(np.uint8), pattern.in_b[points].view(np.uint8)
    result = np.zeros(4 * tiles, dtype=np.int64)
    # Tile and operand are counted in one pass: masks of random points cost several times as much.
    kind = np.int64 if tiles >= 1 << 29 else ids.dtype
    step = max(_PIECE, 16 * tiles)
    for at in range(0, ids.size, step):
        piece = slice(at, at + step)
        key = ids[piece].astype(kind) * 4
        key += in_a[piece]
        key += in_b[piece] * np.uint8(2)
        result += np.bincount(key, minlength=4 * tiles)
    return result.reshape(-1, 4)


def starts(rows: Index, ids: Index) -> Flags:
    """True at points (row-major order) that begin a row of a tile."""
    first = np.ones(rows.size, dtype=np.bool_)
    np.not_equal(rows[1:], rows[:-1], out=first[1:])
    first[1:] |= ids[1:] != ids[:-1]
    return first
