"""Laws of what tiles hold: how likely they overflow, and their entries where they fit."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import ArrayLike

from polymodel.sparse.density.model import Floats, Ints

# Values of the entries of a tile that are told apart.
BINS = 64
# A law is written out so many standard deviations around its mean, and so many entries more.
REACH, MORE = 9.0, 30.0
# Nodes of the Gauss-Hermite rule over what both operands share.
_NODES = 24


@dataclass(frozen=True, eq=False)
class Loads:
    """Laws of k rectangles.

    `over` (k): P(load > capacity). `entries`, `mass` (k x BINS): entries of A and B together where the tile
    fits, and how likely; rows of `mass` sum to 1 - over. `mean`, `variance` (k): of these entries, whether
    they fit or not. `share` (k): A's part of them. `room` (k): entries of both above which a tile is over.
    `apart` (k): variance of A's entries less B's, given those of both together, for each of these.
    `height`, `width` (k): rows and columns for what happens inside, rows being those that can hold entries.
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
        found: Floats = self.mass.sum(axis=1)
        return found


def tail(more_than: ArrayLike, mean: ArrayLike, variance: ArrayLike) -> Floats:
    """P(X > x) of a count with this mean and variance: a Poisson law, scaled so that both are right.

    With variance = mean it is the Poisson law itself; with none, a step.
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
    found: Floats = np.where(x < 0, 1.0, np.where(narrow, sure, smooth))
    return found


def binned(entries: Floats, mass: Floats) -> tuple[Floats, Floats]:
    """A law on so many values as one on BINS values of the same mean."""
    kept = np.flatnonzero(mass > 0)
    found, total = np.zeros(BINS), np.zeros(BINS)
    if kept.size:
        values, weights = entries[kept], mass[kept]
        # No entries at all is told apart: such tiles may not be launched.
        low, high = values[values > 0].min(initial=values.max()), values.max()
        place = 1 + ((values - low) * (BINS - 1) / (high - low + 1)).astype(np.int64)
        place = np.where(values > 0, np.minimum(place, BINS - 1), 0)
        total = np.bincount(place, weights, BINS).astype(np.float64)
        found = np.bincount(place, weights * values, BINS) / np.maximum(total, 1e-300)
    return found, total


def written(limit: Floats, mean: Floats, variance: Floats, fits: Floats) -> tuple[Floats, Floats]:
    """The law of the entries up to a limit, on BINS values, scaled to its mass."""
    spread = np.sqrt(variance)
    low = np.maximum(np.floor(mean - 7 * spread - 1), 0.0)
    high = np.maximum(np.minimum(np.floor(mean + 7 * spread + 10), limit), low)
    low = np.minimum(low, high)
    # The first bin is the value 0 alone where it can be.
    steps = np.linspace(0.0, 1.0, BINS)[None, :]
    edges = np.floor(low[:, None] + (high - low)[:, None] * steps)
    before = np.concatenate([low[:, None] - 1, edges], axis=1)
    above = tail(before, mean[:, None], variance[:, None])
    mass = np.maximum(above[:, :-1] - above[:, 1:], 0.0) + 1e-300
    entries = (before[:, 1:] + before[:, :-1] + 1) / 2
    mass *= (np.maximum(fits, 0.0) / mass.sum(axis=1))[:, None]
    return np.where(mass > 0, np.maximum(entries, 0.0), 0.0), mass


def either(limit: Ints, a: tuple[Floats, Floats], b: tuple[Floats, Floats], together: Floats) -> Floats:
    """P(A's or B's entries are above the limit), normal but for their own tails, with their covariance."""
    from scipy.special import ndtr, ndtri

    tails = [np.clip(tail(limit, *one), 0.0, 1.0) for one in (a, b)]
    linked = np.clip(together / np.sqrt(np.maximum(a[1] * b[1], 1e-300)), 0.0, 1 - 1e-9)[:, None]
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    z = [-ndtri(np.clip(t, 1e-16, 1 - 1e-16))[:, None] for t in tails]
    inside = [ndtr((one - np.sqrt(linked) * nodes) / np.sqrt(1 - linked)) for one in z]
    both = (inside[0] * inside[1] * weights).sum(axis=1) / weights.sum()
    # Where one is sure, and in the far tail, the sum of both is told without cancellation.
    far = np.minimum(tails[0] + tails[1], 1.0)
    found: Floats = np.clip(np.where(far < 1e-6, far, 1 - both), np.maximum(*tails), far)
    return found
