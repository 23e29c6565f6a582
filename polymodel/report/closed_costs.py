"""Energy and latency as formulas over the closed forms of the counts (docs/develop/rules.md, Costs)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from polymodel.analysis.engine import Problem
from polymodel.analysis.symbolic.forms import Form
from polymodel.analysis.symbolic.records import SymbolicAnalysis
from polymodel.architecture.hierarchy import Action, Component
from polymodel.cost.actions import movement_actions, whole_actions
from polymodel.cost.context import row_order
from polymodel.errors import NotSeparable
from polymodel.report.closed_table import Formula, Largest, Weighted


@dataclass(frozen=True)
class EnergyForm:
    """Joules of one action: `count` in `unit`s, `each` joules per unit."""

    einsum: str
    component: str
    tensor: str
    action: str
    count: Formula
    unit: str
    each: float
    provenance: str

    @property
    def energy(self) -> Weighted:
        return Weighted(((self.each, self.count),))


@dataclass(frozen=True)
class TimeForm:
    """Seconds that the busiest instance of a component works for one Einsum."""

    einsum: str
    component: str
    read_bits: Form
    write_bits: Form
    operations: Form
    seconds: Formula
    instances: Form


def bits_of(problem: Problem, tensor: str) -> int:
    """Bits per value: of the first access in cascade order."""
    return next(e.access_of(tensor).bits_per_value for e in problem.cascade.einsums if tensor in e.tensors)


def _actions(problem: Problem, action: Action, tensor: str) -> tuple[int, str]:
    """(actions per element, unit); where transfers round up there are no closed forms of counts."""
    unit = "bit" if action.bits_per_action is None else "action"
    return whole_actions(action, 1, bits_of(problem, tensor)), unit


def energies(problem: Problem, found: SymbolicAnalysis, latency: dict[str, Formula]) -> list[EnergyForm]:
    """One per Einsum, component, tensor and action, in order of execution, then of the hierarchy."""
    moves: dict[tuple[str, str, str], tuple[Form, Form]] = {}
    for t in found.traffic:
        read, write = moves.get((t.einsum, t.component, t.tensor), (Form(), Form()))
        sums = read + t.reads_fill + t.reads_drain, write + t.writes_fill + t.writes_drain
        moves[t.einsum, t.component, t.tensor] = sums
    for p in found.tolls:
        moves[p.einsum, p.component, p.tensor] = (p.down, p.up)
    rows = [*_moving(problem, moves), *_computing(problem, found), *_leaking(problem, latency)]
    order = row_order(problem)
    return sorted(rows, key=lambda r: order(r.einsum, r.component))


def _moving(problem: Problem, moves: dict[tuple[str, str, str], tuple[Form, Form]]) -> Iterator[EnergyForm]:
    for (einsum, component, tensor), sides in moves.items():
        times = problem.cascade[einsum].n_instances
        for action, elements in zip(movement_actions(problem.hierarchy[component]), sides, strict=True):
            if elements.terms:
                each, unit = _actions(problem, action, tensor)
                count = elements * (each * times)
                yield EnergyForm(
                    einsum, component, tensor, action.name, count, unit, action.energy, action.provenance
                )


def _computing(problem: Problem, found: SymbolicAnalysis) -> Iterator[EnergyForm]:
    for c in found.compute:
        action = problem.hierarchy[c.component].action("compute")
        count = c.operations * problem.cascade[c.einsum].n_instances
        if count.terms:
            yield EnergyForm(
                c.einsum, c.component, "", action.name, count, "operation", action.energy, action.provenance
            )


def _leaking(problem: Problem, latency: dict[str, Formula]) -> Iterator[EnergyForm]:
    for einsum, seconds in latency.items():
        for c in problem.hierarchy.components:
            if c.leak_power:
                instances = problem.hierarchy.instances(c.name)
                count = Weighted(((float(instances), seconds),))
                yield EnergyForm(einsum, c.name, "", "leak", count, "second", c.leak_power, "given")


def times(problem: Problem, found: SymbolicAnalysis) -> list[TimeForm]:
    """One per Einsum and component that does anything."""
    if not problem.hierarchy.assume_overlap:
        raise NotSeparable(
            "assume_overlap: false: refills that wait have no closed form",
            "bind the symbols and use engine exact",
        )
    rows = []
    for load in found.loads:
        c, n = problem.hierarchy[load.component], problem.cascade[load.einsum].n_instances
        seconds = Weighted(((float(n), _port_time(c, load.reads, load.writes)),), c.fill_drain_latency * n)
        rows.append(
            TimeForm(load.einsum, c.name, load.reads * n, load.writes * n, Form(), seconds, load.instances)
        )
    for work in found.compute:
        if not work.operations.terms:
            continue
        c, n = problem.hierarchy[work.component], problem.cascade[work.einsum].n_instances
        rate = n / c.action("compute").throughput
        seconds = Weighted(((rate, work.busiest),), c.fill_drain_latency * n)
        rows.append(TimeForm(work.einsum, c.name, Form(), Form(), work.busiest * n, seconds, work.instances))
    order = row_order(problem)
    return sorted(rows, key=lambda r: order(r.einsum, r.component))


def _port_time(component: Component, reads: Form, writes: Form) -> Formula:
    read, write = movement_actions(component)
    sides: list[Formula] = [
        Weighted(((1 / action.throughput, moved),))
        for action, moved in ((read, reads), (write, writes))
        if moved.terms and not math.isinf(action.throughput)
    ]
    if component.ports == "shared":
        return Weighted(tuple((1.0, s) for s in sides))
    return Largest(tuple(sides))


def latencies(problem: Problem, rows: list[TimeForm]) -> dict[str, Formula]:
    """Seconds per Einsum: its slowest component."""
    return {e: Largest(tuple(r.seconds for r in rows if r.einsum == e)) for e in problem.tree.einsums}
