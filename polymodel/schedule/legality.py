"""What a mapping must keep, decided before anything is counted: every engine takes it as given.

Every element is complete, and still there, when it is read; what instances sum up can be added.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from polymodel.architecture.hierarchy import Hierarchy
from polymodel.errors import Diagnostic
from polymodel.mapping.looptree import (
    Loop,
    LoopTree,
    Split,
    StorageNode,
    decided_above,
    storage_chain,
    ties,
    users,
)
from polymodel.polyhedra import dependences, needs
from polymodel.reuse import Reuse, override
from polymodel.schedule import elements
from polymodel.schedule.executed import Unexecutable, executed
from polymodel.schedule.holding import held, kept_axes, lost, scattered, unfinished
from polymodel.schedule.readers import check_readers
from polymodel.schedule.reductions import unreduced
from polymodel.schedule.touch import Factor, Part, View, loop_origins, partition, touch
from polymodel.workload.einsum import Cascade


class Mapped(Protocol):
    """A workload on an architecture under a LoopTree."""

    @property
    def cascade(self) -> Cascade: ...
    @property
    def hierarchy(self) -> Hierarchy: ...
    @property
    def tree(self) -> LoopTree: ...


def check(problem: Mapped, reuse: str | None = None) -> tuple[Diagnostic, ...]:
    """One diagnostic per broken dependence (docs/semantics.md, Legality), with Einsums, loop and an element,
    and one per loop that spreads an output over a fanout that may not reduce it.

    `reuse`: the policy of every storage node, instead of its own. Raises Refused if it takes too long.
    """
    policy = override(reuse)
    found: list[Diagnostic] = []
    cascade, tree = problem.cascade, problem.tree
    try:
        case = Case(problem, executed(cascade, tree, policy))
    except Unexecutable as why:
        return (Diagnostic(why.message, why.remedy, path="mapping", code="illegal-dependence"),)
    found += unreduced(cascade, problem.hierarchy, tree, case.parts)
    for tensor in cascade.tensors:
        producer = cascade.producer(tensor)
        if producer is None or producer.name not in tree.paths:
            continue
        apart = None if producer.is_copy or case.parts[producer.name] else _apart(case, tensor, producer.name)
        if apart is not None:
            found.append(apart)
            continue
        check_readers(cascade, tree, tensor)
        for consumer in cascade.consumers(tensor):
            if consumer.name in tree.paths and consumer.name != producer.name:
                fault = _dependence(case, tensor, producer.name, consumer.name, policy)
                if fault is not None:
                    found.append(fault)
    return tuple(found)


def unmade(cascade: Cascade) -> str:
    """What an Einsum reads that the producer never makes, whatever the mapping; empty if there is none."""
    for tensor in cascade.tensors:
        producer = cascade.producer(tensor)
        for consumer in cascade.consumers(tensor) if producer is not None else ():
            if producer is None or consumer.name == producer.name:
                continue
            views = [View(e, e.access_of(tensor), ()) for e in (producer, consumer)]
            blocks = partition(views)
            element = elements.never(*(touch((v,), blocks).factors for v in views))
            if element is not None:
                message = f"{consumer.name} reads {tensor} but {producer.name} never produces it"
                return _fault(tensor, views[0], element, message, "").message
    return ""


@dataclass(frozen=True)
class Case:
    """A problem and what executes of Einsums that some loop above does not bind."""

    problem: Mapped
    parts: dict[str, tuple[Part, ...]]

    @property
    def tree(self) -> LoopTree:
        return self.problem.tree

    @property
    def cascade(self) -> Cascade:
        return self.problem.cascade


def _apart(problem: Case, tensor: str, producer: str) -> Diagnostic | None:
    """Sums of one element in several instances of its outermost storage: nothing above adds them up."""
    chain = storage_chain(problem.tree, producer, tensor)
    above = [loop for i, loop in problem.tree.loops(producer) if chain and i < chain[0].id]
    if not any(loop.spatial for loop in above):
        return None
    view = _view(problem, producer, tensor, len(above))
    node = held(view, view, (view,))
    element = scattered(node)
    if element is None:
        return None
    return _fault(
        tensor,
        view,
        element,
        f"{producer} sums {tensor} up in several instances of its outermost storage (node {chain[0].id}), "
        "above which nothing adds them",
        f"store {tensor} above the spatial loop as well, or let that loop index it",
    )


def _dependence(
    problem: Case, tensor: str, producer: str, consumer: str, reuse: Reuse | None
) -> Diagnostic | None:
    tree = problem.tree
    split = next(
        a.id
        for a, b in zip(tree.path(producer), tree.path(consumer), strict=False)
        if isinstance(a.node, Split) and a.branch != b.branch
    )
    blocks = partition([_view(problem, e, tensor) for e in (producer, consumer)])
    common = sum(1 for i, _ in tree.loops(producer) if i < split)
    views = [_view(problem, e, tensor, common) for e in (producer, consumer)]
    made, read = (touch((v,), blocks).factors for v in views)
    where = f"{consumer} reads {tensor}"
    if problem.parts[producer]:
        return _made_again(problem, tensor, producer, consumer, views[0], (made, read))
    never = elements.never(made, read)
    if never is not None:
        message = f"{where} but {producer} never produces it"
        return _fault(tensor, views[0], never, message, "shrink the consumer's ranks")
    positions = sorted(p for f in made for p in f.temporal)
    late = _unfinished(problem, tensor, (producer, consumer), views[0], (made, read), positions)
    return late or _home(problem, tensor, producer, consumer, reuse)


def _view(problem: Case, einsum: str, tensor: str, loops: int | None = None) -> View:
    """The Einsum's access with its loops, or the outermost `loops` of them."""
    e = problem.cascade[einsum]
    origins = loop_origins(problem.cascade, problem.tree, einsum)[:loops]
    return View(e, e.access_of(tensor), origins, parts=problem.parts[einsum])


