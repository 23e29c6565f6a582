"""One table of closed forms: a cell may be a formula, which is converted to SymPy at its first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from polymodel.analysis.symbolic.domain import Domain
from polymodel.analysis.symbolic.forms import Form, HeldBuffet, PeakForm
from polymodel.analysis.symbolic.render import Renderer
from polymodel.cost import algebra as cost
from polymodel.errors import Diagnostic, SpecError
from polymodel.frozen import dataclass
from polymodel.spec.faults import as_whole, by_name, shown, suggestion, unknown
from polymodel.view.answer import Section
from polymodel.view.table import Column, Table, frame_column

if TYPE_CHECKING:
    import pandas
    import sympy


MOST = 60  # rows of a table in a terminal


Formula = Form | HeldBuffet | PeakForm | cost.Formula
Cell = Formula | int | float | str | bool | None


def filled(cell: Cell, renderer: Renderer, values: Mapping[str, int]) -> object:
    """A formula in SymPy, or its number if `values` has every symbol; other cells unchanged."""
    if not isinstance(cell, Formula):
        return cell
    if values and values.keys() >= renderer.symbols.keys():
        return cost.value(cell, values)
    result = expression(cell, renderer)
    return result.subs({renderer.symbols[n]: v for n, v in values.items()}) if values else result


def expression(formula: cost.Part, renderer: Renderer) -> sympy.Expr:
    """The formula, or number, in SymPy."""
    sp = renderer.ops.sp
    if isinstance(formula, Form):
        return renderer.form(formula)
    if isinstance(formula, HeldBuffet):
        return renderer.buffet_bits(formula)
    if isinstance(formula, PeakForm):
        return renderer.peak(formula)
    if isinstance(formula, cost.Formula):
        return _cost(formula, renderer)
    return sp.sympify(formula)


def _cost(formula: cost.Formula, renderer: Renderer) -> sympy.Expr:
    """Joules, seconds and counts in SymPy."""
    sp = renderer.ops.sp

    def written(part: cost.Part) -> sympy.Expr:
        return expression(part, renderer)

    if isinstance(formula, cost.ExactCount):
        return renderer.form(formula.form)
    if isinstance(formula, cost.ScaledPart):
        return _weighted(written(formula.part), formula.factor, sp)
    if isinstance(formula, cost.Over):
        return _weighted(written(formula.part), 1 / formula.divisor, sp)
    if isinstance(formula, cost.Sum):
        return sp.Add(*map(written, formula.parts))
    if isinstance(formula, cost.Largest):
        return renderer.largest(map(written, formula.parts))
    if isinstance(formula, cost.FormulaProduct):
        return written(formula.one) * written(formula.other)
    if isinstance(formula, cost.Ratio):
        return sp.sympify(written(formula.over)) / written(formula.under)
    if isinstance(formula, cost.StageShare):
        return _share(formula, [written(p) for p in formula.stages], written, sp)
    assert isinstance(formula, cost.Where)
    moved, part = written(formula.count), written(formula.part)
    return part if moved.is_positive else sp.Piecewise((part, moved > 0), (0, True))


def _share(
    formula: cost.StageShare, stages: list[sympy.Expr], written: Callable[[cost.Part], sympy.Expr], sp: Any
) -> sympy.Expr:
    """The cost that is attributed to a stage where it is the slowest one."""
    mine, own, joint = stages[formula.stage], written(formula.own), written(formula.joint)
    before, after = stages[: formula.stage], stages[formula.stage + 1 :]
    slowest = sp.And(*(mine > s for s in before), *(mine >= s for s in after))
    longer = sp.Piecewise(
        (own, joint <= mine), (joint / formula.items, sp.Eq(mine, 0)), (joint * own / mine, True)
    )
    return sp.Piecewise((longer, slowest), (0, True))


def _weighted(part: sympy.Expr, weight: float, sp: Any) -> sympy.Expr:
    """A part with a weight; 1.0 times a formula would be written so."""
    if not weight:
        return sp.Integer(0)
    return part if weight == 1 else weight * part


@dataclass(frozen=True, eq=False)
class SymbolicTable:
    """Rows of texts, numbers and formulas; formulas are rendered on demand.

    `domain`: the conditions under which they hold. `values`: numbers for some symbols.
    """

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    renderer: Renderer
    domain: Domain
    values: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def cell(self, row: int, column: str) -> object:
        """One cell: a SymPy expression, or a plain value. SpecError for an unknown column."""
        if column not in self.columns:
            message = f"symbolic table {self.name} has no column {column!r}"
            raise SpecError(
                [
                    Diagnostic(
                        message,
                        suggestion(str(column), self.columns, "columns"),
                        "column",
                        code="unknown-name",
                    )
                ]
            )
        if as_whole(row) is None or not -len(self.rows) <= row < len(self.rows):
            message = f"symbolic table {self.name} has no row {shown(row)}"
            remedy = f"rows: 0 to {len(self.rows) - 1}"
            raise SpecError([Diagnostic(message, remedy, "row", code="unknown-name")])
        return filled(self.rows[row][self.columns.index(column)], self.renderer, self.values)

    def frame(self) -> pandas.DataFrame:
        """The whole table, rendered; columns without a formula have the dtype of their numbers."""
        import pandas

        rows = self._filled()
        cells = {n: frame_column(tuple(row[i] for row in rows)) for i, n in enumerate(self.columns)}
        return pandas.DataFrame(cells, columns=list(self.columns))

    def at(self, values: Mapping[str, int]) -> list[dict[str, object]]:
        """The rows with numbers for given symbols (name -> int). Raises SpecError unless all symbols have a
        value within the domain."""
        known = self.renderer.symbols
        chosen = {**self.values, **by_name("values", values, '{"TM": 16}')}
        faults = [unknown("values", n, known, "symbols") for n in chosen if n not in known]
        faults += [
            Diagnostic(
                f"{n} = {shown(v)} is not a size",
                "give a whole number from 1 on",
                f"values.{n}",
                code="not-positive-integer",
            )
            for n, v in chosen.items()
            if (as_whole(v) or 0) < 1
        ]
        if any(n not in chosen for n in known):
            lacking = [n for n in known if n not in chosen]
            remedy = f"give {', '.join(f'{n}=...' for n in lacking)} a number"
            message = f"no value is given to {', '.join(lacking)}"
            faults.append(Diagnostic(message, remedy, "values", code="missing-value"))
        if faults:
            raise SpecError(faults)
        numbers = {n: whole for n, v in chosen.items() if (whole := as_whole(v)) is not None}
        outside = self.domain.faults(numbers)
        if outside:
            raise SpecError(outside)
        return [
            {
                n: cost.value(c, numbers) if isinstance(c, Formula) else c
                for n, c in zip(self.columns, row, strict=True)
            }
            for row in self.rows
        ]

    def _filled(self) -> list[list[object]]:
        return [[filled(c, self.renderer, self.values) for c in row] for row in self.rows]

    def shown(self, most: int | None = None) -> Table:
        """The table as printed and written, with at most so many rows; formulas as text, ⌈M/TM⌉."""
        from polymodel.report.formula import text

        rows = SymbolicTable(
            self.name, self.columns, self.rows[:most], self.renderer, self.domain, self.values
        )._filled()
        columns = tuple(Column(n, formula=True) for n in self.columns)
        return Table(self.name, columns, tuple(tuple(text(c) for c in row) for row in rows))

    def to_csv(self) -> str:
        """CSV text with a header line, formulas as they are printed."""
        return self.shown().to_csv()

    def to_latex(self) -> str:
        """The table as a LaTeX `tabular`, its formulas and numbers in mathematics."""
        from polymodel.report.formula import latex_cell

        lines = [" & ".join(map(latex_cell, row)) + r" \\" for row in (self.columns, *self._filled())]
        lines.insert(1, r"\hline")
        return "\n".join((rf"\begin{{tabular}}{{{'l' * len(self.columns)}}}", *lines, r"\end{tabular}", ""))

    def __repr__(self) -> str:
        more = len(self.rows) - MOST
        return self.shown(MOST).text(indent="") + (f"\n... {more} more rows in .frame()" if more > 0 else "")

    def _repr_html_(self) -> str:
        from polymodel.view.html import fragment

        return fragment([Section("", self.shown())])
