"""List the operations that touch a nonzero, as values of the tensor's rank variables for each nonzero."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from polymodel.errors import Refused
from polymodel.frozen import dataclass
from polymodel.sparse.actions.counters import Ints
from polymodel.sparse.actions.join import MOST_ROWS
from polymodel.sparse.tensor import SparseTensor
from polymodel.workload.einsum import Einsum, TensorAccess


@dataclass(frozen=True)
class TouchedPoints:
    """All combinations of the tensor's rank variables that touch a nonzero, each listed once.

    `columns`: one array per variable, counted from its smallest value. `nonzero`: the index of the nonzero
    that is touched; None where the n-th combination touches the n-th nonzero.
    """

    variables: tuple[str, ...]
    columns: tuple[Ints, ...]
    nonzero: Ints | None

    @property
    def rows(self) -> int:
        return int(self.columns[0].size) if self.columns else 1


def points_of(einsum: Einsum, access: TensorAccess, tensor: SparseTensor) -> TouchedPoints:
    """Return the points that touch a nonzero. In each rank one variable follows from the others, whose values
    are listed. Raises Refused beyond 5e7 rows.

    `tensor` has its ranks in the order of the access.
    """
    plain = _plain(einsum, access, tensor)
    if plain is not None:
        return plain
    known: dict[str, Ints] = {}
    nonzero: Ints | None = None
    size = {v: einsum.bound(v)[1] - einsum.bound(v)[0] + 1 for v in access.variables}
    for rank, x in zip(access.ranks, access.projection, strict=True):
        new = [(v, c) for v, c in x.terms if v not in known]
        new.sort(key=lambda term: (abs(term[1]), -size[term[0]]))
        listed = new[1:]
        count = prod(size[v] for v, _ in listed)
        rows = tensor.nnz if nonzero is None else int(nonzero.size)
        if rows * count > MOST_ROWS:
            raise Refused(
                f"{einsum.name}: {rows * count:,} operations touch the nonzeros of {access.tensor}: too many",
                "describe the tensor by its density instead",
                code="too-large",
            )
        if count > 1:
            nonzero = np.repeat(np.arange(rows) if nonzero is None else nonzero, count)
            known = {v: np.repeat(column, count) for v, column in known.items()}
        grid = np.indices([size[v] for v, _ in listed]).reshape(len(listed), count)
        for (v, _), row in zip(listed, grid, strict=True):
            known[v] = np.tile(row, rows)
        rest = tensor.rank(rank) if nonzero is None else tensor.rank(rank)[nonzero]
        low = x.constant + sum(c * einsum.bound(v)[0] for v, c in x.terms)
        rest = rest - low - sum(c * known[v] for v, c in x.terms if v in known)
        kept = rest == 0
        if new:
            v, c = new[0]
            solved = rest // c
            kept = (solved * c == rest) & (solved >= 0) & (solved < size[v])
            known[v] = solved
        if not kept.all():
            some = np.flatnonzero(kept)
            nonzero = some if nonzero is None else nonzero[some]
            known = {v: column[some] for v, column in known.items()}
    return TouchedPoints(access.variables, tuple(known[v] for v in access.variables), nonzero)


def _plain(einsum: Einsum, access: TensorAccess, tensor: SparseTensor) -> TouchedPoints | None:
    """Return the coordinates themselves, where each rank has a variable of its own that covers all of the
    rank; else None."""
    columns = []
    for rank, x, size in zip(access.ranks, access.projection, tensor.shape, strict=True):
        if len(x.terms) != 1 or x.terms[0][1] != 1:
            return None
        low, high = einsum.bound(x.terms[0][0])
        first = low + x.constant
        if first > 0 or high + x.constant < size - 1:
            return None
        columns.append(tensor.rank(rank) - first if first else tensor.rank(rank))
    return (
        TouchedPoints(access.variables, tuple(columns), None)
        if len(columns) == len(access.variables)
        else None
    )


# The most points of a tensor that are listed where an Einsum uses elements that are not evenly spaced.
MOST_POINTS = 10_000_000


def full_tensor(einsum: Einsum, accesses: Sequence[TensorAccess]) -> SparseTensor:
    """Return a tensor without zeros of all elements that an Einsum touches in these accesses. Raises Refused
    where it is touched below coordinate 0, or is too large to list."""
    low, shape = 0, [1] * len(accesses[0].ranks)
    for access in accesses:
        for rank, x in enumerate(access.projection):
            ends = [sorted(c * end for end in einsum.bound(v)) for v, c in x.terms]
            low = min(low, x.constant + sum(e[0] for e in ends))
            shape[rank] = max(shape[rank], 1 + x.constant + sum(e[1] for e in ends))
    tensor = accesses[0].tensor
    if low < 0 or prod(shape) > MOST_POINTS:
        raise Refused(
            f"{einsum.name}: the elements that are used of {tensor} do not stand evenly apart, and are "
            f"{'touched below coordinate 0' if low < 0 else 'too many to list'}",
            f"shift the rank variables, or leave out the formats of {tensor} and the actions on it",
            code="unsupported-window",
        )
    coords = np.indices(shape).reshape(len(shape), prod(shape))
    return SparseTensor.from_coo(tensor, accesses[0].ranks, shape, coords, np.ones(prod(shape), np.int8))
