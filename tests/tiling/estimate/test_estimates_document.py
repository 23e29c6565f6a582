"""docs/tiling/estimates.md: its example and its table of errors are what comes out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import polymodel as pm
from polymodel.report.tiling.estimates import TILERS
from tests.seeds import seeds

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/tiling/estimates.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in re.findall(r"^\|.*\|$", PAGE, re.MULTILINE)
][2:]


def test_the_example() -> None:
    model = pm.Uniform.of(["I", "J"], [1000, 1000], density=0.01)
    found = {f.estimate.tiler: f.estimate.tiles for f in pm.estimate_tiling(model).found}
    told = re.findall(
        r"`(\w+)` (?:makes )?(\d+\.?\d*)(?: tiles)?[,. ]", " ".join(PAGE.split("For 10^6")[0].split())
    )
    assert {name for name, _ in told} == set(TILERS)
    for name, tiles in told:
        assert found[name] == pytest.approx(float(tiles), abs=0.051)


def test_the_table_has_all_matrices() -> None:
    files = {p.name.removesuffix(".mtx.gz") for p in (ROOT / "tests/data/matrices").glob("*.mtx.gz")}
    assert {row[0] for row in ROWS} == files


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    seeds(
        6,
        sorted({row[0] for row in ROWS}, key=lambda name: (name in ("frame", "network", "programme"), name)),
    ),
)
def test_errors_on_the_shipped_matrices(name: str) -> None:
    found = pm.estimate_tiling(ROOT / f"tests/data/matrices/{name}.mtx.gz")
    told = {
        (row[1], tiler): int(cell)
        for row in ROWS
        if row[0] == name
        for tiler, cell in zip(TILERS, row[2:], strict=True)
    }
    errors = {(f.model, f.estimate.tiler): f.error("tiles") for f in found.found}
    assert errors.keys() == told.keys()
    for key, error in errors.items():
        assert error is not None
        # Whole percents; drawn data may differ in their last digit between versions of NumPy.
        assert 100 * error == pytest.approx(told[key], abs=0.6), key
