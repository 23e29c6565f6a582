"""What cost rules are given and what they return: look-ups in counts, and frozen records of costs.

Counts are already multiplied by `n_instances`; integers are exact. Units: bits, operations,
joules, seconds, square metres; every number has its unit in the docstring.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Literal

from polymodel.analysis.result import Analysis, Problem, Resident, TollTraffic, Traffic
from polymodel.architecture.hierarchy import ActionCost, Component, link_name
from polymodel.arithmetic import OPERATORS, is_priced
from polymodel.cost.algebra import NUMBERS, Algebra, Number, nothing
from polymodel.errors import Refused
from polymodel.frozen import dataclass
from polymodel.mapping.looptree import StorageNode, storage_chain
from polymodel.quantities import data_amount, data_unit
from polymodel.workload.einsum import TensorAccess


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
class CapacityViolation:
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
            f"{data_amount(self.need_bits)} {data_unit()} ({self.allocation}), "
            f"have {data_amount(self.have_bits)}, short of {data_amount(short)}"
        )


LISTED = 3  # violations of one memory that are told one by one


def violation_lines(violations: Iterable[CapacityViolation]) -> tuple[str, ...]:
    """What does not fit, by memory; where that is so in many Einsums, how many and the worst of them."""
    by_memory: dict[str, list[CapacityViolation]] = {}
    for v in violations:
        by_memory.setdefault(v.component, []).append(v)
    lines: list[str] = []
    for memory, mine in by_memory.items():
        if len(mine) <= LISTED:
            lines += map(str, mine)
            continue
        worst = sorted(mine, key=lambda v: v.have_bits - v.need_bits)[:LISTED]
        needs = ", ".join(f"{v.einsum} {data_amount(v.need_bits)} {data_unit()}" for v in worst)
        lines.append(
            f"{memory} is too small during {len(mine)} Einsums ({worst[0].allocation}): it has "
            f"{data_amount(worst[0].have_bits)}, and most is needed by {needs}; the table `summary` has all"
        )
    return tuple(lines)


@dataclass(frozen=True)
class RooflinePoint:
    """Where one Einsum, or a group of fused ones (`einsum` names all of them), stands under its roof.

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
    violations: tuple[CapacityViolation, ...]
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


# Look-ups that every part of costing shares.

# What compute reads and writes at the innermost memory moves value by value.
BY_VALUE = ("reads_fill", "writes_drain")


def execution_order(problem: Problem) -> tuple[str, ...]:
    """Einsums in order of execution; copies that no path holds come where the cascade has them."""
    mapped = problem.tree.einsums
    return mapped + tuple(e.name for e in problem.cascade.einsums if e.name not in mapped)


def row_order(problem: Problem) -> Callable[[str, str], tuple[int, int]]:
    """Sort key of a row by its Einsum and its component or link (`PE.X`): executed first, outermost first."""
    names: list[str] = []
    for c in problem.hierarchy.components:
        names += [*(link_name(c.name, d.name) for d in c.spatial), c.name]
    level = {name: i for i, name in enumerate(names)}
    order = {name: i for i, name in enumerate(execution_order(problem))}
    return lambda einsum, component: (order[einsum], level[component])


def _equal(a: float, b: float) -> bool:
    """Whole numbers exactly; expected counts but for rounding."""
    return a == b if isinstance(b, int) else math.isclose(a, b, rel_tol=1e-9)


@dataclass(frozen=True)
class OperationCost:
    """What one operation of an Einsum is on a compute unit: actions that follow each other, each so often."""

    actions: tuple[tuple[ActionCost, int], ...]

    @property
    def energy(self) -> float:
        """Joules."""
        return sum(n * action.energy for action, n in self.actions)

    @property
    def throughput(self) -> float:
        """Operations per second."""
        if len(self.actions) == 1:
            ((action, n),) = self.actions
            return action.throughput / n
        seconds = sum(n / action.throughput for action, n in self.actions)
        return 1 / seconds if seconds else math.inf


def operation_cost(unit: Component, operators: Iterable[tuple[str, int]]) -> OperationCost:
    """Each operator by its action; a unit that tells none apart takes one `compute` for an operation."""
    if not unit.by_operator:
        return OperationCost(((unit.action("compute"), 1),))
    found: dict[ActionCost, int] = {}
    for name, times in operators:
        action = _executing(unit, name)
        found[action] = found.get(action, 0) + times
    return OperationCost(tuple(found.items()) or ((unit.action("compute"), 1),))


def _executing(unit: Component, operator: str) -> ActionCost:
    """The action named after an operator, or after what it costs as, else `compute`."""
    named = {OPERATORS[a.name].name if a.name in OPERATORS else a.name: a for a in unit.actions}
    if operator in named:
        return named[operator]
    kind = OPERATORS[operator].cost if operator in OPERATORS else operator
    return next((a for a in unit.actions if a.name == kind and is_priced(kind)), unit.action("compute"))


