"""Fused groups of a chain: Einsums below the same fused loops, combined by FFMR's capacity formula."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import prod

import numpy as np
from numpy.typing import NDArray

from polymodel.errors import Diagnostic, NotSeparable, Refused, SpecError
from polymodel.pareto import staircase
from polymodel.slopes.curves import Curve, leaf, lowest
from polymodel.slopes.fused_einsum import (
    Candidates,
    FusedChoice,
    FusedSetting,
    together,
    under_fusion,
    undominated_by_key,
)
from polymodel.slopes.levels import check_einsum, read_once
from polymodel.slopes.loop_nests import as_indexed, order_classes
from polymodel.slopes.tile_sizes import TileSizeChoices, TileSizes, extent, overlapping, sizes_of, tilings
from polymodel.workload.einsum import Cascade, Einsum

# Chains of Einsums: each passes one tensor to the next, and loops over its ranks may be fused.

GRAPHS = "for branches, residuals and Einsums apart call pm.graph_slope(spec); "
GRAPHS += "for a part that is a chain, name it: einsums=[...]"
INSTEAD = "evaluate or sweep mappings of it instead: polymodel.sweep"


@dataclass(frozen=True)
class Chain:
    """Einsums in order, and the tensor that each but the last passes to the next."""

    einsums: tuple[Einsum, ...]
    links: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.einsums)

    def next_variable(self, i: int, variable: str) -> str | None:
        """Return the rank variable of Einsum i + 1 over the same rank of the tensor that is passed on."""
        link = self.links[i]
        here, there = (self.einsums[k].access_of(link).variables for k in (i, i + 1))
        return there[here.index(variable)] if variable in here else None

    def co_iterated(self, first: int, last: int) -> tuple[tuple[str, ...], ...]:
        """Return the possible variables of fused loops of the Einsums first to last: one rank variable of
        each Einsum.

        Every tensor passed on within the group is indexed by it, so that no partial sum is passed on (FFMR).
        Rank variables of extent 1 cannot be fused.
        """
        result = []
        for start in self.einsums[first].rank_variables:
            variables: list[str | None] = [start]
            for i in range(first, last):
                at = variables[-1]
                variables.append(at and self.next_variable(i, at))
            if None not in variables and extent(self.einsums[first], start) > 1:
                result.append(tuple(v for v in variables if v))
        return tuple(result)


def chain_of(cascade: Cascade, names: Sequence[str] | None = None) -> Chain:
    """Return the chain of these Einsums, by default all, in order of execution.

    Raises SpecError for fewer than two, Refused if they are not a chain (branches, residuals, copies),
    NotSeparable for windows, including halos between Einsums, and for spaces that are not boxes.
    """
    einsums = read_once(cascade, names)
    if len(einsums) < 2:
        what = f"a chain has at least two Einsums, here there is {len(einsums)}"
        raise SpecError([Diagnostic(what, "for a single one call ski_slope", code="invalid-einsum")])
    for one in einsums:
        _check(one)
    for a, b in pairwise(einsums):
        if a.n_instances != b.n_instances:
            what = f"{a.name} runs in {a.n_instances} instances, {b.name} in {b.n_instances}"
            remedy = "name Einsums that run equally often: einsums=[...]"
            raise Refused(what, remedy, code="unsupported-einsum")
    links = tuple(_link(a, b) for a, b in pairwise(einsums))
    _check_sharing(einsums, links)
    return Chain(einsums, links)


def _check(one: Einsum) -> None:
    if one.is_copy:
        message = f"{one.name} is a copy, which holds nothing"
        raise Refused(message, "leave it out: einsums=[...]", code="unsupported-copy")
    check_einsum(one)
    for a in one.accesses:
        if overlapping(one, a):
            message = f"{a.tensor} of {one.name} has windows; slopes of chains are without"
            raise NotSeparable(message, INSTEAD, code="missing-value")


def _link(producer: Einsum, consumer: Einsum) -> str:
    link = producer.outputs[0].tensor
    if link not in (a.tensor for a in consumer.inputs):
        message = f"{consumer.name} does not read {link}, the result of {producer.name}: no chain"
        raise Refused(message, GRAPHS, code="unsupported-einsum")
    here, there = producer.access_of(link), consumer.access_of(link)
    for access, one in ((here, producer), (there, consumer)):
        plain = all(
            len(e.variables) == 1 and e.terms[0][1] == 1 and not e.constant for e in access.projection
        )
        if not plain or len(access.variables) != len(access.projection):
            what = f"{one.name} does not go over {link} with one rank variable per rank"
            raise NotSeparable(what, INSTEAD, code="unsupported-window")
    for v, w in zip(here.variables, there.variables, strict=True):
        if producer.bound(v) != consumer.bound(w):
            message = f"{consumer.name} reads another part of {link} than there is"
            raise NotSeparable(message, INSTEAD, code="unsupported-window")
    return link


def _check_sharing(einsums: tuple[Einsum, ...], links: tuple[str, ...]) -> None:
    users: dict[str, list[str]] = {}
    for one in einsums:
        for tensor in one.tensors:
            users.setdefault(tensor, []).append(one.name)
    for tensor, names in users.items():
        if len(names) > (2 if tensor in links else 1):
            what = f"{tensor} is used by {' and '.join(names)}: a graph with branches, not a chain"
            raise Refused(what, GRAPHS, code="unsupported-einsum")


Ints = NDArray[np.int64]
PAIRS = 2**19  # mappings combined at once


@dataclass(frozen=True)
class GroupLoop:
    """A fused loop: its rank variable in each Einsum of the group, and its tile."""

    variables: tuple[str, ...]
    tile: int


@dataclass(frozen=True)
class Segment:
    """Consecutive Einsums below the same fused loops (none for a single Einsum), outermost first.

    `resident`: tensors passed whole, to or from a neighbour. Figures are in the slope's unit.
    """

    loops: tuple[GroupLoop, ...]
    choices: tuple[FusedChoice, ...]
    resident: tuple[str, ...]
    capacity: int
    accesses: int

    @property
    def einsums(self) -> tuple[str, ...]:
        return tuple(c.einsum for c in self.choices)


@dataclass(frozen=True, eq=False)
class _Group:
    """Candidates of every Einsum of a group, under the same fused tiles."""

    loops: tuple[tuple[str, ...], ...]
    order: tuple[int, ...]
    fused: tuple[tuple[int, ...], ...]
    members: tuple[Candidates, ...]
    resident: tuple[str, ...]
    held: int

    def segment(self, rows: tuple[int, ...]) -> Segment:
        """Return the mappings at these positions of the members."""
        choices = tuple(m.choice(r) for m, r in zip(self.members, rows, strict=True))
        key = int(self.members[0].key[rows[0]])
        at = np.unravel_index(key, tuple(len(f) for f in self.fused)) if self.fused else ()
        tiles = [f[int(i)] for f, i in zip(self.fused, at, strict=True)]
        loops = tuple(GroupLoop(self.loops[k], tiles[k]) for k in self.order)
        terms = sum(c.additive for c in choices) + max(c.maximal for c in choices)
        accesses = sum(c.accesses for c in choices)
        return Segment(loops, choices, self.resident, self.held + terms, accesses)


@dataclass(frozen=True, eq=False)
class _Segments:
    """The segments of a group on its curve: per member and point the position of its mapping."""

    group: _Group
    rows: Ints

    def __call__(self, point: int) -> Segment:
        return self.group.segment(tuple(self.rows[:, point].tolist()))


class Workbench:
    """Fronts of segments of one chain, each computed once. `tiles`, `unit`: as in `chain_slope`."""

    def __init__(self, chain: Chain, tiles: TileSizes, weights: dict[str, int]) -> None:
        self.chain, self.tiles, self.weights = chain, tiles, weights
        self.compared = 0
        self._candidates: dict[FusedSetting, Candidates] = {}
        self._fronts: dict[tuple[int, int, bool, frozenset[str]], Curve] = {}

    def front(self, first: int, last: int, retain: bool, resident: frozenset[str]) -> Curve:
        """Return segments of the Einsums first to last, all of them fused by loops; a single Einsum has no
        loops.

        `resident`: tensors passed whole. Choices are segments.
        """
        key = (first, last, retain and first < last, resident)
        if key not in self._fronts:
            groups = self._groups(first, last, retain, resident)
            self._fronts[key] = lowest(self._combined(g) for g in groups)
        return self._fronts[key]

    def size(self, tensor: str) -> int:
        """Return the size of the whole tensor, in the slope's unit."""
        one = next(e for e in self.chain.einsums if tensor in e.tensors)
        return self.weights[tensor] * prod(extent(one, v) for v in one.access_of(tensor).variables)

    def _groups(self, first: int, last: int, retain: bool, resident: frozenset[str]) -> Iterator[_Group]:
        if first == last:
            yield self._group(first, last, (), None, resident)
            return
        shared = [s for s in self.chain.co_iterated(first, last) if self._sizes(first, s)]
        for n in range(1, len(shared) + 1):
            for loops in combinations(shared, n):
                yield self._group(first, last, loops, None, resident)
                if retain:
                    for order in self._orders(first, last, loops, resident):
                        yield self._group(first, last, loops, order, resident)

    def _orders(
        self, first: int, last: int, loops: tuple[tuple[str, ...], ...], resident: frozenset[str]
    ) -> Iterator[tuple[int, ...]]:
        """Return undominated orders of the fused loops, on the assumption that all tensors that they move are
        kept."""
        names = tuple(map(str, range(len(loops))))
        moved = {}
        for k in range(first, last + 1):
            for access in self.chain.einsums[k].accesses:
                if access.tensor not in resident | set(self.chain.links[first:last]):
                    index = [
                        n for n, loop in zip(names, loops, strict=True) if loop[k - first] in access.variables
                    ]
                    moved[f"{k} {access.tensor}"] = frozenset(index)
        moved = {t: index for t, index in moved.items() if index}
        for result in order_classes(names, as_indexed(moved)):
            yield tuple(map(int, result.order))

    def _group(
        self,
        first: int,
        last: int,
        loops: tuple[tuple[str, ...], ...],
        order: tuple[int, ...] | None,
        resident: frozenset[str],
    ) -> _Group:
        """Return the group of these Einsums under these loops. `order`: None drops what the fused loops move;
        otherwise the order over which some of it is kept."""
        einsums = self.chain.einsums[first : last + 1]
        fused = tuple(self._fused(first, loop) for loop in loops)
        free = frozenset(self.chain.links[first:last])
        members = []
        for k, one in enumerate(einsums):
            mine = tuple(loop[k] for loop in loops)
            sizes = tuple(
                self._tilings(one, v, dict(zip(mine, fused, strict=True))) for v in one.rank_variables
            )
            width = tuple((t, self.weights[t]) for t in one.tensors)
            here = frozenset(one.tensors)
            plain = FusedSetting(one, mine, sizes, free & here, resident & here, None, width)
            result = self._under(plain)
            if order is not None:
                ordered = tuple(mine[i] for i in order)
                kept = FusedSetting(one, mine, sizes, free & here, resident & here, ordered, width)
                result = together(result, self._under(kept))
            members.append(result)
        held = tuple(sorted(resident, key=self.chain.links.index))
        order = tuple(range(len(loops))) if order is None else order
        return _Group(loops, order, fused, tuple(members), held, sum(map(self.size, held)))

    def _under(self, setting: FusedSetting) -> Candidates:
        if setting not in self._candidates:
            self._candidates[setting] = under_fusion(setting)
            self.compared += self._candidates[setting].compared
        return self._candidates[setting]

    def _sizes(self, first: int, loop: tuple[str, ...]) -> tuple[int, ...]:
        return sizes_of(extent(self.chain.einsums[first], loop[0]), loop[0], self.tiles)[0]

    def _fused(self, first: int, loop: tuple[str, ...]) -> tuple[int, ...]:
        """Return the tiles of a fused loop. If it indexes all tensors, only the smallest: a larger one saves
        nothing."""
        einsums = self.chain.einsums[first : first + len(loop)]
        every = all(v in a.variables for one, v in zip(einsums, loop, strict=True) for a in one.accesses)
        return self._sizes(first, loop)[: 1 if every else None]

    def _tilings(self, one: Einsum, variable: str, fused: dict[str, tuple[int, ...]]) -> TileSizeChoices:
        whole = extent(one, variable)
        sizes, perfect = sizes_of(whole, variable, self.tiles)
        return tilings(whole, fused.get(variable, (whole,)), sizes, perfect)

    def _combined(self, group: _Group) -> Curve:
        """Return the front of a group: sum of the additive terms + the largest maximal one, per fused
        tiles."""
        first, *rest = group.members
        columns = first.columns[:4]
        rows = np.arange(len(first))[None]
        for number, then in enumerate(rest):
            final = number == len(rest) - 1
            columns, rows = _crossed(columns, rows, then, final)
        capacity = columns[1] + columns[2] + group.held
        kept = staircase(capacity, columns[3])
        return leaf(capacity[kept], columns[3][kept], _Segments(group, rows[:, kept]))


