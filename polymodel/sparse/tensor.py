"""A sparse tensor as coordinates and values, the form that file readers produce and all sparse modules
use."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.frozen import dataclass
from polymodel.sparse.arguments import Arguments
from polymodel.spec.faults import as_number, check_classes, shown

if TYPE_CHECKING:
    import scipy.sparse

Ints = NDArray[np.int64]
# A dense copy above this many points is refused: it is never needed to count.
DENSE_POINTS = 10**8
# Points are numbered in 64 bits; a tensor may have more of them, then coordinates are compared rank by rank.
_NUMBERED = 2**63 - 1
_PIECE = 2**18


_PARTS: dict[str, type] = {
    "name": str,
    "ranks": tuple,
    "shape": tuple,
    "coords": np.ndarray,
    "values": np.ndarray,
}


@dataclass(frozen=True, eq=False)
class SparseTensor:
    """The nonzeros of one tensor.

    `ranks` and `shape`: one name and one size per rank, outermost first (rank 0: none). `coords`: one row per
    rank and one column per nonzero, in lexicographic order without repetition. `fill`: the value of all other
    points, which does not occur in `values`. It need not be zero; for a minimum over values it is infinity.
    Use `from_coo`, `from_dense` or `from_scipy` to make a tensor: they check, sum duplicates and drop entries
    equal to `fill`.
    """

    name: str
    ranks: tuple[str, ...]
    shape: tuple[int, ...]
    coords: Ints
    values: NDArray[Any]
    fill: float = 0.0

    def __post_init__(self) -> None:
        remedy = "pm.SparseTensor.from_coo(...) makes one of lists"
        check_classes(
            self,
            remedy,
            {"name": str, "ranks": tuple, "shape": tuple, "coords": np.ndarray, "values": np.ndarray},
        )

    @classmethod
    def from_coo(
        cls,
        name: str,
        ranks: Sequence[str],
        shape: Sequence[int],
        coords: ArrayLike,
        values: ArrayLike,
        *,
        fill: float = 0.0,
    ) -> SparseTensor:
        """Make a tensor from coordinates (ranks x entries) in any order; duplicates are summed, zeros
        dropped.

        With another `fill`, entries equal to it are dropped and zeros kept, and each point may occur only
        once. Raises SpecError for sizes below 1, coordinates outside the shape, and values that are not
        finite numbers.
        """
        read = Arguments()
        fill = _filled(read, fill)
        ranks = read.names("ranks", ranks)
        read.name("name", name)
        shape = read.sizes("shape", shape)
        points, data = read.array("coords", coords), read.array("values", values)
        read.raise_if_any()
        faults = _faults(name, tuple(ranks), tuple(shape), points, data, fill)
        if faults:
            raise SpecError(faults)
        columns = points.astype(np.int64, copy=False).reshape(len(tuple(ranks)), data.size)
        entries = data.size
        columns, data = ordered(columns, data, tuple(shape))
        if fill and data.size < entries:
            what = f"{name}: {entries - data.size:,} points occur more than once, and only zeros add nothing"
            raise SpecError([Diagnostic(what, "give each one value", "coords", code="duplicate-name")])
        kept = data != fill
        if not kept.all():
            columns, data = columns[:, kept], data[kept]
        columns, data = np.ascontiguousarray(columns), np.ascontiguousarray(data)
        for array in (columns, data):
            array.flags.writeable = False
        return cls(name, tuple(ranks), tuple(int(s) for s in shape), columns, data, fill)

    @classmethod
    def from_dense(
        cls, name: str, ranks: Sequence[str], dense: ArrayLike, *, fill: float = 0.0
    ) -> SparseTensor:
        """Make a tensor from an array with one axis per rank; values equal to `fill` are left out."""
        read = Arguments()
        fill = _filled(read, fill)
        ranks = read.names("ranks", ranks)
        read.name("name", name)
        array = read.array("dense", dense)
        read.raise_if_any()
        if array.ndim != len(tuple(ranks)):
            message = f"{name} has {len(tuple(ranks))} ranks, the array {array.ndim} axes"
            raise SpecError([Diagnostic(message, code="wrong-count")])
        where = (
            np.array(np.nonzero(array != fill), dtype=np.int64)
            if array.ndim
            else np.zeros((0, array.size), np.int64)
        )
        values = array[tuple(where)] if array.ndim else array.ravel()
        return cls.from_coo(name, ranks, array.shape, where, values, fill=fill)

    @classmethod
    def from_scipy(
        cls, name: str, ranks: Sequence[str], matrix: scipy.sparse.sparray, *, fill: float = 0.0
    ) -> SparseTensor:
        """Make a tensor from any SciPy sparse matrix or array: the entries that it stores, including explicit
        zeros if `fill` is not 0."""
        coo = matrix.tocoo()
        return cls.from_coo(name, ranks, coo.shape, np.array(coo.coords), coo.data, fill=fill)

    def __repr__(self) -> str:
        sizes = " x ".join(f"{r}={s}" for r, s in zip(self.ranks, self.shape, strict=True)) or "rank 0"
        what = "nonzeros" if not self.fill else f"points that are not {self.fill:g}"
        return f"SparseTensor({self.name}: {sizes}, {self.nnz:,} {what}, density {self.density:.3g})"

    @property
    def nnz(self) -> int:
        return int(self.values.size)

    @property
    def size(self) -> int:
        """The number of points, an exact integer of any length."""
        return prod(self.shape)

    @property
    def density(self) -> float:
        return self.nnz / self.size

    @cached_property
    def numbers(self) -> Ints:
        """The row-major number of each nonzero's point, ascending. Raises Refused if 64 bits are too few."""
        if self.size > _NUMBERED:
            message = f"{self.name} has {self.size:.3g} points, more than 64 bits can number"
            raise Refused(message, code="number-too-large")
        return _numbers(self.coords, self.shape)

    def filled(self, fill: float) -> SparseTensor:
        """Return the same entries with another value at all other points; entries equal to that value are
        dropped."""
        kept = self.values != fill
        coords, values = (
            (self.coords, self.values) if kept.all() else (self.coords[:, kept], self.values[kept])
        )
        return SparseTensor(self.name, self.ranks, self.shape, coords, values, fill)

    def rank(self, name: str) -> Ints:
        """Return the coordinates of one rank, one per nonzero."""
        row: Ints = self.coords[self.ranks.index(name)]
        return row

    def to_dense(self) -> NDArray[Any]:
        """Return all points as an array. Raises Refused above 10^8 points."""
        if self.size > DENSE_POINTS:
            message = f"{self.name} has {self.size:,} points: too many for a dense array"
            raise Refused(message, code="too-large")
        own = self.values.dtype
        result = np.full(self.size, self.fill, dtype=np.result_type(own, np.float64) if self.fill else own)
        result[self.numbers] = self.values
        return result.reshape(self.shape)

    def to_scipy(self) -> scipy.sparse.csr_array:
        """Return a matrix in CSR format. Raises Refused for a tensor that is not a matrix, or whose `fill` is
        not 0."""
        import scipy.sparse

        if len(self.ranks) != 2:
            raise Refused(f"{self.name} has {len(self.ranks)} ranks: no matrix", code="unsupported-shape")
        if self.fill:
            what = (
                f"{self.name} holds {self.fill:g} where it has no entry, and matrices of SciPy hold 0 there"
            )
            raise Refused(what, "take its coords and values", code="unsupported-operation")
        return scipy.sparse.csr_array((self.values, tuple(self.coords)), shape=self.shape)

    def swizzled(self, ranks: Sequence[str]) -> SparseTensor:
        """Return the same tensor with its ranks in another order."""
        order = [self.ranks.index(r) for r in ranks]
        if sorted(order) != list(range(len(self.ranks))):
            message = f"{list(ranks)} is not an order of the ranks {list(self.ranks)} of {self.name}"
            raise SpecError([Diagnostic(message, code="shape-mismatch")])
        shape = tuple(self.shape[i] for i in order)
        return SparseTensor.from_coo(self.name, ranks, shape, self.coords[order], self.values, fill=self.fill)

    def renamed(self, name: str, ranks: Sequence[str] | None = None) -> SparseTensor:
        """Return the same nonzeros under another name, or with other names of ranks."""
        return SparseTensor(name, tuple(ranks or self.ranks), self.shape, self.coords, self.values, self.fill)


