"""A table as plain data: named columns with units, rows of numbers and words.

Text, CSV and JSON are made from it without pandas; a DataFrame is made on request.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from polymodel.errors import masked
from polymodel.integers import frame_column
from polymodel.objectives import BY_WORD
from polymodel.quantities import data_unit, engineering
from polymodel.view.glossary import TERMS

if TYPE_CHECKING:
    import pandas

# Units that the heading already says.
PLAIN = frozenset({"element", "operation", "stamp", "cycle", "element/element"})

RATIO = "b/a"

Cell = int | float | str | bool | None


_NAMED = re.compile(r"\w+=\d+( \w+=\d+)*")  # a cell of several figures, each behind what it is of
_PRINTED = 60  # rows of a table in a terminal


@dataclass(frozen=True)
class Column:
    """A column; the unit is also the end of the name where the name would not say it otherwise.

    `given`: the name is one of the spec's, such as a rank variable, and printed letter by letter. `words`:
    what the column means, unless the glossary says it. `formula`: its cells are closed forms.
    """

    name: str
    unit: str = ""
    given: bool = False
    words: str = ""
    formula: bool = False

    @property
    def meaning(self) -> str:
        """What the column means, in a line; empty where nobody says it."""
        objective = BY_WORD.get(self.name)
        return self.words or TERMS.get(self.name) or (objective.meaning if objective is not None else "")

    def shown(self, value: Cell) -> str:
        """One cell of the column for people."""
        return shown(value, self)

    @property
    def heading(self) -> str:
        """The name without its unit: cells of a printed table carry theirs."""
        if self.name == "bits":
            return data_unit()
        ends = {
            "bit": "_bits", "bit/s": "_bits_per_s", "J": "_J", "J s": "_Js", "s": "_s",
            "W": "_W", "m^2": "_m2", "operation/bit": "_operations_per_bit",
        }  # fmt: skip
        words, of, name = self.name.removesuffix(ends.get(self.unit, "")).partition(":")
        return f"{words if self.given else words.replace('_', ' ')}{of}{name}"


@dataclass(frozen=True)
class Table:
    """One tidy table. Exact integers are ints, None is a figure that was not asked for or does not exist."""

    name: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()

    @property
    def units(self) -> dict[str, str]:
        return {c.name: c.unit for c in self.columns if c.unit}

    def column(self, name: str) -> tuple[Cell, ...]:
        """All cells of one column; KeyError if there is none of that name."""
        for i, c in enumerate(self.columns):
            if c.name == name:
                return tuple(row[i] for row in self.rows)
        raise KeyError(f"table {self.name} has no column {name}")

    def records(self) -> list[dict[str, Cell]]:
        """One dictionary per row."""
        names = [c.name for c in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]

    def only(self, *names: str) -> Table:
        """The same rows with these columns, in this order."""
        at = [next(i for i, c in enumerate(self.columns) if c.name == n) for n in names]
        rows = tuple(tuple(row[i] for i in at) for row in self.rows)
        return Table(self.name, tuple(self.columns[i] for i in at), rows, self.notes)

    def first(self, many: int) -> Table:
        """At most so many rows, without the notes."""
        return Table(self.name, self.columns, self.rows[:many])

    def bare(self) -> Table:
        """The same without the notes."""
        return Table(self.name, self.columns, self.rows)

    def of(self, name: str) -> Table:
        """The rows whose first cell is this one, without that column and the notes."""
        rows = tuple(row[1:] for row in self.rows if row[0] == name)
        return Table(self.name, self.columns[1:], rows)

    def without_empty(self, empty: tuple[Cell, ...] = (None, "")) -> Table:
        """Without the columns in which no row says anything."""
        said = [any(row[i] not in empty for row in self.rows) for i in range(len(self.columns))]
        return self.only(*(c.name for c, s in zip(self.columns, said, strict=True) if s))

    def where(self, keep: Callable[[dict[str, Cell]], bool]) -> Table:
        """The rows that `keep` accepts."""
        rows = tuple(row for row, r in zip(self.rows, self.records(), strict=True) if keep(r))
        return Table(self.name, self.columns, rows, self.notes)

    def frame(self) -> pandas.DataFrame:
        """The table as a DataFrame, units in `attrs["units"]`, notes in `attrs["notes"]`."""
        import pandas

        data = {c.name: frame_column(self.column(c.name)) for c in self.columns}
        frame = pandas.DataFrame(data, columns=list(data))
        frame.attrs["units"] = self.units
        if self.notes:
            frame.attrs["notes"] = list(self.notes)
        return frame

    def __repr__(self) -> str:
        """The table as it reads, at most 60 rows of it."""
        head = f"{self.name}: {len(self.rows)} row{'' if len(self.rows) == 1 else 's'}"
        more = len(self.rows) - _PRINTED
        rest = [f"... {more} more rows in .frame()"] if more > 0 else []
        shown_rows = self.first(_PRINTED).text(indent="")
        return "\n".join([head, shown_rows, *rest, *(f"note: {n}" for n in self.notes)])

    def _repr_html_(self) -> str:
        from polymodel.view.html import table_html

        return table_html(self)

    def to_csv(self) -> str:
        """CSV text with a header line."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([c.name for c in self.columns])
        writer.writerows([["" if v is None else v for v in row] for row in self.rows])
        return out.getvalue()

    def text(self, *, total: tuple[str, ...] = (), indent: str = "  ") -> str:
        """Aligned columns under a rule; `total` names columns to be summed in a last row."""
        cells = [[shown(v, c) for v, c in zip(row, self.columns, strict=True)] for row in self.rows]
        if total and len(self.rows) > 1:
            cells.append(self._sums(total))
        heads = [c.heading for c in self.columns]
        right = [self.numeric(i) for i in range(len(self.columns))]
        widths = [max([len(h), *(len(row[i]) for row in cells)]) for i, h in enumerate(heads)]

        def line(row: list[str]) -> str:
            parts = [v.rjust(w) if r else v.ljust(w) for v, w, r in zip(row, widths, right, strict=True)]
            return indent + "  ".join(parts).rstrip()

        rule = indent + "  ".join("-" * w for w in widths)
        body = [line(row) for row in cells]
        if total and len(self.rows) > 1:
            body.insert(len(body) - 1, rule)
        return masked("\n".join([line(heads), rule, *body]))

    def numeric(self, at: int) -> bool:
        """Whether a column has numbers, which stand to the right."""
        return any(isinstance(row[at], (int, float)) and not isinstance(row[at], bool) for row in self.rows)

    def _sums(self, names: tuple[str, ...]) -> list[str]:
        found = ["total"] + [""] * (len(self.columns) - 1)
        for i, c in enumerate(self.columns):
            if c.name in names:
                numbers = [v for v in self.column(c.name) if isinstance(v, (int, float))]
                whole = all(isinstance(v, int) for v in numbers)
                found[i] = shown(sum(numbers) if whole else math.fsum(numbers), c)
        return found


