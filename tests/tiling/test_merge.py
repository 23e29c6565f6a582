"""Merging to a fixpoint, against scans of a list of tiles."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymodel.sparse.tensor import SparseTensor
from polymodel.tiling.fits.fit import Elements, Fit, Op, Words
from polymodel.tiling.plane.operands import Alone, pattern_of
from polymodel.tiling.plane.pattern import Cut, Pattern, Rects, TileCounts
from polymodel.tiling.tilers import trees
from polymodel.tiling.tilers.merge import merged
from tests.tiling import recursive

PARTS = sorted(recursive.TREES)
OPS: tuple[Op, ...] = ("add", "multiply")


@pytest.mark.parametrize("tiler", PARTS)
@given(case=recursive.cases())
@settings(max_examples=30, deadline=None)
def test_tiles_are_those_of_the_scans(tiler: str, case: recursive.Case) -> None:
    pattern = case.pattern()
    cut = merged(pattern, case.op, case.fit, getattr(trees, tiler)(pattern, case.op, case.fit))
    recursive.check_cut(case, pattern, cut)
    tiles = [tuple(t) for t in cut.rects.table().tolist()]
    assert not recursive.mergeable(case, tiles)
    assert tiles == recursive.merged(case, recursive.TREES[tiler](case))
    assert merged(pattern, case.op, case.fit, cut).rects.table().tolist() == cut.rects.table().tolist()


@pytest.mark.parametrize("tiler", ["simple", "qtree", "btree"])
@given(pattern=recursive.projected(), words=st.integers(40, 160))
@settings(max_examples=25, deadline=None)
def test_bounds_of_words_decide_only_what_they_may(tiler: str, pattern: Pattern, words: int) -> None:
    for op in OPS:
        cut = getattr(trees, tiler)(pattern, op, Words(words))
        found, expected = (
            merged(pattern, op, fit, cut) for fit in (Words(words), recursive.Pointwise(words))
        )
        assert found.rects.table().tolist() == expected.rects.table().tolist()
        assert found.ids.tolist() == expected.ids.tolist()


@pytest.mark.parametrize("fit", [Elements(6), Words(19), recursive.Pointwise(19)])
@pytest.mark.parametrize("shape", [(1, 150), (150, 1), (2, 90)])
def test_long_chains(fit: Fit, shape: tuple[int, int]) -> None:
    a = (np.random.default_rng(5).random(shape) < 0.4).astype(int)
    pattern, cut = apart(a)
    case = recursive.Case(a, np.zeros_like(a), "add", fit)
    found = merged(pattern, "add", fit, cut)
    tiles = [(i, j, 1, 1) for i in range(shape[0]) for j in range(shape[1])]
    assert [tuple(t) for t in found.rects.table().tolist()] == recursive.merged(case, tiles)
    assert 5 < found.tiles < 100


def apart(array: np.ndarray) -> tuple[Pattern, Cut]:
    """Every place a tile of its own."""
    pattern = pattern_of(SparseTensor.from_dense("A", ("I", "J"), array), Alone())
    places = np.argwhere(np.ones(array.shape))
    rects = Rects.of(np.column_stack([places, np.ones_like(places)]))
    ids = (pattern.rows * array.shape[1] + pattern.cols).astype(np.int32)
    return pattern, Cut(rects, ids, "by hand")


@pytest.mark.parametrize("fit", [Elements(1), Words(7)])
def test_nothing_but_emptiness_becomes_one_tile(fit: Fit) -> None:
    pattern, cut = apart(np.zeros((5, 7), dtype=int))
    assert merged(pattern, "add", fit, cut).rects.table().tolist() == [[0, 0, 5, 7]]


def test_neighbours_share_rows_so_words_are_no_sums() -> None:
    # Two entries of one row: 2 x 2 + 2 x 1 + 3 = 9 words; the sum of 7 and 7 would be 14, with one 3 less 11.
    pattern, cut = apart(np.ones((1, 2), dtype=int))
    assert merged(pattern, "add", Words(9), cut).tiles == 1
    assert merged(pattern, "add", Words(8), cut).tiles == 2
    # Two entries of one column: 2 x 2 + 2 x 2 + 3 = 11 words.
    pattern, cut = apart(np.ones((2, 1), dtype=int))
    assert merged(pattern, "add", Words(11), cut).tiles == 1
    assert merged(pattern, "add", Words(10), cut).tiles == 2


def test_a_tile_that_overflows_stays_as_it_is() -> None:
    pattern = apart(np.array([[1, 1, 0, 1]]))[0]
    wide = Cut(
        Rects.of([(0, 0, 1, 2), (0, 2, 1, 1), (0, 3, 1, 1)]), np.array([0, 0, 2]), "by hand", ("noted",)
    )
    found = merged(pattern, "add", Elements(1), wide)
    assert found.rects.table().tolist() == [[0, 0, 1, 2], [0, 2, 1, 2]]
    assert found.ids.tolist() == [0, 0, 1]
    assert (found.tiler, found.notes) == ("by hand+fixpoint", ("noted",))


@pytest.mark.slow
def test_merging_takes_less_time_than_a_loop_over_tiles_would() -> None:
    random = np.random.default_rng(3)
    coords = np.unravel_index(np.unique(random.integers(0, 1 << 26, 60_000)), (1 << 13, 1 << 13))
    tensor = SparseTensor("A", ("I", "J"), (1 << 13, 1 << 13), np.stack(coords), np.ones(coords[0].size))
    pattern = pattern_of(tensor)
    cut = trees.simple(pattern, "add", Elements(8))
    start = time.process_time()
    found = merged(pattern, "add", Elements(8), cut)
    seconds = time.process_time() - start
    counts = TileCounts(pattern, found.ids, found.tiles)
    assert cut.tiles > 100_000
    assert found.tiles < cut.tiles / 4
    assert int((counts.nnz_a + counts.nnz_b).max()) <= 8
    assert int((found.rects.height * found.rects.width).sum()) == 1 << 26
    assert seconds < 3
