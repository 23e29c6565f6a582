"""What users see of estimates: tables, pictures, CSV."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.patches import Rectangle

import polymodel as pm
from polymodel.api.tilings import estimate_shape
from polymodel.errors import SpecError
from tests.faults import faults, refused

MATRIX = "tests/data/matrices/programme.mtx.gz"


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
    assert "programme: add, 128 elements" in text
    assert "rows: tiling 24 matrices drawn from the model (strips)" in text
    assert "<table>" in found._repr_html_()
    target = tmp_path / "found.csv"
    assert found.to_csv(target) == (target,)
    assert target.read_text(encoding="utf-8") == found.table("estimates").to_csv()
    assert len(target.read_text(encoding="utf-8").splitlines()) == 5
    assert repr(found) == "TilingEstimates(programme: 4 estimates)"


def test_bars_are_the_figures(found: pm.TilingEstimates) -> None:
    ax = found.plot("tiles")
    heights = sorted(bar.get_height() for bar in ax.patches if isinstance(bar, Rectangle))
    table = found.frame
    actual = set(table["actual_tiles"])
    assert heights == pytest.approx(sorted([*table["tiles"], *actual]))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("tiler", "tiles")
    assert ax.get_title() == "programme: add, 128 elements; what models expect beside the data"
    assert {t.get_text() for t in ax.texts} >= {str(n) for n in actual}, "its figure above each bar"
    with faults("unknown-name", "beauty", at=""):
        found.plot("beauty")


@pytest.mark.slow
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
    assert any(note.startswith("not estimated (Uniform): panels: ") for note in told.notes)
    with refused("too-large", "panels"):
        pm.estimate_tiling(big, tilers=["panels"])
    with faults("unknown-choice", "row", at=""):
        pm.estimate_tiling(MATRIX, models=["row"])
    with faults("ineffective-argument", "models", at=""):
        pm.estimate_tiling(big, models=["rows"])


@pytest.mark.slow
def test_reasons_are_told_once() -> None:
    told = pm.estimate_tiling(MATRIX, fit=pm.stored("CSR", 4096), models=["uniform", "rows"])
    assert "4,096 bits in CSR" in str(told)
    left = [note for note in told.notes if note.startswith("not estimated")]
    assert len(left) == 2
    assert "(rows): qtree, btree: how many bits in a format" in left[1]


def test_models_by_name() -> None:
    tensor = pm.read_tensor(MATRIX)
    told = pm.estimate_tiling(tensor, models={"data": pm.Actual.of(tensor)}, tilers=["btree"])
    assert told.found[0].estimate.label == "exact"
    assert told.found[0].error("tiles") == told.found[0].error("total_cycles") == 0


def test_models_and_tilers_that_say_nothing_are_told() -> None:
    small = pm.Uniform.of(["I", "J"], [5, 5], density=0.1)
    for models, what in (
        ([], "no model is named"),
        ({}, "no model is named"),
        ({"m": 3, "u": small}, r"m: 3 is not a density model[\s\S]*u: the model is 5 x 5, programme 222 x"),
        ("row", "there is no model 'row'"),
    ):
        with pytest.raises(SpecError, match=what):
            pm.estimate_tiling(MATRIX, models=models)  # type: ignore[arg-type]  # wrong on purpose
    with faults("missing-argument", at=""):
        pm.estimate_tiling(MATRIX, tilers=[])
    one = pm.estimate_tiling(MATRIX, models="uniform", tilers="strips")
    assert [(f.model, f.estimate.tiler) for f in one.found] == [("uniform", "strips")]


@pytest.mark.slow
def test_a_tiler_that_refuses_the_data_does_not_keep_the_others_from_being_estimated() -> None:
    """A block in a corner makes `simple` take tiles of 2 x 2, of which there are 2.25 x 10^10."""
    block = np.stack(np.divmod(np.arange(100), 10))
    coords = np.concatenate([block, [[299_999], [299_999]]], axis=1)
    wide = pm.SparseTensor.from_coo("W", ("I", "J"), (300_000, 300_000), coords, np.ones(101))
    found = pm.estimate_tiling(wide, fit=pm.elements(8), models=["uniform"], tilers=["simple", "btree"])
    actual = {f.estimate.tiler: f.actual for f in found.found}
    assert actual["simple"] is None
    assert actual["btree"] is not None
    assert actual["btree"].tiles > 1
    assert any("simple does not tile the data: W: tiles of" in note for note in found.notes)


def test_more_rows_than_can_be_counted() -> None:
    long = pm.SparseTensor.from_coo("L", ("I", "J"), (10**12, 1), np.array([[7, 10**11], [0, 0]]), np.ones(2))
    assert {f.model for f in pm.estimate_tiling(long, tilers=["btree"]).found} == {"uniform"}
    with refused("too-large", "1,000,000,000,000"):
        pm.estimate_tiling(long, models=["rows"], tilers=["btree"])
