"""Mean, variance and nonempty rows of rectangles of a matrix under a density model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import ArrayLike

from polymodel.errors import Diagnostic, SpecError
from polymodel.frozen import dataclass
from polymodel.sparse.density.hypergeometric import Hypergeometric
from polymodel.sparse.density.laws import LONGEST, CountLaws, Law
from polymodel.sparse.density.model import (
    MOST_PLACES,
    ByPlace,
    DensityModel,
    Floats,
    Fullness,
    Ints,
    points_of,
)
from polymodel.sparse.density.placed import Placed, TilesOfShape

_LEAST = 1e-12
# Replaces a probability of 0 where logarithms are added and subtracted.
NEVER = 1e-300


class Regions(ABC):
    """Statistics of rectangles of one operand, given as arrays of row, column, height and width."""

    @abstractmethod
    def keys(self, rects: Ints) -> Ints:
        """Return the rectangles (k x row, column, height, width) with irrelevant positions set to 0, so that
        equivalent rectangles are equal."""

    @abstractmethod
    def mean(self, rects: Ints) -> Floats:
        """Expected entries."""

    @abstractmethod
    def variance(self, rects: Ints) -> Floats:
        """Variance of the entries."""

    @abstractmethod
    def rows(self, rects: Ints) -> Floats:
        """Expected nonempty rows."""

    @abstractmethod
    def log_empty(self, rects: Ints) -> Floats:
        """ln P(no entry)."""

    def sure(self, rects: Ints) -> Floats:
        """Number of entries that are nonzero for certain."""
        return np.zeros(rects.shape[0])

    def reach(self, start: Ints, size: Ints) -> tuple[Ints, Ints]:
        """Return the first column that may hold an entry of these rows, and the one after the last."""
        return np.zeros_like(start), np.full_like(start, np.iinfo(np.int64).max)

    def above(self, rects: Ints, s: Ints) -> Floats:
        """P(more than s entries), rectangles x values of s."""
        return self.laws(rects).above(s.astype(np.float64))

    def laws(self, rects: Ints) -> CountLaws:
        """Return the distribution of the number of entries of each rectangle."""
        most = rects[:, 2].astype(np.float64) * rects[:, 3]
        variance = np.maximum(self.variance(rects), 0.0)
        return CountLaws(self.mean(rects), variance, self.log_empty(rects), self.sure(rects), most)


def untouched(width: ArrayLike, area: ArrayLike, entries: ArrayLike) -> Floats:
    """Return P(a slice of `width` of the `area` positions holds none of `entries` entries).

    This is the product of (1 - more / (area - i)) over i < fewer, where `fewer` and `more` are the smaller
    and the larger of width and entries. All factors are replaced by the middle one, so that `entries` may be
    an average and no logarithms cancel.
    """
    fewer, more = np.minimum(width, entries), np.maximum(width, entries)
    middle = np.maximum(np.asarray(area) - (fewer - 1) / 2, _LEAST)
    result: Floats = np.where(fewer > 0, np.clip(1 - more / middle, 0.0, 1.0) ** np.maximum(fewer, 0), 1.0)
    return result


def _none_inside(inside: Ints, extent: Ints, held: Ints) -> Floats:
    """Return P(`inside` positions of a group of `extent` positions with `held` entries hold none), exact up
    to rounding."""
    from scipy.special import gammaln

    left = extent - inside
    ways = gammaln(left + 1) - gammaln(np.maximum(left - held, 0) + 1)
    every = gammaln(extent + 1) - gammaln(extent - held + 1)
    result: Floats = np.where(left >= held, np.exp(ways - every), 0.0)
    return result


def turned(rects: Ints) -> Ints:
    """Return the rectangles of the transposed matrix."""
    return rects[:, [1, 0, 3, 2]]


@dataclass(frozen=True)
class OfPoints(Regions):
    """Statistics that depend only on the number of points."""

    law: Hypergeometric

    def keys(self, rects: Ints) -> Ints:
        return _placeless(rects)

    def mean(self, rects: Ints) -> Floats:
        return self.law.mean(rects[:, 2].astype(np.float64) * rects[:, 3])

    def variance(self, rects: Ints) -> Floats:
        return self.law.variance(rects[:, 2].astype(np.float64) * rects[:, 3])

    def rows(self, rects: Ints) -> Floats:
        return rects[:, 2].astype(np.float64) * self.law.p_nonempty(rects[:, 3])

    def log_empty(self, rects: Ints) -> Floats:
        return self.law.log_p_empty(rects[:, 2] * rects[:, 3])

    def above(self, rects: Ints, s: Ints) -> Floats:
        return self.law.sf((rects[:, 2] * rects[:, 3])[:, None], s[None, :])


@dataclass(frozen=True)
class OfSizes(Regions):
    """Statistics that depend only on the sizes of a rectangle, not on its position."""

    model: DensityModel

    def keys(self, rects: Ints) -> Ints:
        return _placeless(rects)

    def mean(self, rects: Ints) -> Floats:
        return self.model.expected(_sizes(rects))

    def variance(self, rects: Ints) -> Floats:
        return self.model.variance(_sizes(rects))

    def rows(self, rects: Ints) -> Floats:
        one = np.stack([np.ones_like(rects[:, 3]), np.maximum(rects[:, 3], 1)], axis=1)
        result: Floats = rects[:, 2].astype(np.float64) * self.model.p_nonempty(one)
        return result

    def log_empty(self, rects: Ints) -> Floats:
        return _log(self.model.p_empty(_sizes(rects)))

    def above(self, rects: Ints, s: Ints) -> Floats:
        result: Floats = 1 - self.model.cdf(_sizes(rects)[:, None, :], s[None, :])
        return result


@dataclass(frozen=True)
class OfGroups(Regions):
    """Statistics of n:m sparsity along `axis`: the content of whole groups is certain, and that of parts of
    groups at both ends is hypergeometric.

    `law`: the distribution of the entries, given a start and a size along the groups and a number of fibers.
    """

    shape: tuple[int, ...]
    n: int
    m: int
    axis: int
    law: Callable[[int, int, int], Law]

    def keys(self, rects: Ints) -> Ints:
        result = _placeless(rects)
        # The start within a group matters, and whether the last, shorter group is reached.
        start, m = rects[:, self.axis], self.m
        whole = self.shape[self.axis] // m * m
        ends = start + rects[:, 2 + self.axis] > whole
        result[:, self.axis] = np.where(ends, start, start % m)
        return result

    def mean(self, rects: Ints) -> Floats:
        return self._parts(rects)[0] * rects[:, 3 - self.axis]

    def variance(self, rects: Ints) -> Floats:
        return self._parts(rects)[1] * rects[:, 3 - self.axis]

    def rows(self, rects: Ints) -> Floats:
        mean, _, none = self._parts(rects)
        if self.axis == 1:
            whole: Floats = rects[:, 2].astype(np.float64) * (1 - none)
            return whole
        per = np.minimum(mean / np.maximum(rects[:, 2], 1), 1.0)
        spread: Floats = rects[:, 2].astype(np.float64) * (1 - (1 - per) ** rects[:, 3])
        return spread

    def log_empty(self, rects: Ints) -> Floats:
        return rects[:, 3 - self.axis] * _log(self._parts(rects)[2])

    def above(self, rects: Ints, s: Ints) -> Floats:
        kinds, place = np.unique(self.keys(rects), axis=0, return_inverse=True)
        axis = self.axis
        laws = [self.law(int(k[axis]), int(k[2 + axis]), int(k[3 - axis])) for k in kinds]
        return np.array([law.sf(s) for law in laws])[place.reshape(-1)]

    def _parts(self, rects: Ints) -> tuple[Floats, Floats, Floats]:
        """Return the mean, the variance and P(none) of one fiber of the groups."""
        start, size = rects[:, self.axis], rects[:, 2 + self.axis]
        length, m, n = self.shape[self.axis], self.m, self.n
        first, last = start // m, (start + size - 1) // m
        mean, variance = np.zeros(size.shape), np.zeros(size.shape)
        none = np.ones(size.shape)
        inner = np.maximum(last - first - 1, 0)
        mean += inner * n
        none[(inner > 0) & (n > 0)] = 0.0
        for group, counted in ((first, np.ones_like(first, dtype=bool)), (last, last > first)):
            low, high = group * m, np.minimum((group + 1) * m, length)
            inside = np.minimum(high, start + size) - np.maximum(low, start)
            extent = high - low
            held = np.minimum(n, extent)
            share = inside / np.maximum(extent, 1)
            own = held * share * (1 - share) * (extent - held) / np.maximum(extent - 1, 1)
            mean += np.where(counted, held * share, 0.0)
            variance += np.where(counted, own, 0.0)
            none *= np.where(counted, _none_inside(inside, extent, held), 1.0)
        return np.where(size > 0, mean, 0.0), np.where(size > 0, variance, 0.0), np.where(size > 0, none, 1.0)


@dataclass(frozen=True, eq=False)
class OfLines(Regions):
    """Statistics of a fixed number of entries in each row (axis 0) or column (axis 1), at random positions of
    `length`."""

    axis: int
    length: int
    sums: Floats
    spreads: Floats
    counts: Ints
    empty: Floats

    @classmethod
    def of(cls, counts: Ints, length: int, axis: int) -> OfLines:
        n = counts.astype(np.float64)
        spread = n * (length - n) / max(length - 1, 1)
        with np.errstate(divide="ignore"):
            empty = np.maximum(np.log1p(-n / length), -50.0)
        return cls(axis, length, summed(n), summed(spread), counts, summed(empty))

    def keys(self, rects: Ints) -> Ints:
        result = rects.copy()
        result[:, 1 - self.axis] = 0
        return result

    def _over(self, sums: Floats, rects: Ints) -> Floats:
        start = rects[:, self.axis]
        result: Floats = sums[start + rects[:, 2 + self.axis]] - sums[start]
        return result

    def mean(self, rects: Ints) -> Floats:
        return self._over(self.sums, rects) * rects[:, 3 - self.axis] / self.length

    def variance(self, rects: Ints) -> Floats:
        share = rects[:, 3 - self.axis] / self.length
        return self._over(self.spreads, rects) * share * (1 - share)

    def log_empty(self, rects: Ints) -> Floats:
        result = np.zeros(rects.shape[0])
        widths, place = np.unique(rects[:, 3 - self.axis], return_inverse=True)
        for i, width in enumerate(widths):
            here = place.reshape(-1) == i
            none = untouched(float(width), float(self.length), self.counts.astype(np.float64))
            result[here] = self._over(summed(_log(none)), rects[here])
        return result

    def rows(self, rects: Ints) -> Floats:
        if self.axis == 1:
            result: Floats = rects[:, 2].astype(np.float64) * -np.expm1(self._over(self.empty, rects))
            return result
        widths, place = np.unique(rects[:, 3], return_inverse=True)
        present = np.zeros(rects.shape[0])
        for i, width in enumerate(widths):
            here = place.reshape(-1) == i
            some = 1 - untouched(float(width), float(self.length), self.counts.astype(np.float64))
            sums = summed(some)
            present[here] = self._over(sums, rects[here])
        return present


def _log(share: Floats) -> Floats:
    """Return logarithms; for probability 0 a number whose sums stay finite."""
    result: Floats = np.log(np.maximum(share, NEVER))
    return result


def summed(values: Floats) -> Floats:
    """Return the sums of the values before each position, and the total."""
    result: Floats = np.concatenate([np.zeros(1), np.cumsum(values)])
    return result


def _placeless(rects: Ints) -> Ints:
    result = rects.copy()
    result[:, :2] = 0
    return result


def _sizes(rects: Ints) -> Ints:
    return np.maximum(rects[:, 2:], 1)


# Models of a matrix that provide statistics of any rectangle. Tilings follow from their rectangles.

# Entries of the distributions of one tiling, all kinds of tiles together, and of one block of work.
_MOST, _BLOCK = 1 << 26, 1 << 20
# The most rectangles that parts consist of, and values that are evaluated without a list of all.
_RECTS, _FEW = 1 << 18, 4
# A probability that is negligible for a maximum.
_NOTHING = 1e-15


@dataclass(frozen=True, eq=False)
class Kinds:
    """The kinds of tiles of a tiling: one rectangle (row, column, height, width) of each kind, its number of
    full tiles, and its number of all tiles.

    Tiles of no kind are empty for certain; `full_tiles` counts the full tiles, including these. `single`: the
    number of tiles if two with identical content count once (None: there are no such tiles).
    """

    rects: Ints
    full: Floats
    every: Floats
    full_tiles: float
    single: Floats | None = None

    @property
    def different(self) -> Floats:
        """The number of tiles of each kind, where two with identical content count once."""
        return self.every if self.single is None else self.single


@dataclass(frozen=True)
class Regional(Placed):
    """A density model of a matrix that provides statistics of rectangles (`regions`) and lists the kinds of
    tiles."""

    def __post_init__(self) -> None:
        super().__post_init__()
        points_of(self.shape)
        if len(self.ranks) != 2:
            what = f"{type(self).__name__} describes matrices, and there are {len(self.ranks)} ranks"
            remedy = "give two ranks, or take another model"
            raise SpecError([Diagnostic(what, remedy, "ranks", code="wrong-count")])

    @abstractmethod
    def regions(self) -> Regions:
        """Return the statistics of rectangles."""

    @abstractmethod
    def kinds(self, tile: tuple[int, int]) -> Kinds:
        """Return the tiles of a tiling that may hold a nonzero."""

    def apart(self, tile: tuple[int, int]) -> bool:
        """Return whether the tiles of a tiling are independent; if not, E[max] of independent tiles is only a
        bound."""
        return self.independent

    def cuts(self, rects: Ints) -> bool:
        """Return whether the rectangles cut units that exist only as a whole, such as blocks."""
        return False

    @property
    def matrix(self) -> tuple[int, int]:
        """The numbers of rows and of columns."""
        return self.shape[0], self.shape[1]

    def by_place(self) -> ByPlace | None:
        rows, columns = self.matrix
        if rows * columns > MOST_PLACES:
            return None
        at = np.indices((rows, columns)).reshape(2, -1).T
        means = self.regions().mean(np.concatenate((at, np.ones_like(at)), axis=1))
        return ByPlace((0, 1), means.reshape(rows, columns), 1)

    def nonempty_by_place(self, tile: tuple[int, ...]) -> Floats | None:
        return nonempty_tiles(self, tile)

    def expected_in(self, rects: Ints) -> Floats:
        return self.regions().mean(rects)

    def make_tiling(self, tile: tuple[int, ...]) -> TilesOfShape:
        box = tile[0], tile[1]
        kinds = self.kinds(box)
        dependent = self.cuts(kinds.rects) or not self.apart(box)
        return OfKinds(kinds, self.regions().laws(kinds.rects), tile != self.shape and dependent)

    def fullest_part(self, parts: Sequence[Ints]) -> tuple[float, Fullness] | None:
        """Return the maximum over parts. Parts that are not tiles are sums of rectangles."""
        result = super().fullest_part(parts)
        rects, number, _ = _rectangles(parts)
        if result is not None or rects is None:
            return result
        one = self.regions().laws(rects)
        values = (one.mean, one.variance, one.log_empty, one.sure, one.most)
        many = CountLaws(*(np.bincount(number, weights=v).astype(np.float64) for v in values))
        ones = np.ones(many.mean.size)
        greatest = OfKinds(Kinds(rects, ones, ones, float(ones.size)), many, False).greatest[0]
        return greatest, "expected" if self.independent and not self.cuts(rects) else "estimate"

    def nonempty_by_parts(self, parts: Sequence[Ints]) -> Floats | None:
        """Return P(nonempty) of parts that are unions of independent rectangles."""
        if not self.independent:
            return None
        rects, number, many = _rectangles(parts)
        if rects is None or self.cuts(rects):
            return None
        logs = np.bincount(number, weights=self.regions().log_empty(rects), minlength=prod(many))
        return -np.expm1(logs).reshape(many)


def _rectangles(parts: Sequence[Ints]) -> tuple[Ints | None, Ints, tuple[int, int]]:
    """Return the rectangles that parts of a matrix consist of (None for too many), the number of the
    combination of parts that each belongs to, and the numbers of parts."""
    runs = [_runs(part) for part in parts]
    (row, height, of_row), (column, width, of_column) = runs
    many = int(of_row.max(initial=0)) + 1, int(of_column.max(initial=0)) + 1
    if row.size * column.size > _RECTS:
        return None, of_row, many
    grid = [np.repeat(x, column.size) for x in (row, height, of_row)]
    grid_1 = [np.tile(x, row.size) for x in (column, width, of_column)]
    rects = np.stack([grid[0], grid_1[0], grid[1], grid_1[1]], axis=1)
    return rects, grid[2] * many[1] + grid_1[2], many


def nonempty_tiles(model: DensityModel, tile: tuple[int, ...]) -> Floats | None:
    """Return P(nonempty) of every tile of a matrix, from the statistics of its rectangle; None for too many
    tiles."""
    starts = [np.arange(0, s, t, dtype=np.int64) for s, t in zip(model.shape, tile, strict=True)]
    if prod(s.size for s in starts) > MOST_PLACES:
        return None
    sizes = [np.minimum(t, n - s) for s, t, n in zip(starts, tile, model.shape, strict=True)]
    columns = [*np.meshgrid(*starts, indexing="ij"), *np.meshgrid(*sizes, indexing="ij")]
    rects = np.stack([c.reshape(-1) for c in columns], axis=1)
    if all(t == 1 for t in tile):
        result: Floats = model.regions().mean(rects)
    else:
        result = -np.expm1(model.regions().log_empty(rects))
    return result.reshape([s.size for s in starts])


def _runs(part: Ints) -> tuple[Ints, Ints, Ints]:
    """Return runs of consecutive coordinates of the same part: starts, lengths and parts."""
    starts = np.flatnonzero(np.concatenate(([True], part[1:] != part[:-1])))
    return starts, np.diff(np.append(starts, part.size)), part[starts]


@dataclass(frozen=True, eq=False)
class OfKinds(TilesOfShape):
    """Tiles of several kinds, each with the distribution of its number of nonzeros."""

    kinds: Kinds
    counts: CountLaws
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
    def _whole(self) -> tuple[CountLaws, Floats]:
        """The distributions of full tiles that differ, and how many tiles have each."""
        kept = np.flatnonzero(self.kinds.full > 0)
        return _merged(self.counts.only(kept), self.kinds.full[kept])

    def cdf(self, s: ArrayLike) -> Floats:
        asked, place = np.unique(np.floor(np.asarray(s, dtype=np.float64)), return_inverse=True)
        counts, number = self._whole
        high = int(counts.reach.max(initial=0.0)) + 1
        if "law" in self.__dict__ or asked.size * _FEW > high or high > LONGEST:
            return self.law.cdf(s)
        above = np.zeros(asked.size)
        step = max(1, _BLOCK // asked.size)
        for start in range(0, number.size, step):
            part = np.arange(start, min(start + step, number.size))
            above += counts.only(part).above(asked).T @ number[part]
        result = np.where(asked < 0, 0.0, 1 - above / self.kinds.full_tiles)
        return np.asarray(result[place.reshape(-1)].reshape(np.shape(s)))

    @cached_property
    def law(self) -> Law:
        counts, number = self._whole
        empty = self.kinds.full_tiles - float(number.sum())
        high = int(counts.reach.max(initial=0.0)) + 1
        if high > LONGEST or high * number.size > _MOST:
            # Kinds without a variance, and tiles that are certainly empty, are narrow normal distributions.
            parts = np.append(counts.mean, 0.0), np.append(counts.variance, 0.0), np.append(number, empty)
            return Law(self.mean, self.variance, normals=parts)
        above = np.zeros(high + 1)
        step = max(1, _BLOCK // (high + 1))
        for start in range(0, number.size, step):
            part = np.arange(start, min(start + step, number.size))
            above += counts.only(part).above(np.arange(high + 1.0)).T @ number[part]
        tails = np.concatenate(([1.0], above / self.kinds.full_tiles))
        return Law(self.mean, self.variance, 0, np.maximum(-np.diff(tails), 0.0))

    @cached_property
    def greatest(self) -> tuple[float, bool]:
        kept = np.flatnonzero((self.kinds.different > 0) & (self.counts.mean > 0))
        if not kept.size:
            return 0.0, False
        counts, number = _merged(self.counts.only(kept), self.kinds.different[kept])
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
        kept = np.flatnonzero((self.kinds.different > 0) & (self.counts.mean > 0))
        able = kept[self.counts.reach[kept] > s.min(initial=0)]
        if not able.size:
            return np.ones(s.size)
        merged = _merged(self.counts.only(able), self.kinds.different[able])
        return np.exp(_log_below(*merged, s.astype(np.float64)))


def _merged(counts: CountLaws, number: Floats) -> tuple[CountLaws, Floats]:
    """Return the different ones among distributions, and how many have each."""
    one, group = counts.alike()
    return counts.only(one), np.bincount(group, weights=number, minlength=one.size).astype(np.float64)


def _log_below(counts: CountLaws, number: Floats, s: Floats) -> Floats:
    """Return ln P(no count exceeds s), given the number of counts with each distribution."""
    result = np.zeros(s.size)
    step = max(1, _BLOCK // max(s.size, 1))
    with np.errstate(divide="ignore"):
        for start in range(0, number.size, step):
            part = np.arange(start, min(start + step, number.size))
            result += number[part] @ np.log1p(-np.minimum(counts.only(part).above(s), 1.0))
    return result
