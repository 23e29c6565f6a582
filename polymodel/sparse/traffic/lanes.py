"""Caches that every instance of a level has for itself: which of them each iteration uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from polymodel.sparse.execute.times import keys_of, numbered
from polymodel.sparse.fibertree import Ints
from polymodel.sparse.traffic.cache import Visits
from polymodel.sparse.traffic.nest import Nest
from polymodel.spec.teaal.records import SpaceTime


@dataclass(frozen=True, eq=False)
class Lanes:
    """Points of space dealt to instances in turn: point i to instance i mod their number.

    `loop`: the innermost loop in space; `instance`: of each of its nodes.
    """

    nest: Nest
    loop: int
    instance: Ints
    instances: int

    def of(self, loop: int, nodes: Ints) -> Ints:
        """The instance that some nodes of a loop at or below the last one in space run on."""
        return self.instance[self.nest.up(loop, self.loop)[nodes]]


def lanes_of(nest: Nest, spacetime: SpaceTime | None, instances: int) -> Lanes | None:
    """None where nothing runs in space, or the loops in space are not walked.

    One rank in space: its stamp (position or coordinate) is the number of the point; of several, the points
    that are met are numbered in the order of their stamps.
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


def fullest(lines: Sequence[Ints], visits: Visits | None, instances: int) -> int:
    """The most distinct lines that pass through one instance. `lines`: of each kind of data, numbers that
    `cache.Accesses.apart` made of line and instance; those of `visits` are made of fiber and instance."""
    found = np.zeros(instances, dtype=np.int64)
    for one in lines:
        found += np.bincount(np.unique(one) % instances, minlength=instances)
    if visits is not None:
        fibers, one = np.unique(visits.fiber, return_index=True)
        np.add.at(found, fibers % instances, visits.lines[one])
    return int(found.max())