def _filled(read: Arguments, fill: object) -> float:
    """Return the checked value of the points that are left out."""
    result = as_number(fill)
    if result is None or result != result:
        read.faults.append(
            Diagnostic(
                f"{shown(fill)} is not a number", "give one, e.g. 0 or inf", "fill", code="not-a-number"
            )
        )
        return 0.0
    return float(result)


def _faults(
    name: str,
    ranks: tuple[str, ...],
    shape: tuple[int, ...],
    points: NDArray[Any],
    data: NDArray[Any],
    fill: float,
) -> list[Diagnostic]:
    if len(ranks) != len(shape) or len(set(ranks)) != len(ranks):
        return [
            Diagnostic(
                f"{name}: ranks {list(ranks)} and shape {list(shape)} do not fit",
                "one size per rank",
                code="wrong-count",
            )
        ]
    if points.shape != (len(ranks), data.size) and not (not ranks and points.size == 0):
        wanted = f"{len(ranks)} x {data.size}"
        return [
            Diagnostic(
                f"{name}: coordinates are {points.shape}, not {wanted}",
                "one row per rank",
                code="shape-mismatch",
            )
        ]
    result = [
        Diagnostic(
            f"{name}: rank {r} has size {s}",
            "a size is a whole number of at least 1",
            code="not-positive-integer",
        )
        for r, s in zip(ranks, shape, strict=True)
        if s != int(s) or s < 1
    ]
    if points.size and not np.issubdtype(points.dtype, np.integer):
        return [
            *result,
            Diagnostic(
                f"{name}: coordinates are {points.dtype}", "coordinates are whole numbers", code="wrong-type"
            ),
        ]
    for row, rank, size in zip(points, ranks, shape, strict=False):
        if not row.size or (row.min() >= 0 and row.max() < size):
            continue
        outside = np.flatnonzero((row < 0) | (row >= size))
        if outside.size:
            what = f"{name}: {outside.size} coordinates of rank {rank} are outside 0..{size - 1}"
            message = f"{what}, the first is {row[outside[0]]}"
            result.append(Diagnostic(message, "give a larger shape", code="out-of-range"))
    if data.dtype.kind not in "biufc":
        return [*result, Diagnostic(f"{name}: values are {data.dtype}, not numbers", code="wrong-type")]
    odd = ~np.isfinite(data) & (data != fill) if data.dtype.kind in "fc" else np.zeros(0, dtype=bool)
    if odd.any():
        bad = int(np.flatnonzero(odd)[0])
        message = f"{name}: value {bad + 1} is {data[bad]}"
        result.append(Diagnostic(message, "values are finite numbers", code="not-a-number"))
    return result


