"""Slices of rows: expected loads, and the lock-step time, of the three ways to cut the top rank.

`greedy`: rows in order, each to the slice with the least load (`uniform_slice`). `shape_tiles`: so many
consecutive rows per slice (`uniform_shape`). `nway`: so many slices of consecutive rows (`nway_shape`). A row
is a fiber of the top rank with all ranks below; its load is its nonzeros.

Where the model knows the rows (actual data, a histogram with the top rank, a band, groups inside rows) the
answers are counted. Else the rows are random and alike, and numerics answer, without drawing anything:

- loads of blocks of consecutive rows are `expected_max` of the model;
- greedy slices are machines that take jobs from a list: each machine is a renewal process, independent of the
  others, until the last row is taken. Then its residual load follows the equilibrium law of renewal theory,
  and all loads add up to the nonzeros, which gives the time of the last start and the greatest load. In lock
  step, the row at position p of a slice is independent of whether the slice gets that far.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np

from polymodel.errors import Diagnostic, SpecError
from polymodel.sparse.assign import least_loaded
from polymodel.sparse.density.model import DensityModel, Ints, Label
from polymodel.sparse.density.rows import Rows


@dataclass(frozen=True)
class Slices:
    """What slices of rows cost: loads in nonzeros, lock-step time in nonzeros processed one after another.

    `slices` of `rows` rows; `occupied` slices with a nonzero. `max_load` lies within `lower` and `upper`,
    which are bounds (label `bound`). `lockstep`: sum over positions p of the greatest nonzeros of any slice's
    p-th nonempty row. `label`: of all but the bounds; what is `expected` of random rows is good to a percent
    or two.
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
        """Greatest load over the mean load of all slices."""
        return self.max_load * self.slices / self.nonzeros if self.nonzeros else 1.0


def load_bounds(nonzeros: float, max_row: float, slices: float) -> tuple[float, float]:
    """Bounds of the greatest load of greedy slices (R. Graham, 1966): whatever the rows, also of
    expectations."""
    mean = nonzeros / slices
    return max(mean, max_row), mean + (1 - 1 / slices) * max_row


def greedy(model: DensityModel, slices: int) -> Slices:
    """`uniform_slice(slices)`: each row, in order, to the slice with the least load, ties to the lowest."""
    if slices < 1:
        raise SpecError([Diagnostic(f"{slices} slices", "at least one is needed")])
    counts = model.known_rows()
    if counts is not None:
        return _counted(model, counts, least_loaded(counts, slices), slices, ordered=False)
    if not model.expected_nnz:
        return _none(float(slices), model.label)
    rows = Rows.of(model)
    load = rows.greedy_load(slices)
    lower, upper = load_bounds(rows.nonzeros, rows.greatest, slices)
    occupied = min(float(slices), rows.nonempty)
    steps = rows.greedy_lockstep(slices)
    return Slices(
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


def shape_tiles(model: DensityModel, rows: int) -> Slices:
    """`uniform_shape(rows)`: a slice is `rows` consecutive rows; the last may have fewer."""
    if rows < 1:
        raise SpecError([Diagnostic(f"slices of {rows} rows", "at least one is needed")])
    rows = min(rows, model.shape[0])
    number = -(-model.shape[0] // rows)
    counts = model.known_rows()
    if counts is not None:
        place = np.arange(counts.size) // rows
        return _counted(model, counts, np.where(counts > 0, place, -1), number, ordered=True)
    if not model.expected_nnz:
        return _none(float(number), model.label)
    every = Rows.of(model)
    tile = (rows, *model.shape[1:])
    load = float(model.expected_max(tile))
    steps = every.block_lockstep(rows, model.shape[0])
    nonzeros = every.nonzeros
    lower = max(nonzeros / number, every.greatest)
    return Slices(
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


def nway(model: DensityModel, parts: int) -> Slices:
    """`nway_shape(parts)`: slices of (rows - 1) // parts + 1 consecutive rows."""
    if parts < 1:
        raise SpecError([Diagnostic(f"{parts} parts", "at least one is needed")])
    return shape_tiles(model, (model.shape[0] - 1) // parts + 1)


def _none(slices: float, label: Label) -> Slices:
    """Slices of a tensor without nonzeros."""
    return Slices(slices, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, label)


def _counted(model: DensityModel, rows: Ints, place: Ints, slices: int, *, ordered: bool) -> Slices:
    """Counted loads and lock-step time of rows with known slices."""
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
    return Slices(
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
