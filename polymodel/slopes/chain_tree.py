"""The LoopTree of a point on a chain's slope, on two memories: every tensor stands where it moves least."""

from __future__ import annotations

from collections.abc import Iterator

from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Node, Split, StorageNode
from polymodel.slopes.chains import Chain
from polymodel.slopes.fused_einsum import FusedChoice
from polymodel.slopes.fused_segments import Segment


def chain_tree(chain: Chain, segments: tuple[Segment, ...], levels: tuple[str, str, str]) -> LoopTree:
    """The mapping: `levels` are the backing store, the buffer and the compute unit."""
    outer, inner, compute = levels
    resident = dict.fromkeys(t for s in segments for t in s.resident)
    within = {t for s in segments for c in s.choices for t, role in c.roles if role == "free"}
    every = dict.fromkeys(t for one in chain.einsums for t in one.tensors)
    nodes: list[Node] = [StorageNode(outer, tuple(t for t in every if t not in within | set(resident)))]
    if resident:
        nodes.append(StorageNode(inner, tuple(resident)))
    branches = [tuple(_segment(chain, s, inner, compute)) for s in segments]
    return LoopTree((*nodes, *(branches[0] if len(branches) == 1 else (Split(tuple(branches)),))))


def _segment(chain: Chain, segment: Segment, buffer: str, compute: str) -> Iterator[Node]:
    """Fused loops with what is kept between them, what is handed on, and a branch per Einsum."""
    held: list[list[str]] = [[] for _ in range(len(segment.loops) + 1)]
    branches = []
    for k, choice in enumerate(segment.choices):
        above, branch = _branch(chain, segment, k, choice, buffer, compute)
        for tensor, level in above:
            held[level].append(tensor)
        branches.append(branch)
    handed = dict.fromkeys(t for c in segment.choices for t, role in c.roles if role == "free")
    held[-1] += handed
    for level, tensors in enumerate(held):
        if level:
            loop = segment.loops[level - 1]
            names = tuple(zip(segment.einsums, loop.variables, strict=True))
            others = tuple((e, v) for e, v in names if v != loop.variables[0])
            yield Loop(loop.variables[0], loop.tile, per_einsum=others)
        if tensors:
            yield StorageNode(buffer, tuple(tensors))
    if len(branches) == 1:
        yield from branches[0]
    else:
        yield Split(tuple(branches))


def _branch(
    chain: Chain, segment: Segment, k: int, choice: FusedChoice, buffer: str, compute: str
) -> tuple[list[tuple[str, int]], tuple[Node, ...]]:
    """(tensors above the branch, each below so many fused loops), and the branch."""
    one = next(e for e in chain.einsums if e.name == choice.einsum)
    above: list[tuple[str, int]] = []
    here: list[list[str]] = [[] for _ in range(len(choice.order) + 1)]
    for tensor, role in choice.roles:
        index = one.access_of(tensor).variables
        below = max((i + 1 for i, v in enumerate(choice.order) if v in index), default=0)
        fused = max((i + 1 for i, loop in enumerate(segment.loops) if loop.variables[k] in index), default=0)
        if role in ("free", "resident"):
            continue
        if role == "keep" or (role == "add" and not below):
            above.append((tensor, fused))
        else:
            here[below].append(tensor)
    tiles = dict(choice.tiles)
    nodes: list[Node] = []
    for level, tensors in enumerate(here):
        if level:
            nodes.append(Loop(choice.order[level - 1], tiles[choice.order[level - 1]]))
        if tensors:
            nodes.append(StorageNode(buffer, tuple(tensors)))
    return above, (*nodes, ComputeNode(choice.einsum, compute))
