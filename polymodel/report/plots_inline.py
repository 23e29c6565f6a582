"""The plots of a report as SVG elements of its page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from polymodel.errors import Refused
from polymodel.report.plots import plot, plot_height
from polymodel.report.plots_timeline import timeline_axes
from polymodel.report.timeline import timeline
from polymodel.view.inline import blank, inline

if TYPE_CHECKING:
    from polymodel.report.report import Report

STEPS = 500  # of a timeline; of more phases each step shows the largest of a few
Shown = tuple[str, str, tuple[str, ...]]  # title, picture, notes


def plots_of(report: Report) -> list[Shown]:
    """Working sets, energy, roofline, and over time each memory that holds anything."""
    found: list[Shown] = []
    for name in ("working_sets", "energy", "roofline"):
        figure, ax = blank(8, plot_height(report, name))
        plot(report, name, ax)
        title = f"Plot: {name.replace('_', ' ')}"
        found.append((title, inline(figure, title, f"p{len(found)}"), ()))
    return [*found, *_over_time(report, len(found))]


def _over_time(report: Report, number: int) -> Iterator[Shown]:
    for c in report.problem.hierarchy.components:
        if c.kind != "memory":
            continue
        title = f"Plot: {c.name} over time"
        try:
            held = timeline(report, c.name)
        except Refused as refusal:
            yield title, "", (f"left out: {refusal}",)
            continue
        if not held.buffets:
            continue
        figure, ax = blank(9, 4.5)
        timeline_axes(held, c.size_bits, ax, steps=STEPS)
        yield title, inline(figure, title, f"p{number}"), ()
        number += 1
