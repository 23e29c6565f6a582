"""Working sets as the largest of few phases (docs/semantics.md, Occupancy).

In a box every tile is largest at its first stamp, all of them together; only a buffet that is absent
there (used by later branches, from an earlier iteration), or holds nothing of a generation before, asks for
other stamps: the second ones. A loop with a first tile of its own is taken at its largest tile, or where
buffets come and go at its first three.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from itertools import product as cartesian

from polymodel.analysis.symbolic.atoms import Role
from polymodel.analysis.symbolic.between import (
    Stamp,
    Stay,
    chain,
    divergence,
    elements,
    executes_once,
    joined_steps,
    made_once_before,
    phases_between,
    shared_loops,
    stays_unevenly,
)
from polymodel.analysis.symbolic.counts import count, loop_order, settled, touched
from polymodel.analysis.symbolic.forms import (
    ZERO,
    Form,
    HeldBuffet,
    PeakForm,
    WorkingSetForm,
    leading,
    number,
    of_atom,
    product,
)
from polymodel.analysis.symbolic.layout import (
    Carry,
    SymbolicBuffet,
    SymbolicLayout,
    carries,
    policy,
    temporal,
)
from polymodel.analysis.symbolic.pair_atoms import PEAKS, CutAtom, TileQuery
from polymodel.analysis.symbolic.regions import Gap
from polymodel.analysis.symbolic.spaces import LoopAxis, Space, TiedPair, unlike_first
from polymodel.errors import NotSeparable
from polymodel.mapping.looptree import StorageNode
from polymodel.reuse import Reuse

# Peaks of what is held along rank variables that bounds tie together, also of buffets that come and go.

Chains = tuple[list[LoopAxis], list[LoopAxis]]


@dataclass(frozen=True)
class TiedBuffet:
    """A buffet in the phases of one Einsum, along tied variables.

    `fixed`: it holds the same at all stamps. `gap`: while its users do not run it is there at some stamps of
    a group's loops only, but for where `absent` is 0: then it is there whatever they do.
    """

    space: Space
    fixed: bool
    gap: tuple[TiedPair, Gap] | None
    absent: Form


def gap_of(bare: Space, stay: Stay) -> tuple[TiedPair, Gap] | None:
    """When a buffet that an Einsum does not use is there over steps of tied loops; None if never."""
    node, steps = stay.node, [i for i in temporal(bare) if i < stay.shared]
    tied = [i for i in steps if bare.axes[i].variable in bare.tied]
    within = [i for i in tied if stay.on_path and i >= node.depth]
    kept = [i for i in tied if i < node.depth and stay.carry.get(i, ZERO) != ZERO]
    if not within and not kept:
        return None
    names = {bare.axes[i].variable for i in within + kept}
    group, *others = (g for g in bare.groups if {g.u, g.v} & names)
    found = [_stays_over(node.space, group, i) for i in kept]
    if others or None in found or (kept and not _by_policy(stay, group)):
        raise unknown_gap(bare, stay)
    kept = [i for i, stays in zip(kept, found, strict=True) if stays]
    if not within and not kept:
        return None
    shared, depth = len(_loops(bare, group, stay.shared)), len(_loops(node.space, group, node.depth))
    policy = node.reuse if kept else Reuse.REFILL
    since = len(_loops(bare, group, min(kept, default=0)))
    return group, Gap(shared, depth, not stay.on_path, stay.before, policy, since)


def _loops(space: Space, group: TiedPair, until: int) -> list[int]:
    """Positions of a group's loops among the outermost ones."""
    return [i for i, a in enumerate(space.axes[:until]) if a.variable in (group.u, group.v)]


def _by_policy(stay: Stay, group: TiedPair) -> bool:
    """Whether nothing but the buffet's own policy decides about what stays."""
    own = {a: form for a, form in policy(stay.node).items() if form != ZERO}
    return group in stay.node.space.groups and stay.carry == own


