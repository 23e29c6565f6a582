"""Compute the counts of a tensor, actual or expected, in the common form that predictions use."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from math import prod

import numpy as np
from numpy.typing import NDArray

from polymodel.errors import Refused
from polymodel.frozen import dataclass
from polymodel.sparse.assign import fullest_parts, least_loaded, part_loads
from polymodel.sparse.density.model import DensityModel, Label, edge_classes
from polymodel.sparse.density.slices import greedy
from polymodel.sparse.fibertree import Bools
from polymodel.sparse.tensaurus.machine import TensorKernel
from polymodel.sparse.tensaurus.report import Number
from polymodel.sparse.tensor import SparseTensor

# Assignment of slices to lanes: the work of each row of PEs, for the whole tensor or tile by tile.
#
# A whole slice goes to the lane with the least data so far; ties go to the lowest lane. The data of a slice
# are its nonzeros and a header in CISS, and its nonzeros in `uniform_slice`.

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class LaneSlices:
    """Nonempty slices of nonempty tiles, tile by tile, in order of their index within a tile.

    `tile`: ascending. `nnz`, `fibers`: those of each slice within its tile. All have one entry per pair of
    tile and slice.
    """

    tile: Ints
    nnz: Ints
    fibers: Ints

    @property
    def number(self) -> int:
        return int(self.tile.size)


@dataclass(frozen=True)
class TileTimes:
    """For each nonempty tile: the `entries` of CISS (slots of the fullest lane), and the `steps` of the
    busiest lane, which are one per nonzero and header, and `per_fiber` for each fiber."""

    entries: Ints
    steps: Ints
    slices: Ints


def tile_times(slices: LaneSlices, lanes: int, per_fiber: int) -> TileTimes:
    """Assign slices to lanes greedily in every tile, and return the times."""
    if not slices.number:
        none = np.zeros(0, dtype=np.int64)
        return TileTimes(none, none, none)
    starts = np.flatnonzero(np.concatenate(([True], slices.tile[1:] != slices.tile[:-1])))
    slots = slices.nnz + 1
    entries, steps = fullest_parts(slots, slices.tile, lanes, slots + per_fiber * slices.fibers)
    return TileTimes(entries, steps, np.diff(np.append(starts, slices.number)))


def positions(row_lane: Ints) -> Ints:
    """Return the position of each nonempty row within its lane, in order of rows; -1 for empty ones (lane
    -1)."""
    result = np.full(row_lane.size, -1, dtype=np.int64)
    for lane in range(int(row_lane.max(initial=-1)) + 1):
        mine = np.flatnonzero(row_lane == lane)
        result[mine] = np.arange(mine.size)
    return result


# Counts of an actual sparse tensor: rows, fibers, tiles, lock-step time. Exact, a few passes over the
# nonzeros.

# Up to this number of keys per nonzero, keys are counted in an array; above, they are sorted.
_DENSE_KEYS = 4
_NUMBERED = 2**63 - 1


@dataclass(frozen=True, eq=False)
class FiberCounts:
    """The counts that the kernels need of a tensor with two or three ranks, slices first."""

    tensor: SparseTensor

    @property
    def nnz(self) -> int:
        return self.tensor.nnz

    @cached_property
    def row_nnz(self) -> Ints:
        """Nonzeros of each slice, shape (I,)."""
        return np.bincount(self.tensor.coords[0], minlength=self.tensor.shape[0])

    @cached_property
    def _new_fiber(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        first, second = self.tensor.coords[:2]
        changed = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
        return np.concatenate(([self.nnz > 0], changed)) if self.nnz else np.zeros(0, dtype=bool)

    @cached_property
    def row_fibers(self) -> Ints:
        """Nonempty (i, j) fibers of each slice, shape (I,); for a matrix, its nonzeros."""
        return np.bincount(self.tensor.coords[0][self._new_fiber], minlength=self.tensor.shape[0])

    @property
    def fibers(self) -> int:
        return int(self.row_fibers.sum())

    def lanes(self, lanes: int, of: Ints | None = None) -> Ints:
        """Return the lane of each slice (-1: empty), balanced by the numbers `of` (default: the tensor's
        nonzeros)."""
        return least_loaded(self.row_nnz if of is None else of, lanes)

    def slices(self, tiles: tuple[int, int, int]) -> LaneSlices:
        """Return the nonempty pairs of tile and slice, with tiles in order of i, j, k."""
        coords = self.tensor.coords
        shape = (*self.tensor.shape, 1)[:3]
        nj, nk = (-(-shape[n] // tiles[n]) for n in (1, 2))
        key = coords[0] * nj
        key += coords[1] // tiles[1]
        key *= nk
        if coords.shape[0] == 3 and nk > 1:
            key += coords[2] // tiles[2]
        # Sorted by (i, j, k): a fiber within a tile begins where i, j or the tile of k changes.
        new = self._new_fiber
        if nk > 1 and new.size:
            new = new.copy()
            new[1:] |= key[1:] != key[:-1]
        found, nnz, fibers = _histogram(key, new, shape[0] * nj * nk)
        row, column = found // (nj * nk), found % (nj * nk)
        tile = row // tiles[0] * (nj * nk) + column
        order = np.argsort(tile, kind="stable")
        return LaneSlices(tile[order], nnz[order], fibers[order])

    def lockstep(self, lane: Ints, digits: tuple[tuple[int, int], ...], per_fiber: bool = False) -> int:
        """Return the number of distinct time tuples by position, over all lanes, of one pass over the fibers
        across.

        `lane`: that of each slice. `digits`: the time ranks after the position of a slice in its lane, as
        pairs (rank of the tensor, tile); tile 1 is the coordinate itself. A position counts the coordinates
        present below the preceding digits. `per_fiber`: one activity per (i, j) fiber instead of per nonzero.
        """
        if self.nnz == 0:
            return 0
        kept = self.tensor.coords[:, self._new_fiber] if per_fiber else self.tensor.coords
        columns = _digits(kept, digits)
        first = kept[0]
        if any(a > b for (a, _), (b, _) in pairwise(digits)):
            by = _lexicographic(first, columns)
            columns, first = [c[by] for c in columns], first[by]
        number = positions(lane)[first]
        new = np.concatenate(([True], first[1:] != first[:-1]))
        for column in columns:
            inner = new.copy()
            inner[1:] |= column[1:] != column[:-1]
            counted = np.cumsum(inner)
            # The count at the first entry of the group above, carried over the whole group.
            before = np.repeat(counted[new], np.diff(np.append(np.flatnonzero(new), new.size)))
            place = counted - before
            number = number * (int(place.max()) + 1) + place
            new = inner
        # Sorting is faster than hashing for this many numbers.
        leaves = np.sort(number[new])
        return 1 + int(np.count_nonzero(leaves[1:] != leaves[:-1]))


def _histogram(
    key: Ints, new: np.ndarray[tuple[int], np.dtype[np.bool_]], span: int
) -> tuple[Ints, Ints, Ints]:
    """Return the distinct keys, the number of nonzeros with each, and the number of fibers that start
    there."""
    if span <= _DENSE_KEYS * key.size + 10**6:
        nnz = np.bincount(key, minlength=span)
        fibers = np.bincount(key[new], minlength=span)
        result = np.flatnonzero(nnz)
        return result, nnz[result], fibers[result]
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    nnz = np.diff(np.append(starts, key.size))
    fibers = np.add.reduceat(new[order].astype(np.int64), starts)
    return ordered[starts], nnz, fibers


def _digits(coords: Ints, digits: tuple[tuple[int, int], ...]) -> list[Ints]:
    """Return one column per digit, each relative to the previous digit of the same rank."""
    above: dict[int, int] = {}
    result = []
    for rank, size in digits:
        column = coords[rank] % above[rank] if rank in above else coords[rank]
        result.append(column // size if size > 1 else column)
        above[rank] = size
    return result


def _lexicographic(first: Ints, columns: list[Ints]) -> Ints:
    """Return the order of entries by `first`, then by each column, by sorting one number per entry if 64 bits
    suffice."""
    spans = [int(c.max()) + 1 for c in columns]
    if prod([int(first.max()) + 1, *spans]) > _NUMBERED:
        return np.lexsort((*columns[::-1], first))
    number = first
    for column, span in zip(columns, spans, strict=True):
        number = number * span + column
    return np.argsort(number)


# The same counts expected under a density model: sums in closed form, greedy lanes by sampling.
#
# Sums (nonzeros, fibers, slices of tiles) come from the model. The excess of the fullest lane over the mean
# has no closed form: slices are drawn from the distribution of one slice, stratified, with a fixed seed, and
# assigned to lanes as in the hardware.

# Slices assigned in one trial, and the number of trials.
_SLICES, _TRIALS = 2048, 32
# Longest table of one slice's distribution.
_TABLE = 1 << 16
_SEED = 2020


@dataclass(frozen=True)
class Dealt:
    """Means over trials of one assignment of `slices` slices to lanes.

    `largest`: slots of the fullest lane (nonzeros, and a header per slice if requested). `steps`: those of
    the busiest lane. `mean_slots`, `mean_steps`: means per lane. `lockstep`: sum over positions of the
    largest slice there.
    """

    slices: int
    largest: float
    steps: float
    mean_slots: float
    mean_steps: float
    lockstep: float


@dataclass(frozen=True, eq=False)
class ExpectedStatistics:
    """The expected counts that the kernels need of a density model with two or three ranks, slices first."""

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
        """E[N_ij] = sum over (i, j) of 1 - P0(K); for a matrix, its nonzeros."""
        return float(self.model.expected_fibers(2))

    @cached_property
    def rows(self) -> float:
        """Expected number of nonempty slices."""
        return float(self.model.expected_fibers(1))

    def _tile(self, tiles: tuple[int, int, int]) -> tuple[int, ...]:
        return tiles[: len(self.model.shape)]

    def tile_slices(self, tiles: tuple[int, int, int]) -> float:
        """Return the expected number of nonempty pairs of tile and slice."""
        return float(self.model.expected_fibers(1, self._tile(tiles)))

    def tile_fibers(self, tiles: tuple[int, int, int]) -> float:
        """Return the expected number of nonempty (i, j) fibers, each counted in every tile of k that it
        reaches."""
        return float(self.model.expected_fibers(2, self._tile(tiles)))

    def tile_classes(self, tiles: tuple[int, int, int]) -> list[tuple[tuple[int, int, int], float]]:
        """Return the distinct shapes of hardware tiles, including edge tiles, and the number of tiles of
        each."""
        shape = np.array(self.shape, dtype=np.int64)
        sizes, counts = edge_classes(np.minimum(np.array(tiles, dtype=np.int64), shape), self.shape)
        return [((int(i), int(j), int(k)), float(n)) for (i, j, k), n in zip(sizes, counts, strict=True) if n]

    def slices(self, number: int, box: tuple[int, int], lanes: int) -> tuple[float, float, float]:
        """Return the nonzeros of the fullest lane and of the largest slice, and the lock-step time, without
        tiling.

        For models with known rows the actual rows are assigned, for random rows `density.slices` is used;
        where that refuses, slices are drawn.
        """
        try:
            result = greedy(self.model, lanes)
        except Refused:
            dealt = self.deal(number, box, lanes, 0, 0.0)
            largest = self.nnz / lanes + dealt.largest - dealt.mean_slots
            return largest, self.largest(number, box), dealt.lockstep
        return result.max_load, result.max_row, result.lockstep

    def deal(self, slices: int, box: tuple[int, int], lanes: int, header: int, per_fiber: float) -> Dealt:
        """Assign `slices` slices of `box` = (j, k) points each. `per_fiber`: steps per nonzero for its
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
        """Return occupancies of one slice of `box` points and P(at most this many), except for 1e-9 at either
        end."""
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
        """Return the expected nonzeros of the largest of `slices` slices, taken as independent (a lower
        bound)."""
        values, below = self.law(box)
        above = -np.expm1(slices * np.log(np.maximum(below[:-1], 1e-300)))
        return float(values[0] + (np.diff(values) * above).sum())


