"""The support table in the docs says what the code answers, cell by cell."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.features import FEATURES, Feature
from tests.support import table
from tests.support.table import DOORS, answer, main, stored, stored_cells


@pytest.mark.parametrize("feature", FEATURES, ids=lambda f: f.name.replace(" ", "_"))
@pytest.mark.thin(2)
def test_every_door_answers_as_the_table_says(feature: Feature) -> None:
    told = stored_cells()[feature.name]
    assert {door: answer(feature, door) for door in DOORS} == told


def test_the_table_has_every_feature_once() -> None:
    names = [f.name for f in FEATURES]
    assert len({*names}) == len(names)
    assert list(stored_cells()) == names
    assert stored()[1]


def test_a_cell_that_fails_does_not_keep_the_others_from_the_page(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def differs(feature: Feature) -> str:
        table.require_equal(feature.name, 1.0, 1.0, table.reference(feature))
        return table.YES

    page = tmp_path / "support.md"
    page.write_text(f"before\n{table.BEGIN}{table.END}after\n", encoding="utf-8")
    monkeypatch.setattr(table, "PAGE", page)
    monkeypatch.setattr(table, "DOORS", {"exact": table.exact, "sweep": differs})
    assert main([], FEATURES[:1]) == 1
    assert "| a product on two memories | yes | differs |" in page.read_text(encoding="utf-8")
    assert page.read_text(encoding="utf-8").endswith("after\n")
    assert "a product on two memories, sweep: Differs: " in capsys.readouterr().err
