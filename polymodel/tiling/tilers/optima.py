"""The fewest tiles of every rectangle of a grid under guillotine cuts: a dynamic program over heights.

Rectangles of one height are looked at together: all cuts between rows first, whose parts are lower and
known, then all cuts between columns, narrow rectangles before wide ones. First and last column of a rectangle
have one number together, their pair; pairs are in order of their widths.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymodel.tiling.plane.pattern import Flags, Ints

Numbers = NDArray[Any]  # uint8 or uint16
# More than any number of tiles, by the kind of the numbers; its double is still one of the kind.
_NEVER = {np.uint8: 127, np.uint16: 1 << 14}


def pairs_of(cells: int) -> tuple[Ints, Ints]:
    """First cell and cell after the last of every interval of cells, narrow ones first."""
    cells_from = np.arange(cells)
    first = np.concatenate([cells_from[: cells - width] for width in range(cells)])
    width = np.repeat(np.arange(cells), np.arange(cells, 0, -1))
    return first, first + width + 1


@dataclass(frozen=True, eq=False)
class Optima:
    """`fewest`[h, r, p]: the optimum of the h rows of cells from r on, in the columns of pair p.

    `fits`: whether they fit as they are. `cols`: cells across.
    """

    fewest: Numbers
    fits: Flags
    cols: int

    @property
    def rows(self) -> int:
        return int(self.fewest.shape[0]) - 1

    @property
    def whole(self) -> int:
        return int(self.fewest[-1, 0, -1])

    def rectangles(self) -> Ints:
        """First row, row after the last, first column and column after the last (cells) of the tiles."""
        found: list[Ints] = []
        open_ = np.array([[0, self.rows, 0, self.cols]], dtype=np.int64)
        while open_.size:
            r, end, c, last = open_.T
            done = self.fits[end - r, r, self._pair(c, last)]
            found.append(open_[done])
            open_ = open_[~done]
            if open_.size:
                open_ = self._halves(open_)
        return np.concatenate(found)

    def _pair(self, first: Ints, last: Ints) -> Ints:
        """The number of a pair; below 0 where it is none."""
        width = last - first
        found: Ints = (width - 1) * self.cols - (width - 1) * (width - 2) // 2 + first
        return found

    def _halves(self, open_: Ints) -> Ints:
        """Both parts of each rectangle under the first cut that reaches its optimum."""
        r, end, c, last = open_.T[:, :, None]
        cut, across = np.arange(1, self.rows), np.arange(1, self.cols)
        upper, left = np.minimum(cut, end - r), np.minimum(across, last - c)
        fewest, pair = self.fewest, self._pair(c, last)
        rows = fewest[upper, r, pair] + fewest[end - r - upper, np.minimum(r + upper, self.rows - 1), pair]
        right = np.maximum(self._pair(c + left, last), 0)
        cols = fewest[end - r, r, self._pair(c, c + left)] + fewest[end - r, r, right]
        rows[cut >= end - r] = cols[across >= last - c] = 2 * _NEVER[fewest.dtype.type]
        chosen = np.argmin(np.concatenate([rows, cols], axis=1), axis=1)
        by_row = chosen < cut.size
        parts = np.stack([open_, open_])
        row, col = open_[:, 0] + chosen + 1, open_[:, 2] + chosen - cut.size + 1
        parts[0, by_row, 1] = parts[1, by_row, 0] = row[by_row]
        parts[0, ~by_row, 3] = parts[1, ~by_row, 2] = col[~by_row]
        return parts.reshape(-1, 4)


def optima(
    rows: int, cols: int, of_height: Callable[[int], tuple[Flags, Flags]], least: int, leaf: str
) -> Optima:
    """Optima of all rectangles of rows x cols cells. What fits is not cut.

    `of_height`: for all rectangles of a height (places x pairs), what fits and what has a result. `leaf`:
    what a tile counts, "one" or "result" (whether it has one). `least`: a bound of the whole's optimum.
    """
    fits = np.zeros((rows + 1, rows, cols * (cols + 1) // 2), dtype=np.bool_)
    results = np.zeros_like(fits) if leaf == "result" else None
    for height in range(1, rows + 1):
        fits[height, : rows - height + 1], useful = of_height(height)
        if results is not None:
            results[height, : rows - height + 1] = useful
    # A part has no larger optimum than the whole, so that short numbers are enough if they are for the whole.
    if least < _NEVER[np.uint8]:
        found = _filled(fits, results, cols, np.uint8)
        if found.whole < _NEVER[np.uint8]:
            return found
    return _filled(fits, results, cols, np.uint16)


def _filled(fits: Flags, results: Flags | None, cols: int, kind: type[np.uint8] | type[np.uint16]) -> Optima:
    never = _NEVER[kind]
    rows = fits.shape[1]
    fewest = np.zeros(fits.shape, dtype=kind)
    one = np.ones((), dtype=kind)
    for height in range(1, rows + 1):
        places = rows - height + 1
        good = fits[height, :places]
        leaf = one if results is None else results[height, :places].astype(kind)
        least = fewest[height, :places]
        least[:] = never
        if not good.all():
            both = np.empty_like(least)
            for upper in range(1, height):
                lower = fewest[height - upper, upper : upper + places]
                np.add(fewest[upper, :places], lower, out=both)
                np.minimum(least, both, out=least)
        np.copyto(least, leaf, where=good)
        if not good.all():
            # One tile is fewer than two anyway; two without a result are fewer than one with.
            _between_columns(least, None if results is None else good, cols)
    return Optima(fewest, fits, cols)


def _between_columns(least: Numbers, done: Flags | None, cols: int) -> None:
    """Lets the rectangles of one height (places x pairs), but for those `done`, be cut between columns."""
    places = least.shape[0]
    # [width, first or last column, place]: the cuts of all places are then one after the other in memory.
    by_first = np.zeros((cols + 1, cols, places), dtype=least.dtype)
    by_last = np.zeros((cols + 1, cols + 1, places), dtype=least.dtype)
    turned = np.ascontiguousarray(least.T)
    keep = None if done is None else np.ascontiguousarray(done.T)
    at = 0
    for width in range(1, cols + 1):
        pairs = slice(at, at + cols - width + 1)
        at = pairs.stop
        mine = turned[pairs]
        if width > 1:
            parts = by_first[1:width, : cols - width + 1] + by_last[width - 1 : 0 : -1, width:]
            few = np.minimum(mine, parts.min(axis=0))
            mine[:] = few if keep is None else np.where(keep[pairs], mine, few)
        by_first[width, : cols - width + 1] = by_last[width, width:] = mine
    least[:] = turned.T
