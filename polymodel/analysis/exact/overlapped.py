"""Working sets under the Einsums of pipelines: other stages count at the peak of their own buffets.

docs/semantics.md, Pipelines.
"""

from __future__ import annotations

from dataclasses import replace

from polymodel.analysis.exact.buffets import Layout, Node
from polymodel.analysis.exact.inter_branch_peaks import Gaps
from polymodel.analysis.exact.occupancy import has_gaps, item_of, items_of, peak
from polymodel.analysis.result import WorkingSet
from polymodel.mapping.looptree import Pipeline, around


def overlapped_peak(
    layout: Layout, einsum: str, component: str, measure: str, inside: Pipeline | None = None
) -> WorkingSet | None:
    """The peak of a component's buffets (`inside`: of those in the Einsum's stage of a pipeline alone)."""
    tree = layout.problem.tree
    scope = inside.node if inside else -1
    mine = [
        node
        for node in layout.nodes.values()
        if node.component == component
        and node.id > scope
        and (not inside or node.users[0] in inside.einsums)
        and not _elsewhere(layout, einsum, node)
    ]
    held = _own(layout, einsum, component, measure, mine)
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


def _own(layout: Layout, einsum: str, component: str, measure: str, mine: list[Node]) -> list[WorkingSet]:
    """The peaks of what no other stage holds: what stages share, and all else, by its lifetimes."""
    copies = [_copies(layout, einsum, node) for node in mine]
    alone = {(node.id, node.tensor) for node, n in zip(mine, copies, strict=True) if not n}
    rest = replace(
        layout, nodes={k: n for k, n in layout.nodes.items() if k in alone or n.component != component}
    )
    shared = [
        item if item.fixed is not None else replace(item, instances=item.instances * n)
        for node, n in zip(mine, copies, strict=True)
        if n
        for item in [item_of(layout, node)]
    ]
    rows = [peak(layout, einsum, component, "reserved", shared)]
    if measure == "tile" and has_gaps(rest, einsum, component):
        rows.append(Gaps(rest).peak(einsum, component))
    else:
        rows.append(
            peak(rest, einsum, component, measure, items_of(rest, einsum, component, measure == "reserved"))
        )
    return [w for w in rows if w is not None and w.bits]
