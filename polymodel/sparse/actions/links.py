"""Which loops tell the transfers between two storages apart, and which part of a leader goes with each.

A transfer of T from a storage to the next one (or to compute) goes with that part of a leader X that the
iterations below use at the same time: what X has in common with the tile of the loops that tell the
transfers apart. Loops whose instances share one read of T, and loops over which T stays where it is, tell
nothing apart: their parts of X go with one transfer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from functools import cached_property

from polymodel.analysis.result import Problem
from polymodel.analysis.symbolic.spaces import neighbours_joined
from polymodel.architecture.hierarchy import ActionKind
from polymodel.arithmetic import Affine
from polymodel.mapping.looptree import ComputeNode, Loop, StorageNode, storage_chain
from polymodel.sparse.actions.counters import POINT as POINT
from polymodel.sparse.actions.counters import Counters, counters_of
from polymodel.sparse.actions.zeros import is_union, unstopped
from polymodel.workload.einsum import Einsum, TensorAccess

# Ids of loops; names of rank variables stand for the places within their innermost tiles.
Digits = frozenset[int | str]


@dataclass(frozen=True)
class Condition:
    """Accesses of a tensor are eliminated where the leader's part is empty.

    `digits`: what fixes the leader's part: counters of the loops with these ids, and the places within the
    innermost tiles of these rank variables (POINT: of all).
    """

    kind: ActionKind
    leader: str
    digits: Digits

    @property
    def leaders(self) -> tuple[str, ...]:
        return (self.leader,)


@dataclass(frozen=True)
class UsedElements:
    """What an Einsum uses of a tensor: the elements that any of these accesses touches, each of which is at
    another index.

    `union`: one access to all of them, None where they do not stand evenly apart. It may have variables that
    are no rank variables and that no loop goes over: `spans`, with the number of their values.
    """

    accesses: tuple[TensorAccess, ...]
    union: TensorAccess | None
    spans: tuple[tuple[str, int], ...] = ()

    @property
    def tensor(self) -> str:
        return self.accesses[0].tensor

    @property
    def variables(self) -> tuple[str, ...]:
        """Rank variables that index the tensor in any of the accesses."""
        return tuple(dict.fromkeys(v for a in self.accesses for v in a.variables))


@dataclass(frozen=True)
class TransferEdge:
    """One tensor between a storage node and the next one in; `child` None: compute.

    `level`: position in the tensor's chain of storages, 0 outermost. `fine`: what tells transfers apart at
    the child, `read` those at the parent. `between`: loops between the two. `fresh`: temporal loops between
    the two (of level 0: also above), `shared`: spatial ones whose instances share one read, `everyone`:
    those of them along which every instance gets partial sums. `used`: what moves; to compute, where the
    tensor is read several times, that of one access. `read_first`: each element is there to be read first.

    An element of an output is touched where any of its operations is executed, that is where all of `reached`
    hold; `fixed`: what such operations have in common.
    """

    einsum: str
    tensor: str
    level: int
    parent: int
    component: str
    child: int | None
    fine: frozenset[int]
    write: frozenset[int]
    read: frozenset[int]
    fresh: frozenset[int]
    shared: frozenset[int]
    everyone: frozenset[int]
    read_first: bool
    used: UsedElements
    conditions: tuple[Condition, ...]
    reached: tuple[Condition, ...] = ()
    fixed: Digits = frozenset()


class EinsumLinks:
    """Counters and links of one Einsum; everything here is about tiles, nothing about data."""

    def __init__(self, problem: Problem, einsum: str) -> None:
        self.problem = problem
        self.name = einsum
        self._known_links: dict[tuple[str, TensorAccess | None], tuple[TransferEdge, ...]] = {}

    @property
    def einsum(self) -> Einsum:
        return self.problem.cascade[self.name]

    @cached_property
    def counters(self) -> tuple[Counters, ...]:
        return counters_of(self.problem, self.name)

    @cached_property
    def loops(self) -> tuple[tuple[int, Loop], ...]:
        return self.problem.tree.loops(self.name)

    @cached_property
    def turning(self) -> frozenset[int]:
        """Ids of loops that have more than one iteration somewhere."""
        pairs = ((i, k) for c in self.counters for (i, _), k in zip(c.loops, c.counters, strict=True))
        return frozenset(i for i, k in pairs if k.any())

    def variable(self, loop: Loop) -> str:
        return loop.variable_in(self.name)

    @cached_property
    def _unions(self) -> tuple[Einsum, Mapping[str, TensorAccess]]:
        return neighbours_joined(self.einsum, {})

    def used(self, tensor: str) -> UsedElements:
        """What moves of a tensor between storages: an output's elements, or all that is read of an input."""
        written = self.einsum.access_of(tensor)
        if written.output:
            return UsedElements((written,), written)
        every = {a.projection: a for a in reversed(self.einsum.accesses_of(tensor))}
        accesses = tuple(reversed(every.values()))
        if len(accesses) == 1:
            return UsedElements(accesses, accesses[0])
        joined, unions = self._unions
        union = unions.get(tensor)
        more = () if union is None else (v for v in union.variables if v not in self.einsum.rank_variables)
        spans = tuple((v, joined.bound(v)[1] + 1) for v in more)
        return UsedElements(accesses, union, spans)

    @cached_property
    def operands(self) -> dict[str, UsedElements]:
        """What actions may be led by: every input by its name. An input that is read at several elements is
        as many operands, `A[x - 1]` and `A[x + 1]`, of which one that is zero makes a product idle; a sum is
        idle where all of them are zero, so that they lead together."""
        result: dict[str, UsedElements] = {}
        for tensor in dict.fromkeys(a.tensor for a in self.einsum.inputs):
            used = self.used(tensor)
            if len(used.accesses) == 1 or self.union:
                result[tensor] = used
                continue
            for a in used.accesses:
                result[f"{tensor}[{', '.join(map(str, a.projection))}]"] = UsedElements((a,), a)
        return result

    def led(self, leader: str) -> UsedElements:
        """What an Einsum uses of a leader."""
        return self.operands.get(leader) or self.used(leader)

    def leaders(self, tensor: str) -> tuple[str, ...]:
        """The names by which a tensor leads actions on others; none where what is absent from it stops no
        operation."""
        found = [(name, used) for name, used in self.operands.items() if used.tensor == tensor]
        names = tuple(n for n, used in found if not all(a in self._passing for a in used.accesses))
        return names if found else (tensor,)

    @cached_property
    def _passing(self) -> tuple[TensorAccess, ...]:
        return unstopped(self.einsum)

    def links(self, tensor: str, access: TensorAccess | None = None) -> tuple[TransferEdge, ...]:
        """The links of one tensor, outermost first; none for a copy or a tensor without storage. `access`:
        the one that the last link, to compute, is of."""
        key = tensor, access
        if key not in self._known_links:
            self._known_links[key] = () if self.einsum.is_copy else self._linked(tensor, access)
        return self._known_links[key]

    def _linked(
        self, tensor: str, access: TensorAccess | None, operand: bool = False
    ) -> tuple[TransferEdge, ...]:
        """`operand`: as what is read, also of a tensor that the Einsum writes."""
        chain = storage_chain(self.problem.tree, self.name, tensor)
        result: list[TransferEdge] = []
        for level, step in enumerate(chain):
            child = chain[level + 1].id if level + 1 < len(chain) else None
            above = result[-1].conditions if result else ()
            used = self.used(tensor)
            if access is not None and child is None:
                used = UsedElements((access,), access)
            link = self._link(used, level, step.id, child, above)
            reached = () if operand else self._reached(tensor, link.component, child)
            result.append(replace(link, reached=reached))
        return tuple(result)

    def ways(self, tensor: str, node: int, kind: str) -> tuple[tuple[TransferEdge, ...], ...]:
        """The tensor's links from the outermost to the one over which this kind of access of a storage node
        goes; none where it goes over no link. To compute one way for each access of an input, for it reads
        them one by one."""
        down = kind in ("reads_fill", "writes_drain")
        links = self.links(tensor)
        for i, link in enumerate(links):
            if (link.parent if down else link.child) == node:
                reads = self.einsum.accesses_of(tensor)
                if link.child is not None or len(reads) == 1 or any(a.output for a in reads):
                    return (links[: i + 1],)
                return tuple(self.links(tensor, a) for a in reads)
        return ()

    def _link(
        self, used: UsedElements, level: int, parent: int, child: int | None, above: tuple[Condition, ...]
    ) -> TransferEdge:
        tensor, access = used.tensor, used.accesses[0]
        own = set(used.variables)
        over = [(i, x) for i, x in self.loops if child is None or i < child]
        hierarchy = self.problem.hierarchy
        dims = {i: hierarchy[x.component].dim(x.dim) for i, x in over if x.spatial and i > parent}
        shared = {
            i
            for i, x in over
            if i in dims and self.variable(x) not in own and dims[i].reuses(self.name, tensor)
        }
        stays = self._staying(own, over, parent, child, access.output)
        point = {POINT} if child is None else set()
        fine = {i for i, _ in over} | point
        read = frozenset(fine - shared - stays)
        component = self._storage(parent).component
        fresh = {i for i, x in over if not x.spatial and (i > parent or level == 0)} | point
        return TransferEdge(
            einsum=self.name,
            tensor=tensor,
            level=level,
            parent=parent,
            component=component,
            child=child,
            fine=frozenset(fine),
            write=frozenset(fine - stays),
            read=read,
            fresh=frozenset(fresh),
            shared=frozenset(shared),
            everyone=frozenset(i for i in shared if dims[i].broadcast_partials),
            read_first=hierarchy[component].read_first or (level == 0 and access.accumulates),
            used=used,
            conditions=(*above, *self._conditions(tensor, component, child, read)),
            fixed=self._named(read) | {i for i, x in self.loops if self.variable(x) in own} | own,
        )

    def _reached(self, tensor: str, component: str, child: int | None) -> tuple[Condition, ...]:
        """What makes operations idle, if an output moves only where one is executed."""
        rules = self.problem.hierarchy[component].sparse
        dense = rules is not None and tensor in rules.dense_outputs
        if dense or not self.einsum.access_of(tensor).output or self.shares(tensor, child):
            return ()
        return self.executed()

    def _named(self, digits: Set[int]) -> Digits:
        """The same with places within tiles by the names of rank variables."""
        result: set[int | str] = {d for d in digits if d != POINT}
        return frozenset(result | (set(self.einsum.rank_variables) if POINT in digits else set()))

    def _staying(
        self, own: set[str], over: list[tuple[int, Loop]], parent: int, child: int | None, output: bool
    ) -> set[int]:
        """Temporal loops further in than any that moves the tensor, where the child's policy lets it stay."""
        if child is None or not self._storage(child).reuse.carries:
            return set()
        moving = [i for i, x in over if not x.spatial and self.variable(x) in own and i in self.turning]
        last = max(moving, default=-1)
        return {i for i, x in over if not x.spatial and i > last and (i > parent or not output)}

    def _storage(self, node: int) -> StorageNode:
        result = next(n for i, n, _ in self.problem.tree.walk() if i == node)
        assert isinstance(result, StorageNode), "chains consist of storages"
        return result

    def _conditions(
        self, tensor: str, component: str, child: int | None, read: frozenset[int]
    ) -> tuple[Condition, ...]:
        rules = self.problem.hierarchy[component].sparse
        if rules is None or self.shares(tensor, child):
            return ()
        result = []
        for action in rules.actions:
            targets, leaders = action.of(self.name)
            if tensor in targets:
                # What is absent need not be read, whatever is computed of it.
                own = tuple(name for name, used in self.operands.items() if used.tensor == tensor)
                for leader in (n for x in leaders for n in (own if x == tensor and own else self.leaders(x))):
                    digits = self._restricted(read, leader)
                    result.append(Condition(action.kind, leader, digits))
        return tuple(result)

    def shares(self, tensor: str, child: int | None) -> bool:
        """True if what fills the child serves several Einsums: no one's leaders speak for all of them."""
        if child is None:
            return False
        users = (self.problem.cascade[e] for e in self.problem.tree.below[child])
        return sum(tensor in e.tensors for e in users) > 1

    def _restricted(self, digits: frozenset[int], leader: str) -> Digits:
        """The digits over variables of the leader."""
        own = self.led(leader).variables
        over = {i for i, x in self.loops if self.variable(x) in own}
        return self._named(digits) & (over | set(own))

    def executed(self) -> tuple[Condition, ...]:
        """What makes an operation idle: the actions of its compute unit, and those on its operands."""
        leaf = self.problem.tree.path(self.name)[-1].node
        assert isinstance(leaf, ComputeNode), "paths end in compute"
        unit = self.problem.hierarchy[leaf.component]
        every = frozenset(i for i, _ in self.loops) | {POINT}
        result = [
            Condition(action.kind, leader, self._restricted(every, leader))
            for action in (unit.sparse.actions if unit.sparse else ())
            for x in action.of(self.name)[1]
            for leader in self.leaders(x)
        ]
        for access in () if self.union else self.einsum.inputs:
            if access in self._passing:
                continue
            links = self._linked(access.tensor, access, operand=True)
            result += links[-1].conditions if links else ()
        return tuple(dict.fromkeys(result))

    @property
    def box(self) -> bool:
        """True if the iteration space is a box, as sums over the axes take it."""
        return is_box(self.einsum)

    @property
    def union(self) -> bool:
        """True of sums: one operand alone makes a result, so that a missing one stops nothing."""
        return is_union(self.einsum)


def is_box(einsum: Einsum) -> bool:
    """True if no constraint leaves out anything between the bounds of the rank variables."""

    def least(x: Affine) -> int:
        return x.constant + sum(c * einsum.bound(v)[c < 0] for v, c in x.terms)

    return all(c.kind == "ge" and least(c.expr) >= 0 for c in einsum.constraints)


def sharpest(conditions: Iterable[Condition]) -> tuple[Condition, ...]:
    """Without those that hold wherever another one holds: the part of a leader contains the other's part."""
    different = dict.fromkeys(Condition("skip", c.leader, c.digits) for c in conditions)
    return tuple(
        c for c in different if not any(o.leader == c.leader and c.digits < o.digits for o in different)
    )
