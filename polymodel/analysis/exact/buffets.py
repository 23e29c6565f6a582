"""Each tensor in each storage node: its users, what it touches, and the transitions over which it carries."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from polymodel.analysis.exact.cached_counts import FactorShape
from polymodel.analysis.result import Problem
from polymodel.mapping.looptree import StorageNode, storage_chain, ties
from polymodel.polyhedra import needs, steps
from polymodel.polyhedra.steps import Mode
from polymodel.reuse import Reuse, override
from polymodel.schedule.executed import executed
from polymodel.schedule.touch import (
    ExecutedPart,
    Factor,
    RankBlock,
    Touch,
    View,
    every_access,
    inner_offsets,
    joint_blocks,
    loop_origins,
    partition,
    touch,
)
from polymodel.workload.einsum import Einsum


@dataclass(frozen=True)
class ExactBuffet:
    """One tensor in one storage node. `all_touch` is the union over its users (execution order)."""

    id: int
    component: str
    tensor: str
    reuse: Reuse
    parent: int | None
    users: tuple[str, ...]
    views: tuple[View, ...]
    blocks: tuple[RankBlock, ...]
    loops: int
    producer: str | None
    inferred: bool = False

    @cached_property
    def all_touch(self) -> Touch:
        return touch(self.views, self.blocks)

    @cached_property
    def visited(self) -> bool:
        """False if all that its users read of the tensor is before the first generation."""
        return any(not v.access.guard or not v.einsum.relation(v.access).is_empty() for v in self.views)

    def touch_of(self, einsums: tuple[str, ...], versions: tuple[int, ...] = ()) -> Touch:
        """The union over some of the users; `versions`: loops whose counters count as ranks."""
        views = tuple(v for v in self.views if v.einsum.name in einsums)
        return touch(tuple(replace(v, versions=versions) for v in views) if versions else views, self.blocks)

    def written(self, versions: tuple[int, ...] = ()) -> Touch:
        """What the producer writes, without what it reads of earlier generations."""
        views = tuple(replace(v, versions=versions) for v in self.views if v.access.output)
        return touch(views, self.blocks)

    def read_by(self, einsum: str) -> Touch | None:
        """What one user reads; None if it only writes."""
        views = tuple(v for v in self.views if v.einsum.name == einsum and not v.access.output)
        return touch(views, self.blocks) if views else None

    @property
    def forgets(self) -> bool:
        """True for a backing node whose elements are recomputed once it no longer holds them."""
        if self.parent is not None or self.producer is None:
            return False
        return self.inferred

    @cached_property
    def policy_carries(self) -> frozenset[int]:
        """Axis positions over whose transitions the node's own policy keeps elements."""
        temporal = self.all_touch.temporal
        innermost = -1
        for factor in self.all_touch.factors if self.reuse.by_tile else ():
            shape = shape_of(factor)
            for q, axis in enumerate(factor.temporal):
                if axis > innermost and steps.depends(shape.text, shape.np, shape.nt, q):
                    innermost = axis
        return frozenset(a for a in temporal if self.reuse.stays(a, innermost))


def shape_of(factor: Factor) -> FactorShape:
    return FactorShape(factor.text, len(factor.spatial), len(factor.temporal), factor.nest)


def transition_mode(factor: Factor, axis: int) -> Mode | None:
    """The transition at stamp position `axis` as seen by this factor; None if it cannot happen."""
    if axis in factor.temporal:
        q = factor.temporal.index(axis)
        shape = shape_of(factor)
        return ("at", q) if steps.moves(shape.text, shape.np, shape.nt, q) else None
    after = [q for q, position in enumerate(factor.temporal) if position > axis]
    return ("wrap", after[0]) if after else ("eq", 0)


