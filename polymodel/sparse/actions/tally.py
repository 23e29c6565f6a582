"""Count transfers, and those whose leaders' parts hold a nonzero, as sums over classes of equal tiles.

Every rank variable is an axis. Its values are grouped into atoms (the values that one transfer covers). Atoms
with equal relevant properties form one class, so that the sums run over few combinations of classes, whatever
the sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from itertools import pairwise
from math import prod
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from polymodel.arithmetic import Affine
from polymodel.errors import Refused
from polymodel.frozen import dataclass
from polymodel.sparse.actions.counters import Counters, Ints, digit_columns, distinct_rows, group_numbers
from polymodel.sparse.actions.join import MOST_ROWS, GroupTable, weighted_count
from polymodel.sparse.actions.join import VariableParts as JoinAxis
from polymodel.sparse.actions.links import POINT, Condition, EinsumLinks, TransferEdge, UsedElements
from polymodel.sparse.actions.points import points_of
from polymodel.sparse.actions.reach import Inner, Meeting, inner
from polymodel.sparse.tensor import SparseTensor
from polymodel.workload.einsum import TensorAccess

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
MOST_CLASSES = 5_000_000
OWN = -1  # denotes the tensor itself among the numbers of conditions


class KnownNonzeros(Protocol):
    """What is known of the nonzeros of one tensor: `actual` where they are given."""

    @property
    def density(self) -> float: ...

    @property
    def actual(self) -> SparseTensor | None: ...

    def nonempty(self, extents: tuple[Ints, ...]) -> Floats:
        """Return the probability that a tile holds a nonzero, for arrays of extents, one per rank of the
        tensor."""


@dataclass(frozen=True)
class Atoms:
    """One axis: the parts of a rank variable that one transfer covers, one entry per atom.

    `extent`: number of values in the atom. `read`, `write`: whether the atom represents all atoms that share
    its read, or its residency. `first`, `here`: per level of the chain, see `LinkTally.partial`. `sizes`,
    `groups`: size and number of each condition's part, by the condition's number; `solid`: whether the values
    of its parts are consecutive. Where they are not, `offsets` are the sets of their values from 0 on, and
    `shapes` the number of the part's set. `inner`: what joint conditions examine.
    """

    variable: str
    extent: Ints
    read: Bools
    write: Bools
    first: tuple[Bools, ...]
    here: tuple[Bools, ...]
    sizes: dict[int, Ints]
    groups: dict[int, Ints]
    solid: dict[int, bool]
    shapes: dict[int, Ints]
    offsets: dict[int, tuple[Ints, ...]]
    inner: dict[int, Inner]

    def labels(self) -> tuple[Ints, Ints]:
        """Return the class of each atom, and one atom of each class."""
        columns = [
            self.extent,
            self.read,
            self.write,
            *self.first,
            *self.here,
            *self.sizes.values(),
            *self.shapes.values(),
        ]
        columns += [c for x in self.inner.values() for c in x.columns]
        first, numbers = distinct_rows([c.astype(np.int64) for c in columns], self.extent.size)
        return numbers, first


class LinkTally:
    """Sums over the transfers of one link, the last one of `chain` (if it is empty, over the operations of
    the Einsum). `pointwise`: tensors of whose parts only the number of points matters."""

    def __init__(
        self,
        structure: EinsumLinks,
        chain: Sequence[TransferEdge],
        conditions: Sequence[Condition | Meeting],
        by_value: bool,
        pointwise: Collection[str] = (),
    ) -> None:
        self.structure = structure
        self.pointwise = pointwise
        self.chain = tuple(chain)
        self.conditions = tuple(conditions)
        self.by_value = by_value
        self.link = chain[-1] if chain else None
        self.used = self.link.used if self.link else None
        own = set(self.used.variables) if self.used else set()
        self.axes = tuple(self._atoms(c, c.variable in own) for c in structure.counters)
        made = [a.labels() for a in self.axes]
        self.labels = tuple(m[0] for m in made)
        self.picks = tuple(m[1] for m in made)
        if prod(p.size for p in self.picks) > MOST_CLASSES:
            message = f"{structure.name}: tiles come in {prod(p.size for p in self.picks):,} different sizes"
            raise Refused(message, "choose tile sizes that divide", code="too-large")

    def _atoms(self, counters: Counters, own: bool) -> Atoms:
        leaders = {x for c in self.conditions for x in c.leaders}
        variables = {x: self.structure.led(x).variables for x in leaders}
        every = frozenset((POINT, *(i for i, _ in counters.loops)))
        fine = every if self.link is None or (own and self.by_value) else self.link.fine
        numbers = group_numbers(digit_columns(counters, fine), counters.size)
        pick, extent = np.unique(numbers, return_index=True)[1], np.bincount(numbers)
        sizes, groups, solid, meets = {}, {}, {}, {}
        shapes, offsets = {}, {}
        for i, condition in enumerate(self.conditions):
            if counters.foreign or not any(counters.variable in variables[t] for t in condition.leaders):
                continue
            if isinstance(condition, Meeting):
                meets[i] = inner(counters, condition).at(pick)
            parts = group_numbers(digit_columns(counters, condition.digits), counters.size)
            counts = np.bincount(parts)
            sizes[i], groups[i] = counts[parts][pick], parts[pick]
            solid[i] = bool((np.diff(parts) >= 0).all())
            if isinstance(condition, Meeting) or solid[i] or condition.leader not in self.pointwise:
                continue
            kinds, offsets[i] = offsets_of(parts)
            shapes[i] = kinds[parts][pick]
        if counters.foreign:
            extent = np.ones(pick.size, np.int64)
        reads = writes = np.ones(pick.size, np.bool_)
        if self.link is not None and not own:
            reads = _leading(counters, self.link.read, pick)
            writes = _leading(counters, self.link.write, pick)
        zero = {x: k[pick] == 0 for (x, _), k in zip(counters.loops, counters.counters, strict=True)}
        zero[POINT] = counters.offset[pick] == 0
        flagged = self.link is not None and not own and not counters.foreign
        first = tuple(_all(zero, x.fresh, pick.size) for x in self.chain) if flagged else ()
        here = tuple(_all(zero, x.shared - x.everyone, pick.size) for x in self.chain) if flagged else ()
        return Atoms(
            counters.variable,
            extent.astype(np.int64),
            reads,
            writes,
            first,
            here,
            sizes,
            groups,
            solid,
            shapes,
            offsets,
            meets,
        )

    def _spread(self, number: int, column: NDArray[np.generic]) -> NDArray[np.generic]:
        """Return a column of one axis's classes, shaped so that the columns of different axes broadcast."""
        shape = [1] * len(self.axes)
        shape[number] = -1
        return column[self.picks[number]].reshape(shape)

    def _whole(self, number: int, column: Ints) -> Ints:
        return self._spread(number, column).astype(np.int64)

    def _any(self, columns: Sequence[tuple[int, Bools]], all_of: bool) -> Bools:
        result = np.full([1] * len(self.axes), all_of)
        for number, column in columns:
            part = self._spread(number, column).astype(np.bool_)
            result = result & part if all_of else result | part
        return result

    def partial(self) -> Bools:
        """Return True where the parent holds a partial sum: a counter of a reduction since the element
        arrived is not 0, or the element arrived at this instance as a partial sum. The result has one entry
        per combination of classes."""
        held = np.zeros([1] * len(self.axes), np.bool_)
        for level, link in enumerate(self.chain):
            if level:
                here = [(n, a.here[level - 1]) for n, a in enumerate(self.axes) if a.here]
                held = held & self._any(here, True)
            moved = [(n, ~a.first[level]) for n, a in enumerate(self.axes) if a.first]
            held = held | self._any(moved, False)
            if link.read_first:
                held = np.ones_like(held)
        return held

    def receives(self) -> Bools:
        """Return True where the child is the instance that receives a partial sum."""
        return self._any([(n, a.here[-1]) for n, a in enumerate(self.axes) if a.here], True)

    def masks(self, side: str) -> Bools:
        """Return a mask that counts each access once: each `read` at the parent, each `write` at the child,
        or `all` operations."""
        if side == "all":
            return np.ones([1] * len(self.axes), np.bool_)
        return self._any([(n, getattr(a, side)) for n, a in enumerate(self.axes)], True)

    def counts(self) -> Floats:
        """Return the number of atoms in each combination of classes."""
        result = np.ones([1] * len(self.axes))
        for n, labels in enumerate(self.labels):
            shape = [1] * len(self.axes)
            shape[n] = -1
            result = result * np.bincount(labels).reshape(shape)
        return result

    def elements(self) -> Floats:
        """Return the number of elements of the tensor in one transfer of each combination; 1 for
        operations."""
        result = np.ones([1] * len(self.axes))
        if self.used is None:
            return result
        assert self.used.union is not None, "elements that do not stand evenly apart are listed"
        for expression, extents in self._extents(self.used, {a.variable: a.extent for a in self.axes}):
            result = result * window(expression, extents)
        return result

    def _extents(
        self, used: UsedElements, sizes: Mapping[str, Ints]
    ) -> Iterator[tuple[Affine, tuple[Ints, ...]]]:
        """Yield, for each rank, the index expression and the number of values of each of its variables, by
        classes."""
        at, spans = {a.variable: n for n, a in enumerate(self.axes)}, dict(used.spans)
        for expression in used.union.projection if used.union is not None else ():
            yield (
                expression,
                tuple(
                    self._whole(at[v], sizes[v]) if v in at else np.full([1] * len(self.axes), spans[v])
                    for v in expression.variables
                ),
            )

    def part(self, condition: Condition) -> tuple[Ints, ...]:
        """Return the extents of a condition's part per rank of its leader, with one entry per combination of
        classes."""
        at = {a.variable: n for n, a in enumerate(self.axes)}
        number = self.conditions.index(condition)
        used = self.structure.led(condition.leader)
        access = used.union
        if access is None:
            raise Refused(
                f"{self.structure.name}: the elements that are used of {condition.leader} do not stand "
                "evenly apart: points of its tiles are not counted",
                f"give the nonzeros of {condition.leader}, or leave out the action",
                code="unsupported-window",
            )
        if sum(len(x.variables) for x in access.projection) > len(access.variables):
            raise Refused(
                f"{self.structure.name}: one rank variable indexes two ranks of {condition.leader}: points "
                "of its tiles are not counted",
                f"give the nonzeros of {condition.leader}, or leave out the action",
                code="unsupported-window",
            )
        result = []
        sizes = {a.variable: a.sizes[number] for a in self.axes if number in a.sizes}
        for expression, extents in self._extents(used, sizes):
            names = [v for v in expression.variables if v in at]
            if len(expression.variables) < 2 or all(self.axes[at[v]].solid[number] for v in names):
                result.append(window(expression, extents))
            elif self._counts_points(condition.leader):
                result.append(self._gapped_window(expression, extents, number))
            else:
                message = f"{self.structure.name}: what is used of {condition.leader} has gaps"
                remedy = "let the spatial loop be no part of its ranks, or leave out the action"
                raise Refused(message, remedy, code="unsupported-window")
        return tuple(result)

    def _counts_points(self, leader: str) -> bool:
        """Return whether the points of a part with gaps say all: of a tensor with a law of points, whose
        parts lie inside one another, so that none is the intersection of two windows."""
        mine = sorted((c.digits for c in self.conditions if c.leaders == (leader,)), key=len)
        nested = all(a <= b for a, b in pairwise(mine))
        return leader in self.pointwise and nested

    def _gapped_window(self, expression: Affine, extents: tuple[Ints, ...], number: int) -> Ints:
        """Return the number of distinct values of an expression, of whose variables some take values with
        gaps in the part of this condition."""
        axes = {a.variable: (n, a) for n, a in enumerate(self.axes)}
        kinds: list[Ints] = []
        values: list[Callable[[int], Ints]] = []
        for variable, extent in zip(expression.variables, extents, strict=True):
            n, atoms = axes.get(variable, (0, None))
            if atoms is None or number not in atoms.shapes:
                kinds.append(extent)
                values.append(np.arange)
            else:
                kinds.append(self._whole(n, atoms.shapes[number]))
                values.append(atoms.offsets[number].__getitem__)
        return distinct_values(expression, tuple(kinds), values)

    def joint_parts(self, meeting: Meeting) -> tuple[Ints, tuple[Ints, ...], Ints]:
        """Return the number of parts, the points of the largest part of each leader, and whether all parts
        are equal, with one entry per combination of classes."""
        number = self.conditions.index(meeting)
        every = np.ones([1] * len(self.axes), np.int64)
        parts, even, points = every, every, [every] * len(meeting.leaders)
        for n, atoms in enumerate(self.axes):
            if number not in atoms.inner:
                continue
            found = atoms.inner[number]
            parts = parts * self._whole(n, found.parts)
            even = even * self._whole(n, found.even)
            for k, leader in enumerate(meeting.leaders):
                if atoms.variable in self.structure.led(leader).variables:
                    points[k] = points[k] * self._whole(n, found.extents[k])
        return parts, tuple(points), even

    def actual(
        self, counted: Bools, factor: Floats, tables: dict[int, GroupTable], own: GroupTable | None
    ) -> float:
        """Return the sum where the nonzeros of leaders (by number of condition), and possibly of the tensor
        itself, are given.

        `counted` and `factor` have one entry per combination of classes. The result is an int where every
        factor is 1.
        """
        shape = [p.size for p in self.picks]
        full, weight = np.broadcast_to(counted, shape), np.broadcast_to(factor, shape)
        # The rows of the tensor's own table are its elements; without it the tiles' extents count them.
        elements = np.broadcast_to(self.elements() if own is None else np.ones(()), shape)
        chosen = [*tables, *([OWN] if own is not None else [])]
        listed = [*tables.values(), *([own] if own is not None else [])]
        total, whole = 0.0, 0
        for combination in np.argwhere(full):
            axes = {}
            for n, (atoms, labels) in enumerate(zip(self.axes, self.labels, strict=True)):
                groups = {
                    k: np.arange(atoms.extent.size) if c == OWN else atoms.groups[c]
                    for k, c in enumerate(chosen)
                    if atoms.variable in listed[k].variables
                }
                axes[atoms.variable] = JoinAxis((labels == combination[n]).astype(np.int64), groups)
            at = tuple(combination)
            count = weighted_count(listed, axes) * round(float(elements[at]))
            if weight[at] == 1:
                whole += count
            else:
                total += count * float(weight[at])
        return whole + total if total else whole


