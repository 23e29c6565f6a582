"""What strips of lines take in a format, from sums up to each line.

The bits of most formats follow from how many fibers and coordinates each rank has (of all but run lengths and
interleaved slices). Where the lines lie along the rank that is stored outermost, each of these is counted in
one line alone, so that sums over lines tell them of any strip.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polymodel.sparse.formats.levels import Levels
from polymodel.sparse.formats.ranks import CP, UOP, B, U
from polymodel.sparse.formats.whole import Format, NamedFormat, PerRank
from polymodel.tiling.fits.fit import Fit, Op
from polymodel.tiling.fits.stored import MOST_BITS, Stored, own_ranks
from polymodel.tiling.plane.pattern import Flags, Index, Ints, Pattern
from polymodel.tiling.tilers.lines import Lines, up_to

_COUNTED = (U, CP, B, UOP)
# Their bits do not depend on how many coordinates the outermost rank has.
_NO_FIRST = ("CSR", "CSC", "COO", "dense")
# From products of this on 64 bits may not count them.
_SURE = 2.0**50


def line_sums(pattern: Pattern, fit: Fit, along: int, single: bool) -> bool:
    """Whether strips along this rank (0: of rows, 1: of columns) take what sums over lines tell."""
    ranks = own_ranks(pattern)
    if not isinstance(fit, Stored) or len(ranks) < 2:
        return False
    format = fit.format_of(pattern)
    order = format.order(ranks)
    if order[2:] != ranks[2:] or not _counted(format):
        return False
    free = isinstance(format, NamedFormat) and format.kind in _NO_FIRST
    return order[0] == ranks[along] or single or free


def _counted(format: Format) -> bool:
    if isinstance(format, PerRank):
        return all(type(rule) in _COUNTED for rule in format.rules)
    return isinstance(format, NamedFormat)


@dataclass(frozen=True, eq=False)
class StoredSums:
    """Sums up to each line, per operand (A, B, output) and rank of the format: coordinates present.

    `turned`: the format's outermost rank is not the one of the lines. `across`: per panel, its extent along
    the other rank. `single`: panels of one line.
    """

    format: Format
    ranks: tuple[str, ...]
    sizes: tuple[int, ...]
    lines: Lines
    across: Ints
    turned: bool
    single: bool
    present: tuple[tuple[Ints, ...], ...]

    @classmethod
    def of(
        cls, pattern: Pattern, order: Index | None, lines: Lines, across: Ints,
        along: int, single: bool, rule: tuple[Op, Stored],
    ) -> StoredSums:  # fmt: skip
        """For the points of `pattern`, put in `order` first."""
        op, fit = rule
        ranks = own_ranks(pattern)
        format = fit.format_of(pattern)
        stored = format.order(ranks)
        line = np.repeat(np.arange(lines.number), np.diff(lines.at))
        other = pattern.rows if along else pattern.cols
        coords = [other, *(() if pattern.deep is None else pattern.deep)]
        if order is not None:
            coords = [c[order] for c in coords]
        third = np.ones(pattern.points, dtype=np.bool_) if op == "add" else pattern.in_a & pattern.in_b
        held = [w if order is None else w[order] for w in (pattern.in_a, pattern.in_b, third)]
        present = tuple(_present([line, *coords], which, lines.at) for which in held)
        turned = stored[0] != ranks[along]
        return cls(format, stored, pattern.sizes, lines, across, turned, single, present)

    def loads(self, first: Ints, last: Ints, op: Op, fit: Fit) -> Ints:
        """Bits of strips of the lines from `first` up to, without, `last`, in the fullest buffer."""
        length, across = self.lines.length(first, last), self.across[self.lines.panel(first)]
        sides = (across, length) if self.turned else (length, across)
        shape = (*sides, *(np.broadcast_to(np.int64(s), first.shape) for s in self.sizes))
        filled = self.lines.at[last] > self.lines.at[first]
        most = np.zeros_like(first)
        for sums in self.present:
            coords = [upto[last] - upto[first] for upto in sums]
            if self.turned:
                # One line is one coordinate outermost; otherwise the format does not ask.
                coords[0] = (coords[-1] > 0).astype(np.int64) if self.single else coords[1]
            most = np.maximum(most, self._bits(shape, coords))
        found: Ints = np.where(filled, most, 0)
        return found

    def _bits(self, shape: tuple[Ints, ...], coords: list[Ints]) -> Ints:
        sides = shape
        largest = max((float(s.max(initial=0)) for s in shape), default=0.0)
        if largest**2 * max(1, int(coords[-1].max(initial=0))) > _SURE:
            sides = tuple(s.astype(object) for s in shape)  # bits may not fit in 64
        one = np.ones_like(coords[0])
        levels = Levels(self.ranks, sides, (one, *coords[:-1]), tuple(coords), "exact")
        found: Ints = np.broadcast_to(
            np.minimum(self.format.bits(levels).total, MOST_BITS), one.shape
        ).astype(np.int64)
        return found


def _present(columns: list[Index], which: Flags, at: Ints) -> tuple[Ints, ...]:
    """Per rank, sums up to each line of the points of `which` that are the first of their prefix.

    `columns`: coordinates in order: of the line, the other rank, and the ranks behind.
    """
    kept = np.flatnonzero(which)
    new = np.zeros(kept.size, dtype=np.bool_)
    new[:1] = True
    found = []
    for column in columns:
        mine = column[kept]
        new[1:] |= mine[1:] != mine[:-1]
        begun = np.zeros(which.size, dtype=np.bool_)
        begun[kept[new]] = True
        found.append(up_to(begun)[at])
    return tuple(found)
