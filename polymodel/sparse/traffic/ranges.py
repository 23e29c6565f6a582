"""Counting in ranges of an array, many ranges at once."""

from __future__ import annotations

import numpy as np

from polymodel.sparse.fibertree import Ints


def count_at_least(values: Ints, low: Ints, high: Ints, least: Ints) -> Ints:
    """How many of values[low:high] are at least `least`, per query.

    Prefixes are cut into blocks of powers of 2, the larger ones in front; blocks that the prefixes up to low
    and up to high share cancel, so only sizes up to that of the longest query matter. No value is negative.
    """
    found = np.zeros(low.size, dtype=np.int64)
    size, span = 1, int(max(values.max(initial=0), least.max(initial=0))) + 2
    used = np.arange(low.size)
    while (used := used[low[used] // size != high[used] // size]).size:
        block = np.arange(values.size) // size
        keys = np.sort(block * span + values)
        for ends, sign in ((high, 1), (low, -1)):
            mine = used[(ends[used] & size) > 0]
            at = (ends[mine] & ~(2 * size - 1)) // size
            found[mine] += sign * ((at + 1) * size - np.searchsorted(keys, at * span + least[mine]))
        size *= 2
    return found


def distinct_between(labels: Ints, least: int) -> tuple[Ints, Ints]:
    """Per access in a sequence of labels, the access to the same label before it (-1: none), and how many
    other labels come between the two, or 0 where fewer than `least` accesses do, or there is none before."""
    n = labels.size
    order = np.argsort(labels, kind="stable")
    same = np.flatnonzero(labels[order][1:] == labels[order][:-1])
    before, after = np.full(n, -1, dtype=np.int64), np.full(n, n, dtype=np.int64)
    before[order[same + 1]] = order[same]
    after[order[same]] = order[same + 1]
    again = np.flatnonzero((before >= 0) & (np.arange(n) - before > least))
    between = np.zeros(n, dtype=np.int64)
    between[again] = count_at_least(after, before[again] + 1, again, again)
    return before, between
