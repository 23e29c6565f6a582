"""Simulate caches that do not hold everything: which lines are fetched again under a replacement policy.

`lru` drops the least recently used line, `optimal` the line whose next use is furthest in the future.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from functools import cached_property
from heapq import heapify, heappop, heappush, heapreplace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from polymodel.frozen import dataclass
from polymodel.governor import look
from polymodel.integers import distinct_numbers
from polymodel.sparse.fibertree import Bools, Ints
from polymodel.sparse.ranges import neighbours, reuse_distances, sums_before

LRU, OPTIMAL = "lru", "optimal"
# Events of lines that are processed at a time.
_BLOCK = 2**18
_DOING = "finding the lines that a cache drops"


@dataclass(frozen=True, eq=False)
class Accesses:
    """Accesses to one kind of data. `line`: that of each access. `time`: sortable columns, most significant
    first. `write`: the accesses that write, None if none does."""

    line: Ints
    time: tuple[Ints, ...]
    write: Bools | None = None

    def apart(self, instance: Ints, instances: int) -> Accesses:
        """Return the accesses for instances that each have their own cache: one instance after the other,
        each with its own copies of the lines. `instance`: that of each access."""
        return Accesses(self.line * instances + instance, (instance, *self.time))


def together(parts: Sequence[Accesses]) -> Accesses:
    """Concatenate reads of the same data at several occurrences."""
    if len(parts) == 1:
        return parts[0]
    times = zip(*(p.time for p in parts), strict=True)
    return Accesses(np.concatenate([p.line for p in parts]), tuple(np.concatenate(t) for t in times))


@dataclass(frozen=True, eq=False)
class FiberAccesses:
    """Accesses to whole fibers, element after element, without other accesses in between. `fiber`: the number
    of each fiber. `lengths`: its elements. `time`: as in `Accesses`. `per_line`: elements on a line, for
    every kind of data, in the order in which those of an element are accessed."""

    fiber: Ints
    lengths: Ints
    time: tuple[Ints, ...]
    per_line: tuple[int, ...]

    @cached_property
    def lines(self) -> Ints:
        """The number of lines that each visit touches, of all kinds together."""
        result: Ints = np.sum([-(-self.lengths // p) for p in self.per_line], axis=0, dtype=np.int64)
        return result

    def misses(self, first: Bools, others: Ints, lines: int) -> list[int]:
        """Return the misses of each kind. `first`: the first visits to fibers. `others`: the number of lines
        of other data used since the last visit.

        Between two accesses to a line in two visits lie all other lines of the fiber, except those whose
        elements are all accessed while the line is being used.
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
    """Return, for every line of one kind of data of a fiber of each size, the index of the size, and how many
    lines of other kinds are only used while this line is being used. The kinds of an element are accessed in
    order."""
    mine = per_line[kind]
    counts = -(-sizes // mine)
    size = np.repeat(np.arange(sizes.size), counts)
    at = np.arange(size.size) - np.repeat(np.cumsum(counts) - counts, counts)
    begin, total = at * mine, sizes[size]
    end = np.minimum(begin + mine, total)
    result = np.zeros(size.size, dtype=np.int64)
    for other, theirs in enumerate(per_line):
        if other > kind:  # used first with the line's first element or later, last before its last element
            result += np.maximum((end - 1) // theirs - -(-begin // theirs), 0)
        elif other < kind:  # used first after the line's first element, last with its last element or before
            upto = np.where(end == total, -(-total // theirs), end // theirs)
            result += np.maximum(upto - 1 - begin // theirs, 0)
    return size, result


@dataclass(frozen=True)
class LinesMoved:
    """The lines of one kind of data that a cache fetches and writes back."""

    read: int
    write: int = 0


def lines_moved(
    accesses: Sequence[Accesses], lines: int, policy: str, visits: FiberAccesses | None = None
) -> list[LinesMoved]:
    """Return the lines that move, for each kind of data, if all share a cache of `lines` lines. The kinds
    have distinct lines. The results of `visits`, which need at least as many lines as kinds, are last.

    A line that is absent is fetched, unless the access writes it. A line that was written is written back
    when it is dropped, or at the end.
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
    """Return the lines that move for one kind. `comes`: the accesses whose line is absent. `turn`: the
    temporal order of accesses."""
    write = accesses.write
    if write is None:
        return LinesMoved(int(np.count_nonzero(comes)))
    order = np.lexsort((turn, accesses.line))
    # The line is absent at its first access, so that each number identifies one residency of one line.
    stay = np.cumsum(comes[order])
    return LinesMoved(int(np.count_nonzero(comes & ~write)), int(distinct_numbers(stay[write[order]]).size))


@dataclass(frozen=True, eq=False)
class Uses:
    """Uses of labels (lines, or whole fibers) in temporal order, without immediate repetitions of the same
    line.

    `order`: the temporal order of all accesses, followed by the visits, as they were given. `place`: the
    index of each use among these. `kind`: that of its data, equal to the number of kinds for a whole fiber.
    `size`: elements of a whole fiber, 0 for a line. `weight`: lines. `before`, `after`: see
    `ranges.neighbours`.
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
        """The position of each access in the temporal order of all accesses."""
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
    order = np.argsort(columns[0], kind="stable")
    if (np.diff(columns[0][order]) == 0).any():
        order = np.lexsort((kind, *reversed(columns)))
    labels, kind = labels[order], kind[order]
    # A label that is used again immediately is a hit, unless it is a whole fiber.
    new = np.append(True, labels[1:] != labels[:-1])[: labels.size]
    moved = np.flatnonzero(new | (kind == kinds))
    kind, place = kind[moved], order[moved]
    weights, sizes = np.concatenate(weight)[place], np.concatenate(size)[place]
    return Uses(order, place, kind, kind == kinds, sizes, weights, *neighbours(labels[moved]))


@dataclass(frozen=True, eq=False)
class ReuseDistances:
    """Reuse distances: the number of distinct other lines between each use of a label and the previous one
    (`between`; it is an upper bound where all fit, or nothing of the label is left), and whether none of the
    label's lines can have been dropped (`kept`).

    This holds for optimal replacement as well as for LRU. A line is dropped if its next use is further than
    those of all others in the cache, so that as many other lines as the cache holds are used before it.
    Therefore every hit of `lru` is a hit of `optimal`.
    """

    between: Ints
    kept: Bools


def _distances(uses: Uses, lines: int) -> ReuseDistances:
    sums = sums_before(uses.weight)
    between = sums[:-1] - sums[uses.before + 1]
    own = np.where(uses.whole, uses.weight - 1, 0)
    known = uses.before >= 0
    # The number of distinct lines only matters where all lines used in between would not fit.
    asked = np.flatnonzero(known & (between + own >= lines))
    between[asked] = reuse_distances(uses.before, uses.after, uses.weight, asked, lines - own[asked], lines)
    return ReuseDistances(between, known & (between + own < lines))


def _least_recently_used(
    uses: Uses, reuse: ReuseDistances, lines: int, visits: FiberAccesses | None
) -> tuple[Bools, list[int]]:
    """Return the uses of lines that miss, and the misses of each kind of whole fibers.

    A line is still in the cache unless at least as many other lines as the cache holds were used since its
    last use.
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
    """A cache of inputs with LRU replacement that processes accesses in several batches.

    `kind`, `label`, `size`: those of the lines and whole fibers that may still be in the cache, least
    recently used first, as in `Uses`. Lines that are preceded by as many lines as the cache holds are no
    longer in it.
    """

    def __init__(self, lines: int) -> None:
        self.lines = max(lines, 1)
        self.kind = self.label = self.size = np.zeros(0, dtype=np.int64)

    def misses(self, accesses: Sequence[Accesses], visits: FiberAccesses | None) -> list[int]:
        """Return the misses of each kind, in the order of `lines_moved`. Lines and fibers keep their numbers
        between batches, and nothing is written."""
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
        # Each line of earlier batches is a miss at the start of this batch, and was counted before.
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
    """Return the same as `_least_recently_used`, for replacement of the line with the furthest next use.

    Every replacement depends on the earlier ones, so that uses are processed one by one, but only those that
    fetch or leave lines whose reuse distance is too long to be certain hits. The next use of a line is
    identified by a number that grows with time: the number of lines used before it. `gone`: indexed by these
    numbers, lines that are absent when they are used.
    """
    stays = np.zeros(uses.kind.size, dtype=bool)
    again = np.flatnonzero(uses.after < uses.after.size)
    stays[again] = reuse.kept[uses.after[again]]
    asked = np.flatnonzero(~(reuse.kept & stays))
    begin = sums_before(uses.weight)
    sizes, shape = np.unique(uses.size[asked], return_inverse=True)
    steps = _steps(sizes, (1,) if visits is None else visits.per_line)
    cache = _FurthestNextUse(lines, begin, steps)
    for at in range(0, asked.size, _BLOCK):
        look(_DOING)
        some = asked[at : at + _BLOCK]
        cache.run(some, shape[at : at + _BLOCK], uses, reuse.kept[some], stays[some])
    gone = np.frombuffer(cache.gone, dtype=np.uint8)
    missed = np.zeros(uses.kind.size, dtype=bool)
    single = asked[~uses.whole[asked]]
    missed[single] = gone[begin[single]] != 0
    if visits is None:
        return missed, []
    back = np.flatnonzero(uses.whole[asked])
    return missed, steps.missed(gone, begin[asked[back]], shape[back], len(visits.per_line))


class _FurthestNextUse:
    """A cache with optimal replacement, in which certain hits occupy lines but are not tracked.

    `used`: occupied lines. `heap`: the lines in the cache, as runs of consecutive numbers of their next uses,
    furthest first; the end and the length of each run are encoded as one negative number. Entries whose use
    has passed are at the end. `known`: memoised results of uses that drop lines of their own.
    """

    def __init__(self, lines: int, begin: Ints, steps: _UseSteps) -> None:
        self.lines, self.begin, self.steps = lines, begin, steps
        self.gone = bytearray(int(begin[-1]))
        self.used = 0
        self.heap: list[int] = []
        self.known: dict[tuple[int, int, bool, bytes], _Left] = {}
        # The number of bits of a run's length.
        self.bits = int(np.diff(begin).max(initial=1)).bit_length()

    def run(self, asked: Ints, shape: Ints, uses: Uses, kept: Bools, stays: Bools) -> None:
        """Process some uses with these shapes. The lines of uses that are `kept` are all in the cache. For
        uses that `stays` marks, the next use will find all lines, so that they are not in the heap until
        then."""
        begin, bits = self.begin, self.bits
        following = uses.after[asked]
        never = following == uses.after.size
        number, weight = begin[asked], uses.weight[asked]
        following = np.where(never, -1, begin[np.where(never, 0, following)])
        runs = -((following + weight << bits) | weight)
        known = uses.before[asked] >= 0
        what = np.where(kept, 0, np.where(stays, 1, 2))
        gone, lines, heap = self.gone, self.lines, self.heap
        columns = (what, known, number, weight, following, runs, shape)
        for how, again, first, count, after, run, form in zip(*(c.tolist() for c in columns), strict=True):
            if how:
                if again:
                    new = gone.count(1, first, first + count)
                else:
                    new = count
                    gone[first : first + count] = b"\x01" * count
                short = self.used + new - lines
                if short > 0:
                    if how == 1 or count == 1:
                        self._drop(short, -1)
                    elif self._leaves_some_behind(first, count, after, short, form):
                        continue
                self.used += new
            if how != 1:
                if after < 0:
                    self.used -= count
                else:
                    heappush(heap, run)
        # Runs of lines that were already used are at the end of the order.
        if len(heap) > 2 * lines + _BLOCK:
            now = -(int(number[-1]) << bits)
            heap[:] = [run for run in heap if run < now]
            heapify(heap)

    def _leaves_some_behind(self, first: int, count: int, after: int, short: int, form: int) -> bool:
        """Process a use of several lines with more absent lines than free ones. Return False if enough lines
        have later next uses than its own, which are dropped. Otherwise process it completely, including lines
        of its own that it drops, and return True."""
        if count > self.lines:
            self._one_by_one(first, after, form)
            return True
        if after >= 0 and self._drop(short, after) == short:
            return False
        # All remaining lines are used before this use's own next use.
        missing = bytes(self.gone[first : first + count])
        key = (form, self.lines - self.used, after < 0, missing)
        found = self.known.get(key)
        if found is None:
            if len(self.known) >= _BLOCK:
                self.known.clear()
            found = self.known[key] = _alone(self.steps.listed(form), *key[1:])
        self._drop(found.dropped, -1)
        self.used = self.lines - found.free
        if after >= 0:
            for start, end in found.kept:
                heappush(self.heap, -((after + end << self.bits) | end - start))
            for start, end in found.gone:
                self.gone[after + start : after + end] = b"\x01" * (end - start)
        return True

    def _drop(self, number: int, least: int) -> int:
        """Drop `number` lines with the furthest next uses, limited to those whose next uses are further than
        `least`. Return how many were dropped."""
        heap, bits, gone = self.heap, self.bits, self.gone
        mask, left = (1 << bits) - 1, number
        while left and heap:
            run = -heap[0]
            end, length = run >> bits, run & mask
            if end <= least:
                break
            if length > left:
                heapreplace(heap, -((end - left << bits) | (length - left)))
                length = left
            else:
                heappop(heap)
            gone[end - length : end] = b"\x01" * length
            left -= length
        self.used -= number - left
        return number - left

    def _one_by_one(self, first: int, after: int, form: int) -> None:
        """Process a use of several lines line by line, where it drops lines that it used itself."""
        for line, enters in self.steps.listed(form):
            if not enters:
                if after < 0:
                    self.used -= 1
                else:
                    heappush(self.heap, -((after + line + 1 << self.bits) | 1))
            elif self.gone[first + line]:
                if self.used == self.lines:
                    self._drop(1, -1)
                self.used += 1


@dataclass(frozen=True)
class _Left:
    """The effect of a use: the number of lines of others that it drops, the free lines afterwards, and the
    runs of its own lines that are in the cache and that are not."""

    dropped: int
    free: int
    kept: tuple[tuple[int, int], ...]
    gone: tuple[tuple[int, int], ...]


def _alone(steps: Sequence[tuple[int, bool]], free: int, never: bool, missing: bytes) -> _Left:
    """Return the effect of a use in a cache with `free` free lines, where all other lines are used before its
    own lines are used again. `never`: its own lines are not used again. `missing`: its absent lines."""
    own: list[int] = []
    dropped = 0
    there = [True] * len(missing)
    for line, enters in steps:
        if not enters:
            if never:
                free += 1
            else:
                heappush(own, -line)
        elif missing[line]:
            if free:
                free -= 1
            elif own:
                there[-heappop(own)] = False
            else:
                dropped += 1
    edges = [0, *(i for i in range(1, len(there)) if there[i] != there[i - 1]), len(there)]
    runs = list(pairwise(edges))
    kept, gone = (tuple(r for r in runs if there[r[0]] == is_there) for is_there in (True, False))
    return _Left(dropped, free, kept, gone)


@dataclass(frozen=True, eq=False)
class _UseSteps:
    """The steps of a use for each shape, one shape after the other: a line is first used (`enters`), or was
    used for the last time in this use. `line`: its position in the order of first uses. `kind`: that of its
    data. `starts`: the first step of each shape."""

    starts: Ints
    line: Ints
    enters: Bools
    kind: Ints
    lists: dict[int, list[tuple[int, bool]]] = field(default_factory=dict)

    def listed(self, shape: int) -> list[tuple[int, bool]]:
        """Return the line of every step of one shape, and whether it enters."""
        if shape not in self.lists:
            one = slice(int(self.starts[shape]), int(self.starts[shape + 1]))
            self.lists[shape] = list(zip(self.line[one].tolist(), self.enters[one].tolist(), strict=True))
        return self.lists[shape]

    def missed(self, gone: NDArray[np.uint8], begin: Ints, shape: Ints, kinds: int) -> list[int]:
        """Return the absent lines of each kind, for uses with these shapes that start at positions `begin` of
        `gone`."""
        entering = np.flatnonzero(self.enters)
        line, kind = self.line[entering], self.kind[entering]
        starts = np.searchsorted(entering, self.starts)
        result = np.zeros(kinds, dtype=np.int64)
        for at in range(0, shape.size, _BLOCK):
            look(_DOING)
            mine, own = shape[at : at + _BLOCK], begin[at : at + _BLOCK]
            counts = np.diff(starts)[mine]
            which = np.repeat(np.arange(mine.size), counts)
            step = (starts[mine] - sums_before(counts)[:-1])[which] + np.arange(which.size)
            result += np.bincount(kind[step[gone[own[which] + line[step]] != 0]], minlength=kinds)
        return [int(n) for n in result]


def _steps(sizes: Ints, per_line: Sequence[int]) -> _UseSteps:
    """Return the steps of fibers with these sizes; size 0 is a single line."""
    columns = [_lines_of(sizes, per_line, kind) for kind in range(len(per_line))]
    size, first, last, kind = (np.concatenate(c) for c in zip(*columns, strict=True))
    order = np.lexsort((first, size))
    size, first, last, kind = size[order], first[order], last[order], kind[order]
    line = np.arange(size.size) - np.searchsorted(size, size)
    step = np.lexsort((np.append(2 * first, 2 * last + 1), np.append(size, size)))
    starts = np.searchsorted(np.append(size, size)[step], np.arange(sizes.size + 1))
    return _UseSteps(starts, line[step % size.size], step < size.size, kind[step % size.size])


def _lines_of(sizes: Ints, per_line: Sequence[int], kind: int) -> tuple[Ints, Ints, Ints, Ints]:
    """Return, for every line of one kind of data of fibers with these sizes, the index of the size, the first
    and the last time at which it is used, and the kind. The kinds of an element are used in order."""
    mine, kinds = per_line[kind], len(per_line)
    counts = -(-sizes // mine)
    if kind == 0:
        counts = np.maximum(counts, 1)
    size = np.repeat(np.arange(sizes.size), counts)
    begin = (np.arange(size.size) - np.repeat(np.cumsum(counts) - counts, counts)) * mine
    end = np.maximum(np.minimum(begin + mine, sizes[size]), begin + 1)
    return size, begin * kinds + kind, (end - 1) * kinds + kind, np.full(size.size, kind, dtype=np.int64)
