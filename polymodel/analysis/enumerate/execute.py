"""The iterations that every Einsum executes, with their stamps: all of them once, or those that consumers
need."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby
from math import prod
from typing import TypeVar

from polymodel.analysis.enumerate.buffets import BuffetWalk, settle
from polymodel.analysis.enumerate.walk import (
    POINT_LIMIT,
    EinsumWalk,
    Element,
    ExecutedOperation,
    Place,
    SpatialLoop,
    StampLocator,
    Time,
    nodes_above,
    points,
)
from polymodel.analysis.result import Problem
from polymodel.errors import Refused
from polymodel.mapping.looptree import (
    ComputeNode,
    Loop,
    PathStep,
    Split,
    StorageNode,
    storage_chain,
    ties,
    users,
)
from polymodel.reuse import Reuse
from polymodel.workload.einsum import Einsum

Point = tuple[int, ...]
C = TypeVar("C", int, int | None)
UNBOUND = 0  # radix of a spatial loop in an Einsum that it does not bind, until all Einsums are walked
Stamp = tuple[Time, Place]  # numbers of loops and splits down to the decision


def walk_all(problem: Problem, reuse: Reuse | None = None) -> dict[str, EinsumWalk]:
    """One walk per Einsum of the tree, in order of execution. Raises Refused for too many points."""
    execution = _Execution(problem, reuse)
    for name in reversed(problem.tree.einsums):
        execution.walk(name)
    return _same_radices(
        problem, _all_radices({name: execution.walks[name] for name in problem.tree.einsums})
    )


def _all_radices(walks: dict[str, EinsumWalk]) -> dict[str, EinsumWalk]:
    """Give spatial loops that bind nothing of an Einsum the radix of those that they bind.

    It is known only now: what an Einsum executes may depend on an Einsum that the loop does not bind.
    """
    known: dict[int, int] = {}
    for loop in (x for walk in walks.values() for x in walk.spatial):
        known[loop.node] = max(known.get(loop.node, UNBOUND), loop.radix)
    return {
        name: replace(
            walk,
            spatial=tuple(replace(x, radix=known[x.node]) if x.radix == UNBOUND else x for x in walk.spatial),
        )
        for name, walk in walks.items()
    }


def _same_radices(problem: Problem, walks: dict[str, EinsumWalk]) -> dict[str, EinsumWalk]:
    """If Einsums differ in trips, a loop has for each of them the radix of the one with most trips."""
    most: dict[int, int] = {}
    for loop in (x for walk in walks.values() for x in walk.spatial):
        most[loop.node] = max(most.get(loop.node, 1), loop.radix)
    return {
        name: replace(walk, spatial=tuple(replace(x, radix=most[x.node]) for x in walk.spatial))
        if problem.tree.differs(name)
        else walk
        for name, walk in walks.items()
    }


class _Execution:
    """Walks Einsums, consumers first, since what they need decides what their producers execute."""

    def __init__(self, problem: Problem, reuse: Reuse | None) -> None:
        self.problem, self.reuse = problem, reuse
        self.walks: dict[str, EinsumWalk] = {}
        self.open: set[str] = set()
        self.total = 0

    def walk(self, name: str) -> EinsumWalk:
        if name in self.walks:
            return self.walks[name]
        if name in self.open:
            message = f"what {name} executes depends on itself: no Einsum below a loop binds it"
            remedy = "bind a rank variable of each Einsum with rank_variable: {Einsum: variable}"
            raise Refused(message, remedy, code="illegal-dependence")
        self.open.add(name)
        einsum = self.problem.cascade[name]
        _refuse_size(einsum)
        locator = StampLocator(self.problem, einsum)
        result = self.decided(locator)
        self.walks[name] = result
        self.total += len(result.operations)
        if self.total > POINT_LIMIT:
            what = f"{self.total} operations are too many to enumerate"
            raise Refused(what, "use engine exact", code="too-large")
        return result

    def decided(self, locator: StampLocator) -> EinsumWalk:
        """The walk of one Einsum."""
        einsum, kinds = locator.einsum, set(locator.ties.values())
        if kinds <= {"bound"}:
            stamps: Iterable[tuple[Stamp, list[Point]]] = [(((), ()), list(points(einsum)))]
        elif "inferred" in kinds:
            stamps = self.inferred(locator)
        else:
            stamps = self.repeated(locator)
        operations: list[ExecutedOperation] = []
        widest: dict[str, int] = {}
        done: set[Point] = set()
        for stamp, mine in stamps:
            done.update(mine)
            starts = _starts(einsum, mine) if "inferred" in kinds else {}
            for v, (low, high) in starts.items():
                widest[v] = max(widest.get(v, 1), high - low + 1)
            operations += _located(locator, stamp, mine, {v: low for v, (low, _) in starts.items()})
        operations.sort(key=lambda o: (o.time, o.place))
        compute = locator.path[-1].node
        assert isinstance(compute, ComputeNode)
        return EinsumWalk(
            einsum,
            compute,
            self.spatial(locator, widest),
            nodes_above(self.problem.tree, einsum.name),
            tuple(operations),
            _depth(locator),
            "inferred" in kinds,
            None if "inferred" in kinds else next((p for p in points(einsum) if p not in done), None),
            0 if "inferred" in kinds else _afresh(locator, operations),
        )

    def spatial(self, locator: StampLocator, widest: dict[str, int]) -> tuple[SpatialLoop, ...]:
        """The spatial loops of a path; one that binds nothing here has no radix yet."""
        radices = locator.radices(self.problem, widest)
        result = []
        for step in locator.path:
            node = step.node
            if not isinstance(node, Loop) or not node.spatial:
                continue
            variable = node.variable_in(locator.einsum.name)
            radix = radices.get(step.id, UNBOUND)
            result.append(SpatialLoop(step.id, node.component, node.dim, variable, radix))
        return tuple(result)

    def binding(self, locator: StampLocator, node: int) -> list[str]:
        """Einsums below a loop that have its rank variable."""
        below = users(self.problem.tree, node)
        return [e for e in below if ties(self.problem.cascade, self.problem.tree, e)[node] == "bound"]

    def repeated(self, locator: StampLocator) -> Iterable[tuple[Stamp, list[Point]]]:
        """All iterations, at every stamp of the Einsums that the loops bind."""
        last = locator.above[-1].id
        for step in locator.above:
            node = step.node
            if isinstance(node, Loop) and node.spatial and locator.ties[step.id] == "repeated":
                raise Refused(
                    f"{locator.einsum.name} would execute completely in every instance of "
                    f"{node.component}.{node.dim} at the same time",
                    "move that loop into the branches that have its rank variable",
                    code="illegal-dependence",
                )
        depth = _depth(locator)
        stamps = {
            (o.time[: depth[0]], o.place[: depth[1]])
            for e in self.binding(locator, last)
            for o in self.walk(e).operations
        }
        everything = list(points(locator.einsum))
        for stamp in sorted(stamps):
            yield stamp, _bound_to(locator, stamp, everything)

    def inferred(self, locator: StampLocator) -> Iterable[tuple[Stamp, list[Point]]]:
        """What the consumers below need at each stamp and the outermost storage does not hold."""
        einsum, tree = locator.einsum, self.problem.tree
        last = locator.above[-1].id
        if locator.ties[last] != "inferred":
            raise Refused(
                f"{einsum.name} stands below a loop that its consumers do not share, inside one that they do",
                "move that loop into the branch that has its rank variable",
                code="unsupported-inference",
            )
        if len(einsum.outputs) > 1:
            message = f"{einsum.name} has several outputs, and what it executes is inferred"
            raise Refused(message, code="unsupported-inference")
        tensor = einsum.outputs[0].tensor
        depth = _depth(locator)
        needed: dict[Stamp, set[Element]] = defaultdict(set)
        home = storage_chain(tree, einsum.name, tensor)[0]
        assert isinstance(home.node, StorageNode)
        times, places = nodes_above(tree, einsum.name)[home.id]
        buffet = BuffetWalk(
            node=home.id,
            component=home.node.component,
            tensor=tensor,
            policy=self.reuse or home.node.reuse,
            parent=None,
            depth=0,
            users=(),
            writer=None,
            n_time=times,
            n_place=places,
            loops=(),
        )
        for consumer in self.problem.cascade.consumers(tensor):
            if consumer.name not in tree.paths or consumer.name == einsum.name:
                continue
            walk = self.walk(consumer.name)
            for o, x in walk.touches(tensor, writes=False):
                buffet.touch(o.time, o.place, x, 0, consumer.name, False)
                if consumer.name in users(tree, last):
                    needed[o.time[: depth[0]], o.place[: depth[1]]].add(x)
        between = [s for s in locator.below if isinstance(s.node, Loop) and s.id < home.id]
        if between and buffet.policy.carries:
            raise Refused(
                f"{tensor} stays from visit to visit inside loops of {einsum.name} that are inside the loop "
                "which decides what it executes",
                f"store {tensor} above these loops, or use reuse: refill",
                code="unsupported-inference",
            )
        settle(buffet)
        makers: dict[Element, list[Point]] = defaultdict(list)
        access = einsum.outputs[0]
        for values in points(einsum):
            point = dict(zip(einsum.rank_variables, values, strict=True))
            makers[tuple(e.value(point) for e in access.projection)].append(values)
        for stamp, missing in _missing(needed, buffet, einsum, depth[0]):
            mine = [values for x in sorted(missing) for values in makers.get(x, ())]
            yield stamp, _bound_to(locator, stamp, mine)


def _missing(
    needed: dict[Stamp, set[Element]], buffet: BuffetWalk, einsum: Einsum, depth: int
) -> Iterable[tuple[Stamp, set[Element]]]:
    """Per stamp, what is needed and not yet held in the buffet's instance."""
    held: dict[Place, set[Element]] = defaultdict(set)
    visit: Time | None = None
    for time, group in groupby(sorted(needed), key=lambda stamp: stamp[0]):
        now = time[: buffet.n_time]
        # Visits of the buffet that this Einsum skips still decide what stays.
        for t in [t for t in buffet.visits if (visit is None or t[:depth] > visit) and t[:depth] <= now]:
            for p in set(held) | set(buffet.tiles[t]):
                held[p] &= buffet.carried[t].get(p, set())
        visit = now
        made: dict[Place, set[Element]] = defaultdict(set)
        for stamp in group:
            where = stamp[1][: buffet.n_place]
            missing = needed[stamp] - held[where]
            if missing & made[where]:
                raise Refused(
                    f"several instances of {einsum.name} would produce the same elements of {buffet.tensor} "
                    f"into {buffet.component} at one time",
                    f"store {buffet.tensor} below the spatial loop, or make that loop temporal",
                    code="illegal-dependence",
                )
            made[where] |= missing
            if missing:
                yield stamp, missing
        for p, elements in made.items():
            held[p] |= elements


