"""Points that no other point of the same group beats: smaller is better in every figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from moocore import is_nondominated

Array = Any
SMALL = 64  # points of a group compared pair by pair
CELLS = 2**24  # comparisons made at once
MOST = 1e300  # above all figures


def undominated(figures: Sequence[Array], groups: Array) -> Array:
    """Positions, ascending, of points [n] that no other point of equal `groups` [n] beats in every figure.

    Of equal points the first stays.
    """
    n = len(groups)
    if not n:
        return np.zeros(0, np.int64)
    rows = _distinct(figures)
    if not rows:
        return np.sort(np.unique(groups, return_index=True)[1])
    if len(rows) > 2:
        return _many(np.stack(rows), groups)
    if len(rows) == 2:
        rows[1] = np.unique(rows[1], return_inverse=True)[1]
    order = np.lexsort((*rows[::-1], groups))
    starts = _starts(groups[order])
    kept = starts if len(rows) == 1 else _stairs(rows[0][order], rows[1][order], starts)
    return np.sort(order[kept])


def _distinct(figures: Sequence[Array]) -> list[Array]:
    """Figures without those that are constant or equal to another one."""
    found: list[Array] = []
    for f in figures:
        if f.min() != f.max() and not any(np.array_equal(f, x) for x in found):
            found.append(f)
    return found


def _starts(groups: Array) -> Array:
    """Where the runs of equal numbers begin."""
    return np.flatnonzero(np.concatenate([[True], groups[1:] != groups[:-1]]))


def _many(values: Array, groups: Array) -> Array:
    """Three figures or more: small groups side by side, large ones one by one."""
    one = (groups == groups[0]).all()
    order = np.arange(len(groups)) if one else np.argsort(groups, kind="stable")
    starts = _starts(groups[order])
    lengths = np.diff(starts, append=len(order))
    kept = []
    for start, length in zip(starts[lengths > SMALL], lengths[lengths > SMALL], strict=True):
        mine = order[start : start + length]
        some = np.ascontiguousarray(values[:, mine].T, dtype=float)
        if not np.isfinite(some).all():  # its algorithms use infinities of their own
            some = np.nan_to_num(some, copy=False, posinf=MOST, neginf=-MOST)
        kept.append(mine[is_nondominated(some, keep_weakly=False)])
    small = order[np.repeat(lengths <= SMALL, lengths)]
    if len(small):
        small = small[np.lexsort((*values[::-1, small], groups[small]))]
        kept.append(small[_small(values[:, small], _starts(groups[small]))])
    return np.sort(np.concatenate(kept))


def _stairs(first: Array, second: Array, starts: Array) -> Array:
    """Two figures, sorted: those below all before them in their group."""
    n = len(first)
    segment = np.zeros(n, np.int64)
    segment[starts] = 1
    segment = np.cumsum(segment) - 1
    # Later groups start lower than all earlier ones, so that one running minimum serves all.
    span = int(second.max()) + 1
    shifted = second.astype(np.int64) - segment * span
    lowest = np.minimum.accumulate(shifted)
    before = np.concatenate([[np.iinfo(np.int64).max], lowest[:-1]])
    before[starts] = np.iinfo(np.int64).max
    return np.flatnonzero(shifted < before)


def _small(values: Array, starts: Array) -> Array:
    """Sorted points of small groups, groups of one length side by side."""
    lengths = np.diff(starts, append=values.shape[1])
    kept: list[Array] = []
    for length in np.unique(lengths):
        mine = starts[lengths == length]
        if length == 1:
            kept.append(mine)
            continue
        step = max(1, CELLS // int(length) ** 2)
        for begin in range(0, len(mine), step):
            kept.append(_batch(values, mine[begin : begin + step], int(length)))
    return np.concatenate(kept)


def _batch(values: Array, starts: Array, length: int) -> Array:
    """Groups of one length, compared pair by pair; sorted points are beaten by earlier ones only."""
    positions = starts[:, None] + np.arange(length)[None, :]
    beaten = np.ones((len(starts), length, length), bool)
    for row in values[1:]:
        v = row[positions]
        beaten &= v[:, :, None] <= v[:, None, :]
    beaten &= np.triu(np.ones((length, length), bool), 1)[None]
    found: Array = positions[~beaten.any(axis=1)]
    return found
