"""Plots after plots: few figures stay open, none that is somebody else's is closed, and all are shown."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from matplotlib.axes import Axes

import polymodel as pm
from benchmarks import pruning
from polymodel.report.figures import new_axes

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


def test_many_plots_leave_few_figures_open(plots: list[object]) -> None:
    made: list[Axes] = [draw() for _ in range(6) for draw in plots]  # type: ignore[operator]  # each is callable
    assert len(made) == 48
    assert len({id(ax.figure) for ax in made}) == 48
    assert len(plt.get_fignums()) == 10
    assert plt.gcf() is made[-1].figure
    first = io.BytesIO()
    made[0].get_figure(root=True).savefig(first)  # type: ignore[union-attr]  # closed but kept
    assert first.getvalue().startswith(b"\x89PNG")


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
