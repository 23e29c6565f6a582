"""The referee of the search for fused Einsums: every whole mapping of tiny chains on two or three memories.

Each intermediate is in the outermost memory, or exchanged in another one below an ordered subset of loops
over its own ranks that all Einsums below have, at most one per rank variable; of three Einsums either both
splits are one, or one stands in a branch of the other. Every other tensor has at most one node per memory,
above one of the shared loops or in its branch; on a path an outer memory's nodes stand above an inner one's.
What stands above a shared loop is there as long as the loop runs. Spatial loops stand in branches only.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise, permutations, product
from typing import Any

import numpy as np

from polymodel.architecture.hierarchy import Hierarchy
from polymodel.workload.einsum import Cascade, Einsum
from tests.mapper.brute import (
    Figures,
    Floats,
    Front,
    Machine,
    Path,
    Place,
    Shared,
    added,
    figures,
    front,
    joined,
    one_einsum,
    tilings,
)


@dataclass(frozen=True)
class Structure:
    """How consecutive Einsums exchange all intermediates between them: a split below the `outer` loops, and
    one more, of the Einsums `inside` (positions), below the `inner` loops; in which memories."""

    einsums: tuple[Einsum, ...]
    memories: tuple[int, ...]
    outer: Shared
    inner: Shared = ()
    inside: tuple[int, ...] = ()

    def loops(self, i: int) -> Shared:
        return self.outer + (self.inner if i in self.inside else ())

    @cached_property
    def owned(self) -> dict[str, tuple[int, int]]:
        """Every exchanged tensor with producer and consumer."""
        found = {}
        for i, (a, b) in enumerate(pairwise(self.einsums)):
            (tensor,) = {x.tensor for x in a.outputs} & {x.tensor for x in b.inputs}
            found[tensor] = (i, i + 1)
        return found

    def within(self, tensor: str) -> bool:
        return set(self.owned[tensor]) <= set(self.inside)

    def own(self, i: int) -> tuple[Place, ...]:
        """The exchanged tensors of one Einsum."""
        cut = {True: len(self.outer) + len(self.inner), False: len(self.outer)}
        found = zip(self.memories, self.owned.items(), strict=True)
        return tuple(Place(m, t, cut[self.within(t)]) for m, (t, users) in found if i in users)

    def alive(self, i: int, memory: int) -> list[str]:
        """Exchanged tensors that a memory has while an Einsum runs; also those that cross the inner split."""
        found = []
        for (tensor, (producer, consumer)), held in zip(self.owned.items(), self.memories, strict=True):
            if held != memory:
                continue
            crossing = i in self.inside and not self.within(tensor) and {producer, consumer} & {*self.inside}
            if i in (producer, consumer) or crossing:
                found.append(tensor)
        return found


def structures(einsums: tuple[Einsum, ...], machine: Machine, every: bool) -> Iterator[Structure]:
    """Flat ones, and of three Einsums those with one split in the other."""
    owned = Structure(einsums, (), ()).owned
    everywhere = set.intersection(*(set(e.rank_variables) for e in einsums))

    def ranks(tensor: str) -> set[str]:
        a, b = (einsums[i].access_of(tensor).variables for i in owned[tensor])
        return set(a) & set(b)

    allowed = [
        [m for m in range(1, len(machine.names)) if all(machine.may(m, einsums[i], t) for i in users)]
        for t, users in owned.items()
    ]
    common = everywhere & set.intersection(*(ranks(t) for t in owned))
    for memories in product(*allowed):
        for outer in nests(einsums[0], common, every):
            yield Structure(einsums, memories, outer)
        for inside, within, across in _nested(tuple(owned)):
            for outer in nests(einsums[1], everywhere & ranks(across), every):
                left = ranks(within) - {v for v, _ in outer}
                for inner in nests(einsums[1], left, every):
                    yield Structure(einsums, memories, outer, inner, inside)


def _nested(owned: tuple[str, ...]) -> list[tuple[tuple[int, int], str, str]]:
    """Of three Einsums: who is in the inner split, what is exchanged there, and what across it."""
    if len(owned) != 2:
        return []
    return [((0, 1), owned[0], owned[1]), ((1, 2), owned[1], owned[0])]


def nests(one: Einsum, variables: set[str], every: bool) -> Iterator[Shared]:
    """Loops over any of the variables, in any order, each of more than one trip."""
    for n in range(len(variables) + 1):
        for order in permutations(sorted(variables), n):
            extents = [one.bound(v)[1] + 1 for v in order]
            sizes = ([t for (t,) in tilings(x, 1, every) if t < x] for x in extents)
            yield from (tuple(zip(order, tiles, strict=True)) for tiles in product(*sizes))


@dataclass(frozen=True)
class Option:
    """One path with all its tile sizes; `bits` per place, cuts of shared loops first."""

    path: Path
    found: Figures


def options(structure: Structure, i: int, machine: Machine, every: bool, keep: bool = False) -> list[Option]:
    """Every placement of the tensors that one Einsum does not exchange, and of inner copies of others."""
    one, loops, own = structure.einsums[i], structure.loops(i), structure.own(i)
    exchanged = {p.tensor: p.memory for p in own}
    nodes = [
        (m, t)
        for m in range(1, len(machine.names))
        for t in one.tensors
        if machine.may(m, one, t) and m > exchanged.get(t, 0)
    ]
    everywhere = [(None, "branch", *(() if t in exchanged else range(len(loops)))) for _, t in nodes]
    result = []
    for where in product(*everywhere):
        placed = list(zip(nodes, where, strict=True))
        above = [Place(m, t, w) for (m, t), w in placed if isinstance(w, int)]
        shared = sorted((*above, *own), key=lambda p: (p.cut, p.memory))
        for order in permutations([n for n, w in placed if w == "branch"]):
            below = [Place(m, t, len(loops) + n + 1) for n, (m, t) in enumerate(order)]
            places = (*shared, *below)
            if [p.memory for p in places] == sorted(p.memory for p in places):
                spatial = sum(p.memory < 2 for p in below) if machine.fanouts else None
                path = Path(one, loops, places, tuple(exchanged), len(below), spatial)
                result.append(Option(path, figures(path, machine, every, keep)))
    return result


def shares(structure: Structure, i: int, option: Option, memories: int) -> Floats:
    """Per memory below the outermost: bits above the outer loops, above the inner ones, and in the branch."""
    outer, deep, own = len(structure.outer), len(structure.loops(i)), structure.own(i)
    found = np.zeros((3 * memories, len(option.found.energy)))
    for place, bits in zip(option.path.places, option.found.held, strict=True):
        if place not in own:
            at = 0 if place.cut < outer else 1 if place.cut < deep else 2
            found[3 * (place.memory - 1) + at] += bits
    return found


def _exchanged(structure: Structure, tensor: str) -> int:
    """Bits of an exchanged tile."""
    one = structure.einsums[structure.owned[tensor][0]]
    loops = dict(structure.outer + (structure.inner if structure.within(tensor) else ()))
    access = one.access_of(tensor)
    return access.bits_per_value * math.prod(loops.get(v, one.bound(v)[1] + 1) for v in access.variables)


def peak(structure: Structure, parts: list[Any], memory: int) -> Any:
    """The most bits at one time, from each Einsum's above the outer and the inner loops and in its branch."""
    above, between, most = sum(p[0] for p in parts), sum(p[1] for p in parts), 0
    for i, part in enumerate(parts):
        there = sum(_exchanged(structure, t) for t in structure.alive(i, memory))
        most = np.maximum(most, there + part[2] + (between if i in structure.inside else 0))
    return above + most


