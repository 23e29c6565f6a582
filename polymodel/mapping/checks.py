"""Structural checks of a LoopTree against its cascade and hierarchy; every fault names its node."""

from __future__ import annotations

from itertools import pairwise

from polymodel.architecture.hierarchy import Hierarchy
from polymodel.frozen import dataclass
from polymodel.mapping.looptree import (
    ComputeNode,
    Loop,
    LoopTree,
    Node,
    Split,
    StorageNode,
    shared_units,
    storage_chain,
    users,
)
from polymodel.mapping.resolve import ResolvedMapping, tree_locator, written_sizes
from polymodel.spec.expressions import KEYWORDS
from polymodel.spec.faults import Faults, Path, suggestion
from polymodel.workload.einsum import Cascade, Einsum


@dataclass(frozen=True)
class Subject:
    """The mapping to check, and the faults collected so far."""

    mapping: ResolvedMapping
    cascade: Cascade
    hierarchy: Hierarchy
    faults: Faults

    @property
    def tree(self) -> LoopTree:
        return self.mapping.tree

    def add(self, node: int, message: str, remedy: str, *key: str | int, code: str) -> None:
        path: Path = tree_locator(self.mapping, node)
        self.faults.add((*path, *key), message, remedy, code=code)


def check_mapping(mapping: ResolvedMapping, cascade: Cascade, hierarchy: Hierarchy, faults: Faults) -> None:
    """Add every structural fault. Tile sizes that are still symbols are checked once they are bound."""
    subject = Subject(mapping, cascade, hierarchy, faults)
    before = len(faults)
    _check_names(subject)
    _check_coverage(subject)
    if len(faults) > before:
        return
    _check_order(subject)
    _check_variables(subject)
    _check_tiles(subject)
    for einsum in cascade.einsums:
        _check_storage(subject, einsum)
        _check_compute(subject, einsum)
    _check_sharing(subject)
    _check_pipelines(subject)
    if len(faults) == before:
        check_extents(mapping, cascade, hierarchy, faults)


def _check_names(s: Subject) -> None:
    components = [c.name for c in s.hierarchy.components]
    variables = list(dict.fromkeys(v for e in s.cascade.einsums for v in e.rank_variables))
    for i, node, _ in s.tree.walk():
        if isinstance(node, StorageNode):
            _known_component(s, i, node.component, "memory", components)
            for j, tensor in enumerate(node.tensors):
                if tensor not in s.cascade.tensors:
                    near = suggestion(tensor, s.cascade.tensors, "tensors")
                    if tensor in KEYWORDS:
                        near = f"a mapping takes no sets; tensors: {', '.join(s.cascade.tensors)}"
                    s.add(i, f"unknown tensor {tensor}", near, "tensors", j, code="unknown-name")
                elif tensor in node.tensors[:j]:
                    what = f"tensor {tensor} is listed twice"
                    s.add(i, what, "list it once", "tensors", j, code="duplicate-name")
        elif isinstance(node, ComputeNode):
            _known_component(s, i, node.component, "compute", components)
            names = [e.name for e in s.cascade.einsums]
            if node.einsum not in names:
                message = f"unknown Einsum {node.einsum}"
                s.add(i, message, suggestion(node.einsum, names, "Einsums"), "einsum", code="unknown-name")
        elif isinstance(node, Loop):
            _check_loop_names(s, i, node, components, variables)


def _known_component(s: Subject, node: int, name: str, kind: str, components: list[str]) -> None:
    if name not in components:
        fault = f"unknown component {name}"
        s.add(node, fault, suggestion(name, components, "components"), "component", code="unknown-name")
    elif s.hierarchy[name].kind != kind:
        fitting = [c.name for c in s.hierarchy.components if c.kind == kind]
        what = "stores nothing" if kind == "memory" else "computes nothing"
        shown = s.hierarchy[name].kind.replace("compute", "compute unit")
        message = f"component {name} is a {shown} and {what}"
        s.add(node, message, f"name one of {', '.join(fitting)}", "component", code="invalid-component")


