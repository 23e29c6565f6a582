"""Einsums and their cascade, resolved: every name checked, every projection affine.

Built by `spec` from YAML or Python objects; nothing here reads text. The ISL view
(`Einsum.iteration_space`, `Einsum.access`) is made on first use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

from polymodel.affine import Affine, Constraint
from polymodel.quantities import drawn

if TYPE_CHECKING:
    import islpy
    import networkx


@dataclass(frozen=True)
class TensorAccess:
    """How one Einsum touches one tensor: one affine expression per rank, in rank order."""

    tensor: str
    ranks: tuple[str, ...]
    projection: tuple[Affine, ...]
    output: bool = False
    bits_per_value: int = 8
    persistent: bool = False
    backing_scale: Fraction = Fraction(1)
    density: Any = None

    def __hash__(self) -> int:
        return hash((self.tensor, self.projection))  # enough, and many memories are keyed by accesses

    @property
    def variables(self) -> tuple[str, ...]:
        """Rank variables that index the tensor, in order of first appearance."""
        return tuple(dict.fromkeys(v for expr in self.projection for v in expr.variables))


@dataclass(frozen=True)
class Einsum:
    """One Einsum. `constraints` bound the iteration space completely (shapes and rank sizes).

    `rank_variables` stand in order of first appearance in the accesses. `bounds` is the
    bounding box, one inclusive (low, high) per rank variable, in the same order.
    `n_instances` already includes the workload's.
    """

    name: str
    rank_variables: tuple[str, ...]
    constraints: tuple[Constraint, ...]
    accesses: tuple[TensorAccess, ...]
    bounds: tuple[tuple[int, int], ...]
    is_copy: bool = False
    n_instances: int = 1
    renames: tuple[tuple[str, frozenset[str]], ...] = ()
    operations: tuple[tuple[str, str | None], ...] = ()

    def __hash__(self) -> int:
        return hash((self.name, self.bounds))  # enough, and many memories are keyed by Einsums

    def __repr__(self) -> str:
        from polymodel.workload.text import with_remarks

        return f"Einsum({self.name}: {with_remarks(self)})"

    def __str__(self) -> str:
        from polymodel.workload.text import sizes_text, with_remarks

        return f"{self.name}: {with_remarks(self)}; {sizes_text(self)}"

    @property
    def tensors(self) -> tuple[str, ...]:
        return tuple(a.tensor for a in self.accesses)

    @property
    def inputs(self) -> tuple[TensorAccess, ...]:
        return tuple(a for a in self.accesses if not a.output)

    @property
    def outputs(self) -> tuple[TensorAccess, ...]:
        return tuple(a for a in self.accesses if a.output)

    def access_of(self, tensor: str) -> TensorAccess:
        """The access of `tensor`; KeyError if this Einsum does not touch it."""
        for a in self.accesses:
            if a.tensor == tensor:
                return a
        raise KeyError(f"Einsum {self.name} does not access {tensor}")

    def bound(self, variable: str) -> tuple[int, int]:
        """Inclusive (low, high) of a rank variable over the whole iteration space."""
        return self.bounds[self.rank_variables.index(variable)]

    @cached_property
    def iteration_space(self) -> islpy.Set:
        """The iteration space as an ISL set, dimensions named after the rank variables."""
        from polymodel.workload.relations import iteration_space

        return iteration_space(self)

    def access(self, tensor: str) -> islpy.Map:
        """The access relation `iteration space -> tensor` as an ISL map."""
        from polymodel.workload.relations import access_relation

        return access_relation(self, tensor)


@dataclass(frozen=True)
class Cascade:
    """The Einsums of a workload in execution order, with their data dependences."""

    einsums: tuple[Einsum, ...]
    rank_sizes: tuple[tuple[str, int], ...] = ()
    name: str = ""

    def __repr__(self) -> str:
        from polymodel.workload.text import names_text

        return f"Cascade({f'{self.name}: ' if self.name else ''}{names_text(self)})"

    def __str__(self) -> str:
        from polymodel.workload.text import table_text

        return table_text(self)

    def _repr_svg_(self) -> str:
        """For notebooks: Einsums and tensors as a graph."""
        return drawn("svg_cascade", "cascade_svg", self)

    def __getitem__(self, name: str) -> Einsum:
        found = self._named.get(name)
        if found is None:
            raise KeyError(f"no Einsum {name}; there are {', '.join(e.name for e in self.einsums)}")
        return found

    def __iter__(self) -> Iterator[Einsum]:
        return iter(self.einsums)

    def __len__(self) -> int:
        return len(self.einsums)

    @cached_property
    def tensors(self) -> tuple[str, ...]:
        """Every tensor, in order of first appearance."""
        return tuple(dict.fromkeys(t for e in self.einsums for t in e.tensors))

    def producer(self, tensor: str) -> Einsum | None:
        """The Einsum that writes `tensor`, None for a workload input."""
        return next(iter(self._ends[True].get(tensor, ())), None)

    def consumers(self, tensor: str) -> tuple[Einsum, ...]:
        """Einsums that read `tensor`, in execution order."""
        return self._ends[False].get(tensor, ())

    def accesses_of(self, tensor: str) -> tuple[TensorAccess, ...]:
        """All accesses of `tensor`, in execution order."""
        return self._accesses.get(tensor, ())

    @cached_property
    def _accesses(self) -> Mapping[str, tuple[TensorAccess, ...]]:
        found: dict[str, tuple[TensorAccess, ...]] = {}
        for access in (a for e in self.einsums for a in e.accesses):
            found[access.tensor] = (*found.get(access.tensor, ()), access)
        return found

    @cached_property
    def _named(self) -> Mapping[str, Einsum]:
        return {e.name: e for e in reversed(self.einsums)}

    @cached_property
    def _ends(self) -> tuple[Mapping[str, tuple[Einsum, ...]], Mapping[str, tuple[Einsum, ...]]]:
        """By tensor, the Einsums that read it, and those that write it."""
        ends: tuple[dict[str, tuple[Einsum, ...]], dict[str, tuple[Einsum, ...]]] = ({}, {})
        for e in self.einsums:
            for tensor, output in dict.fromkeys((a.tensor, a.output) for a in e.accesses):
                ends[output][tensor] = (*ends[output].get(tensor, ()), e)
        return ends

    @cached_property
    def intermediates(self) -> frozenset[str]:
        """Tensors written by one Einsum and read by another."""
        return frozenset(t for t in self.tensors if self.producer(t) and self.consumers(t))

    @cached_property
    def shared(self) -> frozenset[str]:
        """Tensors that more than one Einsum touches."""
        return frozenset(
            t for t, many in Counter(t for e in self.einsums for t in e.tensors).items() if many > 1
        )

    @cached_property
    def graph(self) -> networkx.DiGraph:
        """Einsums and tensors as a bipartite DiGraph (`kind` on nodes), edges along the data."""
        from polymodel.workload.relations import cascade_graph

        return cascade_graph(self)
