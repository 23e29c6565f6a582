"""Which figures of partial mappings matter for a request: objectives, and memories in which Einsums meet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from polymodel.mapper.combine import Interest
from polymodel.mapper.join import JoinRules
from polymodel.mapper.records import Limits, Request
from polymodel.mapper.space import EinsumSpace
from polymodel.mapper.states import lives_of
from polymodel.mapping.mapspace_constraints import WORKING_SET
from polymodel.objectives import uses

PRUNES = 1  # by cells of a grid, before an Einsum's points are joined
COARSE = 3  # joins after which states are compared by cells of a grid: those that leave most
# Parts of eps: for partial mappings, for known ones that others are not so much better than, for the front.
CELLS, BEATEN, THIN = 0.6, 0.1, 0.3


@dataclass(frozen=True)
class SearchFigures:
    """What the search knows of whole mappings, for `polymodel.objectives.value`: numbers, or arrays of them.
    `peaks`: per memory the bits of its working set."""

    energy: Any
    latency: Any
    peaks: Mapping[str, Any]

    @property
    def area(self) -> Any:
        raise KeyError("area")

    @property
    def utilisation(self) -> Any:
        raise KeyError("utilisation")

    def moved(self, component: str, way: Literal["reads", "writes"]) -> Any:
        raise KeyError(f"{way}:{component}")

    def working_set(self, component: str) -> Any:
        return self.peaks[component]


def measured(objectives: Iterable[str]) -> tuple[str, ...]:
    """The memories whose peaks are objectives, in their order; "" for one without a name."""
    return tuple(o.partition(":")[2] for o in objectives if o.startswith(WORKING_SET))


def rules_of(spaces: Sequence[EinsumSpace], request: Request) -> JoinRules:
    """Which figures matter: those of the objectives, and memories in which tiles of several Einsums meet."""
    memories = spaces[0].memories
    bounded = [i for i, m in enumerate(memories) if i and not np.isinf(m.capacity)] or [len(memories) - 1]
    named = {m.name: i for i, m in enumerate(memories)} | {"": bounded[0]}
    wanted = [named[memory] for memory in measured(request.objectives)]
    figures = {figure for o in request.objectives for figure, _ in uses(o)}
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
        "energy" in figures,
        "latency" in figures,
        which,
        tuple(wanted),
        eps=(1 + share_of(request.eps, CELLS)) ** (1 / (min(COARSE, len(spaces)) + PRUNES)) - 1
        if request.eps
        else 0.0,
    )
    capacity = np.array([memories[m].capacity for m in which])
    return JoinRules(lives_of(spaces), which, capacity, interest, tuple(which.index(m) for m in wanted))


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
