"""Faults and their places: every reader adds faults to one list, so that all are reported together.

A fault in a file has a place in its text (`Source`); one in an argument of a call has a path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from itertools import count
from numbers import Rational, Real
from typing import Protocol, TypeVar, cast

from polymodel.errors import Diagnostic, Place, SpecError
from polymodel.frozen import dataclass

Path = tuple[str | int, ...]
T = TypeVar("T")
# Most faults that are reported at once; most known words that are compared with a misspelt one.
MAX_FAULTS = 500
MAX_NEAR = 2000
_MORE = "more-faults"


class TextFault(SpecError):
    """One fault inside a short text (an expression): its offset in the text, the message, and the remedy.

    Its default code is that of a syntax error.
    """

    code = "syntax-error"

    def __init__(self, message: str, offset: int = 0, remedy: str = "", *, code: str = "") -> None:
        self.message = message
        self.offset = offset
        self.remedy = remedy
        self.code = code or self.code
        super().__init__((Diagnostic(message, remedy, code=self.code),))


class UnknownName(TextFault):
    """A name that is not declared in any part that could be read."""

    code = "undeclared-name"


def each(*calls: Callable[[], T]) -> list[T]:
    """The results of all calls, in order. The faults of all calls that raise SpecError are raised as one
    SpecError."""
    answers: list[T] = []
    found = Faults()
    for call in calls:
        try:
            answers.append(call())
        except SpecError as error:
            found.extend(error.diagnostics)
    if found.found:
        raise SpecError(found.found)
    return answers


class Locator(Protocol):
    """Finds the place of the value at a path; `key` requests that of its key."""

    def place(self, path: Path, *, key: bool = False, offset: int | None = None) -> Place: ...


class Nowhere:
    """The locator of objects built in Python, which have no place in a file."""

    def place(self, path: Path, *, key: bool = False, offset: int | None = None) -> Place:
        return Place()


@dataclass(frozen=True)
class Joined:
    """Locates some sections by `first`, all others by `second`."""

    first: Locator
    second: Locator
    sections: tuple[str, ...] = ("mapping",)

    def place(self, path: Path, *, key: bool = False, offset: int | None = None) -> Place:
        chosen = self.first if path and path[0] in self.sections else self.second
        return chosen.place(path, key=key, offset=offset)


@dataclass(frozen=True)
class Without:
    """Locates everything but one section, which was made in Python."""

    base: Locator
    section: str

    def place(self, path: Path, *, key: bool = False, offset: int | None = None) -> Place:
        if path and path[0] == self.section:
            return Place()
        return self.base.place(path, key=key, offset=offset)


def path_text(path: Path) -> str:
    """`("workload", "einsums", 1, "name")` as `workload.einsums[1].name`."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
        if len(text) > 200:
            return text[:200] + "..."
    return text


def close_to(word: str, known: Iterable[str]) -> str:
    """The known word nearest to `word`, empty if none is near."""
    words = list(dict.fromkeys(known))[:MAX_NEAR]
    word = str(word)[:200]  # an argument may be of any type
    from difflib import get_close_matches

    result = get_close_matches(word, words, n=1, cutoff=0.6)
    if not result:
        lowered = {w.lower(): w for w in reversed(words)}
        near = get_close_matches(word.lower(), list(lowered), n=1, cutoff=0.6)
        result = [lowered[n] for n in near]
    if not result and len(word) > 2:
        result = [w for w in words if w.lower().startswith(word.lower())]
    return result[0] if result else ""


def suggestion(word: str, known: Iterable[str], what: str = "known here") -> str:
    """A remedy for an unknown word: the nearest known one, else the list of them."""
    words = list(dict.fromkeys(known))
    near = close_to(word, words)
    if near:
        return f"did you mean {near}?"
    if not words:
        return f"nothing is {what}" if what == "known here" else f"there are no {what}"
    shown = ", ".join(words[:12]) + (", ..." if len(words) > 12 else "")
    return f"{what}: {shown}"


def with_article(noun: str) -> str:
    """`a spec`, `an execution`: the noun of a message behind its indefinite article."""
    return f"{'an' if noun[0] in 'aeioAEIO' else 'a'} {noun}"


def not_a(what: str, call: str, given: object, remedy: str) -> SpecError:
    """The error of a call that received another kind of object than a spec or a report."""
    plain = given is None or isinstance(given, (str, int, float))
    shown = repr(given) if plain else f"a {type(given).__name__}"
    return SpecError([Diagnostic(f"{call}: {shown} is not {with_article(what)}", remedy, code="wrong-type")])


def not_a_spec(call: str, given: object) -> SpecError:
    """The same for a spec."""
    loaded = f"pm.load({given!r})" if isinstance(given, str) else "what pm.load(...) gives"
    return not_a("spec", call, given, f"pass {loaded}")


