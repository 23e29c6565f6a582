"""Tiles of one size, halved until all of them fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np

from polymodel.errors import Refused
from polymodel.tiling.fits.fit import Fit, Op, check_empty, check_single
from polymodel.tiling.plane.counts import Counts
from polymodel.tiling.plane.pattern import Cut, Index, Pattern, Rects
from polymodel.tiling.tilers.dyadic import CHUNK

MOST_TILES = 1 << 24
Sizes = Callable[[Pattern, Op, Fit], tuple[int, int]]


def simple(pattern: Pattern, op: Op, fit: Fit, sizes: Sizes | None = None) -> Cut:
    """Tiles of one size over all of the plane, empty ones too; those at its end may be cut off.

    Raises SpecError where a single entry does not fit, Refused for more than 2^24 tiles (`grid` gives
    their size all the same). `sizes`: another `grid`, that keeps what it found.
    """
    height, width = (sizes or grid)(pattern, op, fit)
    down, across = (-(-n // size) for n, size in zip(pattern.shape, (height, width), strict=True))
    if down * across > MOST_TILES:
        raise Refused(
            f"{pattern.name}: tiles of {height} x {width} are {down} x {across} = {down * across} tiles,"
            f" more than {MOST_TILES}",
            "give a larger capacity, or take a tiler that leaves what is empty whole: qtree, btree or strips",
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
    """Height and width of the largest tiles that all fit: both halved from the whole, down to 1.

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
    """Some of the tiles that do not fit; None when all fit. Looks first near row `hint`."""
    none = pattern.taken(np.zeros(0, dtype=np.int64))
    empty = Rects.of([(0, 0, *size)])
    if not fit.fits(Counts(none, np.zeros(0, dtype=np.int32), 1), empty, op).all():
        return empty
    for piece in _blocks(pattern, size[0], hint):
        rects, ids = _tiles(pattern, piece, size)
        points = pattern.taken(piece)
        good = fit.fits(Counts(points, ids, rects.tiles), rects, op)
        if not good.all():
            return rects.taken(~good)
    return None


def _blocks(pattern: Pattern, height: int, hint: int) -> Iterator[slice]:
    """All points in pieces of whole rows of tiles, the piece around row `hint` first."""
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
    """The first point in this row or below it."""
    # A row of another kind of number would make a copy of all rows.
    return int(np.searchsorted(pattern.rows, pattern.rows.dtype.type(row)))


def _tiles(pattern: Pattern, piece: slice, size: tuple[int, int]) -> tuple[Rects, Index]:
    """The tiles that points of some rows of tiles are in, and each point's; empty tiles may be left out."""
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
