"""A text file, packed or not, as blocks of whole lines: bounded in size, its faults collected with places."""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BufferedReader
from os import PathLike, fspath
from pathlib import Path

from polymodel.errors import Diagnostic, Place, SpecError
from polymodel.spec.files import reading

# Bytes of text in a file whose caller names no limit, and how many bytes one packed byte may become: deflate
# reaches 1032, lists of entries 12 (and 20 at the most); small files may hold what they like.
LIMIT = 8 * 10**9
_RATIO, _SMALL = 40, 32 << 20
# Read at a time; a line has to fit in one piece.
_PIECE = 8 << 20
_LONGEST = 1 << 20
# Comments kept, and characters of each.
_COMMENTS, _WORDS = 1000, 2000
# Lines without an entry (comments, empty ones), and bytes of those above the first entry.
MOST_IDLE, _IDLE_BYTES = 1_000_000, 256 << 20
_SHOWN, _COUNTED = 20, 1000
_PACKED = b"\x1f\x8b"


@dataclass
class Faults:
    """Faults of one file: the first 20 in full, the next 1000 counted; `stopped`: the line it ended at;
    `lines`: entries that have faults."""

    file: str
    told: list[Diagnostic] = field(default_factory=list)
    more: int = 0
    stopped: int = 0
    lines: int = 0

    def add(self, message: str, remedy: str = "", line: int = 0, text: bytes = b"", column: int = 1) -> None:
        """`line` and `column` count from 1; 0 lines: the file as a whole."""
        if len(self.told) >= _SHOWN:
            self.more += 1
            return
        shown = text[:_LONGEST].decode("utf-8", errors="replace").rstrip()
        place = Place(self.file, line, column if line and shown else 0, shown)
        self.told.append(Diagnostic(message, remedy, place=place))

    @property
    def enough(self) -> bool:
        return self.more >= _COUNTED

    @property
    def full(self) -> bool:
        return len(self.told) >= _SHOWN

    def check(self) -> None:
        """Raise SpecError if there is any."""
        if not self.told:
            return
        rest = []
        if self.more or self.stopped:
            until = f" up to line {self.stopped:,}, where reading stopped" if self.stopped else ""
            rest = [Diagnostic(f"{self.more:,} more faults{until}", place=Place(self.file))]
        raise SpecError([*self.told, *rest])


def comment_of(line: bytes, signs: bytes) -> str:
    """What a comment says behind its `signs`, as far as anyone reads."""
    return line.lstrip(signs + b" \t").decode("utf-8", errors="replace").rstrip()[:_WORDS]


def keep(comments: list[str], text: str) -> None:
    """Add a comment, unless there are more than anyone reads."""
    if len(comments) < _COMMENTS:
        comments.append(text)


@dataclass(frozen=True)
class Block:
    """Whole lines: `data` ends where a line ends, its first line is number `line`."""

    line: int
    data: bytes


class Text:
    """Lines for a header, then the rest in blocks. Use as a context manager.

    `limit`: bytes of text, unpacked, beyond which the file is refused; without one 8 GB, and a packed file
    may not grow more than 40-fold. What breaks off or cannot be unpacked
    is a fault in `faults`, and makes the text `broken`.
    """

    def __init__(self, path: str | PathLike[str], faults: Faults, limit: int | None = None) -> None:
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
            # To open a pipe would wait for whoever writes to it, and a device has no end.
            if not stat.S_ISREG(os.stat(self.path).st_mode):
                what = "a folder" if self.path.is_dir() else "a pipe or a device"
                self.faults.add(f"{what}, not a file", "save the text in a file, and name that")
                self.faults.check()
            reading(self.path)
            self._raw = self.path.open("rb")
            start = self._raw.read(2)
        except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
            reason = getattr(error, "strerror", "") or error
            self.faults.add(f"cannot read the file: {reason}", "name a file that exists")
            self.faults.check()
        self._raw.seek(0)
        self.packed = start == _PACKED
        self._file = gzip.GzipFile(fileobj=self._raw) if self.packed else self._raw
        if self.path.suffix == ".gz" and not self.packed:
            self._break("the file is not packed with gzip", "take .gz off its name, or pack it again")
        elif start in (b"\xff\xfe", b"\xfe\xff"):
            self._break("the text is UTF-16, not UTF-8", "save it as UTF-8")
        self._fill()
        if self._buffer.startswith(b"\xef\xbb\xbf"):
            self._at = 3
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._raw.close()

    def peek(self) -> bytes | None:
        """The next line, its end stripped; None at the end of the file. It stays to be read."""
        cut = self._next()
        return None if cut is None else self._buffer[self._at : cut].rstrip(b"\r\n")

    def skip(self) -> None:
        """Go past the next line."""
        cut = self._next()
        if cut is not None:
            self._at = cut
            self.line += 1

    def idle(self, lines: int, size: int = 0) -> None:
        """Lines that held no entry; a fault, and the end of the text, once they are too many.

        Not with a `limit`, whose caller trusts the file.
        """
        self._idle += lines
        self._idle_bytes += size
        if self.limit is None and (self._idle > MOST_IDLE or self._idle_bytes > _IDLE_BYTES):
            amount = f"{MOST_IDLE:,} lines" if self._idle > MOST_IDLE else f"{_IDLE_BYTES:,} bytes"
            self._break(
                f"the file has more than {amount} of comments and empty lines",
                "take most of them out, or give a `limit` in bytes if the file is to be trusted",
            )
            self._buffer, self._at = b"", 0

    def blocks(self) -> Iterator[Block]:
        """All that is left. Stops early once the file is broken or there are too many faults."""
        while True:
            cut = self._buffer.rfind(b"\n") + 1
            if cut <= self._at:
                cut = self._at if self.broken or not self._end else len(self._buffer)
            if cut > self._at:
                block = Block(self.line, self._buffer[self._at : cut])
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
        """Where the next line ends, its newline included; a line that breaks off is none."""
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
        self.faults.add(message, "a line holds one entry", self.line, shown)
        self.broken = self._end = True
        return True

    def _fill(self) -> None:
        """Read a piece more."""
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
            self._break(f"{reason[0]}, after line {whole:,}", reason[1])

    def _break(self, message: str, remedy: str) -> None:
        self.faults.add(message, remedy)
        self.broken = self._end = True

    def _bound(self) -> None:
        """Refuse what grows beyond the limit: a small file can be packed to unfold to any size."""
        allowed = LIMIT if self.limit is None else self.limit
        if self._total > allowed:
            self._break(
                f"the text has more than {allowed:,} bytes", "raise `limit` if the file is to be trusted"
            )
        elif self.packed and self.limit is None and self._total > max(_SMALL, _RATIO * self._raw.tell()):
            grown = f"{self._raw.tell():,} packed bytes unfold to more than {self._total:,}"
            self._break(
                f"{grown}: no list of numbers", "give a `limit` in bytes if the file is to be trusted"
            )
