"""Values of Einsums on sparse data: only iterations in which no operand that stops operations is absent.

The operator decides what an absent operand stops: zero stops a product, infinity a sum of which the minimum
is taken. Iterations are found by joining the coordinates of these operands; all other tensors are arrays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from polymodel import governor
from polymodel.arithmetic import Affine
from polymodel.errors import Refused
from polymodel.workload.einsum import Einsum, TensorAccess

Array = NDArray[Any]
Ints = NDArray[np.int64]
BLOCK = 4_000_000  # values worked on at a time
MOST_ROWS = 200_000_000


class SparseInput(Protocol):
    """A sparse tensor: coordinates, one row per rank, and values."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def coords(self) -> Ints: ...

    @property
    def values(self) -> Array: ...


@dataclass(frozen=True)
class Iterations:
    """Some iterations of an Einsum: values of rank variables, and the entry that each joined access reads."""

    columns: Mapping[str, Ints]
    entries: Mapping[TensorAccess, Ints]

    @property
    def rows(self) -> int:
        return next((c.size for c in (*self.columns.values(), *self.entries.values())), 0)

    def taken(self, kept: Array) -> Iterations:
        return Iterations(
            {v: c[kept] for v, c in self.columns.items()}, {a: n[kept] for a, n in self.entries.items()}
        )


def is_joined(access: TensorAccess) -> bool:
    """Whether each coordinate of the tensor gives the value of at most one rank variable."""
    return all(len(x.terms) <= 1 for x in access.projection)


def joined(
    e: Einsum, tensors: Mapping[str, SparseInput], stops: list[TensorAccess], fixed: Mapping[str, int]
) -> Iterations:
    """Return the iterations in which all these operands have an entry, inside the Einsum's space."""
    found: Iterations | None = None
    for access in stops:
        one = _read(e, access, tensors[access.tensor], fixed)
        found = one if found is None else _met(found, one, e.name)
    assert found is not None, "asked where some operand stops operations"
    inside: Array = np.ones(found.rows, dtype=bool)
    known: dict[str, Any] = {**fixed, **found.columns}
    for c in e.constraints:
        if not set(c.expr.variables) <= known.keys():
            continue
        value = _at(c.expr, known)
        inside &= value >= 0 if c.kind == "ge" else value == 0 if c.kind == "eq" else value % c.modulus == 0
    return found if inside.all() else found.taken(inside)


def _at(expr: Affine, known: Mapping[str, Any]) -> Any:
    value: Any = expr.constant
    for v, k in expr.terms:
        value = value + k * known[v]
    return value


def _read(e: Einsum, access: TensorAccess, tensor: SparseInput, fixed: Mapping[str, int]) -> Iterations:
    """Return the iterations that read an entry of one tensor, restricted to its rank variables."""
    kept: Array = np.ones(tensor.values.size, dtype=bool)
    columns: dict[str, Ints] = {}
    for expr, coord in zip(access.projection, tensor.coords, strict=True):
        ((v, k),) = expr.terms or (("", 0),)
        if not v or v in fixed:
            kept &= coord == _at(expr, fixed)
            continue
        value, rest = np.divmod(coord - expr.constant, k)
        kept &= rest == 0
        if v in columns:
            kept &= columns[v] == value
        columns[v] = value
    for v, value in columns.items():
        low, high = e.bound(v)
        kept &= (value >= low) & (value <= high)
    rows = np.arange(tensor.values.size, dtype=np.int64)
    return Iterations({v: c[kept] for v, c in columns.items()}, {access: rows[kept]})


def _met(one: Iterations, other: Iterations, name: str) -> Iterations:
    """Each pair of iterations that agree on the rank variables that both have."""
    shared = [v for v in one.columns if v in other.columns]
    first, second = _numbers([one.columns[v] for v in shared], [other.columns[v] for v in shared], one, other)
    order = np.argsort(second, kind="stable")
    begin = np.searchsorted(second[order], first, side="left")
    count = np.searchsorted(second[order], first, side="right") - begin
    total = int(count.sum())
    if total > MOST_ROWS:
        message = f"{name} has {total:,} operations with matching operands, more than are computed at once"
        raise Refused(message, code="too-large")
    left = np.repeat(np.arange(first.size), count)
    offset = np.arange(total) - np.repeat(np.cumsum(count) - count, count)
    right = order[np.repeat(begin, count) + offset]
    made, more = one.taken(left), other.taken(right)
    return Iterations({**made.columns, **more.columns}, {**made.entries, **more.entries})


def _numbers(
    columns: list[Ints], others: list[Ints], one: Iterations, other: Iterations
) -> tuple[Ints, Ints]:
    """A number for each row of either table, equal where all columns are."""
    first, second = np.zeros(one.rows, dtype=np.int64), np.zeros(other.rows, dtype=np.int64)
    for a, b in zip(columns, others, strict=True):
        both = np.concatenate([a, b])
        _, place = np.unique(both, return_inverse=True)
        span = int(place.max(initial=0)) + 1
        _, whole = np.unique(np.concatenate([first, second]) * span + place, return_inverse=True)
        first, second = whole[: first.size], whole[first.size :]
    return first, second


def blocks(found: Iterations, width: int) -> Iterator[Iterations]:
    """Parts of the iterations, each of at most BLOCK values, `width` of them per iteration."""
    step = max(BLOCK // max(width, 1), 1)
    for begin in range(0, found.rows, step):
        governor.tick("values on sparse data")
        yield found if step >= found.rows else found.taken(np.arange(begin, min(begin + step, found.rows)))


def grouped(reducer: np.ufunc, places: Ints, values: Array) -> tuple[Ints, Array, Ints]:
    """Combine values of equal coordinates along the first axis; return the coordinates, ascending, and the
    number of values of each."""
    order = None if bool((places[1:] >= places[:-1]).all()) else np.argsort(places, kind="stable")
    if order is not None:
        places, values = places[order], values[order]
    new = np.ones(places.size, dtype=bool)
    new[1:] = places[1:] != places[:-1]
    starts = np.flatnonzero(new)
    if not starts.size:
        return places, values, places
    return places[starts], reducer.reduceat(values, starts, axis=0), np.diff(np.append(starts, places.size))


def as_array(tensor: SparseInput, default: float) -> Array:
    """All points of a sparse tensor."""
    size = math.prod(tensor.shape)
    governor.charge(size * 8, "a sparse tensor whose sparsity ends", "use smaller ranks")
    result = np.full(tensor.shape, default, dtype=np.float64)
    result[tuple(tensor.coords)] = tensor.values
    return result
