"""Compute the traffic of a TeAAL spec with formats, architecture and bindings on actual tensors, exact to the
bit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.sparse.execute.plan import rank_of
from polymodel.sparse.execute.sizes import by_another_name
from polymodel.sparse.partition import Slices
from polymodel.sparse.tensor import SparseTensor
from polymodel.sparse.traffic.cascade import CountedCascade
from polymodel.sparse.traffic.parts import counted
from polymodel.sparse.traffic.records import CascadeTraffic, EinsumTraffic
from polymodel.sparse.traffic.replacement import LRU, OPTIMAL
from polymodel.sparse.traffic.rows import in_parts
from polymodel.spec.teaal.convert import strides_of, with_strides, without_constants
from polymodel.spec.teaal.records import (
    TeaalSpec,
)

# Determine which Einsums are fused, and the time of the cascade.

_UNITS = ("Compute", "Intersector", "Merger", "Sequencer")


def fused_blocks(spec: TeaalSpec) -> tuple[tuple[str, ...], ...]:
    """Return which Einsums run at the same time (TeAAL, MICRO'23, section 4.3).

    Consecutive Einsums share a block if they run on the same architecture, have the same loops above their
    first spatial one, and have no unit in common. An Einsum without spacetime is in a block by itself.
    """
    blocks: list[list[str]] = []
    state: tuple[str, tuple[str, ...]] | None = None
    used: set[str] = set()
    for expression in spec.expressions:
        name = expression.name
        bound = spec.bindings_of(name)
        mapping = spec.mapping_of(name)
        units = set()
        if bound.bindings:
            components = spec.configuration(bound.config).components
            units = {c.name for c in components if c.kind in _UNITS and bound.of(c.name)}
        outer = None
        if mapping.spacetime is not None:
            space = {s.rank for s in mapping.spacetime.space}
            first = (i for i, r in enumerate(mapping.loop_order) if r in space)
            outer = mapping.loop_order[: next(first, len(mapping.loop_order))]
        here = None if outer is None else (bound.config, outer)
        if here is not None and here == state and not used & units:
            blocks[-1].append(name)
            used |= units
        else:
            blocks.append([name])
            used, state = set(units), here
    return tuple(tuple(b) for b in blocks)


def total_time(einsums: Sequence[EinsumTraffic], blocks: Iterable[Iterable[str]]) -> float | None:
    """Return the sum over blocks of the time of the busiest component, whose times in the Einsums of the
    block are added."""
    by_name = {e.einsum: e for e in einsums}
    total: float | None = None
    for block in blocks:
        sums: dict[str, float] = {}
        for name in block:
            for component, time in by_name[name].times.items():
                if time is None:
                    return None
                sums[component] = sums[component] + time if component in sums else time
        busiest = max(sums.values(), default=0.0)
        total = busiest if total is None else total + busiest
    return total


Replacement = Literal["lru", "optimal"]
_POLICIES = (LRU, OPTIMAL)


def traffic(
    spec: TeaalSpec,
    tensors: Mapping[str, SparseTensor],
    *,
    symbols: Mapping[str, int] | None = None,
    walked: Mapping[str, Sequence[str]] | None = None,
    replacement: Replacement | None = None,
) -> CascadeTraffic:
    """Return the traffic of each Einsum between memories and buffers, the counts of its units, and the time.

    `tensors`: the cascade's inputs, ranks as declared. `symbols`: values of names used as sizes of splits.
    `walked`: tensor -> ranks that are iterated over their whole shape; by default those ranks of inputs,
    above the last rank, that are stored uncompressed with payloads (offsets) of their own. `replacement`: the
    line that a full cache drops, either the least recently used one (`lru`) or the one whose next use is
    furthest in the future (`optimal`); without it, caches must hold everything that passes through them.
    Rules: docs/sparse/traffic.md. Raises SpecError for bad input with all faults, Refused for what is not
    modelled.
    """
    spec = with_strides(spec, symbols or {})
    if strides := strides_of(spec):
        remedy = f"give symbols={{{strides[0]!r}: ...}}, or --set {strides[0]}=..."
        raise SpecError([Diagnostic(f"scalar {strides[0]} has no value", remedy, code="missing-value")])
    without_constants(spec)
    constants = [e.name for e in spec.expressions if not e.operands]
    if constants:
        message = f"Einsum {constants[0]} reads no tensor"
        raise Refused(message, "put its scalars where it is read", code="unsupported-einsum")
    sizes = _checked(spec, tensors, walked, replacement)
    cascade = CountedCascade(spec, symbols or {}, walked, replacement)
    result = in_parts(cascade, tensors, sizes) or _whole(cascade, tensors, sizes)
    blocks = fused_blocks(spec)
    return CascadeTraffic(result, blocks, total_time(result, blocks))


def _whole(
    cascade: CountedCascade, tensors: Mapping[str, SparseTensor], sizes: Mapping[str, int]
) -> tuple[EinsumTraffic, ...]:
    known, slices, result = dict(tensors), Slices(), []
    for expression in cascade.spec.expressions:
        einsum, plan = cascade.counted(expression, known, sizes, slices)
        later = cascade.read_later(expression)
        result.append(counted(einsum, plan, later))
        if later:
            known[expression.name] = einsum.nest.result
    return tuple(result)


def _checked(
    spec: TeaalSpec,
    tensors: Mapping[str, SparseTensor],
    walked: Mapping[str, Sequence[str]] | None,
    replacement: str | None,
) -> dict[str, int]:
    """Return the size of every rank, from the tensors. Raises SpecError with all faults of the arguments."""
    faults: list[Diagnostic] = []
    if not any(b.bindings for b in spec.einsum_bindings):
        message = "the spec binds nothing"
        faults.append(Diagnostic(message, "add `architecture:` and `bindings:`", code="missing-section"))
    if replacement not in (None, *_POLICIES):
        message = f"replacement is {replacement!r}"
        faults.append(Diagnostic(message, 'give "lru", "optimal" or nothing', code="unknown-choice"))
    for name, ranks in (walked or {}).items():
        known = spec.declaration.get(name, ()) if name in spec.inputs else ()
        strange = ", ".join(r for r in ranks if r not in known)
        if name not in spec.inputs or strange:
            what = f"walked names {strange or 'ranks'} of {name}"
            remedy = f"the inputs are {', '.join(spec.inputs)}; give ranks they declare"
            faults.append(Diagnostic(what, remedy, code="unknown-name"))
    sizes = _sizes(spec, tensors, faults)
    if faults:
        raise SpecError(faults)
    return sizes


def _sizes(spec: TeaalSpec, tensors: Mapping[str, SparseTensor], faults: list[Diagnostic]) -> dict[str, int]:
    """Return the size of every rank, from the tensors, and add mismatches to the faults."""
    sizes: dict[str, int] = {}
    owner: dict[str, str] = {}
    for name in spec.inputs:
        if name not in tensors:
            message = f"there is no tensor {name}"
            faults.append(Diagnostic(message, "give one for every input of the cascade", code="unknown-name"))
            continue
        given = tensors[name]
        ranks = spec.declaration[name]
        if tuple(given.ranks) != tuple(ranks):
            what = f"{name} has the ranks {', '.join(given.ranks)}, the spec declares {', '.join(ranks)}"
            faults.append(Diagnostic(what, "use swizzled() or renamed()", code="shape-mismatch"))
            continue
        reader = next(e for e in spec.expressions for o in e.operands if o.tensor == name)
        operand = next(o for o in reader.operands if o.tensor == name)
        elsewhere = by_another_name(reader, spec.declaration)
        for index, size in zip(operand.indices, given.shape, strict=True):
            rank = rank_of(index.variable) if index.variable else None
            rank = None if rank in elsewhere else rank
            if rank is not None and sizes.setdefault(rank, size) != size:
                what = f"rank {rank} has size {sizes[rank]} in {owner[rank]} and {size} in {name}"
                remedy = "tensors that share a rank agree on its size"
                faults.append(Diagnostic(what, remedy, code="inconsistent-values"))
            if rank is not None:
                owner.setdefault(rank, name)
    return sizes
