"""Compute the maximum occupancy over all tiles of uniform random data.

Occupancies of disjoint tiles are jointly hypergeometric: independent binomial variables with the same
probability, conditioned on their sum. Therefore P(max <= s) = P(sum of binomials truncated at s is n, and
none is above s) / P(sum is n). For every s the truncated binomials are exponentially tilted until the mean of
their sum is n. The probability of the mean is then computed from the characteristic function (or, for wide
sums, its Edgeworth expansion, whose next term is below 1e-8).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from polymodel.errors import InternalError, Refused
from polymodel.frozen import dataclass
from polymodel.sparse.density.hypergeometric import Hypergeometric, leading
from polymodel.sparse.density.model import Floats, Ints

OfTiling = Callable[[Hypergeometric, Ints, Floats], float]
# Sums with a larger standard deviation, of more summands, are expanded and not transformed.
_WIDE, _SEVERAL = 150.0, 100.0
# Negligible exponents: of the probability of a tile, and of P(max <= s) below which it is 0.
_RARE, _NEVER = 40.0, -37.0
# Longest tabulated distribution of one tile, and the maximum number of values of s.
_LONGEST, _VALUES = 20_000, 2_048
# Entries of a block of work.
_BLOCK = 1 << 21


def expected_max_independent(law: Hypergeometric, sizes: Ints, counts: Floats) -> float:
    """Sum over s of 1 - prod_i P(X_i <= s): a lower bound of E[max], as occupancies are negatively
    associated."""
    window = _QuantileWindow.of(law, sizes, counts)
    return window.total(-np.expm1(window.log_independent))


def expected_max_union(law: Hypergeometric, sizes: Ints, counts: Floats) -> float:
    """Sum over s of min(1, sum_i P(X_i > s)): an upper bound of E[max]."""
    window = _QuantileWindow.of(law, sizes, counts)
    return window.total(np.minimum(1.0, window.union))


def expected_max(law: Hypergeometric, sizes: Ints, counts: Floats) -> float:
    """Return E[max over tiles], given the points of tiles and the number of tiles with these points. Points
    of `law` beyond these are in no tile.

    The result is exact to 1e-8 (1e-6 for fewer than ten tiles) where the occupancy of one tile stays below
    20,000. Above that, distributions are normal: the deviation of independent tiles from the mean is scaled
    by the effect of their fixed sum on the variance, with an error below 0.1 %.
    """
    window = _QuantileWindow.of(law, sizes, counts)
    if window.highest > _LONGEST:
        plain, mean = window.total(-np.expm1(window.log_independent)), float(law.mean(window.points[-1]))
        inside = float(window.points[-1]) / law.points
        return mean + (plain - mean) / (1 - inside) ** 0.5 if inside < 1 else plain
    above = np.minimum(1.0, window.union)
    active = (window.union > 1e-14) & (window.log_independent > _NEVER)
    above[window.log_independent <= _NEVER] = 1.0
    above[active] = 1 - _cdf_max(law, window.points, window.number, window.s[active])
    return window.total(above)


def cdf_max(law: Hypergeometric, sizes: Ints, counts: Floats, s: Floats) -> Floats:
    """Return P(max over tiles <= s) for an array of s. Its label is that of `expected_max`."""
    points, number = _merged(sizes, counts)
    wanted = np.floor(np.asarray(s, dtype=np.float64)).ravel()
    result = np.where(wanted >= min(law.nnz, int(points[-1])), 1.0, 0.0)
    inside = (result < 1) & (wanted >= 0)
    if inside.any() and wanted[inside].max() > 10 * _LONGEST:
        message = "tiles of more than 200,000 nonzeros"
        raise Refused(message, "ask the bounds of the maximum instead", code="too-large")
    result[inside] = _cdf_max(law, points, number, wanted[inside].astype(np.int64))
    return result.reshape(np.shape(s))


def _merged(sizes: Ints, counts: Floats) -> tuple[Ints, Floats]:
    """Return the distinct numbers of points in ascending order, and the number of tiles with each."""
    kept = counts > 0
    points, place = np.unique(sizes[kept], return_inverse=True)
    number = np.zeros(points.size)
    np.add.at(number, place.reshape(-1), counts[kept])
    return points, number


@dataclass(frozen=True)
class _QuantileWindow:
    """The values of s over which P(max <= s) grows from 0 to 1: every `stride`-th one from `lowest` on, as
    `s`."""

    points: Ints
    number: Floats
    s: Ints
    stride: int
    lowest: int
    highest: int
    union: Floats
    log_independent: Floats

    @classmethod
    def of(cls, law: Hypergeometric, sizes: Ints, counts: Floats) -> _QuantileWindow:
        points, number = _merged(sizes, counts)
        mean, binomial = law.mean(points), law.mean(points) * ((law.points - law.nnz) / law.points)
        # Bernstein's inequality, valid for hypergeometric distributions with the variance of the binomial.
        high = mean + _bernstein(np.log(number) + _RARE, binomial)
        low = mean[-1] - _bernstein(np.array(_RARE), binomial[-1])
        highest = min(int(high.max()) + 1, law.nnz, int(points[-1]))
        lowest = min(max(0, int(low)), highest)
        # A distribution of this width is smooth, so that some values suffice. That of few tiles has a bend.
        part = 10.0 if number.sum() > 16 else 40.0
        stride = max(1, (highest - lowest) // _VALUES, int(float(binomial[-1]) ** 0.5 / part)) | 1
        s = np.arange(lowest + stride // 2, highest + stride, stride, dtype=np.int64)
        tail = np.zeros((points.size, s.size))
        likely = high >= lowest
        if stride == 1:
            pmf = law.pmf(points[likely, None], np.append(s[1:], s[-1] + 1))
            tail[likely] = np.minimum(pmf[:, ::-1].cumsum(axis=1)[:, ::-1], 1.0)
        else:
            tail[likely] = law.sf(points[likely, None], s[None, :])
        with np.errstate(divide="ignore"):
            independent = (number[:, None] * np.log1p(-np.minimum(tail, 1.0))).sum(axis=0)
        union = (number[:, None] * tail).sum(axis=0)
        return cls(points, number, s, stride, lowest, highest, union, independent)

    def total(self, above: Floats) -> float:
        """Return E[max] from P(max > s) at the values of the window."""
        return self.lowest + self.stride * float(above.sum())


def _bernstein(exponent: Floats, variance: Floats) -> Floats:
    """Return a deviation that a sum exceeds with probability at most exp(-exponent)."""
    return exponent / 3 + np.sqrt(exponent**2 / 9 + 2 * exponent * variance)


def _cdf_max(law: Hypergeometric, points: Ints, number: Floats, s: Ints) -> Floats:
    """Return P(max <= s) for s below the largest possible occupancy."""
    result = np.zeros(s.shape)
    rest = law.points - int(points @ number.astype(np.int64))  # in no tile: holds the remaining nonzeros
    capacity = (number[:, None] * np.minimum(points[:, None], s[None, :])).sum(axis=0) + rest
    if law.nnz == law.points:
        return result
    possible = np.flatnonzero(capacity >= law.nnz)
    if not possible.size:
        return result
    longest = int(s[possible].max()) + 1
    tiles = [_CutBinomial.of(law, int(t), longest) for t in points]
    if rest:
        tiles.append(_CutBinomial.of(law, rest, law.nnz, free=True))
        number, longest = np.append(number, 1.0), max(longest, int(tiles[-1].k.size))
    step = max(1, _BLOCK // (longest + 4096))
    for start in range(0, possible.size, step):
        part = possible[start : start + step]
        result[part] = np.exp(_log_cdf_max(law, tiles, number, s[part]))
    return np.minimum(result, 1.0)


def _log_cdf_max(law: Hypergeometric, tiles: list[_CutBinomial], number: Floats, s: Ints) -> Floats:
    tilt = _tilts(law.nnz, tiles, number, s)
    cumulants, log_mass, laws = np.zeros((4, s.size)), np.zeros(s.size), []
    widest = np.zeros(s.size)
    for tile, many in zip(tiles, number, strict=True):
        cut = tile.tilted(tilt, s)
        laws.append(cut)
        own = tile.cumulants(cut)
        cumulants += many * own
        widest = np.maximum(widest, own[1])
        log_mass += many * tile.log_mass(tilt, s)
    spread = np.sqrt(cumulants[1])
    log_sum = np.empty(s.size)
    safe = np.maximum(spread, 1e-30)
    correction = cumulants[3] / (8 * safe**4) - 5 * cumulants[2] ** 2 / (24 * safe**6)
    wide = (spread > _WIDE) & (cumulants[1] > _SEVERAL * widest)
    log_sum[wide] = np.log((1 + correction[wide]) / (np.sqrt(2 * np.pi) * spread[wide]))
    narrow = np.flatnonzero(~wide)
    step = max(1, _BLOCK // _length(float(spread[narrow].max(initial=0))))
    for start in range(0, narrow.size, step):
        part = narrow[start : start + step]
        cuts = [cut[part] for cut in laws]
        log_sum[part] = _log_at(law.nnz, cuts, tiles, number, _length(float(spread[part].max())))
    n, rest = float(law.nnz), float(law.points - law.nnz)
    whole = leading(np.array([float(law.points), n, rest]))
    result: Floats = log_mass - tilt * law.nnz + log_sum - (whole[0] - whole[1] - whole[2])
    return result


def _tilts(nnz: int, tiles: list[_CutBinomial], number: Floats, s: Ints) -> Floats:
    """Return the exponents for which the sum of the tilted truncated binomials has mean nnz, by Newton's
    method within a bracket."""
    tilt, low, high = np.zeros(s.size), np.full(s.size, -np.inf), np.full(s.size, np.inf)
    for _ in range(200):
        mean, variance = np.zeros(s.size), np.zeros(s.size)
        for tile, many in zip(tiles, number, strict=True):
            first, second = tile.moments(tile.tilted(tilt, s))
            mean, variance = mean + many * first, variance + many * second
        short = mean < nnz
        low, high = np.where(short, tilt, low), np.where(short, high, tilt)
        # An offset of a millionth of a deviation has no effect; where no point is left, the tilt is infinite.
        done = (np.abs(mean - nnz) <= 1e-6 * np.sqrt(variance) + 1e-12 * nnz) | (tilt > 60)
        if done.all():
            return tilt
        step = tilt + (nnz - mean) / np.maximum(variance, 1e-300)
        step = np.clip(step, tilt - 2, tilt + 2)
        inside = (step > low) & (step < high)
        tilt = np.where(done, tilt, np.where(inside, step, (low + high) / 2))
    raise InternalError("no tilt found for the maximum over tiles")


def _length(spread: float) -> int:
    """Return the length of a transform that holds a sum of this standard deviation."""
    return 1 << int(np.ceil(np.log2(26 * spread + 128)))


def _log_at(nnz: int, cuts: list[Floats], tiles: list[_CutBinomial], number: Floats, length: int) -> Floats:
    """Return ln P(sum of the tilted distributions of all tiles = nnz), from the characteristic function."""
    turns = np.arange(length)
    size, turn = np.zeros((cuts[0].shape[0], length)), np.zeros((cuts[0].shape[0], length))
    for cut, tile, many in zip(cuts, tiles, number, strict=True):
        change = np.zeros((cut.shape[0], length))
        for start in range(0, tile.k.size, length):
            piece = cut[:, start : start + length]
            first = int(tile.k[start]) % length
            change[:, (first + np.arange(piece.shape[1])) % length] += piece
        # phi - 1 is computed without cancellation: minus the probability of values other than 0.
        zero = cut[:, 1:].sum(axis=1) if tile.k[0] == 0 else None
        change[:, 0] = change[:, 0] - 1 if zero is None else change[:, 0] - cut[:, 0] - zero
        moved = np.fft.fft(change, axis=1).conj()
        with np.errstate(divide="ignore"):
            size += 0.5 * many * np.log1p(np.maximum(2 * moved.real + moved.real**2 + moved.imag**2, -1.0))
        turn += many * np.arctan2(moved.imag, 1 + moved.real)
    back = (nnz % length) * turns % length
    value = (np.exp(size) * np.cos(turn - 2 * np.pi * back / length)).mean(axis=1)
    result: Floats = np.log(np.maximum(value, 1e-300))
    return result


@dataclass(frozen=True)
class _CutBinomial:
    """A binomial distribution Binomial(t, n / N) on k = lowest..: the logarithms of its probabilities, and
    P(more than k). `free`: it is not truncated."""

    k: Ints
    log_pmf: Floats
    tail: Floats
    free: bool = False

    @classmethod
    def of(cls, law: Hypergeometric, t: int, longest: int, free: bool = False) -> _CutBinomial:
        mean = t * (law.nnz / law.points)
        # Beyond `longest` the tail is summed on; below the mean by 40 exponents nothing is left.
        end = min(t, max(longest, int(mean + _bernstein(np.array(_RARE), np.array(mean)))) + 1)
        k = np.arange(end + 1, dtype=np.int64)
        odds = np.log(law.nnz / (law.points - law.nnz))
        log_none = (
            t * np.log1p(-law.nnz / law.points)
            if 2 * law.nnz < law.points
            else t * np.log((law.points - law.nnz) / law.points)
        )
        steps = np.log((t - k[:-1]) / (k[:-1] + 1.0)) + odds
        log_pmf = log_none + np.concatenate(([0.0], np.cumsum(steps)))
        pmf = np.exp(log_pmf)
        tail = np.concatenate((np.cumsum(pmf[:0:-1])[::-1], [0.0]))
        start = int(np.argmax(log_pmf > log_pmf.max() - 300))
        kept = slice(start, longest + 1)
        return cls(k[kept], log_pmf[kept], tail[kept], free)

    def _cut(self, s: Ints) -> Ints:
        return np.full_like(s, self.k[-1]) if self.free else s

    def tilted(self, tilt: Floats, s: Ints) -> Floats:
        """Return the probabilities times exp(tilt k), truncated above s and normalised, with shape (values of
        s, k)."""
        power = self.log_pmf + tilt[:, None] * self.k
        power = np.where(self.k <= self._cut(s)[:, None], power, -np.inf)
        found = np.exp(power - power.max(axis=1, keepdims=True))
        scaled: Floats = found / found.sum(axis=1, keepdims=True)
        return scaled

    def moments(self, cut: Floats) -> tuple[Floats, Floats]:
        """Return the mean and the variance of each row."""
        mean = cut @ self.k
        away = self.k - mean[:, None]
        away *= away
        return mean, np.einsum("sk,sk->s", cut, away)

    def cumulants(self, cut: Floats) -> Floats:
        """Return the first four cumulants of each row, with shape (4, rows)."""
        mean, second = self.moments(cut)
        away = self.k - mean[:, None]
        third = cut * away * away * away
        fourth = np.einsum("sk,sk->s", third, away)
        return np.stack((mean, second, third.sum(axis=1), fourth - 3 * second**2))

    def log_mass(self, tilt: Floats, s: Ints) -> Floats:
        """Return the logarithm of the sum of pmf exp(tilt k) over k <= s."""
        s = self._cut(s)
        power = np.where(self.k <= s[:, None], self.log_pmf + tilt[:, None] * self.k, -np.inf)
        top = power.max(axis=1)
        plain: Floats = top + np.log(np.exp(power - top[:, None]).sum(axis=1))
        if self.k[0] != 0:
            return plain
        # Near 1 the distance of the mass from 1 is computed, because it is raised to the number of tiles.
        near = np.abs(plain) < 0.05
        grown = np.exp(np.where(self.k <= s[near, None], self.log_pmf, -np.inf)) * np.expm1(
            np.where(self.k <= s[near, None], tilt[near, None] * self.k, 0.0)
        )
        plain[near] = np.log1p(grown.sum(axis=1) - self.tail[np.minimum(s[near], self.k[-1])])
        return plain