def region_table(
    structure: EinsumLinks,
    used: UsedElements,
    digits: Set[int | str],
    data: SparseTensor,
    each: bool = False,
) -> GroupTable:
    """Return which tiles of a tensor (distinguished by these loops) hold a nonzero in any of its accesses;
    POINT with all loops gives single values. `each`: return a row for each nonzero of a tile, numbered by an
    additional column that belongs to no rank variable. Raises Refused where there are too many to list."""
    first, *others = (_region(structure, a, digits, data, each) for a in used.accesses)
    if not others:
        return first
    names = (*used.variables, *([""] if each else []))
    sizes = {
        c.variable: int(group_numbers(digit_columns(c, digits), c.size).max()) + 1
        for c in structure.counters
        if c.variable in used.variables
    }
    rows = [_spread_rows(t, names, sizes) for t in (first, *others)]
    ids = [np.concatenate(columns) for columns in zip(*rows, strict=True)]
    return GroupTable.of(names, ids, ids[0].size)


def _spread_rows(table: GroupTable, names: Sequence[str], sizes: Mapping[str, int]) -> list[Ints]:
    """Return the columns with these names. For columns that the table lacks, each row is combined with every
    number."""
    missing = [v for v in names if v not in table.variables]
    count = prod(sizes[v] for v in missing)
    if table.rows * count > MOST_ROWS:
        message = f"matching coordinates needs {table.rows * count:,} rows"
        raise Refused(message, "describe one of the tensors by its density instead", code="too-large")
    column = {v: np.repeat(ids, count) for v, ids in zip(table.variables, table.ids, strict=True)}
    grid = np.indices([sizes[v] for v in missing]).reshape(len(missing), count)
    column |= {v: np.tile(row, table.rows) for v, row in zip(missing, grid, strict=True)}
    return [column[v] for v in names]


