"""All operations of a small problem as arrays in time order, for element-level lifetimes.

Vectorised; used where factored counts do not apply. Raises Refused for more than two million operations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from polymodel.analysis.exact.buffets import ExactBuffet, ExactLayout
from polymodel.arithmetic import Affine, Constraint
from polymodel.errors import Refused
from polymodel.integers import linear
from polymodel.mapping.looptree import Loop, Split
from polymodel.polyhedra.sets import listed_points
from polymodel.schedule.touch import View
from polymodel.workload.einsum import TensorAccess

Ints = NDArray[np.int64]
_OPERATIONS = 2_000_000
_REMEDY = "use a smaller workload, or ask for `allocation: tile`, which lists no iterations"


@dataclass(frozen=True)
class OperationTable:
    """The operations of one Einsum: values per rank variable, counters per loop, offsets, phase ids."""

    view: View
    values: dict[str, Ints]
    counters: tuple[Ints, ...]
    offsets: tuple[Ints, ...]

    @property
    def count(self) -> int:
        return len(next(iter(self.values.values()))) if self.values else 1

    def elements(self, access: TensorAccess) -> Ints:
        """The element that each operation touches, one row of ranks each."""
        ranks = []
        for expr in access.projection:
            ranks.append(coordinates(expr, self.values, self.count))
        return stacked(ranks, self.count)


def coordinates(expr: Affine, values: Mapping[str, Ints], count: int) -> Ints:
    """An affine expression at `count` points. Raises Refused if int64 may overflow."""
    result = linear(expr.constant, [(k, values[v]) for v, k in expr.terms], count)
    if result.dtype == object:
        message = f"coordinates {expr} exceed 62 bits: their elements cannot be listed"
        raise Refused(message, _REMEDY, code="number-too-large")
    return result


def satisfied(constraint: Constraint, values: Mapping[str, Ints], count: int) -> NDArray[np.bool_]:
    """Whether each of `count` points satisfies a constraint."""
    expr = constraint.expr
    total = linear(expr.constant, [(k, values[v]) for v, k in expr.terms], count)
    if constraint.kind == "ge":
        return np.asarray(total >= 0, dtype=bool)
    return np.asarray((total if constraint.kind == "eq" else total % constraint.modulus) == 0, dtype=bool)


def operations(view: View) -> OperationTable:
    """Every executed iteration of the view's Einsum, with repetitions."""
    if view.parts:
        return _executed(view)
    einsum = view.einsum
    extents = [high - low + 1 for low, high in einsum.bounds]
    if prod(extents) > _OPERATIONS:
        message = f"Einsum {einsum.name} has {prod(extents):,} iterations: too many to list one by one"
        raise Refused(message, _REMEDY, code="too-large")
    grid = np.indices(extents, dtype=np.int64).reshape(len(extents), -1)
    values = {v: grid[i] + einsum.bounds[i][0] for i, v in enumerate(einsum.rank_variables)}
    keep = np.ones(grid.shape[1], dtype=bool)
    for c in (*einsum.constraints, *view.access.guard):
        keep &= satisfied(c, values, grid.shape[1])
    values = {v: a[keep] for v, a in values.items()}
    starts: dict[str, Ints] = {}
    counters = []
    for _, loop, origin in view.loops:
        v = loop.variable_in(einsum.name)
        base = starts.get(v, np.full(len(values[v]), origin, dtype=np.int64))
        counter, starts[v] = counter_of(values[v] - base, base, loop)
        counters.append(counter)
    offsets = tuple(values[v] - starts.get(v, np.zeros_like(values[v])) for v in view.offsets)
    return OperationTable(view, values, tuple(counters), offsets)


def _executed(view: View) -> OperationTable:
    """The operations of an Einsum whose executed iterations are given as parts: all combinations."""
    tables = [listed_points(part.text) for part in view.parts]
    count = prod(len(t) for t in tables)
    if count > _OPERATIONS:
        message = f"Einsum {view.einsum.name} has {count:,} operations: too many to list one by one"
        raise Refused(message, _REMEDY, code="too-large")
    grid = np.indices([len(t) for t in tables], dtype=np.int64).reshape(len(tables), -1)
    values: dict[str, Ints] = {}
    offsets: dict[str, Ints] = {}
    counters: dict[int, Ints] = {}
    for part, table, rows in zip(view.parts, tables, grid, strict=True):
        columns = iter(table[rows].T)
        counters.update((i, next(columns)) for i in part.loops)
        values.update((v, next(columns)) for v in part.variables)
        offsets.update((v, next(columns)) for v in part.variables)
    ordered = tuple(counters[i] for i, _, _ in view.loops)
    return OperationTable(view, values, ordered, tuple(offsets[v] for v in view.offsets))


