"""Collecting faults: every room below `load` adds to one list, so that all of them are told at once."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from polymodel.errors import Diagnostic, Place, SpecError

Path = tuple[str | int, ...]
T = TypeVar("T")
# Nobody mends more at once; the words compared with a misspelt one.
MAX_FAULTS = 500
MAX_NEAR = 2000
_MORE = "more-faults"


class TextFault(SpecError):
    """One fault inside a short text (an expression): where in the text, what, and the remedy."""

    code = ""

    def __init__(self, message: str, offset: int = 0, remedy: str = "") -> None:
        self.message = message
        self.offset = offset
        self.remedy = remedy
        super().__init__((Diagnostic(message, remedy),))


class UnknownName(TextFault):
    """A name that nothing declares, as far as could be read."""

    code = "unknown-name"


def each(*calls: Callable[[], T]) -> list[T]:
    """What every call gives, in order. The faults of all that raise SpecError are one SpecError."""
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
    """Answers where the value at a path stands; `key` asks for the key in front of it."""

    def place(self, path: Path, *, key: bool = False, offset: int | None = None) -> Place: ...


class Nowhere:
    """The locator of objects made in Python: they stand in no file."""

    def place(self, path: Path, *, key: bool = False, offset: int | None = None) -> Place:
        return Place()


@dataclass(frozen=True)
class Joined:
    """Locates the mapping by `first`, all other sections by `second`."""

    first: Locator
    second: Locator

    def place(self, path: Path, *, key: bool = False, offset: int | None = None) -> Place:
        chosen = self.first if path and path[0] == "mapping" else self.second
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
    """The known word that is nearest to `word`, empty if none is near."""
    words = list(dict.fromkeys(known))[:MAX_NEAR]
    word = str(word)[:200]  # an argument may be anything
    found = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    if not found:
        lowered = {w.lower(): w for w in reversed(words)}
        near = difflib.get_close_matches(word.lower(), list(lowered), n=1, cutoff=0.6)
        found = [lowered[n] for n in near]
    if not found and len(word) > 2:
        found = [w for w in words if w.lower().startswith(word.lower())]
    return found[0] if found else ""


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


def not_a(what: str, call: str, given: object, remedy: str) -> SpecError:
    """The error of a call that was given something else in the place of a spec or a report."""
    plain = given is None or isinstance(given, (str, int, float))
    shown = repr(given) if plain else f"a {type(given).__name__}"
    return SpecError([Diagnostic(f"{call}: {shown} is no {what}", remedy)])


def not_a_spec(call: str, given: object) -> SpecError:
    """The same for a spec."""
    loaded = f"pm.load({given!r})" if isinstance(given, str) else "what pm.load(...) gives"
    return not_a("spec", call, given, f"pass {loaded}")


def too_many(place: Place) -> Diagnostic:
    """Stands for all faults beyond the bound."""
    return Diagnostic(f"more than {MAX_FAULTS} faults: the rest is not told", "", "", place, _MORE)


def in_reading_order(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """File by file as they were met, each from top to bottom."""
    found = tuple(diagnostics)
    files = list(dict.fromkeys(d.place.file for d in found))

    def order(d: Diagnostic) -> tuple[bool, int, int, int]:
        return d.code == _MORE, files.index(d.place.file), d.place.line, d.place.column

    return tuple(sorted(found, key=order))


@dataclass
class Faults:
    """The faults found so far. Equal faults at one place are kept once, and 500 of them are enough."""

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
        """Note one fault at `path`; `offset` counts characters into the text of the value."""
        if self.full:
            return
        place = self.locator.place(path, key=key, offset=offset)
        self.note(Diagnostic(message, remedy, path_text(path), place, code))

    def text(self, path: Path, fault: TextFault, *, key: bool = False) -> None:
        """Note a fault that an expression parser found inside the value (or key) at `path`."""
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
        """What raises SpecError inside has its faults noted; what stands behind the block goes on."""
        try:
            yield
        except SpecError as error:
            self.extend(error.diagnostics)

    def raise_if_any(self) -> None:
        if self.found:
            raise SpecError(in_reading_order(self.found))

    def __len__(self) -> int:
        return len(self.found)
