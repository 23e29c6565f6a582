"""Are the dependences kept: every element is complete, and still there, when it is read."""

from __future__ import annotations

from typing import Protocol

from polymodel.architecture.hierarchy import Hierarchy
from polymodel.errors import Diagnostic, Refused
from polymodel.mapping.looptree import LoopTree, Split, StorageNode
from polymodel.mapping.placement import storage_chain
from polymodel.polyhedra import order
from polymodel.schedule.touch import Block, Factor, View, loop_origins, partition, touch
from polymodel.workload.einsum import Cascade


class Mapped(Protocol):
    """A workload on an architecture under a LoopTree."""

    @property
    def cascade(self) -> Cascade: ...
    @property
    def hierarchy(self) -> Hierarchy: ...
    @property
    def tree(self) -> LoopTree: ...


def check(problem: Mapped) -> tuple[Diagnostic, ...]:
    """One diagnostic per broken dependence, naming Einsums, loop and one element (DESIGN 3, Legality)."""
    found: list[Diagnostic] = []
    cascade, tree = problem.cascade, problem.tree
    for tensor in cascade.tensors:
        producer = cascade.producer(tensor)
        if producer is None or producer.name not in tree.paths:
            continue
        for consumer in cascade.consumers(tensor):
            if consumer.name in tree.paths and consumer.name != producer.name:
                fault = _dependence(problem, tensor, producer.name, consumer.name)
                if fault is not None:
                    found.append(fault)
    return tuple(found)


def _dependence(problem: Mapped, tensor: str, producer: str, consumer: str) -> Diagnostic | None:
    tree = problem.tree
    split = next(
        a.id
        for a, b in zip(tree.path(producer), tree.path(consumer), strict=False)
        if isinstance(a.node, Split) and a.branch != b.branch
    )
    views = [_view(problem, e, tensor) for e in (producer, consumer)]
    blocks = partition(views)
    common = sum(1 for i, _ in tree.loops(producer) if i < split)
    made, read = (_factors(v, blocks, common) for v in views)
    where = f"{consumer} reads {tensor}"
    for a, b in zip(made, read, strict=True):
        element = order.missing(b.text, a.text, len(a.spatial) + len(a.temporal))
        if element is not None:
            return _fault(
                tensor,
                views[0],
                a,
                element,
                f"{where} but {producer} never produces it",
                "shrink the consumer's ranks",
            )
    for position in sorted(p for f in made for p in f.temporal):
        late = _late(made, read, position)
        if late is not None:
            node, loop = tree.loops(producer)[position]
            return _fault(
                tensor,
                views[0],
                late[0],
                late[1],
                f"{where} before {producer} has finished it: the loop over {loop.variable_in(producer)} "
                f"(node {node}) stands above their split",
                "move that loop below the split, or bind it to a rank variable that keeps the dependence",
            )
    return _home(problem, tensor, producer, consumer, blocks, views)


def _view(problem: Mapped, einsum: str, tensor: str) -> View:
    e = problem.cascade[einsum]
    return View(e, e.access_of(tensor), loop_origins(problem.cascade, problem.tree, einsum))


def _factors(view: View, blocks: tuple[Block, ...], loops: int) -> tuple[Factor, ...]:
    return touch((View(view.einsum, view.access, view.loops[:loops]),), blocks).factors


def _late(
    made: tuple[Factor, ...], read: tuple[Factor, ...], position: int
) -> tuple[Factor, tuple[int, ...]] | None:
    """An element produced later than it is read, the loops above `position` being equal."""
    found: tuple[Factor, tuple[int, ...]] | None = None
    for a, b in zip(made, read, strict=True):
        equal = sum(1 for t in a.temporal if t < position)
        later = position in a.temporal
        element = order.meeting(a.text, b.text, len(a.spatial), len(a.temporal), equal, later)
        if element is None:
            return None
        if found is None or (element and not found[1]):
            found = a, element
    return found


def _home(
    problem: Mapped, tensor: str, producer: str, consumer: str, blocks: tuple[Block, ...], views: list[View]
) -> Diagnostic | None:
    """At the outermost storage node, what is read must have been produced at that stamp."""
    tree = problem.tree
    home = storage_chain(tree, producer, tensor)[0]
    if storage_chain(tree, consumer, tensor)[0].id != home.id:
        return Diagnostic(
            f"{producer} and {consumer} share no storage node of {tensor}",
            f"store {tensor} above the split of the two",
        )
    assert isinstance(home.node, StorageNode)
    loops = sum(1 for i, _ in tree.loops(producer) if i < home.id)
    made, read = (_factors(v, blocks, loops) for v in views)
    for a, b in zip(made, read, strict=True):
        element = order.missing(b.text, a.text, 0)
        whole = order.made_once(a.text, len(a.spatial), len(a.temporal))
        if element is None and whole:
            continue
        if home.node.reuse != "refill":
            raise Refused(
                f"{tensor} in {home.node.component} is read by {consumer} at other iterations than "
                f"{producer} writes it; whether reuse: {home.node.reuse} keeps it so long "
                "is not decided here",
                f"store {tensor} above these loops",
            )
        x = () if element is None else element[len(a.spatial) + len(a.temporal) :]
        return _fault(
            tensor,
            views[0],
            a,
            x,
            f"{consumer} reads {tensor} where {home.node.component} (node {home.id}) does not hold all "
            f"that {producer} writes of it",
            f"store {tensor} above the loops between, or tile both Einsums alike",
        )
    return None


def _fault(
    tensor: str, view: View, factor: Factor, element: tuple[int, ...], message: str, remedy: str
) -> Diagnostic:
    if factor.ranks and len(element) == len(factor.ranks):
        ranks = view.access.ranks
        named = ", ".join(f"{ranks[r]}={v}" for r, v in zip(factor.ranks, element, strict=True))
        message = f"{message} (for example {tensor}[{named}])"
    return Diagnostic(message, remedy, path="mapping", code="illegal-dependence")
