"""`codesign`: machines and mappings in one search."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any

import numpy as np

from polymodel.errors import Diagnostic, SpecError
from polymodel.governor import elsewhere, seconds_of, spare, terminable, until
from polymodel.hardware.answer import Codesign, CodesignPoint, MachineRow
from polymodel.hardware.layers import combined, separate
from polymodel.hardware.machines import DesignPoint, Family, alone, families, fits, machines
from polymodel.hardware.request import CodesignArguments, CodesignRequest, read_request
from polymodel.loading import Spec
from polymodel.mapper.aims import grows_with_peaks
from polymodel.mapper.budget import CUT
from polymodel.mapper.confirm import LONGEST
from polymodel.mapper.records import Candidate
from polymodel.mapper.request import Constraints, of_part, read_search_request, section_of_arguments
from polymodel.mapper.search import explored
from polymodel.objectives import is_internal, value
from polymodel.pareto import undominated
from polymodel.report.report import Report
from polymodel.spec.faults import Faults, not_a_spec
from polymodel.spec.section_schemas import CodesignSection, ExploreSection
from polymodel.stores.store import check_store, folder_of, marked, parts_of
from polymodel.sweeps.choices import choices_of
from polymodel.sweeps.grid import Grid, make_grid
from polymodel.sweeps.values import Choice

Array = Any
Layers = Spec | Sequence[Spec | tuple[Spec, int]]
Progress = Callable[[int, int, float], None]
COSTS = ("energy", "latency")


def codesign(
    layers: Layers,
    hardware: Mapping[str, Choice] | None = None,
    *,
    objectives: Sequence[str] | None = None,
    limits: Sequence[str] | Mapping[str, object] | str | None = None,
    where: Sequence[str] | None = None,
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

    `layers`: a spec, or several that run one after the other on the same machine; `(spec, n)` is executed n
    times, each time under one mapping. `hardware`: symbols of the architecture -> values, as for `sweep`.
    `objectives`: energy (J), latency (s), edp (J s), area (m^2), working_set:MEMORY (bit) and whatever else
    `explore` minimises; energy and latency add up over layers. `layer_by_layer`: each Einsum of a spec is a
    layer of its own (nothing is fused), of equal ones one is searched. `limits`: figures that may be at
    most so much, such as `latency <= 2e-3`. `where`: comparisons of symbols that machines must satisfy.
    `constraints`, `eps`: as for `explore`. `time_limit`: seconds, shared out over the searches that are
    left. `workers`: processes, or a cluster within `joblib.parallel_config("dask")`; the answer is the
    same. `progress(done, searches, seconds)`. `store`: a folder, in which each search goes on where it
    was ended unless `resume` is False.

    What is None of `hardware`, `objectives`, `limits`, `where`, `layer_by_layer`, `eps` and `time_limit`
    comes from the `codesign:` section of the first layer.

    Machines that differ only in sizes of memories, area, prices per bit, leakage and, where each layer is one
    Einsum, throughputs are searched once: exactly, for the reasons that docs/howto/codesign.md has.
    Raises SpecError for wrong input, Refused for what `explore` does not cover.
    """
    begun = perf_counter()
    faults = Faults()
    specs, times = _layers(layers, faults)
    faults.raise_if_any()
    arguments = CodesignArguments(hardware, objectives, limits, where, layer_by_layer, eps, time_limit)
    with arguments.in_section(specs[0]):
        wanted = arguments.over(specs[0].raw_codesign)
        asked, grid = _read(specs, wanted, store)
    eps, time_limit = wanted.eps, wanted.time_limit
    given, _ = section_of_arguments(constraints)  # what is wrong with them is told by the searches
    wholes = specs
    if wanted.layer_by_layer:
        specs, times, wholes = _einsums(specs, times, grid, given)
    told = [of_part(constraints, *both) for both in zip(specs, wholes, strict=True)]
    every, refused = machines(specs, grid)
    # With eps a kept mapping may need more room than one left out, which fits a smaller machine.
    groups = families(every, grid, given) if not eps else tuple(map(alone, every))
    with terminable():
        end = monotonic() + spare(time_limit)
        orders = _orders(groups, asked, told, eps, store, resume)
        front = _joint(groups, answered(orders, end, workers, progress, begun), asked, times)
        evaluate_front(front[0], end)
    return Codesign(specs, times, grid, asked, *front, refused, len(orders), eps, perf_counter() - begun)


def _read(specs: tuple[Spec, ...], wanted: CodesignSection, store: object) -> tuple[CodesignRequest, Grid]:
    """What is asked, checked: objectives, limits and machines. SpecError with all faults."""
    faults = Faults()
    arch = specs[0].raw_arch
    memories, tolls = (arch.memories, arch.tolls) if arch is not None else ((), ())
    asked = read_request(wanted, memories, tolls, faults)
    if wanted.eps and asked.limits:
        what = "with eps a mapping that keeps the limits may be left out for one that does not"
        faults.note(Diagnostic(what, "leave out eps, or the limits", "eps"))
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
        faults.note(Diagnostic("no symbol of the hardware is given", remedy, "hardware"))
    faults.raise_if_any()
    assert grid is not None
    return asked, grid


