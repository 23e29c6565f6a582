"""Mappings whose storage nodes keep what the preceding visit held, listed from those of nodes that refill.

No code of `polymodel.mapper` is used.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import permutations, product

from polymodel.mapping.looptree import Loop, LoopTree, Node, StorageNode
from polymodel.reuse import Reuse
from polymodel.workload.einsum import Einsum

Nodes = tuple[Node, ...]


def keeping(tree: LoopTree, one: Einsum, memories: Collection[str]) -> Iterator[LoopTree]:
    """The tree with nodes of these memories that keep, for each order of the loops that the space has."""
    root, *below = tree.nodes
    yield from (LoopTree((root, *nodes)) for nodes in branches(tuple(below), one, memories))


def branches(below: Nodes, one: Einsum, memories: Collection[str]) -> Iterator[Nodes]:
    """The same of what is below the backing storage.

    Loops between two nodes stand in the order of a node that keeps: those that index its tensor alone, those
    of its windows in any order, all others. It is the next such node further in, or any other one for all
    blocks above that; loops of one kind then stand in the order of the next one.
    """
    blocks = _blocks(below)
    kept = [k for k, (_, _, node) in enumerate(blocks) if _keeps(node, memories)]
    if not kept:
        yield below
        return
    seen: set[Nodes] = set()
    for chosen in product(*(_orders(one, blocks[k][2]) for k in kept)):
        of = dict(zip(kept, chosen, strict=True))
        for first in kept:
            nodes: list[Node] = []
            for k, (loops, spatial, node) in enumerate(blocks):
                own = [j for j in kept if j >= k]
                if own:
                    order = _joint(one, blocks[first if first >= k else own[0]][2], of, (first, k, own[0]))
                    along = loops[-1:] if isinstance(node, StorageNode) and node.reuse == "slide" else []
                    loops = sorted(loops, key=lambda n: (n in along, order.index(n.rank_variable)))
                if isinstance(node, StorageNode) and k in kept:
                    node = replace(node, reuse=Reuse.KEEP_PREVIOUS)
                nodes += [*loops, *spatial, node]
            if tuple(nodes) not in seen:
                seen.add(tuple(nodes))
                yield tuple(nodes)


def _joint(one: Einsum, node: Node, of: dict[int, list[str]], at: tuple[int, int, int]) -> list[str]:
    """The order of a block for a node, and among loops of one kind for the next one; `at`: the block from
    which on that node counts, the block, and the block of the next node."""
    first, here, own = at
    order = of[first if first >= here else own]
    single, windows = _kinds(one, node)

    def key(v: str) -> tuple[int, int]:
        return (1, order.index(v)) if v in windows else (0 if v in single else 2, of[own].index(v))

    return sorted(order, key=key)


def _keeps(node: Node, memories: Collection[str]) -> bool:
    return isinstance(node, StorageNode) and node.component in memories


def _blocks(nodes: Nodes) -> list[tuple[list[Loop], list[Loop], Node]]:
    """Loops in time and in space above each node inside the backing storage, and above compute."""
    result: list[tuple[list[Loop], list[Loop], Node]] = []
    loops: list[Loop] = []
    for n in nodes:
        if isinstance(n, Loop):
            loops.append(n)
        else:
            result.append(([x for x in loops if not x.spatial], [x for x in loops if x.spatial], n))
            loops = []
    return result


def _orders(one: Einsum, node: Node) -> list[list[str]]:
    """The orders of the loops above a node that its tensor asks for."""
    single, windows = _kinds(one, node)
    others = [v for v in one.rank_variables if v not in {*single, *windows}]
    return [[*single, *some, *others] for some in permutations(windows)]


def _kinds(one: Einsum, node: Node) -> tuple[list[str], list[str]]:
    """Variables that index the tensor of a node alone, and those of its windows."""
    assert isinstance(node, StorageNode)
    (tensor,) = node.tensors
    ranks = [{*e.variables} for a in one.accesses_of(tensor) for e in a.projection]
    windows = {v for rank in ranks if len(rank) > 1 and _overlaps(one, tensor, rank) for v in rank}
    windows |= _neighbours(one, tensor)
    single = [v for v in one.rank_variables if any(v in rank for rank in ranks) and v not in windows]
    return single, [v for v in one.rank_variables if v in windows]


def _neighbours(one: Einsum, tensor: str) -> set[str]:
    """Variables of ranks that are read at several places."""
    every = zip(*(a.projection for a in one.accesses_of(tensor)), strict=True)
    return {v for rank in every if len({*rank}) > 1 for e in rank for v in e.variables}


def _overlaps(one: Einsum, tensor: str, rank: set[str]) -> bool:
    """Whether a rank has the same value at two points."""
    for access in one.accesses_of(tensor):
        for e in (e for e in access.projection if {*e.variables} == rank):
            steps = [[c * x for x in range(one.bound(v)[1] - one.bound(v)[0] + 1)] for v, c in e.terms]
            values = [sum(point) for point in product(*steps)]
            if len({*values}) < len(values):
                return True
    return False
