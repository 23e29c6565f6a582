"""What costing returns: frozen records, every number with its unit in the docstring.

Counts are already multiplied by `n_instances`; integers are exact. Units: bits, operations,
joules, seconds, square metres.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from polymodel.analysis.result import Resident


@dataclass(frozen=True)
class EnergyItem:
    """Energy (J) of one action: `count` times `energy_each` (J per `unit`).

    `tensor` is empty for operations and leakage; for leakage `count` is instance-seconds.
    """

    einsum: str
    component: str
    tensor: str
    action: str
    count: int | float
    unit: Literal["bit", "bit-hop", "action", "operation", "second"]
    energy_each: float
    energy: float
    provenance: str


@dataclass(frozen=True)
class ComponentTime:
    """How long (s) a component's busiest instance works for one Einsum, all executions together.

    `read_bits` and `write_bits` are what that instance moves, in whole actions (for a toll or link:
    downwards and upwards), `operations` what it executes; `added` is the part of `seconds` that is
    `fill_drain_latency`. `cycles` is None without a clock. `instances` of the `available` ones do anything.
    """

    einsum: str
    component: str
    kind: str
    read_bits: int
    write_bits: int
    operations: int
    seconds: float
    added: float
    cycles: float | None
    instances: int
    available: int


@dataclass(frozen=True)
class Refill:
    """Time (s) that one single-buffered storage keeps everything else waiting while it is refilled."""

    einsum: str
    component: str
    seconds: float


@dataclass(frozen=True)
class EinsumTime:
    """Latency (s) of one Einsum, all executions: the slowest component's time plus all refills.

    `limiting` names that component, empty if nothing takes time; `operations` counts all executions. In a
    pipeline `seconds` are those of the slots that its stage sets, `overlapped` the whole pipeline's.
    """

    einsum: str
    seconds: float
    limiting: str
    operations: int
    n_instances: int
    refills: tuple[Refill, ...] = ()
    cycles: float | None = None
    overlapped: float | None = None

    @property
    def span(self) -> float:
        """Seconds over which it executes: its own, or those of the pipeline that it is in."""
        return self.seconds if self.overlapped is None else self.overlapped


@dataclass(frozen=True)
class StageTime:
    """What one stage of a pipeline does: slots in which it works, its busy time (s) in slots of each phase.

    `sets`: the time of the slots in which it is the slowest stage.
    """

    stage: int
    einsums: tuple[str, ...]
    slots: int
    fill: float
    steady: float
    drain: float
    sets: float

    @property
    def busy(self) -> float:
        return self.fill + self.steady + self.drain


@dataclass(frozen=True)
class PipelineTime:
    """How long (s) a pipeline (node id of its split) takes, all executions: slots and time of each phase.

    `booked`: (Einsum, what limits it, seconds) of the slots, which add up to the whole.
    """

    node: int
    stages: tuple[StageTime, ...]
    fill_slots: int
    steady_slots: int
    drain_slots: int
    fill: float
    steady: float
    drain: float
    booked: tuple[tuple[str, str, float], ...]

    @property
    def seconds(self) -> float:
        return self.fill + self.steady + self.drain

    @property
    def slots(self) -> int:
        return self.fill_slots + self.steady_slots + self.drain_slots

    @property
    def einsums(self) -> tuple[str, ...]:
        return tuple(e for stage in self.stages for e in stage.einsums)


@dataclass(frozen=True)
class AreaItem:
    """Area (m^2) of all instances of one component."""

    component: str
    instances: int
    area_each: float
    area: float
    provenance: str


@dataclass(frozen=True)
class Need:
    """What one component must hold at its peak during one Einsum, in bits of its busiest instance."""

    component: str
    einsum: str
    measure: str
    bits: int
    capacity_bits: float
    allocation: str
    residents: tuple[Resident, ...]

    @property
    def counts(self) -> bool:
        """True if this measure is the one that the capacity is checked with."""
        return self.measure == self.allocation

    @property
    def fits(self) -> bool:
        return self.bits <= self.capacity_bits

    @property
    def utilisation(self) -> float:
        """Need over capacity; 0 for an unbounded memory."""
        if math.isinf(self.capacity_bits):
            return 0.0
        return self.bits / self.capacity_bits if self.capacity_bits else math.inf


@dataclass(frozen=True)
class Violation:
    """A memory too small for what the mapping keeps in it; figures in bits."""

    component: str
    einsum: str
    tensors: tuple[str, ...]
    need_bits: int
    have_bits: float
    allocation: str

    def __str__(self) -> str:
        short = self.need_bits - self.have_bits
        return (
            f"{self.component} is too small during {self.einsum}: {', '.join(self.tensors)} need "
            f"{self.need_bits} bits ({self.allocation}), have {self.have_bits:.15g}, short of {short:.15g}"
        )


@dataclass(frozen=True)
class RooflinePoint:
    """Where one Einsum stands under its roof.

    `memory` is the outermost memory that it moves data at; `intensity` is operations per bit moved
    there, `bandwidth` those bits over that memory's busy time (bits/s), `peak` the operations/s of all
    compute instances, `attainable` the lower of the two roofs and `achieved` operations over latency.
    """

    einsum: str
    memory: str
    compute: str
    operations: int
    moved_bits: int
    intensity: float
    bandwidth: float
    peak: float
    attainable: float
    achieved: float
    limiting: str


@dataclass(frozen=True)
class Limiter:
    """One component in the race for an Einsum's latency; `rank` 1 is the slowest.

    `slack` (s) is how much slower it could be before it limits; `next_limiter` is the component that
    would limit if this one took no time, and `speedup` what the Einsum would gain by that. In a pipeline
    `slack` is how long the component rests, and `speedup` what the pipeline gains if it took no time at all.
    """

    einsum: str
    component: str
    rank: int
    seconds: float
    slack: float
    next_limiter: str
    speedup: float


@dataclass(frozen=True)
class Costs:
    """Everything that costing finds for one analysis."""

    energy: tuple[EnergyItem, ...]
    times: tuple[ComponentTime, ...]
    latency: tuple[EinsumTime, ...]
    area: tuple[AreaItem, ...]
    needs: tuple[Need, ...]
    violations: tuple[Violation, ...]
    roofline: tuple[RooflinePoint, ...]
    limiters: tuple[Limiter, ...]
    assume_overlap: bool = True
    pipelines: tuple[PipelineTime, ...] = ()

    def __repr__(self) -> str:
        """What is in it; `energy`, `times` and the others have the figures."""
        fits = f"{len(self.violations)} violations" if self.violations else "feasible"
        return f"Costs({fits}, latency {self.total_latency:.6g} s, energy {self.total_energy:.6g} J)"

    @property
    def total_energy(self) -> float:
        """Joules."""
        return math.fsum(i.energy for i in self.energy)

    @property
    def total_latency(self) -> float:
        """Seconds; branches run one after the other, those of pipelines overlap."""
        return math.fsum(t.seconds for t in self.latency)

    @property
    def total_area(self) -> float:
        """Square metres."""
        return math.fsum(a.area for a in self.area)
