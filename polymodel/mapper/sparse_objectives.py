"""Sparse objectives: mappings found by lower bounds, evaluated on sparse data, and how good they are.

Let LB be the search's figures with least shares (`shares`), S those of a sparse report. Of any mapping m
there is a mapping q on the front of the search with LB(q) <= LB(m) <= S(m), and a mapping r among those
evaluated with S(r) <= f(q) LB(q). So S(r) <= f S(m) in every objective, f being the greatest f(q).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from polymodel.architecture.hierarchy import Hierarchy
from polymodel.loading import Spec
from polymodel.mapper.confirm import MappingFigures, all_confirmed, bug, confirmed
from polymodel.mapper.point import Point
from polymodel.mapper.records import Candidate, Quality, Request, SearchResult, Shares, Toll
from polymodel.mapper.sparse_lower_bounds import least_shares, price_of
from polymodel.mapper.terms import READS
from polymodel.objectives import on_dense_data
from polymodel.report.sparse import SparseReport, with_data
from polymodel.sparse.actions.data import TensorData
from polymodel.sparse.actions.records import KINDS, AccessCount, least_certain
from polymodel.workload.einsum import Einsum

CLOSE = 1e-9
LONGEST = 30.0  # seconds of evaluation without a time limit
# For mappings that lower bounds do not lead to: seconds, or times those of the search.
LEAST, TIMES = 5.0, 3.0
ROUNDS = 3
MOST = 24  # mappings of each further search that are evaluated

Floats = NDArray[np.float64]


def bounded(spec: Spec, hierarchy: Hierarchy, request: Request, data: Mapping[str, TensorData]) -> Request:
    """The request of the search: its energy and latency are lower bounds of those on sparse data."""
    shares = least_shares(spec.workload, hierarchy, data, request.limits.sizes)
    return replace(request, objectives=_plain(request.objectives), shares=shares)


def _plain(objectives: Sequence[str]) -> tuple[str, ...]:
    return tuple(map(on_dense_data, objectives))


def sparse_points(
    spec: Spec,
    found: SearchResult,
    objectives: tuple[str, ...],
    data: Mapping[str, TensorData],
    workers: int,
    done: Callable[[int, int], bool],
    end: float,
) -> list[Point]:
    """The search's mappings that were evaluated on sparse data; those at the ends and then in the middle of
    what is left first. `done(number, of)` is told how far it is, and False ends it.

    Raises InternalError where a figure is below its bound, Refused where no mapping can be counted.
    """
    some = [found.candidates[i] for i in spread(len(found.candidates))]
    figures = all_confirmed(spec, some, workers, lambda n: done(n, len(some)), LONGEST, data, end)
    pairs = [(c, f) for c, f in zip(some, figures, strict=True) if f.sparse is not None]
    if some and not pairs:  # asked again for the refusal; else there was time for none
        pairs = [(some[0], confirmed(spec, some[0], data))]
    for c, f in pairs:
        _check(spec, c, f)
    return [Point(0, spec, c, objectives, f) for c, f in pairs]


def more_points(
    spec: Spec,
    found: SearchResult,
    points: Sequence[Point],
    data: Mapping[str, TensorData],
    request: Request,
    search: Callable[[Request], SearchResult],
    before: float,
) -> list[Point]:
    """Mappings that lower bounds do not lead to: found with shares as the best ones have them, and with the
    space that they take. `request`: that of the search. Takes up to three times as long, from 5 to 30 s, and
    ends `before` that time (`time.monotonic`).
    """
    end = min(monotonic() + min(max(LEAST, TIMES * found.seconds), LONGEST), before)
    every, seen = list(points), {p.candidate.tree for p in points}
    for trial in _trials(spec, data, request, every):
        left = end - monotonic()
        stopped = request.stop is not None and request.stop()
        if left <= 0 or stopped or quality(found, every, 0, every).factor <= 1 + CLOSE:
            break
        others = search(replace(trial, time_limit=left)).candidates
        some = [others[i] for i in spread(len(others)) if others[i].tree not in seen][:MOST]
        left = max(end - monotonic(), 0.0)
        for c, f in zip(some, all_confirmed(spec, some, 1, lambda _: True, left, data, before), strict=True):
            if f.sparse is not None:
                every.append(Point(0, spec, c, every[0].objectives, f))
                seen.add(c.tree)
    return every[len(points) :]


def _trials(
    spec: Spec, data: Mapping[str, TensorData], request: Request, known: Sequence[Point]
) -> Iterator[Request]:
    """Requests with other prices and objectives; those of later rounds look at what is `known` by then."""
    assert request.shares is not None, "asked for sparse data only"
    first = tuple(known)
    for turn in range(ROUNDS):
        if turn == 1:
            yield replace(request, shares=None, progress=None)
        for k in range(len(request.objectives)):
            # First the one of the least bound, then the best so far.
            figures = [p.values[k] for p in known] if turn else [p.candidate.values[k] for p in first]
            best = known[int(np.argmin(figures))]
            sparse = with_data(best.report, data)
            alike = replace(request, shares=calibrated(request.shares, sparse), progress=None)
            yield replace(alike, objectives=request.objectives[k : k + 1])
            if len(request.objectives) > 1 and turn:
                yield alike
    inner = [c.name for c in spec.arch.components if c.kind == "memory" and c.size_bits != inf][:2]
    names = tuple(dict.fromkeys((*request.objectives, *(f"working_set:{n}" for n in inner))))
    yield replace(request, objectives=names, progress=None)


def _check(spec: Spec, candidate: Candidate, found: MappingFigures) -> None:
    """What the search takes for a lower bound must be one."""
    assert found.sparse is not None, "only evaluated mappings are checked"
    for name, bound, figure in zip(
        ("energy", "latency"), (candidate.energy, candidate.latency), found.sparse, strict=True
    ):
        if figure < bound * (1 - CLOSE):
            what = f"its sparse {name} is {figure!r}, below the search's bound {bound!r}"
            raise bug(spec, candidate, what)


def spread(n: int) -> list[int]:
    """0 .. n - 1: the ends, then again and again the middle of what lies between."""
    result = list(range(min(n, 1))) + ([n - 1] if n > 1 else [])
    waiting = deque([(0, n - 1)])
    while waiting:
        low, high = waiting.popleft()
        middle = (low + high) // 2
        if low < middle < high:
            result.append(middle)
            waiting += [(low, middle), (middle, high)]
    return result


def factor(bounds: Floats, figures: Floats) -> float:
    """How far evaluated mappings [m, objectives] are at most above any mapping, each of which lies above one
    of the bounds [n, objectives]; infinite where a bound is 0 and nothing attains it."""
    worst = 1.0
    for low in bounds:
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(low > 0, figures / low, np.where(figures > 0, np.inf, 1.0))
        worst = max(worst, float(ratio.max(axis=1).min(initial=np.inf)))
    return worst


def quality(found: SearchResult, points: Sequence[Point], besides: int, front: Sequence[Point]) -> Quality:
    """How good the front of these points is. `found`: the search's answer, whose values are the bounds;
    `besides`: how many of the points are none of its mappings."""
    bounds = np.array([c.values for c in found.candidates]).reshape(len(found.candidates), -1)
    figures = np.array([p.values for p in front]).reshape(len(front), -1)
    label = least_certain(p.found.label for p in front)
    each = tuple(factor(bounds[:, [k]].min(axis=0)[None], figures[:, [k]]) for k in range(bounds.shape[1]))
    known = len(points) - besides
    return Quality(factor(bounds, figures), each, known, len(found.candidates), besides, label)


def calibrated(least: tuple[Shares, ...], sparse: SparseReport) -> tuple[Shares, ...]:
    """One record per Einsum; where the mapping moves nothing, the least shares."""
    problem = sparse.dense.problem
    memories = [c.name for c in problem.hierarchy.components if c.kind == "memory"]
    moved: dict[tuple[str, str, str, str], list[AccessCount]] = {}
    for a in sparse.counts.accesses:
        moved.setdefault((a.einsum, a.tensor, a.component, a.kind), []).append(a)
    result = []
    for one, shares in zip(problem.cascade.einsums, least, strict=True):
        rows = tuple(
            tuple(
                tuple(
                    (
                        kind,
                        _toll(problem.hierarchy, bits, moved.get((one.name, tensor, m, kind), []))
                        or shares.of(i, number, kind),
                    )
                    for kind in KINDS
                )
                for number, m in enumerate(memories)
            )
            for i, (tensor, bits) in enumerate((x.tensor, x.bits_per_value) for x in one.accesses)
        )
        result.append(Shares(rows, _units(one, shares, sparse)))
    return tuple(result)


def _toll(hierarchy: Hierarchy, bits: int, counts: list[AccessCount]) -> Toll | None:
    """Joules and bits of one element of the dense counts; None where there is none."""
    dense = sum(a.dense for a in counts)
    if not dense:
        return None
    component = hierarchy[counts[0].component]
    way = "read" if counts[0].kind in READS else "write"
    named = any(a.name == f"metadata_{way}" for a in component.actions)
    actual, gated = sum(a.actual for a in counts) * bits, sum(a.gated for a in counts) * bits
    more = sum(a.metadata_bits for a in counts)
    joules = actual * price_of(component, way) + gated * price_of(component, f"gated_{way}")
    joules += more * price_of(component, f"metadata_{way}" if named else way)
    return joules / dense, (actual + gated + more) / dense


def _units(one: Einsum, least: Shares, sparse: SparseReport) -> tuple[tuple[str, float, float], ...]:
    known = {c.component: c for c in sparse.counts.compute if c.einsum == one.name and c.dense}
    result = []
    for name, joules, share in least.units:
        count, component = known.get(name), sparse.dense.problem.hierarchy[name]
        if count is not None:
            each = count.executed * component.action("compute").energy
            each += count.gated * component.action("gated_compute").energy
            joules, share = each / count.dense, count.timed / count.dense
        result.append((name, joules, share))
    return tuple(result)
