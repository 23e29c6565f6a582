"""Items given to parts one after another, each to the part with the least load so far."""

from __future__ import annotations

from heapq import heapreplace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polymodel.errors import Diagnostic, SpecError

Ints = NDArray[np.int64]


def least_loaded(loads: ArrayLike, parts: int) -> Ints:
    """The part of each item, shape (items,): items come in order, each goes to the least loaded part.

    `loads`: what each item weighs, whole numbers. Ties go to the lowest part; items without weight are never
    assigned: -1. O(items log parts). Source: `uniform_slice` of the Tensaurus spec (slices of an accelerator
    get whole top-rank fibers), and the lanes of CISS (Tensaurus, HPCA 2020, section 4).
    Raises SpecError for loads below 0 or no whole numbers, and for less than one part.
    """
    weights = np.asarray(loads)
    faults = []
    if parts < 1:
        faults.append(Diagnostic(f"{parts} parts", "a whole number of at least 1"))
    if weights.ndim != 1 or (weights.size and weights.dtype.kind not in "iu"):
        faults.append(
            Diagnostic(f"loads are {weights.dtype} of shape {weights.shape}", "a row of whole numbers")
        )
    elif weights.size and weights.min() < 0:
        faults.append(Diagnostic(f"load {int(weights.argmin())} is {weights.min()}", "a load is at least 0"))
    if faults:
        raise SpecError(faults)
    found = np.full(weights.size, -1, dtype=np.int64)
    items = np.flatnonzero(weights)
    used = min(parts, items.size)
    # A part is kept as load * used + part: one comparison orders by load, then by part.
    heap = list(range(used))
    steps: list[int] = (weights[items].astype(object) * used).tolist()
    found[items] = [heapreplace(heap, heap[0] + step) % used for step in steps]
    return found


def part_loads(loads: ArrayLike, assignment: Ints, parts: int) -> Ints:
    """What each part got, shape (parts,); items assigned to -1 count nowhere."""
    found = np.zeros(parts, dtype=np.int64)
    kept = assignment >= 0
    np.add.at(found, assignment[kept], np.asarray(loads)[kept])
    return found
