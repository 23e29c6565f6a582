"""Generations of a recurrent tensor that nested tiles of generations hold and read."""

from __future__ import annotations

from functools import lru_cache

import numpy as np


@lru_cache(maxsize=65536)
def resident_generations(
    back: tuple[int, ...], extent: int, chain: tuple[int, ...], made: bool
) -> tuple[int, int, int]:
    """For nested tiles of these sizes: generations of the largest tile; over all tiles, the generations that
    they read at distances `back` and do not produce; and all of them. `made`: tiles hold what they
    produce."""
    runs = [(0, extent)]
    for tile in chain:
        runs = [(at + k, min(tile, size - k)) for at, size in runs for k in range(0, size, tile)]
    starts, sizes = np.array(runs).T
    if not made:  # an Einsum that reads the generation before each of its iterations
        each = sizes - (starts == 0)
        return int(each.max()), int(each.sum()), int(each.sum())
    away = np.arange(1, max(back, default=0) + 1)  # distance before the tile
    begin, long = starts[:, None], sizes[:, None]
    read = [(begin >= away) & (away <= d) & (away > d - long) for d in {*back, 0}]
    earlier = np.any(read, axis=0).sum(axis=1)
    return int((earlier + sizes).max()), int(earlier.sum()), int(earlier.sum()) + extent
