"""Time (s) per component and Einsum, and what limits each Einsum.

A component takes as long as its busiest instance, with the bits of whole actions. By default transfers
overlap compute, so that an Einsum takes as long as its slowest component. With `assume_overlap: false`,
refills of a storage with `buffering: single` overlap nothing: the bits of its links to its parents are taken
out of the overlapping work, and the time of the slower end of each link is added, at each end that of the
busiest instance. `buffering: double` overlaps its refills and takes twice the tile (engines include that in
working sets).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace

from polymodel.analysis.result import PipelineRun, PipelineSlot, StageWork
from polymodel.architecture.hierarchy import Component
from polymodel.cost.algebra import FORMULAS, NUMBERS, Algebra, Number, StageShare, nothing
from polymodel.cost.energy import link_times
from polymodel.cost.records import (
    ComponentTime,
    Counts,
    EinsumTime,
    Limiter,
    PipelineTime,
    Refill,
    RooflinePoint,
    StageTime,
    busy_time,
    port_time,
    row_order,
    slowest_pair,
)
from polymodel.frozen import dataclass
from polymodel.mapping.looptree import PipelineSplit, fused_groups, pipelines


def component_times(counts: Counts, do: Algebra = NUMBERS) -> tuple[ComponentTime, ...]:
    """One row per Einsum and active component, in order of execution and then of the hierarchy."""
    result = [*_moving(counts, do), *link_times(counts, do), *_computing(counts, do)]
    order = row_order(counts.problem)
    return tuple(sorted(result, key=lambda t: order(t.einsum, t.component)))


def _moving(counts: Counts, do: Algebra) -> Iterator[ComponentTime]:
    hierarchy = counts.problem.hierarchy
    for load in counts.analysis.loads:
        c, n = hierarchy[load.component], counts.executions(load.einsum)
        r, w = slowest_pair(c, load.loads, do)
        longest = do.largest(port_time(c, pair, do) for pair in load.loads)
        seconds = busy_time(c, load.there, longest, n, do)
        yield ComponentTime(
            load.einsum, c.name, c.kind, r * n, w * n, 0, seconds, c.fill_drain_latency * n,
            cycles_of(c, seconds), load.instances, hierarchy.instances(c.name),
        )  # fmt: skip


def _computing(counts: Counts, do: Algebra) -> Iterator[ComponentTime]:
    hierarchy = counts.problem.hierarchy
    for work in counts.analysis.compute:
        if nothing(work.operations):
            continue
        c, n = hierarchy[work.component], counts.executions(work.einsum)
        spent = counts.operation(work.einsum, c.name).seconds(work.busiest, work.every[1])
        seconds = busy_time(c, work.operations, spent, n, do)
        yield ComponentTime(
            work.einsum, c.name, c.kind, 0, 0, work.busiest * n, seconds, c.fill_drain_latency * n,
            cycles_of(c, seconds), work.instances, hierarchy.instances(c.name),
        )  # fmt: skip


def cycles_of(component: Component, seconds: float) -> float | None:
    """The time in cycles of the component's clock; None without a clock."""
    return None if component.clock is None else seconds * component.clock


def einsum_times(
    counts: Counts,
    times: tuple[ComponentTime, ...],
    overlapped: tuple[PipelineTime | FormulaSpan, ...] = (),
    do: Algebra = NUMBERS,
) -> tuple[EinsumTime, ...]:
    """The latency of each Einsum in order of execution; its cycles are those of its compute unit.

    For an Einsum in a pipeline: the slots that are booked to it.
    """
    problem = counts.problem
    clock = {c.einsum: problem.hierarchy[c.component] for c in counts.analysis.compute}
    operations = {c.einsum: c.operations for c in counts.analysis.compute}
    result = []
    for name in counts.einsums:
        mine = [t for t in times if t.einsum == name]
        refills: tuple[Refill, ...] = ()
        rest = {t.component: t.seconds for t in mine}
        if not problem.hierarchy.assume_overlap:
            refills, rest = _serialised(counts, name, rest, do)
        inside = next((p for p in overlapped if name in p.einsums), None)
        if inside is not None:
            result.append(_inside(counts, name, inside, rest, clock.get(name), do))
            continue
        limiting = do.slowest(rest)
        seconds = do.largest(rest.values()) + do.total(r.seconds for r in refills)
        if limiting and not rest[limiting]:
            limiting = ""
        n = counts.executions(name)
        cycles = cycles_of(clock[name], seconds) if name in clock else None
        result.append(EinsumTime(name, seconds, limiting, operations.get(name, 0) * n, n, refills, cycles))
    return tuple(result)


