"""The report of one evaluation, with everything that is derived from its figures."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from polymodel.frozen import dataclass
from polymodel.loading.spec import files_of
from polymodel.mapping.looptree import Loop
from polymodel.report.evaluated import TABLES, Evaluated
from polymodel.view.answer import Block, Part
from polymodel.view.files import Json
from polymodel.view.table import Table

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes

    from polymodel.analysis.timeline import Measure
    from polymodel.report.closed import SymbolicReport
    from polymodel.report.explain import Explanation
    from polymodel.report.sparse import SparseReport
    from polymodel.report.tiling.level import TilingReport
    from polymodel.report.timeline import Peak

__all__ = ["TABLES", "Report"]


@dataclass(frozen=True, eq=False)
class Report(Evaluated):
    """The costs of one mapping. Tables are DataFrames; `table(name)` gives them as plain data.

    `analysis` holds the counts of one execution per Einsum, `costs` everything derived from them; `seconds`
    is the time that both took, `folder` the folder of the workload's data files, `spec` the loaded spec, if
    any, with the values of symbols. Lifetimes of elements (`live_bits`), and other reuse policies, are
    counted when a table that shows them is first used.
    """

    @cached_property
    def symbolic(self) -> SymbolicReport:
        """The same tables in closed form: tile sizes that the mapping names stay symbols.

        A mapping without symbols gets one for each tile size above 1. Raises NotSeparable.
        """
        from polymodel.report.closed import symbolic_report

        tree = self.template or self.problem.tree
        named = any(
            isinstance(n, Loop) and any(isinstance(t, str) for t in n.sizes) for _, n, _ in tree.walk()
        )
        return symbolic_report(replace(self.problem, tree=tree), tiles=not named)

    @cached_property
    def sparse(self) -> SparseReport:
        """The costs of the mapping on sparse data, with the densities of the workload.

        For other data: `pm.sparsify(report, tensors=..., densities=...)`, which lists the errors.
        """
        from polymodel.report.sparse import sparse_report

        return sparse_report(self)

    @cached_property
    def tiling(self) -> TilingReport:
        """The tiles of operands at memories with `data_tiles:`, and the cost of running them.

        For other data: `tile_levels(report, tensors=..., densities=...)`, which lists the errors.
        """
        from polymodel.report.tiling.level import tiling_report

        return tiling_report(self)

    def table(self, name: str = "", *, live: bool = True) -> Table:
        """One table as plain data. `live=False` leaves out lifetimes of elements that are not counted yet.

        `sparse_NAME` and `tiling_NAME` are tables of `report.sparse` and `report.tiling`. Raises SpecError
        for an unknown name.
        """
        if str(name).startswith("sparse_"):
            return self.sparse.table(name.removeprefix("sparse_"))
        if str(name).startswith("tiling_"):
            return self.tiling.table(name.removeprefix("tiling_"))
        return super().table(name, live=live)

    def explain(self, einsum: str, component: str, tensor: str) -> Explanation:
        """The derivation of the numbers of one row. Raises SpecError if the Einsum has no such buffet."""
        from polymodel.report.explain import explain

        return explain(self, einsum, component, tensor)

    def timeline(
        self, component: str, measure: Measure = "tile", *, limit: int = 100_000
    ) -> pandas.DataFrame:
        """The contents of one memory in every phase, in bits per tensor: see `report.timeline.table`.

        `measure`: `tile` (whole tiles while resident) or `live` (elements from first to last use), of the
        instance that ever holds most. Beyond `limit` phases inner loops are joined. Raises SpecError for a
        name that is not a memory, Refused for pipelines, and for `live` if there are too many elements to
        list.
        """
        from polymodel.report.timeline import table, timeline

        return table(self.problem, timeline(self, component, measure, limit)).frame()

    def peak(self, component: str, measure: Measure = "tile", *, limit: int = 100_000) -> Peak:
        """The phase in which a memory holds most, the tensors in it and why; arguments as for `timeline`."""
        from polymodel.report.timeline import peak, timeline

        result = peak(self.problem, self.analysis.buffets, timeline(self, component, measure, limit))
        return replace(result, sources=files_of(self.spec))

    def plot_timeline(
        self, component: str, measure: Measure = "tile", ax: Axes | None = None, *, limit: int = 100_000
    ) -> Axes:
        """A picture of `timeline`: tensors stacked over the phases, with the capacity and the peak."""
        from polymodel.report.plots_timeline import timeline_axes
        from polymodel.report.timeline import timeline

        result = timeline(self, component, measure, limit)
        return timeline_axes(result, self.problem.hierarchy[component].size_bits, ax)

    def plot(self, what: str = "working_sets", ax: Axes | None = None) -> Axes:
        """A picture: `working_sets`, `energy`, `roofline` or `group_roofline`, drawn into `ax` or a new
        figure."""
        from polymodel.report.plots import plot

        return plot(self, what, ax)

    @property
    def title(self) -> str:
        """Workload and architecture by their names."""
        from polymodel.report.report_page import title

        return title(self)

    def content(self, live: bool = False) -> list[Block]:
        """Figures, the LoopTree and the main tables, as a notebook shows them."""
        from polymodel.report.report_page import content

        return content(self, live)

    def head(self, live: bool = True) -> list[Block]:
        """The figures, with those on sparse data."""
        from polymodel.report.report_page import head

        return head(self)

    def parts(self, live: bool, plots: bool, command: str) -> list[Part]:
        """Pictures, plots, all tables, sparse data, tiles, and the provenance."""
        from polymodel.report.report_page import parts

        return parts(self, live, plots, command)

    def as_data(self, *, live: bool = True) -> dict[str, Json]:
        """The report as plain data with stable keys: see `report.export.as_data`."""
        from polymodel.report.export import as_data

        return as_data(self, live)

    def save(
        self, folder: str | PathLike[str], *, live: bool = False, parquet: bool = False, command: str = ""
    ) -> tuple[Path, ...]:
        """Everything in one folder: tables as CSV (and parquet), report.json, report.html, report.txt, the
        tables and the page of sparse data, those of tiles, and pictures of the spec."""
        from polymodel.report.export import save_sparse_files

        with self.keeping():
            result = super().save(folder, live=live, parquet=parquet, command=command)
            return (*result, *save_sparse_files(self, Path(folder), parquet))

    def whole_text(self, *, live: bool = False) -> str:
        """The report for a terminal, followed by the sparse report and tiles where the spec describes
        zeros.
        """
        from polymodel.report.text import whole_text

        return whole_text(self, live)

    def __str__(self) -> str:
        from polymodel.report.text import report_text

        return report_text(self)

    def __repr__(self) -> str:
        state = "feasible" if self.feasible else f"{len(self.violations)} violations"
        return (
            f"Report({len(self.problem.cascade)} Einsums, {state}, latency {self.total_latency:.6g} s, "
            f"energy {self.total_energy:.6g} J)"
        )
