"""What the costs of every point on sparse data are made of; the figures come from `found`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from polymodel.analysis.result import Analysis, InstanceLoad, LinkTraffic, Problem, RefillLoad
from polymodel.analysis.symbolic.forms import TRAFFIC, Form, HeldBuffet, SymbolicAnalysis
from polymodel.architecture.hierarchy import Component
from polymodel.cost.records import Counts
from polymodel.errors import NotSeparable
from polymodel.mapping.looptree import storage_chain
from polymodel.sparse.actions.data import TensorData
from polymodel.sparse.actions.inputs import tensor_data, tensors_in_use
from polymodel.sparse.actions.links import is_box
from polymodel.sparse.actions.storage import Formats
from polymodel.sweeps.axes import SymbolAxis
from polymodel.sweeps.plan import Costing, FormRows, Linear
from polymodel.sweeps.sparse.columns import VariableColumn, columns_of
from polymodel.sweeps.sparse.counts import Structures
from polymodel.workload.einsum import require_plain


@dataclass(frozen=True)
class Flow:
    """One kind of access: where it is and its dense elements."""

    einsum: str
    node: int
    component: str
    tensor: str
    kind: str
    dense: Linear


@dataclass(frozen=True)
class Pass:
    """One tensor's transfers past a toll."""

    einsum: str
    component: str
    tensor: str
    down: Linear
    up: Linear


@dataclass(frozen=True)
class Work:
    """Operations of one Einsum."""

    einsum: str
    component: str
    operations: Linear
    busiest: Linear


@dataclass(frozen=True)
class Load:
    """Bits that the busiest instance reads and writes; with `storage` those of its refills alone."""

    einsum: str
    component: str
    reads: Linear
    writes: Linear
    storage: str = ""


@dataclass(frozen=True)
class Cross:
    """What crosses the links of a dimension: element-hops by tensor, and bits down and up the busiest one."""

    einsum: str
    component: str
    dim: str
    hops: tuple[tuple[str, Linear], ...]
    loads: tuple[tuple[Linear, Linear], ...]


@dataclass(frozen=True)
class PhaseBuffet:
    """One buffet of a phase: `ceil(bits / denominator) * count`."""

    node: int
    tensor: str
    bits: Linear
    denominator: int
    count: int


@dataclass(frozen=True)
class SparsePeak:
    """One working set that a memory's size is checked with: its phases, the largest dense one counts."""

    component: str
    phases: tuple[tuple[PhaseBuffet, ...], ...]


@dataclass(frozen=True)
class Tile:
    """A buffet of a memory that keeps the tensor in a format: where its tiles are cut, and its dense size."""

    einsum: str
    component: str
    digits: frozenset[int]
    dense: Linear


@dataclass(frozen=True)
class SparsePlan:
    """One architecture's sparse costs over shared rows. `structures` and `columns` by Einsum; `outside`: by
    Einsum, component and tensor the storage node further out whose transfers pass; `tiles` by node and
    tensor."""

    counts: Counts
    costing: Costing
    data: Mapping[str, TensorData]
    formats: Formats
    flows: tuple[Flow, ...]
    passes: tuple[Pass, ...]
    work: tuple[Work, ...]
    loads: tuple[Load, ...]
    refills: tuple[Load, ...]
    links: tuple[Cross, ...]
    peaks: tuple[SparsePeak, ...]
    tiles: Mapping[tuple[int, str], Tile]
    outside: Mapping[tuple[str, str, str], int]
    columns: Mapping[str, tuple[VariableColumn, ...]]
    structures: Mapping[str, Structures]

    @property
    def problem(self) -> Problem:
        return self.counts.problem


def known_data(problem: Problem, folder: str) -> dict[str, TensorData]:
    """What the workload says of every tensor."""
    return tensor_data(problem.cascade, None, None, folder, tensors_in_use(problem))


