"""LoopTree nodes: loops, storage, splits, compute. Plain frozen data.

A LoopTree is a tuple of nodes read from top to bottom; a split, if present, is the last node
and holds the branches. `Nested` exists in YAML only: it is flattened into its parent.
Node ids are positions in preorder, counting every node (also splits and computes).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.quantities import drawn
from polymodel.reuse import Reuse

if TYPE_CHECKING:
    import islpy

    from polymodel.workload.einsum import Cascade

Tile = int | str


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
        return dict(self.per_einsum).get(einsum, self.rank_variable)

    @property
    def uneven(self) -> bool:
        """True if Einsums have tile sizes of their own; each then splits the range of its own variable."""
        return bool(self.tiles or self.first_tiles)

    def within(self, einsum: str) -> Loop:
        """The loop as an Einsum sees it: `tile_shape` and `initial_tile_shape` are that Einsum's."""
        if not self.uneven:
            return self
        tile = dict(self.tiles).get(einsum, self.tile_shape)
        first = dict(self.first_tiles).get(einsum) if self.first_tiles else self.initial_tile_shape
        return replace(self, tile_shape=tile, initial_tile_shape=first)

    @property
    def sizes(self) -> tuple[Tile, ...]:
        """Every tile size that is written at the loop; those of first tiles come first."""
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
class Step:
    """One node on the way to an Einsum: its id and, below a split, which branch was taken."""

    id: int
    node: Node
    branch: int = -1


class Scheduler(Protocol):
    """What a tree needs to know to print its schedules: the cascade it maps."""

    @property
    def cascade(self) -> Cascade: ...

    def __call__(self, tree: LoopTree, einsum: str) -> islpy.Map: ...


def _no_nodes(nodes: Sequence[object], path: str) -> Iterator[Diagnostic]:
    """A fault for all that is no node of a tree, in branches too."""
    for i, node in enumerate(nodes):
        if isinstance(node, Split):
            for k, branch in enumerate(node.branches):
                yield from _no_nodes(branch, f"{path}[{i}].branches[{k}]")
        elif not isinstance(node, (Loop, StorageNode, ComputeNode)):
            shown = repr(node) if isinstance(node, (str, int, float)) else f"a {type(node).__name__}"
            remedy = "take spec.mapping, or give spec.with_mapping(...) a pm.MappingSpec(nodes=[...])"
            yield Diagnostic(f"{shown} is no node of a LoopTree", remedy, f"{path}[{i}]")


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
            raise SpecError([Diagnostic(f"{given!r} is no list of nodes", remedy, "nodes")])
        object.__setattr__(self, "nodes", tuple(given))
        faults = tuple(_no_nodes(self.nodes, "nodes"))
        if faults:
            raise SpecError(faults)

    def __repr__(self) -> str:
        from polymodel.mapping.text import looptree_text

        cascade = self.scheduler.cascade if self.scheduler else None
        return f"LoopTree {self.name}".rstrip() + "\n" + looptree_text(self, cascade).rstrip()

    def _repr_svg_(self) -> str:
        """For notebooks: the tree as a picture; of a mapping taken from a spec, loops say what they infer."""
        return drawn("svg", "looptree_svg", self, self.scheduler.cascade if self.scheduler else None)

    def schedule(self, einsum: str) -> islpy.Map:
        """`{ Einsum[rank variables] -> [stamp] }` as an ISL map, of a mapping taken from a loaded spec.

        Multi-valued for an Einsum that executes some iterations again; without those that never execute.
        """
        if self.scheduler is None:
            remedy = "take it from a loaded spec: spec.mapping.schedule(...)"
            raise Refused("this LoopTree knows no workload", remedy)
        return self.scheduler(self, einsum)

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
    def paths(self) -> dict[str, tuple[Step, ...]]:
        """For each Einsum, in order of execution, the nodes from the root to its compute node."""
        counter = iter(range(10**9))
        found: dict[str, tuple[Step, ...]] = {}

        def visit(nodes: tuple[Node, ...], above: tuple[Step, ...]) -> None:
            for node in nodes:
                here = next(counter)
                if isinstance(node, Split):
                    for number, branch in enumerate(node.branches):
                        visit(branch, (*above, Step(here, node, number)))
                    return
                above = (*above, Step(here, node))
                if isinstance(node, ComputeNode):
                    found[node.einsum] = above

        visit(self.nodes, ())
        return found

    @cached_property
    def below(self) -> dict[int, tuple[str, ...]]:
        """The Einsums below (or at) each node, in order of execution."""
        found: dict[int, tuple[str, ...]] = {}
        for einsum, path in self.paths.items():
            for step in path:
                found[step.id] = (*found.get(step.id, ()), einsum)
        return found

    def path(self, einsum: str) -> tuple[Step, ...]:
        return self.paths[einsum]

    @property
    def einsums(self) -> tuple[str, ...]:
        """Einsums in order of execution."""
        return tuple(self.paths)

    def loops(self, einsum: str) -> tuple[tuple[int, Loop], ...]:
        """The loops on an Einsum's path as it sees them, outermost first, with their node ids."""
        return tuple((s.id, s.node.within(einsum)) for s in self.path(einsum) if isinstance(s.node, Loop))
