"""Count lines fetched and written back, for buffers that hold everything and for caches that do not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from polymodel.errors import Refused
from polymodel.frozen import dataclass
from polymodel.integers import distinct_numbers
from polymodel.sparse.execute.merged import Merged
from polymodel.sparse.execute.times import keys_of, numbered
from polymodel.sparse.fibertree import Ints
from polymodel.sparse.traffic.nest import OutLevel, OutTree, WalkedEinsum
from polymodel.sparse.traffic.replacement import Accesses, FiberAccesses
from polymodel.spec.teaal.records import SpaceTime

# Lines fetched and written back by a buffer that holds everything since its last eviction.
#
# A fiber starts on a line boundary and an element lies on one line, so a fiber of n elements takes
# ceil(n / per_line) lines. A *window* is the time between two evictions of a buffet: one node of the loop it
# is evicted on. A line is fetched once per window unless the first thing that happens to it there is a write;
# it is written back once per window in which it was written.


def ceil_div(n: Ints, d: int) -> Ints:
    result: Ints = -(-n // d)
    return result


def pairs(first: Ints, second: Ints, span: int) -> Ints:
    """Encode pairs (first, second < span) as single numbers with the same order."""
    if first.size and (int(first.max()) + 1) * span > 2**62:
        message = "windows x lines are more than 64 bits number"
        raise Refused(message, "evict less often", code="number-too-large")
    return first * span + second


def output_lines(nest: WalkedEinsum, level: OutLevel, per_line: int, evict: int) -> tuple[int, int]:
    """Return the lines read and written while a loop populates the output. An existing element is read and
    then written, whether anything is added or not; a new one is written if it is kept. An element has the
    position that it takes in the finished fiber."""
    nodes, existed = level.visits
    if evict > level.loop:
        return int(existed.sum()), int(nodes.size)
    line, lines = level.lines(per_line)
    windows = nest.up(level.loop, evict - 1)[nodes]
    _, first = np.unique(pairs(windows, line[level.node[nodes]], lines + 1), return_index=True)
    return int(existed[first].sum()), int(first.size)


def output_subtree_lines(
    tree: OutTree, root: int, depth: int, per_line: int, evict: int, finest: int
) -> tuple[int, int]:
    """Return the lines of one rank of the output's subtrees that are fetched and stored as wholes.

    The content of a subtree is fetched before the first loop that enters it, once per window of the `finest`
    eviction. It is stored after the loops below the rank above its root, whether they entered it or not.
    """
    nest, levels = tree.nest, tree.levels
    above = levels[root - 1] if root else None
    outer = above.loop if above else -1
    inner = levels[root].loop - 1
    owner = np.zeros(nest.nodes(outer), dtype=np.int64) if above is None else above.node
    reads = np.arange(nest.nodes(inner), dtype=np.int64)
    entered = nest.up(inner, outer)
    fiber = owner[entered]
    reads = reads[fiber >= 0]
    span = levels[root].elements + owner.size + 2
    key = pairs(nest.up(inner, min(finest, inner + 1) - 1)[reads], fiber[reads], span)
    reads = reads[np.sort(np.unique(key, return_index=True)[1])]
    writes = np.flatnonzero(owner >= 0)
    window = np.concatenate((nest.up(inner, evict - 1)[reads], _stored_window(tree, outer, evict)[writes]))
    fibers = np.concatenate((fiber[reads], owner[writes]))
    time = np.concatenate((entered[reads] * 2, writes * 2 + 1))
    wrote = np.concatenate((np.zeros(reads.size, dtype=bool), np.ones(writes.size, dtype=bool)))
    born_read = nest.up(levels[depth].loop, inner)[levels[depth].born]
    born_write = nest.up(levels[depth].loop, outer)[levels[depth].born]
    event, inside = _fibers_below(tree, root, depth, fibers)
    held = np.empty(event.size, dtype=np.int64)
    by_read = ~wrote[event]
    held[by_read] = _born_before(levels[depth], born_read, inside[by_read], reads[event[by_read]])
    by_write = event[~by_read] - reads.size
    held[~by_read] = _born_before(levels[depth], born_write, inside[~by_read], writes[by_write] + 1)
    return _folded(window[event], inside, time[event], wrote[event], ceil_div(held, per_line))


def _stored_window(tree: OutTree, outer: int, evict: int) -> Ints:
    """Return the window that contains the store after each node of loop `outer`. It is the window of the last
    preceding innermost iteration of the output's loops, which may be an earlier one."""
    nest, last = tree.nest, tree.levels[-1].loop
    until = np.searchsorted(nest.up(last, outer), np.arange(nest.nodes(outer)), side="right") - 1
    windows = nest.up(last, evict - 1)
    own = nest.up(outer, min(evict, outer + 1) - 1)
    if not windows.size:
        return own
    result: Ints = np.where(until < 0, own, windows[np.maximum(until, 0)])
    return result


