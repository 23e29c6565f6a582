"""The support table in the docs says what the code answers, cell by cell."""

from __future__ import annotations

import pytest

from tests.support.features import FEATURES, Feature
from tests.support.table import DOORS, answer, stored, stored_cells


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
