"""When and where an Einsum is idle that shares loops with others but executes other iterations of them."""

from __future__ import annotations

from polymodel.analysis.exact.buffets import Layout, Node
from polymodel.mapping.looptree import Split
from polymodel.polyhedra import build, classes
from polymodel.schedule.touch import Factor, View, partition, touch


def divergence(layout: Layout, one: str, other: str) -> tuple[int, int, int]:
    """(id of the split where two Einsums part, branch of the one, branch of the other)."""
    tree = layout.problem.tree
    for a, b in zip(tree.path(one), tree.path(other), strict=False):
        if isinstance(a.node, Split) and a.branch != b.branch:
            return a.id, a.branch, b.branch
    raise KeyError((one, other))


def _stamps(layout: Layout, einsums: tuple[str, str], reach: int) -> list[tuple[Factor, Factor]]:
    """Factor by factor, the iterations that two Einsums run of the `reach` loops that they share."""
    views: list[View] = []
    for einsum in einsums:
        views.append(next(v for (e, _), v in layout.full.items() if e == einsum).bare(reach))
    blocks = partition(views)
    one, other = (touch((view,), blocks).factors for view in views)
    return list(zip(one, other, strict=True))


def same_stamps(layout: Layout, one: str, other: str, reach: int) -> bool:
    """True if two Einsums run the same iterations of their first `reach` loops."""
    return all(build.same(a.text, b.text) for a, b in _stamps(layout, (one, other), reach))


def idle_beside(layout: Layout, einsum: str, node: Node) -> bool:
    """True if another user of a node above the Einsum runs in an instance where the Einsum is idle meanwhile.

    Both run products of factors over the loops above the node, so one factor decides.
    """
    if not node.all_touch.spatial:
        return False
    for user in node.users:
        if user == einsum:
            continue
        found = [
            classes.at_times_of(theirs.text, mine.text, len(mine.spatial))
            for mine, theirs in _stamps(layout, (einsum, user), node.loops)
        ]
        if all(some for some, _ in found) and any(idle for _, idle in found):
            return True
    return False
