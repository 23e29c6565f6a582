"""Estimate the statistics of all tiles, with standard errors, from a sample of some thousand tiles of the
data, of many shapes.

A nonzero is drawn at random and the nonzeros of its tile are counted, so that the fullest tiles are the most
likely to be drawn. A tile of x nonzeros is among those of n draws out of N with probability
p = 1 - (1 - n/N)^x, so that each drawn tile represents 1/p tiles (Horvitz and Thompson, "A Generalization of
Sampling Without Replacement From a Finite Universe", 1952). These weights are corrected so that all tiles
together hold N nonzeros, by the regression that leaves the least variance (Deville and Sarndal, "Calibration
Estimators in Survey Sampling", 1992).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import product
from math import prod

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.frozen import dataclass
from polymodel.integers import distinct_numbers
from polymodel.sparse.arguments import Arguments
from polymodel.sparse.density.laws import CountLaws, Law, counted
from polymodel.sparse.density.model import DensityModel, Floats, Ints
from polymodel.sparse.density.placed import Placed, TilesOfShape
from polymodel.sparse.density.reader import Path, Reader
from polymodel.sparse.density.regions import OfSizes, Regions
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.faults import not_a

SAMPLES = 4096
# The most shapes of tiles that are sampled, and the number of fullest tiles from which the tail is estimated.
_SHAPES, _TAIL = 400, 40
# The most nonzeros of data whose shapes are sampled on demand.
_AT_ONCE = 1 << 19


@dataclass(frozen=True, eq=False)
class Seen:
    """The tiles of one shape that contain the drawn nonzeros, one per draw: the occupancy of each, whether it
    is a full-size tile, and the number of tiles that the draw represents (`weight`)."""

    occupancy: Ints
    whole: Floats
    weight: Floats

    @cached_property
    def shares(self) -> tuple[float, float]:
        """The number of nonempty tiles, and the sum of squared occupancies, per nonzero."""
        full = self.occupancy.astype(np.float64)
        nonzeros = float(self.weight @ full)
        return float(self.weight.sum()) / nonzeros, float(self.weight @ full**2) / nonzeros

    @property
    def errors(self) -> tuple[float, float]:
        """The relative standard errors of the means of 1/x and of x over all draws, which estimate the same
        two quantities with a larger variance."""
        number = max(self.occupancy.size, 2) ** 0.5
        inverse = 1 / self.occupancy
        return (
            float(inverse.std() / inverse.mean()) / number,
            float(self.occupancy.std() / self.occupancy.mean()) / number,
        )

    def greatest(self, nonzeros: float, room: float) -> float:
        """Estimate the maximum occupancy of all tiles: that of the drawn tiles, extrapolated by an
        exponential tail."""
        top, behind, excess = self.tail(nonzeros)
        if behind <= np.log(2) or top >= room:
            return top
        # The median of the maximum of that many: ln 2 of them are expected beyond it.
        return float(min(top + excess * np.log(behind / np.log(2)), room))

    def tail(self, nonzeros: float) -> tuple[float, float, float]:
        """Return the maximum occupancy drawn, the expected number of equally full tiles that were not drawn,
        and the mean excess of the tail over its start."""
        order = np.sort(self.occupancy)[::-1].astype(np.float64)
        top, share = float(order[0]), min(1.0, self.occupancy.size / nonzeros)
        behind = float((order == top).sum()) / (share * top) * (1 - share) ** top
        tail = order[:_TAIL]
        excess = float(((tail - tail[-1]) / tail).sum() / (1 / tail).sum())
        return top, behind, excess


@dataclass(frozen=True, eq=False)
class Sampled(Placed):
    """A model estimated from some thousand tiles of a tensor; `Sampled.from_tensor(tensor)` draws them.

    Tiles with sizes 1, 2, 4, .. and the whole rank are sampled in all combinations, tiles of other shapes on
    demand (`source`: the data, and the nonzeros that were drawn). For large data `source` is None: statistics
    of other shapes are then interpolated between the sampled ones, and distributions are not exact.
    `nonzeros`: those of the tensor. `multiplies`: the multiplications of a matrix by itself, and their
    relative standard error. `errors(tile)` returns the standard errors.
    """

    nonzeros: float
    sizes: tuple[tuple[int, ...], ...]
    seen: Mapping[tuple[int, ...], Seen]
    multiplies: tuple[float, float] | None = None
    source: tuple[SparseTensor, Ints] | None = None

    def __repr__(self) -> str:
        sizes = " x ".join(f"{r}={s:,}" for r, s in zip(self.ranks, self.shape, strict=True))
        drawn = next(iter(self.seen.values())).occupancy.size if self.seen else 0
        return f"Sampled({sizes}, {self.nonzeros:,.6g} nonzeros; {len(self.seen)} shapes of {drawn:,} tiles)"

    @classmethod
    def from_tensor(cls, tensor: SparseTensor, samples: int = SAMPLES, seed: int = 0) -> Sampled:
        """Draw the tiles of `samples` random nonzeros (without repetition); the same seed gives the same
        tiles."""
        if not isinstance(tensor, SparseTensor):
            raise not_a("sparse tensor", "Sampled.from_tensor", tensor, "pass e.g. pm.read_tensor('a.mtx')")
        read = Arguments()
        number = read.whole("samples", samples, 2, 10**7)
        start = read.whole("seed", seed, 0)
        read.raise_if_any()
        if not tensor.ranks or not tensor.nnz:
            what = f"{tensor.name} has no nonzeros to sample"
            raise SpecError([Diagnostic(what, "take Uniform", "tensor", code="empty-tensor")])
        return cls.scaled(tensor, float(tensor.nnz), number, start)

    @classmethod
    def scaled(
        cls,
        tensor: SparseTensor,
        nonzeros: float,
        samples: int,
        seed: int,
        also: Sequence[tuple[int, ...]] = (),
    ) -> Sampled:
        """Sample a part of the nonzeros that represents `nonzeros` in all. `also`: further shapes of
        tiles."""
        generator = np.random.default_rng(seed)
        chosen = np.arange(tensor.nnz)
        if samples < tensor.nnz:
            chosen = np.sort(generator.choice(tensor.nnz, samples, replace=False))
        ladder = _ladder(tensor.shape)
        more = [tuple(min(t, n) for t, n in zip(tile, tensor.shape, strict=True)) for tile in also]
        seen = {tile: _met(tensor, tile, chosen) for tile in dict.fromkeys((*product(*ladder), *more))}
        many = None
        if len(tensor.shape) == 2 and tensor.shape[0] == tensor.shape[1]:
            rows = np.bincount(tensor.coords[0], minlength=tensor.shape[0]) * (nonzeros / tensor.nnz)
            met = rows[tensor.coords[1][chosen]]
            spread = float(met.std() / max(met.mean(), 1e-300))
            many = nonzeros * float(met.mean()), spread / chosen.size**0.5
        source = (tensor, chosen) if tensor.nnz <= _AT_ONCE else None
        return cls(tensor.ranks, tensor.shape, nonzeros, ladder, seen, many, source)

    @classmethod
    def written(cls, reader: Reader, path: Path, given: object) -> DensityModel | None:
        """Return the model with these parameters of a YAML file; None after a fault, which the reader has
        recorded."""
        number: int | None = SAMPLES
        if isinstance(given, Mapping):
            keys = reader.keys(path, given, ("file", "samples"), ("file",))
            if "samples" in keys:
                number = reader.whole((*path, "samples"), keys["samples"], 2, 10**7, "number of samples")
            path, given = (*path, "file"), keys.get("file")
            if given is None:
                return None
        data = reader.file(path, given)
        if data is None or number is None:
            return None
        drawn = number
        return reader.made(path, lambda: cls.from_tensor(data, drawn))

    @property
    def expected_nnz(self) -> float:
        return self.nonzeros

    def errors(self, tile: ArrayLike) -> tuple[float, float]:
        """Return the relative standard errors of `expected_tiles` and of `expected_squares` of one tile
        shape.

        For a shape between sampled shapes, return the largest errors of the shapes around it.
        """
        shape = tuple(int(t) for t in self.tiles(tile))
        result = [self._tiles_met(corner).errors for corner, _ in self._corners(shape)]
        return max(e[0] for e in result), max(e[1] for e in result)

    @cached_property
    def _asked(self) -> dict[tuple[int, ...], Seen]:
        """The shapes that were sampled on demand most recently."""
        return {}

    def _tiles_met(self, tile: tuple[int, ...]) -> Seen:
        """Return the tiles of a shape that contain the drawn nonzeros."""
        if tile in self.seen or self.source is None:
            return self.seen[tile]
        if tile not in self._asked:
            if len(self._asked) == _SHAPES:
                self._asked.clear()
            self._asked[tile] = _met(self.source[0], tile, self.source[1])
        return self._asked[tile]

    def _corners(self, tile: tuple[int, ...]) -> list[tuple[tuple[int, ...], float]]:
        """Return the sampled shapes around a shape, with interpolation weights (linear in the logarithms of
        sizes)."""
        if tile in self.seen or self.source is not None:
            return [(tile, 1.0)]
        sides = []
        for size, known in zip(tile, self.sizes, strict=True):
            place = int(np.searchsorted(known, size))
            high = known[min(place, len(known) - 1)]
            low = known[max(place - 1, 0)]
            share = 1.0 if high == low or size >= high else float(np.log(size / low) / np.log(high / low))
            sides.append([(high, share), (low, 1 - share)] if share < 1 else [(high, 1.0)])
        return [(tuple(s for s, _ in c), prod(w for _, w in c)) for c in product(*sides)]

    def square_multiplies(self) -> float:
        return super().square_multiplies() if self.multiplies is None else self.multiplies[0]

    def row_pmf(self, loads: Ints, stride: int) -> Floats:
        """Return the relative probabilities of sampled rows, which are taken to be independent."""
        result: Floats = np.diff(self.cdf((1, *self.shape[1:]), np.append(int(loads[0]) - stride, loads)))
        return result

    def regions(self) -> Regions:
        return OfSizes(self)

    def nonempty_of_parts(self, parts: Sequence[Ints]) -> float | None:
        """Estimate the fraction of nonempty combinations of parts from those that contain the drawn
        nonzeros."""
        if self.source is None:
            return None
        tensor, chosen = self.source
        sides = [int(part.max(initial=0)) + 1 for part in parts]
        where = np.stack([part[c] for part, c in zip(parts, tensor.coords, strict=True)])
        seen = _containing(where, sides, chosen, np.ones(chosen.size, dtype=bool))
        return min(1.0, self.nonzeros * seen.shares[0] / prod(sides))

    def make_tiling(self, tile: tuple[int, ...]) -> TilesOfShape:
        corners = self._corners(tile)
        number = float(self.number_of_tiles(tile))
        whole = [s // t for s, t in zip(self.shape, tile, strict=True)]
        between = [
            (self._tiles_met(c), w, float(self.number_of_tiles(c)), float(prod(c))) for c, w in corners
        ]
        # Fractions of nonempty tiles, and occupancies relative to the mean, vary least between shapes.
        mean = self.nonzeros / number
        filled = _blended([(min(1.0, self.nonzeros * s.shares[0] / n), w) for s, w, n, _ in between])
        second = _blended([(s.shares[1] / (self.nonzeros / n), w) for s, w, n, _ in between]) * mean
        top = (
            _blended(
                [(s.greatest(self.nonzeros, room) / (self.nonzeros / n), w) for s, w, n, room in between]
            )
            * mean
        )
        exact = self._tiles_met(corners[0][0]) if len(corners) == 1 else None
        full = float(prod(whole))
        return _OfSampled(self.nonzeros, mean, filled * number, second, min(top, float(prod(tile))), number,
                          float(prod(tile)), full, exact)  # fmt: skip


def _blended(values: list[tuple[float, float]]) -> float:
    """Return the weighted geometric mean."""
    return float(np.exp(sum(w * np.log(max(v, 1e-300)) for v, w in values)))


def _ladder(shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Return the sizes of tiles to sample in each rank: powers of the smallest base with which there are few
    shapes."""
    for power in range(1, 64):
        result = tuple(
            (*(1 << k for k in range(0, max(size - 1, 0).bit_length(), power) if 1 << k < size), size)
            for size in shape
        )
        if prod(len(sizes) for sizes in result) <= _SHAPES:
            return result
    return tuple((1, size) if size > 1 else (1,) for size in shape)


