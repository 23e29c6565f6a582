"""Estimate the loads and the lock-step time of slices of rows, for the three ways to divide the top rank.

`greedy`: each row, in order, goes to the slice with the least load (`uniform_slice`). `shape_tiles`: a fixed
number of consecutive rows per slice (`uniform_shape`). `nway`: a fixed number of slices of consecutive rows
(`nway_shape`). A row is a fiber of the top rank with all ranks below; its load is its number of nonzeros.

Where the model determines the rows (given data, a histogram that includes the top rank, a band, groups inside
rows) the results are counted. Otherwise the rows are random and identically distributed, and the results are
computed numerically, without drawing samples:

- loads of blocks of consecutive rows are `expected_max` of the model;
- greedy slices are machines that take jobs from a list: each machine is a renewal process, independent of the
  others, until the last row is taken. Then its residual load has the equilibrium distribution of renewal
  theory, and all loads add up to the nonzeros, which determines the time of the last start and the maximum
  load. In lock step, the row at position p of a slice is independent of whether the slice has p rows.
"""

from __future__ import annotations

from functools import cached_property
from math import ceil

import numpy as np

from polymodel.errors import Diagnostic, SpecError
from polymodel.frozen import dataclass
from polymodel.sparse.assign import least_loaded
from polymodel.sparse.density.laws import RARE, deviation
from polymodel.sparse.density.model import DensityModel, Floats, Ints, Label

# Costs of slices of independent and identically distributed random rows.
#
# Renewal theory replaces drawing samples: a greedy slice is a machine that takes the next row when idle.

# Below this variance of the time of a slice's last start, in squared rows, slices still take rows in rounds.
_IN_STEP = 0.3
# The most distinct loads of a row, and entries of a block of work.
_VALUES, _BLOCK = 4096, 1 << 21


