"""Tiler-Swift's charts redrawn: its bars next to ours as built and corrected, and the means that it claims.

The colours can be distinguished by colour-blind readers and in grey; published values are outlines.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING

from polymodel.errors import Diagnostic, SpecError
from polymodel.report.plots import INK, prefixed
from polymodel.tiling.fits.fit import Op
from polymodel.tiling.swift.compat import Bar, Mean
from polymodel.view.figures import new_panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_QUANTITIES = {"run": "to run (cycles)", "config": "to configure (cycles)"}
_OPS: dict[Op, str] = {"add": "addition", "multiply": "multiplication"}
_TITLES = {"run": "Execution time", "config": "Configuration time"}
_MOST = 24  # panels; more are too small to read
_ACROSS = 3
_WIDTH = 0.2  # of a bar, where a group of four takes 0.8
# What a series is called, and how it is filled. Outlined and hatched: published.
PUBLISHED, BUILT, ALL, NONEMPTY = "published", "as built", "corrected, all tiles", "corrected, nonempty tiles"
_FILLS = {PUBLISHED: "#ffffff", BUILT: "#e08a4f", ALL: "#1f4e8c", NONEMPTY: "#a9c8e6"}


def plot_chart(bars: Sequence[Bar], quantity: str, op: Op) -> Figure:
    """Cycles of every tiler, a panel per matrix with its own scale, four bars each.

    `quantity`: run or config. SpecError for others, for another operation, and for more than 24 matrices.
    """
    faults = []
    if quantity not in _QUANTITIES:
        message = f"there is no chart of {quantity!r}"
        faults.append(Diagnostic(message, "charts: run, config", code="nothing-to-show"))
    if op not in _OPS:
        message = f"op={op!r} is in no chart"
        faults.append(Diagnostic(message, "write add or multiply", code="nothing-to-show"))
    matrices = list(dict.fromkeys(b.matrix for b in bars))
    if not 0 < len(matrices) <= _MOST:
        remedy = f"give 1 to {_MOST} of them, or read the table `bars`"
        message = f"{len(matrices)} matrices cannot be drawn side by side"
        faults.append(Diagnostic(message, remedy, code="nothing-to-show"))
    if faults:
        raise SpecError(faults)
    across = min(_ACROSS, len(matrices))
    down = -(-len(matrices) // across)
    figure = new_panels(max(5.0, 3.3 * across), 2.4 * down + 0.9)
    grid = figure.subplots(down, across, squeeze=False)
    series = _series(bars, quantity)
    for ax, matrix in zip(grid.flat, matrices, strict=False):
        _panel(ax, [b for b in bars if (b.matrix, b.op) == (matrix, op)], series)
        ax.set_title(matrix, fontsize=9)
    for ax in grid[:, 0]:
        ax.set_ylabel(_QUANTITIES[quantity], fontsize=8)
    for ax in list(grid.flat)[len(matrices) :]:
        ax.set_axis_off()
    figure.suptitle(f"{_TITLES[quantity]} of {_OPS[op]}", fontsize=11)
    _legend(figure, list(series))
    return figure


def _series(bars: Sequence[Bar], quantity: str) -> dict[str, str]:
    """Return the names of the series, with their fields; published bars only if there are any."""
    result = {
        PUBLISHED: f"published_{quantity}",
        BUILT: f"as_built_{quantity}",
        ALL: f"corrected_{quantity}_all",
        NONEMPTY: f"corrected_{quantity}_nonempty",
    }
    if all(getattr(b, result[PUBLISHED]) is None for b in bars):
        del result[PUBLISHED]
    return result


def _panel(ax: Axes, bars: Sequence[Bar], series: dict[str, str]) -> None:
    """Draw the bars of one matrix: tilers next to each other, each with its published and its computed
    value."""
    for number, (name, field) in enumerate(series.items()):
        offset = (number - (len(series) - 1) / 2) * _WIDTH
        heights = [getattr(b, field) for b in bars]
        ax.bar(
            [place + offset for place in range(len(bars))], [h or 0 for h in heights], _WIDTH,
            color=_FILLS[name], edgecolor=INK, linewidth=0.6, hatch="////" if name == PUBLISHED else None,
        )  # fmt: skip
        for place, height in enumerate(heights):
            if height is None:  # too low to be read off the chart
                ax.annotate(
                    "not read", (place + offset, 0), xytext=(0, 2), textcoords="offset points", rotation=90,
                    ha="center", va="bottom", fontsize=6, color=INK,
                )  # fmt: skip
    ax.set_xticks(range(len(bars)), [b.tiler for b in bars], fontsize=8)
    ax.tick_params(axis="y", labelsize=8)
    ax.spines[["top", "right"]].set_visible(False)
    prefixed(ax, "", "y")
    ax.set_ylim(bottom=0)


def plot_means(means: Sequence[Mean]) -> Figure:
    """Draw the means that the document claims next to ours: speed-ups of the run above, configuration saved
    below."""
    if not means:
        message = "there are no means to draw"
        raise SpecError([Diagnostic(message, "compare at least one matrix", code="nothing-to-show")])
    figure = new_panels(9.5, 6.0)
    above, below = figure.subplots(2, 1)
    names = PUBLISHED, BUILT, ALL, NONEMPTY
    for ax, what, label, digits in (
        (above, "speed_up", "speed-up of the run\nagainst simple", "{:.2f}"),
        (below, "reduction", "configuration saved\nagainst simple (%)", "{:.2f}"),
    ):
        fields = f"claimed_{what}", f"as_built_{what}", f"corrected_{what}_all", f"corrected_{what}_nonempty"
        for number, (name, field) in enumerate(zip(names, fields, strict=True)):
            heights = [getattr(m, field) for m in means]
            drawn = ax.bar(
                [place + (number - 1.5) * _WIDTH for place in range(len(means))],
                [h if isfinite(h) else 0 for h in heights], _WIDTH,
                color=_FILLS[name], edgecolor=INK, linewidth=0.6, hatch="////" if name == PUBLISHED else None,
            )  # fmt: skip
            told = [digits.format(h) if isfinite(h) else "-" for h in heights]
            ax.bar_label(drawn, told, fontsize=8, padding=1)
        ax.set_xticks(range(len(means)), [f"{_OPS[m.op]}: {m.tiler}" for m in means], fontsize=9)
        ax.set_ylabel(label, fontsize=9)
        ax.margins(y=0.12)
        ax.spines[["top", "right"]].set_visible(False)
    above.axhline(1, color=INK, linewidth=0.8, linestyle="--")
    figure.suptitle("Claims of Tiler-Swift's document, and computed values", fontsize=11)
    _legend(figure, ["claimed", *names[1:]])
    return figure


def _legend(figure: Figure, names: Sequence[str]) -> None:
    """Draw the legend below everything; the layout makes room for it."""
    from matplotlib.patches import Patch

    fills = [_FILLS.get(n, _FILLS[PUBLISHED]) for n in names]
    outlined = (PUBLISHED, "claimed")
    handles = [
        Patch(facecolor=f, edgecolor=INK, linewidth=0.6, hatch="////" if n in outlined else None, label=n)
        for n, f in zip(names, fills, strict=True)
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=9, frameon=False)