def _met(tensor: SparseTensor, tile: tuple[int, ...], chosen: Ints) -> Seen:
    """Return the tiles of one shape that contain the chosen nonzeros."""
    where = tensor.coords // np.array(tile, dtype=np.int64)[:, None]
    whole = np.ones(chosen.size, dtype=bool)
    for row, size, step in zip(where[:, chosen], tensor.shape, tile, strict=True):
        whole &= row < size // step
    sides = [-(-size // step) for size, step in zip(tensor.shape, tile, strict=True)]
    return _containing(where, sides, chosen, whole)


def _containing(where: Ints, sides: Sequence[int], chosen: Ints, whole: NDArray[np.bool_]) -> Seen:
    """Return the tiles that contain the chosen nonzeros. `where`: the tile of each nonzero (ranks x
    nonzeros); `sides`: the number of tiles along each rank; `whole`: which of the chosen nonzeros are in
    full tiles."""
    numbers = np.zeros(where.shape[1], dtype=np.int64)
    for row, side in zip(where, sides, strict=True):
        _, compact = np.unique(row, return_inverse=True) if prod(sides) > 2**62 else (None, row)
        numbers = numbers * side + compact
    own = numbers[chosen]
    known = distinct_numbers(own)
    place = np.minimum(np.searchsorted(known, numbers), known.size - 1)
    counts = np.bincount(place[known[place] == numbers], minlength=known.size)
    met = np.searchsorted(known, own)
    weight = _weights(counts, chosen.size, where.shape[1]) / np.bincount(met)
    return Seen(counts[met].astype(np.int64), whole.astype(np.float64), weight[met])


def _weights(counts: Ints, drawn: int, nonzeros: int) -> Floats:
    """Return the number of tiles that each drawn tile represents, at least one. `counts`: the occupancies of
    the drawn tiles; `drawn`: the number of draws out of `nonzeros`."""
    if drawn >= nonzeros:
        return np.ones(counts.size)
    full = counts.astype(np.float64)
    chance = -np.expm1(full * np.log1p(-drawn / nonzeros))
    result = 1 / chance
    # The correction is largest where the variance is: for full tiles that are rarely drawn.
    lean = (1 - chance) / chance**2 * full
    result += (nonzeros - float(result @ full)) * lean / max(float(lean @ full), 1e-300)
    more = np.maximum(result - 1, 0.0)
    others = nonzeros - float(full.sum())
    return 1 + more * (others / float(more @ full)) if float(more @ full) > 0 else np.ones(counts.size)


@dataclass(frozen=True, eq=False)
class _OfSampled(TilesOfShape):
    """All tiles of one shape, estimated from those drawn. `second`: the sum of squared occupancies over the
    sum of occupancies."""

    nonzeros: float
    average: float
    filled: float
    second: float
    top: float
    number: float
    room: float
    whole: float
    met: Seen | None

    @cached_property
    def _full(self) -> tuple[Floats, Floats] | None:
        """The occupancies of nonempty full-size tiles, and the estimated number of tiles with each."""
        if self.met is None or not self.met.whole.any():
            return None
        scale = self.nonzeros / float(self.met.weight @ self.met.occupancy)
        weight = self.met.whole * self.met.weight * scale
        return self.met.occupancy.astype(np.float64), weight

    @property
    def mean(self) -> float:
        return self.average if self._full is None else float(self._full[0] @ self._full[1]) / self.whole

    @property
    def variance(self) -> float:
        if self._full is None:
            return max(0.0, self.average * self.second - self.average**2)
        return max(0.0, float(self._full[0] ** 2 @ self._full[1]) / self.whole - self.mean**2)

    @property
    def empty(self) -> float:
        filled = self.filled / self.number if self._full is None else float(self._full[1].sum()) / self.whole
        return min(1.0, max(0.0, 1 - filled))

    @cached_property
    def law(self) -> Law:
        if self._full is not None:
            empty = max(0.0, self.whole - float(self._full[1].sum()))
            return _smoothed(*self._full, empty, self.room)
        one = np.array([self.mean])
        with np.errstate(divide="ignore"):
            none = np.log(np.array([self.empty]))
        counts = CountLaws(one, np.array([self.variance]), none, np.zeros(1), np.array([self.room]))
        values = np.arange(int(counts.reach[0]) + 2)
        tails = np.concatenate(([1.0], counts.above(values.astype(np.float64))[0]))
        return Law(self.mean, self.variance, 0, np.maximum(-np.diff(tails), 0.0))

    @property
    def nonempty(self) -> float:
        return min(self.filled, self.number, self.nonzeros)

    @property
    def squares(self) -> float:
        return self.nonzeros * self.second

    @property
    def greatest(self) -> tuple[float, bool]:
        return self.top, False

    def below(self, s: Ints) -> Floats:
        """Return P(no tile has more than s nonzeros). Beyond the fullest tile drawn it follows Gumbel's
        extreme value distribution of an exponential tail."""
        if self.met is None:
            what = "the law of the fullest tile of a shape that was not sampled"
            raise Refused(what, "take powers of two, or whole ranks", code="unsupported-density")
        top, behind, excess = self.met.tail(self.nonzeros)
        left = behind * np.exp(-(s - top) / excess) if excess > 0 else np.zeros(s.size)
        result: Floats = np.where(s < top, 0.0, np.where(s >= self.room, 1.0, np.exp(-left)))
        return result


def _smoothed(values: Floats, weights: Floats, empty: float, room: float) -> Law:
    """Return the distribution of the drawn occupancies; where these are sparse, values in between get equal
    probability."""
    law = counted(np.append(values, 0.0), np.append(weights, empty))
    spread = float(np.sqrt(np.cov(values, aweights=weights))) if values.size > 1 else 0.0
    middle = np.subtract(*np.percentile(values, [75, 25])) / 1.34
    width = 0.9 * min(spread, middle if middle > 0 else spread) * values.size**-0.2
    if width < 0.5 or law.pmf is None:
        return law
    near = int(4 * width) + 1
    kernel = np.exp(-((np.arange(-near, near + 1) / width) ** 2) / 2)
    written = np.zeros(int(min(values.max() + near, room)) + near + 1)
    written[law.start : law.start + law.pmf.size] = law.pmf
    none, written[0] = written[0], 0.0
    wide = np.convolve(written, kernel / kernel.sum())[near : written.size]
    # Probabilities of values below 1 or above the size of a tile are divided among the others.
    wide[0] = 0.0
    wide *= (1 - none) / wide.sum()
    wide[0] = none
    return Law(law.mean, law.variance, 0, wide)
