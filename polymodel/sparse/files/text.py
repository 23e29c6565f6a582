"""Read a text file, packed or not, in blocks of whole lines, with bounded size and with all faults
located."""

from __future__ import annotations

import gzip
import math
import os
import re
import stat
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import field
from io import BufferedReader
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from polymodel.errors import Diagnostic, Place, SpecError
from polymodel.frozen import dataclass
from polymodel.governor import charge, look
from polymodel.spec.files import reading

# Limits of the bytes of text in a file if the caller gives none, and of the ratio of unpacked to packed
# bytes: deflate reaches 1032, lists of entries 12 (at most 20); less text than `_SMALL` is not checked.
LIMIT = 8 * 10**9
_RATIO, _SMALL = 40, 32 << 20
# Bytes that are read at a time, and bytes of a line, which has to fit in one piece.
_PIECE = 8 << 20
_LONGEST = 1 << 20
# Comments kept, and characters of each.
_COMMENTS, _WORDS = 1000, 2000
# Lines without an entry (comments, empty ones), and bytes of those above the first entry.
MOST_IDLE, _IDLE_BYTES = 1_000_000, 256 << 20
_SHOWN, _COUNTED = 20, 1000
_PACKED = b"\x1f\x8b"


@dataclass
class FileFaults:
    """Faults of one file: the first 20 are recorded in full, the next 1000 are counted. `stopped`: the line
    where reading ended. `lines`: number of entries with faults."""

    file: str
    told: list[Diagnostic] = field(default_factory=list)
    more: int = 0
    stopped: int = 0
    lines: int = 0

    def add(
        self, message: str, remedy: str = "", line: int = 0, text: bytes = b"", column: int = 1, *, code: str
    ) -> None:
        """Add a fault. `line` and `column` count from 1; line 0 denotes the whole file."""
        if len(self.told) >= _SHOWN:
            self.more += 1
            return
        shown = text[:_LONGEST].decode("utf-8", errors="replace").rstrip()
        place = Place(self.file, line, column if line and shown else 0, shown)
        self.told.append(Diagnostic(message, remedy, place=place, code=code))

    @property
    def enough(self) -> bool:
        return self.more >= _COUNTED

    @property
    def full(self) -> bool:
        return len(self.told) >= _SHOWN

    def check(self) -> None:
        """Raise SpecError if there are any faults."""
        if not self.told:
            return
        rest = []
        if self.more or self.stopped:
            until = f" up to line {self.stopped:,}, where reading stopped" if self.stopped else ""
            rest = [
                Diagnostic(f"{self.more:,} more faults{until}", place=Place(self.file), code="more-faults")
            ]
        raise SpecError([*self.told, *rest])


def comment_of(line: bytes, signs: bytes) -> str:
    """Return the text of a comment after its `signs`, limited in length."""
    return line.lstrip(signs + b" \t").decode("utf-8", errors="replace").rstrip()[:_WORDS]


def keep(comments: list[str], text: str) -> None:
    """Add a comment, up to a maximum number."""
    if len(comments) < _COMMENTS:
        comments.append(text)


@dataclass(frozen=True)
class LineBlock:
    """Whole lines: `data` ends at the end of a line. `line`: the number of its first line."""

    line: int
    data: bytes


