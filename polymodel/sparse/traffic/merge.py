"""What mergers do when a tensor's ranks are swapped: sorted lists of coordinates become one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from polymodel.errors import Refused
from polymodel.sparse.fibertree import Ints, LoopRank, build
from polymodel.sparse.ranges import count_at_least
from polymodel.sparse.tensor import SparseTensor


def merge_steps(
    tensor: SparseTensor,
    before: Sequence[str],
    after: Sequence[str],
    radix: float,
    pipelined: bool,
) -> int:
    """Steps to bring a tensor from one order of its ranks to another by swapping two neighbours.

    Each fiber of the outer of the two ranks is a set of lists, which are merged `radix` at a time, in
    rounds, until one is left. A pipelined merger (a finite number of inputs) takes one step per list and per
    element of a merge; one that keeps the heads sorted takes, per element that becomes a head, one step and
    one more for each head that it passes. Refused for other reorderings.
    """
    depth = next((i for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b), None)
    if depth is None:
        return 0
    swapped = (*before[:depth], before[depth + 1], before[depth], *before[depth + 2 :])
    if tuple(after) != swapped:
        what = f"{tensor.name}: from {', '.join(before)} to {', '.join(after)} is more than one swap"
        raise Refused(f"{what} of neighbours", "bind one merger per swap")
    order = [tensor.ranks.index(r) for r in before]
    ranks = [LoopRank(r, (r,), (tensor.shape[i],)) for r, i in zip(before, order, strict=True)]
    tree = build(tensor.name, ranks, [tensor.coords[i] for i in order], tensor.values)
    lists, inner = tree.levels[depth], tree.levels[depth + 1]
    group = lists.fiber  # the set that each list is in
    label, coords = inner.fiber, inner.coords
    counts = np.diff(lists.starts)
    total = 0
    while counts.size and int(counts.max()) > 1:
        # A set with one list is done; the radix never exceeds the number of lists there are.
        step = np.minimum(radix, counts) if radix < counts.max() else counts
        step = np.maximum(step, 1).astype(np.int64)
        busy = counts > 1
        if pipelined:
            total += int(counts[busy].sum() + np.bincount(group[label], minlength=counts.size)[busy].sum())
        starts = np.cumsum(counts) - counts
        place = np.arange(group.size) - starts[group]
        merged = place // step[group]
        rounds = -(-counts // step)
        first = np.cumsum(rounds) - rounds
        into = first[group] + merged
        if not pipelined:
            total += _insertions(into[label], place[label], coords, label, busy[group[label]])
        label = into[label]
        order_now = np.lexsort((coords, label))
        label, coords = label[order_now], coords[order_now]
        group = np.repeat(np.arange(counts.size), rounds)
        counts = rounds
    return total


def _insertions(merge: Ints, place: Ints, coords: Ints, label: Ints, busy: NDArray[np.bool_]) -> int:
    """Steps of merging lists with their heads kept sorted, over all merges.

    Heads leave in ascending order, of equal coordinates the later list first. An element becomes a head when
    the one before it in its list leaves, and passes the heads that leave before it: as many as there are
    other lists with an element between the two. The first elements are put in list by list.
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
    # Lists between: the last element of each before the later one counts, if it is after the earlier one.
    passed = int(count_at_least(after, before[later] + 1, later, later).sum())
    firsts = np.flatnonzero(before < 0)
    return n + passed + _inversions(merge[firsts], place[firsts])


def _inversions(merge: Ints, place: Ints) -> int:
    """Pairs of one merge in which what leaves first was put in first; elements in leaving order."""
    if place.size < 2:
        return 0
    span = int(place.max()) + 1
    order = np.argsort(merge, kind="stable")
    rank = merge[order] * span + place[order]
    starts = np.searchsorted(merge[order], merge[order])
    at = np.arange(rank.size)
    # Earlier leavers of the same merge with a smaller place: all earlier ones less those with a larger one.
    return int((at - starts - count_at_least(rank, starts, at, rank)).sum())
