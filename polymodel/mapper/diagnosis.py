"""Why a search found nothing: the mappings that each constraint and limit excludes, and remedies."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from polymodel.architecture.hierarchy import Component, Hierarchy, TensorRule
from polymodel.frozen import dataclass
from polymodel.mapper.budget import Watch
from polymodel.mapper.mapspace import Mapspace, mapspace_of
from polymodel.mapper.records import Change, Diagnosis, Limits, Obstacle, Relaxation, Request, SearchResult
from polymodel.mapping.looptree import StorageNode
from polymodel.mapping.mapspace_constraints import narrowing_text
from polymodel.mapping.resolve import LOOP_RULES
from polymodel.objectives import FigureLimit
from polymodel.workload.einsum import Cascade, Einsum

# The constraints of a search: each can be dropped, or relaxed as little as necessary.

# Relaxing these constraints makes a search long and rarely helps.
SELDOM = ("force_memory_order", "max_fused_loops_per_rank_variable")


@dataclass(frozen=True)
class RelaxedProblem:
    """An architecture and limits to search."""

    hierarchy: Hierarchy
    limits: Limits


@dataclass(frozen=True)
class SearchConstraint:
    """One constraint. `have`: its figure, if it has one; `written`: a rule in the notation of the
    exploration."""

    kind: str
    level: str = ""
    einsum: str = ""
    tensors: tuple[str, ...] = ()
    have: float | None = None
    written: str = ""

    @property
    def of_blocks(self) -> bool:
        """Whether it is a rule on temporal loops."""
        return self.kind in ("no_refetch", "order") or (self.kind == "factors" and "." not in self.level)

    def concerns(self, einsum: str, tensors: Sequence[str]) -> bool:
        """Return whether it affects an Einsum with these tensors."""
        return self.einsum in ("", einsum) and (not self.tensors or bool(set(self.tensors) & set(tensors)))

    def dropped(self, p: RelaxedProblem) -> RelaxedProblem:
        """Return the problem without the constraint."""
        return self.at(p, None)

    def at(self, p: RelaxedProblem, figure: float | None) -> RelaxedProblem:
        """Return the problem with another figure (None: without the constraint)."""
        limits, kind = p.limits, self.kind
        if kind == "capacity":
            return _with(
                p, self.level, lambda c: replace(c, size_bits=math.inf if figure is None else figure)
            )
        if kind in ("keep", "may_keep"):
            return _with(p, self.level, self._ruled)
        if kind == "min_utilisation":
            rest = tuple(x for x in limits.min_utilisation if f"{x[0]}.{x[1]}" != self.level)
            if figure is not None:
                component, _, dim = self.level.rpartition(".")
                rest = (*rest, (component, dim, figure))
            limits = replace(limits, min_utilisation=rest)
        elif kind == "max_fused_loops":
            limits = replace(limits, max_fused_loops=None if figure is None else int(figure))
        elif kind == "max_fused_loops_per_rank_variable":
            limits = replace(limits, max_fused_loops_per_rank_variable=int(figure or (self.have or 1) + 1))
        elif kind == "fuse":
            limits = replace(limits, fuse=limits.fuse - set(self.tensors))
        elif kind == "exchange":
            limits = replace(limits, exchange=(limits.exchange or frozenset()) | {self.level})
        elif kind == "unfused":
            limits = replace(limits, unfused=limits.unfused - set(self.tensors))
        elif kind == "force_memory_order":
            limits = replace(limits, force_memory_order=False)
        elif kind == "loop_order":
            limits = replace(limits, loop_order=tuple(x for x in limits.loop_order if x[0] != self.einsum))
        elif kind in LOOP_RULES:
            mine = kind, self.level, self.written
            rest_of = tuple(r for r in limits.rules if (r.kind, r.place, r.written) != mine)
            limits = replace(limits, rules=rest_of)
        elif kind == "compute":
            limits = replace(limits, compute=tuple(x for x in limits.compute if x[0] != self.einsum))
        return replace(p, limits=limits)

    def _ruled(self, c: Component) -> Component:
        """The memory with the tensors optional (not in `keep`, but in `may_keep`) in every Einsum."""
        mine = frozenset(self.tensors)
        keep = c.keep or TensorRule("Nothing")
        keeps = tuple((e, ts - mine if self.kind == "keep" else ts) for e, ts in keep.by_einsum)
        if c.may_keep is None:
            return replace(c, keep=replace(keep, by_einsum=keeps))
        mays = tuple((e, ts | keep.tensors(e) | mine) for e, ts in c.may_keep.by_einsum)
        return replace(
            c,
            keep=replace(keep, by_einsum=keeps),
            may_keep=replace(c.may_keep, by_einsum=mays),
        )

    def change(self, need: float | None = None) -> Change:
        return Change(self.kind, self.level, self.einsum, self.tensors, need, self.have, self.written)


def _with(p: RelaxedProblem, name: str, changed: Callable[[Component], Component]) -> RelaxedProblem:
    components = tuple(changed(c) if c.name == name else c for c in p.hierarchy.components)
    return replace(p, hierarchy=replace(p.hierarchy, components=components))


def constraints(cascade: Cascade, p: RelaxedProblem) -> tuple[SearchConstraint, ...]:
    """Every constraint that can be relaxed; those to relax first are last."""
    return (*_of_limits(p), *_of_memories(cascade, p))


def _of_limits(p: RelaxedProblem) -> Iterator[SearchConstraint]:
    limits = p.limits
    for e, unit in limits.compute:
        yield SearchConstraint("compute", unit, e)
    for e, _ in limits.loop_order:
        yield SearchConstraint("loop_order", "", e)
    for rule in (r for r in limits.rules if r.kind in LOOP_RULES):
        yield SearchConstraint(rule.kind, rule.place, written=rule.written)
    memories = list(p.hierarchy.memories)
    handed = frozenset(memories) if limits.exchange is None else limits.exchange
    for name in memories[2:]:
        if name not in handed:
            yield SearchConstraint("exchange", name)
    for t in sorted(limits.fuse):
        yield SearchConstraint("fuse", tensors=(t,))
    for t in sorted(limits.unfused):
        yield SearchConstraint("unfused", tensors=(t,))
    if limits.force_memory_order and len(memories) > 2:
        yield SearchConstraint("force_memory_order")
    if limits.max_fused_loops is not None:
        yield SearchConstraint("max_fused_loops", have=limits.max_fused_loops)
    per = limits.max_fused_loops_per_rank_variable
    yield SearchConstraint("max_fused_loops_per_rank_variable", have=per)
    for component, dim, least in limits.min_utilisation:
        if least:
            yield SearchConstraint("min_utilisation", f"{component}.{dim}", have=least)


def _of_memories(cascade: Cascade, p: RelaxedProblem) -> Iterator[SearchConstraint]:
    memories = [c for c in p.hierarchy.components if c.stores]
    outermost = memories[0].name
    for c in memories:
        for t in cascade.tensors:
            users = [e for e in cascade if t in e.tensors]
            kept = any(c.keep is not None and t in c.keep.tensors(e.name) for e in users)
            barred = c.may_keep is not None and not all(
                t in c.may_keep.tensors(e.name) or (c.keep is not None and t in c.keep.tensors(e.name))
                for e in users
            )
            # Tensors that are not intermediates must be in the outermost memory.
            if kept and (c.name != outermost or t in cascade.intermediates):
                yield SearchConstraint("keep", c.name, tensors=(t,), written=narrowing_text(c.keep))
            if barred:
                yield SearchConstraint("may_keep", c.name, tensors=(t,), written=narrowing_text(c.may_keep))
    for c in memories[1:]:
        if not math.isinf(c.size_bits):
            yield SearchConstraint("capacity", c.name, have=c.size_bits)


Search = Callable[[Cascade, Hierarchy, Request], SearchResult]


@dataclass
class Relaxer:
    """Searches relaxed problems. `has_time` returns whether there is time for another search."""

    cascade: Cascade
    search: Search
    has_time: Callable[[], bool]

    def admits(self, p: RelaxedProblem) -> bool:
        """Whether any mapping exists; the first one found ends the search."""
        best: list[float] = []
        result = self.search(
            self.cascade,
            p.hierarchy,
            Request(
                ("latency",),
                p.limits,
                progress=lambda p: best.append(p.best) if p.best is not None else None,
                stop=lambda: bool(best) or not self.has_time(),
            ),
        )
        return bool(result.candidates or best)

    def least(self, c: SearchConstraint, p: RelaxedProblem) -> float | None:
        """The least figure of a constraint that admits a mapping; None if the constraint has no figure."""
        if c.kind == "capacity":
            request = Request((f"working_set:{c.level}",), p.limits, stop=lambda: not self.has_time())
            result = self.search(self.cascade, c.dropped(p).hierarchy, request)
            return min((x.values[0] for x in result.candidates), default=math.inf)
        if c.kind == "min_utilisation":
            return self._utilisation(c, p)
        if c.kind == "max_fused_loops":
            figure = int(c.have or 0) + 1
            while self.has_time() and not self.admits(c.at(p, figure)):
                figure += 1
            return figure
        return (c.have or 1) + 1 if c.kind == "max_fused_loops_per_rank_variable" else None

    def _utilisation(self, c: SearchConstraint, p: RelaxedProblem) -> float:
        """The largest utilisation of the fanout that admits a mapping, by bisection."""
        component, _, dim = c.level.rpartition(".")
        width = p.hierarchy[component].dim(dim).fanout
        low, high = 0, math.ceil(min(c.have or 0, 1) * width - 1e-9)
        while high - low > 1 and self.has_time():
            middle = (low + high) // 2
            if self.admits(c.at(p, middle / width)):
                low = middle
            else:
                high = middle
        return low / width

    def relaxation(self, chosen: Sequence[SearchConstraint], p: RelaxedProblem) -> Relaxation | None:
        """All of these constraints relaxed, each as little as possible after those before it.

        None if time ran out.
        """
        changes = []
        for k, c in enumerate(chosen):
            rest = p
            for other in chosen[k + 1 :]:
                rest = other.dropped(rest)
            need = self.least(c, rest)
            changes.append(c.change(need))
            p = c.at(p, need)
        return Relaxation(tuple(changes)) if self.has_time() else None

    def smallest(self, some: Sequence[SearchConstraint], p: RelaxedProblem) -> tuple[SearchConstraint, ...]:
        """A minimal set of constraints without which a mapping exists; empty if none exists without all of
        them.

        Later constraints are preferred.
        """
        for few in ([c for c in some if c.kind not in SELDOM], some):
            loose = p
            for c in few:
                loose = c.dropped(loose)
            if self.admits(loose):
                some = few
                break
        else:
            return ()
        left = list(some)
        for c in some:
            without = p
            for other in left:
                without = without if other == c else other.dropped(without)
            if self.has_time() and self.admits(without):
                left.remove(c)
        return tuple(left)


# Why a search found nothing: the mappings that each constraint rules out, and what would help.

# An Einsum that does not fit by itself does not fit when fused either.
OF_FUSION = ("max_fused_loops", "max_fused_loops_per_rank_variable", "loop_order", "fuse", "unfused")
SECONDS = 30.0  # for one diagnosis; with a time limit, the rest of that limit and the grace


def diagnosed(
    cascade: Cascade, hierarchy: Hierarchy, request: Request, found: SearchResult, search: Search
) -> Diagnosis:
    """Return the constraints that exclude all mappings.

    `found`: the result of a search of the whole space; `search`: the function that searches relaxed problems.
    """
    limit, now = request.time_limit, time.perf_counter()
    watch = Watch(replace(request, progress=None), now - found.seconds, 1)
    watch.end = now + SECONDS if limit is None else watch.grace().end

    def searched(cascade: Cascade, hierarchy: Hierarchy, request: Request) -> SearchResult:
        answer = search(cascade, hierarchy, request)
        if answer.memory:  # an incomplete search proves nothing
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
        self.search, self.watch, self.has_time = search, watch, watch.has_time
        self.space = self._mapspace(problem)
        self.relaxer = Relaxer(cascade, search, watch.has_time)
        self.untried: list[str] = []
        self.failing = self._failing()
        self.all = tuple(c for c in constraints(cascade, problem) if self._matters(c))

    def _failing(self) -> tuple[Einsum, ...]:
        """Einsums that have no mapping on their own."""
        kept = {s.of: s.kept for s in self.found.stages if not s.of.startswith("join ")}
        shapes = {s.shape for s in self.space.spaces if not kept.get(s.name, 1)}
        some = zip(self.cascade, self.space.spaces, strict=True)
        return tuple(e for e, s in some if not kept.get(e.name, s.shape not in shapes))

    def _matters(self, c: SearchConstraint) -> bool:
        """Whether a constraint affects an infeasible Einsum (any Einsum, if all are feasible)."""
        some = self.failing or tuple(self.cascade)
        return any(c.concerns(e.name, e.tensors) for e in some)

    # Obstacles

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
        """The mapspace without rules on temporal loops and uneven spatial tiles."""
        rules = tuple(r for r in p.limits.rules if r.spatial)
        limits = replace(p.limits, rules=rules, spatial_sizes="divisors")
        return mapspace_of(self.cascade, p.hierarchy, limits)

    def _rules(self, e: Einsum) -> Iterator[Obstacle]:
        """Rules that leave an Einsum no mapping even with unbounded memories."""
        mine = [c for c in self.all if c.kind != "capacity" and c.concerns(e.name, e.tensors)]
        chosen = self._fewest(mine, lambda some: self._of_einsum(self._counted(some), e))
        before = self._of_einsum(self._counted(chosen), e)
        for c in chosen:
            yield self._obstacle(c, e, before, 0)

    def _met(self) -> Iterator[Obstacle]:
        """Rules that keep Einsums from being joined, although each has mappings, even with unbounded
        memories."""
        mine = [c for c in self.all if c.kind != "capacity"]
        chosen = self._fewest(mine, lambda some: self._counted(some).size())
        before = self._counted(chosen).size()
        for c in chosen:
            users = [e for e in self.cascade if c.concerns(e.name, e.tensors)]
            yield replace(self._obstacle(c, users[-1], before, 0), joined=True)

    def _fewest(
        self, some: Sequence[SearchConstraint], count: Callable[[Sequence[SearchConstraint]], int]
    ) -> tuple[SearchConstraint, ...]:
        """Every constraint whose removal alone suffices; otherwise a minimal set that does."""
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
        """Rules on temporal loops, or memories that are too small, for an Einsum on its own."""
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
            # No memory is too small on its own for the tensors that are not exchanged.
            result = [self._obstacle(c, e, mappings, 0 if len(small) == 1 else None) for c in small]
            tensors = self._forced(e) or e.tensors
            result = [replace(o, tensors=tensors, have=c.have) for o, c in zip(result, small, strict=True)]
        yield from result

    def _least_alone(self, c: SearchConstraint, e: Einsum) -> tuple[float | None, tuple[str, ...]]:
        """Return the least bits that an Einsum needs in a memory if others are unbounded, and the tensors
        held then.

        None if its tensors have to be exchanged.
        """
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
        """Whether an Einsum on its own has a mapping without the constraint."""
        p, request = c.dropped(self.problem), Request(("latency",), stop=self._stop)
        cascade = replace(self.cascade, einsums=(e,))
        return bool(self.search(cascade, p.hierarchy, replace(request, limits=p.limits)).candidates)

    def _stop(self) -> bool:
        return not self.has_time()

    def _joined(self) -> Iterator[Obstacle]:
        """Yield an obstacle if each Einsum has mappings that fit, but exchanged tensors do not fit beside
        them."""
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
        """Intermediates up to an Einsum that must be exchanged inside the backing storage; if none, that
        may be."""
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

    # Remedies

    def relaxations(self) -> tuple[Relaxation, ...]:
        """Every single change that helps, sizes first; if there is none, sets of changes."""
        result: list[Relaxation] = []
        for c in self.all[::-1]:
            helps = self._helping([c]) if self.watch.step(partial(self._admits, c)) else []
            result += helps
            if not self.has_time() and not helps:
                self.untried.append(f"{c.kind} {c.level} {' '.join(c.tensors) or c.einsum}".strip())
        return tuple(result) if result or self.untried else tuple(self._together())

    def _admits(self, c: SearchConstraint) -> bool:
        """Whether any mapping exists without the constraint."""
        return self.has_time() and self.relaxer.admits(c.dropped(self.problem))

    def _helping(self, some: Sequence[SearchConstraint]) -> list[Relaxation]:
        """Return the smallest relaxation of these constraints; empty if there is no time."""
        if not some or not self.has_time():
            return []
        helps = self.watch.step(partial(self.relaxer.relaxation, some, self.problem))
        return [] if helps is None else [helps]

    def _together(self) -> Iterator[Relaxation]:
        seen: list[set[SearchConstraint]] = []
        for order in (self.all, self.all[::-1]):
            chosen = self.watch.step(partial(self.relaxer.smallest, order, self.problem)) or ()
            helps = self._helping(chosen)
            if not self.has_time():
                self.untried.append("several together")
                return
            if helps and {*chosen} not in seen:
                seen.append({*chosen})
                yield from helps


# Why no mapping obeys the limits on figures, and the least relaxation of one of them.

KIND = "limits"


def limits_diagnosed(
    cascade: Cascade, hierarchy: Hierarchy, request: Request, search: Search
) -> Diagnosis | None:
    """Return the limits that exclude all mappings, for a request with limits whose search found nothing.

    None if there are no mappings even without the limits.
    """
    work = _Limits(cascade, hierarchy, request, search, time.perf_counter() + SECONDS)
    obstacles: list[Obstacle] = []
    for limit in request.at_most:
        least = work.best(limit, ())
        if least is None and work.done:
            return None
        if least is not None and not limit.admits(least):
            obstacles.append(Obstacle(KIND, limit.name, "", (), 0, 0, least, limit.number))
    if not obstacles:
        together = ", ".join(map(str, request.at_most))
        obstacles.append(Obstacle(KIND, together, "", (), 0, 0, joined=True))
    counted = not request.limits.rules and request.limits.spatial_sizes == "divisors"
    size = mapspace_of(cascade, hierarchy, request.limits).size() if counted else 0
    relaxations = tuple(work.relaxations())
    return Diagnosis(size, tuple(obstacles), relaxations, () if work.done else ("limits",))


@dataclass
class _Limits:
    cascade: Cascade
    hierarchy: Hierarchy
    request: Request
    search: Search
    end: float
    done: bool = True  # whether there was time for all searches

    def best(self, limit: FigureLimit, others: Sequence[FigureLimit]) -> float | None:
        """The best value of a limited figure among mappings that obey the `others`."""
        left = self.end - time.perf_counter()
        if left <= 0:
            self.done = False
            return None
        asked = replace(
            self.request, objectives=(limit.name,), at_most=tuple(others), time_limit=left, progress=None
        )
        result = self.search(self.cascade, self.hierarchy, asked)
        self.done = self.done and result.complete
        return result.candidates[0].values[0] if result.complete and result.candidates else None

    def relaxations(self) -> list[Relaxation]:
        """Every single limit whose relaxation suffices; if there is none, all of them, one after another."""
        limits = self.request.at_most
        result = []
        for k, limit in enumerate(limits):
            need = self.best(limit, (*limits[:k], *limits[k + 1 :]))
            if need is not None:
                result.append(Relaxation((_change(limit, need),)))
        if result or not self.done:
            return result
        changes: list[Change] = []
        fixed: list[FigureLimit] = []
        for limit in limits:
            need = self.best(limit, fixed)
            if need is None:
                return []
            fixed.append(limit if limit.admits(need) else replace(limit, number=need))
            changes += [] if limit.admits(need) else [_change(limit, need)]
        return [Relaxation(tuple(changes))]


def _change(limit: FigureLimit, need: float) -> Change:
    return Change(KIND, limit.name, need=need, have=limit.number)


def with_divisors(
    cascade: Cascade, hierarchy: Hierarchy, request: Request, result: SearchResult, searched: Search
) -> SearchResult:
    """A search of all sizes that ended at too many of them, with the mappings of one among divisors.

    Raises TooManyChains if neither has a mapping.
    """
    assert result.too_many is not None
    limit = request.time_limit
    left = None if limit is None else max(limit - result.seconds, 0.0)
    fewer = replace(request, limits=replace(request.limits, sizes="divisors"), time_limit=left, finished=None)
    some = searched(cascade, hierarchy, fewer) if request.limits.sizes == "all" and left != 0 else None
    more = () if some is None else some.candidates
    if not (result.candidates or more):
        raise result.too_many
    stages = result.stages if some is None else (*result.stages, *some.stages)
    seconds = result.seconds + (0.0 if some is None else some.seconds)
    return replace(result, candidates=(*result.candidates, *more), stages=stages, seconds=seconds)
