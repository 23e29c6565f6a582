"""The search: pmappings of every Einsum, joined along the cascade into the Pareto front of whole mappings.

The mapspace: every placement of tensors in memories that `keep` and `may_keep` allow, every order of storage,
every tile size, intermediates exchanged in the backing storage or inside it below any fused loops that index
them, Einsums in the order of the workload. What space a fused loop nest needs is counted as if what is
stored above its loop were there as long as it runs (DESIGN 7); with two iterations and three Einsums the
exact peak can be lower.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from polymodel.architecture.hierarchy import Hierarchy
from polymodel.explore.join import Rules, Stage, first_stage, next_stage
from polymodel.explore.pmappings import Interest, Pmappings, Tally, equal_shapes, pmappings
from polymodel.explore.records import Candidate, Found, Limits, Progress, Request
from polymodel.explore.records import Stage as StageRecord
from polymodel.explore.space import EinsumSpace, einsum_spaces
from polymodel.explore.states import Lives
from polymodel.explore.trees import Chosen, looptree
from polymodel.workload.einsum import Cascade


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
        return not self.late

    def tell(self, of: str, best: float | None = None) -> None:
        self.done += 1
        if self.request.progress is not None:
            self.request.progress(Progress(self.done, self.total, of, best))


def search(cascade: Cascade, hierarchy: Hierarchy, request: Request) -> Found:
    """The Pareto front of whole mappings. Raises Refused for workloads and machines it does not cover."""
    spaces = einsum_spaces(cascade, hierarchy, request.limits)
    watch = _Watch(request, time.perf_counter(), 2 * len(spaces))
    rules = _rules(spaces, request)
    stages: list[StageRecord] = []
    found = _all_pmappings(spaces, cascade, request, rules, watch, stages)
    joined = [first_stage(rules)]
    for i, space in enumerate(spaces):
        tally, begun = Tally(), time.perf_counter()
        joined.append(next_stage(joined[-1], found[i], space, i, rules, tally, watch.going_on))
        stages.append(_record(f"join {space.name}", tally, begun))
        watch.tell(f"join {space.name}")
    candidates = _candidates(joined, found, spaces, rules, request)
    unsearched = ("the time limit cut the search",) if watch.late else ()
    seconds = time.perf_counter() - watch.begun
    return Found(
        request.objectives, candidates, tuple(stages), not watch.late, unsearched, request.eps, seconds
    )


def _record(of: str, tally: Tally, begun: float) -> StageRecord:
    seconds = time.perf_counter() - begun
    return StageRecord(of, tally.templates, tally.points, tally.kept, tally.too_large, seconds)


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
        for m in range(1, len(memories))
        if o.tensor in s.may[m] and not np.isinf(memories[m].capacity)
    }
    which = tuple(sorted(meeting | set(wanted)))
    interest = Interest(
        any(o in ("energy", "energy_delay") for o in request.objectives),
        any(o in ("latency", "energy_delay") for o in request.objectives),
        which,
    )
    lives = Lives(
        {o.tensor: o.bits for s in spaces for o in s.operands if o.fusable},
        {
            o.tensor: tuple(s.extents[r] if r >= 0 else 1 for r in o.ranks)
            for s in spaces
            for o in s.operands
            if o.fusable and o.output
        },
        {o.tensor: i for i, s in enumerate(spaces) for o in s.operands if o.fusable and not o.output},
    )
    capacity = np.array([memories[m].capacity for m in which])
    eps = (1 + request.eps) ** (1 / (len(spaces) + 1)) - 1 if request.eps else 0.0
    return Rules(lives, which, capacity, interest, tuple(which.index(m) for m in wanted), eps)


def _all_pmappings(
    spaces: Sequence[EinsumSpace],
    cascade: Cascade,
    request: Request,
    rules: Rules,
    watch: _Watch,
    stages: list[StageRecord],
) -> list[tuple[Pmappings, ...]]:
    found: list[tuple[Pmappings, ...]] = []
    known: dict[tuple[int, bool], int] = {}
    for i, first in equal_shapes(spaces):
        space, passing = spaces[i], _passing(spaces, rules.lives, i)
        tally, begun = Tally(), time.perf_counter()
        same = known.setdefault((first, passing), i)
        if same != i and not _by_name(request.limits):
            found.append(found[same])
        else:
            found.append(pmappings(space, request.limits, rules.interest, passing, tally, watch.going_on))
        stages.append(_record(space.name, tally, begun))
        watch.tell(space.name)
    return found


def _by_name(limits: Limits) -> bool:
    """True if Einsums of equal shape may have to be mapped differently."""
    return bool(limits.loop_order or limits.compute or limits.fuse or limits.unfused)


def _passing(spaces: Sequence[EinsumSpace], lives: Lives, number: int) -> bool:
    """True if a tensor that this Einsum does not touch may be exchanged across it."""
    for i, s in enumerate(spaces[:number]):
        for o in s.operands:
            if o.output and lives.last.get(o.tensor, i) > number and spaces[number].operand(o.tensor) is None:
                return True
    return False


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
