"""Peaks of sums of counts over all interleavings of groups' stamps.

A phase chooses one child per time coordinate, outermost first, each in the tree of its group. Everything
further in depends only on the classes chosen so far, so that the largest sum is computed from the innermost
coordinate outwards, for all combinations of classes at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import lcm, prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from polymodel.analysis.exact.grids import numbered, one_of_each, packed, unfollowed
from polymodel.analysis.exact.sweep import Ints
from polymodel.integers import dtype_of

# The stamps of one group of loops as a small automaton. A group's stamps form a tree (one level per time
# coordinate). Subtrees with equal histograms are one class, and equal neighbours are one run of children, so
# that a loop of thousands of interior iterations is one run. Within a run the counts grow linearly, so that a
# peak is at one of its ends.

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class ElementRows:
    """One row per element: coordinates of its instance, and the first time coordinates of a use."""

    places: tuple[Ints, ...]
    stamps: tuple[Ints, ...]
    count: int

    @property
    def depth(self) -> int:
        return len(self.stamps)


@dataclass(frozen=True)
class NodeClasses:
    """The classes of tree nodes at one depth.

    `counts[c, h]`: elements of histogram h below a node of class c (of histograms that reach deeper,
    or end here). `live`: whether a phase is below. Options are the ends of runs of children (`reach`
    children each): `owner` class, `child` class at the next depth, `before[o, h]` elements of
    histogram h under earlier children; every class has at least one.
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
class TimeTree:
    """Levels 0 (the instances' roots) to the number of time coordinates."""

    levels: tuple[NodeClasses, ...]


def _classes(columns: Sequence[Ints], rows: int) -> tuple[Ints, Ints]:
    """(class of each row, one row of each class)."""
    keys = packed(columns, rows)
    numbers, different = numbered(keys.keys, keys.bound)
    return numbers, one_of_each(numbers, len(different))


def tree(phases: Sequence[Ints], rows: Sequence[ElementRows], reach: int = 1) -> TimeTree:
    """The tree over all `phases` (stamps of the executing Einsum, in order) in every instance of the rows."""
    count = len(phases[0]) if phases else 1
    low, extents = [], []
    for c, column in enumerate(phases):
        each = [column, *(r.stamps[c] for r in rows if r.depth > c and r.count)]
        low.append(min(int(x.min()) for x in each))
        extents.append(max(int(x.max()) for x in each) - low[-1] + 2)
    below = [prod(extents[d:]) for d in range(len(extents) + 1)]

    def stamp(columns: Sequence[Ints], size: int) -> Ints:
        """Digits start at 1; 0 stands for those that a prefix lacks."""
        key = np.zeros(size, dtype=np.int64)
        for c, column in enumerate(columns):
            key = key + (column - (low[c] - 1)) * below[c + 1]
        return key

    sites = packed(
        [np.concatenate(x) for x in zip(*(r.places for r in rows), strict=True)], sum(r.count for r in rows)
    )
    bound = sites.bound * below[0]
    if bound >= 2**62:
        raise unfollowed("their coordinates exceed 62 bits")
    places = numbered(sites.keys, sites.bound)[1] if rows else np.zeros(1, dtype=np.int64)
    cuts = np.cumsum([0, *(r.count for r in rows)])
    keys = [(places[:, None] * below[0] + stamp(phases, count)).reshape(-1)]
    for r, begin in zip(rows, cuts, strict=False):
        keys.append(sites.keys[begin : begin + r.count] * below[0] + stamp(r.stamps, r.count))
    ids, nodes = numbered(np.concatenate(keys), bound)
    parts = np.split(ids, np.cumsum([len(k) for k in keys])[:-1])
    phase, depth = np.zeros(len(nodes), dtype=bool), np.full(len(nodes), len(extents))
    phase[parts[0]] = True
    for r, part in zip(rows, parts[1:], strict=True):
        depth[part] = r.depth
    histograms = [np.bincount(part, minlength=len(nodes)) for part in parts[1:]]
    return TimeTree(_levels(nodes, depth, histograms, phase, [r.depth for r in rows], below, reach))


