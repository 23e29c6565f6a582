"""Plain data of a section, taken apart with located faults."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from polymodel.spec.base import shown
from polymodel.spec.faults import Faults, Path, TextFault, suggestion
from polymodel.spec.numbers import Value, evaluate_number, symbols_in

T = TypeVar("T")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)


@dataclass(frozen=True)
class TreeWalk:
    """Reads a tree of nodes: every method records faults and continues with the valid parts."""

    faults: Faults

    def add(
        self,
        path: Path,
        message: str,
        remedy: str = "",
        *,
        key: bool = False,
        offset: int | None = None,
        code: str,
    ) -> None:
        self.faults.add(path, message, remedy, key=key, offset=offset, code=code)

    def mapping(self, value: object, path: Path, example: str) -> dict[str, object]:
        """Return the entries of a mapping; empty for an empty value."""
        if value is None:
            return {}
        if not isinstance(value, dict):
            self.add(path, f"{shown(value)} is not a mapping", f"write e.g. {example}", code="wrong-type")
            return {}
        return value

    def keys(self, value: dict[str, object], path: Path, known: Iterable[str]) -> None:
        """Record a fault for every unknown key."""
        words = tuple(known)
        for key in value:
            if key not in words:
                self.unknown((*path, key), "key", key, words)

    def unknown(self, path: Path, what: str, word: str, known: Iterable[str], plural: str = "") -> None:
        """Record a fault for an unknown key, or for a name that is a key."""
        quoted = f"`{word}`" if what == "key" else word
        message = f"unknown {what} {quoted}"
        self.add(path, message, suggestion(word, known, plural or f"{what}s"), key=True, code="unknown-name")

    def items(self, value: object, path: Path, example: str) -> list[object]:
        """A list; a single text is a list of one."""
        if value is None:
            return []
        if isinstance(value, str):
            return [value]
        if not isinstance(value, (list, tuple)):
            self.add(path, f"{shown(value)} is not a list", f"write e.g. {example}", code="wrong-type")
            return []
        return list(value)

    def names(self, value: object, path: Path, what: str, example: str) -> tuple[str, ...]:
        """A list of names without repetition."""
        result: list[str] = []
        for i, item in enumerate(self.items(value, path, example)):
            at = (*path, i) if isinstance(value, (list, tuple)) else path
            if not isinstance(item, str) or not NAME.match(item):
                message = f"{shown(item)} is not a name of a {what}"
                self.add(at, message, f"write e.g. {example}", code="invalid-name")
            elif item in result:
                self.add(at, f"{what} {item} is listed twice", "list it once", code="duplicate-name")
            else:
                result.append(item)
        return tuple(result)

    def parsed(self, value: object, path: Path, read: Callable[[str], T], example: str) -> T | None:
        """A text read by `read`; None after a fault."""
        if not isinstance(value, str):
            self.add(path, f"{shown(value)} is not text", f"write e.g. {example}", code="wrong-type")
            return None
        try:
            return read(value)
        except TextFault as fault:
            self.faults.text(path, fault)
            return None

    def parsed_key(self, key: str, path: Path, read: Callable[[str], T]) -> T | None:
        """The same for a key; `path` ends with it."""
        try:
            return read(key)
        except TextFault as fault:
            self.faults.text(path, fault, key=True)
            return None

    def size(self, value: object, path: Path) -> int | str | None:
        """Return an integer of at least 1, or an expression over symbols as written; None after a fault."""
        return self._whole(value, path, 1, "write a whole number of at least 1, or the name of a symbol")

    def count(self, value: object, path: Path, least: int) -> int | None:
        """Return an integer; None after a fault."""
        remedy = f"write a whole number of at least {least}"
        result = self._whole(value, path, least, remedy)
        if isinstance(result, str):
            self.add(path, f"{result} is not a number", remedy, code="not-a-number")
            return None
        return result

    def _whole(self, value: object, path: Path, least: int, remedy: str) -> int | str | None:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            self.add(path, f"{shown(value)} is not a number", remedy, code="not-a-number")
            return None
        try:
            if symbols_in(value):
                return str(value)
            number: Value = evaluate_number(value)
        except TextFault as fault:
            self.faults.text(path, fault)
            return None
        if not least <= number < 2**62 or number != int(number):
            message = f"{value} is not a whole number of at least {least}"
            self.add(path, message, remedy, code="not-an-integer")
            return None
        return int(number)
