"""docs/validation.md is what the checker finds now: the page cannot be stale."""

from __future__ import annotations

import pytest

from tests.documents import published, validation
from tests.documents.validation_words import ABOUT, FOLDERS, REASONS
from tests.reference import check
from tests.reference.common import Outcome

TEXT = validation.PAGE.read_text(encoding="utf-8")
PARTS = validation.split(TEXT)
REFRESH = "python -m tests.documents.validation --write"


def test_published_figures() -> None:
    assert PARTS["Published figures"] == published.section(), REFRESH
    assert published.DIFFERENT not in TEXT


# Their numbers are compared in every run, by tests/reference; here it is the page's tables.
LONG = ("mapper", "teaal")


@pytest.mark.parametrize(
    "folder",
    [
        pytest.param(f, marks=pytest.mark.slow) if f in LONG else f
        for f in FOLDERS
        if FOLDERS[f][0] not in validation.WITH_DATA
    ],
)
def test_cases(folder: str) -> None:
    assert PARTS[FOLDERS[folder][0]] == validation.section(folder), REFRESH


def test_sections_about_matrices_of_public_collections_are_there() -> None:
    """`make reference DATA=DIR` compares them."""
    assert set(validation.WITH_DATA) <= set(PARTS)
    for title in validation.WITH_DATA:
        assert published.DIFFERENT not in PARTS[title]
        assert "not computed" not in PARTS[title]


def test_every_folder_and_every_case_has_a_place() -> None:
    """Also those that only the slow test runs."""
    assert {p.name for p in check.HERE.iterdir() if p.is_dir()} == set(FOLDERS)
    for path in check.files(check.HERE, ".yaml", ".json"):
        name = path.parent.name if path.name in ("spec.yaml", "result.json") else path.stem
        assert f"| {name} |" in TEXT, f"{name}: {REFRESH}"


def test_no_word_is_left_over() -> None:
    for start in REASONS:
        rows = [line for line in TEXT.splitlines() if line.startswith(f"| {start.split('/')[-1]}")]
        assert any(REASONS[start] in row for row in rows), start
    assert not [name for name in ABOUT if f"| {name} |" not in TEXT]


def test_a_difference_needs_a_reason() -> None:
    odd = validation.Row("odd", "a case", (Outcome("odd", 3, notes=["tool x: ours 1, the tool says 2"]),))
    with pytest.raises(KeyError, match="accelforge/odd: tool x"):
        odd.text("accelforge")
    wrong = validation.Row("wrong", "a case", (Outcome("wrong", 3, mismatches=["x: ours 1, reference 2"]),))
    with pytest.raises(ValueError, match="wrong: x: ours 1"):
        wrong.text("accelforge")
