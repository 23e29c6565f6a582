"""Loads of tiles by their mean and variance, for models that know places or are no uniform data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polymodel.sparse.density.model import Floats, Ints
from polymodel.sparse.density.regions import Regions, turned
from polymodel.tiling.estimate.entry_capacity import most_entries
from polymodel.tiling.estimate.loads import Loads, either, tail, written
from polymodel.tiling.estimate.source import Source


@dataclass(frozen=True, eq=False)
class MomentSource(Source):
    """A and B under any models. `rolled`: B is A's rows moved down by so many; `second`: B's own model,
    `swapped` where it is told of the transposed matrix; neither: there is no B."""

    first: Regions
    rolled: int | None
    second: Regions | None
    swapped: bool = False

    @property
    def method(self) -> str:
        return "worked out from means and variances"

    @property
    def same(self) -> bool:
        return self.rolled is not None and self.rolled % self.shape[0] == 0

    def keys(self, rects: Ints) -> Ints:
        if self.second is None:
            return self.first.keys(rects)
        ours = self.first.keys(rects)
        theirs = turned(self.second.keys(turned(rects))) if self.swapped else self.second.keys(rects)
        return np.maximum(ours, theirs)

    def loads(self, rects: Ints) -> Loads:
        mean_a, var_a, rows_a = (f(rects) for f in (self.first.mean, self.first.variance, self.first.rows))
        mean_b, var_b, rows_b, together = self._other(rects)
        mean, variance = mean_a + mean_b, np.maximum(var_a + var_b + 2 * together, 0.0)
        share = np.where(mean > 0, mean_a / np.maximum(mean, 1e-300), 1.0 if self._single else 0.5)
        places, width = rects[:, 2] * rects[:, 3], rects[:, 3].astype(np.float64)
        height = _height(rects, np.where(mean_a >= mean_b, mean_a, mean_b), np.maximum(rows_a, rows_b))
        room = most_entries(self.fit, self.op, height, width, places, share, self.same)
        apart = np.maximum(var_a + var_b - 2 * together, 0.0) / np.maximum(mean, 1e-300)
        if self.op == "add":
            over, both = tail(room, mean, variance), room.astype(np.float64)
        else:
            over = either(room, (mean_a, var_a), (mean_b, var_b), together)
            both = room / np.maximum(share, 1 - share)
        # What has room for all of its places is never over, though a law by moments may reach above them.
        every = places if self.op == "multiply" or self._single else 2 * places
        over = np.where(room >= every, 0.0, over)
        entries, mass = written(both, mean, variance, 1 - over)
        return Loads(over, entries, mass, mean, variance, share, both, apart, height, width)

    @property
    def _single(self) -> bool:
        return self.rolled is None and self.second is None

    def _other(self, rects: Ints) -> tuple[Floats, Floats, Floats, Floats]:
        """Mean, variance and rows of B, and its covariance with A."""
        none = np.zeros(rects.shape[0])
        if self._single:
            return none, none, none, none
        if self.second is not None:
            if not self.swapped:
                found = self.second.mean(rects), self.second.variance(rects), self.second.rows(rects)
                return *found, none
            there = turned(rects)
            mean = self.second.mean(there)
            height = rects[:, 2].astype(np.float64)
            rows: Floats = height * -np.expm1(-mean / np.maximum(height, 1.0))
            return mean, self.second.variance(there), rows, none
        total, by = self.shape[0], (self.rolled or 0) % self.shape[0]
        start, stop = rects[:, 0], rects[:, 0] + rects[:, 2]
        # Rows start - by .. of A, in the two pieces before and after the roll's end.
        above = _rows(rects, np.maximum(start - by, 0), np.maximum(stop - by, 0))
        wrapped = _rows(rects, np.minimum(start - by + total, total), np.minimum(stop - by + total, total))
        parts = (above, wrapped)
        mean = self.first.mean(above) + self.first.mean(wrapped)
        variance = self.first.variance(above) + self.first.variance(wrapped)
        rows = self.first.rows(above) + self.first.rows(wrapped)
        shared: Floats = none
        for part in parts:
            low = np.maximum(part[:, 0], start)
            high = np.maximum(np.minimum(part[:, 0] + part[:, 2], stop), low)
            shared = shared + self.first.variance(_rows(rects, low, high))
        return mean, variance, rows, shared


def _rows(rects: Ints, low: Ints, high: Ints) -> Ints:
    """The same columns in rows low .. high - 1; an empty piece begins within the matrix."""
    height = np.maximum(high - low, 0)
    start = np.where(height > 0, low, 0)
    return np.stack([start, rects[:, 1], height, rects[:, 3]], axis=1)


def _height(rects: Ints, mean: Floats, rows: Floats) -> Floats:
    """Rows that entries at random places would be spread over to leave as many nonempty: h (1 - e^(-n/h))."""
    top = rects[:, 2].astype(np.float64)
    low, high = np.zeros_like(top), top
    for _ in range(40):
        middle = (low + high) / 2
        few = middle * -np.expm1(-mean / np.maximum(middle, 1e-12)) < rows
        low, high = np.where(few, middle, low), np.where(few, high, middle)
    return np.maximum(high, 1e-9)
