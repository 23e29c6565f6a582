"""Neighbours of a mapping: one Einsum's own part of a LoopTree with one tile or storage node changed.

An Einsum's own part is what stands below the innermost split on its path (and below the backing storage).
Only parts of temporal and spatial loops that divide evenly, and of storage that refills, have neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from math import prod

from polymodel.architecture.hierarchy import Hierarchy
from polymodel.factoring import prime_factors
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Node, Split, StorageNode
from polymodel.reuse import Reuse
from polymodel.workload.einsum import Einsum

Held = tuple[int, str]  # the place of a memory in the hierarchy, and a tensor
Factors = tuple[int, ...]
Step = tuple[bool, int]  # whether it is over a fanout; the number of the dimension or slot


@dataclass(frozen=True)
class OwnPart:
    """One Einsum's own part.

    `nodes`: storage, outermost first. Per rank variable, in their order: `temporal`, the number of iterations
    above each node and below the last; `spatial`, of each fanout dimension. `branches`: the branch of each
    split above.
    """

    einsum: Einsum
    hierarchy: Hierarchy
    branches: tuple[int, ...]
    fixed: tuple[Node, ...]
    nodes: tuple[Held, ...]
    temporal: tuple[Factors, ...]
    spatial: tuple[Factors, ...]
    unit: ComputeNode

    def planted(self, tree: LoopTree) -> LoopTree:
        """The tree with this part in place of the Einsum's present one."""
        return LoopTree(_with(tree.nodes, self.branches, (*self.fixed, *self._below())), tree.name)

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """Places of loops, outermost first: those in time above node k and below the last one (False, k), and
        those over fanout dimension f (True, f)."""
        waiting = list(range(len(self.hierarchy.dimensions)))
        place = [self.hierarchy.index(c) for c, _ in self.hierarchy.dimensions]
        result: list[Step] = []
        for k in range(len(self.nodes) + 1):
            inside = self.nodes[k][0] if k < len(self.nodes) else self.hierarchy.index(self.unit.component)
            ready = [f for f in waiting if place[f] <= inside]
            waiting = [f for f in waiting if f not in ready]
            result += [(False, k), *((True, f) for f in ready)]
        return tuple(result)

    def factors(self, v: int) -> Factors:
        """Iterations over a variable at each step."""
        return tuple(self.spatial[v][at] if wide else self.temporal[v][at] for wide, at in self.steps)

    def with_factors(self, v: int, factors: Sequence[int]) -> OwnPart:
        """The part with other iterations over a variable at each step."""
        temporal, spatial = list(self.temporal), list(self.spatial)
        mine, wide = list(temporal[v]), list(spatial[v])
        for (over, at), n in zip(self.steps, factors, strict=True):
            (wide if over else mine)[at] = n
        temporal[v], spatial[v] = tuple(mine), tuple(wide)
        return replace(self, temporal=tuple(temporal), spatial=tuple(spatial))

    def symbolic(self, tree: LoopTree, taken: Collection[str] = ()) -> tuple[LoopTree, list[list[str]]]:
        """The tree with a loop over each variable at each step, and its symbols: per variable the tile below
        each step but the last of several, which leaves single iterations. `taken`: names of other symbols."""
        names = self.einsum.rank_variables
        base = next(b for b in map("tile{}".format, count()) if not any(t.startswith(b) for t in taken))
        symbols = [[f"{base}_{v}_{i}" for i in range(max(1, len(self.steps) - 1))] for v in range(len(names))]
        nodes = self._nodes(lambda v, i: symbols[v][i] if i < len(symbols[v]) else 1)
        return LoopTree(_with(tree.nodes, self.branches, (*self.fixed, *nodes)), tree.name), symbols

    def _below(self) -> tuple[Node, ...]:
        now = [prod(a) * prod(b) for a, b in zip(self.temporal, self.spatial, strict=True)]

        def tile(v: int, step: int) -> int:
            """The tile below a step; 0 if the step has no loop."""
            factor = self.factors(v)[step]
            now[v] //= factor
            return now[v] if factor > 1 else 0

        return self._nodes(tile)

    def _nodes(self, tile: Callable[[int, int], int | str]) -> tuple[Node, ...]:
        """Storage and loops; of nodes without loops between them the order does not matter, and is the same
        whatever it was."""
        result: list[Node] = []
        group: list[Held] = []
        for i, (wide, at) in enumerate(self.steps):
            loops: list[Node] = []
            for v, name in enumerate(self.einsum.rank_variables):
                if size := tile(v, i):
                    component, dim = self.hierarchy.dimensions[at] if wide else ("", None)
                    loops.append(
                        Loop(name, size, spatial=wide, component=component, dim=dim.name if dim else "")
                    )
            if loops:
                result += [*self._stored(group), *loops]
                group = []
            if i + 1 == len(self.steps) or not self.steps[i + 1][0]:
                k = self._last_slot(i)
                group += self.nodes[k : k + 1]
        return (*result, *self._stored(group), self.unit)

    def _last_slot(self, step: int) -> int:
        return max(at for wide, at in self.steps[: step + 1] if not wide)

    def _stored(self, group: Sequence[Held]) -> Iterator[StorageNode]:
        for memory, tensor in sorted(group):
            yield StorageNode(self.hierarchy.components[memory].name, (tensor,))

    def smallest(self) -> OwnPart:
        """The part with all loops in time above all nodes: its tiles are single iterations."""
        none = tuple((1,) * len(self.spatial[v]) for v in range(len(self.spatial)))
        every = zip(self.temporal, self.spatial, strict=True)
        temporal = tuple((prod(t) * prod(s), *(1,) * (len(t) - 1)) for t, s in every)
        return replace(self, temporal=temporal, spatial=none)

    def neighbours(self) -> Iterator[OwnPart]:
        """Parts one move away: factors of a size elsewhere, a node elsewhere, one more or one less."""
        yield from self._other_factors()
        yield from self.other_nodes()

    def _other_factors(self) -> Iterator[OwnPart]:
        """One prime factor of the iterations over a variable, or all of them, in another loop."""
        for v in range(len(self.temporal)):
            each = (*self.temporal[v], *self.spatial[v])
            for source, size in enumerate(each):
                for part in dict.fromkeys((*prime_factors(size), size)) if size > 1 else ():
                    for target in range(len(each)):
                        if target != source:
                            yield self._moved(v, source, target, part)

    def _moved(self, v: int, source: int, target: int, part: int) -> OwnPart:
        each = [*self.temporal[v], *self.spatial[v]]
        each[source] //= part
        each[target] *= part
        many = len(self.temporal[v])
        temporal, spatial = list(self.temporal), list(self.spatial)
        temporal[v], spatial[v] = tuple(each[:many]), tuple(each[many:])
        return replace(self, temporal=tuple(temporal), spatial=tuple(spatial))

    def other_nodes(self) -> Iterator[OwnPart]:
        """A node elsewhere, one less, one more."""
        for at in range(len(self.nodes)):
            for to in range(len(self.nodes)):
                if to not in (at, at - 1):  # neighbours trade places once
                    nodes = [*self.nodes[:at], *self.nodes[at + 1 :]]
                    nodes.insert(to, self.nodes[at])
                    yield replace(self, nodes=tuple(nodes))
        for at in range(len(self.nodes)):
            yield self._without(at)
        for held in self._absent():
            for at in range(len(self.nodes) + 1):
                for below in (True, False):
                    yield self._with_node(held, at, below)

    def _absent(self) -> Iterator[Held]:
        """Inner memories that do not hold a tensor."""
        _, *inner = (i for i, c in enumerate(self.hierarchy.components) if c.stores)
        own = self.hierarchy.index(self.unit.component)
        for memory in (m for m in inner if m < own):
            yield from ((memory, t) for t in self.einsum.tensors if (memory, t) not in self.nodes)

    def _without(self, at: int) -> OwnPart:
        temporal = tuple((*t[:at], t[at] * t[at + 1], *t[at + 2 :]) for t in self.temporal)
        return replace(self, nodes=(*self.nodes[:at], *self.nodes[at + 1 :]), temporal=temporal)

    def _with_node(self, held: Held, at: int, below: bool) -> OwnPart:
        """A further node above or below the loops that stand there."""
        temporal = tuple(
            (*t[:at], *((t[at], 1) if below else (1, t[at])), *t[at + 1 :]) for t in self.temporal
        )
        return replace(self, nodes=(*self.nodes[:at], held, *self.nodes[at:]), temporal=temporal)


