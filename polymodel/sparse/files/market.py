"""Matrix Market files: coordinate and array; real, integer, pattern, complex; all four symmetries.

Source: Boisvert, Pozo, Remington, The Matrix Market Exchange Formats (NISTIR 5935).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from polymodel.errors import InternalError
from polymodel.sparse.files.entries import WHOLE, Entries, Field, Ints, Rule, read_entries
from polymodel.sparse.files.record import TensorFile, record
from polymodel.sparse.files.text import Text, comment_of, keep

Symmetry = Literal["general", "symmetric", "skew-symmetric", "hermitian"]
_BANNER = b"%%matrixmarket"
_WORDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("object", ("matrix",)),
    ("layout", ("coordinate", "array")),
    ("field", ("real", "integer", "pattern", "complex")),
    ("symmetry", ("general", "symmetric", "skew-symmetric", "hermitian")),
)
_LARGEST = 2**63 - 1
_FORM = "%%MatrixMarket matrix coordinate real general"


@dataclass(frozen=True)
class Header:
    """The first line, the comments, and the line of sizes (`line`, `text`)."""

    layout: str
    field: Field
    symmetry: Symmetry
    rows: int
    columns: int
    entries: int
    line: int
    text: bytes
    comments: tuple[str, ...]

    @property
    def rule(self) -> Rule:
        if self.layout == "array":
            return Rule(0, self.field)
        hollow, hermitian = self.symmetry == "skew-symmetric", self.symmetry == "hermitian"
        return Rule(2, self.field, (self.rows, self.columns), hollow, hermitian)


def read_market(text: Text, name: str, ranks: Sequence[str]) -> TensorFile:
    """The matrix of an opened file; SpecError with all faults that were found."""
    header = _header(text)
    if header is None:
        text.faults.check()
        raise InternalError(f"{text.path}: no header, and no reason told")
    found = read_entries(text, header.rule)
    entries = int(found.values.size) + text.faults.lines
    # How many values the wrong lines of an array stand for is not known.
    counted = header.layout == "coordinate" or not text.faults.lines
    if counted and not text.broken and not text.faults.stopped and entries != header.entries:
        _miscounted(text, header, entries)
    above = 0
    if header.layout == "array":
        text.faults.check()
        found = Entries(_places(header), found.values)
    elif header.symmetry != "general":
        above = _above(text, header, found)
    text.faults.check()
    full, mirrored = _expanded(found, header.symmetry)
    tensor = name, ranks, (header.rows, header.columns)
    path, kind = str(text.path), f"Matrix Market {header.layout}"
    made = record(path, tensor, full, mirrored, kind, header.field, header.symmetry, header.comments)
    if not above:
        return made
    note = (
        f"{above:,} entries of a matrix stored by symmetry lie above the diagonal, where the format has "
        "none; they are mirrored like those below it"
    )
    return replace(made, notes=(note,))


def _header(text: Text) -> Header | None:
    banner = text.peek()
    if banner is None or not banner.strip():
        if not text.broken:
            text.faults.add("the file is empty" if banner is None else "the first line is empty", _start())
        return None
    words = _banner(text, banner)
    text.skip()
    comments: list[str] = []
    while (line := text.peek()) is not None and (not line.strip() or line.lstrip().startswith(b"%")):
        if line.strip():
            keep(comments, comment_of(line, b"%"))
        text.skip()
        text.idle(1, len(line))
    if line is None:
        if not text.broken:
            text.faults.add(
                "the line of sizes is missing", "rows columns entries, after the comments", text.line
            )
        return None
    if words is None:
        return None
    layout, field, symmetry = words
    sizes = _sizes(text, line, layout)
    if sizes is None:
        return None
    rows, columns = sizes[:2]
    if symmetry != "general" and rows != columns:
        message = f"a {symmetry} matrix is square, this one is {rows:,} x {columns:,}"
        text.faults.add(message, "write `general` in the header, or mend the sizes", text.line, line)
        return None
    entries = sizes[2] if layout == "coordinate" else _stored(rows, columns, symmetry)
    at = text.line
    text.skip()
    return Header(layout, field, symmetry, rows, columns, entries, at, line, tuple(comments))


def _start() -> str:
    return f"a Matrix Market file starts with a line such as {_FORM}"


def _banner(text: Text, line: bytes) -> tuple[str, Field, Symmetry] | None:
    tokens = line.decode("utf-8", errors="replace").lower().split()
    if not tokens or tokens[0].encode() != _BANNER:  # no word: other signs that are blank
        text.faults.add("this is no Matrix Market header", _start(), text.line, line)
        return None
    before = len(text.faults.told)
    if len(tokens) != 5:
        text.faults.add(f"the header has {len(tokens)} words, not 5", _start(), text.line, line)
    for (what, known), token in zip(_WORDS, tokens[1:], strict=False):
        if token not in known:
            near = get_close_matches(token, known, 1)
            remedy = f"did you mean {near[0]}?" if near else f"one of {', '.join(known)}"
            column = line.lower().find(token.encode()) + 1
            text.faults.add(f"{what} {token} is not known", remedy, text.line, line, max(column, 1))
    if len(text.faults.told) > before:
        return None
    layout, field, symmetry = tokens[2:]
    for wrong, message, remedy in (
        (
            layout == "array" and field == "pattern",
            "an array has values, a pattern none",
            "coordinate pattern",
        ),
        (
            symmetry == "hermitian" and field != "complex",
            "a hermitian matrix is complex",
            "complex hermitian",
        ),
        (
            symmetry == "skew-symmetric" and field == "pattern",
            "a skew-symmetric matrix has values of both signs, a pattern none",
            "pattern symmetric",
        ),
    ):
        if wrong:
            text.faults.add(message, f"write {remedy}", text.line, line)
            return None
    return layout, cast(Field, field), cast(Symmetry, symmetry)


def _sizes(text: Text, line: bytes, layout: str) -> list[int] | None:
    wanted = ["rows", "columns", "entries"][: 3 if layout == "coordinate" else 2]
    tokens = line.split()
    if len(tokens) != len(wanted):
        message = f"{len(tokens)} numbers in the line of sizes, not {len(wanted)}"
        text.faults.add(message, f"it holds {' '.join(wanted)}", text.line, line)
        return None
    found: list[int] = []
    for what, token in zip(wanted, tokens, strict=True):
        column = line.find(token) + 1
        least = 0 if what == "entries" else 1
        said = token[:40].decode("utf-8", errors="replace")
        number = int(token) if WHOLE.match(token) and len(token) < 30 else None
        if number is None:
            fault = f"{what}: {said} is not a whole number"
            text.faults.add(fault, "mend the sizes", text.line, line, column)
        elif number < least:
            text.faults.add(f"{what}: {said} is below {least}", "mend the sizes", text.line, line, column)
        elif number > _LARGEST:
            text.faults.add(
                f"{what}: {said} does not fit in 64 bits", "mend the sizes", text.line, line, column
            )
        else:
            found.append(number)
    return found if len(found) == len(wanted) else None


def _stored(rows: int, columns: int, symmetry: Symmetry) -> int:
    """How many values an array stores: all, or the lower triangle with or without its diagonal."""
    if symmetry == "general":
        return rows * columns
    return rows * (rows - 1) // 2 if symmetry == "skew-symmetric" else rows * (rows + 1) // 2


def _miscounted(text: Text, header: Header, found: int) -> None:
    if header.layout == "array":
        said = f"{header.rows:,} x {header.columns:,} ({header.symmetry}) makes {header.entries:,} values"
    else:
        said = f"the header says {header.entries:,} entries"
    few = found < header.entries
    remedy = (
        "the file seems cut off: fetch it again" if few else "mend the count, or drop the surplus entries"
    )
    message = (
        f"{said}, the file has {found:,}: {abs(found - header.entries):,} too {'few' if few else 'many'}"
    )
    text.faults.add(message, remedy, header.line, header.text)


def _places(header: Header) -> Ints:
    """Coordinates of the values of an array: column by column, each from the top or from the diagonal."""
    if header.symmetry == "general":
        column, row = np.divmod(np.arange(header.entries), header.rows)
        return np.stack([row, column])
    skip = int(header.symmetry == "skew-symmetric")
    lengths = header.rows - skip - np.arange(header.columns)
    column = np.repeat(np.arange(header.columns), lengths)
    row = np.arange(header.entries) - np.repeat(np.cumsum(lengths) - lengths, lengths) + column + skip
    return np.stack([row, column])


def _above(text: Text, header: Header, found: Entries) -> int:
    """How many entries lie above the diagonal. A fault where one of them and its mirror image are both there:
    summed, as duplicates are, they would count twice."""
    row, column = found.coords
    upper = row < column
    count = int(np.count_nonzero(upper))
    if not count:
        return 0
    # Pairs in order are found by halves: no number of a pair, which may not fit in 64 bits.
    pairs = np.stack([np.minimum(row, column), np.maximum(row, column)])
    order = np.lexsort(pairs)
    same = (pairs[:, order[1:]] == pairs[:, order[:-1]]).all(axis=0)
    both = np.flatnonzero(same & (upper[order[1:]] != upper[order[:-1]]))
    if both.size:
        i, j = (int(x) + 1 for x in pairs[:, order[both[0]]])
        more = f" and {both.size - 1:,} more such" if both.size > 1 else ""
        what = f"both halves of a {header.symmetry} matrix are stored: ({j}, {i}) and ({i}, {j}){more}"
        text.faults.add(what, "write `general` in the header, or drop one half", header.line, header.text)
    return count


def _expanded(found: Entries, symmetry: Symmetry) -> tuple[Entries, int]:
    """Both halves, and how many entries that adds: those off the diagonal once more."""
    if symmetry == "general":
        return found, 0
    off = found.coords[0] != found.coords[1]
    other: NDArray[Any] = found.values[off]
    other = -other if symmetry == "skew-symmetric" else other.conj() if symmetry == "hermitian" else other
    coords = np.concatenate([found.coords, found.coords[::-1, off]], axis=1)
    return Entries(coords, np.concatenate([found.values, other])), int(other.size)
