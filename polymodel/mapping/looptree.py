"""LoopTrees: their nodes, look-ups on them that all engines share, and their text.

A LoopTree is a tuple of nodes read from top to bottom; a split, if present, is the last node
and holds the branches. `Nested` exists in YAML only: it is flattened into its parent.
Node ids are positions in preorder, counting every node (also splits and computes).

Ties: how a loop binds an Einsum below it, by a rank variable, through a consumer, or not at all.
An Einsum executes once per iteration of a loop whose rank variable it has. Without one, it executes what its
consumers below the loop need (`inferred`), or all over again (`repeated`): docs/develop/rules.md, Loops and
executions.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.frozen import dataclass
from polymodel.quantities import drawn
from polymodel.reuse import Reuse
from polymodel.workload.einsum import Cascade

if TYPE_CHECKING:
    import islpy

Tile = int | str
Tie = Literal["bound", "inferred", "repeated"]  # how a loop decides what of an Einsum below it executes


@dataclass(frozen=True)
class Loop:
    """A loop in time or space; counter k covers one tile of `tile_shape` values (docs/semantics.md, Stamps).

    `tile_shape` is the size of the tile below the loop, a number or the name of a symbol.
    `per_einsum` gives the rank variable in Einsums where it is not `rank_variable`. `tiles` and `first_tiles`
    give each Einsum's own tile sizes: `tiles` of every Einsum that the loop binds (`tile_shape` is
    then the first of them), or of none.
    """

    rank_variable: str
    tile_shape: Tile
    initial_tile_shape: Tile | None = None
    spatial: bool = False
    component: str = ""
    dim: str = ""
    per_einsum: tuple[tuple[str, str], ...] = ()
    tiles: tuple[tuple[str, Tile], ...] = ()
    first_tiles: tuple[tuple[str, Tile], ...] = ()

    def variable_in(self, einsum: str) -> str:
        for name, variable in self.per_einsum:
            if name == einsum:
                return variable
        return self.rank_variable

    @property
    def uneven(self) -> bool:
        """True if Einsums have tile sizes of their own; each then splits the range of its own rank
        variable."""
        return bool(self.tiles or self.first_tiles)

    def within(self, einsum: str) -> Loop:
        """The loop from one Einsum's view: `tile_shape` and `initial_tile_shape` are those of that Einsum."""
        if not self.uneven:
            return self
        tile = dict(self.tiles).get(einsum, self.tile_shape)
        first = dict(self.first_tiles).get(einsum) if self.first_tiles else self.initial_tile_shape
        return replace(self, tile_shape=tile, initial_tile_shape=first)

    @property
    def sizes(self) -> tuple[Tile, ...]:
        """Every tile size written at the loop, those of first tiles first."""
        if self.initial_tile_shape is None or self.first_tiles:
            firsts = tuple(t for _, t in self.first_tiles)
        else:
            firsts = (self.initial_tile_shape,)
        return firsts + (tuple(t for _, t in self.tiles) or (self.tile_shape,))


@dataclass(frozen=True)
class StorageNode:
    """Tiles of `tensors` held by `component` from here down."""

    component: str
    tensors: tuple[str, ...]
    reuse: Reuse = Reuse.REFILL

    def __post_init__(self) -> None:
        object.__setattr__(self, "reuse", Reuse(self.reuse))  # a policy may be given by its name


@dataclass(frozen=True)
class ComputeNode:
    """The leaf: `einsum` executes on `component`."""

    einsum: str
    component: str


@dataclass(frozen=True)
class Split:
    """Branches that run one after the other (`sequential`) or overlapped (`pipeline`)."""

    branches: tuple[tuple[Node, ...], ...]
    pipeline: bool = False


Node = Loop | StorageNode | ComputeNode | Split


@dataclass(frozen=True)
class PathStep:
    """One node on the path to an Einsum: its id and, for a split, the branch taken."""

    id: int
    node: Node
    branch: int = -1