def _inside(
    counts: Counts,
    einsum: str,
    inside: PipelineTime | FormulaSpan,
    busy: dict[str, float],
    unit: Component | None,
    do: Algebra,
) -> EinsumTime:
    """An Einsum of a pipeline.

    Its limiter is that of most of its slots (without any slots, its slowest component).
    """
    mine: dict[str, float] = {}
    for name, component, seconds in inside.booked:
        if name == einsum and seconds:
            mine[component] = mine.get(component, 0.0) + seconds
    seconds, limiting = do.total(mine.values()), do.slowest(mine or busy)
    operations = next((c.operations for c in counts.analysis.compute if c.einsum == einsum), 0)
    n = counts.executions(einsum)
    cycles = None if unit is None else cycles_of(unit, seconds)
    return EinsumTime(einsum, seconds, limiting, operations * n, n, (), cycles, inside.seconds)


def _moved(counts: Counts, einsum: str, component: str) -> Number:
    """Return a count that is above 0 if the component moves anything for the Einsum."""
    mine = (x.there for x in counts.analysis.loads if (x.einsum, x.component) == (einsum, component))
    return next(mine, 0)


def _serialised(
    counts: Counts, einsum: str, busy: dict[str, float], do: Algebra
) -> tuple[tuple[Refill, ...], dict[str, float]]:
    """Refills that overlap nothing, and the components' times without them.

    At each end the busiest instance counts; of the two ends of a refill, the slower one.
    """
    hierarchy, n = counts.problem.hierarchy, counts.executions(einsum)
    waits: dict[str, float] = {}
    rest = dict(busy)
    for share in counts.analysis.refills:
        if share.einsum != einsum:
            continue
        component = hierarchy[share.component]
        seconds = do.largest(port_time(component, moved, do) for moved in share.loads)
        if share.storage:
            waits[share.storage] = do.largest((waits.get(share.storage, 0.0), seconds))
        else:
            moved = _moved(counts, einsum, share.component)
            rest[share.component] = busy_time(component, moved, seconds, n, do)
    return tuple(Refill(einsum, name, seconds * n) for name, seconds in waits.items()), rest


# Time (s) of pipelines: slots last as long as their slowest stage, and their time is booked to its Einsums.
# See docs/semantics.md, Pipelines.

Loads = tuple[tuple[str, tuple[tuple[int, int], ...]], ...]


@dataclass
class Span:
    """Seconds, and their booking to (Einsum, component that limits it)."""

    seconds: Number = 0.0
    booked: dict[tuple[str, str], Number] = field(default_factory=dict)

    def add(self, other: Span, times: Number = 1, do: Algebra = NUMBERS) -> None:
        self.seconds += do.repeated(other.seconds, times)
        for key, seconds in other.booked.items():
            self.booked[key] = self.booked.get(key, 0.0) + seconds * times


def load_times(counts: Counts, loads: Loads, free: str = "", do: Algebra = NUMBERS) -> dict[str, Number]:
    """Seconds per component of its busiest instance; component `free` takes no time."""
    result: dict[str, Number] = {}
    for name, pairs in loads:
        if name != free:
            c = counts.problem.hierarchy[name]
            seconds = do.largest(port_time(c, pair, do) for pair in pairs)
            result[name] = busy_time(c, sum(map(sum, pairs)), seconds, 1, do)
    return result


def work_times(counts: Counts, work: StageWork, free: str = "", do: Algebra = NUMBERS) -> dict[str, Number]:
    """Seconds per component of one Einsum's work in one slot."""
    times = load_times(counts, work.loads, free, do)
    if work.operations:
        leaf = next(c.component for c in counts.analysis.compute if c.einsum == work.einsum)
        unit = counts.problem.hierarchy[leaf]
        if leaf != free:
            seconds = counts.operation(work.einsum, leaf).seconds(work.operations, work.operations)
            times[leaf] = busy_time(unit, work.operations, seconds, 1, do)
    return times