def _depth(locator: StampLocator) -> tuple[int, int]:
    """The numbers of time and space coordinates of the path down to the decision."""
    spatial = sum(1 for s in locator.above if isinstance(s.node, Loop) and s.node.spatial)
    stamped = sum(1 for s in locator.above if isinstance(s.node, Loop | Split))
    return stamped - spatial, spatial


def _afresh(locator: StampLocator, operations: list[ExecutedOperation]) -> int:
    """The number of time coordinates down to the innermost loop that has several iterations and repeats the
    Einsum in each."""
    result = position = 0
    for step in locator.path:
        if not isinstance(step.node, Loop | Split) or (isinstance(step.node, Loop) and step.node.spatial):
            continue
        if locator.ties.get(step.id) == "repeated" and len({o.time[position] for o in operations}) > 1:
            result = position + 1
        position += 1
    return result


def _bound_to(locator: StampLocator, stamp: Stamp, candidates: list[Point]) -> list[Point]:
    """The candidates that the bound loops above the decision execute at this stamp."""
    result = []
    for values in candidates:
        point = dict(zip(locator.einsum.rank_variables, values, strict=True))
        time, place = _separate(locator.above, locator.outer(point)[0])
        fits = zip((*time, *place), (*stamp[0], *stamp[1]), strict=True)
        if all(mine is None or mine == theirs for mine, theirs in fits):
            result.append(values)
    return result