def _stays_over(space: Space, group: TiedPair, axis: int) -> bool | None:
    """Whether loops inside that are not the group's leave the tile as it is over a step; None: not known."""
    stays = True
    for i in temporal(space):
        v = space.axes[i].variable
        if i <= axis or v in (group.u, group.v) or v not in {*space.access.variables, *space.tied}:
            continue
        once = None if v in space.tied else settled(space, i)
        if once == number(1):
            continue
        split = any(j < axis for j in space.of(v)) or space.window(v) is not None
        if once != ZERO or split or v not in space.single:
            return None
        stays = False
    return stays


def unknown_gap(bare: Space, stay: Stay) -> NotSeparable:
    return NotSeparable(
        f"{stay.node.tensor} may stay in {stay.node.component} while {bare.einsum.name} runs, over steps "
        "of loops whose rank variables a bound ties together",
        "use engine exact",
    )


@dataclass(frozen=True)
class _Row:
    """What is asked of one buffet along a group: what its tile holds, and what is there of it in a gap.

    `loops`: those that tell stamps; `own`: those further in, of a buffet in another branch.
    """

    number: int
    asked: TileQuery
    gap: TileQuery | None
    absent: Form
    loops: Chains
    own: Chains = ([], [])

    @property
    def every(self) -> tuple[TileQuery, ...]:
        if self.gap is None:
            return (self.asked,)
        return (self.gap,) if self.absent == number(1) else (self.asked, self.gap)


def tied_peaks(
    bare: Space, parts: Sequence[TiedBuffet], held: tuple[HeldBuffet, ...]
) -> Iterator[tuple[HeldBuffet, ...]]:
    """What is held at the stamps of tied variables that may be the peak; `held` without these variables."""
    found: dict[TiedPair, list[_Row]] = {}
    for k, part in enumerate(parts):
        for group in () if part.fixed else part.space.groups:
            row = _row(bare, k, part, group)
            if row is not None:
                found.setdefault(group, []).append(row)
    choices = [_factors(group, rows) for group, rows in found.items()]
    _refuse_mixed(found)
    for choice in cartesian(*choices):
        sizes: list[Form] = [number(1)] * len(held)
        for factors in choice:
            for k, form in factors.items():
                sizes[k] = sizes[k] * form
        yield tuple(h.of(h.elements * size) for h, size in zip(held, sizes, strict=True))


def _row(bare: Space, k: int, part: TiedBuffet, group: TiedPair) -> _Row | None:
    what, rank = touched(part.space, group)
    mine = part.gap[1] if part.gap is not None and part.gap[0] == group else None
    if what == "none" and mine is None:
        return None
    every: Chains = (
        [part.space.axes[i] for i in part.space.of(group.u)],
        [part.space.axes[i] for i in part.space.of(group.v)],
    )
    asked = TileQuery(len(every[0]), len(every[1]), what, rank)
    if mine is None:
        return _Row(k, asked, None, part.absent, every)
    space = part.space if mine.inside else bare
    positions = _loops(space, group, len(space.axes))[: max(mine.shared, mine.depth)]
    order = loop_order(space, group, positions)
    above = order[: mine.shared].count("u"), order[: mine.shared].count("v")
    mapped: Chains = (
        [space.axes[i] for i in positions if space.axes[i].variable == group.u],
        [space.axes[i] for i in positions if space.axes[i].variable == group.v],
    )
    loops = mapped[0][: above[0]], mapped[1][: above[1]]
    own = mapped[0][above[0] :], mapped[1][above[1] :]
    if part.absent != number(1) and (own[0] or own[1]):
        raise NotSeparable(
            f"{part.space.access.tensor} may stay in part while {bare.einsum.name} runs, over steps of loops "
            "of which a bound ties some together",
            "use engine exact",
        )
    gap = replace(asked, gap=mine, order=order)
    return _Row(k, asked, gap, part.absent, loops, own)


