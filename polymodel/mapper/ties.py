"""Tied rank variables (padded windows, masks, bands) that are spread over fanouts: the part of each
instance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from polymodel.analysis.symbolic.regions import Region, What, numbered
from polymodel.mapper.records import ALIKE
from polymodel.mapper.windows import POINTS, Elements, Tie

if TYPE_CHECKING:
    from polymodel.mapper.records import FanoutDimension

Array = Any

# Instances have unequal shares. Below the loops that separate the tiles of one term (`each`), instances may
# hold what they need together (`joined`), and of the instances of a component (`instance`) the busiest one
# counts. The busiest instance is taken to be the one with the most points of every pair. Spreads in which
# another instance has more of anything else are dropped: the figures of a component would be those of two
# instances.

MOST_SPREAD = 2**16  # points of a pair that may be spread, or along which nodes may slide
# Loops over a variable, outermost first: the tile size and the role of each. Of a node that slides, an
# iteration of the loop along which it does (`slides`) counts only what the same instance did not need in the
# iteration before, and instances that hold the rest together are told apart for this (`shared`).
Role = Literal["each", "joined", "instance", "shared", "slides"]
Cuts = tuple[tuple[int, Role], ...]
CutPair = tuple[Cuts, Cuts]  # of both variables


def is_counted(region: Region) -> bool:
    """Return whether a pair has few enough points to be spread, and for nodes to slide along it."""
    return Tie(0, 1, region).points <= MOST_SPREAD


def spreads(tie: Tie, fan: FanoutDimension) -> bool:
    """Return whether a pair may be spread over a fanout: not over a mesh whose hops have a cost, and
    instances share all common data or nothing."""
    return fan.topology in ALIKE and (fan.overlapping or not fan.reuses) and is_counted(tie.region)


def shortest(extent: int, cuts: Iterable[tuple[int, str]]) -> Cuts:
    """Cuts without loops of one iteration, and only the innermost of consecutive loops of the same kind."""
    result: list[Any] = []
    now = extent
    for size, kind in cuts:
        if size == now:
            continue
        now = size
        if result and result[-1][1] == kind:
            result.pop()
        result.append((size, kind))
    while result and result[-1][1] == "joined":
        result.pop()
    return tuple(result)


@lru_cache(maxsize=2**16)
def cuts_of(extent: int, sizes: tuple[int, ...], kinds: tuple[tuple[str, ...], ...]) -> tuple[Cuts, ...]:
    """The shortest cuts of several terms, whose tile sizes are concatenated."""
    each = iter(sizes)
    return tuple(shortest(extent, [(next(each), kind) for kind in some]) for some in kinds)


def of_instances(tie: Tie, cuts: CutPair, elements: Elements) -> Array:
    """Elements of all groups of tiles, by the instance that has them; read-only."""
    return _of_instances(tie.region, *cuts, *elements)


def of_busiest(tie: Tie, points: CutPair, cuts: CutPair, elements: Elements) -> int:
    """Elements of the instance with the most points."""
    return int(of_instances(tie, cuts, elements)[_busiest(tie, points)])


def is_busiest(
    tie: Tie, points: CutPair, cuts: CutPair, elements: Elements, without: CutPair | None = None
) -> bool:
    """Return whether the instance with the most points also has the most elements.

    `without`: elements to exclude; they must be the smallest fraction of that instance's elements.
    """
    at, mine = _busiest(tie, points), of_instances(tie, cuts, elements)
    if without is None:
        return bool((mine <= mine[at]).all())
    out = of_instances(tie, without, elements)
    return bool((out[at] * mine <= out * mine[at]).all())


def _busiest(tie: Tie, points: CutPair) -> int:
    return int(np.argmax(of_instances(tie, points, POINTS)))


@lru_cache(maxsize=2**15)
def _of_instances(region: Region, u: Cuts, v: Cuts, what: What, rank: tuple[int, int]) -> Array:
    rows, columns = _points(region)
    if any(kind == "slides" for _, kind in (*u, *v)):
        some = _entering(region, u, v, rank)
        rows, columns = rows[some], columns[some]
    (group_u, at_u, many_u), (group_v, at_v, many_v) = (
        _labels(extent, cuts) for extent, cuts in zip(region.extents, (u, v), strict=True)
    )
    one, two = group_u[rows], group_v[columns]
    instance = at_u[rows] * many_v + at_v[columns]
    if what == "both":
        return np.bincount(instance, minlength=many_u * many_v)
    if what == "u":
        one = rows
    elif what == "v":
        two = columns
    key = one * (int(two.max(initial=0)) + 1) + two
    if what == "rank":
        value, many = _values(rank, rows, columns)
        key = key * many + value
    _, first = np.unique(key, return_index=True)
    return np.bincount(instance[first], minlength=many_u * many_v)


def _values(rank: tuple[int, int], rows: Array, columns: Array) -> tuple[Array, int]:
    """The element of the rank at each point, from 0 on, and the number of these values."""
    value = rank[0] * rows + rank[1] * columns
    value = value - value.min(initial=0)
    return value, int(value.max(initial=0)) + 1


def _entering(region: Region, u: Cuts, v: Cuts, rank: tuple[int, int]) -> Array:
    """Points, one per element, at which an instance has an element of the rank that it did not have in the
    iteration before of the loop along which its node slides."""
    rows, columns = _points(region)
    value, many = _values(rank, rows, columns)
    place, step = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    for extent, cuts, at in zip(region.extents, (u, v), (rows, columns), strict=True):
        apart, steps = _apart(extent, cuts)
        place = place * (int(apart.max(initial=0)) + 1) + apart[at]
        step = step + steps[at]
    key = (place * (int(step.max(initial=0)) + 2) + step + 1) * many + value
    keys, first = np.unique(key, return_index=True)
    return first[~np.isin(keys - many, keys, assume_unique=True)]


@lru_cache(maxsize=64)
def _points(region: Region) -> tuple[Array, Array]:
    """The values of both variables for every point."""
    row, low, high = region.rows
    count = high - low + 1
    return np.repeat(row, count), np.repeat(low, count) + numbered(count)


@lru_cache(maxsize=2**12)
def _labels(extent: int, cuts: Cuts) -> tuple[Array, Array, int]:
    """The group and the instance of every value of a variable, and the number of instances."""
    group, instance, many = np.zeros(extent, np.int64), np.zeros(extent, np.int64), 1
    for trips, number, kind in _numbered(extent, cuts):
        if kind not in ("joined", "shared"):
            group = group * trips + number
        if kind == "instance":
            instance, many = instance * trips + number, many * trips
    return group, instance, many


@lru_cache(maxsize=2**12)
def _apart(extent: int, cuts: Cuts) -> tuple[Array, Array]:
    """For every value of a variable, the iteration of all other loops and instances that tell tiles apart,
    and that of the loop along which the node slides."""
    place, step = np.zeros(extent, np.int64), np.zeros(extent, np.int64)
    for trips, number, kind in _numbered(extent, cuts):
        if kind == "slides":
            step = number
        elif kind != "joined":
            place = place * trips + number
    return place, step


def _numbered(extent: int, cuts: Cuts) -> Iterator[tuple[int, Array, Role]]:
    """Per loop: its number of iterations, the iteration of every value, and its role."""
    rest, now = np.arange(extent), extent
    for size, kind in cuts:
        yield -(-now // size), rest // size, kind
        rest, now = rest % size, size
