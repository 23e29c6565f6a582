"""Evaluate density models by the likelihood of the blocks of a matrix that they were not fitted to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from polymodel.frozen import dataclass
from polymodel.sparse.density.model import DensityModel, Floats, Ints
from polymodel.sparse.density.observed import BlockSample
from polymodel.sparse.tensor import SparseTensor

# The probability of an event that is impossible under a model.
_RARE = 1e-6
# Sizes of tiles that are evaluated, in addition to those of held-out blocks and their rows and columns.
_SIZES = 8, 32


@dataclass(frozen=True, eq=False)
class HeldTiles:
    """The nonempty tiles of one shape in the blocks held out: the distinct occupancies, and for each
    occupancy and block (its number) that go together how many tiles there are."""

    tile: tuple[int, int]
    values: Floats
    value: Ints
    block: Ints
    number: Ints

    @classmethod
    def of(cls, coords: Ints, tile: tuple[int, int], columns: int, side: int, blocks: Ints) -> HeldTiles:
        """Count the nonzeros at `coords`, in blocks of `side` that have these numbers (rows x columns of
        blocks)."""
        step = -(-columns // tile[1])
        numbers = np.sort(coords[0] // tile[0] * step + coords[1] // tile[1])
        starts = np.flatnonzero(np.diff(numbers, prepend=-1))
        counts = np.diff(np.append(starts, numbers.size))
        row, column = np.divmod(numbers[starts], step)
        own = blocks[row * tile[0] // side, column * tile[1] // side]
        values, place = np.unique(counts, return_inverse=True)
        pairs, number = np.unique(own * values.size + place.reshape(-1), return_counts=True)
        block, value = np.divmod(pairs, values.size)
        return cls(tile, values.astype(np.float64), value, block, number.astype(np.int64))


@dataclass(frozen=True, eq=False)
class HeldOut:
    """The blocks of a matrix that are held out: how many, the side of each, and their tiles of some
    shapes."""

    number: int
    side: int
    tiles: Sequence[HeldTiles]

    @classmethod
    def of(cls, tensor: SparseTensor, split: BlockSample) -> HeldOut:
        """Count the tiles of the blocks that `split` does not observe."""
        side, shape = split.side, split.shape
        grid = [np.arange(s // side, dtype=np.int64) for s in shape]
        hidden = ~split.seen(grid[0][:, None] * side, grid[1][None, :] * side)
        blocks = np.full(hidden.shape, -1, dtype=np.int64)
        blocks[hidden] = np.arange(int(hidden.sum()))
        rows, columns = tensor.coords
        kept = ~split.seen(rows, columns)
        kept &= (rows < grid[0].size * side) & (columns < grid[1].size * side)
        coords = tensor.coords[:, kept]
        square = [(s, s) for s in _SIZES if 2 * s <= side and side % s == 0]
        shapes = [(side, side), *square, (1, side), (side, 1)] if coords.size else []
        tiles = [HeldTiles.of(coords, tile, shape[1], side, blocks) for tile in shapes]
        return cls(int(hidden.sum()), side, tiles)

    def likelihoods(self, model: DensityModel) -> Floats:
        """Return the log-likelihood of the tiles of each block, taken as tiles at random positions."""
        result = np.zeros(self.number)
        for one in self.tiles:
            tile, asked = one.tile, np.concatenate(([0.0], one.values))
            points = float(tile[0]) * tile[1]
            chance = model.cdf(tile, asked) - np.where(asked > 0, model.cdf(tile, asked - 1), 0.0)
            told = np.log((1 - _RARE) * np.maximum(chance, 0.0) + _RARE / (points + 1))
            result += told[0] * (self.side * self.side / points)
            more = one.number * (told[1:][one.value] - told[0])
            result += np.bincount(one.block, weights=more, minlength=self.number)
        return result
