"""Tables of costs: summary, latency, energy, bottleneck, roofline, area."""

from __future__ import annotations

import math

from polymodel.cost.context import Counts
from polymodel.cost.records import Costs, EinsumTime
from polymodel.cost.sensitivity import Cost, elasticities
from polymodel.view.table import Cell, Column, Table


def latency(costs: Costs) -> Table:
    """Busy time per Einsum and component, all executions: of the busiest instance, whose bits these are.

    Einsums of pipelines overlap: how is in the table `pipelines`.
    """
    columns = (
        Column("einsum"), Column("component"), Column("read_bits", "bit"), Column("write_bits", "bit"),
        Column("operations", "operation"), Column("latency_s", "s"), Column("cycles", "cycle"),
        Column("limiting"), Column("instances_used"), Column("instances"), Column("utilisation", "1"),
    )  # fmt: skip
    whole = {t.einsum: t for t in costs.latency}
    rows = tuple(
        (
            t.einsum, t.component, t.read_bits, t.write_bits, t.operations, t.seconds, t.cycles,
            whole[t.einsum].limiting == t.component, t.instances, t.available, t.instances / t.available,
        )
        for t in costs.times
    )  # fmt: skip
    refills = tuple(
        f"{r.component} is refilled for {r.seconds:.6g} s during {r.einsum} while nothing else runs"
        for t in costs.latency
        for r in t.refills
    )
    return Table("latency", columns, rows, refills)


def energy(costs: Costs) -> Table:
    """Energy of every action: `count` units at `energy_per_unit_J` each. Leakage counts instance-seconds."""
    columns = (
        Column("einsum"), Column("component"), Column("tensor"), Column("action"), Column("count"),
        Column("unit"), Column("energy_per_unit_J", "J"), Column("energy_J", "J"), Column("provenance"),
    )  # fmt: skip
    rows = tuple(
        (i.einsum, i.component, i.tensor, i.action, i.count, i.unit, i.energy_each, i.energy, i.provenance)
        for i in costs.energy
    )
    return Table("energy", columns, rows)


def energy_by_component(costs: Costs) -> Table:
    """Joules per component, split into dynamic energy and leakage."""
    columns = (
        Column("component"), Column("dynamic_J", "J"), Column("leakage_J", "J"), Column("energy_J", "J"),
        Column("share", "1"),
    )  # fmt: skip
    total = costs.total_energy
    rows: list[tuple[str, float, float, float, float]] = []
    for name in dict.fromkeys(i.component for i in costs.energy):
        mine = [i for i in costs.energy if i.component == name]
        leak = math.fsum(i.energy for i in mine if i.action == "leak")
        dynamic = math.fsum(i.energy for i in mine if i.action != "leak")
        rows.append((name, dynamic, leak, dynamic + leak, (dynamic + leak) / total if total else 0.0))
    rows.sort(key=lambda r: r[3], reverse=True)
    return Table("energy_by_component", columns, tuple(rows))


