"""Files and mappings -> the sections of one spec, as schema objects with their places."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from polymodel.errors import Diagnostic, Place, SpecError
from polymodel.frozen import dataclass
from polymodel.spec.arch_schema import Arch
from polymodel.spec.base import NameText, Number, SchemaObject, faults_of, keys_at
from polymodel.spec.faults import (
    Faults,
    NodeLocator,
    Source,
    TextFault,
    UnknownName,
    YamlEntry,
    YamlNode,
    as_number,
    by_name,
    close_to,
    node_of,
    plainly,
    shown,
    suggestion,
)
from polymodel.spec.files import RefusedVariable, Rendered, Variable, effective, filled, is_template, text_of
from polymodel.spec.numbers import UnboundSymbol, Value, evaluate_number, symbols_in
from polymodel.spec.other_tools import SECTIONS as TEAAL
from polymodel.spec.other_tools import foreign, section_of_accelforge, teaal_sections
from polymodel.spec.section_schemas import (
    CodesignSection,
    ExploreSection,
    MappingSpec,
    Renames,
    SweepSection,
    Workload,
)
from polymodel.spec.yaml_text import MAX_DEPTH, MAX_NODES, TAGS, parse_yaml, upgraded, version_fault

if TYPE_CHECKING:
    from polymodel.spec.includes import Includes
    from polymodel.spec.teaal.records import TeaalSpec
    from polymodel.spec.template import Functions


# Values of symbols: numbers, or expressions over other symbols.

MAX_CHAIN = 100  # longest chain of symbols that are defined by other symbols
# Fields that hold names, set expressions or remarks, never numbers.
_NAMES = ("name", "type", "keep", "may_keep", "may_reuse", "source", "renames", "file", "topology")


def words_of(value: object) -> set[str]:
    """Every name in the texts of plain data that may be a symbol; dictionary keys are names of ranks and
    sets."""
    if isinstance(value, str):
        return set(re.findall(r"[A-Za-z_]\w*", value))
    if isinstance(value, Mapping):
        return {w for k, v in value.items() if k not in _NAMES for w in words_of(v)}
    return {w for v in value for w in words_of(v)} if isinstance(value, Iterable) else set()


def used_symbols(symbols: Mapping[str, Value | str | None], used: Iterable[str]) -> dict[str, Value | str]:
    """The symbols that are used, directly or through other symbols, without those that have no value yet."""
    every = {n: v for n, v in symbols.items() if v is not None}
    result = set(used)
    fresh = result
    while fresh:
        fresh = words_of([v for n, v in every.items() if n in fresh and isinstance(v, str)]) - result
        result |= fresh
    return {n: v for n, v in every.items() if n in result}


def symbol_values(
    declared: Mapping[str, Value | str | None], given: Mapping[str, Value], faults: Faults
) -> dict[str, Value | None]:
    """Every declared or given symbol with its value, None for one without a value; cycles are faults."""
    written: dict[str, Value | str | None] = {**declared, **given}
    result: dict[str, Value | None] = {}

    def value(name: str, open_names: tuple[str, ...]) -> Value | None:
        if name in result or name not in written:
            return result.get(name)
        text = written[name]
        if name in open_names:
            cycle = " -> ".join((*open_names[open_names.index(name) :], name))
            message = f"symbols refer to each other: {cycle}"
            faults.add(("symbols", name), message, "break the cycle", code="cyclic-definition")
            return None
        if len(open_names) >= MAX_CHAIN:
            what = f"symbols refer to each other more than {MAX_CHAIN} deep: {open_names[0]} -> ... -> {name}"
            faults.add(("symbols", name), what, "write some of them out", code="too-large")
            return None
        if text is None:
            result[name] = None
            return None
        try:
            used = [other for other in symbols_in(text) if other in written]
            known = {other: value(other, (*open_names, name)) for other in used}
            result[name] = evaluate_number(text, known)
        except UnboundSymbol:
            result[name] = None
        except TextFault as fault:
            faults.text(("symbols", name), fault)
            result[name] = None
        return result[name]

    for name in written:
        value(name, ())
    return result


def symbol_faults(
    symbols: Mapping[str, object], known: Mapping[str, object], variables: Collection[str] = ()
) -> list[Diagnostic]:
    """The faults of values given to symbols: unknown names, and values that are not numbers.

    `variables`: the template variables of the files that were read; these are given separately.
    """
    result = []
    for name, value in symbols.items():
        if name in variables and name not in known:
            what = f"{name} is a template variable, not a symbol"
            remedy = f"give it as one: --var {name}=..., in Python load(..., {name}=...)"
            result.append(Diagnostic(what, remedy, f"symbols.{name}", code="ineffective-argument"))
        elif name not in known:
            near = suggestion(name, known, "symbols") if known else "the spec has no symbols"
            result.append(Diagnostic(f"unknown symbol {name}", near, f"symbols.{name}", code="unknown-name"))
        elif (number := as_number(value)) is None or number != number:
            what = f"symbol {name} = {shown(value)} is not a number"
            message = f"give a number, e.g. {name}=16"
            result.append(Diagnostic(what, message, f"symbols.{name}", code="not-a-number"))
    return result


def check_symbols(symbols: Mapping[str, object], known: Mapping[str, object]) -> None:
    """Raises SpecError with `symbol_faults`."""
    faults = symbol_faults(symbols, known)
    if faults:
        raise SpecError(faults)


def right_symbols(
    symbols: Mapping[str, object],
    known: Mapping[str, object],
    faults: Faults,
    variables: Collection[str] = (),
) -> dict[str, Value]:
    """The symbols whose values are numbers, as plain numbers; all faults are collected."""
    faults.extend(symbol_faults(symbols, known, variables))
    numbers = {name: as_number(value) for name, value in symbols.items()}
    return {name: number for name, number in numbers.items() if number is not None and number == number}


def coerce_symbols(symbols: object) -> dict[str, object]:
    """The argument `symbols` of a call with plain numbers. Raises SpecError if it is not a table by name."""
    return by_name("symbols", {} if symbols is None else symbols, 'symbols={"TM": 16}')


# Documents and their sections.

SECTIONS: dict[str, type[SchemaObject]] = {
    "workload": Workload,
    "renames": Renames,
    "arch": Arch,
    "mapping": MappingSpec,
    "sweep": SweepSection,
    "explore": ExploreSection,
    "codesign": CodesignSection,
}


# The `symbols:` section: name -> number, expression over other symbols, or nothing yet.
_SYMBOLS: TypeAdapter[dict[str, int | float | str | None]] = TypeAdapter(dict[NameText, Number | None])


@dataclass
class Document:
    """The sections read so far; `folders` holds the folder of the file that each section came from."""

    sections: dict[str, SchemaObject] = field(default_factory=dict)
    rest: ExploreSection | None = (
        None  # the valid part of an `explore:` section with faults, which is checked further
    )
    symbols: dict[str, int | float | str | None] = field(default_factory=dict)
    extras: dict[str, object] = field(default_factory=dict)
    entries: dict[str, YamlEntry] = field(default_factory=dict)
    folders: dict[str, str] = field(default_factory=dict)
    faults: Faults = field(default_factory=Faults)
    variables: set[str] = field(default_factory=set)
    bound: dict[str, int | float | str] = field(default_factory=dict)  # symbols of files with only a mapping
    files: list[str] = field(default_factory=list)
    teaal: TeaalSpec | None = None
    teaal_entries: dict[str, YamlEntry] = field(default_factory=dict)  # of one file or of several
    declared: dict[str, Variable] = field(default_factory=dict)  # template variables
    refused: set[str] = field(default_factory=set)  # template variables whose values are not allowed
    asked: frozenset[str] = frozenset()  # template variables that the caller gives
    effective: set[str] = field(default_factory=set)  # those of them that change what a template prints
    unread: bool = False  # a part of some file could not be read, and may contain what seems to be missing

    def __post_init__(self) -> None:
        self.faults.locator = NodeLocator(self.entries)

    def may_have(self, section: str) -> bool:
        """True if the section is present, or may be in a part that could not be read."""
        return self.unread or section in self.sections or section in self.entries

    def certain(self, fault: Diagnostic) -> bool:
        """False for names that an unreadable part may declare, and for symbols that merely have no value."""
        whole = not self.unread and ("renames" in self.sections or "renames" not in self.entries)
        return fault.code != UnboundSymbol.code and (whole or fault.code != UnknownName.code)


def read_file(path: FilePath, document: Document, variables: Mapping[str, object], shown: str = "") -> None:
    """Read one YAML file into the document; faults are collected, none is raised."""
    before = len(document.faults)
    root, broken = root_of(path, document, variables, shown)
    document.unread |= broken
    other = foreign(root) if root is not None else None
    if other is not None:
        del document.faults.found[before:]  # it has other tags and keys
        document.faults.note(other)
    elif root is not None:
        add_root(root, document, broken=broken)


def root_of(
    path: FilePath,
    document: Document,
    variables: Mapping[str, object],
    shown: str = "",
    tags: tuple[str, ...] = TAGS,
    includes: Includes | None = None,
) -> tuple[YamlNode | None, bool]:
    """The root node of one YAML file after template rendering, and whether parts of it are broken.

    Faults are collected in the document; the node is None if nothing could be read. Without `includes` a
    template cannot fetch other files.
    """
    name = shown or str(path)
    document.files.append(name)
    text = text_of(path, name, document.faults)
    if text is None:
        return None, True
    source = Source(name, tuple(text.split("\n")), folder=str(path.parent))
    if is_template(text):
        variables = {n: v for n, v in variables.items() if n not in document.refused}
        functions = includes.functions(path.parent) if includes is not None else {}
        rendered, faults = _printed(text, source, functions, variables)
        document.faults.extend(faults)
        document.refused |= {d.name for d in faults if isinstance(d, RefusedVariable)}
        if rendered is None:
            from polymodel.spec.template import names_in

            document.variables |= set(variables) if (known := names_in(text)) is None else known
            return None, True
        document.declared = {v.name: v for v in rendered.declared} | document.declared
        if includes is None:
            defaults = {n: document.declared[n].default for n in document.asked & document.declared.keys()}
            again = partial(_printed, text, source, functions)
            document.effective |= effective(again, variables, rendered, defaults)
        document.variables |= rendered.variables | (includes.variables if includes is not None else set())
        text, source = rendered.text, rendered.source
    root, faults = parse_yaml(text, source, tags, includes.parts if includes is not None else None)
    document.faults.extend(faults)
    return root, bool(faults)


def _printed(
    text: str, source: Source, functions: Functions, variables: Mapping[str, object]
) -> tuple[Rendered | None, tuple[Diagnostic, ...]]:
    """What a template prints; None with its faults."""
    result = filled(text, source, variables)
    if result is not None:
        return result, ()
    # jinja2 takes as long to import as a small spec to evaluate, and few files need all of it.
    from polymodel.spec.template import render

    return render(text, source, variables, functions)


def existing(text: str, document: Document) -> FilePath | None:
    """The path of a file; None and a fault if it does not exist."""
    path = FilePath(text)
    if os.path.exists(text):  # False, without an error, for names that no file can have
        return path
    document.unread = True
    if os.path.islink(text):
        document.faults.note(
            Diagnostic(
                "the link leads nowhere", "name the file itself", "", Place(text), code="unreadable-file"
            )
        )
        return None
    near = ""
    if os.path.isdir(path.parent):
        near = close_to(path.name, [p.name for p in path.parent.iterdir() if p.suffix in (".yaml", ".yml")])
    remedy = f"did you mean {path.parent / near}?" if near else "check the path"
    shown = (text if len(text) <= 300 else f"{text[:300]}...") or "''"
    message = "there is no such file"
    document.faults.note(Diagnostic(message, remedy, "", Place(shown), code="unreadable-file"))
    return None


def read_mapping(data: Mapping[str, object], document: Document) -> None:
    """Read plain Python data (also schema objects as values) into the document."""
    document.files.append("")
    source = Source("", ())
    plain: dict[str, object] = {}
    for key, value in data.items():
        if isinstance(value, SchemaObject) and key in SECTIONS:
            add_object(value, document)
        elif (beyond := _beyond(value)) is not None:
            document.faults.note(replace(beyond, path=str(key)))
            document.unread = True
        else:
            plain[str(key)] = plainly(value)
    if plain or not data:
        add_root(node_of(plain, source, 0), document)


def _beyond(value: object) -> Diagnostic | None:
    """The part of plain data that is nested too deeply or too large, such as a table that contains itself."""
    todo, count = [(value, 1)], 0
    while todo:
        here, depth = todo.pop()
        count += 1
        if depth > MAX_DEPTH or count > MAX_NODES:
            what = "is nested too deeply" if depth > MAX_DEPTH else f"has more than {MAX_NODES} values"
            return Diagnostic(
                f"the data {what}", f"stay below {MAX_DEPTH} levels and {MAX_NODES} values", code="too-large"
            )
        inner = here.values() if isinstance(here, dict) else here if isinstance(here, (list, tuple)) else ()
        todo += [(v, depth + 1) for v in inner]
    return None


def add_object(value: SchemaObject, document: Document) -> None:
    """Add a section that was built in Python."""
    name = next((n for n, kind in SECTIONS.items() if isinstance(value, kind)), None)
    if name is None:
        kinds = ", ".join(k.__name__ for k in SECTIONS.values())
        message = f"{type(value).__name__} is not a section of a spec"
        document.faults.note(Diagnostic(message, f"give one of {kinds}", code="wrong-type"))
    elif _free(name, document):
        document.sections[name] = value
        document.folders[name] = ""


def _free(name: str, document: Document, entry: YamlEntry | None = None) -> bool:
    if name not in document.sections and name not in document.entries:
        return True
    _twice(name, document, entry)
    return False


def _twice(name: str, document: Document, entry: YamlEntry | None) -> None:
    place = entry.source.place(entry.line, entry.column) if entry else Place()
    remedy = "keep it in one of the sources"
    if name == "mapping":
        remedy += "; to exchange mappings, give each a file of its own"
    message = f"section `{name}` is given twice"
    document.faults.note(Diagnostic(message, remedy, name, place, code="duplicate-name"))


def add_root(root: YamlNode, document: Document, broken: bool = False) -> None:
    """Add the sections of one parsed document."""
    if root.entries is None:
        remedy = "start with `workload:`, `arch:` or `mapping:`"
        message = "a spec is a mapping of sections"
        document.faults.note(Diagnostic(message, remedy, "", root.place(), code="wrong-type"))
        return
    root, gone = upgraded(root)
    document.faults.extend(gone)
    entries = root.entries or ()
    dialect = teaal_sections(root)
    for entry in entries:
        if entry.key in dialect:
            _teaal(entry, document)
        elif entry.key == "schema_version":
            _version(entry, document)
        elif entry.key == "symbols":
            keys = {e.key for e in entries}
            problem = bool(keys & {"workload", "arch", "einsum"})
            _symbols(entry, document, "mapping" in keys and not problem, problem)
        elif entry.key in SECTIONS:
            if _free(entry.key, document, entry):
                document.entries[entry.key] = entry
                document.folders[entry.key] = entry.source.folder
                _section(entry, document)
        else:
            _extra(entry, root, document)


def _teaal(entry: YamlEntry, document: Document) -> None:
    """Note a section of a TeAAL spec, which is read when all sources are known."""
    earlier = document.teaal_entries.setdefault(entry.key, entry)
    if entry.key == "einsum":
        if _free("workload", document, entry):
            document.entries["workload"] = entry
    elif entry is not earlier:
        _twice(entry.key, document, entry)


def without_mapping(document: Document, file: str) -> Diagnostic:
    """The fault of a file that was to give the LoopTree of a loaded spec and has none."""
    entry = document.teaal_entries.get("mapping")
    if entry is None:
        remedy = "start with `mapping:` and its `nodes:`"
        return Diagnostic("the file has no `mapping:`", remedy, "", Place(file), code="missing-section")
    message = "this `mapping:` is that of a TeAAL spec, which orders and partitions ranks: it is no LoopTree"
    remedy = f"load it beside the Einsums, without another mapping: pm.load(..., {file!r})"
    return Diagnostic(
        message, remedy, "mapping", entry.source.place(entry.line, entry.column), code="no-counterpart"
    )


def _version(entry: YamlEntry, document: Document) -> None:
    fault = version_fault(entry)
    if fault is not None:
        document.faults.note(fault)


def _extra(entry: YamlEntry, root: YamlNode, document: Document) -> None:
    """A top-level key that is not a section: a fault, unless it is reserved for notes and anchors."""
    told = section_of_accelforge(entry, root) or unknown_section(entry, SECTIONS)
    if told is not None:
        document.faults.note(told)
        return
    document.extras[entry.key] = entry.value.plain()


def _symbols(entry: YamlEntry, document: Document, binds: bool, problem: bool) -> None:
    """Record the symbols of one source. `binds`: they come with a mapping alone, as a sweep saves its best
    point, and replace those that sources with a workload or architecture (`problem`) declare, in either
    order."""
    if entry.value.entries is None and entry.value.scalar is None and entry.value.elements is None:
        return
    outside = NodeLocator({"symbols": entry})
    faults = Faults(outside)
    try:
        found = _SYMBOLS.validate_python(entry.value.plain())
    except ValidationError as error:
        faults_of(error, SchemaObject, ("symbols",), faults)
        document.faults.extend(faults.found)
        document.unread = True
        return
    for name, value in found.items():
        earlier = document.symbols.get(name)
        if binds or (earlier is None and not problem):
            earlier = document.bound.get(name)
        if earlier is not None and value is not None and not alike(earlier, value, document.symbols):
            twice = f"symbol {name} is given twice, as {earlier} and {value}"
            remedy = "keep it in one of the sources"
            faults.add(("symbols", name), twice, remedy, key=True, code="duplicate-name")
        elif binds and value is not None:
            document.bound[name] = value
        elif document.symbols.get(name) is None:
            document.symbols[name] = value
    document.entries.setdefault("symbols", entry)
    document.faults.extend(faults.found)


def alike(a: Number, b: Number, symbols: Mapping[str, Number | None]) -> bool:
    """True if two texts of a symbol denote the same number."""
    if a == b:
        return True
    unknown = Faults()
    result = symbol_values({**symbols, " a": a, " b": b}, {}, unknown)
    return not len(unknown) and result[" a"] is not None and result[" a"] == result[" b"]


def _section(entry: YamlEntry, document: Document) -> None:
    model = SECTIONS[entry.key]
    data = entry.value.plain()
    try:
        document.sections[entry.key] = model.model_validate(data)
    except ValidationError as error:
        faults_of(error, model, (entry.key,), document.faults)
        meant = read_as_meant(data, model, error)
        if meant is not None:
            document.sections[entry.key] = meant
        elif model is ExploreSection and isinstance(data, dict):
            wrong = {e["loc"][0] for e in error.errors() if e["loc"]}
            document.rest = ExploreSection.model_validate({k: v for k, v in data.items() if k not in wrong})


def check_variables(given: Mapping[str, object], document: Document) -> None:
    """A given template variable that no template reads is a fault: probably a misspelling."""
    for name in given:
        if name not in document.variables and (name in document.symbols or document.files):
            document.faults.note(unused_variable(name, document.symbols, sorted(document.variables)))


@dataclass(frozen=True)
class UnusedVariable(Diagnostic):
    """The detail of the fault for a template variable that no template reads: its name."""

    name: str = ""


def unused_variable(name: str, symbols: Collection[str], variables: Sequence[str]) -> Diagnostic:
    """The fault for a given template variable that no template reads; it may be meant as a symbol."""
    if name in symbols:
        what = f"{name} is a symbol, not a template variable"
        remedy = f"give it as one: --set {name}=..., in Python load(..., symbols={{{name!r}: ...}})"
    else:
        what = f"no template uses the variable {name}"
        remedy = suggestion(name, variables, "template variables")
    return UnusedVariable(what, remedy, code="unused-variable", name=name)


def read_as_meant(data: object, model: type[SchemaObject], error: ValidationError) -> SchemaObject | None:
    """The section with each misspelt key renamed to the nearest known key, so that its contents are checked
    in the same run; None if that does not make it valid.

    The misspelling has been reported by then; a spec with one is never used.
    """
    meant: Any = _copied(data)
    for detail in error.errors(include_url=False):
        if detail["type"] == "missing":
            continue  # it may be present under the misspelt key
        loc = detail["loc"]
        near = close_to(str(loc[-1]), keys_at(model, loc)) if detail["type"] == "extra_forbidden" else ""
        here = _container(meant, loc[:-1])
        if not near or here is None or near in here:
            return None
        here[near] = here.pop(loc[-1])
    try:
        return model.model_validate(meant)
    except ValidationError:
        return None


def _copied(data: object) -> object:
    """A copy of tables and lists; other objects in them, given from Python, are shared."""
    if isinstance(data, dict):
        return {key: _copied(value) for key, value in data.items()}
    return [_copied(value) for value in data] if isinstance(data, list) else data


def _container(data: Any, loc: tuple[str | int, ...]) -> dict[Any, Any] | None:
    """The value at this place of the data, without pydantic's own names of union branches."""
    for part in loc:
        if isinstance(part, str) and part.startswith(("<", "[")):
            continue
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return None
    return data if isinstance(data, dict) else None


