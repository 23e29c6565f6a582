"""Transfers over each link, as closed forms (docs/semantics.md, Links and Tolls)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property, partial

from polymodel.analysis.symbolic.counts import carried, count
from polymodel.analysis.symbolic.crossings import crossed, hops_of
from polymodel.analysis.symbolic.forms import TRAFFIC, ZERO, Form, number, product
from polymodel.analysis.symbolic.generations import only_at_first
from polymodel.analysis.symbolic.layout import Carry, SymbolicBuffet, SymbolicLayout, carries
from polymodel.analysis.symbolic.spaces import ITERATIONS, Space, Use, is_fixed
from polymodel.analysis.symbolic.tied_groups import instances_of
from polymodel.architecture.hierarchy import FanoutDim, Topology
from polymodel.errors import NotSeparable
from polymodel.frozen import dataclass
from polymodel.mapping.looptree import ComputeNode
from polymodel.workload.einsum import TensorAccess

# The path of one tensor from one storage to the next, and the transfers on it that have no closed form.

Dimension = tuple[str, str]  # a component and its dimension
ALWAYS = number(1)


@dataclass(frozen=True)
class HeldIteration:
    """One iteration of temporal loops, by position; `lasts`: 1 if a loop has no iteration after it."""

    uses: Mapping[int, Use] = field(default_factory=dict)
    lasts: Mapping[int, Form] = field(default_factory=dict)

    def begins(self, depth: int) -> Form:
        """1 if a visit to storage below `depth` loops begins in it."""
        return ZERO if any(use != "first" for i, use in self.uses.items() if i >= depth) else ALWAYS

    def ends(self, depth: int) -> Form:
        """1 if such a visit ends in it."""
        return product(last for i, last in self.lasts.items() if i >= depth)


EVERY_ITERATION = HeldIteration()


@dataclass(frozen=True)
class TransferPath:
    """The path of one tensor from `chain[place - 1]` to `chain[place]`, or to compute if there is none.
    `space` has the loops above the child (compute: all of the operation's coordinates). `access`: the access
    by which compute reads or writes the tensor. `instance`: if spatial loops run over variables that bounds
    couple, the numbers (by node id) of the instance whose accesses are counted. `iteration`: the fixed
    iterations of temporal loops."""

    layout: SymbolicLayout
    einsum: str
    chain: tuple[SymbolicBuffet, ...]
    place: int
    carried: tuple[Carry, ...]
    access: TensorAccess
    instance: Mapping[int, int] = field(default_factory=dict)
    iteration: HeldIteration = EVERY_ITERATION

    @property
    def tensor(self) -> str:
        return self.chain[0].tensor

    def counter_use(self, position: int) -> Use:
        """How the counter of a spatial loop is used in a count for the chosen instance."""
        return self.instance.get(self.space.axes[position].node, "at0")

    @property
    def child(self) -> SymbolicBuffet | None:
        return self.chain[self.place] if self.place < len(self.chain) else None

    @property
    def parent(self) -> SymbolicBuffet:
        return self.chain[self.place - 1]

    @cached_property
    def space(self) -> Space:
        child = self.child
        if child is None:
            return self.layout.read(self.einsum, self.access)
        space = self.layout.space(self.einsum, self.tensor, child.depth)
        return space if child.producer is not None else _space_of_einsum(space, child.space)

    def time(self, position: int) -> Use:
        """How the counter of a temporal loop is used."""
        return self.iteration.uses.get(position, "keep")

    @cached_property
    def begins(self) -> Form:
        """1 if the child's visit, at whose start fills occur, begins in the chosen iteration."""
        return self.iteration.begins(len(self.space.axes))

    @cached_property
    def ends(self) -> Form:
        """1 if it ends there, when drains occur."""
        return self.iteration.ends(len(self.space.axes))

    @property
    def parts_stay(self) -> bool:
        """Whether parts of the child's windows stay when an inner loop wraps."""
        return self.child is not None and self.child.parts_stay

    @property
    def carry(self) -> Carry:
        return self.carried[self.place] if self.child is not None else {}

    def reach(self, place: int) -> int:
        """The number of loops above chain[place]."""
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
        """The dimensions on the path whose link costs, down to the child's own (or compute's)."""
        hierarchy = self.layout.problem.hierarchy
        return tuple((c, d.name) for c, d in hierarchy.crossed_links(self.parent.component, self.lower_end))

    @property
    def lower_end(self) -> str:
        """The component at the lower end: the child's, otherwise the unit that executes the Einsum."""
        leaf = self.layout.problem.tree.path(self.einsum)[-1].node
        below = self.child if self.child is not None else leaf
        assert isinstance(below, (SymbolicBuffet, ComputeNode))
        return below.component

    def coordinate(self, position: int) -> Dimension:
        """Component and dimension of the spatial loop at `position`."""
        loop = self.space.axes[position].loop
        assert loop is not None
        return loop.component, loop.dim

    def topology(self, dim: Dimension) -> Topology:
        """How the hops of a dimension are counted."""
        link = self.layout.problem.hierarchy[dim[0]].dim(dim[1]).link
        return "bus" if link is None else link.topology

    def order(self, dim: Dimension) -> int:
        """The place of a dimension in the order in which data cross them."""
        return [(c, d.name) for c, d in self.layout.problem.hierarchy.dimensions].index(dim)

    def level(self, position: int) -> int:
        """The place in the hierarchy of the component that the spatial loop at `position` replicates."""
        loop = self.space.axes[position].loop
        assert loop is not None
        return self.layout.problem.hierarchy.index(loop.component)


def _space_of_einsum(space: Space, tile: Space) -> Space:
    """The space of another Einsum, with what the tile holds of the previous generation."""
    if tile.carried is None:
        return space if tile.made is None else tile
    if tile.carried.behind == "first" and tile.carried.is_product:
        return only_at_first(space)
    variables = space.access.projection[tile.carried.rank].variables
    return replace(space, carried=replace(tile.carried, variable=variables[0])) if variables else space


def refuse_uneven_runs(link: TransferPath) -> None:
    """Refuse runs of one partial sum that start and end at different times in different instances."""
    space = link.space
    for variables in space.coupled:
        if any(space.axes[i].spatial for v in variables for i in space.of(v)):
            raise NotSeparable(
                f"instances along {' and '.join(variables)} reduce into the same elements of {link.tensor} "
                f"in {link.einsum}",
                code="unsupported-instances",
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
                code="unsupported-instances",
            )


def refuse_growing(link: TransferPath, partials: Callable[[], bool]) -> None:
    """Refuse first tiles if instances other than the largest one receive partial sums, or if not all receive
    them at once. `partials`: whether any are received."""
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
            code="unsupported-instances",
        )


