"""The figures of one evaluation: frozen records, with tables made when they are looked at.

`report.report` adds what is made from them: closed forms, sparse data, tiles, timelines, pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from polymodel.analysis.result import Analysis, Engine, Problem, Traffic
from polymodel.cost.capacity import needs
from polymodel.cost.context import Counts
from polymodel.cost.figures import CostFigures, asked_value
from polymodel.cost.records import Costs, Violation
from polymodel.cost.sensitivity import Cost
from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.loading.spec import kept_files
from polymodel.mapping.looptree import LoopTree
from polymodel.report import costed, counted
from polymodel.report.ffmr import ffmr
from polymodel.report.fusion import fusion, retained
from polymodel.reuse import Reuse
from polymodel.schedule.legality import check
from polymodel.spec.coerce import check_classes
from polymodel.view.answer import Answer, declared
from polymodel.view.table import Table
from polymodel.workload.passes import Passes, passes

if TYPE_CHECKING:
    import pandas

    from polymodel.loading import Spec


@dataclass(frozen=True, eq=False)
class Evaluated(Answer):
    """What one mapping costs: the counts, everything derived from them, and their tables."""

    CALLED: ClassVar[str] = "Report"

    problem: Problem
    analysis: Analysis
    costs: Costs
    engine: Engine
    seconds: float = 0.0
    template: LoopTree | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""
    spec: Spec | None = None

    # summary comes first: it is the table that stands for the whole.
    @declared
    def summary(self) -> Table:
        """Operations, seconds and joules per Einsum and in all."""
        return costed.summary(self.costs)

    @declared
    def tiles(self) -> Table:
        """Tile sizes, their sums over all stamps, and how many stamps there are: what a storage node holds at
        a time."""
        return self.lived("tiles", True)

    @declared
    def accesses(self) -> Table:
        """Bits read, written, filled and drained by all instances in all executions."""
        return counted.accesses(self.counts)

    @declared
    def reuse(self) -> Table:
        """Different elements held, accesses, bits exchanged with the parent, and what each policy would move:
        the gap is what a better placement could win."""
        return counted.reuse(self.counts, *self.policies)

    @declared
    def lifetimes(self) -> Table:
        """In which Einsums, and branches of a split, each tile is alive."""
        return self.lived("lifetimes", True)

    @declared
    def working_sets(self) -> Table:
        """Peaks over the phases of what a memory holds while an Einsum runs, against its size, by each
        `measure`. `checked` marks the one that the capacity is held against: `query("checked")` before you
        look for the largest, since `reserved` ignores lifetimes."""
        return self.lived("working_sets", True)

    @declared
    def latency(self) -> Table:
        """Seconds that each component works for each Einsum."""
        return costed.latency(self.costs)

    @declared
    def energy(self) -> Table:
        """Joules of every action, and where each number comes from."""
        return costed.energy(self.costs)

    @declared
    def bottleneck(self) -> Table:
        """What limits each Einsum, and what would next."""
        return costed.bottleneck(self.costs)

    @declared
    def roofline(self) -> Table:
        """Where each Einsum stands under its roof."""
        return costed.roofline(self.costs)

    @declared
    def area(self) -> Table:
        """Area per component."""
        return costed.area(self.costs)

    @declared
    def fusion(self) -> Table:
        """What loops infer or repeat: what is executed again, and what is read because of it."""
        return fusion(self.counts, *self.retained)

    @declared
    def pipelines(self) -> Table:
        """Stages that overlap: slots and phases of every pipeline."""
        return costed.pipelines(self.costs)

    @property
    def passes(self) -> tuple[Passes, ...]:
        """How often the workload has to walk each rank of each input, whatever the mapping."""
        return passes(self.problem.cascade)

    def __post_init__(self) -> None:
        remedy = "pm.evaluate(spec) makes reports"
        check_classes(self, remedy, {"problem": Problem, "analysis": Analysis, "costs": Costs})

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
        from polymodel.loading.typos import likely_typos
        from polymodel.workload.einsum import unwritten

        own = (*self.spec.mapping_remarks, *self.spec.number_remarks) if self.spec is not None else ()
        told = (*self.analysis.notes, *likely_typos(self.problem.cascade), *own)
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
    def policies(self) -> tuple[dict[str, tuple[Traffic, ...]], tuple[str, ...]]:
        """The traffic under each reuse policy, and why any is missing."""
        given = {b.reuse for b in self.analysis.buffets if b.parent is not None}
        found: dict[str, tuple[Traffic, ...]] = {}
        notes: list[str] = []
        for policy in Reuse:
            if given == {policy}:
                found[policy] = self.analysis.traffic
                continue
            try:
                broken = check(self.problem, policy)
                if broken:
                    notes.append(f"{policy} is left out: {broken[0].message}")
                    continue
                found[policy] = self.engine.traffic(self.problem, reuse=policy)
            except Refused as refusal:
                notes.append(f"{policy} is left out: {refusal.message}")
        return found, tuple(notes)

    @cached_property
    def retained(self) -> tuple[Analysis | None, tuple[str, ...]]:
        """The analysis if nothing inferred were executed twice, or the reason why there is none."""
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

    def table(self, name: str = "", *, live: bool = True) -> Table:
        """One table as plain data, the summary unless another is named. SpecError for an unknown name.

        `live=False` leaves out lifetimes of elements that are not counted yet.
        """
        return super().table(name) if live or name not in LIVED else self.lived(name, False)

    def lived(self, name: str, live: bool) -> Table:
        """A table with lifetimes of elements, which are counted for it if `live`."""
        analysis, notes = self._live if live else (self.analysis, ())
        if name == "working_sets":
            held = self.costs.needs if analysis is None else needs(Counts(self.problem, analysis))
            return counted.working_sets(held, notes)
        buffets = (analysis or self.analysis).buffets
        peaks = {(b.node, b.tensor): b.live for b in buffets if b.live is not None}
        make = counted.tiles if name == "tiles" else counted.lifetimes
        return make(self.counts, peaks, notes)

    def ffmr(self) -> pandas.DataFrame:
        """Capacity of a fused chain by the additive and maximal formula, beside the tree's working set.

        See `report.ffmr.ffmr`. Raises Refused, saying why, for mappings of another form.
        """
        return ffmr(self.counts).frame()

    def sensitivity(self, of: Cost = "energy") -> pandas.DataFrame:
        """Elasticities of `energy` or `latency` to every number of the architecture: energies, throughputs,
        leakage, latencies, sizes. See `report.costed.sensitivity`; SpecError for another cost."""
        if of not in ("energy", "latency"):
            raise SpecError([Diagnostic(f"there is no sensitivity of {of!r}", "energy or latency")])
        return costed.sensitivity(self.counts, self.costs, of).frame()

    def keeping(self) -> AbstractContextManager[None]:
        """While files are written: none of the files that the spec was read from is written over."""
        return kept_files(self.spec)


LIVED = ("tiles", "lifetimes", "working_sets")  # tables with lifetimes of elements
TABLES = tuple(Evaluated.declared)
