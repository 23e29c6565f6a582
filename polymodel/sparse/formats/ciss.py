"""Encode a tensor as compressed interleaved sparse slices (CISS): interleaved streams for P processing
elements.

Source: Tensaurus (HPCA 2020), section 4. Each nonempty slice (a coordinate of the first rank) is assigned as
a whole to one of P lanes: in order, the next slice goes to the lane with the least data so far, ties to the
lowest lane. A lane holds for each of its slices a header (value 0, the slice's coordinate) and then its
nonzeros (value and the coordinates of the other ranks). Entry e of the format is slot e of all lanes side by
side, so that P elements read one wide word per step; shorter lanes are padded.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from polymodel.errors import Diagnostic, SpecError
from polymodel.frozen import dataclass
from polymodel.sparse.assign import least_loaded, part_loads
from polymodel.sparse.formats.levels import RankLevels
from polymodel.sparse.formats.whole import CISS, Widths
from polymodel.sparse.tensor import Ints, SparseTensor

# The slice of padding.
NOTHING = -1


@dataclass(frozen=True, eq=False)
class Encoded:
    """A tensor in CISS. `values` (entries x lanes): zero in headers and padding. `coords` (ranks but the
    first x entries x lanes): the first row holds the slice in headers and -1 in padding."""

    name: str
    ranks: tuple[str, ...]
    shape: tuple[int, ...]
    values: NDArray[Any]
    coords: Ints

    @property
    def entries(self) -> int:
        return int(self.values.shape[0])

    @property
    def parts(self) -> int:
        return int(self.values.shape[1])

    @property
    def padding_slots(self) -> int:
        return int(np.count_nonzero((self.values == 0) & (self.coords[0] == NOTHING)))

    @property
    def slots_used(self) -> int:
        return int(self.values.size) - self.padding_slots

    def bits(self, widths: Widths) -> int:
        """Return entries x lanes x (data + (order - 1) index) bits; if `index` is None, the width that the
        sizes need."""
        nothing = tuple(0 for _ in self.ranks)
        slot = CISS(self.parts, widths).slot(RankLevels(self.ranks, self.shape, nothing, nothing, "exact"))
        return self.entries * self.parts * int(slot)

    def lanes(self) -> list[list[dict[str, int]]]:
        """Return each lane as a list of {"header": slice} and {rank: coordinate, ...}, for small tensors."""
        names = [rank.lower() for rank in self.ranks[1:]]
        result: list[list[dict[str, int]]] = []
        for lane in range(self.parts):
            slots = []
            for value, point in zip(self.values[:, lane], self.coords[:, :, lane].T.tolist(), strict=True):
                if value:
                    slots.append(dict(zip(names, point, strict=True)))
                elif point[0] != NOTHING:
                    slots.append({"header": point[0]})
            result.append(slots)
        return result


def encode(tensor: SparseTensor, parts: int, assign: Literal["data", "nnz"] = "data") -> Encoded:
    """Return the tensor in CISS with `parts` lanes. `assign`: see `CISS`.

    Raises SpecError for fewer than two ranks or one lane. O(nnz) work in arrays, plus O(slices log parts).
    """
    CISS(parts, assign=assign).order(tensor.ranks)
    top = tensor.coords[0]
    new = np.ones(top.size, dtype=bool)
    new[1:] = top[1:] != top[:-1]
    starts = np.flatnonzero(new)
    counts = np.diff(np.append(starts, top.size))
    loads = counts + 1
    lanes = least_loaded(loads if assign == "data" else counts, parts)
    entries = int(part_loads(loads, lanes, parts).max(initial=0))
    # A slice begins where the previous one in its lane ends: running sums, lane after lane.
    order = np.argsort(lanes, kind="stable")
    ends = np.cumsum(loads[order])
    begins = np.empty_like(ends)
    before = ends - loads[order]
    first = np.searchsorted(lanes[order], lanes[order], side="left")
    begins[order] = before - before[first]
    slice_of = np.cumsum(new) - 1
    slot = begins[slice_of] + 1 + np.arange(top.size) - starts[slice_of]
    values = np.zeros((entries, parts), dtype=tensor.values.dtype)
    coords = np.zeros((len(tensor.ranks) - 1, entries, parts), dtype=np.int64)
    coords[0] = NOTHING
    values[slot, lanes[slice_of]] = tensor.values
    coords[:, slot, lanes[slice_of]] = tensor.coords[1:]
    coords[0, begins, lanes] = top[starts]
    return Encoded(tensor.name, tensor.ranks, tensor.shape, values, coords)


def decode(encoded: Encoded) -> SparseTensor:
    """Return the decoded tensor: in each lane, a nonzero belongs to the preceding header."""
    values, points = encoded.values.T, encoded.coords.transpose(0, 2, 1)
    filled = values != 0
    head = ~filled & (points[0] != NOTHING)
    slot = np.arange(encoded.entries, dtype=np.int64)
    latest = np.maximum.accumulate(np.where(head, slot, -1), axis=1)
    if (latest[filled] < 0).any():
        lane = int(np.flatnonzero((filled & (latest < 0)).any(axis=1))[0])
        message = f"lane {lane} starts with a nonzero"
        remedy = "a header with its slice comes first"
        raise SpecError([Diagnostic(message, remedy, code="inconsistent-values")])
    lane_of, slot_of = np.nonzero(filled)
    top = points[0][lane_of, latest[lane_of, slot_of]]
    coords = np.stack([top, *(rank[filled] for rank in points)])
    return SparseTensor.from_coo(encoded.name, encoded.ranks, encoded.shape, coords, values[filled])
