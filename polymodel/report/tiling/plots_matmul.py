"""Plots of tiled multiplications: words moved, stacked by tensor, per order and per strategy."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING

from polymodel.quantities import engineering
from polymodel.report.plots import INK, SHADES, prefixed
from polymodel.view.figures import axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from polymodel.report.tiling.matmul import MatmulTiling
    from polymodel.tiling.matmul.search import Candidate

_PARTS = ("A read", "B read", "Z read", "Z write")


def plot_orders(tiling: MatmulTiling, *, ax: Axes | None = None) -> Axes:
    """Words per order of the loops, under the best tiles; the line is what must move in any case."""
    table = tiling.table("orders")
    names = [str(x) for x in table.column("order")]
    parts = [[float(x or 0) for x in table.column(f"{p.replace(' ', '_')}_words")] for p in _PARTS]
    title = f"{tiling.product.name} times {tiling.product.second}, {tiling.best.strategy}: {tiling.best.tile}"
    return _stacked(names, parts, tiling.compulsory_words, title, "order of the loops, outermost first", ax)


def plot_strategies(tiling: MatmulTiling, *, ax: Axes | None = None) -> Axes:
    """Words of the best candidate of each strategy; above each bar its modelled cycles."""
    best: dict[str, Candidate] = {}
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
