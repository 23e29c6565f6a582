"""Fills, drains and operand accesses, simulated in the order in which they happen."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count, groupby
from math import inf

from polymodel.analysis.enumerate.buffets import BuffetWalk, Chains
from polymodel.analysis.enumerate.links import Wires
from polymodel.analysis.enumerate.walk import (
    EinsumWalk,
    Element,
    ExecutedOperation,
    Place,
    SpatialLoop,
    Time,
    physical,
)
from polymodel.analysis.result import Problem
from polymodel.architecture.hierarchy import ActionCost, Hierarchy
from polymodel.spec.arch_schema import branches_to

Counts = dict[str, int]
Instance = tuple[tuple[str, str, int], ...]
End = tuple[str, str, Instance, int, str]  # Einsum, component, instance, side, refilled storage or ""
Row = tuple[str, int | None, str, str, str]  # Einsum, node (None: a toll), component, tensor, kind
Event = tuple[str, str, Time, bool]  # Einsum, component, the child's stamp, as it ends
Moved = tuple[str, Place, Element]  # Einsum that it is booked to, the child's instance, the element


class ElementLedger:
    """Sums of elements by (Einsum, node, tensor), by toll, and of bits by hardware instance.

    If an action rounds transfers up, their elements are collected first; `settle` rounds them.
    """

    def __init__(
        self, bits: dict[str, int], wires: Wires, hierarchy: Hierarchy, overlapped: frozenset[str]
    ) -> None:
        self.bits, self.wires, self.hierarchy, self.overlapped = bits, wires, hierarchy, overlapped
        self.gathered: dict[Row, dict[tuple[object, ...], int]] = defaultdict(lambda: defaultdict(int))
        self.serial = count()
        self.traffic: dict[tuple[str, int, str], Counts] = defaultdict(lambda: defaultdict(int))
        self.tolls: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0])
        self.loads: dict[tuple[str, str], dict[Instance, list[int]]] = defaultdict(
            lambda: defaultdict(lambda: [0, 0])
        )
        self.shares: dict[tuple[str, str, str], dict[Instance, list[int]]] = defaultdict(
            lambda: defaultdict(lambda: [0, 0])
        )
        # the times of loads of Einsums in pipelines (`overlapped`), in which nothing is rounded
        self.moment: tuple[Time, bool] = ((), False)
        self.timed: dict[Event, dict[Instance, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))

    def access(
        self,
        einsum: str,
        buffet: BuffetWalk,
        place: Place,
        kind: str,
        stamp: object = None,
        refilled: BuffetWalk | None = None,
    ) -> None:
        """One element read (`reads_*`) or written (`writes_*`) in one instance of `buffet`.

        `refilled`: the storage at the lower end of the link, None for compute and copies. `stamp`: what it
        has in common with the other elements of its transfer; None if it moves alone.
        """
        self.traffic[einsum, buffet.node, buffet.tensor][kind] += 1
        instance, side = physical(buffet.loops, place), 0 if kind.startswith("reads") else 1
        end = einsum, buffet.component, instance, side, refilled.component if refilled else ""
        action, bits = self.action(buffet.component, side), self.bits[buffet.tensor]
        if stamp is not None and action.rounds(bits):
            row = einsum, buffet.node, buffet.component, buffet.tensor, kind
            self.gathered[row][end, place, stamp] += 1
        else:
            self.load(end, action.whole_bits(bits))

    def passage(
        self, einsum: str, toll: str, instance: Instance, tensor: str, direction: int, stamp: object
    ) -> None:
        """One element through one instance of a toll: 0 downwards, 1 upwards."""
        self.tolls[einsum, toll, tensor][direction] += 1
        end, bits = (einsum, toll, instance, direction, ""), self.bits[tensor]
        if self.action(toll, direction).rounds(bits):
            row = einsum, None, toll, tensor, ("down", "up")[direction]
            self.gathered[row][end, next(self.serial) if stamp is None else (stamp,)] += 1
        else:
            self.load(end, bits)

    def action(self, component: str, side: int) -> ActionCost:
        return self.hierarchy[component].ways[side]

    def load(self, end: End, bits: int) -> None:
        """Bits that one instance moves in one direction, possibly as part of a storage's refill."""
        einsum, component, instance, side, refilled = end
        self.loads[einsum, component][instance][side] += bits
        if einsum in self.overlapped:
            self.timed[einsum, component, *self.moment][instance][side] += bits
        if refilled:
            self.shares[einsum, component, refilled][instance][side] += bits

    def settle(self) -> None:
        """Round all collected transfers up to whole actions."""
        for row, transfers in self.gathered.items():
            for (end, *_), elements in transfers.items():
                assert isinstance(end, tuple)
                self.load(end, self.action(row[2], end[3]).whole_bits(elements * self.bits[row[3]]))

    def sizes(self, row: Row) -> tuple[tuple[int, int], ...]:
        """The number of transfers of each size in elements."""
        return tuple(sorted(Counter(self.gathered[row].values()).items()))


