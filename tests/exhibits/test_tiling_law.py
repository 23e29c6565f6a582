"""Expected words of square tiles of random matrices, beside those that are counted."""

from __future__ import annotations

import pytest

import polymodel as pm
from polymodel.exhibits.tiling_law import THIRD, WORKLOADS, expected_gains, expected_words, fitting

# Rows, nonzeros and tile: many nonzeros in a tile, few, less than one; tiles that do not divide, half, whole.
CASES = [
    (1000, 8000, 22), (3000, 90000, 300), (4000, 16000, 45), (20000, 100000, 100), (30000, 60000, 400),
    (3000, 9000, 1500), (3000, 9000, 3000),
]  # fmt: skip


@pytest.mark.parametrize(("rows", "nonzeros", "tile"), CASES)
def test_expected_words_are_those_counted(rows: int, nonzeros: int, tile: int) -> None:
    a, b = (
        pm.random_tensor(ranks, [rows, rows], nonzeros / rows**2, seed=n)
        for n, ranks in ((3, "IK"), (4, "KJ"))
    )
    counted = pm.tile_matmul(a, b, tile=(tile, tile, tile), order="jki", objective="words").words
    assert expected_words(rows, a.nnz, tile) == pytest.approx(counted, rel=0.01)


def test_tiles_that_fit_as_expected_are_the_largest() -> None:
    for w in WORKLOADS:
        size = fitting(w.rows, w.nonzeros, results=False)
        held = [2 * w.nonzeros * (t / w.rows) ** 2 + 3 for t in (size, 2 * size)]
        assert held[0] <= THIRD
        assert size == w.rows or held[1] > THIRD / 2


def test_gains_grow_where_results_are_not_limited() -> None:
    limited, free = expected_gains(results=True), expected_gains(results=False)
    assert all(1 < limited[name] <= free[name] for name in limited)
    # What fits as a whole gains the same.
    assert limited["p2p-Gnutella31"] == free["p2p-Gnutella31"]
