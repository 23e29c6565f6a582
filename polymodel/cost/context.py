"""Look-ups that every part of costing shares."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property

from polymodel.analysis.result import Analysis, Problem, TollTraffic, Traffic
from polymodel.architecture.hierarchy import Action, link_name
from polymodel.cost.actions import rounded_actions, whole_actions
from polymodel.cost.algebra import Number, nothing
from polymodel.errors import Refused
from polymodel.mapping.looptree import StorageNode, storage_chain
from polymodel.workload.einsum import TensorAccess

# What compute reads and writes at the innermost memory moves value by value.
BY_VALUE = ("reads_fill", "writes_drain")


def execution_order(problem: Problem) -> tuple[str, ...]:
    """Einsums in order of execution; copies that no path holds come where the cascade has them."""
    mapped = problem.tree.einsums
    return mapped + tuple(e.name for e in problem.cascade.einsums if e.name not in mapped)


def row_order(problem: Problem) -> Callable[[str, str], tuple[int, int]]:
    """Sort key of a row by its Einsum and its component or link (`PE.X`): executed first, outermost first."""
    names: list[str] = []
    for c in problem.hierarchy.components:
        names += [*(link_name(c.name, d.name) for d in c.spatial), c.name]
    level = {name: i for i, name in enumerate(names)}
    order = {name: i for i, name in enumerate(execution_order(problem))}
    return lambda einsum, component: (order[einsum], level[component])


def _equal(a: float, b: float) -> bool:
    """Whole numbers exactly; expected counts but for rounding."""
    return a == b if isinstance(b, int) else math.isclose(a, b, rel_tol=1e-9)


class Counts:
    """One analysis with its problem, indexed. Its numbers are an engine's, or formulas (`in_formulas`)."""

    def __init__(self, problem: Problem, analysis: Analysis) -> None:
        self.problem = problem
        self.analysis = analysis

    def __repr__(self) -> str:
        return f"Counts({self.analysis!r})"

    @cached_property
    def einsums(self) -> tuple[str, ...]:
        """Einsums in order of execution."""
        return execution_order(self.problem)

    def executions(self, einsum: str) -> int:
        return self.problem.cascade[einsum].n_instances

    def operation(self, einsum: str, component: str) -> Action:
        """The action that one operation of an Einsum is on a compute unit."""
        return self.problem.hierarchy[component].operation(self.problem.cascade[einsum].operator)

    @cached_property
    def accesses(self) -> dict[str, TensorAccess]:
        """Tensor -> its first access in the cascade, which gives its bits per value."""
        found: dict[str, TensorAccess] = {}
        for e in self.problem.cascade.einsums:
            for a in e.accesses:
                found.setdefault(a.tensor, a)
        return found

    def bits(self, tensor: str) -> int:
        """Bits of one value of the tensor."""
        return self.accesses[tensor].bits_per_value

    def is_innermost(self, traffic: Traffic) -> bool:
        """True if compute is the child that this traffic's downward side serves."""
        if self.problem.cascade[traffic.einsum].is_copy:
            return False
        chain = storage_chain(self.problem.tree, traffic.einsum, traffic.tensor)
        return bool(chain) and chain[-1].id == traffic.node

    def actions(self, moved: Traffic | TollTraffic, kind: str, action: Action) -> Number:
        """How many actions (or bits) take what `moved` counts under `kind`; transfers are rounded up."""
        elements: Number = getattr(moved, kind)
        bits = self.bits(moved.tensor)
        node = moved.node if isinstance(moved, Traffic) else None
        if not action.rounds(bits) or nothing(elements):
            return whole_actions(action, elements, bits)
        if isinstance(moved, Traffic) and kind in BY_VALUE and self.is_innermost(moved):
            return whole_actions(action, elements, bits)
        sizes = self.sizes.get((moved.einsum, node, moved.component, moved.tensor, kind), ())
        if not _equal(sum(size * n for size, n in sizes), elements):
            raise Refused(
                f"{moved.component}, {moved.tensor} in {moved.einsum}: {action.name} moves "
                f"{action.bits_per_action} bits per action, which does not divide {bits} bits per value, "
                f"and engine {self.analysis.engine} does not give the sizes of its transfers",
                "use engine exact, or give bits_per_action that divide bits_per_value",
            )
        return rounded_actions(action, sizes, bits)

    @cached_property
    def sizes(self) -> dict[tuple[str, int | None, str, str, str], tuple[tuple[int, int], ...]]:
        """(Einsum, node or None, component, tensor, kind) -> sizes of the transfers that are rounded up."""
        return {(t.einsum, t.node, t.component, t.tensor, t.kind): t.sizes for t in self.analysis.transfers}

    @cached_property
    def parents(self) -> dict[tuple[int, str], int | None]:
        """(node, tensor) -> id of the storage node it is filled from."""
        return {(b.node, b.tensor): b.parent for b in self.analysis.buffets}

    @cached_property
    def component_of(self) -> dict[int, str]:
        """Storage node id -> component."""
        walk = self.problem.tree.walk()
        return {i: node.component for i, node, _ in walk if isinstance(node, StorageNode)}
