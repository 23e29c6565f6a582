"""Loads of tiles of uniform random data: hypergeometric laws of the regions that A and B take of it.

B rolled by d rows holds in a tile what A holds d rows above it. The two regions share rows (count twice) and
have rows of their own; occupancies of disjoint regions are jointly hypergeometric. So entries of A and B are
2 X + Y, X those of the shared region, Y of the others, and A's own part of Y is hypergeometric given Y.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polymodel.sparse.density.hypergeometric import Hypergeometric
from polymodel.sparse.density.model import Floats, Ints
from polymodel.tiling.estimate.loads import MORE, REACH
from polymodel.tiling.fits.fit import Op

# Entries of the largest table of (shared, other) entries that is written out.
_TABLE = 1 << 17
# Longest law of one operand that is written out.
_LONGEST = 1 << 13


@dataclass(frozen=True)
class Law:
    """P(entries = first, first + 1, ..), of tiles within capacity; P(over); None of it where `wide`."""

    first: int
    mass: Floats
    over: float


@dataclass(frozen=True)
class One:
    """One operand: entries of `points` places."""

    law: Hypergeometric

    def pmf(self, points: int, capacity: int) -> tuple[int, Floats]:
        """First likely value up to capacity, and the probabilities from there on."""
        t = np.array(points)
        mean, spread = float(self.law.mean(t)), float(self.law.variance(t)) ** 0.5
        low = max(0, int(mean - REACH * spread - MORE))
        high = min(points, self.law.nnz, capacity, int(mean + REACH * spread + MORE))
        if high < low:
            return low, np.zeros(0)
        return low, self.law.pmf(points, np.arange(low, high + 1))


def alone(law: Hypergeometric, points: int, capacity: int) -> Law:
    """Tiles of one operand."""
    first, mass = One(law).pmf(points, capacity)
    return Law(first, mass, _rest(mass))


def same(law: Hypergeometric, points: int, capacity: int, op: Op) -> Law:
    """B is A: every entry counts twice."""
    first, mass = One(law).pmf(points, capacity // 2 if op == "add" else capacity)
    doubled = np.zeros(max(0, 2 * mass.size - 1))
    doubled[::2] = mass
    return Law(2 * first, doubled, _rest(mass))


def independent(a: Hypergeometric, b: Hypergeometric, points: int, capacity: int, op: Op) -> Law | None:
    """B has entries of its own: the convolution of both laws, each cut at the capacity for multiply; None
    where they are too long."""
    first_a, mass_a = One(a).pmf(points, capacity)
    first_b, mass_b = One(b).pmf(points, capacity)
    if not mass_a.size or not mass_b.size:
        return Law(0, np.zeros(0), 1.0)
    if max(mass_a.size, mass_b.size) > _LONGEST:
        return None
    mass = np.convolve(mass_a, mass_b)
    if op == "add":
        mass = mass[: max(0, capacity - first_a - first_b + 1)]
    return Law(first_a + first_b, mass, _rest(mass))


def rolled(law: Hypergeometric, shared: int, own: int, capacity: int, op: Op) -> Law | None:
    """`shared` places that A and B have in common, `own` more of each; None where the table is too large."""
    limit = capacity // 2 if op == "add" else capacity
    low_x, mass_x = One(law).pmf(shared, limit)
    if not mass_x.size:
        return Law(0, np.zeros(0), 1.0)
    # Given x of the shared places, the others hold a hypergeometric number of what is left.
    rest, mean = law.points - shared, float(law.mean(np.array(2 * own)))
    spread = float(law.variance(np.array(2 * own))) ** 0.5
    low_y = max(0, int(mean - REACH * spread - MORE))
    high_y = min(2 * own, law.nnz, 2 * capacity, int(mean + REACH * spread + MORE))
    depth = mass_x.size if op == "add" else max(mass_x.size, high_y)
    if (high_y - low_y + 1) * depth > _TABLE:
        return None
    x, y = low_x + np.arange(mass_x.size), np.arange(low_y, max(high_y, low_y - 1) + 1)
    if own:
        others = Hypergeometric(rest, 2 * own)
        table = mass_x[:, None] * others.pmf(np.maximum(law.nnz - x, 0)[:, None], y[None, :])
    else:
        table, y = mass_x[:, None].copy(), np.zeros(1, dtype=np.int64)
    if op == "multiply" and own:
        table *= _both_within(own, y, capacity - x)
    total = 2 * x[:, None] + y[None, :]
    mass: Floats = np.bincount(total.ravel(), table.ravel()).astype(np.float64)
    if op == "add":
        mass = mass[: capacity + 1]
    return Law(0, mass, _rest(mass))


def _both_within(own: int, y: Ints, limit: Ints) -> Floats:
    """(limits, y): P(neither half of `own` places holds more than the limit), given y of both together."""
    halves = Hypergeometric(2 * own, own)
    most = int(y.max(initial=0))
    k = np.arange(most + 1)
    below = np.cumsum(halves.pmf(y[:, None], k[None, :]), axis=1)
    cut = np.clip(limit, 0, most)
    # The one is above the limit where the other is below y - limit: by symmetry as likely.
    above = 1 - below[:, cut].T
    found: Floats = np.where(y[None, :] <= limit[:, None], 1.0, 1 - 2 * above)
    return np.where((y[None, :] > 2 * limit[:, None]) | (limit[:, None] < 0), 0.0, np.clip(found, 0.0, 1.0))


def _rest(mass: Floats) -> float:
    rest = 1 - float(mass.sum())
    return rest if rest > 1e-13 else 0.0
