"""Assign items to parts one after another, each to the part with the least load so far."""

from __future__ import annotations

from heapq import heapreplace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polymodel.errors import Diagnostic, SpecError

Ints = NDArray[np.int64]
# Fewer groups than this are processed one by one.
_FEW = 64


def least_loaded(loads: ArrayLike, parts: int) -> Ints:
    """Return the part of each item, shape (items,): items are assigned in order, each to the least loaded
    part.

    `loads`: the load of each item, whole numbers. Ties go to the lowest part; items without load are not
    assigned (-1). O(items log parts). Source: `uniform_slice` of the Tensaurus spec (slices of an accelerator
    get whole top-rank fibers), and the lanes of CISS (Tensaurus, HPCA 2020, section 4). Raises SpecError for
    loads that are negative or not whole, and for fewer than one part.
    """
    weights = np.asarray(loads)
    faults = []
    if parts < 1:
        message = f"{parts} parts"
        faults.append(Diagnostic(message, "a whole number of at least 1", code="not-positive-integer"))
    if weights.ndim != 1 or (weights.size and weights.dtype.kind not in "iu"):
        message = f"loads are {weights.dtype} of shape {weights.shape}"
        faults.append(Diagnostic(message, "a row of whole numbers", code="wrong-type"))
    elif weights.size and weights.min() < 0:
        message = f"load {int(weights.argmin())} is {weights.min()}"
        faults.append(Diagnostic(message, "a load is at least 0", code="out-of-range"))
    if faults:
        raise SpecError(faults)
    result = np.full(weights.size, -1, dtype=np.int64)
    items = np.flatnonzero(weights)
    used = min(parts, items.size)
    # A part is kept as load * used + part: one comparison orders by load, then by part.
    heap = list(range(used))
    steps: list[int] = (weights[items].astype(object) * used).tolist()
    result[items] = [heapreplace(heap, heap[0] + step) % used for step in steps]
    return result


def part_loads(loads: ArrayLike, assignment: Ints, parts: int) -> Ints:
    """Return the load of each part, shape (parts,); items assigned to -1 are not counted."""
    result = np.zeros(parts, dtype=np.int64)
    kept = assignment >= 0
    np.add.at(result, assignment[kept], np.asarray(loads)[kept])
    return result


def fullest_parts(loads: Ints, groups: Ints, parts: int, work: Ints | None = None) -> tuple[Ints, Ints]:
    """Return the maximum load of a part for each of several groups of items, where each group is assigned by
    itself.

    `groups`: the group of each item, ascending; results are in the order of the groups that occur. `work`
    (default: the loads) is summed per part but does not affect the assignment; its maximum sum is the second
    result. Loads are at least 1. O(items x parts) for many groups, which are processed in parallel.
    """
    work = loads if work is None else work
    if not loads.size:
        none = np.zeros(0, dtype=np.int64)
        return none, none
    starts = np.flatnonzero(np.concatenate(([True], groups[1:] != groups[:-1])))
    counts = np.diff(np.append(starts, loads.size))
    if starts.size >= _FEW:
        return _side_by_side(loads, work, starts, counts, parts)
    result = np.zeros((2, starts.size), dtype=np.int64)
    for n, (a, count) in enumerate(zip(starts, counts, strict=True)):
        items = slice(a, a + count)
        at = least_loaded(loads[items], parts)
        # More parts than items stay empty.
        used = min(parts, int(count))
        result[:, n] = [part_loads(of[items], at, used).max() for of in (loads, work)]
    return result[0], result[1]


def _side_by_side(loads: Ints, work: Ints, starts: Ints, counts: Ints, parts: int) -> tuple[Ints, Ints]:
    """Assign the first item of every group, then the second item of those that have one, and so on."""
    order = np.argsort(-counts, kind="stable")
    starts, counts = starts[order], counts[order]
    used = min(parts, int(counts[0]))
    sums = np.zeros((2, starts.size, used), dtype=np.int64)
    rows = np.arange(starts.size)
    active = starts.size
    for position in range(int(counts[0])):
        while counts[active - 1] <= position:
            active -= 1
        at = sums[0, :active].argmin(axis=1)
        here = starts[:active] + position
        sums[0, rows[:active], at] += loads[here]
        sums[1, rows[:active], at] += work[here]
    result = np.empty((2, starts.size), dtype=np.int64)
    result[:, order] = sums.max(axis=2)
    return result[0], result[1]
