"""The figures that objectives are made of, of one evaluated mapping."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Literal

from polymodel.analysis.result import TollTraffic, Traffic
from polymodel.architecture.hierarchy import Hierarchy
from polymodel.cost.algebra import NUMBERS, Algebra, Number
from polymodel.cost.context import Counts
from polymodel.cost.records import Costs
from polymodel.errors import Diagnostic, SpecError
from polymodel.objectives import Figures, canonical, known_names, terms_of, value, written
from polymodel.spec.faults import suggestion

Bits = dict[tuple[str, str], Number]  # (component, `reads` or `writes`) -> bits, all instances and executions


def memory_bits(counts: Counts) -> Bits:
    """What memories move."""
    rows = ((t, t.reads, t.writes) for t in counts.analysis.traffic)
    return _summed(counts, rows)


def toll_bits(counts: Counts) -> Bits:
    """What passes tolls; `reads` are what passes down, `writes` what passes up."""
    return _summed(counts, ((t, t.down, t.up) for t in counts.analysis.tolls))


def _summed(counts: Counts, rows: Iterable[tuple[Traffic | TollTraffic, Number, Number]]) -> Bits:
    found: Bits = {}
    for row, reads, writes in rows:
        bits = counts.bits(row.tensor) * counts.executions(row.einsum)
        for way, elements in (("reads", reads), ("writes", writes)):
            key = row.component, way
            found[key] = found.get(key, 0) + elements * bits
    return found


def slots(counts: Counts) -> tuple[Number, Number]:
    """(operations, operations if every compute instance executed as many as the busiest one), all Einsums."""
    hierarchy = counts.problem.hierarchy
    executed: Number = 0
    places: Number = 0
    for c in counts.analysis.compute:
        n = counts.executions(c.einsum)
        executed += c.operations * n
        places += c.busiest * n * hierarchy.instances(c.component)
    return executed, places


def asked_value(objective: str, hierarchy: Hierarchy, figures: Figures) -> float:
    """The value of one objective on dense data, whose name may be wrong: SpecError."""
    known = known_names(hierarchy.memories, hierarchy.tolls)
    name = canonical(written(objective))
    terms = terms_of(name)
    wrong = next((n for _, n in terms if n not in known), None)
    if wrong is not None:
        remedy = suggestion(wrong, known, "objectives")
        raise SpecError([Diagnostic(f"unknown objective {wrong}", remedy, "objective")])
    found: float = value(name, figures)
    return found


class CostFigures:
    """`objectives.Figures` of an analysis and its costs, in numbers or formulas."""

    def __init__(self, counts: Counts, costs: Costs, do: Algebra = NUMBERS) -> None:
        self.counts, self.costs, self.do = counts, costs, do

    @property
    def energy(self) -> Number:
        return self.do.total(i.energy for i in self.costs.energy)

    @property
    def latency(self) -> Number:
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
        found: dict[str, list[Number]] = {}
        for n in self.costs.needs:
            if n.counts:
                found.setdefault(n.component, []).append(n.bits)
        return {component: self.do.largest(each) for component, each in found.items()}

    def working_set(self, component: str) -> Number:
        return self.working_sets.get(component, 0)
