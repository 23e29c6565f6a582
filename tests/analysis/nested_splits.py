"""Fused trees at random in which what stays while other Einsums run decides the peak.

Three or four Einsums below splits inside splits, loops above each of them, buffets at all depths under mixed
policies, small tensors of 1-bit values: so a buffet of one branch and one of another often lie side by side
in one iteration only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from random import Random

from polymodel.analysis.result import Problem
from polymodel.architecture.hierarchy import Component, FanoutDim, Hierarchy
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Node, Split, StorageNode
from polymodel.reuse import Reuse
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess
from tests.workloads import box, index

POINTS = 200  # of all Einsums
HARDWARE = Hierarchy(
    (
        *(Component(name, "memory") for name in ("DRAM", "L1")),
        Component("PE", "container", spatial=(FanoutDim("X", 6),)),
        Component("L2", "memory"),
        Component("MAC", "compute"),
    )
)
POLICIES: tuple[Reuse, ...] = ("refill", "slide", "keep_previous", "keep_previous")
SHARED = ("b", "m", "n")  # over which loops above splits go; most intermediates have all of them
# An operand's ranks: those of an intermediate in any order, some of them, or windows.
OPERANDS = ("b", "m", "n", "m,n", "n,b", "m+n", "b+m", "m+k", "k", "m,k", "n+k", "2m+k", "m+k,n", "b+k,m")


@dataclass
class _Above:
    """What is left of each rank variable's extent, and the tensors held so far with the memory's level."""

    extent: dict[str, int]
    held: dict[str, int] = field(default_factory=dict)
    spread: bool = False

    def copy(self) -> _Above:
        return _Above(dict(self.extent), dict(self.held), self.spread)


MEMORIES = ("DRAM", "L1", "L2")


class Mapping:
    """A tree for a cascade; `first`, `spatial`: shares of loops with a first tile of their own, over PE.X."""

    def __init__(self, pick: Random, cascade: Cascade, first: float, spatial: float) -> None:
        self.pick, self.cascade, self.first, self.spatial = pick, cascade, first, spatial

    def tree(self) -> LoopTree:
        above = _Above({v: e.bound(v)[1] + 1 for e in self.cascade for v in e.rank_variables})
        inner = self.cascade.intermediates
        backed = [t for t in self.cascade.tensors if t not in inner or self.pick.random() < 0.2]
        top = self.store("DRAM", backed, above)
        return LoopTree((*top, *self.below(self.cascade.einsums, above)))

    def store(self, component: str, tensors: list[str], above: _Above) -> list[Node]:
        above.held |= dict.fromkeys(tensors, MEMORIES.index(component))
        return [StorageNode(component, (t,), self.pick.choice(POLICIES)) for t in tensors]

    def some(self, group: tuple[Einsum, ...], share: float, above: _Above) -> list[Node]:
        """Some buffets of tensors that the Einsums touch and no memory as far in holds."""
        inner = self.cascade.intermediates
        component = "L2" if above.spread or self.pick.random() < 0.15 else "L1"
        tensors = dict.fromkeys(t for e in group for t in e.tensors)
        fitting = [
            t
            for t in tensors
            if above.held.get(t, 0) < MEMORIES.index(component)
            and (t in above.held or (t in inner and component == "L1"))
        ]
        return self.store(component, [t for t in fitting if self.pick.random() < share], above)

    def loop(self, group: tuple[Einsum, ...], above: _Above) -> list[Node]:
        names = SHARED if len(group) > 1 else group[0].rank_variables
        v = self.pick.choice(names)
        extent = above.extent[v]
        if extent == 1 and self.pick.random() < 0.9:
            return []
        tile = self.pick.choice([1, max(1, extent // 2), self.pick.randint(1, max(1, extent - 1))])
        begin = self.pick.randint(1, extent) if self.pick.random() < self.first else None
        above.extent[v] = max(tile, begin or 0)
        homeless = any(t not in above.held for e in group for t in e.tensors)
        outside = MEMORIES.index("L2") not in above.held.values()
        may_spread = len(group) == 1 and not above.spread and not homeless and outside
        if may_spread and self.pick.random() < self.spatial:
            above.spread = True
            return [Loop(v, tile, begin, True, "PE", "X")]
        return [Loop(v, tile, begin)]

    def below(self, group: tuple[Einsum, ...], above: _Above) -> tuple[Node, ...]:
        nodes: list[Node] = []
        for _ in range(self.pick.choice([1, 1, 2, 2, 3] if len(group) > 1 else [0, 0, 0, 1, 2])):
            if self.pick.random() < 0.5:
                nodes += self.some(group, self.pick.choice([0.2, 0.5]), above)
            nodes += self.loop(group, above)
        nodes += self.some(group, self.pick.choice([0.1, 0.3, 0.6]), above)
        if len(group) == 1:
            nodes += self.store("L1", [t for t in group[0].tensors if t not in above.held], above)
            return (*nodes, ComputeNode(group[0].name, "MAC"))
        parts = self.parts(group)
        crossing = [
            t
            for t in self.cascade.tensors
            if t not in above.held and sum(any(t in e.tensors for e in part) for part in parts) > 1
        ]
        nodes += self.store("L1", crossing, above)
        return (*nodes, Split(tuple(self.below(part, above.copy()) for part in parts)))

    def parts(self, group: tuple[Einsum, ...]) -> list[tuple[Einsum, ...]]:
        if self.pick.random() < 0.1:
            return [(e,) for e in group]
        cut = self.pick.randint(1, len(group) - 1)
        return [group[:cut], group[cut:]]


def cascade(pick: Random) -> Cascade | None:
    """Each Einsum reads what one or two before it made and other operands; None if it is too large."""
    most = pick.choice([3, 4, 6])
    sizes = {"m": pick.randint(2, most), "n": pick.randint(1, most), "k": pick.randint(1, 3)}
    sizes["b"] = pick.choice([1, 2, 2, 3])
    length = pick.choice([3, 4])
    made = [pick.choice(["b,m,n", "b,m,n", "b,m,n", "b,m", "n,b", "m,n"]) for _ in range(length)]
    named = {f"S{i}": pick.choice(OPERANDS) for i in range(3)}
    found, total = [], 0
    for i in range(length):
        forms = {t: named[t] for t in pick.sample(sorted(named), pick.choice([0, 1, 1, 2]))}
        forms |= {f"T{k}": made[k] for k in pick.sample(range(i), min(i, pick.choice([0, 1, 1, 2])))}
        forms[f"T{i}"] = made[i]
        if not all(any(v in x for x in forms.values()) for v in SHARED):
            forms["S9"] = "b,m,n"
        found.append(_einsum(f"E{i}", forms, sizes))
        total += prod(high + 1 for _, high in found[-1].bounds)
    return Cascade(tuple(found)) if total <= POINTS else None


def _einsum(name: str, forms: dict[str, str], sizes: dict[str, int]) -> Einsum:
    projections = {t: tuple(map(index, text.split(","))) for t, text in forms.items()}
    accesses = tuple(
        TensorAccess(
            t, tuple(f"R{k}" for k in range(len(x))), x, output=t == f"T{name[1:]}", bits_per_value=1
        )
        for t, x in projections.items()
    )
    variables = tuple(dict.fromkeys(v for a in accesses for v in a.variables))
    ranges = {v: (0, sizes[v] - 1) for v in variables}
    return Einsum(name, variables, box(ranges), accesses, tuple(ranges.values()))


def nested_splits(pick: Random, first: float = 0, spatial: float = 0) -> Problem | None:
    """A problem whose dependences may be kept or not; None if the draw was too large."""
    drawn = cascade(pick)
    return drawn and Problem(drawn, HARDWARE, Mapping(pick, drawn, first, spatial).tree())
