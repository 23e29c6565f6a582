"""The lower left staircase of many points in two figures, with where each one came from."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


class Front:
    """Points that no other beats in both figures; of equal ones the first that was offered."""

    def __init__(self) -> None:
        self.capacity: Ints = np.zeros(0, dtype=np.int64)
        self.accesses: Ints = np.zeros(0, dtype=np.int64)
        self.which: Ints = np.zeros((0, 2), dtype=np.int64)
        self.sources: list[object] = []
        self.offered = 0

    def offer(self, capacity: Ints, accesses: Ints, source: object) -> None:
        self.offered += len(capacity)
        better = self._hopeful(capacity, accesses)
        if not len(better):
            return
        self.sources.append(source)
        number = np.full(len(better), len(self.sources) - 1, dtype=np.int64)
        capacity = np.concatenate((self.capacity, capacity[better]))
        accesses = np.concatenate((self.accesses, accesses[better]))
        which = np.concatenate((self.which, np.stack((number, better), axis=1)))
        order = np.lexsort((np.arange(len(capacity)), accesses, capacity))
        sorted_ = accesses[order]
        lowest = np.concatenate(([np.iinfo(np.int64).max], np.minimum.accumulate(sorted_)[:-1]))
        keep = order[sorted_ < lowest]
        self.capacity, self.accesses, self.which = capacity[keep], accesses[keep], which[keep]

    def _hopeful(self, capacity: Ints, accesses: Ints) -> Ints:
        """Positions of points that the front does not beat or equal."""
        if not len(self.capacity):
            return np.arange(len(capacity))
        below = np.searchsorted(self.capacity, capacity, side="right") - 1
        bound = np.where(below >= 0, self.accesses[np.maximum(below, 0)], np.iinfo(np.int64).max)
        return np.flatnonzero(accesses < bound)
