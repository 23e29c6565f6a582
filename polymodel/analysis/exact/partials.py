"""Outputs: which instance holds a partial sum, what is refilled, what is drained.

For one producer and one tensor the storage nodes on its path form a chain of levels, the backing node first
and compute last. A *run* of an element in a level's instance is a maximal sequence of visits joined by carry.
Every run of the parent that was not itself filled has exactly one child event (the first) that finds nothing
to read, hence

    reads(parent) = events(child) - runs(parent) + filled runs(parent)

and, along the chain, filled runs = runs minus first touches. See docs/semantics.md, Links.

If loops execute the producer again, storage may keep an element over several executions, but each starts its
results afresh. Then the rule holds for the part of a run that lies in one execution (`OutputLevel.apart`),
and what the run before it left cannot be read. A part that continues from the previous execution has no start
of its own: it is the first event of its execution at every level, so that it counts among those that find
nothing. Drains and first reads (`read_first`) follow whole runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from polymodel.analysis.exact.buffets import ExactBuffet, shape_of, transition_mode
from polymodel.analysis.exact.cached_counts import (
    Array,
    CountProduct,
    first_tally,
    located_tally,
    resident_tally,
    tally,
)
from polymodel.analysis.exact.transfers import modes, moved
from polymodel.errors import Refused
from polymodel.polyhedra import steps
from polymodel.schedule.touch import Factor, Touch


@dataclass(frozen=True)
class OutputLevel:
    """One level of an output's chain; `held`: the touches that make the node's visits.

    For an Einsum that loops (`again`, node ids) execute again: `executions` is `now` with the counters of
    these loops as further ranks, so that results of different executions are different elements; `spans`: a
    visit may hold the results of several executions, so that it begins before all of them, and there is
    nothing to fill yet.
    """

    now: Touch
    held: Touch
    carries: frozenset[int]
    charge: int
    read_first: bool = False
    node: ExactBuffet | None = None
    indexing: frozenset[str] = frozenset()
    executions: Touch | None = None
    again: tuple[int, ...] = ()
    spans: bool = False

    @property
    def apart(self) -> OutputLevel:
        """The level with results of different executions as different elements."""
        if self.executions is None:
            return self
        return replace(self, now=self.executions, held=self.executions, executions=None)

    @property
    def fill_candidates(self) -> Touch:
        """The elements that may be filled: of each execution its own, unless visits span several."""
        return self.now if self.spans else self.apart.now

    def factor(self, block: int) -> Factor | None:
        return next((f for f in self.now.factors if f.block == block), None)


def stays(level: OutputLevel) -> bool:
    """Whether anything is held from one visit of the level to the next.

    Nothing is held if every step of the loops over which its policy carries leads to a tile that has no
    element in common with the one before, as with `slide` on output rows. Then the level counts like a
    refilled one.
    """
    for axis in sorted(level.carries):
        seen = modes(level.held.factors, axis)
        if seen is None:
            continue
        shapes = [shape_of(f) for f in level.held.factors]
        if not any(
            steps.resident_at_neighbor(s.text, s.text, s.np, s.nt, mode, False)[1].is_empty()
            for s, mode in zip(shapes, seen, strict=True)
        ):
            return True
    return False


@dataclass(frozen=True)
class Reduction:
    """How the spatial axes that do not index the tensor behave on this producer's path."""

    shared: frozenset[int]
    broadcast: frozenset[int]
    blocks: tuple[int, ...]
    first_touch_formula: bool


def examine(
    levels: tuple[OutputLevel, ...], shared: frozenset[int], broadcast: frozenset[int], tensor: str
) -> Reduction:
    """Check that the counting rules above apply to the chain. Raises Refused otherwise."""
    result = _examine(tuple(level.apart for level in levels), shared, broadcast, tensor)
    # first reads follow whole runs, also where sums do not
    both = levels[-1].executions is not None and any(level.read_first for level in levels)
    if both and _examine(levels, shared, broadcast, tensor) != result:
        raise Refused(_UNEVEN.format(tensor=tensor), _UNEVEN_REMEDY, code="unsupported-instances")
    return result


