"""Compare results with a reference that is independent of the executor: numpy.einsum, or sparse products by
SciPy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from polymodel.errors import Refused
from polymodel.frozen import dataclass
from polymodel.sparse.execute.sizes import sizes_by_another_name
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.teaal.records import Expression, FactorProduct, IndexedTensor, Take

if TYPE_CHECKING:
    from polymodel.sparse.execute.records import Execution

# Dense arrays are used where the whole iteration space has at most this many points.
DENSE = 2 * 10**7
TOLERANCE = 1e-9
# The most combinations of variables that are listed for one tensor with affine indices.
MOST_ENTRIES = 10**8
_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_NUMBERED = 2**62
_LAST = "a take that reduces a rank of the tensor it takes keeps the last value, which no product gives"


@dataclass(frozen=True)
class Check:
    """The comparison of one Einsum with a reference. `points`: number of results compared (all, or those that
    are nonzero in either). `largest_difference` is absolute. Whole numbers must be equal; others must agree
    to 1e-9 of the largest."""

    einsum: str
    reference: str
    points: int
    largest_difference: float
    agrees: bool


@dataclass(frozen=True)
class Unchecked:
    """An Einsum for which no reference could be computed, and the reason."""

    einsum: str
    refused: Refused


def check(execution: Execution) -> tuple[Check, ...]:
    """Check every Einsum, given the results before it. Raises Refused for a run without values, or one that
    is too large."""
    result = []
    for one in checks(execution):
        if isinstance(one, Unchecked):
            raise one.refused
        result.append(one)
    return tuple(result)


def checks(execution: Execution) -> tuple[Check | Unchecked, ...]:
    """Check every Einsum, and record the reason in place of one that cannot be checked. Raises Refused for a
    run without values."""
    known: dict[str, SparseTensor] = {**execution.tensors, **execution.results}
    if not execution.valued:
        message = "the cascade was counted without values"
        raise Refused(message, "run it with values=True", code="missing-value")
    result: list[Check | Unchecked] = []
    for expression in execution.spec.expressions:
        ours = execution.results[expression.name]
        ranks = sizes_by_another_name(expression, execution.spec.declaration, known)
        sizes = _sizes(expression, {**execution.rank_sizes, **ranks})
        compared = _dense if prod(sizes.values()) <= DENSE else _sparse
        if not expression.semiring.ordinary and not any(isinstance(t, Take) for t in expression.terms):
            compared = _by_operators
        try:
            result.append(compared(expression, known, sizes, ours, execution.scalars))
        except Refused as refused:
            result.append(Unchecked(expression.name, refused))
    return tuple(result)


def _sizes(expression: Expression, rank_sizes: Mapping[str, int]) -> dict[str, int]:
    operands = [expression.output, *expression.operands]
    names = dict.fromkeys(v for o in operands for i in o.indices for v, _ in i.terms)
    return {v: rank_sizes[v.upper()] for v in names}


def _compared(einsum: str, reference: str, difference: NDArray[Any], largest: float, exact: bool) -> Check:
    off = float(np.abs(difference).max(initial=0))
    agrees = off == 0 if exact else off <= TOLERANCE * largest
    return Check(einsum, reference, int(difference.size), off, agrees)


def _dense(
    expression: Expression,
    known: Mapping[str, SparseTensor],
    sizes: Mapping[str, int],
    ours: SparseTensor,
    scalars: Mapping[str, float],
) -> Check:
    """Compare with numpy.einsum on dense arrays."""
    letters = dict(zip(sizes, _LETTERS, strict=False))
    out = [i.terms[0][0] for i in expression.output.indices]
    total: NDArray[Any] = np.zeros([sizes[v] for v in out], dtype=ours.values.dtype)
    for term in expression.terms:
        operands = [f for f in term.factors if isinstance(f, IndexedTensor)]
        arrays = [_array(o, known[o.tensor], sizes) for o in operands]
        names = [_variables(o) for o in operands]
        if isinstance(term, Take):
            absent = expression.semiring.absent
            there = [a != absent for a in arrays]
            arrays = [
                np.where(here, a, 0) if k == term.which else here.astype(a.dtype)
                for k, (a, here) in enumerate(zip(arrays, there, strict=True))
            ]
        texts = ["".join(letters[v] for v in vs) for vs in names]
        target = "".join(letters[v] for v in out)
        used = [v for v in out if any(v in vs for vs in names)]
        found = np.ones((), dtype=total.dtype)
        if arrays:
            found = np.einsum(",".join(texts) + "->" + "".join(letters[v] for v in used), *arrays)
        if isinstance(term, Take):
            found = _once(term, names, arrays, texts, used, letters, found)
        found = found.reshape([sizes[v] if v in used else 1 for v in out]) * _factor(term, scalars)
        total = total + np.broadcast_to(found, total.shape)
        assert len(target) == total.ndim
    exact = total.dtype.kind in "iub"
    found = ours.to_dense()
    difference = np.where(found == ours.fill, 0, found).astype(total.dtype) - total
    return _compared(expression.name, "numpy.einsum", difference, float(np.abs(total).max(initial=0)), exact)


def _by_operators(
    expression: Expression,
    known: Mapping[str, SparseTensor],
    sizes: Mapping[str, int],
    ours: SparseTensor,
    scalars: Mapping[str, float],
) -> Check:
    """Compare with the operators of the Einsum's semiring, evaluated at all points of the iteration space."""
    if prod(sizes.values()) > DENSE:
        message = f"{expression.name} is too large to be checked point by point"
        raise Refused(message, "check it on smaller data", code="too-large")
    semiring, out = expression.semiring, [i.terms[0][0] for i in expression.output.indices]
    plus = semiring.add.form
    assert isinstance(plus, np.ufunc), "the reader of a spec has looked"
    places = {v: k for k, v in enumerate([*out, *(v for v in sizes if v not in out)])}
    total: NDArray[Any] | None = None
    for term in expression.terms:
        factors: list[Any] = []
        for f in term.factors:
            if not isinstance(f, IndexedTensor):
                factors.append(scalars[f] if isinstance(f, str) else f)
                continue
            own = _variables(f)
            order = sorted(range(len(own)), key=[places[v] for v in own].__getitem__)
            shape = [sizes[v] if v in own else 1 for v in places]
            factors.append(_array(f, known[f.tensor], sizes).transpose(order).reshape(shape))
        joined = semiring.multiply.joined(factors) if len(factors) > 1 else factors[0]
        joined = np.broadcast_to(joined, [sizes[v] for v in places])
        summed = plus.reduce(joined, axis=tuple(range(len(out), len(places))))
        total = summed if total is None else plus(total, summed)
    assert total is not None
    found = ours.to_dense()
    with np.errstate(invalid="ignore"):
        difference = np.where(found == total, 0, found - total)
    finite = np.where(np.isfinite(total), total, 0)
    return _compared(
        expression.name, "its operators", difference, float(np.abs(finite).max(initial=0)), False
    )


