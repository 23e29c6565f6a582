"""Models whose answer for a tile depends on its shape alone, not on its place."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from numpy.typing import ArrayLike

from polymodel.sparse.density.model import DensityModel, Floats, edge_classes
from polymodel.sparse.density.regions import OfSizes, Regions


class Placeless(DensityModel):
    """A model of which `p_nonempty`, `variance` and `expected` say all about a tiling."""

    @property
    def placeless(self) -> bool:
        return True

    def part(self, touched: Sequence[range]) -> DensityModel:
        return self

    def expected_tiles(self, tile: ArrayLike) -> Floats:
        sizes, counts = edge_classes(self.tiles(tile), self.shape)
        result: Floats = (counts * self.p_nonempty(sizes)).sum(axis=-1)
        return result

    def expected_squares(self, tile: ArrayLike) -> Floats:
        sizes, counts = edge_classes(self.tiles(tile), self.shape)
        result: Floats = (counts * (self.variance(sizes) + self.expected(sizes) ** 2)).sum(axis=-1)
        return result

    @abstractmethod
    def p_nonempty(self, tile: ArrayLike) -> Floats:
        """1 - p_empty without cancellation."""

    def regions(self) -> Regions:
        return OfSizes(self)
