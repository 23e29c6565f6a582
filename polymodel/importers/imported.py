"""The result of an importer: a spec as YAML text, and notes on everything that was not converted
literally."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polymodel.architecture.hierarchy import Component, Hierarchy
from polymodel.arithmetic import OPERATORS
from polymodel.errors import Diagnostic, Place, SpecError, writing
from polymodel.loading import Spec, load
from polymodel.spec.expressions import parse_arithmetic
from polymodel.spec.faults import Faults, Source, TextFault, YamlNode, check_classes
from polymodel.spec.files import write_text
from polymodel.spec.yaml_text import dump, parse_yaml
from polymodel.view.answer import Answer, Block, Code, declared
from polymodel.view.figures import bar_axes
from polymodel.view.files import Json
from polymodel.view.table import Column, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from polymodel.workload.einsum import Cascade

WIDTH = 110
_SCHEMA = "# yaml-language-server: $schema=./polymodel.schema.json\n"


@dataclass(frozen=True)
class LeftOut(Diagnostic):
    """Something that was not converted. `key`: its key below `owner`, the component that has it.

    `why`: the reason for one key, with `it` for the key; keys with the same `why` and remedy are reported
    together. `changes`: the figures that differ because of it (counts, energy, latency ...), empty if none
    does. `refused`: the import stops unless the key is allowed by name.
    """

    code: str = "no-counterpart"
    key: str = ""
    owner: str = ""
    why: str = ""
    changes: str = ""
    refused: bool = True

    @property
    def allowance(self) -> str:
        """The name by which `allow=` permits it: the key without its location, in plain spelling."""
        return self.key.rpartition(".")[2].lower().replace("-", "_")


def refuse_effects(left: Iterable[Diagnostic], allow: Collection[str]) -> None:
    """Raise SpecError for everything that was left out, changes a figure and is not allowed by name."""
    stops = [d for d in left if isinstance(d, LeftOut) and d.changes and d.refused]
    known = {d.allowance for d in stops}
    remedy = f"names that can be allowed here: {', '.join(sorted(known))}" if known else "remove it"
    faults = [
        Diagnostic(
            f"{word!r} is allowed, but nothing of that name is left out",
            remedy,
            "allow",
            code="unknown-choice",
        )
        for word in allow
        if word not in known
    ]
    for d in stops:
        if d.allowance not in allow:
            remedy = f"{d.remedy}; or import without it: allow=[{d.allowance!r}] (--allow {d.allowance})"
            message = f"{d.message}; this changes {d.changes}"
            faults.append(Diagnostic(message, remedy, d.path, d.place, code="no-counterpart"))
    if faults:
        raise SpecError(faults)


def refuse_lacking(lacking: Iterable[tuple[str, str]], allow: Collection[str]) -> None:
    """Raise SpecError for features that another tool does not have and that are not allowed by name.

    `lacking`: pairs (name, description of the feature in the spec).
    """
    found = dict(lacking)
    faults = [
        Diagnostic(
            f"{why}; this changes counts or costs there",
            f"change it in the spec, or export without it: allow=[{name!r}] (--allow {name})",
            name,
            code="no-counterpart",
        )
        for name, why in found.items()
        if name not in allow
    ]
    faults += [
        Diagnostic(
            f"{name!r} is allowed, but nothing of that name is left out",
            "remove it",
            "allow",
            code="unknown-choice",
        )
        for name in allow
        if name not in found
    ]
    if faults:
        raise SpecError(faults)


def refuse_recurrences(cascade: Cascade, tool: str) -> None:
    """Raise SpecError for recurrent tensors, for which no supported tool has a form."""
    faults = [
        Diagnostic(
            f"{tensor} is carried forward along {', '.join(ranks)}, which {tool} has no form for",
            "export the Einsums beside it: spec.only(...) (--einsum NAME)",
            "workload",
            code="no-counterpart",
        )
        for tensor, ranks in cascade.generational
    ]
    if faults:
        raise SpecError(faults)


# Fields of components that exporters write, or that change no cost in other tools; and fields that refuse an
# export.
_WRITTEN = frozenset(
    "name kind size_bits actions leak_power area area_provenance spatial keep may_keep ports".split()
    + ["buffering", "clock"]
)
_REFUSED = frozenset("allocation read_first fill_drain_latency sparse data_tiles".split())


_NOWHERE: tuple[tuple[str, Callable[[Component], object], str], ...] = (
    ("link", lambda c: any(d.link for d in c.spatial), "a fanout has a link with costs or a throughput"),
    ("sparse", lambda c: c.sparse, "a component has sparse formats or actions"),
    ("data_tiles", lambda c: c.data_tiles, "a memory is tiled for sparse operands"),
    ("allocation", lambda c: c.allocation != "tile", "a memory allocates live values"),
    ("fill_drain_latency", lambda c: c.fill_drain_latency, "a component fills and drains"),
    ("leak_power", lambda c: not c.acts and (c.leak_power or c.area), "a container leaks, or has an area"),
    ("operators", lambda c: c.by_operator, "a compute unit has actions of its own for operators"),
)


def lacking_of(hierarchy: Hierarchy) -> Iterator[tuple[str, str]]:
    """Yield pairs (name, description) of features of the architecture that no other tool has. A component
    whose fields include one that no exporter knows cannot be written either."""
    parts = hierarchy.components
    yield from ((name, why) for name, of, why in _NOWHERE if any(map(of, parts)))
    for name, default in {f.name: f.default for part in parts for f in fields(part)}.items():
        if name not in _WRITTEN | _REFUSED and any(getattr(c, name, default) != default for c in parts):
            yield name, f"a component has `{name}`"
    if not hierarchy.assume_overlap:
        yield "assume_overlap", "transfers do not overlap with computing"


@dataclass(frozen=True, repr=False)
class Imported(Answer):
    """A converted file.

    `text`: the spec as YAML, which can be loaded as it is. `notes`: statements on what was interpreted
    differently from how it is written (an assumption, a default). `left_out`: everything without a
    counterpart, with location and remedy; nothing in the file is dropped without being listed there.
    """

    source: str
    text: str
    notes: tuple[Diagnostic, ...] = ()
    left_out: tuple[Diagnostic, ...] = ()

    def __post_init__(self) -> None:
        remedy = "pm.import_timeloop(...), pm.import_onnx(...) and the other importers make them"
        check_classes(self, remedy, {"source": str, "text": str, "notes": tuple, "left_out": tuple})

    @property
    def spec(self) -> Spec:
        """The spec, loaded from the text."""
        root, faults = parse_yaml(self.text, Source(self.source, tuple(self.text.split("\n"))))
        plain = root.plain() if root is not None else None
        if faults or not isinstance(plain, dict):
            raise SpecError(faults)
        return load(plain)

    @property
    def sources(self) -> tuple[str, ...]:
        """The source files; several are also listed in one line."""
        return (self.source, *self.source.split(", "))

    @property
    def changed(self) -> tuple[LeftOut, ...]:
        """Everything that is left out although it changes figures: different prices, and what `allow=`
        names."""
        return tuple(d for d in self.left_out if isinstance(d, LeftOut) and d.changes)

    @property
    def complete(self) -> bool:
        """True if everything in the file has its counterpart in the spec."""
        return not self.left_out

    @property
    def remarks(self) -> tuple[str, ...]:
        """Notes and left-out keys as text, starting with those that change figures; similar items are
        grouped."""
        notes = (f"note{text}" for text in gathered(self.notes))
        changed = (f"left out, changes {d.changes}: {d.render()}" for d in self.changed)
        rest = gathered(d for d in self.left_out if d not in self.changed)
        return (*changed, *notes, *(f"left out{text}" for text in rest))

    @declared(title="What is not as it was", name="remarks")
    def differences(self) -> Table:
        """One row per item that was interpreted differently or left out, with its remedy."""
        columns = (
            Column("what", words="note, or left out"), Column("place", words="file, line and column"),
            Column("key", words="the key as it stands below its owner"),
            Column("message", words="what is so"),
            Column("changes", words="the figures that differ because of it"),
            Column("remedy", words="what to do about it"),
        )  # fmt: skip
        listed = [("note", d) for d in self.notes] + [("left out", d) for d in self.left_out]
        rows = (
            (what, str(d.place) if d.place.file else "", getattr(d, "key", d.path), d.message,
             getattr(d, "changes", ""), d.remedy)
            for what, d in listed
        )  # fmt: skip
        return Table("remarks", columns, tuple(rows))

    @property
    def title(self) -> str:
        """The heading of its page."""
        return f"Imported from {self.source}"

    def content(self, live: bool = True) -> list[Block]:
        """Return the YAML, and the remarks."""
        return [Code(self.text), *(Code(remark) for remark in self.remarks)]

    def as_data(self, *, live: bool = True) -> dict[str, Json]:
        """Return the spec as text, the remarks, and their table."""
        return {**super().as_data(live=live), "text": self.text}

    def plot(self, what: str = "", ax: Axes | None = None) -> Axes:
        """Plot bars of how many items are noted, left out, and change figures."""
        lists = {"noted": self.notes, "left out": self.left_out, "changes figures": self.changed}
        counts = tuple((name, len(listed)) for name, listed in lists.items())
        columns = Column("kind"), Column("things", "element", words="things that are not as they were")
        return bar_axes(Table("remarks", columns, counts), what, ax)

    def save(  # type: ignore[override]  # one file is what an import is for: its path can be loaded
        self,
        place: str | PathLike[str],
        *,
        live: bool = False,
        parquet: bool = False,
        command: str = "",
    ) -> Path | tuple[Path, ...]:
        """Write the YAML to a new file; an existing file is not overwritten. A name without an ending is a
        folder, which gets spec.yaml, the remarks, the data and the page."""
        if Path(place).suffix:
            return self._write(Path(place))
        result = super().save(place, live=live, parquet=parquet, command=command)
        return (self._write(Path(place) / "spec.yaml"), *result)

    def _write(self, path: Path) -> Path:
        if path.exists():
            raise SpecError([Diagnostic(f"{path} exists already", "name a new file", code="file-exists")])
        with writing(path):
            write_text(path, self.text)
        return path

    def __str__(self) -> str:
        return "\n".join([self.text, *self.remarks])

    def __repr__(self) -> str:
        return f"Imported({self.source}: {len(self.notes)} notes, {len(self.left_out)} left out)"


_WORD = re.compile(r"[A-Za-z_]\w*")


def only_counted(operations: Iterable[Mapping[str, str]]) -> tuple[str, ...]:
    """Return operators of Einsums that are not in the table, so that their function is not known."""
    found: dict[str, None] = {}
    for text in (text for one in operations for text in one.values()):
        for step in text.split(";"):
            word = step.strip()
            called = [word] if word.isidentifier() else re.findall(r"([A-Za-z_]\w*)\s*\(", word)
            found |= dict.fromkeys(w for w in called if w not in OPERATORS)
    return tuple(found)


def _declared(workload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the workload with declarations of the operators that are only counted."""
    einsums = [_with_names(e) if isinstance(e, Mapping) else e for e in workload.get("einsums", ())]
    found = [e["operations"] for e in einsums if isinstance(e, Mapping) and e.get("operations")]
    known = workload.get("operators", {})
    added: dict[str, dict[str, str]] = {name: {} for name in only_counted(found) if name not in known}
    return {**workload, **({"operators": {**known, **added}} if added else {}), "einsums": einsums}


