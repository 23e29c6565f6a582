"""Find the fewest tiles over all guillotine cuts on a coarse grid, as a reference for small cases.

A guillotine cut divides a rectangle in two, from side to side. The optimum is computed for every rectangle of
the grid, narrow ones before wide ones and low ones before high ones, for all positions of one size at once. A
rectangle that fits is never cut further, and other tilers may cut off the grid: the optimum is not a bound
for them.

The algorithm is a dynamic program over heights. All rectangles of one height are processed together: first
all cuts between rows, whose parts are lower and already known, then all cuts between columns, narrow
rectangles before wide ones. The first and the last column of a rectangle are encoded as one number, their
pair; pairs are ordered by width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.tiling.cost.model import lower_bound
from polymodel.tiling.fits.fit import Elements, Fit, Op, check_empty, check_single
from polymodel.tiling.plane.pattern import (
    Cut,
    Flags,
    Index,
    Ints,
    Pattern,
    Rects,
    TileCounts,
    ordered,
    starts,
)
from polymodel.tiling.tilers.lines import known_counts, summed

Grid = tuple[int, int]

# Default number of cells per side, and the maximum number of points for this default.
DEFAULT_LINES = 64
DEFAULT_POINTS = 20_000
# Of the table of rectangles (17.9 million for 64 x 64 cells).
MOST_RECTANGLES = 20_000_000


def guillotine(pattern: Pattern, op: Op, fit: Fit, grid: Grid | None = None) -> Cut:
    """Return a cut with the fewest tiles over guillotine cuts on a grid of `grid` cells (rows, columns) of
    nearly equal size.

    Without `grid` there are 64 cells a side, or one per line of a shorter side. Raises Refused without `grid`
    above 20,000 points, for large grids, and where a cell of the grid does not fit; SpecError where a single
    entry does not fit.
    """
    table, lines = _searched(pattern, op, fit, grid, "one")
    rects = table.rectangles()
    rows, cols = lines
    result = Rects(
        rows[rects[:, 0]],
        cols[rects[:, 2]],
        rows[rects[:, 1]] - rows[rects[:, 0]],
        cols[rects[:, 3]] - cols[rects[:, 2]],
    )
    down = np.searchsorted(rows, pattern.rows, "right") - 1
    over = np.searchsorted(cols, pattern.cols, "right") - 1
    ids = _painted(rows.size, cols.size, rects)[down, over]
    note = f"optimum of guillotine cuts on {rows.size - 1} x {cols.size - 1} cells"
    return ordered(result, ids, "guillotine", (note,))


def min_nonskipped(pattern: Pattern, op: Op, fit: Fit, grid: Grid | None = None) -> int:
    """Return the fewest tiles that can have a result (add: A or B nonempty; multiply: both), over the same
    cuts.

    A rectangle that fits is not cut here either, so that this is not a minimum over finer cuts. Raises the
    same errors as `guillotine`.
    """
    table, _ = _searched(pattern, op, fit, grid, "result")
    return table.whole


def _painted(rows: int, cols: int, rects: Ints) -> Index:
    """Return the number of the rectangle that contains each cell, from cumulative sums of signed numbers at
    the corners."""
    corners = np.zeros((rows, cols), dtype=np.int64)
    top, bottom, left, right = rects.T
    number = np.arange(rects.shape[0])
    for row, col, sign in ((top, left, 1), (top, right, -1), (bottom, left, -1), (bottom, right, 1)):
        np.add.at(corners, (row, col), sign * number)
    result: Index = corners.cumsum(axis=0).cumsum(axis=1).astype(np.int32)
    return result


def _searched(
    pattern: Pattern, op: Op, fit: Fit, grid: Grid | None, leaf: str
) -> tuple[Optima, tuple[Ints, Ints]]:
    lines = _lines(pattern, grid)
    check_empty(pattern, op, fit)
    measured = RectangleFits.of(pattern, op, fit, lines)

    def of_height(height: int) -> tuple[Flags, Flags]:
        result = measured.of_height(height)
        if height == 1:
            _check_cells(pattern, op, fit, lines, result[0])
        return result

    rows, cols = (x.size - 1 for x in lines)
    least = lower_bound(pattern, op, fit) if type(fit) is Elements else 0
    return optima(rows, cols, of_height, least, leaf), lines


def _lines(pattern: Pattern, grid: Grid | None) -> tuple[Ints, Ints]:
    """Return the lines at which the grid may be cut, along rows and along columns."""
    if grid is None:
        if pattern.points > DEFAULT_POINTS:
            what = f"guillotine looks at every cut of a grid; {pattern.name} has {pattern.points:,} places"
            message = f"{what}, more than {DEFAULT_POINTS:,}"
            raise Refused(message, "pass grid=(rows, columns), e.g. (64, 64)", code="too-large")
        grid = (DEFAULT_LINES, DEFAULT_LINES)
    faults = [
        Diagnostic(
            f"grid: {cells!r} is not a number of cells",
            "write a pair of whole numbers above 0",
            code="not-positive-integer",
        )
        for cells in (grid if isinstance(grid, tuple | list) and len(grid) == 2 else (grid,))
        if isinstance(cells, bool) or not isinstance(cells, int | np.integer) or cells < 1
    ]
    if faults:
        raise SpecError(faults)
    cells = tuple(min(int(g), size) for g, size in zip(grid, pattern.shape, strict=True))
    if ((cells[0] + 1) * (cells[1] + 1)) ** 2 > MOST_RECTANGLES:
        message = f"a grid of {cells[0]} x {cells[1]} cells has too many rectangles"
        raise Refused(message, "pass a coarser grid", code="too-large")
    rows, cols = (
        np.rint(np.linspace(0, size, g + 1)).astype(np.int64)
        for g, size in zip(cells, pattern.shape, strict=True)
    )
    return rows, cols


def _check_cells(pattern: Pattern, op: Op, fit: Fit, lines: tuple[Ints, Ints], fits: Flags) -> None:
    """Raise Refused for a grid with a cell that does not fit."""
    over = np.argwhere(~fits[:, : lines[1].size - 1])  # pairs of one column come first
    if over.size:
        check_single(pattern, op, fit, Rects.of([(0, 0, 1, 1)]))
        rows, cols = lines
        r, c = (int(x) for x in over[0])
        cell = f"rows {rows[r]}..{rows[r + 1] - 1}, columns {cols[c]}..{cols[c + 1] - 1}"
        what = f"{len(over)} of {(rows.size - 1) * (cols.size - 1)} cells of the grid do not fit"
        remedy = "pass a finer grid, e.g. "
        finer = tuple(min(2 * (x.size - 1), size) for x, size in zip(lines, pattern.shape, strict=True))
        message = f"{what}, the first is {cell}"
        raise Refused(message, f"{remedy}grid={finer}, or take another tiler", code="over-capacity")


# The most points of all rectangles together, for fits that must be evaluated for each rectangle.
MOST_ASKED = 4_000_000
_NAMES = ("nnz_a", "nnz_b", "rows_a", "rows_b", "inner_a", "inner_b")


@dataclass(frozen=True, eq=False)
class RectangleFits:
    """Whether rectangles of the grid fit, and whether they can have a result.

    `sums`: for each figure of `TileCounts`, the content of the cells above each line, between each pair of
    column lines (rows + 1 x pairs); only entries for fits that must be evaluated tile by tile. `first`,
    `last`: the pairs.
    """

    pattern: Pattern
    op: Op
    fit: Fit
    lines: tuple[Ints, Ints]
    cells: tuple[Ints, Ints]
    first: Ints
    last: Ints
    sums: dict[str, Index]

    @classmethod
    def of(cls, pattern: Pattern, op: Op, fit: Fit, lines: tuple[Ints, Ints]) -> RectangleFits:
        rows, cols = lines
        first, last = pairs_of(cols.size - 1)
        cells = (
            np.searchsorted(rows, pattern.rows, side="right") - 1,
            np.searchsorted(cols, pattern.cols, side="right") - 1,
        )
        result = cls(pattern, op, fit, lines, cells, first, last, {})
        sums = result.sums
        sums["nnz_a"], sums["nnz_b"] = result._entries(pattern.in_a), result._entries(pattern.in_b)
        if summed(fit) and type(fit) is not Elements:
            sums["rows_a"], sums["rows_b"] = result._rows(pattern.in_a), result._rows(pattern.in_b)
            sums["inner_a"], sums["inner_b"] = (
                result._entries(pattern.inner_a),
                result._entries(pattern.inner_b),
            )
        elif not summed(fit):
            result._check_effort()
        return result

    def _entries(self, weights: Index | None) -> Index:
        """Return sums of the points' weights above each line, between each pair of column lines."""
        rows, cols = (x.size for x in self.lines)
        if weights is None:
            return np.zeros((rows, 1), dtype=np.int64)
        upto = np.zeros((rows, cols), dtype=np.int64)
        cell = self.cells[0] * (cols - 1) + self.cells[1]
        held = np.bincount(cell, weights=weights, minlength=(rows - 1) * (cols - 1))
        upto[1:, 1:] = held.reshape(rows - 1, cols - 1).astype(np.int64).cumsum(axis=0).cumsum(axis=1)
        return self._differences(upto[:, self.last], upto[:, self.first])

    def _differences(self, last: Ints, first: Ints) -> Index:
        """Return differences of sums, as 32-bit numbers where sums of sums also fit into 32 bits."""
        result: Index = (last - first).astype(np.int32 if self.pattern.points < 2**24 else np.int64)
        return result

    def _rows(self, which: Flags) -> Index:
        """Return the number of nonempty rows above each line, between each pair of column lines.

        A row counts for the pair (c, d) at the first of its filled cells from c on, if that cell is before d.
        This is the cell whose predecessor in its row lies before c.
        """
        rows, cols = (x.size for x in self.lines)
        at, down, over = self.pattern.rows[which], self.cells[0][which], self.cells[1][which]
        new = starts(at, over.astype(np.int64))
        at, down, over = at[new], down[new], over[new]
        before = np.full(at.size, -1, dtype=np.int64)
        before[1:] = np.where(at[1:] == at[:-1], over[:-1], -1)
        number = (down * (cols - 1) + over) * cols + before + 1
        held = np.bincount(number, minlength=(rows - 1) * (cols - 1) * cols).reshape(rows - 1, cols - 1, cols)
        # [line, cell, c]: entries of cells with a predecessor before c, above the line; then over cells.
        upto = np.zeros((rows, cols, cols), dtype=np.int64)
        upto[1:, 1:] = held.cumsum(axis=0).cumsum(axis=2).cumsum(axis=1)
        return self._differences(upto[:, self.last, self.first], upto[:, self.first, self.first])

    def of_height(self, height: int) -> tuple[Flags, Flags]:
        """Return, for rectangles of `height` cells, [row, pair]: which fit, and which can have a result."""
        rows, cols = self.lines
        figures = {name: held[height:] - held[:-height] for name, held in self.sums.items()}
        if summed(self.fit):
            sides = ((rows[height:] - rows[:-height])[:, None], (cols[self.last] - cols[self.first])[None])
            none = np.zeros(1, dtype=np.int64)
            load = self.fit.loads(known_counts(self.pattern, figures), Rects(none, none, *sides), self.op)
        else:
            load = self._loads_of_height(height)
        a, b = figures["nnz_a"] > 0, figures["nnz_b"] > 0
        useful = a | b if self.op == "add" else a & b
        return load <= self.fit.capacity, useful

    def _check_effort(self) -> None:
        rows, cols = (x.size - 1 for x in self.lines)
        (r, c), most = self.cells, MOST_ASKED
        points = int(((r + 1) * (rows - r) * (c + 1) * (cols - c)).sum())
        if points > most:
            what = f"the {rows} x {cols} cells' rectangles hold {points:,} points together"
            message = f"{what}; this fit is asked about up to {most:,}"
            raise Refused(message, "pass a coarser grid, or few points", code="too-large")

    def _loads_of_height(self, height: int) -> Ints:
        """Return the loads of all rectangles of a height, by listing the points of each."""
        rows, cols = self.lines
        places, pairs = rows.size - height, self.first.size
        r, c = self.cells
        inside = (self.first[None] <= c[:, None]) & (c[:, None] < self.last[None])
        point, pair = np.nonzero(inside)
        ids: list[Ints] = []
        points: list[Ints] = []
        for below in range(height):
            top = r[point] - below
            real = (top >= 0) & (top < places)
            ids.append(top[real] * pairs + pair[real])
            points.append(point[real])
        at, who = np.concatenate(ids), np.concatenate(points)
        order = np.lexsort((who, at))
        first = np.arange(places)
        rects = Rects(
            np.repeat(rows[first], pairs),
            np.tile(cols[self.first], places),
            np.repeat(rows[first + height] - rows[first], pairs),
            np.tile(cols[self.last] - cols[self.first], places),
        )
        counts = TileCounts(self.pattern.taken(who[order]), at[order], places * pairs)
        result: Ints = self.fit.loads(counts, rects, self.op).reshape(places, pairs)
        return result


