"""The contents of each storage instance, visit by visit, and what stays from one visit to the next."""

from __future__ import annotations

from dataclasses import dataclass, field

from polymodel.analysis.enumerate.walk import EinsumWalk, Element, Place, SpatialLoop, Time
from polymodel.analysis.result import Problem
from polymodel.mapping.looptree import LoopTree, StorageNode, storage_chain
from polymodel.reuse import Reuse


@dataclass
class ElementUse:
    """The uses of one element in one visit of one instance.

    `first`, `last`: the phases of its first and last use; `einsums`: the Einsums that use it; `readers`:
    those that read it.
    """

    first: int
    last: int
    einsums: list[str]
    written: bool
    readers: set[str] = field(default_factory=set)


Tile = dict[Element, ElementUse]


@dataclass
class BuffetWalk:
    """One tensor in one storage node, element by element.

    `tiles[t][p]` is the tile at stamp (t, p). `carried[t][p]` are the elements that stayed there from the
    preceding visit. `run[t][p][x]` is the visit in which the run of x began. `forgets`: True for a backing
    buffet whose elements are recomputed when it no longer holds them. `asked[t, p]`: phases of operations
    with an access to it, also those that touch no element.
    """

    node: int
    component: str
    tensor: str
    policy: Reuse
    parent: BuffetWalk | None
    depth: int
    users: tuple[str, ...]
    writer: str | None
    n_time: int
    n_place: int
    loops: tuple[SpatialLoop, ...]
    forgets: bool = False
    tiles: dict[Time, dict[Place, Tile]] = field(default_factory=dict)
    carried: dict[Time, dict[Place, set[Element]]] = field(default_factory=dict)
    run: dict[Time, dict[Place, dict[Element, Time]]] = field(default_factory=dict)
    following: dict[Time, Time] = field(default_factory=dict)
    asked: dict[tuple[Time, Place], list[int]] = field(default_factory=dict)

    @property
    def key(self) -> tuple[int, str]:
        return self.node, self.tensor

    @property
    def visits(self) -> list[Time]:
        """Temporal stamps at which some instance has a non-empty tile, in order."""
        return sorted(self.tiles)

    def ask(self, time: Time, place: Place, phase: int) -> None:
        span = self.asked.setdefault((time[: self.n_time], place[: self.n_place]), [phase, phase])
        span[:] = min(span[0], phase), max(span[1], phase)

    def touch(
        self, time: Time, place: Place, element: Element, phase: int, einsum: str, writes: bool
    ) -> None:
        tile = self.tiles.setdefault(time[: self.n_time], {}).setdefault(place[: self.n_place], {})
        use = tile.setdefault(element, ElementUse(phase, phase, [einsum], writes))
        if not writes:
            use.readers.add(einsum)
        use.first, use.last = min(use.first, phase), max(use.last, phase)
        use.written = use.written or writes
        if einsum not in use.einsums:
            use.einsums.append(einsum)


def innermost_dependent(buffet: BuffetWalk) -> int | None:
    """Index of the innermost time coordinate on which the tile depends; None if there is none.

    The tile depends on a coordinate if two visits that differ in nothing else have different
    non-empty tiles in one instance.
    """
    for index in reversed(range(buffet.n_time)):
        seen: dict[tuple[Time, Place], frozenset[Element]] = {}
        for t, places in buffet.tiles.items():
            for p, tile in places.items():
                content = frozenset(tile)
                if seen.setdefault((t[:index] + t[index + 1 :], p), content) != content:
                    return index
    return None


def may_stay(policy: Reuse, before: Time, now: Time, dependent: int | None) -> bool:
    """Whether the policy keeps elements over the step between two successive visits."""
    if not policy.by_tile:
        return policy.carries
    differing = next(i for i, (a, b) in enumerate(zip(before, now, strict=True)) if a != b)
    if dependent is None or differing > dependent:
        return policy.stays_over("inner")
    return policy.stays_over("moving" if differing == dependent else "outer")


