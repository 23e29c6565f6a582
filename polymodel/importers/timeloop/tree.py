"""Read `architecture:` of Timeloop: the tree of nodes of version 0.4, and subtree: / local: of older
versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from polymodel.importers.timeloop.parts import (
    LoopConstraint,
    TimeloopLevel,
    bandwidths,
    dataspace_of,
    kind_of,
    memory_sizes,
    quietly,
    report_unknown,
    scope_of,
)
from polymodel.importers.timeloop.reading import (
    CYCLE,
    Fields,
    TimeloopReading,
    named_instances,
    plain_key,
    tidy_name,
)
from polymodel.spec.faults import UNKNOWN_TAG, YamlEntry, YamlNode
from polymodel.spec.numbers import Value

_OWN = ("meshx", "meshy", "instances")
TAGS = (
    "Component", "Element", "Container", "Hierarchical", "Parallel", "Pipelined", "Nothing",
    "ArithmeticStorage", "Architecture", "Storage", "Compute", "Temporal", "Spatial", "Dataspace",
    "Permutation",
)  # fmt: skip


def parts_of(
    reading: TimeloopReading, node: YamlNode, tensors: Mapping[str, str]
) -> tuple[TimeloopLevel, ...]:
    """Return the parts, outermost first, the compute unit last. `tensors`: those of the problem, if known."""
    fields = Fields(reading, node, "architecture")
    fields.ignore("version")
    builder = _TreeBuilder(reading, tensors)
    if "nodes" in fields:
        builder.new_nodes(fields.items("nodes"), "architecture.nodes", {})
    elif "subtree" in fields:
        what = "subtrees of version 0.3 and older are read as the nodes of version 0.4"
        remedy = "polymodel export timeloop writes the file anew, as version 0.4"
        reading.note(node, what, remedy, "architecture")
        builder.old_tree(fields.items("subtree"), "architecture.subtree", 1, "", {})
    else:
        fields.need("nodes", example="nodes: [...], or subtree: [...] of version 0.3")
    return builder.finished(node)


@dataclass
class _TreeBuilder:
    """Collects parts during the walk. In the older form, instances are totals, which are made relative at the
    end."""

    reading: TimeloopReading
    tensors: Mapping[str, str]
    found: list[TimeloopLevel] = field(default_factory=list)
    inherited: tuple[YamlEntry, ...] = ()
    totals: dict[str, tuple[int, int | None, int | None]] = field(default_factory=dict)

    def finished(self, node: YamlNode) -> tuple[TimeloopLevel, ...]:
        parts = self.relative() if self.totals else self.found
        names = [p.name for p in parts]
        for p in parts:
            if names.count(p.name) > 1:
                what, remedy = f"{p.name} is there twice", "give each part another name"
                self.reading.fault(p.node, what, remedy, "architecture", code="no-counterpart")
        computes = [p for p in parts if p.kind == "compute"]
        if len(computes) > 1:
            for p in computes[:-1]:
                what = f"compute unit {p.name} is not converted: the innermost one computes"
                self.reading.leave(p.node, what, "import each unit with its own mapping", "architecture")
            parts = [p for p in parts if p not in computes[:-1]]
        if not computes or not any(p.kind == "memory" for p in parts):
            lacking = "compute unit" if not computes else "storage"
            remedy = "classes such as SRAM, regfile, DRAM store; intmac, compute compute"
            message = f"the architecture has no {lacking}"
            self.reading.fault(node, message, remedy, "architecture", code="missing-component")
        return tuple(sorted(parts, key=lambda p: p.kind == "compute"))

    # The form of version 0.4 -----------------------------------------------------------------------------

    def new_nodes(
        self, nodes: tuple[YamlNode, ...], path: str, outer: Mapping[str, Value]
    ) -> dict[str, Value]:
        scope = dict(outer)
        for i, node in enumerate(nodes):
            scope = self.new_node(node, f"{path}[{i}]", scope)
        return scope

    def new_node(self, node: YamlNode, path: str, outer: dict[str, Value]) -> dict[str, Value]:
        """Read one node, and return the names that later nodes may refer to."""
        fields = Fields(self.reading, node, path, outer)
        if node.tag in ("Hierarchical", "Parallel", "Pipelined", "Architecture") or "nodes" in fields:
            self.branch(node, fields, path, outer)
            return outer
        if node.tag == UNKNOWN_TAG:
            self.reading.whole(node)
            return outer
        if node.tag == "Nothing":
            fields.ignore("name")
            return outer
        if node.tag not in ("Component", "Element", "Container", "Storage", "Compute", ""):
            what = f"!{node.tag} nodes are not known"
            remedy = "use !Component, !Container, !Hierarchical or !Parallel"
            self.reading.fault(node, what, remedy, path, code="unknown-choice")
            return outer
        if self.absent(fields):
            return outer
        given = fields.take("attributes")
        attributes = Fields(self.reading, self.joined(given, node), f"{path}.attributes", outer)
        scope = scope_of(self.reading, attributes, outer)
        attributes.scope = {**self.reading.variables, **scope}
        if node.tag == "Container":
            self.inherited = tuple(e for e in attributes.node.entries or () if plain_key(e.key) not in _OWN)
        self.name_numbers(node, attributes, scope)
        self.new_part(node, fields, attributes, scope)
        return scope if node.tag == "Container" else outer

    def name_numbers(self, node: YamlNode, attributes: Fields, scope: Mapping[str, Value]) -> None:
        """Record the numbers that expressions of later parts may refer to."""
        name, spatial = node.entry("name"), node.entry("spatial")
        if name is None:
            return
        kept = self.reading.parts
        for entry in attributes.node.entries or ():
            if entry.key in scope:
                kept[f"{name.value.scalar}.attributes.{entry.key}"] = scope[entry.key]
        for entry in (spatial.value.entries or ()) if spatial is not None else ():
            value = quietly(self.reading, entry.value, scope)
            if value is not None:
                kept[f"{name.value.scalar}.spatial.{entry.key}"] = value

    def absent(self, fields: Fields) -> bool:
        """Return whether a part has `enabled: false`: then nothing of it is read."""
        enabled = fields.take("enabled")
        if enabled is None or enabled.scalar is not False:
            return False
        self.reading.whole(fields.node)
        what = f"{fields.text('name')} is not enabled, so it is not there"
        self.reading.note(fields.node, what, "", fields.path)
        return True

    def joined(self, given: YamlNode | None, node: YamlNode) -> YamlNode:
        """Return the attributes of a node: its own, and those of the containers around it."""
        if given is not None and given.entries is None:
            return given
        own = given.entries or () if given is not None else ()
        names = {plain_key(e.key) for e in own}
        outer = tuple(e for e in self.inherited if plain_key(e.key) not in names)
        return replace(given or node, tag="", entries=(*own, *outer), elements=None, scalar=None)

    def branch(self, node: YamlNode, fields: Fields, path: str, outer: dict[str, Value]) -> None:
        fields.ignore("name")
        before, inherited = len(self.found), self.inherited
        starts, scope = [], outer
        for i, child in enumerate(fields.items("nodes")):
            starts.append(len(self.found))
            scope = self.new_node(child, f"{path}.nodes[{i}]", scope)
        self.inherited = inherited
        below = self.found[before:]
        if node.tag == "Parallel" and len(below) > 1:
            self.share_out(node, path, starts)
            if any(p.instances > 1 for p in below[:-1]):
                what = "branches of !Parallel with instances of their own have no counterpart"
                self.reading.fault(
                    node,
                    what,
                    "write one branch of components, and bypass by tensor",
                    path,
                    code="no-counterpart",
                )
            names = ", ".join(p.name for p in below)
            what = f"{names} are read as one behind the other: what a branch does not keep bypasses it"
            self.reading.note(node, what, "", path)
        if node.tag == "Pipelined":
            remedy = "write the stages as a fused mapping (docs/howto/fuse.md)"
            message = "!Pipelined nodes have no counterpart"
            self.reading.fault(node, message, remedy, path, code="no-counterpart")

    def share_out(self, node: YamlNode, path: str, starts: list[int]) -> None:
        """Assign each tensor to one branch of a !Parallel: what a branch does not keep bypasses it, as in
        Timeloop.

        If no branch specifies what it keeps, the mapping decides.
        """
        bounds = list(zip(starts, [*starts[1:], len(self.found)], strict=True))
        kept = [frozenset[str]().union(*(p.held.keep for p in self.found[a:b])) for a, b in bounds]
        every = frozenset[str]().union(*kept)
        for tensor in sorted(t for t in every if sum(t in k for k in kept) > 1):
            what = f"{tensor} is kept in two branches of one !Parallel"
            self.reading.fault(node, what, "keep it in one of them", path, code="misplaced-storage")
        for (a, b), own in zip(bounds, kept, strict=True):
            for i in range(a, b if every else a):
                held = self.found[i].held
                past = frozenset(self.tensors.values()) - own
                self.found[i] = replace(self.found[i], held=replace(held, bypass=held.bypass | past))

    def new_part(
        self, node: YamlNode, fields: Fields, attributes: Fields, scope: Mapping[str, Value]
    ) -> None:
        title = fields.need("name", example="name: PE")
        if title is None:
            return
        text, ranged = named_instances(self.reading, title, str(title.scalar))
        name = tidy_name(self.reading, title, text)
        spatial = fields.fields("spatial")
        x = y = None
        if spatial is not None:
            x, y = spatial.count("meshx"), spatial.count("meshy")
        elif "meshx" in attributes or "meshy" in attributes:
            x, y = attributes.count("meshx"), attributes.count("meshy")
        mesh = (x or 1, y or 1) if x or y else (ranged, 1)
        part = TimeloopLevel(name, "container", node, mesh, bool(x or y) or ranged == 1, own_mesh=True)
        if node.tag != "Container":
            found = self.component(part, fields, attributes)
            if found is None:
                return
            part = found
        part = self.constrained(part, fields)
        cycle = scope.get(CYCLE)
        self.found.append(replace(part, cycle=cycle if isinstance(cycle, (int, float)) else None))

    def component(
        self, part: TimeloopLevel, fields: Fields, attributes: Fields | None
    ) -> TimeloopLevel | None:
        """Return the part as a memory or compute unit; None if it is neither."""
        words = f"{fields.text('class')} {fields.text('subclass')}"
        node = fields.node
        kind = kind_of(words, attributes)
        if kind is None:
            what = (
                f"{part.name} is not converted: class {words.strip() or '(none)'} neither stores nor computes"
            )
            remedy = "give it a storage or compute class, if it is on the way of the data"
            self.reading.leave(node, what, remedy, fields.path)
            self.reading.whole(node)
            return None
        backing = "dram" in words.lower()
        sizes = memory_sizes(self.reading, attributes, backing)
        read, write, shared = bandwidths(attributes) if kind == "memory" else (None, None, False)
        return replace(
            part,
            kind=kind,
            bits=sizes.bits,
            entries=sizes.entries if kind == "memory" else None,
            words=sizes.words,
            cluster=sizes.cluster,
            metadata=sizes.metadata,
            read=read,
            write=write,
            shared_port=shared,
            sparse=fields.take("sparse_optimizations"),
        )

    def constrained(self, part: TimeloopLevel, fields: Fields) -> TimeloopLevel:
        """Return the part with its constraints: what a level keeps, what a fanout does not share, and their
        loops."""
        constraints = fields.fields("constraints")
        if constraints is None:
            return part
        told = constraints.fields("dataspace", "datatype")
        if told is not None:
            report_unknown(self.reading, told, self.tensors)
        held = dataspace_of(told, self.tensors)
        spatial = constraints.fields("spatial")
        temporal = constraints.fields("temporal")
        given = (spatial.words("no_reuse") or ()) if spatial is not None and part.instances > 1 else ()
        alone = {self.tensors[w] for w, _ in given if w in self.tensors}
        loops = ((False, temporal), (True, spatial))
        asked = tuple(
            LoopConstraint(across, told.node, told.path) for across, told in loops if told is not None
        )
        return replace(part, held=held, unicast=frozenset(alone), asked=asked)

    # The form of versions 0.2 and 0.3 --------------------------------------------------------------------

    def old_tree(
        self, nodes: tuple[YamlNode, ...], path: str, outer: int, above: str, scope: Mapping[str, Value]
    ) -> None:
        for i, node in enumerate(nodes):
            if i:
                what = "several subtrees beside each other have no counterpart"
                remedy = "write one subtree below the other"
                self.reading.fault(node, what, remedy, path, code="no-counterpart")
            fields = Fields(self.reading, node, f"{path}[{i}]", scope)
            text, many = named_instances(self.reading, node, fields.text("name"))
            shared = fields.fields("attributes")
            inner = scope_of(self.reading, shared, scope)
            if shared is not None:
                shared.ignore("version")
            for j, local in enumerate(fields.items("local")):
                self.old_local(local, f"{fields.path}.local[{j}]", outer * many, inner)
            below = f"{above}.{text}" if above else text
            self.old_tree(fields.items("subtree"), f"{fields.path}.subtree", outer * many, below, inner)

    def old_local(self, node: YamlNode, path: str, outer: int, scope: Mapping[str, Value]) -> None:
        fields = Fields(self.reading, node, path, scope)
        title = fields.need("name", example="name: RegisterFile[0..15]")
        if title is None or self.absent(fields):
            return
        text, many = named_instances(self.reading, title, str(title.scalar))
        name = tidy_name(self.reading, title, text)
        attributes = fields.fields("attributes")
        own = scope_of(self.reading, attributes, scope)
        if attributes is not None:
            attributes.scope = own
        part = self.component(TimeloopLevel(name, "container", node), fields, attributes)
        if part is None:
            return
        total, x, y = outer * many, None, None
        if attributes is not None:
            given = attributes.count("instances")
            x, y = attributes.count("meshx"), attributes.count("meshy")
            if given is not None and total not in (1, given):
                what = f"{given} instances are not converted: the names around it make {total}"
                where = f"{path}.attributes.instances"
                self.reading.leave(
                    node, what, "say the number once", where, key="instances", changes="counts"
                )
            total = given if given is not None and total == 1 else total
            if x and y and total == 1:
                total = x * y
        cycle = own.get(CYCLE)
        self.totals[name] = total, x, y
        self.found.append(replace(part, cycle=cycle))

    def relative(self) -> list[TimeloopLevel]:
        """Convert totals of instances, from outside in, to instances per enclosing instance, along X and
        Y."""
        done: list[TimeloopLevel] = []
        outer, outer_x = 1, 1
        for part in sorted(self.found, key=lambda p: p.kind == "compute"):
            total, x, y = self.totals[part.name]
            if total % outer:
                what = f"{total} instances of {part.name} do not divide among {outer} outside it"
                remedy = "give each level a multiple"
                self.reading.fault(part.node, what, remedy, "architecture", code="inconsistent-values")
                total = outer
            fan = total // outer
            x = x if x is not None else (total // y if y else None)
            shaped = x is not None and x % outer_x == 0 and fan % max(x // outer_x, 1) == 0
            along = x // outer_x if shaped and x else fan
            along = max(along, 1)
            done.append(replace(part, mesh=(along, fan // along), shaped=shaped or fan == 1))
            outer, outer_x = total, x if shaped and x else outer_x * along
        return done


def cycle_seconds(parts: tuple[TimeloopLevel, ...], variables: Mapping[str, Value | None]) -> Value | None:
    """Return the seconds of one cycle, if the file specifies them."""
    given = [*(p.cycle for p in parts), variables.get(CYCLE)]
    return next((c for c in given if c is not None and c > 0), None)
