"""The output's fibertree as it grows: which node touches which element, and when each came to be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polymodel.errors import Refused
from polymodel.sparse.fibertree import Ints
from polymodel.sparse.traffic.nest import Nest


@dataclass(frozen=True, eq=False)
class OutLevel:
    """One rank of the output. Elements are numbered by (parent, coordinate), as in the finished output.

    `node`: per node of the loop, the element it is at, also where it adds nothing; -1 where there never is
    one. `parent`, `born`: per element, that of the rank above, and the node that touches it first. `starts`:
    where the elements of each parent start.
    """

    rank: str
    loop: int
    node: Ints
    parent: Ints
    born: Ints
    starts: Ints

    @property
    def elements(self) -> int:
        return int(self.parent.size)

    @property
    def position(self) -> Ints:
        """The place of each element in its fiber."""
        return np.arange(self.elements, dtype=np.int64) - self.starts[self.parent]


class OutTree:
    """All ranks of the output, outermost first. Refused where a flattened loop binds one of them."""

    def __init__(self, nest: Nest) -> None:
        self.nest = nest
        populate = nest.plan.populate
        if any(loop not in populate for _, loop, _ in nest.plan.output):
            what = f"{nest.plan.einsum}: a flattened rank holds a rank of the output"
            raise Refused(f"{what}, whose traffic is not worked out", "leave the output without bindings")
        self.levels: list[OutLevel] = []
        for loop in populate[:-1] if nest.merged is not None else populate:
            self.levels.append(self._level(loop))

    def _level(self, loop: int) -> OutLevel:
        nest, walked = self.nest, self.nest.loops[loop]
        if self.levels:
            above = self.levels[-1]
            parent, parents = above.node[nest.up(loop, above.loop)], above.elements
        else:
            parent, parents = np.zeros(walked.nodes, dtype=np.int64), 1
        alive = np.flatnonzero(nest.alive[loop])
        span = int(walked.coords.max(initial=0)) + 1
        if parents * span > 2**62:
            raise Refused(f"{nest.plan.einsum}: the output has too many fibers for 64 bits")
        keys = parent * span + walked.coords
        known, first = np.unique(keys[alive], return_index=True)
        node = np.searchsorted(known, keys)
        found = (parent >= 0) & (node < known.size)
        found[found] = known[node[found]] == keys[found]
        starts = np.searchsorted(known // span, np.arange(parents + 1))
        rank = nest.names[loop]
        return OutLevel(rank, loop, np.where(found, node, -1), known // span, alive[first], starts)

    def depth(self, rank: str) -> int:
        """ValueError if the output has no such rank."""
        return [level.rank for level in self.levels].index(rank)
