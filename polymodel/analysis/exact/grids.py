"""Points of one Einsum over some of its rank variables, with the counters of the loops over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from polymodel.analysis.exact.buffets import ExactLayout
from polymodel.analysis.exact.sweep import Ints, counter_of, satisfied
from polymodel.arithmetic import Constraint
from polymodel.errors import Refused
from polymodel.mapping.looptree import Split
from polymodel.polyhedra.sets import listed_points
from polymodel.schedule.touch import RankBlock, View, essential_constraints

_POINTS = 5_000_000


def unfollowed(reason: str) -> Refused:
    """The refusal of lifetimes that no product describes."""
    remedy = "use a smaller workload (up to two million operations are listed), or ask for `allocation: tile`"
    return Refused(f"lifetimes of single elements: {reason}", remedy, code="unsupported-memory")


@dataclass(frozen=True)
class PointGrid:
    """The points of one Einsum over some of its rank variables: values, and counters by axis position."""

    values: dict[str, Ints]
    axes: dict[int, Ints]
    count: int

    def within(self, bound: Constraint) -> PointGrid:
        """The points that satisfy a constraint on some of the variables."""
        keep = satisfied(bound, self.values, self.count)
        values = {v: a[keep] for v, a in self.values.items()}
        return PointGrid(values, {i: a[keep] for i, a in self.axes.items()}, int(keep.sum()))


@dataclass(frozen=True)
class Packed:
    """Rows of several columns as integers below `bound`, in the order of the rows."""

    keys: Ints
    low: tuple[int, ...]
    extents: tuple[int, ...]

    @property
    def bound(self) -> int:
        return prod(self.extents)

    def columns(self, keys: Ints) -> list[Ints]:
        result = []
        for low, extent in zip(reversed(self.low), reversed(self.extents), strict=True):
            keys, digit = np.divmod(keys, extent)
            result.append(digit + low)
        return result[::-1]


def packed(columns: Sequence[Ints], rows: int) -> Packed:
    """Rows as integers."""
    low = tuple(int(c.min()) for c in columns)
    extents = tuple(int(c.max()) - b + 1 for c, b in zip(columns, low, strict=True))
    if prod(extents) >= 2**62:
        raise unfollowed("their coordinates exceed 62 bits")
    keys = np.zeros(rows, dtype=np.int64)
    for column, b, n in zip(columns, low, extents, strict=True):
        keys = keys * n + (column - b)
    return Packed(keys, low, extents)


def numbered(keys: Ints, bound: int) -> tuple[Ints, Ints]:
    """The number of every key among the distinct ones, and these in order. Keys are below `bound`."""
    if bound > 8 * len(keys) + 65536:
        different, numbers = np.unique(keys, return_inverse=True)
        return np.asarray(numbers, dtype=np.int64).reshape(-1), different
    present = np.zeros(bound, dtype=bool)
    present[keys] = True
    return np.asarray((np.cumsum(present) - 1)[keys], dtype=np.int64), np.flatnonzero(present)


def contained(keys: Ints, given: Ints, bound: int) -> NDArray[np.bool_]:
    """Mask of the keys that are among the given ones; all are below `bound`."""
    if bound > 8 * len(given) + 65536:
        order = np.sort(given)  # np.isin hashes, which is slower
        return np.asarray(order[np.minimum(np.searchsorted(order, keys), len(order) - 1)] == keys)
    present = np.zeros(bound, dtype=bool)
    present[given] = True
    return np.asarray(present[keys])


def one_of_each(numbers: Ints, count: int) -> Ints:
    """A position of every number."""
    where = np.zeros(count, dtype=np.int64)
    where[numbers] = np.arange(len(numbers))
    return where


class Grids:
    """Grids by Einsum and variables, made once. Axis positions: loops in path order, then offsets."""

    def __init__(self, layout: ExactLayout) -> None:
        self.layout = layout
        self.views: dict[str, View] = {}
        for (einsum, _), view in layout.full.items():
            self.views.setdefault(einsum, view)
        self._made: dict[tuple[str, frozenset[str], frozenset[int]], PointGrid] = {}
        self._stamps: dict[tuple[str, tuple[int, ...]], list[Ints]] = {}

    def of(self, einsum: str, blocks: Sequence[RankBlock]) -> PointGrid:
        """The Einsum's points over its variables and loops in these blocks."""
        view = self.views[einsum]
        variables = frozenset(v for b in blocks for e, v in b.variables if e == einsum)
        loops = frozenset(i for b in blocks for i in b.loops) if view.parts else frozenset[int]()
        key = (einsum, variables, loops)
        if key not in self._made:
            if view.parts:
                self._made[key] = _executed(view, variables, loops)
            else:
                self._made[key] = _grid(view, variables)
        return self._made[key]

    def stamps(self, einsum: str, blocks: Sequence[RankBlock], axes: tuple[int, ...]) -> list[Ints]:
        """The different values of these axes in order, one column each."""
        key = (einsum, axes)
        if key not in self._stamps:
            grid = self.of(einsum, blocks)
            rows = packed([grid.axes[a] for a in axes], grid.count)
            self._stamps[key] = rows.columns(numbered(rows.keys, rows.bound)[1])
        return self._stamps[key]

    def temporal(self, einsum: str) -> tuple[int, ...]:
        """Positions of all time coordinates: temporal loops, then offsets."""
        view = self.views[einsum]
        loops = [i for i, (_, loop, _) in enumerate(view.loops) if not loop.spatial]
        return (*loops, *range(len(view.loops), len(view.loops) + len(view.offsets)))

    def parting(self, one: str, other: str) -> tuple[int, bool]:
        """(loops above the split at which two Einsums diverge, whether the other's branch is the earlier
        one).

        An Einsum diverges from itself after all of its time coordinates.
        """
        if one == other:
            return len(self.views[one].loops) + len(self.views[one].offsets), False
        tree = self.layout.problem.tree
        for a, b in zip(tree.path(one), tree.path(other), strict=False):
            if isinstance(a.node, Split) and a.branch != b.branch:
                return sum(1 for i, _ in tree.loops(one) if i < a.id), b.branch < a.branch
        raise KeyError((one, other))


