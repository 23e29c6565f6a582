"""Read tensors from files, and record how the entries of a file were converted to a tensor."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from math import prod
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from polymodel.errors import InternalError
from polymodel.frozen import dataclass
from polymodel.sparse.files.text import (
    WHOLE,
    Entries,
    Field,
    Ints,
    Rule,
    Text,
    comment_of,
    keep,
    read_entries,
)
from polymodel.sparse.tensor import SparseTensor

# The result of a reader: the tensor, and the changes to the entries of the file.


@dataclass(frozen=True, eq=False)
class TensorFile:
    """A tensor with the record of its file.

    `entries`: those stored in the file. `mirrored`: entries added because the file stores one half of a
    symmetric matrix. `explicit_zeros`: entries (including mirrored ones) equal to the value of absent points,
    zero. `duplicates`: entries added to another one at the same point. `cancelled`: points whose entries add
    up to zero. Therefore tensor.nnz = entries + mirrored - explicit_zeros - duplicates - cancelled.
    """

    path: str
    tensor: SparseTensor
    format: str
    field: Field
    symmetry: str
    entries: int
    mirrored: int
    explicit_zeros: int
    duplicates: int
    cancelled: int
    comments: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        done = [
            f"{count:,} {word}"
            for word, count in (
                ("mirrored", self.mirrored),
                ("explicit zeros removed", self.explicit_zeros),
                ("duplicates summed", self.duplicates),
                ("points cancelled", self.cancelled),
            )
            if count
        ]
        kind = f"{self.format}, {self.field} {self.symmetry}, {self.entries:,} entries"
        return f"TensorFile({self.path}: {', '.join([kind, *done])}: {self.tensor!r})"


def _distinct(coords: Ints, shape: Sequence[int]) -> int:
    """Return the number of distinct points."""
    if prod(shape) > 2**63 - 1:
        return int(np.unique(coords, axis=1).shape[1])
    numbers = np.ravel_multi_index(tuple(coords), tuple(shape))
    numbers.sort()
    return 1 + int(np.count_nonzero(np.diff(numbers)))


def record(
    path: str,
    tensor: tuple[str, Sequence[str], Sequence[int]],
    found: Entries,
    mirrored: int,
    format: str,
    field: Field,
    symmetry: str = "general",
    comments: Sequence[str] = (),
    fill: float = 0.0,
) -> TensorFile:
    """Return the record of entries that are all within the shape. `tensor`: its name, ranks and shape.

    `mirrored`: how many of the entries are not in the file.
    """
    name, ranks, shape = tensor
    kept = found.values != fill
    zeros = int(kept.size - np.count_nonzero(kept))
    coords, values = (found.coords[:, kept], found.values[kept]) if zeros else (found.coords, found.values)
    made = SparseTensor.from_coo(name, ranks, shape, coords, values, fill=fill)
    points = made.nnz if made.nnz == values.size else _distinct(coords, shape)
    return TensorFile(
        path=path,
        tensor=made,
        format=format,
        field=field,
        symmetry=symmetry,
        entries=int(found.values.size) - mirrored,
        mirrored=mirrored,
        explicit_zeros=zeros,
        duplicates=int(values.size) - points,
        cancelled=points - made.nnz,
        comments=tuple(comments),
    )


# FROSTT files (.tns): a line per entry, coordinates from 1 and a value; comments start with #.
#
# The files say neither order nor shape. The order is that of `ranks` or `shape` where given, else the last
# column is the value; the shape is the one given, else that of a comment `# shape: 3 4 5`, else the data's
# largest coordinates. A comment `# field: integer` (or pattern: no value column) is honoured as well; both
# are what `write_tensor` writes. Source: frostt.io, "File Formats".

_SAID = re.compile(r"(shape|field)\s*:\s*(.*)\Z", re.IGNORECASE)
_LARGEST = 2**63 - 1
MOST_RANKS = 32  # numpy's limit


@dataclass
class _CommentData:
    """The information in the comments before the first entry."""

    comments: list[str]
    shape: tuple[int, ...] | None = None
    field: Field | None = None


def read_frostt(
    text: Text, name: str, ranks: Sequence[str] | None, shape: Sequence[int] | None, fill: float = 0.0
) -> TensorFile:
    """Return the tensor of an opened file. Raises SpecError with all faults that were found."""
    stated, first = _comments(text)
    sizes = tuple(shape) if shape is not None else stated.shape
    order = len(ranks) if ranks is not None else None if sizes is None else len(sizes)
    if not text.broken and first is None and (order is None or sizes is None):
        message = "the file has no entries"
        text.faults.add(message, "give `ranks` and `shape` if it is an empty tensor", code="empty-tensor")
    field = stated.field or "real"
    if first is not None:
        order, field = _columns(text, first, order, stated.field)
    if order is None or (text.faults.told and not text.broken):
        text.faults.check()
        raise InternalError(f"{text.path}: no order, and no reason told")
    if sizes is not None and len(sizes) != order:
        message = f"{len(sizes)} sizes for {order} ranks"
        text.faults.add(message, "one size per rank", text.line, first or b"", code="wrong-count")
        text.faults.check()
    result = read_entries(text, Rule(order, field, sizes))
    text.faults.check()
    if sizes is None:
        sizes = tuple(int(row.max()) + 1 for row in result.coords)
    names = tuple(ranks) if ranks is not None else default_ranks(order)
    made = record(
        str(text.path), (name, names, sizes), result, 0, "FROSTT", field, "general", stated.comments, fill
    )
    certain = ranks is not None or shape is not None or stated.field
    return made if certain else replace(made, notes=_doubt(result, order, made.duplicates))


def default_ranks(order: int) -> tuple[str, ...]:
    """Return I, J, K, ... as long as letters up to Z suffice, else R0, R1, ..."""
    if order <= ord("Z") - ord("I") + 1:
        return tuple(chr(ord("I") + k) for k in range(order))
    return tuple(f"R{k}" for k in range(order))


def _comments(text: Text) -> tuple[_CommentData, bytes | None]:
    """Return the information in the comments above the first entry, and its line."""
    stated = _CommentData([])
    while (line := text.peek()) is not None and (not line.strip() or line.lstrip()[:1] in (b"#", b"%")):
        if words := comment_of(line, b"#%"):
            keep(stated.comments, words)
            _read_shape(text, stated, words, line)
        text.skip()
        text.idle(1, len(line))
    return stated, line


def _read_shape(text: Text, stated: _CommentData, said: str, line: bytes) -> None:
    match = _SAID.match(said)
    if not match:
        return
    words = re.split(r"[\s,x]+", match[2].strip())
    if match[1].lower() == "shape":
        if all(w.isascii() and w.isdigit() and len(w) < 20 and 0 < int(w) <= _LARGEST for w in words):
            stated.shape = tuple(int(w) for w in words)
        elif words[0][:1] in tuple("+-0123456789"):
            text.faults.add(
                "the shape is not understood", "write # shape: 3 4 5", text.line, line, code="syntax-error"
            )
    elif words[0].lower() in ("real", "integer", "pattern"):
        stated.field = cast(Field, words[0].lower())


def _columns(text: Text, first: bytes, order: int | None, field: Field | None) -> tuple[int, Field]:
    """Return order and field, from the number of columns of the first entry and what is known before."""
    columns = len(first.split())
    if columns > MOST_RANKS + 1:
        message = f"{columns} numbers in the first entry: a tensor has at most {MOST_RANKS} ranks"
        remedy = "join some of them: i * J + j in the place of i and j"
        text.faults.add(message, remedy, text.line, first, code="too-large")
        return columns, field or "real"
    if order is None:
        order = columns - (field != "pattern")
        if order < 1:
            message = f"{columns} number in the first entry: coordinates and a value are expected"
            remedy = "give `ranks` if there are no values"
            text.faults.add(message, remedy, text.line, first, code="wrong-count")
        return order, field or "real"
    if columns == order and field in (None, "pattern"):
        return order, "pattern"
    if columns == order + 1 and field != "pattern":
        return order, field or "real"
    wanted = f"{order} coordinates" + ("" if field == "pattern" else " and a value")
    message = f"{columns} numbers in the first entry, not {wanted}"
    remedy = "name as many ranks (--names) as there are coordinates"
    text.faults.add(message, remedy, text.line, first, code="wrong-count")
    return order, field or "real"


def _doubt(found: Entries, order: int, duplicates: int) -> tuple[str, ...]:
    """Return a note on a last column that may also hold coordinates."""
    values = found.values
    if not values.size or (values < 1).any() or (values != np.floor(values)).any() or np.ptp(values) == 0:
        return ()
    summed = f", and {duplicates:,} entries were added to others at their point" if duplicates else ""
    return (
        f"the last of {order + 1} columns was taken for values, all of them whole numbers above 0{summed}; "
        f"if they are coordinates, give {order + 1} ranks, or the file a line `# field: pattern` on top",
    )


# Matrix Market files: coordinate and array; real, integer, pattern, complex; all four symmetries.
#
# Source: Boisvert, Pozo, Remington, The Matrix Market Exchange Formats (NISTIR 5935).

Symmetry = Literal["general", "symmetric", "skew-symmetric", "hermitian"]
_BANNER = b"%%matrixmarket"
_WORDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("object", ("matrix",)),
    ("layout", ("coordinate", "array")),
    ("field", ("real", "integer", "pattern", "complex")),
    ("symmetry", ("general", "symmetric", "skew-symmetric", "hermitian")),
)
_FORM = "%%MatrixMarket matrix coordinate real general"


@dataclass(frozen=True)
class FileHeader:
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


def read_market(text: Text, name: str, ranks: Sequence[str], fill: float = 0.0) -> TensorFile:
    """Return the matrix of an opened file. Raises SpecError with all faults that were found."""
    header = _header(text)
    if header is None:
        text.faults.check()
        raise InternalError(f"{text.path}: no header, and no reason told")
    found = read_entries(text, header.rule)
    entries = int(found.values.size) + text.faults.lines
    # The number of values that the faulty lines of an array represent is unknown.
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
    made = record(path, tensor, full, mirrored, kind, header.field, header.symmetry, header.comments, fill)
    if not above:
        return made
    note = (
        f"{above:,} entries of a matrix stored by symmetry lie above the diagonal, where the format has "
        "none; they are mirrored like those below it"
    )
    return replace(made, notes=(note,))


def _header(text: Text) -> FileHeader | None:
    banner = text.peek()
    if banner is None or not banner.strip():
        if not text.broken:
            text.faults.add(
                "the file is empty" if banner is None else "the first line is empty",
                _start(),
                code="syntax-error",
            )
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
            what = "the line of sizes is missing"
            text.faults.add(what, "rows columns entries, after the comments", text.line, code="syntax-error")
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
        remedy = "write `general` in the header, or mend the sizes"
        text.faults.add(message, remedy, text.line, line, code="shape-mismatch")
        return None
    entries = sizes[2] if layout == "coordinate" else _stored(rows, columns, symmetry)
    at = text.line
    text.skip()
    return FileHeader(layout, field, symmetry, rows, columns, entries, at, line, tuple(comments))


def _start() -> str:
    return f"a Matrix Market file starts with a line such as {_FORM}"


def _banner(text: Text, line: bytes) -> tuple[str, Field, Symmetry] | None:
    tokens = line.decode("utf-8", errors="replace").lower().split()
    if not tokens or tokens[0].encode() != _BANNER:  # no tokens: the line has only other blank characters
        fault = "this is not a Matrix Market header"
        text.faults.add(fault, _start(), text.line, line, code="unknown-format")
        return None
    before = len(text.faults.told)
    if len(tokens) != 5:
        fault = f"the header has {len(tokens)} words, not 5"
        text.faults.add(fault, _start(), text.line, line, code="syntax-error")
    for (what, known), token in zip(_WORDS, tokens[1:], strict=False):
        if token not in known:
            near = get_close_matches(token, known, 1)
            remedy = f"did you mean {near[0]}?" if near else f"one of {', '.join(known)}"
            column = line.lower().find(token.encode()) + 1
            fault = f"{what} {token} is not known"
            text.faults.add(fault, remedy, text.line, line, max(column, 1), code="unknown-choice")
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
            text.faults.add(message, f"write {remedy}", text.line, line, code="syntax-error")
            return None
    return layout, cast(Field, field), cast(Symmetry, symmetry)


def _sizes(text: Text, line: bytes, layout: str) -> list[int] | None:
    wanted = ["rows", "columns", "entries"][: 3 if layout == "coordinate" else 2]
    tokens = line.split()
    if len(tokens) != len(wanted):
        message = f"{len(tokens)} numbers in the line of sizes, not {len(wanted)}"
        text.faults.add(message, f"it holds {' '.join(wanted)}", text.line, line, code="wrong-count")
        return None
    result: list[int] = []
    for what, token in zip(wanted, tokens, strict=True):
        column = line.find(token) + 1
        least = 0 if what == "entries" else 1
        said = token[:40].decode("utf-8", errors="replace")
        number = int(token) if WHOLE.match(token) and len(token) < 30 else None
        if number is None:
            fault = f"{what}: {said} is not a whole number"
            text.faults.add(fault, "mend the sizes", text.line, line, column, code="not-an-integer")
        elif number < least:
            message = f"{what}: {said} is below {least}"
            text.faults.add(message, "mend the sizes", text.line, line, column, code="out-of-range")
        elif number > _LARGEST:
            message = f"{what}: {said} does not fit in 64 bits"
            text.faults.add(message, "mend the sizes", text.line, line, column, code="number-too-large")
        else:
            result.append(number)
    return result if len(result) == len(wanted) else None


def _stored(rows: int, columns: int, symmetry: Symmetry) -> int:
    """Return the number of values that an array stores: all, or the lower triangle with or without its
    diagonal."""
    if symmetry == "general":
        return rows * columns
    return rows * (rows - 1) // 2 if symmetry == "skew-symmetric" else rows * (rows + 1) // 2


def _miscounted(text: Text, header: FileHeader, found: int) -> None:
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
    text.faults.add(message, remedy, header.line, header.text, code="wrong-count")


def _places(header: FileHeader) -> Ints:
    """Return the coordinates of the values of an array: column by column, each from the top or from the
    diagonal."""
    if header.symmetry == "general":
        column, row = np.divmod(np.arange(header.entries), header.rows)
        return np.stack([row, column])
    skip = int(header.symmetry == "skew-symmetric")
    lengths = header.rows - skip - np.arange(header.columns)
    column = np.repeat(np.arange(header.columns), lengths)
    row = np.arange(header.entries) - np.repeat(np.cumsum(lengths) - lengths, lengths) + column + skip
    return np.stack([row, column])


def _above(text: Text, header: FileHeader, found: Entries) -> int:
    """Return how many entries lie above the diagonal. Add a fault where one of them and its mirror image are
    both present: their sum, as for duplicates, would count twice."""
    row, column = found.coords
    upper = row < column
    count = int(np.count_nonzero(upper))
    if not count:
        return 0
    # Pairs are sorted by their two halves, because a number for a pair may not fit in 64 bits.
    pairs = np.stack([np.minimum(row, column), np.maximum(row, column)])
    order = np.lexsort(pairs)
    same = (pairs[:, order[1:]] == pairs[:, order[:-1]]).all(axis=0)
    both = np.flatnonzero(same & (upper[order[1:]] != upper[order[:-1]]))
    if both.size:
        i, j = (int(x) + 1 for x in pairs[:, order[both[0]]])
        more = f" and {both.size - 1:,} more such" if both.size > 1 else ""
        what = f"both halves of a {header.symmetry} matrix are stored: ({j}, {i}) and ({i}, {j}){more}"
        remedy = "write `general` in the header, or drop one half"
        text.faults.add(what, remedy, header.line, header.text, code="inconsistent-values")
    return count


def _expanded(found: Entries, symmetry: Symmetry) -> tuple[Entries, int]:
    """Return both halves, and how many entries this adds: each entry off the diagonal once more."""
    if symmetry == "general":
        return found, 0
    off = found.coords[0] != found.coords[1]
    other: NDArray[Any] = found.values[off]
    other = -other if symmetry == "skew-symmetric" else other.conj() if symmetry == "hermitian" else other
    coords = np.concatenate([found.coords, found.coords[::-1, off]], axis=1)
    return Entries(coords, np.concatenate([found.values, other])), int(other.size)