def _check_loop_names(s: Subject, node: int, loop: Loop, components: list[str], variables: list[str]) -> None:
    einsums = [e.name for e in s.cascade.einsums]
    for variable in dict.fromkeys((loop.rank_variable, *(v for _, v in loop.per_einsum))):
        if variable not in variables:
            near = suggestion(variable, variables, "rank variables")
            s.add(node, f"unknown rank variable {variable}", near, "rank_variable", code="unknown-name")
    for einsum, _ in loop.per_einsum:
        if einsum not in einsums:
            what = f"unknown Einsum {einsum}"
            remedy = "rank_variable"
            s.add(node, what, suggestion(einsum, einsums, "Einsums"), remedy, einsum, code="unknown-name")
    if not loop.spatial:
        return
    if loop.component not in components:
        near = suggestion(loop.component, components, "components")
        s.add(node, f"unknown component {loop.component}", near, "component", code="unknown-name")
        return
    dims = [d.name for d in s.hierarchy[loop.component].spatial]
    if loop.dim not in dims:
        near = (
            suggestion(loop.dim, dims, "dimensions") if dims else "give the component `spatial:` dimensions"
        )
        message = f"component {loop.component} has no fanout dimension {loop.dim}"
        s.add(node, message, near, "name", code="unknown-name")


def _check_coverage(s: Subject) -> None:
    """Every branch ends in a compute node, and every Einsum is computed exactly once."""
    seen: dict[str, int] = {}
    for i, node, _ in s.tree.walk():
        if isinstance(node, ComputeNode):
            if node.einsum in seen:
                fault = f"Einsum {node.einsum} is computed twice"
                s.add(i, fault, "keep one of its compute nodes", "einsum", code="invalid-structure")
            seen.setdefault(node.einsum, i)
        if isinstance(node, Split):
            for number, branch in enumerate(node.branches):
                if not branch or not isinstance(branch[-1], (ComputeNode, Split)):
                    s.add(
                        i,
                        "the branch ends without a compute node",
                        "end it with !Compute",
                        "nodes",
                        number,
                        code="invalid-structure",
                    )
    if s.tree.nodes and not isinstance(s.tree.nodes[-1], (ComputeNode, Split)):
        message = "the mapping ends without a compute node"
        s.add(0, message, "end it with !Compute or !Sequential", code="invalid-structure")
    for einsum in s.cascade.einsums:
        if einsum.name not in seen:
            what = f"Einsum {einsum.name} is not in the mapping"
            s.faults.add(("mapping",), what, "add a branch that computes it", code="unmapped-einsum")


def _check_order(s: Subject) -> None:
    order = list(s.tree.einsums)
    computes = {n.einsum: i for i, n, _ in s.tree.walk() if isinstance(n, ComputeNode)}
    for tensor in s.cascade.tensors:
        producer = s.cascade.producer(tensor)
        for consumer in s.cascade.consumers(tensor):
            if consumer in s.cascade.earlier_readers(tensor):
                continue
            if producer is not None and order.index(consumer.name) < order.index(producer.name):
                message = f"Einsum {consumer.name} reads {tensor} before {producer.name} produces it"
                remedy = f"list the branch of {producer.name} first"
                s.add(computes[consumer.name], message, remedy, "einsum", code="order-violated")


def _check_variables(s: Subject) -> None:
    """A loop binds a rank variable of some Einsum below it, and of every copy.

    For an Einsum without that rank variable, the executed iterations are inferred from its consumers, or
    repeated (`ties`).
    """
    for i, node, _ in s.tree.walk():
        if not isinstance(node, Loop):
            continue
        below = users(s.tree, i)
        bound = [e for e in below if node.variable_in(e) in s.cascade[e].rank_variables]
        for name in below:
            if name in bound or (bound and not s.cascade[name].is_copy):
                continue
            variable, known = node.variable_in(name), s.cascade[name].rank_variables
            s.add(
                i,
                f"Einsum {name}, below this loop, has no rank variable {variable}",
                f"move the loop into its branches, or bind one of {', '.join(known)}: "
                f"rank_variable: {{{name}: ...}}",
                "rank_variable",
                code="unknown-name",
            )


def _check_tiles(s: Subject) -> None:
    """A loop with tiles per Einsum has one for every Einsum that it binds, and for no other."""
    names = [e.name for e in s.cascade.einsums]
    for i, node, _ in s.tree.walk():
        if not isinstance(node, Loop):
            continue
        below = users(s.tree, i)
        bound = [e for e in below if node.variable_in(e) in s.cascade[e].rank_variables]
        for key, given in (("tile_shape", node.tiles), ("initial_tile_shape", node.first_tiles)):
            for einsum, _ in given:
                if einsum not in names:
                    near = suggestion(einsum, names, "Einsums")
                    s.add(i, f"unknown Einsum {einsum}", near, key, einsum, code="unknown-name")
                elif einsum not in bound:
                    what = "binds no rank variable of" if einsum in below else "does not stand above"
                    remedy = f"remove its tile; the loop binds {', '.join(bound)}"
                    s.add(i, f"the loop {what} Einsum {einsum}", remedy, key, einsum, code="invalid-loop")
        for einsum in bound if node.tiles else ():
            if einsum not in dict(node.tiles):
                shown = f"tile_shape: {{..., {einsum}: ...}}"
                message = f"Einsum {einsum} has no tile size"
                s.add(i, message, f"add it: {shown}", "tile_shape", code="invalid-tile-size")


