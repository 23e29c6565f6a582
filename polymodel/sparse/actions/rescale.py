"""Convert sparse counts to an analysis with the same records, so that costs are computed as for dense data.

Energy counts what is moved and executed (gated accesses and operations, and metadata, by their own names).
Time also counts gated ones. The busiest instance keeps its share of the work: the same fraction is taken to
be eliminated in all instances, and the certainty labels say where this is exact. Counts are numbers of one
mapping, or arrays over many mappings.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, cast

import numpy as np

from polymodel.analysis.result import (
    Analysis,
    Charge,
    ComputeCounts,
    LinkTraffic,
    PipelineRun,
    Problem,
    Resident,
    StageWork,
    TollTraffic,
    Traffic,
    TransferSizes,
    WorkingSet,
)
from polymodel.mapping.looptree import storage_chain
from polymodel.sparse.actions.counts import einsums_in
from polymodel.sparse.actions.records import (
    KINDS,
    AccessCount,
    SparseCounts,
    TileFootprint,
    choose,
    larger,
    ratio,
)

READS = ("reads_fill", "reads_drain")
Loads = tuple[tuple[Any, Any], ...]
Ways = tuple[Any, Any]  # factors of read and written bits


def sparse_analysis(problem: Problem, analysis: Analysis, counts: SparseCounts) -> Analysis:
    """Return the dense analysis with its counts replaced by sparse counts. Whole numbers stay ints."""
    return _Rescaled(problem, analysis, counts).analysis()


def _count(number: float) -> int:
    """Cast to int for the type checker only: records declare counts as ints, expected counts are floats, and
    costs accept both."""
    return cast(int, number)


def _times(number: Any, factor: Any) -> Any:
    return number if np.ndim(factor) == 0 and factor == 1 else number * factor


def _some(number: Any) -> bool:
    """Return False if the number is 0. An array, whose values are not inspected, gives True."""
    return np.ndim(number) > 0 or bool(number)


class _Rescaled:
    def __init__(self, problem: Problem, analysis: Analysis, counts: SparseCounts) -> None:
        self.problem = problem
        self.dense = analysis
        self.counts = counts
        self.bits = {a.tensor: a.bits_per_value for e in problem.cascade for a in reversed(e.accesses)}
        self.kinds = {(a.einsum, a.node, a.tensor, a.kind): a for a in counts.accesses}
        self.work = {c.einsum: c for c in counts.compute}
        self.ways = self._ways()

    def analysis(self) -> Analysis:
        """Return the dense analysis with every record rescaled."""
        d = self.dense
        return replace(
            d,
            traffic=tuple(map(self._traffic, d.traffic)),
            compute=tuple(map(self._compute, d.compute)),
            loads=tuple(replace(x, loads=self._loads(x.einsum, x.component, x.loads)) for x in d.loads),
            working_sets=tuple(map(self._working_set, d.working_sets)),
            tolls=tuple(map(self._toll, d.tolls)),
            links=tuple(map(self._link, d.links)),
            refills=tuple(replace(x, loads=self._loads(x.einsum, x.component, x.loads)) for x in d.refills),
            transfers=tuple(map(self._transfer, d.transfers)),
            pipelines=tuple(map(self._pipeline, d.pipelines)),
            charges=(*d.charges, *self._charges()),
            notes=(*d.notes, *self.counts.notes),
        )

    def _ways(self) -> dict[tuple[str, str], tuple[Any, Any, Any]]:
        """Map (Einsum, component) to the fractions of the bits read and of the bits written that remain,
        gated accesses included, and to whether there are any such bits."""
        sums: dict[tuple[str, str], list[Any]] = {}
        for a in self.counts.accesses:
            found = sums.setdefault((a.einsum, a.component), [0, 0, 0, 0])
            at, bits = (0 if a.kind in READS else 2), self.bits[a.tensor]
            found[at] = found[at] + ((a.actual + a.gated) * bits + a.metadata_bits)
            found[at + 1] = found[at + 1] + a.dense * bits
        return {k: (ratio(r, rd), ratio(w, wd), (rd + wd) > 0) for k, (r, rd, w, wd) in sums.items()}

    def _loads(self, einsum: str, component: str, loads: Loads) -> Loads:
        read, write, some = self.ways.get((einsum, component), (1.0, 1.0, False))
        if not np.all(some):
            passing = self._passing(einsum, component)
            read, write = choose(some, read, passing[0]), choose(some, write, passing[1])
        return tuple((_times(r, read), _times(w, write)) for r, w in loads)

    def _traffic(self, row: Traffic) -> Traffic:
        result = []
        for kind in KINDS:
            count = self.kinds.get((row.einsum, row.node, row.tensor, kind))
            result.append(getattr(row, kind) if count is None else _count(count.actual))
        return Traffic(row.einsum, row.node, row.component, row.tensor, *result)

    def _compute(self, row: ComputeCounts) -> ComputeCounts:
        count = self.work.get(row.einsum)
        if count is None or not _some(count.dense):
            return row
        executed, busiest = _count(count.executed), _count(count.busiest)
        every = row.operations, row.busiest
        fewer = _some(row.operations - executed) or _some(row.busiest - busiest)
        dense = every if fewer else None
        return replace(row, operations=executed, busiest=busiest, dense=dense)

    def _transfer(self, row: TransferSizes) -> TransferSizes:
        """Scale the number of transfers. A compressed tensor has equally many transfers, each with fewer
        elements, so that keeping their sizes for rounding gives an upper bound."""
        if row.node is None:
            down, up = self._crossing(row.einsum, row.component, row.tensor)
            factor = down if row.kind == "down" else up
        else:
            factor = _left(self.kinds.get((row.einsum, row.node, row.tensor, row.kind)))
        return replace(row, sizes=tuple((size, _times(n, factor)) for size, n in row.sizes))

    def _toll(self, row: TollTraffic) -> TollTraffic:
        down, up = self._crossing(row.einsum, row.component, row.tensor)
        return replace(row, down=_times(row.down, down), up=_times(row.up, up))

    def _link(self, row: LinkTraffic) -> LinkTraffic:
        einsum, at = row.einsum, row.component
        hops = tuple((t, _times(n, larger(*self._crossing(einsum, at, t)))) for t, n in row.hops)
        down, up = self._passing(einsum, at)
        return replace(row, hops=hops, loads=tuple((_times(d, down), _times(u, up)) for d, u in row.loads))

    def _crossing(self, einsum: str, component: str, tensor: str) -> Ways:
        """Return the fractions of a tensor's transfers through a component (down, up) that remain; they equal
        those of the next outer storage."""
        hierarchy = self.problem.hierarchy
        chain = storage_chain(self.problem.tree, einsum, tensor)
        names = [(s.id, getattr(s.node, "component", "")) for s in chain]
        outside = [i for i, name in names if hierarchy.index(name) < hierarchy.index(component)]
        if not outside:
            return 1.0, 1.0
        down = self.kinds.get((einsum, outside[-1], tensor, "reads_fill"))
        up = self.kinds.get((einsum, outside[-1], tensor, "writes_drain"))
        return _left(down), _left(up)

    def _passing(self, einsum: str, component: str) -> Ways:
        """Return the fractions (down, up) of all tensors' transfers through a component that remain, weighted
        by their bits."""
        down: list[Any] = [0.0, 0.0]
        up: list[Any] = [0.0, 0.0]
        for access in self.problem.cascade[einsum].accesses:
            moved = [
                t
                for t in self.dense.tolls
                if (t.einsum, t.component, t.tensor) == (einsum, component, access.tensor)
            ]
            weight_down, weight_up = (
                choose(weight != 0, weight, 1)
                for weight in (sum(t.down for t in moved), sum(t.up for t in moved))
            )
            left = self._crossing(einsum, component, access.tensor)
            for total, weight, share in ((down, weight_down, left[0]), (up, weight_up, left[1])):
                total[0] = total[0] + weight * share * access.bits_per_value
                total[1] = total[1] + weight * access.bits_per_value
        return ratio(*down), ratio(*up)

    def _pipeline(self, run: PipelineRun) -> PipelineRun:
        slots = []
        for slot in run.slots:
            stages = tuple(tuple(self._item(x) for x in stage) for stage in slot.stages)
            einsums = sorted({e for stage in slot.stages for x in stage for e in einsums_in(x)})
            shared = tuple((c, self._joint(einsums, c, loads)) for c, loads in slot.shared)
            slots.append(replace(slot, stages=stages, shared=shared))
        return replace(run, slots=tuple(slots))

    def _item(self, item: StageWork | PipelineRun) -> StageWork | PipelineRun:
        if isinstance(item, PipelineRun):
            return self._pipeline(item)
        count = self.work.get(item.einsum)
        factor = count.timed / count.dense if count is not None and count.dense else 1.0
        loads = tuple((c, self._loads(item.einsum, c, x)) for c, x in item.loads)
        return replace(item, operations=_times(item.operations, factor), loads=loads)

    def _joint(self, einsums: Iterable[str], component: str, loads: Loads) -> Loads:
        """Scale the combined loads of several stages by the largest fraction that remains of any of them."""
        ways = [self.ways.get((e, component), (1.0, 1.0, False)) for e in einsums]
        read, write = max((w[0] for w in ways), default=1.0), max((w[1] for w in ways), default=1.0)
        return tuple((_times(r, read), _times(w, write)) for r, w in loads)

    def _working_set(self, peak: WorkingSet) -> WorkingSet:
        held = {(f.node, f.tensor): f for f in self.counts.footprints}
        residents = tuple(_resident(r, held.get((r.node, r.tensor))) for r in peak.residents)
        change = sum(r.bits for r in residents) - sum(r.bits for r in peak.residents)
        return replace(peak, bits=peak.bits + change if change else peak.bits, residents=residents)

    def _charges(self) -> Iterator[Charge]:
        for a in self.counts.accesses:
            way = "read" if a.kind in READS else "write"
            component = self.problem.hierarchy[a.component]
            if _some(a.gated):
                yield Charge(a.einsum, a.component, a.tensor, f"gated_{way}", a.gated * self.bits[a.tensor])
            if _some(a.metadata_bits):
                own = f"metadata_{way}"
                named = any(x.name == own for x in component.actions)
                yield Charge(a.einsum, a.component, a.tensor, own if named else way, a.metadata_bits)
        for c in self.counts.compute:
            if _some(c.gated):
                yield Charge(c.einsum, c.component, "", "gated_compute", c.gated)


def _resident(resident: Resident, held: TileFootprint | None) -> Resident:
    if held is None or not held.dense_bits or held.needed_bits == held.dense_bits:
        return resident
    return replace(resident, bits=_count(resident.bits * held.needed_bits / held.dense_bits))


def _left(count: AccessCount | None) -> Any:
    return 1.0 if count is None else ratio(count.actual, count.dense)
