"""Exact integers of any size: in numpy arrays, in columns of tables and files, and as floats in plots.

Counts are Python integers or arrays of them. An array is int64 only where a bound proves that no computed
value exceeds 64 bits, and otherwise an object array of Python integers; int64 would wrap around silently.
Figures become floats only in plots, seconds and joules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from importlib import import_module
from typing import TYPE_CHECKING, Any

from polymodel.libraries import Later

if TYPE_CHECKING:
    import pyarrow
    from numpy.typing import NDArray


# NumPy under its usual name. The modules that every evaluation loads take it from here.

if TYPE_CHECKING:
    import numpy

    np = numpy
else:
    np = Later(lambda: import_module("numpy"))


# Whole numbers in arrays, columns and files.

LONG = 2**63  # int64 holds what is smaller
TOLD_APART = 2**53  # float64 represents all smaller integers exactly
SUMMED = 2**62  # of two numbers below it, the sum and the difference fit int64
DIGITS = 38  # of the widest integers that parquet's readers share
WHOLE = {b"polymodel": b"integer"}  # marks a parquet column of integers that are written as text


def dtype_of(bound: int) -> Any:
    """The dtype of an array that stays within `bound` in magnitude: int64, or object for Python integers."""
    return np.dtype(np.int64) if bound < SUMMED else np.dtype(object)


def largest(values: Any) -> int:
    """The largest magnitude in an array of integers; 0 if it is empty."""
    array = np.asarray(values)
    return max(abs(int(array.max())), abs(int(array.min()))) if array.size else 0


def times(values: Any, factor: int) -> NDArray[Any]:
    """Every element of an array (or a number) `factor` times, in Python integers where int64 may not do."""
    # numpy returns a scalar for a zero-dimensional object array.
    array = values if isinstance(values, np.ndarray) else np.asarray(values, dtype=object)
    held = np.promote_types(array.dtype, dtype_of(max(largest(array), 1) * abs(factor)))
    return np.asarray(array.astype(held, copy=False) * factor, dtype=held)


def linear(constant: int, terms: Iterable[tuple[int, NDArray[Any]]], count: int) -> NDArray[Any]:
    """A constant and multiples of columns of `count` integers, in Python integers where int64 may not do."""
    listed = [(k, column) for k, column in terms if k]
    held = dtype_of(abs(constant) + sum(abs(k) * max(largest(column), 1) for k, column in listed))
    result = np.full(count, constant, dtype=held)
    for k, column in listed:
        result = result + k * column.astype(held, copy=False)
    return result


def summed(arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """The sum of arrays of one shape, in Python integers where int64 may not do."""
    held = dtype_of(sum(largest(a) for a in arrays))
    return np.asarray(np.sum([a.astype(held, copy=False) for a in arrays], axis=0), dtype=held)


def row_sums(table: NDArray[Any]) -> NDArray[Any]:
    """The sum of every row of a table, in Python integers where int64 may not do."""
    held = np.promote_types(table.dtype, dtype_of(largest(table) * max(table.shape[1], 1)))
    return np.asarray(table.astype(held, copy=False).sum(axis=1), dtype=held)


def distinct_numbers(values: NDArray[Any]) -> NDArray[Any]:
    """The distinct ones among numbers, in order. `np.unique` looks them up in a hash table before it sorts,
    which takes fifty times as long where most are distinct."""
    ordered = np.sort(values, axis=None)
    kept = np.ones(ordered.size, dtype=bool)
    kept[1:] = ordered[1:] != ordered[:-1]
    return np.asarray(ordered[kept])


def distinct_rows(table: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The distinct rows of a table in order, and which of them each row is; also of Python integers."""
    if table.dtype != object:
        rows, which = np.unique(table, axis=0, return_inverse=True)
        return rows, which.reshape(-1)
    numbers = [np.unique(column, return_inverse=True)[1].reshape(-1) for column in table.T]
    codes = np.stack(numbers, axis=1) if numbers else np.zeros((len(table), 0), np.int64)
    _, first, which = np.unique(codes, axis=0, return_index=True, return_inverse=True)
    return table[first], which.reshape(-1)


def floats(values: Any) -> NDArray[np.float64]:
    """The nearest float64 of every number, for pictures; of Python integers of any length too."""
    return np.asarray(values, dtype=object).astype(np.float64)


def in_order(values: Any) -> NDArray[np.float64]:
    """Numbers as float64 in the same order: themselves, or ranks of those too wide for it."""
    exact = np.asarray(values, dtype=object)
    result = exact.astype(np.float64)
    if not (np.abs(result) >= TOLD_APART).any() or not is_whole(exact.tolist()):
        return result
    return np.unique(exact, return_inverse=True)[1].reshape(exact.shape).astype(np.float64)


def distinguishable(rows: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Rows of integers or floats as one array: float64 if that tells the integers apart, else objects."""
    narrow = [_narrow(row) for row in rows]
    if all(row.dtype == np.float64 for row in narrow):
        return np.stack(narrow)
    return np.stack([row.astype(object) for row in narrow])


def as_text(values: NDArray[Any]) -> NDArray[Any]:
    """A column for a file: Python's integers and floats as the shortest text that gives them back; other
    arrays as they are."""
    return np.array([repr(v) for v in values.tolist()], object) if values.dtype == object else values


def from_text(values: NDArray[Any]) -> NDArray[Any]:
    """What `as_text` was given. ValueError for text that is not a number."""
    if values.dtype != object:
        return values
    result = np.empty(len(values), object)
    result[:] = [int(v) if v.lstrip("-").isdecimal() else float(v) for v in values.tolist()]
    return result


def _narrow(row: NDArray[Any]) -> NDArray[Any]:
    """Integers as float64 where that is exact."""
    if row.dtype == np.float64:
        return row
    if row.dtype == object and any(type(v) is float for v in row.tolist()):
        return row
    return row.astype(np.float64) if largest(row) < TOLD_APART else row


def is_whole(values: Sequence[object]) -> bool:
    """True if a column has integers, and beside them nothing but gaps."""
    present = [v for v in values if v is not None]
    return bool(present) and all(type(v) is int for v in present)


def arrow_column(values: Sequence[object]) -> tuple[pyarrow.Field, pyarrow.Array]:
    """A column for parquet, with a field to be named: integers beyond int64 as decimals of 38 digits and no
    fraction, beyond these as text that the field's metadata marks (`polymodel`: `integer`).

    Integers beside floats are floats, as the column is.
    """
    import pyarrow as pa

    if any(isinstance(v, float) for v in values):
        array = pa.array([float(v) if type(v) is int else v for v in values])
        return pa.field("", array.type), array
    most = max((abs(v) for v in values if type(v) is int), default=0)
    if most < LONG:
        array = pa.array(values)
    elif most < 10**DIGITS:
        array = pa.array([_decimal(v) for v in values], pa.decimal128(DIGITS, 0))
    else:
        array = pa.array([None if v is None else str(v) for v in values])
        return pa.field("", array.type, metadata=WHOLE), array
    return pa.field("", array.type), array


def _decimal(value: object) -> Decimal | None:
    return None if value is None else Decimal(str(value))


def is_text(field: pyarrow.Field) -> bool:
    """True if a parquet column has integers as marked text."""
    return bool(field.metadata) and all(field.metadata.get(k) == v for k, v in WHOLE.items())


def from_arrow(field: pyarrow.Field, values: list[Any]) -> list[Any]:
    """The Python values of a column as it was given to `arrow_column`."""
    import pyarrow as pa

    if pa.types.is_decimal(field.type) or is_text(field):
        return [None if v is None else int(v) for v in values]
    return values