def parent_keeps(buffet: BuffetWalk, before: Time, now: Time, place: Place, element: Element) -> bool:
    """True if the parent's instance holds `element` in one run over both visits of this buffet."""
    parent = buffet.parent
    if parent is None or (parent.parent is None and not parent.forgets):
        return True
    old, new = before[: parent.n_time], now[: parent.n_time]
    if old == new:
        return True
    above = place[: parent.n_place]
    begun = parent.run[new][above].get(element)
    return begun is not None and begun == parent.run[old].get(above, {}).get(element)


def settle(buffet: BuffetWalk) -> None:
    """Fill in `carried`, `run` and `following`, visit by visit. The parent must be settled before."""
    dependent = innermost_dependent(buffet) if buffet.policy.by_tile else None
    before: Time | None = None
    for now in buffet.visits:
        if before is not None:
            buffet.following[before] = now
        stays = before is not None and may_stay(buffet.policy, before, now, dependent)
        buffet.carried[now], buffet.run[now] = {}, {}
        for p, tile in buffet.tiles[now].items():
            kept: set[Element] = set()
            if stays and before is not None:
                kept = set(tile) & set(buffet.tiles[before].get(p, ()))
                if buffet.writer is not None:
                    kept = {x for x in kept if parent_keeps(buffet, before, now, p, x)}
            buffet.carried[now][p] = kept
            begun = dict.fromkeys(tile, now)
            if before is not None:
                begun.update({x: buffet.run[before][p][x] for x in kept})
            buffet.run[now][p] = begun
        before = now


Chains = dict[tuple[str, str], tuple[BuffetWalk, ...]]


def _touches(walk: EinsumWalk, depth: int) -> bool:
    """A copy touches only the backing node of its tensors."""
    return depth == 0 or not walk.einsum.is_copy


def _new_buffet(
    problem: Problem, walk: EinsumWalk, node: int, tensor: str, parent: BuffetWalk | None, reuse: Reuse | None
) -> BuffetWalk:
    storage = _storage_nodes(problem.tree)[node]
    n_time, n_place = walk.above[node]
    return BuffetWalk(
        node=node,
        component=storage.component,
        tensor=tensor,
        policy=reuse or storage.reuse,
        parent=parent,
        depth=0 if parent is None else parent.depth + 1,
        users=(),
        writer=None,
        n_time=n_time,
        n_place=n_place,
        loops=walk.spatial[:n_place],
    )


def _storage_nodes(tree: LoopTree) -> dict[int, StorageNode]:
    return {i: node for i, node, _ in tree.walk() if isinstance(node, StorageNode)}


def build_buffets(
    problem: Problem, walks: dict[str, EinsumWalk], phases: dict[Time, int], reuse: Reuse | None
) -> tuple[dict[tuple[int, str], BuffetWalk], Chains]:
    """All buffets that some Einsum touches, settled, and each Einsum's chain of them per tensor."""
    buffets: dict[tuple[int, str], BuffetWalk] = {}
    chains: Chains = {}
    for name, walk in walks.items():
        for tensor in walk.einsum.tensors:
            chain: list[BuffetWalk] = []
            for depth, step in enumerate(storage_chain(problem.tree, name, tensor)):
                if not _touches(walk, depth):
                    break
                key = (step.id, tensor)
                if key not in buffets:
                    parent = chain[-1] if chain else None
                    buffets[key] = _new_buffet(problem, walk, step.id, tensor, parent, reuse)
                buffet = buffets[key]
                buffet.users = (*buffet.users, name)
                if walk.einsum.access_of(tensor).output and not walk.einsum.is_copy:
                    buffet.writer = name
                    buffet.forgets = walk.inferred and buffet.parent is None
                chain.append(buffet)
            chains[name, tensor] = tuple(chain)
            for op in walk.operations:
                for position, writes in walk.positions(tensor):
                    x = op.elements[position]
                    for buffet in chain:
                        buffet.ask(op.time, op.place, phases[op.time])
                        if x is not None:
                            buffet.touch(op.time, op.place, x, phases[op.time], name, writes)
    for key in sorted(buffets, key=lambda k: buffets[k].depth):
        settle(buffets[key])
    return buffets, chains
