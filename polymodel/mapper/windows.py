"""Ranks that several rank variables index: windows `a p + b r`, and two images of one rank; the elements that
their tiles and their instances need. Pairs of rank variables that bounds tie together (`Tie`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from polymodel.analysis.symbolic.regions import Region, TileQuery, What, total
from polymodel.analysis.symbolic.regions import Tiles as RegionTiles
from polymodel.analysis.symbolic.spaces import Halo, neighbours_joined
from polymodel.errors import Refused
from polymodel.integers import distinct_numbers
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess

if TYPE_CHECKING:
    from polymodel.mapper.space import Operand

Array = Any
Tiles = tuple[
    int, tuple[tuple[int, int], ...]
]  # of a variable: the tile size, and (number, distance) of instances
Runs = tuple[tuple[int, int], ...]  # of consecutive values: (first, length)
# the elements of a tied pair that are counted, and the coefficients of a rank
Elements = tuple[What, tuple[int, int]]
POINTS: Elements = ("both", (0, 0))


@dataclass(frozen=True)
class EqualRanges:
    """Equal ranges of one rank variable: `size` values from each start; a start is a sum of one multiple `k *
    apart`, k < `count`, for each (count, apart) of `steps`."""

    size: int
    steps: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, size: int, steps: Iterable[tuple[int, int]]) -> EqualRanges:
        """In normal form: adjacent ranges are merged."""
        left = []
        for count, apart in sorted((s for s in steps if s[0] > 1), key=lambda s: s[1]):
            if apart == size:
                size *= count
            else:
                left.append((count, apart))
        return cls(size, tuple(left))

    @cached_property
    def values(self) -> Array:
        result = np.arange(self.size)
        for count, apart in self.steps:
            result = (result[:, None] + apart * np.arange(count)).reshape(-1)
        return result


@lru_cache(maxsize=65536)
def window_elements(window: RankWindow, p: EqualRanges, r: EqualRanges) -> int:
    """Distinct elements of a window's rank in all these ranges of its variables."""
    if not p.steps and not r.steps:
        return window.elements(p.size, r.size)
    return len(distinct_numbers(window.step_r * p.values[:, None] + window.step_p * r.values))


@dataclass(frozen=True)
class RankWindow:
    """A rank `a p + b r` in lowest terms: positions of p and r among the variables, and their steps. `held`:
    if not 0, r is not a rank variable but distinguishes the elements that each operation reads; this is its
    number of values, no loop iterates over it, and its position is after those of all variables."""

    p: int
    r: int
    step_p: int
    step_r: int
    held: int = 0

    def elements(self, p: int, r: int) -> int:
        """Elements of a tile of these sizes, without holes."""
        return p * r - max(p - self.step_p, 0) * max(r - self.step_r, 0)

    def touched(self, extents: Sequence[int]) -> int:
        """Elements of the whole rank."""
        return self.elements(extents[self.p], self.held or extents[self.r])

    @property
    def variables(self) -> tuple[int, ...]:
        """The rank variables of the rank."""
        return (self.p,) if self.held else (self.p, self.r)

    @property
    def reads(self) -> int:
        """Elements that one operation reads."""
        return self.held or 1


def overlaps(one: Einsum, window: Halo) -> bool:
    """Return whether two pairs of values of the rank variables may be one element of the rank.

    This is never true in `4 j + t` with t below 4: the variables then split the tensor as if each had a rank
    of its own.
    """
    if not {window.p, window.r} <= {*one.rank_variables}:
        return True
    (low_p, high_p), (low_r, high_r) = one.bound(window.p), one.bound(window.r)
    return high_p - low_p >= window.shift_p and high_r - low_r >= window.shift_r


# Of two images of a rank, as in `A[m] * A[k]`, a tile holds the union. Tiles of each variable, those of all
# instances together, are disjoint and cover its range, so that of all pairs of tiles exactly one has a common
# element of the ranges twice: over all pairs, the elements of both images are those of each alone less the
# common elements once.

Steps = tuple[tuple[int, int], ...]  # per fanout: number of instances, and the distance of neighbours


@dataclass(frozen=True)
class TwoImages:
    """A rank that an Einsum reads by two rank variables, each by itself.

    Positions of p and r, the numbers of their values, and the number of elements by which the values of p
    start after those of r.
    """

    p: int
    r: int
    extents: tuple[int, int]
    ahead: int
    held: ClassVar[int] = 0
    reads: ClassVar[int] = 2

    @property
    def variables(self) -> tuple[int, ...]:
        return self.p, self.r

    @property
    def _common(self) -> Array:
        """Return the values of r whose elements p also has."""
        return np.arange(max(self.ahead, 0), min(self.ahead + self.extents[0], self.extents[1]))

    def elements(self, p: int, r: int) -> int:
        """Elements of the largest tile, where all tiles of a variable are equal: of the first values of one
        variable and the last ones of the other, which are farthest apart."""
        many_p, many_r = self.extents
        reach = (self.ahead + p, many_r), (r, self.ahead + many_p)
        begin = (self.ahead, many_r - r), (0, self.ahead + many_p - p)
        both = (max(min(high) - max(low), 0) for high, low in zip(reach, begin, strict=True))
        return p + r - min(both)

    def touched(self, extents: Sequence[int]) -> int:
        """Elements of the whole rank."""
        return self.elements(extents[self.p], extents[self.r])

    def common(self, p: Steps, r: Steps) -> int:
        """Elements common to both images, in the instance that has the fewest."""
        return _fewest_common(self, p, r)


