"""Sparse objectives: mappings found by lower bounds, evaluated on sparse data, and how good they are.

Let LB be the search's figures with least shares (`shares`), S those of a sparse report. Of any mapping m
there is a mapping q on the front of the search with LB(q) <= LB(m) <= S(m), and a mapping r among those
evaluated with S(r) <= f(q) LB(q). So S(r) <= f S(m) in every objective, f being the greatest f(q).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from polymodel.architecture.hierarchy import Hierarchy
from polymodel.explore.confirm import Figures, all_confirmed, bug, confirmed
from polymodel.explore.point import Point
from polymodel.explore.records import Candidate, Found, Request
from polymodel.explore.shares import least_shares
from polymodel.loading import Spec
from polymodel.sparse.actions.data import TensorData
from polymodel.sparse.density.model import Label

PREFIX = "sparse_"
CLOSE = 1e-9
LONGEST = 30.0  # seconds of evaluation without a time limit

Floats = NDArray[np.float64]
Search = Callable[[Request], Found]


@dataclass(frozen=True)
class Quality:
    """How good a front on sparse data is. `factor`: each mapping of the space has one on the front that is no
    more than that above it in every objective, `eps` of the search apart; 1 is exact. `evaluated` of `found`
    mappings; `label` is that of the least certain figure on the front."""

    factor: float
    evaluated: int
    found: int
    label: Label


def is_sparse(objectives: Sequence[str]) -> bool:
    """True if an objective is about sparse data."""
    return any(o.startswith(PREFIX) for o in objectives)


def bounded(spec: Spec, hierarchy: Hierarchy, request: Request, data: Mapping[str, TensorData]) -> Request:
    """The request of the search: its energy and latency are lower bounds of those on sparse data."""
    shares = least_shares(spec.workload, hierarchy, data, request.limits.sizes)
    return replace(request, objectives=_plain(request.objectives), shares=shares)


def _plain(objectives: Sequence[str]) -> tuple[str, ...]:
    return tuple(o.removeprefix(PREFIX) for o in objectives)


def sparse_points(
    spec: Spec,
    found: Found,
    objectives: tuple[str, ...],
    data: Mapping[str, TensorData],
    workers: int,
    done: Callable[[int, int], bool],
    time_limit: float | None,
) -> list[Point]:
    """The search's mappings that were evaluated on sparse data; those at the ends and then in the middle of
    what is left first. `done(number, of)` is told how far it is, and False ends it.

    Raises InternalError where a figure is below its bound, Refused where no mapping can be counted.
    """
    some = [found.candidates[i] for i in spread(len(found.candidates))]
    longest = LONGEST if time_limit is None else time_limit
    figures = all_confirmed(spec, some, workers, lambda n: done(n, len(some)), longest, data)
    pairs = [(c, f) for c, f in zip(some, figures, strict=True) if f.sparse is not None]
    if some and not pairs:  # asked again for the refusal; else there was time for none
        pairs = [(some[0], confirmed(spec, some[0], data))]
    for c, f in pairs:
        _check(spec, c, f)
    return [Point(0, spec, c, objectives, f) for c, f in pairs]


def _check(spec: Spec, candidate: Candidate, found: Figures) -> None:
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
    found = list(range(min(n, 1))) + ([n - 1] if n > 1 else [])
    waiting = deque([(0, n - 1)])
    while waiting:
        low, high = waiting.popleft()
        middle = (low + high) // 2
        if low < middle < high:
            found.append(middle)
            waiting += [(low, middle), (middle, high)]
    return found


def factor(bounds: Floats, figures: Floats) -> float:
    """How far evaluated mappings [m, objectives] are at most above any mapping, each of which lies above one
    of the bounds [n, objectives]; infinite where a bound is 0 and nothing attains it."""
    worst = 1.0
    for low in bounds:
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(low > 0, figures / low, np.where(figures > 0, np.inf, 1.0))
        worst = max(worst, float(ratio.max(axis=1).min(initial=np.inf)))
    return worst


def quality(found: Found, points: Sequence[Point], front: Sequence[Point]) -> Quality:
    """How good the front of these points is. `found`: the search's answer, whose values are the bounds."""
    bounds = np.array([c.values for c in found.candidates]).reshape(len(found.candidates), -1)
    figures = np.array([p.values for p in front]).reshape(len(front), -1)
    labels = {p.found.label for p in front}
    label: Label = "bound" if "bound" in labels else "expected" if "expected" in labels else "exact"
    return Quality(factor(bounds, figures), len(points), len(found.candidates), label)
