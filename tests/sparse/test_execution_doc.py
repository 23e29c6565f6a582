"""docs/sparse/execution.md: its example prints what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs/sparse/execution.md").read_text(encoding="utf-8")


def test_the_example_prints_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (text,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    names: dict = {}
    exec(code, names)
    assert capsys.readouterr().out == text
    loads = {tuple(s): n for s, n in zip(*(a.tolist() for a in where(names["y"])), strict=True)}
    assert loads == {(0,): 4, (1,): 3}


def where(counts) -> tuple:
    return counts.times.space, counts.times.load
