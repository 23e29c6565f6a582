"""The loops of one Einsum, rank by rank: all iterations of a loop at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from polymodel.errors import Refused
from polymodel.sparse.execute.fibers import Fibers, Matched, cut, intersect, unite
from polymodel.sparse.execute.plan import Plan, Slot, Step
from polymodel.sparse.fibertree import Ints, blocks


@dataclass
class Cursor:
    """Where one tensor is at every loop node: `element` of the last level bound (None: the root), -1 where a
    term is out; `cut`: the part low .. high - 1 of the next fiber that a leader's part leaves."""

    slot: Slot
    bound: int = 0
    element: Ints | None = None
    partial: bool = False
    cut: tuple[Ints, Ints, Ints] | None = None

    def fibers(self, nodes: int) -> Fibers:
        """The fibers of the next level."""
        level = self.slot.tree.levels[self.bound]
        if self.cut is not None:
            return Fibers(level, *self.cut)
        if self.element is None:
            zeros = np.zeros(nodes, dtype=np.int64)
            return Fibers(level, zeros, zeros, np.full(nodes, level.elements, dtype=np.int64))
        if not level.elements:
            none = np.zeros(nodes, dtype=np.int64)
            return Fibers(level, none, none, none)
        fiber = np.maximum(self.element, 0) if self.partial else self.element
        if fiber.size == level.fibers and bool((fiber[1:] > fiber[:-1]).all()):
            low, high = level.starts[:-1], level.starts[1:]  # every fiber once, in order
        else:
            low, high = level.starts[fiber], level.starts[1:][fiber]
        if self.partial:
            high = np.where(self.element < 0, low, high)
        return Fibers(level, fiber, low, high)

    def follow(self, nodes: Ints) -> None:
        """Go on to the nodes of an inner loop, given by the node each lies in."""
        if self.element is not None:
            self.element = self.element[nodes]
        if self.cut is not None:
            a, b, c = self.cut
            self.cut = a[nodes], b[nodes], c[nodes]

    def bind(self, element: Ints) -> None:
        self.element, self.cut = element, None
        self.bound += 1

    def out(self, nodes: int, where: Ints) -> None:
        """Leave the term at these nodes."""
        element = np.zeros(nodes, dtype=np.int64) if self.element is None else self.element.copy()
        element[where] = -1
        if self.cut is not None:
            fiber, low, high = self.cut
            self.cut = fiber, low, np.where(element < 0, low, high)
        self.element, self.partial = element, True


@dataclass
class Walked:
    """One loop as walked; `element`, `begin`, `reads`, `lookups` by slot number, the first three empty where
    the walk does not keep them; `totals`: sums of the reads."""

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
        """Count of each iteration within its loop."""
        if not self.nodes:
            return self.parent
        found = np.arange(self.nodes, dtype=np.int64)
        if bool((self.parent[1:] > self.parent[:-1]).all()):
            found[:] = 0
            return found
        begin = 0
        for here in blocks(self.nodes):
            number = found[here]
            start = np.full(number.size, begin, dtype=np.int64)
            parent = self.parent[max(here.start - 1, 0) : here.stop]
            new = parent[1:] != parent[:-1]
            inner = start[start.size - new.size :]
            inner[new] = number[start.size - new.size :][new]
            np.maximum.accumulate(start, out=start)
            begin = int(start[-1])
            number -= start
        return found


