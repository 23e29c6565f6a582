"""Follow the output's fibertree as it grows: the element of each iteration, and the accesses of populating
it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from polymodel.errors import Refused
from polymodel.frozen import dataclass
from polymodel.sparse.execute.loops import Walked
from polymodel.sparse.execute.plan import Plan
from polymodel.sparse.fibertree import Ints
from polymodel.sparse.ranges import count_below, sums_before

Bools = NDArray[np.bool_]
_NUMBERED = 2**62
_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class Grown:
    """The output at the nodes of one loop. `element`: the number of each node's element, in the order of
    coordinates (of the loops so far); `count`: the number of elements. `reads`, `writes`: those of
    populating, where the loop populates."""

    element: Ints
    count: int
    reads: int = 0
    writes: int = 0


def effectual(loops: Sequence[Walked], leaves: Bools | None) -> list[Bools | None]:
    """Return, for each loop, the nodes that lead to a computation (None: all). `leaves`: those of the last
    loop."""
    result: list[Bools | None] = [leaves]
    for above, loop in zip(reversed(loops[:-1]), reversed(loops[1:]), strict=True):
        below = result[-1]
        alive = np.zeros(above.nodes, dtype=bool)
        alive[loop.parent if below is None else loop.parent[below]] = True
        result.append(None if alive.all() else alive)
    return result[::-1]


def grow(plan: Plan, loops: Sequence[Walked], alive: Sequence[Bools | None]) -> list[Grown]:
    """Follow the output through the loops."""
    result: list[Grown] = []
    element, count = np.zeros(1, dtype=np.int64), 1
    for at, loop in enumerate(loops):
        above = element
        element = element[loop.parent]
        reads = writes = 0
        if at in plan.populate:
            element, count, once = _number(element, count, loop.coords)
            reads, writes = _accesses(loop, above, element, count, once, alive[at])
        else:
            for _, where, column in plan.output:
                if where == at:
                    coords = plan.order[at].decode(loop.coords)[column]
                    element, count, _ = _number(element, count, coords)
        result.append(Grown(element, count, reads, writes))
    return result


def _number(fiber: Ints, count: int, coords: Ints) -> tuple[Ints, int, bool]:
    """Number pairs (fiber, coordinate) in ascending order. Return the numbers, how many there are, and
    whether they were sorted."""
    span = int(coords.max(initial=0)) + 1
    if count * span > _NUMBERED:
        raise Refused("the output has more places than 64 bits number", code="number-too-large")
    keys = fiber * span
    keys += coords
    if keys.size < 2 or bool((keys[1:] > keys[:-1]).all()):
        return np.arange(keys.size, dtype=np.int64), int(keys.size), True
    if count * span <= 4 * keys.size + 1024:
        present = np.zeros(count * span, dtype=bool)
        present[keys] = True
        table = np.cumsum(present) - 1
        return table[keys], int(table[-1]) + 1, False
    order = np.argsort(keys, kind="stable")
    new = np.ones(keys.size, dtype=bool)
    new[1:] = np.diff(keys[order]) != 0
    element = np.empty(keys.size, dtype=np.int64)
    element[order] = np.cumsum(new) - 1
    return element, int(new.sum()), False


def _accesses(
    loop: Walked, above: Ints, element: Ints, count: int, once: bool, alive: Bools | None
) -> tuple[int, int]:
    """Return the reads and writes of populating, summed over the visits of one loop.

    A coordinate that exists costs a read and a write; a new one with a result costs a write. A visit whose
    first coordinate lies below the last one of its nonempty fiber inserts: every element that its search
    passes costs one more read, and if there is a new coordinate, all elements from the first new one on are
    read and written once more.
    """
    if once:
        return 0, loop.nodes if alive is None else int(alive.sum())
    event = np.arange(loop.nodes, dtype=np.int64)
    born = np.full(count, _NEVER, dtype=np.int64)
    np.minimum.at(
        born, element if alive is None else element[alive], event if alive is None else event[alive]
    )
    age = born[element]
    there, new = event > age, event == age
    del event, age
    reads = int(there.sum())
    writes = reads + int(new.sum())
    extra_reads, extra_writes = _insertions(loop, above, element, born, there, new)
    return reads + extra_reads, writes + extra_writes


def _insertions(
    loop: Walked, above: Ints, element: Ints, born: Ints, there: Bools, new: Bools
) -> tuple[int, int]:
    """Return the reads and writes of inserting visits beyond those of their own coordinates."""
    first = np.ones(loop.nodes, dtype=bool)
    first[1:] = loop.parent[1:] != loop.parent[:-1]
    begin = np.flatnonzero(first)
    end = np.append(begin[1:], loop.nodes)
    fiber = above[loop.parent[begin]]
    # Elements of one fiber have consecutive numbers; those of fiber f start at `base[f]`.
    base = np.full(int(fiber.max(initial=0)) + 2, born.size, dtype=np.int64)
    np.minimum.at(base, fiber, element[begin])
    base = np.minimum.accumulate(base[::-1])[::-1]
    again = np.flatnonzero((np.bincount(fiber) > 1)[fiber])
    begin, end, fiber = begin[again], end[again], fiber[again]
    if not again.size:
        return 0, 0
    size, largest = _state(fiber, begin, base, born)
    inserts = np.flatnonzero((size > 0) & (element[begin] < largest))
    if not inserts.size:
        return 0, 0
    begin, end, fiber, size = begin[inserts], end[inserts], fiber[inserts], size[inserts]
    before = _existing_below(born, base[fiber], element[end - 1], begin)
    met = sums_before(there)
    searched = before - (met[end - 1] - met[begin])
    fresh = sums_before(new)
    came = fresh[end] - fresh[begin]
    some = np.flatnonzero(came)
    events = np.flatnonzero(new)
    at = element[events[fresh[begin[some]]]]
    lower = _existing_below(born, base[fiber[some]], at, begin[some])
    moved = int((size[some] - lower + came[some]).sum())
    return int(searched.sum()) + moved, moved


def _state(fiber: Ints, begin: Ints, base: Ints, born: Ints) -> tuple[Ints, Ints]:
    """Return, for each visit, the number of elements of its fiber as it starts, and the largest of them (-1:
    none)."""
    visited = np.zeros(base.size - 1, dtype=bool)
    visited[fiber] = True
    lengths = np.where(visited, np.diff(base), 0)
    owner = np.repeat(np.arange(lengths.size, dtype=np.int64), lengths)
    ends = np.cumsum(lengths)
    element = np.arange(owner.size) + np.repeat(base[:-1] - (ends - lengths), lengths)
    span = int(begin[-1]) + 1
    # Elements that appear later, or never, are at the end of their fiber.
    keys = owner * (span + 1) + np.minimum(born[element], span)
    order = np.argsort(keys)
    peak = np.maximum.accumulate(np.where(born[element[order]] >= span, -1, element[order]))
    upto = np.searchsorted(keys[order], fiber * (span + 1) + begin)
    size = upto - (ends - lengths)[fiber]
    return size, np.where(size > 0, peak[np.maximum(upto - 1, 0)], -1)


def _existing_below(born: Ints, low: Ints, high: Ints, time: Ints) -> Ints:
    """Return how many of the elements low .. high - 1 exist at a given time, for many ranges at once."""
    lengths = np.maximum(high - low, 0)
    total = int(lengths.sum())
    if total <= 4 * born.size:
        ends = np.cumsum(lengths)
        element = np.arange(total) + np.repeat(low - (ends - lengths), lengths)
        there = sums_before(born[element] < np.repeat(time, lengths))
        result: Ints = there[ends] - there[ends - lengths]
        return result
    ranks = np.empty(born.size, dtype=np.int64)
    ranks[np.argsort(born, kind="stable")] = np.arange(born.size)
    return count_below(ranks, low, high, np.searchsorted(np.sort(born), time), born.size)
