"""Walk the loops of one Einsum rank by rank, with all iterations of a loop processed at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from polymodel.errors import Refused
from polymodel.frozen import dataclass
from polymodel.sparse.execute.plan import LoopAction, OperandSlot, Plan
from polymodel.sparse.fibertree import Ints, Level, blocks

# The fibers of one loop, one per loop node, co-iterate at all nodes at once.

Bools = NDArray[np.bool_]
# Above this number of iterations of one loop, no arrays of them are created.
MOST_NODES = 10**8


@dataclass(frozen=True, eq=False)
class LoopFibers:
    """For each loop node the elements low .. high - 1 of a level, which belong to one fiber.

    For affine indices a coordinate is shifted by -`shift` and divided by `factor`; low and high then contain
    only what lies inside the rank, and all of it is divisible.
    """

    level: Level
    fiber: Ints
    low: Ints
    high: Ints
    shift: Ints | None = None
    factor: int = 1

    @property
    def nodes(self) -> int:
        return int(self.low.size)

    @property
    def lengths(self) -> Ints:
        return self.high - self.low

    @property
    def total(self) -> int:
        return int(self.high.sum()) - int(self.low.sum())

    def at(self, nodes: Ints | slice) -> LoopFibers:
        """Return the fibers of some loop nodes."""
        shift = None if self.shift is None else self.shift[nodes]
        return LoopFibers(
            self.level, self.fiber[nodes], self.low[nodes], self.high[nodes], shift, self.factor
        )

    def last(self) -> Ints:
        """Return the last coordinate of each fiber, -1 for an empty one."""
        if not self.level.elements:
            return np.full(self.nodes, -1, dtype=np.int64)
        result = self.level.coords[np.maximum(self.high - 1, 0)]
        if self.shift is not None:
            result = (result - self.shift) // self.factor
        return np.where(self.high > self.low, result, -1)

    def upto(self, coords: Ints) -> Ints:
        """Return how many coordinates of each fiber are at most the one given for it."""
        if self.shift is not None:
            coords = coords * self.factor + self.shift
        return self.level.upto(self.fiber, self.low, self.high, coords)

    def find(self, nodes: Ints, coords: Ints) -> Ints:
        """Return the elements with these coordinates in the fibers of these nodes, -1 for none."""
        result = np.empty(coords.size, dtype=np.int64)
        for here in blocks(coords.size):
            at, asked = nodes[here], coords[here]
            if self.shift is not None:
                asked = asked * self.factor + self.shift[at]
            result[here] = self.level.find(self.fiber[at], self.low[at], self.high[at], asked)
        return result

    def expand(self) -> tuple[Ints, Ints, Ints]:
        """Return the node, the coordinate and the number of each element."""
        lengths = self.lengths
        total = int(lengths.sum())
        if total > MOST_NODES:
            what = f"rank {self.level.rank.name} has {total:,} iterations, too many to walk"
            remedy = "run the largest tensors with values=False, or smaller ones"
            raise Refused(what, remedy, code="too-large")
        nodes = np.repeat(np.arange(self.nodes, dtype=np.int64), lengths)
        if self.nodes and bool((self.low[1:] == self.high[:-1]).all()):
            first = int(self.low[0])
            elements = np.arange(first, first + total, dtype=np.int64)
            coords = self.level.coords[first : first + total]
        else:
            starts = np.cumsum(lengths)
            starts -= lengths
            elements = np.repeat(self.low - starts, lengths)
            elements += np.arange(total, dtype=np.int64)
            coords = self.level.coords[elements]
        if self.shift is not None:
            coords = (coords - self.shift[nodes]) // self.factor
        return nodes, coords, elements


@dataclass(frozen=True, eq=False)
class Matched:
    """The result of a co-iteration, ordered by node and coordinate: `elements` for each participating fiber
    (-1 where a union lacks it), and the number of coordinates `reads` for each fiber and node."""

    nodes: Ints
    coords: Ints
    elements: tuple[Ints, ...]
    reads: tuple[Ints, ...]

    def starts(self, nodes: int) -> Ints:
        """Return the index of the first result of each node, and the end."""
        return np.searchsorted(self.nodes, np.arange(nodes + 1))

    def picked(self, kept: Bools) -> Matched:
        return Matched(self.nodes[kept], self.coords[kept], tuple(e[kept] for e in self.elements), self.reads)


def alone(fibers: LoopFibers) -> Matched:
    """Iterate over one whole fiber per node."""
    nodes, coords, elements = fibers.expand()
    return Matched(nodes, coords, (elements,), (fibers.lengths,))


def intersect(fibers: Sequence[LoopFibers]) -> Matched:
    """Intersect with two fingers. More than two fibers nest to the right, a & (b & c), each reading only as
    far as requested.

    Both fingers advance after a match, and the intersection stops when one fiber ends. The other fiber has
    then read everything up to that end, and one more coordinate if there is one.
    """
    if len(fibers) == 1:
        return alone(fibers[0])
    if len(fibers) == 2:
        return _pair(fibers[0], fibers[1])
    inner = intersect(fibers[1:])
    first = fibers[0]
    found = first.find(inner.nodes, inner.coords)
    kept = found >= 0
    elements = (found[kept], *(e[kept] for e in inner.elements))
    return Matched(inner.nodes[kept], inner.coords[kept], elements, _nested_reads(fibers))


def _pair(a: LoopFibers, b: LoopFibers) -> Matched:
    if a.total <= b.total:
        nodes, coords, ours = a.expand()
        theirs = b.find(nodes, coords)
        kept = theirs >= 0
    else:
        nodes, coords, theirs = b.expand()
        ours = a.find(nodes, coords)
        kept = ours >= 0
    if not kept.all():
        nodes, coords, ours, theirs = nodes[kept], coords[kept], ours[kept], theirs[kept]
    reads = np.empty(a.nodes, dtype=np.int64), np.empty(a.nodes, dtype=np.int64)
    for here in blocks(a.nodes):
        one, two = a.at(here), b.at(here)
        ends = one.last(), two.last()
        reads[0][here] = _read(one, ends[1], ends[0])
        reads[1][here] = _read(two, ends[0], ends[1])
    return Matched(nodes, coords, (ours, theirs), reads)


def _read(fibers: LoopFibers, last: Ints, own: Ints | None = None) -> Ints:
    """Return the coordinates read when the other fiber ends at `last`: all, if this fiber ends (at `own`) no
    later."""
    lengths = fibers.lengths
    short = np.flatnonzero(last < (fibers.last() if own is None else own))
    if short.size:
        some = fibers.at(short).upto(last[short])
        lengths[short] = np.minimum(some + 1, lengths[short])
    return lengths


def _nested_reads(fibers: Sequence[LoopFibers]) -> tuple[Ints, ...]:
    """Return the reads of a & (b & (c & ..)), where an inner intersection runs only as far as the outer one
    requests."""
    nodes = fibers[0].nodes
    reads: list[Ints] = []
    stop = np.full(nodes, -1, dtype=np.int64)  # the last requested coordinate, -1: all
    for at, first in enumerate(fibers[:-1]):
        if at == len(fibers) - 2:
            second = fibers[-1]
            asked = stop >= 0
            reads.append(np.where(asked, first.upto(stop), _read(first, second.last())))
            reads.append(np.where(asked, second.upto(stop), _read(second, first.last())))
            break
        inner = intersect(fibers[at + 1 :])
        starts = inner.starts(nodes)
        lengths = np.diff(starts)
        ends = inner.coords[np.maximum(starts[1:] - 1, 0)] if inner.coords.size else stop
        last = np.where(lengths > 0, ends, -1)
        reads.append(np.where(stop >= 0, first.upto(stop), _read(first, last)))
        pulled = _upto(inner, starts, first.last())
        short = (pulled < lengths) & (stop < 0)
        if inner.coords.size:
            next_asked = inner.coords[np.minimum(starts[:-1] + pulled, inner.coords.size - 1)]
            stop = np.where(short, next_asked, stop)
    return tuple(reads)


def _upto(inner: Matched, starts: Ints, coords: Ints) -> Ints:
    """Return how many results of each node are at most the coordinate given for it."""
    span = int(inner.coords.max(initial=0)) + 2
    keys = inner.nodes * span + inner.coords + 1
    asked = np.arange(coords.size) * span + np.clip(coords, -1, span - 2) + 1
    return np.searchsorted(keys, asked, side="right") - starts[:-1]


def unite(parts: Sequence[Matched]) -> Matched:
    """Return all coordinates of any of the parts; elements and reads are in the order of the parts."""
    nodes = np.concatenate([p.nodes for p in parts])
    coords = np.concatenate([p.coords for p in parts])
    span = int(coords.max(initial=0)) + 1
    keys = nodes * span + coords
    united, place = np.unique(keys, return_inverse=True)
    elements: list[Ints] = []
    at = 0
    for part in parts:
        rows = place[at : at + part.nodes.size]
        at += part.nodes.size
        for e in part.elements:
            full = np.full(united.size, -1, dtype=np.int64)
            full[rows] = e
            elements.append(full)
    reads = tuple(r for p in parts for r in p.reads)
    return Matched(united // span, united % span, tuple(elements), reads)


def cut(leader: LoopFibers, follower: LoopFibers) -> tuple[Matched, Ints, Ints]:
    """Split the follower's fibers of plain coordinates at the first coordinates of the leader's parts.

    Return the parts in which the follower has an element, with the elements of the leader, and the elements
    low .. high - 1 of the follower that lie in each. The follower's reads are those of its nonempty parts.
    """
    nodes, coords, elements = leader.expand()
    own = LoopFibers(follower.level, follower.fiber[nodes], follower.low[nodes], follower.high[nodes])
    ends = np.full(coords.size, np.iinfo(np.int64).max // 2, dtype=np.int64)
    same = nodes[1:] == nodes[:-1]
    ends[:-1][same] = coords[1:][same]
    low, high = own.low + own.upto(coords - 1), own.low + own.upto(ends - 1)
    low = np.where(coords == 0, own.low, low)
    kept = high > low
    mine = np.bincount(nodes[kept], minlength=leader.nodes)
    begins = np.searchsorted(nodes, np.arange(leader.nodes + 1))
    last = np.full(leader.nodes, -1, dtype=np.int64)
    last[nodes[kept]] = np.flatnonzero(kept) - begins[nodes[kept]]
    theirs = np.minimum(last + 2, leader.lengths)
    whole = Matched(nodes[kept], coords[kept], (elements[kept],), (theirs, mine))
    return whole, low[kept], high[kept]


@dataclass
class FiberCursor:
    """The position of one tensor at every loop node: `element` of the last level bound (None: the root),
    -1 where its term is absent. `cut`: the part low .. high - 1 of the next fiber that lies in a leader's
    part."""

    slot: OperandSlot
    bound: int = 0
    element: Ints | None = None
    partial: bool = False
    cut: tuple[Ints, Ints, Ints] | None = None

    def fibers(self, nodes: int) -> LoopFibers:
        """Return the fibers of the next level."""
        level = self.slot.tree.levels[self.bound]
        if self.cut is not None:
            return LoopFibers(level, *self.cut)
        if self.element is None:
            zeros = np.zeros(nodes, dtype=np.int64)
            return LoopFibers(level, zeros, zeros, np.full(nodes, level.elements, dtype=np.int64))
        if not level.elements:
            none = np.zeros(nodes, dtype=np.int64)
            return LoopFibers(level, none, none, none)
        fiber = np.maximum(self.element, 0) if self.partial else self.element
        if fiber.size == level.fibers and bool((fiber[1:] > fiber[:-1]).all()):
            low, high = level.starts[:-1], level.starts[1:]  # every fiber once, in order
        else:
            low, high = level.starts[fiber], level.starts[1:][fiber]
        if self.partial:
            high = np.where(self.element < 0, low, high)
        return LoopFibers(level, fiber, low, high)

    def follow(self, nodes: Ints) -> None:
        """Move to the nodes of an inner loop, given by the outer node of each."""
        if self.element is not None:
            self.element = self.element[nodes]
        if self.cut is not None:
            a, b, c = self.cut
            self.cut = a[nodes], b[nodes], c[nodes]

    def bind(self, element: Ints) -> None:
        self.element, self.cut = element, None
        self.bound += 1

    def out(self, nodes: int, where: Ints) -> None:
        """Mark the term as absent at these nodes."""
        element = np.zeros(nodes, dtype=np.int64) if self.element is None else self.element.copy()
        element[where] = -1
        if self.cut is not None:
            fiber, low, high = self.cut
            self.cut = fiber, low, np.where(element < 0, low, high)
        self.element, self.partial = element, True


@dataclass
class Walked:
    """One walked loop. `element`, `begin`, `reads` and `lookups` are by slot number; the first three are
    empty unless the walk keeps them. `totals`: sums of the reads."""

    parent: Ints
    coords: Ints
    element: dict[int, Ints] = field(default_factory=dict)
    begin: dict[int, Ints] = field(default_factory=dict)
    reads: dict[int, Ints] = field(default_factory=dict)
    lookups: dict[int, int] = field(default_factory=dict)
    totals: dict[int, int] = field(default_factory=dict)

    @property
    def nodes(self) -> int:
        return int(self.parent.size)

    def pos(self) -> Ints:
        """Return the position of each iteration within its loop."""
        if not self.nodes:
            return self.parent
        result = np.arange(self.nodes, dtype=np.int64)
        if bool((self.parent[1:] > self.parent[:-1]).all()):
            result[:] = 0
            return result
        begin = 0
        for here in blocks(self.nodes):
            number = result[here]
            start = np.full(number.size, begin, dtype=np.int64)
            parent = self.parent[max(here.start - 1, 0) : here.stop]
            new = parent[1:] != parent[:-1]
            inner = start[start.size - new.size :]
            inner[new] = number[start.size - new.size :][new]
            np.maximum.accumulate(start, out=start)
            begin = int(start[-1])
            number -= start
        return result


class LoopWalk:
    """Walks the loops of a plan. `loops`: those walked so far; `cursors`: positions at the nodes of the last
    one.

    `keep`: store what each loop accesses at each node.
    """

    def __init__(self, plan: Plan, keep: bool = True) -> None:
        self.plan = plan
        self.keep = keep
        self.loops: list[Walked] = []
        self.cursors = [FiberCursor(s) for s in plan.slots]
        for cursor in self.cursors:
            if not cursor.slot.tree.levels:  # rank 0: one value, or none
                there = cursor.slot.tree.nnz > 0
                cursor.element, cursor.partial = np.array([0 if there else -1]), not there
        self.nodes = 1
        self.skipped = 0

    @property
    def at(self) -> int:
        """The index of the next loop."""
        return self.skipped + len(self.loops)

    def branch(self, nodes: Ints) -> LoopWalk:
        """Return a walk that continues from some nodes of the last loop only."""
        result = LoopWalk(self.plan)
        result.skipped, result.nodes = self.at, int(nodes.size)
        for ours, theirs in zip(self.cursors, result.cursors, strict=True):
            theirs.bound, theirs.element, theirs.partial, theirs.cut = (
                ours.bound,
                ours.element,
                ours.partial,
                ours.cut,
            )
            theirs.follow(nodes)
        return result

    def step(self) -> None:
        """Walk the next loop."""
        at = self.at
        taking = [
            (s, step)
            for s, slot in enumerate(self.plan.slots)
            for step in slot.steps.get(at, ())
            if step.kind not in ("lookup", "residue")
        ]
        self._residues(at)
        fibers = {s: self._fibers(s, step, at) for s, step in taking}
        cuts = [s for s, step in taking if step.kind == "cut"]
        if cuts:
            self._cut(fibers, cuts, [s for s, _ in taking])
        elif fibers:
            self._co_iterate(fibers)
        else:
            self._dense(at)
        self._look_up(at)
        loop = self.loops[-1]
        loop.totals.update({s: int(reads.sum()) for s, reads in loop.reads.items()})
        if not self.keep:
            for table in (loop.element, loop.begin, loop.reads):
                table.clear()

    def _fibers(self, s: int, step: LoopAction, at: int) -> LoopFibers:
        cursor = self.cursors[s]
        result = cursor.fibers(self.nodes)
        if step.kind != "project":
            return result
        shift = self._shift(step)
        stop = np.full(self.nodes, self.plan.order[at].size, dtype=np.int64)
        start = np.zeros(self.nodes, dtype=np.int64)
        if step.tile is not None:
            start = self.coords_of(step.tile[0])
            stop = np.minimum(start + step.tile[1], stop)
        whole = LoopFibers(result.level, result.fiber, result.low, result.high, shift, step.factor)
        low = result.low + whole.upto(start - 1)
        high = result.low + whole.upto(stop - 1)
        return LoopFibers(result.level, result.fiber, low, high, shift, step.factor)

    def _shift(self, step: LoopAction) -> Ints:
        """Return the sum of the outer variables of an affine index."""
        shift = np.full(self.nodes, step.constant, dtype=np.int64)
        for loop, factor in step.offset:
            shift += factor * self.coords_of(loop)
        return shift

    def _residues(self, at: int) -> None:
        """Select the coordinates with the right remainder, where the last variable of an affine index has a
        factor."""
        for s, slot in enumerate(self.plan.slots):
            for step in slot.steps.get(at, ()):
                if step.kind == "residue":
                    cursor = self.cursors[s]
                    wanted = self._shift(step) % step.factor
                    cursor.bind(cursor.fibers(self.nodes).find(np.arange(self.nodes), wanted))
                    cursor.partial = True

    def ancestors(self, loop: int) -> Ints | None:
        """Return the node of an outer loop that each node of the last loop belongs to; None if they are the
        same."""
        result: Ints | None = None
        for walked in reversed(self.loops[loop + 1 :]):
            result = walked.parent if result is None else walked.parent[result]
        return result

    def coords_of(self, loop: int) -> Ints:
        """Return the coordinate of an outer loop at the nodes of the last one."""
        return self.spread(loop, self.loops[loop].coords)

    def spread(self, loop: int, column: Ints) -> Ints:
        """Return a column of an outer loop's nodes at the nodes of the last loop."""
        found = self.ancestors(loop)
        result: Ints = column if found is None else column[found]
        return result

    def _co_iterate(self, fibers: dict[int, LoopFibers]) -> None:
        parts: list[Matched] = []
        slots: list[int] = []
        for term in self.plan.terms:
            mine = [s for s in term.slots if s in fibers]
            if not mine:
                rank = self.plan.order[self.at].name
                what = f"{self.plan.einsum}: a term has no tensor with rank {rank}, which others have"
                raise Refused(what, "give every term all ranks of the loops", code="unsupported-operation")
            parts.append(intersect([fibers[s] for s in mine]))
            slots += mine
        matched = parts[0] if len(parts) == 1 else unite(parts)
        leader = self.plan.leaders.get(self.at)
        self._advance(matched, slots, fibers, slots)
        if leader is not None:
            self._without_parts(leader, fibers[leader])
        for s, e in zip(slots, matched.elements, strict=True):
            self.cursors[s].bind(e)
            self.cursors[s].partial = len(parts) > 1
        if len(parts) > 1:
            self._out_of_terms(slots)

    def _without_parts(self, leader: int, fibers: LoopFibers) -> None:
        """Set the reads of followers to 0 where the leader's fiber is empty, because there are no parts."""
        empty = fibers.high == fibers.low
        if empty.any():
            reads = self.loops[-1].reads
            for s in reads:
                if s != leader:
                    reads[s] = np.where(empty, 0, reads[s])

    def _out_of_terms(self, slots: Sequence[int]) -> None:
        """Mark all tensors of a term as absent where the union does not contain the term."""
        for term in self.plan.terms:
            one = next(s for s in slots if s in term.slots)
            element = self.cursors[one].element
            assert element is not None
            gone = np.flatnonzero(element < 0)
            for s in term.slots:
                if s not in slots and gone.size:
                    self.cursors[s].out(self.nodes, gone)

    def _advance(
        self, matched: Matched, slots: Sequence[int], fibers: dict[int, LoopFibers], bound: Sequence[int] = ()
    ) -> None:
        """Make the nodes of a loop from the result of its co-iteration. The caller sets the cursors in
        `bound` afterwards."""
        walked = Walked(matched.nodes, matched.coords)
        for s, reads in zip(slots, matched.reads, strict=True):
            walked.begin[s], walked.reads[s] = fibers[s].low, reads
        for s, e in zip(slots, matched.elements, strict=False):
            walked.element[s] = e
        self.loops.append(walked)
        self.nodes = walked.nodes
        for s, cursor in enumerate(self.cursors):
            if s not in bound:
                cursor.follow(matched.nodes)

    def _cut(self, fibers: dict[int, LoopFibers], cuts: list[int], slots: list[int]) -> None:
        leaders = [s for s in slots if s not in cuts]
        if len(slots) != 2 or len(leaders) != 1 or len(self.plan.terms) > 1:
            names = ", ".join(self.plan.slots[s].name for s in cuts)
            what = f"{self.plan.einsum}: {names} cut by a leader whose fibers they do not have"
            message = f"{what}, with more than two tensors or several terms"
            raise Refused(message, code="unsupported-operation")
        leader, follower = leaders[0], cuts[0]
        matched, low, high = cut(fibers[leader], fibers[follower])
        fiber = fibers[follower].fiber[matched.nodes]
        self._advance(matched, [leader, follower], fibers)
        self.cursors[leader].bind(matched.elements[0])
        self.cursors[follower].cut = fiber, low, high

    def _dense(self, at: int) -> None:
        """Iterate over all coordinates, tile by tile, of a rank that no tensor on the right-hand side has."""
        rank = self.plan.order[at]
        step, outer = self.plan.tiles.get(rank.name, (1, None))
        known = rank.name in self.plan.sizes or rank.name in self.plan.tiles
        if not known or rank.flattened or (outer is not None and outer % step):
            what = f"{self.plan.einsum}: no tensor on the right has the rank {rank.name}"
            remedy = "leave the rank whole or split it by shape into tiles that nest"
            raise Refused(what, remedy, code="unsupported-operation")
        start = np.zeros(self.nodes, dtype=np.int64)
        stop = np.full(self.nodes, rank.size, dtype=np.int64)
        if outer is not None:
            above = next(i for i in range(at - 1, -1, -1) if self.plan.order[i].bases == rank.bases)
            start = self.coords_of(above)
            stop = np.minimum(start + outer, rank.size)
        counts = -((start - stop) // step)
        nodes = np.repeat(np.arange(self.nodes, dtype=np.int64), counts)
        begin = np.cumsum(counts) - counts
        coords = start[nodes] + (np.arange(nodes.size) - begin[nodes]) * step
        self._advance(Matched(nodes, coords, (), ()), [], {})

    def _look_up(self, at: int) -> None:
        for s, slot in enumerate(self.plan.slots):
            for step in slot.steps.get(at, ()):
                if step.kind != "lookup":
                    continue
                cursor = self.cursors[s]
                loop = self.loops[-1]
                columns = self.plan.order[at].decode(loop.coords)
                fibers = cursor.fibers(self.nodes)
                found = fibers.find(np.arange(self.nodes), columns[step.column])
                loop.lookups[s] = self.nodes
                loop.element[s] = found
                cursor.bind(found)
                cursor.partial = cursor.partial or bool((found < 0).any())
