"""Peaks of live elements if executed iterations are listed: first and last uses, factor by factor.

An element is live from its first to its last use, so it is live at a phase if its first use is not after the
phase and its last use not before it. Along independent variables (a class) first and last uses are
independent too, and the first use of an element is its first use along each class. So the elements whose
first use comes before a phase are those that agree with the phase down to some loop and are earlier in that
loop: their number is a product of one number for each class.

For each class the phases form a tree, loop by loop; equal trees are stored once, for all tile sizes. The
number of live elements is then a sum of what each loop adds, and the peak is found from the innermost loop
outwards, once for each combination of the classes' trees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from polymodel.analysis.symbolic.listed_peaks import PeakTable
from polymodel.analysis.symbolic.needed_sets import (
    MOST_ROWS,
    coded,
    distinct,
    innermost,
    rows_of,
    too_many,
)
from polymodel.analysis.symbolic.pair_atoms import Tabled
from polymodel.analysis.symbolic.regions import NeededRegion, Region, Tiles, repeated
from polymodel.errors import NotSeparable
from polymodel.integers import distinct_numbers
from polymodel.reuse import Reuse

Ints = Any
EXACT = "use engine exact, or allocation: tile"
MOST_STATES = 2**21
TOGETHER = 2**16  # states of several points at a time: results for more of them exceed the cache
SPARSE = 16  # numbers up to this multiple of their count are distinguished by a lookup table


@dataclass(frozen=True)
class ListedGroup:
    """Some variables of an Einsum. `loops`: for each variable its loops, by their place among all; `spread`:
    whether one of these is spatial; and the smallest value of each variable."""

    region: Region
    loops: tuple[tuple[int, ...], ...]
    spread: tuple[bool, ...]
    lows: tuple[int, ...]

    def points(self, tiles: Tiles) -> tuple[dict[int, Ints], Ints, Ints]:
        """For all points, the counters of the loops, and the values and offsets of the variables."""
        own = tuple(tuple(tiles[p] for p in mine) for mine in self.loops)
        counters, values, offsets = _points(self, own)
        return dict(zip(self.places, counters.T, strict=True)), values, offsets

    @property
    def places(self) -> tuple[int, ...]:
        return tuple(sorted(p for mine in self.loops for p in mine))


@lru_cache(maxsize=512)
def _points(group: ListedGroup, own: tuple[Tiles, ...]) -> tuple[Ints, Ints, Ints]:
    import numpy as np

    order = {p: k for k, mine in enumerate(group.loops) for p in mine}
    rows = rows_of(group.region, own, [order[p] for p in group.places], [True] * len(own))
    offsets = rows.values.copy()
    for k, (mine, spread) in enumerate(zip(group.loops, group.spread, strict=True)):
        if spread:  # instances count from the first values of their tiles
            if isinstance(group.region, NeededRegion):
                outer = [i for i, p in enumerate(group.places) if order[p] >= group.region.own]
                _, stamp = np.unique(coded(rows.counters[:, outer]), return_inverse=True)
                low = np.full(int(stamp.max(initial=-1)) + 1, np.iinfo(np.int64).max)
                np.minimum.at(low, stamp.reshape(-1), rows.values[:, k])
                offsets[:, k] -= low[stamp.reshape(-1)]
            for (first, tile), place in zip(own[k], mine, strict=True):
                counter = rows.counters[:, group.places.index(place)]
                offsets[:, k] -= np.where(counter > 0, first + (counter - 1) * tile, 0)
    return rows.counters, rows.values + np.array(group.lows, np.int64), offsets


@dataclass(frozen=True)
class ListedUse:
    """The uses of a buffet by an Einsum along a class.

    `times`, then `offsets` (group and variable), determine their order; `visits`: the loops above the buffet;
    `ranks`: for each rank its terms (group, variable, factor), and a constant.
    """

    groups: tuple[ListedGroup, ...]
    times: tuple[int, ...]
    offsets: tuple[tuple[int, int], ...] = ()
    visits: tuple[int, ...] = ()
    ranks: tuple[tuple[tuple[tuple[int, int, int], ...], int], ...] = ()

    def table(self, tiles: Tiles) -> tuple[Ints, Ints, Ints]:
        """Distinct rows of order, visits, and elements."""
        import numpy as np

        every = [group.points(tiles) for group in self.groups]
        sizes = [len(values) for _, values, _ in every]
        count = 1
        for size in sizes:
            count *= size
        if count > MOST_ROWS:
            raise too_many()
        rows = np.indices(sizes).reshape(len(sizes), count)
        counters: dict[int, Ints] = {}
        for (columns, _, _), at in zip(every, rows, strict=True):
            counters |= {p: column[at] for p, column in columns.items()}

        def stacked(columns: list[Ints]) -> Ints:
            return np.stack(columns, axis=1) if columns else np.zeros((count, 0), np.int64)

        order = [counters[p] for p in self.times] + [every[g][2][rows[g], k] for g, k in self.offsets]
        ranks = [
            sum((c * every[g][1][rows[g], k] for g, k, c in terms), np.full(count, constant))
            for terms, constant in self.ranks
        ]
        return stacked(order), stacked([counters[p] for p in self.visits]), stacked(ranks)


@dataclass(frozen=True)
class ListedLife:
    """The first and the last user of a buffet along a class; the last is None if both are the same."""

    first: ListedUse
    last: ListedUse | None
    reuse: Reuse

    def ends(self, tiles: Tiles) -> tuple[Ints, Ints]:
        """For each element, in each run of visits in which it stays, its first and last use."""
        import numpy as np

        tables = [use.table(tiles) for use in (self.first, self.last) if use is not None]
        lengths = [len(order) for order, _, _ in tables]
        visits = np.concatenate([visits for _, visits, _ in tables])
        elements = np.concatenate([elements for _, _, elements in tables])
        low = elements.min(axis=0, initial=0)
        item = self._runs(visits, elements - low)
        items = np.split(item, [lengths[0]]) if len(tables) > 1 else [item]
        if not np.array_equal(distinct_numbers(items[0]), distinct_numbers(items[-1])):
            raise NotSeparable(
                "the elements that are produced and those that are read differ", code="unsupported-memory"
            )
        first = _extreme(tables[0][0], items[0], first=True)
        return first, _extreme(tables[-1][0], items[-1], first=False)

    def _runs(self, visits: Ints, elements: Ints) -> Ints:
        """A number for the element and run of each use."""
        import numpy as np

        if not self.reuse.carries or not visits.shape[1]:
            return coded(np.concatenate([visits, elements], axis=1))
        every, visit = np.unique(visits, axis=0, return_inverse=True)
        visit, element = visit.reshape(-1), coded(elements)
        pairs = distinct(np.stack([element, visit], axis=1))
        last = innermost(every[pairs[:, 1]], pairs[:, 0]) if self.reuse.by_tile else -1
        stays = np.array([self.reuse.stays(axis, last) for axis in range(visits.shape[1])])
        opened = np.zeros(len(every), bool)
        opened[1:] = stays[(every[1:] != every[:-1]).argmax(axis=1)]
        joined = (np.diff(pairs[:, 0]) == 0) & (np.diff(pairs[:, 1]) == 1) & opened[pairs[1:, 1]]
        run = np.cumsum(np.concatenate([[1], ~joined]))
        both = coded(pairs, np.stack([element, visit], axis=1))
        return run[both[: len(pairs)].searchsorted(both[len(pairs) :])]


def _extreme(order: Ints, item: Ints, *, first: bool) -> Ints:
    """The first or last row of each item."""
    import numpy as np

    rows = np.lexsort([*order.T[::-1], item])
    changes = np.diff(item[rows]) != 0
    edge = np.concatenate([[True], changes] if first else [changes, [True]])
    return order[rows[edge]]


@dataclass(frozen=True)
class LiveClass:
    """Variables and loops that are independent of those of other classes.

    It has the phases of the Einsum that runs, and the lifetimes of buffets, None for buffets that do not
    depend on the class.
    """

    phases: ListedUse
    lives: tuple[ListedLife | None, ...]


@dataclass(frozen=True)
class LivePeak(PeakTable):
    """The live elements of buffets at the phase of an Einsum at which all together have most bits.

    `order`: the class of each loop and offset that distinguishes phases, outermost first. `ends`: for each
    buffet whether it has begun, and ended, where the Einsum shares all loops with its first, or last, user.
    `weights`: bits per element.
    """

    classes: tuple[LiveClass, ...]
    order: tuple[int, ...]
    ends: tuple[tuple[bool, bool], ...]
    weights: tuple[int, ...]

    __hash__ = Tabled.__hash__

    @property
    def named(self) -> str:
        return "live"

    def peaks(self, points: Ints) -> Ints:
        return _search(self).peaks(points)


class _Rows:
    """Distinct rows of numbers, each with a number of its own."""

    def __init__(self) -> None:
        self.known: dict[bytes, int] = {}
        self.rows: list[Ints] = []
        self.stacked: Ints = ()

    def numbers(self, rows: Ints) -> Ints:
        import numpy as np

        result = []
        for row in np.ascontiguousarray(rows):
            number = self.known.setdefault(row.tobytes(), len(self.rows))
            if number == len(self.rows):
                self.rows.append(row)
            result.append(number)
        return np.array(result, np.int64)

    @property
    def table(self) -> Ints:
        """All rows, by their numbers."""
        import numpy as np

        if len(self.stacked) != len(self.rows):
            self.stacked = np.stack(self.rows)
        return self.stacked


class _Depth:
    """The trees of phases from one loop of a class on, each with a number.

    A tree holds, for each end of each buffet, the number of elements that agree with the phase so far; and
    its branches: for each branch the tree below it, and the number of elements that agree with the phase so
    far and are earlier than the branch.
    """

    def __init__(self) -> None:
        self.known: dict[tuple[int, tuple[int, ...]], int] = {}
        self.equals, self.branches = _Rows(), _Rows()
        self.made: _DepthTables | None = None

    def numbers(self, equal: Ints, below: Sequence[Ints]) -> Ints:
        import numpy as np

        keys = zip(self.equals.numbers(equal).tolist(), below, strict=True)
        found = ((one, tuple(rows.tolist())) for one, rows in keys)
        return np.array([self.known.setdefault(key, len(self.known)) for key in found], np.int64)

    @property
    def tables(self) -> _DepthTables:
        """All known trees as arrays."""
        import numpy as np

        if self.made is None or self.made.count.size != len(self.known):
            count = np.array([len(rows) for _, rows in self.known], np.int64)
            branches = np.array([row for _, rows in self.known for row in rows], np.int64)
            rows = self.branches.table[branches] if len(branches) else np.zeros((0, 1), np.int64)
            (ends,) = np.nonzero(rows[:, 1:].any(axis=0))
            equal = self.equals.table[np.array([one for one, _ in self.known])]
            fewer = np.ascontiguousarray(rows[:, 1:].T[ends])
            self.made = _DepthTables(equal, count, np.cumsum(count) - count, rows[:, 0], ends, fewer)
        return self.made


@dataclass(frozen=True)
class _DepthTables:
    """The contents of each tree, and its branches (`count` from `begin` on).

    For each branch: the tree below it, and as [end, branch] the number of earlier elements, for the `ends`
    that have any.
    """

    equal: Ints
    count: Ints
    begin: Ints
    below: Ints
    ends: Ints
    fewer: Ints


def may_be_most(parent: Ints, trees: Ints, fewer: Ints) -> tuple[Ints, Ints]:
    """Those branches of some trees at which most elements may be live: their rows, and their number by
    parent.

    Branches with the same tree below differ only in the elements that are earlier: those that have begun add
    to the sum and those that have ended reduce it, with factors that are not negative. So if one of two
    branches has at least as many that have begun and at most as many that have ended, only that one counts;
    of several on a straight line, only both ends count.
    """
    import numpy as np

    rows = np.lexsort([*fewer.T[::-1], trees, parent])  # each group is in order of time, so numbers only grow
    begun, ended = fewer[:, ::2], fewer[:, 1::2]

    def steps() -> tuple[Ints, Ints, Ints]:
        """Whether each row has the parent and tree of the previous one, and what begins and ends between the
        two."""
        same = (np.diff(parent[rows]) == 0) & (np.diff(trees[rows]) == 0)
        return same, np.diff(begun[rows], axis=0), np.diff(ended[rows], axis=0)

    same, begin, end = steps()
    kept = np.ones(len(rows), bool)
    kept[:-1] &= ~(same & ~end.any(axis=1))  # at the next one more has begun, and no more has ended
    kept[1:] &= ~(same & end.any(axis=1) & ~begin.any(axis=1))
    rows = rows[kept]
    same, begin, end = steps()
    step = np.concatenate([begin, end], axis=1)
    size = step.sum(axis=1, keepdims=True)
    on_line = (step[1:] * size[:-1] == step[:-1] * size[1:]).all(axis=1) & same[1:] & same[:-1]
    kept = np.ones(len(rows), bool)
    kept[1:-1] = ~on_line
    rows = rows[kept]
    return rows, np.bincount(parent[rows], minlength=int(parent.max(initial=-1)) + 1)


class _Trees:
    """The trees of phases of one class, for any sizes of tiles."""

    def __init__(self, asked: LiveClass, depth: int) -> None:
        self.asked, self.depths = asked, [_Depth() for _ in range(depth + 1)]
        self.known: dict[Tiles, int] = {}
        uses = [asked.phases, *(u for life in asked.lives if life for u in (life.first, life.last) if u)]
        self.places = sorted({p for use in uses for group in use.groups for p in group.places})

    def roots(self, points: Ints) -> Ints:
        """The tree of all phases at each choice of tile sizes."""
        import numpy as np

        own = points[:, self.places]
        different, which = _different(own.reshape(len(own), -1))
        result = []
        for sizes in different.reshape(len(different), len(self.places), 2).tolist():
            tiles = tuple((first, tile) for first, tile in sizes)
            if tiles not in self.known:
                by_place = dict(zip(self.places, tiles, strict=True))
                self.known[tiles] = self._grown(
                    tuple(by_place.get(p, (1, 1)) for p in range(points.shape[1]))
                )
            result.append(self.known[tiles])
        return np.array(result, np.int64)[which]

    def _grown(self, tiles: Tiles) -> int:
        import numpy as np

        phases = distinct(self.asked.phases.table(tiles)[0])
        none = np.zeros((1, 0), np.int64)
        ends = [life.ends(tiles) if life is not None else (none, none) for life in self.asked.lives]
        below: Sequence[Ints] = [none[0]] * len(phases)
        for depth in reversed(range(len(self.depths))):
            prefixes = distinct(phases[:, :depth]) if depth else phases[:1, :0]
            counts = [_counted(prefixes, end, depth) for both in ends for end in both]
            equal, fewer = (np.stack([c[k] for c in counts], axis=1) for k in (0, 1))
            trees = self.depths[depth].numbers(equal, below)
            if depth:
                changes = np.diff(coded(prefixes[:, : depth - 1])) != 0
                parent = np.cumsum(np.concatenate([[0], changes]))
                rows, count = may_be_most(parent, trees, fewer)
                branches = np.concatenate([trees[rows, None], fewer[rows]], axis=1)
                numbers = self.depths[depth - 1].branches.numbers(branches)
                below = np.split(numbers, np.cumsum(count)[:-1])
        return int(trees[0])


def _different(rows: Ints) -> tuple[Ints, Ints]:
    """The distinct rows of a table, and the number of each row among them."""
    import numpy as np

    _, first, which = np.unique(coded(rows), return_index=True, return_inverse=True)
    return rows[first], which.reshape(-1)


def _counted(prefixes: Ints, ends: Ints, depth: int) -> tuple[Ints, Ints]:
    """The number of ends that agree with each prefix of phases.

    Also the number of those that do so up to the last loop and are earlier there; ends may depend on fewer
    loops.
    """
    import numpy as np

    known = min(depth, ends.shape[1])
    first = prefixes[:, :known].copy()
    if known:
        first[:, -1] = 0
    both = coded(ends[:, :known], np.concatenate([prefixes[:, :known], first]))
    code = np.sort(both[: len(ends)])
    here, begin = both[len(ends) : len(ends) + len(prefixes)], both[len(ends) + len(prefixes) :]
    left = code.searchsorted(here, side="left")
    equal = code.searchsorted(here, side="right") - left
    fewer = left - code.searchsorted(begin, side="left") if known == depth and depth else np.zeros_like(equal)
    return equal, fewer


@lru_cache(maxsize=64)
def _search(asked: LivePeak) -> _PeakSearch:
    return _PeakSearch(asked)


class _PeakSearch:
    """The peak over all phases, for several choices of tile sizes."""

    def __init__(self, asked: LivePeak) -> None:
        import numpy as np

        self.asked = asked
        depths = [asked.order.count(g) for g in range(len(asked.classes))]
        self.trees = [_Trees(c, depth) for c, depth in zip(asked.classes, depths, strict=True)]
        self.sign = np.array([1, -1] * len(asked.weights), np.int64)
        self.weights = np.repeat(np.array(asked.weights, np.int64), 2) * self.sign
        self.ends = np.array([int(end) for both in asked.ends for end in both])

    def peaks(self, points: Ints) -> Ints:
        """The elements of each buffet at the peak, at each point."""
        import numpy as np

        roots = np.stack([trees.roots(points) for trees in self.trees], axis=1)
        states, at = _different(roots)
        depths, steps = [0] * len(self.trees), []
        most = TOGETHER if len(points) > 1 else MOST_STATES
        for g in self.asked.order:
            tables, trees = self.trees[g].depths[depths[g]].tables, states[:, g]
            others = self._product(states, depths, tables.ends, without=g)
            count = tables.count[trees]
            if int(count.sum()) > most:
                raise too_many()
            parent = repeated(count)
            branch = (tables.begin[trees] - (np.cumsum(count) - count))[parent] + np.arange(len(parent))
            depths[g] += 1
            states, following = _followed(states, g, parent, tables.below[branch])
            steps.append((count, parent, others, tables, branch, following))
        every = np.arange(len(self.weights))
        last = self._product(states, depths, every) * self.ends[:, None]
        best, chosen = self.weights @ last, []
        for count, parent, others, tables, branch, following in reversed(steps):
            total = best[following]
            for end, other, fewer in zip(tables.ends, others, tables.fewer, strict=True):
                total += np.repeat(other * self.weights[end], count) * fewer[branch]
            best = np.maximum.reduceat(total, np.cumsum(count) - count)
            tops = np.flatnonzero(total == np.repeat(best, count))
            chosen.append(tops[np.diff(parent[tops], prepend=-1) > 0])
        result = np.zeros((len(self.weights), len(points)), np.int64)
        for (_, parent, others, tables, branch, following), rows in zip(steps, reversed(chosen), strict=True):
            at = rows[at]
            result[tables.ends] += others[:, parent[at]] * tables.fewer[:, branch[at]]
            at = following[at]
        result = (result + last[:, at]) * self.sign[:, None]
        return result.T.reshape(len(points), -1, 2).sum(axis=2)

    def _product(self, states: Ints, depths: Sequence[int], ends: Ints, without: int = -1) -> Ints:
        """[end, state] the number of elements that agree with the phase so far along all classes."""
        import numpy as np

        result = np.ones((len(ends), len(states)), np.int64)
        for g, trees in enumerate(self.trees):
            equal = trees.depths[depths[g]].tables.equal
            for row, column in zip(result, equal.T[ends], strict=True):
                if g != without and (column != 1).any():
                    row *= column[states[:, g]] if len(column) > 1 else column[0]
        return result


def _followed(states: Ints, g: int, parent: Ints, trees: Ints) -> tuple[Ints, Ints]:
    """The distinct states that result from other states with another tree of one class, and the number of
    each among them."""
    import numpy as np

    others = coded(np.delete(states, g, axis=1))
    _, number = np.unique(others, return_inverse=True)
    width = int(trees.max(initial=0)) + 1
    code = (number.reshape(-1) * width)[parent] + trees
    size = (int(number.max(initial=0)) + 1) * width
    if size > SPARSE * len(code):
        _, first, following = np.unique(code, return_index=True, return_inverse=True)
    else:  # few numbers are distinguished without sorting
        there = np.zeros(size, bool)
        there[code] = True
        following = (np.cumsum(there) - 1)[code]
        first = np.zeros(int(there.sum()), np.int64)
        first[following] = np.arange(len(code))
    result = states[parent[first]]
    result[:, g] = trees[first]
    return result, following
