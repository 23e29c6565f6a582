"""Describe how a loop uses one kind of data of an input: which lines it accesses, how often and when."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Literal

import numpy as np

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.frozen import dataclass
from polymodel.integers import distinct_numbers
from polymodel.sparse.fibertree import Ints
from polymodel.sparse.traffic.cache import Clock, Lanes, ceil_div, pairs
from polymodel.sparse.traffic.nest import RankBinding, StoredElements, WalkedEinsum
from polymodel.sparse.traffic.replacement import Accesses, together
from polymodel.spec.teaal.records import Binding, HardwareComponent, RankFormat, TeaalSpec, TensorFormat

# The resolved bindings of one Einsum to memories: the data in each buffer, and where they are loaded from.

BUFFERS = ("Buffet", "Cache")
_MEMORIES = ("DRAM", *BUFFERS)


@dataclass(frozen=True)
class BufferedRank:
    """One kind of data of one rank in one buffer. `bits`: those of an element. `root`: the rank at which an
    eager binding starts, empty for a lazy one. `source`: the memory from which the data are loaded, None if
    there is none."""

    buffer: HardwareComponent
    binding: Binding
    rank: str
    kind: str
    bits: int
    root: str = ""
    source: HardwareComponent | None = None

    @property
    def tensor(self) -> str:
        return self.binding.tensor

    @property
    def key(self) -> tuple[str, ...]:
        """The key that identifies these data among all data in the Einsum's buffers."""
        return self.buffer.name, self.tensor, self.rank, self.kind, self.binding.format

    @property
    def width(self) -> int:
        return int(self.buffer.number("width") or 0)

    @property
    def per_line(self) -> int:
        return self.width // self.bits

    @property
    def cached(self) -> bool:
        """True for a cache, which is never emptied."""
        return self.buffer.kind == "Cache"


def element_bits(rank: RankFormat, kind: str) -> int:
    """Return the bits of a coordinate, a payload, or both (an element)."""
    coordinate, payload = rank.cbits or 0, rank.pbits or 0
    return {"coord": coordinate, "payload": payload, "elem": coordinate + payload}[kind]


def buffered_ranks(spec: TeaalSpec, einsum: str) -> tuple[BufferedRank, ...]:
    """Return all data in the Einsum's buffers, in the order of the architecture, then of the text.

    Raises SpecError with every fault: unknown formats or ranks, elements wider than a line, no width, no
    eviction.
    """
    bound = spec.bindings_of(einsum)
    if not bound.bindings:
        return ()
    components = spec.configuration(bound.config).components
    faults: list[Diagnostic] = []
    result: list[BufferedRank] = []
    loads: dict[str, list[tuple[str, str, str, str]]] = {}
    for component in components:
        if component.kind not in _MEMORIES:
            continue
        for binding in bound.of(component.name):
            if component.kind == "DRAM":
                key = (binding.tensor, binding.rank, binding.type, binding.format)
                loads.setdefault(component.name, []).append(key)
                continue
            spread = list(_spread(spec, einsum, component, binding, faults))
            result += spread
            loads.setdefault(component.name, []).extend(_key(h) for h in spread)
    if faults:
        raise SpecError(faults)
    return tuple(replace(h, source=_source(h, components, loads)) for h in result)


def _key(held: BufferedRank) -> tuple[str, str, str, str]:
    return held.tensor, held.rank, held.kind, held.binding.format


def _source(
    held: BufferedRank,
    components: Sequence[HardwareComponent],
    loads: Mapping[str, list[tuple[str, str, str, str]]],
) -> HardwareComponent | None:
    """Return the last memory before this one, in the order of the architecture, that holds the same data."""
    source = None
    for component in components:
        if component.name == held.buffer.name:
            break
        if _key(held) in loads.get(component.name, ()):
            source = component
    return source