def _fibers_below(tree: OutTree, root: int, depth: int, fibers: Ints) -> tuple[Ints, Ints]:
    """Return all fibers of a rank in the subtrees under `fibers` of rank `root`: the subtree of each, and the
    fiber."""
    low, high = fibers, fibers + 1
    for at in range(root, depth):
        starts = tree.levels[at].starts
        low, high = starts[low], starts[high]
    counts = high - low
    event = np.repeat(np.arange(fibers.size, dtype=np.int64), counts)
    begin = np.cumsum(counts) - counts
    return event, low[event] + np.arange(event.size) - begin[event]


def _born_before(level: OutLevel, born: Ints, fiber: Ints, time: Ints) -> Ints:
    """Return how many elements of a fiber were inserted before a given time."""
    span = int(max(born.max(initial=0), time.max(initial=0))) + 2
    keys = np.sort(pairs(level.parent, born, span))
    return np.searchsorted(keys, pairs(fiber, time, span)) - level.starts[fiber]


def _folded(window: Ints, fiber: Ints, time: Ints, wrote: Ints, lines: Ints) -> tuple[int, int]:
    """Return the lines read and written. A read fetches the lines that the window does not hold; at the end
    of the window the written lines are written back."""
    order = np.lexsort((time, fiber, window))
    window, fiber, wrote, lines = window[order], fiber[order], wrote[order], lines[order]
    if not order.size:
        return 0, 0
    new = np.append(True, (window[1:] != window[:-1]) | (fiber[1:] != fiber[:-1]))
    held = np.append(0, lines[:-1])
    held[new] = 0
    read = np.where(wrote, 0, np.maximum(lines - held, 0))
    written = np.maximum.reduceat(np.where(wrote, lines, 0), np.flatnonzero(new))
    return int(read.sum()), int(written.sum())


# The temporal order in which lines of caches that do not hold everything are used.


class Clock:
    """The temporal order of accesses: nodes are entered in loop order, outer ones before the nodes inside."""

    def __init__(self, nest: WalkedEinsum) -> None:
        self.nest = nest

    @cached_property
    def sizes(self) -> list[Ints]:
        """For each loop, the number of nodes that each node contains, itself included."""
        result: list[Ints] = []
        below: Ints | None = None
        for at in range(len(self.nest.loops) - 1, -1, -1):
            size = np.ones(self.nest.nodes(at), dtype=np.int64)
            if below is not None:
                parent = self.nest.loops[at + 1].parent
                size += np.bincount(parent, weights=below, minlength=size.size).astype(np.int64)
            elif self.nest.merged is not None:
                size += self.nest.merged.lengths
            result.append(size)
            below = size
        return result[::-1]

    @cached_property
    def entered(self) -> list[Ints]:
        """For each loop, the number of nodes entered before each node, where the root has number 0."""
        result: list[Ints] = []
        above = np.zeros(1, dtype=np.int64)
        for walked, size in zip(self.nest.loops, self.sizes, strict=True):
            before = np.cumsum(size) - size
            first = np.searchsorted(walked.parent, np.arange(above.size))
            inside = before - before[first[walked.parent]] if size.size else before
            above = above[walked.parent] + 1 + inside
            result.append(above)
        return result

    def payloads(self, loop: int, slot: int, nodes: Ints, line: Ints) -> Accesses:
        """Return accesses to payloads, which happen when the nodes are entered."""
        zero = np.zeros(nodes.size, dtype=np.int64)
        return Accesses(line, (2 * self.entered[loop][nodes], zero, zero, zero + slot))

    def fibers(self, merged: Merged, per_line: Sequence[int], lanes: Lanes | None) -> FiberAccesses:
        """Return accesses to whole fibers by the merged loop, which happen once the outer node is entered;
        with `lanes`, on the instance that makes them."""
        nodes = np.flatnonzero(merged.lengths)
        zero = np.zeros(nodes.size, dtype=np.int64)
        time = (2 * self.entered[-1][nodes] + 1, zero - 2 * len(self.nest.loops), zero, zero)
        result = FiberAccesses(merged.fiber[nodes], merged.lengths[nodes], time, tuple(per_line))
        if lanes is None:
            return result
        instance = lanes.of(len(self.nest.loops) - 1, nodes)
        return replace(result, fiber=result.fiber * lanes.instances + instance, time=(instance, *time))

    def coordinates(self, loop: int, slot: int, visit: Ints, coords: Ints, line: Ints) -> Accesses:
        """Return accesses to coordinates in ascending order. A coordinate is accessed before the first node
        of the visit with at least this coordinate is entered; coordinates above all of its nodes are accessed
        after the last one."""
        walked = self.nest.loops[loop]
        span = int(max(walked.coords.max(initial=0), coords.max(initial=0))) + 1
        keys = walked.parent * span + walked.coords
        at = np.searchsorted(keys, visit * span + coords)
        inside = at < walked.nodes
        inside[inside] = walked.parent[at[inside]] == visit[inside]
        if loop:
            last = (self.entered[loop - 1] + self.sizes[loop - 1])[visit]
        else:
            last = np.full(visit.size, 1 + int(self.sizes[0].sum()), dtype=np.int64)
        time = last
        time[inside] = self.entered[loop][at[inside]]
        # The end of an inner visit precedes the next access of an outer one.
        inner_first = np.full(visit.size, -2 * loop)
        return Accesses(line, (2 * time - 1, inner_first, coords, np.full(visit.size, slot)))

    def populated(self, level: OutLevel, per_line: int) -> Accesses:
        """Return accesses to the output. An existing element is read once its node is entered and all inputs
        are read there; it is written when everything inside the node has ended, before the loop continues."""
        nodes, existed = level.visits
        line, _ = level.lines(per_line)
        entered, size = self.entered[level.loop], self.sizes[level.loop]
        reads = nodes[existed]
        zero, none = np.zeros(reads.size, dtype=np.int64), np.zeros(nodes.size, dtype=np.int64)
        columns = (
            (2 * entered[reads], 2 * (entered + size)[nodes] - 1),
            (zero, none - 2 * level.loop - 1),
            (zero, none),
            (zero + len(self.nest.plan.slots), none),
        )
        lines = line[level.node[np.concatenate((reads, nodes))]]
        write = np.arange(lines.size) >= reads.size
        return Accesses(lines, tuple(np.concatenate(c) for c in columns), write)


