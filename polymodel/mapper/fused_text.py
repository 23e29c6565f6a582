"""What a whole mapping fuses, in words: tensors that never reach the backing storage, and shared loops."""

from __future__ import annotations

from polymodel.mapping.looptree import Loop, LoopTree, StorageNode
from polymodel.workload.einsum import Cascade


def fused_tensors(tree: LoopTree, cascade: Cascade, backing: str) -> tuple[str, ...]:
    """Intermediates that no node of the backing storage holds, in order of first appearance."""
    held = {
        t
        for _, n, _ in tree.walk()
        if isinstance(n, StorageNode) and n.component == backing
        for t in n.tensors
    }
    return tuple(t for t in cascade.tensors if t in cascade.intermediates and t not in held)


def fused_loops(tree: LoopTree) -> str:
    """Loops above several Einsums with their tile shapes, by Einsums: `A-C: m 16, n 8; D-E: m 4`."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for number, node, _ in tree.walk():
        if isinstance(node, Loop) and len(below := tree.below[number]) > 1:
            groups.setdefault(below, []).append(f"{node.rank_variable} {node.tile_shape}")
    return "; ".join(f"{e[0]}-{e[-1]}: {', '.join(loops)}" for e, loops in groups.items())
