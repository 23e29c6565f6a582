"""Mappings outside the space of the search: splits that run as pipelines, and loops with first tiles.

They are derived from mappings that the search finds (`pipelining`, `tree_changes`), and each is evaluated.
The latency of a pipeline is that of its slowest stages and of the memories that all stages use, about which
the sum of the Einsums' latencies says little. So the search is repeated with lower bounds of a pipeline as
objectives, the times of memories and stages, for each choice of fused loops and of compute units.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import chain, islice, product
from math import inf
from time import perf_counter

from polymodel.architecture.hierarchy import Component, Hierarchy
from polymodel.errors import Refused
from polymodel.mapper.aims import WORKING_SET
from polymodel.mapper.fusions import FusedLimits, fused, fusions
from polymodel.mapper.halos import of_least, with_halos
from polymodel.mapper.outside import Evaluations, Standing, a_third, last_evaluation
from polymodel.mapper.pipelining import Units, arrangements, unit_classes
from polymodel.mapper.records import CLOSE, Candidate, Limits, Progress, Request, SearchResult
from polymodel.mapper.tree_changes import TreeChanges
from polymodel.mapping.looptree import LoopTree
from polymodel.objectives import SearchFigures, score, summed, uses, value
from polymodel.workload.einsum import Cascade

FUSIONS = 16  # choices of fused loops that are searched
UNEVEN = 32  # largest extent of which all tiles are searched without a time limit
BRIEFLY = 1.5  # seconds per Einsum of a search for pipelines, at least, where the time is limited
COARSELY = 0.05  # `eps` of these searches there
ASSIGNMENTS = 16  # choices of compute units that are searched
SEEDS = 200  # mappings of one search that are tried as pipelines, per objective
CLIMBS = 4  # mappings from which changes are tried, per objective
PAIRS = 64  # changes of a tile and a storage node at once, of one mapping
OF_TIME = {"latency", "edp", "utilisation"}

Search = Callable[[Cascade, Hierarchy, Request], SearchResult]


def with_others(
    search: Search,
    cascade: Cascade,
    hierarchy: Hierarchy,
    request: Request,
    has_time: Callable[[], bool],
    end: float,
) -> SearchResult:
    """Return the result of the search, with mappings outside its space: those with `halos`, and those that
    `moves` make of all of these.

    With a time limit the search, the searches for pipelines, and the changes take a third of it each.
    """
    limits, limit = request.limits, request.time_limit
    if not limits.moves:
        return with_halos(search, cascade, hierarchy, request, has_time, end)
    _require_free_first_tiles(limits)
    plain = replace(request, limits=replace(limits, moves=()))
    third = a_third(plain)
    if limits.halos:
        result = with_halos(search, cascade, hierarchy, third, has_time, end - 2 / 3 * (limit or 0.0))
    else:
        result = search(cascade, hierarchy, third)
    begun = perf_counter()
    evaluations = Evaluations(cascade, hierarchy, plain, has_time, last_evaluation(request, end))
    work = MoveSearch(evaluations, limits, partial(_told, request, result, begun))
    flat = replace(third, limits=replace(third.limits, halos=()))
    flat = flat if limit is None else replace(flat, time_limit=limit / 3 / len(limits.moves))
    if "pipelines" in limits.moves:
        work.seeds = list(_seeds(search, evaluations, flat))
    several = [result.candidates]
    if "initial_tiles" in limits.moves:
        several.append(_uneven(search, cascade, hierarchy, flat))
    work.run([c for some in several for c in of_least(some, request.objectives)])
    found = sorted(evaluations.found, key=lambda c: (c.values, c.energy, c.latency))
    stage = evaluations.stage("moves", work.tried, perf_counter() - begun)
    return replace(
        result,
        candidates=(*result.candidates, *found),
        stages=(*result.stages, stage),
        moves=evaluations.complete and not evaluations.skipped,
        diagnosis=None if found else result.diagnosis,
    )


def _require_free_first_tiles(limits: Limits) -> None:
    """Raises Refused for rules that first tiles might break."""
    if "initial_tiles" in limits.moves and _ruled(limits):
        what = "loops have no first tiles beside rules on temporal loops, `loop_order` and `min_utilisation`"
        raise Refused(what, "leave `initial_tiles` out of `moves`", code="unsupported-constraint")


def _uneven(
    search: Search, cascade: Cascade, hierarchy: Hierarchy, request: Request
) -> tuple[Candidate, ...]:
    """Mappings with tiles that do not divide, which first tiles go with; none where the search has no such
    tiles, or would take long."""
    extents = (high - low + 1 for e in cascade.einsums for low, high in e.bounds)
    if request.limits.sizes == "all" or (request.time_limit is None and max(extents, default=0) > UNEVEN):
        return ()
    try:
        return search(
            cascade, hierarchy, replace(request, limits=replace(request.limits, sizes="all"))
        ).candidates
    except Refused:
        return ()


def _ruled(limits: Limits) -> bool:
    """Whether changes of tiles may break a rule on loops."""
    return bool(limits.loop_order or limits.min_utilisation or any(not r.spatial for r in limits.rules))


def _told(request: Request, result: SearchResult, begun: float, evaluations: Evaluations) -> None:
    """Report the progress."""
    if request.progress is None:
        return
    first, limit = request.objectives[0], request.time_limit
    several = [float(score(first, c.values[0])) for c in (*result.candidates, *evaluations.found)]
    spent = 0.0 if limit is None else 1 / 3 + (perf_counter() - begun) / limit
    best = min(several, default=None)
    request.progress(Progress(0, 1, "moves", best, len(evaluations.known), spent=spent))


@dataclass(frozen=True)
class Seed:
    """A mapping of the space, the units of its Einsums, and lower bounds of its scores as a pipeline."""

    candidate: Candidate
    units: Units
    bounds: tuple[float, ...]


def _seeds(search: Search, evaluations: Evaluations, request: Request) -> Iterator[Seed]:
    """Mappings of the space that may be good pipelines; none if no objective or limit depends on time.

    `evaluations` is not complete if there is no time for all.
    """
    cascade, hierarchy, limit = evaluations.cascade, evaluations.hierarchy, request.time_limit
    timed = any(c.leak_power for c in hierarchy.components)
    asked = (*request.objectives, *(x.name for x in request.at_most))
    if not timed and not any(name in OF_TIME for o in asked for name, _ in uses(o)):
        return
    plans = list(_plans(cascade, hierarchy, request))
    many = (
        len(plans) if limit is None else min(len(plans), max(1, int(limit / BRIEFLY / len(cascade.einsums))))
    )
    whole = many == len(plans)
    for plan in plans[:many]:
        if not evaluations.has_time():
            whole = False
            break
        one = plan.request(request)
        if limit is not None:
            one = replace(one, time_limit=limit / many, eps=max(request.eps, COARSELY))
        found = search(cascade, hierarchy, one)
        whole = whole and found.complete
        for c in found.candidates:
            yield Seed(c, plan.units, plan.bounds(c, one, request))
    evaluations.skipped = not whole


def _plans(cascade: Cascade, hierarchy: Hierarchy, request: Request) -> Iterator[PipelineSearch]:
    """Choices of units, and of loops that Einsums share which need not all be on one unit."""
    classes = unit_classes(cascade, hierarchy, request.limits)
    choices = (dict(zip(classes, units, strict=True)) for units in product(*classes.values()))
    for units in islice(choices, ASSIGNMENTS):
        limits = replace(request.limits, compute=tuple((e, some[0]) for e, some in units.items()))
        for loops in islice(fusions(cascade, limits), FUSIONS):
            if len({u for e, _ in loops for u in units[e]}) > 1:
                yield PipelineSearch(cascade, hierarchy, fused(cascade, limits, loops), units)


@dataclass(frozen=True)
class PipelineSearch:
    """Einsums that share loops, and the units that each may execute on.

    A search for pipelines is limited to these.
    """

    cascade: Cascade
    hierarchy: Hierarchy
    limits: FusedLimits
    units: Units

    @cached_property
    def run(self) -> tuple[str, ...]:
        return tuple(e for e, _ in self.limits.fused)

    @cached_property
    def busy(self) -> tuple[tuple[str, int], ...]:
        """Latencies of Einsums that execute on the same units, as objectives, with the number of units."""
        groups: dict[object, list[str]] = {}
        for e in self.run:
            groups.setdefault(self.units[e] if len(self.units[e]) == 1 else e, []).append(e)
        return tuple((_over("latency:", mine), 1) for mine in groups.values())

    @cached_property
    def moving(self) -> tuple[str, ...]:
        """Seconds that each memory takes by itself, as objectives: what all stages move adds up."""
        memories = (c for c in self.hierarchy.components if c.stores)
        return tuple(n for c in memories for n in _seconds(c, self.run))

    @cached_property
    def apart(self) -> str:
        """The latency of the other Einsums, as an objective; an empty text if there are none."""
        others = [e.name for e in self.cascade.einsums if e.name not in self.run]
        return _over("latency:", others) if others else ""

    def request(self, request: Request) -> Request:
        """The request for mappings that may be good pipelines.

        Limits on time are dropped: a pipeline may keep those that its Einsums one after the other do not.
        """
        names = [*request.objectives, "energy", *(n for n, _ in self.busy), *self.moving]
        names += [self.apart] if self.apart else []
        names += [f"{WORKING_SET}:{c.name}" for c in [c for c in self.hierarchy.components if c.stores][1:]]
        names = [n for n in dict.fromkeys(names) if n not in OF_TIME]
        kept = tuple(x for x in request.at_most if not any(n in OF_TIME for n, _ in uses(x.name)))
        return replace(request, objectives=tuple(names), at_most=kept, limits=self.limits)

    def bounds(self, candidate: Candidate, searched: Request, request: Request) -> tuple[float, ...]:
        """Lower bounds of the scores of the objectives, whatever stages overlap."""
        known = dict(zip(searched.objectives, candidate.values, strict=True))
        least = max([known[n] / units for n, units in self.busy] + [known[n] for n in self.moving])
        least += known[self.apart] if self.apart else 0.0
        machine = self.hierarchy
        leak = sum(c.leak_power * machine.instances(c.name) for c in machine.components)
        energy = max(candidate.energy - leak * max(candidate.latency - least, 0.0), 0.0)
        result = []
        for o in request.objectives:
            if o == "utilisation":
                result.append(0.0)
            elif any(n in OF_TIME or n == "energy" for n, _ in uses(o)):
                figures = SearchFigures(energy, least, dict(candidate.buffers), request.area)
                result.append(float(score(o, value(o, figures))))
            else:
                result.append(float(score(o, known[o])))
        return tuple(result)


def _over(name: str, einsums: Sequence[str]) -> str:
    """The sum of a figure over some Einsums, as an objective."""
    return ":".join((name, *einsums))


def _seconds(memory: Component, einsums: Sequence[str]) -> Iterator[str]:
    """The seconds that the busiest instance of a memory takes in some Einsums, as objectives, per port."""
    terms = []
    for way, action in (("busiest_reads", "read"), ("busiest_writes", "write")):
        each = memory.action(action).throughput
        if each < inf:
            terms.append((1 / each, _over(f"{way}:{memory.name}", einsums)))
    if memory.ports == "separate":
        yield from (summed([t]) for t in terms)
    elif terms:
        yield summed(terms)


@dataclass
class MoveSearch:
    """Changes mappings as long as that improves an objective.

    `limits`: with `moves`; `told` is called after each evaluation. `tried`: mappings whose changes were
    evaluated. `standings`: of the mappings with moves, and `least` of those that fit per objective.
    """

    evaluations: Evaluations
    limits: Limits
    told: Callable[[Evaluations], None]
    seeds: Sequence[Seed] = ()
    tried: int = 0
    standings: dict[LoopTree, Standing] = field(default_factory=dict)
    least: dict[int, float] = field(default_factory=dict)

    def run(self, candidates: Sequence[Candidate]) -> None:
        """Add mappings that fit. `candidates`: those that get first tiles."""
        cascade, first = self.evaluations.cascade, "initial_tiles" in self.limits.moves
        changes = TreeChanges(cascade, self.limits, tiles=not _ruled(self.limits), first=first)
        for number in range(len(self.evaluations.request.objectives)):
            self._overlap(number)
            ranked = sorted(self.standings, key=lambda t: self._key(self.standings[t], number))
            for tree in ranked[:CLIMBS]:
                self._climb(tree, changes, number)
            for c in candidates if first else ():
                self._climb(c.tree, replace(changes, tiles=False), number)

    def _overlap(self, number: int) -> None:
        """Evaluate the seeds as pipelines, those with the least bounds of an objective first."""
        for seed in islice(sorted(self.seeds, key=lambda s: s.bounds[number]), SEEDS):
            if seed.bounds[number] >= self.least.get(number, inf) * (1 - CLOSE):
                return
            for tree in arrangements(seed.candidate.tree, seed.units):
                self._standing(tree)
            if not self.evaluations.complete:
                return

    def _standing(self, tree: LoopTree) -> Standing | None:
        if tree in self.standings:
            return self.standings[tree]
        standing = self.evaluations.of(tree)
        self.told(self.evaluations)
        if standing is not None:
            self.standings[tree] = standing
            for k, x in enumerate(standing.scores) if not standing.excess else ():
                self.least[k] = min(x, self.least.get(k, inf))
        return standing

    def _key(self, standing: Standing, number: int) -> tuple[float, ...]:
        """What is made smaller: the room that is missing, then an objective, then all else."""
        return (standing.excess, standing.scores[number], *standing.scores, *standing.costs)

    def _climb(self, tree: LoopTree, changes: TreeChanges, number: int) -> None:
        """Change a mapping as long as it gets better in an objective."""
        standing = self._standing(tree)
        if standing is None:
            return
        self.tried += 1
        best = self._key(standing, number)
        improved = True
        while improved and self.evaluations.complete:
            improved = False
            for other in chain(changes.of(tree), islice(changes.pairs(tree), PAIRS)):
                found = self._standing(other)
                if found is not None and _less(self._key(found, number), best):
                    tree, best, improved = other, self._key(found, number), True
                    break


def _less(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether figures are less, in lexicographic order, by more than rounding."""
    for a, b in zip(one, other, strict=True):
        if abs(a - b) > CLOSE * max(abs(a), abs(b)):
            return a < b
    return False
