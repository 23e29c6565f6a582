"""Reports on sparse data: dense counts reduced by zeros, next to the dense ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from polymodel.analysis.result import Problem
from polymodel.cost.costs import Bits, CostFigures, costs, data_bits, objective_value
from polymodel.cost.records import Costs, Counts
from polymodel.frozen import dataclass
from polymodel.quantities import engineering
from polymodel.report import tables as costed
from polymodel.report.evaluated import Evaluated
from polymodel.sparse.actions.capacity import MemoryDemand, capacity_checks
from polymodel.sparse.actions.counts import sparse_counts
from polymodel.sparse.actions.data import TensorData
from polymodel.sparse.actions.inputs import tensor_data, tensors_in_use
from polymodel.sparse.actions.records import Certainty, SparseCounts
from polymodel.sparse.actions.rescale import sparse_analysis
from polymodel.spec.faults import check_classes
from polymodel.view.answer import Answer, Block, Facts, Line, Part, Section, declared, made_part, notes
from polymodel.view.table import RATIO, Cell, Column, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from polymodel.report.report import Report
    from polymodel.sparse.tensor import SparseTensor


# Tables of sparse counts: operations, accesses, footprints, capacities, and dense next to sparse.


def compute(problem: Problem, counts: SparseCounts) -> Table:
    """Operations per Einsum, all executions: dense = effectual + ineffectual + gated + skipped.

    `busiest`: timed operations of the instance with the most of them, `imbalance`: `busiest` over the mean of
    all instances.
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

    dense + refetched = actual + gated + skipped + absent; `refetched`: transfers of elements that did not fit
    into an overbooked tile. `reads_fill`: reads that serve inner components; `reads_drain`: reads that move
    results out; likewise for writes. `metadata_bits` are those of actual accesses. `label` refers to the
    elements, `metadata_label` to the bits.
    """
    names = ("dense", "actual", "gated", "skipped", "absent", "refetched")
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
        Column("confidence", "1"), Column("needed_bits", "bit"), Column("label"),
    )  # fmt: skip
    rows = tuple(
        (
            f.component, f.node, f.tensor, f.format, f.points, f.dense_bits, f.payload_bits, f.metadata_bits,
            f.bits, f.bits / f.dense_bits if f.dense_bits else 0.0, f.quantile_bits, f.confidence,
            f.needed_bits, f.label,
        )
        for f in counts.footprints
    )  # fmt: skip
    return Table("footprints", columns, rows)


def capacities(checks: Sequence[MemoryDemand]) -> Table:
    """Working sets of sparse tiles against sizes; `p_overflow` is the probability that they do not fit."""
    columns = (
        Column("component"), Column("einsum"), Column("dense_bits", "bit"), Column("bits", "bit"),
        Column("needed_bits", "bit"), Column("capacity_bits", "bit"), Column("fits"),
        Column("p_overflow"), Column("label"),
    )  # fmt: skip
    rows = tuple(
        (
            c.component, c.einsum, c.dense_bits, c.bits, c.needed_bits, c.capacity_bits, c.fits, c.p_overflow,
            c.label,
        )
        for c in checks
    )  # fmt: skip
    return Table("capacity", columns, rows)


def summary(dense: Costs, sparse: Costs, counts: SparseCounts) -> Table:
    """Dense next to sparse figures, per Einsum and in total (`einsum` = `total`).

    `speedup` and `energy_ratio` are dense over sparse, `edp` the energy-delay product. `label` is the lowest
    certainty label of the figures of a row, `energy_label` that of its energy and operations.
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
    """Return the certainty label of the energy, which depends on the latency if there is leakage."""
    leaks = any(i.action == "leak" and i.energy for i in costs.energy if einsum in (None, i.einsum))
    return counts.label(einsum) if leaks else counts.energy_label(einsum)


_CHANGED = "Accesses that change (elements)"
PLAIN = "no component has `sparse:`, so zeros are stored, moved and computed like any other value"


