"""The chapter's example runs, and its tables are what comes out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

TEXT = (Path(__file__).parents[3] / "docs" / "tiling" / "matmul.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """The cells of the table with this first heading."""
    lines = TEXT.split(f"| {heading} |")[1].splitlines()[2:]
    table = lines[: next(n for n, line in enumerate([*lines, ""]) if not line.startswith("|"))]
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in table]


@pytest.fixture(scope="module")
def names() -> dict[str, Any]:
    found: dict[str, Any] = {}
    (block,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    exec(block, found)
    return found


def test_orders_of_the_example(names: dict[str, Any]) -> None:
    given = names["given"]
    columns = ["order", "A_fetches", "B_fetches", "Z_visits", "A_read_words", "B_read_words", "Z_read_words"]
    frame = given.orders[[*columns, "Z_write_words", "total_words"]]
    assert [[str(cell) for cell in row] for row in frame.itertuples(index=False)] == rows("order")
    uniform = given.best.source
    told = re.search(
        r"has (\d+) candidate pairs, of which (\d+) are .*, (\d+) multiplies, and .* (\d+) words", TEXT
    )
    assert told
    counts = uniform.candidates, uniform.effectual, given.product.multiplies, given.compulsory_words
    assert [int(n) for n in told.groups()] == list(counts)
    assert f"{given.words} + 7 x 915 = {given.cycles:.0f} cycles" in TEXT


def test_strategies_of_the_example(names: dict[str, Any]) -> None:
    pm = names["pm"]
    found = pm.tile_matmul(names["a"], capacity=13, objective="words").candidates
    best = found.drop_duplicates("strategy")
    ours = [
        [r.strategy, r.tile, r.order, str(r.launches), str(r.total_words), f"{r.cycles:.0f}"]
        for r in best.itertuples()
    ]
    assert ours == rows("strategy")
