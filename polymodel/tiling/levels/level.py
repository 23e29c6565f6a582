"""Tiles as a level of an architecture: the tilings that `data_tiles` of a memory give for the Einsums mapped
to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from polymodel.analysis.result import Analysis, Problem
from polymodel.architecture.hierarchy import Component, TileRules, capacity_of
from polymodel.errors import Refused, SpecError
from polymodel.sparse.actions.data import TensorData
from polymodel.sparse.actions.inputs import tensor_shape
from polymodel.sparse.actions.zeros import MULTIPLY
from polymodel.sparse.density import DensityModel, Uniform
from polymodel.tiling.cost.model import CutCosts, cost_bound, costs, lower_bound
from polymodel.tiling.estimate.expected import Estimate
from polymodel.tiling.estimate.run import estimate
from polymodel.tiling.fits.fit import Fit, Op, Stored, Words
from polymodel.tiling.levels.checked import fit_of
from polymodel.tiling.levels.product import (
    ProductLevel,
    launch_of,
    operand_of,
    plain,
    product_level,
    product_roles,
    whole,
    with_unions,
)
from polymodel.tiling.plane.operands import inner_fibers, pattern_of
from polymodel.tiling.plane.pattern import Flags, Index, Ints, Pattern, TileCounts
from polymodel.tiling.tilers.named import cut
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess

_ADD = ("add", "+")


@dataclass(frozen=True, eq=False)
class MemoryTiles:
    """The tiles of one Einsum at one memory. Counts are of one execution out of `executions`.

    `tensors`: A, B and the output. `parent`: the memory from which each is filled or to which it is drained,
    None if this memory is its backing storage. `word_bits`: bits of a word; 1 if a format gives the number of
    bits.
    """

    einsum: str
    memory: Component
    rules: TileRules
    tensors: tuple[str, str, str]
    parents: tuple[str | None, str | None, str | None]
    costs: CutCosts
    word_bits: int
    executions: int

    @property
    def pattern(self) -> Pattern:
        return self.costs.pattern

    @property
    def fit(self) -> Fit:
        return self.costs.fit

    @cached_property
    def bound(self) -> int:
        """A lower bound on the number of tiles that hold entries."""
        return lower_bound(self.pattern, self.costs.op, self.costs.fit)

    @cached_property
    def kernel_bound(self) -> int:
        """A lower bound on the number of kernels."""
        c = self.costs
        return cost_bound(c.pattern, c.op, c.fit, c.launch, "tiles")

    @cached_property
    def cycle_bound(self) -> int:
        """A lower bound on the cycles to configure and to run."""
        c = self.costs
        return cost_bound(c.pattern, c.op, c.fit, c.launch, "total")

    @cached_property
    def _output(self) -> Flags | None:
        """The positions of the output: those of either operand (None), or those of both. Values may still
        cancel."""
        return None if self.costs.op == "add" else self.pattern.in_a & self.pattern.in_b

    @cached_property
    def entries(self) -> tuple[Ints, Ints, Ints]:
        """Entries of A, B and the output, per tile."""
        counts = self.costs.counts
        return counts.nnz_a, counts.nnz_b, counts.union if self.costs.op == "add" else counts.both

    @cached_property
    def words(self) -> tuple[Ints, Ints, Ints]:
        """Words (bits, for a format) that are transferred for A, B and the output of each launched tile, 0 if
        empty.

        Compressed tiles take 2 nnz + 2 nonempty rows + 3 words.
        """
        result = [self._moved(which) for which in (self.pattern.in_a, self.pattern.in_b, self._output)]
        return result[0], result[1], result[2]

    def _moved(self, which: Flags | None) -> Ints:
        c, ids = self.costs, self.costs.cut.ids
        alone, mine = _alone(c.pattern, ids, which)
        counts = TileCounts(alone, mine, c.tiles)
        rule = c.fit if isinstance(c.fit, Stored) else Words(1)
        result: Ints = np.where(c.runs & (counts.union > 0), rule.loads(counts, c.cut.rects, "add"), 0)
        return result


def _alone(pattern: Pattern, ids: Index, which: Flags | None) -> tuple[Pattern, Index]:
    """Return some of the points as one operand, beside a second operand that is empty."""
    some = pattern if which is None else pattern.taken(which)
    flags = np.ones(some.points, dtype=np.bool_)
    fibers = None if some.deep is None else inner_fibers((some.rows, some.cols, *some.deep), flags)
    none = None if fibers is None else np.zeros_like(fibers)
    return replace(
        some, in_a=flags, in_b=~flags, inner_a=fibers, inner_b=none
    ), ids if which is None else ids[which]


@dataclass(frozen=True, eq=False)
class ExpectedTiles:
    """Expected tiles of one Einsum at one memory, if an operand is known by its density only."""

    einsum: str
    memory: Component
    tensors: tuple[str, str, str]
    fit: Fit
    estimate: Estimate
    word_bits: int
    executions: int


def levels(
    problem: Problem, analysis: Analysis, data: Mapping[str, TensorData]
) -> tuple[tuple[MemoryTiles | ExpectedTiles | ProductLevel, ...], tuple[str, ...]]:
    """Return the tiles of each Einsum at each memory with `data_tiles` that keeps all its tensors, and notes
    about others.

    Operands that are known by density models give expected figures. Raises Refused for Einsums that are
    neither an element-wise add or multiply nor a product of two matrices, and for models without estimates;
    SpecError for an entry that fits no tile.
    """
    result: list[MemoryTiles | ExpectedTiles | ProductLevel] = []
    data = with_unions(problem.cascade, data)
    notes: list[str] = []
    for component in problem.hierarchy.components:
        if component.data_tiles is None:
            continue
        for einsum in problem.cascade.einsums:
            parents = parents_of(problem, analysis, component.name, einsum)
            if parents is None:
                notes.append(f"{einsum.name}: {component.name} does not hold all its tensors: not cut")
            elif einsum.is_copy or all(data[a.tensor].dense for a in einsum.inputs):
                notes.append(f"{einsum.name}: its operands have no zeros: not cut")
            else:
                result.append(_cut(problem.cascade, einsum, component, parents, data, notes))
    return tuple(result), tuple(notes)


def parents_of(
    problem: Problem, analysis: Analysis, memory: str, einsum: Einsum
) -> dict[str, str | None] | None:
    """Return, for each tensor, the memory that fills it here; None unless all tensors of the Einsum are kept
    here."""
    nodes = {(b.node, b.tensor): b.component for b in analysis.buffets}
    mine = {
        b.tensor: None if b.parent is None else nodes[b.parent, b.tensor]
        for b in analysis.buffets
        if b.component == memory and einsum.name in b.einsums
    }
    return mine if set(einsum.tensors) <= set(mine) else None


def _cut(
    cascade: Cascade,
    einsum: Einsum,
    component: Component,
    parents: Mapping[str, str | None],
    data: Mapping[str, TensorData],
    notes: list[str],
) -> MemoryTiles | ExpectedTiles | ProductLevel:
    roles = product_roles(cascade, einsum, component.name)
    if roles is not None:
        return product_level(cascade, einsum, roles, component, parents, data)
    return _level(cascade, einsum, component, parents, data, notes)


def _level(
    cascade: Cascade,
    einsum: Einsum,
    component: Component,
    parents: Mapping[str, str | None],
    data: Mapping[str, TensorData],
    notes: list[str],
) -> MemoryTiles | ExpectedTiles:
    rules = component.data_tiles
    assert rules is not None
    op, (a, b), out = elementwise(cascade, einsum, component.name)
    widest = max(x.bits_per_value for x in einsum.accesses)
    fit = fit_of(rules, capacity_of(rules, component.size_bits, component.buffering, widest))
    width = 1 if rules.fit == "stored" else rules.word_bits or widest
    launch = launch_of(rules, component.clock)
    order = tuple(x.variables[0] for x in out.projection)
    names = (a.tensor, b.tensor, out.tensor)
    if not all(data[x.tensor].dense or data[x.tensor].actual is not None for x in (a, b)):
        models = [_model(einsum, x, data[x.tensor], tensor_shape(cascade, x.tensor), order) for x in (a, b)]
        said = estimate(models[0], op, fit, rules.tiler, models[1], launch)
        return ExpectedTiles(einsum.name, component, names, fit, said, width, einsum.n_instances)
    tensors = [operand_of(einsum, x, data[x.tensor], tensor_shape(cascade, x.tensor)) for x in (a, b)]
    planes = _planes(einsum, out, rules, component.name)
    if len(order) > 2:
        rest = ", ".join(x for x in order if x not in planes)
        notes.append(f"{einsum.name} at {component.name}: cut on {planes[0]} and {planes[1]}, {rest} whole")
    pattern = pattern_of(tensors[0], tensors[1], planes)
    try:
        tiles = cut(pattern, op, fit, rules.tiler, rules.objective, launch)
    except SpecError as error:
        what = f"{einsum.name} at {component.name}"
        raise SpecError([replace(d, message=f"{what}: {d.message}") for d in error.diagnostics]) from error
    return MemoryTiles(
        einsum.name,
        component,
        rules,
        names,
        (parents[a.tensor], parents[b.tensor], parents[out.tensor]),
        costs(pattern, tiles, op, fit, launch),
        width,
        einsum.n_instances,
    )


def _planes(einsum: Einsum, out: TensorAccess, rules: TileRules, memory: str) -> tuple[str, ...]:
    """Return the rank variables of the two tiled ranks: those named at the memory, else the first two of the
    output.

    For matrices and vectors the output determines them if the memory names ranks of other tensors.
    """
    variable = dict(zip(out.ranks, out.variables, strict=True))
    if rules.ranks is None or (len(variable) < 3 and not set(rules.ranks) <= set(variable)):
        return out.variables[:2]
    unknown = [r for r in rules.ranks if r not in variable]
    if unknown:
        fault = f"{einsum.name} at {memory}: {out.tensor} has no rank {' or '.join(unknown)} to cut"
        remedy = f"name two of {', '.join(out.ranks)} in ranks:, or map this Einsum past it"
        raise Refused(fault, remedy, code="unsupported-einsum")
    return tuple(variable[r] for r in rules.ranks)


def elementwise(
    cascade: Cascade, einsum: Einsum, memory: str
) -> tuple[Op, tuple[TensorAccess, TensorAccess], TensorAccess]:
    """Return the element-wise operation of the Einsum, its operands and its output. Refused for all other
    Einsums, by name."""
    what = f"{einsum.name} at {memory}"
    remedy = "take data_tiles: from the memory, or map this Einsum past it"
    if len(einsum.inputs) != 2 or len(einsum.outputs) != 1:
        message = f"{what}: tiles are cut for two operands and one output"
        raise Refused(message, remedy, code="unsupported-einsum")
    out, variables = einsum.outputs[0], set(einsum.rank_variables)
    for access in einsum.accesses:
        if not plain(access) or sorted(access.variables) != sorted(variables):
            fault = f"{what}: {access.tensor} is not read entry by entry with the others, so tiles have reuse"
            raise Refused(fault, remedy, code="unsupported-einsum")
    if not whole(cascade, einsum):
        message = f"{what}: it touches a part of its tensors only"
        raise Refused(message, "give ranks the sizes that are used", code="unsupported-window")
    operation = dict(einsum.operations).get("map")
    if operation not in _ADD and operation not in MULTIPLY:
        message = f"{what}: {operation} is neither add nor multiply"
        raise Refused(message, "use add or mul for its map", code="unsupported-operation")
    a, b = einsum.inputs
    return "add" if operation in _ADD else "multiply", (a, b), out


def _model(
    einsum: Einsum, access: TensorAccess, known: TensorData, shape: tuple[int, ...], order: tuple[str, ...]
) -> DensityModel:
    """Return the density model of an operand. Refused if tilings are not estimated from it."""
    if len(shape) != 2 or access.variables != order:
        what = f"{einsum.name}: {access.tensor} is not a matrix with the ranks of the output in their order"
        remedy = f"give data: densities: {{{access.tensor}: {{actual: FILE}}}}"
        message = f"{what}; only such tilings are estimated from densities"
        raise Refused(message, remedy, code="unsupported-density")
    if known.model is not None:
        return known.model
    return Uniform.of(order, shape, nnz=shape[0] * shape[1])
