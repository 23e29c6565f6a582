"""Partial sums of small problems, run by run: for carried outputs whose reduction no product describes.

One row per (visit, instance, element) that the producer touches, in arrays; runs, drains and fills
follow docs/semantics.md, Links. Used up to `LIMIT` iterations of the producer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from polymodel.analysis.exact.partials import Level
from polymodel.analysis.exact.sweep import Ints, Operations, distinct, operations, rank
from polymodel.analysis.exact.tally import Product
from polymodel.schedule.touch import View

LIMIT = 500_000


@dataclass(frozen=True)
class Runs:
    """One row per run: its instance, element, start, end, parent's run, and whether it was filled."""

    places: Ints
    element: Ints
    start: Ints
    end: Ints
    filled: np.ndarray[tuple[int], np.dtype[np.bool_]]
    read: np.ndarray[tuple[int], np.dtype[np.bool_]]


def listable(levels: tuple[Level, ...], view: View) -> bool:
    """Whether the producer is small and alone where its output is carried."""
    iterations = prod(high - low + 1 for low, high in view.einsum.bounds)
    return iterations <= LIMIT and all(x.now == x.held or not x.carries for x in levels)


@dataclass(frozen=True)
class ListedChain:
    """Same questions as `partials.Chain`, answered from the list of runs of every level."""

    levels: tuple[Level, ...]
    shared: frozenset[int]
    broadcast: frozenset[int]
    view: View

    def runs(self, level: int) -> tuple[Product, ...]:
        """Runs per instance of the level itself (each drains once)."""
        found = self._all[level]
        return (self._counted(level, found.places, len(self._spatial(level))),)

    def events(self, level: int, *, forward: bool = False) -> tuple[Product, ...]:
        """Starts (or ends, `forward`) of runs, united over shared instances, per instance of the parent."""
        found = self._all[level]
        every = np.ones(len(found.element), dtype=bool)
        return (self._united(level, every, found.end if forward else found.start, self.levels[level].charge),)

    def reads(self, level: int) -> tuple[Product, ...]:
        """Partial sums that the parent of `level` reads out, per instance of the parent."""
        found = self._all[level]
        return (self._united(level, found.read, found.start, self.levels[level].charge),)

    def filled(self, level: int) -> tuple[Product, ...]:
        """Writes that fills make at the level, per instance."""
        if not level:
            return ()
        found = self._all[level]
        return (self._counted(level, found.places[found.filled], len(self._spatial(level))),)

    def moves(self, level: int, *, filled: bool) -> tuple[Ints, Ints, Ints]:
        """(time, element, places) of all runs that get a partial sum, or, `filled`, receive it themselves."""
        found = self._all[level]
        chosen = found.filled if filled else found.read
        return found.start[chosen], found.element[chosen], found.places[chosen]

    def passed(self, level: int, charge: int) -> tuple[Product, ...]:
        """Refilled partial sums per instance of the first `charge` axes, between parent and level (tolls)."""
        found = self._all[level]
        return (self._united(level, found.filled, found.start, charge),)

    @cached_property
    def _operations(self) -> Operations:
        return operations(self.view)

    @cached_property
    def _elements(self) -> Ints:
        ops = self._operations
        ranks = []
        for expr in self.view.access.projection:
            total = np.full(ops.count, expr.constant, dtype=np.int64)
            for v, k in expr.terms:
                total = total + k * ops.values[v]
            ranks.append(total)
        loops = [node for node, _, _ in self.view.loops]
        ranks += [ops.counters[loops.index(node)] for node in self.view.versions]
        return rank(self._table(ranks))

    def _table(self, columns: list[Ints]) -> Ints:
        if not columns:
            return np.zeros((self._operations.count, 0), dtype=np.int64)
        return np.stack(columns, axis=1)

    def _spatial(self, level: int) -> tuple[int, ...]:
        return self.levels[level].now.spatial

    @cached_property
    def _all(self) -> tuple[Runs, ...]:
        """Runs of every level, the backing node first; a parent's rows name its runs to its child."""
        found: list[Runs] = []
        above = np.zeros(self._operations.count, dtype=np.int64)  # the parent's run of each operation
        for level in range(len(self.levels)):
            runs, above = self._level(level, above, found[-1] if found else None)
            found.append(runs)
        return tuple(found)

    def _level(self, level: int, above: Ints, parent: Runs | None) -> tuple[Runs, Ints]:
        ops, here = self._operations, self.levels[level]
        axes = (*ops.counters, *ops.offsets)
        stamp = self._table([axes[a] for a in here.now.temporal])
        places = self._table([axes[a] for a in self._spatial(level)])
        visit = rank(stamp)
        if level == 0:  # the backing node's run never ends
            visit = np.zeros_like(visit)
        place = rank(places)
        order = np.lexsort((visit, self._elements, place))
        p, x, v, s = place[order], self._elements[order], visit[order], stamp[order]
        same = (p[1:] == p[:-1]) & (x[1:] == x[:-1])
        again = same & (v[1:] == v[:-1])
        joined = again | (same & (v[1:] == v[:-1] + 1) & self._carried(here, s))
        first = np.concatenate(([True], ~joined))
        last = np.concatenate((~joined, [True]))
        ids = np.cumsum(first) - 1
        mine = np.empty_like(ids)
        mine[order] = ids
        where, start, end = places[order][first], v[first], v[last]
        if parent is None:
            none = np.zeros(len(start), dtype=bool)
            return Runs(where, x[first], start, end, none, none), mine
        owner = above[order][first]
        ended = np.full(len(parent.element), np.iinfo(np.int64).max)
        np.minimum.at(ended, owner, end)
        read = parent.filled[owner] | (ended[owner] < start)
        if self.levels[level - 1].read_first:
            read = np.ones(len(start), dtype=bool)
        runs = Runs(where, x[first], start, end, read & self._receives(level, where, x[first], start), read)
        return runs, mine

    @staticmethod
    def _carried(here: Level, stamp: Ints) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Whether the level carries over the transition between neighbouring rows."""
        if not here.now.temporal:
            return np.zeros(max(len(stamp) - 1, 0), dtype=bool)
        axis = np.argmax(stamp[1:] != stamp[:-1], axis=1)
        return np.isin(np.asarray(here.now.temporal)[axis], sorted(here.carries))

    def _group(self, level: int, where: Ints, element: Ints, time: Ints, keep: int) -> Ints:
        """Rows (time, element, parent's instance, other instances that do not share)."""
        own = [k for k, a in enumerate(self._spatial(level)) if a < keep or a not in self.shared]
        return np.column_stack([time, element, where[:, own]])

    def _receives(
        self, level: int, where: Ints, element: Ints, time: Ints
    ) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """The first instance in the coordinates without broadcast, and all with these coordinates."""
        charge = self.levels[level].charge
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

    def _united(
        self, level: int, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]], time: Ints, charge: int
    ) -> Product:
        found = self._all[level]
        own = [a for a in self._spatial(level) if a < charge or a not in self.shared]
        rows = self._group(level, found.places[chosen], found.element[chosen], time[chosen], charge)
        if len(rows):
            rows = distinct(rows)
        keep = sum(1 for a in own if a < charge)
        return self._counted(level, rows[:, 2 : 2 + keep], keep)

    def _counted(self, level: int, places: Ints, keep: int) -> Product:
        """Rows per instance: one axis per leading spatial position."""
        shape = tuple(int(n) + 1 for n in self._all[level].places[:, :keep].max(axis=0, initial=0))
        counts = np.full(shape, len(places), dtype=np.int64)
        if keep:
            flat = np.ravel_multi_index(tuple(places[:, k] for k in range(keep)), shape)
            counts = np.bincount(flat, minlength=prod(shape)).reshape(shape)
        return Product(1, ((self._spatial(level)[:keep], counts.astype(object)),))
