"""Position-dependent density models: all results of such a model follow from one tiling at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import cached_property
from math import ceil

import numpy as np
from numpy.typing import ArrayLike

from polymodel.errors import Diagnostic, SpecError
from polymodel.frozen import dataclass
from polymodel.sparse.density.laws import Law, counted
from polymodel.sparse.density.model import DensityModel, Floats, Fullness, Ints, Label

# Tilings of a model that are kept.
_KEPT = 64


class TilesOfShape(ABC):
    """Statistics of the tiles of one shape: of one full tile at a random position, and of all tiles
    together."""

    @property
    @abstractmethod
    def mean(self) -> float:
        """Expected occupancy of a full tile."""

    @property
    @abstractmethod
    def variance(self) -> float:
        """Variance of that occupancy."""

    @property
    @abstractmethod
    def empty(self) -> float:
        """Probability that a full tile is empty."""

    @property
    @abstractmethod
    def law(self) -> Law:
        """Distribution of the occupancy of a full tile."""

    def cdf(self, s: ArrayLike) -> Floats:
        """Probability that a full tile holds at most s."""
        return self.law.cdf(s)

    @property
    @abstractmethod
    def nonempty(self) -> float:
        """Expected number of nonempty tiles, edge tiles included."""

    @property
    @abstractmethod
    def squares(self) -> float:
        """Expected sum of squared occupancies of all tiles."""

    @property
    @abstractmethod
    def greatest(self) -> tuple[float, bool]:
        """Expected maximum occupancy, and whether it is only a bound."""

    @abstractmethod
    def below(self, s: Ints) -> Floats:
        """Probability that no tile has more than each of these occupancies."""


@dataclass(frozen=True, eq=False)
class CountedTiles(TilesOfShape):
    """Tiles with known occupancies: for full tiles and for all tiles, each occupancy and the number of tiles
    that have it."""

    full: tuple[Ints, Floats]
    every: tuple[Ints, Floats]

    @cached_property
    def law(self) -> Law:
        return counted(*self.full)

    @property
    def mean(self) -> float:
        return self.law.mean

    @property
    def variance(self) -> float:
        return self.law.variance

    @property
    def empty(self) -> float:
        values, numbers = self.full
        return float(numbers[values == 0].sum() / numbers.sum())

    @property
    def nonempty(self) -> float:
        values, numbers = self.every
        return float(numbers[values > 0].sum())

    @property
    def squares(self) -> float:
        values, numbers = self.every
        return float(numbers @ (values.astype(np.float64) ** 2))

    @property
    def greatest(self) -> tuple[float, bool]:
        values, numbers = self.every
        return float(values[numbers > 0].max(initial=0)), False

    def below(self, s: Ints) -> Floats:
        return (s >= self.greatest[0]).astype(np.float64)


@dataclass(frozen=True)
class Placed(DensityModel):
    """A density model that derives its results from tilings, each computed once."""

    _made: dict[tuple[int, ...], TilesOfShape] = field(
        default_factory=dict, init=False, repr=False, compare=False, kw_only=True
    )

    @abstractmethod
    def make_tiling(self, tile: tuple[int, ...]) -> TilesOfShape:
        """Return the tiling by one shape, which is already checked and limited to the tensor's shape."""

    def tiling(self, tile: tuple[int, ...]) -> TilesOfShape:
        """Return the tiling by one shape, from the cache if it is there."""
        result = self._made.get(tile)
        if result is None:
            if len(self._made) >= _KEPT:
                self._made.clear()
            result = self._made[tile] = self.make_tiling(tile)
        return result

    def expected(self, tile: ArrayLike) -> Floats:
        return self.each(tile, lambda t: self.tiling(t).mean)

    def variance(self, tile: ArrayLike) -> Floats:
        return self.each(tile, lambda t: self.tiling(t).variance)

    def p_empty(self, tile: ArrayLike) -> Floats:
        return self.each(tile, lambda t: self.tiling(t).empty)

    def cdf(self, tile: ArrayLike, occupancy: ArrayLike) -> Floats:
        return by_law(self, tile, occupancy, lambda t: self.tiling(t).cdf)

    def quantile(self, tile: ArrayLike, confidence: ArrayLike) -> Ints:
        return by_law(self, tile, confidence, lambda t: self.tiling(t).law.quantile).astype(np.int64)

    def expected_tiles(self, tile: ArrayLike) -> Floats:
        return self.each(tile, lambda t: self.tiling(t).nonempty)

    def expected_squares(self, tile: ArrayLike) -> Floats:
        return self.each(tile, lambda t: self.tiling(t).squares)

    def fullest_part(self, parts: Sequence[Ints]) -> tuple[float, Fullness] | None:
        """Return the maximum over parts that are the consecutive tiles of a tiling of the whole tensor; else
        None."""
        if tuple(part.size for part in parts) != self.shape:
            return None
        tile = [int((part == 0).sum()) for part in parts]
        for part, size in zip(parts, tile, strict=True):
            if not size or (part != np.arange(part.size) // size).any():
                return None
        label = self.max_label(tile)
        return None if label == "bound" else (float(self.expected_max(tile)), label)

    def expected_max(self, tile: ArrayLike) -> Floats:
        def one(shape: tuple[int, ...]) -> float:
            result, bounded = self.tiling(shape).greatest
            # The number of nonzeros is fixed, so that some tile has at least the mean, rounded up.
            mean = self.expected_nnz / float(self.number_of_tiles(shape))
            return max(result, ceil(mean * (1 - 1e-12))) if bounded else result

        return self.each(tile, one)

    def cdf_max(self, tile: ArrayLike, occupancy: ArrayLike) -> Floats:
        shape = self.tiles(tile)
        if shape.ndim > 1:
            message = "cdf_max takes one tile shape"
            raise SpecError([Diagnostic(message, "call it once per tile", code="wrong-count")])
        asked = np.floor(np.asarray(occupancy, dtype=np.float64)).astype(np.int64)
        result = self.tiling(tuple(int(t) for t in shape)).below(asked.reshape(-1))
        return np.where(asked.reshape(-1) < 0, 0.0, result).reshape(asked.shape)

    def max_label(self, tile: ArrayLike) -> Label:
        bounded = self.each(tile, lambda t: float(self.tiling(t).greatest[1]))
        return "bound" if bounded.any() else self.label


def by_law(
    model: DensityModel,
    tile: ArrayLike,
    asked: ArrayLike,
    answer: Callable[[tuple[int, ...]], Callable[[ArrayLike], Floats | Ints]],
) -> Floats:
    """Evaluate a function of each tile's distribution, broadcast over tiles and arguments."""
    shapes = model.tiles(tile)
    wanted = np.asarray(asked)
    lead = np.broadcast_shapes(shapes.shape[:-1], wanted.shape)
    flat = np.broadcast_to(shapes, (*lead, shapes.shape[-1])).reshape(
        -1 if model.ranks else 1, len(model.ranks)
    )
    flat_wanted = np.broadcast_to(wanted, lead).ravel()
    distinct, place = np.unique(flat, axis=0, return_inverse=True)
    result = np.empty(flat_wanted.size)
    for number, one in enumerate(distinct):
        here = place.reshape(-1) == number
        result[here] = answer(tuple(int(t) for t in one))(flat_wanted[here])
    return result.reshape(lead)
