"""Two consecutive products, Z = (A B) C, cut into panels of rows that the first product passes to the second.

A panel of rows of A yields the same rows of T = A B, and these the same rows of Z. A panel of T is therefore
used as soon as it is complete, and by nothing else: it need not leave the array.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.sparse.tensor import SparseTensor
from polymodel.tiling.matmul.panels import RowPanels, cut_panels, reach
from polymodel.tiling.matmul.product import PatternProduct, Progress, product_of
from polymodel.tiling.plane.pattern import Ints

ROLES = ("A", "B", "T", "C", "Z")
Buffers = tuple[int, int, int, int, int]


@dataclass(frozen=True, eq=False)
class ChainPanels:
    """Panels of both products over the same rows. Only panels with products in the first are launched, and of
    these the second product only where it has any.

    `turned`: the factors are transposed, so that panels are columns of the last factor.
    """

    first: RowPanels
    second: RowPanels
    turned: bool

    @property
    def begins(self) -> Ints:
        return self.first.begins

    @cached_property
    def launched(self) -> Ints:
        """Indices of the panels that the first product launches."""
        return np.flatnonzero(self.first.launched)

    @cached_property
    def multiplies(self) -> tuple[Ints, Ints]:
        """Per panel: multiplies of the first and of the second product."""
        return _multiplies(self.first), _multiplies(self.second)

    @property
    def intermediate_words(self) -> int:
        """Words of all panels of T: what is stored and loaded again if the products run separately."""
        return int(self.first.z[self.launched].sum())


def chain_of(
    a: SparseTensor,
    b: SparseTensor,
    c: SparseTensor,
    buffers: Buffers,
    turned: bool = False,
    progress: Progress | None = None,
) -> ChainPanels:
    """Return the panels of (A B) C that fit `buffers` (words for A, B, T, C and Z); `turned`: of A (B C), by
    columns.

    A panel has as many rows as fit in the buffers of A, T and Z. Rows of B and C pass one at a time, and each
    must fit. Raises SpecError if sizes do not match, Refused if a row does not fit or `product_of` refuses.
    """
    _check_sizes(a, b, c)
    if turned:
        a, b, c = (_transposed(x) for x in (c, b, a))
        buffers = buffers[3], buffers[1], buffers[2], buffers[0], buffers[4]
    one = product_of(a, b, progress)
    places = np.stack([one.z.rows, one.z.cols]).astype(np.int64)
    middle = SparseTensor("T", ("I", "J"), one.z.shape, places, np.ones(one.z.nnz))
    two = product_of(middle, c, progress)
    ends = reach(one.a.row_nnz, buffers[0])
    for rows, capacity in ((one.z.row_nnz, buffers[2]), (two.z.row_nnz, buffers[4])):
        ends = np.minimum(ends, reach(rows, capacity))
    first = cut_panels(one, ends)
    result = ChainPanels(first, cut_panels(two, ends), turned)
    _check_fit(result, buffers)
    return result


def _check_sizes(*factors: SparseTensor) -> None:
    faults = [
        Diagnostic(f"{x.name} has {len(x.shape)} ranks", "three matrices are multiplied", code="wrong-count")
        for x in factors
        if len(x.shape) != 2
    ]
    if not faults:
        faults = [
            Diagnostic(
                f"{x.name} has {x.shape[1]} columns, {y.name} {y.shape[0]} rows",
                "give each factor as many rows as the one before it has columns",
                code="shape-mismatch",
            )
            for x, y in pairwise(factors)
            if x.shape[1] != y.shape[0]
        ]
    if faults:
        raise SpecError(faults)


def _check_fit(found: ChainPanels, buffers: Buffers) -> None:
    largest = (
        int(found.first.a[found.launched].max(initial=0)),
        found.first.b_row_max,
        int(found.first.z.max(initial=0)),
        found.second.b_row_max,
        int(found.second.z.max(initial=0)),
    )
    names = ("C", "B", "T", "A", "Z") if found.turned else ROLES
    line = "column" if found.turned else "row"
    over = [
        f"a {line} of {name} takes {words} words of {room}"
        for name, words, room in zip(names, largest, buffers, strict=True)
        if words > room
    ]
    if over:
        raise Refused(f"panels do not fit: {', '.join(over)}", "give larger capacities", code="over-capacity")


def _transposed(x: SparseTensor) -> SparseTensor:
    return x.swizzled(x.ranks[::-1])


def _multiplies(panels: RowPanels) -> Ints:
    product: PatternProduct = panels.product
    per_entry = np.append(0, np.cumsum(product.b.row_nnz[product.a.cols]))
    result: Ints = np.diff(per_entry[product.a.starts[panels.begins]])
    return result
