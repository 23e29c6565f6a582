"""Figures of a block of points on sparse data: counts as in `sparse.actions.rescale`, prices as in `cost`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import cached_property, partial
from typing import Any, Literal, TypeVar

import numpy as np

from polymodel.analysis.result import Analysis, ComputeCounts, Traffic, mapped_analysis
from polymodel.cost.algebra import ARRAYS, nothing
from polymodel.cost.costs import Bits, data_bits
from polymodel.cost.energy import action_energies
from polymodel.cost.latency import component_times, einsum_times
from polymodel.cost.records import Counts
from polymodel.errors import InternalError
from polymodel.objectives import Busy
from polymodel.sparse.actions.records import KINDS, AccessCount, ComputeCount, SparseCounts, ratio
from polymodel.sparse.actions.rescale import sparse_analysis
from polymodel.sweeps.metrics import Block, Evaluator, Found, fits
from polymodel.sweeps.plan import Costing, Limit, Linear
from polymodel.sweeps.sparse.columns import Settings
from polymodel.sweeps.sparse.counts import BlockPoints, EinsumSweep
from polymodel.sweeps.sparse.plan import FormattedTile, SparsePlan, unbounded

Array = Any
Counted = TypeVar("Counted", AccessCount, ComputeCount)
SLACK = 1e-12  # relative to the memory's size, for rounding of a working set


class SparseEvaluator(Evaluator):
    """One architecture's costs on sparse data, besides the dense ones."""

    def __init__(self, costing: Costing, plan: SparsePlan) -> None:
        super().__init__(costing)
        self.plan = plan

    def __call__(self, block: Block) -> SparseFound:
        return SparseFound(self, block, self.plan)


