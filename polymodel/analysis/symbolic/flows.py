"""What moves over each link, as closed forms (docs/semantics.md, Links and Tolls)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from polymodel.analysis.symbolic.counts import carried, count
from polymodel.analysis.symbolic.forms import ZERO, Form
from polymodel.analysis.symbolic.layout import Carry, Layout, Node, carries
from polymodel.analysis.symbolic.links import (
    Dimension,
    Link,
    along_mesh,
    refuse_growing,
    refuse_idle,
    refuse_uneven_runs,
)
from polymodel.analysis.symbolic.records import TRAFFIC
from polymodel.analysis.symbolic.spaces import Space, Use
from polymodel.errors import NotSeparable

Chosen = Callable[[int], Use]


@dataclass
class Entry:
    """One row's forms: over all instances, and of the first instance unless that is not wanted."""

    busiest: bool = True
    whole: dict[str, Form] = field(default_factory=lambda: dict.fromkeys(TRAFFIC, Form()))
    first: dict[str, Form] = field(default_factory=lambda: dict.fromkeys(TRAFFIC, Form()))

    def add(self, kind: str, form: Callable[[bool], Form]) -> None:
        self.whole[kind] = self.whole[kind] + form(False)
        if self.busiest:
            self.first[kind] = self.first[kind] + form(True)


@dataclass
class Ledger:
    """Accesses by (Einsum, node, tensor), passages by (Einsum, toll, tensor), and what crosses the links of a
    dimension by (Einsum, component, dimension, tensor)."""

    accesses: dict[tuple[str, int, str], Entry] = field(default_factory=dict)
    tolls: dict[tuple[str, str, str], Entry] = field(default_factory=dict)
    links: dict[tuple[str, str, str, str], Entry] = field(default_factory=dict)
    busiest: bool = True

    def entry(self, einsum: str, node: Node) -> Entry:
        return self.accesses.setdefault((einsum, node.id, node.tensor), Entry(self.busiest))


def flows(layout: Layout, busiest: bool = True) -> Ledger:
    """All accesses and passages, booked as docs/semantics.md says; `busiest`: also those of one instance."""
    ledger = Ledger(busiest=busiest)
    for einsum in layout.problem.tree.einsums:
        one = layout.problem.cascade[einsum]
        if one.is_copy:
            _copy(layout, einsum, ledger)
            continue
        for position, access in enumerate(one.accesses):
            chain = layout.chain(einsum, access.tensor)
            for node in chain:
                ledger.entry(einsum, node)
            kept = carries(layout, einsum, chain)
            # Storage is filled once for all accesses of a tensor; compute reads for each.
            again = any(a.tensor == access.tensor for a in one.accesses[:position])
            for place in range(len(chain) if again else 1, len(chain) + 1):
                link = Link(layout, einsum, chain, place, kept)
                if access.output:
                    _output(link, ledger)
                elif _is_filled(link):
                    _input(link, ledger)
    return ledger


def _is_filled(link: Link) -> bool:
    """An input's fill is booked once, to the first user; what is produced below the child needs none."""
    child = link.child
    if child is None:
        return True
    if child.producer is not None and link.layout.decided[child.producer]:
        return True  # with what was made at earlier stamps
    return child.producer is None and child.users[0] == link.einsum


def needed(space: Space, use: Chosen, carry: Carry, wraps: bool = False) -> Form:
    """Distinct (counters in use, element) that are not carried into the visit."""
    uses = {i: use(i) for i in range(len(space.axes))}
    result = count(space, uses)
    for axis, stays in carry.items():
        result = result - stays * carried(space, axis, uses, not wraps)
    return result


def _use(link: Link, first: bool, held: int, between: Callable[[int], Use]) -> Chosen:
    """Temporal counters are kept; spatial ones up to `held` are the instance's, the others `between`."""

    def use(i: int) -> Use:
        if not link.space.axes[i].spatial:
            return "keep"
        if i < held:
            return "at0" if first else "keep"
        return between(i)

    return use


def _shared(link: Link) -> Callable[[int], Use]:
    return lambda i: "merge" if link.shares(i) else "keep"


def _needed_over(link: Link, first: bool, held: int, between: Callable[[int], Use]) -> Form:
    wraps = link.child is not None and link.child.reuse.wraps
    use = _use(link, first, held, between)
    found = needed(link.space, use, link.carry, wraps)
    maker = link.child.producer if link.child is not None else None
    if maker in (None, link.einsum):
        return found
    # What an inferred producer makes in this visit needs no fill.
    assert maker is not None
    assert link.child is not None
    made = link.layout.space(maker, link.tensor, link.child.depth)
    return found - count(made, {i: use(i) for i in range(len(made.axes))})


