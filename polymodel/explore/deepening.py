"""Fused loops of a depth: what may be part of better whole mappings than are known, and their join.

The order of work: what every Einsum costs at least (`floors`), and what follows for whole mappings
(`interfaces`); whole mappings of the shapes that look best (a dive); then all pmappings that may still be
part of better ones, and their join.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from polymodel.explore.bounds import Bound, Known
from polymodel.explore.clock import GRACE, Late, Tally, Watch
from polymodel.explore.combine import Interest
from polymodel.explore.floors import Floors, floors_of, ladders
from polymodel.explore.interest import BEATEN, by_name, share_of
from polymodel.explore.interfaces import Interfaces
from polymodel.explore.join import Outlook, Rules, Stage, first_stage, next_stage
from polymodel.explore.pmappings import Explorer, Pmappings, Regions, equal_shapes
from polymodel.explore.records import Request
from polymodel.explore.records import Stage as StageRecord
from polymodel.explore.space import EinsumSpace
from polymodel.explore.states import passing_of
from polymodel.explore.templates import Shape, shapes
from polymodel.explore.wholes import Whole

Array = Any
FINE = (6e-4, 0.1)  # shares by which costs and space may be above the best in a fine dive
DIVES = ((3e-3, 0.4), FINE)  # rough ones first
NEAR = 1e-3  # how near the shortest path is a shape that a dive looks at
CLOSE = 2e-4  # how near the least that is possible the best may be, so that no more dives are needed
TIMES = 6  # a dive looks for better paths so often
MIXTURES = (1 / 16, 1 / 4, 1.0, 4.0, 16.0)  # latency against energy
FLOORS = 0.25  # of the time limit at most, for what every Einsum costs at least


class Deepening:
    """Deeper and deeper fused loops; what is known of the shallower ones bounds the search of the next."""

    def __init__(
        self,
        spaces: Sequence[EinsumSpace],
        request: Request,
        watch: Watch,
        rules: Rules,
        before: Deepening | None = None,
    ) -> None:
        """`before`: of a part of these spaces, whose whole mappings are known."""
        self.spaces, self.request, self.rules, self.watch = spaces, request, rules, watch
        sums = int(rules.interest.energy) + int(rules.interest.latency)
        self.steps = ladders(rules.capacity, _bits(spaces))
        figures = np.zeros((sums + len(rules.buffers), 0))
        edges = self.steps[rules.buffers[0]][::-2][::-1] if rules.buffers else np.array([np.inf])
        slack = share_of(request.eps, BEATEN)
        self.known = Known(figures, sums, edges, slack)  # mixtures once their scale is known
        self.floors = [Floors(self.steps, sums, None)] * len(spaces)
        self.found: list[list[Pmappings]] = [[] for _ in spaces]
        self.passing = [passing_of(spaces, rules.lives, i) for i in range(len(spaces))]
        self.names = [s.name if by_name(request.limits) else "" for s in spaces]
        known: dict[object, Regions] = {}
        self.explorers = [
            Explorer(s, request.limits, rules.interest, p, known.setdefault((s.shape, name), Regions()))
            for s, p, name in zip(spaces, self.passing, self.names, strict=True)
        ]
        self.paths: Interfaces | None = None
        self.wholes: list[Whole] = []
        self.tallies: dict[str, tuple[Tally, float]] = {}
        if before is not None:
            self.wholes, self.tallies = before.wholes, before.tallies
            self.known = replace(self.known, figures=before.known.figures)
        self.through = [True] * len(spaces)  # whether all pmappings asked for were looked at

    def floor(self) -> None:
        """Work out what every Einsum costs at least."""
        tally = Tally(going_on=self.watch.share(FLOORS))
        first = dict(equal_shapes(self.spaces, self.names))
        for i, space in enumerate(self.spaces):
            if first[i] == i:
                self.floors[i] = floors_of(
                    space,
                    self.request.limits,
                    self.rules.interest,
                    self.steps,
                    self.explorers[i].known,
                    tally,
                )
            self.floors[i] = self.floors[first[i]]

    def deepen(self, depth: int) -> None:
        """Look at the pmappings of up to so many fused loops that may be part of better whole mappings."""
        self.known = replace(self.known, weights=self._weights())
        self.found = [[] for _ in self.spaces]
        if not self._map_paths(depth):
            return
        assert self.paths is not None
        self.paths.work_out(self.known)
        dives = self._dives()
        for interest in dives:
            if not self.near():
                self.dive(depth, interest)
        for some in self._turns():
            for i in self._side_by_side(some, depth):
                self.watch.tell(self.spaces[i].name, self._best())
            if not self.watch.going_on():
                break
            self.paths.work_out(self.known)
        for interest in dives if self.watch.going_on() else ():
            self.join(self._left(), interest)
            self.paths.work_out(self.known)
        self.join(self._left())

    def settled(self, depth: int) -> bool:
        """True if nothing that is handed on further inside than the first memory is part of better whole
        mappings than are known."""
        self.known = replace(self.known, weights=self._weights())
        if not self._map_paths(depth):
            return True
        assert self.paths is not None
        seen: list[dict[Shape, Array]] = [{} for _ in self.spaces]
        eps, space = FINE
        interest = replace(self.rules.interest, eps=max(eps, self.rules.interest.eps), rough=space)
        for _ in range(TIMES):
            self.paths.work_out(self.known)
            hopeful = [self.paths.hopeful(i, self.known) for i in range(len(self.spaces))]
            left = [{s: some for s, some in mine.items() if s.innermost > 1} for mine in hopeful]
            if not any(left):
                return True
            wanted = [_unlike(some, done) for some, done in zip(left, seen, strict=True)]
            if not any(wanted):
                return False
            for i, some in enumerate(wanted):
                self._sketched(i, some, depth, interest, seen[i])
                if not self.watch.going_on():
                    return True
        return False

    def _map_paths(self, depth: int) -> bool:
        """False if there was no time for it."""
        limits, tally = self.request.limits, Tally(going_on=self.watch.going_on)
        try:
            self.paths = Interfaces(
                self.spaces, limits, self.rules, self.floors, self.passing, depth, self.known, tally
            )
        except Late:
            return False
        return True

    def _dives(self) -> list[Interest]:
        """What the dives look at, rougher ones first: of several figures near ones are left out."""
        mine = self.rules.interest
        if len(self.spaces) < 2:
            return []
        # Where memories are few, looking at all is about as fast as a fine dive.
        some = DIVES if any(e.cut for e in self.explorers) else DIVES[:1]
        return [replace(mine, eps=eps, rough=space) for eps, space in some if eps > mine.eps]

    def near(self) -> bool:
        """True if the best that is known is about as good as can be."""
        assert self.paths is not None
        known, sums = self.known.figures, self.known.sums
        if not known.shape[1] or not sums or self.rules.buffers:
            return False
        best = np.concatenate(
            [known[:sums], self.known.weights @ known[:sums]] if len(self.known.weights) else [known[:sums]]
        )
        return bool((best.min(axis=1) <= self.paths.behind[0][:, -1, 0] * (1 + CLOSE)).all())

    def _left(self) -> list[list[Pmappings]]:
        """The pmappings that known whole mappings leave."""
        for i, mine in enumerate(self.found):
            bounded = [self._bounded(i, points) for points in mine]
            self.found[i] = [p for p in bounded if p is not None]
        return self.found

    def _weights(self) -> Array:
        """Mixtures of energy and latency, each as a share of the least that is known."""
        least = self.known.figures[:2].min(axis=1, initial=np.inf)
        if self.known.sums < 2 or len(self.spaces) < 2 or not np.isfinite(least).all() or not least.all():
            return np.zeros((0, 0))
        return np.array([[1 / least[0], share / least[1]] for share in MIXTURES])

    def dive(self, depth: int, interest: Interest) -> None:
        """Whole mappings of shapes that look best: the more is known, the less is worth looking at."""
        assert self.paths is not None
        rough: list[list[Pmappings]] = [[] for _ in self.spaces]
        seen: list[dict[Shape, Array]] = [{} for _ in self.spaces]
        for _ in range(TIMES):
            near = self.paths.near_best(NEAR)
            wanted = [_unlike(some, done) for some, done in zip(near, seen, strict=True)]
            if not any(wanted) or self.near() or not self.watch.going_on():
                break
            for i, some in enumerate(wanted):
                if not self.watch.going_on():
                    return
                rough[i] += self._sketched(i, some, depth, interest, seen[i])
            self.join(rough, interest)
            if self.watch.going_on():
                self.paths.work_out(self.known)

    def _sketched(
        self, i: int, some: Mapping[Shape, Array], depth: int, interest: Interest, seen: dict[Shape, Array]
    ) -> list[Pmappings]:
        """The pmappings of these shapes and tile sizes as a dive sees them; from now on they bound paths."""
        assert self.paths is not None
        found = []
        explorer = self.explorers[i].with_interest(interest)
        for shape, points in self._looked_at(explorer, i, some, depth):
            self.paths.refine(i, shape, points, some[shape], interest.eps, interest.rough)
            seen[shape] = seen.get(shape, False) | some[shape]
            found += [points] if points is not None else []
        return found

    def plain(self, depth: int) -> None:
        """Look at all pmappings of so many fused loops."""
        for i, space in enumerate(self.spaces):
            reach = len(space.memories) if space.copy else max(u.memories for u in space.units)
            every = shapes(space, self.request.limits, self.passing[i], depth, reach)
            wanted: dict[Shape, Bound | None] = dict.fromkeys(every)
            with self._counted(space.name) as tally:
                found = [p for _, p in self.explorers[i].pmappings(wanted, depth, tally)]
                self.found[i] += [p for p in found if p is not None]
        self.join(self.found)

    def _turns(self) -> Iterator[list[int]]:
        """Einsums in the order they are looked at, as many at once as there are workers."""
        assert self.paths is not None
        sizes = [sum(map(len, mine)) for mine in self.paths.choices]
        order = sorted(range(len(self.spaces)), key=lambda i: sizes[i])
        for begin in range(0, len(order), max(1, self.request.workers)):
            yield order[begin : begin + max(1, self.request.workers)]

    def _side_by_side(self, some: list[int], depth: int) -> Iterator[int]:
        if len(some) < 2:
            yield from (self._deepened(i, depth) for i in some)
            return
        # Threads: nearly all of the time goes by in numpy, and what they find is shared.
        with ThreadPoolExecutor(len(some)) as pool:
            for run in as_completed([pool.submit(self._deepened, i, depth) for i in some]):
                yield run.result()

    def _deepened(self, i: int, depth: int) -> int:
        assert self.paths is not None
        hopeful = self.paths.hopeful(i, self.known)
        for shape, points in self._looked_at(self.explorers[i], i, hopeful, depth):
            self.found[i] += [points] if points is not None else []
            self.paths.refine(i, shape, points)
        # What nobody hopes for any more is out of the way of others.
        for c in self.paths.choices[i]:
            if c.shape not in hopeful:
                self.paths.refine(i, c.shape, None)
        self.through[i] = not self.watch.late
        return i

    def _looked_at(
        self, explorer: Explorer, i: int, some: Mapping[Shape, Array], depth: int
    ) -> Iterator[tuple[Shape, Pmappings | None]]:
        """The pmappings of these shapes, at these of their tile sizes."""
        assert self.paths is not None
        wanted: dict[Shape, Bound | None] = {}
        for shape, mine in some.items():
            rest = self.paths.rest_of(i, shape)[:, :, mine].min(axis=2, initial=np.inf)
            keys = self.paths.choice(i, shape).keys[:, mine]
            sizes = tuple(np.unique(row) for row in keys) if keys.all() else ()
            wanted[shape] = Bound(self.known, rest, sizes)
        with self._counted(self.spaces[i].name) as tally:
            for shape, points in explorer.pmappings(wanted, depth, tally):
                if points is not None:
                    points = self._bounded(i, points, some[shape])
                yield shape, points

    def _bounded(self, i: int, points: Pmappings, some: Array | None = None) -> Pmappings | None:
        """Without those that known whole mappings rule out, and those of other tile sizes."""
        assert self.paths is not None
        interest = self.rules.interest
        c = self.paths.choice(i, points.shape)
        own = c.own[:, c.of(points.keys)]
        bits = points.local + points.above.sum(axis=0) + own
        peaks = [bits[m] for m in self.rules.buffers]
        rest = self.paths.rest_of(i, points.shape, points.keys)
        none = np.zeros(rest.shape[:2])
        figures = interest.figures(points.energy, points.latency, peaks)
        hopeful = Bound(self.known, none).hopeful(figures, rest)
        if some is not None:
            hopeful &= some[c.of(points.keys)]
        if not hopeful.any():
            return None
        return points if hopeful.all() else points.only(np.flatnonzero(hopeful))

    def join(self, found: Sequence[Sequence[Pmappings]], interest: Interest | None = None) -> None:
        """Join what there is; the result bounds what follows. One that is cut short is left out, but for the
        first, which has some grace. `interest`: of a dive."""
        rules = self.rules if interest is None else replace(self.rules, interest=interest)
        if self.watch.late and (self.wholes or not all(found)):
            return
        going_on = self.watch.going_on
        if self.watch.late:
            going_on = self.watch.grace(GRACE).going_on
        joined: list[Stage] = [first_stage(rules)]
        for i, space in enumerate(self.spaces):
            of = f"join {space.name}"
            with self._counted(of) as tally:
                joined.append(
                    next_stage(joined[-1], found[i], space, i, rules, tally, going_on, self._outlook(i + 1))
                )
            if interest is None:
                self.watch.tell(of, self._best())
        if self.wholes and self.watch.late:
            return
        self.wholes.append(Whole(tuple(joined), tuple(tuple(f) for f in found), self.rules))
        self.learn(self.wholes[-1])

    def _outlook(self, number: int) -> Outlook | None:
        paths = self.paths
        if paths is None:
            return None
        return Outlook(self.known, lambda structure, tiles: paths.behind_of(number, structure, tiles))

    def learn(self, whole: Whole) -> None:
        """From now on only what may be better than these whole mappings is looked at."""
        if len(whole):
            self.known = self.known.joined(whole.figures())

    def _best(self) -> float | None:
        """The least value of the first objective."""
        known = self.known.figures
        if not known.shape[1]:
            return None
        name = self.request.objectives[0]
        interest = self.rules.interest
        figures = [n for n in ("energy", "latency") if getattr(interest, n)]
        figures += [o for o in self.request.objectives if o.startswith("buffer")]
        best = known[0] * known[1] if name == "energy_delay" else known[figures.index(name)]
        return float(best.min())

    @contextmanager
    def _counted(self, of: str) -> Iterator[Tally]:
        tally, seconds = self.tallies.get(of, (Tally(going_on=self.watch.going_on), 0.0))
        begun = time.perf_counter()
        yield tally
        self.tallies[of] = tally, seconds + time.perf_counter() - begun

    def records(self) -> tuple[StageRecord, ...]:
        return tuple(
            StageRecord(of, t.templates, t.points, t.kept, t.too_large, seconds)
            for of, (t, seconds) in self.tallies.items()
        )


def _unlike(some: Mapping[Shape, Array], done: Mapping[Shape, Array]) -> dict[Shape, Array]:
    """Tile sizes of shapes that are not done."""
    left = {shape: mine & ~done.get(shape, np.zeros(len(mine), bool)) for shape, mine in some.items()}
    return {shape: mine for shape, mine in left.items() if mine.any()}


def _bits(spaces: Sequence[EinsumSpace]) -> float:
    """Bits of all tensors."""
    sizes = {o.tensor: float(o.elements * o.bits) for s in spaces for o in s.operands}
    return sum(sizes.values())