# Where every instance of a level has its own cache, each iteration uses one of them.


@dataclass(frozen=True, eq=False)
class Lanes:
    """Points of space assigned to instances cyclically: point i to instance i mod their number.

    `loop`: the innermost spatial loop. `instance`: that of each of its nodes.
    """

    nest: WalkedEinsum
    loop: int
    instance: Ints
    instances: int

    def of(self, loop: int, nodes: Ints) -> Ints:
        """Return the instance on which nodes of a loop run, which is the innermost spatial loop or one inside
        it."""
        return self.instance[self.nest.up(loop, self.loop)[nodes]]


def lanes_of(nest: WalkedEinsum, spacetime: SpaceTime | None, instances: int) -> Lanes | None:
    """Return the assignment to instances; None where nothing is spatial, or the spatial loops are not walked.

    With one spatial rank, its stamp (position or coordinate) is the number of the point. With several, the
    points that occur are numbered in the order of their stamps.
    """
    space = spacetime.space if spacetime is not None else ()
    loops = [nest.names.index(s.rank) for s in space if s.rank in nest.names[: len(nest.loops)]]
    if not space or len(loops) < len(space):
        return None
    deepest = max(loops)
    columns = []
    for stamp, loop in zip(space, loops, strict=True):
        walked = nest.loops[loop]
        own = walked.coords if stamp.style == "coord" else walked.pos()
        columns.append(own[nest.up(deepest, loop)])
    keys = keys_of(columns, nest.nodes(deepest))
    point = keys.values if len(space) == 1 else numbered(keys.values, keys.size)[1]
    return Lanes(nest, deepest, point % instances, instances)


def fullest(lines: Sequence[Ints], visits: FiberAccesses | None, instances: int) -> int:
    """Return the maximum number of distinct lines that pass through one instance. `lines`: for each kind of
    data, numbers that `Accesses.apart` made from line and instance; those of `visits` are made from fiber and
    instance."""
    result = np.zeros(instances, dtype=np.int64)
    for one in lines:
        result += np.bincount(distinct_numbers(one) % instances, minlength=instances)
    if visits is not None:
        fibers, one = np.unique(visits.fiber, return_index=True)
        np.add.at(result, fibers % instances, visits.lines[one])
    return int(result.max())
