"""Determine when and where work is done: distinct stamps of space and time over all activities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from polymodel.errors import Refused
from polymodel.frozen import dataclass
from polymodel.sparse.execute.dense_ranks import Tail
from polymodel.sparse.execute.loops import LoopWalk, Walked
from polymodel.sparse.execute.merged import Merged
from polymodel.sparse.execute.output import Bools
from polymodel.sparse.execute.plan import Plan
from polymodel.sparse.execute.records import ExecutionTimes
from polymodel.sparse.execute.streamed import Streamed
from polymodel.sparse.fibertree import Ints, blocks
from polymodel.spec.teaal.records import SpaceTime, Stamp

_NUMBERED = 2**62


@dataclass(frozen=True, eq=False)
class Keys:
    """Rows of small numbers, encoded as one number each."""

    values: Ints
    sizes: tuple[int, ...]

    @property
    def size(self) -> int:
        return prod(self.sizes)

    def rows(self, values: Ints) -> Ints:
        """Decode the rows of some numbers."""
        result: list[Ints] = []
        count = values.size
        for size in reversed(self.sizes):
            values, last = np.divmod(values, size)
            result.append(last)
        return np.array(result[::-1], dtype=np.int64).reshape(len(self.sizes), count).T


def keys_of(columns: Sequence[Ints], rows: int) -> Keys:
    """Number rows in their order. Raises Refused if 64 bits are too few."""
    sizes = tuple(int(c.max(initial=0)) + 1 for c in columns)
    if prod(sizes) > _NUMBERED:
        message = "stamps of space and time have more combinations than 64 bits number"
        raise Refused(message, code="number-too-large")
    result = np.zeros(rows, dtype=np.int64)
    for column, size in zip(columns, sizes, strict=True):
        result = result * size + column
    return Keys(result, sizes)


def distinct(values: Ints, size: int) -> Ints:
    """Return the distinct numbers below `size`, ascending."""
    if size <= 8 * values.size + 1024:
        present = np.zeros(size, dtype=bool)
        present[values] = True
        return np.flatnonzero(present)
    ordered = np.sort(values)
    kept = np.ones(ordered.size, dtype=bool)
    kept[1:] = ordered[1:] != ordered[:-1]
    return ordered[kept]


def how_many(values: Ints, size: int) -> int:
    """Return how many distinct numbers below `size` there are."""
    if size <= 8 * values.size + 1024:
        return int(distinct(values, size).size)
    ordered = np.sort(values)
    return 1 + int(np.count_nonzero(ordered[1:] != ordered[:-1]))


def numbered(values: Ints, size: int) -> tuple[Ints, Ints]:
    """Return the distinct numbers below `size`, ascending, and the index of each value among them."""
    if size <= 8 * values.size + 1024:
        present = np.zeros(size, dtype=bool)
        present[values] = True
        if present.all():
            return np.arange(size, dtype=np.int64), values
        return np.flatnonzero(present), (np.cumsum(present) - 1)[values]
    return np.unique(values, return_inverse=True)


def pairs(first: Ints, first_size: int, second: Ints, second_size: int) -> Ints:
    """Return how many distinct values of `second` occur with each value of `first`."""
    if first_size * second_size > _NUMBERED:
        _, second = numbered(second, second_size)
        second_size = int(second.max(initial=0)) + 1
    result = distinct(first * second_size + second, first_size * second_size)
    return np.bincount(result // second_size, minlength=first_size)


def measure(
    plan: Plan, walk: LoopWalk, tail: Tail | None, spacetime: SpaceTime, computed: Bools | None
) -> ExecutionTimes:
    """Stamp all activities. `computed`: the nodes of the last loop walked that lead to an activity; None:
    all."""
    index = {rank.name: i for i, rank in enumerate(plan.order)}
    start = len(walk.loops)
    inner = [s for s in spacetime.space if index[s.rank] >= start]
    outer = [s for s in spacetime.space if index[s.rank] < start]
    rows = walk.nodes if computed is None else int(computed.sum())
    space = walked_keys(walk, index, outer, computed)
    time = walked_keys(walk, index, spacetime.time, computed)
    stamps = how_many(time.values, time.size) if rows else 0
    small, place = numbered(space.values, space.size)
    # A node is identified by the stamps of it and of its outer nodes, if all of them have stamps.
    separate = len({s.rank for s in (*outer, *spacetime.time)}) == start
    points = _TimedNodes(small, place, time.values, time.size, separate)
    if tail is None:
        load, seen = points.load(None, None), points.stamps(None)
        space_rows = space.rows(small)
        leaves = None
    else:
        kind = tail.kind if computed is None or tail.kinds == 1 else tail.kind[computed]
        below = _below(tail, [_tail_column(tail, index[s.rank] - start, s) for s in inner])
        space_rows, load, seen = points.with_tail(space, kind, below)
        leaves = below.leaves if tail.kinds == 1 else below.leaves[kind]
    order = [*outer, *inner]
    chosen = [order.index(s) for s in spacetime.space]
    space_rows = space_rows[:, chosen]
    ascending = np.lexsort(tuple(space_rows[:, ::-1].T)) if space_rows.shape[1] else np.arange(load.size)
    space_rows, load, seen = space_rows[ascending], load[ascending], seen[ascending]
    by_first = {}
    if spacetime.space and rows:
        if outer == list(spacetime.space[:1]):
            first = points, small
        else:
            one = walked_keys(walk, index, spacetime.space[:1], computed)
            numbers, which = numbered(one.values, one.size)
            first = _TimedNodes(numbers, which, time.values, time.size), numbers
        by_first = _by_first(*first, leaves)
    total, met = int(load.sum()), int(seen.sum())
    return ExecutionTimes(
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


def walked_keys(
    walk: LoopWalk, index: Mapping[str, int], stamps: Sequence[Stamp], computed: Bools | None
) -> Keys:
    """Return the stamps of the nodes of the last loop, encoded as one number each, from the outermost loop
    inwards."""
    columns = [_stamps(walk.loops[index[s.rank]], s) for s in stamps]
    sizes = tuple(int(c.max(initial=0)) + 1 for c in columns)
    if prod(sizes) > _NUMBERED:
        message = "stamps of space and time have more combinations than 64 bits number"
        raise Refused(message, code="number-too-large")
    strides = [prod(sizes[i + 1 :]) for i in range(len(sizes))]
    result: Ints | None = None
    for at, loop in enumerate(walk.loops):
        here = [i for i, s in enumerate(stamps) if index[s.rank] == at and sizes[i] > 1]
        if result is None and not here:
            continue
        below = np.empty(loop.nodes, dtype=np.int64)
        for piece in blocks(loop.nodes):
            part = 0 if result is None else result[loop.parent[piece]]
            for i in here:
                part = part + columns[i][piece] * strides[i]
            below[piece] = part
        result = below
    if result is None:
        result = np.zeros(walk.nodes, dtype=np.int64)
    return Keys(result if computed is None else result[computed], sizes)


def _stamps(loop: Walked, stamp: Stamp) -> Ints:
    return loop.pos() if stamp.style == "pos" else loop.coords


def _by_first(points: _TimedNodes, values: Ints, leaves: Ints | None) -> dict[int, tuple[int, int]]:
    """Return activities and distinct times of each stamp of the first space rank. `leaves`: per node, or one
    number for all."""
    load, seen = points.load(None, leaves), points.stamps(None)
    rows = zip(values.tolist(), load.tolist(), seen.tolist(), strict=True)
    return {value: (activities, stamps) for value, activities, stamps in rows}


def sums_of(place: Ints, weights: Ints, size: int) -> Ints:
    """Return exact sums of whole numbers by index."""
    if weights.size and int(weights.max()) * weights.size < 2**53:
        return np.bincount(place, weights=weights, minlength=size).astype(np.int64)
    result = np.zeros(size, dtype=np.int64)
    np.add.at(result, place, weights)
    return result


@dataclass(frozen=True, eq=False)
class _Below:
    """Space stamps below a node, by kind: `counts` (kinds x stamps) of activities, and the stamps as
    `rows`."""

    counts: Ints
    rows: Ints
    leaves: Ints


def _tail_column(tail: Tail, loop: int, stamp: Stamp) -> Ints:
    result = _stamps(tail.loops[loop], stamp)
    for inner in tail.loops[loop + 1 :]:
        result = result[inner.parent]
    return result


def _below(tail: Tail, columns: Sequence[Ints]) -> _Below:
    owner = tail.owner(len(tail.loops) - 1)
    keys = keys_of(columns, owner.size)
    values, place = np.unique(keys.values, return_inverse=True)
    counts = np.zeros((tail.kinds, values.size), dtype=np.int64)
    np.add.at(counts, (owner, place), 1)
    return _Below(counts, keys.rows(values), counts.sum(axis=1))


@dataclass(frozen=True, eq=False)
class _TimedNodes:
    """Nodes with their point in space (`place` among the keys `values`) and their time. `separate`: no two
    nodes have both in common."""

    values: Ints
    place: Ints
    time: Ints
    times: int
    separate: bool = False

    def load(self, kept: Bools | None, weights: Ints | None) -> Ints:
        place = self.place if kept is None else self.place[kept]
        if weights is None:
            return np.bincount(place, minlength=self.values.size)
        if weights.size == 1:
            return np.bincount(place, minlength=self.values.size) * int(weights[0])
        return sums_of(place, weights, int(self.values.size))

    def stamps(self, kept: Bools | None) -> Ints:
        if self.separate:
            return self.load(kept, None)
        place, time = (self.place, self.time) if kept is None else (self.place[kept], self.time[kept])
        return pairs(place, int(self.values.size), time, self.times)

    def with_tail(self, space: Keys, kind: Ints, below: _Below) -> tuple[Ints, Ints, Ints]:
        """Return the points of space with the stamps below the nodes: rows, activities and distinct times of
        each.

        Stamps that occur in the same kinds belong to the same nodes, so that nodes are counted once for all
        of them.
        """
        rows: list[Ints] = []
        load: list[Ints] = []
        seen: list[Ints] = []
        outer = space.rows(self.values)
        patterns, which = np.unique(below.counts, axis=1, return_inverse=True)
        for p in range(patterns.shape[1]):
            counts = patterns[:, p]
            kept = None if (counts > 0).all() else (counts > 0)[kind]
            if counts.size == 1:
                loads = self.load(kept, counts)
            else:
                loads = self.load(kept, counts[kind if kept is None else kind[kept]])
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


# Stamps of the iterations of a loop that is merged or streamed instead of walked.


def measure_counted(
    plan: Plan, walk: LoopWalk, loop: Merged | Streamed, spacetime: SpaceTime, computed: Bools | None
) -> ExecutionTimes:
    """Stamp all activities. The loops that are not walked have time stamps. `computed`: see `measure`."""
    index = {rank.name: i for i, rank in enumerate(plan.order)}
    outer = [s for s in spacetime.time if index[s.rank] < len(walk.loops)]
    inner = next(s for s in spacetime.time if index[s.rank] == len(walk.loops))
    nodes = np.arange(walk.nodes) if computed is None else np.flatnonzero(computed)
    space = walked_keys(walk, index, spacetime.space, computed)
    moment = walked_keys(walk, index, outer, computed).values
    if (int(moment.max(initial=0)) + 1) * space.size > _NUMBERED:
        _, moment = numbered(moment, int(moment.max(initial=0)) + 1)
    points, place = numbered(space.values, space.size)
    load, stamps = _at_points(loop, nodes, place, points.size, moment, inner)
    by_first = {}
    if spacetime.space and nodes.size:
        one = walked_keys(walk, index, spacetime.space[:1], computed)
        firsts, which = numbered(one.values, one.size)
        loads, seen = load, stamps
        if len(spacetime.space) > 1:
            loads, seen = _at_points(loop, nodes, which, firsts.size, moment, inner)
        rows = zip(firsts.tolist(), loads.tolist(), seen.tolist(), strict=True)
        by_first = {value: (activities, times) for value, activities, times in rows}
    total, met = int(load.sum()), int(stamps.sum())
    return ExecutionTimes(
        tuple(s.rank for s in spacetime.space),
        tuple(s.rank for s in spacetime.time),
        int(_stamped(loop, nodes, moment, inner)[1].sum()) * _width(loop),
        int(stamps.max(initial=0)),
        int(load.size),
        met,
        total - met,
        space.rows(points),
        load,
        stamps,
        by_first,
    )


def _width(loop: Merged | Streamed) -> int:
    """Return the iterations below one iteration of the loop, each of which has its own stamp."""
    return loop.loop.width if isinstance(loop, Streamed) else 1


def _at_points(
    loop: Merged | Streamed, nodes: Ints, place: Ints, points: int, moment: Ints, inner: Stamp
) -> tuple[Ints, Ints]:
    """Return activities and distinct time stamps at each point of space. `moment`: the time stamp of each
    node."""
    moments = int(moment.max(initial=-1)) + 1
    keys, counts = _stamped(loop, nodes, place * moments + moment, inner)
    load = sums_of(place, loop.lengths[nodes], points)
    return load * _width(loop), sums_of(keys // max(moments, 1), counts, points) * _width(loop)


def _stamped(loop: Merged | Streamed, nodes: Ints, keys: Ints, inner: Stamp) -> tuple[Ints, Ints]:
    """Return the distinct keys of nodes, ascending, and the number of distinct stamps of the loop for
    each."""
    lengths = loop.lengths[nodes]
    if not bool((keys[1:] > keys[:-1]).all()):
        order = np.argsort(keys, kind="stable")
        nodes, keys, lengths = nodes[order], keys[order], lengths[order]
    new = np.ones(keys.size, dtype=bool)
    new[1:] = keys[1:] != keys[:-1]
    first = np.flatnonzero(new)
    if first.size == keys.size:
        return keys, lengths
    # A loop is only streamed where it is stamped by its count.
    if isinstance(loop, Streamed) or inner.style == "pos" or _alike(loop, nodes, new):
        return keys[first], np.maximum.reduceat(lengths, first)
    group = np.full(loop.lengths.size, -1, dtype=np.int64)
    group[nodes] = np.cumsum(new) - 1
    return keys[first], loop.distinct(group)


def _alike(merged: Merged, nodes: Ints, new: Bools) -> bool:
    """Return whether all nodes of each group iterate over the same fiber."""
    fiber: Sequence[int] | Ints = merged.fiber[nodes]
    return bool((new[1:] | (fiber[1:] == fiber[:-1])).all())
