"""Hierarchies cut in two: memories up to a cut, with the fused loops, and those inside it, with compute.

If all tile sizes divide, the transfers between two memories depend only on the inner tile. So the costs of
the two regions add up, and they interact only through the tile at the cut: the upper region provides a tile,
and the lower one needs a tile that divides it (`InnerPoints`: the undominated points, and which of them fit a
given tile). The lower region is searched once per set of parents, whatever the fused loops are
(docs/develop/rules.md, Fusion). If energy is the only objective, it is cut again, and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import product
from math import prod
from typing import Any

import numpy as np

from polymodel.frozen import dataclass
from polymodel.mapper.aims import Bound
from polymodel.mapper.budget import SearchTally, each_part, runs_of
from polymodel.mapper.combine import Combination, Interest
from polymodel.mapper.einsum_rules import apart_at, cuts
from polymodel.mapper.records import Limits
from polymodel.mapper.space import EinsumSpace
from polymodel.mapper.templates import Template, inner_templates
from polymodel.mapper.terms import CostTerms, costs, jointly, price_of
from polymodel.mapper.tile_chains import all_chains
from polymodel.pareto import rows_of, undominated

Array = Any
PAIRS = 2_000_000
CELLS = 2**24


@dataclass(frozen=True)
class InnerPoints:
    """Undominated points of the lower region. `ports` [2 * cut memories, n]: seconds at the ports of
    memories above the cut; `rest`: the longest time of everything else; `needs` [primes of all variables,
    n]: exponents of the tile that it needs; `local` [memories of interest, n]: bits. For a region that is
    cut itself: `region` [n], an index into `lower`, and `below` [n], the point there."""

    energy: Array
    ports: Array
    rest: Array
    local: Array
    needs: Array
    templates: tuple[Template, ...]
    template: Array
    choice: Array
    leaked: Array | None = None
    more: Array = field(default_factory=lambda: np.zeros((0, 0)))
    lower: tuple[InnerPoints, ...] = ()
    region: Array | None = None
    below: Array | None = None
    fitting: dict[int, Array] = field(default_factory=dict)
    compared: list[Array] = field(default_factory=list)

    @cached_property
    def lower_bounds(self) -> tuple[Array, Array]:
        """The least energy and the least `rest` of points that fit, for every tile: one axis per prime."""
        return self._floor(self.energy), self._floor(self.rest)

    def _floor(self, figure: Array) -> Array:
        table = np.full(tuple(int(n.max()) + 1 for n in self.needs), np.inf)
        np.minimum.at(table, tuple(self.needs), figure)
        for axis in range(table.ndim):
            np.minimum.accumulate(table, axis=axis, out=table)
        return table

    @cached_property
    def lower_bounds_of_more(self) -> tuple[Array, ...]:
        """Return lower bounds of the other figures that add up, for every tile."""
        return tuple(map(self._floor, self.more))

    def least(self, gives: Array) -> tuple[Array, Array]:
        """Return lower bounds of (energy, time) of points that fit tiles [primes, n]; infinite if none
        fits."""
        energy, rest = self.lower_bounds
        at = self._entries(gives)
        return energy[at], rest[at]

    def least_more(self, gives: Array) -> Array:
        """Return lower bounds of the other figures, without the part that depends on latency [figures, n]."""
        at, n = self._entries(gives), gives.shape[1]
        return np.array([np.broadcast_to(table[at], n) for table in self.lower_bounds_of_more]).reshape(-1, n)

    def _entries(self, gives: Array) -> tuple[Array, ...]:
        sides = zip(gives, self.lower_bounds[0].shape, strict=True)
        return tuple(np.minimum(g, n - 1) for g, n in sides)

    def for_tiles(self, gives: Array, interest: Interest) -> tuple[Array, Array]:
        """Return, for tiles [primes, n], the points that fit and that no other fitting point dominates:
        (tile, point) of each."""
        n = gives.shape[1]
        alone = interest.energy and not interest.latency and not len(self.more)
        if not len(gives) or (alone and not self.local.any()):
            sides = zip(gives, self._cheapest.shape, strict=True)
            best = np.atleast_1d(self._cheapest[tuple(np.minimum(g, k - 1) for g, k in sides)])
            return np.arange(n), np.broadcast_to(best, n)
        extents = self.lower_bounds[0].shape
        cells = np.ravel_multi_index(
            tuple(np.minimum(g, k - 1) for g, k in zip(gives, extents, strict=True)), extents
        )
        each, which = np.unique(cells, return_inverse=True)
        self._fit(np.array([c for c in each.tolist() if c not in self.fitting], np.int64), interest)
        result = [self.fitting[c] for c in each.tolist()]
        counts = np.array([len(c) for c in result])[which]
        ends = np.cumsum(counts)
        # positions of the cells' runs, in the order of the points
        starts = np.cumsum([0, *(len(c) for c in result[:-1])])[which]
        within = np.arange(int(counts.sum())) - np.repeat(ends - counts, counts)
        return np.repeat(np.arange(n), counts), np.concatenate(result)[np.repeat(starts, counts) + within]

    def _fit(self, cells: Array, interest: Interest) -> None:
        """Compute the undominated points that fit each cell (an entry of the table of lower bounds)."""
        if not len(cells):
            return
        extents = self.lower_bounds[0].shape
        if self.leaked is not None and interest.energy:
            for cell in cells.tolist():
                self.fitting[cell] = self._worth(np.unravel_index(cell, extents), self.leaked)
            return
        dominated = self._dominated(interest)
        step = max(1, CELLS // len(self.energy))
        for begin in range(0, len(cells), step):
            some = cells[begin : begin + step]
            fits = np.ones((len(self.energy), len(some)), bool)
            for need, give in zip(self.needs, np.unravel_index(some, extents), strict=True):
                fits &= need[:, None] <= give[None, :]
            best = fits & (dominated @ fits.astype(np.float32) == 0)
            columns, rows = np.nonzero(best.T)
            bounds = np.searchsorted(columns, np.arange(len(some) + 1))
            for k, cell in enumerate(some.tolist()):
                self.fitting[cell] = rows[bounds[k] : bounds[k + 1]]

    def _worth(self, cell: Sequence[Any], leaked: Array) -> Array:
        """Return undominated points that fit one tile and need no more energy than another one certainly
        does."""
        fits = np.flatnonzero((self.needs <= np.array(cell)[:, None]).all(axis=0))
        if not len(fits):
            return fits
        most = (self.energy[fits] + leaked[fits]).min()
        some = fits[self.energy[fits] <= most]
        return some[undominated([self.energy[some], self.rest[some], *self.ports[:, some]])]

    def _dominated(self, interest: Interest) -> Array:
        """[i, j]: 1 where point j is no worse than point i in any figure, and better or earlier."""
        if not self.compared:
            figures = [self.energy] if interest.energy else []
            figures += [self.rest, *self.ports] if interest.latency else []
            no_worse = np.ones((len(self.energy), len(self.energy)), bool)
            no_better = no_worse.copy()
            for f in (*figures, *self.more, *self.local):
                no_worse &= f[None, :] <= f[:, None]
                no_better &= f[None, :] >= f[:, None]
            first = np.tri(len(self.energy), k=-1, dtype=bool)
            self.compared.append((no_worse & (~no_better | first)).astype(np.float32))
        return self.compared[0]

    @cached_property
    def quickest(self) -> InnerPoints:
        """Return the points that are undominated in time."""
        kept = undominated([self.rest, *self.ports, *self.needs])
        return replace(self._only(kept), local=self.local[:0, kept], more=self.more[:0, kept], leaked=None)

    def _only(self, kept: Array) -> InnerPoints:
        return replace(rows_of(self, kept), fitting={}, compared=[])

    @cached_property
    def _cheapest(self) -> Array:
        """The position of the point of least energy that fits, for every tile."""
        return _first_fitting(self.energy, self.needs)


def inner_regions(
    space: EinsumSpace,
    limits: Limits,
    interest: Interest,
    origins: Sequence[tuple[int, ...]],
    cut: int,
    tally: SearchTally,
    bound: Bound | None = None,
) -> list[InnerPoints]:
    """Search the lower region for operands that come from each of `origins` (memory of each operand).

    Raises Late once the time limit has passed. `bound`: of whole mappings of the Einsum; points that cannot
    be part of better ones are dropped. The points are the same for all origins, which differ only in the
    costs of reading and writing above the cut: so points are combined once, and compared by the costs of each
    origin separately.
    """
    again = cut_again(space, limits, cut, interest)
    if again is not None:
        return _cut_regions(space, limits, interest, origins, (cut, again), tally, bound)
    some = tuple(inner_templates(space, limits, origins[0], cut))
    below = LowerRegion(space, limits, interest, tuple(origins), (cut, cut), bound, some)
    return _searched(below, _inner_points, tally)


@dataclass(frozen=True)
class LowerRegion:
    """A region below a cut, the comparison figures, and its templates. `ends`: the cut, and where the
    region ends: at another cut (the same: with compute), below which are the `lower` regions for parents
    `deeper`."""

    space: EinsumSpace
    limits: Limits
    objectives: Interest
    origins: tuple[tuple[int, ...], ...]
    ends: tuple[int, int]
    bound: Bound | None
    templates: tuple[Template, ...]
    lower: tuple[InnerPoints, ...] = ()
    deeper: tuple[tuple[int, ...], ...] = ()

    @cached_property
    def interest(self) -> Interest:
        return with_leakage(self.space, self.objectives)

    @cached_property
    def outside(self) -> list[float]:
        """Joules that are spent outside, per origin."""
        return [_moved_once(self.space, parents) for parents in self.origins]


Found = list[list[InnerPoints]]  # per origin the points of templates, without templates and lower regions
PartOfRegion = Callable[[LowerRegion, range, SearchTally], Found]


def _searched(region: LowerRegion, part: PartOfRegion, tally: SearchTally) -> list[InnerPoints]:
    """The undominated points of all templates, per origin."""
    result: Found = [[] for _ in region.origins]
    for found in each_part(part, region, runs_of(len(region.templates), tally), tally):
        for mine, points in zip(result, found, strict=True):
            mine += (replace(p, templates=region.templates, lower=region.lower) for p in points)
    space, interest = region.space, region.interest
    return [_all_of(space, mine, interest) if mine else _nothing(region.templates) for mine in result]


def _inner_points(region: LowerRegion, numbers: range, tally: SearchTally) -> Found:
    """The points of some templates of a region with compute."""
    space, (cut, _), objectives, interest = region.space, region.ends, region.objectives, region.interest
    result: Found = [[] for _ in region.origins]
    for number in numbers:
        template = region.templates[number]
        tally.templates += 1
        each = [costs(space, replace(template, parents=parents)) for parents in region.origins]
        joint = jointly(each)
        elsewhere = list(zip(each, region.outside, strict=True))
        joined = combined(space, template, joint, region.limits, objectives, region.bound, tally, elsewhere)
        if not joined.n:
            continue
        needs = np.stack(joined.ends()) if joined.ends() else np.zeros((0, joined.n))
        local, _ = joined.slots()
        tally.ask()
        figures = [*joined.distinguishing_forms(), *local, *needs]
        kept = np.arange(joined.n)
        priced = [(joined.form(c.energy) * space.times, *port_times(joined, c, space, cut)) for c in each]
        leaked: list[Array | None] = [None] * len(each)
        if _energy_alone(space, objectives, cut):
            at_most = [_leaked(space, ports, rest) for _, ports, rest in priced]
            worth = [_worth(p[0], more, needs) for p, more in zip(priced, at_most, strict=True)]
            kept = np.flatnonzero(np.any(worth, axis=0))
            leaked = list(at_most)
        if not _energy_alone(space, interest, cut):  # otherwise the best of each origin are quickly found
            kept = kept[undominated([f[kept] for f in figures])]
        choice = joined.choice()
        for k, (energy, ports, rest) in enumerate(priced):
            tally.ask()
            points = InnerPoints(
                energy, ports, rest, local, needs, (), np.full(joined.n, number), choice, leaked[k],
                more=other_figures(joined, each[k]),
            )._only(kept)  # fmt: skip
            hopeful = _hopeful(space, points, objectives, region.bound, region.outside[k])
            if len(hopeful.energy):
                result[k].append(_best(hopeful, interest))
    return result


def _all_of(space: EinsumSpace, found: Sequence[InnerPoints], interest: Interest) -> InnerPoints:
    """The undominated points of all templates."""
    points = _best(_together(found), interest)
    if points.leaked is None:
        return points
    return replace(points, leaked=_leaked(space, points.ports, points.rest))


def cut_again(space: EinsumSpace, limits: Limits, cut: int, interest: Interest) -> int | None:
    """Return where the region below a cut may be cut again, or None.

    With energy as the only objective, few points of the region below are worth joining with each point of the
    region between the cuts.
    """
    at = cut + 1
    reach = [u.memories for u in space.units]
    if interest.latency or space.more or not interest.energy or at >= min(reach) or at + 1 >= max(reach):
        return None
    first = space.memories[at].index
    wide = any(f.below <= at and f.width > 1 for f in space.fanouts)
    costly = any(f.costly and f.index <= first for f in space.fanouts)
    tolled = any(t.index < first for t in space.tolls)
    begun = any(m.read_first for m in space.memories[: at + 1])
    between = cuts(space, limits)[-1] > cut  # tensors exchanged there take space beside these points
    if wide or costly or tolled or begun or between or at in space.rules.sliding:
        return None
    return at if apart_at(space, limits, at) else None


def _cut_regions(
    space: EinsumSpace,
    limits: Limits,
    objectives: Interest,
    several: Sequence[tuple[int, ...]],
    ends: tuple[int, int],
    tally: SearchTally,
    bound: Bound | None,
) -> list[InnerPoints]:
    """Return the points of a region that is itself cut in two: memories from the first end (exclusive) to the
    second, and those inside."""
    cut, again = ends
    deeper = tuple(origins(space, again))
    lower = tuple(inner_regions(space, limits, objectives, deeper, again, tally, bound))
    some = tuple(inner_templates(space, limits, several[0], cut, again))
    between = LowerRegion(space, limits, objectives, tuple(several), ends, bound, some, lower, deeper)
    result = _searched(between, _points_between, tally)
    for region in lower:
        region.fitting.clear()
    return result


def _points_between(region: LowerRegion, numbers: range, tally: SearchTally) -> Found:
    """The points of some templates between two cuts, joined with points below."""
    space, objectives, lower, outside = region.space, region.objectives, region.lower, region.outside
    result: Found = [[] for _ in region.origins]
    for number in numbers:
        template = region.templates[number]
        each = [costs(space, replace(template, parents=parents)) for parents in region.origins]
        held = {n.operand: n.memory for n in template.nodes}
        below = [
            region.deeper.index(tuple(held.get(i, m) for i, m in enumerate(parents)))
            for parents in region.origins
        ]
        inside = [float(lower[at].energy.min(initial=np.inf)) for at in below]
        elsewhere = list(zip(each, np.add(outside, inside).tolist(), strict=True))
        joint, bound = jointly(each), region.bound
        joined = combined(space, template, joint, region.limits, objectives, bound, tally, elsewhere)
        tally.templates += 1
        if not joined.n:
            continue
        for mine, c, at, joules in zip(result, each, below, outside, strict=True):
            tally.ask()
            for points in _stacked(space, joined, c, objectives, region.ends, (lower, at), number):
                hopeful = _hopeful(space, points, objectives, bound, joules)
                if not len(hopeful.energy):
                    continue
                if not hopeful.local.any():
                    assert hopeful.leaked is not None
                    worth = _worth(hopeful.energy, hopeful.leaked, hopeful.needs)
                    hopeful = hopeful._only(np.flatnonzero(worth))
                mine.append(_best(hopeful, region.interest))
    return result


def _stacked(
    space: EinsumSpace,
    upper: Combination,
    found: CostTerms,
    objectives: Interest,
    ends: tuple[int, int],
    deeper: tuple[tuple[InnerPoints, ...], int],
    number: int,
) -> Iterator[InnerPoints]:
    """Points of a template between two cuts, joined with those below. `found`: their costs for some
    parents; `deeper`: all regions below, and the number of the one to join."""
    (cut, again), (lower, at) = ends, deeper
    below = lower[at]
    if not len(below.energy):
        return
    interest = with_leakage(space, objectives)
    tiles = upper.ends()
    needs, gives = np.split(np.array(tiles).reshape(len(tiles), upper.n), 2)
    energy = upper.form(found.energy) * space.times
    ports, _ = port_times(upper, found, space, again)
    local, _ = upper.slots()
    choice = upper.choice()
    fits = np.flatnonzero(np.isfinite(below.least(-gives)[0]))
    rows, inside = below.for_tiles(-gives[:, fits], interest)
    taken = fits[rows]
    for begin in range(0, len(taken), PAIRS):
        pick, under = taken[begin : begin + PAIRS], inside[begin : begin + PAIRS]
        both = ports[:, pick] + below.ports[:, under]
        times, above = both[2 * (cut + 1) :], both[: 2 * (cut + 1)]
        fixed = np.repeat([m.fixed_time * space.times for m in space.memories[cut + 1 : again + 1]], 2)
        rest = np.maximum(below.rest[under], np.where(times > 0, times + fixed[:, None], 0).max(axis=0))
        yield InnerPoints(
            energy[pick] + below.energy[under], above, rest, local[:, pick] + below.local[:, under],
            needs[:, pick], (), np.full(len(pick), number), choice[pick], _leaked(space, above, rest),
            np.zeros((0, len(pick))), (), np.full(len(pick), at), under,
        )  # fmt: skip


def _leaked(space: EinsumSpace, ports: Array, rest: Array) -> Array:
    """Return an upper bound on the additional leakage if a point replaces another: the whole mapping then
    takes no longer than before, except for the excess of the point's own times over the least of each."""
    if not len(rest):
        return rest
    least = ports.min(axis=1)[:, None]
    fixed = np.repeat([m.fixed_time * space.times for m in space.memories[: len(ports) // 2]], 2)
    longer = ports - least + np.where(least > 0, 0.0, fixed[:, None])
    return space.leak * np.maximum(rest - rest.min(), longer.max(axis=0, initial=0.0))


def _worth(energy: Array, leaked: Array, needs: Array) -> Array:
    """Return, for energy as the only objective, a mask of points for which no other point that fits at least
    as many tiles is certainly better."""
    table = np.full(tuple(int(n.max()) + 1 for n in needs), np.inf)
    np.minimum.at(table, tuple(needs), energy + leaked)
    for axis in range(table.ndim):
        np.minimum.accumulate(table, axis=axis, out=table)
    return np.asarray(energy <= table[tuple(needs)])


# Where whole mappings of the Einsum are known, only points that may be part of better ones are kept.

Elsewhere = Sequence[tuple[CostTerms, float]]  # per origin the costs of points, and the joules spent outside


def moved_once(space: EinsumSpace, i: int, outer: int, inner: int) -> float:
    """Joules of moving each element of an operand once between two memories."""
    o = space.operands[i]
    kinds = ("writes_drain", "reads_drain") if o.output else ("reads_fill", "writes_fill")
    return o.elements * sum(price_of(space, i, m, k)[0] for m, k in zip((outer, inner), kinds, strict=True))


def _moved_once(space: EinsumSpace, parents: Sequence[int]) -> float:
    """Joules of moving the tensors that are never exchanged between the backing storage and these
    memories."""
    held = ((i, m) for i, m in enumerate(parents) if m and not space.operands[i].fusable)
    return sum(moved_once(space, i, 0, m) for i, m in held) * space.times


def _with_joules(bound: Bound, interest: Interest, joules: float) -> Bound:
    first = [joules] if interest.energy else []
    return bound.plus([*first, *[0.0] * (bound.known.sums - len(first))])


def _tightened(joined: Combination, bound: Bound, interest: Interest, elsewhere: Elsewhere) -> Bound:
    """Return the bound with the costs of points in excess of those common to all origins, for the origin
    where these are least."""
    common = joined.costs.energy
    apart = [{t: x - common.get(t, 0.0) for t, x in c.energy.items()} for c, _ in elsewhere]
    least = (joined.least({t: x for t, x in form.items() if x > 0}) for form in apart)
    joules = (x * joined.space.times + y for x, (_, y) in zip(least, elsewhere, strict=True))
    return _with_joules(bound, interest, min(joules))


def _hopeful(
    space: EinsumSpace, points: InnerPoints, interest: Interest, bound: Bound | None, joules: float
) -> InnerPoints:
    """Return points that no known whole mapping excludes, if `joules` are spent outside them."""
    if bound is None or not len(points.energy):
        return points
    latency = np.maximum(points.rest, points.ports.max(axis=0, initial=bound.seconds))
    more = points.more + timed_figures(space, latency)
    figures = interest.figures(points.energy + space.leak * latency, latency, more, ())
    return points._only(np.flatnonzero(_with_joules(bound, interest, joules).coarser.hopeful(figures)))


def origins(space: EinsumSpace, cut: int) -> list[tuple[int, ...]]:
    """The possible origins of the operands: for each, the innermost memory up to the cut that holds it."""
    several = []
    for o in space.operands:
        must = max((m for m in range(cut + 1) if o.tensor in space.keep[m]), default=0)
        several.append([m for m in range(cut + 1) if m >= must and (m == 0 or o.tensor in space.may[m])])
    return list(product(*several))


def _nothing(templates: tuple[Template, ...]) -> InnerPoints:
    none = np.zeros(0)
    return InnerPoints(
        none, np.zeros((0, 0)), none, np.zeros((0, 0)), np.zeros((0, 0)), templates, none, none
    )


def other_figures(joined: Combination, found: CostTerms) -> Array:
    """Return the other figures that add up, without the part that depends on latency [figures, n]."""
    each = zip(joined.space.more, found.more, strict=True)
    values = [a.stepped(joined.form(form) * joined.space.times) for a, form in each]
    return np.array(values).reshape(-1, joined.n)


def timed_figures(space: EinsumSpace, latency: Array) -> Array:
    """Return the part of the other figures that depends on latency [figures, n]; 0 for infinite latencies,
    where nothing fits."""
    slopes = np.array([a.slope(space.leak) for a in space.more]).reshape(-1, 1)
    result: Array = slopes * np.where(np.isfinite(latency), latency, 0.0)
    return result


def with_leakage(space: EinsumSpace, interest: Interest) -> Interest:
    """The comparison figures, with latency if leakage or another figure depends on it."""
    timed = space.leak > 0 or any(a.timed for a in space.more)
    return replace(interest, latency=interest.latency or timed)


def _together(found: Sequence[InnerPoints]) -> InnerPoints:
    def joined(name: str) -> Array:
        return np.concatenate([getattr(x, name) for x in found], axis=-1)

    return InnerPoints(
        joined("energy"), joined("ports"), joined("rest"), joined("local"), joined("needs"),
        found[0].templates, joined("template"), joined("choice"),
        None if found[0].leaked is None else joined("leaked"), joined("more"), found[0].lower,
        None if found[0].region is None else joined("region"),
        None if found[0].below is None else joined("below"),
    )  # fmt: skip


def _energy_alone(space: EinsumSpace, interest: Interest, cut: int) -> bool:
    """Return whether points below a cut are distinguished only by their energy and the tiles that they
    need."""
    inside = any(m > cut for m in interest.memories)
    return interest.energy and not interest.latency and not space.more and not inside


def _first_fitting(energy: Array, needs: Array) -> Array:
    """The position of the point of least energy that fits, for every tile; of equal ones the one that fits
    most."""
    order = np.lexsort((needs.sum(axis=0), energy))
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    table = np.full(tuple(int(n.max()) + 1 for n in needs), len(order) - 1)
    np.minimum.at(table, tuple(needs), ranks)
    for axis in range(table.ndim):
        np.minimum.accumulate(table, axis=axis, out=table)
    result: Array = order[table]
    return result


def _best(x: InnerPoints, interest: Interest) -> InnerPoints:
    alone = interest.energy and not interest.latency and not len(x.more)
    if interest.ties and len(x.energy):  # of equal ones the first is kept
        longest = np.maximum(x.rest, x.ports.max(axis=0, initial=0.0))
        x = x._only(np.argsort(longest if interest.energy else x.energy, kind="stable"))
    if alone and x.needs.size and not x.local.any():
        first = _first_fitting(x.energy, x.needs)[tuple(x.needs)]
        return x._only(np.flatnonzero(first == np.arange(len(first))))
    figures = [x.energy] if interest.energy else []
    figures += [x.rest, *x.ports] if interest.latency else []
    return x._only(undominated([*figures, *x.more, *x.local, *x.needs]))


def combined(
    space: EinsumSpace,
    template: Template,
    found: CostTerms,
    limits: Limits,
    interest: Interest,
    bound: Bound | None,
    tally: SearchTally,
    elsewhere: Elsewhere = (),
) -> Combination:
    """Return the points of a template. `elsewhere`: costs of several origins, whose joint costs are
    `found`."""
    chains = all_chains(space, template, limits.sizes)
    joined = Combination(space, template, chains, found, interest, bound, tally.ask)
    if bound is not None and elsewhere and all(c.count for c in chains):
        joined.bound = _tightened(joined, bound, interest, elsewhere)
    for group in sorted(space.groups, key=lambda g: prod(chains[v].count for v in g)):
        tally.ask()
        joined.add(group)
    tally.ask()
    tally.points += prod(c.count for c in chains)
    tally.too_large += joined.too_large
    return joined


def port_times(joined: Combination, found: CostTerms, space: EinsumSpace, cut: int) -> tuple[Array, Array]:
    """Seconds at the two ports of every memory up to the cut, and the longest time of all others (with
    fixed time)."""
    names = {m.name: i for i, m in enumerate(space.memories[: cut + 1])}
    ports = np.zeros((2 * (cut + 1), joined.n))
    rest = np.zeros(joined.n)
    seen: dict[str, int] = {}
    for name, (form, fixed) in zip(found.times.names, found.times.stages[0], strict=True):
        value = joined.form(form)
        if name in names:
            k = seen.get(name, 0)
            seen[name] = k + 1
            ports[2 * names[name] + k] += value
        else:
            rest = np.maximum(rest, value + fixed)
    return ports * space.times, rest * space.times
