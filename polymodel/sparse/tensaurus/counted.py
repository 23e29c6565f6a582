"""Counts of an actual sparse tensor: rows, fibers, tiles, lock-step time. Exact, a few passes over the
nonzeros."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod

import numpy as np

from polymodel.sparse.assign import least_loaded
from polymodel.sparse.tensaurus.lanes import Ints, Slices, positions
from polymodel.sparse.tensor import SparseTensor

# Keys up to so many per nonzero are counted in place, more are sorted.
_DENSE_KEYS = 4
_NUMBERED = 2**63 - 1


@dataclass(frozen=True, eq=False)
class Counted:
    """What the kernels need of a tensor of two or three ranks, slices first."""

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
        """Nonempty (i, j) fibers of each slice, shape (I,); of a matrix, its nonzeros."""
        return np.bincount(self.tensor.coords[0][self._new_fiber], minlength=self.tensor.shape[0])

    @property
    def fibers(self) -> int:
        return int(self.row_fibers.sum())

    def lanes(self, lanes: int, of: Ints | None = None) -> Ints:
        """The lane of each slice (-1: empty), by the nonzeros `of` each (default: the tensor's own)."""
        return least_loaded(self.row_nnz if of is None else of, lanes)

    def slices(self, tiles: tuple[int, int, int]) -> Slices:
        """Nonempty pairs of tile and slice, tiles in order of i, j, k."""
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
        return Slices(tile[order], nnz[order], fibers[order])

    def lockstep(self, lane: Ints, digits: tuple[tuple[int, int], ...], per_fiber: bool = False) -> int:
        """Distinct time tuples by position, over all lanes, of one pass over the fibers across.

        `lane`: of each slice. `digits`: the time ranks after the position of a slice in its lane, as (rank of
        the tensor, tile) pairs; tile 1 is the coordinate itself. A position counts the coordinates present
        below the digits before it. `per_fiber`: one activity per (i, j) fiber, not per nonzero.
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
        # Sorting beats hashing for so many numbers.
        leaves = np.sort(number[new])
        return 1 + int(np.count_nonzero(leaves[1:] != leaves[:-1]))


def _histogram(
    key: Ints, new: np.ndarray[tuple[int], np.dtype[np.bool_]], span: int
) -> tuple[Ints, Ints, Ints]:
    """Distinct keys, how many nonzeros have each, how many fibers begin there."""
    if span <= _DENSE_KEYS * key.size + 10**6:
        nnz = np.bincount(key, minlength=span)
        fibers = np.bincount(key[new], minlength=span)
        found = np.flatnonzero(nnz)
        return found, nnz[found], fibers[found]
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    nnz = np.diff(np.append(starts, key.size))
    fibers = np.add.reduceat(new[order].astype(np.int64), starts)
    return ordered[starts], nnz, fibers


def _digits(coords: Ints, digits: tuple[tuple[int, int], ...]) -> list[Ints]:
    """One column per digit, each relative to the digit of the same rank before it."""
    above: dict[int, int] = {}
    found = []
    for rank, size in digits:
        column = coords[rank] % above[rank] if rank in above else coords[rank]
        found.append(column // size if size > 1 else column)
        above[rank] = size
    return found


def _lexicographic(first: Ints, columns: list[Ints]) -> Ints:
    """The order of entries by `first`, then by each column; through one number per entry where 64 bits
    reach."""
    spans = [int(c.max()) + 1 for c in columns]
    if prod([int(first.max()) + 1, *spans]) > _NUMBERED:
        return np.lexsort((*columns[::-1], first))
    number = first
    for column, span in zip(columns, spans, strict=True):
        number = number * span + column
    return np.argsort(number)
