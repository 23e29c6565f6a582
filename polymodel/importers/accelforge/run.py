"""Import AccelForge's files, which are read together, as one spec."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path

from polymodel.errors import Diagnostic, Place, SpecError
from polymodel.importers.accelforge.arch import ArchSections, arch_of, raw
from polymodel.importers.accelforge.einsums import STAND_IN, Einsums
from polymodel.importers.accelforge.mapping import mapping_of
from polymodel.importers.accelforge.older import without_words
from polymodel.importers.accelforge.sparse import targets_of
from polymodel.importers.accelforge.unsupported_keys import reason
from polymodel.importers.accelforge.values import Scope
from polymodel.importers.accelforge.workload import workload_of
from polymodel.importers.imported import Imported
from polymodel.importers.tables import NO_MERGE, Reading, flat
from polymodel.loading import load
from polymodel.spec.document import Document, check_variables, existing, root_of
from polymodel.spec.faults import Source, TextFault, YamlNode, node_of
from polymodel.spec.includes import Includes, base_of

TAGS = (
    "Storage", "Temporal", "Spatial", "Compute", "Nested", "Sequential", "Pipeline", "Reservation",
    "ProcessingStage", "Memory", "Toll", "Container", "Fanout", "Array", "Network", "Hierarchical",
    "Hierarchy", "Fork", NO_MERGE,
)  # fmt: skip
File = str | Path | Mapping[str, object]
_READ = ("workload", "renames", "arch", "mapping", "variables", "sparse_optimizations")
_OLDER = {"architecture": "arch"}
_STEERING = ("mapper", "config", "model")
_SLIP = 0.8  # the similarity of a key to the section that it misspells


def import_accelforge(
    files: File | Sequence[File], *more: File, allow: Collection[str] = (), **variables: object
) -> Imported:
    """Import a spec from AccelForge's files: workload, renames, architecture, mapping.

    `variables` are passed to templates. Files that templates include are read from the folder of the first
    one; nothing in them is executed. If several files have the same section, the last one counts. Features
    without a counterpart that change counts refuse the import, unless `allow` names their key. For example
    `import_accelforge(["arch.yaml", "workload.yaml"], BATCH_SIZE=4).save("spec.yaml")`. Without a workload,
    sets and widths of the architecture are evaluated for three tensors of bytes. Raises SpecError with every
    fault.
    """
    listed = [*([files] if isinstance(files, (str, Path, Mapping)) else files), *more]
    document = Document()
    reading = Reading()
    sections = _sections(listed, variables, document, reading)
    unused = Document(files=document.files, variables=document.variables)
    check_variables(variables, unused)
    for fault in unused.faults.found:  # several models are often read with the variables of all of them
        reading.note(None, fault.message, fault.remedy)
    reading.faults.found[:0] = document.faults.found
    reading.faults.raise_if_any()
    result = _read(reading, sections)
    reading.faults.raise_if_any()
    return reading.imported("AccelForge", listed, result, allow)


@dataclass
class _AccelforgeSections:
    """The sections by name, and the variables."""

    nodes: dict[str, YamlNode] = field(default_factory=dict)
    variables: dict[str, object] = field(default_factory=dict)


def _sections(
    files: Sequence[File], variables: Mapping[str, object], document: Document, reading: Reading
) -> _AccelforgeSections:
    result = _AccelforgeSections()
    if not files:
        document.faults.note(
            Diagnostic(
                "nothing to import", "name one or more of AccelForge's YAML files", code="missing-argument"
            )
        )
    for file in files:
        root = _root(file, variables, document)
        if root is None:
            continue
        if not _known(root, file, reading):
            continue
        for given in root.entries or ():
            entry = replace(given, key=_OLDER.get(given.key, given.key))
            if entry.key == "variables":
                result.variables |= {e.key: raw(e.value) for e in entry.value.entries or ()}
            elif entry.key in _READ:
                if entry.key in result.nodes:
                    what = f"`{entry.key}` of the file before is replaced by this one"
                    reading.note(entry.value, what, "", entry.key)
                result.nodes[entry.key] = entry.value
            elif entry.key in _STEERING:
                why, remedy = reason(entry.key)
                reading.leave(entry.value, entry.key, why, remedy)
            elif near := get_close_matches(entry.key, _READ, 1, _SLIP):  # others hold anchors
                what, remedy = f"there is no section `{entry.key}`", f"did you mean `{near[0]}:`?"
                reading.fault(entry.value, what, remedy, entry.key, code="unknown-key")
    return result


def _root(file: File, variables: Mapping[str, object], document: Document) -> YamlNode | None:
    if isinstance(file, Mapping):
        return _tagged(node_of(file, Source("", ()), 0))
    path = existing(str(file), document)
    if path is None:
        return None
    return root_of(path, document, variables, "", TAGS, Includes(base_of(path), TAGS))[0]


def _tagged(node: YamlNode) -> YamlNode:
    """Return plain data, in which tags are the keys `type`, in the form of a file."""
    entries = tuple(replace(e, value=_tagged(e.value)) for e in node.entries or ())
    kind = node.entry("type")
    tag = str(kind.value.scalar) if kind is not None and kind.value.scalar in TAGS else ""
    return replace(
        node,
        tag=tag,
        entries=None if node.entries is None else tuple(e for e in entries if not tag or e.key != "type"),
        elements=None if node.elements is None else tuple(_tagged(n) for n in node.elements),
    )


def _known(root: YamlNode, file: File, reading: Reading) -> bool:
    """Return whether a file has a section of AccelForge's; any other file is a fault."""
    keys = [e.key for e in root.entries or ()]
    if any(k in (*_READ, *_OLDER, *_STEERING) for k in keys):
        return True
    shown = "" if isinstance(file, Mapping) else str(file)
    what, remedy = "there is no section of AccelForge's in it", f"sections: {', '.join(_READ)}"
    if any(k.startswith("-") for k in keys):
        what, remedy = (
            "it describes memory cells for an energy model, and is not a spec",
            "import the architecture",
        )
    elif root.tag:
        what, remedy = f"it is one !{root.tag} component", "write it below `arch: {nodes: [...]}`"
    elif keys:
        what = f"it has none of AccelForge's sections, only {', '.join(keys[:4])}"
        remedy = "import the file that includes it"
    reading.faults.note(Diagnostic(what, remedy, "", Place(shown), code="foreign-file"))
    return False


