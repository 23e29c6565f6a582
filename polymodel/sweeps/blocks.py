"""All points of one compiled block: costs, one piece at a time, and the points to keep."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from polymodel.integers import distinguishable
from polymodel.sweeps.grid import Grid
from polymodel.sweeps.infeasibility import TILES, WHERE
from polymodel.sweeps.metrics import Block, Found
from polymodel.sweeps.objectives import objective
from polymodel.sweeps.result_collector import ResultCollector
from polymodel.sweeps.scenario import Scenario, Variant
from polymodel.sweeps.scratch import BlockMemory, Scratch
from polymodel.sweeps.sparse.rows import is_sparse
from polymodel.sweeps.work_units import Units

Array = Any
Names = tuple[str, ...]


def run_block(
    block: Scenario,
    objectives: Sequence[str],
    grid: Grid,
    state: ResultCollector,
    units: Units,
    report: Callable[[], None],
) -> None:
    """Do this process's units of a block. Raises Outgrown."""
    count_left_out(block, state, units)
    if not block.legal:
        return
    masks, n = Masks(block, grid), len(block.variants)
    kernel = block.kernel
    tall = max(1, units.sizes[1] // kernel.width)
    lines = max(units.sizes[0], tall)
    memory = BlockMemory()
    for begin in range(0, kernel.height, lines):
        if not units.mine(state):
            continue
        end = min(begin + lines, kernel.height)
        digits = kernel.left_digits(begin, end)
        lefts = kernel.left(digits, end - begin)
        ids = kernel.left_ids(digits, end - begin) + block.first
        for cut, columns in _cuts(end - begin, tall, kernel.width):
            placed = kernel.placed(tuple(d[cut] for d in digits), columns)
            rows = Block(kernel.rows, lefts, cut, columns, memory, placed, block.tables)
            shape = (cut.stop - cut.start, columns.stop - columns.start)
            counts: dict[str, int] = {}
            for v in block.variants:
                numbers = ids[cut], kernel.right_ids[columns]
                memory.variant(shape)
                keep_best(v, rows, shape, masks.of(v, placed), objectives, state, numbers, counts)
            # All at once, so that the counts of an interrupted sweep are consistent.
            state.count(shape[0] * shape[1] * n, counts)
        report()


def prepare(block: Scenario, objectives: Sequence[str]) -> None:
    """Tabulate the counts that are requested. Raises NotSeparable if one has no closed form at some tiles."""
    if not block.legal or is_sparse(objectives):
        return
    kernel, first = block.kernel, slice(0, 1)
    digits = kernel.left_digits(0, 1)
    for v in block.variants:
        placed = kernel.placed(digits, first)
        rows = Block(kernel.rows, kernel.left(digits, 1), first, first, None, placed, block.tables)
        found = v.evaluator(rows)
        for name in objectives:
            objective(name, found, rows, v.costing)
        assert len(found.fits) == len(v.costing.limits)


def count_left_out(block: Scenario, state: ResultCollector, units: Units) -> None:
    """Count the points of a block that are not evaluated: illegal, constrained or pruned ones."""
    whole = prod(a.whole for a in block.axes)
    legal = prod(a.legal for a in block.axes)
    n = len(block.variants)
    if units.mine(state):
        state.refuse(TILES, (whole - legal) * n)
        state.refuse(WHERE, (legal - block.legal) * n - block.pruned)
        state.done += (whole - block.legal) * n
        for reason in block.unfit:
            state.refuse(reason, whole)
            state.done += whole


def _cuts(height: int, tall: int, width: int) -> Iterator[tuple[slice, slice]]:
    for i in range(0, height, tall):
        yield slice(i, min(i + tall, height)), slice(0, width)


class Masks:
    """The conditions other than tiles that make points of a block illegal.

    These are `where` constraints that involve several axes or the architecture, and broken dependences.
    """

    def __init__(self, block: Scenario, grid: Grid) -> None:
        self.block = block
        self.where = block.crossing(grid)

    def of(
        self, variant: Variant, placed: Mapping[Names, Array]
    ) -> tuple[Array, Sequence[tuple[str, Array]]]:
        """The mask of `where` constraints, and per dependence a reason and a mask of the points that satisfy
        it.

        `placed`: choices along each axis (by its symbols); masks broadcast to these.
        """
        illegal = self.block.illegal
        return self._allowed(variant, placed), list(illegal.masks(placed)) if illegal is not None else []

    def _allowed(self, variant: Variant, placed: Mapping[Names, Array]) -> Array:
        if not self.where:
            return True
        values: dict[str, Any] = {**self.block.fixed, **variant.given}
        for axis in self.block.axes:
            values |= {n: c[placed[axis.names]] for n, c in axis.columns.items()}
        result: Array = True
        for c in self.where:
            result = np.logical_and(result, c.holds(values))
        return result


def keep_best(
    variant: Variant,
    rows: Block,
    shape: tuple[int, int],
    no_mapping: tuple[Array, Sequence[tuple[str, Array]]],
    objectives: Sequence[str],
    state: ResultCollector,
    ids: tuple[Array, Array],
    counts: dict[str, int],
) -> None:
    """Keep the best points of one variant; `counts` receives the number of infeasible points by reason.

    `no_mapping`: the mask of `where` constraints, and the masks of dependences.
    """
    allowed, broken = no_mapping
    found, masks = variant.evaluator(rows), rows.memory.masks
    values = [np.broadcast_to(objective(o, found, rows, variant.costing), shape) for o in objectives]
    good, legal, left = allowed, allowed, shape[0] * shape[1]
    for reason, illegal, mask in conditions(variant, found, allowed, broken):
        if mask is True:
            continue
        good = mask if good is True else masks.apply(np.logical_and, good, mask)
        legal = good if illegal else legal
        now = int(np.count_nonzero(np.broadcast_to(good, shape)))
        counts[reason] = counts.get(reason, 0) + left - now
        left = now
    if state.keep == "all":
        kept = np.flatnonzero(np.broadcast_to(legal, shape))
        numbers = ids[0][kept // shape[1]] + ids[1][kept % shape[1]] + variant.share
        state.everything(numbers)
        if is_sparse(objectives):
            found_there = zip(*(v.reshape(-1)[kept].tolist() for v in values), strict=True)
            state.figures |= dict(zip(numbers.tolist(), found_there, strict=True))
        return
    if not left:
        return
    hope = hopeful(state.front.landmarks, values, masks) if state.keep == "front" else True
    if state.keep == "top" and len(state.best) >= state.top:
        hope = masks.convert(np.less_equal, values[0], state.best[-1])
    chosen = np.flatnonzero(np.broadcast_to(masks.apply(np.logical_and, good, hope), shape))
    if len(chosen):
        i, j = chosen // shape[1], chosen % shape[1]
        state.offer(distinguishable([v[i, j] for v in values]), ids[0][i] + ids[1][j] + variant.share)


def conditions(
    variant: Variant, found: Found, allowed: Array, broken: Sequence[tuple[str, Array]]
) -> list[tuple[str, bool, Array]]:
    """Reasons for infeasibility, in the order in which they are reported.

    Per reason: its text, whether such points are illegal mappings, and a mask that is False at such points
    (True: no point has it).
    """
    limits = [(x.reason, x.illegal, f) for x, f in zip(variant.costing.limits, found.fits, strict=True)]
    # illegal mappings are reported before capacities
    result = [(WHERE, True, allowed), *(x for x in limits if x[1])]
    return [*result, *((why, True, mask) for why, mask in broken), *(x for x in limits if not x[1])]


def hopeful(landmarks: Array, values: Sequence[Array], masks: Scratch) -> Array:
    """False for points of the block that a landmark dominates: a cheap filter, in any shape."""
    dominated: Array = False
    for mark in landmarks.T:
        least, more = True, False
        for value, limit in zip(values, mark, strict=True):
            least = masks.into(np.logical_and, least, masks.convert(np.greater_equal, value, limit))
            more = masks.into(np.logical_or, more, masks.convert(np.greater, value, limit))
        dominated = masks.into(np.logical_or, dominated, masks.into(np.logical_and, least, more))
    return np.logical_not(dominated)
