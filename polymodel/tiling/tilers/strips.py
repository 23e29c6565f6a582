"""Cut into strips of as many whole rows (or columns) as fit; a line that is too heavy alone is cut across.

Element-wise work has no reuse, so that the shape of a tile does not matter. With C entries per tile and rows
of at most r <= C entries, every strip but the last has more than C - r entries, so that there are at most
ceil(n / (C - r + 1)) tiles.

Strips in a format are measured by prefix sums over lines. The bits of most formats follow from the numbers of
fibers and coordinates of each rank (of all but run lengths and interleaved slices). If the lines lie along
the rank that is stored outermost, each of these is counted in one line alone, so that the prefix sums give
them for any strip.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from polymodel.errors import Refused
from polymodel.integers import distinct_numbers
from polymodel.sparse.formats.levels import RankLevels
from polymodel.sparse.formats.whole import CP, UOP, B, Format, NamedFormat, PerRank, U
from polymodel.tiling.fits.fit import (
    MOST_BITS,
    Elements,
    Fit,
    Op,
    Stored,
    check_empty,
    check_single,
    own_ranks,
)
from polymodel.tiling.plane.pattern import (
    Cut,
    Flags,
    Index,
    Ints,
    Pattern,
    Rects,
    TileCounts,
    ordered,
    sorted_by,
)
from polymodel.tiling.tilers.lines import (
    Lines,
    StripSums,
    Told,
    chain,
    following,
    lines_of,
    summed,
    sums_of,
    up_to,
)

# Empty coordinates also form lines, as long as there are not many more lines than points.
_EVERY = 1 << 16
_MOST = 1 << 24
_NUMBERS = 2**62
# Tiles per chain; for other fits, several chains are evaluated in parallel.
_TILES_PER_CHAIN = 40


def strips(pattern: Pattern, op: Op, fit: Fit, whole: WholePlane | None = None) -> Cut:
    """Return full-width strips of as many rows as fit; a row that does not fit alone is cut along its columns
    in the same way.

    Raises SpecError where a single entry does not fit. Where sums over lines do not give the loads
    (`StripPanels.additive`), long matrices are cut in several parts in parallel, which makes up to one tile
    in 40 more. `whole`: stores what other tilers need as well.
    """
    return (whole or WholePlane()).cut(pattern, op, fit, by_columns=False)


def columns(pattern: Pattern, op: Op, fit: Fit, whole: WholePlane | None = None) -> Cut:
    """Return strips of columns, made like `strips`."""
    return (whole or WholePlane()).cut(pattern, op, fit, by_columns=True)


class WholePlane:
    """The plane as one panel, of rows or of columns, and its strips; each is made once."""

    def __init__(self) -> None:
        self._panels: dict[tuple[Pattern, Fit, bool], StripPanels] = {}
        self._cuts: dict[tuple[Pattern, Fit, bool, Op], Cut] = {}

    def panels(self, pattern: Pattern, fit: Fit, by_columns: bool) -> StripPanels:
        key = pattern, fit, by_columns
        if key not in self._panels:
            edges = np.array([0, pattern.shape[0 if by_columns else 1]], dtype=np.int64)
            self._panels[key] = StripPanels.of(pattern, edges, by_columns, fit)
        return self._panels[key]

    def cut(self, pattern: Pattern, op: Op, fit: Fit, by_columns: bool) -> Cut:
        key = pattern, fit, by_columns, op
        if key not in self._cuts:
            check_empty(pattern, op, fit)
            panels = self.panels(pattern, fit, by_columns)
            self._cuts[key] = in_panels(panels, op, fit, "columns" if by_columns else "strips")
        return self._cuts[key]


@dataclass(frozen=True, eq=False)
class StripPanels:
    """Panels of the plane, each of which is cut into strips.

    `by_columns`: the strips consist of columns and the panels of rows (otherwise vice versa). `order`: the
    points by (panel, line), None if they are in this order. `lines`: their lines. `start`, `across`: for each
    panel its start and extent along the rank that is not cut. `single`: panels of one line. `origin`: for
    each panel, the origin of its lines' coordinates (None: 0).
    """

    pattern: Pattern
    by_columns: bool
    order: Index | None
    lines: Lines
    start: Ints
    across: Ints
    single: bool = False
    origin: Ints | None = None

    @classmethod
    def of(
        cls, pattern: Pattern, edges: Ints, by_columns: bool, fit: Fit, order: Index | None = None
    ) -> StripPanels:
        """Make panels between ascending `edges`. `order`: the points by (panel, line), if known."""
        along, over = (pattern.cols, pattern.rows) if by_columns else (pattern.rows, pattern.cols)
        size, count = pattern.shape[int(by_columns)], edges.size - 1
        _numbered(pattern, count, size)
        # 32 bits suffice where the numbers of lines, and the one after the last, fit into them.
        points: Index = along.astype(np.int32 if count * size < 2**31 - 1 else np.int64)
        if count > 1:
            panel = np.searchsorted(edges.astype(over.dtype), over, side="right") - 1
            points = points + panel.astype(points.dtype) * points.dtype.type(size)
        if order is None and by_columns:
            order = sorted_by(points, count * size)
        elif order is None and count > 1:
            order = sorted_by(panel, count)  # rows ascend already
        if order is not None:
            points = points[order]
        gaps = _gaps(fit, count * size, points.size)
        lines = lines_of(points, size, count, gaps, heavy=_heavy(fit))
        return cls(pattern, by_columns, order, lines, edges[:-1], np.diff(edges))

    @cached_property
    def sums(self) -> StripSums:
        return sums_of(self.pattern, self.order, self.lines, self.across, self.single)

    def rects(self, first: Ints, last: Ints) -> Rects:
        """Return strips of the lines from `first` up to, but not including, `last`."""
        panel, begin = self.lines.panel(first), self.lines.begin(first)
        if self.origin is not None:
            begin = begin + self.origin[panel]
        result = Rects(begin, self.start[panel], self.lines.length(first, last), self.across[panel])
        return result.transposed() if self.by_columns else result

    def additive(self, fit: Fit) -> bool:
        """Return whether the loads of strips follow from sums over lines: rows are counted once in strips of
        rows."""
        if summed(fit):
            return type(fit) is Elements or self.by_columns == self.single
        few = self.lines.number <= 4 * self.pattern.points + _EVERY
        return few and line_sums(self.pattern, fit, int(self.by_columns), self.single)

    def load_sums(self, op: Op, fit: Fit) -> Told:
        """Return the sums that give the content of strips."""
        if not isinstance(fit, Stored):
            return self.sums
        along = int(self.by_columns)
        return StoredSums.of(self.pattern, self.order, self.lines, self.across, along, self.single, (op, fit))

    def loads(self, first: Ints, last: Ints, op: Op, fit: Fit) -> Ints:
        """Return the loads of some strips that do not overlap."""
        at = self.lines.at
        sizes = at[last] - at[first]
        ids = np.repeat(np.arange(first.size, dtype=np.int32), sizes)
        offset = at[first] - np.concatenate(([0], np.cumsum(sizes)[:-1]))
        places = np.arange(ids.size) + np.repeat(offset, sizes)
        if self.order is not None:
            places = self.order[places]
        by_place = np.argsort(places, kind="stable")
        counts = TileCounts(self.pattern.taken(places[by_place]), ids[by_place], first.size)
        return fit.loads(counts, self.rects(first, last), op)

    def crossed(self, heavy: Ints, fit: Fit) -> StripPanels:
        """Return the `heavy` lines as panels, to be cut along the other rank, within their panels."""
        at, pattern = self.lines.at, self.pattern
        sizes = at[heavy + 1] - at[heavy]
        offset = at[heavy] - np.concatenate(([0], np.cumsum(sizes)[:-1]))
        places = np.arange(int(sizes.sum())) + np.repeat(offset, sizes)
        if self.order is not None:
            places = self.order[places]
        over = pattern.rows if self.by_columns else pattern.cols
        panel = self.lines.panel(heavy)
        origin, widths = self.start[panel], self.across[panel]
        size = int(widths.max())
        _numbered(pattern, heavy.size, size)
        shift = np.arange(heavy.size, dtype=np.int64) * size - origin
        points = over[places].astype(np.int64) + np.repeat(shift, sizes)
        begins, extents = self.lines.begin(heavy), self.lines.length(heavy, heavy + 1)
        gaps = _gaps(fit, heavy.size * size, points.size)
        lines = lines_of(points, size, heavy.size, gaps, widths, _heavy(fit))
        return StripPanels(
            pattern, not self.by_columns, places, lines, begins, extents, single=True, origin=origin
        )


def _numbered(pattern: Pattern, panels: int, size: int) -> None:
    """Raise Refused if the lines of this many panels cannot be numbered."""
    if panels * size > _NUMBERS:
        fault = f"{pattern.name}: {panels} panels of {size} lines are more than 62 bits can number"
        raise Refused(fault, "take btree", code="number-too-large")


def _gaps(fit: Fit, lines: int, points: int) -> str:
    """Return whether coordinates without entries form lines of their own, the only case in which strips may
    end among them.

    For entries this is never useful. For words it hardly matters, but in other formats gaps may take bits.
    """
    if type(fit) is Elements or lines > (4 * points + _EVERY if summed(fit) else _MOST):
        return "apart"
    return "every"


def _heavy(fit: Fit) -> int:
    """Return the least number of points of a line that may not fit alone, whose following gap must not be cut
    across with it. A point counts at most once for each operand, and gaps have no entries."""
    return fit.capacity // 2 + 1 if type(fit) is Elements else 1


def in_panels(panels: StripPanels, op: Op, fit: Fit, tiler: str) -> Cut:
    """Cut every panel into strips; lines that are too heavy alone are cut across."""
    first, last, heavy = _strips(panels, op, fit)
    ids = np.empty(panels.pattern.points, dtype=np.int32)
    number = np.cumsum(~heavy) - 1
    _number(panels, first, number, ids)
    rects = [panels.rects(first[~heavy], last[~heavy]).table()]
    if heavy.any():
        across = panels.crossed(first[heavy], fit)
        begin, end, still = _strips(across, op, fit)
        if still.any():
            check_single(panels.pattern, op, fit, across.rects(begin[still], end[still]))
            fault = (
                f"{panels.pattern.name}: a part without entries is too large for {fit.capacity} {fit.unit}"
            )
            raise Refused(f"{fault}, and too many such parts are to be cut", "take btree", code="too-large")
        _number(across, begin, np.arange(begin.size) + rects[0].shape[0], ids)
        rects.append(across.rects(begin, end).table())
    return ordered(Rects.of(np.concatenate(rects)), ids, tiler)


def _number(panels: StripPanels, first: Ints, number: Ints, ids: Index) -> None:
    """Assign the number of each strip to its points."""
    sizes = np.diff(np.append(panels.lines.at[first], panels.lines.at[-1]))
    mine = np.repeat(number.astype(ids.dtype), sizes)
    if panels.order is None:
        ids[:] = mine
    else:
        ids[panels.order] = mine


def _strips(panels: StripPanels, op: Op, fit: Fit) -> tuple[Ints, Ints, Flags]:
    """Return the first line, and the line after the last, of each strip, and mark the strips of one line that
    do not fit."""
    lines = panels.lines
    if panels.additive(fit):
        ends = following(panels.load_sums(op, fit), op, fit)
        alone = np.arange(1, lines.number + 1)
        first = chain(np.maximum(ends, alone), lines.firsts)
        return first, np.append(first[1:], lines.number), ends[first] < alone[first]
    first = _in_step(panels, op, fit)
    last = np.append(first[1:], lines.number)
    heavy = last == first + 1
    heavy[heavy] = panels.loads(first[heavy], last[heavy], op, fit) > fit.capacity
    return first, last, heavy


def _in_step(panels: StripPanels, op: Op, fit: Fit) -> Ints:
    """Return the lines at which strips start, for fits that must be evaluated for every strip.

    Panels, and parts of long ones, are processed in parallel: each evaluation is of one strip of each part.
    """
    lines = panels.lines
    begins = _parts(panels, op, fit)
    stops = np.append(begins[1:], lines.number)
    result = [begins]
    guess = np.ones(begins.size, dtype=np.int64)
    while begins.size:
        ends = _longest(panels, op, fit, begins, stops, guess)
        going = ends < stops
        guess = np.maximum(ends - begins, 1)[going]
        begins, stops = ends[going], stops[going]
        result.append(begins)
    return np.sort(np.concatenate(result))


def _parts(panels: StripPanels, op: Op, fit: Fit) -> Ints:
    """Return the first lines of panels, and of parts of panels with the points of about 40 tiles each."""
    lines = panels.lines
    ends = np.append(lines.firsts[1:], lines.number)
    loads = panels.loads(lines.firsts, ends, op, fit)
    # Loads of formats may grow with extents alone: there are no more parts than points.
    held = lines.at[ends] - lines.at[lines.firsts]
    parts = np.maximum(np.minimum(loads // fit.capacity // _TILES_PER_CHAIN, held), 1)
    panel = np.repeat(np.arange(lines.panels), parts)
    nth = np.arange(panel.size) - np.repeat(np.cumsum(parts) - parts, parts)
    panel, nth = panel[nth > 0], nth[nth > 0]
    low, high = lines.at[lines.firsts][panel], lines.at[ends][panel]
    line = np.searchsorted(lines.at, low + (high - low) * nth // parts[panel], side="left")
    return distinct_numbers(np.concatenate([lines.firsts, np.clip(line, 0, lines.number - 1)]))


def _longest(panels: StripPanels, op: Op, fit: Fit, begins: Ints, stops: Ints, guess: Ints) -> Ints:
    """Return the ends of the longest strips from `begins` that fit and do not pass `stops`, with at least one
    line.

    The length is doubled from a guess until it no longer fits, then found by bisection.
    """
    low, high = begins + 1, stops.copy()
    step = guess.copy()
    growing = np.ones(begins.size, dtype=np.bool_)
    while True:
        open_ = np.flatnonzero(low < high)
        if not open_.size:
            return low
        near = np.minimum(np.maximum(begins + step, low + 1), high)
        tried = np.where(growing, near, (low + high + 1) // 2)[open_]
        fits = panels.loads(begins[open_], tried, op, fit) <= fit.capacity
        low[open_[fits]] = tried[fits]
        high[open_[~fits]] = tried[~fits] - 1
        growing[open_[~fits]] = False
        step *= 2


def strips_needed(panels: StripPanels, op: Op, fit: Fit) -> int:
    """Return the number of tiles that `in_panels` makes."""
    first, _, heavy = _strips(panels, op, fit)
    if not heavy.any():
        return int(first.size)
    across = panels.crossed(first[heavy], fit)
    return int(first.size - np.count_nonzero(heavy) + _strips(across, op, fit)[0].size)


_COUNTED = (U, CP, B, UOP)
# Formats whose bits do not depend on the number of coordinates of the outermost rank.
_NO_FIRST = ("CSR", "CSC", "COO", "dense")
# Products above this number may exceed 64 bits.
_SURE = 2.0**50


def line_sums(pattern: Pattern, fit: Fit, along: int, single: bool) -> bool:
    """Return whether sums over lines give the loads of strips along this rank (0: of rows, 1: of columns)."""
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
    """Prefix sums over lines, for each operand (A, B, output) and rank of the format, of the coordinates
    present.

    `turned`: the format's outermost rank is not the one of the lines. `across`: for each panel, its extent
    along the other rank. `single`: panels of one line.
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
        """Make the sums for the points of `pattern`, reordered by `order`."""
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
        """Return the bits of strips of the lines from `first` up to, but not including, `last`, in the
        fullest buffer."""
        length, across = self.lines.length(first, last), self.across[self.lines.panel(first)]
        sides = (across, length) if self.turned else (length, across)
        shape = (*sides, *(np.broadcast_to(np.int64(s), first.shape) for s in self.sizes))
        filled = self.lines.at[last] > self.lines.at[first]
        most = np.zeros_like(first)
        for sums in self.present:
            coords = [upto[last] - upto[first] for upto in sums]
            if self.turned:
                # One line is one coordinate of the outermost rank; otherwise the format does not use it.
                coords[0] = (coords[-1] > 0).astype(np.int64) if self.single else coords[1]
            most = np.maximum(most, self._bits(shape, coords))
        result: Ints = np.where(filled, most, 0)
        return result

    def _bits(self, shape: tuple[Ints, ...], coords: list[Ints]) -> Ints:
        sides = shape
        largest = max((float(s.max(initial=0)) for s in shape), default=0.0)
        if largest**2 * max(1, int(coords[-1].max(initial=0))) > _SURE:
            sides = tuple(s.astype(object) for s in shape)  # bits may not fit in 64
        one = np.ones_like(coords[0])
        levels = RankLevels(self.ranks, sides, (one, *coords[:-1]), tuple(coords), "exact")
        result: Ints = np.broadcast_to(
            np.minimum(self.format.bits(levels).total, MOST_BITS), one.shape
        ).astype(np.int64)
        return result


def _present(columns: list[Index], which: Flags, at: Ints) -> tuple[Ints, ...]:
    """Return, for each rank, prefix sums over lines of the points of `which` that are the first with their
    prefix.

    `columns`: sorted coordinates of the line, of the other rank, and of the inner ranks.
    """
    kept = np.flatnonzero(which)
    new = np.zeros(kept.size, dtype=np.bool_)
    new[:1] = True
    result = []
    for column in columns:
        mine = column[kept]
        new[1:] |= mine[1:] != mine[:-1]
        begun = np.zeros(which.size, dtype=np.bool_)
        begun[kept[new]] = True
        result.append(up_to(begun)[at])
    return tuple(result)
