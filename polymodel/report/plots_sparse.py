"""Plots of sparse data and of the expectations of models: matplotlib, every axis with its unit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.frozen import dataclass
from polymodel.quantities import engineering
from polymodel.report.plots import INK, MARKERS, SHADES, WARNING, prefixed
from polymodel.sparse.tensor import SparseTensor
from polymodel.view.figures import axes, whole_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from polymodel.sparse.density.model import DensityModel
    from polymodel.sparse.tensaurus.report import TensaurusReport
    from polymodel.sparse.tensaurus.streams import Efficiency

Ints = NDArray[np.int64]
BINS = 200
_UNIT_BINS = 40  # up to so many nonzeros per fiber each number has a bar
_MANY_BINS = 24
_COUNTS = ("#8ec1e8", "#2563a8", "#0a1f44")  # one nonzero is seen on white
_SCALED = frozenset({"s", "J", "b", "B", "b/s", "B/s", "op/s", "m", "W", "Hz"})  # units with prefixes
_FAR = 50.0  # ratios above that are drawn on a logarithmic axis


@dataclass(frozen=True)
class MeasuredRun:
    """A point under a roof: the operations of a run, its traffic at the roof's memory, and its time."""

    name: str
    operations: float
    moved_bits: float
    seconds: float

    @property
    def intensity(self) -> float:
        """Operations per byte moved."""
        return self.operations / self.moved_bits * 8 if self.moved_bits else math.inf

    @property
    def achieved(self) -> float:
        """Operations per second."""
        return self.operations / self.seconds if self.seconds else math.inf


def plot_roofline(
    points: Sequence[MeasuredRun],
    *,
    peak: float,
    bandwidth: float,
    title: str = "Roofline",
    ax: Axes | None = None,
) -> Axes:
    """Named runs under one roof. `peak`: operations/s; `bandwidth`: bit/s; the ridge is where they meet.

    SpecError where the roof or a point is not positive and finite.
    """
    faults = _unplaced(points, peak, bandwidth)
    if faults:
        raise SpecError(faults)
    ax = axes(ax, 8, 4.2 + 0.1 * len(points))
    per_byte = bandwidth / 8
    ridge = peak / per_byte
    low = min([ridge, *(p.intensity for p in points)]) / 4
    high = max([ridge, *(p.intensity for p in points)]) * 4
    xs = [low, ridge, high]
    ax.plot(xs, [min(peak, x * per_byte) for x in xs], color=INK, linewidth=1.4)
    ax.axvline(ridge, color=INK, linewidth=0.8, linestyle=":")
    ax.annotate(
        f"peak {engineering(peak, 'operation/s')}", (high, peak), xytext=(-4, 4), textcoords="offset points",
        ha="right", va="bottom", fontsize=8, color=INK,
    )  # fmt: skip
    ax.annotate(
        f"ridge {ridge:.4g} op/B", (ridge, 0), xycoords=("data", "axes fraction"), xytext=(4, 4),
        textcoords="offset points", fontsize=8, color=INK,
    )  # fmt: skip
    for number, p in enumerate(points):
        colour, marker = SHADES[number % len(SHADES)], MARKERS[number % len(MARKERS)]
        roof = min(peak, p.intensity * per_byte)
        bound = "memory" if p.intensity < ridge else "compute"
        share = f"{100 * p.achieved / roof:.3g} % of the {bound} roof"
        label = f"{p.name}: {engineering(p.achieved, 'operation/s')}, {share}"
        ax.plot([p.intensity], [p.achieved], marker, color=colour, markersize=8, linestyle="", label=label)
    speeds = [peak, low * per_byte, *(p.achieved for p in points)]
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_ylim(min(speeds) / 2, max(speeds) * 3)
    prefixed(ax, "op/s", "y")
    ax.set_xlabel(f"operations per byte moved (op/B); memory {engineering(per_byte, 'B/s')}")
    ax.set_ylabel("operations per second (op/s)")
    ax.set_title(title, fontsize=10)
    if points:
        # Names with figures are long: below, they leave the plot its width.
        ax.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2, frameon=False)
    return ax


