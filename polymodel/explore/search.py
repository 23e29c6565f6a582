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
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from polymodel.architecture.hierarchy import Hierarchy
from polymodel.explore.bounds import Bound, bound_of
from polymodel.explore.combine import Interest
from polymodel.explore.join import Rules, Stage, first_stage, next_stage
from polymodel.explore.pmappings import Explorer, Pmappings, Regions, Tally, equal_shapes
from polymodel.explore.records import Candidate, Found, Limits, Progress, Request
from polymodel.explore.records import Stage as StageRecord
from polymodel.explore.regions import cuttable
from polymodel.explore.space import EinsumSpace, einsum_spaces
from polymodel.explore.states import lives_of, passing_of
from polymodel.explore.templates import Passing, deepest
from polymodel.explore.trees import Chosen, looptree
from polymodel.workload.einsum import Cascade

PRUNES = 3  # an Einsum's points are pruned so often before they are joined
ROUGH = 0.03


@dataclass
class _Watch:
    """The clock of a search, and what it told."""

    request: Request
    begun: float
    total: int
    done: int = 0
    late: bool = False

    def going_on(self) -> bool:
        limit = self.request.time_limit
        if limit is not None and time.perf_counter() - self.begun > limit:
            self.late = True
        if self.request.stop is not None and self.request.stop():
            self.late = True
        return not self.late

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
    least = _floors(spaces, request, rules)
    guess = _guess(spaces, request, least, watch, depths)
    work = _Search(spaces, request, rules, watch, least, guess.bound if guess else None)
    for depth in depths:
        work.deepen(depth)
        work.join()
        if watch.late:
            break
    candidates = work.candidates()
    if watch.late and not candidates and guess is not None:
        candidates = guess.candidates()
    unsearched = (f"mappings of {depth} and more fused loops, in part",) if watch.late else ()
    return Found(
        request.objectives,
        candidates,
        work.records(),
        not watch.late,
        unsearched,
        request.eps,
        time.perf_counter() - watch.begun,
    )


def _floors(spaces: Sequence[EinsumSpace], request: Request, rules: Rules) -> list[tuple[float, float]]:
    """The least energy and latency of every Einsum, whatever the others do."""
    alone = replace(rules.interest, memories=(), buffers=(), relaxed=True)
    found: dict[object, tuple[float, float]] = {}
    for s in spaces:
        key = (s.shape, s.name if _by_name(request.limits) else "")
        if key not in found:
            found[key] = Explorer(s, request.limits, alone, Passing()).least()
    names = [s.name if _by_name(request.limits) else "" for s in spaces]
    return [found[s.shape, name] for s, name in zip(spaces, names, strict=True)]


def _guess(
    spaces: Sequence[EinsumSpace],
    request: Request,
    least: list[tuple[float, float]],
    watch: _Watch,
    depths: range,
) -> _Search | None:
    """Good whole mappings found among few tile sizes; what they beat need not be looked at, and if there is
    time for no others they are the answer."""
    if not any(cuttable(s, request.limits) for s in spaces) or len(spaces) < 2:
        return None
    spaces = [_narrow(s) for s in spaces]
    few = replace(request, limits=replace(request.limits, sizes="few"), progress=None)
    silent = _Watch(few, watch.begun, 1)
    rules = _rules(spaces, few)
    rules = replace(rules, interest=replace(rules.interest, rough=ROUGH))
    work = _Search(spaces, few, rules, silent, least, None)
    for depth in depths[:2]:
        work.deepen(depth)
        work.join()
    return work


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

    def deepen(self, depth: int) -> None:
        """Add the pmappings of so many fused loops."""
        for i, space in enumerate(self.spaces):
            if self.first[i] != i:
                self.found[i] = self.found[self.first[i]]
            else:
                with self._counted(space.name) as tally:
                    bound = self._rest({*range(len(self.spaces))} - {i})
                    old = (
                        self.found[i]
                        if bound is None
                        else _bounded(self.found[i], bound, self.rules.interest)
                    )
                    more = self.explorers[i].pmappings(depth, tally, bound, self.watch.going_on)
                    self.found[i] = (*old, *more)
            self.watch.tell(space.name, self._best())

    def join(self) -> None:
        """Join what there is; the result bounds what follows. The first join is always finished, and one
        that is cut short leaves the result of the one before."""
        going_on = self.watch.going_on if self.whole else lambda: True
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
        tally, seconds = self.tallies.get(of, (Tally(), 0.0))
        begun = time.perf_counter()
        yield tally
        self.tallies[of] = tally, seconds + time.perf_counter() - begun

    def records(self) -> tuple[StageRecord, ...]:
        return tuple(
            StageRecord(of, t.templates, t.points, t.kept, t.too_large, seconds)
            for of, (t, seconds) in self.tallies.items()
        )

    def candidates(self) -> tuple[Candidate, ...]:
        assert self.whole is not None
        return _candidates(*self.whole, self.spaces, self.rules, self.request)


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


def _candidates(
    joined: Sequence[Stage],
    found: Sequence[tuple[Pmappings, ...]],
    spaces: Sequence[EinsumSpace],
    rules: Rules,
    request: Request,
) -> tuple[Candidate, ...]:
    result = []
    for states in joined[-1]:
        for k in range(len(states)):
            chosen = _traced(joined, found, spaces, states.structure.depth, k)
            energy, latency = float(states.energy[k]), float(states.latency[k])
            peaks = [float(p) for p in states.peak[0, :, k]]
            buffers = tuple((spaces[0].memories[m].name, p) for m, p in zip(rules.which, peaks, strict=True))
            values = tuple(
                _value(name, energy, latency, [peaks[b] for b in rules.buffers], request.objectives)
                for name in request.objectives
            )
            result.append(Candidate(values, energy, latency, buffers, looptree(chosen)))
    return tuple(sorted(result, key=lambda c: c.values))


def _value(
    name: str, energy: float, latency: float, buffers: list[float], objectives: tuple[str, ...]
) -> float:
    if name.startswith("buffer"):
        return buffers[[o for o in objectives if o.startswith("buffer")].index(name)]
    return {"energy": energy, "latency": latency, "energy_delay": energy * latency}[name]


def _traced(
    joined: Sequence[Stage],
    found: Sequence[tuple[Pmappings, ...]],
    spaces: Sequence[EinsumSpace],
    depth: int,
    position: int,
) -> list[Chosen]:
    """The pmappings of a state of the last stage, first Einsum first."""
    chosen: list[Chosen] = []
    group = 0
    for i in range(len(spaces), 0, -1):
        states = joined[i][group]
        number, at = (int(x) for x in states.origin[:, position])
        source = states.sources[number]
        points = found[i - 1][source.shape]
        template, tiles, spread = points.tiles(int(source.point[at]))
        chosen.append(Chosen(spaces[i - 1], template, tiles, spread, states.structure.depth))
        group, position = source.group, int(source.state[at])
    return chosen[::-1]
