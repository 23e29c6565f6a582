"""Caches that do not hold everything: which lines are fetched again under least-recently-used replacement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from polymodel.sparse.execute.merged import Merged
from polymodel.sparse.fibertree import Bools, Ints
from polymodel.sparse.ranges import distinct_between, neighbours, sums_before
from polymodel.sparse.traffic.nest import Nest

if TYPE_CHECKING:
    from polymodel.sparse.traffic.lanes import Lanes


@dataclass(frozen=True, eq=False)
class Accesses:
    """Accesses of one kind of data. `line`: of each; `time`: sortable columns, the most important first."""

    line: Ints
    time: tuple[Ints, ...]

    def apart(self, instance: Ints, instances: int) -> Accesses:
        """The same where every instance has a cache of its own: one instance after the other, each with its
        own copies of the lines. `instance`: of each access."""
        return Accesses(self.line * instances + instance, (instance, *self.time))


class Clock:
    """When things happen: nodes are entered in loop order, outer ones before what is in them."""

    def __init__(self, nest: Nest) -> None:
        self.nest = nest

    @cached_property
    def sizes(self) -> list[Ints]:
        """Per loop, how many nodes lie in each node, itself included."""
        found: list[Ints] = []
        below: Ints | None = None
        for at in range(len(self.nest.loops) - 1, -1, -1):
            size = np.ones(self.nest.nodes(at), dtype=np.int64)
            if below is not None:
                parent = self.nest.loops[at + 1].parent
                size += np.bincount(parent, weights=below, minlength=size.size).astype(np.int64)
            elif self.nest.merged is not None:
                size += self.nest.merged.lengths
            found.append(size)
            below = size
        return found[::-1]

    @cached_property
    def entered(self) -> list[Ints]:
        """Per loop, the count of nodes entered when each node is, the root being number 0."""
        found: list[Ints] = []
        above = np.zeros(1, dtype=np.int64)
        for walked, size in zip(self.nest.loops, self.sizes, strict=True):
            before = np.cumsum(size) - size
            first = np.searchsorted(walked.parent, np.arange(above.size))
            inside = before - before[first[walked.parent]] if size.size else before
            above = above[walked.parent] + 1 + inside
            found.append(above)
        return found

    def payloads(self, loop: int, slot: int, nodes: Ints, line: Ints) -> Accesses:
        """Payloads are accessed when the nodes are entered."""
        zero = np.zeros(nodes.size, dtype=np.int64)
        return Accesses(line, (2 * self.entered[loop][nodes], zero, zero, zero + slot))

    def fibers(self, merged: Merged, per_line: Sequence[int], lanes: Lanes | None) -> Visits:
        """Fibers are read by the loop that is merged once the node above is entered; with `lanes`, on the
        instance that reads them."""
        nodes = np.flatnonzero(merged.lengths)
        zero = np.zeros(nodes.size, dtype=np.int64)
        time = (2 * self.entered[-1][nodes] + 1, zero - len(self.nest.loops), zero, zero)
        found = Visits(merged.fiber[nodes], merged.lengths[nodes], time, tuple(per_line))
        if lanes is None:
            return found
        instance = lanes.of(len(self.nest.loops) - 1, nodes)
        return replace(found, fiber=found.fiber * lanes.instances + instance, time=(instance, *time))

    def coordinates(self, loop: int, slot: int, visit: Ints, coords: Ints, line: Ints) -> Accesses:
        """Coordinates are accessed before the first node of the visit that is not below them is entered, in
        ascending order; those above all of its nodes after the last one."""
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
        # What ends an inner visit comes before what an outer one does next.
        return Accesses(line, (2 * time - 1, np.full(visit.size, -loop), coords, np.full(visit.size, slot)))


@dataclass(frozen=True, eq=False)
class Visits:
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
        found: Ints = np.sum([-(-self.lengths // p) for p in self.per_line], axis=0, dtype=np.int64)
        return found

    def misses(self, first: Bools, others: Ints, lines: int) -> list[int]:
        """Misses of each kind. `first`: visits to fibers for the first time; `others`: lines of other data
        that were used since the last visit.

        Between two accesses to a line on two visits lie all other lines of the fiber but those whose elements
        are all accessed while the line is being used.
        """
        sizes, which = np.unique(self.lengths, return_inverse=True)
        # A line misses if this many of the fiber's lines, or fewer, are not in between.
        spare = others + self.lines - 1 - lines
        found = []
        for kind, per_line in enumerate(self.per_line):
            size, inside = _enclosed(sizes, self.per_line, kind)
            most = int(inside.max(initial=0))
            table = np.zeros((sizes.size, most + 2), dtype=np.int64)
            np.add.at(table, (size, inside + 1), 1)
            table = np.cumsum(table, axis=1)
            met = table[which, np.clip(spare, -1, most) + 1]
            found.append(int(np.where(first, -(-self.lengths // per_line), met).sum()))
        return found


def _enclosed(sizes: Ints, per_line: Sequence[int], kind: int) -> tuple[Ints, Ints]:
    """For every line of one kind of data of a fiber of each size: the index of the size, and how many lines
    of other kinds are used only while it is. Of an element, the kinds are accessed in their order."""
    mine = per_line[kind]
    counts = -(-sizes // mine)
    size = np.repeat(np.arange(sizes.size), counts)
    at = np.arange(size.size) - np.repeat(np.cumsum(counts) - counts, counts)
    begin, total = at * mine, sizes[size]
    end = np.minimum(begin + mine, total)
    found = np.zeros(size.size, dtype=np.int64)
    for other, theirs in enumerate(per_line):
        if other > kind:  # first used with the line's first element at the earliest, last before its last one
            found += np.maximum((end - 1) // theirs - -(-begin // theirs), 0)
        elif other < kind:  # first used after the line's first element, last with its last one at the latest
            upto = np.where(end == total, -(-total // theirs), end // theirs)
            found += np.maximum(upto - 1 - begin // theirs, 0)
    return size, found


def lru_misses(accesses: Sequence[Accesses], lines: int, visits: Visits | None = None) -> list[int]:
    """Misses of each kind of data when all share a cache of so many lines; the lines of kinds are distinct.
    Those of `visits`, at least as many lines as it has kinds, come last.

    A line is still there unless as many others as the cache holds were used since its last use.
    """
    offsets = np.cumsum([0, *(int(a.line.max(initial=-1)) + 1 for a in accesses)])
    label = [a.line + o for a, o in zip(accesses, offsets, strict=False)]
    kind = np.repeat(np.arange(len(accesses)), [a.line.size for a in accesses])
    weight = [np.ones(kind.size, dtype=np.int64)]
    times = [a.time for a in accesses]
    if visits is not None:
        label.append(visits.fiber + offsets[-1])
        weight.append(visits.lines)
        times.append(visits.time)
        kind = np.append(kind, np.full(visits.fiber.size, len(accesses)))
    labels, weights = np.concatenate(label), np.concatenate(weight)
    columns = [np.concatenate(c) for c in zip(*times, strict=True)]
    order = np.lexsort((kind, *reversed(columns)))
    labels, kind, weights = labels[order], kind[order], weights[order]
    # What is used again at once is there, unless it is a whole fiber.
    new = np.append(True, labels[1:] != labels[:-1])[: labels.size]
    moved = np.flatnonzero(new | (kind == len(accesses)))
    labels, kind, weights = labels[moved], kind[moved], weights[moved]
    before, after = neighbours(labels)
    sums = sums_before(weights)
    between = sums[:-1] - sums[before + 1]
    own = np.where(kind == len(accesses), weights - 1, 0)
    # Only where all that was used in between would not fit does it matter how much of it was the same.
    asked = np.flatnonzero((before >= 0) & (between + own >= lines))
    between[asked] = distinct_between(before, after, weights, asked)
    missed = (before < 0) | (between >= lines)
    missed &= kind < len(accesses)
    found = [int(n) for n in np.bincount(kind[missed], minlength=len(accesses))]
    if visits is not None:
        whole = kind == len(accesses)
        back = np.argsort(order[moved[whole]])  # in the order of the visits as they were given
        found += visits.misses((before < 0)[whole][back], between[whole][back], lines)
    return found
