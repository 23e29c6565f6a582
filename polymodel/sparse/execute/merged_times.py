"""Where and when the iterations of a loop happen that is merged and not walked."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polymodel.sparse.execute.loops import Walk
from polymodel.sparse.execute.merged import Merged
from polymodel.sparse.execute.output import Bools
from polymodel.sparse.execute.plan import Plan
from polymodel.sparse.execute.records import Times
from polymodel.sparse.execute.times import numbered, sums_of, walked_keys
from polymodel.sparse.fibertree import Ints
from polymodel.spec.teaal.records import SpaceTime, Stamp


def measure_merged(
    plan: Plan, walk: Walk, merged: Merged, spacetime: SpaceTime, computed: Bools | None
) -> Times:
    """Stamp all activities; the innermost loop is stamped in time. `computed`: see `measure`."""
    index = {rank.name: i for i, rank in enumerate(plan.order)}
    outer = [s for s in spacetime.time if index[s.rank] < len(walk.loops)]
    inner = next(s for s in spacetime.time if index[s.rank] == len(walk.loops))
    nodes = np.arange(walk.nodes) if computed is None else np.flatnonzero(computed)
    space = walked_keys(walk, index, spacetime.space, computed)
    _, moment = numbered(*_sized(walked_keys(walk, index, outer, computed).values))
    points, place = numbered(space.values, space.size)
    load, stamps = _at_points(merged, nodes, place, points.size, moment, inner)
    by_first = {}
    if spacetime.space and nodes.size:
        one = walked_keys(walk, index, spacetime.space[:1], computed)
        firsts, which = numbered(one.values, one.size)
        loads, seen = load, stamps
        if len(spacetime.space) > 1:
            loads, seen = _at_points(merged, nodes, which, firsts.size, moment, inner)
        rows = zip(firsts.tolist(), loads.tolist(), seen.tolist(), strict=True)
        by_first = {value: (activities, times) for value, activities, times in rows}
    total, met = int(load.sum()), int(stamps.sum())
    return Times(
        tuple(s.rank for s in spacetime.space),
        tuple(s.rank for s in spacetime.time),
        int(_stamped(merged, nodes, moment, inner)[1].sum()),
        int(stamps.max(initial=0)),
        int(load.size),
        met,
        total - met,
        space.rows(points),
        load,
        stamps,
        by_first,
    )


def _sized(values: Ints) -> tuple[Ints, int]:
    return values, int(values.max(initial=-1)) + 1


def _at_points(
    merged: Merged, nodes: Ints, place: Ints, points: int, moment: Ints, inner: Stamp
) -> tuple[Ints, Ints]:
    """Activities and distinct stamps of time at each point of space. `moment`: the stamp of each node."""
    moments = int(moment.max(initial=-1)) + 1
    keys, counts = _stamped(merged, nodes, place * moments + moment, inner)
    return sums_of(place, merged.lengths[nodes], points), sums_of(keys // max(moments, 1), counts, points)


def _stamped(merged: Merged, nodes: Ints, keys: Ints, inner: Stamp) -> tuple[Ints, Ints]:
    """The distinct keys of nodes, ascending, and how many stamps of the innermost loop each meets."""
    lengths = merged.lengths[nodes]
    if not bool((keys[1:] > keys[:-1]).all()):
        order = np.argsort(keys, kind="stable")
        nodes, keys, lengths = nodes[order], keys[order], lengths[order]
    new = np.ones(keys.size, dtype=bool)
    new[1:] = keys[1:] != keys[:-1]
    first = np.flatnonzero(new)
    if first.size == keys.size:
        return keys, lengths
    if inner.style == "pos" or _alike(merged, nodes, new):
        return keys[first], np.maximum.reduceat(lengths, first)
    group = np.full(merged.lengths.size, -1, dtype=np.int64)
    group[nodes] = np.cumsum(new) - 1
    return keys[first], merged.distinct(group)


def _alike(merged: Merged, nodes: Ints, new: Bools) -> bool:
    """Whether all nodes of each group iterate over the same fiber."""
    fiber: Sequence[int] | Ints = merged.fiber[nodes]
    return bool((new[1:] | (fiber[1:] == fiber[:-1])).all())
