"""The largest joint tiles of buffets below the last split of one Einsum, per cell and site."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from polymodel.analysis.exact.arrays import Flags, Index, Table, bounded
from polymodel.analysis.exact.cells import Course
from polymodel.analysis.exact.factor_tables import crossed
from polymodel.analysis.exact.occupancy import Item
from polymodel.analysis.exact.sweep import Ints, distinct, rank
from polymodel.integers import distinct_rows, dtype_of, largest, row_sums

Items = Sequence[tuple[Item, tuple[Table, ...]]]


@dataclass(frozen=True)
class Group:
    """Loops that share a factor of some tile: what the tiles may be, by what the outer loops fix.

    `index` finds the kind of an outer stamp (`kinds`); `choices` has, per kind, the rows of tile sizes
    (one column per item) that no other row of that kind exceeds.
    """

    spatial: tuple[int, ...]
    temporal: tuple[int, ...]
    index: Index
    kinds: Ints
    choices: tuple[Ints, ...]

    def find(self, place: dict[int, Ints], time: dict[int, Ints], shape: tuple[int, int]) -> Ints:
        columns = [place[a][None, :] for a in self.spatial] + [time[a][:, None] for a in self.temporal]
        found = self.index.find(columns, shape)
        return np.where(found < 0, -1, self.kinds[found])


@dataclass(frozen=True)
class Inside:
    """Bits by cell and site, and the tiles behind them."""

    bits: Ints
    keys: tuple[tuple[int, str], ...]
    which: Ints
    tiles: tuple[tuple[int, ...], ...]

    def residents(self, cell: int, site: int) -> dict[tuple[int, str], int]:
        """Bits per buffet at the peak of one cell and site."""
        if not self.keys or self.which[cell, site] < 0:
            return {}
        return dict(zip(self.keys, self.tiles[int(self.which[cell, site])], strict=True))


def inside(course: Course, items: Items, place: dict[int, Ints], exist: Flags) -> Inside:
    """The peak over all stamps inside each cell."""
    shape = (len(course.cells), len(exist))
    nothing = np.zeros(shape, dtype=np.int64)
    if not items:
        return Inside(nothing, (), nothing, ())
    groups = _groups(course, items)
    keys, valid = nothing, np.ones(shape, dtype=bool) & exist
    for g in groups:
        kind = g.find(place, course.time(), shape)
        valid &= kind >= 0
        keys = keys * len(g.choices) + np.maximum(kind, 0)
    combos, which = np.unique(keys, return_inverse=True)
    tiles = []
    for combo in combos:
        chosen: list[Ints] = []
        rest = int(combo)
        for g in reversed(groups):
            rest, kind_ = divmod(rest, len(g.choices))
            chosen.append(g.choices[kind_])
        tiles.append(_largest(items, chosen))
    totals = [sum(t) for t in tiles]
    sums = np.array(totals, dtype=dtype_of(max(totals, default=0)))
    which = np.where(valid, which.reshape(shape), -1)
    names = tuple((item.node.id, item.node.tensor) for item, _ in items)
    return Inside(np.where(valid, sums[which], 0), names, which, tuple(tiles))


def _largest(items: Items, chosen: list[Ints]) -> tuple[int, ...]:
    """Bits per item of the largest combination of one row per group."""
    bounded(prod(len(rows) for rows in chosen))
    most = max(prod(largest(t.sizes) for t in tables) for _, tables in items)
    sizes = np.ones((1, len(items)), dtype=dtype_of(most))
    for k, (_, tables) in enumerate(items):
        for t in tables:
            if not t.width:
                sizes[:, k] *= int(t.sizes[0])
    for rows in chosen:
        sizes = (sizes[:, None, :] * rows[None, :, :]).reshape(-1, len(items))
    bits = np.column_stack([item.in_bits(sizes[:, k]) for k, (item, _) in enumerate(items)])
    best = bits[int(np.argmax(row_sums(bits)))]
    return tuple(int(n) for n in best)


def _groups(course: Course, items: Items) -> list[Group]:
    depth = max(item.node.loops for item, _ in items)
    spatial = items[0][0].node.all_touch.spatial
    parts = [[t] for t in course.stamps(spatial, depth)]
    for _, tables in items:
        for t in tables:
            axes = {*t.spatial, *t.temporal}
            hit = [p for p in parts if any(axes & {*s.spatial, *s.temporal} for s in p)]
            if len(hit) > 1:
                rest = [p for p in parts if not any(p is h for h in hit)]
                parts = [*rest, [s for p in hit for s in p]]
    return [_group(course, part, items) for part in parts]


def _group(course: Course, part: list[Table], items: Items) -> Group:
    order, stamps = crossed([((*t.spatial, *t.temporal), t.stamps) for t in part])
    columns = dict(zip(order, stamps.T, strict=True))
    most = max(prod(largest(t.sizes) for t in tables) for _, tables in items)
    sizes = np.ones((len(stamps), len(items)), dtype=dtype_of(most))
    for k, (_, tables) in enumerate(items):
        for t in tables:
            axes = (*t.spatial, *t.temporal)
            if axes and set(axes) <= set(order):
                sizes[:, k] *= t.size_at(t.index.find([columns[a] for a in axes], (len(stamps),)))
    place = tuple(a for a in order if a in course.spatial)
    time = tuple(a for a in order if a not in course.spatial and a < course.depth)
    head = np.column_stack([columns[a] for a in (*place, *time)]) if place or time else stamps[:, :0]
    outer, each = distinct(head), rank(head)
    rows, which = distinct_rows(sizes)
    bounded(len(outer) * len(rows))
    seen = np.zeros((len(outer), len(rows)), dtype=bool)
    seen[each, which] = True
    patterns, kinds = np.unique(seen, axis=0, return_inverse=True)
    return Group(place, time, Index.of(outer), kinds.reshape(-1), tuple(_front(rows[p]) for p in patterns))


def _front(rows: Ints) -> Ints:
    """The rows that no other row exceeds (rows are distinct, so none equals another)."""
    kept = rows[np.argsort(-row_sums(rows), kind="stable")]
    position = 0
    while position < len(kept):
        below = (kept <= kept[position]).all(axis=1)
        below[position] = False
        kept = kept[~below]
        position += 1
    return kept
