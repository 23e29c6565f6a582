"""Count the steps that intersectors and mergers take."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from polymodel.errors import Refused
from polymodel.governor import look
from polymodel.sparse.fibertree import Ints, LoopRank, build
from polymodel.sparse.ranges import count_at_least
from polymodel.sparse.tensor import SparseTensor
from polymodel.sparse.traffic.nest import WalkedEinsum

# Coordinates that are compared at a time: few enough to be sorted within a processor's cache.
BLOCK = 2**20
_DOING = "counting the steps of intersections"

# Steps of two-finger, leader-follower and skip-ahead intersectors.


def intersections(nest: WalkedEinsum, loop: int, kind: str, leader: str = "") -> int:
    """Return the steps of the intersections at one loop, summed over all visits.

    two-finger: one per comparison of two coordinates, until one fiber ends. skip-ahead: one per match and one
    per run of comparisons that advance the same finger. leader-follower: one per coordinate of the leader.
    Raises Refused for a number of operands other than two, except for leader-follower.
    """
    tensors = [s.tensor for at, s in enumerate(nest.plan.slots) if at in nest.reads(loop)]
    name = nest.names[loop]
    if kind == "leader-follower":
        if leader not in tensors:
            message = f"{nest.plan.einsum}: the leader {leader} has no rank {name} to lead"
            raise Refused(message, "name another", code="unsupported-binding")
        return int(_fiber_lengths(nest, leader, loop).sum())
    if kind not in ("two-finger", "skip-ahead"):
        what = f"{nest.plan.einsum}: an intersector of {name} of type {kind or '(none)'}"
        remedy = "give it the type two-finger, skip-ahead or leader-follower"
        raise Refused(what, remedy, code="unsupported-binding")
    if len(tensors) != 2:
        what = f"{nest.plan.einsum}: a {kind} intersector of {len(tensors)} tensors at {name}"
        raise Refused(what, "bind it where two tensors meet", code="unsupported-binding")
    bounds = [_bounds(nest, t, loop) for t in tensors]
    depths = [next(p.depth for p in nest.places(t).values() if p.loop == loop) for t in tensors]
    coords = [nest.level(t, d).coords for t, d in zip(tensors, depths, strict=True)]
    upto = np.cumsum(sum(high - low for low, high in bounds))
    total = begin = 0
    while begin < upto.size:
        look(_DOING)
        done = int(upto[begin - 1]) if begin else 0
        end = max(begin + 1, int(np.searchsorted(upto, done + BLOCK, side="right")))
        some = [(low[begin:end], high[begin:end]) for low, high in bounds]
        total += _steps(*_comparisons(some, coords), kind)
        begin = end
    return total


def _steps(visit: Ints, side: Ints, kind: str) -> int:
    if kind == "two-finger":
        return int(side.size)
    same = (visit[1:] == visit[:-1]) & (side[1:] == side[:-1]) & (side[1:] < 2)
    return int(side.size - same.sum())


def _fiber_lengths(nest: WalkedEinsum, tensor: str, loop: int) -> Ints:
    """Return the length of the tensor's fiber at each visit of a loop."""
    low, high = _bounds(nest, tensor, loop)
    return high - low


def _bounds(nest: WalkedEinsum, tensor: str, loop: int) -> tuple[Ints, Ints]:
    place = next(p for p in nest.places(tensor).values() if p.loop == loop)
    fibers = nest.element(tensor, place.depth - 1, loop - 1)
    starts = nest.level(tensor, place.depth).starts
    present = fibers >= 0
    low = np.where(present, starts[np.maximum(fibers, 0)], 0)
    return low, np.where(present, starts[np.maximum(fibers, 0) + 1], 0)


