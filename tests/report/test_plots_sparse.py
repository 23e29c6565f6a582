"""Plots of sparse data: what they count is what a slow count gives, and few figures stay open."""

from __future__ import annotations

import io
import math
import time
from collections import Counter
from collections.abc import Iterator

import matplotlib.pyplot as plt
import numpy as np
import pytest

from polymodel.report import plots_sparse as plots
from polymodel.report.plots_sparse import MeasuredRun
from polymodel.sparse.density.uniform import Uniform
from polymodel.sparse.tensor import SparseTensor
from tests.faults import every_fault, faults, refused


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    plt.close("all")
    yield
    plt.close("all")


def matrix(rows: int, columns: int, nnz: int, seed: int = 0) -> SparseTensor:
    numbers = np.random.default_rng(seed)
    at = np.vstack([numbers.integers(0, rows, nnz), numbers.integers(0, columns, nnz)])
    return SparseTensor.from_coo("M", ("I", "J"), (rows, columns), at, np.ones(nnz))


POINTS = (MeasuredRun("dense", 4e9, 8e9, 1e-2), MeasuredRun("sparse <&>", 1e9, 16e9, 0.05))


def test_a_roofline_has_its_ridge_and_its_points() -> None:
    ax = plots.plot_roofline(POINTS, peak=512e9, bandwidth=1024e9)
    roof, ridge, *points = ax.lines
    assert list(ridge.get_xdata()) == [4, 4]
    xs, ys = roof.get_data()
    assert all(y == pytest.approx(min(512e9, x * 128e9)) for x, y in zip(xs, ys, strict=True))
    assert [tuple(v[0] for v in p.get_data()) for p in points] == [(4.0, 4e11), (0.5, 2e10)]
    labels = [t.get_text() for t in ax.get_legend().get_texts()]  # type: ignore[union-attr]  # there is one
    assert labels[0] == "dense: 400 Gop/s, 78.1 % of the compute roof"
    assert labels[1] == "sparse <&>: 20 Gop/s, 31.2 % of the memory roof"
    assert "op/B" in ax.get_xlabel()
    assert "128 GB/s" in ax.get_xlabel()


def test_a_roofline_of_nothing_finite_says_what_is_wrong() -> None:
    bad = (MeasuredRun("still", 1, 1, 0), MeasuredRun("idle", 0, 8, 1))
    with every_fault(("nothing-to-show", ""), ("nothing-to-show", ""), ("nothing-to-show", "")) as error:
        plots.plot_roofline(bad, peak=0, bandwidth=1)
    assert len(error.value.diagnostics) == 3
    assert plots.plot_roofline((), peak=1e9, bandwidth=1e9).get_legend() is None


def test_predictions_stand_beside_the_actual() -> None:
    found = {
        "a": {"uniform": 50.0, "actual": 100.0, "histogram": 100.01},
        "b": {"actual": 10.0, "histogram": 11.0},
    }
    ax = plots.plot_predictions(found, quantity="time", unit="cycle")
    assert ax.get_legend_handles_labels()[1] == ["actual", "uniform", "histogram"]
    heights = [p.get_height() for p in ax.patches]
    assert heights[:3] == [100, 10, 50]
    assert math.isnan(heights[3])
    assert heights[4:] == [100.01, 11]
    assert [t.get_text() for t in ax.texts] == ["-50.0 %", "", "0 %", "+10.0 %"]
    assert ax.get_ylabel() == "time (cycle)"
    assert ax.get_yscale() == "linear"
    steep = plots.plot_predictions({"a": {"actual": 1.0, "m": 1e5}}, quantity="traffic", unit="b")
    assert steep.get_yscale() == "log"
    assert steep.texts[0].get_text() == "x 1e+05"
    ax.figure.canvas.draw()
    with faults("nothing-to-show", "actual", at=""):
        plots.plot_predictions({"c": {"m": 1.0}}, quantity="time")
    with faults("nothing-to-show", at=""):
        plots.plot_predictions({}, quantity="time")


