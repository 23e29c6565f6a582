"""Uniform tilings of Z = A B: which pairs of tiles contribute, and the traffic of each loop order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.governor import look
from polymodel.spec.faults import plainly
from polymodel.tiling.matmul.product import (
    EntryCoordinates,
    PatternProduct,
    changes,
    partial_outputs,
    spread,
)
from polymodel.tiling.matmul.walk import OrderTraffic, Pairs, traffic
from polymodel.tiling.plane.pattern import Index, Ints

# Uniform coordinate tiles of a matrix: the nonempty ones, and the words of each.

NUMBERED = 2**62
# Counting into an array of all tiles is faster than sorting while there are not many more tiles than entries.
_SPARE_CELLS = 2**18
BAND = 2**18  # entries per band, chosen so that sorting one stays within a processor's cache
CHUNK = 2**22  # pairs generated at a time: 100 MB


@dataclass(frozen=True, eq=False)
class TensorTiles:
    """The nonempty tiles of one tensor: their numbers in ascending order (row-major on the grid), and the
    entries and rows of each.

    `shape`: number of tiles down and across.
    """

    ids: Ints
    nnz: Ints
    rows: Ints
    shape: tuple[int, int]

    @property
    def words(self) -> Ints:
        """2 nnz + 2 nonempty rows + 3 words for each tile; empty tiles take no words and are not listed."""
        return 2 * self.nnz + 2 * self.rows + 3

    @property
    def count(self) -> int:
        return int(self.ids.size)

    @property
    def largest(self) -> int:
        """Words of the largest tile, 0 if there is none."""
        return int(self.words.max(initial=0))

    @property
    def total(self) -> int:
        """Words of all tiles."""
        return int(self.words.sum())

    def over(self, capacity: int) -> int:
        """Tiles that do not fit."""
        return int(np.count_nonzero(self.words > capacity))


def grid_of(shape: tuple[int, int], tile: tuple[int, int]) -> tuple[int, int]:
    """Number of tiles down and across; those at the edges may be smaller."""
    down, across = (-(-extent // t) for extent, t in zip(shape, tile, strict=True))
    if down * across > NUMBERED:
        message = f"{down} x {across} tiles are more than 62 bits can number"
        raise Refused(message, "take larger tiles", code="number-too-large")
    return down, across


def numbers(places: EntryCoordinates, tile: tuple[int, int]) -> Ints:
    """The tile of every entry."""
    across = grid_of(places.shape, tile)[1]
    result: Ints = (places.rows // tile[0]).astype(np.int64)
    result *= across
    result += places.cols // tile[1]
    return result


def tiles_of(places: EntryCoordinates, tile: tuple[int, int]) -> TensorTiles:
    """The nonempty tiles of a matrix that is cut into tiles of one shape.

    Tiles are counted in bands of whole rows of tiles, so that a time limit can be checked between two bands.
    """
    shape = grid_of(places.shape, tile)
    found: list[tuple[Ints, Ints, Ints]] = [(np.zeros(0, dtype=np.int64),) * 3]
    for piece in _bands(places, tile[0]):
        look()
        band = EntryCoordinates(places.rows[piece], places.cols[piece], places.shape)
        first = int(band.rows[0]) // tile[0]
        most = (int(band.rows[-1]) // tile[0] - first + 1) * shape[1]
        ids = numbers(band, tile) - first * shape[1]
        present, nnz = counted(ids, most)
        # The columns of a tile are contiguous: within one row its entries follow each other.
        _, rows = counted(ids[changes(band.rows, ids)], most)
        found.append((present + first * shape[1], nnz, rows))
    present, nnz, rows = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return TensorTiles(present, nnz, rows, shape)


def _bands(places: EntryCoordinates, height: int) -> Iterator[slice]:
    """All entries in pieces of about `BAND` entries, each of which consists of whole rows of tiles."""
    begins = np.append(places.starts[:-1:height], places.nnz)
    ends = np.append(begins[np.searchsorted(begins, np.arange(BAND, places.nnz, BAND))], places.nnz)
    begin = 0
    for end in np.unique(ends).tolist():
        if end > begin:
            yield slice(begin, end)
            begin = end


def counted(ids: Index, most: int) -> tuple[Ints, Ints]:
    """The distinct numbers (below `most`) in ascending order, and the number of occurrences of each."""
    if most <= 4 * ids.size + _SPARE_CELLS:
        counts = np.bincount(ids, minlength=1)
        present = np.flatnonzero(counts)
        return present, counts[present]
    present, counts = np.unique(ids, return_counts=True)
    return present.astype(np.int64), counts.astype(np.int64)


PAIRS = 2 * 10**7  # 48 bytes for each pair, and 48 more for each loop order
_SPARE = 2**20
Shape = tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class UniformTiles:
    """Tiles of A (Ti x Tk), B (Tk x Tj) and Z (Ti x Tj), smaller at the edges; `tile` is (Ti, Tk, Tj).

    Every figure is computed at its first use: a search needs few figures of each candidate.
    """

    product: PatternProduct
    tile: Shape

    def __post_init__(self) -> None:
        object.__setattr__(self, "tile", plainly(self.tile))
        faults = [
            Diagnostic(
                f"tile size {t!r} of rank {rank} is not a positive integer",
                "write e.g. 64,64,64",
                code="not-positive-integer",
            )
            for rank, t in zip("ikj", self.tile, strict=True)
            if isinstance(t, bool) or not isinstance(t, int) or t < 1
        ]
        if faults:
            raise SpecError(faults)

    @property
    def grid(self) -> Shape:
        """Number of tiles along i, k and j."""
        i, k, j = (-(-extent // t) for extent, t in zip(self.product.extents, self.tile, strict=True))
        return i, k, j

    @property
    def a(self) -> TensorTiles:
        i, k, _ = self.tile
        return self.product.once(("a", i, k), lambda: tiles_of(self.product.a, (i, k)))

    @property
    def b(self) -> TensorTiles:
        _, k, j = self.tile
        return self.product.once(("b", k, j), lambda: tiles_of(self.product.b, (k, j)))

    @property
    def z(self) -> TensorTiles:
        i, _, j = self.tile
        return self.product.once(("z", i, j), lambda: tiles_of(self.product.z, (i, j)))

    @property
    def tiled_words(self) -> int:
        """Words of all nonempty tiles, each counted once."""
        return self.a.total + self.b.total + self.z.total

    @property
    def dense_pairs(self) -> int:
        """The number of pairs of tiles if all tiles were nonempty."""
        i, k, j = self.grid
        return i * k * j

    @cached_property
    def candidates(self) -> int:
        """Pairs of a nonempty tile of A and one of B at the same k."""
        across, down = self.a.ids % self.a.shape[1], self.b.ids // self.b.shape[1]
        k_a, of_a = np.unique(across, return_counts=True)
        k_b, of_b = np.unique(down, return_counts=True)
        _, at_a, at_b = np.intersect1d(k_a, k_b, assume_unique=True, return_indices=True)
        return int(of_a[at_a] @ of_b[at_b])

    @cached_property
    def keys(self) -> Ints:
        """The effectual pairs: those whose tiles share a k coordinate. Each is (i, j, k) in one number."""
        i, k, j = self.grid
        if i * k * j > NUMBERED:
            message = f"{i} x {k} x {j} pairs are more than 62 bits can number"
            raise Refused(message, "take larger tiles", code="number-too-large")
        p, (ti, tk, tj) = self.product, self.tile
        a_k, a_i = p.once(("columns of a", ti, 0), lambda: _touched(p.a.transposed, ti))
        b_k, b_j = p.once(("rows of b", tj, 0), lambda: _touched(p.b, tj))
        begins = np.searchsorted(b_k, np.arange(p.extents[1] + 1))
        counts = np.diff(begins)[a_k]
        ends, result, start = np.cumsum(counts), np.zeros(0, dtype=np.int64), 0
        while start < a_k.size:
            look()
            done = int(ends[start - 1]) if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, done + CHUNK, side="right")))
            at_k, at_i, many = a_k[start:stop], a_i[start:stop].astype(np.int64), counts[start:stop]
            keys = np.repeat(at_i * (j * k) + at_k // tk, many) + b_j[spread(begins[at_k], many)] * np.int64(
                k
            )
            keys = np.concatenate([result, keys])
            keys.sort()
            result = keys[changes(keys)]
            if result.size > PAIRS:
                message = f"more than {PAIRS:.0e} pairs of tiles {self.tile}"
                raise Refused(message, "take larger tiles", code="too-large")
            start = stop
        return result

    @property
    def effectual(self) -> int:
        return int(self.keys.size)

    @cached_property
    def pairs(self) -> Pairs:
        """The effectual pairs with the words of their tiles."""
        _, grid_k, grid_j = self.grid
        z, k = np.divmod(self.keys, grid_k)
        i, j = np.divmod(z, grid_j)
        a = self.a.words[np.searchsorted(self.a.ids, i * grid_k + k)]
        b = self.b.words[np.searchsorted(self.b.ids, k * grid_j + j)]
        return Pairs(i, k, j, a, b, self._accumulated(z))

    def _accumulated(self, z: Ints) -> Ints:
        """Words of the Z tile after each pair; an entry or row counts from the pair in which it first
        appears."""
        ti, tk, tj = self.tile
        p, grid_k = self.product, self.grid[1]
        ids, begins = p.once(("rows of z", ti, tj), lambda: _row_parts(p.z, (ti, tj)))
        entries = self._appearing(ids * grid_k + p.first_k // tk)
        firsts = np.minimum.reduceat(p.first_k, begins) if begins.size else p.first_k
        rows = self._appearing(ids[begins] * grid_k + firsts // tk)
        total = np.cumsum(2 * (entries + rows))
        new = changes(z)
        base = (total - 2 * (entries + rows))[new]
        result: Ints = total - base[np.cumsum(new) - 1] + 3
        return result

    def _appearing(self, keys: Ints) -> Ints:
        """The number of the keys that each effectual pair has."""
        i, k, j = self.grid
        if i * k * j <= 4 * keys.size + _SPARE:
            return np.bincount(keys, minlength=i * k * j)[self.keys]
        present, counts = counted(keys, i * k * j)
        result = np.zeros(self.keys.size, dtype=np.int64)
        result[np.searchsorted(self.keys, present)] = counts
        return result

    @cached_property
    def partial_outputs(self) -> int:
        """The number of entries in the partial products of all effectual pairs."""
        return partial_outputs(self.product, self.tile[1])

    def traffic(self, order: str, buffers: Shape | None = None) -> OrderTraffic:
        """The traffic of a loop order; with `buffers`, tiles that exceed them are overbooked (see
        `walk.traffic`)."""
        return traffic(self.pairs, order, buffers)


def _touched(places: EntryCoordinates, tile: int) -> tuple[Index, Index]:
    """For each row the tile columns in which it has entries: rows, tiles."""
    across = places.cols // tile
    new = changes(places.rows, across)
    return places.rows[new], across[new]


def _row_parts(z: EntryCoordinates, tile: tuple[int, int]) -> tuple[Ints, Ints]:
    """The tile of every entry, and the positions where the rows of each tile begin."""
    grid_of(z.shape, tile)
    ids = numbers(z, tile)
    return ids, np.flatnonzero(changes(z.rows, ids))