def item_span(counts: Counts, item: StageWork | PipelineRun, free: str = "", do: Algebra = NUMBERS) -> Span:
    """The time of an Einsum or an inner pipeline in one slot."""
    if isinstance(item, PipelineRun):
        result = Span()
        for slot in item.slots:
            result.add(slot_span(counts, slot, free, do), slot.count, do)
        return result
    times = work_times(counts, item, free, do)
    seconds = do.largest(times.values())
    return Span(seconds, {(item.einsum, do.slowest(times)): seconds})


def stage_spans(
    counts: Counts, slot: PipelineSlot, free: str = "", do: Algebra = NUMBERS
) -> tuple[Span, ...]:
    """The time of each stage of a slot."""
    result = []
    for stage in slot.stages:
        span = Span()
        for item in stage:
            span.add(item_span(counts, item, free, do))
        result.append(span)
    return tuple(result)


def slot_span(counts: Counts, slot: PipelineSlot, free: str = "", do: Algebra = NUMBERS) -> Span:
    """Return the time of a slot: that of its slowest stage, or of a component that several stages load."""
    stages = stage_spans(counts, slot, free, do)
    shared = load_times(counts, slot.shared, free, do)
    result = Span(do.largest([*(s.seconds for s in stages), *shared.values()]))
    first = do.slowest({str(b): s.seconds for b, s in enumerate(stages)})
    if not first:
        return result
    slowest, joint = stages[int(first)], do.slowest(shared)
    if not joint or shared[joint] <= slowest.seconds:
        result.booked = slowest.booked
        return result
    for (einsum, _), seconds in slowest.booked.items():
        share = seconds / slowest.seconds if slowest.seconds else 1 / len(slowest.booked)
        result.booked[einsum, joint] = result.booked.get((einsum, joint), 0.0) + shared[joint] * share
    return result


def run_seconds(counts: Counts, run: PipelineRun, do: Algebra) -> Number:
    """Seconds of all executions of a pipeline."""
    n = max(map(counts.executions, einsums_of(run)), default=1)
    return item_span(counts, run, do=do).seconds * n


@dataclass(frozen=True)
class FormulaSpan:
    """A pipeline's time as formulas, over all executions: what is booked to each Einsum, and the total."""

    einsums: tuple[str, ...]
    booked: tuple[tuple[str, str, Number], ...]
    seconds: Number


def spans_in_formulas(counts: Counts) -> tuple[FormulaSpan, ...]:
    """The time of each pipeline whose slots are formulas; the limiting component is undecided."""
    result = []
    for run in counts.analysis.pipelines:
        booked: dict[str, Number] = {}
        for slot in run.slots:
            stages = stage_spans(counts, slot, do=FORMULAS)
            joint = FORMULAS.largest(load_times(counts, slot.shared, do=FORMULAS).values())
            seconds = tuple(s.seconds for s in stages)
            for b, stage in enumerate(stages):
                for (einsum, _), own in stage.booked.items():
                    share = StageShare(own, seconds, b, joint, len(stage.booked))
                    booked[einsum] = booked.get(einsum, 0.0) + share * slot.count
        n = max(map(counts.executions, booked), default=1)
        rows = tuple((e, "", part * n) for e, part in booked.items())
        result.append(FormulaSpan(tuple(booked), rows, run_seconds(counts, run, FORMULAS)))
    return tuple(result)


def pipeline_times(counts: Counts) -> tuple[PipelineTime, ...]:
    """One record per pipeline that is not inside another one, over all executions."""
    known = {p.node: p for p in pipelines(counts.problem.tree)}
    return tuple(_pipeline_time(counts, run, known[run.node]) for run in counts.analysis.pipelines)


