"""Compute the values of an Einsum: products and sums at the innermost iterations, gathered by output."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymodel.arithmetic import Semiring
from polymodel.governor import charge
from polymodel.sparse.execute import merged as merging
from polymodel.sparse.execute.dense_ranks import Tail, first_leaf
from polymodel.sparse.execute.loops import FiberCursor, LoopWalk
from polymodel.sparse.execute.merged import Merged
from polymodel.sparse.execute.output import Bools
from polymodel.sparse.execute.plan import Plan, SlotProduct
from polymodel.sparse.fibertree import Ints, sorting
from polymodel.sparse.tensor import SparseTensor

Values = NDArray[Any]
# Values that are processed at a time.
BLOCK = 4_000_000


def coordinates(plan: Plan, walk: LoopWalk, nodes: Ints) -> dict[int, Ints]:
    """Return the output's coordinates by declared rank, as far as the walked loops determine them, at some of
    the last nodes."""
    result = {}
    wanted = {loop for _, loop, _ in plan.output}
    first = min(wanted, default=len(walk.loops))
    for at, loop in reversed(list(enumerate(walk.loops))):
        if at in wanted:
            columns = plan.order[at].decode(loop.coords[nodes])
            for i, (_, where, column) in enumerate(plan.output):
                if where == at:
                    result[i] = columns[column]
        if at <= first:
            break
        nodes = loop.parent[nodes]
    return result


def presence(plan: Plan, walk: LoopWalk) -> tuple[list[Bools | None], Bools | None]:
    """Return, for each term, the leaves where it is present (None: all), and the leaves where any term is."""
    result: list[Bools | None] = []
    for term in plan.terms:
        there: Bools | None = None
        for s in term.slots:
            cursor = walk.cursors[s]
            if cursor.partial and cursor.element is not None:
                here = cursor.element >= 0
                there = here if there is None else there & here
        result.append(None if there is None or there.all() else there)
    anywhere: Bools | None = None
    if all(t is not None for t in result):
        anywhere = np.logical_or.reduce([t for t in result if t is not None])
    return result, None if anywhere is None or anywhere.all() else anywhere


def term_multiplies(term: SlotProduct) -> int:
    """Return the number of multiplications at one leaf: one less than the number of factors."""
    return 0 if term.take is not None else len(term.slots) + term.numbers - 1


def leaf_values(plan: Plan, walk: LoopWalk, there: list[Bools | None]) -> Values:
    """Return the value of each leaf: the sum of the terms that are present."""
    result, known = _product(plan.terms[0], walk.cursors, plan.semiring), there[0]
    for term, kept in zip(plan.terms[1:], there[1:], strict=True):
        one = _product(term, walk.cursors, plan.semiring)
        both = plan.semiring.add.form(result, one)
        both = both if kept is None else np.where(kept, both, result)
        result = both if known is None else np.where(known, both, one)
        known = None if known is None or kept is None else known | kept
    return result


def _product(term: SlotProduct, cursors: list[FiberCursor], semiring: Semiring) -> Values:
    factors = term.slots if term.take is None else (term.slots[term.take],)
    result: Values | None = None
    for s in factors:
        cursor = cursors[s]
        here = _at(cursor.slot.tree.values, cursor.element, cursor.partial)
        here = here if term.take is not None else wide(here)
        result = here if result is None else semiring.multiply.form(result, here)
    assert result is not None
    return scaled(result, term, semiring)


def scaled(values: Values, term: SlotProduct, semiring: Semiring) -> Values:
    """Multiply products of a term's tensors by its numbers and its sign."""
    if term.take is not None or not (term.numbers or term.factor < 0):
        return values
    result: Values = (
        values * term.factor if semiring.ordinary else semiring.multiply.form(values, term.factor)
    )
    return result


def wide(values: Values) -> Values:
    """Return values in 64 bits, so that products and sums of small types are correct, whatever way loops are
    counted.

    Whole numbers become signed, unless they are unsigned with 64 bits.
    """
    kind, size = values.dtype.kind, values.dtype.itemsize
    if kind in "bi" or (kind == "u" and size < 8):
        return values.astype(np.int64, copy=False)
    if kind == "f" and size < 8:
        return values.astype(np.float64)
    return values.astype(np.complex128, copy=False) if kind == "c" and size < 16 else values


def _at(values: Values, element: Ints | None, partial: bool) -> Values:
    if element is None:
        return values
    if partial:
        if not values.size:
            return np.zeros(element.size, dtype=values.dtype)
        return values[np.maximum(element, 0)]
    return values[element]


def gathered(values: Values, output: Ints, count: int, assign: bool, add: np.ufunc) -> Values:
    """Return leaf values summed by output. `assign`: the last value replaces earlier ones instead (take)."""
    if assign:
        result = np.zeros(count, dtype=values.dtype)
        result[output] = values
        return result
    if values.dtype.kind == "b":
        values = values.astype(np.int64)
    order = None
    if values.size > 1 and not bool((output[1:] >= output[:-1]).all()):
        if add is np.add and values.dtype.kind == "f" and values.dtype.itemsize == 8:
            return np.bincount(output, weights=values, minlength=count)
        order = np.argsort(output, kind="stable")
        values, output = values[order], output[order]
    new = np.ones(output.size, dtype=bool)
    new[1:] = output[1:] != output[:-1]
    return add.reduceat(values, np.flatnonzero(new)) if values.size else values


