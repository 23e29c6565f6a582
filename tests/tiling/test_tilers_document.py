"""docs/tiling/tilers.md: its examples of strips and panels, and its table of bounds, are what tilers make."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np

from polymodel.sparse.files import read_tensor
from polymodel.sparse.tensor import SparseTensor
from polymodel.tiling.cost.model import costs, lower_bound
from polymodel.tiling.fits.fit import Elements
from polymodel.tiling.plane.operands import Alone, pattern_of
from polymodel.tiling.tilers.named import cut

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/tiling/tilers.md").read_text(encoding="utf-8")


def table(head: str) -> list[list[str]]:
    """Head and rows of the table whose first column is headed so."""
    (text,) = re.findall(rf"^\| {head} \|.*\n(?:\|.*\n)+", PAGE, re.MULTILINE)
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in text.splitlines()]
    return [rows[0], *rows[2:]]


def test_the_example_is_cut_as_the_page_says() -> None:
    (drawn,) = re.findall(r"```text\n([1. \n]+)```", PAGE)
    array = np.array([[int(c == "1") for c in line.split()] for line in drawn.splitlines()])
    pattern = pattern_of(SparseTensor.from_dense("A", ("I", "J"), array), Alone())
    rows = table("cut by")[1:]
    assert [row[0] for row in rows] == ["strips", "columns", "panels", "guillotine", "best"]
    for name, tiles, rects in rows:
        listed = [[int(n) for n in r.split(",")] for r in re.findall(r"\(([\d,]+)\)", rects)]
        found = cut(pattern, "add", Elements(3), name, "tiles").rects.table().tolist()
        assert (found, len(found)) == (listed, int(tiles))


def test_the_table_of_bounds_is_what_is_counted() -> None:
    head, *rows = table("pattern")
    fit, ratios = Elements(128), []
    assert len(rows) == 13
    for name, bound, *kernels, best, ratio, winner in rows:
        pattern = pattern_of(read_tensor(ROOT / f"tests/data/matrices/{name}.mtx.gz"))
        counted = [
            costs(pattern, cut(pattern, "add", fit, t), "add", fit).kernels
            for t in head[2 : 2 + len(kernels)]
        ]
        assert counted == [int(k) for k in kernels]
        found = cut(pattern, "add", fit, objective="tiles")
        assert (lower_bound(pattern, "add", fit), found.tiles, found.tiler) == (int(bound), int(best), winner)
        ratios.append(found.tiles / int(bound))
        assert f"{ratios[-1]:.3f}" == ratio
    (mean,) = re.findall(r"Geometric mean of best / bound: ([\d.]+)\.", PAGE)
    assert f"{math.exp(sum(map(math.log, ratios)) / 13):.3f}" == mean