def sparse_report(
    report: Report,
    tensors: Mapping[str, SparseTensor] | None = None,
    densities: Mapping[str, object] | None = None,
    confidence: float = 0.99,
) -> SparseReport:
    """The same mapping on sparse data: see `polymodel.sparsify`."""
    used = tensors_in_use(report.problem)
    data = tensor_data(report.problem.cascade, tensors, densities, report.folder, used)
    return with_data(report, data, confidence)


def with_data(report: Report, data: Mapping[str, TensorData], confidence: float = 0.99) -> SparseReport:
    """Return the same for tensors whose properties are already known (`tensor_data`). Raises Refused for what
    is not counted."""
    counts = sparse_counts(report.problem, report.analysis, data, confidence)
    analysis = sparse_analysis(report.problem, report.analysis, counts)
    result = replace(report, analysis=analysis, costs=costs(report.problem, analysis))
    return SparseReport(report, result, counts, data)


@dataclass(frozen=True, eq=False)
class SparseReport(Answer):
    """The costs of one mapping on sparse data. Tables are DataFrames; `table(name)` gives them as plain data.

    `dense`: the report from which it was derived. `result`: a report with sparse counts instead of dense ones
    (energy, latency, bottleneck ...). `counts`: actual, gated, skipped, absent, each labelled. `data`: the
    known properties of each tensor.
    """

    dense: Report
    result: Report
    counts: SparseCounts
    data: Mapping[str, TensorData]

    def __post_init__(self) -> None:
        remedy = "pm.sparsify(report) makes one"
        check_classes(
            self, remedy, {"dense": Evaluated, "result": Evaluated, "counts": SparseCounts, "data": Mapping}
        )

    @cached_property
    def figures(self) -> SparseFigures:
        """The quantities of which objectives are composed, on sparse data."""
        return SparseFigures(self)

    def value(self, objective: str) -> float:
        """One objective on sparse data, without `sparse_` before it: see `Report.value`."""
        return objective_value(objective, self.dense.problem.hierarchy, self.figures)

    @property
    def total_energy(self) -> float:
        """Joules."""
        return self.result.total_energy

    @property
    def total_latency(self) -> float:
        """Seconds."""
        return self.result.total_latency

    @property
    def speedup(self) -> float:
        """Dense latency over sparse latency."""
        return self.dense.total_latency / self.total_latency if self.total_latency else math.inf

    @property
    def label(self) -> Certainty:
        """The lowest certainty label among the numbers: `exact`, `expected`, `bound` (upper bound), `lower
        bound` (of busiest instances, and so of latencies) or `estimate` (neither)."""
        return self.counts.whole_label

    @cached_property
    def capacity_checks(self) -> tuple[MemoryDemand, ...]:
        """Every memory's working set against its size, with the probability that it does not fit."""
        return capacity_checks(self.dense.problem, self.dense.analysis, self.counts, self.data)

    @property
    def feasible(self) -> bool:
        """True if the working sets fit, each by the rule of its memory (`fit:`; else expected bits)."""
        return self.result.feasible

    @declared(title="Dense and sparse")
    def summary(self) -> Table:
        """Dense next to sparse figures: operations, latency, energy, energy-delay product."""
        return summary(self.dense.costs, self.result.costs, self.counts)

    @declared(title="Operations")
    def compute(self) -> Table:
        """Operations per Einsum: effectual, ineffectual, gated, skipped."""
        return compute(self.dense.problem, self.counts)

    @declared
    def accesses(self) -> Table:
        """Accesses per Einsum, component, tensor and kind: actual, gated, skipped, absent, and metadata."""
        return accesses(self.dense.problem, self.counts)

    @declared(title="Footprints of the largest tiles")
    def footprints(self) -> Table:
        """Bits of the largest tile of each tensor that has a format."""
        return footprints(self.dense.problem, self.counts)

    @declared(title="Intersections (coordinates read)")
    def intersections(self) -> Table:
        """Coordinates that are read where fibers are intersected."""
        return intersections(self.dense.problem, self.counts)

    @declared(title="Working sets")
    def capacity(self) -> Table:
        """Working sets against sizes, with the probability of overflow."""
        return capacities(self.capacity_checks)

    @declared
    def latency(self) -> Table:
        """Seconds that each component works for each Einsum."""
        return costed.latency(self.result.costs)

    @declared
    def energy(self) -> Table:
        """Joules per action; gated operations and metadata have actions of their own if the component names
        them."""
        return costed.energy(self.result.costs)

    @declared
    def bottleneck(self) -> Table:
        """The component that limits each Einsum, and the next one."""
        return costed.bottleneck(self.result.costs)

    @declared
    def roofline(self) -> Table:
        """The position of each Einsum under its roofline."""
        return costed.roofline(self.result.costs.roofline)

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on the figures."""
        if any(c.sparse is not None for c in self.dense.problem.hierarchy.components):
            return self.counts.notes
        return (*self.counts.notes, PLAIN)

    @property
    def title(self) -> str:
        """The heading of its page."""
        return "Sparse report"

    def content(self, live: bool = True) -> list[Block]:
        """The figures, the changes due to zeros, and remarks."""
        shown = [(n, self.shown(n)) for n in self.tables[:6]]
        sections = [
            Section(_CHANGED if n == "accesses" else self.declared[n].title, t, opened=i < 2)
            for i, (n, t) in enumerate((n, t) for n, t in shown if t.rows)
        ]
        spaced = [block for section in sections for block in (Line(), section)]
        return [Facts(headline(self)), *spaced, *notes(self.notes)]

    def shown(self, name: str) -> Table:
        """The table as it is printed: for accesses, the rows that zeros change."""
        if name != "accesses":
            return self.table(name)
        changed = self.table(name).where(lambda r: r["actual"] != r["dense"] or bool(r["metadata_bits"]))
        names = "einsum component tensor kind dense actual gated skipped absent label"
        return changed.only(*names.split(), "metadata_bits", "metadata_label")

    def flat(self) -> list[Block]:
        """The figures and all tables, as a part of another page."""
        tables = [Section(name, self.table(name)) for name in self.tables]
        return [Facts(headline(self)), *notes(self.notes), *tables]

    def head(self, live: bool = True) -> list[Block]:
        """The figures and all tables."""
        return self.flat()

    def parts(self, live: bool, plots: bool, command: str) -> list[Part]:
        """The provenance of the page; its tables are at the top."""
        return [made_part(command)]

    def keeping(self) -> AbstractContextManager[None]:
        """While files are written, none of the files that the spec was read from can be overwritten."""
        return self.dense.keeping()

    def plot(self, what: str = "working_sets", ax: Axes | None = None) -> Axes:
        """A picture of the sparse figures: `working_sets`, `energy` or `roofline`."""
        return self.result.plot(what, ax)

    def __repr__(self) -> str:
        return (
            f"SparseReport({self.label}, latency {self.total_latency:.6g} s ({self.speedup:.3g} x faster), "
            f"energy {self.total_energy:.6g} J)"
        )


class SparseFigures(CostFigures):
    """`objectives.Figures` of a sparse report, whose bits are those of data and metadata."""

    def __init__(self, report: SparseReport) -> None:
        super().__init__(Counts(report.dense.problem, report.result.analysis), report.result.costs)
        self.report = report

    @cached_property
    def moved_bits(self) -> Bits:
        return data_bits(self.counts, self.report.counts.accesses)


def headline(report: SparseReport) -> list[tuple[str, str]]:
    """The main figures."""
    dense = report.dense
    ratio = dense.total_energy / report.total_energy if report.total_energy else 1.0
    known = [
        f"{d.tensor} {d.density:.4g}{' (computed)' if d.computed else ''}"
        for d in report.data.values()
        if not d.dense
    ]
    return [
        ("densities", ", ".join(known) or "no tensor has zeros"),
        ("latency", f"{costed.time_taken(report.result.costs)}, {report.speedup:.4g} x faster than dense"),
        ("energy", f"{engineering(report.total_energy, 'J')} (dense: {ratio:.4g} x as much)"),
        ("certainty label", report.label),
    ]


TABLES = tuple(SparseReport.declared)
