"""Sums over classes of tiles at many points at once, with factors of few rank variables tabulated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymodel.sparse.actions.counters import Ints, distinct_rows
from polymodel.sparse.density.model import Floats
from polymodel.sweeps.sparse.classes import Classes, Term
from polymodel.sweeps.sparse.columns import Settings
from polymodel.sweeps.sparse.factors import MOST, ClassFactor, Holds, Meets, TabulatedFactor

Array = Any
PIECE = 4_000_000  # entries of one intermediate array


class Contraction:
    """Sum over terms and classes of sign x product of weights x product of factors.

    `each`: rank variable -> classes per setting. `powers`: the exponent of the extent along a variable. A
    factor sums over the variables that no other factor has, once for all combinations of their settings.
    """

    def __init__(
        self,
        each: Mapping[str, Sequence[Classes]],
        terms: Sequence[Term],
        factors: Sequence[ClassFactor] = (),
        powers: Mapping[str, int] | None = None,
    ) -> None:
        self.signs = [sign for sign, _ in terms]
        self.weights: dict[str, Floats] = {}
        self.index: list[dict[str, Ints]] = [{} for _ in factors]
        rows: list[dict[str, Ints]] = [{} for _ in factors]
        for variable, settings in each.items():
            users = [i for i, f in enumerate(factors) if variable in f.variables]
            found = _grouped(
                settings, variable, terms, [factors[i] for i in users], (powers or {}).get(variable, 0)
            )
            self.weights[variable], keys = found
            for i, key in zip(users, keys, strict=True):
                flat = key.reshape(-1, key.shape[-1])
                rows[i][variable], back = np.unique(flat, axis=0, return_inverse=True)
                self.index[i][variable] = back.reshape(key.shape[:2])
        self.factors = [TabulatedFactor(f, [rows[i][v] for v in f.variables]) for i, f in enumerate(factors)]
        users_of = {v: sum(v in f.variables for f in factors) for v in each}
        self.free = [v for v, n in users_of.items() if n == 0]
        self.shared = [v for v, n in users_of.items() if n > 1]
        self.flat = {v: self.weights[v].sum(axis=2) for v in self.free}
        self.tables = [self._table(i) for i in range(len(factors))]

    def values(self, settings: Settings) -> Floats:
        """The sum at every point; `settings`: per rank variable, arrays that broadcast."""
        parts = [self._part_at(i, settings) for i in range(len(self.factors))]
        total: Floats = np.zeros(())
        for t, sign in enumerate(self.signs):
            base: Floats = np.asarray(float(sign))
            for v in self.free:
                base = base * self.flat[v][:, t][settings[v]]
            for picks in product(*(range(self.weights[v].shape[2]) for v in self.shared)):
                at = dict(zip(self.shared, picks, strict=True))
                found = base
                for v, k in at.items():
                    found = found * self.weights[v][:, t, k][settings[v]]
                for i, f in enumerate(self.factors):
                    found = found * parts[i](t, tuple(at[v] for v in f.variables if v in at))
                total = total + found
        return total

    def largest(self, settings: Settings) -> Floats:
        """The largest product of probabilities among classes that count; settings are arrays of points."""
        size = max(s.size for s in settings.values())
        used = [v for v in self.weights if v not in self.free]
        step = max(1, PIECE // prod(self.weights[v].shape[2] for v in used))
        result = np.empty(size)
        for begin in range(0, size, step):
            some = {v: np.broadcast_to(s, (size,))[begin : begin + step] for v, s in settings.items()}
            result[begin : begin + step] = self._largest(some, used)
        return result

    def _largest(self, settings: Settings, used: Sequence[str]) -> Floats:
        size = next(iter(settings.values())).size
        shape = {v: (size,) + (1,) * i + (-1,) + (1,) * (len(used) - 1 - i) for i, v in enumerate(used)}
        one = (size,) + (1,) * len(used)
        count: Floats = np.zeros(one)
        for t, sign in enumerate(self.signs):
            product_: Floats = np.full(one, float(sign))
            for v in self.free:
                product_ = product_ * self.flat[v][:, t][settings[v]].reshape(one)
            for v in used:
                product_ = product_ * self.weights[v][:, t][settings[v]].reshape(shape[v])
            count = count + product_
        value: Floats = np.ones(one)
        for i, f in enumerate(self.factors):
            if not isinstance(f.factor, Holds | Meets):
                continue
            value = value * f.at([self.index[i][v][settings[v]].reshape(shape[v]) for v in f.variables])
        masked = np.where(count > 0.5, value, -1.0).reshape(size, -1).max(axis=1)
        return np.where(masked < 0, 1.0, masked)

    def _table(self, i: int) -> Floats | None:
        """For all combinations of settings: terms x shared classes x settings; None if there are too many."""
        f = self.factors[i]
        sizes = [self.weights[v].shape[0] for v in f.variables]
        classes = prod(self.weights[v].shape[2] for v in f.variables if v in self.shared)
        if prod(sizes) * classes * len(self.signs) > MOST:
            return None
        grids = np.ix_(*(np.arange(n) for n in sizes))
        return self._part(i, dict(zip(f.variables, grids, strict=True)))

    def _part_at(self, i: int, settings: Settings) -> _TermArray:
        table = self.tables[i]
        if table is not None:
            return _TermArray(table, tuple(settings[v] for v in self.factors[i].variables))
        return _TermArray(self._part(i, settings), None)

    def _part(self, i: int, settings: Settings) -> Floats:
        """Terms x classes of shared variables x points."""
        variables = self.factors[i].variables
        shape = np.broadcast_shapes(*(settings[v].shape for v in variables))
        each = prod(self.weights[v].shape[2] for v in variables)
        first = shape[0] if shape else 1
        step = max(1, PIECE * first // max(1, prod(shape) * each))
        if not shape or step >= first:
            return self._piece(i, settings)
        pieces = []
        for begin in range(0, first, step):
            some = {
                v: s[begin : begin + step] if s.ndim == len(shape) and s.shape[0] > 1 else s
                for v, s in settings.items()
                if v in variables
            }
            pieces.append(self._piece(i, some))
        kept = len(pieces[0].shape) - len(shape)
        return np.concatenate(pieces, axis=kept)

    def _piece(self, i: int, settings: Settings) -> Floats:
        f = self.factors[i]
        shape = np.broadcast_shapes(*(settings[v].shape for v in f.variables))
        index = [_placed(self.index[i][v][settings[v]], len(shape), j, f) for j, v in enumerate(f.variables)]
        value = f.at(index)
        private = [(j, v) for j, v in enumerate(f.variables) if v not in self.shared]
        found = []
        for t in range(len(self.signs)):
            term = value
            for j, v in private:
                weight = _placed(self.weights[v][:, t][settings[v]], len(shape), j, f)
                term = (term * weight).sum(axis=len(shape) + j, keepdims=True)
            gone = tuple(len(shape) + j for j, _ in private)
            found.append(np.squeeze(term, axis=gone))
        stacked = np.stack(found)
        rest = stacked.ndim - 1 - len(shape)
        order = (0, *range(1 + len(shape), 1 + len(shape) + rest), *range(1, 1 + len(shape)))
        return stacked.transpose(order)


class _TermArray:
    """Terms x shared classes x points, from a table or computed."""

    def __init__(self, values: Floats, at: tuple[NDArray[np.int64], ...] | None) -> None:
        self.values, self.at = values, at

    def __call__(self, term: int, classes: tuple[int, ...]) -> Floats:
        result: Floats = self.values[(term, *classes)]
        return result if self.at is None else result[self.at]


def _placed(values: Array, points: int, place: int, factor: TabulatedFactor) -> Array:
    """The classes (last axis) moved to their position after the axes of the points."""
    lead = values.shape[:-1]
    behind = len(factor.variables) - 1 - place
    return values.reshape(
        (1,) * (points - len(lead)) + lead + (1,) * place + values.shape[-1:] + (1,) * behind
    )


def _grouped(
    settings: Sequence[Classes],
    variable: str,
    terms: Sequence[Term],
    users: Sequence[ClassFactor],
    power: int,
) -> tuple[Floats, list[Ints]]:
    """Weights (setting, term, class) of classes that the factors do not distinguish, padded with weight 0.

    And per factor the columns that it depends on (setting, class, column).
    """
    weights, keys = [], []
    for classes in settings:
        columns = [f.columns(variable, classes) for f in users]
        flat = [c for some in columns for c in some]
        if flat:
            first, back = distinct_rows(flat, classes.count.size)
            distinct = np.array(flat)[:, first]
        else:
            distinct, back = np.zeros((0, 1), np.int64), np.zeros(classes.count.size, np.int64)
        amount = classes.count * classes.extent.astype(np.float64) ** power
        weights.append(
            np.array(
                [np.bincount(back, amount * classes.holds(f), minlength=distinct.shape[1]) for _, f in terms]
            )
        )
        keys.append(distinct)
    most = max(w.shape[1] for w in weights)
    padded = np.zeros((len(weights), len(terms), most))
    for i, w in enumerate(weights):
        padded[i, :, : w.shape[1]] = w
    result = []
    for begin, stop in _spans([len(f.columns(variable, settings[0])) for f in users]):
        key = np.zeros((len(keys), most, stop - begin), np.int64)
        for i, k in enumerate(keys):
            key[i] = k[begin:stop, :1].T
            key[i, : k.shape[1]] = k[begin:stop].T
        result.append(key)
    return padded, result


def _spans(lengths: Sequence[int]) -> Iterator[tuple[int, int]]:
    begin = 0
    for n in lengths:
        yield begin, begin + n
        begin += n
