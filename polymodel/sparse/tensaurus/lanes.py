"""Slices on lanes: what each row of PEs has to do, for the whole tensor or tile by tile.

A slice goes whole to the lane with the least data so far, ties to the lowest: in CISS it weighs its nonzeros
and a header, in `uniform_slice` its nonzeros.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polymodel.sparse.assign import fullest_parts

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Slices:
    """Nonempty slices of nonempty tiles, tile by tile, in order of their index within a tile.

    `tile`: ascending; `nnz`, `fibers`: of each slice within its tile. One entry each per pair of tile and
    slice.
    """

    tile: Ints
    nnz: Ints
    fibers: Ints

    @property
    def number(self) -> int:
        return int(self.tile.size)


@dataclass(frozen=True)
class TileTimes:
    """Of each nonempty tile: `entries` of CISS (the fullest lane's slots), and `steps`, those of the busiest
    lane: one per nonzero and header, and `per_fiber` of each fiber."""

    entries: Ints
    steps: Ints
    slices: Ints


def tile_times(slices: Slices, lanes: int, per_fiber: int) -> TileTimes:
    """Greedy lanes in every tile."""
    if not slices.number:
        none = np.zeros(0, dtype=np.int64)
        return TileTimes(none, none, none)
    starts = np.flatnonzero(np.concatenate(([True], slices.tile[1:] != slices.tile[:-1])))
    slots = slices.nnz + 1
    entries, steps = fullest_parts(slots, slices.tile, lanes, slots + per_fiber * slices.fibers)
    return TileTimes(entries, steps, np.diff(np.append(starts, slices.number)))


def positions(row_lane: Ints) -> Ints:
    """The place of each nonempty row within its lane, in order of rows; -1 for empty ones (lane -1)."""
    found = np.full(row_lane.size, -1, dtype=np.int64)
    for lane in range(int(row_lane.max(initial=-1)) + 1):
        mine = np.flatnonzero(row_lane == lane)
        found[mine] = np.arange(mine.size)
    return found
