"""Why no mapping keeps the limits on figures, and the least by which one of them has to give way."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from polymodel.architecture.hierarchy import Hierarchy
from polymodel.mapper.constraint_relaxation import Search
from polymodel.mapper.mapspace import mapspace_of
from polymodel.mapper.records import Change, Diagnosis, Obstacle, Relaxation, Request
from polymodel.objectives import FigureLimit
from polymodel.workload.einsum import Cascade

SECONDS = 30.0  # for one diagnosis, where the search has no time limit
KIND = "limits"


def limits_diagnosed(
    cascade: Cascade, hierarchy: Hierarchy, request: Request, search: Search
) -> Diagnosis | None:
    """None where there are no mappings even without the limits. `request`: one that has limits and whose
    search found nothing."""
    work = _Limits(cascade, hierarchy, request, search, time.perf_counter() + SECONDS)
    obstacles: list[Obstacle] = []
    for limit in request.at_most:
        least = work.best(limit, ())
        if least is None and work.done:
            return None
        if least is not None and not limit.admits(least):
            obstacles.append(Obstacle(KIND, limit.name, "", (), 0, 0, least, limit.number))
    if not obstacles:
        together = ", ".join(map(str, request.at_most))
        obstacles.append(Obstacle(KIND, together, "", (), 0, 0, joined=True))
    size = mapspace_of(cascade, hierarchy, request.limits).size() if not request.limits.rules else 0
    relaxations = tuple(work.relaxations())
    return Diagnosis(size, tuple(obstacles), relaxations, () if work.done else ("limits",))


@dataclass
class _Limits:
    cascade: Cascade
    hierarchy: Hierarchy
    request: Request
    search: Search
    end: float
    done: bool = True  # whether there was time for all searches

    def best(self, limit: FigureLimit, others: Sequence[FigureLimit]) -> float | None:
        """The best value of a limited figure among mappings that keep other limits."""
        left = self.end - time.perf_counter()
        if left <= 0:
            self.done = False
            return None
        asked = replace(
            self.request, objectives=(limit.name,), at_most=tuple(others), time_limit=left, progress=None
        )
        found = self.search(self.cascade, self.hierarchy, asked)
        self.done = self.done and found.complete
        return found.candidates[0].values[0] if found.complete and found.candidates else None

    def relaxations(self) -> list[Relaxation]:
        """Every single limit that may give way; else all of them, one after another."""
        limits = self.request.at_most
        result = []
        for k, limit in enumerate(limits):
            need = self.best(limit, (*limits[:k], *limits[k + 1 :]))
            if need is not None:
                result.append(Relaxation((_change(limit, need),)))
        if result or not self.done:
            return result
        changes: list[Change] = []
        fixed: list[FigureLimit] = []
        for limit in limits:
            need = self.best(limit, fixed)
            if need is None:
                return []
            fixed.append(limit if limit.admits(need) else replace(limit, number=need))
            changes += [] if limit.admits(need) else [_change(limit, need)]
        return [Relaxation(tuple(changes))]


def _change(limit: FigureLimit, need: float) -> Change:
    return Change(KIND, limit.name, need=need, have=limit.number)
