"""Collect what is known of every tensor of a cascade: given tensors, densities of the workload, and outputs
derived from operands."""

from __future__ import annotations

import warnings
from collections.abc import Container, Mapping, Sequence
from math import expm1, log1p, prod

import numpy as np

from polymodel.analysis.result import Problem
from polymodel.errors import Diagnostic, InternalError, Refused, SpecError
from polymodel.sparse.actions.data import TensorData
from polymodel.sparse.actions.join import MOST_ROWS, GroupTable
from polymodel.sparse.actions.join import joined_rows as rows_of
from polymodel.sparse.actions.links import is_box
from polymodel.sparse.actions.places import all_alike, different, differs, result_density, seen_by
from polymodel.sparse.actions.points import points_of
from polymodel.sparse.actions.zeros import is_union, unstopped
from polymodel.sparse.density import Actual, DensityModel, SparseWarning, model_of, unfit
from polymodel.sparse.density.uniform import Uniform
from polymodel.sparse.tensor import Ints, SparseTensor
from polymodel.spec.energy import confined
from polymodel.spec.faults import not_a, suggestion
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess

# The positions of nonzeros of computed tensors follow from those of the operands: a point of the output is
# nonzero where any of its operations is effectual (cancellation is ignored).

# The most occupancies of a fiber that are summed one by one.
LONGEST = 1_000_000


def output_data(
    einsum: Einsum, output: TensorAccess, shape: tuple[int, ...], data: Mapping[str, TensorData]
) -> TensorData:
    """Return what is known of an output: its exact nonzeros where all operands are given, else its expected
    density."""
    data = seen_by(einsum, data)
    operands = different(einsum.inputs)
    passing = unstopped(einsum)
    inputs = [a for a in operands if not data[a.tensor].dense and a not in passing]
    union = is_union(einsum)
    # The values to which results are added have no zeros unless their density is given.
    if output.accumulates or not inputs or (union and len(inputs) < len(operands)):
        return TensorData(output.tensor)
    if not union and all(data[a.tensor].actual is not None for a in inputs):
        result = _pattern(einsum, output, shape, inputs, data)
        if result is not None:
            return TensorData(output.tensor, actual=result, computed=True)
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
    """Return the probability that a point of the output is nonzero."""
    size = _extents(einsum, einsum.rank_variables)
    reduced = [v for v in einsum.rank_variables if v not in output.variables]
    if union:
        zero = all_alike(einsum, data, inputs, False)
        return _any(1 - zero, prod(size[v] for v in reduced))
    if len(inputs) == 1:
        (a,) = inputs
        return float(data[a.tensor].nonempty(_part(a, reduced, size)).reshape(-1)[0])
    effectual = all_alike(einsum, data, inputs)
    terms = prod(size[v] for v in reduced)
    laws = [data[a.tensor].law for a in inputs]
    shared = all(set(reduced) <= set(a.variables) and _plain(a) for a in inputs)
    if len(laws) == len({a.tensor for a in inputs}) == 2 and shared and terms <= LONGEST:
        first, second = laws
        if first is not None and second is not None:
            # If the first fiber has s nonzeros, the result is zero if these s points of the second are empty.
            occupancy = np.arange(terms + 1)
            chance = first.pmf(np.full(occupancy.shape, terms), occupancy)
            return 1 - float((chance * second.p_empty(occupancy)).sum())
    if any(differs(data[a.tensor], a) for a in inputs) and all(data[a.tensor].actual is None for a in inputs):
        return result_density(einsum, data, reduced)
    return _any(effectual, terms)


def _any(chance: float, times: int) -> float:
    """Return 1 - (1 - chance)^times without cancellation."""
    return 1.0 if chance >= 1 else -expm1(times * log1p(-chance))


def _plain(access: TensorAccess) -> bool:
    return all(len(x.terms) == 1 for x in access.projection)


def _part(access: TensorAccess, whole: list[str], size: Mapping[str, int]) -> tuple[Ints, ...]:
    from polymodel.sparse.actions.tally import window

    result = []
    for x in access.projection:
        extents = tuple(np.array([size[v] if v in whole else 1]) for v in x.variables)
        result.append(window(x, extents))
    return tuple(result)