def refuse_idle(link: TransferPath) -> None:
    """Refuse tiles that are refilled in instances which were idle before: one of these must not become the
    busiest. The largest instance is never idle; tiles of a variable that indexes alone are new as well."""
    space = link.space
    parts: set[str] = set()
    if link.parts_stay:
        parts = {v for variables in space.coupled for v in variables}
        parts |= {v for v, window in space.windows if window.overlaps and v in space.single}
    for v in (*space.spread, *sorted(parts)):
        if v in space.tied:
            continue  # each instance is considered
        positions = space.of(v)
        spatial = [i for i in positions if space.axes[i].spatial]
        times = [i for i in positions if i not in spatial]
        if not spatial or not times or min(link.carry, default=len(space.axes)) >= max(times):
            continue
        uses: list[dict[int, Use]] = [
            {i: "keep" if i in some else "merge" for i in range(len(space.axes))}
            for some in (positions, spatial, times)
        ]
        every, places, steps = (count(space.bare, use) for use in uses)
        if every != places * steps:
            raise NotSeparable(
                f"{link.tensor} is filled again in instances along {v} that are idle at times in "
                f"{link.einsum}",
                "use tiles that divide their enclosing ones, reuse: refill, or engine exact",
                code="unsupported-instances",
            )


# The ledger of everything that moves.

Chosen = Callable[[int], Use]
Needs = Callable[["TransferPath", bool, int, Chosen], Form]


@dataclass
class RowForms:
    """One row's forms: over `every` instance, and of the first (`busiest`) one, if requested."""

    busiest: bool = True
    every: bool = True
    whole: dict[str, Form] = field(default_factory=lambda: dict.fromkeys(TRAFFIC, Form()))
    first: dict[str, Form] = field(default_factory=lambda: dict.fromkeys(TRAFFIC, Form()))

    def add(self, kind: str, form: Callable[[bool], Form], when: Form = ALWAYS) -> None:
        if when == ZERO:
            return
        if self.every:
            self.whole[kind] = self.whole[kind] + form(False) * when
        if self.busiest:
            self.first[kind] = self.first[kind] + form(True) * when


