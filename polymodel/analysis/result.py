"""What an engine is given and what it returns: a problem, and the records of its counts.

Counts are numbers of elements (or operations), summed over all instances and all iterations,
for ONE execution of each Einsum: `n_instances` is applied later, in `cost`. Integers are exact.

Records that closed forms have as well are generic in their number `N`: an integer, unless it is said
otherwise, or a form of tile-size symbols.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from fractions import Fraction
from math import isinf
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


NO_ELEMENT: Any = 0  # whatever kind of number the others are


def _added(a: N, b: N) -> N:
    """The sum of two numbers of one kind."""
    one: Any = a
    total: N = one + b
    return total


def mapped(record: Any, kind: type, change: Callable[[Any], Any]) -> Any:
    """The record with every number of this kind changed, those in pairs of loads as well."""

    def changed(value: Any) -> Any:
        if isinstance(value, kind):
            return change(value)
        return tuple(map(changed, value)) if isinstance(value, tuple) else value

    return replace(record, **{f.name: changed(getattr(record, f.name)) for f in fields(record)})


@dataclass(frozen=True)
class Buffet(Generic[N]):
    """One tensor in one storage node. Sizes in elements, before `backing_scale` or n_instances.

    `einsums`: users of the tensor below the node, in execution order. `parent`: id of the storage
    node it is filled from, None for the backing (outermost) node. `tile_max`/`tile_total`: maximum
    and sum of the tile size over all (time, instance) stamps with a non-empty tile; `visits`: how
    many such stamps there are; `instances`: how many distinct instances ever hold anything;
    `distinct`: different elements ever held. `live`: peak number of elements between first and
    last use, None until asked for (`analyse(..., live=True)`).
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
    """Operations of one Einsum; `busiest`: of the instance that executes most of them."""

    einsum: str
    component: str
    operations: N
    busiest: N
    instances: N


@dataclass(frozen=True)
class InstanceLoad(Generic[N]):
    """What the busiest instances of a memory or toll move for one Einsum, in bits of whole actions.

    `loads`: the Pareto-maximal (read bits, write bits) pairs over the instances, sorted; any
    latency that grows in both is largest on one of them; of closed forms the pair of the first instance,
    the busiest. `instances`: how many move anything. `dense`: on sparse data what all would move without
    zeros, if that is known: with fewer bits a component works, even with none.
    """

    einsum: str
    component: str
    loads: tuple[tuple[N, N], ...]
    instances: N
    dense: N | None = None

    @property
    def there(self) -> N:
        """Above 0 wherever the component works for the Einsum."""
        if self.dense is not None:
            return self.dense
        moved: N = NO_ELEMENT
        for reads, writes in self.loads:
            moved = _added(moved, _added(reads, writes))
        return moved


@dataclass(frozen=True)
class LinkTraffic(Generic[N]):
    """What crosses the interconnect of one fanout dimension; only of dimensions whose link costs.

    `hops`: (tensor, element-hops) in the Einsum's order of tensors. `loads`, only with a finite throughput:
    the Pareto-maximal (bits down, bits up) pairs over the links at which data enter; no other link carries
    more. `instances`: how many of these links carry anything (0 without a throughput).
    """

    einsum: str
    component: str
    dim: str
    hops: tuple[tuple[str, N], ...]
    loads: tuple[tuple[N, N], ...] = ()
    instances: N = NO_ELEMENT


