"""Distributions of the nonzeros of rectangles that diagonals of different fill cross, listed exactly."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from polymodel.frozen import dataclass
from polymodel.sparse.density.laws import CountLaws, grouped
from polymodel.sparse.density.model import Floats, Ints

# Entries of a block of work, and products of matrices for which distributions are listed.
_ENTRIES, _PRODUCTS = 1 << 22, 1 << 30
# The most numbers by which rectangles are compared.
_KEYS = 64
# The logarithm that replaces that of 0, and probabilities that are noise of the transform.
_NEVER, _NOISE = 1e-300, 1e-15


@dataclass(frozen=True, eq=False)
class PointCounts:
    """Independent points of rectangles by the probability that they are nonzero: `single[r, g]` points of
    probability `share[g]`, and `twice[r, g]` pairs of points that are nonzero together."""

    share: Floats
    single: Floats
    twice: Floats

    def only(self, chosen: Ints) -> PointCounts:
        """Return the points of the chosen rectangles."""
        return PointCounts(self.share, self.single[chosen], self.twice[chosen])

    @property
    def alike(self) -> bool:
        """Whether all uncertain points are single and have the same probability: their number is binomial."""
        some = (self.share > 0) & (self.share < 1)
        there = some & (self.single > 0).any(axis=0)
        return not self.twice[:, some].any() and np.unique(self.share[there]).size <= 1

    @property
    def most(self) -> Floats:
        """The number of points that may be nonzero."""
        some = self.share > 0
        result: Floats = (self.single[:, some] + 2 * self.twice[:, some]).sum(axis=1)
        return result

    def written(self, length: int) -> Floats:
        """Return P(0), P(1), .. nonzeros of each rectangle, below `length`, which is beyond all that have a
        probability.

        Computed from the generating function, the product over g of (1 - p + p z)^single
        (1 - p + p z^2)^twice, on the unit circle.
        """
        turn = np.exp(-2j * np.pi * np.arange(length // 2 + 1) / length)
        some = np.flatnonzero((self.share > 0) & ((self.single > 0) | (self.twice > 0)).any(axis=0))
        share = self.share[some, None]
        power = np.zeros((self.single.shape[0], turn.size), dtype=np.complex128)
        for many, step in ((self.single, turn), (self.twice, turn**2)):
            one = 1 + share * (step - 1)
            logs = np.log(np.maximum(np.abs(one), _NEVER)) + 1j * np.angle(one)
            power += many[:, some] @ logs
        result: Floats = np.fft.irfft(np.exp(power), n=length, axis=1)
        return np.where(result < _NOISE, 0.0, result)


@dataclass(frozen=True, eq=False)
class ListedLaws(CountLaws):
    """Distributions of counts of independent points, listed; matched by moments where the lists would be too
    long."""

    points: PointCounts

    @cached_property
    def reach(self) -> Floats:
        """A value that is exceeded with probability e^-40 or less."""
        return self.far if self.points.twice.any() else super().reach

    def only(self, chosen: Ints) -> ListedLaws:
        plain = super().only(chosen)
        return ListedLaws(
            plain.mean, plain.variance, plain.log_empty, plain.sure, plain.most, self.points.only(chosen)
        )  # fmt: skip

    def alike(self) -> tuple[Ints, Ints]:
        some = (self.points.share > 0) & (self.points.share < 1)
        sure = self.points.share == 1
        whole = self.points.single[:, sure].sum(axis=1) + 2 * self.points.twice[:, sure].sum(axis=1)
        keys = [whole, *self.points.single[:, some].T, *self.points.twice[:, some].T]
        return grouped(keys) if len(keys) <= _KEYS else super().alike()

    def _above(self, s: Floats) -> Floats:
        length = 1 << int(self.reach.max(initial=1.0) + 1).bit_length()
        if float(length) * self.points.single.size > _PRODUCTS or self.points.alike:
            return super()._above(s)
        result = np.empty(np.broadcast_shapes(s.shape, (self.mean.size, 1)))
        step = max(1, _ENTRIES // length)
        for start in range(0, self.mean.size, step):
            own = np.arange(start, min(start + step, self.mean.size))
            asked = np.floor(s[own] if s.shape[0] > 1 else s)
            written = self.points.only(own).written(length)
            tails = np.minimum(np.cumsum(written[:, ::-1], axis=1)[:, ::-1], 1.0)
            place = np.clip(asked + 1, 0, length - 1).astype(np.int64)
            value = np.take_along_axis(tails, np.broadcast_to(place, result[own].shape), axis=1)
            beyond = asked >= np.minimum(self.most[own], length - 2)[:, None]
            result[own] = np.where(asked < 0, 1.0, np.where(beyond, 0.0, value))
        return result
