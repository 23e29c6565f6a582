"""All errors that users can meet: one family of exceptions, and one located diagnostic.

This module imports nothing else of the package, so every room may raise these.
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

# Characters that control terminals or reverse text: control characters, direction marks, line separators.
_STEERING = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\ud800-\udfff]"
)


def masked(text: str) -> str:
    """The text with `?` for characters that control a terminal: names come from files. Line breaks and tabs
    stay."""
    return _STEERING.sub("?", text)


# The kinds of faults with their meanings. Programs and tests distinguish faults by their codes, because
# sentences may change. docs/reference/codes.md is made from this table.
CODES = {
    # Texts and files
    "syntax-error": "a text breaks the grammar of its language: YAML, a template, an expression, tensor data",
    "unreadable-file": "a file or folder is missing, or cannot be read as text",
    "unwritable-file": "an output cannot be written",
    "file-exists": "an output exists already and is kept",
    "unknown-format": "neither the ending nor the content of a file identifies a known format",
    "foreign-file": "a file or key belongs to another tool",
    "read-otherwise": "an importer changes what a file says, or assumes a value",
    "unsupported-version": "a file is of a version that this release does not read",
    "damaged-file": "a file is damaged, or does not hold what it should",
    "store-mismatch": "a store holds the state of another run",
    "store-in-use": "another process works in the same store",
    # Names, keys and choices
    "unknown-name": "there is nothing of that name",
    "undeclared-name": "nothing declares a name of an expression, as far as could be read",
    "unknown-key": "a key, section, option or column that does not exist",
    "unknown-choice": "a value that is not one of the allowed ones",
    "unused-variable": "a value is given to a variable that nothing uses",
    "assertion-failed": "template variables do not meet a condition that the template asserts",
    "duplicate-name": "a name, key or entry is given twice",
    "name-conflict": "a name is taken by something else",
    "invalid-name": "a value cannot be a name",
    # Values
    "wrong-type": "a value is of another kind than the expected one",
    "not-a-number": "a number is expected",
    "not-an-integer": "an integer is expected",
    "not-positive-integer": "a positive integer is expected",
    "out-of-range": "a number lies outside its range",
    "number-too-large": "a number exceeds what is computed with, 62 or 64 bits for counts",
    "undefined-result": "arithmetic without a result, such as a division by zero",
    "wrong-unit": "a unit is unknown, or of another dimension",
    "not-affine": "an expression is not affine where it has to be",
    "wrong-count": "a list, call or rank list has another number of entries than expected",
    "empty-tensor": "a tensor has no entries",
    "shape-mismatch": "shapes or ranks of tensors do not fit together",
    "inconsistent-values": "two values contradict each other",
    "cyclic-definition": "definitions refer to each other",
    # What is there
    "missing-key": "a key is required",
    "missing-section": "a section of the spec is required",
    "missing-argument": "an argument or option is required",
    "missing-value": "a size, a scalar, data or an attribute has no value",
    "unbound-symbol": "a symbol has no value yet",
    "conflicting-arguments": "arguments exclude each other",
    "ineffective-argument": "an argument has no effect here",
    "nothing-to-show": "an answer has nothing of the requested kind",
    # Workloads
    "empty-space": "an iteration space is empty or unbounded",
    "cyclic-cascade": "Einsums depend on each other",
    "duplicate-producer": "several Einsums produce one tensor",
    "order-violated": "something is used before it is produced",
    "invalid-einsum": "an Einsum breaks the rules of its form",
    "invalid-operator": "an operator cannot be defined or used in this way",
    "invalid-recurrence": "what is carried from one iteration to the next is not well defined",
    # Architectures
    "missing-component": "the architecture lacks a component",
    "invalid-component": "a component cannot have this attribute or do this",
    "missing-energy": "no energy is given for an action",
    "failed-energy-model": "an energy model fails or gives a wrong answer",
    # Mappings
    "invalid-structure": "the nodes of a mapping do not form a tree of its rules",
    "invalid-partitioning": "a partitioning or loop order of a TeAAL mapping breaks its rules",
    "unmapped-einsum": "an Einsum is not in the mapping",
    "missing-storage": "a tensor has no storage where it needs one",
    "misplaced-storage": "a storage node stands at a place where its component cannot hold it",
    "invalid-loop": "a loop does not fit the Einsums or the component it stands at",
    "invalid-tile-size": "a tile size is below 1, or exceeds the extent that it divides",
    "over-fanout": "spatial loops need more instances than there are",
    "over-capacity": "something does not fit a memory or a buffer",
    "constraint-violated": "a rule of the architecture or of the spec forbids this mapping",
    "illegal-dependence": "a mapping breaks a dependence between operations",
    "unreduced-output": "partial sums are spread over instances that nothing adds up",
    "contradictory-constraints": "constraints exclude each other",
    "no-solution": "nothing satisfies all constraints and limits",
    # Valid inputs that are not covered
    "too-large": "there are too many points, tiles, terms or combinations to go through",
    "unsupported-pipeline": "a Pipeline in this place, or with these stages",
    "unsupported-rounding": "transfers that are rounded up to whole actions",
    "unsupported-inference": "Einsums whose executed operations are inferred from their consumers",
    "unsupported-window": "windows: ranks that several rank variables index, and what overlaps",
    "unsupported-reuse": "data that stay in a memory from one tile to the next, in part or under a policy",
    "unsupported-instances": "instances that differ: in their tiles, in what they hold, or in when they work",
    "unsupported-link": "links and tolls with costs, and how they are passed",
    "unsupported-recurrence": "values that are carried from one iteration to the next",
    "unsupported-copy": "copies of tensors",
    "unsupported-space": "iteration spaces that are not boxes, and rank variables tied by bounds",
    "unsupported-loop": "loops or tile sizes of this kind",
    "unsupported-symbol": "symbols in this place",
    "unsupported-memory": "memories with this attribute, or with storage arranged in this way",
    "unsupported-einsum": "Einsums of this form, such as several outputs or accesses",
    "unsupported-operation": "operators, terms or functions of this kind",
    "unsupported-shape": "tensors with this number of ranks",
    "unsupported-density": "densities or nonzeros that do not tell what is needed",
    "unsupported-format": "formats that do not tell what is needed",
    "unsupported-partitioning": "partitionings of TeAAL specs of this kind",
    "unsupported-binding": "bindings of TeAAL specs of this kind",
    "unsupported-constraint": "constraints of this kind",
    "no-counterpart": "another tool has nothing that corresponds",
    # Limits and packages
    "time-limit": "the time limit is passed",
    "memory-limit": "more memory is needed than the limit leaves",
    "no-cluster": "no cluster answers, or it has no workers",
    "lost-workers": "workers of a cluster have ended before they gave a result",
    "missing-package": "a package is missing, or is another one of that name",
    "missing-device": "no accelerator is there that JAX can use, or it fails",
    "more-faults": "stands for further faults, which are not listed",
}

# A diagnostic shows only the part around the fault of a longer source line.
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
    """One fault: what is wrong, where, and how to correct it. `code` is one of `CODES`."""

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
            # A damaged file must not control the terminal; tabs keep the caret below its place.
            shown = "".join(c if c == "\t" or (c.isprintable() and c != "\ufffd") else "?" for c in text)
            lines.append("    " + shown)
            pad = "".join("\t" if c == "\t" else " " for c in text[:column])
            lines.append("    " + pad + "^")
        if self.remedy:
            lines.append("  remedy: " + self.remedy)
        return masked("\n".join(lines))

    def record(self) -> dict[str, str | int]:
        """The fault for programs: `code`, `message`, `remedy`, `path`, `file`, `line` and `column`.

        Empty texts and 0 stand for what is unknown; lines and columns count from 1.
        """
        return {
            "code": self.code,
            "message": self.message,
            "remedy": self.remedy,
            "path": self.path,
            "file": self.place.file,
            "line": self.place.line,
            "column": self.place.column,
        }


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
    """The input is invalid. Carries every fault found, not only the first."""

    def __init__(self, diagnostics: tuple[Diagnostic, ...] | list[Diagnostic]) -> None:
        self.diagnostics: tuple[Diagnostic, ...] = tuple(diagnostics)
        count = len(self.diagnostics)
        head = f"{count} fault{'s' if count != 1 else ''} in the input"
        super().__init__("\n".join([head, *(d.render() for d in self.diagnostics)]))


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# Operating-system errors -> polymodel's words for them.
_MEND: tuple[tuple[type[OSError], str], ...] = (
    (IsADirectoryError, "name a file, not a folder"),
    (FileExistsError, "name a folder, not a file"),
    (NotADirectoryError, "a part of the path is a file: name a folder"),
    (FileNotFoundError, "make the folder first, or name one that exists"),
    (PermissionError, "choose a place that may be written to"),
)


def mending(error: OSError) -> str:
    """The remedy for an error of the operating system; empty if there is none."""
    if error.errno in _FULL:
        return "make room there, or choose another place; what was there before is as it was"
    if "temporary directory" in str(error):
        return "set TMPDIR to a folder that may be written to"
    return next((text for kind, text in _MEND if isinstance(error, kind)), "")


@contextmanager
def writing(target: str | PathLike[str]) -> Iterator[None]:
    """Turns an operating-system error while writing `target` into a SpecError, with a remedy where there is
    one."""
    if not isinstance(target, (str, PathLike)):
        raise SpecError(
            [
                Diagnostic(
                    f"cannot write {target!r}: it is not a name of a file",
                    "write e.g. 'out'",
                    code="unwritable-file",
                )
            ]
        )
    if "\0" in str(target):
        message = f"cannot write {target!r}: a name has no zero byte"
        raise SpecError([Diagnostic(message, "choose another name", code="unwritable-file")])
    try:
        yield
    except OSError as error:
        remedy = mending(error)
        named = error.filename or target
        # The temporary file that would replace it, or a file for which there is no space.
        named = target if ".new" in str(named) or error.errno in _FULL else named
        message = f"cannot write {named}: {error.strerror or error}"
        raise SpecError([Diagnostic(message, remedy, code="unwritable-file")]) from error


class Refused(PolymodelError):
    """The input is valid, but the case is outside what can be answered exactly. `code` is one of `CODES`."""

    code = ""

    def __init__(self, message: str, remedy: str = "", *, code: str = "") -> None:
        self.message = message
        self.remedy = remedy
        self.code = code or self.code
        super().__init__(masked(message + (f"\n  remedy: {remedy}" if remedy else "")))


class PackageFault(PolymodelError, ImportError):
    """A required package is missing, or another package has its name."""

    code = "missing-package"

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message}\n  remedy: {remedy}")


class InternalError(PolymodelError):
    """Two parts of polymodel disagree: a bug, never the fault of the input."""

    def _render_traceback_(self) -> list[str]:
        """All frames: they are what a report of the bug needs."""
        return traceback.format_exception(self)


class NotSeparable(Refused):
    """The closed-form engine does not cover this tensor or Einsum; the exact engine may."""

    def __init__(self, message: str, remedy: str = "use engine exact", *, code: str) -> None:
        super().__init__(message, remedy, code=code)


class LimitReached(PolymodelError):
    """A limit of time or memory ended the work. Not a Refused, so that callers that try another method do not
    continue."""

    code = ""

    def __init__(self, message: str, remedy: str = "") -> None:
        self.message = message
        self.remedy = remedy
        super().__init__(message + (f"\n  remedy: {remedy}" if remedy else ""))


class TimeUp(LimitReached):
    """The time limit has passed."""

    code = "time-limit"


class MemoryUp(LimitReached):
    """The work needs more memory than the limit allows."""

    code = "memory-limit"
