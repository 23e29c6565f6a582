"""Pictures of explored fronts, drawn from plain DataFrames."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from polymodel.report.plots_sweep import COLOURS, front_axes, shown_values

if TYPE_CHECKING:
    import numpy as np
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from numpy.typing import NDArray


def explored_axes(
    rows: pandas.DataFrame,
    objectives: Sequence[str],
    shown: tuple[str, str],
    units: Mapping[str, str],
    ax: Axes | None = None,
    label: str = "",
) -> Axes:
    """A front over the two figures `shown`; a further objective is the colour, else the fused tensors are.

    `rows` have a column per figure and `fused`, the names of the fused tensors of each point. `label` names
    the front in the legend of a picture with several.
    """
    drawn = rows.assign(mapping=_fused_labels(rows))
    others = [o for o in objectives if o not in shown and rows[o].nunique() > 1 and not _same(rows, o, shown)]
    names = [*shown, *others[:1]]
    only = drawn["mapping"].iloc[0]  # one kind alone is told as well
    ax = front_axes(drawn, drawn, names, [units.get(n, "bit") for n in names], ax, label, only)
    for k, axis in enumerate((ax.xaxis, ax.yaxis)):
        _with_zero(axis, shown_values(ax, k))
    one = ": one mapping" if len(shown_values(ax, 0)) == 1 else ""
    ax.set_title(f"Pareto front over {', '.join(objectives)}{one}", fontsize=10)
    return ax


def _with_zero(axis: Axis, values: NDArray[np.float64]) -> None:
    """Decades down to the smallest value, and then 0: a buffer that nothing is kept in is no rare point."""
    from matplotlib.ticker import FixedLocator, NullLocator

    positive = values[values > 0]
    if values.min() or not len(positive) or positive.max() <= 20 * positive.min():
        return
    low, high = float(positive.min()), float(positive.max())
    formatter, along_x = axis.get_major_formatter(), axis is axis.axes.xaxis
    (axis.axes.set_xscale if along_x else axis.axes.set_yscale)("symlog", linthresh=low)
    (axis.axes.set_xlim if along_x else axis.axes.set_ylim)(-low / 2, 2 * high)
    powers = range(math.ceil(math.log10(low)), math.ceil(math.log10(high)) + 1)
    axis.set_major_locator(FixedLocator([0.0, *(10.0**p for p in powers)]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(formatter)


def _same(rows: pandas.DataFrame, name: str, shown: Sequence[str]) -> bool:
    """True if a figure is one of those shown by another name (buffer and buffer:GLB)."""
    return any(
        rows[name].equals(rows[s]) for s in shown if s.startswith("buffer") and name.startswith("buffer")
    )


def _fused_labels(rows: pandas.DataFrame) -> list[str]:
    """What the legend says of each point: the tensors that it fuses; beyond the colours, only how many."""
    labels = [f"fused: {f}" if f else "unfused" for f in rows["fused"]]
    if len(set(labels)) <= len(COLOURS):
        return labels
    counts = [len(f.split(", ")) if f else 0 for f in rows["fused"]]
    return [f"{n} tensors fused" if n != 1 else "1 tensor fused" for n in counts]
