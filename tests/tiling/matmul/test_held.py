"""Tiles as they are listed, against parts of dense arrays: dynamic ones of either operand, and panels."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from polymodel.tiling.matmul.dynamic import GROWS, Dynamic, Grow, dynamic
from polymodel.tiling.matmul.held import TileRows, tile_rows, worked
from polymodel.tiling.matmul.panels import panels_of
from polymodel.tiling.matmul.product import product_of
from tests.tiling.matmul.drawn import factors, tensors
from tests.tiling.matmul.slow import points, words
from tests.tiling.matmul.test_dynamic import BUFFERS


def parts(tiles: TileRows, dense: np.ndarray) -> list[np.ndarray]:
    """What lies in each rectangle; no two are the same."""
    table = [tuple(row) for row in tiles.rects.table().tolist()]
    assert table == sorted(set(table), key=lambda r: (r[0], r[1], r[0] + r[2], r[1] + r[3]))
    return [dense[r : r + h, c : c + w] for r, c, h, w in table]


@settings(max_examples=60, deadline=None)
@given(factors(8), BUFFERS, st.sampled_from(["A", "B"]), st.sampled_from(GROWS))
def test_dynamic_tiles_are_what_lies_there(
    operands: tuple[np.ndarray, np.ndarray], buffers: tuple[int, int, int], stationary: str, grow: Grow
) -> None:
    a, b = operands
    found = dynamic(product_of(*tensors(a, b)), buffers, stationary, grow)  # type: ignore[arg-type]  # one of two
    assert found is not None
    tiles = tile_rows(found)
    for side, dense, room in zip(tiles[:2], (a, b), buffers[:2], strict=True):
        for part, nnz, many in zip(parts(side, dense), side.nnz, side.words, strict=True):
            assert nnz == part.sum()
            assert many == words(points(part)) <= room
    for part, nnz, many in zip(parts(tiles[2], a @ b > 0), tiles[2].nnz, tiles[2].words, strict=True):
        assert 0 < nnz <= part.sum()
        assert many <= min(words(points(part)), buffers[2])
    check_work(found, a, b)


def check_work(found: Dynamic, a: np.ndarray, b: np.ndarray) -> None:
    """Every launch takes both its tiles, and Z's region as all launches before have made it."""
    z = np.zeros((a.shape[0], b.shape[1]), dtype=bool)
    taken = [0, 0, 0, 0]
    at = [found.column(n).tolist() for n in ("outer", "outer_end", "k", "k_end", "inner", "inner_end")]
    for outer, outer_end, k, k_end, inner, inner_end in zip(*at, strict=True):
        rows, cols = slice(outer, outer_end), slice(inner, inner_end)
        if found.stationary == "B":
            rows, cols = cols, rows
        one, two = a[rows, k:k_end], b[k:k_end, cols]
        taken[0] += words(points(one))
        taken[1] += words(points(two))
        taken[2] += words(points(z[rows, cols]))
        z[rows, cols] |= one @ two > 0
        taken[3] += words(points(z[rows, cols]))
    assert worked(found) == tuple(taken)


@settings(max_examples=30, deadline=None)
@given(factors(8), st.integers(7, 60))
def test_panels_are_what_lies_there(operands: tuple[np.ndarray, np.ndarray], room: int) -> None:
    a, b = operands
    sides = tile_rows(panels_of(product_of(*tensors(a, b)), room, room))
    for side, dense in zip((sides[0], sides[2]), (a, a @ b > 0), strict=True):
        for part, nnz, many in zip(parts(side, dense), side.nnz, side.words, strict=True):
            assert (nnz, many) == (part.sum(), words(points(part)))
            assert part.shape[1] == dense.shape[1]
        assert side.nnz.sum() == dense.sum()
    for part, nnz, many in zip(parts(sides[1], b), sides[1].nnz, sides[1].words, strict=True):
        assert part.shape == (1, b.shape[1])
        assert (nnz, many) == (part.sum(), 2 * part.sum() + 2)
