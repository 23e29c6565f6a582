"""What Tensaurus costs, and what was published of it, as tables."""

from __future__ import annotations

from polymodel.report.table import Cell, Column, Table
from polymodel.sparse.tensaurus import TensaurusReport, published


def report_table(report: TensaurusReport) -> Table:
    """One prediction: quantity, value, unit, label (exact, expected, bound) and how the number is made."""
    columns = Column("quantity"), Column("value"), Column("unit"), Column("label"), Column("how")
    rows = tuple((r.name, _number(r.value), r.unit, r.label, r.form) for r in report.rows())
    return Table("tensaurus", columns, rows)


def published_table() -> Table:
    """The paper's numbers beside the model's, with the error of each and the parameters that it hangs on."""
    names = "quantity", "published", "ours", "unit", "error", "agrees", "parameters", "note"
    columns = tuple(Column(n, "1" if n == "error" else "") for n in names)
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            r.quantity, _number(r.published), _number(r.ours) if r.ours is not None else "not computed",
            r.unit, r.error, r.agrees, r.parameters, r.note,
        )
        for r in published()
    )  # fmt: skip
    notes = (
        "data and index widths, dense extents and hardware tiles are not published: parameters as shown",
    )
    return Table("published", columns, rows, notes)


def _number(value: float | str) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"
