"""Plots of Tensaurus: points where the predictions put them."""

from __future__ import annotations

from collections.abc import Iterator

import matplotlib.pyplot as plt
import pytest

from polymodel.report.plots_sparse import plot_bandwidth, plot_kernels
from polymodel.sparse.density.uniform import Uniform
from polymodel.sparse.tensaurus.machine import Machine
from polymodel.sparse.tensaurus.predict import tensaurus
from polymodel.sparse.tensaurus.streams import DDR4, bandwidth
from tests.faults import faults

MATRIX = Uniform(("I", "J"), (1000, 800), 20_000)


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    plt.close("all")
    yield
    plt.close("all")


def test_kernels_stand_under_their_roof() -> None:
    reports = {"thin": tensaurus("SpMV", MATRIX), "wide": tensaurus("SpMM", MATRIX, K=512)}
    ax = plot_kernels(reports)
    roof, _, *points = ax.lines
    assert max(roof.get_ydata()) == pytest.approx(512e9)
    for (name, report), point in zip(reports.items(), points, strict=True):
        assert point.get_xdata()[0] == pytest.approx(report.intensity)
        assert point.get_ydata()[0] == pytest.approx(report.gops * 1e9)
        assert point.get_ydata()[0] <= report.attainable * (1 + 1e-9)
        assert str(point.get_label()).startswith(f"{name} (expected): ")
    ax.figure.canvas.draw()
    slow = tensaurus("SpMV", MATRIX, machine=Machine(clock=1e9))
    with faults("nothing-to-show", at=""):
        plot_kernels({**reports, "slow": slow})
    with faults("nothing-to-show", at=""):
        plot_kernels({})


def test_bandwidth_has_a_line_per_format() -> None:
    found = bandwidth(MATRIX, (8, 1))
    ax = plot_bandwidth(found, DDR4.peak)
    *lines, peak = ax.lines
    assert set(peak.get_ydata()) == {16e9}
    assert [str(line.get_label()).split(" (")[0] for line in lines] == list(
        dict.fromkeys(e.format for e in found)
    )
    for line in lines:
        mine = {e.elements: e.bandwidth for e in found if str(line.get_label()).startswith(f"{e.format} (")}
        assert dict(zip(line.get_xdata(), line.get_ydata(), strict=True)) == pytest.approx(mine)
    assert ax.get_ylim()[1] >= max(e.bandwidth for e in found)
    ax.figure.canvas.draw()
    with faults("nothing-to-show", at=""):
        plot_bandwidth((), DDR4.peak)
