"""Two reports side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from polymodel.report.report import Report
from polymodel.report.table import RATIO, Cell, Column, Table, shown
from polymodel.spec.faults import not_a

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Comparison:
    """What two reports say about the same quantities; `table` holds one row per quantity.

    Columns: `quantity`, `where` (Einsum or component, empty for the whole), `unit`, `a`, `b`, `ratio` b/a.
    """

    table: Table

    def frame(self) -> pandas.DataFrame:
        """The comparison as a DataFrame; `a` and `b` are floats there, feasible is 1 and not feasible 0."""
        return self.table.frame().astype({"a": float, "b": float})

    def _readable(self) -> Table:
        """Figures with prefixes and units, each row in its own."""
        columns = (*(Column(n) for n in ("quantity", "where", "a", "b")), Column("ratio", RATIO))
        rows = tuple(
            (str(q), str(w), shown(a, Column("a", str(u))), shown(b, Column("b", str(u))), ratio)
            for q, w, u, a, b, ratio in self.table.rows
        )
        return Table("compare", columns, rows)

    def __str__(self) -> str:
        return self._readable().text(indent="") + "\n"

    def html(self) -> str:
        """The comparison as an HTML table."""
        return self._readable().html()

    def _repr_html_(self) -> str:
        return self.html()


def compare(a: Report, b: Report) -> Comparison:
    """Latency, energy, traffic and working sets of two reports, whatever differs between their specs."""
    for given in (a, b):
        if not isinstance(given, Report):
            raise not_a("report", "compare", given, "pass what pm.evaluate(spec) gives")
    rows: list[tuple[Cell, ...]] = []

    def add(quantity: str, where: str, unit: str, left: Cell, right: Cell) -> None:
        numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (left, right))
        ratio = float(right) / float(left) if numbers and left and right is not None else None
        rows.append((quantity, where, unit, left, right, ratio))

    add("feasible", "", "", a.feasible, b.feasible)
    add("latency", "", "s", a.total_latency, b.total_latency)
    add("energy", "", "J", a.total_energy, b.total_energy)
    if a.total_area or b.total_area:
        add("area", "", "m^2", a.total_area, b.total_area)
    for quantity, unit, table, key, value in (
        ("latency", "s", "latency_by_einsum", 0, 1),
        ("energy", "J", "energy", 1, 7),
        ("reads", "bit", "accesses", 1, 3),
        ("writes", "bit", "accesses", 1, 4),
    ):
        left, right = (_sums(r, table, key, value) for r in (a, b))
        for where in dict.fromkeys([*left, *right]):
            add(quantity, where, unit, left.get(where), right.get(where))
    left, right = _peaks(a), _peaks(b)
    for where in dict.fromkeys([*left, *right]):
        add("working set", where, "bit", left.get(where), right.get(where))
    names = ("quantity", "where", "unit", "a", "b", "ratio")
    return Comparison(Table("compare", tuple(Column(n) for n in names), tuple(rows)))


def _sums(report: Report, table: str, key: int, value: int) -> dict[str, int | float]:
    """One column of a table added up by another."""
    if table == "latency_by_einsum":
        return {t.einsum: t.seconds for t in report.costs.latency}
    found: dict[str, int | float] = {}
    for row in report.table(table).rows:
        number = row[value]
        if isinstance(number, (int, float)):
            found[str(row[key])] = found.get(str(row[key]), 0) + number
    return found


def _peaks(report: Report) -> dict[str, int | float]:
    """Largest need of each component, by the measure that its capacity is checked with."""
    found: dict[str, int | float] = {}
    for n in report.costs.needs:
        if n.counts:
            found[n.component] = max(found.get(n.component, 0), n.bits)
    return found
