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
    assert read == "23884 4036 19848"
    assert csr.split()[:3] == ["1429024", str(1429024 - 635136), "635136"]
    assert round(float(csr.split()[3]), 2) == 0.44
    exact, expected = dcsr.split()
    number, counted, predicted = tiles.split()
    assert lane.endswith("] 5 0")
    words = " ".join(TEXT.split())
    for sentence in (
        "stores 23884 entries, of which 4036 are zeros: 19848 nonzeros are left",
        "4961 x 32 + 19848 x 64 = 1429024 bits, 635136 of them values: 44 %",
        f"DCSR takes {exact} bits",
        f"are expected to take {float(expected):.1f}.",
        f"has {number} nonempty ones that take {counted} bits",
        f"and take {float(predicted):.1f}:",
        f"5 x 2 x (32 + 2 x 16) = {ciss} bits",
    ):
        assert sentence in words, sentence
