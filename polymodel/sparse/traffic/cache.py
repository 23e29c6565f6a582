"""Caches that do not hold everything: which lines are fetched again under least-recently-used replacement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from polymodel.sparse.fibertree import Ints
from polymodel.sparse.traffic.nest import Nest
from polymodel.sparse.traffic.ranges import distinct_between


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
                size += np.bincount(
                    self.nest.loops[at + 1].parent, weights=below, minlength=size.size
                ).astype(np.int64)
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


def lru_misses(accesses: Sequence[Accesses], lines: int) -> list[int]:
    """Misses of each kind of data when all share a cache of so many lines; the lines of kinds are distinct.

    A line is still there unless as many others as the cache holds were used since its last use.
    """
    offsets = np.cumsum([0, *(int(a.line.max(initial=-1)) + 1 for a in accesses)])
    label = np.concatenate([a.line + o for a, o in zip(accesses, offsets, strict=False)])
    kind = np.repeat(np.arange(len(accesses)), [a.line.size for a in accesses])
    columns = [np.concatenate(c) for c in zip(*(a.time for a in accesses), strict=True)]
    order = np.lexsort((kind, *reversed(columns)))
    label, kind = label[order], kind[order]
    # What is used again at once is there.
    moved = np.flatnonzero(np.append(True, label[1:] != label[:-1])[: label.size])
    before, between = distinct_between(label[moved], lines)
    missed = (before < 0) | (between >= lines)
    return [int(n) for n in np.bincount(kind[moved][missed], minlength=len(accesses))]
