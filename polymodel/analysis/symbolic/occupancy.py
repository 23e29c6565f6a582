"""Working sets as the largest of few phases (docs/semantics.md, Occupancy).

In a box all tiles are largest at the first stamp. Other stamps, the second ones, matter only for a buffet
that is absent at the first stamp (later branches use it, from an earlier iteration), or that holds nothing of
a previous generation there. A loop with a first tile of its own is considered at its largest tile, or, for
buffets that are held at some stamps only, at its first three tiles.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import combinations
from itertools import product as cartesian
from math import prod
from typing import TYPE_CHECKING, Literal

from polymodel.analysis.symbolic.atoms import Role
from polymodel.analysis.symbolic.counts import count, largest
from polymodel.analysis.symbolic.cross_branch_residency import (
    Stamp,
    Stay,
    chain,
    divergence,
    elements,
    executes_once,
    joined_steps,
    made_once_before,
    peak_candidates,
    shared_loops,
    stays_unevenly,
)
from polymodel.analysis.symbolic.forms import (
    Form,
    HeldBuffet,
    PeakForm,
    WorkingSetForm,
    leading,
    number,
    product,
)
from polymodel.analysis.symbolic.generations import unlike_first
from polymodel.analysis.symbolic.layout import (
    Carry,
    SymbolicBuffet,
    SymbolicLayout,
    carries,
    policy,
)
from polymodel.analysis.symbolic.regions import Gap
from polymodel.analysis.symbolic.spaces import Space, TiedGroup
from polymodel.errors import NotSeparable
from polymodel.frozen import dataclass
from polymodel.mapping.looptree import LoopTree, PipelineSplit, StorageNode, around

if TYPE_CHECKING:
    from polymodel.analysis.symbolic.listed_occupancy import Residents

Phase = tuple[HeldBuffet, ...]
Measure = Literal["tile", "reserved"]
MEASURES: tuple[Measure, ...] = ("tile", "reserved")
LASTING = -1  # in place of a node id: buffets that are always held

# Working sets of all buffets.


@dataclass(frozen=True)
class OccupancyItem:
    """A buffet in the phases of one Einsum.

    `not_first`, `not_last`: loops at whose first (last) step it is absent, each with a form that is 1 if its
    steps count. `fixed`: it is persistent, so that everything it ever holds stays. `shared`: the number of
    loops above both, for a buffet in another branch. `gap`: the steps of loops over coupled variables over
    which it stays; `not_first` and `not_last` then have only loops over other variables. `once`: loops in
    whose first iteration only its users execute. `runs`: their stamps, if they execute in further iterations
    of loops in which the Einsum does not.
    """

    node: SymbolicBuffet
    held: HeldBuffet
    not_first: tuple[tuple[int, Form], ...] = ()
    not_last: tuple[tuple[int, Form], ...] = ()
    fixed: bool = False
    shared: int | None = None
    gap: tuple[TiedGroup, Gap] | None = None
    once: frozenset[int] = frozenset()
    runs: Space | None = None


@dataclass(frozen=True)
class _Shared:
    """Results that are the same for every Einsum, computed on first use.

    `only`: the buffets (node, tensor) that are considered, None for all.
    """

    layout: SymbolicLayout
    only: frozenset[tuple[int, str]] | None = None
    items: dict[tuple[int, str], OccupancyItem] = field(default_factory=dict)
    reserved: dict[tuple[object, ...], tuple[Phase, ...]] = field(default_factory=dict)
    carries: dict[tuple[int, str], Carry] = field(default_factory=dict)

    @cached_property
    def nodes(self) -> dict[str, list[SymbolicBuffet]]:
        """The buffets of each component."""
        result: dict[str, list[SymbolicBuffet]] = {}
        for key, node in self.layout.nodes.items():
            if self.only is not None and key not in self.only:
                continue
            result.setdefault(node.component, []).append(node)
        return result

    @cached_property
    def present(self) -> dict[str, dict[str, list[SymbolicBuffet]]]:
        """Per component, the buffets that may be held during each Einsum, in the order of `nodes`.

        All others are used by earlier Einsums only, or by later ones only, and no loop is above both, so that
        none of their tiles is held. So an Einsum that shares no loop with others has only the buffets that it
        and its neighbours use, however long the cascade is.
        """
        order, tree = self.layout.problem.tree.einsums, self.layout.problem.tree
        places = {e: i for i, e in enumerate(order)}
        outer = {e: path[0].node for e, path in self.layout.paths.items() if path}
        result: dict[str, dict[str, list[SymbolicBuffet]]] = {}
        for component, nodes in self.nodes.items():
            found = result.setdefault(component, {e: [] for e in order})
            for node in nodes:
                used = sorted(places[e] for e in node.users)
                here = set(order if _persistent(self.layout, node) else order[used[0] : used[-1] + 1])
                here.update(
                    e for loop in {outer.get(e, -1) for e in node.users} for e in tree.below.get(loop, ())
                )
                for einsum in here:
                    found[einsum].append(node)
        return result

    @cached_property
    def places(self) -> dict[str, dict[int, list[int]]]:
        """Per component, the positions in `nodes` of the buffets of each storage node, and of `LASTING`
        ones."""
        result: dict[str, dict[int, list[int]]] = {}
        for component, nodes in self.nodes.items():
            mine = result.setdefault(component, {})
            for i, node in enumerate(nodes):
                for key in (node.id, LASTING)[: 1 + _persistent(self.layout, node)]:
                    mine.setdefault(key, []).append(i)
        return result

    @cached_property
    def listed(self) -> frozenset[str]:
        """Components with buffets below loops whose stamps are listed."""
        uneven = self.layout.uneven
        return frozenset(
            component
            for component, nodes in self.nodes.items()
            if any(n.space.listed or any(a.node in uneven for a in n.space.axes) for n in nodes)
        )

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
    known = _Shared(layout)
    for einsum in layout.problem.tree.einsums:
        for component in layout.problem.hierarchy.components:
            if not component.stores:
                continue
            for measure in MEASURES:
                peak = PeakForm(_phases_of(known, einsum, component.name, measure))
                rows.append(WorkingSetForm(component.name, einsum, measure, peak))
    return tuple(r for r in rows if r.peak.phases)


def _phases_of(known: _Shared, einsum: str, component: str, measure: Measure) -> tuple[Phase, ...]:
    """The stamps that may be the peak; all are listed if a few kinds do not suffice."""
    if around(known.layout.problem.tree, einsum):
        return _overlapped_phases(known, einsum, component, measure)
    return _phases_by_lifetimes(known, einsum, component, measure)


def _phases_by_lifetimes(known: _Shared, einsum: str, component: str, measure: Measure) -> tuple[Phase, ...]:
    """Return the phases if no stages of pipelines overlap."""
    layout = known.layout
    listed = layout.listed.get(einsum) or component in known.listed
    listed = listed or any(a.node in layout.uneven for a in layout.paths[einsum])
    refusal = None
    if not listed:
        try:
            if measure == "tile":
                return _peak(layout, einsum, _buffets(known, einsum, component))
            return _reserved_phases(known, einsum, component)
        except NotSeparable as found:
            refusal = found
    from polymodel.analysis.symbolic.listed_occupancy import listed_phases

    try:
        return listed_phases(layout, einsum, component, _residents(known, einsum, component, measure))
    except NotSeparable as found:
        raise refusal or found from None


def _overlapped_phases(
    known: _Shared, einsum: str, component: str, measure: Measure, inside: PipelineSplit | None = None
) -> tuple[Phase, ...]:
    """The peaks of a component while an Einsum of pipelines runs.

    Buffets that stages share count at their whole tiles, those of each other stage at their own peak, and all
    others by lifetimes. docs/semantics.md, Pipelines. `inside`: only the buffets in the Einsum's stage of
    that pipeline count.
    """
    layout, tree = known.layout, known.layout.problem.tree
    scope = inside.node if inside else -1
    mine = [
        node
        for node in known.nodes.get(component, [])
        if node.id > scope
        and (not inside or node.users[0] in inside.einsums)
        and not _in_another_stage(tree, einsum, node)
    ]
    copies = [_copies(tree, einsum, node) for node in mine]
    held = list(zip(mine, copies, strict=True))
    shared = [_own(layout, einsum, _several(known.item(n), times)) for n, times in held if times]
    alone = ((n.id, n.tensor) for n, times in held if not times)
    rest = replace(known, only=frozenset(alone))
    parts = [
        _phases(layout.stamps(einsum, layout.paths[einsum]), shared),
        _phases_by_lifetimes(rest, einsum, component, measure),
    ]
    for p in around(tree, einsum):
        if p.node > scope:
            for b, stage in enumerate(p.stages):
                if b != p.stage_of(einsum):
                    each = (_overlapped_phases(known, e, component, measure, p) for e in stage)
                    parts.append(tuple(phase for phases in each for phase in phases))
    result = [phases for phases in parts if phases]
    if prod(map(len, result)) > MOST_STAMPS:
        raise NotSeparable(
            f"stages of a Pipeline have too many possible peaks in {component}",
            code="unsupported-pipeline",
        )
    return tuple(tuple(h for phase in some for h in phase) for some in cartesian(*result)) if result else ()


def _in_another_stage(tree: LoopTree, einsum: str, node: SymbolicBuffet) -> bool:
    """Whether a node belongs to another stage of a pipeline around the Einsum."""
    return any(
        node.id > p.node and node.users[0] in p.einsums and p.stage_of(node.users[0]) != p.stage_of(einsum)
        for p in around(tree, einsum)
    )


def _copies(tree: LoopTree, einsum: str, node: SymbolicBuffet) -> int:
    """The number of tiles that a node above a pipeline of the Einsum holds at once, 0 if no stage uses it."""
    if all(s.id != node.id for s in tree.path(einsum)):
        return 0
    above = (p for p in around(tree, einsum) if node.id < p.node)
    return max((p.copies(node.id, node.users) for p in above), default=0)


def _several(item: OccupancyItem, times: int) -> OccupancyItem:
    """The buffet with that many tiles at once; unchanged if it holds all of the tensor anyway."""
    if item.fixed or times < 2:
        return item
    return replace(item, held=replace(item.held, count=item.held.count * times))


def _residents(known: _Shared, einsum: str, component: str, measure: Measure) -> Residents:
    """Everything that may be in a component while an Einsum runs."""
    from polymodel.analysis.symbolic.listed_occupancy import Residents

    on_path = {s.id for s in known.layout.problem.tree.path(einsum)}
    lasting, result = [], []
    for node in known.nodes.get(component, []):
        item, here = known.item(node), node.id in on_path
        if item.fixed:
            lasting.append(item.held)
        elif measure == "tile" or here:
            result.append((node, item.held, here and (measure == "reserved" or einsum in node.users)))
    return Residents(tuple(lasting), tuple(result))


def item_of(layout: SymbolicLayout, node: SymbolicBuffet) -> OccupancyItem:
    """A buffet at its largest tile; a persistent one with everything that it ever holds."""
    accesses = layout.problem.cascade.accesses_of(node.tensor)
    held = HeldBuffet(node.id, node.tensor, _largest(node.space), layout.bits(node.tensor))
    if node.parent is None:
        scale = accesses[0].backing_scale
        held = replace(held, numerator=scale.numerator, denominator=scale.denominator)
        if _persistent(layout, node):
            times = max(layout.problem.cascade[e].n_instances for e in node.users)
            return OccupancyItem(
                node, replace(held, elements=_distinct_elements(node.space), count=times), fixed=True
            )
    elif layout.problem.hierarchy.doubles(node.component):
        held = replace(held, count=2)
    return OccupancyItem(node, held)


def _persistent(layout: SymbolicLayout, node: SymbolicBuffet) -> bool:
    accesses = layout.problem.cascade.accesses_of(node.tensor)
    return node.parent is None and any(a.persistent for a in accesses)


def _largest(space: Space) -> Form:
    if space.carried is not None and (space.carried.behind == "lacking" or not space.carried.is_product):
        return largest(space)
    return elements(space, dict.fromkeys(range(len(space.axes)), "widest"))


def _distinct_elements(space: Space) -> Form:
    """The most elements that one instance accesses: its part of spatial loops, all of the temporal ones."""
    return count(space, {i: "most" if a.spatial else "merge" for i, a in enumerate(space.axes)})


def _reserved_phases(known: _Shared, einsum: str, component: str) -> tuple[Phase, ...]:
    """The phases of all buffets on the path. They are the same for Einsums below the same nodes if no step of
    a loop changes what is held."""
    layout, path = known.layout, known.layout.problem.tree.path(einsum)
    bare = layout.stamps(einsum, layout.paths[einsum])
    storage = (s for s in path if isinstance(s.node, StorageNode) and s.node.component == component)
    on_path = frozenset(s.id for s in storage)
    key = component, on_path, known.only, _reached(bare, {})
    if key not in known.reserved:
        nodes, places = known.nodes.get(component, []), known.places.get(component, {})
        every = sorted({i for node in (LASTING, *on_path) for i in places.get(node, ())})
        items = [known.item(nodes[i]) for i in every]
        phases = _phases(bare, [_own(layout, einsum, item) for item in items])
        if not all(item.fixed or _is_steady(layout, item.node.space) for item in items):
            return phases
        known.reserved[key] = phases
    return known.reserved[key]


def _is_steady(layout: SymbolicLayout, space: Space) -> bool:
    """Whether tiles are equally large at all steps, and within the bounds of each Einsum."""
    changing = space.generations or space.shrinking or space.groups
    return not changing and not any(a.node in layout.mixed for a in space.axes)


def _own(layout: SymbolicLayout, einsum: str, item: OccupancyItem) -> OccupancyItem:
    """The buffet with its tiles within the bounds of the Einsum."""
    if item.fixed or not any(a.node in layout.mixed for a in item.node.space.axes):
        return item
    from polymodel.analysis.symbolic.tied_peaks import own_tile

    return replace(item, node=own_tile(layout, einsum, item.node))


def _buffets(known: _Shared, einsum: str, component: str) -> list[OccupancyItem | Stay]:
    """Buffets that an Einsum uses, or that may be held while it runs."""
    path = known.layout.problem.tree.path(einsum)
    on_path = {s.id for s in path if isinstance(s.node, StorageNode)}
    result: list[OccupancyItem | Stay] = []
    for node in known.present.get(component, {}).get(einsum, ()):
        item = known.item(node)
        used = item.fixed or (node.id in on_path and einsum in node.users)
        if used:
            result.append(_own(known.layout, einsum, item))
        else:
            result.append(_stay(known, einsum, item, node.id in on_path))
    return result


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
        gap = _gap(bare, b, once, times is None)
        if times is None and uneven is not None:
            raise stays_unevenly(uneven)
        if times is None:
            used = [i for i in buffets if isinstance(i, OccupancyItem)]
            stays = [i for i in buffets if isinstance(i, Stay)]
            _refuse_other_instances(buffets)
            lasting = [i.held for i in used if i.fixed]
            return peak_candidates(bare, lasting, [(i.node, i.held) for i in used if not i.fixed], stays)
        if times or gap:
            steps, shared = tuple(sorted((times or {}).items())), None if b.on_path else b.shared
            first, last = ((), steps) if b.before else (steps, ())
            items.append(
                OccupancyItem(b.node, b.held, first, last, shared=shared, gap=gap, once=once, runs=runs)
            )
    return _phases(bare, items)


def _gap(bare: Space, stay: Stay, once: frozenset[int], unknown: bool) -> tuple[TiedGroup, Gap] | None:
    """When a buffet is held over steps of loops over coupled variables; refused if others are `unknown`."""
    if not bare.tied | stay.node.space.tied:
        return None
    from polymodel.analysis.symbolic.tied_peaks import gap_of, unknown_gap

    if unknown:
        raise unknown_gap(bare, stay)
    return gap_of(bare, stay, once)


def _stay(known: _Shared, einsum: str, item: OccupancyItem, on_path: bool) -> OccupancyItem | Stay:
    """When a buffet that the Einsum does not use is held: between two uses, of one visit or of two."""
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


# The step of each loop; loops that are not included are at the step with their widest tile.
ADVANCED: dict[Role, Role] = {"second": "first", "third": "second"}  # and the previous step
LAST: dict[Role, Role] = {"first": "only", "widest": "only", "second": "two", "third": "three"}
MOST_STAMPS = 500


def _phases(bare: Space, items: list[OccupancyItem]) -> tuple[tuple[HeldBuffet, ...], ...]:
    """The stamps that may be the peak: the first, and second steps of loops that bring buffets in.

    At any other stamp, choose for each buffet that is held one of its loops that has advanced: the stamp
    where exactly these loops are at their second step holds at least as many buffets, none of them smaller.
    """
    if not items:
        return ()
    _refuse_other_instances(items)
    phases = []
    for stamp in _stamps(bare, items):
        here = [i for i in items if i.gap or not i.not_first or any(_advanced(i, stamp))]
        reached = _reached(bare, stamp)
        gone = [_gone(bare, i, stamp) for i in here]
        held = tuple(_at(i, stamp, form) for i, form in zip(here, gone, strict=True))
        phases += [(reached, each) for each in _coupled_occupancy(bare, here, gone, held)]
    return leading(phases)


def _reached(bare: Space, stamp: Stamp) -> Form:
    """1 if the Einsum has this stamp."""
    free = (v for v in bare.spread if v not in bare.tied)
    return product(chain(bare, v, _steps(bare.of(v), stamp)) for v in free)


def _coupled_occupancy(
    bare: Space, items: Sequence[OccupancyItem], gone: Sequence[Form], held: tuple[HeldBuffet, ...]
) -> Iterable[tuple[HeldBuffet, ...]]:
    """Return the occupancy at each stamp of coupled variables that may be the peak."""
    if not any(i.gap or (i.node.space.groups and not i.fixed) for i in items):
        return (held,)
    from polymodel.analysis.symbolic.tied_peaks import TiedBuffet, tied_peaks

    parts = [TiedBuffet(i.node.space, i.fixed, i.gap, form) for i, form in zip(items, gone, strict=True)]
    return tied_peaks(bare, parts, held)


def _advanced(item: OccupancyItem, stamp: Stamp) -> Iterator[bool]:
    return (stamp.get(a) in ADVANCED for a, _ in item.not_first)


def _refuse_other_instances(items: Sequence[OccupancyItem | Stay]) -> None:
    """Refuse buffets that are not all largest in the same instance of the component."""
    spread = [(i.node.space, a) for i in items for a in i.node.space.axes if a.spatial]
    if len({tuple(a.node for a in i.node.space.axes if a.spatial) for i in items}) < 2:
        return
    own = next((a for _, a in spread if a.grows), None)
    tied = next((a for space, a in spread if a.variable in space.tied), None)
    if own is not None:
        raise NotSeparable(
            f"buffets in {items[0].node.component} are below different spatial loops, and the one over "
            f"{own.variable} has a first tile that may be smaller than others",
            "make initial_tile_shape larger than tile_shape, or use engine exact",
            code="unsupported-loop",
        )
    if tied is not None:
        raise NotSeparable(
            f"buffets in {items[0].node.component} are below different spatial loops, and a bound ties "
            f"{tied.variable}, the variable of one of them, to another rank variable",
            code="unsupported-space",
        )


def _stamps(bare: Space, items: list[OccupancyItem]) -> list[Stamp]:
    """The stamps that may be the peak.

    For loops with a smaller first tile, over which buffets may be absent or windows shrink, these include the
    first three steps: the second tile may be the largest, and remains at the third step.
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
    for item in items:  # a buffet in another branch shares only the loops above the split with this Einsum
        shrinking = item.node.space.shrinking
        gone |= {a for a in shrinking if item.shared is None or a < item.shared}
    # What remains from the previous step holds part of an earlier generation from the third step on.
    left = {a for i in items if i.shared is not None for a in i.node.space.generations}
    open_ = [a for a in sorted(gone) if bare.axes[a].grows or a in left]
    steps: tuple[Role, ...] = ("first", "second", "third")
    result: dict[tuple[tuple[int, Role], ...], Stamp] = {}
    for seconds in sorted(chosen, key=sorted):
        for some_steps in cartesian(steps, repeat=len(open_)):
            stamp: dict[int, Role] = dict.fromkeys(sorted(seconds), "second")
            stamp |= dict(zip(open_, some_steps, strict=True))
            result[tuple(sorted(stamp.items()))] = stamp
    if len(result) > MOST_STAMPS:
        raise NotSeparable(
            f"buffets come and go over {len(open_)} loops with a smaller first tile",
            code="unsupported-loop",
        )
    return list(result.values())


