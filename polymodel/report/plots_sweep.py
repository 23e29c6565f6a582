"""Pictures of sweeps, drawn from plain DataFrames; every axis says its unit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from polymodel.report.figures import new_axes
from polymodel.report.quantities import SHORT

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.cm import ScalarMappable

# More than these as bars are neither readable nor fast: an area under steps then.
BARS = 60
COLOURS = ("#2563a8", "#b45309", "#1d7a46", "#7440a8", "#b02a50", "#2b6b78", "#7d6b10", "#4a4a4a")
MARKERS = "os^Dv<>P"


def _label(name: str, unit: str) -> str:
    return f"{name} ({unit})" if unit else name


def _scaled(axis: Axis, values: Any, unit: str) -> None:
    """Ticks with prefixes (20 kb, 3 µJ); logarithmic if the values span more than a decade or so."""
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    low, high = (values.min(), values.max()) if len(values) else (0, 0)
    if low > 0 and high > 20 * low:
        (axis.axes.set_xscale if axis is axis.axes.xaxis else axis.axes.set_yscale)("log")
        subs = (1.0, 2.0, 5.0) if high < 1000 * low else (1.0,)
        axis.set_major_locator(LogLocator(base=10, subs=subs))
        axis.set_minor_formatter(NullFormatter())
    axis.set_major_formatter(EngFormatter(unit=SHORT.get(unit, unit)))


def front_axes(
    rows: pandas.DataFrame,
    front: pandas.DataFrame,
    objectives: Sequence[str],
    units: Sequence[str],
    ax: Axes | None = None,
) -> Axes:
    """The front over the first two objectives; other feasible rows, if kept, as dots.

    A staircase joins the points only where there are no further objectives, which the two axes would not
    show; else the third is the colour. Each mapping has a colour of its own, or a marker.
    """
    ax = ax if ax is not None else new_axes(7.0, 4.4)
    x, y = objectives[:2]
    earlier = len(ax.get_legend_handles_labels()[1])  # fronts that are there keep their colours to themselves
    others = rows.drop(front.index)
    if len(others):
        ax.scatter(
            others[x],
            others[y],
            s=8,
            color="0.78",
            label=f"{_points(len(others))} off the front",
            linewidths=0,
        )
    if len(objectives) == 2:
        _staircase(ax, front.sort_values(x), x, y, earlier)
    else:
        _coloured(ax, front, objectives, units)
    for axis, name, unit in ((ax.xaxis, x, units[0]), (ax.yaxis, y, units[1])):
        _scaled(axis, rows[name], unit)
        axis.set_label_text(_label(name, unit))
    ax.grid(True, color="0.92")
    ax.set_axisbelow(True)
    ax.set_title(f"Pareto front over {', '.join(objectives)}", fontsize=10)
    ax.legend(frameon=False, fontsize=8)
    return ax


def _points(n: int) -> str:
    return f"{n} point" if n == 1 else f"{n} points"


def _mappings(front: pandas.DataFrame) -> list[str]:
    return list(dict.fromkeys(front["mapping"]))


def _staircase(ax: Axes, front: pandas.DataFrame, x: str, y: str, earlier: int) -> None:
    named = _mappings(front)
    ax.step(front[x], front[y], where="post", color="0.55", linewidth=1.1)
    for i, name in enumerate(named):
        mine = front[front["mapping"] == name]
        label = f"{'Pareto front' if len(named) == 1 else name}, {_points(len(mine))}"
        colour = COLOURS[(earlier + i) % len(COLOURS)]
        ax.scatter(mine[x], mine[y], s=22, color=colour, label=label, zorder=3)


def _coloured(ax: Axes, front: pandas.DataFrame, objectives: Sequence[str], units: Sequence[str]) -> None:
    from matplotlib.colors import LogNorm, Normalize

    x, y, third = objectives[:3]
    low, high = front[third].min(), front[third].max()
    norm = LogNorm(low, high) if low > 0 and high > 20 * low else Normalize(low, high)
    named = _mappings(front)
    drawn = None
    for i, name in enumerate(named):
        mine = front[front["mapping"] == name]
        label = f"{'Pareto front' if len(named) == 1 else name}, {_points(len(mine))}"
        drawn = ax.scatter(
            mine[x], mine[y], c=mine[third].to_numpy(float), norm=norm, cmap="viridis", s=24, label=label,
            marker=MARKERS[i % len(MARKERS)], zorder=3,
        )  # fmt: skip
    if drawn is not None:
        _bar(ax, drawn, third, units[2])


def _bar(ax: Axes, drawn: ScalarMappable, name: str, unit: str) -> None:
    """A colour bar with prefixes."""
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    assert ax.figure is not None
    log = isinstance(drawn.norm, LogNorm)
    bar = ax.figure.colorbar(
        drawn, ax=ax, label=_label(name, unit), format=EngFormatter(unit=SHORT.get(unit, unit)),
        ticks=LogLocator(subs=(1.0, 2.0, 5.0)) if log else None,
    )  # fmt: skip
    bar.ax.yaxis.set_minor_formatter(NullFormatter())


def heat_axes(
    rows: pandas.DataFrame, x: str, y: str, objective: str, unit: str, ax: Axes | None = None
) -> Axes:
    """The least of an objective for every pair of values of two symbols; white where nothing fits."""
    import numpy as np
    from matplotlib.colors import LogNorm, Normalize

    ax = ax if ax is not None else new_axes(7.0, 4.4)
    table = rows.pivot_table(index=y, columns=x, values=objective, aggfunc="min")
    values = table.to_numpy(float)
    # The scale is that of the cells drawn: rows that are nowhere the least would only stretch it.
    low, high = np.nanmin(values), np.nanmax(values)
    norm = LogNorm(low, high) if low > 0 and high > 20 * low else Normalize(low, high)
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
    named = list(dict.fromkeys(rows["mapping"]))
    of = f"mapping {named[0]}" if len(named) == 1 else f"best of {len(named)} mappings: {', '.join(named)}"
    ax.set_title(f"Least {objective}, {of}", fontsize=10)
    _bar(ax, image, f"least {objective}", unit)
    return ax


def level_axes(
    parts: pandas.DataFrame,
    shown: tuple[str, str],
    xlabel: str,
    along: str = "",
    ticks: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """What each level of the hierarchy takes (a column each, outermost first), stacked; one bar per row.

    `shown`: the quantity and its unit; `along`: what each row stands for, for the title; `ticks`: a label
    per row. More rows than `BARS` are drawn as areas under steps.
    """
    import numpy as np
    from matplotlib.ticker import MaxNLocator

    ax = ax if ax is not None else new_axes(7.0, 4.4)
    quantity, unit = shown
    places = np.arange(len(parts))
    below = np.zeros(len(parts))
    for i, level in enumerate(parts.columns):
        above = below + parts[level].to_numpy(float)
        colour = COLOURS[i % len(COLOURS)]
        if len(parts) <= BARS:
            ax.bar(places, above - below, bottom=below, label=level, width=0.85, color=colour)
        else:
            ax.fill_between(places, below, above, step="mid", label=level, color=colour, linewidth=0)
        below = above
    _scaled(ax.yaxis, np.zeros(0), unit)
    if ticks is None:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    else:
        step = -(-len(ticks) // 16)
        ax.set_xticks(places[::step], ticks[::step])
    ax.margins(x=0.01)
    ax.set_xlabel(xlabel)
    ax.set_ylabel(_label(quantity, unit))
    name = "Traffic" if quantity == "accesses" else quantity.capitalize()
    ax.set_title(
        f"{name} by level, {along}" if along else f"{name} by level of {_points(len(parts))}", fontsize=10
    )
    ax.set_ylim(0, 1.05 * float(below.max()))
    # In the order of the stack, beside it: bars may be as high on either side.
    handles, labels = ax.get_legend_handles_labels()
    ax.legend(
        handles[::-1], labels[::-1], title="level", frameon=False, fontsize=8, title_fontsize=8,
        loc="center left", bbox_to_anchor=(1.01, 0.5),
    )  # fmt: skip
    return ax
