"""The executed iterations of inferred Einsums, as values, if they are not a product of intervals.

A consumer needs those elements of an intermediate that its points touch at a stamp; of these, the producer
executes the ones that the storage of the intermediate does not hold. Along rank variables whose windows have
holes, reach into padding, or are coupled with others by bounds, both are listed, once for each choice of tile
sizes: the points of the consumer with the counters of the deciding loops, then the values of the producer
that these points need and that are not held. All deciding loops are considered together, so that the actual
steps determine what stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from polymodel.analysis.symbolic.regions import (
    MadeRegion,
    NeededRegion,
    Region,
    Tiles,
    numbered,
    repeated,
    values_under,
)
from polymodel.errors import NotSeparable

Ints = Any
MOST_ROWS = 2**20
FEW = 2**17  # up to this many combinations of values, executed iterations are cached for many tile sizes


@dataclass(frozen=True)
class Rows:
    """Points. Each has the counters of some loops, outermost first, and the values of some variables."""

    counters: Ints
    values: Ints


def rows_of(region: Region, tiles: Sequence[Tiles], order: Sequence[int], wanted: Sequence[bool]) -> Rows:
    """The points of a region under tiles of its variables.

    `order`: the variable of each loop, outermost first. For variables that are not `wanted`, one point of
    each tile gives the value.
    """
    import numpy as np

    if isinstance(region, NeededRegion):
        result = _with_own_loops(region, tiles, order)
    else:
        result = _boxed(region, tuple(tiles), tuple(order), tuple(wanted))
    if all(wanted):
        return result
    rows = np.concatenate([result.counters, result.values * np.array(wanted, np.int64)], axis=1)
    rows = distinct(rows)
    return Rows(rows[:, : len(order)], rows[:, len(order) :])


def distinct(rows: Ints) -> Ints:
    """The distinct rows of a table, in lexicographic order."""
    import numpy as np

    code = coded(rows)
    _, first = np.unique(code, return_index=True)
    return rows[first]


def coded(rows: Ints, like: Ints | None = None) -> Ints:
    """One number for each row of numbers from 0 on, in lexicographic order.

    `like`: other rows that share the numbering.
    """
    import numpy as np

    both = rows if like is None else np.concatenate([rows, like])
    code, size = np.zeros(len(both), np.int64), 1
    for k in range(both.shape[1]):
        width = int(both[:, k].max(initial=0)) + 1
        size *= width
        if size > 2**62:
            raise too_many()
        code = code * width + both[:, k]
    return code


def too_many() -> NotSeparable:
    return NotSeparable("inferred Einsums execute too many iterations to list", code="too-large")


def _boxed(
    region: Region, tiles: tuple[Tiles, ...], order: tuple[int, ...], wanted: tuple[bool, ...]
) -> Rows:
    import numpy as np

    tied = [any(bound[k] for bound in region.bounds) for k in range(len(region.extents))]
    made = region.made if isinstance(region, MadeRegion) else (None,) * len(tiles)
    listed = []
    for k, n in enumerate(region.extents):
        values, counters = values_under(n, tiles[k], made[k])
        if not wanted[k] and not tied[k]:
            columns = distinct(np.stack([*counters, np.zeros_like(values)], axis=1))
            values, counters = np.zeros(len(columns), np.int64), list(columns.T[:-1])
        listed.append((values, counters))
    shape = [len(values) for values, _ in listed]
    if _product(shape) > MOST_ROWS:
        raise too_many()
    grids = np.indices(shape).reshape(len(shape), -1)
    values = np.stack([v[g] for (v, _), g in zip(listed, grids, strict=True)], axis=1)
    there = np.ones(len(values), bool)
    for *factors, constant in region.bounds:
        there &= values @ np.array(factors, np.int64) + constant >= 0
    taken = [0] * len(shape)
    result = np.zeros((len(values), len(order)), np.int64)
    for place, k in enumerate(order):
        result[:, place] = listed[k][1][taken[k]][grids[k]]
        taken[k] += 1
    return Rows(result[there], values[there])


def _product(sizes: Sequence[int]) -> int:
    result = 1
    for n in sizes:
        result *= n
    return result


def counters_of(values: Ints, tiles: Tiles) -> list[Ints]:
    """The counters of nested loops that begin at 0, at values of their variable."""
    import numpy as np

    result = []
    for first, tile in tiles:
        behind = values - first
        counter = np.where(behind < 0, 0, 1 + behind // tile)
        result.append(counter)
        values = np.where(counter > 0, behind - (counter - 1) * tile, values)
    return result


def _with_own_loops(region: NeededRegion, tiles: Sequence[Tiles], order: Sequence[int]) -> Rows:
    """At each stamp of the deciding loops, own loops begin at the smallest value that executes."""
    import numpy as np

    outer = tuple(tiles[region.own :])
    result = executed(region, outer)
    stamp = coded(result.counters)
    _, which = np.unique(stamp, return_inverse=True)
    columns: dict[int, list[Ints]] = {}
    for k in range(region.own):
        values = result.values[:, k]
        low = np.full(int(which.max(initial=-1)) + 1, np.iinfo(np.int64).max)
        np.minimum.at(low, which.reshape(-1), values)
        columns[k] = counters_of(values - low[which.reshape(-1)], tiles[k])
    for place, variable in enumerate(region.over):
        mine = [i for i, v in enumerate(region.loops) if v == variable]
        columns[region.own + place] = [result.counters[:, i] for i in mine]
    taken = [0] * len(tiles)
    counters = np.zeros((len(result.values), len(order)), np.int64)
    for place, k in enumerate(order):
        counters[:, place] = columns[k][taken[k]]
        taken[k] += 1
    more = np.zeros((len(result.values), len(region.over)), np.int64)
    return Rows(counters, np.concatenate([result.values, more], axis=1))


def executed(region: NeededRegion, outer: tuple[Tiles, ...]) -> Rows:
    """The executed iterations: counters of the deciding loops, and values of the Einsum's own variables.

    `outer`: the tiles that these loops cut from the consumer's variables.
    """
    # A sweep uses the same chains at some sizes of tiles again and again.
    return (_executed_of_few if _product(region.extents) <= FEW else _executed_of_many)(region, outer)


@lru_cache(maxsize=1024)
def _executed_of_few(region: NeededRegion, outer: tuple[Tiles, ...]) -> Rows:
    return _executed(region, outer)


@lru_cache(maxsize=64)
def _executed_of_many(region: NeededRegion, outer: tuple[Tiles, ...]) -> Rows:
    return _executed(region, outer)


def _executed(region: NeededRegion, outer: tuple[Tiles, ...]) -> Rows:
    import numpy as np

    tiles = dict(zip(region.over, outer, strict=True))
    source = _sources(region, tiles)
    needed = _image(region, source, tiles)
    made = _newly_needed(region, needed)
    values = np.zeros((len(made.values), 0), np.int64)
    counters, rest = made.counters, made.values
    for k, image in enumerate(region.image):
        if image is None:
            count = np.full(len(rest), region.extents[k])
            if int(count.sum()) > MOST_ROWS:
                raise too_many()
            which, column = repeated(count), numbered(count)
            counters, rest, values = counters[which], rest[which], values[which]
        else:
            column, rest = rest[:, 0], rest[:, 1:]
        values = np.concatenate([values, column[:, None]], axis=1)
    there = np.ones(len(values), bool)
    for *factors, constant in region.bounds:
        there &= values @ np.array(factors[: region.own], np.int64) + constant >= 0
    return Rows(counters[there], values[there])


def widest(region: NeededRegion, outer: tuple[Tiles, ...], own: int) -> int:
    """The maximum, over stamps, of the distance from the smallest to the largest executed value of an own
    variable."""
    import numpy as np

    rows = executed(region, outer)
    _, which = np.unique(coded(rows.counters), return_inverse=True)
    values, order = rows.values[:, own], which.reshape(-1).argsort(kind="stable")
    begins = np.flatnonzero(np.diff(which.reshape(-1)[order], prepend=-1))
    if not len(begins):
        return 1
    reach = np.maximum.reduceat(values[order], begins) - np.minimum.reduceat(values[order], begins)
    return int(reach.max()) + 1


def _sources(region: NeededRegion, tiles: dict[int, Tiles]) -> Rows:
    """The consumer's points: counters of the deciding loops, and values of its variables."""
    import numpy as np

    counters = np.zeros((1, len(region.loops)), np.int64)
    values = np.zeros((1, 0), np.int64)
    base = 0
    for source in region.sources:
        count = len(source.extents)
        mine = range(base, base + count)
        places = [i for i, v in enumerate(region.loops) if v in mine]
        wanted = [any(image is not None and image[v] for image in region.image) for v in mine]
        order = [region.loops[i] - base for i in places]
        found = rows_of(source, [tiles.get(v, ()) for v in mine], order, wanted)
        if len(values) * len(found.values) > MOST_ROWS:
            raise too_many()
        first = np.repeat(np.arange(len(values)), len(found.values))
        second = np.tile(np.arange(len(found.values)), len(values))
        counters = counters[first]
        counters[:, places] = found.counters[second]
        values = np.concatenate([values[first], found.values[second]], axis=1)
        base += count
    return Rows(counters, values)