@dataclass(frozen=True, eq=False)
class RandomRows:
    """Identically distributed random rows: their number, and the distribution of a nonempty row's load in
    steps of `unit`.

    `above[i]`: P(load > first + i unit), given that the row is not empty. `greatest`: E[max row] over all
    rows.
    """

    number: int
    filled: float
    nonzeros: float
    first: float
    unit: float
    pmf: Floats
    greatest: float

    @classmethod
    def of(cls, model: DensityModel) -> RandomRows:
        one = (1, *model.shape[1:])
        mean, variance = float(model.expected(one)), float(model.variance(one))
        reach = deviation(RARE, max(variance, mean) if mean < 1e4 else variance, 1.0)
        low, high = max(1, int(mean - reach)), min(int(np.prod(one, dtype=float)), int(mean + reach) + 1)
        stride = max(1, (high - low) // _VALUES) | 1
        loads = np.arange(low, high + stride, stride, dtype=np.int64)
        pmf = model.row_pmf(loads, stride)
        filled = float(model.p_nonempty(one))
        pmf = pmf / pmf.sum() if pmf.sum() else pmf
        greatest = float(model.expected_max(one))
        return cls(model.shape[0], filled, model.expected_nnz, float(low), float(stride), pmf, greatest)

    @property
    def nonempty(self) -> float:
        return self.number * self.filled

    @cached_property
    def loads(self) -> Floats:
        result: Floats = self.first + self.unit * np.arange(self.pmf.size, dtype=np.float64)
        return result

    @cached_property
    def above(self) -> Floats:
        result: Floats = np.concatenate((np.cumsum(self.pmf[:0:-1])[::-1], [0.0]))
        return result

    def _largest(self, shares: Floats, machines: float) -> Floats:
        """Return E[max] over `machines` rows, each of which exists with probability `shares[p]` (else it is
        0), for every p."""
        result = np.empty(shares.size)
        step = max(1, _BLOCK // self.pmf.size)
        above = np.concatenate(([1.0], np.minimum(self.above, 1.0)))
        widths = np.concatenate(([self.first], np.full(self.pmf.size, self.unit)))
        with np.errstate(divide="ignore"):
            for start in range(0, shares.size, step):
                part = np.clip(shares[start : start + step, None], 0.0, 1.0)
                result[start : start + step] = -np.expm1(machines * np.log1p(-part * above)) @ widths
        return result

    def _largest_of(self, counts: Floats) -> Floats:
        """Return E[max] over a number of rows, interpolated linearly between whole numbers."""
        least = np.floor(counts)
        most = int(counts.max(initial=0)) + 2
        whole = np.array([0.0, *(float(self._largest(np.ones(1), n)[0]) for n in range(1, most))])
        low, high = whole[least.astype(np.int64)], whole[least.astype(np.int64) + 1]
        result: Floats = low + (counts - least) * (high - low)
        return result

    def block_lockstep(self, rows: int, all_rows: int) -> float:
        """Return the lock-step time of blocks of consecutive rows: the sum over positions of the maximum row
        there."""
        full, edge = divmod(all_rows, rows)
        position = np.arange(1, rows + 1)
        if not edge:
            return float(self._distinct(_at_least(rows, self.filled, position), float(full)).sum())
        shares = _at_least(rows, self.filled, position), _at_least(edge, self.filled, position)
        # The edge block is one more machine that stops earlier: weigh it by its share of a full block's.
        weight = np.divide(shares[1], shares[0], out=np.zeros(rows), where=shares[0] > 0)
        with_edge = self._distinct(shares[0], float(full + 1))
        without = self._distinct(shares[0], float(full))
        return float((without + weight * (with_edge - without)).sum())

    def _distinct(self, shares: Floats, machines: float) -> Floats:
        """Return `_largest`, evaluated once for equal shares."""
        kinds, place = np.unique(np.round(shares, 12), return_inverse=True)
        return self._largest(kinds, machines)[place.reshape(-1)]

    def _mean_and_square(self) -> tuple[float, float]:
        return float(self.pmf @ self.loads), float(self.pmf @ self.loads**2)

    def greedy_load(self, slices: int) -> float:
        """Return the maximum load of greedy slices: the time of the last start, plus the work that remains
        then."""
        if self.nonempty <= slices or slices == 1:
            return self.greatest if slices > 1 else self.nonzeros
        mean, square = self._mean_and_square()
        spread = max(square - mean**2, 1e-12 * mean**2) ** 0.5
        if (spread / mean) ** 2 * self.nonempty / slices < _IN_STEP:
            return _load_in_rounds(mean, spread, round(self.nonempty), slices)
        left = square / (2 * mean)
        last = (self.nonzeros - mean - (slices - 1) * left) / slices
        loads = np.concatenate(([0.0], self.loads))
        tails = np.concatenate(([1.0], self.above))
        steps = np.diff(np.append(loads, loads[-1] + self.unit))
        # E[(X - r)+] / E[X] = P(residual > r). A slice that is free at the same time takes its row before or
        # after the start of the last one: the mean over a step represents both.
        beyond = np.append((tails * steps)[::-1].cumsum()[::-1], 0.0) / mean
        residual = np.minimum(1.0, (beyond[:-1] + beyond[1:]) / 2)
        over = 1 - (1 - tails) * (1 - residual) ** (slices - 1)
        return last + float((over * steps).sum())

    def greedy_lockstep(self, slices: int) -> float:
        """Return the lock-step time of greedy slices. A slice has a row at position p if its first p - 1 rows
        end before the last start."""
        if slices == 1:
            return self.nonzeros
        if self.nonempty <= slices:
            return self.greatest
        mean, square = self._mean_and_square()
        per_slice = self.nonempty / slices
        if (square / mean**2 - 1) * per_slice < _IN_STEP / 3:
            # All slices have a row in every round but the last.
            rounds, over = divmod(self.nonempty, slices)
            one_round = float(self._largest(np.ones(1), float(slices))[0])
            return rounds * one_round + float(self._largest_of(np.array([over]))[0])
        spread = max(0.0, square - mean**2) ** 0.5 * (1 - 1 / slices) ** 0.5
        reach = 12 * spread / mean * per_slice**0.5 + 12
        sure, most = max(1, int(per_slice - reach)), int(per_slice + reach) + 2
        before = np.arange(sure, most, dtype=np.float64)
        from scipy.optimize import brentq
        from scipy.special import ndtr

        def shares(end: float) -> Floats:
            result: Floats = ndtr((end - before * mean) / np.maximum(spread * np.sqrt(before), 1e-9 * mean))
            return result

        # The end is where the slices have taken all rows.
        end = brentq(lambda t: sure + shares(t).sum() - per_slice, -mean, (most + 1) * mean)
        every = float(self._largest(np.ones(1), float(slices))[0]) * sure
        # Slices compete for a fixed number of rows: a row that one slice takes is not available to another.
        # So the number of slices at a position varies less than for independent slices, by 1 - 2/pi (the
        # covariance of signs of normal variables with a fixed sum).
        there = shares(end)
        independent = float(self._largest(there, float(slices)).sum())
        fixed = float(self._largest_of(slices * there).sum())
        return every + fixed * 2 / np.pi + independent * (1 - 2 / np.pi)


def _load_in_rounds(mean: float, spread: float, rows: int, slices: int) -> float:
    """Return the maximum greedy load of rows with so little variance that slices still take them in rounds,
    so that no equilibrium is reached.

    Sums of rows are normal. The result is an integral over the time of the last start, of its probability and
    of the maximum end of the rows that run then.
    """
    from scipy.special import ndtr

    last = (rows - 1) // slices
    reach = 8 * spread * last**0.5
    edges = np.linspace(max(0.0, last * mean - reach), last * mean + reach, 161)
    rounds = np.arange(max(1, last - 4), last + 6)
    # P(a slice has started `rounds` rows by then, and one more); the number of starts of all slices.
    started = ndtr(
        (edges[:, None] - (rounds - 1) * mean) / np.maximum(spread * np.sqrt(rounds - 1), 1e-12 * mean)
    )
    exactly = np.clip(started - np.append(started[:, 1:], np.zeros((edges.size, 1)), axis=1), 0.0, 1.0)
    length = 1 << int(slices * rounds.size).bit_length()
    law = np.fft.irfft(np.fft.rfft(exactly, n=length, axis=1) ** slices, n=length, axis=1)
    fewer = law[:, : max(0, rows - slices * int(rounds[0]))].sum(axis=1)
    weights = np.clip(-np.diff(fewer), 0.0, None)
    kept = weights > 1e-9
    times, weights = ((edges[1:] + edges[:-1]) / 2)[kept], weights[kept] / weights[kept].sum()
    # Ends of the rows that run at these times: a row that started at u ends after x with P(X > x - u).
    ends = np.linspace(0.0, mean + 8 * spread, 241)
    beyond = np.zeros((times.size, ends.size))
    nodes, node_weights = np.polynomial.hermite_e.hermegauss(48)
    for number in range(max(0, last - 4), last + 4):
        start = number * mean + spread * number**0.5 * nodes
        before = start <= times[:, None]
        share = np.where(before, node_weights / node_weights.sum(), 0.0)
        over = ndtr((start - times[:, None] + mean)[:, None, :] / spread - ends[:, None] / spread)
        beyond += np.einsum("tu,tru->tr", share, over)
    below = ndtr((ends - mean) / spread) * (1 - np.minimum(beyond, 1.0)) ** (slices - 1)
    after = np.trapezoid(1 - below, ends, axis=1)
    return float(weights @ (times + after))


def _at_least(rows: int, filled: float, count: Ints) -> Floats:
    """Return P(at least `count` of `rows` rows are nonempty), with rows taken as independent."""
    from scipy.special import bdtrc

    result: Floats = np.where(count > rows, 0.0, bdtrc(count - 1, rows, filled))
    return result


@dataclass(frozen=True)
class SliceCosts:
    """The costs of slices of rows: loads in nonzeros, lock-step time in nonzeros processed one after another.

    `slices`: number of slices; `occupied`: those with a nonzero. `max_load` lies within `lower` and `upper`,
    which are bounds (label `bound`). `lockstep`: the sum over positions p of the maximum nonzeros of any
    slice's p-th nonempty row. `label`: that of all numbers but the bounds; `expected` numbers of random rows
    are accurate to one or two percent.
    """

    slices: float
    occupied: float
    nonzeros: float
    nonempty_rows: float
    max_row: float
    max_load: float
    lower: float
    upper: float
    lockstep: float
    label: Label

    @property
    def imbalance(self) -> float:
        """The maximum load over the mean load of all slices."""
        return self.max_load * self.slices / self.nonzeros if self.nonzeros else 1.0


def load_bounds(nonzeros: float, max_row: float, slices: float) -> tuple[float, float]:
    """Return bounds of the maximum load of greedy slices, for any rows and also for expectations. Source: R.
    Graham, 1966."""
    mean = nonzeros / slices
    return max(mean, max_row), mean + (1 - 1 / slices) * max_row


def greedy(model: DensityModel, slices: int) -> SliceCosts:
    """Return the costs of `uniform_slice(slices)`: each row, in order, goes to the slice with the least load;
    ties go to the lowest."""
    if slices < 1:
        message = f"{slices} slices"
        raise SpecError([Diagnostic(message, "at least one is needed", code="not-positive-integer")])
    counts = model.known_rows()
    if counts is not None:
        return _counted(model, counts, least_loaded(counts, slices), slices, ordered=False)
    if not model.expected_nnz:
        return _none(float(slices), model.label)
    rows = RandomRows.of(model)
    load = rows.greedy_load(slices)
    lower, upper = load_bounds(rows.nonzeros, rows.greatest, slices)
    occupied = min(float(slices), rows.nonempty)
    steps = rows.greedy_lockstep(slices)
    return SliceCosts(
        float(slices),
        occupied,
        rows.nonzeros,
        rows.nonempty,
        rows.greatest,
        min(max(load, lower), upper),
        lower,
        upper,
        steps,
        "expected",
    )


def shape_tiles(model: DensityModel, rows: int) -> SliceCosts:
    """Return the costs of `uniform_shape(rows)`: a slice is `rows` consecutive rows; the last may have
    fewer."""
    if rows < 1:
        message = f"slices of {rows} rows"
        raise SpecError([Diagnostic(message, "at least one is needed", code="not-positive-integer")])
    rows = min(rows, model.shape[0])
    number = -(-model.shape[0] // rows)
    counts = model.known_rows()
    if counts is not None:
        place = np.arange(counts.size) // rows
        return _counted(model, counts, np.where(counts > 0, place, -1), number, ordered=True)
    if not model.expected_nnz:
        return _none(float(number), model.label)
    every = RandomRows.of(model)
    tile = (rows, *model.shape[1:])
    load = float(model.expected_max(tile))
    steps = every.block_lockstep(rows, model.shape[0])
    nonzeros = every.nonzeros
    lower = max(nonzeros / number, every.greatest)
    return SliceCosts(
        float(number),
        float(model.expected_tiles(tile)),
        nonzeros,
        every.nonempty,
        every.greatest,
        load,
        lower,
        min(nonzeros, rows * every.greatest),
        steps,
        "expected",
    )


def nway(model: DensityModel, parts: int) -> SliceCosts:
    """Return the costs of `nway_shape(parts)`: slices of (rows - 1) // parts + 1 consecutive rows."""
    if parts < 1:
        raise SpecError([Diagnostic(f"{parts} parts", "at least one is needed", code="not-positive-integer")])
    return shape_tiles(model, (model.shape[0] - 1) // parts + 1)


def _none(slices: float, label: Label) -> SliceCosts:
    """Return the costs of slices of a tensor without nonzeros."""
    return SliceCosts(slices, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, label)


def _counted(model: DensityModel, rows: Ints, place: Ints, slices: int, *, ordered: bool) -> SliceCosts:
    """Return the counted loads and the lock-step time of rows that are assigned to slices."""
    filled = np.flatnonzero(rows)
    if not filled.size:
        return _none(float(slices), model.label)
    where, loads = place[filled], rows[filled]
    total = np.bincount(where, weights=loads, minlength=slices)
    order = np.argsort(where, kind="stable")
    starts = np.flatnonzero(np.concatenate(([True], np.diff(where[order]) != 0)))
    position = np.arange(filled.size) - np.repeat(starts, np.diff(np.append(starts, filled.size)))
    steps = np.zeros(int(position.max()) + 1, dtype=np.int64)
    np.maximum.at(steps, position, loads[order])
    nonzeros, greatest = float(loads.sum()), float(loads.max())
    lower, upper = load_bounds(nonzeros, greatest, slices)
    if ordered:
        upper = nonzeros
    return SliceCosts(
        float(slices),
        float((total > 0).sum()),
        nonzeros,
        float(filled.size),
        greatest,
        float(total.max()),
        float(ceil(lower)),
        upper,
        float(steps.sum()),
        model.label,
    )
