"""Cut into tiles of one size, which is halved until all tiles fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymodel.errors import Refused
from polymodel.tiling.fits.fit import Fit, Op, check_empty, check_single
from polymodel.tiling.plane.pattern import (
    Cut,
    Flags,
    Index,
    Ints,
    Pattern,
    Rects,
    TileCounts,
    points_by_operand,
)

# Counts of tiles that result from halving, without work per point and level.
#
# The positions of halving cuts do not depend on the data: rows and columns are divided into fixed intervals
# by repeated halving. One histogram over fine intervals of both (finer where the data are dense), with prefix
# sums along both, gives the content of any coarser tile by four look-ups.

# Heights and widths of tiles -> height and width of the first of their halves (the whole: no cut).
Halves = Callable[[Ints, Ints], tuple[Ints, Ints]]

CHUNK = 1 << 19
BINS = 1 << 21
# Points examined for each desired interval of columns.
_SAMPLE = 32
# A table of all columns is worth its memory while it has no more entries than this times the points.
TABLE = 4


def chunks(points: int) -> Iterator[slice]:
    """Yield the points in pieces, so that intermediate arrays stay small."""
    return (slice(at, min(at + CHUNK, points)) for at in range(0, points, CHUNK))


def edges(extent: int, held: Index, target: int) -> Ints:
    """Return the edges of intervals of an extent that result from repeated halving (the first half is the
    smaller one), and the end of the extent.

    Intervals are halved while they hold more than their share of the ascending coordinates `held`, so that
    there are about `target` of them, which are narrow where coordinates are dense.
    """
    share = held.size / target
    start, length = np.array([0], dtype=np.int64), np.array([extent], dtype=np.int64)
    found, number = [start, start + extent], 2
    # Isolated dense spots would each need a path of intervals, although few points remain to be processed.
    while start.size and number <= 2 * target:
        inside = np.diff(_below(held, np.stack([start, start + length], axis=1)), axis=1)[:, 0]
        halved = (inside > share) & (length > 1)
        start, length = start[halved], length[halved]
        first = length // 2
        found.append(start + first)
        number += start.size
        start, length = np.concatenate([start, start + first]), np.concatenate([first, length - first])
    at = np.concatenate(found)
    at.sort()
    return at


def _below(held: Index, at: Ints) -> Ints:
    # The keys have the type of the searched array, which would otherwise be copied.
    return np.searchsorted(held, at.astype(held.dtype))


def _some_columns(pattern: Pattern, target: int) -> Index:
    """Return the columns of the points, or of a sample that shows where most are, in ascending order."""
    most = _SAMPLE * target
    result = pattern.cols
    if result.size > most:
        result = result[np.random.default_rng(0).integers(0, result.size, most)]
    return np.sort(result)


def _depths(shape: tuple[int, int], halves: Halves, bins: int) -> tuple[int, int]:
    """Return how often rows and columns would be halved, all equally, before there were more than `bins`
    cells."""
    height, width = (np.array([n]) for n in shape)
    down = across = 0
    while True:
        first = halves(height, width)
        cuts_rows, cuts_cols = bool(first[0][0] < height[0]), bool(first[1][0] < width[0])
        if not (cuts_rows or cuts_cols) or 2 ** (down + across + cuts_rows + cuts_cols) > bins:
            return down, across
        height, width = (
            (height - first[0] if cuts_rows else height),
            (width - first[1] if cuts_cols else width),
        )
        down, across = down + cuts_rows, across + cuts_cols


@dataclass(frozen=True, eq=False)
class DyadicGrid:
    """Prefix sums of the operands' entries on a grid of intervals that result from halving.

    `rows`, `cols`: the grid's edges. `sums`: entries above and left of each crossing of edges, in one array
    for both operands together or one for each. `places`: the grid cell of each point, numbered row by row.
    """

    rows: Ints
    cols: Ints
    sums: tuple[NDArray[Any], ...]
    places: Index

    @classmethod
    def of(cls, pattern: Pattern, together: bool, halves: Halves) -> DyadicGrid:
        """Make a grid with about one cell per point, but at most some millions; entries of A and B are
        counted `together` or separately."""
        down, across = _depths(pattern.shape, halves, min(max(pattern.points, 64), BINS))
        # For a plane with one long and one short side, intervals of a few points each are fine enough.
        most = max(pattern.points // 8, 64)
        target = min(1 << down, most), min(1 << across, most)
        rows = edges(pattern.shape[0], pattern.rows, target[0])
        cols = edges(pattern.shape[1], _some_columns(pattern, target[1]), target[1])
        wide = np.int32 if pattern.points < 2**30 else np.int64
        sums = tuple(np.zeros((rows.size, cols.size), dtype=wide) for _ in range(1 if together else 2))
        places = np.empty(pattern.points, dtype=np.int32)
        column = _finder(pattern, cols)
        begins = _below(pattern.rows, rows)
        for piece in chunks(pattern.points):
            _count(pattern, piece, begins, column(pattern.cols[piece]), sums, places)
        for table in sums:
            np.cumsum(table, axis=0, out=table)
            np.cumsum(table, axis=1, out=table)
        return cls(rows, cols, sums, places)

    def aligned(self, rects: Rects) -> Flags:
        """Return which rectangles have all their sides on edges of the grid."""
        result = np.ones(rects.tiles, dtype=np.bool_)
        for at, grid in (
            (rects.row, self.rows),
            (rects.row + rects.height, self.rows),
            (rects.col, self.cols),
            (rects.col + rects.width, self.cols),
        ):
            result &= grid[np.searchsorted(grid, at)] == at
        return result

    def entries(self, rects: Rects) -> tuple[Ints, ...]:
        """Return the entries in rectangles of the grid, from each array of sums."""
        top, left, bottom, right = self._corners(rects)
        return tuple(
            t[bottom, right].astype(np.int64) - t[top, right] - t[bottom, left] + t[top, left]
            for t in self.sums
        )

    def painted(self, rects: Rects) -> Index:
        """Return the rectangle of every point. The rectangles have their sides on the grid, and cover all
        points.

        The array of cells is overwritten.
        """
        top, left, bottom, right = self._corners(rects)
        number = np.arange(rects.tiles, dtype=np.int32)
        paint = np.zeros((self.rows.size, self.cols.size), dtype=np.int32)
        # Each rectangle's number, added and subtracted at its corners such that sums give it inside.
        for at, across, sign in ((top, left, 1), (bottom, right, 1), (top, right, -1), (bottom, left, -1)):
            np.add.at(paint, (at, across), sign * number)
        np.cumsum(paint, axis=0, out=paint)
        np.cumsum(paint, axis=1, out=paint)
        flat = np.ascontiguousarray(paint[:-1, :-1]).ravel()
        for piece in chunks(self.places.size):
            self.places[piece] = flat[self.places[piece]]
        return self.places

    def _corners(self, rects: Rects) -> tuple[Ints, Ints, Ints, Ints]:
        return (
            np.searchsorted(self.rows, rects.row),
            np.searchsorted(self.cols, rects.col),
            np.searchsorted(self.rows, rects.row + rects.height),
            np.searchsorted(self.cols, rects.col + rects.width),
        )


def _finder(pattern: Pattern, cols: Ints) -> Callable[[Index], Index]:
    """Return a function from columns to intervals, which uses a table or, where that would be much larger
    than the points, a search."""
    if pattern.shape[1] <= TABLE * pattern.points + CHUNK:
        table = np.repeat(np.arange(cols.size - 1, dtype=np.int32), np.diff(cols))
        return lambda at: table[at]
    return lambda at: (np.searchsorted(cols, at, side="right") - 1).astype(np.int32)


def _count(
    pattern: Pattern,
    piece: slice,
    begins: Ints,
    column: Index,
    sums: tuple[NDArray[Any], ...],
    places: Index,
) -> None:
    """Add a piece of the points to the counts, and record their cells."""
    across = sums[0].shape[1] - 1
    first, last = (int(np.searchsorted(begins, at, side="right")) - 1 for at in (piece.start, piece.stop - 1))
    bounds = np.clip(begins[first : last + 2], piece.start, piece.stop)
    at = np.repeat(np.arange(last - first + 1, dtype=np.int32) * np.int32(across), np.diff(bounds)) + column
    places[piece] = at + np.int32(first * across)
    only_a, only_b, both = points_by_operand(pattern, at, (last - first + 1) * across, piece).T[1:]
    counted = (only_a + only_b + 2 * both,) if len(sums) == 1 else (only_a + both, only_b + both)
    for table, held in zip(sums, counted, strict=True):
        table[first + 1 : last + 2, 1:] += held.reshape(last - first + 1, -1)


MOST_TILES = 1 << 24
Sizes = Callable[[Pattern, Op, Fit], tuple[int, int]]


def simple(pattern: Pattern, op: Op, fit: Fit, sizes: Sizes | None = None) -> Cut:
    """Cut the whole plane into tiles of one size, including empty ones; tiles at its end may be smaller.

    Raises SpecError where a single entry does not fit, Refused for more than 2^24 tiles (`grid` returns their
    size nevertheless). `sizes`: a replacement for `grid` that caches its results.
    """
    height, width = (sizes or grid)(pattern, op, fit)
    down, across = (-(-n // size) for n, size in zip(pattern.shape, (height, width), strict=True))
    if down * across > MOST_TILES:
        raise Refused(
            f"{pattern.name}: tiles of {height} x {width} are {down} x {across} = {down * across} tiles,"
            f" more than {MOST_TILES}",
            "give a larger capacity, or take a tiler that leaves what is empty whole: qtree, btree or strips",
            code="too-large",
        )
    row, col = np.arange(down, dtype=np.int64) * height, np.arange(across, dtype=np.int64) * width
    rects = Rects(
        np.repeat(row, across),
        np.tile(col, down),
        np.repeat(np.minimum(height, pattern.shape[0] - row), across),
        np.tile(np.minimum(width, pattern.shape[1] - col), down),
    )
    ids = np.empty(pattern.points, dtype=np.int32)
    for at in range(0, pattern.points, CHUNK):
        piece = slice(at, at + CHUNK)
        ids[piece] = (pattern.rows[piece] // height) * across + pattern.cols[piece] // width
    return Cut(rects, ids, "simple")


def grid(pattern: Pattern, op: Op, fit: Fit) -> tuple[int, int]:
    """Return height and width of the largest tiles that all fit; both are halved from the whole, down to 1.

    Raises SpecError where a single entry does not fit.
    """
    check_empty(pattern, op, fit)
    height, width = pattern.shape
    hint = 0
    while True:
        found = _overfull(pattern, op, fit, (height, width), hint)
        if found is None:
            return height, width
        check_single(pattern, op, fit, found)
        hint = int(found.row[0])
        height, width = max(height // 2, 1), max(width // 2, 1)


def _overfull(pattern: Pattern, op: Op, fit: Fit, size: tuple[int, int], hint: int) -> Rects | None:
    """Return some of the tiles that do not fit; None if all fit. The search starts near row `hint`."""
    none = pattern.taken(np.zeros(0, dtype=np.int64))
    empty = Rects.of([(0, 0, *size)])
    if not fit.fits(TileCounts(none, np.zeros(0, dtype=np.int32), 1), empty, op).all():
        return empty
    for piece in _blocks(pattern, size[0], hint):
        rects, ids = _tiles(pattern, piece, size)
        points = pattern.taken(piece)
        good = fit.fits(TileCounts(points, ids, rects.tiles), rects, op)
        if not good.all():
            return rects.taken(~good)
    return None


def _blocks(pattern: Pattern, height: int, hint: int) -> Iterator[slice]:
    """Yield all points in pieces of whole rows of tiles, the piece around row `hint` first."""
    if not pattern.points:
        return
    bounds, at = [0], 0
    while at < pattern.points:
        # Up to the end of the row of tiles in which a chunk's last point lies.
        row = int(pattern.rows[min(at + CHUNK, pattern.points) - 1])
        at = _first(pattern, min((row // height + 1) * height, pattern.shape[0]))
        bounds.append(at)
    pieces = [slice(a, b) for a, b in pairwise(bounds)]
    middle = int(np.searchsorted(bounds, _first(pattern, hint), side="right")) - 1
    order = sorted(range(len(pieces)), key=lambda n: abs(n - middle))
    yield from (pieces[n] for n in order)


def _first(pattern: Pattern, row: int) -> int:
    """Return the first point in this row or below it."""
    # A number of another type would cause a copy of all rows.
    return int(np.searchsorted(pattern.rows, pattern.rows.dtype.type(row)))


def _tiles(pattern: Pattern, piece: slice, size: tuple[int, int]) -> tuple[Rects, Index]:
    """Return the tiles of the points of some rows of tiles, and the tile of each point; empty tiles may be
    left out."""
    height, width = size
    first = int(pattern.rows[piece.start]) // height
    last = int(pattern.rows[piece.stop - 1]) // height
    across = -(-pattern.shape[1] // width)
    at = (pattern.rows[piece].astype(np.int64) // height - first) * across + pattern.cols[piece] // width
    ids: Index
    if (last - first + 1) * across <= 4 * at.size:
        tiles, ids = np.arange((last - first + 1) * across), at
    else:
        tiles, ids = np.unique(at, return_inverse=True)
    row, col = (tiles // across + first) * height, tiles % across * width
    clipped = (np.minimum(size[n], pattern.shape[n] - start) for n, start in enumerate((row, col)))
    return Rects(row, col, *clipped), ids