def _check_storage(s: Subject, einsum: Einsum) -> None:
    for access in einsum.accesses:
        chain = storage_chain(s.tree, einsum.name, access.tensor)
        if not chain:
            compute = s.tree.path(einsum.name)[-1].id
            remedy = f"add a !Storage of {access.tensor} above the loops of {einsum.name}"
            what = f"tensor {access.tensor} has no storage on the path of Einsum {einsum.name}"
            s.add(compute, what, remedy, code="missing-storage")
        for above, below in pairwise(chain):
            outer, inner = above.node, below.node
            assert isinstance(outer, StorageNode)
            assert isinstance(inner, StorageNode)
            if s.hierarchy.index(inner.component) < s.hierarchy.index(outer.component):
                message = f"{access.tensor} goes from {outer.component} out to {inner.component}"
                remedy = f"storage follows the hierarchy inwards: swap the nodes of {access.tensor}"
                fault = f"storage order against the hierarchy: {message}"
                s.add(below.id, fault, remedy, "component", code="misplaced-storage")
            elif inner.component == outer.component:
                message = (
                    f"{inner.component} stores {access.tensor} twice on the path of Einsum {einsum.name}"
                )
                s.add(below.id, message, "keep one of the two nodes", "component", code="invalid-structure")
    _check_spatial_above(s, einsum)
    _check_rules(s, einsum)


def _check_spatial_above(s: Subject, einsum: Einsum) -> None:
    """The spatial loops above a component's storage node are exactly those over dimensions at or above the
    component."""
    path = s.tree.path(einsum.name)
    for at, step in enumerate(path):
        if not isinstance(step.node, StorageNode) or not set(step.node.tensors) & set(einsum.tensors):
            continue  # what others hold does not touch where this Einsum executes
        level = s.hierarchy.index(step.node.component)
        for earlier in path[:at]:
            loop = earlier.node
            if isinstance(loop, Loop) and loop.spatial and s.hierarchy.index(loop.component) > level:
                s.add(
                    step.id,
                    f"storage of {step.node.component} stands below the spatial loop over "
                    f"{loop.component}.{loop.dim}, which does not replicate it",
                    f"move the storage of {step.node.component} above that loop",
                    code="misplaced-storage",
                )
        for later in path[at + 1 :]:
            loop = later.node
            if isinstance(loop, Loop) and loop.spatial and s.hierarchy.index(loop.component) <= level:
                s.add(
                    later.id,
                    f"the spatial loop over {loop.component}.{loop.dim} stands below storage of "
                    f"{step.node.component}, which that dimension replicates",
                    f"move the loop above the storage of {step.node.component}",
                    code="misplaced-storage",
                )


def _check_rules(s: Subject, einsum: Einsum) -> None:
    """Check that the rules `keep` and `may_keep` of the memories are obeyed."""
    held: dict[str, set[str]] = {}
    for step in s.tree.path(einsum.name):
        if isinstance(step.node, StorageNode):
            memory = s.hierarchy[step.node.component]
            tensors = set(step.node.tensors) & set(einsum.tensors)
            held.setdefault(memory.name, set()).update(tensors)
            if memory.may_keep is None:
                continue
            allowed = memory.may_keep.tensors(einsum.name)
            if memory.keep is not None:
                allowed |= memory.keep.tensors(einsum.name)
            for tensor in sorted(tensors - allowed):
                message = f"{memory.name} may not keep {tensor} in Einsum {einsum.name}"
                fault = f"its may_keep is `{memory.may_keep.text}`"
                s.add(step.id, message, fault, "tensors", code="constraint-violated")
    if einsum.is_copy:
        return
    last = s.tree.path(einsum.name)[-1].node
    assert isinstance(last, ComputeNode)
    for memory in s.hierarchy.path_to(last.component):
        if not memory.stores or memory.keep is None:
            continue
        anywhere = set().union(*held.values())
        for tensor in sorted((memory.keep.tensors(einsum.name) & anywhere) - held.get(memory.name, set())):
            compute = s.tree.path(einsum.name)[-1].id
            message = f"{memory.name} must keep {tensor} in Einsum {einsum.name} (keep: {memory.keep.text})"
            remedy = f"add a !Storage of {tensor} in {memory.name} on its path"
            s.add(compute, message, remedy, code="constraint-violated")


