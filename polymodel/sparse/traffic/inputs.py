"""How a loop uses one kind of data of an input: which lines it touches, how often and when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.sparse.fibertree import Ints
from polymodel.sparse.traffic.bound import Held
from polymodel.sparse.traffic.cache import Accesses, Clock
from polymodel.sparse.traffic.lanes import Lanes
from polymodel.sparse.traffic.lines import ceil_div, pairs
from polymodel.sparse.traffic.nest import Nest, Place, Stored


@dataclass(frozen=True, eq=False)
class Use:
    """Data of one rank of an input, lazily bound.

    payload: of the elements whose iteration is entered. coordinate: of all that the co-iteration reads,
    matched or not. leader: as coordinate, of the leader of a leader-follower intersection, which reads all of
    its fibers. `stored`: of a follower that is walked over its whole shape. Its elements lie at their place
    among the stored ones; to find that one is not stored, the payload at the place where it would be is read
    (no coordinate: `found` leaves those out). `turn`: orders what happens at the same time.
    """

    nest: Nest
    tensor: str
    place: Place
    per_line: int
    how: Literal["payload", "coordinate", "leader"]
    turn: int
    stored: Stored | None = None
    found: bool = False

    @cached_property
    def line(self) -> Ints:
        """The line of each element; every fiber starts a new one."""
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
        """Nodes of the loop with the element that each enters."""
        element = self.nest.loops[self.place.loop].element[self.nest.slot[self.tensor]]
        nodes = np.flatnonzero(element >= 0)
        if self.stored is not None and self.found:
            nodes = nodes[self.stored.present[element[nodes]]]
        return nodes, element[nodes]

    @cached_property
    def visits(self) -> tuple[Ints, Ints, Ints]:
        """Visits of fibers that read something: the node, the first element read and how many are read."""
        nest, slot = self.nest, self.nest.slot[self.tensor]
        if self.how == "leader":
            fibers = nest.element(self.tensor, self.place.depth - 1, self.place.loop - 1)
            starts = nest.level(self.tensor, self.place.depth).starts
            begin = np.where(fibers < 0, 0, starts[fibers])
            reads = np.where(fibers < 0, 0, starts[fibers + 1] - begin)
        else:
            begin, reads = nest.begins(self.place.loop)[slot], nest.reads(self.place.loop)[slot]
        used = np.flatnonzero(reads)
        return used, begin[used], reads[used]

    def fetched(self, evict: int) -> int:
        """Lines fetched by a buffet; `evict`: loops at or above its eviction.

        The visits of a fiber read its first coordinates, so a window has read as far as the longest of them.
        """
        loop = self.place.loop
        # A loop that is merged enters all that it reads.
        if self.how == "payload" and not self.merged:
            nodes, element = self.entered
            if evict > loop:
                return int(nodes.size)
            windows = self.nest.up(loop, evict - 1)[nodes]
            span = int(self.line.max(initial=0)) + 1
            return int(np.unique(pairs(windows, self.line[element], span)).size)
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
        """Whether the data is of the loop that is merged and not walked."""
        return self.nest.merges_at(self.place.loop) is not None

    @property
    def loop(self) -> int:
        """The loop whose nodes make the accesses: payloads once entered, coordinates from the one above."""
        return self.place.loop if self.how == "payload" else self.place.loop - 1

    def accesses(self, clock: Clock, lanes: Lanes | None = None) -> Accesses:
        """Every access in itself; with `lanes`, on the instance that makes it."""
        if self.how == "payload":
            nodes, element = self.entered
            found = clock.payloads(self.place.loop, self.turn, nodes, self.line[element])
            return found if lanes is None else found.apart(lanes.of(self.loop, nodes), lanes.instances)
        visit, begin, reads = self.visits
        which = np.repeat(np.arange(visit.size), reads)
        element = begin[which] + np.arange(which.size) - (np.cumsum(reads) - reads)[which]
        coords = self.nest.level(self.tensor, self.place.depth).coords[element]
        nodes = visit[which]
        found = clock.coordinates(self.place.loop, self.turn, nodes, coords, self.line[element])
        return found if lanes is None else found.apart(lanes.of(self.loop, nodes), lanes.instances)


def subtree_reads(nest: Nest, tensor: str, root: Place, depth: int, per_line: int, evict: int) -> int:
    """Lines of one rank of subtrees that are fetched whole before the first loop to enter them.

    `root`: the place of the subtree's root fiber, `depth`: of the rank; a window fetches a subtree once.
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
    found = np.unique(pairs(windows, fibers[used], lines.size + 1))
    return int(lines[found % (lines.size + 1)].sum())


def places_of(nest: Nest, held: Held) -> Mapping[str, Place]:
    """Where the ranks of a bound input stand; SpecError or Refused where the binding makes no sense."""
    einsum, tensor = nest.plan.einsum, held.tensor
    if tensor not in nest.slot:
        what = f"{einsum} binds {tensor} to {held.buffer.name} and does not use it"
        raise SpecError([Diagnostic(what, "bind tensors of the Einsum")])
    if tensor in nest.twice:
        what = f"{einsum} reads {tensor} twice: which of them is bound is not told apart"
        raise Refused(what, "give it two names")
    places = nest.places(tensor)
    for rank in (held.rank, held.root or held.rank):
        if rank not in places:
            what = f"{einsum}: {tensor} has no rank {rank} in these loops"
            raise SpecError([Diagnostic(what, f"it has {', '.join(places)}")])
    return places


def use_of(nest: Nest, held: Held, leader: str) -> Use:
    """How a lazily bound input is used. `leader`: of the leader-follower intersection there, if any."""
    place, tensor, slot = places_of(nest, held)[held.rank], held.tensor, nest.slot[held.tensor]
    read = slot in nest.reads(place.loop)
    # A follower is looked up, so what is read of it is what is entered; and it goes by what is stored.
    follows = read and leader not in ("", tensor)
    stored = nest.stored.get((tensor, place.depth)) if follows else None
    if held.kind == "payload" or follows:
        turn = slot if held.kind == "payload" else -1
        return Use(nest, tensor, place, held.per_line, "payload", turn, stored, held.kind != "payload")
    if not read:
        what = f"{nest.plan.einsum}: coordinates of {tensor} {held.rank} are looked up, not read in order"
        raise Refused(what, "bind the payloads, or bind it eagerly")
    how: Literal["leader", "coordinate"] = "leader" if leader == tensor else "coordinate"
    return Use(nest, tensor, place, held.per_line, how, slot)
