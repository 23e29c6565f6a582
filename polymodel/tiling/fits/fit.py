"""The load of a memory by a tile, relative to its capacity."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.sparse.fibertree import sorting
from polymodel.sparse.formats.footprints import dcsr_words
from polymodel.sparse.formats.levels import levels_of_groups
from polymodel.sparse.formats.parse import parse_format
from polymodel.sparse.formats.whole import CISS, CP, RLE, B, Format, NamedFormat, PerRank, U
from polymodel.tiling.plane.pattern import Flags, Index, Ints, Pattern, Rects, TileCounts, sorted_by

Op = Literal["add", "multiply"]

# Sums of loads and capacities stay within 64 bits.
MOST_CAPACITY = 2**62


@dataclass(frozen=True)
class Fit(ABC):
    """A measure of capacity; a tile fits when its load is at most `capacity`.

    Loads never decrease when a rectangle grows; tilers rely on that.
    """

    capacity: int

    def __post_init__(self) -> None:
        # NumPy integers are accepted as well, so that ranges of them can be tried.
        if (
            isinstance(self.capacity, bool)
            or not isinstance(self.capacity, int | np.integer)
            or self.capacity < 1
        ):
            message = f"capacity {self.capacity!r} is not a positive integer"
            raise SpecError([Diagnostic(message, "write e.g. 128", code="not-positive-integer")])
        if self.capacity > MOST_CAPACITY:
            what = f"capacity {self.capacity!r} is more than 2^62"
            raise SpecError([Diagnostic(what, "write at most 4611686018427387904", code="number-too-large")])
        object.__setattr__(self, "capacity", int(self.capacity))

    @property
    @abstractmethod
    def unit(self) -> str:
        """The unit of the capacity."""

    @abstractmethod
    def loads(self, counts: TileCounts, rects: Rects, op: Op) -> Ints:
        """Return the load of the fullest memory for each tile, in `unit`."""

    def fits(self, counts: TileCounts, rects: Rects, op: Op) -> np.typing.NDArray[np.bool_]:
        result: np.typing.NDArray[np.bool_] = self.loads(counts, rects, op) <= self.capacity
        return result


@dataclass(frozen=True)
class Elements(Fit):
    """The number of entries: of A and B together for add, of the operand with more for multiply."""

    @property
    def unit(self) -> str:
        return "elements"

    def loads(self, counts: TileCounts, rects: Rects, op: Op) -> Ints:
        if op == "add":
            return counts.nnz_a + counts.nnz_b
        return np.maximum(counts.nnz_a, counts.nnz_b)


@dataclass(frozen=True)
class Words(Fit):
    """Words of a compressed tile (2 nnz + 2 nonempty rows + 3), separately for A, B and an upper bound of the
    output.

    The output is bounded before it is known: for add by the entries and rows of both operands and by the size
    of the tile, for multiply by the lesser of the two operands. Tensors of higher rank add 2 words per fiber
    and 1 per level.
    """

    @property
    def unit(self) -> str:
        return "words"

    def loads(self, counts: TileCounts, rects: Rects, op: Op) -> Ints:
        depth, levels = counts.pattern.depth, counts.pattern.levels
        nnz_a, nnz_b, rows_a, rows_b = counts.nnz_a, counts.nnz_b, counts.rows_a, counts.rows_b
        if op == "add":
            nnz = np.minimum(nnz_a + nnz_b, _places(rects, depth))
            rows, inner = np.minimum(rects.height, rows_a + rows_b), counts.inner_a + counts.inner_b
        else:
            nnz, rows = np.minimum(nnz_a, nnz_b), np.minimum(rows_a, rows_b)
            inner = np.minimum(counts.inner_a, counts.inner_b)
        each = (
            dcsr_words(nnz_a, rows_a) + 2 * counts.inner_a,
            dcsr_words(nnz_b, rows_b) + 2 * counts.inner_b,
            dcsr_words(nnz, rows) + 2 * inner,
        )
        result: Ints = np.maximum.reduce(each) + (levels - 2)
        return result


def elements(capacity: int = 128) -> Elements:
    """Return a fit of the given number of entries: of A and B together for add, of the operand with more for
    multiply."""
    return Elements(capacity)


def words(capacity: int) -> Words:
    """Return a fit in which A, B and an upper bound of the output each take at most the given number of words
    as a compressed tile."""
    return Words(capacity)


def _places(rects: Rects, depth: int) -> Ints:
    """Return the number of positions of each tile; exact below 2^53, which no count of entries reaches."""
    area = rects.height.astype(np.float64) * rects.width * float(min(depth, 2**62))
    result: Ints = np.minimum(area, 2.0**62).astype(np.int64)
    return result


_NAMED = 8


def check_empty(pattern: Pattern, op: Op, fit: Fit) -> None:
    """Raise SpecError for a capacity below the load of a tile with a single empty position."""
    single = Rects.of([(0, 0, 1, 1)])
    none = pattern.taken(np.zeros(0, dtype=np.int64))
    load = int(fit.loads(TileCounts(none, np.zeros(0, dtype=np.int32), 1), single, op)[0])
    if load > fit.capacity:
        fault = f"even an empty tile needs {load} {fit.unit}; the capacity is {fit.capacity}"
        remedy = f"give a capacity of {load} {fit.unit} or more"
        raise SpecError([Diagnostic(fault, remedy, code="over-capacity")])


def check_single(pattern: Pattern, op: Op, fit: Fit, rects: Rects) -> None:
    """Raise SpecError listing all tiles of a single position that do not fit, since they cannot be cut
    further."""
    if not ((rects.height == 1) & (rects.width == 1)).any():
        return
    begins = np.ones(pattern.points, dtype=np.bool_)
    begins[1:] = (np.diff(pattern.rows) != 0) | (np.diff(pattern.cols) != 0)
    row, col = (at[begins].astype(np.int64) for at in (pattern.rows, pattern.cols))
    places = Rects(row, col, np.ones_like(row), np.ones_like(row))
    loads = fit.loads(TileCounts(pattern, np.cumsum(begins) - 1, places.tiles), places, op)
    full = np.nonzero(loads > fit.capacity)[0]
    if not full.size:
        return
    most = int(loads.max())
    remedy = f"give a capacity of at least {most} {fit.unit}, the most that one of them needs"
    if pattern.depth > 1:
        remedy += ", or cut other ranks"
    faults = []
    for at in full[:_NAMED]:
        place = f"{pattern.ranks[0]} {int(row[at])}, {pattern.ranks[1]} {int(col[at])}"
        who = "the entry alone needs" if pattern.depth == 1 else "its entries alone need"
        needs = f"{who} {int(loads[at])} {fit.unit}; the capacity is {fit.capacity}"
        message = f"{pattern.name}, row and column ({place}): {needs}"
        faults.append(Diagnostic(message, remedy, code="over-capacity"))
    if full.size > _NAMED:
        message = f"{full.size - _NAMED} further places do not fit either"
        faults.append(Diagnostic(message, remedy, code="over-capacity"))
    raise SpecError(faults)


# The size of tiles stored in a format: CSR, COO, CSF, dense, a list of rank formats, ...

# Bits of a tile that are treated as unbounded: more than any memory.
MOST_BITS = 2**62


@dataclass(frozen=True)
class Stored(Fit):
    """Bits of a tile in a format, exact: A, B and the output each in a buffer of `capacity` bits.

    `format`: a Format or what `parse_format` accepts, for the ranks of the operands in the order (row,
    column, others). The positions of the output are the union of those of the operands for add, and their
    intersection for multiply. Coordinates are relative to the origin of a tile. If one operand has entries
    and the other, or the output, has none, its buffer holds an empty tile (all pointers of CSR, all zeros of
    dense data); a tile without entries of either operand is not stored and takes no room.
    """

    format: object = "CSR"

    def __post_init__(self) -> None:
        faults: list[Diagnostic] = []
        try:
            super().__post_init__()
        except SpecError as error:
            faults += error.diagnostics
        if not isinstance(self.format, Format | str | Mapping | Sequence):
            what = f"{self.format!r} is not a format"
            faults.append(Diagnostic(what, "a name such as CSR, or one format per rank", code="wrong-type"))
        if faults:
            raise SpecError(faults)

    def __hash__(self) -> int:
        """Formats written as lists or mappings are not hashable themselves."""
        return hash((type(self), self.capacity, repr(self.format)))

    @property
    def unit(self) -> str:
        return "bits"

    def format_of(self, pattern: Pattern) -> Format:
        """Return the format for these operands. Raises SpecError if it does not match them, Refused if tilers
        cannot use it."""
        result = parse_format(self.format, own_ranks(pattern))
        if isinstance(result, CISS) and result.assign == "nnz":
            what = "in CISS with slices dealt by nonzeros a larger tile may take fewer bits"
            message = f"{what}: tilers cannot go by it"
            raise Refused(message, "deal by data: CISS(assign=data)", code="unsupported-format")
        if isinstance(result, PerRank) and any(
            isinstance(r, RLE) and r.overlong == "refuse" for r in result.rules
        ):
            message = "run lengths that refuse long runs say nothing of how many bits a tile would take"
            remedy = "say what becomes of long runs: {format: RLE, overlong: zero}"
            raise Refused(message, remedy, code="unsupported-format")
        return result

    def entry_bits(self, pattern: Pattern) -> int:
        """The bits that every entry of a tile takes at least: its value, and the coordinates stored for it
        alone."""
        return _entry_bits(self.format_of(pattern), len(own_ranks(pattern)))

    def loads(self, counts: TileCounts, rects: Rects, op: Op) -> Ints:
        pattern = counts.pattern
        format = self.format_of(pattern)
        tiles = _TiledPoints.of(counts, rects, format.order(own_ranks(pattern)))
        third = None if op == "add" else pattern.in_a & pattern.in_b
        each = [tiles.bits(format, which) for which in (pattern.in_a, pattern.in_b, third)]
        result: Ints = np.where(tiles.filled, np.maximum.reduce(each), 0)
        return result


def stored(format: object, bits: int) -> Stored:
    """Return a fit in which A, B and the output of a tile each take at most the given number of bits in this
    format."""
    return Stored(bits, format)


def _entry_bits(format: Format, ranks: int) -> int:
    if isinstance(format, NamedFormat):
        kept = {"dense": 0, "COO": ranks}.get(format.kind, 1)
        return format.widths.data + kept * (format.widths.index or 0)
    if isinstance(format, CISS):
        return format.widths.data + (ranks - 1) * (format.widths.index or 0)
    last = format.rules[-1] if isinstance(format, PerRank) and format.rules else None
    # Masks and offsets belong to fibers; coordinates of the width that a tile needs may have 0 bits.
    if isinstance(last, CP | U):
        return last.pbits + (last.cbits or 0)
    if isinstance(last, RLE):
        return last.pbits + (last.rbits or 0)
    return last.pbits if isinstance(last, B) else 0


def own_ranks(pattern: Pattern) -> tuple[str, ...]:
    """Return the ranks of the operands in the order (row, column, others), or the only rank of a vector."""
    return pattern.own or pattern.ranks


@dataclass(frozen=True, eq=False)
class _TiledPoints:
    """Points ordered by tile, in the order in which a format stores them.

    `order`: the permutation of the points, None for the identity. `ids`, `coords` (ranks x points) in that
    order. `origins`, `sizes` (tiles x ranks). `filled`: tiles with points.
    """

    ranks: tuple[str, ...]
    shape: tuple[int, ...]
    order: Index | None
    ids: Index
    coords: Index
    origins: Ints
    sizes: Ints
    filled: Flags

    @classmethod
    def of(cls, counts: TileCounts, rects: Rects, ranks: tuple[str, ...]) -> _TiledPoints:
        pattern, own = counts.pattern, own_ranks(counts.pattern)
        first = 2 - min(2, len(own))  # the only rank of a vector is the rank of columns
        deep = [] if pattern.deep is None else list(pattern.deep)
        nothing = [np.zeros_like(rects.row)] * len(deep)
        whole = [np.full_like(rects.row, size) for size in pattern.sizes]
        columns = dict(zip(own, [pattern.rows, pattern.cols][first:] + deep, strict=True))
        shapes = dict(zip(own, [*pattern.shape[first:], *pattern.sizes], strict=True))
        origins = dict(zip(own, [rects.row, rects.col][first:] + nothing, strict=True))
        sizes = dict(zip(own, [rects.height, rects.width][first:] + whole, strict=True))
        if ranks == own:
            sorted_ids = bool((counts.ids[1:] >= counts.ids[:-1]).all())
            order = None if sorted_ids else sorted_by(counts.ids, counts.tiles)
        else:
            order = sorting([counts.ids.astype(np.int64), *(columns[r].astype(np.int64) for r in ranks)])
        coords = np.stack([columns[r] for r in ranks])
        return cls(
            ranks,
            tuple(shapes[r] for r in ranks),
            order,
            counts.ids if order is None else counts.ids[order],
            coords if order is None else coords.take(order, axis=1),
            np.stack([origins[r] for r in ranks], axis=1),
            np.stack([sizes[r] for r in ranks], axis=1),
            counts.union > 0,
        )

    def bits(self, format: Format, which: Flags | None) -> Ints:
        """Return the bits of each tile with the entries selected by `which` (None: all); an empty tile is
        stored as well."""
        ids, coords = self.ids, self.coords
        if which is not None:
            kept = np.flatnonzero(which if self.order is None else which[self.order])
            ids, coords = ids[kept], coords.take(kept, axis=1)  # `take`: several times faster than a mask
        tiles = self.filled.size
        levels = levels_of_groups(self.ranks, coords, ids, tiles, self.origins, self.sizes, self.shape)
        roots = np.ones(tiles, dtype=np.int64)
        total = format.bits(replace(levels, fibers=(roots, *levels.fibers[1:]))).total
        result: Ints = np.broadcast_to(np.minimum(total, MOST_BITS), tiles).astype(np.int64)
        return result
