"""The output of a loop that is merged and not walked: its pattern, or its values as a sparse product."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymodel.governor import charge
from polymodel.sparse.execute import merged as merging
from polymodel.sparse.execute.loops import Walk
from polymodel.sparse.execute.merged import Merged
from polymodel.sparse.execute.plan import Plan
from polymodel.sparse.execute.values import coordinates, wide
from polymodel.sparse.fibertree import Ints, sorting
from polymodel.sparse.tensor import SparseTensor

Values = NDArray[Any]


def merged_result(plan: Plan, walk: Walk, merged: Merged, elements: int, values: bool) -> SparseTensor:
    """The output, which has so many elements; without `values` all are 1."""
    one = np.zeros(merged.outputs, dtype=np.int64)
    one[merged.output] = np.arange(walk.nodes, dtype=np.int64)
    above = coordinates(plan, walk, one)  # of each of the output's fibers
    size = elements * 8 * (2 * len(plan.output) + 4)
    charge(size, f"the result of {plan.einsum}", "count without results: values=False")
    if values:
        fiber, coords, data = _product(plan, walk, merged, above)
    else:
        fiber, coords = merged.pattern()
        data = np.ones(fiber.size, dtype=np.int8)
    points = np.empty((len(plan.output), fiber.size), dtype=np.int64)
    for i, row in enumerate(points):
        row[:] = above[i][fiber] if i in above else coords
    ranks = tuple(rank for rank, _, _ in plan.output)
    return SparseTensor.from_coo(plan.einsum, ranks, plan.shape, points, data)


def _product(
    plan: Plan, walk: Walk, merged: Merged, above: dict[int, Ints]
) -> tuple[Ints, NDArray[np.integer], Values]:
    """Fiber, coordinate and value of every element: the fibers' weights at the nodes times the fibers."""
    from scipy.sparse import csr_array

    term, level = plan.terms[0], merged.level
    right_values = wide(plan.slots[merged.slot].tree.values)
    weights: Values = np.ones(walk.nodes, dtype=right_values.dtype)
    for s in term.slots:
        if s != merged.slot:
            element = walk.cursors[s].element
            held = plan.slots[s].tree.values
            weights = weights * wide(held if element is None else held[element])
    if term.numbers:
        weights = weights * term.factor
    # The output's fibers in the order of its result, as far as the loops above give it.
    place = np.arange(merged.outputs, dtype=np.int64)
    fibers = sorting([above[i] for i in sorted(above)])
    if fibers is None:
        fibers = place
    else:
        place = np.empty_like(fibers)
        place[fibers] = np.arange(fibers.size)
    row = place[merged.output]
    order = None if bool((row[1:] >= row[:-1]).all()) else np.argsort(row, kind="stable")
    starts = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(np.bincount(row, minlength=place.size))))
    fiber = merged.fiber if order is None else merged.fiber[order]
    left = csr_array(
        (weights if order is None else weights[order], fiber, starts), shape=(place.size, level.fibers)
    )
    columns, names, span = level.coords, None, level.span - 1
    if merging.far_apart(level.span, merged.iterations):
        # A product takes memory for every column: only those that hold something.
        names, columns = np.unique(columns, return_inverse=True)
        span = names.size
    right = csr_array((right_values, columns, level.starts), shape=(level.fibers, span))
    made = (left @ right).tocsc().tocsr()
    coords = made.indices if names is None else names[made.indices]
    return np.repeat(fibers, np.diff(made.indptr)), coords, made.data