def summary(costs: Costs) -> Table:
    """One row per Einsum and one for the whole, which has `einsum` = `total`."""
    columns = (
        Column("einsum"), Column("n_instances"), Column("operations", "operation"), Column("latency_s", "s"),
        Column("cycles", "cycle"), Column("energy_J", "J"), Column("limiting"), Column("feasible"),
        Column("assume_overlap"),
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    for t in costs.latency:
        joules = math.fsum(i.energy for i in costs.energy if i.einsum == t.einsum)
        fits = not any(v.einsum == t.einsum for v in costs.violations)
        rows.append((
            t.einsum, t.n_instances, t.operations, t.seconds, t.cycles, joules, t.limiting, fits,
            costs.assume_overlap,
        ))  # fmt: skip
    rows.append((
        "total", None, sum(t.operations for t in costs.latency), costs.total_latency,
        total_cycles(costs.latency), costs.total_energy, "", not costs.violations, costs.assume_overlap,
    ))  # fmt: skip
    return Table("summary", columns, tuple(rows))


def total_cycles(latency: tuple[EinsumTime, ...]) -> float | None:
    """Cycles of the whole; None unless every Einsum that takes time counts in the same clock."""
    timed = [t for t in latency if t.seconds]
    clocks = {round(t.cycles / t.seconds, 6) if t.cycles is not None else None for t in timed}
    if len(clocks) != 1 or None in clocks:
        return None
    return math.fsum(t.cycles or 0.0 for t in timed)


def bottleneck(costs: Costs) -> Table:
    """Components of each Einsum from slowest to fastest.

    `slack_s` is how much longer a component could take before it limits; `speedup` is what the Einsum
    would gain if the limiting component took no time, and `next_limiter` what would limit it then.
    """
    columns = (
        Column("einsum"), Column("rank"), Column("component"), Column("latency_s", "s"),
        Column("slack_s", "s"), Column("next_limiter"), Column("speedup"),
    )  # fmt: skip
    rows = tuple(
        (x.einsum, x.rank, x.component, x.seconds, x.slack, x.next_limiter, x.speedup) for x in costs.limiters
    )
    return Table("bottleneck", columns, rows)


def pipelines(costs: Costs) -> Table:
    """Stages of each pipeline (`node`: its split) in order, then the whole, which has `stage` = `total`.

    `slots` are those in which the stage works (of the whole: all), `fill`, `steady` and `drain` its busy time
    in slots of each phase (of the whole: what these slots last), `sets_s` the time of the slots in which it
    is the slowest stage, `utilisation` its busy time over the whole.
    """
    columns = (
        Column("node"), Column("stage"), Column("einsums"), Column("slots"), Column("fill_slots"),
        Column("steady_slots"), Column("drain_slots"), Column("fill_s", "s"), Column("steady_s", "s"),
        Column("drain_s", "s"), Column("busy_s", "s"), Column("sets_s", "s"), Column("utilisation", "1"),
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    for p in costs.pipelines:
        for s in p.stages:
            share = s.busy / p.seconds if p.seconds else 0.0
            rows.append((
                p.node, str(s.stage + 1), " ".join(s.einsums), s.slots, None, None, None,
                s.fill, s.steady, s.drain, s.busy, s.sets, share,
            ))  # fmt: skip
        rows.append((
            p.node, "total", " ".join(p.einsums), p.slots, p.fill_slots, p.steady_slots, p.drain_slots,
            p.fill, p.steady, p.drain, p.seconds, p.seconds, 1.0 if p.seconds else 0.0,
        ))  # fmt: skip
    return Table("pipelines", columns, tuple(rows))


def sensitivity(counts: Counts, costs: Costs, of: Cost) -> Table:
    """How a cost answers to each number of the architecture, the one that matters most first.

    `elasticity` is per cent of cost per per cent of the number, as it grows a little or shrinks a little:
    latency differs in the two where components tie. `slope` is the same in absolute terms.
    """
    unit = "J" if of == "energy" else "s"
    columns = (
        Column("component"), Column("action"), Column("number"), Column("value"), Column("unit"),
        Column("elasticity_growing", "1"), Column("elasticity_shrinking", "1"),
        Column(f"slope_growing_{unit}_per_unit"), Column(f"slope_shrinking_{unit}_per_unit"),
    )  # fmt: skip
    rows = tuple(
        (
            e.knob.component,
            e.knob.action,
            e.knob.name,
            e.value,
            e.unit,
            e.up,
            e.down,
            e.slope_up,
            e.slope_down,
        )
        for e in elasticities(counts, costs, of)
    )
    return Table("sensitivity", columns, rows)


def roofline(costs: Costs) -> Table:
    """Operational intensity at the outermost memory in use, and throughput attainable there and achieved."""
    columns = (
        Column("einsum"), Column("memory"), Column("compute"), Column("operations", "operation"),
        Column("moved_bits", "bit"), Column("intensity_operations_per_bit", "operation/bit"),
        Column("bandwidth_bits_per_s", "bit/s"), Column("peak_operations_per_s", "operation/s"),
        Column("attainable_operations_per_s", "operation/s"),
        Column("achieved_operations_per_s", "operation/s"),
        Column("limiting"),
    )  # fmt: skip
    rows = tuple(
        (
            p.einsum, p.memory, p.compute, p.operations, p.moved_bits, p.intensity, p.bandwidth, p.peak,
            p.attainable, p.achieved, p.limiting,
        )
        for p in costs.roofline
    )  # fmt: skip
    return Table("roofline", columns, rows)


def area(costs: Costs) -> Table:
    """Square metres of all instances of each component."""
    columns = (
        Column("component"), Column("instances"), Column("area_per_instance_m2", "m^2"),
        Column("area_m2", "m^2"), Column("provenance"),
    )  # fmt: skip
    rows = tuple((a.component, a.instances, a.area_each, a.area, a.provenance) for a in costs.area)
    return Table("area", columns, rows)
