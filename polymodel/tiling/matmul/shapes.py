"""The best uniform tile shape of a grid: all that fit are compared, most of them by a bound only.

Lower bounds on the traffic of tiles of one shape let the search skip most shapes. The pairs of an A tile are
at least as many as the tiles of the fullest row of B among its columns; the converse holds for a B tile. In
an order whose innermost loop is k, both operands change from pair to pair, except for one of them where an
outer loop advances; with j innermost B and Z change, with i innermost A and Z.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Literal

import numpy as np

from polymodel.errors import Refused, TimeUp
from polymodel.governor import look, until
from polymodel.tiling.matmul.cost import MatmulMachine
from polymodel.tiling.matmul.product import EntryCoordinates, PatternProduct, changes
from polymodel.tiling.matmul.streams import product_cycles
from polymodel.tiling.matmul.uniform import PAIRS, Shape, UniformTiles, numbers, tiles_of
from polymodel.tiling.matmul.walk import ORDERS, OrderTraffic
from polymodel.tiling.plane.pattern import Index, Ints

Objective = Literal["words", "time"]
Grid = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
SMALL = 64  # ranks up to this size are also cut into single coordinates and pairs of coordinates
PARTS = 4
UNBOUNDED = 2**60  # words of a buffer without a given capacity


@dataclass(frozen=True)
class TilingSearch:
    """The parameters of a search: buffers (words for A, B and Z), machine, objective, loop orders.

    `over`: the share of the nonempty tiles of a tensor that may exceed its buffer (0: none). `grid`: sizes to
    try along i, k and j. `until`: when to stop (`monotonic`). `progress` is called with the current step.
    """

    buffers: Shape
    machine: MatmulMachine
    objective: Objective = "time"
    orders: tuple[str, ...] = ORDERS
    over: float = 0.0
    grid: Grid | None = None
    until: float = inf
    progress: Callable[[str], None] | None = None

    def value(self, words: int, cycles: float) -> float:
        return words if self.objective == "words" else cycles

    def late(self) -> bool:
        return monotonic() > self.until

    def tell(self, text: str) -> None:
        if self.progress is not None:
            self.progress(text)


@dataclass(frozen=True)
class Shaped:
    """One tile shape under one loop order. `over`: the numbers of tiles of A, B and Z that exceed their
    buffers."""

    tile: Shape
    traffic: OrderTraffic
    launches: int
    largest: Shape
    over: Shape
    cycles: float


@dataclass(frozen=True)
class Shapes:
    """`best`: every counted shape, best first, with its best order. `fitting`: shapes of the grid that fit;
    `passed`: those of them that a bound shows to be no better; `left`: those not examined in time."""

    best: tuple[Shaped, ...]
    tried: int
    fitting: int
    passed: int
    left: int


def sizes(extent: int) -> tuple[int, ...]:
    """Return powers of two (from 4 if the rank is longer than 64), and even splits into up to 4 parts."""
    least = 0 if extent <= SMALL else 2
    powers = {1 << n for n in range(least, extent.bit_length())}
    return tuple(sorted(powers | {-(-extent // parts) for parts in range(1, PARTS + 1)}))


def grid_for(product: PatternProduct) -> Grid:
    """Return the default sizes to try."""
    i, k, j = (sizes(extent) for extent in product.extents)
    return i, k, j


def _finer(grid: Grid) -> Grid:
    """Return also single coordinates and pairs, for buffers that hold none of the shapes."""
    i, k, j = (tuple(sorted({1, 2, *along})) for along in grid)
    return i, k, j


@dataclass(frozen=True)
class _Cut:
    """The totals of the nonempty tiles of one tensor."""

    count: int
    total: int
    largest: int
    over: int


@dataclass(frozen=True)
class _Waiting:
    """A shape that fits, with bounds: on the objective, on the number of pairs, and on the words by the
    innermost loop."""

    value: float
    tile: Shape
    cuts: tuple[_Cut, _Cut, _Cut]
    pairs: int
    words: dict[str, int]


def best_shapes(product: PatternProduct, asked: TilingSearch, beat: float = inf) -> Shapes:
    """Return the best shape of the grid for the objective, over all requested orders, and other counted
    shapes.

    Shapes that a lower bound shows to be no better than `beat`, or than the best so far, are skipped.
    """
    grid = asked.grid or grid_for(product)
    tried = len(grid[0]) * len(grid[1]) * len(grid[2])
    try:
        with until(asked.until):
            queue, fitting = _queue(product, grid, asked)
            if not fitting and asked.grid is None:
                grid = _finer(grid)
                queue, fitting = _queue(product, grid, asked)
    except TimeUp:
        return Shapes((), tried, tried, 0, tried)  # the number that may fit
    result: list[Shaped] = []
    done = refused = 0
    for waiting in queue:
        if waiting.value >= beat or asked.late():
            break
        done += 1
        try:
            with until(asked.until):
                shaped = _counted(product, waiting, asked, beat)
        except (Refused, TimeUp):  # too many pairs to hold: reported as a shape that was not examined
            refused += 1
            continue
        if shaped is not None:
            result.append(shaped)
            beat = min(beat, asked.value(shaped.traffic.words, shaped.cycles))
        asked.tell(f"tile shapes: {done} of {len(queue)}, best {beat:,.0f}")
    later = sum(waiting.value < beat for waiting in queue[done:])
    left = later + refused + fitting - len(queue)
    result.sort(key=lambda x: (asked.value(x.traffic.words, x.cycles), x.cycles, x.traffic.words))
    return Shapes(tuple(result), tried, fitting, fitting - len(result) - left, left)


def _queue(product: PatternProduct, grid: Grid, asked: TilingSearch) -> tuple[list[_Waiting], int]:
    """Return the shapes that fit, the most promising first, and the number of fitting shapes if time ran out
    before all had a bound."""
    asked.tell("tile shapes: which fit")
    of_a = _cuts(product.a, grid[0], grid[1], asked.buffers[0], asked)
    of_b = _cuts(product.b, grid[1], grid[2], asked.buffers[1], asked)
    of_z = _cuts(product.z, grid[0], grid[2], asked.buffers[2], asked)
    shapes = [
        ((i, k, j), (of_a[i, k], of_b[k, j], of_z[i, j]))
        for k in grid[1]
        for i in grid[0]
        for j in grid[2]
        if (i, k) in of_a and (k, j) in of_b and (i, j) in of_z
    ]
    bounds, result = Bounds(product), []
    for tile, cuts in shapes:
        if asked.late():
            break
        least = bounds.least(tile, (cuts[2].total, cuts[2].count), (cuts[0].largest, cuts[1].largest))
        words = min(least.words[order[-1]] for order in asked.orders)
        value = asked.value(words, asked.machine.cycles(product.multiplies, words, least.pairs))
        result.append(_Waiting(value, tile, cuts, least.pairs, least.words))
    result.sort(key=lambda waiting: waiting.value)
    return result, len(shapes)


def _cuts(
    places: EntryCoordinates, rows: Sequence[int], cols: Sequence[int], buffer: int, asked: TilingSearch
) -> dict[tuple[int, int], _Cut]:
    """Return the tile shapes of one tensor that fit, except for the share of tiles that may be too large.

    Raises TimeUp if the longest step so far would not end in time: sorting all entries takes seconds on a
    busy machine, and is not interruptible.
    """
    result: dict[tuple[int, int], _Cut] = {}
    failed: list[tuple[int, int]] = []
    share, longest = asked.over, 0.0
    for r in rows:
        for c in cols:
            # A tile that consists of whole tiles, one of which is too large, is too large.
            if not share and any(r % x == 0 and c % y == 0 for x, y in failed):
                continue
            begun = monotonic()
            if begun + longest > asked.until:
                raise TimeUp("the time of the search is over")
            look()
            tiles = tiles_of(places, (r, c))
            longest = max(longest, monotonic() - begun)
            over = tiles.over(buffer)
            if over > share * tiles.count:
                failed.append((r, c))
            else:
                result[r, c] = _Cut(tiles.count, tiles.total, tiles.largest, over)
    return result


def _counted(product: PatternProduct, waiting: _Waiting, asked: TilingSearch, beat: float) -> Shaped | None:
    """Return the shape under its best order; None if the exact number of pairs shows that no order improves
    on `beat`."""
    if waiting.pairs > PAIRS:
        raise Refused(f"more than {PAIRS:.0e} pairs", "take larger tiles", code="too-large")
    uniform, machine = UniformTiles(product, waiting.tile), asked.machine
    over = waiting.cuts[0].over, waiting.cuts[1].over, waiting.cuts[2].over
    largest = waiting.cuts[0].largest, waiting.cuts[1].largest, waiting.cuts[2].largest
    result: list[Shaped] = []
    for order in asked.orders:
        look()
        least = waiting.words[order[-1]]
        if asked.value(least, machine.cycles(product.multiplies, least, uniform.effectual)) >= beat:
            continue
        traffic = uniform.traffic(order, asked.buffers if any(over) else None)
        cycles = product_cycles(machine, uniform, traffic.words, uniform.effectual)
        result.append(Shaped(waiting.tile, traffic, uniform.effectual, largest, over, cycles))
        beat = min(beat, asked.value(traffic.words, cycles))
    return min(result, key=lambda x: (asked.value(x.traffic.words, x.cycles), x.cycles), default=None)


@dataclass(frozen=True, eq=False)
class LeastTraffic:
    """Lower bounds on the number of pairs, and on the words for orders by their innermost loop (`k`, `j`,
    `i`)."""

    pairs: int
    words: dict[str, int]


@dataclass(frozen=True, eq=False)
class _Side:
    """Nonempty tiles of an operand: words of each, the k of its entries, and the position of the first entry
    of each tile."""

    words: Ints
    k: Ints
    begins: Ints

    def most(self, per_k: Ints) -> Ints:
        """Return, for each tile, the largest number among those of its k coordinates."""
        if not self.begins.size:
            return self.begins
        result: Ints = np.maximum.reduceat(per_k[self.k], self.begins)
        return result


@dataclass(frozen=True, eq=False)
class Bounds:
    """Bounds for tile shapes of one product."""

    product: PatternProduct

    def least(self, tile: Shape, z: tuple[int, int], largest: tuple[int, int]) -> LeastTraffic:
        """`z`: words and number of its nonempty tiles, each written at least once; `largest`: words of the
        fullest tile of A and of B, the most that a step of an outer loop can save."""
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
        return LeastTraffic(pairs, {loop: n + z_words for loop, n in words.items()})


def _side(places: EntryCoordinates, tile: tuple[int, int], k: Index) -> _Side:
    bits = int(k.max(initial=0)).bit_length()
    keys = (numbers(places, tile) << bits) | k
    keys.sort()
    return _Side(
        tiles_of(places, tile).words, keys & ((1 << bits) - 1), np.flatnonzero(changes(keys >> bits))
    )


def _tiles_per_row(places: EntryCoordinates, tile: int) -> Ints:
    new = changes(places.rows, places.cols // tile)
    return np.bincount(places.rows[new], minlength=places.shape[0])