def _pipeline_time(counts: Counts, run: PipelineRun, p: PipelineSplit) -> PipelineTime:
    n = counts.executions(p.einsums[0])
    whole = Span()
    phases = dict.fromkeys(("fill", "steady", "drain"), 0.0)
    slots = dict.fromkeys(phases, 0)
    busy = [dict.fromkeys(phases, 0.0) for _ in p.stages]
    used, sets = [0] * len(p.stages), [0.0] * len(p.stages)
    for slot in run.slots:
        span, stages = slot_span(counts, slot), stage_spans(counts, slot)
        whole.add(span, slot.count)
        phases[slot.phase] += span.seconds * slot.count
        slots[slot.phase] += slot.count
        first = max(range(len(stages)), key=lambda b: stages[b].seconds)
        sets[first] += span.seconds * slot.count
        for b, stage in enumerate(stages):
            busy[b][slot.phase] += stage.seconds * slot.count
            used[b] += slot.count if slot.stages[b] else 0
    result = tuple(
        StageTime(
            b, einsums, used[b] * n,
            busy[b]["fill"] * n, busy[b]["steady"] * n, busy[b]["drain"] * n, sets[b] * n,
        )
        for b, einsums in enumerate(p.stages)
    )  # fmt: skip
    booked = tuple((e, c, seconds * n) for (e, c), seconds in whole.booked.items())
    return PipelineTime(
        run.node, result, slots["fill"] * n, slots["steady"] * n, slots["drain"] * n,
        phases["fill"] * n, phases["steady"] * n, phases["drain"] * n, booked,
    )  # fmt: skip


def without(counts: Counts, run: PipelineRun, component: str) -> float:
    """Seconds of all executions of a pipeline if the component took no time."""
    einsum = next(p.einsums[0] for p in pipelines(counts.problem.tree) if p.node == run.node)
    result: float = item_span(counts, run, component).seconds * counts.executions(einsum)
    return result


def einsums_of(run: PipelineRun) -> tuple[str, ...]:
    """Every Einsum of a pipeline, including those of inner pipelines."""
    result: dict[str, None] = {}
    for item in (x for slot in run.slots for stage in slot.stages for x in stage):
        result.update(dict.fromkeys(einsums_of(item) if isinstance(item, PipelineRun) else (item.einsum,)))
    return tuple(result)


# The roofline of each Einsum and of each group of fused ones, and the next limiter.

ONE_ROOF = 1e-9  # relative


def roofline(
    counts: Counts, times: tuple[ComponentTime, ...], latency: tuple[EinsumTime, ...]
) -> tuple[RooflinePoint, ...]:
    """One point per Einsum that computes. Ratios with a zero denominator are infinite.

    Bandwidths of one memory that differ only by rounding are unified to that of the first Einsum.
    """
    each = (_roofline_point(counts, times, (t,), t.span, t.limiting) for t in latency)
    return _common_roof(p for p in each if p is not None)


def group_roofline(
    counts: Counts, times: tuple[ComponentTime, ...], latency: tuple[EinsumTime, ...]
) -> tuple[RooflinePoint, ...]:
    """One roofline point per group of fused Einsums that computes.

    Its intensity is the operations of all over the bits that they move together at the outermost memory; its
    time is that of all. Its peak is that of their units in sequence, within a pipeline that of the busiest
    unit; its limiter is that of most of the time.
    """
    problem = counts.problem
    backing = next((c.name for c in problem.hierarchy.components if c.stores), "")
    result = []
    for group in fused_groups(problem.cascade, problem.tree, backing):
        mine = tuple(t for t in latency if t.einsum in group)
        limits: dict[str, float] = {}
        for t in mine:
            limits[t.limiting] = limits.get(t.limiting, 0.0) + t.seconds
        slowest = max(limits, key=lambda c: limits[c], default="")
        result.append(_roofline_point(counts, times, mine, math.fsum(t.seconds for t in mine), slowest))
    return _common_roof(p for p in result if p is not None)


def _common_roof(points: Iterable[RooflinePoint]) -> tuple[RooflinePoint, ...]:
    result: list[RooflinePoint] = []
    for p in points:
        known = (q.bandwidth for q in result if q.memory == p.memory)
        same = next((b for b in known if math.isclose(b, p.bandwidth, rel_tol=ONE_ROOF)), p.bandwidth)
        result.append(replace(p, bandwidth=same))
    return tuple(result)


