"""Density models: the positions of the nonzeros of a tensor, and the resulting statistics of tiles.

    model = Uniform.of(("I", "K"), (1000, 1000), density=0.01)      # or nnz=10_000
    model.expected((8, 8)), model.p_empty([[8, 8], [16, 16]])       # last axis: one size per rank; arrays out

Every model is a `DensityModel` (see there): for a full tile at a random place of its tiling `expected(tile)`,
`variance(tile)`, `p_empty(tile)`, `cdf(tile, s)`, `quantile(tile, confidence)`; for all tiles, edge tiles
included, `expected_tiles(tile)` (nonempty ones), `number_of_tiles(tile)`, `fraction_nonempty(tile)`,
`expected_max(tile)` with `max_label(tile)`, `expected_squares(tile)`; for formats `expected_fibers(depth,
tile=None)` (nonempty prefixes of `depth` ranks; with a tile, summed over all tiles) and
`expected_coordinates(level, tile=None)`; `expected_nnz`, `density`, `ranks`, `shape`, `size`, `label`
("exact" | "expected"; a maximum may be a "bound").

`Uniform.points` is the same for t points: `mean(t)`, `variance(t)`, `p_empty(t)`, `p_nonempty(t)`, `pmf(t,
s)`, `cdf(t, s)`, `sf(t, s)`, `quantile(t, confidence)` for arrays of t.

`model_of` reads a density as written in YAML; `check_fit` warns where uniform does not fit a tensor, `unfit`
only tells; `random_tensor` draws test data; `polymodel.sparse.density.slices` answers for slices of rows.
"""

from polymodel.sparse.density.actual import Actual
from polymodel.sparse.density.banded import Banded
from polymodel.sparse.density.blocks import Blocks
from polymodel.sparse.density.diagonals import Diagonals
from polymodel.sparse.density.hierarchical import Hierarchical
from polymodel.sparse.density.histogram import RankNnz
from polymodel.sparse.density.hypergeometric import Hypergeometric
from polymodel.sparse.density.model import DensityModel, Label, SparseWarning
from polymodel.sparse.density.parse import model_of
from polymodel.sparse.density.random import random_tensor
from polymodel.sparse.density.row_column import RowColumn
from polymodel.sparse.density.sampled import Sampled
from polymodel.sparse.density.structured import FixedStructured
from polymodel.sparse.density.uniform import Uniform, check_fit, unfit

__all__ = [
    "Actual",
    "Banded",
    "Blocks",
    "DensityModel",
    "Diagonals",
    "FixedStructured",
    "Hierarchical",
    "Hypergeometric",
    "Label",
    "RankNnz",
    "RowColumn",
    "Sampled",
    "SparseWarning",
    "Uniform",
    "check_fit",
    "model_of",
    "random_tensor",
    "unfit",
]
