"""`codesign`: architectures and mappings in one search."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, perf_counter
from typing import Any

import numpy as np

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.governor import (
    LOOK,
    ClusterFlag,
    elsewhere,
    halting,
    scratch,
    seconds_of,
    spare,
    terminable,
    until,
)
from polymodel.hardware.answer import Codesign
from polymodel.hardware.layers import Combined, Figures
from polymodel.hardware.machines import DesignPoint, Family, alone, families, machines
from polymodel.hardware.networks import (
    NetworkLayers,
    Networks,
    PlainFigures,
    read_networks,
    together,
)
from polymodel.hardware.points import CodesignPoint, MachineRow
from polymodel.hardware.request import COSTS, CodesignArguments, CodesignRequest, read_request
from polymodel.libraries import installed
from polymodel.loading import Spec
from polymodel.mapper.aims import grows_with_peaks
from polymodel.mapper.budget import CUT, time_of_search
from polymodel.mapper.confirm import LONGEST, figures_of
from polymodel.mapper.membership import with_reasons
from polymodel.mapper.records import Candidate
from polymodel.mapper.request import Constraints, of_part, read_search_request, section_of_arguments
from polymodel.mapper.search import explored
from polymodel.mapping.looptree import LoopTree
from polymodel.objectives import is_internal, of_network, value, whose
from polymodel.pareto import undominated, undominated_but_for_rounding
from polymodel.report.report import Report
from polymodel.spec.faults import Faults
from polymodel.spec.section_schemas import CodesignSection
from polymodel.stores.store import check_store, folder_of, marked, parts_of
from polymodel.sweeps.choices import choices_of
from polymodel.sweeps.grid import Grid, make_grid
from polymodel.sweeps.values import Choice

UNUSED = 0.05  # seconds of a time limit that are too few to continue
Array = Any
Progress = Callable[[int, int, float], None]


def codesign(
    layers: Networks,
    hardware: Mapping[str, Choice] | None = None,
    *,
    objectives: Sequence[str] | None = None,
    limits: Sequence[str] | Mapping[str, object] | str | None = None,
    where: Sequence[str] | None = None,
    weights: Mapping[str, float] | None = None,
    layer_by_layer: bool | None = None,
    constraints: Constraints | None = None,
    eps: float | None = None,
    time_limit: float | None = None,
    workers: int = 1,
    progress: Progress | None = None,
    store: str | Path | None = None,
    resume: bool = True,
) -> Codesign:
    """The Pareto front of machines with their best mappings.

    `layers`: a spec, or several that run in sequence on the same machine; `(spec, n)` is executed n times,
    each time with the same mapping. Several networks on one machine have names, `{"a": [...], "b": spec}`,
    and count with their `weights` (1 each) in figures of all together. `hardware`: symbols of the
    architecture -> values, as for `sweep`. `objectives`: energy (J), latency (s), edp (J s), area (m^2),
    working_set:MEMORY (bit) and other objectives of `explore`; energy and latency add over layers, `latency
    of a` is that of one network, `latency of each` that of every one separately. `layer_by_layer`: each
    Einsum of a spec is a layer of its own (nothing is fused), equal ones are searched once. `limits`: upper
    bounds of figures, such as `latency <= 2e-3` or `latency of each <= 1 ms`. `where`: comparisons of symbols
    that machines must satisfy. `constraints`, `eps`: as for `explore`. `time_limit`: seconds, divided among
    the remaining searches. `workers`: processes, or a cluster within `joblib.parallel_config("dask")`; the
    answer is the same. `progress(done, searches, seconds)`. `store`: a folder, in which each search resumes
    where it ended unless `resume` is False.

    Arguments that are None come from the `codesign:` section of the first layer, which may name networks.

    Machines that differ only in sizes of memories, area, prices per bit and per operation, leakage, fanouts
    and, if each layer is one Einsum, throughputs are searched once: exactly (why: docs/howto/codesign.md).
    Raises SpecError for wrong input, Refused for what `explore` does not cover.
    """
    begun = perf_counter()
    arguments = CodesignArguments(
        hardware, objectives, limits, where, weights, layer_by_layer, eps, time_limit
    )
    work, wanted, asked, grid = _checked(layers, arguments, store)
    given, _ = section_of_arguments(constraints)  # the searches report faults in them
    work, wholes = work.one_by_one(grid, given) if wanted.layer_by_layer else (work, work.specs)
    of_layers = [of_part(constraints, *both) for both in zip(work.specs, wholes, strict=True)]
    every, refused = machines(work.specs, grid)
    # With eps a kept mapping may need more space than an omitted one that fits a smaller machine.
    groups = families(every, grid, given) if not wanted.eps else tuple(map(alone, every))
    with terminable():
        orders = _orders(groups, asked, of_layers, wanted.eps, store, resume)
        now, limit = monotonic(), spare(wanted.time_limit)
        last = now + (time_of_search(limit) or limit)
        found = answered(orders, last, workers, progress, begun, orderly=True)
        found = _with_others(groups, orders, found, asked, _halfway(now + limit))
        front = _joint(groups, found, asked, work)
        stopped = _evaluate_front(front[0], found, work, now + limit)
    seconds = perf_counter() - begun
    return Codesign(work, grid, asked, *front, refused, len(orders), wanted.eps, seconds, stopped)


def _checked(
    layers: Networks, arguments: CodesignArguments, store: object
) -> tuple[NetworkLayers, CodesignSection, CodesignRequest, Grid]:
    """The layers and the request. Raises SpecError with all faults."""
    faults = Faults()
    work = read_networks(layers, faults)
    faults.raise_if_any()
    first = work.specs[0]
    with arguments.in_section(first):
        wanted = arguments.over(first.raw_codesign)
        asked, grid, work = _read(work, wanted, store)
    return work, wanted, asked, grid


def _read(
    work: NetworkLayers, wanted: CodesignSection, store: object
) -> tuple[CodesignRequest, Grid, NetworkLayers]:
    """The checked request: objectives, limits, machines, and weights of networks.

    Raises SpecError with all faults.
    """
    faults = Faults()
    specs = work.specs
    arch = specs[0].raw_arch
    memories, tolls = (arch.memories, arch.tolls) if arch is not None else ((), ())
    asked = read_request(wanted, memories, tolls, work.names, faults)
    work = work.weighted(wanted.weights, faults)
    if wanted.eps and asked.limits:
        what = "with eps a mapping within the limits may be omitted in favour of one outside them"
        faults.note(Diagnostic(what, "leave out eps, or the limits", "eps", code="conflicting-arguments"))
    with faults.noting():
        check_store(store)
    with faults.noting():
        seconds_of(wanted.time_limit, "time_limit")
    chosen = choices_of(wanted.hardware, faults) if isinstance(wanted.hardware, Mapping) else {}
    grid: Grid | None = None
    with faults.noting():
        grid = make_grid(specs[0], chosen, wanted.where, specs) if chosen else None
    if not chosen and not faults.found:
        remedy = "give symbols of the architecture with values, {'KIB': [8, 16]}, or a `codesign:` section"
        message = "no symbol of the hardware is given"
        faults.note(Diagnostic(message, remedy, "hardware", code="missing-argument"))
    faults.raise_if_any()
    assert grid is not None
    return asked, grid, work


@dataclass(frozen=True)
class SearchTask:
    """One search: a layer on the machine that is searched for a family."""

    spec: Spec
    objectives: tuple[str, ...]
    figures: tuple[str, ...]
    constraints: Constraints | None
    eps: float
    store: Path | None
    resume: bool
    evaluated: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """The figures of its mappings."""
        return tuple(dict.fromkeys([*self.figures, *COSTS]))


@dataclass(frozen=True)
class Answered:
    """The front of one search: figures, mappings, whether it was complete, why it is empty, and lower bounds
    of what was minimised; `interrupted`: by Ctrl-C; `late`: time ended it."""

    figures: Mapping[str, Array]
    mappings: tuple[Candidate, ...]
    complete: bool
    reason: str
    bounds: Mapping[str, float]
    interrupted: bool = False
    late: bool = False

    def with_more(self, other: Answered, first: str) -> Answered:
        """Its mappings with those of a search that was continued, sorted by the objective `first`."""
        if other.complete:
            return other
        figures = {n: np.concatenate([v, other.figures[n]]) for n, v in self.figures.items()}
        order = np.argsort(figures[first], kind="stable")
        mappings = (*self.mappings, *other.mappings)
        bounds = {n: max(b, self.bounds.get(n, b)) for n, b in other.bounds.items()}
        return replace(
            other,
            figures={n: v[order] for n, v in figures.items()},
            mappings=tuple(mappings[i] for i in order.tolist()),
            bounds=bounds,
        )

    def best_first(self) -> Iterator[LoopTree]:
        """The mappings in the order of their first figure."""
        return (self.mappings[i].tree for i in np.argsort(next(iter(self.figures.values())), kind="stable"))


def _orders(
    groups: Sequence[Family],
    asked: CodesignRequest,
    constraints: Sequence[Constraints | None],
    eps: float,
    store: str | Path | None,
    resume: bool,
) -> dict[str, SearchTask]:
    """Searches by a fingerprint of everything that they depend on: equal layers are searched once.

    Mappings are evaluated at once if peaks of memories are requested, since those may be lower than the
    search counts them; otherwise those of the joint front are evaluated at the end.
    """
    at_once = any(map(grows_with_peaks, asked.searched))
    place = None if store is None else folder_of(store)
    result: dict[str, SearchTask] = {}
    for group in groups:
        names = tuple(dict.fromkeys([*asked.searched, *group.figures]))
        for spec, own in zip(group.layers, constraints, strict=True):
            mark = mark_of(spec, names)
            folder = None if place is None else place / mark[:16]
            result.setdefault(mark, SearchTask(spec, names, names, own, eps, folder, resume, at_once))
    return result


def mark_of(spec: Spec, names: tuple[str, ...]) -> str:
    return marked([*parts_of(spec), spec.raw_explore, names])


def answered(
    orders: Mapping[str, SearchTask],
    end: float,
    workers: int,
    progress: Progress | None,
    begun: float,
    orderly: bool = False,
) -> dict[str, Answered]:
    """The fronts of all searches, here or in joblib's processes, in order.

    With a time limit the searches that were cut short share what is left of it. `orderly`: after Ctrl-C the
    searches end with what they have, and those after it have no time; the next Ctrl-C ends all. Raises
    KeyboardInterrupt.
    """
    result: dict[str, Answered] = {}
    whole = end - monotonic()
    with _resumable(orders, whole) as pending:
        while pending:
            before = len(orders) - len(pending)
            in_turn = _here(pending, end, orderly) if workers == 1 else _there(pending, end, workers, orderly)
            for i, (mark, answer) in enumerate(in_turn, start=before + 1):
                first = orders[mark].objectives[0]
                result[mark] = result[mark].with_more(answer, first) if mark in result else answer
                if progress is not None:
                    progress(i, len(orders), perf_counter() - begun)
            over = whole == inf or end - monotonic() < UNUSED * whole
            if over or any(a.interrupted for a in result.values()):
                break
            pending = {m: o for m, o in pending.items() if result[m].late}
    return result


@contextmanager
def _resumable(orders: Mapping[str, SearchTask], seconds: float) -> Iterator[dict[str, SearchTask]]:
    """The searches, with a store for as long as they may have to continue with time that others have left
    over."""
    alone = len(orders) < 2 or seconds == inf or not installed("pyarrow")
    if alone or any(o.store is not None for o in orders.values()):
        yield {**orders}
        return
    with TemporaryDirectory(dir=scratch(), ignore_cleanup_errors=True) as folder:
        yield {m: replace(o, store=Path(folder) / m[:16]) for m, o in orders.items()}


Marked = Iterator[tuple[str, Answered]]


def _here(orders: Mapping[str, SearchTask], end: float, orderly: bool) -> Marked:
    """The searches one after the other in this process."""
    interrupted = False
    for i, (mark, order) in enumerate(orders.items()):
        answer = _searched(order, (end - monotonic()) / (len(orders) - i))
        if answer.interrupted:
            if interrupted or not orderly:
                raise KeyboardInterrupt
            interrupted, end = True, monotonic()
        yield mark, answer


def _there(orders: Mapping[str, SearchTask], end: float, workers: int, orderly: bool) -> Marked:
    """The searches in joblib's processes."""
    from joblib import delayed

    limit = (end - monotonic()) / -(-len(orders) // workers)
    with halting() if orderly else nullcontext() as halt:
        last = end if isinstance(halt, Path) else inf  # another host has another clock
        tasks = (delayed(_searched)(o, limit, last, halt) for o in orders.values())
        with elsewhere(workers, tasks) as running:
            yield from zip(orders, running, strict=True)


@dataclass
class _Halt:
    """Interrupts a search in a worker once the flag `raised` exists, which it checks from time to time."""

    raised: Path | ClusterFlag
    told: bool = False
    looked: float = field(default_factory=monotonic)

    def __call__(self, _: object) -> None:
        if self.told or monotonic() - self.looked < LOOK:
            return
        self.told = self.raised.exists()
        self.looked = monotonic()
        if self.told:
            raise KeyboardInterrupt


def _searched(
    order: SearchTask, seconds: float, end: float = inf, halt: Path | ClusterFlag | None = None
) -> Answered:
    """The front of one search within so many seconds, by the `end` at the latest."""
    halted = halt is not None and halt.exists()
    seconds = 0.0 if halted else min(seconds, end - monotonic())
    limit = None if seconds == inf else max(seconds, 0.1)
    objectives = [o for o in order.objectives if not is_internal(o)]
    told = None if halt is None or halted else _Halt(halt)
    checked = read_search_request(
        order.spec, objectives, order.constraints, order.eps, limit, 1, told, order.store, order.resume
    )
    more = tuple(o for o in order.objectives if is_internal(o))
    request = replace(checked.request, objectives=(*checked.request.objectives, *more))
    checked = replace(checked, request=request)
    front = explored(order.spec, checked, order.store, order.resume, order.evaluated)
    figures = {n: np.array([p.value(n) for p in front], float) for n in order.names}
    mappings = tuple(p.candidate for p in front)
    late = not front.complete and not front.found.memory
    interrupted = front.interrupted or (halted and late)
    return Answered(figures, mappings, front.complete, front.reason, front.bounds, interrupted, late)


def _halfway(end: float) -> float:
    now = monotonic()
    return now if end == inf else (now + end) / 2


def _with_others(
    groups: Sequence[Family],
    orders: Mapping[str, SearchTask],
    answers: Mapping[str, Answered],
    asked: CodesignRequest,
    end: float,
) -> dict[str, Answered]:
    """The answers, with mappings of other machines wherever a search was cut short: those in the search space
    of the machine, best first, until the `end`. A search that ended knows all of its own space."""
    result = dict(answers)
    for layer in range(len(groups[0].layers) if groups else 0):
        names = (dict.fromkeys([*asked.searched, *group.figures]) for group in groups)
        marks = [mark_of(g.layers[layer], tuple(n)) for g, n in zip(groups, names, strict=True)]
        for mark in dict.fromkeys(m for m in marks if answers[m].late and not answers[m].interrupted):
            others = [answers[m].best_first() for m in dict.fromkeys(marks) if m != mark]
            in_turn = (tree for row in zip_longest(*others) for tree in row if tree is not None)
            with suppress(*CUT), until(end):
                for tree in in_turn:
                    more = _tried(orders[mark], tree, answers[mark])
                    if more is not None:
                        result[mark] = result[mark].with_more(more, orders[mark].objectives[0])
    return result


def _tried(order: SearchTask, tree: LoopTree, answer: Answered) -> Answered | None:
    """The answer of a search with this mapping alone; None if it is not in the search space."""
    try:
        report, reasons = with_reasons(order.spec.with_mapping(tree), order.constraints)
    except (SpecError, Refused):
        return None
    if reasons:
        return None
    figures = {n: float(value(n, report.figures)) for n in order.names}
    known = figures_of(report)
    values = tuple(figures[o] for o in order.objectives)
    mapping = Candidate(values, known.energy, known.latency, known.buffers, lambda: tree)
    return replace(
        answer, figures={n: np.array([v]) for n, v in figures.items()}, mappings=(mapping,), complete=False
    )


def _joint(
    groups: Sequence[Family], answers: Mapping[str, Answered], asked: CodesignRequest, work: NetworkLayers
) -> tuple[tuple[CodesignPoint, ...], tuple[MachineRow, ...]]:
    """The joint front, and a row for every machine."""
    points: list[CodesignPoint] = []
    rows: list[MachineRow] = []
    for group in groups:
        names = tuple(dict.fromkeys([*asked.searched, *group.figures]))
        found = [answers[mark_of(spec, names)] for spec in group.layers]
        for machine in group.members:
            here, reason = _on(machine, group, found, asked, work)
            complete = all(a.complete for a in found)
            least = {n: min((p.figures[n] for p in here), default=None) for n in asked.figures}
            bounds = {} if complete else _bounds(machine, group, found, asked, work)
            rows.append(MachineRow(machine, least, len(here), complete, reason, bounds))
            points += here
    values = np.array([[p.figures[o] for o in asked.objectives] for p in points], float).T
    kept = undominated_but_for_rounding(values) if points else np.zeros(0, np.int64)
    front = sorted((points[int(i)] for i in kept), key=lambda p: [p.figures[o] for o in asked.objectives])
    return tuple(front), tuple(sorted(rows, key=lambda r: r.machine.number))


def _on(
    machine: DesignPoint,
    group: Family,
    found: Sequence[Answered],
    asked: CodesignRequest,
    work: NetworkLayers,
) -> tuple[list[CodesignPoint], str]:
    """The undominated combinations of mappings on one machine that satisfy the limits; or the reason why
    there are none."""
    for limit in asked.limits_of(""):
        if limit.name == "area" and not limit.limit.admits(machine.area):
            most = limit.limit.number * 1e6
            return [], f"its area is {machine.area * 1e6:.4g} mm^2, and the limit {most:.4g} mm^2"
    parts: list[tuple[Figures, int]] = []
    places: list[Array] = []
    for answer, n in zip(found, work.times, strict=True):
        place = np.flatnonzero(group.fits(machine, answer.figures, len(answer.mappings)))
        if not len(place):
            unknown = "no mapping that fits its memories was found in time"
            return [], answer.reason or (unknown if answer.late else "no mapping fits its memories")
        here = group.on(machine, len(places), {f: v[place] for f, v in answer.figures.items()})
        best = undominated(np.stack([here[name] for name in asked.searched]))
        parts.append(({f: here[f][best] for f in dict.fromkeys([*asked.searched, *COSTS])}, n))
        places.append(place[best])
    joined = together(work.networks, parts, asked)
    if isinstance(joined, str):
        return [], joined
    values = _values(machine, joined, asked)
    good = np.ones(len(joined), bool)
    for limit in asked.limits_of(""):
        good &= limit.limit.admits(values[limit.name])
    left = np.flatnonzero(good)
    if not len(left):
        late = " that was found in time" if any(a.late for a in found) else ""
        return [], f"no mapping{late} keeps the limits"
    figured = np.stack([np.asarray(values[o], float)[left] for o in asked.objectives])
    kept = left[undominated_but_for_rounding(figured)]
    mine: list[CodesignPoint] = []
    for i in kept.tolist():
        picked = list(zip(parts, joined.picks[i].tolist(), strict=True))
        mine.append(
            CodesignPoint(
                machine,
                {n: float(v[i]) for n, v in values.items()},
                tuple(a.mappings[p[k]] for a, p, (_, k) in zip(found, places, picked, strict=True)),
                tuple((float(f["energy"][k]), float(f["latency"][k])) for (f, _), k in picked),
            )
        )
    return mine, ""


def _values(machine: DesignPoint, joined: Combined, asked: CodesignRequest) -> dict[str, Array]:
    """The costs of combinations of mappings on a machine, in total and per network."""
    figures = PlainFigures(joined.figures, machine.area)
    own = [of_network(n, network) for network in asked.networks for n in asked.figures_of(network)]
    return {
        n: joined.figures[n] if whose(n)[1] else np.broadcast_to(value(n, figures), (len(joined),))
        for n in (*asked.figures, *COSTS, "area", *own)
    }


def _bounds(
    machine: DesignPoint,
    group: Family,
    found: Sequence[Answered],
    asked: CodesignRequest,
    work: NetworkLayers,
) -> dict[str, float]:
    """Lower bounds of all mappings on a machine whose searches did not end, including those that violate
    limits.

    The figures of a machine are monotone in those that its family was searched for, and the figures of a
    network in those of its layers, so that bounds of searches are combined in the same way as their mappings.
    """
    parts: list[tuple[Figures, int]] = []
    for answer, n in zip(found, work.times, strict=True):
        names = dict.fromkeys([*asked.searched, *group.figures, *COSTS])
        bounds = {f: np.array([answer.bounds.get(f, 0.0)]) for f in names}
        here = group.on(machine, len(parts), bounds)
        parts.append(({f: here[f] for f in dict.fromkeys([*asked.searched, *COSTS])}, n))
    joined = together(work.networks, parts, replace(asked, limits=()))
    assert not isinstance(joined, str)
    values = _values(machine, joined, asked)
    return {n: float(values[n][0]) for n in asked.figures}


def _evaluate_front(
    points: Sequence[CodesignPoint], answers: Mapping[str, Answered], work: NetworkLayers, end: float
) -> str:
    """Evaluate the front. Returns what cut it or the searches short, as in `Codesign.stopped`."""
    interrupted = any(a.interrupted for a in answers.values())
    last = min(end, monotonic() + LONGEST) if interrupted else end
    interrupted |= evaluate_front(points, last, len(points) if work.split else 1)
    return "interrupted" if interrupted else "time" if end < inf else ""


def evaluate_front(points: Sequence[CodesignPoint], end: float, needed: int) -> bool:
    """Evaluate the mappings of a front on their machines, up to the time limit of `explore`; others on
    access. With a time limit, those of the first `needed` points, which tables need, up to its end. True
    if Ctrl-C stopped it.

    Machines with different sizes and prices under the same mapping are counted once. Raises InternalError if
    a figure differs.
    """
    counted: dict[tuple[int, int], Report] = {}
    longest = min(end, monotonic() + LONGEST)
    first = needed if end < inf else 0
    for some, last in ((points[:first], end), (points[first:], longest)):
        try:
            with suppress(*CUT), until(last):
                for point in some:
                    _evaluate_layers(point, counted)
        except KeyboardInterrupt:
            return True
    return False


def _evaluate_layers(point: CodesignPoint, counted: dict[tuple[int, int], Report]) -> None:
    for layer, mapping in enumerate(point.mappings):
        known = counted.get((layer, id(mapping)))
        report = point.evaluated(layer, known)
        if known is None and report is not None:
            counted[layer, id(mapping)] = report
