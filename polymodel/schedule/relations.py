"""Schedules and retained windows as printable relations, and elements that break a dependence."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING

from polymodel.mapping.looptree import Loop, LoopTree, Split
from polymodel.polyhedra import needs, steps
from polymodel.polyhedra.sets import bounded, constraint_text, isl_name, parse_map
from polymodel.reuse import Reuse
from polymodel.schedule.executed import executed, retained_axes
from polymodel.schedule.touch import (
    ExecutedPart,
    Factor,
    View,
    affine_in,
    chain,
    joint_blocks,
    loop_origins,
    partition,
    touch,
)
from polymodel.workload.einsum import Cascade

if TYPE_CHECKING:
    import islpy


# Schedules as printable ISL relations: `theta_e: I_e -> stamp` (docs/semantics.md, Stamps).


def schedule_relation(cascade: Cascade, tree: LoopTree, einsum: str) -> islpy.Map:
    """`{ Einsum[rank variables] -> [one coordinate per loop and split on its path] }`, in path order.

    Counters are named after their variable, outermost `m_0`; a split's coordinate is its branch number. If a
    loop binds no variable of the Einsum, the relation has the executed iterations: some at several stamps,
    some at none. Raises Refused for what `executed` does not support.
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
    result: dict[int, str] = {}
    seen: dict[str, int] = {}
    for node, loop in tree.loops(einsum):
        variable = loop.variable_in(einsum)
        result[node] = f"{isl_name(variable)}_{seen.get(variable, 0)}"
        seen[variable] = seen.get(variable, 0) + 1
    return result


def _executed_schedule(
    cascade: Cascade, tree: LoopTree, einsum: str, parts: tuple[ExecutedPart, ...]
) -> islpy.Map:
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


def executed_tiles(cascade: Cascade, tree: LoopTree, einsum: str, node: int, tensor: str) -> islpy.Map | None:
    """`{ [counters above the node] -> tensor[element] }` of executed iterations; None if every loop binds."""
    parts = executed(cascade, tree)[einsum]
    if not parts:
        return None
    above = {i: name for i, name in counter_names(tree, einsum).items() if i < node}
    dims, variables = _dimensions(parts)
    result: islpy.Map | None = None
    for access in cascade[einsum].accesses_of(tensor):
        elements = ", ".join(affine_in(x, variables) for x in access.projection)
        pair = f"[{', '.join(f'l{i}' for i in above)}]", f"{isl_name(tensor)}[{elements}]"
        places = [f"x{i}" for i in range(len(access.projection))]
        tiles = needs.named_relation(tuple(p.text for p in parts), dims, pair, list(above.values()), places)
        result = tiles if result is None else result.union(tiles).coalesce()
    return result


def _dimensions(parts: tuple[ExecutedPart, ...]) -> tuple[list[str], dict[str, str]]:
    """Names of the dimensions of all parts in sequence, and those of the rank variables."""
    dims: list[str] = []
    variables: dict[str, str] = {}
    for k, part in enumerate(parts):
        mine = {v: f"v{k}_{i}" for i, v in enumerate(part.variables)}
        dims += [*(f"l{i}" for i in part.loops), *mine.values(), *(f"o{k}_{i}" for i in range(len(mine)))]
        variables.update(mine)
    return dims, variables


# The retained window: what a storage node keeps from the previous visit, as a relation.


def retained_window(
    cascade: Cascade,
    tree: LoopTree,
    place: tuple[int, str],
    users: Sequence[str],
    policy: Reuse,
    counters: Sequence[str],
) -> tuple[islpy.Map, int] | None:
    """`{ [stamp] -> tensor[element] }` kept from the previous visit, and its largest size in elements.

    `place`: storage node and tensor; `counters`: names of the stamp's coordinates. None if nothing stays.
    Correct for nodes that nothing fills and for tensors that no Einsum below writes. Raises Refused.
    """
    node, tensor = place
    parts = executed(cascade, tree)
    views = tuple(
        View(cascade[e], access, loop_origins(cascade, tree, e)[: len(counters)], parts=parts[e])
        for e in users
        for access in cascade[e].accesses_of(tensor)
    )
    whole = touch(views, joint_blocks(views, partition(views)))
    kept = retained_axes(whole, policy)
    if not kept:
        return None
    names = [
        *(f"c{a}" if kind else f"x{a}" for f in whole.factors
          for kind, a in [*((1, a) for a in (*f.spatial, *f.temporal)), *((0, r) for r in f.ranks)]),
    ]  # fmt: skip
    elements = [f"x{r}" for r in range(len(views[0].access.projection))]
    pair = f"[{', '.join(f'c{i}' for i in range(len(counters)))}]", f"{tensor}[{', '.join(elements)}]"
    with bounded(
        f"what node {node} keeps of {tensor} takes too long to find", "look at the table of accesses"
    ):
        tiles = needs.named_relation(tuple(f.text for f in whole.factors), names, pair, counters, elements)
        return needs.retained_from_previous(tiles, whole.spatial, kept)


# One element that breaks a dependence: a product of factors has a point if each factor has one.

Element = dict[int, int]  # rank -> index


def never(made: tuple[Factor, ...], read: tuple[Factor, ...]) -> Element | None:
    """An element that is read and never produced: a product lacks a point if one factor does."""
    pairs = list(zip(made, read, strict=True))
    for k, (a, b) in enumerate(pairs):
        dims = len(a.spatial) + len(a.temporal)
        lacking = steps.missing(b.text, a.text, dims)
        if lacking is not None:
            others = [steps.missing(g.text, None, len(g.spatial) + len(g.temporal)) or () for _, g in pairs]
            return _element(read, [*others[:k], lacking, *others[k + 1 :]])
    return None


def late(made: tuple[Factor, ...], read: tuple[Factor, ...], position: int) -> Element | None:
    """An element that is produced later than it is read, with equal loops above `position`."""
    result = []
    for a, b in zip(made, read, strict=True):
        equal = sum(1 for t in a.temporal if t < position)
        later = position in a.temporal
        element = steps.shared_element(a.text, b.text, len(a.spatial), len(a.temporal), equal, later)
        if element is None:
            return None
        result.append(element[: len(a.ranks)])
    return _element(made, result)


def together(made: tuple[Factor, ...], read: tuple[Factor, ...]) -> Element | None:
    """An element that is produced and read at the same time."""
    result = []
    for a, b in zip(made, read, strict=True):
        nt = len(a.temporal)
        element = steps.shared_element(a.text, b.text, len(a.spatial), nt, nt, False)
        if element is None:
            return None
        result.append(element[: len(a.ranks)])
    return _element(made, result)


def in_part(made: tuple[Factor, ...], ranks: int) -> Element | None:
    """An element that is produced at several stamps: its first `ranks` coordinates, without versions."""
    if any(not steps.touched_once(f.text, len(f.spatial), len(f.temporal)) for f in made):
        result = [steps.touched_repeatedly(f.text, len(f.spatial), len(f.temporal)) for f in made]
        return {rank: i for rank, i in _element(made, result).items() if rank < ranks}
    return None


def _element(factors: tuple[Factor, ...], parts: list[tuple[int, ...]]) -> Element:
    pairs = zip(factors, parts, strict=True)
    return {rank: value for f, part in pairs for rank, value in zip(f.ranks, part, strict=True)}
