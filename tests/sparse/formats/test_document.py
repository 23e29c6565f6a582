"""docs/sparse/formats.md: its examples run, and its numbers are right."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs" / "sparse" / "formats.md").read_text(encoding="utf-8")


def test_examples_and_their_numbers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        exec(compile(block, "formats.md", "exec"), names)
    read, csr, dcsr, tiles, lane, ciss = capsys.readouterr().out.splitlines()
    assert read == "5318 886 4432"
    assert csr.split()[:3] == ["322080", str(322080 - 141824), "141824"]
    assert round(float(csr.split()[3]), 2) == 0.44
    exact, expected = dcsr.split()
    number, counted, predicted = tiles.split()
    assert lane.endswith("] 5 0")
    words = " ".join(TEXT.split())
    for sentence in (
        "stores 5318 entries, of which 886 are zeros: 4432 nonzeros are left",
        "1201 x 32 + 4432 x 64 = 322080 bits, 141824 of them values: 44 %",
        f"DCSR takes {exact} bits",
        f"are expected to take {float(expected):.1f}.",
        f"has {number} nonempty ones that take {counted} bits",
        f"and take {float(predicted):.1f}:",
        f"5 x 2 x (32 + 2 x 16) = {ciss} bits",
    ):
        assert sentence in words, sentence
