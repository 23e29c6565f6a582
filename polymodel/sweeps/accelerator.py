"""Blocks of a sweep on an accelerator, through JAX: the points that are infeasible, and those that may be
kept.

The device computes a code for each point. It returns the number of points per code, and the positions of
points that may be kept; these are evaluated again on the host, so that kept points have the figures of any
other sweep.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from polymodel.errors import Diagnostic, InternalError, Refused, SpecError
from polymodel.frozen import dataclass
from polymodel.pareto import Archive
from polymodel.sweeps.blocks import Masks, conditions, count_left_out, keep_best
from polymodel.sweeps.grid import Grid
from polymodel.sweeps.kernel import ArrayKernel
from polymodel.sweeps.metrics import Block
from polymodel.sweeps.objectives import objective
from polymodel.sweeps.result_collector import ResultCollector
from polymodel.sweeps.scenario import Scenario, Variant
from polymodel.sweeps.scratch import BlockMemory
from polymodel.sweeps.sparse.rows import is_sparse
from polymodel.sweeps.staged import DeviceTables, Staged, TracedBlock, TracedMemory, Unsuited, plain
from polymodel.sweeps.work_units import Units

Array = Any
FEWEST = 2**26  # points of a variant from which on compiling pays off
POINTS = 2**28  # points of a unit of work
PIECE = 2**16  # points evaluated on the host at once
SAMPLED = 256  # lines from which points are sampled
SEEDS = 2**15  # points evaluated on the host first, spread over the grid: good ones prune more
MARKS = 8  # kept points with which the device compares all others
MANY = 2**17  # candidates of a launch; with more, some are evaluated first, and all are compared again
CODES = 2**24  # codes that are returned at once
ROOM = 0.5  # share of the device's memory that one launch may take
UNKNOWN = 2**32  # bytes assumed for the device's memory if it does not report it
# codes in addition to the numbers of reasons: feasible, candidate, not a point
FITS, HOPE, NONE = 253, 254, 255


def gpu() -> Any:
    """The device of `device="gpu"`. Raises SpecError if there is none."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # else JAX allocates most memory at once
    try:
        return jax.devices("gpu")[0]
    except RuntimeError:
        message = "device='gpu': JAX finds no GPU"
        remedy = 'leave it out, or install JAX for the GPU, e.g. pip install "jax[cuda13]"'
        raise SpecError([Diagnostic(message, remedy, "device", code="missing-device")]) from None