def _region(
    structure: EinsumLinks, access: TensorAccess, digits: Set[int | str], data: SparseTensor, each: bool
) -> GroupTable:
    """Return the same table as `region_table`, for one access."""
    by_name = {c.variable: c for c in structure.counters}
    points = points_of(structure.einsum, access, data)
    ids, different = [], True
    for variable, at in zip(points.variables, points.columns, strict=True):
        counters = by_name[variable]
        groups = group_numbers(digit_columns(counters, digits), counters.size)
        whole = int(groups.max()) + 1 == counters.size
        different = different and whole
        ids.append(at if whole else groups[at])
    if each:
        ids.append(np.arange(points.rows) if points.nonzero is None else points.nonzero)
        return GroupTable.of([*points.variables, ""], ids, points.rows, different or points.nonzero is None)
    return GroupTable.of(points.variables, ids, points.rows, different)


def _leading(counters: Counters, digits: frozenset[int], pick: Ints) -> Bools:
    """Mark the first one of the atoms that share these counters."""
    numbers = group_numbers(digit_columns(counters, digits), counters.size)[pick]
    result = np.zeros(pick.size, np.bool_)
    # Atoms are numbered outer loop first, so the least is the one with the least counters.
    result[np.unique(numbers, return_index=True)[1]] = True
    return result


