"""Tile sizes of one level, and all that the traffic of a tensor depends on, windows such as `p + r` included.

A rank `a*p + b*r` (in lowest terms) under tiles of e and f iterations holds `e*f - (e-b)^+ (f-a)^+` elements:
all pairs, less those that step (b, -a) away from another one. Holes of strided access are no elements.
Summed over all pairs of tiles that is `X_p X_r - U_p U_r`, with `U_p` the sum of (e-b)^+ over the tiles of p.
Where each tile fetches only what its predecessor along p did not hold, the sum is the same with larger U_p:
what a tile and its predecessor hold together takes the place of the tile, less the predecessor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymodel.analysis.symbolic.spaces import halos
from polymodel.errors import NotSeparable
from polymodel.pareto import undominated
from polymodel.slopes.tilings import TileSizes, sizes_below
from polymodel.workload.einsum import Einsum, TensorAccess

Ints = NDArray[np.int64]


def steps_of(one: Einsum, variable: str) -> frozenset[int]:
    """The steps with which a rank variable stands in windows of any tensor."""
    return frozenset(step for a in one.accesses for v, step in _steps(one, a) if v == variable)


def overlapping(one: Einsum, access: TensorAccess) -> frozenset[str]:
    """Rank variables along which tiles of the tensor overlap. NotSeparable for an output with such."""
    found = frozenset(v for v, _ in _steps(one, access))
    if found and access.output:
        raise NotSeparable(
            f"{access.tensor}, an output of {one.name}, has a rank of two rank variables",
            "sweep the tile sizes instead: polymodel.sweep",
        )
    return found


def _steps(one: Einsum, access: TensorAccess) -> tuple[tuple[str, int], ...]:
    return tuple(pair for w in halos(one, access) for pair in ((w.p, w.shift_p), (w.r, w.shift_r)))


@dataclass(frozen=True)
class TileTable:
    """Tile sizes of one rank variable of extent `extent`, the whole extent last.

    `trips`: how many tiles each makes. `over`, `slid`: per step b the sum U of (e-b)^+ over the tiles, each
    fetched whole, or without what its predecessor held.
    """

    extent: int
    tiles: Ints
    trips: Ints
    over: Mapping[int, Ints]
    slid: Mapping[int, Ints]

    def taken(self, index: Any, shape: tuple[int, ...] = (-1,)) -> TileTable:
        """Some of the sizes, as arrays of another shape."""

        def cut(values: Ints) -> Ints:
            part: Ints = values[index].reshape(shape)
            return part

        over, slid = ({b: cut(v) for b, v in table.items()} for table in (self.over, self.slid))
        return TileTable(self.extent, cut(self.tiles), cut(self.trips), over, slid)


def extent(one: Einsum, variable: str) -> int:
    low, high = one.bound(variable)
    return high - low + 1


def candidates(one: Einsum, variable: str, tiles: TileSizes) -> TileTable:
    """The sizes to combine: divisors, given ones, or of all those that no smaller one replaces."""
    x = extent(one, variable)
    below, _ = sizes_below(x, variable, tiles)
    found = sizes(x, np.append(below, x), steps_of(one, variable))
    return without_replaceable(found) if tiles == "all" else found


def sizes(x: int, tiles: Ints, steps: frozenset[int]) -> TileTable:
    """Everything that depends on a tile size of an extent x alone."""
    whole, rest = x // tiles, x % tiles

    def above(values: Ints, b: int) -> Ints:
        return np.maximum(values - b, 0)

    over = {b: whole * above(tiles, b) + above(rest, b) for b in steps}
    slid = {}
    for b in steps:
        each = above(tiles, b)
        joined = (whole - 1) * (above(2 * tiles, b) - each)
        slid[b] = each + joined + np.where(rest > 0, above(tiles + rest, b) - each, 0)
    return TileTable(x, tiles, -(-x // tiles), over, slid)


def without_replaceable(found: TileTable) -> TileTable:
    """Without sizes beside which a smaller one makes as many trips and shares as much.

    Without windows, and with windows of step 1, that leaves the smallest size of each number of trips.
    """
    shared = [-table[b] for table in (found.over, found.slid) for b in table]
    return found.taken(undominated([found.tiles, found.trips, *shared]))


def volume(one: Einsum, access: TensorAccess) -> int:
    """How many elements of a tensor there are in use."""
    whole = {v: sizes(x, np.array(x), steps_of(one, v)) for v in access.variables for x in [extent(one, v)]}
    return int(moved(one, access, whole, ""))


def tile(one: Einsum, access: TensorAccess, here: Mapping[str, TileTable]) -> Any:
    """Elements of the largest tile, for every combination of the sizes."""
    found: Any = 1
    for v in _alone(one, access):
        found = found * here[v].tiles
    for w in halos(one, access):
        e, f = here[w.p].tiles, here[w.r].tiles
        found = found * (e * f - np.maximum(e - w.shift_p, 0) * np.maximum(f - w.shift_r, 0))
    return found


def moved(one: Einsum, access: TensorAccess, here: Mapping[str, TileTable], slid: str) -> Any:
    """Elements of all tiles together, those along `slid` without what their predecessors hold."""
    found: Any = np.asarray(1, np.int64)
    for v in _alone(one, access):
        found = found * here[v].extent
    for w in halos(one, access):
        shared: Any = 1
        for v, step in ((w.p, w.shift_p), (w.r, w.shift_r)):
            shared = shared * (here[v].slid if v == slid else here[v].over)[step]
        found = found * (here[w.p].extent * here[w.r].extent - shared)
    return found


def _alone(one: Einsum, access: TensorAccess) -> tuple[str, ...]:
    """Rank variables that stand in no window."""
    paired = {v for v, _ in _steps(one, access)}
    return tuple(v for v in access.variables if v not in paired)
