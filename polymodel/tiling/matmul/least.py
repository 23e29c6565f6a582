"""What tiles of one shape move at least: cheap bounds, by which a search passes most shapes over.

The pairs of an A tile are at least as many as the tiles of B's fullest row among its columns; so are, the
other way round, those of a B tile. In an order whose innermost loop is k, both operands change from pair to
pair, but for one of them where an outer loop steps; with j innermost B and Z do, with i innermost A and Z.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polymodel.tiling.matmul.product import Places, Product, changes
from polymodel.tiling.matmul.tiles import numbers, tiles_of
from polymodel.tiling.matmul.uniform import Shape
from polymodel.tiling.plane.pattern import Index, Ints


@dataclass(frozen=True, eq=False)
class Least:
    """At least so many pairs, and words for orders by their innermost loop (`k`, `j`, `i`)."""

    pairs: int
    words: dict[str, int]


@dataclass(frozen=True, eq=False)
class _Side:
    """Nonempty tiles of an operand: words of each, the k of its entries, where those of a tile begin."""

    words: Ints
    k: Ints
    begins: Ints

    def most(self, per_k: Ints) -> Ints:
        """Of each tile the largest number among those of its k coordinates."""
        if not self.begins.size:
            return self.begins
        found: Ints = np.maximum.reduceat(per_k[self.k], self.begins)
        return found


@dataclass(frozen=True, eq=False)
class Bounds:
    """Bounds for tile shapes of one product."""

    product: Product

    def least(self, tile: Shape, z: tuple[int, int], largest: tuple[int, int]) -> Least:
        """`z`: words and number of its nonempty tiles, each written at least once; `largest`: words of the
        fullest tile of A and of B, the most that an outer loop's step can save."""
        i, k, j = tile
        once, (used_a, used_b), (z_words, z_tiles) = self.product.once, self.product.used, z
        a = once(("least a", i, k), lambda: _side(used_a, (i, k), used_a.cols))
        b = once(("least b", k, j), lambda: _side(used_b, (k, j), used_b.rows))
        of_a = once(("tiles per k of a", i, 0), lambda: _tiles_per_row(used_a.transposed, i))
        of_b = once(("tiles per k of b", j, 0), lambda: _tiles_per_row(used_b, j))
        times_a, times_b = a.most(of_b), b.most(of_a)
        pairs = max(int(times_a.sum()), int(times_b.sum()))
        read_a, read_b = int(a.words @ times_a), int(b.words @ times_b)
        once_a, once_b = int(a.words.sum()), int(b.words.sum())
        tiles_a, tiles_b = a.words.size, b.words.size
        # A revisit of Z reads and writes at least one entry, 7 words each.
        words = {
            "k": max(once_a + once_b, read_a + read_b - z_tiles * max(largest)),
            "j": once_a + max(once_b, read_b - tiles_a * largest[1]) + 14 * max(0, pairs - tiles_a - z_tiles),
            "i": once_b + max(once_a, read_a - tiles_b * largest[0]) + 14 * max(0, pairs - tiles_b - z_tiles),
        }
        return Least(pairs, {loop: n + z_words for loop, n in words.items()})


def _side(places: Places, tile: tuple[int, int], k: Index) -> _Side:
    bits = int(k.max(initial=0)).bit_length()
    keys = (numbers(places, tile) << bits) | k
    keys.sort()
    return _Side(
        tiles_of(places, tile).words, keys & ((1 << bits) - 1), np.flatnonzero(changes(keys >> bits))
    )


def _tiles_per_row(places: Places, tile: int) -> Ints:
    new = changes(places.rows, places.cols // tile)
    return np.bincount(places.rows[new], minlength=places.shape[0])
