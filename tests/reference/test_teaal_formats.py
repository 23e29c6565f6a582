"""The reference footprints and the golden of CISS."""

from __future__ import annotations

import json
from pathlib import Path

from tests.reference import teaal_formats
from tests.reference.check import HERE

FOOTPRINTS = HERE / "teaal" / "format_footprints.json"


def test_footprints() -> None:
    outcomes = teaal_formats.check(FOOTPRINTS)
    assert len(outcomes) == 3
    for outcome in outcomes:
        assert outcome.checked > 40
        assert not outcome.mismatches + [outcome.fault] * bool(outcome.fault)


def test_golden_lanes() -> None:
    (outcome,) = teaal_formats.check(HERE / "teaal" / "tensaurus_paper_facts.json")
    assert outcome.checked == 15
    assert not outcome.mismatches
    assert not outcome.fault


def test_a_wrong_number_and_a_wrong_case_are_told(tmp_path: Path) -> None:
    given = json.loads(FOOTPRINTS.read_text(encoding="utf-8"))
    given["cases"] = given["cases"][:2]
    given["cases"][0]["fibertree_bits"]["C_headers"]["total"] += 1
    del given["cases"][1]["shape"]
    path = tmp_path / "more_footprints.json"
    path.write_text(json.dumps(given))
    wrong, malformed = teaal_formats.check(path)
    assert wrong.mismatches == ["C_headers: total: ours 488, reference 489"] * 2
    assert malformed.fault.startswith("malformed case: ValueError: shape must be a list")