def _factors(group: TiedPair, rows: list[_Row]) -> list[dict[int, Form]]:
    """At each stamp that may be the peak, the size of each buffet's tile along a group."""
    chains = [max((list(row.loops[side]) for row in rows), key=len) for side in (0, 1)]
    for row in rows:
        for side in (0, 1):
            if row.loops[side] != chains[side][: len(row.loops[side])]:
                raise NotSeparable(
                    f"buffets stand below different loops over {group.u} and {group.v}, which a bound ties "
                    "together",
                    "use engine exact",
                )
    stamps = len(chains[0]), len(chains[1])
    rows = [_placed(row, chains) for row in rows]
    asked = tuple(dict.fromkeys(a for row in rows for a in row.every))
    places = 1 if len(asked) == 1 else PEAKS
    u, v = (tuple(a.level("each") for a in chain) for chain in chains)

    def size(a: TileQuery, place: int) -> Form:
        cut = CutAtom(group.region, u, v, asked=asked, item=asked.index(a), place=place, stamps=stamps)
        return of_atom(cut)

    def held(row: _Row, place: int) -> Form:
        if row.gap is None:
            return size(row.asked, place)
        there = size(row.gap, place) * row.absent
        return there if row.absent == number(1) else there + size(row.asked, place) * (number(1) - row.absent)

    return [{row.number: held(row, p) for row in rows} for p in range(places)]


def _placed(row: _Row, chains: list[list[LoopAxis]]) -> _Row:
    """The row with the places of its loops in the chains, which its own ones lengthen."""
    if row.gap is None:
        return row
    places = []
    for side in (0, 1):
        begin = len(chains[side])
        chains[side].extend(row.own[side])
        places.append((*range(len(row.loops[side])), *range(begin, len(chains[side]))))
    return replace(row, gap=replace(row.gap, own=(places[0], places[1])))


def _refuse_mixed(found: Mapping[TiedPair, list[_Row]]) -> None:
    """Refuse loops that one Einsum runs within other bounds, or under other names, than another."""
    owner: dict[int, TiedPair] = {}
    for group, rows in found.items():
        for row in rows:
            for axis in (*row.loops[0], *row.loops[1]):
                if owner.setdefault(axis.node, group) != group:
                    raise NotSeparable(
                        f"Einsums run loops over {group.u} and {group.v} within other bounds, or under other "
                        "names",
                        "use engine exact",
                    )


# Working sets of all buffets.


@dataclass(frozen=True)
class OccupancyItem:
    """A buffet in the phases of one Einsum; absent at the first (last) stamp of these loops.

    Each loop comes with a form that is 1 if its steps count. `fixed`: it is persistent, all that it
    ever holds stays. `shared`: how many loops stand above both, for a buffet in another branch. `gap`: over
    which steps of loops over tied variables it stays; the loops above are then those over others.
    `once`: loops in whose first iteration alone its users execute. `runs`: their stamps, if they go on in
    loops in which the Einsum does not.
    """

    node: SymbolicBuffet
    held: HeldBuffet
    not_first: tuple[tuple[int, Form], ...] = ()
    not_last: tuple[tuple[int, Form], ...] = ()
    fixed: bool = False
    shared: int | None = None
    gap: tuple[TiedPair, Gap] | None = None
    once: frozenset[int] = frozenset()
    runs: Space | None = None


@dataclass(frozen=True)
class _Known:
    """What is the same during every Einsum, worked out when it is first asked for."""

    layout: SymbolicLayout
    items: dict[tuple[int, str], OccupancyItem] = field(default_factory=dict)
    carries: dict[tuple[int, str], Carry] = field(default_factory=dict)

    @cached_property
    def nodes(self) -> dict[str, list[SymbolicBuffet]]:
        """The buffets of each component."""
        found: dict[str, list[SymbolicBuffet]] = {}
        for node in self.layout.nodes.values():
            found.setdefault(node.component, []).append(node)
        return found

    def item(self, node: SymbolicBuffet) -> OccupancyItem:
        key = node.id, node.tensor
        if key not in self.items:
            self.items[key] = item_of(self.layout, node)
        return self.items[key]

    def carry(self, node: SymbolicBuffet) -> Carry:
        key = node.id, node.tensor
        if key not in self.carries:
            self.carries[key] = _carry(self.layout, node)
        return self.carries[key]