def innermost_dense_values(
    plan: Plan, walk: LoopWalk, tail: Tail, kind: int, nodes: Ints, output: Ints
) -> tuple[Ints, Values]:
    """Return, for nodes of one kind, their outputs in ascending order, and a row of values per output, one
    for each leaf below.

    `output`: that of each of the nodes. Rows of the same output are added (take: the last one remains).
    """
    term = plan.terms[0]
    order = np.argsort(output, kind="stable")
    nodes, output = nodes[order], output[order]
    new = np.ones(output.size, dtype=bool)
    new[1:] = output[1:] != output[:-1]
    starts = np.flatnonzero(new)
    mine = leaves_of(tail, kind)
    outputs, width = output[starts], int(mine.size)
    rows: list[Values] = []
    at = 0
    ends = np.append(starts[1:], nodes.size)
    while at < starts.size:
        stop = int(np.searchsorted(ends, starts[at] + max(BLOCK // max(width, 1), 1), side="right"))
        stop = max(stop, at + 1)
        block = nodes[starts[at] : ends[stop - 1]]
        one = _rows(plan, walk, tail, kind, block, mine)
        local = starts[at:stop] - starts[at]
        if term.take is not None:
            rows.append(one[ends[at:stop] - starts[at] - 1])
        else:
            rows.append(one if local.size == block.size else ufunc_of(plan).reduceat(one, local, axis=0))
        at = stop
    return outputs, np.concatenate(rows) if rows else np.zeros((0, width))


def ufunc_of(plan: Plan) -> np.ufunc:
    """Return the function that combines values of one output."""
    result = plan.semiring.add.form
    assert isinstance(result, np.ufunc), "the reader of a spec has looked"
    return result


def leaves_of(tail: Tail, kind: int) -> Ints:
    """Return the nodes of the tail's last loop below a kind."""
    return np.flatnonzero(tail.owner(len(tail.loops) - 1) == kind)


def _rows(plan: Plan, walk: LoopWalk, tail: Tail, kind: int, nodes: Ints, leaves: Ints) -> Values:
    """Return products, with a row per node and a column per leaf below it."""
    result: Values | None = None
    term, semiring = plan.terms[0], plan.semiring
    factors = term.slots if term.take is None else (term.slots[term.take],)
    for s in factors:
        cursor, below = walk.cursors[s], tail.cursors[s]
        values = cursor.slot.tree.values
        if below.bound == cursor.bound:
            here = values[cursor.element[nodes]][:, None] if cursor.element is not None else values[None, :]
        else:
            levels = cursor.slot.tree.levels[cursor.bound :]
            element = cursor.element if cursor.element is not None else np.zeros(walk.nodes, dtype=np.int64)
            one = int(first_leaf(levels, element[tail.one[kind : kind + 1]])[0])
            assert below.element is not None
            offset = below.element[leaves] - one
            here = values[first_leaf(levels, element[nodes])[:, None] + offset[None, :]]
        here = here if term.take is not None else wide(here)
        result = here if result is None else semiring.multiply.form(result, here)
    assert result is not None
    return np.broadcast_to(scaled(result, term, semiring), (nodes.size, leaves.size))


# For a loop that is merged instead of walked, the output is its pattern, or its values as a sparse product.


def merged_result(plan: Plan, walk: LoopWalk, merged: Merged, elements: int, values: bool) -> SparseTensor:
    """Return the output, which has `elements` elements; without `values` all are 1."""
    one = np.zeros(merged.outputs, dtype=np.int64)
    one[merged.output] = np.arange(walk.nodes, dtype=np.int64)
    above = coordinates(plan, walk, one)  # of each of the output's fibers
    size = elements * 8 * (2 * len(plan.output) + 4)
    charge(size, f"the result of {plan.einsum}", "count without results: values=False")
    if values:
        fibers, lengths, coords, data = _merged_product(plan, walk, merged, above)
        along = {i: np.repeat(one[fibers], lengths) for i, one in above.items()}
    else:
        fiber, coords = merged.pattern()
        along = {i: one[fiber] for i, one in above.items()}
        data = np.ones(fiber.size, dtype=np.int8)
    points = np.empty((len(plan.output), coords.size), dtype=np.int64)
    for i, row in enumerate(points):
        row[:] = along.pop(i, coords)
    ranks = tuple(rank for rank, _, _ in plan.output)
    return SparseTensor.from_coo(plan.einsum, ranks, plan.shape, points, data)


def _merged_product(
    plan: Plan, walk: LoopWalk, merged: Merged, above: dict[int, Ints]
) -> tuple[Ints, Ints, NDArray[np.integer], Values]:
    """Return the output's fibers, their numbers of elements, and coordinate and value of every element: the
    weights of fibers at the nodes, times the fibers."""
    from scipy.sparse import csr_array

    term, level = plan.terms[0], merged.level
    right_values = wide(plan.slots[merged.slot].tree.values)
    weights: Values = np.ones(walk.nodes, dtype=right_values.dtype)
    for s in term.slots:
        if s != merged.slot:
            element = walk.cursors[s].element
            held = plan.slots[s].tree.values
            weights = weights * wide(held if element is None else held[element])
    weights = scaled(weights, term, plan.semiring)
    # The output's fibers in the order of its result, as far as the loops above determine it.
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
        # A product takes memory for every column, so that empty columns are omitted.
        names, columns = np.unique(columns, return_inverse=True)
        span = names.size
    right = csr_array((right_values, columns, level.starts), shape=(level.fibers, span))
    made = left @ right
    made.sort_indices()  # faster than transposing twice
    coords = made.indices if names is None else names[made.indices]
    return fibers, np.diff(made.indptr), coords, made.data
