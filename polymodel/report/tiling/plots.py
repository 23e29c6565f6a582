"""Pictures of tilings: the matrix with its tiles, several tilers next to each other, bars of the costs.

The colours can be distinguished by colour-blind readers and in grey: blue for entries, vermilion for borders
of tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from textwrap import fill
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from polymodel.errors import Diagnostic, SpecError
from polymodel.frozen import dataclass
from polymodel.quantities import engineering
from polymodel.report.plots import INK, SHADES, WARNING, prefixed
from polymodel.report.tiling.tables import UNITS, room
from polymodel.spec.faults import plainly
from polymodel.tiling.plane.pattern import Flags, Ints, Pattern, Rects
from polymodel.view.figures import axes, new_panels, whole_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    from polymodel.report.tiling.matmul import MatmulTiling
    from polymodel.report.tiling.tune import Tuning
    from polymodel.tiling.cost.model import CutCosts
    from polymodel.tiling.estimate import Estimate
    from polymodel.tiling.matmul.search import TilingCandidate

BINS = 400  # cells of entries along an axis: about a pixel and a half each at the size of a new figure
_MOST_BINS = 4000
_COUNTS = ("#8ec1e8", "#2563a8", "#0a1f44")  # one entry is seen on white
BORDER = "#d55e00"
EMPTY = "#e3e3e3"
CHOSEN, OTHER = "#2563a8", "#a9c8e6"
_INCHES = 5.0  # of the longer side of the matrix in a new figure
_SMALL = 2.6  # inches, of one of several pictures
_FEW = 3.4  # where no more than three stand in a row
_STRETCHED = 4  # times longer than wide: from there on the picture does not keep the shape
_VECTORS = 3000  # borders; more are drawn as pixels, else an SVG gets too large to open
_HATCHED = 400  # empty tiles; more are only shaded
_WIDE = (0.35, 1.1)  # points, of borders
_COVERED = 0.25  # of the picture, by borders close to each other
_TINT = 1.5  # points between borders; closer ones run into a tint


@dataclass(frozen=True, eq=False)
class TilingPicture:
    """The content of a picture of tiles. `launched`, `fits`: one flag per tile. `title`: above it."""

    pattern: Pattern
    rects: Rects
    launched: Flags
    fits: Flags
    title: str


def plot_tiles(found: TilingPicture, *, bins: int = BINS, ax: Axes | None = None) -> Axes:
    """The places that A or B holds, how many per cell (logarithmic shades), and the borders of all tiles.

    Tiles that are not launched are grey, those that do not fit red. SpecError for bins outside 1 to 4,000.
    """
    bins = plainly(bins)
    if isinstance(bins, bool) or not isinstance(bins, int) or not 0 < bins <= _MOST_BINS:
        message = f"{bins!r} bins are not drawn"
        remedy = f"give 1 to {_MOST_BINS:,}, e.g. {BINS}"
        raise SpecError([Diagnostic(message, remedy, code="not-positive-integer")])
    inches = _plane(*found.pattern.shape, _INCHES)
    made = axes(ax, max(inches[0], 3.4) + 1.7, max(inches[1], 1.2) + 1.3)
    most, steps, apart = _draw(found, bins, made, inches, hatched=True)
    if ax is None:
        _scale(made, most, steps)
        _legend(_legend_patches([found], apart), made)
    return made


def _draw(
    found: TilingPicture, bins: int, ax: Axes, inches: tuple[float, float], *, hatched: bool
) -> tuple[int, tuple[int, int], float]:
    """All but scale and legend. `inches`: of the plane, wide and high, for which borders are chosen.

    Gives what `_entries` gives, and how far apart borders mostly are, in points.
    """
    most, steps = _entries(found.pattern, bins, ax)
    _shaded(found, ax, hatched)
    apart = _borders(found.rects, found.pattern.shape, ax, inches)
    _frame(found, ax)
    return most, steps, apart


def plot_tilers(found: Sequence[TilingPicture], *, bins: int = BINS // 2) -> Figure:
    """Several tilings of one matrix as small multiples, up to four in a row."""
    if not found:
        message = "no tiling is given to draw"
        raise SpecError([Diagnostic(message, "name at least one tiler", code="missing-argument")])
    across = 3 if len(found) in (5, 6, 9) else min(4, len(found))
    down = -(-len(found) // across)
    inches = _plane(*found[0].pattern.shape, _FEW if across < 4 else _SMALL)
    figure = new_panels(across * max(2.2, inches[0] + 0.5), down * (max(0.6, inches[1]) + 1.15))
    grid = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    apart = inf
    for ax, one in zip(grid.flat, found, strict=False):
        apart = min(apart, _draw(one, bins, ax, inches, hatched=False)[2])
        ax.set_title(one.title, fontsize=8)
        ax.label_outer()
    for ax, above in zip(list(grid.flat)[len(found) :], list(grid.flat)[len(found) - across :], strict=False):
        ax.set_axis_off()
        above.tick_params(labelbottom=True)  # the lowest of its column
        above.set_xlabel(grid[-1, 0].get_xlabel())
    _legend(_legend_patches(found, apart), grid.flat[0])
    # Axes of a fixed shape have their final size after one pass only, which the next one makes room around.
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
    return figure


def _plane(rows: int, columns: int, longer: float) -> tuple[float, float]:
    """Return width and height of the plane in inches: in its own proportions, unless it would become a
    line."""
    if max(rows, columns) <= _STRETCHED * min(rows, columns):
        return longer * columns / max(rows, columns), longer * rows / max(rows, columns)
    return (longer / 2, longer) if columns < rows else (longer, longer / 3)


def _entries(pattern: Pattern, bins: int, ax: Axes) -> tuple[int, tuple[int, int]]:
    """Draw the entries; return the most entries of a cell and the size of a cell in coordinates."""
    from matplotlib.colors import LinearSegmentedColormap, LogNorm

    counts, steps = cells(pattern, bins)
    most = int(counts.max(initial=0))
    shape = counts.shape[0] * steps[0], counts.shape[1] * steps[1]
    rows, columns = pattern.shape
    ax.imshow(
        np.ma.masked_equal(counts, 0), extent=(0, shape[1], shape[0], 0), interpolation="nearest",
        cmap=LinearSegmentedColormap.from_list("counts", _COUNTS), norm=LogNorm(1, max(most, 2)), zorder=1,
        aspect="equal" if max(rows, columns) <= _STRETCHED * min(rows, columns) else "auto",
    )  # fmt: skip
    return most, steps


def cells(pattern: Pattern, bins: int) -> tuple[Ints, tuple[int, int]]:
    """Return the number of entries per cell of equal size, at most bins x bins of them, and that size in
    coordinates."""
    rows, columns = (-(-s // bins) for s in pattern.shape)
    shape = -(-pattern.shape[0] // rows), -(-pattern.shape[1] // columns)
    at = pattern.rows // rows
    at *= shape[1]  # at most bins x bins: whatever holds a coordinate holds it
    at += pattern.cols // columns
    result: Ints = np.bincount(at, minlength=shape[0] * shape[1]).reshape(shape)
    return result, (rows, columns)


def _shaded(found: TilingPicture, ax: Axes, hatched: bool) -> None:
    """Shade tiles that are not launched, and tiles that do not fit."""
    from matplotlib.collections import PolyCollection

    idle = joined(found.rects.taken(~found.launched))
    if idle.tiles:
        few = hatched and idle.tiles <= _HATCHED
        ax.add_collection(
            PolyCollection(
                list(_corners(idle)), facecolor=EMPTY if not few else "#f1f1f1", edgecolor="#c4c4c4",
                linewidth=0.0, hatch="///" if few else None, zorder=0.5, rasterized=not few,
            )
        )  # fmt: skip
    over = found.rects.taken(~found.fits)
    if over.tiles:
        ax.add_collection(
            PolyCollection(
                list(_corners(over)), facecolor=WARNING, edgecolor=WARNING, alpha=0.3, linewidth=1.5, zorder=3
            )
        )


def joined(rects: Rects) -> Rects:
    """Merge adjacent rectangles of equal first row and height: fewer to draw, the same picture."""
    if not rects.tiles:
        return rects
    order = np.lexsort((rects.col, rects.height, rects.row))
    r = rects.taken(order)
    new = np.ones(r.tiles, dtype=np.bool_)
    touching = r.col[1:] == r.col[:-1] + r.width[:-1]
    new[1:] = (r.row[1:] != r.row[:-1]) | (r.height[1:] != r.height[:-1]) | ~touching
    starts = np.flatnonzero(new)
    width: Ints = np.add.reduceat(r.width, starts)
    return Rects(r.row[starts], r.col[starts], r.height[starts], width)


def _corners(rects: Rects) -> NDArray[np.int64]:
    """Return the corners, tiles x 4 x (x, y)."""
    left, right = rects.col, rects.col + rects.width
    top, bottom = rects.row, rects.row + rects.height
    x, y = np.stack([left, right, right, left], axis=1), np.stack([top, top, bottom, bottom], axis=1)
    return np.stack([x, y], axis=2)


def segments(rects: Rects) -> tuple[NDArray[np.int64], Ints]:
    """The borders between tiles, segments x 2 ends x (x, y), and how far the next border is (in places).

    Only upper and left edges: in a partition every other edge is one of these, or on the outside. Those in
    one line that touch are one.
    """
    across, below = _lines(rects.row, rects.col, rects.width, rects.height)
    down, right = _lines(rects.col, rects.row, rects.height, rects.width)
    parts = [np.stack([across[:, [1, 0]], across[:, [2, 0]]], axis=1),
             np.stack([down[:, [0, 1]], down[:, [0, 2]]], axis=1)]  # fmt: skip
    result: NDArray[np.int64] = np.concatenate(parts)
    return result, np.concatenate([below, right])


def _lines(at: Ints, first: Ints, length: Ints, behind: Ints) -> tuple[NDArray[np.int64], Ints]:
    """Join the edges on the lines `at`; return the inner ones, and the greatest distance behind each."""
    inside = np.flatnonzero(at > 0)
    order = inside[np.lexsort((first[inside], at[inside]))]
    if not order.size:
        return np.zeros((0, 3), dtype=np.int64), order
    at, first, last, behind = at[order], first[order], (first + length)[order], behind[order]
    new = np.ones(at.size, dtype=np.bool_)
    new[1:] = (at[1:] != at[:-1]) | (first[1:] != last[:-1])
    starts = np.flatnonzero(new)
    ends = np.append(starts[1:] - 1, at.size - 1)
    return np.stack([at[starts], first[starts], last[ends]], axis=1), np.maximum.reduceat(behind, starts)


def _borders(rects: Rects, shape: tuple[int, int], ax: Axes, inches: tuple[float, float]) -> float:
    from matplotlib.collections import LineCollection
    from matplotlib.colors import to_rgba

    drawn, gaps = segments(rects)
    if not len(drawn):
        return inf
    wide, high = 72 * inches[0] / shape[1], 72 * inches[1] / shape[0]  # points of a place
    level = drawn[:, 0, 1] == drawn[:, 1, 1]
    spans = np.where(level, wide, high) * np.abs(drawn[:, 1] - drawn[:, 0]).sum(axis=1)
    apart: NDArray[np.float64] = np.where(level, high, wide) * gaps
    widths, opaque = strokes(spans, apart)
    colours = np.tile(to_rgba(BORDER), (len(drawn), 1))
    colours[:, 3] = opaque
    many = len(drawn) > _VECTORS
    lines = LineCollection(
        list(drawn), colors=colours, linewidths=widths.tolist(), zorder=2, rasterized=many, capstyle="butt"
    )
    ax.add_collection(lines)
    return float(np.median(apart))


def strokes(
    spans: NDArray[np.float64], gaps: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Width and opacity of borders of these lengths, with the next border at that distance; all in points.

    A border takes a tenth of the tile behind it. Where tiles are hardly larger than a pixel, all borders
    together would hide what they divide: they fade to a tint, which is seen on any screen.
    """
    widths = np.clip(np.minimum(spans, gaps) / 10, *_WIDE)
    return widths, np.minimum(np.clip(spans / 18, 0.3, 0.95), np.clip(_COVERED * gaps / widths, 0.05, 0.95))


