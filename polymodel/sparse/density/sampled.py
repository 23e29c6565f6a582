"""Estimate the statistics of all tiles, with standard errors, from a sample of some thousand tiles of the
data, of any shape."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from math import prod

import numpy as np
from numpy.typing import ArrayLike

from polymodel.errors import Diagnostic, InternalError, SpecError
from polymodel.frozen import dataclass
from polymodel.sparse.arguments import Arguments
from polymodel.sparse.density.actual import Actual
from polymodel.sparse.density.laws import Law, counted
from polymodel.sparse.density.model import DensityModel, Floats, Ints
from polymodel.sparse.density.placed import Placed, TilesOfShape
from polymodel.sparse.density.reader import Path, Reader
from polymodel.sparse.density.regions import OfSizes, Regions
from polymodel.sparse.density.sampled_tiles import Seen, parts_met, tiles_met
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.faults import not_a

SAMPLES = 4096
# The expected number of tiles as full as the fullest one drawn, and not drawn, beyond which all are counted.
_DOUBT = 0.01
# Products beyond which distributions are convolved by their Fourier transforms.
_DIRECT = 1 << 24


@dataclass(frozen=True, eq=False)
class Sampled(Placed):
    """A model estimated from some thousand tiles of a tensor; `Sampled.from_tensor(tensor)` draws them.

    `tensor`: the data; `drawn`: the nonzeros, by their place in the list, whose tiles are counted when a
    shape of tiles is asked about. Where a tiling has no more tiles than nonzeros were drawn, all tiles are
    counted, and the fullest tile is looked for among all where the draws may have missed it. `nonzeros`:
    those of the tensor, or of a larger one of which it is a part. `multiplies`: the multiplications of a
    matrix by itself, from all its rows and columns. `errors(tile)` returns the standard errors.
    """

    nonzeros: float
    tensor: SparseTensor
    drawn: Ints
    multiplies: float | None = None

    def __repr__(self) -> str:
        sizes = " x ".join(f"{r}={s:,}" for r, s in zip(self.ranks, self.shape, strict=True))
        return f"Sampled({sizes}, {self.nonzeros:,.6g} nonzeros; {self.drawn.size:,} of them drawn)"

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
    def scaled(cls, tensor: SparseTensor, nonzeros: float, samples: int, seed: int) -> Sampled:
        """Sample a part of the nonzeros that represents `nonzeros` in all."""
        generator = np.random.default_rng(seed)
        chosen = np.arange(tensor.nnz)
        if samples < tensor.nnz:
            chosen = np.sort(generator.choice(tensor.nnz, samples, replace=False))
        many = None
        if len(tensor.shape) == 2 and tensor.shape[0] == tensor.shape[1]:
            rows, columns = (np.bincount(c, minlength=tensor.shape[0]) for c in tensor.coords)
            many = float(rows.astype(np.float64) @ columns) * (nonzeros / tensor.nnz) ** 2
        return cls(tensor.ranks, tensor.shape, nonzeros, tensor, chosen, many)

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
        shape; 0 where all tiles are counted."""
        return self.met(tile).errors(self.nonzeros)

    def met(self, tile: ArrayLike) -> Seen:
        """Return the tiles of one shape that contain drawn nonzeros."""
        tiling = self.tiling(tuple(int(t) for t in self.tiles(tile)))
        if not isinstance(tiling, _OfSampled):
            raise InternalError("tiles that were not sampled")
        return tiling.met

    def square_multiplies(self) -> float:
        return super().square_multiplies() if self.multiplies is None else self.multiplies

    def row_pmf(self, loads: Ints, stride: int) -> Floats:
        """Return the relative probabilities of sampled rows, which are taken to be independent."""
        result: Floats = np.diff(self.cdf((1, *self.shape[1:]), np.append(int(loads[0]) - stride, loads)))
        return result

    def regions(self) -> Regions:
        return OfSizes(self)

    def nonempty_of_parts(self, parts: Sequence[Ints]) -> float:
        """Estimate the fraction of nonempty combinations of parts from those that contain the drawn
        nonzeros."""
        seen = parts_met(self.tensor, parts, self.drawn)
        return min(1.0, self.nonzeros * seen.shares[0] / prod(int(part.max(initial=0)) + 1 for part in parts))

    def make_tiling(self, tile: tuple[int, ...]) -> TilesOfShape:
        whole = float(prod(s // t for s, t in zip(self.shape, tile, strict=True)))
        met = tiles_met(self.tensor, tile, self.drawn)
        count = partial(_fullest, self.tensor, tile) if self.nonzeros == self.tensor.nnz else None
        number = float(self.number_of_tiles(tile))
        return _OfSampled(self.nonzeros, number, float(prod(tile)), whole, met, count)


def _fullest(tensor: SparseTensor, tile: tuple[int, ...]) -> float:
    """The nonzeros of the fullest tile of this shape, counted in the data."""
    return float(Actual.of(tensor).occupancies(tile)[1].max())


@dataclass(frozen=True, eq=False)
class _OfSampled(TilesOfShape):
    """All `number` tiles of one shape, of `room` points each, estimated from those drawn. `whole`: the number
    of full-size tiles; `count`: counts the nonzeros of the fullest tile, None for a part of the data."""

    nonzeros: float
    number: float
    room: float
    whole: float
    met: Seen
    count: Callable[[], float] | None

    @cached_property
    def _known(self) -> float | None:
        """The nonzeros of the fullest tile, if it is drawn for certain, or is counted; else None."""
        top, behind, _ = self.met.tail(self.nonzeros)
        if behind <= _DOUBT:
            return top
        return None if self.count is None else self.count()

    @cached_property
    def _full(self) -> tuple[Floats, Floats]:
        """The occupancies of nonempty full-size tiles, and the estimated number of tiles with each."""
        scale = self.nonzeros / float(self.met.weight @ self.met.occupancy)
        return self.met.occupancy.astype(np.float64), self.met.whole * self.met.weight * scale

    @property
    def mean(self) -> float:
        return float(self._full[0] @ self._full[1]) / self.whole

    @property
    def variance(self) -> float:
        return max(0.0, float(self._full[0] ** 2 @ self._full[1]) / self.whole - self.mean**2)

    @property
    def empty(self) -> float:
        return min(1.0, max(0.0, 1 - float(self._full[1].sum()) / self.whole))

    @cached_property
    def law(self) -> Law:
        empty = max(0.0, self.whole - float(self._full[1].sum()))
        return _smoothed(*self._full, self.met.draws, empty, self.room)

    @property
    def nonempty(self) -> float:
        return min(self.nonzeros * self.met.shares[0], self.number, self.nonzeros)

    @property
    def squares(self) -> float:
        return self.nonzeros * self.met.shares[1]

    @property
    def greatest(self) -> tuple[float, bool]:
        known = self._known
        return self.met.greatest(self.nonzeros, self.room) if known is None else known, False

    def below(self, s: Ints) -> Floats:
        """Return P(no tile has more than s nonzeros). Of a part of the data it follows, beyond the fullest
        tile drawn, Gumbel's extreme value distribution of an exponential tail."""
        if self._known is not None:
            return np.asarray(s >= self._known, dtype=np.float64)
        top, behind, excess = self.met.tail(self.nonzeros)
        left = behind * np.exp(-(s - top) / excess) if excess > 0 else np.zeros(s.size)
        result: Floats = np.where(s < top, 0.0, np.where(s >= self.room, 1.0, np.exp(-left)))
        return result


def _smoothed(values: Floats, weights: Floats, draws: Ints, empty: float, room: float) -> Law:
    """Return the distribution of the drawn occupancies; where these are sparse, values in between get equal
    probability. `draws`: how many nonzeros were drawn of each."""
    law = counted(np.append(values, 0.0), np.append(weights, empty))
    mass, number = float(weights.sum()), int(draws.sum())
    if law.pmf is None or mass <= 0 or number < 2:
        return law
    spread = float(weights @ (values - float(weights @ values) / mass) ** 2 / mass) ** 0.5
    order = np.argsort(values, kind="stable")
    quarters = values[order][np.searchsorted(np.cumsum(draws[order]), [0.75 * number, 0.25 * number])]
    middle = float(quarters[0] - quarters[1]) / 1.34
    width = 0.9 * min(spread, middle if middle > 0 else spread) * number**-0.2
    if width < 0.5:
        return law
    near = int(4 * width) + 1
    kernel = np.exp(-((np.arange(-near, near + 1) / width) ** 2) / 2)
    written = np.zeros(int(min(values.max() + near, room)) + near + 1)
    written[law.start : law.start + law.pmf.size] = law.pmf
    none, written[0] = written[0], 0.0
    wide = _convolved(written, kernel / kernel.sum())[near : written.size]
    # Probabilities of values below 1 or above the size of a tile are divided among the others.
    wide[0] = 0.0
    wide *= (1 - none) / wide.sum()
    wide[0] = none
    return Law(law.mean, law.variance, 0, wide)


def _convolved(values: Floats, kernel: Floats) -> Floats:
    """Return the convolution of a distribution and a kernel."""
    if values.size * kernel.size <= _DIRECT:
        return np.convolve(values, kernel)
    size = values.size + kernel.size - 1
    length = 1 << size.bit_length()
    result = np.fft.irfft(np.fft.rfft(values, length) * np.fft.rfft(kernel, length), length)[:size]
    # Smaller values are rounding errors of the transform.
    return np.asarray(np.where(result < 1e-15, 0.0, result))