def sparse_plan(
    problem: Problem,
    forms: SymbolicAnalysis,
    costing: Costing,
    rows: FormRows,
    axes: Sequence[SymbolAxis],
    fixed: Mapping[str, int],
    folder: str,
) -> SparsePlan:
    """The sparse costs of every point of `forms`; new forms go into `rows`.

    Raises NotSeparable or Refused where points have to be looked at one by one.
    """
    require_plain(
        problem.cascade, "sparse counts cover", "give the other accesses a tensor of their own"
    )
    cut = next((e for e in problem.cascade.einsums if not is_box(e)), None)
    if cut is not None:
        raise NotSeparable(f"the iteration space of {cut.name} is no box, and its sparse counts go by points")
    data = known_data(problem, folder)
    given = [t for t, d in data.items() if d.actual is not None]
    if given:
        raise NotSeparable(f"the nonzeros of {', '.join(given)} are given, and counted one by one")
    formats = Formats(problem)

    def add(form: Form) -> Linear:
        return rows.add(form)

    flows = [
        Flow(t.einsum, t.node, t.component, t.tensor, kind, add(getattr(t, kind)))
        for t in forms.traffic
        for kind in TRAFFIC
        if getattr(t, kind).terms
    ]
    peaks = [
        SparsePeak(w.component, tuple(tuple(_part(h, rows) for h in phase) for phase in w.peak.phases))
        for w in forms.working_sets
        if w.measure == problem.hierarchy[w.component].allocation
    ]
    columns = {e.name: columns_of(problem, e.name, axes, fixed) for e in problem.cascade.einsums}
    return SparsePlan(
        Counts(problem, Analysis("symbolic", (), (), (), (), ())),
        costing,
        data,
        formats,
        tuple(flows),
        tuple(Pass(t.einsum, t.component, t.tensor, add(t.down), add(t.up)) for t in forms.tolls),
        tuple(Work(c.einsum, c.component, add(c.operations), add(c.busiest)) for c in forms.compute),
        tuple(_load(x, "", rows) for x in forms.loads),
        tuple(_load(x, x.storage, rows) for x in forms.refills),
        tuple(_cross(x, rows) for x in forms.links),
        tuple(peaks),
        _tiles(problem, forms, formats, rows),
        _outside(problem),
        columns,
        {name: Structures(problem, name, mine, data) for name, mine in columns.items()},
    )


def on_another(plan: SparsePlan, problem: Problem, costing: Costing) -> SparsePlan | None:
    """The plan on another architecture, if that differs in costs and sizes only; else None."""
    old, new = plan.problem, problem
    kinds = [[_structure(c) for c in p.hierarchy.components] for p in (old, new)]
    if kinds[0] != kinds[1] or old.cascade != new.cascade or old.tree != new.tree:
        return None
    return replace(plan, counts=Counts(problem, plan.counts.analysis), costing=costing)


def _structure(c: Component) -> tuple[object, ...]:
    """What sparse counts depend on."""
    return c.name, c.kind, c.sparse, c.spatial, c.read_first, c.allocation


def _load(row: InstanceLoad[Form] | RefillLoad[Form], storage: str, rows: FormRows) -> Load:
    ((reads, writes),) = row.loads
    return Load(row.einsum, row.component, rows.add(reads), rows.add(writes), storage)


def _cross(row: LinkTraffic[Form], rows: FormRows) -> Cross:
    hops = tuple((tensor, rows.add(n)) for tensor, n in row.hops)
    loads = tuple((rows.add(down), rows.add(up)) for down, up in row.loads)
    return Cross(row.einsum, row.component, row.dim, hops, loads)


def _part(held: HeldBuffet, rows: FormRows) -> PhaseBuffet:
    return PhaseBuffet(
        held.node,
        held.tensor,
        rows.add(held.elements * (held.bits * held.numerator)),
        held.denominator,
        held.count,
    )


def _tiles(
    problem: Problem, forms: SymbolicAnalysis, formats: Formats, rows: FormRows
) -> dict[tuple[int, str], Tile]:
    found = {}
    for b in forms.buffets:
        if (b.component, b.tensor) in formats.known:
            einsum = b.einsums[0]
            bits = problem.cascade[einsum].access_of(b.tensor).bits_per_value
            digits = frozenset(i for i, _ in problem.tree.loops(einsum) if i < b.node)
            found[b.node, b.tensor] = Tile(einsum, b.component, digits, rows.add(b.tile_max * bits))
    return found


def _outside(problem: Problem) -> dict[tuple[str, str, str], int]:
    hierarchy = problem.hierarchy
    found = {}
    for e in problem.cascade.einsums:
        for tensor in e.tensors:
            chain = storage_chain(problem.tree, e.name, tensor)
            names = [(s.id, getattr(s.node, "component", "")) for s in chain]
            for c in hierarchy.components:
                nodes = [i for i, name in names if hierarchy.index(name) < hierarchy.index(c.name)]
                if nodes:
                    found[e.name, c.name, tensor] = nodes[-1]
    return found


def unbounded(size: float) -> bool:
    """True if nothing can be too large for it."""
    return math.isinf(size)
