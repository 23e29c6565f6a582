"""Which of many choices no other one replaces, whatever they are combined with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = Any
CHUNK, KEPT = 512, 8192  # choices compared at once, and with how many at most


def before(worse: Sequence[Array], ids: Array) -> Array:
    """The choices numbered so that what is above another one in any of `worse`, and below it in none,
    stands behind it; else by number."""
    total = np.zeros(len(ids), np.int64)
    for values in worse:
        total += np.unique(values, return_inverse=True)[1]
    number = np.empty(len(ids), np.int64)
    number[np.lexsort((ids, total))] = np.arange(len(ids))
    return number


def least(found: Sequence[Array], ids: Array) -> Array:
    """Positions, in order, of choices that no other one with a lower number is nowhere above."""
    ranked = [np.unique(c, return_inverse=True)[1].astype(np.int32) for c in (*found, ids)]
    distinct = {r.tobytes(): r for r in ranked}
    if len(ids) >= 2**31 or len(distinct) == 0:
        return np.arange(len(ids))
    every = np.stack(list(distinct.values()))
    # In lexicographic order a choice stands behind all that beat it.
    order = np.lexsort(every[::-1])
    kept = np.empty((len(every), 0), np.int32)
    positions: list[Array] = []
    for begin in range(0, len(order), CHUNK):
        part = order[begin : begin + CHUNK]
        part = part[~_beaten(every[:, part], kept)]
        mine = every[:, part]
        part = part[~_beaten(mine, mine, before=True)]
        positions.append(part)
        if kept.shape[1] < KEPT:
            kept = np.concatenate([kept, every[:, part]], axis=1)
    return np.sort(np.concatenate(positions))


def _beaten(values: Array, others: Array, before: bool = False) -> Array:
    """Which columns of `values` have a column of `others` (`before`: one that stands further left)
    that is nowhere above."""
    found = np.ones((others.shape[1], values.shape[1]), bool)
    for mine, other in zip(values, others, strict=True):
        found &= other[:, None] <= mine[None, :]
    return np.any(np.triu(found, 1) if before else found, axis=0)
