"""`explore`: the search, every mapping that it finds evaluated, and the front of them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from time import monotonic, perf_counter
from types import FrameType

import numpy as np

from polymodel.architecture.hierarchy import Hierarchy
from polymodel.governor import spare
from polymodel.loading import Spec
from polymodel.mapper.checkpoints import Finished, fingerprint, store_of
from polymodel.mapper.confirm import LONGEST, all_confirmed, searched
from polymodel.mapper.front import Front
from polymodel.mapper.point import Point
from polymodel.mapper.records import Progress, Quality, Request, SearchResult
from polymodel.mapper.request import Constraints, LimitsGiven, asked_for
from polymodel.mapper.search import search
from polymodel.objectives import on_sparse_data
from polymodel.pareto import undominated
from polymodel.processes import terminable
from polymodel.spec.faults import not_a_spec
from polymodel.stores.folders import folder_of, marked, parts_of

AGAIN = 0.5  # seconds
BRIEFLY = 0.5  # seconds of evaluation where that is but a part of them
BEYOND = 1.5  # seconds beyond a time limit for the evaluation of one mapping at least
SHARE = 0.1  # of a time limit, for the evaluation
CONFIRMED = 200  # points evaluated before the front is returned; those beyond it when they are looked at


def explore(
    spec: Spec,
    *,
    objectives: Sequence[str] | None = None,
    limits: LimitsGiven | None = None,
    constraints: Constraints | None = None,
    eps: float | None = None,
    time_limit: float | None = None,
    workers: int = 1,
    progress: Callable[[Progress], None] | None = None,
    store: str | Path | None = None,
    resume: bool = True,
) -> Front:
    """The Pareto front of whole mappings of a workload on an architecture; the spec needs no mapping.

    `objectives`: energy (J), latency (s), edp (their product, J s), area (m^2), utilisation (the most is the
    best), reads:X, writes:X and accesses:X (bits) of a memory or toll X, working_set:MEMORY (peak bits of a
    memory below the backing storage; without a name the outermost bounded one); weighted sums of them
    (`2*energy + latency`, or a table of weights); on sparse data sparse_energy, sparse_latency, sparse_edp
    (docs/sparse/exploration.md). `limits`: figures that mappings keep, such as `latency <= 2 ms`, or a table
    `{"latency": 2e-3}`. `constraints`: a dictionary with the keys of the
    spec's `explore:` section, or `pm.Limits`. `eps`: a mapping may be left out if another one is at most a
    factor of 1 + eps above it in every objective; 0 is exact. `time_limit`: seconds by the clock on the wall,
    whatever `workers` is, after which the best so far is returned with what was not searched. `workers`:
    processes that evaluate what the search finds. `progress` is called with a `Progress` now and then.
    `store`: a folder for the steps that are done; the same exploration goes on there, however it was ended,
    unless `resume` is False. What is left out comes from the section, or is energy and latency, no limit,
    eps 0.

    Each mapping is evaluated before it is returned (those beyond 200, or beyond ten seconds of it, when their
    report is looked at); were its figures not those of the search, that is a bug, and InternalError names the
    mapping. Ctrl-C returns what there is. Raises SpecError for wrong input, Refused for what is not covered.
    """
    if not isinstance(spec, Spec):
        raise not_a_spec("explore", spec)
    asked = asked_for(
        spec, objectives, constraints, eps, time_limit, workers, progress, store, resume, limits
    )
    begun, limit = perf_counter(), spare(asked.request.time_limit)
    end = monotonic() + limit
    asked = replace(asked, request=_in_time(asked.request, limit))
    with terminable(), _interruptible() as stopped, _stored(spec, asked.request, store, resume) as finished:
        told = _Told(progress, stopped)
        request = replace(asked.request, progress=told if progress else None, stop=told.asked)
        request = replace(
            request, finished=finished, time_limit=None if limit == inf else (1 - SHARE) * limit
        )
        if any(map(on_sparse_data, request.objectives)):
            result, points, sparse = _on_sparse_data(spec, asked.hierarchy, request, told, stopped, end)
        else:
            result = search(spec.workload, asked.hierarchy, request)
            points = _evaluated(spec, result, request.objectives, workers, told, stopped, end)
            sparse = None
    interrupted = stopped.flag and not result.complete
    asking = replace(asked.request, progress=None)
    return Front(spec, asking, result, points, perf_counter() - begun, interrupted, sparse)


def _in_time(request: Request, seconds: float) -> Request:
    """The request with a limit of time where those around it set one and it has none: that is told."""
    return replace(request, time_limit=seconds) if request.time_limit is None and seconds < inf else request


@contextmanager
def _stored(
    spec: Spec, request: Request, store: str | Path | None, resume: bool
) -> Iterator[Finished | None]:
    """The steps that earlier runs of the same exploration have done. Workers and time limits may differ."""
    about = [*parts_of(spec), request.objectives, request.eps, fingerprint(request.limits)]
    about += map(str, request.at_most)
    place = None if store is None else folder_of(store)
    with store_of(place, marked(about), resume) as finished:
        yield finished


def _on_sparse_data(
    spec: Spec, hierarchy: Hierarchy, request: Request, told: _Told, stopped: _Stop, end: float
) -> tuple[SearchResult, tuple[Point, ...], Quality | None]:
    """The search's answer by lower bounds, the points that none beats on sparse data, how good they are."""
    # The sparse rooms take long to load, and searches on dense data do without.
    from polymodel.mapper import sparse_objectives
    from polymodel.sparse.actions.inputs import tensor_data

    data = tensor_data(spec.workload, folder=spec.data_folder)
    bounded = sparse_objectives.bounded(spec, hierarchy, request, data)
    result = search(spec.workload, hierarchy, bounded)
    if not result.candidates:
        return replace(result, objectives=request.objectives), (), None
    stopped.flag, earlier = False, stopped.flag  # a second Ctrl-C ends the evaluation as well

    def done(number: int, total: int) -> bool:
        told.tell(Progress(number, total, "evaluate"))
        return not stopped.flag

    points = sparse_objectives.sparse_points(
        spec, result, request.objectives, data, request.workers, done, end
    )
    more = []
    if result.complete and points:
        more = sparse_objectives.more_points(
            spec, result, points, data, bounded, lambda asked: search(spec.workload, hierarchy, asked), end
        )
        points += more
    stopped.flag = stopped.flag or earlier
    final = tuple(replace(p, number=i) for i, p in enumerate(_front(points)))
    return (
        replace(result, objectives=request.objectives),
        final,
        sparse_objectives.quality(result, points, len(more), final),
    )