class SparseFound(Found):
    """Joules, seconds, bits, and whether sparse tiles fit."""

    def __init__(self, evaluator: Evaluator, block: Block, plan: SparsePlan) -> None:
        super().__init__(evaluator, block)
        self.plan = plan
        self._values: dict[Linear, Array] = {}
        self._parts: dict[str, list[tuple[EinsumSweep, BlockPoints]]] = {}

    @property
    def sparse(self) -> SparseBlockFigures:
        return SparseBlockFigures(self)

    def prepare(self) -> None:
        """Compute everything once.

        Raises NotSeparable or Refused for what is counted at single points only.
        """
        found = self.sparse_energy, self.sparse_latency, self.working_sets
        assert all(x is not None for x in found), "all are numbers or arrays"

    def dense(self, linear: Linear) -> Array:
        """A dense count; a number if it is the same everywhere."""
        if linear not in self._values:
            index, scale = linear
            self._values[linear] = float(scale) if index < 0 else self.block.floats(index) * float(scale)
        return self._values[linear]

    def settings(self, einsum: str) -> Settings:
        """The setting at every point, per rank variable."""
        digits = self.block.digits
        result = {}
        for c in self.plan.columns[einsum]:
            result[c.variable] = c.place[digits[c.axis]] if c.axis else np.zeros((1, 1), np.int64)
        return result

    def parts(self, einsum: str) -> list[tuple[EinsumSweep, BlockPoints]]:
        if einsum not in self._parts:
            self._parts[einsum] = self.plan.structures[einsum].parts(self.settings(einsum))
        return self._parts[einsum]

    @cached_property
    def analysis(self) -> Analysis:
        """Dense counts; without zeros a component works wherever it moves anything."""
        result = mapped_analysis(self.plan.dense, Linear, self.dense)
        return replace(result, loads=tuple(replace(x, dense=x.there) for x in result.loads))

    @cached_property
    def left(self) -> SparseCounts:
        """The remaining operations and accesses."""
        rows = self.analysis.traffic
        kinds = [(row, kind) for row in rows for kind in KINDS if not nothing(getattr(row, kind))]
        return SparseCounts(
            tuple(self._each(row.einsum, partial(_compute, row)) for row in self.analysis.compute),
            tuple(self._each(row.einsum, partial(_access, row, kind)) for row, kind in kinds),
        )

    def _each(self, einsum: str, count: Callable[[EinsumSweep, BlockPoints], Counted]) -> Counted:
        """The count under each structure of links, at the points that have it."""
        (first, points), *others = self.parts(einsum)
        result = count(first, points)
        for sweep, points in others:
            result = _joined(points.mask, count(sweep, points), result)
        return result

    @cached_property
    def counts(self) -> Counts:
        """The remaining counts, for the cost rules."""
        return Counts(self.plan.problem, sparse_analysis(self.plan.problem, self.analysis, self.left))

    @cached_property
    def sparse_energy(self) -> Array:
        """Joules."""
        total = ARRAYS.total(i.energy for i in action_energies(self.counts))
        leak = self.plan.costing.leak
        return total + self.sparse_latency * leak if leak else total

    @cached_property
    def sparse_latency(self) -> Array:
        """Seconds."""
        times = component_times(self.counts, ARRAYS)
        return ARRAYS.total(t.seconds for t in einsum_times(self.counts, times, (), ARRAYS))

    @cached_property
    def bits(self) -> Bits:
        """(component, reads or writes) -> bits of data and metadata."""
        return data_bits(self.counts, self.left.accesses)

    @cached_property
    def working_sets(self) -> dict[str, Array]:
        """Expected bits of the largest working set of each memory."""
        result: dict[str, Array] = {}
        for peak in self.plan.peaks:
            dense, sparse = np.zeros(()), np.zeros(())
            for phase in peak.phases:
                each = [(p, -(-self.dense(p.bits) // p.denominator) * p.count) for p in phase]
                total: Array = sum((n for _, n in each), start=np.zeros(()))
                left: Array = sum(
                    (n * self._stored_share(p.node, p.tensor) for p, n in each), start=np.zeros(())
                )
                more = total > dense
                dense, sparse = np.where(more, total, dense), np.where(more, left, sparse)
            result[peak.component] = np.maximum(result.get(peak.component, 0.0), sparse)
        return result

    def _stored_share(self, node: int, tensor: str) -> Array:
        """Bits of the largest tile in its format, relative to a dense one."""
        tile = self.plan.tiles.get((node, tensor))
        if tile is None:
            return 1.0
        if (node, tensor) not in self._shares:
            self._shares[node, tensor] = self._share(tile, tensor)
        return self._shares[node, tensor]

    @cached_property
    def _shares(self) -> dict[tuple[int, str], Array]:
        return {}

    def _share(self, tile: FormattedTile, tensor: str) -> Array:
        how = self.plan.formats.known[tile.component, tensor]
        sweep, points = self.parts(tile.einsum)[0]
        bits = sweep.tilings.largest(tensor, how, tile.digits, points.settings)
        return ratio(bits, self.dense(tile.dense))

    @cached_property
    def fits(self) -> tuple[Array, ...]:
        return tuple(self._fits(limit) for limit in self.plan.costing.limits)

    def _fits(self, limit: Limit) -> Array:
        if limit.illegal:
            return fits(limit, self.block)
        if unbounded(limit.have):
            return True
        result: Array = self.working_sets.get(limit.name, 0.0) <= limit.have * (1 + SLACK)
        return result


class SparseBlockFigures:
    """`objectives.Figures` of one block of points on sparse data."""

    def __init__(self, found: SparseFound) -> None:
        self.found = found

    @property
    def energy(self) -> Array:
        return self.found.sparse_energy

    @property
    def latency(self) -> Array:
        return self.found.sparse_latency

    @property
    def area(self) -> Array:
        return self.found.plan.costing.area

    @property
    def utilisation(self) -> Array:
        raise InternalError("the vocabulary has no utilisation on sparse data")

    def moved(self, component: str, way: Literal["reads", "writes"]) -> Array:
        return self.found.bits.get((component, way), np.zeros(()))

    def busiest(self, component: str, way: Busy) -> Array:
        raise InternalError("the vocabulary has no busiest instances on sparse data")

    def used(self, dimension: str) -> Array:
        raise InternalError("only searches of a co-design ask how much of a fanout is in use")

    def working_set(self, component: str) -> Array:
        return self.found.working_sets.get(component, np.zeros(()))


def _compute(row: ComputeCounts[Array], sweep: EinsumSweep, points: BlockPoints) -> ComputeCount:
    return sweep.compute(row, points)


def _access(row: Traffic[Array], kind: str, sweep: EinsumSweep, points: BlockPoints) -> AccessCount:
    return sweep.access(row, kind, points)


def _joined(mask: Array, one: Counted, other: Counted) -> Counted:
    """The numbers of `one` where the mask is true, otherwise those of `other`."""
    names = [f.name for f in fields(one) if not isinstance(getattr(one, f.name), (str, int))]
    return replace(one, **{n: np.where(mask, getattr(one, n), getattr(other, n)) for n in names})
