"""Totals of a workload, before anything is mapped: operations, and the sizes of inputs, results and
intermediates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from polymodel.polyhedra.sets import size
from polymodel.quantities import engineering
from polymodel.workload.einsum import Cascade, Einsum, touched


@dataclass(frozen=True)
class Totals:
    """Totals over all executions. `operations`: iterations of all Einsums but copies; `products`: those of
    Einsums that multiply and sum (at least two operands, and no `map` of their own); tensor -> elements and
    bits, each element once: `weights` (inputs that an Einsum declares as its weight), `inputs`,
    `intermediates`, `results`."""

    operations: int
    products: int
    weights: Mapping[str, tuple[int, int]]
    inputs: Mapping[str, tuple[int, int]]
    intermediates: Mapping[str, tuple[int, int]]
    results: Mapping[str, tuple[int, int]]

    @property
    def outside_bits(self) -> int:
        """Bits of weights, inputs and results: the traffic that any mapping needs if none of them is on
        chip."""
        return sum(bits for part in (self.weights, self.inputs, self.results) for _, bits in part.values())

    @property
    def intensity(self) -> float:
        """Operations per byte of weights, inputs and results, each moved once: the most that any mapping
        has."""
        return 8 * self.operations / self.outside_bits if self.outside_bits else 0.0

    def text(self) -> str:
        """Three lines for people."""
        parts = []
        for name in ("weights", "inputs", "intermediates", "results"):
            tensors: Mapping[str, tuple[int, int]] = getattr(self, name)
            if tensors:
                elements, bits = (sum(t[i] for t in tensors.values()) for i in (0, 1))
                room = engineering(bits / 8, "B")
                parts.append(f"{name} {engineering(elements)} values ({room})")
        some = (
            ""
            if self.products == self.operations
            else f", {engineering(self.products)} of them multiply and add"
        )
        return (
            f"in all: {engineering(self.operations)} operations{some}\n"
            f"values: {', '.join(parts)}\n"
            f"at most {engineering(self.intensity)} operations per byte, if weights, inputs and results move "
            "once\n"
        )


def operations(einsum: Einsum) -> int:
    """Iterations over all executions; a copy has none."""
    return 0 if einsum.is_copy else size(einsum.iteration_space) * einsum.n_instances


def products(cascade: Cascade) -> int:
    """Operations of Einsums that multiply and add up."""
    return sum(operations(e) for e in cascade if len(e.inputs) > 1 and dict(e.operations).get("map") is None)


def weights(cascade: Cascade) -> dict[str, tuple[int, int]]:
    """Weight -> elements and bits."""
    return {t: _size(cascade, t) for t in _weights(cascade)}


def _weights(cascade: Cascade) -> list[str]:
    made = {a.tensor for e in cascade for a in e.outputs}
    called = {t for e in cascade for t in dict(e.renames).get("weight", ())}
    return list(
        dict.fromkeys(
            a.tensor for e in cascade for a in e.inputs if a.tensor in called and a.tensor not in made
        )
    )


def totals(cascade: Cascade) -> Totals:
    """The totals of a workload, counted from its iteration spaces."""
    made = {a.tensor for e in cascade for a in e.outputs}
    read = {a.tensor for e in cascade for a in e.inputs}
    named = {*_weights(cascade)}
    tensors = {t: _size(cascade, t) for t in dict.fromkeys(a.tensor for e in cascade for a in e.accesses)}

    def only(names: set[str]) -> dict[str, tuple[int, int]]:
        return {t: s for t, s in tensors.items() if t in names}

    return Totals(
        sum(operations(e) for e in cascade),
        products(cascade),
        only(named),
        only(read - made - named),
        only(made & read),
        only(made - read),
    )


def _size(cascade: Cascade, tensor: str) -> tuple[int, int]:
    """Elements and bits of a tensor over all executions of the Einsums that use it most."""
    users: list[Einsum] = [e for e in cascade if tensor in e.tensors]
    times = max(e.n_instances for e in users)
    bits = next(a.bits_per_value for e in users for a in e.accesses if a.tensor == tensor)
    elements = size(touched(cascade, tensor)) * times
    return elements, elements * bits
