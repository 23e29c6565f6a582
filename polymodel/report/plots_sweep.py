"""Pictures of sweeps, drawn from plain DataFrames; every axis says its unit."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from polymodel.integers import floats
from polymodel.quantities import axis_unit, engineering, in_units
from polymodel.view.figures import axes, tick, ticks

if TYPE_CHECKING:
    import numpy as np
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.cm import ScalarMappable
    from matplotlib.collections import PathCollection
    from numpy.typing import NDArray

# More than these as bars are neither readable nor fast: an area under steps then.
BARS = 60
NARROW = 5  # steps of an axis whose labels have many digits
HIDDEN = 0.04  # a level with a smaller share of the stack cannot be seen in it
LABELS = 12  # most labels along an axis that stay readable
_FEW = 8
COLOURS = ("#2563a8", "#b45309", "#1d7a46", "#7440a8", "#b02a50", "#2b6b78", "#7d6b10", "#4a4a4a")
MARKERS = "os^Dv<>P"
LINES = ("-", "--", ":", "-.")


def _label(name: str, unit: str) -> str:
    return f"{name} ({axis_unit(unit)})" if unit else name


def _scaled(axis: Axis, values: Any, unit: str) -> None:
    """Ticks with prefixes (20 kb, 3 µJ); logarithmic if the values span more than a decade or so."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)
    if low > 0 and high > 20 * low:
        (axis.axes.set_xscale if axis is axis.axes.xaxis else axis.axes.set_yscale)("log")
        subs = (1.0, 2.0, 5.0) if high < 100 * low else (1.0,)  # more would not stand beside each other
        axis.set_major_locator(LogLocator(base=10, subs=subs))
        axis.set_minor_formatter(NullFormatter())
    elif len(values) and high - low < 0.1 * abs(high) and axis is axis.axes.xaxis:
        axis.set_major_locator(MaxNLocator(NARROW, steps=[1, 2, 2.5, 5, 10]))  # numbers of many digits
    tick(axis, unit)


def front_axes(
    rows: pandas.DataFrame,
    front: pandas.DataFrame,
    objectives: Sequence[str],
    units: Sequence[str],
    ax: Axes | None = None,
    label: str = "",
    only: str = "Pareto front",
) -> Axes:
    """The front over the first two objectives; other feasible rows, if kept, as dots.

    A staircase joins the points only where there are no further objectives, which the two axes would not
    show; else the third is the colour. Each mapping has a colour of its own, or a marker. Fronts in one
    picture differ in line and marker; the legend tells them by `label`, else by number. `only`: what the
    points are called if all are of one mapping.
    """
    ax = axes(ax, 7.0, 4.4)
    x, y = objectives[:2]
    before = list(fronts(ax))
    others = rows.drop(front.index)
    if len(others):
        text = f"{_points(len(others))} off the front"
        ax.scatter(floats(others[x]), floats(others[y]), s=8, color="0.78", label=text, linewidths=0)
    if len(objectives) == 2:
        _staircase(ax, front.sort_values(x), x, y, only)
    else:
        _coloured(ax, front, objectives, units, only)
    _named(ax, before, label)
    for k, (axis, name, unit) in enumerate(((ax.xaxis, x, units[0]), (ax.yaxis, y, units[1]))):
        _scaled(axis, shown_values(ax, k), unit)
        axis.set_label_text(_label(name, unit))
    ax.grid(True, color="0.92")
    ax.set_axisbelow(True)
    ax.set_title(f"Pareto front over {', '.join(objectives)}", fontsize=10)
    if len(shown_values(ax, 0)) == 1:
        _alone(ax, units)
    else:
        _front_legend(ax)
    return ax


def fronts(ax: Axes) -> dict[int, list[PathCollection]]:
    """The fronts in a picture, from 1, each with the points of every mapping."""
    from matplotlib.collections import PathCollection

    result: dict[int, list[PathCollection]] = {}
    for points in ax.collections:
        kind, _, rest = (points.get_gid() or "").partition("-")
        if kind == "front" and isinstance(points, PathCollection):
            result.setdefault(int(rest.partition("-")[0]), []).append(points)
    return result


def shown_values(ax: Axes, k: int) -> NDArray[np.float64]:
    """Return the values of all points of the picture, of every front, along x (0) or y (1)."""
    import numpy as np
    from matplotlib.collections import PathCollection

    drawn = [
        np.asarray(p.get_offsets(), float)[:, k] for p in ax.collections if isinstance(p, PathCollection)
    ]
    return np.concatenate(drawn)