def structure_front(structure: Structure, machine: Machine, every: bool) -> tuple[Front, int]:
    """All mappings of one structure: each Einsum's with each other's, those that fit."""
    tables, many, inner = [], 1, range(1, len(machine.names))
    for i in range(len(structure.einsums)):
        rows = [np.zeros((2 + 3 * len(inner), 0))]
        for option in options(structure, i, machine, every):
            rows.append(
                np.stack(
                    (option.found.energy, option.found.latency, *shares(structure, i, option, len(inner)))
                )
            )
        table = np.concatenate(rows, axis=1)
        many *= table.shape[1]
        for m in inner:
            table = table[:, table[3 * m - 1 : 3 * m + 2].max(axis=0) <= machine.size(m)]
        tables.append(_unbeaten(table))
    if not all(t.shape[1] for t in tables):
        return [], many
    axes = [tuple(-1 if a == i else 1 for a in range(len(tables))) for i in range(len(tables))]
    columns = [[row.reshape(axes[i]) for row in table] for i, table in enumerate(tables)]
    fits = np.ones(tuple(t.shape[1] for t in tables), bool)
    for m in inner:
        fits &= peak(structure, [c[3 * m - 1 : 3 * m + 2] for c in columns], m) <= machine.size(m)
    energy, latency = (np.broadcast_to(sum(c[k] for c in columns), fits.shape)[fits] for k in (0, 1))
    return front(energy, latency), many


def _unbeaten(table: Floats) -> Floats:
    """Columns that no other is at most in every row; of equal ones the first."""
    order = np.lexsort(table[::-1])
    kept: list[int] = []
    best = np.zeros((len(table), 0))
    for i in order:
        if not (best <= table[:, i : i + 1]).all(axis=0).any():
            kept.append(int(i))
            best = table[:, kept]
    return table[:, kept]


def chain(cascade: Cascade, hierarchy: Hierarchy, every: bool = False) -> tuple[Front, int]:
    """The front of a chain of Einsums, and how many whole mappings it is of."""
    machine, einsums = Machine(hierarchy), cascade.einsums
    known: dict[tuple[int, int], tuple[Front, int]] = {}
    for i in range(len(einsums)):
        known[i, i + 1] = one_einsum(einsums[i], hierarchy, every)
        for j in range(i + 2, len(einsums) + 1):
            parts = [structure_front(s, machine, every) for s in structures(einsums[i:j], machine, every)]
            known[i, j] = joined([f for f, _ in parts]), sum(n for _, n in parts)
    fronts, many = [], 0
    for n in range(len(einsums)):
        for cut in combinations(range(1, len(einsums)), n):
            spans = list(zip((0, *cut), (*cut, len(einsums)), strict=True))
            fronts.append(added([known[s][0] for s in spans]))
            many += math.prod(known[s][1] for s in spans)
    return joined(fronts), many
