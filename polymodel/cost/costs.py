"""From counts to costs: the one entry of this room."""

from __future__ import annotations

from typing import Any

from polymodel.analysis.result import Analysis, Problem, mapped
from polymodel.analysis.symbolic.forms import Form, SymbolicAnalysis
from polymodel.cost.algebra import NUMBERS, Algebra, Number
from polymodel.cost.area import area_items
from polymodel.cost.capacity import needs, violations
from polymodel.cost.context import Counts
from polymodel.cost.energy import energy_items
from polymodel.cost.formula import FORMULAS, Exact
from polymodel.cost.latency import component_times, einsum_times
from polymodel.cost.pipeline import einsums_of, item_span, pipeline_times
from polymodel.cost.records import Costs
from polymodel.cost.roofline import limiters, roofline


def in_formulas(analysis: SymbolicAnalysis) -> Analysis:
    """The analysis with `cost.formula.Exact` for each form, as cost rules take it."""

    def exact(rows: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(mapped(row, Form, Exact) for row in rows)

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
    )


def closed_costs(problem: Problem, analysis: SymbolicAnalysis) -> Costs:
    """The same rules over closed forms: `Formula`s in the place of numbers, `Peak`s of needed bits.

    What only numbers have is left empty: violations, roofline and limiters.
    """
    counts = Counts(problem, in_formulas(analysis))
    times = component_times(counts, FORMULAS)
    latency = einsum_times(counts, times, (), FORMULAS)
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
    """The latency of everything: Einsums one after the other, those of a pipeline in its slots."""
    overlapped = {e for run in counts.analysis.pipelines for e in einsums_of(run)}
    times = einsum_times(counts, component_times(counts, do), (), do)
    alone = [t.seconds for t in times if t.einsum not in overlapped]
    runs = [
        item_span(counts, run, do=do).seconds * max(map(counts.executions, einsums_of(run)), default=1)
        for run in counts.analysis.pipelines
    ]
    return do.total([*alone, *runs])


def costs(problem: Problem, analysis: Analysis) -> Costs:
    """Energy (J), latency (s), area (m^2) and capacity (bits) of one analysis.

    Raises Refused where the counts do not determine a figure exactly (rounded transfers of unknown sizes).
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
