"""Factors of touch relations as tables: enumerated where they are small, else counted with ISL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import prod

import numpy as np

from polymodel.analysis.exact.arrays import Flags, Index, Listed, Table, bounded
from polymodel.analysis.exact.cached_counts import Shape, tally
from polymodel.analysis.exact.sweep import Ints, coordinates, counter_of, distinct, satisfied, stacked
from polymodel.polyhedra import needs
from polymodel.polyhedra.sets import listed_points
from polymodel.schedule.touch import Block, View, essential_constraints, executed_text, partition, touch

# Coupled variables (a triangle, say) of up to LISTED points are always listed, of more than _AT_MOST never.
LISTED, _FAR_MORE, _AT_MOST = 100_000, 50, 5_000_000

Masks = Mapping[int, Flags]  # by loop (node id): which of its steps are listed


@lru_cache(maxsize=4096)
def fine_blocks(view: View) -> tuple[Block, ...]:
    """Independent classes of one view's variables and ranks."""
    return partition((view,))


def listed(
    views: Iterable[View],
    block: Block,
    spatial: tuple[int, ...],
    temporal: tuple[int, ...],
    ranks: tuple[int, ...],
    masks: Masks | None = None,
) -> Table:
    """The union of what the views touch in one block, over the loops at the given positions."""
    views = tuple(views)
    if any(is_large(v, fine) for v in views for fine in fine_blocks(v) if fine.variables & block.variables):
        return _counted(views, block, spatial, temporal, ranks)
    parts = [_rows(v, block, (*spatial, *temporal), ranks, masks or {}) for v in views]
    rows = parts[0] if len(parts) == 1 else distinct(np.concatenate([p.T for p in parts], axis=1).T)
    return Listed(spatial, temporal, rows)


