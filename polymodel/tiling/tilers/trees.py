"""Cut by repeatedly halving tiles that do not fit: a quad tree, a binary tree, and the quad tree with
siblings merged.

All tiles of one depth are evaluated at once. For entries a histogram gives the counts down to a fine grid
(`DyadicGrid`), and for words it gives bounds. Below the grid, where the bounds do not decide, and for any
other fit, the points of unfinished tiles carry the number of their tile from depth to depth, and those of
finished tiles are dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from polymodel.errors import Refused
from polymodel.tiling.fits.fit import Elements, Fit, Op, Stored, check_empty, check_single
from polymodel.tiling.plane.pattern import Cut, Flags, Index, Ints, Pattern, Rects, TileCounts, ordered
from polymodel.tiling.tilers.lines import known_counts, summed
from polymodel.tiling.tilers.merge import joined, union_loads
from polymodel.tiling.tilers.uniform import DyadicGrid, Halves, chunks
from polymodel.tiling.tilers.uniform import simple as simple

MOST_TILES = 1 << 24


@dataclass(frozen=True, eq=False)
class _DepthTiles:
    """Tiles of one depth: rectangles, the number of the split that each results from, and which of its
    quarters it is."""

    rects: Rects
    parent: Ints
    quarter: Ints

    def taken(self, which: Index) -> _DepthTiles:
        return _DepthTiles(self.rects.taken(which), self.parent[which], self.quarter[which])

    @classmethod
    def joined(cls, parts: list[_DepthTiles]) -> _DepthTiles:
        rects = (np.concatenate(c) for c in zip(*(p.rects.table().T for p in parts), strict=True))
        rest = (np.concatenate(c) for c in zip(*((p.parent, p.quarter) for p in parts), strict=True))
        return cls(Rects(*rects), *rest)


Leaves = Callable[[Pattern, Op, Fit], tuple[_DepthTiles, Index]]


def qtree(pattern: Pattern, op: Op, fit: Fit, leaves: Leaves | None = None) -> Cut:
    """Quarter tiles that do not fit, at half their height and half their width, until all tiles fit.

    Raises SpecError where a single entry does not fit, Refused above 2^24 tiles. `leaves`: a replacement for
    `quartered` that caches its results.
    """
    tiles, ids = (leaves or quartered)(pattern, op, fit)
    return ordered(tiles.rects, ids, "qtree")


def btree(pattern: Pattern, op: Op, fit: Fit) -> Cut:
    """Cut tiles that do not fit in two: along the width if it exceeds the height, else along the height.

    Raises SpecError where a single entry does not fit, Refused above 2^24 tiles.
    """
    tiles, ids = _grown(pattern, op, fit, _longer)
    return ordered(tiles.rects, ids, "btree")


def qtree_merge(
    pattern: Pattern, op: Op, fit: Fit, *, check_merge: bool = True, leaves: Leaves | None = None
) -> Cut:
    """Return the quad tree with sibling tiles merged, as in Tiler-Swift.

    Of the quarters of one split, first the upper two and the lower two, then the left two and the right two
    become one tile if both are tiles (not split further), neither has been merged before, and the union fits.
    `check_merge=False`: the fit of the union is not checked, as in the original program, so that tiles may
    overflow.
    """
    tiles, ids = (leaves or quartered)(pattern, op, fit)
    counts = TileCounts(pattern, ids, tiles.rects.tiles)
    quarter, merges = tiles.quarter.copy(), [(np.zeros(0, dtype=np.int64),) * 2]
    for quarters in (((0, 1), (2, 3)), ((0, 2), (1, 3))):
        pairs = _siblings(tiles.parent, quarter, quarters)
        if check_merge:
            good = union_loads(counts, tiles.rects, op, fit, pairs) <= fit.capacity
            pairs = pairs[0][good], pairs[1][good]
        merges.append(pairs)
        quarter[np.concatenate(pairs)] = -1
    rects, number = joined(tiles.rects, np.concatenate(merges, axis=1))
    return ordered(rects, number[ids], "qtree+merge")


def quartered(pattern: Pattern, op: Op, fit: Fit) -> tuple[_DepthTiles, Index]:
    """Return the tiles of a quad tree, and the tile of every point."""
    return _grown(pattern, op, fit, _quarters)


def _quarters(height: Ints, width: Ints) -> tuple[Ints, Ints]:
    return np.where(height > 1, height // 2, height), np.where(width > 1, width // 2, width)


def _longer(height: Ints, width: Ints) -> tuple[Ints, Ints]:
    wide = width > height
    return np.where(wide | (height == 1), height, height // 2), np.where(wide, width // 2, width)


def _grown(pattern: Pattern, op: Op, fit: Fit, halves: Halves) -> tuple[_DepthTiles, Index]:
    """Return the leaves of a tree, and the leaf of every point."""
    check_empty(pattern, op, fit)
    whole = Rects.whole(pattern.shape)
    root = _DepthTiles(whole, np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))
    tree = _SplitTree(pattern, op, fit, halves)
    if summed(fit) and pattern.points:
        return tree.by_grid(root)
    return tree.by_points([], root, np.zeros(pattern.points, dtype=np.int32))


@dataclass(eq=False)
class _SplitTree:
    pattern: Pattern
    op: Op
    fit: Fit
    halves: Halves
    splits: int = 1

    def by_grid(self, tiles: _DepthTiles) -> tuple[_DepthTiles, Index]:
        """Find tiles by the sums of a grid alone; where the grid is too coarse, continue with points."""
        grid = DyadicGrid.of(self.pattern, type(self.fit) is Elements and self.op == "add", self.halves)
        done: list[_DepthTiles] = []
        left: list[_DepthTiles] = []
        while tiles.rects.tiles:
            least, most = self._load_bounds(grid, tiles.rects)
            good, full = most <= self.fit.capacity, least > self.fit.capacity
            done.append(tiles.taken(good))
            left.append(tiles.taken(~good & ~full))
            tiles = tiles.taken(full)
            check_single(self.pattern, self.op, self.fit, tiles.rects)
            split = self._split(tiles)
            coarse = np.zeros(tiles.rects.tiles, dtype=np.bool_)
            coarse[split.parents()[~grid.aligned(split.quarters.rects)]] = True
            left.append(tiles.taken(coarse))
            tiles = split.quarters.taken(~coarse[split.parents()])
        finished, unfinished = _DepthTiles.joined(done), _DepthTiles.joined(left)
        ids = grid.painted(_DepthTiles.joined([finished, unfinished]).rects)
        del grid
        if not unfinished.rects.tiles:
            return finished, ids
        return self.by_points([finished], unfinished, ids)

    def _load_bounds(self, grid: DyadicGrid, rects: Rects) -> tuple[Ints, Ints]:
        """Return the minimum and maximum load of rectangles of a grid, from their entries alone."""
        held = grid.entries(rects)
        if type(self.fit) is Elements:
            exact = np.maximum.reduce(held)
            return exact, exact
        least: dict[str, Ints] = {}
        most: dict[str, Ints] = {}
        for name, nnz in zip("ab", held, strict=True):
            row = rects.width * self.pattern.depth  # entries that one row may have
            inner = nnz * max(self.pattern.levels - 2, 0)
            least |= {f"nnz_{name}": nnz, f"rows_{name}": -(-nnz // row), f"inner_{name}": np.zeros_like(nnz)}
            most |= {
                f"nnz_{name}": nnz,
                f"rows_{name}": np.minimum(nnz, rects.height),
                f"inner_{name}": inner,
            }
        each = [
            self.fit.loads(known_counts(self.pattern, figures), rects, self.op) for figures in (least, most)
        ]
        return each[0], each[1]

    def by_points(self, done: list[_DepthTiles], tiles: _DepthTiles, ids: Index) -> tuple[_DepthTiles, Index]:
        """Split `tiles` until all fit. `ids` number the tiles of `done` first, then those of `tiles`."""
        known = sum(d.rects.tiles for d in done)
        where = _positions(ids >= known) if known else None
        points, at = self.pattern, ids
        if where is None:
            ids = np.empty_like(ids)
        else:
            points, at = points.taken(where), ids[where] - np.int32(known)
        while tiles.rects.tiles:
            full = self._full(points, at, tiles.rects)
            if not full.all():
                number = np.where(full, -1, known + np.cumsum(~full) - 1).astype(np.int32)
                points, at, where = _unfinished(points, at, where, ids, number)
                done.append(tiles.taken(~full))
                known += done[-1].rects.tiles
                tiles = tiles.taken(full)
            check_single(self.pattern, self.op, self.fit, tiles.rects)
            split = self._split(tiles)
            split.move(points, at)
            tiles = split.quarters
        return _DepthTiles.joined(done), ids

    def _full(self, points: Pattern, at: Index, rects: Rects) -> Flags:
        """Return the tiles that do not fit; formats are not evaluated where entries alone are too many."""
        counts = TileCounts(points, at, rects.tiles)
        full = np.zeros(rects.tiles, dtype=np.bool_)
        if isinstance(self.fit, Stored):
            held = counts.union if self.op == "add" else np.maximum(counts.nnz_a, counts.nnz_b)
            full = held * self._entry_bits > self.fit.capacity
            if full.all():
                return full
        open_ = ~full
        if full.any():
            some = open_[at]
            number = np.cumsum(open_, dtype=np.int32) - np.int32(1)
            counts = TileCounts(points.taken(some), number[at[some]], int(np.count_nonzero(open_)))
        full[open_] = ~self.fit.fits(counts, rects.taken(open_), self.op)
        return full

    @cached_property
    def _entry_bits(self) -> int:
        return self.fit.entry_bits(self.pattern) if isinstance(self.fit, Stored) else 0

    def _split(self, tiles: _DepthTiles) -> _Split:
        rects = tiles.rects
        height, width = self.halves(rects.height, rects.width)
        row, col = rects.row + height, rects.col + width
        low, right = rects.height - height, rects.width - width
        upper = ((rects.row, rects.col, height, width), (rects.row, col, height, right))
        lower = ((row, rects.col, low, width), (row, col, low, right))
        # Rows: row, column, height, width; columns: the four quarters of the first tile, of the second, ...
        table = np.stack([np.stack(c) for c in (*upper, *lower)], axis=2).reshape(4, -1)
        real = (table[2] > 0) & (table[3] > 0)
        quarters = _DepthTiles(
            Rects(*table[:, real]),
            np.repeat(np.arange(self.splits, self.splits + rects.tiles), 4)[real],
            np.tile(np.arange(4), rects.tiles)[real],
        )
        self.splits += rects.tiles
        if self.splits > MOST_TILES:
            message = f"{self.pattern.name}: more than {MOST_TILES} tiles"
            raise Refused(message, "give a larger capacity", code="too-large")
        numbers = np.where(real, np.cumsum(real) - 1, -1).astype(np.int32)
        return _Split(
            quarters, numbers, row.astype(self.pattern.rows.dtype), col.astype(self.pattern.cols.dtype)
        )


@dataclass(frozen=True, eq=False)
class _Split:
    """Quarters of tiles: upper left, upper right, lower left, lower right, as far as they have an area.

    `numbers`: those of the four quarters of each tile in turn, -1 where there is none (a tile cut once has
    two). `row`, `col`: the start of the lower and of the right quarters.
    """

    quarters: _DepthTiles
    numbers: Index
    row: Index
    col: Index

    def parents(self) -> Index:
        """Return the tile of each quarter."""
        return np.nonzero(self.numbers >= 0)[0] // 4

    def move(self, points: Pattern, ids: Index) -> None:
        """Replace the tiles of points by their quarters, in place."""
        for piece in chunks(points.points):
            at = ids[piece]
            place = at * 4
            place += 2 * (points.rows[piece] >= self.row[at])
            place += points.cols[piece] >= self.col[at]
            ids[piece] = self.numbers[place]


def _unfinished(
    points: Pattern, at: Index, where: Index | None, ids: Index, number: Index
) -> tuple[Pattern, Index, Index]:
    """Record the final tiles of points whose tile is finished (`number` is not -1), and drop these points."""
    final = number[at]
    stays = final < 0
    place = ~stays if where is None else where[~stays]
    ids[place] = final[~stays]
    left = np.cumsum(number < 0, dtype=np.int32) - 1
    positions = _positions(stays) if where is None else where[stays]
    return points.taken(stays), left[at[stays]], positions


def _positions(which: Flags) -> Index:
    """Return the indices at which a mask is set, in 32 bits if possible."""
    kind = np.int32 if which.size < 2**31 else np.int64
    parts = [np.zeros(0, dtype=kind)]
    parts += [(np.nonzero(which[piece])[0] + piece.start).astype(kind) for piece in chunks(which.size)]
    return np.concatenate(parts)


def _siblings(
    parent: Ints, quarter: Ints, partners: tuple[tuple[int, int], tuple[int, int]]
) -> tuple[Index, Index]:
    """Return pairs of tiles that are partners among the quarters of one split (`quarter` -1: already
    merged)."""
    keys = np.where(quarter >= 0, parent * 4 + quarter, -1)
    order = np.argsort(keys)
    firsts, seconds = [], []
    for one, two in partners:
        first = np.nonzero(quarter == one)[0]
        wanted = parent[first] * 4 + two
        found = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), keys.size - 1)]
        met = keys[found] == wanted
        firsts.append(first[met])
        seconds.append(found[met])
    return np.concatenate(firsts), np.concatenate(seconds)
