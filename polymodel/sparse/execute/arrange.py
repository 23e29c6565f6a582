"""Apply the partitioning of one Einsum to its tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.sparse.fibertree import Ints, LoopRank, changes
from polymodel.sparse.partition import (
    DYNAMIC,
    Columns,
    Cut,
    Partitioner,
    Slices,
    check_sizes,
    follow,
    number,
    occupancy,
    part_names,
    shape_columns,
    shape_steps,
)
from polymodel.spec.teaal.records import Directive, EinsumMapping, Expression, IndexedTensor, Partition

# Ranks that follow the split of another rank: `follow(Q)`.
#
# A rank with a loop of its own is split like its leader. A rank with affine indices (W of I[q + s]) has no
# loop: its tile for a tile of Q holds all coordinates from the lowest to the highest that the tile reaches
# for any values of the other variables. Such tiles overlap by a halo.

_SHAPES = ("uniform_shape", "nway_shape")


def follows(partition: Partition) -> bool:
    """Return whether a rank follows another one."""
    return any(d.kind == "follow" for d in partition.directives)


def leading(partition: Partition, partitioning: Sequence[Partition], einsum: str) -> Partition:
    """Return the split that a rank follows. Raises Refused if it is not a split by shape."""
    rank, directives = partition.ranks[0], partition.directives
    leader = directives[0].leader or ""
    what = f"{einsum}: rank {rank} follows {leader}"
    if any(d.kind != "follow" or d.leader != leader for d in directives):
        message = f"{what} and is split otherwise too"
        raise Refused(message, f"let it follow {leader} alone", code="unsupported-partitioning")
    result = next((p for p in partitioning if p.ranks == (leader,) and p is not partition), None)
    if result is None:
        remedy = "follow a rank split by shape; the tensors of a rank are cut where its leader is in any case"
        message = f"{what}, which is not a rank that is split by itself"
        raise Refused(message, remedy, code="unsupported-partitioning")
    if any(d.kind not in _SHAPES for d in result.directives):
        remedy = f"split {leader} by uniform_shape or nway_shape"
        raise Refused(f"{what}, which is not split by shape", remedy, code="unsupported-partitioning")
    if len(directives) not in (1, len(result.directives)):
        times = f"{len(directives)} times, which is split {len(result.directives)} times"
        message = f"{what} {times}"
        raise Refused(message, f"write follow({leader}) once for each split", code="unsupported-partitioning")
    return result


def alike(partition: Partition, led: Partition, sizes: Mapping[str, int], einsum: str) -> Partition:
    """Return the split of a following rank with a loop of its own: the tiles of its leader."""
    rank, leader = partition.ranks[0], led.ranks[0]
    if len(partition.directives) != len(led.directives):
        what = f"{einsum}: rank {rank} follows {leader} once, which is split {len(led.directives)} times"
        remedy = f"write follow({leader}) once for each split: each makes a loop"
        raise Refused(what, remedy, code="unsupported-partitioning")
    if sizes[rank] != sizes[leader] and any(d.kind == "nway_shape" for d in led.directives):
        what = f"{einsum}: rank {rank} of size {sizes[rank]} follows the {leader} of size {sizes[leader]}"
        message = f"{what}, split into a number of tiles"
        raise Refused(message, "split both by uniform_shape", code="unsupported-partitioning")
    return Partition(partition.ranks, led.directives)


def spread_halos(
    columns: Sequence[Columns],
    operands: Sequence[IndexedTensor],
    declared: Mapping[str, Sequence[str]],
    rank: str,
    leader: tuple[str, tuple[Directive, ...], Sequence[str]],
    sizes: Mapping[str, int],
    symbols: Mapping[str, int],
) -> dict[tuple[str, str], str]:
    """Add the tiles above a rank with affine indices, in every tensor. Return a map from (tensor, tile rank)
    to its loop.

    `leader`: the rank that is followed, its splits, and the loops that these make. Raises SpecError where no
    affine index of the rank contains the leader.
    """
    name, directives, loops = leader
    made: dict[tuple[str, str], str] = {}
    for tensor, operand in zip(columns, operands, strict=True):
        for index, ours in zip(operand.indices, declared[tensor.name], strict=True):
            factors = {v.upper(): f for v, f in index.terms}
            if index.variable or ours != rank or name not in factors:
                continue
            lows, highs, parts = _tiles(factors, name, directives, sizes, symbols)
            if factors[name] < 1:
                message = f"{tensor.name}: {rank} follows {name}, whose factor is {factors[name]}"
                raise Refused(message, code="unsupported-partitioning")
            count = len(parts)
            names = [f"{rank}{count - i}" for i in range(count)]
            tensor.halo(f"{rank}=", list(zip(names, parts, strict=True)), f"{rank}0", lows, highs)
            made |= {(tensor.name, n): loop for n, loop in zip(names, loops, strict=False)}
    if not made:
        what = f"rank {rank} follows {name}, but no index math of {rank} has the variable {name.lower()}"
        remedy = "leave it out: a plain index is split with its variable"
        raise SpecError([Diagnostic(what, remedy, code="invalid-partitioning")])
    return made


def _tiles(
    factors: Mapping[str, int],
    leader: str,
    directives: Sequence[Directive],
    sizes: Mapping[str, int],
    symbols: Mapping[str, int],
) -> tuple[Ints, Ints, list[Ints]]:
    """Return the lowest and the highest coordinate that each tile of the leader reaches, and the coordinates
    of its parts."""
    coords = np.arange(sizes[leader], dtype=np.int64)
    columns = shape_columns(coords, directives, sizes[leader], symbols)
    first = np.flatnonzero(changes(columns))
    last = np.append(first[1:], coords.size) - 1
    ends = [f * (sizes[v] - 1) for v, f in factors.items() if v != leader]
    low, high = sum(min(e, 0) for e in ends), sum(max(e, 0) for e in ends)
    factor = factors[leader]
    return factor * first + low, factor * last + high, [c[first] for c in columns]


class Arrangement:
    """The columns of an Einsum's tensors during the transformation from declared ranks to loop ranks.

    `chains`: rank -> its parts, outermost first. `inside`: a rank that was flattened -> (the flattened rank,
    its column there). `tiles`: loop rank -> (step, step of the next outer tile), for splits by shape.
    `leaders`: loop rank -> the tensor whose coordinates define its parts. `varying`: loop ranks among these
    whose parts differ between nodes of the outer loops. `parts`: (tensor, its rank) -> the loop of the tiles
    that a rank with affine indices follows. `dynamic`: tensor -> its rank -> the loops that split it at the
    boundaries of a leader's parts, fiber by fiber. `followed`: ranks with affine indices that follow a split
    and have a loop inside their tiles.
    """

    def __init__(
        self,
        expression: Expression,
        mapping: EinsumMapping,
        columns: Sequence[Columns],
        sizes: Mapping[str, int],
        symbols: Mapping[str, int],
        slices: Slices,
        kept: bool,
        partitioners: Mapping[str, Partitioner],
        followed: frozenset[str] = frozenset(),
    ) -> None:
        self.einsum = expression.name
        self.mapping = mapping
        self.columns = columns
        self.operands = expression.operands
        self.sizes = sizes
        self.symbols = symbols
        self.slices = slices
        self.kept = kept
        self.partitioners = partitioners
        self.followed = followed
        self.order = tuple(mapping.loop_order)
        self.declared = {c.name: tuple(r.rstrip("=") for r in c.ranks) for c in columns}
        self.chains: dict[str, list[str]] = {}
        self.inside: dict[str, tuple[str, int]] = {}
        self.tiles: dict[str, tuple[int, int | None]] = {}
        self.dynamic: dict[str, dict[str, tuple[str, ...]]] = {}
        self.leaders: dict[str, str] = {}
        self.varying: set[str] = set()
        self.parts: dict[tuple[str, str], str] = {}
        self.info: dict[str, LoopRank] = {}
        self.affine = {
            (c.name, f"{rank}="): tuple(v.upper() for v, _ in i.terms)
            for c, o in zip(columns, expression.operands, strict=True)
            for rank, i in zip(self.declared[c.name], o.indices, strict=True)
            if i.variable is None
        }
        self._variables(expression)

    def _bound(self, columns: Columns, place: int) -> list[str]:
        """Return the ranks of a tensor that the loops before this one bind, in the order in which they do."""
        result = []
        for rank in columns.ranks:
            names = [rank]
            if (columns.name, rank) in self.affine:
                names = [self.chains[v][-1] for v in self.affine[columns.name, rank] if v in self.chains]
            elif (columns.name, rank) in self.parts:
                names = [self.parts[columns.name, rank]]
            elif rank in self.inside:
                names = [self.chains[self.inside[rank][0]][-1]]
            # A rank still to be split is bound by its last part.
            places = [self.order.index(n) for m in names for n in (m, f"{m}0") if n in self.order]
            if places and max(places) < place:
                result.append((max(places), rank))
        return [rank for _, rank in sorted(result)]

    def _variables(self, expression: Expression) -> None:
        indices = list(expression.output.indices)
        for columns, operand in zip(self.columns, expression.operands, strict=True):
            ranks = self.declared[columns.name]
            pairs = zip(ranks, operand.indices, strict=True)
            indices += [i for r, i in pairs if r not in self.followed or i.variable is not None]
        for variable, _ in (t for i in indices for t in i.terms):
            rank = variable.upper()
            if rank in self.sizes:
                self.chains[rank] = [rank]
                self.info[rank] = LoopRank(rank, (rank,), (self.sizes[rank],))

    def run(self) -> None:
        """Apply every partition; those by occupancy are applied once the loops above them are known."""
        faults = check_sizes(self.mapping.partitioning, self.symbols, self.einsum)
        if faults:
            raise SpecError(faults)
        waiting, followers = self._followers()
        pending: list[tuple[str, list[Directive]]] = []
        while waiting or followers or pending:
            ready = next((p for p in waiting if all(r in self.info for r in p.ranks)), None)
            if ready is not None:
                waiting.remove(ready)
                rest = self._apply(ready)
                pending += [rest] if rest else []
            elif followers:
                self._follow(*followers.pop(0))
            elif pending:
                pending.sort(key=lambda p: self._place(f"{p[0]}{len(p[1])}"))
                rest = self._occupy(*pending.pop(0))
                pending += [rest] if rest else []
            else:
                ranks = sorted({r for p in waiting for r in p.ranks if r not in self.info})
                what = f"{self.einsum}: the partitioning names {', '.join(ranks)}, which is not a rank of it"
                remedy = "name ranks of the Einsum's tensors"
                raise SpecError([Diagnostic(what, remedy, code="invalid-partitioning")])

    def _followers(self) -> tuple[list[Partition], list[tuple[str, Partition]]]:
        """Return the splits, including those of following loops; and the ranks with affine indices, with the
        splits that they follow."""
        splits: list[Partition] = []
        followers: list[tuple[str, Partition]] = []
        for partition in self.mapping.partitioning:
            if not follows(partition):
                splits.append(partition)
                continue
            rank = partition.ranks[0]
            led = leading(partition, self.mapping.partitioning, self.einsum)
            compound = any(r == f"{rank}=" for _, r in self.affine)
            if rank in self.followed:
                followers.append((rank, led))
                continue
            if compound and rank in self.info:
                what = f"{self.einsum}: rank {rank} follows {led.ranks[0]} as a loop and as index math"
                raise Refused(what, "name the two ranks differently", code="unsupported-partitioning")
            if rank in self.info:
                splits.append(alike(partition, led, self.sizes, self.einsum))
            else:
                followers.append((rank, led))
        return splits, followers

    def _follow(self, rank: str, led: Partition) -> None:
        """Add the tiles above a rank with affine indices."""
        leader = (led.ranks[0], led.directives, self.chains.get(led.ranks[0], ()))
        made = spread_halos(
            self.columns, self.operands, self.declared, rank, leader, self.sizes, self.symbols
        )
        for tensor, loop in [*made.items()]:
            twice = [r for (t, r), other in self.parts.items() if (t, other) == (tensor[0], loop)]
            if twice:
                what = f"{self.einsum}: {tensor[0]} has two ranks that follow {led.ranks[0]}"
                message = f"{what}, {rank} and {twice[0][:-1]}"
                raise Refused(message, "let one of them follow", code="unsupported-partitioning")
        self.parts |= made
        if rank in self.followed:
            inner = f"{rank}0"
            self.chains[rank] = [inner]
            self.info[inner] = LoopRank(inner, (rank,), (self.sizes[rank],))

    def loops(self) -> tuple[LoopRank, ...]:
        """Return the loop ranks in order. Raises SpecError if the loop order is not an order of the
        partitioned ranks."""
        made = [n for chain in self.chains.values() for n in chain if n not in self.inside]
        missing = [n for n in made if n not in self.order]
        strange = [n for n in self.order if n not in made]
        compound = {rank.rstrip("=") for _, rank in self.affine}
        looped = [n for n in strange if n in compound or n.rstrip("0123456789") in compound]
        if looped:
            what = f"{self.einsum}: a loop over {', '.join(looped)}, a rank of index math"
            raise Refused(what, "loop over the ranks of its variables", code="unsupported-partitioning")
        if missing or strange or len(set(self.order)) != len(self.order):
            what = f"{self.einsum}: the loop order {list(self.order)} is not one of {sorted(made)}"
            remedy = "name each rank after partitioning once"
            raise SpecError([Diagnostic(what, remedy, code="invalid-partitioning")])
        return tuple(self.info[n] for n in self.order)

    def _place(self, name: str) -> int:
        if name not in self.order:
            what = f"{self.einsum}: the partitioning makes {name}, the loop order has no such rank"
            raise SpecError([Diagnostic(what, "add it to the loop order", code="invalid-partitioning")])
        return self.order.index(name)

    def _apply(self, partition: Partition) -> tuple[str, list[Directive]] | None:
        """Apply what depends on no other loop, and return the remaining splits by occupancy."""
        directives = list(partition.directives)
        if directives and directives[0].kind == "flatten":
            self._flatten(partition.ranks)
            return None
        rank = partition.ranks[0]
        kinds = [d.kind for d in directives]
        static = kinds.index("uniform_occupancy") if "uniform_occupancy" in kinds else len(kinds)
        if set(kinds[static:]) - {"uniform_occupancy"}:
            message = f"{self.einsum}: rank {rank} is split by shape below a split by occupancy"
            raise Refused(message, code="unsupported-partitioning")
        if "uniform_slice" in kinds[1:]:
            message = f"{self.einsum}: slices of {rank} below another split"
            raise Refused(message, "put uniform_slice first", code="unsupported-partitioning")
        names = part_names(rank, len(directives))
        if static == len(directives):
            self._shape(rank, directives, names)
            return None
        if static:
            self._shape(rank, directives[:static], (*names[:static], rank))
        return rank, directives[static:]

    def _flatten(self, ranks: Sequence[str]) -> None:
        name = "".join(ranks)
        infos = [self.info[r] for r in ranks]
        bases = tuple(b for i in infos for b in i.bases)
        self.info[name] = LoopRank(name, bases, tuple(s for i in infos for s in i.sizes))
        self.chains[name] = [name]
        column = 0
        for rank, info in zip(ranks, infos, strict=True):
            self.inside[rank] = (name, column)
            column += len(info.bases)
        for columns in self.columns:
            if all(r in columns.ranks for r in ranks):
                columns.flatten(ranks, name)

    def _replace(self, rank: str, names: Sequence[str]) -> None:
        """Replace a rank by its parts."""
        old = self.info.pop(rank)
        for chain in self.chains.values():
            if rank in chain:
                at = chain.index(rank)
                chain[at : at + 1] = names
        for name in names:
            self.info[name] = LoopRank(name, old.bases, old.sizes)

    def _shape(self, rank: str, directives: Sequence[Directive], names: Sequence[str]) -> None:
        """Apply splits by shape and, outermost, by slices. `names`: those of the parts and of the rest."""
        size = self.info[rank].size
        sliced = directives[0].kind == "uniform_slice"
        slices = self._slice(rank, directives[0], size) if sliced else None
        steps = shape_steps(directives[sliced:], size, self.symbols)
        for columns in self.columns:
            if rank in columns.ranks:
                column = columns.columns[rank]
                made = [] if slices is None else [slices[column].clip(0)]
                made += shape_columns(column, directives[sliced:], size, self.symbols)
                columns.split(rank, list(zip(names, made, strict=False)), names[-1])
        if not sliced:
            for name, step, outer in zip(names, [*steps, 1], [None, *steps], strict=True):
                self.tiles[name] = (step, outer)
        self._replace(rank, names)

    def _slice(self, rank: str, directive: Directive, size: int) -> Ints:
        """Return the slice of each coordinate, balanced by the nonzeros of the first tensor that has the
        rank."""
        carriers = [c for c in self.columns if rank in c.ranks]
        if not carriers:
            what = f"{self.einsum}: no tensor on the right has rank {rank}, whose nonzeros make the slices"
            raise SpecError([Diagnostic(what, code="invalid-partitioning")])
        return self.slices.of(carriers[0], rank, size, number(directive, self.symbols), self.kept)

    def _occupy(self, rank: str, directives: list[Directive]) -> tuple[str, list[Directive]] | None:
        """Split a rank into parts with equal numbers of coordinates of the leader, and return the remaining
        splits."""
        directive, name = directives[0], f"{rank}{len(directives)}"
        rest = rank if len(directives) > 1 else f"{rank}0"
        leader = next((c for c in self.columns if c.name == directive.leader and rank in c.ranks), None)
        if leader is None:
            leader_of = f"the leader {directive.leader} of rank {rank}"
            what = f"{self.einsum}: {leader_of} is not an input with that rank"
            remedy = "lead by a tensor on the right that has the rank"
            raise SpecError([Diagnostic(what, remedy, code="invalid-partitioning")])
        before = self._bound(leader, self._place(name))
        self.leaders[name] = leader.name
        if before:
            self.varying.add(name)
        cut: Cut = None
        if directive.partitioner:
            grows: Cut = "dynamic" if directive.partitioner == DYNAMIC else None
            cut = self.partitioners.get(directive.partitioner, grows)
            if cut is None:
                what = f"{self.einsum}: rank {rank} is split by {directive.partitioner}, which is not given"
                remedy = f"execute(spec, tensors, partitioners={{{directive.partitioner!r}: function}})"
                raise Refused(what, remedy, code="unsupported-partitioning")
        parts, cuts = occupancy(leader, rank, before, number(directive, self.symbols), cut)
        for columns in self.columns:
            if rank not in columns.ranks or columns is leader:
                continue
            if all(r in columns.ranks for r in before):
                columns.split(rank, [(name, follow(columns, rank, cuts))], rest)
                continue
            columns.split(rank, [], rest)
            dynamic = self.dynamic.setdefault(columns.name, {})
            dynamic[rest] = (*dynamic.pop(rank, ()), name)
        leader.split(rank, [(name, parts)], rest)
        self._replace(rank, (name, rest))
        return (rank, directives[1:]) if len(directives) > 1 else None