def is_large(view: View, fine: Block) -> bool:
    """True if the class couples variables and has far more points than stamps, or too many to list."""
    if view.parts:
        return False
    extents = _extents(view, fine)
    points = prod(h - low + 1 for low, h in extents.values())
    if len(extents) < 2 or points <= LISTED:
        return False
    stamps, inside = 1, {v: h - low + 1 for v, (low, h) in extents.items()}
    for _, loop, _ in view.loops:
        v = loop.variable_in(view.einsum.name)
        if v in inside:
            tile = min(int(loop.tile_shape), inside[v])
            stamps, inside[v] = stamps * -(-inside[v] // tile), tile
    return points > _AT_MOST or stamps * _FAR_MORE < points


def _extents(view: View, fine: Block) -> dict[str, tuple[int, int]]:
    einsum = view.einsum
    return {v: einsum.bound(v) for v in einsum.rank_variables if (einsum.name, v) in fine.variables}


@dataclass(frozen=True)
class Counted(Table):
    """One factor as the ISL text of its touches [spatial..., temporal..., ranks...].

    `drop`: dimensions that are no part of the stamp. Unless `whole`, only stamps are known.
    """

    text: str
    drop: tuple[int, ...]
    whole: bool

    @cached_property
    def stamps(self) -> Ints:
        found = needs.list_stamps(self.text, self.drop)
        return distinct(np.array(found, dtype=np.int64).reshape(len(found), self.width))

    @cached_property
    def sizes(self) -> Ints:
        found = np.zeros(len(self.stamps), dtype=np.int64)
        pairs = needs.stamp_sizes(self.text, self.width)
        rows = np.array([p for p, _ in pairs], dtype=np.int64).reshape(len(pairs), self.width)
        found[self.index.find(list(rows.T), (len(rows),))] = [n for _, n in pairs]
        return found

    def meeting(self, one: Ints, other: Ints) -> Flags:
        rows = [tuple(int(c) for c in row) for row in self.stamps]
        pairs = zip(one, other, strict=True)
        return np.array(
            [needs.overlap(self.text, self.width, rows[a], rows[b]) for a, b in pairs], dtype=bool
        )

    @cached_property
    def places(self) -> tuple[Index, Ints, Ints]:
        """Every instance is a class of its own."""
        where = distinct(self.stamps[:, : len(self.spatial)])
        if not self.whole:
            return Index.of(where), np.arange(len(where)), np.ones(len(where), dtype=np.int64)
        shape = Shape(self.text, len(self.spatial), len(self.temporal))
        held = tally(shape, shape.np, tuple(range(shape.np, self.width)))
        amounts = np.asarray(held[tuple(where.T)], dtype=np.int64).reshape(-1)
        return Index.of(where), np.arange(len(where)), amounts


def _counted(
    views: tuple[View, ...],
    block: Block,
    spatial: tuple[int, ...],
    temporal: tuple[int, ...],
    ranks: tuple[int, ...],
) -> Counted:
    (factor,) = touch(views, (block,)).factors
    have = (*factor.spatial, *factor.temporal)
    wanted = (*spatial, *temporal)
    drop = tuple(i for i, a in enumerate(have) if a not in wanted)
    data = tuple(range(len(have), len(have) + len(factor.ranks)))
    return Counted(spatial, temporal, factor.text, (*drop, *data), not drop and ranks == factor.ranks)


def _rows(view: View, block: Block, axes: tuple[int, ...], ranks: tuple[int, ...], masks: Masks) -> Ints:
    """Distinct rows, the product over the view's own classes in the block."""
    parts = []
    for fine in fine_blocks(view):
        mine = [i for i, a in enumerate(axes) if view.loops[a][0] in fine.loops]
        held = [r for r in ranks if r in fine.ranks]
        if mine or held:
            rows = factor_rows(view, fine, tuple(axes[i] for i in mine), tuple(held), masks)
            parts.append(((*mine, *(len(axes) + ranks.index(r) for r in held)), rows))
    order, rows = crossed(parts)
    assert order == tuple(range(len(axes) + len(ranks))), block
    return distinct(rows)


def factor_rows(view: View, fine: Block, axes: tuple[int, ...], ranks: tuple[int, ...], masks: Masks) -> Ints:
    """Distinct rows [axes..., ranks...] of one of `fine_blocks`."""
    if view.parts:
        return _executed_rows(view, fine, axes, ranks, masks)
    einsum, mine = view.einsum, _extents(view, fine)
    extents = [high - low + 1 for low, high in mine.values()]
    count = bounded(prod(extents))
    grid = np.indices(extents, dtype=np.int64).reshape(len(mine), count)
    values = {v: column + low for column, (v, (low, _)) in zip(grid, mine.items(), strict=True)}
    keep = np.ones(count, dtype=bool)
    for c in (*essential_constraints(einsum)[2 * len(einsum.rank_variables) :], *view.access.guard):
        if set(c.expr.variables) <= set(mine):
            keep &= satisfied(c, values, count)
    counters: dict[int, Ints] = {}
    starts: dict[str, Ints] = {}
    for position, (node, loop, origin) in enumerate(view.loops):
        v = loop.variable_in(einsum.name)
        if v in values:
            base = starts.get(v, np.full(count, origin, dtype=np.int64))
            counters[position], starts[v] = counter_of(values[v] - base, base, loop)
            if position in axes and node in masks:
                steps = np.minimum(counters[position], len(masks[node]) - 1)  # beyond it no point is kept
                keep &= masks[node][steps]
    columns = [counters[a] for a in axes]
    for r in ranks:
        columns.append(coordinates(view.access.projection[r], values, count))
    return distinct(stacked(columns, count)[keep])


def _executed_rows(
    view: View, fine: Block, axes: tuple[int, ...], ranks: tuple[int, ...], masks: Masks
) -> Ints:
    """The same where what executes is given as parts."""
    rows = listed_points(executed_text(view, replace(fine, ranks=ranks), axes))
    for k, a in enumerate(axes):
        mask = masks.get(view.loops[a][0])
        if mask is not None:
            rows = rows[mask[np.minimum(rows[:, k], len(mask) - 1)]]
    return distinct(rows)


def crossed(parts: Sequence[tuple[tuple[int, ...], Ints]]) -> tuple[tuple[int, ...], Ints]:
    """The product of tables of named columns: names in order, and one row per combination."""
    sizes = [len(rows) for _, rows in parts]
    count = bounded(prod(sizes))
    grid = np.indices(sizes, dtype=np.int64).reshape(len(sizes), count)
    columns = {a: rows[grid[i], k] for i, (axes, rows) in enumerate(parts) for k, a in enumerate(axes)}
    order = tuple(sorted(columns))
    return order, stacked([columns[a] for a in order], count)