def _image(region: NeededRegion, source: Rows, tiles: dict[int, Tiles]) -> Rows:
    """The needed iterations: values of the own variables that the intermediate determines, as far as they
    exist."""
    import numpy as np

    determined = [k for k, image in enumerate(region.image) if image is not None]
    columns = []
    there = np.ones(len(source.values), bool)
    for k in determined:
        image = region.image[k]
        assert image is not None
        column = source.values @ np.array(image[:-1], np.int64) + image[-1]
        there &= (column >= 0) & (column < region.extents[k])
        columns.append(column)
    values = np.stack(columns, axis=1) if columns else np.zeros((len(there), 0), np.int64)
    for k in set(region.binds) - {-1}:
        mine = [i for i, own in enumerate(region.binds) if own == k]
        taken = [sum(v == region.loops[i] for v in region.loops[:i]) for i in mine]
        cut = tuple(tiles[region.loops[i]][n] for i, n in zip(mine, taken, strict=True))
        for i, counter in zip(mine, counters_of(values[:, determined.index(k)], cut), strict=True):
            there &= counter == source.counters[:, i]
    counters = source.counters[there]
    counters[:, region.above :] = 0
    rows = distinct(np.concatenate([counters, values[there]], axis=1))
    return Rows(rows[:, : len(region.loops)], rows[:, len(region.loops) :])


