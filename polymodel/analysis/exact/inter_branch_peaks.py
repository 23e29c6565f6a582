"""Peaks of `tile` if tiles outlive the branch that uses them, computed cell by cell.

docs/semantics.md, Occupancy. A buffet above the last split of its users has one visit in one or more whole
cells, and is followed visit by visit. A buffet below it belongs to a single Einsum: within its cells only the
largest joint tile counts, and between them what is carried to the next cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymodel.analysis.exact.buffets import ExactBuffet, ExactLayout
from polymodel.analysis.exact.cells import (
    Course,
    Sites,
    all_sites,
    bare,
    combined,
    courses,
    loops_to_last_split,
    spatial_axes,
)
from polymodel.analysis.exact.factor_tables import (
    Flags,
    Masks,
    RowIndex,
    StampTable,
    bounded,
    crossed,
    factor_rows,
    fine_blocks,
    is_large,
    listed,
)
from polymodel.analysis.exact.live_peaks import node_carries
from polymodel.analysis.exact.occupancy import PeakBuffet, item_of
from polymodel.analysis.exact.sweep import Ints, distinct, rank
from polymodel.analysis.result import Resident, WorkingSet
from polymodel.integers import distinct_rows, dtype_of, largest, row_sums
from polymodel.polyhedra import needs
from polymodel.schedule.touch import RankBlock, View, axes_of, touch

# Reduction of loops to the steps that matter: if accesses only shift by constants, few steps represent many.
# A step of a loop is steady if every access does what it did one step before, shifted by the same amount as
# at that step. Within a run of steady steps all tile sizes repeat, and so do the overlaps of tiles. Steps
# with steady ones on both sides are dropped if every neighbourhood of theirs occurs elsewhere.

# a dropped step has this many steady ones (including itself) before and after
_BEHIND, _AHEAD = 3, 4


@dataclass(frozen=True)
class Motion:
    """One access along one loop: per step whether it repeats the previous step, and its shift by rank.

    `moving`: whether it touches anything at the step (otherwise its shift is meaningless).
    """

    repeats: Flags
    moving: Flags
    shift: dict[int, Ints]


def representative_steps(groups: Iterable[Sequence[View]], depth: dict[str, int]) -> dict[int, Flags]:
    """By loop (node id), the steps that are kept. The views of a group touch the same tensor in one storage
    node.

    `depth`: by Einsum, the number of its loops that count.
    """
    steady: dict[int, Flags] = {}
    for views in groups:
        motions: dict[int, list[Motion]] = {}
        for view in views:
            for node, motion in _motions(view, depth[view.einsum.name]):
                motions.setdefault(node, []).append(motion)
        for node, found in motions.items():
            mine = _steady(found)
            width = max(len(mine), len(steady.get(node, mine)))
            before = _padded(steady.get(node, np.ones(width, dtype=bool)), width, True)
            steady[node] = before & _padded(mine, width, True)
    return {node: _representatives(flags) for node, flags in steady.items()}


def _padded(values: NDArray[Any], width: int, fill: int) -> NDArray[Any]:
    more = np.full(width - len(values), fill, dtype=values.dtype)
    return np.concatenate([values, more]) if len(more) else values


def _representatives(steady: Flags) -> Flags:
    ends = np.zeros(_BEHIND - 1, dtype=bool), np.zeros(_AHEAD - 1, dtype=bool)
    padded = np.concatenate([ends[0], steady, ends[1]])
    windows = np.lib.stride_tricks.sliding_window_view(padded, _BEHIND + _AHEAD - 1)
    return np.asarray(~windows.all(axis=1), dtype=bool)


def _steady(motions: list[Motion]) -> Flags:
    """Steps at which all accesses repeat, with equal shifts, as at the previous step."""
    width = max(len(m.repeats) for m in motions)
    result = np.ones(width, dtype=bool)
    for m in motions:
        result &= _padded(m.repeats, width, True)
    ranks = {r for m in motions for r in m.shift}
    for along in ranks:
        common, known = np.zeros(width, dtype=np.int64), np.zeros(width, dtype=bool)
        for m in motions:
            moving = _padded(m.moving, width, False)
            shift = _padded(m.shift.get(along, np.zeros(len(m.repeats), np.int64)), width, 0)
            result &= ~(known & moving & (common != shift))
            common, known = np.where(moving & ~known, shift, common), known | moving
        result[1:] &= ~known[1:] | ~known[:-1] | (common[1:] == common[:-1])
    result[:2] = False  # there is a shift to compare with only from the second step on
    return result


def _motions(view: View, depth: int) -> Iterable[tuple[int, Motion]]:
    """(node id of a temporal loop, how the view moves along it)."""
    axes = axes_of(view)[: len(view.loops)]
    for block in fine_blocks(view):
        mine = [a for a in range(min(depth, len(axes))) if axes[a].node in block.loops]
        if all(axes[a].spatial for a in mine):
            continue
        if is_large(view, block):
            for a in mine:
                if not axes[a].spatial:
                    yield axes[a].node, _unknown(view, block, a)
            continue
        rows = factor_rows(view, block, tuple(mine), block.ranks, {})
        for column, a in enumerate(mine):
            if not axes[a].spatial:
                yield axes[a].node, _motion(rows, column, len(mine), block.ranks)


def _unknown(view: View, block: RankBlock, axis: int) -> Motion:
    """The motion of points that are not listed: no step counts as a repetition."""
    (factor,) = touch((view,), (block,)).factors
    count = needs.counter_extent(factor.text, (*factor.spatial, *factor.temporal).index(axis))
    return Motion(np.zeros(count, dtype=bool), np.ones(count, dtype=bool), {})


def _motion(rows: Ints, column: int, stamps: int, ranks: tuple[int, ...]) -> Motion:
    """The change of rows [stamp..., ranks...] from each step of one column to the next."""
    rows = rows[np.argsort(rows[:, column], kind="stable")]
    step = rows[:, column]
    count = np.bincount(step)
    begin = np.cumsum(count) - count
    alike = np.concatenate(([False], count[1:] == count[:-1]))
    here = np.flatnonzero(alike[step])
    before = here - count[step[here]]
    bad = np.zeros(len(count), dtype=bool)
    shift = {}
    moving = count > 0
    for k in range(rows.shape[1]):
        if k == column:
            continue
        change = rows[here, k] - rows[before, k]
        if k < stamps:
            bad[step[here[change != 0]]] = True
            continue
        first = np.zeros(len(count), dtype=np.int64)
        both = alike & moving
        first[both] = rows[begin[both], k] - rows[begin[np.flatnonzero(both) - 1], k]
        bad[step[here[change != first[step[here]]]]] = True
        shift[ranks[k - stamps]] = first
    return Motion(alike & ~bad, moving, shift)


# The largest joint tiles of buffets below the last split of one Einsum, per cell and site.

Items = Sequence[tuple[PeakBuffet, tuple[StampTable, ...]]]


@dataclass(frozen=True)
class LoopGroup:
    """Loops that share a factor of some tile: the possible tiles, by what the outer loops fix.

    `index` finds the kind of an outer stamp (`kinds`); `choices` has, per kind, the rows of tile sizes (one
    column per item) that no other row of that kind exceeds.
    """

    spatial: tuple[int, ...]
    temporal: tuple[int, ...]
    index: RowIndex
    kinds: Ints
    choices: tuple[Ints, ...]

    def find(self, place: dict[int, Ints], time: dict[int, Ints], shape: tuple[int, int]) -> Ints:
        columns = [place[a][None, :] for a in self.spatial] + [time[a][:, None] for a in self.temporal]
        result = self.index.find(columns, shape)
        return np.where(result < 0, -1, self.kinds[result])


@dataclass(frozen=True)
class Inside:
    """Bits by cell and site, and the tiles they consist of."""

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


def _groups(course: Course, items: Items) -> list[LoopGroup]:
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


def _group(course: Course, part: list[StampTable], items: Items) -> LoopGroup:
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
    return LoopGroup(
        place, time, RowIndex.of(outer), kinds.reshape(-1), tuple(_front(rows[p]) for p in patterns)
    )


def _front(rows: Ints) -> Ints:
    """The rows that no other row exceeds (rows are distinct, so that none equals another)."""
    kept = rows[np.argsort(-row_sums(rows), kind="stable")]
    position = 0
    while position < len(kept):
        below = (kept <= kept[position]).all(axis=1)
        below[position] = False
        kept = kept[~below]
        position += 1
    return kept


_LATE = np.iinfo(np.int64).max


@dataclass(frozen=True)
class OccupiedSpans:
    """Intervals of cells, per site, in which a buffet occupies bits."""

    first: Ints
    last: Ints
    site: Ints
    bits: Ints

    def at(self, phase: int, site: int) -> int:
        here = (self.site == site) & (self.first <= phase) & (phase <= self.last)
        return int(self.bits[here].sum())


@dataclass
class Gaps:
    """The peaks of any component of a layout."""

    layout: ExactLayout
    peaks: dict[str, dict[str, WorkingSet]] = field(default_factory=dict)

    def peak(self, einsum: str, component: str) -> WorkingSet | None:
        """The largest joint tiles of a component while an Einsum runs."""
        if component not in self.peaks:
            self.peaks[component] = ComponentSites(self.layout, component).peaks()
        return self.peaks[component].get(einsum)


@dataclass
class ComponentSites:
    """One component: its buffets with their tables, and one site of each kind."""

    layout: ExactLayout
    component: str

    @cached_property
    def nodes(self) -> list[ExactBuffet]:
        mine = [n for n in self.layout.nodes.values() if n.component == self.component and n.visited]
        return sorted(mine, key=lambda n: (n.id, n.tensor))

    @cached_property
    def steps(self) -> Masks:
        """The steps of every temporal loop that may differ from all others (node id -> flags)."""
        tree = self.layout.problem.tree
        depth = {e: loops_to_last_split(self.layout, e) for e in tree.einsums}
        for node in self.nodes:
            for user in node.users:
                depth[user] = max(depth[user], node.loops)
        stamps = [(bare(self.layout, e),) for e in tree.einsums]
        return representative_steps([*(n.views for n in self.nodes), *stamps], depth)

    @cached_property
    def courses(self) -> dict[str, Course]:
        return courses(self.layout, self.steps)

    @cached_property
    def tables(self) -> dict[tuple[int, str], tuple[StampTable, ...]]:
        """Tables of every buffet: kept steps, and those just before them."""
        wide = {loop: flags | np.append(flags[1:], False) for loop, flags in self.steps.items()}
        result = {}
        for n in self.nodes:
            masks = wide if item_of(self.layout, n).fixed is None else {}
            result[n.id, n.tensor] = tuple(
                listed(n.views, n.blocks[f.block], f.spatial, f.temporal, f.ranks, masks)
                for f in n.all_touch.factors
            )
        return result

    @cached_property
    def sites(self) -> Sites:
        """Sites with equal tiles and equal activity over time count once."""
        every = all_sites(self.layout, self.nodes)
        kinds = [np.zeros(len(every.rows), dtype=np.int64)]
        for node in self.nodes:
            for user in node.users:
                place, exist = every.place(self.layout, user, spatial_axes(node))
                stamps = self.courses[user].stamps(
                    spatial_axes(node), max(node.loops, self.courses[user].depth)
                )
                for table in (*self.tables[node.id, node.tensor], *stamps):
                    if table.spatial:
                        index, classes, _ = table.places
                        found = index.find([place[a] for a in table.spatial], (len(every.rows),))
                        kinds.append(np.where(exist & (found >= 0), classes[found], -1))
                kinds.append(exist.astype(np.int64))
        chosen = np.unique(rank(np.column_stack(kinds)), return_index=True)[1]
        return Sites(every.dims, every.rows[chosen])

    def peaks(self) -> dict[str, WorkingSet]:
        """The peaks by Einsum; only of Einsums in whose cells anything is held."""
        phases = sum(len(c.cells) for c in self.courses.values())
        count = len(self.sites.rows)
        bounded(phases * count)
        total = np.zeros((phases + 1, count), dtype=self.kind)
        spans = {(n.id, n.tensor): self._spans(n) for n in self.nodes}
        for s in spans.values():
            np.add.at(total, (s.first, s.site), s.bits)
            np.add.at(total, (s.last + 1, s.site), -s.bits)
        total = np.cumsum(total, axis=0, dtype=self.kind)
        result = {}
        for einsum, course in self.courses.items():
            own = self._inside(einsum)
            here = np.asarray(total[course.phases] + own.bits)
            cell, site = np.unravel_index(int(np.argmax(here)), here.shape)
            bits = int(here[cell, site])
            if bits:
                held = {k: s.at(int(course.phases[cell]), int(site)) for k, s in spans.items()}
                for k, more in own.residents(int(cell), int(site)).items():
                    held[k] += more
                residents = tuple(Resident(*k, n) for k, n in held.items() if n)
                result[einsum] = WorkingSet(self.component, einsum, "tile", bits, residents)
        return result

    @cached_property
    def kind(self) -> Any:
        """The dtype of sums of tiles in bits, and of their products."""
        most = 0
        for n in self.nodes:
            item = item_of(self.layout, n)
            largest = (int(t.sizes.max()) for t in self.tables[n.id, n.tensor])
            elements = prod(largest) if item.fixed is None else item.fixed
            most += elements * item.bits * item.scale.numerator * item.instances
        return dtype_of(most)

    def _deep(self, node: ExactBuffet) -> bool:
        """True if the node is below a loop that is below the last split of its only user."""
        return node.loops > self.courses[node.users[0]].depth

    def _inside(self, einsum: str) -> Inside:
        nodes = [n for n in self.nodes if einsum in n.users and self._deep(n)]
        nodes = [n for n in nodes if item_of(self.layout, n).fixed is None]
        axes = spatial_axes(nodes[0]) if nodes else ()
        place, exist = self.sites.place(self.layout, einsum, axes)
        items = [(item_of(self.layout, n), self.tables[n.id, n.tensor]) for n in nodes]
        return inside(self.courses[einsum], items, place, exist)

    def _spans(self, node: ExactBuffet) -> OccupiedSpans:
        item = item_of(self.layout, node)
        place, exist = self.sites.place(self.layout, node.users[0], spatial_axes(node))
        tables = self.tables[node.id, node.tensor]
        if item.fixed is not None:
            held = np.ones(len(exist), dtype=self.kind)
            for t in tables:
                index, _, amounts = t.places
                at = index.find([place[a] for a in t.spatial], (len(exist),))
                held = held * np.where(at < 0, 0, amounts[at])
            last = sum(len(c.cells) for c in self.courses.values()) - 1
            zeros = np.zeros(len(exist), dtype=np.int64)
            return OccupiedSpans(zeros, zeros + last, np.arange(len(exist)), item.in_bits(held * exist))
        if self._deep(node):
            return self._carried_spans(node, item, place, exist)
        return self._visits(node, item, place, exist)

    def _visits(
        self, node: ExactBuffet, item: PeakBuffet, place: dict[int, Ints], exist: Flags
    ) -> OccupiedSpans:
        """From the first to the last use of each visit, and to the next visit if anything is carried to
        it."""
        tables = self.tables[node.id, node.tensor]
        loops = node.views[0].loops
        visits = combined(tables, {a: self.steps[loops[a][0]] for a in node.all_touch.temporal})
        temporal = node.all_touch.temporal
        time = dict(zip(temporal, visits.T, strict=True))
        before = dict(zip(temporal, self._before(node.users[0], temporal, visits).T, strict=True))
        shape = (len(visits), len(exist))
        tile = np.ones(shape, dtype=self.kind) * exist
        stays = self._open(node, visits)[:, None] & np.ones(shape[1], dtype=bool)
        for t in tables:
            at = t.find(place, time, shape)
            tile = tile * t.size_at(at)
            stays &= t.overlap(t.find(place, before, (shape[0] - 1, shape[1])), at[1:])
        first, last, opening = self._uses(node, visits, place)
        stays &= (tile[:-1] > 0) & (tile[1:] > 0)
        first[1:] = np.where(stays, opening[1:, None], first[1:])
        last[:-1] = np.where(stays, opening[1:, None] - 1, last[:-1])
        visit, site = np.nonzero(tile)
        here = (visit, site)
        return OccupiedSpans(first[here], last[here], site, item.in_bits(tile[here]))

    def _before(self, einsum: str, temporal: tuple[int, ...], rows: Ints) -> Ints:
        """The stamps before all rows but the first: the row above, or an equivalent step that was dropped."""
        before = rows[:-1].copy()
        if temporal and len(before):
            axis = (np.diff(rows, axis=0) != 0).argmax(axis=1)
            loops = self.layout.problem.tree.loops(einsum)
            for k, a in enumerate(temporal):
                mine = np.flatnonzero(axis == k)
                step = rows[1:][mine, k] - 1
                left_out = ~self.steps[loops[a][0]][step]
                before[mine[left_out], k] = step[left_out]
        return before

    def _open(self, node: ExactBuffet, visits: Ints) -> Flags:
        """Per visit but the first: whether anything may stay from the visit before it."""
        temporal = node.all_touch.temporal
        if len(visits) < 2:
            return np.zeros(max(len(visits) - 1, 0), dtype=bool)
        axis = np.asarray(temporal)[(np.diff(visits, axis=0) != 0).argmax(axis=1)]
        return np.isin(axis, sorted(node_carries(self.layout, node)))

    def _uses(self, node: ExactBuffet, visits: Ints, place: dict[int, Ints]) -> tuple[Ints, Ints, Ints]:
        """First and last cell by visit and site, and the first cell of any Einsum below, by visit."""
        shape = (len(visits), len(next(iter(place.values()), self.sites.rows)))
        first, last = np.full(shape, _LATE), np.full(shape, -1)
        opening = np.full(len(visits), _LATE)
        for name, path in self.layout.problem.tree.paths.items():
            if not any(s.id == node.id for s in path):
                continue
            course = self.courses[name]
            order = np.argsort(course.phases)
            phases = course.phases[order]
            mine = [k for k, a in enumerate(course.temporal) if a < node.loops]
            ranks = rank(np.concatenate([visits, course.cells[order][:, mine]]))
            known = np.full(int(ranks.max()) + 1, -1)
            known[ranks[: len(visits)]] = np.arange(len(visits))
            visit = known[ranks[len(visits) :]]
            begins = np.flatnonzero(np.diff(visit, prepend=-2))
            which = visit[begins]
            real = which >= 0
            opening[which[real]] = np.minimum(opening[which[real]], phases[begins][real])
            if name in node.users:
                active = self._active(course, node, order, place)
                low = np.minimum.reduceat(np.where(active, phases[:, None], _LATE), begins, axis=0)
                high = np.maximum.reduceat(np.where(active, phases[:, None], -1), begins, axis=0)
                first[which[real]] = np.minimum(first[which[real]], low[real])
                last[which[real]] = np.maximum(last[which[real]], high[real])
        return first, last, opening

    def _active(self, course: Course, node: ExactBuffet, order: Ints, place: dict[int, Ints]) -> Flags:
        """Whether an Einsum runs in the node's instance, by cell and site."""
        shape = (len(order), len(self.sites.rows))
        result = np.ones(shape, dtype=bool)
        time = course.time(course.cells[order])
        for table in course.stamps(spatial_axes(node), course.depth):
            result &= table.find(place, time, shape) >= 0
        return result

    def _carried_spans(
        self, node: ExactBuffet, item: PeakBuffet, place: dict[int, Ints], exist: Flags
    ) -> OccupiedSpans:
        """Tiles of last visits in one cell, carried to the first visit in the next one of the same Einsum."""
        course = self.courses[node.users[0]]
        order = np.argsort(course.phases)
        cells, phases = course.cells[order], course.phases[order]
        shape = (len(cells), len(exist))
        carries = node_carries(self.layout, node)
        temporal = np.asarray(course.temporal, dtype=np.int64)
        stays = np.zeros((max(len(cells) - 1, 0), len(exist)), dtype=bool)
        if len(cells) > 1 and carries & set(course.temporal):
            axis = temporal[(np.diff(cells, axis=0) != 0).argmax(axis=1)]
            stays |= np.isin(axis, sorted(carries))[:, None] & exist
        tile = np.ones(shape, dtype=self.kind)
        before = self._before(node.users[0], course.temporal, cells)
        for t in self.tables[node.id, node.tensor] if stays.any() else ():
            ends = t.ends(sum(1 for a in t.temporal if a < course.depth))
            head, tail, last = (
                t.find(place, dict(zip(t.temporal, times.T, strict=True)), (len(times), len(exist)))
                for times in (
                    ends.first(course.time(cells[1:]), len(before)),
                    ends.last(course.time(before), len(before)),
                    ends.last(course.time(cells), len(cells)),
                )
            )
            tile = tile * t.size_at(last)
            stays &= t.overlap(tail, head)
        stays = stays & (phases[1:] > phases[:-1] + 1)[:, None]
        cell, site = np.nonzero(stays)
        return OccupiedSpans(
            phases[cell] + 1, phases[cell + 1] - 1, site, item.in_bits(tile[:-1][cell, site])
        )
