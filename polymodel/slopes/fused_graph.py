"""A cascade for fusion: tensors that Einsums share, and which of their ranks fused loops may tile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations, product
from math import prod
from typing import Literal

from polymodel.errors import Diagnostic, NotSeparable, Refused, SpecError
from polymodel.slopes.einsum_mappings import EinsumStructure, OperationTensor
from polymodel.slopes.levels import check_counts, check_einsum, read_once, weights_of
from polymodel.slopes.tile_sizes import TileSizes, extent, sizes_of
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess

# Options of fusion across a graph, and ranks with special roles: heads and batches.

ROLES = ("head", "batch")
Operands = Literal["as_written", "flipped", "both"]


@dataclass(frozen=True)
class FusionRules:
    """The options of fused mappings.

    `head`: with any fused loop, a head rank (of size > 1) is outermost. `batch`: a batch rank is next, if it
    indexes all tensors of an Einsum with exactly three. A rank is a head or a batch if its name or that of
    its rank variable contains the word, or if `roles` lists it: `(("head", ("H",)), ("batch", ("B",)))`.
    `head_is_tiled_fusion`: footprints of Einsums that share a tensor head by head add; otherwise buffers are
    freed between heads and the largest counts. `uneven`: tensors that may be stored directly below the fused
    loops rather than below all: True for any that is not fused, or names of tensors and renames (`weight`).
    `operands`: whether names in `uneven` mean input and weight as written, swapped, or both alternatives; the
    two have no other distinction. `partial_overlap`: a producer may tile more ranks of a tensor than its
    consumer, which waits and buffers. `equal_outer_sizes`: of the fused loops over a tensor only the
    innermost may have sizes that differ between its users. The notes allow different sizes for all, and count
    one tile on each side; but if an outer size differs, the data between producer and consumer exceed these
    tiles. `layout`: penalties for access orders that differ between Einsums; refused, since not supported.
    """

    head: bool = True
    batch: bool = True
    head_is_tiled_fusion: bool = True
    uneven: bool | tuple[str, ...] = True
    operands: Operands = "both"
    partial_overlap: bool = False
    equal_outer_sizes: bool = False
    roles: tuple[tuple[str, tuple[str, ...]], ...] = ()
    layout: object = None

    def __post_init__(self) -> None:
        if self.layout is not None:
            raise Refused(
                "penalties for an order of access that differs between Einsums (`layout`) are not counted",
                "leave `layout` out; compare orders with pm.evaluate and the energies of your memory",
                code="unsupported-constraint",
            )

    def has_role(self, role: str, access: TensorAccess, variable: str) -> bool:
        """Return whether a rank variable indexes a rank of this role in a tensor."""
        for rank, index in zip(access.ranks, access.projection, strict=True):
            if variable not in index.variables:
                continue
            given: Mapping[str, tuple[str, ...]] = dict(self.roles)
            if role in given:
                if rank in given[role] or variable in given[role]:
                    return True
            elif role in rank.lower() or role in variable.lower():
                return True
        return False

    def heads(self, one: Einsum) -> tuple[str, ...]:
        """Return rank variables over heads, with more than one head."""
        return tuple(
            v
            for v in one.rank_variables
            if _long(one, v) and any(self.has_role("head", a, v) for a in one.accesses)
        )

    def batches(self, one: Einsum) -> tuple[str, ...]:
        """Return rank variables that are batches: they index all tensors of an Einsum with exactly three
        accesses."""
        if len(one.accesses) != 3:
            return ()
        return tuple(
            v
            for v in one.rank_variables
            if _long(one, v) and all(self.has_role("batch", a, v) for a in one.accesses)
        )

    def outermost(self, one: Einsum) -> tuple[str, ...]:
        """Return the rank variables with which its fused loops must start, if any: heads, then batches."""
        heads = self.heads(one) if self.head else ()
        return (
            heads + tuple(v for v in self.batches(one) if v not in heads) if heads and self.batch else heads
        )

    def uneven_sets(self, one: Einsum) -> frozenset[frozenset[int]]:
        """Return sets of tensors (positions in the Einsum), any of which may be stored at another depth."""
        if isinstance(self.uneven, bool):
            return frozenset({frozenset(range(len(one.accesses)) if self.uneven else ())})
        swapped = {"input": "weight", "weight": "input"}
        turns = {
            "as_written": [self.uneven],
            "flipped": [tuple(swapped.get(n, n) for n in self.uneven)],
        }
        chosen = [
            names for turn, every in turns.items() if self.operands in (turn, "both") for names in every
        ]
        meant = dict(one.renames)
        return frozenset(
            frozenset(
                i for i, t in enumerate(one.tensors) if any(t == n or t in meant.get(n, ()) for n in names)
            )
            for names in chosen
        )


def _long(one: Einsum, variable: str) -> bool:
    low, high = one.bound(variable)
    return high > low


# How a shared tensor is passed on: through the backing store, held whole, head by head (each head's slice is
# held whole, and buffers are freed between heads), or tile by tile.
Kind = Literal["backing", "whole", "headed", "tiled"]
Kinds = Mapping[str, Kind]


@dataclass(frozen=True, order=True)
class TensorTiling:
    """Ranks of a tensor (positions) that fused loops tile, outermost first.

    `waits`: if not 0, only the producer tiles all of them; its consumers tile the first `waits` ranks and
    wait for what is inside (`partial_overlap`). `bounds`: iterations of the outermost loops of the consumers;
    those of the producer are multiples, and equal for the first `equal` ones.
    """

    ranks: tuple[int, ...]
    waits: int = 0
    bounds: tuple[int, ...] = ()
    equal: int = 0

    def of(self, producer: bool) -> tuple[int, ...]:
        """Return the ranks that the producer or a consumer tiles."""
        return self.ranks if producer or not self.waits else self.ranks[: self.waits]

    @property
    def shared(self) -> int:
        """Return the number of loops that its users share."""
        return self.waits or len(self.ranks)


@dataclass(frozen=True)
class SharedTensor:
    """A tensor that several Einsums use. `users`: positions in the workload, the producer's first.

    `elements`: its size, each element counting its weight; `times`: instances of the Einsums. `ranks`:
    positions and tile sizes of ranks that may be tiled: of more than one element, and indexed by one rank
    variable of its own in every Einsum, over all of it. `fusable`: False if it must go through the backing
    store. `heads`: positions of ranks that are heads, or batches that act like heads, to any of the users.
    """

    name: str
    users: tuple[int, ...]
    producer: int | None
    elements: int
    ranks: tuple[tuple[int, tuple[int, ...]], ...]
    times: int = 1
    fusable: bool = True
    heads: frozenset[int] = frozenset()

    def tilings(self, rules: FusionRules) -> tuple[TensorTiling, ...]:
        """Return every way to pass the tensor on tile by tile; not head by head, if that frees the buffer."""
        result = [
            TensorTiling(p) for n in range(len(self.ranks)) for p in permutations(self._positions, n + 1)
        ]
        if not rules.head_is_tiled_fusion:
            result = [t for t in result if not self.heads >= set(t.ranks)]
        waiting = rules.partial_overlap and self.producer is not None
        more = [w for t in result for w in self._waiting(t, rules.equal_outer_sizes)] if waiting else []
        if rules.equal_outer_sizes:
            result = [
                TensorTiling(t.ranks, 0, bounds, len(bounds))
                for t in result
                for bounds in self._bounds(t.ranks[:-1])
            ]
        return (*result, *more)

    @cached_property
    def _positions(self) -> tuple[int, ...]:
        return tuple(r for r, _ in self.ranks)

    def _waiting(self, tiling: TensorTiling, equal: bool) -> Iterator[TensorTiling]:
        for n in range(1, len(tiling.ranks)):
            for bounds in self._bounds(tiling.ranks[:n]):
                yield TensorTiling(tiling.ranks, n, bounds, n - 1 if equal else 0)

    def _bounds(self, ranks: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        """Return the possible iterations of loops over these ranks."""
        sizes = dict(self.ranks)
        return product(*([sizes[r][-1] // s for s in sizes[r][:-1]] for r in ranks))

    @property
    def slice(self) -> int:
        """Return the number of elements of one head."""
        sizes = dict(self.ranks)
        return self.elements // prod(sizes[r][-1] for r in self.heads if r in sizes)


@dataclass(frozen=True)
class Member:
    """One Einsum of the graph for the search. `variables`: those of extent above 1.

    `uneven`: sets of tensors (positions), any of which may be uneven. `outermost`: rank variables that its
    fused loops must start with, if any.
    """

    einsum: Einsum
    variables: tuple[str, ...]
    operation: EinsumStructure
    uneven: frozenset[frozenset[int]]
    outermost: tuple[str, ...]

    def indexed(self, tensor: str, tiling: TensorTiling) -> tuple[str, ...]:
        """Return rank variables of the fused loops that tile a tensor this way in the Einsum."""
        access = self.einsum.access_of(tensor)
        return tuple(access.projection[r].variables[0] for r in tiling.of(access.output))


@dataclass(frozen=True)
class FusedGraph:
    """The Einsums in the workload's order, and the tensors that they share."""

    members: tuple[Member, ...]
    shared: Mapping[str, SharedTensor]
    rules: FusionRules

    def __repr__(self) -> str:
        return f"FusedGraph({len(self.members)} Einsums; shared tensors: {', '.join(self.shared) or 'none'})"

    def touched(self, at: int) -> tuple[SharedTensor, ...]:
        """Return the shared tensors of an Einsum, in the order of its accesses."""
        return tuple(self.shared[t] for t in self.members[at].einsum.tensors if t in self.shared)

    def head_tiling(self, tensor: SharedTensor) -> TensorTiling:
        """Return the tiling of a tensor that is passed on head by head: by its heads in the order of its
        users."""
        user = max((self.members[u] for u in tensor.users), key=lambda m: len(m.outermost))
        access = user.einsum.access_of(tensor.name)
        order = {access.projection[r].variables[0]: r for r in tensor.heads}
        return TensorTiling(tuple(order[v] for v in user.outermost if v in order))