def _with_names(einsum: Mapping[str, Any]) -> dict[str, Any]:
    """Return an Einsum in whose operations everything that is not a valid formula of its operands is replaced
    by a name."""
    operations = einsum.get("operations")
    if not isinstance(operations, Mapping):
        return dict(einsum)
    accesses = [a for a in einsum.get("tensor_accesses", ()) if isinstance(a, Mapping)]
    several = {"map": sum(not a.get("output") for a in accesses), "reduce": 2, "populate": 1}
    made = {k: _formula(str(v), several.get(k, 1)) for k, v in operations.items() if v is not None}
    return {**einsum, "operations": made}


def _formula(text: str, operands: int) -> str:
    one = OPERATORS.get(text)
    if one is not None and one.arity == 1 and operands > 1:
        return f"{text}_of_{operands}"
    try:
        parse_arithmetic(text)
    except TextFault:
        return text if ";" in text else "_".join(_WORD.findall(text)) or "unnamed"
    return text


def spec_text(tool: str, source: str, sections: Mapping[str, object], remarks: str = "") -> str:
    """Return sections as the text of a loadable file. `source`: the files, named in its head. `remarks`: more
    comments."""
    names = re.sub(r"\s+", " ", ", ".join(Path(name).name for name in source.split(", ")))
    found = dict(sections)
    if isinstance(found.get("workload"), Mapping):
        found["workload"] = _declared(found["workload"])  # type: ignore[arg-type]  # keys are texts
    parts = [dump({key: value}, WIDTH) for key, value in found.items()]
    return f"{_SCHEMA}# Imported from {tool}: {names}.\n{remarks}" + "\n".join(parts)


