"""Traffic of pairs of tiles that are visited in sequence, with one resident tile per tensor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from polymodel.tiling.matmul.product import changes
from polymodel.tiling.plane.pattern import Index, Ints

ORDERS = ("ijk", "ikj", "kij", "jki", "kji", "jik")


@dataclass(frozen=True)
class OrderTraffic:
    """The traffic of one loop order, in words, between the memory and the buffers.

    `order`: loops, outermost first. Fetches count tiles, not words; a visit of Z is a period during which a
    tile of Z is resident. `streamed`: the part of the words that is moved because a tile exceeds its buffer
    (is overbooked).
    """

    order: str
    a_fetches: int
    b_fetches: int
    z_visits: int
    a_read: int
    b_read: int
    z_read: int
    z_write: int
    streamed: int = 0

    @property
    def words(self) -> int:
        return self.a_read + self.b_read + self.z_read + self.z_write


@dataclass(frozen=True, eq=False)
class Pairs:
    """Effectual pairs of tiles (i, k, j), ordered by their Z tile and, within it, by k.

    `i`, `k`, `j`: numbers of the tiles along each rank. `a`, `b`: words of the operands' tiles. `z`: words of
    the pattern that the Z tile has accumulated after this pair.
    """

    i: Ints
    k: Ints
    j: Ints
    a: Ints
    b: Ints
    z: Ints

    @property
    def count(self) -> int:
        return int(self.i.size)


def traffic(pairs: Pairs, order: str, buffers: tuple[int, int, int] | None = None) -> OrderTraffic:
    """The traffic of the pairs in the lexicographic order of the loops.

    A tile of A or B is read when it differs from the resident one. When the tile of Z changes, the old one is
    written, and the new one is read if it was visited before. With `buffers` (words for A, B, Z), the part of
    a tile that exceeds its buffer is not retained: it is moved again at every use.
    """
    turn = _visit_order(pairs, order)
    i, k, j = pairs.i[turn], pairs.k[turn], pairs.j[turn]
    new_a, new_b, new_z = changes(i, k), changes(k, j), changes(i, j)
    a, b = pairs.a[turn], pairs.b[turn]
    after, earlier = pairs.z[turn], before(pairs)[turn]
    left = np.ones(turn.size, dtype=np.bool_)  # the Z tile changes after this pair
    left[:-1] = new_z[1:]
    moved = [int(x.sum()) for x in (a[new_a], b[new_b], earlier[new_z], after[left])]
    again = [0, 0, 0, 0]
    if buffers is not None:
        sides = ((a, ~new_a, 0), (b, ~new_b, 1), (earlier, ~new_z, 2), (after, ~left, 2))
        again = [int(np.maximum(x[kept] - buffers[which], 0).sum()) for x, kept, which in sides]
    a_read, b_read, z_read, z_write = (m + g for m, g in zip(moved, again, strict=True))
    a_fetches, b_fetches, z_visits = (int(np.count_nonzero(x)) for x in (new_a, new_b, new_z))
    return OrderTraffic(order, a_fetches, b_fetches, z_visits, a_read, b_read, z_read, z_write, sum(again))


def _visit_order(pairs: Pairs, order: str) -> Index:
    if order == "ijk":
        return np.arange(pairs.count)
    by = {"i": pairs.i, "k": pairs.k, "j": pairs.j}
    key, most = np.zeros(pairs.count, dtype=np.int64), pairs.count
    for loop in order:
        extent = int(by[loop].max(initial=0)) + 1
        key, most = key * extent + by[loop], most * extent
    if most >= 2**63:
        return np.lexsort([by[loop] for loop in reversed(order)])
    key = key * pairs.count + np.arange(pairs.count)  # sorting numbers is faster than sorting positions
    key.sort()
    return key % pairs.count


def before(pairs: Pairs) -> Ints:
    """Words of the Z tile before each pair, 0 at the first pair of the tile."""
    result = np.zeros_like(pairs.z)
    result[1:] = pairs.z[:-1]
    result[changes(pairs.i, pairs.j)] = 0
    return result
