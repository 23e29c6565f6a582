"""Time (s) of pipelines: slots that last as long as their slowest stage, and whose time that is.

docs/semantics.md, Pipelines.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from polymodel.analysis.result import PipelineRun, Slot, StageWork
from polymodel.cost.algebra import NUMBERS, Algebra, Number
from polymodel.cost.context import Counts
from polymodel.cost.ports import busy_time, port_time
from polymodel.cost.records import PipelineTime, StageTime
from polymodel.mapping.looptree import Pipeline, pipelines

Loads = tuple[tuple[str, tuple[tuple[int, int], ...]], ...]


@dataclass
class Span:
    """Seconds, and how they are booked to (Einsum, component that limits it)."""

    seconds: Number = 0.0
    booked: dict[tuple[str, str], Number] = field(default_factory=dict)

    def add(self, other: Span, times: int = 1) -> None:
        self.seconds += other.seconds * times
        for key, seconds in other.booked.items():
            self.booked[key] = self.booked.get(key, 0.0) + seconds * times


def load_times(counts: Counts, loads: Loads, free: str = "", do: Algebra = NUMBERS) -> dict[str, Number]:
    """Seconds per component of its busiest instance; `free` takes no time."""
    found: dict[str, Number] = {}
    for name, pairs in loads:
        if name != free:
            c = counts.problem.hierarchy[name]
            seconds = do.largest(port_time(c, pair, do) for pair in pairs)
            found[name] = busy_time(c, 1, seconds, 1, do)
    return found


def work_times(counts: Counts, work: StageWork, free: str = "", do: Algebra = NUMBERS) -> dict[str, Number]:
    """Seconds per component of what one Einsum does in one slot."""
    times = load_times(counts, work.loads, free, do)
    if work.operations:
        leaf = next(c.component for c in counts.analysis.compute if c.einsum == work.einsum)
        unit = counts.problem.hierarchy[leaf]
        if leaf != free:
            seconds = work.operations / counts.operation(work.einsum, leaf).throughput
            times[leaf] = busy_time(unit, work.operations, seconds, 1, do)
    return times


def item_span(counts: Counts, item: StageWork | PipelineRun, free: str = "", do: Algebra = NUMBERS) -> Span:
    """How long an Einsum or an inner pipeline takes in one slot."""
    if isinstance(item, PipelineRun):
        found = Span()
        for slot in item.slots:
            found.add(slot_span(counts, slot, free, do), slot.count)
        return found
    times = work_times(counts, item, free, do)
    seconds = do.largest(times.values())
    return Span(seconds, {(item.einsum, do.slowest(times)): seconds})


def stage_spans(counts: Counts, slot: Slot, free: str = "", do: Algebra = NUMBERS) -> tuple[Span, ...]:
    """How long each stage of a slot takes."""
    found = []
    for stage in slot.stages:
        span = Span()
        for item in stage:
            span.add(item_span(counts, item, free, do))
        found.append(span)
    return tuple(found)


def slot_span(counts: Counts, slot: Slot, free: str = "", do: Algebra = NUMBERS) -> Span:
    """How long a slot lasts: as its slowest stage, or as a component that several stages load."""
    stages = stage_spans(counts, slot, free, do)
    slowest = max(stages, key=lambda s: s.seconds, default=Span())
    shared = load_times(counts, slot.shared, free, do)
    joint = do.slowest(shared)
    found = Span(do.largest([*(s.seconds for s in stages), *shared.values()]))
    if not joint or shared[joint] <= slowest.seconds:
        found.booked = slowest.booked
        return found
    for (einsum, _), seconds in slowest.booked.items():
        share = seconds / slowest.seconds if slowest.seconds else 1 / len(slowest.booked)
        found.booked[einsum, joint] = found.booked.get((einsum, joint), 0.0) + shared[joint] * share
    return found


def pipeline_times(counts: Counts) -> tuple[PipelineTime, ...]:
    """One record per pipeline that stands in no stage of another, all executions together."""
    known = {p.node: p for p in pipelines(counts.problem.tree)}
    return tuple(_pipeline_time(counts, run, known[run.node]) for run in counts.analysis.pipelines)


def _pipeline_time(counts: Counts, run: PipelineRun, p: Pipeline) -> PipelineTime:
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
    found = tuple(
        StageTime(
            b, einsums, used[b] * n,
            busy[b]["fill"] * n, busy[b]["steady"] * n, busy[b]["drain"] * n, sets[b] * n,
        )
        for b, einsums in enumerate(p.stages)
    )  # fmt: skip
    booked = tuple((e, c, seconds * n) for (e, c), seconds in whole.booked.items())
    return PipelineTime(
        run.node, found, slots["fill"] * n, slots["steady"] * n, slots["drain"] * n,
        phases["fill"] * n, phases["steady"] * n, phases["drain"] * n, booked,
    )  # fmt: skip


def without(counts: Counts, run: PipelineRun, component: str) -> float:
    """Seconds of all executions of a pipeline if the component took no time."""
    einsum = next(p.einsums[0] for p in pipelines(counts.problem.tree) if p.node == run.node)
    found: float = item_span(counts, run, component).seconds * counts.executions(einsum)
    return found


def einsums_of(run: PipelineRun) -> tuple[str, ...]:
    """Every Einsum that works in a pipeline or in those inside."""
    found: dict[str, None] = {}
    for item in (x for slot in run.slots for stage in slot.stages for x in stage):
        found.update(dict.fromkeys(einsums_of(item) if isinstance(item, PipelineRun) else (item.einsum,)))
    return tuple(found)
