"""The Einsums of a cascade on given tensors: for each its plan, and what counts its traffic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from polymodel.sparse.execute.plan import Plan, make_plan
from polymodel.sparse.execute.rank_loops import in_loop_variables
from polymodel.sparse.partition import Slices
from polymodel.sparse.tensor import SparseTensor
from polymodel.sparse.traffic.einsum import CountedEinsum
from polymodel.sparse.traffic.inputs import element_bits
from polymodel.spec.teaal.records import Expression, IndexedTensor, TeaalSpec


@dataclass(frozen=True, eq=False)
class CountedCascade:
    """A cascade whose traffic is counted. `symbols`, `walked`, `replacement`: as given to `traffic`."""

    spec: TeaalSpec
    symbols: Mapping[str, int]
    walked: Mapping[str, Sequence[str]] | None
    replacement: str | None

    def counted(
        self,
        expression: Expression,
        known: Mapping[str, SparseTensor],
        sizes: Mapping[str, int],
        slices: Slices,
    ) -> tuple[CountedEinsum, Plan]:
        """Return what counts one Einsum, and its plan. `known`: inputs and earlier results."""
        spec, name = self.spec, expression.name
        mapping, values = spec.mapping_of(name), {**sizes, **self.symbols}
        # No count depends on the value of a scalar.
        scalars = {f: 1.0 for e in spec.expressions for f in _factors(e) if isinstance(f, str)}
        named, here, followed = in_loop_variables(expression, mapping, spec.declaration, known, sizes)
        plan = make_plan(named, mapping, known, here, scalars, values, slices, False, {}, followed)
        whole = plan_walked(spec, name, self.walked)
        return CountedEinsum(spec, name, known, values, whole, self.replacement), plan

    def read_later(self, expression: Expression) -> bool:
        """Return whether a later Einsum reads the output of this one."""
        later = self.spec.expressions[self.spec.expressions.index(expression) + 1 :]
        return any(o.tensor == expression.name for e in later for o in e.operands)


def plan_walked(
    spec: TeaalSpec, einsum: str, walked: Mapping[str, Sequence[str]] | None
) -> dict[str, tuple[str, ...]]:
    """Return, for each input of one Einsum, the ranks that are iterated over their whole shape."""
    loops = spec.mapping_of(einsum).loop_order
    used = dict.fromkeys(o.tensor for o in spec.expression(einsum).operands)
    if walked is not None:
        return {t: tuple(r for r in walked[t] if r in loops) for t in used if t in walked}
    result: dict[str, tuple[str, ...]] = {}
    for tensor in (t for t in used if t in spec.inputs):
        names = {b.format for b in spec.bindings_of(einsum).bindings if b.tensor == tensor}
        forms = [f for f in spec.formats if f.tensor == tensor and f.configuration in names]
        ranks = [r for f in forms for r in f.ranks if r.rank != (f.rank_order or (f.ranks[-1].rank,))[-1]]
        whole = [r.rank for r in ranks if r.format == "U" and element_bits(r, "payload")]
        result[tensor] = tuple(dict.fromkeys(r for r in whole if r in loops))
    return result


def _factors(expression: Expression) -> tuple[IndexedTensor | str | float, ...]:
    return tuple(f for term in expression.terms for f in term.factors)
