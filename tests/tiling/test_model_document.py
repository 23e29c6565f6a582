"""docs/tiling/model.md: its example runs, and its numbers are those that it prints."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

TEXT = (Path(__file__).resolve().parents[2] / "docs/tiling/model.md").read_text(encoding="utf-8")


def test_the_example_and_its_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    (block,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(compile(block, "model.md", "exec"), names)
    assert capsys.readouterr().out.splitlines() == [
        "add nonempty [8 0 4] [19  0 16] 2 1648 1683",
        "add all [8 0 4] [19 10 16] 3 2472 2517",
        "add elements 2 2",
        "add words 2 2",
        "multiply nonempty [4 0 2] [14  0 13] 2 1814 1841",
        "multiply all [4 0 2] [14 10 13] 3 2721 2758",
        "multiply elements 1 1",
        "multiply words 1 1",
    ]
    words = " ".join(TEXT.split())
    for said in (
        "8 + 7 + 4 = 19 cycles, the last 8 + 4 + 4 = 16",
        "2 x 824 = 1648 cycles, so all takes 1683",
        "3 x 824 + 45 = 2517",
        "8 + 6 = 14 cycles. In the last no row is in both: 0 tokens against 5, 13 cycles",
        "2 x 907 + 27 = 1841 cycles, with every tile launched 3 x 907 + 37 = 2758",
        "6 + 6 entries need 2 tiles of 8 elements",
    ):
        assert said in words, said


def test_the_table_of_tiles_is_that_of_the_pattern(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    exec(compile(re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)[0], "model.md", "exec"), names)
    capsys.readouterr()
    pattern, counts, ids = names["pattern"], names["found"].counts, names["cut"].ids
    rows = re.findall(r"^\| columns? [\d-]+ \| (.*?) \| (.*?) \| (\d+) \| (\d+) \|$", TEXT, re.MULTILINE)
    assert len(rows) == 3
    for tile, (a, b, union, lines) in enumerate(rows):
        for said, held in ((a, pattern.in_a), (b, pattern.in_b)):
            here = held & (ids == tile)
            places = zip(pattern.rows[here].tolist(), pattern.cols[here].tolist(), strict=True)
            assert said == (" ".join(f"({r},{c})" for r, c in places) or "none")
        assert (int(union), int(lines)) == (counts.union[tile], counts.rows_union[tile])
