"""The protocol that every engine follows, and the problem it is given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from polymodel.analysis.result import Analysis, Traffic
from polymodel.architecture.hierarchy import Action, Component, Hierarchy
from polymodel.mapping.looptree import LoopTree, StorageNode
from polymodel.spec.coerce import check_classes
from polymodel.workload.einsum import Cascade


@dataclass(frozen=True)
class Problem:
    """A checked workload, architecture and mapping (every tile shape a number)."""

    cascade: Cascade
    hierarchy: Hierarchy
    tree: LoopTree

    def __post_init__(self) -> None:
        remedy = "pm.Problem(spec.workload, spec.arch, spec.mapping)"
        check_classes(self, remedy, {"cascade": Cascade, "hierarchy": Hierarchy, "tree": LoopTree})

    def rounding(self) -> Iterator[tuple[Component, str, Action]]:
        """(component, tensor, action) wherever moving the tensor may take more bits than it has."""
        held = [n for _, n, _ in self.tree.walk() if isinstance(n, StorageNode)]
        for c in self.hierarchy.components:
            actions = [a for a in c.actions if a.name in ("read", "write") and a.bits_per_action is not None]
            for tensor in self.cascade.tensors if actions and c.kind in ("memory", "toll") else ():
                users = [e for e in self.cascade.einsums if tensor in e.tensors]
                stored = any(n.component == c.name and tensor in n.tensors for n in held)
                kept = c.kind == "toll" and c.keep is not None
                if stored or (kept and any(tensor in c.keep.tensors(e.name) for e in users if c.keep)):
                    bits = users[0].access_of(tensor).bits_per_value
                    yield from ((c, tensor, a) for a in actions if a.rounds(bits))


class Engine(Protocol):
    """`reuse` overrides every storage node's policy; `live` asks for element-level lifetimes."""

    name: str

    def analyse(self, problem: Problem, *, reuse: str | None = None, live: bool = False) -> Analysis:
        """Count a mapping that has passed the gate (`schedule.gate.require_legal`), as `evaluate` asks it.

        Legality is not asked again: called directly on an illegal mapping, an engine may count what no
        hardware could execute, and say nothing.
        """
        ...

    def traffic(self, problem: Problem, *, reuse: str | None = None) -> tuple[Traffic, ...]:
        """What `analyse` counts as traffic, without the rest."""
        ...
