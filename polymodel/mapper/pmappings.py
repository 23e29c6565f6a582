"""The mappings of one Einsum that can be part of a best whole mapping (pmappings), per shape.

Candidates of the rank variables are joined group by group; after each join those go that exceed a memory,
and those that another one beats in every product so far. Nothing that is left out can be on a front: all
costs grow with all products (a product that lowers a cost must be equal).
"""

from __future__ import annotations

import threading
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from polymodel.mapper.aims import Bound
from polymodel.mapper.budget import CUT, SearchTally, once
from polymodel.mapper.combine import Combination, CombinedPoints, Interest, group_numbers
from polymodel.mapper.einsum_rules import cuts, cuttable
from polymodel.mapper.records import Limits
from polymodel.mapper.regions import (
    PAIRS,
    InnerPoints,
    combined,
    inner_regions,
    origins,
    other_figures,
    port_times,
    timed_figures,
    with_leakage,
)
from polymodel.mapper.space import EinsumSpace
from polymodel.mapper.templates import (
    Exchanges,
    Passing,
    Sharing,
    Template,
    TemplateNode,
    outer_templates,
    templates,
)
from polymodel.mapper.terms import costs
from polymodel.mapper.tile_chains import (
    PointTiles,
    TileChains,
    all_chains,
    spread_after,
    tile_chains,
    unbundled,
)
from polymodel.pareto import rows_of, undominated

Array = Any
Chains = dict[Template, tuple[TileChains, ...]]
MANY = 2_000_000
MOST_CHAINS = 4096  # bundles under rules whose chains are kept for other templates
FEW_CHAINS = 10_000  # chains of a template that are kept for other points of it: less than a megabyte


@dataclass(frozen=True)
class Pmappings:
    """The pmappings of one Einsum and shape. `keys` [D, n]: tile sizes below the fused loops. `energy` (J),
    `latency` (s), `more` (the other figures that add up) [figures, n], `local` [memories, n] and `above`
    [D, memories, n] (bits) in the branch and at the slots above fused loops, without exchanged tensors;
    memories are those of `Interest`. `template` [n] numbers `templates`, `choice` [n] the point among the
    template's, `lower` [n] the region below (-1: none) among `regions`, `below` [n] the point there.
    `given`: where points were made one by one, the tile sizes, the spread and the keys of each, per bundle;
    `choice` then numbers these."""

    space: EinsumSpace
    shape: Sharing
    keys: Array
    energy: Array
    latency: Array
    more: Array
    local: Array
    above: Array
    templates: tuple[Template, ...]
    template: Array
    choice: Array
    regions: tuple[InnerPoints, ...]
    lower: Array
    below: Array
    sizes: str
    given: tuple[tuple[Array, Array, Array], ...] = ()

    def __len__(self) -> int:
        return len(self.energy)

    def only(self, positions: Array) -> Pmappings:
        return rows_of(self, positions)

    def tiles(self, position: int, chains: Chains) -> tuple[Template, PointTiles]:
        """A point's template and tile sizes. `chains`: those of templates of this Einsum that were looked at
        before; more are added."""
        template = self.templates[int(self.template[position])]
        if self.given:
            return template, separated(self.space, template, *self.given[int(self.choice[position])])
        if not self.space.even:
            return template, self._unevenly(template, int(self.choice[position]), chains)
        tiles, spread, keys = self._candidate(template, int(self.choice[position]), chains)
        if template.bottom:
            inner = self._inside(self.regions[int(self.lower[position])], int(self.below[position]), chains)
            template, tiles, spread = _stacked(template, tiles, inner)
        return template, separated(self.space, template, tiles, spread, keys)

    def _unevenly(self, template: Template, choice: int, known: Chains) -> PointTiles:
        """Where each variable is a bundle by itself, and tiles over fanouts need not divide."""
        tiles, spread, _ = self._candidate(template, choice, known)
        result = known.get(template) or all_chains(self.space, template, self.sizes)
        chosen = np.unravel_index(choice, tuple(c.count for c in result)) if result else ()
        after = [spread_after(template, f.below) for f in self.space.fanouts]
        rows = [
            [above[k] for above, _ in c.around_fanouts(after)] for c, k in zip(result, chosen, strict=True)
        ]
        return PointTiles(tiles, spread, np.array(rows, np.int64).reshape(spread.shape))

    def _inside(self, region: InnerPoints, at: int, chains: Chains) -> tuple[Template, Array, Array]:
        """A point of a lower region: its template, tile sizes and spread."""
        template = region.templates[int(region.template[at])]
        tiles, spread, _ = self._candidate(template, int(region.choice[at]), chains)
        if region.region is None or region.below is None:
            return template, tiles, spread
        inner = self._inside(region.lower[int(region.region[at])], int(region.below[at]), chains)
        return _stacked(template, tiles, inner)

    def _candidate(self, template: Template, choice: int, known: Chains) -> tuple[Array, Array, Array]:
        """Tile sizes [bundles, levels], spread [bundles, fanouts] and keys [bundles, fused loops]."""
        result = known.get(template) or all_chains(self.space, template, self.sizes)
        if sum(c.count for c in result) <= FEW_CHAINS:
            known[template] = result
        if not result:  # a single iteration has no sizes
            levels = template.depth + 1 + template.top + len(template.branch) + template.bottom
            fans = len(self.space.fanouts)
            return np.zeros((0, levels), int), np.zeros((0, fans), int), np.zeros((0, template.depth), int)
        chosen = np.unravel_index(choice, tuple(c.count for c in result)) if result else ()
        pairs = list(zip(result, chosen, strict=True))
        rows = (
            [c.tiles[:, k] for c, k in pairs],
            [c.spread[:, k] for c, k in pairs],
            [c.keys[:, k] for c, k in pairs],
        )
        tiles, spread, keys = (np.array(r, dtype=np.int64).reshape(len(result), -1) for r in rows)
        return tiles, spread, keys