class Text:
    """A text file that provides lines for a header, then the rest in blocks. Use it as a context manager.

    `limit`: bytes of unpacked text above which the file is refused; by default 8 GB, and 40 times the packed
    size. A truncated or damaged file is a fault in `faults`, and makes the text `broken`.
    """

    def __init__(self, path: str | PathLike[str], faults: FileFaults, limit: int | None = None) -> None:
        self.path = Path(fspath(path))
        self.faults = faults
        self.limit = limit
        self.line = 1
        self.broken = False
        self._buffer = b""
        self._at = 0
        self._total = 0
        self._idle = self._idle_bytes = 0
        self._end = False
        self._file: gzip.GzipFile | BufferedReader

    def __enter__(self) -> Text:
        try:
            # Opening a pipe would block until another process writes to it, and a device has no end.
            if not stat.S_ISREG(os.stat(self.path).st_mode):
                what = "a folder" if self.path.is_dir() else "a pipe or a device"
                message = f"{what}, not a file"
                self.faults.add(message, "save the text in a file, and name that", code="unreadable-file")
                self.faults.check()
            reading(self.path)
            self._raw = self.path.open("rb")
            start = self._raw.read(2)
        except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
            reason = getattr(error, "strerror", "") or error
            message = f"cannot read the file: {reason}"
            self.faults.add(message, "name a file that exists", code="unreadable-file")
            self.faults.check()
        self._raw.seek(0)
        self.packed = start == _PACKED
        self._file = gzip.GzipFile(fileobj=self._raw) if self.packed else self._raw
        if self.path.suffix == ".gz" and not self.packed:
            message = "the file is not packed with gzip"
            self._break(message, "take .gz off its name, or pack it again", code="unknown-format")
        elif start in (b"\xff\xfe", b"\xfe\xff"):
            self._break("the text is UTF-16, not UTF-8", "save it as UTF-8", code="unreadable-file")
        self._fill()
        if self._buffer.startswith(b"\xef\xbb\xbf"):
            self._at = 3
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._raw.close()

    def peek(self) -> bytes | None:
        """Return the next line without its line end, and do not advance; None at the end of the file."""
        cut = self._next()
        return None if cut is None else self._buffer[self._at : cut].rstrip(b"\r\n")

    def skip(self) -> None:
        """Advance past the next line."""
        cut = self._next()
        if cut is not None:
            self._at = cut
            self.line += 1

    def idle(self, lines: int, size: int = 0) -> None:
        """Count lines without an entry; too many of them are a fault, and end the text.

        Not applied with a `limit`, whose caller trusts the file.
        """
        self._idle += lines
        self._idle_bytes += size
        if self.limit is None and (self._idle > MOST_IDLE or self._idle_bytes > _IDLE_BYTES):
            amount = f"{MOST_IDLE:,} lines" if self._idle > MOST_IDLE else f"{_IDLE_BYTES:,} bytes"
            message = f"the file has more than {amount} of comments and empty lines"
            remedy = "take most of them out, or give a `limit` in bytes if the file is to be trusted"
            self._break(message, remedy, code="too-large")
            self._buffer, self._at = b"", 0

    def blocks(self) -> Iterator[LineBlock]:
        """Yield the remaining lines. Stop early if the file is broken or there are too many faults."""
        while True:
            cut = self._buffer.rfind(b"\n") + 1
            if cut <= self._at:
                cut = self._at if self.broken or not self._end else len(self._buffer)
            if cut > self._at:
                block = LineBlock(self.line, self._buffer[self._at : cut])
                self._at = cut
                self.line += block.data.count(b"\n") + (not block.data.endswith(b"\n"))
                yield block
                if self.faults.full:
                    self.faults.stopped = self.faults.stopped or self.line - 1
                    self.broken = True
                    return
            elif self._end or self._too_long():
                return
            else:
                self._fill()

    def _next(self) -> int | None:
        """Return the end of the next line, including its newline; None for a truncated line."""
        while True:
            cut = self._buffer.find(b"\n", self._at) + 1
            if cut:
                return cut
            if self._end or self._too_long():
                return len(self._buffer) if len(self._buffer) > self._at and not self.broken else None
            self._fill()

    def _too_long(self) -> bool:
        if len(self._buffer) - self._at <= _LONGEST:
            return False
        shown = self._buffer[self._at : self._at + 60]
        message = f"the line has more than {_LONGEST:,} characters"
        self.faults.add(message, "a line holds one entry", self.line, shown, code="too-large")
        self.broken = self._end = True
        return True

    def _fill(self) -> None:
        """Read the next piece of the file."""
        pieces, missing, reason = [self._buffer[self._at :]], _PIECE, ("", "")
        while missing > 0 and not self._end:
            piece = b""
            try:
                piece = self._file.read1(missing)
            except EOFError:
                reason = "the packed file is cut off", "fetch it again: a part is missing"
            except (gzip.BadGzipFile, zlib.error) as error:
                reason = f"the packed file is damaged ({error})", "fetch it again"
            except OSError as error:
                reason = f"cannot read the file: {error.strerror or error}", "name a file, not a folder"
            self._end = not piece
            self._total += len(piece)
            missing -= len(piece)
            pieces.append(piece)
            self._bound()
        self._buffer, self._at = b"".join(pieces), 0
        if reason[0]:
            whole = self.line - 1 + self._buffer.count(b"\n")
            self._break(f"{reason[0]}, after line {whole:,}", reason[1], code="damaged-file")

    def _break(self, message: str, remedy: str, *, code: str) -> None:
        self.faults.add(message, remedy, code=code)
        self.broken = self._end = True

    def _bound(self) -> None:
        """Refuse a text that grows beyond the limit: a small packed file can expand to any size."""
        allowed = LIMIT if self.limit is None else self.limit
        if self._total > allowed:
            message = f"the text has more than {allowed:,} bytes"
            self._break(message, "raise `limit` if the file is to be trusted", code="too-large")
        elif self.packed and self.limit is None and self._total > max(_SMALL, _RATIO * self._raw.tell()):
            grown = f"{self._raw.tell():,} packed bytes unfold to more than {self._total:,}"
            message = f"{grown}: no list of numbers"
            remedy = "give a `limit` in bytes if the file is to be trusted"
            self._break(message, remedy, code="unknown-format")


