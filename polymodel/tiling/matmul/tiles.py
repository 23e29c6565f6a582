"""Uniform coordinate tiles of a matrix: which hold entries, and how many words each takes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polymodel.errors import Refused
from polymodel.tiling.matmul.product import Places, changes
from polymodel.tiling.plane.pattern import Index, Ints

NUMBERED = 2**62
# Counting into an array of all tiles is faster than sorting while there are not many more tiles than entries.
_SPARE = 2**18


@dataclass(frozen=True, eq=False)
class Tiles:
    """The nonempty tiles of one tensor: ascending numbers (row-major on the grid), entries and rows of each.

    `shape`: tiles down and across.
    """

    ids: Ints
    nnz: Ints
    rows: Ints
    shape: tuple[int, int]

    @property
    def words(self) -> Ints:
        """2 nnz + 2 nonempty rows + 3 of each; empty tiles, which take none, are not here."""
        return 2 * self.nnz + 2 * self.rows + 3

    @property
    def count(self) -> int:
        return int(self.ids.size)

    @property
    def largest(self) -> int:
        """Words of the fullest tile, 0 without any."""
        return int(self.words.max(initial=0))

    @property
    def total(self) -> int:
        """Words of all tiles."""
        return int(self.words.sum())

    def over(self, capacity: int) -> int:
        """Tiles that do not fit."""
        return int(np.count_nonzero(self.words > capacity))


def grid_of(shape: tuple[int, int], tile: tuple[int, int]) -> tuple[int, int]:
    """Tiles down and across; those at the edges may be smaller."""
    down, across = (-(-extent // t) for extent, t in zip(shape, tile, strict=True))
    if down * across > NUMBERED:
        raise Refused(f"{down} x {across} tiles are more than 62 bits can number", "take larger tiles")
    return down, across


def numbers(places: Places, tile: tuple[int, int]) -> Ints:
    """The tile of every entry."""
    across = grid_of(places.shape, tile)[1]
    found: Ints = (places.rows // tile[0]).astype(np.int64)
    found *= across
    found += places.cols // tile[1]
    return found


def tiles_of(places: Places, tile: tuple[int, int]) -> Tiles:
    """The nonempty tiles of a matrix cut into tiles of one shape."""
    ids = numbers(places, tile)
    shape = grid_of(places.shape, tile)
    present, nnz = counted(ids, shape[0] * shape[1])
    # The columns of a tile are contiguous: within one row its entries follow each other.
    _, rows = counted(ids[changes(places.rows, ids)], shape[0] * shape[1])
    return Tiles(present, nnz, rows, shape)


def counted(ids: Index, most: int) -> tuple[Ints, Ints]:
    """The different numbers (below `most`), ascending, and how often each is there."""
    if most <= 4 * ids.size + _SPARE:
        counts = np.bincount(ids, minlength=1)
        present = np.flatnonzero(counts)
        return present, counts[present]
    present, counts = np.unique(ids, return_counts=True)
    return present.astype(np.int64), counts.astype(np.int64)