def _named(ax: Axes, before: Sequence[int], label: str) -> None:
    """Name the points in the legend by their front, if there are several fronts or one has a name."""
    found = fronts(ax)
    for number, parts in found.items():
        for points in parts:
            name = label if number not in before else ""
            gid = points.get_gid() or ""
            if gid.endswith("-named") or not (name or len(found) > 1):
                continue
            points.set_label(f"{points.get_label()} ({name or f'front {number}'})")
            points.set_gid(f"{gid}-named")


def _front_legend(ax: Axes) -> None:
    """Draw the legend of fronts; for points in the colours of a colour bar it shows the marker alone, in
    grey."""
    from matplotlib.collections import PathCollection
    from matplotlib.lines import Line2D

    handles, labels = ax.get_legend_handles_labels()
    shown = [
        Line2D([], [], linestyle="", marker=h.get_paths()[0], color="0.35", markersize=5.5)
        if isinstance(h, PathCollection) and h.get_array() is not None
        else h
        for h in handles
    ]
    ax.legend(shown, labels, frameon=False, fontsize=8)


def _alone(ax: Axes, units: Sequence[str]) -> None:
    """Draw a single point: its name and figures next to it, on axes that start at 0."""
    x, y = (float(shown_values(ax, k)[0]) for k in (0, 1))
    (line,) = ax.plot([0, x, x], [y, y, 0], color="0.75", linestyle=":", linewidth=1.0)
    line.sticky_edges.x.append(0)
    line.sticky_edges.y.append(0)
    (points,) = (p for parts in fronts(ax).values() for p in parts)
    name = textwrap.wrap(str(points.get_label()).replace(", 1 point", ""), 48)
    text = "\n".join([*name, *(engineering(v, u) for v, u in zip((x, y), units, strict=False))])
    ax.annotate(text, (x, y), xytext=(-8, -8), textcoords="offset points", ha="right", va="top", fontsize=8.5)


def _points(n: int) -> str:
    return f"{n} point" if n == 1 else f"{n} points"


def _mappings(front: pandas.DataFrame) -> list[str]:
    return list(dict.fromkeys(front["mapping"]))


def _staircase(ax: Axes, front: pandas.DataFrame, x: str, y: str, only: str) -> None:
    earlier = fronts(ax)  # they keep their colours and markers to themselves
    number, used = len(earlier) + 1, sum(map(len, earlier.values()))
    line, shade = LINES[(number - 1) % len(LINES)], ("0.55", "0.3")[(number - 1) % 2]
    ax.step(floats(front[x]), floats(front[y]), where="post", color=shade, linewidth=1.1, linestyle=line)
    named = _mappings(front)
    for i, name in enumerate(named):
        mine = front[front["mapping"] == name]
        label = f"{only if len(named) == 1 else name}, {_points(len(mine))}"
        # Larger behind those that are there: a mapping on both fronts shows as both.
        ax.scatter(
            floats(mine[x]), floats(mine[y]), s=22 * number, label=label,
            color=COLOURS[(used + i) % len(COLOURS)], marker=MARKERS[(used + i) % len(MARKERS)],
            zorder=3 - 0.01 * number, gid=f"front-{number}-{i}",
        )  # fmt: skip


def _coloured(
    ax: Axes, front: pandas.DataFrame, objectives: Sequence[str], units: Sequence[str], only: str
) -> None:
    from matplotlib.colors import LogNorm, Normalize

    x, y, third = objectives[:3]
    low, high = float(front[third].min()), float(front[third].max())
    norm = LogNorm(low, high) if low > 0 and high > 20 * low else Normalize(low, high)
    named = _mappings(front)
    number, drawn = len(fronts(ax)) + 1, None
    for i, name in enumerate(named):
        mine = front[front["mapping"] == name]
        label = f"{only if len(named) == 1 else name}, {_points(len(mine))}"
        drawn = ax.scatter(
            floats(mine[x]), floats(mine[y]), c=floats(mine[third]), norm=norm, cmap="viridis", s=24,
            label=label, marker=MARKERS[i % len(MARKERS)], zorder=3, gid=f"front-{number}-{i}",
        )  # fmt: skip
    if drawn is not None:
        _bar(ax, drawn, third, units[2])