def _einsums(
    specs: Sequence[Spec], times: Sequence[int], grid: Grid, given: ExploreSection
) -> tuple[tuple[Spec, ...], tuple[int, ...], tuple[Spec, ...]]:
    """Every Einsum as a layer of its own, how often each is executed, and which spec it is of. SpecError
    where tensors are to be fused."""
    if any(section.fuse for s in specs for section in (s.raw_explore or ExploreSection(), given)):
        what = "nothing is fused where each Einsum is a layer of its own"
        raise SpecError([Diagnostic(what, "leave out `fuse`, or layer_by_layer", "constraints.fuse")])
    parts = [
        (one, n * m, s) for s, n in zip(specs, times, strict=True) for one, m in separate(s, grid, given)
    ]
    found, counts, wholes = zip(*parts, strict=True)
    return found, counts, wholes


def _layers(layers: object, faults: Faults) -> tuple[tuple[Spec, ...], tuple[int, ...]]:
    """The specs and how often each is executed."""
    several = (layers,) if isinstance(layers, Spec) else layers
    if not isinstance(several, Sequence) or isinstance(several, str) or not several:
        raise not_a_spec("codesign", layers)
    specs: list[Spec] = []
    times: list[int] = []
    for i, one in enumerate(several):
        spec, n = one if isinstance(one, tuple) and len(one) == 2 else (one, 1)
        if not isinstance(spec, Spec):
            raise not_a_spec("codesign", spec)
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            faults.note(
                Diagnostic(f"layer {i} is executed {n!r} times", "give a whole number from 1 on", "layers")
            )
            n = 1
        specs.append(spec)
        times.append(n)
    for i, spec in enumerate(specs[1:], 1):
        if spec.raw_arch != specs[0].raw_arch:
            what = f"layer {i} has another architecture than layer 0"
            faults.note(Diagnostic(what, "load all layers with the same architecture", "layers"))
    return tuple(specs), tuple(times)


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


@dataclass(frozen=True)
class Answered:
    """The front of one search: figures, mappings, whether all was searched, and why there is none."""

    figures: Mapping[str, Array]
    mappings: tuple[Candidate, ...]
    complete: bool
    reason: str


def _orders(
    groups: Sequence[Family],
    asked: CodesignRequest,
    constraints: Sequence[Constraints | None],
    eps: float,
    store: str | Path | None,
    resume: bool,
) -> dict[str, SearchTask]:
    """Searches by a mark of all that they depend on: equal layers are searched once. What they find is
    evaluated at once where peaks of memories are asked for, since those may be lower than the search counts
    them; else the mappings of the joint front are, in the end."""
    at_once = any(map(grows_with_peaks, asked.searched))
    place = None if store is None else folder_of(store)
    found: dict[str, SearchTask] = {}
    for group in groups:
        names = tuple(dict.fromkeys([*asked.searched, *group.figures]))
        for spec, told in zip(group.layers, constraints, strict=True):
            mark = mark_of(spec, names)
            folder = None if place is None else place / mark[:16]
            found.setdefault(mark, SearchTask(spec, names, names, told, eps, folder, resume, at_once))
    return found


def mark_of(spec: Spec, names: tuple[str, ...]) -> str:
    return marked([*parts_of(spec), spec.raw_explore, names])


