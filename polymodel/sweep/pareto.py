"""The Pareto front of points that come in blocks: smaller is better in every objective."""

from __future__ import annotations

from typing import Any

import numpy as np

from polymodel.sweep.scratch import Scratch

Array = Any
GUARDS = 6
ROWS = 256  # points compared with each other at once
PAIRS = 2**18  # pairs of points compared at once: what fits the cache


class Front:
    """Points that no other point offered so far dominates; of equal ones that of the lowest number.

    `values` [objectives, n] and `ids` [n] are in lexicographic order.
    """

    def __init__(self, objectives: int) -> None:
        self.values = np.empty((objectives, 0))
        self.ids = np.empty(0, np.int64)
        self.guards = np.empty((objectives, 0))

    def hopeful(self, values: list[Array], masks: Scratch | None = None) -> Array:
        """False where a few well-placed front points already dominate: a cheap filter, in any shape.

        `masks`: memory of that shape.
        """
        masks = masks or Scratch(bool, values[0].shape)
        found: Array = False
        for guard in self.guards.T:
            least, more = True, False
            for value, limit in zip(values, guard, strict=True):
                least = masks.into(np.logical_and, least, masks.convert(np.greater_equal, value, limit))
                more = masks.into(np.logical_or, more, masks.convert(np.greater, value, limit))
            found = masks.into(np.logical_or, found, masks.into(np.logical_and, least, more))
        return np.logical_not(found)

    def offer(self, values: Array, ids: Array) -> None:
        """Take in points: values [objectives, n], ids [n]; also such as are in the front already."""
        new = ~self._beaten(values, ids)
        if not new.any():
            return
        values, ids = values[:, new], ids[new]
        order = np.lexsort((ids, *values[::-1]))
        values, ids = values[:, order], ids[order]
        kept = _staircase(values) if len(values) <= 2 else _undominated(values)
        values, ids = values[:, kept], ids[kept]
        old = (
            ~_beaten_by(self.values, self.ids, values, ids)
            if len(values) > 2
            else np.ones(len(self.ids), bool)
        )
        self._set(np.concatenate([self.values[:, old], values], axis=1), np.concatenate([self.ids[old], ids]))

    def _set(self, values: Array, ids: Array) -> None:
        order = np.lexsort((ids, *values[::-1]))
        values, ids = values[:, order], ids[order]
        if len(values) <= 2:
            kept = _staircase(values)
            values, ids = values[:, kept], ids[kept]
        self.values, self.ids = values, ids
        self.guards = self._guards()

    def only(self, positions: Array) -> None:
        """Leave out all points but these."""
        self.values, self.ids = self.values[:, positions], self.ids[positions]

    def _beaten(self, values: Array, ids: Array) -> Array:
        """True for points that the front has, or has a better one than."""
        if not len(self.ids):
            return np.zeros(len(ids), bool)
        if len(values) > 2:
            return _beaten_by(values, ids, self.values, self.ids)
        # One or two objectives: of the front's points that are no worse in the first, the last is the
        # best in the other.
        place = np.searchsorted(self.values[0], values[0], side="right") - 1
        best, number = self.values[:, np.maximum(place, 0)], self.ids[np.maximum(place, 0)]
        worse = best[-1] < values[-1]
        equal = best[-1] == values[-1]
        return (place >= 0) & (worse | equal & ((best[0] < values[0]) | (number <= ids)))

    def thinned(self, eps: float) -> Array:
        """Positions of points that come within 1 + eps of every other one in every objective.

        One point per cell of a logarithmic grid, the first in order; values of 0 have cells of their own.
        The cells are fixed, so that thinning again, and points that dominate those kept, stay within 1 + eps.
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
    kept = np.empty(0, int)
    for begin in range(0, values.shape[1], ROWS):
        mine = np.arange(begin, min(begin + ROWS, values.shape[1]))
        for some in np.array_split(kept, max(1, len(kept) * len(mine) // PAIRS)):
            mine = mine[~_at_most(values[:, some], values[:, mine]).any(axis=0)]
        earlier = np.triu(_at_most(values[:, mine], values[:, mine]), 1)
        kept = np.concatenate([kept, mine[~earlier.any(axis=0)]])
    return kept


def _at_most(a: Array, b: Array) -> Array:
    """[i, j]: a[:, i] is nowhere above b[:, j]."""
    found: Array = True
    for x, y in zip(a, b, strict=True):
        found = np.logical_and(found, x[:, None] <= y[None, :])
    return found


def _beaten_by(values: Array, ids: Array, others: Array, numbers: Array) -> Array:
    """True for points that one of the others dominates, or equals with a number that is not higher."""
    rest = np.arange(len(ids))
    step = max(1, PAIRS // max(1, len(ids)))
    for begin in range(0, len(numbers), step):
        if not len(rest):
            break
        some, mine = others[:, begin : begin + step], values[:, rest]
        least = _at_most(some, mine)
        equal = least & _at_most(-some, -mine)
        later = numbers[begin : begin + step, None] > ids[rest][None, :]
        rest = rest[~(least & ~(equal & later)).any(axis=0)]
    found = np.ones(len(ids), bool)
    found[rest] = False
    return found