@dataclass(frozen=True)
class Scheduler:
    """What a tree needs to show its schedules: the cascade that it maps, and the function that builds the
    relation."""

    cascade: Cascade
    relation: Callable[[Cascade, LoopTree, str], islpy.Map]


def _invalid_nodes(nodes: Sequence[object], path: str) -> Iterator[Diagnostic]:
    """A fault for every object in the tree, branches included, that is not a LoopTree node."""
    for i, node in enumerate(nodes):
        if isinstance(node, Split):
            for k, branch in enumerate(node.branches):
                yield from _invalid_nodes(branch, f"{path}[{i}].branches[{k}]")
        elif not isinstance(node, (Loop, StorageNode, ComputeNode)):
            shown = repr(node) if isinstance(node, (str, int, float)) else f"a {type(node).__name__}"
            remedy = "take spec.mapping, or give spec.with_mapping(...) a pm.MappingSpec(nodes=[...])"
            yield Diagnostic(
                f"{shown} is not a node of a LoopTree", remedy, f"{path}[{i}]", code="wrong-type"
            )


@dataclass(frozen=True)
class LoopTree:
    """A whole mapping."""

    nodes: tuple[Node, ...]
    name: str = ""
    scheduler: Scheduler | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        given: object = self.nodes
        if not isinstance(given, (tuple, list)):
            remedy = "give a tuple of nodes, or take spec.mapping"
            message = f"{given!r} is not a list of nodes"
            raise SpecError([Diagnostic(message, remedy, "nodes", code="wrong-type")])
        object.__setattr__(self, "nodes", tuple(given))
        faults = tuple(_invalid_nodes(self.nodes, "nodes"))
        if faults:
            raise SpecError(faults)

    def __repr__(self) -> str:
        cascade = self.scheduler.cascade if self.scheduler else None
        return f"LoopTree {self.name}".rstrip() + "\n" + looptree_text(self, cascade).rstrip()

    def _repr_svg_(self) -> str:
        """The tree as a picture, for notebooks; loops of a mapping taken from a spec show what they infer."""
        return drawn("svg", "looptree_svg", self, self.scheduler.cascade if self.scheduler else None)

    def schedule(self, einsum: str) -> islpy.Map:
        """`{ Einsum[rank variables] -> [stamp] }` as an ISL map, for the mapping of a loaded spec.

        Multi-valued for an Einsum that repeats iterations; iterations that never execute are absent.
        """
        if self.scheduler is None:
            remedy = "take it from a loaded spec: spec.mapping.schedule(...)"
            raise Refused("this LoopTree has no workload", remedy, code="missing-section")
        return self.scheduler.relation(self.scheduler.cascade, self, einsum)

    def walk(self) -> Iterator[tuple[int, Node, int]]:
        """Preorder (id, node, depth); depth counts enclosing splits."""
        counter = iter(range(10**9))

        def visit(nodes: tuple[Node, ...], depth: int) -> Iterator[tuple[int, Node, int]]:
            for node in nodes:
                yield next(counter), node, depth
                if isinstance(node, Split):
                    for branch in node.branches:
                        yield from visit(branch, depth + 1)

        yield from visit(self.nodes, 0)

    @cached_property
    def paths(self) -> dict[str, tuple[PathStep, ...]]:
        """For each Einsum, in order of execution, the nodes from the root to its compute node."""
        counter = iter(range(10**9))
        result: dict[str, tuple[PathStep, ...]] = {}

        def visit(nodes: tuple[Node, ...], above: tuple[PathStep, ...]) -> None:
            for node in nodes:
                here = next(counter)
                if isinstance(node, Split):
                    for number, branch in enumerate(node.branches):
                        visit(branch, (*above, PathStep(here, node, number)))
                    return
                above = (*above, PathStep(here, node))
                if isinstance(node, ComputeNode):
                    result[node.einsum] = above

        visit(self.nodes, ())
        return result

    @cached_property
    def below(self) -> dict[int, tuple[str, ...]]:
        """The Einsums below (or at) each node, in order of execution."""
        result: dict[int, tuple[str, ...]] = {}
        for einsum, path in self.paths.items():
            for step in path:
                result[step.id] = (*result.get(step.id, ()), einsum)
        return result

    def path(self, einsum: str) -> tuple[PathStep, ...]:
        return self.paths[einsum]

    @property
    def einsums(self) -> tuple[str, ...]:
        """Einsums in order of execution."""
        return tuple(self.paths)

    def loops(self, einsum: str) -> tuple[tuple[int, Loop], ...]:
        """The loops on an Einsum's path from its own view (`Loop.within`), outermost first, with their node
        ids."""
        return self._loops[einsum]

    @cached_property
    def _loops(self) -> dict[str, tuple[tuple[int, Loop], ...]]:
        return {
            einsum: tuple((s.id, s.node.within(einsum)) for s in path if isinstance(s.node, Loop))
            for einsum, path in self.paths.items()
        }

    def differs(self, einsum: str) -> bool:
        """True if Einsums have tiles or rank variables of their own at a loop on a path; a shared loop may
        then have different trip counts for different Einsums."""
        return any(loop.uneven or loop.per_einsum for _, loop in self.loops(einsum))