def _spread(
    spec: TeaalSpec, einsum: str, buffer: HardwareComponent, binding: Binding, faults: list[Diagnostic]
) -> Iterator[BufferedRank]:
    """Yield a lazy binding by itself, and an eager one as all data of its rank and of the ranks below it."""
    where = f"{einsum}: {binding.tensor} on {buffer.name}"
    form = spec.format_of(binding.tensor, binding.format)
    if form is None:
        what = f"{where}: the tensor has no format {binding.format or '(none named)'}"
        faults.append(Diagnostic(what, "name a configuration of `format:`", code="unknown-name"))
        return
    ranks = {r.rank: r for r in form.ranks}
    if binding.rank not in ranks:
        what = f"{where}: the format {binding.format} has no rank {binding.rank}"
        faults.append(Diagnostic(what, f"it has {', '.join(ranks)}", code="unknown-name"))
        return
    if binding.style == "eager":
        order = _order(form)
        below = order[order.index(binding.rank) :]
        items = [(r, k) for r in below if r in ranks for k in _kinds(ranks[r])]
    else:
        items = [(binding.rank, binding.type)]
    for rank, kind in items:
        bits = element_bits(ranks[rank], kind)
        if not bits:
            continue
        held = BufferedRank(
            buffer, binding, rank, kind, bits, binding.rank if binding.style == "eager" else ""
        )
        if fault := _fault(held, where):
            faults.append(fault)
        else:
            yield held


def _order(form: TensorFormat) -> tuple[str, ...]:
    return form.rank_order or tuple(r.rank for r in form.ranks)


def _kinds(rank: RankFormat) -> tuple[str, ...]:
    if rank.layout == "interleaved":
        return ("elem",)
    return tuple(k for k in ("coord", "payload") if element_bits(rank, k))


def _fault(held: BufferedRank, where: str) -> Diagnostic | None:
    if not held.width:
        message = f"{where}: {held.buffer.name} has no width"
        return Diagnostic(message, "give the bits of a line as `width`", code="missing-value")
    if held.bits > held.width:
        what = f"{where}: each {held.kind} of {held.rank} has {held.bits} bits, a line {held.width}"
        return Diagnostic(what, "make the lines at least as wide as an element", code="inconsistent-values")
    if not held.cached and not held.binding.evict_on:
        message = f"{where}: {held.rank} says no evict-on"
        return Diagnostic(message, "name a loop rank or root", code="missing-key")
    return None


def evict_loops(held: BufferedRank, names: Sequence[str], last: int) -> int:
    """Return how many loops lie at or above the eviction; 0 if there is none. `last`: the loop that binds the
    data (or enters its subtree), below which it cannot be evicted."""
    if held.cached or held.binding.evict_on == "root":
        return 0
    evict = held.binding.evict_on
    if evict not in names:
        what = f"{held.tensor} on {held.buffer.name} is evicted on {evict}, which is not a loop"
        raise SpecError([Diagnostic(what, f"the loops are {', '.join(names)}", code="unknown-name")])
    at = names.index(evict) + 1
    deepest = last if held.root else last + 1
    if at > deepest:
        what = f"{held.tensor} {held.rank} on {held.buffer.name} is evicted on {evict}, inside the loop"
        message = f"{what} that brings it in"
        remedy = f"evict on {names[last]} or a loop around it, or on root"
        raise Refused(message, remedy, code="unsupported-binding")
    return at