def too_many(place: Place) -> Diagnostic:
    """Replaces all faults beyond the limit."""
    return Diagnostic(f"more than {MAX_FAULTS} faults: the rest is not listed", "", "", place, code=_MORE)


def in_reading_order(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Faults by file, in the order in which files were read, and by line within a file."""
    result = tuple(diagnostics)
    full = len(result) > MAX_FAULTS
    files = list(dict.fromkeys(d.place.file for d in result))

    def order(d: Diagnostic) -> tuple[bool, int, int, int]:
        return full and d.code == _MORE, files.index(d.place.file), d.place.line, d.place.column

    return tuple(sorted(result, key=order))


@dataclass
class Faults:
    """The faults collected so far. Equal faults at one place are kept once, and at most 500 are kept."""

    locator: Locator = field(default_factory=Nowhere)
    found: list[Diagnostic] = field(default_factory=list)

    @property
    def full(self) -> bool:
        return len(self.found) > MAX_FAULTS

    def add(
        self,
        path: Path,
        message: str,
        remedy: str = "",
        *,
        key: bool = False,
        offset: int | None = None,
        code: str = "",
    ) -> None:
        """Record one fault at `path`; `offset` counts characters into the text of the value."""
        if self.full:
            return
        place = self.locator.place(path, key=key, offset=offset)
        self.note(Diagnostic(message, remedy, path_text(path), place, code=code))

    def text(self, path: Path, fault: TextFault, *, key: bool = False) -> None:
        """Record a fault that an expression parser found inside the value (or key) at `path`."""
        self.add(path, fault.message, fault.remedy, key=key, offset=fault.offset, code=fault.code)

    def note(self, diagnostic: Diagnostic) -> None:
        if self.full or diagnostic in self.found:
            return
        self.found.append(diagnostic if len(self.found) < MAX_FAULTS else too_many(diagnostic.place))

    def extend(self, diagnostics: Iterable[Diagnostic]) -> None:
        for d in diagnostics:
            self.note(d)

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Records the faults of a SpecError raised inside the block; execution continues after the block."""
        try:
            yield
        except SpecError as error:
            self.extend(error.diagnostics)

    def raise_if_any(self) -> None:
        if self.found:
            raise SpecError(in_reading_order(self.found))

    def __len__(self) -> int:
        return len(self.found)


# Source texts and the tree of located YAML nodes read from them.

# Replaces a tag that the reader has already refused.
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
class YamlEntry:
    """One key of a mapping with its value; where the key stands."""

    key: str
    line: int
    column: int
    source: Source
    value: YamlNode


@dataclass(frozen=True)
class YamlNode:
    """A located YAML value: a scalar, a list or a mapping, with its tag (without `!`)."""

    source: Source
    line: int
    column: int
    tag: str = ""
    scalar: object = None
    quoted: bool = False
    one_line: bool = True
    entries: tuple[YamlEntry, ...] | None = None
    elements: tuple[YamlNode, ...] | None = None

    @property
    def kind(self) -> str:
        if self.entries is not None:
            return "mapping"
        return "list" if self.elements is not None else "scalar"

    def entry(self, key: str) -> YamlEntry | None:
        for e in self.entries or ():
            if e.key == key:
                return e
        return None

    def plain(self) -> object:
        """The value as plain Python data; a tag becomes the key `type`."""
        if self.entries is not None:
            result: dict[str, object] = {"type": self.tag} if self.tag else {}
            result.update((e.key, e.value.plain()) for e in self.entries)
            return result
        if self.elements is not None:
            return [e.plain() for e in self.elements]
        return self.scalar

    def walk(self) -> Iterator[YamlNode]:
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


def node_of(value: object, source: Source, depth: int) -> YamlNode:
    """Plain Python data as a node without a place. Raises SpecError for data that contain themselves."""
    return _node_of(value, source, depth, count())


def _node_of(value: object, source: Source, depth: int, made: Iterator[int]) -> YamlNode:
    if next(made) > MAX_VALUES:
        message = f"the data has more than {MAX_VALUES} values"
        remedy = "look whether a table holds itself"
        raise SpecError([Diagnostic(message, remedy, "", Place(source.file), code="too-large")])
    if isinstance(value, Mapping) and depth < 60:
        entries = (
            YamlEntry(str(k), 0, 0, source, _node_of(v, source, depth + 1, made)) for k, v in value.items()
        )
        return YamlNode(source, 0, 0, entries=tuple(entries))
    if isinstance(value, (list, tuple)) and depth < 60:
        return YamlNode(source, 0, 0, elements=tuple(_node_of(v, source, depth + 1, made) for v in value))
    return YamlNode(source, 0, 0, scalar=value)


class NodeLocator:
    """Locates paths in the sections of a spec; the nearest enclosing value where a part is missing."""

    def __init__(self, sections: dict[str, YamlEntry]) -> None:
        self.sections = sections

    def place(self, path: Path, *, key: bool = False, offset: int | None = None) -> Place:
        if not path or str(path[0]) not in self.sections:
            first = next(iter(self.sections.values()), None)
            return Place(first.source.file) if first else Place()
        section = self.sections[str(path[0])]
        entry: YamlEntry | None = section
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
    def _below(node: YamlNode, part: str | int) -> tuple[YamlEntry | None, YamlNode] | None:
        if isinstance(part, int):
            if node.elements is not None and part < len(node.elements):
                return None, node.elements[part]
            return None
        entry = node.entry(part)
        return (entry, entry.value) if entry else None

    @staticmethod
    def _nearest(node: YamlNode, entry: YamlEntry | None, depth: int) -> Place:
        if node.kind == "mapping" and entry is not None and not node.tag:
            return entry.source.place(entry.line, entry.column)
        return node.place()


# Arguments of calls as plain Python objects: numbers of other libraries, tables, lists and names.

Number = int | float
DEEPEST = 60  # tables and lists in each other, as in a file


def as_number(value: object) -> Number | None:
    """A number of numpy, pandas, SymPy or `fractions` as an int or float of exactly the same value.

    None for booleans, texts, and numbers that no float represents, such as 1/3; nan stays nan.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, Rational) and value.denominator == 1:
        return int(value.numerator)
    if isinstance(value, Real):
        try:
            result = float(value)
        except OverflowError:
            return None
        return result if result == value or result != result else None
    item = getattr(value, "item", None)
    if getattr(value, "shape", None) == () and callable(item):  # a zero-dimensional array
        inner: object = item()
        return None if type(inner) is type(value) else as_number(inner)
    return None


def as_whole(value: object) -> int | None:
    """The same for integers: None for any float, even one without a fractional part."""
    result = as_number(value)
    return result if isinstance(result, int) else None


def plainly(value: T, depth: int = 0) -> T:
    """The value with numbers of other libraries replaced by plain numbers, in nested tables and lists too.

    Data nested more deeply than any spec, or in itself, is left as it is; its reader refuses it.
    """
    result: object = value
    if type(value) in (dict, list, tuple):
        assert isinstance(value, (dict, list, tuple))
        if depth > DEEPEST:
            return value
        if isinstance(value, dict):
            result = {k: plainly(v, depth + 1) for k, v in value.items()}
        else:
            result = type(value)(plainly(v, depth + 1) for v in value)
    elif value is not None and type(value) not in (str, bool, int, float):
        number = as_number(value)
        result = value if number is None else number
    return cast(T, result)  # a number of another class has the same type here


def by_name(argument: str, given: object, example: str) -> dict[str, object]:
    """A table from names to values with plain numbers. Raises SpecError if `argument` is something else."""
    if not isinstance(given, Mapping):
        what = f"{shown(given)} is not a table of values by name"
        raise SpecError([Diagnostic(what, f"write e.g. {example}", argument, code="wrong-type")])
    wrong = [name for name in given if not isinstance(name, str)]
    if wrong:
        raise SpecError(
            [
                Diagnostic(f"{name!r} is not a name", f"write e.g. {example}", argument, code="invalid-name")
                for name in wrong
            ]
        )
    return {name: plainly(value) for name, value in given.items()}


def listed(argument: str, given: object, example: str) -> tuple[object, ...]:
    """Several values as a list; a single text is a list of one. Raises SpecError otherwise."""
    if isinstance(given, str):
        return (given,)
    if not isinstance(given, Iterable) or isinstance(given, Mapping):
        message = f"{shown(given)} is not a list"
        raise SpecError([Diagnostic(message, f"write e.g. {example}", argument, code="wrong-type")])
    return tuple(given)


def unknown(argument: str, given: object, known: Iterable[str], what: str) -> Diagnostic:
    """The fault of a word that is not among the known ones; `what` is their plural."""
    message = f"there is no {what.removesuffix('s')} {given!r}"
    return Diagnostic(message, suggestion(str(given), known, what), argument, code="unknown-choice")


def check_classes(made: object, remedy: str, classes: Mapping[str, type | tuple[type, ...]]) -> None:
    """Raise SpecError with every field of an object whose value is of a wrong class.

    A class that users know under another name has it in `CALLED`.
    """
    faults = []
    for name, known in classes.items():
        value = getattr(made, name)
        if not isinstance(value, known):
            of = known if isinstance(known, tuple) else (known,)
            wanted = " or ".join(getattr(c, "CALLED", c.__name__) for c in of if c is not type(None))
            what = f"{type(made).__name__}: {shown(value)} is not {with_article(wanted)}"
            faults.append(Diagnostic(what, remedy, name, code="wrong-type"))
    if faults:
        raise SpecError(faults)


def shown(value: object) -> str:
    """A wrong value in short form."""
    plain = value is None or isinstance(value, (str, int, float))
    return repr(value) if plain else f"a {type(value).__name__}"
