"""The roofline of Google's first TPU, and its six applications."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from polymodel.api.evaluation import evaluate
from polymodel.exhibits.records import Exhibit, PublishedFigure
from polymodel.loading import load

# Application -> multiply-accumulates per byte of weights, and measured tera-operations per second.
APPLICATIONS = {
    "MLP0": (200, 12.3),
    "MLP1": (168, 9.7),
    "LSTM0": (64, 3.7),
    "LSTM1": (96, 2.8),
    "CNN0": (2888, 86.0),
    "CNN1": (1750, 14.1),
}
PEAK, RIDGE = 92, 1350
WIDTH = 2048  # of a layer; any multiple of the array's 256 has the same roof


@cache
def _seconds(rows: int) -> tuple[float, float]:
    """Return the time in seconds of the weight memory and of the array for a layer in which the given number
    of rows share each weight."""
    report = evaluate(load("tpu_v1", "matmul/weight_stationary", M=rows, N=WIDTH, K=WIDTH))
    busy = {r["component"]: float(r["latency_s"] or 0) for r in report.table("latency").records()}
    return busy["WeightMemory"], busy["MAC"]


def attainable(rows: int) -> float:
    """Return the attainable tera-operations per second, two operations for each multiply-accumulate."""
    return 2 * rows * WIDTH**2 / max(_seconds(rows)) / 1e12


def ridge() -> float:
    """Return the multiply-accumulates per byte of weights above which the array limits the throughput."""
    weights, array = _seconds(1)
    return weights / array


def figures() -> Iterator[PublishedFigure]:
    many = 10 * RIDGE  # rows that share a weight
    yield PublishedFigure("peak", "TOPS", PEAK, attainable(many), "equal to the digits that are printed")
    yield PublishedFigure("ridge", "op/B", RIDGE, ridge(), "equal to the digits that are printed")
    for name, (intensity, measured) in APPLICATIONS.items():
        yield PublishedFigure(
            f"{name}: {intensity} multiply-accumulates per byte of weights", "TOPS", measured,
            attainable(intensity), "theirs is measured; ours is the roof above it",
        )  # fmt: skip


EXHIBIT = Exhibit(
    "tpu_v1",
    "Google's first TPU: the roofline of its six applications",
    "Jouppi et al., In-Datacenter Performance Analysis of a TPU, ISCA 2017, tables 1 and 3, figure 5",
    "Matmuls whose weights are used as often, on the machine of the library; weight memory and array alone.",
    figures,
    "polymodel evaluate tpu_v1 matmul/weight_stationary --var M=200 --var N=2048 --var K=2048",
)
