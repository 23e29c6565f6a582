"""Inputs and outputs of the cost rules: look-ups in counts, and frozen records of costs.

Counts are already multiplied by `n_instances`; integers are exact. Units: bits, operations, joules, seconds,
square metres; every docstring states the unit of its number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Literal

from polymodel.analysis.result import Analysis, Problem, Resident, TollTraffic, Traffic
from polymodel.architecture.hierarchy import ActionCost, Component, Hierarchy, link_name
from polymodel.arithmetic import OPERATORS, is_priced, names_of
from polymodel.cost.algebra import NUMBERS, Algebra, Number, nothing
from polymodel.errors import Refused
from polymodel.frozen import dataclass
from polymodel.mapping.looptree import StorageNode, storage_chain
from polymodel.polyhedra.sets import size
from polymodel.quantities import data_amount, data_unit
from polymodel.spec.expressions import operators_named
from polymodel.workload.einsum import Einsum, TensorAccess


@dataclass(frozen=True)
class EnergyItem:
    """Energy (J) of one action: `count` times `energy_each` (J per `unit`).

    `tensor` is empty for operations and leakage; for leakage `count` is in instance-seconds.
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
    """Busy time (s) of a component's busiest instance for one Einsum, over all executions.

    `read_bits`, `write_bits`: what that instance moves, in whole actions (for a toll or link: downwards and
    upwards); `operations`: what it executes; `added`: the part of `seconds` that is `fill_drain_latency`.
    `cycles`: None without a clock. `instances`: how many of the `available` ones do anything.
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
    """Time (s) for which a single-buffered storage stalls everything else while it is refilled."""

    einsum: str
    component: str
    seconds: float


@dataclass(frozen=True)
class EinsumTime:
    """Latency (s) of one Einsum over all executions: the slowest component's time plus all refills.

    `limiting`: that component, empty if nothing takes time; `operations`: those of all executions. In a
    pipeline `seconds` is the time of the slots that its stage determines, and `overlapped` that of the whole
    pipeline.
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
        """Seconds over which it executes: its own, or those of its pipeline."""
        return self.seconds if self.overlapped is None else self.overlapped


@dataclass(frozen=True)
class StageTime:
    """One stage of a pipeline: the slots in which it works, and its busy time (s) in slots of each phase.

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
    """Time (s) of a pipeline (`node`: id of its split) over all executions: slots and time of each phase.

    `booked`: (Einsum, limiting component, seconds) of the slots, which add up to the total.
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
        """True if the capacity is checked with this measure."""
        return self.measure == self.allocation

    @property
    def fits(self) -> bool:
        return self.bits <= self.capacity_bits

    @property
    def utilisation(self) -> float:
        """Need divided by capacity; 0 for an unbounded memory."""
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


LISTED = 3  # violations of one memory that are listed one by one


def violation_lines(violations: Iterable[CapacityViolation]) -> tuple[str, ...]:
    """A line per violation; for a memory with many, the number of Einsums and the worst of them."""
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
    """The roofline point of one Einsum, or of a group of fused ones (`einsum` names all of them).

    `memory`: the outermost memory at which it moves data; `intensity`: operations per bit moved there;
    `bandwidth`: those bits divided by that memory's busy time (bits/s); `peak`: operations/s of all compute
    instances; `attainable`: the lower of the two roofs; `achieved`: operations divided by latency.
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
    """One component that an Einsum's latency may depend on; `rank` 1 is the slowest.

    `slack` (s): how much slower it could be before it limits; `next_limiter`: the component that would limit
    if this one took no time; `speedup`: what the Einsum would gain by that. In a pipeline `slack` is the
    component's idle time, and `speedup` what the pipeline gains if the component took no time.
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
    """All costs of one analysis."""

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
        """A summary; `energy`, `times` and the other fields have the figures."""
        fits = f"{len(self.violations)} violations" if self.violations else "feasible"
        return f"Costs({fits}, latency {self.total_latency:.6g} s, energy {self.total_energy:.6g} J)"

    @property
    def total_energy(self) -> float:
        """Joules."""
        return math.fsum(i.energy for i in self.energy)

    @property
    def total_latency(self) -> float:
        """Seconds; branches run in sequence, except those of pipelines, which overlap."""
        return math.fsum(t.seconds for t in self.latency)

    @property
    def total_area(self) -> float:
        """Square metres."""
        return math.fsum(a.area for a in self.area)


# Look-ups shared by all cost rules.

# Accesses by compute at the innermost memory are of single values.
BY_VALUE = ("reads_fill", "writes_drain")


def execution_order(problem: Problem) -> tuple[str, ...]:
    """Einsums in order of execution; copies without a path are at their position in the cascade."""
    mapped = problem.tree.einsums
    return mapped + tuple(e.name for e in problem.cascade.einsums if e.name not in mapped)


