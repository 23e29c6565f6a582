"""Slices on lanes: what each row of PEs has to do, for the whole tensor or tile by tile.

A slice goes whole to the lane with the least data so far, ties to the lowest: in CISS it weighs its nonzeros
and a header, in `uniform_slice` its nonzeros.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polymodel.sparse.assign import least_loaded, part_loads

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
# Fewer tiles than this are done one by one.
_FEW = 64


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
    """Greedy lanes in every tile. O(slices x lanes), vectorised over tiles."""
    if not slices.number:
        none = np.zeros(0, dtype=np.int64)
        return TileTimes(none, none, none)
    starts = np.flatnonzero(np.concatenate(([True], slices.tile[1:] != slices.tile[:-1])))
    counts = np.diff(np.append(starts, slices.number))
    slots = slices.nnz + 1
    steps = slots + per_fiber * slices.fibers
    if starts.size < _FEW:
        pairs = [_one(slots[a : a + n], steps[a : a + n], lanes) for a, n in zip(starts, counts, strict=True)]
        found = np.array(pairs, dtype=np.int64)
        return TileTimes(found[:, 0], found[:, 1], counts)
    entries, busiest = _many(slots, steps, starts, counts, lanes)
    return TileTimes(entries, busiest, counts)


def _one(slots: Ints, steps: Ints, lanes: int) -> tuple[int, int]:
    lane = least_loaded(slots, lanes)
    return int(part_loads(slots, lane, lanes).max()), int(part_loads(steps, lane, lanes).max())


def _many(slots: Ints, steps: Ints, starts: Ints, counts: Ints, lanes: int) -> tuple[Ints, Ints]:
    """All tiles side by side: the first slice of each, then the second of those that have one, and so on."""
    order = np.argsort(-counts, kind="stable")
    starts, counts = starts[order], counts[order]
    data = np.zeros((starts.size, lanes), dtype=np.int64)
    work = np.zeros((starts.size, lanes), dtype=np.int64)
    rows = np.arange(starts.size)
    active = starts.size
    for position in range(int(counts[0])):
        while counts[active - 1] <= position:
            active -= 1
        lane = data[:active].argmin(axis=1)
        here = starts[:active] + position
        data[rows[:active], lane] += slots[here]
        work[rows[:active], lane] += steps[here]
    back = np.empty_like(order)
    back[order] = rows
    return data.max(axis=1)[back], work.max(axis=1)[back]


def positions(row_lane: Ints) -> Ints:
    """The place of each nonempty row within its lane, in order of rows; -1 for empty ones (lane -1)."""
    found = np.full(row_lane.size, -1, dtype=np.int64)
    for lane in range(int(row_lane.max(initial=-1)) + 1):
        mine = np.flatnonzero(row_lane == lane)
        found[mine] = np.arange(mine.size)
    return found


def slot_maxima(loads: Ints, lane: Ints) -> int:
    """Sum over places of the largest load at that place in any lane: lock-step time of rows of `loads`."""
    place = positions(lane)
    kept = place >= 0
    most = np.zeros(int(place.max(initial=-1)) + 1, dtype=np.int64)
    np.maximum.at(most, place[kept], loads[kept])
    return int(most.sum())