def _input(link: Link, ledger: Ledger) -> None:
    parent, child = link.parent, link.child
    refuse_idle(link)
    outer = ledger.entry(link.einsum, parent)
    outer.add("reads_fill", lambda first: _needed_over(link, first, parent.depth, _shared(link)))
    if child is not None:
        inner = ledger.entry(link.einsum, child)
        inner.add("writes_fill", lambda first: _needed_over(link, first, child.depth, _shared(link)))
    for entry, held, mesh in _crossed(link, ledger):
        entry.add("reads_fill", partial(_passing, link, held, mesh))


def _passing(link: Link, held: int, mesh: Dimension | None, first: bool) -> Form:
    """What passes a toll or enters a dimension; in all, the links of a mesh that are crossed on the way."""
    between = _shared(link)
    if mesh is not None and not first:
        between = along_mesh(link, mesh, between, down=False)
    return _needed_over(link, first, held, between)


def _output(link: Link, ledger: Ledger) -> None:
    refuse_uneven_runs(link)
    refuse_growing(link, lambda: _partials(link))
    refuse_idle(link)
    parent, child = link.parent, link.child
    outer = ledger.entry(link.einsum, parent)
    outer.add("reads_fill", lambda first: fillable(link, first, parent.depth, _shared(link)))
    outer.add("writes_drain", lambda first: _needed_over(link, first, parent.depth, _shared(link)))
    if child is not None:
        inner = ledger.entry(link.einsum, child)
        inner.add(
            "writes_fill", lambda first: fillable(link, first, parent.depth, _received(link), inside=True)
        )
        inner.add("reads_drain", lambda first: _needed_over(link, first, child.depth, _shared(link)))
    for entry, held, mesh in _crossed(link, ledger):
        entry.add("reads_fill", partial(_returning, link, held, mesh))
        entry.add("writes_drain", partial(_passing, link, held, mesh))


def _returning(link: Link, held: int, mesh: Dimension | None, first: bool) -> Form:
    """The same of partial sums on their way in."""
    between = _received(link, held)
    if mesh is not None and not first:
        between = along_mesh(link, mesh, between, down=True)
    return fillable(link, first, link.parent.depth, between, inside=True, reach=held)


def _received(link: Link, held: int | None = None) -> Callable[[int], Use]:
    """One instance receives a partial sum, all along dimensions that broadcast (seen up to `held`)."""

    def use(i: int) -> Use:
        if not link.shares(i):
            return "keep"
        if held is not None and i >= held:
            return "merge"
        return "keep" if link.dim(i).broadcast_partials else "merge"

    return use


def fillable(
    link: Link,
    first: bool,
    held: int,
    between: Callable[[int], Use],
    inside: bool = False,
    reach: int | None = None,
) -> Form:
    """Partial sums that the parent holds when they are needed: needs - starts of runs + filled runs.

    `inside`: `first` is the first instance of the child (up to loop `reach`), not of the parent.
    """
    space = link.space
    end = len(space.axes) if reach is None else reach

    def chosen(i: int) -> Use:
        if not space.axes[i].spatial:
            return "keep"
        if first and i < (end if inside else held):
            return "at0"
        return "keep" if i < held else between(i)

    return _fillable(link, link.place, chosen)


def _fillable(link: Link, place: int, use: Chosen) -> Form:
    """The same at any link of the chain; counters inside chain[place] are as `use` has them."""
    return _events(link, place, use) - _lacking(link, place, use)


def _events(link: Link, place: int, use: Chosen) -> Form:
    here = link.chain[place] if place < len(link.chain) else None
    carry = link.carried[place] if here is not None else {}
    return needed(link.space, use, carry, here is not None and here.reuse.wraps)