def row_order(problem: Problem) -> Callable[[str, str], tuple[int, int]]:
    """Sort key of a row by its Einsum and its component or link (`PE.X`): execution order, outermost
    first."""
    names: list[str] = []
    for c in problem.hierarchy.components:
        names += [*(link_name(c.name, d.name) for d in c.spatial), c.name]
    level = {name: i for i, name in enumerate(names)}
    order = {name: i for i, name in enumerate(execution_order(problem))}
    return lambda einsum, component: (order[einsum], level[component])


def _equal(a: float, b: float) -> bool:
    """Equality: exact for integers, up to rounding for expected counts."""
    return a == b if isinstance(b, int) else math.isclose(a, b, rel_tol=1e-9)


@dataclass(frozen=True)
class ExecutedOperators:
    """The operators that one operation of an Einsum executes, with multiplicities: `own`, of the operation
    itself; `reduction`, which joins it with those before; `finish`, those of `populate`, which take each
    finished result, as a share of each operation."""

    own: tuple[tuple[str, int], ...] = ()
    reduction: tuple[tuple[str, int], ...] = ()
    finish: tuple[tuple[str, Fraction], ...] = ()

    @staticmethod
    def of(e: Einsum) -> ExecutedOperators:
        """The operators of an Einsum; a reduction that is its only operator is its own."""
        operations, output = dict(e.operations), e.outputs[0]
        joins = {*e.rank_variables} - {*output.variables}
        alone = len(e.operands) == 1 and operations.get("map") in (None, *names_of("identity"))
        reduction = operators_named(operations.get("reduce") or "add", 2) if joins and not alone else ()
        steps = [step.strip() for step in (operations.get("populate") or "").split(";") if step.strip()]
        if not steps:
            return ExecutedOperators(e.operators, reduction)
        share = Fraction(size(e.relation(output).range()), max(size(e.iteration_space), 1))
        found = [(name, times * share) for step in steps for name, times in operators_named(step, 1)]
        return ExecutedOperators(e.operators, reduction, tuple(found))

    @staticmethod
    def priced(e: Einsum, hierarchy: Hierarchy) -> ExecutedOperators:
        """The same where the costs of some compute unit depend on it; otherwise all Einsums are alike."""
        apart = any(c.by_operator for c in hierarchy.components) and not e.is_copy
        return ExecutedOperators.of(e) if apart else NO_OPERATORS


NO_OPERATORS = ExecutedOperators()


@dataclass(frozen=True)
class OperationCost:
    """What one operation of an Einsum consists of on a compute unit: actions in sequence, with
    repetitions; `finish`: those of a finished result, as a share of each operation."""

    actions: tuple[tuple[ActionCost, int], ...]
    finish: tuple[tuple[ActionCost, Fraction], ...] = ()

    @property
    def energy(self) -> float:
        """Joules, without those of finished results."""
        return sum(n * action.energy for action, n in self.actions)

    @property
    def finish_energy(self) -> float:
        """Joules of finished results per operation."""
        return sum(float(n) * action.energy for action, n in self.finish)

    @property
    def throughput(self) -> float:
        """Operations per second, without the time of finished results."""
        if len(self.actions) == 1:
            ((action, n),) = self.actions
            return action.throughput / n
        seconds = sum(n / action.throughput for action, n in self.actions)
        return 1 / seconds if seconds else math.inf

    @property
    def finish_seconds(self) -> float:
        """Seconds of finished results per operation."""
        return sum(float(n) / action.throughput for action, n in self.finish)

    def seconds(self, executed: Number, every: Number) -> Number:
        """Seconds of the executed operations; `every`: including those that sparse data leave out, since
        results are finished even then."""
        seconds: Number = executed / self.throughput
        return seconds + every * self.finish_seconds if self.finish else seconds


def operation_cost(unit: Component, operators: ExecutedOperators) -> OperationCost:
    """Each operator by its action; a unit without actions for operators takes one `compute` per operation.

    A reduction in addition to other operators, and the finishing of results, have a cost if the unit has an
    action for it. A sum after a product that `compute` executes is part of that: a multiply-accumulate.
    """
    compute = unit.action("compute")
    if not unit.by_operator:
        return OperationCost(((compute, 1),))
    found: dict[ActionCost, int] = {}
    for name, times in operators.own:
        action = _executing(unit, name) or compute
        found[action] = found.get(action, 0) + times
    found = found or {compute: 1}
    accumulates = operators.reduction == (("add", 1),) and {*found} == {compute}
    for name, times in operators.reduction if not accumulates else ():
        own = _executing(unit, name)
        if own is not None:
            found[own] = found.get(own, 0) + times
    finish = [(_executing(unit, name), times) for name, times in operators.finish]
    return OperationCost(tuple(found.items()), tuple((a, n) for a, n in finish if a is not None))


def _executing(unit: Component, operator: str) -> ActionCost | None:
    """The action named after an operator, or after its cost class; None if there is none."""
    named = {OPERATORS[a.name].name if a.name in OPERATORS else a.name: a for a in unit.actions}
    if operator in named:
        return named[operator]
    kind = OPERATORS[operator].cost if operator in OPERATORS else operator
    return next((a for a in unit.actions if a.name == kind and is_priced(kind)), None)