def _bar(ax: Axes, drawn: ScalarMappable, name: str, unit: str) -> None:
    """A colour bar with prefixes."""
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import LogLocator, NullFormatter

    assert ax.figure is not None
    log = isinstance(drawn.norm, LogNorm)
    bar = ax.figure.colorbar(
        drawn, ax=ax, label=_label(name, unit), format=ticks(unit),
        ticks=LogLocator(subs=(1.0, 2.0, 5.0)) if log else None,
    )  # fmt: skip
    bar.ax.yaxis.set_minor_formatter(NullFormatter())


def heat_axes(
    rows: pandas.DataFrame,
    x: str,
    y: str,
    objective: str,
    unit: str,
    ax: Axes | None = None,
    best: str = "least",
) -> Axes:
    """The `best` (`least` or `most`) of an objective for every pair of values of two symbols; white where
    nothing fits."""
    import numpy as np
    from matplotlib.colors import LogNorm, Normalize

    ax = axes(ax, 7.0, 4.4)
    table = rows.pivot_table(
        index=y, columns=x, values=objective, aggfunc="min" if best == "least" else "max"
    )
    values = floats(table)
    # The scale is that of the cells drawn: rows that are nowhere the least would only stretch it.
    low, high = np.nanmin(values), np.nanmax(values)
    norm = LogNorm(low, high) if low > 0 and high > 20 * low else Normalize(low, high)
    colours = "viridis_r" if best == "least" else "viridis"
    # Hard cells: smoothing would show values between a cell and one where nothing fits.
    image = ax.imshow(values, origin="lower", aspect="auto", cmap=colours, norm=norm, interpolation="nearest")
    for places, labels, names in (
        (ax.set_xticks, ax.set_xticklabels, table.columns),
        (ax.set_yticks, ax.set_yticklabels, table.index),
    ):
        step = -(-len(names) // LABELS)
        places(range(0, len(names), step))
        labels([f"{v:g}" for v in names[::step]])
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    named = list(dict.fromkeys(rows["mapping"]))
    of = (
        f", mapping {named[0]}" if len(named) == 1 else f", best of {len(named)} mappings: {', '.join(named)}"
    )
    of = "" if named == ["mapping"] else of  # a lone one without a name
    ax.set_title(f"{best.capitalize()} {objective}{of}", fontsize=10)
    _bar(ax, image, f"{best} {objective}", unit)
    return ax


def level_axes(
    parts: pandas.DataFrame,
    shown: tuple[str, str],
    xlabel: str,
    along: str = "",
    ticks: Sequence[str] | None = None,
    ax: Axes | None = None,
    data: str = "",
) -> Axes:
    """What each level of the hierarchy takes (a column each, outermost first), stacked; one bar per row.

    `shown`: the quantity and its unit; `along`: what each row stands for, and `data`: on what, for the
    title; `ticks`: a label per row. More rows than `BARS` are drawn as areas under steps. Where a level would
    not be seen in a stack, each is a line of its own on a logarithmic axis.
    """
    import numpy as np
    from matplotlib.ticker import MaxNLocator

    ax = axes(ax, 7.0, 4.4)
    quantity, unit = shown
    places = np.arange(len(parts))
    apart = _is_hidden(parts)
    (_lines if apart else _stack)(ax, parts, unit)
    if ticks is None:
        if len(parts) < _FEW:  # a locator of so few makes up places between them
            ax.set_xticks(places)
        else:
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    else:
        step = -(-len(ticks) // LABELS)
        ax.set_xticks(places[::step], ticks[::step])
    ax.set_xlim(min(-0.5, len(parts) / 2 - 2), max(len(parts) - 0.5, len(parts) / 2 + 1))
    ax.set_xlabel(xlabel)
    ax.set_ylabel(_label(quantity, unit))
    name = "Traffic" if quantity == "accesses" else quantity.capitalize()
    scale = " (logarithmic)" if apart else ""
    of = f", {along}" if along else f" of {_points(len(parts))}"
    ax.set_title(f"{name}{data} by level{of}{scale}", fontsize=10)
    return ax


def _is_hidden(parts: pandas.DataFrame) -> bool:
    """Return whether a level is too small a part of most stacks to be visible."""
    shares = parts.div(parts.sum(axis=1), axis=0)
    return bool((shares.median()[parts.max() > 0] < HIDDEN).any())


def _stack(ax: Axes, parts: pandas.DataFrame, unit: str) -> None:
    """Draw the levels stacked; the legend has the same order, next to the bars, which may be high on either
    side."""
    import numpy as np

    places, below = np.arange(len(parts)), np.zeros(len(parts))
    for i, level in enumerate(parts.columns):
        above = below + floats(parts[level])
        colour = COLOURS[i % len(COLOURS)]
        if len(parts) <= BARS:
            ax.bar(places, above - below, bottom=below, label=level, width=0.85, color=colour)
        else:
            ax.fill_between(places, below, above, step="mid", label=level, color=colour, linewidth=0)
        below = above
    _scaled(ax.yaxis, np.zeros(0), unit)
    ax.set_ylim(0, 1.05 * float(below.max()))
    handles, labels = ax.get_legend_handles_labels()
    ax.legend(
        handles[::-1], labels[::-1], title="level", frameon=False, fontsize=8, title_fontsize=8,
        loc="center left", bbox_to_anchor=(1.01, 0.5),
    )  # fmt: skip


def _lines(ax: Axes, parts: pandas.DataFrame, unit: str) -> None:
    """A line for each level on a logarithmic axis; the legend has its last figure, the largest first."""
    import numpy as np

    places, few = np.arange(len(parts)), len(parts) <= BARS
    ends = {level: float(parts[level].iloc[-1]) for level in parts.columns}
    for i, level in enumerate(parts.columns):
        ax.plot(
            places, floats(parts[level]), color=COLOURS[i % len(COLOURS)], linewidth=1.2, label=level,
            marker=MARKERS[i % len(MARKERS)] if few else "", markersize=4.5, drawstyle="steps-mid",
        )  # fmt: skip
    values = floats(parts).ravel()
    _scaled(ax.yaxis, values, unit)
    _with_zero(ax.yaxis, values, unit)
    ax.grid(True, axis="y", color="0.92")
    ax.set_axisbelow(True)
    if ax.get_yscale() == "log":
        ax.set_ylim(values.min() / 2, values.max() * 2)
    handles = dict(zip(parts.columns, ax.get_lines(), strict=True))
    names = sorted(parts.columns, key=lambda level: -ends[level])
    ax.legend(
        [handles[n] for n in names], [f"{n}: {engineering(ends[n], unit)}" for n in names],
        title="level, at the right", frameon=False, fontsize=8, title_fontsize=8,
        loc="center left", bbox_to_anchor=(1.01, 0.5),
    )  # fmt: skip


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
        _with_zero(axis, shown_values(ax, k), units.get(names[k], "bit"))
    one = ": one mapping" if len(shown_values(ax, 0)) == 1 else ""
    ax.set_title(f"Pareto front over {', '.join(objectives)}{one}", fontsize=10)
    return ax


def _with_zero(axis: Axis, values: NDArray[np.float64], unit: str) -> None:
    """Scale an axis by decades down to the smallest value, and then 0: a buffer that keeps nothing is a
    frequent point."""
    from matplotlib.ticker import FixedLocator, NullLocator

    positive = values[values > 0]
    if values.min() or not len(positive) or positive.max() <= 20 * positive.min():
        return
    low, high = float(positive.min()), float(positive.max())
    formatter, along_x = axis.get_major_formatter(), axis is axis.axes.xaxis
    (axis.axes.set_xscale if along_x else axis.axes.set_yscale)("symlog", linthresh=low)
    (axis.axes.set_xlim if along_x else axis.axes.set_ylim)(-low / 2, 2 * high)
    factor = in_units(unit)[1]
    powers = range(math.ceil(math.log10(low * factor)), math.ceil(math.log10(high * factor)) + 1)
    axis.set_major_locator(FixedLocator([0.0, *(10.0**p / factor for p in powers)]))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(formatter)


def _same(rows: pandas.DataFrame, name: str, shown: Sequence[str]) -> bool:
    """True if a figure is one of those shown by another name (buffer and buffer:GLB)."""
    return any(
        rows[name].equals(rows[s]) for s in shown if s.startswith("buffer") and name.startswith("buffer")
    )


def _fused_labels(rows: pandas.DataFrame) -> list[str]:
    """Return the legend text of each point: its fused tensors; beyond the number of colours, only their
    number."""
    labels = [f"fused: {f}" if f else "unfused" for f in rows["fused"]]
    if len(set(labels)) <= len(COLOURS):
        return labels
    counts = [len(f.split(", ")) if f else 0 for f in rows["fused"]]
    return [f"{n} tensors fused" if n != 1 else "1 tensor fused" for n in counts]
