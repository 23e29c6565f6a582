"""What an Einsum costs at least, whatever the others do: by the memories its exchanged tensors are in, and by
the space that is left beside them.

A mapping below fused loops is one without them if its exchanged tensors take no space
(`Interest.relaxed`). So those bound all shapes of equal exchanges, and there are few of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from math import ceil, log2, prod
from typing import Any

import numpy as np

from polymodel.mapper.budget import Late, Tally, once
from polymodel.mapper.combine import Interest
from polymodel.mapper.pmappings import Explorer, Regions
from polymodel.mapper.records import Limits
from polymodel.mapper.space import EinsumSpace
from polymodel.mapper.templates import Exchanges, Passing

Array = Any
STEPS = 2  # levels per octave of a memory's size
MOST = 2**18  # entries of a table
SMALLEST = 8.0


@dataclass(frozen=True)
class Floors:
    """`least`: per exchanges (operand, memory) the least sums [sums, levels of each ladder] of mappings that
    take no more than the levels of the `ladders` (bits, per memory of interest). None: not known, 0."""

    ladders: tuple[Array, ...]
    sums: int
    least: Mapping[Exchanges, Array] | None

    def of(self, exchanges: Exchanges) -> Array | None:
        """The table, or None where there is no such mapping."""
        if self.least is None:
            return np.zeros((self.sums, *(len(x) for x in self.ladders)))
        return self.least.get(exchanges)


def ladders(capacities: Array, most: float) -> tuple[Array, ...]:
    """Levels of space per memory, ascending; `most`: bits of all tensors, if the memory has no end."""
    result = []
    entries = 1
    for capacity in capacities:
        top = capacity if np.isfinite(capacity) else most
        count = max(1, ceil(log2(max(top / SMALLEST, 1)) * STEPS) + 1)
        if entries * count > MOST:
            count = 1
        entries *= count
        levels = top * 2.0 ** (-np.arange(count - 1, -1, -1) / STEPS)
        levels[-1] = capacity
        result.append(levels)
    return tuple(result)


def floors_of(
    space: EinsumSpace,
    limits: Limits,
    interest: Interest,
    steps: tuple[Array, ...],
    regions: Regions,
    tally: Tally,
    before: Floors | None = None,
    wanted: Collection[Exchanges] | None = None,
) -> Floors:
    """Of one Einsum; not known if time is over. `regions`: below a cut, as far as they are known. `before`:
    of exchanges in the first memory alone, whatever the memories further inside hold; with it, only the
    others that are `wanted` are looked at."""
    given = before is None, None if before is None else before.least, None if wanted is None else set(wanted)
    return once(
        tally,
        lambda: ("floors", space, limits, interest, steps, given),
        lambda: _worked_out(space, limits, interest, steps, regions, tally, before, wanted),
        lambda found: found.least is not None,
    )


def _worked_out(
    space: EinsumSpace,
    limits: Limits,
    interest: Interest,
    steps: tuple[Array, ...],
    regions: Regions,
    tally: Tally,
    before: Floors | None,
    wanted: Collection[Exchanges] | None,
) -> Floors:
    alone = replace(interest, buffers=(), relaxed=True, eps=0.0)
    sums = int(interest.energy) + int(interest.latency) + len(space.more)
    explorer = Explorer(space, limits, alone, Passing(), regions)
    result: dict[Exchanges, Array] = {}
    try:
        for exchanges, points in explorer.floors(tally, None if before is None else wanted):
            entry = np.zeros(len(points.energy), np.int64)
            for x, bits in zip(steps, points.local, strict=True):
                entry = entry * len(x) + np.searchsorted(x, bits * (1 - 1e-12))
            table = result.setdefault(exchanges, np.full((sums, prod(len(x) for x in steps)), np.inf))
            for row, figure in zip(
                table, interest.figures(points.energy, points.latency, points.more, ()), strict=True
            ):
                np.minimum.at(row, entry, figure)
    except Late:
        return Floors(steps, sums, None)
    shaped = {k: table.reshape(sums, *(len(x) for x in steps)) for k, table in result.items()}
    for table in shaped.values():
        for axis in range(1, table.ndim):
            np.minimum.accumulate(table, axis=axis, out=table)
    for exchanges, table in (before.least or {}).items() if before is not None else ():
        shape = (sums, *(len(x) if k < table.ndim - 1 else 1 for k, x in enumerate(steps)))
        shaped[exchanges] = np.broadcast_to(table.reshape(shape), (sums, *(len(x) for x in steps)))
    return Floors(steps, sums, shaped)
