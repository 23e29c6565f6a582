"""What a tile costs on average, given how many entries it holds at random places."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from polymodel.sparse.density.model import Floats
from polymodel.sparse.density.regions import untouched
from polymodel.tiling.estimate.loads import Loads
from polymodel.tiling.fits.fit import Op

_LEAST = 1e-12


def launched(op: Op, entries: Floats, share: ArrayLike, same: bool) -> Floats:
    """P(a tile can have a result), given the entries of A and B together, a `share` of them A's."""
    if same or op == "add":
        return (entries > 0.5).astype(np.float64)
    share = np.asarray(share)
    # Each entry is A's or B's by itself.
    found: Floats = 1 - share**entries - (1 - share) ** entries + (entries <= 0)
    return np.clip(found, 0.0, 1.0)


def tokens(op: Op, laws: Loads, same: bool) -> Floats:
    """Expected cycles of tiles less their ramps, for each number of their entries.

    Entries of a tile are those of A and B together; A has its share of them and a typical deviation more, or
    less. `same`: B is A.
    """
    share, h, w = laws.share[:, None], laws.height[:, None], laws.width[:, None]
    if same or op == "add":
        return _stream(op, laws.entries * share, laws.entries * (1 - share), h, w, same)
    # What fits has neither operand above the capacity.
    room = np.maximum(laws.room[:, None] - laws.entries, 0.0)
    away = np.minimum(np.sqrt(laws.apart[:, None] * laws.entries), room) / 2
    away = np.minimum(away, laws.entries * np.minimum(share, 1 - share))
    a, b = laws.entries * share, laws.entries * (1 - share)
    both = _stream(op, a + away, b - away, h, w, same) + _stream(op, a - away, b + away, h, w, same)
    found: Floats = launched(op, laws.entries, share, same) * both / 2
    return found


def _stream(op: Op, a: Floats, b: Floats, h: Floats, w: Floats, same: bool) -> Floats:
    """For add entries of the union and its rows; for multiply the longer of two streams."""
    area = np.maximum(h * w, _LEAST)
    a, b = np.minimum(a, area), np.minimum(b, area)
    none_a, none_b = untouched(w, area, a), untouched(w, area, b)
    if same:
        # The rows that both hold are all, and their entries outnumber them.
        return a + h * (1 - none_a)
    met = a * b / area
    rows = h * (1 - none_a * none_b)
    if op == "add":
        return a + b - met + rows
    return rows + 1 + _longer(h, w, a, b, none_a, none_b, met)


def _longer(
    h: Floats, w: Floats, a: Floats, b: Floats, none_a: Floats, none_b: Floats, met: Floats
) -> Floats:
    """Expected excess of the stream of common rows' entries over the stream of rows, 0 where it is shorter.

    The difference is a sum over rows of D = |A_r or B_r| where both hold the row, -1 where one does. Its
    variance is that of rows of binomial entries, less what fixed totals of A and of B explain; the excess is
    that of a normal law.
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
    found: Floats = spread * density + middle * ndtr(score)
    return found
