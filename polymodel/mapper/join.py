"""Whole mappings from pmappings: Einsum by Einsum along the cascade, states of equal structure side by side.

Of states with equal open loops, tile sizes and live tensors, those go that another one beats in every figure
that later steps look at. The last stage is the front.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from polymodel.mapper.aims import Aims
from polymodel.mapper.branch_and_bound import Bound, KnownMappings
from polymodel.mapper.budget import Tally, always, once
from polymodel.mapper.combine import Interest, group_numbers
from polymodel.mapper.pmappings import Pmappings
from polymodel.mapper.space import EinsumSpace
from polymodel.mapper.states import (
    JoinStep,
    Lives,
    States,
    StateSource,
    Structure,
    joined_space,
    most_held,
    start,
    step,
)
from polymodel.pareto import undominated
from polymodel.processes import Threads

Array = Any
PAIRS = 2_000_000


@dataclass(frozen=True)
class JoinRules:
    """What the join needs besides states and pmappings. `aims`: the rows; `buffers`: positions in `which`
    whose peak is one. `coarse`: Einsums behind which states are compared by cells of a grid (None: all)."""

    lives: Lives
    which: tuple[int, ...]
    capacity: Array
    interest: Interest
    buffers: tuple[int, ...]
    aims: Aims
    coarse: frozenset[int] | None = None

    def behind(self, number: int) -> JoinRules:
        """As they are behind an Einsum."""
        if self.coarse is None or number in self.coarse:
            return self
        return replace(self, interest=replace(self.interest, eps=0.0))


@dataclass(frozen=True)
class Outlook:
    """Whole mappings that are known, and what the Einsums to come cost at least behind states of a structure
    and their tile sizes: [sums, levels, n], and with all the space there is [sums, n]."""

    known: KnownMappings
    behind: Callable[[Structure, Array], Array]
    least_behind: Callable[[Structure, Array], Array]
    told: tuple[object, ...] = ()  # all that their answers depend on


Stage = tuple[States, ...]


def first_stage(rules: JoinRules) -> Stage:
    return (start(len(rules.which), len(rules.aims.more)),)


def next_stage(
    before: Stage,
    shapes: Sequence[Pmappings],
    space: EinsumSpace,
    number: int,
    rules: JoinRules,
    tally: Tally,
    going_on: Callable[[], bool] = always,
    outlook: Outlook | None = None,
    workers: int = 1,
) -> Stage:
    """The states behind Einsum `number`. `workers`: threads, as nearly all of the time goes by in numpy."""
    figures = [(p.shape, p.keys, p.energy, p.latency, p.more, p.local, p.above) for p in shapes]
    bounds = None if outlook is None else (outlook.known, outlook.told)
    return once(
        tally,
        lambda: ("join", before, figures, space, number, rules, bounds),
        lambda: _joined(before, shapes, space, number, rules, tally, going_on, outlook, workers),
        lambda _: going_on(),
    )


def _joined(
    before: Stage,
    shapes: Sequence[Pmappings],
    space: EinsumSpace,
    number: int,
    rules: JoinRules,
    tally: Tally,
    going_on: Callable[[], bool],
    outlook: Outlook | None,
    workers: int,
) -> Stage:
    rules = rules.behind(number)
    steps = [
        (g, s, result)
        for g, states in enumerate(before)
        for s, points in enumerate(shapes)
        if (result := step(states.structure, space, points.shape, number, rules.lives)) is not None
    ]

    def joined(which: tuple[int, int, JoinStep]) -> tuple[list[States], Tally]:
        g, s, result = which
        states, points, parts, mine = before[g], shapes[s], [], Tally()
        for taken, chosen in pairs(states.tiles, points.keys, states.structure.depth):
            if not going_on():
                break
            source = StateSource(g, s, taken, chosen)
            part = _combined(states, points, taken, chosen, result, rules, mine, source, outlook)
            parts += [part] if part is not None else []
        return parts, mine

    parts: dict[Structure, list[States]] = {}
    with Threads(workers) as pool:
        run = pool.each if workers > 1 else map
        for (_, _, result), (some, mine) in zip(steps, run(joined, steps), strict=True):
            if some:
                parts.setdefault(result.after, []).extend(some)
            tally.points += mine.points
            tally.too_large += mine.too_large
        merged = tuple(run(lambda item: _merged(item[0], item[1], rules, outlook), parts.items()))
    tally.templates += len(steps)
    tally.kept += sum(len(m) for m in merged)
    return merged


def pairs(tiles: Array, keys: Array, depth: int) -> Iterator[tuple[Array, Array]]:
    """Pairs of states [loops, n] and points [loops, m] with equal tile sizes of the open loops, in blocks."""
    n, m = tiles.shape[1], keys.shape[1]
    groups = np.zeros(n + m, np.int64)
    if depth:
        groups = group_numbers(np.concatenate([tiles, keys[:depth]], axis=1), n + m)
    mine, theirs = groups[:n], groups[n:]
    order = np.argsort(theirs, kind="stable")
    low = np.searchsorted(theirs[order], mine, side="left")
    count = np.searchsorted(theirs[order], mine, side="right") - low
    begin = 0
    ends = np.cumsum(count)
    while begin < n:
        end = int(np.searchsorted(ends, (ends[begin - 1] if begin else 0) + PAIRS, side="right"))
        end = max(end, begin + 1)
        some = count[begin:end]
        total = int(some.sum())
        if total:
            taken = np.repeat(np.arange(begin, end), some)
            offset = np.arange(total) - np.repeat(np.cumsum(some) - some, some)
            yield taken, order[np.repeat(low[begin:end], some) + offset]
        begin = end


def _combined(
    states: States,
    points: Pmappings,
    taken: Array,
    chosen: Array,
    found: JoinStep,
    rules: JoinRules,
    tally: Tally,
    source: StateSource,
    outlook: Outlook | None,
) -> States | None:
    tally.points += len(taken)
    peak, held = joined_space(states, taken, points, chosen, found, rules.lives, rules.which)
    depth = found.after.depth
    tiles = points.keys[:depth, chosen]
    most = most_held(peak, held, found.after, tiles, rules.lives, rules.which)
    # The whole takes at least this; what of it is below open loops and what beside them tells nothing more.
    peak[0] = most
    ok = (most <= rules.capacity[:, None]).all(axis=0)
    tally.too_large += int(len(ok) - ok.sum())
    if not ok.any():
        return None
    energy = states.energy[taken] + points.energy[chosen]
    latency = states.latency[taken] + points.latency[chosen]
    more = states.more[:, taken] + points.more[:, chosen]
    origin = np.stack([np.zeros(len(taken), int), np.arange(len(taken))])
    whole = States(found.after, tiles, energy, latency, more, peak, held, origin, (source,))
    # Bounds take longer than comparing: few are left for them.
    return _hopeful(_pruned(whole.only(np.flatnonzero(ok)), rules, outlook), rules, outlook)


def _hopeful(states: States, rules: JoinRules, outlook: Outlook | None) -> States | None:
    """Those that may be part of better whole mappings than are known."""
    if outlook is None:
        return states
    rest = outlook.behind(states.structure, states.tiles)
    peaks = [states.peak[0, m] for m in rules.buffers]
    figures = rules.interest.figures(states.energy, states.latency, states.more, peaks)
    none = np.zeros(rest.shape[:2])
    left = np.flatnonzero(Bound(outlook.known, none).hopeful(figures, rest))
    return states.only(left) if len(left) else None


def _merged(
    structure: Structure, parts: Sequence[States], rules: JoinRules, outlook: Outlook | None
) -> States:
    if len(parts) == 1:
        return _compact(parts[0])
    shift = np.cumsum([0, *(len(p.sources) for p in parts)])
    origin = [np.stack([p.origin[0] + s, p.origin[1]]) for p, s in zip(parts, shift, strict=False)]
    whole = States(
        structure,
        np.concatenate([p.tiles for p in parts], axis=1),
        np.concatenate([p.energy for p in parts]),
        np.concatenate([p.latency for p in parts]),
        np.concatenate([p.more for p in parts], axis=1),
        np.concatenate([p.peak for p in parts], axis=2),
        np.concatenate([p.held for p in parts], axis=2),
        np.concatenate(origin, axis=1),
        tuple(s for p in parts for s in p.sources),
    )
    return _compact(_pruned(whole, rules, outlook))


def _compact(states: States) -> States:
    """Leave of the sources only what the states refer to."""
    sources = []
    position = states.origin[1].copy()
    for k, s in enumerate(states.sources):
        mine = states.origin[0] == k
        used = states.origin[1][mine]
        sources.append(StateSource(s.group, s.shape, s.state[used], s.point[used]))
        position[mine] = np.arange(len(used))
    origin = np.stack([states.origin[0], position])
    return States(
        states.structure, states.tiles, states.energy, states.latency, states.more, states.peak, states.held,
        origin, tuple(sources),
    )  # fmt: skip


def _pruned(states: States, rules: JoinRules, outlook: Outlook | None) -> States:
    peaks = [states.peak[0, m] for m in rules.buffers]
    space = [f for d in range(1, states.structure.depth + 1) for f in (*states.peak[d], *states.held[d])]
    energy, latency, more, interest = states.energy, states.latency, states.more, rules.interest
    if outlook is not None and (interest.eps or interest.rough):
        # A share of the whole counts: what others add to it is no less than this.
        rest = list(outlook.least_behind(states.structure, states.tiles))
        energy = energy + rest.pop(0) if interest.energy else energy
        latency = latency + rest.pop(0) if interest.latency else latency
        more = more + np.array(rest[: len(more)]) if len(more) else more
    figures = interest.compared(energy, latency, more, peaks, space)
    return states.only(undominated(figures, group_numbers(states.tiles, len(states))))
