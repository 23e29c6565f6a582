"""The referee of pipelines: every mapping of small chains of products on two units, with every subset of its
splits as pipelines, every grouping of branches into stages and every choice of units.

What may be better than an answer is evaluated: the time of each memory and of each unit by itself bounds a
mapping from below, however its stages overlap. No code of `polymodel.mapper` is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from math import inf, prod
from random import Random
from typing import Any

import numpy as np

import polymodel as pm
from polymodel.analysis.result import Problem
from polymodel.api.evaluation import evaluate_problem
from polymodel.architecture.hierarchy import Hierarchy
from polymodel.errors import Refused, SpecError
from polymodel.loading import Spec
from polymodel.mapping.looptree import ComputeNode, LoopTree, Node, Split
from tests.mapper.brute import Machine, paths_of_one
from tests.mapper.brute import figures as figures_of
from tests.mapper.brute_chain import Option, Structure, options, peak, shares, structures
from tests.mapper.brute_trees import nodes_above, nodes_below, tree_of

Costs = tuple[float, float]  # joules, seconds


def space_of(pick: Random) -> Spec:
    """Two or three products in a chain on a buffer and two units, any of which may be what is slow."""
    many = pick.choice((2, 2, 3))
    vectors = many == 3 or pick.random() < 0.4
    einsums, sizes = [], {"M": pick.choice((2, 3, 4))}
    for k in range(many + 1):
        sizes[f"N{k}"] = pick.choice((1, 2)) if vectors and k else pick.choice((2, 3))
    for k in range(many):
        einsums.append(f"T{k + 1}[m, n{k + 1}] = T{k}[m, n{k}] * W{k}[n{k}, n{k + 1}]")

    def memory(name: str, energy: float, size: object, speed: float) -> dict[str, Any]:
        actions = [{"name": a, "energy": energy, "throughput": speed} for a in ("read", "write")]
        found: dict[str, Any] = {"type": "Memory", "name": name, "size": size, "actions": actions}
        if name == "DRAM":
            found["tensors"] = {"keep": "~Intermediates", "may_keep": "All"}
        else:
            found["leak_power"] = pick.choice((0, 0, 2.0))
        return found

    speeds = pick.choice((1, 2, 4)), pick.choice((1, 2, 4))
    speeds = speeds if pick.random() < 0.4 else (speeds[0], speeds[0])
    units = [
        {"type": "Compute", "name": n, "actions": [{"name": "compute", "energy": 1, "throughput": s}]}
        for n, s in zip("AB", speeds, strict=True)
    ]
    nodes = [
        memory("DRAM", 10, "inf", pick.choice((8, 32, 128))),
        memory("GLB", 1, pick.choice(("inf", 8 * 12, 8 * 20, 8 * 32)), pick.choice((32, 64, 256))),
        *units,
    ]
    work = {"rank_sizes": sizes, "bits_per_value": {"All": 8}, "einsums": einsums}
    return pm.load({"schema_version": 1, "workload": work, "arch": {"nodes": nodes}})


@dataclass
class Referee:
    """Looks for mappings that are better than an answer in an objective.

    `evaluated`: how many it took; after more than `most` it ends, and is not `decided`.
    """

    spec: Spec
    objective: str
    most: int = 2000
    evaluated: int = 0
    best: float = inf

    @property
    def decided(self) -> bool:
        return self.evaluated <= self.most

    def least(self, most: float) -> tuple[float, LoopTree | None]:
        """The least below `most`, and its mapping; `most` itself if there is none."""
        self.best, found = most, None
        for costs, tree in self._mappings():
            if self._promising(*costs):
                self.best, found = self._score(*costs), tree
            if not self.decided:
                break
        return self.best, found

    def _promising(self, energy: Any, seconds: Any) -> Any:
        return self._score(energy, seconds) < self.best * (1 - 1e-9)

    def _score(self, energy: Any, seconds: Any) -> Any:
        return {"latency": seconds, "energy": energy, "edp": energy * seconds}[self.objective]

    def _mappings(self) -> Iterator[tuple[Costs, LoopTree]]:
        """Mappings with pipelines whose bounds are promising, each evaluated."""
        names = [c.name for c in self.spec.arch.components if c.kind == "compute"]
        einsums = self.spec.workload.einsums
        for units in product(names, repeat=len(einsums)):
            if len(set(units)) == 1 or (self._alike and units[0] != names[0]):
                continue
            machines = [self._with(u) for u in units]
            for i, j in combinations(range(len(einsums) + 1), 2):
                if j - i < 2 or len(set(units[i:j])) == 1:
                    continue
                apart = [k for k in range(len(einsums)) if not i <= k < j]
                rest = list(self._alone(apart, machines))
                for structure in structures(einsums[i:j], machines[0], False):
                    if structure.outer or structure.inner:
                        yield from self._of(structure, machines[i:j], (i, j), rest)

    @property
    def _alike(self) -> bool:
        one, other = (replace(c, name="") for c in self.spec.arch.components if c.kind == "compute")
        return one == other

    def _with(self, unit: str) -> Machine:
        """The machine with one of the units only."""
        kept = [c for c in self.spec.arch.components if c.kind != "compute" or c.name == unit]
        return Machine(Hierarchy(tuple(kept)))

    def _alone(
        self, apart: Sequence[int], machines: Sequence[Machine]
    ) -> Iterator[tuple[float, float, list[tuple[Node, ...]]]]:
        """Einsums that share nothing: energies and latencies that no others beat, with their nodes."""
        each = []
        for k in apart:
            machine, found = machines[k], []
            for path in paths_of_one(self.spec.workload.einsums[k], machine):
                f = figures_of(path, machine, keep=True)
                for n in range(len(f.energy)):
                    held = sum(float(h[n]) for h in f.held)
                    if held <= machine.size(1):
                        found.append((float(f.energy[n]), float(f.latency[n]), path, f.tiles[n]))
            found.sort(key=lambda x: x[:2])
            front: list[Any] = []
            for x in found:
                if not front or x[1] < front[-1][1]:
                    front.append(x)
            each.append([(e, t, nodes_below(path, machine, tiles)) for e, t, path, tiles in front])
        for chosen in product(*each):
            yield sum(c[0] for c in chosen), sum(c[1] for c in chosen), [c[2] for c in chosen]

    def _of(
        self,
        structure: Structure,
        machines: Sequence[Machine],
        span: tuple[int, int],
        rest: Sequence[tuple[float, float, list[tuple[Node, ...]]]],
    ) -> Iterator[tuple[Costs, LoopTree]]:
        """Promising mappings of one structure."""
        several = [
            [(o, n) for o in options(structure, k, m, False, keep=True) for n in range(len(o.found.energy))]
            for k, m in enumerate(machines)
        ]
        tables = [self._table(structure, k, some) for k, some in enumerate(several)]
        if not all(several):
            return
        for first in range(len(several[0])):
            head = tables[0][:, first].reshape(-1, *([1] * (len(tables) - 1)))
            tails = [t.reshape(len(t), *(-1 if a == k else 1 for a in range(len(tables) - 1))) for k, t in
                     enumerate(tables[1:])]  # fmt: skip
            parts = [head, *tails]
            room = peak(structure, [p[4:7] for p in parts], 1) <= machines[0].size(1)
            energy, seconds = sum(p[0] for p in parts), self._least_seconds(structure, parts, machines)
            energy = energy + self._leak * seconds
            for e, t, nodes in rest:
                good = room & self._promising(energy + e + self._leak * t, seconds + t)
                for at in np.argwhere(good):
                    chosen = [several[0][first], *(s[int(n)] for s, n in zip(several[1:], at, strict=True))]
                    here = (e + float(energy[tuple(at)]), t + float(seconds[tuple(at)]))
                    if self._promising(here[0] + self._leak * t, here[1]):  # the least may be lower by now
                        yield from self._evaluated(structure, chosen, machines, span, nodes)

    @property
    def _leak(self) -> float:
        return float(sum(c.leak_power for c in self.spec.arch.components))

    def _table(self, structure: Structure, k: int, some: Sequence[tuple[Option, int]]) -> Any:
        """Rows: energy, latency, seconds of both memories, bits above the loops, between, in the branch."""
        columns = [
            [o.found.energy[n], o.found.latency[n], o.found.busy[0][n], o.found.busy[1][n]] for o, n in some
        ]
        held = {id(o): shares(structure, k, o, 1) for o, _ in some}
        return np.array(
            [[*c, *held[id(o)][:, n]] for c, (o, n) in zip(columns, some, strict=True)]
        ).T.reshape(7, -1)

    def _least_seconds(self, structure: Structure, parts: Sequence[Any], machines: Sequence[Machine]) -> Any:
        """No unit runs two Einsums at one time, no memory moves faster than it can, and before the first
        iteration of a stage, or after its last one, at least one of each other Einsum runs."""
        most: Any = 0.0
        units = [m.unit for m in machines]
        for unit in dict.fromkeys(units):
            most = np.maximum(most, sum(p[1] for p, u in zip(parts, units, strict=True) if u == unit))
        for memory in (2, 3):
            most = np.maximum(most, sum(p[memory] for p in parts))
        once = [_one_iteration(structure, k, m) for k, m in enumerate(machines)]
        for k, p in enumerate(parts):
            most = np.maximum(most, p[1] + sum(once) - once[k])
        return most

    def _evaluated(
        self,
        structure: Structure,
        chosen: list[tuple[Option, int]],
        machines: Sequence[Machine],
        span: tuple[int, int],
        rest: list[tuple[Node, ...]],
    ) -> Iterator[tuple[Costs, LoopTree]]:
        group = _on_units(nodes_above(structure, chosen, machines[0]), chosen, machines)
        for nodes in overlapped(group, False):
            groups = list(rest)
            groups.insert(span[0], nodes)
            tree = tree_of(self.spec.workload, machines[0], groups, set(structure.owned))
            self.evaluated += 1
            try:
                report = evaluate_problem(Problem(self.spec.workload, self.spec.arch, tree))
            except (SpecError, Refused):
                continue
            if report.feasible:
                yield (report.total_energy, report.total_latency), tree


def _one_iteration(structure: Structure, k: int, machine: Machine) -> float:
    """Seconds in which an Einsum computes for one iteration of its shared loops, at least."""
    one = structure.einsums[k]
    extents = {v: high + 1 for v, (_, high) in zip(one.rank_variables, one.bounds, strict=True)}
    trips = prod(extents[v] // tile for v, tile in structure.loops(k))
    return prod(extents.values()) / trips / machine.hierarchy[machine.unit].action("compute").throughput


def _on_units(
    nodes: tuple[Node, ...], chosen: list[tuple[Option, int]], machines: Sequence[Machine]
) -> tuple[Node, ...]:
    """The same nodes, each Einsum on its own machine's unit."""
    unit = {o.path.einsum.name: m.unit for (o, _), m in zip(chosen, machines, strict=True)}
    result: list[Node] = []
    for n in nodes:
        if isinstance(n, ComputeNode):
            n = replace(n, component=unit[n.einsum])
        elif isinstance(n, Split):
            n = replace(n, branches=tuple(_on_units(b, chosen, machines) for b in n.branches))
        result.append(n)
    return tuple(result)