def _all(zero: dict[int, Bools], digits: frozenset[int], size: int) -> Bools:
    result = np.ones(size, np.bool_)
    for i in digits:
        if i in zero:
            result &= zero[i]
    return result


def window(expression: Affine, extents: tuple[NDArray[np.generic], ...]) -> Ints:
    """Return the number of distinct values of an affine expression over boxes of these extents."""
    if not extents:
        return np.ones(1, np.int64)
    if len(extents) == 1:
        return extents[0].astype(np.int64)
    return distinct_values(expression, extents, [np.arange] * len(extents))


def distinct_values(
    expression: Affine, kinds: tuple[NDArray[np.generic], ...], values: Sequence[Callable[[int], Ints]]
) -> Ints:
    """Return the number of distinct values of an affine expression. `values`: for each of its variables the
    values that it takes, from 0 on, by its entry in `kinds`."""
    shape = np.broadcast_shapes(*(k.shape for k in kinds))
    full = np.array([np.broadcast_to(k, shape).reshape(-1) for k in kinds], dtype=np.int64)
    several, back = np.unique(full, axis=1, return_inverse=True)
    sizes = np.empty(several.shape[1], np.int64)
    for i, each in enumerate(several.T.tolist()):
        found = np.zeros(1, np.int64)
        for (_, stride), kind, taken in zip(expression.terms, each, values, strict=True):
            found = np.unique(np.add.outer(found, stride * taken(kind)))
        sizes[i] = found.size
    return sizes[back.reshape(-1)].reshape(shape)


def offsets_of(parts: Ints) -> tuple[Ints, tuple[Ints, ...]]:
    """Return, for each part, which one of several sets of offsets its values have, and these sets. `parts`:
    the part of each value."""
    order, counts = np.argsort(parts, kind="stable"), np.bincount(parts)
    begins = np.cumsum(counts) - counts
    kinds = np.zeros(counts.size, np.int64)
    found: list[Ints] = []
    for size in np.unique(counts).tolist():
        which = np.flatnonzero(counts == size)
        rows = order[begins[which][:, None] + np.arange(size)]
        different, back = np.unique(rows - rows[:, :1], axis=0, return_inverse=True)
        kinds[which] = back.reshape(-1) + len(found)
        found += list(different)
    return kinds, tuple(found)
