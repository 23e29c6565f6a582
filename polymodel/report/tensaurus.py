"""The costs of Tensaurus, and the published ones, as tables."""

from __future__ import annotations

from polymodel.quantities import engineering
from polymodel.sparse.tensaurus import TensaurusReport, published
from polymodel.view.table import Cell, Column, Table

TITLES = {"tensaurus": "Kernel on the Tensaurus accelerator", "published": "What the paper states"}
# Units that the name of a quantity says already.
_UNITS = {"element": "", "fiber": "", "slice": "", "operation": "", "step": "", "bit": "b", "byte": "B"}


def report_text(report: TensaurusReport) -> str:
    """Return the costs as text for a terminal: every value with its unit."""
    columns = Column("quantity"), Column("value"), Column("label"), Column("how")
    rows = tuple((r.name, _valued(r.value, r.unit), r.label, r.form) for r in report.rows())
    return Table("tensaurus", columns, rows).text(indent="") + "\n"


def _valued(value: float | str, unit: str) -> str:
    """Counts in full with their unit; seconds and joules with a prefix."""
    if unit in ("s", "J") and not isinstance(value, str):
        return engineering(float(value), unit)
    return f"{_number(value)} {_UNITS.get(unit, unit)}".rstrip()


def published_table() -> Table:
    """The paper's numbers next to the model's, with the error of each and the parameters that it depends
    on."""
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
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:,.0f}" if abs(value) >= 1e6 else f"{value:,.6g}"
