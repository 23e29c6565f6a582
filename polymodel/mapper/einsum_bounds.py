"""Lower bounds of each Einsum by itself, found by branch and bound.

They are the floors of `lower_bounds` for the whole space only: known mappings then exclude almost all
candidates, so that an Einsum takes a second although the table of its floors may take a minute. The sum of
these bounds is a bound of all whole mappings.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import inf
from typing import Any

import numpy as np

from polymodel.mapper.aims import ENERGY, LATENCY, Added, Bound, KnownMappings
from polymodel.mapper.budget import Late, SearchTally, once
from polymodel.mapper.combine import Interest
from polymodel.mapper.completion_bounds import CompletionBounds
from polymodel.mapper.descent import LEAST, Goal, PointCosts
from polymodel.mapper.exchange_plans import EinsumInterface
from polymodel.mapper.first_mappings import EinsumSearch, rough_size
from polymodel.mapper.iterative_deepening import Deepening
from polymodel.mapper.join import Lives
from polymodel.mapper.lower_bounds import Floors, compulsory
from polymodel.mapper.pmappings import Explorer, SearchedRegions, equal_shapes
from polymodel.mapper.records import Limits
from polymodel.mapper.space import EinsumSpace
from polymodel.mapper.templates import Exchanges, Passing, Sharing, Template, deepest, shapes
from polymodel.mapper.terms import price_of

Array = Any
NEAR = 2e-3  # relative: smaller improvements on a known mapping are not searched for
SHARE = 0.2  # of the time limit, for each visit
OUTER = 1  # the memory inside the backing storage
ROUNDED = 1e-9  # relative: sums of floats in different orders may differ by this much
Least = tuple[float, float]  # with exchanges in memory OUTER alone, and with all exchanges


def bound_einsums(
    work: Deepening, parts: int, done: dict[tuple[int, int], Least], together: bool = False
) -> None:
    """Continue to bound the Einsums of a search with a time limit (`EinsumBounds`), and with `together` whole
    mappings by them. A search without a limit tabulates their floors instead."""
    # Rules on loops below a memory differ without the fused loops.
    if work.request.time_limit is not None and not any(s.rules.of_blocks for s in work.spaces):
        EinsumBounds(work, parts, done).go_on(together)


@dataclass
class EinsumBounds:
    """Lower bounds of the Einsums of a search, whose exchanged tensors cost nothing outside their memories.

    `parts`: the number of parts of the space that the search distinguishes: two if mappings that exchange
    tensors only in memory OUTER are bounded separately. `done`: by Einsum and row the known bounds.
    """

    work: Deepening
    parts: int
    done: dict[tuple[int, int], Least]

    def go_on(self, together: bool = False) -> None:
        """Bound Einsums for a part of the time limit, those with few tile sizes first, and raise the bounds
        of whole mappings; with `together`, to bounds for exchanged tensors that fit together."""
        spaces, watch = self.work.spaces, self.work.watch

        def ended(error: BaseException) -> None:
            if not isinstance(error, Late):  # the end of this part of the time ends nothing else
                watch.ended(error)

        tally = replace(watch.tally(watch.share(SHARE)), ended=ended, crew=None)
        left = [(i, row) for i in self._alike for row in range(len(self._rows)) if (i, row) not in self.done]
        for i, row in sorted(left, key=lambda x: rough_size(spaces[x[0]])):
            watch.begin_step(f"bounds of {spaces[i].name}")
            if not tally.has_time():
                break
            found = watch.step(partial(self._least, i, row, tally))
            if found is not None:
                self.done[i, row] = found
                self._raise(i, row, found)
        for part in range(self.parts) if together else ():
            tally = replace(tally, has_time=watch.share(SHARE))
            watch.begin_step("bounds of whole mappings")
            watch.step(partial(self._bound_together, part, tally))

    @property
    def _rows(self) -> tuple[Added, ...]:
        return self.work.rules.aims.added

    @cached_property
    def _exchanges(self) -> list[frozenset[Exchanges]]:
        """Return, per Einsum, the exchanges whose tensors fit at some tile sizes of shared loops."""
        spaces, limits = self.work.spaces, self.work.request.limits
        ranks, every = _parted_ranks(spaces, limits), (_exchanges_of(s, limits) for s in spaces)
        return [
            frozenset(e for e in some if _fits(s, e, ranks, self.work.rules.lives))
            for s, some in zip(spaces, every, strict=True)
        ]

    @cached_property
    def _alike(self) -> dict[int, list[int]]:
        """Return Einsums of equal shape and exchanges, by the first of them."""
        result: dict[int, list[int]] = {}
        keys = list(zip(self.work.named, self._exchanges, strict=True))
        for i, first in equal_shapes(self.work.spaces, keys):
            result.setdefault(first, []).append(i)
        return result

    def _raise(self, i: int, row: int, found: Least) -> None:
        """Raise the bounds of the Einsums that are equal to `i`, and of whole mappings, in every part of the
        space."""
        for part, least in enumerate(found[-self.parts :]):
            each = self.work.watch.least.of_einsums(part)
            if each is None:
                return
            for k in self._alike[i]:
                each[k][row] = max(each[k][row], least)
            self.work.raise_bounds(np.sum(each, axis=0), part=part)

    def _bound_together(self, part: int, tally: SearchTally) -> None:
        """Raise the bounds of whole mappings to bounds for exchanged tensors that fit together."""
        spaces, rules, each = self.work.spaces, self.work.rules, self.work.watch.least.of_einsums(part)
        if each is None:
            return
        if self.parts > 1 and part == 0:
            spaces = [replace(s, exchange=frozenset({OUTER})) for s in spaces]
        rules = replace(rules, lives=replace(rules.lives, inside=part > 0))
        costs = [in_backing_storage(s, e, self._rows) for s, e in zip(spaces, self._exchanges, strict=True)]
        floors = [
            Floors(self.work.steps, len(self._rows), None, tuple(x.tolist()), c)
            for x, c in zip(each, costs, strict=True)
        ]
        known = replace(self.work.known, figures=self.work.known.figures[:, :0])
        limits = self.work.request.limits
        depth = deepest(spaces, limits)
        try:
            paths = CompletionBounds(
                spaces, limits, rules, floors, self.work.passing, depth, known, tally, coarse=True
            )
            paths.work_out(None)
        except Late:
            return
        least = paths.behind[0][: len(self._rows), -1, 0] * (1 - ROUNDED)
        if np.isfinite(least).all():
            self.work.raise_bounds(least, part=part)

    def _least(self, i: int, row: int, tally: SearchTally) -> Least | None:
        """Return bounds of one figure of an Einsum; None if there is no time for them."""
        space, limits, wanted = self.work.spaces[i], self.work.request.limits, self._exchanges[i]
        try:
            return once(
                tally,
                lambda: ("least", space, limits, row, self._rows, wanted),
                lambda: self._searched(i, row, wanted, tally),
                lambda found: True,
            )
        except Late:
            return None

    def _searched(self, i: int, row: int, wanted: AbstractSet[Exchanges], tally: SearchTally) -> Least:
        """Search the bounds. Raises Late once the time limit has passed."""
        space, figure = self.work.spaces[i], self._rows[row]
        apart = figure in (ENERGY, LATENCY)
        interest = Interest(figure == ENERGY, figure == LATENCY, (), relaxed=True)
        alone = replace(space, more=() if apart else (figure,))
        explorer = Explorer(alone, self.work.request.limits, interest, Passing(), SearchedRegions())
        by_shape: dict[Sharing, list[Template]] = {}
        for t in explorer.without_fused_loops(wanted, tally):
            by_shape.setdefault(t.shape, []).append(t)
        known = KnownMappings(self._first_known(i, row, list(by_shape), tally), 1, np.array([inf]), NEAR)
        bound = Bound(known, np.zeros((1, 1)), whole=True, seconds=compulsory(alone)[1])
        explorer.known.bound = replace(bound, whole=False)
        result = list[float]()
        for inside in (False, True):
            for shape, some in by_shape.items():
                if (shape.innermost > OUTER) != inside:
                    continue
                points, late = explorer.worked_out(tuple(some), range(len(some)), bound, tally)
                if late:
                    raise Late
                if points is not None and len(points):
                    figures = interest.figures(points.energy, points.latency, points.more, ())
                    bound = bound.against(np.stack(figures))
            result.append(float(bound.known.low.min(initial=inf)) * (1 - 2 * ROUNDED))
        return result[0], result[1]

    def _first_known(self, i: int, row: int, some: Sequence[Sharing], tally: SearchTally) -> Array:
        """Return the figure [1, n] of a mapping with as many exchanges as possible, found by local search."""
        space = self.work.spaces[i]
        most = max(some, key=lambda s: (len(s.shared), -s.innermost), default=Sharing((), ()))
        room = [m.capacity for m in space.memories]
        for k, m, _ in most.shared:
            room[m] += space.operands[k].elements * space.operands[k].bits
        search = EinsumSearch(self.work, i, EinsumInterface(most), tuple(room), self._goal(row), 0, {}, tally)
        found = [self._figure(row, f.energy, f.latency, f.more) for f in search.fair()]
        return np.array(found, float).reshape(1, -1)

    def _goal(self, row: int) -> Goal:
        def score(costs: PointCosts) -> Array:
            return np.maximum(self._figure(row, costs.energy, costs.latency, costs.more), LEAST)

        return score

    def _figure(self, row: int, energy: Any, latency: Any, more: Sequence[Any]) -> Any:
        figures = {ENERGY: energy, LATENCY: latency, **dict(zip(self.work.spaces[0].more, more, strict=True))}
        return figures[self._rows[row]]


def _exchanges_of(space: EinsumSpace, limits: Limits) -> set[Exchanges]:
    reach = len(space.memories) if space.copy else max(u.memories for u in space.units)
    return {shape.exchanges for shape in shapes(space, limits, Passing(), 0, reach)}


def _parted_ranks(spaces: Sequence[EinsumSpace], limits: Limits) -> dict[str, set[int]]:
    """Return, per tensor, the ranks that loops above all Einsums that access it can split."""
    result: dict[str, set[int]] = {}
    for o in (o for s in spaces for o in s.operands if o.fusable):
        mine = {k for k, v in enumerate(o.ranks) if v in o.parted and v != o.over}
        result[o.tensor] = result.get(o.tensor, mine) & mine if limits.max_fused_loops != 0 else set()
    return result


def _fits(space: EinsumSpace, some: Exchanges, ranks: dict[str, set[int]], lives: Lives) -> bool:
    """Return whether the least tiles of the exchanged tensors fit their memories: in memory OUTER each by
    itself, so that the union of two sets of tensors that may be exchanged there may be as well; further
    inside together."""
    held: dict[int, float] = {}
    for i, m in some:
        over = sorted(ranks[space.operands[i].tensor])
        bits = float(lives.least(space.operands[i].tensor, m, over, np.ones((len(over), 1)))[0])
        held[m] = max(held.get(m, 0.0), bits) if m == OUTER else held.get(m, 0.0) + bits
    return all(bits <= space.memories[m].capacity * (1 + ROUNDED) for m, bits in held.items())


def in_backing_storage(
    space: EinsumSpace, wanted: AbstractSet[Exchanges], rows: Sequence[Added]
) -> dict[int, tuple[float, ...]]:
    """Return the least increase of an Einsum's figures for each operand that is exchanged in the backing
    storage although memory OUTER might hold it.

    In OUTER, where it arrives at no cost and takes no space, each access of the backing storage would be one
    of OUTER, or none. This is valid if accesses of OUTER cost no more, and no fanout is in between.
    """
    result: dict[int, tuple[float, ...]] = {}
    outer = {i for some in wanted for i, m in some if m == OUTER}
    if (
        space.copy
        or space.leak
        or any(f.below <= OUTER and f.width > 1 for f in space.fanouts)
        or space.memories[OUTER].read_first
    ):
        return result
    for i in outer:
        o = space.operands[i]
        saved = [
            price_of(space, i, 0, kind)[0] - price_of(space, i, OUTER, kind)[0]
            for kind in ("reads_fill", "reads_drain", "writes_drain", "writes_fill")
        ]
        if o.rounds or o.carried is not None or o.first >= 0 or space.shares is not None or min(saved) < 0:
            continue
        way, joules = ("writes", saved[2]) if o.output else ("reads", saved[0])
        result[i] = tuple(o.elements * space.times * _of_row(space, row, way, joules, o.bits) for row in rows)
    return result


def _of_row(space: EinsumSpace, row: Added, way: str, joules: float, bits: int) -> float:
    """Return the contribution of one element to a figure."""
    if row == ENERGY:
        return joules
    if row == Added(moved=row.moved) and all(c == space.memories[0].name for c, _, _ in row.moved):
        return sum(weight * bits for _, w, weight in row.moved if w == way)
    return 0.0