def working_sets(layout: SymbolicLayout) -> tuple[WorkingSetForm, ...]:
    """`tile` and `reserved` of every memory during every Einsum."""
    rows = []
    known = _Known(layout)
    for einsum in layout.problem.tree.einsums:
        for component in layout.problem.hierarchy.components:
            if not component.stores:
                continue
            phases = _peak(layout, einsum, _buffets(known, einsum, component.name))
            rows.append(WorkingSetForm(component.name, einsum, "tile", PeakForm(phases)))
            whole = _reserved(known, einsum, component.name)
            if whole:
                peak = PeakForm(_phases(layout.stamps(einsum, layout.paths[einsum]), whole))
                rows.append(WorkingSetForm(component.name, einsum, "reserved", peak))
    return tuple(r for r in rows if r.peak.phases)


def item_of(layout: SymbolicLayout, node: SymbolicBuffet) -> OccupancyItem:
    """A buffet at its largest tile; one that persists at all that it ever holds."""
    accesses = layout.problem.cascade.accesses_of(node.tensor)
    held = HeldBuffet(node.id, node.tensor, _largest(node.space), layout.bits(node.tensor))
    if node.parent is None:
        scale = accesses[0].backing_scale
        held = replace(held, numerator=scale.numerator, denominator=scale.denominator)
        if _persistent(layout, node):
            times = max(layout.problem.cascade[e].n_instances for e in node.users)
            return OccupancyItem(
                node, replace(held, elements=_ever_held(node.space), count=times), fixed=True
            )
    elif layout.problem.hierarchy.doubles(node.component):
        held = replace(held, count=2)
    return OccupancyItem(node, held)


def _persistent(layout: SymbolicLayout, node: SymbolicBuffet) -> bool:
    accesses = layout.problem.cascade.accesses_of(node.tensor)
    return node.parent is None and any(a.persistent for a in accesses)


def _largest(space: Space) -> Form:
    return elements(space, dict.fromkeys(range(len(space.axes)), "widest"))


def _ever_held(space: Space) -> Form:
    """The most elements that one instance sees: its part of every spatial loop, all of the temporal ones."""
    return count(space, {i: "at0" if a.spatial else "merge" for i, a in enumerate(space.axes)})


def _reserved(known: _Known, einsum: str, component: str) -> list[OccupancyItem]:
    on_path = {s.id for s in known.layout.problem.tree.path(einsum)}
    nodes = known.nodes.get(component, [])
    return [known.item(n) for n in nodes if n.id in on_path or _persistent(known.layout, n)]


def _buffets(known: _Known, einsum: str, component: str) -> list[OccupancyItem | Stay]:
    """Buffets that an Einsum uses, or that may be there while it runs."""
    path = known.layout.problem.tree.path(einsum)
    on_path = {s.id for s in path if isinstance(s.node, StorageNode)}
    found: list[OccupancyItem | Stay] = []
    for node in known.nodes.get(component, []):
        item = known.item(node)
        used = item.fixed or (node.id in on_path and einsum in node.users)
        found.append(item if used else _stay(known, einsum, item, node.id in on_path))
    return found


def _peak(
    layout: SymbolicLayout, einsum: str, buffets: list[OccupancyItem | Stay]
) -> tuple[tuple[HeldBuffet, ...], ...]:
    bare = layout.stamps(einsum, layout.paths[einsum])
    items: list[OccupancyItem] = []
    uneven: Stay | None = None
    for b in buffets:
        if isinstance(b, OccupancyItem):
            items.append(b)
            continue
        once, runs = made_once_before(layout, bare, b)
        times = joined_steps(bare, b, once)
        uneven = b if once or runs else uneven
        if times is None and bare.tied | b.node.space.tied:
            raise unknown_gap(bare, b)
        if times is None and uneven is not None:
            raise stays_unevenly(uneven)
        if times is None:
            used = [i for i in buffets if isinstance(i, OccupancyItem)]
            stays = [i for i in buffets if isinstance(i, Stay)]
            _refuse_other_instances(buffets)
            lasting = [i.held for i in used if i.fixed]
            return phases_between(bare, lasting, [(i.node, i.held) for i in used if not i.fixed], stays)
        gap = gap_of(bare, b)
        if times or gap:
            steps, shared = tuple(sorted((times or {}).items())), None if b.on_path else b.shared
            first, last = ((), steps) if b.before else (steps, ())
            items.append(
                OccupancyItem(b.node, b.held, first, last, shared=shared, gap=gap, once=once, runs=runs)
            )
    return _phases(bare, items)


