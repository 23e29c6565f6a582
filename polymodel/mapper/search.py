"""The search: pmappings of every Einsum, joined along the cascade into the Pareto front of whole mappings.

The mapspace: every placement of tensors in memories that `keep` and `may_keep` allow, every order of storage,
every tile size, intermediates exchanged in the backing storage or inside it below any fused loops that index
them, Einsums in the order of the workload. The space of a fused loop nest is counted as if everything stored
above its loop were resident as long as it runs (docs/develop/rules.md, Fusion); with two iterations and three
Einsums the exact peak can be lower. First, good whole mappings are found among few tile sizes (a guess); they
bound the work of `iterative_deepening`.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path
from time import monotonic, perf_counter
from types import FrameType

import numpy as np
from threadpoolctl import threadpool_limits

from polymodel.architecture.hierarchy import Hierarchy
from polymodel.errors import Refused
from polymodel.governor import crew, spare, terminable
from polymodel.loading import Spec
from polymodel.mapper import first_mappings
from polymodel.mapper.aims import Aims, nothing_known
from polymodel.mapper.budget import EVALUATION, Finished, Watch, fingerprint, store_of, time_of_search
from polymodel.mapper.confirm import LONGEST, Point, all_confirmed, search_figures
from polymodel.mapper.einsum_rules import cuttable
from polymodel.mapper.front import Front
from polymodel.mapper.full_mappings import FullMappings, aims_in, candidates_of, rules_of
from polymodel.mapper.iterative_deepening import Deepening
from polymodel.mapper.lower_bounds import compulsory_peaks, compulsory_sums
from polymodel.mapper.records import CLOSE, Candidate, Progress, Quality, Request, SearchResult, gap_of
from polymodel.mapper.records import SearchStage as StageRecord
from polymodel.mapper.regions import cut_again
from polymodel.mapper.request import CheckedRequest, Constraints, LimitsGiven, read_search_request
from polymodel.mapper.request import with_memory_limits as limited
from polymodel.mapper.space import EinsumSpace, einsum_spaces
from polymodel.mapper.templates import deepest
from polymodel.objectives import on_sparse_data, score
from polymodel.pareto import undominated
from polymodel.spec.faults import not_a_spec
from polymodel.stores.store import folder_of, marked, parts_of
from polymodel.workload.einsum import Cascade

ROUGH = 0.03
FIRST = 1  # fused loops that are searched before deeper ones


def search(cascade: Cascade, hierarchy: Hierarchy, request: Request) -> SearchResult:
    """Return the Pareto front of whole mappings, or why there is none. Raises Refused for workloads and
    architectures that it does not support."""
    for key in (name for name in ("halos", "moves") if getattr(request.limits, name)):
        what = f"mappings that `{key}` adds are looked at in explorations of one machine on dense data"
        raise Refused(what, f"leave `{key}` out", code="unsupported-constraint")
    result = searched(cascade, hierarchy, request)
    if result.too_many is None and (result.candidates or not result.complete):
        return result
    from polymodel.mapper.diagnosis import diagnosed, limits_diagnosed, with_divisors

    if result.too_many is not None:
        return with_divisors(cascade, hierarchy, request, result, searched)
    if any(x.held for x in request.shares or ()):  # bounds on tile sizes say nothing about other capacities
        return result
    if request.at_most:
        diagnosis = limits_diagnosed(cascade, hierarchy, request, searched)
        if diagnosis is not None:
            return replace(result, diagnosis=diagnosis)
        request = replace(request, at_most=())
        result = searched(cascade, hierarchy, request)
    spaces = einsum_spaces(cascade, hierarchy, request.limits)
    begun = time.perf_counter() - result.seconds
    stages = _where_none_is_left(spaces, request, begun)
    result = replace(result, stages=stages, seconds=time.perf_counter() - begun)
    return replace(result, diagnosis=diagnosed(cascade, hierarchy, request, result, searched))


def searched(cascade: Cascade, hierarchy: Hierarchy, request: Request) -> SearchResult:
    """The Pareto front of whole mappings."""
    # As many cores as workers: our own threads, without those of numpy's matrix products beside them.
    with threadpool_limits(1, "blas"), crew(request.workers) as workers:
        return _search(cascade, hierarchy, replace(request, crew=workers))


def _search(cascade: Cascade, hierarchy: Hierarchy, request: Request) -> SearchResult:
    hierarchy, request = limited(hierarchy, request)
    spaces = einsum_spaces(cascade, hierarchy, request.limits)
    if request.shares is not None:
        spaces = tuple(replace(s, shares=x) for s, x in zip(spaces, request.shares, strict=True))
    aims = aims_in(spaces, request)
    spaces = tuple(replace(s, more=tuple(a.of(s.name) for a in aims.more)) for s in spaces)
    depths = range(deepest(spaces, request.limits) + 1)
    outside = _exchanged_outside(spaces, request)
    watch = Watch(request, time.perf_counter(), 2 * len(spaces) * (2 if outside else 1))
    watch.least = nothing_known(aims, 2 if outside else 1, compulsory_peaks(spaces, aims.peaks))
    _least_at_once(spaces, aims, watch)
    worthwhile, soon = (f(spaces, request) for f in (first_mappings.worthwhile, first_mappings.soon_done))
    apart = worthwhile and _least_energy_apart(spaces, request)
    bounds = _bounds_of_einsums(spaces, len(watch.least.parts))
    first = None
    if worthwhile:
        first = first_mappings.deepened(spaces, request, watch.silent(), soon or apart, bounds)
    known = [w for w in first.wholes if len(w)] if first is not None else []
    if first is not None and not soon:
        bounds(first, together=True)
    late = not watch.has_time()
    if first is not None and (late or (request.eps and _proven(known, spaces, request, watch))):
        return _answer(first, spaces, request, watch)
    least = _of_least_energy(spaces, request, watch, known) if apart else []
    known += least
    if first is not None and least and _proven(least, spaces, request, watch):
        first.wholes += least
        return _answer(first, spaces, request, watch)
    if first is not None and apart and not soon and watch.has_time():
        first = first_mappings.deepened(spaces, request, watch.silent()) or first
        known += [w for w in first.wholes if len(w)]
    # One nearly optimal mapping prunes as much as the mappings found among few tile sizes.
    good = bool(known) and len(request.objectives) == 1
    guess = None if good else _guess(spaces, request, watch, depths)
    guessed = None if guess is None else _last(guess)
    known += [] if guessed is None else [guessed]
    work = _bounded_by(outside or spaces, request, watch, known)
    inside: Deepening | None = None
    if outside:
        rules = rules_of(spaces, request)
        rules = replace(rules, lives=replace(rules.lives, inside=True))
        inside = Deepening(spaces, request, watch, rules, work, part=1)
        inside.floor(depths[-1])
    _deepened(work)
    if inside is not None and not watch.late:
        inside.go_on_from(work)
        work = inside
        work.deepen_inside(depths[-1])
    if watch.late:
        stopped = request.stop is not None and request.stop()
        if not any(len(w) for w in work.wholes) and not stopped:
            rescued = _rescued(spaces, request, watch, guess)
            work.wholes += [rescued] if rescued is not None else []
    return _answer(work, spaces, request, watch)


def _bounds_of_einsums(spaces: Sequence[EinsumSpace], parts: int) -> Callable[..., None]:
    """A function that bounds several Einsums one by one, going on at each call; nothing for a single one."""
    if len(spaces) < 2:
        return lambda work, together=False: None
    from polymodel.mapper.einsum_bounds import bound_einsums

    return partial(bound_einsums, parts=parts, done={})


def _least_energy_apart(spaces: Sequence[EinsumSpace], request: Request) -> bool:
    """Return whether the least energy is searched first: if energy and latency of an Einsum with many points
    are objectives, since deep hierarchies can be cut again for energy alone."""
    aims, limits = aims_in(spaces, request), request.limits
    several = len(spaces) > 1 or aims.more or request.at_most or request.shares
    if several or not (aims.energy and aims.latency):
        return False
    of_energy = rules_of(spaces, replace(request, objectives=("energy",)))
    deep = all(cuttable(s, limits) and cut_again(s, limits, 1, of_energy.interest) for s in spaces)
    return deep and not rules_of(spaces, request).buffers


def _of_least_energy(
    spaces: Sequence[EinsumSpace], request: Request, watch: Watch, known: Sequence[FullMappings]
) -> list[FullMappings]:
    """Return mappings of least energy, which bound all others; the search takes at most half of the time."""
    alone = replace(request, objectives=("energy",), progress=None)
    rules, of_energy = rules_of(spaces, request), rules_of(spaces, alone)
    quiet = watch.silent()
    quiet.least = nothing_known(aims_in(spaces, alone), 1)
    quiet.end = None if watch.end is None else time.perf_counter() + watch.left() / 2
    soon = first_mappings.soon_done(spaces, alone)
    first = first_mappings.deepened(spaces, alone, quiet, briefly=soon)
    found = [replace(w, rules=of_energy) for w in known] + (first.wholes if first is not None else [])
    work = _bounded_by(spaces, alone, quiet, [w for w in found if len(w)])
    _deepened(work)
    if quiet.late:
        watch.late, watch.memory = watch.late or quiet.memory or not watch.has_time(), quiet.memory
    elif any(len(w) for w in work.wholes):
        least = min(float(w.figures()[0].min()) for w in work.wholes if len(w)) / (1 + request.eps)
        for part in range(len(watch.least.parts)):
            watch.least.raised(part, np.array([least * (1 - CLOSE), 0.0]))
    return [replace(w, rules=rules) for w in work.wholes if len(w)]


def _proven(
    wholes: Sequence[FullMappings], spaces: Sequence[EinsumSpace], request: Request, watch: Watch
) -> bool:
    """Whether one of these mappings is within `eps` of the lower bound of every objective, up to rounding."""
    if request.shares is not None or watch.late:
        return False
    least = [watch.least.of(o) for o in request.objectives]
    return any(
        all(
            gap_of(value, bound) <= request.eps + 2 * CLOSE
            for value, bound in zip(_scores(c, request), least, strict=True)
        )
        for c in candidates_of(wholes, spaces, request)
    )


def _scores(candidate: Candidate, request: Request) -> list[float]:
    """The minimised values of a candidate."""
    each = zip(request.objectives, candidate.values, strict=True)
    return [float(score(o, value)) for o, value in each]


def _answer(work: Deepening, spaces: Sequence[EinsumSpace], request: Request, watch: Watch) -> SearchResult:
    """The result of a search."""
    candidates = candidates_of(work.wholes, spaces, request)
    return SearchResult(
        request.objectives,
        candidates,
        work.tallies.records(),
        not watch.late,
        _unsearched(work) if watch.late else (),
        request.eps,
        time.perf_counter() - watch.begun,
        memory=watch.memory,
        too_many=watch.too_many,
        bounds=_bounds(candidates, request, watch),
    )


def _least_at_once(spaces: Sequence[EinsumSpace], aims: Aims, watch: Watch) -> None:
    """Raise the lower bounds to those that need no search."""
    each = compulsory_sums(spaces, aims.added)
    for number, part in enumerate(watch.least.parts):
        part.einsums = [x.copy() for x in each]
        watch.least.raised(number, np.array(each).sum(axis=0))


def _bounds(candidates: Sequence[Candidate], request: Request, watch: Watch) -> tuple[float, ...]:
    """Bounds over all mappings of the space: lower ones, or upper ones of maximised objectives."""
    least = [watch.least.of(o) for o in request.objectives]
    if not watch.late and candidates:
        scores = [_scores(c, request) for c in candidates]
        best = (min(s[k] for s in scores) / (1 + request.eps) for k in range(len(least)))
        least = list(map(max, least, best))
    return tuple(float(score(o, x)) for o, x in zip(request.objectives, least, strict=True))


def _bounded_by(
    spaces: Sequence[EinsumSpace], request: Request, watch: Watch, wholes: list[FullMappings]
) -> Deepening:
    """Return a search that these whole mappings and lower bounds of every Einsum prune."""
    work = Deepening(spaces, request, watch, rules_of(spaces, request))
    for whole in wholes:
        work.wholes.append(whole)
        work.learn(whole)
    if len(spaces) > 1 or not wholes:  # for one Einsum that would be the search itself, without bounds
        work.floor(deepest(spaces, request.limits))
    return work


def _deepened(work: Deepening) -> None:
    depth = deepest(work.spaces, work.request.limits)
    for d in (FIRST, depth) if depth > FIRST + 1 else (depth,):
        work.deepen(d)


def _exchanged_outside(spaces: Sequence[EinsumSpace], request: Request) -> list[EinsumSpace]:
    """Return, if hierarchies are cut, the part of the space without exchanges further inside than the first
    memory, in which the occupancy of other Einsums is irrelevant.

    It is searched first, since then there may be nothing better in the rest. Empty if it is the whole space.
    """
    if len(spaces) < 2 or not all(s.copy or cuttable(s, request.limits) for s in spaces):
        return []
    if not all(1 in s.exchange for s in spaces) or all(len(s.exchange) == 1 for s in spaces):
        return []
    return [replace(s, exchange=frozenset({1})) for s in spaces]


def _where_none_is_left(
    spaces: Sequence[EinsumSpace], request: Request, begun: float
) -> tuple[StageRecord, ...]:
    """Return work counts of every Einsum and join if only space counts. `begun`: when the search began."""
    watch = Watch(replace(request, progress=None), begun, 1)
    rules = rules_of(spaces, request)
    rules = replace(
        rules,
        buffers=(),
        aims=Aims((), (), False, False, (), ()),
        interest=replace(rules.interest, energy=False, latency=False, buffers=()),
    )
    work = Deepening(spaces, request, watch, rules)
    for depth in range(deepest(spaces, request.limits) + 1):
        if not watch.late:
            work.plain(depth)
    return work.tallies.records()


def _unsearched(work: Deepening) -> tuple[str, ...]:
    """Return what an interrupted search did not cover."""
    missing = [s.name for s, done in zip(work.spaces, work.through, strict=True) if not done]
    what = f"mappings of {', '.join(missing)}" if missing else "combinations of the mappings of the Einsums"
    result = [f"a part of the {what}"]
    if any(f.least is None for f in work.floors):
        result.append("the least energy and latency of each Einsum")
    return tuple(result)


def _guess(spaces: Sequence[EinsumSpace], request: Request, watch: Watch, depths: range) -> Deepening | None:
    """Find good whole mappings among few tile sizes: they prune the search, and are the answer if time runs
    out. None if a full search is as fast."""
    if len(spaces) < 2 or not (depths[-1] > FIRST + 1 or any(cuttable(s, request.limits) for s in spaces)):
        return None
    return _few_sizes([_narrow(s) for s in spaces], request, watch.silent(), depths[:2])


def _rescued(
    spaces: Sequence[EinsumSpace], request: Request, watch: Watch, guess: Deepening | None
) -> FullMappings | None:
    """Return one or two whole mappings if time runs out before there is any: a first mapping, which takes
    little time, or one that the guess has found by then."""
    if first_mappings.possible(spaces):
        first = first_mappings.deepened(spaces, request, watch.silent(), briefly=True)
        if first is not None:
            return _last(first)
    if guess is not None:
        guess.rescue(watch.grace())
        if (result := _last(guess)) is not None:
            return result
    for some in ([_narrow(s) for s in spaces], list(spaces)):
        result = _last(_few_sizes(some, request, watch.grace(), range(1)))
        if result is not None:
            return result
    return None


def _few_sizes(spaces: list[EinsumSpace], request: Request, watch: Watch, depths: Iterable[int]) -> Deepening:
    few = replace(request, limits=replace(request.limits, sizes="few"))
    rules = rules_of(spaces, few)
    rules = replace(rules, interest=replace(rules.interest, eps=ROUGH, rough=ROUGH))
    work = Deepening(spaces, few, watch, rules)
    for depth in depths:
        work.plain(depth)
        if watch.late:
            break
    return work


def _last(work: Deepening) -> FullMappings | None:
    """The whole mappings that were found last, if any."""
    return next((w for w in reversed(work.wholes) if len(w)), None)


def _narrow(s: EinsumSpace) -> EinsumSpace:
    """Return the space in which the first memory inside the backing storage holds all it may, with all
    exchanges."""
    kept = s.may[1] - (frozenset() if s.copy else s.keep[0] - s.may[1])
    return replace(s, keep=(s.keep[0], kept, *s.keep[2:]), exchange=frozenset({1}))


# `explore`: the search, the evaluation of every mapping that it finds, and their front.

AGAIN = 0.5  # seconds
BRIEFLY = 0.5  # seconds of evaluation where only part of the mappings are evaluated
BEYOND = 1.5  # seconds beyond a time limit for the evaluation of at least one mapping
CONFIRMED = 200  # points evaluated before the front is returned; others are evaluated on access


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
    `store`: a folder for the steps that are done; the same exploration continues there, however it was ended,
    unless `resume` is False. What is left out comes from the section, or is energy and latency, no limit,
    eps 0.

    Each mapping is evaluated before it is returned (those beyond 200, or beyond ten seconds of it, when their
    report is read); InternalError names one whose figures differ from those of the search, which is a bug.
    Ctrl-C returns what there is. Raises SpecError for wrong input, Refused for what is not covered.
    """
    if not isinstance(spec, Spec):
        raise not_a_spec("explore", spec)
    asked = read_search_request(
        spec, objectives, constraints, eps, time_limit, workers, progress, store, resume, limits
    )
    return explored(spec, asked, store, resume)