@dataclass(frozen=True)
class RefillLoad(Generic[N]):
    """One end of the refills of one single-buffered storage; only under `assume_overlap: false`.

    `loads`: the Pareto-maximal (read bits, write bits) pairs that refills of `storage` move at an instance of
    `component` (the storage itself or a parent). With `storage` empty: what is left of the component's work
    after all such refills, for components that are an end of any.
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
    """The peak of one component over the phases of one Einsum's branch, and who is in it.

    `measure`: `tile` (lifetimes respected), `live` (joint element count) or `reserved` (nodes
    above a split count in all branches). Persistent tensors count n_instances times, tiles that a
    double-buffered memory refills twice under `assume_overlap: false`.
    """

    component: str
    einsum: str
    measure: str
    bits: int
    residents: tuple[Resident, ...]


@dataclass(frozen=True)
class TransferSizes:
    """How large the transfers are that an action rounds up, as sorted (elements, how many transfers).

    Only where an action of the component has `bits_per_action` that does not divide the tensor's bits.
    `kind`: as the counts of `Traffic` are called, at a toll `down` or `up`; `node` is None there.
    A memory's accesses by compute are not among them: those go value by value.
    """

    einsum: str
    node: int | None
    component: str
    tensor: str
    kind: str
    sizes: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class WholeActions(Generic[N]):
    """How many actions the transfers of one kind take where they are rounded up: what closed forms give in
    place of `TransferSizes`."""

    einsum: str
    node: int
    component: str
    tensor: str
    kind: str
    actions: N


@dataclass(frozen=True)
class StageWork:
    """What one Einsum does in one slot of a pipeline, of one execution.

    `operations`: of the instance that executes most. `loads`: for each memory and toll that moves anything,
    outermost first, the Pareto-maximal (read bits, write bits) pairs over its instances.
    """

    einsum: str
    operations: int
    loads: tuple[tuple[str, tuple[tuple[int, int], ...]], ...]


@dataclass(frozen=True)
class PipelineSlot:
    """`count` equal slots of a pipeline: per stage, what runs one after the other (nothing: it is idle).

    `phase`: `fill`, `steady` or `drain`. `shared`: the joint loads of components that several stages load.
    """

    phase: str
    count: int
    stages: tuple[tuple[StageWork | PipelineRun, ...], ...]
    shared: tuple[tuple[str, tuple[tuple[int, int], ...]], ...] = ()


@dataclass(frozen=True)
class PipelineRun:
    """All slots of a pipeline (node id of its split), inside a stage: those of one iteration there.

    docs/semantics.md, Pipelines. Equal slots are one record, in no order of time.
    """

    node: int
    slots: tuple[PipelineSlot, ...]


@dataclass(frozen=True)
class Charge:
    """An action beside reads, writes and operations, of one execution: `count` in bits (compute: operations).

    Sparse data have them: turns that are gated, metadata that move. Dense analyses have none.
    """

    einsum: str
    component: str
    tensor: str
    action: str
    count: float


def ordered_slots(counts: dict[PipelineSlot, int]) -> tuple[PipelineSlot, ...]:
    """Slots (with count 1) and how many there are of each: fill first, then in an order of their own."""
    order = ("fill", "steady", "drain")
    slots = (replace(slot, count=n) for slot, n in counts.items())
    return tuple(sorted(slots, key=lambda s: (order.index(s.phase), repr(s))))


def phase_of(slot: int, iterations: int, stages: int) -> str:
    """Whether a slot of a wrap fills the pipeline, drains it, or neither."""
    if slot >= iterations:
        return "drain"
    return "fill" if slot < stages - 1 else "steady"


@dataclass(frozen=True)
class Analysis:
    """Everything an engine counts for one spec. Tuples are sorted by tree order, then tensor order.

    `pipelines`: those in no stage of another.
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
        """What is in it; `buffets`, `traffic` and the others have the figures."""
        names = ", ".join(dict.fromkeys(c.einsum for c in self.compute))
        return f"Analysis({self.engine}: {names}; {len(self.buffets)} tensors in storage nodes)"


def mapped_analysis(analysis: Analysis, kind: type, change: Callable[[Any], Any]) -> Analysis:
    """The analysis with every number of this kind changed."""
    rows = {f.name: getattr(analysis, f.name) for f in fields(analysis) if f.name not in ("engine", "notes")}
    new: dict[str, Any] = {n: tuple(mapped(x, kind, change) for x in r) for n, r in rows.items()}
    return replace(analysis, **new)


# The protocol that every engine follows, and the problem it is given.


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
    """`reuse` overrides every storage node's policy; `live` asks for element-level lifetimes."""

    name: str

    def analyse(self, problem: Problem, *, reuse: str | None = None, live: bool = False) -> Analysis:
        """Count a mapping that has passed the gate (`schedule.gate.require_legal`), as `evaluate` asks it.

        Legality is not asked again: called directly on an illegal mapping, an engine may count what no
        hardware could execute, and say nothing.
        """
        ...

    def traffic(self, problem: Problem, *, reuse: str | None = None) -> tuple[Traffic, ...]:
        """What `analyse` counts as traffic, without the rest."""
        ...


# What no engine counts of pipelines, refused by name before any of them begins.


def pipelines_of(problem: Problem) -> tuple[PipelineSplit, ...]:
    """The pipelines of the mapping, outer ones first; Refused for what docs/semantics.md leaves out."""
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
        if dim.link is not None and not isinf(dim.link.throughput):
            raise Refused(
                f"the link of {component}.{dim.name} has a throughput, which is not evaluated in a Pipeline",
                "leave out the throughput of the link, or write Sequential",
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
