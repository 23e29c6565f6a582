"""Every failure a user can meet: one exception family, one located diagnostic.

Nothing below this module exists, so every room may raise these.
"""

from __future__ import annotations

import errno
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from os import PathLike, sep
from pathlib import Path

# What would steer a terminal or turn text around: control characters, marks of direction, line separators.
_STEERING = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\ud800-\udfff]"
)


def masked(text: str) -> str:
    """The text with `?` for what would steer a terminal: names come from files. Lines and tabs stay."""
    return _STEERING.sub("?", text)


# Of a longer source line, a diagnostic shows the part around the fault.
_WIDTH = 200


@dataclass(frozen=True)
class Place:
    """Where in a source text something stands; lines and columns count from 1, 0 means unknown."""

    file: str = ""
    line: int = 0
    column: int = 0
    text: str = ""

    def __str__(self) -> str:
        parts = [self.file or "<input>"]
        if self.line:
            parts.append(str(self.line))
            if self.column:
                parts.append(str(self.column))
        return ":".join(parts)


@dataclass(frozen=True)
class Diagnostic:
    """One fault: what is wrong, where, and how to mend it."""

    message: str
    remedy: str = ""
    path: str = ""
    place: Place = field(default_factory=Place)
    code: str = ""

    def render(self) -> str:
        """The fault as text: place, path, message, the source line with a caret, the remedy."""
        head = f"{self.place}: " if self.place.file or self.place.line else ""
        where = f"{self.path}: " if self.path else ""
        lines = [f"{head}{where}{self.message}"]
        if self.place.text:
            text, column = self.place.text.rstrip("\n"), max(self.place.column - 1, 0)
            if len(text) > _WIDTH:
                start = max(0, column - _WIDTH // 2)
                text, column = text[start : start + _WIDTH], column - start
            # A damaged file must not steer the terminal; tabs keep the caret below its place.
            shown = "".join(c if c == "\t" or (c.isprintable() and c != "\ufffd") else "?" for c in text)
            lines.append("    " + shown)
            pad = "".join("\t" if c == "\t" else " " for c in text[:column])
            lines.append("    " + pad + "^")
        if self.remedy:
            lines.append("  remedy: " + self.remedy)
        return masked("\n".join(lines))


class PolymodelError(Exception):
    """Base of every error that polymodel raises on purpose."""

    def _render_traceback_(self) -> list[str]:
        """Lines that notebooks and IPython show instead of all frames: the caller's line, and the message."""
        here = f"{Path(__file__).parent}{sep}"  # a folder beside it, such as polymodel-work, is the caller's
        frames = traceback.extract_tb(self.__traceback__)
        # Below the first frame of ours there are others too, such as those of `with`.
        before = takewhile(lambda f: not f.filename.startswith(here), frames)
        own = [f for f in before if "/IPython/" not in f.filename]
        where = [f"line {f.lineno}: {f.line}" for f in own[-1:] if f.line]
        return [*where, f"{type(self).__name__}: {self}"]


class SpecError(PolymodelError):
    """The input is wrong. Carries every fault found, not only the first."""

    def __init__(self, diagnostics: tuple[Diagnostic, ...] | list[Diagnostic]) -> None:
        self.diagnostics: tuple[Diagnostic, ...] = tuple(diagnostics)
        count = len(self.diagnostics)
        head = f"{count} fault{'s' if count != 1 else ''} in the input"
        super().__init__("\n".join([head, *(d.render() for d in self.diagnostics)]))


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# What an operating system calls an error in words of its own.
_MEND: tuple[tuple[type[OSError], str], ...] = (
    (IsADirectoryError, "name a file, not a folder"),
    (FileExistsError, "name a folder, not a file"),
    (NotADirectoryError, "a part of the path is a file: name a folder"),
    (FileNotFoundError, "make the folder first, or name one that exists"),
    (PermissionError, "choose a place that may be written to"),
)


def mending(error: OSError) -> str:
    """What to do about an error of the system; empty where nobody knows."""
    if error.errno in _FULL:
        return "make room there, or choose another place; what was there before is as it was"
    if "temporary directory" in str(error):
        return "set TMPDIR to a folder that may be written to"
    return next((text for kind, text in _MEND if isinstance(error, kind)), "")


@contextmanager
def writing(target: str | PathLike[str]) -> Iterator[None]:
    """Whatever keeps the system from writing `target` is a SpecError, with a remedy where there is one."""
    if not isinstance(target, (str, PathLike)):
        raise SpecError(
            [Diagnostic(f"cannot write {target!r}: it is not a name of a file", "write e.g. 'out'")]
        )
    if "\0" in str(target):
        raise SpecError(
            [Diagnostic(f"cannot write {target!r}: a name has no zero byte", "choose another name")]
        )
    try:
        yield
    except OSError as error:
        remedy = mending(error)
        named = error.filename or target
        # The file that is to take its place, or that there is no room for.
        named = target if ".new" in str(named) or error.errno in _FULL else named
        message = f"cannot write {named}: {error.strerror or error}"
        raise SpecError([Diagnostic(message, remedy)]) from error


class Refused(PolymodelError):
    """The input is right, but this case is outside what can be answered exactly."""

    def __init__(self, message: str, remedy: str = "") -> None:
        self.message = message
        self.remedy = remedy
        super().__init__(masked(message + (f"\n  remedy: {remedy}" if remedy else "")))


class PackageFault(PolymodelError, ImportError):
    """A package that polymodel needs is missing, or is another one of that name."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message}\n  remedy: {remedy}")


class InternalError(PolymodelError):
    """Two parts of polymodel disagree: a bug, and never the input's fault."""

    def _render_traceback_(self) -> list[str]:
        """All frames: they are what a report of the bug needs."""
        return traceback.format_exception(self)


class NotSeparable(Refused):
    """The closed-form engine does not cover this tensor or Einsum; the exact engine may."""


class LimitReached(PolymodelError):
    """A limit of time or memory ended the work. No Refused: nobody who tries another way may go on."""

    def __init__(self, message: str, remedy: str = "") -> None:
        self.message = message
        self.remedy = remedy
        super().__init__(message + (f"\n  remedy: {remedy}" if remedy else ""))


class TimeUp(LimitReached):
    """The time limit is passed."""


class MemoryUp(LimitReached):
    """More memory is needed than the limit leaves."""