def _examine(
    levels: tuple[OutputLevel, ...], shared: frozenset[int], broadcast: frozenset[int], tensor: str
) -> Reduction:
    last = levels[-1].now
    blocks = []
    uneven = False
    for factor in last.factors:
        if not factor.spatial:
            continue
        shape = shape_of(factor)
        if factor.ranks:
            if not steps.instance_of_element(shape.text, shape.np, shape.nt):
                raise Refused(_tied(levels, factor, tensor), _TIED_REMEDY, code="unsupported-space")
            continue
        blocks.append(factor.block)
        uneven = uneven or not steps.uniform(shape.text, shape.np, shape.nt)
    mine = {a for b in blocks for f in last.factors if f.block == b for a in f.spatial}
    if not uneven:
        return Reduction(shared, broadcast, tuple(blocks), False)
    if mine <= broadcast:
        if _read_first_above(levels):
            raise Refused(_UNEVEN.format(tensor=tensor), _UNEVEN_REMEDY, code="unsupported-instances")
        for level in levels:
            for b in blocks:
                f = level.factor(b)
                if f and not steps.first_is_fullest(*_args(f)):
                    raise Refused(_UNEVEN.format(tensor=tensor), _UNEVEN_REMEDY, code="unsupported-instances")
        return Reduction(shared, broadcast, tuple(blocks), True)
    if mine & broadcast or any(level.carries for level in levels):
        raise Refused(_UNEVEN.format(tensor=tensor), _UNEVEN_REMEDY, code="unsupported-instances")
    _check_receivers(levels, tuple(blocks), tensor)
    return Reduction(shared, broadcast, tuple(blocks), False)


_TIED_REMEDY = (
    "use reuse: refill for this output, or make the spatial loop temporal, or store padding as elements"
)


def _tied(levels: tuple[OutputLevel, ...], factor: Factor, tensor: str) -> str:
    """Instances that sum an element in a factor with ranks of the output: the element decides which."""
    last = levels[-1]
    axes = [last.now.axes[i] for i in factor.spatial]
    summing = [a for a in axes if a.variable not in last.indexing] or axes
    over = dict.fromkeys(f"{a.component}.{a.dim}" for a in summing)
    at = dict.fromkeys(x.node.component for x in levels if x.node is not None and stays(x))
    return (
        f"output {tensor} stays from visit to visit in {', '.join(at)} (its reuse policy), instances over "
        f"{', '.join(over)} sum it up, and which of them take part differs between its elements; its Einsum "
        "has too many iterations to list"
    )


# only what has too many iterations to list (`listed`) and is carried (otherwise `uneven`) gets here
_UNEVEN = (
    "partial sums of {tensor} are carried and spread over a fanout unevenly, "
    "and their Einsum has too many iterations to list"
)
_UNEVEN_REMEDY = "use reuse: refill for this output, or tiles that divide their extents"


def _read_first_above(levels: tuple[OutputLevel, ...]) -> bool:
    """Whether a level is filled on first reads further up, but not by its own parent."""
    inner = levels[1:-1]
    return any(
        any(x.read_first for x in levels[:k]) and not levels[k].read_first for k in range(1, len(inner))
    )


def _args(factor: Factor) -> tuple[str, int, int]:
    shape = shape_of(factor)
    return shape.text, shape.np, shape.nt


def _check_receivers(levels: tuple[OutputLevel, ...], blocks: tuple[int, ...], tensor: str) -> None:
    for level in levels:
        for b in blocks:
            f = level.factor(b)
            if f is None:
                continue
            keep = sum(1 for a in f.spatial if a < level.charge)
            if not steps.lowest_receives(f.text, keep, len(f.spatial), len(f.temporal)):
                raise Refused(_UNEVEN.format(tensor=tensor), _UNEVEN_REMEDY, code="unsupported-instances")


