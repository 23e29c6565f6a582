"""Represent the lines (rows, or columns) of panels in sequence, and find the fewest strips of whole lines
that fit.

A strip of as many lines as fit is optimal, because loads never decrease when a strip grows. The end of a
strip is found for all possible first lines at once; the lines at which strips start then follow from one
strip to the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from polymodel.governor import look
from polymodel.tiling.fits.fit import Elements, Fit, Op, Words
from polymodel.tiling.plane.pattern import Flags, Index, Ints, Pattern, Rects, TileCounts

# Points summed at a time.
_PIECE = 1 << 16
# The most entries of a look-up table, relative to the number of sums, and the most sums for 32-bit indices.
_TABLE, _SHORT = 16, 2**31
# The most positions that 64 bits count, with a margin for sums.
_SURE = 2.0**58
# Words of a tile in addition to its entries and rows.
_HEADER = 3


@dataclass(frozen=True, eq=False)
class Lines:
    """Lines along one rank, panel after panel.

    `keys`: the start of each line, as panel x size + coordinate, ascending; each line ends where the next one
    starts. `at`: the position of each line's first point among the points ordered by (panel, line), and the
    number of points. `widths`: extents of panels that may be narrower than `size`.
    """

    keys: Ints
    at: Ints
    size: int
    panels: int
    widths: Ints | None = None

    @property
    def number(self) -> int:
        return int(self.keys.size)

    @cached_property
    def firsts(self) -> Ints:
        """The first line of each panel."""
        return np.searchsorted(self.keys, np.arange(self.panels, dtype=np.int64) * self.size)

    @cached_property
    def stop(self) -> Ints:
        """For each line, the line after the last one of its panel."""
        bounds = np.append(self.firsts, self.number)
        return np.repeat(bounds[1:], np.diff(bounds))

    @cached_property
    def _ends(self) -> Ints:
        return np.append(self.keys, self.panels * self.size)

    def panel(self, lines: Ints) -> Ints:
        result: Ints = self.keys[lines] // self.size
        return result

    @cached_property
    def panel_of(self) -> Ints:
        """The panel of each line."""
        return np.repeat(np.arange(self.panels), np.diff(np.append(self.firsts, self.number)))

    def begin(self, lines: Ints) -> Ints:
        result: Ints = self.keys[lines] % self.size
        return result

    def length(self, first: Ints, last: Ints) -> Ints:
        """Return the extent of the lines from `first` up to, but not including, `last` (a line of the same
        panel, or its end)."""
        result: Ints = self._ends[last] - self.keys[first]
        if self.widths is not None:
            result = np.minimum(result, self.widths[self.panel(first)] - self.begin(first))
        return result


def lines_of(
    points: Index, size: int, panels: int, gaps: str = "joined", widths: Ints | None = None, heavy: int = 1
) -> Lines:
    """Return the lines of the ascending `points` (panel x size + coordinate).

    `gaps`: coordinates without points are "joined" to the line before them, form separate lines ("apart": one
    for each gap after a line of at least `heavy` points, others are joined), or one line each ("every").
    `widths`: those of panels that are narrower than `size`.
    """
    if gaps == "every":
        keys = np.arange(panels * size, dtype=np.int64)
        # The keys have the type of the searched array, which would otherwise be copied.
        at = np.searchsorted(points, keys.astype(points.dtype))
    else:
        keys, at = _filled_lines(points)
        if gaps == "apart":
            keys, at = _with_gaps(keys, at, points.size, panels * size, heavy)
        begins = np.arange(panels, dtype=np.int64) * size
        place = np.searchsorted(keys, begins)
        missing = np.append(keys, -1)[place] != begins
        begins, place = begins[missing], place[missing]
        at = np.insert(at, place, np.searchsorted(points, begins.astype(points.dtype)))
        keys = np.insert(keys, place, begins)
    if widths is not None:
        inside = keys % size < widths[keys // size]
        keys, at = keys[inside], at[inside]
    return Lines(keys, np.append(at, points.size), size, panels, widths)


def _filled_lines(points: Index) -> tuple[Ints, Ints]:
    """Return the lines with points: their keys, and the position of the first point of each."""
    first = np.ones(points.size, dtype=np.bool_)
    np.not_equal(points[1:], points[:-1], out=first[1:])
    at = np.flatnonzero(first)
    return points[at].astype(np.int64), at


def _with_gaps(keys: Ints, at: Ints, points: int, most: int, heavy: int) -> tuple[Ints, Ints]:
    """Insert a line for the gap after every line of at least `heavy` points. Keys are below `most`."""
    behind, ends = keys + 1, np.append(at[1:], points)
    apart = behind != np.append(keys[1:], most)
    if heavy > 1:
        apart &= ends - at >= heavy
    place = np.flatnonzero(apart) + 1
    return np.insert(keys, place, behind[apart]), np.insert(at, place, ends[apart])


@dataclass(frozen=True, eq=False)
class StripSums:
    """Prefix sums over lines that give the content of strips, for strips of rows, or (`single`) of pieces of
    one row.

    `across`: for each panel, its extent along the other rank.
    """

    pattern: Pattern
    lines: Lines
    nnz_a: Ints
    nnz_b: Ints
    inner_a: Ints
    inner_b: Ints
    across: Ints
    single: bool

    @cached_property
    def rows_a(self) -> Ints:
        return up_to(np.diff(self.nnz_a) > 0)

    @cached_property
    def rows_b(self) -> Ints:
        return up_to(np.diff(self.nnz_b) > 0)

    def loads(self, first: Ints, last: Ints, op: Op, fit: Fit) -> Ints:
        """Return the loads of strips of the lines from `first` up to, but not including, `last`."""
        figures = {
            name: getattr(self, name)[last] - getattr(self, name)[first]
            for name in ("nnz_a", "nnz_b", "inner_a", "inner_b")
        }
        for name in ("rows_a", "rows_b"):
            if self.single:
                figures[name] = (figures["nnz" + name[4:]] > 0).astype(np.int64)
            else:
                figures[name] = getattr(self, name)[last] - getattr(self, name)[first]
        length, across = self.lines.length(first, last), self.across[self.lines.panel(first)]
        sides = (across, length) if self.single else (length, across)
        rects = Rects(np.zeros_like(first), np.zeros_like(first), *sides)
        return fit.loads(known_counts(self.pattern, figures), rects, op)


def known_counts(pattern: Pattern, figures: dict[str, Ints]) -> TileCounts:
    """Return counts whose figures are already known; they suffice for the fits that `summed` accepts."""
    size = figures["nnz_a"].size
    counts = TileCounts(pattern, np.zeros(0, dtype=np.int32), size)
    counts.__dict__.update(figures)  # where cached properties keep their values
    return counts


def summed(fit: Fit) -> bool:
    """Return whether loads follow from the entries, rows and inner fibers of each operand alone."""
    return type(fit) in (Elements, Words)


def sums_of(
    pattern: Pattern, order: Index | None, lines: Lines, across: Ints, single: bool = False
) -> StripSums:
    """Return the sums for the points of `pattern`, reordered by `order`."""
    none = np.zeros(lines.number + 1, dtype=np.int64)

    def up_to_lines(values: Index | None) -> Ints:
        return none if values is None else up_to_places(values, order, lines.at)

    return StripSums(
        pattern,
        lines,
        up_to_lines(pattern.in_a),
        up_to_lines(pattern.in_b),
        up_to_lines(pattern.inner_a),
        up_to_lines(pattern.inner_b),
        across,
        single,
    )


def up_to(values: Index | Flags) -> Ints:
    """Return the sum of the values before each value, and the total."""
    result = np.zeros(values.size + 1, dtype=np.int64)
    np.cumsum(values, out=result[1:])
    return result


def up_to_places(values: Index | Flags, order: Index | None, places: Ints) -> Ints:
    """Return the sums of the values, or of those selected by `order`, before each of the ascending positions
    `places`."""
    result = np.zeros(places.size, dtype=np.int64)
    total, done = 0, int(np.searchsorted(places, 0, side="right"))
    # The sums are made piece by piece, because those of all values would need many times the memory.
    for at in range(0, (values if order is None else order).size, _PIECE):
        piece = slice(at, at + _PIECE)
        sums = np.cumsum(values[piece if order is None else order[piece]], dtype=np.int64)
        upto = int(np.searchsorted(places, at + sums.size, side="right"))
        result[done:upto] = sums[places[done:upto] - (at + 1)]
        result[done:upto] += total
        total, done = total + int(sums[-1]), upto
    return result


class Told(Protocol):
    """An object that gives the loads of strips of lines."""

    @property
    def lines(self) -> Lines: ...

    def loads(self, first: Ints, last: Ints, op: Op, fit: Fit) -> Ints: ...


def following(sums: StripSums | Told, op: Op, fit: Fit) -> Ints:
    """Return, for each line, the line after the longest strip that starts there; the line itself if it does
    not fit alone."""
    lines = sums.lines
    if isinstance(sums, StripSums) and type(fit) is Elements:
        channels = [sums.nnz_a + sums.nnz_b] if op == "add" else [sums.nnz_a, sums.nnz_b]
        return _least(lines.stop, [_reached(held, fit.capacity) for held in channels])
    if isinstance(sums, StripSums) and type(fit) is Words:
        reached = _within_words(sums, op, fit)
        if reached is not None:
            return reached
    first = np.arange(lines.number, dtype=np.int64)
    low, high = first.copy(), lines.stop.copy()
    while True:
        open_ = np.flatnonzero(low < high)
        if not open_.size:
            return low
        middle = (low[open_] + high[open_] + 1) // 2
        fits = sums.loads(open_, middle, op, fit) <= fit.capacity
        low[open_[fits]] = middle[fits]
        high[open_[~fits]] = middle[~fits] - 1


def _reached(held: Ints, room: int) -> Ints:
    """Return, for each of the ascending sums (from 0) but the last, the index of the last sum that is larger
    by at most `room`."""
    last, total = held.size - 1, int(held[-1])
    if room < 0:
        return np.arange(last)
    if total > _TABLE * held.size or held.size > _SHORT:
        return np.searchsorted(held, held[:-1] + room, side="right") - 1
    # The table gives, for every number below the total, the last sum that is no larger. A look-up takes a
    # tenth of the time of a search.
    table = np.repeat(np.arange(last, dtype=np.int32), np.diff(held))
    known = int(np.searchsorted(held[:-1], total - room))
    result = np.full(last, last, dtype=np.int64)
    result[:known] = table[held[:known] + room]
    return result


def _least(found: Ints, each: list[Ints]) -> Ints:
    for reached in each:
        found = np.minimum(found, reached)
    return found


def _within_words(sums: StripSums, op: Op, fit: Words) -> Ints | None:
    """Return `following` for words, where sums alone determine it; else None.

    A strip fits if its words of A and of B fit, and those of a bound of the output. For multiply the bound is
    at most the lesser of both operands. For add it is a sum of two minima, which fits if any of the four sums
    of one term from each fits. Return None where every strip must be evaluated: for pieces of one row, and
    where there are too many positions to count.
    """
    pattern, lines = sums.pattern, sums.lines
    across = sums.across.astype(np.float64) * min(pattern.depth, 2**62)
    if sums.single or lines.widths is not None or lines.panels * lines.size * across.max(initial=1) > _SURE:
        return None
    # Every entry, row and inner fiber takes two words.
    room = (fit.capacity - _HEADER - (pattern.levels - 2)) // 2
    entries, rows = sums.nnz_a + sums.nnz_b, sums.rows_a + sums.rows_b
    each = [
        _reached(nnz + filled + inner, room)
        for nnz, filled, inner in (
            (sums.nnz_a, sums.rows_a, sums.inner_a),
            (sums.nnz_b, sums.rows_b, sums.inner_b),
        )
    ]
    result = _least(lines.stop, each)
    if op == "multiply":
        return result
    height = np.diff(lines.keys, append=lines.panels * lines.size)
    wide, inner = sums.across * pattern.depth, sums.inner_a + sums.inner_b
    held_by = [entries]
    if int(wide.min(initial=0)) <= room:  # otherwise the positions of a single line are too many
        held_by.append(up_to(height * wide[lines.panel_of]))
    output = np.zeros_like(result)
    for held in held_by:
        for filled in (rows, up_to(height)):
            output = np.maximum(output, _reached(held + filled + inner, room))
    return np.minimum(result, output)


def chain(ends: Ints, firsts: Ints) -> Ints:
    """Return the lines at which strips start, ascending: the panels' first lines, and the end of each strip.

    The lines are followed strip by strip and not by doubling steps, because there are far fewer strips than
    lines.
    """
    ahead = np.ascontiguousarray(ends, dtype=np.int64).data
    met = bytearray(ends.size)
    for first in firsts.tolist():
        look()
        line = first
        while line < ends.size and not met[line]:
            met[line] = 1
            line = ahead[line]
    return np.flatnonzero(np.frombuffer(met, dtype=np.bool_))
