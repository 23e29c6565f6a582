"""The traffic of a TeAAL spec on data, in tables: bits per memory and tensor, counts per unit, times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from polymodel.quantities import engineering
from polymodel.sparse.traffic.records import Traffic
from polymodel.spec.faults import not_a
from polymodel.view.answer import Answer, declared
from polymodel.view.blocks import Block, Line, Section, notes
from polymodel.view.table import Cell, Column, Table


@dataclass(frozen=True, repr=False)
class TrafficReport(Answer):
    """What moved: DataFrames `memories` (bits per Einsum, memory and tensor) and `units` (counts).

    `time` of a memory or unit (s) stands in its first row. Printed, it is text; in a notebook, HTML.
    """

    traffic: Traffic

    def __post_init__(self) -> None:
        if not isinstance(self.traffic, Traffic):
            raise not_a("traffic", "TrafficReport", self.traffic, "pass what pm.traffic(spec, tensors) gives")

    @declared(title="Bits moved")
    def memories(self) -> Table:
        """Bits read and written per Einsum, memory and tensor; `note` says what instances share."""
        return _memories(self.traffic)

    @declared(title="Work of units")
    def units(self) -> Table:
        """Counts per Einsum, unit and kind of operation."""
        return _units(self.traffic)

    @property
    def notes(self) -> tuple[str, ...]:
        """Which Einsums run at once, the time of all, and what the numbers are."""
        return tuple(_notes(self.traffic))

    def content(self, live: bool = True) -> list[Block]:
        """The tables that have rows, and what to know."""
        spaced = [block for section in self.sections() for block in (section, Line())]
        return [*spaced, *notes(self.notes)]

    def sections(self) -> list[Section]:
        """The tables that have rows, without columns that say nothing."""
        shown = ((d.title, self.table(n).bare().without_empty()) for n, d in self.declared.items())
        return [Section(title, table, opened=True) for title, table in shown if table.rows]

    def __repr__(self) -> str:
        return f"TrafficReport({', '.join(e.einsum for e in self.traffic.einsums)})"


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
