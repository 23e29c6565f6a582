"""Mappings without closed forms go through the same call: stores, processes, progress, interruption."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import polymodel as pm
from polymodel.sweeps import work_units
from tests.sweep.small import OBJECTIVES, matmul, same, without_forms

VALUES = {"TM": [1, 4, 7, 24, 25], "TN": [3, 20], "TK": [18, 5]}


@pytest.fixture(autouse=True)
def save_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_units, "SAVE_EVERY", 0.0)


KEEPS: list[dict[str, Any]] = [{"keep": "front"}, {"keep": "all"}, {"keep": "top", "top": 5}]


@pytest.mark.thin(99)
@pytest.mark.parametrize("kept", KEEPS, ids=str)
def test_workers_and_store_find_the_same(tmp_path: Path, kept: dict[str, Any]) -> None:
    options: dict[str, Any] = {"objectives": OBJECTIVES, "where": ["TM*TN < 400"], **kept}
    spec = without_forms(matmul())
    one = pm.sweep(spec, VALUES, **options)
    assert "one by one" in one.notes[0]
    assert len(one.frame) > 2
    same(pm.sweep(spec, VALUES, **options, workers=2), one)
    same(pm.sweep(spec, VALUES, **options, workers=2, store=tmp_path), one)
    same(pm.sweep(spec, VALUES, **options, workers=2, store=tmp_path), one)


@pytest.mark.parametrize("kept", KEEPS, ids=str)
@pytest.mark.thin(99)
def test_a_resumed_sweep_does_no_point_twice(
    tmp_path: Path, kept: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from polymodel.sweeps import pointwise

    options: dict[str, Any] = {"objectives": OBJECTIVES, **kept}
    spec = without_forms(matmul())
    whole = pm.sweep(spec, VALUES, **options)
    evaluated = 0
    evaluate = pointwise.evaluate

    def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal evaluated
        evaluated += 1
        return evaluate(*arguments, **named)

    monkeypatch.setattr(pointwise, "evaluate", counted)
    seen: list[tuple[int, int]] = []

    def interrupt(done: int, total: int, seconds: float) -> None:
        seen.append((done, total))
        if len(seen) in (4, 9):
            raise KeyboardInterrupt

    for _ in range(2):
        broken = pm.sweep(spec, VALUES, **options, store=tmp_path, progress=interrupt)
        assert not broken.complete
    again = pm.sweep(spec, VALUES, **options, store=tmp_path, progress=interrupt)
    same(again, whole)
    assert seen[0] == (1, 20)
    assert seen[-1] == (20, 20)
    # 16 points are legal mappings; the unit that an interrupt broke off is done again.
    assert evaluated <= 16 + 2
    same(pm.sweep(spec, VALUES, **options, store=tmp_path), whole)
    assert evaluated <= 16 + 2


def test_a_mixed_sweep_of_a_closed_form_and_single_points(tmp_path: Path) -> None:
    """Two mappings without closed forms beside the same architecture with them."""
    spec = without_forms(matmul())
    closed = matmul()
    assert spec.template is not None
    options: dict[str, Any] = {"mappings": [spec.template, spec.template], "keep": "all"}
    one = pm.sweep(spec, VALUES, **options)
    same(pm.sweep(spec, VALUES, **options, workers=2, store=tmp_path), one)
    assert one.frame["mapping"].nunique() == 2
    # The links cost nothing: the figures are those of the closed forms.
    forms = pm.sweep(closed, VALUES, keep="all")
    first = one.frame[one.frame["point"] < one.grid.size]
    assert first["energy"].tolist() == forms.frame["energy"].tolist()
    assert first["reads:DRAM"].tolist() == forms.frame["reads:DRAM"].tolist()


@pytest.mark.slow
def test_a_front_of_single_points_spills(tmp_path: Path) -> None:
    spec = without_forms(matmul())
    values = {"TM": [1, 2, 3, 4, 6, 8, 12], "TN": [1, 2, 5, 10, 20], "TK": [18]}
    whole = pm.sweep(spec, values, objectives=OBJECTIVES)
    spilled = pm.sweep(spec, values, objectives=OBJECTIVES, memory="4KB", store=tmp_path)
    same(spilled, whole)
    assert len(whole.frame) > 4
    same(pm.sweep(spec, values, objectives=OBJECTIVES, memory="4KB", store=tmp_path), whole)
