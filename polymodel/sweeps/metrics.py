"""Costs of whole blocks of points, from the values of their rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from polymodel.errors import InternalError
from polymodel.frozen import dataclass
from polymodel.integers import TOLD_APART, dtype_of
from polymodel.objectives import Figures
from polymodel.sweeps.kernel import BLOCK, ArrayKernel, KernelRow
from polymodel.sweeps.plan import Costing, Limit, Linear, LinearForm, Node, Phase, Present, Total
from polymodel.sweeps.scratch import BlockMemory, Scratch

Array = Any
MOST = 2**18  # multiplications in one matrix product
TABLED = 2**22  # largest number of combinations for which a limit is tabulated
SHARED = 8  # least number of grid points per combination


@dataclass(frozen=True)
class Count:
    """Exact nonnegative integers, nowhere above `bound`.

    One number, or an array of float64 (below 2^53), int64, or Python integers.
    """

    array: Array
    bound: int

    def plus(self, other: Count, values: Scratch) -> Count:
        """The sum."""
        bound = self.bound + other.bound
        if np.ndim(self.array) == np.ndim(other.array) == 0:
            return Count(int(self.array) + int(other.array), bound)
        return Count(values.apply(np.add, self._within(bound), other._within(bound)), bound)

    def or_larger(self, other: Count, values: Scratch) -> Count:
        """Return the larger one at each point."""
        bound = max(self.bound, other.bound)
        if np.ndim(self.array) == np.ndim(other.array) == 0:
            return Count(max(int(self.array), int(other.array)), bound)
        return Count(values.apply(np.maximum, self._within(bound), other._within(bound)), bound)

    def _within(self, bound: int) -> Array:
        """The numbers in a type that holds results up to a bound."""
        kind, array = dtype_of(bound), self.array
        if bound < TOLD_APART or np.ndim(array) == 0 or array.dtype == kind:
            return array
        return (array.astype(np.int64) if array.dtype == np.float64 else array).astype(kind, copy=False)


class Block:
    """Rows of one block of points, each computed once on demand.

    `digits`: axis -> choices along it, broadcast against [left, right].
    """

    def __init__(
        self,
        rows: Sequence[KernelRow],
        lefts: Sequence[Array],
        cut: slice,
        columns: slice,
        memory: BlockMemory | None = None,
        digits: Mapping[tuple[str, ...], Array] | None = None,
        tables: LimitTables | None = None,
    ) -> None:
        self.rows, self.lefts, self.cut, self.columns = rows, lefts, cut, columns
        self.digits = digits or {}
        self.tables = tables
        self.found: dict[int, Array] = {}
        self.memory = memory or BlockMemory()
        self.memory.block((cut.stop - cut.start, columns.stop - columns.start))

    @property
    def size(self) -> int:
        """The number of points of the block."""
        return int((self.cut.stop - self.cut.start) * (self.columns.stop - self.columns.start))

    def row(self, index: int) -> Array:
        """Values [left, right] of one row; [left, 1] if it depends on the left half alone."""
        if index not in self.found:
            row, left = self.rows[index], self.lefts[index][self.cut]
            if row.flat:
                self.found[index] = left.sum(axis=1, keepdims=True) if row.joint else left
            else:
                groups = len(row.groups)
                result = self._product(left[:, :groups], row.right[:, self.columns])
                self.found[index] = self._with_joint(result, left[:, groups:], row)
        return self.found[index]

    def _with_joint(self, result: Array, left: Array, row: KernelRow) -> Array:
        """A product plus its joint tables, whose values for the left choices are in `left`."""
        for table in row.joint:
            own, left = left[:, : table.width], left[:, table.width :]
            if table.width > 1 and result.dtype == np.float64:
                there = self.memory.rows.array()
                np.take(own, table.column[self.columns], axis=1, out=there, mode="clip")
                result += there
                self.memory.rows.back(there)
            else:
                result += own if table.width == 1 else own[:, table.column[self.columns]]
        return result

    def _product(self, left: Array, right: Array) -> Array:
        width, inner = right.shape[1], left.shape[1]
        result = (
            self.memory.rows.array() if left.dtype == np.float64 else np.empty((len(left), width), left.dtype)
        )
        if inner == 1:
            return np.multiply(left, right, out=result)
        # Larger products would use several threads, which wait for each other if other processes run.
        step = max(1, MOST // (inner * width))
        for i in range(0, len(left), step):
            np.matmul(left[i : i + step], right, out=result[i : i + step])
        return result

    def linear(self, linear: Linear) -> Array:
        """The exact value of a row times its scale (its type has room for that)."""
        index, scale = linear
        if index < 0:
            return scale
        return (
            self.row(index) if scale == 1 else self.memory.values.apply(np.multiply, self.row(index), scale)
        )

    def count(self, linear: Linear) -> Count:
        """Return the exact value of a row times its scale, with its bound."""
        index, scale = linear
        return Count(self.linear(linear), self.bound(index, scale) if index >= 0 else abs(scale))

    def bound(self, index: int, scale: int) -> int:
        """An upper bound of a row times a scale."""
        return self.rows[index].bound

    def floats(self, index: int) -> Array:
        value = self.row(index)
        return value if value.dtype == np.float64 else value.astype(np.float64)


@dataclass(frozen=True)
class LimitTable:
    """Whether some phases obey a limit, per combination of choices along the axes (by symbols) that decide
    it."""

    axes: tuple[tuple[str, ...], ...]
    kept: Array

    def at(self, block: Block) -> Array:
        """The same at each point of a block."""
        place: Array = 0
        for names, size in zip(self.axes, self.kept.shape, strict=True):
            place = place * size + block.digits[names]
        return self.kept.reshape(-1)[place]


class LimitTables:
    """Phases of limits that depend on few of a kernel's axes: one table serves all choices along the
    others."""

    def __init__(self, kernel: ArrayKernel) -> None:
        self.kernel = kernel
        self.points = math.prod(a.size for a in kernel.axes)
        self.found: dict[Limit, tuple[Limit, list[LimitTable]]] = {}

    def of(self, limit: Limit) -> tuple[Limit, list[LimitTable]]:
        """Tables of phases, and the limit with the remaining phases, whose tables would be nearly as large as
        the grid."""
        if limit not in self.found:
            groups: dict[tuple[int, ...], list[Phase]] = {}
            for phase in limit.phases:
                groups.setdefault(self._along(phase), []).append(phase)
            few = [along for along in groups if self._few(along)]
            tables = [self._table(replace(limit, phases=tuple(groups.pop(a))), a) for a in few]
            others = tuple(phase for phases in groups.values() for phase in phases)
            self.found[limit] = replace(limit, phases=others), tables
        return self.found[limit]

    def _along(self, phase: Phase) -> tuple[int, ...]:
        every = (x.row for x in (phase.whole, *(r[0] for r in phase.rounded)) if x.row >= 0)
        terms = (product for row in every for product, _ in self.kernel.forms.forms[row].terms)
        return tuple(sorted({i for product in terms for a in product for i in self.kernel.along(a)}))

    def _few(self, along: Sequence[int]) -> bool:
        size = math.prod(self.kernel.axes[i].size for i in along)
        return size * SHARED <= self.points and size <= TABLED

    def _table(self, limit: Limit, along: Sequence[int]) -> LimitTable:
        kernel, memory = self.kernel.over(along), BlockMemory()
        lines, kept = max(1, BLOCK // kernel.width), []
        for begin in range(0, kernel.height, lines):
            count = min(lines, kernel.height - begin)
            left = kernel.left(kernel.left_digits(begin, begin + count), count)
            block = Block(kernel.rows, left, slice(0, count), slice(0, kernel.width), memory)
            kept.append(np.array(np.broadcast_to(fits(limit, block), (count, kernel.width))))
        every = np.concatenate(kept).reshape([a.size for a in kernel.axes])
        return LimitTable(tuple(a.names for a in kernel.axes), every)


class Found:
    """Joules, seconds, and whether each limit is obeyed, broadcast against [left, right]; computed on
    demand."""

    def __init__(self, evaluator: Evaluator, block: Block) -> None:
        self.evaluator, self.block = evaluator, block

    @cached_property
    def latency(self) -> Array:
        return self.evaluator.latency(self.block)

    @cached_property
    def energy(self) -> Array:
        joules = worked_out(self.evaluator.costing.energy, self.block)
        leak, values = self.evaluator.costing.leak, self.block.memory.values
        if not leak:
            return joules
        return values.into(np.add, joules, values.apply(np.multiply, self.latency, leak))

    @property
    def sparse(self) -> Figures:
        """Figures on sparse data; only `sparse.found` has them."""
        raise InternalError("sparse figures are asked of a block that was made for dense data")

    @cached_property
    def fits(self) -> tuple[Array, ...]:
        return tuple(fits(limit, self.block) for limit in self.evaluator.costing.limits)


class Evaluator:
    """One architecture's costs, prepared: constants are added up once."""

    def __init__(self, costing: Costing) -> None:
        self.costing = costing

    def __call__(self, block: Block) -> Found:
        return Found(self, block)

    def latency(self, block: Block) -> Array:
        """Seconds: Einsums in sequence."""
        seconds: Array = 0.0
        for node in self.costing.latency:
            seconds = block.memory.values.into(np.add, seconds, worked_out(node, block))
        return seconds