def _steps(positions: Iterable[int], stamp: Stamp) -> dict[int, Role]:
    return {i: stamp.get(i, "widest") for i in positions}


def _gone(bare: Space, item: OccupancyItem, stamp: Stamp) -> Form:
    """1 if no step of a loop over an uncoupled variable leaves the item in place."""
    one, gone = number(1), number(1 if item.gap else 0)
    if item.not_last:
        later = {i for i in item.once if stamp.get(i) in ADVANCED}  # no step inside leads to a use here
        steps = [(a, form) for a, form in item.not_last if not any(i < a for i in later)]
        gone = product(one - form * (one - _is_last(item.runs or bare, a, stamp)) for a, form in steps)
    if item.not_first:
        gone = product(one - form for a, form in item.not_first if stamp.get(a) in ADVANCED)
    return gone


def _at(item: OccupancyItem, stamp: Stamp, gone: Form) -> HeldBuffet:
    """The item at the chosen stamp; nothing if it is gone, unless a gap holds it."""
    held = item.held
    if not item.fixed:
        held = held.of(elements(item.node.space, _there(item, stamp)))
    return held if item.gap else held.of(held.elements * (number(1) - gone))


def _there(item: OccupancyItem, stamp: Stamp) -> dict[int, Role]:
    """The tile that is held; for a buffet of a branch that runs later, the tile of the previous visit."""
    stamp = {i: step for i, step in stamp.items() if i not in item.once}
    if item.shared is None:
        return _steps(range(item.node.depth), stamp)
    reached = {i: step for i, step in stamp.items() if i < item.shared}
    advanced = [i for i, step in reached.items() if step in ADVANCED]
    if item.not_first and advanced:
        reached[max(advanced)] = ADVANCED[reached[max(advanced)]]
    return _steps(range(item.node.depth), reached)


def _is_last(bare: Space, axis: int, stamp: Stamp) -> Form:
    """1 if the loop at `axis` has no step after the chosen one."""
    v = bare.axes[axis].variable
    roles = _steps((i for i in bare.of(v) if i < axis), stamp)
    roles[axis] = LAST[stamp.get(axis, "first")]
    return chain(bare, v, roles, until=axis)
