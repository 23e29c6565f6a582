"""Sizes of transfers of small problems, enumerated where no product describes what is carried."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from polymodel.analysis.exact.buffets import Node
from polymodel.analysis.exact.cached_counts import Product
from polymodel.analysis.exact.enumerated_partials import LIMIT
from polymodel.analysis.exact.sizes import Cut, Sized
from polymodel.analysis.exact.sweep import Ints, distinct, operations, rank, stacked


def by_size(moves: tuple[Ints, Ints, Ints], axes: Sequence[int], cut: Cut) -> Sized:
    """Transfers by size from rows (time, element, places along the spatial `axes`) that may repeat."""
    time, element, places = moves
    own = [k for k, a in enumerate(axes) if a < cut.charge or a not in cut.shared]
    if not len(time):
        return ()
    stamps = distinct(np.column_stack([time, places[:, own], element]))[:, :-1]
    ids = rank(stamps)
    _, firsts, sizes = np.unique(ids, return_index=True, return_counts=True)
    kept = [k for k, a in enumerate(axes) if a < cut.charge]
    where = stamps[firsts][:, 1 : 1 + len(kept)]
    shape = tuple(int(n) + 1 for n in where.max(axis=0, initial=0))
    found = []
    for size in np.unique(sizes):
        mine = where[sizes == size]
        counts = np.full(shape, len(mine), dtype=np.int64)
        if kept:
            flat = np.ravel_multi_index(tuple(mine.T), shape)
            counts = np.bincount(flat, minlength=prod(shape)).reshape(shape)
        found.append((int(size), Product(1, ((tuple(axes[k] for k in kept), counts.astype(object)),))))
    return tuple(found)


def can_list(node: Node) -> bool:
    """Whether the node's users together are small enough."""
    return sum(prod(h - low + 1 for low, h in v.einsum.bounds) for v in node.views) <= LIMIT


def drained(node: Node, carries: frozenset[int]) -> tuple[Ints, Ints, Ints]:
    """(end, element, places) of all runs in which the element was written, whoever keeps them alive."""
    touch = node.all_touch
    stamps, places, elements, writes = [], [], [], []
    for view in node.views:
        ops = operations(view)
        stamps.append(stacked([ops.counters[a] for a in touch.temporal], ops.count))
        places.append(stacked([ops.counters[a] for a in touch.spatial], ops.count))
        elements.append(ops.elements(view.access))
        writes.append(np.full(ops.count, view.access.output))
    stamp, place, write = np.concatenate(stamps), np.concatenate(places), np.concatenate(writes)
    element, visit, where = rank(np.concatenate(elements)), rank(stamp), rank(place)
    order = np.lexsort((visit, element, where))
    p, x, v, s = where[order], element[order], visit[order], stamp[order]
    joined = (p[1:] == p[:-1]) & (x[1:] == x[:-1])
    next_visit = v[1:] == v[:-1] + 1
    if touch.temporal:
        axis = np.argmax(s[1:] != s[:-1], axis=1)
        next_visit &= np.isin(np.asarray(touch.temporal)[axis], sorted(carries))
    joined &= next_visit | (v[1:] == v[:-1])
    run = np.concatenate(([0], np.cumsum(~joined)))
    last = np.concatenate((~joined, [True]))
    dirty = np.bincount(run, weights=write[order]) > 0
    return v[last][dirty], x[last][dirty], place[order][last][dirty]