def storage_chain(tree: LoopTree, einsum: str, tensor: str) -> tuple[PathStep, ...]:
    """Storage nodes that hold `tensor` on the path of `einsum`, outermost first."""
    return tuple(s for s in tree.path(einsum) if isinstance(s.node, StorageNode) and tensor in s.node.tensors)


def loops_above(tree: LoopTree, einsum: str, node: int) -> tuple[tuple[int, Loop], ...]:
    """Loops on the path of `einsum` that stand above node id `node`, outermost first."""
    return tuple((i, loop) for i, loop in tree.loops(einsum) if i < node)


def users(tree: LoopTree, node: int) -> tuple[str, ...]:
    """Einsums below node id `node`, in order of execution."""
    return tree.below.get(node, ())


def instances_in_use(cascade: Cascade, tree: LoopTree, einsum: str, dimension: str) -> int:
    """How many instances along a fanout dimension (`PE.X`) an Einsum uses; tile sizes are numbers."""
    of = cascade[einsum]
    result, tiles = (
        1,
        {v: high - low + 1 for v, (low, high) in zip(of.rank_variables, of.bounds, strict=True)},
    )
    for _, loop in tree.loops(einsum):
        variable, tile = loop.variable_in(einsum), loop.tile_shape
        if variable in tiles and isinstance(tile, int):
            if f"{loop.component}.{loop.dim}" == dimension:
                result *= -(-tiles[variable] // tile)
            tiles[variable] = min(tile, tiles[variable])
    return result


def fused_groups(cascade: Cascade, tree: LoopTree, backing: str) -> tuple[tuple[str, ...], ...]:
    """The Einsums of a mapping in groups, in order of execution. Two Einsums are in one group if they share a
    loop, or if one passes the other a tensor that `backing` does not store."""
    group = {e: e for e in tree.einsums}

    def joined(a: str, b: str) -> None:
        old, new = group[b], group[a]
        group.update({e: new for e, g in group.items() if g == old})

    for number, node, _ in tree.walk():
        if isinstance(node, Loop):
            first, *others = tree.below[number]
            for other in others:
                joined(first, other)
    for einsum in (cascade[e] for e in tree.einsums):
        for tensor in (a.tensor for a in einsum.outputs):
            if not any(_is_at(s.node, backing) for s in storage_chain(tree, einsum.name, tensor)):
                for reader in cascade.consumers(tensor):
                    joined(einsum.name, reader.name)
    result: dict[str, tuple[str, ...]] = {}
    for member, name in group.items():
        result[name] = (*result.get(name, ()), member)
    return tuple(result.values())


def _is_at(node: Node, component: str) -> bool:
    return isinstance(node, StorageNode) and node.component == component


def tie(cascade: Cascade, tree: LoopTree, einsum: str, node: int, loop: Loop) -> Tie:
    """How loop `node` above `einsum` determines which iterations of it execute."""
    if loop.variable_in(einsum) in cascade[einsum].rank_variables:
        return "bound"
    made = {a.tensor for a in cascade[einsum].outputs}
    below = (cascade[e] for e in users(tree, node) if e != einsum)
    consumed = any(a.tensor in made for e in below for a in e.accesses if not a.output)
    return "inferred" if consumed else "repeated"


def ties(cascade: Cascade, tree: LoopTree, einsum: str) -> dict[int, Tie]:
    """The tie of every loop on the Einsum's path, by node id, outermost first."""
    return {i: tie(cascade, tree, einsum, i, loop) for i, loop in tree.loops(einsum)}


def loop_notes(cascade: Cascade, tree: LoopTree) -> dict[int, str]:
    """By node id, the effect of each loop that does not bind every Einsum below it: `infers Conv1`."""
    result: dict[int, dict[Tie, list[str]]] = {}
    for einsum in tree.einsums:
        for node, kind in ties(cascade, tree, einsum).items():
            if kind != "bound":
                result.setdefault(node, {}).setdefault(kind, []).append(einsum)
    verbs: tuple[tuple[Tie, str], ...] = (("inferred", "infers"), ("repeated", "repeats"))
    return {
        node: "; ".join(f"{verb} {', '.join(names[kind])}" for kind, verb in verbs if kind in names)
        for node, names in result.items()
    }


def decided_above(found: dict[int, Tie]) -> int:
    """The id of the innermost loop that binds no rank variable of the Einsum; -1 if every loop binds one.

    The executed iterations are determined once for each stamp of the loops down to that one.
    """
    return max((i for i, t in found.items() if t != "bound"), default=-1)


@dataclass(frozen=True)
class PipelineSplit:
    """A `!Pipeline` split: its node id, the Einsums of each stage, the id of the pipelined loop (None: none).

    `outer`: node id of the innermost pipeline that has this one in a stage, None if there is none.
    """

    node: int
    stages: tuple[tuple[str, ...], ...]
    loop: int | None
    outer: int | None

    @property
    def einsums(self) -> tuple[str, ...]:
        return tuple(e for stage in self.stages for e in stage)

    def stage_of(self, einsum: str) -> int:
        """Number of the stage that executes the Einsum."""
        return next(b for b, stage in enumerate(self.stages) if einsum in stage)

    def copies(self, node: int, users: Collection[str]) -> int:
        """Number of iterations whose tiles a storage node above the split holds at once; 0 if no stage uses
        it."""
        using = [b for b, stage in enumerate(self.stages) if not set(stage).isdisjoint(users)]
        if not using:
            return 0
        between = self.loop is not None and node > self.loop
        return using[-1] - using[0] + 1 if between else 1


def pipelines(tree: LoopTree) -> tuple[PipelineSplit, ...]:
    """All pipelines in tree order: an outer one precedes those in its stages."""
    result: dict[int, PipelineSplit] = {}
    for path in tree.paths.values():
        outer: int | None = None
        loop: int | None = None
        for step in path:
            if isinstance(step.node, Loop) and not step.node.spatial:
                loop = step.id
            if not isinstance(step.node, Split):
                continue
            if step.node.pipeline:
                if step.id not in result:
                    result[step.id] = PipelineSplit(step.id, _stages(tree, step.id), loop, outer)
                outer = step.id
            loop = None
    return tuple(result.values())


def pipeline_notes(tree: LoopTree) -> dict[int, str]:
    """By node id, the loop whose iterations the stages of each pipeline overlap."""
    loops = {i: node for i, node, _ in tree.walk() if isinstance(node, Loop)}
    return {
        p.node: "no loop of its own above: stages take turns"
        if p.loop is None
        else f"overlaps iterations of {loops[p.loop].rank_variable}"
        for p in pipelines(tree)
    }


def around(tree: LoopTree, einsum: str) -> tuple[PipelineSplit, ...]:
    """The pipelines in whose stages an Einsum executes, outermost first."""
    if not any(isinstance(s.node, Split) and s.node.pipeline for s in tree.path(einsum)):
        return ()
    return tuple(p for p in pipelines(tree) if einsum in p.einsums)


def _stages(tree: LoopTree, split: int) -> tuple[tuple[str, ...], ...]:
    members: dict[int, list[str]] = {}
    for name, path in tree.paths.items():
        for step in path:
            if step.id == split:
                members.setdefault(step.branch, []).append(name)
    return tuple(tuple(members[b]) for b in sorted(members))


def shared_units(tree: LoopTree, copies: Collection[str]) -> tuple[tuple[PipelineSplit, str, str, str], ...]:
    """(pipeline, compute unit, Einsum, Einsum of a later stage) wherever two stages name one unit.

    `copies`: Einsums that compute nothing.
    """
    unit = {
        name: path[-1].node.component
        for name, path in tree.paths.items()
        if isinstance(path[-1].node, ComputeNode) and name not in copies
    }
    result = []
    for p in pipelines(tree):
        first: dict[str, str] = {}
        for stage in p.stages:
            seen = dict(first)
            for name in (e for e in stage if e in unit):
                if unit[name] in seen:
                    result.append((p, unit[name], seen[unit[name]], name))
                first.setdefault(unit[name], name)
    return tuple(result)


def node_text(node: Node, mark: str = "") -> str:
    """One node as a line of text; `mark` names what a loop infers or repeats, or what a pipeline overlaps."""
    if isinstance(node, StorageNode):
        policy = f"  ({node.reuse.label})" if node.reuse.label else ""
        return f"[({node.component})] {', '.join(node.tensors)}{policy}"
    if isinstance(node, ComputeNode):
        return f"(({node.einsum})) on {node.component}"
    if isinstance(node, Split):
        return f"pipeline  ({mark})" if mark else "pipeline" if node.pipeline else "sequential"
    tile = ", ".join(f"{t} in {e}" for e, t in node.tiles) or f"{node.tile_shape}"
    initial = ", ".join(f"{t} in {e}" for e, t in node.first_tiles) or node.initial_tile_shape
    first = "" if initial is None else f", first tile {initial}"
    bound = "".join(f", {v} in {e}" for e, v in node.per_einsum)
    where = f"parallel over {node.component}.{node.dim}: " if node.spatial else "for "
    noted = f"  ({mark})" if mark else ""
    return f"{where}{node.rank_variable}{bound}, tile {tile}{first}{noted}"


def node_notes(tree: LoopTree, cascade: Cascade | None = None) -> dict[int, str]:
    """By node id, what a loop infers or repeats (with the cascade) and what a pipeline overlaps."""
    return {**(loop_notes(cascade, tree) if cascade else {}), **pipeline_notes(tree)}


def looptree_text(tree: LoopTree, cascade: Cascade | None = None) -> str:
    """The whole tree as text; nodes below a loop are indented.

    With the cascade, loops name the Einsums that they infer or repeat.
    """
    lines: list[str] = []
    _write(tree.nodes, "", lines, iter(range(10**9)), node_notes(tree, cascade))
    return "\n".join(lines) + "\n"


def _write(
    nodes: tuple[Node, ...], lead: str, lines: list[str], ids: Iterator[int], noted: Mapping[int, str]
) -> None:
    for node in nodes:
        lines.append(lead + node_text(node, noted.get(next(ids), "")))
        if isinstance(node, Loop):
            lead += "  "
        if isinstance(node, Split):
            for i, branch in enumerate(node.branches):
                last = i == len(node.branches) - 1
                start = len(lines)
                _write(branch, lead + ("   " if last else "│  "), lines, ids, noted)
                if len(lines) > start:
                    corner = "└─ " if last else "├─ "
                    lines[start] = lead + corner + lines[start][len(lead) + 3 :]
