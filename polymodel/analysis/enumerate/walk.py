"""Every operation of a mapping, one by one: when it runs, where, and which elements it touches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod

from polymodel.analysis.engine import Problem
from polymodel.errors import Refused
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Split, StorageNode
from polymodel.mapping.placement import users
from polymodel.workload.einsum import Cascade, Einsum

Time = tuple[int, ...]
Place = tuple[int, ...]
Element = tuple[int, ...]

POINT_LIMIT = 300_000


@dataclass(frozen=True)
class Operation:
    """One iteration: its operation time, its spatial counters, one element per access of the Einsum."""

    time: Time
    place: Place
    elements: tuple[Element, ...]


@dataclass(frozen=True)
class SpatialLoop:
    """A spatial loop on a path; `radix` is how many counters it has at most."""

    node: int
    component: str
    dim: str
    variable: str
    radix: int


@dataclass(frozen=True)
class EinsumWalk:
    """All operations of one Einsum in order of time, then place.

    `above` gives, for each node on the path, how many time coordinates (temporal loops and
    splits) and how many spatial loops stand above it.
    """

    einsum: Einsum
    compute: ComputeNode
    spatial: tuple[SpatialLoop, ...]
    above: dict[int, tuple[int, int]]
    operations: tuple[Operation, ...]


def number(tile: int | str | None, what: str) -> int:
    """A tile shape as a number; symbols must have been given values before."""
    if isinstance(tile, int):
        return tile
    raise Refused(f"{what} is {tile!r}, not a number", "give every tile-shape symbol a value")


def loop_range(cascade: Cascade, tree: LoopTree, node: int, loop: Loop) -> tuple[int, int]:
    """Inclusive (low, high) that an outermost loop splits: the hull over the Einsums below it."""
    boxes = []
    for name in users(tree, node):
        variable = loop.variable_in(name)
        if variable not in cascade[name].rank_variables:
            raise Refused(
                f"Einsum {name} stands below a loop over {variable}, which it does not have",
                "put the loop into the branches that have the variable, or bind one with per_einsum",
            )
        boxes.append(cascade[name].bound(variable))
    return min(low for low, _ in boxes), max(high for _, high in boxes)


def points(einsum: Einsum) -> Iterator[tuple[int, ...]]:
    """All points of the iteration space, variable by variable through the bounding box."""
    names = einsum.rank_variables
    for values in product(*(range(low, high + 1) for low, high in einsum.bounds)):
        point = dict(zip(names, values, strict=True))
        if all(c.holds(point) for c in einsum.constraints):
            yield values


class _Locator:
    """Turns points of one Einsum into (time, place) by walking down its path."""

    def __init__(self, problem: Problem, einsum: Einsum) -> None:
        self.einsum = einsum
        self.path = problem.tree.path(einsum.name)
        self.start: dict[int, int] = {}
        self.radix: dict[int, int] = {}
        extent: dict[str, int] = {}
        for step in self.path:
            if not isinstance(step.node, Loop):
                continue
            loop, variable = step.node, step.node.variable_in(einsum.name)
            low, high = loop_range(problem.cascade, problem.tree, step.id, loop)
            if variable not in extent:
                self.start[step.id] = low
                extent[variable] = high - low + 1
            tile = number(loop.tile_shape, f"the tile shape of the loop over {variable}")
            first = tile
            if loop.initial_tile_shape is not None:
                first = number(loop.initial_tile_shape, f"the initial tile shape over {variable}")
            rest = max(extent[variable] - first, 0)
            self.radix[step.id] = 1 + -(-rest // tile)
            extent[variable] = min(extent[variable], max(tile, first))

    def locate(self, values: tuple[int, ...]) -> tuple[Time, Place]:
        point = dict(zip(self.einsum.rank_variables, values, strict=True))
        base: dict[str, int] = {}
        time: list[int] = []
        place: list[int] = []
        for step in self.path:
            if isinstance(step.node, Split):
                time.append(step.branch)
            if not isinstance(step.node, Loop):
                continue
            loop, variable = step.node, step.node.variable_in(self.einsum.name)
            begin = base.get(variable, self.start.get(step.id, 0))
            counter, base[variable] = _tile_of(loop, begin, point[variable])
            (place if loop.spatial else time).append(counter)
        offsets = (point[v] - base.get(v, 0) for v in self.einsum.rank_variables)
        return (*time, *offsets), tuple(place)


def _tile_of(loop: Loop, begin: int, value: int) -> tuple[int, int]:
    """The counter of the tile that holds `value`, and where that tile starts."""
    tile = number(loop.tile_shape, "a tile shape")
    if loop.initial_tile_shape is None:
        counter = (value - begin) // tile
        return counter, begin + counter * tile
    first = number(loop.initial_tile_shape, "an initial tile shape")
    if value - begin < first:
        return 0, begin
    counter = 1 + (value - begin - first) // tile
    return counter, begin + first + (counter - 1) * tile


def _nodes_above(tree: LoopTree, einsum: str) -> dict[int, tuple[int, int]]:
    times = places = 0
    above: dict[int, tuple[int, int]] = {}
    for step in tree.path(einsum):
        above[step.id] = (times, places)
        if isinstance(step.node, Split) or (isinstance(step.node, Loop) and not step.node.spatial):
            times += 1
        elif isinstance(step.node, Loop):
            places += 1
    return above


def walk_einsum(problem: Problem, einsum: Einsum) -> EinsumWalk:
    """Every operation of `einsum`, located in time and space; Refused above POINT_LIMIT points."""
    if len(set(einsum.tensors)) != len(einsum.tensors):
        raise Refused(f"Einsum {einsum.name} accesses one tensor twice", "rename one of the accesses")
    if prod(high - low + 1 for low, high in einsum.bounds) > 4 * POINT_LIMIT:
        raise Refused(f"the iteration space of {einsum.name} is too large to enumerate", "use engine exact")
    locator = _Locator(problem, einsum)
    operations = []
    for values in points(einsum):
        point = dict(zip(einsum.rank_variables, values, strict=True))
        time, place = locator.locate(values)
        elements = tuple(tuple(x.value(point) for x in a.projection) for a in einsum.accesses)
        operations.append(Operation(time, place, elements))
    operations.sort(key=lambda o: (o.time, o.place))
    spatial = tuple(
        SpatialLoop(s.id, s.node.component, s.node.dim, s.node.variable_in(einsum.name), locator.radix[s.id])
        for s in locator.path
        if isinstance(s.node, Loop) and s.node.spatial
    )
    compute = locator.path[-1].node
    assert isinstance(compute, ComputeNode)
    return EinsumWalk(einsum, compute, spatial, _nodes_above(problem.tree, einsum.name), tuple(operations))


def walk_all(problem: Problem) -> dict[str, EinsumWalk]:
    """One walk per Einsum of the tree, in order of execution; Refused if they are too many points."""
    walks = {name: walk_einsum(problem, problem.cascade[name]) for name in problem.tree.einsums}
    total = sum(len(w.operations) for w in walks.values())
    if total > POINT_LIMIT:
        raise Refused(f"{total} operations are too many to enumerate", "use engine exact")
    for name, walk in walks.items():
        for tensor in walk.einsum.tensors:
            held = any(
                isinstance(s.node, StorageNode) and tensor in s.node.tensors for s in problem.tree.path(name)
            )
            if not held:
                raise Refused(
                    f"tensor {tensor} of Einsum {name} has no storage", "add a Storage node above it"
                )
    return walks


def physical(loops: tuple[SpatialLoop, ...], place: Place) -> tuple[tuple[str, str, int], ...]:
    """Which hardware instance a place is: one coordinate per fanout dimension, zeros left out.

    Loops that share a dimension form one coordinate, the outer loop most significant.
    """
    coordinate: dict[tuple[str, str], int] = {}
    for loop, counter in zip(loops, place, strict=False):
        key = (loop.component, loop.dim)
        coordinate[key] = coordinate.get(key, 0) * loop.radix + counter
    return tuple(sorted((c, d, k) for (c, d), k in coordinate.items() if k))