def answered(
    orders: Mapping[str, SearchTask], end: float, workers: int, progress: Progress | None, begun: float
) -> dict[str, Answered]:
    """The fronts of all searches, here or in joblib's processes, in order."""
    found: dict[str, Answered] = {}
    total = len(orders)

    def told(mark: str, answer: Answered) -> None:
        found[mark] = answer
        if progress is not None:
            progress(len(found), total, perf_counter() - begun)

    if workers == 1:
        for i, (mark, order) in enumerate(orders.items()):
            told(mark, _searched(order, (end - monotonic()) / (total - i)))
        return found
    from joblib import delayed

    rounds = -(-total // workers)
    limit = (end - monotonic()) / max(1, rounds)
    tasks = (delayed(_searched)(o, limit) for o in orders.values())
    with elsewhere(workers, tasks) as running:
        for mark, answer in zip(orders, running, strict=True):
            told(mark, answer)
    return found


def _searched(order: SearchTask, seconds: float) -> Answered:
    limit = None if seconds == inf else max(seconds, 0.1)
    told = [o for o in order.objectives if not is_internal(o)]
    checked = read_search_request(
        order.spec, told, order.constraints, order.eps, limit, 1, None, order.store, order.resume
    )
    more = tuple(o for o in order.objectives if is_internal(o))
    request = replace(checked.request, objectives=(*checked.request.objectives, *more))
    checked = replace(checked, request=request)
    front = explored(order.spec, checked, order.store, order.resume, order.evaluated)
    if front.interrupted:  # it ends in good order, and so do the searches that are not begun
        raise KeyboardInterrupt
    names = dict.fromkeys([*order.figures, *COSTS])
    figures = {n: np.array([p.value(n) for p in front], float) for n in names}
    return Answered(figures, tuple(p.candidate for p in front), front.complete, front.reason)


class _Figures:
    """`objectives.Figures` of combinations of mappings on one machine."""

    def __init__(self, machine: DesignPoint, figures: Mapping[str, Array]) -> None:
        self.machine, self.figures = machine, figures

    @property
    def energy(self) -> Array:
        return self.figures["energy"]

    @property
    def latency(self) -> Array:
        return self.figures["latency"]

    @property
    def area(self) -> float:
        return self.machine.area

    @property
    def utilisation(self) -> Array:
        return self.figures["utilisation"]

    def moved(self, component: str, way: str) -> Array:
        return self.figures[f"{way}:{component}"]

    def working_set(self, component: str) -> Array:
        return self.figures[f"working_set:{component}"]

    def busiest(self, component: str, way: str) -> Array:
        return self.figures[f"busiest_{way}:{component}"]


def _joint(
    groups: Sequence[Family], answers: Mapping[str, Answered], asked: CodesignRequest, times: Sequence[int]
) -> tuple[tuple[CodesignPoint, ...], tuple[MachineRow, ...]]:
    """The joint front, and a row for every machine."""
    points: list[CodesignPoint] = []
    rows: list[MachineRow] = []
    for group in groups:
        names = tuple(dict.fromkeys([*asked.searched, *group.figures]))
        found = [answers[mark_of(spec, names)] for spec in group.layers]
        for machine in group.members:
            here, reason = _on(machine, group, found, asked, times)
            complete = all(a.complete for a in found)
            least = {n: min((p.figures[n] for p in here), default=None) for n in asked.figures}
            rows.append(MachineRow(machine, least, len(here), complete, reason))
            points += here
    values = np.array([[p.figures[o] for o in asked.objectives] for p in points], float).T
    kept = undominated(values) if points else np.zeros(0, np.int64)
    front = sorted((points[int(i)] for i in kept), key=lambda p: [p.figures[o] for o in asked.objectives])
    return tuple(front), tuple(sorted(rows, key=lambda r: r.machine.number))


def _on(
    machine: DesignPoint,
    group: Family,
    found: Sequence[Answered],
    asked: CodesignRequest,
    times: Sequence[int],
) -> tuple[list[CodesignPoint], str]:
    """The combinations of mappings on one machine that satisfy the limits and that none beats there; or why
    there is none."""
    parts: list[tuple[Mapping[str, Array], int]] = []
    places: list[Array] = []
    for answer, n in zip(found, times, strict=True):
        sizes = {s: answer.figures[f"working_set:{s}"] for s in group.sized}
        place = np.flatnonzero(fits(machine, sizes, len(answer.mappings)))
        if not len(place):
            return [], answer.reason or "no mapping fits its memories"
        here = group.on(machine, {f: v[place] for f, v in answer.figures.items()})
        best = undominated(np.stack([here[name] for name in asked.searched]))
        parts.append(({f: here[f][best] for f in dict.fromkeys([*asked.searched, *COSTS])}, n))
        places.append(place[best])
    joined = combined(parts, asked.searched)
    figures = _Figures(machine, joined.figures)
    values = {
        n: np.broadcast_to(value(n, figures), (len(joined),))
        for n in (*asked.figures, "energy", "latency", "area")
    }
    good = np.ones(len(joined), bool)
    for limit in asked.limits:
        good &= limit.admits(values[limit.name])
    left = np.flatnonzero(good)
    if not len(left):
        return [], "no mapping keeps the limits"
    kept = left[undominated(np.stack([np.asarray(values[o], float)[left] for o in asked.objectives]))]
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


def evaluate_front(points: Sequence[CodesignPoint], end: float) -> None:
    """Evaluates the mappings of a front on their machines, as long as `explore` would: the others are when
    their reports are looked at. Machines differ in sizes and prices under the same mapping, which is counted
    once. Raises InternalError where a figure is another one."""
    counted: dict[tuple[int, int], Report] = {}
    with suppress(*CUT), until(min(end, monotonic() + LONGEST)):
        for point in points:
            for layer, mapping in enumerate(point.mappings):
                known = counted.get((layer, id(mapping)))
                report = point.evaluated(layer, known)
                if known is None and report is not None:
                    counted[layer, id(mapping)] = report