@dataclass(frozen=True)
class TollInstances:
    """A toll on a link: the spatial loops that distinguish its instances, and those that distinguish
    accesses."""

    toll: str
    own: tuple[int, ...]
    apart: tuple[int, ...]


@dataclass(frozen=True)
class BuffetPath:
    """The path of one tensor from a parent buffet to its child, for one Einsum.

    The child is a deeper buffet or the operations themselves, below `n_place` spatial loops, in the component
    `child`. `unshared`: positions of loops on the way whose dimension may not reuse the tensor; `silent`: of
    the others, those along which a partial sum goes to one instance only.
    """

    parent: BuffetWalk
    child: str
    loops: tuple[SpatialLoop, ...]
    unshared: tuple[int, ...]
    silent: tuple[int, ...]
    passages: tuple[TollInstances, ...]

    def at_parent(self, place: Place, element: Element) -> tuple[object, ...]:
        """The key of one access at the parent: parent instance, unshared counters and element."""
        return place[: self.parent.n_place], tuple((i, place[i]) for i in self.unshared), element

    def at_toll(self, passage: TollInstances, place: Place) -> Instance:
        """The toll's hardware instance."""
        kept = tuple(self.loops[i] for i in passage.own)
        return physical(kept, tuple(place[i] for i in passage.own))


def find_link(
    hierarchy: Hierarchy, walk: EinsumWalk, parent: BuffetWalk, child: str, n_place: int
) -> BuffetPath:
    """The link below `parent` for the Einsum of `walk`; `child` is the component at its lower end."""
    einsum, tensor, loops = walk.einsum.name, parent.tensor, walk.spatial[:n_place]
    between = range(parent.n_place, n_place)
    dims = [hierarchy[loop.component].dim(loop.dim) for loop in loops]
    indexing = walk.einsum.indexing(tensor)
    unshared = tuple(
        i for i in between if not dims[i].shares(einsum, tensor, indexed=loops[i].variable in indexing)
    )
    silent = tuple(i for i in between if i not in unshared and not dims[i].broadcast_partials)
    top, bottom = hierarchy.index(parent.component), hierarchy.index(child)
    passages = []
    for position in range(top + 1, bottom):
        toll = hierarchy.components[position]
        if not toll.passes or toll.keep is None or tensor not in toll.keep.tensors(einsum):
            continue
        if toll.branch not in branches_to(hierarchy[child].branch):
            continue
        own = tuple(i for i in range(n_place) if hierarchy.index(loops[i].component) <= position)
        apart = tuple(i for i in range(n_place) if i in own or i < parent.n_place or i in unshared)
        passages.append(TollInstances(toll.name, own, apart))
    return BuffetPath(parent, child, loops, unshared, silent, tuple(passages))


