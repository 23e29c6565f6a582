"""YAML text to located nodes. Only plain data and the known tags are read; nothing is constructed.

Numbers and booleans are told from text here (not by YAML 1.1's rules): `no`, `on` and `1:30` stay
text, `1.6e13` is a number. Aliases and merge keys are expanded up to a bound: `<<` adds the keys of other
mappings, `<<<` also those of mappings inside, and what stands in the mapping itself goes first. Where a
template fetches another file, its text has a mark that stands for a value of it (`IncludedValues`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import field, replace

import yaml

from polymodel.errors import Diagnostic
from polymodel.frozen import dataclass
from polymodel.spec.base import SchemaObject
from polymodel.spec.faults import (
    MAX_FAULTS,
    UNKNOWN_TAG,
    Joined,
    Locator,
    NodeLocator,
    Source,
    Without,
    YamlEntry,
    YamlNode,
    suggestion,
    too_many,
)
from polymodel.spec.numbers import Value
from polymodel.spec.other_tools import tag_of_another_tool

MAPPING_TAGS = ("Storage", "Temporal", "Spatial", "Compute", "Nested", "Sequential", "Pipeline")
COMPONENT_TAGS = ("Memory", "Toll", "Container", "Compute")
TAGS = tuple(dict.fromkeys((*MAPPING_TAGS, *COMPONENT_TAGS)))
MAX_NODES = 200_000
MAX_DEPTH = 60
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_CORE = "tag:yaml.org,2002:"
_PLAIN = {
    _CORE + t for t in ("str", "int", "float", "bool", "null", "timestamp", "map", "seq", "merge", "value")
}
_INT = re.compile(r"[-+]?[0-9][0-9_]*\Z")
_HEX = re.compile(r"[-+]?0x_*[0-9a-fA-F][0-9a-fA-F_]*\Z")
_FLOAT = re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?\Z")
_WORDS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NULLS = ("", "~", "null", "Null", "NULL")


_PART = re.compile("\ue002([0-9]+)\ue003((?:\\.[A-Za-z0-9_-]+)*)\\Z")


class _Abort(Exception):
    """The text is too large to be read further."""


@dataclass
class IncludedValues:
    """Values of other files, which a text refers to by marks, and the number of nodes made so far from all
    files."""

    nodes: list[YamlNode] = field(default_factory=list)
    count: int = 0

    def add(self, node: YamlNode) -> str:
        """Return the mark for a node; `.key` may follow it."""
        self.nodes.append(node)
        return f"\ue002{len(self.nodes) - 1}\ue003"


def parse_yaml(
    text: str,
    source: Source,
    tags: tuple[str, ...] = TAGS,
    parts: IncludedValues | None = None,
    replaced: list[Diagnostic] | None = None,
) -> tuple[YamlNode | None, tuple[Diagnostic, ...]]:
    """The root node (None if the syntax is broken) and every fault found. Never raises.

    `tags`: those that the dialect knows; all others are faults. `replaced`: of two values of one key, which
    are a fault otherwise, the last counts, as most readers of YAML have it; the others are told in it.
    """
    try:
        beyond = _beyond(text, source)
        if beyond is not None:
            return None, (beyond,)
        root = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as error:
        return None, (_syntax_fault(error, source, text),)
    if root is None:
        fault = Diagnostic(
            "the document is empty",
            "add arch:, workload: or mapping:",
            "",
            source.place(1, 1),
            code="syntax-error",
        )
        return None, (fault,)
    reader = _YamlReader(source, tags, parts if parts is not None else IncludedValues(), replaced)
    try:
        node = reader.node(root, "", 0)
    except _Abort:
        return None, tuple(reader.faults)
    return node, tuple(reader.faults)


def _beyond(text: str, source: Source) -> Diagnostic | None:
    """Return a fault if the text exceeds a bound, before any node is made from it.

    libyaml's composer recurses in C and would crash on deeply nested text; and each value takes a kilobyte.
    """
    depth = count = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, (yaml.SequenceStartEvent, yaml.MappingStartEvent)):
            depth += 1
        elif isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            depth -= 1
            continue
        count += 1
        if depth > MAX_DEPTH or count > 2 * MAX_NODES:
            what = "is nested too deeply" if depth > MAX_DEPTH else f"has more than {MAX_NODES} values"
            remedy = "flatten it" if depth > MAX_DEPTH else "split it up, or say it with fewer"
            mark = event.start_mark
            place = source.place(mark.line + 1, mark.column + 1) if mark else source.place(1, 1)
            return Diagnostic(f"the document {what}", remedy, "", place, code="too-large")
    return None


def _syntax_fault(error: yaml.YAMLError, source: Source, text: str) -> Diagnostic:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if mark is not None and mark.line >= len(text.rstrip().splitlines()):
        mark = getattr(error, "context_mark", None) or mark  # where it began, not the end of the text
    problem = str(getattr(error, "problem", "") or getattr(error, "reason", "") or "invalid text")
    context = str(getattr(error, "context", "") or "")
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    position = getattr(error, "position", None)
    if mark is None and isinstance(position, int):
        before = text[:position]
        line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    line = min(line, max(len(source.lines), 1))
    shown = source.lines[line - 1] if source.lines else ""
    return Diagnostic(
        f"YAML syntax: {problem}" + (f" ({context})" if context else ""),
        _syntax_remedy(problem + context, shown, source.lines[line - 2] if line > 1 else ""),
        "",
        source.place(line, column),
        code="syntax-error",
    )


def _syntax_remedy(problem: str, line: str, before: str) -> str:
    if "\t" in line or "'\\t'" in problem or "\t" in before:
        return "YAML indents with spaces; replace the tabs"
    if "single document" in problem:
        return "one document per file; remove the `---`"
    if "undefined alias" in problem:
        return "define the anchor (&name) before the alias (*name), or quote the text"
    if "mapping values" in problem:
        return "check the indentation, and quote text that contains `: `"
    if "control characters" in problem or "special characters" in problem or "not allowed" in problem:
        return "remove the control character"
    if "found character" in problem:
        return "quote text that starts with @, `, %, ! or *"
    if "flow" in problem or "expected ','" in problem:
        return "close the bracket or brace, and put a comma between entries"
    return "check indentation, quotes and brackets near here"


class _YamlReader:
    def __init__(
        self,
        source: Source,
        tags: tuple[str, ...],
        parts: IncludedValues,
        replaced: list[Diagnostic] | None = None,
    ) -> None:
        self.source = source
        self.replaced = replaced
        self.tags = tags
        self.faults: list[Diagnostic] = []
        self.parts = parts

    def fault(self, mark: yaml.Mark, path: str, message: str, remedy: str, *, code: str) -> None:
        place = self.source.place(mark.line + 1, mark.column + 1)
        if len(self.faults) >= MAX_FAULTS:
            self.faults.append(too_many(place))
            raise _Abort
        shown = path if len(path) <= 200 else path[:200] + "..."
        self.faults.append(Diagnostic(message, remedy, shown, place, code=code))

    def node(self, raw: yaml.Node, path: str, depth: int) -> YamlNode:
        self.grown(raw, path, 1, depth)
        tag = self.tag(raw, path)
        line, column = raw.start_mark.line + 1, raw.start_mark.column + 1
        if isinstance(raw, yaml.MappingNode):
            return YamlNode(self.source, line, column, tag, entries=self.entries(raw, path, depth))
        if isinstance(raw, yaml.SequenceNode):
            elements = tuple(self.node(v, f"{path}[{i}]", depth + 1) for i, v in enumerate(raw.value))
            return YamlNode(self.source, line, column, tag, elements=elements)
        assert isinstance(raw, yaml.ScalarNode)
        if "\ue002" in raw.value:
            return self.part(raw, path, depth)
        quoted = raw.style not in (None, "")
        if tag and raw.value in _NULLS:
            return YamlNode(self.source, line, column, tag, entries=())
        value = raw.value if quoted else self.scalar(raw)
        if not quoted or raw.style in ("'", '"'):
            one_line = raw.start_mark.line == raw.end_mark.line
        else:
            one_line = False
        return YamlNode(self.source, line, column, tag, value, quoted, one_line)

    def grown(self, raw: yaml.Node, path: str, nodes: int, depth: int) -> None:
        """Count nodes that are made; end where there are too many, or too deep ones."""
        self.parts.count += nodes
        if self.parts.count > MAX_NODES or depth > MAX_DEPTH:
            what = "is nested too deeply" if depth > MAX_DEPTH else f"expands to more than {MAX_NODES} values"
            message = f"the document {what}"
            remedy = "use fewer or shallower aliases (*name)"
            self.fault(raw.start_mark, path, message, remedy, code="too-large")
            raise _Abort

    def part(self, raw: yaml.ScalarNode, path: str, depth: int) -> YamlNode:
        """Return the value of another file to which a mark refers."""
        result = YamlNode(self.source, raw.start_mark.line + 1, raw.start_mark.column + 1)
        match = _PART.match(raw.value)
        if match is None or int(match[1][:9]) >= len(self.parts.nodes):
            what = "an included file is mixed with other text"
            self.fault(raw.start_mark, path, what, "give it a key of its own", code="syntax-error")
            return result
        inner = self.parts.nodes[int(match[1])]
        for key in match[2].split(".")[1:]:
            below = inner.entry(key)
            if below is None:
                known = [e.key for e in inner.entries or ()]
                what = f"the included file {inner.source.file} has no {match[2][1:]}"
                self.fault(raw.start_mark, path, what, suggestion(key, known, "keys"), code="unknown-key")
                return result
            inner = below.value
        level = [inner]
        while level:
            self.grown(raw, path, len(level), depth)
            level = [v for n in level for v in (*(e.value for e in n.entries or ()), *(n.elements or ()))]
            depth += 1
        return inner

    def tag(self, raw: yaml.Node, path: str) -> str:
        if raw.tag in _PLAIN:
            return ""
        name = raw.tag[1:] if raw.tag.startswith("!") else raw.tag
        if name in self.tags:
            return str(name)
        if raw.tag.startswith(_CORE):
            shown = "!!" + raw.tag.removeprefix(_CORE)
            message = f"unknown tag {shown}"
            remedy = "remove the tag: specs are plain data"
            self.fault(raw.start_mark, path, message, remedy, code="unknown-choice")
        else:
            near = suggestion(name, self.tags, "tags").replace("mean ", "mean !")
            what = f"unknown tag !{name}"
            self.fault(raw.start_mark, path, what, tag_of_another_tool(name) or near, code="unknown-choice")
        return UNKNOWN_TAG

    def scalar(self, raw: yaml.ScalarNode) -> object:
        text: str = raw.value
        if text in _NULLS:
            return None
        if text in _WORDS:
            return _WORDS[text]
        if len(text) > 400:
            return text
        if _INT.match(text):
            return int(text.replace("_", ""))
        if _HEX.match(text):
            return int(text.replace("_", ""), 16)
        if _FLOAT.match(text):
            value = float(text.replace("_", ""))
            return value if value not in (float("inf"), float("-inf")) else text
        return {".inf": float("inf"), "-.inf": float("-inf")}.get(text.lower(), text)

    def entries(self, raw: yaml.MappingNode, path: str, depth: int) -> tuple[YamlEntry, ...]:
        result: dict[str, YamlEntry] = {}
        merged: dict[str, YamlEntry] = {}
        deep: dict[str, YamlEntry] = {}
        for key_node, value_node in raw.value:
            key = self.key(key_node, path)
            if key is None:
                continue
            below = f"{path}.{key}" if path else key
            value = self.node(value_node, path if key in ("<<", "<<<") else below, depth + 1)
            mark = key_node.start_mark
            if key in ("<<", "<<<"):
                self.merge(value, deep if key == "<<<" else merged, value_node, path, key)
                continue
            if key in result:
                first = self.source.place(result[key].line, result[key].column)
                if self.replaced is None or len(self.replaced) >= MAX_FAULTS:
                    remedy = f"it stands in line {first.line} already; keep one"
                    self.fault(mark, below, f"duplicate key {key}", remedy, code="duplicate-name")
                    continue
                what = f"{key} is repeated in line {mark.line + 1}; the last value counts"
                self.replaced.append(Diagnostic(what, "keep one", below, first, code="duplicate-name"))
            result[key] = YamlEntry(key, mark.line + 1, mark.column + 1, self.source, value)
        for key, entry in merged.items():
            result.setdefault(key, entry)
        for entry in deep.values():
            self.into(result, entry)
        return tuple(result.values())

    def key(self, raw: yaml.Node, path: str) -> str | None:
        if isinstance(raw, yaml.ScalarNode):
            if raw.tag not in _PLAIN:
                what = f"a key cannot have the tag {raw.tag}"
                self.fault(raw.start_mark, path, what, "remove the tag", code="wrong-type")
                return None
            return str(raw.value)
        message = "a key must be text"
        remedy = "quote it if it contains brackets or braces"
        self.fault(raw.start_mark, path, message, remedy, code="wrong-type")
        return None

    def merge(self, value: YamlNode, into: dict[str, YamlEntry], raw: yaml.Node, path: str, key: str) -> None:
        for node in value.elements if value.elements is not None else (value,):
            if node.entries is None:
                what = f"`{key}` merges mappings only"
                self.fault(raw.start_mark, path, what, "give it an alias of a mapping", code="wrong-type")
                return
            for entry in node.entries:
                if key == "<<<":
                    self.into(into, entry)
                else:
                    into.setdefault(entry.key, entry)

    def into(self, found: dict[str, YamlEntry], entry: YamlEntry) -> None:
        """Add an entry; if both values are mappings, their entries are merged, and existing ones take
        precedence."""
        here = found.get(entry.key)
        if here is None:
            found[entry.key] = entry
        elif here.value.tag == "nomerge":
            return
        elif here.value.entries is not None and entry.value.entries is not None:
            inside = {e.key: e for e in here.value.entries}
            for inner in entry.value.entries:
                self.into(inside, inner)
            self.parts.count += len(inside)
            found[entry.key] = replace(here, value=replace(here.value, entries=tuple(inside.values())))


# Versions of the file format, and how older files become newer ones while they are read.
#
# A file says its version with `schema_version:`; one that does not is of version 1. Each later version has a
# `Migration` here: keys that have another name since then, and keys that are gone. Places stay the file's.

CURRENT = 1
FIRST = 1
Pattern = tuple[str, ...]


@dataclass(frozen=True)
class Migration:
    """What version `to` changed. Patterns are paths of keys; `*` stands for each item of a list or any key.

    `renamed`: path of a key -> its new name. `removed`: path of a key -> what to write instead.
    """

    to: int
    renamed: Mapping[Pattern, str] = field(default_factory=dict)
    removed: Mapping[Pattern, str] = field(default_factory=dict)


# Version 1 is the first; a version 2 would add Step(2, ...) here.
STEPS: tuple[Migration, ...] = ()


def version_fault(entry: YamlEntry, current: int = CURRENT) -> Diagnostic | None:
    """Return the fault in the value of `schema_version:`, None if there is none."""
    given, place = entry.value.scalar, entry.value.place()
    what = "schema_version"
    if isinstance(given, bool) or not isinstance(given, int):
        shown = repr(given) if entry.value.kind == "scalar" else f"a {entry.value.kind}"
        remedy = f"write `schema_version: {current}`"
        fault = f"schema_version {shown} is not a version: versions are 1, 2, ..."
        return Diagnostic(fault, remedy, what, place, code="unsupported-version")
    if given > current:
        message = f"schema_version {given} is newer than this release, which reads up to version {current}"
        remedy = (
            f"install a newer polymodel; a file that needs nothing new may say `schema_version: {current}`"
        )
        return Diagnostic(message, remedy, what, place, code="unsupported-version")
    if given < FIRST:
        message = f"schema_version {given} is not known: the first version is {FIRST}"
        return Diagnostic(
            message, f"write `schema_version: {current}`", what, place, code="unsupported-version"
        )
    return None


def upgraded(root: YamlNode, steps: Iterable[Migration] = STEPS) -> tuple[YamlNode, tuple[Diagnostic, ...]]:
    """The document with the keys of today, and a fault for each key that is gone.

    A file without `schema_version` is of version 1, one of an unknown version is left as it is.
    """
    entry = root.entry("schema_version")
    version = entry.value.scalar if entry else FIRST
    if isinstance(version, bool) or not isinstance(version, int):
        return root, ()
    faults: list[Diagnostic] = []
    for step in steps:
        if step.to > version >= FIRST:
            root = _step(root, (), step, faults)
    return root, tuple(faults)


def _step(node: YamlNode, path: Pattern, step: Migration, faults: list[Diagnostic]) -> YamlNode:
    if node.entries is not None:
        entries = []
        for entry in node.entries:
            here = (*path, entry.key)
            gone = _look(step.removed, here)
            if gone is not None:
                place = entry.source.place(entry.line, entry.column)
                message = f"`{entry.key}` is gone since version {step.to}"
                faults.append(Diagnostic(message, gone, ".".join(here), place, code="unknown-key"))
                continue
            name = _look(step.renamed, here) or entry.key
            entries.append(replace(entry, key=name, value=_step(entry.value, here, step, faults)))
        return replace(node, entries=tuple(entries))
    if node.elements is not None:
        below = (_step(e, (*path, "*"), step, faults) for e in node.elements)
        return replace(node, elements=tuple(below))
    return node


def _look(table: Mapping[Pattern, str], path: Pattern) -> str | None:
    for pattern, result in table.items():
        if len(pattern) == len(path) and all(p in ("*", k) for p, k in zip(pattern, path, strict=True)):
            return result
    return None


# YAML text: plain data as block lists of tagged nodes, a whole spec as one document, files as read.

Scalar = str | int | float | bool | None
_BLOCK = ("nodes", "einsums")


def dump(document: dict[str, object], width: int | None = None) -> str:
    """YAML of nested dictionaries, lists and `(tag, fields)` pairs.

    `width`: what would make a line longer than this is written over several; None: it never is.
    """
    lines: list[str] = []
    for key, value in document.items():
        lines += _entry(key, value, 0, width)
    return "\n".join(lines) + "\n"


def _entry(key: str, value: object, indent: int, width: int | None) -> list[str]:
    pad = " " * indent
    if isinstance(value, dict) and any(k in _BLOCK for k in value):
        lines = [f"{pad}{key}:"]
        for k, v in value.items():
            lines += _entry(k, v, indent + 2, width)
        return lines
    if key in _BLOCK and isinstance(value, list) and value:
        return [f"{pad}{key}:", *(line for item in value for line in _item(item, indent, width))]
    line = f"{pad}{key}: {flow_text(value)}"
    if width is None or len(line) <= width or not value:
        return [line]
    if isinstance(value, dict):
        return [
            f"{pad}{key}:",
            *(x for k, v in value.items() for x in _entry(flow_text(k), v, indent + 2, width)),
        ]
    if isinstance(value, list):
        return [f"{pad}{key}:", *(line for item in value for line in _item(item, indent, width))]
    return [line]


def _item(item: object, indent: int, width: int | None) -> list[str]:
    pad = " " * indent
    if isinstance(item, tuple):
        tag, fields = item
        line = f"{pad}- !{tag} {flow_text(fields)}"
        if any(k in _BLOCK for k in fields) or (width is not None and len(line) > width):
            lines = [f"{pad}- !{tag}"]
            for k, v in fields.items():
                lines += _entry(k, v, indent + 2, width)
            return lines
        return [line]
    line = f"{pad}- {flow_text(item)}"
    if isinstance(item, dict) and item and width is not None and len(line) > width:
        inner = [x for k, v in item.items() for x in _entry(flow_text(k), v, indent + 2, width)]
        return [f"{pad}- {inner[0].lstrip()}", *inner[1:]]
    return [line]


def flow_text(value: object, inside: bool = False) -> str:
    """YAML of a value in one line. `inside` brackets, texts with commas or brackets of their own have to be
    quoted."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow_text(k, True)}: {flow_text(v, True)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(flow_text(v, True) for v in value) + "]"
    if inside:
        return _written([value]).removeprefix("[").removesuffix("]")
    return _written(value).removesuffix("\n...").strip()