# Lines of numbers as arrays: whole blocks at a time if they are regular, line by line if they are not.
#
# The line reader (`entry`) defines which lines are correct; `bulk` is the fast method for blocks without a
# fault, and returns None for everything unusual.

Field = Literal["real", "integer", "pattern", "complex"]
Ints = NDArray[np.int64]

WHOLE = re.compile(rb"[+-]?[0-9]+\Z")
_REAL = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eEdD][+-]?[0-9]+)?\Z")
_ENDLESS = re.compile(rb"[+-]?(?:nan(?:\(\w*\))?|inf|infinity)\Z", re.IGNORECASE)
_COMMENT_LINES = re.compile(rb"(?m)^[ \t\r]*[%#][^\n]*\n?")
_LARGEST = 2**63 - 1
# Smaller blocks are read line by line, which takes less time than loading another library.
SMALL = 1 << 17
_MADE = 3  # copies of all entries that will be made after reading


@dataclass(frozen=True)
class Rule:
    """The content of a line of entries: `order` coordinates counted from 1, then the value.

    `sizes`: those of the ranks, None where the data determine them. `hollow`: an entry on the diagonal is
    wrong (in a skew-symmetric matrix it is zero). `hermitian`: entries on the diagonal are real.
    """

    order: int
    field: Field
    sizes: tuple[int, ...] | None = None
    hollow: bool = False
    hermitian: bool = False

    @property
    def values(self) -> int:
        return {"pattern": 0, "complex": 2}.get(self.field, 1)

    @property
    def columns(self) -> int:
        return self.order + self.values

    @property
    def description(self) -> str:
        value = {"real": "a value", "integer": "a whole number", "complex": "two parts of a value"}
        parts = [f"{self.order} coordinates"] if self.order else []
        return " and ".join([*parts, *([value[self.field]] if self.values else [])])


@dataclass(frozen=True)
class LineFault:
    """A fault of one line. `token`: the index of the word, from 0."""

    message: str
    remedy: str
    token: int = 0


@dataclass(frozen=True, eq=False)
class Entries:
    """Coordinates from 0 (ranks x entries) and values, as the file has them."""

    coords: Ints
    values: NDArray[Any]


