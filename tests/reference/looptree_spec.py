"""Specs of the LoopTree model: several Einsums, one fused mapping; of hardware only the targets' numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from polymodel.affine import Affine
from polymodel.analysis.engine import Problem
from polymodel.architecture.hierarchy import Component, FanoutDim, Hierarchy
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Node, Split, StorageNode
from polymodel.polyhedra.build import bounding_box, set_from_constraints
from polymodel.spec.affine_text import parse_constraints
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess
from tests.reference.common import affine, sections

Numbers = dict[str, Any]
NODE_KEYS = {
    "storage": {"type", "target", "dspace", "name"},
    "temporal": {"type", "rank", "tile_shape", "name"},
    "spatial": {"type", "rank", "tile_shape", "name", "spatial"},
    "compute": {"type", "einsum", "target", "name"},
    "sequential": {"type", "branches", "name"},
}


def cascade_of(problems: Any) -> Cascade:
    """One Einsum per entry of `problem`, in the order given."""
    entries = problems if isinstance(problems, list) else [problems]
    return Cascade(tuple(_einsum(entry) for entry in entries))


def _einsum(entry: Numbers) -> Einsum:
    shape = entry["shape"]
    name, variables = shape["name"], tuple(shape["dimensions"])
    accesses = []
    for space in shape["data_spaces"]:
        projection = tuple(_expressions(space["projection"]))
        ranks = space.get("dimensions") or [f"{space['name']}{i}" for i in range(len(projection))]
        strange = sorted({v for x in projection for v in x.variables} - set(variables))
        if strange:
            raise ValueError(f"{name} has no dimension {strange[0]}, which indexes {space['name']}")
        output = bool(space.get("read_write", False))
        accesses.append(TensorAccess(space["name"], tuple(ranks), projection, output=output))
    instance = entry["instance"]
    if isinstance(instance, Mapping):
        instance = " and ".join(f"0 <= {v} < {size}" for v, size in instance.items())
    constraints = parse_constraints(_body(str(instance)))
    points = set_from_constraints(name, variables, constraints)
    bounds = bounding_box(points)
    if bounds is None:
        raise ValueError(f"the instance of {name} is empty or unbounded")
    return Einsum(name, variables, constraints, tuple(accesses), bounds)


def _body(text: str) -> str:
    """The constraints of an ISL set: all of `0 <= m < 4 and ...`, or what follows the colon in braces."""
    match = re.fullmatch(r"\s*\{.*:(.*)\}\s*", text, re.DOTALL)
    return match.group(1) if match else text


def _expressions(given: Any) -> Iterable[Affine]:
    """`[ C1, P1 + R1 ]` as text, or a list of expressions."""
    if isinstance(given, str):
        inside = given.strip().removeprefix("[").removesuffix("]").strip()
        return [affine(x) for x in inside.split(",")] if inside else []
    return [affine(x) for x in given]


@dataclass
class _Tree:
    """Translates mapping nodes; each spatial loop gets a fanout dimension of the component below it."""

    cascade: Cascade
    computes: tuple[int, ...]
    dims: dict[str, list[FanoutDim]]

    def nodes(self, given: list[Numbers]) -> tuple[Node, ...]:
        found: list[Node] = []
        for at, entry in enumerate(given):
            kind = entry["type"]
            if kind not in NODE_KEYS:
                raise ValueError(f"mapping nodes of type {kind} are not understood")
            strange = sorted(set(entry) - NODE_KEYS[kind])
            if strange:
                raise ValueError(f"{strange[0]} in a {kind} node of the mapping is not understood")
            if kind == "storage":
                spaces = entry["dspace"]
                tensors = (spaces,) if isinstance(spaces, str) else tuple(spaces)
                unknown = [t for t in tensors if t not in self.cascade.tensors]
                if unknown:
                    raise ValueError(f"no Einsum has the tensor {unknown[0]} of a storage node")
                found.append(StorageNode(level(entry["target"]), tensors, "slide"))
            elif kind == "compute":
                found.append(ComputeNode(entry["einsum"], unit(entry["target"])))
            elif kind == "sequential":
                found.append(Split(tuple(self.nodes(b) for b in entry["branches"])))
            else:
                found.append(self.loop(entry, given[at + 1 :]))
        return tuple(found)

    def loop(self, entry: Numbers, below: list[Numbers]) -> Loop:
        variable, tile = entry["rank"], int(entry["tile_shape"])
        widths = [
            high - low + 1
            for e in self.cascade
            if variable in e.rank_variables
            for low, high in [e.bound(variable)]
        ]
        if not widths:
            raise ValueError(f"no Einsum has the dimension {variable} of a loop")
        if entry["type"] == "temporal":
            return Loop(variable, tile)
        under = [t for t, stores in _targets(below) if stores]
        component = level(min(under)) if under else unit(self.computes[0])
        dims = self.dims.setdefault(component, [])
        dims.append(FanoutDim(f"{variable}{len(dims)}", -(-max(widths) // tile)))
        return Loop(variable, tile, spatial=True, component=component, dim=dims[-1].name)


def level(target: int) -> str:
    """How a storage target is called here."""
    return f"L{target}"


def unit(target: int) -> str:
    """How a compute target is called here."""
    return f"C{target}"


def _targets(nodes: list[Numbers]) -> Iterable[tuple[int, bool]]:
    """(target, whether it stores) of all nodes, branches included."""
    for entry in nodes:
        if entry["type"] in ("storage", "compute"):
            yield int(entry["target"]), entry["type"] == "storage"
        for branch in entry.get("branches", ()):
            yield from _targets(branch)


def build(spec: Numbers) -> Problem:
    """The contract objects of a spec. ValueError for what is not understood."""
    sections(spec, {"mapping": dict})
    cascade = cascade_of(spec["problem"])
    given = spec["mapping"]["nodes"]
    targets = list(_targets(given))
    levels = tuple(sorted({t for t, stores in targets if stores}))
    computes = tuple(sorted({t for t, stores in targets if not stores}))
    builder = _Tree(cascade, computes, {})
    tree = LoopTree(builder.nodes(given))
    gone = [e.name for e in cascade if e.name not in tree.einsums]
    if gone or len(tree.einsums) != len(cascade):
        raise ValueError(f"Einsums of problem and mapping differ: {', '.join(gone) or tree.einsums}")
    names = [(level(t), "memory") for t in levels] + [(unit(t), "compute") for t in computes]
    components = tuple(
        Component(
            name, "memory" if kind == "memory" else "compute", spatial=tuple(builder.dims.get(name, ()))
        )
        for name, kind in names
    )
    return Problem(cascade, Hierarchy(components), tree)