def worked_out(node: Node, block: Block) -> Array:
    """Return the values of a cost, in an array that is not shared, or one number."""
    values = block.memory.values
    if isinstance(node, LinearForm):
        return _line(node, block)
    if isinstance(node, Present):
        return values.where(_present(node, block), worked_out(node.part, block))
    result: Array = 0.0
    for part in node.parts:
        value = worked_out(part, block)
        if isinstance(node, Total):
            result = values.into(np.add, result, value)
        else:
            result = _larger(result, value, values)
    return result


def _present(node: Present, block: Block) -> Array:
    index, scale = node.moved
    return scale > 0 if index < 0 else block.memory.masks.convert(np.greater, block.row(index), 0)


def _larger(a: Array, b: Array, values: Scratch) -> Array:
    if np.ndim(a) == 0 and np.ndim(b) == 0:
        return max(float(a), float(b))
    return values.into(np.maximum, a, b)


def _line(line: LinearForm, block: Block) -> Array:
    total: Array = None
    values = block.memory.values
    for index, weight in line.weights:
        part = values.apply(np.multiply, block.floats(index), weight)
        total = part if total is None else values.into(np.add, total, part)
    if total is None:
        return line.constant
    return values.into(np.add, total, line.constant) if line.constant else total


def need(phases: tuple[Phase, ...], block: Block) -> Array:
    """Return the largest phase (bits, or instances), exactly."""
    return largest_phase(phases, block).array


def largest_phase(phases: tuple[Phase, ...], block: Block) -> Count:
    """Return the largest phase, with its bound."""
    most = Count(0, 0)
    values = block.memory.values
    for phase in phases:
        total = block.count(phase.whole)
        for linear, denominator, times in phase.rounded:
            rounded = block.count(linear)
            held = values.apply(np.multiply, rounded.array, -1)
            held = values.into(np.floor_divide, held, denominator)
            held = values.into(np.multiply, held, -times)
            total = total.plus(Count(held, -(-rounded.bound // denominator) * times), values)
        most = most.or_larger(total, values)
    return most


def fits(limit: Limit, block: Block) -> Array:
    """True where no phase exceeds the limit."""
    if math.isinf(limit.have):
        return True
    have, masks = math.floor(limit.have), block.memory.masks
    result: Array = True
    if block.tables is not None:
        limit, tables = block.tables.of(limit)
        for table in tables:
            good = table.at(block)
            result = good if result is True else masks.into(np.logical_and, result, good)
    for phase in limit.phases:
        total = need((phase,), block)
        good = masks.convert(np.less_equal, total, have)
        block.memory.values.back(total)
        result = good if result is True else masks.into(np.logical_and, result, good)
    return result