@dataclass(frozen=True)
class OutputChain:
    """The levels with their reduction; counts are per instance of a chosen level, as products."""

    levels: tuple[OutputLevel, ...]
    reduction: Reduction

    @cached_property
    def sums(self) -> tuple[OutputLevel, ...]:
        """The levels for partial sums: each execution produces elements of its own."""
        return tuple(level.apart for level in self.levels)

    def spatial(self, level: int) -> tuple[int, ...]:
        return self.levels[level].now.spatial

    def runs(self, level: int) -> tuple[CountProduct, ...]:
        """Runs per instance of the level itself (each drains once)."""
        return _runs(self.levels[level])

    def distinct(self, level: int) -> tuple[CountProduct, ...]:
        """Distinct elements per instance of a level whose runs do not end before they are complete."""
        parts: list[tuple[tuple[int, ...], Array]] = []
        for f in self.sums[level].now.factors:
            shape = shape_of(f)
            times = tuple(range(shape.np, shape.np + shape.nt))
            parts.append((f.spatial, tally(shape, len(f.spatial), times)))
        return (CountProduct(1, tuple(parts)),)

    def events(self, level: int, *, forward: bool = False) -> tuple[CountProduct, ...]:
        """Starts (or ends, `forward`) of runs, united over shared instances, per instance of the parent."""
        return self._events(self.levels[level], forward)

    def _events(self, here: OutputLevel, forward: bool = False) -> tuple[CountProduct, ...]:
        return moved(here.now, here.held, here.carries, here.charge, self.reduction.shared, forward=forward)

    def firsts(self, level: int) -> tuple[CountProduct, ...]:
        """Elements per instance that is active at the element's first stamp."""
        factors = self.sums[level].now.factors
        return (CountProduct(1, tuple((f.spatial, first_tally(shape_of(f))) for f in factors)),)

    def complete(self, level: int) -> bool:
        """Whether each element is produced within one run of the level, which was not filled."""
        return level == 0 or self.levels[level].spans

    def filled(self, level: int) -> tuple[CountProduct, ...]:
        """Filled runs per instance of the level; the writes that fills make there."""
        if level == 0:
            return ()
        if self.levels[level - 1].read_first:
            if self.reduction.first_touch_formula:
                return self.runs(level)
            return tuple(self._lifted(self.levels, level, level, united=True))
        if self.levels[level].spans:
            return ()
        if self.reduction.first_touch_formula:
            return _runs(self.sums[level]) + _negative(self.firsts(level))
        result = self._lifted(self.sums, level, level, united=True)
        result += _negative(self._lifted(self.sums, level - 1, level, united=False))
        if not self.complete(level - 1):
            result += self._reaching(level - 1, level)
        return tuple(result)

    def _reaching(self, level: int, target: int) -> list[CountProduct]:
        """Filled runs of `level` per receiving instance of `target`."""
        if self.levels[level - 1].read_first:
            return self._lifted(self.levels, level, target, united=True)
        result = self._lifted(self.sums, level, target, united=True)
        result += _negative(self._lifted(self.sums, level - 1, target, united=False))
        return result if self.complete(level - 1) else result + self._reaching(level - 1, target)

    def reads(self, level: int) -> tuple[CountProduct, ...]:
        """Partial sums that the parent of `level` reads out, per instance of the parent."""
        if self.levels[level - 1].read_first:
            return self.events(level)
        if self.levels[level].spans:
            return ()
        events = self._events(self.sums[level])
        if self.complete(level - 1):
            return events + _negative(self.distinct(level - 1))
        return events + _negative(_runs(self.sums[level - 1])) + self.filled(level - 1)

    def _lifted(
        self, levels: tuple[OutputLevel, ...], level: int, target: int, *, united: bool
    ) -> list[CountProduct]:
        """Runs of `level` (`united`: child events of its parent) per receiving instance of `target`."""
        here, goal = levels[level], levels[target]
        choices: list[int | None] = [None]
        if not self.complete(level) or united:
            choices += [a for a in sorted(here.carries) if modes(here.held.factors, a) is not None]
        result = []
        for axis in choices:
            parts: list[tuple[tuple[int, ...], Array]] = []
            for f in goal.now.factors:
                parts.append((f.spatial, self._part(levels, level, target, f, axis, united)))
            result.append(CountProduct(1 if axis is None else -1, tuple(parts)))
        return result

    def _part(
        self,
        levels: tuple[OutputLevel, ...],
        level: int,
        target: int,
        goal: Factor,
        axis: int | None,
        united: bool,
    ) -> Array:
        here = levels[level]
        f = here.factor(goal.block)
        if f is None:
            return self._spread(_ones(0), 0, level, target, goal, united)
        held = next(h for h in here.held.factors if h.block == f.block)
        mode = None if axis is None else transition_mode(held, axis)
        shape = shape_of(f)
        if self.complete(level) and not united:
            times = tuple(range(shape.np, shape.np + shape.nt))
            if goal.ranks:
                return tally(shape_of(goal), len(goal.spatial), _times(goal))
            return self._spread(tally(shape, shape.np, times), shape.np, level, target, goal, False)
        if goal.ranks:
            return located_tally(shape, held.text, mode, shape_of(goal))
        keep = sum(1 for a in f.spatial if a < here.charge) if united else shape.np
        drop = tuple(range(keep, shape.np)) if united else ()
        if mode is None:
            array = tally(shape, keep, drop)
        else:
            array = resident_tally(shape, held.text, mode, False, keep, drop)
        return self._spread(array, keep, level, target, goal, united)

    def _spread(self, array: Array, keep: int, level: int, target: int, goal: Factor, united: bool) -> Array:
        """Extend per-instance counts of a rank-less factor to the instances of `target` that receive."""
        result = array
        first = level if united else level + 1
        for k in range(max(first, 1), target + 1):
            f = self.levels[k].factor(goal.block)
            if f is None or len(f.spatial) == keep:
                continue
            receivers = _receivers(f, keep, self.reduction.broadcast)
            result = receivers * result.reshape(result.shape + (1,) * (receivers.ndim - result.ndim))
            keep = len(f.spatial)
        return result