def _frame(found: TilingPicture, ax: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    rows, columns = found.pattern.shape
    ax.set_xlim(0, columns)
    ax.set_ylim(rows, 0)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(5, integer=True))
    for which in ("x", "y"):
        prefixed(ax, "", which)
    if rows == 1:
        ax.set_yticks([0.5], ["0"])
    if columns == 1:
        ax.set_xticks([0.5], ["0"])
    ax.set_xlabel(f"{found.pattern.ranks[1]} (coordinate)")
    ax.set_ylabel(f"{found.pattern.ranks[0]} (coordinate)")
    ax.set_title(found.title, fontsize=9)


def _scale(ax: Axes, most: int, steps: tuple[int, int]) -> None:
    """Draw the scale of the colours, if there is more than one."""
    figure = whole_figure(ax)
    if most < 2 or figure is None:
        return
    cell = f"per cell of {steps[0]:,} x {steps[1]:,}" if steps != (1, 1) else "per place"
    bar = figure.colorbar(ax.images[0], ax=ax, shrink=0.85, label=f"places of A or B {cell}")
    bar.minorticks_off()
    decades = [10**k for k in range(len(str(most))) if 10**k <= most / 2]
    bar.set_ticks([*decades, most], labels=[f"{n:,}" for n in (*decades, most)])