def entry(tokens: list[bytes], rule: Rule) -> tuple[list[int], int | float | complex] | list[LineFault]:
    """Parse one line, split at white space. Return the entry, or all faults of its words."""
    if len(tokens) != rule.columns:
        there = f"{len(tokens)} number{'s' if len(tokens) != 1 else ''}"
        return [LineFault(f"{there} in the line, not {rule.columns}", f"a line holds {rule.description}")]
    faults: list[LineFault] = []
    point: list[int] = []
    for at, token in enumerate(tokens[: rule.order]):
        if not WHOLE.match(token):
            what = f"coordinate {_text(token)} is not a whole number"
            faults.append(LineFault(what, "coordinates count from 1", at))
            continue
        place = int(token) - 1 if len(token) < 30 else _LARGEST + 1
        point.append(place)
        size = rule.sizes[at] if rule.sizes else _LARGEST
        if not 0 <= place < size:
            faults.append(_outside(token, at, size, rule))
    numbers: list[int | float] = []
    for at, token in enumerate(tokens[rule.order :], rule.order):
        number = _number(token, rule.field, at)
        if isinstance(number, LineFault):
            faults.append(number)
        else:
            numbers.append(number)
    if faults:
        return faults
    if rule.hollow and point[0] == point[1]:
        what = "the entry is on the diagonal of a skew-symmetric matrix, which is zero"
        return [LineFault(what, "leave it out, or write `general` in the header")]
    if rule.hermitian and point[0] == point[1] and numbers[1]:
        what = "a diagonal entry of a hermitian matrix is real"
        return [LineFault(what, "its second part is 0", rule.order + 1)]
    if rule.field == "pattern":
        return point, 1
    return point, complex(*numbers) if rule.field == "complex" else numbers[0]


def _outside(token: bytes, at: int, size: int, rule: Rule) -> LineFault:
    if int(token[:30]) == 0:
        return LineFault(
            "coordinate 0: coordinates count from 1", "add 1 to the coordinates of a file from 0", at
        )
    if int(token[:30]) < 0:
        return LineFault(f"coordinate {_text(token)} is negative", "coordinates count from 1", at)
    limit = f"1..{size:,}" if rule.sizes else "64 bits"
    return LineFault(f"coordinate {_text(token)} is outside {limit}", "mend it, or give larger sizes", at)


def _number(token: bytes, field: Field, at: int) -> int | float | LineFault:
    if field == "integer":
        if not WHOLE.match(token):
            return LineFault(
                f"{_text(token)} is not a whole number", "write `real` in the header for others", at
            )
        if len(token) > 30 or not -_LARGEST - 1 <= int(token) <= _LARGEST:
            return LineFault(f"{_text(token)} does not fit in 64 bits", "write `real` in the header", at)
        return int(token)
    if _ENDLESS.match(token):
        return LineFault(f"value {_text(token)} is not finite", "leave out entries that have no value", at)
    if not _REAL.match(token):
        return LineFault(f"{_text(token)} is not a number", "write it as 1.5 or 1.5e-3", at)
    result = float(token.lower().replace(b"d", b"e"))
    if math.isinf(result):
        return LineFault(f"value {_text(token)} is beyond 64-bit floating point", "scale the values", at)
    return result


def _text(token: bytes) -> str:
    return token[:40].decode("utf-8", errors="replace")


def read_entries(text: Text, rule: Rule, small: int = SMALL) -> Entries:
    """Read all entries up to the end of the file. Faults are added to `text.faults`, and their lines are left
    out."""
    result: list[Entries] = []
    entries = 0
    for block in text.blocks():
        look(f"reading {text.path}")
        result.append(bulk(block, rule, small) or one_by_one(block, rule, text.faults))
        entries += result[-1].values.size
        # One copy to join the blocks, and two to sort the entries.
        charge(_MADE * (rule.order + 1) * 8 * entries, f"reading {text.path}", "read a smaller file")
        if not text.faults.told:
            text.idle(block.data.count(b"\n") - result[-1].values.size)
    if not result:
        result = [Entries(np.zeros((rule.order, 0), np.int64), np.zeros(0, _dtype(rule)))]
    if len(result) == 1:
        return result[0]
    coords = np.concatenate([f.coords for f in result], axis=1)
    return Entries(coords, np.concatenate([f.values for f in result]))


