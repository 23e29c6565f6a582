"""Faults told apart by code and place, because sentences may change. tests/bad has the sentences."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import polymodel as pm


@contextmanager
def faults(code: str, at: str) -> Iterator[None]:
    """The block raises a SpecError with this fault alone. A refusal has no place, so its words tell it."""
    with pytest.raises(pm.SpecError) as raised:
        yield
    assert [(d.code, d.path) for d in raised.value.diagnostics] == [(code, at)]
