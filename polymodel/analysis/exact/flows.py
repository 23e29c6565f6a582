"""Every access at every buffet, as products of per-instance counts, booked to Einsums."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from itertools import pairwise

from polymodel.analysis.exact.buffets import Layout, Node
from polymodel.analysis.exact.listed import ListedChain, listable
from polymodel.analysis.exact.partials import Chain, Level, check_reducible, examine
from polymodel.analysis.exact.tally import Product
from polymodel.analysis.exact.tolls import Passage, pass_tolls
from polymodel.analysis.exact.transfers import moved
from polymodel.analysis.exact.uneven import RefilledChain
from polymodel.errors import Refused
from polymodel.mapping.looptree import ComputeNode
from polymodel.mapping.ties import ties
from polymodel.schedule.touch import Touch, View, touch

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


def shared_axes(layout: Layout, einsum: str, tensor: str) -> frozenset[int]:
    """Loop positions on the Einsum's path along which the tensor may be multicast or reduced."""
    found = set()
    for position, (_, loop) in enumerate(layout.problem.tree.loops(einsum)):
        if loop.spatial:
            dim = layout.problem.hierarchy[loop.component].dim(loop.dim)
            if dim.reuses(einsum, tensor):
                found.add(position)
    return frozenset(found)


def broadcast_axes(layout: Layout, einsum: str) -> frozenset[int]:
    """Loop positions whose dimension broadcasts refilled partial sums."""
    found = set()
    for position, (_, loop) in enumerate(layout.problem.tree.loops(einsum)):
        if loop.spatial and layout.problem.hierarchy[loop.component].dim(loop.dim).broadcast_partials:
            found.add(position)
    return frozenset(found)


def flows(layout: Layout) -> Ledger:
    """Book all accesses of the problem."""
    ledger = Ledger()
    cascade = layout.problem.cascade
    for name in layout.problem.tree.einsums:
        einsum = cascade[name]
        for access in einsum.accesses:
            for node in layout.chain(name, access.tensor):
                ledger.accesses.setdefault((name, node.id, node.tensor), defaultdict(list))
        if einsum.is_copy:
            _copy(layout, ledger, name)
            continue
        for access in einsum.accesses:
            if access.output:
                _output(layout, ledger, name, access.tensor)
            else:
                _operand(layout, ledger, name, access.tensor)
    for node in layout.nodes.values():
        if node.parent is not None:
            _fills(layout, ledger, node)
    return ledger


def _compute_touch(layout: Layout, einsum: str, tensor: str) -> Touch:
    return touch((layout.full[einsum, tensor],), layout.blocks[tensor])


def _component_of(layout: Layout, einsum: str) -> str:
    last = layout.problem.tree.path(einsum)[-1].node
    assert isinstance(last, ComputeNode)
    return last.component


def _operand(layout: Layout, ledger: Ledger, einsum: str, tensor: str) -> None:
    """Compute reads each operand once per operation, shared by instances where that is allowed."""
    innermost = layout.chain(einsum, tensor)[-1]
    now = _compute_touch(layout, einsum, tensor)
    shared = shared_axes(layout, einsum, tensor)
    reads = moved(now, now, (), innermost.loops, shared)
    ledger.book(einsum, innermost, "reads_fill", reads)
    ledger.tolls += pass_tolls(
        layout, einsum, innermost, _component_of(layout, einsum), (now, now, frozenset()), shared, "down"
    )


def output_carries(layout: Layout, chain: tuple[Node, ...]) -> tuple[frozenset[int], ...]:
    """Per level of an output's chain, where it may stay: its parent must keep it too."""
    found = [chain[0].policy_carries if chain[0].forgets else frozenset(range(chain[0].loops))]
    for parent, node in pairwise(chain):
        above = found[-1]
        found.append(frozenset(a for a in node.policy_carries if a >= parent.loops or a in above))
    return tuple(found)


def _versions(layout: Layout, einsum: str, tensor: str, nodes: tuple[Node, ...]) -> tuple[int, ...]:
    """Temporal loops (node ids) in whose iterations results are made afresh, all of them.

    Counting an element of each iteration as an element of its own, nothing is carried or read between them.
    What is inferred is made once while the outermost storage holds it.
    """
    tree = layout.problem.tree
    tied = ties(layout.problem.cascade, tree, einsum)
    inferred = "inferred" in tied.values()
    free = [i for i, loop in tree.loops(einsum) if tied[i] != "bound" and not loop.spatial]
    found = tuple(i for i in free if not inferred or i < nodes[0].id)
    for node in nodes[1:]:
        if found and not inferred and (node.id < max(found) or node.policy_carries):
            raise Refused(
                f"{einsum} is executed again in each iteration of a loop, from one to the next of which "
                f"{node.component} (node {node.id}) keeps {tensor}",
                "use reuse: refill for this node, below that loop",
            )
    return found