def _legend_patches(found: Sequence[TilingPicture], apart: float) -> list[Patch]:
    """Return legend entries for grey, red and tinted areas, where they occur; for a single tiling with the
    number of tiles."""
    from matplotlib.patches import Patch

    def counted(many: int) -> str:
        return f" ({many:,} tile{'s' if many > 1 else ''})" if len(found) == 1 else ""

    handles = []
    idle = sum(int((~t.launched).sum()) for t in found)
    over = sum(int((~t.fits).sum()) for t in found)
    if idle:
        handles.append(Patch(facecolor=EMPTY, edgecolor="#c4c4c4", label=f"not launched{counted(idle)}"))
    if over:
        handles.append(Patch(facecolor=WARNING, alpha=0.4, label=f"does not fit{counted(over)}"))
    if apart < _TINT:
        handles.append(Patch(facecolor=BORDER, alpha=0.15, label="tiles thinner than lines can show"))
    return handles


def _legend(handles: Sequence[Patch], ax: Axes) -> None:
    figure = whole_figure(ax)
    if handles and figure is not None:
        # Outside of the axes and of the scale: the layout makes room for it.
        figure.legend(handles=list(handles), loc="outside lower center", ncols=2, fontsize=8, frameon=False)


@dataclass(frozen=True)
class TilerBar:
    """One tiler among others. Reduction and speed-up are relative to another tiler, and None for that
    tiler."""

    tiler: str
    kernels: int
    config_cycles: int
    run_cycles: int
    reduction: float | None
    speedup: float | None
    chosen: bool = False


