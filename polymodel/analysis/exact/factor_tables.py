"""Factors of touches as arrays of stamps and as tables: enumerated if small, otherwise counted with ISL."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from polymodel.analysis.exact.cached_counts import FactorShape, tally
from polymodel.analysis.exact.sweep import Ints, coordinates, counter_of, distinct, rank, satisfied, stacked
from polymodel.errors import Refused
from polymodel.polyhedra import needs
from polymodel.polyhedra.sets import listed_points
from polymodel.schedule.touch import RankBlock, View, essential_constraints, executed_text, partition, touch

# Factors of touches as arrays: their stamps, the elements of each, and which of them overlap. One factor has
# few loops and ranks, so that its stamps can be listed, and mostly its elements too, even if the operations
# of the whole Einsum, the product over all factors, cannot.

Flags = NDArray[np.bool_]
LIMIT = 20_000_000


def bounded(count: int) -> int:
    """`count`; raises Refused if arrays of this length would not fit."""
    if count > LIMIT:
        raise Refused(
            f"tiles that are carried past other Einsums have {count:,} stamps; at most {LIMIT:,} are listed",
            "use larger tiles in the loops above their split, or let those Einsums share no loops",
            code="too-large",
        )
    return count


@dataclass(frozen=True)
class RowIndex:
    """Row numbers of distinct rows of non-negative integers, by their values."""

    shape: tuple[int, ...]
    rows: Ints

    @staticmethod
    def of(table: Ints) -> RowIndex:
        shape = tuple(int(n) + 1 for n in table.max(axis=0, initial=0))
        result = np.full(bounded(prod(shape)), -1, dtype=np.int64)
        flat = np.zeros(len(table), dtype=np.int64)
        for column, n in zip(table.T, shape, strict=True):
            flat = flat * n + column
        result[flat] = np.arange(len(table))
        return RowIndex(shape, result)

    def find(self, columns: Sequence[Ints], shape: tuple[int, ...]) -> Ints:
        """Row numbers for columns that broadcast to `shape`; -1 where there is no such row."""
        flat = np.zeros((1,) * len(shape), dtype=np.int64)
        known = np.ones((1,) * len(shape), dtype=bool)
        for column, n in zip(columns, self.shape, strict=True):
            known = known & (column < n)
            flat = flat * n + np.minimum(column, n - 1)
        result = np.where(known, self.rows[flat], -1)
        return np.asarray(np.broadcast_to(result, shape), dtype=np.int64)


NOWHERE = 2**62  # a counter beyond all known values


@dataclass(frozen=True)
class Ends:
    """First and last stamps of one factor under given counters of its outer loops (`axes`)."""

    axes: tuple[int, ...]
    index: RowIndex
    starts: Ints
    stops: Ints

    def first(self, time: dict[int, Ints], rows: int) -> Ints:
        return self._at(self.starts, time, rows)

    def last(self, time: dict[int, Ints], rows: int) -> Ints:
        return self._at(self.stops, time, rows)

    def _at(self, stamps: Ints, time: dict[int, Ints], rows: int) -> Ints:
        """Stamps by rows; where nothing is touched, counters that no stamp has."""
        result = self.index.find([time[a] for a in self.axes], (rows,))
        return np.where((result < 0)[:, None], NOWHERE, stamps[result])


@dataclass(frozen=True)
class StampTable(ABC):
    """One factor: its stamps [spatial..., temporal...] and the size of each. `spatial` and `temporal`: the
    stamp positions of the columns of `stamps`, which are distinct and sorted."""

    spatial: tuple[int, ...]
    temporal: tuple[int, ...]

    @property
    def width(self) -> int:
        return len(self.spatial) + len(self.temporal)

    @property
    @abstractmethod
    def stamps(self) -> Ints:
        """Distinct stamps at which anything is touched, in order."""

    @property
    @abstractmethod
    def sizes(self) -> Ints:
        """Elements per stamp."""

    @property
    @abstractmethod
    def places(self) -> tuple[RowIndex, Ints, Ints]:
        """Instances; for each, its class (equal except for the position of its data), and all elements it
        ever holds."""

    @abstractmethod
    def distinct_overlap(self, one: Ints, other: Ints) -> Flags:
        """Whether two different stamps have a common element, for arrays of distinct pairs."""

    @cached_property
    def times(self) -> Ints:
        """Distinct temporal stamps, in order."""
        return distinct(self.stamps[:, len(self.spatial) :])

    @cached_property
    def index(self) -> RowIndex:
        return RowIndex.of(self.stamps)

    def find(self, place: dict[int, Ints], time: dict[int, Ints], shape: tuple[int, int]) -> Ints:
        """Stamps by (time, place), -1 where nothing is touched; counters by stamp position."""
        columns = [place[a][None, :] for a in self.spatial] + [time[a][:, None] for a in self.temporal]
        return self.index.find(columns, shape)

    def size_at(self, stamps: Ints) -> Ints:
        """Elements at stamps as returned by `find`; 0 at -1."""
        return np.where(stamps < 0, 0, self.sizes[stamps])

    def overlap(self, one: Ints, other: Ints) -> Flags:
        """Whether two stamps have a common element."""
        both = (one >= 0) & (other >= 0)
        result = both & (one == other)
        moved = both & (one != other)
        if moved.any():
            keys = one[moved] * len(self.stamps) + other[moved]
            pairs, which = np.unique(keys, return_inverse=True)
            found = self.distinct_overlap(pairs // len(self.stamps), pairs % len(self.stamps))
            result[moved] = found[which.reshape(-1)]
        return np.asarray(result, dtype=bool)

    def ends(self, outer: int) -> Ends:
        """The first and the last temporal stamp of any instance, by the first `outer` temporal counters."""
        heads = distinct(self.times[:, :outer])
        last = np.searchsorted(rank(self.times[:, :outer]), np.arange(len(heads)), side="right") - 1
        first = np.concatenate(([0], last[:-1] + 1))
        return Ends(self.temporal[:outer], RowIndex.of(heads), self.times[first], self.times[last])


@dataclass(frozen=True)
class ListedFactor(StampTable):
    """One factor as a list of distinct, sorted rows [spatial..., temporal..., ranks...]."""

    rows: Ints

    @cached_property
    def _new(self) -> Flags:
        """Rows that begin a stamp."""
        result = np.zeros(len(self.rows), dtype=bool)
        result[:1] = True
        for column in self.rows.T[: self.width]:
            result[1:] |= column[1:] != column[:-1]
        return result

    @cached_property
    def stamps(self) -> Ints:
        """Distinct stamps at which anything is touched, in order."""
        return self.rows[self._new, : self.width]

    @cached_property
    def owner(self) -> Ints:
        """The stamp of each row."""
        return np.cumsum(self._new) - 1

    @cached_property
    def sizes(self) -> Ints:
        """Elements per stamp."""
        return np.bincount(self.owner, minlength=len(self.stamps)).astype(np.int64)

    @cached_property
    def _elements(self) -> Ints:
        return rank(self.rows[:, self.width :])

    def distinct_overlap(self, one: Ints, other: Ints) -> Flags:
        small = np.where(self.sizes[one] <= self.sizes[other], one, other)
        large = one + other - small
        lengths = self.sizes[small]
        bounded(int(lengths.sum()))
        starts = np.cumsum(self.sizes) - self.sizes
        pair = np.repeat(np.arange(len(small)), lengths)
        inside = np.arange(len(pair)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        elements = self._elements[starts[small][pair] + inside]
        count = int(self._elements.max()) + 1
        known = self.owner * count + self._elements  # ascending: rows are in order
        wanted = large[pair] * count + elements
        at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        hits = np.bincount(pair[known[at] == wanted], minlength=len(small))
        return np.asarray(hits > 0)

    @cached_property
    def places(self) -> tuple[RowIndex, Ints, Ints]:
        """Instances; for each, its class (equal except for the position of its data), and all elements it
        ever holds."""
        columns = len(self.spatial)
        where, each = distinct(self.rows[:, :columns]), rank(self.rows[:, :columns])
        bounds = np.searchsorted(each, np.arange(len(where) + 1))
        seen: dict[bytes, int] = {}
        kinds = np.zeros(len(where), dtype=np.int64)
        for i in range(len(where)):
            part = self.rows[bounds[i] : bounds[i + 1], columns:].copy()
            part[:, len(self.temporal) :] -= part[:, len(self.temporal) :].min(axis=0, initial=2**62)
            kinds[i] = seen.setdefault(part.tobytes(), len(seen))
        held = distinct(np.column_stack([each, self._elements]))
        return RowIndex.of(where), kinds, np.bincount(held[:, 0], minlength=len(where)).astype(np.int64)


# Factors of touch relations as tables: enumerated if they are small, otherwise counted with ISL.

# Coupled variables (a triangle, say) of up to LISTED points are always listed; those of more than _AT_MOST
# never are.
LISTED, _FAR_MORE, _AT_MOST = 100_000, 50, 5_000_000

Masks = Mapping[int, Flags]  # by loop (node id): the steps that are listed


@lru_cache(maxsize=4096)
def fine_blocks(view: View) -> tuple[RankBlock, ...]:
    """Independent classes of one view's variables and ranks."""
    return partition((view,))