def _stacked(
    upper: Template, tiles: Array, inner: tuple[Template, Array, Array]
) -> tuple[Template, Array, Array]:
    """A region with the one below it: the template, the tile sizes, and the spread, which is all below."""
    lower, inside, spread = inner
    bottom = tiles.shape[1] - 1  # the level of the tile at the cut
    moved = tuple(TemplateNode(n.operand, n.memory, n.level - 2 + bottom) for n in lower.nodes)
    template = replace(upper, nodes=(*upper.nodes, *moved), unit=lower.unit, bottom=False)
    return template, np.concatenate([tiles[:, :bottom], inside[:, 2:]], axis=1), spread


def separated(space: EinsumSpace, template: Template, tiles: Array, spread: Array, keys: Array) -> PointTiles:
    """Tile sizes of the members of bundles."""
    levels, fans = tiles.shape[1] if len(tiles) else 1, len(space.fanouts)
    sizes = np.zeros((len(space.variables), levels), np.int64)
    wide = np.ones((len(space.variables), fans), np.int64)
    above = np.ones((len(space.variables), fans), np.int64)
    positions = [spread_after(template, f.below) for f in space.fanouts]
    for b, members in enumerate(space.bundles):
        now = [space.extents[v] for v in members]
        for level in range(levels):
            if 0 < level <= template.depth and keys[b][level - 1]:
                now[members.index(template.shape.prefix[level - 1])] = int(keys[b][level - 1])
            elif level > template.depth:
                (now,) = map(list, unbundled(now, [int(tiles[b][level])]))
            sizes[list(members), level] = now
            for f in (f for f, p in enumerate(positions) if p == level):
                # What the spread takes is taken below the tile that all instances share.
                shared = int(tiles[b][level + 1]) if level + 1 < levels else 1
                wanted = int(
                    np.prod([spread[b][g] for g, p in enumerate(positions) if p == level and g >= f])
                )
                if wanted == 1:  # fused loops may follow, which say what they leave of each variable
                    continue
                (now,) = map(list, unbundled(now, [shared * wanted]))
                (after,) = unbundled(now, [shared * wanted // int(spread[b][f])])
                wide[list(members), f] = [x // y for x, y in zip(now, after, strict=True)]
                above[list(members), f] = now
                now = list(after)
    return PointTiles(sizes, wide, above)


@dataclass(frozen=True)
class Cheap:
    """The least energy, latency, other figures that add up [figures, n], and the space [memories, n] of
    points, one by one."""

    energy: Array
    latency: Array
    more: Array
    local: Array


@dataclass
class SearchedRegions:
    """Lower regions that are searched already, by parents and cut. Einsums of one shape share them, also
    when they are looked at side by side. `bound`: of all their mappings, beside the least that the other
    Einsums cost."""

    numbers: dict[tuple[tuple[int, ...], int], int] = field(default_factory=dict)
    regions: list[InnerPoints] = field(default_factory=list)
    bound: Bound | None = None
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)


class Explorer:
    """The pmappings of one Einsum, deeper and deeper; regions below a cut are searched once."""

    def __init__(
        self,
        space: EinsumSpace,
        limits: Limits,
        interest: Interest,
        passing: Passing,
        known: SearchedRegions | None = None,
    ) -> None:
        self.space, self.limits, self.interest, self.passing = space, limits, interest, passing
        self.cut = cuttable(space, limits)
        self.known = known if known is not None else SearchedRegions()
        self.regions = self.known.regions
        self.chains: dict[object, TileChains] = {}

    def with_passing(self, passing: Passing) -> Explorer:
        """The same beside other tensors that pass by."""
        return Explorer(self.space, self.limits, self.interest, passing, self.known)

    def pmappings(
        self, wanted: Mapping[Sharing, Bound | None], depth: int, tally: SearchTally
    ) -> Iterator[tuple[Sharing, Pmappings | None]]:
        """The pmappings of these shapes (of up to so many fused loops) without those that others or the
        bounds beat, None if none are left; in order of their fused loops.

        Once the tally's time is over, those of a shape found by then, and no more shapes.
        """
        for d in range(depth + 1):
            by_shape: dict[Sharing, list[Template]] = {}
            for t in self._templates(d, wanted):
                by_shape.setdefault(t.shape, []).append(t)
            for several in by_shape.values():  # those first that are most often best
                several.sort(key=lambda t: sum(n.slides >= 0 for n in t.nodes))
            for shape, some in by_shape.items():
                result, late = self._of_shape(shape, tuple(some), wanted[shape], tally)
                if result is not None or not late:
                    yield shape, result
                if late:
                    return

    def _of_shape(
        self, shape: Sharing, some: tuple[Template, ...], bound: Bound | None, tally: SearchTally
    ) -> tuple[Pmappings | None, bool]:
        """Those found, and whether time is over."""
        bounds = bound, self.known.bound
        return once(
            tally,
            lambda: ("pmappings", *(self.space, self.limits, self.interest), shape, some, *bounds),
            lambda: self._worked_out(shape, some, bound, tally),
            lambda found: not found[1],
            self.space,
        )

    def _worked_out(
        self, shape: Sharing, some: tuple[Template, ...], bound: Bound | None, tally: SearchTally
    ) -> tuple[Pmappings | None, bool]:
        parts: list[CombinedPoints] = []
        late = False
        interest = self.interest
        if bound is not None and (interest.eps or interest.rough):
            rest = [float(r) if np.isfinite(r) else 0.0 for r in bound.rest[: bound.known.sums, -1]]
            interest = replace(interest, added=tuple(rest))
        for number, template in enumerate(some):
            try:
                tally.ask()
                tally.templates += 1
                for p in self._points(template, number, interest, bound, tally):
                    if not len(p.energy):
                        continue
                    parts.append(p)
                    if bound is not None and bound.whole and not (interest.eps or interest.rough):
                        rows = interest.figures(p.energy, p.latency, p.more, ())
                        bound = bound.against(np.array(rows).reshape(-1, len(p.energy)))
            except CUT as error:
                tally.ended(error)
                late = True
                break
        if not parts:
            return None, late
        merged = self._merged(shape, some, parts, interest)
        tally.kept += len(merged)
        return merged, late

    def lower_bounds(
        self, tally: SearchTally, wanted: Container[Exchanges] | None = None
    ) -> Iterator[tuple[Exchanges, Cheap]]:
        """The least figures of mappings without fused loops, by the memories of exchanged tensors; these take
        no space. `wanted`: some of them (None: all). Raises Late once time is over."""
        for number, t in enumerate(self._templates(0, loose=True)):
            exchanges = t.shape.exchanges
            if wanted is not None and exchanges not in wanted:
                continue
            if t.bottom:
                below = self.regions[self._below(t, tally)]
                result = cheapest(self.space, t, self.limits, self.interest, below, tally)
                if result is not None:
                    yield exchanges, Cheap(*result)
            else:
                for p in self._points(t, number, self.interest, None, tally):
                    yield exchanges, Cheap(p.energy, p.latency, p.more, p.local)

    def _templates(
        self, depth: int, wanted: Container[Sharing] | None = None, loose: bool = False
    ) -> Iterator[Template]:
        if not self.cut:
            yield from templates(self.space, self.limits, self.passing, depth, wanted, loose)
            return
        for cut in cuts(self.space, self.limits):
            yield from outer_templates(self.space, self.limits, self.passing, depth, cut, wanted, loose)

    def _points(
        self, template: Template, number: int, interest: Interest, bound: Bound | None, tally: SearchTally
    ) -> Iterator[CombinedPoints]:
        if template.bottom:
            lower = self._below(template, tally)
            yield from cut_points(
                self.space,
                template,
                number,
                self.limits,
                interest,
                bound,
                self.regions[lower],
                lower,
                tally,
            )
            return
        space = self.space
        chains = self._chains(template)
        tally.points += prod(c.count for c in chains)
        if not all(c.count for c in chains):
            return  # rules leave some variable nothing
        joined = Combination(space, template, chains, costs(space, template), interest, bound, tally.ask)
        for group in sorted(space.groups, key=lambda g: prod(chains[v].count for v in g)):
            tally.ask()
            joined.add(group)
        tally.too_large += joined.too_large
        if joined.n:
            yield joined.part(number).undominated(interest)

    def _chains(self, template: Template) -> tuple[TileChains, ...]:
        """The chains of every bundle, up to the first that has none. Under rules many templates differ in
        what nodes slide along and whose loops some are, and are alike for most bundles."""
        space, sizes, result = self.space, self.limits.sizes, list[TileChains]()
        if not template.homes:
            return all_chains(space, template, sizes)
        nodes = tuple((n.operand, n.memory, n.level) for n in template.nodes)
        for b, members in enumerate(space.bundles):
            slides = any(n.slides == members[0] for n in template.nodes)
            key = b, nodes, template.shape, template.unit, template.homes[members[0]], slides
            if key not in self.chains:
                if len(self.chains) > MOST_CHAINS:
                    self.chains.clear()
                self.chains[key] = tile_chains(space, template, b, sizes)
            result.append(self.chains[key])
            if not result[-1].count:
                break
        return tuple(result)

    def _below(self, template: Template, tally: SearchTally) -> int:
        """The number of the region below an upper template."""
        innermost = {n.operand: n.memory for n in sorted(template.nodes, key=lambda n: n.memory)}
        parents = tuple(innermost.get(i, 0) for i in range(len(self.space.operands)))
        key = (parents, template.cut)
        with self.known.lock:
            return self._region(key, tally)

    def _region(self, key: tuple[tuple[int, ...], int], tally: SearchTally) -> int:
        if key not in self.known.numbers:
            # Without the bound and the shares of this shape: other shapes share the region.
            exact = replace(self.interest, relaxed=False, eps=0.0, rough=0.0)
            several, cut = origins(self.space, key[1]), key[1]
            result = inner_regions(self.space, self.limits, exact, several, cut, tally, self.known.bound)
            for parents, region in zip(several, result, strict=True):
                self.known.numbers[parents, cut] = len(self.regions)
                self.regions.append(region)
        return self.known.numbers[key]

    def _merged(
        self,
        shape: Sharing,
        some: tuple[Template, ...],
        parts: Sequence[CombinedPoints],
        interest: Interest,
    ) -> Pmappings:
        def joined(name: str) -> Array:
            return np.concatenate([getattr(p, name) for p in parts], axis=-1)

        def repeated(name: str) -> Array:
            return np.concatenate([np.full(len(p.energy), getattr(p, name)) for p in parts])

        below = [np.zeros(len(p.energy), int) if p.below is None else p.below for p in parts]
        whole = Pmappings(
            self.space, shape, joined("keys"), joined("energy"), joined("latency"), joined("more"),
            joined("local"), joined("above"), some, repeated("number"), joined("choice"), tuple(self.regions),
            repeated("lower"), np.concatenate(below), self.limits.sizes,
        )  # fmt: skip
        figures = CombinedPoints(
            whole.keys, whole.energy, whole.latency, whole.more, whole.local, whole.above, 0, whole.choice
        ).figures(interest)
        return whole.only(undominated(figures, group_numbers(whole.keys, len(whole.energy))))


# Templates of memories up to a cut, with what lies below.


def cut_points(
    space: EinsumSpace,
    template: Template,
    number: int,
    limits: Limits,
    interest: Interest,
    bound: Bound | None,
    below: InnerPoints,
    lower: int,
    tally: SearchTally,
) -> Iterator[CombinedPoints]:
    """Undominated points of an upper template with what lies below (`lower` is that region's number)."""
    if not len(below.energy):
        return
    tighter = bound
    if bound is not None and (interest.energy or len(below.more)):
        joules = [float(below.energy.min())] if interest.energy else []
        seconds = [0.0] if interest.latency else []
        tighter = bound.plus([*joules, *seconds, *below.more.min(axis=1).tolist()])
        tighter = replace(tighter, seconds=max(bound.seconds, float(below.rest.min())))
    upper = combined(space, template, costs(space, template), limits, interest, tighter, tally)
    if not upper.n:
        return
    ports, _ = port_times(upper, upper.costs, space, template.cut)
    apart = with_leakage(space, interest)
    energy, ends = upper.energy(), upper.ends()
    more = other_figures(upper, upper.costs)
    local, above = upper.slots()
    gives = -np.stack(ends) if ends else np.zeros((0, upper.n), np.int64)
    floor, time = least_together(space, energy, ports, gives, below)
    others = more + below.least_more(gives) + timed_figures(space, time)
    kept = np.flatnonzero(np.isfinite(floor))
    if bound is not None:
        peaks = [local[interest.memories.index(m)] for m in interest.buffers]
        kept = np.flatnonzero(
            np.isfinite(floor) & bound.coarser.hopeful(interest.figures(floor, time, others, peaks))
        )
    if len(kept) > MANY:
        figures = [energy] if interest.energy else []
        figures += [*ports] if apart.latency else []
        figures += [*more, *local, *(row for slot in above for row in slot), *ends]
        some = [f[kept] for f in figures]
        kept = kept[undominated(some, group_numbers(upper.keys[:, kept], len(kept)))]
    if not len(kept):
        return
    rows, inside = below.for_tiles(gives[:, kept], apart)
    taken = kept[rows]
    points = CombinedPoints(upper.keys, energy, energy, more, local, above, number, upper.choice(), lower)
    for begin in range(0, len(taken), PAIRS):
        tally.ask()
        block = slice(begin, begin + PAIRS)
        yield _paired(
            space, points.only(taken[block]), ports[:, taken[block]], below, inside[block], interest, bound
        )


def least_together(
    space: EinsumSpace, energy: Array, ports: Array, gives: Array, below: InnerPoints
) -> tuple[Array, Array]:
    """The least energy and latency that upper points can have with what lies below."""
    joules, rest = below.least(gives)
    above = ports + (below.ports.min(axis=1, initial=np.inf)[:, None] if below.ports.size else 0)
    time = np.maximum(rest, above.max(axis=0))
    leaked = space.leak * time if space.leak else 0.0
    return energy + joules + leaked, time


def cheapest(
    space: EinsumSpace,
    template: Template,
    limits: Limits,
    interest: Interest,
    below: InnerPoints,
    tally: SearchTally,
) -> tuple[Array, Array, Array, Array] | None:
    """The least energy, latency and other figures that add up that the points of an upper template can have
    with what lies below, and their space in the memories of interest [memories, n], apart from what is
    below."""
    if not len(below.energy):
        return None
    upper = combined(space, template, costs(space, template), limits, interest, None, tally)
    if not upper.n:
        return None
    ports, _ = port_times(upper, upper.costs, space, template.cut)
    ends = upper.ends()
    gives = -np.stack(ends) if ends else np.zeros((0, upper.n), np.int64)
    local, _ = upper.slots()
    joules, _ = below.least(gives)
    time = np.zeros(upper.n)
    if with_leakage(space, interest).latency:
        time = _fastest(space, ports, gives, below.quickest)
    more = other_figures(upper, upper.costs) + below.least_more(gives) + timed_figures(space, time)
    return upper.energy() + joules + (space.leak * time if space.leak else 0.0), time, more, local


def _fastest(space: EinsumSpace, ports: Array, gives: Array, below: InnerPoints) -> Array:
    """The least latency of upper points with what lies below; inf where nothing fits."""
    result = np.full(ports.shape[1], np.inf)
    fits = np.flatnonzero(np.isfinite(below.least(gives)[1]))
    if len(fits):
        rows, inside = below.for_tiles(gives[:, fits], Interest(False, True, ()))
        time = _latency(space, ports[:, fits[rows]], below, inside)
        starts = np.searchsorted(rows, np.arange(len(fits)))
        result[fits] = np.minimum.reduceat(time, starts)
    return result


def _latency(space: EinsumSpace, ports: Array, below: InnerPoints, inside: Array) -> Array:
    fixed = np.repeat([m.fixed_time * space.times for m in space.memories[: len(ports) // 2]], 2)
    both = ports + below.ports[:, inside]
    result: Array = np.maximum(below.rest[inside], np.where(both > 0, both + fixed[:, None], 0).max(axis=0))
    return result


def _paired(
    space: EinsumSpace,
    upper: CombinedPoints,
    ports: Array,
    below: InnerPoints,
    inside: Array,
    interest: Interest,
    bound: Bound | None,
) -> CombinedPoints:
    """Both regions' costs together."""
    latency = _latency(space, ports, below, inside)
    energy = upper.energy + below.energy[inside] + space.leak * latency
    local = upper.local + below.local[:, inside]
    more = upper.more + below.more[:, inside] + timed_figures(space, latency)
    whole = replace(upper, energy=energy, latency=latency, more=more, local=local, below=inside)
    whole = whole.undominated(interest)
    if bound is not None:  # after comparing, which takes less time
        peaks = [whole.local[interest.memories.index(m)] for m in interest.buffers]
        figures = interest.figures(whole.energy, whole.latency, whole.more, peaks)
        whole = whole.only(np.flatnonzero(bound.coarser.hopeful(figures)))
    return whole


def equal_shapes(spaces: Sequence[EinsumSpace], keys: Sequence[object]) -> Iterator[tuple[int, int]]:
    """(Einsum, the first one of equal shape and key)."""
    first: dict[object, int] = {}
    for i, (s, key) in enumerate(zip(spaces, keys, strict=True)):
        yield i, first.setdefault((s.shape, key), i)