def one_by_one(block: LineBlock, rule: Rule, faults: FileFaults) -> Entries:
    """Read line after line, and locate each fault."""
    points: list[list[int]] = []
    values: list[int | float | complex] = []
    for number, line in enumerate(block.data.split(b"\n"), block.line):
        tokens = line.split()
        if not tokens or tokens[0][:1] in b"%#":
            continue
        found = entry(tokens, rule)
        if isinstance(found, list):
            faults.lines += 1
            for wrong in found:
                faults.add(
                    wrong.message, wrong.remedy, number, line, _column(line, wrong.token), code="syntax-error"
                )
            if faults.enough:
                faults.stopped = number
                break
        else:
            points.append(found[0])
            values.append(found[1])
    coords = np.array(points, dtype=np.int64).reshape(len(points), rule.order).T
    return Entries(coords, np.array(values, dtype=_dtype(rule)))


def _column(line: bytes, token: int) -> int:
    starts = [m.start() for m in re.finditer(rb"\S+", line)]
    return starts[token] + 1 if token < len(starts) else 1


def _dtype(rule: Rule) -> type:
    return {"real": np.float64, "complex": np.complex128}.get(rule.field, np.int64)


def bulk(block: LineBlock, rule: Rule, small: int = SMALL) -> Entries | None:
    """Read the whole block at once. Return None if it is small, or contains anything out of the ordinary."""
    data = block.data
    if len(data) < small or b"x" in data or b"X" in data:  # the parser would accept hexadecimal numbers
        return None
    plain = _plain(data)
    columns = None if b"\r" in plain else _columns(plain, rule)
    if columns is None:
        return None
    coords = np.stack(columns[: rule.order]) if rule.order else np.zeros((0, columns[0].size), np.int64)
    coords -= 1
    if rule.field == "complex":
        values = columns[rule.order] + 1j * columns[rule.order + 1]
    else:
        values = columns[rule.order] if rule.values else np.ones(coords.shape[1], np.int64)
    return Entries(coords, values) if _clean(coords, values, rule) else None


def _plain(data: bytes) -> bytes:
    """Return the block with one blank between numbers and none around lines, without comments, and with
    Fortran exponents converted."""
    if b"%" in data or b"#" in data:
        data = _COMMENT_LINES.sub(b"", data)
    for old, new in ((b"\r\n", b"\n"), (b"\t", b" "), (b"D", b"e"), (b"d", b"e")):
        if old in data:
            data = data.replace(old, new)
    while b"  " in data:
        data = data.replace(b"  ", b" ")
    for old in (b" \n", b"\n "):
        if old in data:
            data = data.replace(old, b"\n")
    return data.strip(b" ")


def _columns(data: bytes, rule: Rule) -> list[NDArray[Any]] | None:
    import pyarrow
    import pyarrow.csv

    value = pyarrow.int64() if rule.field == "integer" else pyarrow.float64()
    names = [str(c) for c in range(rule.columns)]
    types = [pyarrow.int64()] * rule.order + [value] * rule.values
    try:
        table = pyarrow.csv.read_csv(
            pyarrow.BufferReader(data),
            read_options=pyarrow.csv.ReadOptions(column_names=names, use_threads=False),
            parse_options=pyarrow.csv.ParseOptions(delimiter=" ", quote_char=False, double_quote=False),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict(zip(names, types, strict=True)), null_values=[], check_utf8=False
            ),
        )
    except pyarrow.ArrowInvalid:
        return None
    return [table.column(name).to_numpy() for name in names]


def _clean(coords: Ints, values: NDArray[Any], rule: Rule) -> bool:
    sizes: Iterable[int] = rule.sizes or (_LARGEST,) * rule.order
    # Every row is contiguous: two passes each, without a mask.
    for row, size in zip(coords, sizes, strict=True):
        if row.size and (row.min() < 0 or row.max() >= size):
            return False
    if rule.hollow and (coords[0] == coords[1]).any():
        return False
    if rule.hermitian and values[coords[0] == coords[1]].imag.any():
        return False
    return values.dtype.kind == "i" or bool(np.isfinite(values).all())
