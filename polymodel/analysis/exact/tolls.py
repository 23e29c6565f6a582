"""What passes the tolls between a parent and its child."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from polymodel.analysis.exact.axes import result_view
from polymodel.analysis.exact.buffets import Layout, Node
from polymodel.analysis.exact.cached_counts import Product
from polymodel.analysis.exact.enumerated_partials import ListedChain, listable
from polymodel.analysis.exact.partials import Chain
from polymodel.analysis.exact.transfers import moved
from polymodel.analysis.exact.uneven import RefilledChain
from polymodel.errors import Refused
from polymodel.schedule.touch import Touch, View


@dataclass(frozen=True)
class Passage:
    """Elements of one tensor through one toll, per toll instance; `single`: each is a transfer of its own."""

    einsum: str
    component: str
    tensor: str
    up: bool
    products: tuple[Product, ...]
    single: bool

    @property
    def row(self) -> tuple[str, int | None, str, str, str]:
        """What identifies it among accesses: no node, and the direction as the kind."""
        return self.einsum, None, self.component, self.tensor, "up" if self.up else "down"


def tolls_between(
    layout: Layout, einsum: str, parent: Node, child: str, now: Touch
) -> Iterator[tuple[str, int]]:
    """(toll, how many leading axes tell its instances apart) between two components, outermost first."""
    hierarchy = layout.problem.hierarchy
    low, high = hierarchy.index(parent.component), hierarchy.index(child)
    loops = layout.problem.tree.loops(einsum)
    for component in hierarchy.components[low + 1 : high]:
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
            raise Refused(
                f"toll {component.name} has spatial loops of lower components above its own",
                "order the spatial loops from the outermost component to the innermost",
            )
        yield component.name, charge


def pass_tolls(
    layout: Layout,
    einsum: str,
    parent: Node,
    child: str,
    moving: tuple[Touch, Touch, frozenset[int]],
    shared: frozenset[int],
    direction: str,
    *,
    forward: bool = False,
    before: Touch | None = None,
    chain: tuple[Chain | RefilledChain | ListedChain, int] | None = None,
    per: int = 0,
) -> list[Passage]:
    """Passages of one link through every toll between the parent's and the child's component.

    `direction`: `down` for operands, `up` for results, `partial` for refilled partial sums; of the last two
    `chain` names the chain and the child's level. `per`: by iteration of so many outer loops.
    """
    single = layout.problem.hierarchy[child].computes
    now, held, carries = moving
    found = []
    for toll, charge in tolls_between(layout, einsum, parent, child, now):
        if direction == "partial":
            assert chain is not None
            products = _partial(chain[0], chain[1], charge, result_view(layout, einsum, parent.tensor))
        elif direction == "up" and chain is not None and isinstance(chain[0], ListedChain):
            products = chain[0].passed(chain[1], charge, up=True)
        else:
            products = moved(now, held, carries, charge, shared, forward=forward, per=per)
            if before is not None:
                less = moved(before, held, carries, charge, shared, per=per)
                products += tuple(Product(-p.sign, p.parts) for p in less)
        found.append(Passage(einsum, toll, parent.tensor, direction == "up", products, single))
    return found


def _partial(
    chain: Chain | RefilledChain | ListedChain, child: int, charge: int, view: View
) -> tuple[Product, ...]:
    """Refilled partial sums at a toll: as many as the parent reads if nothing splits above the toll."""
    level = chain.levels[child]
    if not [a for a in level.now.spatial if level.charge <= a < charge]:
        return chain.reads(child)
    if not isinstance(chain, Chain):
        return chain.passed(child, charge)
    shared, broadcast = chain.reduction.shared, chain.reduction.broadcast
    if not chain.reduction.first_touch_formula or not any(x.carries for x in chain.levels):
        return RefilledChain(chain.levels, shared, broadcast).passed(child, charge)
    if not listable(chain.levels, view):
        raise Refused(
            f"partial sums of {view.access.tensor} are carried past a toll inside their fanout, some "
            "instances are idle at times, and their Einsum has too many iterations to list",
            "use reuse: refill for this output, or tiles that divide their extents",
        )
    return ListedChain(chain.levels, shared, broadcast, view).passed(child, charge)
