"""Points of a co-design as a picture, each machine named once, and the effect of a symbol."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING

from polymodel.objectives import unit_of
from polymodel.quantities import axis_unit
from polymodel.view.figures import axes, tick

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

NAMED = 12  # values of a symbol that have ticks of their own
MACHINES = 24  # machines that have their names in the picture
WIDE = 16  # values of a symbol that lie so far apart are drawn on a logarithmic axis
MOST_MM2 = 1e-3  # areas up to here (m^2) are drawn in mm^2
BEST, OTHER = "#2563a8", "0.7"
FONT = 9.0  # points
# Possible offsets of a name from its point, in points, the nearest first, with the alignment of the text.
PLACES = tuple(
    (dx * far, dy * far, side)
    for far in (1, 2.5, 4.5, 7)
    for dx, dy, side in (
        (5, 4, "left"),
        (5, -4, "left"),
        (-5, 4, "right"),
        (-5, -4, "right"),
        (0, 7, "center"),
    )
)
Box = tuple[float, float, float, float]  # left, bottom, right, top in points
Named = tuple[str, tuple[float, float]]  # a machine, and where it is


def machine_axes(
    points: Sequence[tuple[str, Mapping[str, float]]],
    across: str,
    up: str,
    title: str,
    ax: Axes | None,
    links: Sequence[str] = (),
) -> Axes:
    """Points, each the name of its machine and its figures, over two of these figures. Nondominated points
    are joined by steps and labelled with their machines; other points are labelled if there is room. `links`:
    the target of each point's link on a page."""
    ax = axes(ax, 7.0, 4.4)
    small = max(figures["area"] for _, figures in points) < MOST_MM2
    scales = {n: 1e6 if n == "area" and small else 1.0 for n in (across, up)}
    where = [(f[across] * scales[across], f[up] * scales[up]) for _, f in points]
    order = sorted(range(len(points)), key=where.__getitem__)
    placed = [(points[i][0], where[i]) for i in order]
    best = [i for i, _ in _staircase([at for _, at in placed])]
    others = [i for i in range(len(placed)) if i not in {*best}]
    for some, colour, label, on_top in (
        (best, BEST, "best in these two figures", 3),
        (others, OTHER, "others", 2),
    ):
        if some:
            xs, ys = zip(*(placed[i][1] for i in some), strict=True)
            drawn = ax.scatter(xs, ys, s=25, color=colour, label=label, zorder=on_top)
            if links:
                drawn.set_urls([links[order[i]] for i in some])
            if some is best:
                ax.step(xs, ys, where="post", color=BEST, linewidth=0.8, zorder=1.5)
    for figure, axis in ((across, ax.xaxis), (up, ax.yaxis)):
        _labelled(axis, figure, "mm^2" if small else "m^2")
    ax.grid(True, color="0.92")
    ax.set_axisbelow(True)
    ax.margins(0.2, 0.12)
    ax.autoscale_view()
    ax.set_xlim(left=max(ax.get_xlim()[0], 0.0))  # no figure of a machine is below 0
    ax.set_ylim(bottom=max(ax.get_ylim()[0], 0.0))
    _name(ax, [placed[i] for i in best], [placed[i] for i in others])
    if others:
        ax.legend(fontsize=FONT)
    ax.set_title(title, fontsize=10)
    return ax


def _staircase(points: Sequence[tuple[float, float]]) -> Iterator[tuple[int, tuple[float, float]]]:
    """Return, of points in order, those that are lower than all points before them, with their positions."""
    lowest = inf
    for i, (x, y) in enumerate(points):
        if y < lowest:
            lowest = y
            yield i, (x, y)


def _name(ax: Axes, best: Sequence[Named], others: Sequence[Named]) -> None:
    """Names of machines beside their first point, where they hide no point and no other name, and cross no
    step where there is room beside it. Names of nondominated points are always drawn, with a line to the
    point if the name is far from it."""
    scale = 72.0 / ax.figure.dpi
    width, height = (n * scale for n in ax.bbox.size)
    at = {p: _in_points(ax, p, scale) for _, p in (*best, *others)}
    taken: list[Box] = [(x - 3, y - 3, x + 3, y + 3) for x, y in at.values()]
    steps = [*_steps([at[p] for _, p in best])]
    named: set[str] = set()
    for must, some in ((True, best), (False, others)):
        for name, point in some:
            if name in named or len(named) >= MACHINES:
                continue
            wide = 0.56 * FONT * len(name)
            boxes = ((_box(at[point], place, wide), place) for place in PLACES)
            inside = ((b, p) for b, p in boxes if b[0] > 0 and b[1] > 0 and b[2] < width and b[3] < height)
            free = [(b, p) for b, p in inside if not any(_meet(b, t) for t in taken)]
            clear = ((b, p) for b, p in free if not any(_meet(b, s) for s in steps))
            found = next(clear, next(iter(free), None))
            far = found is not None and abs(found[1][1]) > 8
            if found is None and must:
                found = _box(at[point], PLACES[0], wide), PLACES[0]
            if found is None or (far and not must):
                continue
            box, (dx, dy, side) = found
            taken.append(box)
            named.add(name)
            line = {"arrowstyle": "-", "color": "0.6", "linewidth": 0.5} if far else None
            ax.annotate(
                name, point, xytext=(dx, dy), textcoords="offset points", fontsize=FONT, ha=side,
                va="bottom" if dy > 0 else "top", color="black" if must else "0.45", arrowprops=line,
            )  # fmt: skip


def _steps(best: Sequence[tuple[float, float]]) -> Iterator[Box]:
    """The steps from each of the best points to the next: along, then down."""
    for (x, y), (next_x, next_y) in pairwise(best):
        yield x, y, next_x, y
        yield next_x, next_y, next_x, y


def _in_points(ax: Axes, point: tuple[float, float], scale: float) -> tuple[float, float]:
    """Return the position of a point within its axes, in points (1/72 inch)."""
    x, y = ax.transData.transform(point) - ax.bbox.min
    return float(x) * scale, float(y) * scale


def _box(at: tuple[float, float], place: tuple[float, float, str], wide: float) -> Box:
    """Return the box that a name occupies at one of its possible positions."""
    dx, dy, side = place
    left = at[0] + dx - {"left": 0.0, "center": wide / 2, "right": wide}[side]
    bottom = at[1] + dy - (0.0 if dy > 0 else FONT)
    return left - 2, bottom, left + wide + 2, bottom + FONT


def _meet(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


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
