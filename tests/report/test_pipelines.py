"""What reports, pictures and explanations say of pipelines."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import polymodel as pm
from polymodel.mapping.looptree import looptree_text
from polymodel.report.svg import looptree_svg
from tests.faults import refused

Golden = Callable[[str, str], None]


@pytest.fixture(scope="module")
def report() -> pm.Report:
    return pm.evaluate(pm.load("two_engines", "matmul_chain_2/pipeline"))


def test_pictures_say_which_loop_is_overlapped(report: pm.Report, golden: Golden) -> None:
    golden("pipeline.txt", looptree_text(report.problem.tree))
    golden("pipeline.svg", looptree_svg(report.problem.tree))


def test_a_pipeline_without_a_loop_says_so() -> None:
    tree = pm.load("two_engines", "matmul_chain_2/pipeline", M_TILE=64).mapping
    assert tree is not None
    whole = tree.nodes[:2] + tree.nodes[3:]
    assert "pipeline  (no loop of its own above: stages take turns)" in looptree_text(pm.LoopTree(whole))


def test_the_table_has_stages_and_phases(report: pm.Report, golden: Golden) -> None:
    table = report.table("pipelines")
    golden("pipelines_table.txt", table.text())
    frame = report.pipelines.set_index("stage")
    assert frame["sets_s"][["1", "2"]].sum() == pytest.approx(frame["busy_s"]["total"])
    assert frame["busy_s"]["total"] == pytest.approx(report.total_latency)
    phases = ["fill_slots", "steady_slots", "drain_slots"]
    assert frame.loc["total", phases].tolist() == [1, 6, 1]


def test_latency_and_summary_add_up(report: pm.Report) -> None:
    rows = report.summary.set_index("einsum")["latency_s"]
    assert rows["Matmul1"] + rows["Matmul2"] == pytest.approx(rows["total"])
    busy = report.latency.set_index(["einsum", "component"])["latency_s"]
    assert busy["Matmul1", "EngineA"] == pytest.approx(64 * 24e-9)


def test_explanations_tell_when_a_stage_runs_and_what_is_held_twice(report: pm.Report) -> None:
    told = str(report.explain("Matmul2", "GLB", "T1"))
    assert (
        "stage 2 of 2 of the pipeline at node 4 (overlaps iterations of m): slot s runs iteration s - 1"
        in told
    )
    assert "node 3 holds the tiles of 2 iterations at once" in told
    assert "iterations at once" not in str(report.explain("Matmul1", "GLB", "W0"))


@pytest.mark.slow
def test_pages_show_pipelines_where_there_are_any(report: pm.Report) -> None:
    assert "<h2>Table: Pipelines</h2>" in report.to_html()
    plain = pm.evaluate(pm.load("two_engines", "matmul_chain_2/tiled_fused"))
    assert "<h2>pipelines</h2>" not in plain.to_html()
    assert "Pipelines" not in str(plain)


def test_over_time_a_pipeline_is_refused_by_name(report: pm.Report) -> None:
    with refused("unsupported-pipeline", "timeline"):
        report.timeline("GLB")


def test_a_saved_mapping_loads_back(report: pm.Report) -> None:
    spec = pm.load("two_engines", "matmul_chain_2/pipeline")
    assert spec.mapping is not None
    again = pm.evaluate(spec.with_mapping(spec.mapping))
    assert again.analysis == report.analysis
