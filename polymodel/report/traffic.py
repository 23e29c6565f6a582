"""The traffic of a TeAAL spec on data, in tables: bits per memory and tensor, counts per unit, times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING

from polymodel.errors import Diagnostic, SpecError
from polymodel.quantities import engineering
from polymodel.report.page import CSS
from polymodel.report.table import Cell, Column, Table
from polymodel.sparse.traffic.records import Traffic
from polymodel.spec.faults import not_a

if TYPE_CHECKING:
    import pandas

TITLES = {"memories": "Bits moved", "units": "Work of units"}


@dataclass(frozen=True)
class TrafficReport:
    """What moved: DataFrames `memories` (bits per Einsum, memory and tensor) and `units` (counts).

    `time` of a memory or unit (s) stands in its first row. Printed, it is text; in a notebook, HTML.
    """

    traffic: Traffic

    def __post_init__(self) -> None:
        if not isinstance(self.traffic, Traffic):
            raise not_a("traffic", "TrafficReport", self.traffic, "pass what pm.traffic(spec, tensors) gives")

    @cached_property
    def tables(self) -> dict[str, Table]:
        """Both tables as plain data, by name."""
        return {"memories": _memories(self.traffic), "units": _units(self.traffic)}

    def table(self, name: str) -> Table:
        """One of them; SpecError for another name."""
        if name not in self.tables:
            raise SpecError([Diagnostic(f"there is no table {name!r}", "tables: " + ", ".join(self.tables))])
        return self.tables[name]

    def shown(self) -> Iterator[tuple[str, Table]]:
        """The tables that have rows, without columns that say nothing."""
        for name, table in self.tables.items():
            if table.rows:
                said = [
                    any(row[i] not in (None, "") for row in table.rows) for i in range(len(table.columns))
                ]
                yield name, table.only(*(c.name for c, s in zip(table.columns, said, strict=True) if s))

    @property
    def memories(self) -> pandas.DataFrame:
        """One row per Einsum, memory and tensor: bits read and written; `note` says what instances share."""
        return self.table("memories").frame()

    @property
    def units(self) -> pandas.DataFrame:
        """One row per Einsum, unit and kind of operation."""
        return self.table("units").frame()

    @property
    def notes(self) -> tuple[str, ...]:
        """Which Einsums run at once, the time of all, and what the numbers are."""
        return tuple(_notes(self.traffic))

    def __repr__(self) -> str:
        return f"TrafficReport({', '.join(e.einsum for e in self.traffic.einsums)})"

    def __str__(self) -> str:
        parts = []
        for name, table in self.shown():
            parts += [TITLES[name], table.text(), ""]
        return "\n".join([*parts, *(f"note: {n}" for n in self.notes)]) + "\n"

    def _repr_html_(self) -> str:
        parts = [f"<style>{CSS}</style>", '<div class="pm">']
        parts += [
            f'<h2>{TITLES[name]}</h2><div class="wide">{table.html()}</div>' for name, table in self.shown()
        ]
        parts += [f'<p class="note">{escape(n)}</p>' for n in self.notes]
        return "\n".join([*parts, "</div>"])


def _memories(found: Traffic) -> Table:
    columns = (
        Column("einsum"), Column("component"), Column("tensor"), Column("read_bits", "bit"),
        Column("write_bits", "bit"), Column("time", "s"), Column("note"),
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    for e in found.einsums:
        for memory in e.memories:
            time = memory.time
            for m in memory.moved:
                rows.append((e.einsum, memory.memory, m.tensor, m.read, m.write, time, m.note))
                time = None
    return Table("memories", columns, tuple(rows), tuple(_notes(found)))


def _units(found: Traffic) -> Table:
    columns = (
        Column("einsum"),
        Column("component"),
        Column("kind"),
        Column("count", "operation"),
        Column("time", "s"),
    )
    rows: list[tuple[Cell, ...]] = []
    for e in found.einsums:
        for unit in e.units:
            time = unit.time
            for name, count in unit.counts:
                rows.append((e.einsum, unit.unit, name, count, time))
                time = None
    return Table("units", columns, tuple(rows), tuple(_notes(found)))


def _notes(found: Traffic) -> Iterator[str]:
    yield "every number is an exact count on the actual data"
    blocks = "; then ".join(
        " and ".join(block) + (" at once" if len(block) > 1 else "") for block in found.blocks
    )
    if blocks:
        yield f"order: {blocks}"
    if found.time is not None:
        yield f"time of all: {engineering(found.time, 's')}, each block as long as its busiest component"
