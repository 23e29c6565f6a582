"""Plots of long names and of many Einsums: everything is on the page, and the axes keep their room."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from matplotlib.axes import Axes

import polymodel as pm
from polymodel.report.report import Report
from polymodel.report.report_page import plots_of
from polymodel.report.timeline import buffet_names, timeline
from tests.seeds import seeds

NAME = "extraordinarily_long_name_of_sixty_characters_for_a_thing_%02d"
EINSUMS = 40


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    plt.close("all")
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Report:
    e, a, b, c, dram, glb, mac = (NAME % i for i in range(7))
    cost = "{name: read, energy: 1e-12, throughput: 1e9}, {name: write, energy: 1e-12, throughput: 1e9}"
    text = f"""
workload:
  rank_sizes: {{M: 64, N: 32, K: 16}}
  bits_per_value: {{All: 8}}
  einsums:
  - name: {e}
    tensor_accesses:
    - {{name: {a}, projection: [m, k]}}
    - {{name: {b}, projection: [k, n]}}
    - {{name: {c}, projection: [m, n], output: True}}
arch:
  nodes:
  - !Memory {{name: {dram}, tensors: {{keep: All}}, actions: [{cost}]}}
  - !Memory {{name: {glb}, size: 100000, tensors: {{keep: All}}, actions: [{cost}]}}
  - !Compute {{name: {mac}, actions: [{{name: compute, energy: 1e-12, throughput: 1e9}}]}}
mapping:
  nodes:
  - !Storage {{component: {dram}, tensors: [{a}, {b}, {c}]}}
  - !Temporal {{rank_variable: m, tile_shape: 8}}
  - !Storage {{component: {glb}, tensors: [{a}, {b}, {c}]}}
  - !Compute {{einsum: {e}, component: {mac}}}
"""
    return _evaluated(text, tmp_path_factory.mktemp("long"))


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Report:
    einsums = "".join(f"  - T{i + 1}[m] = T{i}[m] * W{i}[m]\n" for i in range(EINSUMS))
    weights = ", ".join(f"W{i}" for i in range(EINSUMS))
    between = ", ".join(f"T{i}" for i in range(1, EINSUMS))
    branches = "".join(
        f"    - !Nested {{nodes: [!Storage {{component: GLB, tensors: [W{i}]}}, "
        f"!Temporal {{rank_variable: m, tile_shape: 2}}, !Compute {{einsum: T{i + 1}, component: MAC}}]}}\n"
        for i in range(EINSUMS)
    )
    text = f"""
workload:
  rank_sizes: {{M: 8}}
  bits_per_value: {{All: 8}}
  einsums:
{einsums}
mapping:
  nodes:
  - !Storage {{component: DRAM, tensors: [T0, T{EINSUMS}, {weights}]}}
  - !Storage {{component: GLB, tensors: [{between}]}}
  - !Sequential
    nodes:
{branches}
"""
    return _evaluated(text, tmp_path_factory.mktemp("many"), "simple_two_level")


def _evaluated(text: str, folder: Path, *more: str) -> Report:
    file = folder / "spec.yaml"
    file.write_text(text, encoding="utf-8")
    return pm.evaluate(pm.load(file, *more))


def _room(ax: Axes) -> tuple[float, float]:
    """Shares of the figure, across and down, that the axes take; all text lies on the figure."""
    figure = ax.figure
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.canvas.draw()  # type: ignore[union-attr]  # a new figure
    whole, tight = figure.bbox, figure.get_tightbbox()  # type: ignore[union-attr]  # a new figure
    inches = tight.transformed(figure.dpi_scale_trans)  # type: ignore[union-attr]  # a new figure
    assert inches.x0 >= -2
    assert inches.y0 >= -2
    assert inches.x1 <= whole.x1 + 2
    assert inches.y1 <= whole.y1 + 2
    own = ax.get_window_extent()
    return own.width / whole.width, own.height / whole.height


@pytest.mark.slow
@pytest.mark.parametrize("what", ["working_sets", "energy", "roofline"])
@pytest.mark.parametrize("which", seeds(1, ["many", "long"]))
def test_plots_keep_their_room(which: str, what: str, request: pytest.FixtureRequest) -> None:
    across, down = _room(request.getfixturevalue(which).plot(what))
    assert across > 0.3
    assert down > 0.5


@pytest.mark.parametrize("which", ["long", "many"])
@pytest.mark.thin(2)
def test_timelines_keep_their_room(which: str, request: pytest.FixtureRequest) -> None:
    report = request.getfixturevalue(which)
    memory = report.problem.hierarchy.components[1].name
    across, down = _room(report.plot_timeline(memory))
    assert across > 0.4
    assert down > 0.6


@pytest.mark.slow
def test_a_legend_says_how_many_it_leaves_out(many: Report) -> None:
    legend = many.plot("roofline").get_legend()
    assert legend is not None
    roof, *told = [t.get_text() for t in legend.get_texts()]
    assert roof.startswith("DRAM ")
    assert f"T2, T3, T4 and {EINSUMS - 5} more: MAC" in told, "one marker for what stands at one place"
    legend = many.plot_timeline("GLB").get_legend()
    assert legend is not None
    told = [t.get_text() for t in legend.get_texts()]
    tensors, runs = told[: told.index("runs (strip above)")], told[told.index("runs (strip above)") + 1 :]
    assert tensors[-1] == f"... {2 * EINSUMS - 1 - (len(tensors) - 1)} smaller ones"
    found = timeline(many, "GLB")
    areas = {n: float(found.bits[:, k].mean()) for k, n in enumerate(buffet_names(found))}
    largest = sorted(areas, key=lambda n: -areas[n])[: len(tensors) - 1]
    assert tensors[:-1] == largest[::-1], "the largest areas have a name, as they are stacked"
    assert runs[-1] == f"... {EINSUMS - (len(runs) - 1)} more"


@pytest.mark.slow
def test_the_page_says_nothing_on_stderr(long: Report, many: Report) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert all(svg for report in (long, many) for _, svg, _ in plots_of(report))