def _check_compute(s: Subject, einsum: Einsum) -> None:
    """The components above a compute node precede its component in the hierarchy."""
    path = s.tree.path(einsum.name)
    last = path[-1]
    assert isinstance(last.node, ComputeNode)
    unit = last.node.component
    way, level = {c.name for c in s.hierarchy.path_to(unit)}, s.hierarchy.index(unit)
    for step in path[:-1]:
        node = step.node
        component = node.component if isinstance(node, (StorageNode, Loop)) else ""
        if not component or component in way:
            continue
        if isinstance(node, StorageNode) and not set(node.tensors) & set(einsum.tensors):
            continue
        branch = s.hierarchy[component].branch
        below = s.hierarchy.index(component) > level
        where = "stands below" if below else f"is on branch {branch}, which does not lead to"
        message = f"component {component} {where} {unit}, which computes Einsum {einsum.name}"
        s.add(
            step.id, message, f"use a component on the way to {unit}", "component", code="invalid-structure"
        )


def _check_sharing(s: Subject) -> None:
    """Every storage node is used; the producer and the consumers of a tensor share one of its storage
    nodes."""
    for i, node, _ in s.tree.walk():
        if not isinstance(node, StorageNode):
            continue
        below = {t for e in users(s.tree, i) for t in s.cascade[e].tensors}
        for j, tensor in enumerate(node.tensors):
            if tensor not in below:
                what = f"no Einsum below touches {tensor}"
                s.add(i, what, f"remove {tensor} here", "tensors", j, code="ineffective-argument")
    for tensor in s.cascade.tensors:
        producer = s.cascade.producer(tensor)
        if producer is None:
            continue
        source = {step.id for step in storage_chain(s.tree, producer.name, tensor)}
        for consumer in s.cascade.consumers(tensor):
            chain = storage_chain(s.tree, consumer.name, tensor)
            if source and chain and not source & {step.id for step in chain}:
                message = f"{producer.name} and {consumer.name} share no storage of {tensor}"
                remedy = f"add a !Storage of {tensor} above the split between them"
                s.add(chain[0].id, message, remedy, "tensors", code="misplaced-storage")


def _check_pipelines(s: Subject) -> None:
    """Pipeline stages overlap in time, so each needs compute units of its own."""
    idle = [e.name for e in s.cascade.einsums if e.is_copy]
    for p, unit, one, other in shared_units(s.tree, idle):
        others = [c.name for c in s.hierarchy.components if c.computes and c.name != unit]
        free = f" ({', '.join(others)})" if others else ": the architecture has one only, so add one"
        s.add(
            s.tree.path(other)[-1].id,
            f"stages of the Pipeline (node {p.node}) share a compute unit: {one} and {other} both execute "
            f"on {unit}",
            f"let {other} execute on another compute unit{free}, or write !Sequential",
            "component",
            code="unsupported-pipeline",
        )


# Enclosing extent of (Einsum, rank variable); None while a symbol hides it.
Extents = dict[tuple[str, str], int | None]


def check_extents(mapping: ResolvedMapping, cascade: Cascade, hierarchy: Hierarchy, faults: Faults) -> None:
    """Refuse tiles larger than the enclosing extent and spatial loops that exceed their fanout.

    The outermost loop over a variable splits the span of its bounding boxes over the Einsums below.
    """
    _Walker(mapping, cascade, hierarchy, faults).visit(mapping.tree.nodes, {}, {})


