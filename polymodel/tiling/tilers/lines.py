"""Lines (rows, or columns) of panels laid end to end, and the fewest strips of whole lines that fit.

A strip that takes as many lines as fit is best: loads never fall when a strip grows. Where each strip would
end is found for all lines at once; which lines begin strips follows from one strip to the next.
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
# A table of sums has room for so many numbers for each of them.
_TABLE, _SHORT = 16, 2**31
# Places up to which 64 bits count them, with room for sums.
_SURE = 2.0**58
# Words of a tile beside its entries and rows.
_HEADER = 3


@dataclass(frozen=True, eq=False)
class Lines:
    """Lines along one rank, panel after panel.

    `keys`: where each line begins, as panel x size + coordinate, ascending; each ends where the next begins.
    `at`: position of each line's first point among the points in order of (panel, line), and their number.
    `widths`: extents of panels that may be narrower than `size`.
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
        """For each line, the line after the last of its panel."""
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
        """Extent of the lines from `first` up to, without, `last` (of one panel, or its end)."""
        result: Ints = self._ends[last] - self.keys[first]
        if self.widths is not None:
            result = np.minimum(result, self.widths[self.panel(first)] - self.begin(first))
        return result


def lines_of(
    points: Index, size: int, panels: int, gaps: str = "joined", widths: Ints | None = None, heavy: int = 1
) -> Lines:
    """Lines of the ascending `points` (panel x size + coordinate).

    `gaps`: coordinates without points are "joined" to the line before them, make lines of their own
    ("apart", one for each gap behind a line of `heavy` points and more, others are joined), or one each
    ("every"). `widths`: of panels that are narrower than `size`.
    """
    if gaps == "every":
        keys = np.arange(panels * size, dtype=np.int64)
        # Needles of the kind of what is searched: else all of it would be copied.
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
    """Lines with points: their keys, and the position of each one's first point."""
    first = np.ones(points.size, dtype=np.bool_)
    np.not_equal(points[1:], points[:-1], out=first[1:])
    at = np.flatnonzero(first)
    return points[at].astype(np.int64), at


def _with_gaps(keys: Ints, at: Ints, points: int, most: int, heavy: int) -> tuple[Ints, Ints]:
    """With a line for the gap behind every line of `heavy` points and more; keys are below `most`."""
    behind, ends = keys + 1, np.append(at[1:], points)
    apart = behind != np.append(keys[1:], most)
    if heavy > 1:
        apart &= ends - at >= heavy
    place = np.flatnonzero(apart) + 1
    return np.insert(keys, place, behind[apart]), np.insert(at, place, ends[apart])


@dataclass(frozen=True, eq=False)
class StripSums:
    """What strips of lines hold, from sums up to each line: of rows (`single` None), or of pieces of one row.

    `across`: per panel, its extent along the other rank.
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
        """Loads of strips of the lines from `first` up to, without, `last`."""
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
    """Counts whose figures are known already: enough for the fits that `summed` names."""
    size = figures["nnz_a"].size
    counts = TileCounts(pattern, np.zeros(0, dtype=np.int32), size)
    counts.__dict__.update(figures)  # where cached properties keep what they found
    return counts


def summed(fit: Fit) -> bool:
    """Whether loads follow from the entries, rows and inner fibers of each operand alone."""
    return type(fit) in (Elements, Words)


def sums_of(
    pattern: Pattern, order: Index | None, lines: Lines, across: Ints, single: bool = False
) -> StripSums:
    """Sums for the points of `pattern`, put in `order` first."""
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
    """Sums of the values before each, and of all."""
    result = np.zeros(values.size + 1, dtype=np.int64)
    np.cumsum(values, out=result[1:])
    return result


def up_to_places(values: Index | Flags, order: Index | None, places: Ints) -> Ints:
    """Sums of the values, or of those that `order` takes, before each of the ascending `places`."""
    result = np.zeros(places.size, dtype=np.int64)
    total, done = 0, int(np.searchsorted(places, 0, side="right"))
    # Piece by piece: the sums of all values would be many times as large as those that are wanted.
    for at in range(0, (values if order is None else order).size, _PIECE):
        piece = slice(at, at + _PIECE)
        sums = np.cumsum(values[piece if order is None else order[piece]], dtype=np.int64)
        upto = int(np.searchsorted(places, at + sums.size, side="right"))
        result[done:upto] = sums[places[done:upto] - (at + 1)]
        result[done:upto] += total
        total, done = total + int(sums[-1]), upto
    return result


class Told(Protocol):
    """Whatever tells the loads of strips of lines."""

    @property
    def lines(self) -> Lines: ...

    def loads(self, first: Ints, last: Ints, op: Op, fit: Fit) -> Ints: ...


def following(sums: StripSums | Told, op: Op, fit: Fit) -> Ints:
    """For each line, the line after the longest strip from it on; itself where it does not fit alone."""
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
    """From each of ascending sums from 0 but the last, the last one that is larger by at most `room`."""
    last, total = held.size - 1, int(held[-1])
    if room < 0:
        return np.arange(last)
    if total > _TABLE * held.size or held.size > _SHORT:
        return np.searchsorted(held, held[:-1] + room, side="right") - 1
    # For every number below the total the last sum that is no larger: looking it up takes a tenth of the time
    # of a search.
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
    """`following` of words, where sums alone tell it: a strip fits if its words of A and of B do, and those
    of a bound of the output. For multiply that is no more than the lesser of both. For add it is a sum of two
    minima, which fits if any of the four sums does that take one of each. None where it takes a look at
    every strip: of pieces of one row, and where places are too many to count."""
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
    if int(wide.min(initial=0)) <= room:  # else the places of one line are too many already
        held_by.append(up_to(height * wide[lines.panel_of]))
    output = np.zeros_like(result)
    for held in held_by:
        for filled in (rows, up_to(height)):
            output = np.maximum(output, _reached(held + filled + inner, room))
    return np.minimum(result, output)


def chain(ends: Ints, firsts: Ints) -> Ints:
    """The lines with which strips begin, ascending: the panels' first lines, and where each strip ends.

    From strip to strip, not by doubling steps: there are far fewer strips than lines.
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
