"""Expected tiles of one size: both extents halved until the fullest tile fits.

P(all tiles of a size fit) is the product over them, corrected for pairs of tiles that hold the same entries.
"""

from __future__ import annotations

import numpy as np

from polymodel.sparse.density.model import Floats, Ints, edge_classes
from polymodel.tiling.estimate.loads import Loads
from polymodel.tiling.estimate.record import Sums
from polymodel.tiling.estimate.source import Source
from polymodel.tiling.estimate.work import launched, tokens


def simple(source: Source) -> Sums:
    """Expected sums over tiles of the first size that fits."""
    height, width = source.shape
    left, best, total = 1.0, 0.0, np.zeros(4)
    while True:
        rects, counts = _tiles(source.shape, (height, width))
        laws = source.loads(rects)
        chance = source.all_fit((height, width), rects, counts, laws)
        # A tile within one that fits does too: sizes that fit are nested, but for odd ones.
        reached = max(best, chance)
        share = reached - best
        if share > 1e-12:
            total += share * _sums(source, laws, counts)
        left, best = 1 - reached, reached
        if left < 1e-9 or (height, width) == (1, 1):
            break
        height, width = max(height // 2, 1), max(width // 2, 1)
    tiles, nonempty, useful, cost = (float(x) for x in total / max(best, 1e-300))
    notes = ("whether tiles fit together: as if only pairs of them depended on each other",)
    return Sums(tiles, nonempty, useful, cost, source.method, notes)


def _tiles(shape: tuple[int, int], size: tuple[int, int]) -> tuple[Ints, Floats]:
    sizes, counts = edge_classes(np.array(size, dtype=np.int64), shape)
    kept = counts > 0
    rects = np.concatenate([np.zeros_like(sizes[kept]), sizes[kept]], axis=1)
    return rects, counts[kept]


def _sums(source: Source, laws: Loads, counts: Floats) -> Floats:
    fits = laws.mass / np.maximum(laws.fits, 1e-300)[:, None] * counts[:, None]
    run = launched(source.op, laws.entries, laws.share[:, None], source.same)
    each = tokens(source.op, laws, source.same)
    return np.array(
        [counts.sum(), (fits * (laws.entries > 0.5)).sum(), (fits * run).sum(), (fits * each).sum()]
    )