class Counts:
    """An indexed analysis with its problem. Its numbers are an engine's, or formulas (`in_formulas`)."""

    def __init__(self, problem: Problem, analysis: Analysis) -> None:
        self.problem = problem
        self.analysis = analysis
        self._operations: dict[tuple[str, str], OperationCost] = {}

    def __repr__(self) -> str:
        return f"Counts({self.analysis!r})"

    @cached_property
    def einsums(self) -> tuple[str, ...]:
        """Einsums in order of execution."""
        return execution_order(self.problem)

    def executions(self, einsum: str) -> int:
        return self.problem.cascade[einsum].n_instances

    def operation(self, einsum: str, component: str) -> OperationCost:
        """The cost of one operation of an Einsum on a compute unit."""
        found = self._operations.get((einsum, component))
        if found is None:
            operators = ExecutedOperators.priced(self.problem.cascade[einsum], self.problem.hierarchy)
            found = operation_cost(self.problem.hierarchy[component], operators)
            self._operations[einsum, component] = found
        return found

    @cached_property
    def accesses(self) -> dict[str, TensorAccess]:
        """Tensor -> its first access in the cascade, which has its bits per value."""
        result: dict[str, TensorAccess] = {}
        for e in self.problem.cascade.einsums:
            for a in e.accesses:
                result.setdefault(a.tensor, a)
        return result

    def bits(self, tensor: str) -> int:
        """Bits of one value of the tensor."""
        return self.accesses[tensor].bits_per_value

    def is_innermost(self, traffic: Traffic) -> bool:
        """True if the downward side of this traffic serves compute."""
        if self.problem.cascade[traffic.einsum].is_copy:
            return False
        chain = storage_chain(self.problem.tree, traffic.einsum, traffic.tensor)
        return bool(chain) and chain[-1].id == traffic.node

    def actions(self, moved: Traffic | TollTraffic, kind: str, action: ActionCost) -> Number:
        """The number of actions (or bits) for what `moved` counts under `kind`; transfers are rounded up.

        Raises Refused if the sizes of rounded transfers are unknown.
        """
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
        """(Einsum, node, tensor, kind) -> actions of rounded transfers."""
        return {(w.einsum, w.node, w.tensor, w.kind): w.actions for w in self.analysis.whole}

    @cached_property
    def parents(self) -> dict[tuple[int, str], int | None]:
        """(node, tensor) -> id of the storage node that it is filled from."""
        return {(b.node, b.tensor): b.parent for b in self.analysis.buffets}

    @cached_property
    def component_of(self) -> dict[int, str]:
        """Storage node id -> component."""
        walk = self.problem.tree.walk()
        return {i: node.component for i, node, _ in walk if isinstance(node, StorageNode)}


# The action of a component for a movement, and the number of whole actions that it takes. A memory and a toll
# have `read` (out of a memory, or down through a toll) and `write` (into a memory, or up through a toll);
# compute has `compute`. An action that a component does not declare is free.


def whole_actions(action: ActionCost, elements: Number, bits_per_value: int) -> Number:
    """The number of actions (bits, if an action is one bit) for elements moved one by one.

    Larger transfers take the same number if a value takes whole actions.
    """
    return elements * (action.whole_bits(bits_per_value) // (action.bits_per_action or 1))


def rounded_actions(action: ActionCost, sizes: Iterable[tuple[int, Number]], bits_per_value: int) -> Number:
    """The number of actions for transfers of these sizes: (elements, number of transfers)."""
    return sum(n * whole_actions(action, 1, elements * bits_per_value) for elements, n in sizes)


# Busy time of one instance's port.


def port_time(component: Component, moved: tuple[Number, Number], do: Algebra = NUMBERS) -> Number:
    """Seconds for (read bits, write bits) at one instance: the sum at a shared port, otherwise the larger
    one."""
    read, write = component.ways
    sides = moved[0] / read.throughput, moved[1] / write.throughput
    return sides[0] + sides[1] if component.ports == "shared" else do.largest(sides)


def slowest_pair(
    component: Component, loads: Sequence[tuple[Number, Number]], do: Algebra = NUMBERS
) -> tuple[Number, Number]:
    """The (read bits, write bits) of the slowest of several instances.

    The maximum of each where the slowest is undecided, as in closed forms.
    """
    if len(loads) == 1:
        return loads[0]
    if not do.slowest({str(k): port_time(component, pair, do) for k, pair in enumerate(loads)}):
        return do.largest(r for r, _ in loads), do.largest(w for _, w in loads)
    return max(loads, key=lambda pair: (port_time(component, pair, do), pair))


def busy_time(component: Component, moved: Number, seconds: Number, times: int, do: Algebra) -> Number:
    """Seconds of `times` executions: the work, plus `fill_drain_latency` if anything moves."""
    return (seconds + do.where_moved(moved, component.fill_drain_latency)) * times
