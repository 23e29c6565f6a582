"""What a reader found: the tensor, and what was done to the entries of the file to make it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from polymodel.sparse.files.entries import Entries, Field, Ints
from polymodel.sparse.tensor import SparseTensor


@dataclass(frozen=True, eq=False)
class TensorFile:
    """A tensor with the record of its file.

    `entries`: stored in the file. `mirrored`: added because the file stores one half of a symmetric matrix.
    `explicit_zeros`: entries (mirrored ones too) that were zero. `duplicates`: entries added to another at
    the same point. `cancelled`: points whose entries add up to zero. So
    tensor.nnz = entries + mirrored - explicit_zeros - duplicates - cancelled.
    """

    path: str
    tensor: SparseTensor
    format: str
    field: Field
    symmetry: str
    entries: int
    mirrored: int
    explicit_zeros: int
    duplicates: int
    cancelled: int
    comments: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        done = [
            f"{count:,} {word}"
            for word, count in (
                ("mirrored", self.mirrored),
                ("explicit zeros removed", self.explicit_zeros),
                ("duplicates summed", self.duplicates),
                ("points cancelled", self.cancelled),
            )
            if count
        ]
        kind = f"{self.format}, {self.field} {self.symmetry}, {self.entries:,} entries"
        return f"TensorFile({self.path}: {', '.join([kind, *done])}: {self.tensor!r})"


def _distinct(coords: Ints, shape: Sequence[int]) -> int:
    """How many different points there are."""
    if prod(shape) > 2**63 - 1:
        return int(np.unique(coords, axis=1).shape[1])
    numbers = np.ravel_multi_index(tuple(coords), tuple(shape))
    numbers.sort()
    return 1 + int(np.count_nonzero(np.diff(numbers)))


def record(
    path: str,
    tensor: tuple[str, Sequence[str], Sequence[int]],
    found: Entries,
    mirrored: int,
    format: str,
    field: Field,
    symmetry: str = "general",
    comments: Sequence[str] = (),
) -> TensorFile:
    """The record of entries that are all within the shape; `tensor`: its name, ranks and shape.

    `mirrored`: how many of the entries are not in the file.
    """
    name, ranks, shape = tensor
    kept = found.values != 0
    zeros = int(kept.size - np.count_nonzero(kept))
    coords, values = (found.coords[:, kept], found.values[kept]) if zeros else (found.coords, found.values)
    made = SparseTensor.from_coo(name, ranks, shape, coords, values)
    points = made.nnz if made.nnz == values.size else _distinct(coords, shape)
    return TensorFile(
        path=path,
        tensor=made,
        format=format,
        field=field,
        symmetry=symmetry,
        entries=int(found.values.size) - mirrored,
        mirrored=mirrored,
        explicit_zeros=zeros,
        duplicates=int(values.size) - points,
        cancelled=points - made.nnz,
        comments=tuple(comments),
    )