def listed(
    views: Iterable[View],
    block: RankBlock,
    spatial: tuple[int, ...],
    temporal: tuple[int, ...],
    ranks: tuple[int, ...],
    masks: Masks | None = None,
) -> StampTable:
    """The union of what the views touch in one block, over the loops at the given positions."""
    views = tuple(views)
    if any(is_large(v, fine) for v in views for fine in fine_blocks(v) if fine.variables & block.variables):
        return _counted(views, block, spatial, temporal, ranks)
    parts = [_rows(v, block, (*spatial, *temporal), ranks, masks or {}) for v in views]
    rows = parts[0] if len(parts) == 1 else distinct(np.concatenate([p.T for p in parts], axis=1).T)
    return ListedFactor(spatial, temporal, rows)


def is_large(view: View, fine: RankBlock) -> bool:
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


def _extents(view: View, fine: RankBlock) -> dict[str, tuple[int, int]]:
    einsum = view.einsum
    return {v: einsum.bound(v) for v in einsum.rank_variables if (einsum.name, v) in fine.variables}


@dataclass(frozen=True)
class TouchText(StampTable):
    """One factor as the ISL text of its touches [spatial..., temporal..., ranks...]. `drop`: dimensions that
    are not part of the stamp. Unless `whole`, only stamps are known."""

    text: str
    drop: tuple[int, ...]
    whole: bool

    @cached_property
    def stamps(self) -> Ints:
        result = needs.list_stamps(self.text, self.drop)
        return distinct(np.array(result, dtype=np.int64).reshape(len(result), self.width))

    @cached_property
    def sizes(self) -> Ints:
        result = np.zeros(len(self.stamps), dtype=np.int64)
        pairs = needs.stamp_sizes(self.text, self.width)
        rows = np.array([p for p, _ in pairs], dtype=np.int64).reshape(len(pairs), self.width)
        result[self.index.find(list(rows.T), (len(rows),))] = [n for _, n in pairs]
        return result

    def distinct_overlap(self, one: Ints, other: Ints) -> Flags:
        rows = [tuple(int(c) for c in row) for row in self.stamps]
        pairs = zip(one, other, strict=True)
        return np.array(
            [needs.overlap(self.text, self.width, rows[a], rows[b]) for a, b in pairs], dtype=bool
        )

    @cached_property
    def places(self) -> tuple[RowIndex, Ints, Ints]:
        """Every instance is a class of its own."""
        where = distinct(self.stamps[:, : len(self.spatial)])
        if not self.whole:
            return RowIndex.of(where), np.arange(len(where)), np.ones(len(where), dtype=np.int64)
        shape = FactorShape(self.text, len(self.spatial), len(self.temporal))
        held = tally(shape, shape.np, tuple(range(shape.np, self.width)))
        amounts = np.asarray(held[tuple(where.T)], dtype=np.int64).reshape(-1)
        return RowIndex.of(where), np.arange(len(where)), amounts


