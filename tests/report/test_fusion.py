"""What a report says of fusion: recomputation, the reads it costs, loops that infer, relations."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import islpy as isl
import pytest
from hypothesis import given, settings

import polymodel as pm
from polymodel.analysis.exact import ENGINE
from polymodel.analysis.result import Problem
from polymodel.cost.costs import costs
from polymodel.errors import Refused
from polymodel.mapping.looptree import looptree_text
from polymodel.report.explain import tile_relation
from polymodel.report.fusion import retained, unbound
from polymodel.report.report import Report
from polymodel.report.show import show_text
from polymodel.report.svg import looptree_svg
from polymodel.schedule.relations import schedule_relation
from tests.analysis.test_agreement import SETTINGS, drawing
from tests.conv_pair import COLUMNS, HOLD, ROWS, pair_text
from tests.fused import fused_problems
from tests.seeds import seeds


def pair(folder: Path, nodes: str, weights: str = "") -> pm.Spec:
    """Two 3 x 3 convolutions, 10 x 10 of F2 for 8 x 8 of F3; `weights`: storage above everything."""
    text = pair_text(weights + nodes)
    file = folder / "pair.yaml"
    file.write_text(text)
    return pm.load(str(file))


def test_recomputation_and_the_reads_it_costs(tmp_path: Path) -> None:
    """Each of 2 x 2 tiles makes its 6 x 6 window of F2: 144 points for 100, 9 operations each."""
    onchip = "  - !Storage {component: GLB, tensors: [W1]}\n"
    inside = "  - !Storage {component: GLB, tensors: [F1]}\n"
    nodes = ROWS + COLUMNS + HOLD.replace("POLICY", "refill") + inside
    found = pm.evaluate(pair(tmp_path, nodes, onchip)).fusion
    assert list(found["einsum"].unique()) == ["Layer1"]
    assert set(found["inferred_by"]) == {"p2 (node 2), q2 (node 3)"}
    assert set(found["repeated_by"]) == {""}
    assert set(found["iterations"]) == set(found["executed_iterations"]) == {900}
    assert set(found["operations"]) == {9 * 144}
    assert set(found["recompute_factor"]) == {1.44}
    rows = {(r.component, r.tensor): r for r in found.itertuples()}
    # W1 is on chip and filled once; what is read more often is what compute reads.
    assert rows["DRAM", "W1"].extra_read_bits == 0
    assert rows["GLB", "W1"].extra_read_bits == 8 * 9 * 44
    # A window of F1 is 8 x 8; with F2 held it is what makes the new part of F2: 8 or 6 on each side.
    assert rows["DRAM", "F1"].read_bits == 8 * 4 * 64
    assert rows["DRAM", "F1"].retained_read_bits == 8 * (8 + 6) * (8 + 6)
    assert rows["DRAM", "F1"].extra_read_bits == 8 * (256 - 196)


def test_nothing_is_recomputed_where_all_is_held(tmp_path: Path) -> None:
    found = pm.evaluate(pair(tmp_path, HOLD.replace("POLICY", "refill") + ROWS + COLUMNS)).fusion
    assert set(found["recompute_factor"]) == {1.0}
    assert set(found["extra_read_bits"]) == {0}


def test_rows_that_no_consumer_needs_are_not_executed(tmp_path: Path) -> None:
    pair(tmp_path, ROWS + COLUMNS + HOLD.replace("POLICY", "slide"))
    file = tmp_path / "pair.yaml"
    file.write_text(file.read_text().replace("p2 + r2", "p2"))
    found = pm.evaluate(pm.load(str(file))).fusion
    assert set(found["iterations"]) == {900}
    assert set(found["executed_iterations"]) == {9 * 8 * 10}


@pytest.mark.slow
def test_a_report_without_inferred_loops_says_nothing_of_fusion(fused: Report, tmp_path: Path) -> None:
    assert "Fusion" not in str(fused)
    assert 'id="table-fusion"' not in fused.to_html(live=False)
    shown = pm.evaluate(pair(tmp_path, ROWS + HOLD.replace("POLICY", "refill")))
    assert "Fusion (recomputed operations" in str(shown)
    assert 'id="table-fusion"' in shown.to_html(live=False)
    assert "Fusion" in shown._repr_html_()


def test_loops_say_what_they_infer_and_repeat(tmp_path: Path, golden: Callable[[str, str], None]) -> None:
    spec = pair(tmp_path, ROWS + COLUMNS + HOLD.replace("POLICY", "slide"))
    assert spec.mapping is not None
    assert "for p2, tile 4  (infers Layer1)" in repr(spec.mapping)
    assert "for q2, tile 4  (infers Layer1)" in show_text(spec.workload, spec.arch, spec.mapping)
    assert "infers Layer1" in looptree_svg(spec.mapping, spec.workload)
    golden("inferred.txt", looptree_text(spec.mapping, spec.workload))
    golden("inferred.svg", looptree_svg(spec.mapping, spec.workload))


def test_the_schedule_of_an_inferred_einsum_has_several_stamps_for_what_is_recomputed(tmp_path: Path) -> None:
    spec = pair(tmp_path, ROWS + COLUMNS + HOLD.replace("POLICY", "refill"))
    assert spec.mapping is not None
    theta = spec.mapping.schedule("Layer1")
    assert not theta.is_single_valued()
    names = [theta.get_dim_name(isl.dim_type.out, i) for i in range(theta.dim(isl.dim_type.out))]
    assert names == ["p2_0", "q2_0", "split_4"]
    middle = isl.Set("{ Layer1[p1, r1, q1, s1] : p1 = 4 and r1 = 0 and q1 = 5 and s1 = 2 }").apply(theta)
    assert middle.is_equal(isl.Set("{ [p, q, 0] : 0 <= p <= 1 and 0 <= q <= 1 }"))
    assert theta.wrap().count_val().to_python() == 9 * 144


@pytest.mark.slow
@pytest.mark.parametrize("count", seeds(1, [6, 60]))
def test_schedules_and_tile_relations_have_what_is_counted(count: int) -> None:
    @settings(max_examples=count, **SETTINGS)
    @given(fused_problems().filter(unbound))
    def agree(problem: Problem) -> None:
        try:
            analysis = ENGINE.analyse(problem)
        except Refused:
            return
        for c in analysis.compute:
            theta = schedule_relation(problem.cascade, problem.tree, c.einsum)
            spatial = any(loop.spatial for _, loop in problem.tree.loops(c.einsum))
            assert spatial or theta.wrap().count_val().to_python() == c.operations, drawing(problem)
        for b in analysis.buffets:
            whole: isl.Map | None = None
            for e in b.einsums:
                mine = isl.Map(tile_relation(problem, e, b.node, b.tensor))
                whole = mine if whole is None else whole.union(mine)
            assert whole is not None
            assert whole.wrap().count_val().to_python() == b.tile_total, drawing(problem)
            assert whole.range().count_val().to_python() == b.distinct, drawing(problem)

    agree()


@pytest.mark.slow
@pytest.mark.parametrize("count", seeds(1, [6, 60]))
def test_retained_executes_each_iteration_once(count: int) -> None:
    @settings(max_examples=count, **SETTINGS)
    @given(fused_problems().filter(unbound))
    def once(problem: Problem) -> None:
        try:
            analysis = ENGINE.analyse(problem)
            other = ENGINE.analyse(retained(problem))
        except Refused:
            return
        table = Report(problem, analysis, costs(problem, analysis), ENGINE).table("fusion")
        made = {c.einsum: c.operations for c in other.compute}
        for r in table.records():
            factor = r["recompute_factor"]
            assert isinstance(factor, float)
            assert factor >= 1
            if not r["repeated_by"]:
                assert made[str(r["einsum"])] == r["executed_iterations"], drawing(problem)

    once()


@pytest.mark.parametrize("policy", ["slide", "keep_previous"])
def test_extra_reads_are_told_for_every_policy(tmp_path: Path, policy: str) -> None:
    found = pm.evaluate(pair(tmp_path, ROWS + COLUMNS + HOLD.replace("POLICY", policy))).fusion
    extra = {"slide": 9 * 20, "keep_previous": 9 * 16}[policy]
    assert set(found["extra_read_bits"]) == {8 * extra}


def test_a_comparison_has_what_recomputation_costs(tmp_path: Path) -> None:
    """The windows of F2 are made again, or held: 144 or 100 points, and W1 read as often by compute."""
    onchip = "  - !Storage {component: GLB, tensors: [W1]}\n"
    inside = "  - !Storage {component: GLB, tensors: [F1]}\n"
    nodes = ROWS + COLUMNS + HOLD.replace("POLICY", "refill") + inside
    again = pm.evaluate(pair(tmp_path, nodes, onchip))
    held = pm.evaluate(pair(tmp_path, HOLD.replace("POLICY", "refill") + ROWS + COLUMNS + inside, onchip))
    found = pm.compare(again, held)
    rows = {(str(r["quantity"]), str(r["where"])): (r["a"], r["b"]) for r in found.table().records()}
    assert len(rows) == len(found.table().rows)  # each is said once
    assert rows["recompute factor", "Layer1"] == (1.44, 1.0)
    assert ("recompute factor", "Layer2") not in rows
    assert rows["operations", "Layer1"] == (9 * 144, 900)
    assert rows["operations", "Layer2"] == (9 * 64, 9 * 64)
    assert rows["operations", ""] == (9 * 208, 900 + 9 * 64)
    assert rows["reads", "DRAM: F1"] == (8 * 256, 8 * 196)
    assert rows["reads", "GLB: W1"] == (8 * 9 * 144, 8 * 900)
    assert rows["writes", "DRAM: F3"] == (8 * 9 * 64, 8 * 9 * 64)
    for quantity in ("reads", "writes"):
        for component in ("DRAM", "GLB"):
            parts = [v for (q, w), v in rows.items() if q == quantity and w.startswith(f"{component}: ")]
            assert tuple(map(sum, zip(*parts, strict=True))) == rows[quantity, component]
    assert ("recompute factor", "Layer1") not in [
        (r["quantity"], r["where"]) for r in pm.compare(held, held).table().records()
    ]
