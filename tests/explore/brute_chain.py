"""The referee of the search for fused Einsums: every whole mapping of tiny chains on two memories.

Each intermediate is in the outermost memory, or in the buffer below an ordered subset of loops over its own
ranks that all Einsums below have, at most one per rank variable; of three Einsums either both splits are one,
or one stands in a branch of the other. Every other tensor bypasses the buffer, has a node above one of the
shared loops, or one in its branch. What stands above a shared loop is there as long as the loop runs.
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
from tests.explore.brute import (
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
    one more, of the Einsums `inside` (positions), below the `inner` loops."""

    einsums: tuple[Einsum, ...]
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
        return tuple(Place(1, t, cut[self.within(t)]) for t, users in self.owned.items() if i in users)

    def alive(self, i: int) -> list[str]:
        """Exchanged tensors that are there while an Einsum runs; also those that cross the inner split."""
        found = []
        for tensor, (producer, consumer) in self.owned.items():
            crossing = i in self.inside and not self.within(tensor) and {producer, consumer} & {*self.inside}
            if i in (producer, consumer) or crossing:
                found.append(tensor)
        return found


def structures(einsums: tuple[Einsum, ...], every: bool) -> Iterator[Structure]:
    """Flat ones, and of three Einsums those with one split in the other."""
    plain = Structure(einsums, ())
    everywhere = set.intersection(*(set(e.rank_variables) for e in einsums))

    def ranks(tensor: str) -> set[str]:
        a, b = (einsums[i].access_of(tensor).variables for i in plain.owned[tensor])
        return set(a) & set(b)

    common = everywhere & set.intersection(*(ranks(t) for t in plain.owned))
    yield from (Structure(einsums, outer) for outer in nests(einsums[0], common, every))
    if len(einsums) == 3:
        for inside, within, across in ((0, 1), *plain.owned), ((1, 2), *reversed(plain.owned)):
            for outer in nests(einsums[1], everywhere & ranks(across), every):
                left = ranks(within) - {v for v, _ in outer}
                for inner in nests(einsums[1], left, every):
                    yield Structure(einsums, outer, inner, inside)


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
    """Every placement of the tensors that one Einsum does not exchange."""
    one, loops, own = structure.einsums[i], structure.loops(i), structure.own(i)
    free = [t for t in one.tensors if t not in {p.tensor for p in own}]
    result = []
    for where in product((None, "branch", *range(len(loops))), repeat=len(free)):
        above = tuple(Place(1, t, w) for t, w in zip(free, where, strict=True) if isinstance(w, int))
        inside = [t for t, w in zip(free, where, strict=True) if w == "branch"]
        for order in permutations(inside):
            below = tuple(Place(1, t, len(loops) + n + 1) for n, t in enumerate(order))
            owned = tuple(p.tensor for p in own)
            path = Path(one, loops, (*above, *own, *below), owned, len(below))
            result.append(Option(path, figures(path, machine, every, keep)))
    return result


def shares(structure: Structure, i: int, option: Option) -> tuple[Floats, Floats, Floats]:
    """Bits above the outer loops, above the inner loops, and in the branch."""
    outer, deep, zero = len(structure.outer), len(structure.loops(i)), np.zeros(len(option.found.energy))
    sums = [zero, zero, zero]
    for place, bits in zip(option.path.places, option.found.held, strict=True):
        if place.tensor not in option.path.own:
            at = 0 if place.cut < outer else 1 if place.cut < deep else 2
            sums[at] = sums[at] + bits
    return sums[0], sums[1], sums[2]


def _exchanged(structure: Structure, tensor: str) -> int:
    """Bits of an exchanged tile."""
    one = structure.einsums[structure.owned[tensor][0]]
    loops = dict(structure.outer + (structure.inner if structure.within(tensor) else ()))
    access = one.access_of(tensor)
    return access.bits_per_value * math.prod(loops.get(v, one.bound(v)[1] + 1) for v in access.variables)


def peak(structure: Structure, parts: list[Any]) -> Any:
    """The most bits at one time, from each Einsum's above the outer and the inner loops and in its branch."""
    above, between, most = sum(p[0] for p in parts), sum(p[1] for p in parts), 0
    for i, part in enumerate(parts):
        there = sum(_exchanged(structure, t) for t in structure.alive(i))
        most = np.maximum(most, there + part[2] + (between if i in structure.inside else 0))
    return above + most


def structure_front(structure: Structure, machine: Machine, every: bool) -> tuple[Front, int]:
    """All mappings of one structure: each Einsum's with each other's, those that fit."""
    tables, many = [], 1
    for i in range(len(structure.einsums)):
        rows = []
        for option in options(structure, i, machine, every):
            rows.append(np.stack((option.found.energy, option.found.latency, *shares(structure, i, option))))
        table = np.concatenate(rows, axis=1)
        many *= table.shape[1]
        tables.append(_unbeaten(table[:, np.max(table[2:], axis=0) <= machine.size(1)]))
    axes = [tuple(-1 if a == i else 1 for a in range(len(tables))) for i in range(len(tables))]
    columns = [[row.reshape(axes[i]) for row in table] for i, table in enumerate(tables)]
    need = peak(structure, [c[2:] for c in columns])
    fits = np.broadcast_to(need <= machine.size(1), tuple(t.shape[1] for t in tables))
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
    """The front of a chain of Einsums on two memories, and how many whole mappings it is of."""
    machine, einsums = Machine(hierarchy), cascade.einsums
    known: dict[tuple[int, int], tuple[Front, int]] = {}
    for i in range(len(einsums)):
        known[i, i + 1] = one_einsum(einsums[i], hierarchy, every)
        for j in range(i + 2, len(einsums) + 1):
            parts = [structure_front(s, machine, every) for s in structures(einsums[i:j], every)]
            known[i, j] = joined([f for f, _ in parts]), sum(n for _, n in parts)
    fronts, many = [], 0
    for n in range(len(einsums)):
        for cut in combinations(range(1, len(einsums)), n):
            spans = list(zip((0, *cut), (*cut, len(einsums)), strict=True))
            fronts.append(added([known[s][0] for s in spans]))
            many += math.prod(known[s][1] for s in spans)
    return joined(fronts), many
