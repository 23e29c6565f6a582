"""Distributions of the contents of tiles: the probability of overflow, and the entries of tiles that fit."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike

from polymodel.errors import Refused
from polymodel.sparse.density.model import Floats, Ints
from polymodel.sparse.density.regions import untouched
from polymodel.tiling.fits.fit import Elements, Fit, Op, Words

# Number of distinct values of the entries of a tile.
BINS = 64
# A distribution is tabulated this number of standard deviations around its mean, plus this number of entries.
REACH, MORE = 9.0, 30.0
# Nodes of the Gauss-Hermite rule over the entries that both operands share.
_NODES = 24


@dataclass(frozen=True, eq=False)
class Loads:
    """Distributions of the contents of k rectangles.

    `over` (k): P(load > capacity). `entries`, `mass` (k x BINS): numbers of entries of A and B together for
    tiles that fit, and their probabilities; rows of `mass` sum to 1 - over. `mean`, `variance` (k): of these
    entries, whether they fit or not. `share` (k): the fraction of A in them. `room` (k): the number of
    entries of both above which a tile overflows. `apart` (k): the variance of the entries of A minus those of
    B, given the sum, for each of these. `height`, `width` (k): rows and columns for the inner structure,
    counting only rows that can hold entries.
    """

    over: Floats
    entries: Floats
    mass: Floats
    mean: Floats
    variance: Floats
    share: Floats
    room: Floats
    apart: Floats
    height: Floats
    width: Floats

    def taken(self, which: ArrayLike) -> Loads:
        return Loads(*(getattr(self, f.name)[which] for f in fields(self)))

    @property
    def fits(self) -> Floats:
        result: Floats = self.mass.sum(axis=1)
        return result


def exceedance(more_than: ArrayLike, mean: ArrayLike, variance: ArrayLike) -> Floats:
    """Return P(X > x) of a count with this mean and variance: a Poisson distribution, scaled so that both are
    right.

    With variance = mean it is the Poisson distribution itself; with variance 0 a step.
    """
    from scipy.special import gammainc, ndtr

    x, mean, variance = np.broadcast_arrays(
        np.asarray(more_than, dtype=np.float64), np.asarray(mean, dtype=np.float64), variance
    )
    scale = variance / np.maximum(mean, 1e-300)
    narrow = scale < 1e-3
    safe = np.where(narrow, 1.0, scale)
    level = np.maximum((x + 0.5) / safe + 0.5, 1e-9)
    smooth = gammainc(level, np.maximum(mean, 0.0) / safe)
    sure = ndtr((mean - x - 0.5) / np.sqrt(np.maximum(variance, 1e-8)))
    result: Floats = np.where(x < 0, 1.0, np.where(narrow, sure, smooth))
    return result


def binned(entries: Floats, mass: Floats) -> tuple[Floats, Floats]:
    """Return a distribution on BINS values with the same mean."""
    kept = np.flatnonzero(mass > 0)
    result, total = np.zeros(BINS), np.zeros(BINS)
    if kept.size:
        values, weights = entries[kept], mass[kept]
        # Tiles without entries are a bin of their own, since they may not be launched.
        low, high = values[values > 0].min(initial=values.max()), values.max()
        place = 1 + ((values - low) * (BINS - 1) / (high - low + 1)).astype(np.int64)
        place = np.where(values > 0, np.minimum(place, BINS - 1), 0)
        total = np.bincount(place, weights, BINS).astype(np.float64)
        result = np.bincount(place, weights * values, BINS) / np.maximum(total, 1e-300)
    return result, total


def written(limit: Floats, mean: Floats, variance: Floats, fits: Floats) -> tuple[Floats, Floats]:
    """Return the distribution of the entries up to a limit, on BINS values, scaled to its mass."""
    spread = np.sqrt(variance)
    low = np.maximum(np.floor(mean - 7 * spread - 1), 0.0)
    high = np.maximum(np.minimum(np.floor(mean + 7 * spread + 10), limit), low)
    low = np.minimum(low, high)
    # The first bin contains only the value 0 where possible.
    steps = np.linspace(0.0, 1.0, BINS)[None, :]
    edges = np.floor(low[:, None] + (high - low)[:, None] * steps)
    before = np.concatenate([low[:, None] - 1, edges], axis=1)
    above = exceedance(before, mean[:, None], variance[:, None])
    mass = np.maximum(above[:, :-1] - above[:, 1:], 0.0) + 1e-300
    entries = (before[:, 1:] + before[:, :-1] + 1) / 2
    mass *= (np.maximum(fits, 0.0) / mass.sum(axis=1))[:, None]
    return np.where(mass > 0, np.maximum(entries, 0.0), 0.0), mass


def either(limit: Ints, a: tuple[Floats, Floats], b: tuple[Floats, Floats], together: Floats) -> Floats:
    """Return P(the entries of A or of B are above the limit): normal with their covariance, except for their
    own tails."""
    from scipy.special import ndtr, ndtri

    tails = [np.clip(exceedance(limit, *one), 0.0, 1.0) for one in (a, b)]
    linked = np.clip(together / np.sqrt(np.maximum(a[1] * b[1], 1e-300)), 0.0, 1 - 1e-9)[:, None]
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    z = [-ndtri(np.clip(t, 1e-16, 1 - 1e-16))[:, None] for t in tails]
    inside = [ndtr((one - np.sqrt(linked) * nodes) / np.sqrt(1 - linked)) for one in z]
    both = (inside[0] * inside[1] * weights).sum(axis=1) / weights.sum()
    # Where one event is certain, and in the far tail, the sum of both is computed without cancellation.
    far = np.minimum(tails[0] + tails[1], 1.0)
    result: Floats = np.clip(np.where(far < 1e-6, far, 1 - both), np.maximum(*tails), far)
    return result


# The number of entries that fit a tile: the capacity of a fit in entries.


def most_entries(
    fit: Fit, op: Op, height: Floats, width: Floats, places: Ints, share: Floats, same: bool
) -> Ints:
    """Return, per tile, the most entries that fit: of A and B together for add, of the fuller one for
    multiply.

    Words also count nonempty rows, which are taken at their expected number for uniformly distributed
    entries. Refused for other fits.
    """
    if isinstance(fit, Elements):
        return np.full(np.shape(height), fit.capacity, dtype=np.int64)
    if not isinstance(fit, Words):
        message = f"how many {fit.unit} in a format tiles take is not estimated from a model"
        raise Refused(message, "ask for elements(C) or words(M)", code="unsupported-format")
    budget = (fit.capacity - 3) / 2
    top = 2 * places if op == "add" else places
    low, high = np.zeros(np.shape(height)), np.minimum(top, max(1.0, budget + 1)).astype(np.float64)
    used = _add if op == "add" else _multiply
    roomy = used(high, height, width, places, share, same) <= budget + 0.5
    for _ in range(50):
        middle = (low + high) / 2
        within = used(middle, height, width, places, share, same) <= budget + 0.5
        low, high = np.where(within, middle, low), np.where(within, high, middle)
    # One row more or less is equally likely, so the limit is reached half an entry earlier.
    result: Ints = np.where(roomy, top, np.maximum(np.rint(low - 0.5), 0)).astype(np.int64)
    return result


def _add(entries: Floats, height: Floats, width: Floats, places: Ints, share: Floats, same: bool) -> Floats:
    area = height * width
    rows = height * (
        2 - untouched(width, area, entries * share) - untouched(width, area, entries * (1 - share))
    )
    result: Floats = np.minimum(entries, places) + np.minimum(height, rows)
    return result


def _multiply(
    entries: Floats, height: Floats, width: Floats, places: Ints, share: Floats, same: bool
) -> Floats:
    result: Floats = entries + height * (1 - untouched(width, height * width, entries))
    return result


# The average cost of a tile, given its number of uniformly distributed entries.

_LEAST = 1e-12


def launched(op: Op, entries: Floats, share: ArrayLike, same: bool) -> Floats:
    """Return P(a tile can have a result), given the entries of A and B together, of which the fraction
    `share` is A's."""
    if same or op == "add":
        return (entries > 0.5).astype(np.float64)
    share = np.asarray(share)
    # Each entry belongs to A or to B independently.
    result: Floats = 1 - share**entries - (1 - share) ** entries + (entries <= 0)
    return np.clip(result, 0.0, 1.0)


