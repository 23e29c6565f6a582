"""Branch and bound over boxes of a grid: tile sizes of several axes that are dominated only jointly.

A box takes a range of choices along each axis. With the least value of every count over the box, the cost
rules give a lower bound for every point of the box, since none of their operations falls where a count rises,
neither exactly nor as rounded in float64. A box is pruned if that bound exceeds a capacity, or if a known
point is no worse in any objective, and better in one or lower in number. All other boxes are halved along the
axis whose factors differ most, until they have few points, which are evaluated as in any sweep.

What is evaluated depends on the block alone, not on what other processes or earlier blocks have found, so
that the numbers of points are the same however the work is shared.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from typing import Any, Literal

import numpy as np

from polymodel.analysis.symbolic.forms import Factor, Form
from polymodel.errors import TimeUp
from polymodel.frozen import dataclass
from polymodel.governor import tick
from polymodel.integers import distinguishable
from polymodel.pareto import Archive
from polymodel.sweeps.axes import SymbolAxis
from polymodel.sweeps.blocks import Masks, count_left_out, keep_best
from polymodel.sweeps.grid import Grid
from polymodel.sweeps.kernel import ArrayKernel, KernelRow
from polymodel.sweeps.metrics import Block
from polymodel.sweeps.objectives import objective
from polymodel.sweeps.prune import added_up, in_use
from polymodel.sweeps.result_collector import Outgrown, ResultCollector
from polymodel.sweeps.scenario import Scenario, Variant
from polymodel.sweeps.scratch import BlockMemory
from polymodel.sweeps.work_units import Units

Array = Any
Sum = frozenset[tuple[tuple[Factor, ...], int]]  # products of factors along one axis, with their coefficients
Part = tuple[int, Sum]  # an axis, and a sum along it
Term = tuple[int, tuple[Part, ...]]  # a number times one sum per axis
Values = Callable[[Part, Any], Array]  # values of a part in a type

FEWEST = 2**22  # points of a block from which on boxes are bounded
POINTS = 16  # points of a box that is not halved further
BOXES = 8192  # boxes that are bounded at once
PIECE = 65536  # points that are evaluated at once
LEAVES = 8192  # maximum number of ranges that the choices of an axis are halved into
SEEDS = 32768  # points that are evaluated first, spread over the grid
SHARE = 2**32  # points that one process covers before it takes the next unit


@dataclass(frozen=True)
class ChoiceTree:
    """The choices of one axis, halved recursively.

    `order`: the choices such that each node has a range of them, `begin` to `end`; `child`: its first half,
    followed by the second one, -1 if it is not halved; `least`: the lowest share of a point number in it;
    `spread`: how much its sums differ; `low`, `high`: the least and the largest value of each sum in it.
    """

    order: Array
    begin: Array
    end: Array
    child: Array
    least: Array
    spread: Array
    low: Mapping[Sum, Array]
    high: Mapping[Sum, Array]


def tree_of(axis: SymbolAxis, sums: Mapping[Sum, Array]) -> ChoiceTree:
    """Halve the choices of an axis, each time by the sum that differs most."""
    order, leaf = np.arange(axis.size), -(-axis.size // LEAVES)
    scaled = np.array([np.log2(np.abs(c.astype(float)) + 1) for c in sums.values()]).reshape(-1, axis.size)
    begin, end, child = [0], [axis.size], [-1]
    spread: list[float] = []
    while len(spread) < len(begin):
        at = len(spread)
        first, last = begin[at], end[at]
        here = scaled[:, order[first:last]]
        widths = np.ptp(here, axis=1) if len(here) else np.zeros(1)
        spread.append(float(widths.max()))
        if last - first > leaf:
            if spread[at]:
                order[first:last] = order[first:last][np.argsort(here[int(widths.argmax())], kind="stable")]
            child[at], middle = len(begin), (first + last) // 2
            begin += [first, middle]
            end += [middle, last]
            child += [-1, -1]
    ranges = np.stack([begin, end], axis=1).reshape(-1)

    def over(values: Array, of: np.ufunc) -> Array:
        placed = values[order]
        return of.reduceat(np.append(placed, placed[-1:]), ranges)[::2]

    return ChoiceTree(
        order, np.array(begin), np.array(end), np.array(child), over(axis.ids, np.minimum), np.array(spread),
        {s: over(v, np.minimum) for s, v in sums.items()}, {s: over(v, np.maximum) for s, v in sums.items()},
    )  # fmt: skip


class BoxSums:
    """The rows of a block that objectives depend on, as sums of products of one sum per axis, with halved
    axes."""

    def __init__(self, block: Scenario, used: Set[int]) -> None:
        kernel = block.kernel
        self.rows: Sequence[KernelRow] = kernel.rows
        self.axes = kernel.axes
        self.terms = {i: _terms(kernel, block.rows.forms[i]) for i in sorted(used)}
        parts = dict.fromkeys(part for terms in self.terms.values() for _, each in terms for part in each)
        self.values = {part: _values(kernel, part) for part in parts}
        self.signed = {part for part, v in self.values.items() if np.min(v) < 0}
        self.tables: dict[tuple[str, Part, Any], Array] = {}
        self.trees = [
            tree_of(axis, {s: v for (at, s), v in self.values.items() if at == place})
            for place, axis in enumerate(self.axes)
        ]

    def table(self, of: Literal["each", "low", "high"], part: Part, kind: Any) -> Array:
        """A part's value for each choice of its axis, or its least or largest value in each node of the tree.

        In the type in which rows are added up.
        """
        key = of, part, kind
        if key not in self.tables:
            place, own = part
            values = self.values[part] if of == "each" else getattr(self.trees[place], of)[own]
            self.tables[key] = values.astype(kind)
        return self.tables[key]

    def parts(self, count: int) -> list[Array]:
        """The grid in at least `count` boxes, if it has as many points."""
        nodes = np.zeros((1, len(self.trees)), np.int64)
        while len(nodes) < count and self.splits(nodes).any():
            able = self.splits(nodes).any(axis=1)
            nodes = np.concatenate([nodes[~able], self.halved(nodes[able])])
        return list(nodes[:, None])

    def sizes(self, nodes: Array) -> Array:
        """The number of points of each box."""
        result = np.ones(len(nodes), np.int64)
        for tree, at in zip(self.trees, nodes.T, strict=True):
            result *= tree.end[at] - tree.begin[at]
        return result

    def splits(self, nodes: Array) -> Array:
        """Whether each box can be halved along each axis."""
        return np.stack([t.child[at] >= 0 for t, at in zip(self.trees, nodes.T, strict=True)], axis=1)

    def halved(self, nodes: Array) -> Array:
        """Both halves of each box, along the axis whose sums differ most in it."""
        spread = np.stack([t.spread[at] for t, at in zip(self.trees, nodes.T, strict=True)], axis=1)
        along = np.argmax(np.where(self.splits(nodes), spread, -1), axis=1)
        first = nodes.copy()
        for place, tree in enumerate(self.trees):
            mine = along == place
            first[mine, place] = tree.child[nodes[mine, place]]
        second = first.copy()
        second[np.arange(len(nodes)), along] += 1
        return np.concatenate([first, second])


def _terms(kernel: ArrayKernel, form: Form) -> list[Term]:
    """The form's terms; those that differ along one axis only are merged."""
    result: list[Term] = []
    for product, coefficient in form.terms:
        mine: dict[int, tuple[Factor, ...]] = {}
        for factor in product:
            place, value = kernel.atom(factor)
            if place < 0:
                coefficient *= value
            else:
                mine[place] = (*mine.get(place, ()), factor)
        if coefficient:
            result.append((coefficient, tuple((p, frozenset({(mine[p], 1)})) for p in sorted(mine))))
    count = len(result) + 1
    while len(result) < count:
        count = len(result)
        for place in range(len(kernel.axes)):
            result = _merged(result, place)
    return result


