"""Schema objects -> a resolved `Cascade`: names checked, projections affine, spaces bounded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from polymodel.affine import Affine
from polymodel.spec import Einsum as EinsumSpec
from polymodel.spec import Renames, Workload
from polymodel.spec import TensorAccess as AccessSpec
from polymodel.spec.affine_text import parse_affine
from polymodel.spec.faults import Faults, Path, TextFault, suggestion
from polymodel.spec.numbers import Value
from polymodel.spec.setexpr import SetScope
from polymodel.workload.bits import at_least_one, bits_per_value, persistent_tensors, scales
from polymodel.workload.graph_checks import check_cascade
from polymodel.workload.scopes import RenameResolver, base_scope, facts_of, rename_sources
from polymodel.workload.spaces import bounds_of, check_sizes, constraints_of, rank_sizes_of

from polymodel.workload.einsum import Cascade, Einsum, TensorAccess  # isort: skip

MAX_EINSUMS = 500  # what is worked out of them grows with their square at least
Symbols = Mapping[str, Value | None]
Projections = dict[str, dict[str, Affine]]


@dataclass(frozen=True)
class Resolved:
    """The cascade, and what set expressions mean in each of its Einsums."""

    cascade: Cascade
    scopes: tuple[SetScope, ...]


def resolve_workload(
    workload: Workload, renames: Renames | None, symbols: Symbols, faults: Faults
) -> Resolved | None:
    """Build the cascade. Every fault is added to `faults`; None if there was any.

    The bits of a tensor, its persistence and its backing scale hold for all its accesses: an
    access that gives a value speaks for the tensor, and two that disagree are a fault.
    """
    before = len(faults)
    if len(workload.einsums) > MAX_EINSUMS:
        message = f"the workload has {len(workload.einsums)} Einsums, at most {MAX_EINSUMS} are taken"
        faults.add(
            ("workload", "einsums"), message, "split it; layers that are alike are one, n_instances times"
        )
        return None
    projections = _all_projections(workload, faults)
    if len(faults) > before:
        return None
    check_cascade(workload, faults)
    _check_ranks(workload, projections, faults)
    variables = {
        e.name: {t: frozenset(v for x in p.values() for v in x.variables) for t, p in found.items()}
        for e, found in zip(workload.einsums, projections, strict=True)
    }
    if len(faults) > before:
        return None
    resolvers = _resolvers(workload, renames, variables, faults)
    scopes = tuple(r.scope for r in resolvers)
    einsums = _einsums(workload, projections, resolvers, symbols, faults)
    if len(faults) > before or einsums is None:
        return None
    sizes = tuple(
        (r, s) for r, s in rank_sizes_of(workload.rank_sizes, ("workload", "rank_sizes"), symbols, faults)
    )
    return Resolved(Cascade(einsums, sizes, workload.name), scopes)


def _all_projections(workload: Workload, faults: Faults) -> list[Projections]:
    """Per Einsum: tensor -> rank -> affine expression."""
    found: list[Projections] = []
    for i, einsum in enumerate(workload.einsums):
        path: Path = ("workload", "einsums", i)
        here: Projections = {}
        for j, access in enumerate(einsum.tensor_accesses):
            below = (*path, "tensor_accesses", j)
            if access.name in here:
                _twice(einsum, access, below, faults)
            here[access.name] = _projection(access, below, faults)
        found.append(here)
    return found


def _twice(einsum: EinsumSpec, access: AccessSpec, path: Path, faults: Faults) -> None:
    both = {a.output for a in einsum.tensor_accesses if a.name == access.name}
    if len(both) == 2:
        message = f"Einsum {einsum.name} reads and writes {access.name}: the cascade is cyclic"
        faults.add((*path, "name"), message, "give the result another name")
    else:
        message = f"Einsum {einsum.name} accesses {access.name} twice"
        faults.add(
            (*path, "name"), message, "give the second access a tensor of its own, filled by a copy Einsum"
        )


def _projection(access: AccessSpec, path: Path, faults: Faults) -> dict[str, Affine]:
    if isinstance(access.projection, tuple):
        ranks = [v.upper() for v in access.projection]
        for k, rank in enumerate(ranks):
            if rank in ranks[:k]:
                faults.add(
                    (*path, "projection", k),
                    f"rank {rank} of {access.name} appears twice",
                    "name the ranks: projection: {A: m, B: m}",
                )
        return {r: Affine.variable(v) for r, v in zip(ranks, access.projection, strict=True)}
    found: dict[str, Affine] = {}
    for rank, text in access.projection.items():
        try:
            found[rank] = parse_affine(text)
        except TextFault as fault:
            faults.text((*path, "projection", rank), fault)
    return found


def _check_ranks(workload: Workload, projections: list[Projections], faults: Faults) -> None:
    """A tensor has the same ranks wherever it is used."""
    first: dict[str, tuple[str, tuple[str, ...]]] = {}
    for i, (einsum, found) in enumerate(zip(workload.einsums, projections, strict=True)):
        for j, access in enumerate(einsum.tensor_accesses):
            ranks = tuple(found[access.name])
            where, known = first.setdefault(access.name, (einsum.name, ranks))
            if set(known) != set(ranks):
                faults.add(
                    ("workload", "einsums", i, "tensor_accesses", j, "projection"),
                    f"tensor {access.name} has ranks [{', '.join(ranks)}] in {einsum.name} "
                    f"but [{', '.join(known)}] in {where}",
                    f"write projection: {{{', '.join(f'{r}: ...' for r in known)}}}",
                )


def _resolvers(
    workload: Workload,
    renames: Renames | None,
    variables: Mapping[str, Mapping[str, frozenset[str]]],
    faults: Faults,
) -> list[RenameResolver]:
    facts = facts_of(workload, variables)
    sources = rename_sources(workload, renames, faults)
    declared = frozenset(a.name for e in workload.einsums for a in e.tensor_accesses if a.persistent)

    def build(persistent: frozenset[str]) -> list[RenameResolver]:
        return [
            RenameResolver(base_scope(e, facts, variables[e.name], persistent), sources[e.name], faults)
            for e in workload.einsums
        ]

    first = build(declared)
    if not workload.persistent_tensors:
        return first
    return build(declared | persistent_tensors(workload, [r.scope for r in first], faults))


def _einsums(
    workload: Workload,
    projections: list[Projections],
    resolvers: list[RenameResolver],
    symbols: Symbols,
    faults: Faults,
) -> tuple[Einsum, ...] | None:
    before = len(faults)
    bits = bits_per_value(workload, [r.scope for r in resolvers], symbols, faults)
    scale = scales(workload, symbols, faults)
    times = _instances(workload.n_instances, ("workload", "n_instances"), symbols, faults)
    order: dict[str, tuple[str, ...]] = {}
    found: list[Einsum] = []
    for i, (einsum, here) in enumerate(zip(workload.einsums, projections, strict=True)):
        path: Path = ("workload", "einsums", i)
        for tensor, projection in here.items():
            order.setdefault(tensor, tuple(projection))
        accesses = tuple(
            _access(a, order[a.name], here[a.name], bits, scale, resolvers[i].scope, workload.densities)
            for a in einsum.tensor_accesses
        )
        variables = tuple(dict.fromkeys(v for a in accesses for v in a.variables))
        constraints = constraints_of(workload, i, variables, here, symbols, faults)
        bounds = (
            bounds_of(einsum.name, variables, constraints, path, faults) if constraints is not None else None
        )
        if bounds is not None and any(low < 0 for low, _ in bounds):
            sized = {*workload.rank_sizes, *einsum.rank_sizes}
            shapes = [*workload.iteration_space_shape.values(), *einsum.iteration_space_shape]
            check_sizes(here, sized, shapes, dict(zip(variables, bounds, strict=True)), path, faults)
        renames = resolvers[i].check_all()
        instances = times * _instances(einsum.n_instances, (*path, "n_instances"), symbols, faults)
        operations = tuple(
            (k, getattr(einsum.operations, k)) for k in ("map", "reduce", "populate")
            if k in einsum.operations.model_fields_set
        )  # fmt: skip
        if bounds is not None and constraints is not None:
            found.append(
                Einsum(
                    einsum.name, variables, constraints, accesses, bounds, einsum.is_copy_operation,
                    instances, renames, operations,
                )
            )  # fmt: skip
    _check_rank_names(workload, projections, faults)
    for tensor in workload.densities:
        if tensor not in order:
            near = suggestion(tensor, order, "tensors")
            faults.add(("workload", "densities", tensor), f"unknown tensor {tensor}", near, key=True)
    return tuple(found) if len(faults) == before else None


def _access(
    access: AccessSpec,
    ranks: tuple[str, ...],
    projection: dict[str, Affine],
    bits: Mapping[str, int],
    scale: Mapping[str, Fraction],
    scope: SetScope,
    densities: Mapping[str, object],
) -> TensorAccess:
    return TensorAccess(
        access.name,
        ranks,
        tuple(projection[r] for r in ranks),
        access.output,
        bits.get(access.name, 0),
        access.name in scope.named["Persistent"],
        scale.get(access.name, Fraction(1)),
        densities.get(access.name) if access.density is None else access.density,
    )


def _instances(value: Value | str, path: Path, symbols: Symbols, faults: Faults) -> int:
    wrong = f"n_instances {value} is not a whole number of at least 1", "write 1 or more"
    return at_least_one(value, path, symbols, faults, wrong)


def _check_rank_names(workload: Workload, projections: list[Projections], faults: Faults) -> None:
    """`rank_sizes` and `iteration_space_shape` name ranks and rank variables that exist."""
    per_einsum = [{r for p in found.values() for r in p} for found in projections]
    ranks = sorted(set().union(*per_einsum)) if per_einsum else []
    variables = sorted({v for f in projections for p in f.values() for x in p.values() for v in x.variables})
    for rank in workload.rank_sizes:
        if rank not in ranks:
            path: Path = ("workload", "rank_sizes", rank)
            faults.add(
                path, f"unknown rank {rank}: no tensor has it", suggestion(rank, ranks, "ranks"), key=True
            )
    for variable in workload.iteration_space_shape:
        if variable not in variables:
            path = ("workload", "iteration_space_shape", variable)
            near = suggestion(variable, variables, "rank variables")
            faults.add(path, f"unknown rank variable {variable}", near, key=True)
    for i, (einsum, known) in enumerate(zip(workload.einsums, per_einsum, strict=True)):
        for rank in einsum.rank_sizes:
            if rank not in known:
                path = ("workload", "einsums", i, "rank_sizes", rank)
                near = suggestion(rank, sorted(known), "ranks")
                faults.add(path, f"unknown rank {rank}: no tensor of {einsum.name} has it", near, key=True)
