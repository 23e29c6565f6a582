"""What all rectangles of a coarse grid hold, one height at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polymodel.errors import Refused
from polymodel.tiling.fits.fit import Elements, Fit, Op
from polymodel.tiling.plane.counts import Counts, starts
from polymodel.tiling.plane.pattern import Flags, Index, Ints, Pattern, Rects
from polymodel.tiling.tilers.lines import summed, told
from polymodel.tiling.tilers.optima import pairs_of

# Points of all rectangles together, for fits that must be asked about each.
MOST_ASKED = 4_000_000
_NAMES = ("nnz_a", "nnz_b", "rows_a", "rows_b", "inner_a", "inner_b")


@dataclass(frozen=True, eq=False)
class Measured:
    """Whether rectangles of the grid fit, and whether they can have a result.

    `sums`: per figure of `Counts`, what the cells above each line hold between each pair of column lines
    (rows + 1 x pairs); entries alone for fits that must be asked. `first`, `last`: the pairs.
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
    def of(cls, pattern: Pattern, op: Op, fit: Fit, lines: tuple[Ints, Ints]) -> Measured:
        rows, cols = lines
        first, last = pairs_of(cols.size - 1)
        cells = (
            np.searchsorted(rows, pattern.rows, side="right") - 1,
            np.searchsorted(cols, pattern.cols, side="right") - 1,
        )
        found = cls(pattern, op, fit, lines, cells, first, last, {})
        sums = found.sums
        sums["nnz_a"], sums["nnz_b"] = found._entries(pattern.in_a), found._entries(pattern.in_b)
        if summed(fit) and type(fit) is not Elements:
            sums["rows_a"], sums["rows_b"] = found._rows(pattern.in_a), found._rows(pattern.in_b)
            sums["inner_a"], sums["inner_b"] = (
                found._entries(pattern.inner_a),
                found._entries(pattern.inner_b),
            )
        elif not summed(fit):
            found._check_effort()
        return found

    def _entries(self, weights: Index | None) -> Index:
        """Sums of the points' weights above each line, between each pair of column lines."""
        rows, cols = (x.size for x in self.lines)
        if weights is None:
            return np.zeros((rows, 1), dtype=np.int64)
        upto = np.zeros((rows, cols), dtype=np.int64)
        cell = self.cells[0] * (cols - 1) + self.cells[1]
        held = np.bincount(cell, weights=weights, minlength=(rows - 1) * (cols - 1))
        upto[1:, 1:] = held.reshape(rows - 1, cols - 1).astype(np.int64).cumsum(axis=0).cumsum(axis=1)
        return self._between(upto[:, self.last], upto[:, self.first])

    def _between(self, last: Ints, first: Ints) -> Index:
        """Differences of sums; short where sums of sums stay short too."""
        found: Index = (last - first).astype(np.int32 if self.pattern.points < 2**24 else np.int64)
        return found

    def _rows(self, which: Flags) -> Index:
        """Nonempty rows above each line, between each pair of column lines.

        A row counts for the pair (c, d) with the first of its filled cells from c on, if that is before d:
        with the cell whose predecessor in its row lies before c.
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
        return self._between(upto[:, self.last, self.first], upto[:, self.first, self.first])

    def of_height(self, height: int) -> tuple[Flags, Flags]:
        """For rectangles of `height` cells, [row, pair]: what fits, what has a result."""
        rows, cols = self.lines
        figures = {name: held[height:] - held[:-height] for name, held in self.sums.items()}
        if summed(self.fit):
            sides = ((rows[height:] - rows[:-height])[:, None], (cols[self.last] - cols[self.first])[None])
            none = np.zeros(1, dtype=np.int64)
            load = self.fit.loads(told(self.pattern, figures), Rects(none, none, *sides), self.op)
        else:
            load = self._asked(height)
        a, b = figures["nnz_a"] > 0, figures["nnz_b"] > 0
        useful = a | b if self.op == "add" else a & b
        return load <= self.fit.capacity, useful

    def _check_effort(self) -> None:
        rows, cols = (x.size - 1 for x in self.lines)
        (r, c), most = self.cells, MOST_ASKED
        points = int(((r + 1) * (rows - r) * (c + 1) * (cols - c)).sum())
        if points > most:
            what = f"the {rows} x {cols} cells' rectangles hold {points:,} points together"
            raise Refused(
                f"{what}; this fit is asked about up to {most:,}", "pass a coarser grid, or few points"
            )

    def _asked(self, height: int) -> Ints:
        """Loads of all rectangles of a height: of each, the points are listed."""
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
        counts = Counts(self.pattern.taken(who[order]), at[order], places * pairs)
        found: Ints = self.fit.loads(counts, rects, self.op).reshape(places, pairs)
        return found