def require_loadable(imported: Imported) -> None:
    """Check that the imported text loads. Raises SpecError, for example where a name in the other tool is a
    keyword in polymodel."""
    try:
        _ = imported.spec
    except SpecError as error:
        faults = [
            Diagnostic(
                f"what this becomes is refused: {d.message}",
                d.remedy,
                d.path,
                Place(imported.source),
                code=d.code,
            )
            for d in error.diagnostics
        ]
        raise SpecError(faults) from error


@dataclass
class Findings:
    """The findings of an importer so far: faults, notes, and what is left out."""

    faults: Faults = field(default_factory=Faults)
    notes: list[Diagnostic] = field(default_factory=list)
    left: list[LeftOut] = field(default_factory=list)

    def fault(
        self,
        node: YamlNode,
        message: str,
        remedy: str = "",
        path: str = "",
        offset: int | None = None,
        *,
        code: str,
    ) -> None:
        """Record something that cannot be read."""
        self.faults.note(Diagnostic(message, remedy, path, node.place(offset), code=code))

    def note(self, node: YamlNode | None, message: str, remedy: str = "", path: str = "") -> None:
        """Record something that is interpreted differently from how it is written, or assumed."""
        found = Diagnostic(
            message, remedy, path, node.place() if node is not None else Place(), code="read-otherwise"
        )
        if found not in self.notes:
            self.notes.append(found)

    def leave_out(self, found: LeftOut) -> None:
        """Record something that has no counterpart."""
        if found not in self.left:
            self.left.append(found)

    def imported(
        self,
        tool: str,
        files: Iterable[object],
        sections: Mapping[str, object],
        allow: Collection[str],
        remarks: str = "",
    ) -> Imported:
        """Return these sections as a spec. Raises SpecError for what was left out, changes figures and is not
        allowed.

        `files`: paths, and plain data. `remarks`: comments for the head of the spec.
        """
        refuse_effects(self.left, allow)
        source = ", ".join(str(f) for f in files if isinstance(f, (str, Path))) or "plain data"
        text = spec_text(tool, source, sections, remarks)
        result = Imported(source, text, tuple(self.notes), tuple(self.left))
        if not set(sections) <= {"schema_version", "renames"}:  # renames alone are not a spec
            require_loadable(result)
        return result


