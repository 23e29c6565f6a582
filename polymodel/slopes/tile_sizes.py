"""Tile sizes of one rank variable, and all derived quantities on which the traffic of a tensor depends,
including windows.

A rank `a*p + b*r` (in lowest terms) under tiles of e and f iterations has `e*f - (e-b)^+ (f-a)^+` elements:
all pairs, less those that are a step (b, -a) away from another one. Holes of strided access are not elements.
The sum over all pairs of tiles is `X_p X_r - U_p U_r`, with `U_p` the sum of (e-b)^+ over the tiles of p. If
each tile fetches only elements that its predecessor along p did not hold, the sum is the same with larger
U_p: the union of a tile and its predecessor replaces the tile, less the predecessor. In a fused nest a rank
variable has two tile sizes: that of its fused loop, and that of the loop below it (`TileSizeChoices`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymodel.analysis.symbolic.spaces import halos, neighbours_joined
from polymodel.errors import NotSeparable, Refused
from polymodel.factoring import divisors
from polymodel.pareto import undominated
from polymodel.workload.einsum import Einsum, TensorAccess

Ints = NDArray[np.int64]
MOST = 2**24  # pairs of tile sizes of one rank variable
# The tile sizes of a call: `divisors`, `all`, or the sizes to try per rank variable.
TileSizes = str | Mapping[str, Sequence[int]]


@dataclass(frozen=True, eq=False)
class TileChoices:
    """Choices as arrays: the fused tile (`key`), the tile below it (`inner`), the iterations of the fused
    loop (`trips`) and of both loops together (`total`)."""

    key: Ints
    inner: Ints
    trips: Ints
    total: Ints

    def __len__(self) -> int:
        return len(self.key)

    def taken(self, index: slice, shape: tuple[int, ...]) -> TileChoices:
        """Return some of the choices, as arrays of another shape."""
        return TileChoices(*(a[index].reshape(shape) for a in (self.key, self.inner, self.trips, self.total)))


@dataclass(frozen=True, eq=False)
class TileSizeChoices:
    """All choices of one rank variable.

    Without a loop below the fused one (`whole`), with one (`split`), and those with the smallest tile below
    each fused one (`least`). `fused`: the fused tile of each key; only the whole extent if no fused loop is
    over the variable.
    """

    extent: int
    fused: tuple[int, ...]
    whole: TileChoices
    split: TileChoices
    least: TileChoices


def sizes_below(extent: int, variable: str, tiles: TileSizes) -> tuple[Ints, bool]:
    """Return tile sizes below the extent to try, ascending, and whether a tile must divide the enclosing
    one."""
    if tiles == "divisors":
        return np.asarray(divisors(extent)[:-1], np.int64), True
    if tiles == "all":
        if extent > MOST:
            remedy = 'give fewer tile sizes: tiles="divisors" or tiles={variable: sizes}'
            message = f"{variable} has {extent:,} tile sizes, more than {MOST:,}"
            raise Refused(message, remedy, code="too-large")
        return np.arange(1, extent, dtype=np.int64), False
    assert isinstance(tiles, Mapping)
    chosen = np.unique(np.asarray([*tiles.get(variable, ())], np.int64))
    return chosen[chosen < extent], False


def sizes_of(extent: int, variable: str, tiles: TileSizes) -> tuple[tuple[int, ...], bool]:
    """Return these tile sizes as plain integers."""
    below, perfect = sizes_below(extent, variable, tiles)
    return tuple(below.tolist()), perfect


@lru_cache(maxsize=512)
def tilings(extent: int, fused: tuple[int, ...], sizes: tuple[int, ...], perfect: bool) -> TileSizeChoices:
    """Return choices under these fused tiles, with these sizes below (`perfect`: only divisors of the fused
    tile).

    Of tiles below one fused tile with equal numbers of iterations only the smallest can be on a front. Raises
    Refused for more than 2^24 pairs of sizes if divisibility is not required.
    """
    if not perfect and len(fused) * len(sizes) > MOST:
        what = f"{len(fused)} fused tiles with {len(sizes)} tiles below each are too many"
        remedy = 'give fewer tile sizes: tiles="divisors" or tiles={variable: sizes}'
        raise Refused(what, remedy, code="too-large")
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
    # within one key tiles shrink as iterations grow, so that the smallest is last
    last = np.flatnonzero(np.diff(of, append=-1))
    least = TileChoices(of[last], split.inner[last], split.trips[last], split.total[last])
    return TileSizeChoices(
        extent, fused, TileChoices(np.arange(len(every)), every, trips, trips), split, least
    )


def with_neighbours(one: Einsum) -> Einsum:
    """Return the Einsum with one access to all elements of a tensor that an operation reads, if these are
    evenly spaced.

    They become a window over one of its variables and an additional one that no loop iterates over.
    """
    joined, unions = neighbours_joined(one, {})
    return replace(joined, accesses=tuple(dict.fromkeys(unions.get(a.tensor, a) for a in joined.accesses)))


def steps_of(one: Einsum, variable: str) -> frozenset[int]:
    """Return the steps of a rank variable in windows of any tensor."""
    return frozenset(step for a in one.accesses for v, step in _steps(one, a) if v == variable)


def overlapping(one: Einsum, access: TensorAccess) -> frozenset[str]:
    """Return rank variables along which tiles of the tensor overlap. Raises NotSeparable if an output has
    any."""
    result = frozenset(v for v, _ in _steps(one, access))
    if result and access.output:
        message = f"{access.tensor}, an output of {one.name}, has a rank of two rank variables"
        remedy = "sweep the tile sizes instead: polymodel.sweep"
        raise NotSeparable(message, remedy, code="unsupported-window")
    return result


def _steps(one: Einsum, access: TensorAccess) -> tuple[tuple[str, int], ...]:
    return tuple(pair for w in halos(one, access) for pair in ((w.p, w.shift_p), (w.r, w.shift_r)))


@dataclass(frozen=True)
class TileTable:
    """Tile sizes of one rank variable of extent `extent`, the whole extent last.

    `trips`: number of tiles for each. `over`, `slid`: per step b the sum U of (e-b)^+ over the tiles, each
    fetched whole, or without what its predecessor held.
    """

    extent: int
    tiles: Ints
    trips: Ints
    over: Mapping[int, Ints]
    slid: Mapping[int, Ints]

    def taken(self, index: Any, shape: tuple[int, ...] = (-1,)) -> TileTable:
        """Return some of the sizes, as arrays of another shape."""

        def cut(values: Ints) -> Ints:
            part: Ints = values[index].reshape(shape)
            return part

        over, slid = ({b: cut(v) for b, v in table.items()} for table in (self.over, self.slid))
        return TileTable(self.extent, cut(self.tiles), cut(self.trips), over, slid)


def extent(one: Einsum, variable: str) -> int:
    low, high = one.bound(variable)
    return high - low + 1


def candidates(one: Einsum, variable: str, tiles: TileSizes) -> TileTable:
    """Return the sizes to combine: divisors, given ones, or all those that no smaller one replaces."""
    x = extent(one, variable)
    below, _ = sizes_below(x, variable, tiles)
    result = sizes(x, np.append(below, x), steps_of(one, variable))
    return without_replaceable(result) if tiles == "all" else result


def sizes(x: int, tiles: Ints, steps: frozenset[int]) -> TileTable:
    """Return all quantities that depend only on a tile size of an extent x."""
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
    """Return the sizes without those that a smaller one with as many trips and as much sharing can replace.

    Without windows, and with windows of step 1, that leaves the smallest size of each number of trips.
    """
    shared = [-table[b] for table in (found.over, found.slid) for b in table]
    return found.taken(undominated([found.tiles, found.trips, *shared]))


def volume(one: Einsum, access: TensorAccess) -> int:
    """Return the number of elements of a tensor in use."""
    whole = {v: sizes(x, np.array(x), steps_of(one, v)) for v in access.variables for x in [extent(one, v)]}
    return int(moved(one, access, whole, ""))


def tile(one: Einsum, access: TensorAccess, here: Mapping[str, TileTable]) -> Any:
    """Return elements of the largest tile, for every combination of the sizes."""
    result: Any = 1
    for v in _alone(one, access):
        result = result * here[v].tiles
    for w in halos(one, access):
        e, f = here[w.p].tiles, here[w.r].tiles
        result = result * (e * f - np.maximum(e - w.shift_p, 0) * np.maximum(f - w.shift_r, 0))
    return result


def moved(one: Einsum, access: TensorAccess, here: Mapping[str, TileTable], slid: str) -> Any:
    """Return elements of all tiles together; tiles along `slid` without the elements that their predecessors
    hold."""
    result: Any = np.asarray(1, np.int64)
    for v in _alone(one, access):
        result = result * here[v].extent
    for w in halos(one, access):
        shared: Any = 1
        for v, step in ((w.p, w.shift_p), (w.r, w.shift_r)):
            shared = shared * (here[v].slid if v == slid else here[v].over)[step]
        result = result * (here[w.p].extent * here[w.r].extent - shared)
    return result


def _alone(one: Einsum, access: TensorAccess) -> tuple[str, ...]:
    """Return rank variables that are in no window."""
    paired = {v for v, _ in _steps(one, access)}
    return tuple(v for v in access.variables if v not in paired)
