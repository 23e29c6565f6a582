"""Working sets as the largest of few phases (docs/semantics.md, Occupancy).

In a box every tile is largest at its first stamp, all of them together; only a buffet that is absent
there (used by later branches, from an earlier iteration) asks for other stamps: the second ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from itertools import product as cartesian

from polymodel.analysis.symbolic.atoms import ONE, SIZE, Leaf, Level, Role, atom
from polymodel.analysis.symbolic.counts import Space, count
from polymodel.analysis.symbolic.forms import Form, Held, Peak, number, of_atom, product
from polymodel.analysis.symbolic.layout import Layout, Node
from polymodel.analysis.symbolic.records import WorkingSetForm
from polymodel.errors import NotSeparable
from polymodel.mapping.looptree import Split, StorageNode


@dataclass(frozen=True)
class Item:
    """A buffet in the phases of one Einsum; absent at the first (last) stamp of these loops.

    `fixed`: it is persistent, all that it ever holds stays.
    """

    node: Node
    held: Held
    not_first: tuple[int, ...] = ()
    not_last: tuple[int, ...] = ()
    fixed: bool = False


def working_sets(layout: Layout) -> tuple[WorkingSetForm, ...]:
    """`tile` and `reserved` of every memory during every Einsum."""
    rows = []
    for einsum in layout.problem.tree.einsums:
        for component in layout.problem.hierarchy.components:
            if component.kind != "memory":
                continue
            _refuse_gaps(layout, einsum, component.name)
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
        levels = tuple(Level(space.axes[i].tile, roles[i], space.axes[i].spatial) for i in space.of(v))
        return of_atom(atom(space.extent(v), levels, leaf))

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
        if _persistent(layout, node) or (node.id in on_path and einsum in node.users):
            found.append(item)
        elif node.id in on_path:
            stays = _residence(layout, einsum, item)
            if stays is not None:
                found.append(stays)
    return found


def _residence(layout: Layout, einsum: str, item: Item) -> Item | None:
    """When a buffet that the Einsum does not use is resident in its phases, if ever."""
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
    between = range(node.depth, earlier if before else later)
    loops_ = tuple(i for i in between if not layout.paths[einsum][i].spatial)
    if not loops_:
        return None
    return replace(item, not_last=loops_) if before else replace(item, not_first=loops_)


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
    sets = sorted({i.not_first for i in items if i.not_first})
    chosen = {
        frozenset(axes)
        for n in range(len(sets) + 1)
        for some in combinations(sets, n)
        for axes in cartesian(*some)
    }
    phases = []
    for seconds in sorted(chosen, key=sorted):
        here = [i for i in items if not i.not_first or seconds & {*i.not_first}]
        reached = product(
            of_atom(atom(bare.extent(v), _steps(bare, bare.of(v), seconds), ONE)) for v in bare.spread
        )
        held = (_at(bare, i, seconds) for i in here)
        phases.append(tuple(replace(h, elements=h.elements * reached) for h in held))
    return tuple(p for p in phases if p)


def _steps(bare: Space, positions: list[int], seconds: frozenset[int]) -> tuple[Level, ...]:
    """The stamp where the loops at `seconds` are at their second step, all others at their first."""
    return tuple(
        Level(bare.axes[i].tile, "second" if i in seconds else "first", bare.axes[i].spatial)
        for i in positions
    )


def _at(bare: Space, item: Item, seconds: frozenset[int]) -> Held:
    """The item at the stamp that `seconds` choose; nothing where it is gone."""
    held = item.held
    if not item.fixed:
        roles: dict[int, Role] = {i: "second" if i in seconds else "first" for i in range(item.node.depth)}
        held = replace(held, elements=_elements(item.node.space, roles))
    if item.not_last:
        gone = product(_is_last(bare, a, seconds) for a in item.not_last)
        held = replace(held, elements=held.elements * (number(1) - gone))
    return held


def _is_last(bare: Space, axis: int, seconds: frozenset[int]) -> Form:
    """1 if the loop at `axis` has no step after the one that the stamp chooses."""
    a = bare.axes[axis]
    above = _steps(bare, [i for i in bare.of(a.variable) if i < axis], seconds)
    step = Level(a.tile, "two" if axis in seconds else "only")
    return of_atom(atom(bare.extent(a.variable), (*above, step), ONE))


def _refuse_gaps(layout: Layout, einsum: str, component: str) -> None:
    """Refuse carried tiles that may stay allocated while another Einsum, which does not use them, runs."""
    on_path = {s.id for s in layout.problem.tree.path(einsum)}
    for node in layout.nodes.values():
        if node.component != component or node.reuse == "refill" or einsum in node.users:
            continue
        shared = node.depth
        if node.id not in on_path:
            split, _, _ = divergence(layout, einsum, node.users[0])
            shared = sum(1 for a in layout.paths[einsum] if a.node < split)
        if any(not a.spatial for a in layout.paths[einsum][:shared]):
            raise NotSeparable(
                f"{node.tensor} may stay in {component} under {node.reuse} while {einsum} runs",
                "use engine exact, or reuse: refill",
            )
