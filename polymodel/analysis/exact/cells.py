"""Cells: the stamps of each Einsum down to its last split, in time order.

Within a cell no other Einsum runs. So the contents of others do not change there, and what the Einsum itself
holds at a component attains its joint maximum wherever the instance is active.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np

from polymodel.analysis.exact.buffets import ExactBuffet, ExactLayout
from polymodel.analysis.exact.factor_tables import (
    Flags,
    Masks,
    StampTable,
    bounded,
    crossed,
    fine_blocks,
    listed,
)
from polymodel.analysis.exact.live_peaks import nominal_trips
from polymodel.analysis.exact.sweep import Ints, distinct, rank, stacked
from polymodel.mapping.looptree import Loop, Split
from polymodel.schedule.touch import RankBlock, View, axes_of


@dataclass(frozen=True)
class Course:
    """One Einsum's loops; its cells as rows of temporal counters, and the global number of each cell."""

    view: View
    blocks: tuple[RankBlock, ...]
    depth: int
    masks: Masks
    cells: Ints
    phases: Ints

    @cached_property
    def spatial(self) -> tuple[int, ...]:
        return tuple(i for i, a in enumerate(axes_of(self.view)) if a.spatial)

    @cached_property
    def temporal(self) -> tuple[int, ...]:
        """Positions of the temporal loops above the last split."""
        return tuple(i for i in range(self.depth) if i not in self.spatial)

    def time(self, rows: Ints | None = None) -> dict[int, Ints]:
        """Counters of the cells by stamp position."""
        table = self.cells if rows is None else rows
        return dict(zip(self.temporal, table.T, strict=True))

    def stamps(self, spatial: tuple[int, ...], depth: int) -> tuple[StampTable, ...]:
        """One table per independent set of loops: `spatial` ones, and temporal ones above `depth`."""
        result = []
        for block in self.blocks:
            axes = [i for i, (node, _, _) in enumerate(self.view.loops) if node in block.loops]
            place = tuple(a for a in axes if a in spatial)
            time = tuple(a for a in axes if a < depth and a not in self.spatial)
            if place or time:
                result.append(listed((self.view,), block, place, time, (), self.masks))
        return tuple(result)


def loops_to_last_split(layout: ExactLayout, einsum: str) -> int:
    """The number of loops above the innermost split on an Einsum's path."""
    splits = [s.id for s in layout.problem.tree.path(einsum) if isinstance(s.node, Split)]
    return sum(1 for i, _ in layout.problem.tree.loops(einsum) if splits and i < splits[-1])


def bare(layout: ExactLayout, einsum: str) -> View:
    """An Einsum's loops, without data."""
    full = next(v for (e, _), v in layout.full.items() if e == einsum)
    return full.bare(len(full.loops))


def courses(layout: ExactLayout, masks: Masks, depths: dict[str, int] | None = None) -> dict[str, Course]:
    """The cells of every Einsum, numbered together; of each loop only the steps in `masks`.

    `depths`: the number of each Einsum's loops that make a cell, at least those above its last split.
    """
    tree = layout.problem.tree
    drafts: dict[str, Course] = {}
    keys: list[list[Ints]] = []
    for name in tree.einsums:
        view = bare(layout, name)
        depth = loops_to_last_split(layout, name) if depths is None else depths[name]
        nothing = np.zeros(0, dtype=np.int64)
        draft = Course(view, fine_blocks(view), depth, masks, nothing, nothing)
        cells = combined(draft.stamps((), depth), {})
        drafts[name] = replace(draft, cells=cells)
        keys.append(_key(layout, name, drafts[name]))
    width = max(len(k) for k in keys)
    bounded(sum(len(c.cells) for c in drafts.values()) * max(width, 1))
    padded = []
    for key, course in zip(keys, drafts.values(), strict=True):
        columns = [*key, *[np.zeros(len(course.cells), np.int64)] * (width - len(key))]
        padded.append(stacked(columns, len(course.cells)))
    numbers = rank(np.concatenate(padded))
    result, at = {}, 0
    for name, c in drafts.items():
        result[name] = replace(c, phases=numbers[at : at + len(c.cells)])
        at += len(c.cells)
    return result


def _key(layout: ExactLayout, einsum: str, course: Course) -> list[Ints]:
    """Columns that order cells in time: counters and branch numbers in path order."""
    time, columns, position = course.time(), [], 0
    for step in layout.problem.tree.path(einsum):
        if isinstance(step.node, Split):
            columns.append(np.full(len(course.cells), step.branch, dtype=np.int64))
        elif isinstance(step.node, Loop):
            if position in time:
                columns.append(time[position])
            position += 1
    return columns


def combined(tables: tuple[StampTable, ...], masks: Masks) -> Ints:
    """All combinations of the tables' temporal stamps, in order; columns and `masks` by stamp position."""
    parts = []
    for t in tables:
        if t.temporal:
            rows = t.times
            for k, a in enumerate(t.temporal):
                if a in masks:
                    rows = rows[masks[a][rows[:, k]]]
            parts.append((t.temporal, rows))
    return distinct(crossed(parts)[1])


@dataclass(frozen=True)
class Sites:
    """Hardware instances of one component, one for all that behave alike: coordinates per dimension."""

    dims: tuple[tuple[str, str], ...]
    rows: Ints

    def place(self, layout: ExactLayout, einsum: str, axes: tuple[int, ...]) -> tuple[dict[int, Ints], Flags]:
        """Spatial counters of each site by stamp position, and whether the Einsum's loops reach it."""
        loops, trips = layout.problem.tree.loops(einsum), nominal_trips(layout, einsum)
        exist = np.ones(len(self.rows), dtype=bool)
        result: dict[int, Ints] = {}
        for k, dim in enumerate(self.dims):
            rest = self.rows[:, k]
            for a in reversed(axes):
                if (loops[a][1].component, loops[a][1].dim) == dim:
                    result[a] = rest % trips[a]
                    rest = rest // trips[a]
            exist &= rest == 0
        return result, exist


def spatial_axes(node: ExactBuffet) -> tuple[int, ...]:
    """Stamp positions of the loops that replicate the node's component."""
    return node.all_touch.spatial


def all_sites(layout: ExactLayout, nodes: list[ExactBuffet]) -> Sites:
    """Every coordinate that some node's loops may reach."""
    extents: dict[tuple[str, str], int] = {}
    for node in nodes:
        loops = layout.problem.tree.loops(node.users[0])
        trips = nominal_trips(layout, node.users[0])
        mine: dict[tuple[str, str], int] = {}
        for a in spatial_axes(node):
            dim = (loops[a][1].component, loops[a][1].dim)
            mine[dim] = mine.get(dim, 1) * trips[a]
        for dim, n in mine.items():
            extents[dim] = max(extents.get(dim, 1), n)
    count = bounded(prod(extents.values()))
    rows = np.indices(list(extents.values()), dtype=np.int64).reshape(len(extents), count).T
    return Sites(tuple(extents), rows)