def _pattern(
    einsum: Einsum,
    output: TensorAccess,
    shape: tuple[int, ...],
    inputs: list[TensorAccess],
    data: Mapping[str, TensorData],
) -> SparseTensor | None:
    """Return the points of the output that an effectual operation writes; None where an output rank depends
    on several variables."""
    if not _plain(output) or not is_box(einsum):
        return None
    tables = []
    for a in inputs:
        actual = data[a.tensor].actual
        assert actual is not None, "asked for actual operands only"
        points = points_of(einsum, a, actual)
        tables.append(GroupTable.of(points.variables, points.columns, points.rows, True))
    found = rows_of(tables, output.variables)
    size = _extents(einsum, output.variables)
    missing = [v for v in output.variables if v not in found.variables]
    spread = prod(size[v] for v in missing)
    if spread * found.rows > MOST_ROWS:
        message = f"{einsum.name}: {output.tensor} has {spread * found.rows:,} nonzeros"
        raise Refused(message, f"give the density of {output.tensor}", code="too-large")
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


def tensor_shape(cascade: Cascade, tensor: str) -> tuple[int, ...]:
    """Return the sizes of a tensor's ranks: as given, or up to the largest coordinate that is accessed."""
    sizes = dict(cascade.rank_sizes)
    result: dict[str, int] = {}
    for einsum in cascade.einsums:
        for access in einsum.accesses:
            if access.tensor != tensor:
                continue
            for rank, x in zip(access.ranks, access.projection, strict=True):
                ends = [(c, einsum.bound(v)) for v, c in x.terms]
                top = x.constant + sum(c * (high if c > 0 else low) for c, (low, high) in ends)
                result[rank] = max(result.get(rank, 1), top + 1, sizes.get(rank, 1))
    return tuple(result.values())


def _from_zero(cascade: Cascade, tensor: str) -> None:
    """Raise Refused if a tensor with given data is accessed below coordinate 0."""
    for einsum in cascade.einsums:
        for access in einsum.accesses:
            for rank, x in zip(access.ranks, access.projection, strict=True):
                ends = [(c, einsum.bound(v)) for v, c in x.terms]
                low = x.constant + sum(c * (low if c > 0 else high) for c, (low, high) in ends)
                if access.tensor == tensor and low < 0:
                    raise Refused(
                        f"{einsum.name} touches {tensor} at {rank} = {low}, where given data have nothing",
                        "shift the rank variables, or give a density",
                        code="unsupported-window",
                    )


def written_densities(cascade: Cascade) -> dict[str, object]:
    """Map each tensor to the density written at any of its accesses; None where there is none."""
    result: dict[str, object] = {}
    for e in cascade.einsums:
        for a in e.accesses:
            if result.get(a.tensor) is None:
                result[a.tensor] = a.density
    return result


def tensor_data(
    cascade: Cascade,
    tensors: Mapping[str, SparseTensor] | None = None,
    densities: Mapping[str, object] | None = None,
    folder: str = "",
    needed: Container[str] | None = None,
) -> dict[str, TensorData]:
    """Return what is known of every tensor: `tensors` take precedence over `densities`, which take precedence
    over the workload.

    A computed tensor without any of these gets the structural density of its operations if it is `needed`
    (None: all are), and otherwise no zeros. A recurrent tensor, or one that is added to, has no zeros. Raises
    SpecError for unknown tensors, for shapes that do not match and for invalid densities.
    """
    for name, value in (("tensors", tensors), ("densities", densities)):
        if value is not None and not isinstance(value, Mapping):
            raise not_a("mapping", name, value, f"write e.g. {name}={{'A': ...}}")
    given, asked = tensors or {}, {**written_densities(cascade), **(densities or {})}
    faults = [
        Diagnostic(
            f"unknown tensor {name}", suggestion(name, cascade.tensors, "tensors"), code="unknown-name"
        )
        for name in (*given, *(densities or {}))
        if name not in cascade.tensors
    ]
    result: dict[str, TensorData] = {}
    for einsum in cascade.einsums:
        for access in (*einsum.inputs, *einsum.outputs):
            if access.tensor in result:
                if (
                    access.output
                    and asked[access.tensor] is None
                    and access.tensor not in given
                    and not faults
                ):
                    _require_full(einsum, access, tensor_shape(cascade, access.tensor), result)
                continue
            if given.get(access.tensor) is not None:
                _from_zero(cascade, access.tensor)
            shape = tensor_shape(cascade, access.tensor)
            try:
                known = _known(access, shape, given.get(access.tensor), asked[access.tensor], folder)
            except SpecError as error:
                faults += error.diagnostics
                known = TensorData(access.tensor)
            asks = needed is None or access.tensor in needed
            if known is None and access.output and asks and not faults:
                known = output_data(einsum, access, shape, result)
            result[access.tensor] = known or TensorData(access.tensor)
    if faults:
        raise SpecError(faults)
    return result


