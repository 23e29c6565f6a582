"""Reusable memory for the arrays of a block of points.

Arrays of this size are returned to the system when freed, and come back page by page and zeroed: in a fresh
process that takes longer than the computation.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np

Array = Any


class Scratch:
    """Arrays of one type, and one shape at a time.

    An array stays valid until `clear`, or until it is returned by `back`.
    """

    def __init__(self, dtype: Any = np.float64, shape: Sequence[int] = ()) -> None:
        self.dtype = np.dtype(dtype)
        self.idle: list[Array] = []
        self.lent: dict[int, Array] = {}
        self.room = 0  # elements of each array; smaller blocks use a part
        self.clear(tuple(shape))

    def clear(self, shape: tuple[int, ...]) -> None:
        """Take back all arrays, and set the shape of further ones."""
        self.shape, self.size = shape, prod(shape)
        self.idle += (a.base for a in reversed(self.lent.values()))
        self.lent = {}
        if self.size > self.room:
            self.room, self.idle = self.size, []

    def array(self) -> Array:
        """An uninitialised array."""
        whole = self.idle.pop() if self.idle else np.empty(self.room, self.dtype)
        result = whole[: self.size].reshape(self.shape)
        self.lent[id(result)] = result
        return result

    def back(self, value: Array) -> None:
        """Take back an array that is no longer used; arrays from elsewhere are ignored."""
        if id(value) in self.lent:
            self.idle.append(self.lent.pop(id(value)).base)

    def apply(self, operation: np.ufunc, a: Array, b: Array) -> Array:
        """`operation(a, b)`, in an array from here if it fits."""
        if (self._like(a) and self._mixes(b)) or (self._like(b) and self._mixes(a)):
            return operation(a, b, out=self.array())
        return operation(a, b)

    def into(self, operation: np.ufunc, a: Array, b: Array) -> Array:
        """`operation(a, b)` for values that are no longer used: in place in one of them, if it is from
        here."""
        for mine, other in ((a, b), (b, a)):
            if id(mine) in self.lent and self._mixes(other):
                operation(a, b, out=mine)
                self.back(other)
                return mine
        return self.apply(operation, a, b)

    def where(self, mask: Array, value: Array) -> Array:
        """The value where the mask is True, otherwise 0; in place if it is from here."""
        if id(value) in self.lent and np.shape(mask) in (self.shape, ()):
            return np.multiply(value, mask, out=value)
        return np.multiply(value, mask) if np.ndim(value) else self.convert(np.multiply, mask, value)

    def convert(self, operation: np.ufunc, value: Array, number: Array) -> Array:
        """`operation(value, number)`, where the operation yields this type, such as a comparison."""
        if np.shape(value) == self.shape:
            return operation(value, number, out=self.array())
        return operation(value, number)

    def _like(self, value: Array) -> bool:
        return isinstance(value, np.ndarray) and value.shape == self.shape and value.dtype == self.dtype

    def _mixes(self, value: Array) -> bool:
        """True if an operation of the value with one of these arrays yields their type."""
        return not isinstance(value, np.ndarray) or value.dtype == self.dtype


class ScalarScratch(Scratch):
    """The same for one point, with numbers and Python's operations, which never overflow."""

    OPERATIONS: ClassVar[Mapping[np.ufunc, Callable[[Any, Any], Any]]] = {
        np.add: operator.add,
        np.multiply: operator.mul,
        np.floor_divide: operator.floordiv,
        np.maximum: max,
        np.less_equal: operator.le,
        np.greater: operator.gt,
        np.logical_and: operator.and_,
    }

    def clear(self, shape: tuple[int, ...]) -> None:
        """Nothing to take back."""

    def back(self, value: Array) -> None:
        """Nothing to take back."""

    def apply(self, operation: np.ufunc, a: Array, b: Array) -> Array:
        return self.OPERATIONS[operation](a, b)

    def into(self, operation: np.ufunc, a: Array, b: Array) -> Array:
        return self.OPERATIONS[operation](a, b)

    def convert(self, operation: np.ufunc, value: Array, number: Array) -> Array:
        return self.OPERATIONS[operation](value, number)

    def where(self, mask: Array, value: Array) -> Array:
        return value if mask else 0.0


class BlockMemory:
    """Memory of a block: `rows` for its rows, `values` and `masks` for one variant at a time."""

    def __init__(self, kind: type[Scratch] = Scratch) -> None:
        self.rows, self.values, self.masks = kind(), kind(), kind(bool)

    def block(self, shape: tuple[int, int]) -> None:
        """Begin a new block."""
        self.rows.clear(shape)
        self.variant(shape)

    def variant(self, shape: tuple[int, int]) -> None:
        """Begin a new variant of the same block."""
        self.values.clear(shape)
        self.masks.clear(shape)
