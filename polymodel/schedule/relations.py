"""Schedules as ISL relations that a reader can print: `theta_e: I_e -> stamp` (DESIGN 3)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from polymodel.mapping.looptree import Loop, LoopTree, Split
from polymodel.polyhedra.build import constraint_text, isl_name, parse_map
from polymodel.schedule.text import chain
from polymodel.schedule.touch import loop_origins
from polymodel.workload.einsum import Cascade

if TYPE_CHECKING:
    import islpy


def schedule_relation(cascade: Cascade, tree: LoopTree, einsum: str) -> islpy.Map:
    """`{ Einsum[rank variables] -> [one coordinate per loop and split on its path] }`, in path order.

    Counters are named after their variable, outermost `m_0`; a split's coordinate is its branch number.
    """
    e = cascade[einsum]
    coordinates: list[str] = []
    fixed = [constraint_text(c) for c in e.constraints]
    loops: dict[str, list[tuple[str, Loop]]] = {}
    origins = {node: origin for node, _, origin in loop_origins(cascade, tree, einsum)}
    starts: dict[str, int] = {}
    for step in tree.path(einsum):
        if isinstance(step.node, Split):
            coordinates.append(f"split_{step.id}")
            fixed.append(f"split_{step.id} = {step.branch}")
        elif isinstance(step.node, Loop):
            variable = step.node.variable_in(einsum)
            mine = loops.setdefault(variable, [])
            name = f"{isl_name(variable)}_{len(mine)}"
            mine.append((name, step.node))
            starts.setdefault(variable, origins[step.id])
            coordinates.append(name)
    options = [[c for c, _ in chain(isl_name(v), each, starts[v])] for v, each in loops.items()]
    bodies = [" and ".join([*fixed, *(c for part in choice for c in part)]) for choice in product(*options)]
    variables = ", ".join(isl_name(v) for v in e.rank_variables)
    body = " or ".join(f"({b})" for b in bodies if b) or "true"
    return parse_map(f"{{ {isl_name(einsum)}[{variables}] -> [{', '.join(coordinates)}] : {body} }}")


@dataclass(frozen=True)
class Scheduler:
    """What a LoopTree needs to know to print its schedules: the cascade it maps."""

    cascade: Cascade

    def __call__(self, tree: LoopTree, einsum: str) -> islpy.Map:
        return schedule_relation(self.cascade, tree, einsum)
