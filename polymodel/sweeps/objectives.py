"""The objectives of a sweep, computed per block of points, by the names of `polymodel.objectives`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from polymodel import objectives as vocabulary
from polymodel.errors import Diagnostic, InternalError, SpecError
from polymodel.frozen import dataclass
from polymodel.loading import Spec
from polymodel.objectives import Busy
from polymodel.spec.faults import listed, suggestion
from polymodel.sweeps.metrics import Block, Count, Found, largest_phase
from polymodel.sweeps.plan import Costing
from polymodel.sweeps.scratch import Scratch
from polymodel.sweeps.values import wrong

Array = Any


def known_objectives(names: Sequence[str] | str, spec: Spec) -> tuple[str, ...]:
    """The objectives for these names. Raises SpecError if there are none, or for an unknown name."""
    given = listed("objectives", names, "['energy', 'latency']")
    arch = spec.raw_arch
    memories, tolls = (arch.memories, arch.tolls) if arch is not None else ((), ())
    result, unknown = vocabulary.read_objectives(given, memories, tolls)
    if unknown:
        raise SpecError([_unknown(u) for u in unknown])
    if not result:
        raise wrong("a sweep needs an objective", "name energy or latency", code="missing-argument")
    return result


def _unknown(u: vocabulary.Unknown) -> Diagnostic:
    remedy = suggestion(u.name, u.known, "objectives")
    return Diagnostic(f"unknown objective {u.name}", remedy, f"objectives[{u.place}]", code="unknown-choice")


def check_objectives(names: Sequence[str], costings: Sequence[Costing]) -> None:
    """Raises SpecError for an objective at a component that moves nothing under this mapping."""
    moving = {c for costing in costings for c, _, _ in costing.accesses}
    for name, component in ((n, c) for n in names for _, c in sorted(vocabulary.uses(n))):
        if component and component not in moving:
            what = f"objective {name}: {component} moves nothing under this mapping"
            raise wrong(what, "these do: " + ", ".join(sorted(moving)), code="unknown-name")


def objective(name: str, found: Found, block: Block, costing: Costing) -> Array:
    """The minimised value (`objectives.score`) of one objective over a block, broadcast.

    Counts are exact, other figures are float64.
    """
    sparse = vocabulary.on_sparse_data(name)
    figures = found.sparse if sparse else BlockFigures(found, block, costing)
    value = vocabulary.value(name, figures)
    return vocabulary.score(name, value.array if isinstance(value, Pooled | BlockCount) else value)


@dataclass(frozen=True)
class Pooled:
    """An array of a block, or a number, whose sums and products use the block's memory."""

    array: Array
    memory: Scratch

    def __add__(self, other: Pooled) -> Pooled:
        return Pooled(self.memory.apply(np.add, self.array, other.array), self.memory)

    def __mul__(self, other: Pooled) -> Pooled:
        return Pooled(self.memory.apply(np.multiply, self.array, other.array), self.memory)

    def __rmul__(self, weight: float) -> Pooled:
        return Pooled(weight * self.array, self.memory)


@dataclass(frozen=True)
class BlockCount:
    """Exact counts of a block, whose sums use the block's memory."""

    count: Count
    memory: Scratch

    @property
    def array(self) -> Array:
        return self.count.array

    def __add__(self, other: BlockCount) -> BlockCount:
        return BlockCount(self.count.plus(other.count, self.memory), self.memory)

    def __rmul__(self, weight: float) -> Pooled:
        """A term of a weighted sum, whose terms have different units: no longer exact."""
        return Pooled(weight * _float(self.array), self.memory)


class BlockFigures:
    """`objectives.Figures` of one block of points on dense data."""

    def __init__(self, found: Found, block: Block, costing: Costing) -> None:
        self.found, self.block, self.costing = found, block, costing

    def _pooled(self, array: Array) -> Pooled:
        return Pooled(array, self.block.memory.values)

    @property
    def energy(self) -> Pooled:
        return self._pooled(self.found.energy)

    @property
    def latency(self) -> Pooled:
        return self._pooled(self.found.latency)

    @property
    def area(self) -> Pooled:
        return self._pooled(self.costing.area)

    @property
    def utilisation(self) -> Pooled:
        executed, places = (_float(self.block.linear(x)) for x in self.costing.slots)
        if not executed.ndim and not places.ndim:
            return self._pooled(float(executed) / float(places) if places > 0 else 0.0)
        with np.errstate(invalid="ignore"):
            return self._pooled(np.where(places > 0, np.divide(executed, places), 0.0))

    def moved(self, component: str, way: Literal["reads", "writes"]) -> BlockCount:
        values, total = self.block.memory.values, Count(0, 0)
        for c, kind, linear in self.costing.accesses:
            if (c, kind) == (component, way):
                total = total.plus(self.block.count(linear), values)
        return BlockCount(total, values)

    def busiest(self, component: str, way: Busy) -> BlockCount:
        raise InternalError("a sweep minimises nothing of busiest instances")

    def used(self, dimension: str) -> BlockCount:
        raise InternalError("only searches of a co-design ask how much of a fanout is in use")

    def working_set(self, component: str) -> BlockCount:
        phases = [limit.phases for limit in self.costing.limits if limit.name == component]
        count = largest_phase(phases[0], self.block) if phases else Count(0, 0)
        return BlockCount(count, self.block.memory.values)


def _float(value: Array) -> Array:
    return value.astype(np.float64, copy=False) if np.ndim(value) else np.float64(value)
