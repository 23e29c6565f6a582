"""Count an innermost loop that merges one tensor's fibers into the output's, without walking it.

Gustavson's product of sparse matrices is an example: at every nonzero of A a row of B is merged into a row of
the output. The accesses of the loop are counted as in a symbolic product, for as many output fibers at a time
as fit into a block, so that memory does not grow with the number of iterations.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from polymodel.frozen import dataclass
from polymodel.governor import look
from polymodel.sparse.execute.loops import LoopWalk
from polymodel.sparse.execute.output import Bools, Grown, effectual, grow
from polymodel.sparse.execute.plan import Plan
from polymodel.sparse.fibertree import Ints, Level
from polymodel.sparse.ranges import count_below, sums_before
from polymodel.spec.teaal.records import SpaceTime

Small = NDArray[np.int32]
# Iterations that are merged at a time, chosen to fit the caches of a processor.
BLOCK = 2**20
# Up to this number, coordinates are sorted by counting; above, by comparison.
_COUNTED = 2**23
_DOING = "merging fibers into the output"


@dataclass(frozen=True, eq=False)
class Merged:
    """A merged loop: at node n of the last loop walked, the elements low[n] .. high[n] - 1 of `level`, in
    fiber `fiber[n]` of slot `slot`, are merged into the output's fiber `output[n]`, one of `outputs`."""

    slot: int
    level: Level
    fiber: Ints
    low: Ints
    high: Ints
    output: Ints
    outputs: int

    @cached_property
    def lengths(self) -> Ints:
        """The iterations at each node."""
        return self.high - self.low

    @cached_property
    def iterations(self) -> int:
        return int(self.lengths.sum())

    @cached_property
    def tally(self) -> OutputTally:
        """The accesses to the output during merging."""
        if self.level.alike:  # the first visit of a fiber inserts all of its elements, the others find them
            elements = int(self.sizes.sum())
            return OutputTally(elements, self.iterations - elements, self.iterations)
        visits = _visits(self.lengths, self.output, by_size=True)
        found = [self._counted(*block) for block in _blocked(visits, self.lengths)]
        totals = (sum(getattr(t, name) for t in found) for name in ("elements", "reads", "writes"))
        return OutputTally(*totals)

    @cached_property
    def sizes(self) -> Ints:
        """The number of elements of each output fiber that is visited, in any order."""
        if self.level.alike:
            visited = np.zeros(self.outputs, dtype=bool)
            visited[self.output[self.lengths > 0]] = True
            return np.full(np.count_nonzero(visited), self.level.elements // self.level.fibers)
        return self._sizes(_visits(self.lengths, self.output, by_size=True))

    def distinct(self, group: Ints) -> Ints:
        """Return the number of distinct coordinates in the fibers of each group of nodes; groups are in
        ascending order."""
        return self._sizes(_visits(self.lengths, group, by_size=False))

    def _sizes(self, visits: tuple[Ints, Ints]) -> Ints:
        result = [np.zeros(0, dtype=np.int64)]
        for visited, fibers in _blocked(visits, self.lengths):
            if fibers.size == visited.size:
                result.append(self.lengths[visited])
            else:
                result.append(FiberVisits(self.level, self.low[visited], self.high[visited], fibers).sizes)
        return np.concatenate(result)

    def within(self, window: Ints) -> bool:
        """Return whether all nodes that visit the same fiber of the output have the same window."""
        one = np.zeros(self.outputs, dtype=np.int64)
        nodes = np.flatnonzero(self.lengths)
        one[self.output[nodes]] = window[nodes]
        return bool((one[self.output[nodes]] == window[nodes]).all())

    @cached_property
    def longest(self) -> int:
        """The maximum number of iterations in one fiber of the output."""
        work = np.zeros(self.outputs, dtype=np.int64)
        np.add.at(work, self.output, self.lengths)
        return int(work.max(initial=0))

    def lines(self, window: Ints, per_line: int) -> tuple[int, int]:
        """Return how many lines of the output exist when they are first touched in a window, and how many are
        touched in a window in all. `window`: that of each node, ascending with time."""
        result = [
            FiberVisits(self.level, self.low[visited], self.high[visited], fibers).lines(
                window[visited], per_line
            )
            for visited, fibers in _blocked(_visits(self.lengths, self.output, by_size=True), self.lengths)
        ]
        return sum(there for there, _ in result), sum(touched for _, touched in result)

    def _counted(self, visited: Ints, fibers: Ints) -> OutputTally:
        """Return the accesses to some output fibers, given the nodes that visit them and the number of visits
        of each."""
        total = int(self.lengths[visited].sum())
        if fibers.size == visited.size:  # one visit each: all elements are new, and are appended
            return OutputTally(total, 0, total)
        return _populated(FiberVisits(self.level, self.low[visited], self.high[visited], fibers))

    def pattern(self) -> tuple[Ints, Ints]:
        """Return every element of the output once, as its fiber and its coordinate, in ascending order."""
        fiber, coords = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
        for visited, fibers in _blocked(_visits(self.lengths, self.output, by_size=False), self.lengths):
            found = FiberVisits(self.level, self.low[visited], self.high[visited], fibers).elements
            first = np.cumsum(fibers) - fibers
            fiber.append(np.repeat(self.output[visited[first]], np.diff(found.starts)))
            coords.append(found.coords.astype(np.int64))
        return np.concatenate(fiber), np.concatenate(coords)


@dataclass(frozen=True)
class OutputTally:
    """The number of elements of the output's fibers, and the reads and writes of populating them."""

    elements: int
    reads: int
    writes: int


def applies(plan: Plan, spacetime: SpaceTime | None, values: bool) -> bool:
    """Return whether the innermost loop of a plan iterates over one tensor's fibers and populates the
    output's."""
    last = len(plan.order) - 1
    if last < 1 or len(plan.terms) > 1 or plan.scattered or last not in plan.populate:
        return False
    if values and (plan.terms[0].take is not None or not plan.semiring.ordinary):
        return False
    steps = [step for slot in plan.slots for step in slot.steps.get(last, ())]
    if len(steps) != 1 or steps[0].kind != "iterate" or plan.order[last].flattened:
        return False
    return spacetime is None or any(s.rank == plan.order[last].name for s in spacetime.time)


@dataclass(frozen=True, eq=False)
class Entered:
    """A walk down to a merged loop: that loop, the nodes of the last loop walked that have iterations in it,
    the nodes of each loop that lead to a computation (None: all), and the output along the loops."""

    merged: Merged
    there: Bools | None
    alive: tuple[Bools | None, ...]
    grown: tuple[Grown, ...]


def enter(walk: LoopWalk) -> Entered | None:
    """Return the merged innermost loop. Return None where no node leads to it, a tensor has no fiber at some
    nodes, or a fiber is split there."""
    last = len(walk.plan.order) - 1
    if not walk.nodes or any(c.partial or c.cut is not None for c in walk.cursors):
        return None
    slot = next(i for i, s in enumerate(walk.plan.slots) if last in s.steps)
    found = walk.cursors[slot].fibers(walk.nodes)
    if found.level.span > np.iinfo(np.int32).max:
        return None
    # Nodes without iterations have no result, and take no position in the output.
    filled = found.high > found.low
    there = None if filled.all() else filled
    alive = effectual(walk.loops, there)
    grown = grow(walk.plan, walk.loops, alive)
    output = grown[-1]
    merged = Merged(slot, found.level, found.fiber, found.low, found.high, output.element, output.count)
    return Entered(merged, there, tuple(alive), tuple(grown))


def _visits(lengths: Ints, group: Ints, by_size: bool) -> tuple[Ints, Ints]:
    """Return the nodes that iterate, grouped and in temporal order within a group, and the number of nodes of
    each group.

    Groups are in ascending order or, with `by_size`, ordered by the magnitude of their number of nodes.
    """
    nodes = np.flatnonzero(lengths)
    key = group[nodes]
    if by_size:
        counts = np.bincount(key)
        key = key + np.frexp(counts.astype(np.float64))[1].astype(np.int64)[key] * counts.size
    if not bool((key[1:] >= key[:-1]).all()):
        order = np.argsort(key, kind="stable")
        nodes, key = nodes[order], key[order]
    new = np.ones(key.size, dtype=bool)
    new[1:] = key[1:] != key[:-1]
    return nodes, np.diff(np.append(np.flatnonzero(new), key.size))


def _blocked(visits: tuple[Ints, Ints], lengths: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Yield pieces of whole groups with about `BLOCK` iterations; a longer group is a piece by itself."""
    nodes, counts = visits
    if not nodes.size:
        return
    ends = np.cumsum(counts)
    work = np.cumsum(lengths[nodes])[ends - 1]
    group = start = done = 0
    while group < counts.size:
        look(_DOING)
        stop = max(int(np.searchsorted(work, done + BLOCK, side="right")), group + 1)
        yield nodes[start : ends[stop - 1]], counts[group:stop]
        group, start, done = stop, int(ends[stop - 1]), int(work[stop - 1])


@dataclass(frozen=True, eq=False)
class OutputCoordinates:
    """The distinct coordinates of some output fibers: those of fiber f are starts[f] .. starts[f + 1] - 1, in
    ascending order. `born`: the visit that inserts each."""

    starts: Ints
    coords: Small
    born: Small


@dataclass(frozen=True, eq=False)
class FiberVisits:
    """Visits of some output fibers, `visits` for each, one after the other. A visit brings the elements low
    .. high - 1 of a level."""

    level: Level
    low: Ints
    high: Ints
    visits: Ints

    @cached_property
    def owner(self) -> Ints:
        """The output fiber of each visit."""
        return np.repeat(np.arange(self.visits.size, dtype=np.int64), self.visits)

    @cached_property
    def lengths(self) -> Ints:
        return self.high - self.low

    @cached_property
    def long(self) -> bool:
        """True if there is a single fiber with more iterations than are processed at a time."""
        return self.visits.size == 1 and int(self.lengths.sum()) > 8 * BLOCK

    @cached_property
    def sizes(self) -> Ints:
        """The number of elements of each output fiber."""
        if self.long:
            return np.diff(self.elements.starts)
        return _sizes(self._starts(0, self.low.size), self._coords(0, self.low.size), self.level.span)

    def lines(self, window: Ints, per_line: int) -> tuple[int, int]:
        """Return the result of `Merged.lines` for these visits. `window`: that of each visit."""
        count = self.low.size
        visit = np.repeat(np.arange(count, dtype=np.int32), self.lengths)
        starts = self._starts(0, count)
        coords, visit = _sorted(starts, self._coords(0, count), visit, self.level.span)
        new = _first(coords, starts)
        element = np.cumsum(new) - 1
        sizes = np.add.reduceat(new, starts[:-1], dtype=np.int64)
        per_line = min(per_line, int(sizes.max()))  # longer lines hold no more; line numbers fit in 64 bits
        first = sums_before(sizes)[:-1]
        lengths = np.diff(starts)
        place = element - np.repeat(first, lengths)
        line = place // per_line + np.repeat(sums_before(-(-sizes // per_line))[:-1], lengths)
        # Ordered by line, time and element: the first one of a line in a window is its first access there.
        order = np.argsort((line * count + visit) * per_line + place % per_line)
        line, seen = line[order], window[visit[order]]
        once = np.ones(order.size, dtype=bool)
        once[1:] = (line[1:] != line[:-1]) | (seen[1:] != seen[:-1])
        touched = order[once]
        return int(touched.size - np.count_nonzero(new[touched])), int(touched.size)

    @cached_property
    def elements(self) -> OutputCoordinates:
        lengths = self.lengths
        if not self.long:
            return self._merged(0, self.low.size)
        # One long fiber: its visits are processed in pieces, each added to the result so far.
        work = np.cumsum(lengths)
        coords, born = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int32)
        start = done = 0
        while start < self.low.size:
            look(_DOING)
            stop = max(int(np.searchsorted(work, done + 4 * BLOCK, side="right")), start + 1)
            more = self._merged(start, stop)
            coords, born = np.concatenate((coords, more.coords)), np.concatenate((born, more.born))
            both = _distinct(np.array([0, coords.size]), coords, born, self.level.span)
            coords, born, start, done = both.coords, both.born, stop, int(work[stop - 1])
        return OutputCoordinates(np.array([0, coords.size]), coords, born)

    def _merged(self, start: int, stop: int) -> OutputCoordinates:
        """Return the coordinates that some of the visits bring."""
        visit = np.repeat(np.arange(start, stop, dtype=np.int32), self.lengths[start:stop])
        return _distinct(self._starts(start, stop), self._coords(start, stop), visit, self.level.span)

    def _coords(self, start: int, stop: int) -> Small:
        """Return every coordinate that some of the visits bring, in temporal order."""
        low, lengths = self.low[start:stop], self.lengths[start:stop]
        ends = np.cumsum(lengths)
        at = np.repeat((low - (ends - lengths)), lengths)
        at += np.arange(at.size, dtype=np.int64)
        result: Small = self.level.small[at]
        return result

    def _starts(self, start: int, stop: int) -> Ints:
        """Return the index of the first coordinate of each fiber, and the end."""
        ends = sums_before(self.lengths[start:stop])
        fibers = sums_before(self.visits)
        return ends[np.clip(fibers - start, 0, stop - start)]


def far_apart(span: int, rows: int) -> bool:
    """Return whether there are too many coordinates to sort rows by counting."""
    return span > max(_COUNTED, 4 * rows)


def _sizes(starts: Ints, coords: Small, span: int) -> Ints:
    """Return the number of distinct coordinates of each fiber."""
    from scipy.sparse import csr_array

    fibers = starts.size - 1
    if far_apart(span, coords.size):
        return np.diff(_compared(starts, coords, np.zeros(coords.size, dtype=np.int32), span).starts)
    across = csr_array((np.zeros(coords.size, dtype=np.int8), coords, starts), shape=(fibers, span)).tocsc()
    return np.bincount(across.indices[_first(across.indices, across.indptr)], minlength=fibers)


def _first(values: Small, starts: NDArray[np.integer]) -> Bools:
    """Mark the values that differ from the previous one, in each of the ranges that start at `starts`."""
    result = np.ones(values.size, dtype=bool)
    result[1:] = values[1:] != values[:-1]
    begins = starts[:-1]
    result[begins[begins < starts[1:]]] = True
    return result


def _distinct(starts: Ints, coords: Small, visit: Small, span: int) -> OutputCoordinates:
    """Return each coordinate of each fiber once, with the first visit that brings it. Rows are in temporal
    order.

    Rows are sorted by counting, by transposing a sparse matrix twice; equal rows remain in temporal order.
    """
    from scipy.sparse import csc_array, csr_array

    fibers = starts.size - 1
    if far_apart(span, coords.size):
        return _compared(starts, coords, visit, span)
    across = csr_array((visit, coords, starts), shape=(fibers, span)).tocsc()
    fiber, ends = across.indices, across.indptr
    new = _first(fiber, ends)
    if new.all():
        result = across.tocsr()
    else:
        before = np.zeros(new.size + 1, dtype=np.int32)
        np.cumsum(new, out=before[1:])
        at = np.flatnonzero(new)  # faster than masks
        kept = csc_array((across.data[at], fiber[at], before[ends]), shape=across.shape)
        result = kept.tocsr()
    return OutputCoordinates(result.indptr.astype(np.int64), result.indices, result.data)


def _sorted(starts: Ints, coords: Small, visit: Small, span: int) -> tuple[Small, Small]:
    """Sort the rows of each fiber by coordinate; equal ones remain in temporal order."""
    from scipy.sparse import csr_array

    fibers = starts.size - 1
    if far_apart(span, coords.size):
        order = np.argsort(np.repeat(np.arange(fibers) * span, np.diff(starts)) + coords, kind="stable")
        return coords[order], visit[order]
    result = csr_array((visit, coords, starts), shape=(fibers, span)).tocsc().tocsr()
    return result.indices, result.data


def _compared(starts: Ints, coords: Small, visit: Small, span: int) -> OutputCoordinates:
    """Return the result of `_distinct`, sorted by comparing, where there are far more coordinates than
    rows."""
    fibers = starts.size - 1
    keys = np.repeat(np.arange(fibers, dtype=np.int64), np.diff(starts)) * span + coords
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    new = np.ones(keys.size, dtype=bool)
    new[1:] = keys[1:] != keys[:-1]
    first, keys = order[new], keys[new]
    bounds = np.searchsorted(keys, np.arange(fibers + 1, dtype=np.int64) * span)
    return OutputCoordinates(bounds, coords[first], visit[first])


def _populated(fibers: FiberVisits) -> OutputTally:
    """Return elements, reads and writes of some output fibers, by the rules of `output.grow`, visit by
    visit."""
    elements, lengths = fibers.elements, fibers.lengths
    came = np.bincount(elements.born, minlength=lengths.size)
    total, new = int(lengths.sum()), int(elements.born.size)
    searched, moved = _inserted(fibers, elements, lengths, came)
    return OutputTally(new, total - new + searched + moved, total + moved)


def _inserted(fibers: FiberVisits, elements: OutputCoordinates, lengths: Ints, came: Ints) -> tuple[int, int]:
    """Return how many elements visits read in their search, and how many they move as they insert; see
    `output.grow`."""
    coords, owner, span = fibers.level.coords, fibers.owner, fibers.level.span
    first_visit = np.cumsum(fibers.visits) - fibers.visits
    before = np.cumsum(came) - came
    size = before - before[first_visit][owner]
    lasts = coords[fibers.high - 1]
    peak = np.maximum.accumulate(owner * span + lasts)
    largest = np.append(0, peak[:-1]) - owner * span
    visit = np.flatnonzero((size > 0) & (coords[fibers.low] < largest))
    if not visit.size:
        return 0, 0
    fiber, size, last, largest = owner[visit], size[visit], lasts[visit], largest[visit]
    keys = np.repeat(np.arange(fibers.visits.size) * span, np.diff(elements.starts)) + elements.coords
    at = np.searchsorted(keys, fiber * span + last)
    again = elements.born[at] < visit
    there = (lengths - came)[visit]
    # If all existing elements recur, or lie below, no search is needed.
    below = np.where(last > largest, size, size - again)
    sought = np.flatnonzero((last <= largest) & (there < size))
    first = np.full(lengths.size, -1, dtype=np.int64)
    first[elements.born[::-1]] = np.arange(keys.size - 1, -1, -1)
    fresh = np.flatnonzero(came[visit])
    place = first[visit[fresh]]
    lower = size[fresh].copy()
    inside = np.flatnonzero(elements.coords[place] < largest[fresh])
    asked = np.concatenate((visit[sought], visit[fresh[inside]]))
    found = _earlier(fibers, elements, first_visit, asked, np.concatenate((at[sought], place[inside])))
    below[sought], lower[inside] = found[: sought.size], found[sought.size :]
    searched = int((below - (there - again)).sum())
    moved = int((size[fresh] - lower + came[visit[fresh]]).sum())
    return searched, moved


def _earlier(
    fibers: FiberVisits, elements: OutputCoordinates, first_visit: Ints, visit: Ints, place: Ints
) -> Ints:
    """Return, for each visit in question, how many elements of its fiber lie before a position and existed
    before the visit."""
    if not visit.size:
        return np.zeros(0, dtype=np.int64)
    owner = fibers.owner[visit]
    offset = np.repeat(first_visit.astype(np.int32), np.diff(elements.starts))
    top = int(fibers.visits.max())
    return count_below(elements.born - offset, elements.starts[owner], place, visit - first_visit[owner], top)
