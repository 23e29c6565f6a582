"""Merge neighbouring tiles that share a whole side, after any tiler.

Consecutive tiles with the same first row and height form a chain, and so do those with the same first column
and width. Within a chain, a group takes the next tile if the result fits; otherwise that tile starts a new
group, so that no two neighbouring groups fit together. Chains of rows and chains of columns are processed
alternately until nothing is merged any more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from polymodel.tiling.fits.fit import Elements, Fit, Op, Stored
from polymodel.tiling.plane.pattern import Cut, Flags, Index, Ints, Pattern, Rects, TileCounts, sorted_by
from polymodel.tiling.tilers.lines import known_counts, summed


def merged(pattern: Pattern, op: Op, fit: Fit, cut: Cut, counts: TileCounts | None = None) -> Cut:
    """Return `cut` with neighbours merged to a fixpoint: no two tiles that share a whole side fit together.

    `counts`: those of `cut`, if known.
    """
    rects, number = cut.rects, np.arange(cut.tiles, dtype=np.int32)
    counts = counts or TileCounts(pattern, cut.ids, cut.tiles)
    blocks = TilePoints(pattern, cut.ids, cut.tiles)
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
        chain = TileChain.of(rects, across)
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
    """Return the rectangles that pairs of neighbours form together."""
    row, col = np.minimum(rects.row[one], rects.row[two]), np.minimum(rects.col[one], rects.col[two])
    bottom = np.maximum((rects.row + rects.height)[one], (rects.row + rects.height)[two])
    right = np.maximum((rects.col + rects.width)[one], (rects.col + rects.width)[two])
    return Rects(row, col, bottom - row, right - col)


def union_loads(counts: TileCounts, rects: Rects, op: Op, fit: Fit, pairs: tuple[Index, Index]) -> Ints:
    """Return the loads of pairs of neighbours; no tile may be in two pairs.

    Except for entries, the loads do not follow from sums, because neighbours share rows.
    """
    union = union_of(rects, *pairs)
    if type(fit) is Elements:
        each = (counts.nnz_a, counts.nnz_b)
        nnz = {name: n[pairs[0]] + n[pairs[1]] for name, n in zip(("nnz_a", "nnz_b"), each, strict=True)}
        return fit.loads(known_counts(counts.pattern, nnz), union, op)
    number = np.full(rects.tiles, -1, dtype=np.int32)
    for members in pairs:
        number[members] = np.arange(members.size, dtype=np.int32)
    at = number[counts.ids]
    kept = at >= 0
    return fit.loads(TileCounts(counts.pattern.taken(kept), at[kept], pairs[0].size), union, op)


def joined(rects: Rects, pairs: tuple[Index, Index] | Index) -> tuple[Rects, Index]:
    """Return the rectangles after pairs of them became one, at the index of the first one, and the new number
    of every rectangle."""
    one, two = pairs
    union = union_of(rects, one, two)
    table = rects.table()
    table[one] = union.table()
    stays = np.ones(rects.tiles, dtype=np.bool_)
    stays[two] = False
    number = np.cumsum(stays, dtype=np.int32) - np.int32(1)
    number[two] = number[one]
    return Rects.of(table[stays]), number


# The figures of tiles that are measured in words: entries and inner fibers, and bounds of the number of rows.
_SURE = ("nnz_a", "nnz_b", "inner_a", "inner_b")
_LEAST, _MOST = slice(4, 6), slice(6, 8)
# The length of a chain from which searching for neighbours that do not fit together pays off.
_LONG = 32


@dataclass(frozen=True, eq=False)
class TileChain:
    """Tiles in the order of their chains, rightwards (`across`) or downwards.

    `order`: the tiles' numbers. `rects`: the tiles in that order. `begins`: whether a chain starts there.
    """

    order: Index
    rects: Rects
    begins: Flags
    across: bool

    @classmethod
    def of(cls, rects: Rects, across: bool) -> TileChain:
        side = rects if across else rects.transposed()
        order = np.lexsort((side.col, side.row))
        rects, side = rects.taken(order), side.taken(order)
        begins = np.ones(rects.tiles, dtype=np.bool_)
        begins[1:] = (side.row[1:] != side.row[:-1]) | (side.height[1:] != side.height[:-1])
        begins[1:] |= side.col[1:] != (side.col + side.width)[:-1]
        return cls(order, rects, begins, across)

    @property
    def ends(self) -> Index:
        """The end of the chain of each tile: the position after its last tile."""
        starts = np.append(np.nonzero(self.begins)[0], self.begins.size)
        return starts[np.cumsum(self.begins)]

    def joined(self, heads: Index) -> Rects:
        """Return one rectangle for each group, which extends from its head to the next one."""
        return self.upto(heads, np.append(heads[1:], self.rects.tiles) - 1)

    def upto(self, first: Index, last: Index) -> Rects:
        """Return the unions of the tiles from `first` to `last` of a chain."""
        r, one = self.rects, self.rects.taken(first)
        if self.across:
            return Rects(one.row, one.col, one.height, r.col[last] + r.width[last] - one.col)
        return Rects(one.row, one.col, r.row[last] + r.height[last] - one.row, one.width)


def by_sums(chain: TileChain, memories: tuple[Ints, ...], capacity: int) -> Flags:
    """Return where groups start, for loads that are sums over tiles."""
    tiles = chain.begins.size
    after = chain.ends
    for filled in memories:
        sums = np.concatenate([[0], np.cumsum(filled[chain.order])])
        after = np.minimum(after, np.searchsorted(sums, sums[:-1] + capacity, side="right") - 1)
    # A tile that overflows alone is a group of its own.
    jump = np.append(np.maximum(after, np.arange(1, tiles + 1)), tiles)
    heads = np.append(chain.begins, True)
    known = 0
    # The jumps double in each round, so that all heads are found after few rounds.
    while (found := int(np.count_nonzero(heads))) > known:
        known = found
        heads[jump[np.nonzero(heads)[0]]] = True
        jump = jump[jump]
    return heads[:-1]


def figures_of(counts: TileCounts) -> Ints:
    """Return the figures of tiles that `by_steps` uses, 8 x tiles."""
    rows = (counts.rows_a, counts.rows_b)
    return np.stack([*(getattr(counts, name) for name in _SURE), *rows, *rows])


@dataclass(frozen=True, eq=False)
class TilePoints:
    """The points, tile after tile."""

    pattern: Pattern
    ids: Index
    tiles: int

    @cached_property
    def points(self) -> Index:
        return sorted_by(self.ids, self.tiles)

    @cached_property
    def begins(self) -> Ints:
        return np.concatenate([[0], np.cumsum(np.bincount(self.ids, minlength=self.tiles))])

    def counts(self, tiles: Index, group: Index, groups: int) -> TileCounts:
        """Return the counts of groups of tiles."""
        place, which = _ranges(self.begins[tiles], self.begins[tiles + 1])
        at, ids = self.points[place], group[which]
        order = sorted_by(at, self.pattern.points)  # row by row
        return TileCounts(self.pattern.taken(at[order]), ids[order], groups)


def _ranges(start: Ints, stop: Ints) -> tuple[Index, Index]:
    """Return the numbers from each start up to, but not including, its stop, range after range; and the range
    of each number."""
    size = stop - start
    which = np.repeat(np.arange(size.size, dtype=np.int32), size)
    return np.arange(which.size) + np.repeat(start - np.cumsum(size) + size, size), which


def by_steps(
    chain: TileChain, figures: Ints | None, rule: tuple[Op, Fit], blocks: TilePoints, number: Index
) -> tuple[Flags, Ints | None]:
    """Return where groups start, for loads that are not sums, and the figures of groups. All chains advance
    by one tile at a time.

    `figures` (None: unknown) bound the load of a union; where the bounds do not decide, its points are
    counted. For formats they are the minimum bits of the entries of A, of B, and for add of the output.
    `number`: the current tile of each tile of `blocks`.
    """
    known = None if figures is None else figures[:, chain.order]
    check = _UnionCheck(chain, rule, blocks, _Members.of(chain, number))
    heads, after = chain.begins.copy(), chain.ends
    if int((after[heads] - np.nonzero(heads)[0]).max()) > _LONG:
        # Neighbours that do not fit together are never in one group, so that long chains become short ones.
        second = np.nonzero(~heads)[0]
        good, _ = check.united(known, second - 1, second)
        heads[second[~good]] = True
        starts = np.append(np.nonzero(heads)[0], heads.size)
        after = starts[np.cumsum(heads)]
    head = np.nonzero(heads)[0]
    head = head[after[head] - head > 1]
    last = head + 1
    while head.size:
        good, both = check.united(known, head, last)
        if known is not None and both is not None:
            known[:, head[good]] = both[:, good]
        heads[last[~good]] = True
        head = np.where(good, head, last)
        last = last + 1
        going = last < after[head]
        head, last = head[going], last[going]
    return heads, None if known is None else known[:, heads]


@dataclass(frozen=True, eq=False)
class _UnionCheck:
    """Decides whether a group and the next tile of its chain fit together."""

    chain: TileChain
    rule: tuple[Op, Fit]
    blocks: TilePoints
    members: _Members

    def united(self, known: Ints | None, head: Index, last: Index) -> tuple[Flags, Ints | None]:
        """For groups from `head` up to `last`, the next tile, return whether the union fits, and its figures
        if known.

        `known`: figures of the groups, at their heads, and of tiles.
        """
        op, fit = self.rule
        rects = self.chain.upto(head, last)
        good, unsure, both = np.zeros(head.size, dtype=np.bool_), np.arange(head.size), None
        if known is not None and isinstance(fit, Stored):
            # A lower bound from the bits of entries; groups that may fit are measured.
            both = known[:, head] + known[:, last]
            unsure = np.nonzero(both.max(axis=0) <= fit.capacity)[0]
        elif known is not None:
            both = _united(known[:, head], known[:, last], self.chain.across, rects)
            least, most = (
                fit.loads(_counts(self.blocks.pattern, both, rows), rects, op) for rows in (_LEAST, _MOST)
            )
            good = most <= fit.capacity
            unsure = np.nonzero((least <= fit.capacity) & ~good)[0]
        if unsure.size:
            tiles, group = self.members.of_groups(head[unsure], last[unsure])
            counts = self.blocks.counts(tiles, group, unsure.size)
            good[unsure] = fit.fits(counts, rects.taken(unsure), op)
            if both is not None and not isinstance(fit, Stored):
                both[_LEAST, unsure] = both[_MOST, unsure] = np.stack([counts.rows_a, counts.rows_b])
        return good, both


@dataclass(frozen=True, eq=False)
class _Members:
    """The original tiles that make up the tiles of a chain, in the chain's order, and where those of each
    tile start."""

    tiles: Index
    begins: Ints

    @classmethod
    def of(cls, chain: TileChain, number: Index) -> _Members:
        rank = np.empty(chain.order.size, dtype=np.int32)
        rank[chain.order] = np.arange(chain.order.size, dtype=np.int32)
        place = rank[number]
        begins = np.concatenate([[0], np.cumsum(np.bincount(place, minlength=chain.order.size))])
        return cls(np.argsort(place, kind="stable"), begins)

    def of_groups(self, first: Index, last: Index) -> tuple[Index, Index]:
        """Return the original tiles of the chain's tiles from `first` to `last`, and the group of each."""
        place, group = _ranges(self.begins[first], self.begins[last + 1])
        return self.tiles[place], group


def _united(one: Ints, two: Ints, across: bool, rects: Rects) -> Ints:
    """Return the figures of unions. Tiles above each other have different rows; tiles side by side may share
    rows."""
    both = one + two
    if across:
        both[_LEAST] = np.maximum(one[_LEAST], two[_LEAST])
        both[_MOST] = np.minimum(both[_MOST], rects.height)
    return both


def _counts(pattern: Pattern, figures: Ints, rows: slice) -> TileCounts:
    names = (*_SURE, "rows_a", "rows_b")
    return known_counts(pattern, dict(zip(names, [*figures[:4], *figures[rows]], strict=True)))
