"""Faults told apart by code and place, because sentences may change. tests/bad has the sentences.

Where neither says what a fault is about, a test adds the names of its input that the message repeats.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import polymodel as pm


def _names(error: BaseException, names: tuple[str, ...]) -> None:
    """The message repeats each name, as a whole word."""
    missing = [n for n in names if not re.search(rf"(?<!\w){re.escape(n)}(?!\w)", str(error))]
    assert not missing, f"{missing} not in: {error}"


@contextmanager
def faults(code: str, *names: str, at: str) -> Iterator[pytest.ExceptionInfo[pm.SpecError]]:
    """The block raises a SpecError with this fault alone, whose message has these names."""
    with every_fault((code, at)) as raised:
        yield raised
    _names(raised.value, names)


@contextmanager
def every_fault(*expected: tuple[str, str]) -> Iterator[pytest.ExceptionInfo[pm.SpecError]]:
    """The block raises a SpecError with exactly these faults, each a code and a place."""
    with pytest.raises(pm.SpecError) as raised:
        yield raised
    assert [(d.code, d.path) for d in raised.value.diagnostics] == list(expected)


@contextmanager
def refused(
    code: str, *names: str, kind: type[pm.Refused] = pm.Refused
) -> Iterator[pytest.ExceptionInfo[pm.Refused]]:
    """The block raises a refusal of this code, whose message has these names; a refusal has no place."""
    with pytest.raises(kind) as raised:
        yield raised
    assert raised.value.code == code, raised.value
    _names(raised.value, names)