@dataclass
class FormLedger:
    """Accesses by (Einsum, node, tensor), passages by (Einsum, toll, tensor), and what crosses the links of a
    dimension by (Einsum, component, dimension, tensor).

    `further`: the same for instances after the first, each of which may be the busiest.
    """

    accesses: dict[tuple[str, int, str], RowForms] = field(default_factory=dict)
    tolls: dict[tuple[str, str, str], RowForms] = field(default_factory=dict)
    links: dict[tuple[str, str, str, str], RowForms] = field(default_factory=dict)
    busiest: bool = True
    every: bool = True
    further: list[FormLedger] = field(default_factory=list)

    def entry(self, einsum: str, node: SymbolicBuffet) -> RowForms:
        return self.accesses.setdefault((einsum, node.id, node.tensor), self.row())

    def row(self) -> RowForms:
        return RowForms(self.busiest, self.every)


def flows(layout: SymbolicLayout, busiest: bool = True) -> FormLedger:
    """All accesses and passages, booked as docs/semantics.md says; `busiest`: also those of one instance."""
    ledger = FormLedger(busiest=busiest)
    for einsum in layout.problem.tree.einsums:
        if layout.problem.cascade[einsum].is_copy:
            _copy(layout, einsum, ledger)
            continue
        first, *others = _instances(layout, einsum)
        book(layout, einsum, ledger, first)
        for place, instance in enumerate(others if busiest else ()):
            if place == len(ledger.further):
                ledger.further.append(FormLedger())
            book(layout, einsum, ledger.further[place], instance)
    return ledger


def _instances(layout: SymbolicLayout, einsum: str) -> list[dict[int, int]]:
    """The instances that may be the busiest of an Einsum: the first, unless bounds couple variables."""
    space = layout.stamps(einsum, layout.paths[einsum])
    if not space.tied or not any(a.spatial and a.variable in space.tied for a in space.axes):
        return [{}]
    return list(instances_of(layout.problem, space))


def book(
    layout: SymbolicLayout,
    einsum: str,
    ledger: FormLedger,
    instance: Mapping[int, int],
    iteration: HeldIteration = EVERY_ITERATION,
) -> None:
    """Book the transfers of one Einsum, and those of one of its instances; for one `iteration` of some loops
    only, if that is given."""
    one = layout.problem.cascade[einsum]
    for position, access in enumerate(one.accesses):
        chain = layout.chain(einsum, access.tensor)
        for node in chain:
            ledger.entry(einsum, node)
        kept = carries(layout, einsum, chain)
        # Storage is filled once for all accesses of a tensor; compute reads for each access.
        again = access != one.access_of(access.tensor) or access in one.accesses[:position]
        for place in range(len(chain) if again else 1, len(chain) + 1):
            link = TransferPath(layout, einsum, chain, place, kept, access, instance, iteration)
            if access.output:
                _output(link, ledger)
            elif layout.is_filled(einsum, link.child):
                _input(link, ledger)
            if layout.is_filled_from_before(einsum, link.child):
                _input(link, ledger, _needed_of_previous)


def needed(space: Space, use: Chosen, carry: Carry, parts_stay: bool = False) -> Form:
    """Distinct (counters in use, element) that are not carried into the visit."""
    uses = {i: use(i) for i in range(len(space.axes))}
    result = count(space, uses)
    for axis, stays in carry.items():
        if uses[axis] in ITERATIONS:
            what = f"what stays of {space.access.tensor} in {space.einsum.name} from one iteration"
            raise NotSeparable(
                f"{what} to the next of a Pipeline has no closed form",
                "use reuse: refill, or engine exact",
                code="unsupported-pipeline",
            )
        result = result - stays * carried(space, axis, uses, not parts_stay)
    return result


def _use(link: TransferPath, first: bool, held: int, between: Callable[[int], Use]) -> Chosen:
    """Temporal counters are kept; spatial ones up to `held` are the instance's, the others `between`."""

    def use(i: int) -> Use:
        if not link.space.axes[i].spatial:
            return link.time(i)
        if i < held:
            return link.counter_use(i) if first else "keep"
        return between(i)

    return use


def _shared(link: TransferPath) -> Callable[[int], Use]:
    return lambda i: "merge" if link.shares(i) else "keep"


def _needed_of_previous(link: TransferPath, first: bool, held: int, between: Callable[[int], Use]) -> Form:
    """Return the needed elements of the previous generation in the child's tiles."""
    assert link.child is not None
    use, whole = _use(link, first, held, between), _space_of_einsum(link.space, link.child.space)
    alone = needed(whole.alone, use, link.carry, link.parts_stay)
    return needed(whole, use, link.carry, link.parts_stay) - alone


