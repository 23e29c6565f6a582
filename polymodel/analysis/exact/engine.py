"""Assembles the exact counts into the records that every engine returns."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any

import numpy as np

from polymodel.analysis.exact.buffets import ExactBuffet, ExactLayout, lay_out, shape_of
from polymodel.analysis.exact.cached_counts import CountProduct, dense, tally, total
from polymodel.analysis.exact.flows import KINDS, ProductLedger, flows
from polymodel.analysis.exact.inter_branch_peaks import Gaps
from polymodel.analysis.exact.lifetimes import lifetimes
from polymodel.analysis.exact.links import link_rows
from polymodel.analysis.exact.occupancy import has_gaps, items_of, peak, tile_numbers
from polymodel.analysis.exact.pipelines import largest, overlapped_peak, pipeline_runs
from polymodel.analysis.exact.rounding import Booking, bookings, transfer_rows, transfers_of
from polymodel.analysis.result import (
    Analysis,
    Buffet,
    ComputeCounts,
    InstanceLoad,
    LinkTraffic,
    Problem,
    RefillLoad,
    TollTraffic,
    Traffic,
    WorkingSet,
    pipelines_of,
)
from polymodel.errors import Refused
from polymodel.integers import dtype_of
from polymodel.mapping.looptree import ComputeNode, StorageNode, around
from polymodel.schedule.touch import partition, touch

Groups = list[tuple[int, list[CountProduct]]]


class Exact:
    """Relations counted with barvinok: any affine workload, numbers for tile sizes."""

    name = "exact"

    def __repr__(self) -> str:
        return "engine exact: relations, counted with barvinok"

    def traffic(self, problem: Problem, *, reuse: str | None = None) -> tuple[Traffic, ...]:
        """The traffic alone; raises Refused for what this engine does not cover."""
        layout = lay_out(problem, reuse)
        return _traffic(layout, flows(layout))

    def analyse(self, problem: Problem, *, reuse: str | None = None, live: bool = False) -> Analysis:
        """Count everything; raises Refused for what this engine does not cover."""
        overlapped = pipelines_of(problem)
        layout = lay_out(problem, reuse)
        ledger = flows(layout)
        transfers = transfers_of(layout)
        booked = tuple(bookings(layout, ledger, transfers))
        buffets = _buffets(layout)
        notes: list[str] = []
        working = _working_sets(layout, notes if reuse else None)
        if live:
            counts, peaks = lifetimes(layout)
            buffets = tuple(replace(b, live=counts[b.node, b.tensor]) for b in buffets)
            apart = tuple(w for w in peaks if not around(problem.tree, w.einsum))
            working = _interleave(layout, working, apart)
        return Analysis(
            self.name,
            buffets,
            _traffic(layout, ledger),
            _compute(layout),
            _loads(layout, booked),
            working,
            _tolls(layout, ledger),
            tuple(notes),
            _links(layout),
            _refills(layout, booked),
            transfer_rows(layout, ledger, transfers),
            pipeline_runs(layout, overlapped),
        )


ENGINE = Exact()


def _tensor_order(problem: Problem) -> dict[int, tuple[str, ...]]:
    return {i: n.tensors for i, n, _ in problem.tree.walk() if isinstance(n, StorageNode)}


def _buffets(layout: ExactLayout) -> tuple[Buffet, ...]:
    rows = []
    for node_id, tensors in _tensor_order(layout.problem).items():
        for tensor in tensors:
            node = layout.nodes.get((node_id, tensor))
            if node is not None:
                rows.append(
                    Buffet(
                        node.id,
                        node.component,
                        tensor,
                        node.reuse,
                        node.users,
                        node.parent,
                        *tile_numbers(node),
                    )
                )
    return tuple(rows)


def _traffic(layout: ExactLayout, ledger: ProductLedger) -> tuple[Traffic, ...]:
    order = _tensor_order(layout.problem)
    rows = []
    for einsum in layout.problem.tree.einsums:
        mine = [k for k in ledger.accesses if k[0] == einsum]
        mine.sort(key=lambda k: (k[1], order[k[1]].index(k[2])))
        for _, node_id, tensor in mine:
            booked = ledger.accesses[einsum, node_id, tensor]
            numbers = (total(booked.get(kind, ())) for kind in KINDS)
            component = layout.nodes[node_id, tensor].component
            rows.append(Traffic(einsum, node_id, component, tensor, *numbers))
    return tuple(rows)


def _compute(layout: ExactLayout) -> tuple[ComputeCounts, ...]:
    rows = []
    for name in layout.problem.tree.einsums:
        leaf = layout.problem.tree.path(name)[-1].node
        assert isinstance(leaf, ComputeNode)
        if layout.problem.cascade[name].is_copy:
            rows.append(ComputeCounts(name, leaf.component, 0, 0, 0))
            continue
        view = next(v for (e, _), v in layout.full.items() if e == name)
        bare = view.bare()
        operations = busiest = instances = 1
        for f in touch((bare,), partition((bare,))).factors:
            shape = shape_of(f)
            per_instance = tally(shape, shape.np)
            operations *= int(per_instance.sum())
            busiest *= int(per_instance.max())
            instances *= int(np.count_nonzero(per_instance))
        rows.append(ComputeCounts(name, leaf.component, operations, busiest, instances))
    return tuple(rows)


def _extents(groups: list[tuple[int, list[CountProduct]]]) -> dict[int, int]:
    result: dict[int, int] = {}
    for _, products in groups:
        for product in products:
            for axes, array in product.parts:
                for k, axis in enumerate(axes):
                    result[axis] = max(result.get(axis, 1), array.shape[k])
    return result


def _load(
    einsum: str,
    component: str,
    reads: list[tuple[int, list[CountProduct]]],
    writes: list[tuple[int, list[CountProduct]]],
) -> InstanceLoad | None:
    """Per-instance sums; each group is (bits per element, products)."""
    extents = _extents(reads + writes)
    order = tuple(sorted(extents))
    shape = tuple(extents[a] for a in order)
    sums = []
    for groups in (reads, writes):
        most = sum(abs(bits * p.total) for bits, products in groups for p in products)
        value = np.zeros(shape, dtype=dtype_of(most))
        for bits, products in groups:
            if products:
                more = dense(products, order, shape).astype(value.dtype)
                value = np.asarray(value + more * bits, dtype=value.dtype)
        sums.append(value)
    reads_each, writes_each = (value.ravel() for value in sums)
    busy = int(np.count_nonzero((reads_each != 0) | (writes_each != 0)))
    if not busy:
        return None
    return InstanceLoad(einsum, component, largest(_largest_or_more_writes(reads_each, writes_each)), busy)


def _largest_or_more_writes(reads: Any, writes: Any) -> set[tuple[int, int]]:
    """The pair with the most reads, and the distinct pairs with more writes; no other pair is a largest one.

    Most instances have equal loads, so that this leaves few pairs to be sorted.
    """
    most = reads.max()
    first = writes[reads == most].max()
    more = writes > first
    rest = np.stack([reads[more], writes[more]], axis=1)
    if rest.dtype != object:
        rest = np.unique(rest, axis=0)
    return {(int(most), int(first)), *((int(r), int(w)) for r, w in rest.tolist())}


def _loads(layout: ExactLayout, booked: tuple[Booking, ...]) -> tuple[InstanceLoad, ...]:
    groups: dict[tuple[str, str], list[Booking]] = defaultdict(list)
    for b in booked:
        groups[b.einsum, b.component].append(b)
    rows = []
    for einsum in layout.problem.tree.einsums:
        for component in layout.problem.hierarchy.components:
            mine = groups.get((einsum, component.name), [])
            sides = ([(b.bits, list(b.products)) for b in mine if b.reads is down] for down in (True, False))
            row = _load(einsum, component.name, *sides)
            if row is not None:
                rows.append(row)
    return tuple(rows)


def _tolls(layout: ExactLayout, ledger: ProductLedger) -> tuple[TollTraffic, ...]:
    rows = []
    for einsum in layout.problem.tree.einsums:
        for component in layout.problem.hierarchy.components:
            for tensor in layout.problem.cascade[einsum].tensors:
                mine = [
                    p
                    for p in ledger.tolls
                    if (p.einsum, p.component, p.tensor) == (einsum, component.name, tensor)
                ]
                down = sum(total(p.products) for p in mine if not p.up)
                up = sum(total(p.products) for p in mine if p.up)
                if down or up:
                    rows.append(TollTraffic(einsum, component.name, tensor, down, up))
    return tuple(rows)


def _links(layout: ExactLayout) -> tuple[LinkTraffic, ...]:
    """Traffic across the dimensions whose links have a cost; empty if there are none."""
    hierarchy, cascade = layout.problem.hierarchy, layout.problem.cascade
    if not hierarchy.costly_links:
        return ()
    result = {}
    for einsum, component, dim, row in link_rows(layout):
        hops = tuple((t, row.hops[t]) for t in cascade[einsum].tensors if row.hops.get(t))
        load = _load(einsum, component, row.down, row.up)
        if hops or load:
            ends = (load.loads, load.instances) if load else ((), 0)
            one = LinkTraffic(einsum, component, dim.name, hops, *ends, row.reach)
            result[einsum, component, dim.name] = one
    keys = [(e, c, d.name) for e in layout.problem.tree.einsums for c, d in hierarchy.costly_links]
    return tuple(result[key] for key in keys if key in result)


def _refills(layout: ExactLayout, booked: tuple[Booking, ...]) -> tuple[RefillLoad, ...]:
    """The ends of single-buffered storages' refills, and the rest at these components."""
    hierarchy = layout.problem.hierarchy
    names = [c.name for c in hierarchy.components]
    waiting = [name for name in names if hierarchy.waits(name)]
    if not waiting:
        return ()
    groups = refill_groups(layout, booked)
    rows = []
    for einsum in layout.problem.tree.einsums:
        ends = set()
        for storage, component in [(s, c) for s in waiting for c in names]:
            load = _load(einsum, component, *groups.get((einsum, component, storage), ([], [])))
            if load:  # counts of fills that are booked to other Einsums cancel out
                rows.append(RefillLoad(einsum, component, storage, load.loads))
                ends.add(component)
        for component in (name for name in names if name in ends):
            load = _load(einsum, component, *groups.get((einsum, component, ""), ([], [])))
            rows.append(RefillLoad(einsum, component, "", load.loads if load else ((0, 0),)))
    return tuple(rows)


