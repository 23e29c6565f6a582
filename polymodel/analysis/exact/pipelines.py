"""Pipelines slot by slot, with equal iterations and equal slots counted once, and their working sets."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

import numpy as np

from polymodel.analysis.exact.buffets import ExactBuffet, ExactLayout, shape_of
from polymodel.analysis.exact.cached_counts import CountProduct, dense, tally
from polymodel.analysis.exact.flows import flows
from polymodel.analysis.exact.inter_branch_peaks import Gaps
from polymodel.analysis.exact.live_peaks import nominal_trips
from polymodel.analysis.exact.occupancy import has_gaps, item_of, items_of, peak
from polymodel.analysis.exact.rounding import bookings
from polymodel.analysis.exact.sweep import Ints, rank
from polymodel.analysis.result import (
    PipelineRun,
    PipelineSlot,
    StageWork,
    WorkingSet,
    ordered_slots,
    phase_of,
)
from polymodel.errors import Refused
from polymodel.integers import distinct_numbers, distinct_rows, dtype_of
from polymodel.integers import largest as largest_in
from polymodel.mapping.looptree import PipelineSplit, around
from polymodel.schedule.touch import partition, touch

# The work of each Einsum of a pipeline in each iteration, with equal iterations grouped into classes. See
# docs/semantics.md, Pipelines. Two iterations belong to one class if every instance of every component has
# the same loads in both.

CELLS = 40_000_000
Pairs = tuple[tuple[int, int], ...]
Load = dict[str, dict[int, tuple[int, int]]]  # component -> physical instance -> (read bits, write bits)
Weighted = tuple[int, CountProduct]
Side = tuple[str, int, bool]  # component, 0 reads or 1 writes, as a visit ends


@dataclass(frozen=True)
class Track:
    """The work of an Einsum or an inner pipeline: its class in every iteration; class 0 is idle."""

    classes: Ints
    works: tuple[StageWork | PipelineRun | None, ...]
    loads: tuple[Load, ...]


class Tracks:
    """The iterations of every pipeline, and the track of every Einsum in its innermost one."""

    def __init__(self, layout: ExactLayout, found: tuple[PipelineSplit, ...]) -> None:
        self.layout, self.found = layout, found
        self.names = [c.name for c in layout.problem.hierarchy.components]
        self.home = {e: p for p in found for e in p.einsums}  # inner pipelines come last
        self.trips = {e: nominal_trips(layout, e) for e in self.home}
        self.strides = self._strides()
        self.keys = {p.node: self._keys(p) for p in found}
        self.of = {e: t for p in found for e, t in self._einsum_tracks(p)}

    def _strides(self) -> dict[tuple[str, str], int]:
        """The increment of a physical instance's number per step along each fanout dimension."""
        sizes: dict[tuple[str, str], int] = {}
        for e, trips in self.trips.items():
            own: dict[tuple[str, str], int] = defaultdict(lambda: 1)
            for n, (_, loop) in zip(trips, self.layout.problem.tree.loops(e), strict=True):
                if loop.spatial:
                    own[loop.component, loop.dim] *= n
            for key, n in own.items():
                sizes[key] = max(sizes.get(key, 1), n)
        total, result = 1, {}
        for key, n in sizes.items():
            result[key], total = total, total * n
        return result

    def loops(self, p: PipelineSplit) -> tuple[int, tuple[int, ...]]:
        """The number of loops above the split, and the positions of the temporal ones."""
        above = [loop for i, loop in self.layout.problem.tree.loops(p.einsums[0]) if i < p.node]
        return len(above), tuple(k for k, loop in enumerate(above) if not loop.spatial)

    def _keys(self, p: PipelineSplit) -> Ints:
        """The iterations: temporal counters above the split, in order of time."""
        depth, temporal = self.loops(p)
        shape = tuple(max(self.trips[e][a] for e in p.einsums) for a in temporal)
        _limit(p, prod(shape))
        active = np.zeros(shape, dtype=bool)
        for e in p.einsums:
            parts = []
            view = next(v for (name, _), v in self.layout.full.items() if name == e).bare(depth)
            for f in touch((view,), partition((view,))).factors:
                parts.append((f.temporal, tally(shape_of(f), 0, (), len(f.temporal))))
            active |= np.asarray(dense((CountProduct(1, tuple(parts)),), temporal, shape) != 0, dtype=bool)
        return np.asarray(np.argwhere(active), dtype=np.int64).reshape(int(active.sum()), len(temporal))

    def _einsum_tracks(self, p: PipelineSplit) -> Iterable[tuple[str, Track]]:
        own = [e for e in p.einsums if self.home[e] is p]
        sides: dict[str, dict[Side, list[Weighted]]] = defaultdict(lambda: defaultdict(list))
        for b in bookings(self.layout, flows(self.layout, self.loops(p)[0], own), {}) if own else ():
            ends = b.row[4] in ("reads_drain", "writes_drain", "up")
            sides[b.einsum][b.component, 0 if b.reads else 1, ends] += [(b.bits, x) for x in b.products]
        for e in own:
            yield e, self._track(p, e, sides[e])

    def _track(self, p: PipelineSplit, einsum: str, sides: dict[Side, list[Weighted]]) -> Track:
        rows: dict[tuple[str, int], list[tuple[Ints, Ints]]] = defaultdict(list)
        for (component, side, ends), products in sides.items():
            rows[component, side].append(self._rows(p, einsum, products, ends))
        columns = [self._operations(p, einsum)[None, :]]
        index: list[tuple[str, Ints]] = []
        for name in self.names:
            mine = [(side, x) for side in (0, 1) for x in rows.get((name, side), ())]
            if not mine:
                continue
            places = distinct_numbers(np.concatenate([x[0] for _, x in mine]))
            held = dtype_of(sum(largest_in(values) for _, (_, values) in mine))
            table = np.zeros((2, len(places), columns[0].shape[1]), dtype=held)
            for side, (where, values) in mine:
                np.add.at(table[side], np.searchsorted(places, where), values)
            columns.append(table.reshape(-1, table.shape[-1]))
            index.append((name, places))
        whole = np.concatenate(columns).T
        found, classes = distinct_rows(np.concatenate([np.zeros_like(whole[:1]), whole]))
        works, loads = [], []
        for row in found:
            load: Load = {}
            at = 1
            for name, places in index:
                pairs = row[at : at + 2 * len(places)].reshape(2, -1).T
                at += 2 * len(places)
                load[name] = {
                    int(k): (int(r), int(w)) for k, (r, w) in zip(places, pairs, strict=True) if r or w
                }
            load = {name: each for name, each in load.items() if each}
            busy = bool(row.any())
            works.append(StageWork(einsum, int(row[0]), self.pareto(load)) if busy else None)
            loads.append(load)
        return Track(classes[1:], tuple(works), tuple(loads))

    def pareto(self, load: Load) -> tuple[tuple[str, Pairs], ...]:
        return tuple((name, largest(load[name].values())) for name in self.names if name in load)

    def _operations(self, p: PipelineSplit, einsum: str) -> Ints:
        """Operations of the instance that executes most, per iteration."""
        if self.layout.problem.cascade[einsum].is_copy:
            return np.zeros(len(self.keys[p.node]), dtype=np.int64)
        bare = next(v for (name, _), v in self.layout.full.items() if name == einsum).bare()
        depth, parts = self.loops(p)[0], []
        for f in touch((bare,), partition((bare,))).factors:
            keep, stamps = len(f.spatial), sum(1 for a in f.temporal if a < depth)
            axes = (*f.spatial, *f.temporal[:stamps])
            parts.append((axes, tally(shape_of(f), keep, (), stamps)))
        counts = self._rows(p, einsum, [(1, CountProduct(1, tuple(parts)))], False)[1]
        return np.asarray(counts.max(axis=0))

    def _rows(self, p: PipelineSplit, einsum: str, products: list[Weighted], ends: bool) -> tuple[Ints, Ints]:
        """(physical instances, values per instance and iteration) of the sums of the products.

        A product that lacks some counters of an iteration is booked in the first (`ends`: last) iteration
        that it covers.
        """
        temporal, keys = self.loops(p)[1], self.keys[p.node]
        groups: dict[tuple[int, ...], list[Weighted]] = defaultdict(list)
        for bits, product in products:
            axes = {a for own, _ in product.parts for a in own}
            groups[tuple(a for a in temporal if a in axes)].append((bits, product))
        every = {a for _, x in products for own, _ in x.parts for a in own}
        spatial = tuple(sorted(every - set(temporal)))
        extents = tuple(self.trips[einsum][a] for a in spatial)
        _limit(p, prod(extents) * len(keys))
        held = dtype_of(
            sum(abs(bits * x.sign) * prod(largest_in(a) for _, a in x.parts) for bits, x in products)
        )
        result = np.zeros((*extents, len(keys)), dtype=held)
        for times, mine in groups.items():
            heads = keys[:, : len(times)]
            shape = (*extents, *(int(c.max()) + 1 for c in heads.T))
            value = np.zeros(shape, dtype=held)
            for bits, product in mine:
                more = dense((product,), (*spatial, *times), shape).astype(held)
                value = np.asarray(value + more * bits, dtype=held)
            begins = np.concatenate(([True], (heads[1:] != heads[:-1]).any(axis=1)))
            at = np.flatnonzero(np.roll(begins, -1) if ends else begins)
            result[..., at] += value[(..., *heads[at].T)] if times else value[..., None]
        return self._places(einsum, spatial, extents), result.reshape(-1, len(keys))

    def _places(self, einsum: str, spatial: tuple[int, ...], extents: tuple[int, ...]) -> Ints:
        """Numbers of physical instances: loops on one dimension form a coordinate, outer most significant."""
        loops = self.layout.problem.tree.loops(einsum)
        places, weight = np.zeros(extents, dtype=np.int64), dict(self.strides)
        for k in reversed(range(len(spatial))):
            loop = loops[spatial[k]][1]
            key = loop.component, loop.dim
            shape = [1] * len(extents)
            shape[k] = extents[k]
            places += (np.arange(extents[k]) * weight[key]).reshape(shape)
            weight[key] *= extents[k]
        return places.reshape(-1)


