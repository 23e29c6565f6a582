"""Every mapping of two small Einsums on two memories, listed node by node: one after the other, or below
shared loops. No formula is used, and no code of `polymodel.mapper`; which are legal says `evaluate`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import permutations, product

from polymodel.loading import Spec
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Node, Split, StorageNode
from polymodel.workload.einsum import Einsum
from tests.mapper.brute_evaluated import chains, divisors

Loops = tuple[tuple[str, int], ...]


class ListedPairs:
    """The mappings of a spec's two Einsums, whose rank variables of one name go over the same ranks."""

    def __init__(self, spec: Spec) -> None:
        self.spec, (self.first, self.second) = spec, spec.workload.einsums
        self.outer, self.inner = (c.name for c in spec.arch.components if c.kind == "memory")
        self.unit = next(c.name for c in spec.arch.components if c.kind == "compute")
        self.extents = {v: e.bound(v)[1] + 1 for e in self.both for v in e.rank_variables}

    @property
    def both(self) -> tuple[Einsum, Einsum]:
        return self.first, self.second

    def trees(self, taken: Callable[[], bool] = lambda: True) -> Iterator[LoopTree]:
        """Those that `taken` admits."""
        for loops, depths in self._shared():
            each = [list(self._private(e, loops, set(depths))) for e in self.both]
            for one, other in product(*each):
                if taken():
                    yield self._tree(loops, depths, (one, other))

    def size(self) -> int:
        return sum(
            len(list(self._private(self.first, loops, {*d})))
            * len(list(self._private(self.second, loops, {*d})))
            for loops, d in self._shared()
        )

    def _shared(self) -> Iterator[tuple[Loops, dict[str, int]]]:
        """Shared loops, and below how many of them intermediates are handed on in the inner memory."""
        common = [v for v in self.first.rank_variables if v in self.second.rank_variables]
        between = [t for t in self.first.tensors if t in self.second.tensors and self._made(t)]
        between = [t for t in between if self._may(t)]
        for many in range(len(common) + 1):
            for order in permutations(common, many):
                for tiles in product(*(divisors(self.extents[v])[:-1] for v in order)):
                    for depths in product(range(-1, many + 1), repeat=len(between)):
                        chosen = {t: d for t, d in zip(between, depths, strict=True) if d >= 0}
                        yield tuple(zip(order, tiles, strict=True)), chosen

    def _made(self, tensor: str) -> bool:
        return self.spec.workload.producer(tensor) is not None

    def _may(self, tensor: str) -> bool:
        rule = self.spec.arch[self.inner].may_keep
        return rule is None or all(tensor in rule.tensors(e.name) for e in self.both if tensor in e.tensors)

    def _private(
        self, one: Einsum, loops: Loops, elsewhere: set[str]
    ) -> Iterator[tuple[dict[str, int], tuple[Node, ...]]]:
        """Tensors of one Einsum above shared loops (how many stand above each), and what is below them."""
        rule = self.spec.arch[self.inner].may_keep
        able = [
            t for t in one.tensors if t not in elsewhere and (rule is None or t in rule.tensors(one.name))
        ]
        now = {v: dict(loops).get(v, self.extents[v]) for v in one.rank_variables}
        for places in product((None, *range(len(loops) + 1)), repeat=len(able)):
            placed = {t: k for t, k in zip(able, places, strict=True) if k is not None}
            above = {t: k for t, k in placed.items() if k < len(loops)}
            for order in permutations([t for t in placed if t not in above]):
                each = [list(chains(now[v], len(order))) for v in now]
                for chosen in product(*each):
                    yield above, self._branch(one, order, now, dict(zip(now, chosen, strict=True)))

    def _branch(
        self, one: Einsum, order: Sequence[str], now: Mapping[str, int], tiles: Mapping[str, tuple[int, ...]]
    ) -> tuple[Node, ...]:
        found: list[Node] = []
        size = dict(now)
        for k in range(len(order) + 1):
            for v in size:
                goal = tiles[v][k] if k < len(order) else 1
                if goal < size[v]:
                    found.append(Loop(v, goal))
                size[v] = goal
            if k < len(order):
                found.append(StorageNode(self.inner, (order[k],)))
        return (*found, ComputeNode(one.name, self.unit))

    def _tree(
        self, loops: Loops, depths: dict[str, int], both: Sequence[tuple[dict[str, int], tuple[Node, ...]]]
    ) -> LoopTree:
        kept = tuple(t for t in self.spec.workload.tensors if t not in depths)
        found: list[Node] = [StorageNode(self.outer, kept)]
        for k in range(len(loops) + 1):
            found += [StorageNode(self.inner, (t,)) for t, d in depths.items() if d == k]
            for above, _ in both:
                found += [StorageNode(self.inner, (t,)) for t, d in above.items() if d == k]
            if k < len(loops):
                found.append(Loop(*loops[k]))
        return LoopTree((*found, Split(tuple(branch for _, branch in both))))
