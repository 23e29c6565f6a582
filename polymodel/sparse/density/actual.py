"""Given data as a density model: tiles are counted, not modelled."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np

from polymodel.errors import Diagnostic, SpecError
from polymodel.frozen import dataclass
from polymodel.sparse.density.model import MOST_POINTS, DensityModel, Floats, Ints, Label
from polymodel.sparse.density.placed import CountedTiles, Placed, TilesOfShape
from polymodel.sparse.density.reader import Path, Reader
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.faults import not_a

# Tilings of up to this many tiles per nonzero, or in all, are counted in an array; others by sorting.
_PER_NONZERO, _IN_ALL = 4, 1 << 22


@dataclass(frozen=True)
class Actual(Placed):
    """The tensor itself. `Actual.of(tensor)` makes one; all numbers are exact."""

    tensor: SparseTensor

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.tensor, SparseTensor):
            raise not_a("sparse tensor", "Actual", self.tensor, "pass e.g. pm.read_tensor('matrix.mtx.gz')")
        if (self.ranks, self.shape) != (self.tensor.ranks, self.tensor.shape):
            what = f"{list(self.ranks)} of {list(self.shape)} is not {self.tensor!r}"
            remedy = "make it with Actual.of(tensor)"
            raise SpecError([Diagnostic(what, remedy, "tensor", code="shape-mismatch")])

    @classmethod
    def of(cls, tensor: SparseTensor) -> Actual:
        """Return the model of a tensor."""
        if not isinstance(tensor, SparseTensor):
            raise not_a("sparse tensor", "Actual.of", tensor, "pass e.g. pm.read_tensor('matrix.mtx.gz')")
        return cls(tensor.ranks, tensor.shape, tensor)

    @classmethod
    def written(cls, reader: Reader, path: Path, given: object) -> DensityModel | None:
        """Return the model with these parameters of a YAML file; None after a fault, which the reader has
        recorded."""
        if isinstance(given, Mapping):
            keys = reader.keys(path, given, ("file",), ("file",))
            path, given = (*path, "file"), keys.get("file")
            if given is None:
                return None
        data = reader.file(path, given)
        return None if data is None else cls.of(data)

    @property
    def label(self) -> Label:
        return "exact"

    @property
    def settled(self) -> bool:
        return True

    @property
    def data(self) -> SparseTensor:
        return self.tensor

    @property
    def expected_nnz(self) -> float:
        return float(self.tensor.nnz)

    def known_rows(self) -> Ints:
        return np.bincount(self.tensor.coords[0], minlength=self.shape[0]).astype(np.int64)

    def square_multiplies(self) -> float:
        side = self.shape[0]
        rows, columns = (np.bincount(c, minlength=side).astype(np.int64) for c in self.tensor.coords)
        return float(rows @ columns)

    def draw(self, seed: int, name: str = "A") -> SparseTensor:
        return self.tensor

    def occupancies(self, tile: tuple[int, ...]) -> tuple[Ints, Ints]:
        """Return the nonempty tiles in row-major order: their numbers (ranks x tiles) and occupancies."""
        shape = tuple(int(t) for t in self.tiles(tile))
        grid = tuple(-(-s // t) for s, t in zip(self.shape, shape, strict=True))
        if prod(grid) > MOST_POINTS:
            return self._compared(shape)
        numbers, counts = self._numbered(shape, grid)
        where = np.empty((len(grid), numbers.size), dtype=np.int64)
        for rank in reversed(range(len(grid))):
            numbers, where[rank] = np.divmod(numbers, grid[rank])
        return where, counts

    def _numbered(self, tile: tuple[int, ...], grid: tuple[int, ...]) -> tuple[Ints, Ints]:
        """Return the row-major numbers of the nonempty tiles in ascending order, and their occupancies."""
        tensor = self.tensor
        numbers = np.zeros(tensor.nnz, dtype=np.int64)
        for row, size, count in zip(tensor.coords, tile, grid, strict=True):
            numbers *= count
            numbers += row if size == 1 else row // size
        if prod(grid) <= max(_IN_ALL, _PER_NONZERO * tensor.nnz):
            counts = np.bincount(numbers, minlength=1)
            result = np.flatnonzero(counts)
            return result.astype(np.int64), counts[result].astype(np.int64)
        # Nonzeros are in order; where whole fibers stay together, tiles are too.
        if (numbers[1:] < numbers[:-1]).any():
            numbers.sort()
        starts = _starts(numbers[None, :])
        return numbers[starts], np.diff(np.append(starts, numbers.size)).astype(np.int64)

    def _compared(self, tile: tuple[int, ...]) -> tuple[Ints, Ints]:
        """Return the same as `occupancies`, comparing rank by rank, where 64 bits cannot number all tiles."""
        where = self.tensor.coords // np.array(tile, dtype=np.int64)[:, None]
        where = where[:, np.lexsort(where[::-1])]
        starts = _starts(where)
        return where[:, starts], np.diff(np.append(starts, where.shape[1])).astype(np.int64)

    def make_tiling(self, tile: tuple[int, ...]) -> TilesOfShape:
        where, counts = self.occupancies(tile)
        full = np.ones(counts.size, dtype=bool)
        whole = [s // t for s, t in zip(self.shape, tile, strict=True)]
        for row, number in zip(where, whole, strict=True):
            full &= row < number
        grid = [-(-s // t) for s, t in zip(self.shape, tile, strict=True)]
        return CountedTiles(_histogram(counts[full], prod(whole)), _histogram(counts, prod(grid)))


def _starts(ordered: Ints) -> Ints:
    """Return the columns that differ from the one before."""
    if not ordered.shape[1]:
        return np.zeros(0, dtype=np.int64)
    return np.flatnonzero(np.concatenate(([True], (ordered[:, 1:] != ordered[:, :-1]).any(axis=0))))


def _histogram(counts: Ints, tiles: int) -> tuple[Ints, Floats]:
    """Return the distinct occupancies, and how many of `tiles` tiles have each, empty ones included."""
    if counts.max(initial=0) < _IN_ALL:
        numbers = np.bincount(counts, minlength=1)
        values = np.flatnonzero(numbers[1:]) + 1
        numbers = numbers[values]
    else:
        values, numbers = np.unique(counts, return_counts=True)
    empty = np.array([float(tiles - counts.size)])
    return np.concatenate((np.zeros(1, dtype=np.int64), values)), np.concatenate((empty, numbers))
