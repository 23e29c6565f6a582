"""Every access at every buffet, as products of per-instance counts, booked to Einsums."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from polymodel.analysis.exact.buffets import ExactBuffet, ExactLayout
from polymodel.analysis.exact.cached_counts import CountProduct
from polymodel.analysis.exact.enumerated_partials import ListedChain, listable
from polymodel.analysis.exact.partials import OutputChain, OutputLevel, examine, stays
from polymodel.analysis.exact.transfers import moved
from polymodel.analysis.exact.uneven import RefilledChain
from polymodel.errors import Refused
from polymodel.mapping.looptree import ComputeNode, ties
from polymodel.polyhedra import needs, sets
from polymodel.schedule.touch import ExecutedPart, Touch, View, touch

if TYPE_CHECKING:
    import islpy


# The stamp coordinates that may share, broadcast or carry a tensor.


def shared_axes(layout: ExactLayout, einsum: str, tensor: str) -> frozenset[int]:
    """Loop positions on the Einsum's path along which the tensor may be multicast or reduced."""
    result = set()
    variables = layout.problem.cascade[einsum].indexing(tensor)
    for position, (_, loop) in enumerate(layout.problem.tree.loops(einsum)):
        if loop.spatial:
            dim = layout.problem.hierarchy[loop.component].dim(loop.dim)
            if dim.shares(einsum, tensor, indexed=loop.variable_in(einsum) in variables):
                result.add(position)
    return frozenset(result)


def broadcast_axes(layout: ExactLayout, einsum: str) -> frozenset[int]:
    """Loop positions whose dimension broadcasts refilled partial sums."""
    result = set()
    for position, (_, loop) in enumerate(layout.problem.tree.loops(einsum)):
        if loop.spatial and layout.problem.hierarchy[loop.component].dim(loop.dim).broadcast_partials:
            result.add(position)
    return frozenset(result)


def output_carries(layout: ExactLayout, chain: tuple[ExactBuffet, ...]) -> tuple[frozenset[int], ...]:
    """Per level of an output's chain, the axes over which it may stay: its parent must keep it too."""
    result = [chain[0].policy_carries if chain[0].forgets else frozenset(range(chain[0].loops))]
    for parent, node in pairwise(chain):
        above = result[-1]
        result.append(frozenset(a for a in node.policy_carries if a >= parent.loops or a in above))
    return tuple(result)


def result_view(layout: ExactLayout, einsum: str, tensor: str) -> View:
    """The accesses of compute to an output, with the loops in whose iterations its elements are produced
    afresh."""
    home = layout.chain(einsum, tensor)[0]
    return replace(layout.full[einsum, tensor], versions=_versions(layout, einsum, home))


def _versions(layout: ExactLayout, einsum: str, home: ExactBuffet) -> tuple[int, ...]:
    """Temporal loops (node ids) in each iteration of which all inferred results are produced afresh. If
    elements of different iterations count as different elements, nothing is carried or read between them.
    Inferred results are produced once while the outermost storage holds them."""
    tree = layout.problem.tree
    tied = ties(layout.problem.cascade, tree, einsum)
    if "inferred" not in tied.values():
        return ()
    return tuple(
        i for i, loop in tree.loops(einsum) if tied[i] != "bound" and not loop.spatial and i < home.id
    )


def repeating_loops(layout: ExactLayout, einsum: str) -> tuple[int, ...]:
    """Temporal loops (node ids) of several iterations, each of which executes the Einsum again. Storage may
    keep results from one iteration to the next, but partial sums are never read between them."""
    tree = layout.problem.tree
    tied = ties(layout.problem.cascade, tree, einsum)
    if "inferred" in tied.values():
        return ()
    view = next(v for (e, _), v in layout.full.items() if e == einsum)
    return tuple(
        i
        for i, loop in tree.loops(einsum)
        if tied[i] == "repeated" and not loop.spatial and _iterates(view.parts, i)
    )


def _iterates(parts: tuple[ExecutedPart, ...], node: int) -> bool:
    """True if the counter of a loop takes several values."""
    part = next(p for p in parts if node in p.loops)
    low, high = needs.extent(part.text, part.loops.index(node))
    return high > low