def fused_graph(cascade: Cascade, rules: FusionRules, unit: str, tiles: TileSizes) -> FusedGraph:
    """Return the graph of a workload.

    A copy of a workload input causes no traffic, since both are in the backing store: Einsums that read the
    copy read the source. Raises Refused and NotSeparable for workloads without a curve.
    """
    einsums = without_copies(cascade)
    weights: dict[str, int] = {}
    for one in einsums:
        check_plain(one)
        weights |= weights_of(one, unit)
    check_counts(einsums, weights)
    members = tuple(_member(e, rules, weights, tiles) for e in einsums)
    names = dict.fromkeys(t for e in einsums for t in e.tensors)
    result = {t: _shared(t, members, weights[t]) for t in names if sum(t in e.tensors for e in einsums) > 1}
    return FusedGraph(members, result, rules)


def without_copies(cascade: Cascade) -> tuple[Einsum, ...]:
    """Return the Einsums without copies of workload inputs, each after those whose results it needs."""
    einsums = read_once(cascade)
    order = [e.name for e in cascade]
    for one in cascade:
        made = [a.tensor for a in one.inputs if one.is_copy and cascade.producer(a.tensor)]
        if made:
            message = f"{one.name} copies {made[0]}, which another Einsum makes"
            raise Refused(message, "leave the copy out", code="unsupported-copy")
        for a in one.inputs:
            maker = cascade.producer(a.tensor)
            if maker and order.index(maker.name) >= order.index(one.name):
                what = f"{one.name} needs {a.tensor}, which {maker.name} makes later"
                raise SpecError([Diagnostic(what, f"list {maker.name} first", code="order-violated")])
    return tuple(e for e in einsums if not e.is_copy)


