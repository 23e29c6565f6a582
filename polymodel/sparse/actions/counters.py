"""Represent loop counters as arrays that give, for every value of a rank variable, the tile of each loop that
contains it."""

from __future__ import annotations

from collections.abc import Container, Sequence, Set

import numpy as np
from numpy.typing import NDArray

from polymodel.analysis.result import Problem
from polymodel.errors import Refused
from polymodel.frozen import dataclass
from polymodel.mapping.looptree import Loop
from polymodel.workload.einsum import Einsum

Ints = NDArray[np.int64]
POINT = -1  # denotes, among loop ids, the positions within the innermost tiles
# The most values of one rank variable that are listed; beyond that, counts come from the density alone.
LONGEST = 50_000_000


@dataclass(frozen=True)
class Counters:
    """The values of one rank variable in one Einsum, and for each value the counter of each loop over the
    variable.

    `loops`: pairs (node id, loop), outermost first. `counters`: one array per loop. `offset`: the position
    within the innermost tile. `low`: the smallest value. `foreign`: the Einsum does not have this variable
    and is repeated in every iteration; the values then only number these iterations.
    """

    variable: str
    low: int
    loops: tuple[tuple[int, Loop], ...]
    counters: tuple[Ints, ...]
    offset: Ints
    foreign: bool = False

    @property
    def size(self) -> int:
        return int(self.offset.size)

    def span(self, digits: Set[int | str]) -> int:
        """Return the largest distance between two values that these counters do not distinguish."""
        parts, values = group_numbers(digit_columns(self, digits), self.size), np.arange(self.size)
        number = int(parts.max(initial=-1)) + 1
        first, last = np.full(number, self.size), np.zeros(number, np.int64)
        np.minimum.at(first, parts, values)
        np.maximum.at(last, parts, values)
        return int((last - first).max(initial=0))


def counters_of(problem: Problem, einsum: str, only: Container[str] | None = None) -> tuple[Counters, ...]:
    """Return one record per rank variable of the Einsum, then one per variable that only repeats it.

    `only`: restricts the result to these variables.
    """
    e, loops = problem.cascade[einsum], problem.tree.loops(einsum)
    result = []
    names = [loop.variable_in(einsum) for _, loop in loops]
    for variable in e.rank_variables:
        if only is not None and variable not in only:
            continue
        mine = tuple(x for x, name in zip(loops, names, strict=True) if name == variable)
        low, high = e.bound(variable)
        base = low
        if mine and not mine[0][1].uneven:
            base = min(_lows(problem, mine[0], einsum))
        result.append(_counted(variable, low, high, base, mine))
    for variable in dict.fromkeys(n for n in names if n not in e.rank_variables):
        if only is not None and variable not in only:
            continue
        mine = tuple(x for x, name in zip(loops, names, strict=True) if name == variable)
        result.append(_repeats(problem, variable, mine))
    return tuple(result)


def _bound_by(problem: Problem, node: int, loop: Loop) -> list[tuple[Einsum, str]]:
    below = (problem.cascade[name] for name in problem.tree.below[node])
    return [(e, loop.variable_in(e.name)) for e in below if loop.variable_in(e.name) in e.rank_variables]


def _lows(problem: Problem, outermost: tuple[int, Loop], einsum: str) -> list[int]:
    node, _ = outermost
    whole = next(n for i, n, _ in problem.tree.walk() if i == node)
    assert isinstance(whole, Loop), "the id is that of a loop"
    return [e.bound(v)[0] for e, v in _bound_by(problem, node, whole)]


def _counted(variable: str, low: int, high: int, base: int, loops: tuple[tuple[int, Loop], ...]) -> Counters:
    if high - low + 1 > LONGEST:
        remedy = "give the tiles of this rank variable to a smaller problem, or leave out its actions"
        message = f"rank variable {variable} has {high - low + 1:,} values: too many to list"
        raise Refused(message, remedy, code="too-large")
    values = np.arange(low, high + 1, dtype=np.int64)
    begin = np.full(values.size, base, dtype=np.int64)
    result = []
    for _, loop in loops:
        tile, first = loop.tile_shape, loop.initial_tile_shape
        assert isinstance(tile, int), "symbols have values here"
        assert not isinstance(first, str), "symbols have values here"
        head = tile if first is None else first
        inside = values - begin
        counter = np.where(inside < head, 0, 1 + (inside - head) // tile)
        begin = begin + np.where(counter == 0, 0, head + (counter - 1) * tile)
        result.append(counter)
    return Counters(variable, low, loops, tuple(result), values - begin)


def _repeats(problem: Problem, variable: str, loops: tuple[tuple[int, Loop], ...]) -> Counters:
    """Return the iterations of loops that do not bind the Einsum. Loops that bind other Einsums run as often
    as those need."""
    bounds = [e.bound(v) for e, v in _bound_by(problem, *loops[0])]
    if not bounds:
        return Counters(variable, 0, (), (), np.zeros(1, np.int64), foreign=True)
    low, high = min(b[0] for b in bounds), max(b[1] for b in bounds)
    each = _counted(variable, low, high, low, loops)
    table = np.unique(np.array(each.counters), axis=1)
    zeros = np.zeros(table.shape[1], np.int64)
    return Counters(variable, 0, loops, tuple(table), zeros, foreign=True)


def group_numbers(columns: Sequence[Ints], size: int) -> Ints:
    """Number the rows from 0 in lexicographic order; rows that are equal in all columns get the same
    number."""
    result, count = np.zeros(size, dtype=np.int64), 1
    for column in columns:
        wide = int(column.max(initial=0)) + 1
        if wide == 1:
            continue  # all rows are equal in it
        mixed = result * wide + column
        top = count * wide
        if top > 4 * size + 1000:
            top = int(mixed.max()) + 1
        if top > 4 * size + 1000:
            numbers, found = np.unique(mixed, return_inverse=True)
            result, count = found.astype(np.int64), numbers.size
            continue
        # Numbers that are not much more than the rows are renumbered without sorting.
        present = np.zeros(top, np.int64)
        present[mixed] = 1
        numbers = np.cumsum(present)
        result, count = numbers[mixed] - 1, int(numbers[-1])
    return result


def distinct_rows(columns: Sequence[Ints], size: int) -> tuple[Ints, Ints]:
    """Return the position of the first of each set of rows that are equal in all columns, in lexicographic
    order, and the number of each row's set."""
    numbers = group_numbers(columns, size)
    return np.unique(numbers, return_index=True)[1], numbers


def digit_columns(counters: Counters, digits: Set[int | str]) -> list[Ints]:
    """Return the counters of these loops for every value. POINT, or the name of the variable, selects the
    position within the innermost tile."""
    result = [k for (i, _), k in zip(counters.loops, counters.counters, strict=True) if i in digits]
    points = (POINT in digits or counters.variable in digits) and not counters.foreign
    return [*result, counters.offset] if points else result
