"""Working sets found by listing all stamps of an Einsum, with all buffets that are held at each.

If there are few kinds of stamps, `occupancy` finds those that may be the peak. Otherwise, that is below loops
that Einsums run within different bounds or in only some of whose iterations they execute, the stamps are
listed, once for each choice of tile sizes, and so are the visits of buffets that are held at some stamps
while others run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from polymodel.analysis.symbolic.atoms import ChainLevel
from polymodel.analysis.symbolic.counts import nominal_trips
from polymodel.analysis.symbolic.cross_branch_residency import divergence, elements, shared_loops
from polymodel.analysis.symbolic.forms import Form, HeldBuffet, of_atom
from polymodel.analysis.symbolic.generations import tied_generations
from polymodel.analysis.symbolic.layout import SymbolicBuffet, SymbolicLayout
from polymodel.analysis.symbolic.listed_peaks import (
    CoordinateDigit,
    JointPeak,
    ListedBuffet,
    ListedTiles,
    ListedUses,
)
from polymodel.analysis.symbolic.needed_sets import widest
from polymodel.analysis.symbolic.regions import MadeRegion, NeededRegion, Region
from polymodel.analysis.symbolic.spaces import LoopAxis, Space, TiedGroup
from polymodel.analysis.symbolic.tied_groups import made, ranks_of
from polymodel.errors import NotSeparable
from polymodel.mapping.looptree import ties, users


@dataclass(frozen=True)
class Residents:
    """What a component may hold while an Einsum runs: buffets, whether the Einsum uses them, and their
    contents.

    `lasting`: the contents of buffets that hold the same at all times.
    """

    lasting: tuple[HeldBuffet, ...]
    buffets: tuple[tuple[SymbolicBuffet, HeldBuffet, bool], ...]


def listed_phases(
    layout: SymbolicLayout, einsum: str, component: str, residents: Residents
) -> tuple[tuple[HeldBuffet, ...], ...]:
    """The stamp that is the peak, for each choice of tile sizes."""
    if layout.sizes or any(e.is_copy for e in map(layout.problem.cascade.__getitem__, layout.paths)):
        raise NotSeparable(
            "stamps of copies, and of extents that are symbols, are not listed",
            code="unsupported-symbol",
        )
    listing = _Listing(layout, einsum, component, [node for node, _, _ in residents.buffets])
    held, rests = [], []
    for node, buffet, used in residents.buffets:
        rests.append(listing.rest(node))
        held.append(listing.buffet(node, buffet, rests[-1], used))
    stamps, every = listing.tiles(listing.bare), listing.chain
    times = [a.node for a in listing.bare.axes if not a.spatial]
    own = tuple(listing.places[node] for node in times if node in listing.places)
    mine = [a for a in listing.bare.axes if listing.replicates(a)]
    places, digits = (listing.places[a.node] for a in mine), listing.digits(einsum, mine)
    along, dimensions = tuple(zip(places, digits, strict=True)), len(listing.dimensions)
    here = list(residents.lasting)
    for k, (_, buffet, _) in enumerate(residents.buffets):
        asked = JointPeak(Region((), ()), every, k, stamps, own, along, dimensions, tuple(held))
        peak = of_atom(asked)
        here.append(buffet.of(peak * rests[k]))
    phase = tuple(h for h in here if h.elements != Form())
    return (phase,) if phase else ()


@dataclass(frozen=True)
class _Listing:
    """All loops above some buffets, in the order of the tree, and the Einsum that runs."""

    layout: SymbolicLayout
    einsum: str
    component: str
    nodes: Sequence[SymbolicBuffet]

    @cached_property
    def bare(self) -> Space:
        return grouped(self.layout.stamps(self.einsum, self.layout.paths[self.einsum]))

    @cached_property
    def axes(self) -> dict[int, LoopAxis]:
        """The loops above the buffets that decide when these are held, and all loops that enclose them, by
        node id.

        Other loops do not change what is held.
        """
        users = {self.einsum, *(e for node in self.nodes for e in node.users)}
        listed = [g for e in users for g in self.layout.listed.get(e, ())]
        result = {a.node: a for g in listed for a in (*g.deciding, *g.further)}
        telling = {a.node for a in self.bare.axes if self.replicates(a)}
        for node in self.nodes:
            telling |= {a.node for a in node.space.axes}
            for user in node.users:
                if user != self.einsum:
                    telling |= {a.node for a in self.bare.axes[: self.shared(user)]}
        for e in users:
            path = self.layout.paths[e]
            for i, axis in enumerate(path):
                if any(a.node in telling and a.variable == axis.variable for a in path[i:]):
                    result[axis.node] = axis
        return dict(sorted(result.items()))

    def shared(self, user: str) -> int:
        """The number of loops above both the Einsum and one that uses a buffet."""
        return shared_loops(self.layout, self.einsum, user)

    @cached_property
    def places(self) -> dict[int, int]:
        return {node: place for place, node in enumerate(self.axes)}

    @property
    def chain(self) -> tuple[ChainLevel, ...]:
        return tuple(a.level("each") for a in self.axes.values())

    def tiles(self, space: Space) -> tuple[ListedTiles, ...]:
        """The factors of a tile along all variables of its loops."""
        result = []
        for group in space.groups:
            own = [a for a in space.axes if a.variable in group.variables and a.node in self.places]
            loops = tuple(
                tuple(self.places[a.node] for a in (*own, *group.beyond(space.axes)) if a.variable == v)
                for v in group.variables
            )
            places = tuple(self.places[a.node] for a in own)
            result.append(ListedTiles(group.region, loops, places, ranks_of(space, group)))
        return tuple(result)

    def rest(self, node: SymbolicBuffet) -> int:
        """The number of elements of a tile along variables without loops."""
        result = elements(grouped(node.space), {}).constant
        assert result is not None
        return result

    def buffet(self, node: SymbolicBuffet, held: HeldBuffet, rest: int, used: bool) -> ListedBuffet:
        space = grouped(node.space)
        weights = rest * held.bits, held.numerator, held.denominator, held.count
        times = tuple(self.places[a.node] for a in space.axes if not a.spatial)
        spatial = [a for a in space.axes if a.spatial]
        where = tuple(self.places[a.node] for a in spatial)
        along = self.digits(node.users[0], spatial)
        uses = () if used else tuple(self.uses(user) for user in node.users)
        outer = () if used else self.outer(node)
        on_path = node.id in {s.id for s in self.layout.problem.tree.path(self.einsum)}
        return ListedBuffet(self.tiles(space), times, where, along, uses, on_path, node.reuse, outer, weights)

    def replicates(self, axis: LoopAxis) -> bool:
        """Whether a loop distinguishes instances of the component."""
        hierarchy = self.layout.problem.hierarchy
        if axis.loop is None or not axis.spatial:
            return False
        return hierarchy.index(axis.loop.component) <= hierarchy.index(self.component)

    @cached_property
    def dimensions(self) -> tuple[tuple[str, str], ...]:
        """Component and name of the dimensions along which loops distinguish instances of the component.

        The loops are those above the Einsum and the buffets.
        """
        mine = [a for a in self.bare.axes if self.replicates(a)]
        others = [a for node in self.nodes for a in node.space.axes if a.spatial]
        return tuple(dict.fromkeys((a.loop.component, a.loop.dim) for a in (*mine, *others) if a.loop))

    def digits(self, einsum: str, loops: Sequence[LoopAxis]) -> tuple[CoordinateDigit, ...]:
        """What the counters of spatial loops on the path of an Einsum, outermost first, add to coordinates.

        The outermost of several loops along one dimension adds most.
        """
        result: list[CoordinateDigit] = []
        weights = [1] * len(self.dimensions)
        places = [self.dimensions.index((a.loop.component, a.loop.dim)) for a in loops if a.loop]
        for k, (axis, place) in reversed(list(enumerate(zip(loops, places, strict=True)))):
            if place in places[:k]:
                radix = self.radix(einsum, axis)
                result.append(CoordinateDigit(place, weights[place], radix))
                weights[place] *= radix
            else:
                result.append(CoordinateDigit(place, weights[place]))
        return tuple(reversed(result))

    def radix(self, einsum: str, axis: LoopAxis) -> int:
        """The number of values of the counter of a spatial loop.

        If it does not bind the Einsum, or Einsums differ in it, the largest number over the Einsums that it
        binds.
        """
        cascade, tree = self.layout.problem.cascade, self.layout.problem.tree
        bound = [e for e in users(tree, axis.node) if ties(cascade, tree, e)[axis.node] == "bound"]
        result = 0
        for e in [einsum] if einsum in bound and not tree.differs(einsum) else bound:
            path = self.layout.paths[e]
            stamps, place = self.layout.stamps(e, path), [a.node for a in path].index(axis.node)
            group = next((g for g in stamps.listed if path[place].variable in dict(g.widths)), None)
            trips = nominal_trips(stamps, place).constant
            if trips is not None and group is not None:
                trips = _trips_in_widest(group, path[: place + 1])
            if trips is None:
                raise NotSeparable(
                    f"instances of {self.component} are distinguished by several loops along one dimension, "
                    f"and their number along the loop over {axis.variable} is unknown",
                    code="unsupported-instances",
                )
            result = max(result, trips)
        return result

    def uses(self, user: str) -> ListedUses:
        _, mine, theirs = divergence(self.layout, self.einsum, user)
        shared = self.bare.axes[: self.shared(user)]
        stamps = self.tiles(grouped(self.layout.stamps(user, self.layout.paths[user])))
        return ListedUses(stamps, tuple(self.places[a.node] for a in shared if not a.spatial), theirs < mine)

    def outer(self, node: SymbolicBuffet) -> tuple[ListedBuffet, ...]:
        """Return the buffets further out that must keep the elements that are produced and stay in this
        one."""
        if node.producer is None or not node.reuse.carries or node.parent is None:
            return ()
        result = []
        parent: SymbolicBuffet | None = self.layout.nodes[node.parent, node.tensor]
        while parent is not None:
            backing = parent.parent is None
            if not backing or node.producer in self.layout.inferred:
                space = grouped(parent.space)
                times = tuple(self.places[a.node] for a in space.axes if not a.spatial)
                where = tuple(self.places[a.node] for a in space.axes if a.spatial)
                result.append(
                    ListedBuffet(
                        self.tiles(space), times, where, (), (), True, parent.reuse, (), (1, 1, 1, 1)
                    )
                )
            parent = None if parent.parent is None else self.layout.nodes[parent.parent, node.tensor]
        return tuple(result)


def _trips_in_widest(group: TiedGroup, path: Sequence[LoopAxis]) -> int | None:
    """The trips of the last loop of a path in its nominal enclosing tile, below the widest listed window;
    None where a size is a symbol."""
    assert isinstance(group.region, NeededRegion)
    own, deciding = path[-1].variable, (*group.deciding, *group.further)
    outer = [tuple(_sizes(a) for a in deciding if a.variable == v) for v in group.variables]
    loops = [_sizes(a) for a in path if a.variable == own]
    if any(not isinstance(s, int) for sizes in (*outer, loops) for pair in sizes for s in pair):
        return None
    width = widest(group.region, tuple(outer[group.region.own :]), group.variables.index(own))
    trips = 1
    for first, tile in loops:
        trips = 1 + max(0, -(-(width - first) // tile))
        width = min(width, max(first, tile))
    return trips


def _sizes(axis: LoopAxis) -> tuple[Any, Any]:
    """The sizes of the first tile of a loop and of the others."""
    level = axis.level("each")
    return level.begin, level.tile


def grouped(space: Space) -> Space:
    """The space with all variables of its loops in groups, together with variables that share a rank with
    them."""
    if space.carried is not None:
        space = tied_generations(space)
    result: list[TiedGroup] = []
    seen = set(space.tied)
    for axis in space.axes:
        if axis.variable in seen:
            continue
        together = next((set(names) for names in space.coupled if axis.variable in names), {axis.variable})
        names = tuple(sorted(together))
        if together & seen:
            raise NotSeparable(
                f"a rank of {space.access.tensor} in {space.einsum.name} has a rank variable that a bound "
                "ties to another one",
                code="unsupported-space",
            )
        extents = tuple(int(space.extent(v)) for v in names)
        windows = tuple(made(space, v) for v in names)
        region = MadeRegion(extents, (), windows) if any(windows) else Region(extents, ())
        seen |= together
        result.append(TiedGroup(names, region))
    return replace(space, listed=(*space.listed, *result)) if result else space
