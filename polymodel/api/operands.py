"""The arguments of `tile`: operands from files and other libraries, operations by name, and fit criteria."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from polymodel.errors import Diagnostic, SpecError
from polymodel.sparse.coerce import coerce_tensor
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.faults import not_a
from polymodel.tiling.fits.fit import Elements, Fit, Op, Words
from polymodel.tiling.plane.operands import Alone, Rolled, Second, Transposed

if TYPE_CHECKING:
    import scipy.sparse

Source: TypeAlias = (
    "SparseTensor | str | PathLike[str] | NDArray[Any] | scipy.sparse.sparray | scipy.sparse.spmatrix"
)
OPS: dict[str, Op] = {"add": "add", "multiply": "multiply", "mul": "multiply"}
_TENSORS = "pass the name of a .mtx or .tns file, a SparseTensor, an array, or a SciPy sparse matrix"


def elements(capacity: int) -> Elements:
    """A memory with this number of entries: of A and B together for add, of each for multiply."""
    return Elements(capacity)


def words(capacity: int) -> Words:
    """Memories of this many words, one each for A, B and the output, that hold compressed tiles (DCSR)."""
    return Words(capacity)


def operand(
    source: Source, name: str, names: Sequence[str] | None = None, call: str = "tile"
) -> tuple[SparseTensor, tuple[str, ...]]:
    """A tensor, and how the entries of its file were treated. Raises SpecError for other objects.

    `names`: of its ranks, unless it is a tensor, which has its own. `call`: the function whose argument it
    is.
    """
    if names is not None and not isinstance(names, Iterable):
        raise SpecError(
            [
                Diagnostic(
                    f"names={names!r} is not a list of names",
                    "write e.g. names=('I', 'J')",
                    code="wrong-type",
                )
            ]
        )
    if isinstance(names, str):
        fault = f"names={names!r} is one name, not several"
        remedy = f"write names={tuple(names.replace(',', ''))}"
        raise SpecError([Diagnostic(fault, remedy, code="wrong-type")])
    if isinstance(source, SparseTensor):
        return source, ()
    if isinstance(source, (str, PathLike)):
        from polymodel.sparse.files import read_file

        file = read_file(source, ranks=names)
        done = _done(
            (file.explicit_zeros, "explicit zero", "removed"),
            (file.duplicates, "duplicate", "summed"),
            (file.cancelled, "point", "cancelled to zero and removed"),
        )
        told = [f"{file.tensor.name}: {done}"] if done else []
        return file.tensor, (*told, *(f"{file.tensor.name}: {note}" for note in file.notes))
    if hasattr(source, "tocoo"):
        matrix = source.tocoo()
        ranks = "IJKLMN"[: len(matrix.shape)] if names is None else names
        coords = np.array(matrix.coords) if hasattr(matrix, "coords") else np.array([matrix.row, matrix.col])
        result = SparseTensor.from_coo(name, tuple(ranks), matrix.shape, coords, matrix.data)
        held = int(np.count_nonzero(matrix.data))
        merged = (held - result.nnz, "duplicate", "summed or cancelled")
        done = _done((int(matrix.data.size) - held, "explicit zero", "removed"), merged)
        return result, ((f"{name}: {done}",) if done else ())
    if isinstance(source, np.ndarray | list | tuple):
        ranks = tuple("IJKLMN"[: np.ndim(source)] if names is None else names)
        return coerce_tensor(name, ranks, source), ()
    raise not_a("sparse tensor or file", call, source, _TENSORS)


def _done(*changes: tuple[int, str, str]) -> str:
    """A summary of how the entries were treated, with their numbers."""
    return ", ".join(f"{n:,} {what}{'s' if n > 1 else ''} {how}" for n, what, how in changes if n)


def second_operand(
    given: Source | Second | None, names: Sequence[str] | None = None
) -> tuple[Second | None, tuple[str, ...]]:
    """B in the form that the tiling room expects: a tensor, or its construction from A."""
    made = in_words(given, repr(given)) if isinstance(given, str) else given
    if made is None or isinstance(made, (Rolled, Transposed, Alone)):
        return made, ()
    return operand(made, "B", names)


def factor(given: Source | Second | None) -> Source | Transposed | None:
    """B of a product, also given by name. Raises SpecError for a construction from A that is not a
    product's.
    """
    made = in_words(given, repr(given)) if isinstance(given, str) else given
    if isinstance(made, (Rolled, Alone)):
        fault = f"tile_matmul: {made!r} makes B for element-wise work alone; a product needs a factor"
        remedy = "pass a file, a tensor or pm.Transposed(), or leave b out for A times A"
        remedy = f"{remedy}; pm.tile adds and multiplies element by element"
        raise SpecError([Diagnostic(fault, remedy, code="unknown-choice")])
    return made


def in_words(text: str, said: str) -> str | Second:
    """B from its text form: `rolled`, `rolled:ROWS`, `transposed`, `nothing`; any other text is the name of a
    file.

    `said`: the argument as given, for messages.
    """
    word, colon, number = text.partition(":")
    if word == "rolled":
        try:
            return Rolled(int(number)) if colon else Rolled()
        except ValueError:
            fault = f"{said}: {number!r} is not a whole number of rows"
            raise SpecError([Diagnostic(fault, "write e.g. rolled:5", code="not-an-integer")]) from None
    plain: dict[str, Second] = {"transposed": Transposed(), "nothing": Alone()}
    if text in plain:
        return plain[text]
    if word == "dense":
        fault = f"{said}: both operands have to be sparse; a dense one is not tiled"
        remedy = (
            "to see what skipping and compressed storage save in a product with a dense matrix, evaluate a "
            "spec with densities (docs/howto/sparse.md)"
        )
        raise SpecError([Diagnostic(fault, remedy, code="unknown-choice")])
    if "." not in text:
        fault = f"{said}: neither a file nor a way to make B of A"
        remedy = "name a .mtx or .tns file, rolled[:ROWS], transposed or nothing"
        raise SpecError([Diagnostic(fault, remedy, code="unknown-choice")])
    return text


def operation(op: str) -> Op:
    """`add` or `multiply`. Raises SpecError for others, with a reference to the product of matrices."""
    if isinstance(op, str) and op in OPS:
        return OPS[op]
    if op in ("matmul", "matrix multiplication", "@"):
        fault = f"op={op!r}: a product of matrices reuses its operands, so its tiles are chosen otherwise"
        raise SpecError([Diagnostic(fault, "call pm.tile_matmul(a, b, ...)", code="unknown-choice")])
    remedy = "write add or multiply (element by element), or call pm.tile_matmul for a product of matrices"
    raise SpecError([Diagnostic(f"op={op!r} is not an operation", remedy, code="unknown-choice")])


def fitting(fit: Fit | None) -> Fit:
    """The fit criterion; 128 entries by default."""
    if fit is None:
        return Elements(128)
    if not isinstance(fit, Fit):
        raise not_a("rule of what fits", "tile", fit, "pass e.g. pm.elements(128) or pm.words(512)")
    return fit
