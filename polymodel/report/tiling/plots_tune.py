"""The loop between tiler and model as a picture: figures over the steps, with the bound below them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymodel.report.figures import axes
from polymodel.report.plots import INK
from polymodel.report.tiling.tune import UNITS, Tuning

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BEST, TRIED = "#2563a8", "#a9c8e6"
_NAMED = 12  # proposals; more names would run into each other


def plot_tuning(found: Tuning, ax: Axes | None = None) -> Axes:
    """Every proposal's figure as a point, the best so far as a line, the lower bound dashed.

    Improvements are named by their proposals. Above the plot: what the loop took and what a run saves.
    """
    from matplotlib.ticker import MaxNLocator

    tuned = found.tuned
    ax = axes(ax, 8, 4)
    tried = [s for s in tuned.steps if s.fits]
    ax.plot(
        [s.number for s in tuned.steps], [s.best for s in tuned.steps], "-", color=BEST,
        drawstyle="steps-post", label="best so far",
    )  # fmt: skip
    ax.plot([s.number for s in tried], [s.figure for s in tried], "o", color=TRIED, label="proposal")
    better = [s for s in tried if s.improved]
    ax.plot([s.number for s in better], [s.figure for s in better], "o", color=BEST, label="improvement")
    for step in better[-_NAMED:]:
        ax.annotate(
            step.proposal.name, (step.number, step.figure), xytext=(4, 5), textcoords="offset points",
            fontsize=7, color=INK, rotation=25,
        )  # fmt: skip
    ax.axhline(tuned.bound, color=INK, linestyle="--", linewidth=1, label="lower bound")
    ax.set_xlabel("step")
    ax.set_ylabel(UNITS[tuned.objective])
    ax.set_ylim(bottom=0)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_title(f"{found.pattern.name}: {found.ended}", fontsize=10)
    ax.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    return ax
