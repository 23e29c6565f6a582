"""Storage nodes that keep what the preceding visit held: orders of the loops above them, and kinds of steps.

Under `keep_previous` an element stays over a step from one visit to the next if both tiles have it. A step is
told by the outermost loop that it advances; loops further in start again. Where all tiles of a variable are
equal, a step keeps nothing if such a loop indexes the tensor alone, and of a window as much as the distance
between both tiles leaves. So what stays depends on the order of the loops, which a template then fixes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations, product
from math import factorial, prod
from typing import TYPE_CHECKING

from polymodel.errors import Refused
from polymodel.mapper.einsum_rules import LoopRules
from polymodel.mapper.pricing import VisitStep
from polymodel.mapper.windows import Tie
from polymodel.workload.einsum import Einsum

if TYPE_CHECKING:
    from polymodel.mapper.space import EinsumSpace, Operand
    from polymodel.mapper.templates import TemplateNode

MOST_ORDERS = 5_000  # of the loops above the nodes of one placement
Order = tuple[int, ...]  # bundles, by their first variables, as their loops stand in a block, outermost first


def block_orders(space: EinsumSpace, branch: Sequence[TemplateNode]) -> Iterator[tuple[Order, ...]]:
    """Yield the orders of the loops in each block of a branch, down to the last node that keeps, which the
    search distinguishes.

    A node that keeps has an order: first the loops that index its tensor alone, then those of its windows, in
    each order, then all others. A block stands in that of the next such node further in; or, in all blocks
    above it, in that of any one such node, and loops that this one does not distinguish in that of the next.
    A loop along which the node right below slides is innermost. Raises Refused for too many orders.
    """
    keeping = [n for n in branch if n.keeps]
    last = max(n.level for n in keeping)
    many = prod(factorial(len(space.operands[n.operand].windowed)) for n in keeping) * len(keeping)
    if many > MOST_ORDERS:
        what = f"{space.name} has {many:,} orders of loops above nodes that keep_previous in one placement"
        remedy = "let fewer memories keep_previous, or hold tensors with windows (`may_keep`, `bypass`)"
        raise Refused(what, remedy, code="too-large")
    mine = {n.level: _own_orders(space, n.operand) for n in keeping}
    of = {n.level: space.operands[n.operand] for n in keeping}
    result: dict[tuple[Order, ...], None] = {}
    for chosen in product(*mine.values()):
        orders = dict(zip(mine, chosen, strict=True))
        for first in orders:
            each = (_order(of, orders, max(first, level + 1), level) for level in range(last))
            along = (next((n.slides for n in branch if n.level == level + 1), -1) for level in range(last))
            result[tuple(_with_last(order, v) for order, v in zip(each, along, strict=True))] = None
    yield from result


def _own_orders(space: EinsumSpace, operand: int) -> list[Order]:
    """The orders of the loops right above a node of this operand."""
    o, firsts = space.operands[operand], [members[0] for members in space.bundles]
    outer = tuple(v for v in firsts if v in o.alone)
    inner = tuple(v for v in firsts if v not in o.alone | o.windowed)
    return [(*outer, *some, *inner) for some in permutations(v for v in firsts if v in o.windowed)]


def _order(of: Mapping[int, Operand], orders: Mapping[int, Order], first: int, level: int) -> Order:
    """The order of the block below a level, for the next node from the level `first` on, and for the next one
    of all."""
    chosen, own = min(k for k in orders if k >= first), orders[min(k for k in orders if k > level)]
    alone, windowed = of[chosen].alone, of[chosen].windowed
    place = orders[chosen].index

    def key(v: int) -> tuple[int, int]:
        return (1, place(v)) if v in windowed else (0 if v in alone else 2, own.index(v))

    return tuple(sorted(own, key=key))


def _with_last(order: Order, last: int) -> Order:
    return tuple(sorted(order, key=lambda v: v == last))


def steps_of(orders: Sequence[Order], operand: Operand, levels: range) -> tuple[VisitStep, ...]:
    """Return the steps of loops in the blocks below these levels, by their orders, over which elements of an
    operand may stay."""
    result = []
    for level in levels:
        for at, v in enumerate(orders[level]):
            if v not in operand.alone:
                result.append(VisitStep(level, v, frozenset(orders[level][at + 1 :])))
    return tuple(result)


def written_order(space: EinsumSpace, order: Order) -> list[int]:
    """The variables of a block, outermost loop first."""
    members = {some[0]: some for some in space.bundles}
    return [v for first in order for v in members[first]]


def counted_policies(
    one: Einsum, rules: LoopRules, operands: Collection[Operand], ties: Collection[Tie]
) -> LoopRules:
    """Return the rules without nodes that keep where these are not counted: in copies, and where tiles of an
    operand are not alike. Raises Refused if such nodes may do nothing else, and beside rules on loops."""
    if one.is_copy:
        return replace(rules, keeping=frozenset())
    if rules.placed:
        what = "the search does not cover nodes that keep_previous beside `factors` and `order` of memories"
        raise Refused(what, "leave one of them out", code="unsupported-constraint")
    unlike = (o.imaged or o.first_differs or o.forward or o.carried for o in operands)
    if not ties and not any(unlike):
        return rules
    if rules.always:
        what = f"the search does not cover nodes of {one.name} that keep_previous: not all tiles are alike"
        remedy = "let nodes refill as well: `reuse: [refill, keep_previous]`"
        raise Refused(what, remedy, code="unsupported-instances")
    return replace(rules, keeping=frozenset())
