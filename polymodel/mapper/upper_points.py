"""Points of templates of memories up to a cut, joined with the region below."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from polymodel.mapper.aims import Bound
from polymodel.mapper.budget import SearchTally
from polymodel.mapper.combine import CombinedPoints, Interest, group_numbers
from polymodel.mapper.records import Limits
from polymodel.mapper.regions import (
    PAIRS,
    InnerPoints,
    combined,
    other_figures,
    port_times,
    timed_figures,
    with_leakage,
)
from polymodel.mapper.space import EinsumSpace
from polymodel.mapper.templates import Template
from polymodel.mapper.terms import costs
from polymodel.pareto import undominated

Array = Any
MANY = 2_000_000


def cut_points(
    space: EinsumSpace,
    template: Template,
    number: int,
    limits: Limits,
    interest: Interest,
    bound: Bound | None,
    below: InnerPoints,
    lower: int,
    tally: SearchTally,
) -> Iterator[CombinedPoints]:
    """Undominated points of an upper template joined with points below (`lower`: the number of that
    region)."""
    if not len(below.energy):
        return
    tighter = bound
    if bound is not None and (interest.energy or len(below.more)):
        joules = [float(below.energy.min())] if interest.energy else []
        seconds = [0.0] if interest.latency else []
        tighter = bound.plus([*joules, *seconds, *below.more.min(axis=1).tolist()])
        tighter = replace(tighter, seconds=max(bound.seconds, float(below.rest.min())))
    upper = combined(space, template, costs(space, template), limits, interest, tighter, tally)
    if not upper.n:
        return
    ports, _ = port_times(upper, upper.costs, space, template.cut)
    apart = with_leakage(space, interest)
    energy, ends = upper.energy(), upper.ends()
    more = other_figures(upper, upper.costs)
    local, above = upper.slots()
    gives = -np.stack(ends) if ends else np.zeros((0, upper.n), np.int64)
    floor, time = least_together(space, energy, ports, gives, below)
    others = more + below.least_more(gives) + timed_figures(space, time)
    kept = np.flatnonzero(np.isfinite(floor))
    if bound is not None:
        peaks = [local[interest.memories.index(m)] for m in interest.buffers]
        kept = np.flatnonzero(
            np.isfinite(floor) & bound.coarser.hopeful(interest.figures(floor, time, others, peaks))
        )
    if len(kept) > MANY:
        figures = [energy] if interest.energy else []
        figures += [*ports] if apart.latency else []
        figures += [*more, *local, *(row for slot in above for row in slot), *ends]
        some = [f[kept] for f in figures]
        kept = kept[undominated(some, group_numbers(upper.keys[:, kept], len(kept)))]
    if not len(kept):
        return
    rows, inside = below.for_tiles(gives[:, kept], apart)
    taken = kept[rows]
    points = CombinedPoints(upper.keys, energy, energy, more, local, above, number, upper.choice(), lower)
    for begin in range(0, len(taken), PAIRS):
        tally.ask()
        block = slice(begin, begin + PAIRS)
        yield _paired(
            space, points.only(taken[block]), ports[:, taken[block]], below, inside[block], interest, bound
        )


def least_together(
    space: EinsumSpace, energy: Array, ports: Array, gives: Array, below: InnerPoints
) -> tuple[Array, Array]:
    """Return lower bounds of energy and latency of upper points joined with the region below."""
    joules, rest = below.least(gives)
    above = ports + (below.ports.min(axis=1, initial=np.inf)[:, None] if below.ports.size else 0)
    time = np.maximum(rest, above.max(axis=0))
    leaked = space.leak * time if space.leak else 0.0
    return energy + joules + leaked, time


def cheapest(
    space: EinsumSpace,
    template: Template,
    limits: Limits,
    interest: Interest,
    below: InnerPoints,
    tally: SearchTally,
) -> tuple[Array, Array, Array, Array] | None:
    """Return lower bounds of the points of an upper template joined with the region below.

    Energy, latency, other figures that add up, and their space in the memories of interest [memories, n], the
    last without that of the region below.
    """
    if not len(below.energy):
        return None
    upper = combined(space, template, costs(space, template), limits, interest, None, tally)
    if not upper.n:
        return None
    ports, _ = port_times(upper, upper.costs, space, template.cut)
    ends = upper.ends()
    gives = -np.stack(ends) if ends else np.zeros((0, upper.n), np.int64)
    local, _ = upper.slots()
    joules, _ = below.least(gives)
    time = np.zeros(upper.n)
    if with_leakage(space, interest).latency:
        time = _fastest(space, ports, gives, below.quickest)
    more = other_figures(upper, upper.costs) + below.least_more(gives) + timed_figures(space, time)
    return upper.energy() + joules + (space.leak * time if space.leak else 0.0), time, more, local


def _fastest(space: EinsumSpace, ports: Array, gives: Array, below: InnerPoints) -> Array:
    """Return the least latency of upper points joined with the region below; infinite if nothing fits."""
    result = np.full(ports.shape[1], np.inf)
    fits = np.flatnonzero(np.isfinite(below.least(gives)[1]))
    if len(fits):
        rows, inside = below.for_tiles(gives[:, fits], Interest(False, True, ()))
        time = _latency(space, ports[:, fits[rows]], below, inside)
        starts = np.searchsorted(rows, np.arange(len(fits)))
        result[fits] = np.minimum.reduceat(time, starts)
    return result


def _latency(space: EinsumSpace, ports: Array, below: InnerPoints, inside: Array) -> Array:
    fixed = np.repeat([m.fixed_time * space.times for m in space.memories[: len(ports) // 2]], 2)
    both = ports + below.ports[:, inside]
    result: Array = np.maximum(below.rest[inside], np.where(both > 0, both + fixed[:, None], 0).max(axis=0))
    return result


def _paired(
    space: EinsumSpace,
    upper: CombinedPoints,
    ports: Array,
    below: InnerPoints,
    inside: Array,
    interest: Interest,
    bound: Bound | None,
) -> CombinedPoints:
    """The joint costs of both regions."""
    latency = _latency(space, ports, below, inside)
    energy = upper.energy + below.energy[inside] + space.leak * latency
    local = upper.local + below.local[:, inside]
    more = upper.more + below.more[:, inside] + timed_figures(space, latency)
    whole = replace(upper, energy=energy, latency=latency, more=more, local=local, below=inside)
    whole = whole.undominated(interest)
    if bound is not None:  # after comparing, which takes less time
        peaks = [whole.local[interest.memories.index(m)] for m in interest.buffers]
        figures = interest.figures(whole.energy, whole.latency, whole.more, peaks)
        whole = whole.only(np.flatnonzero(bound.coarser.hopeful(figures)))
    return whole