def _evaluated(
    spec: Spec,
    found: SearchResult,
    objectives: tuple[str, ...],
    workers: int,
    told: _Told,
    stopped: _Stop,
    end: float,
) -> tuple[Point, ...]:
    """The points that none beats, with what `evaluate` says of them."""
    before = [Point(0, spec, c, objectives, searched(c)) for c in found.candidates]
    kept = _front(before)
    some = [p.candidate for p in kept[:CONFIRMED]]
    stopped.flag, earlier = False, stopped.flag  # a second Ctrl-C ends the evaluation as well

    def done(number: int) -> bool:
        told.tell(Progress(number, len(some), "evaluate", min((p.scores[0] for p in kept), default=None)))
        return not stopped.flag

    longest = LONGEST if len(kept) == len(some) else BRIEFLY  # some wait for being looked at anyhow
    figures = all_confirmed(spec, some, workers, done, longest, end=end)
    if some and not figures[0].confirmed and monotonic() > end:  # one at least, a little beyond the limit
        figures[:1] = all_confirmed(spec, some[:1], 1, done, end=monotonic() + BEYOND)
    stopped.flag = stopped.flag or earlier
    figures += [p.found for p in kept[CONFIRMED:]]
    # Peaks may be lower than the search could know, so that a point beats one that it did not beat before.
    final = _front([replace(p, found=f) for p, f in zip(kept, figures, strict=True)])
    return tuple(replace(p, number=i) for i, p in enumerate(final))


def _front(points: Sequence[Point]) -> list[Point]:
    """Points that none beats in the objectives; of equal ones the first."""
    if not points:
        return []
    scores = np.array([p.scores for p in points]).T
    return sorted((points[int(i)] for i in undominated(scores)), key=lambda p: p.scores)


@dataclass
class _Stop:
    """Whether Ctrl-C was pressed."""

    flag: bool = False


@dataclass
class _Told:
    """The caller's progress function; a KeyboardInterrupt in it is a Ctrl-C. A step may take long: meanwhile
    the last progress is told again, so that a clock beside it moves."""

    progress: Callable[[Progress], None] | None
    stopped: _Stop
    last: Progress | None = None
    when: float = 0.0

    def asked(self) -> bool:
        """Whether to stop, as the search asks now and then."""
        if self.last is not None and self.progress is not None and perf_counter() - self.when > AGAIN:
            self(self.last)
        return self.stopped.flag

    def tell(self, progress: Progress) -> None:
        if self.progress is not None:
            self(progress)

    def __call__(self, progress: Progress) -> None:
        assert self.progress is not None
        self.last, self.when = progress, perf_counter()
        try:
            self.progress(progress)
        except KeyboardInterrupt:
            self.stopped.flag = True


@contextmanager
def _interruptible() -> Iterator[_Stop]:
    """The first Ctrl-C is noted, for the search to end in good order; the next interrupts as ever."""
    stop = _Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # signals go to the main thread alone
        return
    before = signal.getsignal(signal.SIGINT)

    def note(number: int, frame: FrameType | None) -> None:
        if stop.flag:
            raise KeyboardInterrupt
        stop.flag = True

    signal.signal(signal.SIGINT, note)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before or signal.default_int_handler)
