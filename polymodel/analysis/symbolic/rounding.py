"""Whole actions as closed forms: the number of actions that move tiles whose bits are not a multiple of an
action's.

docs/semantics.md, Whole actions. A transfer is a tile of a visit; tiles of a visit differ in size only if
those of a rank variable do. So the actions are a sum over the classes of tiles along each variable. What is
moved in other pieces (parts of windows, what stays, what instances share) has no closed form here.
"""

from __future__ import annotations

from collections.abc import Iterator

from polymodel.analysis.result import WholeActions
from polymodel.analysis.symbolic.atoms import ONE, RoundedActions
from polymodel.analysis.symbolic.flows import FormLedger, TransferPath
from polymodel.analysis.symbolic.forms import READS, Form, number, of_atom, summed
from polymodel.analysis.symbolic.layout import SymbolicBuffet, SymbolicLayout, carries
from polymodel.architecture.hierarchy import ActionCost
from polymodel.errors import NotSeparable

Key = tuple[str, int, str, str]  # Einsum, node, tensor, kind


def whole_actions(layout: SymbolicLayout, ledger: FormLedger) -> tuple[WholeActions[Form], ...]:
    """The actions of every kind of access that is rounded, tile by tile. Raises NotSeparable."""
    refuse_tolls(layout)
    result: dict[Key, Form] = {}
    for link in _links(layout):
        for node, kind in _ends(link):
            if not ledger.accesses[link.einsum, node.id, link.tensor].whole[kind].terms:
                continue
            action = action_of(layout, node, kind)
            if action.rounds(layout.bits(link.tensor)):
                key = link.einsum, node.id, link.tensor, kind
                result[key] = result.get(key, Form()) + _visits(link, kind) * _tiles(link, action)
    return tuple(
        WholeActions(einsum, node, layout.nodes[node, tensor].component, tensor, kind, form)
        for (einsum, node, tensor, kind), form in result.items()
    )


def action_of(layout: SymbolicLayout, node: SymbolicBuffet, kind: str) -> ActionCost:
    """The cost of a kind of access at its component."""
    return layout.problem.hierarchy[node.component].action("read" if kind in READS else "write")


def refuse_tolls(layout: SymbolicLayout) -> None:
    """Refuse rounding anywhere but at the ends of a link."""
    problem = layout.problem
    for component, tensor, _ in problem.rounding():
        users = [e for e in problem.cascade.einsums if tensor in e.tensors and e.name in problem.tree.paths]
        if component.passes or any(e.is_copy for e in users):
            what = "passes it on" if component.passes else "takes part in a copy"
            raise refused(f"{component.name} rounds up transfers of {tensor} and {what}")
        if any(problem.hierarchy.waits(c.name) for c in problem.hierarchy.components):
            raise refused(f"{component.name} rounds up transfers of {tensor}, and refills wait")


def refused(what: str) -> NotSeparable:
    return NotSeparable(
        f"{what}, which has no closed form",
        "use engine exact, or give bits_per_action that divide bits_per_value",
        code="unsupported-rounding",
    )


def _links(layout: SymbolicLayout) -> Iterator[TransferPath]:
    """The links between storages that anything moves over, as `flows` books them."""
    for einsum in layout.problem.tree.einsums:
        one = layout.problem.cascade[einsum]
        for tensor in () if one.is_copy else one.tensors:
            access, chain = layout.access(einsum, tensor), layout.chain(einsum, tensor)
            kept = carries(layout, einsum, chain)
            for place in range(1, len(chain)):
                link = TransferPath(layout, einsum, chain, place, kept, access)
                if access.output or layout.is_filled(einsum, link.child):
                    yield link


def _ends(link: TransferPath) -> Iterator[tuple[SymbolicBuffet, str]]:
    """Both ends of a link between storages with the kinds of access there."""
    if link.child is None:
        return
    out = link.access.output
    yield link.parent, "reads_fill"
    yield link.child, "writes_fill"
    if out:
        yield link.parent, "writes_drain"
        yield link.child, "reads_drain"


def _tiles(link: TransferPath, action: ActionCost) -> Form:
    """The actions of one visit to each tile."""
    space = link.space
    assert action.bits_per_action is not None
    chains = tuple(
        (space.extent(v), *(space.axes[i].tile for i in space.of(v))) for v in link.access.variables
    )
    return of_atom(RoundedActions(chains, link.layout.bits(link.tensor), action.bits_per_action))


def _visits(link: TransferPath, kind: str) -> Form:
    """How often each tile is moved: in every iteration of the loops that do not index it; partial sums are
    read again each time except the first, when there are none."""
    _refuse_pieces(link)
    space, result = link.space, number(1)
    for v in space.spread:
        result = result * summed(space.extent(v), space.ladder(v, dict.fromkeys(space.of(v), "each")), ONE)
    if not link.access.output or kind in ("reads_drain", "writes_drain") or link.access.accumulates:
        return result
    # If storage further out supplies initial values, all storage below receives them as well.
    hierarchy = link.layout.problem.hierarchy
    given = any(hierarchy[n.component].read_first for n in link.chain[: link.place])
    return result if given else result - 1


def _refuse_pieces(link: TransferPath) -> None:
    """Refuse transfers other than whole tiles, each moved once in a visit."""
    space, child = link.space, link.child
    assert child is not None
    ends = f"between {link.parent.component} and {child.component}"
    where = f"transfers of {link.tensor} in {link.einsum} {ends} are rounded up"
    ranks = link.access.projection
    own = [e.variables for e in ranks if e.variables]
    steps = [c for e in ranks for _, c in e.terms if c]
    if any(len(v) > 1 for v in own) or len(set(own)) < len(own) or any(c != 1 for c in steps) or space.halos:
        raise refused(f"{where}, and tiles are windows")
    if link.carry:
        raise refused(f"{where}, and parts of tiles stay")
    if any(a.spatial for a in space.axes):
        raise refused(f"{where}, and reach several instances")
    if any(a.start is not None for a in space.axes):
        raise refused(f"{where}, and first tiles have a different size")
    variables = set(link.layout.problem.cascade[link.einsum].rank_variables)
    others = any(a.variable not in variables for a in space.axes)
    made = child.producer not in (None, link.einsum) or bool(link.layout.inferred)
    if space.windows or space.tied or others or made or link.layout.decided[link.einsum]:
        raise refused(f"{where}, and tiles are not boxes, or are inferred")
    if space.carried is not None or link.tensor in link.layout.lines:
        raise refused(f"{where}, and the tensor is carried forward")
