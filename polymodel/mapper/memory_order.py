"""In which order storage nodes of one Einsum stand: those of outer memories above those of inner ones.

Memories between which no instances fan out and none of which may hold a tensor of another one are side by
side: a scratchpad for inputs, one for weights, one for partial sums. Which of them is listed first says
nothing of what is further in, so that their nodes stand in any order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from polymodel.architecture.hierarchy import Component, Hierarchy
from polymodel.workload.einsum import Cascade

if TYPE_CHECKING:
    from polymodel.mapper.records import Limits
    from polymodel.mapper.space import EinsumSpace
    from polymodel.mapper.templates import Node

Bands = tuple[tuple[int, ...], ...]


def side_by_side(cascade: Cascade, hierarchy: Hierarchy) -> tuple[tuple[str, str], ...]:
    """(Einsum, memory) where the memory stands side by side with the one before it, by the rules of the
    architecture. Memories are joined from the outside in, all but the backing storage."""
    result = []
    memories = [c for c in hierarchy.components if c.kind == "memory"]
    for one in cascade.einsums:
        held: frozenset[str] = frozenset()
        for outer, inner in pairwise(memories[1:]):
            held |= _tensors(outer, one.name, one.tensors)
            mine = _tensors(inner, one.name, one.tensors)
            if held & mine or _fanned_out(hierarchy, outer, inner):
                held = frozenset()
            else:
                result.append((one.name, inner.name))
    return tuple(result)


def _tensors(memory: Component, einsum: str, tensors: Sequence[str]) -> frozenset[str]:
    """Those that the memory may hold."""
    if memory.may_keep is None:
        return frozenset(tensors)
    keep = memory.keep.tensors(einsum) if memory.keep else frozenset()
    return memory.may_keep.tensors(einsum) | keep


def _fanned_out(hierarchy: Hierarchy, outer: Component, inner: Component) -> bool:
    parts = hierarchy.components[hierarchy.index(outer.name) + 1 : hierarchy.index(inner.name) + 1]
    return any(d.fanout > 1 for c in parts for d in c.spatial)


def bands(space: EinsumSpace, limits: Limits, reach: int) -> Bands:
    """Memories inside the backing storage, apart where all nodes of one stand above those of the next."""
    result: list[list[int]] = []
    for m in range(1, reach):
        across = any(f.below == m and f.width > 1 for f in space.fanouts)
        if not result or across or (limits.force_memory_order and m not in space.beside):
            result.append([])
        result[-1].append(m)
    return tuple(map(tuple, result))


def numbered_bands(space: EinsumSpace, limits: Limits) -> dict[int, int]:
    """The number of each memory's band."""
    several = bands(space, limits, len(space.memories))
    return {m: number for number, band in enumerate(several) for m in band}


def in_order(nodes: tuple[Node, ...], band: Mapping[int, int]) -> bool:
    """Whether nodes of one band stand above those of the next, and those of one tensor within a band are
    ordered by their memories. `band`: that of each memory, by `numbered_bands`."""

    def bound(a: Node, b: Node) -> bool:
        return a.operand == b.operand or band[a.memory] != band[b.memory]

    return not any(a.memory < b.memory and a.level > b.level and bound(a, b) for a in nodes for b in nodes)


def apart_at(space: EinsumSpace, limits: Limits, cut: int) -> bool:
    """Whether all nodes of memories up to the cut stand above those of memories inside it."""

    def across(band: tuple[int, ...]) -> bool:
        used = [m for m in band if space.may[m]]
        return any(m <= cut for m in used) and any(m > cut for m in used)

    return not any(across(b) for b in bands(space, limits, len(space.memories)))
