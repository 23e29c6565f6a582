"""The report of one evaluation: frozen records, with tables made when they are looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from polymodel.analysis.engine import Engine, Problem
from polymodel.analysis.result import Analysis
from polymodel.cost.capacity import needs
from polymodel.cost.context import Counts
from polymodel.cost.figures import CostFigures, asked_value
from polymodel.cost.records import Costs, Violation
from polymodel.cost.sensitivity import Cost
from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.mapping.looptree import Loop, LoopTree
from polymodel.report import costed, counted
from polymodel.report.frames import Frames
from polymodel.report.table import Table
from polymodel.schedule.legality import check
from polymodel.spec.faults import suggestion
from polymodel.spec.plain import check_classes

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

    from polymodel.analysis.timeline import Measure
    from polymodel.loading import Spec
    from polymodel.report.closed import SymbolicReport
    from polymodel.report.explain import Explanation
    from polymodel.report.sparse import SparseReport
    from polymodel.report.tiling.level import TilingReport
    from polymodel.report.timeline import Peak

TABLES = (
    "summary", "tiles", "accesses", "reuse", "lifetimes", "working_sets",
    "latency", "energy", "bottleneck", "roofline", "area", "fusion", "pipelines",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Report(Frames):
    """What one mapping costs. Tables are DataFrames; `table(name)` gives the same as plain data.

    `analysis` holds the counts of one execution per Einsum, `costs` everything derived from them;
    `seconds` is how long both took, `folder` where data files of the workload are, `spec` what was evaluated,
    with the values of symbols, if it was loaded. Element-level lifetimes (`live_bits`), and the other reuse
    policies, are counted when a table that shows them is first looked at.
    """

    problem: Problem
    analysis: Analysis
    costs: Costs
    engine: Engine
    seconds: float = 0.0
    template: LoopTree | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""
    spec: Spec | None = None

    def __post_init__(self) -> None:
        remedy = "pm.evaluate(spec) makes reports"
        check_classes(self, remedy, {"problem": Problem, "analysis": Analysis, "costs": Costs})

    @cached_property
    def symbolic(self) -> SymbolicReport:
        """The same tables in closed form: tile sizes that the mapping names stay symbols.

        A mapping without symbols gets one for each tile size above 1. Raises NotSeparable.
        """
        from polymodel.report.closed import closed_forms

        tree = self.template or self.problem.tree
        named = any(
            isinstance(n, Loop) and any(isinstance(t, str) for t in n.sizes) for _, n, _ in tree.walk()
        )
        return closed_forms(replace(self.problem, tree=tree), tiles=not named)

    @property
    def feasible(self) -> bool:
        """True if everything fits where the mapping puts it."""
        return not self.costs.violations

    @property
    def violations(self) -> tuple[Violation, ...]:
        """Memories that are too small: which, during which Einsum, for which tensors, need and have."""
        return self.costs.violations

    @property
    def total_energy(self) -> float:
        """Joules."""
        return self.costs.total_energy

    @property
    def total_latency(self) -> float:
        """Seconds."""
        return self.costs.total_latency

    @property
    def total_area(self) -> float:
        """Square metres."""
        return self.costs.total_area

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What to know beside the figures: the engine's notes, outputs that are written in part, names
        that look misspelt, and what of a TeAAL mapping is not as written."""
        from polymodel.workload.relations import unwritten
        from polymodel.workload.slips import likely_slips

        own = (*self.spec.mapping_remarks, *self.spec.number_remarks) if self.spec is not None else ()
        told = (*self.analysis.notes, *likely_slips(self.problem.cascade), *own)
        return told + tuple(
            f"{tensor} has {' x '.join(map(str, sizes))} elements, {count} of which no iteration writes, "
            f"e.g. {tensor}[{', '.join(map(str, element))}]"
            for tensor, sizes, count, element in unwritten(self.problem.cascade)
        )

    @cached_property
    def counts(self) -> Counts:
        return Counts(self.problem, self.analysis)

    @cached_property
    def figures(self) -> CostFigures:
        """What objectives are made of."""
        return CostFigures(self.counts, self.costs)

    def value(self, objective: str) -> float:
        """One objective by the name that searches give it: `edp`, `utilisation`, `accesses:DRAM`,
        `working_set:GLB` and so on (`polymodel.objectives`). SpecError for an unknown name.
        """
        return asked_value(objective, self.problem.hierarchy, self.figures)

    @cached_property
    def _live(self) -> tuple[Analysis | None, tuple[str, ...]]:
        """The analysis with lifetimes of elements, or the reason why there is none."""
        if any(b.live is not None for b in self.analysis.buffets):
            return self.analysis, ()
        try:
            return self.engine.analyse(self.problem, live=True), ()
        except Refused as refusal:
            return None, (f"live figures are left out: {refusal.message}",)

    @cached_property
    def _policies(self) -> tuple[dict[str, Analysis], tuple[str, ...]]:
        """The analysis under each reuse policy, and why any is missing."""
        given = {b.reuse for b in self.analysis.buffets if b.parent is not None}
        found, notes = {}, []
        for policy in ("refill", "slide", "keep_previous"):
            if given == {policy}:
                found[policy] = self.analysis
                continue
            try:
                broken = check(self.problem, policy)
                if broken:
                    notes.append(f"{policy} is left out: {broken[0].message}")
                    continue
                found[policy] = self.engine.analyse(self.problem, reuse=policy)
            except Refused as refusal:
                notes.append(f"{policy} is left out: {refusal.message}")
        return found, tuple(notes)

    @cached_property
    def _retained(self) -> tuple[Analysis | None, tuple[str, ...]]:
        """The analysis if nothing inferred were executed twice, or the reason why there is none."""
        from polymodel.report.fusion import retained

        try:
            other = retained(self.problem)
            if other is self.problem:
                return self.analysis, ()
            broken = check(other)
            if broken:
                return None, (f"extra traffic is left out: {broken[0].message}",)
            return self.engine.analyse(other), ()
        except Refused as refusal:
            return None, (f"extra traffic is left out: {refusal.message}",)

    @cached_property
    def sparse(self) -> SparseReport:
        """What the mapping costs on sparse data, by the densities that the workload gives.

        Other data: `pm.sparsify(report, tensors=..., densities=...)`. Raises what that raises.
        """
        from polymodel.report.sparse import sparsify

        return sparsify(self)

    @cached_property
    def tiling(self) -> TilingReport:
        """The tiles that operands are cut into at memories with `data_tiles:`, and what running them costs.

        Other data: `tile_levels(report, tensors=..., densities=...)`. Raises what that raises.
        """
        from polymodel.report.tiling.level import tile_levels

        return tile_levels(self)

    def table(self, name: str, *, live: bool = True) -> Table:
        """One table as plain data. `live=False` leaves out lifetimes of elements that are not counted yet.

        `sparse_NAME` and `tiling_NAME` are tables of `report.sparse` and `report.tiling`. SpecError for a
        name that none of them has.
        """
        name = str(name)
        if name.startswith("sparse_"):
            return self.sparse.table(name.removeprefix("sparse_"))
        if name.startswith("tiling_"):
            return self.tiling.table(name.removeprefix("tiling_"))
        if name in ("tiles", "lifetimes", "working_sets"):
            return self._lived(name, live)
        if name == "accesses":
            return counted.accesses(self.counts)
        if name == "reuse":
            return counted.reuse(self.counts, *self._policies)
        if name == "fusion":
            from polymodel.report.fusion import fusion

            return fusion(self.counts, *self._retained)
        if name not in TABLES:
            raise SpecError([Diagnostic(f"no table {name}", suggestion(name, TABLES, "tables"), "table")])
        made: Table = getattr(costed, name)(self.costs)
        return made

    def _lived(self, name: str, live: bool) -> Table:
        analysis, notes = self._live if live else (self.analysis, ())
        if name == "working_sets":
            held = self.costs.needs if analysis is None else needs(Counts(self.problem, analysis))
            return counted.working_sets(held, notes)
        buffets = (analysis or self.analysis).buffets
        peaks = {(b.node, b.tensor): b.live for b in buffets if b.live is not None}
        make = counted.tiles if name == "tiles" else counted.lifetimes
        return make(self.counts, peaks, notes)

    @property
    def lifetimes(self) -> pandas.DataFrame:
        """Which Einsums each tile lives through: see `report.counted.lifetimes`."""
        return self.table("lifetimes").frame()

    @property
    def bottleneck(self) -> pandas.DataFrame:
        """What limits each Einsum, and what would next: see `report.costed.bottleneck`."""
        return self.table("bottleneck").frame()

    @property
    def roofline(self) -> pandas.DataFrame:
        """Where each Einsum stands under its roof: see `report.costed.roofline`."""
        return self.table("roofline").frame()

    @property
    def area(self) -> pandas.DataFrame:
        """Area per component: see `report.costed.area`."""
        return self.table("area").frame()

    @property
    def fusion(self) -> pandas.DataFrame:
        """What loops infer or repeat, and what is executed and read again: see `report.fusion.fusion`."""
        return self.table("fusion").frame()

    @property
    def pipelines(self) -> pandas.DataFrame:
        """Stages, slots and phases of every pipeline: see `report.costed.pipelines`."""
        return self.table("pipelines").frame()

    def ffmr(self) -> pandas.DataFrame:
        """Capacity of a fused chain by the additive and maximal formula, beside the tree's working set.

        See `report.ffmr.ffmr`. Raises Refused, saying why, for mappings of another form.
        """
        from polymodel.report.ffmr import ffmr

        return ffmr(self.counts).frame()

    def sensitivity(self, of: Cost = "energy") -> pandas.DataFrame:
        """Elasticities of `energy` or `latency` to every number of the architecture: energies, throughputs,
        leakage, latencies, sizes. See `report.costed.sensitivity`; SpecError for another cost."""
        if of not in ("energy", "latency"):
            raise SpecError([Diagnostic(f"there is no sensitivity of {of!r}", "energy or latency")])
        return costed.sensitivity(self.counts, self.costs, of).frame()

    def explain(self, einsum: str, component: str, tensor: str) -> Explanation:
        """How the numbers of one row come about. SpecError if the Einsum has no such buffet."""
        from polymodel.report.explain import explain

        return explain(self, einsum, component, tensor)

    def timeline(
        self, component: str, measure: Measure = "tile", *, limit: int = 100_000
    ) -> pandas.DataFrame:
        """What one memory holds in every phase, in bits per tensor: see `report.timeline.table`.

        `measure`: `tile` (whole tiles while resident) or `live` (elements from first to last use), of the
        instance that ever holds most. Beyond `limit` phases inner loops are joined. SpecError for what is no
        memory, Refused for pipelines, and for `live` of what is too large to list.
        """
        from polymodel.report.timeline import table, timeline

        return table(self.problem, timeline(self, component, measure, limit)).frame()

    def peak(self, component: str, measure: Measure = "tile", *, limit: int = 100_000) -> Peak:
        """The phase in which a memory holds most, who is in it and why; arguments as for `timeline`."""
        from polymodel.report.timeline import peak, timeline

        return peak(self.problem, self.analysis.buffets, timeline(self, component, measure, limit))

    def plot_timeline(
        self, component: str, measure: Measure = "tile", ax: Axes | None = None, *, limit: int = 100_000
    ) -> Axes:
        """A picture of `timeline`: tensors stacked over the phases, with the capacity and the peak."""
        from polymodel.report.plots_timeline import timeline_axes
        from polymodel.report.timeline import timeline

        found = timeline(self, component, measure, limit)
        return timeline_axes(found, self.problem.hierarchy[component].size_bits, ax)

    def plot(self, what: str, ax: Axes | None = None) -> Axes:
        """A picture: `working_sets`, `energy` or `roofline`, drawn into `ax` or a new figure."""
        from polymodel.report.plots import plot

        return plot(self, what, ax)

    def to_csv(self, folder: str | Path, *, live: bool = True) -> tuple[Path, ...]:
        """One CSV file per table in `folder`, which is made if it is missing; returns their paths."""
        from polymodel.report.export import to_csv

        return to_csv(self, folder, live)

    def to_parquet(self, folder: str | Path, *, live: bool = True) -> tuple[Path, ...]:
        """One parquet file per table in `folder`; returns their paths."""
        from polymodel.report.export import to_parquet

        return to_parquet(self, folder, live)

    def to_json(self, file: str | Path | None = None, *, live: bool = True) -> str:
        """The report as JSON text (see `report.export.as_data`), also written to `file` if given."""
        from polymodel.report.export import to_json

        return to_json(self, file, live)

    def to_html(
        self, file: str | Path | None = None, *, live: bool = True, plots: bool = True, command: str = ""
    ) -> str:
        """The report as one self-contained HTML page, also written to `file` if given.

        `plots=False` leaves out what takes matplotlib; `command` is told as what asked for the page.
        """
        from polymodel.report.report_page import to_html

        return to_html(self, file, live, plots, command)

    def __str__(self) -> str:
        from polymodel.report.text import report_text

        return report_text(self)

    def __repr__(self) -> str:
        state = "feasible" if self.feasible else f"{len(self.violations)} violations"
        return (
            f"Report({len(self.problem.cascade)} Einsums, {state}, latency {self.total_latency:.6g} s, "
            f"energy {self.total_energy:.6g} J)"
        )

    def _repr_html_(self) -> str:
        from polymodel.report.report_page import fragment

        return fragment(self, live=False)