@dataclass(frozen=True, eq=False)
class InputRank:
    """Data of one rank of an input, bound lazily.

    `how`: `payload` for payloads of the elements whose iterations are entered; `coordinate` for all
    coordinates that the co-iteration reads, whether they match or not; `leader` for the coordinates of the
    leader of a leader-follower intersection, which reads all of its fibers. `stored`: for a follower that is
    walked over its whole shape. Its elements are located by their position among the stored ones. To
    determine that one is not stored, the payload at its potential position is read (but no coordinate:
    `found` excludes those). `turns`: order simultaneous accesses, one for each time that the Einsum reads the
    element.
    """

    nest: WalkedEinsum
    tensor: str
    place: RankBinding
    per_line: int
    how: Literal["payload", "coordinate", "leader"]
    turns: tuple[int, ...]
    stored: StoredElements | None = None
    found: bool = False

    @cached_property
    def line(self) -> Ints:
        """The line of each element; every fiber starts on a new line."""
        level = self.nest.level(self.tensor, self.place.depth)
        before = np.cumsum(ceil_div(np.diff(level.starts), self.per_line))
        at = (
            np.arange(level.elements) - level.starts[level.fiber]
            if self.stored is None
            else self.stored.place
        )
        first = np.concatenate((np.zeros(1, np.int64), before))
        return first[level.fiber] + at // self.per_line

    @cached_property
    def entered(self) -> tuple[Ints, Ints]:
        """The nodes of the loop, and the element that each of them enters."""
        element = self.nest.loops[self.place.loop].element[self.nest.slot[self.tensor]]
        nodes = np.flatnonzero(element >= 0)
        if self.stored is not None and self.found:
            nodes = nodes[self.stored.present[element[nodes]]]
        return nodes, element[nodes]

    @cached_property
    def visits(self) -> tuple[Ints, Ints, Ints]:
        """Visits of fibers that read something: the node, the first element read and the number of elements
        read, by the read that goes furthest."""
        return self._visits(self.nest.turns(self.tensor))

    def _visits(self, slots: Sequence[int]) -> tuple[Ints, Ints, Ints]:
        nest = self.nest
        if self.how == "leader":
            fibers = nest.element(self.tensor, self.place.depth - 1, self.place.loop - 1)
            starts = nest.level(self.tensor, self.place.depth).starts
            begin = np.where(fibers < 0, 0, starts[fibers])
            reads = np.where(fibers < 0, 0, starts[fibers + 1] - begin)
        else:
            every = nest.reads(self.place.loop)
            begin = nest.begins(self.place.loop)[slots[0]]
            reads = np.maximum.reduce([every[s] for s in slots])
        used = np.flatnonzero(reads)
        return used, begin[used], reads[used]

    @cached_property
    def reach(self) -> Ints:
        """The lines that a buffet without eviction fetches: for each line of payloads, or fiber of
        coordinates, the number of lines touched."""
        level = self.nest.level(self.tensor, self.place.depth)
        if self.how == "payload" and not self.merged:
            touched = np.zeros(int(self.line.max(initial=-1)) + 1, dtype=np.int64)
            touched[self.line[self.entered[1]]] = 1
            return touched
        result = np.zeros(level.fibers, dtype=np.int64)
        _, begin, reads = self.visits
        fiber = np.searchsorted(level.starts, begin, side="right") - 1
        np.maximum.at(result, fiber, ceil_div(reads, self.per_line))
        return result

    def fetched(self, evict: int) -> int:
        """Return the lines fetched by a buffet. `evict`: number of loops at or above its eviction.

        The visits of a fiber read its first coordinates, so that the lines of a window are those of its
        longest visit.
        """
        loop = self.place.loop
        # A merged loop enters all elements that it reads.
        if self.how == "payload" and not self.merged:
            nodes, element = self.entered
            if evict > loop:
                return int(nodes.size)
            windows = self.nest.up(loop, evict - 1)[nodes]
            span = int(self.line.max(initial=0)) + 1
            return int(distinct_numbers(pairs(windows, self.line[element], span)).size)
        visit, begin, reads = self.visits
        if evict > loop:
            return int(reads.sum())
        if not visit.size:
            return 0
        keys = pairs(self.nest.up(loop - 1, evict - 1)[visit], begin, int(begin.max()) + 1)
        order = np.argsort(keys, kind="stable")
        keys, lines = keys[order], ceil_div(reads[order], self.per_line)
        starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
        return int(np.maximum.reduceat(lines, starts).sum())

    @property
    def merged(self) -> bool:
        """True if the data belong to the loop that is merged and not walked."""
        return self.nest.merges_at(self.place.loop) is not None

    @property
    def loop(self) -> int:
        """The loop whose nodes make the accesses: to payloads when they are entered, to coordinates from the
        next outer loop."""
        return self.place.loop if self.how == "payload" else self.place.loop - 1

    def accesses(self, clock: Clock, lanes: Lanes | None = None) -> Accesses:
        """Return every single access; with `lanes`, on the instance that makes it."""
        return together([self._accesses(clock, lanes, turn) for turn in self.turns])

    def _accesses(self, clock: Clock, lanes: Lanes | None, turn: int) -> Accesses:
        if self.how == "payload":
            nodes, element = self.entered
            result = clock.payloads(self.place.loop, turn, nodes, self.line[element])
            return result if lanes is None else result.apart(lanes.of(self.loop, nodes), lanes.instances)
        visit, begin, reads = self._visits((turn,))
        which = np.repeat(np.arange(visit.size), reads)
        element = begin[which] + np.arange(which.size) - (np.cumsum(reads) - reads)[which]
        coords = self.nest.level(self.tensor, self.place.depth).coords[element]
        nodes = visit[which]
        result = clock.coordinates(self.place.loop, turn, nodes, coords, self.line[element])
        return result if lanes is None else result.apart(lanes.of(self.loop, nodes), lanes.instances)


