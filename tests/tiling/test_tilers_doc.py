"""docs/tiling/tilers.md: its example and its table of trees are what the tilers make."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from polymodel.sparse.files import read_tensor
from polymodel.sparse.tensor import SparseTensor
from polymodel.tiling.fits.fit import Elements
from polymodel.tiling.plane.operands import Alone, pattern_of
from polymodel.tiling.plane.pattern import Cut, Pattern
from polymodel.tiling.tilers import trees
from polymodel.tiling.tilers.merge import merged

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/tiling/tilers.md").read_text(encoding="utf-8")


def table(head: str) -> list[list[str]]:
    """Head and rows of the table whose first column is headed so."""
    (text,) = re.findall(rf"^\| {head} \|.*\n(?:\|.*\n)+", PAGE, re.MULTILINE)
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in text.splitlines()]
    return [rows[0], *rows[2:]]


def made(name: str, pattern: Pattern, fit: Elements) -> Cut:
    tiler, _, after = name.partition("+")
    if name == "qtree+merge":
        return trees.qtree_merge(pattern, "add", fit)
    cut: Cut = getattr(trees, tiler)(pattern, "add", fit)
    return merged(pattern, "add", fit, cut) if after else cut


def drawn() -> Pattern:
    """The matrix that the page draws."""
    (text,) = re.findall(r"```text\n([1. \n]+)```", PAGE)
    array = np.array([[int(c == "1") for c in line.split()] for line in text.splitlines()])
    return pattern_of(SparseTensor.from_dense("A", ("I", "J"), array), Alone())


def test_the_example_is_cut_as_the_page_says() -> None:
    pattern = drawn()
    rows = table("tiler")[1:]
    assert len(rows) == 4
    for name, tiles, rects in rows:
        listed = [[int(n) for n in r.split(",")] for r in re.findall(r"\(([\d,]+)\)", rects)]
        found = made(name, pattern, Elements(3)).rects.table().tolist()
        assert (found, len(found)) == (listed, int(tiles))


def test_the_table_of_seed_matrices_is_what_is_counted() -> None:
    head, *rows = table("matrix")
    assert len(rows) == 6
    for name, *tiles in rows:
        pattern = pattern_of(read_tensor(str(ROOT / f"tests/data/matrices/{name}.mtx.gz")))
        assert [made(n, pattern, Elements(128)).tiles for n in head[1:]] == [int(t) for t in tiles]