def _limit(p: PipelineSplit, cells: int) -> None:
    if cells > CELLS:
        message = f"the Pipeline (node {p.node}) has too many iterations and instances to follow: {cells:,}"
        raise Refused(message, "use larger tiles in the loops above it", code="too-large")


def largest(found: Iterable[tuple[int, int]]) -> Pairs:
    """The pairs that no other pair exceeds in both numbers, sorted."""
    best: list[tuple[int, int]] = []
    for read, write in sorted(set(found), reverse=True):
        if not best or write > best[-1][1]:
            best.append((read, write))
    return tuple(sorted(best))


# Pipelines slot by slot: equal slots, and equal wraps of the pipelined loop, are counted once. See
# docs/semantics.md, Pipelines.


@dataclass(frozen=True)
class StageClasses:
    """A stage's class in every iteration; class 0 is idle. The work and the loads by class."""

    classes: Ints
    works: tuple[tuple[StageWork | PipelineRun, ...], ...]
    loads: tuple[Load, ...]


def pipeline_runs(layout: ExactLayout, found: tuple[PipelineSplit, ...]) -> tuple[PipelineRun, ...]:
    """Every pipeline that is not in a stage of another."""
    if not found:
        return ()
    tracks = Tracks(layout, found)
    runs = []
    for p in found:
        if p.outer is None:
            outermost = _run(tracks, p, np.zeros((1, 0), dtype=np.int64))
            runs += [w for w in outermost.works if isinstance(w, PipelineRun)]
    return tuple(runs)


