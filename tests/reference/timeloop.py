"""Timeloop v3 specs and results: build the problem, compare per-instance counts.

Timeloop's rules: every storage follows `slide`, refilled partial sums are broadcast, a spatial
dimension shares exactly the tensors that its loop does not index, reads leave out drains.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from polymodel.affine import Affine
from polymodel.analysis.engine import Engine, Problem
from polymodel.analysis.result import Analysis
from polymodel.architecture.hierarchy import Component, FanoutDim, Hierarchy, TensorRule
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Node, StorageNode
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess
from tests.reference.common import Outcome, box, sections

Numbers = dict[str, Any]
DIRECTIVE_KEYS = "target type factors permutation split keep bypass".split()


@dataclass(frozen=True)
class Level:
    """One architecture level, outermost first; `instances` of it in all."""

    name: str
    compute: bool
    instances: int


@dataclass(frozen=True)
class Factor:
    """One loop of the mapping, outermost first: `last` is its bound in the last outer iteration."""

    level: int
    variable: str
    bound: int
    last: int
    spatial: bool


def levels(architecture: Numbers) -> tuple[Level, ...]:
    """Storage and compute levels of the architecture tree, outermost first."""
    found: list[Level] = []

    def visit(node: Numbers, outer: int) -> None:
        total = outer * _count(node["name"])
        for local in node.get("local", ()):
            name, kind = local["name"], local["class"].lower()
            instances = total * _count(name)
            found.append(Level(name.split("[")[0], "mac" in kind or kind == "compute", instances))
        for child in node.get("subtree", ()):
            visit(child, total)

    for node in architecture["subtree"]:
        visit(node, 1)
    return tuple(sorted(found, key=lambda level: level.compute))


def _count(name: str) -> int:
    """How many instances a name such as `PE[0..15]` stands for."""
    match = re.search(r"\[(\d+)\.\.(\d+)\]", name)
    return int(match.group(2)) - int(match.group(1)) + 1 if match else 1


def _order(text: str | list[str] | None, dimensions: list[str]) -> list[str]:
    """A permutation, innermost first; dimensions left out come last."""
    given = text or []
    if isinstance(given, str):
        given = (
            re.split(r"[\s,]+", given.strip()) if re.search(r"[\s,]", given.strip()) else list(given.strip())
        )
    return [*given, *(d for d in dimensions if d not in given)]


def _bounds(text: str | list[str]) -> dict[str, tuple[int, int]]:
    """`M=16,2 K=4` -> {M: (16, 2), K: (4, 4)}."""
    joined = text if isinstance(text, str) else " ".join(text)
    found = {}
    for name, bound, last in re.findall(r"(\w+?)\s*=?\s*(\d+)(?:\s*,\s*(\d+))?(?=\s|,|$)", joined):
        found[name] = (int(bound), int(last or bound))
    return found


def factors(spec: Numbers, names: list[str], outcome: Outcome) -> list[Factor]:
    """All loops with more than one iteration, outermost first."""
    dimensions, found = spec["problem"]["shape"]["dimensions"], []
    for position, level in enumerate(names):
        for kind in ("temporal", "spatial"):
            for given in spec["mapping"]:
                if given["target"] != level or given["type"] != kind:
                    continue
                outcome.unknown(f"mapping of {level}", given, DIRECTIVE_KEYS)
                bounds = _bounds(given["factors"])
                for variable in reversed(_order(given.get("permutation"), dimensions)):
                    bound, last = bounds.get(variable, (1, 1))
                    found.append(Factor(position, variable, bound, last, kind == "spatial"))
    return [f for f in _whole(found, spec["problem"]["instance"], outcome) if f.bound > 1]


def _whole(found: list[Factor], instance: dict[str, int], outcome: Outcome) -> list[Factor]:
    """Check every variable's factors against its size: acc = acc * bound + last - 1, outer to inner."""
    for variable in dict.fromkeys(f.variable for f in found):
        total = 0
        for f in found:
            if f.variable == variable:
                total = total * f.bound + f.last - 1
        if total + 1 != instance[variable]:
            outcome.mismatches.append(f"factors of {variable} make {total + 1}, not {instance[variable]}")
    return found


def cascade_of(problem: Numbers) -> Cascade:
    """The one Einsum of a v3 problem."""
    shape, instance = problem["shape"], problem["instance"]
    known = {c["name"]: c.get("default", 1) for c in shape.get("coefficients", ())} | instance
    found = []
    for space in shape["data_spaces"]:
        projection = []
        for rank in space["projection"]:
            total = Affine()
            for term in rank:
                factor = known[term[1]] if len(term) > 1 and isinstance(term[1], str) else (*term, 1)[1]
                total = total + Affine.variable(term[0]).scaled(factor)
            projection.append(total)
        ranks = tuple(f"{space['name']}{i}" for i in range(len(projection)))
        output = bool(space.get("read_write", False))
        found.append(TensorAccess(space["name"], ranks, tuple(projection), output=output))
    variables = tuple(dict.fromkeys(v for a in found for v in a.variables))
    sizes = {v: instance[v] for v in variables}
    limits = tuple((0, sizes[v] - 1) for v in variables)
    return Cascade((Einsum(shape["name"], variables, box(sizes), tuple(found), limits),))


