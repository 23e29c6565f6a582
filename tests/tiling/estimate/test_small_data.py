"""Estimates against every placement of a few entries, one by one: expected tiles of trees are exact."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from polymodel.sparse.density import Uniform
from polymodel.tiling.estimate import estimate
from polymodel.tiling.fits.fit import Elements, Op
from polymodel.tiling.plane.operands import Alone, Rolled

Places = frozenset[tuple[int, int]]


def _leaves(
    a: Places, b: Places, rect: tuple[int, int, int, int], op: Op, capacity: int, binary: bool
) -> int:
    """Tiles of a tree, by recursion on one matrix."""
    row, col, height, width = rect
    held = [sum(1 for r, c in one if row <= r < row + height and col <= c < col + width) for one in (a, b)]
    if (sum(held) if op == "add" else max(held)) <= capacity:
        return 1
    rows = [(row, height // 2), (row + height // 2, height - height // 2)]
    cols = [(col, width // 2), (col + width // 2, width - width // 2)]
    if binary:
        rows, cols = ([(row, height)], cols) if width > height else (rows, [(col, width)])
    return sum(
        _leaves(a, b, (r, c, h, w), op, capacity, binary) for r, h in rows for c, w in cols if h * w > 0
    )


def _mean_tiles(
    shape: tuple[int, int], nnz: int, roll: int | None, op: Op, capacity: int, binary: bool
) -> float:
    rows, cols = shape
    every = []
    for chosen in combinations([(r, c) for r in range(rows) for c in range(cols)], nnz):
        a = frozenset(chosen)
        b = frozenset() if roll is None else frozenset(((r + roll) % rows, c) for r, c in a)
        every.append(_leaves(a, b, (0, 0, rows, cols), op, capacity, binary))
    return float(np.mean(every))


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize(
    ("shape", "nnz", "roll", "op", "capacity"),
    [
        ((3, 4), 4, None, "add", 1),
        ((3, 4), 4, 1, "add", 2),
        ((4, 3), 4, 2, "add", 3),
        ((4, 4), 3, 5, "multiply", 1),
        ((5, 3), 4, 2, "multiply", 2),
        ((4, 3), 5, 4, "add", 4),  # rolled by all rows: B is A
        ((1, 9), 4, 5, "multiply", 2),
        ((5, 2), 0, 1, "add", 1),
    ],
)
@pytest.mark.thin(5)
def test_expected_tiles_of_trees_are_exact(
    shape: tuple[int, int], nnz: int, roll: int | None, op: Op, capacity: int, binary: bool
) -> None:
    model = Uniform.of(("I", "J"), shape, nnz=nnz)
    second = Alone() if roll is None else Rolled(roll)
    found = estimate(model, op, Elements(capacity), "btree" if binary else "qtree", second)
    assert found.tiles == pytest.approx(_mean_tiles(shape, nnz, roll, op, capacity, binary), rel=1e-8)
