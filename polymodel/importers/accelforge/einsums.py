"""Evaluate an architecture for the Einsums of a workload: members of sets, bits of their values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from polymodel.importers.accelforge.values import EinsumView, NoValue
from polymodel.spec.expressions import NamedSet, SetScope, evaluate_set, parse_set, tensor_set
from polymodel.spec.faults import TextFault
from polymodel.workload.einsum import Cascade, Einsum

# The substitute workload for an architecture without one: three tensors of bytes.
STAND_IN = {
    "workload": {
        "rank_sizes": {"M": 2, "N": 2, "K": 2},
        "bits_per_value": {"All": 8},
        "einsums": ["output[m, n] = input[m, k] * weight[k, n]"],
    }
}


@dataclass(frozen=True)
class Einsums:
    """The Einsums of the workload, or a substitute. `components`: name -> set that it keeps, per Einsum."""

    cascade: Cascade
    given: bool

    def members(
        self, einsum: Einsum, text: str, kept: Callable[[str], str] = lambda name: ""
    ) -> frozenset[str]:
        """Return the tensors of one Einsum in a set. `kept` returns what a component of a given name
        keeps."""
        return tensor_set(parse_set(text, key=True), self._scope(einsum, kept, ()))

    def variables(
        self, einsum: Einsum, text: str, kept: Callable[[str], str] = lambda name: ""
    ) -> frozenset[str]:
        """Return the rank variables of one Einsum in a set. Raises TextFault for a set of tensors."""
        result = evaluate_set(parse_set(text, key=True), self._scope(einsum, kept, ()))
        if result.kind == "tensors":
            message = "the expression gives tensors, not rank variables"
            raise TextFault(message, 0, "append .rank_variables", code="wrong-type")
        return result.members

    def _scope(self, einsum: Einsum, kept: Callable[[str], str], open_names: tuple[str, ...]) -> SetScope:
        tensors = einsum.tensors
        own = frozenset(tensors)
        made = {a.tensor for e in self.cascade for a in e.outputs}
        read = {a.tensor for e in self.cascade for a in e.inputs}
        named = {
            "All": own,
            "Tensors": own,
            "Other": own,
            "Inputs": frozenset(a.tensor for a in einsum.inputs),
            "Outputs": frozenset(a.tensor for a in einsum.outputs),
            "Intermediates": own & made & read,
            "Shared": frozenset(t for t in own if sum(t in e.tensors for e in self.cascade) > 1),
            "Persistent": frozenset(a.tensor for a in einsum.accesses if a.persistent),
        }
        renames = dict(einsum.renames)

        def renamed(name: str) -> NamedSet | None:
            if name in renames:
                return NamedSet("tensors", frozenset(renames[name]) & own)
            inner = kept(name)
            if inner and name not in open_names:
                scope = self._scope(einsum, kept, (*open_names, name))
                return NamedSet("tensors", tensor_set(parse_set(inner, key=True), scope))
            return None

        def component(name: str) -> frozenset[str] | None:
            result = renamed(name)
            return None if result is None else result.members

        known = frozenset(t for e in self.cascade for t in e.tensors)
        variables = {t: frozenset(einsum.access_of(t).variables) for t in tensors}
        return SetScope(
            einsum.name, tensors, einsum.rank_variables, named, known, variables, renamed, component=component
        )

    def view(self, einsum: Einsum, kept: Callable[[str], str] = lambda name: "") -> EinsumView:
        """Return the properties of one Einsum that expressions may use. `kept` returns what a component of a
        given name keeps."""

        def width(text: str) -> int:
            try:
                members = self.members(einsum, text)
            except TextFault as fault:
                raise NoValue(f"{text}.bits_per_value") from fault
            bits = {einsum.access_of(t).bits_per_value for t in members}
            if len(bits) != 1:
                raise NoValue(f"{text}.bits_per_value")
            return bits.pop()

        return EinsumView(lambda text: len(self.members(einsum, text, kept)), width)

    def each(self) -> Sequence[Einsum]:
        return tuple(self.cascade)
