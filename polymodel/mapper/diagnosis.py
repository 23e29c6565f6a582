"""Why a search found nothing: which constraint takes how many mappings away where, and what would help."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from polymodel.architecture.hierarchy import Hierarchy
from polymodel.mapper.budget import Watch
from polymodel.mapper.constraint_relaxation import (
    RelaxedProblem,
    Relaxer,
    Search,
    SearchConstraint,
    constraints,
)
from polymodel.mapper.mapspace import Mapspace, mapspace_of
from polymodel.mapper.records import Diagnosis, Obstacle, Relaxation, Request, SearchResult
from polymodel.mapping.looptree import StorageNode
from polymodel.workload.einsum import Cascade, Einsum

# An Einsum that does not fit by itself does not fit fused either.
OF_FUSION = ("max_fused_loops", "max_fused_loops_per_rank_variable", "loop_order", "fuse", "unfused")
SECONDS = 30.0  # for one diagnosis; if the search has a time limit, what it left of that, and the grace


def diagnosed(
    cascade: Cascade, hierarchy: Hierarchy, request: Request, found: SearchResult, search: Search
) -> Diagnosis:
    """What rules all mappings out. `found`: the answer of a search that looked at everything; `search`: how
    to search relaxed problems."""
    limit, now = request.time_limit, time.perf_counter()
    watch = Watch(replace(request, progress=None), now - found.seconds, 1)
    watch.end = now + SECONDS if limit is None else watch.grace().end

    def searched(cascade: Cascade, hierarchy: Hierarchy, request: Request) -> SearchResult:
        answer = search(cascade, hierarchy, request)
        if answer.memory:  # it says nothing about what there is
            raise MemoryError
        return answer

    work = _Diagnosis(cascade, RelaxedProblem(hierarchy, request.limits), found, searched, watch)
    obstacles: list[Obstacle] = []
    watch.step(lambda: obstacles.extend(work.obstacles()))
    if any(o.need is not None for o in obstacles):
        work.all = tuple(c for c in work.all if c.kind not in OF_FUSION)
    return Diagnosis(work.space.size(), tuple(obstacles), work.relaxations(), tuple(work.untried))


class _Diagnosis:
    def __init__(
        self, cascade: Cascade, problem: RelaxedProblem, found: SearchResult, search: Search, watch: Watch
    ) -> None:
        self.cascade, self.problem, self.found = cascade, problem, found
        self.search, self.watch, self.going_on = search, watch, watch.going_on
        self.space = self._mapspace(problem)
        self.relaxer = Relaxer(cascade, search, watch.going_on)
        self.untried: list[str] = []
        self.failing = self._failing()
        self.all = tuple(c for c in constraints(cascade, problem) if self._matters(c))

    def _failing(self) -> tuple[Einsum, ...]:
        """Einsums without any mapping of their own."""
        kept = {s.of: s.kept for s in self.found.stages if not s.of.startswith("join ")}
        shapes = {s.shape for s in self.space.spaces if not kept.get(s.name, 1)}
        some = zip(self.cascade, self.space.spaces, strict=True)
        return tuple(e for e, s in some if not kept.get(e.name, s.shape not in shapes))

    def _matters(self, c: SearchConstraint) -> bool:
        """A constraint that a failing Einsum feels, if there are any."""
        some = self.failing or tuple(self.cascade)
        return any(c.concerns(e.name, e.tensors) for e in some)

    # What is in the way

    def obstacles(self) -> Iterator[Obstacle]:
        for e in self.failing:
            mine = self._of_einsum(self.space, e)
            yield from self._capacities(e, mine) if mine else self._rules(e)
        if not self.failing:
            yield from self._joined() if self.space.size() else self._met()

    def _of_einsum(self, space: Mapspace, e: Einsum) -> int:
        return space.alone(self.cascade.einsums.index(e)).mappings

    def _counted(self, some: Sequence[SearchConstraint]) -> Mapspace:
        p = self.problem
        for c in some:
            p = c.dropped(p)
        return self._mapspace(p)

    def _mapspace(self, p: RelaxedProblem) -> Mapspace:
        """What there is, rules on temporal loops aside."""
        rules = tuple(r for r in p.limits.rules if r.spatial)
        return mapspace_of(self.cascade, p.hierarchy, replace(p.limits, rules=rules))

    def _rules(self, e: Einsum) -> Iterator[Obstacle]:
        """Rules that leave an Einsum nothing even if memories had any size."""
        mine = [c for c in self.all if c.kind != "capacity" and c.concerns(e.name, e.tensors)]
        chosen = self._fewest(mine, lambda some: self._of_einsum(self._counted(some), e))
        before = self._of_einsum(self._counted(chosen), e)
        for c in chosen:
            yield self._obstacle(c, e, before, 0)

    def _met(self) -> Iterator[Obstacle]:
        """Every Einsum has mappings, but none go together, whatever the size of memories."""
        mine = [c for c in self.all if c.kind != "capacity"]
        chosen = self._fewest(mine, lambda some: self._counted(some).size())
        before = self._counted(chosen).size()
        for c in chosen:
            users = [e for e in self.cascade if c.concerns(e.name, e.tensors)]
            yield replace(self._obstacle(c, users[-1], before, 0), joined=True)

    def _fewest(
        self, some: Sequence[SearchConstraint], count: Callable[[Sequence[SearchConstraint]], int]
    ) -> tuple[SearchConstraint, ...]:
        """Every constraint without which there is something; or a set of which none is dispensable."""
        alone = tuple(c for c in some if count([c]))
        if alone or not count(some):
            return alone
        left = list(some)
        for c in some:
            if count([x for x in left if x != c]):
                left.remove(c)
        return tuple(left)

    def _obstacle(self, c: SearchConstraint, e: Einsum, before: int, left: int | None) -> Obstacle:
        tensors = tuple(t for t in e.tensors if t in c.tensors)
        return Obstacle(c.kind, c.level, e.name, tensors, before, left, written=c.written)

    def _capacities(self, e: Einsum, mappings: int) -> Iterator[Obstacle]:
        """Rules on temporal loops, or memories that are too small, for an Einsum by itself."""
        some = [c for c in self.all if c.of_blocks and c.concerns(e.name, e.tensors)]
        held = [c for c in some if self._admits_alone(c, e)]
        if held:
            yield from (self._obstacle(c, e, mappings, None) for c in held)
            return
        small = [c for c in self.all if c.kind == "capacity"]
        result: list[Obstacle] = []
        for c in small:
            need, tensors = self._least_alone(c, e)
            if need is not None and need > (c.have or 0):
                result.append(Obstacle("capacity", c.level, e.name, tensors, mappings, 0, need, c.have))
        if not result:
            # No memory by itself is too small for what is not exchanged.
            result = [self._obstacle(c, e, mappings, 0 if len(small) == 1 else None) for c in small]
            tensors = self._forced(e) or e.tensors
            result = [replace(o, tensors=tensors, have=c.have) for o, c in zip(result, small, strict=True)]
        yield from result

    def _least_alone(self, c: SearchConstraint, e: Einsum) -> tuple[float | None, tuple[str, ...]]:
        """The least bits that an Einsum needs of a memory, if others had any size, and what is held then;
        None where its tensors have to be exchanged."""
        p = self.problem
        for other in self.all:
            p = other.dropped(p) if other.kind == "capacity" else p
        request = Request((f"working_set:{c.level}",), p.limits, stop=self._stop)
        result = self.search(replace(self.cascade, einsums=(e,)), p.hierarchy, request)
        if not result.candidates:
            return None, ()
        best = result.candidates[0]
        nodes = [n for n in best.tree.nodes if isinstance(n, StorageNode) and n.component == c.level]
        return best.values[0], tuple(dict.fromkeys(t for n in nodes for t in n.tensors))

    def _admits_alone(self, c: SearchConstraint, e: Einsum) -> bool:
        """Whether an Einsum by itself has a mapping without a constraint."""
        p, request = c.dropped(self.problem), Request(("latency",), stop=self._stop)
        cascade = replace(self.cascade, einsums=(e,))
        return bool(self.search(cascade, p.hierarchy, replace(request, limits=p.limits)).candidates)

    def _stop(self) -> bool:
        return not self.going_on()

    def _joined(self) -> Iterator[Obstacle]:
        """Each Einsum has mappings that fit, but what they exchange does not fit beside them."""
        stage = next((s for s in self.found.stages if not s.kept and s.of.startswith("join ")), None)
        if stage is None:
            return
        name = stage.of.removeprefix("join ")
        exchanged = self._exchanged(name)
        for c in self.all:
            if c.kind == "capacity" and self._holds_several(c.level):
                have = c.have
                yield Obstacle("capacity", c.level, name, exchanged, stage.points, 0, None, have, True)

    def _holds_several(self, memory: str) -> bool:
        """Whether intermediates may be exchanged in a memory."""
        names = [m.name for m in self.space.spaces[0].memories]
        m = names.index(memory)
        return m > 0 and any(
            o.fusable and o.tensor in s.may[m] for s in self.space.spaces for o in s.operands
        )

    def _exchanged(self, name: str) -> tuple[str, ...]:
        """Intermediates up to there that must be exchanged inside the backing storage; if none, those that
        may."""
        number = next(i for i, e in enumerate(self.cascade) if e.name == name)
        einsums = self.cascade.einsums[: number + 1]
        forced = dict.fromkeys(t for e in einsums for t in self._forced(e))
        every = dict.fromkeys(t for e in einsums for t in e.tensors if t in self.cascade.intermediates)
        return tuple(forced or every)

    def _forced(self, e: Einsum) -> tuple[str, ...]:
        """Tensors that an Einsum cannot have in the backing storage."""
        outermost = self.space.spaces[self.cascade.einsums.index(e)].may[0]
        fused = self.problem.limits.fuse
        return tuple(
            t for t in e.tensors if t in self.cascade.intermediates and (t in fused or t not in outermost)
        )

    # What would help

    def relaxations(self) -> tuple[Relaxation, ...]:
        """Every single change that helps, sizes first; else several."""
        result: list[Relaxation] = []
        for c in self.all[::-1]:
            helps = self._helping([c]) if self.watch.step(partial(self._admits, c)) else []
            result += helps
            if not self.going_on() and not helps:
                self.untried.append(f"{c.kind} {c.level} {' '.join(c.tensors) or c.einsum}".strip())
        return tuple(result) if result or self.untried else tuple(self._together())

    def _admits(self, c: SearchConstraint) -> bool:
        """Whether there is any mapping without it."""
        return self.going_on() and self.relaxer.admits(c.dropped(self.problem))

    def _helping(self, some: Sequence[SearchConstraint]) -> list[Relaxation]:
        """What gives up no more of them than it must; none if there is no time for it."""
        if not some or not self.going_on():
            return []
        helps = self.watch.step(partial(self.relaxer.relaxation, some, self.problem))
        return [] if helps is None else [helps]

    def _together(self) -> Iterator[Relaxation]:
        seen: list[set[SearchConstraint]] = []
        for order in (self.all, self.all[::-1]):
            chosen = self.watch.step(partial(self.relaxer.smallest, order, self.problem)) or ()
            helps = self._helping(chosen)
            if not self.going_on():
                self.untried.append("several together")
                return
            if helps and {*chosen} not in seen:
                seen.append({*chosen})
                yield from helps