def output_chain(layout: Layout, einsum: str, tensor: str) -> Chain | RefilledChain | ListedChain:
    """The levels of an output from its backing node to compute."""
    nodes = layout.chain(einsum, tensor)
    carries = output_carries(layout, nodes)
    versions = _versions(layout, einsum, tensor, nodes)
    levels = []
    for position, node in enumerate(nodes):
        charge = nodes[position - 1].loops if position else 0
        now = node.touch_of((einsum,), versions)
        levels.append(
            Level(
                now,
                node.touch_of(node.users, versions) if position else now,
                carries[position] if position else frozenset(),
                charge,
                layout.problem.hierarchy[node.component].read_first,
                node,
            )
        )
    view = replace(layout.full[einsum, tensor], versions=versions)
    full = touch((view,), layout.blocks[tensor])
    access = layout.problem.cascade[einsum].access_of(tensor)
    levels.append(Level(full, full, frozenset(), nodes[-1].loops, indexing=frozenset(access.variables)))
    shared, broadcast = shared_axes(layout, einsum, tensor), broadcast_axes(layout, einsum)
    check_reducible(levels[-1], shared, tensor)
    try:
        return Chain(tuple(levels), examine(tuple(levels), shared, broadcast, tensor))
    except Refused:
        if not any(level.carries for level in levels):
            return RefilledChain(tuple(levels), shared, broadcast)
        if not listable(tuple(levels), view):
            raise
    return ListedChain(tuple(levels), shared, broadcast, view)


def _output(layout: Layout, ledger: Ledger, einsum: str, tensor: str) -> None:
    chain = output_chain(layout, einsum, tensor)
    nodes = [level.node for level in chain.levels if level.node is not None]
    shared = shared_axes(layout, einsum, tensor)
    for position, node in enumerate(nodes):
        child = position + 1
        ledger.book(einsum, node, "reads_fill", chain.reads(child))
        level = chain.levels[child]
        _check_ends(nodes, child, shared, level)
        # Where consumers keep a run alive after its last write, it ends at no writing visit: count starts.
        ends = not (level.carries and level.now != level.held)
        ledger.book(einsum, node, "writes_drain", chain.events(child, forward=ends))
        target = nodes[child].component if child < len(nodes) else _component_of(layout, einsum)
        ledger.tolls += pass_tolls(
            layout, einsum, node, target, (level.now, level.held, level.carries), shared, "up", forward=ends
        )
        ledger.tolls += pass_tolls(
            layout,
            einsum,
            node,
            target,
            (level.now, level.held, level.carries),
            shared,
            "partial",
            chain=(chain, child),
        )
        if position:
            ledger.book(einsum, node, "writes_fill", chain.filled(position))
            ledger.book(einsum, node, "reads_drain", chain.runs(position))


def _check_ends(nodes: list[Node], child: int, shared: frozenset[int], level: Level) -> None:
    """Drains of a node that consumers keep visiting end later than production; no reductions there."""
    if child >= len(nodes) or not level.carries or level.now == level.held:
        return
    if any(a >= level.charge and a in shared for a in level.now.spatial):
        raise Refused(
            f"{nodes[child].tensor} in {nodes[child].component} is carried, shared with consumers and "
            "spread over instances",
            "use reuse: refill for this node",
        )


def _fills(layout: Layout, ledger: Ledger, node: Node) -> None:
    """Fills of elements that are only read: each booked to the first Einsum that touches it."""
    users = node.users
    carries = node.policy_carries
    seen: tuple[str, ...] = ()
    if node.producer is not None:
        nodes = layout.chain(node.producer, node.tensor)
        carries = output_carries(layout, nodes)[[n.id for n in nodes].index(node.id)]
        seen = (node.producer,)
        users = tuple(u for u in users if u != node.producer)
    parent = layout.nodes[node.parent, node.tensor] if node.parent is not None else None
    assert parent is not None
    for user in users:
        before, now = (node.touch_of(seen) if seen else None), node.touch_of((*seen, user))
        seen = (*seen, user)
        if before is not None and before == now:
            continue
        shared = shared_axes(layout, user, node.tensor)
        writes = moved(now, node.all_touch, carries, node.loops, frozenset())
        reads = moved(now, node.all_touch, carries, parent.loops, shared)
        minus_writes: tuple[Product, ...] = ()
        minus_reads: tuple[Product, ...] = ()
        if before is not None:
            minus_writes = moved(before, node.all_touch, carries, node.loops, frozenset())
            minus_reads = moved(before, node.all_touch, carries, parent.loops, shared)
            if node.producer and any(a >= parent.loops and a in shared for a in now.spatial):
                raise Refused(
                    f"{node.tensor} in {node.component} is read by {user} where it is not "
                    f"written, in instances "
                    "that share a read",
                    "keep the tensor below the spatial loop only where it is produced",
                )
        ledger.book(user, node, "writes_fill", writes + _minus(minus_writes))
        ledger.book(user, parent, "reads_fill", reads + _minus(minus_reads))
        ledger.tolls += pass_tolls(
            layout,
            user,
            parent,
            node.component,
            (now, node.all_touch, carries),
            shared,
            "down",
            before=before,
        )


def _minus(products: tuple[Product, ...]) -> tuple[Product, ...]:
    return tuple(Product(-p.sign, p.parts) for p in products)


def _copy(layout: Layout, ledger: Ledger, einsum: str) -> None:
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
        if source.loops > target.loops:
            raise Refused(f"the source of copy {einsum} is stored below its destination {output.tensor}")
        ledger.book(einsum, target, "writes_fill", moved(now, now, (), target.loops, frozenset()))
        ledger.book(einsum, source, "reads_fill", moved(now, now, (), source.loops, frozenset()))
