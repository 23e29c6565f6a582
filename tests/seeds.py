"""Cases of one test: some for every run, the others, which show the same again, for the slow one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def seeds(always: int, every: Iterable[Any]) -> list[Any]:
    """All of `every`, those after the first `always` marked slow."""
    return [case if k < always else _slow(case) for k, case in enumerate(every)]


def _slow(case: Any) -> Any:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.slow)
