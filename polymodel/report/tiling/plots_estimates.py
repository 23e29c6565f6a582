"""Pictures of estimated tilings: what each model foretells, beside what tilers made of the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from polymodel.errors import Diagnostic, SpecError
from polymodel.quantities import engineering
from polymodel.report.plots import INK, prefixed
from polymodel.view.figures import axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from polymodel.tiling.cost.model import Costs
    from polymodel.tiling.estimate import Estimate

QUANTITIES = {
    "tiles": "tiles",
    "kernels": "kernels launched",
    "config_cycles": "configuration (cycles)",
    "run_cycles": "run (cycles)",
    "total_cycles": "configuration and run (cycles)",
}
_ACTUAL = "#0a1f44"
_ABREAST = 16  # characters above the bars of a tiler; where there are more they are turned
# Told apart in grey too.
_MODELS = ("#8ec1e8", "#d55e00", "#009e73", "#cc79a7")


class _Foretold(Protocol):
    @property
    def tensor(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def estimate(self) -> Estimate: ...
    @property
    def actual(self) -> Costs | None: ...


def plot_estimates(
    found: Sequence[_Foretold], quantity: str = "tiles", *, task: str = "", ax: Axes | None = None
) -> Axes:
    """Bars tiler by tiler: the actual figure of the data, where there are data, then that of each model.

    `task`: what is done in tiles of which size, for the title. SpecError for a quantity that is none.
    """
    if quantity not in QUANTITIES:
        raise SpecError([Diagnostic(f"no quantity {quantity!r}", f"one of {', '.join(QUANTITIES)}")])
    tilers = list(dict.fromkeys(f.estimate.tiler for f in found))
    models = list(dict.fromkeys(f.model for f in found))
    real = {f.estimate.tiler: f.actual for f in found if f.actual is not None}
    ax = axes(ax, 3 + 1.2 * len(tilers), 4)
    names = (["actual"] if real else []) + models
    width, place = 0.8 / len(names), np.arange(len(tilers))
    for number, name in enumerate(names):
        if name == "actual":
            heights = [float(getattr(real[t], quantity)) if t in real else 0.0 for t in tilers]
            colour = _ACTUAL
        else:
            told = {f.estimate.tiler: f.estimate for f in found if f.model == name}
            heights = [float(getattr(told[t], quantity)) if t in told else 0.0 for t in tilers]
            colour = _MODELS[models.index(name) % len(_MODELS)]
        label = name if name == "actual" else f"{name} (expected)"
        bars = ax.bar(
            place + (number - (len(names) - 1) / 2) * width, heights, width, label=label, color=colour
        )
        told_above = [engineering(int(h) if h == int(h) else h) for h in heights]
        turned = 90 if len(names) * max(map(len, told_above)) > _ABREAST else 0
        ax.bar_label(bars, told_above, fontsize=7, padding=2, rotation=turned, color=INK)
    ax.set_xticks(place, tilers)
    ax.set_xlabel("tiler")
    ax.set_ylabel(QUANTITIES[quantity])
    of = ", ".join(dict.fromkeys(f.tensor for f in found)) + (f": {task}" if task else "")
    ax.set_title(f"{of}; what models expect{' beside the data' if real else ''}", fontsize=10)
    ax.margins(y=0.16)
    ax.set_ylim(bottom=0)
    prefixed(ax, "", "y")
    ax.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    return ax