def _stay(known: _Known, einsum: str, item: OccupancyItem, on_path: bool) -> OccupancyItem | Stay:
    """When a buffet that the Einsum does not use is there: between two uses, of one visit or of two."""
    layout, earlier, later = known.layout, -1, -1
    for user in item.node.users:
        _, mine, theirs = divergence(layout, einsum, user)
        loops = shared_loops(layout, einsum, user)
        if theirs < mine:
            earlier = max(earlier, loops)
        else:
            later = max(later, loops)
    before, carry = earlier >= 0, known.carry(item.node)
    stay = Stay(item.node, item.held, before, max(earlier, later), on_path, carry)
    if earlier < 0 or later < 0:
        return stay
    bare = layout.stamps(einsum, layout.paths[einsum])
    if any(i < item.node.depth for e in item.node.users for i in executes_once(layout, bare, e)):
        raise stays_unevenly(stay)
    return item


def _carry(layout: SymbolicLayout, node: SymbolicBuffet) -> Carry:
    if node.producer is None or node.parent is None:
        return policy(node)
    readers = [e for e in node.users if e != node.producer]
    user = readers[0] if node.producer in layout.inferred and readers else node.producer
    chain = layout.chain(user, node.tensor)
    return carries(layout, user, chain)[[n.id for n in chain].index(node.id)]


# At which step each loop stands; loops that are not named at the one with their widest tile.
ADVANCED: dict[Role, Role] = {"second": "first", "third": "second"}  # and the step before
LAST: dict[Role, Role] = {"first": "only", "widest": "only", "second": "two", "third": "three"}
MOST_STAMPS = 500


def _phases(bare: Space, items: list[OccupancyItem]) -> tuple[tuple[HeldBuffet, ...], ...]:
    """The stamps that may be the peak: the first, and second steps of loops that bring buffets in.

    At any other stamp, let each buffet that is there name one of its loops that has advanced: the stamp
    where just these are at their second step holds no fewer and no smaller buffets.
    """
    if not items:
        return ()
    _refuse_other_instances(items)
    phases = []
    for stamp in _stamps(bare, items):
        here = [i for i in items if i.gap or not i.not_first or any(_advanced(i, stamp))]
        free = (v for v in bare.spread if v not in bare.tied)
        reached = product(chain(bare, v, _steps(bare.of(v), stamp)) for v in free)
        gone = [_gone(bare, i, stamp) for i in here]
        held = tuple(_at(i, stamp, form) for i, form in zip(here, gone, strict=True))
        parts = [TiedBuffet(i.node.space, i.fixed, i.gap, form) for i, form in zip(here, gone, strict=True)]
        phases += [(reached, each) for each in tied_peaks(bare, parts, held)]
    return leading(phases)


def _advanced(item: OccupancyItem, stamp: Stamp) -> Iterator[bool]:
    return (stamp.get(a) in ADVANCED for a, _ in item.not_first)


def _refuse_other_instances(items: Sequence[OccupancyItem | Stay]) -> None:
    """Refuse buffets of which one is largest in one instance of the component and another in another."""
    spread = [[a for a in i.node.space.axes if a.spatial] for i in items]
    own = next((a for axes in spread for a in axes if a.grows), None)
    if own is not None and len({tuple(a.node for a in axes) for axes in spread}) > 1:
        raise NotSeparable(
            f"buffets in {items[0].node.component} stand below different spatial loops, and that over "
            f"{own.variable} has a first tile that may be smaller than others",
            "make initial_tile_shape larger than tile_shape, or use engine exact",
        )


