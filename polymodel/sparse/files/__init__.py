"""Tensors in files: Matrix Market (.mtx) and FROSTT (.tns), each also packed with gzip."""

from __future__ import annotations

import warnings
from collections.abc import Sequence, Sized
from os import PathLike, fspath
from pathlib import Path

from polymodel.errors import Diagnostic, SpecError
from polymodel.sparse.arguments import Arguments
from polymodel.sparse.files.readers import TensorFile, default_ranks, read_frostt, read_market
from polymodel.sparse.files.text import FileFaults, Text
from polymodel.sparse.files.write import write_tensor
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.faults import not_a

__all__ = ["TensorFile", "read_file", "read_tensor", "stem_of", "write_tensor"]


def read_tensor(
    path: str | PathLike[str],
    name: str | None = None,
    ranks: Sequence[str] | None = None,
    *,
    shape: Sequence[int] | None = None,
    limit: int | None = None,
    fill: float = 0.0,
) -> SparseTensor:
    """Return the tensor in a .mtx, .mtx.gz, .tns or .tns.gz file: explicit zeros removed, duplicates summed,
    symmetric storage expanded; `read_file` also returns their numbers.

    `name`: the tensor's name, by default that of the file without endings. `ranks`: outermost first, by
    default I, J, K, ...; a .tns file with as many columns as ranks has no values (all are 1). `shape`: of a
    .tns file, by default that of its comment `# shape: 3 4 5`, otherwise the largest coordinates. `limit`:
    bytes of text after unpacking; by default 8 GB, and 40 times the packed size. `fill`: the value of points
    without an entry; if it is not zero, entries of zero are kept. Raises SpecError with all faults of the
    file (the first 20, the others counted), each with its line. Warns (UserWarning) if a column taken for
    values is more likely one of coordinates, and if entries of a matrix stored by symmetry are above the
    diagonal.
    """
    result = read_file(path, name, ranks, shape=shape, limit=limit, fill=fill)
    # A column of values that are whole numbers is suspicious only where points coincide.
    for note in result.notes if result.duplicates or result.symmetry != "general" else ():
        warnings.warn(f"{result.path}: {note}", stacklevel=2)
    return result.tensor


def read_file(
    path: str | PathLike[str],
    name: str | None = None,
    ranks: Sequence[str] | None = None,
    *,
    shape: Sequence[int] | None = None,
    limit: int | None = None,
    fill: float = 0.0,
) -> TensorFile:
    """Read a tensor as `read_tensor` does, and return it with the record of the file."""
    if not isinstance(path, (str, PathLike)):
        raise not_a("name of a file", "read_tensor", path, "pass e.g. 'matrix.mtx.gz'")
    file = Path(fspath(path))
    stem, kind = _kind(file)
    read = Arguments()
    read.name("name", name)
    for argument, check, given in (("ranks", read.names, ranks), ("shape", read.several, shape)):
        if given is not None:
            check(argument, given)
    _check(kind, ranks, shape, read)
    read.raise_if_any()
    faults = FileFaults(str(path))
    with Text(path, faults, limit) as text:
        if kind == ".tns":
            return read_frostt(text, name or stem, ranks, shape, fill)
        return read_market(text, name or stem, tuple(ranks) if ranks is not None else default_ranks(2), fill)


def stem_of(path: Path) -> str:
    """Return the name without endings, which is the default name of a tensor."""
    return _unpacked(path).stem


def _unpacked(path: Path) -> Path:
    return path.with_suffix("") if path.suffix.lower() == ".gz" else path


def _kind(path: Path) -> tuple[str, str]:
    """Return the name without endings, and the ending that specifies the format."""
    plain = _unpacked(path)
    kind = plain.suffix.lower()
    if kind not in (".mtx", ".tns"):
        unpack = kind in (".tar", ".tgz", ".zip", ".bz2", ".xz", ".zst")
        remedy = (
            "unpack it, and name the .mtx or .tns file" if unpack else "name a .mtx, .mtx.gz, .tns or .tns.gz"
        )
        message = f"{path}: the ending names no format of tensors"
        raise SpecError([Diagnostic(message, remedy, code="unknown-format")])
    return plain.stem, kind


def _check(kind: str, ranks: Sequence[str] | None, shape: Sequence[int] | None, read: Arguments) -> None:
    """Record arguments that do not fit the kind of file, or each other."""
    named, sized = (isinstance(given, Sized) for given in (ranks, shape))
    if kind == ".mtx" and ranks is not None and named and len(ranks) != 2:
        message = f"a matrix has 2 ranks, {len(ranks)} are given"
        read.add("ranks", message, "name its rows and columns", code="wrong-count")
    if kind == ".mtx" and shape is not None:
        read.add(
            "shape", "a .mtx file says its shape itself", "leave out `shape`", code="ineffective-argument"
        )
    elif shape is not None and sized and not all(hasattr(s, "__index__") and 0 < s < 2**63 for s in shape):
        message = f"{list(shape)}: sizes are whole numbers of at least 1"
        read.add("shape", message, "write e.g. [400, 300]", code="not-positive-integer")
    if ranks is not None and shape is not None and named and sized and len(ranks) != len(shape):
        message = f"{len(ranks)} ranks and {len(shape)} sizes"
        read.add("shape", message, "one size per rank", code="wrong-count")
