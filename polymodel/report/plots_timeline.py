"""The contents of a memory over time: tensors stacked, the capacity, the peak, and the Einsum that runs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from polymodel.analysis.timeline import Timeline
from polymodel.integers import floats
from polymodel.quantities import data_unit, engineering
from polymodel.report.plots import INK, SHADES, WARNING, prefixed
from polymodel.report.timeline import MEANING, buffet_names
from polymodel.spec.files import whole
from polymodel.view.drawing import NAME, short
from polymodel.view.figures import axes, without_trace, write_figure

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

_STEPS = 2_000  # of more phases each step shows the largest of a few
_FEW = 300  # up to so many steps are outlined
_NAMED = 12  # more entries than that nobody tells apart
_LINES = 18  # of a legend, which is no taller than its plot
_FAR = 4  # a capacity this many times above the peak is told, not drawn


def timeline_axes(
    found: Timeline, capacity_bits: float, ax: Axes | None = None, *, steps: int = _STEPS
) -> Axes:
    """Bits per tensor as stacked steps over the phases, into `ax` or a new figure.

    Of more than `steps` phases each step shows the one of a few that holds most.
    """
    ax = axes(ax, 9, 4.5)
    ax.set_title(_title(found), fontsize=10, pad=18)
    if not found.buffets:
        ax.text(0.5, 0.5, "the mapping keeps nothing there", ha="center", transform=ax.transAxes)
        return ax
    shown = _chosen(found, steps)
    edges = np.append(np.linspace(0, len(found.total), len(shown), endpoint=False), len(found.total))
    below = np.zeros(len(shown))
    # What stays stands at the bottom, what comes and goes on top of it.
    steadiest = sorted(range(len(found.buffets)), key=lambda k: -float(found.bits[:, k].mean()))
    names = buffet_names(found)
    for k in steadiest:
        held = floats(found.bits[shown, k])
        if held.any():
            colour = SHADES[k % len(SHADES)]  # the same tensor has the same colour under every measure
            # Bands that change seldom have an edge of paper between them, for those who see greys.
            calm = np.count_nonzero(np.diff(held)) + np.count_nonzero(np.diff(below)) < _FEW
            ax.fill_between(
                edges, _closed(below), _closed(below + held), step="post", facecolor=colour,
                edgecolor="white", linewidth=0.6 if calm else 0, label=short(names[k], 2 * NAME),
            )  # fmt: skip
            below = below + held
    ax.step(edges, _closed(below), where="post", color=INK, linewidth=0.8 if len(shown) < _FEW else 0.3)
    _peak(found, capacity_bits, ax)
    _capacity(found, capacity_bits, ax)
    _running(found, shown, ax)
    ax.set_xlim(0, len(found.total))
    prefixed(ax, "bit", "y")
    few = -(-len(found.total) // len(shown))
    joined = f"; drawn is the largest of every {few}" if few > 1 else ""
    ax.set_xlabel(f"phase: one iteration of the innermost loop, in order of time{joined}")
    ax.set_ylabel(f"{short(found.component)}: {MEANING[found.measure]} ({data_unit()})")
    return ax


def save_picture(found: Timeline, capacity_bits: float, file: Path) -> None:
    """Save the timeline as a PNG file, without a window system."""
    without_trace()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.5), layout="constrained")
    timeline_axes(found, capacity_bits, figure.subplots())
    with whole(file) as fresh:
        write_figure(figure, fresh, 150)


def _title(found: Timeline) -> str:
    where = ", ".join(f"{short(name)} = {at}" for name, at in found.instance)
    return f"{short(found.component)}{f', instance {where}' if where else ''} over time ({found.measure})"


def _closed(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Extend the last step to the right edge."""
    return np.append(values, values[-1])


def _chosen(found: Timeline, steps: int) -> NDArray[np.int64]:
    """Return the phases to draw: all, or of each group of a few the one with the largest total."""
    count = len(found.total)
    if count <= steps:
        return np.arange(count)
    starts = np.unique(np.linspace(0, count, steps, endpoint=False).astype(np.int64))
    ends = np.append(starts[1:], count)
    return np.array(
        [s + int(np.argmax(found.total[s:e])) for s, e in zip(starts, ends, strict=True)], dtype=np.int64
    )


