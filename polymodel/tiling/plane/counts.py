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

# Points counted at a time.
_PIECE = 1 << 17


@dataclass(frozen=True, eq=False)
class Counts:
    """Counts per tile (int64 arrays of `tiles` numbers), each made when it is first asked for.

    `pattern`: the points, in row-major order (all, or those of the tiles that matter). `ids`: their tiles.
    """

    pattern: Pattern
    ids: Index
    tiles: int

    @cached_property
    def _held(self) -> Ints:
        """Per tile, its points by who holds them: A alone, B alone, both."""
        return held_by(self.pattern, self.ids, self.tiles)

    @cached_property
    def nnz_a(self) -> Ints:
        found: Ints = self._held[:, 1] + self._held[:, 3]
        return found

    @cached_property
    def nnz_b(self) -> Ints:
        found: Ints = self._held[:, 2] + self._held[:, 3]
        return found

    @cached_property
    def union(self) -> Ints:
        """Places that A or B holds."""
        return self.nnz_a + self.nnz_b - self.both

    @cached_property
    def both(self) -> Ints:
        """Places that A and B hold."""
        return self._held[:, 3]

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
        found, tiles = np.zeros(self.tiles, dtype=np.int64), self.tiles
        # Few tiles a point are counted piece by piece: what is made on the way stays near.
        step = max(_PIECE, 4 * tiles)
        for at in range(0, rows.size, step):
            piece = slice(max(at - 1, 0), at + step)
            first = starts(rows[piece], ids[piece])
            first[: at - piece.start] = False
            found += np.bincount(ids[piece][first], minlength=tiles)
        return found

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


def held_by(pattern: Pattern, ids: Index, tiles: int, points: slice = slice(None)) -> Ints:
    """Tiles x 4: of each tile, how many points are held by A alone (1), by B alone (2), by both (3).

    `ids`: the tiles of these `points`.
    """
    in_a, in_b = pattern.in_a[points].view(np.uint8), pattern.in_b[points].view(np.uint8)
    found = np.zeros(4 * tiles, dtype=np.int64)
    # One count of tile and holder together: masks of random points cost several times as much.
    kind = np.int64 if tiles >= 1 << 29 else ids.dtype
    step = max(_PIECE, 16 * tiles)
    for at in range(0, ids.size, step):
        piece = slice(at, at + step)
        key = ids[piece].astype(kind) * 4
        key += in_a[piece]
        key += in_b[piece] * np.uint8(2)
        found += np.bincount(key, minlength=4 * tiles)
    return found.reshape(-1, 4)


def starts(rows: Index, ids: Index) -> Flags:
    """True at points (row-major order) with which a row of a tile begins."""
    first = np.ones(rows.size, dtype=np.bool_)
    np.not_equal(rows[1:], rows[:-1], out=first[1:])
    first[1:] |= ids[1:] != ids[:-1]
    return first