def _written(value: object) -> str:
    return yaml.safe_dump(value, default_flow_style=True, width=10**9, allow_unicode=True).strip()


class _Dumper(yaml.SafeDumper):
    """Without anchors: equal lists in two places are written twice."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def spec_yaml(
    sections: Mapping[str, SchemaObject], symbols: Mapping[str, Value | str | None] | None = None
) -> str:
    """One document that loads to the same spec: symbols with their values, every section as it was read.

    Templates are filled in and files are joined; comments are gone, tags are `type:` keys.
    """
    lines: dict[str, object] = {"schema_version": 1}
    if symbols:
        lines["symbols"] = dict(symbols)
    for name, section in sections.items():
        lines[name] = section.model_dump(exclude_unset=True, by_alias=True)
    return yaml.dump(
        lines, Dumper=_Dumper, sort_keys=False, default_flow_style=None, width=110, allow_unicode=True
    )


def files_as_read(locator: Locator) -> dict[str, str]:
    """The text of every file that a section came from, by name, before templates are filled in."""
    if isinstance(locator, Joined):
        return {**files_as_read(locator.second), **files_as_read(locator.first)}
    if isinstance(locator, Without):
        return files_as_read(locator.base)
    if not isinstance(locator, NodeLocator):
        return {}
    sources = [entry.source for entry in locator.sections.values()]
    return {s.file: "\n".join(s.original or s.lines) for s in sources if s.file}
