"""docs/tiling/operands.md: its example runs, and its numbers are right."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "tiling" / "operands.md").read_text(encoding="utf-8")


def test_the_example_and_its_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL):
        exec(compile(block, "operands.md", "exec"), names)
    places, *loads = capsys.readouterr().out.splitlines()
    wanted = [(0, 0, "A"), (0, 1, "B"), (0, 2, "A"), (0, 3, "B"), (1, 0, "B"), (1, 2, "B")]
    assert places == str([*wanted, (2, 1, "A"), (2, 3, "A")])
    add, multiply = ([line.split()[1] for line in loads if line.startswith(op)] for op in ("add", "multiply"))
    words = " ".join(TEXT.split())
    for sentence in (
        f"that is {add[0]} elements for add and {multiply[0]} for multiply",
        f"2 x 4 + 2 x 2 + 3 = {multiply[1]}; the output of add",
        f"is bounded by 8 entries in 3 rows, {add[1]} words",
        f"4 pointers and 4 x 2 words, {multiply[2]} bits, and the union 4 x 32 + 8 x 64 = {add[2]} bits",
        f"each takes 12 x 32 = {add[3]} bits",
    ):
        assert sentence in words, sentence
    assert add[3] == multiply[3]
