"""Plots after plots: few figures stay open, none that is somebody else's is closed, and all are shown."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from inspect import signature
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from IPython.core.formatters import DisplayFormatter
from IPython.display import Image
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import polymodel as pm
from benchmarks import pruning
from polymodel.report import plots_sparse
from polymodel.slopes.chain_slope import ChainSlope
from polymodel.slopes.graph_slope import GraphSlope
from polymodel.slopes.ski_slope import SkiSlope
from polymodel.view import figures
from polymodel.view.figures import new_axes, whole_figure
from tests.hardware.small import small
from tests.seeds import seeds

SIZES = {"TM0": 1, "TN0": 1, "TK0": 1}

INLINE = """
from matplotlib import pyplot
from matplotlib.backends.backend_agg import FigureCanvasAgg as FigureCanvas

shown = []

def show(*args, **options):
    for number in pyplot.get_fignums():
        shown.append([a.get_title() for a in pyplot.figure(number).axes])
    pyplot.close("all")
"""


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    backend = plt.get_backend()
    plt.switch_backend("agg")
    plt.close("all")
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # of more than 20 open figures
        yield
    plt.close("all")
    plt.switch_backend(backend)


@pytest.fixture(scope="module")
def plots() -> list[object]:
    """Everything that draws, with a new figure each time."""
    spec = pm.load("simple_two_level", "matmul_chain_2/tiled_fused")
    report = pm.evaluate(spec)
    found = pm.sweep(
        pruning.matmul(4),
        {n: [1, 2] for n in ("TM1", "TN1", "TK1")} | {"TM0": 1, "TN0": 1, "TK0": 1},
        keep="all",
    )
    return [
        *(lambda what=what: report.plot(what) for what in ("working_sets", "energy", "roofline")),
        lambda: report.plot_timeline("GLB"),
        lambda: found.plot("front"),
        lambda: found.plot("heat", "TM1", "TN1"),
        lambda: found.plot("energy"),
        pm.ski_slope(pm.load("simple_two_level", "matmul/output_stationary", M=32, N=32, K=32)).plot,
    ]


@pytest.mark.slow
def test_many_plots_leave_few_figures_open(plots: list[object]) -> None:
    made: list[Axes] = [draw() for _ in range(6) for draw in plots]  # type: ignore[operator]  # each is callable
    assert len(made) == 48
    assert len({id(ax.figure) for ax in made}) == 48
    assert len(plt.get_fignums()) == 10
    assert plt.gcf() is made[-1].figure
    first = io.BytesIO()
    closed = whole_figure(made[0])
    assert closed is not None
    closed.savefig(first)
    assert first.getvalue().startswith(b"\x89PNG")


def test_the_figure_of_axes_is_the_whole_one() -> None:
    """In every version of matplotlib from 3.9 on: `get_figure` takes `root` from 3.10 on only."""
    whole = plt.figure()
    part = whole.subfigures(1, 2)[0].subfigures(2, 1)[0]
    assert whole_figure(part.add_subplot()) is whole
    own = whole.add_subplot()
    assert whole_figure(own) is whole
    own.remove()
    assert whole_figure(own) is None
    sources = Path(figures.__file__).parent.rglob("*.py")
    assert not [p for p in sources if "get_figure(" in p.read_text(encoding="utf-8")]


def test_figures_of_others_stay_open() -> None:
    own = [plt.figure() for _ in range(5)]
    for _ in range(30):
        new_axes(2, 2)
    assert all(plt.fignum_exists(figure.number) for figure in own)
    plt.close(plt.gcf())
    assert [plt.figure(n) for n in plt.get_fignums()][:5] == own
    assert len(plt.get_fignums()) == 9


def test_a_user_has_room_for_figures_of_his_own() -> None:
    for _ in range(30):
        new_axes(2, 2)
    own = [plt.subplots()[0] for _ in range(10)]  # more than 20 open figures are an error here
    for _ in range(30):
        new_axes(2, 2)
    assert all(plt.fignum_exists(figure.number) for figure in own)
    assert len(plt.get_fignums()) == 11


def test_the_limit_is_that_of_matplotlib() -> None:
    with plt.rc_context({"figure.max_open_warning": 3}):
        for _ in range(9):
            new_axes(2, 2)
    assert len(plt.get_fignums()) == 2
    with plt.rc_context({"figure.max_open_warning": 0}):
        for _ in range(25):
            new_axes(2, 2)
    assert len(plt.get_fignums()) == 27


@pytest.mark.slow
def test_a_notebook_shows_every_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stub_inline.py").write_text(INLINE)
    monkeypatch.syspath_prepend(tmp_path)
    plt.switch_backend("module://stub_inline")
    from importlib import import_module

    shown = import_module("stub_inline").shown
    for number in range(50):
        new_axes(2, 2).set_title(str(number))
    assert len(plt.get_fignums()) == 10
    plt.show()  # what the notebook does at the end of the cell
    assert shown == [[str(number)] for number in range(50)]
    shown.clear()
    plt.figure()
    for _ in range(19):
        new_axes(2, 2)
    with pytest.warns(RuntimeWarning, match="More than 20 figures"):
        new_axes(2, 2)
    assert not shown  # the user's own may still be in the making


def draws() -> dict[str, Callable[..., object]]:
    """Every public method or function that plots; its arguments but `ax` are given."""
    spec = pm.load("simple_two_level", "matmul_chain_2/tiled_fused")
    one = pm.load("simple_two_level", "matmul/output_stationary", M=32, N=32, K=32)
    a = pm.random_tensor(["I", "J"], (40, 40), 0.1, 1)
    report, tiled, product = pm.evaluate(spec), pm.tile(a), pm.tile_matmul(a, a, capacity=128)
    swift, gone = pm.tiler_swift_comparison([a]), pm.tensaurus("SpMM", a)
    swept = pm.sweep(pruning.matmul(4), {n: [1, 2] for n in ("TM1", "TN1", "TK1")} | SIZES, keep="all")
    ran = pm.execute(pm.load("tensaurus/spmm"), {"A": a, "B": np.ones((40, 4))})
    designed = pm.codesign(small(), {"S": [128, 256]}, objectives=("energy", "area"))
    return {
        "Report.plot": partial(report.plot, "energy"),
        "Report.plot_timeline": partial(report.plot_timeline, "GLB"),
        "Sweep.plot": partial(swept.plot, "energy"),
        "Front.plot": pm.explore(one, objectives=("energy", "buffer")).plot,
        "Codesign.plot": designed.plot,
        "CodesignPoint.plot": designed[0].plot,
        "Distribution.plot": pm.distribute(small(), 2, split="k").plot,
        "Gallery.plot": pm.gallery("timeloop_page").plot,
        "SkiSlope.plot": pm.ski_slope(one).plot,
        "ChainSlope.plot": pm.chain_slope(spec).plot,
        "GraphSlope.plot": pm.graph_slope(spec).plot,
        "Tiling.plot": tiled.plot,
        "Tiling.plot_tilers": tiled.plot_tilers,
        "Tiling.plot_comparison": tiled.plot_comparison,
        "ChainTiling.plot": pm.tile_chain(a, a, a, capacity=128).plot,
        "MatmulTiling.plot": product.plot,
        "MatmulTiling.plot_strategies": product.plot_strategies,
        "TilingEstimates.plot": pm.estimate_tiling(a).plot,
        "Tuning.plot": pm.tune_tiling(a).plot,
        "TilerSwift.plot": swift.plot,
        "TilerSwift.plot_means": swift.plot_means,
        "SparseReport.plot": partial(report.sparse.plot, "energy"),
        "TilingReport.plot": pm.evaluate(pm.load("cgra_tiler_swift", "elementwise/row_bands")).tiling.plot,
        "TrafficReport.plot": _moved().plot,
        "ExecutionReport.plot": pm.ExecutionReport(ran).plot,
        "Imported.plot": pm.Imported("a.yaml", "workload: {}\n").plot,
        "DensityFit.plot": pm.fit_density(a, tiles=[2], units=2).plot,
        "ExecutionReport.plot_load": pm.ExecutionReport(ran).plot_load,
        "plot_spy": partial(plots_sparse.plot_spy, a),
        "plot_occupancies": partial(plots_sparse.plot_occupancies, a),
        "plot_kernels": partial(plots_sparse.plot_kernels, {"A": gone}),
    }


def _moved() -> pm.TrafficReport:
    a = pm.random_tensor(["K", "M"], [4, 4], 0.5, seed=1)
    b = pm.random_tensor(["K", "N"], [4, 4], 0.5, seed=2)
    return pm.TrafficReport(pm.traffic(pm.load("teaal/gamma_traffic"), {"A": a, "B": b}))


@pytest.mark.slow
def test_the_list_of_plots_is_complete() -> None:
    """Methods of what the package has by name, and of what its functions answer with."""
    answers = [SkiSlope, ChainSlope, GraphSlope]
    kinds = [*(k for k in (getattr(pm, n) for n in pm.__all__) if isinstance(k, type)), *answers]
    methods = {f"{k.__name__}.{n}" for k in kinds for n in dir(k) if n.startswith("plot")}
    assert methods <= set(draws())


@pytest.mark.slow
@pytest.mark.parametrize("as_value", seeds(1, [True, False]))  # of a cell that ends with a semicolon: none
def test_a_cell_that_ends_with_a_plot_shows_it_once(
    as_value: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A notebook shows the last value of a cell, and then every figure that is open."""
    (tmp_path / "stub_inline.py").write_text(INLINE)
    monkeypatch.syspath_prepend(tmp_path)
    plt.switch_backend("module://stub_inline")
    formatter = DisplayFormatter()
    formatter.formatters["image/png"].for_type(Figure, lambda figure: b"drawn")
    drawn: list[object] = []
    monkeypatch.setattr("IPython.display.display", lambda shown, **options: drawn.append(shown))
    for name, draw in draws().items():
        plt.close("all")
        made = draw()
        assert len(plt.get_fignums()) == 1, name
        values = [made] if as_value else []
        times = sum("image/png" in formatter.format(value)[0] for value in values)
        times += sum("image/png" in formatter.format(plt.figure(n))[0] for n in plt.get_fignums())
        assert times + len(drawn) == 1, name
        drawn.clear()
    assert isinstance(made, Axes)
    panels = pm.tile(pm.random_tensor(["I", "J"], (9, 9), 0.2, 1)).plot_tilers()
    plt.close("all")
    formatter.format(panels)
    assert isinstance(drawn.pop(), Image)  # also when it is shown again later
    plt.switch_backend("agg")
    formatter.format(panels)
    assert drawn == [{"text/plain": repr(panels)}]


@pytest.mark.slow
def test_axes_that_are_none_are_refused() -> None:
    for name, draw in draws().items():
        if "ax" in signature(draw).parameters:
            fault = r"plot: 3 is not an axes[\s\S]*pass ax=figure.add_subplot"
            with pytest.raises(pm.SpecError, match=fault):
                draw(ax=3)
            ax = plt.figure().add_subplot()
            assert draw(ax=ax) is ax, name
            plt.close("all")
