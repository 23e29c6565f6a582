"""The referee's mappings as LoopTrees, so that its formulas can be held against an engine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from polymodel.architecture.hierarchy import Hierarchy
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Node, Split, StorageNode
from polymodel.workload.einsum import Cascade, Einsum
from tests.mapper.brute import Machine, Path, Shared, figures, paths_of_one
from tests.mapper.brute_chain import Option, Structure, options, peak, shares, structures


def nodes_below(
    path: Path, machine: Machine, tiles: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...]
) -> tuple[Node, ...]:
    """The part of a path below its shared loops."""
    shared = len(path.shared)
    found: list[Node] = []
    now = {v: (t[shared - 1] if shared else path.einsum.bound(v)[1] + 1) for v, t, _ in tiles}
    for cut in range(path.cuts + 1):
        spread = path.spatial == cut
        for v, chain_, factors in tiles:
            to = chain_[shared + cut] if cut < path.cuts else 1
            units = math.prod(factors) if spread else 1
            if to * units < now[v]:
                found.append(Loop(v, to * units))
            now[v] = to * units
        for v, _, factors in tiles if spread else ():
            for (component, dim, _), units in zip(machine.fanouts, factors, strict=True):
                if units > 1:
                    now[v] //= units
                    found.append(Loop(v, now[v], spatial=True, component=component, dim=dim))
        held = [p for p in path.places if p.cut == shared + cut + 1]
        found += [StorageNode(machine.names[p.memory], (p.tensor,)) for p in held]
    return (*found, ComputeNode(path.einsum.name, machine.unit))


def nodes_above(structure: Structure, chosen: list[tuple[Option, int]], machine: Machine) -> tuple[Node, ...]:
    """A whole structure: shared loops with what stands between them, and the branches."""
    tails = [nodes_below(o.path, machine, o.found.tiles[at]) for o, at in chosen]

    def between(low: int, loops: Shared, members: list[int]) -> list[Node]:
        found: list[Node] = []
        for n, (v, t) in enumerate(loops):
            here = [p for i in members for p in chosen[i][0].path.places if p.cut == low + n]
            here = [p for p in here if p.tensor not in structure.owned]
            for place in sorted(here, key=lambda p: p.memory):
                found.append(StorageNode(machine.names[place.memory], (place.tensor,)))
            found.append(Loop(v, t))
        return found

    def exchanged(inside: bool) -> list[Node]:
        own = sorted(zip(structure.memories, structure.owned, strict=True))
        return [StorageNode(machine.names[m], (t,)) for m, t in own if structure.within(t) == inside]

    everyone = list(range(len(structure.einsums)))
    top = between(0, structure.outer, everyone)
    top += exchanged(inside=False)
    branches: list[tuple[Node, ...]] = []
    for i in everyone:
        if i not in structure.inside:
            branches.append(tails[i])
        elif i == structure.inside[0]:
            inner = between(len(structure.outer), structure.inner, list(structure.inside))
            inner += exchanged(inside=True)
            branches.append((*inner, Split(tuple(tails[j] for j in structure.inside))))
    return (*top, Split(tuple(branches)))


def tree_of(
    cascade: Cascade, machine: Machine, groups: list[tuple[Node, ...]], exchanged: set[str]
) -> LoopTree:
    """Groups one after the other, below the outermost memory."""
    kept = tuple(t for t in cascade.tensors if t not in exchanged)
    below = groups[0] if len(groups) == 1 else (Split(tuple(groups)),)
    return LoopTree((StorageNode(machine.names[0], kept), *below))


@dataclass(frozen=True)
class Sample:
    """One whole mapping; `bits`: per memory below the outermost, what it holds at most."""

    tree: LoopTree
    energy: float
    latency: float
    bits: tuple[float, ...]


def sampled(cascade: Cascade, hierarchy: Hierarchy, pick: Random, every: bool = False) -> Sample:
    """Any mapping of the space, whether it fits or not."""
    machine, einsums = Machine(hierarchy), cascade.einsums
    cuts = [i for i in range(1, len(einsums)) if pick.random() < 0.4]
    groups: list[tuple[Node, ...]] = []
    energy, latency, bits, exchanged = 0.0, 0.0, [0.0] * (len(machine.names) - 1), set[str]()
    for i, j in pairwise((0, *cuts, len(einsums))):
        chosen: list[tuple[Option, int]] = []
        if j == i + 1:
            path = pick.choice(list(paths_of_one(einsums[i], machine)))
            found = figures(path, machine, every, keep=True)
            at = pick.randrange(len(found.energy))
            chosen = [(Option(path, found), at)]
            groups.append(nodes_below(path, machine, found.tiles[at]))
            here = [0.0] * len(bits)
            for place, held in zip(path.places, found.held, strict=True):
                here[place.memory - 1] += held[at]
        else:
            structure, chosen = _drawn(einsums[i:j], machine, pick, every)
            groups.append(nodes_above(structure, chosen, machine))
            exchanged |= set(structure.owned)
            parts = [shares(structure, n, o, len(bits))[:, at] for n, (o, at) in enumerate(chosen)]
            memories = range(1, len(bits) + 1)
            here = [float(peak(structure, [p[3 * m - 3 : 3 * m] for p in parts], m)) for m in memories]
        energy += sum(o.found.energy[at] for o, at in chosen)
        latency += sum(o.found.latency[at] for o, at in chosen)
        bits = [max(a, b) for a, b in zip(bits, here, strict=True)]
    return Sample(tree_of(cascade, machine, groups, exchanged), energy, latency, tuple(bits))


def _drawn(
    einsums: tuple[Einsum, ...], machine: Machine, pick: Random, every: bool
) -> tuple[Structure, list[tuple[Option, int]]]:
    """A structure in which every Einsum has a mapping, and one of each."""
    every_one = list(structures(einsums, machine, every))
    while True:
        structure = pick.choice(every_one)
        tables = [options(structure, n, machine, every, keep=True) for n in range(len(einsums))]
        if all(tables):
            chosen = [pick.choice(t) for t in tables]
            return structure, [(o, pick.randrange(len(o.found.energy))) for o in chosen]
