"""Comparison of tilings of one multiplication, and the best of them under a capacity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Literal

import numpy as np

from polymodel.errors import Refused, TimeUp
from polymodel.governor import look, until
from polymodel.tiling.matmul.dynamic import GROWS, STEPS, Dynamic, Stationary, dynamic
from polymodel.tiling.matmul.panels import RowPanels, panels_of
from polymodel.tiling.matmul.product import PatternProduct
from polymodel.tiling.matmul.shapes import Shaped, TilingSearch, best_shapes
from polymodel.tiling.matmul.streams import product_cycles
from polymodel.tiling.matmul.uniform import Shape, UniformTiles
from polymodel.tiling.matmul.walk import OrderTraffic

Strategy = Literal["uniform", "panels", "dynamic", "overbooked"]
STRATEGIES: tuple[Strategy, ...] = ("uniform", "panels", "dynamic", "overbooked")
Source = UniformTiles | RowPanels | Dynamic


@dataclass(frozen=True, eq=False)
class TilingCandidate:
    """One tiling: `tile` in words, the traffic of one loop order, words of the fullest tiles of A, B and Z,
    the number of tiles that exceed their buffers (`over`), modelled `cycles`. `fits`: whether it may be
    selected; overbooked tilings may, since what exceeds the buffer is counted as streamed."""

    strategy: Strategy
    tile: str
    traffic: OrderTraffic
    launches: int
    largest: Shape
    over: Shape
    cycles: float
    source: Source

    @property
    def fits(self) -> bool:
        return self.strategy == "overbooked" or not any(self.over)


@dataclass(frozen=True, eq=False)
class TilingCandidates:
    """Candidates, best first (those that do not fit last); `notes`: what was not examined, and why."""

    candidates: tuple[TilingCandidate, ...]
    notes: tuple[str, ...]

    @property
    def best(self) -> TilingCandidate:
        return self.candidates[0]


@dataclass
class _Remarks:
    """Further results of a search besides its candidates. `cut_short`: the time limit left something
    unexamined."""

    notes: list[str] = field(default_factory=list)
    cut_short: bool = False


def search(
    product: PatternProduct,
    asked: TilingSearch,
    strategies: Sequence[Strategy] = STRATEGIES,
    overbook: float = 0.1,
) -> TilingCandidates:
    """Return the candidates of these strategies. `overbook`: the share of the tiles of a tensor that may
    exceed its buffer.

    The best is never worse in the objective than any uniform shape of the grid in any requested order, if
    time allowed (otherwise a note says so). Refused if nothing fits, TimeUp if nothing was found in time.
    """
    result: list[TilingCandidate] = []
    remarks = _Remarks()
    if "panels" in strategies:
        result.append(_panels(product, asked))
    if "uniform" in strategies:
        result += _shapes(product, replace(asked, over=0.0), "uniform", inf, remarks)
    if "overbooked" in strategies:
        # Besides the uniform ones, only shapes that may be better are counted.
        beat = min((_value(c, asked)[0] for c in result if c.strategy == "uniform"), default=inf)
        result += _shapes(product, replace(asked, over=overbook), "overbooked", beat, remarks)
    if "dynamic" in strategies:
        result += _dynamic(product, asked, remarks)
    result.sort(key=lambda c: (not c.fits, *_value(c, asked)))
    fitting = bool(result) and result[0].fits
    if not fitting and remarks.cut_short:
        raise TimeUp("no tiles that fit were found in time", "give more time_limit, or larger capacities")
    if not fitting:
        a, b, z = asked.buffers
        raise Refused(
            f"no {' or '.join(strategies)} tiles fit buffers of {a}, {b} and {z} words",
            "give larger capacities, or other strategies"
            if len(strategies) < 4
            else "give larger capacities",
            code="over-capacity",
        )
    return TilingCandidates(tuple(result), tuple(remarks.notes))


def _value(c: TilingCandidate, asked: TilingSearch) -> tuple[float, float, float]:
    return asked.value(c.traffic.words, c.cycles), c.cycles, c.traffic.words


def _shapes(
    product: PatternProduct, asked: TilingSearch, strategy: Strategy, beat: float, remarks: _Remarks
) -> list[TilingCandidate]:
    shapes, notes = best_shapes(product, asked, beat), remarks.notes
    looked = f"{strategy}: {shapes.fitting:,} of {shapes.tried:,} shapes of the grid fit"
    notes.append(f"{looked}, {shapes.passed:,} of these are passed over by a bound")
    if shapes.left:
        remarks.cut_short |= asked.late()
        notes.append(f"{strategy}: {shapes.left:,} shapes were not looked at in time: a better one may exist")
    best = shapes.best
    if strategy == "overbooked" and beat < inf:
        best = tuple(x for x in best if any(x.over))  # the others are the uniform ones
        if not any(asked.value(x.traffic.words, x.cycles) < beat for x in best):
            notes.append("overbooked: no shape is better than the best uniform one")
    return [shaped_candidate(product, shaped, strategy) for shaped in best]


def shaped_candidate(product: PatternProduct, shaped: Shaped, strategy: Strategy) -> TilingCandidate:
    """Return a uniform shape as a candidate."""
    return TilingCandidate(
        strategy,
        " x ".join(map(str, shaped.tile)),
        shaped.traffic,
        shaped.launches,
        shaped.largest,
        shaped.over,
        shaped.cycles,
        UniformTiles(product, shaped.tile),
    )


def tiles_of_shape(
    product: PatternProduct, tile: Shape, asked: TilingSearch, streamed: bool
) -> TilingCandidate:
    """Return tiles of one shape, in the best of the orders; what exceeds a buffer may be `streamed` at every
    use.

    A size beyond an extent is replaced by the extent: the indices of a small matrix hold no larger number.
    """
    given = UniformTiles(product, tile)
    i, k, j = (min(t, max(extent, 1)) for t, extent in zip(given.tile, product.extents, strict=True))
    uniform = UniformTiles(product, (i, k, j))
    sides = (uniform.a, uniform.b, uniform.z)
    largest = uniform.a.largest, uniform.b.largest, uniform.z.largest
    over = tuple(side.over(m) for side, m in zip(sides, asked.buffers, strict=True))
    made = []
    for order in asked.orders:
        asked.tell(f"order {order}")
        traffic = uniform.traffic(order, asked.buffers if streamed else None)
        cycles = product_cycles(asked.machine, uniform, traffic.words, uniform.effectual)
        made.append(
            Shaped(uniform.tile, traffic, uniform.effectual, largest, (over[0], over[1], over[2]), cycles)
        )
    best = min(made, key=lambda s: (asked.value(s.traffic.words, s.cycles), s.cycles, s.traffic.words))
    return shaped_candidate(product, best, "overbooked" if streamed else "uniform")


def _panels(product: PatternProduct, asked: TilingSearch) -> TilingCandidate:
    asked.tell("row panels")
    a, b, z = asked.buffers
    panels = panels_of(product, a, z)
    traffic, on = panels.traffic(), panels.launched
    largest = int(panels.a[on].max(initial=0)), panels.b_row_max, int(panels.z[on].max(initial=0))
    named = product.used[1].row_nnz  # rows of B that no column of A selects are never read
    over = (
        int(np.count_nonzero(panels.a[on] > a)),
        int(np.count_nonzero((named > 0) & (2 * named + 2 > b))),
        int(np.count_nonzero(panels.z[on] > z)),
    )
    cycles = product_cycles(asked.machine, panels, traffic.words, panels.launches)
    name = f"{panels.count} panel{'' if panels.count == 1 else 's'} of rows"
    return TilingCandidate("panels", name, traffic, panels.launches, largest, over, cycles, panels)


def _dynamic(product: PatternProduct, asked: TilingSearch, remarks: _Remarks) -> list[TilingCandidate]:
    sides: tuple[Stationary, ...] = ("A", "B")
    result: list[TilingCandidate] = []
    for stationary, grow in ((s, g) for g in GROWS for s in sides):
        if ("ikj" if stationary == "A" else "jki") not in asked.orders:
            continue
        how = "both in turn" if grow == "alternate" else f"{grow} first"
        name = f"{stationary} stays, {how}"
        asked.tell(f"dynamic tiles: {name}")
        beat = min((_value(c, asked)[0] for c in result), default=inf)

        def stop(launches: int, beat: float = beat) -> bool:
            least = asked.machine.cycles(product.multiplies, 0, launches)
            return asked.late() or asked.value(0, least) > beat

        try:
            with until(asked.until):
                look()
                made = dynamic(product, asked.buffers, stationary, grow, stop)
        except TimeUp:
            made = None
        if made is None:
            slow = f"over {STEPS:,} tiles, or worse already than the best of the others"
            why = "out of time" if asked.late() else slow
            remarks.cut_short |= asked.late()
            remarks.notes.append(f"dynamic: {name}: given up ({why})")
            continue
        traffic = made.traffic()
        cycles = product_cycles(asked.machine, made, traffic.words, made.launches)
        result.append(
            TilingCandidate("dynamic", name, traffic, made.launches, made.largest, (0, 0, 0), cycles, made)
        )
    return result
