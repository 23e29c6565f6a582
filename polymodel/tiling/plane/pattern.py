"""Where two operands have entries, on the plane of the two ranks that are cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
# Coordinates and numbers of tiles: 32 bits wherever they reach (they halve what each level moves).
Index = NDArray[Any]


class _Held:
    """Arrays of frozen records are frozen with them."""

    def __post_init__(self) -> None:
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False


@dataclass(frozen=True, eq=False)
class Pattern(_Held):
    """The entries of A and of B: one point for every place that either holds.

    `ranks`, `shape`: names and sizes of the two ranks that are cut, rows first. `rows`, `cols`: coordinates
    of the points (int32, or int64 for ranks of 2^31 and more), in lexicographic order. `in_a`, `in_b`: who
    holds the point; at least one does. `depth`: points of the tensor behind each place of the plane (1 for a
    matrix); with more, several points share a row and column, one per entry. `levels`: ranks of the operands.
    `inner_a`, `inner_b`: for each point, how many fibers of operand A (B) at the levels between the row and
    the innermost rank begin there (none for matrices: their only inner level is the entry itself).
    `own`: the operands' ranks in the order (row, column, others), of a vector its one; `sizes`, `deep`: sizes
    and coordinates (others x points) of the others.
    `name`, `second`: what A is called and how B was made, in words.
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
    """A partition of the plane: tiles in order of (row, col), and of every point the tile that it is in.

    `tiler`: the full name of what made it, e.g. `qtree+merge`. `notes`: what the user should know.
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
    """A cut with its tiles in order of (row, col). `ids` is the cut's from then on."""
    order = np.lexsort((rects.col, rects.row))
    if (order[1:] > order[:-1]).all():
        return Cut(rects, ids.astype(np.int32, copy=False), tiler, notes)
    place = np.empty(rects.tiles, dtype=np.int32)
    place[order] = np.arange(rects.tiles, dtype=np.int32)
    return Cut(rects.taken(order), place[ids], tiler, notes)
