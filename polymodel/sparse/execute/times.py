"""Where and when work happens: distinct stamps of space and time over all activities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from polymodel.errors import Refused
from polymodel.sparse.execute.loops import Walk, Walked
from polymodel.sparse.execute.output import Bools
from polymodel.sparse.execute.plan import Plan
from polymodel.sparse.execute.records import Times
from polymodel.sparse.execute.tail import Tail
from polymodel.sparse.fibertree import Ints
from polymodel.spec.teaal.records import SpaceTime, Stamp

_NUMBERED = 2**62


@dataclass(frozen=True, eq=False)
class Keys:
    """Rows of small numbers as one number each."""

    values: Ints
    sizes: tuple[int, ...]

    @property
    def size(self) -> int:
        return prod(self.sizes)

    def rows(self, values: Ints) -> Ints:
        """The rows of some numbers."""
        found: list[Ints] = []
        count = values.size
        for size in reversed(self.sizes):
            values, last = np.divmod(values, size)
            found.append(last)
        return np.array(found[::-1], dtype=np.int64).reshape(len(self.sizes), count).T


def keys_of(columns: Sequence[Ints], rows: int) -> Keys:
    """Number rows, in their order; Refused where 64 bits do not reach."""
    sizes = tuple(int(c.max(initial=0)) + 1 for c in columns)
    if prod(sizes) > _NUMBERED:
        raise Refused("stamps of space and time have more combinations than 64 bits number")
    found = np.zeros(rows, dtype=np.int64)
    for column, size in zip(columns, sizes, strict=True):
        found = found * size + column
    return Keys(found, sizes)


def distinct(values: Ints, size: int) -> Ints:
    """The distinct numbers below `size`, ascending."""
    if size <= 8 * values.size + 1024:
        present = np.zeros(size, dtype=bool)
        present[values] = True
        return np.flatnonzero(present)
    ordered = np.sort(values)
    kept = np.ones(ordered.size, dtype=bool)
    kept[1:] = ordered[1:] != ordered[:-1]
    return ordered[kept]


def numbered(values: Ints, size: int) -> tuple[Ints, Ints]:
    """The distinct numbers below `size`, ascending, and which of them each one is."""
    if size <= 8 * values.size + 1024:
        present = np.zeros(size, dtype=bool)
        present[values] = True
        return np.flatnonzero(present), (np.cumsum(present) - 1)[values]
    return np.unique(values, return_inverse=True)


def pairs(first: Ints, first_size: int, second: Ints, second_size: int) -> Ints:
    """How many distinct `second` each `first` meets."""
    if first_size * second_size > _NUMBERED:
        _, second = numbered(second, second_size)
        second_size = int(second.max(initial=0)) + 1
    found = distinct(first * second_size + second, first_size * second_size)
    return np.bincount(found // second_size, minlength=first_size)


def measure(plan: Plan, walk: Walk, tail: Tail | None, spacetime: SpaceTime, computed: Bools | None) -> Times:
    """Stamp all activities. `computed`: which nodes of the last loop walked lead to some; None: all."""
    index = {rank.name: i for i, rank in enumerate(plan.order)}
    start = len(walk.loops)
    inner = [s for s in spacetime.space if index[s.rank] >= start]
    outer = [s for s in spacetime.space if index[s.rank] < start]

    def column(stamp: Stamp) -> Ints:
        at = index[stamp.rank]
        found = walk.spread(at, _stamps(walk.loops[at], stamp))
        return found if computed is None else found[computed]

    rows = walk.nodes if computed is None else int(computed.sum())
    space = keys_of([column(s) for s in outer], rows)
    time = keys_of([column(s) for s in spacetime.time], rows)
    stamps = distinct(time.values, time.size).size if rows else 0
    small, place = numbered(space.values, space.size)
    points = _Points(small, place, time.values, time.size)
    if tail is None:
        load, seen = points.load(None, None), points.stamps(None)
        space_rows = space.rows(small)
        leaves = None
    else:
        kind = tail.kind if computed is None else tail.kind[computed]
        below = _below(tail, [_tail_column(tail, index[s.rank] - start, s) for s in inner])
        space_rows, load, seen = points.with_tail(space, kind, below)
        leaves = below.leaves[kind]
    order = [*outer, *inner]
    chosen = [order.index(s) for s in spacetime.space]
    space_rows = space_rows[:, chosen]
    ascending = np.lexsort(tuple(space_rows[:, ::-1].T)) if space_rows.shape[1] else np.arange(load.size)
    space_rows, load, seen = space_rows[ascending], load[ascending], seen[ascending]
    by_first = _by_first(column(spacetime.space[0]), time, leaves) if spacetime.space and rows else {}
    total, met = int(load.sum()), int(seen.sum())
    return Times(
        tuple(s.rank for s in spacetime.space),
        tuple(s.rank for s in spacetime.time),
        stamps,
        int(seen.max(initial=0)),
        int(load.size),
        met,
        total - met,
        space_rows,
        load,
        seen,
        by_first,
    )


def _stamps(loop: Walked, stamp: Stamp) -> Ints:
    return loop.pos() if stamp.style == "pos" else loop.coords


def _by_first(first: Ints, time: Keys, leaves: Ints | None) -> dict[int, tuple[int, int]]:
    values, place = numbered(first, int(first.max(initial=0)) + 1)
    if leaves is None:
        load = np.bincount(place, minlength=values.size)
    else:
        load = _weighted(place, leaves, values.size)
    seen = pairs(place, int(values.size), time.values, time.size)
    rows = zip(values.tolist(), load.tolist(), seen.tolist(), strict=True)
    return {value: (activities, stamps) for value, activities, stamps in rows}


def _weighted(place: Ints, weights: Ints, size: int) -> Ints:
    """Sums of whole numbers by place, exact."""
    if weights.size and int(weights.max()) * weights.size < 2**53:
        return np.bincount(place, weights=weights, minlength=size).astype(np.int64)
    found = np.zeros(size, dtype=np.int64)
    np.add.at(found, place, weights)
    return found


@dataclass(frozen=True, eq=False)
class _Below:
    """Stamps of space below a node, by kind: `counts` (kinds x stamps) of activities, `rows` the stamps."""

    counts: Ints
    rows: Ints
    leaves: Ints


def _tail_column(tail: Tail, loop: int, stamp: Stamp) -> Ints:
    found = _stamps(tail.loops[loop], stamp)
    for inner in tail.loops[loop + 1 :]:
        found = found[inner.parent]
    return found


def _below(tail: Tail, columns: Sequence[Ints]) -> _Below:
    owner = tail.owner(len(tail.loops) - 1)
    keys = keys_of(columns, owner.size)
    values, place = np.unique(keys.values, return_inverse=True)
    counts = np.zeros((tail.kinds, values.size), dtype=np.int64)
    np.add.at(counts, (owner, place), 1)
    return _Below(counts, keys.rows(values), counts.sum(axis=1))


@dataclass(frozen=True, eq=False)
class _Points:
    """Nodes with their point in space (`place` among the keys `values`) and their time."""

    values: Ints
    place: Ints
    time: Ints
    times: int

    def load(self, kept: Bools | None, weights: Ints | None) -> Ints:
        place = self.place if kept is None else self.place[kept]
        if weights is None:
            return np.bincount(place, minlength=self.values.size)
        return _weighted(place, weights, int(self.values.size))

    def stamps(self, kept: Bools | None) -> Ints:
        place, time = (self.place, self.time) if kept is None else (self.place[kept], self.time[kept])
        return pairs(place, int(self.values.size), time, self.times)

    def with_tail(self, space: Keys, kind: Ints, below: _Below) -> tuple[Ints, Ints, Ints]:
        """Points of space with the stamps below the nodes: rows, activities and distinct times of each.

        Stamps that the same kinds have are met by the same nodes, so nodes are counted once for all of them.
        """
        rows: list[Ints] = []
        load: list[Ints] = []
        seen: list[Ints] = []
        outer = space.rows(self.values)
        patterns, which = np.unique(below.counts, axis=1, return_inverse=True)
        for p in range(patterns.shape[1]):
            counts = patterns[:, p]
            kept = (counts > 0)[kind]
            loads = self.load(kept, counts[kind[kept]])
            times = self.stamps(kept)
            there = np.flatnonzero(loads)
            for stamp in below.rows[which.ravel() == p]:
                rows.append(np.hstack((outer[there], np.broadcast_to(stamp, (there.size, stamp.size)))))
                load.append(loads[there])
                seen.append(times[there])
        if not rows:
            width = outer.shape[1] + below.rows.shape[1]
            return np.zeros((0, width), dtype=np.int64), *(np.zeros(0, dtype=np.int64),) * 2
        return np.vstack(rows), np.concatenate(load), np.concatenate(seen)