class Simulation:
    """The simulation of one tensor: which instance holds a value of which element, event by event."""

    def __init__(
        self,
        problem: Problem,
        walks: dict[str, EinsumWalk],
        chains: Chains,
        tensor: str,
        ledger: ElementLedger,
    ) -> None:
        self.problem, self.walks, self.tensor, self.ledger = problem, walks, tensor, ledger
        self.order = {name: i for i, name in enumerate(walks)}
        self.chains = {e: chain for (e, t), chain in chains.items() if t == tensor}
        found = {b.key: b for chain in self.chains.values() for b in chain}
        self.buffets = list(found.values())
        self.links: dict[tuple[str, int], BuffetPath] = {}
        self.valued: dict[int, dict[Place, set[Element]]] = {b.node: defaultdict(set) for b in self.buffets}
        self.dirty: dict[int, dict[Place, set[Element]]] = {b.node: defaultdict(set) for b in self.buffets}

    def play(self) -> None:
        """All events in order: a visit opens, operations run, a visit closes."""
        self.begin()
        events: list[tuple[tuple[float, ...], str, object, object]] = []
        for b in self.buffets:
            for t in b.tiles:
                events.append(((*t, -inf, b.depth), "open", b, t))
                events.append(((*t, inf, -b.depth), "close", b, t))
        for name in self.chains:
            if not self.walks[name].einsum.is_copy:
                for time, group in groupby(self.walks[name].operations, key=lambda o: o.time):
                    events.append(((*time, 0, 0), "run", name, list(group)))
                events += self.restarts(self.walks[name])
        for _, kind, subject, detail in sorted(events, key=lambda e: e[0]):
            if kind in ("run", "restart"):
                assert isinstance(subject, str)
                assert isinstance(detail, list)
                (self.run if kind == "run" else self.restart)(subject, detail)
                continue
            assert isinstance(subject, BuffetWalk)
            assert isinstance(detail, tuple)
            (self.open if kind == "open" else self.close)(subject, detail)

    def begin(self) -> None:
        """What an Einsum adds to is in its backing storage from the start."""
        for einsum, chain in self.chains.items():
            if self.walks[einsum].einsum.access_of(self.tensor).accumulates:
                for places in chain[0].tiles.values():
                    for p, tile in places.items():
                        self.valued[chain[0].node][p].update(tile)

    def restarts(self, walk: EinsumWalk) -> Iterable[tuple[tuple[float, ...], str, object, object]]:
        """Before each execution of a repeated Einsum its results start afresh."""
        depth = walk.afresh
        if depth and walk.einsum.access_of(self.tensor).output:
            for stamp, group in groupby(walk.operations, key=lambda o: o.time[:depth]):
                yield (*stamp, -inf, -1), "restart", walk.einsum.name, list(group)

    def restart(self, einsum: str, operations: list[ExecutedOperation]) -> None:
        access = self.walks[einsum].einsum.access_of(self.tensor)
        position = self.walks[einsum].einsum.accesses.index(access)
        for buffet in self.chains[einsum]:
            for o in operations:
                x = o.elements[position]
                assert x is not None
                self.valued[buffet.node][o.place[: buffet.n_place]].discard(x)

    def link(self, einsum: str, child: BuffetWalk | None) -> BuffetPath:
        """The link into `child`, or into the operations of `einsum` if there is no child."""
        key = (einsum, child.node if child else -1)
        if key not in self.links:
            walk = self.walks[einsum]
            if child is None:
                ends = self.chains[einsum][-1], walk.compute.component, len(walk.spatial)
                self.links[key] = find_link(self.problem.hierarchy, walk, *ends)
            else:
                assert child.parent is not None
                ends = child.parent, child.component, child.n_place
                self.links[key] = find_link(self.problem.hierarchy, walk, *ends)
        return self.links[key]

    def open(self, buffet: BuffetWalk, t: Time) -> None:
        """A visit begins: what is not carried is dropped, what is needed and exists is filled."""
        self.ledger.moment = t, False
        valued, dirty = self.valued[buffet.node], self.dirty[buffet.node]
        tiles, carried = buffet.tiles[t], buffet.carried[t]
        for p in set(valued) | set(dirty) | set(tiles):
            if buffet.parent is not None or buffet.forgets:
                valued[p] &= carried.get(p, set())
            dirty[p] &= carried.get(p, set())
        if buffet.parent is not None:
            inputs: list[Moved] = []
            outputs: list[Moved] = []
            for p, tile in tiles.items():
                for x, use in tile.items():
                    if x in carried[p]:
                        continue
                    if use.written:
                        assert buffet.writer is not None
                        outputs.append((buffet.writer, p, x))
                        if buffet.n_time < self.walks[buffet.writer].afresh:
                            # All executions of this visit are still to come: an earlier one left the value.
                            self.valued[buffet.parent.node][p[: buffet.parent.n_place]].discard(x)
                    else:
                        inputs.append((use.einsums[0], p, x))
            sums = self.partial_sums(buffet, buffet.parent, outputs)
            received = [
                *self.serve(buffet, buffet.parent, inputs, t),
                *self.serve(buffet, buffet.parent, sums, t),
            ]
            for einsum, p, x in received:
                self.ledger.access(einsum, buffet, p, "writes_fill", t, buffet)
                valued[p].add(x)
        for p, tile in tiles.items():
            dirty[p].update(x for x, use in tile.items() if use.written)

    def close(self, buffet: BuffetWalk, t: Time) -> None:
        """A visit ends: written elements that do not stay are drained."""
        if buffet.parent is None:
            return
        self.ledger.moment = t, True
        after = buffet.carried.get(buffet.following.get(t, ()), {}) if t in buffet.following else {}
        leaving: list[Moved] = []
        for p in buffet.tiles[t]:
            for x in self.dirty[buffet.node][p] - after.get(p, set()):
                assert buffet.writer is not None
                leaving.append((buffet.writer, p, x))
                self.ledger.access(buffet.writer, buffet, p, "reads_drain", t, buffet)
        self.drain(buffet, buffet.parent, leaving, t)

    def run(self, einsum: str, operations: list[ExecutedOperation]) -> None:
        """The operations of one phase: operands are read, each access by itself, and outputs updated."""
        parent = self.chains[einsum][-1]
        self.ledger.moment = operations[0].time, False
        for position, writes in self.walks[einsum].positions(self.tensor):
            touched = ((o.place, o.elements[position]) for o in operations)
            moved = [(einsum, place, x) for place, x in touched if x is not None]
            if not writes:
                self.serve(None, parent, moved)
                continue
            self.serve(None, parent, self.partial_sums(None, parent, moved))
            self.drain(None, parent, moved)

    def partial_sums(
        self, child: BuffetWalk | None, parent: BuffetWalk, needed: Iterable[Moved]
    ) -> list[Moved]:
        """Of the needed output elements those that the parent holds, with the instances that receive them."""
        groups: dict[object, list[Moved]] = defaultdict(list)
        for einsum, p, x in needed:
            holds = x in self.valued[parent.node][p[: parent.n_place]]
            if holds or self.problem.hierarchy[parent.component].read_first:
                groups[self.link(einsum, child).at_parent(p, x)].append((einsum, p, x))
        received = []
        for group in groups.values():
            silent = self.link(group[0][0], child).silent
            chosen = min(tuple(p[i] for i in silent) for _, p, _ in group)
            received += [m for m in group if tuple(m[1][i] for i in silent) == chosen]
        return received

    def serve(
        self, child: BuffetWalk | None, parent: BuffetWalk, moved: list[Moved], t: Time | None = None
    ) -> list[Moved]:
        """Read `moved` at the parent, once per group that shares; returns it. `t`: the child's visit."""
        in_order = sorted(moved, key=lambda m: self.order[m[0]])
        served = {self.link(e, child).at_parent(p, x): (e, p) for e, p, x in reversed(in_order)}
        for group, (einsum, p) in served.items():
            stamp = (child.node, t, group[1]) if child else None
            self.ledger.access(einsum, parent, p[: parent.n_place], "reads_fill", stamp, child)
        self.pass_tolls(child, in_order, 0, t)
        self.cross(child, in_order, 0)
        return moved

    def drain(
        self, child: BuffetWalk | None, parent: BuffetWalk, moved: list[Moved], t: Time | None = None
    ) -> None:
        """Write `moved` at the parent, once per group that is reduced; the parent then holds it."""
        drained = {self.link(e, child).at_parent(p, x): (e, p, x) for e, p, x in moved}
        for group, (einsum, p, x) in drained.items():
            stamp = (child.node, t, group[1]) if child else None
            self.ledger.access(einsum, parent, p[: parent.n_place], "writes_drain", stamp, child)
            self.valued[parent.node][p[: parent.n_place]].add(x)
        self.pass_tolls(child, moved, 1, t)
        self.cross(child, moved, 1)

    def cross(self, child: BuffetWalk | None, in_order: list[Moved], direction: int) -> None:
        """Send what is one access at the parent over the fanout's links as one transfer."""
        if not self.ledger.wires.dims:
            return
        groups: dict[object, list[Moved]] = defaultdict(list)
        for m in in_order:
            groups[self.link(m[0], child).at_parent(m[1], m[2])].append(m)
        for group in groups.values():
            link = self.link(group[0][0], child)
            ways = [(e, self.link(e, child).loops, p) for e, p, _ in group]
            ends = link.parent.component, link.child
            self.ledger.wires.transfer(self.tensor, ends, ways, direction)

    def pass_tolls(
        self, child: BuffetWalk | None, in_order: list[Moved], direction: int, t: Time | None
    ) -> None:
        """Book every distinct passage of `in_order` through the tolls on the way."""
        passed: dict[tuple[object, ...], tuple[str, str, Instance]] = {}
        for einsum, p, x in reversed(in_order):
            link = self.link(einsum, child)
            for passage in link.passages:
                apart = tuple((i, p[i]) for i in passage.apart)
                passed[passage.toll, apart, x] = (einsum, passage.toll, link.at_toll(passage, p))
        for group, (einsum, toll, instance) in passed.items():
            stamp = (child.node, t, group[1]) if child else None
            self.ledger.passage(einsum, toll, instance, self.tensor, direction, stamp)