def _peak(found: Timeline, capacity_bits: float, ax: Axes) -> None:
    """A mark where most is held first; its text is below where the capacity is drawn right above."""
    at, bits = found.peak, int(found.total[found.peak])
    middle = at + 0.5
    ax.plot([middle], [float(bits)], "v", color=WARNING, markersize=7, clip_on=False, zorder=5)
    right = middle > 0.6 * len(found.total)
    under = bits < capacity_bits < 1.15 * bits
    ax.annotate(
        f"peak {engineering(bits, 'bit')} in phase {at}, {short(found.einsums[found.einsum[at]])}",
        (middle, float(bits)), xytext=(-6 if right else 6, -18 if under else 8), textcoords="offset points",
        fontsize=8, color=WARNING, ha="right" if right else "left",
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 1},
    )  # fmt: skip


def _capacity(found: Timeline, capacity_bits: float, ax: Axes) -> None:
    top = float(found.total.max())
    ax.set_ylim(0, 1.18 * max(top, 1.0))
    if math.isinf(capacity_bits):
        return
    text = f"capacity {engineering(capacity_bits, 'bit')}"
    if capacity_bits > _FAR * top:
        ax.text(
            0.995, 0.98, f"{text}, far above", ha="right", va="top", fontsize=8, color=INK,
            transform=ax.transAxes,
        )  # fmt: skip
        return
    ax.set_ylim(0, 1.18 * max(top, capacity_bits))
    ax.axhline(capacity_bits, color=INK, linewidth=1.6, linestyle="--")
    ax.annotate(
        text, (1.0, capacity_bits), xycoords=("axes fraction", "data"), xytext=(-4, 3),
        textcoords="offset points", ha="right", va="bottom", fontsize=8, color=INK,
    )  # fmt: skip


def _room(entries: list[tuple[Artist, str]], most: int, what: str = "more") -> list[tuple[Artist, str]]:
    """Return the first entries of a legend, as many as fit; the last line gives the number of the others."""
    from matplotlib.patches import Patch

    if len(entries) <= most:
        return entries
    return [*entries[: most - 1], (Patch(alpha=0), f"... {len(entries) - most + 1} {what}")]


def _running(found: Timeline, shown: NDArray[np.int64], ax: Axes) -> None:
    """Draw a strip above the plot that shows which Einsum runs, and the legend."""
    from matplotlib.patches import Patch

    greys = [str(0.25 + 0.6 * k / max(len(found.einsums) - 1, 1)) for k in range(len(found.einsums))]
    strip = ax.inset_axes((0.0, 1.015, 1.0, 0.04))
    # Areas, not an image: a page takes no picture from elsewhere, and counts data: as elsewhere.
    places = np.arange(len(shown) + 1)
    for k, grey in enumerate(greys):
        runs = _closed((found.einsum[shown] == k).astype(float))
        strip.fill_between(places, runs, step="post", color=grey, linewidth=0)
    strip.set_xlim(0, len(shown))
    strip.set_ylim(0, 1)
    strip.set_axis_off()
    # One legend for both: the tensors from the top of the stack down, then who runs. The stack begins with
    # the largest areas, which are the ones that must have a name.
    handles, labels = ax.get_legend_handles_labels()
    stack = [*zip(handles, labels, strict=True)]
    kept = _room(stack, _NAMED, "smaller ones")
    entries = kept[::-1] if len(stack) <= _NAMED else [*kept[-2::-1], kept[-1]]
    who: list[tuple[Artist, str]] = []
    who += [(Patch(color=g), short(e)) for g, e in zip(greys, found.einsums, strict=True)]
    entries += [(Patch(alpha=0), "runs (strip above)"), *_room(who, _LINES - len(entries))]
    ax.legend(
        [h for h, _ in entries], [t for _, t in entries], fontsize=8, loc="upper left",
        bbox_to_anchor=(1.01, 1.0), frameon=False, title="tensors", alignment="left",
    )  # fmt: skip
