"""Branch and bound: what whole mappings that are known already rule out.

What is still to come adds at least so much to energy and latency (`rest`), and the more the less space the
whole mapping may take. So that is known per level of the first buffer objective: a mapping whose peak lies
between two levels pays at least what the upper one allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from polymodel.mapper.aims import Aims
from polymodel.pareto import undominated

Array = Any
ROUNDING = 1e-9  # sums of floats in another order may differ by less
STEP = 3  # of levels, one of so many where few do
TOGETHER = 8  # known mappings compared at once


@dataclass(frozen=True)
class KnownMappings:
    """Figures of known whole mappings [figures, m]: `sums` of them add up over Einsums (energy and latency,
    as far as they are objectives), the others are peaks. `edges` [levels], ascending: upper ends of ranges of
    the first peak; one, infinite, without any. `eps`: by how much others need not be better. `weights`
    [mixtures, sums]: weighted sums that are bounded as well, of two. `aims`: the objectives and limits that
    the figures are rows of, where they are not the objectives themselves; all known mappings keep the
    limits."""

    figures: Array
    sums: int
    edges: Array
    eps: float = 0.0
    weights: Array = field(default_factory=lambda: np.zeros((0, 0)))
    aims: Aims | None = None

    @cached_property
    def low(self) -> Array:
        """Figures below which a mapping is worth having."""
        result: Array = self.figures * ((1 + ROUNDING) / (1 + self.eps))
        return result

    @cached_property
    def low_scores(self) -> Array:
        """What known mappings have of the objectives [objectives, n], as `low`; those that none beats."""
        assert self.aims is not None
        scores = self.aims.scores(self.figures) * ((1 + ROUNDING) / (1 + self.eps))
        result: Array = scores[:, undominated(scores)]
        return result

    def aimed(self, values: Array, mixed: Array) -> Array:
        """False where `values` [figures, n], which are at least so much, break a limit or are worse in every
        objective than a known mapping. `mixed` [mixtures, n]: what the mixtures are at least."""
        if self.aims is None:
            return np.ones(values.shape[1], bool)
        left: Array = self.aims.admits(values)
        if self.figures.shape[1]:
            open_ = np.flatnonzero(left)
            scores = self.aims.least_scores(values[:, open_], mixed[:, open_], self.weights)
            left[open_] = _against(self.low_scores, scores)
        return left

    @cached_property
    def stairs(self) -> tuple[Array, ...]:
        """Per level the known mappings that take less than all of the level (all without peaks), by rising
        first figure; the others are the least so far."""
        result = []
        for k in range(len(self.edges)):
            some = self.low
            if len(some) > self.sums:
                some = some[: self.sums, some[self.sums] < (self.edges[k - 1] if k else 0.0)]
            if self.sums:
                some = some[:, np.argsort(some[0], kind="stable")].copy()
                np.minimum.accumulate(some[1:], axis=1, out=some[1:])
            result.append(some)
        return tuple(result)

    @cached_property
    def within(self) -> tuple[Array, ...]:
        """Per level the known mappings whose first peak lies in it (all, where there are more peaks)."""
        if len(self.low) != self.sums + 1:
            return (self.low,) * len(self.edges)
        starts = [0.0, *self.edges[:-1]]
        peak = self.low[-1]
        return tuple(self.low[:, (peak >= a) & (peak < b)] for a, b in zip(starts, self.edges, strict=True))

    @property
    def few(self) -> Array:
        """Every STEP-th level, the last among them."""
        return np.arange(len(self.edges) - 1, -1, -STEP)[::-1]

    @cached_property
    def coarser(self) -> KnownMappings:
        """The same with few levels."""
        return replace(self, edges=self.edges[self.few])

    def joined(self, more: Array) -> KnownMappings:
        """With the figures of more whole mappings."""
        figures = np.concatenate([self.figures, more], axis=1)
        kept = undominated(figures)
        return replace(self, figures=figures[:, kept])

    @cached_property
    def corners(self) -> tuple[tuple[Array, ...], ...]:
        """Per level and mixture the most it may be where two neighbours in `stairs` leave room: entry [j, i]
        is the most of corners i to i + 2**j - 1 (a corner: less than the second sum of the one, and than the
        first sum of the next)."""
        result = []
        for some in self.stairs:
            tables = []
            for w in self.weights if some.shape[1] > 1 else ():
                rows = [w[0] * some[0, 1:] + w[1] * some[1, :-1]]
                while 2 ** len(rows) <= len(rows[0]):
                    half = 2 ** (len(rows) - 1)
                    row = rows[-1].copy()
                    row[:-half] = np.maximum(rows[-1][:-half], rows[-1][half:])
                    rows.append(row)
                tables.append(np.stack(rows))
            result.append(tuple(tables))
        return tuple(result)

    def _roomy(self, level: int, values: Array, mixed: Array, place: Array) -> Array:
        """False where no corner has room for the mixtures of points; `place`: the last known mapping of less
        first sum."""
        some = self.stairs[level]
        last = some.shape[1] - 1
        result = np.ones(values.shape[1], bool)
        # The second sums fall: the last known mapping whose second sum is above that of the point.
        to = last - np.searchsorted(some[1][::-1], values[1], side="right")
        inside = np.flatnonzero((place >= 0) & (to < last) & (to >= place))
        low, high = place[inside], to[inside]
        step = np.floor(np.log2(high - low + 1)).astype(np.int64)
        for table, value in zip(self.corners[level], mixed, strict=True):
            most = np.maximum(table[step, low], table[step, high - 2**step + 1])
            result[inside] &= most >= value[inside]
        return result

    def unbeaten(self, level: int, values: Array, mixed: Array | None = None) -> Array:
        """False where some known mapping is better than `values` [figures, n] in every figure; the first peak
        is at least where the level starts. `mixed` [mixtures, n]: what the mixtures are at least."""
        n = values.shape[1]
        if len(values) > self.sums + 1 or self.sums > 2:
            return _against(self.low, values)
        some = self.stairs[level]
        left = np.ones(n, bool)
        if some.shape[1]:
            if not self.sums:
                return np.zeros(n, bool)
            place = np.searchsorted(some[0], values[0], side="left") - 1
            left = place < 0
            if self.sums == 2:
                left |= some[1][np.maximum(place, 0)] >= values[1]
                if mixed is not None and len(mixed) and some.shape[1] > 1:
                    left &= self._roomy(level, values, mixed, place)
        if len(values) > self.sums and self.within[level].shape[1]:
            open_ = np.flatnonzero(left & (values[-1] > (self.edges[level - 1] if level else 0.0)))
            left[open_] = _against(self.within[level], values[:, open_])
        return left


@dataclass(frozen=True)
class Bound:
    """What is known, and the least that what is not counted yet adds to the sums and their mixtures (`rest`
    [sums and mixtures, levels]). `sizes`: per fused loop the tile sizes that are of interest (none: all)."""

    known: KnownMappings
    rest: Array
    sizes: tuple[Array, ...] = ()

    def hopeful(self, figures: Sequence[Array], rest: Array | None = None) -> Array:
        """False where some known mapping is better in every figure, whatever is added. `rest` [sums and
        mixtures, levels, n]: what is added to each."""
        values = np.stack(list(figures))
        added = self.rest[:, :, None] if rest is None else rest
        sums, n, edges = self.known.sums, values.shape[1], self.known.edges
        mixed = self.known.weights @ values[:sums] if len(self.known.weights) else np.zeros((0, n))
        result = np.zeros(n, bool)
        peaks = len(values) > sums
        for k in range(len(edges) - 1, -1, -1):
            some = ~result
            if peaks:
                some &= values[sums] <= edges[k]
            mine = np.broadcast_to(added[:, k], (len(added), n))
            some &= np.isfinite(mine).all(axis=0)
            where = np.flatnonzero(some)
            if not len(where):
                continue
            v = values[:, where]
            v[:sums] += mine[:sums, where]
            if peaks and k:
                np.maximum(v[sums], edges[k - 1], out=v[sums])
            together = mixed[:, where] + mine[sums:, where]
            left = self.known.aimed(v, together)
            left[left] = self.known.unbeaten(k, v[:, left], together[:, left])
            result[where] = left
        return result

    def plus(self, more: Sequence[float]) -> Bound:
        """With so much more added to the sums."""
        sums = np.array(more).reshape(-1, 1)
        mixed = self.known.weights @ sums if len(self.known.weights) else sums[:0]
        return replace(self, rest=self.rest + np.concatenate([sums, mixed]))

    @cached_property
    def coarser(self) -> Bound:
        """With few of the levels: quicker, and rules out less."""
        return Bound(self.known.coarser, self.rest[:, self.known.few])


def _against(known: Array, values: Array) -> Array:
    """False where some column of `known` is below in every row.

    Those that lie lowest on the whole come first: they rule out most points, and the others see few.
    """
    ranks = np.argsort(np.argsort(known, axis=1), axis=1)
    order = np.argsort(ranks.sum(axis=0), kind="stable")
    left = np.arange(values.shape[1])
    for begin in range(0, known.shape[1], TOGETHER):
        some = known[:, order[begin : begin + TOGETHER]]
        better = np.ones((some.shape[1], len(left)), bool)
        for k, v in zip(some, values[:, left], strict=True):
            better &= k[:, None] < v[None, :]
        left = left[~better.any(axis=0)]
        if not len(left):
            break
    result = np.zeros(values.shape[1], bool)
    result[left] = True
    return result
