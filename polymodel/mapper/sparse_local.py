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
from time import monotonic, process_time
from typing import Any

import numpy as np

from polymodel.analysis.result import Problem
from polymodel.api.evaluation import evaluate_problem
from polymodel.architecture.hierarchy import Hierarchy
from polymodel.errors import SpecError
from polymodel.governor import until
from polymodel.mapper.budget import CUT
from polymodel.mapper.confirm import Point, bug, figures_of
from polymodel.mapper.records import Candidate, Request
from polymodel.mapper.sparse_choices import SparseArchitecture, SparseSearch
from polymodel.mapper.sparse_objectives import CLOSE, admitted, quality, spread
from polymodel.mapper.sparse_tiles import ExploredMachine, KnownSpace, OrderSearch, sweepable
from polymodel.mapper.tree_moves import own_part
from polymodel.mapping.looptree import LoopTree, Node
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
CPU_SECONDS = 60.0  # of this process without a time limit, which small and medium spaces do not take
EVALUATED = 64  # mappings of swept orders that are evaluated by themselves

Array = Any

Key = tuple[int, tuple[Node, ...]]  # a machine and a tree
Figure = Callable[[Point], float]


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
    if not points or (good and quality(search.result, points, 0, good).factor <= 1 + CLOSE):
        return search
    last = process_time() + CPU_SECONDS if end == inf else inf
    known = _KnownMappings(machines, request, data, tuple(n for n, _ in points[0].candidate.named))
    for p in points:
        known.found[known.key(p)] = p if admitted(p, request) else None

    def over() -> bool:
        return monotonic() >= end or process_time() >= last or stopped()

    try:
        with until(end):
            _search(known, good or _smallest(known, points), over)
    except CUT:
        pass  # time is over
    besides = (*search.besides, *known.more)
    return replace(search, besides=besides, proven=known.proven, best=tuple(known.best))


def _smallest(known: _KnownMappings, points: Sequence[Point]) -> list[Point]:
    """Mappings of single iterations that fit, where none that is known does: with nodes as in these, or one
    node elsewhere, more or less."""
    every = range(len(known.request.objectives))
    for p in points[:FIRST]:
        k, tree = known.key(p)[0], p.candidate.tree
        for one in known.machines[k].spec.workload.einsums:
            part = own_part(tree, one, known.machines[k].hierarchy)
            for near in (part.smallest(), *part.smallest().other_nodes()) if part is not None else ():
                moved = near.planted(tree)
                if known.space.inside(k, one.name, moved):
                    known.below(k, moved, partial(_figure, every), inf)
    return list(known.more)


def _search(known: _KnownMappings, good: Sequence[Point], over: Callable[[], bool]) -> None:
    """First orders of storage nodes at all tile sizes, then neighbours that these do not include."""
    if not good:
        return
    orders = OrderSearch(known.machines, known.request.objectives, known.space, over)
    if sweepable(known.request.limits):
        _sweep(known, orders, good)
    if not len(known.proven):
        for figure in _figures(known.request.objectives):
            _Descent(known, partial(_figure, figure), orders, over).run([*good, *known.more])


def _sweep(known: _KnownMappings, orders: OrderSearch, good: Sequence[Point]) -> None:
    every = range(len(known.request.objectives))
    firsts = sorted(good, key=partial(_figure, every))[:FIRST]
    starts = [(known.key(p)[0], p.candidate.tree) for p in firsts]
    whole = orders.exhaustive(starts)
    for figure in () if whole else _figures(known.request.objectives):
        best = sorted(good, key=partial(_figure, figure))[: FIRST // 2]
        orders.run(figure, [(known.key(p)[0], p.candidate.tree) for p in best])
    values, trees = orders.rows()
    found = []
    for i in _spread(values)[:EVALUATED]:
        k, tree = trees[i]
        if not all(known.space.inside(k, e, tree()) for e in known.machines[k].einsums):
            continue  # tile sizes of an order of nodes are more than those of the space
        point = known.below(k, tree(), partial(_figure, every), inf)
        if point is None or not np.allclose(point.scores, values[:, i], rtol=CLOSE, atol=0):
            figures = None if point is None else point.scores
            what = f"its sparse figures are {values[:, i].tolist()} among others, and {figures} by themselves"
            raise bug(known.machines[k].spec, Candidate((), 0.0, 0.0, (), tree), what)
        found.append(point)
    if whole:
        known.proven = values.T
        known.best = found if len(found) == len(trees) else []


def _spread(values: Array) -> list[int]:
    """Positions of points: the least of each objective and of their product first, then evenly."""
    if not values.shape[1]:
        return []
    product = np.log(np.maximum(values, TINY)).sum(axis=0)
    ends = [int(row.argmin()) for row in (*values, product)]
    return list(dict.fromkeys([*ends, *spread(values.shape[1])]))


def _figures(objectives: Sequence[str]) -> Iterator[tuple[int, ...]]:
    """The objectives of which the product is minimised: each one on sparse data, and all together."""
    yield from ((k,) for k, name in enumerate(objectives) if on_sparse_data(name))
    if len(objectives) > 1:
        yield tuple(range(len(objectives)))


def _figure(numbers: Sequence[int], point: Point) -> float:
    return sum(_log(point.scores[k]) for k in numbers)


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
    proven: Array = field(default_factory=lambda: np.zeros((0, 0)))
    best: list[Point] = field(default_factory=list)
    effort: int = 0

    @cached_property
    def space(self) -> KnownSpace:
        return KnownSpace(self.machines, self.request.limits)

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
    orders: OrderSearch
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
        machine = known.machines[k]
        for other, there in enumerate(known.machines):
            if machine.words and machine.differs(there) == 1:
                yield known.below(other, tree, self.figure, self.best)
        for one in machine.spec.workload.einsums:
            part = own_part(tree, one, machine.hierarchy)
            for near in part.neighbours() if part is not None else ():
                moved = near.planted(tree)
                if (k, moved.nodes) in known.found:
                    yield known.found[k, moved.nodes]
                elif not self.orders.whole(k, near, moved) and known.space.inside(k, one.name, moved):
                    yield known.below(k, moved, self.figure, self.best)


def _log(value: float) -> float:
    return log(max(value, TINY)) if value < inf else inf


def _both(p: Point) -> float:
    assert p.found.sparse is not None, "only evaluated mappings have neighbours"
    return sum(map(_log, p.found.sparse))
