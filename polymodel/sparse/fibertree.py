"""Represent a fibertree as arrays: for each rank the coordinates of all elements, and the start of each
parent's children."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymodel.errors import Refused
from polymodel.frozen import dataclass

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
_NUMBERED = 2**62
_BLOCK = 2**18
# The average rows of a fiber from which whole fibers are sorted instead of rows.
_FEW = 4


@dataclass(frozen=True)
class LoopRank:
    """A rank after partitioning: its `name`, and the declared ranks that it was made from with their sizes.

    A coordinate is one int64. For a flattened rank (several `bases`) it is the row-major number of a tuple,
    so that numbers are ordered like the tuples; `decode` returns the tuple.
    """

    name: str
    bases: tuple[str, ...]
    sizes: tuple[int, ...]

    @property
    def size(self) -> int:
        return prod(self.sizes)

    @property
    def flattened(self) -> bool:
        return len(self.bases) > 1

    def encode(self, columns: Sequence[Ints]) -> Ints:
        """Return one number per tuple. Raises Refused if 64 bits are too few."""
        if self.size > _NUMBERED:
            what = " x ".join(str(s) for s in self.sizes)
            message = f"the flattened rank {self.name} has {what} coordinates: more than 64 bits number"
            raise Refused(message, code="number-too-large")
        result = columns[0]
        for column, size in zip(columns[1:], self.sizes[1:], strict=True):
            result = result * size + column
        return result

    def decode(self, coords: Ints) -> tuple[Ints, ...]:
        """Return the columns of the declared ranks, outermost first."""
        result: list[Ints] = []
        for size in reversed(self.sizes[1:]):
            coords, inner = np.divmod(coords, size)
            result.append(inner)
        return (coords, *reversed(result))

    def shown(self, coord: int) -> int | tuple[int, ...]:
        """Return one coordinate in readable form: a number, or the tuple of a flattened rank."""
        if not self.flattened:
            return int(coord)
        return tuple(int(c[0]) for c in self.decode(np.array([coord], dtype=np.int64)))


@dataclass(frozen=True, eq=False)
class Level:
    """All fibers of one rank. Element e has coordinate `coords[e]`, ascending within its fiber. The children
    of element p of the level above (for the root: p = 0) are the elements starts[p] .. starts[p + 1] - 1."""

    rank: LoopRank
    coords: Ints
    starts: Ints

    @property
    def elements(self) -> int:
        return int(self.coords.size)

    @property
    def fibers(self) -> int:
        return int(self.starts.size) - 1

    @cached_property
    def fiber(self) -> Ints:
        """The fiber (element of the level above) of each element."""
        return np.repeat(np.arange(self.fibers, dtype=np.int64), np.diff(self.starts))

    @cached_property
    def small(self) -> NDArray[np.int32]:
        """The coordinates in 32 bits, for repeated reading; only valid where they fit."""
        return self.coords.astype(np.int32)

    @cached_property
    def step(self) -> int:
        """The distance between neighbours, if it is the same in all fibers (1 for dense fibers), else 0."""
        if self.elements < 2:
            return 1
        steps = np.diff(self.coords)
        inside = np.ones(steps.size, dtype=bool)
        edges = self.starts[1:-1] - 1
        inside[edges[(edges >= 0) & (edges < steps.size)]] = False
        result = steps[inside]
        if not result.size:
            return 1
        return int(result[0]) if (result == result[0]).all() else 0

    @cached_property
    def alike(self) -> bool:
        """True if all fibers hold the same coordinates, as those of a dense tensor do."""
        if not self.fibers or self.elements % self.fibers:
            return False
        width = self.elements // self.fibers
        if not bool((self.starts == np.arange(self.fibers + 1) * width).all()):
            return False
        rows = self.coords.reshape(self.fibers, width)
        return bool((rows == rows[:1]).all())

    @cached_property
    def keys(self) -> Ints:
        """Pairs (fiber, coordinate) as single ascending numbers."""
        return self.key(self.fiber, self.coords)

    @cached_property
    def span(self) -> int:
        return (int(self.coords.max()) if self.elements else 0) + 2

    def key(self, fibers: Ints, coords: Ints) -> Ints:
        """Return numbers that order pairs (fiber, coordinate). Coordinates outside are moved to the ends of
        the fiber."""
        if self.fibers * self.span > _NUMBERED:
            message = f"rank {self.rank.name} has too many fibers x coordinates for 64 bits"
            raise Refused(message, code="number-too-large")
        return fibers * self.span + np.clip(coords, -1, self.span - 2) + 1

    def upto(self, fibers: Ints, low: Ints, high: Ints, coords: Ints) -> Ints:
        """Return how many of the elements low .. high - 1, a part of one fiber each, have coordinates <=
        `coords`."""
        if self.step and self.elements:
            first = self.coords[np.minimum(low, self.elements - 1)]
            found = coords - first
            found = (found if self.step == 1 else found // self.step) + 1
        else:
            found = np.searchsorted(self.keys, self.key(fibers, coords), side="right") - low
        result: Ints = np.clip(found, 0, high - low)
        return result

    def find(self, fibers: Ints, low: Ints, high: Ints, coords: Ints) -> Ints:
        """Return the element with this coordinate among low .. high - 1, a part of one fiber each; -1 if
        there is none."""
        if not self.elements:
            return np.full(coords.size, -1, dtype=np.int64)
        if self.step:
            offset = coords - self.coords[np.minimum(low, self.elements - 1)]
            at = low + (offset if self.step == 1 else offset // self.step)
        else:
            at = np.searchsorted(self.keys, self.key(fibers, coords))
        inside = (at >= low) & (at < high)
        if self.step != 1:
            inside &= self.coords[np.minimum(at, self.elements - 1).clip(0)] == coords
        result: Ints = np.where(inside, at, -1)
        return result


@dataclass(frozen=True, eq=False)
class Fibertree:
    """A tensor as one `Level` per rank, outermost first; `values`: one per element of the last level."""

    name: str
    levels: tuple[Level, ...]
    values: NDArray[Any]

    @property
    def ranks(self) -> tuple[str, ...]:
        return tuple(level.rank.name for level in self.levels)

    @property
    def nnz(self) -> int:
        return int(self.values.size)

    def columns(self) -> tuple[Ints, ...]:
        """Return the coordinates of all nonzeros, one array per rank."""
        result: list[Ints] = []
        element = np.arange(self.nnz, dtype=np.int64)
        for level in reversed(self.levels):
            result.append(level.coords[element])
            element = level.fiber[element]
        return tuple(reversed(result))

    def leaves(self, depth: int) -> Ints:
        """Return the number of nonzeros below each element of level `depth`."""
        ends = self.levels[depth].starts[-1:]
        bounds = np.arange(int(ends[0]) + 1, dtype=np.int64)
        for level in self.levels[depth + 1 :]:
            bounds = level.starts[bounds]
        return np.diff(bounds)

    def part(self, first: int, last: int) -> Fibertree:
        """Return the tree of elements first .. last - 1 of the outermost rank and all below them, without
        copies."""
        levels = []
        fibers, starts = slice(0, 1), np.array([0, last - first], dtype=np.int64)
        for depth, level in enumerate(self.levels):
            if depth:
                starts = level.starts[fibers.start : fibers.stop + 1]
                first, last = int(starts[0]), int(starts[-1])
                starts = starts - first
            levels.append(Level(level.rank, level.coords[first:last], starts))
            fibers = slice(first, last)
        return Fibertree(self.name, tuple(levels), self.values[first:last])

    def nested(self, depth: int = 0, start: int = 0, stop: int | None = None) -> list[Any]:
        """Return nested lists of [coordinate, payload], for small trees."""
        level = self.levels[depth]
        last = depth == len(self.levels) - 1
        result = []
        for e in range(start, level.elements if stop is None else stop):
            coord = level.rank.shown(int(level.coords[e]))
            if last:
                payload: Any = self.values[e].item()
            else:
                below = self.levels[depth + 1].starts
                payload = self.nested(depth + 1, int(below[e]), int(below[e + 1]))
            result.append([list(coord) if isinstance(coord, tuple) else coord, payload])
        return result


def blocks(rows: int) -> Iterator[slice]:
    """Yield pieces of long arrays. Processing in pieces avoids long intermediate arrays, whose allocation
    takes longer than filling them."""
    for start in range(0, rows, _BLOCK):
        yield slice(start, min(start + _BLOCK, rows))


def sorting(columns: Sequence[Ints], bases: Sequence[tuple[str, ...]] = ()) -> Ints | None:
    """Return an order that sorts rows by the columns, the first one being the most significant; None if they
    are sorted. The order of equal rows is arbitrary.

    `bases` of the columns' ranks, where known: columns that are parts of one rank then need fewer bits.
    """
    if not columns or columns[0].size < 2:
        return None
    if (key := numbering(columns, _above(bases))) is None:
        return np.lexsort(tuple(reversed(columns)))
    if bool((key[1:] >= key[:-1]).all()):
        return None
    return np.argsort(key)


def _above(bases: Sequence[tuple[str, ...]]) -> dict[int, int]:
    """Map each column that is an inner part of a rank to the column of the next outer part."""
    last: dict[tuple[str, ...], int] = {}
    result: dict[int, int] = {}
    for at, base in enumerate(bases):
        if base in last:
            result[at] = last[base]
        last[base] = at
    return result


def numbering(columns: Sequence[Ints], above: Mapping[int, int] | None = None) -> Ints | None:
    """Return one number per row that is ordered like the rows; None if 64 bits are too few.

    A column with a part `above` it is counted relative to that part, which keeps the order of rows with equal
    prefixes.
    """
    parts = above or {}

    def piece(at: int, here: slice) -> Ints:
        column = columns[at][here]
        return column - columns[parts[at]][here] if at in parts else column

    ends: list[tuple[int, int]] = []
    for at, column in enumerate(columns):
        pieces = (piece(at, here) for here in blocks(column.size))
        found = [(int(p.min()), int(p.max())) for p in pieces]
        ends.append((min(low for low, _ in found), max(high for _, high in found)))
    if prod(high - low + 1 for low, high in ends) > _NUMBERED:
        return None
    numbers = np.zeros(columns[0].size, dtype=np.int64)
    for here in blocks(numbers.size):
        part = numbers[here]
        for at, (low, high) in enumerate(ends):
            if high > low:
                part *= high - low + 1
                part += piece(at, here)
                part -= low
    return numbers


def changes(columns: Sequence[Ints]) -> Bools:
    """Return where a row differs from the previous one; True for the first row."""
    result = np.zeros(columns[0].size, dtype=bool)
    if result.size:
        result[0] = True
    for column in columns:
        result[1:] |= column[1:] != column[:-1]
    return result


def build(name: str, ranks: Sequence[LoopRank], columns: list[Ints], values: NDArray[Any]) -> Fibertree:
    """Build a tree from one column per rank. Rows are distinct, in any order. The list of columns is
    consumed."""
    bases = [r.bases for r in ranks]
    if (fibers := _whole_fibers(columns, bases)) is not None:
        return _of_fibers(name, ranks, columns, values, *fibers)
    order = sorting(columns, bases)
    if order is not None:
        for i, column in enumerate(columns):
            if column.min() != column.max():
                columns[i] = column.take(order)
        values = values.take(order)
        del column, order
    return Fibertree(name, tuple(_levels(ranks, columns, values.size)), values)


def _levels(ranks: Sequence[LoopRank], columns: Sequence[Ints], rows: int) -> list[Level]:
    """Return the levels of distinct, sorted rows."""
    levels: list[Level] = []
    # Rows where an element of the level above begins; the last mark is the end.
    above = np.zeros(rows + 1, dtype=bool)
    above[[0, -1]] = True
    for depth, (rank, column) in enumerate(zip(ranks, columns, strict=True)):
        if not rows:
            levels.append(Level(rank, column, np.zeros(2 if depth == 0 else 1, dtype=np.int64)))
            continue
        if depth == len(columns) - 1:
            levels.append(Level(rank, column, np.flatnonzero(above)))
            break
        new = above.copy()
        new[1:-1] |= column[1:] != column[:-1]
        levels.append(_level(rank, column, new, above))
        above = new
    return levels


def _level(rank: LoopRank, column: Ints, new: Bools, above: Bools) -> Level:
    """Return the level whose elements start at the rows marked `new`, and whose fibers start at those marked
    `above`. Both arrays have an end mark."""
    coords = np.empty(int(np.count_nonzero(new)) - 1, dtype=np.int64)
    starts = np.empty(int(np.count_nonzero(above)), dtype=np.int64)
    elements = fibers = 0
    for here in blocks(column.size):
        at = np.flatnonzero(new[here])
        begins = np.flatnonzero(above[here][at])
        coords[elements : elements + at.size] = column[here][at]
        starts[fibers : fibers + begins.size] = begins + elements
        elements, fibers = elements + at.size, fibers + begins.size
    starts[-1] = elements
    return Level(rank, coords, starts)


# Fibers of the last rank that are contiguous and sorted, such as those below split ranks, are sorted as
# wholes.


def _whole_fibers(
    columns: Sequence[Ints], bases: Sequence[tuple[str, ...]]
) -> tuple[Ints, Ints | None] | None:
    """Return the first row of each fiber of the last rank, and an order of the fibers (None if they are
    sorted). Return None where fibers are short, unsorted or not contiguous."""
    if len(columns) < 2:
        return None
    size, new = columns[0].size, changes(columns[:-1])
    begin = np.flatnonzero(new)
    if begin.size * _FEW > size:
        return None
    for here in blocks(size - 1):
        after = slice(here.start + 1, here.stop + 1)
        if not bool((new[after] | (columns[-1][after] >= columns[-1][here])).all()):
            return None
    leading = [c[begin] for c in columns[:-1]]
    order = sorting(leading, bases[:-1])
    if order is not None and not bool(changes([c[order] for c in leading]).all()):
        return None
    return begin, order


def _of_fibers(
    name: str,
    ranks: Sequence[LoopRank],
    columns: list[Ints],
    values: NDArray[Any],
    begin: Ints,
    order: Ints | None,
) -> Fibertree:
    counts = np.diff(np.append(begin, values.size))
    last = columns.pop()
    leading = [c[begin] for c in columns]
    columns.clear()
    if order is not None:
        leading, begin, counts = [c[order] for c in leading], begin[order], counts[order]
        last, values = _gathered(last, begin, counts), _gathered(values, begin, counts)
    starts = np.zeros(counts.size + 1, dtype=np.int64)
    np.cumsum(counts, out=starts[1:])
    levels = (*_levels(ranks[:-1], leading, counts.size), Level(ranks[-1], last, starts))
    return Fibertree(name, levels, values)


def _gathered(column: NDArray[Any], begin: Ints, counts: Ints) -> NDArray[Any]:
    """Concatenate the ranges of a column with these first rows and these lengths."""
    ends = np.cumsum(counts)
    result = np.empty(int(ends[-1]), dtype=column.dtype)
    first = begin - (ends - counts)
    for here in blocks(result.size):
        low, high = np.searchsorted(ends, (here.start, here.stop - 1), side="right")
        some = counts[low : high + 1].copy()
        some[-1] -= ends[high] - here.stop
        some[0] -= some.sum() - (here.stop - here.start)
        result[here] = column[np.repeat(first[low : high + 1], some) + np.arange(here.start, here.stop)]
    return result