@lru_cache(maxsize=65536)
def _fewest_common(images: TwoImages, p: Steps, r: Steps) -> int:
    values = images._common
    instance, many = np.zeros(len(values), np.int64), 1
    for steps, index in ((p, values - images.ahead), (r, values)):
        for count, apart in steps:
            instance, many = instance * count + index // apart % count, many * count
    return int(np.bincount(instance, minlength=many).min())


def images_of(one: Einsum, tensor: str, position: Mapping[str, int]) -> tuple[int, TwoImages] | None:
    """Return the rank in which the only two accesses of a tensor differ, and its images; None if the Einsum
    does not read the tensor in this way."""
    every = one.accesses_of(tensor)
    if len(every) != 2 or any(a.output or a.guard for a in every):
        return None
    first, second = (a.projection for a in every)
    differ = [k for k, (a, b) in enumerate(zip(first, second, strict=True)) if a != b]
    if len(differ) != 1:
        return None
    a, b = first[differ[0]], second[differ[0]]
    alike = len(a.terms) == len(b.terms) == 1 and a.terms[0][1] == b.terms[0][1]
    if not alike or a.variables == b.variables or not {*a.variables, *b.variables} <= {*position}:
        return None
    step = a.terms[0][1]
    (p, r), ends = (a.variables[0], b.variables[0]), (one.bound(a.variables[0]), one.bound(b.variables[0]))
    ahead, rest = divmod(step * (ends[0][0] - ends[1][0]) + a.constant - b.constant, step)
    if rest:
        return None
    extents = ends[0][1] - ends[0][0] + 1, ends[1][1] - ends[1][0] + 1
    return differ[0], TwoImages(position[p], position[r], extents, ahead)


