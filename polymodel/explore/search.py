"""The search: pmappings of every Einsum, joined along the cascade into the Pareto front of whole mappings.

The mapspace: every placement of tensors in memories that `keep` and `may_keep` allow, every order of storage,
every tile size, intermediates exchanged in the backing storage or inside it below any fused loops that index
them, Einsums in the order of the workload. What space a fused loop nest needs is counted as if what is
stored above its loop were there as long as it runs (DESIGN 7); with two iterations and three Einsums the
exact peak can be lower.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from polymodel.architecture.hierarchy import Hierarchy
from polymodel.explore.bounds import Bound, bound_of
from polymodel.explore.clock import Late, Tally
from polymodel.explore.combine import Interest
from polymodel.explore.join import Rules, Stage, first_stage, next_stage
from polymodel.explore.pmappings import Explorer, Pmappings, Regions, equal_shapes
from polymodel.explore.records import Candidate, Found, Limits, Progress, Request
from polymodel.explore.records import Stage as StageRecord
from polymodel.explore.regions import cuttable
from polymodel.explore.space import EinsumSpace, einsum_spaces
from polymodel.explore.states import lives_of, passing_of
from polymodel.explore.templates import Passing, deepest
from polymodel.explore.wholes import best_of, candidates_of
from polymodel.workload.einsum import Cascade

PRUNES = 3  # an Einsum's points are pruned so often before they are joined
ROUGH = 0.03
FLOORS = 0.25  # of the time limit at most, for what every Einsum costs at least
GRACE = 2.0  # seconds to make a whole mapping of what there is when time is over


@dataclass
class _Watch:
    """The clock of a search, and what it told."""

    request: Request
    begun: float
    total: int
    done: int = 0
    late: bool = False
    end: float | None = None

    def __post_init__(self) -> None:
        limit = self.request.time_limit
        self.end = None if limit is None else self.begun + limit

    def going_on(self) -> bool:
        if self.end is not None and time.perf_counter() > self.end:
            self.late = True
        if self.request.stop is not None and self.request.stop():
            self.late = True
        return not self.late

    def grace(self, seconds: float) -> _Watch:
        """A clock with so much time from now on, whatever the limit is."""
        other = _Watch(replace(self.request, stop=None, progress=None), self.begun, 1)
        other.end = time.perf_counter() + seconds
        return other

    def tell(self, of: str, best: float | None = None) -> None:
        self.done += 1
        if self.request.progress is not None:
            self.request.progress(Progress(self.done, self.total, of, best))


def search(cascade: Cascade, hierarchy: Hierarchy, request: Request) -> Found:
    """The Pareto front of whole mappings, or why there is none. Raises Refused for workloads and machines it
    does not cover."""
    found = searched(cascade, hierarchy, request)
    if found.candidates or not found.complete:
        return found
    from polymodel.explore.diagnosis import diagnosed

    return replace(found, diagnosis=diagnosed(cascade, hierarchy, request, found, searched))


def searched(cascade: Cascade, hierarchy: Hierarchy, request: Request) -> Found:
    """The Pareto front of whole mappings."""
    spaces = einsum_spaces(cascade, hierarchy, request.limits)
    depths = range(deepest(spaces, request.limits) + 1)
    watch = _Watch(request, time.perf_counter(), 2 * len(spaces) * len(depths))
    rules = _rules(spaces, request)
    guess = _guess(spaces, request, watch, depths)
    least, floors = _floors(spaces, request, rules, watch)
    work = _Search(spaces, request, rules, watch, least, guess.bound if guess else None)
    for depth in depths:
        work.deepen(depth)
        work.join()
        if watch.late:
            break
    candidates = work.candidates()
    if watch.late:
        stopped = request.stop is not None and request.stop()
        if not candidates and guess is None and not stopped:
            guess = _rescued(spaces, request, watch, least)
        candidates = best_of((*candidates, *(guess.candidates() if guess else ())))
    return Found(
        request.objectives,
        candidates,
        work.records(),
        not watch.late,
        _unsearched(work, depth, floors) if watch.late else (),
        request.eps,
        time.perf_counter() - watch.begun,
    )


def _unsearched(work: _Search, depth: int, floors: bool) -> tuple[str, ...]:
    """What a search that was cut short did not look at."""
    missing = [s.name for s, done in zip(work.spaces, work.through, strict=True) if not done]
    where = f": of {', '.join(missing)}" if missing else ": joining those of the Einsums"
    found = [f"mappings of {depth} and more fused loops, in part{where}"]
    if not floors:
        found.append("the least energy and latency of every Einsum by itself")
    return tuple(found)


def _floors(
    spaces: Sequence[EinsumSpace], request: Request, rules: Rules, watch: _Watch
) -> tuple[list[tuple[float, float]], bool]:
    """The least energy and latency of every Einsum, whatever the others do (0 if their share of it is over),
    and whether time sufficed."""
    share = None if request.time_limit is None else FLOORS * request.time_limit + time.perf_counter()

    def going_on() -> bool:
        return watch.going_on() and (share is None or time.perf_counter() < share)

    alone = replace(rules.interest, memories=(), buffers=(), relaxed=True)
    found: dict[object, tuple[float, float]] = {}
    names = [s.name if _by_name(request.limits) else "" for s in spaces]
    try:
        for s, name in zip(spaces, names, strict=True):
            if (s.shape, name) not in found:
                tally = Tally(going_on=going_on)
                found[s.shape, name] = Explorer(s, request.limits, alone, Passing()).least(tally)
    except Late:
        pass
    floors = [found.get((s.shape, name)) for s, name in zip(spaces, names, strict=True)]
    return [f or (0.0, 0.0) for f in floors], None not in floors


def _guess(spaces: Sequence[EinsumSpace], request: Request, watch: _Watch, depths: range) -> _Search | None:
    """Good whole mappings found among few tile sizes; what they beat need not be looked at, and if there is
    time for no others they are the answer. None if there are none."""
    if not any(cuttable(s, request.limits) for s in spaces) or len(spaces) < 2:
        return None
    least = [(0.0, 0.0)] * len(spaces)
    spaces = [_narrow(s) for s in spaces]
    return _among_few(
        spaces, request, _Watch(replace(request, progress=None), watch.begun, 1), least, depths[:2]
    )


def _rescued(
    spaces: Sequence[EinsumSpace], request: Request, watch: _Watch, least: list[tuple[float, float]]
) -> _Search | None:
    """A whole mapping or two if time is over before there is any."""
    for some in ([_narrow(s) for s in spaces], list(spaces)):
        found = _among_few(some, request, watch.grace(GRACE), least, range(1))
        if found is not None:
            return found
    return None


def _among_few(
    spaces: list[EinsumSpace],
    request: Request,
    watch: _Watch,
    least: list[tuple[float, float]],
    depths: Iterable[int],
) -> _Search | None:
    few = replace(request, limits=replace(request.limits, sizes="few"))
    rules = _rules(spaces, few)
    rules = replace(rules, interest=replace(rules.interest, rough=ROUGH))
    work = _Search(spaces, few, rules, watch, least, None)
    for depth in depths:
        work.deepen(depth)
        work.join()
        if watch.late:
            break
    return work if work.whole and work.whole[0][-1] else None


def _narrow(s: EinsumSpace) -> EinsumSpace:
    """The first memory inside the backing storage holds everything it may, and all exchanges are there."""
    kept = s.may[1] - (frozenset() if s.copy else s.keep[0] - s.may[1])
    return replace(s, keep=(s.keep[0], kept, *s.keep[2:]), exchange=frozenset({1}))


class _Search:
    """Deeper and deeper fused loops; what is known of the shallower ones bounds the search of the next."""

    def __init__(
        self,
        spaces: Sequence[EinsumSpace],
        request: Request,
        rules: Rules,
        watch: _Watch,
        least: list[tuple[float, float]],
        bound: Bound | None,
    ) -> None:
        self.least, self.bound = least, bound
        self.spaces, self.request, self.rules, self.watch = spaces, request, rules, watch
        self.found: list[tuple[Pmappings, ...]] = [()] * len(spaces)
        self.passing = [passing_of(spaces, rules.lives, i) for i in range(len(spaces))]
        names = [s.name if _by_name(request.limits) else "" for s in spaces]
        self.first = dict(equal_shapes(spaces, list(zip(self.passing, names, strict=True))))
        known: dict[object, Regions] = {}
        self.explorers = [
            Explorer(s, request.limits, rules.interest, p, known.setdefault((s.shape, name), Regions()))
            for s, p, name in zip(spaces, self.passing, names, strict=True)
        ]
        self.joined: list[Stage] = []
        self.whole: tuple[list[Stage], list[tuple[Pmappings, ...]]] | None = None
        self.tallies: dict[str, tuple[Tally, float]] = {}
        self.through = [True] * len(spaces)  # whether all pmappings asked for were looked at

    def deepen(self, depth: int) -> None:
        """Add the pmappings of so many fused loops; Einsums with regions of their own side by side."""
        shared: dict[int, list[int]] = {}
        for i, first in self.first.items():
            if first == i:
                shared.setdefault(id(self.explorers[i].known), []).append(i)
        for done in self._side_by_side(list(shared.values()), depth):
            for i in done:
                self.watch.tell(self.spaces[i].name, self._best())
        for i, space in enumerate(self.spaces):
            if self.first[i] != i:
                self.found[i] = self.found[self.first[i]]
                self.through[i] = self.through[self.first[i]]
                self.watch.tell(space.name, self._best())

    def _side_by_side(self, runs: list[list[int]], depth: int) -> Iterator[Sequence[int]]:
        if self.request.workers < 2:
            yield from (self._deepened(some, depth) for some in runs)
            return
        # Threads: nearly all of the time goes by in numpy, and what they find is shared.
        with ThreadPoolExecutor(self.request.workers) as pool:
            waiting = [pool.submit(self._deepened, some, depth) for some in runs]
            for run in as_completed(waiting):
                yield run.result()

    def _deepened(self, some: Sequence[int], depth: int) -> Sequence[int]:
        for i in some:
            with self._counted(self.spaces[i].name) as tally:
                bound = self._rest({*range(len(self.spaces))} - {i})
                old = self.found[i]
                if bound is not None:
                    old = _bounded(old, bound, self.rules.interest)
                self.found[i] = (*old, *self.explorers[i].pmappings(depth, tally, bound))
            self.through[i] = not self.watch.late
        return some

    def join(self) -> None:
        """Join what there is; the result bounds what follows. One that is cut short leaves the result of the
        one before; the first has some grace."""
        if self.watch.late and (self.whole is not None or not all(self.found)):
            return
        going_on = self.watch.going_on
        if self.watch.late:
            going_on = self.watch.grace(GRACE).going_on
        self.joined = [first_stage(self.rules)]
        for i, space in enumerate(self.spaces):
            of = f"join {space.name}"
            with self._counted(of) as tally:
                rules = replace(self.rules, bound=self._rest(range(i + 1, len(self.spaces))))
                before = self.joined[-1]
                self.joined.append(next_stage(before, self.found[i], space, i, rules, tally, going_on))
            self.watch.tell(of, self._best())
        if self.whole is None or not self.watch.late:
            self.whole = self.joined, list(self.found)
        figures = [
            self.rules.interest.figures(s.energy, s.latency, [s.peak[0, m] for m in self.rules.buffers])
            for s in self.joined[-1]
        ]
        if figures:
            self.bound = bound_of([np.concatenate(f) for f in zip(*figures, strict=True)], self.bound)

    def _rest(self, others: Iterable[int]) -> Bound | None:
        """The bound for figures to which these Einsums will add."""
        if self.bound is None:
            return None
        mine = [self.least[j] for j in others]
        sides = [sum(e for e, _ in mine)] if self.rules.interest.energy else []
        sides += [sum(t for _, t in mine)] if self.rules.interest.latency else []
        return self.bound.with_rest([*sides, *(0.0 for _ in self.rules.buffers)])

    def _best(self) -> float | None:
        """The least value of the first objective."""
        if self.bound is None:
            return None
        name = self.request.objectives[0]
        interest, known = self.rules.interest, self.bound.known
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

    def candidates(self) -> tuple[Candidate, ...]:
        if self.whole is None:
            return ()
        return candidates_of(*self.whole, self.spaces, self.rules, self.request)


def _bounded(found: Sequence[Pmappings], bound: Bound, interest: Interest) -> tuple[Pmappings, ...]:
    """Without pmappings that whole mappings known by now rule out."""
    kept = []
    for p in found:
        peaks = [p.local[interest.memories.index(m)] for m in interest.buffers]
        hopeful = bound.hopeful(interest.figures(p.energy, p.latency, peaks))
        if hopeful.any():
            kept.append(p if hopeful.all() else p.only(np.flatnonzero(hopeful)))
    return tuple(kept)


def _rules(spaces: Sequence[EinsumSpace], request: Request) -> Rules:
    """Which figures matter: those of the objectives, and memories in which tiles of several Einsums meet."""
    memories = spaces[0].memories
    wanted = []
    for name in request.objectives:
        if name.startswith("buffer"):
            _, _, memory = name.partition(":")
            bounded = [i for i, m in enumerate(memories) if i and not np.isinf(m.capacity)] or [
                len(memories) - 1
            ]
            wanted.append(
                next(i for i, m in enumerate(memories) if m.name == memory) if memory else bounded[0]
            )
    meeting = {
        m
        for s in spaces
        for o in s.operands
        if o.fusable and o.tensor not in s.keep[0] and o.tensor not in request.limits.unfused
        for m in sorted(s.exchange)
        if o.tensor in s.may[m] and not np.isinf(memories[m].capacity)
    }
    which = tuple(sorted(meeting | set(wanted)))
    interest = Interest(
        any(o in ("energy", "energy_delay") for o in request.objectives),
        any(o in ("latency", "energy_delay") for o in request.objectives),
        which,
        tuple(wanted),
        eps=(1 + request.eps) ** (1 / (len(spaces) + PRUNES)) - 1 if request.eps else 0.0,
    )
    capacity = np.array([memories[m].capacity for m in which])
    return Rules(lives_of(spaces), which, capacity, interest, tuple(which.index(m) for m in wanted))


def _by_name(limits: Limits) -> bool:
    """True if Einsums of equal shape may have to be mapped differently."""
    return bool(limits.loop_order or limits.compute or limits.fuse or limits.unfused)
