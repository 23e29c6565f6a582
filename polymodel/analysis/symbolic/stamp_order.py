"""Stamps of two coupled rank variables in order of time: what their tiles share, and what stays between uses.

A stamp is a pair of tiles, one of each variable, that has points. Stamps are listed in the order in which
the loops over both variables execute them, and neighbours in that order are compared as sets.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, lru_cache

from polymodel.analysis.symbolic.regions import (
    Gap,
    Ints,
    Kind,
    Loops,
    Region,
    Tiles,
    What,
    numbered,
    pairs,
    pieces,
    repeated,
    rows_in_tiles,
    tile_of,
    tile_sizes,
    transposed_query,
    united,
)
from polymodel.frozen import dataclass
from polymodel.reuse import Reuse


@dataclass(frozen=True)
class StampOrder:
    """The stamps of loops in order of time: numbers of the innermost tile of either variable."""

    loops: Loops
    one: Ints
    two: Ints

    @cached_property
    def starts(self) -> tuple[Ints, Ints]:
        """The starts of the innermost tiles of either variable."""
        region = self.loops.region
        return region.starts(0, self.loops.u), region.starts(1, self.loops.v)

    def outermost(self, count: int) -> tuple[Ints, Ints]:
        """For each stamp the tiles of the outermost `count` loops that contain it."""
        above, every = self.loops.outermost(count), (self.loops.u, self.loops.v)
        innermost, region = (self.one, self.two), self.loops.region
        one, two = (
            mine if outer == tiles else tile_of(region.starts(side, outer), begin)[mine]
            for side, (mine, outer, tiles, begin) in enumerate(
                zip(innermost, above, every, self.starts, strict=True)
            )
        )
        return one, two

    def same(self, count: int) -> Ints:
        """Whether each stamp and the next one agree in the outermost `count` loops."""
        one, two = self.outermost(count)
        return (one[1:] == one[:-1]) & (two[1:] == two[:-1])

    def counters(self) -> list[Ints]:
        """For each loop its counter at every stamp, from 0 on within the enclosing tile."""
        result, region = [], self.loops.region
        for k, letter in enumerate(self.loops.order):
            side = "uv".index(letter)
            inner = region.starts(side, self.loops.outermost(k + 1)[side])
            outer = region.starts(side, self.loops.outermost(k)[side])
            here, enclosing = self.outermost(k + 1)[side], self.outermost(k)[side]
            result.append(here - tile_of(inner, outer[enclosing]))
        return result

    def sizes(self, what: What, rank: tuple[int, int]) -> Ints:
        """The number of elements of each stamp's tile."""
        one, two, result = tile_sizes(
            self.loops.region, self.loops.u, self.loops.v, what, rank, self.loops.alike
        )
        width = len(self.starts[1])
        return result[(one * width + two).searchsorted(self.one * width + self.two)]

    def common(self, before: Ints, after: Ints, what: What, rank: tuple[int, int]) -> Ints:
        """The number of elements that the tiles at two stamps share, for several pairs of stamps."""
        import numpy as np

        if what == "none":
            return np.ones(len(before), np.int64)
        one, two = self.one[before] == self.one[after], self.two[before] == self.two[after]
        if what == "both":
            return np.where(one & two, self.sizes(what, rank)[before], 0)
        if what == "rank":
            return self._common_of_ranks(before, after, rank)
        region, tiles, columns = self.loops.region, (self.loops.u, self.loops.v), (self.one, self.two)
        if what == "v":
            region, tiles, columns, one = region.turned, tiles[::-1], columns[::-1], two
        result = np.zeros(len(before), np.int64)
        if one.any():
            ends = columns[1][before[one]], columns[1][after[one]]
            result[one] = _common_rows(region, tiles, columns[0][before[one]], *ends)
        return result

    def _common_of_ranks(self, before: Ints, after: Ints, rank: tuple[int, int]) -> Ints:
        import numpy as np

        each = self.sizes("rank", rank)
        region, cuts, columns = self.loops.region, self.starts, (self.one, self.two)
        if rank[1] != 1:
            region, cuts, columns, rank = region.turned, cuts[::-1], columns[::-1], rank[::-1]
        row, code, begin, stop = pieces(region, *cuts)
        order = np.argsort(code, kind="stable")
        moved = rank[0] * row
        code, low, high = code[order], (moved + begin)[order], (moved + stop)[order]
        codes = columns[0] * len(cuts[1]) + columns[1]
        taken, group = [], []
        for stamps in (before, after):
            first, last = (code.searchsorted(codes[stamps], side) for side in ("left", "right"))
            which = repeated(last - first)
            taken.append(first[which] + numbered(last - first))
            group.append(which)
        at, of = np.concatenate(taken), np.concatenate(group)
        together = united(of, low[at], high[at], len(before))
        return each[before] + each[after] - together


def _common_rows(region: Region, tiles: tuple[Tiles, Tiles], tile: Ints, before: Ints, after: Ints) -> Ints:
    """The number of rows of a tile of u with points in both of two tiles of v, for several pairs of tiles."""
    import numpy as np

    group, first, last = rows_in_tiles(region, *tiles)
    begin, end = group.searchsorted(tile, "left"), group.searchsorted(tile, "right")
    least, most = np.minimum(before, after), np.maximum(before, after)
    # For two tiles with none in between, a row without points in both either begins after the first one or
    # ends before the second one: these rows are counted without visiting each.
    width = len(region.starts(1, tiles[1])) + 1
    late = end - np.sort(group * width + first).searchsorted(tile * width + least, "right")
    early = np.sort(group * width + last).searchsorted(tile * width + most, "left") - begin
    result = end - begin - late - early
    (apart,) = np.nonzero(most - least > 1)
    if len(apart):
        ends = begin[apart], end[apart]
        result[apart] = _rows_around(first, last, ends, least[apart], most[apart])
    return result


