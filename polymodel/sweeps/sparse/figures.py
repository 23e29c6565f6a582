"""Figures of a block of points on sparse data: counts as in `sparse.actions.rescale`, prices as in `cost`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal

import numpy as np

from polymodel.analysis.result import (
    Analysis,
    Charge,
    Compute,
    InstanceLoad,
    LinkTraffic,
    RefillLoad,
    TollTraffic,
    Traffic,
)
from polymodel.cost.algebra import ARRAYS
from polymodel.cost.energy import action_energies
from polymodel.cost.latency import component_times, einsum_times
from polymodel.cost.records import Counts
from polymodel.errors import InternalError
from polymodel.sparse.actions.records import ratio
from polymodel.sparse.actions.storage import AccessShare
from polymodel.sweeps.metrics import Block, Evaluator, Found, fits
from polymodel.sweeps.plan import Costing, Limit, Linear
from polymodel.sweeps.sparse.columns import Settings
from polymodel.sweeps.sparse.counts import EinsumSweep, Points
from polymodel.sweeps.sparse.plan import Cross, Flow, Load, Pass, SparsePlan, Tile, Work, unbounded

Array = Any
READS = ("reads_fill", "reads_drain")
Ways = tuple[Array, Array]
SLACK = 1e-12  # of a working set beside its memory's size, for rounding


class SparseEvaluator(Evaluator):
    """One architecture's costs on sparse data, beside the dense ones."""

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
        self._parts: dict[str, list[tuple[EinsumSweep, Points]]] = {}

    @property
    def sparse(self) -> SparseFigures:
        return SparseFigures(self)

    def prepare(self) -> None:
        """Everything once. Raises NotSeparable or Refused for what is counted for single points only."""
        found = self.sparse_energy, self.sparse_latency, self.working_sets
        assert all(x is not None for x in found), "all are numbers or arrays"

    def dense(self, linear: Linear) -> Array:
        """A dense count; a number if it is the same everywhere."""
        if linear not in self._values:
            index, scale = linear
            self._values[linear] = float(scale) if index < 0 else self.block.floats(index) * float(scale)
        return self._values[linear]

    def settings(self, einsum: str) -> Settings:
        """Per rank variable the setting at every point."""
        digits = self.block.digits
        found = {}
        for c in self.plan.columns[einsum]:
            found[c.variable] = c.place[digits[c.axis]] if c.axis else np.zeros((1, 1), np.int64)
        return found

    def parts(self, einsum: str) -> list[tuple[EinsumSweep, Points]]:
        if einsum not in self._parts:
            self._parts[einsum] = self.plan.structures[einsum].parts(self.settings(einsum))
        return self._parts[einsum]

    @cached_property
    def moved(self) -> dict[Flow, AccessShare]:
        """What is left of every kind of access."""
        return {f: self._moved(f) for f in self.plan.flows}

    def _moved(self, f: Flow) -> AccessShare:
        dense = self.dense(f.dense)
        found: AccessShare | None = None
        for sweep, points in self.parts(f.einsum):
            one = sweep.access(f.node, f.component, f.tensor, f.kind, dense, points)
            if found is None:
                found = one
            else:
                names = ("held", "turns", "actual", "metadata", "share")
                pairs = ((getattr(one, n), getattr(found, n)) for n in names)
                found = AccessShare(dense, *(np.where(points.mask, new, old) for new, old in pairs))
        assert found is not None, "every point has a structure"
        return found

    @cached_property
    def work(self) -> dict[Work, tuple[Array, Array, Array]]:
        """(executed, executed or gated) operations, and the latter of the busiest instance."""
        found = {}
        for w in self.plan.work:
            dense, most = self.dense(w.operations), self.dense(w.busiest)
            three: tuple[Array, Array, Array] | None = None
            for sweep, points in self.parts(w.einsum):
                executed, turns = sweep.compute(dense, points)
                one = executed, turns, sweep.busiest(dense, most, turns, points)
                if three is not None:
                    x, y, z = (np.where(points.mask, n, o) for n, o in zip(one, three, strict=True))
                    one = x, y, z
                three = one
            assert three is not None, "every point has a structure"
            found[w] = three
        return found

    @cached_property
    def counts(self) -> Counts:
        """What is left of all counts, as cost rules take them."""
        moved = [Traffic(f.einsum, f.node, f.component, f.tensor, **{f.kind: m.actual})
                 for f, m in self.moved.items()]  # fmt: skip
        work = [Compute(w.einsum, w.component, executed, busiest, 1)
                for w, (executed, _, busiest) in self.work.items()]  # fmt: skip
        analysis = Analysis(
            "symbolic",
            (),
            tuple(moved),
            tuple(work),
            tuple(map(self._load, self.plan.loads)),
            (),
            tuple(map(self._toll, self.plan.passes)),
            charges=tuple(self._charges()),
            refills=tuple(map(self._refill, self.plan.refills)),
            links=tuple(map(self._link, self.plan.links)),
        )
        return Counts(self.plan.problem, analysis)

    def _load(self, load: Load) -> InstanceLoad[Array]:
        (reads, writes), dense = self._left(load), (self.dense(load.reads), self.dense(load.writes))
        return InstanceLoad(load.einsum, load.component, ((reads, writes),), 1, dense[0] + dense[1])

    def _refill(self, load: Load) -> RefillLoad[Array]:
        return RefillLoad(load.einsum, load.component, load.storage, (self._left(load),))

    def _left(self, load: Load) -> Ways:
        left = self.ways(load.einsum, load.component)
        return self.dense(load.reads) * left[0], self.dense(load.writes) * left[1]

    def _link(self, x: Cross) -> LinkTraffic[Array]:
        down, up = self._passing(x.einsum, x.component)
        hops = tuple(
            (t, self.dense(n) * np.maximum(*self.crossing(x.einsum, x.component, t))) for t, n in x.hops
        )
        loads = tuple((self.dense(d) * down, self.dense(u) * up) for d, u in x.loads)
        return LinkTraffic(x.einsum, x.component, x.dim, hops, loads)

    def _toll(self, p: Pass) -> TollTraffic[Array]:
        left = self.crossing(p.einsum, p.component, p.tensor)
        down, up = self.dense(p.down) * left[0], self.dense(p.up) * left[1]
        return TollTraffic(p.einsum, p.component, p.tensor, down, up)

    def _charges(self) -> Iterator[Charge]:
        """As `sparse.actions.rescale` charges, as far as the actions cost anything."""
        for f, m in self.moved.items():
            way = "read" if f.kind in READS else "write"
            c = self.plan.problem.hierarchy[f.component]
            own = f"metadata_{way}"
            metadata = own if any(a.name == own for a in c.actions) else way
            bits = self.plan.counts.bits(f.tensor)
            for name, count in ((f"gated_{way}", m.gated), (metadata, m.metadata)):
                if c.action(name).energy:
                    each = bits if name != metadata else 1
                    yield Charge(f.einsum, f.component, f.tensor, name, count * each)
        for w, (executed, turns, _) in self.work.items():
            if self.plan.problem.hierarchy[w.component].action("gated_compute").energy:
                yield Charge(w.einsum, w.component, "", "gated_compute", turns - executed)

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
    def bits(self) -> dict[tuple[str, str], Array]:
        """(component, reads or writes) -> bits of data and metadata."""
        counts = self.plan.counts
        found: dict[tuple[str, str], Array] = {}

        def add(component: str, way: str, bits: Array) -> None:
            found[component, way] = found.get((component, way), 0.0) + bits

        for f, m in self.moved.items():
            bits = m.actual * counts.bits(f.tensor) + m.metadata
            add(f.component, f.kind.partition("_")[0], bits * counts.executions(f.einsum))
        for p in self.plan.passes:
            each = counts.executions(p.einsum) * counts.bits(p.tensor)
            down, up = self.crossing(p.einsum, p.component, p.tensor)
            add(p.component, "reads", self.dense(p.down) * down * each)
            add(p.component, "writes", self.dense(p.up) * up * each)
        return found

    @cached_property
    def _ways(self) -> dict[tuple[str, str], tuple[Ways, Array]]:
        """(Einsum, component) -> what is left of read and written bits, and whether there are any."""
        sums: dict[tuple[str, str], list[Array]] = {}
        for f, m in self.moved.items():
            found = sums.setdefault((f.einsum, f.component), [0.0, 0.0, 0.0, 0.0])
            at, bits = (0 if f.kind in READS else 2), self.plan.counts.bits(f.tensor)
            found[at] = found[at] + (m.actual + m.gated) * bits + m.metadata
            found[at + 1] = found[at + 1] + m.dense * bits
        return {k: ((ratio(r, rd), ratio(w, wd)), (rd + wd) > 0) for k, (r, rd, w, wd) in sums.items()}

    def ways(self, einsum: str, component: str) -> Ways:
        """What is left of what an instance reads and writes."""
        if (einsum, component) not in self._ways:
            return self._passing(einsum, component)
        (read, write), some = self._ways[einsum, component]
        if np.all(some):
            return read, write
        other = self._passing(einsum, component)
        return np.where(some, read, other[0]), np.where(some, write, other[1])

    def crossing(self, einsum: str, component: str, tensor: str) -> Ways:
        """What is left of a tensor's transfers past a component (`_Rescaled._crossing`)."""
        node = self.plan.outside.get((einsum, component, tensor))
        found: list[Array] = [1.0, 1.0]
        for f, m in self.moved.items():
            if (f.einsum, f.node, f.tensor) == (einsum, node, tensor):
                for i, kind in enumerate(("reads_fill", "writes_drain")):
                    if f.kind == kind:
                        found[i] = ratio(m.actual, m.dense)
        return found[0], found[1]

    def _passing(self, einsum: str, component: str) -> Ways:
        sums: list[list[Array]] = [[0.0, 0.0], [0.0, 0.0]]
        for access in self.plan.problem.cascade[einsum].accesses:
            mine = [
                p
                for p in self.plan.passes
                if (p.einsum, p.component, p.tensor) == (einsum, component, access.tensor)
            ]
            left = self.crossing(einsum, component, access.tensor)
            for i, way in enumerate(("down", "up")):
                weight: Array = sum((self.dense(getattr(p, way)) for p in mine), start=np.zeros(()))
                weight = np.where(weight == 0, 1.0, weight)
                sums[i][0] = sums[i][0] + weight * left[i] * access.bits_per_value
                sums[i][1] = sums[i][1] + weight * access.bits_per_value
        return ratio(*sums[0]), ratio(*sums[1])

    @cached_property
    def working_sets(self) -> dict[str, Array]:
        """Expected bits of the largest working set of each memory."""
        found: dict[str, Array] = {}
        for peak in self.plan.peaks:
            dense, sparse = np.zeros(()), np.zeros(())
            for phase in peak.phases:
                each = [(p, -(-self.dense(p.bits) // p.denominator) * p.count) for p in phase]
                total: Array = sum((n for _, n in each), start=np.zeros(()))
                left: Array = sum((n * self._held(p.node, p.tensor) for p, n in each), start=np.zeros(()))
                more = total > dense
                dense, sparse = np.where(more, total, dense), np.where(more, left, sparse)
            found[peak.component] = np.maximum(found.get(peak.component, 0.0), sparse)
        return found

    def _held(self, node: int, tensor: str) -> Array:
        """Bits of the largest tile under its format, over those of a dense one."""
        tile = self.plan.tiles.get((node, tensor))
        if tile is None:
            return 1.0
        if (node, tensor) not in self._shares:
            self._shares[node, tensor] = self._share(tile, tensor)
        return self._shares[node, tensor]

    @cached_property
    def _shares(self) -> dict[tuple[int, str], Array]:
        return {}

    def _share(self, tile: Tile, tensor: str) -> Array:
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
        found: Array = self.working_sets.get(limit.name, 0.0) <= limit.have * (1 + SLACK)
        return found


class SparseFigures:
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

    def working_set(self, component: str) -> Array:
        return self.found.working_sets.get(component, np.zeros(()))