def _run(tracks: Tracks, p: PipelineSplit, outer: Ints) -> Track:
    """The work of a pipeline in each iteration `outer` of the loops around it, a row of counters each."""
    keys = tracks.keys[p.node]
    stages = [_stage(tracks, p, b) for b in range(len(p.stages))]
    table = np.stack([s.classes for s in stages], axis=1)
    width = outer.shape[1]
    numbers = rank(np.concatenate([outer, keys[:, :width]]))
    inside, around = numbers[len(outer) :], numbers[: len(outer)]
    wraps = rank(keys[:, :-1] if p.loop is not None else keys)
    bounds = np.flatnonzero(np.concatenate(([True], wraps[1:] != wraps[:-1], [True])))
    members: dict[int, Counter[tuple[int, bytes]]] = defaultdict(Counter)
    for start, stop in pairwise(bounds):
        members[int(inside[start])][int(stop - start), table[start:stop].tobytes()] += 1
    kinds: dict[object, int] = {}
    works: list[StageWork | PipelineRun | None] = [None]
    loads: list[Load] = [{}]
    classes = np.zeros(len(outer), dtype=np.int64)
    for k, number in enumerate(around):
        mine = members.get(int(number))
        if not mine:
            continue
        kind = frozenset(mine.items())
        if kind not in kinds:
            kinds[kind] = len(works)
            works.append(PipelineRun(p.node, _slots(tracks, stages, mine, table.dtype)))
            loads.append(_total(stages, mine, table.dtype))
        classes[k] = kinds[kind]
    return Track(classes, tuple(works), tuple(loads))


