"""All tile sizes of a mapping's storage nodes at once, by the closed forms of sparse counts.

Where counts on sparse data have closed forms (`sweeps.sparse`), the mappings that have the same storage nodes
in the same order are evaluated as arrays, hundreds of thousands in a second. So orders of nodes are searched,
each at its best tile sizes: all if they are few, else always neighbours of the best order that has some left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from heapq import heappop, heappush
from math import inf, prod
from typing import Any

import numpy as np

from polymodel.architecture.hierarchy import Hierarchy
from polymodel.errors import Refused, SpecError
from polymodel.factoring import prime_factors
from polymodel.loading import Spec
from polymodel.mapper.membership import ordered, outside
from polymodel.mapper.records import CLOSE, Limits, Shares
from polymodel.mapper.space import EinsumSpace, einsum_spaces
from polymodel.mapper.tree_moves import Factors, OwnPart, own_part
from polymodel.mapping.looptree import Loop, LoopTree, Node, Split, StorageNode
from polymodel.pareto import undominated_but_for_rounding
from polymodel.sweeps.chains import ChoiceFront, front_of_choices

Array = Any
POINTS = 300_000  # combinations of tile sizes of one order of nodes
MOST = 40  # orders of nodes that are swept for one figure; up to so many all are
PATIENCE = 12  # orders without a better mapping, where there are more
AGAIN = 3  # sweeps of one order around the best tile sizes so far, if not all sizes are swept at once
TRIES = 2  # orders without closed forms on a machine, after which none is tried there
TINY = 1e-300

Skeleton = tuple[int, str, tuple[tuple[int, str], ...], tuple[Node, ...]]


@dataclass(frozen=True)
class SweptOrder:
    """One order of nodes: the front of its tile sizes. `trees`: the mapping of each point; `whole`: whether
    these are all tile sizes."""

    values: Array  # [objectives, points]
    trees: Callable[[int], LoopTree]
    whole: bool

    def least(self, figure: Sequence[int]) -> tuple[float, int]:
        """The least of the sums of logarithms of some objectives, and its point."""
        if not self.values.shape[1]:
            return inf, -1
        sums = np.log(np.maximum(self.values[list(figure)], TINY)).sum(axis=0)
        return float(sums.min()), int(sums.argmin())


def sweepable(limits: Limits) -> bool:
    """Whether all tile sizes that divide are mappings of the space."""
    others = limits.rules or limits.min_utilisation or limits.moves or limits.halos
    return limits.sizes == "divisors" and not others


@dataclass(frozen=True)
class ExploredMachine:
    """One combination of choices: its spec, the hierarchy that is explored, the least shares of each Einsum,
    the combination as a text and each choice in words."""

    spec: Spec
    hierarchy: Hierarchy
    shares: tuple[Shares, ...]
    text: str = ""
    words: tuple[str, ...] = ()

    def differs(self, other: ExploredMachine) -> int:
        """The number of choices that are not the same."""
        return sum(a != b for a, b in zip(self.words, other.words, strict=True))

    @cached_property
    def einsums(self) -> tuple[str, ...]:
        return tuple(e.name for e in self.spec.workload.einsums)


@dataclass(frozen=True)
class KnownSpace:
    """Which mappings the space has, as far as that is known of single mappings."""

    machines: Sequence[ExploredMachine]
    limits: Limits

    @cached_property
    def einsums(self) -> list[dict[str, EinsumSpace]]:
        """The space of each Einsum, by machine and name."""
        each = (einsum_spaces(m.spec.workload, m.hierarchy, self.limits) for m in self.machines)
        return [{s.name: s for s in spaces} for spaces in each]

    def inside(self, k: int, einsum: str, tree: LoopTree) -> bool:
        """Whether the space is known to have an Einsum's part of a mapping, which shares no loops."""
        space = self.einsums[k][einsum]
        if space.copy or _shares_loops(tree, einsum):
            return False
        try:
            return not outside(space, tree, self.limits, self.machines[k].hierarchy)
        except Refused:
            return False

    def ordered(self, k: int, part: OwnPart) -> bool:
        """Whether the order of nodes is one of the space, whatever loops are between them."""
        names = [(part.hierarchy.components[m].name, t) for m, t in part.nodes]
        return ordered(self.einsums[k][part.einsum.name], self.limits, names)

    def is_alone(self, k: int, tree: LoopTree) -> bool:
        """Whether mappings of the only Einsum differ in storage nodes and tile sizes alone."""
        (space, *others), root = self.einsums[k].values(), tree.nodes[0]
        backed = isinstance(root, StorageNode) and {*root.tensors} == {o.tensor for o in space.operands}
        return backed and not others and not space.copy and len(space.units) == 1


