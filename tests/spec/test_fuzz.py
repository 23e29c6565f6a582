"""Specs with random slips of the pen: refused with located faults or loaded, never anything else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polymodel as pm

TEXT = (Path(__file__).parent / "two_matmuls.yaml").read_text()
PIECES = re.split(r"(\W)", TEXT)
WORDS = sorted({p for p in PIECES if p.strip()}) + [
    "inf",
    "-1",
    "0",
    "1e400",
    "{}",
    "[]",
    "&a",
    "*a",
    "{{ 1 }}",
    "default",
]


def slipped(slips: list[tuple[int, str]]) -> str:
    found = list(PIECES)
    for at, word in slips:
        found[at % len(found)] = word
    return "".join(found)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from([*WORDS, "", " ", "\n"])), max_size=4))
def test_slips(tmp_path_factory: pytest.TempPathFactory, slips: list[tuple[int, str]]) -> None:
    path = tmp_path_factory.getbasetemp() / "slip.yaml"
    path.write_text(slipped(slips), encoding="utf-8")
    faults: tuple[pm.Diagnostic, ...] = ()
    try:
        pm.load(path)
    except pm.SpecError as error:
        faults = error.diagnostics
    for found in faults:
        assert found.place.file == str(path)
        assert found.place.line > 0
        assert found.place.column > 0
        assert found.remedy
