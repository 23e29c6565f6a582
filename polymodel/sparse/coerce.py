"""Accept tensors in the forms that callers use: `SparseTensor`, SciPy sparse matrices, NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike

from polymodel.errors import Diagnostic, SpecError
from polymodel.sparse.arguments import Arguments
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.faults import shown

WAYS = "pass a SparseTensor, a SciPy sparse matrix, an array of numbers, or pm.read_tensor(file)"


def coerce_tensor(name: str, ranks: Sequence[str], given: object, fill: float = 0.0) -> SparseTensor:
    """Return `given` under the name and the declared ranks of an input. `fill`: the value of points without
    an entry.

    A `SparseTensor` with the same ranks in another order is transposed, and one with other ranks takes the
    declared names in order. If it leaves out zeros, entries equal to `fill` are left out instead. Raises
    SpecError for values that are not tensors, and for a tensor with another number of ranks.
    """
    ranks = tuple(ranks)
    if isinstance(given, (str, PathLike)):
        what = f"{name}: {str(given)!r} is not a tensor"
        raise SpecError([Diagnostic(what, f"pass pm.read_tensor({str(given)!r})", code="wrong-type")])
    if isinstance(given, SparseTensor):
        _same_order(name, ranks, given.shape)
        given = _with_fill(name, given, fill)
        if given.ranks == ranks:
            return given if given.name == name else given.renamed(name)
        turned = given.swizzled(ranks) if set(given.ranks) == set(ranks) else given
        return turned.renamed(name, ranks)
    if hasattr(given, "tocoo"):
        coo = given.tocoo()
        _same_order(name, ranks, coo.shape)
        return SparseTensor.from_scipy(name, ranks, coo, fill=fill)
    return _of_array(name, ranks, given, fill)


def _with_fill(name: str, given: SparseTensor, fill: float) -> SparseTensor:
    if given.fill == fill:
        return given
    if given.fill:
        what = f"{name} holds {given.fill:g} where it has no entry, and here {fill:g} is left out"
        raise SpecError([Diagnostic(what, f"make it with fill={fill:g}", name, code="inconsistent-values")])
    return given.filled(fill)


def _of_array(name: str, ranks: tuple[str, ...], given: object, fill: float) -> SparseTensor:
    read = Arguments()
    array = read.array(name, given)
    read.raise_if_any()
    if array.dtype.kind not in "biufc":
        kind = "an array of text" if array.dtype.kind in "US" else shown(given)
        raise SpecError([Diagnostic(f"{name}: {kind} is not a tensor of numbers", WAYS, code="wrong-type")])
    _same_order(name, ranks, array.shape)
    return SparseTensor.from_dense(name, ranks, array, fill=fill)


def _same_order(name: str, ranks: tuple[str, ...], shape: tuple[int, ...]) -> None:
    if len(shape) != len(ranks):
        own = f"{len(ranks)} rank{'s' if len(ranks) != 1 else ''} {list(ranks)}"
        what = f"{name} is declared with {own}, the tensor has {len(shape)}"
        remedy = f"give one with an axis for each of {', '.join(ranks) or 'none'}"
        raise SpecError([Diagnostic(what, remedy, code="wrong-count")])
