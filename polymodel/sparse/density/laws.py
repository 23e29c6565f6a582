"""Laws of whole numbers: written out, or normal where writing them out would be endless."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polymodel.errors import InternalError
from polymodel.sparse.density.model import Floats, Ints

Complex = NDArray[np.complex128]
# Longest law that is written out, and the exponent of what is left away.
LONGEST, RARE = 1 << 22, 40.0


@dataclass(frozen=True, eq=False)
class Law:
    """P(start + i) = `pmf[i]`; without `pmf` a normal law of this mean and variance."""

    mean: float
    variance: float
    start: int = 0
    pmf: Floats | None = None

    @cached_property
    def below(self) -> Floats:
        """P(at most start + i)."""
        found: Floats = np.minimum(np.cumsum(self._written), 1.0)
        return found

    @cached_property
    def above(self) -> Floats:
        """P(more than start + i)."""
        found: Floats = np.concatenate((np.cumsum(self._written[:0:-1])[::-1], [0.0]))
        return found

    @property
    def _written(self) -> Floats:
        if self.pmf is None:
            raise InternalError("a normal law is not written out")
        return self.pmf

    @property
    def first(self) -> int:
        """Below it there is nothing worth counting."""
        return self.start if self.pmf is not None else max(0, int(self.mean - 12 * self.variance**0.5))

    @property
    def last(self) -> int:
        """Above it there is nothing worth counting."""
        if self.pmf is None:
            return int(self.mean + 12 * self.variance**0.5) + 1
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
            from scipy.special import ndtr

            found: Floats = ndtr((self.mean - wanted - 0.5) / max(self.variance, 1e-300) ** 0.5)
            return found
        place = np.clip(wanted - self.start, -1, self.pmf.size - 1).astype(np.int64)
        return np.where(place < 0, 1.0, self.above[place])

    def quantile(self, confidence: ArrayLike) -> Ints:
        wanted = np.asarray(confidence, dtype=np.float64) - 1e-13
        if self.pmf is None:
            from scipy.special import ndtri

            score = ndtri(np.minimum(wanted, 1 - 1e-16))
            found: Ints = np.ceil(np.maximum(0, self.mean + score * self.variance**0.5 - 0.5)).astype(
                np.int64
            )
            return found
        place = np.searchsorted(self.below, wanted)
        return self.start + np.minimum(place, self.below.size - 1).astype(np.int64)


def counted(values: ArrayLike, weights: ArrayLike) -> Law:
    """The law of values that occur with these weights (which need not add up to 1)."""
    points, place = np.unique(np.asarray(values, dtype=np.int64), return_inverse=True)
    share = np.bincount(place.reshape(-1), weights=np.asarray(weights, dtype=np.float64))
    share = share / share.sum()
    mean = float(share @ points)
    variance = float(share @ (points - mean) ** 2)
    if points[-1] - points[0] > LONGEST:
        return Law(mean, variance)
    pmf = np.zeros(int(points[-1] - points[0]) + 1)
    pmf[points - points[0]] = share
    return Law(mean, variance, int(points[0]), pmf)


def transformed(
    transform: Callable[[Complex], Complex], mean: float, variance: float, low: int, high: int
) -> Law:
    """The law on low .. high whose generating function is `transform`, read off its values on the unit
    circle."""
    if high - low > LONGEST:
        return Law(mean, variance)
    length = 1 << max(0, int(high - low).bit_length())
    turn = np.exp(2j * np.pi * np.arange(length) / length)
    shift = np.exp(-2j * np.pi * (low * np.arange(length) % length) / length)
    pmf = (np.fft.fft(transform(turn) * shift).real / length)[: high - low + 1]
    # What is smaller is noise of the transform.
    return Law(mean, variance, low, np.where(pmf < 1e-15, 0.0, pmf))


def mixed(laws: Sequence[Law], weights: Sequence[float]) -> Law:
    """One of these laws, chosen with these weights."""
    total = float(sum(weights))
    mean = sum(w * law.mean for law, w in zip(laws, weights, strict=True)) / total
    second = sum(w * (law.variance + (law.mean - mean) ** 2) for law, w in zip(laws, weights, strict=True))
    low, high = min(law.first for law in laws), max(law.last for law in laws)
    if any(law.pmf is None for law in laws) or high - low > LONGEST:
        return Law(mean, second / total)
    pmf = np.zeros(high - low + 1)
    for law, weight in zip(laws, weights, strict=True):
        if law.pmf is not None:
            pmf[law.start - low : law.start - low + law.pmf.size] += weight / total * law.pmf
    return Law(mean, second / total, low, pmf)


def summed(pmf: Floats, start: int, count: int) -> Law:
    """The sum of `count` independent values start + i, each with probability pmf[i]."""
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
    """base ** exponent by its logarithm, 0 where the base is."""
    size = np.abs(base)
    with np.errstate(divide="ignore"):
        found: Complex = np.exp(exponent * np.log(size)) * np.exp(1j * exponent * np.angle(base))
    return found


def deviation(exponent: float, variance: float, reach: float) -> float:
    """What a sum of independent terms, each within `reach` of its mean, exceeds with P < exp(-exponent).

    Bernstein's inequality.
    """
    part = exponent * reach / 3
    return float(part + (part * part + 2 * exponent * variance) ** 0.5)


def expected_greatest(laws: Sequence[Law], numbers: Sequence[float]) -> float:
    """E[max] of independent values, `numbers[i]` of them of each law."""
    low, high = max(law.first for law in laws), max(law.last for law in laws)
    stride = max(1, (high - low) // 4096) | 1
    s = np.arange(low + stride // 2, high + stride, stride, dtype=np.int64)
    log_below = np.zeros(s.size)
    with np.errstate(divide="ignore"):
        for law, number in zip(laws, numbers, strict=True):
            log_below += number * np.log1p(-np.minimum(law.sf(s), 1.0))
    return low + stride * float(-np.expm1(log_below).sum())
