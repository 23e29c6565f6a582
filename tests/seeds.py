"""Seeds of generated problems: some for every run, the others for the slow one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def seeds(always: int, every: Iterable[int]) -> list[Any]:
    """All of `every`, those after the first `always` marked slow."""
    return [
        seed if k < always else pytest.param(seed, marks=pytest.mark.slow) for k, seed in enumerate(every)
    ]
