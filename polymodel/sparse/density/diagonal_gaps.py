"""Periodic gaps of diagonals: grids numbered row by row have links to the next cell except at each row's end.

Tiles of matrices with gaps are listed one by one, because they differ by their phase as well as by their
distance from the main diagonal.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import lcm

import numpy as np

from polymodel.frozen import dataclass
from polymodel.governor import look
from polymodel.sparse.density.model import Floats, Ints

# The most pairs of a tile and a diagonal that are listed.
_MOST = 1 << 19

Gap = tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class PeriodicGaps:
    """The gap of each diagonal: its rows i with (i - start) mod period < length; length 0 for none."""

    period: Ints
    start: Ints
    length: Ints

    @classmethod
    def of(cls, offsets: Sequence[int], gaps: Sequence[tuple[int, int, int, int]]) -> PeriodicGaps:
        """Return the gap of each of these diagonals; `gaps`: offset, period, start and length of some."""
        known = {offset: gap for offset, *gap in gaps}
        table = np.array([known.get(o, (1, 0, 0)) for o in offsets], dtype=np.int64).reshape(len(offsets), 3)
        return cls(table[:, 0], table[:, 1], table[:, 2])

    @cached_property
    def common(self) -> int:
        """The number of rows after which all gaps repeat; 0 without gaps."""
        some = self.length > 0
        return lcm(*self.period[some].tolist()) if some.any() else 0

    def within(self, first: Ints, last: Ints) -> Ints:
        """Return the number of rows in gaps among rows first .. last - 1 (last axis: diagonals)."""
        return np.asarray(self._below(last) - self._below(first))

    def _below(self, row: Ints) -> Ints:
        whole, rest = np.divmod(row - self.start, self.period)
        result: Ints = whole * self.length + np.minimum(rest, self.length)
        return result

    def at(self, diagonal: int, rows: Ints) -> Ints:
        """Return 1 for each of these rows in the gap of a diagonal (its place among them), else 0."""
        inside = (rows - self.start[diagonal]) % self.period[diagonal] < self.length[diagonal]
        return np.asarray(inside, dtype=np.int64)

    def canonical(self, rects: Ints) -> Ints:
        """Return the rectangles moved up along the diagonals as far as all gaps allow."""
        result = rects.copy()
        result[:, :2] -= (np.minimum(rects[:, 0], rects[:, 1]) // self.common * self.common)[:, None]
        return result


def mirrored(offset: int, gap: Gap) -> Gap:
    """Return the gap of the diagonal `-offset` of a symmetric matrix."""
    period, start, length = gap
    return period, (start + offset) % period, length


def crossed_tiles(shape: tuple[int, int], tile: tuple[int, int], offsets: Ints) -> tuple[Ints, Floats]:
    """Return the tiles that diagonals cross (k x row, column, height, width), and how many tiles each
    represents. Of very many tiles, equally spaced rows of tiles represent their neighbours."""
    rows = np.arange(0, shape[0], tile[0], dtype=np.int64)
    weight = np.ones(rows.size)
    each = offsets.size * (tile[0] // tile[1] + 2)
    step = -(-rows.size * each // _MOST)
    if step > 1:
        # An odd step meets all phases of a period; the last row of tiles may be cut and counts once.
        chosen = np.append(np.arange(step // 2, rows.size - 1, step | 1), rows.size - 1)
        weight = np.full(chosen.size, (rows.size - 1) / max(chosen.size - 1, 1))
        weight[-1] = 1.0
        rows = rows[chosen]
    look("tiles of diagonals with gaps")
    height = np.minimum(tile[0], shape[0] - rows)
    low = np.maximum(rows[:, None] + offsets, 0)
    high = np.minimum(rows[:, None] + height[:, None] - 1 + offsets, shape[1] - 1)
    first, many = low // tile[1], np.where(high >= low, high // tile[1] - low // tile[1] + 1, 0)
    many = many.reshape(-1)
    place = np.arange(int(many.sum())) - np.repeat(np.cumsum(many) - many, many)
    at = np.repeat(np.repeat(np.arange(rows.size), offsets.size), many)
    wide = -(-shape[1] // tile[1])
    numbers = np.unique(at * wide + place + np.repeat(first.reshape(-1), many))
    at, column = np.divmod(numbers, wide)
    column = column * tile[1]
    width = np.minimum(tile[1], shape[1] - column)
    return np.stack([rows[at], column, height[at], width], axis=1), weight[at]
