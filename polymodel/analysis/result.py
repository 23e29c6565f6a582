"""The input and output of an engine: a problem, and the records of its counts.

Counts are numbers of elements (or operations), summed over all instances and all iterations, for ONE
execution of each Einsum: `n_instances` is applied later, in `cost`. Integers are exact. Records that closed
forms share are generic in their number `N`: an integer unless stated otherwise, or a form of tile-size
symbols.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Generic, Protocol

from polymodel.architecture.hierarchy import ActionCost, Component, Hierarchy
from polymodel.errors import Refused
from polymodel.frozen import dataclass
from polymodel.mapping.looptree import LoopTree, PipelineSplit, StorageNode, pipelines, shared_units
from polymodel.reuse import Reuse
from polymodel.spec.faults import check_classes
from polymodel.workload.einsum import Cascade

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    N = TypeVar("N", default=int)
else:
    from typing import TypeVar

    N = TypeVar("N")


NO_ELEMENT: Any = 0  # 0 for any kind of number


def _added(a: N, b: N) -> N:
    """The sum of two numbers of one kind."""
    one: Any = a
    total: N = one + b
    return total


def mapped(record: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """The record with `change` applied to every number of this kind, also in pairs of loads."""

    def changed(value: Any) -> Any:
        if isinstance(value, kind):
            return change(value)
        return tuple(map(changed, value)) if isinstance(value, tuple) else value

    # `replace` looks for fields twice; these records have no others than those.
    return type(record)(**{n: changed(getattr(record, n)) for n in record.__dataclass_fields__})


@dataclass(frozen=True)
class Buffet(Generic[N]):
    """One tensor in one storage node. Sizes in elements, before `backing_scale` or n_instances.

    `einsums`: users of the tensor below the node, in execution order. `parent`: id of the storage node that
    it is filled from, None for the backing (outermost) node. `tile_max`, `tile_total`: maximum and sum of the
    tile size over all (time, instance) stamps with a nonempty tile; `visits`: the number of such stamps;
    `instances`: the number of instances that ever hold anything; `distinct`: the number of distinct elements
    ever held. `live`: peak number of elements between first and last use, None unless requested
    (`analyse(..., live=True)`).
    """

    node: int
    component: str
    tensor: str
    reuse: Reuse
    einsums: tuple[str, ...]
    parent: int | None
    tile_max: N
    tile_total: N
    visits: N
    instances: N
    distinct: N
    live: int | None = None

    @property
    def tile_average(self: Buffet[int]) -> Fraction:
        return Fraction(self.tile_total, self.visits) if self.visits else Fraction(0)


@dataclass(frozen=True)
class Traffic(Generic[N]):
    """Accesses of one tensor at one storage node, booked to one Einsum.

    `reads_fill`: reads here that serve fills of storage below, or operands of compute (also the
    partial sums that compute reads). `reads_drain`: reads here that move outputs to the parent.
    `writes_fill`: writes here by fills from the parent. `writes_drain`: writes here by drains from
    below or by compute. reads = reads_fill + reads_drain, writes = writes_fill + writes_drain.
    """

    einsum: str
    node: int
    component: str
    tensor: str
    reads_fill: N = NO_ELEMENT
    reads_drain: N = NO_ELEMENT
    writes_fill: N = NO_ELEMENT
    writes_drain: N = NO_ELEMENT

    @property
    def reads(self) -> N:
        return _added(self.reads_fill, self.reads_drain)

    @property
    def writes(self) -> N:
        return _added(self.writes_fill, self.writes_drain)


@dataclass(frozen=True)
class TollTraffic(Generic[N]):
    """Elements of one tensor that pass a toll, booked to one Einsum: downwards and upwards."""

    einsum: str
    component: str
    tensor: str
    down: N = NO_ELEMENT
    up: N = NO_ELEMENT


@dataclass(frozen=True)
class ComputeCounts(Generic[N]):
    """Operations of one Einsum; `busiest`: of the instance that executes most of them. `dense`: both, with
    what sparse data leave out."""

    einsum: str
    component: str
    operations: N
    busiest: N
    instances: N
    dense: tuple[N, N] | None = None

    @property
    def every(self) -> tuple[N, N]:
        """Operations, and those of the busiest instance, including what sparse data leave out."""
        return (self.operations, self.busiest) if self.dense is None else self.dense


@dataclass(frozen=True)
class InstanceLoad(Generic[N]):
    """What the busiest instances of a memory or toll move for one Einsum, in bits of whole actions.

    `loads`: the Pareto-maximal (read bits, write bits) pairs over the instances, sorted; a latency that is
    monotone in both attains its maximum at one of them; in closed forms the pair of the first instance, which
    is the busiest. `instances`: how many move anything. `dense`: on sparse data, what all would move without
    zeros, if known: a component with fewer bits, even none, still works.
    """

    einsum: str
    component: str
    loads: tuple[tuple[N, N], ...]
    instances: N
    dense: N | None = None

    @property
    def there(self) -> N:
        """A count that is positive if the component does any work for the Einsum."""
        if self.dense is not None:
            return self.dense
        moved: N = NO_ELEMENT
        for reads, writes in self.loads:
            moved = _added(moved, _added(reads, writes))
        return moved


@dataclass(frozen=True)
class LinkTraffic(Generic[N]):
    """Traffic across the interconnect of one fanout dimension, if its link has a cost.

    `hops`: (tensor, element-hops) in the Einsum's order of tensors. `loads` (only where the link takes time):
    the Pareto-maximal (bits down, bits up) pairs over the links at which data enter; no other link carries
    more. `instances`: how many of these links carry anything. `reach` (only with a latency of hops): the
    instances along the dimension up to the farthest one that anything reaches or comes from.
    """

    einsum: str
    component: str
    dim: str
    hops: tuple[tuple[str, N], ...]
    loads: tuple[tuple[N, N], ...] = ()
    instances: N = NO_ELEMENT
    reach: N = NO_ELEMENT


@dataclass(frozen=True)
class RefillLoad(Generic[N]):
    """One end of the refills of one single-buffered storage; only under `assume_overlap: false`.

    `loads`: the Pareto-maximal (read bits, write bits) pairs that refills of `storage` move at an instance of
    `component` (the storage itself or a parent). If `storage` is empty: the rest of the component's work, for
    components that are an end of any refill.
    """

    einsum: str
    component: str
    storage: str
    loads: tuple[tuple[N, N], ...]


@dataclass(frozen=True)
class Resident:
    """One buffet that is resident at a peak; bits in the busiest instance."""

    node: int
    tensor: str
    bits: int


@dataclass(frozen=True)
class WorkingSet:
    """The peak of one component over the phases of one Einsum's branch, with its residents.

    `measure`: `tile` (lifetimes respected), `live` (joint element count) or `reserved` (nodes above a split
    count in all branches). Persistent tensors count n_instances times; tiles that a double-buffered memory
    refills count twice under `assume_overlap: false`.
    """

    component: str
    einsum: str
    measure: str
    bits: int
    residents: tuple[Resident, ...]


@dataclass(frozen=True)
class TransferSizes:
    """Sizes of the transfers that an action rounds up, as sorted (elements, number of transfers).

    Only where an action of the component has a `bits_per_action` that does not divide the tensor's bits.
    `kind`: the name of a count of `Traffic`; at a toll `down` or `up`, with `node` None. Without a memory's
    accesses by compute, which are of single values.
    """

    einsum: str
    node: int | None
    component: str
    tensor: str
    kind: str
    sizes: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class WholeActions(Generic[N]):
    """Actions of the rounded transfers of one kind, which closed forms have instead of `TransferSizes`."""

    einsum: str
    node: int
    component: str
    tensor: str
    kind: str
    actions: N


@dataclass(frozen=True)
class StageWork:
    """The work of one Einsum in one slot of a pipeline, for one execution.

    `operations`: those of the busiest instance. `loads`: for each memory and toll that moves anything,
    outermost first, the Pareto-maximal (read bits, write bits) pairs over its instances.
    """

    einsum: str
    operations: int
    loads: tuple[tuple[str, tuple[tuple[int, int], ...]], ...]


@dataclass(frozen=True)
class PipelineSlot:
    """`count` equal slots of a pipeline: per stage, what runs in sequence (empty: idle).

    `phase`: `fill`, `steady` or `drain`. `shared`: the joint loads of components that several stages load.
    """

    phase: str
    count: int
    stages: tuple[tuple[StageWork | PipelineRun, ...], ...]
    shared: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = ()


@dataclass(frozen=True)
class PipelineRun:
    """All slots of a pipeline (`node`: id of its split); of a pipeline inside a stage, those of one iteration
    there.

    See docs/semantics.md, Pipelines. Equal slots are one record, without an order in time.
    """

    node: int
    slots: tuple[PipelineSlot, ...]


@dataclass(frozen=True)
class Charge:
    """An action besides reads, writes and operations, for one execution: `count` in bits (compute:
    operations).

    Only on sparse data: gated accesses and metadata transfers.
    """

    einsum: str
    component: str
    tensor: str
    action: str
    count: float


def ordered_slots(counts: dict[PipelineSlot, int]) -> tuple[PipelineSlot, ...]:
    """Slots with their counts: fill first, then steady and drain, in a canonical order."""
    order = ("fill", "steady", "drain")
    slots = (replace(slot, count=n) for slot, n in counts.items())
    return tuple(sorted(slots, key=lambda s: (order.index(s.phase), repr(s))))


def phase_of(slot: int, iterations: int, stages: int) -> str:
    """The phase of a slot among `iterations` of a pipeline: fill, steady or drain."""
    if slot >= iterations:
        return "drain"
    return "fill" if slot < stages - 1 else "steady"


@dataclass(frozen=True)
class Analysis:
    """Everything that an engine counts for one spec. Tuples are sorted by tree order, then tensor order.

    `pipelines`: those that are not in a stage of another.
    """

    engine: str
    buffets: tuple[Buffet, ...]
    traffic: tuple[Traffic, ...]
    compute: tuple[ComputeCounts, ...]
    loads: tuple[InstanceLoad, ...]
    working_sets: tuple[WorkingSet, ...]
    tolls: tuple[TollTraffic, ...] = ()
    notes: tuple[str, ...] = ()
    links: tuple[LinkTraffic, ...] = ()
    refills: tuple[RefillLoad, ...] = ()
    transfers: tuple[TransferSizes, ...] = ()
    pipelines: tuple[PipelineRun, ...] = ()
    charges: tuple[Charge, ...] = ()
    whole: tuple[WholeActions, ...] = ()

    def __repr__(self) -> str:
        """A summary; `buffets`, `traffic` and the other fields have the figures."""
        names = ", ".join(dict.fromkeys(c.einsum for c in self.compute))
        return f"Analysis({self.engine}: {names}; {len(self.buffets)} tensors in storage nodes)"


def mapped_analysis(analysis: Analysis, kind: type, change: Callable[[Any], Any]) -> Analysis:
    """The analysis with `change` applied to every number of this kind."""
    rows = {f.name: getattr(analysis, f.name) for f in fields(analysis) if f.name not in ("engine", "notes")}
    new: dict[str, Any] = {n: tuple(mapped(x, kind, change) for x in r) for n, r in rows.items()}
    return replace(analysis, **new)


# The protocol of all engines, and their input.


@dataclass(frozen=True)
class Problem:
    """A checked workload, architecture and mapping (every tile shape a number)."""

    cascade: Cascade
    hierarchy: Hierarchy
    tree: LoopTree

    def __post_init__(self) -> None:
        remedy = "pm.Problem(spec.workload, spec.arch, spec.mapping)"
        check_classes(self, remedy, {"cascade": Cascade, "hierarchy": Hierarchy, "tree": LoopTree})

    def rounding(self) -> Iterator[tuple[Component, str, ActionCost]]:
        """(component, tensor, action) wherever moving the tensor may take more bits than it has."""
        held = [n for _, n, _ in self.tree.walk() if isinstance(n, StorageNode)]
        for c in self.hierarchy.components:
            actions = [a for a in (c.ways if c.moves else ()) if a.bits_per_action is not None]
            for tensor in self.cascade.tensors if actions else ():
                users = [e for e in self.cascade.einsums if tensor in e.tensors]
                stored = any(n.component == c.name and tensor in n.tensors for n in held)
                kept = c.passes and c.keep is not None
                if stored or (kept and any(tensor in c.keep.tensors(e.name) for e in users if c.keep)):
                    bits = users[0].access_of(tensor).bits_per_value
                    yield from ((c, tensor, a) for a in actions if a.rounds(bits))


class Engine(Protocol):
    """A counting engine.

    `reuse` overrides every storage node's policy; `live` adds element-level lifetimes.
    """

    name: str

    def analyse(self, problem: Problem, *, reuse: str | None = None, live: bool = False) -> Analysis:
        """Count a mapping that has passed `schedule.legality.require_legal`, as in `evaluate`.

        Legality is not checked again: on an illegal mapping an engine may count what no hardware could
        execute.
        """
        ...

    def traffic(self, problem: Problem, *, reuse: str | None = None) -> tuple[Traffic, ...]:
        """The traffic that `analyse` counts, without the rest."""
        ...


# What no engine supports in pipelines; it is refused before any of them begins.


def pipelines_of(problem: Problem) -> tuple[PipelineSplit, ...]:
    """The pipelines of the mapping, outer ones first. Raises Refused for what docs/semantics.md excludes."""
    result = pipelines(problem.tree)
    if not result:
        return ()
    idle = [e.name for e in problem.cascade.einsums if e.is_copy]
    for p, unit, one, other in shared_units(problem.tree, idle):
        raise Refused(
            f"stages of the Pipeline (node {p.node}) share a compute unit: {one} and {other} both execute "
            f"on {unit}",
            f"let {other} execute on another compute unit, or write Sequential",
            code="unsupported-pipeline",
        )
    for p in result:
        _refuse_instances(problem, p)
    _refuse_components(problem, result)
    return result


def _refuse_instances(problem: Problem, p: PipelineSplit) -> None:
    counts = {problem.cascade[e].n_instances: e for e in reversed(p.einsums)}
    if len(counts) > 1:
        named = " and ".join(f"{e} ({n})" for n, e in sorted(counts.items()))
        message = f"Einsums of the Pipeline (node {p.node}) execute different numbers of times: {named}"
        remedy = "give them the same n_instances, or write Sequential"
        raise Refused(message, remedy, code="unsupported-pipeline")


def _refuse_components(problem: Problem, found: tuple[PipelineSplit, ...]) -> None:
    hierarchy = problem.hierarchy
    below = {e for p in found for e in p.einsums}
    tensors = {t for e in below for t in problem.cascade[e].tensors}
    paths = [s.node for e in below for s in problem.tree.path(e)]
    held = {n.component for n in paths if isinstance(n, StorageNode)}
    waiting = [c for c in sorted(held) if hierarchy.waits(c)]
    if waiting:
        raise Refused(
            f"refills of {waiting[0]} wait (assume_overlap: false, buffering: single), which is not "
            "evaluated in a Pipeline",
            "use buffering: double or assume_overlap: true, or write Sequential",
            code="unsupported-pipeline",
        )
    lively = [c for c in sorted(held) if hierarchy[c].allocation == "live"]
    if lively:
        raise Refused(
            f"{lively[0]} has allocation: live, and stages of a Pipeline have no common order of operations",
            "use allocation: tile, or write Sequential",
            code="unsupported-pipeline",
        )
    for component, dim in hierarchy.costly_links:
        if dim.link is not None and dim.link.timed:
            kind = "a throughput" if dim.link.hop_latency == 0 else "a latency of hops"
            raise Refused(
                f"the link of {component}.{dim.name} has {kind}, which is not evaluated in a Pipeline",
                "leave out throughput and hop_latency of the link, or write Sequential",
                code="unsupported-pipeline",
            )
    for c, tensor, action in problem.rounding():
        if tensor in tensors:
            raise Refused(
                f"{c.name} moves {action.bits_per_action} bits per {action.name}, which does not divide the "
                f"bits of {tensor}: rounded transfers are not evaluated in a Pipeline",
                "give bits_per_action that divide bits_per_value, or write Sequential",
                code="unsupported-pipeline",
            )
