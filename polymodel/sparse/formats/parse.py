"""Parse descriptions of formats: a name, a list with one format per rank, or a mapping; and TeAAL's records.

    CSR                         CISS(parts=8, index=16)        U-CP
    {format: COO, data: 8}      {format: CISS, parts: 8}       [U, {format: CP, cbits: 16}]
    {I: U, J: {format: C, cbits: 32, pbits: 32}, rank-order: [I, J]}

Names per rank: U, C or CP, B, RLE, UOP; of whole tensors: dense, COO, CSR, CSC, DCSR, CSF, CISS.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import Any, cast

from polymodel.errors import Diagnostic, Place, SpecError
from polymodel.sparse.formats.whole import (
    CISS,
    CP,
    RLE,
    UOP,
    B,
    Format,
    Named,
    NamedFormat,
    PerRank,
    RankRule,
    U,
    Widths,
)
from polymodel.spec.teaal.records import RankFormat, TensorFormat

_PER_RANK = ("U", "C", "CP", "B", "RLE", "UOP")
_NAMED = ("dense", "COO", "CSR", "CSC", "DCSR", "CSF")
_WHOLE = (*_NAMED, "CISS")
_WIDTHS = ("data", "index", "pointer")
# The parameters of each rank's format; all are numbers of bits except the words.
_KEYS: dict[str, tuple[str, ...]] = {
    "U": ("pbits", "cbits", "fhbits", "rhbits", "layout"),
    "C": ("cbits", "pbits", "fhbits", "rhbits", "layout"),
    "CP": ("cbits", "pbits", "fhbits", "rhbits", "layout"),
    "B": ("pbits", "cbits", "fhbits", "rhbits", "layout"),
    "RLE": ("rbits", "pbits", "overlong", "fhbits", "rhbits"),
    "UOP": ("obits", "fhbits", "rhbits"),
}
_WORDS = {"layout": ("contiguous", "interleaved"), "overlong": ("zero", "escape", "refuse")}
_RULES: dict[str, type[RankRule]] = {"U": U, "C": CP, "CP": CP, "B": B, "RLE": RLE, "UOP": UOP}
_ORDER = "rank-order"
_CALL = re.compile(r"\s*(\w+)\s*\(([^()]*)\)\s*\Z")


@dataclass
class _FormatReader:
    """The faults found so far. `path`: the location of the format in its file."""

    path: str
    place: Place
    faults: list[Diagnostic] = field(default_factory=list)

    def add(self, message: str, remedy: str, *inside: str, code: str) -> None:
        path = ".".join(part for part in (self.path, *inside) if part)
        self.faults.append(Diagnostic(message, remedy, path, self.place, code=code))

    def unknown(self, what: str, given: object, known: Sequence[str], *inside: str) -> None:
        near = get_close_matches(str(given).upper(), [k.upper() for k in known], 1)
        meant = next((k for k in known if near and k.upper() == near[0]), "")
        remedy = f"did you mean {meant}?" if meant else f"one of {', '.join(known)}"
        self.add(f"{what} {given!r} is not known", remedy, *inside, code="unknown-choice")


def parse_format(
    written: object,
    ranks: Sequence[str],
    widths: Widths | None = None,
    *,
    path: str = "format",
    place: Place | None = None,
) -> Format:
    """Return the written format (see the module) for a tensor with these ranks, outermost first.

    `widths`: those that are not written. A payload of an upper rank is a pointer, or absent where all ranks
    below are uncompressed (their position follows from the shape); payloads of the last rank are values.
    Raises SpecError with all faults: names, keys, widths, ranks that the tensor does not have or that have no
    format, each with `path` and `place`.
    """
    reader = _FormatReader(path, place or Place())
    result = _format(written, tuple(ranks), widths or Widths(), reader)
    if not reader.faults and result is not None:
        try:
            result.order(ranks)
        except SpecError as error:
            for fault in error.diagnostics:
                reader.add(fault.message, fault.remedy, code=fault.code)
    if reader.faults or result is None:
        raise SpecError(reader.faults)
    return result


def teaal_format(written: TensorFormat) -> PerRank:
    """Return the format of a configuration in TeAAL's `format` section; widths that are not given are 0, as
    in TeAAL."""
    rules = tuple(_teaal_rank(rank) for rank in written.ranks)
    names = tuple(rank.rank for rank in written.ranks)
    order = written.rank_order or names
    by_name = dict(zip(names, rules, strict=True))
    faults = [
        Diagnostic(
            f"{written.tensor}: rank {rank} has no format",
            "give one to each rank",
            f"format.{written.tensor}",
            code="missing-key",
        )
        for rank in order
        if rank not in by_name
    ]
    if faults:
        raise SpecError(faults)
    return PerRank(tuple(by_name[r] for r in order), tuple(order), written.configuration)


def _teaal_rank(rank: RankFormat) -> RankRule:
    cbits, pbits = rank.cbits or 0, rank.pbits or 0
    headers, fibers = rank.rhbits or 0, rank.fhbits or 0
    if rank.format == "U":
        return U(cbits=cbits, pbits=pbits, rhbits=headers, fhbits=fibers, layout=rank.layout)
    if rank.format == "B":
        mask = 1 if rank.cbits is None else rank.cbits
        return B(cbits=mask, pbits=pbits, rhbits=headers, fhbits=fibers, layout=rank.layout)
    return CP(cbits=cbits, pbits=pbits, rhbits=headers, fhbits=fibers, layout=rank.layout)


def _format(written: object, ranks: tuple[str, ...], widths: Widths, reader: _FormatReader) -> Format | None:
    if isinstance(written, Format):
        return written
    if isinstance(written, str):
        return _text(written, ranks, widths, reader)
    if isinstance(written, Mapping):
        if "format" in written:
            return _whole(dict(written), ranks, widths, reader)
        return _by_rank(written, ranks, widths, reader)
    if isinstance(written, Sequence):
        return _listed(list(written), ranks, widths, reader)
    message = f"{written!r} is not a format"
    reader.add(message, "a name such as CSR, or one format per rank", code="wrong-type")
    return None


def _text(text: str, ranks: tuple[str, ...], widths: Widths, reader: _FormatReader) -> Format | None:
    call = _CALL.match(text)
    if call:
        given: dict[str, object] = {"format": call[1]}
        for part in filter(None, (p.strip() for p in call[2].split(","))):
            key, equals, value = (p.strip() for p in part.partition("="))
            if not equals:
                message = f"{part!r} in {text!r} has no name"
                reader.add(message, "write CSR(data=8, index=16)", code="missing-key")
                return None
            given[key] = int(value) if re.fullmatch(r"[+-]?\d+", value) else value
        return _whole(given, ranks, widths, reader)
    name = text.strip()
    if name.upper() in {w.upper() for w in _WHOLE}:
        return _whole({"format": name}, ranks, widths, reader)
    parts = re.split(r"\s*[-,\s]\s*", name)
    if len(parts) > 1 or name.upper() in _PER_RANK:
        return _listed(list(parts), ranks, widths, reader)
    reader.unknown("format", text, (*_WHOLE, *_PER_RANK))
    return None


def _whole(
    given: dict[str, Any], ranks: tuple[str, ...], widths: Widths, reader: _FormatReader
) -> Format | None:
    """Parse `{format: NAME, data: .., index: .., pointer: ..}`, and the options of CISS."""
    name = given.pop("format")
    known = {w.upper(): w for w in _WHOLE}
    kind = known.get(str(name).upper())
    if kind is None:
        if str(name).upper() in _PER_RANK and len(ranks) == 1:
            return _listed([{"format": name, **given}], ranks, widths, reader)
        reader.unknown("format", name, _WHOLE, "format")
        return None
    keys = (*_WIDTHS, "parts", "assign") if kind == "CISS" else _WIDTHS
    before = len(reader.faults)
    for key in given:
        if key not in keys:
            reader.unknown(f"{kind}: key", key, keys)
    found = {key: _bits(given[key], reader, key) for key in _WIDTHS if key in given}
    parts = given.get("parts")
    if kind == "CISS" and (not isinstance(parts, int) or isinstance(parts, bool) or parts < 1):
        message = f"CISS: parts is {parts!r}"
        remedy = "the number of lanes, at least 1: CISS(parts=8)"
        reader.add(message, remedy, "parts", code="not-positive-integer")
    if given.get("assign", "data") not in ("data", "nnz"):
        reader.unknown("CISS: assign", given["assign"], ("data", "nnz"), "assign")
    if len(reader.faults) > before:
        return None
    chosen = replace(widths, **cast("dict[str, Any]", found))
    if kind == "CISS":
        return CISS(cast(int, parts), chosen, given.get("assign", "data"))
    return NamedFormat(cast(Named, kind), chosen)


def _by_rank(
    written: Mapping[Any, Any], ranks: tuple[str, ...], widths: Widths, reader: _FormatReader
) -> Format | None:
    """Parse `{I: U, J: {..}}`, which is stored in the order of `rank-order`, or else in that of the tensor's
    own ranks."""
    written = dict(written)
    order = written.pop(_ORDER, ranks)
    if not isinstance(order, Sequence) or isinstance(order, str) or sorted(map(str, order)) != sorted(ranks):
        what = f"{order!r} is not an order of the ranks {', '.join(ranks)}"
        reader.add(what, "name each of them once", _ORDER, code="shape-mismatch")
        order = ranks
    for rank in written:
        if rank not in ranks:
            near = get_close_matches(str(rank), ranks, 1, 0.1)
            remedy = f"did you mean {near[0]}?" if near else f"the tensor has {', '.join(ranks)}"
            reader.add(f"rank {rank!r} is not known", remedy, str(rank), code="unknown-choice")
    for rank in ranks:
        if rank not in written:
            reader.add(f"rank {rank} has no format", "give one to every rank", code="missing-key")
    if any(rank not in written for rank in ranks):
        for rank, rule in written.items():
            _rule(rule, False, False, widths, reader, str(rank))
        return None
    return _listed([written[r] for r in order], tuple(order), widths, reader)


def _listed(
    written: list[object], ranks: tuple[str, ...], widths: Widths, reader: _FormatReader
) -> Format | None:
    if len(written) != len(ranks):
        what = f"{len(written)} formats for {len(ranks)} ranks {', '.join(ranks)}"
        reader.add(what, "one per rank, outermost first", code="wrong-count")
        return None
    rules = []
    for k, (rank, rule) in enumerate(zip(ranks, written, strict=True)):
        placed = all(_kind(below) == "U" for below in written[k + 1 :])
        rules.append(_rule(rule, k == len(ranks) - 1, placed, widths, reader, rank))
    if any(rule is None for rule in rules):
        return None
    return PerRank(tuple(rule for rule in rules if rule is not None), ranks)


def _kind(written: object) -> str:
    name = written.get("format", "") if isinstance(written, Mapping) else written
    return str(name).upper()


def _rule(
    written: object, last: bool, placed: bool, widths: Widths, reader: _FormatReader, rank: str
) -> RankRule | None:
    """Return one rank's format. `placed`: the position of the next inner rank is known without a pointer."""
    given: dict[str, Any] = dict(written) if isinstance(written, Mapping) else {"format": written}
    kind = str(given.pop("format", "")).upper()
    if kind not in _PER_RANK:
        reader.unknown("format", written if not isinstance(written, Mapping) else kind, _PER_RANK, rank)
        return None
    before = len(reader.faults)
    for key in given:
        if key not in _KEYS[kind]:
            reader.unknown(f"{kind}: key", key, _KEYS[kind], rank)
    payload = widths.data if last else 0 if placed else widths.pointer
    defaults: dict[str, Any] = {"pbits": payload, "cbits": widths.index, "obits": widths.pointer}
    if kind in ("U", "B"):
        defaults["cbits"] = int(kind == "B")
    result: dict[str, Any] = {"rbits": None} if kind == "RLE" else {}
    result |= {key: value for key, value in defaults.items() if key in _KEYS[kind]}
    for key, value in given.items():
        if key in _WORDS and value not in _WORDS[key]:
            reader.unknown(key, value, _WORDS[key], rank, key)
        elif key in _KEYS[kind]:
            result[key] = value if key in _WORDS else _bits(value, reader, rank, key)
    if kind == "UOP" and last:
        message = "UOP holds offsets into the rank below, the last rank has none"
        reader.add(message, "use U, CP, B or RLE", rank, code="unsupported-format")
    if len(reader.faults) > before:
        return None
    return _RULES[kind](**result)


def _bits(value: object, reader: _FormatReader, *inside: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31:
        return value
    message = f"{value!r} is not a width"
    reader.add(message, "a whole number of bits, at least 0", *inside, code="not-an-integer")
    return 0