@lru_cache(maxsize=65536)
def read_together(values: Runs, splits: tuple[tuple[int, str], ...]) -> tuple[tuple[Runs, int], ...]:
    """The sets of values that instances hold together below nested loops, each shifted to start at 0, and the
    frequency of each. `splits`: per loop its tile size and which tiles count, as in `Factors._splits`."""
    if not splits:
        return ((_joined_runs(values), 1),)
    (size, how), inner = splits[0], splits[1:]
    if how == "first":
        return read_together(tuple((at, min(n, size)) for at, n in values), inner)
    trips = -(-max(n for _, n in values) // size)
    if how == "union":
        several = [(at + k * size, min(size, n - k * size)) for at, n in values for k in range(-(-n // size))]
        return read_together(tuple(several), inner)
    result: dict[Runs, int] = {}
    for k in range(trips):
        some = [(at + k * size, min(size, n - k * size)) for at, n in values if n > k * size]
        low = min(at for at, _ in some)
        for runs, often in read_together(tuple((at - low, n) for at, n in some), inner):
            result[runs] = result.get(runs, 0) + often
    return tuple(result.items())


def _joined_runs(values: Runs) -> Runs:
    """Adjacent runs merged, shifted to start at 0."""
    result: list[tuple[int, int]] = []
    for at, n in sorted(values):
        if result and sum(result[-1]) == at:
            result[-1] = (result[-1][0], result[-1][1] + n)
        else:
            result.append((at, n))
    low = result[0][0]
    return tuple((at - low, n) for at, n in result)


@lru_cache(maxsize=65536)
def union_elements(window: RankWindow, p: Runs, r: Runs) -> int:
    """Distinct elements of a window's rank in all these values of its variables."""
    values = [np.concatenate([at + np.arange(n) for at, n in runs]) for runs in (p, r)]
    return len(distinct_numbers(window.step_r * values[0][:, None] + window.step_p * values[1]))


@lru_cache(maxsize=65536)
def sliding_elements(window: RankWindow, p: Tiles, r: Tiles, along_p: bool, step: int) -> int:
    """Return the number of distinct elements of a window's rank that instances need and did not need, each by
    itself, one step of a variable before (`step` 0: all that they need)."""
    starts = [EqualRanges(1, several).values for _, several in (p, r)]
    tile = (window.step_r * np.arange(p[0])[:, None] + window.step_p * np.arange(r[0])).reshape(-1)
    tile = distinct_numbers(tile)
    if step:
        moved = step * (window.step_r if along_p else window.step_p)
        tile = np.setdiff1d(tile, tile - moved, assume_unique=True)
    begin = (window.step_r * starts[0][:, None] + window.step_p * starts[1]).reshape(-1)
    return len(distinct_numbers(begin[:, None] + tile))


@lru_cache(maxsize=65536)
def kept_elements(window: RankWindow, p: Tiles, r: Tiles, moved: int) -> int:
    """Return the number of distinct elements of a window's rank that instances read together and that each of
    them that has one had in a tile `moved` elements before."""
    tile = distinct_numbers(
        (window.step_r * np.arange(p[0])[:, None] + window.step_p * np.arange(r[0])).reshape(-1)
    )
    lacking = np.setdiff1d(tile, tile - moved, assume_unique=True)
    if len(lacking) == len(tile):
        return 0
    starts = [EqualRanges(1, several).values for _, several in (p, r)]
    begin = (window.step_r * starts[0][:, None] + window.step_p * starts[1]).reshape(-1)
    every, new = (len(distinct_numbers(begin[:, None] + x)) if len(x) else 0 for x in (tile, lacking))
    return every - new


def kept_table(
    window: RankWindow, every_p: Sequence[Tiles], every_r: Sequence[Tiles], pairs: Array, moved: Array
) -> Array:
    """Return `kept_elements` [...] of pairs of tiles, by the number of the first one times the number of the
    others plus the number of the second one, and distances."""
    low, high = int(moved.min(initial=0)), int(moved.max(initial=0))
    codes, which = np.unique(pairs * (high - low + 1) + (moved - low), return_inverse=True)
    kept = []
    for code in codes.tolist():
        pair, ahead = divmod(code, high - low + 1)
        p, r = divmod(pair, len(every_r))
        kept.append(kept_elements(window, every_p[p], every_r[r], ahead + low))
    return np.array(kept, dtype=float)[which.reshape(pairs.shape)]


# Accesses of one operation to several elements: a window over a rank variable and one that no loop
# iterates.


def variables_of(one: Einsum) -> tuple[str, ...]:
    """Return rank variables of extent above 1, and those of extent 1 that have neighbours or images in a
    rank."""
    _, unions = neighbours_joined(one, {})
    ranks = (set(x.variables) for a in unions.values() for x in a.projection)
    beside = set().union(*(x for x in ranks if not x <= {*one.rank_variables}))
    every = {v: k for k, v in enumerate(one.rank_variables)}
    pairs = (images_of(one, t, every) for t in one.tensors)
    beside |= {one.rank_variables[k] for pair in pairs if pair is not None for k in pair[1].variables}
    return tuple(v for v in one.rank_variables if v in beside or len({*one.bound(v)}) > 1)


def neighbours_of(
    one: Einsum, tensor: str, cascade: Cascade, remedy: str
) -> tuple[Einsum, TensorAccess, int]:
    """One access to all elements of a tensor that an operation reads, the Einsum with the variables that
    distinguish them, and the number of accesses per element. Raises Refused if they are not evenly
    spaced."""
    access, every = one.access_of(tensor), one.accesses_of(tensor)
    different = {a.projection for a in every}
    if len(different) == 1 or tensor in cascade.shifted or access.output:
        return one, access, len(every)
    joined, unions = neighbours_joined(one, {})
    reads = {sum(a.projection == x for a in every) for x in different}
    if tensor not in unions or len(reads) > 1:
        what = f"{one.name} accesses {tensor} at several elements"
        message = (
            f"{what}; the search covers elements that stand evenly apart along ranks, each read equally "
            "often, and two images of one rank, as in `A[m] * A[k]`"
        )
        raise Refused(message, remedy, code="unsupported-einsum")
    return joined, unions[tensor], reads.pop()


@dataclass(frozen=True)
class Tie:
    """Two rank variables (positions) and the points of their region."""

    u: int
    v: int
    region: Region

    @property
    def both(self) -> frozenset[int]:
        return frozenset((self.u, self.v))

    @property
    def points(self) -> int:
        return self.moved((0, 0), POINTS)

    def of(self, operand: Operand) -> Elements:
        """The elements of a tensor that the values of both variables distinguish."""
        for w in operand.windows:
            if isinstance(w, RankWindow) and {w.p, w.r} == self.both:
                coefficients = (w.step_r, w.step_p) if w.p == self.u else (w.step_p, w.step_r)
                return "rank", coefficients
        indexed = self.both & operand.alone
        if indexed == self.both:
            return POINTS
        return ("u" if self.u in indexed else "v" if self.v in indexed else "none"), (0, 0)

    def moved(self, sizes: tuple[int, int], elements: Elements) -> int:
        """Elements of all nonempty tiles, counted once per tile; a size of 0 means the whole extent."""
        one, other = (self._tiles(k, size) for k, size in enumerate(sizes))
        return total(self.region, one, other, *elements)

    def largest(self, sizes: tuple[int, int], elements: Elements) -> int:
        """Elements of the largest tile."""
        what, rank = elements
        if what == "none":
            return 1
        from polymodel.analysis.symbolic.pair_peaks import front

        one, other = (self._tiles(k, size) for k, size in enumerate(sizes))
        return front(self.region, one, other, (TileQuery(len(one), len(other), what, rank),))[0][0]

    def _tiles(self, axis: int, size: int) -> RegionTiles:
        return ((size, size),) if 0 < size < self.region.extents[axis] else ()
