"""Reports of sparse data: what dense counts become, beside the dense ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from polymodel.cost.context import Counts
from polymodel.cost.costs import costs
from polymodel.cost.figures import Bits, CostFigures, asked_value, toll_bits
from polymodel.errors import Diagnostic, SpecError
from polymodel.report import costed
from polymodel.report.report import Report
from polymodel.report.sparse_tables import accesses, capacities, compute, footprints, intersections, summary
from polymodel.report.table import Table
from polymodel.sparse.actions.capacity import Capacity, capacity_checks
from polymodel.sparse.actions.counts import sparse_counts
from polymodel.sparse.actions.data import TensorData
from polymodel.sparse.actions.inputs import tensor_data, tensors_in_use
from polymodel.sparse.actions.records import Certainty, SparseCounts
from polymodel.sparse.actions.rescale import sparse_analysis
from polymodel.spec.faults import not_a, suggestion
from polymodel.spec.plain import check_classes

if TYPE_CHECKING:
    import pandas

    from polymodel.sparse.tensor import SparseTensor

TABLES = (
    "summary",
    "compute",
    "accesses",
    "footprints",
    "intersections",
    "capacity",
    "latency",
    "energy",
    "bottleneck",
    "roofline",
)


PLAIN = "no component says `sparse:`, so zeros are stored, moved and computed like any other value"
_COUNTED = {
    "compute": compute,
    "accesses": accesses,
    "footprints": footprints,
    "intersections": intersections,
}


def sparsify(
    report: Report,
    tensors: Mapping[str, SparseTensor] | None = None,
    densities: Mapping[str, object] | None = None,
    *,
    confidence: float = 0.99,
) -> SparseReport:
    """The same mapping on sparse data.

    `tensors`: the data themselves, counted exactly. `densities`: tensor -> number from 0 to 1 or density
    model. Both take the place of what the workload says; what has neither has no zeros, a computed tensor
    those that its operands leave. `confidence`: with which `quantile_bits` are not exceeded. Raises
    SpecError for unknown tensors, shapes that do not fit, wrong densities and formats; Refused for what
    cannot be counted.
    """
    if not isinstance(report, Report):
        raise not_a("report", "sparsify", report, "pass what pm.evaluate(spec) gives")
    if not 0 < confidence <= 1:
        raise SpecError([Diagnostic(f"confidence {confidence} is outside (0, 1]", "write e.g. 0.99")])
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
class SparseReport:
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
            self, remedy, {"dense": Report, "result": Report, "counts": SparseCounts, "data": Mapping}
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

    def table(self, name: str) -> Table:
        """One of `TABLES` as plain data; SpecError for another name."""
        if name in _COUNTED:
            return _COUNTED[name](self.dense.problem, self.counts)
        if name == "summary":
            return summary(self.dense.costs, self.result.costs, self.counts)
        if name == "capacity":
            return capacities(self.capacity_checks)
        if name not in TABLES:
            raise SpecError([Diagnostic(f"no table {name}", suggestion(name, TABLES, "tables"))])
        made: Table = getattr(costed, name)(self.result.costs)
        return made

    @property
    def compute(self) -> pandas.DataFrame:
        """Operations per Einsum: effectual, ineffectual, gated, skipped."""
        return self.table("compute").frame()

    @property
    def accesses(self) -> pandas.DataFrame:
        """Accesses per Einsum, component, tensor and kind: actual, gated, skipped, absent, and metadata."""
        return self.table("accesses").frame()

    @property
    def footprints(self) -> pandas.DataFrame:
        """Bits of the largest tile of each tensor that has a format."""
        return self.table("footprints").frame()

    @property
    def intersections(self) -> pandas.DataFrame:
        """Coordinates that are read where fibers are intersected."""
        return self.table("intersections").frame()

    @property
    def capacity(self) -> pandas.DataFrame:
        """Working sets against sizes, with the probability of overflow."""
        return self.table("capacity").frame()

    @property
    def summary(self) -> pandas.DataFrame:
        """Dense beside sparse: operations, latency, energy, energy-delay product."""
        return self.table("summary").frame()

    @property
    def latency(self) -> pandas.DataFrame:
        """Seconds per Einsum and component."""
        return self.table("latency").frame()

    @property
    def energy(self) -> pandas.DataFrame:
        """Joules per action; gated turns and metadata have their own where the component names them."""
        return self.table("energy").frame()

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know beside the figures."""
        if any(c.sparse is not None for c in self.dense.problem.hierarchy.components):
            return self.counts.notes
        return (*self.counts.notes, PLAIN)

    def to_html(self, file: str | Path | None = None) -> str:
        """All tables as one self-contained page, also written to `file` if given."""
        from polymodel.report.sparse_text import to_html

        return to_html(self, file)

    def __str__(self) -> str:
        from polymodel.report.sparse_text import sparse_text

        return sparse_text(self)

    def __repr__(self) -> str:
        return (
            f"SparseReport({self.label}, latency {self.total_latency:.6g} s ({self.speedup:.3g} x faster), "
            f"energy {self.total_energy:.6g} J)"
        )

    def _repr_html_(self) -> str:
        from polymodel.report.sparse_text import fragment

        return fragment(self)


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
