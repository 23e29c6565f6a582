"""Which figures of partial mappings matter for a request: objectives, and memories in which Einsums meet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from polymodel.mapper.aims import Aims, aims_of
from polymodel.mapper.combine import Interest
from polymodel.mapper.join import JoinRules
from polymodel.mapper.records import Limits, Request
from polymodel.mapper.space import EinsumSpace
from polymodel.mapper.states import lives_of

Array = Any
PRUNES = 1  # by cells of a grid, before an Einsum's points are joined
COARSE = 3  # joins after which states are compared by cells of a grid: those that leave most
# Parts of eps: for partial mappings, for known ones that others are not so much better than, for the front.
CELLS, BEATEN, THIN = 0.6, 0.1, 0.3


def aims_in(spaces: Sequence[EinsumSpace], request: Request) -> Aims:
    """The rows of a request; a working set without a memory is that of the outermost bounded one."""
    operations = float(sum(s.operations * s.times for s in spaces if not s.copy))
    return aims_of(request.objectives, request.at_most, operations, request.area)


def rules_of(spaces: Sequence[EinsumSpace], request: Request) -> JoinRules:
    """Which figures matter: those of the objectives, and memories in which tiles of several Einsums meet."""
    memories = spaces[0].memories
    bounded = [i for i, m in enumerate(memories) if i and not np.isinf(m.capacity)] or [len(memories) - 1]
    named = {m.name: i for i, m in enumerate(memories)} | {"": bounded[0]}
    aims = aims_in(spaces, request)
    wanted = [named[memory] for memory in aims.peaks]
    meeting = {
        m
        for s in spaces
        for o in s.operands
        if o.fusable and o.tensor not in s.keep[0] and o.tensor not in request.limits.unfused
        for m in sorted(s.exchange)
        if o.tensor in s.may[m] and not np.isinf(memories[m].capacity)
    }
    which = tuple(sorted(meeting | set(wanted)))
    interest = Interest(
        aims.energy,
        aims.latency,
        which,
        tuple(wanted),
        eps=(1 + share_of(request.eps, CELLS)) ** (1 / (min(COARSE, len(spaces)) + PRUNES)) - 1
        if request.eps
        else 0.0,
    )
    capacity = np.array([memories[m].capacity for m in which])
    return JoinRules(lives_of(spaces), which, capacity, interest, tuple(which.index(m) for m in wanted), aims)


def share_of(eps: float, part: float) -> float:
    """What one of the steps that leave out near mappings may cost, if all of them may cost `eps`."""
    result: float = (1 + eps) ** part - 1
    return result


def by_name(limits: Limits) -> bool:
    """True if Einsums of equal shape may have to be mapped differently."""
    return bool(limits.loop_order or limits.compute or limits.fuse or limits.unfused)


def all_bits(spaces: Sequence[EinsumSpace]) -> float:
    """Bits of all tensors."""
    sizes = {o.tensor: float(o.elements * o.bits) for s in spaces for o in s.operands}
    return sum(sizes.values())