@dataclass(frozen=True)
class ExactLayout:
    """All buffets of a problem, with the views of each Einsum's whole path.

    `full`: for each tensor of an Einsum the access that writes it, otherwise the first that reads it.
    """

    problem: Problem
    nodes: dict[tuple[int, str], ExactBuffet]
    full: dict[tuple[str, str], View]
    blocks: dict[str, tuple[RankBlock, ...]]

    def reads(self, einsum: str, tensor: str) -> tuple[View, ...]:
        """The Einsum's accesses that read a tensor, each as its own view."""
        view, accesses = self.full[einsum, tensor], self.problem.cascade[einsum].accesses_of(tensor)
        return tuple(replace(view, access=a) for a in accesses if not a.output)

    def chain(self, einsum: str, tensor: str) -> tuple[ExactBuffet, ...]:
        """The buffets of a tensor on an Einsum's path, outermost first (a copy has only the backing one)."""
        steps_ = storage_chain(self.problem.tree, einsum, tensor)
        if self.problem.cascade[einsum].is_copy:
            steps_ = steps_[:1]
        return tuple(self.nodes[s.id, tensor] for s in steps_)


def _part_offsets(einsum: Einsum, parts: tuple[ExecutedPart, ...]) -> tuple[str, ...]:
    """The offsets of an Einsum whose executed iterations are given as parts."""
    result = set()
    for part in parts:
        first = len(part.loops) + len(part.variables)
        result |= {v for k, v in enumerate(part.variables) if needs.extent(part.text, first + k)[1] > 0}
    return tuple(v for v in einsum.rank_variables if v in result)


def lay_out(problem: Problem, reuse: str | None = None) -> ExactLayout:
    """Find every buffet; `reuse` overrides all policies."""
    cascade, tree = problem.cascade, problem.tree
    full: dict[tuple[str, str], View] = {}
    policy = override(reuse)
    parts = executed(cascade, tree, policy)
    for name in tree.einsums:
        einsum = cascade[name]
        loops = loop_origins(cascade, tree, name)
        offsets = _part_offsets(einsum, parts[name]) if parts[name] else inner_offsets(einsum, loops)
        for tensor in einsum.tensors:
            full[name, tensor] = View(einsum, einsum.access_of(tensor), loops, offsets, parts[name])
    blocks: dict[str, tuple[RankBlock, ...]] = {}
    nodes: dict[tuple[int, str], ExactBuffet] = {}
    for tensor in cascade.tensors:
        order = [e for e in tree.einsums if tensor in cascade[e].tensors]
        blocks[tensor] = partition(tuple(v for e in order for v in every_access(full[e, tensor])))
        places = _places(problem, tensor, order)
        while True:  # merging for one node may coarsen another's product
            merged = blocks[tensor]
            for views in places.values():
                merged = joint_blocks(_views_above(full, tensor, views[0], views[1]), merged)
            if merged == blocks[tensor]:
                break
            blocks[tensor] = merged
        producer = cascade.producer(tensor)
        for node_id, (users, loops_above, parent) in places.items():
            node = tree_node(problem, users[0], node_id)
            nodes[node_id, tensor] = ExactBuffet(
                node_id,
                node.component,
                tensor,
                policy or node.reuse,
                parent,
                users,
                _views_above(full, tensor, users, loops_above),
                blocks[tensor],
                loops_above,
                producer.name if producer and producer.name in users else None,
                producer is not None and "inferred" in ties(cascade, tree, producer.name).values(),
            )
    return ExactLayout(problem, nodes, full, blocks)


def tree_node(problem: Problem, einsum: str, node_id: int) -> StorageNode:
    for step in problem.tree.path(einsum):
        if step.id == node_id and isinstance(step.node, StorageNode):
            return step.node
    raise KeyError(node_id)


def _places(
    problem: Problem, tensor: str, order: list[str]
) -> dict[int, tuple[tuple[str, ...], int, int | None]]:
    """Storage node id -> (users, number of loops above, parent id) for one tensor."""
    users: dict[int, list[str]] = {}
    parents: dict[int, int | None] = {}
    above: dict[int, int] = {}
    for name in order:
        chain = storage_chain(problem.tree, name, tensor)
        if problem.cascade[name].is_copy:
            chain = chain[:1]
        for position, step in enumerate(chain):
            users.setdefault(step.id, []).append(name)
            parents[step.id] = chain[position - 1].id if position else None
            above[step.id] = sum(1 for i, _ in problem.tree.loops(name) if i < step.id)
    return {i: (tuple(u), above[i], parents[i]) for i, u in sorted(users.items())}


def _views_above(
    full: dict[tuple[str, str], View], tensor: str, users: tuple[str, ...], loops: int
) -> tuple[View, ...]:
    return tuple(v for name in users for v in every_access(full[name, tensor].above(loops)))
