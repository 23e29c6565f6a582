"""The LoopTree of a TeAAL spec whose partitioning is by shape.

Loops are in loop order: ranks that `spacetime` maps to space become spatial loops over the architecture's
fanout dimensions, all others temporal loops. The outermost memory backs every tensor; bindings and `keep`
rules add storage nodes further in. A spec whose partitioning depends on data has no LoopTree; the result
names the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from polymodel.architecture.hierarchy import Component, Hierarchy
from polymodel.errors import Diagnostic, PolymodelError, Refused, SpecError
from polymodel.mapping.checks import check_mapping
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Node, Split, StorageNode, Tile
from polymodel.mapping.resolve import ResolvedMapping, bind_tree
from polymodel.spec.faults import Faults
from polymodel.spec.numbers import Value
from polymodel.spec.teaal.convert import bound, symbols_of
from polymodel.spec.teaal.ranks import Ranks, partitioned, ranks_of
from polymodel.spec.teaal.records import (
    DATA_DEPENDENT,
    MEMORIES,
    Directive,
    EinsumMapping,
    Expression,
    TeaalSpec,
)
from polymodel.workload.einsum import Cascade, Einsum

EXECUTE = "run it on data: polymodel execute SPEC TENSOR=FILE ..., or pm.execute(spec, tensors)"
_OTHER_ARCH = f"{EXECUTE}; or load an architecture beside it"


@dataclass(frozen=True)
class Derived:
    """The LoopTree of a spec, or the error to raise where one is needed.

    `template` keeps the symbols that stand for tile sizes; `remarks`: where the tree differs from the spec.
    """

    tree: LoopTree | None = None
    error: PolymodelError | None = None
    template: LoopTree | None = None
    remarks: tuple[str, ...] = ()


def why(error: PolymodelError) -> str:
    """The reason for the error, in one line."""
    if isinstance(error, SpecError):
        return "; ".join(d.message for d in error.diagnostics)
    if isinstance(error, Refused):
        return f"{error.message} ({error.remedy})"
    return str(error)


def _outermost_first(directives: Iterable[Directive]) -> list[Directive]:
    """The splits of a rank, outermost first. Of consecutive n-way splits the last listed is outermost: each
    groups the tiles of the one before it."""
    result: list[Directive] = []
    ways: list[Directive] = []
    for directive in directives:
        if directive.kind == "nway_shape":
            ways.insert(0, directive)
        else:
            result += [*ways, directive]
            ways = []
    return result + ways


def data_dependent(spec: TeaalSpec) -> str:
    """The part of the partitioning that needs the data, as text; empty if all partitioning is by shape."""
    result = []
    for mapping in spec.mappings:
        for partition in mapping.partitioning:
            found = [d for d in partition.directives if d.kind in (*DATA_DEPENDENT, "flatten")]
            if found:
                word, ranks = found[0].partitioner or found[0].kind, ", ".join(partition.ranks)
                result.append(f"{word} of {ranks} in Einsum {mapping.einsum}")
    return "; ".join(result)


def derive(
    spec: TeaalSpec,
    symbols: Mapping[str, Value | None],
    cascade: Cascade | None,
    hierarchy: Hierarchy | None,
    own: bool,
    refused: tuple[Diagnostic, ...],
    faults: Faults,
) -> Derived:
    """The LoopTree for given values of the symbols.

    `own`: the hierarchy is that of the spec itself. `refused`: the reason if the spec has no dense workload.
    """
    filled = bound(spec, symbols, faults)
    if refused and not data_dependent(spec):
        return Derived(error=SpecError(refused))
    if own and not data_dependent(spec) and (used := without_counterpart(spec)):
        return Derived(
            error=Refused(f"{used}, which no dense count knows", _OTHER_ARCH, code="unsupported-operation")
        )
    result = looptree_of(filled, cascade, hierarchy)
    if result.tree is None:
        return result
    written = looptree_of(replace(filled, mappings=spec.mappings), cascade, hierarchy).tree
    if written is None or bind_tree(ResolvedMapping(written), symbols, Faults()).tree != result.tree:
        # Tiles were cut to the extents there are: closed forms over other sizes would be wrong.
        written = result.tree
    return replace(result, template=written)


def without_counterpart(spec: TeaalSpec) -> str:
    """The bindings of Einsums to components that are neither memories nor compute units, as text; empty if
    there are none."""
    for result in spec.einsum_bindings:
        for binding in result.bindings:
            component = spec.configuration(result.config).component(binding.component)
            if component.kind not in (*MEMORIES, "Compute"):
                what = f"{component.type} {component.kind}".strip()
                return f"Einsum {result.einsum} is bound to {component.name} ({what})"
    return ""


def looptree_of(spec: TeaalSpec, cascade: Cascade | None, hierarchy: Hierarchy | None) -> Derived:
    """The LoopTree of `spec`, whose sizes are numbers or names of symbols."""
    dynamic = data_dependent(spec)
    if dynamic:
        return Derived(error=Refused(f"data-dependent: {dynamic}", EXECUTE, code="unsupported-partitioning"))
    if hierarchy is None or cascade is None:
        open_sizes = symbols_of(spec)
        named = f": {', '.join(open_sizes)} without a value" if open_sizes else ""
        what = f"the sizes of its ranks{named}" if cascade is None else "an architecture"
        given = " ".join(f"--set {name}=..." for name in open_sizes) or "--set RANK=..."
        values = ", ".join(f"{name}=..." for name in open_sizes) or "..."
        remedy = f"{given}, or in Python spec.bind({values})"
        if cascade is not None:
            remedy = "load one beside it, e.g. load(spec, 'tensaurus') or load(spec, 'arch.yaml')"
        return Derived(
            error=Refused(f"the LoopTree of a TeAAL spec needs {what}", remedy, code="unsupported-operation")
        )
    builder = _MappingBuilder(spec, cascade, hierarchy)
    try:
        tree = builder.tree()
    except Refused as refusal:
        return Derived(error=refusal, remarks=tuple(builder.remarks))
    faults = Faults()
    check_mapping(ResolvedMapping(tree), cascade, hierarchy, faults)
    if len(faults):
        return Derived(error=SpecError(faults.found), remarks=tuple(builder.remarks))
    return Derived(tree, remarks=tuple(builder.remarks))


class _MappingBuilder:
    def __init__(self, spec: TeaalSpec, cascade: Cascade, hierarchy: Hierarchy) -> None:
        self.spec = spec
        self.cascade = cascade
        self.hierarchy = hierarchy
        self.remarks: list[str] = []
        self.memories = [c for c in hierarchy.components if c.stores]

    def tree(self) -> LoopTree:
        if not self.memories:
            message = "the architecture has no memory that could back the tensors"
            raise Refused(message, "add a !Memory", code="missing-component")
        top = StorageNode(self.memories[0].name, tuple(self.cascade.tensors))
        branches = tuple(self.branch(e) for e in self.spec.expressions)
        below: tuple[Node, ...] = branches[0] if len(branches) == 1 else (Split(branches),)
        return LoopTree((top, *below), self.spec.name)

    def branch(self, expression: Expression) -> tuple[Node, ...]:
        """The nodes of one Einsum below the outermost memory."""
        einsum = self.cascade[expression.name]
        compute = self.compute_of(expression.name)
        loops = _Loops(self, expression, einsum, self.spec.mapping_of(expression.name), compute)
        placed = loops.all()
        nodes: list[Node] = [loop for _, loop in placed]
        for at, storage in reversed(self.storages(expression.name, placed)):
            nodes.insert(at, storage)
        return (*nodes, ComputeNode(expression.name, compute.name))

    def compute_of(self, einsum: str) -> Component:
        """The unit to which the multiplication is bound, else the first compute unit."""
        units = [c for c in self.hierarchy.components if c.computes]
        if not units:
            raise Refused("the architecture computes nothing", "add a !Compute", code="missing-component")
        bindings = self.spec.bindings_of(einsum).bindings
        ops = {b.component: b.op for b in bindings if b.op and any(b.component == u.name for u in units)}
        if {"mul", "add"} <= set(ops.values()):
            self.remarks.append(
                f"Einsum {einsum}: a multiply-add is one operation, on the unit that multiplies"
            )
        for op in ("mul", "add"):
            for unit in units:
                if ops.get(unit.name) == op:
                    return unit
        return units[0]

    def storages(self, einsum: str, placed: list[tuple[str, Loop]]) -> list[tuple[int, StorageNode]]:
        """The storage nodes of the other memories, and the number of the loop above which each node is
        placed."""
        tensors = self.cascade[einsum].tensors
        order = [c.name for c in self.hierarchy.components]
        spatial = [(i, order.index(loop.component)) for i, (_, loop) in enumerate(placed) if loop.spatial]
        result: dict[tuple[int, int], list[str]] = {}
        for memory in self.memories[1:]:
            level = order.index(memory.name)
            lowest = max((i + 1 for i, at in spatial if at <= level), default=0)
            held = self.bound_to(memory.name, einsum, placed)
            for tensor in memory.keep.tensors(einsum) if memory.keep is not None else ():
                held.setdefault(tensor, len(placed))
            for tensor in tensors:
                if tensor in held:
                    result.setdefault((max(held[tensor], lowest), level), []).append(tensor)
        return [
            (at, StorageNode(order[level], tuple(names))) for (at, level), names in sorted(result.items())
        ]

    def bound_to(self, memory: str, einsum: str, placed: list[tuple[str, Loop]]) -> dict[str, int]:
        """Tensor -> the loop below which its data is held: the data is evicted when that loop advances."""
        result: dict[str, int] = {}
        for binding in self.spec.bindings_of(einsum).of(memory):
            if not binding.tensor or (binding.type == "coord" and binding.style == "lazy"):
                continue  # coordinates alone; eager ones bring the values below them
            last = [i for i, (rank, _) in enumerate(placed) if rank == binding.evict_on]
            result[binding.tensor] = last[-1] + 1 if last else 0
        return result


class _Loops:
    """The loops of one Einsum, in loop order."""

    def __init__(
        self,
        above: _MappingBuilder,
        expression: Expression,
        einsum: Einsum,
        mapping: EinsumMapping,
        compute: Component,
    ) -> None:
        self.above = above
        self.einsum = einsum
        self.mapping = mapping
        self.ranks: Ranks = ranks_of(expression, above.spec.declaration, above.spec.rank_order)
        self.variables = {v.upper(): v for v in einsum.rank_variables}
        self.enclosing: dict[str, int | None] = {}
        for variable in einsum.rank_variables:
            low, high = einsum.bound(variable)
            self.enclosing[variable.upper()] = high - low + 1
        self.whole = dict(self.enclosing)
        components = above.hierarchy.components[: above.hierarchy.index(compute.name) + 1]
        self.dims = [(c.name, d.name, d.fanout) for c in components for d in c.spatial]

    def all(self) -> list[tuple[str, Loop]]:
        """(rank after partitioning, loop), outermost first; a folded rank has two loops."""
        tiles = self.tiles()
        places = self.places()
        result: list[tuple[str, Loop]] = []
        seen: dict[str, int] = {}
        for rank in self.mapping.loop_order:
            if rank not in tiles:
                what = f"Einsum {self.einsum.name} loops over {rank}, a rank of index math"
                remedy = f"give a loop order over {', '.join(tiles)}"
                raise Refused(what, remedy, code="unsupported-partitioning")
            root, depth, tile = tiles[rank]
            if depth < seen.get(root, depth):
                message = f"Einsum {self.einsum.name} loops over {rank} outside a larger part of {root}"
                fault = "put the parts of a rank from large to small"
                raise Refused(message, fault, code="unsupported-partitioning")
            seen[root] = depth
            result += [(rank, loop) for loop in self.loops(rank, root, tile, places)]
        return result

    def tiles(self) -> dict[str, tuple[str, int, Tile]]:
        """Rank after partitioning -> rank before it, depth of the split, tile size below its loop."""
        result: dict[str, tuple[str, int, Tile]] = {r: (r, 0, 1) for r in self.ranks.order}
        for partition in self.mapping.partitioning:
            root = partition.ranks[0]
            if root in self.ranks.compound:
                if all(d.kind == "follow" for d in partition.directives):
                    continue
                message = f"{root} of Einsum {self.einsum.name}, a rank of index math, is partitioned"
                remedy = "partition the ranks of its variables"
                raise Refused(message, remedy, code="unsupported-partitioning")
            del result[root]
            count = len(partition.directives)
            for i, directive in enumerate(_outermost_first(partition.directives)):
                size = directive.size
                if directive.kind == "follow":
                    message = f"{root} of Einsum {self.einsum.name} follows {directive.leader}"
                    raise Refused(message, "partition it by its own shape", code="unsupported-partitioning")
                if directive.kind == "nway_shape":
                    size = self.part_size(root, directive.size)
                result[f"{root}{count - i}"] = (root, i, size)
            result[f"{root}0"] = (root, count, 1)
        partitioned(self.ranks, self.mapping.partitioning)
        return result

    def part_size(self, root: str, parts: int | str) -> int:
        whole = self.whole.get(root)
        if isinstance(parts, str) or whole is None:
            message = f"nway_shape({parts}) of {root} waits for its number of parts"
            raise Refused(message, f"bind {parts}", code="unsupported-partitioning")
        return (whole - 1) // parts + 1

    def places(self) -> dict[str, tuple[str, str, int]]:
        """Return space rank -> component, dimension and fanout: as `fanout` says, the others in order."""
        spacetime = self.mapping.spacetime
        if spacetime is None:
            return {}
        wanted = dict(spacetime.fanout)
        free = list(self.dims)
        result: dict[str, tuple[str, str, int]] = {}
        for stamp in spacetime.space:
            place = wanted.get(stamp.rank)
            dim = next((d for d in free if place in (d[1], f"{d[0]}.{d[1]}")), None)
            if dim is not None:
                result[stamp.rank] = dim
                free.remove(dim)
        for stamp in sorted(spacetime.space, key=lambda s: self.mapping.loop_order.index(s.rank)):
            if stamp.rank in result:
                continue
            if free:
                result[stamp.rank] = free.pop(0)
            else:
                where = f"Einsum {self.einsum.name}: no fanout dimension is left for {stamp.rank}"
                self.above.remarks.append(f"{where}, so it runs in time")
        return result

    def loops(
        self, rank: str, root: str, tile: Tile, places: dict[str, tuple[str, str, int]]
    ) -> Iterable[Loop]:
        """The loop of one rank: no larger than what encloses it, folded onto the instances there are."""
        enclosing = self.enclosing[root]
        if isinstance(tile, int) and enclosing is not None:
            tile = min(tile, enclosing)
        self.enclosing[root] = tile if isinstance(tile, int) else None
        loop = Loop(self.variables[root], tile)
        if rank not in places:
            return (loop,)
        component, dim, fanout = places[rank]
        spatial = replace(loop, spatial=True, component=component, dim=dim)
        if enclosing is None or isinstance(tile, str):
            return (spatial,)
        trips = -(-enclosing // tile)
        if trips <= fanout:
            return (spatial,)
        where = f"Einsum {self.einsum.name}: {rank} has {trips} tiles on the {fanout} instances of"
        self.above.remarks.append(f"{where} {component}.{dim}, so they run in {-(-trips // fanout)} rounds")
        return (replace(loop, tile_shape=tile * fanout), spatial)