def _roofline_point(
    counts: Counts,
    times: tuple[ComponentTime, ...],
    some: Sequence[EinsumTime],
    seconds: float,
    limiting: str,
) -> RooflinePoint | None:
    """The roofline point of Einsums that together take `seconds`; None if none of them computes."""
    hierarchy, names = counts.problem.hierarchy, {t.einsum for t in some}
    units = {c.einsum: c.component for c in counts.analysis.compute if c.operations and c.einsum in names}
    if not units:
        return None
    memories = [x for x in times if x.einsum in names and x.kind == "memory"]
    outer = min(memories, key=lambda x: hierarchy.index(x.component), default=None)
    name = outer.component if outer else ""
    bits = sum(_bits_moved(counts, one, name) for one in names)
    busy = math.fsum(x.seconds - x.added for x in memories if x.component == name)
    operations = sum(t.operations for t in some if t.einsum in units)
    return RooflinePoint(
        einsum=", ".join(t.einsum for t in some),
        memory=name,
        compute=", ".join(dict.fromkeys(units[t.einsum] for t in some if t.einsum in units)),
        operations=operations,
        moved_bits=bits,
        intensity=_ratio(operations, bits),
        bandwidth=_ratio(bits, busy),
        peak=(peak := _peak(counts, some, units)),
        attainable=min(peak, _ratio(operations, busy)),
        achieved=_ratio(operations, seconds),
        limiting=limiting,
    )


def _peak(counts: Counts, some: Sequence[EinsumTime], units: Mapping[str, str]) -> float:
    """Operations per second of the Einsums in sequence with all units fully used; in a pipeline units
    overlap."""
    hierarchy = counts.problem.hierarchy
    rates: dict[str, float] = {}
    for e, unit in units.items():
        cost = counts.operation(e, unit)
        each = 1 / (1 / cost.throughput + cost.finish_seconds) if cost.finish_seconds else cost.throughput
        rates[e] = each * hierarchy.instances(unit)
    if len({*rates.values()}) == 1 and len({*units.values()}) == 1:
        return next(iter(rates.values()))
    least = {t.einsum: t.operations / rates[t.einsum] for t in some if t.einsum in units}
    stages = [{*einsums_of(run)} & {*least} for run in counts.analysis.pipelines]
    alone = [s for e, s in least.items() if not any(e in stage for stage in stages)]
    together = (
        max(math.fsum(least[e] for e in stage if units[e] == unit) for unit in {units[e] for e in stage})
        for stage in stages
        if stage
    )
    return _ratio(sum(t.operations for t in some if t.einsum in units), math.fsum([*alone, *together]))


def _bits_moved(counts: Counts, einsum: str, component: str) -> Number:
    """Bits that one Einsum reads and writes at a component, over all instances and executions; on sparse data
    with metadata, which take time like values."""
    mine = [t for t in counts.analysis.traffic if (t.einsum, t.component) == (einsum, component)]
    bits: Number = sum((t.reads + t.writes) * counts.bits(t.tensor) for t in mine)
    more = [c for c in counts.analysis.charges if (c.einsum, c.component) == (einsum, component)]
    bits += sum(c.count for c in more if not c.action.startswith("gated_"))
    return bits * counts.executions(einsum)


def _ratio(a: float, b: float) -> float:
    return a / b if b else math.inf


def limiters(
    counts: Counts, times: tuple[ComponentTime, ...], latency: tuple[EinsumTime, ...]
) -> tuple[Limiter, ...]:
    """Components of each Einsum, slowest first (ties in hierarchy order)."""
    result = []
    runs = {e: run for run, e in _overlapped(counts)}
    for t in latency:
        mine = sorted((x for x in times if x.einsum == t.einsum), key=lambda x: -x.seconds)
        waiting = math.fsum(r.seconds for r in t.refills)
        for rank, x in enumerate(mine, 1):
            others = [o for o in mine if o is not x]
            follower = others[0] if others else None
            left = (follower.seconds if follower else 0.0) + waiting
            if t.einsum in runs and rank == 1:
                left = without(counts, runs[t.einsum], x.component)
            result.append(
                Limiter(
                    einsum=t.einsum,
                    component=x.component,
                    rank=rank,
                    seconds=x.seconds,
                    slack=t.span - x.seconds,
                    next_limiter=follower.component if follower else "",
                    speedup=_ratio(t.span, left) if rank == 1 else 1.0,
                )
            )
    return tuple(result)


def _overlapped(counts: Counts) -> Iterator[tuple[PipelineRun, str]]:
    """Each Einsum of a pipeline with its outermost pipeline."""
    einsums = {p.node: p.einsums for p in pipelines(counts.problem.tree)}
    for run in counts.analysis.pipelines:
        yield from ((run, e) for e in einsums[run.node])
