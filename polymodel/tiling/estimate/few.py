"""Whether a few tiles fit together, where that they share all entries of the matrix matters: by drawing.

Boundaries of the tiles of A, and of those of B on the rows of A that it takes, cut A into cells. Numbers of
entries of cells are jointly hypergeometric; a fixed generator draws them, so that the answer is always the
same one.
"""

from __future__ import annotations

import numpy as np

from polymodel.sparse.density.hypergeometric import Hypergeometric
from polymodel.sparse.density.model import Ints
from polymodel.tiling.fits.fit import Op

# Numbers drawn for one answer, matrices at most, and what numpy draws without replacement.
_NUMBERS, _MATRICES, _LARGEST = 2_000_000, 20_000, 10**9


def all_fit(
    law: Hypergeometric, shape: tuple[int, int], size: tuple[int, int], by: int, room: Ints, op: Op
) -> float:
    """P(all tiles fit). `room`: capacity per tile, in row-major order; `by`: rows that B is rolled by."""
    rows, cols = shape
    tops = np.arange(0, rows, size[0])
    edges = np.unique(np.concatenate([tops, (tops - by) % rows, [0, (rows - by) % rows, rows]]))
    heights, lefts = np.diff(edges), np.arange(0, cols, size[1])
    widths = np.minimum(size[1], cols - lefts)
    places = (heights[:, None] * widths).ravel()
    draws = int(min(_MATRICES, max(1, _NUMBERS // places.size)))
    generator = np.random.default_rng(0)
    if law.points < _LARGEST:
        found = generator.multivariate_hypergeometric(places, law.nnz, size=draws, method="marginals")
    else:
        found = generator.multinomial(law.nnz, places / law.points, size=draws)
    cells = found.reshape(draws, heights.size, widths.size)
    ours = _of_tiles(edges[:-1] // size[0], cells, tops.size)
    theirs = _of_tiles((edges[:-1] + by) % rows // size[0], cells, tops.size)
    loads = ours + theirs if op == "add" else np.maximum(ours, theirs)
    return float((loads.reshape(draws, -1) <= room).all(axis=1).mean())


def _of_tiles(tile: Ints, cells: Ints, tiles: int) -> Ints:
    """Entries per draw, row of tiles and column of tiles; `tile`: of each row of cells the row of tiles."""
    found = np.zeros((cells.shape[0], tiles, cells.shape[2]), dtype=np.int64)
    for row, into in enumerate(tile.tolist()):
        found[:, into] += cells[:, row]
    return found