def _comparisons(bounds: Sequence[tuple[Ints, Ints]], coords: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Return every comparison in order: the visit, and what advances (0 or 1 for one finger, 2 for both).

    `bounds`: for each operand the elements low .. high - 1 of the fiber of each visit; `coords`: those of all
    elements. A coordinate is compared as long as neither fiber has ended, which is up to the smaller of their
    last coordinates.
    """
    stop = np.full(bounds[0][0].size, np.iinfo(np.int64).max)
    for (low, high), c in zip(bounds, coords, strict=True):
        ends = c[np.maximum(high - 1, 0)] if c.size else np.zeros(high.size, dtype=np.int64)
        stop = np.minimum(stop, np.where(high > low, ends, -1))
    visits, found = [], []
    for (low, high), c in zip(bounds, coords, strict=True):
        lengths = high - low
        visit = np.repeat(np.arange(low.size, dtype=np.int64), lengths)
        begin = np.cumsum(lengths) - lengths
        mine = c[low[visit] + np.arange(visit.size) - begin[visit]]
        kept = mine <= stop[visit]
        visits.append(visit[kept])
        found.append(mine[kept])
    span = max((int(f.max(initial=0)) for f in found), default=0) + 1
    keys = [v * span + f for v, f in zip(visits, found, strict=True)]
    every, counts = np.unique(np.concatenate(keys), return_counts=True)
    side = np.where(counts == 2, 2, np.where(np.isin(every, keys[0], assume_unique=True), 0, 1))
    return every // span, side


# When a tensor's ranks are swapped, mergers combine sorted lists of coordinates into one.


def merge_steps(
    tensor: SparseTensor,
    before: Sequence[str],
    after: Sequence[str],
    radix: float,
    pipelined: bool,
) -> int:
    """Return the steps that bring a tensor from one order of its ranks to another by swapping two
    neighbouring ranks.

    Each fiber of the outer of the two ranks is a set of lists, which are merged `radix` at a time, in rounds,
    until one is left. A pipelined merger (with a finite number of inputs) takes one step per list and one per
    element of a merge. A merger that keeps the heads sorted takes, for each element that becomes a head, one
    step and one more for each head that it passes. Raises Refused for other reorderings.
    """
    depth = next((i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b), None)
    if depth is None:
        return 0
    swapped = (*before[:depth], before[depth + 1], before[depth], *before[depth + 2 :])
    if tuple(after) != swapped:
        what = f"{tensor.name}: from {', '.join(before)} to {', '.join(after)} is more than one swap"
        raise Refused(f"{what} of neighbours", "bind one merger per swap", code="unsupported-binding")
    order = [tensor.ranks.index(r) for r in before]
    ranks = [LoopRank(r, (r,), (tensor.shape[i],)) for r, i in zip(before, order, strict=True)]
    tree = build(tensor.name, ranks, [tensor.coords[i] for i in order], tensor.values)
    lists, inner = tree.levels[depth], tree.levels[depth + 1]
    group = lists.fiber  # the set that each list is in
    counts = np.diff(lists.starts)
    if pipelined:
        return _pipelined(counts, np.bincount(group[inner.fiber], minlength=counts.size), radix)
    label, coords = inner.fiber, inner.coords
    total = 0
    while counts.size and int(counts.max()) > 1:
        # A set with one list is finished; the radix is at most the number of lists.
        step = _inputs(counts, radix)
        busy = counts > 1
        starts = np.cumsum(counts) - counts
        place = np.arange(group.size) - starts[group]
        merged = place // step[group]
        rounds = -(-counts // step)
        first = np.cumsum(rounds) - rounds
        into = first[group] + merged
        total += _insertions(into[label], place[label], coords, label, busy[group[label]])
        label = into[label]
        order_now = np.lexsort((coords, label))
        label, coords = label[order_now], coords[order_now]
        group = np.repeat(np.arange(counts.size), rounds)
        counts = rounds
    return total


def _inputs(lists: Ints, radix: float) -> Ints:
    """Return the number of lists that are merged at a time in each set."""
    step = np.minimum(radix, lists) if radix < lists.max() else lists
    return np.maximum(step, 1).astype(np.int64)


def _pipelined(lists: Ints, elements: Ints, radix: float) -> int:
    """Return the steps of sets with so many lists and elements: merging keeps all elements, so that only
    their number counts."""
    total = 0
    while lists.size and int(lists.max()) > 1:
        busy = lists > 1
        total += int(lists[busy].sum() + elements[busy].sum())
        lists = -(-lists // _inputs(lists, radix))
    return total


def _insertions(merge: Ints, place: Ints, coords: Ints, label: Ints, busy: NDArray[np.bool_]) -> int:
    """Return the steps of merging lists with their heads kept sorted, over all merges.

    Heads leave in ascending order; of equal coordinates the later list leaves first. An element becomes a
    head when the previous one of its list leaves, and passes the heads that leave before it, which are as
    many as there are other lists with an element between the two. The first elements are inserted list by
    list.
    """
    kept = np.flatnonzero(busy)
    merge, place, coords, label = merge[kept], place[kept], coords[kept], label[kept]
    order = np.lexsort((-place, coords, merge))
    merge, place, label = merge[order], place[order], label[order]
    n = label.size
    by_list = np.lexsort((np.arange(n), label))
    same = label[by_list][1:] == label[by_list][:-1]
    before = np.full(n, -1, dtype=np.int64)
    before[by_list[1:][same]] = by_list[:-1][same]
    after = np.full(n, n, dtype=np.int64)
    after[by_list[:-1][same]] = by_list[1:][same]
    later = np.flatnonzero(before >= 0)
    # For lists in between, the last element before the later one counts, if it is after the earlier one.
    passed = int(count_at_least(after, before[later] + 1, later, later).sum())
    firsts = np.flatnonzero(before < 0)
    return n + passed + _inversions(merge[firsts], place[firsts])


def _inversions(merge: Ints, place: Ints) -> int:
    """Count the pairs of one merge in which the element that leaves first was inserted first. Elements are in
    leaving order."""
    if place.size < 2:
        return 0
    span = int(place.max()) + 1
    order = np.argsort(merge, kind="stable")
    rank = merge[order] * span + place[order]
    starts = np.searchsorted(merge[order], merge[order])
    at = np.arange(rank.size)
    # Elements of the merge that leave earlier and have a smaller place: all earlier ones less the others.
    return int((at - starts - count_at_least(rank, starts, at, rank)).sum())
