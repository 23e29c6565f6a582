"""Points of a co-design as a picture, each machine named once, and what a symbol is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from polymodel.objectives import unit_of
from polymodel.quantities import axis_unit
from polymodel.view.figures import axes, tick

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

NAMED = 12  # machines that have their names in the picture
WIDE = 16  # values of a symbol that lie so far apart are drawn on a logarithmic axis
MOST_MM2 = 1e-3  # areas up to here (m^2) are drawn in mm^2


def machine_axes(
    points: Sequence[tuple[str, Mapping[str, float]]], across: str, up: str, title: str, ax: Axes | None
) -> Axes:
    """Points, each the name of its machine and its figures, over two of these figures."""
    ax = axes(ax, 7.0, 4.4)
    small = max(figures["area"] for _, figures in points) < MOST_MM2
    scales = {n: 1e6 if n == "area" and small else 1.0 for n in (across, up)}
    named: set[str] = set()
    for name, figures in sorted(points, key=lambda p: (p[1][across], p[1][up])):
        at = figures[across] * scales[across], figures[up] * scales[up]
        ax.plot(*at, "o", color="#2563a8", markersize=5)
        if name not in named and len(named) < NAMED:
            named.add(name)
            ax.annotate(name, at, xytext=(5, 4), textcoords="offset points", fontsize=7)
    for figure, axis in ((across, ax.xaxis), (up, ax.yaxis)):
        _labelled(axis, figure, "mm^2" if small else "m^2")
    ax.grid(True, color="0.92")
    ax.set_axisbelow(True)
    ax.margins(0.2, 0.12)
    ax.set_title(title, fontsize=10)
    return ax


def symbol_axes(
    points: Sequence[tuple[float, float]], symbol: str, up: str, title: str, ax: Axes | None
) -> Axes:
    """A figure over the values of a symbol: a point per machine, a line through the least at each value."""
    ax = axes(ax, 7.0, 4.4)
    least: dict[float, float] = {}
    for value, figure in points:
        least[value] = min(figure, least.get(value, figure))
    if len(points) > len(least):
        ax.plot(*zip(*points, strict=True), "o", color="0.75", markersize=3, label="machines")
    values = sorted(least)
    ax.plot(values, [least[v] for v in values], "o-", color="#2563a8", markersize=5, label="best of them")
    if values[0] > 0 and values[-1] / values[0] >= WIDE:
        ax.set_xscale("log", base=2)
        ax.set_xticks(values if len(values) <= NAMED else [values[0], values[-1]], minor=False)
        ax.xaxis.set_major_formatter("{x:g}")
    if len(points) > len(least):
        ax.legend(fontsize=8)
    ax.set_xlabel(symbol)
    _labelled(ax.yaxis, up, "m^2")
    ax.grid(True, color="0.92")
    ax.set_axisbelow(True)
    ax.set_title(title, fontsize=10)
    return ax


def _labelled(axis: Axis, figure: str, area: str) -> None:
    unit = area if figure == "area" else unit_of(figure)
    if figure != "area":  # no prefix stands before a square
        tick(axis, unit)
    axis.set_label_text(f"{figure} ({axis_unit(unit)})" if unit else figure)