def _once(
    term: Take,
    names: Sequence[Sequence[str]],
    arrays: Sequence[NDArray[Any]],
    texts: Sequence[str],
    used: Sequence[str],
    letters: Mapping[str, str],
    found: NDArray[Any],
) -> NDArray[Any]:
    """Correct the sum of a take, which counts a value once where ranks that it does not have give it several
    times."""
    if any(v not in used for v in names[term.which]):
        raise Refused(_LAST, code="unsupported-operation")
    ones = [(a != 0).astype(np.int64) for a in arrays]
    times = np.einsum(",".join(texts) + "->" + "".join(letters[v] for v in used), *ones)
    return np.where(times > 0, found / np.maximum(times, 1), 0).astype(found.dtype)


def _variables(operand: IndexedTensor) -> list[str]:
    return list(dict.fromkeys(v for i in operand.indices for v, _ in i.terms))


def _array(operand: IndexedTensor, tensor: SparseTensor, sizes: Mapping[str, int]) -> NDArray[Any]:
    """Return a tensor as an array over its variables; affine indices that point outside give zero."""
    dense = tensor.to_dense()
    if all(i.variable for i in operand.indices):
        return dense
    variables = _variables(operand)
    grid = np.indices([sizes[v] for v in variables])
    at = dict(zip(variables, grid, strict=True))
    where = [sum(f * at[v] for v, f in i.terms) for i in operand.indices]
    inside = np.ones(grid.shape[1:], dtype=bool)
    for w, size in zip(where, tensor.shape, strict=True):
        inside &= (w >= 0) & (w < size)
    clipped = tuple(np.clip(w, 0, s - 1) for w, s in zip(where, tensor.shape, strict=True))
    result: NDArray[Any] = np.where(inside, dense[clipped], tensor.fill)
    return result


