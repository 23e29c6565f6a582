"""The Pareto front of points that come in blocks: smaller is better in every objective."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any
GUARDS = 6


class Front:
    """Points that no other point offered so far dominates; of equal ones that of the lowest number."""

    def __init__(self, objectives: int) -> None:
        self.values = np.empty((objectives, 0))
        self.ids = np.empty(0, np.int64)
        self.guards = np.empty((objectives, 0))

    def hopeful(self, values: list[Array]) -> Array:
        """False where a few well-placed front points already dominate: a cheap filter, in any shape."""
        found: Array = None
        for guard in self.guards.T:
            least, more = True, False
            for value, limit in zip(values, guard, strict=True):
                least = np.logical_and(least, value >= limit)
                more = np.logical_or(more, value > limit)
            worse = np.logical_and(least, more)
            found = worse if found is None else np.logical_or(found, worse)
        return True if found is None else ~found

    def offer(self, values: Array, ids: Array) -> None:
        """Take in points: values [objectives, n], ids [n]."""
        if not len(ids):
            return
        values = np.concatenate([self.values, values], axis=1)
        ids = np.concatenate([self.ids, ids])
        order = np.lexsort((ids, *values[::-1]))
        values, ids = values[:, order], ids[order]
        kept = _staircase(values) if len(values) <= 2 else _undominated(values)
        self.values, self.ids = values[:, kept], ids[kept]
        self.guards = self._guards()

    def thinned(self, eps: float) -> Array:
        """Positions of points that come within 1 + eps of every other one in every objective.

        One point per cell of a logarithmic grid, the first in order; values of 0 have cells of their own.
        """
        if not eps or not len(self.ids):
            return np.arange(len(self.ids))
        with np.errstate(divide="ignore"):
            cells = np.floor(np.log(self.values) / np.log1p(eps))
        first = np.unique(cells, axis=1, return_index=True)[1]
        return np.sort(first)

    def _guards(self) -> Array:
        n = self.values.shape[1]
        scaled = np.log(np.maximum(self.values, 1e-300))
        low, high = scaled.min(axis=1, keepdims=True), scaled.max(axis=1, keepdims=True)
        spread = (scaled - low) / np.where(high > low, high - low, 1)
        chosen = {int(np.argmin(spread.sum(axis=0)))}
        for weight in np.eye(len(self.values)) * 4 + 1:
            chosen.add(int(np.argmin(weight @ spread)))
        return self.values[:, sorted(chosen)[: min(n, GUARDS)]]


def _staircase(values: Array) -> Array:
    """Points in lexicographic order of one or two objectives."""
    last = values[-1]
    before = np.concatenate([[np.inf], np.minimum.accumulate(last)[:-1]])
    return np.flatnonzero(last < before) if len(values) == 2 else np.array([0])


def _undominated(values: Array) -> Array:
    """Any number of objectives: sorted points are dominated only by earlier ones."""
    kept: list[int] = []
    rest = np.arange(values.shape[1])
    while len(rest):
        kept.append(int(rest[0]))
        rest = rest[1:]
        rest = rest[(values[:, rest] < values[:, kept[-1], None]).any(axis=0)]
    return np.array(kept, int)
