"""Determine which loops distinguish the transfers between two storages, and which part of a leader belongs to
each transfer.

A transfer of T from a storage to the next inner one (or to compute) belongs to the part of a leader X that
the iterations below use at the same time: the part of X that lies in the tile of the loops that distinguish
the transfers. Loops whose instances share one read of T, and loops over which T stays resident, do not
distinguish transfers: their parts of X belong to one transfer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import replace
from functools import cached_property

from polymodel.analysis.result import Problem
from polymodel.analysis.symbolic.spaces import neighbours_joined
from polymodel.architecture.hierarchy import ActionKind, FanoutDim
from polymodel.arithmetic import Affine
from polymodel.frozen import dataclass
from polymodel.mapping.looptree import ComputeNode, Loop, StorageNode, storage_chain
from polymodel.sparse.actions.counters import POINT as POINT
from polymodel.sparse.actions.counters import Counters, counters_of
from polymodel.sparse.actions.zeros import is_union, unstopped
from polymodel.workload.einsum import Einsum, TensorAccess

# Ids of loops, and names of rank variables, which denote the positions within their innermost tiles.
Digits = frozenset[int | str]


@dataclass(frozen=True)
class Condition:
    """The condition under which accesses of a tensor take place: the leader's part is not empty.

    `digits`: the counters that determine the leader's part, given as the ids of loops, and as the names of
    rank variables for the positions within their innermost tiles (POINT: for all of them). `overlapping`:
    several instances share reads of elements that are in the windows of each, and their parts of the leader
    differ: whether such an element moves depends on all of these parts.
    """

    kind: ActionKind
    leader: str
    digits: Digits
    overlapping: bool = False

    @property
    def leaders(self) -> tuple[str, ...]:
        return (self.leader,)


@dataclass(frozen=True)
class UsedElements:
    """The elements of a tensor that an Einsum uses: those that any of these accesses touches, each with a
    different index expression.

    `union`: one access that covers all of them; None where they are not evenly spaced. It may have variables
    that are not rank variables and that no loop iterates over; `spans` gives the number of values of each.
    """

    accesses: tuple[TensorAccess, ...]
    union: TensorAccess | None
    spans: tuple[tuple[str, int], ...] = ()

    @property
    def tensor(self) -> str:
        return self.accesses[0].tensor

    @property
    def variables(self) -> tuple[str, ...]:
        """The rank variables that index the tensor in any of the accesses."""
        return tuple(dict.fromkeys(v for a in self.accesses for v in a.variables))


@dataclass(frozen=True)
class TransferEdge:
    """The transfers of one tensor between a storage node and the next inner one; `child` is None for compute.

    `level`: position in the tensor's chain of storages, 0 for the outermost. `fine`: the loops that
    distinguish transfers at the child; `read`: those at the parent; `write`: `fine` without the loops over
    which the tensor stays resident. `fresh`: temporal loops between the two (for level 0 also above);
    `shared`: spatial loops whose instances share one read; `everyone`: those of them along which every
    instance receives partial sums. `used`: the elements that move; on the way to compute, where a tensor is
    read several times, those of one access. `read_first`: each element holds a value that is read first.

    An element of an output is touched where any of its operations is executed, which is where all conditions
    of `reached` hold. `fixed`: the counters that these operations have in common.
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
    """The counters and links of one Einsum. They depend on tiles only, not on data."""

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
        """Return the elements of a tensor that move between storages: those of an output, or all that is read
        of an input."""
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
        """The operands that can lead actions, by name. An input that is read at several elements is several
        operands, such as `A[x - 1]` and `A[x + 1]`. A zero in either makes a product idle. A sum is idle only
        where all of them are zero, so that there they lead together."""
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
        """Return the elements that an Einsum uses of a leader."""
        return self.operands.get(leader) or self.used(leader)

    def leaders(self, tensor: str) -> tuple[str, ...]:
        """Return the names by which a tensor leads actions on others; none where its absent elements do not
        make any operation idle."""
        found = [(name, used) for name, used in self.operands.items() if used.tensor == tensor]
        names = tuple(n for n, used in found if not all(a in self._passing for a in used.accesses))
        return names if found else (tensor,)

    @cached_property
    def _passing(self) -> tuple[TensorAccess, ...]:
        return unstopped(self.einsum)

    def links(self, tensor: str, access: TensorAccess | None = None) -> tuple[TransferEdge, ...]:
        """Return the links of one tensor, outermost first; none for a copy or for a tensor without storage.
        `access`: the access that the last link, to compute, serves."""
        key = tensor, access
        if key not in self._known_links:
            self._known_links[key] = () if self.einsum.is_copy else self._linked(tensor, access)
        return self._known_links[key]

    def _linked(
        self, tensor: str, access: TensorAccess | None, operand: bool = False
    ) -> tuple[TransferEdge, ...]:
        """Return the links of one tensor. `operand`: treat it as an operand even if the Einsum writes it."""
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
        """Return the paths of links from the outermost storage to the link that this kind of access of a
        storage node uses; none where it uses no link. On the way to compute there is one path for each access
        of an input, since compute reads them one by one."""
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
        several = self._in_several(used, frozenset(fine), dims)
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
            conditions=(*above, *self._conditions(tensor, component, child, read, several)),
            fixed=self._named(read) | {i for i, x in self.loops if self.variable(x) in own} | own,
        )

    def _in_several(
        self, used: UsedElements, fine: Digits, dims: Mapping[int, FanoutDim]
    ) -> frozenset[int]:
        """Return the spatial loops whose instances share reads of elements that are in the windows of
        several of them."""
        spans = {c.variable: c.span(fine) for c in self.counters}

        def overlap(variable: str) -> bool:
            ranks = [dict(x.terms) for a in used.accesses for x in a.projection if variable in x.variables]
            reach = [sum(abs(k) * spans[v] for v, k in r.items() if v != variable) for r in ranks]
            several = len(used.accesses) > 1
            return any(several or far >= abs(r[variable]) for r, far in zip(ranks, reach, strict=True))

        split = [(i, self.variable(x)) for i, x in self.loops if i in dims and i in self.turning]
        joined = [(i, v) for i, v in split if v in used.variables and dims[i].reuses(self.name, used.tensor)]
        return frozenset(i for i, v in joined if overlap(v))

    def _reached(self, tensor: str, component: str, child: int | None) -> tuple[Condition, ...]:
        """Return the conditions under which operations are executed, if an output moves only where one is."""
        rules = self.problem.hierarchy[component].sparse
        dense = rules is not None and tensor in rules.dense_outputs
        if dense or not self.einsum.access_of(tensor).output or self.shares(tensor, child):
            return ()
        return self.executed()

    def _named(self, digits: Set[int]) -> Digits:
        """Return these digits with positions within tiles given by the names of rank variables."""
        result: set[int | str] = {d for d in digits if d != POINT}
        return frozenset(result | (set(self.einsum.rank_variables) if POINT in digits else set()))

    def _staying(
        self, own: set[str], over: list[tuple[int, Loop]], parent: int, child: int | None, output: bool
    ) -> set[int]:
        """Return the temporal loops inside the innermost loop that moves the tensor, where the child's reuse
        policy keeps it resident."""
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
        self,
        tensor: str,
        component: str,
        child: int | None,
        read: frozenset[int],
        several: frozenset[int],
    ) -> tuple[Condition, ...]:
        """Return the conditions of the actions on the transfers of one link. `several`: the loops over
        instances that share elements of overlapping windows."""
        rules = self.problem.hierarchy[component].sparse
        if rules is None or self.shares(tensor, child):
            return ()
        result = []
        for action in rules.actions:
            targets, leaders = action.of(self.name)
            if tensor in targets:
                # An absent element need not be read, whatever is computed from it.
                own = tuple(name for name, used in self.operands.items() if used.tensor == tensor)
                for leader in (n for x in leaders for n in (own if x == tensor and own else self.leaders(x))):
                    digits = self._restricted(read, leader)
                    result.append(Condition(action.kind, leader, digits, bool(digits & several)))
        return tuple(result)

    def shares(self, tensor: str, child: int | None) -> bool:
        """Return True if a fill of the child serves several Einsums, so that no single Einsum's leaders may
        eliminate it."""
        if child is None:
            return False
        users = (self.problem.cascade[e] for e in self.problem.tree.below[child])
        return sum(tensor in e.tensors for e in users) > 1

    def _restricted(self, digits: frozenset[int], leader: str) -> Digits:
        """Return the digits that belong to variables of the leader."""
        own = self.led(leader).variables
        over = {i for i, x in self.loops if self.variable(x) in own}
        return self._named(digits) & (over | set(own))

    def executed(self) -> tuple[Condition, ...]:
        """Return the conditions under which an operation is executed: the actions of its compute unit, and
        those on its operands."""
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
        """True if the iteration space is a box, as sums over the axes require."""
        return is_box(self.einsum)

    @property
    def union(self) -> bool:
        """True for sums: one operand alone produces a result, so that an absent operand does not make an
        operation idle."""
        return is_union(self.einsum)


def is_box(einsum: Einsum) -> bool:
    """Return True if no constraint excludes any point between the bounds of the rank variables."""

    def least(x: Affine) -> int:
        return x.constant + sum(c * einsum.bound(v)[c < 0] for v, c in x.terms)

    return all(c.kind == "ge" and least(c.expr) >= 0 for c in einsum.constraints)


def sharpest(conditions: Iterable[Condition]) -> tuple[Condition, ...]:
    """Remove conditions that are implied by another one, because their part of a leader contains the other's
    part."""
    different = dict.fromkeys(Condition("skip", c.leader, c.digits) for c in conditions)
    return tuple(
        c for c in different if not any(o.leader == c.leader and c.digits < o.digits for o in different)
    )
