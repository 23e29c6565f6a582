"""Models of a matrix that say what any rectangle of it holds: tilings follow from their rectangles."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from polymodel.errors import Diagnostic, SpecError
from polymodel.sparse.density.laws import LONGEST, Law
from polymodel.sparse.density.matched import Counts
from polymodel.sparse.density.model import MOST_PLACES, ByPlace, Floats, Fullness, Ints, points_of
from polymodel.sparse.density.placed import Placed, Tiling
from polymodel.sparse.density.regions import Regions

# Entries of a law of one tiling, all kinds of tiles together, and of one block of work.
_MOST, _BLOCK = 1 << 26, 1 << 20
# Rectangles that parts consist of, at most.
_RECTS = 1 << 18
# What adds nothing to the chance of a maximum.
_NOTHING = 1e-15


@dataclass(frozen=True, eq=False)
class Kinds:
    """Tiles of a tiling: one rectangle (row, column, height, width) of each kind, how many full tiles and how
    many in all are of it.

    Tiles of no kind are empty for certain; `full_tiles` counts the full ones of all kinds and of none.
    """

    rects: Ints
    full: Floats
    every: Floats
    full_tiles: float


@dataclass(frozen=True)
class Regional(Placed):
    """A model of a matrix that answers for rectangles (`regions`) and lists the kinds of tiles."""

    def __post_init__(self) -> None:
        super().__post_init__()
        points_of(self.shape)
        if len(self.ranks) != 2:
            what = f"{type(self).__name__} describes matrices, and there are {len(self.ranks)} ranks"
            raise SpecError([Diagnostic(what, "give two ranks, or take another model", "ranks")])

    @abstractmethod
    def regions(self) -> Regions:
        """What rectangles hold."""

    @abstractmethod
    def kinds(self, tile: tuple[int, int]) -> Kinds:
        """The tiles of a tiling that may hold a nonzero."""

    def apart(self, tile: tuple[int, int]) -> bool:
        """Whether tiles of a tiling are independent; else E[max] of independent ones is only a bound."""
        return self.independent

    def cuts(self, rects: Ints) -> bool:
        """Whether rectangles cut what is there or not there as a whole."""
        return False

    @property
    def matrix(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.shape[0], self.shape[1]

    def by_place(self) -> ByPlace | None:
        rows, columns = self.matrix
        if rows * columns > MOST_PLACES:
            return None
        at = np.indices((rows, columns)).reshape(2, -1).T
        means = self.regions().mean(np.concatenate((at, np.ones_like(at)), axis=1))
        return ByPlace((0, 1), means.reshape(rows, columns), 1)

    def make_tiling(self, tile: tuple[int, ...]) -> Tiling:
        box = tile[0], tile[1]
        kinds = self.kinds(box)
        dependent = self.cuts(kinds.rects) or not self.apart(box)
        return OfKinds(kinds, self.regions().laws(kinds.rects), tile != self.shape and dependent)

    def fullest_part(self, parts: Sequence[Ints]) -> tuple[float, Fullness] | None:
        """Parts that are no tiles are rectangles added up."""
        found = super().fullest_part(parts)
        runs = [_runs(part) for part in parts]
        if found is not None or prod(start.size for start, _, _ in runs) > _RECTS:
            return found
        (row, height, of_row), (column, width, of_column) = runs
        grid = [np.repeat(x, column.size) for x in (row, height, of_row)]
        grid_1 = [np.tile(x, row.size) for x in (column, width, of_column)]
        rects = np.stack([grid[0], grid_1[0], grid[1], grid_1[1]], axis=1)
        number = grid[2] * (int(of_column.max(initial=0)) + 1) + grid_1[2]
        one = self.regions().laws(rects)
        values = (one.mean, one.variance, one.log_empty, one.sure, one.most)
        many = Counts(*(np.bincount(number, weights=v).astype(np.float64) for v in values))
        ones = np.ones(many.mean.size)
        greatest = OfKinds(Kinds(rects, ones, ones, float(ones.size)), many, False).greatest[0]
        return greatest, "expected" if self.independent and not self.cuts(rects) else "estimate"


def _runs(part: Ints) -> tuple[Ints, Ints, Ints]:
    """Consecutive coordinates of the same part: starts, lengths, the parts."""
    starts = np.flatnonzero(np.concatenate(([True], part[1:] != part[:-1])))
    return starts, np.diff(np.append(starts, part.size)), part[starts]


@dataclass(frozen=True, eq=False)
class OfKinds(Tiling):
    """Tiles of several kinds, each with the law of its counts."""

    kinds: Kinds
    counts: Counts
    dependent: bool

    @property
    def mean(self) -> float:
        return float(self.kinds.full @ self.counts.mean) / self.kinds.full_tiles

    @property
    def variance(self) -> float:
        second = float(self.kinds.full @ (self.counts.variance + self.counts.mean**2))
        return max(0.0, second / self.kinds.full_tiles - self.mean**2)

    @property
    def empty(self) -> float:
        return max(0.0, 1 - float(self.kinds.full @ self.counts.filled) / self.kinds.full_tiles)

    @property
    def nonempty(self) -> float:
        return float(self.kinds.every @ self.counts.filled)

    @property
    def squares(self) -> float:
        return float(self.kinds.every @ (self.counts.variance + self.counts.mean**2))

    @cached_property
    def law(self) -> Law:
        kept = np.flatnonzero(self.kinds.full > 0)
        counts, number = self.counts.only(kept), self.kinds.full[kept]
        empty = self.kinds.full_tiles - float(number.sum())
        high = int(counts.reach.max(initial=0.0)) + 1
        if high > LONGEST or high * kept.size > _MOST:
            # Kinds without a variance, and tiles that are empty for certain, are narrow normal laws.
            parts = np.append(counts.mean, 0.0), np.append(counts.variance, 0.0), np.append(number, empty)
            return Law(self.mean, self.variance, normals=parts)
        above = np.zeros(high + 1)
        step = max(1, _BLOCK // (high + 1))
        for start in range(0, kept.size, step):
            part = np.arange(start, min(start + step, kept.size))
            above += counts.only(part).above(np.arange(high + 1.0)).T @ number[part]
        tails = np.concatenate(([1.0], above / self.kinds.full_tiles))
        return Law(self.mean, self.variance, 0, np.maximum(-np.diff(tails), 0.0))

    @cached_property
    def greatest(self) -> tuple[float, bool]:
        kept = np.flatnonzero((self.kinds.every > 0) & (self.counts.mean > 0))
        if not kept.size:
            return 0.0, False
        counts, number = self.counts.only(kept), self.kinds.every[kept]
        # The fullest kind alone reaches this, and the others count where they may exceed it.
        low, high = int(np.where(number >= 1, counts.least, 0.0).max()), int(counts.reach.max()) + 1
        able = np.flatnonzero(counts.reach > low)
        counts, number = counts.only(able), number[able]
        chance = np.minimum(number * counts.above_own(np.full(able.size, float(low))), 1.0)
        rivals = np.flatnonzero(chance > _NOTHING)
        if not rivals.size:
            return float(low), self.dependent
        counts, number = counts.only(rivals), number[rivals]
        stride = max(1, (high - low) // 1024) | 1
        s = np.arange(low + stride // 2, high + stride, stride, dtype=np.float64)
        return low + stride * float(-np.expm1(_log_below(counts, number, s)).sum()), self.dependent

    def below(self, s: Ints) -> Floats:
        kept = np.flatnonzero((self.kinds.every > 0) & (self.counts.mean > 0))
        able = kept[self.counts.reach[kept] > s.min(initial=0)]
        if not able.size:
            return np.ones(s.size)
        return np.exp(_log_below(self.counts.only(able), self.kinds.every[able], s.astype(np.float64)))


def _log_below(counts: Counts, number: Floats, s: Floats) -> Floats:
    """ln P(none of so many counts of each law exceeds s)."""
    found = np.zeros(s.size)
    step = max(1, _BLOCK // max(s.size, 1))
    with np.errstate(divide="ignore"):
        for start in range(0, number.size, step):
            part = np.arange(start, min(start + step, number.size))
            found += number[part] @ np.log1p(-np.minimum(counts.only(part).above(s), 1.0))
    return found