def _unfinished(
    problem: Case,
    tensor: str,
    pair: tuple[str, str],
    view: View,
    factors: tuple[tuple[Factor, ...], tuple[Factor, ...]],
    positions: Iterable[int],
) -> Diagnostic | None:
    """An element that is read before it is whole, because of a loop at one of the positions."""
    producer, consumer = pair
    for position in positions:
        late = None if view.loops[position][1].spatial else elements.late(*factors, position)
        if late is not None:
            node, loop, _ = view.loops[position]
            return _fault(
                tensor,
                view,
                late,
                f"{consumer} reads {tensor} before {producer} has finished it: the loop over "
                f"{loop.variable_in(producer)} (node {node}) stands above their split",
                "move that loop below the split, or "
                + (
                    _recompute(problem, tensor, producer, consumer, loop)
                    or "bind it to a rank variable that keeps the dependence"
                ),
            )
    return None


def _recompute(problem: Case, tensor: str, producer: str, consumer: str, loop: Loop) -> str:
    """How a consumer with a halo gets it: its own variable alone, so that the loop infers the producer.

    Empty if the loop binds the two by something else than a rank that the consumer reads windows of.
    """
    makes, reads = problem.cascade[producer], problem.cascade[consumer]
    theirs, own = loop.variable_in(producer), loop.variable_in(consumer)
    ranks = zip(makes.access_of(tensor).projection, reads.access_of(tensor).projection, strict=True)
    if not any(theirs in a.variables and own in b.variables and len(b.variables) > 1 for a, b in ranks):
        return ""
    bound = f"loop over {own} of {consumer} alone"
    if own in makes.rank_variables:
        bound = f"give {producer} another name for {own}, so that the loop binds {consumer} alone"
    return f"{bound}: {producer} then makes what {consumer} needs, recomputing what is not kept of the halo"