def tokens(op: Op, laws: Loads, same: bool) -> Floats:
    """Return the expected cycles of tiles without their ramps, for each number of their entries.

    The entries of a tile are those of A and B together; A has its fraction of them, plus or minus a typical
    deviation. `same`: B is A.
    """
    share, h, w = laws.share[:, None], laws.height[:, None], laws.width[:, None]
    if same or op == "add":
        return _stream(op, laws.entries * share, laws.entries * (1 - share), h, w, same)
    # A tile that fits has neither operand above the capacity.
    room = np.maximum(laws.room[:, None] - laws.entries, 0.0)
    away = np.minimum(np.sqrt(laws.apart[:, None] * laws.entries), room) / 2
    away = np.minimum(away, laws.entries * np.minimum(share, 1 - share))
    a, b = laws.entries * share, laws.entries * (1 - share)
    both = _stream(op, a + away, b - away, h, w, same) + _stream(op, a - away, b + away, h, w, same)
    result: Floats = launched(op, laws.entries, share, same) * both / 2
    return result


def _stream(op: Op, a: Floats, b: Floats, h: Floats, w: Floats, same: bool) -> Floats:
    """For add the entries of the union and its rows; for multiply the longer of two streams."""
    area = np.maximum(h * w, _LEAST)
    a, b = np.minimum(a, area), np.minimum(b, area)
    none_a, none_b = untouched(w, area, a), untouched(w, area, b)
    if same:
        # Both operands contain all rows, and the entries outnumber the rows.
        return a + h * (1 - none_a)
    met = a * b / area
    rows = h * (1 - none_a * none_b)
    if op == "add":
        return a + b - met + rows
    return rows + 1 + _longer(h, w, a, b, none_a, none_b, met)


