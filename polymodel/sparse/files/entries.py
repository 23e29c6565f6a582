"""Lines of numbers as arrays: whole blocks at a time where they are clean, line by line where they are not.

The line reader (`entry`) decides what is right; `bulk` is the fast way through blocks without a fault, and
gives up on everything out of the ordinary.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from polymodel.governor import charge, look
from polymodel.sparse.files.text import Block, Faults, Text

Field = Literal["real", "integer", "pattern", "complex"]
Ints = NDArray[np.int64]

WHOLE = re.compile(rb"[+-]?[0-9]+\Z")
_REAL = re.compile(rb"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eEdD][+-]?[0-9]+)?\Z")
_ENDLESS = re.compile(rb"[+-]?(?:nan(?:\(\w*\))?|inf|infinity)\Z", re.IGNORECASE)
_COMMENTS = re.compile(rb"(?m)^[ \t\r]*[%#][^\n]*\n?")
_LARGEST = 2**63 - 1
# Blocks below this are read line by line: sooner done than another library is loaded.
SMALL = 1 << 17
_MADE = 3  # copies of all entries that are yet to be made of those that are read


@dataclass(frozen=True)
class Rule:
    """What a line of entries holds: `order` coordinates counted from 1, then the value.

    `sizes`: of the ranks, None where the data decides. `hollow`: an entry on the diagonal is wrong (of a
    skew-symmetric matrix it is zero). `hermitian`: entries on it are real.
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
    def told(self) -> str:
        value = {"real": "a value", "integer": "a whole number", "complex": "two parts of a value"}
        parts = [f"{self.order} coordinates"] if self.order else []
        return " and ".join([*parts, *([value[self.field]] if self.values else [])])


@dataclass(frozen=True)
class Wrong:
    """A fault of one line; `token`: which of its words, from 0."""

    message: str
    remedy: str
    token: int = 0


@dataclass(frozen=True, eq=False)
class Entries:
    """Coordinates from 0 (ranks x entries) and values, as the file has them."""

    coords: Ints
    values: NDArray[Any]


def entry(tokens: list[bytes], rule: Rule) -> tuple[list[int], int | float | complex] | list[Wrong]:
    """One line, split at white space; or all that is wrong with its words."""
    if len(tokens) != rule.columns:
        there = f"{len(tokens)} number{'s' if len(tokens) != 1 else ''}"
        return [Wrong(f"{there} in the line, not {rule.columns}", f"a line holds {rule.told}")]
    faults: list[Wrong] = []
    point: list[int] = []
    for at, token in enumerate(tokens[: rule.order]):
        if not WHOLE.match(token):
            what = f"coordinate {_text(token)} is not a whole number"
            faults.append(Wrong(what, "coordinates count from 1", at))
            continue
        place = int(token) - 1 if len(token) < 30 else _LARGEST + 1
        point.append(place)
        size = rule.sizes[at] if rule.sizes else _LARGEST
        if not 0 <= place < size:
            faults.append(_outside(token, at, size, rule))
    numbers: list[int | float] = []
    for at, token in enumerate(tokens[rule.order :], rule.order):
        number = _number(token, rule.field, at)
        if isinstance(number, Wrong):
            faults.append(number)
        else:
            numbers.append(number)
    if faults:
        return faults
    if rule.hollow and point[0] == point[1]:
        what = "the entry is on the diagonal of a skew-symmetric matrix, which is zero"
        return [Wrong(what, "leave it out, or write `general` in the header")]
    if rule.hermitian and point[0] == point[1] and numbers[1]:
        what = "a diagonal entry of a hermitian matrix is real"
        return [Wrong(what, "its second part is 0", rule.order + 1)]
    if rule.field == "pattern":
        return point, 1
    return point, complex(*numbers) if rule.field == "complex" else numbers[0]


def _outside(token: bytes, at: int, size: int, rule: Rule) -> Wrong:
    if int(token[:30]) == 0:
        return Wrong(
            "coordinate 0: coordinates count from 1", "add 1 to the coordinates of a file from 0", at
        )
    if int(token[:30]) < 0:
        return Wrong(f"coordinate {_text(token)} is negative", "coordinates count from 1", at)
    limit = f"1..{size:,}" if rule.sizes else "64 bits"
    return Wrong(f"coordinate {_text(token)} is outside {limit}", "mend it, or give larger sizes", at)


def _number(token: bytes, field: Field, at: int) -> int | float | Wrong:
    if field == "integer":
        if not WHOLE.match(token):
            return Wrong(f"{_text(token)} is not a whole number", "write `real` in the header for others", at)
        if len(token) > 30 or not -_LARGEST - 1 <= int(token) <= _LARGEST:
            return Wrong(f"{_text(token)} does not fit in 64 bits", "write `real` in the header", at)
        return int(token)
    if _ENDLESS.match(token):
        return Wrong(f"value {_text(token)} is not finite", "leave out entries that have no value", at)
    if not _REAL.match(token):
        return Wrong(f"{_text(token)} is not a number", "write it as 1.5 or 1.5e-3", at)
    found = float(token.lower().replace(b"d", b"e"))
    if math.isinf(found):
        return Wrong(f"value {_text(token)} is beyond 64-bit floating point", "scale the values", at)
    return found


def _text(token: bytes) -> str:
    return token[:40].decode("utf-8", errors="replace")


def read_entries(text: Text, rule: Rule, small: int = SMALL) -> Entries:
    """All entries up to the end of the file; faults go to `text.faults`, and their lines are left out."""
    found: list[Entries] = []
    entries = 0
    for block in text.blocks():
        look(f"reading {text.path}")
        found.append(bulk(block, rule, small) or one_by_one(block, rule, text.faults))
        entries += found[-1].values.size
        # Once more to join the blocks, and twice to sort the entries.
        charge(_MADE * (rule.order + 1) * 8 * entries, f"reading {text.path}", "read a smaller file")
        if not text.faults.told:
            text.idle(block.data.count(b"\n") - found[-1].values.size)
    if not found:
        found = [Entries(np.zeros((rule.order, 0), np.int64), np.zeros(0, _dtype(rule)))]
    if len(found) == 1:
        return found[0]
    coords = np.concatenate([f.coords for f in found], axis=1)
    return Entries(coords, np.concatenate([f.values for f in found]))


def one_by_one(block: Block, rule: Rule, faults: Faults) -> Entries:
    """Line after line, each fault with its place."""
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
                faults.add(wrong.message, wrong.remedy, number, line, _column(line, wrong.token))
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


def bulk(block: Block, rule: Rule, small: int = SMALL) -> Entries | None:
    """The whole block at once; None if it is small, or anything in it is not as usual."""
    data = block.data
    if len(data) < small or b"x" in data or b"X" in data:  # hexadecimal numbers pass elsewhere
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
    """One blank between numbers, none around lines; comments out. Exponents of Fortran become usual ones."""
    if b"%" in data or b"#" in data:
        data = _COMMENTS.sub(b"", data)
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
