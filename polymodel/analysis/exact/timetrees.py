"""Stamps of one group of loops as a small automaton.

A group's stamps form a tree (one level per time coordinate). Subtrees in which all histograms look
alike are one class, and equal neighbours are one run of children, so a loop of thousands of interior
iterations is a run. Within a run the counts grow linearly, so a peak is reached at one of its ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from polymodel.analysis.exact.grids import numbered, one_of_each, packed, unfollowed
from polymodel.analysis.exact.sweep import Ints

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Rows:
    """One row per element: coordinates of its instance, and the first time coordinates of a use."""

    places: tuple[Ints, ...]
    stamps: tuple[Ints, ...]
    count: int

    @property
    def depth(self) -> int:
        return len(self.stamps)


@dataclass(frozen=True)
class Level:
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
class Tree:
    """Levels 0 (the instances' roots) to the number of time coordinates."""

    levels: tuple[Level, ...]


def _classes(columns: Sequence[Ints], rows: int) -> tuple[Ints, Ints]:
    """(class of each row, one row of each class)."""
    keys = packed(columns, rows)
    numbers, different = numbered(keys.keys, keys.bound)
    return numbers, one_of_each(numbers, len(different))


def tree(phases: Sequence[Ints], rows: Sequence[Rows], reach: int = 1) -> Tree:
    """The tree over all `phases` (stamps of the executing Einsum, in order) in every instance of the rows."""
    count = len(phases[0]) if phases else 1
    low, extents = [], []
    for c, column in enumerate(phases):
        each = [column, *(r.stamps[c] for r in rows if r.depth > c and r.count)]
        low.append(min(int(x.min()) for x in each))
        extents.append(max(int(x.max()) for x in each) - low[-1] + 2)
    below = [prod(extents[d:]) for d in range(len(extents) + 1)]

    def stamp(columns: Sequence[Ints], size: int) -> Ints:
        """Digits from 1 on; 0 stands for those that a prefix lacks."""
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
    return Tree(_levels(nodes, depth, histograms, phase, [r.depth for r in rows], below, reach))


def _levels(
    nodes: Ints,
    depth: Ints,
    histograms: list[Ints],
    phase: Flags,
    ends: list[int],
    below: list[int],
    reach: int,
) -> tuple[Level, ...]:
    """Classes from the leaves up. `nodes` are different and sorted; a prefix stands before its extensions."""
    width = len(below) - 1
    here = np.flatnonzero(depth == width)
    leaves = [h[here] for h in histograms]
    kind, where = _classes([*leaves, phase[here].astype(np.int64)], len(here))
    none = np.zeros(0, dtype=np.int64)
    counts = np.stack([h[where] for h in leaves], axis=1) if leaves else np.zeros((len(where), 0), np.int64)
    found = [Level(counts, phase[here][where], none, none, np.zeros((0, len(ends)), np.int64))]
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
        kind, level = _level(parent[~own], kind[~own], int(parent[-1]) + 1, ending, found[0], deeper, reach)
        found.insert(0, level)
        here = every[fresh]
    return tuple(found)


def _level(
    parent: Ints,
    child: Ints,
    count: int,
    ending: dict[int, Ints],
    below: Level,
    deeper: Flags,
    reach: int,
) -> tuple[Ints, Level]:
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
    own: list[Ints], runs: list[tuple[Ints, Ints]], below: Level, deeper: Flags, reach: int
) -> Level:
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
    return Level(
        np.array(counts, dtype=np.int64).reshape(len(own), len(deeper)),
        np.array(live, dtype=bool),
        np.array([o[0] for o in options], dtype=np.int64),
        np.array([o[1] for o in options], dtype=np.int64),
        np.array([o[2] for o in options], dtype=np.int64).reshape(len(options), len(deeper)),
    )