def run_accelerated(
    device: Any,
    block: Scenario,
    objectives: Sequence[str],
    grid: Grid,
    state: ResultCollector,
    units: Units,
    report: Callable[[], None],
) -> None:
    """Do all units of a block on a device.

    Raises Unsuited before anything is done, Outgrown, and Refused if the device fails.
    """
    with jax.enable_x64(True), jax.default_device(device), _failing():
        work = _DeviceBlock(device, block, objectives, grid, state)
        count_left_out(block, state, units)
        work.seed()
        lines = max(1, POINTS // block.kernel.width)
        for begin in range(0, block.kernel.height, lines):
            if not units.mine(state):
                continue
            work.lines(begin, min(begin + lines, block.kernel.height), units.look)
            report()


@contextmanager
def _failing() -> Iterator[None]:
    """Turns JAX's errors of a failing device, such as a lack of memory, into Refused."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        said = str(error).partition("\n")[0]
        remedy = "free its memory, or sweep without it; a store goes on from what it has"
        raise Refused(f"the accelerator failed: {said}", remedy, code="missing-device") from error


@dataclass(frozen=True)
class _Compiled:
    """The compiled functions of a block.

    `left`: from a first line; `codes`: of each variant; `counted`: counts of codes; `lines`: lines per
    launch.
    """

    lines: int
    left: Callable[..., Any]
    codes: tuple[Callable[..., Any], ...]
    counted: Callable[..., Any]


class _DeviceBlock:
    """One block on a device."""

    def __init__(
        self, device: Any, block: Scenario, objectives: Sequence[str], grid: Grid, state: ResultCollector
    ) -> None:
        self.device, self.block, self.objectives, self.state = device, block, objectives, state
        self.kernel, self.masks = block.kernel, Masks(block, grid)
        self._check()
        self.reasons: list[list[str]] = [[] for _ in block.variants]
        try:
            self.tables = DeviceTables(block, self.masks, _in_use(block, objectives))
        except Refused as reason:  # the tables would be too large
            raise Unsuited(reason.message) from None
        self.memory = BlockMemory()
        self.worst = inf, sys.maxsize  # of the best points found so far
        self.compiled = self._compile()

    def _check(self) -> None:
        if self.state.keep == "all" or is_sparse(self.objectives):
            raise Unsuited("all points are kept" if self.state.keep == "all" else "figures on sparse data")
        if self.block.legal < FEWEST:
            raise Unsuited(f"fewer than {FEWEST} points")
        if self.state.front.values.dtype == object or self.state.best.dtype == object:
            raise Unsuited("kept counts beyond 2^53")

    def _compile(self) -> _Compiled:
        """Compile the functions, for as many lines at a time as fit the device's memory."""
        lines = min(self.kernel.height, max(1, POINTS // self.kernel.width))
        self.on_device = jax.device_put(self.tables.arrays, self.device)
        while True:
            left = jax.jit(self.tables.left(lines)).lower(self.on_device, 0).compile()
            shapes = jax.eval_shape(self.tables.left(lines), self.on_device, 0)
            marks = np.full((len(self.objectives), MARKS), inf), np.zeros(MARKS, np.int64)
            codes = tuple(
                jax.jit(self._codes(k)).lower(self.on_device, shapes, 0, *marks, 0).compile()
                for k in range(len(self.block.variants))
            )
            taken = lines * self.kernel.width + max(map(_bytes, (left, *codes)))
            if taken <= self._room():
                return _Compiled(lines, left, codes, jax.jit(_counted, static_argnums=1))
            if lines == 1:
                raise Unsuited("it has no memory left")
            lines = max(1, min(lines // 2, int(lines * self._room() / taken)))

    def _room(self) -> float:
        """Return the number of bytes that one launch may use."""
        stats = self.device.memory_stats() or {}
        return ROOM * float(stats.get("bytes_limit", UNKNOWN) - stats.get("bytes_in_use", 0))

    def _codes(self, k: int) -> Callable[..., Any]:
        """The function that computes the code of each point of some lines under one variant."""
        variant, reasons = self.block.variants[k], self.reasons[k]

        def codes(arrays: Any, left: Any, end: Array, marks: Array, numbers: Array, zero: Array) -> Array:
            def staged(value: Array) -> Staged:
                return Staged(value, zero)

            rows = TracedBlock(self.kernel.rows, self.tables, arrays, left, staged, TracedMemory())
            found = variant.evaluator(rows)
            values = [plain(objective(o, found, rows, variant.costing)) for o in self.objectives]
            if any(np.dtype(jnp.result_type(v)) == np.int64 and np.ndim(v) for v in values):
                raise Unsuited("counts beyond 2^53 are compared")
            allowed, broken = self.tables.no_mapping(k, arrays, left, staged)
            checks = conditions(variant, found, allowed, broken)
            if len(checks) > FITS:
                raise Unsuited(f"{len(checks)} reasons")
            reasons[:] = [reason for reason, _, _ in checks]
            ids = left["ids"][:, None] + arrays["right_ids"][None, :] + variant.share
            worse = _worse(values if self.state.keep == "front" else values[:1], ids, marks, numbers)
            result = jnp.where(worse, np.uint8(FITS), np.uint8(HOPE))
            for i, (_, _, mask) in reversed(list(enumerate(checks))):
                if mask is not True:
                    result = jnp.where(plain(mask), result, np.uint8(i))
            return jnp.where((left["line"] < end)[:, None], result, np.uint8(NONE))

        return codes

    def _marks(self) -> tuple[Array, Array]:
        """Kept points [objectives, marks] and their numbers; points that they dominate are dropped on the
        device."""
        marks, numbers = np.full((len(self.objectives), MARKS), inf), np.zeros(MARKS, np.int64)
        if self.state.keep == "top":
            marks[0, 0], numbers[0] = min(self.worst, _worst(self.state))
            return marks, numbers
        front = self.state.front
        count = min(MARKS, len(front.ids))
        chosen = np.unique(np.linspace(0, len(front.ids) - 1, count).astype(np.int64))
        marks[:, : len(chosen)], numbers[: len(chosen)] = front.values[:, chosen], front.ids[chosen]
        return marks, numbers

    def lines(self, begin: int, end: int, look: Callable[[], None]) -> None:
        """Evaluate all points of some lines; the best go to the state."""
        for at in range(begin, end, self.compiled.lines):
            look()
            until = min(end, at + self.compiled.lines)
            left = self.compiled.left(self.on_device, at)
            counts: dict[str, int] = {}
            for k, v in enumerate(self.block.variants):
                codes, numbers, hopeful = self._coded(k, at, until, left)
                for i, reason in enumerate(self.reasons[k]):
                    counts[reason] = counts.get(reason, 0) + int(numbers[i])
                for line, column in _places(codes, hopeful):
                    self._keep(v, line + at, column)
            self.state.count((until - at) * self.kernel.width * len(self.block.variants), counts)

    def _coded(self, k: int, at: int, until: int, left: Any) -> tuple[Array, Array, Array]:
        """The codes of some lines under one variant, the points per reason, and the candidates per line.

        If there are many candidates, some are evaluated, and all are compared again.
        """
        reasons, few = len(self.reasons[k]), 0
        while True:
            codes = self.compiled.codes[k](self.on_device, left, until, *self._marks(), 0)
            numbers, hopeful = map(np.asarray, self.compiled.counted(codes, reasons))
            count, before = int(hopeful.sum()), few
            if count <= MANY or 0 < before < 2 * count:
                return codes, numbers, hopeful
            few = count
            every = np.flatnonzero(hopeful)
            some = every[np.unique(np.linspace(0, len(every) - 1, SAMPLED).astype(np.int64))]
            here = np.zeros_like(hopeful)
            here[some] = 1
            for line, column in _places(codes, here):
                drawn = np.unique(np.linspace(0, len(line) - 1, PIECE).astype(np.int64))
                self._sample(self.block.variants[k], self._choices(line[drawn] + at), column[drawn])

    def seed(self) -> None:
        """Evaluate points spread over the grid, which are not counted."""
        sizes = [a.size for a in self.kernel.axes]
        each = max(1, int(SEEDS ** (1 / len(sizes))))
        spread = [np.unique(np.linspace(0, n - 1, each).astype(np.int64)) for n in sizes]
        digits = [d.reshape(-1) for d in np.meshgrid(*spread, indexing="ij")]
        left, right = digits[: self.kernel.split], digits[self.kernel.split :]
        columns = np.ravel_multi_index(right, sizes[self.kernel.split :]) if right else np.zeros_like(left[0])
        for v in self.block.variants:
            self._sample(v, tuple(left), columns)

    def _sample(self, variant: Variant, digits: tuple[Array, ...], columns: Array) -> None:
        """Evaluate distinct points, which are not counted; kept ones are found again later."""
        if self.state.keep == "front":  # a point that is found twice is kept once
            self._evaluate(variant, digits, columns, self.state)
            return
        drawn = ResultCollector("top", Archive(len(self.objectives)), self.state.top, sys.maxsize)
        self._evaluate(variant, digits, columns, drawn)
        self.worst = min(self.worst, _worst(drawn))

    def _choices(self, lines: Array) -> tuple[Array, ...]:
        """The choices along the left axes of some lines."""
        return tuple(np.unravel_index(lines, self.kernel.left_shape)) if self.kernel.split else ()

    def _keep(self, variant: Variant, lines: Array, columns: Array) -> None:
        """Evaluate points that the device found feasible. Raises InternalError if one is not."""
        for i in range(0, len(lines), PIECE):
            piece = slice(i, i + PIECE)
            if any(self._evaluate(variant, self._choices(lines[piece]), columns[piece], self.state).values()):
                raise InternalError("the accelerator returned a point as feasible that is not")

    def _evaluate(
        self, variant: Variant, digits: tuple[Array, ...], columns: Array, state: ResultCollector
    ) -> dict[str, int]:
        """Evaluate single points and keep the best; returns the number of infeasible ones by reason."""
        kernel, count = self.kernel, len(columns)
        right = tuple(d[columns] for d in kernel.right_digits)
        placed = {a.names: d[:, None] for a, d in zip(kernel.axes, (*digits, *right), strict=True)}
        rows = SinglePoints(kernel, digits, columns, self.memory)
        numbers = kernel.left_ids(digits, count) + kernel.right_ids[columns] + self.block.first
        counts: dict[str, int] = {}
        no_mapping = self.masks.of(variant, placed)
        ids = numbers, np.zeros(1, np.int64)
        keep_best(variant, rows, (count, 1), no_mapping, self.objectives, state, ids, counts)
        return counts


class SinglePoints(Block):
    """Rows [n, 1] of single points of a kernel."""

    def __init__(
        self, kernel: ArrayKernel, digits: tuple[Array, ...], columns: Array, memory: BlockMemory
    ) -> None:
        super().__init__(kernel.rows, (), slice(0, len(columns)), slice(0, 1), memory)
        self.kernel, self.chosen = kernel, (digits, columns)

    def row(self, index: int) -> Array:
        if index not in self.found:
            self.found[index] = self.kernel.at(index, *self.chosen)
        return self.found[index]


def _worse(values: Sequence[Array], ids: Array, marks: Array, numbers: Array) -> Array:
    """Whether a mark dominates a point: never above it, and below it in some objective or of a lower
    number."""
    result: Array = False
    for k in range(MARKS):
        least, more = True, ids > numbers[k]
        for value, mark in zip(values, marks[:, k], strict=False):
            least, more = least & (value >= mark), more | (value > mark)
        result = result | (least & more)
    return result


def _bytes(compiled: Any) -> int:
    """Bytes that a compiled function takes besides its arguments, as far as known."""
    usage = compiled.memory_analysis()
    return int(usage.temp_size_in_bytes + usage.output_size_in_bytes) if usage is not None else 0


def _worst(state: ResultCollector) -> tuple[float, int]:
    """The value and number of the last of the `top` points, if there are as many."""
    full = len(state.best) >= state.top
    return (float(state.best[-1]), int(state.ids[0][-1])) if full else (inf, sys.maxsize)


def _counted(codes: Array, reasons: int) -> tuple[Array, Array]:
    """The number of points per reason, and of candidates per line."""
    return jnp.stack([(codes == i).sum() for i in range(reasons)]), (codes == HOPE).sum(axis=1)


def _places(codes: Array, hopeful: Array) -> Iterator[tuple[Array, Array]]:
    """Lines and columns of candidates, some lines at a time."""
    every = np.flatnonzero(hopeful)
    step = max(1, CODES // codes.shape[1])
    for i in range(0, len(every), step):
        some = every[i : i + step]
        padded = np.resize(some, 1 << (len(some) - 1).bit_length())  # few shapes, each compiled once
        line, column = np.nonzero(np.asarray(codes[padded])[: len(some)] == HOPE)
        yield some[line], column


def _in_use(block: Scenario, objectives: Sequence[str]) -> list[int]:
    """The rows that objectives and limits depend on."""
    kernel, first = block.kernel, slice(0, 1)
    digits = kernel.left_digits(0, 1)
    used: set[int] = set()
    for v in block.variants:
        rows = Block(kernel.rows, kernel.left(digits, 1), first, first, None, kernel.placed(digits, first))
        found = v.evaluator(rows)
        for name in objectives:
            objective(name, found, rows, v.costing)
        assert len(found.fits) == len(v.costing.limits)
        used |= rows.found.keys()
    return sorted(used)
