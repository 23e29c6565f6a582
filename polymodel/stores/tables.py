"""Sealed tables of a store: parquet files that are whole or not there, and tell when a byte has changed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from polymodel.errors import Refused, writing
from polymodel.spec.output import recorded, whole

Array = Any
ANEW = "start anew: resume=False in Python, --no-resume on the command line"
RELEASE = 7  # of the columns, what is said about them, and how they are sealed
# The fingerprint of a whole file stands inside it; it is taken with zeros in its own place. Parquet itself
# does not notice a changed byte.
_SEAL = re.compile(rb'"file_sha256": "([0-9a-f]{64})"')
_ZEROS = "0" * 64
_STATE = "state-"


def write_table(file: Path, columns: Mapping[str, Array], about: Mapping[str, object]) -> None:
    """Write a parquet file in one step: a reader sees the old one or the new one, whatever happens."""
    import pyarrow as pa
    from pyarrow import parquet

    seal = {"release": _release(), "file_sha256": _ZEROS}
    said = {b"polymodel": json.dumps(about).encode(), b"seal": json.dumps(seal).encode()}
    table = pa.table(dict(columns)).replace_schema_metadata(said)
    file.parent.mkdir(parents=True, exist_ok=True)
    with writing(file), whole(file, recorded=True) as fresh:
        with fresh.open("wb") as sink:
            parquet.write_table(table, sink)
        data = fresh.read_bytes()
        zeros = f'"file_sha256": "{_ZEROS}"'.encode()
        fresh.write_bytes(data.replace(zeros, zeros.replace(_ZEROS.encode(), _digest(data).encode())))


def _release() -> str:
    """Numbers of another release may differ, so that they do not go into one front."""
    from polymodel import __version__

    return f"{__version__}, stores of kind {RELEASE}"


def _digest(data: bytes) -> str:
    """The fingerprint of a file, whatever stands in the place of the fingerprint."""
    result = _SEAL.search(data)
    start, end = result.span(1) if result else (0, 0)
    return hashlib.sha256(data[:start] + _ZEROS.encode() * bool(result) + data[end:]).hexdigest()


def read_table(file: Path, of: str = "a sweep") -> tuple[dict[str, Array], dict[str, Any]]:
    """The columns as arrays, and what was written about them.

    Refused if any byte of the file has changed, or if it is of another release.
    """
    import pyarrow as pa
    from pyarrow import parquet

    damaged = Refused(f"{file} is damaged, and no state of {of} can be read from it", ANEW)
    try:
        data = file.read_bytes()
        sealed = _SEAL.search(data)
        if sealed is not None and sealed.group(1).decode() != _digest(data):
            raise damaged
        table = parquet.read_table(pa.BufferReader(data))
        metadata = table.schema.metadata or {}
        about, seal = (json.loads(metadata.get(name, b"{}")) for name in (b"polymodel", b"seal"))
        columns = {n: table[n].to_numpy(zero_copy_only=False) for n in table.column_names}
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise damaged from error
    if not isinstance(seal, dict) or not isinstance(about, dict):
        raise damaged
    if seal.get("release") != _release():
        by = f"polymodel {seal['release']}" if seal.get("release") else "an earlier release"
        raise Refused(f"{file} was written by {by}, this is {_release()}", f"go on with that one, or {ANEW}")
    if sealed is None:
        raise damaged
    return columns, about


def spare_others(file: Path) -> None:
    """Refused for a file that is about to be replaced in a store, and was made by somebody else."""
    if not file.is_file() or file.name in recorded(file.parent):
        return
    states = [file] if _STATE in file.name else sorted(file.parent.glob(f"{_STATE}*.parquet"))
    if not any(map(_sealed, states)):  # stores of earlier releases have no journal
        remedy = "give another store, or move the file away"
        raise Refused(f"{file} is not polymodel's, and the store keeps a file of that name", remedy)


def _sealed(file: Path) -> bool:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with pa.OSFile(str(file)) as source:
            return b"seal" in (parquet.read_schema(source).metadata or {})
    except (pa.ArrowException, OSError, ValueError):
        return False
