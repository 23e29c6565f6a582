"""Large uniform matrices for tilers that start from a tree: one node of the tree is drawn instead of the
whole matrix.

In the upper levels of the tree every node is almost surely split, so that the matrix consists of the nodes of
one level, whose few sizes differ by a row or column. One such node, with entries for some hundred tiles, is
drawn and tiled to represent all of them. Merges across its border are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polymodel.sparse.density import DensityModel, Uniform
from polymodel.tiling.estimate.expected import halved
from polymodel.tiling.estimate.source import OperandPair
from polymodel.tiling.plane.operands import Alone, Rolled, Transposed

Second = DensityModel | Rolled | Transposed | Alone

# Approximate number of tiles of a piece, and its greatest number of entries.
_TILES, _MOST = 300, 200_000


@dataclass(frozen=True)
class PartitionNode:
    """A node of a tree: its shape, and the number of such nodes that make up the whole matrix."""

    shape: tuple[int, int]
    count: float


def piece_of(source: OperandPair, entries: float, binary: bool) -> PartitionNode | None:
    """Return the most frequent node of the level at which a node has some hundred tiles; None if such a node
    may fit as it is or has too many entries. `entries`: of A in the whole matrix."""
    rows, cols = source.shape
    rects, count = np.array([[0, 0, rows, cols]], dtype=np.int64), np.ones(1)
    each = entries / (rows * cols)
    while each * float((rects[:, 2] * rects[:, 3]).min()) > _TILES * source.fit.capacity / 2:
        children, parent = halved(rects, binary)
        children[:, :2] = 0
        rects, place = np.unique(children, axis=0, return_inverse=True)
        count = np.bincount(place.reshape(-1), count[parent], rects.shape[0]).astype(np.float64)
    place_of = int(np.argmax(count))
    height, width = int(rects[place_of, 2]), int(rects[place_of, 3])
    if each * height * width > _MOST or float(source.loads(rects).over.min()) < 1 - 1e-9:
        return None
    # In proportion to areas, so that all positions are counted once.
    return PartitionNode((height, width), rows * cols / (height * width))


def band_of(shape: tuple[int, int], tiles: float, columns: bool) -> PartitionNode | None:
    """Return a number of rows (or columns) whose strips are some hundred tiles; None if the whole matrix has
    too few."""
    many = shape[1] if columns else shape[0]
    lines = int(np.ceil(_TILES * many / max(tiles, 1.0)))
    if lines >= many:
        return None
    return PartitionNode((shape[0], lines) if columns else (lines, shape[1]), many / lines)


def part_of(model: DensityModel, piece: PartitionNode, seed: int) -> Uniform:
    """Return the part with the number of entries that one matrix may have there."""
    height, width = piece.shape
    number = np.random.default_rng(seed).binomial(height * width, model.expected_nnz / model.size)
    return Uniform(model.ranks, piece.shape, int(number))


def parts_of(
    model: DensityModel, second: Second, piece: PartitionNode, seeds: tuple[int, int]
) -> tuple[DensityModel, Second]:
    """Return the part of A and the contents of B there, drawn with different seeds."""
    ours = part_of(model, piece, seeds[0])
    if isinstance(second, DensityModel):
        return ours, part_of(second, piece, seeds[1])
    if not isinstance(second, Rolled):
        return ours, second
    rows = model.shape[0]
    by = (second.rows + rows // 2) % rows - rows // 2
    # The contents of B in this piece may be in another part of A.
    return ours, Rolled(by) if abs(by) < piece.shape[0] else part_of(model, piece, seeds[1])
