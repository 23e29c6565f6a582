"""How energy (J) and latency (s) answer to a small change of each number of the architecture.

Counts do not depend on these numbers. Energy is linear in energies and powers; latency is a sum of maxima
over components, instances and ports, so where several tie for a maximum it has two slopes: a throughput
that limits alone helps both ways, one that ties helps nobody when it grows and hurts when it shrinks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from polymodel.architecture.hierarchy import Component, link_name
from polymodel.cost.actions import movement_actions
from polymodel.cost.context import Counts
from polymodel.cost.records import Costs

Cost = Literal["energy", "latency"]
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
    for einsum in counts.einsums:
        work = {**_moving(counts, einsum), **_links(counts, einsum), **_computing(counts, einsum)}
        waits: dict[str, tuple[_Side, ...]] = {}
        if not counts.problem.hierarchy.assume_overlap:
            waits = _waiting(counts, einsum, work)
        rest = tuple(s for sides in work.values() for s in sides)
        yield from (sides for sides in (rest, *waits.values()) if sides)


def _waiting(counts: Counts, einsum: str, work: dict[str, tuple[_Side, ...]]) -> dict[str, tuple[_Side, ...]]:
    """Refills per single-buffered storage; the work of their ends becomes what they leave of it."""
    found: dict[str, tuple[_Side, ...]] = {}
    for share in counts.analysis.refills:
        if share.einsum == einsum:
            c = counts.problem.hierarchy[share.component]
            sides = _ports(counts, c, einsum, share.loads, added=not share.storage)
            if share.storage:
                found[share.storage] = (*found.get(share.storage, ()), *sides)
            else:
                work[c.name] = sides
    return found


def _moving(counts: Counts, einsum: str) -> dict[str, tuple[_Side, ...]]:
    loads = (x for x in counts.analysis.loads if x.einsum == einsum)
    hierarchy = counts.problem.hierarchy
    return {x.component: _ports(counts, hierarchy[x.component], einsum, x.loads, added=True) for x in loads}


def _ports(
    counts: Counts, c: Component, einsum: str, loads: tuple[tuple[int, int], ...], added: bool
) -> tuple[_Side, ...]:
    """One side per instance and port."""
    n = counts.executions(einsum)
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
            c, n = counts.problem.hierarchy[work.component], counts.executions(einsum)
            rate = c.action("compute").throughput
            seconds = work.busiest * n / rate
            side = _Side(seconds, ((Knob(c.name, "compute", "throughput"), -seconds / rate),))
            found[c.name] = (_delayed(side, c, n),)
    return found
