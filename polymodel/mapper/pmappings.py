"""The mappings of one Einsum that can be part of an optimal whole mapping (pmappings), per shape.

Candidates of the rank variables are joined group by group; after each join, points are dropped that exceed a
memory or that another point dominates in every product so far. No dropped point can be on a front, since
every cost is monotone in all products (products that decrease a cost must be equal).
"""

from __future__ import annotations

import threading
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from itertools import takewhile
from math import prod
from typing import Any

import numpy as np

from polymodel.frozen import dataclass
from polymodel.mapper.aims import Bound
from polymodel.mapper.budget import CUT, SearchTally, StoredStep, each_part, fingerprint, once, runs_of
from polymodel.mapper.combine import PRUNE_ABOVE, Combination, CombinedPoints, Interest, group_numbers
from polymodel.mapper.einsum_rules import cuts, cuttable
from polymodel.mapper.records import Limits
from polymodel.mapper.regions import InnerPoints, inner_regions, origins
from polymodel.mapper.space import EinsumSpace
from polymodel.mapper.templates import (
    Exchanges,
    Passing,
    Sharing,
    Template,
    TemplateNode,
    families,
    members_of,
    outer_templates,
)
from polymodel.mapper.terms import costs
from polymodel.mapper.tile_chains import (
    PointTiles,
    TileChains,
    all_chains,
    broken_rules,
    count_at_most,
    spread_after,
    tile_chains,
    unbundled,
)
from polymodel.mapper.upper_points import cheapest, cut_points
from polymodel.pareto import rows_of, undominated

Array = Any
Several = tuple[Template, ...]
Chains = dict[Template, tuple[TileChains, ...]]
MOST_CHAINS = 4096  # bundles under rules whose chains are cached across templates
MOST_OF_FAMILY = 300_000  # chains of a bundle of a family above which its members are searched one by one
MORE = 25  # factor by which the second join of a family may have more points
FEW_CHAINS = 10_000  # chains of a template that are cached for its other points: less than a megabyte


@dataclass(frozen=True)
class Pmappings:
    """The pmappings of one Einsum and shape.

    `keys` [D, n]: tile sizes below the fused loops. `energy` (J), `latency` (s), `more` [figures, n]: the
    other figures that add up. `local` [memories, n] and `above` [D, memories, n]: bits in the branch and in
    the slots above fused loops, without exchanged tensors, for the memories of `Interest`. `template` [n]:
    index into `templates`; `choice` [n]: the point of that template; `lower` [n]: the region below among
    `regions` (-1: none); `below` [n]: the point there. `given`: for points made one by one, the tile sizes,
    spread and keys of each, per bundle; `choice` then indexes these.
    """

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
        """A point's template and tile sizes.

        `chains`: cache of the chains of templates, which this adds to.
        """
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
        """The tile sizes where each variable is its own bundle and spatial tiles need not divide."""
        tiles, spread, _ = self._candidate(template, choice, known)
        result = known.get(template) or all_chains(self.space, template, self.sizes)
        chosen = np.unravel_index(choice, tuple(c.count for c in result)) if result else ()
        after = [spread_after(template, f.below) for f in self.space.fanouts]
        rows = [
            [above[k] for above, _ in c.around_fanouts(after)] for c, k in zip(result, chosen, strict=True)
        ]
        return PointTiles(tiles, spread, np.array(rows, np.int64).reshape(spread.shape))

    def _inside(self, region: InnerPoints, at: int, chains: Chains) -> tuple[Template, Array, Array]:
        """Return a point of a lower region: its template, tile sizes and spread."""
        template = region.templates[int(region.template[at])]
        tiles, spread, _ = self._candidate(template, int(region.choice[at]), chains)
        if region.region is None or region.below is None:
            return template, tiles, spread
        inner = self._inside(region.lower[int(region.region[at])], int(region.below[at]), chains)
        return _stacked(template, tiles, inner)

    def _candidate(self, template: Template, choice: int, known: Chains) -> tuple[Array, Array, Array]:
        """Tile sizes [bundles, levels], spread [bundles, fanouts] and keys [bundles, fused loops] of a
        point."""
        result = known.get(template) or all_chains(self.space, template, self.sizes)
        if sum(c.count for c in result) <= FEW_CHAINS:
            known[template] = result
        if not result:  # a single iteration has no tile sizes
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
    """Return the sizes of a region combined with the one below it: template, tile sizes, and spread (all of
    which is below)."""
    lower, inside, spread = inner
    bottom = tiles.shape[1] - 1  # the level of the tile at the cut
    moved = tuple(TemplateNode(n.operand, n.memory, n.level - 2 + bottom) for n in lower.nodes)
    template = replace(upper, nodes=(*upper.nodes, *moved), unit=lower.unit, bottom=False)
    return template, np.concatenate([tiles[:, :bottom], inside[:, 2:]], axis=1), spread