def _starts(einsum: Einsum, mine: list[Point]) -> dict[str, tuple[int, int]]:
    """Smallest and largest executed value of every rank variable."""
    columns = zip(*mine, strict=True)
    return {v: (min(c), max(c)) for v, c in zip(einsum.rank_variables, columns, strict=False)}


def _located(
    locator: StampLocator, stamp: Stamp, mine: list[Point], starts: dict[str, int]
) -> Iterable[ExecutedOperation]:
    einsum = locator.einsum
    for values in mine:
        point = dict(zip(einsum.rank_variables, values, strict=True))
        inner, offsets = locator.inner(point, locator.outer(point)[1], starts)
        time, place = _separate(locator.below, inner)
        elements = tuple(
            tuple(e.value(point) for e in a.projection) if all(c.holds(point) for c in a.guard) else None
            for a in einsum.accesses
        )
        yield ExecutedOperation((*stamp[0], *time, *offsets), (*stamp[1], *place), elements)


def _separate(path: Iterable[PathStep], stamp: tuple[C, ...]) -> tuple[tuple[C, ...], tuple[C, ...]]:
    """Coordinates in path order as (time, place)."""
    time: list[C] = []
    place: list[C] = []
    coordinates = iter(stamp)
    for step in path:
        node = step.node
        if isinstance(node, Loop | Split):
            (place if isinstance(node, Loop) and node.spatial else time).append(next(coordinates))
    return tuple(time), tuple(place)


def _refuse_size(einsum: Einsum) -> None:
    if prod(high - low + 1 for low, high in einsum.bounds) > 4 * POINT_LIMIT:
        message = f"the iteration space of {einsum.name} is too large to enumerate"
        raise Refused(message, "use engine exact", code="too-large")
