"""Ski slopes: traffic over buffer capacity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def slope_axes(
    curves: Mapping[str, Sequence[tuple[int, int]]],
    unit: str,
    least: int | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Steps (capacity, accesses) per curve on logarithmic axes; `least`: traffic at unlimited capacity."""
    import matplotlib.pyplot as plt

    if ax is None:
        _, ax = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    reach = max(c for curve in curves.values() for c, _ in curve)
    for name, curve in curves.items():
        # The last step runs on: more capacity saves nothing.
        steps = [*curve, (2 * reach, curve[-1][1])]
        ax.step(*zip(*steps, strict=True), where="post", label=name, linewidth=1.8)
    if least is not None:
        ax.axhline(least, color="0.5", linestyle=":", linewidth=1.2, label="every element once")
    if min(c for curve in curves.values() for c, _ in curve) < 1:
        ax.set_xscale("symlog", base=2)
        ax.set_xlim(left=0)
    else:
        ax.set_xscale("log", base=2)
    ax.set_yscale("log", base=2)
    ax.set_xlabel(f"buffer capacity ({unit})")
    ax.set_ylabel(f"backing-store accesses ({unit})")
    ax.set_title("Least traffic for each buffer capacity", fontsize=10)
    ax.grid(True, which="major", color="0.9")
    ax.legend(frameon=False)
    return ax
