"""Uniform tiles of a product, against a machine of Python loops and resident tiles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polymodel.tiling.matmul.product as made
from polymodel.errors import Refused, SpecError
from polymodel.sparse.tensor import SparseTensor
from polymodel.tiling.matmul.product import product_of
from polymodel.tiling.matmul.uniform import UniformTiles
from polymodel.tiling.matmul.walk import ORDERS, OrderTraffic
from polymodel.tiling.plane.operands import Transposed
from tests.faults import faults, refused
from tests.tiling.matmul.drawn import factors, tensors
from tests.tiling.matmul.slow import cut, points, times, walk, words

TILES = st.tuples(*[st.integers(1, 6)] * 3)
BUFFERS = st.none() | st.tuples(*[st.integers(1, 25)] * 3)


def figures(t: OrderTraffic) -> dict[str, int]:
    names = ("a_fetches", "b_fetches", "z_visits", "a_read", "b_read", "z_read", "z_write")
    return {name: getattr(t, name) for name in names}


@settings(max_examples=60, deadline=None)
@given(factors(), TILES, BUFFERS)
def test_pairs_and_traffic_of_every_order(
    operands: tuple[np.ndarray, np.ndarray], tile: tuple[int, int, int], buffers: tuple[int, int, int] | None
) -> None:
    uniform = UniformTiles(product_of(*tensors(*operands)), tile)
    for order in ORDERS:
        theirs = walk(*operands, tile, order, buffers)
        ours = figures(uniform.traffic(order, buffers))
        assert ours == {name: theirs[name] for name in ours}
        moved = ("a_read", "b_read", "z_read", "z_write")
        assert uniform.traffic(order, buffers).words == sum(theirs[name] for name in moved)
        assert (uniform.dense_pairs, uniform.candidates) == (theirs["dense"], theirs["candidates"])
        assert uniform.effectual == theirs["pairs"]
        assert uniform.product.multiplies == theirs["multiplies"]
        assert uniform.partial_outputs == theirs["partials"]


@settings(max_examples=40, deadline=None)
@given(factors(), TILES)
def test_tiles_of_all_three_tensors(
    operands: tuple[np.ndarray, np.ndarray], tile: tuple[int, int, int]
) -> None:
    a, b = operands
    uniform = UniformTiles(product_of(*tensors(a, b)), tile)
    z = (a @ b != 0).astype(int)
    i, k, j = tile
    for ours, dense, shape in ((uniform.a, a, (i, k)), (uniform.b, b, (k, j)), (uniform.z, z, (i, j))):
        theirs = {at: t for at, t in cut(points(dense), dense.shape, shape).items() if t}
        numbered = [(int(n) // ours.shape[1], int(n) % ours.shape[1]) for n in ours.ids]
        assert dict(zip(numbered, ours.words.tolist(), strict=True)) == {
            at: words(t) for at, t in theirs.items()
        }
        assert ours.largest == max([words(t) for t in theirs.values()], default=0)
        assert ours.over(9) == sum(words(t) > 9 for t in theirs.values())
    assert uniform.product.z.words == words(points(z))


def test_products_are_the_same_sorted_and_put_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    for _ in range(10):
        i, k, j = rng.integers(1, 15, 3)
        a, b = rng.random((i, k)) < 0.4, rng.random((k, j)) < 0.4
        found = []
        for places in (0, 10**6):
            monkeypatch.setattr(made, "_PLACES", places)
            found.append(product_of(*tensors(a, b)))
        one, other = found
        assert (one.z.rows.dtype, one.first_k.dtype) == (other.z.rows.dtype, other.first_k.dtype)
        assert np.array_equal(one.z.rows, other.z.rows)
        assert np.array_equal(one.z.cols, other.z.cols)
        assert np.array_equal(one.first_k, other.first_k)


def test_chunks_of_products_do_not_change_the_result(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.random((30, 20)) < 0.3).astype(int), (rng.random((20, 25)) < 0.3).astype(int)
    whole = product_of(*tensors(a, b))
    told: list[str] = []
    for size in (1, 7, 100):
        monkeypatch.setattr(made, "CHUNK", size)
        monkeypatch.setattr("polymodel.tiling.matmul.uniform.CHUNK", size)
        monkeypatch.setattr("polymodel.tiling.matmul.uniform.BAND", size)
        parts = product_of(*tensors(a, b), told.append)
        assert np.array_equal(parts.z.rows, whole.z.rows)
        assert np.array_equal(parts.z.cols, whole.z.cols)
        assert np.array_equal(parts.first_k, whole.first_k)
        ours, theirs = (UniformTiles(p, (4, 3, 5)) for p in (parts, whole))
        assert np.array_equal(ours.keys, theirs.keys)
        for mine, other in ((ours.a, theirs.a), (ours.b, theirs.b), (ours.z, theirs.z)):
            for figure in ("ids", "nnz", "rows"):
                assert np.array_equal(getattr(mine, figure), getattr(other, figure))
        assert ours.partial_outputs == theirs.partial_outputs
    assert len(told) > 30
    assert told[-1].endswith(f"of 30 rows, {whole.z.nnz:,} entries")


def test_first_k_is_the_least_shared_coordinate() -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.random((8, 12)) < 0.4).astype(int), (rng.random((12, 7)) < 0.4).astype(int)
    found = product_of(*tensors(a, b))
    for i, j, k in zip(found.z.rows, found.z.cols, found.first_k, strict=True):
        assert k == min(np.flatnonzero(a[i] & b[:, j]))


def test_tiles_far_apart_are_counted_by_sorting() -> None:
    """A million rows and a tile each: no array of all tiles is made."""
    n = 10**6
    coords = [[0, 5, n - 1], [n - 1, 5, 0]]
    a = SparseTensor.from_coo("A", ("I", "K"), (n, n), coords, [1, 1, 1])
    uniform = UniformTiles(product_of(a), (1, 1, 1))
    assert (uniform.effectual, uniform.product.z.nnz, uniform.candidates) == (3, 3, 3)
    assert uniform.traffic("ijk").words == 9 * 7


def test_a_times_its_transposed() -> None:
    dense = np.array([[1, 0, 1], [0, 1, 0]])
    a = SparseTensor.from_dense("A", ("I", "K"), dense)
    found = product_of(a, Transposed())
    assert found.second == "A transposed"
    assert list(zip(found.z.rows.tolist(), found.z.cols.tolist(), strict=True)) == [(0, 0), (1, 1)]
    assert found.multiplies == times(points(dense), points(dense.T))[1]


def test_what_cannot_be_multiplied_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = SparseTensor.from_dense("W", ("I", "K"), np.ones((2, 3)))
    with faults("shape-mismatch", "W", "Transposed", at=""):
        product_of(wide)
    cube = SparseTensor.from_dense("C", ("I", "J", "K"), np.ones((2, 2, 2)))
    with faults("wrong-count", "C", at=""):
        product_of(cube, Transposed())
    with pytest.raises(SpecError) as told:
        UniformTiles(product_of(wide, Transposed()), (0, 2, -1))
    assert [d.message.split(" of")[0] for d in told.value.diagnostics] == ["tile size 0", "tile size -1"]
    monkeypatch.setattr(made, "MULTIPLIES", 5)
    with refused("too-large", "12"):
        product_of(wide, Transposed())
    monkeypatch.setattr(made, "MULTIPLIES", 50)
    monkeypatch.setattr(made, "OUTPUTS", 3)
    with refused("too-large", "entries"):
        product_of(wide, Transposed())


@pytest.mark.parametrize("shape", [(10**12, 10**12), (2**31, 2), (1, 10**18)])
def test_ranks_that_would_not_fit_memory_are_refused(shape: tuple[int, int]) -> None:
    few = SparseTensor.from_coo("F", ("I", "J"), shape, np.array([[0], [1]]), [1.0])
    with pytest.raises(Refused, match=f"a rank has {max(shape):,} coordinates, more than 50,000,000"):
        product_of(few, Transposed())
