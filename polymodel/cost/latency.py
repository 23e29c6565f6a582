"""Time (s) per component and Einsum, and what limits each Einsum.

A component takes as long as its busiest instance, whose bits are those of whole actions. By default
transfers overlap compute, so an Einsum takes as long as its slowest component. With `assume_overlap:
false` the refills of a storage with `buffering: single` overlap nothing: what its links to its parents
move is taken out of the work that overlaps, and the time of the slower end of those links is added, at
each end that of its busiest instance. `buffering: double` overlaps its refills and takes twice the tile
(engines count that in working sets).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from polymodel.architecture.hierarchy import Component
from polymodel.cost.algebra import NUMBERS, Algebra, Number, nothing
from polymodel.cost.context import Counts, row_order
from polymodel.cost.links import link_times
from polymodel.cost.ports import busy_time, port_time, slowest_pair
from polymodel.cost.records import ComponentTime, EinsumTime, PipelineTime, Refill


def component_times(counts: Counts, do: Algebra = NUMBERS) -> tuple[ComponentTime, ...]:
    """One row per Einsum and component that does anything, in order of execution then hierarchy."""
    found = [*_moving(counts, do), *link_times(counts), *_computing(counts, do)]
    order = row_order(counts.problem)
    return tuple(sorted(found, key=lambda t: order(t.einsum, t.component)))


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
        busiest: Number = work.busiest
        rate = counts.operation(work.einsum, c.name).throughput
        seconds = busy_time(c, work.operations, busiest / rate, n, do)
        yield ComponentTime(
            work.einsum, c.name, c.kind, 0, 0, work.busiest * n, seconds, c.fill_drain_latency * n,
            cycles_of(c, seconds), work.instances, hierarchy.instances(c.name),
        )  # fmt: skip


def cycles_of(component: Component, seconds: float) -> float | None:
    """The time in cycles of the component's clock, None without one."""
    return None if component.clock is None else seconds * component.clock


def einsum_times(
    counts: Counts,
    times: tuple[ComponentTime, ...],
    overlapped: tuple[PipelineTime, ...] = (),
    do: Algebra = NUMBERS,
) -> tuple[EinsumTime, ...]:
    """The latency of each Einsum in order of execution; its cycles are those of its compute.

    Of an Einsum in a pipeline: the slots that are booked to it.
    """
    problem = counts.problem
    clock = {c.einsum: problem.hierarchy[c.component] for c in counts.analysis.compute}
    operations = {c.einsum: c.operations for c in counts.analysis.compute}
    found = []
    for name in counts.einsums:
        mine = [t for t in times if t.einsum == name]
        refills: tuple[Refill, ...] = ()
        rest = {t.component: t.seconds for t in mine}
        if not problem.hierarchy.assume_overlap:
            refills, rest = _serialised(counts, name, rest, do)
        inside = next((p for p in overlapped if name in p.einsums), None)
        if inside is not None:
            found.append(_inside(counts, name, inside, rest, clock.get(name)))
            continue
        limiting = do.slowest(rest)
        seconds = do.largest(rest.values()) + do.total(r.seconds for r in refills)
        if limiting and not rest[limiting]:
            limiting = ""
        n = counts.executions(name)
        cycles = cycles_of(clock[name], seconds) if name in clock else None
        found.append(EinsumTime(name, seconds, limiting, operations.get(name, 0) * n, n, refills, cycles))
    return tuple(found)


def _inside(
    counts: Counts, einsum: str, inside: PipelineTime, busy: dict[str, float], unit: Component | None
) -> EinsumTime:
    """An Einsum of a pipeline; what limits it limits most of its slots (without any: is slowest)."""
    mine: dict[str, float] = {}
    for name, component, seconds in inside.booked:
        if name == einsum and seconds:
            mine[component] = mine.get(component, 0.0) + seconds
    seconds, busiest = math.fsum(mine.values()), mine or busy
    limiting = max(busiest, key=lambda c: busiest[c], default="")
    operations = next((c.operations for c in counts.analysis.compute if c.einsum == einsum), 0)
    n = counts.executions(einsum)
    cycles = None if unit is None else cycles_of(unit, seconds)
    return EinsumTime(einsum, seconds, limiting, operations * n, n, (), cycles, inside.seconds)


def _moved(counts: Counts, einsum: str, component: str) -> Number:
    """Above 0 wherever the component moves anything for the Einsum."""
    mine = (x.there for x in counts.analysis.loads if (x.einsum, x.component) == (einsum, component))
    return next(mine, 0)


def _serialised(
    counts: Counts, einsum: str, busy: dict[str, float], do: Algebra
) -> tuple[tuple[Refill, ...], dict[str, float]]:
    """Refills that wait for nothing and let nothing else run, and the components' times without them.

    Of each end the busiest instance counts, of the two ends of a refill the slower one.
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
