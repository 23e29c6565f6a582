"""Run a cascade on data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from numpy.typing import NDArray

from polymodel.errors import Diagnostic, SpecError
from polymodel.sparse.coerce import coerce_tensor
from polymodel.sparse.execute.dense_ranks import Thin, find_dense_rank
from polymodel.sparse.execute.einsum import constant, count, result, walk_through
from polymodel.sparse.execute.plan import Plan, make_plan, rank_of
from polymodel.sparse.execute.rank_loops import in_loop_variables
from polymodel.sparse.execute.records import EinsumCounts, Execution
from polymodel.sparse.execute.sizes import by_another_name, sizes_of_ranks
from polymodel.sparse.partition import Partitioner, Slices
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.faults import by_name, not_a, shown, suggestion
from polymodel.spec.teaal.convert import indices_of, strides_of, with_strides, without_constants
from polymodel.spec.teaal.records import EinsumMapping, FactorProduct, TeaalSpec

Tensor = SparseTensor | NDArray[Any]


def run(
    teaal: TeaalSpec,
    tensors: Mapping[str, Tensor],
    *,
    rank_sizes: Mapping[str, int] | None = None,
    symbols: Mapping[str, float] | None = None,
    slices: Literal["own", "kept"] = "own",
    values: bool = True,
    keep_loops: bool = False,
    partitioners: Mapping[str, Partitioner] | None = None,
) -> Execution:
    """Run every Einsum of a cascade on sparse operands, in the order of the spec, according to its mapping.

    `tensors`: every input by name: a `SparseTensor`, a SciPy sparse matrix, or an array with one axis per
    declared rank. `rank_sizes`: those of ranks that no tensor has. `symbols`: values of scalars and of sizes
    of splits. `slices`: a later Einsum that is sliced balances the slices by its `own` tensor's nonzeros, as
    in TeAAL, or keeps the slices that were made of the rank first (`kept`, like hardware that stores A in
    slices). `values=False` only counts, and gives no results: every output that is touched counts as nonzero,
    and the innermost loops over a rank that is dense everywhere are not walked. `keep_loops` stores all
    iterations (`EinsumCounts.levels`), for drawings and traffic; otherwise innermost loops over dense fibers
    are walked once for all equivalent nodes. `partitioners`: functions by the names that the spec uses,
    `drt(A.64)`: from the ascending coordinates of one fiber of the leader, and the size (64), they return the
    first coordinate of each part. Raises SpecError for tensors that are missing, unknown or do not match, all
    at once; Refused, by name, for what is not executed: affine indices in outputs, loops over affine indices,
    terms without a tensor.
    """
    numbers = dict(symbols or {})
    teaal = with_strides(teaal, numbers)
    given = _tensors(teaal, tensors)
    sizes = sizes_of_ranks(teaal, given, rank_sizes or {})
    _check(teaal, sizes, numbers, partitioners or {}, slices)
    whole = {name: int(v) for name, v in numbers.items() if float(v).is_integer()}
    known: dict[str, SparseTensor] = dict(given)
    results: dict[str, SparseTensor] = {}
    einsums: list[EinsumCounts] = []
    kept = Slices()
    mappings = [_mapping(teaal, e.name) for e in teaal.expressions]
    thin = None if values or keep_loops else _dense_rank(teaal, mappings, known, sizes, whole)
    if thin is not None:
        known = {name: thin.representatives(t) for name, t in known.items()}
    for at, (expression, mapping) in enumerate(zip(teaal.expressions, mappings, strict=True)):
        if expression.operands:
            how = (kept, slices == "kept", partitioners or {})
            named, here, followed = in_loop_variables(expression, mapping, teaal.declaration, known, sizes)
            plan = make_plan(named, mapping, known, here, numbers, whole, *how, followed)
            ours = thin if thin is not None and thin.has(expression) else None
            later = any(o.tensor == expression.name for e in teaal.expressions[at + 1 :] for o in e.operands)
            made, counts = _walked(plan, mapping, ours, values, keep_loops, values or later)
        else:
            made, counts = constant(expression, numbers)
        einsums.append(counts)
        if made is not None:
            declared = teaal.declaration.get(expression.name, made.ranks)
            known[expression.name] = made.renamed(expression.name, declared)
        if values:
            results[expression.name] = known[expression.name]
    return Execution(results, tuple(einsums), given, sizes, teaal, numbers, values)


def _check(
    teaal: TeaalSpec,
    sizes: Mapping[str, int],
    numbers: Mapping[str, float],
    partitioners: Mapping[str, object],
    slices: str,
) -> None:
    """Raise SpecError with every missing or invalid value."""
    without_constants(teaal)
    faults = [
        *_unknown_scalars(teaal, numbers),
        *_without_size(teaal, sizes),
        *_no_functions(teaal, partitioners),
    ]
    if slices not in ("own", "kept"):
        faults.append(Diagnostic(f"slices={slices!r}", "own or kept", code="not-positive-integer"))
    if faults:
        raise SpecError(faults)


def _dense_rank(
    teaal: TeaalSpec,
    mappings: list[EinsumMapping],
    known: Mapping[str, SparseTensor],
    sizes: Mapping[str, int],
    symbols: Mapping[str, int],
) -> Thin | None:
    """Return the rank whose innermost loops need not be walked. Return None where an Einsum has a rank by
    another name, whose size and tensors are not those of the name."""
    if any(by_another_name(e, teaal.declaration) for e in teaal.expressions):
        return None
    return find_dense_rank(teaal.expressions, mappings, known, sizes, symbols)


def _walked(
    plan: Plan, mapping: EinsumMapping, thin: Thin | None, values: bool, keep_loops: bool, read: bool
) -> tuple[SparseTensor | None, EinsumCounts]:
    """Return the result of one Einsum, if it is `read`, and its counts. Its loops are large and are freed on
    return."""
    ran = walk_through(plan, mapping.spacetime, keep_loops, thin, values, read)
    made, zeros = result(ran, values) if read else (None, 0)
    return made, count(ran, mapping.spacetime, zeros, keep_loops)


def _mapping(teaal: TeaalSpec, einsum: str) -> EinsumMapping:
    """Return the mapping of an Einsum. Without one, its ranks are in the order of the output, then of the
    inputs."""
    for found in teaal.mappings:
        if found.einsum == einsum and found.loop_order:
            return found
    expression = next(e for e in teaal.expressions if e.name == einsum)
    operands = [expression.output, *expression.operands]
    order = dict.fromkeys(rank_of(v) for o in operands for i in o.indices for v, _ in i.terms)
    given = next((m for m in teaal.mappings if m.einsum == einsum), None)
    if given is not None and given.partitioning:
        what = f"the mapping of {einsum} splits ranks and gives no loop order"
        remedy = "give the order of the ranks after partitioning"
        raise SpecError([Diagnostic(what, remedy, code="missing-argument")])
    return EinsumMapping(einsum, (), tuple(order), given.spacetime if given is not None else None)


def _tensors(teaal: TeaalSpec, tensors: Mapping[str, Tensor]) -> dict[str, SparseTensor]:
    """Return the inputs in declared rank order. Raises SpecError with all faults."""
    faults: list[Diagnostic] = []
    found: dict[str, SparseTensor] = {}
    if not isinstance(tensors, Mapping):
        raise not_a("mapping", "tensors", tensors, "write e.g. tensors={'A': a, 'B': b}")
    for name in teaal.inputs:
        if name not in tensors:
            own = list(teaal.declaration[name])
            shaped = f" with ranks {', '.join(own)}" if own else ""
            remedy = (
                f"give tensors={{{name!r}: pm.random_tensor({own}, [...], 0.1)}}, or pm.read_tensor(file)"
            )
            faults.append(Diagnostic(f"tensor {name}{shaped} is missing", remedy, code="missing-argument"))
    for name, tensor in tensors.items():
        if name not in teaal.inputs:
            known = ", ".join(teaal.inputs)
            message = f"{name} is not an input of the cascade"
            faults.append(Diagnostic(message, f"its inputs are {known}", code="unknown-name"))
            continue
        try:
            found[name] = coerce_tensor(name, teaal.declaration[name], tensor, teaal.absent(name))
        except SpecError as wrong:
            faults.extend(wrong.diagnostics)
    if faults:
        raise SpecError(faults)
    return found


def _no_functions(teaal: TeaalSpec, partitioners: Mapping[str, object]) -> list[Diagnostic]:
    """Return faults for partitioners that are not functions, and for names that no partitioning of the spec
    uses."""
    by_name("partitioners", partitioners, '{"drt": function}')
    named = {d.partitioner for m in teaal.mappings for p in m.partitioning for d in p.directives} - {""}
    result = [
        Diagnostic(
            f"no rank is split by {n}", suggestion(n, sorted(named), "partitioners"), code="unknown-name"
        )
        for n in partitioners
        if n not in named
    ]
    for name, given in partitioners.items():
        if not callable(given):
            what, remedy = (
                f"the partitioner {name} is {shown(given)}",
                "give a function of coordinates and a size",
            )
            result.append(Diagnostic(what, remedy, code="wrong-type"))
    return result


def _without_size(teaal: TeaalSpec, sizes: Mapping[str, int]) -> list[Diagnostic]:
    """Return faults for ranks of loops that no tensor has, such as those of affine indices of an output, and
    that have no size."""
    ranks: set[str] = set()
    for e in teaal.expressions:
        used = {rank_of(v) for i in indices_of(e) for v, _ in i.terms}
        ranks |= used - set(by_another_name(e, teaal.declaration))
    return [
        Diagnostic(
            f"rank {rank} has no size",
            f"give rank_sizes={{{rank!r}: ...}}, or --size {rank}=...",
            code="missing-value",
        )
        for rank in sorted(ranks - set(sizes))
    ]


def _unknown_scalars(teaal: TeaalSpec, numbers: Mapping[str, float]) -> list[Diagnostic]:
    names = {
        f
        for e in teaal.expressions
        for t in e.terms
        if isinstance(t, FactorProduct)
        for f in t.factors
        if isinstance(f, str)
    }
    names |= set(strides_of(teaal))
    return [
        Diagnostic(
            f"scalar {name} has no value",
            f"give symbols={{{name!r}: ...}}, or --set {name}=...",
            code="missing-value",
        )
        for name in sorted(names - set(numbers))
    ]