def _read(reading: Reading, sections: _AccelforgeSections) -> dict[str, object]:
    result: dict[str, object] = {"schema_version": 1}
    scope = Scope(sections.variables)
    nodes = without_words(reading, sections.nodes)
    workload = workload_of(reading, nodes.get("workload"), nodes.get("renames"), scope)
    if len(reading.faults):
        return result
    _expected(reading, workload.sections, nodes)
    result |= workload.sections
    if "renames" in result and "workload" not in result:
        reading.note(nodes["renames"], "renames without a workload are left to the workload", "", "renames")
        if set(nodes) > {"renames"}:
            del result["renames"]
    if "arch" in nodes:
        einsums = _einsums(workload.sections, reading, nodes["arch"])
        sparse = targets_of(reading, nodes.get("sparse_optimizations"))
        machine = arch_of(reading, nodes["arch"], scope, einsums, sparse)
        if "mapping" in nodes and einsums.given:
            _permit(reading, nodes["mapping"], machine, einsums)
        result["arch"] = {"nodes": machine.nodes}
        if machine.explore and len(reading.faults) == 0:
            result["explore"] = machine.explore
    if "mapping" in nodes:
        given = result.get("arch", {})
        parts = given["nodes"] if isinstance(given, dict) and "nodes" in given else ()
        order = {str(fields["name"]): i for i, (_, fields) in enumerate(parts)}
        result["mapping"] = {"nodes": mapping_of(reading, nodes["mapping"], order)}
    return result


