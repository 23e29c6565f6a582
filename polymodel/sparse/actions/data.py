"""What is known of the nonzeros of each tensor: no point is zero, a density model, or the nonzeros."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polymodel.sparse.actions.counters import Ints
from polymodel.sparse.density.model import DensityModel, Floats, Label, Placeless
from polymodel.sparse.density.uniform import Uniform
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
        return self.model is None or isinstance(self.model, Placeless)

    def nonempty(self, extents: tuple[Ints, ...]) -> Floats:
        """Probability that a tile of these extents (one array per rank) holds a nonzero."""
        if self.model is None or self.dense:
            return np.ones(np.broadcast_shapes(*(e.shape for e in extents)) if extents else (1,))
        tiles = np.stack(np.broadcast_arrays(*extents), axis=-1)
        if self.share is not None and isinstance(self.model, Uniform):
            # Between the two whole numbers of nonzeros, so that a single point has the exact density.
            exact = self.share * self.model.size
            low = min(int(exact), self.model.size - 1)
            fewer, more = (
                Uniform.of(self.model.ranks, self.model.shape, nnz=n).p_nonempty(tiles)
                for n in (low, low + 1)
            )
            mixed: Floats = fewer + (exact - low) * (more - fewer)
            return mixed
        if isinstance(self.model, Placeless):
            return self.model.p_nonempty(tiles)
        return 1 - self.model.p_empty(tiles)


def dense_data(tensor: str) -> TensorData:
    """A tensor without zeros."""
    return TensorData(tensor)
