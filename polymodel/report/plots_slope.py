"""Ski slopes: traffic over buffer capacity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from polymodel.errors import Diagnostic, SpecError
from polymodel.governor import look
from polymodel.report.plots import INK
from polymodel.report.plots_sweep import COLOURS
from polymodel.view.figures import axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from polymodel.report.minimum import Minimum

POINTS = 33  # of a curve of least values
DASHES = ("-", "--", "-.", ":")


def slope_axes(
    curves: Mapping[str, Sequence[tuple[int, int]]],
    unit: str,
    least: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Steps (capacity, accesses) per curve on logarithmic axes; `least`: traffic at unlimited capacity."""
    ax = axes(ax, 6.4, 4.2)
    reach = max(c for curve in curves.values() for c, _ in curve)
    before = sum(line.get_drawstyle() == "steps-post" for line in ax.lines)
    for number, (name, curve) in enumerate(curves.items(), before):
        # The last step runs on: more capacity saves nothing.
        steps = [*curve, (2 * reach, curve[-1][1])]
        (line,) = ax.step(
            *zip(*steps, strict=True), where="post", label=name, linewidth=1.8,
            color=COLOURS[number % len(COLOURS)], linestyle=DASHES[number % len(DASHES)],
        )  # fmt: skip
        label = f"maximal effectual buffer: {curve[-1][0]:,}"
        ax.plot(*curve[-1], "o", color=line.get_color(), markersize=5, label=label)
    label = f"every element once: {least:,}" if least is not None else ""
    # Curves of one Einsum share their floor: it is drawn, and named, once.
    if least is not None and label not in (line.get_label() for line in ax.lines):
        ax.axhline(least, color="0.5", linestyle=":", linewidth=1.2, label=label)
    if min(c for curve in curves.values() for c, _ in curve) < 1 or ax.get_xscale() == "symlog":
        ax.set_xscale("symlog", base=2)
        ax.set_xlim(left=0)
    else:
        ax.set_xscale("log", base=2)
    _labelled(ax, unit, "Least traffic for each buffer capacity")
    ax.legend(frameon=False)
    return ax


def _labelled(ax: Axes, unit: str, title: str) -> None:
    """Set the labels and scales that all slopes share."""
    ax.set_yscale("log", base=2)
    ax.set_xlabel(f"buffer capacity ({unit})")
    ax.set_ylabel(f"backing-store accesses ({unit})")
    ax.set_title(title, fontsize=10)
    ax.grid(True, which="major", color="0.9")


def least_axes(
    least: Minimum,
    symbol: str,
    low: float,
    high: float,
    *,
    name: str = "value",
    ax: Axes | None = None,
    **values: float,
) -> Axes:
    """A least value while one symbol, such as the capacity, runs from `low` to `high`, on logarithmic axes.

    `values`: a number for each of the other symbols; `name`: what is least, with its unit. Each point is that
    of `least.numbers`, and so holds where the formula itself does not; where no tiles fit there is none.
    Raises SpecError for other names, for ends that are not 0 < low < high, and where nothing fits.
    """
    if not 0 < low < high:
        message, remedy = f"{symbol} from {low:g} to {high:g} is not a range", "give 0 < low < high"
        raise SpecError([Diagnostic(message, remedy, symbol, code="out-of-range")])
    points: list[tuple[float, float]] = []
    for i in range(POINTS):
        look()
        at = low * (high / low) ** (i / (POINTS - 1))
        try:
            points.append((at, float(least.numbers(**{symbol: at}, **values).value)))
        except SpecError as error:
            if i == POINTS - 1 or any(d.code != "out-of-range" for d in error.diagnostics):
                raise
    ax = axes(ax, 6.4, 4.2)
    number = len(ax.lines)
    ax.plot(
        *zip(*points, strict=True), color=COLOURS[number % len(COLOURS)],
        linestyle=DASHES[number % len(DASHES)], linewidth=1.6, label=f"least {name}",
    )  # fmt: skip
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel(symbol)
    ax.set_ylabel("" if number else f"least {name}")
    ax.set_title(f"Least {name} by {symbol}" if not number else f"Least values by {symbol}", fontsize=10)
    ax.grid(True, which="major", color="0.9")
    ax.legend(frameon=False, fontsize=8)
    return ax


# Where curves coincide, a dark dashed one lies on a light one, so that they differ in grey, too.
STYLES = {
    "unfused": ("#2563a8", "-"), "untiled_fused": ("#b45309", "--"), "tiled_fused": ("#74c69d", "-"),
    "ffmr_drop": ("#74c69d", "-"), "ffmr_retain": ("#7440a8", "--"), "best": ("#1f2933", ":"),
}  # fmt: skip


def chain_axes(
    curves: Mapping[str, Sequence[tuple[int, int]]],
    unit: str,
    least_unfused: int,
    least_fused: int,
    ax: Axes | None = None,
) -> Axes:
    """Curves of a chain: steps, the algorithmic minimum with and without intermediates, the maximal effectual
    buffer of each curve (dots) and, where `unfused` is among them, the gain of fusion."""
    ax = axes(ax, 7.2, 4.8)
    reach = 32 * max((c for curve in curves.values() for c, _ in curve), default=1)
    for name, curve in curves.items():
        steps = [*curve, (reach, curve[-1][1])]
        colour, style = STYLES.get(name.partition(" (")[0], (INK, "-"))
        ax.step(
            *zip(*steps, strict=True), where="post", label=f"{name}: {curve[-1][0]:,}", linewidth=1.8,
            color=colour, linestyle=style,
        )  # fmt: skip
        ax.plot(*curve[-1], "o", color=colour, markersize=5)
    for value, words in ((least_unfused, "minimum, unfused"), (least_fused, "minimum, fused")):
        ax.axhline(value, color="0.5", linestyle=":", linewidth=1.2)
        ax.annotate(
            f"{words}: {value:,}", (0.01, value), xycoords=("axes fraction", "data"), xytext=(0, -9),
            textcoords="offset points", fontsize=7.5, color="0.35",
        )  # fmt: skip
    ends = {name: curve[-1][1] for name, curve in curves.items()}
    if "unfused" in ends and min(ends.values()) < ends["unfused"]:
        _gain(ax, reach, ends["unfused"], min(ends.values()))
    ax.set_xscale("log", base=2)
    _labelled(ax, unit, "Least traffic of the chain for each buffer capacity")
    ax.legend(frameon=False, title="max. effectual buffer", alignment="left", fontsize=8, title_fontsize=8)
    return ax


def _gain(ax: Axes, reach: float, plain: int, fused: int) -> None:
    """An arrow from the least unfused traffic down to the least fused one, with the ratio."""
    at = reach / 4
    ax.annotate("", (at, fused), xytext=(at, plain), arrowprops={"arrowstyle": "->", "color": "black"})
    ax.annotate(
        f"fusion gain\n{plain / fused:.3f}x", (at, plain), xytext=(0, 5), textcoords="offset points",
        ha="center", va="bottom", fontsize=8,
    )  # fmt: skip
