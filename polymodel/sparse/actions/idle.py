"""Actions that a mapping leaves without effect: their memory does not hold the tensor that they are about."""

from __future__ import annotations

from collections.abc import Iterator

from polymodel.analysis.result import Problem
from polymodel.architecture.hierarchy import Component
from polymodel.mapping.looptree import storage_chain


def idle_actions(problem: Problem) -> tuple[str, ...]:
    """One remark per memory, kind of action and tensor that no Einsum of the action keeps there."""
    return tuple(dict.fromkeys(text for c in problem.hierarchy.components for text in _idle(problem, c)))


def _idle(problem: Problem, component: Component) -> Iterator[str]:
    for number, action in enumerate(component.sparse.actions if component.sparse else ()):
        leaders: dict[str, dict[str, None]] = {}
        held: set[str] = set()
        for einsum, targets, on in action.by_einsum:
            for tensor in targets:
                leaders.setdefault(tensor, {}).update(dict.fromkeys(on))
                chain = storage_chain(problem.tree, einsum, tensor)
                if any(getattr(s.node, "component", "") == component.name for s in chain):
                    held.add(tensor)
        for tensor in (t for t in leaders if t not in held):
            name, zeros = component.name, ", ".join(leaders[tensor])
            where = f"{name}.sparse.actions[{number}]"
            yield (
                f"{where}: {action.kind} {tensor} on {zeros} does nothing, for {name} does not hold {tensor} "
                f"under this mapping; say it at a memory that holds {tensor}, or keep {tensor} in {name}"
            )
