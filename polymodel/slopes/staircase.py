"""Fronts of two and three figures as arrays: pruned, joined at equal capacity, and put together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
CELLS = 2**22  # of a table of (additive, maximal) at once


@dataclass(frozen=True, eq=False)
class Staircase:
    """(capacity, accesses), capacity ascending, accesses descending; `origins`: what a point stands for."""

    capacity: Ints
    accesses: Ints
    origins: tuple[tuple[Any, ...], ...]

    def __len__(self) -> int:
        return len(self.capacity)

    def widened(self, constant: int) -> Staircase:
        """With so much more capacity at each point."""
        return Staircase(self.capacity + constant, self.accesses, self.origins)


EMPTY = Staircase(np.zeros(0, np.int64), np.zeros(0, np.int64), ())


def staircase(capacity: Ints, accesses: Ints) -> Ints:
    """Positions of the points that no other beats, capacity ascending; of equal ones the first."""
    order = np.lexsort((accesses, capacity))
    values = accesses[order]
    lowest = np.concatenate(([np.iinfo(np.int64).max], np.minimum.accumulate(values)[:-1]))
    kept: Ints = order[values < lowest]
    return kept


def lowest_of(parts: Iterable[Staircase]) -> Staircase:
    """The lower envelope; where two are equal the first."""
    found = [p for p in parts if len(p)]
    if not found:
        return EMPTY
    capacity = np.concatenate([p.capacity for p in found])
    accesses = np.concatenate([p.accesses for p in found])
    origins = [o for p in found for o in p.origins]
    kept = staircase(capacity, accesses)
    return Staircase(capacity[kept], accesses[kept], tuple(origins[i] for i in kept.tolist()))


def one_after_the_other(first: Staircase, then: Staircase) -> Staircase:
    """Both in one buffer, at different times: the larger capacity, the sum of the accesses."""
    if not len(first) or not len(then):
        return EMPTY
    capacity = np.union1d(first.capacity, then.capacity)
    capacity = capacity[capacity >= max(first.capacity[0], then.capacity[0])]
    i = np.searchsorted(first.capacity, capacity, side="right") - 1
    j = np.searchsorted(then.capacity, capacity, side="right") - 1
    origins = (first.origins[a] + then.origins[b] for a, b in zip(i.tolist(), j.tolist(), strict=True))
    return Staircase(capacity, first.accesses[i] + then.accesses[j], tuple(origins))


def undominated(key: Ints, additive: Ints, maximal: Ints, accesses: Ints) -> Ints:
    """Positions of points that no other one of the same key beats in all three figures, sorted by key.

    Two figures are settled for all (key, additive) at once, the third key by key.
    """
    if not len(key):
        return np.zeros(0, np.int64)
    order = np.lexsort((accesses, maximal, additive, key))
    key_, additive_ = key[order], additive[order]
    starts = np.concatenate(([True], (key_[1:] != key_[:-1]) | (additive_[1:] != additive_[:-1])))
    order = order[_falling(accesses[order], starts)]
    key_ = key[order]
    bounds = np.flatnonzero(np.concatenate(([True], key_[1:] != key_[:-1], [True])))
    kept = [
        part if additive[part[0]] == additive[part[-1]] else part[_layers(additive, maximal, accesses, part)]
        for part in (order[a:b] for a, b in pairwise(bounds.tolist()))
    ]
    return np.concatenate(kept)


def _falling(values: Ints, starts: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """True where a value is below all before it since the last start."""
    ranks = np.unique(values, return_inverse=True)[1].astype(np.int64)
    # Each group lies below all groups before it, so that one running minimum serves them all.
    ranks -= np.cumsum(starts) * (int(ranks.max()) + 1)
    before = np.concatenate(([np.iinfo(np.int64).max], np.minimum.accumulate(ranks)[:-1]))
    found: NDArray[np.bool_] = ranks < before
    return found


def _layers(additive: Ints, maximal: Ints, accesses: Ints, part: Ints) -> NDArray[np.bool_]:
    """Which points of one key, sorted by additive, no point of a smaller one beats.

    A running least traffic for each maximal term, layer by layer; layers are taken in by blocks.
    """
    column = np.unique(maximal[part], return_inverse=True)[1]
    row = np.cumsum(np.concatenate(([0], additive[part][1:] != additive[part][:-1])))
    width, most = int(column.max()) + 1, np.iinfo(np.int64).max
    least = np.full(width, most)
    found = np.zeros(len(part), dtype=bool)
    step = max(1, CELLS // width)
    for begin in range(0, int(row[-1]) + 1, step):
        low, high = np.searchsorted(row, (begin, begin + step))
        table = np.full((int(row[high - 1]) - begin + 2, width), most)
        table[0] = least
        mine = accesses[part[low:high]]
        table[row[low:high] - begin + 1, column[low:high]] = mine
        table = np.minimum.accumulate(np.minimum.accumulate(table, axis=0), axis=1)
        found[low:high] = mine < table[row[low:high] - begin, column[low:high]]
        least = table[-1]
    return found