def check_plain(one: Einsum) -> None:
    """Raise NotSeparable unless every rank is indexed by one rank variable, none twice in a tensor, and the
    requirements of slopes are met."""
    check_einsum(one)
    for a in one.accesses:
        plain = [len(e.variables) <= 1 and all(c == 1 for _, c in e.terms) for e in a.projection]
        if not all(plain) or len(a.variables) < sum(bool(e.variables) for e in a.projection):
            message = f"{a.tensor} of {one.name} has a rank that is not a rank variable of its own"
            remedy = "see ski_slope for the slope of this Einsum alone"
            raise NotSeparable(message, remedy, code="unsupported-window")


def _member(one: Einsum, rules: FusionRules, weights: Mapping[str, int], tiles: TileSizes) -> Member:
    variables = tuple(v for v in one.rank_variables if extent(one, v) > 1)
    sizes = tuple(_sizes(v, extent(one, v), tiles) for v in variables)
    indices = [frozenset(variables.index(v) for v in a.variables if v in variables) for a in one.accesses]
    operands = tuple(
        OperationTensor(index, a.output, weights[a.tensor], a.accumulates)
        for index, a in zip(indices, one.accesses, strict=True)
    )
    operation = EinsumStructure(sizes, operands, one.n_instances)
    return Member(one, variables, operation, rules.uneven_sets(one), rules.outermost(one))


def _sizes(variable: str, whole: int, tiles: TileSizes) -> tuple[int, ...]:
    below, perfect = sizes_of(whole, variable, tiles)
    uneven = [t for t in below if whole % t]
    if uneven and not perfect:
        message = f"slopes of graphs are over divisors; {uneven[0]} does not divide the {whole} of {variable}"
        remedy = 'take tiles="divisors"; chain_slope and ski_slope know all sizes'
        raise Refused(message, remedy, code="unsupported-loop")
    return (*below, whole)


def _shared(tensor: str, members: tuple[Member, ...], weight: int) -> SharedTensor:
    users = [i for i, m in enumerate(members) if tensor in m.einsum.tensors]
    makers = [i for i in users if members[i].einsum.access_of(tensor).output]
    producer = makers[0] if makers else None
    accesses = [members[i].einsum.access_of(tensor) for i in users]
    persistent = any(a.persistent for a in accesses)
    same = len({members[i].einsum.n_instances for i in users}) == 1
    one, access = members[users[0]].einsum, accesses[0]
    ranks, heads = [], set()
    for r in range(len(access.ranks)):
        index = [(members[i], a.projection[r]) for i, a in zip(users, accesses, strict=True)]
        names = [(m, e.variables[0]) for m, e in index if e.variables and e.variables[0] in m.variables]
        bounds = {(m.einsum.bound(v), e.constant) for (m, e), (_, v) in zip(index, names, strict=False)}
        if len(names) == len(users) and len(bounds) == 1:
            m, v = names[0]
            ranks.append((r, m.operation.sizes[m.variables.index(v)]))
            heads |= {r} if any(v in m.outermost for m, v in names) else set()
    return SharedTensor(
        tensor,
        tuple(users),
        producer,
        weight * prod(extent(one, v) for v in access.variables),
        tuple(ranks),
        one.n_instances,
        same and not (persistent and producer is not None),
        frozenset(heads),
    )
