"""How many steps intersectors take: two-finger, leader-follower and skip-ahead."""

from __future__ import annotations

import numpy as np

from polymodel.errors import Refused
from polymodel.sparse.fibertree import Ints
from polymodel.sparse.traffic.nest import Nest


def intersections(nest: Nest, loop: int, kind: str, leader: str = "") -> int:
    """Steps of the intersections at one loop, summed over all visits.

    two-finger: one per comparison of two coordinates, until one fiber ends. skip-ahead: one per match and
    one per run of comparisons that advance the same finger. leader-follower: one per coordinate of the
    leader. Refused for other than two tensors, except leader-follower.
    """
    tensors = [t for t, at in nest.slot.items() if at in nest.reads(loop)]
    name = nest.names[loop]
    if kind == "leader-follower":
        if leader not in tensors:
            raise Refused(
                f"{nest.plan.einsum}: the leader {leader} has no rank {name} to lead", "name another"
            )
        return int(_fiber_lengths(nest, leader, loop).sum())
    if kind not in ("two-finger", "skip-ahead"):
        what = f"{nest.plan.einsum}: an intersector of {name} of type {kind or '(none)'}"
        raise Refused(what, "give it the type two-finger, skip-ahead or leader-follower")
    if len(tensors) != 2:
        what = f"{nest.plan.einsum}: a {kind} intersector of {len(tensors)} tensors at {name}"
        raise Refused(what, "bind it where two tensors meet")
    visit, side = _comparisons(nest, tensors, loop)
    if kind == "two-finger":
        return int(side.size)
    same = (visit[1:] == visit[:-1]) & (side[1:] == side[:-1]) & (side[1:] < 2)
    return int(side.size - same.sum())


def _fiber_lengths(nest: Nest, tensor: str, loop: int) -> Ints:
    """The length of the tensor's fiber at each visit of a loop."""
    low, high = _bounds(nest, tensor, loop)
    return high - low


def _bounds(nest: Nest, tensor: str, loop: int) -> tuple[Ints, Ints]:
    place = next(p for p in nest.places(tensor).values() if p.loop == loop)
    fibers = nest.element(tensor, place.depth - 1, loop - 1)
    starts = nest.level(tensor, place.depth).starts
    present = fibers >= 0
    low = np.where(present, starts[np.maximum(fibers, 0)], 0)
    return low, np.where(present, starts[np.maximum(fibers, 0) + 1], 0)


def _comparisons(nest: Nest, tensors: list[str], loop: int) -> tuple[Ints, Ints]:
    """Every comparison in order: the visit, and what advances: 0 or 1 one finger, 2 both.

    A coordinate is compared as long as neither fiber has ended, so up to the smaller of the last ones.
    """
    bounds = [_bounds(nest, t, loop) for t in tensors]
    depths = [next(p.depth for p in nest.places(t).values() if p.loop == loop) for t in tensors]
    coords = [nest.level(t, d).coords for t, d in zip(tensors, depths, strict=True)]
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
