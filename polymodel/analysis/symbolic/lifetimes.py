"""Peaks of live elements, those between their first and their last use (docs/semantics.md, Occupancy).

The phases of an Einsum are the iterations of its loops and of the offsets inside, outermost first. A phase
comes after the first use of an element if both agree down to some loop and the phase is later in that loop.
So a buffet is followed from loop to loop, at one iteration of each: as long as elements depend on that
iteration, it is `within` its tile. A loop that does not index the tensor uses each element again in every
iteration: in its first iteration elements are used for the first time (the live ones are `growing`), in its
last iteration for the last time (`shrinking`), and in the others all of them are live (`whole`). Where an
Einsum diverges from the one that uses an element first or last, the branch that runs earlier decides.

If a loop has three iterations or more, all these buffets are whole in an intermediate iteration; only in
loops of two iterations does one buffet grow while another shrinks. The number of live elements is linear in
the counter of a loop from the second iteration to the last but one; these two, the first and the last
iteration are considered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise
from typing import Literal

from polymodel.analysis.symbolic.atoms import SIZE, Role
from polymodel.analysis.symbolic.counts import settled
from polymodel.analysis.symbolic.cross_branch_residency import chain, divergence, shared_loops
from polymodel.analysis.symbolic.forms import (
    ZERO,
    Form,
    HeldBuffet,
    PeakForm,
    WorkingSetForm,
    leading,
    number,
    product,
)
from polymodel.analysis.symbolic.inferred import Undecided
from polymodel.analysis.symbolic.layout import (
    SymbolicBuffet,
    SymbolicLayout,
    iteration_keys,
    policy,
    tile_signature,
)
from polymodel.analysis.symbolic.occupancy import OccupancyItem, item_of
from polymodel.analysis.symbolic.spaces import Space
from polymodel.errors import NotSeparable

State = Literal["within", "growing", "shrinking", "whole", "gone"]
UNDECIDED: tuple[State, ...] = ("within", "growing", "shrinking")
# The state of a buffet in an iteration of a loop that does not index its tensor: in the first of several
# iterations, in the last one, and in the others.
AT_FIRST: Mapping[State, State] = {"within": "growing", "growing": "growing", "shrinking": "whole"}
AT_LAST: Mapping[State, State] = {"within": "shrinking", "growing": "whole", "shrinking": "shrinking"}
BETWEEN: Mapping[State, State] = dict.fromkeys(UNDECIDED, "whole")
# The state of a buffet whose elements are used first (last) by an Einsum of another branch, by whether that
# Einsum runs later or earlier.
FIRST_USE: tuple[Mapping[State, State], ...] = (
    {"within": "gone", "growing": "gone"},
    {"within": "shrinking", "growing": "whole"},
)
LAST_USE: tuple[Mapping[State, State], ...] = (
    {"within": "growing", "shrinking": "whole"},
    {"within": "gone", "shrinking": "gone"},
)
ENDS: tuple[Role, Role] = ("first", "last")
MOST_PHASES = 500
ONE = number(1)


@dataclass(frozen=True)
class Life:
    """A buffet as seen by the phases of one Einsum.

    `space`: the operations of the Einsum, or of the user with which it shares most loops; `reach`: how many
    loops they share. `depth`: the loop from which on its elements stay. `first`, `last`: where the Einsum
    diverges from those that use elements first and last, and whether these run before it; None if it is the
    Einsum itself.
    """

    held: HeldBuffet
    node: SymbolicBuffet
    space: Space
    depth: int
    reach: int
    first: tuple[int, bool] | None
    last: tuple[int, bool] | None

    def indexed(self, axis: int) -> bool:
        """Whether the loop at `axis` distinguishes elements."""
        return axis < self.reach and self.space.axes[axis].variable in self.space.access.variables

    def open(self, axis: int) -> bool:
        """Return True if the loop at `axis`, or one further in, determines which elements are live."""
        ahead = any(self.indexed(i) and not self.space.axes[i].spatial for i in range(axis, self.reach))
        return ahead or any(end is not None and end[0] >= axis for end in (self.first, self.last))

    def size(self, stamp: Mapping[int, Role]) -> Form:
        """The number of elements that agree with the iterations of a stamp."""

        def role(i: int) -> Role:
            return stamp.get(i, "first" if self._distinguishes_instances(i) else "each")

        own = {
            v: [i for i in self.space.of(v) if i < self.reach or self._distinguishes_instances(i)]
            for v in sorted(self.space.single)
        }
        return product(chain(self.space, v, {i: role(i) for i in loops}, SIZE) for v, loops in own.items())

    def _distinguishes_instances(self, axis: int) -> bool:
        """Whether the loop at `axis` distinguishes instances of the memory, of which the first holds most."""
        return self.space.axes[axis].spatial and axis < self.node.depth


def live_sets(
    layout: SymbolicLayout, every: bool, listed: Callable[[], SymbolicLayout]
) -> tuple[WorkingSetForm, ...]:
    """The joint peak of live elements during every Einsum, of all memories or of those that allocate them.

    `listed`: the layout in which executed iterations are listed, which is used if there are no formulas.
    """
    rows = []
    stores = [c for c in layout.problem.hierarchy.components if c.stores]
    for component in [c.name for c in stores if every or c.allocation == "live"]:
        items = [item_of(layout, n) for n in layout.nodes.values() if n.component == component]
        for einsum in layout.problem.tree.einsums:
            peak = PeakForm(_peak(layout, einsum, component, items, listed))
            rows.append(WorkingSetForm(component, einsum, "live", peak))
    return tuple(r for r in rows if r.peak.phases)


def live_elements(
    layout: SymbolicLayout, listed: Callable[[], SymbolicLayout]
) -> tuple[tuple[int, str, PeakForm], ...]:
    """Node, tensor, and the most elements of each buffet that are live at the same time, as if they had one
    bit."""
    result = []
    for node in layout.nodes.values():
        alone = [OccupancyItem(node, HeldBuffet(node.id, node.tensor, ONE, 1))]
        each = (_peak(layout, e, node.component, alone, listed) for e in layout.problem.tree.einsums)
        phases = leading([(ONE, phase) for some in each for phase in some])
        result.append((node.id, node.tensor, PeakForm(phases)))
    return tuple(result)


def _peak(
    layout: SymbolicLayout,
    einsum: str,
    component: str,
    items: Sequence[OccupancyItem],
    listed: Callable[[], SymbolicLayout],
) -> tuple[tuple[HeldBuffet, ...], ...]:
    """The phases that may be the peak; if no formula gives them, the phase that is the peak."""
    try:
        return leading(list(_phases(layout, einsum, component, items)))
    except NotSeparable as refusal:
        from polymodel.analysis.symbolic.listed_lifetimes import listed_lives

        try:
            other = listed()
            there = [replace(i, node=other.nodes[i.node.id, i.node.tensor]) for i in items]
            phase = listed_lives(other, einsum, component, there)
        except (NotSeparable, Undecided):
            raise refusal from None
    return (phase,) if phase else ()


@dataclass(frozen=True)
class Following:
    """A buffet at some loop: its live elements are `found`, and of those that agree so far the part that
    `state` names."""

    life: Life
    state: State = "within"
    found: Form = ZERO

    def parted(self, axis: int, stamp: Mapping[int, Role]) -> Following:
        """The same if the Einsum has diverged from others before the loop at `axis`."""
        state = self.state
        for end, meanwhile in ((self.life.first, FIRST_USE), (self.life.last, LAST_USE)):
            if end is not None and end[0] == axis:
                state = meanwhile[end[1]].get(state, state)
        return self if state == self.state else self.settled(state, stamp)

    def repeated(self, axis: int) -> bool:
        """Whether the loop at `axis` uses elements again, so that its iteration matters."""
        life = self.life
        mine = self.state in UNDECIDED and life.depth <= axis < life.reach and not life.indexed(axis)
        return mine and life.open(axis + 1)

    def is_followed(self, axis: int) -> bool:
        """Return whether only elements of this iteration of the loop at `axis` are considered."""
        return self.state == "within" and self.life.indexed(axis)

    def moved(self, axis: int) -> bool:
        """Whether elements of other iterations of the loop at `axis` are live as well."""
        return self.state in ("growing", "shrinking") and self.life.indexed(axis)

    def at(self, stamp: Mapping[int, Role], axis: int, become: Mapping[State, State]) -> Following:
        """The buffet in an iteration of the loop at `axis`, which the stamp has chosen."""
        if self.repeated(axis):
            return self.settled(become.get(self.state, self.state), stamp)
        if not self.moved(axis):
            return self
        outer = {i: role for i, role in stamp.items() if i < axis}
        return replace(self, found=self.found + self._others(outer, axis, stamp[axis]))

    def settled(self, state: State, stamp: Mapping[int, Role]) -> Following:
        """The buffet in a state: of the elements that agree so far, all are live if it is whole, and none if
        it is gone."""
        more = self.life.size(stamp) if state == "whole" else ZERO
        return replace(self, state=state, found=self.found + more)

    def _others(self, stamp: Mapping[int, Role], axis: int, role: Role) -> Form:
        """Elements of earlier (of a shrinking buffet: later) iterations of the loop at `axis`."""
        whole, here = self.life.size(stamp), self.life.size({**stamp, axis: role})
        first, last = (self.life.size({**stamp, axis: end}) for end in ENDS)
        earlier = {"first": ZERO, "second": first, "before last": whole - here - last, "last": whole - here}
        return earlier[role] if self.state == "growing" else whole - here - earlier[role]

    def resident(self, stamp: Mapping[int, Role]) -> HeldBuffet:
        """Return the live elements at the phase that a stamp has chosen."""
        here = self.settled("whole", stamp) if self.state in UNDECIDED else self
        return self.life.held.of(here.found)


@dataclass(frozen=True)
class Iteration:
    """An iteration of a loop.

    The one that is considered, a form that is 1 if the loop has enough iterations, and the states of buffets
    whose elements the loop uses again.
    """

    role: Role
    there: Form
    become: Mapping[State, State]


def _iterations(
    bare: Space, stamp: Mapping[int, Role], axis: int, buffets: Sequence[Following]
) -> list[Iteration]:
    """The iterations of a loop at which most elements may be live.

    If there are several, at least as many are live in the first one as if it were the only one; of three or
    more, at least as many in an intermediate one as at the ends, except for buffets of which other iterations
    count.
    """
    moving = {b.state for b in buffets if b.moved(axis)}
    growing, shrinking = "growing" in moving, "shrinking" in moving
    several = ONE - _at_most(bare, stamp, axis, "only")
    if any(b.repeated(axis) for b in buffets):
        three = ONE - _at_most(bare, stamp, axis, "two")
        result = [Iteration("first", ONE, {})] if several != ONE else []
        result += [Iteration("first", several, AT_FIRST)] if shrinking or three != ONE else []
        result += [Iteration("last", several, AT_LAST)] if growing or three != ONE else []
        result += [Iteration("second", three, BETWEEN)] if shrinking or not growing else []
        result += [Iteration("before last", three, BETWEEN)] if growing else []
    else:
        # Unless its tile may be smaller, the last iteration behaves like those before it.
        apart = bare.axes[axis].tile != 1 and (shrinking or any(b.is_followed(axis) for b in buffets))
        result = [Iteration("first", ONE, {})] if shrinking or not growing else []
        result += [Iteration("last", ONE, {})] if growing else []
        result += [Iteration("before last", several, {})] if growing and apart else []
    return [i for i in result if i.there != ZERO]


def _at_most(bare: Space, stamp: Mapping[int, Role], axis: int, role: Role) -> Form:
    """1 if the first instance runs a loop at most that many times within the outer iterations of the
    stamp."""
    v = bare.axes[axis].variable
    roles: dict[int, Role] = {i: stamp.get(i, "first") for i in bare.of(v) if i < axis}
    return chain(bare, v, {**roles, axis: role}, until=axis)


def _phases(
    layout: SymbolicLayout, einsum: str, component: str, items: Sequence[OccupancyItem]
) -> Iterator[tuple[Form, tuple[HeldBuffet, ...]]]:
    """The phases that may be the peak, as pairs: 1 if there is such a phase, and what is live in it."""
    lasting = tuple(i.held for i in items if i.fixed)
    lives = [life for i in items if not i.fixed and (life := _life(layout, einsum, i)) is not None]
    bare = layout.stamps(einsum, layout.executed[einsum])
    if any(a.start is not None for a in bare.axes):
        raise _unknown(component, f"{einsum} has loops with a first tile of another size")
    every = _followed(bare, 0, ONE, {}, [Following(life) for life in lives])
    for count, (there, stamp, buffets) in enumerate(every):
        if count == MOST_PHASES:
            raise _unknown(component, f"too many phases of {einsum} may be the peak")
        yield there, (*lasting, *(b.resident(stamp) for b in buffets))


def _followed(
    bare: Space, axis: int, there: Form, stamp: dict[int, Role], buffets: Sequence[Following]
) -> Iterator[tuple[Form, dict[int, Role], Sequence[Following]]]:
    """All phases from the loop at `axis` on: their conditions, their iterations, and the buffets in them."""
    buffets = [b.parted(axis, stamp) for b in buffets]
    if axis == len(bare.axes):
        yield there, stamp, buffets
        return
    if bare.axes[axis].spatial:
        yield from _followed(bare, axis + 1, there, stamp, buffets)
        return
    for chosen in _iterations(bare, stamp, axis, buffets):
        here = {**stamp, axis: chosen.role}
        each = [b.at(here, axis, chosen.become) for b in buffets]
        yield from _followed(bare, axis + 1, there * chosen.there, here, each)


def _life(layout: SymbolicLayout, einsum: str, item: OccupancyItem) -> Life | None:
    """A buffet in the phases of an Einsum; None if nothing of it is ever live there."""
    node = item.node
    _check(layout, node)
    since = _since(node)
    shares = {u: None if u == einsum else shared_loops(layout, einsum, u) for u in node.users}
    on_path = node.id in {s.id for s in layout.problem.tree.path(einsum)}
    if not on_path and all(n is not None and n <= since for n in shares.values()):
        return None  # it is filled and consumed while a branch runs that does not contain the Einsum
    chosen = einsum if einsum in shares else max(node.users, key=lambda u: shares[u] or 0)
    space = layout.space(chosen, node.tensor)
    reach = len(space.axes) if chosen == einsum else shares[chosen] or 0
    if any(_idle_at_times(space, node.depth, v) for v in space.single):
        raise _unknown(node.component, f"instances that use {node.tensor} may be idle at times")
    ends = [_parting(layout, einsum, u, shares[u]) for u in (node.users[0], node.users[-1])]
    return Life(item.held, node, space, since, reach, *ends)


def _idle_at_times(space: Space, depth: int, variable: str) -> bool:
    """Whether instances below a buffet may run fewer iterations of loops inside than the first one."""
    sizes: list[int | str] = [space.extent(variable)]
    loops = space.of(variable)
    for k, i in enumerate(loops):
        sizes.append(space.axes[i].tile)
        inside = any(not space.axes[j].spatial for j in loops[k + 1 :])
        if space.axes[i].spatial and i >= depth and inside:
            known = [s for s in sizes if isinstance(s, int)]
            return len(known) < len(sizes) or any(a % b for a, b in pairwise(known))
    return False


def _parting(layout: SymbolicLayout, einsum: str, user: str, shared: int | None) -> tuple[int, bool] | None:
    if shared is None:
        return None
    _, mine, theirs = divergence(layout, einsum, user)
    return shared, theirs < mine


def _since(node: SymbolicBuffet) -> int:
    """The loop from which on elements stay; this includes the loops above the node over whose steps its
    policy keeps everything."""
    space, depth = node.space, node.depth
    kept = policy(node)
    for axis in reversed(range(node.depth)):
        stays = kept.get(axis, ZERO)
        if space.axes[axis].spatial:
            continue
        if space.axes[axis].variable in space.access.variables:
            once = settled(space, axis)
            if once == ONE:
                continue
            if once != ZERO and any(
                kept.get(i, ZERO) != ZERO and not _indexes(space, i) for i in range(axis)
            ):
                raise _unknown(node.component, f"{node.tensor} stays from visit to visit for some tile sizes")
            return depth
        if stays == ZERO:
            return depth
        if stays != ONE:
            raise _unknown(node.component, f"{node.tensor} stays from visit to visit for some tile sizes")
        depth = axis
    return depth


def _indexes(space: Space, axis: int) -> bool:
    return space.axes[axis].spatial or space.axes[axis].variable in space.access.variables


def _check(layout: SymbolicLayout, node: SymbolicBuffet) -> None:
    """Refuse buffets whose elements do not form a box, or that users access in different ways."""
    cascade, spaces = layout.problem.cascade, [layout.space(u, node.tensor) for u in node.users]
    if any(e.is_copy for e in cascade):
        raise _unknown(node.component, "a copy runs")
    if any(layout.windows.values()):
        raise _unknown(node.component, "Einsums are inferred, or execute again")
    if layout.mixed:
        raise _unknown(node.component, "Einsums run loops within different bounds")
    if node.tensor in layout.lines:
        raise _unknown(node.component, f"{node.tensor} is carried forward")
    for space in spaces:
        if space.tied or space.coupled:
            what = f"ranks of {node.tensor} have several rank variables, or bounds tie them"
            raise _unknown(node.component, what)
    for one, other in combinations(node.users, 2):
        shared = shared_loops(layout, one, other)
        mine, theirs = (layout.space(e, node.tensor, shared) for e in (one, other))
        ranges = ([iteration_keys(s, i) for i in range(shared)] for s in (mine, theirs))
        if tile_signature(mine) != tile_signature(theirs) or len({tuple(r) for r in ranges}) > 1:
            raise _unknown(node.component, f"{one} and {other} use {node.tensor} in different ways")


def _unknown(component: str, why: str) -> NotSeparable:
    return NotSeparable(
        f"{component} has allocation: live, and {why}: peaks of live elements have no closed form there",
        "use engine exact, or allocation: tile",
        code="unsupported-memory",
    )
