"""AccelForge's occupancy rule, as a change of the LoopTree.

The tool evaluates the occupancy of the last storage node before a loop further down: below the
temporal loops that directly follow and index the tensor, through at most one loop that enters by a
sum (NOTES of the oracle files, rule 7). Its numbers are tiles of the mapping with that node moved.
"""

from __future__ import annotations

from dataclasses import replace

from polymodel.analysis.result import Problem
from polymodel.mapping.looptree import Loop, LoopTree, Node, Split, StorageNode


def lowered(problem: Problem) -> LoopTree:
    """The mapping with every node moved down to where the tool evaluates its occupancy."""
    return LoopTree(_lower(problem, problem.tree.nodes, frozenset()))


def _lower(problem: Problem, nodes: tuple[Node, ...], seen: frozenset[str]) -> tuple[Node, ...]:
    """`seen`: tensors already stored above, so that a node further down is not their backing."""
    for at, node in enumerate(nodes):
        if isinstance(node, Split):
            branches = tuple(_lower(problem, b, seen) for b in node.branches)
            return (*nodes[:at], replace(node, branches=branches))
        if not isinstance(node, StorageNode):
            continue
        backed, seen = seen, seen | set(node.tensors)
        last = node.tensors[-1]
        if last in backed and at + 1 < len(nodes) and isinstance(nodes[at + 1], Loop):
            below = at + 1 + _depth(problem, nodes[at + 1 :], last)
            rest = (
                (StorageNode(node.component, node.tensors[:-1], node.reuse),) if len(node.tensors) > 1 else ()
            )
            moved = StorageNode(node.component, (last,), node.reuse)
            tail = _lower(problem, nodes[below:], seen)
            return (*nodes[:at], *rest, *nodes[at + 1 : below], moved, *tail)
    return nodes


def _depth(problem: Problem, nodes: tuple[Node, ...], tensor: str) -> int:
    """How many of the leading nodes the tensor's evaluation passes."""
    sums = 0
    for count, node in enumerate(nodes):
        if not isinstance(node, Loop) or node.spatial:
            return count
        entries = [
            (node.variable_in(e.name), x)
            for e in problem.cascade
            if tensor in e.tensors
            for x in e.access_of(tensor).projection
        ]
        through = [x for variable, x in entries if variable in x.variables]
        if not through:
            return count
        if any(len(x.variables) > 1 for x in through):
            sums += 1
            if sums > 1:
                return count
    return len(nodes)
