"""Count values in many ranges of an array at once."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from polymodel.frozen import dataclass

Ints = NDArray[np.int64]
_T = TypeVar("_T", bound=np.integer[Any])


def count_below(values: NDArray[np.integer], low: Ints, high: Ints, bound: Ints, top: int) -> Ints:
    """Return, for each query, how many of values[low:high] are below `bound`. Values are at least 0 and below
    `top`."""
    return weight_below(values, None, low, high, bound, top)


def count_at_least(values: Ints, low: Ints, high: Ints, least: Ints) -> Ints:
    """Return, for each query, how many of values[low:high] are at least `least`. No value is negative."""
    below = count_below(values, low, high, least, int(values.max(initial=0)) + 1)
    result: Ints = np.maximum(high - low, 0) - below
    return result


def weight_below(
    values: NDArray[np.integer], weights: Ints | None, low: Ints, high: Ints, bound: Ints, top: int
) -> Ints:
    """Return, for each query, the total weight of those of values[low:high] that are below `bound` (without
    weights: their number).

    The algorithm is a wavelet matrix: from the highest bit down, values with a 0 are placed before those with
    a 1, and a range becomes the two ranges that contain its values.
    """
    result = np.zeros(low.size, dtype=np.int64)
    high = np.maximum(high, low)
    full = bound >= top
    whole = high - low if weights is None else sums_before(weights)[high] - sums_before(weights)[low]
    bound = np.minimum(bound, max(top - 1, 0))
    ends, n = np.concatenate((low, high)), low.size
    # Passes over the values take most of the time, and narrow ones take less.
    values = values.astype(np.min_scalar_type(max(top - 1, 1)))
    before: Any = np.zeros(values.size + 1, dtype=np.int32 if values.size < 2**31 else np.int64)
    for bit in reversed(range(max(int(top - 1).bit_length(), 1))):
        zero = (values & values.dtype.type(1 << bit)) == 0
        np.cumsum(zero, out=before[1:], dtype=before.dtype)
        zeros: Ints = before[ends].astype(np.int64)
        up = ((bound >> bit) & 1).astype(bool)
        if weights is None:
            result += np.where(up, zeros[n:] - zeros[:n], 0)
        else:
            light = sums_before(np.where(zero, weights, 0))[ends]
            result += np.where(up, light[n:] - light[:n], 0)
        ends = np.where(np.concatenate((up, up)), before[-1] + ends - zeros, zeros)
        if bit:
            values = _zeros_first(zero, values, int(before[-1]))
            weights = None if weights is None else _zeros_first(zero, weights, int(before[-1]))
    return np.where(full, whole, result)


def _zeros_first(zero: NDArray[np.bool_], values: NDArray[_T], number: int) -> NDArray[_T]:
    """Return the values that are marked, `number` of them, before all others."""
    result = np.empty_like(values)
    np.compress(zero, values, out=result[:number])
    np.compress(~zero, values, out=result[number:])
    return result


def sums_before(weights: NDArray[np.integer] | NDArray[np.bool_]) -> Ints:
    """Return the sum of the weights before each index, and the total."""
    result = np.zeros(weights.size + 1, dtype=np.int64)
    np.cumsum(weights, out=result[1:])
    return result


def in_order(labels: Ints) -> Ints:
    """Return indices sorted by label, stable for equal labels. Labels with a small range are sorted by
    counting."""
    span = int(labels.max(initial=-1)) + 1
    if span > 4 * labels.size or labels.size >= 2**31:
        return np.argsort(labels, kind="stable")
    from scipy.sparse import csr_array

    starts = np.array([0, labels.size], dtype=np.int32)
    places = np.arange(labels.size, dtype=np.int32)
    row = csr_array((places, labels.astype(np.int32), starts), shape=(1, span))
    result: Ints = row.tocsc().data.astype(np.int64)
    return result


def neighbours(labels: Ints) -> tuple[Ints, Ints]:
    """Return, for each access of a sequence, the previous access with the same label (-1: none) and the next
    one (number of accesses: none)."""
    order = in_order(labels)
    labels = labels[order]
    same = np.flatnonzero(labels[1:] == labels[:-1])
    before = np.full(labels.size, -1, dtype=np.int64)
    after = np.full(labels.size, labels.size, dtype=np.int64)
    before[order[same + 1]] = order[same]
    after[order[same]] = order[same + 1]
    return before, after


# The least accesses of a window, the length from which windows are sorted, and the step for shorter ones.
WINDOW, _LONG, _STEP = 2**12, 2**15, 2**6


def reuse_distances(before: Ints, after: Ints, weights: Ints, asked: Ints, small: Ints, large: int) -> Ints:
    """Return, for some accesses in ascending order, the total weight of the distinct labels accessed since
    the previous access to the same label. `weights`: the weight of each access's label.

    Distances are exact from `small` (one number for each of these accesses) up to `large`. A result below
    `small`, or at least `large`, only says that the distance is in the same range.

    The sequence is divided into windows. At the start of each window the most recently used labels, up to the
    total weight `large`, are known by their last accesses. The labels used since an access before the window
    are those with later last accesses, and those in the window that were last used before that access.
    """
    result = np.empty(asked.size, dtype=np.int64)
    recent: Ints = np.zeros(0, dtype=np.int64)
    start = at = 0
    while at < asked.size:
        stop = min(start + max(WINDOW, recent.size // 4), before.size)
        end = int(np.searchsorted(asked, stop))
        if end > at:
            window = _AccessWindow(
                start, before[start:stop], weights[start:stop], recent, sums_before(weights[recent])
            )
            result[at:end] = window.distances(asked[at:end], before[asked[at:end]], small[at:end], large)
        recent = recent[after[recent] >= stop]
        recent = np.concatenate((recent, start + np.flatnonzero(after[start:stop] >= stop)))
        mine = weights[recent]
        recent = recent[np.cumsum(mine[::-1])[::-1] - mine < large]
        start, at = stop, end
    return result


@dataclass(frozen=True, eq=False)
class _AccessWindow:
    """A part of the accesses, from number `start` on. `recent`: the last accesses to labels before it;
    `sums`: prefix sums of their weights."""

    start: int
    before: Ints
    weights: Ints
    recent: Ints
    sums: Ints

    def distances(self, asked: Ints, last: Ints, small: Ints, large: int) -> Ints:
        """Return the distances of these accesses. `last`: the previous access to the same label."""
        place = np.searchsorted(self.recent, last, side="right")
        earlier = self.sums[-1] - self.sums[place]
        new = sums_before(np.where(self.before < self.start, self.weights, 0))
        at = asked - self.start
        result: Ints = earlier + new[at]
        # If the label was last used in the window, weights other than those new to the window are in between.
        near = last >= self.start
        left = np.flatnonzero(near | ((earlier < large) & (result >= small)))
        if not left.size:
            return result
        if self.before.size <= _LONG:
            few = left[~near[left]]
            result[few] = earlier[few] + self._by_steps(
                at[few], last[few], small[few] - earlier[few], large - earlier[few]
            )
            left = left[near[left]]
        if left.size:
            result[left] = earlier[left] + self._by_ranges(at[left], last[left])
        return result

    def _by_ranges(self, at: Ints, last: Ints) -> Ints:
        """Return the weight of the accesses in the window, before these positions, whose label was last used
        before `last`."""
        order = np.sort(self.before)
        seen, bound = np.searchsorted(order, self.before), np.searchsorted(order, last)
        first = np.maximum(last + 1 - self.start, 0)
        return weight_below(seen, self.weights, first, at, bound, order.size + 1)

    def _by_steps(self, at: Ints, last: Ints, small: Ints, large: Ints) -> Ints:
        """Return the same weight where `last` is before the window: first up to a multiple of `_STEP`
        positions for all accesses, then position by position where the result may lie between `small` and
        `large`."""
        last, bound = np.unique(last, return_inverse=True)
        steps = -(-self.before.size // _STEP)
        # Per step, by the first position of `last` before which each label was used.
        step, first = np.arange(self.before.size) // _STEP, np.searchsorted(last, self.before, side="right")
        table = np.zeros((steps + 1, last.size + 1), dtype=np.int64)
        np.add.at(table, (step + 1, first), self.weights)
        table = table.cumsum(axis=0).cumsum(axis=1)
        result: Ints = table[at // _STEP, bound]
        left = np.flatnonzero((result < large) & (table[at // _STEP + 1, bound] >= small))
        one = np.minimum(at[left, None] // _STEP * _STEP + np.arange(_STEP), self.before.size - 1)
        counts = (one < at[left, None]) & (self.before[one] < last[bound[left], None])
        result[left] += np.where(counts, self.weights[one], 0).sum(axis=1)
        return result
