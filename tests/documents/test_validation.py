"""docs/validation.md is what the checker finds now: `make reference CASES=DIR DATA=DIR` compares all of it,
and here the rows of the cases that the repository has."""

from __future__ import annotations

import pytest

from tests.documents import published, validation
from tests.documents.validation_words import ABOUT, FOLDERS, REASONS
from tests.reference import check
from tests.reference.common import Outcome

TEXT = validation.PAGE.read_text(encoding="utf-8")
PARTS = validation.split(TEXT)
REFRESH = "python -m tests.documents.validation --write"


@pytest.mark.slow  # `make reference` compares them as well
def test_published_figures() -> None:
    assert PARTS[published.PUBLISHED] == published.section(), REFRESH
    assert published.DIFFERENT not in TEXT


# Folders with a file for each case: their files here are those of the page.
@pytest.mark.thin(99)
@pytest.mark.parametrize("folder", ["accelforge", "timeloop", "skislope"])
def test_rows_of_the_cases_that_are_here(folder: str) -> None:
    part = PARTS[FOLDERS[folder][0]]
    rows = list(validation.folder_rows(check.HERE, folder))
    assert rows
    for row in rows:
        assert row.text(folder) in part, REFRESH


def test_all_sections_are_there() -> None:
    assert list(PARTS) == list(validation.makers(None, None))
    for title, part in PARTS.items():
        assert published.DIFFERENT not in part
        assert "not computed" not in part or title == published.PUBLISHED


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
