"""One tensor's way from one storage to the next, and what has no closed form on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from polymodel.analysis.symbolic.counts import count
from polymodel.analysis.symbolic.layout import Carry, Layout, Node
from polymodel.analysis.symbolic.spaces import Space, Use
from polymodel.architecture.hierarchy import FanoutDim
from polymodel.errors import NotSeparable
from polymodel.mapping.looptree import ComputeNode

Dimension = tuple[str, str]  # a component and its dimension


@dataclass(frozen=True)
class Link:
    """One tensor's way from `chain[place - 1]` to `chain[place]`, or to compute if there is none.

    `space` has the loops above the child (compute: all of the operation's coordinates).
    """

    layout: Layout
    einsum: str
    chain: tuple[Node, ...]
    place: int
    carried: tuple[Carry, ...]

    @property
    def tensor(self) -> str:
        return self.chain[0].tensor

    @property
    def child(self) -> Node | None:
        return self.chain[self.place] if self.place < len(self.chain) else None

    @property
    def parent(self) -> Node:
        return self.chain[self.place - 1]

    @cached_property
    def space(self) -> Space:
        child = self.child
        return self.layout.space(self.einsum, self.tensor, None if child is None else child.depth)

    @property
    def parts_stay(self) -> bool:
        """Whether parts of windows stay when an inner loop wraps."""
        return self.child is not None and self.child.reuse.wraps

    @property
    def carry(self) -> Carry:
        return self.carried[self.place] if self.child is not None else {}

    def reach(self, place: int) -> int:
        """How many loops stand above chain[place]."""
        return self.chain[place].depth if place >= 0 else 0

    def dim(self, position: int) -> FanoutDim:
        loop = self.space.axes[position].loop
        assert loop is not None
        return self.layout.problem.hierarchy[loop.component].dim(loop.dim)

    def shares(self, position: int) -> bool:
        access = self.layout.problem.cascade[self.einsum].access_of(self.tensor)
        indexed = self.space.axes[position].variable in access.variables
        return self.dim(position).shares(self.einsum, self.tensor, indexed=indexed)

    @property
    def costly_dimensions(self) -> tuple[tuple[str, str], ...]:
        """The dimensions on the way whose link costs, down to the child's own (or compute's)."""
        hierarchy = self.layout.problem.hierarchy
        leaf = self.layout.problem.tree.path(self.einsum)[-1].node
        below = self.child if self.child is not None else leaf
        assert isinstance(below, (Node, ComputeNode))
        top, bottom = hierarchy.index(self.parent.component), hierarchy.index(below.component)
        crossed = ((c, d.name) for c, d in hierarchy.costly_links if top < hierarchy.index(c) <= bottom)
        return tuple(crossed)

    def coordinate(self, position: int) -> Dimension:
        """Component and dimension of the spatial loop at `position`."""
        loop = self.space.axes[position].loop
        assert loop is not None
        return loop.component, loop.dim

    def is_mesh(self, dim: Dimension) -> bool:
        """Whether a transfer crosses as many links of a dimension as it has instances on the way."""
        link = self.layout.problem.hierarchy[dim[0]].dim(dim[1]).link
        return link is not None and link.topology == "mesh"

    def order(self, dim: Dimension) -> int:
        """Place of a dimension in the order in which data cross them."""
        return [(c, d.name) for c, d in self.layout.problem.hierarchy.dimensions].index(dim)

    def level(self, position: int) -> int:
        """Place in the hierarchy of the component that the spatial loop at `position` replicates."""
        loop = self.space.axes[position].loop
        assert loop is not None
        return self.layout.problem.hierarchy.index(loop.component)


def along_mesh(
    link: Link, mesh: Dimension, between: Callable[[int], Use], down: bool
) -> Callable[[int], Use]:
    """Counters in a count of the links that transfers cross along a mesh: of each as many as the coordinate
    of the farthest instance says, from 1 on.

    Instances that share an element are the first ones, so there are as many of them as links. `down`: of
    partial sums, which the first instance alone receives unless the dimension broadcasts them.
    """
    space = link.space
    along = [i for i, a in enumerate(space.axes) if a.spatial and link.coordinate(i) == mesh]
    if not along:
        return between  # all is at coordinate 0, one link away
    here, shares = space.axes[along[0]], link.shares(along[0])
    use: Use = "hops"
    if shares and here.variable not in space.access.variables:
        alone = down and not link.dim(along[0]).broadcast_partials
        use = between(along[0]) if alone else "keep"
    parts = use == "hops" and here.variable not in space.single
    stays = link.carry and any(not space.axes[i].spatial for i in space.of(here.variable))
    if len(along) > 1 or here.start is not None or space.windows or (parts and (shares or stays)):
        what = f"{link.tensor} in {link.einsum} crosses the mesh of {mesh[0]}.{mesh[1]}"
        raise NotSeparable(
            f"{what} to instances that several loops, first tiles, or parts of windows tell apart",
            "use engine exact, or topology: bus",
        )
    return lambda i: use if i == along[0] else between(i)


def refuse_uneven_runs(link: Link) -> None:
    """Refuse runs of one partial sum that start and end at different times in different instances."""
    space = link.space
    for h in space.halos:
        if any(space.axes[i].spatial for v in (h.p, h.r) for i in space.of(v)):
            raise NotSeparable(
                f"instances along {h.p} and {h.r} reduce into the same elements of {link.tensor} in "
                f"{link.einsum}",
                "use engine exact",
            )
    if not link.carry:
        return
    for v in space.spread:
        merged = [i for i in space.of(v) if space.axes[i].spatial and i >= link.parent.depth]
        temporal = [i for i in space.of(v) if not space.axes[i].spatial]
        if merged and temporal:
            raise NotSeparable(
                f"instances along {v} keep partial sums of {link.tensor} in {link.einsum} for different "
                "times",
                "use engine exact, or reuse: refill",
            )


def refuse_growing(link: Link, partials: Callable[[], bool]) -> None:
    """Refuse first tiles with which not the largest instance, or not all at once, receive partial sums.

    `partials`: whether any are received.
    """
    space, spread = link.space, []
    for v in space.spread:
        axes = [(i, space.axes[i]) for i in space.of(v)]
        for i, a in axes:
            if a.spatial and link.dim(i).broadcast_partials:
                spread += [v for j, b in axes if j < i and b.grows]
            elif a.spatial and a.grows and partials():
                spread.append(v)
    if spread:
        raise NotSeparable(
            f"instances along {spread[0]} reduce into the same elements of {link.tensor} in "
            f"{link.einsum}, and a loop over {spread[0]} has a first tile that may be smaller than others",
            "make initial_tile_shape larger than tile_shape, or use engine exact",
        )


def refuse_idle(link: Link) -> None:
    """Refuse tiles that are filled again in instances that were idle: none of them may have most to do.

    The largest instance never is idle; of a variable that indexes alone its tiles are new as well.
    """
    space, stamps = link.space, link.space.bare()
    parts: set[str] = set()
    if link.parts_stay:
        parts = {v for halo in space.halos for v in (halo.p, halo.r)}
        parts |= {v for v, window in space.windows if window.overlaps and v in space.single}
    for v in (*space.spread, *sorted(parts)):
        positions = space.of(v)
        spatial = [i for i in positions if space.axes[i].spatial]
        times = [i for i in positions if i not in spatial]
        if not spatial or not times or min(link.carry, default=len(space.axes)) >= max(times):
            continue
        uses: list[dict[int, Use]] = [
            {i: "keep" if i in some else "merge" for i in range(len(space.axes))}
            for some in (positions, spatial, times)
        ]
        every, places, steps = (count(stamps, use) for use in uses)
        if every != places * steps:
            raise NotSeparable(
                f"{link.tensor} is filled again in instances along {v} that are idle at times in "
                f"{link.einsum}",
                "use tiles that divide their enclosing ones, reuse: refill, or engine exact",
            )
