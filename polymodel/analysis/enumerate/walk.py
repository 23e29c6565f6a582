"""Every operation of a mapping, one by one: when it runs, where, and which elements it touches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from polymodel.analysis.result import Problem
from polymodel.errors import Refused
from polymodel.mapping.looptree import (
    ComputeNode,
    Loop,
    LoopTree,
    PathStep,
    Split,
    decided_above,
    tie,
    ties,
    users,
)
from polymodel.workload.einsum import Cascade, Einsum

Time = tuple[int, ...]
Place = tuple[int, ...]
Element = tuple[int, ...]

POINT_LIMIT = 300_000


@dataclass(frozen=True)
class ExecutedOperation:
    """One iteration: its time, its spatial counters, and one element per access (None for an access without
    one)."""

    time: Time
    place: Place
    elements: tuple[Element | None, ...]


@dataclass(frozen=True)
class SpatialLoop:
    """A spatial loop on a path; `radix`: the maximum number of counters."""

    node: int
    component: str
    dim: str
    variable: str
    radix: int


@dataclass(frozen=True)
class EinsumWalk:
    """All operations of one Einsum in order of time, then place.

    `above`: for each node on the path, the numbers of time coordinates (temporal loops and splits) and of
    spatial loops above it. `decided`: the same numbers down to the innermost loop that binds no variable of
    the Einsum; what executes is decided per stamp of these, (0, 0) if every loop binds one. `inferred`: only
    what consumers below that loop need executes. `lacking`: a point that never executes, of an Einsum that
    should execute completely again. `afresh`: the number of time coordinates down to the innermost loop of
    several iterations that executes it again; each value of these starts its results afresh. 0 if there is no
    such loop.
    """

    einsum: Einsum
    compute: ComputeNode
    spatial: tuple[SpatialLoop, ...]
    above: dict[int, tuple[int, int]]
    operations: tuple[ExecutedOperation, ...]
    decided: tuple[int, int] = (0, 0)
    inferred: bool = False
    lacking: tuple[int, ...] | None = None
    afresh: int = 0

    def positions(self, tensor: str) -> tuple[tuple[int, bool], ...]:
        """Which of an operation's elements belong to a tensor, and whether the operation writes them."""
        return tuple((i, a.output) for i, a in enumerate(self.einsum.accesses) if a.tensor == tensor)

    def touches(self, tensor: str, writes: bool) -> Iterator[tuple[ExecutedOperation, Element]]:
        """Every operation with each element of a tensor that it writes (otherwise reads)."""
        for position, output in self.positions(tensor):
            if output is writes:
                for o in self.operations:
                    x = o.elements[position]
                    if x is not None:
                        yield o, x


def number(tile: int | str | None, what: str) -> int:
    """A tile shape as a number; symbols must have values."""
    if isinstance(tile, int):
        return tile
    message = f"{what} is {tile!r}, not a number"
    raise Refused(message, "give every tile-shape symbol a value", code="unbound-symbol")


def loop_range(cascade: Cascade, tree: LoopTree, node: int, loop: Loop, einsum: str) -> tuple[int, int]:
    """Inclusive (low, high) of the range that an outermost loop splits: the hull over the Einsums that it
    binds.

    With tiles per Einsum, the range of the Einsum's own variable.
    """
    if loop.uneven and tie(cascade, tree, einsum, node, loop) == "bound":
        return cascade[einsum].bound(loop.variable_in(einsum))
    boxes = [
        cascade[name].bound(loop.variable_in(name))
        for name in users(tree, node)
        if tie(cascade, tree, name, node, loop) == "bound"
    ]
    if not boxes:
        message = f"no Einsum below the loop over {loop.rank_variable} has that rank variable"
        remedy = "remove the loop, or bind a variable of an Einsum below it"
        raise Refused(message, remedy, code="invalid-loop")
    return min(low for low, _ in boxes), max(high for _, high in boxes)


def points(einsum: Einsum) -> Iterator[tuple[int, ...]]:
    """All points of the iteration space, variable by variable through the bounding box."""
    names = einsum.rank_variables
    for values in product(*(range(low, high + 1) for low, high in einsum.bounds)):
        point = dict(zip(names, values, strict=True))
        if all(c.holds(point) for c in einsum.constraints):
            yield values


