"""SOURCE_DATE_EPOCH: a time that pages carry, or one clear fault."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import polymodel as pm
from polymodel.view import figures
from polymodel.view import figures as caches
from tests.faults import faults


@pytest.mark.parametrize(("text", "when"), [("", None), ("0", (1970, 1, 1)), ("-86400", (1969, 12, 31))])
def test_a_time_that_is_given(
    monkeypatch: pytest.MonkeyPatch, text: str, when: tuple[int, ...] | None
) -> None:
    monkeypatch.setenv(figures.NAME, text)
    assert figures.pinned() == (None if when is None else datetime(*when, tzinfo=UTC))
    monkeypatch.delenv(figures.NAME)
    assert figures.pinned() is None


@pytest.mark.parametrize("text", ["²", "today", "1.5", "9" * 20, "9" * 5000, "-" + "9" * 15])
def test_what_is_no_time_is_told_with_and_without_plots(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    report = pm.evaluate(pm.load("matmul", "simple_two_level", "matmul/output_stationary"))
    monkeypatch.setenv(figures.NAME, text)
    for plots in (True, False):
        with faults("not-a-number", at="SOURCE_DATE_EPOCH"):
            report.to_html(live=False, plots=plots)
    with faults("not-a-number", at="SOURCE_DATE_EPOCH"):
        caches.without_trace()
