"""From counts to costs: the entry point of this package, with area, capacities and figures made of costs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from polymodel.analysis.result import Analysis, Problem, TollTraffic, Traffic, WorkingSet, mapped
from polymodel.analysis.symbolic.forms import Form, SymbolicAnalysis
from polymodel.architecture.hierarchy import Component, FanoutDim, Hierarchy, link_name
from polymodel.cost.algebra import FORMULAS, NONE, NUMBERS, SLOPES, Algebra, ExactCount, Knob, Number, Slope
from polymodel.cost.energy import action_energies, energy_items, leak_power
from polymodel.cost.latency import (
    component_times,
    einsum_times,
    einsums_of,
    limiters,
    pipeline_times,
    roofline,
    run_seconds,
    spans_in_formulas,
)
from polymodel.cost.records import AreaItem, CapacityViolation, ComponentTime, Costs, Counts, Need
from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.frozen import dataclass
from polymodel.mapping.looptree import instances_in_use
from polymodel.objectives import (
    Busy,
    Figures,
    InstancesUsed,
    canonical,
    known_names,
    terms_of,
    value,
    written,
)
from polymodel.spec.faults import suggestion

if TYPE_CHECKING:
    from polymodel.sparse.actions.records import AccessCount

# Area (m^2) per component, all instances.


def area_items(hierarchy: Hierarchy) -> tuple[AreaItem, ...]:
    """One item per component that can have an area, outermost first."""
    result = []
    for c in hierarchy.components:
        if not c.acts and not c.area:
            continue
        n = hierarchy.instances(c.name)
        result.append(AreaItem(c.name, n, c.area, n * c.area, c.area_provenance))
    return tuple(result)


def total_area(hierarchy: Hierarchy) -> float:
    """Square metres of all components."""
    return math.fsum(item.area for item in area_items(hierarchy))


# What each memory must hold, and its capacity (bits of one instance).


def needs(counts: Counts) -> tuple[Need, ...]:
    """Every working set with its memory's capacity, outermost memory first."""
    hierarchy = counts.problem.hierarchy
    level = {c.name: i for i, c in enumerate(hierarchy.components)}
    order = {name: i for i, name in enumerate(counts.einsums)}
    result = [_need(w, hierarchy[w.component]) for w in counts.analysis.working_sets]
    return tuple(sorted(result, key=lambda n: (level[n.component], order[n.einsum], n.measure)))


def _need(peak: WorkingSet, component: Component) -> Need:
    return Need(
        peak.component,
        peak.einsum,
        peak.measure,
        peak.bits,
        component.size_bits,
        component.allocation,
        peak.residents,
    )


def violations(found: tuple[Need, ...]) -> tuple[CapacityViolation, ...]:
    """The needs that count for their memory's `allocation` and exceed its capacity."""
    return tuple(
        CapacityViolation(
            n.component,
            n.einsum,
            tuple(dict.fromkeys(r.tensor for r in n.residents)),
            n.bits,
            n.capacity_bits,
            n.allocation,
        )
        for n in found
        if n.counts and not n.fits
    )


def stored_bits(counts: Counts, tensor: str, elements: int | Fraction, backing: bool) -> int:
    """Bits of this many elements; those of a backing node are scaled and rounded up."""
    access = counts.accesses[tensor]
    scale = access.backing_scale if backing else Fraction(1)
    return math.ceil(elements * access.bits_per_value * scale)


# All costs of one mapping.


