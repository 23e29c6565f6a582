"""How energy (J) and latency (s) answer to a small change of each number of the architecture.

Counts do not depend on these numbers, so the cost rules run over numbers with slopes (`cost.slopes`). Where
several components, instances or ports tie for a maximum there are two: a throughput that limits alone helps
both ways, one that ties helps nobody when it grows and hurts when it shrinks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from polymodel.architecture.hierarchy import Component, FanoutDim, Hierarchy, link_name
from polymodel.cost.context import Counts
from polymodel.cost.costs import total_seconds
from polymodel.cost.energy import action_energies, leak_power
from polymodel.cost.records import Costs
from polymodel.cost.slopes import NONE, SLOPES, Knob, Slope

Cost = Literal["energy", "latency"]


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


def elasticities(counts: Counts, costs: Costs, of: Cost) -> tuple[Elasticity, ...]:
    """Every finite number of the architecture, the one that matters most first."""
    total = _sloped_total(counts, of)
    found = []
    for knob, value, unit in _knobs(counts):
        up, down = total.slopes.get(knob, NONE)
        if knob.name == "size" and _full(costs, knob.component):
            down = math.nan
        share = value / float(total) if total else math.nan
        found.append(Elasticity(knob, value, unit, up, down, up * share, down * share))
    return tuple(sorted(found, key=lambda e: -max(_size(e.up), _size(e.down))))


def _sloped_total(counts: Counts, of: Cost) -> Slope:
    """The cost with its slopes."""
    hierarchy = _sloped(counts.problem.hierarchy)
    sloped = Counts(replace(counts.problem, hierarchy=hierarchy), counts.analysis)
    seconds = total_seconds(sloped, SLOPES)
    if of == "latency":
        return SLOPES.total([seconds])
    leaking = leak_power(hierarchy, SLOPES) * seconds
    return SLOPES.total([*(i.energy for i in action_energies(sloped)), leaking])


def _sloped(hierarchy: Hierarchy) -> Hierarchy:
    """The hierarchy, whose finite costs and rates know that they are themselves."""

    def own(value: float, component: str, action: str, name: str) -> float:
        return value if math.isinf(value) else Slope(value, {Knob(component, action, name): (1.0, 1.0)})

    def dim(c: Component, d: FanoutDim) -> FanoutDim:
        if d.link is None:
            return d
        at = link_name(c.name, d.name)
        energy = own(d.link.energy_per_bit_hop, at, "hop", "energy_per_bit_hop")
        rate = own(d.link.throughput, at, "hop", "throughput")
        return replace(d, link=replace(d.link, energy_per_bit_hop=energy, throughput=rate))

    def component(c: Component) -> Component:
        actions = tuple(
            replace(
                a,
                energy=own(a.energy, c.name, a.name, "energy"),
                throughput=own(a.throughput, c.name, a.name, "throughput"),
            )
            for a in c.actions
        )
        return replace(
            c,
            actions=actions,
            leak_power=own(c.leak_power, c.name, "", "leak_power"),
            fill_drain_latency=own(c.fill_drain_latency, c.name, "", "fill_drain_latency"),
            spatial=tuple(dim(c, d) for d in c.spatial),
        )

    return replace(hierarchy, components=tuple(map(component, hierarchy.components)))


def _size(x: float) -> float:
    return 0.0 if math.isnan(x) else abs(x)


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
            what = "operation" if c.computes else "bit"
            per = what if a.bits_per_action is None else "action"
            yield Knob(c.name, a.name, "energy"), a.energy, f"J/{per}"
            if not math.isinf(a.throughput):
                yield Knob(c.name, a.name, "throughput"), a.throughput, f"{what}/s"
        yield Knob(c.name, "", "leak_power"), c.leak_power, "W"
        if c.acts:
            yield Knob(c.name, "", "fill_drain_latency"), c.fill_drain_latency, "s"
        if not math.isinf(c.size_bits):
            yield Knob(c.name, "", "size"), c.size_bits, "bit"
