"""Distributions of whole numbers: listed, or normal where the list would be too long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polymodel.errors import InternalError
from polymodel.frozen import dataclass
from polymodel.sparse.density.model import Floats, Ints

Complex = NDArray[np.complex128]
# The longest distribution that is listed, and the exponent of probabilities that are neglected.
LONGEST, RARE = 1 << 22, 40.0
# Entries of a block of work.
_BLOCK = 1 << 21


@dataclass(frozen=True, eq=False)
class Law:
    """A distribution with P(start + i) = `pmf[i]`. Without `pmf` it is normal with this mean and variance, or
    a mixture of `normals`.

    `normals`: means, variances and weights.
    """

    mean: float
    variance: float
    start: int = 0
    pmf: Floats | None = None
    normals: tuple[Floats, Floats, Floats] | None = None

    @cached_property
    def below(self) -> Floats:
        """P(at most start + i)."""
        result: Floats = np.minimum(np.cumsum(self._written), 1.0)
        return result

    @cached_property
    def above(self) -> Floats:
        """P(more than start + i)."""
        result: Floats = np.concatenate((np.cumsum(self._written[:0:-1])[::-1], [0.0]))
        return result

    @cached_property
    def _normals(self) -> tuple[Floats, Floats, Floats]:
        """Means, standard deviations and weights."""
        means, variances, weights = self.normals or (
            np.array([self.mean]),
            np.array([self.variance]),
            np.ones(1),
        )
        return means, np.sqrt(np.maximum(variances, 1e-12)), weights / weights.sum()

    @property
    def _written(self) -> Floats:
        if self.pmf is None:
            raise InternalError("a normal law is not written out")
        return self.pmf

    @property
    def first(self) -> int:
        """A value below which the probability is negligible."""
        if self.pmf is not None:
            return self.start
        return max(0, int((self._normals[0] - 12 * self._normals[1]).min()))

    @property
    def last(self) -> int:
        """A value above which the probability is negligible."""
        if self.pmf is None:
            return int((self._normals[0] + 12 * self._normals[1]).max()) + 1
        return self.start + self.pmf.size - 1

    def cdf(self, s: ArrayLike) -> Floats:
        """P(at most s)."""
        wanted = np.floor(np.asarray(s, dtype=np.float64))
        if self.pmf is None:
            return 1 - self.sf(wanted)
        place = np.clip(wanted - self.start, -1, self.pmf.size - 1).astype(np.int64)
        return np.where(place < 0, 0.0, self.below[place])

    def sf(self, s: ArrayLike) -> Floats:
        """P(more than s)."""
        wanted = np.floor(np.asarray(s, dtype=np.float64))
        if self.pmf is None:
            return self._normal_sf(wanted)
        place = np.clip(wanted - self.start, -1, self.pmf.size - 1).astype(np.int64)
        return np.where(place < 0, 1.0, self.above[place])

    def _normal_sf(self, s: Floats) -> Floats:
        from scipy.special import ndtr

        means, spreads, weights = self._normals
        result = np.zeros(s.shape)
        flat, out = s.reshape(-1), result.reshape(-1)
        step = max(1, _BLOCK // means.size)
        for start in range(0, flat.size, step):
            part = slice(start, start + step)
            out[part] = ndtr((means - flat[part, None] - 0.5) / spreads) @ weights
        return result

    def quantile(self, confidence: ArrayLike) -> Ints:
        """Return the smallest s with P(at most s) >= confidence (less a rounding of 1e-13)."""
        wanted = np.asarray(confidence, dtype=np.float64) - 1e-13
        if self.pmf is not None:
            place = np.searchsorted(self.below, wanted)
            return self.start + np.minimum(place, self.below.size - 1).astype(np.int64)
        under = np.full(wanted.shape, self.first - 1, dtype=np.int64)
        over = np.full(wanted.shape, self.last, dtype=np.int64)
        while (over - under > 1).any():
            middle = under + (over - under) // 2
            reached = self.cdf(middle) >= wanted
            under, over = np.where(reached, under, middle), np.where(reached, middle, over)
        return over


def counted(values: ArrayLike, weights: ArrayLike) -> Law:
    """Return the distribution of values that occur with these weights (which need not add up to 1)."""
    points, place = np.unique(np.asarray(values, dtype=np.int64), return_inverse=True)
    share = np.bincount(place.reshape(-1), weights=np.asarray(weights, dtype=np.float64))
    share = share / share.sum()
    mean = float(share @ points)
    variance = float(share @ (points - mean) ** 2)
    if points[-1] - points[0] > LONGEST:
        return Law(mean, variance, normals=(points.astype(np.float64), np.zeros(points.size), share))
    pmf = np.zeros(int(points[-1] - points[0]) + 1)
    pmf[points - points[0]] = share
    return Law(mean, variance, int(points[0]), pmf)


def transformed(
    transform: Callable[[Complex], Complex], mean: float, variance: float, low: int, high: int
) -> Law:
    """Return the distribution on low .. high whose generating function is `transform`, computed from its
    values on the unit circle."""
    if high - low > LONGEST:
        return Law(mean, variance)
    length = 1 << max(0, int(high - low).bit_length())
    turn = np.exp(2j * np.pi * np.arange(length) / length)
    shift = np.exp(-2j * np.pi * (low * np.arange(length) % length) / length)
    pmf = (np.fft.fft(transform(turn) * shift).real / length)[: high - low + 1]
    # Smaller values are rounding errors of the transform.
    return Law(mean, variance, low, np.where(pmf < 1e-15, 0.0, pmf))


def mixed(laws: Sequence[Law], weights: Sequence[float]) -> Law:
    """Return the mixture of these distributions with these weights."""
    total = float(sum(weights))
    mean = sum(w * law.mean for law, w in zip(laws, weights, strict=True)) / total
    second = sum(w * (law.variance + (law.mean - mean) ** 2) for law, w in zip(laws, weights, strict=True))
    low, high = min(law.first for law in laws), max(law.last for law in laws)
    if any(law.pmf is None for law in laws) or high - low > LONGEST:
        means, variances = np.array([law.mean for law in laws]), np.array([law.variance for law in laws])
        return Law(mean, second / total, normals=(means, variances, np.array(weights, dtype=np.float64)))
    pmf = np.zeros(high - low + 1)
    for law, weight in zip(laws, weights, strict=True):
        if law.pmf is not None:
            pmf[law.start - low : law.start - low + law.pmf.size] += weight / total * law.pmf
    return Law(mean, second / total, low, pmf)


def summed(pmf: Floats, start: int, count: int) -> Law:
    """Return the distribution of the sum of `count` independent values start + i, each with probability
    pmf[i]."""
    values = np.arange(pmf.size)
    mean = float(pmf @ values)
    variance = float(pmf @ (values - mean) ** 2)
    room = deviation(RARE, variance * count, float(pmf.size - 1))
    low = max(0, int(mean * count - room))
    high = min(count * (pmf.size - 1), int(mean * count + room) + 1)

    def transform(turn: Complex) -> Complex:
        one = np.zeros(turn.shape, dtype=np.complex128)
        for p in pmf[::-1]:
            one = one * turn + p
        return power(one, count)

    law = transformed(transform, mean * count, variance * count, low, high)
    return Law(law.mean + start * count, law.variance, law.start + start * count, law.pmf)


def power(base: Complex, exponent: int) -> Complex:
    """Return base ** exponent, computed by the logarithm; 0 where the base is 0."""
    size = np.abs(base)
    with np.errstate(divide="ignore"):
        result: Complex = np.exp(exponent * np.log(size)) * np.exp(1j * exponent * np.angle(base))
    return result


def deviation(exponent: float, variance: float, reach: float) -> float:
    """Return a bound that a sum of independent terms, each within `reach` of its mean, exceeds with P <
    exp(-exponent).

    Source: Bernstein's inequality.
    """
    part = exponent * reach / 3
    return float(part + (part * part + 2 * exponent * variance) ** 0.5)


def expected_greatest(laws: Sequence[Law], numbers: Sequence[float]) -> float:
    """Return E[max] of independent values, `numbers[i]` of them with each distribution."""
    low, high = max(law.first for law in laws), max(law.last for law in laws)
    stride = max(1, (high - low) // 4096) | 1
    s = np.arange(low + stride // 2, high + stride, stride, dtype=np.int64)
    log_below = np.zeros(s.size)
    with np.errstate(divide="ignore"):
        for law, number in zip(laws, numbers, strict=True):
            log_below += number * np.log1p(-np.minimum(law.sf(s), 1.0))
    return low + stride * float(-np.expm1(log_below).sum())


# Distributions of counts that are given by their moments: binomial, Poisson or negative binomial, whichever
# matches.
#
# A sum of independent Bernoulli variables has a variance below its mean, a clustered count one above it. It
# is approximated by the distribution of Panjer's family with the same mean and variance, shifted by the
# certain nonzeros, with the probability of zero replaced by the known one. For Bernoulli variables with
# equal probabilities the approximation is exact, because their sum is binomial.

# Variances this close to the mean (relative) are those of a Poisson distribution, and this close to zero
# those of a certain count.
_EQUAL, _SURE = 1e-7, 1e-9


@dataclass(frozen=True, eq=False)
class CountLaws:
    """Distributions of counts, one per entry, given by `mean`, `variance`, ln P(0), the number of nonzeros
    that are certain (`sure`), and the number of points (`most`)."""

    mean: Floats
    variance: Floats
    log_empty: Floats
    sure: Floats
    most: Floats

    def only(self, chosen: NDArray[np.int64]) -> CountLaws:
        """Return the distributions of the chosen entries."""
        return CountLaws(
            self.mean[chosen], self.variance[chosen], self.log_empty[chosen], self.sure[chosen],
            self.most[chosen],
        )  # fmt: skip

    def alike(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return one entry of each group whose distributions agree to nine digits, and the group of each
        entry."""
        given = (self.mean, self.variance, self.log_empty, self.sure, self.most)
        # The sign, the exponent and thirty bits of the fraction, rounded.
        keys = [(v.astype(np.float64).view(np.int64) + (1 << 21)) >> 22 for v in given]
        return grouped(keys)

    @cached_property
    def filled(self) -> Floats:
        """P(not 0)."""
        result: Floats = -np.expm1(self.log_empty)
        return result

    @cached_property
    def reach(self) -> Floats:
        """A value that is exceeded with probability e^-40 or less."""
        alone = self.variance <= self.mean * (1 + _EQUAL)
        return np.where(alone, np.minimum(self.far, _beyond(self.mean)), self.far)

    @cached_property
    def far(self) -> Floats:
        """A value that is exceeded with probability e^-40, also for a distribution with a wide upper tail."""
        spread = np.maximum(self.variance, 0.0)
        wide = np.maximum(self.variance / np.maximum(self.mean, 1e-300), 1.0)
        result: Floats = np.minimum(self.mean + np.sqrt(2 * RARE * spread) + RARE * wide, self.most)
        return result

    @cached_property
    def least(self) -> Floats:
        """A value that is not reached with probability e^-40."""
        spread = np.sqrt(2 * RARE * np.maximum(self.variance, 0.0))
        return np.maximum(self.mean - spread, self.sure)

    @cached_property
    def _free(self) -> Floats:
        """The mean without the certain nonzeros."""
        return np.maximum(self.mean - self.sure, 0.0)

    def _plain(self, s: Floats) -> Floats:
        """Return P(the uncertain part exceeds s) of the matched distribution, entries x s (or broadcast)."""
        from scipy.special import betainc, gammainc

        mean, variance = self._free[:, None], self.variance[:, None]
        s = np.broadcast_to(s, np.broadcast_shapes(s.shape, mean.shape)).astype(np.float64)
        mean, variance = np.broadcast_to(mean, s.shape), np.broadcast_to(variance, s.shape)
        result = (np.rint(mean) > s).astype(np.float64)
        some = variance > _SURE * np.maximum(mean, 1e-12)
        poisson = some & (np.abs(variance - mean) <= _EQUAL * mean)
        low, high = some & ~poisson & (variance < mean), some & ~poisson & (variance > mean)
        # Values outside the support on either side are not evaluated.
        low_end, high_end = (self.least - self.sure)[:, None] - 1, (self.reach - self.sure)[:, None]
        under = s < np.maximum(low_end, 0)
        inside = ~under & (s <= high_end)
        at = poisson & inside
        result[at] = gammainc(s[at] + 1, mean[at])
        at = low & inside
        share = 1 - variance[at] / mean[at]
        trials = mean[at] / share
        rest = np.maximum(trials - s[at], 1e-300)
        result[at] = np.where(s[at] < trials, betainc(s[at] + 1, rest, share), 0.0)
        at = high & inside
        beyond = variance[at] - mean[at]
        result[at] = betainc(s[at] + 1, mean[at] ** 2 / beyond, beyond / variance[at])
        result[under & (some | (s < 0))] = 1.0
        result[some & (s > high_end)] = 0.0
        return result

    @cached_property
    def _stretch(self) -> Floats:
        """The factor that scales P(not 0) of the matched distribution to the known one."""
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
        result = self._plain(s - self.sure[:, None]) * self._stretch[:, None]
        return np.where(s < 0, 1.0, np.where(s >= self.most[:, None], 0.0, np.minimum(result, 1.0)))

    def at(self, x: Floats) -> Floats:
        """P(exactly x), one x for each entry."""
        return self.above_own(np.asarray(x) - 1.0) - self.above_own(x)

    def log_generating(self, z: Floats) -> Floats:
        """ln E[z^X], one z in [0, 1] for each entry."""
        with np.errstate(divide="ignore", invalid="ignore"):
            plain = self._log_plain(z)
            whole = np.where(self.sure > 0, self.sure * np.log(z), 0.0)
            # As for the distribution itself, the nonzero part is scaled.
            grown = -np.expm1(plain) * self._stretch
            result: Floats = np.log1p(-np.minimum(grown, 1.0)) + whole
        # At z = 0 that is P(0), known better than by differences.
        return np.where(z <= 0, self.log_empty, np.where(z >= 1, 0.0, np.minimum(result, 0.0)))

    @property
    def log_plain_empty(self) -> Floats:
        """ln P(0) of the matched distribution itself, without the certain nonzeros."""
        return self._log_plain(np.zeros_like(self.mean))

    def _log_plain(self, z: Floats) -> Floats:
        """Return ln E[z^X] of the matched distribution, without the certain nonzeros."""
        mean, variance = self._free, np.maximum(self.variance, 0.0)
        share = np.where(mean > 0, 1 - variance / np.maximum(mean, 1e-300), 0.0)
        flat = np.abs(share) <= _EQUAL
        with np.errstate(divide="ignore", invalid="ignore"):
            inner = np.log1p(-np.where(flat, 0.0, share) * (1 - z)) / np.where(flat, 1.0, share)
            result: Floats = mean * np.where(flat, z - 1, inner)
        return np.where(mean > 0, result, 0.0)


def grouped(keys: Sequence[NDArray[Any]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the place of one entry of each group that agrees in all keys, and the group of each entry."""
    order = np.lexsort(keys)
    new = np.ones(order.size, dtype=bool)
    if order.size:
        new[1:] = np.logical_or.reduce([k[order[1:]] != k[order[:-1]] for k in keys])
    group = np.empty(order.size, dtype=np.int64)
    group[order] = np.cumsum(new) - 1
    return order[new], group


def _beyond(mean: Floats) -> Floats:
    """Return the x that a sum of independent Bernoulli variables exceeds with probability e^-40 at most:
    x ln(x / mean) - x + mean = 40 (Chernoff's bound)."""
    small = np.maximum(mean, 1e-300)
    x = small + np.sqrt(2 * RARE * small) + RARE
    for _ in range(8):  # Newton's method from above: the function is convex
        log = np.log(x / small)
        x = np.maximum(x - (x * log - x + small - RARE) / log, small * (1 + 1e-12))
    return np.asarray(np.ceil(x * (1 + 1e-9)))
