"""Pipelines slot by slot: equal slots, and equal wraps of the pipelined loop, are counted once.

docs/semantics.md, Pipelines.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from polymodel.analysis.exact.buffets import Layout
from polymodel.analysis.exact.pipeline_classes import Load, Pairs, Track, Tracks
from polymodel.analysis.exact.sweep import Ints, rank
from polymodel.analysis.result import PipelineRun, Slot, StageWork, ordered_slots, phase_of
from polymodel.mapping.looptree import Pipeline


@dataclass(frozen=True)
class Stage:
    """A stage's class in every iteration; class 0 is idle. What runs, and what it loads, by class."""

    classes: Ints
    works: tuple[tuple[StageWork | PipelineRun, ...], ...]
    loads: tuple[Load, ...]


def pipeline_runs(layout: Layout, found: tuple[Pipeline, ...]) -> tuple[PipelineRun, ...]:
    """Every pipeline that stands in no stage of another."""
    if not found:
        return ()
    tracks = Tracks(layout, found)
    runs = []
    for p in found:
        if p.outer is None:
            outermost = _run(tracks, p, np.zeros((1, 0), dtype=np.int64))
            runs += [w for w in outermost.works if isinstance(w, PipelineRun)]
    return tuple(runs)


def _run(tracks: Tracks, p: Pipeline, outer: Ints) -> Track:
    """What a pipeline does in each iteration `outer` of the loops around it, a row of counters each."""
    keys = tracks.keys[p.node]
    stages = [_stage(tracks, p, b) for b in range(len(p.stages))]
    table = np.stack([s.classes for s in stages], axis=1)
    width = outer.shape[1]
    numbers = rank(np.concatenate([outer, keys[:, :width]]))
    inside, around = numbers[len(outer) :], numbers[: len(outer)]
    wraps = rank(keys[:, :-1] if p.loop is not None else keys)
    bounds = np.flatnonzero(np.concatenate(([True], wraps[1:] != wraps[:-1], [True])))
    members: dict[int, Counter[tuple[int, bytes]]] = defaultdict(Counter)
    for start, stop in pairwise(bounds):
        members[int(inside[start])][int(stop - start), table[start:stop].tobytes()] += 1
    kinds: dict[object, int] = {}
    works: list[StageWork | PipelineRun | None] = [None]
    loads: list[Load] = [{}]
    classes = np.zeros(len(outer), dtype=np.int64)
    for k, number in enumerate(around):
        mine = members.get(int(number))
        if not mine:
            continue
        kind = frozenset(mine.items())
        if kind not in kinds:
            kinds[kind] = len(works)
            works.append(PipelineRun(p.node, _slots(tracks, stages, mine, table.dtype)))
            loads.append(_total(stages, mine, table.dtype))
        classes[k] = kinds[kind]
    return Track(classes, tuple(works), tuple(loads))


def _stage(tracks: Tracks, p: Pipeline, b: int) -> Stage:
    """The Einsums and inner pipelines of a stage together."""
    parts: dict[object, Track] = {}
    for e in p.stages[b]:
        home = tracks.home[e]
        if home is p:
            parts[e] = tracks.of[e]
            continue
        while home.outer != p.node:
            home = next(q for q in tracks.found if q.node == home.outer)
        if home.node not in parts:
            parts[home.node] = _run(tracks, home, tracks.keys[p.node])
    table = np.stack([t.classes for t in parts.values()], axis=1)
    found, classes = np.unique(np.concatenate([np.zeros_like(table[:1]), table]), axis=0, return_inverse=True)
    works, loads = [], []
    for row in found:
        chosen = [(t, int(k)) for t, k in zip(parts.values(), row, strict=True)]
        works.append(tuple(w for t, k in chosen if (w := t.works[k]) is not None))
        loads.append(_joint((t.loads[k], 1) for t, k in chosen))
    return Stage(classes.reshape(-1)[1:], tuple(works), tuple(loads))


def _joint(loads: Iterable[tuple[Load, int]]) -> Load:
    """The sum of loads, each so many times."""
    found: Load = {}
    for load, times in loads:
        for component, instances in load.items():
            into = found.setdefault(component, {})
            for place, (r, w) in instances.items():
                have = into.get(place, (0, 0))
                into[place] = have[0] + r * times, have[1] + w * times
    return found


def _slots(
    tracks: Tracks, stages: list[Stage], wraps: Counter[tuple[int, bytes]], kind: np.dtype[np.int64]
) -> tuple[Slot, ...]:
    counts: Counter[tuple[str, tuple[int, ...]]] = Counter()
    for (n, content), times in wraps.items():
        table = np.frombuffer(content, dtype=kind).reshape(n, len(stages))
        slots = np.zeros((n + len(stages) - 1, len(stages)), dtype=np.int64)
        for b in range(len(stages)):
            slots[b : b + n, b] = table[:, b]
        edges = sorted({0, min(n, len(stages) - 1), n, len(slots)})
        for start, stop in pairwise(edges):
            rows, each = np.unique(slots[start:stop], axis=0, return_counts=True)
            phase = phase_of(start, n, len(stages))
            for row, m in zip(rows, each, strict=True):
                counts[phase, tuple(int(k) for k in row)] += int(m) * times
    found: Counter[Slot] = Counter()
    for (phase, row), m in counts.items():
        works = tuple(s.works[k] for s, k in zip(stages, row, strict=True))
        found[Slot(phase, 1, works, _shared(tracks, stages, row))] += m
    return ordered_slots(found)


def _shared(tracks: Tracks, stages: list[Stage], row: tuple[int, ...]) -> tuple[tuple[str, Pairs], ...]:
    """Joint loads of the components that at least two stages load in one slot."""
    loads = [s.loads[k] for s, k in zip(stages, row, strict=True)]
    several = {name for name in tracks.names if sum(name in load for load in loads) > 1}
    return tracks.pareto(_joint(({name: load[name] for name in several & set(load)}, 1) for load in loads))


def _total(stages: list[Stage], wraps: Counter[tuple[int, bytes]], kind: np.dtype[np.int64]) -> Load:
    """What all stages load in all wraps."""
    counts: Counter[tuple[int, int]] = Counter()
    for (n, content), times in wraps.items():
        table = np.frombuffer(content, dtype=kind).reshape(n, len(stages))
        for b in range(len(stages)):
            classes, each = np.unique(table[:, b], return_counts=True)
            for k, m in zip(classes, each, strict=True):
                counts[b, int(k)] += int(m) * times
    return _joint((stages[b].loads[k], m) for (b, k), m in counts.items())