def _rows_around(first: Ints, last: Ints, ends: tuple[Ints, Ints], least: Ints, most: Ints) -> Ints:
    """The number of rows that begin no later than one tile and end no earlier than another one, counted row
    by row."""
    import numpy as np

    begin, end = ends
    which = repeated(end - begin)
    at = begin[which] + numbered(end - begin)
    both = (first[at] <= least[which]) & (last[at] >= most[which])
    return np.bincount(which[both], minlength=len(begin)).astype(np.int64)


@lru_cache(maxsize=8)
def visits(loops: Loops) -> StampOrder:
    """The stamps that have points, in order of time."""
    import numpy as np

    one, two = pairs(loops.region, loops.u, loops.v, loops.alike)
    result = StampOrder(loops, one, two)
    if "vu" not in loops.order:  # in this case they are in order already
        return result
    keys = [result.outermost(k + 1)["uv".index(letter)] for k, letter in enumerate(loops.order)]
    order = np.lexsort(keys[::-1])
    return StampOrder(loops, one[order], two[order])


@lru_cache(maxsize=65536)
def loop_demand(loops: Loops, axis: int, kind: Kind, what: What, rank: tuple[int, int]) -> int:
    """The count that `kind` names for loop number `axis`; `wraps`: for the loops from `axis` on."""
    import numpy as np

    if loops.alike is None and what != "rank" and kind != "settled":
        if _single_inside(loops.turned.order):
            return loop_demand(loops.turned, axis, kind, transposed_query(what), rank)
        if _single_inside(loops.order) and (kind == "wraps" or axis < len(loops.u)):
            loops = replace(loops, alike=loops.u)  # only first and last stamps of rows count
    result = visits(loops)
    if not len(result.one):  # nothing is touched, so nothing stays, and no tile depends on a loop
        return int(kind == "settled")
    if kind == "settled":
        return int(_settled(result, axis, what, rank))
    outside = result.same(axis)
    if kind == "moves":
        (before,) = np.nonzero(outside & ~result.same(axis + 1))
        after = before + 1
    else:
        after = np.concatenate(([0], 1 + np.nonzero(~outside)[0]))
        before = np.append(after[1:], len(result.one)) - 1
    return int(result.common(before, after, what, rank).sum())


def _single_inside(order: str) -> bool:
    """Whether there is one loop over v, inside all loops over u."""
    return order == "u" * (len(order) - 1) + "v"


def _settled(found: StampOrder, axis: int, what: What, rank: tuple[int, int]) -> bool:
    """True if stamps that are equal except for the counter of a loop have equal tiles."""
    import numpy as np

    counters = found.counters()
    others = [c for k, c in enumerate(counters) if k != axis]
    order = np.lexsort([counters[axis], *others])
    equal = np.ones(len(order) - 1, bool)
    for c in others:
        equal &= c[order[1:]] == c[order[:-1]]
    before, after = order[:-1][equal], order[1:][equal]
    each = found.sizes(what, rank)
    shared = found.common(before, after, what, rank)
    return bool(((shared == each[before]) & (shared == each[after])).all())


def resident(loops: Loops, gap: Gap, what: What, rank: tuple[int, int]) -> tuple[StampOrder, Ints]:
    """What a buffet holds while others run, at each stamp of the loops above both.

    It is held between two uses in one visit, and between two visits if something stays over the step.
    """
    import numpy as np

    result = visits(loops)
    held = StampOrder(
        Loops(loops.region, *loops.outermost(gap.depth), loops.order[: gap.depth], loops.alike),
        *result.outermost(gap.depth),
    )
    size, within = held.sizes(what, rank), result.same(gap.depth)
    ends = np.zeros(0, np.int64)
    if gap.inside:  # its last contents at each stamp
        within = np.zeros(len(within), bool)
        (ends,) = np.nonzero(~result.same(gap.shared))
        steps = ends
    else:
        (steps,) = np.nonzero(~within)
    joined = np.zeros(len(within), bool)
    if gap.policy.carries and len(steps):
        steps = steps[held.same(gap.since)[steps]]
        steps = steps[_allowed(held, steps, gap.policy, what, rank)]
        joined[steps] = held.common(steps, steps + 1, what, rank) > 0
    if gap.inside:
        last = np.append(ends, len(result.one) - 1)
        stamps = StampOrder(
            Loops(loops.region, *loops.outermost(gap.shared), loops.order[: gap.shared], loops.alike),
            *(tiles[last] for tiles in result.outermost(gap.shared)),
        )
        stays = np.where(joined[ends], size[ends], 0)
        return stamps, np.append(stays, 0) if gap.before else np.insert(stays, 0, 0)
    there = within | joined
    there = np.append(there, False) if gap.before else np.insert(there, 0, False)
    return result, np.where(there, size, 0)


def _allowed(held: StampOrder, steps: Ints, policy: Reuse, what: What, rank: tuple[int, int]) -> Ints:
    """The steps over which the policy lets elements stay."""
    import numpy as np

    depth = len(held.loops.order)
    depends = (k for k in reversed(range(depth)) if not loop_demand(held.loops, k, "settled", what, rank))
    innermost = next(depends, -1) if policy.by_tile else -1
    allowed = np.zeros(len(steps), bool)
    for axis in range(depth):
        if policy.stays(axis, innermost):
            allowed |= (held.same(axis) & ~held.same(axis + 1))[steps]
    return allowed
