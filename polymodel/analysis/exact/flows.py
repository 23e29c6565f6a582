"""Every access at every buffet, as products of per-instance counts, booked to Einsums."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from polymodel.analysis.exact.axes import (
    broadcast_axes,
    output_carries,
    repeating_loops,
    result_view,
    shared_axes,
)
from polymodel.analysis.exact.buffets import Layout, Node
from polymodel.analysis.exact.cached_counts import Product
from polymodel.analysis.exact.enumerated_partials import ListedChain, listable
from polymodel.analysis.exact.fills import fill_carries, fills_of
from polymodel.analysis.exact.partials import Chain, Level, examine, stays
from polymodel.analysis.exact.tolls import Passage, pass_tolls
from polymodel.analysis.exact.transfers import moved
from polymodel.analysis.exact.uneven import RefilledChain
from polymodel.errors import Refused
from polymodel.mapping.looptree import ComputeNode
from polymodel.schedule.touch import View, touch

Key = tuple[str, int, str]
KINDS = ("reads_fill", "reads_drain", "writes_fill", "writes_drain")


@dataclass
class Ledger:
    """Products by (Einsum, node, tensor) and kind of access; toll passages beside them."""

    accesses: dict[Key, dict[str, list[Product]]] = field(default_factory=dict)
    tolls: list[Passage] = field(default_factory=list)

    def book(self, einsum: str, node: Node, kind: str, products: tuple[Product, ...]) -> None:
        row = self.accesses.setdefault((einsum, node.id, node.tensor), defaultdict(list))
        row[kind] += products


def flows(layout: Layout, per: int = 0, only: Collection[str] = ()) -> Ledger:
    """Book all accesses of the problem, or at least those of the Einsums `only`.

    `per`: for each iteration of so many outer loops; then products have axes of their temporal counters, as
    far in as the link's child has them.
    """
    ledger = Ledger()
    cascade = layout.problem.cascade
    for name in only or layout.problem.tree.einsums:
        einsum = cascade[name]
        for access in einsum.accesses:
            for node in layout.chain(name, access.tensor):
                ledger.accesses.setdefault((name, node.id, node.tensor), defaultdict(list))
        if einsum.is_copy:
            _copy(layout, ledger, name, per)
            continue
        for tensor in einsum.tensors:
            if einsum.access_of(tensor).output:
                _output(layout, ledger, name, tensor, per)
            for view in layout.reads(name, tensor):
                _operand(layout, ledger, view, per)
    for node in layout.nodes.values():
        if node.parent is not None and not (only and set(only).isdisjoint(node.users)):
            _fills(layout, ledger, node, per)
    return ledger


def _component_of(layout: Layout, einsum: str) -> str:
    last = layout.problem.tree.path(einsum)[-1].node
    assert isinstance(last, ComputeNode)
    return last.component


def _operand(layout: Layout, ledger: Ledger, view: View, per: int) -> None:
    """Compute reads once per operation and access, shared by instances where that is allowed."""
    einsum, tensor = view.einsum.name, view.access.tensor
    innermost = layout.chain(einsum, tensor)[-1]
    now = touch((view,), layout.blocks[tensor])
    shared = shared_axes(layout, einsum, tensor)
    reads = moved(now, now, (), innermost.loops, shared, per=per)
    ledger.book(einsum, innermost, "reads_fill", reads)
    still: frozenset[int] = frozenset()
    child = _component_of(layout, einsum)
    ledger.tolls += pass_tolls(layout, einsum, innermost, child, (now, now, still), shared, "down", per=per)


def output_chain(layout: Layout, einsum: str, tensor: str) -> Chain | RefilledChain | ListedChain:
    """The levels of an output from its backing node to compute."""
    nodes = layout.chain(einsum, tensor)
    carries = output_carries(layout, nodes)
    view = result_view(layout, einsum, tensor)
    given = view.access.accumulates  # then the backing storage has a value to read at first
    versions, again = view.versions, repeating_loops(layout, einsum)
    levels = []
    for position, node in enumerate(nodes):
        now = node.written(versions)
        levels.append(
            Level(
                now,
                node.touch_of(node.users, versions) if position else now,
                carries[position] if position else frozenset(),
                nodes[position - 1].loops if position else 0,
                layout.problem.hierarchy[node.component].read_first or (given and not position),
                node,
                executions=node.written(again) if again else None,
                again=again,
                spans=position > 0 and node.id < max(again, default=0),
            )
        )
    full = touch((view,), layout.blocks[tensor])
    each = touch((replace(view, versions=again),), layout.blocks[tensor]) if again else None
    indexing = frozenset(layout.full[einsum, tensor].access.variables)
    levels.append(Level(full, full, frozenset(), nodes[-1].loops, indexing=indexing, executions=each))
    shared, broadcast = shared_axes(layout, einsum, tensor), broadcast_axes(layout, einsum)
    try:
        return Chain(tuple(levels), examine(tuple(levels), shared, broadcast, tensor))
    except Refused:
        if not any(stays(level.apart) for level in levels if not level.spans):
            return RefilledChain(tuple(levels), shared, broadcast)
        if not listable(tuple(levels), view):
            raise
    return ListedChain(tuple(levels), shared, broadcast, view)


def ends_are_writes(chain: Chain | RefilledChain | ListedChain, level: Level) -> bool:
    """False where consumers keep a run alive after its last write, so that its start is counted instead.

    In a legal mapping no other instance holds a part of the element in such a run: it is drained alone.
    """
    return isinstance(chain, ListedChain) or not (level.carries and level.now != level.held)


def _output(layout: Layout, ledger: Ledger, einsum: str, tensor: str, per: int) -> None:
    chain = output_chain(layout, einsum, tensor)
    if per:
        chain = timed(chain, per, tensor)
    nodes = [level.node for level in chain.levels if level.node is not None]
    shared = shared_axes(layout, einsum, tensor)
    for position, node in enumerate(nodes):
        child = position + 1
        ledger.book(einsum, node, "reads_fill", chain.reads(child))
        level = chain.levels[child]
        ends = ends_are_writes(chain, level)
        ledger.book(einsum, node, "writes_drain", chain.events(child, forward=ends))
        target = nodes[child].component if child < len(nodes) else _component_of(layout, einsum)
        moving = level.now, level.held, level.carries
        for way in ("up", "partial"):
            ledger.tolls += pass_tolls(
                layout, einsum, node, target, moving, shared, way, forward=ends, chain=(chain, child), per=per
            )
        if position:
            ledger.book(einsum, node, "writes_fill", chain.filled(position))
            ledger.book(einsum, node, "reads_drain", chain.runs(position))


def _fills(layout: Layout, ledger: Ledger, node: Node, per: int) -> None:
    """Fills of elements that are only read: each booked to the first Einsum that touches it."""
    assert node.parent is not None
    parent = layout.nodes[node.parent, node.tensor]
    carries = fill_carries(layout, node)
    for fill in fills_of(layout, node):
        held, alone = node.all_touch, frozenset[int]()
        writes = moved(fill.now, held, carries, node.loops, alone, per=per)
        reads = moved(fill.now, held, carries, parent.loops, fill.shared, per=per)
        if fill.before is not None:
            writes += _minus(moved(fill.before, held, carries, node.loops, alone, per=per))
            reads += _minus(moved(fill.before, held, carries, parent.loops, fill.shared, per=per))
        ledger.book(fill.einsum, node, "writes_fill", writes)
        ledger.book(fill.einsum, parent, "reads_fill", reads)
        ledger.tolls += pass_tolls(
            layout,
            fill.einsum,
            parent,
            node.component,
            (fill.now, held, carries),
            fill.shared,
            "down",
            before=fill.before,
            per=per,
        )


def _minus(products: tuple[Product, ...]) -> tuple[Product, ...]:
    return tuple(Product(-p.sign, p.parts) for p in products)


def _copy(layout: Layout, ledger: Ledger, einsum: str, per: int) -> None:
    """Move from the source's backing node to the destination's; nothing if they are one component."""
    access = layout.problem.cascade[einsum]
    source = layout.chain(einsum, access.inputs[0].tensor)[0]
    for output in access.outputs:
        target = layout.chain(einsum, output.tensor)[0]
        if source.component == target.component:
            continue
        view: View = layout.full[einsum, output.tensor]
        own = view.above(target.loops)
        now = touch((own,), layout.blocks[output.tensor])
        if any(loop.spatial for _, loop, _ in view.loops[target.loops : source.loops]):
            raise Refused(
                f"the source of copy {einsum} is stored below a spatial loop that is not above its "
                f"destination {output.tensor}",
                f"store {source.tensor} above that loop, or {output.tensor} below it",
            )
        for node, kind in ((target, "writes_fill"), (source, "reads_fill")):
            ledger.book(einsum, node, kind, moved(now, now, (), node.loops, frozenset(), per=per))


def timed(chain: Chain | RefilledChain | ListedChain, per: int, tensor: str) -> RefilledChain:
    """The chain with its counts by iteration; Refused where only totals are known."""
    remedy = f"use reuse: refill for {tensor}, or write Sequential"
    if isinstance(chain, ListedChain):
        raise Refused(
            f"output {tensor} is carried and spread over a fanout unevenly, which is not counted by "
            "iteration of a Pipeline",
            remedy,
        )
    if isinstance(chain, RefilledChain):
        return replace(chain, per=per)
    if any(level.carries and level.now != level.held for level in chain.levels[1:]):
        raise Refused(
            f"consumers keep results of {tensor} alive in a node that drains them, which is not counted by "
            "iteration of a Pipeline",
            remedy,
        )
    if chain.reduction.first_touch_formula and any(level.carries for level in chain.levels[1:]):
        raise Refused(
            f"output {tensor} is carried, broadcast and spread over a fanout unevenly, which is not counted "
            "by iteration of a Pipeline",
            remedy,
        )
    return RefilledChain(chain.levels, chain.reduction.shared, chain.reduction.broadcast, per)
