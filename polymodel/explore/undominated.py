"""Points that no other point of the same group beats: smaller is better in every figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from moocore import is_nondominated

Array = Any
SMALL = 64  # points of a group compared pair by pair
CELLS = 2**24  # comparisons made at once


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
    order = np.lexsort((*rows[::-1], groups))
    sorted_groups = groups[order]
    starts = np.flatnonzero(np.concatenate([[True], sorted_groups[1:] != sorted_groups[:-1]]))
    values = np.stack([r[order] for r in rows])
    if len(rows) == 1:
        return np.sort(order[starts])
    kept = _stairs(values[0], values[1], starts) if len(rows) == 2 else _any(values, starts)
    return np.sort(order[kept])


def _distinct(figures: Sequence[Array]) -> list[Array]:
    """Figures as ranks, without those that are constant or equal to another one."""
    found: dict[bytes, Array] = {}
    for f in figures:
        low, high = f.min(), f.max()
        if low == high:
            continue
        ranks = np.unique(f, return_inverse=True)[1].astype(np.int32)
        found.setdefault(ranks.tobytes(), ranks)
    return list(found.values())


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


def _any(values: Array, starts: Array) -> Array:
    """Any number of figures: small groups side by side, large ones one by one."""
    ends = np.append(starts[1:], values.shape[1])
    lengths = ends - starts
    kept: list[Array] = []
    for length in np.unique(lengths):
        mine = starts[lengths == length]
        if length == 1:
            kept.append(mine)
        elif length <= SMALL:
            step = max(1, CELLS // int(length) ** 2)
            for begin in range(0, len(mine), step):
                kept.append(_batch(values, mine[begin : begin + step], int(length)))
        else:
            for start in mine:
                some = np.ascontiguousarray(values[:, start : start + length].T, dtype=float)
                kept.append(start + np.flatnonzero(is_nondominated(some, keep_weakly=False)))
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
