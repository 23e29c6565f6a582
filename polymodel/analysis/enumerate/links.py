"""Hops over the interconnect of fanout dimensions, transfer by transfer, as sets of crossed links."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from polymodel.analysis.enumerate.walk import Place, SpatialLoop, physical
from polymodel.analysis.result import LinkTraffic, Problem
from polymodel.architecture.hierarchy import FanoutDim
from polymodel.spec.arch_schema import branches_to

Edge = tuple[int, int]
Wire = tuple[tuple[int, ...], Edge]  # coordinates of the outer dimensions, and the link within the row


def path(dim: FanoutDim, coordinate: int) -> set[Edge]:
    """The links from a row's entry to one instance, as (level, number); docs/semantics.md, Interconnect."""
    assert dim.link is not None
    topology = dim.link.topology
    if topology == "bus":
        return {(0, 0)}
    if topology in ("mesh", "line"):
        return {(0, i) for i in range(coordinate + 1)}
    if topology == "ring":  # the shorter way round; if both are equally long, the one of increasing numbers
        back = dim.fanout - coordinate
        ways = {(0, i) for i in range(coordinate + 1)}, {(0, 0)} | {(1, i) for i in range(back)}
        return ways[coordinate > back]
    if topology in ("switch", "all_to_all"):
        return {(1, coordinate)} | ({(0, 0)} if topology == "all_to_all" else set())
    depth = (dim.fanout - 1).bit_length()
    return {(depth - 1 - level, coordinate >> level) for level in range(depth)}


def is_entry(dim: FanoutDim, edge: Edge) -> bool:
    """True for the links at which data enter a row: the first, of a tree those at its root, of a switch
    all."""
    assert dim.link is not None
    if dim.link.topology == "switch":
        return True
    return edge[0] == 0 if dim.link.topology == "tree" else edge == (0, 0)


def is_hop(dim: FanoutDim, edge: Edge) -> bool:
    """False for the link to the first instance of a line, a ring, or all to all, which is where data
    enter."""
    assert dim.link is not None
    if dim.link.topology == "all_to_all" and edge == (1, 0):
        return False
    return edge != (0, 0) or dim.link.topology not in ("line", "ring", "all_to_all")


def largest(found: Iterable[list[int]]) -> tuple[tuple[int, int], ...]:
    """The pairs that no other pair exceeds in both numbers, sorted."""
    pairs = {(a, b) for a, b in found}
    return tuple(sorted(p for p in pairs if not any(q != p and q[0] >= p[0] and q[1] >= p[1] for q in pairs)))


class Wires:
    """What every link has carried so far: element-hops by tensor, bits by link."""

    def __init__(self, problem: Problem, bits: dict[str, int]) -> None:
        self.hierarchy, self.bits = problem.hierarchy, bits
        every = [(c, d.name) for c, d in problem.hierarchy.dimensions]
        self.dims = [
            (problem.hierarchy.index(c), c, d, every[: every.index((c, d.name))])
            for c, d in problem.hierarchy.costly_links
        ]
        self.hops: dict[tuple[str, str, str, str], int] = defaultdict(int)
        self.loads: dict[tuple[str, str, str], dict[Wire, list[int]]] = defaultdict(
            lambda: defaultdict(lambda: [0, 0])
        )
        self.reach: dict[tuple[str, str, str], int] = defaultdict(int)

    def transfer(
        self,
        tensor: str,
        ends: tuple[str, str],
        ways: Iterable[tuple[str, tuple[SpatialLoop, ...], Place]],
        direction: int,
    ) -> None:
        """Add one element that moves between two components (`direction`: 0 down, 1 up).

        `ways`: its (Einsum, loops, place), in order of the Einsums; each Einsum pays for the links that no
        earlier one crossed.
        """
        top, bottom = sorted(self.hierarchy.index(e) for e in ends)
        passed = branches_to(self.hierarchy.components[bottom].branch)
        ways = list(ways)
        for level, component, dim, before in self.dims:
            if not top < level <= bottom or self.hierarchy[component].branch not in passed:
                continue
            crossed: set[Wire] = set()
            for einsum, loops, place in ways:
                where = {(c, d): k for c, d, k in physical(loops, place)}
                row, number = tuple(where.get(key, 0) for key in before), where.get((component, dim.name), 0)
                new = {(row, edge) for edge in path(dim, number)} - crossed
                crossed |= new
                at = einsum, component, dim.name
                self.reach[at] = max(self.reach[at], number + 1)
                self.hops[einsum, component, dim.name, tensor] += sum(is_hop(dim, e) for _, e in new)
                for wire in new:
                    self.loads[einsum, component, dim.name][wire][direction] += self.bits[tensor]

    def rows(self, problem: Problem) -> tuple[LinkTraffic, ...]:
        """One record per Einsum and dimension that carries anything."""
        result = []
        for einsum in problem.tree.einsums:
            for _, component, dim, _ in self.dims:
                hops = [
                    (t, self.hops.get((einsum, component, dim.name, t), 0))
                    for t in problem.cascade[einsum].tensors
                ]
                hops = [(t, n) for t, n in hops if n]
                assert dim.link is not None
                busy = self.loads[einsum, component, dim.name]
                if not hops and not (dim.link.timed and busy):
                    continue  # nothing crosses a link, or none limits what enters
                loads: tuple[tuple[int, int], ...] = ()
                entries = 0
                if dim.link.timed:
                    loads = largest(busy.values())
                    entries = sum(1 for _, edge in busy if is_entry(dim, edge))
                far = self.reach[einsum, component, dim.name] if dim.link.hop_latency else 0
                result.append(LinkTraffic(einsum, component, dim.name, tuple(hops), loads, entries, far))
        return tuple(result)
