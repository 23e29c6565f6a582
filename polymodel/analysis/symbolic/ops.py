"""Integer arithmetic for atoms: on Python integers and on int64 arrays alike."""

from __future__ import annotations

from collections.abc import Sequence

from polymodel.analysis.symbolic.atoms import Table, Value


class Integers:
    """Python integers: never rounded, never too large."""

    def floordiv(self, a: int, b: int) -> int:
        return a // b

    def ceildiv(self, a: int, b: int) -> int:
        return -(-a // b)

    def least(self, a: int, b: int) -> int:
        return a if a < b else b

    def most(self, a: int, b: int) -> int:
        return a if a > b else b

    def above_zero(self, a: int) -> int:
        return a if a > 0 else 0

    def beyond(self, a: int, b: int) -> int:
        return a - b if a > b else 0

    def le(self, a: int, b: int) -> int:
        return int(a <= b)

    def positive(self, a: int) -> int:
        return int(a > 0)

    def counted(self, table: Table, sizes: Sequence[int]) -> int:
        return table.at(*map(int, sizes))


class Arrays:
    """int64 arrays (and integers among them), elementwise."""

    def __init__(self) -> None:
        import numpy

        self._np = numpy

    def floordiv(self, a: Value, b: Value) -> Value:
        return a // b

    def ceildiv(self, a: Value, b: Value) -> Value:
        return -(-a // b)

    def least(self, a: Value, b: Value) -> Value:
        return self._np.minimum(a, b)

    def most(self, a: Value, b: Value) -> Value:
        return self._np.maximum(a, b)

    def above_zero(self, a: Value) -> Value:
        return self._np.maximum(a, 0)

    def beyond(self, a: Value, b: Value) -> Value:
        return self._np.maximum(a - b, 0)

    def le(self, a: Value, b: Value) -> Value:
        return self._np.less_equal(a, b).astype(self._np.int64)

    def positive(self, a: Value) -> Value:
        return self._np.greater(a, 0).astype(self._np.int64)

    def counted(self, table: Table, sizes: Sequence[Value]) -> Value:
        return table.of(*sizes)


INTEGERS = Integers()
