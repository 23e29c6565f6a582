"""The pattern of two operands: given tensors, or a second one made from the first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.sparse.tensor import SparseTensor
from polymodel.tiling.pattern import Flags, Index, Ints, Pattern

_NUMBERED = 2**62


@dataclass(frozen=True)
class Rolled:
    """B is A with its rows moved down by `rows`, those that fall off the end coming back at the top."""

    rows: int = 5


@dataclass(frozen=True)
class Transposed:
    """B is A with its two ranks exchanged; A must be square."""


@dataclass(frozen=True)
class Alone:
    """There is no B: tiles of one operand."""


Second = SparseTensor | Rolled | Transposed | Alone


def pattern_of(a: SparseTensor, second: Second | None = None) -> Pattern:
    """The places that two matrices hold; `second` is a tensor of A's shape, or how B is made of A.

    Without it B is A with its rows rolled by 5, as in the evaluation of Tiler-Swift.
    """
    given = Rolled() if second is None else second
    if len(a.ranks) != 2:
        raise Refused(f"{a.name} has {len(a.ranks)} ranks; two are cut")
    b, how = _second(a, given)
    if b.shape != a.shape:
        fault = f"{b.name} has the shape {list(b.shape)}, {a.name} {list(a.shape)}"
        raise SpecError([Diagnostic(fault, "element-wise operands have one shape")])
    return _joined(a, b.coords, how)


def _second(a: SparseTensor, given: Second) -> tuple[SparseTensor, str]:
    if isinstance(given, SparseTensor):
        return given, given.name
    if isinstance(given, Alone):
        return _like(a, a.coords[:, :0]), "nothing"
    if isinstance(given, Transposed):
        return _like(a, a.coords[::-1][:, np.lexsort(a.coords)], a.shape[::-1]), f"{a.name} transposed"
    return _like(a, _rolled(a, given.rows)), f"{a.name}, rows rolled by {given.rows}"


def _like(a: SparseTensor, coords: Ints, shape: tuple[int, ...] | None = None) -> SparseTensor:
    """A pattern: coordinates in order, values all 1."""
    return SparseTensor(a.name, a.ranks, shape or a.shape, coords, np.ones(coords.shape[1], dtype=np.int8))


def _rolled(a: SparseTensor, by: int) -> Ints:
    """Coordinates of A rolled along its rows; the rows that wrap around come first, so order is kept."""
    height, by = a.shape[0], by % a.shape[0]
    wrapped = int(np.searchsorted(a.coords[0], height - by))
    coords = np.concatenate([a.coords[:, wrapped:], a.coords[:, :wrapped]], axis=1)
    coords[0] += by
    coords[0, : a.nnz - wrapped] -= height
    return coords


def _joined(a: SparseTensor, second: Ints, how: str) -> Pattern:
    rows, cols = a.shape
    if rows * cols >= _NUMBERED:
        raise Refused(f"{a.name} has {rows} x {cols} places, more than 62 bits can number")
    ours, theirs = (_numbers(c, cols) for c in (a.coords, second))
    numbers, in_a, in_b = _merged(ours, theirs)
    kind = np.int32 if max(a.shape) < 2**31 else np.int64
    at = (numbers // cols).astype(kind)
    across = (numbers - at.astype(np.int64) * cols).astype(kind)
    return Pattern(a.name, how, (a.ranks[0], a.ranks[1]), (rows, cols), at, across, in_a, in_b)


def _numbers(coords: Ints, cols: int) -> Ints:
    found: Ints = coords[0] * cols + coords[1]
    return found


def _merged(ours: Ints, theirs: Ints) -> tuple[Index, Flags, Flags]:
    """The union of two ascending lists, and who holds each number."""
    both = np.concatenate([ours * 2, theirs * 2 + 1])
    both.sort(kind="stable")  # two runs: merged in linear time
    is_b = (both & 1).astype(np.bool_)
    both >>= 1
    first = np.ones(both.size, dtype=np.bool_)
    np.not_equal(both[1:], both[:-1], out=first[1:])
    met = np.zeros(both.size, dtype=np.bool_)
    met[:-1] = ~first[1:]  # A's number stands before B's equal one
    in_a, in_b = ~is_b, is_b | met
    return both[first], in_a[first], in_b[first]
