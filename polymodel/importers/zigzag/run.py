"""`import_zigzag`: ZigZag's files (layers, accelerator, mapping), read together, become one spec."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from polymodel.errors import Diagnostic, SpecError
from polymodel.importers.imported import Imported
from polymodel.importers.tables import KeyedTable, Reading
from polymodel.importers.zigzag.cores import system_of
from polymodel.importers.zigzag.layers import workload_of
from polymodel.importers.zigzag.machine import Written, machine_of
from polymodel.spec.document import Document, existing
from polymodel.spec.faults import Source, YamlNode, node_of
from polymodel.spec.files import text_of
from polymodel.spec.yaml_text import parse_yaml

CLOCK = 1e9
File = str | Path | Mapping[str, object] | Sequence[object]
_STEERING = (
    "spatial_mapping", "spatial_mapping_hint", "temporal_ordering", "core_allocation", "intra_core_tiling",
    "inter_core_tiling", "layer_dimensions", "core_allocation_is_fixed", "kernel",
)  # fmt: skip
_AROUND = ("fused_groups", "runtime_args")  # keys next to `layers:` in a mapping of Stream's


def import_zigzag(
    files: File | Sequence[File], *more: File, clock: float | None = None, allow: Collection[str] = ()
) -> Imported:
    """Return a spec from ZigZag's YAML: a list of layers, an accelerator, and the operand links of a mapping.

    `clock`: cycles per second, which the files do not contain (1 GHz if it is not given, with a note).
    Tensors of several layers are named after their ids, and a layer reads what its `operand_source` produces.
    Padding is neither stored nor multiplied. Memories become one hierarchy, outermost first; a memory that
    does not fit into it is a fault. If something without a counterpart changes counts, the import is refused
    unless `allow` names its key.

    For example `import_zigzag(["resnet18.yaml", "tpu_like.yaml"], clock=2e8).save("spec.yaml")`. Raises
    SpecError with every fault.
    """
    listed: list[File] = [*_each(files), *more]
    if clock is not None:
        _check_clock(clock)
    document, reading = Document(), Reading()
    sections = _sections(listed, document, reading)
    reading.faults.found[:0] = document.faults.found
    reading.faults.raise_if_any()
    result: dict[str, object] = {"schema_version": 1}
    if sections.layers is not None:
        result["workload"] = workload_of(reading, sections.layers, sections.links)
    if sections.machine is not None:
        if clock is None:
            what, remedy = "no clock is given: one cycle is taken as 1 ns", "give it: clock=2e8, --clock 2e8"
            reading.note(sections.machine, what, remedy)
        result["arch"] = {"nodes": _machine(reading, document, sections, clock or CLOCK)}
        reading.faults.extend(document.faults.found)
    reading.faults.raise_if_any()
    return reading.imported("ZigZag", listed, result, allow)


def _machine(reading: Reading, document: Document, sections: _ZigzagSections, clock: float) -> list[Written]:
    assert sections.machine is not None
    folder = sections.folder
    if folder is None:
        return machine_of(reading, sections.machine, clock)

    def core_file(name: str, node: YamlNode) -> YamlNode | None:
        """Return the file of a core: searched in the folder of the system's file, folders beside it, and
        folders further out.

        A path may start at an outer folder, as in Stream's sources; links are followed first.
        """
        path = folder / name
        around = folder.resolve().parent
        if not path.resolve().is_relative_to(around) or path.suffix not in (".yaml", ".yml"):
            what = f"{name} is not a YAML file in the folders around this one"
            reading.fault(node, what, "name a file beside this one", "cores", code="foreign-file")
            return None
        near = (up / name for up in (folder, folder / "cores", *folder.resolve().parents))
        near = (p for p in near if p.resolve().is_relative_to(around))
        return _root(next((p for p in near if p.is_file()), path), document, reading)

    return system_of(reading, sections.machine, core_file, clock)


def _each(files: File | Sequence[File]) -> list[File]:
    """Return the files; a list of layers as plain data counts as one of them."""
    if isinstance(files, (str, Path, Mapping)):
        return [files]
    layers = [f for f in files if isinstance(f, Mapping) and ("equation" in f or "spatial_mapping" in f)]
    if layers and len(layers) == len(files):
        return [layers]
    return [f for f in files if isinstance(f, (str, Path, Mapping, Sequence))]


def _check_clock(clock: object) -> None:
    right = isinstance(clock, (int, float)) and not isinstance(clock, bool) and 0 < clock < math.inf
    if not right:
        remedy = "give cycles per second, e.g. clock=2e8"
        message = f"clock={clock!r} is not a frequency"
        raise SpecError([Diagnostic(message, remedy, "clock", code="out-of-range")])


@dataclass
class _ZigzagSections:
    """The layers, the accelerator, and which memory operand holds which operand of a layer."""

    layers: YamlNode | None = None
    machine: YamlNode | None = None
    folder: Path | None = None  # of a system of cores, whose files it names
    links: dict[str, str] = field(default_factory=dict)


def _sections(files: Sequence[File], document: Document, reading: Reading) -> _ZigzagSections:
    result = _ZigzagSections()
    if not files:
        document.faults.note(
            Diagnostic(
                "nothing to import", "name one or more of ZigZag's YAML files", code="missing-argument"
            )
        )
    for file in files:
        root = _root(file, document, reading)
        if root is None:
            continue
        if root.elements and any(e.entry("equation") for e in root.elements):
            _once(reading, root, result.layers, "layers")
            result.layers = root
        elif root.elements and any(e.entry("spatial_mapping") or e.entry("name") for e in root.elements):
            _mapping(reading, root, result)
        elif (inner := root.entry("layers")) is not None and inner.value.elements:
            _mapping(reading, inner.value, result)
            for around in (e for e in root.entries or () if e is not inner):
                why = "it limits a search" if around.key in _AROUND else "a mapping has no such key"
                reading.leave(around.value, around.key, why, "say what to search in `explore:`")
        elif root.entry("memories") is not None or root.entry("memory") is not None:
            _once(reading, root, result.machine, "an accelerator")
            result.machine = root
        elif root.entry("cores") is not None:
            _once(reading, root, result.machine, "an accelerator")
            result.machine = root
            result.folder = Path(file).parent if isinstance(file, (str, Path)) else Path()
        else:
            remedy = "a list of layers (`equation:`), an accelerator (`memories:`) or a mapping"
            reading.fault(root, "it has nothing of ZigZag's", remedy, code="foreign-file")
    return result


def _root(file: File, document: Document, reading: Reading) -> YamlNode | None:
    """Return the content of a file. If a key has two values, as in some of ZigZag's own files, the last one
    counts, as in ZigZag."""
    if not isinstance(file, (str, Path)):
        return node_of(file, Source("", ()), 0)
    path = existing(str(file), document)
    text = None if path is None else text_of(path, str(path), document.faults)
    if path is None or text is None:
        return None
    replaced: list[Diagnostic] = []
    root, faults = parse_yaml(text, Source(str(path), tuple(text.split("\n"))), (), None, replaced)
    document.files.append(str(path))
    document.faults.extend(faults)
    reading.notes += replaced
    return root


def _once(reading: Reading, root: YamlNode, before: YamlNode | None, what: str) -> None:
    if before is not None:
        reading.fault(root, f"{what} stand in two of the files", "keep one of them", code="duplicate-name")


def _mapping(reading: Reading, root: YamlNode, found: _ZigzagSections) -> None:
    """Read the links of the entry `default`, otherwise of the first one; keys that control a search are
    reported as left out."""
    tables = [KeyedTable(reading, node, f"mapping[{i}]") for i, node in enumerate(root.elements or ())]
    default = next((t for t in tables if str(_scalar(t, "name")) == "default"), tables[0])
    for table in tables:
        table.take("name")
        links = table.take("memory_operand_links")
        if links is not None and table is default:
            found.links = {e.key: str(e.value.scalar) for e in links.entries or ()}
        for entry in table.rest:
            why, remedy = "it limits a search", "say what to search in `explore:` (docs/howto/explore.md)"
            if entry.key in _STEERING:
                reading.leave(entry.value, entry.key, why, remedy, table.path)
            else:
                reading.leave(entry.value, entry.key, "a mapping has no such key", "remove it", table.path)


def _scalar(table: KeyedTable, key: str) -> object:
    node = table.take(key)
    return None if node is None else node.scalar
