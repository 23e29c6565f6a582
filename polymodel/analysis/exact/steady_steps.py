"""Cuts loops to the steps that matter: where accesses only shift by constants, few steps represent many.

A step of a loop is steady if every access does what it did one step before, shifted by the same amount as at
that step. Within a run of steady steps all tile sizes repeat, and so do the tiles that overlap. Steps with
steady ones on both sides are left out where every neighbourhood of theirs occurs elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymodel.analysis.exact.arrays import Flags
from polymodel.analysis.exact.factor_tables import factor_rows, fine_blocks, is_large
from polymodel.analysis.exact.sweep import Ints
from polymodel.polyhedra import needs
from polymodel.schedule.touch import Block, View, axes_of, touch

# A dropped step has that many steady ones (itself counted) behind and ahead.
_BEHIND, _AHEAD = 3, 4


@dataclass(frozen=True)
class Motion:
    """One access along one loop: per step whether it repeats the step before, and its shift by rank.

    `moving`: whether it touches anything at the step (else its shift says nothing).
    """

    repeats: Flags
    moving: Flags
    shift: dict[int, Ints]


def kept_steps(groups: Iterable[Sequence[View]], depth: dict[str, int]) -> dict[int, Flags]:
    """By loop (node id), which steps stay. The views of a group touch the same tensor in one storage node.

    `depth`: by Einsum, how many of its loops count.
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
    return {node: _kept(flags) for node, flags in steady.items()}


def _padded(values: NDArray[Any], width: int, fill: int) -> NDArray[Any]:
    more = np.full(width - len(values), fill, dtype=values.dtype)
    return np.concatenate([values, more]) if len(more) else values


def _kept(steady: Flags) -> Flags:
    ends = np.zeros(_BEHIND - 1, dtype=bool), np.zeros(_AHEAD - 1, dtype=bool)
    padded = np.concatenate([ends[0], steady, ends[1]])
    windows = np.lib.stride_tricks.sliding_window_view(padded, _BEHIND + _AHEAD - 1)
    return np.asarray(~windows.all(axis=1), dtype=bool)


def _steady(motions: list[Motion]) -> Flags:
    """Steps at which all accesses repeat, shifted alike, and as at the step before."""
    width = max(len(m.repeats) for m in motions)
    result = np.ones(width, dtype=bool)
    for m in motions:
        result &= _padded(m.repeats, width, True)
    ranks = {r for m in motions for r in m.shift}
    for rank in ranks:
        common, known = np.zeros(width, dtype=np.int64), np.zeros(width, dtype=bool)
        for m in motions:
            moving = _padded(m.moving, width, False)
            shift = _padded(m.shift.get(rank, np.zeros(len(m.repeats), np.int64)), width, 0)
            result &= ~(known & moving & (common != shift))
            common, known = np.where(moving & ~known, shift, common), known | moving
        result[1:] &= ~known[1:] | ~known[:-1] | (common[1:] == common[:-1])
    result[:2] = False  # a shift to compare with there is only from the second step on
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


def _unknown(view: View, block: Block, axis: int) -> Motion:
    """Where points are not listed no step counts as a repetition."""
    (factor,) = touch((view,), (block,)).factors
    count = needs.counter_extent(factor.text, (*factor.spatial, *factor.temporal).index(axis))
    return Motion(np.zeros(count, dtype=bool), np.ones(count, dtype=bool), {})


def _motion(rows: Ints, column: int, stamps: int, ranks: tuple[int, ...]) -> Motion:
    """How rows [stamp..., ranks...] change from each step of one column to the next."""
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
