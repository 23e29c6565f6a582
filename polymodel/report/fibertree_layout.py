"""The fibers of a tensor that are drawn, and the width of each: subtrees are placed side by side."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymodel.frozen import dataclass
from polymodel.sparse.fibertree import Fibertree
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.faults import not_a
from polymodel.view.drawing import CHAR

Ints = NDArray[np.int64]
# A plain coordinate, or that of flattened ranks.
Coordinate = int | tuple[int, ...]
Path = tuple[Coordinate, ...]
NARROWEST = 22.0
BESIDE = 10.0
WITHIN = 4.0
# The text for omitted coordinates takes the space of so many values.
REST = 2


@dataclass(frozen=True, eq=False)
class DrawnFibertree:
    """A tensor as it is drawn: per rank, outermost first, the coordinate of every nonzero.

    A rank that is flattened from n ranks has n columns, every other one has one; `columns` has a row per
    column. The nonzeros may come in any order.
    """

    name: str
    ranks: tuple[str, ...]
    widths: tuple[int, ...]
    columns: Ints
    values: NDArray[Any]
    note: str = ""


def levels(tensor: SparseTensor | Fibertree | DrawnFibertree) -> DrawnFibertree:
    """Any tensor that can be drawn, its nonzeros in the order of its ranks."""
    if isinstance(tensor, DrawnFibertree):
        return _ordered(tensor)
    if isinstance(tensor, Fibertree):
        return _partitioned(tensor)
    if not isinstance(tensor, SparseTensor):
        raise not_a("tensor", "draw_fibertree", tensor, "pass e.g. pm.read_tensor('matrix.mtx.gz')")
    sizes = " x ".join(str(s) for s in tensor.shape)
    return DrawnFibertree(
        tensor.name, tensor.ranks, (1,) * len(tensor.ranks), tensor.coords, tensor.values,
        f"shape {sizes}" if sizes else "rank 0",
    )  # fmt: skip


def _partitioned(tensor: Fibertree) -> DrawnFibertree:
    """Coordinates of flattened ranks become tuples again."""
    rows = [
        part
        for level, column in zip(tensor.levels, tensor.columns(), strict=True)
        for part in level.rank.decode(column)
    ]
    widths = tuple(len(level.rank.bases) for level in tensor.levels)
    columns = np.array(rows, dtype=np.int64).reshape(sum(widths), tensor.nnz)
    return DrawnFibertree(tensor.name, tensor.ranks, widths, columns, tensor.values)


def _ordered(tensor: DrawnFibertree) -> DrawnFibertree:
    columns = tensor.columns
    if columns.shape[1] < 2 or not columns.shape[0]:
        return tensor
    order = np.lexsort(columns[::-1])
    return DrawnFibertree(
        tensor.name, tensor.ranks, tensor.widths, columns[:, order], tensor.values[order], tensor.note
    )


@dataclass(frozen=True)
class Cell:
    """One coordinate: its path from the root, and below it a fiber or, at the last rank, a value."""

    path: Path
    below: Fiber | None
    value: str
    width: float

    @property
    def text(self) -> str:
        """The coordinate."""
        return coordinate_text(self.path[-1])


@dataclass(frozen=True)
class Fiber:
    """The coordinates of one fiber that are drawn, and how many more it has."""

    rank: int
    cells: tuple[Cell, ...]
    more: int
    width: float

    @property
    def rest(self) -> str:
        """The text in place of the omitted coordinates."""
        return f"… {self.more:,} more" if self.more else ""

    def walk(self) -> Iterator[Fiber]:
        """This fiber and those below it, in order."""
        yield self
        for cell in self.cells:
            if cell.below is not None:
                yield from cell.below.walk()


@dataclass(frozen=True)
class Chosen:
    """The fibers to draw, and per rank how many there are in all."""

    tensor: DrawnFibertree
    root: Fiber | None
    fibers: tuple[int, ...]

    @property
    def drawn(self) -> tuple[int, ...]:
        """Fibers drawn per rank."""
        result = [0] * len(self.fibers)
        for fiber in self.root.walk() if self.root else ():
            result[fiber.rank] += 1
        return tuple(result)


def coordinate_text(coordinate: Coordinate) -> str:
    if isinstance(coordinate, tuple):
        return "(" + ",".join(str(c) for c in coordinate) + ")"
    return str(coordinate)


def value_text(value: Any) -> str:
    """A value in few characters: whole numbers as they are (floats below 10^7), others with three digits."""
    if isinstance(value, (bool, np.bool_, int, np.integer)):
        return str(int(value))
    if isinstance(value, (complex, np.complexfloating)):
        return f"{complex(value):.3g}"
    real = float(value)
    return str(int(real)) if real.is_integer() and abs(real) < 1e7 else f"{real:.3g}"


def text_width(text: str) -> float:
    return max(NARROWEST, len(text) * CHAR + 10)


def choose(tensor: DrawnFibertree, limit: int) -> Chosen:
    """The part of a tensor with about `limit` values at most: all of it, or some of every kind of fiber."""
    ends = np.cumsum(tensor.widths, dtype=np.int64)
    count = tensor.values.size
    changed = np.zeros(count, dtype=bool)
    changed[:1] = True
    starts = []
    for high, width in zip(ends.tolist(), tensor.widths, strict=True):
        for row in tensor.columns[high - width : high]:
            changed[1:] |= row[1:] != row[:-1]
        starts.append(np.flatnonzero(changed))
    if not tensor.ranks or not count:
        return Chosen(tensor, None, (0,) * len(tensor.ranks))
    fibers = (1, *(int(s.size) for s in starts[:-1]))
    budget = limit if count <= limit else max(1, limit * 2 // 3)  # room for the text of omitted coordinates
    root = _Chooser(tensor, starts, ends).fiber(0, 0, count, (), budget)[0]
    return Chosen(tensor, root, fibers)


@dataclass(frozen=True, eq=False)
class _Chooser:
    tensor: DrawnFibertree
    starts: list[NDArray[np.intp]]
    ends: Ints

    def fiber(self, rank: int, low: int, high: int, path: Path, budget: int) -> tuple[Fiber, int]:
        """The fiber of the values low to high, and how much of the budget it takes: one per value drawn.

        Of a fiber that is too large some first coordinates are drawn, each with its share of the budget.
        """
        all_starts = self.starts[rank]
        first, last = np.searchsorted(all_starts, (low, high)).tolist()
        known, deep = last - first, len(self.starts) - rank
        share = 1 if deep == 1 else max(1, budget // max(2, ceil(budget ** (1 / deep))))
        if high - low <= budget:
            share = budget
        cells: list[Cell] = []
        drawn = 0
        for number in range(first, last):
            if drawn >= budget:
                break
            start = int(all_starts[number])
            stop = int(all_starts[number + 1]) if number + 1 < last else high
            cell, used = self.cell(rank, start, stop, path, min(share, budget - drawn))
            cells.append(cell)
            drawn += used
        more = known - len(cells)
        width = sum(c.width for c in cells) + BESIDE * (len(cells) - 1 if deep > 1 else 0)
        if deep == 1:
            width += WITHIN * (len(cells) - 1)
        if more:
            width += WITHIN + text_width(f"… {more:,} more")
            drawn += REST
        return Fiber(rank, tuple(cells), more, width + 2 * WITHIN), drawn

    def cell(self, rank: int, low: int, high: int, path: Path, budget: int) -> tuple[Cell, int]:
        top = int(self.ends[rank])
        parts = tuple(int(c) for c in self.tensor.columns[top - self.tensor.widths[rank] : top, low])
        here: Path = (*path, parts[0] if len(parts) == 1 else parts)
        wide = text_width(coordinate_text(here[-1]))
        if rank + 1 == len(self.starts):
            value = value_text(self.tensor.values[low])
            return Cell(here, None, value, max(wide, text_width(value))), 1
        below, used = self.fiber(rank + 1, low, high, here, budget)
        return Cell(here, below, "", max(wide, below.width)), used