def _made_again(
    problem: Case,
    tensor: str,
    producer: str,
    consumer: str,
    view: View,
    pair: tuple[tuple[Factor, ...], tuple[Factor, ...]],
) -> Diagnostic | None:
    """The producer executes what consumers below its loops need, or repeats itself; others must find it.

    What it executes is whole (`executed`) and comes before the consumers of that iteration.
    """
    tree = problem.tree
    tied = ties(problem.cascade, tree, producer)
    node = decided_above(tied)
    home = storage_chain(tree, producer, tensor)[0]
    if storage_chain(tree, consumer, tensor)[0].id != home.id:
        return _homeless(producer, consumer, tensor)
    if consumer in users(tree, node) and tied[node] == "inferred":
        inner = [p for p, (i, _, _) in enumerate(view.loops) if i > node]
        above = sum(1 for i, _, _ in view.loops if i < home.id)
        apart = tuple(_by_instance(f, above) for f in pair[0]), tuple(_by_instance(f, above) for f in pair[1])
        late = _unfinished(problem, tensor, (producer, consumer), view, apart, inner)
        below = [p for p in inner if view.loops[p][0] < home.id]
        return late or _let_go(problem, tensor, producer, consumer, node, below)
    shared = len(view.loops)  # all above the split: an iteration's results are read in that iteration
    lacking = [dependences.missing(b.text, a.text, 0) for a, b in zip(*pair, strict=True)]
    if all(x is None for x in lacking) and sum(1 for i, _ in tree.loops(producer) if i < home.id) <= shared:
        return None
    element = elements.never(*pair) or {}
    return _fault(
        tensor,
        view,
        element,
        f"{consumer} reads {tensor}, which {producer} executes only as Einsums below node {node} need it",
        f"put {consumer} below that loop, or bind a variable of {producer} with rank_variable",
    )


def _by_instance(factor: Factor, loops: int) -> Factor:
    """The factor with the instances of the outermost `loops` loops as data: each makes its own elements."""
    moved = [k for k, a in enumerate(factor.spatial) if a < loops]
    if not moved:
        return factor
    stamps = len(factor.spatial) + len(factor.temporal)
    names = [f"c{k}" for k in range(stamps)] + [f"x{k}" for k in range(len(factor.ranks))]
    order = [*(n for k, n in enumerate(names) if k not in moved), *(names[k] for k in moved)]
    text = needs.image((factor.text,), f"{{ [{', '.join(names)}] -> [{', '.join(order)}] }}")
    return replace(factor, spatial=factor.spatial[len(moved) :], text=text)


def _let_go(
    problem: Case, tensor: str, producer: str, consumer: str, node: int, loops: list[int]
) -> Diagnostic | None:
    """Below loops of the producer's own, its outermost storage holds only what their iteration makes.

    `node`: the loop at which it is decided what the producer executes.
    """
    if not loops:
        return None
    views = [_view(problem, e, tensor, loops[-1] + 1) for e in (producer, consumer)]
    blocks = partition(views)
    made, read = (touch((v,), blocks).factors for v in views)
    named = ", ".join(
        f"{views[0].loops[p][1].variable_in(producer)} (node {views[0].loops[p][0]})" for p in loops
    )
    remedy = f"store {tensor} above these loops"
    each = replace(views[0], versions=tuple(i for i, _, _ in views[0].loops if i <= node))
    element = elements.in_part(touch((each,), partition((each,))).factors, len(each.access.projection))
    if element is not None:
        message = (
            f"several iterations of the loops over {named} add up what {producer} makes of {tensor} for "
            f"{consumer}, and its storage lies below them"
        )
        return _fault(tensor, each, element, message, remedy)
    lacking = [dependences.missing(b.text, a.text, 0) for a, b in zip(made, read, strict=True)]
    if all(x is None for x in lacking):
        return None
    message = (
        f"{consumer} reads {tensor} in another iteration of the loops over {named} than makes it, "
        "and its storage lies below them"
    )
    return _fault(tensor, views[0], elements.never(made, read) or {}, message, remedy)


