"""Count the traffic of large tensors for some coordinates of the outermost loop at a time.

From one part to the next, only data are kept that later parts may access again: lines of other tensors that a
buffer never drops, and the content of caches. Memory then grows with the size of a part and not with the
tensor.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import lcm

import numpy as np

from polymodel.governor import look
from polymodel.sparse.execute.plan import OperandSlot, Plan
from polymodel.sparse.fibertree import Fibertree, Ints
from polymodel.sparse.traffic.einsum import CountedEinsum, capacity_lines
from polymodel.sparse.traffic.inputs import BufferedRank, evict_loops, places_of
from polymodel.sparse.traffic.nest import ExpandedPlan, expanded
from polymodel.sparse.traffic.records import EinsumTraffic
from polymodel.sparse.traffic.replacement import LRU, Accesses, FiberAccesses, LeastRecentlyUsed
from polymodel.spec.teaal.records import HardwareComponent

# Nonzeros of the divided tensor in one part; a tensor with at most two parts is not divided.
PART = 2**20
_DOING = "counting the traffic part by part"


def counted(einsum: CountedEinsum, plan: Plan, later: bool) -> EinsumTraffic:
    """Return the traffic of one Einsum. `later`: whether a later Einsum reads its output."""
    whole = expanded(plan, einsum.walked)
    cut = None if later else _cut(einsum, whole)
    result = None if cut is None else _Parts(einsum, whole, cut).traffic()
    if result is None:
        einsum.walk(whole, later)
        result = einsum.traffic()
    return result


def _cut(einsum: CountedEinsum, whole: ExpandedPlan) -> int | None:
    """Return the slot whose tensor is large and can be divided along the outermost loop; None if there is
    none.

    The loop only iterates over that tensor, and populates a rank of the output, so that no part adds to the
    results of another. No binding may depend on more than one part: subtrees that are fetched as wholes,
    mergers, outputs in caches, caches with several instances, and replacement policies that know the future.
    """
    plan = whole.plan
    first = [s for s, slot in enumerate(plan.slots) if 0 in slot.steps]
    if plan.scattered or 0 not in plan.populate or 0 in plan.leaders or len(first) != 1:
        return None
    slot = plan.slots[first[0]]
    if [step.kind for step in slot.steps[0]] != ["iterate"] or slot.tree.nnz <= 2 * PART:
        return None
    twice = sum(s.tensor == slot.tensor for s in plan.slots) > 1
    if twice or any(tensor == slot.tensor and depth for tensor, depth in whole.stored):
        return None
    if einsum.depth(plan) == 0 or any(h.root for h in einsum.held):
        return None
    for component in einsum.components:
        bound = einsum.bound.of(component.name)
        if component.kind == "Merger" and bound:
            return None
        if component.kind == "Intersector" and any(b.rank == plan.order[0].name for b in bound):
            return None
        if component.kind == "Cache" and bound and not one_cache(einsum, component):
            return None
    return first[0]


def one_cache(einsum: CountedEinsum, component: HardwareComponent) -> bool:
    """Return whether a cache holds inputs only, and its replacement depends only on past accesses."""
    if component.instances > 1 or any(b.tensor == einsum.name for b in einsum.bound.of(component.name)):
        return False
    return einsum.replacement in (None, LRU) or component.number("depth") is None


class PartSums:
    """The sums over all parts of one Einsum, which are added one after the other.

    `divided`: tensors that are divided along the outermost loop -> their outermost rank; their fiber of that
    rank is one fiber, of which each part has some elements.
    """

    def __init__(self, einsum: CountedEinsum, loops: tuple[str, ...], divided: Mapping[str, str]) -> None:
        self.einsum, self.names, self.divided = einsum, loops, divided
        # Data that come from no outer memory also occupy lines of a cache.
        self.held = tuple(h for h in einsum.held if h.source is not None or h.cached)
        self.moved = {h.key: [0, 0] for h in self.held}
        self.reach: dict[tuple[str, ...], Ints] = {}
        self.counts: dict[str, tuple[tuple[str, int], ...]] = {}
        self.elements: dict[str, int] = {}  # of the outermost rank, by tensor
        self.caches: dict[str, _PartedCache] = {}
        if einsum.replacement == LRU:
            for component in einsum.components:
                mine = [h for h in einsum.held if h.buffer.name == component.name and h.cached]
                if mine and component.number("depth") is not None:
                    self.caches[component.name] = _PartedCache(mine, capacity_lines(component), divided)

    def add(self, part: CountedEinsum) -> bool:
        """Add a part that has been walked; False where parts differ in how a cache is evaluated."""
        for cache in self.caches.values():
            found = cache.misses(part)
            if found is None:
                return False
            for key, missed in found.items():
                self.moved[key][0] += missed
        for held in self.held:
            if held.buffer.name not in self.caches or not held.cached:
                self._add_lines(part, held)
        for tensor in {h.tensor for h in self.held if self._outermost(h)}:
            output = tensor == part.name
            level = part.out_level(self.names[0]) if output else part.nest.level(tensor, 0)
            self.elements[tensor] = self.elements.get(tensor, 0) + level.elements
        for name, counts in part.unit_counts().items():
            before = self.counts.get(name, tuple((what, 0) for what, _ in counts))
            pairs = zip(before, counts, strict=True)
            self.counts[name] = tuple((what, n + more) for (what, n), (_, more) in pairs)
        return True

    def answer(self, part: CountedEinsum) -> EinsumTraffic:
        """Return the traffic of all parts. `part`: the last of them."""
        if not part.bound.bindings:
            return part.traffic()
        lines = {h.key: self._lines(h) for h in part.fetched}
        if self.einsum.replacement is None:
            for component in part.components:
                mine = [
                    max(lines[h.key]) for h in part.fetched if h.cached and h.buffer.name == component.name
                ]
                if mine and sum(mine) > capacity_lines(component):
                    raise part.overflowing(component)
        return part.answer(lines, self.counts)

    def _add_lines(self, part: CountedEinsum, held: BufferedRank) -> None:
        """Add the lines of one part. Data below the outermost rank belong to one part alone, and so do
        windows within an iteration of the outermost loop. Data of other tensors that move only once are
        merged over all parts."""
        if self._outermost(held):
            return
        if held.tensor not in self.divided and held.tensor != part.name:
            place = places_of(part.nest, held)[held.rank]
            if not evict_loops(held, self.names, place.loop):
                use, known = part.use(held), self.reach.get(held.key)
                self.reach[held.key] = use.reach if known is None else np.maximum(known, use.reach)
                return
        read, write = part.lines(held)
        self.moved[held.key][0] += read
        self.moved[held.key][1] += write

    def _outermost(self, held: BufferedRank) -> bool:
        """Return whether the data belong to the outermost rank, whose fiber is shared by all parts."""
        if held.tensor == self.einsum.name:
            return held.rank == self.names[0]
        return held.rank == self.divided.get(held.tensor)

    def _lines(self, held: BufferedRank) -> tuple[int, int]:
        """Return the lines read and written. Elements of the outermost rank are accessed one by one, in
        order."""
        if held.buffer.name in self.caches and held.cached:
            return self.moved[held.key][0], 0
        if self._outermost(held):
            elements = self.elements.get(held.tensor, 0)
            lines = elements if evict_loops(held, self.names, 0) else -(-elements // held.per_line)
            return (0, lines) if held.tensor == self.einsum.name else (lines, 0)
        read, write = self.moved[held.key]
        return read + int(self.reach.get(held.key, np.zeros(0, dtype=np.int64)).sum()), write


class _Parts:
    """An Einsum whose traffic is counted part by part. `slot`: that of the divided tensor."""

    def __init__(self, einsum: CountedEinsum, whole: ExpandedPlan, slot: int) -> None:
        self.einsum, self.whole, self.slot = einsum, whole, slot
        self.tensor, self.tree = whole.plan.slots[slot].tensor, whole.plan.slots[slot].tree
        loops = tuple(r.name for r in whole.plan.order)
        self.sums = PartSums(einsum, loops, {self.tensor: self.tree.levels[0].rank.name})

    def traffic(self) -> EinsumTraffic | None:
        """Return the sum over all parts; None where parts differ in how a cache is evaluated."""
        for plan in self._plans():
            look(_DOING)
            part = self.einsum.again()
            part.walk(plan, later=False)
            if not self.sums.add(part):
                return None
        return self.sums.answer(part)

    def _plans(self) -> Iterator[ExpandedPlan]:
        plan, slots = self.whole.plan, list(self.whole.plan.slots)
        for tree in _trees(self.tree, self._alignment()):
            slots[self.slot] = replace(plan.slots[self.slot], tree=tree)
            yield ExpandedPlan(replace(plan, slots=tuple(slots)), self.whole.stored)

    def _alignment(self) -> int:
        """Return the number of elements of the outermost rank that fill whole lines in all caches."""
        rank = self.tree.levels[0].rank.name
        return lcm(*(h.per_line for h in self.einsum.held if (h.tensor, h.rank) == (self.tensor, rank)))


def _trees(tree: Fibertree, alignment: int) -> Iterator[Fibertree]:
    """Yield parts with about `PART` nonzeros: whole elements of the outermost rank, a multiple of
    `alignment`."""
    upto, elements = np.cumsum(tree.leaves(0)), tree.levels[0].elements
    begin = done = 0
    while begin < elements:
        end = int(np.searchsorted(upto, done + PART, side="right"))
        end = min(max(end // alignment * alignment, begin + alignment), elements)
        yield tree.part(begin, end)
        begin, done = end, int(upto[end - 1])


class _PartedCache:
    """A cache with least-recently-used replacement. `divided`: the divided tensors, whose lines are numbered
    consecutively over all parts."""

    def __init__(self, held: Sequence[BufferedRank], lines: int, divided: Collection[str]) -> None:
        self.held, self.divided = held, divided
        self.cache = LeastRecentlyUsed(lines)
        self.keys: list[tuple[str, ...]] = []
        self.merges: bool | None = None
        self.begin: dict[tuple[str, ...], int] = {}
        self.fibers = 0

    def misses(self, part: CountedEinsum) -> dict[tuple[str, ...], int] | None:
        """Return the number of lines that miss, by kind of data; None where parts are walked differently."""
        accesses, visits, keys = part.used(self.held, None)
        if self.merges not in (None, visits is not None):
            return None
        self.merges, self.keys = visits is not None, keys
        numbered = [self._numbered(a, key) for a, key in zip(accesses, keys, strict=False)]
        merged = part.nest.merged
        if visits is not None and merged is not None and self._slot(part, merged.slot).tensor in self.divided:
            visits = self._visits(visits, merged.level.fibers)
        return dict(zip(keys, self.cache.misses(numbered, visits), strict=True))

    def _slot(self, part: CountedEinsum, slot: int) -> OperandSlot:
        return part.nest.plan.slots[slot]

    def _numbered(self, accesses: Accesses, key: tuple[str, ...]) -> Accesses:
        if key[1] not in self.divided:
            return accesses
        begin = self.begin.get(key, 0)
        self.begin[key] = begin + int(accesses.line.max(initial=-1)) + 1
        return replace(accesses, line=accesses.line + begin)

    def _visits(self, visits: FiberAccesses, fibers: int) -> FiberAccesses:
        begin, self.fibers = self.fibers, self.fibers + fibers
        return replace(visits, fiber=visits.fiber + begin)
