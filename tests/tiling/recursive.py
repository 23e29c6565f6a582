"""Tilers as their definitions read: recursion over dense arrays, one tile at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from polymodel.sparse.tensor import SparseTensor
from polymodel.tiling.fits.fit import Elements, Fit, Op, Words
from polymodel.tiling.plane.operands import Rolled, pattern_of
from polymodel.tiling.plane.pattern import Cut, Pattern

Rect = tuple[int, int, int, int]


@dataclass(frozen=True)
class Case:
    a: np.ndarray
    b: np.ndarray
    op: Op
    fit: Fit

    def pattern(self) -> Pattern:
        one, two = (SparseTensor.from_dense(n, ("I", "J"), x) for n, x in (("A", self.a), ("B", self.b)))
        return pattern_of(one, two)

    @property
    def whole(self) -> Rect:
        return (0, 0, *self.a.shape)


@st.composite
def cases(draw: st.DrawFn, most: int = 14) -> Case:
    """Small operands from empty to all dense, even, odd and single extents; a capacity one entry keeps."""
    shape = draw(st.integers(1, most)), draw(st.integers(1, most))
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    a = (random.random(shape) < draw(st.sampled_from([0.0, 0.05, 0.2, 0.6, 1.0]))).astype(int)
    rolled = np.roll(a, draw(st.integers(0, 5)), axis=0)
    b = draw(st.sampled_from([rolled, np.zeros_like(a), (random.random(shape) < 0.3).astype(int)]))
    op: Op = draw(st.sampled_from(["add", "multiply"]))
    fit = draw(st.integers(2, 40).map(Elements) | st.integers(7, 60).map(Words))
    return Case(a, b, op, fit)


class Pointwise(Words):
    """The same words, judged from points each time: no rule that tilers know anything of."""


@st.composite
def projected(draw: st.DrawFn) -> Pattern:
    """A plane of a tensor of three ranks, and the same one rolled by a place."""
    shape, share = draw(st.tuples(*[st.integers(1, 7)] * 3)), draw(st.sampled_from([0.1, 0.5, 1.0]))
    array = (np.random.default_rng(draw(st.integers(0, 10**6))).random(shape) < share).astype(int)
    ranks = draw(st.permutations("IJK"))
    return pattern_of(SparseTensor.from_dense("A", ("I", "J", "K"), array), Rolled(1), ranks[:2])


def load(case: Case, rect: Rect) -> int:
    """What a rectangle needs, by looking at every place of it."""
    row, col, height, width = rect
    counts = []
    for operand in (case.a, case.b):
        entries, rows = 0, set()
        for i in range(row, row + height):
            for j in range(col, col + width):
                if operand[i, j]:
                    entries += 1
                    rows.add(i)
        counts.append((entries, len(rows)))
    (nnz_a, rows_a), (nnz_b, rows_b) = counts
    if isinstance(case.fit, Elements):
        return nnz_a + nnz_b if case.op == "add" else max(nnz_a, nnz_b)
    if case.op == "add":
        out = min(nnz_a + nnz_b, height * width), min(height, rows_a + rows_b)
    else:
        out = min(nnz_a, nnz_b), min(rows_a, rows_b)
    return max(2 * n + 2 * r + 3 for n, r in (*counts, out))


def fits(case: Case, rect: Rect) -> bool:
    return load(case, rect) <= case.fit.capacity


def simple(case: Case) -> list[Rect]:
    height, width = case.a.shape
    while True:
        tiles = [
            (r, c, min(height, case.a.shape[0] - r), min(width, case.a.shape[1] - c))
            for r in range(0, case.a.shape[0], height)
            for c in range(0, case.a.shape[1], width)
        ]
        if all(fits(case, t) for t in tiles):
            return tiles
        height, width = (n if n == 1 else n // 2 for n in (height, width))


def btree(case: Case, rect: Rect) -> list[Rect]:
    if fits(case, rect):
        return [rect]
    row, col, height, width = rect
    if width > height:
        at = width // 2
        halves = [(row, col, height, at), (row, col + at, height, width - at)]
    else:
        at = height // 2
        halves = [(row, col, at, width), (row + at, col, height - at, width)]
    return [tile for half in halves for tile in btree(case, half)]


def qtree(case: Case, rect: Rect, merge: bool = False, check: bool = True) -> list[Rect]:
    if fits(case, rect):
        return [rect]
    row, col, height, width = rect
    down, across = max(height // 2, 1), max(width // 2, 1)
    quarters = [
        (row, col, down, across),
        (row, col + across, down, width - across),
        (row + down, col, height - down, across),
        (row + down, col + across, height - down, width - across),
    ]
    found = [qtree(case, q, merge, check) if q[2] and q[3] else [] for q in quarters]
    single = [bool(q[2] and q[3]) and fits(case, q) for q in quarters]
    if merge:
        for one, two in ((0, 1), (2, 3), (0, 2), (1, 3)):
            if single[one] and single[two]:
                union = _union(quarters[one], quarters[two])
                if not check or fits(case, union):
                    found[one], found[two], single[one], single[two] = [union], [], False, False
    return [tile for f in found for tile in f]


def _union(one: Rect, two: Rect) -> Rect:
    row, col = min(one[0], two[0]), min(one[1], two[1])
    bottom, right = max(one[0] + one[2], two[0] + two[2]), max(one[1] + one[3], two[1] + two[3])
    return row, col, bottom - row, right - col


def merged(case: Case, tiles: list[Rect]) -> list[Rect]:
    """Scans rightwards, then downwards, until nothing changes: a tile joins the one before it if it can."""
    while True:
        before = sorted(tiles)
        for side, key in enumerate((_in_rows, _in_columns)):
            found: list[Rect] = []
            for tile in sorted(tiles, key=key):
                if found and _beside(found[-1], tile, side) and fits(case, _union(found[-1], tile)):
                    found[-1] = _union(found[-1], tile)
                else:
                    found.append(tile)
            tiles = found
        if sorted(tiles) == before:
            return before


def _in_rows(tile: Rect) -> tuple[int, int, int]:
    return tile[0], tile[2], tile[1]


def _in_columns(tile: Rect) -> tuple[int, int, int]:
    return tile[1], tile[3], tile[0]


def _beside(one: Rect, two: Rect, side: int) -> bool:
    other = 1 - side
    return (one[side], one[2 + side], one[other] + one[2 + other]) == (two[side], two[2 + side], two[other])


def mergeable(case: Case, tiles: list[Rect]) -> list[tuple[Rect, Rect]]:
    """Pairs that share a whole side and fit together."""
    return [
        (one, two)
        for one in tiles
        for two in tiles
        if (_beside(one, two, 0) or _beside(one, two, 1)) and fits(case, _union(one, two))
    ]


def check_cut(case: Case, pattern: Pattern, cut: Cut) -> None:
    """Every place is in one tile, every point in the tile that is noted for it, and every tile fits."""
    covered = np.full(case.a.shape, -1)
    for number, (row, col, height, width) in enumerate(cut.rects.table().tolist()):
        assert height > 0
        assert width > 0
        assert (covered[row : row + height, col : col + width] == -1).all()
        covered[row : row + height, col : col + width] = number
        assert fits(case, (row, col, height, width))
    assert (covered >= 0).all()
    assert (covered[pattern.rows, pattern.cols] == cut.ids).all()
    assert sorted(cut.rects.table()[:, :2].tolist()) == cut.rects.table()[:, :2].tolist()


TREES: dict[str, Callable[[Case], list[Rect]]] = {
    "simple": simple,
    "qtree": lambda case: qtree(case, case.whole),
    "btree": lambda case: btree(case, case.whole),
    "qtree_merge": lambda case: qtree(case, case.whole, merge=True),
}
