"""What users see of estimates: tables, pictures, CSV."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.patches import Rectangle

import polymodel as pm
from polymodel.errors import Refused, SpecError
from polymodel.report.tiling_estimates import estimate_shape

MATRIX = "tests/data/matrices/lp_e226.mtx.gz"


@pytest.fixture(scope="module")
def found() -> pm.TilingEstimates:
    return pm.estimate_tiling(MATRIX, tilers=["qtree", "strips"])


def test_estimates_stand_beside_what_tilers_make_of_the_data(found: pm.TilingEstimates) -> None:
    frame = found.frame
    assert list(frame["model"]) == ["uniform", "uniform", "rows", "rows"]
    for row in frame.to_dict("records"):
        made = pm.tile(MATRIX, tiler=row["tiler"])
        assert row["actual_tiles"] == made.costs.tiles
        assert row["actual_cycles"] == made.costs.total_cycles
        assert row["tiles_error"] == pytest.approx(row["tiles"] / made.costs.tiles - 1)
        assert row["total_cycles"] == pytest.approx(row["config_cycles"] + row["run_cycles"])
    # The rows are known, and strips of whole rows are cut by nothing else.
    assert frame["tiles_error"].iloc[3] == 0


def test_text_html_csv(found: pm.TilingEstimates, tmp_path: Path) -> None:
    text = str(found)
    assert "lp_e226: add, 128 elements" in text
    assert "rows: tiling 24 matrices drawn from the model (strips)" in text
    assert "<table>" in found._repr_html_()
    target = tmp_path / "found.csv"
    assert found.to_csv(target) == target.read_text(encoding="utf-8")
    assert len(target.read_text(encoding="utf-8").splitlines()) == 5
    assert repr(found) == "TilingEstimates(lp_e226: 4 estimates)"


def test_bars_are_the_figures(found: pm.TilingEstimates) -> None:
    ax = found.plot("tiles")
    heights = sorted(bar.get_height() for bar in ax.patches if isinstance(bar, Rectangle))
    table = found.frame
    actual = set(table["actual_tiles"])
    assert heights == pytest.approx(sorted([*table["tiles"], *actual]))
    assert ax.get_ylabel() == "tiles"
    with pytest.raises(SpecError, match="no quantity"):
        found.plot("beauty")


def test_models_alone_have_no_actual_figures() -> None:
    model = pm.Uniform.of(["I", "J"], [1000, 1000], density=0.01)
    told = pm.estimate_tiling(model, op="mul", fit=pm.elements(256), second=model)
    assert "actual" not in str(told).split("note")[0]
    assert list(told.frame["tiler"]) == ["simple", "qtree", "btree", "strips", "columns"]
    assert str(estimate_shape([1000, 1000], 0.01, fit=pm.elements(256))).startswith("1000 x 1000: add, 256")


def test_what_cannot_be_estimated_is_told() -> None:
    big = pm.Uniform.of(["I", "J"], [10**6, 10**6], nnz=10**9)
    told = pm.estimate_tiling(big, tilers=["qtree", "panels"])
    assert [f.estimate.tiler for f in told.found] == ["qtree"]
    assert any("panels (Uniform) is not estimated" in note for note in told.notes)
    with pytest.raises(Refused, match="panels"):
        pm.estimate_tiling(big, tilers=["panels"])
    with pytest.raises(SpecError, match="did you mean rows"):
        pm.estimate_tiling(MATRIX, models=["row"])
    with pytest.raises(SpecError, match="fitted to data"):
        pm.estimate_tiling(big, models=["rows"])


def test_models_by_name() -> None:
    tensor = pm.read_tensor(MATRIX)
    told = pm.estimate_tiling(tensor, models={"data": pm.Actual.of(tensor)}, tilers=["btree"])
    assert told.found[0].estimate.label == "exact"
    assert told.found[0].error("tiles") == told.found[0].error("total_cycles") == 0
