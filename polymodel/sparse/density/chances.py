"""Chances of all points of a matrix from weights of its rows and columns, added up over rectangles.

All rows with as many nonzeros have one weight, and all columns: there are few kinds of points. A function of
the two weights is a sum of few products of a function of the one and a function of the other (its singular
values fall fast), so sums over a rectangle are products of sums over its rows and over its columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from polymodel.sparse.density.model import Floats, Ints

# Kinds of rows and of columns that are told apart, terms of a sum of products, rounds of weighing.
_KINDS, _TERMS, _ROUNDS = 512, 40, 200
# Weights are found until lines have their nonzeros to this share.
_NEAR = 1e-11


@dataclass(frozen=True, eq=False)
class Products:
    """A function of points as sums of products, summed along rows and along columns (one row more: the
    start)."""

    rows: Floats
    columns: Floats

    @classmethod
    def of(cls, values: Floats, row_kinds: Ints, column_kinds: Ints) -> Products:
        """From the values of kinds of rows x kinds of columns."""
        left, right = _factors(values)
        return cls(_running(left[row_kinds]), _running(right[column_kinds]))

    def over(self, rects: Ints) -> Floats:
        """The sum over all points of each rectangle."""
        row, column, height, width = rects.T
        found = np.zeros(rects.shape[0])
        for rows, columns in zip(self.rows.T, self.columns.T, strict=True):
            found += (rows[row + height] - rows[row]) * (columns[column + width] - columns[column])
        return found


@dataclass(frozen=True, eq=False)
class Chances:
    """Sums over points of the chance p of a nonzero, of p squared, and of ln(1 - p)."""

    mean: Products
    square: Products
    log_empty: Products


def chances_of(rows: Floats, columns: Floats) -> Chances:
    """Chances x y / (1 + x y) under which rows and columns have these expected nonzeros."""
    (row_values, row_kinds), (column_values, column_kinds) = (_kinds(x) for x in (rows, columns))
    row_number, column_number = (
        np.bincount(k, minlength=v.size).astype(np.float64)
        for k, v in ((row_kinds, row_values), (column_kinds, column_values))
    )
    chance = _weighed(row_values, row_number, column_values, column_number)
    functions: tuple[Callable[[Floats], Floats], ...] = (
        lambda p: p,
        lambda p: p * p,
        lambda p: np.maximum(np.log1p(-np.minimum(p, 1.0)), -40.0),
    )
    with np.errstate(divide="ignore"):
        made = [Products.of(f(chance), row_kinds, column_kinds) for f in functions]
    return Chances(*made)


def _kinds(values: Floats) -> tuple[Floats, Ints]:
    """Distinct numbers of nonzeros, and which each line has; of very many, neighbours share their mean."""
    found, place = np.unique(values, return_inverse=True)
    place = place.reshape(-1)
    if found.size <= _KINDS:
        return found, place
    group = np.searchsorted(np.linspace(0, 1, _KINDS), np.arange(found.size) / found.size, side="right") - 1
    own = group[place]
    total = np.bincount(own, weights=values, minlength=_KINDS)
    number = np.maximum(np.bincount(own, minlength=_KINDS), 1)
    return total / number, own


def _weighed(rows: Floats, row_number: Floats, columns: Floats, column_number: Floats) -> Floats:
    """The chance of each kind of point, by weights of rows and of columns in turn."""
    some, any_column = rows > 0, columns > 0
    found = np.zeros((rows.size, columns.size))
    if not some.any():
        return found
    full_rows, full_columns = float(column_number[any_column].sum()), float(row_number[some].sum())
    total = float(rows @ row_number)
    x, y = np.log(rows[some] / total**0.5), np.log(columns[any_column] / total**0.5)
    many, many_columns = row_number[some], column_number[any_column]
    chance = np.zeros((x.size, y.size))
    for _ in range(_ROUNDS):
        x = _solved(x, y, rows[some], many_columns, full_rows)
        y = _solved(y, x, columns[any_column], many, full_columns)
        chance = _logistic(x[:, None] + y[None, :])
        off = np.abs(chance @ many_columns - rows[some]) / rows[some]
        if off.max() < _NEAR:
            break
    found[np.ix_(some, any_column)] = chance
    return found


def _solved(own: Floats, other: Floats, wanted: Floats, number: Floats, most: float) -> Floats:
    """Logarithms of weights under which lines have the wanted nonzeros, given those of the crossing lines."""
    for _ in range(4):
        chance = _logistic(own[:, None] + other[None, :])
        mean, slope = chance @ number, (chance * (1 - chance)) @ number
        # A line that is full wherever anything is has no finite weight.
        step = np.where(wanted < most, (wanted - mean) / np.maximum(slope, 1e-300), 1.0)
        own = np.minimum(own + np.clip(step, -2.0, 2.0), 60.0)
    return own


def _logistic(z: Floats) -> Floats:
    from scipy.special import expit

    found: Floats = expit(z)
    return found


def _factors(values: Floats) -> tuple[Floats, Floats]:
    """values = left @ right.T to rounding, with few columns: a randomised singular value decomposition."""
    terms = min(_TERMS, *values.shape)
    if not terms:
        return np.zeros((values.shape[0], 1)), np.zeros((values.shape[1], 1))
    probe = np.random.default_rng(0).standard_normal((values.shape[1], terms))
    base = np.linalg.qr(values @ probe)[0]
    left, sizes, right = np.linalg.svd(base.T @ values, full_matrices=False)
    kept = max(1, int((sizes > 1e-13 * sizes[0]).sum()))
    return base @ left[:, :kept] * sizes[:kept], right[:kept].T


def _running(values: Floats) -> Floats:
    found: Floats = np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])
    return found
