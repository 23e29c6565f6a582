"""Energies from a CSV table beside the spec: rows `component,quantity,value[,source]`."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from polymodel.errors import Diagnostic, Place, SpecError
from polymodel.inputs import reading
from polymodel.spec.energy import UNITS, EnergyAnswer, EnergyRequest, confined
from polymodel.spec.faults import TextFault, suggestion
from polymodel.spec.numbers import evaluate_number

COLUMNS = ("component", "quantity", "value")
MAX_TABLE = 4_000_000
MAX_TOLD = 20  # rows of one table


class TableFaults(TextFault):
    """Every fault of a table, each at its line and column of the CSV file."""

    def __init__(self, diagnostics: tuple[Diagnostic, ...]) -> None:
        super().__init__(diagnostics[0].message, 0, diagnostics[0].remedy)
        SpecError.__init__(self, diagnostics)


@dataclass(frozen=True)
class _Row:
    number: int
    text: str
    cells: tuple[str, ...]

    def column(self, index: int) -> int:
        """Where a cell begins, from 1; the end of the line if it is not on it."""
        starts, quoted = [0], False
        for i, c in enumerate(self.text):
            quoted ^= c == '"'
            if c == "," and not quoted:
                starts.append(i + 1)
        if index >= len(starts):
            return len(self.text) + 1
        cell = self.text[starts[index] :]
        return starts[index] + len(cell) - len(cell.lstrip()) + 1


@dataclass
class _Table:
    """A table as it is read. `file` is the name that places show."""

    file: str
    lines: list[str]
    header: tuple[str, ...] = ()
    found: list[Diagnostic] = field(default_factory=list)

    def fault(self, row: _Row, column: str, message: str, remedy: str) -> None:
        index = self.header.index(column) if column in self.header else len(row.cells)
        place = Place(self.file, row.number, row.column(index), row.text)
        self.found.append(Diagnostic(message, remedy, place=place))

    def rows(self) -> Iterator[_Row]:
        """The rows that are neither empty nor comments, with the line that each begins on."""
        pulled: list[int] = []

        def lines() -> Iterator[str]:
            for number, line in enumerate(io.StringIO("\n".join(self.lines)), 1):
                if not line.startswith("#"):
                    pulled.append(number)
                    yield line

        try:
            for cells in csv.reader(lines()):
                number, *_ = pulled
                pulled.clear()
                if cells:
                    yield _Row(number, self.lines[number - 1], tuple(c.strip() for c in cells))
        except csv.Error as error:
            number = pulled[0] if pulled else 1
            row = _Row(number, self.lines[number - 1], ())
            self.fault(row, "", f"no CSV table: {error}", "see the CSV format")


def table(request: EnergyRequest) -> EnergyAnswer:
    """What the rows of the request's component say. Raises TableFaults with all faulty rows, or TextFault."""
    if not request.file:
        raise TextFault("the energy model `table` needs a file", 0, "add file: energies.csv")
    path = confined(request.file, request.folder)
    read = _Table(str(Path(request.folder) / request.file), _text(path, request.file).split("\n"))
    rows = read.rows()
    first = next(rows, _Row(1, read.lines[0], ()))
    read.header = first.cells
    missing = [c for c in COLUMNS if c not in read.header]
    if missing:
        s = "s" * (len(missing) > 1)
        remedy = f"the first row names the columns: {', '.join(COLUMNS)}, source"
        read.fault(first, read.header[0] if read.header else "", f"no column{s} {', '.join(missing)}", remedy)
        raise TableFaults(tuple(read.found))
    values: dict[str, float] = {}
    provenance: dict[str, str] = {}
    components: list[str] = []
    mine = 0
    for row in rows:
        cells = dict(zip(read.header, row.cells, strict=False))
        short = [c for c in COLUMNS if c not in cells]
        if short:
            read.fault(row, short[0], "the row is too short", f"columns: {', '.join(read.header)}")
            continue
        components.append(cells["component"])
        if cells["component"] != request.component:
            continue
        mine += 1
        value = _checked(read, row, cells, request, values)
        if value is not None:
            values[cells["quantity"]] = value
            origin = cells.get("source") or request.source
            said = f": {origin}" if origin else ""
            provenance[cells["quantity"]] = f"table {request.file}:{row.number}{said}"
    if read.found:
        raise TableFaults(_bounded(read))
    if not mine:
        near = suggestion(request.component, components, "components in it")
        raise TextFault(f"{request.file} has no component {request.component}", 0, near)
    return EnergyAnswer(values, provenance)


def _text(path: Path, shown: str) -> str:
    try:
        if path.stat().st_size > MAX_TABLE:
            raise TextFault(f"{shown} is too large", 0, f"keep it under {MAX_TABLE} bytes")
        reading(path)
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise TextFault(f"{shown} cannot be read: {error.strerror}", 0, "put it beside the spec") from error
    except UnicodeDecodeError as error:
        raise TextFault(f"{shown} is not UTF-8 text", 0, "save it as UTF-8") from error


def _checked(
    read: _Table, row: _Row, cells: dict[str, str], request: EnergyRequest, earlier: dict[str, float]
) -> float | None:
    """The value of a row of the component; None after its faults have been noted."""
    before = len(read.found)
    quantity, text = cells["quantity"], cells["value"]
    if quantity not in request.quantities:
        near = suggestion(quantity, request.quantities, "quantities")
        read.fault(row, "quantity", f"unknown quantity {quantity} of {request.component}", near)
        return None
    if quantity in earlier:
        read.fault(row, "quantity", f"{quantity} of {request.component} is given twice", "keep one row")
    unit = UNITS.get(quantity, "joules")
    try:
        value = float(evaluate_number(text))
    except TextFault as fault:
        read.fault(row, "value", f"{text!r}: {fault.message}", f"write a number of {unit}")
        return None
    if not value >= 0 or math.isinf(value):
        read.fault(row, "value", f"{quantity} of {request.component} is {text}", f"finite {unit}, at least 0")
    return value if len(read.found) == before else None


def _bounded(read: _Table) -> tuple[Diagnostic, ...]:
    rest = read.found[MAX_TOLD:]
    if not rest:
        return tuple(read.found)
    more = Diagnostic(
        f"and {len(rest)} more faults from here on", "mend those above first", place=rest[0].place
    )
    return (*read.found[:MAX_TOLD], more)