def _unplaced(points: Sequence[MeasuredRun], peak: float, bandwidth: float) -> list[Diagnostic]:
    """Report values that cannot be drawn on logarithmic axes."""
    faults = [
        Diagnostic(f"{what} is {value}", "give a positive, finite number", code="nothing-to-show")
        for what, value in (("the peak", peak), ("the bandwidth", bandwidth))
        if not 0 < value < math.inf
    ]
    faults += [
        Diagnostic(
            f"{p.name} has no finite position: {p.operations} operations, {p.moved_bits} bits, {p.seconds} s",
            code="nothing-to-show",
        )
        for p in points
        if not (0 < p.intensity < math.inf and 0 < p.achieved < math.inf)
    ]
    return faults


def plot_predictions(
    found: Mapping[str, Mapping[str, float]],
    *,
    quantity: str,
    unit: str = "",
    actual: str = "actual",
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Predicted against actual: a group of bars per case, `found[case][series]`; errors in percent above.

    The series `actual` is the measure; SpecError where a case lacks it. A series may be missing elsewhere.
    """
    lacking = [case for case, values in found.items() if actual not in values]
    if lacking or not found:
        what = f"no {actual!r} for {', '.join(lacking)}" if lacking else "there is no case to show"
        remedy = f"every case needs the series {actual!r} to be measured against"
        raise SpecError([Diagnostic(what, remedy, code="nothing-to-show")])
    series = [actual, *dict.fromkeys(s for values in found.values() for s in values if s != actual)]
    wide = 0.8 / len(series)
    ax = axes(ax, max(7, 1.0 + 0.55 * len(found) * len(series)), 4.2)
    for number, name in enumerate(series):
        places = [k + (number - (len(series) - 1) / 2) * wide for k in range(len(found))]
        heights = [float(values.get(name, math.nan)) for values in found.values()]
        colour = INK if name == actual else SHADES[(number - 1) % len(SHADES)]
        ax.bar(places, heights, width=wide * 0.92, color=colour, label=name)
        if name == actual:
            continue
        for x, height, values in zip(places, heights, found.values(), strict=True):
            ax.annotate(
                _error(height, float(values[actual])), (x, height), xytext=(0, 2), rotation=90,
                textcoords="offset points", ha="center", va="bottom", fontsize=7, color=INK,
            )  # fmt: skip
    shown = [float(v) for values in found.values() for v in values.values() if math.isfinite(v) and v > 0]
    top, least = max(shown, default=1.0), min(shown, default=1.0)
    if top / least > _FAR:
        ax.set_yscale("log")
        ax.set_ylim(least / 2, top * (top / least) ** 0.25)
    else:
        ax.set_ylim(0, top * 1.3)
    tilted = len(found) > 6 or max(map(len, found)) > 14
    ax.set_xticks(range(len(found)), list(found), fontsize=8, rotation=30 if tilted else 0,
                  ha="right" if tilted else "center")  # fmt: skip
    prefixed(ax, unit if unit in _SCALED else "", "y")
    ax.set_ylabel(f"{quantity} ({unit})" if unit else quantity)
    ax.set_title(title or f"{quantity}: predicted against {actual}", fontsize=10)
    ax.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    return ax


def _error(value: float, actual: float) -> str:
    """Return the relative error of a prediction as text."""
    if not math.isfinite(value):
        return ""
    if not actual:
        return "0 %" if not value else "of 0"
    off = 100 * (value / actual - 1)
    if abs(off) < 0.05:
        return "0 %"
    return f"{off:+.1f} %" if abs(off) < 1000 else f"x {value / actual:.3g}"


def load_axes(
    names: Sequence[str], loads: Sequence[int], what: str, title: str, ax: Axes | None = None
) -> Axes:
    """Draw computes per space point as bars, with the mean as a line; the title gives the excess of the
    largest over the mean."""
    ax = axes(ax, 8, 4)
    mean = sum(loads) / len(loads) if loads else 0.0
    ax.bar(range(len(loads)), loads, width=0.85, color=SHADES[0])
    ax.axhline(mean, color=WARNING, linewidth=1.2, label=f"mean {mean:,.6g}")
    every = max(1, -(-len(names) // 32))
    long = max(map(len, names), default=1) > 2
    ax.set_xticks(range(0, len(names), every), list(names)[::every], fontsize=8, rotation=60 if long else 0)
    prefixed(ax, "", "y")
    ax.set_xlabel(f"space point ({what})" if what else "space point")
    ax.set_ylabel("computes")
    far = f", largest / mean {max(loads) / mean:.4g}" if mean else ""
    ax.set_title(title + far, fontsize=10)
    ax.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    return ax


def plot_spy(tensor: SparseTensor, *, bins: int = BINS, title: str = "", ax: Axes | None = None) -> Axes:
    """Where the nonzeros of a matrix are: how many per cell of at most `bins` x `bins`, logarithmic colours.

    Refused for a tensor that is not a matrix; SpecError for less than 1 bin.
    """
    from matplotlib.colors import LinearSegmentedColormap, LogNorm
    from matplotlib.ticker import MaxNLocator

    if len(tensor.ranks) != 2:
        message = f"{tensor.name} has {len(tensor.ranks)} ranks: no matrix"
        raise Refused(message, "draw it by draw_fibertree", code="unsupported-shape")
    if bins < 1:
        message = f"{bins} bins show nothing"
        raise SpecError([Diagnostic(message, "give at least 1", code="not-positive-integer")])
    counts, steps = cell_counts(tensor, bins)
    rows, columns = tensor.shape
    ax = axes(ax, 6, min(6.0, max(3.0, 4.9 * rows / columns)))
    shape = counts.shape[0] * steps[0], counts.shape[1] * steps[1]
    drawn = np.ma.masked_equal(counts, 0)
    most = int(counts.max(initial=0))
    shades = LinearSegmentedColormap.from_list("counts", _COUNTS)
    image = ax.imshow(
        drawn, extent=(0, shape[1], shape[0], 0), interpolation="nearest", cmap=shades,
        aspect="equal" if max(rows, columns) <= 4 * min(rows, columns) else "auto",
        norm=LogNorm(1, max(most, 2)),
    )  # fmt: skip
    ax.set_xlim(0, columns)
    ax.set_ylim(rows, 0)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(6, integer=True))
    for which in ("x", "y"):
        prefixed(ax, "", which)
    cell = f"per cell of {steps[0]} x {steps[1]} points" if steps != (1, 1) else "per point"
    figure = whole_figure(ax)
    if most > 1 and figure is not None:
        bar = figure.colorbar(image, ax=ax, shrink=0.85, label=f"nonzeros {cell}")
        bar.minorticks_off()
        decades = [10**k for k in range(len(str(most))) if 10**k <= most / 2]
        bar.set_ticks([*decades, most], labels=[f"{n:,}" for n in (*decades, most)])
    ax.set_xlabel(f"{tensor.ranks[1]} (coordinate)")
    ax.set_ylabel(f"{tensor.ranks[0]} (coordinate)")
    told = f"{tensor.name}: {rows:,} x {columns:,}, {tensor.nnz:,} nonzeros, density {tensor.density:.3g}"
    ax.set_title(title or told, fontsize=10)
    return ax


def cell_counts(tensor: SparseTensor, bins: int) -> tuple[Ints, tuple[int, int]]:
    """Nonzeros of a matrix per cell of equal size, at most bins x bins of them, and that size in points."""
    steps = tuple(-(-s // bins) for s in tensor.shape)
    shape = tuple(-(-s // step) for s, step in zip(tensor.shape, steps, strict=True))
    at = (tensor.coords[0] // steps[0]) * shape[1] + tensor.coords[1] // steps[1]
    result: Ints = np.bincount(at, minlength=shape[0] * shape[1]).reshape(shape).astype(np.int64)
    return result, (steps[0], steps[1])


def plot_occupancies(
    tensor: SparseTensor,
    models: Mapping[str, DensityModel] | None = None,
    *,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """How many rows (coordinates of the outermost rank) have how many nonzeros, and what models expect.

    `models`: by name; the default is uniform data of as many nonzeros. Both axes count; the vertical one is
    logarithmic. Refused for a tensor without ranks.
    """
    if not tensor.ranks:
        raise Refused(f"{tensor.name} has no rank: there are no rows to count", code="unsupported-shape")
    rows = np.bincount(tensor.coords[0], minlength=tensor.shape[0])
    known = uniform(tensor) if models is None else dict(models)
    edges = bin_edges(int(rows.max(initial=0)), [_reach(m, tensor) for m in known.values()])
    counts = np.histogram(rows, edges)[0]
    ax = axes(ax, 8, 4.2)
    places = np.arange(counts.size)
    ax.bar(places, counts, width=0.85, color=SHADES[0], label=f"actual ({tensor.name})")
    for number, (name, model) in enumerate(known.items()):
        expected = expected_rows(model, tensor, edges)
        shown = np.where(expected >= _LEAST, expected, np.nan)
        colour = WARNING if not number else SHADES[(number + 1) % len(SHADES)]
        ax.plot(places, shown, MARKERS[number % len(MARKERS)] + "-", color=colour, markersize=4, label=name)
    ax.set_yscale("log")
    ax.set_ylim(_LEAST, 3 * max(1, int(counts.max(initial=1))))
    every = max(1, -(-counts.size // 16))
    ax.set_xticks(
        places[::every], _bin_names(edges)[::every], fontsize=8, rotation=30 if every < counts.size else 0
    )
    ax.set_xlabel(f"nonzeros per {tensor.ranks[0]}")
    ax.set_ylabel(f"number of {tensor.ranks[0]} coordinates")
    ax.set_title(title or f"Rows of {tensor.name} by their nonzeros", fontsize=10)
    ax.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    return ax


_LEAST = 0.3  # rows; below that a model says that there is none


def uniform(tensor: SparseTensor) -> dict[str, DensityModel]:
    """The model of uniform data with as many nonzeros."""
    from polymodel.sparse.density.uniform import Uniform

    return {"uniform": Uniform.of(tensor.ranks, tensor.shape, nnz=tensor.nnz)}


def _row(tensor: SparseTensor) -> Ints:
    """A tile of one row."""
    return np.array([1, *tensor.shape[1:]], dtype=np.int64)


def _reach(model: DensityModel, tensor: SparseTensor) -> int:
    """Return an occupancy that is expected of about one row only."""
    return int(model.quantile(_row(tensor), 1 - min(0.5, 1 / tensor.shape[0])))


def expected_rows(model: DensityModel, tensor: SparseTensor, edges: Ints) -> NDArray[np.float64]:
    """Return the number of rows that a model expects with edges[b] <= nonzeros < edges[b + 1], per bin b."""
    upto: Any = model.cdf(_row(tensor), edges - 1)
    return tensor.shape[0] * np.diff(np.where(edges > 0, upto, 0.0))


def bin_edges(most: int, reaches: Sequence[int]) -> Ints:
    """Return bins of one number each, or of growing width if there would be too many; 0 always has a bin of
    its own."""
    top = max([most, *reaches, 1])
    if top <= _UNIT_BINS:
        return np.arange(top + 2)
    grown = np.geomspace(1, top + 1, _MANY_BINS).round().astype(np.int64)
    return np.unique(np.concatenate(([0], grown)))


def _bin_names(edges: Ints) -> list[str]:
    pairs = zip(edges[:-1].tolist(), (edges[1:] - 1).tolist(), strict=True)
    return [f"{a}" if a == b else f"{a} to {b}" for a, b in pairs]


def plot_kernels(reports: Mapping[str, TensaurusReport], ax: Axes | None = None) -> Axes:
    """Named predictions under the roof of their machine: effectual operations over bytes of HBM.

    SpecError for no prediction, or for those of machines with different roofs.
    """
    machines = {(r.machine.peak, r.machine.bandwidth) for r in reports.values()}
    if len(machines) != 1:
        what = "no prediction" if not machines else f"predictions of {len(machines)} different machines"
        message = f"{what}: there is no one roof"
        raise SpecError([Diagnostic(message, "give predictions of one machine", code="nothing-to-show")])
    ((peak, bandwidth),) = machines
    points = [
        MeasuredRun(f"{name} ({r.label})", r.operations, r.moved("HBM"), r.seconds)
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
        message = "there is no format to draw"
        raise SpecError([Diagnostic(message, "give what `bandwidth` returns", code="nothing-to-show")])
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