def _home(problem: Case, tensor: str, producer: str, consumer: str, reuse: Reuse | None) -> Diagnostic | None:
    """At the outermost storage node, what is read is there, and all of it."""
    tree = problem.tree
    home = storage_chain(tree, producer, tensor)[0]
    if storage_chain(tree, consumer, tensor)[0].id != home.id:
        return _homeless(producer, consumer, tensor)
    assert isinstance(home.node, StorageNode)
    loops = sum(1 for i, _ in tree.loops(producer) if i < home.id)
    below = {e: _view(problem, e, tensor, loops) for e in users(tree, home.id) if _uses(problem, e, tensor)}
    node = held(below[producer], below[consumer], tuple(below.values()))
    where = f"{home.node.component} (node {home.id})"
    policy = reuse or home.node.reuse
    element = lost(
        node,
        policy,
        f"whether {where} holds all that {producer} writes of {tensor} when {consumer} reads it "
        "takes too long to decide",
        f"store {tensor} above the loops over it that stand above its storage",
    )
    if element is None:
        return _inner(problem, tensor, producer, consumer, reuse)
    return _fault(
        tensor,
        below[producer],
        element,
        f"{consumer} reads {tensor} where {where} does not hold all that {producer} writes of it, "
        f"under reuse: {policy}",
        f"store {tensor} above the loops between, or tile both Einsums alike",
    )


def _homeless(producer: str, consumer: str, tensor: str) -> Diagnostic:
    message = f"{producer} and {consumer} share no storage node of {tensor}"
    return Diagnostic(message, f"store {tensor} above the split of the two")


def _inner(
    problem: Case, tensor: str, producer: str, consumer: str, reuse: Reuse | None
) -> Diagnostic | None:
    """At storage nodes further in that both share, parts of what is read are not in other instances."""
    tree = problem.tree
    if any(problem.cascade[e].is_copy for e in (producer, consumer)):
        return None  # copies touch outermost nodes alone
    theirs = {s.id for s in storage_chain(tree, consumer, tensor)}
    above = -1
    stays: tuple[int, ...] | None = None  # axes over which the parent keeps elements; None: all
    for step in storage_chain(tree, producer, tensor):
        if step.id not in theirs:
            break
        assert isinstance(step.node, StorageNode)
        loops = [loop for i, loop in tree.loops(producer) if i < step.id]
        names = [e for e in users(tree, step.id) if _uses(problem, e, tensor)]
        if above >= 0:
            names = [e for e in names if not problem.cascade[e].is_copy]
        below = {e: _view(problem, e, tensor, len(loops)) for e in names}
        policy = reuse or step.node.reuse
        if above >= 0:
            node = held(below[producer], below[consumer], tuple(below.values()))
            kept = tuple(a for a in kept_axes(node.all, policy) if a >= above or stays is None or a in stays)
            pair = below[producer], below[consumer]
            where = f"{step.node.component} (node {step.id})"
            element = unfinished(
                tuple(below.values()),
                pair,
                kept,
                f"whether {where} holds all of {tensor} in one instance when {consumer} reads it "
                "takes too long to decide",
                f"store {tensor} below the split, once for each branch, instead of in node {step.id}",
            )
            if element is not None:
                return _fault(
                    tensor,
                    below[producer],
                    element,
                    f"{consumer} reads {tensor} in {where} while other instances still hold parts "
                    f"that {producer} wrote",
                    f"store {tensor} below the split, once for each branch, instead of in node {step.id}",
                )
            stays = kept
        above = len(loops)
    return None


def _uses(problem: Case, einsum: str, tensor: str) -> bool:
    return tensor in problem.cascade[einsum].tensors


def _fault(tensor: str, view: View, element: elements.Element, message: str, remedy: str) -> Diagnostic:
    if element:
        ranks = view.access.ranks
        named = ", ".join(f"{ranks[r]}={v}" for r, v in sorted(element.items()))
        message = f"{message} (for example {tensor}[{named}])"
    return Diagnostic(message, remedy, path="mapping", code="illegal-dependence")