def _longer(
    h: Floats, w: Floats, a: Floats, b: Floats, none_a: Floats, none_b: Floats, met: Floats
) -> Floats:
    """Return the expected excess of the stream of the entries in common rows over the stream of rows, 0 where
    it is shorter.

    The difference is a sum over rows of D = |A_r or B_r| where both contain the row, and -1 where one does.
    Its variance is that of rows with binomial numbers of entries, minus the part explained by fixed totals of
    A and of B; the excess is that of a normal distribution.
    """
    from scipy.special import ndtr

    some_a, some_b = 1 - none_a, 1 - none_b
    per = np.maximum(h, _LEAST)
    mean_a, mean_b = a / per, b / per
    area = np.maximum(h * w, _LEAST)
    var_a, var_b = mean_a * (1 - a / area), mean_b * (1 - b / area)
    square_a, square_b = var_a + mean_a**2, var_b + mean_b**2
    one = some_a * none_b + some_b * none_a
    mean = mean_a * some_b + mean_b * some_a - met / per - one
    variance = square_a * some_b + square_b * some_a + 2 * mean_a * mean_b + one - mean**2
    for own, other, square, var, none in (
        (mean_a, mean_b, square_a, var_a, none_b),
        (mean_b, mean_a, square_b, var_b, none_a),
    ):
        together = square * (1 - none) + own * other - own * none - mean * own
        variance = variance - together**2 / np.maximum(var, _LEAST)
    middle = h * mean - 1
    spread = np.sqrt(np.maximum(h * variance, 1e-9))
    score = middle / spread
    density = np.exp(-np.minimum(score**2, 1400.0) / 2) / np.sqrt(2 * np.pi)
    result: Floats = spread * density + middle * ndtr(score)
    return result
