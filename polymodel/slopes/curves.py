"""Curves of capacity and accesses that know, point by point, which choices they were put together from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymodel.pareto import Archive, staircase

Ints = NDArray[np.int64]
CELLS = 2**22  # pairs of points looked at together


@dataclass(frozen=True, eq=False)
class Join:
    """Points that are pairs of points of two other curves."""

    first: Curve
    second: Curve


@dataclass(frozen=True, eq=False)
class CurveLeaf:
    """Points that one Einsum's mappings make: `describe(i)` is the i-th."""

    describe: Callable[[int], Any]


@dataclass(frozen=True, eq=False)
class Curve:
    """Capacity ascending, accesses descending. `source`: which of `sources` a point is of, `left` and `right`
    its position there (`right` only of a Join)."""

    capacity: Ints
    accesses: Ints
    source: Ints
    left: Ints
    right: Ints
    sources: tuple[Join | CurveLeaf, ...]

    def __len__(self) -> int:
        return len(self.capacity)

    def __repr__(self) -> str:
        return f"Curve({len(self)} points)"

    def raised(self, capacity: int, accesses: int = 0) -> Curve:
        """With so much more of both at every point."""
        if not capacity and not accesses:
            return self
        return Curve(
            self.capacity + capacity,
            self.accesses + accesses,
            self.source,
            self.left,
            self.right,
            self.sources,
        )

    def choices(self, point: int) -> Iterator[Any]:
        """What a point stands for: one description per Einsum."""
        source = self.sources[int(self.source[point])]
        if isinstance(source, CurveLeaf):
            yield source.describe(int(self.left[point]))
            return
        yield from source.first.choices(int(self.left[point]))
        yield from source.second.choices(int(self.right[point]))


def leaf(capacity: Ints, accesses: Ints, describe: Callable[[int], Any]) -> Curve:
    """A curve of an Einsum's mappings, already pruned and in order."""
    zeros = np.zeros(len(capacity), np.int64)
    return Curve(capacity, accesses, zeros, np.arange(len(capacity)), zeros, (CurveLeaf(describe),))


def _nothing(at: int) -> None:
    """A name for what has no description: a lambda could not be pickled."""


NOTHING = leaf(np.zeros(1, np.int64), np.zeros(1, np.int64), _nothing)


EMPTY = leaf(np.zeros(0, np.int64), np.zeros(0, np.int64), _nothing)


class CurveOfBlocks:
    """The curve of mappings that come in blocks; of equal ones the first that was offered.

    `sources`: what the blocks are whose mappings were on the curve once.
    """

    def __init__(self) -> None:
        self.archive = Archive(2, np.int64)
        self.sources: list[object] = []
        self._begins: list[int] = []

    def offer(self, capacity: Ints, accesses: Ints, source: object) -> None:
        begin = self.offered
        self.archive.offer((capacity, accesses))
        if (self.archive.ids >= begin).any():
            self.sources.append(source)
            self._begins.append(begin)

    @property
    def offered(self) -> int:
        """How many mappings there were."""
        return self.archive.offered

    @property
    def capacity(self) -> Ints:
        result: Ints = self.archive.values[0]
        return result

    @property
    def accesses(self) -> Ints:
        result: Ints = self.archive.values[1]
        return result

    @property
    def which(self) -> Ints:
        """Per point the number of its source, and its position in that block."""
        ids = self.archive.ids
        begins = np.asarray(self._begins, np.int64)
        source = np.searchsorted(begins, ids, side="right") - 1
        return np.stack((source, ids - begins[source]), axis=1)


def at_once(first: Curve, second: Curve) -> Curve:
    """Both in the buffer at one time: capacities add, and so do accesses."""
    step = max(1, CELLS // max(len(second), 1))
    parts = [
        _pairs(first, second, slice(begin, begin + step)) for begin in range(0, max(len(first), 1), step)
    ]
    return parts[0] if len(parts) == 1 else lowest(parts)


def _pairs(first: Curve, second: Curve, rows: slice) -> Curve:
    capacity = (first.capacity[rows, None] + second.capacity[None, :]).ravel()
    accesses = (first.accesses[rows, None] + second.accesses[None, :]).ravel()
    kept = staircase(capacity, accesses)
    left, right = np.divmod(kept, max(len(second), 1))
    zeros = np.zeros(len(kept), np.int64)
    made = (Join(first, second),)
    return Curve(capacity[kept], accesses[kept], zeros, left + (rows.start or 0), right, made)


def in_turn(first: Curve, second: Curve) -> Curve:
    """One after the other in the same buffer: the larger capacity, the sum of the accesses."""
    if not len(first) or not len(second):
        return EMPTY
    capacity = np.union1d(first.capacity, second.capacity)
    capacity = capacity[capacity >= max(first.capacity[0], second.capacity[0])]
    left = np.searchsorted(first.capacity, capacity, side="right") - 1
    right = np.searchsorted(second.capacity, capacity, side="right") - 1
    accesses = first.accesses[left] + second.accesses[right]
    zeros = np.zeros(len(capacity), np.int64)
    return Curve(capacity, accesses, zeros, left, right, (Join(first, second),))


def lowest(curves: Iterable[Curve]) -> Curve:
    """The lower envelope of some curves; where two are equal the first."""
    result = [c for c in curves if len(c)]
    if len(result) < 2:
        return result[0] if result else EMPTY
    offsets = np.cumsum([0, *(len(c.sources) for c in result[:-1])])
    capacity = np.concatenate([c.capacity for c in result])
    accesses = np.concatenate([c.accesses for c in result])
    kept = staircase(capacity, accesses)
    source = np.concatenate([c.source + o for c, o in zip(result, offsets, strict=True)])[kept]
    left = np.concatenate([c.left for c in result])[kept]
    right = np.concatenate([c.right for c in result])[kept]
    used, source = np.unique(source, return_inverse=True)
    every = [s for c in result for s in c.sources]
    sources = tuple(every[i] for i in used.tolist())
    return Curve(capacity[kept], accesses[kept], source.astype(np.int64), left, right, sources)
