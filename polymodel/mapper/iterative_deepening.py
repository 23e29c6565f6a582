"""Search at increasing depths of fused loops: the pmappings that may improve on known mappings, and their
join.

The order of work: lower bounds of every Einsum (`lower_bounds`), and the bounds of whole mappings that
follow (`completion_bounds`); whole mappings of the shapes that look best (a dive); then all pmappings that
may still be part of better ones, and their join.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from polymodel.mapper.aims import Bound, KnownMappings
from polymodel.mapper.budget import Tallies, Threads, Watch
from polymodel.mapper.combine import Interest, group_numbers
from polymodel.mapper.completion_bounds import CompletionBounds, every_shape, exchanged_inside, unlike
from polymodel.mapper.full_mappings import BEATEN, COARSE, FullMappings, all_bits, named_limits, share_of
from polymodel.mapper.join import JoinRules, Outlook, Stage, first_stage, next_stage, passing_of
from polymodel.mapper.lower_bounds import (
    Floors,
    compulsory,
    compulsory_sums,
    exchange_bound,
    ladders,
    least_alone,
    lower_bounds_of,
)
from polymodel.mapper.pmappings import Explorer, Pmappings, SearchedRegions, equal_shapes
from polymodel.mapper.records import Request
from polymodel.mapper.space import EinsumSpace
from polymodel.mapper.templates import Exchanges, Passing, Sharing, deepest
from polymodel.pareto import undominated

Array = Any
T = TypeVar("T")
DIVES = ((3e-3, 0.4), (1e-3, 0.2))  # relative margins of costs and space in a dive, the rougher one first
NEAR = 1e-3  # relative distance to the shortest path within which a dive considers a shape
CLOSE = 2e-4  # relative distance to the lower bound within which no more dives are needed
ROUNDED = 1e-9  # relative: sums of floats in different orders may differ by this much
FEW = 300  # tile sizes of all Einsums below which no dive is needed
TIMES = 6  # rounds over exchanges further inside, before everything that may accompany them
MIXTURES = (1 / 16, 1 / 4, 1.0, 4.0, 16.0)  # weights of latency relative to energy
FLOORS = 0.25  # largest share of the time limit for lower bounds of the Einsums


class Deepening:
    """Search at increasing depths of fused loops; results of shallower depths bound the deeper ones."""

    def __init__(
        self,
        spaces: Sequence[EinsumSpace],
        request: Request,
        watch: Watch,
        rules: JoinRules,
        before: Deepening | None = None,
        part: int = 0,
    ) -> None:
        """`before`: a search of a part of these spaces, whose whole mappings are reused.

        `part`: the index of this part of the space among those with lower bounds.
        """
        self.part = part
        self.spaces, self.request, self.rules, self.watch = spaces, request, rules, watch
        sums = len(rules.aims.added)
        self.steps = ladders(rules.capacity, all_bits(spaces))
        figures = np.zeros((sums + len(rules.buffers), 0))
        edges = self.steps[rules.buffers[0]][::-2][::-1] if rules.buffers else np.array([np.inf])
        slack = share_of(request.eps, BEATEN)
        aims = None if rules.aims.plain else rules.aims
        # mixtures are added once their scale is known
        self.known = KnownMappings(figures, sums, edges, slack, aims=aims)
        self.floors = [Floors(self.steps, sums, None)] * len(spaces)
        self.found: list[list[Pmappings]] = [[] for _ in spaces]
        self.seen: list[dict[Sharing, Array]] = [{} for _ in spaces]  # tile sizes that were searched
        self.passing = [passing_of(spaces, rules.lives, i) for i in range(len(spaces))]
        self.named = [named_limits(s, request.limits) for s in spaces]
        known: dict[object, SearchedRegions] = {}
        self.explorers = [
            Explorer(
                s, request.limits, rules.interest, p, known.setdefault((s.shape, named), SearchedRegions())
            )
            for s, p, named in zip(spaces, self.passing, self.named, strict=True)
        ]
        self.paths: CompletionBounds | None = None
        self.depth = 0
        self.before: list[Floors] = []  # of the part that was searched before
        self.wholes: list[FullMappings] = []
        self.tallies = Tallies(watch.tally)
        if before is not None:
            self.wholes, self.tallies = before.wholes, before.tallies
            self.go_on_from(before)
            alike = before.rules.which == rules.which[: len(before.steps)]
            alike = alike and all(map(np.array_equal, before.steps, self.steps))
            if alike and all(f.least is not None for f in before.floors):
                self.before = before.floors
        self.through = [True] * len(spaces)  # whether all requested pmappings were searched

    def go_on_from(self, before: Deepening) -> None:
        """Take over the whole mappings known to a search of a part of these spaces."""
        self.known = replace(self.known, figures=before.known.figures)

    def floor(self, depth: int) -> None:
        """Compute lower bounds of every Einsum, for mappings with up to `depth` fused loops."""
        if any(s.rules.of_blocks for s in self.spaces):
            return  # rules on loops below a memory differ without the fused loops
        self._bound_regions()
        tally = self.watch.tally(self.watch.share(FLOORS))
        first = dict(equal_shapes(self.spaces, self.named))
        compulsory = self.einsum_bounds(self.part)
        each = list(compulsory)

        def one(i: int) -> int:
            self.watch.begin_step(f"bounds of {self.spaces[i].name}")
            before = self.before[i] if self.before else None
            wanted: set[Exchanges] = set()
            for k in (k for k in first if first[k] == i and before is not None):
                args = self.spaces[k], self.request.limits, self.passing[k], depth, self.rules
                wanted |= exchanged_inside(*args)
            floors = lower_bounds_of(
                self.spaces[i],
                self.request.limits,
                self.rules.interest,
                self.steps,
                self.explorers[i].known,
                tally,
                before,
                wanted,
            )
            for k in (k for k in first if first[k] == i):
                self.floors[k], each[k] = floors, least_alone(floors, compulsory[k])
            self.raise_bounds(np.sum(each, axis=0))
            return i

        self.watch.step(lambda: self._all_done([i for i in first if first[i] == i], one))
        if self.watch.has_time():
            self.raise_bounds(exchange_bound(self.spaces, self.floors, compulsory, self.rules.lives))

    def einsum_bounds(self, part: int) -> list[Array]:
        """Lower bounds of each Einsum [sums] that are known without its floors, in a part of the space."""
        known = self.watch.least.of_einsums(part)
        return compulsory_sums(self.spaces, self.rules.aims.added) if known is None else known

    def _bound_regions(self) -> None:
        """Bound the regions below a cut: only points that may be part of a better whole mapping are kept.

        The other Einsums contribute their least costs.
        """
        if not self.known.figures.shape[1]:
            return
        each = self.einsum_bounds(self.part)
        together: dict[int, list[int]] = {}
        for i, explorer in enumerate(self.explorers):
            if explorer.cut:
                together.setdefault(id(explorer.known), []).append(i)
        nothing = np.zeros((self.known.sums + len(self.known.weights), len(self.known.edges)))
        for alike in together.values():
            space = self.spaces[alike[0]]
            moved = {tuple((o.elements, o.fusable) for o in self.spaces[i].operands) for i in alike}
            if len(moved) > 1:
                continue
            rest = np.min([sum(each[:i] + each[i + 1 :], np.zeros(self.known.sums)) for i in alike], axis=0)
            bound = Bound(self.known, nothing, seconds=compulsory(space)[1]).plus(rest.tolist())
            self.explorers[alike[0]].known.bound = bound

    def raise_bounds(
        self, sums: Array, mixtures: Sequence[tuple[float, float, float]] = (), part: int | None = None
    ) -> None:
        """Raise the lower bounds of all whole mappings that are not worse than known ones, in this part of
        the space or another one."""
        if self.rules.interest.rough:  # a rough search covers only a part of the space
            return
        best = self.known.figures[: self.known.sums].min(axis=1, initial=np.inf)
        least = np.minimum(sums, best / (1 + self.known.eps) * (1 - ROUNDED))
        self.watch.least.raised(self.part if part is None else part, least, mixtures)

    def _work_out(self) -> None:
        """Compute shortest paths from the current information, and raise the lower bounds by them."""
        assert self.paths is not None
        self.paths.work_out(self.known)
        if not self.known.sums or self.depth < deepest(self.spaces, self.request.limits):
            return
        sums = self.known.sums
        best = self.known.figures[:sums]
        best = np.concatenate([best, self.known.weights @ best]) if len(self.known.weights) else best
        least = np.minimum(
            self.paths.behind[0][:, -1, 0], best.min(axis=1, initial=np.inf) / (1 + self.known.eps)
        )
        least = least / (1 + self.rules.interest.eps) * (1 - ROUNDED)
        if not np.isfinite(least).all():
            return
        weights = zip(self.known.weights.tolist(), least[sums:].tolist(), strict=True)
        self.raise_bounds(least[:sums], [(*w, x) for w, x in weights])

    def deepen(self, depth: int) -> None:
        """Search the pmappings with up to `depth` fused loops that may be part of better whole mappings."""
        self.watch.step(lambda: self._look_around(depth))
        self.join(self._left)

    def _look_around(self, depth: int) -> None:
        self._begin(depth)
        self._dive_and_look(depth, self._dives())

    def _dive_and_look(self, depth: int, dives: Sequence[Interest]) -> None:
        """Run the dives, then search everything that may be part of better whole mappings."""
        assert self.paths is not None
        self._work_out()
        for interest in dives:
            if not self.near():
                self.dive(depth, interest)
        for some in self._rounds():
            for alike in self._side_by_side(some, partial(self._deepened, depth=depth)):
                for i in alike:
                    self.watch.finish_step(self.spaces[i].name, self._best())
            if not self.watch.has_time():
                break
            self._work_out()

    def deepen_inside(self, depth: int) -> None:
        """Search the mappings that exchange tensors further inside than the first memory.

        First it checks whether any of them may be part of a whole mapping better than the known ones.
        """
        self.watch.step(lambda: self._look_inside(depth))
        if any(self.found) or self.watch.late:
            self.join(self._left)

    def _look_inside(self, depth: int) -> None:
        self._begin(depth)
        assert self.paths is not None
        for _ in range(TIMES):
            self._work_out()
            hopeful = [self.paths.hopeful(i, self.known) for i in range(len(self.spaces))]
            left = [{s: some for s, some in mine.items() if s.innermost > 1} for mine in hopeful]
            if not any(left):
                self.found = [[] for _ in self.spaces]  # none of it can be joined with the rest
                return
            wanted = [unlike(some, done) for some, done in zip(left, self.seen, strict=True)]
            if not any(wanted):
                break
            self._look(wanted, depth)
            if not self.watch.has_time():
                return
        few = sum(int(some.sum()) for mine in hopeful for some in mine.values()) < FEW
        self._dive_and_look(depth, () if few else self._dives())

    def _begin(self, depth: int) -> None:
        """Raise Late once the time limit has passed."""
        self.depth = depth
        self.known = replace(self.known, weights=self._weights())
        self._bound_regions()
        self.found = [[] for _ in self.spaces]
        self.seen = [{} for _ in self.spaces]
        each = zip(self.floors, self.einsum_bounds(self.part), strict=True)
        self.floors = [replace(f, unknown=tuple(x.tolist())) if f.least is None else f for f, x in each]
        limits, tally = self.request.limits, self.watch.tally()
        self.watch.begin_step("bounds of whole mappings")
        self.paths = CompletionBounds(
            self.spaces, limits, self.rules, self.floors, self.passing, depth, self.known, tally
        )

    def _dives(self) -> list[Interest]:
        """The margins of the dives, the rougher one first."""
        mine = self.rules.interest
        if len(self.spaces) < 2:
            return []
        # With few memories, a full search is about as fast as a fine dive.
        some = DIVES if any(e.cut for e in self.explorers) else DIVES[:1]
        return [replace(mine, eps=eps, rough=space) for eps, space in some if eps > mine.eps]

    def near(self) -> bool:
        """True if the best known mapping is close to the lower bound."""
        assert self.paths is not None
        known, sums = self.known.figures, self.known.sums
        if not known.shape[1] or not sums or self.rules.buffers or self.known.aims is not None:
            return False
        best = np.concatenate(
            [known[:sums], self.known.weights @ known[:sums]] if len(self.known.weights) else [known[:sums]]
        )
        return bool((best.min(axis=1) <= self.paths.behind[0][:, -1, 0] * (1 + CLOSE)).all())

    def _left(self) -> list[list[Pmappings]]:
        """Return the pmappings that known whole mappings do not exclude."""
        if self.paths is None:  # the time limit passed before there were any
            return self.found
        for i, mine in enumerate(self.found):
            bounded = [self._bounded(i, points) for points in mine]
            self.found[i] = [p for p in bounded if p is not None]
        return self.found

    def _weights(self) -> Array:
        """Weighted sums of energy and latency, each relative to its least known value."""
        least = self.known.figures[:2].min(axis=1, initial=np.inf)
        if self.known.sums != 2 or len(self.spaces) < 2 or not np.isfinite(least).all() or not least.all():
            return np.zeros((0, 0))
        return np.array([[1 / least[0], share / least[1]] for share in MIXTURES])

    def dive(self, depth: int, interest: Interest) -> None:
        """Find whole mappings of the shapes that look best, so that the following steps exclude more."""
        assert self.paths is not None
        near = self.paths.near_best(NEAR)
        wanted = [unlike(some, done) for some, done in zip(near, self.seen, strict=True)]
        self._look(wanted, depth)
        if self.watch.has_time():
            self.join(partial(self._thinned_all, interest), interest)
        if self.watch.has_time():
            self._work_out()

    def _look(self, wanted: Sequence[Mapping[Sharing, Array]], depth: int) -> None:
        """Search these shapes and tile sizes, once for Einsums of equal shape; the results tighten the
        bounds."""
        some = self._alike(i for i, mine in enumerate(wanted) if mine)
        self._all_done(some, lambda alike: self._stock(alike, dict(enumerate(wanted)), depth))

    def _stock(
        self, alike: list[int], wanted: Mapping[int, Mapping[Sharing, Array]], depth: int
    ) -> list[int]:
        assert self.paths is not None
        for shape, points in self._looked_at(alike, wanted, depth):
            for i in (i for i in alike if shape in wanted[i]):
                mine = wanted[i][shape]
                left = None if points is None else self._bounded(i, points, mine)
                self.paths.refine(i, shape, left, mine)
                self.seen[i][shape] = self.seen[i].get(shape, False) | mine
                self.found[i] += [left] if left is not None else []
        return alike

    def _thinned_all(self, interest: Interest) -> list[list[Pmappings]]:
        return [[self._thinned(i, p, interest) for p in mine] for i, mine in enumerate(self._left())]

    def _thinned(self, i: int, points: Pmappings, interest: Interest) -> Pmappings:
        """Return the points without those that others nearly equal."""
        assert self.paths is not None
        rest = list(self.paths.rest_of(i, points.shape, points.keys)[:, -1])
        energy = points.energy + rest.pop(0) if interest.energy else points.energy
        latency = points.latency + rest.pop(0) if interest.latency else points.latency
        more = points.more + np.array(rest[: len(points.more)]) if len(points.more) else points.more
        space = [*points.local, *(row for slot in points.above for row in slot)]
        figures = interest.compared(energy, latency, more, (), space)
        return points.only(undominated(figures, group_numbers(points.keys, len(points))))

    def plain(self, depth: int) -> None:
        """Search all pmappings with up to `depth` fused loops."""
        self.watch.step(lambda: self._look_at_all(depth))
        self.join(lambda: self.found)

    def rescue(self, watch: Watch) -> None:
        """Continue with another time limit until every Einsum has a pmapping, and join them.

        For a search that timed out before its first join. Earlier results are kept.
        """
        self.watch, self.tallies = watch, Tallies(watch.tally)
        missing = [i for i, mine in enumerate(self.found) if not mine]
        watch.step(lambda: self._look_at_all(0, missing))
        self.join(lambda: self.found)

    def _look_at_all(self, depth: int, some: Iterable[int] | None = None) -> None:
        for i in range(len(self.spaces)) if some is None else some:
            space = self.spaces[i]
            self.watch.begin_step(space.name)
            wanted: dict[Sharing, Bound | None] = dict.fromkeys(
                s for s in every_shape(space, self.request.limits, self.passing[i], depth)
            )
            with self.tallies.counted(space.name) as tally:
                result = [p for _, p in self.explorers[i].pmappings(wanted, depth, tally)]
                self.found[i] += [p for p in result if p is not None]

    def _alike(self, some: Iterable[int]) -> list[list[int]]:
        """Groups of Einsums of equal shape."""
        result: dict[int, list[int]] = {}
        first = dict(equal_shapes(self.spaces, self.named))
        for i in some:
            result.setdefault(first[i], []).append(i)
        return list(result.values())

    def _rounds(self) -> Iterator[list[list[int]]]:
        """Einsums in the order of the search, as many shapes at once as there are threads.

        On a cluster one shape at a time, shared among workers, so that bounds are as tight as in one
        process.
        """
        assert self.paths is not None
        sizes = [sum(map(len, mine)) for mine in self.paths.choices]
        order = self._alike(sorted(range(len(self.spaces)), key=lambda i: sizes[i]))
        many = 1 if self.request.crew is not None else max(1, self.request.workers)
        for begin in range(0, len(order), many):
            yield order[begin : begin + many]

    def _all_done(self, some: Sequence[T], action: Callable[[T], T]) -> None:
        for _ in self._side_by_side(some, action):
            pass

    def _side_by_side(self, some: Sequence[T], action: Callable[[T], T]) -> Iterator[T]:
        if len(some) < 2 or self.request.workers < 2:
            for item in some:
                if not self.watch.has_time():
                    return
                yield action(item)
            return
        # threads, since nearly all time is spent in numpy and results are shared
        with Threads(self.request.workers) as pool:
            yield from pool.each(action, some)

    def _deepened(self, alike: list[int], depth: int) -> list[int]:
        assert self.paths is not None
        hopeful = {i: self.paths.hopeful(i, self.known) for i in alike}
        self._stock(alike, {i: unlike(hopeful[i], self.seen[i]) for i in alike}, depth)
        for i in alike:
            # Shapes that are excluded no longer loosen the bounds of others.
            for c in self.paths.choices[i]:
                if c.shape not in hopeful[i]:
                    self.paths.refine(i, c.shape, None)
            self.through[i] = not self.watch.late
        return alike

    def _looked_at(
        self, alike: Sequence[int], wanted: Mapping[int, Mapping[Sharing, Array]], depth: int
    ) -> Iterator[tuple[Sharing, Pmappings | None]]:
        """The pmappings of Einsums of equal shape, for all shapes and tile sizes requested of any of them."""
        assert self.paths is not None
        bounds: dict[Sharing, Bound | None] = {}
        for shape in dict.fromkeys(s for i in alike for s in wanted[i]):
            mine = [(i, wanted[i][shape]) for i in alike if shape in wanted[i]]
            some = np.logical_or.reduce([m for _, m in mine])
            rests = [self.paths.rest_of(i, shape)[:, :, m].min(axis=2, initial=np.inf) for i, m in mine]
            keys = self.paths.choice(mine[0][0], shape).keys[:, some]
            sizes = tuple(np.unique(row) for row in keys) if keys.all() else ()
            alone = len(self.spaces) == 1 and not self.rules.buffers
            seconds = min(compulsory(self.spaces[i])[1] for i in alike)
            bounds[shape] = Bound(self.known, np.minimum.reduce(rests), sizes, alone, seconds)
        names = ", ".join(self.spaces[i].name for i in alike)
        self.watch.begin_step(names)
        with self.tallies.counted(names) as tally:
            # The shapes depend on which tensors pass by; here they are given.
            passing = Passing(*(any(p) for p in zip(*(astuple(self.passing[i]) for i in alike), strict=True)))
            yield from self.explorers[alike[0]].with_passing(passing).pmappings(bounds, depth, tally)

    def _bounded(self, i: int, points: Pmappings, some: Array | None = None) -> Pmappings | None:
        """Return the points of an Einsum that known whole mappings do not exclude, at tile sizes `some`."""
        assert self.paths is not None
        points = replace(points, space=self.spaces[i])
        interest = self.rules.interest
        c = self.paths.choice(i, points.shape)
        own = c.own[:, c.of(points.keys)]
        bits = points.local + points.above.sum(axis=0) + own
        peaks = [bits[m] for m in self.rules.buffers]
        rest = self.paths.rest_of(i, points.shape, points.keys)
        none = np.zeros(rest.shape[:2])
        figures = interest.figures(points.energy, points.latency, points.more, peaks)
        hopeful = Bound(self.known, none).hopeful(figures, rest)
        if some is not None:
            hopeful &= some[c.of(points.keys)]
        if not hopeful.any():
            return None
        return points if hopeful.all() else points.only(np.flatnonzero(hopeful))

    def join(
        self, found: Callable[[], Sequence[Sequence[Pmappings]]], interest: Interest | None = None
    ) -> None:
        """Join the pmappings; the result bounds the following steps.

        A join that is interrupted is dropped, except the first one, which has some additional time, and that
        of a single Einsum, which takes a moment. `interest`: of a dive.
        """
        if not self.watch.late:
            self.watch.step(lambda: self._join(found(), interest, self.watch))
        if self.watch.late and (not self.wholes or len(self.spaces) == 1):
            grace = self.watch.grace()
            grace.step(lambda: self._join(found(), interest, grace))

    def join_at_once(self) -> None:
        """Join the results so far, regardless of the time limit: with few mappings this takes a moment."""
        request = replace(self.request, stop=None, progress=None, time_limit=None)
        self._join(self.found, None, Watch(request, self.watch.begun, 1))

    def _join(self, found: Sequence[Sequence[Pmappings]], interest: Interest | None, watch: Watch) -> None:
        if watch is not self.watch and not all(found):
            return  # the time limit passed before every Einsum had a pmapping
        if interest is None:
            rules = replace(self.rules, coarse=self._widest(found))
        else:
            rules = replace(self.rules, interest=interest)
        joined: list[Stage] = [first_stage(rules)]
        for i, space in enumerate(self.spaces):
            of = f"join {space.name}"
            self.watch.begin_step(of)
            with self.tallies.counted(of) as tally:
                outlook, workers = self._outlook(i + 1), self.request.workers
                joined.append(
                    next_stage(joined[-1], found[i], space, i, rules, tally, watch.has_time, outlook, workers)
                )
            if interest is None:
                self.watch.finish_step(of, self._best())
        if watch.late and (self.wholes or not any(map(len, joined[-1]))):
            return
        self.wholes.append(FullMappings(tuple(joined), tuple(tuple(f) for f in found), self.rules))
        self.learn(self.wholes[-1])

    def _widest(self, found: Sequence[Sequence[Pmappings]]) -> frozenset[int] | None:
        """The Einsums after which the last join left most states, except the last one."""
        if self.rules.interest.rough:
            return None
        last = [sum(map(len, stage)) for stage in self.wholes[-1].joined[1:]] if self.wholes else []
        sizes = last or [sum(map(len, mine)) for mine in found]
        return frozenset(np.argsort(sizes[:-1], kind="stable")[::-1][:COARSE].tolist())

    def _outlook(self, number: int) -> Outlook | None:
        paths = self.paths
        return None if paths is None else paths.outlook(number, self.known)

    def learn(self, whole: FullMappings) -> None:
        """Restrict the rest of the search to mappings that may be better than these whole mappings."""
        if len(whole):
            rows = whole.figures()
            self.known = self.known.joined(rows[:, self.rules.aims.admits(rows)])
            self.watch.improve(self._best())

    def _best(self) -> float | None:
        """The least score of the first objective."""
        known = self.known.figures
        if not known.shape[1]:
            return None
        aims = self.rules.aims
        return float(np.min(aims.scores(known)[0]))
