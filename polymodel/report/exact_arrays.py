"""Exact integers and fractions in numpy arrays: int64 where a bound proves that it suffices, else Python
integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from polymodel.frozen import dataclass

Array = Any
MOST = 2**63 - 1


class IntegerArray:
    """An array of integers (int64, or Python integers in an object array) and bounds of its values."""

    def __init__(self, array: Array, low: int, high: int) -> None:
        self.array, self.low, self.high = array, low, high

    @property
    def size(self) -> int:
        """The largest magnitude that the bounds allow."""
        return max(abs(self.low), abs(self.high))

    @property
    def constant(self) -> int | None:
        return self.low if self.low == self.high else None

    def tighten(self) -> IntegerArray:
        """The same with bounds that some elements reach, in int64 if they fit."""
        if not self.array.size:
            return IntegerArray(self.array.astype(np.int64), 0, 0)
        self.low, self.high = int(self.array.min()), int(self.array.max())
        if self.array.dtype == object and self.size <= MOST:
            self.array = self.array.astype(np.int64)
        return self


def whole(array: Array) -> IntegerArray:
    """An array of integers with its bounds."""
    return IntegerArray(array, 0, 0).tighten()


def constant(number: int) -> IntegerArray:
    """One integer."""
    kind = np.int64 if abs(number) <= MOST else object
    return IntegerArray(np.asarray(number, kind), number, number)


class Guard:
    """Operations on integer arrays that never overflow.

    `widest`: the largest bound that needed Python integers.
    """

    def __init__(self) -> None:
        self.widest = 0

    def _made(
        self,
        parts: tuple[IntegerArray, ...],
        bounds: Callable[..., tuple[int, int]],
        op: Callable[..., Array],
    ) -> IntegerArray:
        """`op` on the arrays; `bounds` gives those of the result from those of the parts."""
        low, high = bounds(*parts)
        if max(abs(low), abs(high)) > MOST:  # bounds may be loose: look at the values themselves
            low, high = bounds(*(p.tighten() for p in parts))
        arrays = [p.array for p in parts]
        if max(abs(low), abs(high)) > MOST:
            self.widest = max(self.widest, abs(low), abs(high))
            arrays = [a.astype(object) for a in arrays]
        return IntegerArray(np.asarray(op(*arrays)), low, high)

    def add(self, a: IntegerArray, b: IntegerArray) -> IntegerArray:
        return self._made((a, b), lambda x, y: (x.low + y.low, x.high + y.high), np.add)

    def times(self, a: IntegerArray, b: IntegerArray) -> IntegerArray:
        if a.constant == 1:
            return b
        if b.constant == 1:
            return a
        return self._made((a, b), _product, np.multiply)

    def negative(self, a: IntegerArray) -> IntegerArray:
        return self._made((a,), lambda x: (-x.high, -x.low), np.negative)

    def magnitude(self, a: IntegerArray) -> IntegerArray:
        return a if a.low >= 0 else self._made((a,), lambda x: (0, x.size), np.abs)

    def sign(self, a: IntegerArray) -> IntegerArray:
        return IntegerArray((a.array > 0).astype(np.int64) - (a.array < 0), -1, 1)

    def floordiv(self, a: IntegerArray, b: IntegerArray) -> IntegerArray:
        """Rounded down; b is positive."""
        if b.constant == 1:
            return a
        return self._made((a, b), lambda x, y: (min(x.low, 0), max(x.high, 0)), _floordiv)

    def remainder(self, a: IntegerArray, b: IntegerArray) -> IntegerArray:
        """With the sign of b, which is not 0."""
        return self._made((a, b), lambda x, y: (min(y.low, 0), max(y.high, 0)), _remainder)

    def select(self, where: Array, a: IntegerArray, b: IntegerArray) -> IntegerArray:
        """a where true, else b."""
        return self._made((a, b), _hull, lambda x, y: np.where(where, x, y))


def _hull(a: IntegerArray, b: IntegerArray) -> tuple[int, int]:
    return min(a.low, b.low), max(a.high, b.high)


def _product(a: IntegerArray, b: IntegerArray) -> tuple[int, int]:
    corners = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
    return min(corners), max(corners)


def _common(a: Array, b: Array) -> tuple[Array, Array]:
    """Both int64 or both Python integers: a value of b may lie beyond int64 where the result does not."""
    if a.dtype != b.dtype:
        return a.astype(object), b.astype(object)
    return a, b


def _floordiv(a: Array, b: Array) -> Array:
    a, b = _common(a, b)
    return a // b


def _remainder(a: Array, b: Array) -> Array:
    a, b = _common(a, b)
    return a % b


@dataclass(frozen=True)
class ExactRatio:
    """top / bottom with a positive bottom; `bad` is true where a divisor was 0 (None: nowhere)."""

    top: IntegerArray
    bottom: IntegerArray
    bad: Array | None = None


@dataclass(frozen=True)
class RoundedArray:
    """float64 values."""

    array: Array
    bad: Array | None = None


Value = ExactRatio | RoundedArray
ONE = constant(1)


def either(*masks: Array | None) -> Array | None:
    """Where any of the masks is true."""
    result: Array | None = None
    for m in masks:
        if m is not None:
            result = m if result is None else np.logical_or(result, m)
    return result


def floats(value: Value) -> Array:
    """The nearest float64 (of a quotient beyond 2^53, to a few units in the last place)."""
    if isinstance(value, RoundedArray):
        return value.array
    top = value.top.array.astype(np.float64)
    return top if value.bottom.constant == 1 else top / value.bottom.array.astype(np.float64)


class ExactArithmetic:
    """Arithmetic on `Value`: exact as long as no float takes part."""

    def __init__(self) -> None:
        self.whole = Guard()

    def add(self, a: Value, b: Value) -> Value:
        bad = either(a.bad, b.bad)
        if isinstance(a, RoundedArray) or isinstance(b, RoundedArray):
            return RoundedArray(np.asarray(floats(a) + floats(b)), bad)
        left, right, bottom = self._aligned(a, b)
        return ExactRatio(self.whole.add(left, right), bottom, bad)

    def times(self, a: Value, b: Value) -> Value:
        bad = either(a.bad, b.bad)
        if isinstance(a, RoundedArray) or isinstance(b, RoundedArray):
            return RoundedArray(np.asarray(floats(a) * floats(b)), bad)
        return ExactRatio(self.whole.times(a.top, b.top), self.whole.times(a.bottom, b.bottom), bad)

    def inverse(self, a: Value) -> Value:
        if isinstance(a, RoundedArray):
            zero = a.array == 0
            return RoundedArray(np.asarray(1 / np.where(zero, 1.0, a.array)), either(a.bad, zero))
        if a.top.low > 0:
            return ExactRatio(a.bottom, a.top, a.bad)
        zero = a.top.array == 0
        bottom = self.whole.magnitude(self.whole.select(zero, ONE, a.top))
        top = self.whole.times(self.whole.sign(a.top), a.bottom)
        return ExactRatio(top, bottom, either(a.bad, zero if zero.any() else None))

    def floor(self, a: ExactRatio) -> Value:
        return ExactRatio(self.whole.floordiv(a.top, a.bottom), ONE, a.bad)

    def ceiling(self, a: ExactRatio) -> Value:
        down = self.whole.floordiv(self.whole.negative(a.top), a.bottom)
        return ExactRatio(self.whole.negative(down), ONE, a.bad)

    def remainder(self, a: ExactRatio, b: ExactRatio) -> Value:
        """Like Python's: with the sign of b."""
        left, right, bottom = self._aligned(a, b)
        zero = right.array == 0
        safe = self.whole.select(zero, ONE, right)
        bad = either(a.bad, b.bad, zero if zero.any() else None)
        return ExactRatio(self.whole.remainder(left, safe), bottom, bad)

    def magnitude(self, a: Value) -> Value:
        if isinstance(a, RoundedArray):
            return RoundedArray(np.abs(a.array), a.bad)
        return ExactRatio(self.whole.magnitude(a.top), a.bottom, a.bad)

    def compared(self, op: Callable[[Array, Array], Array], a: Value, b: Value) -> tuple[Array, Array | None]:
        """Truth of a comparison, and where it has none."""
        bad = either(a.bad, b.bad)
        if isinstance(a, RoundedArray) or isinstance(b, RoundedArray):
            return op(floats(a), floats(b)), bad
        left, right, _ = self._aligned(a, b)
        return np.asarray(op(left.array, right.array), bool), bad

    def select(self, where: Array, a: Value, b: Value) -> Value:
        """a where true, else b; only the chosen one's faults count."""
        bad = None
        if a.bad is not None or b.bad is not None:
            bad = np.where(
                where, np.False_ if a.bad is None else a.bad, np.False_ if b.bad is None else b.bad
            )
        if isinstance(a, RoundedArray) or isinstance(b, RoundedArray):
            return RoundedArray(np.where(where, floats(a), floats(b)), bad)
        left, right, bottom = self._aligned(a, b)
        return ExactRatio(self.whole.select(where, left, right), bottom, bad)

    def _aligned(self, a: ExactRatio, b: ExactRatio) -> tuple[IntegerArray, IntegerArray, IntegerArray]:
        """Both tops over one bottom."""
        same = a.bottom.constant is not None and a.bottom.constant == b.bottom.constant
        if a.bottom is b.bottom or same:
            return a.top, b.top, a.bottom
        return (
            self.whole.times(a.top, b.bottom),
            self.whole.times(b.top, a.bottom),
            self.whole.times(a.bottom, b.bottom),
        )
