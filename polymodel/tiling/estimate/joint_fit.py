"""Whether all tiles of one size fit, where neighbours take the same places of A for A and for B.

B is A rolled by d rows, so a tile's B is A d rows above it: part of the A of tiles above. For multiply each
tile asks of two windows of A that they fit, and the windows of a column of tiles overlap in a chain. For add
two tiles have some places in common, each counted once in both. P(all fit) is the product over tiles times
that over pairs of P(both fit) / (P(one) P(other)): exact for chains, and near it for chains of pairs.

A few tiles share all entries of the matrix, and that matters: `sampled_fit` draws the entries.
Boundaries of the tiles of A, and of those of B on the rows of A that it takes, cut A into cells. Numbers of
entries of cells are jointly hypergeometric; a fixed generator draws them, so that the answer is always the
same one.
"""

from __future__ import annotations

import numpy as np

from polymodel.sparse.density.hypergeometric import Hypergeometric
from polymodel.sparse.density.model import Floats, Ints
from polymodel.tiling.estimate.uniform import One, rolled
from polymodel.tiling.fits.fit import Op


def pairwise_fit(
    law: Hypergeometric, rects: Ints, counts: Floats, room: Ints, by: int, op: Op, plain: float
) -> float:
    """P(all tiles fit); `plain`: as if they were independent."""
    log = 0.0 if op == "multiply" else float(np.log(plain))
    for (_, _, height, width), count, capacity in zip(rects.tolist(), counts, room.tolist(), strict=True):
        found = (_windows if op == "multiply" else _linked)(law, height, width, capacity, by)
        if found is None:
            return plain
        log += float(count) * found
    return float(np.exp(min(log, 0.0)))


def _windows(law: Hypergeometric, height: int, width: int, capacity: int, by: int) -> float | None:
    """ln P(a tile's two windows fit), given the windows before them in the chain."""
    offset = by % height
    chances = []
    for shared in (height - offset, offset, height):
        found = rolled(law, shared * width, (height - shared) * width, capacity, "multiply")
        if found is None:
            return None
        chances.append(max(1 - found.over, 1e-300))
    return float(np.log(chances[0]) + np.log(chances[1]) - 2 * np.log(chances[2]))


def _linked(law: Hypergeometric, height: int, width: int, capacity: int, by: int) -> float | None:
    """ln of P(both fit) / (P(one) P(other)), over the pairs that a tile is the upper one of."""
    offset = by % height
    if by < height:
        # Rows counted twice lie within a tile; with the tile below it shares `by` rows, once in each.
        links = [(by, height - by, by)]
    else:
        links = [(rows, 0, 2 * height - rows) for rows in (height - offset, offset) if rows]
    found = 0.0
    for common, double, single in links:
        both = _both(law, common * width, double * width, single * width, capacity)
        if both is None:
            return None
        found += both
    return found


def _both(law: Hypergeometric, common: int, double: int, single: int, capacity: int) -> float | None:
    first, mass = One(law).pmf(common, capacity)
    own = _weighted(law, double, single, capacity)
    if own is None or not mass.size:
        return None
    below = np.cumsum(own)
    inside = below[np.clip(capacity - first - np.arange(mass.size), 0, capacity)]
    alone, pair = float(mass @ inside), float(mass @ inside**2)
    return float(np.log(max(pair, 1e-300)) - 2 * np.log(max(alone, 1e-300)))


def _weighted(law: Hypergeometric, double: int, single: int, capacity: int) -> Floats | None:
    """P(2 X + Y = 0 .. capacity), X of `double` and Y of `single` places."""
    twice, once = np.zeros(capacity + 1), np.zeros(capacity + 1)
    for points, into, factor in ((double, twice, 2), (single, once, 1)):
        first, mass = One(law).pmf(points, capacity // factor)
        if not mass.size:
            return None
        into[factor * (first + np.arange(mass.size))] = mass
    return np.convolve(twice, once)[: capacity + 1]


# Numbers drawn for one answer, matrices at most, and what numpy draws without replacement.
_NUMBERS, _MATRICES, _LARGEST = 2_000_000, 20_000, 10**9


def sampled_fit(
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