def _working_sets(layout: ExactLayout, notes: list[str] | None) -> tuple[WorkingSet, ...]:
    """All peaks. A comparison of policies (`notes` given) continues without those that are refused."""
    rows: list[WorkingSet | None] = []
    gaps = Gaps(layout)
    for einsum in layout.problem.tree.einsums:
        for component in layout.problem.hierarchy.components:
            if not component.stores:
                continue
            try:
                row = _tile_peak(layout, einsum, component.name, gaps)
            except Refused as refusal:
                if notes is None:
                    raise
                notes.append(f"working set of {component.name} under {einsum}: {refusal.message}")
                row = None
            rows.append(row)
            rows.append(_reserved_peak(layout, einsum, component.name))
    return tuple(row for row in rows if row is not None and row.bits)


def _tile_peak(layout: ExactLayout, einsum: str, component: str, gaps: Gaps) -> WorkingSet | None:
    """The tile peak by classes of stamps, or cell by cell if tiles outlive their branch."""
    if around(layout.problem.tree, einsum):
        return overlapped_peak(layout, einsum, component, "tile")
    if has_gaps(layout, einsum, component):
        return gaps.peak(einsum, component)
    return peak(layout, einsum, component, "tile", items_of(layout, einsum, component, False))


def _reserved_peak(layout: ExactLayout, einsum: str, component: str) -> WorkingSet | None:
    if around(layout.problem.tree, einsum):
        return overlapped_peak(layout, einsum, component, "reserved")
    return peak(layout, einsum, component, "reserved", items_of(layout, einsum, component, True))


