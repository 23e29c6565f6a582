"""Trees and uniform tiles against recursion over dense arrays, and against what cannot be cut."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymodel.errors import SpecError
from polymodel.sparse.tensor import SparseTensor
from polymodel.tiling.fits.fit import Elements, Fit, Op, Words
from polymodel.tiling.plane.operands import Alone, pattern_of
from polymodel.tiling.plane.pattern import Pattern, TileCounts
from polymodel.tiling.tilers import trees, uniform
from tests.faults import faults, refused
from tests.tiling import recursive

PARTS = sorted(recursive.TREES)
OPS: tuple[Op, ...] = ("add", "multiply")


@pytest.mark.parametrize("tiler", PARTS)
@given(case=recursive.cases())
@settings(max_examples=40, deadline=None)
def test_tiles_are_those_of_the_recursion(tiler: str, case: recursive.Case) -> None:
    pattern = case.pattern()
    cut = getattr(trees, tiler)(pattern, case.op, case.fit)
    recursive.check_cut(case, pattern, cut)
    assert cut.rects.table().tolist() == [list(r) for r in sorted(recursive.TREES[tiler](case))]


@pytest.mark.parametrize("bins", [1, 4, 64])
@pytest.mark.parametrize("tiler", ["qtree", "btree", "qtree_merge"])
@given(case=recursive.cases(9))
@settings(max_examples=15, deadline=None)
def test_where_the_grid_is_too_coarse_points_go_on(bins: int, tiler: str, case: recursive.Case) -> None:
    kept = uniform.BINS, uniform.CHUNK
    try:
        uniform.BINS, uniform.CHUNK = bins, 3
        cut = getattr(trees, tiler)(case.pattern(), case.op, case.fit)
    finally:
        uniform.BINS, uniform.CHUNK = kept
    recursive.check_cut(case, case.pattern(), cut)
    assert cut.rects.table().tolist() == [list(r) for r in sorted(recursive.TREES[tiler](case))]


@pytest.mark.parametrize("tiler", ["qtree", "btree", "qtree_merge"])
@given(pattern=recursive.projected(), words=st.integers(20, 120))
@settings(max_examples=25, deadline=None)
def test_bounds_of_words_decide_only_what_they_may(tiler: str, pattern: Pattern, words: int) -> None:
    for op in OPS:
        found, expected = (
            _or_error(tiler, pattern, op, fit) for fit in (Words(words), recursive.Pointwise(words))
        )
        assert found == expected


def _or_error(tiler: str, pattern: Pattern, op: Op, fit: Fit) -> object:
    try:
        return getattr(trees, tiler)(pattern, op, fit).rects.table().tolist()
    except SpecError as error:
        return str(error)


@given(case=recursive.cases())
@settings(max_examples=30, deadline=None)
def test_a_merge_that_is_not_checked_always_happens(case: recursive.Case) -> None:
    cut = trees.qtree_merge(case.pattern(), case.op, case.fit, check_merge=False)
    expected = recursive.qtree(case, case.whole, merge=True, check=False)
    assert cut.rects.table().tolist() == [list(r) for r in sorted(expected)]


def matrix(array: np.ndarray) -> Pattern:
    return pattern_of(SparseTensor.from_dense("A", ("I", "J"), array), Alone())


@pytest.mark.parametrize("tiler", PARTS)
@pytest.mark.parametrize("fit", [Elements(1), Words(7)])
@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (5, 3)])
def test_all_dense_and_a_place_a_tile(tiler: str, fit: Fit, shape: tuple[int, int]) -> None:
    cut = getattr(trees, tiler)(matrix(np.ones(shape, dtype=int)), "add", fit)
    assert cut.rects.table().tolist() == [[r, c, 1, 1] for r in range(shape[0]) for c in range(shape[1])]
    assert cut.ids.tolist() == list(range(shape[0] * shape[1]))


@pytest.mark.parametrize("tiler", PARTS)
@pytest.mark.parametrize("fit", [Elements(1), Words(3)])
def test_an_empty_matrix_is_one_tile(tiler: str, fit: Fit) -> None:
    cut = getattr(trees, tiler)(matrix(np.zeros((6, 9), dtype=int)), "multiply", fit)
    assert cut.rects.table().tolist() == [[0, 0, 6, 9]]
    assert cut.ids.size == 0


@pytest.mark.parametrize("tiler", PARTS)
def test_what_no_tile_holds_is_named_with_a_remedy(tiler: str) -> None:
    array = np.zeros((6, 9), dtype=int)
    array[4, 7] = 1
    given_twice = SparseTensor.from_dense("A", ("I", "J"), array)
    with faults("over-capacity", "J", at=""):
        getattr(trees, tiler)(pattern_of(given_twice, given_twice), "add", Elements(1))
    with faults("over-capacity", "J", at=""):
        getattr(trees, tiler)(matrix(array), "add", Words(6))
    with faults("over-capacity", at=""):
        getattr(trees, tiler)(matrix(array), "add", Words(2))


def test_all_places_that_fit_nowhere_are_one_error() -> None:
    dense = SparseTensor.from_dense("A", ("I", "J"), np.ones((4, 5), dtype=int))
    with pytest.raises(SpecError, match="12 further places") as caught:
        trees.btree(pattern_of(dense, dense), "add", Elements(1))
    assert len(caught.value.diagnostics) == 9


def scattered(points: int, extent: int, seed: int = 0) -> Pattern:
    random = np.random.default_rng(seed)
    numbers = np.unique(random.integers(0, extent * extent, points))
    coords = np.stack([numbers // extent, numbers % extent])
    tensor = SparseTensor("A", ("I", "J"), (extent, extent), coords, np.ones(numbers.size))
    return pattern_of(tensor)


def test_a_hundred_million_uniform_tiles_are_refused_but_their_size_is_known() -> None:
    places = np.array([[0, 0, 0, 50_000], [0, 1, 2, 50_000]])
    lone = SparseTensor("A", ("I", "J"), (100_000, 100_000), places, np.ones(4))
    pattern = pattern_of(lone, Alone())
    with refused("too-large", "10000000000"):
        trees.simple(pattern, "add", Elements(1))
    assert uniform.grid(pattern, "add", Elements(1)) == (1, 1)
    assert trees.btree(pattern, "add", Elements(1)).tiles < 100


def test_wide_planes_need_no_table_of_their_columns() -> None:
    extent = 1 << 30
    lone = SparseTensor("A", ("I", "J"), (3, extent), np.array([[0, 1, 1], [5, 5, extent - 1]]), np.ones(3))
    cut = trees.btree(pattern_of(lone, Alone()), "add", Elements(1))
    inside = cut.rects.taken(cut.ids)
    assert (inside.col <= [5, 5, extent - 1]).all()
    assert (inside.col + inside.width > [5, 5, extent - 1]).all()
    assert sorted(set(cut.ids.tolist())) == sorted(cut.ids.tolist())


@given(
    extent=st.integers(1, 200),
    held=st.lists(st.integers(0, 199), max_size=60).map(sorted),
    target=st.integers(1, 32),
)
@settings(max_examples=60, deadline=None)
def test_edges_come_of_halving_and_lie_where_much_is_held(extent: int, held: list[int], target: int) -> None:
    inside = np.array([h for h in held if h < extent], dtype=np.int32)
    found = uniform.edges(extent, inside, target).tolist()
    assert found == sorted(set(found))
    assert len(found) <= 3 * target + 2

    def leaves(first: int, last: int) -> list[int]:
        middle = first + (last - first) // 2
        if middle == first or middle not in found:
            return [last]
        return leaves(first, middle) + leaves(middle, last)

    assert [0, *leaves(0, extent)] == found
    if len(found) <= 2 * target:  # else it stopped early, to stay small
        held_in = np.histogram(inside, bins=[*found[:-1], extent])[0]
        assert all(n * target <= inside.size for n, w in zip(held_in, np.diff(found), strict=True) if w > 1)


def test_a_dense_block_in_a_large_plane_is_found_by_the_grid() -> None:
    row, col = (x.ravel() for x in np.meshgrid(np.arange(700) + 123_457, np.arange(700) + 7, indexing="ij"))
    tensor = SparseTensor("A", ("I", "J"), (1_000_003, 999_983), np.stack([row, col]), np.ones(row.size))
    pattern = pattern_of(tensor, Alone())
    grid = uniform.DyadicGrid.of(pattern, True, lambda h, w: (np.maximum(h // 2, 1), np.maximum(w // 2, 1)))
    cut = trees.qtree(pattern, "add", Elements(100))
    assert grid.aligned(cut.rects).all()
    counts = TileCounts(pattern, cut.ids, cut.tiles)
    assert int(counts.nnz_a.max()) <= 100
    assert (grid.entries(cut.rects)[0] == counts.nnz_a).all()


@pytest.mark.slow
@pytest.mark.parametrize("tiler", ["qtree", "btree", "qtree_merge"])
def test_time_grows_about_as_the_entries(tiler: str) -> None:
    seconds = []
    for points in (200_000, 3_200_000):
        pattern = scattered(points, 1 << 16)
        taken = []
        for _ in range(3):
            start = time.process_time()
            cut = getattr(trees, tiler)(pattern, "add", Elements(1024))
            taken.append(time.process_time() - start)
        seconds.append(min(taken))
        counts = TileCounts(pattern, cut.ids, cut.tiles)
        assert int((counts.nnz_a + counts.nnz_b).max()) <= 1024
    slope = np.log(seconds[1] / seconds[0]) / np.log(16)
    assert slope < 1.3, seconds
