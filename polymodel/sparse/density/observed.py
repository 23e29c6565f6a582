"""Select a part of a matrix that models are fitted to, so that they can be evaluated on the rest."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from polymodel.frozen import dataclass
from polymodel.sparse.density.model import Floats, Ints
from polymodel.sparse.tensor import SparseTensor

Bools = NDArray[np.bool_]
# The desired number of blocks along a side, and the maximum.
_WANTED, _MOST = 20, 1000
# Points of a diagonal that are examined, and of a whole matrix.
_LOOKED, _ALL = 1024, 1 << 15


@dataclass(frozen=True, eq=False)
class BlockSample:
    """A sample of blocks of `side` x `side` points: three fifths of the blocks in each row, column and
    diagonal of blocks are observed.

    The block (I, J) is observed where (I + 2 J) mod 5 is below 3. These numbers form a Latin square, whose
    diagonals also contain all five numbers.
    """

    shape: tuple[int, int]
    side: int

    @classmethod
    def of(cls, shape: tuple[int, int]) -> BlockSample:
        """Choose blocks whose side is a power of two, with about twenty along the shorter side of the
        matrix."""
        least = max(1, -(-max(shape) // _MOST))
        wanted = max(4, min(shape) // _WANTED, least)
        below = 1 << (int(wanted).bit_length() - 1)
        return cls(shape, below if below >= least else 2 * below)

    def seen(self, rows: Ints, columns: Ints) -> Bools:
        """Return whether each point is observed."""
        result: Bools = (rows // self.side + 2 * (columns // self.side)) % 5 < 3
        return result

    def open_points(self, axis: int) -> Floats:
        """Return the number of observed points of each row (axis 0) or column (axis 1)."""
        blocks = [np.arange(-(-s // self.side), dtype=np.int64) for s in self.shape]
        seen = (blocks[0][:, None] + 2 * blocks[1][None, :]) % 5 < 3
        other = self.shape[1 - axis]
        widths = np.minimum(self.side, other - blocks[1 - axis] * self.side).astype(np.float64)
        each: Floats = seen @ widths if axis == 0 else widths @ seen
        return each[np.arange(self.shape[axis]) // self.side]


@dataclass(frozen=True, eq=False)
class Observed:
    """The nonzeros of a matrix at observed points. If `split` and `seen` are None, all points are
    observed."""

    tensor: SparseTensor
    split: BlockSample | None
    seen: Callable[[Ints, Ints], Bools] | None

    @classmethod
    def whole(cls, tensor: SparseTensor) -> Observed:
        """Observe all points of a matrix."""
        return cls(tensor, None, None)

    @classmethod
    def part(cls, tensor: SparseTensor, split: BlockSample) -> Observed:
        """Observe the blocks of `split` only."""
        kept = split.seen(tensor.coords[0], tensor.coords[1])
        return cls(chosen(tensor, kept), split, split.seen)

    @property
    def shape(self) -> tuple[int, int]:
        return self.tensor.shape[0], self.tensor.shape[1]

    def open_points(self, axis: int) -> Floats:
        """Return the number of observed points of each row (axis 0) or column (axis 1)."""
        if self.split is None:
            return np.full(self.shape[axis], float(self.shape[1 - axis]))
        return self.split.open_points(axis)

    @property
    def nonzeros(self) -> float:
        """The estimated number of nonzeros among all points, observed or not."""
        return self.tensor.nnz / max(self.share(), 1e-12)

    def share(self) -> float:
        """Return the fraction of points that are observed."""
        if self.seen is None:
            return 1.0
        if self.split is not None:
            return float(self.open_points(0).sum()) / self.shape[0] / self.shape[1]
        draw = np.random.default_rng(0)
        rows, columns = (draw.integers(0, s, _ALL) for s in self.shape)
        return float(self.seen(rows, columns).mean())

    def open_diagonals(self, offsets: Ints) -> Floats:
        """Return the number of observed points of each of these diagonals."""
        rows, columns = self.shape
        first = np.maximum(0, -offsets)
        length = np.minimum(rows, columns - offsets) - first
        if self.seen is None:
            return length.astype(np.float64)
        # One position in each of `_LOOKED` equal parts.
        places = (np.arange(_LOOKED) + np.random.default_rng(0).random(_LOOKED)) / _LOOKED
        along = (first[:, None] + places * length[:, None]).astype(np.int64)
        result: Floats = self.seen(along, along + offsets[:, None]).mean(axis=1) * length
        return result

    def symmetric(self) -> bool:
        """Return True if every nonzero whose mirror image is observed has a nonzero there, and at least one
        such image exists."""
        if self.shape[0] != self.shape[1]:
            return False
        rows, columns = self.tensor.coords
        there = np.flatnonzero(rows != columns)
        if self.seen is not None:
            there = there[self.seen(columns[there], rows[there])]
        numbers = self.tensor.numbers
        # A few of them tell of most matrices that they are not symmetric.
        for some in (there[:_LOOKED], there[_LOOKED:]):
            mirrored = np.sort(columns[some] * self.shape[1] + rows[some])
            place = np.minimum(np.searchsorted(numbers, mirrored), numbers.size - 1)
            if (numbers[place] != mirrored).any():
                return False
        return bool(there.size)

    def blocks(self, size: tuple[int, int]) -> tuple[Observed, Floats]:
        """Return the matrix of nonempty blocks of this size, restricted to blocks that are observed as a
        whole, and the number of nonzeros of each."""
        high, wide = size
        grid = tuple(-(-s // b) for s, b in zip(self.shape, size, strict=True))

        def seen(rows: Ints, columns: Ints) -> Bools:
            if self.seen is None:
                return np.ones(np.broadcast_shapes(rows.shape, columns.shape), dtype=bool)
            ends = [
                (r, c)
                for r in (rows * high, (rows + 1) * high - 1)
                for c in (columns * wide, (columns + 1) * wide - 1)
            ]
            result: Bools = np.logical_and.reduce([self.seen(r, c) for r, c in ends])
            return result

        rows, columns = self.tensor.coords // np.array(size)[:, None]
        kept = seen(rows, columns)
        numbers, counts = np.unique(rows[kept] * grid[1] + columns[kept], return_counts=True)
        coords = np.stack(np.divmod(numbers, grid[1]))
        ones = np.ones(numbers.size, dtype=np.int8)
        tensor = SparseTensor.from_coo("blocks", self.tensor.ranks, grid, coords, ones)
        return Observed(tensor, None, None if self.seen is None else seen), counts.astype(np.float64)


def chosen(tensor: SparseTensor, kept: Bools) -> SparseTensor:
    """Return the tensor of the nonzeros selected by `kept`."""
    return SparseTensor(
        tensor.name, tensor.ranks, tensor.shape, tensor.coords[:, kept], tensor.values[kept]
    )  # fmt: skip
