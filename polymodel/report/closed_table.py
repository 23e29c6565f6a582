"""One table of closed forms, whose cells are rendered when they are looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from polymodel.analysis.symbolic.domain import Domain
from polymodel.analysis.symbolic.render import Renderer
from polymodel.errors import Diagnostic, SpecError
from polymodel.integers import frame_column
from polymodel.report.closed_cells import Cell, Formula, filled, value
from polymodel.spec.faults import suggestion
from polymodel.spec.plain import as_whole, by_name, shown, unknown

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, eq=False)
class SymbolicTable:
    """Rows of words, numbers and formulas; formulas are rendered when they are looked at.

    `domain`: where they hold. `values`: numbers in the place of some symbols.
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
            raise SpecError([Diagnostic(message, suggestion(str(column), self.columns, "columns"), "column")])
        if as_whole(row) is None or not -len(self.rows) <= row < len(self.rows):
            message = f"symbolic table {self.name} has no row {shown(row)}"
            raise SpecError([Diagnostic(message, f"rows: 0 to {len(self.rows) - 1}", "row")])
        return filled(self.rows[row][self.columns.index(column)], self.renderer, self.values)

    def frame(self) -> pandas.DataFrame:
        """Everything rendered; columns without a formula have the dtype of their numbers."""
        import pandas

        rows = self._filled()
        cells = {n: frame_column(tuple(row[i] for row in rows)) for i, n in enumerate(self.columns)}
        return pandas.DataFrame(cells, columns=list(self.columns))

    def at(self, values: Mapping[str, int]) -> list[dict[str, object]]:
        """The rows with numbers for given symbols (name -> int). SpecError unless all have one, in the
        domain."""
        known = self.renderer.symbols
        chosen = {**self.values, **by_name("values", values, '{"TM": 16}')}
        faults = [unknown("values", n, known, "symbols") for n in chosen if n not in known]
        faults += [
            Diagnostic(f"{n} = {shown(v)} is no size", "give a whole number from 1 on", f"values.{n}")
            for n, v in chosen.items()
            if (as_whole(v) or 0) < 1
        ]
        if any(n not in chosen for n in known):
            lacking = [n for n in known if n not in chosen]
            remedy = f"give {', '.join(f'{n}=...' for n in lacking)} a number"
            faults.append(Diagnostic(f"no value is given to {', '.join(lacking)}", remedy, "values"))
        if faults:
            raise SpecError(faults)
        numbers = {n: whole for n, v in chosen.items() if (whole := as_whole(v)) is not None}
        outside = self.domain.faults(numbers)
        if outside:
            raise SpecError(outside)
        return [
            {
                n: value(c, numbers) if isinstance(c, Formula) else c
                for n, c in zip(self.columns, row, strict=True)
            }
            for row in self.rows
        ]

    def _filled(self) -> list[list[object]]:
        return [[filled(c, self.renderer, self.values) for c in row] for row in self.rows]

    def __repr__(self) -> str:
        from polymodel.report.formula import table_text

        return table_text(self.name, self.columns, self._filled())

    def _repr_html_(self) -> str:
        from polymodel.report.formula import table_html

        return table_html(self.columns, self._filled())