def own_part(tree: LoopTree, einsum: Einsum, hierarchy: Hierarchy) -> OwnPart | None:
    """The own part of an Einsum; None if it has no neighbours."""
    branches: list[int] = []
    now = {v: high - low + 1 for v, (low, high) in zip(einsum.rank_variables, einsum.bounds, strict=True)}
    items: list[Node] = []
    for step in tree.path(einsum.name):
        if isinstance(step.node, Split):
            branches.append(step.branch)
            for loop in (n for n in items if isinstance(n, Loop)):
                name, tile = loop.variable_in(einsum.name), loop.within(einsum.name).tile_shape
                now[name] = min(int(tile), now.get(name, 1))
            items = []
        else:
            items.append(step.node)
    if not items or not isinstance(unit := items.pop(), ComputeNode):
        return None
    root = next((n for n in tree.nodes if isinstance(n, StorageNode)), None)
    fixed = tuple(items[:1]) if not branches and items and items[0] is root else ()
    return _SubtreeReader(einsum, hierarchy, now).read(items[len(fixed) :], tuple(branches), fixed, unit)


@dataclass
class _SubtreeReader:
    """Reads what stands below the innermost split. `now`: the tile of each rank variable there."""

    einsum: Einsum
    hierarchy: Hierarchy
    now: dict[str, int]

    def read(
        self, items: Sequence[Node], branches: tuple[int, ...], fixed: tuple[Node, ...], unit: ComputeNode
    ) -> OwnPart | None:
        names, dims = self.einsum.rank_variables, self.hierarchy.dimensions
        nodes: list[Held] = []
        temporal = {v: [1] for v in names}
        spatial = {v: [1] * len(dims) for v in names}
        for node in items:
            if isinstance(node, StorageNode):
                if node.reuse is not Reuse.REFILL or node.component not in self.hierarchy.memories:
                    return None
                for tensor in node.tensors:
                    nodes.append((self.hierarchy.index(node.component), tensor))
                    for each in temporal.values():
                        each.append(1)
                continue
            if not isinstance(node, Loop) or node.uneven or (trips := self._trips(node)) is None:
                return None
            if node.spatial:
                f = next(i for i, (c, d) in enumerate(dims) if (c, d.name) == (node.component, node.dim))
                spatial[node.rank_variable][f] *= trips
            else:
                temporal[node.rank_variable][-1] *= trips
        for v in names:
            temporal[v][-1] *= self.now[v]  # what no loop covers is done point by point
        loops, wide = (tuple(tuple(table[v]) for v in names) for table in (temporal, spatial))
        return OwnPart(self.einsum, self.hierarchy, branches, fixed, tuple(nodes), loops, wide, unit)

    def _trips(self, loop: Loop) -> int | None:
        """Iterations of a loop; None if it is not a plain loop that divides its tile."""
        v, tile = loop.rank_variable, int(loop.tile_shape)
        if v not in self.now or loop.per_einsum or loop.initial_tile_shape is not None:
            return None
        whole = self.now[v]
        if tile >= whole:
            return 1
        self.now[v] = tile
        return None if whole % tile else whole // tile


def _with(nodes: tuple[Node, ...], branches: tuple[int, ...], below: tuple[Node, ...]) -> tuple[Node, ...]:
    """The nodes, with others below the split at which a path takes the last of the branches."""
    if not branches:
        return below
    *above, split = nodes
    assert isinstance(split, Split), "a split is the last node"
    changed = _with(split.branches[branches[0]], branches[1:], below)
    own = (*split.branches[: branches[0]], changed, *split.branches[branches[0] + 1 :])
    return (*above, replace(split, branches=own))