def _runs(here: OutputLevel) -> tuple[CountProduct, ...]:
    """Runs per instance of a level."""
    return moved(here.now, here.held, here.carries, len(here.now.axes), frozenset())


def _times(factor: Factor) -> tuple[int, ...]:
    return tuple(range(len(factor.spatial), len(factor.spatial) + len(factor.temporal)))


def _ones(axes: int) -> Array:
    return np.full((1,) * axes, 1, dtype=object)


def _receivers(factor: Factor, keep: int, broadcast: frozenset[int]) -> Array:
    """1 where an instance receives a refilled partial sum, 0 elsewhere; axes: all of the factor's."""
    shape = shape_of(factor)
    active = tally(shape, shape.np, _times(factor))
    result = active.copy()
    for k in range(keep, shape.np):
        if factor.spatial[k] in broadcast:
            continue
        seen = np.zeros(result.shape[:k] + result.shape[k + 1 :], dtype=bool)
        for i in range(result.shape[k]):
            index = tuple(i if a == k else slice(None) for a in range(result.ndim))
            here = np.asarray(result[index] != 0)
            result[index] = np.where(here & ~seen, 1, 0)
            seen = seen | here
    return result


def _negative(products: tuple[CountProduct, ...] | list[CountProduct]) -> tuple[CountProduct, ...]:
    return tuple(CountProduct(-p.sign, p.parts) for p in products)
