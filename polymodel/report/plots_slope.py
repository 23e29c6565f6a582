"""Ski slopes: traffic over buffer capacity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from polymodel.report.plots import INK
from polymodel.report.plots_sweep import COLOURS
from polymodel.view.figures import axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
    """What all slopes have in common."""
    ax.set_yscale("log", base=2)
    ax.set_xlabel(f"buffer capacity ({unit})")
    ax.set_ylabel(f"backing-store accesses ({unit})")
    ax.set_title(title, fontsize=10)
    ax.grid(True, which="major", color="0.9")


# Where curves run on each other a dark dashed one lies on a light one: told apart in grey, too.
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
