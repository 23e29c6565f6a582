"""Words moved by sparse products under several tiling strategies, for the exhibits `tailors` and `drt`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from math import isqrt, prod
from typing import Literal

import numpy as np

from polymodel.api.matmul import tile_matmul
from polymodel.sparse.density import random_tensor
from polymodel.sparse.generate import generate_tensor
from polymodel.sparse.tensor import SparseTensor

Strategy = Literal["worst case", "uniform", "overbooked", "dynamic"]
# Capacity of each buffer in words, and the tile sizes tried along each rank.
BUFFER = 1024
SIZES = (8, 16, 32, 64, 128, 256, 512, 1024)
# The same of a larger matrix.
LARGER_BUFFER = 4096
LARGER_SIZES = (64, 128, 256, 512, 1024, 2048, 4096)

MADE: dict[str, Callable[[], SparseTensor]] = {
    "power law": lambda: generate_tensor("power-law", 2, shape=[1000, 1000], entries=4000, symmetric=1),
    "uniform": lambda: random_tensor("IK", [1000, 1000], 0.008, 3),
    "stencil": lambda: generate_tensor("stencil", 0, height=32, width=32),
    "finite elements": lambda: generate_tensor("blocked", 1, blocks=160, block=6, reach=10, percent=12),
}
LARGER: dict[str, Callable[[], SparseTensor]] = {
    "power law": lambda: generate_tensor("power-law", 2, shape=[4000, 4000], entries=8000, symmetric=1),
}


# Side of a dense block whose words exceed a buffer.
BLOCK = 32


def _with_block() -> SparseTensor:
    """Return the uniform matrix with a dense block, more full than any tile without one."""
    matrix = MADE["uniform"]()
    columns = matrix.shape[1]
    block = np.arange(BLOCK)
    dense = (block[:, None] * columns + block).ravel()
    places = np.unique(np.concatenate([matrix.coords[0] * columns + matrix.coords[1], dense]))
    coords = np.stack(np.divmod(places, columns))
    return SparseTensor.from_coo(
        "A", matrix.ranks, matrix.shape, coords, np.ones(places.size, dtype=np.int64)
    )


CLUSTERED: dict[str, Callable[[], SparseTensor]] = {"uniform with a dense block": _with_block}


def side(buffer: int) -> int:
    """Return the side of the largest square tile that fits for any contents: 2 words for each element and
    each row, plus 3."""
    return (isqrt(2 * buffer - 5) - 1) // 2


@cache
def words(structure: str, strategy: Strategy, larger: bool = False, results: bool = True) -> int:
    """Return the words moved by the matrix of the given structure times itself under a tiling strategy.

    `results`: tiles of the result have a buffer of the same capacity; otherwise an unbounded one.
    """
    matrix = ({**MADE, **CLUSTERED} if not larger else LARGER)[structure]()
    buffer, sizes = (LARGER_BUFFER, LARGER_SIZES) if larger else (BUFFER, SIZES)
    if strategy == "worst case":
        square = side(buffer)
        return tile_matmul(matrix, tile=(square, square, square)).words
    grid = None if strategy == "dynamic" else (sizes, sizes, sizes)
    capacity = (buffer, buffer, buffer if results else None)
    return tile_matmul(matrix, capacity=capacity, strategy=strategy, objective="words", grid=grid).words


def gains(
    before: Strategy,
    after: Strategy,
    larger: bool = False,
    results: bool = True,
    made: Mapping[str, object] | None = None,
) -> dict[str, float]:
    """Return, for each structure (those of `made`), the ratio of words moved before to words moved after."""
    made = made or (LARGER if larger else MADE)
    return {name: words(name, before, larger) / words(name, after, larger, results) for name in made}


def mean(found: dict[str, float]) -> float:
    """Return the geometric mean."""
    return float(prod(found.values()) ** (1 / len(found)))


def by_structure(found: dict[str, float]) -> str:
    """Return the text that lists the gain of each structure."""
    return ", ".join(f"{name} {gain:.2f}" for name, gain in found.items())