def counter_of(inside: Ints, base: Ints, loop: Loop) -> tuple[Ints, Ints]:
    """Counter of a loop and start of its tile, for values `inside` an enclosing one that starts at `base`."""
    tile, initial = int(loop.tile_shape), loop.initial_tile_shape
    first = tile if initial is None else int(initial)
    counter = np.where(inside < first, 0, 1 + (inside - first) // tile)
    return counter, base + np.where(counter == 0, 0, first + (counter - 1) * tile)


@dataclass(frozen=True)
class BuffetUses:
    """Uses of one buffet: per row one (instance, visit, element, phase); visits ranked in time order."""

    node: ExactBuffet
    place: Ints
    places: Ints
    visit: Ints
    stamps: Ints
    element: Ints
    phase: Ints


class OperationTrace:
    """Operations of all Einsums with a common phase numbering."""

    def __init__(self, layout: ExactLayout) -> None:
        self.layout = layout
        tree = layout.problem.tree
        self.operations: dict[str, OperationTable] = {}
        for name in tree.einsums:
            view = next(v for (e, _), v in layout.full.items() if e == name)
            view = replace(view, access=replace(view.access, guard=()))
            self.operations[name] = operations(view)
        if sum(o.count for o in self.operations.values()) > _OPERATIONS:
            message = "the workload has too many iterations to list one by one"
            raise Refused(message, _REMEDY, code="too-large")

    @cached_property
    def phases(self) -> dict[str, Ints]:
        """Global phase id of every operation, per Einsum."""
        tree = self.layout.problem.tree
        columns: dict[str, list[Ints]] = {}
        for name, ops in self.operations.items():
            cols: list[Ints] = []
            loop_position = 0
            for step in tree.path(name):
                if isinstance(step.node, Split):
                    cols.append(np.full(ops.count, step.branch, dtype=np.int64))
                elif isinstance(step.node, Loop):
                    if not step.node.spatial:
                        cols.append(ops.counters[loop_position])
                    loop_position += 1
            columns[name] = [*cols, *ops.offsets]
        width = max((len(c) for c in columns.values()), default=0)
        table = np.concatenate(
            [
                np.stack(
                    [*c, *[np.zeros(self.operations[n].count, dtype=np.int64)] * (width - len(c))], axis=1
                )
                if width
                else np.zeros((self.operations[n].count, 0), dtype=np.int64)
                for n, c in columns.items()
            ]
        )
        ids = rank(table)
        result, at = {}, 0
        for name, ops in self.operations.items():
            result[name] = ids[at : at + ops.count]
            at += ops.count
        return result

    @cached_property
    def phase_count(self) -> int:
        return 1 + max(int(p.max()) for p in self.phases.values())

    def uses(self, node: ExactBuffet) -> BuffetUses:
        """Instance, visit, element and phase of each use of one buffet."""
        touch = node.all_touch
        stamps, places, elements, phases = [], [], [], []
        for view in node.views:
            ops = self.operations[view.einsum.name]
            made: slice | NDArray[np.bool_] = slice(None)  # a view of the columns where all of them read it
            for c in view.access.guard:
                met = satisfied(c, ops.values, ops.count)
                made = met if isinstance(made, slice) else made & met
            rows = ops.count if isinstance(made, slice) else int(made.sum())
            stamps.append(stacked([ops.counters[i][made] for i in touch.temporal], rows))
            places.append(stacked([ops.counters[i][made] for i in touch.spatial], rows))
            elements.append(ops.elements(view.access)[made])
            phases.append(self.phases[view.einsum.name][made])
        stamp = np.concatenate(stamps)
        place = np.concatenate(places)
        visit = rank(stamp)
        place_id = rank(place)
        return BuffetUses(
            node,
            place_id,
            distinct(place),
            visit,
            distinct(stamp),
            rank(np.concatenate(elements)),
            np.concatenate(phases),
        )


def stacked(columns: Sequence[Ints], rows: int) -> Ints:
    """A table of the columns, stored by columns, since its readers go by columns."""
    return np.stack(columns).T if columns else np.zeros((rows, 0), dtype=np.int64)


@dataclass(frozen=True)
class _Keys:
    """One integer below `bound` per row, in the order of the rows; `low`, `extents` per column."""

    keys: Ints
    bound: int
    low: tuple[int, ...]
    extents: tuple[int, ...]

    @staticmethod
    def of(table: Ints) -> _Keys | None:
        """None if the keys exceed 63 bits."""
        low = tuple(int(c.min()) for c in table.T)
        extents = tuple(int(c.max()) - b + 1 for c, b in zip(table.T, low, strict=True))
        if prod(extents) >= 2**63:
            return None
        keys = table[:, 0] - low[0]
        for column, b, n in zip(table.T[1:], low[1:], extents[1:], strict=True):
            keys = keys * n + (column - b)
        return _Keys(keys, prod(extents), low, extents)

    @property
    def present(self) -> NDArray[np.bool_] | None:
        """Mask of the keys that occur, if a list of all is short: much faster than sorting them."""
        if self.bound > 8 * len(self.keys) + 1024:
            return None
        result = np.zeros(self.bound, dtype=bool)
        result[self.keys] = True
        return result

    def rows(self, keys: Ints) -> Ints:
        columns = []
        for b, n in zip(reversed(self.low), reversed(self.extents), strict=True):
            keys, digit = np.divmod(keys, n)
            columns.append(digit + b)
        return stacked(columns[::-1], len(keys))


def distinct(table: Ints) -> Ints:
    """The distinct rows, sorted."""
    if table.shape[1] == 0:
        return np.zeros((1, 0), dtype=np.int64)
    if not len(table):
        return table
    result = _Keys.of(table)
    if result is None:
        return np.asarray(np.unique(table, axis=0), dtype=np.int64)
    present = result.present
    if present is not None:
        return result.rows(np.flatnonzero(present))
    keys = np.sort(result.keys)  # np.unique hashes, which is slower
    return result.rows(keys[np.diff(keys, prepend=-1) > 0])


def rank(table: Ints) -> Ints:
    """Dense lexicographic rank of the rows."""
    if table.size == 0:
        return np.zeros(table.shape[0], dtype=np.int64)
    result = _Keys.of(table)
    if result is None:
        return np.asarray(np.unique(table, axis=0, return_inverse=True)[1], dtype=np.int64).reshape(-1)
    present = result.present
    if present is None:
        return np.asarray(np.unique(result.keys, return_inverse=True)[1], dtype=np.int64).reshape(-1)
    return np.asarray((np.cumsum(present) - 1)[result.keys], dtype=np.int64)