def _numbers(coords: Ints, shape: Sequence[int]) -> Ints:
    result = np.zeros(coords.shape[1], dtype=np.int64)
    for row, size in zip(coords, shape, strict=True):
        result *= size
        result += row
    return result


def _ascending(coords: Ints) -> bool:
    """Return whether the columns are in lexicographic order without repetition; they are compared in
    pieces."""
    for start in range(0, coords.shape[1] - 1, _PIECE):
        piece = coords[:, start : start + _PIECE + 1]
        found = piece[-1, 1:] > piece[-1, :-1]
        for row in piece[-2::-1]:
            found &= row[1:] == row[:-1]
            found |= row[1:] > row[:-1]
        if not found.all():
            return False
    return True


def ordered(
    coords: Ints, data: NDArray[Any], shape: Sequence[int], join: np.ufunc = np.add
) -> tuple[Ints, NDArray[Any]]:
    """Return the coordinates in lexicographic order, with the values of equal ones summed, or combined by
    `join`."""
    if data.dtype.kind == "b":
        data = data.astype(np.int64)
    if data.size < 2:
        return coords, data
    if not coords.shape[0]:
        return coords[:, :1], join.reduce(data, keepdims=True)
    if _ascending(coords):
        return coords, data
    if prod(shape) <= _NUMBERED:
        numbers = _numbers(coords, shape)
        order = np.argsort(numbers, kind="stable")
        # `take` is several times faster than an index here.
        coords, data = coords.take(order, axis=1), data[order]
        first = np.diff(numbers[order]) != 0
    else:
        order = np.lexsort(coords[::-1])
        coords, data = coords.take(order, axis=1), data[order]
        first = (np.diff(coords, axis=1) != 0).any(axis=0)
    starts = np.flatnonzero(np.concatenate(([True], first)))
    if starts.size == data.size:
        return coords, data
    return coords.take(starts, axis=1), join.reduceat(data, starts)
