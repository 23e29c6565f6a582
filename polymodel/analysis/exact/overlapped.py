"""Working sets under the Einsums of pipelines: other stages count at the peak of their own buffets.

docs/semantics.md, Pipelines.
"""

from __future__ import annotations

from dataclasses import replace

from polymodel.analysis.exact.buffets import Layout, Node
from polymodel.analysis.exact.idle import idle_beside
from polymodel.analysis.exact.occupancy import Item, has_gaps, item_of, items_of, peak
from polymodel.analysis.result import WorkingSet
from polymodel.errors import Refused
from polymodel.mapping.pipelines import Pipeline, around


def overlapped_peak(
    layout: Layout, einsum: str, component: str, measure: str, inside: Pipeline | None = None
) -> WorkingSet | None:
    """The peak of a component's buffets (`inside`: of those in the Einsum's stage of a pipeline alone)."""
    tree = layout.problem.tree
    scope = inside.node if inside else -1
    mine = {
        key: node
        for key, node in layout.nodes.items()
        if node.id > scope and (not inside or node.users[0] in inside.einsums)
    }
    mine = {key: node for key, node in mine.items() if not _elsewhere(layout, einsum, node)}
    held = [w] if (w := _own(replace(layout, nodes=mine), einsum, component, measure)) else []
    for p in around(tree, einsum):
        if p.node > scope:
            for b, stage in enumerate(p.stages):
                if b != p.stage_of(einsum):
                    rows = [overlapped_peak(layout, e, component, measure, p) for e in stage]
                    held += [max(found, key=lambda w: w.bits) for found in [[w for w in rows if w]] if found]
    if not held:
        return None
    residents = tuple(sorted((r for w in held for r in w.residents), key=lambda r: (r.node, r.tensor)))
    return WorkingSet(component, einsum, measure, sum(w.bits for w in held), residents)


def _elsewhere(layout: Layout, einsum: str, node: Node) -> bool:
    """True if the node belongs to another stage of a pipeline around the Einsum."""
    return any(
        node.id > p.node and node.users[0] in p.einsums and p.stage_of(node.users[0]) != p.stage_of(einsum)
        for p in around(layout.problem.tree, einsum)
    )


def _copies(layout: Layout, einsum: str, node: Node) -> int:
    """How many tiles a node above a pipeline of the Einsum holds at once, 0 if no stage uses it."""
    if not any(s.id == node.id for s in layout.problem.tree.path(einsum)):
        return 0
    above = (p for p in around(layout.problem.tree, einsum) if node.id < p.node)
    return max((p.copies(node.id, node.users) for p in above), default=0)


def _own(layout: Layout, einsum: str, component: str, measure: str) -> WorkingSet | None:
    """The peak of what no other stage holds: shared buffets all the time, the stage's by their lifetimes."""
    mine = {key: node for key, node in layout.nodes.items() if node.component == component}
    copies = {key: _copies(layout, einsum, node) for key, node in mine.items()}
    rest = replace(layout, nodes={key: node for key, node in mine.items() if not copies[key]})
    shared = [
        item if item.fixed is not None else replace(item, instances=item.instances * copies[key])
        for key, node in mine.items()
        if copies[key]
        for item in [item_of(layout, node)]
    ]
    if measure == "tile" and has_gaps(rest, einsum, component):
        raise _unfollowed(einsum, component)
    own = items_of(rest, einsum, component, measure == "reserved")
    every = measure == "reserved" or any(_idle(layout, einsum, i) for i in shared)
    if every and measure == "tile" and any(_idle(layout, einsum, i) for i in own):
        raise _unfollowed(einsum, component)
    items = sorted([*own, *shared], key=lambda i: (i.node.id, i.node.tensor))
    row = peak(layout, einsum, component, "reserved" if every else measure, items)
    return row if row is None or not row.bits else replace(row, measure=measure)


def _idle(layout: Layout, einsum: str, item: Item) -> bool:
    return item.fixed is None and idle_beside(layout, einsum, item.node)


def _unfollowed(einsum: str, component: str) -> Refused:
    return Refused(
        f"tiles of {component} outlive the branch that uses them while {einsum} runs in a Pipeline, which is "
        "not followed",
        "use reuse: refill for these tiles, or write Sequential",
    )
