"""`import_timeloop`: Timeloop's files, read together, become one spec.

Supported: `problem` (projections as sums of products, lists of terms or expressions; coefficients,
densities), `architecture` of version 0.4 (nodes), of 0.2 and 0.3 (subtree, local) and of first configurations
(storage), `mapping` (temporal, spatial and datatype directives, imperfect factors, permutations, split), the
fused mappings of the LoopTree model, `sparse_optimizations`, `variables`, Jinja templates with the files that
they include, and ERT and ART tables. Everything else (mapper, constraints on a search, classes of components,
networks) is listed in `left_out`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import prod
from pathlib import Path

from polymodel.errors import Diagnostic, Place
from polymodel.importers.expressions import evaluate
from polymodel.importers.imported import Imported
from polymodel.importers.timeloop.constraints import explore_of
from polymodel.importers.timeloop.emit import (
    FanoutLoops,
    SharedAttributes,
    axes_of,
    component,
    einsum_name,
    einsum_of,
    mapping,
    windowed,
    workload,
)
from polymodel.importers.timeloop.energy import ComponentPrices, Energies, energies_of
from polymodel.importers.timeloop.first_form import as_sections
from polymodel.importers.timeloop.fused import Fused, fused_of, is_fused
from polymodel.importers.timeloop.nest import TimeloopNest, nest_of
from polymodel.importers.timeloop.parts import SECTIONS as CONSTRAINTS
from polymodel.importers.timeloop.parts import TimeloopLevel, constrained
from polymodel.importers.timeloop.problem import EinsumShape, shapes_of
from polymodel.importers.timeloop.reading import (
    CYCLE,
    DEFAULT_BITS,
    EXECUTIONS,
    OPERATIONS,
    RENAMES,
    VALUE_BITS,
    Fields,
    TimeloopReading,
    cycle_of,
    plain_key,
)
from polymodel.importers.timeloop.sparse import actions_where_stored, sparse_of
from polymodel.importers.timeloop.tree import TAGS, cycle_seconds, parts_of
from polymodel.spec.document import Document, check_variables, existing, root_of
from polymodel.spec.faults import Faults, Source, TextFault, YamlNode, node_of
from polymodel.spec.includes import Includes, base_of
from polymodel.spec.other_tools import none_of_timeloops

TOP = "top.yaml.jinja2"
STORED = "parsed-processed-input.yaml"
_ENDINGS = (".yaml", ".yml", ".jinja2", ".j2")
# Subfolders that contain parts of one design.
_PARTS = ("arch", "prob", "problem", "map", "mapping", "constraints", "sparse-opt", "ert")
_SECTIONS = (
    "problem", "architecture", "mapping", "sparse_optimizations", "ert", "art", "variables", *CONSTRAINTS,
)  # fmt: skip
_REMARKS = """\
# Counts as Timeloop's: a storage reuses as `slide` says, refilled partial sums are broadcast,
# and overlapping tiles of instances are not shared (`multicast: identical`).
"""


def import_timeloop(
    *files: str | Path | Mapping[str, object],
    variables: Mapping[str, object] | None = None,
    allow: Collection[str] = (),
) -> Imported:
    """Return a spec from Timeloop's files, from a folder of them, or from their content as plain data.
    `variables` are passed to Jinja templates.

    If something without a counterpart changes counts or costs, the import is refused unless `allow` names its
    key; it is then listed in `Imported.changed`.

    For example `import_timeloop("arch.yaml", "problem.yaml", "map.yaml").save("spec.yaml")`.

    Rank variables are the dimensions in lower case. Words are counted; sizes are bits, throughputs bits per
    second of one instance; energies come from an ERT alone. Raises SpecError with every fault.
    """
    document = Document()
    roots = _roots(files, variables or {}, document)
    check_variables(variables or {}, document)
    reading = TimeloopReading(Faults(document.faults.locator, list(document.faults.found)))
    roots = as_sections(reading, roots)
    sections = _sections(reading, roots)
    if not sections.keys() & {"problem", "architecture", "mapping"} and not len(reading.faults):
        names = ", ".join(s for s in _SECTIONS if s not in CONSTRAINTS)
        what = (
            f"{', '.join(sections)} alone make no spec" if sections else "there is nothing of Timeloop in it"
        )
        shown = ", ".join(str(f) for f in files if not isinstance(f, Mapping))
        remedy = f"sections: {names}"
        reading.faults.note(Diagnostic(what, remedy, place=Place(shown), code="missing-section"))
    _read_variables(reading, sections.get("variables"))
    result = _read(reading, sections)
    reading.faults.raise_if_any()
    for root in roots:
        reading.name_the_rest(root)
    return reading.imported("Timeloop", files, _written(result, reading), allow, _REMARKS)


def _roots(
    files: tuple[str | Path | Mapping[str, object], ...],
    variables: Mapping[str, object],
    document: Document,
) -> list[YamlNode]:
    result: list[YamlNode] = []
    if not files:
        message = "nothing to import"
        remedy = "name one or more of Timeloop's YAML files"
        document.faults.note(Diagnostic(message, remedy, code="missing-argument"))
    for file in _each(files, document):
        if isinstance(file, Mapping):
            result.append(node_of(file, Source("", ()), 0))
            continue
        before = len(document.faults)
        path = existing(str(file), document)
        root = None
        if path is not None:
            root, _ = root_of(path, document, variables, "", TAGS, Includes(base_of(path), TAGS))
        other = none_of_timeloops(root) if root is not None else None
        if other is not None:
            document.faults.found[before:] = [other]  # its tags are not Timeloop's
        elif root is not None:
            result.append(root)
    document.faults.found[:] = [_emptiness(d) for d in document.faults.found]
    return result


def _each(
    files: tuple[str | Path | Mapping[str, object], ...], document: Document
) -> list[str | Path | Mapping[str, object]]:
    """Return the files; a folder is replaced by the files of the design, or of the run, in it."""
    result: list[str | Path | Mapping[str, object]] = []
    for file in files:
        folder = not isinstance(file, Mapping) and os.path.isdir(file)
        result += files_of(Path(str(file)), document.faults) if folder else [file]
    return result


def _emptiness(fault: Diagnostic) -> Diagnostic:
    if fault.message == "the document is empty":
        return replace(fault, remedy="start with `problem:`, `architecture:` or `mapping:`")
    return fault


def _sections(reading: TimeloopReading, roots: list[YamlNode]) -> dict[str, YamlNode]:
    result: dict[str, YamlNode] = {}
    for root in roots:
        if root.entries is None:
            what = "a file of Timeloop's is a mapping of sections"
            remedy = "start with `problem:`, `architecture:` or `mapping:`"
            if root.source.file.endswith(".cfg"):
                what = "files in the notation of libconfig (.cfg), Timeloop's first one, are not read"
                remedy = "write the same keys as YAML: `problem: {R: 3}` for `problem = { R = 3; }`"
            reading.fault(root, what, remedy, code="wrong-type")
            continue
        for entry in root.entries:
            key = plain_key(entry.key)
            key = "variables" if key.endswith("variables") and key != "environment_variables" else key
            if key not in _SECTIONS:
                continue
            if key == "mapping" and not (entry.value.entries or entry.value.elements):
                reading.take(entry)  # the input of a mapper, which searches for a mapping
                continue
            if key in result and key != "variables":
                place = entry.source.place(entry.line, entry.column)
                what = f"section `{entry.key}` is given twice"
                remedy = "keep it in one of the files"
                reading.faults.note(Diagnostic(what, remedy, entry.key, place, code="duplicate-name"))
                continue
            result[key] = reading.take(entry)
    if not result.keys() & {"problem", "architecture", "mapping"}:
        for entry in (e for root in roots for e in root.entries or ()):
            if entry.value.entry("shape") is not None and entry.value.entry("instance") is not None:
                reading.note(entry.value, f"`{entry.key}` is read as the problem: it has shape and instance")
                result["problem"] = reading.take(entry)
                break
    return result


def _read_variables(reading: TimeloopReading, node: YamlNode | None) -> None:
    """Read numbers, including those computed from earlier ones; words are for estimators and remain
    unread."""
    if node is None:
        return
    Fields(reading, node, "variables").ignore("version")
    for entry in node.entries or ():
        value = entry.value.scalar
        if entry.key == CYCLE:
            cycle = cycle_of(reading, reading.take(entry), reading.variables, f"variables.{CYCLE}")
            # Expressions continue with some number: for a faulty file nothing is written.
            reading.variables[CYCLE] = 1 if cycle is None else cycle
            continue
        if value is None:
            continue
        try:
            known = reading.variables
            if isinstance(value, (int, float, str)):
                number = int(value) if isinstance(value, bool) else value
                reading.variables[entry.key] = evaluate(number, known)
        except TextFault:
            reading.words[entry.key] = str(value)
            continue
        reading.take(entry)


@dataclass
class _ParsedSections:
    """The content of the sections."""

    shapes: tuple[EinsumShape, ...] = ()
    title: str = ""
    parts: tuple[TimeloopLevel, ...] = ()
    nest: TimeloopNest | None = None
    fused: Fused | None = None
    energies: Energies = field(default_factory=Energies)
    sparse: dict[str, dict[str, object]] = field(default_factory=dict)
    explore: dict[str, object] = field(default_factory=dict)


def _read(reading: TimeloopReading, sections: Mapping[str, YamlNode]) -> _ParsedSections:
    result = _ParsedSections()
    if "problem" in sections:
        result.shapes = shapes_of(reading, sections["problem"])
    shape = result.shapes[0] if len(result.shapes) == 1 else None
    tensors = {t: o for s in result.shapes for t, o in s.tensors.items()}
    if "architecture" in sections:
        result.parts = parts_of(reading, sections["architecture"], tensors)
        result.parts = constrained(reading, sections, result.parts, tensors)
        result.energies = energies_of(reading, sections.get("ert"), sections.get("art"), result.parts)
    given = sections.get("mapping")
    proposed = sections.get("extra_mapping_constraints")
    if given is None and proposed is not None and shape is not None and result.parts:
        given = _settled(reading, proposed, result.parts, shape)
    if shape is not None and shape.sizes and result.parts and not (given and is_fused(given)):
        result.explore = explore_of(reading, result.parts, shape)
    sparse = sections.get("sparse_optimizations")
    if shape is not None and result.parts:
        result.sparse = sparse_of(reading, sparse, result.parts, shape, given is not None)
    elif sparse is not None:
        reading.leave(
            sparse, "it needs problem and architecture", "import them together", "sparse_optimizations"
        )
        reading.whole(sparse)
    if given is None:
        return result
    if is_fused(given) and result.shapes:
        result.fused = fused_of(reading, given, result.shapes)
        if result.parts:
            what = "a fused mapping names its levels by number, so the architecture is left out"
            reading.leave(
                sections["architecture"],
                what,
                "move its sizes to the levels by hand",
                "architecture",
                key="architecture",
                changes="capacity, energy and latency",
            )
    elif shape is not None and any(p.kind == "compute" for p in result.parts):
        result.nest = nest_of(reading, given, result.parts, shape)
        result.sparse = actions_where_stored(reading, result.sparse, result.parts, result.nest.kept)
    elif not len(reading.faults):
        lacking = "`problem:`" if not result.shapes else "`architecture:`" if shape else "a fused mapping"
        remedy = f"a mapping needs {lacking}"
        reading.fault(given, remedy, "import the files together", "mapping", code="missing-section")
    return result


def _settled(
    reading: TimeloopReading, node: YamlNode, parts: tuple[TimeloopLevel, ...], shape: EinsumShape
) -> YamlNode | None:
    """Return constraints as a mapping if they leave only one mapping; otherwise they are for a search."""
    trial = TimeloopReading(Faults(), variables=dict(reading.variables))
    nest_of(trial, node, parts, shape)
    if len(trial.faults):
        return None
    reading.note(node, "the extra constraints leave one mapping, which is taken", "", "mapping")
    return node


def _written(found: _ParsedSections, reading: TimeloopReading) -> dict[str, object]:
    """Return the sections of the spec."""
    bits = next((p.bits for p in found.parts if p.bits is not None), None)
    sections: dict[str, object] = {"schema_version": 1}
    if found.shapes:
        name = found.shapes[0].name if len(found.shapes) == 1 else ""
        said = reading.variables.get(VALUE_BITS)
        width = said if isinstance(said, int) and 0 < said <= 2**16 else DEFAULT_BITS
        written = workload(found.shapes, bits or width, name)
        sections["workload"] = written
        done = {what: reading.words[k] for k, what in OPERATIONS.items() if k in reading.words}
        called = _renames(reading)
        if (done or called) and len(found.shapes) == 1:
            one = {**einsum_of(found.shapes[0]), "name": einsum_name(found.shapes)}
            one |= {"operations": done} if done else {}
            written["einsums"] = [{**one, "renames": called} if called else one]
        times = reading.variables.get(EXECUTIONS)
        if isinstance(times, int) and times > 1:
            written["n_instances"] = times
            what = f"{EXECUTIONS} says that the problem is executed {times} times: counts are of all of them"
            reading.note(None, what, "remove the variable for those of one, as Timeloop prints them")
    if found.fused is not None:
        sections["arch"] = {"nodes": found.fused.arch()}
        sections["mapping"] = {"nodes": found.fused.nodes}
    elif found.parts:
        _machine(found, bits, sections, reading)
    return sections


def _renames(reading: TimeloopReading) -> dict[str, str]:
    """Return additional names of tensors, as the export writes them."""
    pairs = (part.partition(":") for part in reading.words.get(RENAMES, "").split(";"))
    return {name.strip(): members.strip() for name, _, members in pairs if name.strip() and members.strip()}


def _machine(
    found: _ParsedSections, bits: int | None, sections: dict[str, object], reading: TimeloopReading
) -> None:
    spaces = found.shapes[0].spaces if len(found.shapes) == 1 else ()
    machine = SharedAttributes(
        _cycle(found, reading), bits or 8, found.energies, found.sparse, windowed(spaces)
    )
    _note_words(found, bits, reading)
    _clusters(found, reading)
    tensors = [s.name for s in spaces]
    axes: dict[str, list[FanoutLoops]] = {}
    for part in found.parts:
        loops = found.nest.of(part.name, spatial=True) if found.nest is not None else ()
        axes[part.name] = axes_of(part, loops)
    shown = [p for p in found.parts if p.kind != "container" or axes[p.name]]
    gone = [p for p in found.parts if p not in shown]
    if gone:
        names = ", ".join(p.name for p in gone)
        alike = (
            "is a container of one instance: it is"
            if len(gone) == 1
            else "are containers of one instance: they are"
        )
        reading.note(gone[0].node, f"{names} {alike} not written")
    if found.nest is None and len(found.shapes) == 1:
        what = "no mapping is given, so the spec has none"
        reading.note(
            None, what, "let one be found: polymodel explore SPEC.yaml; or import the mapping as well"
        )
    nodes = [component(p, axes[p.name], machine, tensors) for p in shown]
    sections["arch"] = {"nodes": nodes}
    if found.explore:
        sections["explore"] = found.explore
    if found.nest is not None:
        written = mapping(found.parts, found.nest, axes, einsum_name(found.shapes))
        sections["mapping"] = {"nodes": written}


def _clusters(found: _ParsedSections, reading: TimeloopReading) -> None:
    """Note that the energy of a memory that serves several instances is divided among all of them.

    In Timeloop only the used instances pay, and they are spread over all clusters (BufferLevel,
    utilized_clusters).
    """
    total, used = 1, 1
    for part in found.parts:
        total *= part.instances
        loops = found.nest.of(part.name, spatial=True) if found.nest is not None else ()
        used *= prod(loop.bound for loop in loops)
        if part.cluster == 1 or found.energies.of(part.name) == ComponentPrices():
            continue
        shares = f"each takes 1/{part.cluster} of its energy and area"
        served_by = f"a memory serves {part.cluster} instances of {part.name}: {shares}"
        reading.note(part.node, served_by, "", "architecture")
        served = Fraction(used, min(used, max(total // part.cluster, 1)))
        if found.nest is not None and served != part.cluster:
            times = _amount(part.cluster / served)
            what = (
                f"the mapping uses {used} of {total} instances of {part.name}, {_amount(served)} per memory "
                f"of {part.cluster}: an access costs each of them {times} times as much"
            )
            remedy = f"multiply the energies of {part.name} by it where only this mapping is evaluated"
            reading.leave(part.node, what, remedy, "architecture", changes="energy")


def _amount(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"{float(value):.4g}"


def _cycle(found: _ParsedSections, reading: TimeloopReading) -> Fraction:
    seconds = cycle_seconds(found.parts, reading.variables)
    if seconds is None:
        remedy = "say variables: {global_cycle_seconds: ...}, or change clock: and throughput: in the spec"
        reading.note(None, "no cycle time is given: one cycle is taken as 1 ns", remedy)
        return Fraction(1, 10**9)
    return Fraction(str(seconds))


def _note_words(found: _ParsedSections, bits: int | None, reading: TimeloopReading) -> None:
    if bits is None:
        remedy = "add e.g. `word-bits: 16` (datawidth) to the attributes; counts of words do not need it"
        reading.note(None, "no width of a word is given: 8 bits are assumed", remedy)
    for p in found.parts:
        if p.kind == "memory" and p.bits not in (None, bits):
            what = f"words of {p.name} have {p.bits} bits, a word has {bits} here: its size in words is kept"
            reading.note(p.node, what, "", "architecture")
    costs = {p.name: found.energies.of(p.name) for p in found.parts if p.kind != "container"}
    free = [n for n, x in costs.items() if x.read is None and x.write is None and x.compute is None]
    if free:
        remedy = "import the ERT that Accelergy wrote as well, or add `energy:` to the actions"
        which = " at all" if len(free) == len(costs) else f" for {', '.join(free)}"
        reading.note(None, f"no energies are given{which}: they are free", remedy)


def files_of(folder: Path, faults: Faults) -> list[Path]:
    """Return the files that are read together: of a folder with a top file only that file, of a stored run
    its files.

    Several mappings in a folder of mappings are alternatives: one of them has to be named.
    """
    if (folder / TOP).is_file():
        return [folder / TOP]
    if (folder / STORED).is_file():
        beside = [p for p in _yaml(folder) if p.name.endswith((".map.yaml", ".ERT.yaml", ".ART.yaml"))]
        return [folder / STORED, *beside]
    result = _yaml(folder)
    for part in _PARTS:
        inside = _yaml(folder / part)
        if part in ("map", "mapping", "constraints") and len(inside) > 1:
            what = f"{part}/ has {len(inside)} files, which are alternatives"
            remedy = f"name the files: {folder.name}/.../*.yaml {folder.name}/{part}/{inside[0].name}"
            faults.note(Diagnostic(what, remedy, "", Place(str(folder)), code="conflicting-arguments"))
        result += inside
    if not result:
        what = "there is no YAML file in the folder"
        faults.note(Diagnostic(what, "name the files", "", Place(str(folder)), code="unreadable-file"))
    return result


def _yaml(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.iterdir() if p.name.endswith(_ENDINGS) and p.is_file())
