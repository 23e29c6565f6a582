"""Position-independent density models: the results for a tile depend on its shape alone."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from numpy.typing import ArrayLike

from polymodel.sparse.density.model import DensityModel, Floats, edge_classes
from polymodel.sparse.density.regions import OfSizes, Regions


class Placeless(DensityModel):
    """A density model whose `p_nonempty`, `variance` and `expected` determine all statistics of a tiling."""

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
