"""Plots with matplotlib; every axis says its unit."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from polymodel.architecture.hierarchy import link_name
from polymodel.errors import Diagnostic, SpecError
from polymodel.quantities import data_unit, engineering, in_units
from polymodel.view.drawing import NAME, PALETTE, short
from polymodel.view.figures import axes, tick

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from polymodel.cost.records import RooflinePoint
    from polymodel.report.report import Report

MARKERS = "os^Dv<>PXp"
ROOFS = ("-", "--", ":", "-.", (0, (8, 2)), (0, (1, 4)))  # lines, told apart where they run close by
WARNING = "#c0282d"
INK = "#1f2933"
ROOF_INKS = ("#1f2933", "#7a3e00", "#0b5a3c", "#4a2a8a")
SIDE_BY_SIDE = 3  # Einsums at one place that a legend names
LISTED = 16  # Einsums in a legend; more would be taller than the plot
ROOM = 70  # characters that stand beside each other below a plot
# Dark ones first, then lighter ones of the same kind, which still stand out from white paper.
SHADES = tuple(edge for _, edge in PALETTE) + (
    "#7fb2e5", "#f0a35e", "#74c69d", "#b79ce0", "#ec8fa5", "#7cc0cf", "#d6c35a", "#a3a3a3",
)  # fmt: skip


def plot(report: Report, what: str, ax: Axes | None = None) -> Axes:
    """Draw `working_sets`, `energy`, `roofline` or `group_roofline` into `ax`, or into a new figure that
    fits."""
    kinds = {"working_sets": working_sets, "energy": energy, "roofline": roofline}
    kinds["group_roofline"] = group_roofline
    if what not in kinds:
        message = f"there is no plot {what!r}"
        raise SpecError([Diagnostic(message, "plots: " + ", ".join(kinds), code="unknown-choice")])
    return kinds[what](report, axes(ax, 8, plot_height(report, what)))


def plot_height(report: Report, what: str) -> float:
    """Inches that a plot needs, so that its bars and their names have room."""
    rows = _rows(report) if what == "working_sets" else 0
    return max(4.5, 1.2 + 0.2 * rows)


def _turned(names: Sequence[str]) -> int:
    """Return the rotation of names below bars, in degrees, such that they do not overlap."""
    return 0 if sum(len(short(n)) for n in names) < ROOM else 20


def prefixed(ax: Axes, unit: str, which: str) -> None:
    """Ticks of one axis with engineering prefixes."""
    axis = ax.xaxis if which == "x" else ax.yaxis
    tick(axis, unit)


def _rows(report: Report) -> int:
    """Return the bars of the working sets, with a gap between components."""
    shown = [n.component for n in report.costs.needs if n.counts]
    return len(shown) + len(set(shown))


def working_sets(report: Report, ax: Axes) -> Axes:
    """Peak bits per component and Einsum as horizontal bars, capacity as a line across each group.

    The figures stand to the right of the axes, where no capacity line runs through them.
    """
    shown = [n for n in report.costs.needs if n.counts]
    components = list(dict.fromkeys(n.component for n in shown))
    einsums = list(dict.fromkeys(n.einsum for n in shown))
    top, labels, places = 0, [], []
    for c in components:
        mine = [n for n in shown if n.component == c]
        for i, n in enumerate(mine):
            colour = SHADES[einsums.index(n.einsum) % len(SHADES)] if n.fits else WARNING
            ax.barh(top + i, float(n.bits), height=0.8, color=colour)
            ax.annotate(
                engineering(n.bits, "bit"), (1.01, top + i), xycoords=("axes fraction", "data"),
                va="center", fontsize=8, color=INK if n.fits else WARNING, annotation_clip=False,
            )  # fmt: skip
        capacity = float(mine[0].capacity_bits)
        if not math.isinf(capacity):
            ends = (top - 0.5, top + len(mine) - 0.5)
            ax.plot([capacity, capacity], ends, color=INK, linewidth=2)
            ax.annotate(
                f"{short(c)} holds {engineering(capacity, 'bit')}", (capacity, ends[0]), xytext=(0, 3),
                textcoords="offset points", ha="center", va="bottom", fontsize=8, color=INK,
            )  # fmt: skip
        labels += [f"{short(c)}: {short(n.einsum)}" for n in mine]
        places += [top + i for i in range(len(mine))]
        top += len(mine) + 1  # a gap, in which the next capacity is written
    ax.set_yticks(places, labels, fontsize=8)
    ax.set_ylim(top - 1.2, -1.7)
    sizes = [s for n in shown for s in (float(n.bits), n.capacity_bits) if _finite(s)]
    if sizes:
        ax.set_xscale("log")
        # The axis begins at a whole bit or byte, unless a working set is smaller than two of them.
        least = min(1 / in_units("bit")[1], min(sizes) / 2)
        ax.set_xlim(max(min(sizes) / 16, least), max(sizes) * 64)
    prefixed(ax, "bit", "x")
    ax.set_xlabel(f"peak working set of the busiest instance ({data_unit()}, logarithmic)")
    ax.set_title("Working sets against capacity", fontsize=10)
    return ax


def energy(report: Report, ax: Axes) -> Axes:
    """Joules per component, stacked by tensor; operations and leakage are stacks of their own."""
    items = [i for i in report.costs.energy if i.energy]
    names = [
        n
        for c in report.problem.hierarchy.components
        for n in (*(link_name(c.name, d.name) for d in c.spatial), c.name)
    ]
    components = [n for n in names if any(i.component == n for i in items)]

    def kind(tensor: str, action: str) -> str:
        return tensor or ("leakage" if action == "leak" else "operations")

    totals: dict[str, float] = {}
    for i in items:
        name = kind(i.tensor, i.action)
        totals[name] = totals.get(name, 0.0) + i.energy
    largest = sorted(totals, key=lambda k: totals[k], reverse=True)
    # More colours than anyone can tell apart help nobody.
    named = largest[: len(SHADES) - 1]
    # Colours follow the cascade and not the amounts: on sparse data a tensor has the same one.
    known = [*report.problem.cascade.tensors, "operations", "leakage"]
    shades = dict(zip([*sorted(named, key=known.index), "other tensors"], SHADES, strict=False))
    below = dict.fromkeys(components, 0.0)
    places = range(len(components))
    for name in (*named, "other tensors"):
        heights = dict.fromkeys(components, 0.0)
        for i in items:
            found = kind(i.tensor, i.action)
            if found == name or (name == "other tensors" and found not in named):
                heights[i.component] += i.energy
        if not any(heights.values()):
            continue
        ax.bar(
            places, list(heights.values()), bottom=list(below.values()), width=0.65, label=short(name),
            color=shades[name], edgecolor="white", linewidth=0.6,
        )  # fmt: skip
        below = {c: below[c] + heights[c] for c in components}
    for at, c in enumerate(components):
        ax.annotate(
            engineering(below[c], "J"), (at, below[c]), xytext=(0, 3), textcoords="offset points",
            ha="center", fontsize=8,
        )  # fmt: skip
    ax.set_xticks(places, [short(c) for c in components], rotation=_turned(components))
    ax.set_ylim(0, 1.12 * max(below.values(), default=1.0))
    prefixed(ax, "J", "y")
    ax.set_ylabel("energy (J)")
    ax.set_title(f"Energy by component and tensor: {engineering(report.total_energy, 'J')}", fontsize=10)
    if items:
        handles, labels = ax.get_legend_handles_labels()
        ax.legend(  # as they are stacked
            handles[::-1], labels[::-1], fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5),
            frameon=False,
        )  # fmt: skip
    return ax


def roofline(report: Report, ax: Axes) -> Axes:
    """Einsums under the roofs of the outer memories."""
    return roofline_axes(report.costs.roofline, "Roofline: each Einsum and what limits it", ax)


def group_roofline(report: Report, ax: Axes) -> Axes:
    """Groups of fused Einsums under the roofs of the outer memories."""
    return roofline_axes(report.grouped, GROUPS, ax)


GROUPS = "Roofline: each group of fused Einsums and what limits it"


def roofline_axes(given: Iterable[RooflinePoint], title: str, ax: Axes) -> Axes:
    """Achieved operations per second over operational intensity, under the roofs of the outer memories."""
    from matplotlib.ticker import NullFormatter

    points = [p for p in given if 0 < p.intensity < math.inf and 0 < p.achieved < math.inf]
    if not points:
        ax.text(0.5, 0.5, "no Einsum has a finite position", ha="center", transform=ax.transAxes)
        return ax
    unit, per = in_units("operation/bit")
    ridges = [per * p.peak / p.bandwidth for p in points if _finite(p.peak / p.bandwidth)]
    places = [per * p.intensity for p in points] + ridges
    # Whole decades, so that there are ticks at both ends.
    low, high = (
        10.0 ** way(math.log10(x)) for way, x in ((math.floor, min(places) / 2), (math.ceil, max(places) * 2))
    )
    for number, (memory, compute, bandwidth, peak) in enumerate(_roofs(points)):
        if math.isinf(bandwidth):
            continue
        slope = bandwidth / per
        ridge = min(peak / slope, high)
        xs = [low, ridge, high]
        ys = [min(peak, x * slope) for x in xs]
        speeds = engineering(bandwidth, "bit/s"), engineering(peak, "operation/s")
        label = ", ".join(f"{short(n)} {v}" for n, v in zip((memory, compute), speeds, strict=True))
        style, colour = ROOFS[number % len(ROOFS)], ROOF_INKS[number % len(ROOF_INKS)]
        ax.plot(xs, ys, color=colour, linewidth=1.4, linestyle=style, label=label)
        # On the slope, each a bit further up, so that names of adjacent roofs do not overlap.
        at = min(max(ridge / 10 ** (0.25 + 0.35 * (number % 3)), 5 * low), ridge)
        ax.annotate(
            short(memory, NAME // 2), (at, at * slope), xytext=(-4, 3), textcoords="offset points",
            fontsize=7, color=colour, ha="right", va="bottom", clip_on=True,
        )  # fmt: skip
    stacks = _stacks(points)
    for number, stack in enumerate(stacks):
        p = stack[0]
        colour, marker = SHADES[number % len(SHADES)], MARKERS[number % len(MARKERS)]
        # Those that are nearly at one place: earlier ones stay visible behind later, smaller ones.
        size = 7 + 5 * (len(stacks) - 1 - number) / max(len(stacks) - 1, 1)
        label = _point_note(stack) if number < LISTED else ""
        at = per * p.intensity
        ax.plot([at], [p.achieved], marker, color=colour, markersize=size, linestyle="", label=label)
    ax.set_xscale("log")
    ax.set_yscale("log")
    reached = [v for p in points for v in (p.peak, p.achieved) if _finite(v)]
    ax.set_ylim(min(reached) / 20, max(reached) * 5)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_formatter(NullFormatter())  # over few decades these would run into each other
    prefixed(ax, "op/s", "y")
    ax.set_xlabel(f"operations per {data_unit()[:-1]} moved at the outermost memory in use ({unit})")
    ax.set_ylabel("operations per second (op/s)")
    if len(stacks) > LISTED:
        more = sum(len(stack) for stack in stacks[LISTED:])
        ax.plot([], [], linestyle="", label=f"... {more} more Einsums")
    ax.set_title(title, fontsize=10)
    ax.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, labelspacing=0.9)
    return ax


def _roofs(points: Sequence[RooflinePoint]) -> list[tuple[str, str, float, float]]:
    """The roofs over some points, in order: memory, compute unit, bits/s and operations/s. Those that differ
    by the rounding of quotients alone are one."""
    result: dict[tuple[str, ...], tuple[str, str, float, float]] = {}
    for p in points:
        key = p.memory, p.compute, f"{p.bandwidth:.9g}", f"{p.peak:.9g}"
        result.setdefault(key, (p.memory, p.compute, p.bandwidth, p.peak))
    return list(result.values())


def _stacks(points: Sequence[RooflinePoint]) -> list[list[RooflinePoint]]:
    """Group points that would hide each other and have the same limit: one marker represents them."""
    result: dict[tuple[object, ...], list[RooflinePoint]] = {}
    for p in points:
        place = (round(math.log10(v), 1) for v in (p.intensity, p.achieved))
        result.setdefault((*place, p.limiting, p.memory), []).append(p)
    return list(result.values())


def _point_note(stack: Sequence[RooflinePoint]) -> str:
    """Name the Einsums at a point, and what limits them, even if that limit is not part of the roof."""
    p = stack[0]
    names = ", ".join(short(q.einsum, NAME if len(stack) == 1 else NAME // 2) for q in stack[:SIDE_BY_SIDE])
    more = f" and {len(stack) - SIDE_BY_SIDE} more" if len(stack) > SIDE_BY_SIDE else ""
    roof = p.limiting in (p.memory, p.compute) or p.achieved > 0.99 * p.attainable
    under = "" if roof else ", under its roof"
    return f"{names}{more}: {short(p.limiting)}{under}"


def _finite(value: float) -> bool:
    return 0 < value < math.inf
