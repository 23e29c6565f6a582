"""The ski slope of one Einsum: the least backing-store traffic for every buffer capacity.

Two levels, one tile size per rank variable, every loop order; the buffer holds one tile of each tensor
(`reuse: slide`: a tile stays while the loops inside do not move it). The curve is Orojenesis' bound on data
movement (Huang et al., "Mind the Gap", ISCA 2024). Counts are those of `evaluate`, to the last element.

Pruning before combining (docs/develop/rules.md, Fusion): traffic depends on a tile size only through its
number of trips, and capacity grows with it, so that of all sizes with equal trips only the smallest can be on
the curve: about 2 sqrt(X) sizes instead of X; for windows with gaps it depends on more, see `tile_sizes`. The
remaining sizes are combined by broadcasting, block by block.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from polymodel.analysis.result import Problem
from polymodel.api.evaluation import evaluate_problem
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Node, StorageNode
from polymodel.mapping.resolve import mapping_to_yaml
from polymodel.reuse import Reuse
from polymodel.slopes.curves import CurveOfBlocks, CurvePoints, check_point, figures_text, fitting_or_fault
from polymodel.slopes.levels import (
    carried_along,
    check_counts,
    check_einsum,
    plain_hierarchy,
    two_levels,
    weights_of,
)
from polymodel.slopes.loop_nests import ChoiceBlock, OrderClass, blocks, nests, subsets
from polymodel.slopes.options import SlopeOptions
from polymodel.slopes.tile_sizes import (
    TileTable,
    candidates,
    extent,
    moved,
    overlapping,
    tile,
    volume,
    with_neighbours,
)
from polymodel.spec.faults import not_a_spec
from polymodel.view.answer import Answer, declared
from polymodel.view.table import Cell, Table, table_of
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from polymodel.loading import Spec
    from polymodel.report.report import Report

Ints = NDArray[np.int64]
BLOCK = 2**16  # mappings compared at once, which fit the cache


@dataclass(frozen=True)
class SlopePoint:
    """One mapping on the curve. `order`: loops with more than one trip, outermost first.

    `capacity` and `accesses` are in the slope's unit; tensors that are not in `kept` bypass the buffer.
    """

    capacity: int
    accesses: int
    tiles: tuple[tuple[str, int], ...]
    order: tuple[str, ...]
    kept: tuple[str, ...]
    unit: str = "words"

    @property
    def brief(self) -> str:
        """Return the loops and tile sizes, and the tensors in the buffer unless all are."""
        tiles = " ".join(f"{v}={t}" for v, t in self.tiles)
        return f"loops {' '.join(self.order) or '(none)'}, tiles {tiles}"

    def __repr__(self) -> str:
        return f"{figures_text(self)}\n  {self.brief}; in the buffer {' '.join(self.kept) or '(nothing)'}"


@dataclass(frozen=True, eq=False, repr=False)
class SkiSlope(Answer):
    """The curve, capacity ascending, accesses descending. `combined`: the number of mappings compared."""

    problem: Problem
    points: CurvePoints[SlopePoint]
    unit: str
    combined: int
    seconds: float
    spec: Spec | None = None

    def keeping(self) -> AbstractContextManager[None]:
        """Return a context that protects the files from which the spec was read against overwriting."""
        from polymodel.loading.spec import protected_files

        return protected_files(self.spec)

    def __len__(self) -> int:
        return len(self.points)

    @property
    def einsum(self) -> Einsum:
        return self.problem.cascade.einsums[0]

    @declared
    def curve(self) -> Table:
        """Return one row per point: capacity, accesses, a tile size per rank variable, order, bypassed
        tensors."""
        rows: list[dict[str, Cell]] = [
            {
                f"capacity_{self.unit}": p.capacity,
                f"accesses_{self.unit}": p.accesses,
                **{f"tile_{v}": t for v, t in p.tiles},
                "order": " ".join(p.order),
                "bypassed": " ".join(t for t in self.einsum.tensors if t not in p.kept),
            }
            for p in self.points
        ]
        units = dict.fromkeys((f"capacity_{self.unit}", f"accesses_{self.unit}"), self.unit)
        return table_of("curve", rows, units)

    def at(self, capacity: float) -> SlopePoint:
        """Return the point with the least traffic that fits a capacity. Raises SpecError if nothing fits."""
        return self.points[fitting_or_fault(self.einsum.name, self.points.figures, capacity, self.unit)]

    def looptree(self, point: SlopePoint) -> LoopTree:
        """Return the mapping of one point, on the two outermost memories."""
        return self._tree("looptree", point)

    def _tree(self, call: str, point: SlopePoint) -> LoopTree:
        check_point(point, SlopePoint, call, "pass a point: slope.at(capacity)")
        outer, inner, compute = two_levels(self.problem.hierarchy)
        tiles = dict(point.tiles)
        nodes: list[Node] = [StorageNode(outer, self.einsum.tensors)]
        nodes += [Loop(v, tiles[v]) for v in point.order]
        if point.kept:
            nodes.append(StorageNode(inner, point.kept, Reuse.SLIDE))
        return LoopTree((*nodes, ComputeNode(self.einsum.name, compute)))

    def mapping_yaml(self, point: SlopePoint) -> str:
        """Return the mapping of one point as YAML that can be loaded."""
        return mapping_to_yaml(self._tree("mapping_yaml", point))

    def report(self, point: SlopePoint) -> Report:
        """Return the report of `evaluate` for one point."""
        cascade, hierarchy = self.problem.cascade, self.problem.hierarchy
        return evaluate_problem(Problem(cascade, hierarchy, self._tree("report", point)))

    def plot(self, ax: Axes | None = None, *, label: str = "") -> Axes:
        """Plot the curve on logarithmic axes, with the least traffic at any capacity.

        `label`: its name in the legend, instead of its Einsum, if several are drawn into one picture (`ax`).
        """
        from polymodel.report.plots_slope import slope_axes

        curve = [(p.capacity, p.accesses) for p in self.points]
        return slope_axes({label or self.einsum.name: curve}, self.unit, self.least, ax)

    @property
    def least(self) -> int:
        """Return the traffic if every element moves once, in the slope's unit; outputs that results are added
        to are read and written."""
        weights, flat = weights_of(self.einsum, self.unit), with_neighbours(self.einsum)
        each = (flat.access_of(t) for t in flat.tensors)
        return sum(weights[a.tensor] * volume(flat, a) * (1 + a.accumulates) for a in each)

    def __repr__(self) -> str:
        return f"SkiSlope({self.einsum.name}: {len(self)} points of {self.combined} mappings)"

    def __str__(self) -> str:
        return f"{self!r}\n{self.points!r}"


def ski_slope(
    spec: Spec,
    *,
    einsum: str | None = None,
    tiles: Literal["divisors", "all"] | Mapping[str, Sequence[int]] = "divisors",
    bypass: bool = False,
    unit: Literal["words", "bits"] = "words",
) -> SkiSlope:
    """The ski slope of one Einsum of a spec (by default its only one); an architecture is not needed.

    `tiles`: divisors of each extent, all sizes, or the sizes to try per rank variable. `bypass`: any subset
    of the tensors may bypass the buffer. `unit`: words count every element once, bits by its width. Ranks may
    be windows `a*p + b*r` of inputs with any stride and dilation, counted without their holes. Several
    elements of a tensor may be read if they are evenly spaced, and of the Einsum's output the previous
    generation.

    Raises SpecError with every option that is wrong, NotSeparable for other sums of rank variables and for
    spaces that are not boxes, Refused for more than 7 rank variables or counts beyond 2^62.
    """
    start = time.perf_counter()
    from polymodel.loading import Spec as Loaded

    if not isinstance(spec, Loaded):
        raise not_a_spec("ski_slope", spec)
    cascade = spec.workload
    options = SlopeOptions()
    if einsum is not None:
        options.choice(("einsum",), einsum, [e.name for e in cascade], "Einsum")
    elif len(cascade) > 1:
        names = ", ".join(e.name for e in cascade)
        remedy = f"say which: einsum=... of {names}; a chain of them has chain_slope"
        options.faults.add(("einsum",), "the workload has several Einsums", remedy, code="unsupported-einsum")
    bypass = options.truth("bypass", bypass)
    named = [e for e in cascade if e.name == einsum or len(cascade) == 1]
    options.tiles(tiles, named, {v for e in cascade for v in e.rank_variables})
    options.unit(unit)
    options.raise_if_any()
    one = cascade[einsum] if einsum else cascade.einsums[0]
    check_einsum(one)
    hierarchy = spec.arch if spec.raw_arch is not None else plain_hierarchy()
    weights = weights_of(one, unit)
    flat = with_neighbours(one)
    sizes = {v: candidates(flat, v, tiles) for v in one.rank_variables}
    front = CurveOfBlocks()
    for kept in sorted(subsets(one.tensors), key=len, reverse=True) if bypass else [one.tensors]:
        _combine(one, kept, sizes, weights, front)
    points = CurvePoints(_points(front, one, sizes, unit))
    alone = Problem(Cascade((one,), cascade.rank_sizes, cascade.name), hierarchy, LoopTree(()))
    return SkiSlope(alone, points, unit, front.offered, time.perf_counter() - start, spec)


def _combine(
    one: Einsum,
    kept: tuple[str, ...],
    sizes: dict[str, TileTable],
    weights: dict[str, int],
    front: CurveOfBlocks,
) -> None:
    """Offer every combination of tiles and order that keeps these tensors."""
    flat, forward = with_neighbours(one), carried_along(one)
    own = frozenset(one.rank_variables)
    tensors = {t: frozenset(flat.access_of(t).variables) & own for t in kept}
    along = {t: overlapping(flat, flat.access_of(t)) & own for t in kept}
    if forward:  # consecutive tiles share the generation that the latter continues from
        along |= {a.tensor: along[a.tensor] | {forward} for a in one.outputs if a.tensor in kept}
    check_counts([one], weights)
    fixed = _bypassed(one, kept, weights)
    used = [v for v in one.rank_variables if any(v in index for index in tensors.values())]
    able = [v for v in used if len(sizes[v].tiles) > 1]
    whole = {v: s.taken(-1, ()) for v, s in sizes.items()}
    for v in (v for v in flat.rank_variables if v not in own):
        whole[v] = candidates(flat, v, {}).taken(-1, ())
    for active, order in nests(able, tensors, along):
        for block in blocks([len(sizes[v].tiles) - 1 for v in active], BLOCK):
            here = whole | {v: sizes[v].taken(*block.cut(k)) for k, v in enumerate(active)}
            figures = _figures(flat, kept, here, order, weights, fixed, forward)
            capacity, accesses = map(block.flat, figures)
            front.offer(capacity, accesses, _PointSource(kept, active, order.order, block))


def _bypassed(one: Einsum, kept: tuple[str, ...], weights: dict[str, int]) -> int:
    """Return traffic of tensors that bypass the buffer: every operation reads (and for an output writes) one
    element."""
    operations = prod(extent(one, v) for v in one.rank_variables)
    total = 0
    for a in one.accesses:
        if a.tensor not in kept:
            each = 2 * operations - _written_before_read(one, a) if a.output else operations
            if a.guard:  # nothing is read before the first generation
                each -= operations // extent(one, a.guard[0].expr.variables[0])
            total += weights[a.tensor] * each
    return total


def _written_before_read(one: Einsum, output: TensorAccess) -> int:
    """Return the number of elements of an output that are written before they are first read."""
    return 0 if output.accumulates else volume(one, output)


def _figures(
    one: Einsum,
    kept: tuple[str, ...],
    here: Mapping[str, TileTable],
    chosen: OrderClass,
    weights: dict[str, int],
    fixed: int,
    forward: str = "",
) -> tuple[Ints, Ints]:
    """Return (capacity, accesses) of a block. `forward`: the variable along which the output is recurrent."""
    capacity = np.asarray(0, dtype=np.int64)
    accesses = np.asarray(fixed, dtype=np.int64)
    outside, slid = dict(chosen.outside), dict(chosen.slid)
    for tensor in kept:
        access = one.access_of(tensor)
        if forward and access.output:
            held, back = _carried(one, access, here, forward)
            capacity = capacity + weights[tensor] * held
            # along the innermost loop, the previous generation is in the buffer
            again = volume(one, access) + (0 if slid[tensor] == forward else back)
            accesses = accesses + weights[tensor] * again
            continue
        capacity = capacity + weights[tensor] * tile(one, access, here)
        carried = weights[tensor] * moved(one, access, here, slid[tensor])
        for v in outside[tensor]:
            carried = carried * here[v].trips
        # An output is drained once per visit of its tile, and read back except for elements not written yet.
        again = (
            2 * carried - weights[tensor] * _written_before_read(one, access) if access.output else carried
        )
        accesses = accesses + again
    return capacity, accesses


def _carried(
    one: Einsum, access: TensorAccess, here: Mapping[str, TileTable], forward: str
) -> tuple[Ints, Ints]:
    """Return, for a recurrent tensor, the elements of the largest tile, and the elements of the previous
    generation that tiles read.

    The largest tile has one generation more than it produces unless it is the first; the first tile reads
    none.
    """
    size, whole = here[forward].tiles, here[forward].extent
    held = tile(one, access, here) // size * (size + (2 * size <= whole))
    return held, volume(one, access) // whole * (here[forward].trips - 1)


@dataclass(frozen=True)
class _PointSource:
    """The origin of the points of a block."""

    kept: tuple[str, ...]
    active: tuple[str, ...]
    order: tuple[str, ...]
    block: ChoiceBlock

    def point(
        self, at: int, capacity: int, accesses: int, one: Einsum, sizes: dict[str, TileTable], unit: str
    ) -> SlopePoint:
        tiles = {v: extent(one, v) for v in one.rank_variables}
        for v, i in zip(self.active, self.block.choices(at), strict=True):
            tiles[v] = int(sizes[v].tiles[i])
        return SlopePoint(capacity, accesses, tuple(tiles.items()), self.order, self.kept, unit)


def _points(
    front: CurveOfBlocks, one: Einsum, sizes: dict[str, TileTable], unit: str
) -> Iterator[SlopePoint]:
    rows = zip(front.capacity.tolist(), front.accesses.tolist(), front.which.tolist(), strict=True)
    for capacity, accesses, (number, at) in rows:
        source = front.sources[number]
        assert isinstance(source, _PointSource)
        yield source.point(at, capacity, accesses, one, sizes, unit)
