"""Merging neighbours that share a whole side, after any tiler.

Tiles that follow each other with the same first row and height are a chain, and so are those with the same
first column and width. In chains a group takes the next tile while it fits, and otherwise the tile begins a
group: no two neighbouring groups fit together. Chains of rows and chains of columns take turns until nothing
merges any more.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from polymodel.tiling.fits.fit import Elements, Fit, Op
from polymodel.tiling.fits.stored import Stored
from polymodel.tiling.plane.counts import Counts
from polymodel.tiling.plane.pattern import Cut, Index, Ints, Pattern, Rects
from polymodel.tiling.tilers.chains import Blocks, Chain, by_steps, by_sums, figures_of
from polymodel.tiling.tilers.lines import summed, told


def merged(pattern: Pattern, op: Op, fit: Fit, cut: Cut, counts: Counts | None = None) -> Cut:
    """`cut` with neighbours merged to a fixpoint: no two tiles that share a whole side fit together.

    `counts`: of `cut`, where they are known.
    """
    rects, number = cut.rects, np.arange(cut.tiles, dtype=np.int32)
    counts = counts or Counts(pattern, cut.ids, cut.tiles)
    blocks = Blocks(pattern, cut.ids, cut.tiles)
    figures: Ints | None = None
    if type(fit) is Elements:
        figures = np.stack([counts.nnz_a, counts.nnz_b])
    elif summed(fit):
        figures = figures_of(counts)
    elif isinstance(fit, Stored):
        held = (counts.nnz_a, counts.nnz_b, *((counts.union,) if op == "add" else ()))
        figures = np.stack(held) * fit.entry_bits(pattern)
    quiet, across = 0, True
    while quiet < 2:
        chain = Chain.of(rects, across)
        if type(fit) is Elements and figures is not None:
            # For add both operands share one memory.
            memories = (figures[0] + figures[1],) if op == "add" else tuple(figures)
            heads = by_sums(chain, memories, fit.capacity)
            figures = np.add.reduceat(figures[:, chain.order], np.nonzero(heads)[0], axis=1)
        else:
            heads, figures = by_steps(chain, figures, (op, fit), blocks, number)
        group = np.cumsum(heads, dtype=np.int32) - np.int32(1)
        place = np.empty_like(group)
        place[chain.order] = group
        number = place[number]
        rects = chain.joined(np.nonzero(heads)[0])
        quiet = quiet + 1 if heads.all() else 0
        across = not across
    if rects.tiles == cut.tiles:
        return replace(cut, tiler=f"{cut.tiler}+fixpoint")
    order = np.lexsort((rects.col, rects.row))
    place = np.empty_like(number, shape=order.size)
    place[order] = np.arange(order.size, dtype=number.dtype)
    return Cut(rects.taken(order), place[number][cut.ids], f"{cut.tiler}+fixpoint", cut.notes)


def union_of(rects: Rects, one: Index, two: Index) -> Rects:
    """The rectangles that pairs of neighbours make together."""
    row, col = np.minimum(rects.row[one], rects.row[two]), np.minimum(rects.col[one], rects.col[two])
    bottom = np.maximum((rects.row + rects.height)[one], (rects.row + rects.height)[two])
    right = np.maximum((rects.col + rects.width)[one], (rects.col + rects.width)[two])
    return Rects(row, col, bottom - row, right - col)


def union_loads(counts: Counts, rects: Rects, op: Op, fit: Fit, pairs: tuple[Index, Index]) -> Ints:
    """Loads of pairs of neighbours; no tile may be in two pairs.

    But for entries not from sums: neighbours share rows.
    """
    union = union_of(rects, *pairs)
    if type(fit) is Elements:
        each = (counts.nnz_a, counts.nnz_b)
        nnz = {name: n[pairs[0]] + n[pairs[1]] for name, n in zip(("nnz_a", "nnz_b"), each, strict=True)}
        return fit.loads(told(counts.pattern, nnz), union, op)
    number = np.full(rects.tiles, -1, dtype=np.int32)
    for members in pairs:
        number[members] = np.arange(members.size, dtype=np.int32)
    at = number[counts.ids]
    kept = at >= 0
    return fit.loads(Counts(counts.pattern.taken(kept), at[kept], pairs[0].size), union, op)


def joined(rects: Rects, pairs: tuple[Index, Index] | Index) -> tuple[Rects, Index]:
    """Rectangles after pairs of them became one, in the first one's place, and everyone's new number."""
    one, two = pairs
    union = union_of(rects, one, two)
    table = rects.table()
    table[one] = union.table()
    stays = np.ones(rects.tiles, dtype=np.bool_)
    stays[two] = False
    number = np.cumsum(stays, dtype=np.int32) - np.int32(1)
    number[two] = number[one]
    return Rects.of(table[stays]), number