def _dealt(slices: int, drawn: Ints, slots: Ints, lanes: int, per_fiber: float) -> Dealt:
    """Assign slices to lanes greedily in all trials at once."""
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
    """Return, for each element, how many kept elements precede it in its queue [n]."""
    order = np.argsort(queue, kind="stable")
    sorted_ = kept[order]
    before: Ints = np.cumsum(sorted_) - sorted_
    lengths = np.bincount(queue, minlength=queues)
    first = np.cumsum(lengths) - lengths  # of each queue in the order
    begun = np.concatenate([before, [0]])[first]  # an empty last queue begins past the end
    places = np.empty(len(queue), dtype=np.int64)
    places[order] = before - begun[queue[order]]
    return places


Digits = tuple[tuple[int, int], ...]
# Time ranks below a slice's position: (rank of A, tile) pairs, for T and for Y.
_T: dict[str, Digits] = {
    "MTTKRP": ((1, 8), (2, 8), (1, 1), (2, 1)),
    "TTMc": ((1, 1), (2, 8), (2, 1)),
    "SpMM": ((1, 1),),
    "SpMV": ((1, 1),),
}
_Y: dict[str, Digits] = {"MTTKRP": ((1, 8), (1, 1)), "TTMc": ((1, 1),)}


@dataclass(frozen=True)
class WorkShare:
    """The distribution of one Einsum's work (nonzeros, or fibers) over the rows of PEs, for one pass."""

    loads: tuple[int, ...]
    total: Number
    largest: Number
    lockstep: Number
    largest_slice: Number
    occupied: int
    label: Label
    lockstep_label: Label
    own: bool = True

    def bounds(self, lanes: int) -> tuple[Number, Number]:
        """Return bounds of the largest load: max(ceil(total / P), largest slice) <= largest load <= total / P
        + (1 - 1 / P) largest slice.

        The upper bound holds for a greedy assignment by this work (`own`); otherwise one row may have all of
        it.
        """
        mean = self.total / lanes
        low = -(-self.total // lanes)
        upper = mean + (1 - 1 / lanes) * self.largest_slice if self.own else self.total
        return max(low, self.largest_slice), upper

    @property
    def imbalance(self) -> float:
        """Largest load divided by the mean of the occupied rows."""
        return self.largest * self.occupied / self.total if self.total else 0.0


@dataclass(frozen=True)
class HardwareTileSums:
    """Sums over hardware tiles for one pass: slots of CISS entries, steps of the busiest lanes for each
    number of steps per fiber, nonempty pairs (tile, slice), and fibers of all tiles."""

    entries: Number
    steps: tuple[Number, ...]
    slices: Number
    fibers: Number


@dataclass(frozen=True)
class Statistics:
    label: Label
    nnz: Number
    fibers: Number
    rows: Number
    first: WorkShare
    second: WorkShare | None
    tiled: HardwareTileSums


def of_data(
    kernel: TensorKernel,
    data: FiberCounts,
    tiles: tuple[int, int, int],
    lanes: int,
    per_fiber: tuple[int, ...],
    own: bool,
) -> Statistics:
    """Return exact counts.

    `per_fiber`: the steps per fiber for which `HardwareTileSums.steps` is needed. `own`: the second Einsum
    distributes slices of T by T's own nonzeros, as in the specification; otherwise it keeps the distribution
    of A, as the hardware does.
    """
    lane = data.lanes(lanes)
    second = None
    if kernel.factored:
        theirs = data.lanes(lanes, data.row_fibers) if own else lane
        second = _share(data.row_fibers, theirs, lanes, data.lockstep(theirs, _Y[kernel.name], True), own)
    slices = data.slices(tiles)
    times = [tile_times(slices, lanes, n) for n in per_fiber]
    return Statistics(
        label="exact",
        nnz=data.nnz,
        fibers=data.fibers,
        rows=int((data.row_nnz > 0).sum()),
        first=_share(data.row_nnz, lane, lanes, data.lockstep(lane, _T[kernel.name])),
        second=second,
        tiled=HardwareTileSums(
            int(times[0].entries.sum()),
            tuple(int(t.steps.sum()) for t in times),
            slices.number,
            int(slices.fibers.sum()),
        ),
    )


def _share(of: Ints, lane: Ints, lanes: int, lockstep: int, own: bool = True) -> WorkShare:
    loads = part_loads(of, lane, lanes)
    return WorkShare(
        loads=tuple(loads.tolist()),
        total=int(of.sum()),
        largest=int(loads.max(initial=0)),
        lockstep=lockstep,
        largest_slice=int(of.max(initial=0)),
        occupied=int((loads > 0).sum()),
        label="exact",
        lockstep_label="exact",
        own=own,
    )


def of_model(
    kernel: TensorKernel,
    model: ExpectedStatistics,
    tiles: tuple[int, int, int],
    lanes: int,
    per_fiber: tuple[int, ...],
) -> Statistics:
    """Return expected counts. The fibers of a slice are taken in proportion to its nonzeros, so that
    redistributing slices changes nothing.

    Lock-step time counts the largest slice at each position. With several time ranks below the slice it is
    only a bound, because the positions of all lanes are united.
    """
    i, j, k = model.shape
    largest, biggest, lockstep = model.slices(i, (j, k), lanes)
    ratio = model.fibers / model.nnz if model.nnz else 0.0

    def share(scale: float, digits: Digits) -> WorkShare:
        return WorkShare(
            loads=(),
            total=model.nnz * scale,
            largest=largest * scale,
            lockstep=lockstep * scale,
            largest_slice=biggest * scale,
            occupied=min(lanes, i),
            label="expected",
            lockstep_label="expected" if len(digits) == 1 else "bound",
        )

    return Statistics(
        label="expected",
        nnz=model.nnz,
        fibers=model.fibers,
        rows=model.rows,
        first=share(1.0, _T[kernel.name]),
        second=share(ratio, _Y[kernel.name]) if kernel.factored else None,
        tiled=_expected_tiles(kernel, model, tiles, lanes, per_fiber),
    )


def _expected_tiles(
    kernel: TensorKernel,
    model: ExpectedStatistics,
    tiles: tuple[int, int, int],
    lanes: int,
    per_fiber: tuple[int, ...],
) -> HardwareTileSums:
    """Return the means in closed form, plus the excess of the fullest lane for each class of tiles, from
    assigning one tile."""
    slices = model.tile_slices(tiles)
    fibers = model.tile_fibers(tiles) if kernel.factored else model.nnz
    ratio = fibers / model.nnz if model.nnz else 0.0
    slots = (model.nnz + slices) / lanes
    entries, steps = slots, [slots + n * fibers / lanes for n in per_fiber]
    for (i, *box), number in model.tile_classes(tiles):
        for at, n in enumerate(per_fiber):
            dealt = model.deal(i, (box[0], box[1]), lanes, 1, n * ratio)
            steps[at] += number * (dealt.steps - dealt.mean_steps)
            entries += number * (dealt.largest - dealt.mean_slots) if at == 0 else 0.0
    return HardwareTileSums(entries, tuple(steps), slices, fibers)