class Walk:
    """Walks the loops of a plan; `loops` so far, `cursors` at the nodes of the last one.

    `keep`: what each loop touched at each node.
    """

    def __init__(self, plan: Plan, keep: bool = True) -> None:
        self.plan = plan
        self.keep = keep
        self.loops: list[Walked] = []
        self.cursors = [Cursor(s) for s in plan.slots]
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

    def branch(self, nodes: Ints) -> Walk:
        """A walk that goes on from some nodes of the last loop only."""
        found = Walk(self.plan)
        found.skipped, found.nodes = self.at, int(nodes.size)
        for ours, theirs in zip(self.cursors, found.cursors, strict=True):
            theirs.bound, theirs.element, theirs.partial, theirs.cut = (
                ours.bound,
                ours.element,
                ours.partial,
                ours.cut,
            )
            theirs.follow(nodes)
        return found

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

    def _fibers(self, s: int, step: Step, at: int) -> Fibers:
        cursor = self.cursors[s]
        found = cursor.fibers(self.nodes)
        if step.kind != "project":
            return found
        shift = self._shift(step)
        stop = np.full(self.nodes, self.plan.order[at].size, dtype=np.int64)
        start = np.zeros(self.nodes, dtype=np.int64)
        if step.tile is not None:
            start = self.coords_of(step.tile[0])
            stop = np.minimum(start + step.tile[1], stop)
        whole = Fibers(found.level, found.fiber, found.low, found.high, shift, step.factor)
        low = found.low + whole.upto(start - 1)
        high = found.low + whole.upto(stop - 1)
        return Fibers(found.level, found.fiber, low, high, shift, step.factor)

    def _shift(self, step: Step) -> Ints:
        """The sum of the earlier variables of index math."""
        shift = np.zeros(self.nodes, dtype=np.int64)
        for loop, factor in step.offset:
            shift += factor * self.coords_of(loop)
        return shift

    def _residues(self, at: int) -> None:
        """Of index math whose last variable has a factor, only coordinates with the right remainder fit."""
        for s, slot in enumerate(self.plan.slots):
            for step in slot.steps.get(at, ()):
                if step.kind == "residue":
                    cursor = self.cursors[s]
                    wanted = self._shift(step) % step.factor
                    cursor.bind(cursor.fibers(self.nodes).find(np.arange(self.nodes), wanted))
                    cursor.partial = True

    def ancestors(self, loop: int) -> Ints | None:
        """The node of an outer loop that each node of the last loop lies in; None: each its own."""
        found: Ints | None = None
        for walked in reversed(self.loops[loop + 1 :]):
            found = walked.parent if found is None else walked.parent[found]
        return found

    def coords_of(self, loop: int) -> Ints:
        """The coordinate of an outer loop at the nodes of the last one."""
        return self.spread(loop, self.loops[loop].coords)

    def spread(self, loop: int, column: Ints) -> Ints:
        """A column of an outer loop's nodes at the nodes of the last loop."""
        found = self.ancestors(loop)
        result: Ints = column if found is None else column[found]
        return result

    def _co_iterate(self, fibers: dict[int, Fibers]) -> None:
        parts: list[Matched] = []
        slots: list[int] = []
        for term in self.plan.terms:
            mine = [s for s in term.slots if s in fibers]
            if not mine:
                rank = self.plan.order[self.at].name
                what = f"{self.plan.einsum}: a term has no tensor with rank {rank}, which others have"
                raise Refused(what, "give every term all ranks of the loops")
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

    def _without_parts(self, leader: int, fibers: Fibers) -> None:
        """Where the leader has nothing there are no parts: followers have nothing to read either."""
        empty = fibers.high == fibers.low
        if empty.any():
            reads = self.loops[-1].reads
            for s in reads:
                if s != leader:
                    reads[s] = np.where(empty, 0, reads[s])

    def _out_of_terms(self, slots: Sequence[int]) -> None:
        """A term that the union misses is out with all its tensors."""
        for term in self.plan.terms:
            one = next(s for s in slots if s in term.slots)
            element = self.cursors[one].element
            assert element is not None
            gone = np.flatnonzero(element < 0)
            for s in term.slots:
                if s not in slots and gone.size:
                    self.cursors[s].out(self.nodes, gone)

    def _advance(
        self, matched: Matched, slots: Sequence[int], fibers: dict[int, Fibers], bound: Sequence[int] = ()
    ) -> None:
        """Make the nodes of a loop of what its co-iteration yields; the cursors in `bound` are set next."""
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

    def _cut(self, fibers: dict[int, Fibers], cuts: list[int], slots: list[int]) -> None:
        leaders = [s for s in slots if s not in cuts]
        if len(slots) != 2 or len(leaders) != 1 or len(self.plan.terms) > 1:
            names = ", ".join(self.plan.slots[s].name for s in cuts)
            what = f"{self.plan.einsum}: {names} cut by a leader whose fibers they do not have"
            raise Refused(f"{what}, with more than two tensors or several terms")
        leader, follower = leaders[0], cuts[0]
        matched, low, high = cut(fibers[leader], fibers[follower])
        fiber = fibers[follower].fiber[matched.nodes]
        self._advance(matched, [leader, follower], fibers)
        self.cursors[leader].bind(matched.elements[0])
        self.cursors[follower].cut = fiber, low, high

    def _dense(self, at: int) -> None:
        """A rank that no tensor on the right has: all its coordinates, tile by tile."""
        rank = self.plan.order[at]
        step, outer = self.plan.tiles.get(rank.name, (1, None))
        known = rank.name in self.plan.sizes or rank.name in self.plan.tiles
        if not known or rank.flattened or (outer is not None and outer % step):
            what = f"{self.plan.einsum}: no tensor on the right has the rank {rank.name}"
            raise Refused(what, "leave the rank whole or split it by shape into tiles that nest")
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
