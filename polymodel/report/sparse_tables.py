"""Tables of sparse counts: operations, accesses, footprints, capacities, and dense beside sparse."""

from __future__ import annotations

import math
from collections.abc import Sequence

from polymodel.analysis.result import Problem
from polymodel.cost.records import Costs
from polymodel.sparse.actions.capacity import Capacity
from polymodel.sparse.actions.records import SparseCounts
from polymodel.view.table import RATIO, Cell, Column, Table


def compute(problem: Problem, counts: SparseCounts) -> Table:
    """Operations per Einsum, all executions: dense = effectual + ineffectual + gated + skipped.

    `busiest`: those that take time at the instance that has most, `imbalance` that over the mean of all.
    """
    names = ("dense", "effectual", "ineffectual", "gated", "skipped")
    columns = (
        Column("einsum"), Column("component"), *(Column(n, "operation") for n in names), Column("label"),
        Column("busiest", "operation"), Column("imbalance", RATIO), Column("busiest_label"),
    )  # fmt: skip
    rows = []
    for c in counts.compute:
        n = problem.cascade[c.einsum].n_instances
        counted = (getattr(c, name) * n for name in names)
        rows.append((c.einsum, c.component, *counted, c.label, c.busiest * n, c.imbalance, c.busiest_label))
    return Table("compute", columns, tuple(rows))


def accesses(problem: Problem, counts: SparseCounts) -> Table:
    """Elements per Einsum, node, tensor and kind of access, all executions.

    dense = actual + gated + skipped + absent. `reads_fill`: reads that serve what is further in;
    `reads_drain`: those that move results out; writes alike. `metadata_bits` go with what is actual.
    `label` is of the elements, `metadata_label` of the bits.
    """
    names = ("dense", "actual", "gated", "skipped", "absent")
    columns = (
        Column("einsum"), Column("component"), Column("node"), Column("tensor"), Column("kind"),
        *(Column(n, "element") for n in names), Column("actual_bits", "bit"), Column("metadata_bits", "bit"),
        Column("label"), Column("metadata_label"),
    )  # fmt: skip
    bits = {a.tensor: a.bits_per_value for e in problem.cascade for a in reversed(e.accesses)}
    rows = []
    for a in counts.accesses:
        n = problem.cascade[a.einsum].n_instances
        rows.append((
            a.einsum, a.component, a.node, a.tensor, a.kind, *(getattr(a, name) * n for name in names),
            a.actual * bits[a.tensor] * n, a.metadata_bits * n, a.label, a.metadata_label,
        ))  # fmt: skip
    return Table("accesses", columns, tuple(rows))


def intersections(problem: Problem, counts: SparseCounts) -> Table:
    """Coordinates read where fibers are intersected (skip_ahead: steps), all executions."""
    columns = (
        Column("einsum"), Column("component"), Column("tensors"), Column("kind"), Column("place"),
        Column("coordinates", "element"), Column("label"),
    )  # fmt: skip
    rows = tuple(
        (
            x.einsum, x.component, " ".join(x.tensors), x.kind, x.place,
            x.coordinates * problem.cascade[x.einsum].n_instances, x.label,
        )
        for x in counts.intersections
    )  # fmt: skip
    return Table("intersections", columns, rows)


def footprints(problem: Problem, counts: SparseCounts) -> Table:
    """The largest tile of each tensor with a format: expected (or exact) bits, and bits at a confidence."""
    columns = (
        Column("component"), Column("node"), Column("tensor"), Column("format"), Column("points", "element"),
        Column("dense_bits", "bit"), Column("payload_bits", "bit"), Column("metadata_bits", "bit"),
        Column("bits", "bit"), Column("share", RATIO), Column("quantile_bits", "bit"),
        Column("confidence", "1"), Column("label"),
    )  # fmt: skip
    rows = tuple(
        (
            f.component, f.node, f.tensor, f.format, f.points, f.dense_bits, f.payload_bits, f.metadata_bits,
            f.bits, f.bits / f.dense_bits if f.dense_bits else 0.0, f.quantile_bits, f.confidence, f.label,
        )
        for f in counts.footprints
    )  # fmt: skip
    return Table("footprints", columns, rows)


def capacities(checks: Sequence[Capacity]) -> Table:
    """Working sets of sparse tiles against sizes; `p_overflow` is how probable it is that they do not fit."""
    columns = (
        Column("component"), Column("einsum"), Column("dense_bits", "bit"), Column("bits", "bit"),
        Column("capacity_bits", "bit"), Column("fits"), Column("p_overflow"), Column("label"),
    )  # fmt: skip
    rows = tuple(
        (c.component, c.einsum, c.dense_bits, c.bits, c.capacity_bits, c.fits, c.p_overflow, c.label)
        for c in checks
    )
    return Table("capacity", columns, rows)


def summary(dense: Costs, sparse: Costs, counts: SparseCounts) -> Table:
    """Dense beside sparse, per Einsum and in all (`einsum` = `total`).

    `speedup` and `energy_ratio` are dense over sparse, `edp` the energy-delay product. `label` is of the
    least certain figure of a row, `energy_label` of its energy and operations.
    """
    columns = (
        Column("einsum"), Column("operations", "operation"), Column("effectual", "operation"),
        Column("dense_latency_s", "s"), Column("latency_s", "s"), Column("speedup", RATIO),
        Column("dense_energy_J", "J"), Column("energy_J", "J"), Column("energy_ratio", RATIO),
        Column("dense_edp_Js", "J s"), Column("edp_Js", "J s"), Column("limiting"), Column("label"),
        Column("energy_label"),
    )  # fmt: skip
    effectual = {c.einsum: c.effectual for c in counts.compute}
    rows: list[tuple[Cell, ...]] = []
    sums = [0.0, 0.0]
    for before, after in zip(dense.latency, sparse.latency, strict=True):
        joules = [math.fsum(i.energy for i in c.energy if i.einsum == before.einsum) for c in (dense, sparse)]
        useful = effectual.get(before.einsum, 0) * before.n_instances
        sums = [sums[0] + before.operations, sums[1] + useful]
        times = before.seconds, after.seconds
        sure = counts.label(before.einsum), _energy_label(sparse, counts, before.einsum)
        rows.append((
            before.einsum, before.operations, useful, *_pair(*times), *_pair(*joules),
            times[0] * joules[0], times[1] * joules[1], after.limiting, *sure,
        ))  # fmt: skip
    times, joules = (dense.total_latency, sparse.total_latency), [dense.total_energy, sparse.total_energy]
    rows.append((
        "total", *sums, *_pair(*times), *_pair(*joules), times[0] * joules[0], times[1] * joules[1], "",
        counts.label(), _energy_label(sparse, counts),
    ))  # fmt: skip
    return Table("summary", columns, tuple(rows))


def _pair(before: float, after: float) -> tuple[float, float, float]:
    return before, after, before / after if after else (math.inf if before else 1.0)


def _energy_label(costs: Costs, counts: SparseCounts, einsum: str | None = None) -> str:
    """Of the energy, which leakage makes depend on the latency."""
    leaks = any(i.action == "leak" and i.energy for i in costs.energy if einsum in (None, i.einsum))
    return counts.label(einsum) if leaks else counts.energy_label(einsum)
