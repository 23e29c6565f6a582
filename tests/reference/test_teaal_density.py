"""Reference statistics of uniform random data, and that a wrong number or a broken case is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.reference import teaal, teaal_density

HERE = Path(__file__).parent / "cases" / "teaal"
FILES = {"density_uniform": "density", "tensaurus_expectation_mc": "expectations"}


@pytest.mark.thin(99)
@pytest.mark.parametrize("name", FILES)
def test_reference_agrees(name: str) -> None:
    path = HERE / f"{name}.json"
    assert teaal.topics_of(path) == [FILES[name]]
    outcomes = teaal_density.check(path)
    assert len(outcomes) == 4
    for outcome in outcomes:
        assert not outcome.fault
        assert not outcome.mismatches
        assert not outcome.notes
        assert outcome.checked >= 11


@pytest.mark.parametrize("name", FILES)
def test_wrong_numbers_and_broken_cases_are_told(name: str, tmp_path: Path) -> None:
    given = json.loads((HERE / f"{name}.json").read_text())
    first, second, third = given["cases"][:3]
    first["nnz"] += 12
    del second["monte_carlo" if name.startswith("tensaurus") else "exact"]
    third["nnz"] = -1
    path = tmp_path / "case.json"
    path.write_text(json.dumps(given))
    wrong, broken, refused, good = teaal_density.check(path)
    assert wrong.mismatches
    assert "must be a dict" in broken.fault
    assert "do not fit" in refused.fault
    assert not good.mismatches