def explored(
    spec: Spec, asked: CheckedRequest, store: str | Path | None, resume: bool, evaluate: bool = True
) -> Front:
    """The front of a checked request. Without `evaluate`, points have the figures of the search, for
    callers that evaluate those that they keep."""
    begun, limit = perf_counter(), spare(asked.request.time_limit)
    end = monotonic() + limit
    asked = replace(asked, request=_in_time(asked.request, limit))
    with terminable(), _interruptible() as stopped, _stored(spec, asked.request, store, resume) as finished:
        reporter = _Reporter(asked.request.progress, stopped)
        request = replace(
            asked.request, progress=reporter if reporter.progress else None, stop=reporter.should_stop
        )
        searching = time_of_search(limit) if evaluate or limit == inf else limit
        request = replace(request, finished=finished, time_limit=searching)
        if any(map(on_sparse_data, request.objectives)):
            result, points, sparse = _on_sparse_data(spec, asked, request, reporter, stopped, end)
        else:
            result = _besides(spec.workload, asked.hierarchy, request, stopped, end)
            points = tuple(
                Point(0, spec, c, request.objectives, search_figures(c)) for c in result.candidates
            )
            told = asked.request.time_limit or limit  # of a command its start counts, too
            beyond = BEYOND if told < BEYOND else min(EVALUATION / 2 * told, BEYOND)
            several = (points, request.workers, reporter, stopped, end, beyond)
            points = _evaluated(*several) if evaluate else _front(points)
            sparse = None
    interrupted = stopped.flag and not result.complete
    asking = replace(asked.request, progress=None)
    return Front(spec, asking, result, points, perf_counter() - begun, interrupted, sparse, asked.section)


