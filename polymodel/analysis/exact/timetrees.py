"""Stamps of one group of loops as a small automaton.

A group's stamps form a tree (one level per time coordinate). Subtrees in which all histograms look
alike are one class, and equal neighbours are one run of children, so a loop of thousands of interior
iterations is a run. Within a run the counts grow linearly, so a peak is reached at one of its ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polymodel.analysis.exact.sweep import Ints

Flags = NDArray[np.bool_]


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


def tree(phases: Ints, places: Ints, rows: Sequence[Rows], reach: int = 1) -> Tree:
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
    return Tree(_levels(nodes, depth, histogram, phase, ends, places.shape[1], reach))


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
    reach: int,
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
        kind, level = _level(parent[~own], kinds[~own], ending, found[0], ends > d, reach)
        found.insert(0, level)
        below = every[fresh]
    return tuple(found)


def _level(
    parent: Ints,
    child: Ints,
    ending: Ints,
    below: Level,
    deeper: Flags,
    reach: int,
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
    spans = [slice(int(first[node]), int(first[node] + runs[node])) for node in members]
    return classes, _options(
        [ending[n] for n in members], [(kind[s], length[s]) for s in spans], below, deeper, reach
    )


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
