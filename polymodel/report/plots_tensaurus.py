"""What Tensaurus does, as plots: kernels under its roof, and how much of a memory's bandwidth formats use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from polymodel.errors import Diagnostic, SpecError
from polymodel.report.plots import INK, MARKERS, SHADES, prefixed
from polymodel.report.plots_sparse import Measured, plot_roofline
from polymodel.view.figures import axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from polymodel.sparse.tensaurus.report import TensaurusReport
    from polymodel.sparse.tensaurus.streams import Efficiency


def plot_kernels(reports: Mapping[str, TensaurusReport], ax: Axes | None = None) -> Axes:
    """Named predictions under the roof of their machine: effectual operations over bytes of HBM.

    SpecError for no prediction, or for those of machines with different roofs.
    """
    machines = {(r.machine.peak, r.machine.bandwidth) for r in reports.values()}
    if len(machines) != 1:
        what = "no prediction" if not machines else f"predictions of {len(machines)} different machines"
        raise SpecError([Diagnostic(f"{what}: there is no one roof", "give predictions of one machine")])
    ((peak, bandwidth),) = machines
    points = [
        Measured(f"{name} ({r.label})", r.operations, r.moved("HBM"), r.seconds)
        for name, r in reports.items()
    ]
    return plot_roofline(
        points, peak=peak, bandwidth=8 * bandwidth, title="Tensaurus: kernels under its roof", ax=ax
    )


def plot_bandwidth(found: Sequence[Efficiency], peak: float, ax: Axes | None = None) -> Axes:
    """Useful bytes per second that reach so many processing elements, a line per format. `peak`: bytes/s.

    SpecError where there is nothing to draw.
    """
    if not found:
        raise SpecError([Diagnostic("there is no format to draw", "give what `bandwidth` returns")])
    ax = axes(ax, 7, 4)
    for number, name in enumerate(dict.fromkeys(e.format for e in found)):
        mine = sorted((e for e in found if e.format == name), key=lambda e: e.elements)
        ax.plot(
            [e.elements for e in mine], [e.bandwidth for e in mine], MARKERS[number % len(MARKERS)] + "-",
            color=SHADES[number % len(SHADES)], label=f"{name} ({mine[0].label})",
        )  # fmt: skip
    ax.axhline(peak, color=INK, linewidth=1.2, linestyle="--", label="peak of the memory")
    counts = sorted({e.elements for e in found})
    ax.set_xscale("log", base=2)
    ax.set_xticks(counts, [str(c) for c in counts])
    ax.set_ylim(0, 1.1 * max(peak, *(e.bandwidth for e in found)))
    prefixed(ax, "B/s", "y")
    ax.set_xlabel("processing elements that read at once")
    ax.set_ylabel("useful bytes per second (B/s)")
    ax.set_title("Bandwidth by format: nonzeros with their coordinates", fontsize=10)
    ax.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    return ax
