"""Multiplication in tiles that are reused: counting and searching, beside a walk over dense tiles."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import polymodel as pm
from benchmarks.rows import Row, milliseconds
from polymodel.sparse.tensor import SparseTensor
from polymodel.tiling.matmul.product import product_of
from polymodel.tiling.matmul.uniform import UniformTiles
from polymodel.tiling.matmul.walk import ORDERS

Timer = Callable[[Callable[[], object], int], float]
# As of finite elements: 2,004 rows of some 41 entries, in dense blocks along the diagonal.
MATRIX = {"blocks": 334, "block": 6, "reach": 10, "percent": 30}
TILE, CAPACITY = (64, 64, 64), 2048


def walked(dense: np.typing.NDArray[np.float32], tile: tuple[int, int, int]) -> int:
    """Words of A A in the order ikj: every pair of tiles is multiplied, zeros and all."""

    def words(held: np.typing.NDArray[np.float32]) -> int:
        rows = np.count_nonzero(held.any(axis=1))
        return 2 * int(np.count_nonzero(held)) + 2 * int(rows) + 3 if rows else 0

    i_step, k_step, j_step = tile
    n, z = len(dense), np.zeros_like(dense)
    moved, last = 0, {"b": (-1, -1), "z": (-1, -1)}
    for i in range(0, n, i_step):
        for k in range(0, n, k_step):
            a, used = dense[i : i + i_step, k : k + k_step], False
            for j in range(0, n, j_step):
                b = dense[k : k + k_step, j : j + j_step]
                made = a @ b
                if not made.any():
                    continue
                used = True
                moved += words(b) * (last["b"] != (k, j))
                region = z[i : i + i_step, j : j + j_step]
                if last["z"] != (i, j):
                    left_i, left_j = last["z"]
                    if left_i >= 0:
                        moved += words(z[left_i : left_i + i_step, left_j : left_j + j_step])
                    moved += words(region)
                region += made
                last = {"b": (k, j), "z": (i, j)}
            moved += words(a) * used
    i, j = last["z"]
    return moved + words(z[i : i + i_step, j : j + j_step]) if i >= 0 else moved


def tiling_matmul(
    timer: Timer,
    tensor: SparseTensor | None = None,
    tile: tuple[int, int, int] = TILE,
    capacity: int = CAPACITY,
) -> dict[str, Row]:
    """Six orders counted, and a search under a capacity, each beside one order of dense tiles."""
    a = tensor or pm.generate_tensor("blocked", 1, **MATRIX)
    dense = (a.to_dense() != 0).astype(np.float32)
    ours, theirs = UniformTiles(product_of(a), tile).traffic("ikj").words, walked(dense, tile)
    if ours != theirs:
        raise AssertionError(f"{ours} words, a walk over dense tiles counts {theirs}")

    def counted() -> list[int]:
        uniform = UniformTiles(product_of(a), tile)
        return [uniform.traffic(order).words for order in ORDERS]

    def searched() -> int:
        return pm.tile_matmul(a, capacity=capacity, strategy="uniform").words

    shape = " x ".join(map(str, tile))
    one, peer = timer(lambda: walked(dense, tile), 1), "a walk over dense tiles, one order of one shape"
    return {
        f"multiply {a.name} by itself in tiles {shape}, six orders": milliseconds(
            timer(counted, 5), one, peer
        ),
        f"find its best tile shape and order for buffers of {capacity:,} words": milliseconds(
            timer(searched, 3), one, peer
        ),
    }