def separated(space: EinsumSpace, template: Template, tiles: Array, spread: Array, keys: Array) -> PointTiles:
    """Tile sizes of the single variables, from those of bundles."""
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
                # the instances split the tile above the one that they share
                shared = int(tiles[b][level + 1]) if level + 1 < levels else 1
                wanted = int(
                    np.prod([spread[b][g] for g, p in enumerate(positions) if p == level and g >= f])
                )
                if wanted == 1:  # fused loops may follow, which determine the sizes of single variables
                    continue
                (now,) = map(list, unbundled(now, [shared * wanted]))
                (after,) = unbundled(now, [shared * wanted // int(spread[b][f])])
                wide[list(members), f] = [x // y for x, y in zip(now, after, strict=True)]
                above[list(members), f] = now
                now = list(after)
    return PointTiles(sizes, wide, above)


@dataclass(frozen=True)
class Cheap:
    """Lower bounds for points: energy, latency, other figures [figures, n], and space [memories, n]."""

    energy: Array
    latency: Array
    more: Array
    local: Array


@dataclass
class SearchedRegions:
    """Lower regions that were already searched, by parents and cut. Einsums of one shape share them, also
    between threads. `bound`: excludes their points, with the least costs of the other Einsums."""

    numbers: dict[tuple[tuple[int, ...], int], int] = field(default_factory=dict)
    regions: list[InnerPoints] = field(default_factory=list)
    bound: Bound | None = None
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def __reduce__(self) -> tuple[type[SearchedRegions], tuple[object, ...]]:
        regions = [replace(r, fitting={}, compared=[]) for r in self.regions]
        return SearchedRegions, (self.numbers, regions, self.bound)


def _of_part(
    explorer: Explorer, part: tuple[Sharing, Several, range, Bound | None], tally: SearchTally
) -> tuple[Pmappings | None, bool]:
    """Return the pmappings of some templates of a shape, without the regions, which the caller already
    has."""
    _, some, numbers, bound = part
    found, late = explorer.worked_out(some, numbers, bound, tally)
    return None if found is None else replace(found, regions=()), late


def _often_best(template: Template) -> tuple[int, int]:
    """Sort key: templates with nodes that stay or slide come last, because they are rarely the best."""
    return sum(n.stays is not None for n in template.nodes), sum(n.slides >= 0 for n in template.nodes)


class Explorer:
    """Searches the pmappings of one Einsum at increasing depths; regions below a cut are searched once."""

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
        self.chains: dict[object, TileChains] = {}

    @property
    def regions(self) -> list[InnerPoints]:
        return self.known.regions

    def with_passing(self, passing: Passing) -> Explorer:
        """Return the same explorer for other tensors that are exchanged across the Einsum."""
        return Explorer(self.space, self.limits, self.interest, passing, self.known)

    def pmappings(
        self, wanted: Mapping[Sharing, Bound | None], depth: int, tally: SearchTally
    ) -> Iterator[tuple[Sharing, Pmappings | None]]:
        """Return the undominated pmappings of these shapes (up to `depth` fused loops) within their bounds.

        None for a shape without any; in order of the number of fused loops. After the time limit, only the
        shape that was being searched, with the points found so far.
        """
        for d in range(depth + 1):
            by_shape: dict[Sharing, list[Template]] = {}
            for t in takewhile(lambda _: tally.has_time(), self._templates(d, wanted)):
                if t.shape.fuses(self.space, self.limits):
                    by_shape.setdefault(t.shape, []).append(t)
            for several in by_shape.values():  # templates that are most often the best come first
                several.sort(key=_often_best)
            of_shapes = self._one_by_one if tally.crew is None else self._on_a_cluster
            for shape, result, late in of_shapes({s: tuple(x) for s, x in by_shape.items()}, wanted, tally):
                if result is not None or not late:
                    yield shape, result
                if late:
                    return

    def _one_by_one(
        self, shapes: Mapping[Sharing, Several], bounds: Mapping[Sharing, Bound | None], tally: SearchTally
    ) -> Iterator[tuple[Sharing, Pmappings | None, bool]]:
        """The pmappings of each shape, and whether the time limit has passed."""
        for shape, some in shapes.items():
            found, late = once(
                tally,
                partial(self._known_by, shape, some, bounds[shape]),
                partial(self.worked_out, some, range(len(some)), bounds[shape], tally),
                lambda found: not found[1],
                self.space,
            )
            yield shape, found, late

    def _known_by(self, shape: Sharing, some: Several, bound: Bound | None) -> tuple[object, ...]:
        """Everything that the pmappings of a shape depend on."""
        about = self.space, self.limits, self.interest
        return "pmappings", *about, shape, some, bound, self.known.bound

    def _on_a_cluster(
        self, shapes: Mapping[Sharing, Several], bounds: Mapping[Sharing, Bound | None], tally: SearchTally
    ) -> Iterator[tuple[Sharing, Pmappings | None, bool]]:
        """Return the pmappings of each shape, computed by worker processes, which share the shapes and the
        templates of large shapes. Regions are searched first, so that each is searched once."""
        stored = tally.finished is not None
        steps = {
            s: StoredStep(tally, fingerprint(*self._known_by(s, some, bounds[s])) if stored else b"")
            for s, some in shapes.items()
        }
        parts = []
        try:
            for shape, some in shapes.items():
                if not steps[shape].load(self.space):
                    for t in (t for t in some if t.bottom):
                        self._below(t, tally)
                    parts += [(shape, some, run, bounds[shape]) for run in runs_of(len(some), tally)]
            arriving = each_part(_of_part, self.with_passing(self.passing), parts, tally)
            for shape in shapes:
                step = steps[shape]
                if step.result is None:
                    before = tally.counts
                    each = [next(arriving) for p in parts if p[0] == shape]
                    found = self._from_parts(
                        shape, [p for p, _ in each if p is not None], bounds[shape], tally
                    )
                    step.result = found, any(late for _, late in each)
                    if not step.result[1]:
                        step.save(step.result, [b - a for a, b in zip(before, tally.counts, strict=True)])
                yield shape, *step.result
        except CUT as error:
            tally.ended(error)

    def _from_parts(
        self, shape: Sharing, found: Sequence[Pmappings], bound: Bound | None, tally: SearchTally
    ) -> Pmappings | None:
        """The pmappings of a shape, merged from those of parts of its templates."""
        tally.kept -= sum(map(len, found))
        if not found:
            return None
        parts, before = list[CombinedPoints](), 0
        for p in found:
            number, before = p.template + before, before + len(p.templates)
            rows = p.keys, p.energy, p.latency, p.more, p.local, p.above, number, p.choice, p.lower, p.below
            parts.append(CombinedPoints(*rows))
        used = tuple(t for p in found for t in p.templates)
        merged = self._merged(shape, used, parts, self._interest(bound))
        tally.kept += len(merged)
        return merged

    def _interest(self, bound: Bound | None) -> Interest:
        """Return the figures for comparison, with lower bounds on the rest of whole mappings if margins are
        relative."""
        interest = self.interest
        if bound is not None and (interest.eps or interest.rough):
            rest = [float(r) if np.isfinite(r) else 0.0 for r in bound.rest[: bound.known.sums, -1]]
            interest = replace(interest, added=tuple(rest))
        return interest

    def worked_out(
        self, some: Several, numbers: range, bound: Bound | None, tally: SearchTally
    ) -> tuple[Pmappings | None, bool]:
        """The pmappings of some templates of a shape, and whether the time limit has passed."""
        parts: list[CombinedPoints] = []
        used: list[Template] = []
        late = False
        interest = self._interest(bound)
        for number in numbers:
            try:
                for last in (False, True):
                    many = PRUNE_ABOVE * (MORE if last else 1)
                    left, all_left = self._left_of(some[number], bound, interest, tally, many)
                    every = last and not all_left
                    for template in self._with_some(some[number], () if every else left):
                        tally.ask()
                        tally.templates += 1
                        for p in self._points(template, 0, interest, bound, tally, () if every else left):
                            if not len(p.energy):
                                continue
                            used += [] if used and used[-1] is template else [template]
                            parts.append(replace(p, number=len(used) - 1))
                            if bound is not None and bound.whole and not (interest.eps or interest.rough):
                                rows = interest.figures(p.energy, p.latency, p.more, ())
                                bound = bound.against(np.array(rows).reshape(-1, len(p.energy)))
                    if all_left:
                        break
            except CUT as error:
                tally.ended(error)
                late = True
                break
        if not parts:
            return None, late
        merged = self._merged(some[0].shape, tuple(used), parts, interest)
        tally.kept += len(merged)
        return merged, late

    def _left_of(
        self, family: Template, bound: Bound | None, interest: Interest, tally: SearchTally, many: int
    ) -> tuple[tuple[TileChains, ...] | None, bool]:
        """Return, per bundle, the chains of tile sizes of a family that known whole mappings do not exclude
        (None: there are none; empty: no chain is excluded), and whether these are all of them.

        A family costs no more than its members at the same tile sizes. If more than `many` points were
        combined, dominated points were dropped, so that chains may be missing; then members at the remaining
        chains serve only to tighten the bound for the others.
        """
        known = bound is not None and bool(bound.known.figures.shape[1])
        if not (family.family and known) or count_at_most(self.space, family) > MOST_OF_FAMILY:
            return (), True
        chains = self._chains(family)
        joined = self._joined(family, chains, interest, bound, tally, many)
        if joined is None or not joined.n:
            return None, True
        if joined.thinned and bound is not None and bound.whole:
            part = joined.part(0)
            if not bound.improved_by(interest.figures(part.energy, part.latency, part.more, ())):
                return None, True
        left = (c.at(joined.points.index[b]) for b, c in enumerate(chains))
        return tuple(left), not joined.thinned

    def _with_some(self, family: Template, chains: Sequence[TileChains] | None) -> Iterator[Template]:
        """Yield the members of a family that may consist of these chains (empty: all members; None: no
        member)."""
        for template in members_of(self.space, family) if chains is not None else ():
            if not chains or self._obeyed(template, chains):
                yield template

    def _obeyed(self, template: Template, chains: Sequence[TileChains]) -> bool:
        """Return whether some chain of every bundle satisfies the rules of the template."""
        several = zip(self.space.bundles, chains, strict=True)
        return all((broken_rules(self.space, template, members[0], c) == 0).any() for members, c in several)

    def without_fused_loops(self, wanted: Container[Exchanges] | None, tally: SearchTally) -> Several:
        """Templates without fused loops whose exchanged tensors take no space, for these exchanges (None:
        all). With worker processes, the regions below are searched first."""
        each = (t for t in self._templates(0, loose=True) if wanted is None or t.shape.exchanges in wanted)
        if tally.crew is None:
            return tuple(each)
        some = tuple(each)
        for t in (t for t in some if t.bottom):
            self._below(t, tally)
        return some

    def lower_bounds(
        self, some: Several, numbers: range, tally: SearchTally
    ) -> Iterator[tuple[Exchanges, Cheap]]:
        """Lower bounds on the figures of these mappings, with the memories of their exchanged tensors.

        Raises Late once the time limit has passed.
        """
        for number in numbers:
            t = some[number]
            exchanges = t.shape.exchanges
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
            yield from families(self.space, self.limits, self.passing, depth, wanted, loose)
            return
        for cut in cuts(self.space, self.limits):
            yield from outer_templates(self.space, self.limits, self.passing, depth, cut, wanted, loose)

    def _points(
        self,
        template: Template,
        number: int,
        interest: Interest,
        bound: Bound | None,
        tally: SearchTally,
        left: Sequence[TileChains] | None = (),
    ) -> Iterator[CombinedPoints]:
        """Yield the points of a template that are not excluded; if `left` has chains, only points that
        consist of these."""
        if template.bottom:
            lower = self._below(template, tally)
            about = self.space, template, number, self.limits, interest, bound
            yield from cut_points(*about, self.regions[lower], lower, tally)
            return
        every = some = self._chains(template)
        kept = [c.positions(x) for c, x in zip(every, left or (), strict=False)]
        if kept:
            some = tuple(c.at(k) for c, k in zip(every, kept, strict=False))
        joined = self._joined(template, some, interest, bound, tally)
        if joined is not None and joined.n:
            points = joined.part(number).undominated(interest)
            yield replace(points, choice=_among_all(points.choice, kept, every)) if kept else points

    def _joined(
        self,
        template: Template,
        chains: tuple[TileChains, ...],
        interest: Interest,
        bound: Bound | None,
        tally: SearchTally,
        many: int = PRUNE_ABOVE,
    ) -> Combination | None:
        """Return all combinations of these chains that are not excluded; None if rules leave some variable no
        chain."""
        space = self.space
        tally.points += prod(c.count for c in chains)
        if len(chains) < len(space.bundles) or not all(c.count for c in chains):
            return None
        joined = Combination(
            space, template, chains, costs(space, template), interest, bound, tally.ask, many
        )
        for group in sorted(space.groups, key=lambda g: prod(chains[v].count for v in g)):
            tally.ask()
            joined.add(group)
        tally.too_large += joined.too_large
        return joined

    def _chains(self, template: Template) -> tuple[TileChains, ...]:
        """Return the chains of every bundle, up to the first bundle that has none.

        Under rules many templates differ only in the variables along which nodes slide, or in loop homes, and
        share most chains.
        """
        space, sizes, result = self.space, self.limits.sizes, list[TileChains]()
        if not template.homes:
            return all_chains(space, template, sizes)
        nodes = tuple((n.operand, n.memory, n.level, n.stays) for n in template.nodes)
        for b, members in enumerate(space.bundles):
            slides = template.family or any(n.slides == members[0] for n in template.nodes)
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
            # without the bound and fractions of this shape, since other shapes use the same region
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
            return np.concatenate([np.broadcast_to(getattr(p, name), len(p.energy)) for p in parts])

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


def _among_all(choice: Array, kept: Sequence[Array], every: Sequence[TileChains]) -> Array:
    """Return the numbers of combinations of the kept chains among the combinations of all chains."""
    chosen = np.unravel_index(choice, tuple(map(len, kept)))
    where = tuple(k[i] for k, i in zip(kept, chosen, strict=True))
    result: Array = np.ravel_multi_index(where, tuple(c.count for c in every))
    return result


def equal_shapes(spaces: Sequence[EinsumSpace], keys: Sequence[object]) -> Iterator[tuple[int, int]]:
    """(Einsum, the first Einsum of equal shape and key) for each Einsum."""
    first: dict[object, int] = {}
    for i, (s, key) in enumerate(zip(spaces, keys, strict=True)):
        yield i, first.setdefault((s.shape, key), i)
