"""What is known of the nonzeros of each tensor: no point is zero, a density model, or the nonzeros."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from polymodel.sparse.actions.counters import Ints
from polymodel.sparse.density.hypergeometric import Hypergeometric
from polymodel.sparse.density.model import DensityModel, Floats, Label
from polymodel.sparse.tensor import SparseTensor


@dataclass(frozen=True, eq=False)
class TensorData:
    """One tensor. `model` None and `actual` None: every point is taken as nonzero.

    `actual` has the tensor's ranks in the order of its accesses. `computed`: it is an output whose density
    was derived from its operands, as if its nonzeros were placed independently of them; `share` is then
    the exact density of which `model` is the nearest whole number of nonzeros.
    """

    tensor: str
    model: DensityModel | None = None
    actual: SparseTensor | None = None
    computed: bool = False
    share: float | None = None

    @property
    def dense(self) -> bool:
        """True if nothing can be left out."""
        return self.density == 1

    @property
    def density(self) -> float:
        """Expected share of nonzero points."""
        if self.share is not None:
            return self.share
        if self.actual is not None:
            return self.actual.density
        return 1.0 if self.model is None else self.model.density

    @property
    def label(self) -> Label:
        """What counts from it are."""
        return "exact" if self.actual is not None or self.dense else "expected"

    @property
    def placeless(self) -> bool:
        """True if the chance that a tile is empty depends on its size alone, so that sums of it are exact."""
        return self.model is None or self.model.placeless

    def alike(self, extents: tuple[int, ...]) -> bool:
        """True if full tiles of these extents are empty with one and the same probability, wherever they
        lie."""
        return self.placeless or (self.model is not None and self.model.alike(extents))

    @property
    def law(self) -> Hypergeometric | None:
        """The law of the nonzeros among a number of points, where that number alone decides; else None."""
        return None if self.model is None else self.model.points

    @cached_property
    def laws(self) -> tuple[tuple[float, Hypergeometric], ...]:
        """The same as weights and laws, none where there is no law: a density between two whole numbers of
        nonzeros is a mixture of both, so that a single point has the exact density."""
        law = self.law
        if law is None or self.share is None:
            return () if law is None else ((1.0, law),)
        exact = self.share * law.points
        low = min(int(exact), law.points - 1)
        two = (1 - (exact - low), low), (exact - low, low + 1)
        return tuple((weight, Hypergeometric(law.points, n)) for weight, n in two if weight)

    def nonempty(self, extents: tuple[Ints, ...]) -> Floats:
        """Probability that a tile of these extents (one array per rank) holds a nonzero."""
        if self.model is None or self.dense:
            return np.ones(np.broadcast_shapes(*(e.shape for e in extents)) if extents else (1,))
        tiles = np.stack(np.broadcast_arrays(*extents), axis=-1)
        if not self.laws:
            return self.model.p_nonempty(tiles)
        points = self.model.tiles(tiles).prod(axis=-1)
        result, *more = (law.p_nonempty(points) for _, law in self.laws)
        for (weight, _), other in zip(self.laws[1:], more, strict=True):
            result = result + weight * (other - result)
        return result


def dense_data(tensor: str) -> TensorData:
    """A tensor without zeros."""
    return TensorData(tensor)
