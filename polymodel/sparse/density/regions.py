"""Mean, variance and nonempty rows of rectangles of a matrix under a density model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from polymodel.sparse.density.hypergeometric import Hypergeometric
from polymodel.sparse.density.laws import Law
from polymodel.sparse.density.matched import Counts
from polymodel.sparse.density.model import DensityModel, Floats, Ints

_LEAST = 1e-12
# What stands for a probability of 0 where logarithms are added up and taken away again.
NEVER = 1e-300


class Regions(ABC):
    """What rectangles of one operand hold: arrays of first row, height, first column and width in."""

    @abstractmethod
    def keys(self, rects: Ints) -> Ints:
        """Rectangles (k x row, column, height, width) with what does not matter set to 0."""

    @abstractmethod
    def mean(self, rects: Ints) -> Floats:
        """Expected entries."""

    @abstractmethod
    def variance(self, rects: Ints) -> Floats:
        """Variance of the entries."""

    @abstractmethod
    def rows(self, rects: Ints) -> Floats:
        """Expected nonempty rows."""

    @abstractmethod
    def log_empty(self, rects: Ints) -> Floats:
        """ln P(no entry)."""

    def sure(self, rects: Ints) -> Floats:
        """Entries that are there for certain."""
        return np.zeros(rects.shape[0])

    def reach(self, start: Ints, size: Ints) -> tuple[Ints, Ints]:
        """The first column that may hold an entry of these rows, and the one after the last."""
        return np.zeros_like(start), np.full_like(start, np.iinfo(np.int64).max)

    def above(self, rects: Ints, s: Ints) -> Floats:
        """P(more than s entries), rectangles x values of s."""
        return self.laws(rects).above(s.astype(np.float64))

    def laws(self, rects: Ints) -> Counts:
        """The laws of the entries of each."""
        most = rects[:, 2].astype(np.float64) * rects[:, 3]
        variance = np.maximum(self.variance(rects), 0.0)
        return Counts(self.mean(rects), variance, self.log_empty(rects), self.sure(rects), most)


def untouched(width: ArrayLike, area: ArrayLike, entries: ArrayLike) -> Floats:
    """P(a slice of `width` of the `area` places holds none of `entries` entries).

    The product of (1 - more / (area - i)) over i < fewer, of width and entries the fewer and the more, with
    all factors at their middle: entries may then be an average, and no logarithms cancel.
    """
    fewer, more = np.minimum(width, entries), np.maximum(width, entries)
    middle = np.maximum(np.asarray(area) - (fewer - 1) / 2, _LEAST)
    found: Floats = np.where(fewer > 0, np.clip(1 - more / middle, 0.0, 1.0) ** np.maximum(fewer, 0), 1.0)
    return found


def _none_inside(inside: Ints, extent: Ints, held: Ints) -> Floats:
    """P(a part of a group of `extent` places, with `held` entries, has none), to rounding."""
    from scipy.special import gammaln

    left = extent - inside
    ways = gammaln(left + 1) - gammaln(np.maximum(left - held, 0) + 1)
    every = gammaln(extent + 1) - gammaln(extent - held + 1)
    found: Floats = np.where(left >= held, np.exp(ways - every), 0.0)
    return found


def turned(rects: Ints) -> Ints:
    """Rectangles of the transposed matrix."""
    return rects[:, [1, 0, 3, 2]]


@dataclass(frozen=True)
class OfPoints(Regions):
    """The number of points decides."""

    law: Hypergeometric

    def keys(self, rects: Ints) -> Ints:
        return _placeless(rects)

    def mean(self, rects: Ints) -> Floats:
        return self.law.mean(rects[:, 2].astype(np.float64) * rects[:, 3])

    def variance(self, rects: Ints) -> Floats:
        return self.law.variance(rects[:, 2].astype(np.float64) * rects[:, 3])

    def rows(self, rects: Ints) -> Floats:
        return rects[:, 2].astype(np.float64) * self.law.p_nonempty(rects[:, 3])

    def log_empty(self, rects: Ints) -> Floats:
        return self.law.log_p_empty(rects[:, 2] * rects[:, 3])

    def above(self, rects: Ints, s: Ints) -> Floats:
        return self.law.sf((rects[:, 2] * rects[:, 3])[:, None], s[None, :])


@dataclass(frozen=True)
class OfSizes(Regions):
    """The sizes of a rectangle decide, not its place."""

    model: DensityModel

    def keys(self, rects: Ints) -> Ints:
        return _placeless(rects)

    def mean(self, rects: Ints) -> Floats:
        return self.model.expected(_sizes(rects))

    def variance(self, rects: Ints) -> Floats:
        return self.model.variance(_sizes(rects))

    def rows(self, rects: Ints) -> Floats:
        one = np.stack([np.ones_like(rects[:, 3]), np.maximum(rects[:, 3], 1)], axis=1)
        found: Floats = rects[:, 2].astype(np.float64) * self.model.p_nonempty(one)
        return found

    def log_empty(self, rects: Ints) -> Floats:
        return _log(self.model.p_empty(_sizes(rects)))

    def above(self, rects: Ints, s: Ints) -> Floats:
        found: Floats = 1 - self.model.cdf(_sizes(rects)[:, None, :], s[None, :])
        return found


@dataclass(frozen=True)
class OfGroups(Regions):
    """n of every m along `axis`: whole groups are sure, parts of groups at both ends are hypergeometric.

    `law`: of the entries between a start and a size along the groups, in so many fibers.
    """

    shape: tuple[int, ...]
    n: int
    m: int
    axis: int
    law: Callable[[int, int, int], Law]

    def keys(self, rects: Ints) -> Ints:
        found = _placeless(rects)
        # Where it begins in a group matters, and whether the last, shorter group is reached.
        start, m = rects[:, self.axis], self.m
        whole = self.shape[self.axis] // m * m
        ends = start + rects[:, 2 + self.axis] > whole
        found[:, self.axis] = np.where(ends, start, start % m)
        return found

    def mean(self, rects: Ints) -> Floats:
        return self._parts(rects)[0] * rects[:, 3 - self.axis]

    def variance(self, rects: Ints) -> Floats:
        return self._parts(rects)[1] * rects[:, 3 - self.axis]

    def rows(self, rects: Ints) -> Floats:
        mean, _, none = self._parts(rects)
        if self.axis == 1:
            whole: Floats = rects[:, 2].astype(np.float64) * (1 - none)
            return whole
        per = np.minimum(mean / np.maximum(rects[:, 2], 1), 1.0)
        spread: Floats = rects[:, 2].astype(np.float64) * (1 - (1 - per) ** rects[:, 3])
        return spread

    def log_empty(self, rects: Ints) -> Floats:
        return rects[:, 3 - self.axis] * _log(self._parts(rects)[2])

    def above(self, rects: Ints, s: Ints) -> Floats:
        kinds, place = np.unique(self.keys(rects), axis=0, return_inverse=True)
        axis = self.axis
        laws = [self.law(int(k[axis]), int(k[2 + axis]), int(k[3 - axis])) for k in kinds]
        return np.array([law.sf(s) for law in laws])[place.reshape(-1)]

    def _parts(self, rects: Ints) -> tuple[Floats, Floats, Floats]:
        """Of one fiber of the groups: mean, variance and P(none)."""
        start, size = rects[:, self.axis], rects[:, 2 + self.axis]
        length, m, n = self.shape[self.axis], self.m, self.n
        first, last = start // m, (start + size - 1) // m
        mean, variance = np.zeros(size.shape), np.zeros(size.shape)
        none = np.ones(size.shape)
        inner = np.maximum(last - first - 1, 0)
        mean += inner * n
        none[(inner > 0) & (n > 0)] = 0.0
        for group, counted in ((first, np.ones_like(first, dtype=bool)), (last, last > first)):
            low, high = group * m, np.minimum((group + 1) * m, length)
            inside = np.minimum(high, start + size) - np.maximum(low, start)
            extent = high - low
            held = np.minimum(n, extent)
            share = inside / np.maximum(extent, 1)
            own = held * share * (1 - share) * (extent - held) / np.maximum(extent - 1, 1)
            mean += np.where(counted, held * share, 0.0)
            variance += np.where(counted, own, 0.0)
            none *= np.where(counted, _none_inside(inside, extent, held), 1.0)
        return np.where(size > 0, mean, 0.0), np.where(size > 0, variance, 0.0), np.where(size > 0, none, 1.0)


@dataclass(frozen=True, eq=False)
class OfLines(Regions):
    """So many entries in each row (axis 0) or column (axis 1), at random places of `length`."""

    axis: int
    length: int
    sums: Floats
    spreads: Floats
    counts: Ints
    empty: Floats

    @classmethod
    def of(cls, counts: Ints, length: int, axis: int) -> OfLines:
        n = counts.astype(np.float64)
        spread = n * (length - n) / max(length - 1, 1)
        with np.errstate(divide="ignore"):
            empty = np.maximum(np.log1p(-n / length), -50.0)
        return cls(axis, length, summed(n), summed(spread), counts, summed(empty))

    def keys(self, rects: Ints) -> Ints:
        found = rects.copy()
        found[:, 1 - self.axis] = 0
        return found

    def _over(self, sums: Floats, rects: Ints) -> Floats:
        start = rects[:, self.axis]
        found: Floats = sums[start + rects[:, 2 + self.axis]] - sums[start]
        return found

    def mean(self, rects: Ints) -> Floats:
        return self._over(self.sums, rects) * rects[:, 3 - self.axis] / self.length

    def variance(self, rects: Ints) -> Floats:
        share = rects[:, 3 - self.axis] / self.length
        return self._over(self.spreads, rects) * share * (1 - share)

    def log_empty(self, rects: Ints) -> Floats:
        found = np.zeros(rects.shape[0])
        widths, place = np.unique(rects[:, 3 - self.axis], return_inverse=True)
        for i, width in enumerate(widths):
            here = place.reshape(-1) == i
            none = untouched(float(width), float(self.length), self.counts.astype(np.float64))
            found[here] = self._over(summed(_log(none)), rects[here])
        return found

    def rows(self, rects: Ints) -> Floats:
        if self.axis == 1:
            found: Floats = rects[:, 2].astype(np.float64) * -np.expm1(self._over(self.empty, rects))
            return found
        widths, place = np.unique(rects[:, 3], return_inverse=True)
        present = np.zeros(rects.shape[0])
        for i, width in enumerate(widths):
            here = place.reshape(-1) == i
            some = 1 - untouched(float(width), float(self.length), self.counts.astype(np.float64))
            sums = summed(some)
            present[here] = self._over(sums, rects[here])
        return present


def _log(share: Floats) -> Floats:
    """Logarithms; of what never happens one whose sums stay finite."""
    found: Floats = np.log(np.maximum(share, NEVER))
    return found


def summed(values: Floats) -> Floats:
    """Sums of the values before each place, and of all."""
    found: Floats = np.concatenate([np.zeros(1), np.cumsum(values)])
    return found


def _placeless(rects: Ints) -> Ints:
    found = rects.copy()
    found[:, :2] = 0
    return found


def _sizes(rects: Ints) -> Ints:
    return np.maximum(rects[:, 2:], 1)
