"""What fits a memory: how full each tile makes it, beside the capacity."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import numpy as np

from polymodel.errors import Diagnostic, SpecError
from polymodel.sparse.formats.footprint import dcsr_words
from polymodel.tiling.plane.counts import Counts
from polymodel.tiling.plane.pattern import Ints, Pattern, Rects

Op = Literal["add", "multiply"]

# Sums of loads and capacities stay within 64 bits.
MOST_CAPACITY = 2**62


@dataclass(frozen=True)
class Fit(ABC):
    """A rule of what fits; a tile fits when its load is at most `capacity`.

    Loads never fall when a rectangle grows: tilers rely on it.
    """

    capacity: int

    def __post_init__(self) -> None:
        # NumPy's integers too, so that ranges of them can be tried.
        if (
            isinstance(self.capacity, bool)
            or not isinstance(self.capacity, int | np.integer)
            or self.capacity < 1
        ):
            raise SpecError(
                [Diagnostic(f"capacity {self.capacity!r} is not a positive integer", "write e.g. 128")]
            )
        if self.capacity > MOST_CAPACITY:
            what = f"capacity {self.capacity!r} is more than 2^62"
            raise SpecError([Diagnostic(what, "write at most 4611686018427387904")])
        object.__setattr__(self, "capacity", int(self.capacity))

    @property
    @abstractmethod
    def unit(self) -> str:
        """What the capacity counts."""

    @abstractmethod
    def loads(self, counts: Counts, rects: Rects, op: Op) -> Ints:
        """How full each tile makes the fullest memory, in `unit`."""

    def fits(self, counts: Counts, rects: Rects, op: Op) -> np.typing.NDArray[np.bool_]:
        found: np.typing.NDArray[np.bool_] = self.loads(counts, rects, op) <= self.capacity
        return found


@dataclass(frozen=True)
class Elements(Fit):
    """Entries: those of A and B together for add, of the operand with more for multiply."""

    @property
    def unit(self) -> str:
        return "elements"

    def loads(self, counts: Counts, rects: Rects, op: Op) -> Ints:
        if op == "add":
            return counts.nnz_a + counts.nnz_b
        return np.maximum(counts.nnz_a, counts.nnz_b)


@dataclass(frozen=True)
class Words(Fit):
    """Words of a compressed tile (2 nnz + 2 nonempty rows + 3), A, B and a bound of the output apiece.

    The output is bounded before it is known: for add by both operands' entries and rows and by the tile,
    for multiply by the lesser of each. Tensors of more ranks add 2 words per fiber and 1 per level.
    """

    @property
    def unit(self) -> str:
        return "words"

    def loads(self, counts: Counts, rects: Rects, op: Op) -> Ints:
        depth, levels = counts.pattern.depth, counts.pattern.levels
        nnz_a, nnz_b, rows_a, rows_b = counts.nnz_a, counts.nnz_b, counts.rows_a, counts.rows_b
        if op == "add":
            nnz = np.minimum(nnz_a + nnz_b, _places(rects, depth))
            rows, inner = np.minimum(rects.height, rows_a + rows_b), counts.inner_a + counts.inner_b
        else:
            nnz, rows = np.minimum(nnz_a, nnz_b), np.minimum(rows_a, rows_b)
            inner = np.minimum(counts.inner_a, counts.inner_b)
        each = (
            dcsr_words(nnz_a, rows_a) + 2 * counts.inner_a,
            dcsr_words(nnz_b, rows_b) + 2 * counts.inner_b,
            dcsr_words(nnz, rows) + 2 * inner,
        )
        found: Ints = np.maximum.reduce(each) + (levels - 2)
        return found


def elements(capacity: int = 128) -> Elements:
    """A fit: so many entries of A and B together for add, of the operand with more for multiply."""
    return Elements(capacity)


def words(capacity: int) -> Words:
    """A fit: A, B and a bound of the output each take at most so many words as a compressed tile."""
    return Words(capacity)


def _places(rects: Rects, depth: int) -> Ints:
    """Places of each tile; exact below 2^53, which no count of entries reaches."""
    area = rects.height.astype(np.float64) * rects.width * float(min(depth, 2**62))
    found: Ints = np.minimum(area, 2.0**62).astype(np.int64)
    return found


_NAMED = 8


def check_empty(pattern: Pattern, op: Op, fit: Fit) -> None:
    """A capacity that not even a tile of one empty place keeps to is a SpecError."""
    single = Rects.of([(0, 0, 1, 1)])
    none = pattern.taken(np.zeros(0, dtype=np.int64))
    load = int(fit.loads(Counts(none, np.zeros(0, dtype=np.int32), 1), single, op)[0])
    if load > fit.capacity:
        fault = f"even an empty tile needs {load} {fit.unit}; the capacity is {fit.capacity}"
        raise SpecError([Diagnostic(fault, f"give a capacity of {load} {fit.unit} or more")])


def check_single(pattern: Pattern, op: Op, fit: Fit, rects: Rects) -> None:
    """Among tiles that do not fit a single place cannot be cut: all such places are one SpecError."""
    if not ((rects.height == 1) & (rects.width == 1)).any():
        return
    begins = np.ones(pattern.points, dtype=np.bool_)
    begins[1:] = (np.diff(pattern.rows) != 0) | (np.diff(pattern.cols) != 0)
    row, col = (at[begins].astype(np.int64) for at in (pattern.rows, pattern.cols))
    places = Rects(row, col, np.ones_like(row), np.ones_like(row))
    loads = fit.loads(Counts(pattern, np.cumsum(begins) - 1, places.tiles), places, op)
    full = np.nonzero(loads > fit.capacity)[0]
    if not full.size:
        return
    most = int(loads.max())
    remedy = f"give a capacity of at least {most} {fit.unit}, the most that one of them needs"
    if pattern.depth > 1:
        remedy += ", or cut other ranks"
    faults = []
    for at in full[:_NAMED]:
        place = f"{pattern.ranks[0]} {int(row[at])}, {pattern.ranks[1]} {int(col[at])}"
        who = "the entry alone needs" if pattern.depth == 1 else "its entries alone need"
        needs = f"{who} {int(loads[at])} {fit.unit}; the capacity is {fit.capacity}"
        faults.append(Diagnostic(f"{pattern.name}, row and column ({place}): {needs}", remedy))
    if full.size > _NAMED:
        faults.append(Diagnostic(f"{full.size - _NAMED} further places do not fit either", remedy))
    raise SpecError(faults)