class Counts:
    """One analysis with its problem, indexed. Its numbers are an engine's, or formulas (`in_formulas`)."""

    def __init__(self, problem: Problem, analysis: Analysis) -> None:
        self.problem = problem
        self.analysis = analysis

    def __repr__(self) -> str:
        return f"Counts({self.analysis!r})"

    @cached_property
    def einsums(self) -> tuple[str, ...]:
        """Einsums in order of execution."""
        return execution_order(self.problem)

    def executions(self, einsum: str) -> int:
        return self.problem.cascade[einsum].n_instances

    def operation(self, einsum: str, component: str) -> OperationCost:
        """What one operation of an Einsum is on a compute unit."""
        return operation_cost(self.problem.hierarchy[component], self.problem.cascade[einsum].operators)

    @cached_property
    def accesses(self) -> dict[str, TensorAccess]:
        """Tensor -> its first access in the cascade, which gives its bits per value."""
        result: dict[str, TensorAccess] = {}
        for e in self.problem.cascade.einsums:
            for a in e.accesses:
                result.setdefault(a.tensor, a)
        return result

    def bits(self, tensor: str) -> int:
        """Bits of one value of the tensor."""
        return self.accesses[tensor].bits_per_value

    def is_innermost(self, traffic: Traffic) -> bool:
        """True if compute is the child that this traffic's downward side serves."""
        if self.problem.cascade[traffic.einsum].is_copy:
            return False
        chain = storage_chain(self.problem.tree, traffic.einsum, traffic.tensor)
        return bool(chain) and chain[-1].id == traffic.node

    def actions(self, moved: Traffic | TollTraffic, kind: str, action: ActionCost) -> Number:
        """How many actions (or bits) take what `moved` counts under `kind`; transfers are rounded up."""
        elements: Number = getattr(moved, kind)
        bits = self.bits(moved.tensor)
        node = moved.node if isinstance(moved, Traffic) else None
        if not action.rounds(bits) or nothing(elements):
            return whole_actions(action, elements, bits)
        if isinstance(moved, Traffic) and kind in BY_VALUE and self.is_innermost(moved):
            return whole_actions(action, elements, bits)
        if (moved.einsum, node, moved.tensor, kind) in self.whole:
            return self.whole[moved.einsum, node, moved.tensor, kind]
        sizes = self.sizes.get((moved.einsum, node, moved.component, moved.tensor, kind), ())
        if not _equal(sum(size * n for size, n in sizes), elements):
            raise Refused(
                f"{moved.component}, {moved.tensor} in {moved.einsum}: {action.name} moves "
                f"{action.bits_per_action} bits per action, which does not divide {bits} bits per value, "
                f"and engine {self.analysis.engine} does not give the sizes of its transfers",
                "use engine exact, or give bits_per_action that divide bits_per_value",
                code="unsupported-rounding",
            )
        return rounded_actions(action, sizes, bits)

    @cached_property
    def sizes(self) -> dict[tuple[str, int | None, str, str, str], tuple[tuple[int, int], ...]]:
        """(Einsum, node or None, component, tensor, kind) -> sizes of the transfers that are rounded up."""
        return {(t.einsum, t.node, t.component, t.tensor, t.kind): t.sizes for t in self.analysis.transfers}

    @cached_property
    def whole(self) -> dict[tuple[str, int | None, str, str], Number]:
        """(Einsum, node, tensor, kind) -> actions that transfers take which are rounded up."""
        return {(w.einsum, w.node, w.tensor, w.kind): w.actions for w in self.analysis.whole}

    @cached_property
    def parents(self) -> dict[tuple[int, str], int | None]:
        """(node, tensor) -> id of the storage node it is filled from."""
        return {(b.node, b.tensor): b.parent for b in self.analysis.buffets}

    @cached_property
    def component_of(self) -> dict[int, str]:
        """Storage node id -> component."""
        walk = self.problem.tree.walk()
        return {i: node.component for i, node, _ in walk if isinstance(node, StorageNode)}


# Which action of a component a movement is, and how many whole actions it takes.
#
# A memory and a toll have `read` (out of a memory or down through a toll) and `write` (into a memory or
# up through a toll), compute has `compute`. An action that a component does not name is free.


def whole_actions(action: ActionCost, elements: Number, bits_per_value: int) -> Number:
    """How many actions (bits, if the action is one bit) move elements one by one.

    So do larger transfers too, where a value takes whole actions.
    """
    return elements * (action.whole_bits(bits_per_value) // (action.bits_per_action or 1))


def rounded_actions(action: ActionCost, sizes: Iterable[tuple[int, Number]], bits_per_value: int) -> Number:
    """How many actions move transfers of these sizes: (elements, how many transfers)."""
    return sum(n * whole_actions(action, 1, elements * bits_per_value) for elements, n in sizes)


# How long one instance's port is busy.


def port_time(component: Component, moved: tuple[Number, Number], do: Algebra = NUMBERS) -> Number:
    """Seconds for (read bits, write bits) at one instance: the sum at a shared port, else the larger."""
    read, write = component.ways
    sides = moved[0] / read.throughput, moved[1] / write.throughput
    return sides[0] + sides[1] if component.ports == "shared" else do.largest(sides)


def slowest_pair(
    component: Component, loads: Sequence[tuple[Number, Number]], do: Algebra = NUMBERS
) -> tuple[Number, Number]:
    """Of several instances' (read bits, write bits) those that take longest; most of each where that is not
    decided, as in closed forms."""
    if len(loads) == 1:
        return loads[0]
    if not do.slowest({str(k): port_time(component, pair, do) for k, pair in enumerate(loads)}):
        return do.largest(r for r, _ in loads), do.largest(w for _, w in loads)
    return max(loads, key=lambda pair: (port_time(component, pair, do), pair))


def busy_time(component: Component, moved: Number, seconds: Number, times: int, do: Algebra) -> Number:
    """Seconds of `times` executions: those of the work, and `fill_drain_latency` if anything moves."""
    return (seconds + do.where_moved(moved, component.fill_drain_latency)) * times