# Fills of elements that are only read in a node, and the Einsums they are booked to. See docs/semantics.md,
# Links and Bookings: a fill is booked to the first Einsum below that touches the element at that stamp, and
# none is needed if the producer writes it. One read at the parent serves instances booked to several Einsums
# if the same instances may share for them; it is booked to the first.


@dataclass(frozen=True)
class Fill:
    """The transfers that are booked to `einsum`: those of `now`, less those of `before` (booked to Einsums
    before it)."""

    einsum: str
    shared: frozenset[int]
    now: Touch
    before: Touch | None


def fill_carries(layout: ExactLayout, node: ExactBuffet) -> frozenset[int]:
    """Axis positions over whose steps the node's elements stay."""
    if node.producer is None:
        return node.policy_carries
    nodes = layout.chain(node.producer, node.tensor)
    return output_carries(layout, nodes)[[n.id for n in nodes].index(node.id)]


def fills_of(layout: ExactLayout, node: ExactBuffet) -> Iterator[Fill]:
    """The fills of a node that has a parent, by Einsum in order of execution."""
    assert node.parent is not None
    above = layout.nodes[node.parent, node.tensor].loops
    between = [a for a in node.all_touch.spatial if a >= above]
    readers = tuple(u for u in node.users if u != node.producer or node.read_by(u) is not None)
    shared = {u: shared_axes(layout, u, node.tensor) for u in readers}
    rules = {u: frozenset(a for a in between if a in shared[u]) for u in readers}
    if node.producer is None and len(set(rules.values())) < 2:
        seen: tuple[str, ...] = ()
        for user in readers:
            now, before = node.touch_of((*seen, user)), node.touch_of(seen) if seen else None
            if now != before:
                yield Fill(user, shared[user], now, before)
            seen = (*seen, user)
        return
    if not node.all_touch.factors:  # one element at one stamp: its producer writes it
        return
    place = _differing(node)
    paid: dict[frozenset[int], islpy.Set] = {}
    touched = None if node.producer is None else _points(node.written(), place)
    for user in readers:
        read = node.read_by(user)
        assert read is not None
        mine = _points(read, place)
        own = mine if touched is None else mine.subtract(touched)
        touched = mine if touched is None else touched.union(mine)
        if own.is_empty():
            continue
        before_set = paid.get(rules[user])
        paid[rules[user]] = own if before_set is None else before_set.union(own).coalesce()
        yield Fill(
            user,
            shared[user],
            _with(node, place, paid[rules[user]]),
            None if before_set is None else _with(node, place, before_set),
        )


def copy_of(layout: ExactLayout, einsum: str, tensor: str) -> tuple[ExactBuffet, ExactBuffet, Touch] | None:
    """Source and destination of a copy Einsum, and what arrives; None within one component."""
    source = layout.chain(einsum, layout.problem.cascade[einsum].inputs[0].tensor)[0]
    target = layout.chain(einsum, tensor)[0]
    if source.component == target.component:
        return None
    view = layout.full[einsum, tensor]
    return source, target, touch((view.above(target.loops),), layout.blocks[tensor])


def _differing(node: ExactBuffet) -> int:
    """The single factor in which users touch different elements (`joint_blocks`); any factor if they all
    agree."""
    touches = [touch((v,), node.blocks).factors for v in node.views]
    for place, factors in enumerate(zip(*touches, strict=True)):
        if any(not sets.same(f.text, factors[0].text) for f in factors):
            return place
    return 0


def _points(touched: Touch, place: int) -> islpy.Set:
    return sets.parse_set(touched.factors[place].text)


def _with(node: ExactBuffet, place: int, points: islpy.Set) -> Touch:
    """The node's touch relation with the set of one factor replaced."""
    factors = node.all_touch.factors
    changed = factors[place].of_text(str(points))
    return replace(node.all_touch, factors=(*factors[:place], changed, *factors[place + 1 :]))


# Traffic through the tolls between a parent and its child.


@dataclass(frozen=True)
class TollPassage:
    """Elements of one tensor through one toll, per toll instance; `single`: each is a transfer of its own."""

    einsum: str
    component: str
    tensor: str
    up: bool
    products: tuple[CountProduct, ...]
    single: bool

    @property
    def row(self) -> tuple[str, int | None, str, str, str]:
        """Its key among accesses: no node, and the direction as the kind."""
        return self.einsum, None, self.component, self.tensor, "up" if self.up else "down"


