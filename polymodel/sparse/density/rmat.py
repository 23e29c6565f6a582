"""Recursive graphs (R-MAT): the expected nonzeros of their rows and columns.

A nonzero falls into one of the four quarters of the matrix with probabilities a, b, c, d, then into one of
the quarters of that, and so on; one that falls onto another is drawn again. The number of rows with as many 1
bits in their number is binomial, and all of them have the same law.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polymodel.sparse.density.model import Floats, Ints

# Quarters: the upper left, upper right, lower left, lower right one.
Quarters = Sequence[float]


def rmat_lines(side: int, nnz: int, quarters: Quarters) -> tuple[Floats, Floats]:
    """Expected nonzeros of rows and of columns, in the order of their numbers. `side` is a power of two."""
    from scipy.optimize import brentq

    levels = side.bit_length() - 1
    a, b, c, d = quarters
    rates, number = _rates(levels, (a, b, c, d))
    ones = np.arange(levels + 1)
    rows_of_kind = _binomials(levels)[levels, ones]

    def short(log_draws: float) -> float:
        filled = (-np.expm1(-np.exp(log_draws) * rates) * number).sum(axis=(1, 2)) @ rows_of_kind
        return float(filled) - nnz

    # More draws than nonzeros, as some fall onto others.
    low, high = np.log(nnz) - 1, np.log(nnz) + 1
    while short(high) < 0 and high < 600:
        high += 2
    draws = np.exp(brentq(short, low, high, xtol=1e-12))
    found = []
    for own in ((a, b, c, d), (a, c, b, d)):
        rates, number = _rates(levels, own)
        by_ones = (-np.expm1(-draws * rates) * number).sum(axis=(1, 2))
        found.append(by_ones[_ones(side)])
    rows, columns = found
    scale = float(nnz)
    return rows * (scale / float(rows.sum())), columns * (scale / float(columns.sum()))


def _rates(levels: int, quarters: Quarters) -> tuple[Floats, Floats]:
    """Of a row with so many 1 bits and a column with x of them where the row has 0 and y where it has 1: the
    share of the nonzeros that fall onto the point, and how many such columns there are."""
    a, b, c, d = quarters
    row, x, y = (n.astype(np.float64) for n in np.indices((levels + 1,) * 3))
    zeros = levels - row
    ways = _binomials(levels)
    index = [n.astype(np.int64) for n in (zeros, x, row, y)]
    number = ways[index[0], index[1]] * ways[index[2], index[3]]
    there = number > 0
    left, left_ones = (np.where(there, n, 0.0) for n in (zeros - x, row - y))
    return np.where(there, a**left * b**x * c**left_ones * d**y, 0.0), number


def _binomials(most: int) -> Floats:
    """C(n, k), 0 for k > n."""
    found = np.zeros((most + 1, most + 1))
    found[:, 0] = 1
    for n in range(1, most + 1):
        found[n, 1:] = found[n - 1, 1:] + found[n - 1, :-1]
    return found


def _ones(side: int) -> Ints:
    """How many 1 bits each number below `side` has."""
    found = np.zeros(1, dtype=np.int64)
    while found.size < side:
        found = np.concatenate([found, found + 1])
    return found
