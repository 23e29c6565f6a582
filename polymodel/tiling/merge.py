"""Merging neighbours that share a whole side, after any tiler.

Tiles that follow each other with the same first row and height are a chain, and so are those with the same
first column and width. In chains a group takes the next tile while it fits, and otherwise the tile begins a
group: no two neighbouring groups fit together. Chains of rows and chains of columns take turns until nothing
merges any more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polymodel.tiling.counts import Counts
from polymodel.tiling.fit import Elements, Fit, Op
from polymodel.tiling.lines import told
from polymodel.tiling.pattern import Cut, Flags, Index, Ints, Pattern, Rects, ordered


def merged(pattern: Pattern, op: Op, fit: Fit, cut: Cut) -> Cut:
    """`cut` with neighbours merged to a fixpoint: no two tiles that share a whole side fit together."""
    rects, number = cut.rects, np.arange(cut.tiles, dtype=np.int32)
    counts = Counts(pattern, cut.ids, cut.tiles)
    nnz: tuple[Ints, ...] = (counts.nnz_a, counts.nnz_b) if type(fit) is Elements else ()
    quiet, across = 0, True
    while quiet < 2:
        chain = _Chain.of(rects, across)
        if type(fit) is Elements:
            heads = _by_sums(chain, _memories(op, nnz), fit.capacity)
        else:
            heads = _by_points(chain, pattern, op, fit, number[cut.ids])
        group = np.cumsum(heads, dtype=np.int32) - np.int32(1)
        place = np.empty_like(group)
        place[chain.order] = group
        number = place[number]
        rects = chain.joined(np.nonzero(heads)[0])
        nnz = tuple(np.add.reduceat(n[chain.order], np.nonzero(heads)[0]) for n in nnz)
        quiet = quiet + 1 if heads.all() else 0
        across = not across
    return ordered(rects, number[cut.ids], f"{cut.tiler}+fixpoint", cut.notes)


def _memories(op: Op, nnz: tuple[Ints, ...]) -> tuple[Ints, ...]:
    """What each memory is filled with: for add both operands share one."""
    return (nnz[0] + nnz[1],) if op == "add" else nnz


@dataclass(frozen=True, eq=False)
class _Chain:
    """Tiles in order of their chains, rightwards (`across`) or downwards.

    `order`: the tiles' numbers; `rects`: the tiles in that order; `begins`: where a chain begins.
    """

    order: Index
    rects: Rects
    begins: Flags
    across: bool

    @classmethod
    def of(cls, rects: Rects, across: bool) -> _Chain:
        side = rects if across else rects.transposed()
        order = np.lexsort((side.col, side.row))
        rects, side = rects.taken(order), side.taken(order)
        begins = np.ones(rects.tiles, dtype=np.bool_)
        begins[1:] = (side.row[1:] != side.row[:-1]) | (side.height[1:] != side.height[:-1])
        begins[1:] |= side.col[1:] != (side.col + side.width)[:-1]
        return cls(order, rects, begins, across)

    @property
    def ends(self) -> Index:
        """Of each tile where its chain ends: the place after its last tile."""
        starts = np.append(np.nonzero(self.begins)[0], self.begins.size)
        return starts[np.cumsum(self.begins)]

    def joined(self, heads: Index) -> Rects:
        """One rectangle for each group, which goes from its head to the next one."""
        return self.upto(heads, np.append(heads[1:], self.rects.tiles) - 1)

    def upto(self, first: Index, last: Index) -> Rects:
        """The unions of the tiles from `first` to `last` of a chain."""
        r, one = self.rects, self.rects.taken(first)
        if self.across:
            return Rects(one.row, one.col, one.height, r.col[last] + r.width[last] - one.col)
        return Rects(one.row, one.col, r.row[last] + r.height[last] - one.row, one.width)


def _by_sums(chain: _Chain, memories: tuple[Ints, ...], capacity: int) -> Flags:
    """Where groups begin, for loads that are sums over tiles."""
    tiles = chain.begins.size
    after = chain.ends
    for filled in memories:
        sums = np.concatenate([[0], np.cumsum(filled[chain.order])])
        after = np.minimum(after, np.searchsorted(sums, sums[:-1] + capacity, side="right") - 1)
    # A tile that overflows alone is a group of its own.
    jump = np.append(np.maximum(after, np.arange(1, tiles + 1)), tiles)
    heads = np.append(chain.begins, True)
    known = 0
    # Jumps twice as long each time: heads that are any number of groups behind the first are soon found.
    while (found := int(np.count_nonzero(heads))) > known:
        known = found
        heads[jump[np.nonzero(heads)[0]]] = True
        jump = jump[jump]
    return heads[:-1]


def _by_points(chain: _Chain, pattern: Pattern, op: Op, fit: Fit, ids: Index) -> Flags:
    """Where groups begin, for any loads: all chains take a tile at a time, its points with the group's."""
    heads = chain.begins.copy()
    after = chain.ends
    head = np.nonzero(chain.begins)[0]
    head = head[after[head] - head > 1]
    if not head.size:
        return heads
    rank = np.empty(chain.order.size, dtype=np.int32)
    rank[chain.order] = np.arange(chain.order.size, dtype=np.int32)
    of = rank[ids]
    points = np.argsort(of, kind="stable")
    begins = np.concatenate([[0], np.cumsum(np.bincount(of, minlength=chain.order.size))])
    last = head + 1
    while head.size:
        size = begins[last + 1] - begins[head]
        group = np.repeat(np.arange(head.size, dtype=np.int32), size)
        at = points[np.arange(group.size) + np.repeat(begins[head] - np.cumsum(size) + size, size)]
        sort = np.argsort(at)  # row by row again
        counts = Counts(pattern.taken(at[sort]), group[sort], head.size)
        good = fit.fits(counts, chain.upto(head, last), op)
        heads[last[~good]] = True
        head = np.where(good, head, last)
        last = last + 1
        going = last < after[head]
        head, last = head[going], last[going]
    return heads


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
