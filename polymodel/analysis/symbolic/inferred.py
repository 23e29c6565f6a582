"""What executes of Einsums whose rank variables no loop above binds: an interval per rank and stamp.

docs/semantics.md, Loops that bind no rank variable of an Einsum. In a chain in which every rank of an
intermediate is a variable of its own in the producer, and in the consumer a sum of one variable that the
shared loops tile and others that they leave whole, what is needed is a product of intervals, and so is
what is needed and not held: of each rank all that the window gained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from polymodel.analysis.result import Problem
from polymodel.analysis.symbolic.atoms import ONE, atom
from polymodel.analysis.symbolic.counts import settled
from polymodel.analysis.symbolic.forms import Form, of_atom
from polymodel.analysis.symbolic.spaces import Axis, Space, Window
from polymodel.arithmetic import Affine
from polymodel.errors import NotSeparable
from polymodel.mapping.looptree import StorageNode, Tie, decided_above, storage_chain, ties, users
from polymodel.reuse import Reuse
from polymodel.workload.einsum import Einsum, TensorAccess

EXACT = "use engine exact"


@dataclass(frozen=True)
class Path:
    """The loops above an Einsum's operations.

    `depth`: how many of them decide what it executes. `inferred`: that is what consumers need, and not all
    that it has once more. `once`: loops (by position) in whose first iteration alone it executes.
    """

    axes: tuple[Axis, ...]
    windows: tuple[tuple[str, Window], ...] = ()
    depth: int = 0
    inferred: bool = False
    once: frozenset[int] = frozenset()


class Undecided(Exception):
    """Whether the loop `node` has one trip only decides what stays: `settled` is 1 where it has."""

    def __init__(self, node: int, settled: Form) -> None:
        super().__init__(node)
        self.node, self.settled = node, settled


def paths(problem: Problem, reuse: Reuse | None, single: Mapping[int, bool]) -> dict[str, Path]:
    """The path of every Einsum; NotSeparable where what executes is no product of intervals.

    `single`: of loops (by node id) whether they have one trip only, where symbols do not tell.
    """
    inference = _Inference(problem, reuse, single)
    for name in reversed(problem.tree.einsums):
        inference.of(name)
    return {name: inference.found[name] for name in problem.tree.einsums}


class _Inference:
    def __init__(self, problem: Problem, reuse: Reuse | None, single: Mapping[int, bool]) -> None:
        self.problem, self.reuse, self.single = problem, reuse, single
        self.found: dict[str, Path] = {}
        self.open: set[str] = set()

    def of(self, name: str) -> Path:
        if name not in self.found:
            if name in self.open:
                raise NotSeparable(f"what {name} executes depends on itself", EXACT)
            self.open.add(name)
            tree = self.problem.tree
            kinds = ties(self.problem.cascade, tree, name)
            loops = tree.loops(name)
            axes = tuple(Axis(loop.variable_in(name), loop.tile_shape, loop, i) for i, loop in loops)
            if set(kinds.values()) <= {"bound"}:
                self.found[name] = Path(axes)
            elif set(kinds.values()) <= {"bound", "repeated"}:
                self.found[name] = self.repeated(name, kinds, axes)
            else:
                self.found[name] = self.inferred(name, kinds, axes)
        return self.found[name]

    def repeated(self, name: str, kinds: dict[int, Tie], axes: tuple[Axis, ...]) -> Path:
        """An Einsum that executes all over again at each step of loops over variables of others."""
        cascade, tree = self.problem.cascade, self.problem.tree
        extents: dict[str, int] = {}
        renamed, depth = [], 0
        for i, axis in enumerate(axes):
            if kinds[axis.node] == "bound":
                renamed.append(axis)
                continue
            other = next(e for e in users(tree, axis.node) if ties(cascade, tree, e)[axis.node] == "bound")
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
                        f"{name} executes all over again below a loop over {w} that splits its own tiles",
                        EXACT,
                    )
        windows = ((v, Window(extent, 0, 1, 0, (), len(axes))) for v, extent in extents.items())
        return Path(tuple(renamed), tuple(windows), depth)

    def one_trip(self, space: Space, axis: int) -> bool:
        """Whether a loop has one trip; Undecided where symbols do not tell."""
        node = space.axes[axis].node
        if node in self.single:
            return self.single[node]
        form = settled(space, axis)
        if form.constant is None:
            raise Undecided(node, form)
        return form.constant == 1

    def inferred(self, name: str, kinds: dict[int, Tie], axes: tuple[Axis, ...]) -> Path:
        depth = sum(1 for i in kinds if i <= decided_above(kinds))
        consumer = self.consumer(name, kinds, axes, depth)
        hold = _Hold(self, name, consumer, self.of(consumer.name), depth)
        if hold.theirs.inferred and hold.theirs.depth < depth:
            raise NotSeparable(
                f"{name} is inferred from own tiles of {consumer.name}, which is inferred too", EXACT
            )
        einsum, tensor = self.problem.cascade[name], hold.tensor
        windows: dict[str, Window] = {}
        renamed: dict[str, str] = {}
        for mine, theirs in zip(
            einsum.outputs[0].projection, consumer.access_of(tensor).projection, strict=True
        ):
            terms = [(v, c) for v, c in mine.terms if c]
            if len(terms) != 1 or terms[0][1] != 1:
                raise NotSeparable(f"{name} makes {tensor} along {mine}, no variable of its own", EXACT)
            v = terms[0][0]
            windows[v] = hold.window(theirs, mine.constant)
            _refuse_outside(einsum, v, windows[v])
            renamed |= {w: v for w, c in theirs.terms if c}
        outer = []
        once: set[int] = set(hold.theirs.once)
        repeats: set[str] = set()
        for i, axis in enumerate(axes[:depth]):
            w = hold.theirs.axes[i].variable
            if w not in renamed or renamed[w] in repeats:
                # Each loop over such a variable by itself: an inner one may stand below the storage.
                again = w if "." in w else f"{consumer.name}.{w}"
                if hold.once(i, kinds[axis.node]):
                    again = f"{again}.{axis.node}"  # outer loops over it may make the tile again
                    windows[again] = Window(1, 0, 1, 0, ((i, 0),), depth)
                    outer.append(replace(axis, variable=again))
                    once.add(i)
                    continue
                windows[again] = hold.repetition(i)
                renamed[w] = again
                repeats.add(again)
            elif kinds[axis.node] == "bound" and not (
                renamed[w] == axis.variable and windows[axis.variable] == hold.plain(w)
            ):
                raise NotSeparable(
                    f"the loop over {w} binds {name} too, but not to what {consumer.name} needs of it", EXACT
                )
            outer.append(replace(axis, variable=renamed[w]))
        for axis, other in zip(axes[depth:], hold.theirs.axes[depth:], strict=False):
            if axis.node != other.node:
                break
            own = renamed.get(other.variable) == axis.variable
            if not own or windows[axis.variable] != hold.plain(other.variable):
                raise NotSeparable(
                    f"{name} and {consumer.name} share the loop over {other.variable} inside the one that "
                    f"decides what {name} executes, and not tile by tile",
                    EXACT,
                )
        first = frozenset(i for i in once if i < depth)
        return Path((*outer, *axes[depth:]), tuple(windows.items()), depth, True, first)

    def consumer(self, name: str, kinds: dict[int, Tie], axes: tuple[Axis, ...], depth: int) -> Einsum:
        """The only consumer; NotSeparable for other shapes of trees."""
        cascade, tree = self.problem.cascade, self.problem.tree
        einsum = cascade[name]
        if "repeated" in kinds.values() or einsum.is_copy:
            raise NotSeparable(
                f"{name} executes all over again below loops that do not bind it, and what others need", EXACT
            )
        readers = [
            c
            for a in einsum.outputs
            for c in cascade.consumers(a.tensor)
            if c.name in tree.paths and c.name != name
        ]
        several = any(len(c.accesses_of(a.tensor)) > 1 for a in einsum.outputs for c in readers)
        if len(einsum.outputs) != 1 or len(readers) != 1 or readers[0].is_copy or several:
            raise NotSeparable(f"what {name} executes is inferred, but not from one consumer", EXACT)
        if any(a.spatial for a in axes[:depth]):
            raise NotSeparable(f"what instances of a spatial loop execute of {name} is inferred", EXACT)
        return readers[0]


def _refuse_outside(einsum: Einsum, v: str, window: Window) -> None:
    low, high = einsum.bound(v)
    if window.low < low or window.low + window.scale * window.extent + window.start - 1 > high:
        raise NotSeparable(f"more than {einsum.name} can make along {v} is asked for", EXACT)


def _single_trip(extent: int, above: Sequence[Axis], loop: Axis) -> bool | None:
    """Whether a loop has one trip in the widest tile of those above it, where some have other first tiles."""
    only = atom(extent, (*(a.level("widest") for a in above), loop.level("only")), ONE)
    found = of_atom(only).constant
    return None if found is None else found == 1


class _Hold:
    """The intermediate between a producer and its consumer: what is needed of it, and what stays."""

    def __init__(self, inference: _Inference, name: str, consumer: Einsum, theirs: Path, depth: int) -> None:
        problem, self.single = inference.problem, inference.single
        self.name, self.consumer, self.theirs, self.depth = name, consumer, theirs, depth
        self.tensor = problem.cascade[name].outputs[0].tensor
        home = storage_chain(problem.tree, name, self.tensor)[0]
        assert isinstance(home.node, StorageNode)
        self.policy = inference.reuse or home.node.reuse
        self.above = sum(1 for i, _ in problem.tree.loops(name) if i < home.id)
        inside = self.above > depth and self.policy.carries
        if inside or home.id not in {s.id for s in problem.tree.path(consumer.name)}:
            raise NotSeparable(f"{self.tensor} is not stored above both {name} and {consumer.name}", EXACT)
        self.access = consumer.access_of(self.tensor)

    def positions(self, w: str) -> list[int]:
        return [i for i, a in enumerate(self.theirs.axes[: self.depth]) if a.variable == w]

    def plain(self, w: str) -> Window:
        """All of a consumer's variable that executes, under the shared loops."""
        found = dict(self.theirs.windows).get(w)
        if found is None:
            low, high = self.consumer.bound(w)
            found = Window(high - low + 1, low, 1, 0, tuple((i, 0) for i in self.positions(w)), 0)
        later = tuple((i, more) for i, more in found.later if i < self.depth)
        return replace(found, later=later, depth=self.depth)

    def window(self, expr: Affine, shift: int) -> Window:
        """What of a rank executes for the consumer's tiles, in the producer's variable."""
        terms = sorted(((v, c) for v, c in expr.terms if c), key=lambda term: term[1])
        tiled = [(w, c) for w, c in terms if self.positions(w)]
        if len(tiled) > 1:
            raise NotSeparable(
                f"shared loops tile both {tiled[0][0]} and {tiled[1][0]} of rank {expr} of {self.tensor}",
                EXACT,
            )
        reach, low = 1, expr.constant - shift
        for w, c in terms:
            whole = self.plain(w)
            low += c * whole.low
            if (w, c) in tiled:
                continue
            size = whole.scale * whole.extent + whole.start
            if size > 1 and c > reach:
                raise self.holes(expr)
            reach += c * (size - 1)
        if not tiled:
            return Window(reach, low, 1, 0, (), self.depth)
        ((w, c),) = tiled
        theirs = self.plain(w)
        if c > reach:
            raise self.holes(expr)
        more = reach - c
        needed = {i: c * m + more for i, m in theirs.later}
        later = {i: 0 if need and self.stays(i, needed) else need for i, need in needed.items()}
        found = Window(
            theirs.extent, low, c * theirs.scale, c * theirs.start + more, tuple(later.items()), self.depth
        )
        steps = [found.start, *later.values()]
        if steps != sorted(steps, reverse=True):
            raise NotSeparable(f"{self.tensor} stays over outer loops but not over inner ones", EXACT)
        return found

    def holes(self, expr: Affine) -> NotSeparable:
        return NotSeparable(
            f"{self.consumer.name} leaves out parts of {self.tensor} along {expr}: what {self.name} executes "
            "has holes",
            EXACT,
        )

    def stays(self, axis: int, needed: dict[int, int]) -> bool:
        """Whether what was made before the steps of a loop that tiles this rank is still held."""
        if axis >= self.above or not self.held_over(axis):
            return axis >= self.above  # what is made in a visit is there until its end
        mine = self.theirs.axes[axis].variable
        if any(needed[i] != needed[axis] for i in needed if axis < i < self.above):
            raise NotSeparable(f"{self.tensor} stays in part over the loop over {mine}", EXACT)
        return True

    def held_over(self, axis: int) -> bool:
        """Whether what was there before a step of a loop stays, as far as it is needed after it."""
        if axis >= self.above:
            return True  # made once in each visit
        if not self.policy.stays_over("moving"):
            return False
        parts_stay = self.policy.stays_over("outer")
        mine = self.theirs.axes[axis].variable
        inner = [
            i for i in range(axis + 1, self.above) if self.theirs.axes[i].variable in self.access.variables
        ]
        if parts_stay:
            inner = [i for i in inner if self.theirs.axes[i].variable != mine]
        trips = [self.single_trip(i) for i in inner]
        if False in trips:
            if parts_stay and any(self.overlaps(i) for i in inner):
                raise NotSeparable(
                    f"under {self.policy}, {self.tensor} stays in part where an inner loop wraps",
                    "use reuse: slide, or engine exact",
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
        """Whether the loop at `axis` has one trip, however large its enclosing tile; None: open."""
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
        """Whether a loop over a variable that the intermediate does not have makes it in its first iteration
        only, and not again at every step."""
        w = self.theirs.axes[axis].variable
        if kind == "bound":
            raise NotSeparable(
                f"the loop over {w} binds {self.name}, but not along {self.tensor}, which does not have {w}",
                f"move that loop below the split, or use {EXACT[4:]}",
            )
        return self.held_over(axis)

    def repetition(self, axis: int) -> Window:
        """A loop over a variable that the intermediate does not have, which makes it again at every step."""
        w = self.theirs.axes[axis].variable
        whole = self.plain(w)
        return Window(whole.extent, 0, 1, 0, tuple((i, 0) for i in self.positions(w)), self.depth)
