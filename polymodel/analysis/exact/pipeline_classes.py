"""What each Einsum of a pipeline does in each iteration, with equal iterations grouped into classes.

docs/semantics.md, Pipelines. Two iterations belong to one class if every instance of every component has the
same loads in both.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

import numpy as np

from polymodel.analysis.exact.buffets import Layout, shape_of
from polymodel.analysis.exact.cached_counts import Product, dense, tally
from polymodel.analysis.exact.flows import flows
from polymodel.analysis.exact.live_peaks import nominal_trips
from polymodel.analysis.exact.rounding import bookings
from polymodel.analysis.exact.sweep import Ints
from polymodel.analysis.result import PipelineRun, StageWork
from polymodel.errors import Refused
from polymodel.integers import distinct_rows, dtype_of
from polymodel.integers import largest as largest_in
from polymodel.mapping.looptree import Pipeline
from polymodel.schedule.touch import partition, touch

CELLS = 40_000_000
Pairs = tuple[tuple[int, int], ...]
Load = dict[str, dict[int, tuple[int, int]]]  # component -> physical instance -> (read bits, write bits)
Weighted = tuple[int, Product]
Side = tuple[str, int, bool]  # component, 0 reads or 1 writes, as a visit ends


@dataclass(frozen=True)
class Track:
    """What an Einsum or an inner pipeline does: its class in every iteration; class 0 does nothing."""

    classes: Ints
    works: tuple[StageWork | PipelineRun | None, ...]
    loads: tuple[Load, ...]


class Tracks:
    """The iterations of every pipeline, and the track of every Einsum in its innermost one."""

    def __init__(self, layout: Layout, found: tuple[Pipeline, ...]) -> None:
        self.layout, self.found = layout, found
        self.names = [c.name for c in layout.problem.hierarchy.components]
        self.home = {e: p for p in found for e in p.einsums}  # inner pipelines come last
        self.trips = {e: nominal_trips(layout, e) for e in self.home}
        self.strides = self._strides()
        self.keys = {p.node: self._keys(p) for p in found}
        self.of = {e: t for p in found for e, t in self._tracks(p)}

    def _strides(self) -> dict[tuple[str, str], int]:
        """How much a step along each fanout dimension adds to the number of a physical instance."""
        sizes: dict[tuple[str, str], int] = {}
        for e, trips in self.trips.items():
            own: dict[tuple[str, str], int] = defaultdict(lambda: 1)
            for n, (_, loop) in zip(trips, self.layout.problem.tree.loops(e), strict=True):
                if loop.spatial:
                    own[loop.component, loop.dim] *= n
            for key, n in own.items():
                sizes[key] = max(sizes.get(key, 1), n)
        total, found = 1, {}
        for key, n in sizes.items():
            found[key], total = total, total * n
        return found

    def loops(self, p: Pipeline) -> tuple[int, tuple[int, ...]]:
        """How many loops stand above the split, and the positions of the temporal ones."""
        above = [loop for i, loop in self.layout.problem.tree.loops(p.einsums[0]) if i < p.node]
        return len(above), tuple(k for k, loop in enumerate(above) if not loop.spatial)

    def _keys(self, p: Pipeline) -> Ints:
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
            active |= np.asarray(dense((Product(1, tuple(parts)),), temporal, shape) != 0, dtype=bool)
        return np.asarray(np.argwhere(active), dtype=np.int64).reshape(int(active.sum()), len(temporal))

    def _tracks(self, p: Pipeline) -> Iterable[tuple[str, Track]]:
        own = [e for e in p.einsums if self.home[e] is p]
        sides: dict[str, dict[Side, list[Weighted]]] = defaultdict(lambda: defaultdict(list))
        for b in bookings(self.layout, flows(self.layout, self.loops(p)[0], own), {}) if own else ():
            ends = b.row[4] in ("reads_drain", "writes_drain", "up")
            sides[b.einsum][b.component, 0 if b.reads else 1, ends] += [(b.bits, x) for x in b.products]
        for e in own:
            yield e, self._track(p, e, sides[e])

    def _track(self, p: Pipeline, einsum: str, sides: dict[Side, list[Weighted]]) -> Track:
        rows: dict[tuple[str, int], list[tuple[Ints, Ints]]] = defaultdict(list)
        for (component, side, ends), products in sides.items():
            rows[component, side].append(self._rows(p, einsum, products, ends))
        columns = [self._operations(p, einsum)[None, :]]
        index: list[tuple[str, Ints]] = []
        for name in self.names:
            mine = [(side, x) for side in (0, 1) for x in rows.get((name, side), ())]
            if not mine:
                continue
            places = np.unique(np.concatenate([x[0] for _, x in mine]))
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

    def _operations(self, p: Pipeline, einsum: str) -> Ints:
        """Operations of the instance that executes most, per iteration."""
        if self.layout.problem.cascade[einsum].is_copy:
            return np.zeros(len(self.keys[p.node]), dtype=np.int64)
        bare = next(v for (name, _), v in self.layout.full.items() if name == einsum).bare()
        depth, parts = self.loops(p)[0], []
        for f in touch((bare,), partition((bare,))).factors:
            keep, stamps = len(f.spatial), sum(1 for a in f.temporal if a < depth)
            axes = (*f.spatial, *f.temporal[:stamps])
            parts.append((axes, tally(shape_of(f), keep, (), stamps)))
        counts = self._rows(p, einsum, [(1, Product(1, tuple(parts)))], False)[1]
        return np.asarray(counts.max(axis=0))

    def _rows(self, p: Pipeline, einsum: str, products: list[Weighted], ends: bool) -> tuple[Ints, Ints]:
        """(physical instances, values per instance and iteration) of what the products sum up to.

        What has not all counters of an iteration happens in the first (`ends`: last) one that it covers.
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


def _limit(p: Pipeline, cells: int) -> None:
    if cells > CELLS:
        raise Refused(
            f"the Pipeline (node {p.node}) has too many iterations and instances to follow: {cells:,}",
            "use larger tiles in the loops above it",
        )


def largest(found: Iterable[tuple[int, int]]) -> Pairs:
    """The pairs that no other pair exceeds in both numbers, sorted."""
    best: list[tuple[int, int]] = []
    for read, write in sorted(set(found), reverse=True):
        if not best or write > best[-1][1]:
            best.append((read, write))
    return tuple(sorted(best))