def _factor(term: FactorProduct | Take, scalars: Mapping[str, float]) -> float | int | np.integer:
    negative = isinstance(term, FactorProduct) and term.negative
    result: float | int | np.integer = np.int64(-1) if negative else 1
    for f in term.factors:
        if not isinstance(f, IndexedTensor):
            result = result * (scalars[f] if isinstance(f, str) else f)
    return result


@dataclass(frozen=True, eq=False)
class _Entries:
    """Coordinates by variable, and values."""

    columns: dict[str, NDArray[np.int64]]
    values: NDArray[Any]


def _entries(operand: IndexedTensor, tensor: SparseTensor, sizes: Mapping[str, int]) -> _Entries:
    """Return the nonzeros by variable; for affine indices every combination of variables that accesses a
    nonzero."""
    columns: dict[str, NDArray[np.int64]] = {}
    rows = np.arange(tensor.nnz, dtype=np.int64)
    for index, coords in sorted(
        zip(operand.indices, tensor.coords, strict=True), key=lambda i: len(i[0].terms)
    ):
        unknown = sorted((v for v, _ in index.terms if v not in columns), key=lambda v: sizes[v])
        for v in unknown[:-1]:
            if rows.size * sizes[v] > MOST_ENTRIES:
                message = f"{operand.tensor} meets too many combinations of {v} to be checked"
                raise Refused(message, code="too-large")
            rows, columns = np.repeat(rows, sizes[v]), {u: np.repeat(c, sizes[v]) for u, c in columns.items()}
            columns[v] = np.arange(rows.size) % sizes[v]
        factors = dict(index.terms)
        rest = coords[rows] - sum(f * columns[v] for v, f in factors.items() if v in columns)
        if not unknown:
            kept = rest == 0
        else:
            solved, left = np.divmod(rest, factors[unknown[-1]])
            kept = (left == 0) & (solved >= 0) & (solved < sizes[unknown[-1]])
            columns[unknown[-1]] = solved
        rows, columns = rows[kept], {v: c[kept] for v, c in columns.items()}
    return _Entries(columns, tensor.values[rows])


def _sparse(
    expression: Expression,
    known: Mapping[str, SparseTensor],
    sizes: Mapping[str, int],
    ours: SparseTensor,
    scalars: Mapping[str, float],
) -> Check:
    """Compare with products of SciPy's sparse matrices, two factors at a time; remaining variables are
    summed."""
    out = [i.terms[0][0] for i in expression.output.indices]
    parts = [_Entries(dict(zip(out, ours.coords, strict=True)), -ours.values.astype(np.float64))]
    for term in expression.terms:
        operands = [f for f in term.factors if isinstance(f, IndexedTensor)]
        entries = [_entries(o, known[o.tensor], sizes) for o in operands]
        lacking = [v for v in out if not any(v in e.columns for e in entries)]
        if lacking:
            ranks = ", ".join(v.upper() for v in lacking)
            what = f"{expression.name} is too large to be checked: no factor has its rank {ranks}"
            raise Refused(what, "check it on smaller data", code="too-large")
        found = _taken(entries, term.which, out) if isinstance(term, Take) else _multiplied(entries, out)
        parts.append(_Entries(found.columns, found.values * _factor(term, scalars)))
    columns = {v: np.concatenate([p.columns[v] for p in parts]) for v in out}
    values = np.concatenate([p.values for p in parts])
    _, place = _numbers([columns[v] for v in out], values.size)
    difference = np.bincount(place, weights=values)
    largest = float(np.abs(ours.values).max(initial=0))
    return _compared(expression.name, "scipy.sparse", difference, largest, ours.values.dtype.kind in "iub")


