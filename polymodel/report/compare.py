"""Two reports side by side."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from typing import TYPE_CHECKING

from polymodel.architecture.text import uncut_text
from polymodel.report.fusion import recompute_factors
from polymodel.report.page import noted, page
from polymodel.report.report import Report
from polymodel.report.table import RATIO, Cell, Column, Table, shown
from polymodel.spec.faults import not_a

if TYPE_CHECKING:
    import pandas

Sums = dict[str, int | float]


@dataclass(frozen=True)
class Comparison:
    """What two reports say about the same quantities; `table` holds one row per quantity.

    Columns: `quantity`, `where` (an Einsum, a component, or `component: tensor`; empty for the whole),
    `unit`, `a`, `b`, `ratio` b/a.
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

    def __repr__(self) -> str:
        notes = "".join(f"note: {n}\n" for n in self.table.notes)
        return self._readable().text(indent="") + "\n" + notes

    def written(self, a: str, b: str, notes: Sequence[str], style: str) -> str:
        """As `csv`, `json`, a page (`html`) or a text (`table`); the last two say what a and b are."""
        if style == "csv":
            return self.table.to_csv()
        if style == "json":
            return json.dumps(self.table.records(), indent=1) + "\n"
        if style == "html":
            sides = [f"<p>{side}: <code>{escape(n)}</code></p>" for side, n in (("a", a), ("b", b))]
            return page(f"{a} and {b} compared", "".join(sides) + self.html() + noted(notes))
        return f"a: {a}\nb: {b}\n\n{self}" + "".join(f"{n}\n" for n in notes)

    def html(self) -> str:
        """The comparison as an HTML table, with what to know beside it."""
        notes = "".join(f'<p class="note">{escape(n)}</p>' for n in self.table.notes)
        readable = self._readable()
        shown_as = [c.name for c in readable.columns]
        rows = self.table.records()

        def exact(row: int, column: int) -> str:
            name, found = shown_as[column], rows[row]
            value = found[name] if name in ("a", "b") else None
            return "" if value is None else f"{value} {found['unit']}".strip()

        return readable.html(exact) + notes

    def _repr_html_(self) -> str:
        return self.html()


def compare(a: Report, b: Report) -> Comparison:
    """Latency, energy, operations, recomputation, traffic and working sets of two reports.

    Whatever differs between their specs. Operations are those executed, by all instances; the recompute
    factor has rows for Einsums that execute iterations again under either mapping.
    """
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
    for quantity, unit, figures in FIGURES:
        left, right = figures(a), figures(b)
        for where in dict.fromkeys([*left, *right]):
            pair = left.get(where), right.get(where)
            # Tensors that neither moves, and Einsums that neither recomputes, would only fill the page.
            dull = 1 if figures is _factors else 0 if ": " in where else None
            if dull is None or any(v not in (None, dull) for v in pair):
                add(quantity, where, unit, *pair)
    names = ("quantity", "where", "unit", "a", "b", "ratio")
    nodes = (*a.problem.hierarchy.components, *b.problem.hierarchy.components)
    return Comparison(Table("compare", tuple(Column(n) for n in names), tuple(rows), uncut_text(nodes)))


def _operations(report: Report) -> Sums:
    each = {t.einsum: t.operations for t in report.costs.latency}
    return {"": sum(each.values()), **each}


def _factors(report: Report) -> Sums:
    """Operations over different iterations, per Einsum."""
    again = recompute_factors(report.counts)
    return {t.einsum: again.get(t.einsum, (0, 1.0))[1] for t in report.costs.latency}


def _latency(report: Report) -> Sums:
    return {t.einsum: t.seconds for t in report.costs.latency}


def _energy(report: Report) -> Sums:
    """Joules of each component, leakage included."""
    found: Sums = {}
    for i in report.costs.energy:
        found[i.component] = found.get(i.component, 0.0) + i.energy
    return found


def _moved(report: Report, kind: str) -> Sums:
    """Bits read or written at each component, in all and of each tensor."""
    each: dict[str, Sums] = {}
    for row in report.table("accesses").records():
        component, bits = str(row["component"]), row[f"{kind}_bits"]
        assert isinstance(bits, int)
        sums = each.setdefault(component, {component: 0})
        for where in (component, f"{component}: {row['tensor']}"):
            sums[where] = sums.get(where, 0) + bits
    return {where: bits for sums in each.values() for where, bits in sums.items()}


def _peaks(report: Report) -> Sums:
    """Largest need of each component, by the measure that its capacity is checked with."""
    found: Sums = {}
    for n in report.costs.needs:
        if n.counts:
            found[n.component] = max(found.get(n.component, 0), n.bits)
    return found


FIGURES: tuple[tuple[str, str, Callable[[Report], Sums]], ...] = (
    ("operations", "operation", _operations),
    ("recompute factor", "", _factors),
    ("latency", "s", _latency),
    ("energy", "J", _energy),
    ("reads", "bit", partial(_moved, kind="read")),
    ("writes", "bit", partial(_moved, kind="write")),
    ("working set", "bit", _peaks),
)
