"""Energy models: sources of energies, leakage and areas that the architecture does not give.

A model is a callable `(EnergyRequest) -> EnergyAnswer`. `constants`, `table`, `published` and `compound` are
built in; `hwcomponents` uses the package of that name (an extra); any other name is looked up among the
installed entry points of the group `polymodel.energy_models`.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points, version
from numbers import Real
from pathlib import Path

from polymodel.errors import Diagnostic, Place, SpecError
from polymodel.spec.energy_records import (
    EnergyAnswer,
    EnergyRequest,
    fault_of,
    option_number,
    unknown_of,
)
from polymodel.spec.faults import TextFault, close_to, suggestion
from polymodel.spec.files import reading
from polymodel.spec.numbers import evaluate_number
from polymodel.spec.published import OPTIONS, published

__all__ = ["EnergyAnswer", "EnergyRequest", "ask"]
GROUP = "polymodel.energy_models"
UNITS = {"area": "square metres", "leak_power": "watts"}


def _unreadable(message: str, remedy: str = "name a file beside the spec") -> TextFault:
    return fault_of(message, remedy, "unreadable-file")


EnergyModelFunction = Callable[[EnergyRequest], EnergyAnswer]


def constants(request: EnergyRequest) -> EnergyAnswer:
    """The values that the spec itself gives."""
    values = {k: float(v) for k, v in request.values.items() if k in request.quantities}
    origin = f"constants: {request.source}" if request.source else "constants"
    return EnergyAnswer(values, dict.fromkeys(values, origin))


def confined(name: str, folder: str) -> Path:
    """The path of `name` in `folder`; paths and symbolic links that leave the folder are refused."""
    if not folder:
        raise _unreadable(f"{name} can only be read beside a spec file", "load the spec from a file")
    root = Path(folder).resolve()
    written = Path(name)
    if written.is_absolute() or "\0" in name:
        raise _unreadable(f"the path {name} leaves the spec's folder")
    try:
        result = (root / written).resolve()
        there = result.is_file()
    except (OSError, RuntimeError) as error:  # the name is too long, or links form a cycle
        raise _unreadable(f"{name[:200]} cannot be read: {error}") from error
    if not result.is_relative_to(root):
        raise _unreadable(f"the path {name} leaves the spec's folder")
    if not there:
        known = [p.name for p in root.iterdir() if p.suffix == ".csv"] if root.is_dir() else []
        near = close_to(name, known)
        remedy = f"did you mean {near}?" if near else "put it beside the spec"
        raise _unreadable(f"{name} is not a file in the spec's folder", remedy)
    return result


@dataclass(frozen=True)
class _Guard:
    """Turns any exception raised in third-party code into a fault that names the model."""

    model: str

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, TextFault):
            raise fault_of(f"energy model {self.model}: {error.message}", error.remedy, error.code) from error
        if isinstance(error, Exception):
            said = str(error).strip().partition("\n")[0]
            said = f": {said[:200]}" + "..." * (len(said) > 200) if said else ""
            message = f"energy model {self.model} failed: {type(error).__name__}{said}"
            raise fault_of(message, "check its options, or ask whoever wrote it") from error


def ask(name: str, request: EnergyRequest) -> EnergyAnswer:
    """The answer of the model of that name, with every number checked and its provenance.

    Raises TextFault for an unknown model, a model that fails, a value that is not a finite number of at least
    0 in the quantity's unit, and a quantity that was not requested.
    """
    if name in _BUILT_IN:
        return _checked(_BUILT_IN[name](request), request, name, "")
    entry = None if name == "hwcomponents" else _installed(name)
    origin = f"{name} ({entry.dist.name} {entry.dist.version})" if entry and entry.dist else ""
    with _Guard(origin or name):
        answer = _hwcomponents(request) if entry is None else entry.load()(request)
    return _checked(answer, request, name, origin)


def _installed(name: str) -> EntryPoint:
    found = entry_points(group=GROUP)
    same = list(dict.fromkeys(e for e in found if e.name == name))
    if not same:
        known = [*_BUILT_IN, "hwcomponents", *sorted(found.names)]
        raise unknown_of(f"unknown energy model {name}", name, known, "energy models")
    if len(same) > 1:
        owners = ", ".join(sorted(e.dist.name if e.dist else e.value for e in same))
        message = f"several packages install an energy model {name}: {owners}"
        raise fault_of(message, "uninstall one", "name-conflict")
    return same[0]


def _checked(answer: object, request: EnergyRequest, name: str, origin: str) -> EnergyAnswer:
    if not isinstance(answer, EnergyAnswer) or not isinstance(answer.values, Mapping):
        kind = type(answer).__name__
        raise fault_of(f"energy model {name} answers with {kind}", "an EnergyAnswer of two mappings")
    values: dict[str, float] = {}
    provenance: dict[str, str] = {}
    given: Mapping[str, object] = answer.values
    for quantity, value in given.items():
        if quantity not in request.quantities:
            message = f"energy model {name} gives an unknown quantity {quantity}"
            raise unknown_of(message, str(quantity), request.quantities, "quantities")
        unit = UNITS.get(quantity, "joules")
        if isinstance(value, bool) or not isinstance(value, Real):
            raise fault_of(f"energy model {name} gives {value!r} for {quantity}", f"a number of {unit}")
        number = float(value)
        if not number >= 0 or math.isinf(number):
            raise fault_of(f"energy model {name} gives {number} for {quantity}", f"finite {unit}, at least 0")
        values[quantity] = number
        said = answer.provenance.get(quantity) or (request.source if origin else "") or ""
        provenance[quantity] = f"{origin}: {said}" if origin and said else origin or said
    return EnergyAnswer(values, provenance)


_REASON = re.compile(r"\b\w*(?:Error|Exception): .*")


def _hwcomponents(request: EnergyRequest) -> EnergyAnswer:
    """Area, leakage and the energies of those requested actions that the component has; TextFault if it has
    none of them."""
    try:
        import hwcomponents
    except ModuleNotFoundError as error:
        remedy = "pip install 'polymodel[hwcomponents]' under Python 3.12 or newer"
        raise fault_of("hwcomponents is not installed", remedy, "missing-package") from error
    name, attributes = request.component, dict(request.options)
    try:
        found = hwcomponents.get_model(name, attributes)
    except RuntimeError as error:
        reasons = _REASON.findall(str(error))
        why = f": {reasons[-1].rstrip('. ')}" if reasons else ""
        what = f"hwcomponents has no {name} with these attributes{why}"
        ran = "exit code" in why  # of a program that it runs, such as CACTI
        remedy = "run that program by hand to see why" if ran else "`hwc --list` shows what it has"
        raise fault_of(what, remedy) from error
    values = {"area": float(found.area), "leak_power": float(found.leak_power)}
    for action in request.quantities:
        if action in found.get_action_names():
            # Compute counts operations, whatever their width.
            bits = {} if action == "compute" else {"bits_per_action": request.bits_per_action.get(action, 1)}
            cost = hwcomponents.get_action_cost(name, attributes, action, bits)
            values[action] = float(cost.energy)
    package = type(found).__module__.partition(".")[0]
    origin = f"hwcomponents {version('hwcomponents')}: {type(found).__name__} of {package}"
    return EnergyAnswer(values, dict.fromkeys(values, origin))


COLUMNS = ("component", "quantity", "value")
MAX_TABLE = 4_000_000
MAX_TOLD = 20  # rows of one table


class TableFaults(TextFault):
    """Every fault of a table, each at its line and column of the CSV file."""

    def __init__(self, diagnostics: tuple[Diagnostic, ...]) -> None:
        super().__init__(diagnostics[0].message, 0, diagnostics[0].remedy)
        SpecError.__init__(self, diagnostics)


@dataclass(frozen=True)
class _EnergyRow:
    number: int
    text: str
    cells: tuple[str, ...]

    def column(self, index: int) -> int:
        """The column of a cell, from 1; the end of the line if it is not found there."""
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
class _EnergyTable:
    """A table while it is read. `file` is its name in the places of faults."""

    file: str
    lines: list[str]
    header: tuple[str, ...] = ()
    found: list[Diagnostic] = field(default_factory=list)

    def fault(self, row: _EnergyRow, column: str, message: str, remedy: str, *, code: str) -> None:
        index = self.header.index(column) if column in self.header else len(row.cells)
        place = Place(self.file, row.number, row.column(index), row.text)
        self.found.append(Diagnostic(message, remedy, place=place, code=code))

    def rows(self) -> Iterator[_EnergyRow]:
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
                    yield _EnergyRow(number, self.lines[number - 1], tuple(c.strip() for c in cells))
        except csv.Error as error:
            number = pulled[0] if pulled else 1
            row = _EnergyRow(number, self.lines[number - 1], ())
            self.fault(row, "", f"no CSV table: {error}", "see the CSV format", code="syntax-error")


def table(request: EnergyRequest) -> EnergyAnswer:
    """The values in the rows of the requested component. Raises TableFaults with all faulty rows, or
    TextFault."""
    if not request.file:
        raise fault_of("the energy model `table` needs a file", "add file: energies.csv", "missing-key")
    path = confined(request.file, request.folder)
    read = _EnergyTable(str(Path(request.folder) / request.file), _table_text(path, request.file).split("\n"))
    rows = read.rows()
    first = next(rows, _EnergyRow(1, read.lines[0], ()))
    read.header = first.cells
    missing = [c for c in COLUMNS if c not in read.header]
    if missing:
        remedy = f"the first row names the columns: {', '.join(COLUMNS)}, source"
        what = f"no column{'s' * (len(missing) > 1)} {', '.join(missing)}"
        read.fault(first, read.header[0] if read.header else "", what, remedy, code="missing-key")
        raise TableFaults(tuple(read.found))
    values: dict[str, float] = {}
    provenance: dict[str, str] = {}
    components: list[str] = []
    mine = 0
    for row in rows:
        cells = dict(zip(read.header, row.cells, strict=False))
        short = [c for c in COLUMNS if c not in cells]
        if short:
            fault = "the row is too short"
            read.fault(row, short[0], fault, f"columns: {', '.join(read.header)}", code="missing-key")
            continue
        components.append(cells["component"])
        if cells["component"] != request.component:
            continue
        mine += 1
        value = _row_value(read, row, cells, request, values)
        if value is not None:
            values[cells["quantity"]] = value
            origin = cells.get("source") or request.source
            said = f": {origin}" if origin else ""
            provenance[cells["quantity"]] = f"table {request.file}:{row.number}{said}"
    if read.found:
        raise TableFaults(_first_faults(read))
    if not mine:
        message = f"{request.file} has no component {request.component}"
        raise unknown_of(message, request.component, components, "components in it")
    return EnergyAnswer(values, provenance)


def _table_text(path: Path, shown: str) -> str:
    try:
        if path.stat().st_size > MAX_TABLE:
            raise fault_of(f"{shown} is too large", f"keep it under {MAX_TABLE} bytes", "too-large")
        reading(path)
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise _unreadable(f"{shown} cannot be read: {error.strerror}", "put it beside the spec") from error
    except UnicodeDecodeError as error:
        raise _unreadable(f"{shown} is not UTF-8 text", "save it as UTF-8") from error


def _row_value(
    read: _EnergyTable,
    row: _EnergyRow,
    cells: dict[str, str],
    request: EnergyRequest,
    earlier: dict[str, float],
) -> float | None:
    """The value of a row of the component; None after its faults have been recorded."""
    before = len(read.found)
    quantity, text = cells["quantity"], cells["value"]
    if quantity not in request.quantities:
        near = suggestion(quantity, request.quantities, "quantities")
        message = f"unknown quantity {quantity} of {request.component}"
        read.fault(row, "quantity", message, near, code="unknown-name")
        return None
    if quantity in earlier:
        message = f"{quantity} of {request.component} is given twice"
        read.fault(row, "quantity", message, "keep one row", code="duplicate-name")
    unit = UNITS.get(quantity, "joules")
    try:
        value = float(evaluate_number(text))
    except TextFault as fault:
        read.fault(row, "value", f"{text!r}: {fault.message}", f"write a number of {unit}", code=fault.code)
        return None
    if not value >= 0 or math.isinf(value):
        message = f"{quantity} of {request.component} is {text}"
        read.fault(row, "value", message, f"finite {unit}, at least 0", code="out-of-range")
    return value if len(read.found) == before else None


def _first_faults(read: _EnergyTable) -> tuple[Diagnostic, ...]:
    rest = read.found[MAX_TOLD:]
    if not rest:
        return tuple(read.found)
    message = f"and {len(rest)} more faults from here on"
    more = Diagnostic(message, "mend those above first", place=rest[0].place, code="more-faults")
    return (*read.found[:MAX_TOLD], more)


# Options that are numbers, and may be expressions over symbols, by model. ANY: whichever is arithmetic.
ANY = ("*",)
NUMERIC = {
    "hwcomponents": ANY,
    "published": OPTIONS,
    "compound": ("parts", "actions"),
}
NAMES = ("name", "component", "file", "source")  # the options of a part of a compound component that are text


_PART = (*NAMES, "values", "options", "count")


def compound(request: EnergyRequest) -> EnergyAnswer:
    """A component composed of parts, each with an energy model of its own. Raises TextFault for a faulty
    part.

    Options: `parts`: name -> an energy model, with `count`, the number of such parts (1); `actions`: action
    of the component -> part -> action of the part -> its number per action of the component: bits for
    memories, operations for others. Area and leakage are sums over the parts, if every part has one.
    """
    parts, actions = (_mapping(request.options.get(k), k) for k in ("parts", "actions"))
    if unknown := sorted({*request.options} - {"parts", "actions"}):
        raise fault_of(f"compound has no option {unknown[0]}", "options: parts, actions", "unknown-key")
    taken: dict[str, dict[str, dict[str, float]]] = {
        action: {
            part: {own: option_number(of_part, own, 1) for own in of_part}
            for part, counts in _mapping(uses, action).items()
            for of_part in (_mapping(counts, part),)
        }
        for action, uses in actions.items()
    }
    for action in actions:
        if action not in request.quantities:
            message = f"{request.component} has no action {action}"
            raise unknown_of(message, action, request.quantities, "actions")
    used = dict.fromkeys(part for uses in taken.values() for part in uses)
    if lost := [part for part in used if part not in parts]:
        raise unknown_of(f"there is no part {lost[0]}", lost[0], list(parts), "parts")
    answers = {name: _of_part(request, name, _mapping(part, name), taken) for name, part in parts.items()}
    values: dict[str, float] = {}
    provenance: dict[str, str] = {}
    for action, uses in taken.items():
        values[action] = sum(
            n * answers[part].values[own] for part, owns in uses.items() for own, n in owns.items()
        )
        told = (f"{part}: {answers[part].provenance[own]}" for part, owns in uses.items() for own in owns)
        provenance[action] = "compound of " + "; ".join(dict.fromkeys(told))
    for quantity in UNITS:
        if all(quantity in a.values for a in answers.values()):
            counts = [option_number(_mapping(parts[name], name), "count", 1) for name in parts]
            each = zip(answers.values(), counts, strict=True)
            values[quantity] = sum(n * a.values[quantity] for a, n in each)
            said = (f"{name}: {a.provenance[quantity]}" for name, a in answers.items())
            provenance[quantity] = "compound of " + "; ".join(said)
    return EnergyAnswer(values, provenance)


def _mapping(given: object, name: str) -> Mapping[str, object]:
    if not isinstance(given, Mapping) or not given or not all(isinstance(k, str) for k in given):
        raise fault_of(f"{name} of a compound component is not a table", "write {name: {...}}", "wrong-type")
    return given


def _of_part(
    request: EnergyRequest,
    name: str,
    part: Mapping[str, object],
    taken: Mapping[str, Mapping[str, Mapping[str, float]]],
) -> EnergyAnswer:
    """The answer of one part's energy model for those of its actions that are used."""
    if unknown := [k for k in part if k not in _PART]:
        near = suggestion(unknown[0], _PART, "keys")
        raise fault_of(f"part {name} has an unknown key {unknown[0]}", near, "unknown-key")
    model = part.get("name")
    if not isinstance(model, str):
        raise fault_of(f"part {name} has no energy model", "write name: published", "missing-key")
    wanted = tuple(dict.fromkeys(own for uses in taken.values() for own in uses.get(name, {})))
    values = part.get("values", {})
    texts = {k: v for k in ("component", "file", "source") if isinstance(v := part.get(k), str)}
    options = part.get("options", {})
    asked = EnergyRequest(
        texts.get("component", name), tuple(dict.fromkeys([*wanted, "read", "write", "compute", *UNITS])),
        {k: option_number(values, k, 0, least=0) for k in values} if isinstance(values, Mapping) else {},
        texts.get("file"), texts.get("source"), request.folder,
        options if isinstance(options, Mapping) else {},
    )  # fmt: skip
    try:
        answer = ask(model, asked)
    except TextFault as fault:
        raise fault_of(f"part {name}: {fault.message}", fault.remedy, fault.code) from fault
    for own in wanted:
        if own not in answer.values:
            raise fault_of(f"part {name} has no energy for {own}", "add it to its model", "missing-energy")
    return answer


_BUILT_IN: dict[str, EnergyModelFunction] = {
    "constants": constants,
    "table": table,
    "published": published,
    "compound": compound,
}
