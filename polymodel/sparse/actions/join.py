"""Count the combinations of values that satisfy several tables at once, as sums of products over sparse
relations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from polymodel.errors import Refused
from polymodel.frozen import dataclass
from polymodel.sparse.actions.counters import Ints, group_numbers

# The most rows of an intermediate product of tables.
MOST_ROWS = 50_000_000
# Integers are exact in floats up to the first number, and fit into 64 bits up to the second.
_WHOLE, _LONG = 2.0**53, 2.0**63


@dataclass(frozen=True)
class GroupTable:
    """A relation between groups of values of several rank variables, with one array of `ids` per variable.

    If `weights` is None, every row counts once and no two rows are equal.
    """

    variables: tuple[str, ...]
    ids: tuple[Ints, ...]
    rows: int
    weights: Ints | None = None

    @staticmethod
    def of(variables: Sequence[str], ids: Sequence[Ints], rows: int, different: bool = False) -> GroupTable:
        """Return a table of the distinct rows. `different`: the rows are known to be distinct."""
        result = GroupTable(tuple(variables), tuple(ids), rows)
        if different or not rows:
            return result
        numbers = group_numbers(list(ids), rows)
        first = _firsts(numbers)
        return GroupTable(tuple(variables), tuple(column[first] for column in ids), first.size)

    def column(self, variable: str) -> Ints:
        return self.ids[self.variables.index(variable)]

    def weighed(self) -> Ints:
        return np.ones(self.rows, np.int64) if self.weights is None else self.weights

    def total(self) -> int:
        """Return the exact sum of all weights."""
        return self.rows if self.weights is None else _sum(self.weights)

    def without(self, variables: Sequence[str]) -> GroupTable:
        """Remove these variables, and add the weights of rows that become equal."""
        kept = [i for i, v in enumerate(self.variables) if v not in variables]
        if len(kept) == len(self.variables) or not self.rows:
            return GroupTable(
                tuple(self.variables[i] for i in kept),
                tuple(self.ids[i] for i in kept),
                self.rows,
                self.weights,
            )
        numbers = group_numbers([self.ids[i] for i in kept], self.rows)
        first = _firsts(numbers)
        ids = tuple(self.ids[i][first] for i in kept)
        weights = _added(numbers, self.weights, first.size)
        return GroupTable(tuple(self.variables[i] for i in kept), ids, first.size, weights)


def _firsts(numbers: Ints) -> Ints:
    """Return the first index of every number. The numbers are 0, 1, 2, ... without gaps."""
    result = np.empty(int(numbers.max(initial=-1)) + 1, np.int64)
    result[numbers[::-1]] = np.arange(numbers.size - 1, -1, -1)
    return result


def _added(numbers: Ints, weights: Ints | None, count: int) -> Ints:
    """Return the exact sum of the weights of each number."""
    if weights is None:
        return np.bincount(numbers, minlength=count)
    if float(np.abs(weights).astype(np.float64).sum()) < _WHOLE:
        return np.rint(np.bincount(numbers, weights, count)).astype(np.int64)
    result = np.zeros(count, np.int64)
    np.add.at(result, numbers, weights)
    return result


def _sum(weights: Ints) -> int:
    if float(np.abs(weights.astype(np.float64)).sum()) < _LONG:
        return int(weights.sum())
    return sum(weights.tolist())


@dataclass(frozen=True)
class VariableParts:
    """A partition of the values of one rank variable. `weights`: the number of values in each part. `groups`:
    for each table, the group that every part belongs to."""

    weights: Ints
    groups: Mapping[int, Ints]


def weighted_count(tables: Sequence[GroupTable], axes: Mapping[str, VariableParts]) -> int:
    """Sum the product of the weights of one part per axis, over all combinations whose groups are in every
    table.

    Raises Refused for products whose intermediate results would need more than 5e7 rows.
    """
    total, waiting = prepared(tables, axes)
    if not total:
        return 0
    if len(waiting) < 2:
        return total * (waiting[0].total() if waiting else 1)
    shared = [[v for v in t.variables if sum(v in o.variables for o in tables) > 1] for t in tables]
    result = [t.without([v for v in t.variables if v not in s]) for t, s in zip(waiting, shared, strict=True)]
    return total * joined_rows(result).total()


def prepared(tables: Sequence[GroupTable], axes: Mapping[str, VariableParts]) -> tuple[int, list[GroupTable]]:
    """Return a factor that all rows have in common, and the tables with the remaining weights in their rows
    and with shared variables refined to common parts."""
    total = 1
    waiting = list(tables)
    for variable, axis in axes.items():
        users = [k for k, t in enumerate(tables) if variable in t.variables]
        if not users:
            total *= _sum(axis.weights)
        elif len(users) == 1:
            waiting[users[0]], each = _weighed(waiting[users[0]], variable, axis, users[0])
            total *= each
        else:
            _share(waiting, users, variable, axis)
    return total, waiting


def _weighed(table: GroupTable, variable: str, axis: VariableParts, number: int) -> tuple[GroupTable, int]:
    """Fold the weights of a variable that no other table has into the rows. A weight that is equal for all
    rows is returned as a factor."""
    column, groups = table.column(variable), axis.groups[number]
    count = max(int(groups.max(initial=-1)), int(column.max(initial=-1))) + 1
    each = _added(groups, axis.weights, count)
    if not each.size:
        return table, 1
    if each[0] == each[-1] and (each == each[0]).all():
        return table, int(each[0])
    weights = table.weighed() * each[column]
    if not (each == 0).any():
        return GroupTable(table.variables, table.ids, table.rows, weights), 1
    kept = np.flatnonzero(weights)
    return GroupTable(table.variables, tuple(c[kept] for c in table.ids), kept.size, weights[kept]), 1


def _share(tables: list[GroupTable], users: list[int], variable: str, axis: VariableParts) -> None:
    """Replace the groups of a variable that several tables have by common parts. Their weights go into the
    first table."""
    some = np.flatnonzero(axis.weights)
    numbers = group_numbers([axis.groups[k][some] for k in users], some.size)
    first = _firsts(numbers)
    weights = _added(numbers, axis.weights[some], first.size)
    for place, k in enumerate(users):
        table = tables[k]
        at = table.variables.index(variable)
        groups = axis.groups[k][some][first]
        ids, found = _refined(table, at, groups)
        if place == 0 and not (weights == 1).all():
            found = (np.ones(ids[at].size, np.int64) if found is None else found) * weights[ids[at]]
        tables[k] = GroupTable(table.variables, ids, ids[at].size, found)


def _refined(table: GroupTable, at: int, groups: Ints) -> tuple[tuple[Ints, ...], Ints | None]:
    """Repeat each row for each part (by its number) of its group. Parts that belong to no row are left
    out."""
    column = table.ids[at]
    count = max(int(groups.max(initial=-1)), int(column.max(initial=-1))) + 1
    sizes = np.bincount(groups, minlength=count)
    if (sizes <= 1).all():
        part = np.full(count, -1, np.int64)
        part[groups] = np.arange(groups.size)
        fine = part[column]
        if (fine >= 0).all():
            return (*table.ids[:at], fine, *table.ids[at + 1 :]), table.weights
        kept = np.flatnonzero(fine >= 0)
        ids = tuple((fine if i == at else c)[kept] for i, c in enumerate(table.ids))
        return ids, None if table.weights is None else table.weights[kept]
    order = np.argsort(groups, kind="stable")
    starts = np.cumsum(sizes) - sizes
    rows, picked = _runs(starts[column], starts[column] + sizes[column])
    ids = tuple(order[picked] if i == at else c[rows] for i, c in enumerate(table.ids))
    return ids, None if table.weights is None else table.weights[rows]


def _runs(low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Repeat row i high[i] - low[i] times, and return beside it the numbers from low[i] to high[i] - 1."""
    lengths = high - low
    total = int(lengths.sum())
    if total > MOST_ROWS:
        message = f"matching coordinates needs {total:,} rows"
        raise Refused(message, "describe one of the tensors by its density instead", code="too-large")
    rows = np.repeat(np.arange(low.size), lengths)
    starts = np.cumsum(lengths) - lengths
    return rows, np.arange(total, dtype=np.int64) - starts[rows] + low[rows]