def _permit(reading: Reading, mapping: YamlNode, machine: ArchSections, einsums: Einsums) -> None:
    """Let memories keep what the mapping stores there, and nothing else: AccelForge's own rules constrain
    only its search."""
    stored: dict[str, list[str]] = {}
    branches = {str(f["name"]): str(f.get("branch", "")) for _, f in machine.nodes}
    along: dict[str, str] = {}  # Einsum -> the branch that it executes on
    for node in _nodes_below(mapping):
        component, tensors = node.entry("component"), node.entry("tensors")
        executed = node.entry("einsum")
        if node.tag == "Compute" and component is not None and executed is not None:
            along[str(executed.value.scalar)] = branches.get(str(component.value.scalar), "")
        if node.tag == "Storage" and component is not None and tensors is not None:
            names = [str(t.scalar) for t in flat(tensors.value)]
            stored.setdefault(str(component.value.scalar), []).extend(names)
    kept = {str(f["name"]): str(_rule(f).get("keep", "")) for _, f in machine.nodes}
    known = {t for e in einsums.each() for t in e.tensors}

    def members(text: object, branch: str = "") -> set[str]:
        result: set[str] = set()
        for einsum in einsums.each():
            if branch and along.get(einsum.name) != branch:
                continue
            with suppress(TextFault):  # reported where the architecture is read
                result |= einsums.members(einsum, str(text), lambda name: kept.get(name, ""))
        return result

    for tag, fields in machine.nodes:
        texts, name = _rule(fields), str(fields["name"])
        if tag != "Memory" or not texts:
            continue
        names = [n for n in dict.fromkeys(stored.get(name, [])) if n in known]
        must = members(texts.get("keep", "Nothing"), branches[name])
        lacking = sorted(must - set(names))
        if lacking:
            what = f"{name} need not keep {', '.join(lacking)}: the mapping does not store it there"
            reading.note(mapping, what, "", "mapping")
            texts["keep"] = f"({texts['keep']}) - ({' | '.join(lacking)})"
        more = [n for n in names if n not in must | members(texts.get("may_keep", "Nothing"))]
        if more:
            what = f"{name} may keep {', '.join(more)} as well: the mapping stores it there"
            reading.note(mapping, what, "", "mapping")
            texts["may_keep"] = " | ".join([f"({texts.get('may_keep', 'Nothing')})", *more])


def _rule(fields: Mapping[str, object]) -> dict[str, object]:
    """Return the content of `tensors:` of a component."""
    result = fields.get("tensors")
    return result if isinstance(result, dict) else {}


def _nodes_below(node: YamlNode) -> Iterator[YamlNode]:
    """Yield all nodes of a tree."""
    yield node
    for entry in node.entries or ():
        yield from _nodes_below(entry.value)
    for element in node.elements or ():
        yield from _nodes_below(element)


def _expected(reading: Reading, sections: dict[str, object], nodes: Mapping[str, YamlNode]) -> None:
    """Remove the expected count of a rename that selects another number of tensors.

    This happens in a file that is a part of others, where the inputs of its first Einsum are not
    intermediates yet.
    """
    if "workload" not in sections:
        return
    try:
        load(dict(sections))
    except SpecError as error:
        told = [d for d in error.diagnostics if re.match(r"rename \w+ should give", d.message)]
        for message in dict.fromkeys(d.message for d in told):
            why, remedy = message, "import the file that includes this one, or write `renames:` of the Einsum"
            reading.leave(
                nodes["workload"], "expected_count", why, remedy, "renames", changes="names of sets"
            )
        if told:
            _strip(sections)


def _strip(value: object) -> None:
    """Remove expected counts at all levels."""
    if isinstance(value, dict):
        value.pop("expected_count", None)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for one in inner:
        _strip(one)


def _einsums(sections: Mapping[str, object], reading: Reading, arch: YamlNode) -> Einsums:
    given = "workload" in sections
    try:
        cascade = load(dict(sections) if given else dict(STAND_IN)).workload
    except SpecError as error:
        reading.faults.extend(error.diagnostics)
        return Einsums(load(dict(STAND_IN)).workload, False)
    if not given:
        what = "no workload is given: sets and widths are read for input, weight and output of 8 bits"
        reading.note(arch, what, "import the workload as well", "arch")
    return Einsums(cascade, given)
