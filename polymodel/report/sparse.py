"""Reports of sparse data: what dense counts become, beside the dense ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from polymodel.cost.costs import Bits, CostFigures, asked_value, costs, toll_bits
from polymodel.cost.records import Counts
from polymodel.quantities import engineering
from polymodel.report import sparse_tables
from polymodel.report import tables as costed
from polymodel.report.evaluated import Evaluated
from polymodel.sparse.actions.capacity import Capacity, capacity_checks
from polymodel.sparse.actions.counts import sparse_counts
from polymodel.sparse.actions.data import TensorData
from polymodel.sparse.actions.inputs import tensor_data, tensors_in_use
from polymodel.sparse.actions.records import Certainty, SparseCounts
from polymodel.sparse.actions.rescale import sparse_analysis
from polymodel.spec.faults import check_classes
from polymodel.view.answer import Answer, Block, Facts, Line, Part, Section, declared, made_part, notes
from polymodel.view.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from polymodel.report.report import Report
    from polymodel.sparse.tensor import SparseTensor

_CHANGED = "Accesses that change (elements)"
PLAIN = "no component says `sparse:`, so zeros are stored, moved and computed like any other value"


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
    """The same for what is known of every tensor already (`tensor_data`). Refused for what is not counted."""
    counts = sparse_counts(report.problem, report.analysis, data, confidence)
    analysis = sparse_analysis(report.problem, report.analysis, counts)
    result = replace(report, analysis=analysis, costs=costs(report.problem, analysis))
    return SparseReport(report, result, counts, data)


@dataclass(frozen=True, eq=False)
class SparseReport(Answer):
    """What one mapping costs on sparse data. Tables are DataFrames; `table(name)` gives them as plain data.

    `dense`: the report that it was made from. `result`: a report with sparse counts in the place of dense
    ones (energy, latency, bottleneck ...). `counts`: actual, gated, skipped, absent, each labelled. `data`:
    what is known of each tensor.
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
        """What objectives are made of, on sparse data."""
        return SparseFigures(self)

    def value(self, objective: str) -> float:
        """One objective on sparse data, without `sparse_` before it: see `Report.value`."""
        return asked_value(objective, self.dense.problem.hierarchy, self.figures)

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
        """What the least certain number is: `exact`, `expected`, `bound` (at most so much), `lower bound` (of
        busiest instances, and so of latencies) or `estimate` (neither)."""
        return self.counts.whole_label

    @cached_property
    def capacity_checks(self) -> tuple[Capacity, ...]:
        """Every memory's working set against its size, with the probability that it does not fit."""
        return capacity_checks(self.dense.problem, self.dense.analysis, self.counts, self.data)

    @property
    def feasible(self) -> bool:
        """True if the expected working sets fit."""
        return self.result.feasible

    @declared(title="Dense and sparse")
    def summary(self) -> Table:
        """Dense beside sparse: operations, latency, energy, energy-delay product."""
        return sparse_tables.summary(self.dense.costs, self.result.costs, self.counts)

    @declared(title="Operations")
    def compute(self) -> Table:
        """Operations per Einsum: effectual, ineffectual, gated, skipped."""
        return sparse_tables.compute(self.dense.problem, self.counts)

    @declared
    def accesses(self) -> Table:
        """Accesses per Einsum, component, tensor and kind: actual, gated, skipped, absent, and metadata."""
        return sparse_tables.accesses(self.dense.problem, self.counts)

    @declared(title="Footprints of the largest tiles")
    def footprints(self) -> Table:
        """Bits of the largest tile of each tensor that has a format."""
        return sparse_tables.footprints(self.dense.problem, self.counts)

    @declared(title="Intersections (coordinates read)")
    def intersections(self) -> Table:
        """Coordinates that are read where fibers are intersected."""
        return sparse_tables.intersections(self.dense.problem, self.counts)

    @declared(title="Working sets")
    def capacity(self) -> Table:
        """Working sets against sizes, with the probability of overflow."""
        return sparse_tables.capacities(self.capacity_checks)

    @declared
    def latency(self) -> Table:
        """Seconds that each component works for each Einsum."""
        return costed.latency(self.result.costs)

    @declared
    def energy(self) -> Table:
        """Joules per action; gated turns and metadata have their own where the component names them."""
        return costed.energy(self.result.costs)

    @declared
    def bottleneck(self) -> Table:
        """What limits each Einsum, and what would next."""
        return costed.bottleneck(self.result.costs)

    @declared
    def roofline(self) -> Table:
        """Where each Einsum stands under its roof."""
        return costed.roofline(self.result.costs)

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know beside the figures."""
        if any(c.sparse is not None for c in self.dense.problem.hierarchy.components):
            return self.counts.notes
        return (*self.counts.notes, PLAIN)

    @property
    def title(self) -> str:
        """The heading of its page."""
        return "Sparse report"

    def content(self, live: bool = True) -> list[Block]:
        """The figures, what changes because of zeros, and what to know."""
        shown = [(n, self.shown(n)) for n in self.tables[:6]]
        sections = [
            Section(_CHANGED if n == "accesses" else self.declared[n].title, t, opened=i < 2)
            for i, (n, t) in enumerate((n, t) for n, t in shown if t.rows)
        ]
        spaced = [block for section in sections for block in (Line(), section)]
        return [Facts(headline(self)), *spaced, *notes(self.notes)]

    def shown(self, name: str) -> Table:
        """A table as it is printed: of the accesses those that zeros change."""
        if name != "accesses":
            return self.table(name)
        changed = self.table(name).where(lambda r: r["actual"] != r["dense"] or bool(r["metadata_bits"]))
        names = "einsum component tensor kind dense actual gated skipped absent label"
        return changed.only(*names.split(), "metadata_bits", "metadata_label")

    def flat(self) -> list[Block]:
        """Figures and all tables, as a part of another page."""
        tables = [Section(name, self.table(name)) for name in self.tables]
        return [Facts(headline(self)), *notes(self.notes), *tables]

    def head(self, live: bool = True) -> list[Block]:
        """Figures and all tables."""
        return self.flat()

    def parts(self, live: bool, plots: bool, command: str) -> list[Part]:
        """What the page was made from: its tables stand at the top."""
        return [made_part(command)]

    def keeping(self) -> AbstractContextManager[None]:
        """While files are written: none of the files that the spec was read from is written over."""
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
        found: Bits = {}
        for a in self.report.counts.accesses:
            bits = a.actual * self.counts.bits(a.tensor) + a.metadata_bits
            key = a.component, a.kind.partition("_")[0]
            found[key] = found.get(key, 0) + bits * self.counts.executions(a.einsum)
        return found | {k: found.get(k, 0) + bits for k, bits in toll_bits(self.counts).items()}


def headline(report: SparseReport) -> list[tuple[str, str]]:
    """The few figures that everything else explains."""
    dense = report.dense
    ratio = dense.total_energy / report.total_energy if report.total_energy else 1.0
    known = [
        f"{d.tensor} {d.density:.4g}{' (computed)' if d.computed else ''}"
        for d in report.data.values()
        if not d.dense
    ]
    return [
        ("densities", ", ".join(known) or "no tensor has zeros"),
        ("latency", f"{engineering(report.total_latency, 's')} ({report.speedup:.4g} x faster than dense)"),
        ("energy", f"{engineering(report.total_energy, 'J')} (dense: {ratio:.4g} x as much)"),
        ("numbers are", report.label),
    ]


TABLES = tuple(SparseReport.declared)
