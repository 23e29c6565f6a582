"""Nonzeros among t of N points, n of which are nonzero: the hypergeometric distribution, numerically stable
up to N = 9e18.

Logarithms of factorials cancel from N ~ 1e10 on, so they are never subtracted here. P(0) is a sum of
logarithms of ratios (the first terms directly, the others by Gauss-Legendre quadrature with Euler-Maclaurin
corrections). Single probabilities are expressed by deviance terms of the four cells of the 2 x 2 table (the
idea of C. Loader's saddle-point expansion, 2000), whose common deviation k - n t / N is exact. Tails are
summed in the direction away from the mean.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polymodel.errors import Diagnostic, SpecError
from polymodel.frozen import dataclass
from polymodel.sparse.density.model import MOST_POINTS, Floats, Ints

# Number of terms of ln P(0) that are added directly, and nodes of the quadrature for the others.
_PLAIN, _NODES = 64, 48
# Above this standard deviation tails are integrated, not summed.
_SMOOTH = 80.0
# Entries of a block of work.
_BLOCK = 1 << 21


@dataclass(frozen=True)
class Hypergeometric:
    """Occupancy of t points of a tensor of `points` points with exactly `nnz` nonzeros, all placements
    equally likely.

    Every method takes arrays of t (and s) and returns results elementwise.
    """

    points: int
    nnz: int

    def __post_init__(self) -> None:
        # Python's integers, because numpy's would overflow in products.
        object.__setattr__(self, "points", int(self.points))
        object.__setattr__(self, "nnz", int(self.nnz))
        if not 1 <= self.points <= MOST_POINTS or not 0 <= self.nnz <= self.points:
            what = f"{self.nnz} nonzeros in {self.points} points"
            remedy = "0 to all of them, of up to 2^63 - 1 points"
            raise SpecError([Diagnostic(what, remedy, code="out-of-range")])

    def mean(self, t: ArrayLike) -> Floats:
        """n t / N."""
        result: Floats = np.asarray(t, dtype=np.float64) * (self.nnz / self.points)
        return result

    def variance(self, t: ArrayLike) -> Floats:
        """(n t / N) (1 - n / N) (N - t) / (N - 1)."""
        if self.points == 1:
            return np.zeros(np.shape(t))
        rest = (self.points - _ints(t)).astype(np.float64) / (self.points - 1)
        return self.mean(t) * ((self.points - self.nnz) / self.points) * rest

    def log_p_empty(self, t: ArrayLike) -> Floats:
        """ln P(0) = ln C(N - t, n) / C(N, n); -inf where t + n > N."""
        tiles = _ints(t)
        result = np.empty(tiles.shape)
        flat, out = tiles.ravel(), result.reshape(-1)
        step = max(1, _BLOCK // (_PLAIN + _NODES))
        for start in range(0, flat.size, step):
            part = slice(start, start + step)
            out[part] = self._log_p_empty(flat[part])
        return result

    def _log_p_empty(self, tiles: Ints) -> Floats:
        possible = tiles <= self.points - self.nnz
        t = np.where(possible, tiles, 0)
        fewer, more = np.minimum(t, self.nnz), np.maximum(t, self.nnz)
        free = (self.points - more).astype(np.float64)[:, None]
        more_f = more.astype(np.float64)[:, None]

        def term(x: Floats) -> Floats:
            below = self.points - x
            ratio = more_f / below
            with np.errstate(divide="ignore"):
                # A ratio near 1 has lost its distance from 1; free points are exact.
                result: Floats = np.where(ratio < 0.5, np.log1p(-ratio), np.log((free - x) / below))
            return result

        # The last terms are nearest to the singularity at x = N - M: they are added one by one.
        count = np.minimum(fewer, _PLAIN)
        rest = (fewer - count).astype(np.float64)[:, None]
        steps = np.arange(min(_PLAIN, int(fewer.max(initial=0))))[None, :]
        inside = steps < count[:, None]
        total: Floats = np.where(inside, term(np.where(inside, rest + steps, 0.0)), 0.0).sum(axis=1)
        long = np.flatnonzero(rest[:, 0] > 0)
        if long.size:
            more_f, free, rest = more_f[long], free[long], rest[long]
            nodes, weights = _legendre(_NODES)
            sums = (term(rest * nodes - 0.5) * weights).sum(axis=1) * rest[:, 0]
            ends = self._corrections(rest - 0.5, more_f, free) - self._corrections(
                np.full_like(rest, -0.5), more_f, free
            )
            total[long] += sums + ends[:, 0]
        total[~possible] = -np.inf
        return total

    def _corrections(self, x: Floats, more: Floats, free: Floats) -> Floats:
        """Euler-Maclaurin terms at an end of the midpoint sum: - f'/24 + 7 f'''/5760 of f = ln(1 - M/(N -
        x))."""
        # Beyond 2^53 points the distance to the singularity, a half at least, rounds to nothing.
        near, far = np.maximum(free - x, 0.5), self.points - x
        first = -more / (near * far)
        third = 2 * (1 / far**3 - 1 / near**3)
        return -first / 24 + 7 * third / 5760

    def p_empty(self, t: ArrayLike) -> Floats:
        """P(no nonzero among t points)."""
        return np.exp(self.log_p_empty(t))

    def p_nonempty(self, t: ArrayLike) -> Floats:
        """P(some nonzero among t points), accurate also where it is tiny."""
        return -np.expm1(self.log_p_empty(t))

    def pmf(self, t: ArrayLike, s: ArrayLike) -> Floats:
        """P(exactly s nonzeros among t points)."""
        tiles, wanted = np.broadcast_arrays(_ints(t), _ints(s))
        result = np.zeros(tiles.shape)
        low, high = self._support(tiles)
        inside = (wanted >= low) & (wanted <= high)
        cells = _LogProbabilities(self, tiles[inside])
        result[inside] = np.exp(
            cells.log_pmf((wanted[inside] - cells.floor).astype(np.float64)[:, None])[:, 0]
        )
        return result

    def table(self, t: ArrayLike, most: int) -> Floats:
        """(tiles, most + 1): P(0) .. P(most), each from its neighbour's where 0 is possible."""
        tiles, k = _ints(t).ravel(), np.arange(most, dtype=np.int64)
        spare = self.points - self.nnz - tiles
        ways = np.maximum(tiles[:, None] - k, 0).astype(np.float64) * np.maximum(self.nnz - k, 0)
        with np.errstate(divide="ignore"):
            steps = np.log(ways) - np.log((k + 1.0) * np.maximum(spare[:, None] + k + 1.0, 1.0))
        start = self.log_p_empty(tiles)[:, None]
        result: Floats = np.exp(np.concatenate((start, start + np.cumsum(steps, axis=1)), axis=1))
        full = np.flatnonzero(spare < 0)
        if full.size:
            result[full] = self.pmf(tiles[full, None], np.arange(most + 1))
        return result

    def cdf(self, t: ArrayLike, s: ArrayLike) -> Floats:
        """P(at most s nonzeros among t points)."""
        tiles, wanted = np.broadcast_arrays(_ints(t), np.asarray(s))
        if wanted.dtype.kind == "f":
            wanted = np.floor(np.clip(wanted, -1.0, 9e18))
        tail, upper = self._tail_probabilities(
            tiles.ravel(), np.clip(wanted.astype(np.int64), -1, self.points).ravel()
        )
        return np.where(upper, 1 - tail, tail).reshape(tiles.shape)

    def sf(self, t: ArrayLike, s: ArrayLike) -> Floats:
        """P(more than s nonzeros among t points), accurate also where it is tiny."""
        tiles, wanted = np.broadcast_arrays(_ints(t), _ints(s))
        tail, upper = self._tail_probabilities(tiles.ravel(), wanted.ravel())
        return np.where(upper, tail, 1 - tail).reshape(tiles.shape)

    def quantile(self, t: ArrayLike, confidence: ArrayLike) -> Ints:
        """The least s with P(at most s) >= confidence (less a rounding of 1e-13)."""
        tiles, wanted = np.broadcast_arrays(_ints(t), np.asarray(confidence, dtype=np.float64))
        flat, goal = tiles.ravel(), wanted.ravel() - 1e-13
        low, high = self._support(flat)
        guess = self._guess(flat, wanted.ravel())
        width = np.maximum(1, np.ceil(0.02 * np.sqrt(self.variance(flat)))).astype(np.int64)
        under, over = np.clip(guess - width, low - 1, high), np.clip(guess + width, low, high)
        while True:
            # The bracket grows until its lower end falls short and its upper end reaches the goal.
            too_high = (under >= low) & (self.cdf(flat, under) >= goal)
            too_low = (over < high) & (self.cdf(flat, over) < goal)
            if not (too_high | too_low).any():
                break
            width *= 2
            over = np.where(too_high, under, over)
            under = np.where(too_low, over, under)
            under = np.where(too_high, np.maximum(under - width, low - 1), under)
            over = np.where(too_low, np.minimum(over + width, high), over)
        while (wide := over - under > 1).any():
            middle = under + (over - under) // 2
            reached = np.zeros(wide.shape, dtype=bool)
            reached[wide] = self.cdf(flat[wide], middle[wide]) >= goal[wide]
            over = np.where(wide & reached, middle, over)
            under = np.where(wide & ~reached, middle, under)
        result: Ints = over.reshape(tiles.shape)
        return result

    def _guess(self, tiles: Ints, confidence: Floats) -> Ints:
        """Return a quantile of the normal distribution with the skewness of a Poisson distribution, which is
        near enough as a starting point."""
        from scipy.special import ndtri

        score = ndtri(np.clip(confidence, 1e-300, 1 - 1e-16))
        spread = np.sqrt(self.variance(tiles))
        away = spread * score + (score**2 - 1) / 6
        low, high = self._support(tiles)
        cut: Ints = np.clip(self._floor(tiles)[0] + np.rint(away).astype(np.int64), low, high)
        return cut

    def _floor(self, tiles: Ints) -> tuple[Ints, Floats]:
        """Return n t / N as a whole number and the remainder, both exact: floats near 1e18 are 128 apart."""
        exact = tiles.astype(object) * self.nnz
        floor, rest = exact // self.points, exact % self.points
        return floor.astype(np.int64), rest.astype(np.float64) / self.points

    def _support(self, tiles: Ints) -> tuple[Ints, Ints]:
        """Return the least and the greatest occupancy: max(0, t + n - N) and min(t, n)."""
        return np.maximum(0, tiles - (self.points - self.nnz)), np.minimum(tiles, self.nnz)

    def _tail_probabilities(self, tiles: Ints, s: Ints) -> tuple[Floats, NDArray[np.bool_]]:
        """Return P(X <= s) below the mean and P(X > s) above it, and which of the two it is."""
        low, high = self._support(tiles)
        floor, rest = self._floor(tiles)
        # The smaller tail is computed, and the other is its complement.
        upper = (s > floor) | ((s == floor) & (rest < 0.5))
        result = np.zeros(tiles.shape)
        first = np.where(upper, s + 1, s)
        inside = np.flatnonzero((first >= low) & (first <= high))
        spread = np.sqrt(self.variance(tiles))
        for smooth in (False, True):
            chosen = inside[(spread[inside] > _SMOOTH) == smooth]
            step = max(1, _BLOCK // 96) if smooth else max(1, int(_BLOCK // (16 * _SMOOTH)))
            for start in range(0, chosen.size, step):
                part = chosen[start : start + step]
                tail = self._integrated if smooth else self._summed
                result[part] = tail(tiles[part], first[part], upper[part])
        return result, upper

    def _summed(self, tiles: Ints, first: Ints, upper: NDArray[np.bool_]) -> Floats:
        """Return the probabilities from `first` away from the mean, one by one, each from its neighbour's."""
        cells = _LogProbabilities(self, tiles)
        start = np.exp(cells.log_pmf((first - cells.floor).astype(np.float64)[:, None])[:, 0])
        # 13 deviations beyond a start at the mean are below rounding; sparse data have a longer tail.
        terms = 40 + int(13 * np.sqrt(self.variance(tiles)).max(initial=0))
        steps = np.where(upper, 1, -1)[:, None] * np.arange(terms)
        # Cells of the 2 x 2 table at the start are exact: a difference of floats above 1e17 would not be.
        inside, missing = first.astype(np.float64)[:, None] + steps, (self.nnz - first)[:, None] - steps
        zeros, outside = (
            (tiles - first)[:, None] - steps,
            (self.points - self.nnz - tiles + first)[:, None] + steps,
        )
        missing_f, zeros_f = (
            np.maximum(missing, 0).astype(np.float64),
            np.maximum(zeros, 0).astype(np.float64),
        )
        inside, outside_f = np.maximum(inside, 0), np.maximum(outside, 0).astype(np.float64)
        up = missing_f * zeros_f / ((inside + 1) * (outside_f + 1))
        down = inside * outside_f / ((missing_f + 1) * (zeros_f + 1))
        ratios = np.where(upper[:, None], up, down)
        result: Floats = start * (1 + np.cumprod(ratios, axis=1).sum(axis=1))
        return result

    def _integrated(self, tiles: Ints, first: Ints, upper: NDArray[np.bool_]) -> Floats:
        """Return the same sum as an integral with Euler-Maclaurin corrections, for wide distributions."""
        cells = _LogProbabilities(self, tiles)
        sign = np.where(upper, 1.0, -1.0)[:, None]
        edge = (first - cells.floor).astype(np.float64)[:, None] - 0.5 * sign
        spread = np.sqrt(self.variance(tiles))[:, None]
        low, high = self._support(tiles)
        room = np.where(upper, high - first, first - low).astype(np.float64)[:, None] + 0.5
        score = np.abs(edge - cells.rest[:, None]) / spread
        length = np.minimum(spread * np.minimum(10.0, 45.0 / np.maximum(score, 1e-9)), room)
        nodes, weights = _legendre(8)
        panels = 12
        places = ((np.arange(panels)[:, None] + nodes) / panels).ravel()
        total = (np.exp(cells.log_pmf(edge + sign * length * places)) * np.tile(weights, panels)).sum(axis=1)
        total *= length[:, 0] / panels
        # Corrections of first and third order by central differences; at the far end they are zero.
        around = np.exp(cells.log_pmf(edge + np.array([-1.5, -0.5, 0.5, 1.5])))
        first_difference = around[:, 2] - around[:, 1]
        third = around[:, 3] - around[:, 0] - 3 * first_difference
        result: Floats = total + sign[:, 0] * (first_difference / 24 - 17 * third / 5760)
        return result


class _LogProbabilities:
    """ln P(k) of a batch of tiles; k is given as its distance from floor(n t / N), which need not be
    whole."""

    def __init__(self, law: Hypergeometric, tiles: Ints) -> None:
        self.floor, self.rest = law._floor(tiles)
        t, n, size = tiles, law.nnz, law.points
        # Cells: nonzero inside, nonzero outside, zero inside, zero outside; their counts at k = floor.
        base = (self.floor, n - self.floor, t - self.floor, size - n - t + self.floor)
        self._base = [b.astype(np.float64)[:, None] for b in base]
        share = t.astype(np.float64) / size
        other = (size - t).astype(np.float64) / size
        self._mean = [m[:, None] for m in (n * share, n * other, (size - n) * share, (size - n) * other)]
        whole = np.array([float(n), float(size - n), float(size)])
        margins = leading(whole)[0] + leading(whole)[1] - leading(whole)[2]
        self._margins = margins + leading(t.astype(np.float64)) + leading((size - t).astype(np.float64))

    def log_pmf(self, distance: Floats) -> Floats:
        """(tiles, m) distances from the floor -> ln P."""
        deviation = distance - self.rest[:, None]
        result = np.broadcast_to(self._margins[:, None], deviation.shape).copy()
        for base, mean, sign in zip(self._base, self._mean, (1, -1, -1, 1), strict=True):
            count = np.maximum(base + sign * distance, 0.0)
            result -= leading(count) + _deviance(count, mean, sign * deviation)
        return result


def _deviance(count: Floats, mean: Floats, deviation: Floats) -> Floats:
    """count ln(count / mean) - deviation, with deviation = count - mean given exactly."""
    total = count + mean
    v = np.divide(
        deviation, total, out=np.zeros(np.broadcast_shapes(deviation.shape, total.shape)), where=total > 0
    )
    square = v * v
    series = np.zeros_like(v)
    for power in (13, 11, 9, 7, 5, 3):
        series = series * square + 1 / power
    result: Floats = deviation * v + 2 * count * v * square * series
    far = np.abs(v) >= 0.05
    if far.any():
        parts = np.broadcast_arrays(count, mean, deviation)
        many, usual, away = (part[far] for part in parts)
        with np.errstate(divide="ignore", invalid="ignore"):
            result[far] = np.where(many > 0, many * np.log(many / usual), 0.0) - away
    return result


def leading(count: Floats) -> Floats:
    """ln count! - count ln count + count: half a logarithm and Stirling's series."""
    from scipy.special import gammaln

    big = np.maximum(count, 16.0)
    inverse = 1 / (big * big)
    series = 1 / 12 - inverse * (1 / 360 - inverse * (1 / 1260 - inverse * (1 / 1680 - inverse / 1188)))
    result: Floats = 0.5 * np.log(2 * np.pi * big) + series / big
    few = count < 16
    if few.any():
        small = np.maximum(count[few], 1e-300)
        result[few] = np.where(count[few] > 0, gammaln(small + 1) - small * np.log(small) + small, 0.0)
    return result


@cache
def _legendre(order: int) -> tuple[Floats, Floats]:
    """Nodes and weights of Gauss and Legendre on 0 .. 1."""
    nodes, weights = np.polynomial.legendre.leggauss(order)
    return (nodes + 1) / 2, weights / 2


def _ints(t: ArrayLike) -> Ints:
    return np.asarray(t).astype(np.int64)
