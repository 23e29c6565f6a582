"""Mappings that fuse chains of windows: every Einsum before the last produces what the last one's tiles need.

A chain is a run of Einsums in which each result is read by the next Einsum only, with a window at least once.
Its loops are over rank variables of the last output; the iterations of the other Einsums follow from these,
halos included. The tensors passed on are in one memory, where they slide (halos are retained) or are refilled
(halos are recomputed). Einsums keep the loops and storage of a mapping without fused loops, except those of
the chain. These mappings are outside the space for which the search proves optimality. Each is evaluated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise, permutations, product
from time import perf_counter

from polymodel.architecture.hierarchy import Component, Hierarchy
from polymodel.errors import Refused
from polymodel.factoring import divisors
from polymodel.mapper.outside import Evaluations, a_third, last_evaluation
from polymodel.mapper.records import Candidate, Limits, Request, SearchResult
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Node, Split, StorageNode
from polymodel.objectives import score
from polymodel.reuse import Reuse
from polymodel.workload.einsum import Cascade, Einsum

MOST_LOOPS = 2  # over variables of the last output
CHOICES = 4  # of the additional tensors that the chain's memory holds: `_chosen`
POLICIES = {"retained": Reuse.SLIDE, "recomputed": Reuse.REFILL}


@dataclass(frozen=True)
class WindowChain:
    """Consecutive Einsums, each of which, except the last, passes its output to the next."""

    einsums: tuple[Einsum, ...]

    @cached_property
    def handed(self) -> tuple[str, ...]:
        return tuple(e.outputs[0].tensor for e in self.einsums[:-1])

    @cached_property
    def tips(self) -> tuple[str, ...]:
        """Return rank variables of the last output from which the iterations of the previous Einsum
        follow."""
        last, before = self.einsums[-1], self.handed[-1]
        read = last.access_of(before).variables
        others = {v for e in self.einsums[:-1] for v in e.rank_variables}
        result = (v for v in last.outputs[0].variables if v in read and v not in others)
        return tuple(v for v in result if _extent(last, v) > 1)

    def sizes(self, tiles: Mapping[str, int]) -> dict[str, dict[str, int]]:
        """Return, per Einsum, the extents of its rank variables that a tile of the last output needs.

        Variables that the tile does not determine are omitted.
        """
        last = self.einsums[-1]
        needed = {last.name: dict(tiles)}
        for reader, maker in zip(self.einsums[:0:-1], self.einsums[-2::-1], strict=True):
            mine = needed[reader.name]
            read = reader.access_of(maker.outputs[0].tensor)
            result: dict[str, int] = {}
            for made, expr in zip(maker.outputs[0].projection, read.projection, strict=True):
                if mine.keys().isdisjoint(expr.variables) or len(made.terms) != 1:
                    continue
                steps = ((abs(c), mine.get(v, _extent(reader, v))) for v, c in expr.terms)
                (variable, _) = made.terms[0]
                result[variable] = min(_extent(maker, variable), 1 + sum(c * (n - 1) for c, n in steps))
            needed[maker.name] = result
        return needed


def with_halos(
    search: Callable[[Cascade, Hierarchy, Request], SearchResult],
    cascade: Cascade,
    hierarchy: Hierarchy,
    request: Request,
    has_time: Callable[[], bool],
    end: float,
) -> SearchResult:
    """Return the result of the search, with mappings that fuse chains of windows around the best mappings
    without fused loops.

    With a time limit each of the three takes a third of it.
    """
    require_free_loops(request.limits)
    third = a_third(replace(request, limits=replace(request.limits, halos=())))
    flat = search(cascade, hierarchy, replace(third, limits=replace(third.limits, max_fused_loops=0)))
    result = search(cascade, hierarchy, third)
    until_then = last_evaluation(request, end)
    work = HaloSearch(Evaluations(cascade, hierarchy, request, has_time, until_then))
    begun = perf_counter()
    work.around([c.tree for c in of_least(flat.candidates, request.objectives)])
    stage = work.evaluations.stage("halos", work.tried, perf_counter() - begun)
    several = (*result.candidates, *flat.candidates, *work.evaluations.found)
    whole = work.evaluations.complete
    return replace(result, candidates=several, stages=(*result.stages, stage), halos=whole)


def require_free_loops(limits: Limits) -> None:
    """Raises Refused for rules that these mappings do not support."""
    for rule in (r for r in limits.rules if not r.spatial):
        what = f"chains are not fused with halos beside `{rule.written}` of {rule.place}"
        raise Refused(what, "leave one of them out", code="unsupported-constraint")
    if limits.loop_order or limits.min_utilisation or limits.fuse:
        what = "chains are not fused with halos beside `loop_order`, `min_utilisation` and `fuse`"
        raise Refused(what, "leave one of them out", code="unsupported-constraint")


def of_least(candidates: Sequence[Candidate], objectives: Sequence[str]) -> list[Candidate]:
    """Return the best candidate of each objective, without repetition."""
    scores = [[float(score(o, v)) for o, v in zip(objectives, c.values, strict=True)] for c in candidates]
    several = range(len(objectives)) if candidates else ()
    best = (min(range(len(candidates)), key=lambda i: scores[i][k]) for k in several)
    return [candidates[i] for i in dict.fromkeys(best)]


def chains(cascade: Cascade, limits: Limits) -> Iterator[WindowChain]:
    """All chains, longest first."""
    einsums = cascade.einsums
    readers = {t: [e.name for e in einsums if any(a.tensor == t for a in e.inputs)] for t in cascade.tensors}

    def linked(maker: Einsum, reader: Einsum) -> bool:
        if maker.is_copy or reader.is_copy or len(maker.outputs) != 1:
            return False
        tensor = maker.outputs[0].tensor
        alike = maker.n_instances == reader.n_instances
        return alike and tensor not in limits.unfused and readers[tensor] == [reader.name]

    def windowed(maker: Einsum, reader: Einsum) -> bool:
        return any(len(x.terms) > 1 for x in reader.access_of(maker.outputs[0].tensor).projection)

    for length in range(len(einsums), 1, -1):
        for first in range(len(einsums) - length + 1):
            some = einsums[first : first + length]
            pairs = list(pairwise(some))
            if all(linked(*p) for p in pairs) and any(windowed(*p) for p in pairs):
                chain = WindowChain(some)
                if chain.tips:
                    yield chain


def _extent(one: Einsum, variable: str) -> int:
    low, high = one.bound(variable)
    return high - low + 1


@dataclass(frozen=True)
class FlatTree:
    """A mapping without fused loops: storage above all Einsums, and the nodes of each below it."""

    above: tuple[StorageNode, ...]
    own: Mapping[str, tuple[Node, ...]]

    @classmethod
    def of(cls, tree: LoopTree) -> FlatTree | None:
        """The flat form of a tree; None if Einsums share loops."""
        above = []
        for node in tree.nodes:
            if not isinstance(node, StorageNode):
                break
            above.append(node)
        rest = tree.nodes[len(above) :]
        if len(rest) != 1 or not isinstance(rest[0], Split) or rest[0].pipeline:
            return None
        own: dict[str, tuple[Node, ...]] = {}
        for branch in rest[0].branches:
            last = branch[-1]
            if not isinstance(last, ComputeNode):
                return None
            own[last.einsum] = branch
        return cls(tuple(above), own)


@dataclass(frozen=True)
class HaloPlan:
    """How a chain is fused.

    `loops`: (variable of the last output, tile); `below`: the number of loops above the tensors passed on;
    `policy` and `memory`: where and how these are held; `kept`: whether tensors that no loop indexes
    (weights) stay above the loops.
    """

    chain: WindowChain
    loops: tuple[tuple[str, int], ...]
    below: int
    policy: Reuse
    memory: str
    kept: bool

    def tree(self, flat: FlatTree, cascade: Cascade) -> LoopTree:
        """The whole mapping."""
        chain, needed = self.chain, self.chain.sizes(dict(self.loops))
        inside = {e.name for e in chain.einsums}
        handed = set(chain.handed)
        above: list[Node] = []
        for n in flat.above:
            left = tuple(t for t in n.tensors if t not in handed)
            above += [replace(n, tensors=left)] if left else []
        held: dict[tuple[str, str], None] = {}
        moved: dict[tuple[str, str], None] = {(self.memory, t): None for t in chain.handed}
        branches = []
        for e in chain.einsums:
            branches.append(tuple(self._own(e, flat.own[e.name], needed[e.name], held, moved)))
        nodes: list[Node] = [StorageNode(c, (t,)) for c, t in held]
        for k, (variable, tile) in enumerate(self.loops):
            nodes.append(Loop(variable, tile))
            if k + 1 == self.below:
                nodes += [StorageNode(c, (t,), self.policy) for c, t in moved]
        nodes.append(Split(tuple(branches)))
        if len(inside) == len(cascade.einsums):
            return LoopTree((*above, *nodes))
        whole = []
        for e in cascade.einsums:
            if e.name == chain.einsums[0].name:
                whole.append(tuple(nodes))
            elif e.name not in inside:
                whole.append(flat.own[e.name])
        return LoopTree((*above, Split(tuple(whole))))

    def _own(
        self,
        one: Einsum,
        nodes: Sequence[Node],
        needed: Mapping[str, int],
        held: dict[tuple[str, str], None],
        moved: dict[tuple[str, str], None],
    ) -> Iterator[Node]:
        """The nodes of an Einsum that remain below the loops of the chain.

        Adds nodes above the loops to `held`, and nodes below some of them to `moved`.
        """
        last, seen = one is self.chain.einsums[-1], set(self.chain.handed)
        (out,) = one.outputs
        for n in nodes:
            if isinstance(n, Loop):
                most = needed.get(n.rank_variable)
                assert isinstance(n.tile_shape, int), "a found mapping has numbers"
                if most is None or n.tile_shape < most:
                    yield n
                continue
            if not isinstance(n, StorageNode):
                yield n
                continue
            (tensor,) = n.tensors
            tiled = not needed.keys().isdisjoint(one.access_of(tensor).variables)
            if n.component == self.memory and tensor in self.chain.handed:
                continue
            if tensor in seen or (last and tensor == out.tensor):
                yield n
            elif tiled:
                moved[n.component, tensor] = None
            elif self.kept:
                held[n.component, tensor] = None
            else:
                yield n
            seen.add(tensor)


def forms(chain: WindowChain, limits: Limits, hierarchy: Hierarchy) -> Iterator[HaloPlan]:
    """Every plan for a chain, with the smallest tiles."""
    most = MOST_LOOPS if limits.max_fused_loops is None else min(MOST_LOOPS, limits.max_fused_loops)
    memory = _memory_of(chain, hierarchy, limits)
    for count, kept, name in product(range(1, most + 1), (True, False), limits.halos):
        # Halos are recomputed across all loops, or across some, which makes a difference only when sliding.
        places = range(1, count + 1) if name == "retained" else [count]
        for variables, below in product(permutations(chain.tips, count), places):
            if memory is not None:
                loops = tuple((v, 1) for v in variables)
                yield HaloPlan(chain, loops, below, POLICIES[name], memory.name, kept)


def _memory_of(chain: WindowChain, hierarchy: Hierarchy, limits: Limits) -> Component | None:
    """Return the first memory inside the backing storage, above all fanouts, that may hold all tensors passed
    on."""
    for number, c in enumerate([c for c in hierarchy.components if c.stores][1:]):
        if hierarchy.instances(c.name) > 1:
            return None
        if number and limits.exchange is not None and c.name not in limits.exchange:
            continue
        users = zip(chain.handed, chain.einsums, chain.einsums[1:], strict=False)
        if all(_may_hold(c, t, e.name) for t, *both in users for e in both):
            return c
    return None


def _may_hold(memory: Component, tensor: str, einsum: str) -> bool:
    rules = (memory.keep, memory.may_keep)
    return memory.may_keep is None or any(r is not None and tensor in r.tensors(einsum) for r in rules)


def _chosen(base: FlatTree, chain: WindowChain, memory: Component, choice: int) -> FlatTree | None:
    """Return the flat mapping with another choice of the additional tensors that the chain's memory holds.

    0: unchanged; 1: everything it may hold; 2: that without tensors that no loop of the chain indexes; 3:
    only what it must hold. None if the choice changes nothing.
    """
    if not choice:
        return base
    needed = chain.sizes(dict.fromkeys(chain.tips, 1))
    own = dict(base.own)
    for e in chain.einsums:
        before = own[e.name]
        tiled = {t for t in e.tensors if not needed[e.name].keys().isdisjoint(e.access_of(t).variables)}
        may = [t for t in e.tensors if t not in chain.handed and _may_hold(memory, t, e.name)]
        must = set() if memory.keep is None else memory.keep.tensors(e.name)
        wanted = [t for t in may if t in must or choice == 1 or (choice == 2 and t in tiled)]
        had = [
            t for n in before if isinstance(n, StorageNode) and n.component == memory.name for t in n.tensors
        ]
        rest = [
            n for n in before
            if not (isinstance(n, StorageNode) and n.component == memory.name and n.tensors[0] not in wanted)
        ]  # fmt: skip
        more = tuple(StorageNode(memory.name, (t,)) for t in wanted if t not in had)
        own[e.name] = (*more, *rest)
    return None if own == base.own else FlatTree(base.above, own)


@dataclass
class HaloSearch:
    """Searches mappings with halos around some mappings without fused loops. `tried`: number of plans."""

    evaluations: Evaluations
    tried: int = 0

    def around(self, trees: Sequence[LoopTree]) -> None:
        """Add mappings that fit. The tiles of each plan grow as long as that improves an objective."""
        asked = self.evaluations
        bases = [base for base in map(FlatTree.of, trees) if base is not None]
        several = list(chains(asked.cascade, asked.request.limits)) if bases else []
        for choice, base, chain in product(range(CHOICES), bases, several):
            memory = _memory_of(chain, asked.hierarchy, asked.request.limits)
            flat = None if memory is None else _chosen(base, chain, memory, choice)
            if flat is not None:
                self._form_by_form(flat, chain)
            if not asked.complete:
                return

    def _form_by_form(self, base: FlatTree, chain: WindowChain) -> None:
        request = self.evaluations.request
        for form in forms(chain, request.limits, self.evaluations.hierarchy):
            self.tried += 1
            for number in range(len(request.objectives)):
                self._grown(base, form, number)
                if not self.evaluations.complete:
                    return

    def _grown(self, base: FlatTree, plan: HaloPlan, number: int) -> None:
        best = self._scores(base, plan)
        while best is not None:
            larger = [(self._scores(base, p), p) for p in _larger(plan)]
            better = [(s, p) for s, p in larger if s is not None and s[number] < best[number]]
            if not better:
                return
            best, plan = min(better, key=lambda pair: pair[0][number])

    def _scores(self, base: FlatTree, plan: HaloPlan) -> tuple[float, ...] | None:
        """Scores of the objectives, smaller being better; None if it does not fit or time has run out."""
        standing = self.evaluations.of(plan.tree(base, self.evaluations.cascade))
        return None if standing is None or standing.excess else standing.scores


def _larger(plan: HaloPlan) -> Iterator[HaloPlan]:
    """Plans with the next larger tile of one loop."""
    last = plan.chain.einsums[-1]
    for k, (variable, tile) in enumerate(plan.loops):
        more = [d for d in divisors(_extent(last, variable))[:-1] if d > tile]
        if more:
            yield replace(plan, loops=(*plan.loops[:k], (variable, more[0]), *plan.loops[k + 1 :]))
