"""A local search on sparse figures: from the best mappings that are known to their neighbours.

What a mapping costs on sparse data depends on its tiles in ways that no sum of prices has, so that the best
mapping may be one that neither lower bounds nor dense costs lead to. So neighbours of good mappings
(`tree_moves`; and the same mapping under another choice of formats, actions and fit rules) are evaluated one
by one, always those of the best mapping that has some left: a descent that goes on from the next best mapping
where it ends. A count of evaluations bounds it, so that it is the same wherever it runs, unless time ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from heapq import heappop, heappush
from math import inf, log
from time import monotonic

from polymodel.analysis.result import Problem
from polymodel.api.evaluation import evaluate_problem
from polymodel.architecture.hierarchy import Hierarchy
from polymodel.errors import Refused, SpecError
from polymodel.governor import until
from polymodel.loading import Spec
from polymodel.mapper.budget import CUT
from polymodel.mapper.confirm import Point, figures_of
from polymodel.mapper.membership import outside
from polymodel.mapper.records import Candidate, Limits, Request, Shares
from polymodel.mapper.space import EinsumSpace, einsum_spaces
from polymodel.mapper.sparse_choices import SparseArchitecture, SparseSearch
from polymodel.mapper.sparse_objectives import CLOSE, LONGEST, admitted, quality
from polymodel.mapper.tree_moves import own_part
from polymodel.mapping.looptree import Loop, LoopTree, Node, Split
from polymodel.objectives import on_sparse_data
from polymodel.report.report import Report
from polymodel.report.sparse import with_data
from polymodel.sparse.actions.data import TensorData
from polymodel.sparse.actions.records import KINDS, Certainty

# Effort of a descent: evaluating a neighbour on sparse data takes about four times as long as on dense data.
DENSE, SPARSE = 1, 4
MOST = 2000  # for each figure that is minimised
PATIENCE = 500  # without a better mapping
FIRST = 8  # of the best mappings known, from which a descent begins
TINY = 1e-300

Key = tuple[int, tuple[Node, ...]]  # a machine and a tree
Figure = Callable[[Point], float]


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


def explored(one: SparseArchitecture, hierarchy: Hierarchy, bounded: Request) -> ExploredMachine:
    """One combination of choices, with the least shares of the search on it."""
    return ExploredMachine(one.spec, hierarchy, bounded.shares or (), one.text, one.words)


def improved(
    search: SparseSearch,
    machines: Sequence[ExploredMachine],
    request: Request,
    data: Mapping[str, TensorData],
    end: float,
    stopped: Callable[[], bool],
) -> SparseSearch:
    """The search with further mappings, which fit and obey the limits on working sets.

    None are looked for if those that are known are proven to be the best. `machines`: the combinations that
    were searched.
    """
    points = [p for p in (*search.looked, *search.besides) if p.found.sparse is not None]
    good = [p for p in points if admitted(p, request)]
    if not good or quality(search.result, points, 0, good).factor <= 1 + CLOSE:
        return search
    end = monotonic() + LONGEST if end == inf else end
    known = _KnownMappings(machines, request, data, tuple(n for n, _ in good[0].candidate.named))
    for p in points:
        known.found[known.key(p)] = p
    try:
        with until(end):
            for figure in _figures(request.objectives):
                _Descent(known, figure, lambda: monotonic() >= end or stopped()).run([*good, *known.more])
    except CUT:
        pass  # time is over
    return replace(search, besides=(*search.besides, *known.more))


def _figures(objectives: Sequence[str]) -> Iterator[Figure]:
    """Logarithms of each objective on sparse data, and with several objectives of the product of all."""
    for k, name in enumerate(objectives):
        if on_sparse_data(name):
            yield partial(_figure, k)
    if len(objectives) > 1:
        yield lambda p: sum(map(_log, p.scores))


def _figure(number: int, point: Point) -> float:
    return _log(point.scores[number])


@dataclass
class _KnownMappings:
    """What is known of mappings: their points (None: invalid, too large or not countable), `more` of them
    than at first, and points whose sparse figures are lower bounds. `named`: names of further figures."""

    machines: Sequence[ExploredMachine]
    request: Request
    data: Mapping[str, TensorData]
    named: tuple[str, ...]
    found: dict[Key, Point | None] = field(default_factory=dict)
    more: list[Point] = field(default_factory=list)
    least: dict[Key, Point] = field(default_factory=dict)
    effort: int = 0

    @cached_property
    def spaces(self) -> list[list[EinsumSpace]]:
        limits = self.request.limits
        return [list(einsum_spaces(m.spec.workload, m.hierarchy, limits)) for m in self.machines]

    @cached_property
    def numbers(self) -> dict[str, int]:
        return {m.text: k for k, m in enumerate(self.machines)}

    def key(self, point: Point) -> Key:
        return self.numbers[point.chosen], point.candidate.tree.nodes

    def below(self, k: int, tree: LoopTree, figure: Figure, most: float) -> Point | None:
        """The point of a mapping of the space, if its figure may be below `most`; else None."""
        key = k, tree.nodes
        if key in self.found:
            return self.found[key]
        if key in self.least and figure(self.least[key]) >= most:
            return None
        self.effort += DENSE
        machine = self.machines[k]
        try:
            report = evaluate_problem(Problem(machine.spec.workload, machine.hierarchy, tree))
            bound = self._point(machine, report, tree, least_costs(report, machine), "bound", True)
            if figure(bound) >= most:
                self.least[key] = bound
                return None
            self.effort += SPARSE
            sparse = with_data(report, self.data)
        except SpecError:  # not legal, or not countable
            self.found[key] = None
            return None
        costs = sparse.total_energy, sparse.total_latency
        point = self._point(machine, report, tree, costs, sparse.label, sparse.feasible)
        self.found[key] = point if admitted(point, self.request) else None
        if self.found[key] is not None:
            self.more.append(point)
        return self.found[key]

    def _point(
        self,
        machine: ExploredMachine,
        report: Report,
        tree: LoopTree,
        costs: tuple[float, float],
        label: Certainty,
        fits: bool,
    ) -> Point:
        dense = figures_of(report)
        named = tuple((n, report.value(n)) for n in self.named)
        candidate = Candidate((), dense.energy, dense.latency, dense.buffers, lambda: tree, named)
        figures = replace(dense, sparse=costs, label=label, fits=fits, named=named)
        return Point(0, machine.spec, candidate, self.request.objectives, figures, machine.text)


def least_costs(report: Report, machine: ExploredMachine) -> tuple[float, float]:
    """Lower bounds of joules and seconds on sparse data: dense counts at the least shares."""
    hierarchy, analysis, cascade = machine.hierarchy, report.analysis, report.problem.cascade
    places = {name: k for k, name in enumerate(hierarchy.memories)}
    shares = dict(zip(machine.einsums, machine.shares, strict=True))
    energy, moved = 0.0, dict[tuple[str, str], list[float]]()
    for row in analysis.traffic:
        one = cascade[row.einsum]
        for kind in KINDS:
            joules, bits = shares[row.einsum].of(one.tensors.index(row.tensor), places[row.component], kind)
            energy += getattr(row, kind) * joules * one.n_instances
            moved.setdefault((row.einsum, row.component), [0.0, 0.0])[kind.startswith("writes")] += (
                getattr(row, kind) * bits
            )
    times = dict.fromkeys(machine.einsums, 0.0)
    for load in analysis.loads:
        c = hierarchy[load.component]
        both = moved.get((load.einsum, load.component), [0.0, 0.0])
        sides = [b / c.action(way).throughput for b, way in zip(both, ("read", "write"), strict=True)]
        seconds = (sum(sides) if c.ports == "shared" else max(sides)) / load.instances
        times[load.einsum] = max(times[load.einsum], seconds)
    for work in analysis.compute:
        joules, share = shares[work.einsum].executed(work.component)
        energy += work.operations * joules * cascade[work.einsum].n_instances
        rate = hierarchy[work.component].action("compute").throughput
        times[work.einsum] = max(times[work.einsum], work.operations * share / work.instances / rate)
    return energy, sum(t * cascade[e].n_instances for e, t in times.items())


@dataclass
class _Descent:
    """Evaluates neighbours, always of the best mapping that has some left."""

    known: _KnownMappings
    figure: Figure
    over: Callable[[], bool]
    best: float = inf
    waiting: list[tuple[float, float, int, Iterator[Point | None]]] = field(default_factory=list)
    begun: set[Key] = field(default_factory=set)

    def run(self, points: Sequence[Point]) -> None:
        """Begin with the best of some points."""
        known, figure = self.known, self.figure
        for p in sorted(points, key=lambda p: (figure(p), _both(p)))[:FIRST]:
            self._put(p)
        self.best = min(map(figure, points))
        last, patience = known.effort + MOST, known.effort + PATIENCE
        while self.waiting and known.effort < min(last, patience) and not self.over():
            first = self.waiting[0]
            try:
                point = next(first[3])
            except StopIteration:
                heappop(self.waiting)
                continue
            if point is not None:
                self._put(point)
                if figure(point) < self.best - CLOSE:
                    self.best, patience = figure(point), known.effort + PATIENCE

    def _put(self, p: Point) -> None:
        key = self.known.key(p)
        if key not in self.begun:
            self.begun.add(key)
            near = self._neighbours(key[0], p.candidate.tree)
            # of mappings that are equal in the figure the one that is best in both costs comes first
            heappush(self.waiting, (round(self.figure(p), 9), _both(p), len(self.begun), near))

    def _neighbours(self, k: int, tree: LoopTree) -> Iterator[Point | None]:
        """Each neighbour: None if it is not valid, or not better than the best."""
        known = self.known
        machine, limits = known.machines[k], known.request.limits
        for other, there in enumerate(known.machines):
            if machine.words and machine.differs(there) == 1:
                yield known.below(other, tree, self.figure, self.best)
        for one, space in zip(machine.spec.workload.einsums, known.spaces[k], strict=True):
            if space.copy or _shares_loops(tree, one.name):
                continue  # of mappings with shared loops it is not known whether the space has them
            part = own_part(tree, one, machine.hierarchy)
            for near in part.neighbours() if part is not None else ():
                moved = near.planted(tree)
                if (k, moved.nodes) in known.found or _inside(space, moved, limits, machine.hierarchy):
                    yield known.below(k, moved, self.figure, self.best)


def _shares_loops(tree: LoopTree, einsum: str) -> bool:
    path = [s.node for s in tree.path(einsum)]
    splits = [i for i, n in enumerate(path) if isinstance(n, Split)]
    return any(isinstance(n, Loop) for n in path[: max(splits, default=0)])


def _inside(space: EinsumSpace, tree: LoopTree, limits: Limits, hierarchy: Hierarchy) -> bool:
    try:
        return not outside(space, tree, limits, hierarchy)
    except Refused:
        return False


def _log(value: float) -> float:
    return log(max(value, TINY)) if value < inf else inf


def _both(p: Point) -> float:
    assert p.found.sparse is not None, "only evaluated mappings have neighbours"
    return sum(map(_log, p.found.sparse))
