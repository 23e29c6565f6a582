"""Forms over a grid as small matrix products: left axes times right axes, exact by a proven bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from polymodel.analysis.symbolic.atoms import INTEGERS, ArrayOps
from polymodel.analysis.symbolic.forms import Factor, Form
from polymodel.integers import TOLD_APART, dtype_of
from polymodel.sweeps.axes import SymbolAxis
from polymodel.sweeps.plan import FormRows

Array = Any
Key = tuple[tuple[int, frozenset[Factor] | tuple[Factor, ...]], ...]
RIGHT = 4096  # points of the right half: what is read again and again stays in the cache
BLOCK = 65536  # points of one block
LARGE = 2**31  # tile sizes from here on: atoms are counted in Python integers


@dataclass(frozen=True)
class KernelRow:
    """One form's product: value[l, r] = sum over k of (sum of coefficient * left factor)[l] * right[k, r].

    `flat`: it depends on the left half alone. `bound`: no value is above it, under any scale that it is taken
    with; float64 below 2^53, int64 below 2^62, else Python integers.
    """

    groups: tuple[tuple[tuple[int, Key], ...], ...]
    right: Array
    dtype: Any
    flat: bool
    bound: int


class OnDemand(Sequence[Any]):
    """Entries that are made when they are first asked for: not all rows of a block are looked at."""

    def __init__(self, count: int, make: Callable[[int], Any]) -> None:
        self._made: list[Any] = [None] * count
        self._make = make

    def __len__(self) -> int:
        return len(self._made)

    def __getitem__(self, i: Any) -> Any:
        if self._made[i] is None:
            self._made[i] = self._make(i)
        return self._made[i]


class ArrayKernel:
    """Values of many forms at many points; `notes` tells where float64 could not be proven exact."""

    def __init__(self, axes: Sequence[SymbolAxis], rows: FormRows, fixed: Mapping[str, int]) -> None:
        # Long axes go left, where only a piece at a time is tabulated.
        self.axes = sorted(axes, key=lambda a: -a.size)
        self.fixed = fixed
        self.atoms: dict[Factor, tuple[int, Array]] = {}
        self.factors: dict[tuple[int, tuple[Factor, ...]], Array] = {}
        self.notes: list[str] = []
        split = len(self.axes)
        width = 1
        while split and width * self.axes[split - 1].size <= RIGHT:
            split -= 1
            width *= self.axes[split].size
        self.split, self.width = split, width
        self.height = math.prod(a.size for a in self.axes[:split])
        self.rows: Sequence[KernelRow] = OnDemand(
            len(rows.forms), lambda i: self._row(rows.forms[i], rows.scales[i])
        )

    @cached_property
    def left_shape(self) -> tuple[int, ...]:
        return tuple(a.size for a in self.axes[: self.split])

    @cached_property
    def right_digits(self) -> tuple[Array, ...]:
        shape = tuple(a.size for a in self.axes[self.split :])
        return tuple(np.unravel_index(np.arange(self.width), shape)) if shape else ()

    @cached_property
    def right_ids(self) -> Array:
        ids = np.zeros(self.width, np.int64)
        for axis, d in zip(self.axes[self.split :], self.right_digits, strict=True):
            ids += axis.ids[d]
        return ids

    def left_digits(self, start: int, stop: int) -> tuple[Array, ...]:
        """Choice along each left axis of the left combinations start..stop."""
        return tuple(np.unravel_index(np.arange(start, stop), self.left_shape)) if self.left_shape else ()

    def placed(self, digits: tuple[Array, ...], columns: slice) -> dict[tuple[str, ...], Array]:
        """Choice along each axis (by its symbols) of a block, broadcast against [left, right]."""
        left, right = self.axes[: self.split], self.axes[self.split :]
        result = {axis.names: d[:, None] for axis, d in zip(left, digits, strict=True)}
        pairs = zip(right, self.right_digits, strict=True)
        return result | {axis.names: d[columns][None, :] for axis, d in pairs}

    def left_ids(self, digits: tuple[Array, ...], count: int) -> Array:
        ids = np.zeros(count, np.int64)
        for axis, d in zip(self.axes, digits, strict=False):
            ids += axis.ids[d]
        return ids

    def atom(self, a: Factor) -> tuple[int, Array]:
        """(axis, values along it) of an atom; axis -1 for a number."""
        if a not in self.atoms:
            place = next((i for i, x in enumerate(self.axes) if a.symbols & x.columns.keys()), -1)
            columns = self.axes[place].columns if place >= 0 else {}
            values = {s: columns.get(s, self.fixed.get(s)) for s in a.symbols}
            most = max(int(np.max(values[s] if isinstance(s, str) else s)) for s in a.sizes)
            found: Array
            if place < 0:
                found = int(a.value(INTEGERS, values))
            elif most < LARGE:
                found = np.broadcast_to(a.value(ArrayOps(), values), (self.axes[place].size,))
            else:
                found = self._by_integers(a, values, self.axes[place].size)
            self.atoms[a] = place, found
        return self.atoms[a]

    def _by_integers(self, a: Factor, values: Mapping[str, Any], count: int) -> Array:
        result = np.empty(count, object)
        for i in range(count):
            at = {s: int(v[i]) if isinstance(v, np.ndarray) else int(v) for s, v in values.items()}
            result[i] = int(a.value(INTEGERS, at))
        return result

    def factor(self, axis: int, atoms: tuple[Factor, ...]) -> Array:
        """The product of some atoms along one axis, in Python integers where int64 may not do."""
        if (axis, atoms) not in self.factors:
            arrays = [self.atom(a)[1] for a in atoms]
            most = math.prod(int(np.max(np.abs(x))) for x in arrays)
            found = arrays[0] if most < 2**62 else arrays[0].astype(object)
            for x in arrays[1:]:
                found = found * x
            self.factors[axis, atoms] = found
        return self.factors[axis, atoms]

    def _row(self, form: Form, scale: int) -> KernelRow:
        terms: dict[tuple[Key, Key], int] = {}
        bound = 0
        for product, coefficient in form.terms:
            per_axis: dict[int, list[Factor]] = {}
            for a in product:
                place, found = self.atom(a)
                if place < 0:
                    coefficient *= found
                else:
                    per_axis.setdefault(place, []).append(a)
            key: Key = tuple((i, tuple(per_axis[i])) for i in sorted(per_axis))
            bound += abs(coefficient) * math.prod(
                int(np.max(np.abs(self.factor(i, tuple(atoms))))) for i, atoms in key
            )
            sides = tuple(k for k in key if k[0] < self.split), tuple(k for k in key if k[0] >= self.split)
            terms[sides] = terms.get(sides, 0) + coefficient
        bound *= scale
        dtype = np.dtype(np.float64) if bound < TOLD_APART else dtype_of(bound)
        if dtype != np.float64:
            kind = "int64" if dtype == np.int64 else "Python integers"
            self.notes.append(f"counts up to {bound:.3g} do not fit float64 exactly: {kind} used")
        right: dict[Key, list[tuple[int, Key]]] = {}
        for (left, key), c in terms.items():
            if c:
                right.setdefault(key, []).append((c, left))
        flat = set(right) <= {()}
        stacked = np.stack([self._right(k, dtype) for k in right]) if right else np.zeros((1, 1), dtype)
        return KernelRow(tuple(tuple(g) for g in right.values()) or ((),), stacked, dtype, flat, bound)

    def _right(self, key: Key, dtype: Any) -> Array:
        result = np.ones(self.width, dtype)
        for axis, atoms in key:
            column = self.factor(axis, tuple(atoms)).astype(dtype)
            result = result * column[self.right_digits[axis - self.split]]
        return result

    def left(self, digits: tuple[Array, ...], count: int) -> Sequence[Array]:
        """Left matrices [count, k] of every row."""
        products: dict[tuple[Key, Any], Array] = {}

        def made(i: int) -> Array:
            row = self.rows[i]
            result = np.zeros((count, len(row.groups)), row.dtype)
            for g, group in enumerate(row.groups):
                for c, key in group:
                    if (key, row.dtype) not in products:
                        value = np.ones(count, row.dtype)
                        for axis, atoms in key:
                            value = value * self.factor(axis, tuple(atoms)).astype(row.dtype)[digits[axis]]
                        products[key, row.dtype] = value
                    result[:, g] += c * products[key, row.dtype]
            return result

        return OnDemand(len(self.rows), made)