def _newly_needed(region: NeededRegion, needed: Rows) -> Rows:
    """Return the elements that are needed for the first time in a visit of the storage, and that did not stay
    from the previous one."""
    import numpy as np

    home = region.home
    counters, values = needed.counters, needed.values
    # The first in time, in any instance.
    inside = sorted(range(home, counters.shape[1]), key=lambda i: region.spatial[i])
    rows = np.concatenate([counters[:, :home], values, counters[:, inside]], axis=1)
    order = coded(rows).argsort(kind="stable")
    counters, values = counters[order], values[order]
    visit, element = coded(counters[:, :home]), coded(values)
    touched = coded(np.stack([np.unique(visit, return_inverse=True)[1].reshape(-1), element], axis=1))
    _, first = np.unique(touched, return_index=True)
    counters, values = counters[first], values[first]
    if region.reuse.carries and home:
        stays = _stays(region, counters[:, :home], values)
        counters, values = counters[~stays], values[~stays]
    return Rows(counters, values)


def _stays(region: NeededRegion, visits: Ints, values: Ints) -> Ints:
    """For each row, whether the previous visit of the same instance has its element and leaves it there."""
    import numpy as np

    places = [i for i in range(region.home) if region.spatial[i]]
    visits = visits[:, places + [i for i in range(region.home) if not region.spatial[i]]]
    element = coded(values)
    size = int(element.max(initial=0)) + 1
    times, which = np.unique(coded(visits), return_inverse=True)
    which = which.reshape(-1)
    _, place = np.unique(which, return_index=True)
    every = visits[place]  # one row for each visit, in order
    pairs = which * size + element
    there = np.isin((which - 1) * size + element, pairs) & (which > 0)
    if len(times) < 2 or len(places) == region.home:
        return np.zeros(len(values), bool)
    differ = every[1:] != every[:-1]
    step = np.concatenate([[0], differ.argmax(axis=1)]) - len(places)  # the outermost loop that continues
    last = innermost(visits, element, len(places)) if region.reuse.by_tile else -1
    kept = np.array([region.reuse.stays(axis, last) for axis in range(region.home - len(places))])
    goes_on = step >= 0  # other visits are the first ones of their instances
    return there & (goes_on & kept[np.where(goes_on, step, 0)])[which]


def innermost(stamps: Ints, element: Ints, outside: int = 0) -> int:
    """The innermost loop on which tiles depend, or -1; the first `outside` columns of stamps are not
    considered."""
    import numpy as np

    for axis in reversed(range(outside, stamps.shape[1])):
        others = coded(np.delete(stamps, axis, axis=1))
        visits = distinct(np.stack([others, stamps[:, axis]], axis=1))[:, 0]
        names, count = np.unique(visits, return_counts=True)
        _, first, times = np.unique(
            coded(np.stack([others, element], axis=1)), return_index=True, return_counts=True
        )
        if (times != count[names.searchsorted(others[first])]).any():
            return axis - outside
    return -1