def _besides(
    cascade: Cascade, hierarchy: Hierarchy, request: Request, stopped: _Stop, end: float
) -> SearchResult:
    """Return the result of the search, with mappings outside the space if they are requested."""
    if not request.limits.halos and not request.limits.moves:
        return search(cascade, hierarchy, request)
    from polymodel.mapper.moves import with_others

    return with_others(search, cascade, hierarchy, request, lambda: not stopped.flag, end)


def _in_time(request: Request, seconds: float) -> Request:
    """The request with the remaining time as its limit, if it has no limit and the caller set one."""
    return replace(request, time_limit=seconds) if request.time_limit is None and seconds < inf else request


@contextmanager
def _stored(
    spec: Spec, request: Request, store: str | Path | None, resume: bool
) -> Iterator[Finished | None]:
    """The store of an exploration's finished steps; workers and time limits may differ between runs."""
    about = [*parts_of(spec), request.objectives, request.eps, fingerprint(request.limits)]
    about += map(str, request.at_most)
    place = None if store is None else folder_of(store)
    with store_of(place, marked(about), resume) as finished:
        yield finished


def _on_sparse_data(
    spec: Spec, asked: CheckedRequest, request: Request, reporter: _Reporter, stopped: _Stop, end: float
) -> tuple[SearchResult, tuple[Point, ...], Quality | None]:
    """The result by lower bounds, the points on the front of sparse data, and their quality."""
    # searches on dense data do without the sparse modules, which take long to load
    from polymodel.mapper import sparse_choices, sparse_local, sparse_objectives, sparse_progress
    from polymodel.sparse.actions.inputs import tensor_data

    data, found, machines = tensor_data(spec.workload, folder=spec.data_folder), [], []
    every = asked.choices or (sparse_choices.SparseArchitecture(spec, ""),)
    steps = sparse_progress.SparseProgress(reporter.send, lambda: stopped.flag, len(every), end)
    request = replace(request, progress=steps if reporter.progress else None, stop=steps.stop)
    for k, one in enumerate(every):
        mine, until = sparse_choices.shared_out(request, len(every) - k, end)
        steps.search(k, until)
        machine = one.on(asked.hierarchy) if asked.choices else asked.hierarchy
        bounded = sparse_objectives.bounded(one.spec, machine, mine, data)
        again = partial(search, spec.workload, machine)
        machines.append(sparse_local.explored(one, machine, bounded))
        result = again(bounded)
        stopped.flag, earlier = False, stopped.flag  # a second Ctrl-C ends the evaluation as well
        more = bounded, data, again, steps.evaluated, until
        found.append(sparse_choices.evaluated(one, result, mine, *more))
        stopped.flag = stopped.flag or earlier
        if stopped.flag or monotonic() > end:
            break
    whole = sparse_choices.together(found, len(every))
    whole = sparse_local.improved(whole, machines, request, data, end, steps.local_search())
    looked = [*whole.looked, *whole.besides]
    final = sparse_choices.used_choices(_front(whole.admitted(request)), every)
    rated = partial(sparse_objectives.quality, whole.result, looked, len(whole.besides))
    return whole.result, final, rated(final, whole.proven) if final else None