def _lacking(link: Link, place: int, use: Chosen) -> Form:
    """Needs that the parent cannot serve: starts of its runs that were not filled."""
    parent = link.chain[place - 1]
    given = link.space.access.accumulates and place == 1
    if given or link.layout.problem.hierarchy[parent.component].read_first:
        return ZERO
    depth = parent.depth
    # Results of an inferred Einsum start afresh at each stamp that decides what it executes.
    decided = link.layout.decided[link.einsum]
    if place == 1:
        begin = _opening(link, decided, use)
        return count(link.space, {i: begin(i) for i in range(len(link.space.axes))})
    opening = _opening(link, max(depth, decided), use)
    outer = link.reach(place - 2)

    def filled(i: int) -> Use:
        inner = _opening(link, depth, use)(i)
        if not link.space.axes[i].spatial or not outer <= i < depth or inner == "at0":
            return inner
        broadcast = link.dim(i).broadcast_partials or not link.shares(i)
        return inner if broadcast else "merge"

    lacking = _lacking(link, place - 1, filled)
    if all(opening(i) == filled(i) for i in range(len(link.space.axes))):
        return lacking  # every start of a run is a need of the parent's
    return _events(link, place - 1, opening) - _events(link, place - 1, filled) + lacking


def _opening(link: Link, depth: int, use: Chosen) -> Chosen:
    """At the start of a run: temporal counters inside `depth` are at their first."""

    def opening(i: int) -> Use:
        return "merge" if i >= depth and not link.space.axes[i].spatial else use(i)

    return opening


def _partials(link: Link) -> bool:
    """True if the child ever receives partial sums."""
    return fillable(link, False, link.parent.depth, _received(link), inside=True) != Form()


def _crossed(link: Link, ledger: Ledger) -> Iterator[tuple[Entry, int, Dimension | None]]:
    """Tolls and costly links on the way: their entries, up to which loop position instances are apart there,
    and the dimension if it is a mesh."""
    for toll, level in _tolls(link):
        yield (
            ledger.tolls.setdefault((link.einsum, toll, link.tensor), Entry(ledger.busiest)),
            _held(link, partial(_below, link, level)),
            None,
        )
    for component, dim in link.costly_dimensions:
        yield (
            ledger.links.setdefault((link.einsum, component, dim, link.tensor), Entry(ledger.busiest)),
            _held(link, partial(_within, link, link.order((component, dim)))),
            (component, dim) if link.is_mesh((component, dim)) else None,
        )


def _below(link: Link, level: int, position: int) -> bool:
    """Whether a spatial loop replicates what is further in than a component."""
    return link.level(position) > level


def _within(link: Link, order: int, position: int) -> bool:
    """Whether data cross the dimension of a spatial loop not before another one."""
    return link.order(link.coordinate(position)) >= order


def _tolls(link: Link) -> Iterator[tuple[str, int]]:
    """Tolls that the link crosses and that charge for the tensor."""
    hierarchy = link.layout.problem.hierarchy
    outer = hierarchy.index(link.parent.component)
    child = link.child
    inner = len(hierarchy.components) if child is None else hierarchy.index(child.component)
    for c in hierarchy.components[outer + 1 : inner]:
        if c.kind == "toll" and c.keep is not None and link.tensor in c.keep.tensors(link.einsum):
            yield c.name, hierarchy.index(c.name)


def _held(link: Link, inside: Callable[[int], bool]) -> int:
    """Loop position from which on spatial loops are `inside`."""
    spatial = [i for i, a in enumerate(link.space.axes) if a.spatial]
    held = min(filter(inside, spatial), default=len(link.space.axes))
    if any(i > held and not inside(i) for i in spatial):
        raise NotSeparable("spatial loops stand in another order than the hierarchy", "use engine exact")
    return held


def _copy(layout: Layout, einsum: str, ledger: Ledger) -> None:
    """A copy reads at the source's backing node and writes at the destination's, stamp by stamp."""
    one = layout.problem.cascade[einsum]
    (source,), (target,) = one.inputs, one.outputs
    here, there = layout.chain(einsum, source.tensor)[0], layout.chain(einsum, target.tensor)[0]
    outer, inner = ledger.entry(einsum, here), ledger.entry(einsum, there)
    if here.component == there.component:
        return
    hierarchy = layout.problem.hierarchy
    top, bottom = sorted((hierarchy.index(here.component), hierarchy.index(there.component)))
    for component, dim in hierarchy.costly_links:
        if top < hierarchy.index(component) <= bottom:
            what = f"copy {einsum} crosses the link of {component}.{dim.name}, which has no closed form"
            raise NotSeparable(what, "use engine exact")
    space = there.space
    if any(a.spatial for a in space.axes):
        raise NotSeparable(f"copy {einsum} stands below a spatial loop", "use engine exact")
    moved = needed(space, lambda i: "keep", {})
    outer.add("reads_fill", lambda first: moved)
    inner.add("writes_fill", lambda first: moved)
