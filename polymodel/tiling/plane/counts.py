"""What tiles hold: entries, nonempty rows and fibers of each operand, of their union and of their meet.

All of it is counted for all tiles at once, from points in row-major order that carry the number of their
tile. A tile has contiguous columns, so within one row the points of a tile follow each other: a row of a tile
begins where the row or the tile changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from polymodel.tiling.plane.pattern import Flags, Index, Ints, Pattern


@dataclass(frozen=True, eq=False)
class Counts:
    """Counts per tile (int64 arrays of `tiles` numbers), each made when it is first asked for.

    `pattern`: the points, in row-major order (all, or those of the tiles that matter). `ids`: their tiles.
    """

    pattern: Pattern
    ids: Index
    tiles: int

    def _count(self, which: Flags | None = None) -> Ints:
        ids = self.ids if which is None else self.ids[which]
        return np.bincount(ids, minlength=self.tiles)

    @cached_property
    def nnz_a(self) -> Ints:
        return self._count(self.pattern.in_a)

    @cached_property
    def nnz_b(self) -> Ints:
        return self._count(self.pattern.in_b)

    @cached_property
    def union(self) -> Ints:
        """Places that A or B holds."""
        return self._count()

    @cached_property
    def both(self) -> Ints:
        """Places that A and B hold."""
        return self.nnz_a + self.nnz_b - self.union

    @cached_property
    def rows_a(self) -> Ints:
        """Rows in which A has entries."""
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
        return np.bincount(ids[starts(rows, ids)], minlength=self.tiles)

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


def starts(rows: Index, ids: Index) -> Flags:
    """True at points (row-major order) with which a row of a tile begins."""
    first = np.ones(rows.size, dtype=np.bool_)
    np.not_equal(rows[1:], rows[:-1], out=first[1:])
    first[1:] |= ids[1:] != ids[:-1]
    return first