def in_formulas(analysis: SymbolicAnalysis) -> Analysis:
    """The analysis with an `ExactCount` for each form, as cost rules take it."""

    def exact(rows: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(mapped(row, Form, ExactCount) for row in rows)

    peaks: Any = analysis.working_sets
    return Analysis(
        "symbolic",
        exact(analysis.buffets),
        exact(analysis.traffic),
        exact(analysis.compute),
        exact(analysis.loads),
        peaks,
        exact(analysis.tolls),
        refills=exact(analysis.refills),
        links=exact(analysis.links),
        whole=exact(analysis.whole),
        pipelines=tuple(run.in_slots(ExactCount) for run in analysis.pipelines),
    )


def closed_costs(problem: Problem, analysis: SymbolicAnalysis) -> Costs:
    """The cost rules applied to closed forms: `Formula`s instead of numbers, `PeakForm`s of needed bits.

    Violations, roofline and limiters are empty, since they need numbers.
    """
    counts = Counts(problem, in_formulas(analysis))
    times = component_times(counts, FORMULAS)
    latency = einsum_times(counts, times, spans_in_formulas(counts), FORMULAS)
    return Costs(
        energy=energy_items(counts, latency),
        times=times,
        latency=latency,
        area=area_items(problem.hierarchy),
        needs=needs(counts),
        violations=(),
        roofline=(),
        limiters=(),
        assume_overlap=problem.hierarchy.assume_overlap,
    )


def total_seconds(counts: Counts, do: Algebra = NUMBERS) -> Number:
    """The total latency: Einsums in sequence, those of a pipeline in its slots."""
    return do.total(parts_of_latency(counts, component_times(counts, do), do))


def parts_of_latency(counts: Counts, times: tuple[ComponentTime, ...], do: Algebra) -> list[Number]:
    """Seconds of each Einsum outside pipelines, and of each pipeline."""
    overlapped = {e for run in counts.analysis.pipelines for e in einsums_of(run)}
    alone = [t.seconds for t in einsum_times(counts, times, (), do) if t.einsum not in overlapped]
    return [*alone, *(run_seconds(counts, run, do) for run in counts.analysis.pipelines)]


def costs(problem: Problem, analysis: Analysis) -> Costs:
    """Energy (J), latency (s), area (m^2) and capacity (bits) of one analysis.

    Raises Refused if the counts do not determine a figure exactly (rounded transfers of unknown sizes).
    """
    counts = Counts(problem, analysis)
    times = component_times(counts)
    overlapped = pipeline_times(counts)
    latency = einsum_times(counts, times, overlapped)
    held = needs(counts)
    return Costs(
        energy=energy_items(counts, latency),
        times=times,
        latency=latency,
        area=area_items(problem.hierarchy),
        needs=held,
        violations=violations(held),
        roofline=roofline(counts, times, latency),
        limiters=limiters(counts, times, latency),
        assume_overlap=problem.hierarchy.assume_overlap,
        pipelines=overlapped,
    )


# The figures that objectives are made of, for one evaluated mapping.

Bits = dict[tuple[str, str], Number]  # (component, `reads` or `writes`) -> bits of all instances


def memory_bits(counts: Counts) -> Bits:
    """Bits that memories move."""
    rows = ((t, t.reads, t.writes) for t in counts.analysis.traffic)
    return _summed(counts, rows)


def toll_bits(counts: Counts) -> Bits:
    """Bits that pass tolls: `reads` downwards, `writes` upwards."""
    return _summed(counts, ((t, t.down, t.up) for t in counts.analysis.tolls))


def data_bits(counts: Counts, accesses: Iterable[AccessCount]) -> Bits:
    """Bits that memories move on sparse data, with metadata, and bits that pass tolls.

    `counts`: sparse ones.
    """
    result: Bits = {}
    for a in accesses:
        bits = a.actual * counts.bits(a.tensor) + a.metadata_bits
        key = a.component, a.kind.partition("_")[0]
        result[key] = result.get(key, 0) + bits * counts.executions(a.einsum)
    return result | {k: result.get(k, 0) + bits for k, bits in toll_bits(counts).items()}


def _summed(counts: Counts, rows: Iterable[tuple[Traffic | TollTraffic, Number, Number]]) -> Bits:
    result: Bits = {}
    for row, reads, writes in rows:
        bits = counts.bits(row.tensor) * counts.executions(row.einsum)
        for way, elements in (("reads", reads), ("writes", writes)):
            key = row.component, way
            result[key] = result.get(key, 0) + elements * bits
    return result


def slots(counts: Counts) -> tuple[Number, Number]:
    """Operations of all Einsums, and operations if every compute instance executed as many as the busiest
    one."""
    hierarchy = counts.problem.hierarchy
    executed: Number = 0
    places: Number = 0
    for c in counts.analysis.compute:
        n = counts.executions(c.einsum)
        executed += c.operations * n
        places += c.busiest * n * hierarchy.instances(c.component)
    return executed, places


def objective_value(objective: str, hierarchy: Hierarchy, figures: Figures) -> float:
    """The value of one objective on dense data. Raises SpecError for an unknown name."""
    known = known_names(hierarchy.memories, hierarchy.tolls)
    name = canonical(written(objective))
    terms = terms_of(name)
    wrong = next((n for _, n in terms if n not in known), None)
    if wrong is not None:
        remedy = suggestion(wrong, known, "objectives")
        message = f"unknown objective {wrong}"
        raise SpecError([Diagnostic(message, remedy, "objective", code="unknown-choice")])
    result: float = value(name, figures)
    return result


class CostFigures:
    """`objectives.Figures` of an analysis and its costs, in numbers or formulas.

    `without_peaks`: why working sets are missing.
    """

    def __init__(
        self, counts: Counts, costs: Costs, do: Algebra = NUMBERS, without_peaks: Refused | None = None
    ) -> None:
        self.counts, self.costs, self.do, self.without_peaks = counts, costs, do, without_peaks

    @property
    def energy(self) -> Number:
        return self.do.total(i.energy for i in self.costs.energy)

    @property
    def latency(self) -> Number:
        if self.do is FORMULAS and self.counts.analysis.pipelines:
            return total_seconds(self.counts, self.do)  # shorter than a sum over Einsums
        return self.do.total(t.seconds for t in self.costs.latency)

    @property
    def area(self) -> float:
        return self.costs.total_area

    @property
    def utilisation(self) -> Number:
        executed, places = slots(self.counts)
        return executed / places if places else 0.0

    @cached_property
    def moved_bits(self) -> Bits:
        return memory_bits(self.counts) | toll_bits(self.counts)

    def moved(self, component: str, way: Literal["reads", "writes"]) -> Number:
        return self.moved_bits.get((component, way), 0)

    @cached_property
    def working_sets(self) -> Mapping[str, Number]:
        """Memory -> the largest of its needs that count for its `allocation`."""
        if self.without_peaks is not None:
            raise self.without_peaks
        result: dict[str, list[Number]] = {}
        for n in self.costs.needs:
            if n.counts:
                result.setdefault(n.component, []).append(n.bits)
        return {component: self.do.largest(each) for component, each in result.items()}

    def working_set(self, component: str) -> Number:
        return self.working_sets.get(component, 0)

    def busiest(self, component: str, way: Busy) -> Number:
        """For each Einsum the most that any instance moves or executes, summed over all executions."""
        if way == "operations":
            mine = ((c.einsum, c.busiest) for c in self.counts.analysis.compute if c.component == component)
            return self.do.total(n * self.counts.executions(e) for e, n in mine)
        side = 0 if way == "reads" else 1
        loads = (x for x in self.counts.analysis.loads if x.component == component)
        return self.do.total(
            self.do.largest(pair[side] for pair in x.loads) * self.counts.executions(x.einsum) for x in loads
        )

    def used(self, dimension: str) -> int:
        problem, asked = self.counts.problem, InstancesUsed.read(dimension)
        each = (e for e in problem.tree.einsums if not problem.cascade[e].is_copy)  # copies use none
        used = (instances_in_use(problem.cascade, problem.tree, e, asked.dimension) for e in each)
        return sum(map(asked.of, used))


# Sensitivity of energy (J) and latency (s) to a small change of each number of the architecture. Counts do
# not depend on these numbers, so that the cost rules are applied to numbers with slopes (`cost.algebra`).
# Where several components, instances or ports tie for a maximum, there are two slopes: a throughput that
# limits alone matters in both directions; one that ties does not help as it grows, and hurts as it shrinks.

Cost = Literal["energy", "latency"]


@dataclass(frozen=True)
class Elasticity:
    """The response of a cost to a small increase (`up`) or decrease (`down`) of one number.

    `slope_*`: derivative of the cost by the number; `up`, `down`: relative change of the cost over relative
    change of the number (-1: half the cost for twice the number, for small changes). `down` is NaN for the
    size of a full memory.
    """

    knob: Knob
    value: float
    unit: str
    slope_up: float
    slope_down: float
    up: float
    down: float


def elasticities(counts: Counts, costs: Costs, of: Cost) -> tuple[Elasticity, ...]:
    """Elasticities of every finite number of the architecture, the largest first."""
    total = _sloped_total(counts, of)
    result = []
    for knob, worth, unit in _knobs(counts):
        up, down = total.slopes.get(knob, NONE)
        if knob.name == "size" and _full(costs, knob.component):
            down = math.nan
        share = worth / float(total) if total else math.nan
        result.append(Elasticity(knob, worth, unit, up, down, up * share, down * share))
    return tuple(sorted(result, key=lambda e: -max(_size(e.up), _size(e.down))))


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
    """The hierarchy with its finite costs and rates as `Slope`s of themselves."""

    def own(value: float, component: str, action: str, name: str) -> float:
        return value if math.isinf(value) else Slope(value, {Knob(component, action, name): (1.0, 1.0)})

    def dim(c: Component, d: FanoutDim) -> FanoutDim:
        if d.link is None:
            return d
        at = link_name(c.name, d.name)
        energy = own(d.link.energy_per_bit_hop, at, "hop", "energy_per_bit_hop")
        rate = own(d.link.throughput, at, "hop", "throughput")
        wait = own(d.link.hop_latency, at, "hop", "hop_latency") if d.link.hop_latency else 0.0
        return replace(d, link=replace(d.link, energy_per_bit_hop=energy, throughput=rate, hop_latency=wait))

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
    """Every finite number of the hierarchy that is a cost or a limit, with its value and unit."""
    for c in counts.problem.hierarchy.components:
        for dim in c.spatial:
            if dim.link is not None:
                name = link_name(c.name, dim.name)
                yield Knob(name, "hop", "energy_per_bit_hop"), dim.link.energy_per_bit_hop, "J/bit-hop"
                if not math.isinf(dim.link.throughput):
                    yield Knob(name, "hop", "throughput"), dim.link.throughput, "bit/s"
                if dim.link.hop_latency:
                    yield Knob(name, "hop", "hop_latency"), dim.link.hop_latency, "s"
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
