"""Where tensors live on the way to each Einsum: structural look-ups shared by all engines."""

from __future__ import annotations

from polymodel.mapping.looptree import Loop, LoopTree, Step, StorageNode


def storage_chain(tree: LoopTree, einsum: str, tensor: str) -> tuple[Step, ...]:
    """Storage nodes that hold `tensor` on the path of `einsum`, outermost first."""
    return tuple(s for s in tree.path(einsum) if isinstance(s.node, StorageNode) and tensor in s.node.tensors)


def loops_above(tree: LoopTree, einsum: str, node: int) -> tuple[tuple[int, Loop], ...]:
    """Loops on the path of `einsum` that stand above node id `node`, outermost first."""
    return tuple((i, loop) for i, loop in tree.loops(einsum) if i < node)


def users(tree: LoopTree, node: int) -> tuple[str, ...]:
    """Einsums below node id `node`, in order of execution."""
    return tree.below.get(node, ())