def _shares_loops(tree: LoopTree, einsum: str) -> bool:
    path = [s.node for s in tree.path(einsum)]
    splits = [i for i, n in enumerate(path) if isinstance(n, Split)]
    return any(isinstance(n, Loop) for n in path[: max(splits, default=0)])


@dataclass
class OrderSearch:
    """A search over orders of nodes on several machines (combinations of choices).

    `space`: which mappings there are; `over`: whether time is.
    """

    machines: Sequence[ExploredMachine]
    objectives: Sequence[str]
    space: KnownSpace
    over: Callable[[], bool]
    swept: dict[Skeleton, SweptOrder | None] = field(default_factory=dict)
    without: dict[int, int] = field(default_factory=dict)  # orders of each machine without closed forms

    def exhaustive(self, starts: Sequence[tuple[int, LoopTree]]) -> bool:
        """Sweep all orders of an only Einsum, if they are few; whether that is the whole space."""
        waiting, seen = list(starts), dict[Skeleton, tuple[int, OwnPart, LoopTree]]()
        if not all(self.space.is_alone(k, tree) for k, tree in starts):
            return False
        for k, tree in waiting:  # it grows while it is gone through
            for part in self._parts(k, tree):
                seen.setdefault(skeleton(k, part, tree), (k, part, tree))
            for other, near, moved in self._others(k, tree):
                key = skeleton(other, near, moved)
                if key not in seen:
                    seen[key] = other, near, moved
                    waiting.append((other, moved))
            if len(seen) > MOST or self.over():
                return False
        for key, order in sorted(seen.items(), key=lambda item: item[0][:3]):
            if self.over() or (found := self._front(*order)) is None:
                return False
            self.swept[key] = found
        return all(self.whole(*order) for order in seen.values())

    def run(self, figure: Sequence[int], starts: Sequence[tuple[int, LoopTree]]) -> None:
        """Sweep orders from those of some mappings on, for the sum of logarithms of some objectives."""
        waiting: list[tuple[float, int, Iterator[tuple[int, OwnPart, LoopTree]]]] = []
        begun: set[Skeleton] = set()
        best, last, patience = inf, len(self.swept) + MOST, PATIENCE
        every: Iterator[tuple[int, OwnPart, LoopTree]] = (
            (k, part, tree) for k, tree in starts for part in self._parts(k, tree)
        )
        heappush(waiting, (-inf, 0, every))
        while waiting and len(self.swept) < last and patience > 0 and not self.over():
            if (near := next(waiting[0][2], None)) is None:
                heappop(waiting)
                continue
            key = skeleton(*near)
            if key in begun:
                continue
            begun.add(key)
            if key not in self.swept:
                self.swept[key] = self._front(*near)
                patience -= 1
            found = self.swept[key]
            value, at = found.least(figure) if found is not None else (inf, -1)
            if found is not None and at >= 0:
                patience = PATIENCE if value < best - CLOSE else patience
                best = min(best, value)
                heappush(waiting, (round(value, 9), len(begun), self._others(near[0], found.trees(at))))

    def whole(self, k: int, part: OwnPart, tree: LoopTree) -> bool:
        """Whether all mappings with the order of nodes of one are swept."""
        found = self.swept.get(skeleton(k, part, tree)) if self.swept else None
        return found is not None and found.whole

    def rows(self) -> tuple[Array, list[tuple[int, Callable[[], LoopTree]]]]:
        """The values of all points that no other one beats [objectives, points], and their mappings."""
        every = [(key[0], one) for key, one in self.swept.items() if one is not None]
        if not every:
            return np.zeros((len(self.objectives), 0)), []
        values = np.concatenate([one.values for _, one in every], axis=1)
        places = [(k, partial(one.trees, i)) for k, one in every for i in range(one.values.shape[1])]
        kept = undominated_but_for_rounding(list(values))
        return values[:, kept], [places[i] for i in kept]

    def _parts(self, k: int, tree: LoopTree) -> Iterator[OwnPart]:
        for one in self.machines[k].spec.workload.einsums:
            part = own_part(tree, one, self.machines[k].hierarchy)
            if part is not None and self.space.inside(k, one.name, tree):
                again = own_part(part.planted(tree), one, self.machines[k].hierarchy)  # nodes in one order
                assert again is not None, "it is a mapping like the first"
                yield again

    def _others(self, k: int, tree: LoopTree) -> Iterator[tuple[int, OwnPart, LoopTree]]:
        """Orders of nodes one move away, and this one on machines that differ in one choice."""
        for part in self._parts(k, tree):
            for near in part.other_nodes():
                moved = near.planted(tree)
                if self.space.ordered(k, near) and self.space.inside(k, part.einsum.name, moved):
                    yield k, near, moved
        for other, there in enumerate(self.machines):
            if there.words and there.differs(self.machines[k]) == 1:
                yield from ((other, part, tree) for part in self._parts(other, tree))

    def _front(self, k: int, part: OwnPart, tree: LoopTree) -> SweptOrder | None:
        """The front of an order's tile sizes; None if they have no closed forms."""
        found: SweptOrder | None = None
        for _ in range(AGAIN if self.without.get(k, 0) < TRIES else 0):
            chains, whole = chains_near(part)
            front = self._swept(k, part, tree, chains)
            if front is None:
                self.without[k] = self.without.get(k, 0) + 1
                return found
            before, found = found, SweptOrder(front.values, partial(_tree, part, chains, front, tree), whole)
            every = range(len(self.objectives))
            if whole or not front.values.shape[1]:
                break
            value, at = found.least(every)
            if before is not None and value >= before.least(every)[0]:
                found = before
                break
            part = _chosen(part, chains, front, at)
        return found

    def _swept(
        self, k: int, part: OwnPart, tree: LoopTree, chains: Sequence[Sequence[Factors]]
    ) -> ChoiceFront | None:
        spec = self.machines[k].spec
        symbolic, symbols = part.symbolic(tree, tuple(spec.symbols))
        axes = []
        for v, each in enumerate(chains):
            table = np.array(each, np.int64).T
            tiles = table.prod(axis=0) // np.cumprod(table, axis=0)
            axes.append({s: tiles[i] for i, s in enumerate(symbols[v])})
        try:
            mapped = spec.with_mapping(symbolic)
        except SpecError:  # of nodes without loops between them another order is a mapping
            return ChoiceFront(np.zeros((len(axes), 0), np.int64), np.zeros((len(self.objectives), 0)))
        return front_of_choices(mapped, axes, self.objectives)


