"""The same counts expected under a density model: sums in closed form, greedy lanes by sampling their law.

Sums (nonzeros, fibers, slices of tiles) come from the model. What the fullest lane has above the mean has no
closed form: slices are drawn from the law of one slice, stratified, with a fixed seed, and dealt as the
hardware does.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from polymodel.errors import Refused
from polymodel.sparse.density.model import DensityModel, edge_classes
from polymodel.sparse.density.slices import greedy
from polymodel.sparse.fibertree import Bools
from polymodel.sparse.tensaurus.lanes import Floats, Ints

# Slices dealt in one trial, and trials.
_SLICES, _TRIALS = 2048, 32
# Longest table of one slice's law.
_TABLE = 1 << 16
_SEED = 2020


@dataclass(frozen=True)
class Dealt:
    """Means over trials of one dealing of `slices` slices onto lanes.

    `largest`: the fullest lane's slots (nonzeros, and a header per slice if so asked); `steps`: the busiest
    lane's; `mean_slots`, `mean_steps`: per lane; `lockstep`: sum over places of the largest slice there.
    """

    slices: int
    largest: float
    steps: float
    mean_slots: float
    mean_steps: float
    lockstep: float


@dataclass(frozen=True, eq=False)
class Expected:
    """What the kernels need of a density model of two or three ranks, slices first."""

    model: DensityModel

    @property
    def shape(self) -> tuple[int, int, int]:
        i, j, *k = self.model.shape
        return i, j, k[0] if k else 1

    @property
    def nnz(self) -> float:
        return self.model.expected_nnz

    @cached_property
    def fibers(self) -> float:
        """E[N_ij] = sum over (i, j) of 1 - P0(K); of a matrix, its nonzeros."""
        return float(self.model.expected_fibers(2))

    @cached_property
    def rows(self) -> float:
        """Expected nonempty slices."""
        return float(self.model.expected_fibers(1))

    def _tile(self, tiles: tuple[int, int, int]) -> tuple[int, ...]:
        return tiles[: len(self.model.shape)]

    def tile_slices(self, tiles: tuple[int, int, int]) -> float:
        """Expected nonempty pairs of tile and slice."""
        return float(self.model.expected_fibers(1, self._tile(tiles)))

    def tile_fibers(self, tiles: tuple[int, int, int]) -> float:
        """Expected nonempty (i, j) fibers, each counted in every tile of k that it reaches."""
        return float(self.model.expected_fibers(2, self._tile(tiles)))

    def tile_classes(self, tiles: tuple[int, int, int]) -> list[tuple[tuple[int, int, int], float]]:
        """The distinct shapes of hardware tiles, edge tiles among them, and how many there are of each."""
        shape = np.array(self.shape, dtype=np.int64)
        sizes, counts = edge_classes(np.minimum(np.array(tiles, dtype=np.int64), shape), self.shape)
        return [((int(i), int(j), int(k)), float(n)) for (i, j, k), n in zip(sizes, counts, strict=True) if n]

    def slices(self, number: int, box: tuple[int, int], lanes: int) -> tuple[float, float, float]:
        """Nonzeros of the fullest lane and of the largest slice, and lock-step time, all tiles in one.

        Models that know their rows are dealt as they are, random rows by `density.slices`; where that
        refuses, slices are drawn.
        """
        try:
            found = greedy(self.model, lanes)
        except Refused:
            dealt = self.deal(number, box, lanes, 0, 0.0)
            largest = self.nnz / lanes + dealt.largest - dealt.mean_slots
            return largest, self.largest(number, box), dealt.lockstep
        return found.max_load, found.max_row, found.lockstep

    def deal(self, slices: int, box: tuple[int, int], lanes: int, header: int, per_fiber: float) -> Dealt:
        """Deal `slices` slices of `box` = (j, k) points each. `per_fiber`: steps per nonzero for its
        fibers."""
        values, below = self.law(box)
        at = (np.arange(_TABLE) + 0.5) / _TABLE
        law = values[np.minimum(np.searchsorted(below, at), values.size - 1)]
        number = min(slices, _SLICES)
        random = np.random.default_rng(_SEED)
        strata = (np.arange(number) + random.random((_TRIALS, number))) / number
        drawn = law[np.minimum((random.permuted(strata, axis=1) * law.size).astype(np.int64), law.size - 1)]
        slots = drawn + header * (drawn > 0)
        return _dealt(slices, drawn, slots, lanes, per_fiber)

    def law(self, box: tuple[int, int]) -> tuple[Ints, Floats]:
        """Occupancies of one slice of `box` points and P(at most that many), but for 1e-9 at either end."""
        if box not in self._laws:
            tile = self._tile((1, *box))
            low, high = (int(n) for n in self.model.quantile(tile, np.array([1e-9, 1 - 1e-9])))
            if high - low < _TABLE:
                values = np.arange(low, high + 1, dtype=np.int64)
            else:
                values = np.unique(np.linspace(low, high, _TABLE).astype(np.int64))
            self._laws[box] = values, np.asarray(self.model.cdf(tile, values), dtype=np.float64)
        return self._laws[box]

    @cached_property
    def _laws(self) -> dict[tuple[int, int], tuple[Ints, Floats]]:
        return {}

    def largest(self, slices: int, box: tuple[int, int]) -> float:
        """Expected nonzeros of the largest of so many slices, as if they were independent (a lower bound)."""
        values, below = self.law(box)
        above = -np.expm1(slices * np.log(np.maximum(below[:-1], 1e-300)))
        return float(values[0] + (np.diff(values) * above).sum())


def _dealt(slices: int, drawn: Ints, slots: Ints, lanes: int, per_fiber: float) -> Dealt:
    """Greedy lanes in all trials at once."""
    trials, number = drawn.shape
    data = np.zeros((trials, lanes), dtype=np.int64)
    rows = np.arange(trials)
    dealt = np.empty((trials, number), dtype=np.int64)  # the lane of each slice
    for n in range(number):
        lane = data.argmin(axis=1)
        data[rows, lane] += slots[:, n]
        dealt[:, n] = lane
    queue = (rows[:, None] * lanes + dealt).ravel()
    steps = (slots + per_fiber * drawn).ravel()
    work = np.bincount(queue, weights=steps, minlength=trials * lanes).reshape(trials, lanes)
    most = np.zeros((trials, number + 1), dtype=np.int64)
    trial = np.repeat(rows, number)
    np.maximum.at(most, (trial, _places(queue, drawn.ravel() > 0, trials * lanes)), drawn.ravel())
    return Dealt(
        slices=number,
        largest=float(data.max(axis=1).mean()),
        steps=float(work.max(axis=1).mean()),
        mean_slots=float(data.mean()),
        mean_steps=float(work.mean()),
        lockstep=float(most.sum(axis=1).mean()) * (slices / number if number else 0.0),
    )


def _places(queue: Ints, kept: Bools, queues: int) -> Ints:
    """How many that are kept come before each one in its queue [n]."""
    order = np.argsort(queue, kind="stable")
    sorted_ = kept[order]
    before: Ints = np.cumsum(sorted_) - sorted_
    lengths = np.bincount(queue, minlength=queues)
    first = np.cumsum(lengths) - lengths  # of each queue in the order
    begun = np.concatenate([before, [0]])[first]  # an empty last queue begins past the end
    places = np.empty(len(queue), dtype=np.int64)
    places[order] = before - begun[queue[order]]
    return places
