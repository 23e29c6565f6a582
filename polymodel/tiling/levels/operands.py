"""What a level cuts: the entries of its operands, and what launching one of their tiles costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from polymodel.architecture.hierarchy import TileRules
from polymodel.errors import Refused
from polymodel.sparse.actions.data import TensorData
from polymodel.sparse.actions.inputs import tensor_shape
from polymodel.sparse.actions.links import is_box
from polymodel.sparse.actions.zeros import is_union
from polymodel.sparse.tensor import SparseTensor
from polymodel.tiling.cost.model import Launch
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess

# An operand without zeros is written out to be cut, up to so many places.
_WHOLE = 10**7


def launch_of(rules: TileRules, clock: float | None) -> Launch:
    """Cycles of a kernel; without a clock seconds are not asked for."""
    given = Launch(rules.config_add, rules.config_multiply, rules.ramp, rules.empty, rules.run)
    return given if clock is None else replace(given, clock_mhz=clock / 1e6)


def operand_of(
    einsum: Einsum, access: TensorAccess, known: TensorData, shape: tuple[int, ...]
) -> SparseTensor:
    """The entries of an operand, its ranks named after their variables. Refused where it has none of its own
    and too many places to write out."""
    names = access.variables
    if known.actual is not None:
        return known.actual.renamed(access.tensor, names)
    size = int(np.prod([float(s) for s in shape]))
    if size > _WHOLE:
        raise Refused(f"{einsum.name}: {access.tensor} has no zeros and {size:,} entries: too many to cut")
    return SparseTensor.from_dense(access.tensor, names, np.ones(shape, dtype=np.int8))


def plain(access: TensorAccess) -> bool:
    """True if every rank is read at one rank variable, each another one."""
    single = all(len(x.terms) == 1 and x.terms[0][1] == 1 and not x.constant for x in access.projection)
    return single and len(set(access.variables)) == len(access.projection)


def whole(cascade: Cascade, einsum: Einsum) -> bool:
    """True if the Einsum, whose accesses are plain, touches all of its tensors."""
    sizes = {v: high + 1 for v, (_, high) in zip(einsum.rank_variables, einsum.bounds, strict=True)}
    full = all(
        tensor_shape(cascade, x.tensor) == tuple(sizes[v] for v in x.variables) for x in einsum.accesses
    )
    return full and is_box(einsum) and not any(low for low, _ in einsum.bounds)


def with_unions(cascade: Cascade, data: Mapping[str, TensorData]) -> dict[str, TensorData]:
    """The same with patterns in the place of densities for what is added entry by entry from known operands.

    Patterns of products and of multiplications are in `data` already.
    """
    found = dict(data)
    for einsum in cascade.einsums:
        if einsum.is_copy or len(einsum.outputs) != 1:
            continue
        out = einsum.outputs[0]
        known = found[out.tensor]
        if not known.computed or known.actual is not None or not is_union(einsum):
            continue
        given = [found[a.tensor].actual for a in einsum.inputs]
        alike = all(plain(a) and set(a.variables) == set(out.variables) for a in einsum.accesses)
        if alike and whole(cascade, einsum) and all(t is not None for t in given):
            shape = tensor_shape(cascade, out.tensor)
            found[out.tensor] = TensorData(out.tensor, actual=_union(einsum, found, shape), computed=True)
    return found


def _union(einsum: Einsum, data: Mapping[str, TensorData], shape: tuple[int, ...]) -> SparseTensor:
    out = einsum.outputs[0]
    parts = []
    for access in einsum.inputs:
        actual = data[access.tensor].actual
        assert actual is not None, "asked for actual operands only"
        parts.append(actual.renamed(access.tensor, access.variables).swizzled(out.variables).coords)
    places = np.unique(np.concatenate(parts, axis=1), axis=1)
    return SparseTensor.from_coo(out.tensor, out.ranks, shape, places, np.ones(places.shape[1], np.int64))