def plot_bars(bars: Sequence[TilerBar], *, bound: int, against: str, title: str) -> Figure:
    """Kernels, configuration and run cycles per tiler; the bound as a line in the first.

    Behind the bars stand kernels over the bound, the change of configuration time and the speed-up against
    the tiler `against`.
    """
    if not bars:
        message = "no tiler is given to compare"
        raise SpecError([Diagnostic(message, "name at least one", code="missing-argument")])
    figure = new_panels(11, 1.9 + 0.32 * len(bars))
    axes = figure.subplots(1, 3, sharey=True)
    places = list(range(len(bars)))
    colours = [CHOSEN if b.chosen else OTHER for b in bars]
    panels = (
        ("kernels launched", [b.kernels for b in bars],
         [_times(b.kernels / bound, "bound") if bound else f"{b.kernels:,}" for b in bars]),
        ("configuration (cycles)", [b.config_cycles for b in bars],
         ["" if b.reduction is None else f"{-100 * b.reduction + 0.0:+.1f} %" for b in bars]),
        ("run (cycles)", [b.run_cycles for b in bars],
         ["" if b.speedup is None else _faster(b.speedup) for b in bars]),
    )  # fmt: skip
    for ax, (label, values, told) in zip(axes, panels, strict=True):
        ax.barh(places, values, height=0.72, color=colours)
        for place, value, text in zip(places, values, told, strict=True):
            ax.annotate(text, (value, place), xytext=(3, 0), textcoords="offset points", va="center",
                        fontsize=8, color=INK)  # fmt: skip
        ax.set_xlim(0, 1.34 * max(*values, 1))
        prefixed(ax, "", "x")
        ax.set_xlabel(label)
        ax.spines[["top", "right"]].set_visible(False)
    if bound:
        axes[0].axvline(bound, color=BORDER, linewidth=1.3, linestyle="--")
        axes[0].annotate(f"bound {bound:,}", (bound, 1.0), xycoords=("data", "axes fraction"), xytext=(2, 1),
                         textcoords="offset points", fontsize=8, color=BORDER, va="bottom")  # fmt: skip
    axes[0].set_yticks(places, [b.tiler for b in bars], fontsize=9)
    axes[0].invert_yaxis()
    figure.suptitle(f"{title}\nchanges against {against}", fontsize=10)
    return figure


