"""Schedules as ISL relations that a reader can print: `theta_e: I_e -> stamp` (docs/semantics.md, Stamps)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from polymodel.mapping.looptree import Loop, LoopTree, Split
from polymodel.polyhedra import needs
from polymodel.polyhedra.build import constraint_text, isl_name, parse_map
from polymodel.schedule.executed import executed
from polymodel.schedule.text import affine_in, chain
from polymodel.schedule.touch import Part, loop_origins
from polymodel.workload.einsum import Cascade

if TYPE_CHECKING:
    import islpy


def schedule_relation(cascade: Cascade, tree: LoopTree, einsum: str) -> islpy.Map:
    """`{ Einsum[rank variables] -> [one coordinate per loop and split on its path] }`, in path order.

    Counters are named after their variable, outermost `m_0`; a split's coordinate is its branch number.
    Where a loop binds no variable of the Einsum the relation has what executes: some iterations at several
    stamps, some at none. Raises Refused for what `executed` does not cover.
    """
    e = cascade[einsum]
    parts = executed(cascade, tree)[einsum]
    if parts:
        return _executed_schedule(cascade, tree, einsum, parts)
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
            mine.append((name, step.node.within(einsum)))
            starts.setdefault(variable, origins[step.id])
            coordinates.append(name)
    options = [[c for c, _ in chain(isl_name(v), each, starts[v])] for v, each in loops.items()]
    bodies = [" and ".join([*fixed, *(c for part in choice for c in part)]) for choice in product(*options)]
    variables = ", ".join(isl_name(v) for v in e.rank_variables)
    body = " or ".join(f"({b})" for b in bodies if b) or "true"
    return parse_map(f"{{ {isl_name(einsum)}[{variables}] -> [{', '.join(coordinates)}] : {body} }}")


def counter_names(tree: LoopTree, einsum: str) -> dict[int, str]:
    """The names of the loops on a path by node id: the rank variable and a number, outermost 0."""
    found: dict[int, str] = {}
    seen: dict[str, int] = {}
    for node, loop in tree.loops(einsum):
        variable = loop.variable_in(einsum)
        found[node] = f"{isl_name(variable)}_{seen.get(variable, 0)}"
        seen[variable] = seen.get(variable, 0) + 1
    return found


def _executed_schedule(cascade: Cascade, tree: LoopTree, einsum: str, parts: tuple[Part, ...]) -> islpy.Map:
    """The schedule of an Einsum whose executed iterations are given as parts."""
    counters, stamps, names = counter_names(tree, einsum), [], []
    for step in tree.path(einsum):
        if isinstance(step.node, Split):
            stamps.append(str(step.branch))
            names.append(f"split_{step.id}")
        elif isinstance(step.node, Loop):
            stamps.append(f"l{step.id}")
            names.append(counters[step.id])
    dims, variables = _dimensions(parts)
    known = cascade[einsum].rank_variables
    source = f"{isl_name(einsum)}[{', '.join(variables[v] for v in known)}]"
    pair = source, f"[{', '.join(stamps)}]"
    return needs.named_relation(tuple(p.text for p in parts), dims, pair, [isl_name(v) for v in known], names)


def executed_tiles(
    cascade: Cascade, tree: LoopTree, einsum: str, node: int, tensor: str
) -> islpy.Map | None:
    """`{ [counters above the node] -> tensor[element] }` of what executes; None where every loop binds."""
    parts = executed(cascade, tree)[einsum]
    if not parts:
        return None
    above = {i: name for i, name in counter_names(tree, einsum).items() if i < node}
    dims, variables = _dimensions(parts)
    found: islpy.Map | None = None
    for access in cascade[einsum].accesses_of(tensor):
        elements = ", ".join(affine_in(x, variables) for x in access.projection)
        pair = f"[{', '.join(f'l{i}' for i in above)}]", f"{isl_name(tensor)}[{elements}]"
        places = [f"x{i}" for i in range(len(access.projection))]
        tiles = needs.named_relation(tuple(p.text for p in parts), dims, pair, list(above.values()), places)
        found = tiles if found is None else found.union(tiles).coalesce()
    return found


def _dimensions(parts: tuple[Part, ...]) -> tuple[list[str], dict[str, str]]:
    """Names of the dimensions of all parts in a row, and those of the rank variables."""
    dims: list[str] = []
    variables: dict[str, str] = {}
    for k, part in enumerate(parts):
        mine = {v: f"v{k}_{i}" for i, v in enumerate(part.variables)}
        dims += [*(f"l{i}" for i in part.loops), *mine.values(), *(f"o{k}_{i}" for i in range(len(mine)))]
        variables.update(mine)
    return dims, variables


@dataclass(frozen=True)
class Scheduler:
    """What a LoopTree needs to know to print its schedules: the cascade it maps."""

    cascade: Cascade

    def __call__(self, tree: LoopTree, einsum: str) -> islpy.Map:
        return schedule_relation(self.cascade, tree, einsum)
