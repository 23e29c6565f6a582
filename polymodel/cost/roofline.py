"""Where each Einsum stands under its roof, and what would limit it next."""

from __future__ import annotations

import math
from collections.abc import Iterator

from polymodel.analysis.result import PipelineRun
from polymodel.cost.context import Counts
from polymodel.cost.pipeline import without
from polymodel.cost.records import ComponentTime, EinsumTime, Limiter, RooflinePoint
from polymodel.mapping.looptree import pipelines

ONE_ROOF = 1e-9  # relative


def roofline(
    counts: Counts, times: tuple[ComponentTime, ...], latency: tuple[EinsumTime, ...]
) -> tuple[RooflinePoint, ...]:
    """One point per Einsum that computes. Ratios with a zero denominator are infinite.

    Bandwidths of one memory that rounding alone tells apart are one: that of the first Einsum.
    """
    hierarchy = counts.problem.hierarchy
    work = {c.einsum: c for c in counts.analysis.compute if c.operations}
    found: list[RooflinePoint] = []
    for t in latency:
        if t.einsum not in work:
            continue
        unit = hierarchy[work[t.einsum].component]
        peak = counts.operation(t.einsum, unit.name).throughput * hierarchy.instances(unit.name)
        memories = [x for x in times if x.einsum == t.einsum and x.kind == "memory"]
        outer = min(memories, key=lambda x: hierarchy.index(x.component), default=None)
        name = outer.component if outer else ""
        bits = _moved(counts, t.einsum, name)
        busy = outer.seconds - outer.added if outer else 0.0
        bandwidth = _ratio(bits, busy)
        roofs = (p.bandwidth for p in found if p.memory == name)
        found.append(
            RooflinePoint(
                einsum=t.einsum,
                memory=name,
                compute=unit.name,
                operations=t.operations,
                moved_bits=bits,
                intensity=_ratio(t.operations, bits),
                bandwidth=next((b for b in roofs if math.isclose(b, bandwidth, rel_tol=ONE_ROOF)), bandwidth),
                peak=peak,
                attainable=min(peak, _ratio(t.operations, busy)),
                achieved=_ratio(t.operations, t.span),
                limiting=t.limiting,
            )
        )
    return tuple(found)


def _moved(counts: Counts, einsum: str, component: str) -> int:
    """Bits that one Einsum reads and writes at a component, all instances and executions."""
    mine = [t for t in counts.analysis.traffic if (t.einsum, t.component) == (einsum, component)]
    return sum((t.reads + t.writes) * counts.bits(t.tensor) for t in mine) * counts.executions(einsum)


def _ratio(a: float, b: float) -> float:
    return a / b if b else math.inf


def limiters(
    counts: Counts, times: tuple[ComponentTime, ...], latency: tuple[EinsumTime, ...]
) -> tuple[Limiter, ...]:
    """Components of each Einsum, slowest first (ties in hierarchy order)."""
    found = []
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
            found.append(
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
    return tuple(found)


def _overlapped(counts: Counts) -> Iterator[tuple[PipelineRun, str]]:
    """Each Einsum of a pipeline with the outermost one that it is in."""
    einsums = {p.node: p.einsums for p in pipelines(counts.problem.tree)}
    for run in counts.analysis.pipelines:
        yield from ((run, e) for e in einsums[run.node])