def _grid(view: View, variables: frozenset[str]) -> PointGrid:
    einsum = view.einsum
    names = [v for v in einsum.rank_variables if v in variables]
    extents = [einsum.bound(v)[1] - einsum.bound(v)[0] + 1 for v in names]
    if prod(extents) > _POINTS:
        tied = f"rank variables {', '.join(names)} of Einsum {einsum.name} are tied together"
        raise unfollowed(f"{tied} and have {prod(extents):,} points")
    if names:
        grid = np.indices(extents, dtype=np.int64).reshape(len(extents), -1)
    else:
        grid = np.zeros((0, 1), dtype=np.int64)
    values = {v: grid[i] + einsum.bound(v)[0] for i, v in enumerate(names)}
    keep = np.ones(grid.shape[1], dtype=bool)
    for c in essential_constraints(einsum):
        if c.expr.variables and set(c.expr.variables) <= variables:
            keep &= satisfied(c, values, grid.shape[1])
    values = {v: a[keep] for v, a in values.items()}
    return PointGrid(values, _axes(view, values), int(keep.sum()))


def _executed(view: View, variables: frozenset[str], loops: frozenset[int]) -> PointGrid:
    """Return the grid of an Einsum whose executed iterations are given as parts: their combinations."""
    values: dict[str, Ints] = {}
    axes: dict[int, Ints] = {}
    position = {node: i for i, (node, _, _) in enumerate(view.loops)}
    count = 1
    for part in view.parts:
        if not (loops & set(part.loops) or variables & set(part.variables)):
            continue
        points = listed_points(part.text)
        more = len(points)
        if count * more > _POINTS:
            raise unfollowed(f"iterations of Einsum {view.einsum.name} that are tied together are too many")
        values = {v: np.repeat(c, more) for v, c in values.items()}
        axes = {i: np.repeat(c, more) for i, c in axes.items()}
        columns = iter([np.tile(c, count) for c in points.T])
        axes |= {position[node]: next(columns) for node in part.loops}
        values |= {v: next(columns) for v in part.variables}
        offsets = {v: next(columns) for v in part.variables}
        axes |= {i: offsets[v] for i, v in enumerate(view.offsets, start=len(view.loops)) if v in offsets}
        count *= more
    return PointGrid(values, axes, count)


def _axes(view: View, values: dict[str, Ints]) -> dict[int, Ints]:
    """Counters of the loops over these variables, and offsets in their innermost tiles."""
    starts: dict[str, Ints] = {}
    axes = {}
    for i, (_, loop, origin) in enumerate(view.loops):
        v = loop.variable_in(view.einsum.name)
        if v in values:
            base = starts.get(v, np.full(len(values[v]), origin, dtype=np.int64))
            axes[i], starts[v] = counter_of(values[v] - base, base, loop)
    for i, v in enumerate(view.offsets, start=len(view.loops)):
        if v in values:
            axes[i] = values[v] - starts.get(v, np.zeros_like(values[v]))
    return axes