def gathered(found: Iterable[Diagnostic]) -> list[str]:
    """Return each diagnostic as text that continues a word; those with the same remedy and `why` are
    combined, with every location."""
    groups: dict[object, list[Diagnostic]] = {}
    for d in found:
        why = d.why if isinstance(d, LeftOut) else ""
        groups.setdefault((why, d.remedy) if d.remedy else d, []).append(d)
    return [_together(group) if len(group) > 1 else f": {group[0].render()}" for group in groups.values()]


def _together(group: list[Diagnostic]) -> str:
    keys = [d for d in group if isinstance(d, LeftOut)]
    remedy = f"  remedy: {group[0].remedy}"
    if len(keys) < len(group):
        shown = [_line(d) for d in group]
        return "\n".join([f": {len(group)} of one kind", *shown, remedy])
    head = f": {len(keys)} keys are not converted: {_of_several(keys[0].why)}"
    files: dict[str, list[str]] = {}
    for d in keys:
        files.setdefault(d.place.file, []).append(_named(d))
    lines = [f"{f'{file}: ' if file else ''}{', '.join(names)}" for file, names in files.items()]
    return "\n".join([head, *(_filled(line) for line in lines), remedy])


def _line(d: Diagnostic) -> str:
    """Return a diagnostic without the source line."""
    return "  " + ": ".join(
        part for part in (str(d.place) if d.place.file else "", d.path, d.message) if part
    )


def _named(d: LeftOut) -> str:
    where = f" ({d.place.line}:{d.place.column})" if d.place.line else ""
    return f"`{d.key}`{f' of {d.owner}' if d.owner else ''}{where}"


def _of_several(why: str) -> str:
    """Change a reason for one key to the plural: `it serves ...` to `they serve ...`."""
    return re.sub(r"^it (\w+)s\b", r"they \1", re.sub(r"\bto it$", "to them", why))


def _filled(text: str) -> str:
    """Break a listing into lines of at most WIDTH, between its items."""
    lines, room = ["  "], WIDTH
    for piece in text.split(", "):
        if len(lines[-1]) + len(piece) > room and lines[-1].strip():
            lines.append("    ")
        lines[-1] += f"{piece}, "
    return "\n".join(line.rstrip() for line in lines).rstrip(",")
