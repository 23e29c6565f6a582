"""A TeAAL spec: text or plain data -> checked records, with every fault at once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path as FilePath

from polymodel.errors import Diagnostic, Place
from polymodel.spec.document import Document
from polymodel.spec.faults import Faults, NodeLocator, Path, Source, YamlEntry, YamlNode, node_of, suggestion
from polymodel.spec.other_tools import OLD, SECTIONS
from polymodel.spec.section_schemas import Workload
from polymodel.spec.teaal.bindings import BindingNames, read_bindings
from polymodel.spec.teaal.convert import sized, symbols_of, workload_of
from polymodel.spec.teaal.einsum_section import read_einsums
from polymodel.spec.teaal.formats import read_formats
from polymodel.spec.teaal.hardware import read_architecture
from polymodel.spec.teaal.mapping_section import read_mappings
from polymodel.spec.teaal.records import TeaalSpec
from polymodel.spec.teaal.walk import TreeWalk
from polymodel.spec.yaml_text import parse_yaml

# An output at the beginning of an expression.
_OUTPUT = re.compile(r"[A-Za-z_]\w*\s*\[[^\[\]=]*\]\s*=(?!=)")
_ROOT = "start with `einsum:` with `declaration:` and `expressions:`"


def read_teaal(source: str | Mapping[str, object], file: str = "") -> TeaalSpec:
    """A spec from YAML text or from the mapping it stands for. Raises SpecError with every fault."""
    faults = Faults()
    if isinstance(source, str):
        text = Source(file, tuple(source.split("\n")))
        root, found = parse_yaml(source, text)
        faults.extend(found)
    else:
        root = node_of(source, Source(file, ()), 0)
    faults.raise_if_any()
    if root is None or root.entries is None:
        message = "a TeAAL spec is a mapping of sections"
        faults.note(Diagnostic(message, _ROOT, "", Place(file), code="wrong-type"))
        faults.raise_if_any()
    assert root is not None
    entries = {e.key: e for e in root.entries or ()}
    for entry in entries.values():
        if entry.key not in SECTIONS:
            near = suggestion(entry.key, SECTIONS, "sections")
            place = entry.source.place(entry.line, entry.column)
            what = f"unknown section `{entry.key}`"
            faults.note(Diagnostic(what, near, entry.key, place, code="unknown-key"))
    spec = read_sections(entries, faults)
    faults.raise_if_any()
    return spec


def read_sections(entries: Mapping[str, YamlEntry], faults: Faults) -> TeaalSpec:
    """The records of the sections; every fault is noted, with its place."""
    placed = {key: _one_expression_each(e) if key == "einsum" else e for key, e in entries.items()}
    own = Faults(NodeLocator(dict(placed)))
    walk = TreeWalk(own)
    data = {key: e.value.plain() for key, e in placed.items()}
    if "einsum" not in data:
        own.note(Diagnostic("key `einsum` is missing", _ROOT, code="missing-key"))
    einsums = read_einsums(data.get("einsum"), walk)
    mapping = read_mappings(data.get("mapping"), einsums, walk)
    formats = read_formats(data.get("format"), einsums, mapping, walk)
    configurations = read_architecture(data.get("architecture"), walk)
    _check_overwritten(data, einsums.overwritten, walk)
    name = "binding" if "binding" in data else "bindings"
    if "binding" in data and "bindings" in data:
        message = "`bindings` is given twice"
        remedy = "keep one of `bindings:` and `binding:`"
        walk.add(("binding",), message, remedy, key=True, code="duplicate-name")
    known = BindingNames(einsums, mapping, formats, configurations)
    # What has faults of its own makes no sense as something to bind to.
    sound = not own.found
    bindings = read_bindings(data.get(name), name, known, walk) if sound else ()
    faults.extend(own.found)
    return TeaalSpec(
        declaration=einsums.declaration,
        expressions=einsums.expressions,
        rank_order=mapping.rank_order,
        mappings=mapping.mappings,
        rank_sizes=einsums.rank_sizes,
        bits_per_value=einsums.bits_per_value,
        init=einsums.init,
        formats=formats,
        configurations=configurations,
        einsum_bindings=bindings,
        architecture=_table(data.get("architecture")),
        bindings=_table(data.get(name)),
    )


def read_into(document: Document) -> None:
    """Read the sections of a TeAAL spec that the sources have; its Einsums are the workload.

    Sizes without a value are symbols. Its `mapping` is not a LoopTree: another source may bring one.
    """
    entries = document.teaal_entries
    first = entries.get("einsum")
    if first is None:
        if not document.unread:
            document.faults.extend(_alone(entry) for entry in entries.values())
        return
    if document.entries.get("workload") is not first:
        return
    whole = YamlNode(first.source, first.line, first.column, entries=tuple(entries.values()))
    document.entries["teaal"] = replace(first, value=whole)
    before = len(document.faults)
    spec = read_sections(entries, document.faults)
    if len(document.faults) > before:
        return
    spec = sized(replace(spec, name=_title(first.source.file)))
    document.teaal = spec
    for name in symbols_of(spec):
        document.symbols.setdefault(name, None)
    workload = workload_of(spec)
    if isinstance(workload, Workload):
        document.sections["workload"] = workload


def _alone(entry: YamlEntry) -> Diagnostic:
    """The fault of a section whose Einsums no source has."""
    what = f"`{entry.key}` is a section of a TeAAL spec, and no source has its `einsum:`"
    remedy = "load it with the file that has `einsum:` with `declaration:`"
    place = entry.source.place(entry.line, entry.column)
    return Diagnostic(what, remedy, entry.key, place, code="missing-section")


def _title(file: str) -> str:
    return FilePath(file).name.removesuffix(".yaml").removesuffix(".yml").removesuffix(".teaal")


def _check_overwritten(
    data: Mapping[str, object], overwritten: Mapping[str, tuple[str, ...]], walk: TreeWalk
) -> None:
    """Report a tensor that several expressions write if another section names it: it identifies no single
    Einsum."""
    tables: list[tuple[Path, object]] = [((key,), data.get(key)) for key in ("format", "bindings", "binding")]
    mapping = data.get("mapping")
    if isinstance(mapping, dict):
        tables += [(("mapping", key), table) for key, table in mapping.items() if key != "rank-order"]
    for path, table in tables:
        for name in (n for n in overwritten if isinstance(table, dict) and n in table):
            what = f"{len(overwritten[name]) + 1} expressions make {name}, and this may be of any of them"
            remedy = "give each its own output, or write the terms as one sum"
            walk.add((*path, name), what, remedy, key=True, code="duplicate-producer")


def _table(data: object) -> Mapping[str, object] | None:
    """Return a checked section as plain data; a list (in older files) has an empty name as its key."""
    if isinstance(data, list):
        return {"": data}
    return data if isinstance(data, dict) else None


def _one_expression_each(section: YamlEntry) -> YamlEntry:
    """The `einsum` section with a block of expressions, one a line, as the list of them."""
    entry = section.value.entry("expressions")
    if entry is None and (old := section.value.entry(OLD)) is not None:
        entry = replace(old, key="expressions")
        entries = tuple(entry if e is old else e for e in section.value.entries or ())
        section = replace(section, value=replace(section.value, entries=entries))
    if entry is None or not isinstance(entry.value.scalar, str):
        return section
    node, texts = entry.value, _statements(entry.value.scalar)
    if len(texts) < 2 and node.one_line:
        return section
    at, elements = node.line, []
    for text in texts:
        first = text.split("\n")[0].strip()
        lines = node.source.lines
        found = next((i for i in range(max(at - 1, 0), len(lines)) if lines[i].strip() == first), None)
        if found is None:
            elements.append(YamlNode(node.source, node.line, node.column, scalar=text, one_line=False))
            continue
        column = len(lines[found]) - len(lines[found].lstrip()) + 1
        elements.append(YamlNode(node.source, found + 1, column, scalar=text, one_line="\n" not in text))
        at = found + 2
    listed = replace(entry, value=replace(node, scalar=None, elements=tuple(elements)))
    entries = tuple(listed if e is entry else e for e in section.value.entries or ())
    return replace(section, value=replace(section.value, entries=entries))


def _statements(text: str) -> list[str]:
    """The texts of several expressions: each begins with an output and `=`."""
    starts = [m.start() for m in _OUTPUT.finditer(text)]
    result = [text[a:b].strip() for a, b in pairwise([*starts, len(text)])]
    before = text[: starts[0]].strip() if starts else ""
    return [before, *result] if before else result or [text]
