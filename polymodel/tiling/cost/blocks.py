"""The cycles of tiles on the blocks of a streaming dataflow, by rule: for all tiles at once, from the data
alone.

The limiting block takes one token per cycle: entries, and the ends of their fibers. It waits if a token has
not arrived. One reason is that blocks ahead of it still search for the next fiber, skipping rows that only
one operand has. The other is that the end of the fiber is not known: its stop token states how many ranks end
with it, so it arrives with the first token of the next fiber, and the remaining entries of the other
operand's fiber follow it. With E_p the cycle of the end of fiber p, n_p its entries, f_p and g_p the cycles
in which its first token and that of the next fiber can be taken, and t_p its entries after the last one of
the shorter side,

    E_p = max(E_(p-1) + n_p + 1, f_p + n_p, g_p + t_p).

The excess of the last E_p over all entries and ends is `waiting`. The blocks ahead and behind, and the end of
the stream, are `ramp`. For a product of matrices the rows of the result that are sent after the last entry
are `sending`. docs/tiling/simulation.md derives the rules; tests compare them with simulations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from polymodel.tiling.plane.pattern import Flags, Index, Ints, starts

Kind = Literal["add", "multiply", "spmv", "spmm"]
TERMS = ("entries", "ends", "waiting", "sending", "ramp")


@dataclass(frozen=True)
class BlockPath:
    """The block that limits the throughput, the blocks ahead of it, and the cycles that its last token takes
    behind it."""

    decides: str
    ahead: int
    behind: int

    @property
    def ramp(self) -> int:
        """The cycles of the pipeline, including the cycle in which the end of the stream is taken."""
        return self.ahead + 1 + self.behind


# Blocks that follow: array, ALU, writer; for a vector also the reducer, which sends the last sum and then its
# stop; for a matrix repeater, array, ALU, reducer (it receives a row before it sends it), dropper, writer.
PATHS: dict[Kind, BlockPath] = {
    "add": BlockPath("union of columns", 4, 3),
    "multiply": BlockPath("intersection of columns", 4, 3),
    "spmv": BlockPath("scanner of A's columns", 2, 5),
    "spmm": BlockPath("scanner of B's columns", 3, 7),
}


@dataclass(frozen=True, eq=False)
class BlockTerms:
    """The cycles of tiles by cause: one number per tile."""

    entries: Ints
    ends: Ints
    waiting: Ints
    sending: Ints
    ramp: Ints

    @property
    def cycles(self) -> Ints:
        result: Ints = self.entries + self.ends + self.waiting + self.sending + self.ramp
        return result


@dataclass(frozen=True, eq=False)
class RowParts:
    """Rows of tiles that A or B contains, ordered by tile: which operands contain the row, the entries of the
    union, and the entries after the last one of the shorter operand. `tiles`: the number of tiles."""

    tile: Ints
    in_a: Flags
    in_b: Flags
    union: Ints
    tail: Ints
    tiles: int


def row_parts(rows: Index, ids: Index, in_a: Flags, in_b: Flags, tiles: int) -> RowParts:
    """Return the rows of points in row-major order, in which the points of a tile within a row are
    adjacent.
    """
    begin = np.flatnonzero(starts(rows, ids))
    if not begin.size:
        none, no = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.bool_)
        return RowParts(none, no, no, none, none, tiles)
    at = np.arange(rows.size)
    last = [np.maximum.reduceat(np.where(side, at, -1), begin) for side in (in_a, in_b)]
    shorter = np.maximum(np.minimum(*last), begin - 1)
    end = np.append(begin[1:], rows.size)
    of = ids[begin].astype(np.int64)
    order = np.argsort(of, kind="stable")
    has = [(x >= 0)[order] for x in last]
    return RowParts(of[order], has[0], has[1], (end - begin)[order], (end - 1 - shorter)[order], tiles)


def merged(kind: Literal["add", "multiply"], rows: RowParts) -> BlockTerms:
    """Element-wise operations: rows pass through the merge of row coordinates, one cycle for each row of
    either operand."""
    path, tiles = PATHS[kind], rows.tiles
    every = np.bincount(rows.tile, minlength=tiles)
    step = np.arange(1, rows.tile.size + 1) - np.repeat(np.cumsum(every) - every, every)
    which = rows.in_a | rows.in_b if kind == "add" else rows.in_a & rows.in_b
    # An operand without rows signals that one cycle later than an operand with rows sends its first row.
    sides = (np.bincount(rows.tile[side], minlength=tiles) > 0 for side in (rows.in_a, rows.in_b))
    begin = path.ahead + 1 - np.logical_and(*sides)
    tile, at = rows.tile[which], step[which]
    after = every[tile] + 1
    same = tile[1:] == tile[:-1]
    after[:-1][same] = at[1:][same]
    first = begin[tile]
    fibers = Fibers(tile, rows.union[which], rows.tail[which], first + at, first + after, begin)
    return _terms(kind, fibers, fibers.last(fibers.ends(), begin + every + 1))


def rows_of_a(tile: Ints, entries: Ints, tiles: int) -> BlockTerms:
    """Product with a vector: rows of A with entries, of which the scanner ahead sends one per cycle."""
    path = PATHS["spmv"]
    first = path.ahead + 1 + _places(tile)
    begin = np.full(tiles, path.ahead)
    fibers = Fibers(tile, entries, np.zeros_like(entries), first, first + 1, begin)
    found = _terms("spmv", fibers, fibers.last(fibers.ends(), begin + 2))
    # Without entries the reducer has no sum to send.
    ramp = found.ramp - (np.bincount(tile, minlength=tiles) == 0)
    return BlockTerms(found.entries, found.ends, found.waiting, found.sending, ramp)


def rows_of_b(tile: Ints, row: Ints, entries: Ints, results: Ints, tiles: int) -> BlockTerms:
    """Product with a matrix: rows of B, one for each entry of A, separated by the ends of A's rows.

    `row`: the row of each entry of A; `entries`: the number of entries in the row of B that it selects;
    `results`: the number of entries in the row of the result to which it contributes.
    """
    path, kept = PATHS["spmm"], np.bincount(tile, minlength=tiles)
    begin = np.full(tiles, path.ahead)
    ended = np.zeros(tile.size, dtype=np.int64)
    ended[1:] = np.cumsum((tile[1:] == tile[:-1]) & (row[1:] != row[:-1]))
    base = np.repeat(ended[np.cumsum(kept)[kept > 0] - kept[kept > 0]], kept[kept > 0])
    first = path.ahead + 1 + _places(tile) + ended - base
    fibers = Fibers(tile, entries, np.zeros_like(entries), first, first + 1, begin)
    reached = fibers.ends()
    last = fibers.last(reached, begin + 2)
    found = _terms("spmm", fibers, last)
    # The result is sent row by row, each after the previous one: the latest of all rows determines the end.
    closes = np.ones(tile.size, dtype=np.bool_)
    closes[:-1] = (tile[1:] != tile[:-1]) | (row[1:] != row[:-1])
    of, sent = tile[closes], results[closes] + 1
    total = np.cumsum(sent)
    through = np.zeros(tiles, dtype=np.int64)
    np.maximum.at(through, of, total)
    rest = through[of] - total + sent
    sending = np.zeros(tiles, dtype=np.int64)
    np.maximum.at(sending, of, reached[closes] + rest - last[of] - 1)
    return BlockTerms(found.entries, found.ends, found.waiting, sending, found.ramp)


@dataclass(frozen=True, eq=False)
class Fibers:
    """Fibers that the limiting block consumes in sequence, by tile. `entries`: the number of entries of each;
    `tail`: the number of these after the last entry of the shorter operand; `first`: the cycle in which its
    first token can be taken; `after`: the cycle in which its end is known. `before`: per tile, the cycle
    before all fibers."""

    tile: Ints
    entries: Ints
    tail: Ints
    first: Ints
    after: Ints
    before: Ints

    def ends(self) -> Ints:
        """E_p of each fiber: the running sums of entries and ends, and the largest wait added to them."""
        if not self.tile.size:
            return np.zeros(0, dtype=np.int64)
        new = np.ones(self.tile.size, dtype=np.bool_)
        new[1:] = self.tile[1:] != self.tile[:-1]
        number, steps = np.cumsum(new) - 1, self.entries + 1
        sums = np.cumsum(steps)
        sums -= (sums - steps)[new][number]
        late = np.maximum(self.first + self.entries, self.after + self.tail) - sums
        late = np.maximum(late, self.before[self.tile])
        # Running maximum per tile: the offset of a tile lifts its values above those of all tiles before it.
        above = number * (int(late.max()) - int(late.min()) + 1)
        result: Ints = sums + np.maximum.accumulate(late + above) - above
        return result

    def last(self, ends: Ints, none: Ints) -> Ints:
        """The last end of each tile; `none`: the end of the rank above, for a tile without fibers."""
        result = none.astype(np.int64)
        closes = np.ones(self.tile.size, dtype=np.bool_)
        closes[:-1] = self.tile[1:] != self.tile[:-1]
        result[self.tile[closes]] = ends[closes]
        return result


def _terms(kind: Kind, fibers: Fibers, last: Ints) -> BlockTerms:
    path, tiles = PATHS[kind], last.size
    entries = np.zeros(tiles, dtype=np.int64)
    np.add.at(entries, fibers.tile, fibers.entries)
    ends = np.maximum(np.bincount(fibers.tile, minlength=tiles), 1)
    waiting = last - path.ahead - entries - ends
    return BlockTerms(entries, ends, waiting, np.zeros_like(entries), np.full(tiles, path.ramp))


def _places(tile: Ints) -> Ints:
    """Return the position of each fiber within its tile, from 0."""
    at = np.arange(tile.size)
    new = np.ones(tile.size, dtype=np.bool_)
    new[1:] = tile[1:] != tile[:-1]
    result: Ints = at - np.maximum.accumulate(np.where(new, at, 0))
    return result
