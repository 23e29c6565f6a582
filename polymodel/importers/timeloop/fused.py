"""Import fused mappings of the LoopTree model in Timeloop: a tree of nodes, with levels identified by number
only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from polymodel.importers.timeloop.problem import EinsumShape
from polymodel.importers.timeloop.reading import Fields, TimeloopReading, count_of
from polymodel.polyhedra.sets import bounding_box, set_from_constraints
from polymodel.spec.faults import TextFault, YamlNode, suggestion
from polymodel.spec.numbers import parse_constraints

_TYPES = ("storage", "temporal", "spatial", "compute", "sequential", "pipeline")
Written = tuple[str, dict[str, object]]


def level(target: int) -> str:
    """Return the name of a storage target."""
    return f"L{target}"


def unit(target: int) -> str:
    """Return the name of a compute target."""
    return f"C{target}"


@dataclass
class Fused:
    """The nodes of the mapping in polymodel's form, and the hardware that they imply.

    `fanouts`: component -> (name, instances) of each spatial loop.
    """

    nodes: list[Written] = field(default_factory=list)
    storages: set[int] = field(default_factory=set)
    units: set[int] = field(default_factory=set)
    fanouts: dict[str, list[tuple[str, int]]] = field(default_factory=dict)

    def arch(self) -> list[Written]:
        """Return the levels by number, outermost first, without sizes, which a fused mapping does not
        state."""
        names = [("Memory", level(t)) for t in sorted(self.storages)]
        names += [("Compute", unit(t)) for t in sorted(self.units)]
        result: list[Written] = []
        for kind, name in names:
            fields: dict[str, object] = {"name": name}
            if name in self.fanouts:
                fields["spatial"] = [{"name": n, "fanout": f} for n, f in self.fanouts[name]]
            result.append((kind, fields))
        return result


def fused_of(reading: TimeloopReading, node: YamlNode, shapes: Sequence[EinsumShape]) -> Fused:
    """Return a fused mapping over these Einsums."""
    fields = Fields(reading, node, "mapping")
    fields.ignore("type", "version")
    builder = _FusedBuilder(reading, {s.name: s for s in shapes})
    builder.known = _sizes(reading, node, shapes)
    nodes = fields.items("nodes")
    builder.targets(nodes)
    builder.found.nodes = builder.nodes(nodes, "mapping.nodes")
    missing = [s for s in builder.shapes if s not in builder.einsums]
    if missing:
        what = f"nothing computes {', '.join(missing)}"
        remedy = "add `- {type: compute, einsum: NAME, target: 9}` for each"
        reading.fault(node, what, remedy, "mapping.nodes", code="unmapped-einsum")
    return builder.found


def is_fused(node: YamlNode) -> bool:
    """Return whether this is a mapping of the LoopTree model: a tree of typed nodes."""
    kind = node.entry("type")
    if kind is not None:
        return str(kind.value.scalar) in ("fused", "looptree")
    nodes = node.entry("nodes")
    inner = nodes.value.elements or () if nodes is not None else ()
    return any(n.entry(k) for n in inner for k in ("tile_shape", "tile_size", "dspace"))


def _sizes(reading: TimeloopReading, node: YamlNode, shapes: Sequence[EinsumShape]) -> dict[str, int]:
    """Return the largest extent of each rank variable over all Einsums."""
    result: dict[str, int] = {}
    for shape in shapes:
        extents = dict(shape.sizes)
        if shape.domain:
            try:
                constraints = parse_constraints(" and ".join(shape.domain))
            except TextFault as fault:
                message = f"the instance of {shape.name}: {fault.message}"
                reading.fault(node, message, fault.remedy, "problem", code=fault.code)
                continue
            variables = tuple(shape.dims.values())
            strange = {v for c in constraints for v in c.expr.variables} - set(variables)
            if strange:
                what = f"the instance of {shape.name} names {', '.join(sorted(strange))}"
                reading.fault(
                    node,
                    what,
                    suggestion(min(strange), shape.dims, "dimensions"),
                    "problem",
                    code="unknown-name",
                )
                continue
            bounds = bounding_box(set_from_constraints(shape.name, variables, constraints))
            if bounds is None:
                what = f"the instance of {shape.name} is empty or unbounded"
                remedy = "write e.g. 0 <= m < 64 for every dimension"
                reading.fault(node, what, remedy, "problem", code="empty-space")
                continue
            extents = {v: high - low + 1 for v, (low, high) in zip(variables, bounds, strict=True)}
        for v, n in extents.items():
            result[v] = max(n, result.get(v, 0))
    return result


class _FusedBuilder:
    def __init__(self, reading: TimeloopReading, shapes: Mapping[str, EinsumShape]) -> None:
        self.reading = reading
        self.shapes = shapes
        self.known: Mapping[str, int] = {}
        self.found = Fused()
        self.einsums: list[str] = []

    def targets(self, nodes: Iterable[YamlNode]) -> None:
        """Collect storages and compute units of all nodes, including branches, because a spatial loop refers
        to what is below it."""
        for node in nodes:
            kind, target = node.entry("type"), node.entry("target")
            number = target.value.scalar if target is not None else None
            if isinstance(number, int) and not isinstance(number, bool):
                known = {"storage": self.found.storages, "compute": self.found.units}
                known.get(str(kind.value.scalar) if kind else "", set()).add(number)
            branches = node.entry("branches")
            for branch in branches.value.elements or () if branches is not None else ():
                self.targets(branch.elements or (branch,))

    def nodes(self, given: Sequence[YamlNode], path: str) -> list[Written]:
        result: list[Written] = []
        for i, node in enumerate(given):
            written = self.node(Fields(self.reading, node, f"{path}[{i}]"), given[i + 1 :])
            if written is not None:
                result.append(written)
        return result

    def node(self, fields: Fields, below: Sequence[YamlNode]) -> Written | None:
        kind = fields.text("type").lower()
        fields.ignore("name")
        if kind == "storage":
            return self.storage(fields)
        if kind == "compute":
            return self.compute(fields)
        if kind in ("sequential", "pipeline"):
            return self.split(fields, "Pipeline" if kind == "pipeline" else "Sequential")
        if kind in ("temporal", "spatial"):
            return self.loop(fields, kind == "spatial", below)
        remedy = suggestion(kind, _TYPES, "types") if kind else "add e.g. `type: temporal`"
        message = f"a node of type {kind or '(none)'}"
        self.reading.fault(fields.node, message, remedy, fields.path, code="unknown-choice")
        return None

    def target(self, fields: Fields) -> int | None:
        node = fields.need("target", example="target: 1")
        if node is None:
            return None
        return count_of(self.reading, node, {}, f"{fields.path}.target", least=0)

    def storage(self, fields: Fields) -> Written | None:
        target = self.target(fields)
        known = {t: o for s in self.shapes.values() for t, o in s.tensors.items()}
        tensors = []
        for word, node in fields.words("dspace", "data_spaces", "dataspace") or ():
            if word not in known:
                remedy = suggestion(word, sorted(known), "data spaces")
                message = f"no Einsum has the data space {word}"
                self.reading.fault(node, message, remedy, fields.path, code="unknown-name")
            tensors.append(known.get(word, word))
        if target is None:
            return None
        if not tensors:
            message = "this storage holds nothing"
            self.reading.fault(fields.node, message, "add `dspace: [A, B]`", fields.path, code="missing-key")
        return "Storage", {"component": level(target), "tensors": tensors, "reuse": "slide"}

    def compute(self, fields: Fields) -> Written | None:
        target, einsum = self.target(fields), fields.need("einsum", example="einsum: Layer1")
        if target is None or einsum is None:
            return None
        name = str(einsum.scalar)
        if name not in self.shapes:
            remedy = suggestion(name, self.shapes, "Einsums")
            self.reading.fault(einsum, f"there is no Einsum {name}", remedy, fields.path, code="unknown-name")
        elif name in self.einsums:
            message = f"{name} is computed twice"
            self.reading.fault(einsum, message, "keep one compute node", fields.path, code="duplicate-name")
        self.einsums.append(name)
        return "Compute", {"einsum": name, "component": unit(target)}

    def split(self, fields: Fields, tag: str) -> Written:
        branches: list[Written] = []
        for i, branch in enumerate(fields.items("branches")):
            inner = branch.elements if branch.elements is not None else (branch,)
            nodes = self.nodes(inner, f"{fields.path}.branches[{i}]")
            branches.append(nodes[0] if len(nodes) == 1 else ("Nested", {"nodes": nodes}))
        if not branches:
            message = "there are no branches"
            self.reading.fault(fields.node, message, "add `branches:`", fields.path, code="invalid-structure")
        return tag, {"nodes": branches}

    def loop(self, fields: Fields, spatial: bool, below: Sequence[YamlNode]) -> Written | None:
        rank = fields.need("rank", "dimension", example="rank: M")
        tile = fields.count("tile_shape", "tile_size")
        fields.ignore("spatial")
        names = {theirs: ours for s in self.shapes.values() for theirs, ours in s.dims.items()}
        if rank is None or tile is None:
            if tile is None and "tile_shape" not in fields and "tile_size" not in fields:
                self.reading.fault(
                    fields.node,
                    "`tile_shape` is missing",
                    "add `tile_shape: 4`",
                    fields.path,
                    code="missing-key",
                )
            return None
        word = str(rank.scalar)
        if word not in names:
            remedy = suggestion(word, names, "dimensions")
            message = f"no Einsum has the dimension {word}"
            self.reading.fault(rank, message, remedy, fields.path, code="unknown-name")
            return None
        variable = names[word]
        written: dict[str, object] = {"rank_variable": variable, "tile_shape": tile}
        if not spatial:
            return "Temporal", written
        component = self.below(below)
        if component is None:
            self.reading.fault(
                fields.node,
                "nothing is below this loop",
                "add a compute node",
                fields.path,
                code="invalid-structure",
            )
            return None
        dims = self.found.fanouts.setdefault(component, [])
        dims.append((f"{variable}{len(dims)}", -(-self.known.get(variable, tile) // tile)))
        return "Spatial", {**written, "component": component, "name": dims[-1][0]}

    def below(self, nodes: Sequence[YamlNode]) -> str | None:
        """Return the component whose instances a spatial loop runs over: the outermost storage below it,
        otherwise the compute unit."""
        inner = _FusedBuilder(self.reading, self.shapes)
        inner.targets(nodes)
        if inner.found.storages:
            return level(min(inner.found.storages))
        return unit(min(self.found.units)) if self.found.units else None
