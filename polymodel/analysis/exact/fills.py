"""What fills a node with elements that are only read there, and for which Einsum.

docs/semantics.md, Links and Bookings: a fill goes to the first Einsum below that touches the element at that
stamp, and none is needed where the producer writes it. One read at the parent serves instances booked to
several Einsums if the same instances may share for them; it is booked to the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from polymodel.analysis.exact.axes import output_carries, shared_axes
from polymodel.analysis.exact.buffets import Layout, Node
from polymodel.polyhedra import sets
from polymodel.schedule.touch import Touch, touch

if TYPE_CHECKING:
    import islpy


@dataclass(frozen=True)
class Fill:
    """What `einsum` pays for: what moves of `now`, less what moves of `before` (paid by those before it)."""

    einsum: str
    shared: frozenset[int]
    now: Touch
    before: Touch | None


def fill_carries(layout: Layout, node: Node) -> frozenset[int]:
    """Axis positions over whose steps the node's elements stay."""
    if node.producer is None:
        return node.policy_carries
    nodes = layout.chain(node.producer, node.tensor)
    return output_carries(layout, nodes)[[n.id for n in nodes].index(node.id)]


def fills_of(layout: Layout, node: Node) -> Iterator[Fill]:
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


def copy_of(layout: Layout, einsum: str, tensor: str) -> tuple[Node, Node, Touch] | None:
    """From where to where a copy Einsum moves, and what arrives; None within one component."""
    source = layout.chain(einsum, layout.problem.cascade[einsum].inputs[0].tensor)[0]
    target = layout.chain(einsum, tensor)[0]
    if source.component == target.component:
        return None
    view = layout.full[einsum, tensor]
    return source, target, touch((view.above(target.loops),), layout.blocks[tensor])


def _differing(node: Node) -> int:
    """The one factor in which users touch different things (`joint_blocks`), any if they all agree."""
    touches = [touch((v,), node.blocks).factors for v in node.views]
    for place, factors in enumerate(zip(*touches, strict=True)):
        if any(not sets.same(f.text, factors[0].text) for f in factors):
            return place
    return 0


def _points(touched: Touch, place: int) -> islpy.Set:
    return sets.parse_set(touched.factors[place].text)


def _with(node: Node, place: int, points: islpy.Set) -> Touch:
    """The node's touch with another set in one factor."""
    factors = node.all_touch.factors
    changed = factors[place].of_text(str(points))
    return replace(node.all_touch, factors=(*factors[:place], changed, *factors[place + 1 :]))