class _Walker:
    def __init__(
        self, mapping: ResolvedMapping, cascade: Cascade, hierarchy: Hierarchy, faults: Faults
    ) -> None:
        self.mapping = mapping
        self.cascade = cascade
        self.hierarchy = hierarchy
        self.faults = faults
        self.ids = iter(range(10**9))

    def visit(self, nodes: tuple[Node, ...], extents: Extents, trips: dict[tuple[str, str], int]) -> None:
        extents, trips = dict(extents), dict(trips)
        for node in nodes:
            here = next(self.ids)
            if isinstance(node, Split):
                for branch in node.branches:
                    self.visit(branch, extents, trips)
            elif isinstance(node, Loop):
                self._loop(here, node, extents, trips)

    def _loop(self, here: int, loop: Loop, extents: Extents, trips: dict[tuple[str, str], int]) -> None:
        below = users(self.mapping.tree, here)
        keys = [
            (e, loop.variable_in(e)) for e in below if loop.variable_in(e) in self.cascade[e].rank_variables
        ]
        self._enter(loop, [key for key in keys if key not in extents], extents)
        counts = [
            self._group(here, loop, group, extents)
            for group in ([[key] for key in keys] if loop.uneven else [keys])
        ]
        known = [c for c in counts if c is not None]
        if loop.spatial and known and len(known) == len(counts):
            self._check_fanout(here, loop, max(known), trips)
        for name in reversed(below):
            if name not in dict(keys):
                self._infer(name, below, extents)

    def _group(self, here: int, loop: Loop, keys: list[tuple[str, str]], extents: Extents) -> int | None:
        """Check and record a tile that several Einsums share; returns their trip count, unless a symbol hides
        it."""
        einsum = keys[0][0] if keys else ""
        seen = loop.within(einsum)
        known = [extents[key] for key in keys]
        enclosing = None if None in known or not known else max(k for k in known if k is not None)
        tile, first = seen.tile_shape, seen.initial_tile_shape
        for path, size in written_sizes(loop):
            if isinstance(size, int) and path[1:] in ((), (einsum,)):
                self._check_size(here, seen.variable_in(einsum), path, size, enclosing)
        inner = None if isinstance(tile, str) or isinstance(first, str) else max(tile, first or 0)
        for key, own in zip(keys, known, strict=True):
            # Of Einsums that have tiles of their own further out, some may have fewer values than this tile.
            extents[key] = inner if inner is None or own is None else min(own, inner)
        if enclosing is None or isinstance(tile, str) or isinstance(first, str):
            return None
        return self._trips(enclosing, tile, first)

    def _enter(self, loop: Loop, fresh: list[tuple[str, str]], extents: Extents) -> None:
        """The range that an outermost loop over a variable splits; with tiles per Einsum, the Einsum's own
        range."""
        bounds = [self.cascade[e].bound(v) for e, v in fresh]
        if loop.uneven:
            extents.update({key: high - low + 1 for key, (low, high) in zip(fresh, bounds, strict=True)})
        elif fresh:
            span = max(high for _, high in bounds) - min(low for low, _ in bounds) + 1
            extents.update(dict.fromkeys(fresh, span))

    def _infer(self, name: str, below: tuple[str, ...], extents: Extents) -> None:
        """The widest range of each rank variable of `name` that its only consumer below needs."""
        einsum = self.cascade[name]
        for access in einsum.outputs:
            readers = [
                self.cascade[e] for e in below if e != name and access.tensor in self.cascade[e].tensors
            ]
            if len(readers) != 1 or len(readers[0].accesses_of(access.tensor)) != 1:
                continue
            for mine, theirs in zip(
                access.projection, readers[0].access_of(access.tensor).projection, strict=True
            ):
                if len(mine.terms) != 1 or abs(mine.terms[0][1]) != 1:
                    continue
                variable = mine.terms[0][0]
                low, high = einsum.bound(variable)
                width: int | None = 1
                for v, c in theirs.terms:
                    bound = readers[0].bound(v)
                    extent = extents.get((readers[0].name, v), bound[1] - bound[0] + 1)
                    width = None if width is None or extent is None else width + abs(c) * (extent - 1)
                known = extents.get((name, variable), high - low + 1)
                extents[name, variable] = None if width is None or known is None else min(known, width)

    @staticmethod
    def _trips(enclosing: int, tile: int, first: int | None) -> int:
        if first is None:
            return -(-enclosing // tile)
        return 1 + max(0, -(-(enclosing - first) // tile))

    def _check_size(self, here: int, variable: str, key: Path, size: int, enclosing: int | None) -> None:
        path = (*tree_locator(self.mapping, here), *key)
        if size < 1:
            self.faults.add(path, f"tile size {size} is below 1", "write 1 or more", code="invalid-tile-size")
        elif enclosing is not None and size > enclosing:
            message = f"tile size {size} of {variable} is larger than the enclosing extent {enclosing}"
            self.faults.add(path, message, f"write at most {enclosing}", code="invalid-tile-size")

    def _check_fanout(self, here: int, loop: Loop, count: int, trips: dict[tuple[str, str], int]) -> None:
        key = (loop.component, loop.dim)
        total = trips.get(key, 1) * count
        trips[key] = total
        fanout = self.hierarchy[loop.component].dim(loop.dim).fanout
        if total > fanout:
            message = (
                f"the spatial loops over {loop.component}.{loop.dim} need {total} instances, it has {fanout}"
            )
            remedy = "enlarge tile_shape, or put the rest in a temporal loop"
            self.faults.add(
                (*tree_locator(self.mapping, here), "tile_shape"), message, remedy, code="over-fanout"
            )