def _stage(tracks: Tracks, p: PipelineSplit, b: int) -> StageClasses:
    """The Einsums and inner pipelines of a stage together."""
    parts: dict[object, Track] = {}
    for e in p.stages[b]:
        home = tracks.home[e]
        if home is p:
            parts[e] = tracks.of[e]
            continue
        while home.outer != p.node:
            home = next(q for q in tracks.found if q.node == home.outer)
        if home.node not in parts:
            parts[home.node] = _run(tracks, home, tracks.keys[p.node])
    table = np.stack([t.classes for t in parts.values()], axis=1)
    found, classes = np.unique(np.concatenate([np.zeros_like(table[:1]), table]), axis=0, return_inverse=True)
    works, loads = [], []
    for row in found:
        chosen = [(t, int(k)) for t, k in zip(parts.values(), row, strict=True)]
        works.append(tuple(w for t, k in chosen if (w := t.works[k]) is not None))
        loads.append(_joint((t.loads[k], 1) for t, k in chosen))
    return StageClasses(classes.reshape(-1)[1:], tuple(works), tuple(loads))


def _joint(loads: Iterable[tuple[Load, int]]) -> Load:
    """The sum of loads with multiplicities."""
    result: Load = {}
    for load, times in loads:
        for component, instances in load.items():
            into = result.setdefault(component, {})
            for place, (r, w) in instances.items():
                have = into.get(place, (0, 0))
                into[place] = have[0] + r * times, have[1] + w * times
    return result


def _slots(
    tracks: Tracks, stages: list[StageClasses], wraps: Counter[tuple[int, bytes]], kind: np.dtype[np.int64]
) -> tuple[PipelineSlot, ...]:
    counts: Counter[tuple[str, tuple[int, ...]]] = Counter()
    for (n, content), times in wraps.items():
        table = np.frombuffer(content, dtype=kind).reshape(n, len(stages))
        slots = np.zeros((n + len(stages) - 1, len(stages)), dtype=np.int64)
        for b in range(len(stages)):
            slots[b : b + n, b] = table[:, b]
        edges = sorted({0, min(n, len(stages) - 1), n, len(slots)})
        for start, stop in pairwise(edges):
            rows, each = np.unique(slots[start:stop], axis=0, return_counts=True)
            phase = phase_of(start, n, len(stages))
            for row, m in zip(rows, each, strict=True):
                counts[phase, tuple(int(k) for k in row)] += int(m) * times
    result: Counter[PipelineSlot] = Counter()
    for (phase, row), m in counts.items():
        works = tuple(s.works[k] for s, k in zip(stages, row, strict=True))
        result[PipelineSlot(phase, 1, works, _shared(tracks, stages, row))] += m
    return ordered_slots(result)