def tolls_on_path(
    layout: ExactLayout, einsum: str, parent: ExactBuffet, child: str, now: Touch
) -> Iterator[tuple[str, int]]:
    """(toll, number of leading axes that distinguish its instances) between two components, outermost
    first."""
    hierarchy = layout.problem.hierarchy
    loops = layout.problem.tree.loops(einsum)
    for component in hierarchy.path_from(parent.component, child)[:-1]:
        if not component.passes or component.keep is None:
            continue
        if parent.tensor not in component.keep.tensors(einsum):
            continue
        level = hierarchy.index(component.name)
        above = [
            p
            for p, (_, loop) in enumerate(loops)
            if loop.spatial and hierarchy.index(loop.component) <= level
        ]
        charge = max((p + 1 for p in above), default=0)
        charge = max(charge, parent.loops)
        if any(a < charge and a not in above for a in now.spatial):
            message = f"toll {component.name} has spatial loops of lower components above its own"
            remedy = "order the spatial loops from the outermost component to the innermost"
            raise Refused(message, remedy, code="unsupported-link")
        yield component.name, charge


def pass_tolls(
    layout: ExactLayout,
    einsum: str,
    parent: ExactBuffet,
    child: str,
    moving: tuple[Touch, Touch, frozenset[int]],
    shared: frozenset[int],
    direction: str,
    *,
    forward: bool = False,
    before: Touch | None = None,
    chain: tuple[OutputChain | RefilledChain | ListedChain, int] | None = None,
    per: int = 0,
) -> list[TollPassage]:
    """Passages of one link through every toll between the parent's and the child's component.

    `direction`: `down` for operands, `up` for results, `partial` for refilled partial sums; of the last two
    `chain` names the chain and the child's level. `per`: by iteration of so many outer loops.
    """
    single = layout.problem.hierarchy[child].computes
    now, held, carries = moving
    result = []
    for toll, charge in tolls_on_path(layout, einsum, parent, child, now):
        if direction == "partial":
            assert chain is not None
            products = _partial(chain[0], chain[1], charge, result_view(layout, einsum, parent.tensor))
        elif direction == "up" and chain is not None and isinstance(chain[0], ListedChain):
            products = chain[0].passed(chain[1], charge, up=True)
        else:
            products = moved(now, held, carries, charge, shared, forward=forward, per=per)
            if before is not None:
                less = moved(before, held, carries, charge, shared, per=per)
                products += tuple(CountProduct(-p.sign, p.parts) for p in less)
        result.append(TollPassage(einsum, toll, parent.tensor, direction == "up", products, single))
    return result


def _partial(
    chain: OutputChain | RefilledChain | ListedChain, child: int, charge: int, view: View
) -> tuple[CountProduct, ...]:
    """Refilled partial sums at a toll: as many as the parent reads if nothing diverges above the toll."""
    level = chain.levels[child]
    if not [a for a in level.now.spatial if level.charge <= a < charge]:
        return chain.reads(child)
    if not isinstance(chain, OutputChain):
        return chain.passed(child, charge)
    shared, broadcast = chain.reduction.shared, chain.reduction.broadcast
    if not chain.reduction.first_touch_formula or not any(x.carries for x in chain.levels):
        return RefilledChain(chain.levels, shared, broadcast).passed(child, charge)
    if not listable(chain.levels, view):
        raise Refused(
            f"partial sums of {view.access.tensor} are carried past a toll inside their fanout, some "
            "instances are idle at times, and their Einsum has too many iterations to list",
            "use reuse: refill for this output, or tiles that divide their extents",
            code="too-large",
        )
    return ListedChain(chain.levels, shared, broadcast, view).passed(child, charge)


Key = tuple[str, int, str]
KINDS = ("reads_fill", "reads_drain", "writes_fill", "writes_drain")


@dataclass
class ProductLedger:
    """Products by (Einsum, node, tensor) and kind of access; toll passages beside them."""

    accesses: dict[Key, dict[str, list[CountProduct]]] = field(default_factory=dict)
    tolls: list[TollPassage] = field(default_factory=list)

    def book(self, einsum: str, node: ExactBuffet, kind: str, products: tuple[CountProduct, ...]) -> None:
        row = self.accesses.setdefault((einsum, node.id, node.tensor), defaultdict(list))
        row[kind] += products