def _multiplied(entries: Sequence[_Entries], out: Sequence[str]) -> _Entries:
    """Return the product; variables that only one factor has may remain in it."""
    result = entries[0]
    for k, other in enumerate(entries[1:], 2):
        later = {v for e in entries[k:] for v in e.columns}
        result = _contracted(result, other, {*out, *later})
    return result


def _taken(entries: Sequence[_Entries], which: int, out: Sequence[str]) -> _Entries:
    """Return the value of one factor where all are nonzero, once for each point of the output."""
    if any(v not in out for v in entries[which].columns):
        raise Refused(_LAST, code="unsupported-operation")
    values = [e.values if k == which else np.ones_like(e.values) for k, e in enumerate(entries)]
    product = _multiplied([_Entries(e.columns, v) for e, v in zip(entries, values, strict=True)], out)
    times = _multiplied([_Entries(e.columns, np.ones_like(e.values)) for e in entries], out)
    _, place = _numbers([product.columns[v] for v in out], product.values.size)
    _, first = np.unique(place, return_index=True)
    summed, met = (np.bincount(place, weights=p.values) for p in (product, times))
    return _Entries({v: product.columns[v][first] for v in out}, summed / met)


def _contracted(a: _Entries, b: _Entries, kept: set[str]) -> _Entries:
    """Return a * b, summed over the variables that are not kept. Shared ranks number the columns of one
    matrix and the rows of the other; those that are kept also number its rows."""
    import scipy.sparse

    shared = [v for v in a.columns if v in b.columns]
    left = [v for v in a.columns if v in kept]
    right = [v for v in b.columns if v in kept and v not in a.columns]
    both = [np.concatenate((a.columns[v], b.columns[v])) for v in shared]
    count, place = _numbers(both, a.values.size + b.values.size)
    rows, row = _numbers([a.columns[v] for v in left], a.values.size)
    cols, col = _numbers([b.columns[v] for v in right], b.values.size)
    first = scipy.sparse.csr_array((a.values, (row, place[: a.values.size])), shape=(rows, count))
    second = scipy.sparse.csr_array((b.values, (place[a.values.size :], col)), shape=(count, cols))
    made = (first @ second).tocoo()
    one_row, one_col = _first(row, rows), _first(col, cols)
    columns = {v: a.columns[v][one_row[made.coords[0]]] for v in left}
    columns |= {v: b.columns[v][one_col[made.coords[1]]] for v in right}
    return _Entries(columns, made.data)


def _numbers(columns: Sequence[NDArray[np.int64]], size: int) -> tuple[int, NDArray[np.int64]]:
    """Number the rows so that equal rows have equal numbers."""
    result = np.zeros(size, dtype=np.int64)
    count = 1
    for column in columns:
        span = int(column.max(initial=0)) + 1
        if count * span > _NUMBERED:
            raise Refused("too many coordinates to be checked", code="too-large")
        values, result = np.unique(result * span + column, return_inverse=True)
        count = max(int(values.size), 1)
    return count, result


def _first(numbers: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    result = np.zeros(count, dtype=np.int64)
    result[numbers] = np.arange(numbers.size)
    return result
