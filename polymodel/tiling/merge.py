"""Merging neighbours that share a whole side, after any tiler."""

from __future__ import annotations

import numpy as np

from polymodel.tiling.counts import Counts
from polymodel.tiling.fit import Fit, Op
from polymodel.tiling.pattern import Index, Ints, Pattern, Rects


def union_of(rects: Rects, one: Index, two: Index) -> Rects:
    """The rectangles that pairs of neighbours make together."""
    row, col = np.minimum(rects.row[one], rects.row[two]), np.minimum(rects.col[one], rects.col[two])
    bottom = np.maximum((rects.row + rects.height)[one], (rects.row + rects.height)[two])
    right = np.maximum((rects.col + rects.width)[one], (rects.col + rects.width)[two])
    return Rects(row, col, bottom - row, right - col)


def union_loads(
    pattern: Pattern, op: Op, fit: Fit, rects: Rects, ids: Index, pairs: tuple[Index, Index]
) -> Ints:
    """Loads of pairs of neighbours; no tile may be in two pairs.

    From points, not from sums: neighbours share rows.
    """
    number = np.full(rects.tiles, -1, dtype=np.int32)
    for members in pairs:
        number[members] = np.arange(members.size, dtype=np.int32)
    at = number[ids]
    kept = at >= 0
    counts = Counts(pattern.taken(kept), at[kept], pairs[0].size)
    return fit.loads(counts, union_of(rects, *pairs), op)


def joined(rects: Rects, pairs: tuple[Index, Index]) -> tuple[Rects, Index]:
    """Rectangles after pairs of them became one, in the first one's place, and everyone's new number."""
    one, two = pairs
    union = union_of(rects, one, two)
    table = rects.table()
    table[one] = union.table()
    stays = np.ones(rects.tiles, dtype=np.bool_)
    stays[two] = False
    number = np.cumsum(stays, dtype=np.int32) - np.int32(1)
    number[two] = number[one]
    return Rects.of(table[stays]), number
