"""Provide the loops of one Einsum for the traffic model: nodes, positions of tensors, and what is read
there."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from polymodel.errors import Refused
from polymodel.frozen import dataclass
from polymodel.sparse.execute.loops import LoopWalk, Walked
from polymodel.sparse.execute.merged import Merged, enter
from polymodel.sparse.execute.plan import OperandSlot, Plan
from polymodel.sparse.execute.values import merged_result, scaled, ufunc_of, wide
from polymodel.sparse.fibertree import Fibertree, Ints, Level
from polymodel.sparse.tensor import SparseTensor, ordered

Bools = NDArray[np.bool_]
# A rank walked over its whole shape makes this many elements at most.
_WALKED = 2 * 10**8


@dataclass(frozen=True)
class RankBinding:
    """The location of a rank of an input: the loop that binds it and its depth in the fibertree."""

    loop: int
    depth: int


@dataclass(frozen=True, eq=False)
class StoredElements:
    """For the elements of a rank that is walked over its whole shape: the position of each among the stored
    ones of its fiber (for one that is not stored, where a search for it ends), and whether it is stored."""

    place: Ints
    present: Bools


@dataclass(frozen=True, eq=False)
class ExpandedPlan:
    """A plan with all coordinates of the ranks that are walked over their whole shape, and which of these are
    `stored`, by tensor and depth of the rank."""

    plan: Plan
    stored: Mapping[tuple[str, int], StoredElements]


def expanded(plan: Plan, walked: Mapping[str, Sequence[str]]) -> ExpandedPlan:
    """Expand the fibers of some ranks. `walked`: tensor -> ranks whose fibers are walked over their whole
    shape, where coordinates that are not stored count as elements with empty fibers below."""
    if len(plan.terms) > 1:
        what = f"{plan.einsum}: the traffic of a sum of terms is not modelled"
        raise Refused(what, "give each term an Einsum of its own", code="unsupported-operation")
    stored: dict[tuple[str, int], StoredElements] = {}
    slots = tuple(_expanded(s, walked.get(s.tensor, ()), stored) for s in plan.slots)
    return ExpandedPlan(replace(plan, slots=slots), stored)


def _expanded(
    slot: OperandSlot, ranks: Sequence[str], stored: dict[tuple[str, int], StoredElements]
) -> OperandSlot:
    tree = slot.tree
    # Outer ranks first: an empty fiber that they add is walked whole as well.
    for rank in sorted(ranks, key=lambda r: tree.ranks.index(r) if r in tree.ranks else -1):
        if rank not in tree.ranks:
            what = f"{slot.tensor} has no rank {rank} to be walked over its whole shape in these loops"
            message = f"{what}; it has {', '.join(tree.ranks)}"
            raise Refused(message, "walk ranks that are not split", code="unsupported-loop")
        depth = tree.ranks.index(rank)
        tree, stored[slot.tensor, depth] = _whole(tree, depth)
    return replace(slot, tree=tree)


def _reads_alike(one: OperandSlot, other: OperandSlot) -> bool:
    """Return whether two reads of a tensor access the same element in every iteration, so that one read
    serves both."""
    return one.tree.ranks == other.tree.ranks and one.steps == other.steps


class WalkedEinsum:
    """One walked Einsum. The nodes of loop l are numbered in loop order; loop -1 has one node, the root.

    `depth`: the number of loops to walk, by default all; with fewer there is no output. `merges`: do not walk
    an innermost loop that merges one tensor's fibers into the output's, if possible; it is then `merged`, and
    `loops` are those above it.
    """

    def __init__(self, expanded: ExpandedPlan, depth: int | None = None, merges: bool = False) -> None:
        self.plan, self.stored = expanded.plan, expanded.stored
        plan, slots = self.plan, self.plan.slots
        walk = self._walk = LoopWalk(self.plan)
        for _ in plan.order[: -1 if merges else depth]:
            walk.step()
        entered = enter(walk) if merges else None
        self.merged = None if entered is None else entered.merged
        if merges and entered is None:
            walk.step()
        self.loops: Sequence[Walked] = walk.loops
        self.names = tuple(r.name for r in plan.order)
        self.slot = {s.tensor: i for i, s in reversed([*enumerate(slots)])}
        firsts = [(slots[self.slot[s.tensor]], s) for s in slots]
        self.unlike = {s.tensor for one, s in firsts if not _reads_alike(one, s)}
        ends = [c.element for c in walk.cursors]
        self.leaves: list[Ints] = [np.zeros(walk.nodes, np.int64) if e is None else e for e in ends]

    def places(self, tensor: str) -> dict[str, RankBinding]:
        """Return the ranks of an input, outermost first."""
        slot = self.plan.slots[self.slot[tensor]]
        result = {}
        for loop, steps in slot.steps.items():
            for step in steps:
                if step.kind in ("cut", "project", "residue"):
                    why = "parts of another tensor's fibers" if step.kind == "cut" else "index math"
                    what = f"{self.plan.einsum}: {tensor} is read by {why}, whose traffic is not modelled"
                    raise Refused(what, f"leave {tensor} without bindings", code="unsupported-operation")
                result[step.level] = (slot.tree.levels[step.level].rank.name, RankBinding(loop, step.level))
        return dict(result[depth] for depth in sorted(result))

    def turns(self, tensor: str) -> tuple[int, ...]:
        """Return the slots that read an input, in order."""
        return tuple(i for i, s in enumerate(self.plan.slots) if s.tensor == tensor)

    def tree(self, tensor: str) -> Fibertree:
        return self.plan.slots[self.slot[tensor]].tree

    def level(self, tensor: str, depth: int) -> Level:
        return self.tree(tensor).levels[depth]

    def nodes(self, loop: int) -> int:
        if self.merges_at(loop) is not None:
            return self.activities
        return 1 if loop < 0 else self.loops[loop].nodes

    def merges_at(self, loop: int) -> Merged | None:
        """Return the loop, if it is the merged one."""
        return self.merged if loop == len(self.loops) else None

    def begins(self, loop: int) -> Mapping[int, Ints]:
        """Return, by slot, the first element of the fiber that each node of the next outer loop reads
        there."""
        one = self.merges_at(loop)
        return self.loops[loop].begin if one is None else {one.slot: one.low}

    def reads(self, loop: int) -> Mapping[int, Ints]:
        """Return, by slot, the number of elements read of that fiber."""
        one = self.merges_at(loop)
        return self.loops[loop].reads if one is None else {one.slot: one.lengths}

    def up(self, loop: int, outer: int) -> Ints:
        """Return the node of loop `outer` that contains each node of `loop`."""
        result = np.arange(self.nodes(loop), dtype=np.int64)
        if outer < 0:
            return np.zeros_like(result)
        for at in range(loop, outer, -1):
            result = self.loops[at].parent[result]
        return result

    def element(self, tensor: str, depth: int, loop: int) -> Ints:
        """Return the element of an input's level at each node of a loop, -1 if there is none; depth -1 is the
        root."""
        if depth < 0:
            return np.zeros(self.nodes(loop), dtype=np.int64)
        bound = list(self.places(tensor).values())[depth].loop
        result: Ints = self.loops[bound].element[self.slot[tensor]][self.up(loop, bound)]
        return result

    @cached_property
    def alive(self) -> tuple[Bools, ...]:
        """For each loop, the nodes that lead to a computation."""
        found = np.ones(self.nodes(len(self.loops) - 1), dtype=bool)
        for e in self.leaves:
            found &= e >= 0
        if self.merged is not None:
            found &= self.merged.lengths > 0
        flags = [found]
        for at in range(len(self.loops) - 1, 0, -1):
            below = np.zeros(self.nodes(at - 1), dtype=bool)
            below[self.loops[at].parent[flags[-1]]] = True
            flags.append(below)
        return tuple(reversed(flags))

    @cached_property
    def activities(self) -> int:
        """The number of innermost iterations that compute."""
        if self.merged is not None:
            return self.merged.iterations
        return int(self.alive[-1].sum()) if self.loops else 1

    @cached_property
    def result(self) -> SparseTensor:
        """The output."""
        return self._made[0]

    @cached_property
    def touched(self) -> int:
        """The number of points of the output that were touched."""
        return self._made[1] if self.merged is None else int(self.merged.sizes.sum())

    @cached_property
    def _made(self) -> tuple[SparseTensor, int]:
        plan, term = self.plan, self.plan.terms[0]
        if self.merged is not None:
            touched = int(self.merged.sizes.sum())
            return merged_result(plan, self._walk, self.merged, touched, True), touched
        at = np.flatnonzero(self.alive[-1])
        factors = [plan.slots[s].tree.values[self.leaves[s][at]] for s in term.slots]
        multiply, add = plan.semiring.multiply.form, ufunc_of(plan)
        values = (
            factors[term.take] if term.take is not None else functools.reduce(multiply, map(wide, factors))
        )
        coords = []
        for _, loop, column in plan.output:
            node = self.up(len(self.loops) - 1, loop)[at]
            coords.append(plan.order[loop].decode(self.loops[loop].coords[node])[column])
        ranks = [rank for rank, _, _ in plan.output]
        points = np.array(coords, dtype=np.int64).reshape(len(coords), at.size)
        used = {(loop, column) for _, loop, column in plan.output}
        # Where the output has every coordinate of the loops, each iteration has a point of its own.
        if term.take is not None and len(used) < sum(len(r.bases) for r in plan.order):
            first = _first(points, plan.shape)
            points, values = points[:, first], values[first]
        values = scaled(values, term, plan.semiring)
        points, summed = ordered(points, values, plan.shape, add)
        result = SparseTensor.from_coo(
            plan.einsum, ranks, plan.shape, points, summed, fill=plan.semiring.absent
        )
        return result, summed.size


def _first(points: Ints, shape: Sequence[int]) -> Ints:
    """Return the last column of each distinct point: a take overwrites instead of adding."""
    columns = np.arange(points.shape[1], dtype=np.int64)
    if not points.shape[0] or not columns.size:
        return columns[-1:]
    order = np.lexsort(points[::-1])
    same = (np.diff(points[:, order], axis=1) == 0).all(axis=0)
    return np.sort(order[np.flatnonzero(np.append(~same, True))])


def _whole(tree: Fibertree, depth: int) -> tuple[Fibertree, StoredElements]:
    """Return the tree with every coordinate of a rank present, and which of these are stored."""
    level = tree.levels[depth]
    size = level.rank.size
    if depth == len(tree.levels) - 1:
        what = f"{tree.name}: rank {level.rank.name} holds values"
        message = f"{what}, it is not walked over its whole shape"
        raise Refused(message, "give the zeros as values", code="unsupported-loop")
    if level.fibers * size > _WALKED:
        message = f"{tree.name}: {level.fibers:,} fibers of {size:,} coordinates are too many to walk"
        raise Refused(message, code="too-large")
    at = level.fiber * size + level.coords
    below = tree.levels[depth + 1]
    counts = np.zeros(level.fibers * size, dtype=np.int64)
    counts[at] = np.diff(below.starts)
    present = np.zeros(counts.size, dtype=bool)
    present[at] = True
    each = present.reshape(level.fibers, size).astype(np.int64)
    stored = StoredElements((np.cumsum(each, axis=1) - each).reshape(-1), present)
    coords = np.tile(np.arange(size, dtype=np.int64), level.fibers)
    full = Level(level.rank, coords, np.arange(level.fibers + 1, dtype=np.int64) * size)
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)))
    levels = (*tree.levels[:depth], full, Level(below.rank, below.coords, starts), *tree.levels[depth + 2 :])
    return Fibertree(tree.name, levels, tree.values), stored


# The output's fibertree as it grows: the element that each node touches, and when it is inserted.


@dataclass(frozen=True, eq=False)
class OutLevel:
    """One rank of the output. Elements are numbered by (parent, coordinate), as in the finished output.

    `node`: for each node of the loop, its element, even if it adds nothing; -1 where there never is one.
    `parent`, `born`: for each element, its parent element in the next outer rank, and the first node that
    touches it. `starts`: the first element of each parent.
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
        """The position of each element in its fiber."""
        return np.arange(self.elements, dtype=np.int64) - self.starts[self.parent]

    @cached_property
    def visits(self) -> tuple[Ints, Bools]:
        """The nodes that find or insert an element, and whether it existed before."""
        nodes = np.flatnonzero(self.node >= 0)
        nodes = nodes[self.born[self.node[nodes]] <= nodes]
        return nodes, self.born[self.node[nodes]] < nodes

    def lines(self, per_line: int) -> tuple[Ints, int]:
        """Return the line of each element in the finished output, and the number of lines."""
        before = np.concatenate((np.zeros(1, np.int64), np.cumsum(-(-np.diff(self.starts) // per_line))))
        return before[self.parent] + self.position // per_line, int(before[-1])


class OutTree:
    """All ranks of the output, outermost first. Raises Refused where a flattened loop binds one of them."""

    def __init__(self, nest: WalkedEinsum) -> None:
        self.nest = nest
        populate = nest.plan.populate
        if any(loop not in populate for _, loop, _ in nest.plan.output):
            what = f"{nest.plan.einsum}: a flattened rank holds a rank of the output"
            message = f"{what}, whose traffic is not modelled"
            raise Refused(message, "leave the output without bindings", code="unsupported-operation")
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
            message = f"{nest.plan.einsum}: the output has too many fibers for 64 bits"
            raise Refused(message, code="number-too-large")
        keys = parent * span + walked.coords
        known, first = np.unique(keys[alive], return_index=True)
        node = np.searchsorted(known, keys)
        result = (parent >= 0) & (node < known.size)
        result[result] = known[node[result]] == keys[result]
        starts = np.searchsorted(known // span, np.arange(parents + 1))
        rank = nest.names[loop]
        return OutLevel(rank, loop, np.where(result, node, -1), known // span, alive[first], starts)

    def depth(self, rank: str) -> int:
        """Return the index of a rank. Raises ValueError if the output does not have it."""
        return [level.rank for level in self.levels].index(rank)