def _needed_over(link: TransferPath, first: bool, held: int, between: Callable[[int], Use]) -> Form:
    use = _use(link, first, held, between)
    result = needed(link.space, use, link.carry, link.parts_stay)
    maker = link.child.producer if link.child is not None else None
    if maker in (None, link.einsum):
        return result
    # What an inferred producer computes in this visit needs no fill.
    assert maker is not None
    assert link.child is not None
    made = link.layout.space(maker, link.tensor, link.child.depth)
    return result - count(made, {i: use(i) for i in range(len(made.axes))})


def _input(link: TransferPath, ledger: FormLedger, needs: Needs = _needed_over) -> None:
    parent, child = link.parent, link.child
    refuse_idle(link)
    outer = ledger.entry(link.einsum, parent)
    outer.add("reads_fill", lambda first: needs(link, first, parent.depth, _shared(link)), link.begins)
    if child is not None:
        inner = ledger.entry(link.einsum, child)
        inner.add("writes_fill", lambda first: needs(link, first, child.depth, _shared(link)), link.begins)
    for entry, held, mesh in _crossed(link, ledger):
        entry.add("reads_fill", partial(_passing, link, held, mesh, needs=needs), link.begins)


def _crossed(link: TransferPath, ledger: FormLedger) -> Iterator[tuple[RowForms, int, Dimension | None]]:
    """Return the transfers on the path, from `crossings.crossed`."""
    hierarchy = link.layout.problem.hierarchy
    return crossed(link, ledger) if hierarchy.tolls or hierarchy.costly_links else iter(())


def _passing(
    link: TransferPath, held: int, mesh: Dimension | None, first: bool, needs: Needs = _needed_over
) -> Form:
    """Return the transfers through a toll or into a dimension; in total, the links of a mesh that they
    cross."""
    between = _shared(link)
    entering = partial(needs, link, first, held)
    if mesh is None or (first and link.topology(mesh) != "switch"):
        return entering(between)
    return hops_of(link, mesh, between, False, entering, first)


def _output(link: TransferPath, ledger: FormLedger) -> None:
    refuse_uneven_runs(link)
    refuse_growing(link, lambda: _partials(link))
    refuse_idle(link)
    parent, child = link.parent, link.child
    outer = ledger.entry(link.einsum, parent)
    outer.add("reads_fill", lambda first: fillable(link, first, parent.depth, _shared(link)), link.begins)
    outer.add("writes_drain", lambda first: _needed_over(link, first, parent.depth, _shared(link)), link.ends)
    if child is not None:
        inner = ledger.entry(link.einsum, child)
        inner.add(
            "writes_fill",
            lambda first: fillable(link, first, parent.depth, _received(link), inside=True),
            link.begins,
        )
        inner.add(
            "reads_drain", lambda first: _needed_over(link, first, child.depth, _shared(link)), link.ends
        )
    for entry, held, mesh in _crossed(link, ledger):
        entry.add("reads_fill", partial(_returning, link, held, mesh), link.begins)
        entry.add("writes_drain", partial(_passing, link, held, mesh), link.ends)


def _returning(link: TransferPath, held: int, mesh: Dimension | None, first: bool) -> Form:
    """Return the transfers of partial sums on their way in, like `_passing`."""
    between = _received(link, held)
    entering = partial(fillable, link, first, link.parent.depth, inside=True, reach=held)
    if mesh is None or (first and link.topology(mesh) != "switch"):
        return entering(between)
    return hops_of(link, mesh, between, True, entering, first)


def _received(link: TransferPath, held: int | None = None) -> Callable[[int], Use]:
    """One instance receives a partial sum, or all of them along dimensions that broadcast (as seen up to
    `held`)."""

    def use(i: int) -> Use:
        if not link.shares(i):
            return "keep"
        if held is not None and i >= held:
            return "merge"
        return "keep" if link.dim(i).broadcast_partials else "merge"

    return use


def fillable(
    link: TransferPath,
    first: bool,
    held: int,
    between: Callable[[int], Use],
    inside: bool = False,
    reach: int | None = None,
) -> Form:
    """Partial sums that the parent holds when they are needed: needs - starts of runs + filled runs.
    `inside`: `first` is the first instance of the child (up to loop `reach`), not of the parent."""
    space = link.space
    end = len(space.axes) if reach is None else reach

    def chosen(i: int) -> Use:
        if not space.axes[i].spatial:
            return link.time(i)
        if first and i < (end if inside else held):
            return link.counter_use(i)
        return "keep" if i < held else between(i)

    return _fillable(link, link.place, chosen)