def build(spec: Numbers, outcome: Outcome) -> Problem:
    """The contract objects of a spec; every spatial loop gets a fanout dimension of its own."""
    cascade, hardware = cascade_of(spec["problem"]), levels(spec["architecture"])
    outcome.unknown("spec", spec, ("problem", "architecture", "mapping"))
    einsum = cascade.einsums[0]
    loops = factors(spec, [level.name for level in hardware], outcome)
    dims: dict[int, list[FanoutDim]] = {i: [] for i in range(len(hardware))}
    nodes: list[Node] = []
    for position, level in enumerate(hardware[:-1]):
        kept = tuple(t for t in einsum.tensors if t not in _bypassed(spec, level.name, einsum))
        nodes.append(StorageNode(level.name, kept, "slide"))
        for index, f in enumerate(loops):
            if f.level != position or f.variable not in einsum.rank_variables:
                continue
            tile = 1
            for inner in loops[index + 1 :]:
                tile *= inner.bound if inner.variable == f.variable else 1
            if not f.spatial:
                nodes.append(Loop(f.variable, tile))
                continue
            below = dims[position + 1]
            shared = frozenset(a.tensor for a in einsum.accesses if f.variable not in a.variables)
            rule = TensorRule(f"not indexed by {f.variable}", ((einsum.name, shared),))
            below.append(FanoutDim(f"{f.variable}{len(below)}", f.bound, rule, broadcast_partials=True))
            component = hardware[position + 1].name
            nodes.append(Loop(f.variable, tile, spatial=True, component=component, dim=below[-1].name))
    nodes.append(ComputeNode(einsum.name, hardware[-1].name))
    components = tuple(
        Component(level.name, "compute" if level.compute else "memory", spatial=tuple(dims[i]))
        for i, level in enumerate(hardware)
    )
    return Problem(cascade, Hierarchy(components), LoopTree(tuple(nodes)))


def _bypassed(spec: Numbers, level: str, einsum: Einsum) -> set[str]:
    """Tensors that the level does not keep."""
    gone: set[str] = set()
    for given in spec["mapping"]:
        if given["target"] == level and given["type"] in ("datatype", "bypass", "dataspace"):
            gone |= set(given.get("bypass") or ())
            if "keep" in given and given["keep"] is not None:
                gone |= set(einsum.tensors) - set(given["keep"]) if "bypass" not in given else set()
    return gone


def check(spec: Numbers, folder: Path, engine: Engine) -> Outcome:
    """Compare one folder (spec.yaml with result.json)."""
    outcome = Outcome(f"timeloop/{folder.name}")
    sections(spec, {"problem": dict, "architecture": dict, "mapping": list})
    problem = build(spec, outcome)
    result = engine.analyse(problem, reuse="slide")
    given = json.loads((folder / "result.json").read_text())
    compute = result.compute[0]
    imperfect = any(
        b != last for m in spec["mapping"] if "factors" in m for b, last in _bounds(m["factors"]).values()
    )
    for level, numbers in given["levels"].items():
        if level == compute.component:
            outcome.equal("computes", compute.operations, numbers["computes"])
            compare = outcome.inform if imperfect else outcome.equal
            compare("cycles", compute.busiest, numbers["cycles"])
            continue
        for tensor, counts in numbers["tensors"].items():
            _check_tensor(outcome, result, level, tensor, counts)
    return outcome


def _check_tensor(outcome: Outcome, result: Analysis, level: str, tensor: str, given: Numbers) -> None:
    """Capacity, reads, fills and updates of one instance."""
    buffet = next((b for b in result.buffets if (b.component, b.tensor) == (level, tensor)), None)
    row = next((t for t in result.traffic if (t.component, t.tensor) == (level, tensor)), None)
    where = f"{level}.{tensor}"
    if buffet is None or row is None:
        for kind in ("utilized_capacity", "reads_per_instance", "fills_per_instance", "updates_per_instance"):
            outcome.equal(f"{where} {kind} (bypassed)", 0, given[kind])
        return
    outcome.equal(f"{where} capacity", buffet.tile_max, given["utilized_capacity"])
    outcome.equal(f"{where} instances", buffet.instances, given["instances_used"])
    for kind, ours in (("reads", row.reads_fill), ("fills", row.writes_fill), ("updates", row.writes_drain)):
        per_instance = Fraction(ours, buffet.instances)
        outcome.equal(f"{where} {kind}", per_instance, given[f"{kind}_per_instance"])
