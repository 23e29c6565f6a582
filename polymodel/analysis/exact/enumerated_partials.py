"""Partial sums of small problems, enumerated run by run, if no product describes the reduction.

One row per operation of the producer, and of the consumers that keep what it wrote alive, in arrays; runs,
drains and fills follow docs/semantics.md, Carry and Links. Used up to `LIMIT` iterations. A run may extend
over several executions of the producer; a partial sum is read in the execution that produced it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np

from polymodel.analysis.exact.cached_counts import CountProduct
from polymodel.analysis.exact.partials import OutputLevel
from polymodel.analysis.exact.sweep import Ints, OperationTable, distinct, operations, rank
from polymodel.schedule.touch import View
from polymodel.workload.einsum import TensorAccess

LIMIT = 500_000
Bools = np.ndarray[tuple[int], np.dtype[np.bool_]]
Moves = tuple[Ints, Ints, Ints]


@dataclass(frozen=True)
class Runs:
    """One row per run: its instance, element, start and end; `written` at any time in it.

    `first`, `last`: the executions in which it starts and ends. `read`: its start finds a partial sum at the
    parent; `filled`: and this instance receives it.
    """

    places: Ints
    element: Ints
    start: Ints
    end: Ints
    first: Ints
    last: Ints
    written: Bools
    filled: Bools
    read: Bools


def listable(levels: tuple[OutputLevel, ...], view: View) -> bool:
    """Whether the producer, and the consumers that keep alive what it wrote, are small enough."""
    views = (view, *_carried_reads(levels, view))
    return sum(prod(high - low + 1 for low, high in v.einsum.bounds) for v in views) <= LIMIT


def _carried_reads(levels: tuple[OutputLevel, ...], view: View) -> tuple[View, ...]:
    """The reads below a node that carries, if the producer writes other elements."""
    result: dict[tuple[str, TensorAccess], View] = {}
    for level in levels:
        if level.node is not None and level.carries and level.now != level.held:
            result |= {(v.einsum.name, v.access): v for v in level.node.views}
    return tuple(v for key, v in result.items() if key != (view.einsum.name, view.access))


@dataclass(frozen=True)
class ListedChain:
    """The interface of `partials.OutputChain`, computed from the list of runs of every level."""

    levels: tuple[OutputLevel, ...]
    shared: frozenset[int]
    broadcast: frozenset[int]
    view: View

    def runs(self, level: int) -> tuple[CountProduct, ...]:
        """Runs per instance of the level itself (each drains once)."""
        result = self._all[level]
        return (self._counted(level, result.places[result.written], len(self._spatial(level))),)

    def events(self, level: int, *, forward: bool = False) -> tuple[CountProduct, ...]:
        """Starts (or ends, `forward`) of runs, united over shared instances, per instance of the parent."""
        result = self._all[level]
        time, charge = result.end if forward else result.start, self.levels[level].charge
        return (self._united(level, result.written, time, charge),)

    def reads(self, level: int) -> tuple[CountProduct, ...]:
        """Partial sums that the parent of `level` reads out, per instance of the parent."""
        result = self._all[level]
        return (self._united(level, result.read, result.start, self.levels[level].charge),)

    def filled(self, level: int) -> tuple[CountProduct, ...]:
        """Writes that fills make at the level, per instance."""
        if not level:
            return ()
        result = self._all[level]
        return (self._counted(level, result.places[result.filled], len(self._spatial(level))),)

    def moves(self, level: int, *, filled: bool) -> Moves:
        """(time, element, places) of all runs that get a partial sum, or, `filled`, receive it themselves."""
        result = self._all[level]
        chosen = result.filled if filled else result.read
        return result.start[chosen], result.element[chosen], result.places[chosen]

    def drains(self, level: int) -> Moves:
        """(time, element, places) of the ends of all runs in which the element was written."""
        result = self._all[level]
        return result.end[result.written], result.element[result.written], result.places[result.written]

    def passed(self, level: int, charge: int, *, up: bool = False) -> tuple[CountProduct, ...]:
        """Refilled partial sums (`up`: drains) per instance of the first `charge` axes, at a toll."""
        found = self._all[level]
        chosen, time = (found.written, found.end) if up else (found.filled, found.start)
        return (self._united(level, chosen, time, charge),)

    @cached_property
    def _operations(self) -> tuple[OperationTable, ...]:
        """The producer's operations, then those of the consumers that matter."""
        return tuple(operations(v) for v in (self.view, *_carried_reads(self.levels, self.view)))

    @cached_property
    def _elements(self) -> Ints:
        tables = []
        for ops in self._operations:
            loops = [node for node, _, _ in ops.view.loops]
            made = [ops.counters[loops.index(node)] for node in self.view.versions]
            tables.append(np.hstack([ops.elements(ops.view.access), _columns(made, ops.count)]))
        return rank(np.concatenate(tables))

    @cached_property
    def _executions(self) -> Ints:
        """The execution of the producer that each operation belongs to; consumers' operations belong to
        none."""
        producer = self._operations[0]
        again = self.levels[0].again
        loops = [node for node, _, _ in producer.view.loops]
        numbers = rank(_columns([producer.counters[loops.index(node)] for node in again], producer.count))
        rest = sum(ops.count for ops in self._operations[1:])
        return np.concatenate([numbers, np.full(rest, -1, dtype=np.int64)])

    def _axes(self, axes: tuple[int, ...], which: list[int]) -> Ints:
        """Stamp coordinates of the operations of some Einsums."""
        tables = []
        for k in which:
            ops = self._operations[k]
            own = (*ops.counters, *ops.offsets)
            tables.append(_columns([own[a] for a in axes], ops.count))
        return np.concatenate(tables)

    def _spatial(self, level: int) -> tuple[int, ...]:
        return self.levels[level].now.spatial

    @cached_property
    def _all(self) -> tuple[Runs, ...]:
        """Runs of every level, the backing node first; a parent's rows name its runs to its child."""
        result: list[Runs] = []
        above = np.zeros(len(self._elements), dtype=np.int64)  # the parent's run of each operation
        for level in range(len(self.levels)):
            runs, above = self._level(level, above, result[-1] if result else None)
            result.append(runs)
        return tuple(result)

    def _present(self, level: int) -> tuple[list[int], Bools]:
        """The Einsums that touch the level, and their rows of `_elements`."""
        node = self.levels[level].node
        which = [0]
        if node is not None:  # deeper than a consumer's view nothing of it is kept alive
            for k, ops in enumerate(self._operations[1:], 1):
                if ops.view.einsum.name in node.users and len(ops.view.loops) >= node.loops:
                    which.append(k)
        counts = [ops.count for ops in self._operations]
        return which, np.repeat([k in which for k in range(len(counts))], counts)

    def _level(self, level: int, above: Ints, parent: Runs | None) -> tuple[Runs, Ints]:
        here = self.levels[level]
        which, rows = self._present(level)
        stamp, places = self._axes(here.now.temporal, which), self._axes(self._spatial(level), which)
        elements, owners = self._elements[rows], above[rows]
        visit = rank(stamp)
        if level == 0:  # the backing node's run never ends
            visit = np.zeros_like(visit)
        order = np.lexsort((visit, elements, rank(places)))
        p, x, v, s = rank(places)[order], elements[order], visit[order], stamp[order]
        same = (p[1:] == p[:-1]) & (x[1:] == x[:-1])
        again = same & (v[1:] == v[:-1])
        stays = self._carried(here, s) & (owners[order][1:] == owners[order][:-1])
        joined = again | (same & (v[1:] == v[:-1] + 1) & stays)
        first = np.concatenate(([True], ~joined))
        last = np.concatenate((~joined, [True]))
        ids = np.cumsum(first) - 1
        mine = np.full(len(above), -1, dtype=np.int64)
        mine[np.flatnonzero(rows)[order]] = ids
        where, start, end = places[order][first], v[first], v[last]
        produced = order < self._operations[0].count  # the producer's rows stand first
        written = np.bincount(ids, weights=produced) > 0
        begun, done = self._of_executions(self._executions[rows][order], first)
        none = np.zeros(len(start), dtype=bool)
        result = Runs(where, x[first], start, end, begun, done, written, none, none)
        if parent is None:
            return result, mine
        read = written
        if not self.levels[level - 1].read_first:
            read = written & self._holding(level, result, owners[order][first], parent)
        filled = read.copy()
        filled[read] = self._receives(level, where[read], x[first][read], start[read])
        return replace(result, filled=filled, read=read), mine

    def _holding(self, level: int, runs: Runs, owner: Ints, parent: Runs) -> Bools:
        """Whether the parent's run (`owner`) has a value of the execution in which each run starts."""
        if self.levels[level].spans:  # its visits begin before the executions within them
            return np.zeros(len(owner), dtype=bool)
        count = 1 + max(int(self._executions.max(initial=0)), 0)
        ended = np.full(len(parent.element) * count, np.iinfo(np.int64).max)
        np.minimum.at(ended, (owner * count + runs.last)[runs.written], runs.end[runs.written])
        made = ended[owner * count + np.maximum(runs.first, 0)] < runs.start
        if self.levels[level - 1].spans:
            return np.asarray(made, dtype=bool)
        return np.asarray(made | (parent.filled[owner] & (parent.first[owner] == runs.first)), dtype=bool)

    @staticmethod
    def _of_executions(executions: Ints, first: Bools) -> tuple[Ints, Ints]:
        """The first and the last execution that writes in each run; -1 if none does."""
        if not len(executions):
            return executions, executions
        starts, never = np.flatnonzero(first), np.iinfo(np.int64).max
        begun = np.minimum.reduceat(np.where(executions < 0, never, executions), starts)
        return np.where(begun == never, -1, begun), np.maximum.reduceat(executions, starts)

    @staticmethod
    def _carried(here: OutputLevel, stamp: Ints) -> Bools:
        """Whether the level's policy carries over the transition between neighbouring rows."""
        if not here.now.temporal or here.node is None:
            return np.zeros(max(len(stamp) - 1, 0), dtype=bool)
        axis = np.argmax(stamp[1:] != stamp[:-1], axis=1)
        return np.isin(np.asarray(here.now.temporal)[axis], sorted(here.node.policy_carries))

    def _group(self, level: int, where: Ints, element: Ints, time: Ints, keep: int) -> Ints:
        """Rows (time, element, parent's instance, other instances that do not share)."""
        own = [k for k, a in enumerate(self._spatial(level)) if a < keep or a not in self.shared]
        return np.column_stack([time, element, where[:, own]])

    def _receives(self, level: int, where: Ints, element: Ints, time: Ints) -> Bools:
        """The first instance in the coordinates without broadcast, and all with these coordinates."""
        charge = self.levels[level].charge
        if not len(where):
            return np.zeros(0, dtype=bool)
        groups = rank(self._group(level, where, element, time, charge))
        single = [
            k
            for k, a in enumerate(self._spatial(level))
            if a >= charge and a in self.shared and a not in self.broadcast
        ]
        position = rank(where[:, single])
        lowest = np.full(int(groups.max()) + 1, np.iinfo(np.int64).max)
        np.minimum.at(lowest, groups, position)
        return np.asarray(position == lowest[groups], dtype=bool)

    def _united(self, level: int, chosen: Bools, time: Ints, charge: int) -> CountProduct:
        found = self._all[level]
        own = [a for a in self._spatial(level) if a < charge or a not in self.shared]
        rows = self._group(level, found.places[chosen], found.element[chosen], time[chosen], charge)
        if len(rows):
            rows = distinct(rows)
        keep = sum(1 for a in own if a < charge)
        return self._counted(level, rows[:, 2 : 2 + keep], keep)

    def _counted(self, level: int, places: Ints, keep: int) -> CountProduct:
        """Rows per instance: one axis per leading spatial position."""
        shape = tuple(int(n) + 1 for n in self._all[level].places[:, :keep].max(axis=0, initial=0))
        counts = np.full(shape, len(places), dtype=np.int64)
        if keep:
            flat = np.ravel_multi_index(tuple(places[:, k] for k in range(keep)), shape)
            counts = np.bincount(flat, minlength=prod(shape)).reshape(shape)
        return CountProduct(1, ((self._spatial(level)[:keep], counts.astype(object)),))


def _columns(columns: list[Ints], rows: int) -> Ints:
    return np.stack(columns, axis=1) if columns else np.zeros((rows, 0), dtype=np.int64)
