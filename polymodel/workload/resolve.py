"""Schema objects -> a resolved `Cascade`: names checked, projections affine, spaces bounded."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

from polymodel.arithmetic import Affine
from polymodel.frozen import dataclass
from polymodel.spec.expressions import SetScope, parse_set, tensor_set
from polymodel.spec.faults import Faults, Path, TextFault, suggestion
from polymodel.spec.numbers import Value, evaluate_number, parse_affine
from polymodel.spec.section_schemas import Einsum as EinsumSpec
from polymodel.spec.section_schemas import Renames, Workload
from polymodel.spec.section_schemas import TensorAccess as AccessSpec
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess
from polymodel.workload.scopes import RenameResolver, base_scope, facts_of, rename_sources
from polymodel.workload.spaces import (
    CarriedAccess,
    Extended,
    Projections,
    bounds_of,
    carried_reads,
    check_sizes,
    constraints_of,
    extended_ranks,
    generational_ranks,
    rank_sizes_of,
    unwritten_values,
    with_initial_tensors,
    with_last_generations,
    without_boundaries,
)

MAX_EINSUMS = 500  # the work per workload grows at least with the square of this
if TYPE_CHECKING:
    from polymodel.workload.defined import Definition

Symbols = Mapping[str, Value | None]
Operations = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True)
class Resolved:
    """The cascade, and the meaning of set expressions in each of its Einsums."""

    cascade: Cascade
    scopes: tuple[SetScope, ...]


def resolve_workload(
    workload: Workload, renames: Renames | None, symbols: Symbols, faults: Faults
) -> Resolved | None:
    """Build the cascade. Every fault is added to `faults`; None if there was any.

    Bits per value, persistence and backing scale belong to the tensor: a value given at one access holds for
    all, and two accesses that disagree are a fault.
    """
    before = len(faults)
    if len(workload.einsums) > MAX_EINSUMS:
        message = f"the workload has {len(workload.einsums)} Einsums, at most {MAX_EINSUMS} are taken"
        what = "split it; layers that are alike are one, n_instances times"
        faults.add(("workload", "einsums"), message, what, code="too-large")
        return None
    projections = _all_projections(workload, faults)
    if len(faults) > before:
        return None
    carried = carried_reads(workload, projections)
    _check_writes(workload, carried, faults)
    if len(faults) > before:
        return None
    check_cascade(workload, carried, faults)
    _check_ranks(workload, projections, faults)
    generational = generational_ranks(workload, carried, faults)
    sized = rank_sizes_of(workload.rank_sizes, ("workload", "rank_sizes"), symbols, Faults())
    projections = with_last_generations(workload, projections, generational, dict(sized))
    extended = extended_ranks(workload, projections, carried, generational)
    own = [len(e.tensor_accesses) for e in workload.einsums]
    made = with_initial_tensors(workload, projections, generational, extended, symbols)
    workload, projections, extended = made
    _check_standing(workload, projections, own, faults)
    variables = {e.name: _indexing(e, found) for e, found in zip(workload.einsums, projections, strict=True)}
    if len(faults) > before:
        return None
    resolvers = _resolvers(workload, renames, variables, faults)
    scopes = tuple(r.scope for r in resolvers)
    einsums = _einsums(workload, projections, own, extended, resolvers, symbols, faults)
    init, boundary = (
        unwritten_values(workload, section, generational, symbols, faults) for section in ("init", "boundary")
    )
    if len(faults) > before or einsums is None:
        return None
    einsums = without_boundaries(einsums, init, faults, boundary, generational)
    if len(faults) > before:
        return None
    sizes = tuple(
        (r, s) for r, s in rank_sizes_of(workload.rank_sizes, ("workload", "rank_sizes"), symbols, faults)
    )
    cascade = Cascade(einsums, sizes, workload.name, tuple(generational.items()), init, boundary)
    return Resolved(cascade, scopes)


def _all_projections(workload: Workload, faults: Faults) -> list[Projections]:
    """The projections of the accesses of every Einsum."""
    result: list[Projections] = []
    for i, einsum in enumerate(workload.einsums):
        path: Path = ("workload", "einsums", i)
        here: Projections = []
        for j, access in enumerate(einsum.tensor_accesses):
            here.append(_projection(access, (*path, "tensor_accesses", j), faults))
        result.append(here)
    return result


def _check_writes(workload: Workload, carried: Sequence[CarriedAccess], faults: Faults) -> None:
    """An Einsum writes a tensor once, and reads no tensor that it writes, except at earlier generations."""
    earlier = {one.read for one in carried}
    for i, einsum in enumerate(workload.einsums):
        for j, access in enumerate(einsum.tensor_accesses):
            path: Path = ("workload", "einsums", i, "tensor_accesses", j)
            others = [
                a for k, a in enumerate(einsum.tensor_accesses[:j])
                if a.name == access.name and (i, k) not in earlier
            ]  # fmt: skip
            _check_write(einsum, access, [] if (i, j) in earlier else others, path, faults)


def _check_write(
    einsum: EinsumSpec, access: AccessSpec, before: Sequence[AccessSpec], path: Path, faults: Faults
) -> None:
    """`before`: the earlier accesses of the same tensor in the Einsum."""
    if len({access.output, *(a.output for a in before)}) == 2:
        message = f"Einsum {einsum.name} reads and writes {access.name}: the cascade is cyclic"
        remedy = "give the result another name; what is carried forward is written ahead of what is read: "
        remedy += "S[P=p+1] = S[p]"
        faults.add((*path, "name"), message, remedy, code="cyclic-cascade")
    elif access.output and before:
        message = f"Einsum {einsum.name} writes {access.name} twice"
        faults.add((*path, "name"), message, "give the second result another name", code="invalid-einsum")
    if access.accumulate and (not access.output or einsum.is_copy_operation):
        message = f"{access.name} is {'a copy' if access.output else 'not an output'}: nothing is added to it"
        faults.add((*path, "accumulate"), message, "leave accumulate out", code="invalid-einsum")


def _indexing(einsum: EinsumSpec, projections: Projections) -> dict[str, frozenset[str]]:
    """Tensor -> rank variables that index it in any access."""
    result: dict[str, frozenset[str]] = {}
    for access, projection in zip(einsum.tensor_accesses, projections, strict=True):
        mine = frozenset(v for x in projection.values() for v in x.variables)
        result[access.name] = result.get(access.name, frozenset()) | mine
    return result


def _projection(access: AccessSpec, path: Path, faults: Faults) -> dict[str, Affine]:
    if isinstance(access.projection, tuple):
        ranks = [v.upper() for v in access.projection]
        for k, rank in enumerate(ranks):
            if rank in ranks[:k]:
                message = f"rank {rank} of {access.name} appears twice"
                remedy = "name the ranks: projection: {A: m, B: m}"
                faults.add((*path, "projection", k), message, remedy, code="duplicate-name")
        return {r: Affine.variable(v) for r, v in zip(ranks, access.projection, strict=True)}
    result: dict[str, Affine] = {}
    for rank, text in access.projection.items():
        try:
            result[rank] = parse_affine(text)
        except TextFault as fault:
            faults.text((*path, "projection", rank), fault)
    return result


def _check_ranks(workload: Workload, projections: list[Projections], faults: Faults) -> None:
    """A tensor has the same ranks wherever it is used."""
    first: dict[str, tuple[str, tuple[str, ...]]] = {}
    for i, (einsum, found) in enumerate(zip(workload.einsums, projections, strict=True)):
        for j, access in enumerate(einsum.tensor_accesses):
            ranks = tuple(found[j])
            where, known = first.setdefault(access.name, (einsum.name, ranks))
            if set(known) != set(ranks):
                faults.add(
                    ("workload", "einsums", i, "tensor_accesses", j, "projection"),
                    f"tensor {access.name} has ranks [{', '.join(ranks)}] in {einsum.name} "
                    f"but [{', '.join(known)}] in {where}",
                    f"write projection: {{{', '.join(f'{r}: ...' for r in known)}}}",
                    code="shape-mismatch",
                )


def _check_standing(
    workload: Workload, projections: Sequence[Projections], own: Sequence[int], faults: Faults
) -> None:
    """An initial tensor or boundary has the same ranks here as wherever else it is used."""
    found = list(zip(workload.einsums, projections, own, strict=True))
    known = {a.name: tuple(p[j]) for e, p, n in found for j, a in enumerate(e.tensor_accesses[:n])}
    sections = {s: getattr(workload, s) for s in ("init", "boundary")}
    at = {str(name): (s, t) for s, given in sections.items() for t, name in given.items()}
    for access, projection in (
        x for e, p, n in found for x in list(zip(e.tensor_accesses, p, strict=True))[n:]
    ):
        ranks, mine = known.setdefault(access.name, tuple(projection)), ", ".join(projection)
        if set(ranks) != {*projection}:
            message = f"{access.name} has ranks [{', '.join(ranks)}] elsewhere, and [{mine}] here"
            path = ("workload", *at[access.name])
            faults.add(path, message, "give it another name", code="shape-mismatch")


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
    own: Sequence[int],
    extended: Extended,
    resolvers: list[RenameResolver],
    symbols: Symbols,
    faults: Faults,
) -> tuple[Einsum, ...] | None:
    before = len(faults)
    bits = bits_per_value(workload, [r.scope for r in resolvers], symbols, faults)
    scale = scales(workload, symbols, faults)
    default = _defaults(workload, symbols, faults)
    defined = _definitions(workload, symbols, faults)
    times = _instances(workload.n_instances, ("workload", "n_instances"), symbols, faults)
    order: dict[str, tuple[str, ...]] = {}
    result: list[Einsum] = []
    for i, (einsum, here) in enumerate(zip(workload.einsums, projections, strict=True)):
        path: Path = ("workload", "einsums", i)
        for access, projection in zip(einsum.tensor_accesses, here, strict=True):
            order.setdefault(access.name, tuple(projection))
        accesses = tuple(
            replace(
                _access(a, order[a.name], projection, bits, scale, resolvers[i].scope, workload.densities),
                default=default.get(a.name, 0.0),
            )
            for a, projection in zip(einsum.tensor_accesses, here, strict=True)
        )
        variables = tuple(dict.fromkeys(v for a in accesses for v in a.variables))
        constraints = constraints_of(workload, i, variables, here, extended, symbols, faults)
        bounds = (
            bounds_of(einsum.name, variables, constraints, path, faults) if constraints is not None else None
        )
        if bounds is not None and any(low < 0 for low, _ in bounds):
            sized = {*workload.rank_sizes, *einsum.rank_sizes}
            shapes = [*workload.iteration_space_shape.values(), *einsum.iteration_space_shape]
            check_sizes(here, sized, shapes, dict(zip(variables, bounds, strict=True)), path, faults)
        renames = resolvers[i].check_all()
        instances = times * _instances(einsum.n_instances, (*path, "n_instances"), symbols, faults)
        operations = _operations(einsum, own[i], (*path, "operations"), defined, symbols, faults)
        if bounds is not None and constraints is not None:
            result.append(
                Einsum(
                    einsum.name, variables, constraints, accesses, bounds, einsum.is_copy_operation,
                    instances, renames, operations,
                )
            )  # fmt: skip
    _check_rank_names(workload, projections, faults)
    for section in ("densities", "default"):
        for tensor in getattr(workload, section):
            if tensor not in order:
                near = suggestion(tensor, order, "tensors")
                message = f"unknown tensor {tensor}"
                faults.add(("workload", section, tensor), message, near, key=True, code="unknown-name")
    return tuple(result) if len(faults) == before else None


def _operations(
    einsum: EinsumSpec,
    own: int,
    path: Path,
    defined: Mapping[str, Definition],
    symbols: Symbols,
    faults: Faults,
) -> Operations:
    """The checked operations of an Einsum, with operators that the workload defines expanded.

    `own`: the Einsum's own accesses. Accesses of initial tensors, which follow them, are not operands.
    """
    kinds = [k for k in ("map", "reduce", "populate") if k in einsum.operations.model_fields_set]
    operations = tuple((kind, getattr(einsum.operations, kind)) for kind in kinds)
    if not operations:
        return ()
    from polymodel.workload.defined import with_definitions

    read = [a.name for a in einsum.tensor_accesses[:own] if not a.output]
    return with_definitions(operations, read, defined, symbols, path, faults)


def _definitions(workload: Workload, symbols: Symbols, faults: Faults) -> dict[str, Definition]:
    """The operators that the workload defines."""
    if not workload.operators:
        return {}
    from polymodel.workload.defined import definitions

    return definitions(workload, symbols, faults)


def _defaults(workload: Workload, symbols: Symbols, faults: Faults) -> dict[str, float]:
    """By tensor the value of points that sparse data does not store."""
    result = {}
    for tensor, text in workload.default.items():
        try:
            result[tensor] = float(evaluate_number(text, symbols))
        except TextFault as fault:
            faults.text(("workload", "default", tensor), fault)
    return result


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
        access.accumulate,
    )


def _instances(value: Value | str, path: Path, symbols: Symbols, faults: Faults) -> int:
    wrong = f"n_instances {value} is not a whole number of at least 1", "write 1 or more"
    return at_least_one(value, path, symbols, faults, wrong)


def _check_rank_names(workload: Workload, projections: list[Projections], faults: Faults) -> None:
    """`rank_sizes` and `iteration_space_shape` name ranks and rank variables that exist."""
    per_einsum = [{r for p in found for r in p} for found in projections]
    ranks = sorted(set().union(*per_einsum)) if per_einsum else []
    variables = sorted({v for f in projections for p in f for x in p.values() for v in x.variables})
    for rank in workload.rank_sizes:
        if rank not in ranks:
            path: Path = ("workload", "rank_sizes", rank)
            message = f"unknown rank {rank}: no tensor has it"
            faults.add(path, message, suggestion(rank, ranks, "ranks"), key=True, code="unknown-name")
    for variable in workload.iteration_space_shape:
        if variable not in variables:
            path = ("workload", "iteration_space_shape", variable)
            near = suggestion(variable, variables, "rank variables")
            faults.add(path, f"unknown rank variable {variable}", near, key=True, code="unknown-name")
    for i, (einsum, known) in enumerate(zip(workload.einsums, per_einsum, strict=True)):
        for rank in einsum.rank_sizes:
            if rank not in known:
                path = ("workload", "einsums", i, "rank_sizes", rank)
                near = suggestion(rank, sorted(known), "ranks")
                what = f"unknown rank {rank}: no tensor of {einsum.name} has it"
                faults.add(path, what, near, key=True, code="unknown-name")


def check_cascade(workload: Workload, carried: Sequence[CarriedAccess], faults: Faults) -> None:
    """Add a fault for every inconsistency between Einsums; `carried` reads may precede the producer."""
    if not workload.einsums:
        what = "the workload has no Einsum"
        remedy = "add e.g. `- Y[m] = A[m, k] * B[k]`"
        faults.add(("workload", "einsums"), what, remedy, code="missing-section")
    names: dict[str, int] = {}
    producers: dict[str, int] = {}
    for i, einsum in enumerate(workload.einsums):
        path: Path = ("workload", "einsums", i)
        if einsum.name in names:
            fault = f"Einsum {einsum.name} is given twice"
            faults.add(path, fault, "give it another name", code="duplicate-name")
        names.setdefault(einsum.name, i)
        outputs = [a.name for a in einsum.tensor_accesses if a.output]
        if not outputs:
            faults.add(
                path,
                f"Einsum {einsum.name} has no output",
                "mark one tensor access with output: true",
                code="invalid-einsum",
            )
        for tensor in dict.fromkeys(outputs):
            if tensor in producers:
                first = workload.einsums[producers[tensor]].name
                message = f"tensor {tensor} is produced by {first} and by {einsum.name}"
                faults.add(path, message, "give one of the results another name", code="duplicate-producer")
            producers.setdefault(tensor, i)
        if einsum.is_copy_operation and len(einsum.tensor_accesses) - len(outputs) != 1:
            faults.add(
                path,
                f"copy Einsum {einsum.name} must have one input",
                "name exactly one source tensor",
                code="invalid-einsum",
            )
    _check_order(workload, producers, {one.read for one in carried}, faults)


def _check_order(
    workload: Workload, producers: dict[str, int], earlier: set[tuple[int, int]], faults: Faults
) -> None:
    needs = [
        {
            producers[a.name] for j, a in enumerate(e.tensor_accesses)
            if not a.output and a.name in producers and (i, j) not in earlier
        } - {i}
        for i, e in enumerate(workload.einsums)
    ]  # fmt: skip
    cycle = _cycle(needs)
    if cycle:
        shown = " -> ".join(workload.einsums[i].name for i in (*cycle, cycle[0]))
        what = f"the cascade is cyclic: {shown}"
        faults.add(("workload", "einsums", cycle[0]), what, "break the cycle", code="cyclic-cascade")
        return
    for i, einsum in enumerate(workload.einsums):
        for j, access in enumerate(einsum.tensor_accesses):
            producer = producers.get(access.name, i)
            if not access.output and producer > i and (i, j) not in earlier:
                late = workload.einsums[producer].name
                path: Path = ("workload", "einsums", i, "tensor_accesses", j, "name")
                message = f"Einsum {einsum.name} reads {access.name} before {late} produces it"
                faults.add(path, message, f"list {late} before {einsum.name}", code="order-violated")


def _cycle(needs: list[set[int]]) -> list[int]:
    """Some cycle of the graph, empty if there is none."""
    done: set[int] = set()
    for start in range(len(needs)):
        trail: list[int] = []
        stack = [(start, iter(sorted(needs[start])))]
        on_trail = {start}
        if start in done:
            continue
        trail.append(start)
        while stack:
            node, below = stack[-1]
            step = next(below, None)
            if step is None:
                done.add(node)
                stack.pop()
                on_trail.discard(trail.pop())
            elif step in on_trail:
                return trail[trail.index(step) :]
            elif step not in done:
                stack.append((step, iter(sorted(needs[step]))))
                trail.append(step)
                on_trail.add(step)
    return []


def bits_per_value(
    workload: Workload, scopes: Sequence[SetScope], symbols: Symbols, faults: Faults
) -> dict[str, int]:
    """Bits per value of every tensor: the value given at an access, else that of the entry of
    `bits_per_value` whose set expression contains the tensor."""
    before = len(faults)
    result = _explicit_bits(workload, symbols, faults)
    general = _keyed_bits(workload, scopes, symbols, faults)
    for tensor, bits in general.items():
        result.setdefault(tensor, bits)
    if len(faults) > before:
        return result
    for i, einsum in enumerate(workload.einsums):
        lacking = [a.name for a in einsum.tensor_accesses if a.name not in result]
        if lacking:
            remedy = "add `bits_per_value: {All: 8}` to the workload, or bits_per_value to each access"
            message = f"no bits_per_value for {', '.join(lacking)}"
            faults.add(("workload", "einsums", i, "tensor_accesses"), message, remedy, code="missing-value")
            result.update(dict.fromkeys(lacking, 0))
    return result


def _explicit_bits(workload: Workload, symbols: Symbols, faults: Faults) -> dict[str, int]:
    result: dict[str, int] = {}
    for i, einsum in enumerate(workload.einsums):
        for j, access in enumerate(einsum.tensor_accesses):
            if access.bits_per_value is None:
                continue
            path: Path = ("workload", "einsums", i, "tensor_accesses", j, "bits_per_value")
            bits = _bits(access.bits_per_value, path, symbols, faults)
            if result.setdefault(access.name, bits) != bits:
                message = f"tensor {access.name} has {bits} bits here and {result[access.name]} elsewhere"
                faults.add(path, message, "give the same bits in all accesses", code="inconsistent-values")
    return result


def _keyed_bits(
    workload: Workload, scopes: Sequence[SetScope], symbols: Symbols, faults: Faults
) -> dict[str, int]:
    result: dict[str, int] = {}
    keys: dict[str, str] = {}
    ordered = sorted(workload.bits_per_value.items(), key=lambda item: item[0].strip() == "Other")
    for key, value in ordered:
        path: Path = ("workload", "bits_per_value", key)
        bits = _bits(value, path, symbols, faults)
        if key.strip() == "Other":
            covered = {t for s in scopes for t in s.tensors} - set(result)
        else:
            covered = _covered(key, scopes, path, faults)
        for tensor in sorted(covered):
            if result.setdefault(tensor, bits) != bits:
                message = (
                    f"`{keys[tensor]}` and `{key}` give tensor {tensor} {result[tensor]} and {bits} bits"
                )
                what = "use Other for the tensors that no other key names"
                faults.add(path, message, what, key=True, code="inconsistent-values")
            keys.setdefault(tensor, key)
    return result


def _covered(key: str, scopes: Sequence[SetScope], path: Path, faults: Faults) -> set[str]:
    tree = parse_set(key, key=True)
    covered: set[str] = set()
    for scope in scopes:
        try:
            covered |= tensor_set(tree, scope)
        except TextFault as fault:
            faults.text(path, fault, key=True)
    return covered


def _bits(value: Value | str, path: Path, symbols: Symbols, faults: Faults) -> int:
    wrong = f"{value} bits per value", "write a whole number of at least 1"
    return at_least_one(value, path, symbols, faults, wrong)


def at_least_one(
    value: Value | str, path: Path, symbols: Symbols, faults: Faults, wrong: tuple[str, str]
) -> int:
    """A positive integer; otherwise 1 and a fault with the message and remedy of `wrong`."""
    try:
        result = evaluate_number(value, symbols)
    except TextFault as fault:
        faults.text(path, fault)
        return 1
    if math.isinf(result) or result < 1 or result != int(result):
        faults.add(path, *wrong, code="not-positive-integer")
        return 1
    return int(result)


def persistent_tensors(workload: Workload, scopes: Sequence[SetScope], faults: Faults) -> frozenset[str]:
    """The tensors that `persistent_tensors` of the workload selects in any Einsum."""
    result: set[str] = set()
    for i, text in enumerate(workload.persistent_tensors):
        tree = parse_set(text)
        for scope in scopes:
            try:
                result |= tensor_set(tree, scope)
            except TextFault as fault:
                faults.text(("workload", "persistent_tensors", i), fault)
    return frozenset(result)


def scales(workload: Workload, symbols: Symbols, faults: Faults) -> dict[str, Fraction]:
    """The `backing_storage_size_scale` of each tensor that has one."""
    result: dict[str, Fraction] = {}
    for i, einsum in enumerate(workload.einsums):
        for j, access in enumerate(einsum.tensor_accesses):
            if "backing_storage_size_scale" not in access.model_fields_set:
                continue
            path: Path = ("workload", "einsums", i, "tensor_accesses", j, "backing_storage_size_scale")
            try:
                value = evaluate_number(access.backing_storage_size_scale, symbols)
            except TextFault as fault:
                faults.text(path, fault)
                continue
            if math.isinf(value) or value < 0:
                what = f"the scale {value} is not a number of at least 0"
                faults.add(path, what, "write e.g. 0.5", code="out-of-range")
                continue
            scale = Fraction(str(value))
            if result.setdefault(access.name, scale) != scale:
                message = (
                    f"tensor {access.name} has scale {value} here and {float(result[access.name])} elsewhere"
                )
                faults.add(path, message, "give the same scale in all accesses", code="inconsistent-values")
    return result
