"""FROSTT files (.tns): a line per entry, coordinates from 1 and a value; comments start with #.

The files say neither order nor shape. The order is that of `ranks` or `shape` where given, else the last
column is the value; the shape is the one given, else that of a comment `# shape: 3 4 5`, else the data's
largest coordinates. A comment `# field: integer` (or pattern: no value column) is honoured as well; both are
what `write_tensor` writes. Source: frostt.io, "File Formats".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np

from polymodel.errors import InternalError
from polymodel.sparse.files.entries import Entries, Field, Rule, read_entries
from polymodel.sparse.files.record import TensorFile, record
from polymodel.sparse.files.text import Text, comment_of, keep

_SAID = re.compile(r"(shape|field)\s*:\s*(.*)\Z", re.IGNORECASE)
_LARGEST = 2**63 - 1
MOST_RANKS = 32  # numpy counts no further


@dataclass
class _Told:
    """What the comments in front of the first entry say."""

    comments: list[str]
    shape: tuple[int, ...] | None = None
    field: Field | None = None


def read_frostt(
    text: Text, name: str, ranks: Sequence[str] | None, shape: Sequence[int] | None
) -> TensorFile:
    """The tensor of an opened file; SpecError with all faults that were found."""
    told, first = _comments(text)
    sizes = tuple(shape) if shape is not None else told.shape
    order = len(ranks) if ranks is not None else None if sizes is None else len(sizes)
    if not text.broken and first is None and (order is None or sizes is None):
        text.faults.add("the file has no entries", "give `ranks` and `shape` if it is an empty tensor")
    field = told.field or "real"
    if first is not None:
        order, field = _columns(text, first, order, told.field)
    if order is None or (text.faults.told and not text.broken):
        text.faults.check()
        raise InternalError(f"{text.path}: no order, and no reason told")
    if sizes is not None and len(sizes) != order:
        text.faults.add(f"{len(sizes)} sizes for {order} ranks", "one size per rank", text.line, first or b"")
        text.faults.check()
    found = read_entries(text, Rule(order, field, sizes))
    text.faults.check()
    if sizes is None:
        sizes = tuple(int(row.max()) + 1 for row in found.coords)
    names = tuple(ranks) if ranks is not None else default_ranks(order)
    made = record(str(text.path), (name, names, sizes), found, 0, "FROSTT", field, "general", told.comments)
    certain = ranks is not None or shape is not None or told.field
    return made if certain else replace(made, notes=_doubt(found, order, made.duplicates))


def default_ranks(order: int) -> tuple[str, ...]:
    """I, J, K, ... as far as the letters up to Z go, else R0, R1, ..."""
    if order <= ord("Z") - ord("I") + 1:
        return tuple(chr(ord("I") + k) for k in range(order))
    return tuple(f"R{k}" for k in range(order))


def _comments(text: Text) -> tuple[_Told, bytes | None]:
    """What stands above the first entry, and its line."""
    told = _Told([])
    while (line := text.peek()) is not None and (not line.strip() or line.lstrip()[:1] in (b"#", b"%")):
        if words := comment_of(line, b"#%"):
            keep(told.comments, words)
            _said(text, told, words, line)
        text.skip()
        text.idle(1, len(line))
    return told, line


def _said(text: Text, told: _Told, said: str, line: bytes) -> None:
    match = _SAID.match(said)
    if not match:
        return
    words = re.split(r"[\s,x]+", match[2].strip())
    if match[1].lower() == "shape":
        if all(w.isascii() and w.isdigit() and len(w) < 20 and 0 < int(w) <= _LARGEST for w in words):
            told.shape = tuple(int(w) for w in words)
        elif words[0][:1] in tuple("+-0123456789"):
            text.faults.add("the shape is not understood", "write # shape: 3 4 5", text.line, line)
    elif words[0].lower() in ("real", "integer", "pattern"):
        told.field = cast(Field, words[0].lower())


def _columns(text: Text, first: bytes, order: int | None, field: Field | None) -> tuple[int, Field]:
    """Order and field, from the number of columns of the first entry and what is known before."""
    columns = len(first.split())
    if columns > MOST_RANKS + 1:
        message = f"{columns} numbers in the first entry: a tensor has at most {MOST_RANKS} ranks"
        text.faults.add(message, "join some of them: i * J + j in the place of i and j", text.line, first)
        return columns, field or "real"
    if order is None:
        order = columns - (field != "pattern")
        if order < 1:
            message = f"{columns} number in the first entry: coordinates and a value are expected"
            text.faults.add(message, "give `ranks` if there are no values", text.line, first)
        return order, field or "real"
    if columns == order and field in (None, "pattern"):
        return order, "pattern"
    if columns == order + 1 and field != "pattern":
        return order, field or "real"
    wanted = f"{order} coordinates" + ("" if field == "pattern" else " and a value")
    message = f"{columns} numbers in the first entry, not {wanted}"
    text.faults.add(message, "name as many ranks (--names) as there are coordinates", text.line, first)
    return order, field or "real"


def _doubt(found: Entries, order: int, duplicates: int) -> tuple[str, ...]:
    """A word on a last column that may as well hold coordinates."""
    values = found.values
    if not values.size or (values < 1).any() or (values != np.floor(values)).any() or np.ptp(values) == 0:
        return ()
    summed = f", and {duplicates:,} entries were added to others at their point" if duplicates else ""
    return (
        f"the last of {order + 1} columns was taken for values, all of them whole numbers above 0{summed}; "
        f"if they are coordinates, give {order + 1} ranks, or the file a line `# field: pattern` on top",
    )
