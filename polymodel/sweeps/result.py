"""The result of a sweep: the kept points, and the spec of each row."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from polymodel.errors import Diagnostic, SpecError
from polymodel.frozen import dataclass
from polymodel.integers import in_order
from polymodel.loading import Spec, mapping_to_yaml
from polymodel.loading.spec import protected_files
from polymodel.objectives import canonical, is_objective, objective_of, score, unit_of
from polymodel.report.search_page import Finding, search_figures, search_sections, search_title
from polymodel.spec.faults import as_number, shown, suggestion
from polymodel.sweeps.grid import Grid
from polymodel.sweeps.html_page import finding, outcomes, shown_rows
from polymodel.sweeps.values import Number
from polymodel.view.answer import Answer, Block, Code, Part, Section, declared
from polymodel.view.table import Column, Table, frame_column

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

INTERRUPTED = "interrupted after"
HTML_ROWS = 12


@dataclass(frozen=True, eq=False)
class Sweep(Answer):
    """Kept points of a sweep.

    `columns`: name -> values, one per row; `infeasible`: reason -> number of points; `points`: size of the
    whole grid; `evaluated`: points with legal tiles, whose costs were computed, `before` of them by earlier
    runs; `feasible`: those of them that fit; `complete`: False if the sweep was interrupted or its front
    outgrew its memory; `seconds`: of the whole run, kept rows included; `eps`: the margin by which the front
    was thinned.
    """

    specs: tuple[Spec, ...]
    grid: Grid
    objectives: tuple[str, ...]
    columns: Mapping[str, Any]
    infeasible: Mapping[str, int]
    points: int
    evaluated: int
    seconds: float
    notes: tuple[str, ...] = ()
    keep: str = "front"
    pruned: int = 0
    complete: bool = True
    before: int = 0
    feasible: int = 0
    eps: float = 0

    @property
    def rate(self) -> float:
        """Evaluated points per second of this run."""
        return (self.evaluated - self.before) / self.seconds if self.seconds else float("inf")

    @property
    def interrupted(self) -> bool:
        """True if it was interrupted by Ctrl-C."""
        return any(n.startswith(INTERRUPTED) for n in self.notes)

    @declared(name="sweep", title="Kept points")
    def rows(self) -> Table:
        """One row per kept point."""
        return self._rows()

    @declared(title="What became of all points")
    def outcomes(self) -> Table:
        """Where each point of the grid has gone."""
        return outcomes(self)

    def _rows(self) -> Table:
        columns = tuple(Column(n, self.unit(n), given=n in self.grid.names) for n in self.columns)
        cells = [v.tolist() if hasattr(v, "tolist") else list(v) for v in self.columns.values()]
        return Table("sweep", columns, tuple(zip(*cells, strict=True)), self.notes)

    @cached_property
    def frame(self) -> pd.DataFrame:
        """One row per kept point: number, mapping, symbols, objectives, accesses and working sets.

        `frame.attrs["units"]` has the unit of every column that has one: J, s, J s, bit.
        """
        import pandas as pd

        result = pd.DataFrame({n: frame_column(v) for n, v in self.columns.items()})
        result.attrs["units"] = {n: self.unit(n) for n in result.columns if self.unit(n)}
        return result

    @cached_property
    def ordered(self) -> pd.DataFrame:
        """The rows of `frame`, feasible ones first, the best by the first objective at the top."""
        rows = self.frame
        if len(rows):
            order = ["feasible", *self.objectives]
            ascending = [False, *(not objective_of(o).most for o in self.objectives)]
            rows = rows.sort_values(order, ascending=ascending, kind="stable")
        return rows.reset_index(drop=True)

    @cached_property
    def front(self) -> pd.DataFrame:
        """The rows that no other feasible row dominates, sorted by the first objective."""
        import numpy as np

        from polymodel.pareto import Archive

        rows = self.frame[self.frame["feasible"]]
        front = Archive(len(self.objectives))
        if len(rows):
            values = np.array([self.scores(rows, o).to_numpy() for o in self.objectives])
            front.offer(values, rows.index.to_numpy())
        return self.frame.loc[front.ids]

    def best(self, objective: str = "") -> pd.Series[Any]:
        """The feasible row that is best in an objective (default: the first one). It prints unrounded."""
        from polymodel.sweeps.row import SweepRow

        name = canonical(str(objective or self.objectives[0]))
        if name not in self.frame.columns:
            near = suggestion(name, self.objectives, "objectives")
            message = f"the sweep has no objective {name}"
            raise SpecError([Diagnostic(message, near, "objective", code="unknown-name")])
        rows = self.frame[self.frame["feasible"]]
        if rows.empty:
            reasons = "; ".join(f"{r}: {n} points" for r, n in self.infeasible.items())
            raise SpecError([Diagnostic("no point is feasible", reasons, code="no-solution")])
        row = SweepRow(rows.iloc[int(self._ranked(rows, name).to_numpy().argmin())])
        row.attrs["units"] = {n: self.unit(n) for n in self.frame.columns}
        return row

    def _ranked(self, rows: pd.DataFrame, column: str) -> pd.Series[Any]:
        """A column as numbers of which the least is the best: an objective, or another column such as
        `TM`."""
        return self.scores(rows, column) if is_objective(column) else rows[column].astype(float)

    def sensitivity(self, objective: str = "") -> pd.DataFrame:
        """The best value of an objective over the kept feasible rows, for each value of each symbol.

        Only a sweep with keep="all" has every point. Raises SpecError for others.
        """
        if self.keep != "all":
            message = "sensitivity needs every point"
            raise SpecError([Diagnostic(message, "sweep with keep='all'", code="nothing-to-show")])
        import pandas as pd

        name = canonical(objective or self.objectives[0])
        self.best(name)
        rows = self.frame[self.frame["feasible"]]
        ranked = self._ranked(rows, name)
        parts = []
        for symbol in (
            n for n, values in zip(self.grid.names, self.grid.values, strict=True) if len(values) > 1
        ):
            best = ranked.groupby(rows[symbol]).idxmin()
            values = rows.loc[best, name].to_numpy()
            parts.append(pd.DataFrame({"symbol": symbol, "value": best.index, name: values}))
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()

    def unit(self, objective: str) -> str:
        """The unit of an objective: J, s, J s, m^2, 1 or bit."""
        return unit_of(canonical(objective))

    def scores(self, rows: pd.DataFrame, objective: str) -> pd.Series[Any]:
        """The minimised values of an objective: the reciprocal where it is maximised.

        Only the order of the numbers is meaningful: values that float64 does not distinguish are replaced by
        ranks.
        """
        import pandas as pd

        column = pd.Series(in_order(rows[objective]), index=rows.index)
        result: pd.Series[Any] = score(objective, column)
        return result

    def plot(self, kind: str = "front", *symbols: str, ax: Axes | None = None, level: str = "") -> Axes:
        """A plot of the kept points.

        `front` over the first objective (x) and the second (y); `heat` over two symbols
        (`plot("heat", "TM", "TN")`); `traffic` or `energy` by level, for the kept points or along one symbol
        (`plot("energy", "TM")`). A heat map shows the best of the first objective over all mappings; levels
        along a symbol are those of the best point at each value. Both need keep="all". Levels are on sparse
        data if the first objective is. `level`: the only one
        of which traffic or energy is drawn, on a scale of its own.
        """
        from polymodel.report.plots_sweep import front_axes, heat_axes

        if level and kind not in ("traffic", "energy"):
            message = f"a picture {kind!r} has no levels"
            remedy = f'leave out level={level!r}, or draw "traffic" or "energy"'
            raise SpecError([Diagnostic(message, remedy, "level", code="ineffective-argument")])
        rows = self.frame[self.frame["feasible"]]
        if rows.empty:
            self.best()
        if kind == "front":
            if len(self.objectives) < 2:
                message = "a front needs two objectives"
                raise SpecError([Diagnostic(message, "sweep with two objectives", code="wrong-count")])
            return front_axes(rows, self.front, self.objectives, [self.unit(o) for o in self.objectives], ax)
        if kind == "heat":
            known = [*self.grid.names, *(n for n, _ in self.grid.linked)]
            if len(symbols) != 2 or not set(symbols) <= set(known):
                remedy = f'plot("heat", X, Y) with two of {", ".join(known)}'
                message = "a heat map is drawn over two symbols"
                raise SpecError([Diagnostic(message, remedy, code="wrong-count")])
            if self.keep != "all":
                message = "a heat map needs every point"
                raise SpecError([Diagnostic(message, "sweep with keep='all'", code="nothing-to-show")])
            objective = self.objectives[0]
            best = objective_of(objective).extreme
            return heat_axes(rows, *symbols, objective, self.unit(objective), ax, best)
        if kind in ("traffic", "energy"):
            from polymodel.sweeps.levels import plot_levels

            return plot_levels(self, "traffic" if kind == "traffic" else "energy", symbols, ax, level)
        message = f"there is no picture {kind!r}"
        raise SpecError([Diagnostic(message, "front, heat, traffic or energy", code="unknown-choice")])

    def keeping(self) -> AbstractContextManager[None]:
        """Protects the files that the specs were read from against overwriting."""
        return protected_files(*self.specs)

    @property
    def title(self) -> str:
        """The heading of its page."""
        return search_title("Sweep", self.specs[0])

    def head(self, live: bool = True) -> list[Block]:
        """The request, the result and its quality."""
        return search_figures(self.finding)

    def parts(self, live: bool, plots: bool, command: str) -> list[Part]:
        """A sortable table of kept points (up to 3,000), plots, LoopTrees and YAML of the best mappings, the
        outcomes of all other points, and the inputs."""
        return search_sections(self.finding, plots, command)

    @cached_property
    def finding(self) -> Finding:
        """The content of the page."""
        return finding(self)

    def point(self, row: Mapping[str, Any] | pd.Series[Any] | int) -> dict[str, Number]:
        """Values of all symbols of a row (or of a point number)."""
        return self.grid.point(self._number(row) % self.grid.size)

    def spec(self, row: Mapping[str, Any] | pd.Series[Any] | int) -> Spec:
        """The spec bound to a row's symbols; `evaluate` gives the row's numbers."""
        number = self._number(row)
        chosen = self.specs[number // self.grid.size]
        return chosen.bind(**{n: v for n, v in self.point(number).items() if n in chosen.symbols})

    def _number(self, row: object) -> int:
        """The point number of a row, or the number itself."""
        keyed: Any = row if hasattr(row, "keys") else {}  # a table, or a row of pandas
        given = keyed.get("point", row)
        number, total = as_number(given), len(self.specs) * self.grid.size
        if number is None or number != number // 1 or not 0 <= number < total:
            remedy = "take a row: sweep.best(), sweep.frame.iloc[0], or its `point`"
            what = f"there is no point {shown(given)}: they run from 0 to {total - 1}"
            raise SpecError([Diagnostic(what, remedy, "row", code="unknown-name")])
        return int(number)

    def mapping_yaml(self, row: Mapping[str, Any] | pd.Series[Any] | int) -> str:
        """The row's mapping as YAML that loads back, with the symbols of workload and architecture."""
        spec = self.spec(row)
        tree = spec.mapping
        assert tree is not None
        return mapping_to_yaml(tree, spec.used_symbols(), spec.sparse_sections)

    def content(self, live: bool = True) -> list[Block]:
        """The counts, and the first rows of the front, or of the best points by the first objective."""
        first, more = shown_rows(self, HTML_ROWS), len(self.frame) - HTML_ROWS
        rest = f"... {more} more rows in .frame" if more > 0 else ""
        rows = [Section("", first, more=rest)] if first.rows else []
        return [Code(repr(self)), *rows]

    def __str__(self) -> str:
        return repr(self)

    def __repr__(self) -> str:
        kept = len(next(iter(self.columns.values()), ()))
        lines = [
            f"Sweep: {self.points} points, {self.evaluated} of them evaluated in {self.seconds:.3g} s "
            f"({self.rate:,.0f} points/s), {self.feasible} feasible, {kept} kept",
            *(f"  infeasible: {n} ({reason})" for reason, n in self.infeasible.items()),
            *([f"  pruned: {self.pruned} points, no better than one evaluated"] if self.pruned else []),
            *(f"  note: {n}" for n in self.notes),
        ]
        return "\n".join(lines)
