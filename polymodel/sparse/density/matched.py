"""Laws of counts that are given by their moments: binomial, Poisson or negative binomial, whichever has them.

A count that is a sum of independent yes-or-no terms has a variance below its mean, one that clusters has one
above it. The law of the same mean and variance in the family of Panjer stands for it, shifted by what is
sure, with the probability of zero replaced by the one that is known. Equal terms are binomial: there it is
exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from polymodel.sparse.density.laws import RARE
from polymodel.sparse.density.model import Floats

# Variances this near to the mean (relative), and to zero, are those of a Poisson law and of a sure count.
_EQUAL, _SURE = 1e-7, 1e-9


@dataclass(frozen=True, eq=False)
class Counts:
    """Laws of counts, one per entry: `mean`, `variance`, ln P(0), nonzeros that are `sure`, and the `most`
    there is room for."""

    mean: Floats
    variance: Floats
    log_empty: Floats
    sure: Floats
    most: Floats

    def only(self, chosen: NDArray[np.int64]) -> Counts:
        """Some of the entries."""
        return Counts(
            self.mean[chosen], self.variance[chosen], self.log_empty[chosen], self.sure[chosen],
            self.most[chosen],
        )  # fmt: skip

    @cached_property
    def filled(self) -> Floats:
        """P(not 0)."""
        found: Floats = -np.expm1(self.log_empty)
        return found

    @cached_property
    def reach(self) -> Floats:
        """What is not exceeded but for e^-40, also by a law with a wide upper tail."""
        spread = np.maximum(self.variance, 0.0)
        wide = np.maximum(self.variance / np.maximum(self.mean, 1e-300), 1.0)
        found: Floats = np.minimum(self.mean + np.sqrt(2 * RARE * spread) + RARE * wide, self.most)
        return found

    @cached_property
    def least(self) -> Floats:
        """What is reached but for e^-40."""
        spread = np.sqrt(2 * RARE * np.maximum(self.variance, 0.0))
        return np.maximum(self.mean - spread, self.sure)

    @cached_property
    def _free(self) -> Floats:
        """Mean beyond what is sure."""
        return np.maximum(self.mean - self.sure, 0.0)

    def _plain(self, s: Floats) -> Floats:
        """P(the part that is not sure exceeds s) of the matched law, entries x s (or broadcast)."""
        from scipy.special import betainc, gammainc

        mean, variance = self._free[:, None], self.variance[:, None]
        s = np.broadcast_to(s, np.broadcast_shapes(s.shape, mean.shape)).astype(np.float64)
        mean, variance = np.broadcast_to(mean, s.shape), np.broadcast_to(variance, s.shape)
        found = (np.rint(mean) > s).astype(np.float64)
        some = variance > _SURE * np.maximum(mean, 1e-12)
        poisson = some & (np.abs(variance - mean) <= _EQUAL * mean)
        low, high = some & ~poisson & (variance < mean), some & ~poisson & (variance > mean)
        # What is beyond reach on either side is not looked at.
        low_end, high_end = (self.least - self.sure)[:, None] - 1, (self.reach - self.sure)[:, None]
        under = s < np.maximum(low_end, 0)
        inside = ~under & (s <= high_end)
        at = poisson & inside
        found[at] = gammainc(s[at] + 1, mean[at])
        at = low & inside
        share = 1 - variance[at] / mean[at]
        trials = mean[at] / share
        rest = np.maximum(trials - s[at], 1e-300)
        found[at] = np.where(s[at] < trials, betainc(s[at] + 1, rest, share), 0.0)
        at = high & inside
        beyond = variance[at] - mean[at]
        found[at] = betainc(s[at] + 1, mean[at] ** 2 / beyond, beyond / variance[at])
        found[under & (some | (s < 0))] = 1.0
        found[some & (s > high_end)] = 0.0
        return found

    @cached_property
    def _stretch(self) -> Floats:
        """What brings P(not 0) of the matched law to the one that is known."""
        own = self._plain(np.zeros((self.mean.size, 1)))[:, 0]
        scale = np.divide(self.filled, own, out=np.ones_like(own), where=own > 0)
        return np.where(self.sure > 0, 1.0, scale)

    def above(self, s: Floats) -> Floats:
        """P(more than s), entries x values of s."""
        return self._above(np.asarray(s, dtype=np.float64)[None, :])

    def above_own(self, s: Floats) -> Floats:
        """P(more than s), one s for each entry."""
        return self._above(np.asarray(s, dtype=np.float64)[:, None])[:, 0]

    def _above(self, s: Floats) -> Floats:
        found = self._plain(s - self.sure[:, None]) * self._stretch[:, None]
        return np.where(s < 0, 1.0, np.where(s >= self.most[:, None], 0.0, np.minimum(found, 1.0)))

    def at(self, x: Floats) -> Floats:
        """P(exactly x), one x for each entry."""
        return self.above_own(np.asarray(x) - 1.0) - self.above_own(x)

    def log_generating(self, z: Floats) -> Floats:
        """ln E[z^X], one z in [0, 1] for each entry."""
        with np.errstate(divide="ignore", invalid="ignore"):
            plain = self._log_plain(z)
            whole = np.where(self.sure > 0, self.sure * np.log(z), 0.0)
            # As the law itself: what is not zero is stretched.
            grown = -np.expm1(plain) * self._stretch
            found: Floats = np.log1p(-np.minimum(grown, 1.0)) + whole
        # At z = 0 that is P(0), known better than by differences.
        return np.where(z <= 0, self.log_empty, np.where(z >= 1, 0.0, np.minimum(found, 0.0)))

    @property
    def log_plain_empty(self) -> Floats:
        """ln P(0) of the matched law itself, without what is sure."""
        return self._log_plain(np.zeros_like(self.mean))

    def _log_plain(self, z: Floats) -> Floats:
        """ln E[z^X] of the matched law, without what is sure."""
        mean, variance = self._free, np.maximum(self.variance, 0.0)
        share = np.where(mean > 0, 1 - variance / np.maximum(mean, 1e-300), 0.0)
        flat = np.abs(share) <= _EQUAL
        with np.errstate(divide="ignore", invalid="ignore"):
            inner = np.log1p(-np.where(flat, 0.0, share) * (1 - z)) / np.where(flat, 1.0, share)
            found: Floats = mean * np.where(flat, z - 1, inner)
        return np.where(mean > 0, found, 0.0)