def _stamps(bare: Space, items: list[OccupancyItem]) -> list[Stamp]:
    """Which stamps may be the peak.

    Of loops with a smaller first tile, over which buffets come and go or windows shrink, the first three
    steps: the second tile may be the largest, and is what is left from the step before at the third step.
    """
    for item in items:
        if item.shared is not None and any(a >= item.shared for a in item.node.space.generations):
            raise unlike_first(item.node.space)
    sets = sorted(
        {tuple(a for a, _ in i.not_first) for i in items if i.not_first}
        | {i.node.space.generations for i in items if i.node.space.generations and not i.fixed}
    )
    chosen = {
        frozenset(axes)
        for n in range(len(sets) + 1)
        for some in combinations(sets, n)
        for axes in cartesian(*some)
    }
    gone = {a for i in items for a, _ in (*i.not_first, *i.not_last)}
    for item in items:  # the loops of a buffet in another branch are this Einsum's above the split only
        shrinking = item.node.space.shrinking
        gone |= {a for a in shrinking if item.shared is None or a < item.shared}
    # What is left from the step before has something of a generation before it from the third step on.
    left = {a for i in items if i.shared is not None for a in i.node.space.generations}
    open_ = [a for a in sorted(gone) if bare.axes[a].grows or a in left]
    steps: tuple[Role, ...] = ("first", "second", "third")
    found: dict[tuple[tuple[int, Role], ...], Stamp] = {}
    for seconds in sorted(chosen, key=sorted):
        for some_steps in cartesian(steps, repeat=len(open_)):
            stamp: dict[int, Role] = dict.fromkeys(sorted(seconds), "second")
            stamp |= dict(zip(open_, some_steps, strict=True))
            found[tuple(sorted(stamp.items()))] = stamp
    if len(found) > MOST_STAMPS:
        raise NotSeparable(
            f"buffets come and go over {len(open_)} loops with a smaller first tile",
            "use engine exact",
        )
    return list(found.values())


def _steps(positions: Iterable[int], stamp: Stamp) -> dict[int, Role]:
    return {i: stamp.get(i, "widest") for i in positions}


def _gone(bare: Space, item: OccupancyItem, stamp: Stamp) -> Form:
    """1 where no step of a loop over a variable that is not tied leaves the item there."""
    one, gone = number(1), number(1 if item.gap else 0)
    if item.not_last:
        later = {i for i in item.once if stamp.get(i) in ADVANCED}  # then no step inside leads to a use
        steps = [(a, form) for a, form in item.not_last if not any(i < a for i in later)]
        gone = product(one - form * (one - _is_last(item.runs or bare, a, stamp)) for a, form in steps)
    if item.not_first:
        gone = product(one - form for a, form in item.not_first if stamp.get(a) in ADVANCED)
    return gone


def _at(item: OccupancyItem, stamp: Stamp, gone: Form) -> HeldBuffet:
    """The item at the stamp that is chosen; nothing where it is gone, unless it is there in a gap."""
    held = item.held
    if not item.fixed:
        held = held.of(elements(item.node.space, _there(item, stamp)))
    return held if item.gap else held.of(held.elements * (number(1) - gone))


def _there(item: OccupancyItem, stamp: Stamp) -> dict[int, Role]:
    """The tile that is held; in another branch that runs later, that of the visit before."""
    stamp = {i: step for i, step in stamp.items() if i not in item.once}
    if item.shared is None:
        return _steps(range(item.node.depth), stamp)
    reached = {i: step for i, step in stamp.items() if i < item.shared}
    advanced = [i for i, step in reached.items() if step in ADVANCED]
    if item.not_first and advanced:
        reached[max(advanced)] = ADVANCED[reached[max(advanced)]]
    return _steps(range(item.node.depth), reached)


def _is_last(bare: Space, axis: int, stamp: Stamp) -> Form:
    """1 if the loop at `axis` has no step after the one that the stamp chooses."""
    v = bare.axes[axis].variable
    roles = _steps((i for i in bare.of(v) if i < axis), stamp)
    roles[axis] = LAST[stamp.get(axis, "first")]
    return chain(bare, v, roles, until=axis)
