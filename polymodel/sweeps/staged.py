"""Arrays of an accelerator in place of NumPy's, so that the cost rules are written once.

The array operations of `metrics`, `objectives` and `blocks` are recorded once, when JAX traces them, and
compiled. Floats equal NumPy's bit for bit: XLA would fuse a product and a sum into one operation that rounds
once, and may reorder operations. So each result passes an operation on its bits that changes nothing, which a
compiler cannot see through.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from polymodel.analysis.symbolic.forms import Factor
from polymodel.integers import SUMMED
from polymodel.sweeps.blocks import Masks
from polymodel.sweeps.kernel import KernelRow, Key
from polymodel.sweeps.metrics import Block
from polymodel.sweeps.scenario import Scenario, Variant
from polymodel.sweeps.scratch import BlockMemory, Scratch

Array = Any
TABLED = 2**24  # combinations of axes up to which a constraint is tabulated
ROUNDED = ("add", "subtract", "multiply", "divide")


class Unsuited(Exception):
    """Why a block is not suited for an accelerator."""


class Staged(np.lib.mixins.NDArrayOperatorsMixin):
    """An array that JAX traces, with the interface of a NumPy array.

    `zero`: an int64 of value 0 that is known only when the compiled code runs.
    """

    def __init__(self, value: Array, zero: Array) -> None:
        self.value, self.zero = value, zero

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.shape)

    @property
    def ndim(self) -> int:
        return int(self.value.ndim)

    @property
    def dtype(self) -> Any:
        return np.dtype(self.value.dtype)

    def astype(self, dtype: Any, copy: bool = True) -> Staged:
        if np.dtype(dtype) == object:
            raise Unsuited("counts beyond 2^62 are Python integers")
        return Staged(self.value.astype(dtype), self.zero)

    def __getitem__(self, places: Any) -> Staged:
        every = places if isinstance(places, tuple) else (places,)
        return Staged(self.value[tuple(plain(p) for p in every)], self.zero)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None) -> Any:
        if method != "__call__" or out is not None:
            return NotImplemented
        made: Callable[..., Array] = _quotient if ufunc is np.floor_divide else getattr(jnp, ufunc.__name__)
        result = made(*(self._operand(x) for x in inputs))
        if result.dtype == np.float64 and ufunc.__name__ in ROUNDED:
            bits = lax.bitcast_convert_type(result, jnp.int64) ^ self.zero
            result = lax.bitcast_convert_type(bits, jnp.float64)
        return Staged(result, self.zero)

    def __array_function__(
        self, function: Callable[..., Any], _: Any, inputs: Sequence[Any], options: Mapping[str, Any]
    ) -> Any:
        if function in (np.ndim, np.shape):
            return function(plain(inputs[0]))
        if function is not np.where or options:
            return NotImplemented
        return Staged(jnp.where(*(self._operand(x) for x in inputs)), self.zero)

    def _operand(self, x: Any) -> Any:
        if isinstance(x, int) and abs(x) >= SUMMED:
            if self.dtype != np.float64:
                raise Unsuited("a number beyond 2^62 is combined with counts")
            return float(x)
        return plain(x)


def plain(x: Any) -> Any:
    """The JAX array of a `Staged` value; any other value unchanged."""
    return x.value if isinstance(x, Staged) else x


def _quotient(a: Array, b: Array) -> Array:
    """The quotient of integers rounded down, also exact in float64 below 2^53."""
    if jnp.result_type(a, b) != np.float64:
        return jnp.floor_divide(a, b)
    guess = jnp.floor(a / b)
    rest = a - guess * b  # both are below 2^53, so that the guess is off by at most one
    return guess + jnp.where(rest >= b, 1.0, jnp.where(rest < 0, -1.0, 0.0))


class Unpooled(Scratch):
    """No reusable memory: traced arrays have none."""

    def clear(self, shape: tuple[int, ...]) -> None:
        self.shape, self.size, self.lent = shape, 0, {}

    def apply(self, operation: np.ufunc, a: Array, b: Array) -> Array:
        return operation(a, b)

    def into(self, operation: np.ufunc, a: Array, b: Array) -> Array:
        return operation(a, b)

    def where(self, mask: Array, value: Array) -> Array:
        return np.multiply(value, mask)

    def convert(self, operation: np.ufunc, value: Array, number: Array) -> Array:
        return operation(value, number)


class TracedMemory(BlockMemory):
    """The memory of a block that is traced."""

    def __init__(self) -> None:
        self.rows, self.values, self.masks = Unpooled(), Unpooled(), Unpooled(bool)


class TracedBlock(Block):
    """Rows of some lines, traced."""

    def __init__(
        self,
        rows: Sequence[KernelRow],
        tables: DeviceTables,
        arrays: Any,
        left: Any,
        staged: Callable[[Array], Array],
        memory: BlockMemory,
    ) -> None:
        super().__init__(rows, (), slice(0, 1), slice(0, 1), memory)
        self.on_device, self.arrays, self.left, self.staged = tables, arrays, left, staged

    def row(self, index: int) -> Array:
        if index not in self.found:
            self.found[index] = self.staged(self.on_device.row(index, self.arrays, self.left))
        return self.found[index]


class DeviceTables:
    """The tables on the device: factors along axes, right halves, joint tables, verdicts."""

    def __init__(self, block: Scenario, masks: Masks, used: Sequence[int]) -> None:
        self.block, self.kernel, self.used = block, block.kernel, used
        kernel = block.kernel
        self.places: dict[tuple[int, tuple[Factor, ...], Any], int] = {}  # of factors along one axis
        self.factors: list[Array] = []
        for i in used:
            row = kernel.rows[i]
            if row.dtype == object:
                raise Unsuited("counts beyond 2^62 are Python integers")
            for key in (key for group in row.groups for _, key in group):
                for axis, atoms in key:
                    self._add(axis, atoms, row.dtype)
        illegal = block.illegal
        self.arrays: dict[str, Any] = {
            "factors": self.factors,
            "right": {i: kernel.rows[i].right for i in used if not kernel.rows[i].flat},
            "joint": {i: [(t.values, t.column) for t in kernel.rows[i].joint] for i in used},
            "ids": [a.ids for a in kernel.axes[: kernel.split]],
            "right_ids": kernel.right_ids,
            "right_digits": list(kernel.right_digits),
            "classes": list(illegal.classes.values()) if illegal is not None else [],
            "verdicts": illegal.verdicts if illegal is not None else np.zeros(1, np.int64),
            "where": [self._where(masks, v) for v in block.variants],
        }
        self.where_axes = [self._axes_of(c) for c in masks.where]

    def _add(self, axis: int, atoms: Any, dtype: Any) -> None:
        key = axis, tuple(atoms), dtype
        if key not in self.places:
            self.places[key] = len(self.factors)
            self.factors.append(self.kernel.factor(axis, tuple(atoms)).astype(dtype))

    def _axes_of(self, constraint: Any) -> list[int]:
        """The axes whose symbols a constraint uses."""
        return [i for i, a in enumerate(self.kernel.axes) if a.columns.keys() & constraint.names]

    def _where(self, masks: Masks, variant: Variant) -> list[Array]:
        """Each constraint across axes, for all choices along these."""
        result = []
        for c in masks.where:
            places = self._axes_of(c)
            shape = tuple(self.kernel.axes[i].size for i in places)
            if prod(shape) > TABLED:
                raise Unsuited(f"where `{c.text}` ties axes of {prod(shape)} combinations")
            values: dict[str, Any] = {**self.block.fixed, **variant.given}
            for k, i in enumerate(places):
                wide = tuple(n if j == k else 1 for j, n in enumerate(shape))
                values |= {n: np.reshape(x, wide) for n, x in self.kernel.axes[i].columns.items()}
            result.append(np.broadcast_to(c.holds(values), shape).copy())
        return result

    def left(self, lines: int) -> Callable[..., Any]:
        """The function from a first line to the choices along the left axes and the left matrices of `lines`
        lines."""
        kernel = self.kernel

        def left(arrays: Any, begin: Array) -> Any:
            line = begin + jnp.arange(lines, dtype=np.int64)
            at = jnp.minimum(line, kernel.height - 1)
            digits: list[Array] = []
            for size in reversed(kernel.left_shape):
                digits.insert(0, at % size)
                at = at // size
            ids = jnp.full(lines, self.block.first, np.int64)
            for axis, d in zip(arrays["ids"], digits, strict=True):
                ids = ids + axis[d]
            groups = {}
            for i in self.used:
                row, columns = kernel.rows[i], []
                for group in row.groups:
                    total = jnp.zeros(lines, row.dtype)
                    for c, key in group:
                        total = total + self._product(key, row.dtype, arrays, digits, lines) * c
                    columns.append(total)
                groups[i] = columns
            return {"line": line, "digits": digits, "ids": ids, "groups": groups}

        return left

    def _product(self, key: Key, dtype: Any, arrays: Any, digits: Sequence[Array], lines: int) -> Array:
        value = jnp.ones(lines, dtype)
        for axis, atoms in key:
            value = value * arrays["factors"][self.places[axis, tuple(atoms), dtype]][digits[axis]]
        return value

    def row(self, index: int, arrays: Any, left: Any) -> Array:
        """The values [lines, width] of a row, [lines, 1] if it depends on the left half alone."""
        row = self.kernel.rows[index]
        total: Array = None
        for g, column in enumerate(left["groups"][index]):
            part = column[:, None] if row.flat else column[:, None] * arrays["right"][index][g][None, :]
            total = part if total is None else total + part
        for table, (values, column) in zip(row.joint, arrays["joint"][index], strict=True):
            chosen: Array = np.zeros(1, np.int64)
            for i in table.left:
                chosen = chosen * self.kernel.axes[i].size + left["digits"][i]
            chosen = chosen[:, None]
            part = values[chosen, column[None, :]] if table.width > 1 else values[chosen, 0]
            total = total + part
        return total

    def no_mapping(
        self, variant: int, arrays: Any, left: Any, staged: Callable[[Array], Array]
    ) -> tuple[Array, list[tuple[str, Array]]]:
        """The result of `Masks.of` for the points of some lines."""
        digits = [d[:, None] for d in left["digits"]] + [d[None, :] for d in arrays["right_digits"]]
        allowed: Array = True
        for places, table in zip(self.where_axes, arrays["where"][variant], strict=True):
            here = staged(table[tuple(digits[i] for i in places)])
            allowed = here if allowed is True else np.logical_and(allowed, here)
        illegal = self.block.illegal
        if illegal is None:
            return allowed, []
        classes = dict(zip(illegal.classes, map(staged, arrays["classes"]), strict=True))
        traced = replace(illegal, classes=classes, verdicts=staged(arrays["verdicts"]))
        placed = {a.names: staged(d) for a, d in zip(self.kernel.axes, digits, strict=True)}
        return allowed, list(traced.masks(placed))
