"""The loop between tiler and model as a picture: figures over the steps, with the bound below them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymodel.quantities import engineering
from polymodel.report.plots import INK, prefixed
from polymodel.report.tiling.text import room
from polymodel.report.tiling.tune import UNITS, Tuning
from polymodel.view.figures import axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BEST, TRIED = "#2563a8", "#a9c8e6"
_NAMED = 12  # proposals; a longer list is taller than its plot


def plot_tuning(found: Tuning, ax: Axes | None = None) -> Axes:
    """Every proposal's figure as a point, the best so far as a line, the lower bound dashed.

    Beside it stand the improvements: their steps, what was proposed, and the figure.
    """
    from matplotlib.patches import Patch
    from matplotlib.ticker import MaxNLocator

    tuned = found.tuned
    ax = axes(ax, 9, 4)
    tried = [s for s in tuned.steps if s.fits]
    ax.plot(
        [s.number for s in tuned.steps], [s.best for s in tuned.steps], "-", color=BEST,
        drawstyle="steps-post", label="best so far",
    )  # fmt: skip
    ax.plot([s.number for s in tried], [s.figure for s in tried], "o", color=TRIED, label="proposal")
    better = [s for s in tried if s.improved]
    ax.plot([s.number for s in better], [s.figure for s in better], "o", color=BEST, label="improvement")
    bound = f"lower bound: {engineering(tuned.bound)}"
    ax.axhline(tuned.bound, color=INK, linestyle="--", linewidth=1, label=bound)
    ax.set_xlabel("step: one proposal each")
    ax.set_ylabel(UNITS[tuned.objective])
    ax.set_ylim(bottom=0)
    prefixed(ax, "", "y")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    of = f"{found.pattern.name}: {tuned.costs.op}, {room(tuned.costs.fit)}"
    ax.set_title(f"{of}; the loop ended: {found.ended}", fontsize=10)
    handles, labels = ax.get_legend_handles_labels()
    listed = [f"{s.number} {s.proposal.name}: {engineering(s.figure)}" for s in better[-_NAMED:]]
    listed = ["improvements by step", *(["..."] if len(better) > _NAMED else []), *listed]
    ax.legend(
        [*handles, *(Patch(alpha=0) for _ in listed)], [*labels, *listed], fontsize=8, frameon=False,
        loc="upper left", bbox_to_anchor=(1.01, 1.0),
    )  # fmt: skip
    return ax
