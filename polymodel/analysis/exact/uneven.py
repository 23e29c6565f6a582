"""Partial sums for any shape under `refill`: signed products of ISL sets instead of closed rules.

A residency of the parent that was not filled has nothing to read at its first child events, and does at later
ones. What was not filled is a signed sum of products of sets, one set per factor, so that the recursion along
the chain stays exact for uneven, overlapping and partly broadcast reductions. It also holds for levels that
carry, if all instances that share a reduction run alike (`partials.examine`).

If loops execute the producer again, the terms are about results of single executions (`OutputLevel.apart`),
and the parts of runs that continue from one execution to the next start empty, as in `partials`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from polymodel.analysis.exact.buffets import shape_of
from polymodel.analysis.exact.cached_counts import Array, CountProduct, leading
from polymodel.analysis.exact.partials import OutputLevel
from polymodel.analysis.exact.transfers import modes, moved
from polymodel.polyhedra import sets, steps
from polymodel.polyhedra.steps import Mode
from polymodel.schedule.touch import Factor

if TYPE_CHECKING:
    import islpy

Sets = tuple["islpy.Set", ...]


@dataclass(frozen=True)
class SetProduct:
    """`sign` times the product of one set per factor of a level."""

    sign: int
    factors: Sets


@dataclass(frozen=True)
class RefilledChain:
    """The interface of `partials.OutputChain`.

    `per`: counts are for each value of the temporal counters of this many outer loops.
    """

    levels: tuple[OutputLevel, ...]
    shared: frozenset[int]
    broadcast: frozenset[int]
    per: int = 0

    def runs(self, level: int) -> tuple[CountProduct, ...]:
        """Ends of runs per instance of the level itself."""
        here = self.levels[level]
        alone = frozenset[int]()
        return moved(here.now, here.held, here.carries, len(here.now.axes), alone, forward=True, per=self.per)

    def events(self, level: int, *, forward: bool = False) -> tuple[CountProduct, ...]:
        """Starts (or ends, `forward`) of runs, united over shared instances, per instance of the parent."""
        return self._events(self.levels[level], forward)

    def _events(self, here: OutputLevel, forward: bool = False) -> tuple[CountProduct, ...]:
        return moved(
            here.now, here.held, here.carries, here.charge, self.shared, forward=forward, per=self.per
        )

    def reads(self, level: int) -> tuple[CountProduct, ...]:
        """Partial sums that the parent of `level` reads out, per instance of the parent."""
        if self.levels[level - 1].read_first:
            return self.events(level)
        if self.levels[level].spans:
            return ()
        result = list(self._events(self.levels[level].apart))
        result += [self._united(level, t.factors, -t.sign) for t in self.empty(level)]
        return tuple(result)

    def filled(self, level: int) -> tuple[CountProduct, ...]:
        """Writes that fills make at the level, per instance."""
        return tuple(self._counted(level, t) for t in self.filled_terms(level)) if level else ()

    def passed(self, level: int, charge: int) -> tuple[CountProduct, ...]:
        """Refilled partial sums per instance of the first `charge` axes, between parent and level (tolls)."""
        result = []
        for term in self.filled_terms(level):
            parts = []
            for f, each in zip(self.levels[level].fill_candidates.factors, term.factors, strict=True):
                keep = sum(1 for a in f.spatial if a < charge)
                shared = tuple(k for k, a in enumerate(f.spatial) if k >= keep and a in self.shared)
                parts.append(self._part(f, sets.without(each, shared), keep, shared))
            result.append(CountProduct(term.sign, tuple(parts)))
        return tuple(result)

    def starts(self, level: int) -> list[SetProduct]:
        """Parts of runs that begin, in one execution each: what is touched, less what was carried in."""
        here = self.levels[level].apart
        result = [SetProduct(1, self._touched(level))]
        for axis in sorted(here.carries):
            seen = modes(here.held.factors, axis)
            if seen is not None:
                pairs = zip(here.now.factors, here.held.factors, seen, strict=True)
                result.append(SetProduct(-1, tuple(_stay(f, h, mode) for f, h, mode in pairs)))
        return result

    def begun(self, level: int) -> list[SetProduct]:
        """Whole runs that begin, among the elements that may be filled (`OutputLevel.fill_candidates`)."""
        here, touched = self.levels[level], self._touched(level)
        result = [SetProduct(1, touched)]
        for axis in sorted(here.carries):
            seen = modes(here.held.factors, axis)
            if seen is not None:
                pairs = zip(here.now.factors, here.held.factors, seen, strict=True)
                stay = (_stay(f, h, mode) for f, h, mode in pairs)
                result.append(SetProduct(-1, tuple(map(steps.of_each, stay, touched))))
        return result

    def _touched(self, level: int) -> Sets:
        return tuple(sets.parse_set(f.text) for f in self.levels[level].fill_candidates.factors)

    def _leading(self, level: int, f: Factor) -> tuple[int, int, int, int]:
        """Dimensions of one factor: (np, nt, np of the parent, nt of the parent)."""
        charge = self.levels[level].charge
        return (
            len(f.spatial),
            len(f.temporal),
            sum(1 for a in f.spatial if a < charge),
            sum(1 for a in f.temporal if a < charge),
        )

    def empty(self, level: int) -> list[SetProduct]:
        """Child events of `level` that find nothing in the parent."""
        factors = self.levels[level].fill_candidates.factors
        # The backing node's run never ends, and it starts with nothing; so does each execution in a visit
        # that spans several.
        whole = level == 1 or self.levels[level - 1].spans
        firsts = []
        for f, points in zip(factors, self._touched(level), strict=True):
            np, nt, np_parent, nt_parent = self._leading(level, f)
            firsts.append(steps.inner_first(points, np, nt, np_parent, 0 if whole else nt_parent))
        if whole:
            return [SetProduct(1, tuple(firsts))]
        above = {f.block: k for k, f in enumerate(self.levels[level - 1].fill_candidates.factors)}
        result = []
        for term in self._unfilled_terms(level - 1):
            chosen = []
            for f, first in zip(factors, firsts, strict=True):
                if f.block in above:
                    first = steps.under(first, term.factors[above[f.block]], *self._leading(level, f))
                chosen.append(first)
            result.append(SetProduct(term.sign, tuple(chosen)))
        return result

    def filled_terms(self, level: int) -> list[SetProduct]:
        """Runs that a partial sum fills, as sets over the factors of `OutputLevel.fill_candidates`."""
        first = self.levels[level - 1].read_first
        if self.levels[level].spans and not first:
            return []
        touched = self._touched(level)
        whole = self._receiving(level, touched)
        result = self.begun(level) if first else self.starts(level)
        if any(a is not b for a, b in zip(whole, touched, strict=True)):
            result = [SetProduct(t.sign, tuple(map(_both, whole, t.factors))) for t in result]
        if not first:
            for term in self.empty(level):
                result.append(SetProduct(-term.sign, tuple(map(_both, whole, term.factors))))
        return result

    def _unfilled_terms(self, level: int) -> list[SetProduct]:
        touched = self._touched(level)
        whole = self._receiving(level, touched)
        if all(a is b for a, b in zip(whole, touched, strict=True)):  # every run is offered a value
            if not self.levels[level - 1].read_first:
                return self.empty(level)
            if self.levels[level].executions is None:
                return []
        return [*self.starts(level), *(SetProduct(-t.sign, t.factors) for t in self.filled_terms(level))]

    def _receiving(self, level: int, points: Sets) -> Sets:
        result = []
        for f, each in zip(self.levels[level].fill_candidates.factors, points, strict=True):
            keep = self._leading(level, f)[2]
            between = [k for k, a in enumerate(f.spatial) if k >= keep and a in self.shared]
            every = tuple(k for k in between if f.spatial[k] in self.broadcast)
            single = tuple(k for k in between if f.spatial[k] not in self.broadcast)
            result.append(steps.receivers(each, single, every))
        return tuple(result)

    def _united(self, level: int, points: Sets, sign: int) -> CountProduct:
        parts = []
        for f, each in zip(self.levels[level].fill_candidates.factors, points, strict=True):
            keep = self._leading(level, f)[2]
            shared = tuple(k for k, a in enumerate(f.spatial) if k >= keep and a in self.shared)
            parts.append(self._part(f, sets.without(each, shared), keep, shared))
        return CountProduct(sign, tuple(parts))

    def _counted(self, level: int, term: SetProduct) -> CountProduct:
        parts = []
        for f, each in zip(self.levels[level].fill_candidates.factors, term.factors, strict=True):
            parts.append(self._part(f, each, len(f.spatial)))
        return CountProduct(term.sign, tuple(parts))

    def _part(
        self, f: Factor, points: islpy.Set, keep: int, drop: tuple[int, ...] = ()
    ) -> tuple[tuple[int, ...], Array]:
        """Counts of one factor for its first `keep` spatial counters, and by `per`."""
        stamps = sum(1 for a in f.temporal if a < self.per)
        axes = (*f.spatial[:keep], *f.temporal[:stamps])
        return axes, sets.count_at(points, leading(shape_of(f), keep, stamps, drop))


def _both(one: islpy.Set, other: islpy.Set) -> islpy.Set:
    return one.intersect(other)


def _stay(now: Factor, held: Factor, mode: Mode) -> islpy.Set:
    shape = shape_of(now)
    return steps.resident_at_neighbor(shape.text, held.text, shape.np, shape.nt, mode, False)[1]