def _fillable(link: TransferPath, place: int, use: Chosen) -> Form:
    """The same at any link of the chain; counters inside chain[place] are as `use` has them."""
    return _events(link, place, use) - _lacking(link, place, use)


def _events(link: TransferPath, place: int, use: Chosen) -> Form:
    here = link.chain[place] if place < len(link.chain) else None
    carry = link.carried[place] if here is not None else {}
    return needed(link.space, use, carry, here is not None and here.parts_stay)


def _lacking(link: TransferPath, place: int, use: Chosen) -> Form:
    """Needs that the parent cannot satisfy: starts of its runs that were not filled."""
    parent = link.chain[place - 1]
    given = link.space.access.accumulates and place == 1
    if given or link.layout.problem.hierarchy[parent.component].read_first:
        return ZERO
    depth = parent.depth
    if _continues_run(link, depth if place > 1 else 0):
        return ZERO
    # Results of an inferred Einsum start afresh at each stamp that decides what it executes.
    decided = link.layout.decided[link.einsum]
    if place == 1:
        begin = _opening(link, decided, use)
        starts = count(link.space, {i: begin(i) for i in range(len(link.space.axes))})
        return starts - _staying(link, place, use, decided) if decided else starts
    opening = _opening(link, max(depth, decided), use)
    outer = link.reach(place - 2)

    def filled(i: int) -> Use:
        inner = _opening(link, depth, use)(i)
        if not link.space.axes[i].spatial or not outer <= i < depth or is_fixed(inner):
            return inner
        broadcast = link.dim(i).broadcast_partials or not link.shares(i)
        return inner if broadcast else "merge"

    lacking = _lacking(link, place - 1, filled)
    if decided:
        lacking = lacking + _staying(link, place - 1, opening, decided) - _staying(link, place, use, decided)
    if all(opening(i) == filled(i) for i in range(len(link.space.axes))):
        return lacking  # every start of a run is a need of the parent's
    return _events(link, place - 1, opening) - _events(link, place - 1, filled) + lacking


def _continues_run(link: TransferPath, depth: int) -> bool:
    """Whether the chosen iteration continues a run of storage below `depth` loops: some loop inside these
    that does not index the tensor is past its first iteration."""
    variables = link.space.access.variables
    later = (i for i, use in link.iteration.uses.items() if use != "first" and i >= depth)
    return any(i < len(link.space.axes) and link.space.axes[i].variable not in variables for i in later)


def _staying(link: TransferPath, place: int, use: Chosen, decided: int) -> Form:
    """Return the elements that stay from one deciding stamp to the next, and so are not needed at its
    start."""
    if place == len(link.chain):
        return ZERO
    carry = {axis: form for axis, form in link.carried[place].items() if axis < decided}
    return needed(link.space, use, {}) - needed(link.space, use, carry, link.chain[place].parts_stay)


def _opening(link: TransferPath, depth: int, use: Chosen) -> Chosen:
    """At the start of a run: temporal counters inside `depth` are at their first values."""

    def opening(i: int) -> Use:
        inside = i >= depth and not link.space.axes[i].spatial and i not in link.iteration.uses
        return "merge" if inside else use(i)

    return opening


def _partials(link: TransferPath) -> bool:
    """True if the child ever receives partial sums."""
    return fillable(link, False, link.parent.depth, _received(link), inside=True) != Form()


def _copy(layout: SymbolicLayout, einsum: str, ledger: FormLedger) -> None:
    """A copy reads at the source's backing node and writes at the destination's, stamp by stamp."""
    one = layout.problem.cascade[einsum]
    (source,), (target,) = one.inputs, one.outputs
    here, there = layout.chain(einsum, source.tensor)[0], layout.chain(einsum, target.tensor)[0]
    outer, inner = ledger.entry(einsum, here), ledger.entry(einsum, there)
    if here.component == there.component:
        return
    for component, dim in layout.problem.hierarchy.crossed_links(here.component, there.component):
        what = f"copy {einsum} crosses the link of {component}.{dim.name}, which has no closed form"
        raise NotSeparable(what, code="unsupported-copy")
    space = there.space
    if any(a.spatial for a in space.axes):
        raise NotSeparable(f"copy {einsum} stands below a spatial loop", code="unsupported-copy")
    moved = needed(space, lambda i: "keep", {})
    outer.add("reads_fill", lambda first: moved)
    inner.add("writes_fill", lambda first: moved)