class StampLocator:
    """Converts points of one Einsum to (time, place) by walking down its path.

    `above`: the path down to the innermost loop that binds none of its variables; `below`: the rest.
    `extents`: the maximum number of values of a variable below, if that is less than all.
    """

    def __init__(self, problem: Problem, einsum: Einsum) -> None:
        self.einsum = einsum
        self.path = tuple(
            replace(s, node=s.node.within(einsum.name)) if isinstance(s.node, Loop) else s
            for s in problem.tree.path(einsum.name)
        )
        self.ties = ties(problem.cascade, problem.tree, einsum.name)
        last = decided_above(self.ties)
        self.above = tuple(s for s in self.path if s.id <= last)
        self.below = tuple(s for s in self.path if s.id > last)
        self.hulls = {
            s.id: loop_range(problem.cascade, problem.tree, s.id, s.node, einsum.name)
            for s in self.path
            if isinstance(s.node, Loop)
        }

    def outer(self, point: dict[str, int]) -> tuple[tuple[int | None, ...], dict[str, int]]:
        """The stamp of `above` that a point binds (None: any) in path order, and the starts of its tiles."""
        base: dict[str, int] = {}
        return self._descend(self.above, point, base), base

    def inner(
        self, point: dict[str, int], base: dict[str, int], starts: dict[str, int]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The stamp of `below`, and the offsets in the innermost tiles.

        The outermost loop of `below` over a variable starts at `starts`, if that has it.
        """
        base = {**base, **starts}
        stamp = tuple(c for c in self._descend(self.below, point, base) if c is not None)
        return stamp, tuple(point[v] - base.get(v, 0) for v in self.einsum.rank_variables)

    def _descend(
        self, path: tuple[PathStep, ...], point: dict[str, int], base: dict[str, int]
    ) -> tuple[int | None, ...]:
        stamp: list[int | None] = []
        for step in path:
            if isinstance(step.node, Split):
                stamp.append(step.branch)
            elif isinstance(step.node, Loop):
                if self.ties[step.id] != "bound":
                    stamp.append(None)
                    continue
                variable = step.node.variable_in(self.einsum.name)
                begin = base.get(variable, self.hulls[step.id][0])
                counter, base[variable] = tile_of(step.node, begin, point[variable])
                stamp.append(counter)
        return tuple(stamp)

    def radices(self, problem: Problem, largest: dict[str, int]) -> dict[int, int]:
        """The maximum number of counters of each bound loop; `largest`: extents below the decision."""
        extent: dict[str, int] = {}
        result: dict[int, int] = {}
        below = {s.id for s in self.below}
        entered = False
        for step in self.path:
            if not isinstance(step.node, Loop) or self.ties[step.id] != "bound":
                continue
            if step.id in below and not entered:
                extent, entered = {**extent, **largest}, True
            variable = step.node.variable_in(self.einsum.name)
            low, high = self.hulls[step.id]
            if problem.tree.differs(self.einsum.name):  # what no value reaches is no instance
                high = self.einsum.bound(variable)[1]
            width = extent.setdefault(variable, high - low + 1)
            tile, first = tiles(step.node)
            result[step.id] = 1 + -(-max(width - first, 0) // tile)
            extent[variable] = min(width, max(tile, first))
        return result


def tiles(loop: Loop) -> tuple[int, int]:
    """(tile shape, shape of the first tile)."""
    tile = number(loop.tile_shape, f"the tile shape of the loop over {loop.rank_variable}")
    if loop.initial_tile_shape is None:
        return tile, tile
    return tile, number(loop.initial_tile_shape, f"the initial tile shape over {loop.rank_variable}")


def tile_of(loop: Loop, begin: int, value: int) -> tuple[int, int]:
    """The counter of the tile that contains `value`, and the start of that tile."""
    tile, first = tiles(loop)
    if value - begin < first:
        return 0, begin
    counter = 1 + (value - begin - first) // tile
    return counter, begin + first + (counter - 1) * tile


def nodes_above(tree: LoopTree, einsum: str) -> dict[int, tuple[int, int]]:
    times = places = 0
    above: dict[int, tuple[int, int]] = {}
    for step in tree.path(einsum):
        above[step.id] = (times, places)
        if isinstance(step.node, Split) or (isinstance(step.node, Loop) and not step.node.spatial):
            times += 1
        elif isinstance(step.node, Loop):
            places += 1
    return above


def physical(loops: tuple[SpatialLoop, ...], place: Place) -> tuple[tuple[str, str, int], ...]:
    """The hardware instance of a place: one coordinate per fanout dimension, zeros omitted.

    Loops that share a dimension form one coordinate, the outer loop most significant.
    """
    coordinate: dict[tuple[str, str], int] = {}
    for loop, counter in zip(loops, place, strict=False):
        key = (loop.component, loop.dim)
        coordinate[key] = coordinate.get(key, 0) * loop.radix + counter
    return tuple(sorted((c, d, k) for (c, d), k in coordinate.items() if k))
