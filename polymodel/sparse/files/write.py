"""Write tensors as Matrix Market or FROSTT files that read back identically."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import IO

import numpy as np

from polymodel.errors import Diagnostic, SpecError, writing
from polymodel.sparse.files.text import Field
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.faults import not_a
from polymodel.spec.files import whole

# Entries turned into text at a time.
_PIECE = 1 << 20


def write_tensor(
    tensor: SparseTensor, path: str | PathLike[str], *, comment: str = "", durable: bool = True
) -> None:
    """Write a .mtx, .mtx.gz (matrices, coordinate, general) or .tns, .tns.gz file (any order but 0).

    Coordinates count from 1, in lexicographic order; floats are written exactly. A .tns file gets its shape
    and field as comments, which `read_tensor` reads. The file is written completely or not at all; if
    `durable`, also in case of a power failure, which takes some milliseconds. Raises SpecError for endings of
    other formats, for tensors that the format cannot hold, and where the file cannot be written.
    """
    if not isinstance(tensor, SparseTensor):
        raise not_a(
            "sparse tensor", "write_tensor", tensor, "pass the tensor first, then the name of the file"
        )
    if not isinstance(path, (str, PathLike)):
        raise not_a("name of a file", "write_tensor", path, "pass e.g. 'matrix.mtx.gz'")
    file = Path(fspath(path))
    packed = file.suffix.lower() == ".gz"
    kind = (file.with_suffix("") if packed else file).suffix.lower()
    faults = []
    if kind not in (".mtx", ".tns"):
        message = f"{file}: the ending names no format of tensors"
        faults.append(Diagnostic(message, "write .mtx or .tns", code="unknown-format"))
    if kind == ".mtx" and len(tensor.ranks) != 2:
        message = f"{tensor.name} has {len(tensor.ranks)} ranks: no matrix"
        faults.append(Diagnostic(message, "write it as .tns", code="wrong-count"))
    if kind == ".tns" and not tensor.ranks:
        message = f"{tensor.name} has no ranks"
        faults.append(Diagnostic(message, "a .tns file needs coordinates", code="wrong-count"))
    if kind == ".tns" and tensor.values.dtype.kind == "c":
        message = f"{tensor.name} is complex: .tns has one value per entry"
        faults.append(Diagnostic(message, "write .mtx", code="wrong-type"))
    if faults:
        raise SpecError(faults)
    said = comment.splitlines()
    if kind == ".mtx":
        head = [f"%%MatrixMarket matrix coordinate {_field(tensor)} general", *(f"% {line}" for line in said)]
        head.append(f"{tensor.shape[0]} {tensor.shape[1]} {tensor.nnz}")
    else:
        head = [f"# {line}" for line in said]
        head += [f"# shape: {' '.join(str(s) for s in tensor.shape)}", f"# field: {_field(tensor)}"]
    with writing(file), whole(file, durable=durable) as fresh, _opened(fresh, packed) as sink:
        sink.write(("\n".join(head) + "\n").encode())
        for start in range(0, tensor.nnz, _PIECE):
            _entries(tensor, slice(start, start + _PIECE), sink)


@contextmanager
def _opened(file: Path, packed: bool) -> Iterator[IO[bytes]]:
    with file.open("wb") as raw:
        if not packed:
            yield raw
            return
        # No time stamp and no name: the same tensor makes the same bytes.
        with gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=0) as sink:
            yield sink  # type: ignore[misc]  # GzipFile writes bytes, its stub says no more than that


def _field(tensor: SparseTensor) -> Field:
    kind = tensor.values.dtype.kind
    return "complex" if kind == "c" else "real" if kind == "f" else "integer"


def _entries(tensor: SparseTensor, piece: slice, sink: IO[bytes]) -> None:
    import pyarrow
    import pyarrow.csv

    values = tensor.values[piece]
    columns = [row[piece] + 1 for row in tensor.coords]
    columns += [values.real, values.imag] if values.dtype.kind == "c" else [values]
    widest = {"f": np.float64, "c": np.float64, "u": np.uint64}.get(values.dtype.kind, np.int64)
    columns = [*columns[: len(tensor.ranks)], *(c.astype(widest) for c in columns[len(tensor.ranks) :])]
    table = pyarrow.table({str(k): column for k, column in enumerate(columns)})
    options = pyarrow.csv.WriteOptions(include_header=False, delimiter=" ", quoting_style="none")
    buffer = pyarrow.BufferOutputStream()
    pyarrow.csv.write_csv(table, buffer, options)
    sink.write(buffer.getvalue())