def _shared(
    tracks: Tracks, stages: list[StageClasses], row: tuple[int, ...]
) -> tuple[tuple[str, Pairs], ...]:
    """Joint loads of the components that at least two stages load in one slot."""
    loads = [s.loads[k] for s, k in zip(stages, row, strict=True)]
    several = {name for name in tracks.names if sum(name in load for load in loads) > 1}
    return tracks.pareto(_joint(({name: load[name] for name in several & set(load)}, 1) for load in loads))


def _total(stages: list[StageClasses], wraps: Counter[tuple[int, bytes]], kind: np.dtype[np.int64]) -> Load:
    """The loads of all stages in all wraps."""
    counts: Counter[tuple[int, int]] = Counter()
    for (n, content), times in wraps.items():
        table = np.frombuffer(content, dtype=kind).reshape(n, len(stages))
        for b in range(len(stages)):
            classes, each = np.unique(table[:, b], return_counts=True)
            for k, m in zip(classes, each, strict=True):
                counts[b, int(k)] += int(m) * times
    return _joint((stages[b].loads[k], m) for (b, k), m in counts.items())


# Working sets under the Einsums of pipelines: other stages count at the peak of their own buffets. See
# docs/semantics.md, Pipelines.


def overlapped_peak(
    layout: ExactLayout, einsum: str, component: str, measure: str, inside: PipelineSplit | None = None
) -> WorkingSet | None:
    """The peak of a component's buffets (`inside`: of those in the Einsum's stage of a pipeline alone)."""
    tree = layout.problem.tree
    scope = inside.node if inside else -1
    mine = [
        node
        for node in layout.nodes.values()
        if node.component == component
        and node.id > scope
        and (not inside or node.users[0] in inside.einsums)
        and not _elsewhere(layout, einsum, node)
    ]
    held = _own(layout, einsum, component, measure, mine)
    for p in around(tree, einsum):
        if p.node > scope:
            for b, stage in enumerate(p.stages):
                if b != p.stage_of(einsum):
                    rows = [overlapped_peak(layout, e, component, measure, p) for e in stage]
                    held += [max(found, key=lambda w: w.bits) for found in [[w for w in rows if w]] if found]
    if not held:
        return None
    residents = tuple(sorted((r for w in held for r in w.residents), key=lambda r: (r.node, r.tensor)))
    return WorkingSet(component, einsum, measure, sum(w.bits for w in held), residents)


def _elsewhere(layout: ExactLayout, einsum: str, node: ExactBuffet) -> bool:
    """True if the node belongs to another stage of a pipeline around the Einsum."""
    return any(
        node.id > p.node and node.users[0] in p.einsums and p.stage_of(node.users[0]) != p.stage_of(einsum)
        for p in around(layout.problem.tree, einsum)
    )


def _copies(layout: ExactLayout, einsum: str, node: ExactBuffet) -> int:
    """The number of tiles that a node above a pipeline of the Einsum holds at once, 0 if no stage uses it."""
    if not any(s.id == node.id for s in layout.problem.tree.path(einsum)):
        return 0
    above = (p for p in around(layout.problem.tree, einsum) if node.id < p.node)
    return max((p.copies(node.id, node.users) for p in above), default=0)


def _own(
    layout: ExactLayout, einsum: str, component: str, measure: str, mine: list[ExactBuffet]
) -> list[WorkingSet]:
    """Return the peaks of the buffets that no other stage holds: one of those that stages share, one of all
    others, by lifetime."""
    copies = [_copies(layout, einsum, node) for node in mine]
    alone = {(node.id, node.tensor) for node, n in zip(mine, copies, strict=True) if not n}
    rest = replace(
        layout, nodes={k: n for k, n in layout.nodes.items() if k in alone or n.component != component}
    )
    shared = [
        item if item.fixed is not None else replace(item, instances=item.instances * n)
        for node, n in zip(mine, copies, strict=True)
        if n
        for item in [item_of(layout, node)]
    ]
    rows = [peak(layout, einsum, component, "reserved", shared)]
    if measure == "tile" and has_gaps(rest, einsum, component):
        rows.append(Gaps(rest).peak(einsum, component))
    else:
        rows.append(
            peak(rest, einsum, component, measure, items_of(rest, einsum, component, measure == "reserved"))
        )
    return [w for w in rows if w is not None and w.bits]
