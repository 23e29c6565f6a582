"""Caches that do not hold everything: which lines are fetched again under a replacement policy.

`lru` drops the line used least recently, `optimal` the line whose next use is furthest in the future.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush

import numpy as np

from polymodel.governor import look
from polymodel.sparse.fibertree import Bools, Ints
from polymodel.sparse.ranges import neighbours, reuse_distances, sums_before

LRU, OPTIMAL = "lru", "optimal"
# Events of lines that are worked on at a time.
_BLOCK = 2**18
# Uses that a stretch has at least, in which more lines are used than a cache holds.
_STRETCH = 2**12
_DOING = "finding the lines that a cache drops"


@dataclass(frozen=True, eq=False)
class Accesses:
    """Accesses of one kind of data. `line`: of each; `time`: sortable columns, the most important first;
    `write`: which ones write, None for none."""

    line: Ints
    time: tuple[Ints, ...]
    write: Bools | None = None

    def apart(self, instance: Ints, instances: int) -> Accesses:
        """The same where every instance has a cache of its own: one instance after the other, each with its
        own copies of the lines. `instance`: of each access."""
        return Accesses(self.line * instances + instance, (instance, *self.time))


@dataclass(frozen=True, eq=False)
class FiberAccesses:
    """Accesses to whole fibers, element after element, with nothing else in between. `fiber`: a number of
    each; `lengths`: its elements; `time`: as of `Accesses`. `per_line`: elements on a line, of every kind of
    data in the order in which those of an element are accessed."""

    fiber: Ints
    lengths: Ints
    time: tuple[Ints, ...]
    per_line: tuple[int, ...]

    @cached_property
    def lines(self) -> Ints:
        """Lines that each visit touches, of all kinds together."""
        result: Ints = np.sum([-(-self.lengths // p) for p in self.per_line], axis=0, dtype=np.int64)
        return result

    def misses(self, first: Bools, others: Ints, lines: int) -> list[int]:
        """Misses of each kind. `first`: visits to fibers for the first time; `others`: lines of other data
        that were used since the last visit.

        Between two accesses to a line on two visits lie all other lines of the fiber but those whose elements
        are all accessed while the line is being used.
        """
        sizes, which = np.unique(self.lengths, return_inverse=True)
        # A line misses if this many of the fiber's lines, or fewer, are not in between.
        spare = others + self.lines - 1 - lines
        result = []
        for kind, per_line in enumerate(self.per_line):
            size, inside = _enclosed(sizes, self.per_line, kind)
            most = int(inside.max(initial=0))
            table = np.zeros((sizes.size, most + 2), dtype=np.int64)
            np.add.at(table, (size, inside + 1), 1)
            table = np.cumsum(table, axis=1)
            met = table[which, np.clip(spare, -1, most) + 1]
            result.append(int(np.where(first, -(-self.lengths // per_line), met).sum()))
        return result


def _enclosed(sizes: Ints, per_line: Sequence[int], kind: int) -> tuple[Ints, Ints]:
    """For every line of one kind of data of a fiber of each size: the index of the size, and how many lines
    of other kinds are used only while it is. Of an element, the kinds are accessed in their order."""
    mine = per_line[kind]
    counts = -(-sizes // mine)
    size = np.repeat(np.arange(sizes.size), counts)
    at = np.arange(size.size) - np.repeat(np.cumsum(counts) - counts, counts)
    begin, total = at * mine, sizes[size]
    end = np.minimum(begin + mine, total)
    result = np.zeros(size.size, dtype=np.int64)
    for other, theirs in enumerate(per_line):
        if other > kind:  # first used with the line's first element at the earliest, last before its last one
            result += np.maximum((end - 1) // theirs - -(-begin // theirs), 0)
        elif other < kind:  # first used after the line's first element, last with its last one at the latest
            upto = np.where(end == total, -(-total // theirs), end // theirs)
            result += np.maximum(upto - 1 - begin // theirs, 0)
    return size, result


@dataclass(frozen=True)
class LinesMoved:
    """Lines of one kind of data that a cache fetches and writes back."""

    read: int
    write: int = 0


def lines_moved(
    accesses: Sequence[Accesses], lines: int, policy: str, visits: FiberAccesses | None = None
) -> list[LinesMoved]:
    """What moves of each kind of data when all share a cache of so many lines; the lines of kinds are
    distinct. Those of `visits`, at least as many lines as it has kinds, come last.

    A line that is not there is fetched, unless it is written; a line that was written is written back when it
    is dropped, or in the end.
    """
    uses, lines = _in_order(accesses, visits), max(lines, 1)
    reuse = _distances(uses, lines)
    replaced = _optimal if policy == OPTIMAL else _least_recently_used
    missed, more = replaced(uses, reuse, lines, visits)
    comes = np.zeros(uses.order.size, dtype=bool)
    comes[uses.place[missed]] = True
    result, begin = [], 0
    for one in accesses:
        end = begin + one.line.size
        result.append(_kind_moved(one, comes[begin:end], uses.turn[begin:end]))
        begin = end
    return result + [LinesMoved(n) for n in more]


def _kind_moved(accesses: Accesses, comes: Bools, turn: Ints) -> LinesMoved:
    """`comes`: at which accesses a line is not there; `turn`: orders them."""
    write = accesses.write
    if write is None:
        return LinesMoved(int(np.count_nonzero(comes)))
    order = np.lexsort((turn, accesses.line))
    # The first access to a line finds it not there, so a number stands for one stay of one line.
    stay = np.cumsum(comes[order])
    return LinesMoved(int(np.count_nonzero(comes & ~write)), int(np.unique(stay[write[order]]).size))


@dataclass(frozen=True, eq=False)
class Uses:
    """Uses of labels (lines, or whole fibers) in order of time, without those of a line used just before.

    `order`: of all accesses and then the visits, as they were given. `place`: of each use among these.
    `kind`: of its data, the number of kinds for a whole fiber. `size`: elements of a whole fiber, 0 for a
    line. `weight`: lines. `before`, `after`: see `ranges.neighbours`.
    """

    order: Ints
    place: Ints
    kind: Ints
    whole: Bools
    size: Ints
    weight: Ints
    before: Ints
    after: Ints

    @cached_property
    def turn(self) -> Ints:
        """When each access comes, among all."""
        result = np.empty(self.order.size, dtype=np.int64)
        result[self.order] = np.arange(self.order.size)
        return result


def _in_order(accesses: Sequence[Accesses], visits: FiberAccesses | None) -> Uses:
    kinds = len(accesses)
    offsets = np.cumsum([0, *(int(a.line.max(initial=-1)) + 1 for a in accesses)])
    label = [a.line + o for a, o in zip(accesses, offsets, strict=False)]
    kind = np.repeat(np.arange(kinds), [a.line.size for a in accesses])
    weight, size = [np.ones(kind.size, dtype=np.int64)], [np.zeros(kind.size, dtype=np.int64)]
    times = [a.time for a in accesses]
    if visits is not None:
        label.append(visits.fiber + offsets[-1])
        weight.append(visits.lines)
        size.append(visits.lengths)
        times.append(visits.time)
        kind = np.append(kind, np.full(visits.fiber.size, kinds))
    labels = np.concatenate(label)
    columns = [np.concatenate(c) for c in zip(*times, strict=True)]
    order = np.lexsort((kind, *reversed(columns)))
    labels, kind = labels[order], kind[order]
    # What is used again at once is there, unless it is a whole fiber.
    new = np.append(True, labels[1:] != labels[:-1])[: labels.size]
    moved = np.flatnonzero(new | (kind == kinds))
    kind, place = kind[moved], order[moved]
    weights, sizes = np.concatenate(weight)[place], np.concatenate(size)[place]
    return Uses(order, place, kind, kind == kinds, sizes, weights, *neighbours(labels[moved]))


@dataclass(frozen=True, eq=False)
class ReuseDistances:
    """What lies between each use of a label and the one before: the lines of other labels, each counted once
    (or more, where all fit or nothing of the label is left), and whether none of the label's lines can have
    been dropped by then.

    That holds for the furthest next use as for the least recent use: a line that is dropped, its own next use
    being further than those of all others in the cache, sees as many others used before that as the cache
    holds. So what hits with `lru` hits with `optimal`.
    """

    between: Ints
    kept: Bools


def _distances(uses: Uses, lines: int) -> ReuseDistances:
    sums = sums_before(uses.weight)
    between = sums[:-1] - sums[uses.before + 1]
    own = np.where(uses.whole, uses.weight - 1, 0)
    known = uses.before >= 0
    # Only where all that was used in between would not fit does it matter how much of it was the same.
    asked = np.flatnonzero(known & (between + own >= lines))
    asked = asked[~_gone(uses, asked, lines)]
    if asked.size:
        between[asked] = reuse_distances(uses.before, uses.after, uses.weight, asked)
    return ReuseDistances(between, known & (between + own < lines))


def _gone(uses: Uses, asked: Ints, lines: int) -> Bools:
    """Uses before which so much was used, in one of the stretches that the sequence is cut into, that nothing
    of their labels is left; most of those that miss are."""
    starts = [0]
    length, total = _STRETCH, uses.before.size
    while starts[-1] < total:
        start = starts[-1]
        new = uses.before[start : start + length] < start
        seen = np.cumsum(np.where(new, uses.weight[start : start + length], 0))
        if seen[-1] >= lines:
            ends = int(np.searchsorted(seen, lines)) + 1
            starts.append(start + max(ends, _STRETCH))
            length = max(2 * ends, _STRETCH)
        elif start + length >= total:
            break
        else:
            length *= 2
    edges = np.array([*starts, 2**62, 2**62], dtype=np.int64)
    # The first stretch that begins after the use before.
    first = np.searchsorted(edges, uses.before[asked], side="right")
    result: Bools = edges[np.minimum(first + 1, edges.size - 1)] <= asked
    return result


def _least_recently_used(
    uses: Uses, reuse: ReuseDistances, lines: int, visits: FiberAccesses | None
) -> tuple[Bools, list[int]]:
    """Uses of lines that miss, and misses of each kind of whole fibers.

    A line is still there unless as many others as the cache holds were used since its last use.
    """
    missed = ~(reuse.kept | uses.whole)
    if visits is None:
        return missed, []
    whole = np.flatnonzero(uses.whole)
    back = whole[np.argsort(uses.place[whole])]  # in the order of the visits as they were given
    return missed, visits.misses(uses.before[back] < 0, reuse.between[back], lines)


# Carried accesses come before all others.
_EARLIER = -(2**62)


class LeastRecentlyUsed:
    """A cache of inputs that drops the line used least recently, and is told of accesses some at a time.

    `kind`, `label`, `size`: of the lines and whole fibers that it may still hold something of, least recently
    used first, as of `Uses`. What lies further back than as many lines as it holds is gone.
    """

    def __init__(self, lines: int) -> None:
        self.lines = max(lines, 1)
        self.kind = self.label = self.size = np.zeros(0, dtype=np.int64)

    def misses(self, accesses: Sequence[Accesses], visits: FiberAccesses | None) -> list[int]:
        """Misses of each kind, as of `lines_moved`; lines and fibers have the same numbers every time, and
        nothing is written."""
        kinds = len(accesses)
        accesses = [self._after(a, kind) for kind, a in enumerate(accesses)]
        carried = np.bincount(self.kind, minlength=kinds)[:kinds]
        again: Ints = np.zeros(0, dtype=np.int64)
        if visits is not None:
            again = self.size[self.kind == kinds]
            visits = self._visits_after(visits, kinds)
        uses = _in_order(accesses, visits)
        reuse = _distances(uses, self.lines)
        missed, more = _least_recently_used(uses, reuse, self.lines, visits)
        # Each of what is carried is met for the first time, and was counted before.
        result = np.bincount(uses.kind[missed], minlength=kinds)[:kinds] - carried
        per_line = () if visits is None else visits.per_line
        whole = [n - int((-(-again // p)).sum()) for n, p in zip(more, per_line, strict=True)]
        labels = [a.line for a in accesses] + ([] if visits is None else [visits.fiber])
        self._keep(uses, np.concatenate(labels))
        return [*(int(n) for n in result), *whole]

    def _after(self, accesses: Accesses, kind: int) -> Accesses:
        mine = np.flatnonzero(self.kind == kind)
        time = self._times(mine, accesses.time)
        return Accesses(np.concatenate((self.label[mine], accesses.line)), time)

    def _visits_after(self, visits: FiberAccesses, kind: int) -> FiberAccesses:
        mine = np.flatnonzero(self.kind == kind)
        return FiberAccesses(
            np.concatenate((self.label[mine], visits.fiber)),
            np.concatenate((self.size[mine], visits.lengths)),
            self._times(mine, visits.time),
            visits.per_line,
        )

    def _times(self, mine: Ints, times: tuple[Ints, ...]) -> tuple[Ints, ...]:
        none = np.zeros(mine.size, dtype=np.int64)
        first, *others = times
        return (np.concatenate((mine + _EARLIER, first)), *(np.concatenate((none, t)) for t in others))

    def _keep(self, uses: Uses, labels: Ints) -> None:
        last = np.flatnonzero(uses.after == uses.after.size)
        weight = uses.weight[last]
        later = np.cumsum(weight[::-1])[::-1] - weight
        last = last[later < self.lines]
        self.kind, self.size = uses.kind[last], uses.size[last]
        self.label = labels[uses.place[last]]


def _optimal(
    uses: Uses, reuse: ReuseDistances, lines: int, visits: FiberAccesses | None
) -> tuple[Bools, list[int]]:
    """The same where the line with the furthest next use is dropped.

    Every drop depends on those before, so this goes line by line, but only through lines that come to or
    leave a use between which and the next one too much lies for them to be safe. A line's next use is told
    by a number that grows with time: the lines used before it. `gone`: at those numbers, lines that are not
    there when they are used.
    """
    stays = np.zeros(uses.kind.size, dtype=bool)
    again = np.flatnonzero(uses.after < uses.after.size)
    stays[again] = reuse.kept[uses.after[again]]
    asked = np.flatnonzero(~(reuse.kept & stays))
    begin = sums_before(uses.weight)
    gone = bytearray(int(begin[-1]))
    table = np.frombuffer(gone, dtype=np.uint8)
    per_line = (1,) if visits is None else visits.per_line
    sizes, shape = np.unique(uses.size[asked], return_inverse=True)
    steps = _steps(sizes, per_line)
    missed = np.zeros(uses.kind.size, dtype=bool)
    more = np.zeros(len(per_line), dtype=np.int64)
    cache = _FurthestNextUse(lines, gone)
    for part, which, step in steps.of(shape):
        use = asked[part][which]
        line = begin[use] + steps.line[step]
        following = uses.after[use]
        never = following == uses.after.size
        key = np.where(never, -1, begin[np.where(never, 0, following)] + steps.line[step])
        enters = steps.enters[step]
        table[line[enters & (uses.before[use] < 0)]] = 1
        acts = np.where(enters, ~reuse.kept[use], ~stays[use])
        cache.run(np.where(enters, line, -2 - key)[acts].tolist(), int(begin[asked[part.stop - 1]]))
        out = np.flatnonzero(enters & (table[line] != 0))
        whole = uses.whole[use[out]]
        missed[use[out[~whole]]] = True
        more += np.bincount(steps.kind[step[out[whole]]], minlength=more.size)
    return missed, [] if visits is None else [int(n) for n in more]


class _FurthestNextUse:
    """A cache of so many lines, of which those that are safe take places and are not looked at."""

    def __init__(self, lines: int, gone: bytearray) -> None:
        self.lines = lines
        self.gone = gone
        self.used = 0
        self.heap: list[int] = []

    def run(self, events: list[int], now: int) -> None:
        """`events`: the number of a use; -2 less the number of its next use where a line was used for now,
        -1 where it never is again. `now`: no later use is before."""
        used, lines, gone, heap = self.used, self.lines, self.gone, self.heap
        for event in events:
            if event >= 0:
                if gone[event]:
                    if used < lines:
                        used += 1
                    else:
                        gone[-2 - heappop(heap)] = 1
            elif event == -1:
                used -= 1
            else:
                heappush(heap, event)
        self.used = used
        # Lines that were used have come to lie at the end.
        if len(heap) > 2 * lines + _BLOCK:
            self.heap = [event for event in heap if -2 - event >= now]
            heapify(self.heap)


@dataclass(frozen=True, eq=False)
class _Steps:
    """What happens within a use, by shape, one shape after the other: a line is first used (`enters`), or
    was used for the last time before the next use. `line`: its place in the order of first uses; `kind`: of
    its data. `starts`: of each shape."""

    starts: Ints
    line: Ints
    enters: Bools
    kind: Ints

    def of(self, shape: Ints) -> Iterator[tuple[slice, Ints, Ints]]:
        """Uses of these shapes, some at a time: which ones, and for every step the use among them and it."""
        counts = np.diff(self.starts)[shape]
        ends = np.cumsum(counts)
        first = done = 0
        while first < shape.size:
            look(_DOING)
            stop = max(int(np.searchsorted(ends, done + _BLOCK, side="right")), first + 1)
            mine = counts[first:stop]
            which = np.repeat(np.arange(stop - first), mine)
            begin = self.starts[shape[first:stop]] - (ends[first:stop] - mine - done)
            yield slice(first, stop), which, begin[which] + np.arange(which.size)
            first, done = stop, int(ends[stop - 1])


def _steps(sizes: Ints, per_line: Sequence[int]) -> _Steps:
    """The steps of fibers of these sizes; of size 0: of a line by itself."""
    columns = [_lines_of(sizes, per_line, kind) for kind in range(len(per_line))]
    size, first, last, kind = (np.concatenate(c) for c in zip(*columns, strict=True))
    order = np.lexsort((first, size))
    size, first, last, kind = size[order], first[order], last[order], kind[order]
    line = np.arange(size.size) - np.searchsorted(size, size)
    step = np.lexsort((np.append(2 * first, 2 * last + 1), np.append(size, size)))
    starts = np.searchsorted(np.append(size, size)[step], np.arange(sizes.size + 1))
    return _Steps(starts, line[step % size.size], step < size.size, kind[step % size.size])


def _lines_of(sizes: Ints, per_line: Sequence[int], kind: int) -> tuple[Ints, Ints, Ints, Ints]:
    """For every line of one kind of data of fibers of some sizes: the index of the size, the first and the
    last time at which it is used, and the kind. Of an element, the kinds are used in their order."""
    mine, kinds = per_line[kind], len(per_line)
    counts = -(-sizes // mine)
    if kind == 0:
        counts = np.maximum(counts, 1)
    size = np.repeat(np.arange(sizes.size), counts)
    begin = (np.arange(size.size) - np.repeat(np.cumsum(counts) - counts, counts)) * mine
    end = np.maximum(np.minimum(begin + mine, sizes[size]), begin + 1)
    return size, begin * kinds + kind, (end - 1) * kinds + kind, np.full(size.size, kind, dtype=np.int64)
