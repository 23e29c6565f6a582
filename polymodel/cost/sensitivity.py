"""How energy (J) and latency (s) answer to a small change of each number of the architecture.

Counts do not depend on these numbers. Energy is linear in energies and powers; latency is a sum of maxima
over components, instances and ports, so where several tie for a maximum it has two slopes: a throughput
that limits alone helps both ways, one that ties helps nobody when it grows and hurts when it shrinks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from polymodel.analysis.result import PipelineRun, StageWork
from polymodel.architecture.hierarchy import Component, link_name
from polymodel.cost.actions import movement_actions
from polymodel.cost.context import Counts
from polymodel.cost.pipeline import einsums_of
from polymodel.cost.records import Costs

Cost = Literal["energy", "latency"]
Slopes = tuple[float, float, float]  # seconds, slope as a number grows, as it shrinks
TIE = 1e-12  # times that differ by no more than rounding


@dataclass(frozen=True)
class Knob:
    """One number: `name` is energy, throughput, leak_power, size, fill_drain_latency or energy_per_bit_hop.

    `component` is `PE.X` for the link of a fanout dimension; `action` is empty but for energy and throughput.
    """

    component: str
    action: str
    name: str


@dataclass(frozen=True)
class Elasticity:
    """What a cost does when one number grows (`up`) or shrinks (`down`) a little.

    `slope_*`: change of the cost over change of the number; `up`, `down`: relative change of the cost over
    relative change of the number (-1: twice the number, half the cost, as far as it goes). `down` is nan for
    the size of a memory that is full.
    """

    knob: Knob
    value: float
    unit: str
    slope_up: float
    slope_down: float
    up: float
    down: float


@dataclass(frozen=True)
class _Side:
    """Seconds that something takes, and its slope in each number that it depends on."""

    seconds: float
    slopes: tuple[tuple[Knob, float], ...] = ()

    def slope(self, knob: Knob) -> float:
        return math.fsum(s for k, s in self.slopes if k == knob)


def elasticities(counts: Counts, costs: Costs, of: Cost) -> tuple[Elasticity, ...]:
    """Every finite number of the architecture, the one that matters most first."""
    races = tuple(_races(counts))
    leak = _leak(counts)
    total = costs.total_energy if of == "energy" else costs.total_latency
    found = []
    for knob, value, unit in _knobs(counts):
        up, down = _latency_slopes(races, knob)
        for run in counts.analysis.pipelines:
            _, more, less = _item_slopes(counts, run, knob)
            n = max((counts.executions(e) for e in einsums_of(run)), default=1)  # all alike
            up, down = up + more * n, down + less * n
        if of == "energy":
            linear = _energy_slope(counts, costs, knob)
            up, down = linear + leak * up, linear + leak * down
        if knob.name == "size" and _full(costs, knob.component):
            down = math.nan
        share = value / total if total else math.nan
        found.append(Elasticity(knob, value, unit, up, down, up * share, down * share))
    return tuple(sorted(found, key=lambda e: -max(_size(e.up), _size(e.down))))


def _size(x: float) -> float:
    return 0.0 if math.isnan(x) else abs(x)


def _leak(counts: Counts) -> float:
    """Watts of all instances of all components."""
    hierarchy = counts.problem.hierarchy
    return math.fsum(c.leak_power * hierarchy.instances(c.name) for c in hierarchy.components)


def _full(costs: Costs, component: str) -> bool:
    return any(n.counts and n.component == component and n.bits == n.capacity_bits for n in costs.needs)


def _knobs(counts: Counts) -> Iterator[tuple[Knob, float, str]]:
    """Every finite number of the hierarchy that stands for a cost or a limit, with its value and unit."""
    for c in counts.problem.hierarchy.components:
        for dim in c.spatial:
            if dim.link is not None:
                name = link_name(c.name, dim.name)
                yield Knob(name, "hop", "energy_per_bit_hop"), dim.link.energy_per_bit_hop, "J/bit-hop"
                if not math.isinf(dim.link.throughput):
                    yield Knob(name, "hop", "throughput"), dim.link.throughput, "bit/s"
        for a in c.actions:
            what = "operation" if c.kind == "compute" else "bit"
            per = what if a.bits_per_action is None else "action"
            yield Knob(c.name, a.name, "energy"), a.energy, f"J/{per}"
            if not math.isinf(a.throughput):
                yield Knob(c.name, a.name, "throughput"), a.throughput, f"{what}/s"
        yield Knob(c.name, "", "leak_power"), c.leak_power, "W"
        if c.kind != "container":
            yield Knob(c.name, "", "fill_drain_latency"), c.fill_drain_latency, "s"
        if not math.isinf(c.size_bits):
            yield Knob(c.name, "", "size"), c.size_bits, "bit"


def _energy_slope(counts: Counts, costs: Costs, knob: Knob) -> float:
    """Joules per unit of the number, apart from what leaks longer."""
    if knob.name == "leak_power":
        return costs.total_latency * counts.problem.hierarchy.instances(knob.component)
    if knob.name not in ("energy", "energy_per_bit_hop"):
        return 0.0
    key = knob.component, knob.action
    return math.fsum(i.count for i in costs.energy if (i.component, i.action) == key)


def _latency_slopes(races: tuple[tuple[_Side, ...], ...], knob: Knob) -> tuple[float, float]:
    """Of a sum of maxima: growing, the largest slope of those that tie counts; shrinking, the smallest."""
    up, down = [], []
    for sides in races:
        top = max(s.seconds for s in sides)
        slopes = [s.slope(knob) for s in sides if s.seconds >= top * (1 - TIE)]
        up.append(max(slopes))
        down.append(min(slopes))
    return math.fsum(up), math.fsum(down)


def _races(counts: Counts) -> Iterator[tuple[_Side, ...]]:
    """Sets of sides; the sum over them of the largest is the latency (`cost.latency` adds up the same)."""
    overlapped = {e for run in counts.analysis.pipelines for e in einsums_of(run)}
    for einsum in (e for e in counts.einsums if e not in overlapped):
        work = {**_moving(counts, einsum), **_links(counts, einsum), **_computing(counts, einsum)}
        waits: dict[str, tuple[_Side, ...]] = {}
        if not counts.problem.hierarchy.assume_overlap:
            waits = _waiting(counts, einsum, work)
        rest = tuple(s for sides in work.values() for s in sides)
        yield from (sides for sides in (rest, *waits.values()) if sides)


def _slowest(each: Iterable[Slopes]) -> Slopes:
    """The largest of several times, with its slopes as a number grows and shrinks."""
    found = list(each)
    top = max((s for s, _, _ in found), default=0.0)
    ties = [x for x in found if x[0] >= top * (1 - TIE)]
    return top, max((u for _, u, _ in ties), default=0.0), min((d for _, _, d in ties), default=0.0)


def _total(each: Iterable[Slopes]) -> Slopes:
    seconds, up, down = (math.fsum(x) for x in zip((0.0, 0.0, 0.0), *each, strict=True))
    return seconds, up, down


def _item_slopes(counts: Counts, item: StageWork | PipelineRun, knob: Knob) -> Slopes:
    """Seconds of one execution of an Einsum in a slot, or of a pipeline, with their slopes."""
    if isinstance(item, PipelineRun):
        found = []
        for slot in item.slots:
            stages = [_total(_item_slopes(counts, x, knob) for x in stage) for stage in slot.stages]
            shared = (s for load in slot.shared for s in _load_slopes(counts, load, knob))
            seconds, up, down = _slowest([*stages, *shared])
            found.append((seconds * slot.count, up * slot.count, down * slot.count))
        return _total(found)
    sides = [s for load in item.loads for s in _load_slopes(counts, load, knob)]
    if item.operations:
        leaf = next(c.component for c in counts.analysis.compute if c.einsum == item.einsum)
        sides.append(_slopes(_operating(counts.problem.hierarchy[leaf], item.operations, 1), knob))
    return _slowest(sides)


def _load_slopes(
    counts: Counts, load: tuple[str, tuple[tuple[int, int], ...]], knob: Knob
) -> Iterator[Slopes]:
    sides = _ports(counts.problem.hierarchy[load[0]], 1, load[1], added=True)
    return (_slopes(s, knob) for s in sides)


def _slopes(side: _Side, knob: Knob) -> Slopes:
    return side.seconds, side.slope(knob), side.slope(knob)


def _waiting(counts: Counts, einsum: str, work: dict[str, tuple[_Side, ...]]) -> dict[str, tuple[_Side, ...]]:
    """Refills per single-buffered storage; the work of their ends becomes what they leave of it."""
    found: dict[str, tuple[_Side, ...]] = {}
    for share in counts.analysis.refills:
        if share.einsum == einsum:
            c = counts.problem.hierarchy[share.component]
            sides = _ports(c, counts.executions(einsum), share.loads, added=not share.storage)
            if share.storage:
                found[share.storage] = (*found.get(share.storage, ()), *sides)
            else:
                work[c.name] = sides
    return found


def _moving(counts: Counts, einsum: str) -> dict[str, tuple[_Side, ...]]:
    loads = (x for x in counts.analysis.loads if x.einsum == einsum)
    hierarchy, n = counts.problem.hierarchy, counts.executions(einsum)
    return {x.component: _ports(hierarchy[x.component], n, x.loads, added=True) for x in loads}


def _ports(c: Component, n: int, loads: tuple[tuple[int, int], ...], added: bool) -> tuple[_Side, ...]:
    """One side per instance and port, of `n` executions."""
    found = []
    for moved in loads:
        sides = []
        for action, bits in zip(movement_actions(c), moved, strict=True):
            seconds = bits * n / action.throughput
            slope = -seconds / action.throughput
            sides.append(_Side(seconds, ((Knob(c.name, action.name, "throughput"), slope),)))
        if c.ports == "shared":
            sides = [_Side(sum(s.seconds for s in sides), tuple(x for s in sides for x in s.slopes))]
        found += [_delayed(s, c, n) if added else s for s in sides]
    return tuple(found)


def _delayed(side: _Side, c: Component, n: int) -> _Side:
    knob = Knob(c.name, "", "fill_drain_latency")
    return _Side(side.seconds + c.fill_drain_latency * n, (*side.slopes, (knob, float(n))))


def _links(counts: Counts, einsum: str) -> dict[str, tuple[_Side, ...]]:
    found: dict[str, tuple[_Side, ...]] = {}
    for t in counts.analysis.links:
        link = counts.problem.hierarchy[t.component].dim(t.dim).link
        if t.einsum == einsum and link is not None and not math.isinf(link.throughput):
            name, n = link_name(t.component, t.dim), counts.executions(einsum)
            seconds = max(sum(pair) for pair in t.loads) * n / link.throughput
            found[name] = (_Side(seconds, ((Knob(name, "hop", "throughput"), -seconds / link.throughput),)),)
    return found


def _computing(counts: Counts, einsum: str) -> dict[str, tuple[_Side, ...]]:
    found: dict[str, tuple[_Side, ...]] = {}
    for work in counts.analysis.compute:
        if work.einsum == einsum and work.operations:
            c = counts.problem.hierarchy[work.component]
            found[c.name] = (_operating(c, work.busiest, counts.executions(einsum)),)
    return found


def _operating(c: Component, operations: int, n: int) -> _Side:
    rate = c.action("compute").throughput
    seconds = operations * n / rate
    return _delayed(_Side(seconds, ((Knob(c.name, "compute", "throughput"), -seconds / rate),)), c, n)
