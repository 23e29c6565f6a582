"""Source texts and the tree of located YAML nodes read from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count

from polymodel.errors import Diagnostic, Place, SpecError
from polymodel.spec.faults import Path

# Stands for a tag that the reader has refused already.
UNKNOWN_TAG = "!unknown"
MAX_VALUES = 200_000  # of plain data, as of a file
Scalar = str | int | float | bool | None


@dataclass(frozen=True)
class Source:
    """One text. `origin` maps lines of a rendered template to lines of the file, from 1.

    `original` holds the file's own lines where the text was rendered from a template.
    """

    file: str
    lines: tuple[str, ...]
    original: tuple[str, ...] | None = None
    origin: tuple[int, ...] = ()
    folder: str = ""

    def place(self, line: int, column: int) -> Place:
        """The place of a (line, column) of the text that was parsed."""
        if not line:
            return Place(self.file)
        text = self.lines[line - 1] if line <= len(self.lines) else ""
        if self.original is None:
            return Place(self.file, line, column, text)
        number = self.origin[line - 1] if line <= len(self.origin) else len(self.original)
        written = self.original[number - 1] if 0 < number <= len(self.original) else ""
        if written.rstrip() == text.rstrip():
            return Place(self.file, number, column, written)
        return Place(self.file, number, column, f"{text.rstrip()}    # as rendered from the template")


@dataclass(frozen=True)
class Entry:
    """One key of a mapping with its value; where the key stands."""

    key: str
    line: int
    column: int
    source: Source
    value: Node


@dataclass(frozen=True)
class Node:
    """A located YAML value: a scalar, a list or a mapping, with its tag (without `!`)."""

    source: Source
    line: int
    column: int
    tag: str = ""
    scalar: object = None
    quoted: bool = False
    one_line: bool = True
    entries: tuple[Entry, ...] | None = None
    elements: tuple[Node, ...] | None = None

    @property
    def kind(self) -> str:
        if self.entries is not None:
            return "mapping"
        return "list" if self.elements is not None else "scalar"

    def entry(self, key: str) -> Entry | None:
        for e in self.entries or ():
            if e.key == key:
                return e
        return None

    def plain(self) -> object:
        """The value as plain Python data; a tag becomes the key `type`."""
        if self.entries is not None:
            found: dict[str, object] = {"type": self.tag} if self.tag else {}
            found.update((e.key, e.value.plain()) for e in self.entries)
            return found
        if self.elements is not None:
            return [e.plain() for e in self.elements]
        return self.scalar

    def walk(self) -> Iterator[Node]:
        yield self
        for e in self.entries or ():
            yield from e.value.walk()
        for n in self.elements or ():
            yield from n.walk()

    def place(self, offset: int | None = None) -> Place:
        """Where the value stands; `offset` counts characters into a one-line scalar."""
        column = self.column
        if offset is not None and self.kind == "scalar" and self.one_line:
            column += offset + (1 if self.quoted else 0)
        return self.source.place(self.line, column)


def node_of(value: object, source: Source, depth: int) -> Node:
    """Plain Python data as a node that stands nowhere. Raises SpecError where it grows without end."""
    return _node_of(value, source, depth, count())


def _node_of(value: object, source: Source, depth: int, made: Iterator[int]) -> Node:
    if next(made) > MAX_VALUES:
        message = f"the data has more than {MAX_VALUES} values"
        raise SpecError([Diagnostic(message, "look whether a table holds itself", "", Place(source.file))])
    if isinstance(value, Mapping) and depth < 60:
        entries = (
            Entry(str(k), 0, 0, source, _node_of(v, source, depth + 1, made)) for k, v in value.items()
        )
        return Node(source, 0, 0, entries=tuple(entries))
    if isinstance(value, (list, tuple)) and depth < 60:
        return Node(source, 0, 0, elements=tuple(_node_of(v, source, depth + 1, made) for v in value))
    return Node(source, 0, 0, scalar=value)


class NodeLocator:
    """Locates paths in the sections of a spec; the nearest enclosing value where a part is missing."""

    def __init__(self, sections: dict[str, Entry]) -> None:
        self.sections = sections

    def place(self, path: Path, *, key: bool = False, offset: int | None = None) -> Place:
        if not path or str(path[0]) not in self.sections:
            first = next(iter(self.sections.values()), None)
            return Place(first.source.file) if first else Place()
        section = self.sections[str(path[0])]
        entry: Entry | None = section
        node = section.value
        for depth, part in enumerate(path[1:], 1):
            below = self._below(node, part)
            if below is None:
                return self._nearest(node, entry, depth)
            entry, node = below
        if key and entry is not None:
            return entry.source.place(entry.line, entry.column + (offset or 0))
        return node.place(offset)

    @staticmethod
    def _below(node: Node, part: str | int) -> tuple[Entry | None, Node] | None:
        if isinstance(part, int):
            if node.elements is not None and part < len(node.elements):
                return None, node.elements[part]
            return None
        entry = node.entry(part)
        return (entry, entry.value) if entry else None

    @staticmethod
    def _nearest(node: Node, entry: Entry | None, depth: int) -> Place:
        if node.kind == "mapping" and entry is not None and not node.tag:
            return entry.source.place(entry.line, entry.column)
        return node.place()
