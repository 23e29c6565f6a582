"""The pattern of two operands, and the counts of its tiles, against sets of coordinates."""

from __future__ import annotations

import numpy as np
import pytest

from polymodel.sparse.tensor import SparseTensor
from polymodel.tiling.plane.operands import Alone, Rolled, Second, Transposed, pattern_of
from polymodel.tiling.plane.pattern import Rects, TileCounts, ordered


def dense(shape: tuple[int, int], share: float, seed: int) -> np.ndarray:
    return (np.random.default_rng(seed).random(shape) < share).astype(int)


@pytest.mark.parametrize("second", [None, Rolled(3), Rolled(0), Alone(), Transposed()])
def test_union_and_owners_are_those_of_sets(second: Second | None) -> None:
    a = dense((9, 9), 0.3, 1)
    rolled = np.roll(a, second.rows if isinstance(second, Rolled) else 5, axis=0)
    b = {Alone: np.zeros_like(a), Transposed: a.T}.get(type(second), rolled)
    found = pattern_of(SparseTensor.from_dense("A", ("I", "J"), a), second)
    owned_a = set(zip(found.rows[found.in_a], found.cols[found.in_a], strict=True))
    owned_b = set(zip(found.rows[found.in_b], found.cols[found.in_b], strict=True))
    assert owned_a == set(zip(*np.nonzero(a), strict=True))
    assert owned_b == set(zip(*np.nonzero(b), strict=True))
    places = list(zip(found.rows, found.cols, strict=True))
    assert places == sorted(owned_a | owned_b)


def test_counts_of_tiles_are_those_of_slices() -> None:
    a = dense((7, 10), 0.4, 2)
    b = np.roll(a, 5, axis=0)
    found = pattern_of(SparseTensor.from_dense("A", ("I", "J"), a))
    rects = Rects.of([(0, 0, 3, 10), (3, 0, 4, 6), (3, 6, 4, 4)])
    ids = np.where(found.rows < 3, 0, np.where(found.cols < 6, 1, 2)).astype(np.int32)
    counts = TileCounts(found, ids, 3)
    for t, (r, c, h, w) in enumerate(rects.table()):
        one, two = a[r : r + h, c : c + w], b[r : r + h, c : c + w]
        either = one | two
        assert (counts.nnz_a[t], counts.nnz_b[t], counts.union[t]) == (one.sum(), two.sum(), either.sum())
        assert counts.both[t] == (one & two).sum()
        assert counts.rows_a[t] == one.any(axis=1).sum()
        assert counts.rows_b[t] == two.any(axis=1).sum()
        assert counts.rows_union[t] == either.any(axis=1).sum()


def test_tiles_are_put_in_order() -> None:
    cut = ordered(Rects.of([(5, 0, 1, 1), (0, 3, 5, 1), (0, 0, 5, 3)]), np.array([0, 1, 2, 2]), "by hand")
    assert cut.rects.table()[:, :2].tolist() == [[0, 0], [0, 3], [5, 0]]
    assert cut.ids.tolist() == [2, 1, 0, 0]
