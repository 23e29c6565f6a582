"""What the costs of every point on sparse data consist of; `figures` computes them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from polymodel.analysis.result import Analysis, Problem, mapped
from polymodel.analysis.symbolic.forms import Form, HeldBuffet, SymbolicAnalysis
from polymodel.architecture.hierarchy import Component
from polymodel.errors import NotSeparable, Refused
from polymodel.frozen import dataclass
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
class PhaseBuffet:
    """One buffet of a phase: `ceil(bits / denominator) * count`."""

    node: int
    tensor: str
    bits: Linear
    denominator: int
    count: int


@dataclass(frozen=True)
class SparsePeak:
    """One working set that is compared with a memory's size: its phases, of which the largest dense one
    counts."""

    component: str
    phases: tuple[tuple[PhaseBuffet, ...], ...]


@dataclass(frozen=True)
class FormattedTile:
    """A buffet of a memory that keeps the tensor in a format: where its tiles are cut, and its dense size."""

    einsum: str
    component: str
    digits: frozenset[int]
    dense: Linear


@dataclass(frozen=True)
class SparsePlan:
    """One architecture's sparse costs over shared rows. `dense`: dense counts, as `Linear`s; `structures` and
    `columns` by Einsum; `tiles` by node and tensor."""

    problem: Problem
    costing: Costing
    data: Mapping[str, TensorData]
    formats: Formats
    dense: Analysis
    peaks: tuple[SparsePeak, ...]
    tiles: Mapping[tuple[int, str], FormattedTile]
    columns: Mapping[str, tuple[VariableColumn, ...]]
    structures: Mapping[str, Structures]


def known_data(problem: Problem, folder: str) -> dict[str, TensorData]:
    """The data or density of every tensor, from the workload."""
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
    """The sparse costs of every point of `forms`; new forms are added to `rows`.

    Raises NotSeparable or Refused where points have to be evaluated one by one.
    """
    try:
        require_plain(problem.cascade, "closed forms of sparse counts cover", "use engine exact")
    except Refused as refused:
        raise NotSeparable(refused.message, code=refused.code) from None
    cut = next((e for e in problem.cascade.einsums if not is_box(e)), None)
    if cut is not None:
        space = f"the iteration space of {cut.name} is not a box"
        raise NotSeparable(f"{space}, and its sparse counts go by points", code="unsupported-density")
    if forms.pipelines:
        message = "stages of a Pipeline overlap, and their slots on sparse data have no closed form"
        raise NotSeparable(message, code="unsupported-pipeline")
    data = known_data(problem, folder)
    given = [t for t, d in data.items() if d.actual is not None]
    if given:
        message = f"the nonzeros of {', '.join(given)} are given, and counted one by one"
        raise NotSeparable(message, code="unsupported-density")
    formats = Formats(problem)
    for c in problem.hierarchy.components:
        ruled = c.sparse is not None and c.sparse.fit != "expected"
        if ruled and any(name == c.name for name, _ in formats.known):
            message = f"{c.name} does not go by the expected bits of tiles (`fit:`)"
            raise NotSeparable(message, code="unsupported-density")
    peaks = [
        SparsePeak(w.component, tuple(tuple(_part(h, rows) for h in phase) for phase in w.peak.phases))
        for w in forms.working_sets
        if w.measure == problem.hierarchy[w.component].allocation
    ]
    columns = {e.name: columns_of(problem, e.name, axes, fixed) for e in problem.cascade.einsums}
    return SparsePlan(
        problem,
        costing,
        data,
        formats,
        _dense(forms, rows),
        tuple(peaks),
        _tiles(problem, forms, formats, rows),
        columns,
        {name: Structures(problem, name, mine, data) for name, mine in columns.items()},
    )


def on_another(plan: SparsePlan, problem: Problem, costing: Costing) -> SparsePlan | None:
    """The plan on another architecture, if that differs only in costs and sizes; otherwise None."""
    old, new = plan.problem, problem
    kinds = [[_structure(c) for c in p.hierarchy.components] for p in (old, new)]
    if kinds[0] != kinds[1] or old.cascade != new.cascade or old.tree != new.tree:
        return None
    return replace(plan, problem=problem, costing=costing)


def _structure(c: Component) -> tuple[object, ...]:
    """What sparse counts depend on."""
    return c.name, c.kind, c.sparse, c.spatial, c.read_first, c.allocation


def _dense(forms: SymbolicAnalysis, rows: FormRows) -> Analysis:
    """The dense counts that are priced on sparse data, each form as a row.

    No cost depends on how many instances move or compute.
    """

    def placed(records: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(mapped(x, Form, rows.add) for x in records)

    def of_all(records: Iterable[Any]) -> tuple[Any, ...]:
        return placed(replace(x, instances=1) for x in records)

    return Analysis(
        "symbolic",
        (),
        placed(forms.traffic),
        of_all(forms.compute),
        of_all(forms.loads),
        (),
        placed(forms.tolls),
        links=of_all(forms.links),
        refills=placed(forms.refills),
    )


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
) -> dict[tuple[int, str], FormattedTile]:
    result = {}
    for b in forms.buffets:
        if (b.component, b.tensor) in formats.known:
            einsum = b.einsums[0]
            bits = problem.cascade[einsum].access_of(b.tensor).bits_per_value
            digits = frozenset(i for i, _ in problem.tree.loops(einsum) if i < b.node)
            result[b.node, b.tensor] = FormattedTile(einsum, b.component, digits, rows.add(b.tile_max * bits))
    return result


def unbounded(size: float) -> bool:
    """True if nothing can exceed the size."""
    return math.isinf(size)