def _merged(terms: Sequence[Term], place: int) -> list[Term]:
    """Terms with the same sums along all axes but one, added up along that axis."""
    groups: dict[tuple[Part, ...], dict[tuple[Factor, ...], int]] = {}
    for coefficient, parts in terms:
        mine = dict(parts).get(place, frozenset({((), 1)}))
        group = groups.setdefault(tuple(p for p in parts if p[0] != place), {})
        for factors, c in mine:
            group[factors] = group.get(factors, 0) + coefficient * c
    result: list[Term] = []
    for others, group in groups.items():
        left = {factors: c for factors, c in group.items() if c}
        if left.keys() <= {()}:
            result += [(c, others) for c in left.values()]
            continue
        common = math.gcd(*left.values())
        part = place, frozenset((factors, c // common) for factors, c in left.items())
        result.append((common, tuple(sorted((*others, part), key=lambda p: p[0]))))
    return result


def _values(kernel: ArrayKernel, part: Part) -> Array:
    """The value of a sum for every choice of its axis."""
    place, products = part
    return added_up([(c, kernel.factor(place, factors) if factors else 1) for factors, c in products])


class LeastCounts(Block):
    """Lower bounds of counts over boxes [boxes, 1]; for single points, their values.

    `low`, `high`: the least and the largest value of a part in each box, in a type.
    """

    def __init__(
        self,
        sums: BoxSums,
        count: int,
        memory: BlockMemory,
        low: Values,
        high: Values,
    ) -> None:
        super().__init__(sums.rows, (), slice(0, count), slice(0, 1), memory)
        self.sums, self.ends = sums, (low, high)
        self.gathered: dict[tuple[int, Part, Any], Array] = {}
        self.products: dict[tuple[tuple[Part, ...], bool, Any], Array] = {}

    def row(self, index: int) -> Array:
        if index not in self.found:
            kind, total = self.rows[index].dtype, np.zeros((self.cut.stop, 1), self.rows[index].dtype)
            for coefficient, parts in self.sums.terms[index]:
                term = self._of_term(parts, coefficient > 0, kind)
                total += term if coefficient == 1 else coefficient * term
            self.found[index] = np.maximum(total, 0, out=total)  # counts are never below 0, but bounds may be
        return self.found[index]

    def _of_term(self, parts: tuple[Part, ...], least: bool, kind: Any) -> Array:
        """The least (otherwise the largest) value of a product."""
        key = parts, least, kind
        if key in self.products:
            return self.products[key]
        signed = [] if self.ends[0] is self.ends[1] else [p for p in parts if p in self.sums.signed]
        if not signed:
            self.products[key] = self._multiplied(parts, 1 - least, kind)
            return self.products[key]
        others = [p for p in parts if p not in self.sums.signed]
        low, high = (self._end(signed[0], end, kind) for end in (0, 1))
        for part in signed[1:]:
            ends = [a * self._end(part, i, kind) for a in (low, high) for i in (0, 1)]
            low = np.minimum(np.minimum(ends[0], ends[1]), np.minimum(ends[2], ends[3]))
            high = np.maximum(np.maximum(ends[0], ends[1]), np.maximum(ends[2], ends[3]))
        if others:  # valid for parts that are never negative
            few, many = (self._multiplied(others, end, kind) for end in (0, 1))
            low, high = np.minimum(low * few, low * many), np.maximum(high * few, high * many)
        self.products[parts, True, kind], self.products[parts, False, kind] = low, high
        return low if least else high

    def _multiplied(self, parts: Sequence[Part], end: int, kind: Any) -> Array:
        result: Array = np.ones((), kind)
        for k, part in enumerate(parts):
            result = result * self._end(part, end, kind) if k else self._end(part, end, kind)
        return result

    def _end(self, part: Part, end: int, kind: Any) -> Array:
        key = end, part, kind
        if key not in self.gathered:
            self.gathered[key] = self.ends[end](part, kind)[:, None]
        return self.gathered[key]


@dataclass(frozen=True)
class _Boxes:
    """Boxes: a tree node per axis, lower bounds of the objectives, and the kept points they were compared
    with."""

    nodes: Array
    bounds: Array
    kept: Array

    def of(self, which: Array | slice) -> _Boxes:
        return _Boxes(self.nodes[which], self.bounds[:, which], self.kept)


class BoxSearch:
    """Search of the boxes of one variant: those that may hold a kept point are halved, and finally evaluated.

    `found`: points kept by this search alone; `state`: that of the sweep, which also counts points.
    """

    def __init__(
        self,
        block: Scenario,
        sums: BoxSums,
        variant: Variant,
        objectives: Sequence[str],
        masks: Masks,
        state: ResultCollector,
    ) -> None:
        self.block, self.sums, self.variant, self.masks = block, sums, variant, masks
        self.objectives, self.state = objectives, state
        self.memory = BlockMemory()
        self.found = self.seeds = self._empty()
        if state.keep == "front":  # a front keeps a point that is found twice once
            self._seed()

    def _empty(self) -> ResultCollector:
        """A collector for this search, without a size limit."""
        front = Archive(len(self.objectives))
        return ResultCollector(self.state.keep, front, self.state.top, sys.maxsize, bounded=False)

    def _seed(self) -> None:
        """Evaluate points spread over the grid, which are not counted: good ones prune more."""
        trees = self.sums.trees
        each = max(1, int(SEEDS ** (1 / max(1, len(trees)))))
        chosen = [t.order[np.unique(np.linspace(0, len(t.order) - 1, each).astype(np.int64))] for t in trees]
        digits = [d.reshape(-1) for d in np.meshgrid(*chosen, indexing="ij")]
        for begin in range(0, len(digits[0]) if digits else 1, PIECE):
            self.evaluate([d[begin : begin + PIECE] for d in digits])

    def whole(self, part: Array, look: Callable[[], None]) -> None:
        """Search a part of the grid; its best points go to the sweep, also if the search is interrupted."""
        self.found = self._empty()
        _give(self.seeds, self.found)
        try:
            self._boxes(part, look)
        except (KeyboardInterrupt, TimeUp):
            with suppress(Outgrown):
                _give(self.found, self.state)
            raise
        _give(self.found, self.state)

    def _boxes(self, part: Array, look: Callable[[], None]) -> None:
        waiting = [self._hopeful(part)]
        while waiting:
            look()
            boxes = waiting.pop()
            if len(boxes.nodes) > BOXES:
                waiting.append(boxes.of(slice(None, -BOXES)))
                boxes = boxes.of(slice(-BOXES, None))
            if boxes.kept is not self._best_so_far:  # better points may have been found since
                boxes = self._left(boxes, ~self.dominated(boxes.bounds, self.numbers(boxes.nodes)))
            few = (self.sums.sizes(boxes.nodes) <= POINTS) | ~self.sums.splits(boxes.nodes).any(axis=1)
            self.points(boxes.nodes[few])
            halves = self.sums.halved(boxes.nodes[~few])
            if len(halves):
                waiting.append(self._hopeful(halves))

    @property
    def _best_so_far(self) -> Array:
        """An array that is replaced with each change of the kept points."""
        return self.found.front.ids if self.found.keep == "front" else self.found.best

    def _hopeful(self, nodes: Array) -> _Boxes:
        """Boxes that may hold a kept point, in order of decreasing bounds."""
        bounds, fit = self.bounds(nodes)
        boxes = self._left(
            _Boxes(nodes, bounds, self._best_so_far), fit & ~self.dominated(bounds, self.numbers(nodes))
        )
        weight = np.log(np.maximum(boxes.bounds.astype(float), 1e-300)).sum(axis=0)
        return boxes.of(np.argsort(-weight, kind="stable"))

    def _left(self, boxes: _Boxes, hope: Array) -> _Boxes:
        """The boxes that may hold a kept point; the points of the others are counted as pruned."""
        self.state.count_pruned(int(self.sums.sizes(boxes.nodes[~hope]).sum()))
        return boxes.of(hope)

    def numbers(self, nodes: Array) -> Array:
        """Lower bounds of the point numbers in each box."""
        result = np.full(len(nodes), self.block.first + self.variant.share, np.int64)
        for tree, at in zip(self.sums.trees, nodes.T, strict=True):
            result += tree.least[at]
        return result

    def bounds(self, nodes: Array) -> tuple[Array, Array]:
        """Lower bounds of the objectives over each box, and whether its least counts fit."""
        sums, shape, at = self.sums, (len(nodes), 1), np.ascontiguousarray(nodes.T)

        def low(part: Part, kind: Any) -> Array:
            return sums.table("low", part, kind)[at[part[0]]]

        def high(part: Part, kind: Any) -> Array:
            return sums.table("high", part, kind)[at[part[0]]]

        block = LeastCounts(sums, len(nodes), self.memory, low, high)
        self.memory.variant(shape)
        found = self.variant.evaluator(block)
        values = [np.broadcast_to(objective(o, found, block, self.variant.costing), shape)[:, 0]
                  for o in self.objectives]  # fmt: skip
        fit = np.ones(len(nodes), bool)
        for mask in found.fits:
            fit &= np.broadcast_to(mask, shape)[:, 0]
        return distinguishable(values), fit

    def dominated(self, bounds: Array, numbers: Array) -> Array:
        """Whether a kept point dominates anything with these objectives and numbers."""
        if self.found.keep == "front":
            return self.found.front.beats(bounds, numbers)
        if len(self.found.best) < self.found.top:
            return np.zeros(len(numbers), bool)
        worst, last = self.found.best[-1], self.found.ids[0][-1]
        return np.asarray((bounds[0] > worst) | ((bounds[0] == worst) & (numbers >= last)), bool)

    def points(self, nodes: Array) -> None:
        """Evaluate and count all points of some boxes."""
        sizes = self.sums.sizes(nodes)
        ends = np.cumsum(sizes)
        short = np.int32 if len(sizes) and sizes.max() < 2**31 else np.int64  # a type that divides faster
        for begin in range(0, int(ends[-1]) if len(ends) else 0, PIECE):
            at = np.arange(begin, min(begin + PIECE, int(ends[-1])))
            box = np.searchsorted(ends, at, side="right")
            at = (at - (ends - sizes)[box]).astype(short)
            digits = []
            for tree, node in zip(reversed(self.sums.trees), nodes.T[::-1], strict=True):
                first, width = tree.begin[node], (tree.end[node] - tree.begin[node]).astype(short)
                at, inside = np.divmod(at, width[box])
                digits.append(tree.order[first[box] + inside])
            self.state.count(len(at), self.evaluate(digits[::-1]))
            tick("evaluating boxes of a grid")

    def evaluate(self, digits: Sequence[Array]) -> dict[str, int]:
        """Evaluate points with these choices along the axes and keep the best; returns infeasible ones by
        reason."""
        count = len(digits[0]) if digits else 1

        def value(part: Part, kind: Any) -> Array:
            return self.sums.table("each", part, kind)[digits[part[0]]]

        rows = LeastCounts(self.sums, count, self.memory, value, value)
        numbers = np.full(count, self.block.first, np.int64)
        for axis, d in zip(self.sums.axes, digits, strict=True):
            numbers += axis.ids[d]
        placed = {axis.names: d[:, None] for axis, d in zip(self.sums.axes, digits, strict=True)}
        counts: dict[str, int] = {}
        self.memory.variant((count, 1))
        no_mapping = self.masks.of(self.variant, placed)
        ids = numbers, np.zeros(1, np.int64)
        keep_best(self.variant, rows, (count, 1), no_mapping, self.objectives, self.found, ids, counts)
        return counts


def _give(found: ResultCollector, state: ResultCollector) -> None:
    """Offer the points of one collector to another. Raises Outgrown."""
    if found.keep == "front" and len(found.front.ids):
        state.offer(found.front.values, found.front.ids)
    elif found.keep == "top" and len(found.best):
        state.offer(found.best[None], found.ids[0])


def bounded(block: Scenario, objectives: Sequence[str]) -> set[int] | None:
    """The rows to bound; None if bounding does not apply.

    That is if the block is too small, if bounds of rows do not bound its objectives, or if a factor depends
    on several axes.
    """
    if block.points < FEWEST or not block.axes:
        return None
    used = in_use([v.costing for v in block.variants], objectives)
    joint = any(block.kernel.is_joint(block.rows.forms[i]) for i in used or ())
    return None if joint else used


def run_boxes(
    block: Scenario,
    used: Set[int],
    objectives: Sequence[str],
    grid: Grid,
    state: ResultCollector,
    units: Units,
    report: Callable[[], None],
) -> None:
    """Do this process's units of a block: parts of the grid under one variant each. Raises Outgrown."""
    count_left_out(block, state, units)
    if not block.legal:
        return
    sums, masks = BoxSums(block, used), Masks(block, grid)
    parts = sums.parts(-(-block.legal // SHARE))
    for variant in block.variants:
        search: BoxSearch | None = None
        for part in parts:
            if not units.mine(state):
                continue
            search = search or BoxSearch(block, sums, variant, objectives, masks, state)
            search.whole(part, units.look)
            report()