def skeleton(k: int, part: OwnPart, tree: LoopTree) -> Skeleton:
    """What mappings have in common that differ in the tile sizes of one part."""
    bare = replace(part, nodes=(), temporal=tuple((prod(t),) for t in part.temporal))
    sizes = tuple(tuple(1 for _ in s) for s in part.spatial)
    return k, part.einsum.name, part.nodes, replace(bare, spatial=sizes).planted(tree).nodes


def _tree(
    part: OwnPart, chains: Sequence[Sequence[Factors]], front: ChoiceFront, tree: LoopTree, i: int
) -> LoopTree:
    return _chosen(part, chains, front, i).planted(tree)


def _chosen(part: OwnPart, chains: Sequence[Sequence[Factors]], front: ChoiceFront, i: int) -> OwnPart:
    for v, each in enumerate(chains):
        part = part.with_factors(v, each[int(front.choices[v, i])])
    return part


def chains_near(part: OwnPart, points: int = POINTS) -> tuple[list[list[Factors]], bool]:
    """Iterations at each step, per variable, and whether these are all: those that fewest moves of prime
    factors lead to, as many moves as leave no more than so many combinations."""
    layers = [[[part.factors(v)]] for v in range(len(part.temporal))]
    seen = [{part.factors(v)} for v in range(len(part.temporal))]
    result = [[x for layer in mine for x in layer] for mine in layers]
    while True:
        for mine, known in zip(layers, seen, strict=True):
            new = dict.fromkeys(x for c in mine[-1] for x in _moved(part, c) if x not in known)
            known.update(new)
            mine.append(list(new))
        if not any(mine[-1] for mine in layers):
            # of equal points the first is kept: small tiles come first, whatever the part is
            return [sorted(each, reverse=True) for each in result], True
        wider = [[x for layer in mine for x in layer] for mine in layers]
        if prod(map(len, wider)) > points:
            return result, False
        result = wider


def _moved(part: OwnPart, chain: Factors) -> Iterator[Factors]:
    """Chains with one prime factor at another step."""
    wide = [part.hierarchy.dimensions[at][1].fanout if over else inf for over, at in part.steps]
    for source, n in enumerate(chain):
        for p in prime_factors(n) if n > 1 else ():
            for target, m in enumerate(chain):
                if target != source and m * p <= wide[target]:
                    moved = list(chain)
                    moved[source] //= p
                    moved[target] *= p
                    yield tuple(moved)
