"""The fewest tiles over all guillotine cuts on a coarse grid: a yardstick for small cases.

A guillotine cut divides a rectangle in two, from side to side. Every rectangle of the grid gets its optimum,
narrow ones before wide ones and low ones before high ones, all places of one size at once. A rectangle that
fits is never cut further, and other tilers may cut off the grid: the optimum is no bound for them.
"""

from __future__ import annotations

import numpy as np

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.tiling.cost.bounds import lower_bound
from polymodel.tiling.fits.faults import check_empty, check_single
from polymodel.tiling.fits.fit import Elements, Fit, Op
from polymodel.tiling.plane.pattern import Cut, Flags, Index, Ints, Pattern, Rects, ordered
from polymodel.tiling.tilers.grid import Measured
from polymodel.tiling.tilers.optima import Optima, optima

Grid = tuple[int, int]

# Cells per side unless `grid` says otherwise, and the points up to which that is not refused.
DEFAULT_LINES = 64
DEFAULT_POINTS = 20_000
# Of the table of rectangles (17.9 million for 64 x 64 cells).
MOST_RECTANGLES = 20_000_000


def guillotine(pattern: Pattern, op: Op, fit: Fit, grid: Grid | None = None) -> Cut:
    """The fewest tiles over guillotine cuts on a grid of `grid` cells (rows, columns), as even as it goes.

    Without `grid`: 64 cells a side, or one per line of a shorter side. Refused without `grid` above 20,000
    points, for large grids, and where a cell of the grid does not fit; SpecError where an entry does not.
    """
    table, lines = _searched(pattern, op, fit, grid, "one")
    rects = table.rectangles()
    rows, cols = lines
    found = Rects(
        rows[rects[:, 0]],
        cols[rects[:, 2]],
        rows[rects[:, 1]] - rows[rects[:, 0]],
        cols[rects[:, 3]] - cols[rects[:, 2]],
    )
    down = np.searchsorted(rows, pattern.rows, "right") - 1
    over = np.searchsorted(cols, pattern.cols, "right") - 1
    ids = _painted(rows.size, cols.size, rects)[down, over]
    note = f"optimum of guillotine cuts on {rows.size - 1} x {cols.size - 1} cells"
    return ordered(found, ids, "guillotine", (note,))


def min_nonskipped(pattern: Pattern, op: Op, fit: Fit, grid: Grid | None = None) -> int:
    """The fewest tiles that can have a result (add: A or B nonempty; multiply: both), over the same cuts.

    A rectangle that fits is not cut here either, so that it is no minimum over finer cuts. Errors as there.
    """
    table, _ = _searched(pattern, op, fit, grid, "result")
    return table.whole


def _painted(rows: int, cols: int, rects: Ints) -> Index:
    """Of every cell, the number of the rectangle that it is in: sums of signed numbers at the corners."""
    corners = np.zeros((rows, cols), dtype=np.int64)
    top, bottom, left, right = rects.T
    number = np.arange(rects.shape[0])
    for row, col, sign in ((top, left, 1), (top, right, -1), (bottom, left, -1), (bottom, right, 1)):
        np.add.at(corners, (row, col), sign * number)
    found: Index = corners.cumsum(axis=0).cumsum(axis=1).astype(np.int32)
    return found


def _searched(
    pattern: Pattern, op: Op, fit: Fit, grid: Grid | None, leaf: str
) -> tuple[Optima, tuple[Ints, Ints]]:
    lines = _lines(pattern, grid)
    check_empty(pattern, op, fit)
    measured = Measured.of(pattern, op, fit, lines)

    def of_height(height: int) -> tuple[Flags, Flags]:
        found = measured.of_height(height)
        if height == 1:
            _check_cells(pattern, op, fit, lines, found[0])
        return found

    rows, cols = (x.size - 1 for x in lines)
    least = lower_bound(pattern, op, fit) if type(fit) is Elements else 0
    return optima(rows, cols, of_height, least, leaf), lines


def _lines(pattern: Pattern, grid: Grid | None) -> tuple[Ints, Ints]:
    """Where the grid may be cut, along rows and along columns."""
    if grid is None:
        if pattern.points > DEFAULT_POINTS:
            what = f"guillotine looks at every cut of a grid; {pattern.name} has {pattern.points:,} places"
            raise Refused(f"{what}, more than {DEFAULT_POINTS:,}", "pass grid=(rows, columns), e.g. (64, 64)")
        grid = (DEFAULT_LINES, DEFAULT_LINES)
    faults = [
        Diagnostic(f"grid: {cells!r} is no number of cells", "write a pair of whole numbers above 0")
        for cells in (grid if isinstance(grid, tuple | list) and len(grid) == 2 else (grid,))
        if isinstance(cells, bool) or not isinstance(cells, int | np.integer) or cells < 1
    ]
    if faults:
        raise SpecError(faults)
    cells = tuple(min(int(g), size) for g, size in zip(grid, pattern.shape, strict=True))
    if ((cells[0] + 1) * (cells[1] + 1)) ** 2 > MOST_RECTANGLES:
        raise Refused(
            f"a grid of {cells[0]} x {cells[1]} cells has too many rectangles", "pass a coarser grid"
        )
    rows, cols = (
        np.rint(np.linspace(0, size, g + 1)).astype(np.int64)
        for g, size in zip(cells, pattern.shape, strict=True)
    )
    return rows, cols


def _check_cells(pattern: Pattern, op: Op, fit: Fit, lines: tuple[Ints, Ints], fits: Flags) -> None:
    """Refuses grids of which a cell does not fit."""
    over = np.argwhere(~fits[:, : lines[1].size - 1])  # pairs of one column come first
    if over.size:
        check_single(pattern, op, fit, Rects.of([(0, 0, 1, 1)]))
        rows, cols = lines
        r, c = (int(x) for x in over[0])
        cell = f"rows {rows[r]}..{rows[r + 1] - 1}, columns {cols[c]}..{cols[c + 1] - 1}"
        what = f"{len(over)} of {(rows.size - 1) * (cols.size - 1)} cells of the grid do not fit"
        remedy = "pass a finer grid, e.g. "
        finer = tuple(min(2 * (x.size - 1), size) for x, size in zip(lines, pattern.shape, strict=True))
        raise Refused(f"{what}, the first is {cell}", f"{remedy}grid={finer}, or take another tiler")