def flows(layout: ExactLayout, per: int = 0, only: Collection[str] = ()) -> ProductLedger:
    """Book all accesses of the problem, or at least those of the Einsums `only`. `per`: for each iteration of
    this many outer loops; products then have axes of their temporal counters, as far in as the link's child
    has them."""
    ledger = ProductLedger()
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


def _component_of(layout: ExactLayout, einsum: str) -> str:
    last = layout.problem.tree.path(einsum)[-1].node
    assert isinstance(last, ComputeNode)
    return last.component


def _operand(layout: ExactLayout, ledger: ProductLedger, view: View, per: int) -> None:
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


def output_chain(layout: ExactLayout, einsum: str, tensor: str) -> OutputChain | RefilledChain | ListedChain:
    """The levels of an output from its backing node to compute."""
    nodes = layout.chain(einsum, tensor)
    carries = output_carries(layout, nodes)
    view = result_view(layout, einsum, tensor)
    given = view.access.accumulates  # then the backing storage holds a value before the first write
    versions, again = view.versions, repeating_loops(layout, einsum)
    levels = []
    for position, node in enumerate(nodes):
        now = node.written(versions)
        levels.append(
            OutputLevel(
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
    levels.append(OutputLevel(full, full, frozenset(), nodes[-1].loops, indexing=indexing, executions=each))
    shared, broadcast = shared_axes(layout, einsum, tensor), broadcast_axes(layout, einsum)
    try:
        return OutputChain(tuple(levels), examine(tuple(levels), shared, broadcast, tensor))
    except Refused:
        if not any(stays(level.apart) for level in levels if not level.spans):
            return RefilledChain(tuple(levels), shared, broadcast)
        if not listable(tuple(levels), view):
            raise
    return ListedChain(tuple(levels), shared, broadcast, view)


def ends_are_writes(chain: OutputChain | RefilledChain | ListedChain, level: OutputLevel) -> bool:
    """False if consumers keep a run alive after its last write, so that its start is counted instead. In a
    legal mapping no other instance holds a part of the element in such a run: it is drained alone."""
    return isinstance(chain, ListedChain) or not (level.carries and level.now != level.held)


def _output(layout: ExactLayout, ledger: ProductLedger, einsum: str, tensor: str, per: int) -> None:
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


def _fills(layout: ExactLayout, ledger: ProductLedger, node: ExactBuffet, per: int) -> None:
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


def _minus(products: tuple[CountProduct, ...]) -> tuple[CountProduct, ...]:
    return tuple(CountProduct(-p.sign, p.parts) for p in products)


def _copy(layout: ExactLayout, ledger: ProductLedger, einsum: str, per: int) -> None:
    """Book the moves from the source's backing node to the destination's; none if both are in one
    component."""
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
                code="unsupported-copy",
            )
        for node, kind in ((target, "writes_fill"), (source, "reads_fill")):
            ledger.book(einsum, node, kind, moved(now, now, (), node.loops, frozenset(), per=per))


def timed(chain: OutputChain | RefilledChain | ListedChain, per: int, tensor: str) -> RefilledChain:
    """The chain with its counts by iteration. Raises Refused if only totals are known."""
    remedy = f"use reuse: refill for {tensor}, or write Sequential"
    if isinstance(chain, ListedChain):
        raise Refused(
            f"output {tensor} is carried and spread over a fanout unevenly, which is not counted by "
            "iteration of a Pipeline",
            remedy,
            code="unsupported-pipeline",
        )
    if isinstance(chain, RefilledChain):
        return replace(chain, per=per)
    if any(level.carries and level.now != level.held for level in chain.levels[1:]):
        raise Refused(
            f"consumers keep results of {tensor} alive in a node that drains them, which is not counted by "
            "iteration of a Pipeline",
            remedy,
            code="unsupported-pipeline",
        )
    if chain.reduction.first_touch_formula and any(level.carries for level in chain.levels[1:]):
        raise Refused(
            f"output {tensor} is carried, broadcast and spread over a fanout unevenly, which is not counted "
            "by iteration of a Pipeline",
            remedy,
            code="unsupported-pipeline",
        )
    return RefilledChain(chain.levels, chain.reduction.shared, chain.reduction.broadcast, per)
