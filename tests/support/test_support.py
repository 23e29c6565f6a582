"""The support tables in the docs say what the code answers, cell by cell."""

from __future__ import annotations

from pathlib import Path

import pytest

import polymodel as pm
from tests.support import doors, page, requests, table
from tests.support.doors import DOORS
from tests.support.features import FEATURES, Feature

FEATURE_TABLE, REQUEST_TABLE = table.TABLES


@pytest.mark.parametrize("feature", FEATURES, ids=lambda f: f.name.replace(" ", "_"))
@pytest.mark.thin(30)
def test_every_door_answers_as_the_table_says(feature: Feature) -> None:
    stored = page.stored_cells(page.PAGE, FEATURE_TABLE.mark)[feature.name]
    assert {door: FEATURE_TABLE.cell(feature.name, door) for door in DOORS} == stored


@pytest.mark.parametrize("request_", requests.REQUESTS, ids=lambda r: r.name.replace(" ", "_"))
@pytest.mark.thin(99)
def test_every_search_answers_as_the_table_says(request_: requests.Request) -> None:
    stored = page.stored_cells(page.PAGE, REQUEST_TABLE.mark)[request_.name]
    assert {door: requests.answer(request_, door) for door in requests.ASKED} == stored


@pytest.mark.parametrize("found", table.TABLES, ids=lambda t: t.mark)
def test_the_page_has_every_row_once(found: table.SupportTable) -> None:
    assert list(page.stored_cells(page.PAGE, found.mark)) == list(found.rows)
    assert page.DIFFERS not in page.stored(page.PAGE, found.mark)[1]


def test_features_and_requests_have_names_of_their_own() -> None:
    for names in ([f.name for f in FEATURES], [r.name for r in requests.REQUESTS]):
        assert len({*names}) == len(names)


def test_a_cell_that_fails_does_not_keep_the_others_from_the_page(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def cell(number: int, door: str) -> str:
        if door == "other numbers":
            doors.require_close("energy", (number, 2 * number))
        if door == "refused":
            raise pm.Refused("not covered", "")
        return page.YES

    written = tmp_path / "support.md"
    begin, end = "<!-- mark: python -m tests.support.table -->\n", "<!-- end of mark -->\n"
    written.write_text(f"before\n{begin}{end}after\n", encoding="utf-8")
    monkeypatch.setattr(table, "PAGE", written)
    columns = ("fine", "other numbers", "refused")
    small = table.SupportTable(
        "mark", "row", {"one": 1}, columns, lambda n, d: page.answered(lambda: cell(n, d))
    )
    assert table.main([], (small,)) == 1
    assert capsys.readouterr().err == "one, other numbers: Differs: energy: ((1, 2),)\n"
    text = written.read_text(encoding="utf-8")
    assert "| one | yes | differs | no [1] |" in text
    assert text.startswith(f"before\n{begin}")
    assert text.endswith(f"{end}after\n")
