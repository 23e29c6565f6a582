"""Relations of everything that moves between two storages, or between a storage and compute.

Links and rules are those of `flows`, which counts; here senders and receivers are kept apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from polymodel.analysis.exact.axes import broadcast_axes, result_view, shared_axes
from polymodel.analysis.exact.buffets import Layout, Node
from polymodel.analysis.exact.enumerated_partials import ListedChain, Moves, listable
from polymodel.analysis.exact.fills import copy_of, fill_carries, fills_of
from polymodel.analysis.exact.flows import ends_are_writes, output_chain
from polymodel.analysis.exact.partials import Chain
from polymodel.analysis.exact.uneven import RefilledChain
from polymodel.mapping.looptree import ComputeNode
from polymodel.schedule.touch import Touch, View, touch

OutputChain = Chain | RefilledChain | ListedChain


@dataclass(frozen=True)
class Flow:
    """Transfers of one tensor between two components, to or from all instances in `now`.

    What `held` keeps over the transitions `carries` does not move. `sign`: -1 takes away what Einsums
    before already pay for.
    """

    einsum: str
    tensor: str
    ends: tuple[str, str]
    shared: frozenset[int]
    now: Touch
    held: Touch
    carries: frozenset[int] = frozenset()
    up: bool = False
    forward: bool = False
    sign: int = 1


@dataclass(frozen=True)
class Sums:
    """Refilled partial sums of one level of an output's chain, from its parent to who receives them."""

    einsum: str
    tensor: str
    ends: tuple[str, str]
    shared: frozenset[int]
    now: Touch
    level: int
    chain: Chain | RefilledChain
    up: bool = False


@dataclass(frozen=True)
class Listed:
    """Rows (time, element, places along the spatial axes of `now`) of what moves, one per instance."""

    einsum: str
    tensor: str
    ends: tuple[str, str]
    shared: frozenset[int]
    now: Touch
    rows: Moves
    up: bool


def flows_of(layout: Layout, tensor: str) -> Iterator[Flow | Sums | Listed]:
    """Everything that moves of one tensor."""
    for name in layout.problem.tree.einsums:
        einsum = layout.problem.cascade[name]
        if tensor not in einsum.tensors:
            continue
        written = einsum.access_of(tensor).output
        if einsum.is_copy:
            if written:
                yield from _copied(layout, name, tensor)
            continue
        if written:
            yield from _results(layout, name, tensor)
        for view in layout.reads(name, tensor):
            parent = layout.chain(name, tensor)[-1]
            now = touch((view,), layout.blocks[tensor])
            ends = parent.component, _compute(layout, name)
            yield Flow(name, tensor, ends, shared_axes(layout, name, tensor), now, now)
    for node in layout.nodes.values():
        if node.tensor == tensor and node.parent is not None:
            yield from _fills(layout, node)


def _compute(layout: Layout, einsum: str) -> str:
    last = layout.problem.tree.path(einsum)[-1].node
    assert isinstance(last, ComputeNode)
    return last.component


def _results(layout: Layout, einsum: str, tensor: str) -> Iterator[Flow | Sums | Listed]:
    chain = output_chain(layout, einsum, tensor)
    shared = shared_axes(layout, einsum, tensor)
    sums = _receivers(chain, shared, broadcast_axes(layout, einsum), result_view(layout, einsum, tensor))
    nodes = [level.node for level in chain.levels if level.node is not None]
    for child in range(1, len(chain.levels)):
        level = chain.levels[child]
        bottom = nodes[child].component if child < len(nodes) else _compute(layout, einsum)
        ends = nodes[child - 1].component, bottom
        if isinstance(chain, ListedChain):
            yield Listed(einsum, tensor, ends, shared, level.now, chain.drains(child), True)
        else:
            forward = ends_are_writes(chain, level)
            yield Flow(einsum, tensor, ends, shared, level.now, level.held, level.carries, True, forward)
        if isinstance(sums, ListedChain):
            rows = sums.moves(child, filled=True)
            yield Listed(einsum, tensor, ends, shared, level.now, rows, False)
        else:
            yield Sums(einsum, tensor, ends, shared, level.asked, child, sums)


def _receivers(
    chain: OutputChain, shared: frozenset[int], broadcast: frozenset[int], view: View
) -> OutputChain:
    """The chain that knows who receives a refilled partial sum, where one can be had."""
    if not isinstance(chain, Chain):
        return chain
    if not chain.reduction.first_touch_formula or not any(level.carries for level in chain.levels):
        return RefilledChain(chain.levels, shared, broadcast)
    return ListedChain(chain.levels, shared, broadcast, view) if listable(chain.levels, view) else chain


def _fills(layout: Layout, node: Node) -> Iterator[Flow]:
    assert node.parent is not None
    ends = layout.nodes[node.parent, node.tensor].component, node.component
    carries, held = fill_carries(layout, node), node.all_touch
    for fill in fills_of(layout, node):
        yield Flow(fill.einsum, node.tensor, ends, fill.shared, fill.now, held, carries)
        if fill.before is not None:
            yield Flow(fill.einsum, node.tensor, ends, fill.shared, fill.before, held, carries, sign=-1)


def _copied(layout: Layout, einsum: str, tensor: str) -> Iterator[Flow]:
    if (moved := copy_of(layout, einsum, tensor)) is not None:
        source, target, now = moved
        yield Flow(einsum, tensor, (source.component, target.component), frozenset(), now, now)
