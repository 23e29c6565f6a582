"""The executed iterations of Einsums whose rank variables no loop above binds: an interval per rank and
stamp.

docs/semantics.md, Loops that bind no rank variable of an Einsum. Consider a chain in which each rank of an
intermediate is a variable of its own in the producer, and, in the consumer, a sum of one variable that the
shared loops tile and others that they leave whole. What is needed is then a product of intervals, and so is
what is needed and not held: along each rank, everything that the window gained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from math import gcd, prod

from polymodel.analysis.result import Problem
from polymodel.analysis.symbolic.atoms import ONE, atom
from polymodel.analysis.symbolic.counts import settled
from polymodel.analysis.symbolic.forms import Form, of_atom
from polymodel.analysis.symbolic.regions import Region
from polymodel.analysis.symbolic.spaces import LoopAxis, Space, Stride, TiedGroup, Window, groups, terms_of
from polymodel.analysis.symbolic.strides import all_numbers, in_strides, only_every, refuse_outside
from polymodel.analysis.symbolic.tied_groups import needs_boxes
from polymodel.arithmetic import Affine
from polymodel.errors import NotSeparable
from polymodel.frozen import dataclass
from polymodel.mapping.looptree import Loop, StorageNode, Tie, decided_above, storage_chain, ties, users
from polymodel.reuse import Reuse
from polymodel.workload.einsum import Einsum, TensorAccess

MOST_SPREAD = 2**14  # the most points of the variables of spatial loops


@dataclass(frozen=True)
class Path:
    """The loops above an Einsum's operations. `depth`: the number of loops that decide what it executes.
    `inferred`: True if it executes what consumers need, not everything again. `once`: loops (by position) in
    whose first iteration only it executes. `strides`: variables of which consumers omit values at even
    distances; windows count the values that are left. `groups`: variables whose executed values are listed,
    because they are no product of intervals or because instances are considered one by one."""

    axes: tuple[LoopAxis, ...]
    windows: tuple[tuple[str, Window], ...] = ()
    depth: int = 0
    inferred: bool = False
    once: frozenset[int] = frozenset()
    strides: tuple[tuple[str, Stride], ...] = ()
    groups: tuple[TiedGroup, ...] = ()


class Undecided(Exception):
    """What stays depends on whether the loop `node` has a single trip; `settled` is 1 if it does."""

    def __init__(self, node: int, settled: Form) -> None:
        super().__init__(node)
        self.node, self.settled = node, settled


def paths(
    problem: Problem, reuse: Reuse | None, single: Mapping[int, bool], points: bool = False
) -> dict[str, Path]:
    """The path of every Einsum. Raises NotSeparable if what executes is not a product of intervals. `single`:
    for loops (by node id), whether they have a single trip, where symbols do not decide it. `points`: what
    executes is listed even if it is a product of intervals, and also if instances may be idle at times."""
    inference = _SymbolicInference(problem, reuse, single, points)
    for name in reversed(problem.tree.einsums):
        inference.of(name)
    return {name: inference.found[name] for name in problem.tree.einsums}


class _SymbolicInference:
    def __init__(
        self, problem: Problem, reuse: Reuse | None, single: Mapping[int, bool], points: bool = False
    ) -> None:
        self.problem, self.reuse, self.single, self.points = problem, reuse, single, points
        self.found: dict[str, Path] = {}
        self.open: set[str] = set()

    @cached_property
    def numbers(self) -> bool:
        """Whether no loop has a symbol."""
        loops = (node for _, node, _ in self.problem.tree.walk() if isinstance(node, Loop))
        sizes = (s for loop in loops for s in (loop.tile_shape, loop.initial_tile_shape))
        return all_numbers(s for s in sizes if s is not None)

    def of(self, name: str) -> Path:
        if name not in self.found:
            if name in self.open:
                raise NotSeparable(f"what {name} executes depends on itself", code="unsupported-inference")
            self.open.add(name)
            kinds, axes = self.loops(name)
            if set(kinds.values()) <= {"bound"}:
                self.found[name] = Path(axes, groups=self.spread(name, axes) if self.points else ())
            elif set(kinds.values()) <= {"bound", "repeated"}:
                self.found[name] = self.repeated(name, kinds, axes)
            else:
                self.found[name] = self.inferred(name, kinds, axes)
        return self.found[name]

    def loops(self, name: str) -> tuple[dict[int, Tie], tuple[LoopAxis, ...]]:
        """The tie of an Einsum to each loop above it, and these loops."""
        loops = self.problem.tree.loops(name)
        axes = tuple(LoopAxis(loop.variable_in(name), loop.tile_shape, loop, i) for i, loop in loops)
        return ties(self.problem.cascade, self.problem.tree, name), axes

    def repeated(self, name: str, kinds: dict[int, Tie], axes: tuple[LoopAxis, ...]) -> Path:
        """The path of an Einsum that executes completely at each step of loops over variables of others."""
        cascade, tree = self.problem.cascade, self.problem.tree
        extents: dict[str, int] = {}
        renamed, depth = [], 0
        for i, axis in enumerate(axes):
            if kinds[axis.node] == "bound":
                renamed.append(axis)
                continue
            tied = {e: ties(cascade, tree, e) for e in users(tree, axis.node)}
            bound = (e for e, kinds_of in tied.items() if kinds_of[axis.node] == "bound")
            # The loops above what is inferred are those of its consumer.
            other = max(bound, key=lambda e: (_extent(cascade[e], axis), "inferred" not in tied[e].values()))
            w = axis.loop.variable_in(other) if axis.loop is not None else axis.variable
            low, high = cascade[other].bound(w)
            again = f"{other}.{w}"
            extents[again] = high - low + 1
            renamed.append(replace(axis, variable=again))
            above = [a.node for a in axes[:i] if a.loop is not None and a.loop.variable_in(other) == w]
            own = any(kinds[node] == "bound" for node in above)
            alone = Space(cascade[other], TensorAccess("", (), ()), self.of(other).axes)
            place = [a.node for a in alone.axes].index(axis.node)
            if not self.one_trip(alone, place):
                depth = i + 1
                if own or axis.spatial:
                    raise NotSeparable(
                        f"{name} executes completely in each step of a loop over {w} that splits its tiles",
                        code="unsupported-inference",
                    )
        windows = ((v, Window(extent, 0, 1, 0, (), len(axes))) for v, extent in extents.items())
        return Path(tuple(renamed), tuple(windows), depth)

    def spread(self, name: str, axes: Sequence[LoopAxis]) -> tuple[TiedGroup, ...]:
        """Variables of spatial loops, with those of the same ranks, so that each instance is considered
        separately. Variables with many points are omitted."""
        einsum = self.problem.cascade[name]
        tied = {v for g in groups(einsum) for v in g.variables}
        ranks = [{v for v, _ in terms_of(einsum, e)} for a in einsum.accesses for e in a.projection]
        result: dict[tuple[str, ...], TiedGroup] = {}
        for axis in axes:
            together = {axis.variable} if axis.spatial else set()
            for _ in ranks:
                together.update(*(rank for rank in ranks if rank & together))
            names = tuple(sorted(together))
            extents = tuple(high - low + 1 for low, high in map(einsum.bound, names))
            if names and not together & tied and prod(extents) <= MOST_SPREAD:
                result[names] = TiedGroup(names, Region(extents, ()))
        return tuple(result.values())

    def one_trip(self, space: Space, axis: int) -> bool:
        """Whether a loop has one trip. Raises Undecided if symbols do not decide it."""
        node = space.axes[axis].node
        if node in self.single:
            return self.single[node]
        form = settled(space, axis)
        if form.constant is None:
            raise Undecided(node, form)
        return form.constant == 1

    def inferred(self, name: str, kinds: dict[int, Tie], axes: tuple[LoopAxis, ...]) -> Path:
        """Return the executed iterations as intervals, or as a list if they are not intervals."""
        depth = sum(1 for i in kinds if i <= decided_above(kinds))
        consumer = self.consumer(name, kinds, axes, depth)
        try:
            if self.needs_points(name, consumer, axes[:depth]):
                raise NotSeparable(
                    f"the iteration space of {name}, or of its consumer, is not a box, and what {name} "
                    "executes is inferred",
                    code="unsupported-inference",
                )
            return self.intervals(name, kinds, axes, depth, consumer)
        except NotSeparable as refusal:
            try:
                return self.listed(name)
            except NotSeparable:
                raise refusal from None

    def needs_points(self, name: str, consumer: Einsum, above: Sequence[LoopAxis]) -> bool:
        """Whether bounds of the Einsum or of its consumer decide what is needed, or the consumer is
        listed."""
        theirs = self.of(consumer.name)
        if self.points or theirs.groups or groups(self.problem.cascade[name]):
            return True
        tied = {v for g in groups(consumer) for v in g.variables}
        over = {a.node for a in above if a.loop is not None and a.loop.variable_in(consumer.name) in tied}
        return bool(over) and not needs_boxes(self.problem, consumer.name, max(over))

    def listed(self, name: str) -> Path:
        """Return the executed iterations as a list of values."""
        from polymodel.analysis.symbolic.listed_inference import (
            Above,
            ConsumerPoints,
            listed_groups,
            listed_windows,
            runs_once_inside,
            widest_windows,
        )

        kinds, axes = self.loops(name)
        depth = sum(1 for i in kinds if i <= decided_above(kinds))
        consumer = self.consumer(name, kinds, axes, depth)
        theirs = self.of(consumer.name)
        if theirs.inferred and not theirs.groups:
            theirs = self.found[consumer.name] = self.listed(consumer.name)
        hold = _Hold(self, name, consumer, theirs, depth)
        # Loops in branches of later Einsums decide what executes of the consumer, and so of this one too.
        further = (a for g in theirs.groups for a in g.further)
        above = Above(
            axes[:depth],
            tuple(kinds[a.node] for a in axes[:depth]),
            (*theirs.axes[: max(depth, theirs.depth if theirs.inferred else 0)], *further),
            min(hold.above, depth),
            hold.policy if hold.above <= depth else Reuse.REFILL,
        )
        widths = widest_windows(self.problem, consumer.name, depth)
        reader = ConsumerPoints(consumer, dict(theirs.windows), theirs.groups, widths)
        einsum = self.problem.cascade[name]
        found = listed_groups(einsum, hold.tensor, reader, above)
        own = {a.node: a for a in axes}
        shared = {k: own[a.node] for k, a in enumerate(theirs.axes) if k >= depth and a.node in own}
        once = (hold.single_trip(k) and runs_once_inside(einsum, found, a) for k, a in shared.items())
        apart = [k for k, alone in zip(shared, once, strict=True) if not alone]
        decide = any(a.node in own for a in above.theirs[depth:])
        if decide or (apart and self.stores_below(name, theirs.axes[apart[0]].node)):
            raise NotSeparable(
                f"{name} and {consumer.name} share loops inside the one that decides what {name} executes, "
                f"and {'these decide what the latter executes' if decide else 'storage below them'}",
                code="unsupported-inference",
            )
        windows = tuple(w for group in found for w in listed_windows(einsum, group, above, reader))
        deciding = {a.node: a for group in found for a in group.deciding}
        return Path(tuple(deciding.get(a.node, a) for a in axes), windows, depth, True, groups=found)

    def stores_below(self, name: str, node: int) -> bool:
        """Whether an Einsum uses a tensor together with others in storage below a loop."""
        cascade, tree = self.problem.cascade, self.problem.tree
        for step in tree.path(name):
            if step.id > node and isinstance(step.node, StorageNode):
                mine = set(step.node.tensors) & set(cascade[name].tensors)
                if any(mine & set(cascade[e].tensors) for e in users(tree, step.id) if e != name):
                    return True
        return False

    def intervals(
        self, name: str, kinds: dict[int, Tie], axes: tuple[LoopAxis, ...], depth: int, consumer: Einsum
    ) -> Path:
        """Return the executed iterations as a product of intervals."""
        theirs = self.of(consumer.name)
        strided = only_every(consumer, dict(theirs.strides), dict(theirs.windows))
        hold = _Hold(self, name, strided, theirs, depth)
        if theirs.inferred and theirs.depth < depth:
            raise NotSeparable(
                f"{name} is inferred from tiles of own loops of {consumer.name}, which is inferred too",
                code="unsupported-inference",
            )
        needed = _Needed(hold, set(theirs.once))
        needed.along_ranks(self.problem.cascade[name])
        outer = [needed.decides(i, axis, kinds[axis.node]) for i, axis in enumerate(axes[:depth])]
        needed.check_shared(axes[depth:])
        inner = in_strides(name, axes[depth:], outer, needed.windows, needed.strides, self.numbers)
        once = frozenset(i for i in needed.once if i < depth)
        strides = tuple(needed.strides.items())
        return Path((*outer, *inner), tuple(needed.windows.items()), depth, True, once, strides)

    def consumer(self, name: str, kinds: dict[int, Tie], axes: tuple[LoopAxis, ...], depth: int) -> Einsum:
        """The only consumer. Raises NotSeparable for other shapes of trees."""
        cascade, tree = self.problem.cascade, self.problem.tree
        einsum = cascade[name]
        if "repeated" in kinds.values() or einsum.is_copy:
            raise NotSeparable(
                f"{name} executes both completely and as others need it, below loops that do not bind it",
                code="unsupported-inference",
            )
        readers = [
            c
            for a in einsum.outputs
            for c in cascade.consumers(a.tensor)
            if c.name in tree.paths and c.name != name
        ]
        several = any(len(c.accesses_of(a.tensor)) > 1 for a in einsum.outputs for c in readers)
        if len(einsum.outputs) != 1 or len(readers) != 1 or readers[0].is_copy or several:
            raise NotSeparable(
                f"what {name} executes is not inferred from a single consumer",
                code="unsupported-inference",
            )
        return readers[0]


def _extent(einsum: Einsum, axis: LoopAxis) -> int:
    """The number of values of the variable of a loop that an Einsum binds."""
    assert axis.loop is not None
    low, high = einsum.bound(axis.loop.variable_in(einsum.name))
    return high - low + 1


def _single_trip(extent: int, above: Sequence[LoopAxis], loop: LoopAxis) -> bool | None:
    """Whether a loop has one trip in the widest tile of the loops above it, some of which may have other
    first tiles."""
    only = atom(extent, (*(a.level("widest") for a in above), loop.level("only")), ONE)
    result = of_atom(only).constant
    return None if result is None else result == 1


class _Hold:
    """The intermediate between a producer and its consumer: what is needed of it, and what stays."""

    def __init__(
        self, inference: _SymbolicInference, name: str, consumer: Einsum, theirs: Path, depth: int
    ) -> None:
        problem, self.single = inference.problem, inference.single
        self.name, self.consumer, self.theirs, self.depth = name, consumer, theirs, depth
        self.tensor = problem.cascade[name].outputs[0].tensor
        home = storage_chain(problem.tree, name, self.tensor)[0]
        assert isinstance(home.node, StorageNode)
        self.policy = inference.reuse or home.node.reuse
        self.above = sum(1 for i, _ in problem.tree.loops(name) if i < home.id)
        inside = self.above > depth and self.policy.carries
        if inside or home.id not in {s.id for s in problem.tree.path(consumer.name)}:
            raise NotSeparable(
                f"{self.tensor} is not stored above both {name} and {consumer.name}",
                code="unsupported-inference",
            )
        self.access = consumer.access_of(self.tensor)

    def positions(self, w: str) -> list[int]:
        return [i for i, a in enumerate(self.theirs.axes[: self.depth]) if a.variable == w]

    def plain(self, w: str) -> Window:
        """The window of all executed values of a consumer's variable, under the shared loops."""
        result = dict(self.theirs.windows).get(w)
        if result is None:
            low, high = self.consumer.bound(w)
            result = Window(high - low + 1, low, 1, 0, tuple((i, 0) for i in self.positions(w)), 0)
        later = tuple((i, more) for i, more in result.later if i < self.depth)
        return replace(result, later=later, depth=self.depth)

    def producer_values(self, expr: Affine, shift: int) -> tuple[Affine, Stride]:
        """The terms that determine the producer's values of a rank, less a shift, and the stride of these
        values. Variables of a single value determine nothing if others have a stride, or loops of their
        own."""
        terms = [(w, c) for w, c in expr.terms if c]
        wholes = {w: self.plain(w) for w, _ in terms}
        wide = [(w, c) for w, c in terms if wholes[w].scale * wholes[w].extent + wholes[w].start > 1]
        every = gcd(*(c for _, c in wide))
        if every == 0 or (every == 1 and sum(bool(self.positions(w)) for w, _ in terms) < 2):
            return Affine(tuple(terms), expr.constant - shift), Stride(1, 0)
        base = expr.constant - shift + sum(c * wholes[w].low for w, c in terms if (w, c) not in wide)
        if every == 1:
            return Affine(tuple(wide), base), Stride(1, 0)
        return Affine(tuple((w, c // every) for w, c in wide)), Stride(every, base)

    def window(self, expr: Affine, rank: Affine) -> Window:
        """Return the executed range of a rank for the consumer's tiles, in the producer's variable."""
        terms = sorted(((v, c) for v, c in expr.terms if c), key=lambda term: term[1])
        tiled = [(w, c) for w, c in terms if self.positions(w)]
        if len(tiled) > 1:
            raise NotSeparable(
                f"shared loops tile both {tiled[0][0]} and {tiled[1][0]} of rank {rank} of {self.tensor}",
                code="unsupported-inference",
            )
        reach, low = 1, expr.constant
        for w, c in terms:
            whole = self.plain(w)
            low += c * whole.low
            if (w, c) in tiled:
                continue
            size = whole.scale * whole.extent + whole.start
            if size > 1 and c > reach:
                raise self.holes(rank)
            reach += c * (size - 1)
        if not tiled:
            return Window(reach, low, 1, 0, (), self.depth)
        ((w, c),) = tiled
        theirs = self.plain(w)
        if c > reach:
            raise self.holes(rank)
        more = reach - c
        needed = {i: c * m + more for i, m in theirs.later}
        later = {i: 0 if need and self.stays(i, needed) else need for i, need in needed.items()}
        result = Window(
            theirs.extent, low, c * theirs.scale, c * theirs.start + more, tuple(later.items()), self.depth
        )
        steps = [result.start, *later.values()]
        if result.start and any(self.theirs.axes[i].spatial and not self.alone(i) for i in later):
            raise NotSeparable(
                f"instances of the loop over {w} share parts of {self.tensor}, which {self.name} produces",
                code="unsupported-inference",
            )
        if steps != sorted(steps, reverse=True):
            raise NotSeparable(
                f"{self.tensor} stays over outer loops but not over inner ones",
                code="unsupported-inference",
            )
        return result

    def holes(self, expr: Affine) -> NotSeparable:
        return NotSeparable(
            f"{self.consumer.name} skips elements of {self.tensor} along {expr}: the iterations of "
            f"{self.name} have holes",
            code="unsupported-inference",
        )

    def stays(self, axis: int, needed: dict[int, int]) -> bool:
        """Whether what was computed before the steps of a loop that tiles this rank is still held."""
        if self.theirs.axes[axis].spatial:
            return False  # instances run together
        if axis >= self.above or not self.stays_over(axis):
            return axis >= self.above  # what is computed in a visit is there until its end
        mine = self.theirs.axes[axis].variable
        if any(needed[i] != needed[axis] for i in needed if axis < i < self.above):
            raise NotSeparable(
                f"{self.tensor} stays in part over the loop over {mine}", code="unsupported-inference"
            )
        return True

    def stays_over(self, axis: int) -> bool:
        """Whether what was there before a step of a loop stays, as far as it is needed after it."""
        if axis >= self.above:
            return True  # computed once in each visit
        mine = self.theirs.axes[axis].variable
        if not self.policy.stays_over("moving" if mine in self.access.variables else "inner"):
            return False
        parts_stay = self.policy.stays_over("outer")
        inner = [
            i
            for i in range(axis + 1, self.above)
            if self.theirs.axes[i].variable in self.access.variables and not self.theirs.axes[i].spatial
        ]
        if parts_stay:
            inner = [i for i in inner if self.theirs.axes[i].variable != mine]
        trips = [self.single_trip(i) for i in inner]
        if False in trips:
            if parts_stay and any(self.overlaps(i) for i in inner):
                raise NotSeparable(
                    f"under {self.policy}, {self.tensor} stays in part where an inner loop wraps",
                    "use reuse: slide, or engine exact",
                    code="unsupported-inference",
                )
            return False
        if None in trips:
            unknown = inner[trips.index(None)]
            bare = Space(
                self.consumer, TensorAccess("", (), ()), self.theirs.axes, windows=self.theirs.windows
            )
            raise Undecided(self.theirs.axes[unknown].node, settled(bare, unknown))
        return True

    def overlaps(self, axis: int) -> bool:
        """True if windows along the variable of the loop at `axis` may overlap."""
        w = self.theirs.axes[axis].variable
        theirs = self.plain(w)
        alone = any(e.variables == (w,) and dict(e.terms)[w] == 1 for e in self.access.projection)
        return theirs.start > 0 or not alone

    def single_trip(self, axis: int) -> bool | None:
        """Return whether the loop at `axis` has one trip, whatever its enclosing tile; None if undecided."""
        if self.theirs.axes[axis].node in self.single:
            return self.single[self.theirs.axes[axis].node]
        w, loop = self.theirs.axes[axis].variable, self.theirs.axes[axis]
        above = [self.theirs.axes[i] for i in self.positions(w) if i < axis]
        if any(a.start is not None for a in (loop, *above)):
            return _single_trip(self.plain(w).extent, above, loop)
        enclosing = [self.plain(w).extent, *(a.tile for a in above)]
        tile = loop.tile
        sizes = [s for s in enclosing if isinstance(s, int)]
        if isinstance(tile, int) and tile >= min(sizes):
            return True
        if isinstance(tile, str) or any(isinstance(s, str) for s in enclosing):
            return True if tile in enclosing else None
        return False

    def once(self, axis: int, kind: Tie) -> bool:
        """Whether a loop over a variable that does not index the intermediate computes it in its first
        iteration only, and not again at every step."""
        w = self.theirs.axes[axis].variable
        if kind == "bound":
            raise NotSeparable(
                f"the loop over {w} binds {self.name}, but {w} does not index {self.tensor}",
                "move that loop below the split, or use engine exact",
                code="unsupported-inference",
            )
        return not self.theirs.axes[axis].spatial and self.stays_over(axis)

    def repetition(self, axis: int, once: Sequence[int]) -> Window:
        """A loop over a variable that does not index the intermediate and that computes it again at every
        step; outer loops over that variable in `once` are at their first iteration."""
        w = self.theirs.axes[axis].variable
        whole, tiles = self.plain(w), [self.theirs.axes[i].level("first").begin for i in once]
        sizes = [t for t in tiles if isinstance(t, int)]
        if len(sizes) < len(tiles):
            raise NotSeparable(
                f"{self.name} executes in instances along {w}, inside a first tile of unknown size",
                code="unsupported-inference",
            )
        extent = min([whole.extent, *sizes])
        return Window(extent, 0, 1, 0, tuple((i, 0) for i in self.positions(w)), self.depth)

    def alone(self, axis: int) -> bool:
        """Whether a spatial loop has one instance only. Raises Undecided if symbols do not decide it."""
        result = self.single_trip(axis)
        if result is None:
            loop, bare = self.theirs.axes[axis], self.stamps
            raise Undecided(loop.node, settled(bare, axis))
        return result

    @property
    def stamps(self) -> Space:
        """The stamps of the consumer."""
        return Space(self.consumer, TensorAccess("", (), ()), self.theirs.axes, windows=self.theirs.windows)


@dataclass
class _Needed:
    """What executes of an inferred Einsum, as decided by the loops above its consumer. `once`: loops in whose
    first iteration only it executes; `renamed`: the Einsum's names for the consumer's variables; `repeats`:
    those of them that compute it again."""

    hold: _Hold
    once: set[int]
    windows: dict[str, Window] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    strides: dict[str, Stride] = field(default_factory=dict)
    repeats: set[str] = field(default_factory=set)

    def along_ranks(self, einsum: Einsum) -> None:
        """The windows along the ranks of the intermediate."""
        hold = self.hold
        for mine, theirs in zip(einsum.outputs[0].projection, hold.access.projection, strict=True):
            terms = [(v, c) for v, c in mine.terms if c]
            if len(terms) != 1 or terms[0][1] != 1:
                raise NotSeparable(
                    f"{einsum.name} makes {hold.tensor} along {mine}, not a rank variable of its own",
                    code="unsupported-inference",
                )
            v = terms[0][0]
            values, stride = hold.producer_values(theirs, mine.constant)
            self.windows[v] = hold.window(values, theirs)
            if stride.every > 1:
                self.strides[v] = stride
            refuse_outside(einsum, v, self.windows[v], stride)
            self.renamed |= {w: v for w, c in values.terms if c}

    def decides(self, i: int, axis: LoopAxis, kind: Tie) -> LoopAxis:
        """A loop that decides what executes: over a variable of the Einsum, or over one that computes it
        again."""
        hold, renamed = self.hold, self.renamed
        w = hold.theirs.axes[i].variable
        again = w if "." in w else f"{hold.consumer.name}.{w}"
        if axis.spatial and hold.alone(i):
            return self.at_first(i, axis, again)
        if w not in renamed or renamed[w] in self.repeats:
            # Each loop over such a variable counts separately: an inner one may be below the storage.
            if hold.once(i, kind):
                self.once.add(i)
                return self.at_first(i, axis, again)
            first = [j for j in self.once if hold.theirs.axes[j].variable == w]
            self.windows[again] = hold.repetition(i, first)
            renamed[w] = again
            self.repeats.add(again)
        elif kind == "bound" and not self.follows(axis, w):
            raise NotSeparable(
                f"the loop over {w} also binds {hold.name}, but not to what {hold.consumer.name} needs of it",
                code="unsupported-inference",
            )
        return replace(axis, variable=renamed[w])

    def at_first(self, i: int, axis: LoopAxis, again: str) -> LoopAxis:
        """A loop of which only the first iteration counts; outer loops over its variable may repeat that
        iteration."""
        variable = f"{again}.{axis.node}"
        self.windows[variable] = Window(1, 0, 1, 0, ((i, 0),), self.hold.depth)
        return replace(axis, variable=variable)

    def follows(self, axis: LoopAxis, w: str) -> bool:
        """Whether a loop cuts a variable of the Einsum into the same tiles as a variable of the consumer."""
        v = self.renamed.get(w)
        return v == axis.variable and v not in self.strides and self.windows[v] == self.hold.plain(w)

    def check_shared(self, own: Sequence[LoopAxis]) -> None:
        """Refuse shared loops below the deciding ones that do not tile the producer and the consumer
        alike."""
        hold = self.hold
        for axis, other in zip(own, hold.theirs.axes[hold.depth :], strict=False):
            if axis.node != other.node:
                break
            if not self.follows(axis, other.variable):
                raise NotSeparable(
                    f"{hold.name} and {hold.consumer.name} share the loop over {other.variable}, inside the "
                    f"one that decides what {hold.name} executes, but with different tiles",
                    code="unsupported-inference",
                )