def _crossed(columns: Ints, rows: Ints, then: Candidates, final: bool) -> tuple[Ints, Ints]:
    """Return every mapping so far combined with every one of the next Einsum under the same fused tiles,
    pruned: by three figures, or (`final`) by capacity and accesses."""
    begin = np.searchsorted(then.key, columns[0], side="left")
    many = np.searchsorted(then.key, columns[0], side="right") - begin
    ends = np.cumsum(many)
    result, which = np.zeros((4, 0), np.int64), np.zeros((len(rows) + 1, 0), np.int64)
    at = 0
    while at < len(many):
        stop = int(np.searchsorted(ends, ends[at] - many[at] + PAIRS, side="right"))
        stop = max(stop, at + 1)
        mine = np.repeat(np.arange(at, stop), many[at:stop])
        offset = np.arange(len(mine)) - np.repeat(
            ends[at:stop] - many[at:stop] - (ends[at] - many[at]), many[at:stop]
        )
        other = begin[mine] + offset
        block = np.stack(
            (
                columns[0, mine],
                columns[1, mine] + then.additive[other],
                np.maximum(columns[2, mine], then.maximal[other]),
                columns[3, mine] + then.accesses[other],
            )
        )
        both = np.concatenate((result, block), axis=1)
        kept = staircase(both[1] + both[2], both[3]) if final else undominated_by_key(both)
        links = np.concatenate((which, np.concatenate((rows[:, mine], other[None]))), axis=1)
        result, which = both[:, kept], links[:, kept]
        at = stop
    return result, which
