"""From counts to costs: the one entry of this room."""

from __future__ import annotations

from polymodel.analysis.engine import Problem
from polymodel.analysis.result import Analysis
from polymodel.cost.area import area_items
from polymodel.cost.capacity import needs, violations
from polymodel.cost.context import Counts
from polymodel.cost.energy import energy_items
from polymodel.cost.latency import component_times, einsum_times
from polymodel.cost.pipeline import pipeline_times
from polymodel.cost.records import Costs
from polymodel.cost.roofline import limiters, roofline


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
