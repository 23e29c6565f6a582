"""Where the nonzeros of computed tensors lie: from those of the operands.

A point of the output is nonzero where any of its operations is effectual (cancellation aside).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import expm1, log1p, prod

import numpy as np

from polymodel.errors import Refused
from polymodel.sparse.actions.data import TensorData
from polymodel.sparse.actions.join import MOST_ROWS, Table
from polymodel.sparse.actions.join import joined_rows as rows_of
from polymodel.sparse.actions.links import is_box
from polymodel.sparse.actions.places import differs, result_density, seen_by
from polymodel.sparse.actions.points import points_of
from polymodel.sparse.actions.zeros import is_union
from polymodel.sparse.density.uniform import Uniform
from polymodel.sparse.tensor import Ints, SparseTensor
from polymodel.workload.einsum import Einsum, TensorAccess

# Occupancies of a fiber that are summed one by one.
LONGEST = 1_000_000


def output_data(
    einsum: Einsum, output: TensorAccess, shape: tuple[int, ...], data: Mapping[str, TensorData]
) -> TensorData:
    """What is known of an output: exact where all operands are given, else its expected density."""
    data = seen_by(einsum, data)
    inputs = [a for a in einsum.inputs if not data[a.tensor].dense]
    union = is_union(einsum)
    if not inputs or (union and len(inputs) < len(einsum.inputs)):
        return TensorData(output.tensor)
    if not union and all(data[a.tensor].actual is not None for a in inputs):
        found = _pattern(einsum, output, shape, inputs, data)
        if found is not None:
            return TensorData(output.tensor, actual=found, computed=True)
    share = _share(einsum, output, inputs, union, data)
    if share >= 1:
        return TensorData(output.tensor)
    nearest = Uniform.of(output.ranks, shape, density=min(max(share, 0.0), 1.0))
    return TensorData(output.tensor, nearest, computed=True, share=share)


def _extents(einsum: Einsum, names: Sequence[str]) -> dict[str, int]:
    return {v: einsum.bound(v)[1] - einsum.bound(v)[0] + 1 for v in names}


def _share(
    einsum: Einsum,
    output: TensorAccess,
    inputs: list[TensorAccess],
    union: bool,
    data: Mapping[str, TensorData],
) -> float:
    """Probability that a point of the output is nonzero."""
    size = _extents(einsum, einsum.rank_variables)
    reduced = [v for v in einsum.rank_variables if v not in output.variables]
    if union:
        zero = prod(1 - data[a.tensor].density for a in inputs)
        return _any(1 - zero, prod(size[v] for v in reduced))
    if len(inputs) == 1:
        (a,) = inputs
        return float(data[a.tensor].nonempty(_part(a, reduced, size)).reshape(-1)[0])
    effectual = prod(data[a.tensor].density for a in inputs)
    terms = prod(size[v] for v in reduced)
    laws = [data[a.tensor].law for a in inputs]
    shared = all(set(reduced) <= set(a.variables) and _plain(a) for a in inputs)
    if len(inputs) == 2 and shared and terms <= LONGEST:
        first, second = laws
        if first is not None and second is not None:
            # Of a first fiber with s nonzeros all s points of the second one are empty.
            occupancy = np.arange(terms + 1)
            chance = first.pmf(np.full(occupancy.shape, terms), occupancy)
            return 1 - float((chance * second.p_empty(occupancy)).sum())
    if any(differs(data[a.tensor], a) for a in inputs) and all(data[a.tensor].actual is None for a in inputs):
        return result_density(einsum, data, reduced)
    return _any(effectual, terms)


def _any(chance: float, times: int) -> float:
    """1 - (1 - chance)^times without cancellation."""
    return 1.0 if chance >= 1 else -expm1(times * log1p(-chance))


def _plain(access: TensorAccess) -> bool:
    return all(len(x.terms) == 1 for x in access.projection)


def _part(access: TensorAccess, whole: list[str], size: Mapping[str, int]) -> tuple[Ints, ...]:
    from polymodel.sparse.actions.tally import window

    found = []
    for x in access.projection:
        extents = tuple(np.array([size[v] if v in whole else 1]) for v in x.variables)
        found.append(window(x, extents))
    return tuple(found)


def _pattern(
    einsum: Einsum,
    output: TensorAccess,
    shape: tuple[int, ...],
    inputs: list[TensorAccess],
    data: Mapping[str, TensorData],
) -> SparseTensor | None:
    """The points of the output that an effectual operation writes; None behind ranks of several variables."""
    if not _plain(output) or not is_box(einsum):
        return None
    tables = []
    for a in inputs:
        actual = data[a.tensor].actual
        assert actual is not None, "asked for actual operands only"
        points = points_of(einsum, a, actual)
        tables.append(Table.of(points.variables, points.columns, points.rows, True))
    found = rows_of(tables, output.variables)
    size = _extents(einsum, output.variables)
    missing = [v for v in output.variables if v not in found.variables]
    spread = prod(size[v] for v in missing)
    if spread * found.rows > MOST_ROWS:
        raise Refused(
            f"{einsum.name}: {output.tensor} has {spread * found.rows:,} nonzeros",
            f"give the density of {output.tensor}",
        )
    column: dict[str, Ints] = {}
    grid = np.indices([size[v] for v in missing]).reshape(len(missing), spread)
    for v, row in zip(missing, grid, strict=True):
        column[v] = np.tile(row, found.rows)
    for v, row in zip(found.variables, found.ids, strict=True):
        column[v] = np.repeat(row, spread)
    coords = [
        (column[v] + einsum.bound(v)[0]) * c + x.constant for x in output.projection for v, c in x.terms
    ]
    count = spread * found.rows
    if any(c.size and int(c.min()) < 0 for c in coords):
        return None
    rows = np.array(coords, np.int64).reshape(len(coords), count)
    return SparseTensor.from_coo(output.tensor, output.ranks, shape, rows, np.ones(count, np.int64))
