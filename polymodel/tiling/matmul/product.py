"""The product of two patterns: where Z = A B has entries, and the first k that contributes to each of them.

For every loop order, the pairs of one Z tile occur in ascending k. The first k coordinate of an entry of Z
therefore says when it appears, for every tile size and order: products are enumerated once, row by row of A.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.governor import look
from polymodel.sparse.tensor import SparseTensor
from polymodel.tiling.plane.operands import Transposed
from polymodel.tiling.plane.pattern import Flags, Index, Ints, sorted_by

MULTIPLIES = 10**9  # about a minute of one core
OUTPUTS = 10**8  # 12 bytes each are held
EXTENT = 5 * 10**7  # of a rank: several arrays of 8 bytes a coordinate are held
CHUNK = 2**18  # products at a time: few enough to be sorted within a processor's cache
_FEW = 8  # rows with this many entries are rare
_PLACES = 8  # up to this many positions per product are filled one by one, which is faster than sorting
_REMEMBERED, _REMEMBERED_ENTRIES = 128, 2**26
Progress = Callable[[str], None]
Made = TypeVar("Made")


@dataclass(frozen=True, eq=False)
class EntryCoordinates:
    """Entries of a matrix in row-major order: coordinates as int32 (int64 for ranks of 2^31 and more)."""

    rows: Index
    cols: Index
    shape: tuple[int, int]

    @property
    def nnz(self) -> int:
        return int(self.rows.size)

    @cached_property
    def starts(self) -> Ints:
        """The position of the first entry of each row, and the end: shape[0] + 1 numbers."""
        if _FEW * self.shape[0] < self.nnz:  # rows ascend: a search for each touches few of the entries
            return np.searchsorted(self.rows, np.arange(self.shape[0] + 1, dtype=self.rows.dtype))
        counts = np.bincount(self.rows, minlength=self.shape[0])
        return np.concatenate([[0], np.cumsum(counts)])

    @cached_property
    def row_nnz(self) -> Ints:
        return np.diff(self.starts)

    @cached_property
    def transposed(self) -> EntryCoordinates:
        """The transpose, by a stable sort by column."""
        order = sorted_by(self.cols, self.shape[1])
        return EntryCoordinates(self.cols[order], self.rows[order], self.shape[::-1])

    def taken(self, which: Flags) -> EntryCoordinates:
        """Some of the entries."""
        return EntryCoordinates(self.rows[which], self.cols[which], self.shape)

    @cached_property
    def words(self) -> int:
        """Words of the whole matrix as one tile: 2 nnz + 2 nonempty rows + 3, 0 if empty."""
        rows = int(np.count_nonzero(self.row_nnz))
        return 2 * self.nnz + 2 * rows + 3 if self.nnz else 0


@dataclass(frozen=True, eq=False)
class PatternProduct:
    """Z = A B as patterns (all values are one, so that nothing cancels).

    `z`: entries of the result. `first_k`: for each the least k that A and B share there. `multiplies`: pairs
    of entries that are multiplied. `name`, `second`: the name of A and a description of B.
    """

    name: str
    second: str
    a: EntryCoordinates
    b: EntryCoordinates
    z: EntryCoordinates
    first_k: Index
    multiplies: int

    @property
    def extents(self) -> tuple[int, int, int]:
        """Extents of the ranks i, k and j."""
        return self.a.shape[0], self.a.shape[1], self.b.shape[1]

    @cached_property
    def used(self) -> tuple[EntryCoordinates, EntryCoordinates]:
        """Entries of A whose row of B is nonempty, and of B whose column of A is: only their tiles meet."""
        meets_a = self.b.row_nnz[self.a.cols] > 0
        meets_b = self.a.transposed.row_nnz[self.b.rows] > 0
        return self.a.taken(meets_a), self.b.taken(meets_b)

    @property
    def compulsory_words(self) -> int:
        """The used part of A and B read once and Z written once, 2 words per entry and per row: a lower bound
        for all tilings."""
        return sum(2 * t.nnz + 2 * int(np.count_nonzero(t.row_nnz)) for t in (*self.used, self.z))

    @cached_property
    def memo(self) -> dict[tuple[str, int, int], object]:
        """Results shared by several tile sizes; `once` keeps it small."""
        return {}

    def once(self, key: tuple[str, int, int], make: Callable[[], Made]) -> Made:
        """The result of `make`, cached under `key` until many others have been computed."""
        if key not in self.memo:
            most = min(_REMEMBERED, max(8, _REMEMBERED_ENTRIES // (self.z.nnz + 1)))
            while len(self.memo) >= most:
                del self.memo[next(iter(self.memo))]
            self.memo[key] = make()
        result: Made = self.memo[key]  # type: ignore[assignment]  # the key's first part says what it is
        return result


def product_of(
    a: SparseTensor, second: SparseTensor | Transposed | None = None, progress: Progress | None = None
) -> PatternProduct:
    """Return A times B; without `second` A times A, or A times its transpose.

    Raises SpecError if the sizes do not match, Refused above 10^9 multiplies, 10^8 entries of Z, or 5 x 10^7
    coordinates of a rank.
    """
    b, how = _second(a, second)
    faults = [
        Diagnostic(
            f"{t.name} has {len(t.shape)} ranks",
            "two matrices are multiplied; pm.tile (--op add, multiply) cuts tensors element by element",
            code="wrong-count",
        )
        for t in ((a, b) if isinstance(second, SparseTensor) else (a,))
        if len(t.shape) != 2
    ]
    if not faults and a.shape[1] != b.shape[0]:
        sizes = f"{a.name} has {a.shape[1]} columns, {how} {b.shape[0]} rows"
        message = "give b as many rows as a has columns, or pass pm.Transposed() (--with transposed)"
        faults.append(Diagnostic(sizes, message, code="shape-mismatch"))
    if faults:
        raise SpecError(faults)
    longest = max(*a.shape, *b.shape)
    if longest > EXTENT:
        fault = f"{a.name} times {how}: a rank has {longest:,} coordinates, more than {EXTENT:,}"
        remedy = "leave out rows and columns without entries: number those that have some"
        raise Refused(fault, remedy, code="too-large")
    ours, theirs = _places(a.coords, a.shape), _places(b.coords, b.shape)
    multiplies = int(ours.transposed.row_nnz @ theirs.row_nnz)
    if multiplies > MULTIPLIES:
        message = f"{a.name} times {how} takes {multiplies:.3g} multiplies, more than {MULTIPLIES:.0e}"
        raise Refused(message, "take a part of the rows of a, or of the columns of b", code="too-large")
    z, first_k = _multiplied(ours, theirs, progress)
    return PatternProduct(a.name, how, ours, theirs, z, first_k, multiplies)


def _second(a: SparseTensor, second: SparseTensor | Transposed | None) -> tuple[SparseTensor, str]:
    if second is None:
        return a, a.name
    if isinstance(second, SparseTensor):
        return second, second.name
    if len(a.shape) != 2:
        return a, f"{a.name} transposed"
    coords = a.coords[::-1][:, np.argsort(a.coords[1], kind="stable")]
    return SparseTensor(a.name, a.ranks[::-1], a.shape[::-1], coords, a.values), f"{a.name} transposed"


def _places(coords: Ints, shape: tuple[int, ...]) -> EntryCoordinates:
    kind = np.int32 if max(shape) < 2**31 else np.int64
    return EntryCoordinates(coords[0].astype(kind), coords[1].astype(kind), (shape[0], shape[1]))


def _multiplied(
    a: EntryCoordinates, b: EntryCoordinates, progress: Progress | None
) -> tuple[EntryCoordinates, Index]:
    rows, cols, first, held = [], [], [], 0
    each = b.row_nnz[a.cols]
    for begin, end in _row_pieces(a, b, each):
        look("multiplying")
        part = slice(a.starts[begin], a.starts[end])
        dense = (end - begin) * b.shape[1] <= _PLACES * int(each[part].sum())
        row, col, k = (_scattered if dense else _sorted)(a, b, each, part, begin, end)
        rows.append((row + begin).astype(a.rows.dtype))
        cols.append(col.astype(b.cols.dtype))
        first.append(k.astype(a.cols.dtype))
        held += row.size
        if held > OUTPUTS:
            remedy = "take a part of the rows of a, or of the columns of b"
            raise Refused(f"the product has more than {OUTPUTS:.0e} entries", remedy, code="too-large")
        if progress is not None:
            progress(f"product: {int(rows[-1][-1]) + 1:,} of {a.shape[0]:,} rows, {held:,} entries")
    shape = (a.shape[0], b.shape[1])
    kinds = (a.rows.dtype, b.cols.dtype, a.cols.dtype)
    result = [
        np.concatenate([np.zeros(0, kind), *x]) for kind, x in zip(kinds, (rows, cols, first), strict=True)
    ]
    return EntryCoordinates(result[0], result[1], shape), result[2]


def _sorted(
    a: EntryCoordinates, b: EntryCoordinates, each: Ints, part: slice, begin: int, end: int
) -> tuple[Index, Index, Index]:
    """Return rows from `begin` on, columns and first k of the products of some rows of A, with equal ones
    adjacent after a sort."""
    k_bits, j_bits = _bits(a.shape[1]), _bits(b.shape[1])
    keys = _expanded(a, b, each, part, begin)
    new = np.ones(keys.size, dtype=np.bool_)
    places = keys >> k_bits
    np.not_equal(places[1:], places[:-1], out=new[1:])
    places = places[new]
    return places >> j_bits, places & ((1 << j_bits) - 1), keys[new] & ((1 << k_bits) - 1)


def _scattered(
    a: EntryCoordinates, b: EntryCoordinates, each: Ints, part: slice, begin: int, end: int
) -> tuple[Index, Index, Index]:
    """The same where the products fill a large part of the positions: the least k of each position is
    kept.
    """
    width = b.shape[1]
    i, k, counts = a.rows[part].astype(np.int64) - begin, a.cols[part], each[part]
    at = b.cols[spread(b.starts[k], counts)] + np.repeat(i * width, counts)
    least = np.full((end - begin) * width, a.shape[1], dtype=a.cols.dtype)
    np.minimum.at(least, at, np.repeat(k, counts))
    places = np.flatnonzero(least < a.shape[1])
    row, col = np.divmod(places, width)
    return row, col, least[places]


def partial_outputs(product: PatternProduct, tile_k: int) -> int:
    """Return the number of entries of all partial products: (i, j, k tile) with at least one multiply."""
    a, b = product.a, product.b
    k_bits, result, each = _bits(a.shape[1]), 0, b.row_nnz[a.cols]
    for begin, end in _row_pieces(a, b, each):
        keys = _expanded(a, b, each, slice(a.starts[begin], a.starts[end]), begin)
        tiles = (keys & ((1 << k_bits) - 1)) // tile_k
        places = keys >> k_bits
        result += 1 + int(np.count_nonzero((places[1:] != places[:-1]) | (tiles[1:] != tiles[:-1])))
    return result


def _row_pieces(a: EntryCoordinates, b: EntryCoordinates, each: Ints) -> Iterator[tuple[int, int]]:
    """Iterate over ranges of rows of A with about `CHUNK` products; `each`: products of every entry."""
    k_bits, j_bits = _bits(a.shape[1]), _bits(b.shape[1])
    most_rows = 1 << max(0, 62 - k_bits - j_bits)
    if k_bits + j_bits > 62:
        message = "the ranks k and j together have more places than 62 bits can number"
        raise Refused(message, "renumber them", code="number-too-large")
    before = np.concatenate([[0], np.cumsum(each)])
    at_rows = before[a.starts]
    row, rows = 0, a.shape[0]
    while row < rows:
        end = int(np.searchsorted(at_rows, at_rows[row] + CHUNK, side="right")) - 1
        end = min(max(end, row + 1), row + most_rows, rows)
        if at_rows[end] > at_rows[row]:
            yield row, end
        row = end


def _expanded(a: EntryCoordinates, b: EntryCoordinates, each: Ints, part: slice, from_row: int) -> Ints:
    """Return the products of some rows of A as sorted integers: row (from `from_row`), j and k in bit
    fields.
    """
    k_bits, j_bits = _bits(a.shape[1]), _bits(b.shape[1])
    i, k, counts = a.rows[part].astype(np.int64) - from_row, a.cols[part].astype(np.int64), each[part]
    at = spread(b.starts[k], counts)
    keys = np.repeat((i << (j_bits + k_bits)) | k, counts)
    keys |= b.cols[at].astype(np.int64) << k_bits
    keys.sort()
    return keys


def spread(begins: Ints, counts: Ints) -> Ints:
    """Return begins[0], begins[0] + 1, ... (counts[0] numbers), then those of the next."""
    ends = np.cumsum(counts)
    result: Ints = np.repeat(begins - (ends - counts), counts) + np.arange(int(ends[-1]) if ends.size else 0)
    return result


def _bits(extent: int) -> int:
    return max(1, (extent - 1).bit_length())


def changes(*columns: Index) -> Flags:
    """True where a run of equal values begins, in any of the columns."""
    new = np.zeros(columns[0].size, dtype=np.bool_)
    new[:1] = True
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    return new