# Keys that describe a file, and the prefix of keys for other uses, such as anchors.
FREE, OWN = ("name", "description", "notes"), "x-"
# Keys that users write at the top level -> what to write instead.
_ELSEWHERE = {
    "constraints": "what a search may look at is said in `explore:`, e.g. explore: {max_fused_loops: 0}; "
    "what a memory keeps in its `tensors: {keep: ...}`",
    "metrics": "write `objectives:` in `explore:`",
    "problem": "the Einsums stand in `workload:`",
    "architecture": "the machine stands in `arch:`; that of a TeAAL spec is a table of lists, loaded with a "
    "file that has `einsum:`",
}


def unknown_section(entry: YamlEntry, sections: Mapping[str, type[SchemaObject]]) -> Diagnostic | None:
    """The fault of an unknown top-level key; None for keys that users may choose freely."""
    key = entry.key
    if key in FREE or key.startswith(OWN):
        return None
    known = (*sections, "symbols", "schema_version")
    above = [f"`{name}:`" for name, model in sections.items() if key in model.model_fields]
    near = close_to(key, known)
    if key in _ELSEWHERE:
        remedy = _ELSEWHERE[key]
    elif above:
        remedy = f"write it in {' or '.join(above)}"
    elif key in TEAAL:
        remedy = "it belongs to a TeAAL spec: load it with the file that has `einsum:` with `declaration:`"
    elif near:
        remedy = f"did you mean {near}?"
    else:
        remedy = f"sections: {', '.join(known)}; for notes of your own, and anchors: `x-{key}:`"
    place = entry.source.place(entry.line, entry.column)
    return Diagnostic(f"unknown section `{key}`", remedy, key, place, code="unknown-key")
