"""How many combinations of values satisfy several tables at once: sums of products over sparse relations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from polymodel.errors import Refused
from polymodel.sparse.actions.counters import Ints, group_numbers

# Rows that a product of three or more tables may have on the way.
MOST_ROWS = 50_000_000


@dataclass(frozen=True)
class Table:
    """Which groups of values of several rank variables go together: one row of `ids` per variable."""

    variables: tuple[str, ...]
    ids: Ints
    weights: Ints

    @staticmethod
    def of(variables: Sequence[str], ids: Ints) -> Table:
        """Different rows of these, each with weight 1."""
        unique, _ = _collapsed(ids, np.ones(ids.shape[1], np.int64))
        return Table(tuple(variables), unique, np.ones(unique.shape[1], np.int64))

    def without(self, variables: Sequence[str]) -> Table:
        """Weights of rows that differ in these variables only are added."""
        kept = [i for i, v in enumerate(self.variables) if v not in variables]
        ids, weights = _collapsed(self.ids[kept], self.weights)
        return Table(tuple(self.variables[i] for i in kept), ids, weights)


def _collapsed(ids: Ints, weights: Ints) -> tuple[Ints, Ints]:
    if not ids.shape[1]:
        return ids, weights
    if not ids.shape[0]:
        return ids[:, :1], weights.sum(keepdims=True)
    numbers = group_numbers(list(ids), ids.shape[1])
    order = np.argsort(numbers, kind="stable")
    starts = np.flatnonzero(np.concatenate(([True], np.diff(numbers[order]) != 0)))
    return ids[:, order[starts]], np.add.reduceat(weights[order], starts)


@dataclass(frozen=True)
class Axis:
    """The values of one rank variable in parts (`weights`: how often each counts), and which group of each
    table every part lies in."""

    weights: Ints
    groups: Mapping[int, Ints]


def weighted_count(tables: Sequence[Table], axes: Mapping[str, Axis]) -> int:
    """Sum over one part per axis of the product of their weights, where every table has their groups.

    Raises Refused for products of three or more tables that would need more than 5e7 rows on the way.
    """
    total = 1
    waiting = list(tables)
    for variable, axis in axes.items():
        users = [k for k, t in enumerate(tables) if variable in t.variables]
        if not users:
            total *= int(axis.weights.sum())
        elif len(users) == 1:
            waiting[users[0]] = _weighed(waiting[users[0]], variable, axis, users[0])
        else:
            _share(waiting, users, variable, axis)
    return total * _joined(waiting) if total else 0


def _weighed(table: Table, variable: str, axis: Axis, number: int) -> Table:
    """The variable is in no other table: its weights go into the rows."""
    at = table.variables.index(variable)
    groups = axis.groups[number]
    each = np.zeros(max(int(groups.max(initial=-1)), int(table.ids[at].max(initial=-1))) + 1, np.int64)
    np.add.at(each, groups, axis.weights)
    weights = table.weights * each[table.ids[at]]
    kept = weights != 0
    return Table(table.variables, table.ids[:, kept], weights[kept]).without([variable])


def _share(tables: list[Table], users: list[int], variable: str, axis: Axis) -> None:
    """The variable is in several tables: their groups become common parts, weighed in the first table."""
    some = np.flatnonzero(axis.weights)
    columns = [axis.groups[k][some] for k in users]
    parts, weights = _collapsed(np.array(columns), axis.weights[some])
    for place, k in enumerate(users):
        table = tables[k]
        at = table.variables.index(variable)
        order = np.argsort(parts[place], kind="stable")
        sorted_groups = parts[place][order]
        low = np.searchsorted(sorted_groups, table.ids[at], side="left")
        high = np.searchsorted(sorted_groups, table.ids[at], side="right")
        rows, picked = _runs(low, high)
        ids = table.ids[:, rows].copy()
        ids[at] = order[picked]
        found = table.weights[rows]
        tables[k] = Table(table.variables, ids, found * weights[ids[at]] if place == 0 else found)


def _runs(low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Row i repeated high[i] - low[i] times, beside the numbers from low[i] to high[i] - 1."""
    lengths = high - low
    total = int(lengths.sum())
    if total > MOST_ROWS:
        raise Refused(
            f"matching coordinates needs {total:,} rows", "describe one of the tensors by its density instead"
        )
    rows = np.repeat(np.arange(low.size), lengths)
    starts = np.cumsum(lengths) - lengths
    return rows, np.arange(total, dtype=np.int64) - starts[rows] + low[rows]


def _joined(tables: list[Table]) -> int:
    return int(joined_rows(tables).weights.sum()) if tables else 1


def joined_rows(tables: Sequence[Table], kept: Sequence[str] = ()) -> Table:
    """Tables joined pair by pair, one or more: the different rows of the variables in `kept`, weights added.

    Other variables are summed out as soon as no other table has them.
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
        first = _pair(first, second, shared)
        first = first.without([v for v in first.variables if v not in later])
    return first.without([v for v in first.variables if v not in kept])


def _pair(first: Table, second: Table, shared: list[str]) -> Table:
    a = [first.ids[first.variables.index(v)] for v in shared]
    b = [second.ids[second.variables.index(v)] for v in shared]
    size = first.weights.size
    both = [np.concatenate(pair) for pair in zip(a, b, strict=True)]
    keys = group_numbers(both, size + second.weights.size)
    order = np.argsort(keys[size:], kind="stable")
    right = keys[size:][order]
    low = np.searchsorted(right, keys[:size], side="left")
    high = np.searchsorted(right, keys[:size], side="right")
    rows, picked = _runs(low, high)
    mates = order[picked]
    others = [i for i, v in enumerate(second.variables) if v not in shared]
    ids = np.concatenate((first.ids[:, rows], second.ids[others][:, mates]))
    names = (*first.variables, *(second.variables[i] for i in others))
    return Table(names, ids, first.weights[rows] * second.weights[mates])
