"""Model n:m structured sparsity, as used by sparse tensor cores: n of every m coordinates are nonzero."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import comb, gcd, prod

import numpy as np

from polymodel.frozen import dataclass
from polymodel.sparse.arguments import Arguments
from polymodel.sparse.density.laws import Law, expected_greatest, mixed, summed
from polymodel.sparse.density.model import (
    MOST_PLACES,
    ByPlace,
    DensityModel,
    Floats,
    Ints,
    edge_classes,
    points_of,
)
from polymodel.sparse.density.placed import Placed, TilesOfShape
from polymodel.sparse.density.random import places_in_lines
from polymodel.sparse.density.reader import Path, Reader
from polymodel.sparse.density.regions import OfGroups, Regions, nonempty_tiles
from polymodel.sparse.tensor import SparseTensor

# Part of a group: coordinates of the group, nonzeros in it, coordinates of the part.
Part = tuple[int, int, int]
# One tile's part of a fiber: nonzeros of whole groups, and up to two parts of groups.
Segment = tuple[int, tuple[Part, ...]]


@dataclass(frozen=True)
class FixedStructured(Placed):
    """In every fiber of `rank`, each group of m consecutive coordinates has exactly n nonzeros at random
    positions.

    `rank`: by default the last one. Groups start at multiples of m; a shorter last group of r coordinates has
    min(n, r) nonzeros. Whole groups hold n nonzeros for certain, and the nonzeros of parts of groups are
    hypergeometric. Groups are independent. Two tiles that share a group are negatively associated, so that
    E[max] is then a lower bound.
    """

    n: int
    m: int
    rank: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        points_of(self.shape)
        read = Arguments()
        m = read.whole("m", self.m, 1)
        n = read.whole("n", self.n, 0)
        if not read.faults and n > m:
            read.add("n", f"{n} of {m} coordinates cannot be nonzero", f"give 0 to {m}", code="out-of-range")
        rank = self.rank if self.rank or not self.ranks else self.ranks[-1]
        read.one_of("rank", rank, self.ranks, "groups along")
        read.raise_if_any()
        for name, value in (("n", n), ("m", m), ("rank", rank)):
            object.__setattr__(self, name, value)

    @classmethod
    def written(cls, reader: Reader, path: Path, given: object) -> DensityModel | None:
        """Return the model with these parameters of a YAML file; None after a fault, which the reader has
        recorded."""
        keys = reader.keys(path, given, ("n", "m", "rank"))
        if not isinstance(given, Mapping):
            return None
        m = reader.whole((*path, "m"), keys.get("m"), 1, float("inf"), "m")
        n = reader.whole((*path, "n"), keys.get("n"), 0, float("inf") if m is None else m, "n")
        rank = (
            reader.rank((*path, "rank"), keys["rank"])
            if "rank" in keys
            else reader.ranks[-1]
            if reader.ranks
            else ""
        )
        if n is None or m is None or rank is None:
            return None
        return reader.made(path, lambda: cls(reader.ranks, reader.shape, n, m, rank))

    @property
    def _axis(self) -> int:
        return self.ranks.index(self.rank)

    @property
    def expected_nnz(self) -> float:
        length = self.shape[self._axis]
        one = length // self.m * self.n + min(self.n, length % self.m)
        return float(self.size // length * one)

    def alike(self, tile: tuple[int, ...]) -> bool:
        return len(self.segments(tile[self._axis])[0]) == 1

    def part(self, touched: Sequence[range]) -> FixedStructured | None:
        """Return the model of whole groups; None if only a part of a group is touched, whose number of
        nonzeros is random."""
        along = touched[self._axis]
        ends = along.stop % self.m == 0 or along.stop == self.shape[self._axis]
        if along.step != 1 or along.start % self.m or not ends:
            return None
        return replace(self, shape=tuple(map(len, touched)))

    def by_place(self) -> ByPlace | None:
        length = self.shape[self._axis]
        rest = length % self.m
        if not rest or self.n * rest == min(self.n, rest) * self.m:
            return ByPlace((), np.array(self.n), self.m)
        if length > MOST_PLACES:
            return None
        last = np.arange(length) >= length - rest
        return ByPlace(
            (self._axis,), np.where(last, min(self.n, rest) * self.m, self.n * rest), self.m * rest
        )

    def known_rows(self) -> Ints | None:
        if self._axis == 0:
            return None
        return np.full(self.shape[0], round(self.expected_nnz) // self.shape[0], dtype=np.int64)

    def square_multiplies(self) -> float:
        """Return the expected multiplications by itself. All rows, or all columns, have equally many
        nonzeros."""
        if len(self.shape) != 2 or self.shape[0] != self.shape[1]:
            return super().square_multiplies()
        return self.expected_nnz * self.expected_nnz / self.shape[0]

    def nonempty_by_place(self, tile: tuple[int, ...]) -> Floats | None:
        return nonempty_tiles(self, tile) if len(self.shape) == 2 else super().nonempty_by_place(tile)

    def nonempty_by_parts(self, parts: Sequence[Ints]) -> Floats | None:
        """Return P(nonempty) of parts of equal sizes that are consecutive along the groups: fibers are
        independent and all alike, so that their order does not matter."""
        sizes = [np.bincount(part) for part in parts]
        tile = tuple(int(size[0]) for size in sizes)
        along = parts[self._axis]
        consecutive = bool((along == np.arange(along.size) // tile[self._axis]).all())
        equal = all((size == t).all() for size, t in zip(sizes, tile, strict=True))
        return self.nonempty_by_place(tile) if consecutive and equal else None

    def regions(self) -> Regions:
        return OfGroups(self.shape, self.n, self.m, self._axis, self._law)

    def draw(self, seed: int, name: str = "A") -> SparseTensor:
        if len(self.shape) != 2:
            return super().draw(seed, name)
        return self.ones_at(self.drawn_apart(np.random.default_rng(seed), 1)[1], name)

    def drawn_apart(self, generator: np.random.Generator, many: int) -> tuple[Ints, Ints]:
        if len(self.shape) != 2:
            return super().drawn_apart(generator, many)
        axis, m = self._axis, self.m
        length, fibers = self.shape[axis], many * self.shape[1 - axis]
        whole, rest = divmod(length, m)
        group, place = places_in_lines(generator, np.full(fibers * whole, self.n), m)
        fiber, along = group // max(whole, 1), group % max(whole, 1) * m + place
        if rest:
            last, place = places_in_lines(generator, np.full(fibers, min(self.n, rest)), rest)
            fiber, along = np.concatenate([fiber, last]), np.concatenate([along, whole * m + place])
        number, fiber = np.divmod(fiber, self.shape[1 - axis])
        return number, np.stack([along, fiber] if axis == 0 else [fiber, along])

    def segments(self, step: int) -> tuple[Counter[Segment], Counter[Segment]]:
        """Return the segments of one fiber that lie in full tiles, and the one in the edge tile if there is
        one, with their numbers."""
        length = self.shape[self._axis]
        full, edge = length // step, length % step
        regular = min(full, length // self.m * self.m // step)
        period = self.m // gcd(step, self.m)
        result: Counter[Segment] = Counter()
        for k in range(min(period, regular)):
            result[self._segment(k * step, step)] += (regular - 1 - k) // period + 1
        for k in range(regular, full):
            result[self._segment(k * step, step)] += 1
        return result, Counter([self._segment(full * step, edge)] if edge else [])

    def _segment(self, start: int, size: int) -> Segment:
        """Return the segment of the coordinates start .. start + size - 1 of a fiber."""
        length, certain, parts = self.shape[self._axis], 0, []
        first, last = start // self.m, (start + size - 1) // self.m
        for group in sorted({first, last}):
            low, high = group * self.m, min((group + 1) * self.m, length)
            nonzeros, inside = min(self.n, high - low), min(high, start + size) - max(low, start)
            if inside == high - low or nonzeros in (0, high - low):
                certain += inside if nonzeros == high - low else nonzeros
            else:
                parts.append((high - low, nonzeros, inside))
        return certain + max(0, last - first - 1) * self.n, tuple(sorted(parts))

    def _law(self, start: int, size: int, fibers: int) -> Law:
        """Return the distribution of the nonzeros among `size` coordinates from `start` on, in several
        fibers."""
        return _law(self._segment(start, size), fibers)

    def make_tiling(self, tile: tuple[int, ...]) -> TilesOfShape:
        axis = self._axis
        full, edge = self.segments(tile[axis])
        others = [a for a in range(len(tile)) if a != axis]
        lines = prod(tile[a] for a in others)
        sizes, counts = edge_classes(
            np.array([tile[a] for a in others], dtype=np.int64), tuple(self.shape[a] for a in others)
        )
        kinds: Counter[tuple[Segment, int]] = Counter()
        for many, copies in zip(sizes.prod(axis=-1), counts, strict=True):
            for segment, number in (full + edge).items():
                if copies:
                    kinds[segment, int(many)] += int(copies) * number
        return _Grouped({(s, lines): c for s, c in full.items()}, dict(kinds))


def _pmf(segment: Segment) -> tuple[int, Floats]:
    """Return the certain nonzeros of a segment of one fiber, and the distribution of the nonzeros of its
    parts of groups."""
    pmf = np.ones(1)
    for group, nonzeros, inside in segment[1]:
        ways = comb(group, inside)
        one = [
            comb(nonzeros, k) * comb(group - nonzeros, inside - k) / ways
            for k in range(min(nonzeros, inside) + 1)
        ]
        pmf = np.convolve(pmf, one)
    return segment[0], pmf


@dataclass(frozen=True, eq=False)
class _Grouped(TilesOfShape):
    """Kinds of tiles (segment of a fiber, number of fibers), and the number of tiles of each: of full tiles,
    and of all."""

    full: dict[tuple[Segment, int], int]
    every: dict[tuple[Segment, int], int]

    @cached_property
    def _moments(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Number, mean, variance and P(0) of each kind of `full`, followed by those of `every`."""
        rows = []
        for (segment, lines), number in [*self.full.items(), *self.every.items()]:
            certain, pmf = _pmf(segment)
            k = np.arange(pmf.size)
            mean = float(pmf @ k)
            variance = float(pmf @ (k - mean) ** 2)
            empty = float(pmf[0]) ** lines if certain == 0 else 0.0
            rows.append((number, lines * (certain + mean), lines * variance, empty))
        number, means, variances, empties = np.array(rows, dtype=np.float64).T
        return number, means, variances, empties

    def _of_full(self, which: int) -> Floats:
        result: Floats = self._moments[which][: len(self.full)]
        return result

    def _of_every(self, which: int) -> Floats:
        result: Floats = self._moments[which][len(self.full) :]
        return result

    @property
    def mean(self) -> float:
        return float(np.average(self._of_full(1), weights=self._of_full(0)))

    @property
    def variance(self) -> float:
        second = self._of_full(2) + (self._of_full(1) - self.mean) ** 2
        return float(np.average(second, weights=self._of_full(0)))

    @property
    def empty(self) -> float:
        return float(np.average(self._of_full(3), weights=self._of_full(0)))

    @cached_property
    def law(self) -> Law:
        laws = [_law(*kind) for kind in self.full]
        return mixed(laws, list(self.full.values()))

    @property
    def nonempty(self) -> float:
        return float(self._of_every(0) @ (1 - self._of_every(3)))

    @property
    def squares(self) -> float:
        return float(self._of_every(0) @ (self._of_every(2) + self._of_every(1) ** 2))

    @cached_property
    def greatest(self) -> tuple[float, bool]:
        shared = any(segment[1] for segment, _ in self.every)
        if not shared:
            return float(self._of_every(1).max(initial=0)), False
        return expected_greatest([_law(*kind) for kind in self.every], list(self.every.values())), True

    def below(self, s: Ints) -> Floats:
        result = np.zeros(s.size)
        with np.errstate(divide="ignore"):
            for kind, number in self.every.items():
                result += number * np.log1p(-np.minimum(_law(*kind).sf(s), 1.0))
        return np.exp(result)


def _law(segment: Segment, lines: int) -> Law:
    certain, pmf = _pmf(segment)
    law = summed(pmf, 0, lines)
    return Law(law.mean + certain * lines, law.variance, law.start + certain * lines, law.pmf)
