"""Row panels: as many rows of A at a time as a buffer holds; each row of B is read once per panel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from polymodel.tiling.matmul.product import EntryCoordinates, PatternProduct, changes
from polymodel.tiling.matmul.walk import OrderTraffic
from polymodel.tiling.plane.pattern import Flags, Ints
from polymodel.tiling.tilers.lines import chain


@dataclass(frozen=True, eq=False)
class RowPanels:
    """Consecutive rows of A, and the data used with them.

    `begins`: the first row of each panel, and the end. Per panel: `a`, `z`: words of its rows of A and of Z;
    `b`: words read of B, 2 nnz + 2 for every nonempty row k that a column of the panel selects; `b_rows`: the
    number of these rows. A panel without any is not launched and transfers nothing.
    """

    product: PatternProduct
    begins: Ints
    a: Ints
    b: Ints
    z: Ints
    b_rows: Ints

    @property
    def count(self) -> int:
        return int(self.a.size)

    @property
    def heights(self) -> Ints:
        """The number of rows of each panel."""
        return np.diff(self.begins)

    @property
    def launched(self) -> Flags:
        result: Flags = self.b_rows > 0
        return result

    @property
    def launches(self) -> int:
        return int(np.count_nonzero(self.launched))

    @cached_property
    def b_row_max(self) -> int:
        """Words of the longest row of B that A selects: the least size of its buffer."""
        longest = int(self.product.used[1].row_nnz.max())
        return 2 * longest + 2 if longest else 0

    def traffic(self) -> OrderTraffic:
        """A panel is read once, Z is written once (a panel of Z stays until it is complete), and rows of B
        are streamed."""
        on = self.launched
        words = [int(x[on].sum()) for x in (self.a, self.b, self.z)]
        return OrderTraffic(
            "ikj", self.launches, int(self.b_rows.sum()), self.launches, words[0], words[1], 0, words[2]
        )


def panels_of(product: PatternProduct, capacity: int, z_capacity: int | None = None) -> RowPanels:
    """Return panels of consecutive rows of A that each take at most `capacity` words (and whose part of Z
    takes at most `z_capacity`); a single heavier row still forms a panel."""
    ends = reach(product.a.row_nnz, capacity)
    if z_capacity is not None:
        ends = np.minimum(ends, reach(product.z.row_nnz, z_capacity))
    return cut_panels(product, ends)


def cut_panels(product: PatternProduct, ends: Ints) -> RowPanels:
    """Return consecutive panels; `ends`: for every row, the end of a panel that begins with it."""
    begins = _chained(ends)
    a, z = (_words(p, begins) for p in (product.a, product.z))
    b, b_rows = _rows_met(product, begins)
    return RowPanels(product, begins, a, b, z, b_rows)


def reach(row_nnz: Ints, capacity: int) -> Ints:
    """Return, for every first row, the end of the longest panel that fits, which has at least one row."""
    each = 2 * row_nnz + 2 * (row_nnz > 0)
    before = np.concatenate([[0], np.cumsum(each)])
    full = np.searchsorted(before, before[:-1] + capacity - 3, side="right") - 1
    empty = np.searchsorted(before, before[:-1], side="right") - 1  # rows without entries take no words
    return np.maximum(np.maximum(full, empty), np.arange(1, before.size))


def _chained(reach: Ints) -> Ints:
    """Return the panels in sequence: each begins where the previous one ends."""
    return np.append(chain(reach, np.zeros(1, dtype=np.int64)), reach.size)


def _words(places: EntryCoordinates, begins: Ints) -> Ints:
    rows = np.concatenate([[0], np.cumsum(places.row_nnz > 0)])
    nnz, held = np.diff(places.starts[begins]), np.diff(rows[begins])
    result: Ints = np.where(nnz > 0, 2 * nnz + 2 * held + 3, 0)
    return result


def _rows_met(product: PatternProduct, begins: Ints) -> tuple[Ints, Ints]:
    """Return, per panel, the words and the number of the distinct nonempty rows of B that its columns
    select.
    """
    a, count = product.a, begins.size - 1
    panel = np.repeat(np.arange(count), np.diff(a.starts[begins]))
    named = panel * a.shape[1] + a.cols
    named.sort()
    panel, k = np.divmod(named[changes(named)], a.shape[1])
    nnz = product.b.row_nnz[k]
    panel, nnz = panel[nnz > 0], nnz[nnz > 0]
    words = np.bincount(panel, weights=2 * nnz + 2, minlength=count).astype(np.int64)
    return words, np.bincount(panel, minlength=count)