def subtree_reads(
    nest: WalkedEinsum, tensor: str, root: RankBinding, depth: int, per_line: int, evict: int
) -> int:
    """Return the lines of one rank of subtrees that are fetched as wholes before the first loop that enters
    them.

    `root`: the location of the subtree's root fiber. `depth`: that of the rank. A window fetches a subtree
    once.
    """
    level = nest.level(tensor, depth)
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(ceil_div(np.diff(level.starts), per_line))))
    bounds = np.arange(nest.level(tensor, root.depth).fibers + 1, dtype=np.int64)
    for at in range(root.depth, depth):
        bounds = nest.level(tensor, at).starts[bounds]
    lines = np.diff(before[bounds])
    fibers = nest.element(tensor, root.depth - 1, root.loop - 1)
    used = np.flatnonzero(fibers >= 0)
    windows = nest.up(root.loop - 1, min(evict, root.loop) - 1)[used]
    result = distinct_numbers(pairs(windows, fibers[used], lines.size + 1))
    return int(lines[result % (lines.size + 1)].sum())


def places_of(nest: WalkedEinsum, held: BufferedRank) -> Mapping[str, RankBinding]:
    """Return the loop and depth of each rank of a bound input. Raises SpecError or Refused where the binding
    is invalid."""
    einsum, tensor = nest.plan.einsum, held.tensor
    if tensor not in nest.slot:
        what = f"{einsum} binds {tensor} to {held.buffer.name} and does not use it"
        raise SpecError([Diagnostic(what, "bind tensors of the Einsum", code="unknown-name")])
    if tensor in nest.unlike:
        what = f"{einsum} reads {tensor} at different elements: the binding does not distinguish them"
        raise Refused(what, "give it two names", code="unsupported-binding")
    places = nest.places(tensor)
    for rank in (held.rank, held.root or held.rank):
        if rank not in places:
            what = f"{einsum}: {tensor} has no rank {rank} in these loops"
            raise SpecError([Diagnostic(what, f"it has {', '.join(places)}", code="unknown-name")])
    return places


def use_of(nest: WalkedEinsum, held: BufferedRank, leader: str) -> InputRank:
    """Return how a lazily bound input is used. `leader`: that of the leader-follower intersection there, if
    any."""
    place, tensor, slot = places_of(nest, held)[held.rank], held.tensor, nest.slot[held.tensor]
    read = slot in nest.reads(place.loop)
    # A follower is looked up, so that the elements entered are those read, located among the stored ones.
    follows = read and leader not in ("", tensor)
    if read and leader and len(nest.turns(tensor)) > 1:
        what = f"{nest.plan.einsum} reads {tensor} twice where {leader} leads, itself or as what follows"
        raise Refused(what, "give it two names, or let no tensor lead", code="unsupported-binding")
    stored = nest.stored.get((tensor, place.depth)) if follows else None
    if held.kind == "payload" or follows:
        turns = nest.turns(tensor) if held.kind == "payload" else (-1,)
        return InputRank(nest, tensor, place, held.per_line, "payload", turns, stored, held.kind != "payload")
    if not read:
        what = f"{nest.plan.einsum}: coordinates of {tensor} {held.rank} are looked up, not read in order"
        raise Refused(what, "bind the payloads, or bind it eagerly", code="unsupported-binding")
    how: Literal["leader", "coordinate"] = "leader" if leader == tensor else "coordinate"
    return InputRank(nest, tensor, place, held.per_line, how, nest.turns(tensor))