def _evaluated(
    points: Sequence[Point], workers: int, reporter: _Reporter, stopped: _Stop, end: float, beyond: float
) -> tuple[Point, ...]:
    """The undominated points with the figures of `evaluate`. `beyond`: seconds after the end."""
    if not points:
        return ()
    kept = _front(points)
    spec = kept[0].base
    some = [p.candidate for p in kept[:CONFIRMED]]
    best = min(p.scores[0] for p in kept)
    stopped.flag, earlier = False, stopped.flag  # a second Ctrl-C ends the evaluation as well

    def done(number: int) -> bool:
        reporter.send(Progress(number, len(some), "evaluate", best))
        return not stopped.flag

    longest = LONGEST if len(kept) == len(some) else BRIEFLY  # some are evaluated on access anyway
    # at least one, slightly beyond the limit
    figures = all_confirmed(spec, some, workers, done, longest, end=end if len(some) > 1 else end + beyond)
    if len(some) > 1 and not figures[0].confirmed and monotonic() > end:
        figures[:1] = all_confirmed(spec, some[:1], 1, done, end=monotonic() + beyond)
    stopped.flag = stopped.flag or earlier
    figures += [p.found for p in kept[CONFIRMED:]]
    # Peaks may be lower than the search knew, so that a point dominates one that it did not dominate
    # before.
    return _front([replace(p, found=f) for p, f in zip(kept, figures, strict=True)])


def _front(points: Sequence[Point]) -> tuple[Point, ...]:
    """The undominated points, in order and numbered; of equal ones the first."""
    if not points:
        return ()
    scores = np.array([p.scores for p in points]).T
    best = sorted((points[int(i)] for i in undominated(scores)), key=lambda p: p.scores)
    return tuple(replace(p, number=i) for i, p in enumerate(best))


@dataclass
class _Stop:
    """Whether Ctrl-C was pressed."""

    flag: bool = False


@dataclass
class _Reporter:
    """The caller's progress function; a KeyboardInterrupt in it counts as Ctrl-C. During long steps the
    last progress is reported again, so that a displayed clock keeps moving."""

    progress: Callable[[Progress], None] | None
    stopped: _Stop
    last: Progress | None = None
    when: float = 0.0

    def should_stop(self) -> bool:
        """Whether to stop; the search calls it regularly."""
        if self.last is not None and self.progress is not None and perf_counter() - self.when > AGAIN:
            self(self.last)
        return self.stopped.flag

    def send(self, progress: Progress) -> None:
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
    """The first Ctrl-C is noted, for the search to end in an orderly way; the next one interrupts as
    usual."""
    stop = _Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop  # only the main thread receives signals
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
