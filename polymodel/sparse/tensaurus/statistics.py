"""Counts of a tensor, actual or expected, in the one form that predictions take."""

from __future__ import annotations

from dataclasses import dataclass

from polymodel.sparse.assign import part_loads
from polymodel.sparse.density.model import Label
from polymodel.sparse.tensaurus.counted import Counted
from polymodel.sparse.tensaurus.expected import Expected
from polymodel.sparse.tensaurus.kernels import Kernel
from polymodel.sparse.tensaurus.lanes import Ints, tile_times
from polymodel.sparse.tensaurus.report import Number

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
class Share:
    """How one Einsum's work (nonzeros, or fibers) lies on the rows of PEs, for one pass."""

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
        """max(ceil(total / P), largest slice) <= largest load <= total / P + (1 - 1 / P) largest slice.

        The upper bound is that of a greedy dealing by this very work (`own`); else one row may have it all.
        """
        mean = self.total / lanes
        low = -(-self.total // lanes)
        upper = mean + (1 - 1 / lanes) * self.largest_slice if self.own else self.total
        return max(low, self.largest_slice), upper

    @property
    def imbalance(self) -> float:
        """Largest load over the mean of the occupied rows."""
        return self.largest * self.occupied / self.total if self.total else 0.0


@dataclass(frozen=True)
class Tiled:
    """Sums over hardware tiles, one pass: slots of CISS entries, steps of the busiest lanes for each number
    of steps per fiber, nonempty (tile, slice) pairs, fibers of all tiles."""

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
    first: Share
    second: Share | None
    tiled: Tiled


def of_data(
    kernel: Kernel,
    data: Counted,
    tiles: tuple[int, int, int],
    lanes: int,
    per_fiber: tuple[int, ...],
    own: bool,
) -> Statistics:
    """Exact counts. `per_fiber`: steps per fiber for which `Tiled.steps` is wanted; `own`: the second
    Einsum deals slices of T by T's own nonzeros, as in the specification (else it keeps those of A, as the
    hardware)."""
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
        tiled=Tiled(
            int(times[0].entries.sum()),
            tuple(int(t.steps.sum()) for t in times),
            slices.number,
            int(slices.fibers.sum()),
        ),
    )


def _share(of: Ints, lane: Ints, lanes: int, lockstep: int, own: bool = True) -> Share:
    loads = part_loads(of, lane, lanes)
    return Share(
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
    kernel: Kernel, model: Expected, tiles: tuple[int, int, int], lanes: int, per_fiber: tuple[int, ...]
) -> Statistics:
    """Expected counts. Fibers of a slice are taken in proportion to its nonzeros, so re-slicing changes
    nothing.

    Lock-step time counts the largest slice at each place; that of several time ranks below the slice unites
    the positions of all lanes and is only bounded by it.
    """
    i, j, k = model.shape
    largest, biggest, lockstep = model.slices(i, (j, k), lanes)
    ratio = model.fibers / model.nnz if model.nnz else 0.0

    def share(scale: float, digits: Digits) -> Share:
        return Share(
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
    kernel: Kernel, model: Expected, tiles: tuple[int, int, int], lanes: int, per_fiber: tuple[int, ...]
) -> Tiled:
    """Means from closed forms; what the fullest lane has above them, tile by tile, from dealing one tile."""
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
    return Tiled(entries, tuple(steps), slices, fibers)
