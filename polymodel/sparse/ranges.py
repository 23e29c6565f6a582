"""Counting in ranges of an array, many ranges at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


def count_below(values: NDArray[np.integer], low: Ints, high: Ints, bound: Ints, top: int) -> Ints:
    """How many of values[low:high] are below `bound`, per query; values are from 0 up and below `top`."""
    return weight_below(values, None, low, high, bound, top)


def count_at_least(values: Ints, low: Ints, high: Ints, least: Ints) -> Ints:
    """How many of values[low:high] are at least `least`, per query. No value is negative."""
    below = count_below(values, low, high, least, int(values.max(initial=0)) + 1)
    result: Ints = np.maximum(high - low, 0) - below
    return result


def weight_below(
    values: NDArray[np.integer], weights: Ints | None, low: Ints, high: Ints, bound: Ints, top: int
) -> Ints:
    """The weights (without: 1 each) of those of values[low:high] that are below `bound`, per query.

    A wavelet matrix: from the highest bit down, values with a 0 are brought before those with a 1, and a
    range becomes the two ranges that its values fall into.
    """
    result = np.zeros(low.size, dtype=np.int64)
    high = np.maximum(high, low)
    full = bound >= top
    whole = high - low if weights is None else sums_before(weights)[high] - sums_before(weights)[low]
    bound = np.minimum(bound, max(top - 1, 0))
    for bit in reversed(range(max(int(top - 1).bit_length(), 1))):
        ones = (values & (1 << bit)) != 0
        zeros = sums_before(~ones)
        low_zeros, high_zeros = zeros[low], zeros[high]
        up = ((bound >> bit) & 1).astype(bool)
        if weights is None:
            result += np.where(up, high_zeros - low_zeros, 0)
        else:
            light = sums_before(np.where(ones, 0, weights))
            result += np.where(up, light[high] - light[low], 0)
        low = np.where(up, zeros[-1] + low - low_zeros, low_zeros)
        high = np.where(up, zeros[-1] + high - high_zeros, high_zeros)
        if bit:
            values = np.concatenate((values[~ones], values[ones]))
            if weights is not None:
                weights = np.concatenate((weights[~ones], weights[ones]))
    return np.where(full, whole, result)


def sums_before(weights: NDArray[np.integer] | NDArray[np.bool_]) -> Ints:
    """Sums of the weights before each place, and of all."""
    result = np.zeros(weights.size + 1, dtype=np.int64)
    np.cumsum(weights, out=result[1:])
    return result


def neighbours(labels: Ints) -> tuple[Ints, Ints]:
    """The last access before each one in a sequence that has its label (-1: none), and the next one after it
    (their number: none)."""
    order = np.argsort(labels, kind="stable")
    same = np.flatnonzero(labels[order][1:] == labels[order][:-1])
    before = np.full(labels.size, -1, dtype=np.int64)
    after = np.full(labels.size, labels.size, dtype=np.int64)
    before[order[same + 1]] = order[same]
    after[order[same]] = order[same + 1]
    return before, after


def reuse_distances(before: Ints, after: Ints, weights: Ints, asked: Ints) -> Ints:
    """For some accesses with one to the same label before them: the weight of the labels in between, each
    counted once. `weights`: of the label of each access."""
    first = before[asked] + 1
    sums = sums_before(weights)
    again = weight_below(after, weights, first, asked, asked, after.size + 1)
    result: Ints = sums[asked] - sums[first] - again
    return result
