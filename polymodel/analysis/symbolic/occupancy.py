"""Working sets as the largest of few phases (docs/semantics.md, Occupancy).

In a box every tile is largest at its first stamp, all of them together; only a buffet that is absent
there (used by later branches, from an earlier iteration) asks for other stamps: the second ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import combinations
from itertools import product as cartesian

from polymodel.analysis.symbolic.atoms import ONE, SIZE, Leaf, Role, atom
from polymodel.analysis.symbolic.counts import count
from polymodel.analysis.symbolic.forms import Form, Held, Peak, number, of_atom, product
from polymodel.analysis.symbolic.layout import Layout, Node, carries, policy, temporal
from polymodel.analysis.symbolic.records import WorkingSetForm
from polymodel.analysis.symbolic.spaces import Space
from polymodel.errors import NotSeparable
from polymodel.mapping.looptree import Split, StorageNode


@dataclass(frozen=True)
class Item:
    """A buffet in the phases of one Einsum; absent at the first (last) stamp of these loops.

    Each loop comes with a form that is 1 if its steps count. `fixed`: it is persistent, all that it
    ever holds stays. `shared`: how many loops stand above both, for a buffet in another branch.
    """

    node: Node
    held: Held
    not_first: tuple[tuple[int, Form], ...] = ()
    not_last: tuple[tuple[int, Form], ...] = ()
    fixed: bool = False
    shared: int | None = None


def working_sets(layout: Layout) -> tuple[WorkingSetForm, ...]:
    """`tile` and `reserved` of every memory during every Einsum."""
    rows = []
    for einsum in layout.problem.tree.einsums:
        for component in layout.problem.hierarchy.components:
            if component.kind != "memory":
                continue
            items = _items(layout, einsum, component.name)
            rows.append(WorkingSetForm(component.name, einsum, "tile", Peak(_phases(layout, einsum, items))))
            whole = _reserved(layout, einsum, component.name)
            if whole:
                rows.append(WorkingSetForm(component.name, einsum, "reserved", Peak((whole,))))
    return tuple(r for r in rows if r.peak.phases)


def _item(layout: Layout, node: Node) -> Item:
    accesses = [a for e in layout.problem.cascade.einsums for a in e.accesses if a.tensor == node.tensor]
    held = Held(node.id, node.tensor, _largest(node.space), layout.bits(node.tensor))
    if node.parent is None:
        scale = accesses[0].backing_scale
        held = replace(held, numerator=scale.numerator, denominator=scale.denominator)
        if _persistent(layout, node):
            times = max(layout.problem.cascade[e].n_instances for e in node.users)
            return Item(node, replace(held, elements=_ever_held(node.space), count=times), fixed=True)
    elif layout.problem.hierarchy.doubles(node.component):
        held = replace(held, count=2)
    return Item(node, held)


def _persistent(layout: Layout, node: Node) -> bool:
    accesses = (a for e in layout.problem.cascade.einsums for a in e.accesses if a.tensor == node.tensor)
    return node.parent is None and any(a.persistent for a in accesses)


def _largest(space: Space) -> Form:
    return _elements(space, dict.fromkeys(range(len(space.axes)), "first"))


def _ever_held(space: Space) -> Form:
    """The most elements that one instance sees: its part of every spatial loop, all of the temporal ones."""
    return count(space, {i: "at0" if a.spatial else "merge" for i, a in enumerate(space.axes)})


def _elements(space: Space, roles: dict[int, Role]) -> Form:
    """The size of the tile at the stamp that the roles choose."""

    def chain(v: str, leaf: Leaf) -> Form:
        return of_atom(atom(space.extent(v), space.ladder(v, roles), leaf))

    result = product(chain(v, SIZE) for v in sorted(space.single))
    result = result * product(chain(v, ONE) for v in space.spread)
    for h in space.halos:
        over = chain(h.p, Leaf("over", h.shift_p)) * chain(h.r, Leaf("over", h.shift_r))
        result = result * (chain(h.p, SIZE) * chain(h.r, SIZE) - over)
    return result


def _reserved(layout: Layout, einsum: str, component: str) -> tuple[Held, ...]:
    on_path = {s.id for s in layout.problem.tree.path(einsum)}
    found = []
    for node in layout.nodes.values():
        here = node.id in on_path or _persistent(layout, node)
        if node.component == component and here:
            found.append(_item(layout, node).held)
    return tuple(found)


def _items(layout: Layout, einsum: str, component: str) -> list[Item]:
    on_path = {s.id for s in layout.problem.tree.path(einsum) if isinstance(s.node, StorageNode)}
    found = []
    for node in layout.nodes.values():
        if node.component != component:
            continue
        item = _item(layout, node)
        if item.fixed or (node.id in on_path and einsum in node.users):
            found.append(item)
            continue
        stays = _residence(layout, einsum, item, on_path=node.id in on_path)
        if stays is not None:
            found.append(stays)
    return found


def _residence(layout: Layout, einsum: str, item: Item, on_path: bool) -> Item | None:
    """When a buffet that the Einsum does not use is resident in its phases, if ever.

    It is there between two uses, of one visit or of two that are joined by what stays.
    """
    node = item.node
    before = after = False
    earlier = later = -1
    for user in node.users:
        split, mine, theirs = divergence(layout, einsum, user)
        loops = sum(1 for a in layout.paths[einsum] if a.node < split)
        if theirs < mine:
            before, earlier = True, max(earlier, loops)
        else:
            after, later = True, max(later, loops)
    if before and after:
        return item
    shared = earlier if before else later
    inside = node.depth if on_path else shared
    stays = _joined(layout, node, min(inside, shared), on_path)
    for i in range(node.depth, shared if on_path else 0):
        if not layout.paths[einsum][i].spatial:
            stays[i] = number(1)
    stays = {i: form for i, form in stays.items() if form != Form()}
    if not stays:
        return None
    times = tuple(sorted(stays.items()))
    item = replace(item, shared=None if on_path else shared)
    return replace(item, not_last=times) if before else replace(item, not_first=times)


def _joined(layout: Layout, node: Node, reach: int, on_path: bool) -> dict[int, Form]:
    """Loop -> 1 where its step leaves something in the buffet, for loops above it up to `reach`.

    Where a loop's step leaves anything, so do those inside it.
    """
    space = node.space
    if node.producer is not None and node.parent is not None:
        readers = [e for e in node.users if e != node.producer]
        user = readers[0] if layout.decided[node.producer] and readers else node.producer
        chain = layout.chain(user, node.tensor)
        carry = carries(layout, user, chain)[[n.id for n in chain].index(node.id)]
    else:
        carry = policy(node)
    found = {}
    for axis, form in carry.items():
        common = _in_common(space, axis)
        if axis >= reach or common == 0:
            continue
        inner = [i for i in temporal(space) if i > axis and space.axes[i].variable in space.access.variables]
        own = set(space.of(space.axes[axis].variable))
        alone = on_path and all(i in own and _in_common(space, i) for i in inner)
        if common is None or (node.reuse == "keep_previous" and inner and not alone):
            raise NotSeparable(
                f"{node.tensor} may stay in {node.component} in part under {node.reuse} while others run",
                "use engine exact, or reuse: refill",
            )
        found[axis] = form
    return found


def _in_common(space: Space, axis: int) -> int | None:
    """How many values of a rank the tiles before and after a loop's steps share; None: it is not known."""
    v = space.axes[axis].variable
    window = space.window(v)
    met = dict(window.later).get(axis, 0) if window is not None else 0
    if v not in space.access.variables:
        return 1
    if v in space.single:
        return met
    if any(a.spatial for a in space.axes):
        return None
    expr = next(e for e in space.access.projection if v in e.variables)
    terms = dict(expr.terms)
    other = next(u for u in expr.variables if u != v)
    if space.of(other) or space.window(other) is not None or (window is not None and axis >= window.depth):
        return None
    extent = space.extent(other)
    if not isinstance(extent, int) or (terms[other] > 1 and extent > 1):
        return None
    return max(0, 1 + terms[other] * (extent - 1) + terms[v] * (met - 1))


