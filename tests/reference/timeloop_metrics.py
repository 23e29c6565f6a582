"""What Timeloop's mapper minimises: a list of metrics, each of which decides where those before it tie.

The tool takes figures within 0.1 % for ties as long as it can tell mappings apart by another metric, and
only then by the smaller figure; one metric alone is minimised exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tests.reference.common import Outcome

METRICS = ("energy", "delay", "edp")
TIES = 1e-3
Point = tuple[float, int]  # energy, cycles


def metrics_of(mapper: Mapping[str, Any]) -> tuple[str, ...]:
    """The metrics, most important first. ValueError for those that are not understood."""
    given = mapper.get("optimization_metrics", mapper.get("optimization_metric", "edp"))  # as the tool has it
    found = (given,) if isinstance(given, str) else tuple(given)
    strange = [str(m) for m in found if m not in METRICS]
    if strange or not found:
        raise ValueError(f"metrics not understood: {', '.join(strange) or 'none given'}")
    return found


def figure(point: Point, metric: str) -> float:
    energy, cycles = point
    return {"energy": energy, "delay": cycles, "edp": energy * cycles}[metric]


def least(points: Sequence[Point], metrics: Sequence[str], ties: float = 0.0) -> Point:
    """The first point in the order of the metrics; with `ties`, of those that tie in each metric in turn.

    Figures that differ by the rounding of a sum tie in any case.
    """
    for slack in (ties, 0.0) if ties and len(metrics) > 1 else (0.0,):
        for metric in metrics:
            most = min(figure(p, metric) for p in points) * (1 + max(slack, 1e-12))
            points = [p for p in points if figure(p, metric) <= most]
    return points[0]


def compare(
    outcome: Outcome, points: Sequence[Point], many: int, metrics: Sequence[str], given: Point, complete: bool
) -> Point:
    """The optimum of `many` mappings beside the tool's, in its metrics; gives what that is held against.

    `points`: the least energy at each number of cycles. A search that is not `complete` may find worse.
    """
    found, rounded = least(points, metrics), least(points, metrics, TIES)
    if complete and not _same(found, given, metrics) and _same(rounded, given, metrics):
        outcome.notes.append(f"the optimum is {found}; the tool takes 0.1 % of {metrics[0]} for a tie")
        found = rounded
    for metric in metrics:
        ours, theirs = figure(found, metric), figure(given, metric)
        (outcome.equal if complete else outcome.at_most)(f"least {metric} of {many} mappings", ours, theirs)
        if not complete and not math.isclose(ours, theirs, rel_tol=1e-12):
            break  # what follows decides between ties alone
    return found


def verified(outcome: Outcome, found: Point, metrics: Sequence[str], verification: Mapping[str, Any]) -> None:
    """The optimum beside that of another search, as far as it tells the metrics."""
    names = {"energy": ("energy",), "delay": ("delay", "cycles"), "edp": ("edp",)}
    for metric in metrics:
        for name in names[metric]:
            for key in (f"{name}_optimum", name):
                if key in verification:
                    outcome.equal(f"least {metric}, verified", figure(found, metric), verification[key])


def _same(a: Point, b: Point, metrics: Sequence[str]) -> bool:
    return all(math.isclose(figure(a, m), figure(b, m), rel_tol=1e-12) for m in metrics)
