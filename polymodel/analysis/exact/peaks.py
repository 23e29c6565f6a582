"""Peaks of sums of counts over all interleavings of groups' stamps.

A phase chooses one child per time coordinate, outermost first, each in the tree of its group. What lies
further in depends on the classes chosen so far alone, so the largest sum is found from the innermost
coordinate outwards, for all combinations of classes at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import lcm, prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from polymodel.analysis.exact.grids import unfollowed
from polymodel.analysis.exact.sweep import Ints
from polymodel.analysis.exact.timetrees import Level, Tree
from polymodel.integers import dtype_of

_Entry = TypeVar("_Entry", bound=np.generic)
_CELLS = 4_000_000


@dataclass(frozen=True)
class Term:
    """`coefficient` x the elements whose stamp (up to coordinate `end`) is before the phase.

    Equal stamps count if `inclusive`. Before coordinate `start` stamps and phase must be equal.
    `columns[g]`: the histogram of group g. `buffet`: whose elements they are, of `weight` each.
    """

    weight: int
    coefficient: int
    start: int
    end: int
    inclusive: bool
    columns: tuple[int, ...]
    buffet: int


@dataclass(frozen=True)
class Rounding:
    """A buffet whose weights add up to a multiple of `whole`, rounded up; `weight` is that of its terms."""

    buffet: int
    weight: int
    whole: int

    @property
    def period(self) -> int:
        """Elements after which the rest repeats."""
        return lcm(self.weight, self.whole) // self.weight

    def missing(self, elements: Ints) -> Ints:
        """What is added in rounding up."""
        return np.asarray(-(elements * (self.weight % self.whole)) % self.whole)


@dataclass(frozen=True)
class Interleaving:
    """Groups' trees, and for each time coordinate of the Einsum its group, outermost first.

    With `roundings`, the elements chosen so far are told apart by their number modulo each period.
    """

    trees: tuple[Tree, ...]
    order: tuple[int, ...]
    roundings: tuple[Rounding, ...] = ()
    bound: int = 0  # of all sums, in magnitude

    @cached_property
    def _held(self) -> Any:
        """The dtype of sums, with room for what stands for no sum at all."""
        return dtype_of(64 * self.bound)

    @cached_property
    def _never(self) -> int:
        """Less than any sum, also after sums are added to it."""
        return -16 * (self.bound + 1)

    def peak(self, terms: Sequence[Term], buffets: int) -> tuple[int, tuple[int, ...]]:
        """(largest weighted sum over all phases and instances, the unweighted sum per buffet there)."""
        return self._bounded(terms)._peak(terms, buffets)

    def _peak(self, terms: Sequence[Term], buffets: int) -> tuple[int, tuple[int, ...]]:
        depth = [len(t.levels) - 1 for t in self.trees]
        values = [self._last(terms, depth)]
        for position in range(len(self.order) - 1, -1, -1):
            values.insert(0, self._step(terms, depth, position, values[0]))
        first = values[0][..., 0]
        state = [int(i) for i in np.unravel_index(int(np.argmax(first)), first.shape)]
        found = self._trace(terms, dict(enumerate(values)), state, [0] * len(self.trees), 0, [0] * buffets)
        return int(first.max()), found

    def _bounded(self, terms: Sequence[Term]) -> Interleaving:
        """The same with a bound of all sums of these terms."""
        largest = sum(r.whole for r in self.roundings)
        for t in terms:
            size = abs(t.weight * t.coefficient)
            for g, c in enumerate(t.columns):
                depth = sum(1 for k in self.order[: t.start] if k == g)
                size *= int(self.trees[g].levels[depth].counts[:, c].max())
            largest += max(size, abs(t.weight), abs(t.coefficient))
        return replace(self, bound=largest)

    # Remainders: the last axis of every value

    @cached_property
    def _rests(self) -> Ints:
        """Per combination of remainders: one column per rounding."""
        periods = [r.period for r in self.roundings]
        return np.indices(periods, dtype=np.int64).reshape(len(periods), prod(periods)).T

    def _moved(self, value: Ints, more: dict[int, Ints]) -> Ints:
        """`value` at the remainders after `more` elements of each rounding (over combinations of classes)."""
        if not self.roundings or not more:
            return value
        target = np.zeros((*value.shape[:-1], len(self._rests)), dtype=np.int64)
        for k, r in enumerate(self.roundings):
            moved = np.zeros((1,) * (value.ndim - 1), dtype=self._held) + more.get(k, 0)
            rest = (moved[..., None] + self._rests[:, k]) % r.period
            target = target * r.period + rest.astype(np.int64)
        return np.take_along_axis(value, target, axis=-1)

    def _elements(self, found: list[tuple[Term, Ints]]) -> dict[int, Ints]:
        """Elements per rounding."""
        more: dict[int, Ints] = {}
        for k, r in enumerate(self.roundings):
            for t, count in found:
                if t.buffet == r.buffet:
                    more[k] = more.get(k, 0) + count
        return more

    # Values over combinations of classes

    def _shape(self, g: int, array: NDArray[_Entry]) -> NDArray[_Entry]:
        shape = [1] * len(self.trees)
        shape[g] = len(array)
        return array.reshape(shape)

    def _product(self, term: Term, depth: list[int], without: int = -1) -> Ints:
        """Matching elements per combination of classes, group `without` left out."""
        value = np.full((1,) * len(self.trees), term.coefficient, dtype=self._held)
        for g, column in enumerate(term.columns):
            if g != without:
                value = value * self._shape(g, self.trees[g].levels[depth[g]].counts[:, column])
        return value

    def _added(self, value: Ints, found: list[tuple[Term, Ints]]) -> Ints:
        """`value` after these elements."""
        value = self._moved(value, self._elements(found))
        for t, count in found:
            value = value + (t.weight * count)[..., None]
        return value

    def _ended(self, value: Ints, terms: Sequence[Term], depth: list[int], position: int) -> Ints:
        ending = [t for t in terms if t.inclusive and t.end == position]
        return self._added(value, [(t, self._product(t, depth)) for t in ending])

    def _last(self, terms: Sequence[Term], depth: list[int]) -> Ints:
        shape = [t.levels[d].size for t, d in zip(self.trees, depth, strict=True)]
        rest = np.zeros(len(self._rests), dtype=self._held)
        for k, r in enumerate(self.roundings):
            rest = rest + r.missing(self._rests[:, k])
        value = np.zeros((*shape, len(rest)), dtype=self._held) + rest
        value = self._ended(value, terms, depth, len(self.order))
        for g, t in enumerate(self.trees):
            live = self._shape(g, t.levels[depth[g]].live)
            value = np.where(live[..., None], value, self._never)
        return value

    def _step(self, terms: Sequence[Term], depth: list[int], position: int, value: Ints) -> Ints:
        """Values before the coordinate at `position` is chosen, from those after it; `depth` moves up."""
        g = self.order[position]
        depth[g] -= 1
        level = self.trees[g].levels[depth[g]]
        if value.size // value.shape[g] * len(level.child) > _CELLS:
            raise unfollowed("too many combinations of different tiles")
        found = []
        for t in terms:
            if t.start <= position < t.end:
                before = self._shape(g, level.before[:, t.columns[g]])
                found.append((t, self._product(t, depth, without=g) * before))
        gain = self._added(np.take(value, level.child, axis=g), found)
        starts = np.flatnonzero(np.diff(level.owner, prepend=-1) != 0)
        best = np.maximum.reduceat(gain, starts, axis=g)
        best = np.where(self._shape(g, level.live)[..., None], best, self._never)
        best = np.where(best < self._never // 2, self._never, best)
        best = self._ended(best, terms, depth, position)
        return np.asarray(np.where(best < self._never // 2, self._never, best), dtype=self._held)

    # One phase of the peak, or all phases

    def phases(self, terms: Sequence[Term], buffets: int, depth: int) -> Ints:
        """The unweighted sums per buffet (columns) at every stamp of the first `depth` coordinates (rows).

        Stamps are in order; of what lies further in, the phase with the largest weighted sum. For one
        instance, without roundings, and trees whose options are all children.
        """
        return self._bounded(terms)._phases(terms, buffets, depth)

    def _phases(self, terms: Sequence[Term], buffets: int, depth: int) -> Ints:
        levels = [len(t.levels) - 1 for t in self.trees]
        values = {len(self.order): self._last(terms, levels)}
        for position in range(len(self.order) - 1, depth - 1, -1):
            values[position] = self._step(terms, levels, position, values[position + 1])
        state = np.zeros((1, len(self.trees)), dtype=np.int64)
        found = np.zeros((1, buffets), dtype=self._held)
        at = [0] * len(self.trees)
        for position, g in enumerate(self.order[:depth]):
            for t in terms:
                if t.inclusive and t.end == position:
                    found[:, t.buffet] += self._counted(t, state, at)
            level = self.trees[g].levels[at[g]]
            first = np.searchsorted(level.owner, state[:, g], side="left")
            many = np.searchsorted(level.owner, state[:, g], side="right") - first
            option = np.arange(many.sum()) - np.repeat(np.cumsum(many) - many - first, many)
            state, found = np.repeat(state, many, axis=0), np.repeat(found, many, axis=0)
            for t in terms:
                if t.start <= position < t.end:
                    before = level.before[option, t.columns[g]]
                    found[:, t.buffet] += self._counted(t, state, at, without=g) * before
            state[:, g] = level.child[option]
            at[g] += 1
        states, which = np.unique(state, axis=0, return_inverse=True)
        nothing = [0] * buffets
        rest = [self._trace(terms, values, s.tolist(), list(at), depth, nothing) for s in states]
        more = np.array(rest, dtype=self._held).reshape(len(rest), buffets)[which.reshape(-1)]
        return np.asarray(found + more, dtype=self._held)

    def _counted(self, term: Term, state: Ints, depth: list[int], without: int = -1) -> Ints:
        """`_matching` for rows of classes."""
        value = np.full(len(state), term.coefficient, dtype=self._held)
        for g, column in enumerate(term.columns):
            if g != without:
                value = value * self.trees[g].levels[depth[g]].counts[state[:, g], column]
        return value

    def _trace(
        self,
        terms: Sequence[Term],
        values: Mapping[int, Ints],
        state: list[int],
        depth: list[int],
        start: int,
        found: list[int],
    ) -> tuple[int, ...]:
        """Elements per buffet at one phase of the peak, from the coordinate `start` on."""
        found = list(found)
        for position in range(start, len(self.order) + 1):
            for t in terms:
                if t.inclusive and t.end == position:
                    found[t.buffet] += self._matching(t, state, depth)
            if position == len(self.order):
                break
            option, found = self._chosen(terms, values[position + 1], state, depth, position, found)
            g = self.order[position]
            state[g] = int(self.trees[g].levels[depth[g]].child[option])
            depth[g] += 1
        return tuple(found)

    def _chosen(
        self,
        terms: Sequence[Term],
        after: Ints,
        state: list[int],
        depth: list[int],
        position: int,
        found: list[int],
    ) -> tuple[int, list[int]]:
        """(the best option at a coordinate, elements per buffet with it)."""
        g = self.order[position]
        level: Level = self.trees[g].levels[depth[g]]
        active = [t for t in terms if t.start <= position < t.end]
        partial = [self._matching(t, state, depth, without=g) for t in active]
        best: tuple[int, int, list[int]] | None = None
        for o in np.flatnonzero(level.owner == state[g]):
            there = [int(level.child[o]) if k == g else s for k, s in enumerate(state)]
            then = list(found)
            value = 0
            for t, n in zip(active, partial, strict=True):
                more = n * int(level.before[o, t.columns[g]])
                then[t.buffet] += more
                value += t.weight * more
            rest = 0
            for r in self.roundings:
                rest = rest * r.period + then[r.buffet] % r.period
            value += int(after[(*there, rest)])
            if best is None or value > best[0]:
                best = value, int(o), then
        assert best is not None
        return best[1], best[2]

    def _matching(self, term: Term, state: list[int], depth: list[int], without: int = -1) -> int:
        value = term.coefficient
        for g, column in enumerate(term.columns):
            if g != without:
                value *= int(self.trees[g].levels[depth[g]].counts[state[g], column])
        return value
