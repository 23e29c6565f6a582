"""What fits when tiles are kept in a format: CSR, COO, CSF, dense, a list of rank formats, ..."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.sparse.fibertree import sorting
from polymodel.sparse.formats.levels import levels_of_groups
from polymodel.sparse.formats.parse import parse_format
from polymodel.sparse.formats.ranks import CP, RLE, B, U
from polymodel.sparse.formats.whole import CISS, Format, NamedFormat, PerRank
from polymodel.tiling.fits.fit import Fit, Op
from polymodel.tiling.plane.counts import Counts
from polymodel.tiling.plane.pattern import Flags, Index, Ints, Pattern, Rects
from polymodel.tiling.plane.sorting import sorted_by

# Bits of a tile beyond all counting: more than any memory.
MOST_BITS = 2**62


@dataclass(frozen=True)
class Stored(Fit):
    """Bits of a tile in a format, exact: A, B and the output each in a buffer of `capacity` bits.

    `format`: a Format or what `parse_format` takes, for the operands' ranks in the order (row, column,
    others). The output is what the operands' places make it: their union for add, what both hold for
    multiply. Coordinates count from a tile's origin. Where one operand has entries and another, or the
    output, has none, its buffer holds an empty tile (of CSR all pointers, of dense data all zeros); a tile
    without entries of either operand is not stored and takes nothing.
    """

    format: object = "CSR"

    def __post_init__(self) -> None:
        faults: list[Diagnostic] = []
        try:
            super().__post_init__()
        except SpecError as error:
            faults += error.diagnostics
        if not isinstance(self.format, Format | str | Mapping | Sequence):
            what = f"{self.format!r} is no format"
            faults.append(Diagnostic(what, "a name such as CSR, or one format per rank"))
        if faults:
            raise SpecError(faults)

    def __hash__(self) -> int:
        """Formats written as lists or mappings have no hash of their own."""
        return hash((type(self), self.capacity, repr(self.format)))

    @property
    def unit(self) -> str:
        return "bits"

    def format_of(self, pattern: Pattern) -> Format:
        """The format for these operands. SpecError if it is not theirs, Refused if tilers cannot use it."""
        found = parse_format(self.format, own_ranks(pattern))
        if isinstance(found, CISS) and found.assign == "nnz":
            what = "in CISS with slices dealt by nonzeros a larger tile may take fewer bits"
            raise Refused(f"{what}: tilers cannot go by it", "deal by data: CISS(assign=data)")
        if isinstance(found, PerRank) and any(
            isinstance(r, RLE) and r.overlong == "refuse" for r in found.rules
        ):
            raise Refused(
                "run lengths that refuse long runs say nothing of how many bits a tile would take",
                "say what becomes of long runs: {format: RLE, overlong: zero}",
            )
        return found

    def entry_bits(self, pattern: Pattern) -> int:
        """Bits that every entry of a tile takes at least: its value, and coordinates kept for it alone."""
        return _entry_bits(self.format_of(pattern), len(own_ranks(pattern)))

    def loads(self, counts: Counts, rects: Rects, op: Op) -> Ints:
        pattern = counts.pattern
        format = self.format_of(pattern)
        tiles = _Tiles.of(counts, rects, format.order(own_ranks(pattern)))
        third = None if op == "add" else pattern.in_a & pattern.in_b
        each = [tiles.bits(format, which) for which in (pattern.in_a, pattern.in_b, third)]
        found: Ints = np.where(tiles.filled, np.maximum.reduce(each), 0)
        return found


def stored(format: object, bits: int) -> Stored:
    """A fit: A, B and the output of a tile take at most so many bits each in this format."""
    return Stored(bits, format)


def _entry_bits(format: Format, ranks: int) -> int:
    if isinstance(format, NamedFormat):
        kept = {"dense": 0, "COO": ranks}.get(format.kind, 1)
        return format.widths.data + kept * (format.widths.index or 0)
    if isinstance(format, CISS):
        return format.widths.data + (ranks - 1) * (format.widths.index or 0)
    last = format.rules[-1] if isinstance(format, PerRank) and format.rules else None
    # Masks and offsets belong to fibers; coordinates as wide as a tile needs may have no bits.
    if isinstance(last, CP | U):
        return last.pbits + (last.cbits or 0)
    if isinstance(last, RLE):
        return last.pbits + (last.rbits or 0)
    return last.pbits if isinstance(last, B) else 0


def own_ranks(pattern: Pattern) -> tuple[str, ...]:
    """The operands' ranks in the order (row, column, others), of a vector its one."""
    return pattern.own or pattern.ranks


@dataclass(frozen=True, eq=False)
class _Tiles:
    """Points tile after tile, in the order in which a format stores them.

    `order`: the points so, None as they are. `ids`, `coords` (ranks x points) in that order. `origins`,
    `sizes` (tiles x ranks). `filled`: tiles with points.
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
    def of(cls, counts: Counts, rects: Rects, ranks: tuple[str, ...]) -> _Tiles:
        pattern, own = counts.pattern, own_ranks(counts.pattern)
        first = 2 - min(2, len(own))  # a vector's one rank is the one of columns
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
        """Bits of each tile with the entries that `which` says (None: all); an empty one is a tensor too."""
        ids, coords = self.ids, self.coords
        if which is not None:
            kept = np.flatnonzero(which if self.order is None else which[self.order])
            ids, coords = ids[kept], coords.take(kept, axis=1)  # `take`: several times faster than a mask
        tiles = self.filled.size
        levels = levels_of_groups(self.ranks, coords, ids, tiles, self.origins, self.sizes, self.shape)
        roots = np.ones(tiles, dtype=np.int64)
        total = format.bits(replace(levels, fibers=(roots, *levels.fibers[1:]))).total
        found: Ints = np.broadcast_to(np.minimum(total, MOST_BITS), tiles).astype(np.int64)
        return found
