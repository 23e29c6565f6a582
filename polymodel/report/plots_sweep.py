"""Pictures of sweeps, drawn from plain DataFrames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes


def _axes(ax: Axes | None) -> Axes:
    import matplotlib.pyplot as plt

    if ax is not None:
        return ax
    made: Axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")[1]
    return made


def _label(name: str, unit: str) -> str:
    return f"{name} ({unit})" if unit else name


def front_axes(
    rows: pandas.DataFrame,
    front: pandas.DataFrame,
    objectives: Sequence[str],
    units: Sequence[str],
    ax: Axes | None = None,
) -> Axes:
    """The front over the first two objectives as a staircase; other feasible rows, if kept, as dots."""
    ax = _axes(ax)
    x, y = objectives[:2]
    others = rows.drop(front.index)
    if len(others):
        ax.scatter(others[x], others[y], s=8, color="0.75", label=f"{len(others)} other points", linewidths=0)
    ordered = front.sort_values(x)
    ax.step(ordered[x], ordered[y], where="post", color="C0", linewidth=1.2, alpha=0.6)
    ax.scatter(ordered[x], ordered[y], s=22, color="C0", label=f"Pareto front, {len(front)} points", zorder=3)
    for values, scale in ((rows[x], ax.set_xscale), (rows[y], ax.set_yscale)):
        if len(values) and values.min() > 0 and values.max() > 20 * values.min():
            scale("log")
    ax.set_xlabel(_label(x, units[0]))
    ax.set_ylabel(_label(y, units[1]))
    ax.grid(True, color="0.92")
    ax.legend(frameon=False)
    return ax


def heat_axes(
    rows: pandas.DataFrame, x: str, y: str, objective: str, unit: str, ax: Axes | None = None
) -> Axes:
    """The least of an objective for every pair of values of two symbols; white where nothing fits."""
    from matplotlib.colors import LogNorm

    ax = _axes(ax)
    table = rows.pivot_table(index=y, columns=x, values=objective, aggfunc="min")
    values = table.to_numpy(float)
    low, high = rows[objective].min(), rows[objective].max()
    norm = LogNorm(low, high) if low > 0 and high > 20 * low else None
    image = ax.imshow(values, origin="lower", aspect="auto", cmap="viridis_r", norm=norm)
    for ticks, labels, names in (
        (ax.set_xticks, ax.set_xticklabels, table.columns),
        (ax.set_yticks, ax.set_yticklabels, table.index),
    ):
        # At most a dozen labels, so that they stay readable.
        step = -(-len(names) // 12)
        ticks(range(0, len(names), step))
        labels([f"{v:g}" for v in names[::step]])
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    assert ax.figure is not None
    ax.figure.colorbar(image, ax=ax, label=_label(f"least {objective}", unit))
    return ax


def level_axes(
    rows: pandas.DataFrame, columns: Sequence[str], labels: Sequence[str], unit: str, ax: Axes | None = None
) -> Axes:
    """Stacked bars, one per row (numbered from 0): a column per level of the hierarchy."""
    import numpy as np

    ax = _axes(ax)
    places = np.arange(len(rows))
    below = np.zeros(len(rows))
    for column, label in zip(columns, labels, strict=True):
        heights = rows[column].to_numpy(float)
        ax.bar(places, heights, bottom=below, label=label, width=0.85)
        below = below + heights
    ax.set_xlabel("kept point, by the first objective")
    ax.set_ylabel(_label("accesses", unit))
    ax.legend(frameon=False, title="component")
    return ax