def _interleave(
    layout: ExactLayout, tiles: tuple[WorkingSet, ...], live: tuple[WorkingSet, ...]
) -> tuple[WorkingSet, ...]:
    order = {c.name: i for i, c in enumerate(layout.problem.hierarchy.components)}
    einsums = {e: i for i, e in enumerate(layout.problem.tree.einsums)}
    measure = {"tile": 0, "reserved": 1, "live": 2}
    return tuple(
        sorted([*tiles, *live], key=lambda w: (einsums[w.einsum], order[w.component], measure[w.measure]))
    )


def refill_groups(
    layout: ExactLayout, booked: tuple[Booking, ...]
) -> dict[tuple[str, str, str], tuple[Groups, Groups]]:
    """(Einsum, component, storage) -> (reads, writes) that refills of `storage` make at `component`.

    If `storage` is empty: everything else that happens there.
    """
    result: dict[tuple[str, str, str], tuple[Groups, Groups]] = defaultdict(lambda: ([], []))
    for b in booked:
        einsum, node_id, component, tensor, kind = b.row
        if node_id is not None:
            storage = _refilled(layout, einsum, layout.nodes[node_id, tensor], kind)
            result[einsum, component, storage][0 if b.reads else 1].append((b.bits, list(b.products)))
    return dict(result)


def _refilled(layout: ExactLayout, einsum: str, node: ExactBuffet, kind: str) -> str:
    """The single-buffered storage whose refill an access is part of, or ""."""
    if kind in ("writes_fill", "reads_drain"):
        storage = node.component if node.parent is not None else ""
    else:
        chain = [n.id for n in layout.chain(einsum, node.tensor)]
        below = chain[chain.index(node.id) + 1 :]
        storage = layout.nodes[below[0], node.tensor].component if below else ""
    return storage if storage and layout.problem.hierarchy.waits(storage) else ""