def table_of(
    name: str,
    records: Sequence[Mapping[str, Cell]],
    units: Mapping[str, str] = MappingProxyType({}),
    columns: Sequence[str] = (),
    notes: tuple[str, ...] = (),
) -> Table:
    """A table of one record per row; `columns`: those of a table without rows."""
    names = list(columns or (records[0] if records else ()))
    rows = tuple(tuple(r[n] for n in names) for r in records)
    return Table(name, tuple(Column(n, units.get(n, "")) for n in names), rows, notes)


def shown(value: Cell, column: Column) -> str:
    """One cell for people."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return _amounts(value, column.unit) if column.unit and _NAMED.fullmatch(value) else value
    if column.unit == RATIO:
        return f"{value:.4g}"
    if column.unit == "1":
        # Adding 0.0 turns the -0.0 that a tiny negative share is rounded to into 0.0.
        return "inf" if math.isinf(value) else f"{round(100 * value, 1) + 0.0:.1f} %"
    if not column.unit and isinstance(value, int):
        return str(value)
    return engineering(value, "" if column.unit in PLAIN else column.unit)


def _amounts(text: str, unit: str) -> str:
    """`A=32768 B=512` as `A 32.77 kb, B 512 b`."""
    pairs = (entry.partition("=") for entry in text.split())
    return ", ".join(f"{name} {engineering(int(number), unit)}" for name, _, number in pairs)
