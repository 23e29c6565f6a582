"""Stamps of one group of loops as a small automaton, and peaks of sums of counts over their interleavings.

A group's stamps form a tree (one level per time coordinate). Subtrees in which all histograms look
alike are one class, and equal neighbours are one run of children, so a loop of thousands of interior
iterations is a run. A peak over all stamps is a maximum over classes: within a run the counts
grow linearly, so it is reached at one of its ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from polymodel.analysis.exact.grids import unfollowed
from polymodel.analysis.exact.sweep import Ints

_Entry = TypeVar("_Entry", bound=np.generic)
Flags = NDArray[np.bool_]
_CELLS = 4_000_000
_NEVER = -(2**61)
_LARGEST = 2**60


@dataclass(frozen=True)
class Rows:
    """One row per element: its instance, and the first `depth` time coordinates of a use."""

    depth: int
    places: Ints
    stamps: Ints


@dataclass(frozen=True)
class Level:
    """The classes of tree nodes at one depth.

    `counts[c, h]`: elements of histogram h below a node of class c (of histograms that reach deeper,
    or end here). Options are ends of runs of children: `owner` class, `child` class at the next
    depth, `before[o, h]` elements of histogram h under earlier children; every class has one (`dead`
    where no phase is below).
    """

    counts: Ints
    live: Flags
    owner: Ints
    child: Ints
    before: Ints

    @property
    def size(self) -> int:
        return len(self.live)


@dataclass(frozen=True)
class Tree:
    """Levels 0 (the instances' roots) to the number of time coordinates."""

    levels: tuple[Level, ...]


def _classes(rows: Ints) -> tuple[Ints, Ints]:
    """(class of each row, one row of each class)."""
    _, where, ids = np.unique(_packed(rows), return_index=True, return_inverse=True)
    return np.asarray(ids, dtype=np.int64).reshape(-1), np.asarray(where, dtype=np.int64)


def _packed(rows: Ints) -> Ints:
    """One integer per row, equal for equal rows only, in lexicographic order."""
    key = np.zeros(len(rows), dtype=np.int64)
    top = 1
    for column in rows.T:
        low, high = int(column.min()), int(column.max())
        if low == high:
            continue
        if top * (high - low + 1) >= 2**62:
            key = np.unique(key, return_inverse=True)[1].reshape(-1)
            top = int(key.max()) + 1
            if top * (high - low + 1) >= 2**62:
                column = np.unique(column, return_inverse=True)[1].reshape(-1)
                low, high = 0, int(column.max())
        key = key * (high - low + 1) + (column - low)
        top *= high - low + 1
    return key


def tree(phases: Ints, places: Ints, rows: Sequence[Rows]) -> Tree:
    """The tree over all `phases` (stamps of the executing Einsum) in every instance of `places`."""
    width = phases.shape[1]
    low = phases.min(axis=0)
    for r in rows:
        if len(r.stamps):
            low[: r.depth] = np.minimum(low[: r.depth], r.stamps.min(axis=0))
    tables = [_rows(np.repeat(places, len(phases), axis=0), np.tile(phases, (len(places), 1)), low)]
    tables += [_rows(r.places, r.stamps, low) for r in rows]
    depths = np.repeat([width, *(r.depth for r in rows)], [len(t) for t in tables])
    source = np.repeat(np.arange(len(tables)), [len(t) for t in tables])
    everything = np.concatenate(tables)
    ids, where = _classes(everything)
    nodes, depth = everything[where], depths[where]
    histogram = np.zeros((len(nodes), len(rows)), dtype=np.int64)
    counted = source > 0
    np.add.at(histogram, (ids[counted], source[counted] - 1), 1)
    phase = np.zeros(len(nodes), dtype=bool)
    phase[ids[~counted]] = True
    ends = np.array([r.depth for r in rows], dtype=np.int64)
    return Tree(_levels(nodes, depth, histogram, phase, ends, places.shape[1]))


def _rows(places: Ints, stamps: Ints, low: Ints) -> Ints:
    """Coordinates from 1 on; 0 stands for those that a prefix lacks."""
    given = stamps.shape[1]
    missing = np.zeros((len(places), len(low) - given), dtype=np.int64)
    return np.concatenate([places, stamps - low[:given] + 1, missing], axis=1)


def _levels(
    nodes: Ints,
    depth: Ints,
    histogram: Ints,
    phase: Flags,
    ends: Ints,
    lead: int,
) -> tuple[Level, ...]:
    """Classes from the leaves up. `nodes` are different and sorted; a prefix stands before its extensions."""
    width = nodes.shape[1] - lead
    here = np.flatnonzero(depth == width)
    kind, where = _classes(np.concatenate([histogram[here], phase[here, None]], axis=1))
    none = np.zeros(0, dtype=np.int64)
    leaves = Level(histogram[here][where], phase[here][where], none, none, np.zeros((0, len(ends)), np.int64))
    found = [leaves]
    below = here
    for d in range(width - 1, -1, -1):
        ours = np.flatnonzero(depth == d)
        every = np.concatenate([ours, below])
        order = np.argsort(every, kind="stable")
        every, own = every[order], (np.arange(len(every)) < len(ours))[order]
        kinds = np.concatenate([np.full(len(ours), -1, dtype=np.int64), kind])[order]
        prefix = nodes[every, : lead + d]
        fresh = np.concatenate(([True], (prefix[1:] != prefix[:-1]).any(axis=1)))
        parent = np.cumsum(fresh) - 1
        ending = np.zeros((int(parent[-1]) + 1, len(ends)), dtype=np.int64)
        ending[parent[own]] = histogram[every[own]]
        kind, level = _level(parent[~own], kinds[~own], ending, found[0], ends > d)
        found.insert(0, level)
        below = every[fresh]
    return tuple(found)


def _level(
    parent: Ints,
    child: Ints,
    ending: Ints,
    below: Level,
    deeper: Flags,
) -> tuple[Ints, Level]:
    """(class per node, the level) of nodes with these children (in time order) and own counts."""
    count = len(ending)
    cuts = np.flatnonzero(
        np.concatenate(([True], (parent[1:] != parent[:-1]) | (child[1:] != child[:-1])))
        if len(parent)
        else np.zeros(0, dtype=bool)
    )
    length = np.diff(np.concatenate((cuts, [len(parent)])))
    owner, kind = parent[cuts], child[cuts]
    runs = np.bincount(owner, minlength=count)
    first = np.concatenate(([0], np.cumsum(runs)[:-1]))
    classes = np.empty(count, dtype=np.int64)
    members: list[int] = []
    for n in np.unique(runs):
        mine = np.flatnonzero(runs == n)
        at = first[mine][:, None] + np.arange(n)
        ids, where = _classes(np.concatenate([ending[mine], kind[at], length[at]], axis=1))
        classes[mine] = ids + len(members)
        members += mine[where].tolist()
    counts, live, options = [], [], []
    for c, node in enumerate(members):
        span = slice(int(first[node]), int(first[node] + runs[node]))
        k, n = kind[span], length[span]
        gain = below.counts[k] * deeper
        weights = gain * n[:, None]
        start = np.cumsum(weights, axis=0) - weights
        counts.append(ending[node] + weights.sum(axis=0))
        usable = below.live[k]
        live.append(bool(usable.any()))
        if not live[-1]:
            options.append((c, 0, np.zeros(len(deeper), dtype=np.int64)))
        for i in np.flatnonzero(usable):
            options.append((c, int(k[i]), start[i]))
            if n[i] > 1:
                options.append((c, int(k[i]), start[i] + gain[i] * (n[i] - 1)))
    level = Level(
        np.array(counts, dtype=np.int64).reshape(len(members), len(deeper)),
        np.array(live, dtype=bool),
        np.array([o[0] for o in options], dtype=np.int64),
        np.array([o[1] for o in options], dtype=np.int64),
        np.array([o[2] for o in options], dtype=np.int64).reshape(len(options), len(deeper)),
    )
    return classes, level


@dataclass(frozen=True)
class Term:
    """`coefficient` x the elements whose stamp (up to coordinate `end`) is before the phase.

    Equal stamps count if `inclusive`. Before coordinate `start` stamps and phase must be equal.
    `columns[g]`: the histogram of group g. `buffet`: whose elements they are, of `weight` each.
    """

    weight: int
    coefficient: int
    start: int
    end: int
    inclusive: bool
    columns: tuple[int, ...]
    buffet: int


@dataclass(frozen=True)
class Interleaving:
    """Groups' trees, and for each time coordinate of the Einsum its group, outermost first."""

    trees: tuple[Tree, ...]
    order: tuple[int, ...]

    def peak(self, terms: Sequence[Term], buffets: int) -> tuple[int, tuple[int, ...]]:
        """(largest weighted sum over all phases and instances, the unweighted sum per buffet there)."""
        self._check(terms)
        depth = [len(t.levels) - 1 for t in self.trees]
        values = [self._last(terms, depth)]
        for position in range(len(self.order) - 1, -1, -1):
            values.insert(0, self._step(terms, depth, position, values[0]))
        return int(values[0].max()), self._trace(terms, values, buffets)

    def _check(self, terms: Sequence[Term]) -> None:
        largest = 0
        for t in terms:
            size = abs(t.weight * t.coefficient)
            for g, c in enumerate(t.columns):
                size *= int(self.trees[g].levels[0].counts[:, c].max())
            largest += size
        if largest >= _LARGEST:
            raise unfollowed("their sums exceed 60 bits")

    def _shape(self, g: int, array: NDArray[_Entry]) -> NDArray[_Entry]:
        shape = [1] * len(self.trees)
        shape[g] = len(array)
        return array.reshape(shape)

    def _product(self, term: Term, depth: list[int], without: int = -1) -> Ints:
        """The weight of matching elements per combination of classes, group `without` left out."""
        value = np.full((1,) * len(self.trees), term.weight * term.coefficient, dtype=np.int64)
        for g, column in enumerate(term.columns):
            if g != without:
                value = value * self._shape(g, self.trees[g].levels[depth[g]].counts[:, column])
        return value

    def _ending(self, terms: Sequence[Term], depth: list[int], position: int) -> Ints:
        total = np.zeros((1,) * len(self.trees), dtype=np.int64)
        for t in terms:
            if t.inclusive and t.end == position:
                total = total + self._product(t, depth)
        return total

    def _last(self, terms: Sequence[Term], depth: list[int]) -> Ints:
        shape = [t.levels[d].size for t, d in zip(self.trees, depth, strict=True)]
        value = np.zeros(shape, dtype=np.int64) + self._ending(terms, depth, len(self.order))
        for g, t in enumerate(self.trees):
            live = self._shape(g, t.levels[depth[g]].live)
            value = np.where(live, value, _NEVER)
        return value

    def _step(self, terms: Sequence[Term], depth: list[int], position: int, value: Ints) -> Ints:
        """Values before the coordinate at `position` is chosen, from those after it; `depth` moves up."""
        g = self.order[position]
        depth[g] -= 1
        level = self.trees[g].levels[depth[g]]
        gain = np.take(value, level.child, axis=g)
        if gain.size > _CELLS:
            raise unfollowed("too many combinations of different tiles")
        for t in terms:
            if t.start <= position < t.end:
                more = self._product(t, depth, without=g)
                gain = gain + more * self._shape(g, level.before[:, t.columns[g]])
        starts = np.flatnonzero(np.concatenate(([True], np.diff(level.owner) != 0)))
        best = np.maximum.reduceat(gain, starts, axis=g)
        best = np.where(self._shape(g, level.live), best, _NEVER)
        return np.asarray(np.where(best < _NEVER // 2, _NEVER, best + self._ending(terms, depth, position)))

    def _trace(self, terms: Sequence[Term], values: list[Ints], buffets: int) -> tuple[int, ...]:
        """Elements per buffet at one phase of the peak."""
        state = [int(i) for i in np.unravel_index(int(np.argmax(values[0])), values[0].shape)]
        depth = [0] * len(self.trees)
        found = [0] * buffets
        for position in range(len(self.order) + 1):
            for t in terms:
                if t.inclusive and t.end == position:
                    found[t.buffet] += self._matching(t, state, depth)
            if position == len(self.order):
                break
            g = self.order[position]
            level = self.trees[g].levels[depth[g]]
            active = [t for t in terms if t.start <= position < t.end]
            partial = [self._matching(t, state, depth, without=g) for t in active]
            best, choice = _NEVER, -1
            for o in np.flatnonzero(level.owner == state[g]):
                there = tuple(int(level.child[o]) if k == g else s for k, s in enumerate(state))
                value = int(values[position + 1][there])
                for t, n in zip(active, partial, strict=True):
                    value += t.weight * n * int(level.before[o, t.columns[g]])
                if value > best:
                    best, choice = value, int(o)
            for t, n in zip(active, partial, strict=True):
                found[t.buffet] += n * int(level.before[choice, t.columns[g]])
            state[g] = int(level.child[choice])
            depth[g] += 1
        return tuple(found)

    def _matching(self, term: Term, state: list[int], depth: list[int], without: int = -1) -> int:
        value = term.coefficient
        for g, column in enumerate(term.columns):
            if g != without:
                value *= int(self.trees[g].levels[depth[g]].counts[state[g], column])
        return value