def _counted(
    views: tuple[View, ...],
    block: RankBlock,
    spatial: tuple[int, ...],
    temporal: tuple[int, ...],
    ranks: tuple[int, ...],
) -> TouchText:
    (factor,) = touch(views, (block,)).factors
    have = (*factor.spatial, *factor.temporal)
    wanted = (*spatial, *temporal)
    drop = tuple(i for i, a in enumerate(have) if a not in wanted)
    data = tuple(range(len(have), len(have) + len(factor.ranks)))
    return TouchText(spatial, temporal, factor.text, (*drop, *data), not drop and ranks == factor.ranks)


def _rows(view: View, block: RankBlock, axes: tuple[int, ...], ranks: tuple[int, ...], masks: Masks) -> Ints:
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


def factor_rows(
    view: View, fine: RankBlock, axes: tuple[int, ...], ranks: tuple[int, ...], masks: Masks
) -> Ints:
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
                steps = np.minimum(counters[position], len(masks[node]) - 1)  # then as the last one
                keep &= masks[node][steps]
    columns = [counters[a] for a in axes]
    for r in ranks:
        columns.append(coordinates(view.access.projection[r], values, count))
    return distinct(stacked(columns, count)[keep])


def _executed_rows(
    view: View, fine: RankBlock, axes: tuple[int, ...], ranks: tuple[int, ...], masks: Masks
) -> Ints:
    """The same for an Einsum whose executed iterations are given as parts."""
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
