"""What lies below a cut of the hierarchy: the undominated points of the lower region, and which of them fit
the tile that the upper region gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from polymodel.mapper.combine import Interest
from polymodel.mapper.templates import Template
from polymodel.pareto import undominated

Array = Any
CELLS = 2**24


@dataclass(frozen=True)
class Inner:
    """Undominated points of the lower region. `ports` [2 * cut memories, n]: seconds at the ports of memories
    above the cut; `rest`: the longest time of all else; `needs` [primes of all variables, n]: how often
    each divides the tile it needs; `local` [memories of interest, n]: bits."""

    energy: Array
    ports: Array
    rest: Array
    local: Array
    needs: Array
    templates: tuple[Template, ...]
    template: Array
    choice: Array
    fitting: dict[int, Array] = field(default_factory=dict)
    compared: list[Array] = field(default_factory=list)

    @cached_property
    def floors(self) -> tuple[Array, Array]:
        """The least energy and the least `rest` of points that fit, for every tile: an axis per prime."""
        shape = tuple(int(n.max()) + 1 for n in self.needs)
        found = []
        for figure in (self.energy, self.rest):
            table = np.full(shape, np.inf)
            np.minimum.at(table, tuple(self.needs), figure)
            for axis in range(table.ndim):
                np.minimum.accumulate(table, axis=axis, out=table)
            found.append(table)
        return found[0], found[1]

    def least(self, gives: Array) -> tuple[Array, Array]:
        """(Energy, time) at least, of what fits tiles [primes, n]; inf where nothing does."""
        energy, rest = self.floors
        if not len(gives):
            return energy, rest
        at = tuple(np.minimum(g, n - 1) for g, n in zip(gives, energy.shape, strict=True))
        return energy[at], rest[at]

    def for_tiles(self, gives: Array, interest: Interest) -> tuple[Array, Array]:
        """For tiles [primes, n] the positions of points that fit, without those that others that fit beat:
        (tile, position) of each."""
        n = gives.shape[1]
        if not len(gives) or (interest.energy and not interest.latency and not len(self.local)):
            sides = zip(gives, self._cheapest.shape, strict=True)
            best = np.atleast_1d(self._cheapest[tuple(np.minimum(g, k - 1) for g, k in sides)])
            return np.arange(n), np.broadcast_to(best, n)
        extents = self.floors[0].shape
        cells = np.ravel_multi_index(
            tuple(np.minimum(g, k - 1) for g, k in zip(gives, extents, strict=True)), extents
        )
        each, which = np.unique(cells, return_inverse=True)
        self._fit(np.array([c for c in each.tolist() if c not in self.fitting], np.int64), interest)
        found = [self.fitting[c] for c in each.tolist()]
        counts = np.array([len(c) for c in found])[which]
        ends = np.cumsum(counts)
        # Positions of the cells' runs, cell after cell of the points.
        starts = np.cumsum([0, *(len(c) for c in found[:-1])])[which]
        within = np.arange(int(counts.sum())) - np.repeat(ends - counts, counts)
        return np.repeat(np.arange(n), counts), np.concatenate(found)[np.repeat(starts, counts) + within]

    def _fit(self, cells: Array, interest: Interest) -> None:
        """Work out what fits tiles (numbers of the table of `floors`) and is not beaten there."""
        if not len(cells):
            return
        beaten, extents = self._beaten(interest), self.floors[0].shape
        step = max(1, CELLS // len(self.energy))
        for begin in range(0, len(cells), step):
            some = cells[begin : begin + step]
            fits = np.ones((len(self.energy), len(some)), bool)
            for need, give in zip(self.needs, np.unravel_index(some, extents), strict=True):
                fits &= need[:, None] <= give[None, :]
            best = fits & (beaten @ fits.astype(np.float32) == 0)
            columns, rows = np.nonzero(best.T)
            bounds = np.searchsorted(columns, np.arange(len(some) + 1))
            for k, cell in enumerate(some.tolist()):
                self.fitting[cell] = rows[bounds[k] : bounds[k + 1]]

    def _beaten(self, interest: Interest) -> Array:
        """[i, j]: 1 where point j is no worse than point i in any figure, and better or before it."""
        if not self.compared:
            figures = [self.energy] if interest.energy else []
            figures += [self.rest, *self.ports] if interest.latency else []
            no_worse = np.ones((len(self.energy), len(self.energy)), bool)
            no_better = no_worse.copy()
            for f in (*figures, *self.local):
                no_worse &= f[None, :] <= f[:, None]
                no_better &= f[None, :] >= f[:, None]
            first = np.tri(len(self.energy), k=-1, dtype=bool)
            self.compared.append((no_worse & (~no_better | first)).astype(np.float32))
        return self.compared[0]

    @cached_property
    def quickest(self) -> Inner:
        """Those of its points that are best in time."""
        kept = undominated([self.rest, *self.ports, *self.needs])
        return Inner(
            self.energy[kept], self.ports[:, kept], self.rest[kept], self.local[:0, kept],
            self.needs[:, kept], self.templates, self.template[kept], self.choice[kept],
        )  # fmt: skip

    @cached_property
    def _cheapest(self) -> Array:
        """The position of the point of least energy that fits, for every tile."""
        order = np.argsort(self.energy, kind="stable")
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        table = np.full(tuple(int(n.max()) + 1 for n in self.needs), len(order) - 1)
        np.minimum.at(table, tuple(self.needs), ranks)
        for axis in range(table.ndim):
            np.minimum.accumulate(table, axis=axis, out=table)
        found: Array = order[table]
        return found
