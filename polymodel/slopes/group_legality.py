"""Whether Einsums that share fused loops can run in some order: a legality rule of groups with cycles.

Einsums that hand on tiles of a tensor run in the same iterations of the loops above those tiles, so they
share these loops, and whoever shares loops with both shares them too. So the group is a tree of loops and
branches. A tensor handed on at some depth is complete, or needed, only per iteration of that many loops:
its consumer may not share a further loop with its producer, and among the branches below those loops none may
wait for another that waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Handed:
    """A tensor that is handed on below `depth` loops; `producer` is None for a workload input."""

    name: str
    depth: int
    producer: int | None
    users: tuple[int, ...]


def nesting_fault(tensors: Iterable[Handed]) -> str:
    """Why the Einsums cannot run in shared loops like this; "" if they can."""
    handed = tuple(tensors)
    deepest = max((t.depth for t in handed), default=0)
    for depth in range(1, deepest + 1):
        branch = _branches(handed, depth + 1)
        for t in handed:
            if t.depth == depth and t.producer is not None:
                inside = [u for u in t.users if u != t.producer and branch[u] == branch[t.producer]]
                if inside:
                    return f"a consumer of {t.name} would run before all of its tile is made"
        after: dict[int, set[int]] = {}
        for t in handed:
            if t.depth == depth and t.producer is not None:
                after.setdefault(branch[t.producer], set()).update(
                    branch[u] for u in t.users if u != t.producer
                )
        if _cyclic(after):
            return f"branches below {depth} shared loops wait for one another"
    return ""


def _branches(handed: tuple[Handed, ...], depth: int) -> dict[int, int]:
    """Per Einsum a number of its branch: those that share so many loops have one in common."""
    import networkx

    graph: networkx.Graph = networkx.Graph()
    for t in handed:
        graph.add_nodes_from(t.users)
        if t.depth >= depth:
            graph.add_edges_from(zip(t.users, t.users[1:], strict=False))
    return {u: min(part) for part in networkx.connected_components(graph) for u in part}


def _cyclic(after: dict[int, set[int]]) -> bool:
    import networkx

    graph = networkx.DiGraph([(a, b) for a, later in after.items() for b in later])
    return not networkx.is_directed_acyclic_graph(graph)


def on_cycles(tensors: Iterable[Handed]) -> frozenset[str]:
    """Tensors on a cycle of Einsums and tensors; all others cannot make a nest illegal."""
    import networkx

    graph: networkx.Graph = networkx.Graph()
    graph.add_edges_from((t.name, u) for t in tensors for u in t.users)
    bridges = set(map(frozenset, networkx.bridges(graph)))
    return frozenset(t.name for t in tensors if any(frozenset((t.name, u)) not in bridges for u in t.users))
