"""Sparse reports as tables, text and pages, and what rescaling does to every kind of record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polymodel as pm
from polymodel.report.export import as_data
from polymodel.report.sparse import TABLES
from polymodel.view.table import Column, shown
from tests.faults import faults
from tests.sparse.actions.test_outputs import FUSED

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def sparse() -> pm.SparseReport:
    return pm.evaluate(pm.load(ROOT / "docs" / "sparse" / "actions.yaml")).sparse


def test_every_table_has_units_and_rows(sparse: pm.SparseReport) -> None:
    for name in TABLES:
        table = sparse.table(name)
        assert table.rows or name == "intersections"
        frame = getattr(sparse, name, None)
        if frame is not None:
            assert list(frame.columns) == [c.name for c in table.columns]
    assert sparse.accesses.attrs["units"]["metadata_bits"] == "bit"
    with faults("unknown-name", at="table"):
        sparse.table("footprint")


def test_text_and_page_say_the_main_figures(sparse: pm.SparseReport, tmp_path: Path) -> None:
    text = str(sparse)
    assert "A 0.25" in text
    assert "expected" in text
    page = sparse.to_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page
    assert page.count("<h2>") == len(TABLES) + 1  # and how it was made
    assert "<table>" in sparse._repr_html_()
    assert repr(sparse).startswith("SparseReport(expected")


@pytest.mark.slow
def test_the_dense_report_carries_the_sparse_one(sparse: pm.SparseReport, tmp_path: Path) -> None:
    """Text, JSON and page say both, and `sparse_NAME` is a table like any other."""
    report = sparse.dense
    assert report.table("sparse_compute").records() == sparse.table("compute").records()
    data: Any = as_data(report, live=False)["sparse"]
    assert list(data["tables"]) == list(TABLES)
    assert data["total"]["energy_J"] == sparse.total_energy
    report.save(tmp_path)
    for name in ("report.txt", "report.html"):
        assert "On sparse data" in (tmp_path / name).read_text(encoding="utf-8")
    dense = pm.evaluate(pm.load("matmul/weight_stationary", "simple_two_level"))
    assert "sparse" not in as_data(dense, live=False)


def test_shares_of_nothing_have_no_sign_and_units_stand_in_cells_alone(sparse: pm.SparseReport) -> None:
    assert shown(-1e-9, Column("error", "1")) == "0.0 %"
    assert "edp Js" not in str(sparse)
    assert "dense edp " in str(sparse)


def test_the_summary_is_dense_beside_sparse(sparse: pm.SparseReport) -> None:
    (row, total) = sparse.table("summary").records()
    assert total["einsum"] == "total"
    assert row["dense_energy_J"] == pytest.approx(sparse.dense.total_energy)
    assert row["energy_J"] == pytest.approx(sparse.total_energy)
    assert row["speedup"] == pytest.approx(sparse.speedup)
    assert row["edp_Js"] == pytest.approx(sparse.total_energy * sparse.total_latency)


def test_pipelines_skip_as_well() -> None:
    """Of a pipeline whose stages skip half of their operations, the slots last half as long."""
    spec = {**FUSED, "mapping": {"nodes": [
        {**n, "type": "Pipeline"} if n["type"] == "Sequential" else n for n in FUSED["mapping"]["nodes"]
    ]}}  # fmt: skip
    spec["arch"] = {"nodes": [
        *FUSED["arch"]["nodes"][:2],
        *({"type": "Compute", "name": name, "actions": [{"name": "compute", "throughput": 1e9, "energy": 0}],
           "sparse": {"actions": [{"skip": "compute", "on": "Inputs"}]}} for name in ("MAC", "MAD")),
    ]}  # fmt: skip
    nodes = spec["mapping"]["nodes"][-1]["nodes"]
    second = {**nodes[1], "nodes": [*nodes[1]["nodes"][:-1], {**nodes[1]["nodes"][-1], "component": "MAD"}]}
    spec["mapping"]["nodes"][-1] = {**spec["mapping"]["nodes"][-1], "nodes": [nodes[0], second]}
    report = pm.evaluate(pm.load(spec))
    found = pm.sparsify(report, densities={"A": 0.5, "T": 0.5, "B": 1.0})
    assert [c.effectual / c.dense for c in found.counts.compute] == [0.5, 0.5]
    assert found.total_latency == pytest.approx(report.total_latency / 2)


def test_transfers_that_fill_whole_actions_are_spared_whole(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "sparse" / "actions.yaml").read_text(encoding="utf-8")
    file = tmp_path / "spec.yaml"
    file.write_text(
        text.replace("throughput: 8e9}", "throughput: 8e9, bits_per_action: 24}"), encoding="utf-8"
    )
    report = pm.evaluate(pm.load(file), engine="exact")

    def actions(of: pm.Report) -> float:
        return next(
            i.count for i in of.costs.energy if (i.component, i.tensor, i.action) == ("DRAM", "B", "read")
        )

    share = next(
        a.actual / a.dense
        for a in report.sparse.counts.accesses
        if (a.component, a.tensor, a.kind) == ("DRAM", "B", "reads_fill")
    )
    assert actions(report.sparse.result) == pytest.approx(actions(report) * share)


@pytest.mark.parametrize(
    ("tile", "model", "filled"),
    [(3, "rank_nnz", 128), (4, "rank_nnz", 128), (3, "sampled", 192), (4, "sampled", 128)],
)
def test_edge_tiles_of_models_that_know_places(tmp_path: Path, tile: int, model: str, filled: int) -> None:
    """DRAM skips B where a tile of A is empty; 8 rows are cut into threes or fours."""
    text = (ROOT / "docs" / "sparse" / "actions.yaml").read_text(encoding="utf-8")
    file = tmp_path / "spec.yaml"
    file.write_text(text.replace("tile_shape: 2}", f"tile_shape: {tile}}}"), encoding="utf-8")
    histogram = [0, 1, 5, 2, 0, 3, 0, 0]
    rows = [i for i, n in enumerate(histogram) for _ in range(n)]
    columns = [k for n in histogram for k in range(n)]
    data = pm.SparseTensor.from_coo("A", "MK", (8, 8), np.array([rows, columns]), np.ones(len(rows)))
    known = pm.Sampled.from_tensor(data) if model == "sampled" else pm.RankNnz.of("MK", (8, 8), histogram)
    found = pm.sparsify(pm.evaluate(pm.load(file)), densities={"A": known})
    fill = next(
        a for a in found.counts.accesses if (a.component, a.tensor, a.kind) == ("DRAM", "B", "reads_fill")
    )
    # Rows 0 to 2, 3 to 5 and 6 to 7, the last empty, which samples do not tell; or 0 to 3 and 4 to 7.
    noted = any("knows places" in note for note in found.notes)
    assert (noted, fill.label) == (
        (True, "bound") if (tile, model) == (3, "sampled") else (False, "expected")
    )
    assert fill.actual == pytest.approx(filled, rel=1e-3)
    empty = {"rank_nnz": {"histogram": [0, 0, 0, 0, 8, 3, 1, 1]}}
    spared = pm.sparsify(pm.evaluate(pm.load(file)), densities={"A": empty})
    left = next(
        a.actual / a.dense
        for a in spared.counts.accesses
        if (a.component, a.tensor, a.kind) == ("DRAM", "B", "reads_fill")
    )
    # Of two full tiles of three rows one is empty; the edge tile holds two nonzeros.
    assert left == pytest.approx(2 / 3 if tile == 3 else 1 / 2)


def test_a_machine_that_does_nothing_about_zeros_says_so(sparse: pm.SparseReport) -> None:
    plain = pm.evaluate(pm.load("matmul/weight_stationary", "simple_two_level"))
    found = pm.sparsify(plain, densities={"A": 0.1})
    assert found.total_energy == plain.total_energy
    assert "no component has `sparse:`" in str(found)
    assert "no component has" not in str(sparse)