@pytest.mark.parametrize(("shape", "bins"), [((7, 5), 3), ((7, 5), 10), ((64, 64), 8), ((1, 9), 4)])
def test_cells_hold_what_a_slow_count_finds(shape: tuple[int, int], bins: int) -> None:
    tensor = matrix(*shape, nnz=30)
    counts, (high, wide) = plots.cell_counts(tensor, bins)
    assert max(counts.shape) <= bins
    slow = Counter((i // high, j // wide) for i, j in tensor.coords.T.tolist())
    assert {(i, j): n for (i, j), n in np.ndenumerate(counts) if n} == dict(slow)


def test_a_spy_plot_says_its_scale() -> None:
    tensor = matrix(1000, 500, 20_000)
    ax = plots.plot_spy(tensor, bins=50)
    assert ax.get_title() == f"M: 1,000 x 500, {tensor.nnz:,} nonzeros, density {tensor.nnz / 500_000:.3g}"
    (image,) = ax.images
    assert np.ma.getdata(image.get_array()).shape == (50, 50)
    assert image.colorbar is not None
    assert "per cell of 20 x 10 points" in image.colorbar.ax.get_ylabel()
    assert (ax.get_xlim(), ax.get_ylim()) == ((0, 500), (1000, 0))
    ax.figure.canvas.draw()
    empty = plots.plot_spy(SparseTensor.from_dense("z", ("I", "J"), np.zeros((3, 3))))
    empty.figure.canvas.draw()
    with refused("unsupported-shape"):
        plots.plot_spy(SparseTensor.from_dense("t", ("I", "J", "K"), np.ones((1, 1, 1))))
    with faults("not-positive-integer", at=""):
        plots.plot_spy(matrix(2, 2, 1), bins=0)


@pytest.mark.slow
def test_a_million_nonzeros_are_seen_at_once() -> None:
    tensor = matrix(10**6, 10**6, 10**6)
    before = time.process_time()
    plots.plot_spy(tensor).figure.savefig(io.BytesIO())
    assert time.process_time() - before < 5


def test_rows_are_counted_and_expected() -> None:
    tensor = matrix(200, 50, 900, seed=3)
    ax = plots.plot_occupancies(tensor)
    slow = Counter(Counter(tensor.coords[0].tolist())[i] for i in range(200))
    heights = [p.get_height() for p in ax.patches]
    assert {n: h for n, h in enumerate(heights) if h} == dict(slow)
    (line,) = ax.lines
    points, nnz = 200 * 50, tensor.nnz
    for k, y in zip(line.get_xdata(), line.get_ydata(), strict=True):
        exact = 200 * math.comb(50, int(k)) * math.comb(points - 50, nnz - int(k)) / math.comb(points, nnz)
        assert y == pytest.approx(exact, rel=1e-6) if exact >= 0.3 else math.isnan(y)
    assert ax.get_legend_handles_labels()[1] == ["uniform", "actual (M)"]
    ax.figure.canvas.draw()


def test_long_tails_share_bins_and_no_row_is_lost() -> None:
    numbers = np.random.default_rng(1)
    rows = (numbers.pareto(1.0, 5000) * 3).astype(int) % 300
    tensor = SparseTensor.from_coo(
        "P", ("I", "J"), (300, 5000), np.vstack([rows, np.arange(5000)]), np.ones(5000)
    )
    model = Uniform.of(tensor.ranks, tensor.shape, nnz=tensor.nnz)
    counts = np.bincount(rows, minlength=300)
    edges = plots.bin_edges(int(counts.max()), [40])
    assert edges[0] == 0
    assert edges[1] == 1
    assert edges[-1] == counts.max() + 1
    assert (np.diff(edges) > 0).all()
    assert len(edges) <= 30
    expected = plots.expected_rows(model, tensor, edges)
    assert expected.sum() == pytest.approx(300)
    ax = plots.plot_occupancies(tensor, {"uniform": model, "again": model})
    assert sum(p.get_height() for p in ax.patches) == 300
    assert len(ax.lines) == 2
    ax.figure.canvas.draw()


def test_tensors_of_other_orders_have_rows_too() -> None:
    vector = SparseTensor.from_dense("v", ("I",), [1, 0, 2])
    assert [p.get_height() for p in plots.plot_occupancies(vector).patches] == [1, 2]
    cube = SparseTensor.from_dense("c", ("I", "J", "K"), np.ones((2, 3, 4)))
    assert sum(p.get_height() for p in plots.plot_occupancies(cube).patches) == 2
    with refused("unsupported-shape", "s"):
        plots.plot_occupancies(SparseTensor.from_dense("s", (), np.array(1)))


@pytest.mark.slow
def test_few_figures_stay_open() -> None:
    tensor = matrix(20, 20, 60)
    for _ in range(6):
        plots.plot_spy(tensor)
        plots.plot_occupancies(tensor)
        plots.plot_roofline(POINTS, peak=1e12, bandwidth=1e12)
        plots.plot_predictions({"a": {"actual": 1.0}}, quantity="time")
    assert len(plt.get_fignums()) <= 10
