"""Describe what is known of the nonzeros of each tensor: that it has no zeros, a density model, or the
nonzeros themselves."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from polymodel.frozen import dataclass
from polymodel.sparse.actions.counters import Ints
from polymodel.sparse.density.hypergeometric import Hypergeometric
from polymodel.sparse.density.model import DensityModel, Floats, Label
from polymodel.sparse.tensor import SparseTensor


@dataclass(frozen=True, eq=False)
class TensorData:
    """What is known of one tensor. If both `model` and `actual` are None, every point is taken to be nonzero.

    `actual` has the tensor's ranks in the order of its accesses. `computed`: the tensor is an output whose
    density was derived from its operands, as if its nonzeros were placed independently of theirs. `share` is
    then the exact density, of which `model` has the nearest whole number of nonzeros.
    """

    tensor: str
    model: DensityModel | None = None
    actual: SparseTensor | None = None
    computed: bool = False
    share: float | None = None

    @property
    def dense(self) -> bool:
        """True if no point can be left out."""
        return self.density == 1

    @property
    def density(self) -> float:
        """The expected fraction of nonzero points."""
        if self.share is not None:
            return self.share
        if self.actual is not None:
            return self.actual.density
        return 1.0 if self.model is None else self.model.density

    @property
    def label(self) -> Label:
        """The certainty label of counts that are derived from this tensor."""
        return "exact" if self.actual is not None or self.dense else "expected"

    @property
    def placeless(self) -> bool:
        """True if the probability that a tile is empty depends on its size alone, so that sums of it are
        exact. A model without this property is called position-dependent."""
        return self.model is None or self.model.placeless

    def alike(self, extents: tuple[int, ...]) -> bool:
        """Return True if all full tiles of these extents are empty with the same probability, wherever they
        lie."""
        return self.placeless or (self.model is not None and self.model.alike(extents))

    @property
    def law(self) -> Hypergeometric | None:
        """The distribution of the number of nonzeros among a set of points, where it depends only on their
        number; else None."""
        return None if self.model is None else self.model.points

    @cached_property
    def laws(self) -> tuple[tuple[float, Hypergeometric], ...]:
        """The distribution as pairs (weight, law); empty where there is no law. A density between two whole
        numbers of nonzeros is a mixture of both, so that a single point has the exact density."""
        law = self.law
        if law is None or self.share is None:
            return () if law is None else ((1.0, law),)
        exact = self.share * law.points
        low = min(int(exact), law.points - 1)
        two = (1 - (exact - low), low), (exact - low, low + 1)
        return tuple((weight, Hypergeometric(law.points, n)) for weight, n in two if weight)

    def nonempty(self, extents: tuple[Ints, ...]) -> Floats:
        """Return the probability that a tile of these extents (one array per rank) holds a nonzero."""
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
    """Return the record of a tensor without zeros."""
    return TensorData(tensor)
