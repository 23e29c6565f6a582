"""Uniform random data: exactly n nonzeros, all placements equally likely."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import ArrayLike

from polymodel.errors import Diagnostic, SpecError
from polymodel.frozen import dataclass
from polymodel.sparse.arguments import Arguments
from polymodel.sparse.density import maxima
from polymodel.sparse.density.hypergeometric import Hypergeometric
from polymodel.sparse.density.model import DensityModel, Floats, Ints, SparseWarning, edge_classes, points_of
from polymodel.sparse.density.placeless import Placeless
from polymodel.sparse.density.random import places_in_lines
from polymodel.sparse.density.reader import Path, Reader, is_number
from polymodel.sparse.density.regions import OfPoints, Regions
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.faults import as_number, shown


@dataclass(frozen=True)
class Uniform(Placeless):
    """`nnz` nonzeros at random points without replacement: occupancies are hypergeometric.

    `Uniform.of(ranks, shape, density=..)` makes one of a density. A tensor without any zero is `nnz` = size.
    Shapes are checked; up to 2^63 - 1 points. `points` answers for numbers of points instead of boxes.
    """

    nnz: int

    def __post_init__(self) -> None:
        super().__post_init__()
        size, read = points_of(self.shape), Arguments()
        number, given = as_number(self.nnz), shown(self.nnz)
        if number is None or number != number or (number >= 0 and number != number // 1):
            remedy = f"give 0 to {size:,}, or a share: Uniform.of(ranks, shape, density=...)"
            read.add("nnz", f"{given} is not a number of nonzeros", remedy, code="wrong-type")
        elif not 0 <= number <= size:
            message = f"{given} nonzeros do not fit into {size} points"
            read.add("nnz", message, f"give 0 to {size}", code="out-of-range")
        read.raise_if_any()
        object.__setattr__(self, "nnz", int(self.nnz))

    @classmethod
    def of(
        cls,
        ranks: Sequence[str],
        shape: Sequence[int],
        *,
        density: float | Fraction | None = None,
        nnz: int | None = None,
    ) -> Uniform:
        """Make a model from a density in [0, 1], which places round(density * points) nonzeros (half to
        even), or from nnz."""
        read = Arguments()
        names, sizes = read.ranks(ranks, shape)
        if (density is None) == (nnz is None):
            given = "neither is" if nnz is None else "both are"
            what = f"uniform needs a density or a number of nonzeros, not both: {given} given"
            read.add("density", what, "write density=0.1, or nnz=40", code="conflicting-arguments")
        elif nnz is None:
            share = read.share("density", density, "", "give the share of nonzero points, from 0 to 1")
        read.raise_if_any()
        if nnz is None:
            nnz = round(Fraction(share) * points_of(sizes))
        return cls(names, sizes, nnz)

    @classmethod
    def written(cls, reader: Reader, path: Path, given: object) -> DensityModel | None:
        """Return the model with these parameters of a YAML file; None after a fault, which the reader has
        recorded."""
        if is_number(given):
            given = {"density": given}
        keys = reader.keys(path, given, ("density", "nnz"), ("density", "nnz"))
        if "density" in keys:
            share = reader.share((*path, "density") if path else (), keys["density"])
            if share is None:
                return None
            return reader.made(path, lambda: cls.of(reader.ranks, reader.shape, density=share))
        if "nnz" in keys:
            nnz = reader.whole((*path, "nnz"), keys["nnz"], 0, prod(reader.shape), "nnz")
            if nnz is not None:
                return reader.made(path, lambda: cls.of(reader.ranks, reader.shape, nnz=nnz))
        return None

    @property
    def expected_nnz(self) -> float:
        return float(self.nnz)

    @property
    def settled(self) -> bool:
        return self.nnz in (0, self.size)

    @cached_property
    def points(self) -> Hypergeometric:
        """The same statistics for t points: mean, variance, p_empty, p_nonempty, pmf, cdf, sf, quantile."""
        return Hypergeometric(self.size, self.nnz)

    def _points_in(self, tile: ArrayLike) -> Ints:
        result: Ints = self.tiles(tile).prod(axis=-1)
        return result

    def expected(self, tile: ArrayLike) -> Floats:
        return self.points.mean(self._points_in(tile))

    def variance(self, tile: ArrayLike) -> Floats:
        return self.points.variance(self._points_in(tile))

    def p_empty(self, tile: ArrayLike) -> Floats:
        return self.points.p_empty(self._points_in(tile))

    def p_nonempty(self, tile: ArrayLike) -> Floats:
        return self.points.p_nonempty(self._points_in(tile))

    def cdf(self, tile: ArrayLike, occupancy: ArrayLike) -> Floats:
        return self.points.cdf(self._points_in(tile), occupancy)

    def quantile(self, tile: ArrayLike, confidence: ArrayLike) -> Ints:
        return self.points.quantile(self._points_in(tile), confidence)

    def expected_max(self, tile: ArrayLike) -> Floats:
        """E[max] over all tiles: to 1e-8 (see `maxima.expected_max`)."""
        return self._over_tilings(tile, maxima.expected_max)

    def expected_max_lower(self, tile: ArrayLike) -> Floats:
        """Return a lower bound of `expected_max`, about 1 % low: tiles are taken as independent. Its label is
        `bound`."""
        return self._over_tilings(tile, maxima.expected_max_independent)

    def expected_max_upper(self, tile: ArrayLike) -> Floats:
        """Return an upper bound of `expected_max`: the union bound. Its label is `bound`."""
        return self._over_tilings(tile, maxima.expected_max_union)

    def cdf_max(self, tile: ArrayLike, occupancy: ArrayLike) -> Floats:
        """P(no tile of the tiling has more than `occupancy` nonzeros); one tile shape, any occupancies."""
        shapes = self.tiles(tile)
        if shapes.ndim > 1:
            message = "cdf_max takes one tile shape"
            raise SpecError([Diagnostic(message, "call it once per tile", code="wrong-count")])
        sizes, counts = edge_classes(shapes, self.shape)
        return maxima.cdf_max(self.points, sizes.prod(axis=-1), counts, np.asarray(occupancy))

    def row_pmf(self, loads: Ints, stride: int) -> Floats:
        return self.points.pmf(prod(self.shape[1:]), loads)

    def square_multiplies(self) -> float:
        side, n, points = self.shape[0], self.nnz, self.size
        # Pairs of different points that share one k, and points on the diagonal, which are multiplied by
        # themselves.
        pairs = side**3 - side
        other = n * (n - 1) / (points * (points - 1)) * pairs if points > 1 else 0.0
        return other + n / points * side

    def regions(self) -> Regions:
        return OfPoints(self.points)

    def draw(self, seed: int, name: str = "A") -> SparseTensor:
        generator = np.random.default_rng(seed)
        numbers = places_in_lines(generator, np.array([self.nnz]), self.size)[1]
        coords = np.stack(np.unravel_index(numbers, self.shape))
        return self.ones_at(coords, name)

    def drawn_apart(self, generator: np.random.Generator, many: int) -> tuple[Ints, Ints]:
        line, numbers = places_in_lines(generator, np.full(many, self.nnz), self.size)
        return line, np.stack(np.unravel_index(numbers, self.shape))

    def _over_tilings(self, tile: ArrayLike, answer: maxima.OfTiling) -> Floats:
        def one(shape: tuple[int, ...]) -> float:
            sizes, counts = edge_classes(np.array(shape, dtype=np.int64), self.shape)
            return answer(self.points, sizes.prod(axis=-1), counts)

        return self.each(tile, one)


# The dispersion of row occupancies shows whether data are uniform.

# The probability that a uniform tensor is rejected.
_CHANCE = 1e-6
# With fewer nonzeros per row than this, the dispersion is skewed.
_SPARSE = 5.0


def unfit(tensor: SparseTensor, model: DensityModel | None = None) -> str:
    """Return why `uniform` does not fit the rows of a tensor, or "" if it does. `model`: by default uniform
    with the tensor's nnz.

    Two tests are made on the number of nonzeros of each row (fiber of the top rank), each of which rejects
    uniform data with a probability of one in a million: the dispersion sum (x - mean)^2 / variance is far
    from that of random rows on either side (chi-square with one degree per row less one, by Wilson and
    Hilferty's cube root), or the largest row is too large for random data. Tensors with one row, and models
    that are not uniform, always fit.
    """
    from scipy.special import ndtri, pdtrc

    uniform = model if model is not None else Uniform.of(tensor.ranks, tensor.shape, nnz=tensor.nnz)
    law = uniform.points
    if law is None or len(tensor.ranks) == 0 or tensor.shape[0] < 2 or not tensor.nnz:
        return ""
    if tensor.shape != uniform.shape:
        what = f"{tensor.name} is {tensor.shape}, the model {uniform.shape}"
        remedy = "compare a tensor with a model of its shape"
        raise SpecError([Diagnostic(what, remedy, code="shape-mismatch")])
    rows, points = tensor.shape[0], prod(tensor.shape[1:])
    counts = np.bincount(tensor.coords[0], minlength=rows)
    mean, variance = float(law.mean(points)), float(law.variance(points))
    if not variance:
        return ""
    largest, usual = int(counts.max()), float(uniform.expected_max((1, *tensor.shape[1:])))
    reason = f"its largest row has {largest:,} nonzeros, where uniform data have about {usual:,.3g}"
    # Rows with a fixed sum vary less than independent ones: their variance has the factor (rows - 1) / rows.
    statistic = float(((counts - mean) ** 2).sum()) / (variance * rows / (rows - 1))
    freedom = rows - 1
    limit = abs(float(ndtri(_CHANCE / 2)))
    score = ((statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / (2 / (9 * freedom)) ** 0.5
    # In sparse rows pairs of nonzeros are approximately Poisson-distributed: more skewed than chi-square.
    pairs = float((counts * (counts - 1)).sum()) / 2
    few = (
        float(pdtrc(pairs - 1, rows * (variance + mean * mean - mean) / 2))
        if pairs and mean < _SPARSE
        else 0.0
    )
    if score < -limit or (score > limit and few < _CHANCE):
        side, times = ("more" if score > 0 else "less"), statistic / freedom
        ratio = f"their variance is {times:.3g} times as large"
        return f"rows are {side} uneven than uniform data's, {ratio}; {reason}"
    if rows * float(law.sf(points, largest - 1)) < _CHANCE:
        return reason
    return ""


def check_fit(tensor: SparseTensor, model: DensityModel | None = None) -> bool:
    """Warn (SparseWarning) if `uniform` does not fit the rows of the data. Return True if it fits."""
    reason = unfit(tensor, model)
    if reason:
        remedy = "give the histogram of the rows (rank_nnz) or the tensor (actual)"
        warnings.warn(f"{tensor.name} is not uniform: {reason}; {remedy}", SparseWarning, stacklevel=2)
    return not reason