def _levels(
    nodes: Ints,
    depth: Ints,
    histograms: list[Ints],
    phase: Flags,
    ends: list[int],
    below: list[int],
    reach: int,
) -> tuple[NodeClasses, ...]:
    """Classes from the leaves up. `nodes` are distinct and sorted; a prefix comes before its extensions."""
    width = len(below) - 1
    here = np.flatnonzero(depth == width)
    leaves = [h[here] for h in histograms]
    kind, where = _classes([*leaves, phase[here].astype(np.int64)], len(here))
    none = np.zeros(0, dtype=np.int64)
    counts = np.stack([h[where] for h in leaves], axis=1) if leaves else np.zeros((len(where), 0), np.int64)
    result = [NodeClasses(counts, phase[here][where], none, none, np.zeros((0, len(ends)), np.int64))]
    for d in range(width - 1, -1, -1):
        ours = np.flatnonzero(depth == d)
        every, own = here, np.zeros(len(here), dtype=bool)
        if len(ours):
            order = np.argsort(np.concatenate([ours, here]), kind="stable")
            every, own = np.concatenate([ours, here])[order], order < len(ours)
            kind = np.concatenate([np.full(len(ours), -1, dtype=np.int64), kind])[order]
        fresh = np.diff(nodes[every] // below[d], prepend=-1) != 0
        parent = np.cumsum(fresh) - 1
        ending = {}
        for h, end in enumerate(ends):
            if end == d:
                ending[h] = np.zeros(int(parent[-1]) + 1, dtype=np.int64)
                ending[h][parent[own]] = histograms[h][every[own]]
        deeper = np.array([end > d for end in ends], dtype=bool)
        kind, level = _level(parent[~own], kind[~own], int(parent[-1]) + 1, ending, result[0], deeper, reach)
        result.insert(0, level)
        here = every[fresh]
    return tuple(result)


def _level(
    parent: Ints,
    child: Ints,
    count: int,
    ending: dict[int, Ints],
    below: NodeClasses,
    deeper: Flags,
    reach: int,
) -> tuple[Ints, NodeClasses]:
    """(class per node, the level) of nodes with these children (in time order) and own counts."""
    cuts = np.flatnonzero((np.diff(parent, prepend=-1) != 0) | (np.diff(child, prepend=-1) != 0))
    length = np.diff(cuts, append=len(parent))
    owner, kind = parent[cuts], child[cuts]
    runs = np.bincount(owner, minlength=count)
    first = np.concatenate(([0], np.cumsum(runs)[:-1]))
    classes = np.empty(count, dtype=np.int64)
    members: list[int] = []
    for n in np.flatnonzero(np.bincount(runs)):
        mine = np.flatnonzero(runs == n)
        columns = [e[mine] for e in ending.values()]
        for k in range(n):
            columns += [kind[first[mine] + k], length[first[mine] + k]]
        ids, where = _distinct(columns, len(mine))
        classes[mine] = ids + len(members)
        members += mine[where].tolist()
    own = np.zeros((len(members), len(deeper)), dtype=np.int64)
    for h, e in ending.items():
        own[:, h] = e[members]
    spans = [slice(int(first[node]), int(first[node] + runs[node])) for node in members]
    return classes, _options(list(own), [(kind[s], length[s]) for s in spans], below, deeper, reach)


def _distinct(columns: list[Ints], rows: int) -> tuple[Ints, Ints]:
    """Like `_classes`, for any number of columns."""
    numbers, where = np.zeros(rows, dtype=np.int64), np.zeros(1, dtype=np.int64)
    for start in range(0, len(columns), 2):
        numbers, where = _classes([numbers, *columns[start : start + 2]], rows)
    return numbers, where


def _options(
    own: list[Ints], runs: list[tuple[Ints, Ints]], below: NodeClasses, deeper: Flags, reach: int
) -> NodeClasses:
    """The level of classes with these counts of their own and these runs (class, length) of children."""
    counts, live, options = [], [], []
    for c, (mine, (k, n)) in enumerate(zip(own, runs, strict=True)):
        gain = below.counts[k] * deeper
        weights = gain * n[:, None]
        start = np.cumsum(weights, axis=0) - weights
        counts.append(mine + weights.sum(axis=0))
        usable = below.live[k]
        live.append(bool(usable.any()))
        if not live[-1]:
            options.append((c, 0, np.zeros(len(deeper), dtype=np.int64)))
        for i in np.flatnonzero(usable):
            last = int(n[i])
            chosen = {*range(min(reach, last)), *range(max(last - reach, 0), last)}
            options += [(c, int(k[i]), start[i] + gain[i] * at) for at in sorted(chosen)]
    return NodeClasses(
        np.array(counts, dtype=np.int64).reshape(len(own), len(deeper)),
        np.array(live, dtype=bool),
        np.array([o[0] for o in options], dtype=np.int64),
        np.array([o[1] for o in options], dtype=np.int64),
        np.array([o[2] for o in options], dtype=np.int64).reshape(len(options), len(deeper)),
    )


_Entry = TypeVar("_Entry", bound=np.generic)
_CELLS = 4_000_000


@dataclass(frozen=True)
class PeakTerm:
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
class Rounding:
    """A buffet whose weights add up to a multiple of `whole`, rounded up; `weight` is that of its terms."""

    buffet: int
    weight: int
    whole: int

    @property
    def period(self) -> int:
        """The number of elements after which the remainder repeats."""
        return lcm(self.weight, self.whole) // self.weight

    def missing(self, elements: Ints) -> Ints:
        """The amount that rounding up adds."""
        return np.asarray(-(elements * (self.weight % self.whole)) % self.whole)


@dataclass(frozen=True)
class Interleaving:
    """Groups' trees, and for each time coordinate of the Einsum its group, outermost first.

    With `roundings`, the elements chosen so far are distinguished by their number modulo each period.
    """

    trees: tuple[TimeTree, ...]
    order: tuple[int, ...]
    roundings: tuple[Rounding, ...] = ()
    bound: int = 0  # of all sums, in magnitude

    @cached_property
    def _sum_dtype(self) -> Any:
        """Return the dtype of sums, which also has room for the value that represents no sum."""
        return dtype_of(64 * self.bound)

    @cached_property
    def _never(self) -> int:
        """A value less than any sum, also after sums are added to it."""
        return -16 * (self.bound + 1)

    def peak(self, terms: Sequence[PeakTerm], buffets: int) -> tuple[int, tuple[int, ...]]:
        """(largest weighted sum over all phases and instances, the unweighted sum per buffet there)."""
        return self._bounded(terms)._peak(terms, buffets)

    def _peak(self, terms: Sequence[PeakTerm], buffets: int) -> tuple[int, tuple[int, ...]]:
        depth = [len(t.levels) - 1 for t in self.trees]
        values = [self._last(terms, depth)]
        for position in range(len(self.order) - 1, -1, -1):
            values.insert(0, self._step(terms, depth, position, values[0]))
        first = values[0][..., 0]
        state = [int(i) for i in np.unravel_index(int(np.argmax(first)), first.shape)]
        result = self._trace(terms, dict(enumerate(values)), state, [0] * len(self.trees), 0, [0] * buffets)
        return int(first.max()), result

    def _bounded(self, terms: Sequence[PeakTerm]) -> Interleaving:
        """The same with a bound of all sums of these terms."""
        largest = sum(r.whole for r in self.roundings)
        for t in terms:
            size = abs(t.weight * t.coefficient)
            for g, c in enumerate(t.columns):
                depth = sum(1 for k in self.order[: t.start] if k == g)
                size *= int(self.trees[g].levels[depth].counts[:, c].max())
            largest += max(size, abs(t.weight), abs(t.coefficient))
        return replace(self, bound=largest)

    # Remainders: the last axis of every value

    @cached_property
    def _rests(self) -> Ints:
        """Per combination of remainders: one column per rounding."""
        periods = [r.period for r in self.roundings]
        return np.indices(periods, dtype=np.int64).reshape(len(periods), prod(periods)).T

    def _moved(self, value: Ints, more: dict[int, Ints]) -> Ints:
        """`value` at the remainders after `more` elements of each rounding (over combinations of classes)."""
        if not self.roundings or not more:
            return value
        target = np.zeros((*value.shape[:-1], len(self._rests)), dtype=np.int64)
        for k, r in enumerate(self.roundings):
            moved = np.zeros((1,) * (value.ndim - 1), dtype=self._sum_dtype) + more.get(k, 0)
            rest = (moved[..., None] + self._rests[:, k]) % r.period
            target = target * r.period + rest.astype(np.int64)
        return np.take_along_axis(value, target, axis=-1)

    def _elements(self, found: list[tuple[PeakTerm, Ints]]) -> dict[int, Ints]:
        """Elements per rounding."""
        more: dict[int, Ints] = {}
        for k, r in enumerate(self.roundings):
            for t, count in found:
                if t.buffet == r.buffet:
                    more[k] = more.get(k, 0) + count
        return more

    # Values over combinations of classes

    def _shape(self, g: int, array: NDArray[_Entry]) -> NDArray[_Entry]:
        shape = [1] * len(self.trees)
        shape[g] = len(array)
        return array.reshape(shape)

    def _product(self, term: PeakTerm, depth: list[int], without: int = -1) -> Ints:
        """Matching elements per combination of classes, without group `without`."""
        value = np.full((1,) * len(self.trees), term.coefficient, dtype=self._sum_dtype)
        for g, column in enumerate(term.columns):
            if g != without:
                value = value * self._shape(g, self.trees[g].levels[depth[g]].counts[:, column])
        return value

    def _added(self, value: Ints, found: list[tuple[PeakTerm, Ints]]) -> Ints:
        """`value` after these elements."""
        value = self._moved(value, self._elements(found))
        for t, count in found:
            value = value + (t.weight * count)[..., None]
        return value

    def _ended(self, value: Ints, terms: Sequence[PeakTerm], depth: list[int], position: int) -> Ints:
        ending = [t for t in terms if t.inclusive and t.end == position]
        return self._added(value, [(t, self._product(t, depth)) for t in ending])

    def _last(self, terms: Sequence[PeakTerm], depth: list[int]) -> Ints:
        shape = [t.levels[d].size for t, d in zip(self.trees, depth, strict=True)]
        rest = np.zeros(len(self._rests), dtype=self._sum_dtype)
        for k, r in enumerate(self.roundings):
            rest = rest + r.missing(self._rests[:, k])
        value = np.zeros((*shape, len(rest)), dtype=self._sum_dtype) + rest
        value = self._ended(value, terms, depth, len(self.order))
        for g, t in enumerate(self.trees):
            live = self._shape(g, t.levels[depth[g]].live)
            value = np.where(live[..., None], value, self._never)
        return value

    def _step(self, terms: Sequence[PeakTerm], depth: list[int], position: int, value: Ints) -> Ints:
        """Values before the coordinate at `position` is chosen, from those after it; `depth` moves up."""
        g = self.order[position]
        depth[g] -= 1
        level = self.trees[g].levels[depth[g]]
        if value.size // value.shape[g] * len(level.child) > _CELLS:
            raise unfollowed("too many combinations of different tiles")
        found = []
        for t in terms:
            if t.start <= position < t.end:
                before = self._shape(g, level.before[:, t.columns[g]])
                found.append((t, self._product(t, depth, without=g) * before))
        gain = self._added(np.take(value, level.child, axis=g), found)
        starts = np.flatnonzero(np.diff(level.owner, prepend=-1) != 0)
        best = np.maximum.reduceat(gain, starts, axis=g)
        best = np.where(self._shape(g, level.live)[..., None], best, self._never)
        best = np.where(best < self._never // 2, self._never, best)
        best = self._ended(best, terms, depth, position)
        return np.asarray(np.where(best < self._never // 2, self._never, best), dtype=self._sum_dtype)

    # One phase of the peak, or all phases

    def phases(self, terms: Sequence[PeakTerm], buffets: int, depth: int) -> Ints:
        """The unweighted sums per buffet (columns) at every stamp of the first `depth` coordinates (rows).

        Stamps are in order; further in, at the phase with the largest weighted sum. For one instance, without
        roundings, and trees whose options are all children.
        """
        return self._bounded(terms)._phases(terms, buffets, depth)

    def _phases(self, terms: Sequence[PeakTerm], buffets: int, depth: int) -> Ints:
        levels = [len(t.levels) - 1 for t in self.trees]
        values = {len(self.order): self._last(terms, levels)}
        for position in range(len(self.order) - 1, depth - 1, -1):
            values[position] = self._step(terms, levels, position, values[position + 1])
        state = np.zeros((1, len(self.trees)), dtype=np.int64)
        result = np.zeros((1, buffets), dtype=self._sum_dtype)
        at = [0] * len(self.trees)
        for position, g in enumerate(self.order[:depth]):
            for t in terms:
                if t.inclusive and t.end == position:
                    result[:, t.buffet] += self._counted(t, state, at)
            level = self.trees[g].levels[at[g]]
            first = np.searchsorted(level.owner, state[:, g], side="left")
            many = np.searchsorted(level.owner, state[:, g], side="right") - first
            option = np.arange(many.sum()) - np.repeat(np.cumsum(many) - many - first, many)
            state, result = np.repeat(state, many, axis=0), np.repeat(result, many, axis=0)
            for t in terms:
                if t.start <= position < t.end:
                    before = level.before[option, t.columns[g]]
                    result[:, t.buffet] += self._counted(t, state, at, without=g) * before
            state[:, g] = level.child[option]
            at[g] += 1
        states, which = np.unique(state, axis=0, return_inverse=True)
        nothing = [0] * buffets
        rest = [self._trace(terms, values, s.tolist(), list(at), depth, nothing) for s in states]
        more = np.array(rest, dtype=self._sum_dtype).reshape(len(rest), buffets)[which.reshape(-1)]
        return np.asarray(result + more, dtype=self._sum_dtype)

    def _counted(self, term: PeakTerm, state: Ints, depth: list[int], without: int = -1) -> Ints:
        """`_product` for rows of classes."""
        value = np.full(len(state), term.coefficient, dtype=self._sum_dtype)
        for g, column in enumerate(term.columns):
            if g != without:
                value = value * self.trees[g].levels[depth[g]].counts[state[:, g], column]
        return value

    def _trace(
        self,
        terms: Sequence[PeakTerm],
        values: Mapping[int, Ints],
        state: list[int],
        depth: list[int],
        start: int,
        found: list[int],
    ) -> tuple[int, ...]:
        """Elements per buffet at one phase of the peak, from the coordinate `start` on."""
        found = list(found)
        for position in range(start, len(self.order) + 1):
            for t in terms:
                if t.inclusive and t.end == position:
                    found[t.buffet] += self._matching(t, state, depth)
            if position == len(self.order):
                break
            option, found = self._chosen(terms, values[position + 1], state, depth, position, found)
            g = self.order[position]
            state[g] = int(self.trees[g].levels[depth[g]].child[option])
            depth[g] += 1
        return tuple(found)

    def _chosen(
        self,
        terms: Sequence[PeakTerm],
        after: Ints,
        state: list[int],
        depth: list[int],
        position: int,
        found: list[int],
    ) -> tuple[int, list[int]]:
        """(the best option at a coordinate, elements per buffet with it)."""
        g = self.order[position]
        level: NodeClasses = self.trees[g].levels[depth[g]]
        active = [t for t in terms if t.start <= position < t.end]
        partial = [self._matching(t, state, depth, without=g) for t in active]
        best: tuple[int, int, list[int]] | None = None
        for o in np.flatnonzero(level.owner == state[g]):
            there = [int(level.child[o]) if k == g else s for k, s in enumerate(state)]
            then = list(found)
            value = 0
            for t, n in zip(active, partial, strict=True):
                more = n * int(level.before[o, t.columns[g]])
                then[t.buffet] += more
                value += t.weight * more
            rest = 0
            for r in self.roundings:
                rest = rest * r.period + then[r.buffet] % r.period
            value += int(after[(*there, rest)])
            if best is None or value > best[0]:
                best = value, int(o), then
        assert best is not None
        return best[1], best[2]

    def _matching(self, term: PeakTerm, state: list[int], depth: list[int], without: int = -1) -> int:
        value = term.coefficient
        for g, column in enumerate(term.columns):
            if g != without:
                value *= int(self.trees[g].levels[depth[g]].counts[state[g], column])
        return value
