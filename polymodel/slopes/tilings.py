"""Tile sizes of one rank variable in a fused nest: that of its fused loop, and that of the loop below it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from polymodel.errors import Refused
from polymodel.factoring import divisors

Ints = NDArray[np.int64]
MOST = 2**24  # pairs of tile sizes of one rank variable
# What a call may say of tile sizes: `divisors`, `all`, or the sizes to try per rank variable.
TileSizes = str | Mapping[str, Sequence[int]]


@dataclass(frozen=True, eq=False)
class TileChoices:
    """Choices as arrays: which fused tile (`key`), the tile below it (`inner`), iterations of the fused loop
    (`trips`) and of both loops together (`total`)."""

    key: Ints
    inner: Ints
    trips: Ints
    total: Ints

    def __len__(self) -> int:
        return len(self.key)

    def taken(self, index: slice, shape: tuple[int, ...]) -> TileChoices:
        """Some of the choices, as arrays of another shape."""
        return TileChoices(*(a[index].reshape(shape) for a in (self.key, self.inner, self.trips, self.total)))


@dataclass(frozen=True, eq=False)
class Tilings:
    """All choices of one rank variable: with no loop below the fused one (`whole`), with one (`split`), and
    those with the smallest tile below each fused one (`least`).

    `fused`: the fused tile of each key; the whole extent alone where no fused loop goes over the variable.
    """

    extent: int
    fused: tuple[int, ...]
    whole: TileChoices
    split: TileChoices
    least: TileChoices


def sizes_below(extent: int, variable: str, tiles: TileSizes) -> tuple[Ints, bool]:
    """Tile sizes below the extent to try, ascending, and whether a tile must divide what encloses it."""
    if tiles == "divisors":
        return np.asarray(divisors(extent)[:-1], np.int64), True
    if tiles == "all":
        if extent > MOST:
            remedy = 'give fewer tile sizes: tiles="divisors" or tiles={variable: sizes}'
            raise Refused(f"{variable} has {extent:,} tile sizes, more than {MOST:,}", remedy)
        return np.arange(1, extent, dtype=np.int64), False
    assert isinstance(tiles, Mapping)
    chosen = np.unique(np.asarray([*tiles.get(variable, ())], np.int64))
    return chosen[chosen < extent], False


def sizes_of(extent: int, variable: str, tiles: TileSizes) -> tuple[tuple[int, ...], bool]:
    """The same as plain integers."""
    below, perfect = sizes_below(extent, variable, tiles)
    return tuple(below.tolist()), perfect


@lru_cache(maxsize=512)
def tilings(extent: int, fused: tuple[int, ...], sizes: tuple[int, ...], perfect: bool) -> Tilings:
    """Choices under these fused tiles, with these sizes below (`perfect`: only divisors of the fused tile).

    Of tiles below one fused tile that make equally many iterations only the smallest can be on a front.
    Refused for more than 2^24 pairs of sizes that need not divide.
    """
    if not perfect and len(fused) * len(sizes) > MOST:
        what = f"{len(fused)} fused tiles with {len(sizes)} tiles below each are too many"
        raise Refused(what, 'give fewer tile sizes: tiles="divisors" or tiles={variable: sizes}')
    keys, inner, total = [], [], []
    below = np.asarray(sizes, dtype=np.int64)
    for key, tile in enumerate(fused):
        some = below[below < tile]
        if perfect:
            some = some[tile % some == 0]
        many = extent // tile * -(-tile // some) + -(-(extent % tile) // some)
        many, first = np.unique(many, return_index=True)
        keys.append(np.full(len(first), key))
        inner.append(some[first])
        total.append(many)
    every = np.asarray(fused, dtype=np.int64)
    trips = -(-extent // every)
    of = np.concatenate(keys)
    split = TileChoices(of, np.concatenate(inner), trips[of], np.concatenate(total))
    # Tiles of one key fall as the iterations rise, so that the smallest stands last.
    last = np.flatnonzero(np.diff(of, append=-1))
    least = TileChoices(of[last], split.inner[last], split.trips[last], split.total[last])
    return Tilings(extent, fused, TileChoices(np.arange(len(every)), every, trips, trips), split, least)
