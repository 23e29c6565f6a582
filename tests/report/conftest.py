"""Reports on small problems, counted by the enumerating engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from polymodel.analysis.enumerate import ENGINE
from polymodel.analysis.result import Problem
from polymodel.cost.costs import costs
from polymodel.report.report import Report
from tests.cost.cases import chain, multicast

GOLDEN = Path(__file__).parent / "golden"


def report_of(problem: Problem) -> Report:
    analysis = ENGINE.analyse(problem)
    return Report(problem, analysis, costs(problem, analysis), ENGINE, 0.01)


@pytest.fixture(scope="session")
def fused() -> Report:
    return report_of(chain())


@pytest.fixture(scope="session")
def spread() -> Report:
    return report_of(multicast())


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare text with a golden file. To renew one, delete it and run twice."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
            pytest.fail(f"{name} did not exist and was written; look at it and run again")
        assert text == path.read_text(encoding="utf-8")

    return check
