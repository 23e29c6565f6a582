"""Pareto dominance: the points of a set that no other point dominates. Smaller is better in every figure.

A point dominates another one if it is nowhere larger and somewhere smaller; of equal points the first is
kept. Comparisons are exact for integers of any size, and infinities are valid figures; NaN is not allowed.
For points from different sources, whose floats were rounded in different orders, use
`undominated_but_for_rounding`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from typing import Any, TypeVar

import numpy as np
from moocore import is_nondominated

from polymodel.governor import look
from polymodel.integers import TOLD_APART

Array = Any
R = TypeVar("R")
Figures = Any  # arrays [n] one by one, or as the rows of one array
ROUNDING = 2.0**-40  # relative: thousands of sums and products of floats are no further off than this
SMALL = 64  # points of a group that are compared pair by pair
COMPARISONS = 2**24  # made at once
LANDMARKS = 6
COMPARED = 64  # points of an archive that others are compared with at once
MOST_COLUMNS = 255  # figures that a call of the library compares
AT_ONCE = 4096  # points of many figures that one call compares, before those that are left are compared


def rows_of(record: R, which: Array) -> R:
    """Some rows of a dataclass of columns: each of its arrays has one entry per row along its last axis."""
    kind: Any = type(record)
    columns = {name: getattr(record, name) for name in _columns(kind)}
    result: R = kind(**{n: c[..., which] if isinstance(c, np.ndarray) else c for n, c in columns.items()})
    return result


@cache
def _columns(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


def undominated(figures: Figures, groups: Array | None = None) -> Array:
    """Positions, ascending, of points that no other one of their group dominates, nor an earlier one equals.

    `groups` [n]: integers; without them all points are of one group.
    """
    n = len(figures[0]) if groups is None else len(groups)
    if not n:
        return np.zeros(0, np.int64)
    rows = _distinct(figures)
    if groups is not None and (groups == groups[0]).all():
        groups = None
    if not rows:
        return np.zeros(1, np.int64) if groups is None else np.sort(np.unique(groups, return_index=True)[1])
    if len(rows) > 2:
        return _of_many_figures(np.stack([_as_doubles(f) for f in rows], axis=1), groups)
    if groups is None:
        return np.sort(_staircase(rows))
    return np.sort(_staircases(rows, groups))


def undominated_but_for_rounding(figures: Figures) -> Array:
    """Without groups, where values that differ by rounding alone count as equal: each point that is left out
    has one that stays and is nowhere above it by more than a relative ROUNDING. Of points that are equal so,
    the least in the first figure stays, then in the second, and so on. Figures: floats from 0 on.
    """
    if not len(figures[0]):
        return np.zeros(0, np.int64)
    order = np.lexsort(tuple(figures[::-1]))
    kept: Array = order[undominated([_but_for_rounding(f)[order] for f in figures])]
    return np.sort(kept)


def lexicographic_ranks(figures: Figures) -> Array:
    """Places of points [n] by the first figure, where it is equal but for rounding by the second, and so on
    to the last, whose values are told apart as they are; equal points have one place. Figures: floats from 0
    on."""
    rows = [*map(_but_for_rounding, figures[:-1]), figures[-1]]
    order = np.lexsort(tuple(rows[::-1]))
    steps = np.zeros(len(order), bool)
    for row in rows:
        steps[1:] |= row[order][1:] != row[order][:-1]
    result = np.empty(len(order))
    result[order] = np.cumsum(steps)
    return result


def _but_for_rounding(figure: Array) -> Array:
    """The figure, in which values that lie within ROUNDING of each other are the least of them. A run of
    close values that is wider than that as a whole has some that differ by more, and stays as it is."""
    values, place = np.unique(figure, return_inverse=True)
    with np.errstate(over="ignore"):
        most = values * (1 + ROUNDING)
    begins = np.concatenate([[True], values[1:] > most[:-1]])
    run = np.cumsum(begins) - 1
    first, ends = np.flatnonzero(begins)[run], np.append(begins[1:], True)
    alike = values[ends][run] <= most[first]
    merged: Array = np.where(alike, values[first], values)[place]
    return merged


def staircase(first: Array, second: Array) -> Array:
    """Positions of the points that no other one dominates in two figures, the first ascending."""
    return _staircase([first, second]) if len(first) else np.zeros(0, np.int64)


class Archive:
    """The undominated points of all that were offered so far; of equal ones that of the lowest number.

    `values` [figures, n] and `ids` [n] are in lexicographic order. `offered`: how many points there were.
    """

    def __init__(self, figures: int, dtype: Any = np.float64) -> None:
        self.values = np.empty((figures, 0), dtype)
        self.ids = np.empty(0, np.int64)
        self.offered = 0
        self._landmarks: Array | None = None

    def offer(self, values: Figures, ids: Array | None = None) -> None:
        """Take in points with their figures and ids [n]; also such as are in the archive already.

        Without `ids` points are numbered in the order in which they are offered.
        """
        new = self._hopeful(values, ids)
        begin, self.offered = self.offered, self.offered + len(values[0])
        if not len(new):
            return
        values = np.concatenate([self.values, [v[new] for v in values]], axis=1)
        ids = np.concatenate([self.ids, begin + new if ids is None else ids[new]])
        order = np.lexsort((ids, *values[::-1]))
        values, ids = values[:, order], ids[order]
        kept = undominated(values)
        self.values, self.ids, self._landmarks = values[:, kept], ids[kept], None

    def beats(self, values: Array, numbers: Array) -> Array:
        """Of points [figures, n] those that would not be taken in, whichever ids from `numbers` on they have:
        one here is nowhere above them, and somewhere below or of no higher id."""
        beaten = np.zeros(len(numbers), bool)
        marks = np.searchsorted(self.values[0], self.landmarks[0])
        for some in (marks, *np.split(np.arange(len(self.ids)), range(0, len(self.ids), COMPARED)[1:])):
            left = np.flatnonzero(~beaten)
            least: Array = True
            below = self.ids[some, None] <= numbers[left]
            for mine, points in zip(self.values[:, some, None], values[:, None, left], strict=True):
                least, below = least & (mine <= points), below | (mine < points)
            beaten[left] = (least & below).any(axis=0)
        return beaten

    def _hopeful(self, values: Figures, ids: Array | None) -> Array:
        """Positions of points that may be new to the archive: in up to two figures those that are, in more
        those that none of its landmarks dominates."""
        if not len(self.ids):
            return np.arange(len(values[0]))
        if len(values) > 2:
            marks, points = self.landmarks[:, :, None], np.stack(values)[:, None]
            worse = (marks <= points).all(axis=0) & (marks < points).any(axis=0)
            return np.flatnonzero(~worse.any(axis=0))
        # Of the points here that are no worse in the first figure, the last is the best in the other.
        place = np.searchsorted(self.values[0], values[0], side="right") - 1
        new: Array = np.flatnonzero((values[-1] <= self.values[-1][place]) | (place < 0))
        place = place[new]
        equal = (place >= 0) & (values[-1][new] == self.values[-1][place])
        if ids is not None:
            equal &= (self.values[0][place] < values[0][new]) | (self.ids[place] <= ids[new])
        return new[~equal]

    def only(self, positions: Array) -> None:
        """Leave out all points but these."""
        self.values, self.ids = self.values[:, positions], self.ids[positions]

    @property
    def landmarks(self) -> Array:
        """A few well-placed points [figures, some]; what they dominate need not be offered."""
        if self._landmarks is None:
            self._landmarks = self._well_placed() if len(self.ids) else self.values
        return self._landmarks

    def _well_placed(self) -> Array:
        """The best points of several weightings of logarithms."""
        scaled = np.log(np.maximum(self.values.astype(float), 1e-300))
        low, high = scaled.min(axis=1, keepdims=True), scaled.max(axis=1, keepdims=True)
        spread = (scaled - low) / np.where(high > low, high - low, 1)
        chosen = {int(np.argmin(spread.sum(axis=0)))}
        for weight in np.eye(len(self.values)) * 4 + 1:
            chosen.add(int(np.argmin(weight @ spread)))
        return self.values[:, sorted(chosen)[:LANDMARKS]]

    def thinned(self, eps: float) -> Array:
        """Positions of points that come within 1 + eps of every other one in every figure.

        One point per cell of a logarithmic grid, the first in order; values of 0 have cells of their own.
        The cells are fixed, so that thinning again, and points that dominate those kept, stay within 1 + eps.
        """
        if not eps or not len(self.ids):
            return np.arange(len(self.ids))
        with np.errstate(divide="ignore"):
            cells = np.floor(np.log(self.values.astype(float)) / np.log1p(eps))
        return np.sort(np.unique(cells, axis=1, return_index=True)[1])


def _distinct(figures: Figures) -> list[Array]:
    """Figures without those that are constant or equal to another one."""
    different: list[Array] = []
    for f in figures:
        if f.min() != f.max() and not any(np.array_equal(f, x) for x in different):
            different.append(f)
    return different


def _as_doubles(figure: Array) -> Array:
    """A figure, or where float64 does not tell its values apart the order of them."""
    if figure.dtype.kind == "f":
        # The algorithms for many figures use infinities of their own.
        exact = bool(np.isfinite(figure).all())
    else:
        within = figure.dtype.kind != "O"
        exact = within and int(figure.min()) >= -TOLD_APART and int(figure.max()) <= TOLD_APART
    return np.asarray(figure if exact else _ranks(figure), float)


def _ranks(figure: Array) -> Array:
    return np.unique(figure, return_inverse=True)[1].astype(np.int64)


def _staircase(rows: Sequence[Array]) -> Array:
    """Positions of the undominated points of one group in one or two figures, the first ascending."""
    order = np.lexsort(tuple(rows[::-1]))
    last = rows[-1][order]
    kept = np.ones(len(order), bool)
    # Of one figure that leaves the first point alone.
    kept[1:] = last[1:] < np.minimum.accumulate(last)[:-1]
    return order[kept]


def _staircases(rows: Sequence[Array], groups: Array) -> Array:
    """The same of every group."""
    last = _ranks(rows[-1])
    order = np.lexsort((last, *rows[-2::-1], groups))
    starts = _starts(groups[order])
    segment = np.zeros(len(order), np.int64)
    segment[starts] = 1
    # Each group lies below all groups before it, so that one running minimum serves them all.
    shifted = last[order] - np.cumsum(segment) * (int(last.max()) + 1)
    kept = np.ones(len(order), bool)
    kept[1:] = shifted[1:] < np.minimum.accumulate(shifted)[:-1]
    return order[kept]


def _starts(groups: Array) -> Array:
    """Where the runs of equal numbers begin."""
    return np.flatnonzero(np.concatenate([[True], groups[1:] != groups[:-1]]))


def _of_many_figures(points: Array, groups: Array | None) -> Array:
    """Positions of undominated points [n, figures]: small groups side by side, large ones one by one."""
    if groups is None:
        return _of_one_group(points, np.arange(len(points)))
    order = np.argsort(groups, kind="stable")
    starts = _starts(groups[order])
    lengths = np.diff(starts, append=len(order))
    kept = []
    for start, length in zip(starts[lengths > SMALL], lengths[lengths > SMALL], strict=True):
        kept.append(_of_one_group(points, order[start : start + length]))
    small = order[np.repeat(lengths <= SMALL, lengths)]
    if len(small):
        columns = points[small].T
        by = np.lexsort((*columns[::-1], groups[small]))
        small = small[by]
        kept.append(small[_of_small_groups(columns[:, by], _starts(groups[small]))])
    return np.sort(np.concatenate(kept))


def _of_one_group(points: Array, mine: Array) -> Array:
    """Those of one group, part by part first: a call cannot be interrupted, and one over millions of points
    with dozens of figures takes minutes."""
    size = AT_ONCE if points.shape[1] > 3 else len(mine)  # sorting does for three
    while len(mine) > size:
        left = []
        for part in np.split(mine, range(size, len(mine), size)):
            look("comparing points")
            left.append(part[_none_beats(points[part])])
        mine, size = np.concatenate(left), 4 * size
    kept: Array = mine[_none_beats(points[mine])]
    return kept


def _none_beats(points: Array) -> Array:
    """Which points no other one dominates or, before them, equals."""
    if points.shape[1] <= MOST_COLUMNS:
        kept: Array = is_nondominated(points, keep_weakly=False)
        return kept
    apart, first = np.unique(points, axis=0, return_index=True)
    kept = np.zeros(len(points), bool)
    step = max(1, COMPARISONS // apart.size)
    for begin in range(0, len(apart), step):
        look("comparing points")
        some = apart[begin : begin + step]
        no_worse = (apart[:, None] <= some).all(axis=2).sum(axis=0)  # each is among them itself
        kept[first[begin : begin + step]] = no_worse == 1
    return kept


def _of_small_groups(values: Array, starts: Array) -> Array:
    """Sorted points of small groups, groups of one length side by side."""
    lengths = np.diff(starts, append=values.shape[1])
    kept: list[Array] = []
    for length in np.unique(lengths):
        mine = starts[lengths == length]
        if length == 1:
            kept.append(mine)
            continue
        step = max(1, COMPARISONS // int(length) ** 2)
        for begin in range(0, len(mine), step):
            kept.append(_pair_by_pair(values, mine[begin : begin + step], int(length)))
    return np.concatenate(kept)


def _pair_by_pair(values: Array, starts: Array, length: int) -> Array:
    """Groups of one length; sorted points are dominated by earlier ones only."""
    positions = starts[:, None] + np.arange(length)[None, :]
    dominated = np.ones((len(starts), length, length), bool)
    for row in values[1:]:
        v = row[positions]
        dominated &= v[:, :, None] <= v[:, None, :]
    dominated &= np.triu(np.ones((length, length), bool), 1)[None]
    kept: Array = positions[~dominated.any(axis=1)]
    return kept
