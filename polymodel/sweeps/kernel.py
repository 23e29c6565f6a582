"""Forms over a grid as small matrix products: left axes times right axes, exact by a proven bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from polymodel.analysis.symbolic.atoms import INTEGERS, ArrayOps
from polymodel.analysis.symbolic.forms import Factor, Form
from polymodel.errors import Refused
from polymodel.frozen import dataclass
from polymodel.integers import TOLD_APART, dtype_of
from polymodel.sweeps.axes import SymbolAxis
from polymodel.sweeps.plan import FormRows
from polymodel.sweeps.values import MAX_CHOICES

Array = Any
Key = tuple[tuple[int, frozenset[Factor] | tuple[Factor, ...]], ...]
RIGHT = 4096  # points of the right half: repeatedly read values stay in the cache
BLOCK = 65536  # points of one block
LARGE = 2**31  # tile sizes from which on atoms are computed in Python integers


@dataclass(frozen=True)
class JointTable:
    """Values that depend on several axes jointly, [choices of left axes, choices of right axes].

    `left`: the left axes; `column`: for each right point its choice along the right axes.
    """

    left: tuple[int, ...]
    values: Array
    column: Array

    @property
    def width(self) -> int:
        return int(self.values.shape[1])


@dataclass(frozen=True)
class KernelRow:
    """One form as a product: value[l, r] = sum over k of (sum of coefficient * left factor)[l] * right[k, r].

    The values of each joint table are added. `flat`: it depends on the left half alone. `bound`: no value
    exceeds it, with any scale that it is used with; float64 below 2^53, int64 below 2^62, otherwise Python
    integers.
    """

    groups: tuple[tuple[tuple[int, Key], ...], ...]
    right: Array
    dtype: Any
    flat: bool
    bound: int
    joint: tuple[JointTable, ...] = ()


class OnDemand(Sequence[Any]):
    """Entries that are made on first access, since not all rows of a block are used."""

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
    """Values of many forms at many points; `notes` says where float64 could not be proven exact."""

    def __init__(
        self,
        axes: Sequence[SymbolAxis],
        rows: FormRows,
        fixed: Mapping[str, int],
        known: dict[Factor, Array] | None = None,
    ) -> None:
        # long axes go to the left half, of which only a piece is tabulated at a time
        self.axes = sorted(axes, key=lambda a: -a.size)
        self.forms, self.fixed = rows, fixed
        self.spans: dict[Factor, tuple[int, ...]] = {}
        self.known: dict[Factor, Array] = {} if known is None else known
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
        """The choice along each left axis for the left combinations start..stop."""
        return tuple(np.unravel_index(np.arange(start, stop), self.left_shape)) if self.left_shape else ()

    def placed(self, digits: tuple[Array, ...], columns: slice) -> dict[tuple[str, ...], Array]:
        """The choice along each axis (by its symbols) in a block, broadcast against [left, right]."""
        left, right = self.axes[: self.split], self.axes[self.split :]
        result = {axis.names: d[:, None] for axis, d in zip(left, digits, strict=True)}
        pairs = zip(right, self.right_digits, strict=True)
        return result | {axis.names: d[columns][None, :] for axis, d in pairs}

    def left_ids(self, digits: tuple[Array, ...], count: int) -> Array:
        ids = np.zeros(count, np.int64)
        for axis, d in zip(self.axes, digits, strict=False):
            ids += axis.ids[d]
        return ids

    def along(self, a: Factor) -> tuple[int, ...]:
        """The axes that an atom depends on."""
        if a not in self.spans:
            here = (i for i, axis in enumerate(self.axes) if a.symbols & axis.columns.keys())
            self.spans[a] = tuple(here)
        return self.spans[a]

    def over(self, axes: Sequence[int]) -> ArrayKernel:
        """The kernel of some of the axes, for forms that depend on no others, with the same cached atoms."""
        return ArrayKernel([self.axes[i] for i in axes], self.forms, self.fixed, self.known)

    def is_joint(self, form: Form) -> bool:
        """Whether a factor of a form depends on several axes."""
        return any(len(self.along(a)) > 1 for product, _ in form.terms for a in product)

    def atom(self, a: Factor) -> tuple[int, Array]:
        """(axis, values along it) of an atom of one axis; axis -1 for a number."""
        place = next(iter(self.along(a)), -1)
        if a not in self.known:
            found: Array
            if place < 0:
                found = int(a.value(INTEGERS, {s: self.fixed[s] for s in a.symbols}))
            else:
                found = self._tabulated(a, self.axes[place].columns, self.axes[place].size)
            self.known[a] = found
        return place, self.known[a]

    def _tabulated(self, a: Factor, columns: Mapping[str, Any], count: int) -> Array:
        """The values of an atom for `count` choices of the symbols in the columns."""
        values = {s: columns.get(s, self.fixed.get(s)) for s in a.symbols}
        most = max(int(np.max(values[s] if isinstance(s, str) else s)) for s in a.sizes)
        if most < LARGE:
            return np.broadcast_to(a.value(ArrayOps(), values), (count,))
        result = np.empty(count, object)
        for i in range(count):
            at = {s: int(v[i]) if isinstance(v, np.ndarray) else int(v) for s, v in values.items()}
            result[i] = int(a.value(INTEGERS, at))
        return result

    def factor(self, axis: int, atoms: tuple[Factor, ...]) -> Array:
        """The product of some atoms along one axis, in Python integers where int64 may overflow."""
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
        joint: dict[tuple[int, ...], list[Array]] = {}
        bound = 0
        for product, coefficient in form.terms:
            if any(len(self.along(a)) > 1 for a in product):
                places = tuple(sorted({i for a in product for i in self.along(a)}))
                joint.setdefault(places, []).append(self._together(product, places, coefficient))
                bound += int(np.max(np.abs(joint[places][-1])))
                continue
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
        tables = tuple(self._joint(p, sum(x.astype(dtype) for x in parts)) for p, parts in joint.items())
        flat = set(right) <= {()} and not any(t.width > 1 for t in tables)
        stacked = np.stack([self._right(k, dtype) for k in right]) if right else np.zeros((1, 1), dtype)
        groups = tuple(tuple(g) for g in right.values()) or ((),)
        return KernelRow(groups, stacked, dtype, flat, bound, tables)

    def _together(self, atoms: Sequence[Factor], places: tuple[int, ...], coefficient: int) -> Array:
        """A coefficient times some atoms, for each combination of choices along some axes."""
        shape = tuple(self.axes[i].size for i in places)
        if math.prod(shape) > MAX_CHOICES:
            names = ", ".join(n for i in places for n in self.axes[i].names)
            message = f"{names} have {math.prod(shape)} combinations, which are counted together"
            remedy = f"give them fewer values: at most {MAX_CHOICES} combinations"
            raise Refused(message, remedy, code="too-large")
        factors: list[Array] = []
        for a in atoms:
            own = self.along(a)
            values = self._of_several(a, own) if len(own) > 1 else self.atom(a)[1]
            sizes = [self.axes[i].size if i in own else 1 for i in places]
            factors.append(np.reshape(values, sizes))
        wide = abs(coefficient) * math.prod(int(np.max(np.abs(f))) for f in factors) >= 2**62
        result: Array = coefficient
        for factor in factors:
            result = result * (factor.astype(object) if wide else factor)
        return np.broadcast_to(result, shape)

    def _of_several(self, a: Factor, own: tuple[int, ...]) -> Array:
        """The values of an atom for each combination of choices along its axes."""
        sizes = [self.axes[i].size for i in own]
        digits = np.unravel_index(np.arange(math.prod(sizes)), sizes)
        columns = {n: c[d] for i, d in zip(own, digits, strict=True) for n, c in self.axes[i].columns.items()}
        return self._tabulated(a, columns, math.prod(sizes))

    def _joint(self, places: tuple[int, ...], table: Array) -> JointTable:
        left = tuple(i for i in places if i < self.split)
        right = tuple(i for i in places if i >= self.split)
        sizes = tuple(self.axes[i].size for i in right)
        column = np.zeros(self.width, np.int64)
        for i, size in zip(right, sizes, strict=True):
            column = column * size + self.right_digits[i - self.split]
        return JointTable(left, np.ascontiguousarray(table.reshape(-1, math.prod(sizes))), column)

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
            result = self._groups(row, digits, count, products)
            if not row.joint:
                return result
            tables = (t.values[self._chosen(t, digits, count)] for t in row.joint)
            return np.concatenate([result, *tables], axis=1)

        return OnDemand(len(self.rows), made)

    def _groups(
        self,
        row: KernelRow,
        digits: tuple[Array, ...],
        count: int,
        products: dict[tuple[Key, Any], Array],
    ) -> Array:
        """The left matrix [count, k] of a row, without its joint tables."""
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

    def at(self, index: int, digits: tuple[Array, ...], columns: Array) -> Array:
        """A row [n, 1] at single points, given by choices along the left axes and right combinations."""
        row, count = self.rows[index], len(columns)
        left, right = self._groups(row, digits, count, {}), row.right
        result = (left * (right[:, columns].T if right.shape[1] > 1 else right.T)).sum(axis=1)
        for t in row.joint:
            result = result + t.values[self._chosen(t, digits, count), t.column[columns]]
        return result[:, None]

    def _chosen(self, table: JointTable, digits: tuple[Array, ...], count: int) -> Array:
        """The left choice of a joint table for each left combination."""
        result = np.zeros(count, np.int64)
        for i in table.left:
            result = result * self.axes[i].size + digits[i]
        return result
