"""Skips equal work of innermost loops that only walk dense fibers.

Such loops do the same at all but a few kinds of loop nodes: one node of each kind is walked for all of them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from polymodel.sparse.execute.loops import Cursor, Walk, Walked
from polymodel.sparse.execute.output import Bools, effectual
from polymodel.sparse.execute.plan import Plan, Slot
from polymodel.sparse.fibertree import Fibertree, Ints, Level

_MOST_KINDS = 64


@dataclass(frozen=True, eq=False)
class Tail:
    """What lies below every node of the loop before `start`: that of its `kind`.

    `loops` are those below one node of each kind (parents in the first are kinds), `cursors` where the
    tensors are at their leaves, `alive` the nodes with a result; `one`: the walked node of each kind.
    """

    start: int
    kind: Ints
    one: Ints
    loops: tuple[Walked, ...]
    cursors: tuple[Cursor, ...]
    alive: tuple[Bools | None, ...]

    @property
    def kinds(self) -> int:
        return int(self.kind.max(initial=-1)) + 1

    def owner(self, loop: int) -> Ints:
        """The kind that each node of one of the loops lies below."""
        found = self.loops[loop].parent
        for above in reversed(self.loops[:loop]):
            found = above.parent[found]
        return found

    def spread(self, loop: int) -> Ints:
        """The coordinates of one of the loops at the nodes of the last one."""
        found = self.loops[loop].coords
        for inner in self.loops[loop + 1 :]:
            found = found[inner.parent]
        return found

    def counts(self, loop: int, with_result: bool = False) -> Ints:
        """Iterations of one of the loops below a node of each kind."""
        owner = self.owner(loop)
        alive = self.alive[loop]
        if with_result and alive is not None:
            owner = owner[alive]
        return np.bincount(owner, minlength=self.kinds)


def candidates(plan: Plan, timed: Collection[str]) -> int:
    """The first of the innermost loops that may be walked for a few nodes only; their number if none may.

    They are not stamped in time, make ranks of the output, and tensors only iterate there, to their end.
    """
    at = len(plan.order)
    if len(plan.terms) > 1 or plan.scattered:
        return at
    while at > 0 and at - 1 in plan.populate and plan.order[at - 1].name not in timed:
        steps = [s for slot in plan.slots for s in slot.steps.get(at - 1, ())]
        if not steps or any(s.kind != "iterate" for s in steps):
            break
        at -= 1
    while at < len(plan.order) and not all(_regular(s.tree, _depth(s, at)) for s in plan.slots):
        at += 1
    return at


def _depth(slot: Slot, at: int) -> int:
    """How many levels of a tensor are bound before a loop."""
    return sum(s.kind != "cut" for loop, steps in slot.steps.items() if loop < at for s in steps)


def _regular(tree: Fibertree, depth: int) -> bool:
    """Whether fibers from level `depth` on have equally spaced coordinates, and those below the first are
    told by the coordinate above them."""
    for at in range(depth, len(tree.levels)):
        level = tree.levels[at]
        if not level.elements or level.step == 0:
            return False
        if at == depth:
            continue
        above = tree.levels[at - 1].coords
        for column in (level.coords[level.starts[:-1]], np.diff(level.starts)):
            table = np.zeros(int(above.max()) + 1, dtype=np.int64)
            table[above] = column
            if (table[above] != column).any():
                return False
    return True


def enter(walk: Walk) -> Tail | None:
    """Walk the rest of the loops for one node of each kind; None where there are too many kinds."""
    if not walk.nodes:
        return None
    columns: list[Ints] = []
    for cursor in walk.cursors:
        if cursor.partial or cursor.cut is not None:
            return None
        if cursor.bound < len(cursor.slot.tree.levels):
            fibers = cursor.fibers(walk.nodes)
            columns += [fibers.level.coords[fibers.low], fibers.high - fibers.low]
    kind, one = _kinds(columns, walk.nodes)
    if one.size > _MOST_KINDS or walk.nodes < 2 * one.size:
        return None
    rest = walk.branch(one)
    while rest.at < len(walk.plan.order):
        rest.step()
    alive = effectual(rest.loops, None)
    return Tail(walk.at, kind, one, tuple(rest.loops), tuple(rest.cursors), tuple(alive))


def _kinds(columns: list[Ints], nodes: int) -> tuple[Ints, Ints]:
    """Number equal rows, and one row of each number."""
    kind = np.zeros(nodes, dtype=np.int64)
    count = 1
    for column in columns:
        low, high = int(column.min()), int(column.max())
        if low == high:
            continue
        keys = kind * (high - low + 1) + (column - low)
        size = count * (high - low + 1)
        if size <= 4 * nodes + 1024:
            present = np.zeros(size, dtype=bool)
            present[keys] = True
            table = np.cumsum(present) - 1
            kind = table[keys]
        else:
            _, kind = np.unique(keys, return_inverse=True)
        count = int(kind.max()) + 1
    one = np.zeros(count, dtype=np.int64)
    one[kind[::-1]] = np.arange(nodes - 1, -1, -1)
    return kind, one


def first_leaf(levels: tuple[Level, ...], element: Ints) -> Ints:
    """The number of the first leaf below elements, going down these levels."""
    for level in levels:
        element = level.starts[element]
    return element