def _times(ratio: float, what: str) -> str:
    return f"{ratio:.2f} x {what}"


def _faster(speedup: float) -> str:
    """Return a speed-up in words that are true above and below one."""
    return f"{speedup:.2f} x faster" if speedup >= 0.995 else f"{1 / speedup:.2f} x slower"


_PARTS = ("A read", "B read", "Z read", "Z write")


def plot_orders(tiling: MatmulTiling, *, ax: Axes | None = None) -> Axes:
    """Draw the words of each loop order under the best tiles; the line is the least number of words that any
    order moves."""
    table = tiling.table("orders")
    names = [str(x) for x in table.column("order")]
    parts = [[float(x or 0) for x in table.column(f"{p.replace(' ', '_')}_words")] for p in _PARTS]
    title = f"{tiling.product.name} times {tiling.product.second}, {tiling.best.strategy}: {tiling.best.tile}"
    return _stacked(names, parts, tiling.compulsory_words, title, "order of the loops, outermost first", ax)


def plot_strategies(tiling: MatmulTiling, *, ax: Axes | None = None) -> Axes:
    """Draw the words of the best candidate of each strategy, with its modelled cycles above the bar."""
    best: dict[str, TilingCandidate] = {}
    for candidate in tiling.found:
        best.setdefault(candidate.strategy, candidate)
    traffic = [c.traffic for c in best.values()]
    parts = [[float(getattr(t, p.lower().replace(" ", "_"))) for t in traffic] for p in _PARTS]
    names = [
        f"{c.strategy}\n{fill(f'{c.tile}, {c.traffic.order}', 18)}" + "\nexceeds its buffers" * (not c.fits)
        for c in best.values()
    ]
    title = f"{tiling.product.name} times {tiling.product.second}: the best of each strategy"
    ax = _stacked(names, parts, tiling.compulsory_words, title, "strategy", ax)
    for x, c in enumerate(best.values()):
        ax.annotate(
            f"{engineering(c.cycles)} cycles", (x, c.traffic.words), xytext=(0, 3),
            textcoords="offset points", ha="center", fontsize=8, color=INK,
        )  # fmt: skip
    return ax


def _stacked(
    names: Sequence[str],
    parts: Sequence[Sequence[float]],
    least: int,
    title: str,
    below: str,
    ax: Axes | None,
) -> Axes:
    ax = axes(ax, max(5.5, 1.5 + 1.5 * len(names)), 4.2)
    floor = [0.0] * len(names)
    for number, (label, heights) in enumerate(zip(_PARTS, parts, strict=True)):
        ax.bar(range(len(names)), heights, 0.6, bottom=floor, color=SHADES[number % len(SHADES)], label=label)
        floor = [low + high for low, high in zip(floor, heights, strict=True)]
    ax.axhline(least, color=INK, linewidth=1.0, linestyle="--", label="what is used, once")
    ax.set_xticks(range(len(names)), names, fontsize=8)
    ax.set_xlabel(below)
    ax.set_ylabel("words moved")
    ax.set_ylim(0, 1.12 * max([*floor, least, 1]))
    prefixed(ax, "", "y")
    ax.set_title(title, fontsize=10)
    line, *stack = zip(*ax.get_legend_handles_labels(), strict=True)
    drawn = [line, *reversed(stack)]  # as they are stacked
    ax.legend(
        *zip(*drawn, strict=True), fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False
    )
    return ax


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
    def actual(self) -> CutCosts | None: ...


def plot_estimates(
    found: Sequence[_Foretold], quantity: str = "tiles", *, task: str = "", ax: Axes | None = None
) -> Axes:
    """Bars tiler by tiler: the actual figure of the data, where there are data, then that of each model.

    `task`: what is done in tiles of which size, for the title. SpecError for a quantity that is none.
    """
    if quantity not in QUANTITIES:
        message = f"no quantity {quantity!r}"
        raise SpecError([Diagnostic(message, f"one of {', '.join(QUANTITIES)}", code="unknown-name")])
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