def divergence(layout: Layout, one: str, other: str) -> tuple[int, int, int]:
    """(id of the split where two Einsums part, branch of the one, branch of the other)."""
    tree = layout.problem.tree
    for a, b in zip(tree.path(one), tree.path(other), strict=False):
        if isinstance(a.node, Split) and a.branch != b.branch:
            return a.id, a.branch, b.branch
    raise KeyError((one, other))


def _phases(layout: Layout, einsum: str, items: list[Item]) -> tuple[tuple[Held, ...], ...]:
    """The stamps that may be the peak: the first, and second steps of loops that bring buffets in.

    At any other stamp, let each buffet that is there name one of its loops that has advanced: the stamp
    where just these are at their second step holds no fewer and no smaller buffets.
    """
    if not items:
        return ()
    bare = layout.stamps(einsum, layout.paths[einsum])
    sets = sorted({tuple(a for a, _ in i.not_first) for i in items if i.not_first})
    chosen = {
        frozenset(axes)
        for n in range(len(sets) + 1)
        for some in combinations(sets, n)
        for axes in cartesian(*some)
    }
    phases = []
    for seconds in sorted(chosen, key=sorted):
        here = [i for i in items if not i.not_first or seconds & {a for a, _ in i.not_first}]
        reached = product(
            of_atom(atom(bare.extent(v), bare.ladder(v, _steps(bare.of(v), seconds)), ONE))
            for v in bare.spread
        )
        held = (_at(bare, i, seconds) for i in here)
        phases.append(tuple(replace(h, elements=h.elements * reached) for h in held))
    return tuple(p for p in phases if p)


def _steps(positions: Iterable[int], seconds: frozenset[int]) -> dict[int, Role]:
    """The stamp where the loops at `seconds` are at their second step, all others at their first."""
    return {i: "second" if i in seconds else "first" for i in positions}


def _at(bare: Space, item: Item, seconds: frozenset[int]) -> Held:
    """The item at the stamp that `seconds` choose; nothing where it is gone."""
    held = item.held
    if not item.fixed:
        held = replace(held, elements=_elements(item.node.space, _there(item, seconds)))
    if item.not_last:
        one = number(1)
        gone = product(one - form * (one - _is_last(bare, a, seconds)) for a, form in item.not_last)
        held = replace(held, elements=held.elements * (one - gone))
    if item.not_first:
        absent = product(number(1) - form for a, form in item.not_first if a in seconds)
        held = replace(held, elements=held.elements * (number(1) - absent))
    return held


def _there(item: Item, seconds: frozenset[int]) -> dict[int, Role]:
    """The tile that is held; in another branch that runs later, that of the visit before."""
    if item.shared is None:
        return _steps(range(item.node.depth), seconds)
    reached = frozenset(i for i in seconds if i < item.shared)
    if item.not_first and reached:
        reached -= {max(reached)}
    return _steps(range(item.node.depth), reached)


def _is_last(bare: Space, axis: int, seconds: frozenset[int]) -> Form:
    """1 if the loop at `axis` has no step after the one that the stamp chooses."""
    v = bare.axes[axis].variable
    roles = _steps((i for i in bare.of(v) if i < axis), seconds)
    roles[axis] = "two" if axis in seconds else "only"
    return of_atom(atom(bare.extent(v), bare.ladder(v, roles, until=axis), ONE))