Numbers = NDArray[Any]  # uint8 or uint16
# A value above any number of tiles, by type; twice the value still fits in the type.
_NEVER = {np.uint8: 127, np.uint16: 1 << 14}


def pairs_of(cells: int) -> tuple[Ints, Ints]:
    """Return the first cell, and the cell after the last, of every interval of cells, narrow ones first."""
    cells_from = np.arange(cells)
    first = np.concatenate([cells_from[: cells - width] for width in range(cells)])
    width = np.repeat(np.arange(cells), np.arange(cells, 0, -1))
    return first, first + width + 1


@dataclass(frozen=True, eq=False)
class Optima:
    """`fewest`[h, r, p]: the optimum of the h rows of cells from r on, in the columns of pair p.

    `fits`: whether these rectangles fit as they are. `cols`: number of cells across.
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
        """Return the first row, the row after the last, the first column and the column after the last (in
        cells) of the tiles."""
        result: list[Ints] = []
        open_ = np.array([[0, self.rows, 0, self.cols]], dtype=np.int64)
        while open_.size:
            r, end, c, last = open_.T
            done = self.fits[end - r, r, self._pair(c, last)]
            result.append(open_[done])
            open_ = open_[~done]
            if open_.size:
                open_ = self._halves(open_)
        return np.concatenate(result)

    def _pair(self, first: Ints, last: Ints) -> Ints:
        """Return the number of a pair; negative if there is no such pair."""
        width = last - first
        result: Ints = (width - 1) * self.cols - (width - 1) * (width - 2) // 2 + first
        return result

    def _halves(self, open_: Ints) -> Ints:
        """Return both parts of each rectangle under the first cut that attains its optimum."""
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
    """Return the optima of all rectangles of rows x cols cells. Rectangles that fit are not cut.

    `of_height`: returns, for all rectangles of a height (positions x pairs), which fit and which have a
    result. `leaf`: the count of a tile, "one", or "result" (1 if it has a result, else 0). `least`: a lower
    bound of the optimum of the whole grid.
    """
    fits = np.zeros((rows + 1, rows, cols * (cols + 1) // 2), dtype=np.bool_)
    results = np.zeros_like(fits) if leaf == "result" else None
    for height in range(1, rows + 1):
        fits[height, : rows - height + 1], useful = of_height(height)
        if results is not None:
            results[height, : rows - height + 1] = useful
    # The optimum of a part is at most that of the whole, so that short numbers that hold the latter suffice.
    if least < _NEVER[np.uint8]:
        result = _filled(fits, results, cols, np.uint8)
        if result.whole < _NEVER[np.uint8]:
            return result
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
            # One tile is better than two in any case; two tiles without a result are better than one with.
            _between_columns(least, None if results is None else good, cols)
    return Optima(fewest, fits, cols)


def _between_columns(least: Numbers, done: Flags | None, cols: int) -> None:
    """Apply cuts between columns to the rectangles of one height (positions x pairs), except for those that
    are `done`."""
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