def overlapped(nodes: tuple[Node, ...], some: bool = False) -> Iterator[tuple[Node, ...]]:
    """Every way of running the splits, in which at least one is a pipeline (unless `some` is already)."""
    if not isinstance(nodes[-1], Split):
        if some:
            yield nodes
        return
    *above, split = nodes
    assert isinstance(split, Split)
    for kinds in product((False, True), repeat=len(split.branches)):
        each = [list(_ways(b, k)) for b, k in zip(split.branches, kinds, strict=True)]
        for branches in product(*each):
            if some or any(kinds):
                yield (*above, Split(tuple(branches)))
            for stages in _grouped(list(branches)):
                yield (*above, Split(stages, pipeline=True))


def _ways(branch: tuple[Node, ...], with_pipeline: bool) -> Iterator[tuple[Node, ...]]:
    """The branch with no pipeline, or in every way with one."""
    if with_pipeline:
        yield from overlapped(branch)
    else:
        yield branch


def _grouped(branches: list[tuple[Node, ...]]) -> Iterator[tuple[tuple[Node, ...], ...]]:
    """Consecutive branches together in two or more stages."""
    n = len(branches)
    for many in range(1, n):
        for cut in combinations(range(1, n), many):
            spans = zip((0, *cut), (*cut, n), strict=True)
            yield tuple(branches[a] if b == a + 1 else (Split(tuple(branches[a:b])),) for a, b in spans)
