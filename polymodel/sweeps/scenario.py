"""One mapping of a sweep, compiled: its axes, its kernel and the costs of each architecture."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np

from polymodel.analysis.result import Analysis, Problem
from polymodel.analysis.symbolic import closed_counts
from polymodel.analysis.symbolic.forms import SymbolicAnalysis
from polymodel.cost.costs import costs
from polymodel.cost.records import Costs
from polymodel.errors import NotSeparable, SpecError
from polymodel.frozen import dataclass
from polymodel.loading import Spec
from polymodel.mapping.resolve import ResolvedMapping, bind_tree, unbound_symbols
from polymodel.spec.faults import Faults
from polymodel.sweeps.axes import SymbolAxis, make_axes
from polymodel.sweeps.expressions import SymbolConstraint
from polymodel.sweeps.grid import Grid, SymbolRoles, SymbolUses
from polymodel.sweeps.kernel import ArrayKernel
from polymodel.sweeps.legal import Illegal, illegal
from polymodel.sweeps.metrics import Block, Evaluator, LimitTables
from polymodel.sweeps.plan import Costing, FormRows, costing, values_of
from polymodel.sweeps.values import Number, wrong


@dataclass(frozen=True)
class Variant:
    """One architecture: its share of the point number, its symbols, and its costs."""

    share: int
    given: Mapping[str, Number]
    problem: Problem
    costing: Costing
    evaluator: Evaluator


@dataclass(frozen=True)
class Scenario:
    """One mapping under one choice of block symbols.

    `mapping`, `name`: its number and name; `first`: its first point number; `unfit`: reasons why other
    architectures are not among the variants; `illegal`: points that break a dependence.
    """

    mapping: int
    name: str
    first: int
    given: Mapping[str, Number]
    spec: Spec
    forms: SymbolicAnalysis
    axes: tuple[SymbolAxis, ...]
    rows: FormRows
    variants: tuple[Variant, ...]
    fixed: Mapping[str, int]
    unfit: tuple[str, ...] = ()
    illegal: Illegal | None = None

    @cached_property
    def kernel(self) -> ArrayKernel:
        return ArrayKernel(self.axes, self.rows, self.fixed)

    @cached_property
    def tables(self) -> LimitTables:
        return LimitTables(self.kernel)

    @property
    def legal(self) -> int:
        """The number of points of one variant with legal tiles that satisfy the axes' constraints and are not
        pruned."""
        return math.prod(a.size for a in self.axes)

    @property
    def points(self) -> int:
        """The number of points that are evaluated."""
        return self.legal * len(self.variants)

    @property
    def pruned(self) -> int:
        """The number of points that satisfy the axes' constraints but are pruned."""
        return math.prod(a.size + a.pruned for a in self.axes) * len(self.variants) - self.points

    @property
    def skipped(self) -> int:
        """The number of points that take no time: illegal, constrained or pruned ones."""
        whole = math.prod(a.whole for a in self.axes)
        return whole * (len(self.variants) + len(self.unfit)) - self.points

    def constrained_symbols(self, grid: Grid) -> frozenset[str]:
        """Independent symbols that constraints tie to other axes or to the architecture."""
        uses = SymbolUses(grid, _texts(self.spec, dict(grid.linked)))
        return frozenset(n for c in self.crossing(grid) for n in uses.of_all(c.names))

    def crossing(self, grid: Grid) -> list[SymbolConstraint]:
        """`where` constraints that involve several axes or the architecture."""
        uses = SymbolUses(grid, _texts(self.spec, dict(grid.linked)))
        sets = [frozenset(a.names) for a in self.axes]
        used = ((c, uses.of_all(c.names)) for c in grid.where)
        return [c for c, names in used if not any(names and names <= s for s in sets)]

    def exact(self, variant: Variant, point: Mapping[str, Number]) -> tuple[Analysis, Costs]:
        """Counts and costs at a point, by the code of `evaluate`."""
        analysis = self.forms.at(self.values(point))
        return analysis, costs(variant.problem, analysis)

    def values(self, point: Mapping[str, Number]) -> dict[str, int]:
        """The integers among all symbols at a point."""
        texts = _texts(self.spec, {})
        values = {**self.fixed, **{n: int(v) for n, v in point.items() if v == v // 1}}
        for name in texts.keys() - values.keys():
            found = self.spec.bind(**{n: v for n, v in point.items() if n in self.spec.symbols}).symbols[name]
            if found is not None and found == found // 1:
                values[name] = int(found)
        return values


def _texts(spec: Spec, linked: Mapping[str, str]) -> dict[str, str]:
    return {
        **{n: t for n, t in spec.declared.items() if isinstance(t, str) and n not in spec.given},
        **linked,
    }


@dataclass(frozen=True)
class MappingForms:
    """Closed forms of one mapping under one choice of block symbols, for any tile sizes.

    `architectures`: for each its share of the point number, its symbols and its spec; `unfit`: reasons why
    others are not among them; `varying`: symbols of the tree that points give; `fixed`: values of all others;
    `texts`: symbols derived from those of points.
    """

    problem: Problem
    forms: SymbolicAnalysis
    architectures: tuple[tuple[int, dict[str, Number], Spec], ...]
    unfit: tuple[str, ...]
    varying: frozenset[str]
    fixed: Mapping[str, Number]
    texts: Mapping[str, str]
    uses: SymbolUses

    def costed(self) -> tuple[FormRows, tuple[Variant, ...]]:
        """The costs on each architecture, over shared rows. Raises NotSeparable."""
        rows, made = FormRows(), []
        for part, arch, bound in self.architectures:
            own = Problem(bound.workload, bound.arch, self.problem.tree)
            if _links(own) != _links(self.problem):
                message = "architectures differ in which links of fanouts cost anything"
                raise NotSeparable(message, code="unsupported-link")
            if _rounded_actions(own) != _rounded_actions(self.problem):
                message = "architectures differ in which transfers are rounded up to whole actions"
                raise NotSeparable(message, code="unsupported-rounding")
            cost = costing(own, self.forms, rows)
            made.append(Variant(part, arch, own, cost, Evaluator(cost)))
        return rows, tuple(made)


def template(spec: Spec, grid: Grid, roles: SymbolRoles, given: Mapping[str, Number]) -> MappingForms:
    """Derive the closed forms of one block.

    Raises NotSeparable or Refused where points have to be evaluated one by one, SpecError if no architecture
    is valid.
    """
    linked = dict(grid.linked)
    texts = _texts(spec, linked)
    uses = SymbolUses(grid, texts)
    variants, unfit = _bound(spec, grid, roles, given)
    first = variants[0][2]
    tree = first.template
    if tree is None:
        raise first.no_mapping()
    names = unbound_symbols(tree)
    varying = {n for n in names if uses.of(n) & set(roles.tiles)}
    fixed: dict[str, Number | None] = {n: first.symbols.get(n) for n in first.symbols if n not in varying}
    fixed |= {n: v for n, v in variants[0][1].items() if n not in varying}
    lacking = [n for n in names if n not in varying and fixed.get(n) is None]
    if lacking:
        message = f"symbols without a value: {', '.join(lacking)}"
        one = lacking[0]
        remedy = (
            f"give values to sweep over, as --symbol {one}=1,2,4 does, or one value, as --set {one}=4 does"
        )
        raise wrong(message, f"{remedy} (in Python spec.bind({one}=4))", code="missing-value")
    faults = Faults()
    bound_tree = bind_tree(ResolvedMapping(tree), {n: fixed[n] for n in names if n not in varying}, faults)
    faults.raise_if_any()
    problem = Problem(first.workload, first.arch, bound_tree.tree)
    plain = {n: v for n, v in fixed.items() if v is not None and not uses.of(n) & set(roles.tiles)}
    inside = {n: t for n, t in texts.items() if uses.of(n) & set(roles.tiles)}
    return MappingForms(
        problem, closed_counts(problem), tuple(variants), unfit, frozenset(varying), plain, inside, uses
    )


def scenario(
    spec: Spec,
    grid: Grid,
    roles: SymbolRoles,
    mapping: int,
    name: str,
    share: int,
    given: Mapping[str, Number],
    *,
    sparse: bool = False,
) -> Scenario:
    """Compile one block, with `sparse` including its costs on sparse data.

    Raises NotSeparable or Refused where points have to be evaluated one by one.
    """
    base = template(spec, grid, roles, given)
    found, plain = base.forms, base.fixed
    once = {form.symbols for form in found.single_trips}
    coupled = found.coupled_symbols
    if sparse:  # sums on sparse data have one table per axis
        once |= coupled
    axes = make_axes(grid, roles.tiles, found.chains, base.texts, plain, grid.where, coupled, once)
    broken = illegal(base.problem, axes, base.varying, found, plain)
    rows, made = base.costed()
    if all(a.size for a in axes):
        # Refuse mappings without any costs here, at large tiles: with many small tiles, peaks take long.
        largest = [(a, int(np.argmax(sum(a.columns.values())))) for a in axes]
        point = {n: int(c[i]) for a, i in largest for n, c in a.columns.items()}
        costs(made[0].problem, found.at({**values_of(plain), **point}))
    number = mapping * grid.size + share
    block = Scenario(
        mapping, name, number, given, spec, found, axes, rows, made, values_of(plain), base.unfit, broken,
    )  # fmt: skip
    return on_sparse_data(block) if sparse and block.legal else block


def on_sparse_data(block: Scenario) -> Scenario:
    """The block with costs on sparse data.

    All sums are prepared at the first point, which refuses what is not countable.
    """
    # only sweeps on sparse data load the sparse modules
    from polymodel.sweeps.sparse.figures import SparseEvaluator
    from polymodel.sweeps.sparse.plan import SparsePlan, on_another, sparse_plan

    plan: SparsePlan | None = None
    made = []
    for v in block.variants:
        # architectures that differ only in costs have the same sums
        plan = on_another(plan, v.problem, v.costing) if plan is not None else None
        if plan is None:
            folder = block.spec.data_folder
            plan = sparse_plan(v.problem, block.forms, v.costing, block.rows, block.axes, block.fixed, folder)
        made.append((v, SparseEvaluator(v.costing, plan)))
    block = replace(block, variants=tuple(replace(v, evaluator=e) for v, e in made))
    kernel, first = block.kernel, slice(0, 1)
    digits = kernel.left_digits(0, 1)
    for _, evaluator in made:
        rows = Block(kernel.rows, kernel.left(digits, 1), first, first, None, kernel.placed(digits, first))
        evaluator(rows).prepare()
    return block


def _bound(
    spec: Spec, grid: Grid, roles: SymbolRoles, given: Mapping[str, Number]
) -> tuple[list[tuple[int, dict[str, Number], Spec]], tuple[str, ...]]:
    """The architectures of a block (share of the point number, values, spec), and why others are not valid.

    Raises SpecError if there is none.
    """
    # values of swept tiles in the spec do not matter here
    swept = {*roles.tiles, *(n for n, _ in grid.linked)} & spec.symbols.keys()
    held = {n: v for n, v in spec.given.items() if n not in swept}
    free = replace(spec, declared={**spec.declared, **dict.fromkeys(swept)}, given=held)
    result: list[tuple[int, dict[str, Number], Spec]] = []
    faults: list[SpecError] = []
    for part, arch in grid.combinations(roles.arch):
        known = {**given, **arch}
        known |= grid.following(known)
        try:
            bound = free.bind(**{n: v for n, v in known.items() if n in spec.symbols}) if known else free
        except SpecError as fault:
            faults.append(fault)
            continue
        result.append((part, known, bound))
    if not result:
        raise faults[0]
    return result, tuple(f.diagnostics[0].message for f in faults)


def _links(problem: Problem) -> list[tuple[str, str, bool, bool]]:
    """Dimensions whose links are counted, whether they take time, and whether hops do."""
    links = ((c, d.name, d.link) for c, d in problem.hierarchy.costly_links if d.link is not None)
    return [(c, name, link.timed, bool(link.hop_latency)) for c, name, link in links]


def _rounded_actions(problem: Problem) -> list[tuple[str, str, str, int | None]]:
    """Actions that transfers are rounded up to."""
    return [(c.name, tensor, a.name, a.bits_per_action) for c, tensor, a in problem.rounding()]
