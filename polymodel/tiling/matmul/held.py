"""The tiles of A, B and Z under a tiling: their rectangles, entries and words, and the words that the array
processes.

Uniform tiles are those that hold entries; for row panels each row of B is a tile; regions of Z of dynamic
tiles are given at their fullest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from polymodel.tiling.matmul.dynamic import Dynamic
from polymodel.tiling.matmul.panels import RowPanels
from polymodel.tiling.matmul.uniform import TensorTiles, UniformTiles
from polymodel.tiling.matmul.walk import before
from polymodel.tiling.plane.pattern import Flags, Index, Ints, Rects


@dataclass(frozen=True, eq=False)
class TileRows:
    """Tiles of one tensor, one per row: rectangles (rows of B are k), entries and words of each."""

    rects: Rects
    nnz: Ints
    words: Ints

    @property
    def tiles(self) -> int:
        return self.rects.tiles

    def taken(self, which: Index | Flags) -> TileRows:
        return TileRows(self.rects.taken(which), self.nnz[which], self.words[which])


def tile_rows(source: UniformTiles | RowPanels | Dynamic) -> tuple[TileRows, TileRows, TileRows]:
    """Return the tiles of A, of B and of Z."""
    if isinstance(source, UniformTiles):
        i, k, j = source.tile
        rows, inner, cols = source.product.extents
        return (
            _uniform(source.a, (i, k), (rows, inner)),
            _uniform(source.b, (k, j), (inner, cols)),
            _uniform(source.z, (i, j), (rows, cols)),
        )
    return _panels(source) if isinstance(source, RowPanels) else _dynamic(source)


def worked(source: UniformTiles | RowPanels | Dynamic) -> tuple[int, int, int, int]:
    """Return the words that the array reads of A, of B and of the partial sums of Z, and writes of Z, in all
    launches together.

    A resident tile is processed again in every launch; a panel is one launch.
    """
    if isinstance(source, UniformTiles):
        pairs = source.pairs
        return int(pairs.a.sum()), int(pairs.b.sum()), int(before(pairs).sum()), int(pairs.z.sum())
    if isinstance(source, RowPanels):
        a, b, z = (int(x[source.launched].sum()) for x in (source.a, source.b, source.z))
        return a, b, 0, z
    s, v, old, new = (int(source.column(name).sum()) for name in ("s", "v", "before", "after"))
    return (s, v, old, new) if source.stationary == "A" else (v, s, old, new)


def _uniform(tiles: TensorTiles, tile: tuple[int, int], shape: tuple[int, int]) -> TileRows:
    row, col = (at * size for at, size in zip(np.divmod(tiles.ids, tiles.shape[1]), tile, strict=True))
    height, width = np.minimum(shape[0] - row, tile[0]), np.minimum(shape[1] - col, tile[1])
    return TileRows(Rects(row, col, height, width), tiles.nnz, tiles.words)


def _panels(panels: RowPanels) -> tuple[TileRows, TileRows, TileRows]:
    p, at = panels.product, panels.begins[:-1]
    none = np.zeros_like(at)
    a, z = (
        TileRows(
            Rects(at, none, panels.heights, np.full_like(at, side.shape[1])),
            np.diff(side.starts[panels.begins]),
            words,
        )
        for side, words in ((p.a, panels.a), (p.z, panels.z))
    )
    k = np.flatnonzero(p.b.row_nnz)
    one, wide, nnz = np.ones_like(k), np.full_like(k, p.b.shape[1]), p.b.row_nnz[k]
    b = TileRows(Rects(k, np.zeros_like(k), one, wide), nnz, 2 * nnz + 2)
    return a.taken(a.nnz > 0), b, z.taken(z.nnz > 0)


def _dynamic(source: Dynamic) -> tuple[TileRows, TileRows, TileRows]:
    at = source.column
    s = _different(at, "outer", "k", "s")
    v = _different(at, "k", "inner", "v")
    z = _different(at, "outer", "inner", "after")
    if source.stationary == "A":
        return s, v, z
    return _turned(v), _turned(s), _turned(z)


def _turned(found: TileRows) -> TileRows:
    turned = TileRows(found.rects.transposed(), found.nnz, found.words)
    return turned.taken(np.lexsort((turned.rects.col, turned.rects.row)))


def _different(at: Callable[[str], Ints], rows: str, cols: str, name: str) -> TileRows:
    """Return the distinct rectangles, each with its largest contents."""
    nnz, words = at(f"{name}_nnz"), at(name)
    ranges = [at(rows), at(cols), at(f"{rows}_end"), at(f"{cols}_end")]
    order = np.lexsort([words, nnz, *reversed(ranges)])
    row, col, bottom, right = (x[order] for x in ranges)
    last = np.ones(order.size, dtype=np.bool_)
    same = [x[1:] == x[:-1] for x in (row, col, bottom, right)]
    last[:-1] = ~np.logical_and.reduce(same)
    result = TileRows(Rects(row, col, bottom - row, right - col), nnz[order], words[order])
    return result.taken(last)