def _require_full(
    einsum: Einsum, access: TensorAccess, shape: tuple[int, ...], found: Mapping[str, TensorData]
) -> None:
    """Raise Refused if the operands of a recurrent tensor leave zeros in it. It is read before it is
    produced, and then taken to have no zeros."""
    made = output_data(einsum, access, shape, found)
    if not made.dense:
        raise Refused(
            f"{access.tensor} is carried from one iteration to the next, and its operands leave zeros in it "
            f"({made.density:.4g} of its points are not zero); which of these the next generation inherits "
            "is not followed",
            f"give its density ({{{access.tensor}: 1}} if it has none), or run the cascade on data "
            "(pm.execute)",
            code="unsupported-recurrence",
        )


def tensors_in_use(problem: Problem) -> frozenset[str]:
    """Return the tensors whose zeros affect any count: operands, leaders, and tensors that have a format."""
    result = {a.tensor for e in problem.cascade.einsums for a in e.inputs}
    for component in problem.hierarchy.components:
        if component.sparse is not None:
            result |= {tensor for tensor, _ in component.sparse.formats}
            result |= {x for action in component.sparse.actions for _, _, on in action.by_einsum for x in on}
    return frozenset(result)


def _known(
    access: TensorAccess, shape: tuple[int, ...], given: SparseTensor | None, written: object, folder: str
) -> TensorData | None:
    """Return what is given or written of one tensor; None if nothing is."""
    if given is not None:
        result = _actual(access, shape, given)
        if written is not None and result.actual is not None:
            _warn(result.actual, density_model(access, shape, written, folder))
        return result
    if written is None:
        return None
    if isinstance(written, SparseTensor):
        return _actual(access, shape, written)
    model = density_model(access, shape, written, folder)
    if model.data is not None:
        return _actual(access, shape, model.data)
    return TensorData(access.tensor, model)


def _warn(tensor: SparseTensor, model: DensityModel) -> None:
    """Warn if given data replace a density model that does not fit them."""
    reason = unfit(tensor, model)
    if reason:
        warnings.warn(f"{tensor.name}: {reason}", SparseWarning, stacklevel=2)


def density_model(access: TensorAccess, shape: tuple[int, ...], written: object, folder: str) -> DensityModel:
    """Return the density model that is written. Files are read from `folder` only. Raises SpecError with all
    faults."""

    def read(name: str) -> SparseTensor:
        from polymodel.sparse.files import read_tensor

        return read_tensor(confined(name, folder), access.tensor, access.ranks)

    model = model_of(written, access.ranks, shape, read=read, name=access.tensor)
    if model is None:
        raise InternalError(f"{access.tensor} has neither a density nor a fault")
    return model


def _actual(access: TensorAccess, shape: tuple[int, ...], tensor: object) -> TensorData:
    """Return a given tensor with its ranks in the order of the access. Ranks with other names are matched by
    position."""
    if not isinstance(tensor, SparseTensor):
        how = "pass pm.read_tensor(FILE), or SparseTensor.from_dense(name, ranks, array)"
        raise not_a("sparse tensor", access.tensor, tensor, how)
    ranks = tensor.ranks
    if sorted(ranks) == sorted(access.ranks):
        ordered = tensor if ranks == access.ranks else tensor.swizzled(access.ranks)
    elif len(ranks) == len(access.ranks):
        ordered = tensor.renamed(tensor.name, access.ranks)
    else:
        what = f"{access.tensor} has ranks {', '.join(access.ranks)}, the tensor given {', '.join(ranks)}"
        raise SpecError([Diagnostic(what, "give one with as many ranks", code="shape-mismatch")])
    if ordered.shape != shape:
        sizes = [" x ".join(map(str, s)) for s in (shape, ordered.shape)]
        what = f"{access.tensor} is {sizes[0]}, the tensor given {sizes[1]}"
        raise SpecError([Diagnostic(what, "set the rank sizes to those of the data", code="shape-mismatch")])
    return TensorData(access.tensor, Actual.of(ordered), ordered)