def joined_rows(tables: Sequence[GroupTable], kept: Sequence[str] = ()) -> GroupTable:
    """Join one or more tables pair by pair. Return the distinct rows of the variables in `kept`, with weights
    added.

    Other variables are summed out as soon as no remaining table has them.
    """
    waiting = list(tables)
    first = waiting.pop(0)
    while waiting:
        at = next((i for i, t in enumerate(waiting) if set(t.variables) & set(first.variables)), 0)
        second = waiting.pop(at)
        later = {v for t in waiting for v in t.variables} | set(kept)
        shared = [v for v in first.variables if v in second.variables]
        first = first.without([v for v in first.variables if v not in shared and v not in later])
        second = second.without([v for v in second.variables if v not in shared and v not in later])
        if set(first.variables) == set(second.variables) == set(shared) and not later & set(shared):
            return _matched(first, second, shared, waiting)
        first = _pair(first, second, shared)
        first = first.without([v for v in first.variables if v not in later])
    return first.without([v for v in first.variables if v not in kept])


def _keys(first: GroupTable, second: GroupTable, shared: Sequence[str]) -> tuple[Ints, Ints, int]:
    """Number the rows so that rows that agree in the shared variables have equal numbers, and return how many
    numbers there are."""
    both = [np.concatenate((first.column(v), second.column(v))) for v in shared]
    keys = group_numbers(both, first.rows + second.rows)
    return keys[: first.rows], keys[first.rows :], int(keys.max(initial=-1)) + 1


def _matched(
    first: GroupTable, second: GroupTable, shared: Sequence[str], waiting: list[GroupTable]
) -> GroupTable:
    """Join two tables with the same variables, none of which is needed any more: the result is a sum of
    products, without listing rows."""
    a, b, count = _keys(first, second, shared)
    sums = _added(a, first.weights, count), _added(b, second.weights, count)
    if float((sums[0].astype(np.float64) * sums[1].astype(np.float64)).sum()) < _LONG:
        total = int((sums[0] * sums[1]).sum())
    else:
        total = sum(x * y for x, y in zip(*(s.tolist() for s in sums), strict=True))
    rest = joined_rows(waiting).total() if waiting else 1
    return GroupTable(
        (), (), 1, np.array([total * rest], dtype=object if total * rest >= _LONG else np.int64)
    )


def _pair(first: GroupTable, second: GroupTable, shared: Sequence[str]) -> GroupTable:
    a, b, count = _keys(first, second, shared)
    order = np.argsort(b, kind="stable")
    sizes = np.bincount(b, minlength=count)
    starts = np.cumsum(sizes) - sizes
    rows, picked = _runs(starts[a], starts[a] + sizes[a])
    mates = order[picked]
    others = [i for i, v in enumerate(second.variables) if v not in shared]
    ids = (*(c[rows] for c in first.ids), *(second.ids[i][mates] for i in others))
    names = (*first.variables, *(second.variables[i] for i in others))
    weights = None
    if first.weights is not None or second.weights is not None:
        weights = first.weighed()[rows] * second.weighed()[mates]
    return GroupTable(names, ids, rows.size, weights)
