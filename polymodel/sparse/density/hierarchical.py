"""Model data with one density per rank: fibers are thinned from the top rank down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod

import numpy as np
from numpy.typing import ArrayLike

from polymodel.frozen import dataclass
from polymodel.sparse.arguments import Arguments
from polymodel.sparse.density.laws import RARE, Complex, Law, deviation, expected_greatest, power, transformed
from polymodel.sparse.density.model import DensityModel, Floats, Ints, Label, edge_classes, points_of
from polymodel.sparse.density.placed import by_law
from polymodel.sparse.density.placeless import Placeless
from polymodel.sparse.density.random import kept_coordinates, random_tensor
from polymodel.sparse.density.reader import Path, Reader
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.faults import shown


@dataclass(frozen=True)
class Hierarchical(Placeless):
    """Each coordinate of rank r, in every fiber that is kept, is kept with probability `densities[r]`.

    Choices are independent. A coordinate whose fiber is empty in the end is absent. `random_tensor` with one
    density per rank draws such data. The occupancy of a tile is a tree of binomials, so that P(0), moments
    and generating function are computed rank by rank. Tiles in one row of tiles share the coordinates kept in
    outer ranks and are positively associated: E[max] of independent tiles is an upper bound, which is exact
    where a tile holds all ranks but the top one.
    """

    densities: tuple[float, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        points_of(self.shape)
        read = Arguments()
        given: object = self.densities
        if not isinstance(given, Iterable) or isinstance(given, (str, Mapping)):
            remedy = "write e.g. (0.5, 0.1): one per rank"
            read.add("densities", f"{shown(given)} is not a list of densities", remedy, code="wrong-type")
            read.raise_if_any()
        several = tuple(self.densities)
        if len(several) != len(self.ranks):
            what = f"{len(several)} densities for {len(self.ranks)} ranks"
            read.add("densities", what, "give one per rank", code="wrong-count")
        names = (*(f" of rank {r}" for r in self.ranks), *[""] * len(several))
        found = tuple(
            float(read.share(f"densities[{i}]", d, names[i], "give the share of nonempty fibers"))
            for i, d in enumerate(several)
        )
        read.raise_if_any()
        object.__setattr__(self, "densities", found)

    @classmethod
    def written(cls, reader: Reader, path: Path, given: object) -> DensityModel | None:
        """Return the model with these parameters of a YAML file; None after a fault, which the reader has
        recorded."""
        if isinstance(given, Mapping) and set(given) == {"density"}:
            path, given = (*path, "density"), given["density"]
        if isinstance(given, Mapping):
            for rank in given:
                if rank not in reader.ranks:
                    reader.rank((*path, str(rank)), rank)
            missing = [r for r in reader.ranks if r not in given]
            if missing:
                message = f"no density of rank {', '.join(missing)}"
                reader.add(path, message, "1 keeps all coordinates", code="missing-key")
            shares = [reader.share((*path, r), given[r]) for r in reader.ranks if r in given]
        elif isinstance(given, Sequence) and not isinstance(given, str) and len(given) == len(reader.ranks):
            shares = [reader.share((*path, i), d) for i, d in enumerate(given)]
        else:
            message = f"{given!r} is not one density per rank"
            reader.add(path, message, f"one for each of {', '.join(reader.ranks)}", code="wrong-type")
            return None
        if len(shares) != len(reader.ranks) or None in shares:
            return None
        densities = tuple(d for d in shares if d is not None)
        return reader.made(path, lambda: cls(reader.ranks, reader.shape, densities))

    @property
    def expected_nnz(self) -> float:
        return float(self.size) * prod(self.densities)

    @property
    def settled(self) -> bool:
        return all(d == 1 for d in self.densities) or 0 in self.densities

    @property
    def independent(self) -> bool:
        """True if all coordinates of the outer ranks are kept, so that each point is kept independently."""
        return all(d == 1 for d in self.densities[:-1])

    def expected(self, tile: ArrayLike) -> Floats:
        result: Floats = self.tiles(tile).astype(np.float64).prod(axis=-1) * prod(self.densities)
        return result

    def variance(self, tile: ArrayLike) -> Floats:
        shapes = self.tiles(tile)
        mean, variance = np.ones(shapes.shape[:-1]), np.zeros(shapes.shape[:-1])
        for rank in reversed(range(len(self.ranks))):
            kept, t = self.densities[rank], shapes[..., rank]
            # Of a sum of Binomial(t, d) parts.
            variance = t * kept * variance + t * kept * (1 - kept) * mean**2
            mean = t * kept * mean
        return variance

    def _log_empty(self, shapes: Ints) -> Floats:
        log_empty = np.full(shapes.shape[:-1], -np.inf)
        with np.errstate(divide="ignore"):
            for rank in reversed(range(len(self.ranks))):
                log_empty = shapes[..., rank] * np.log1p(self.densities[rank] * np.expm1(log_empty))
        return log_empty

    def p_empty(self, tile: ArrayLike) -> Floats:
        return np.exp(self._log_empty(self.tiles(tile)))

    def p_nonempty(self, tile: ArrayLike) -> Floats:
        return -np.expm1(self._log_empty(self.tiles(tile)))

    def law(self, tile: tuple[int, ...]) -> Law:
        """Return the distribution of one tile's occupancy; normal where more than 4 million values are
        likely."""
        low, high = 1.0, 1.0
        for t, kept in zip(tile, self.densities, strict=True):
            # Bounds rank by rank, each violated with probability e^-40 over all possible fibers.
            room = deviation(RARE + np.log(max(high, 1.0)), t * kept * (1 - kept), 1.0)
            low, high = low * max(0.0, t * kept - room), high * min(t, t * kept + room)

        def transform(turn: Complex) -> Complex:
            result = turn
            for t, kept in zip(reversed(tile), reversed(self.densities), strict=True):
                result = power(1 - kept + kept * result, t)
            return result

        mean, variance = float(self.expected(tile)), float(self.variance(tile))
        return transformed(transform, mean, variance, int(low), min(prod(tile), int(high) + 1))

    def cdf(self, tile: ArrayLike, occupancy: ArrayLike) -> Floats:
        return by_law(self, tile, occupancy, lambda t: self.law(t).cdf)

    def quantile(self, tile: ArrayLike, confidence: ArrayLike) -> Ints:
        return by_law(self, tile, confidence, lambda t: self.law(t).quantile).astype(np.int64)

    def expected_max(self, tile: ArrayLike) -> Floats:
        """Return E[max] of independent tiles: an upper bound unless `max_label` says otherwise."""

        def one(shape: tuple[int, ...]) -> float:
            sizes, counts = edge_classes(np.array(shape, dtype=np.int64), self.shape)
            kept = np.flatnonzero(counts > 0)
            laws = [self.law(tuple(int(t) for t in sizes[k])) for k in kept]
            return expected_greatest(laws, [float(counts[k]) for k in kept])

        return self.each(tile, one)

    def max_label(self, tile: ArrayLike) -> Label:
        shapes, full = self.tiles(tile), np.array(self.shape)
        alone = (shapes[..., 1:] == full[1:]).all()
        # If all coordinates above a split rank are kept, no two tiles share a choice either.
        shared = [d < 1 for d in self.densities[:-1]]
        split = [(shapes[..., r + 1 :] < full[r + 1 :]).any() for r in range(len(shared))]
        independent = not any(s and c for s, c in zip(shared, split, strict=True))
        return "expected" if alone or independent else "bound"

    def row_pmf(self, loads: Ints, stride: int) -> Floats:
        result: Floats = np.diff(self.cdf((1, *self.shape[1:]), np.append(int(loads[0]) - stride, loads)))
        return result

    def square_multiplies(self) -> float:
        if len(self.shape) != 2 or self.shape[0] != self.shape[1]:
            return super().square_multiplies()
        side, (row, point) = self.shape[0], self.densities
        # Points of different rows are independent; those of row k, including (k, k), share its choice.
        others, own = (side - 1) * side * (row * point) ** 2, row * point * (1 + (side - 1) * point)
        return side * (others + own)

    def draw(self, seed: int, name: str = "A") -> SparseTensor:
        return random_tensor(self.ranks, self.shape, self.densities, seed, name=name)

    def drawn_apart(self, generator: np.random.Generator, many: int) -> tuple[Ints, Ints]:
        """Draw several tensors as one with an additional top rank, all of whose coordinates are kept."""
        coords = kept_coordinates(generator, (many, *self.shape), (1.0, *self.densities))
        return coords[0], coords[1:]
