"""docs/tiling/tilers.md: its examples of strips and panels, and its table of bounds, are what tilers make."""

from __future__ import annotations

import math
import re

import pytest

from polymodel.sparse.files import read_tensor
from polymodel.tiling.cost.model import costs, lower_bound
from polymodel.tiling.fits.fit import Elements
from polymodel.tiling.plane.operands import pattern_of
from polymodel.tiling.tilers.named import cut
from tests.tiling.test_tilers_doc import PAGE, ROOT, drawn, table


@pytest.mark.slow
def test_the_example_is_cut_as_the_page_says() -> None:
    pattern = drawn()
    rows = table("cut by")[1:]
    assert [row[0] for row in rows] == ["strips", "columns", "panels", "guillotine", "best"]
    for name, tiles, rects in rows:
        listed = [[int(n) for n in r.split(",")] for r in re.findall(r"\(([\d,]+)\)", rects)]
        found = cut(pattern, "add", Elements(3), name, "tiles").rects.table().tolist()
        assert (found, len(found)) == (listed, int(tiles))


@pytest.mark.slow
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
