"""Mappings of several layers together: their total costs, and the undominated combinations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from polymodel.architecture.hierarchy import Component
from polymodel.arithmetic import Affine, Constraint
from polymodel.cost.records import ExecutedOperators
from polymodel.errors import SpecError
from polymodel.governor import look
from polymodel.hardware.machines import relevant_symbols
from polymodel.loading import Spec
from polymodel.objectives import objective_of, whose
from polymodel.pareto import undominated
from polymodel.spec.section_schemas import ExploreSection, MemoryRule
from polymodel.sweeps.grid import Grid
from polymodel.workload.einsum import Einsum

Array = Any
Figures = Mapping[str, Array]
LARGEST = ("working_set",)  # figures that are the largest over layers in sequence, not their sum


@dataclass(frozen=True)
class Combined:
    """Combinations of one mapping per layer.

    `figures`: name -> values; `picks` [combination, layer]: the index of the mapping.
    """

    figures: Figures
    picks: Array

    def __len__(self) -> int:
        return len(self.picks)

    def only(self, places: Array) -> Combined:
        """The combinations at these positions, in this order."""
        return Combined({n: v[places] for n, v in self.figures.items()}, self.picks[places])


def separate(spec: Spec, grid: Grid, given: ExploreSection) -> tuple[tuple[Spec, Mapping[str, int]], ...]:
    """Each Einsum of a spec as a layer of its own, with the number of its occurrences in each block.

    Einsums that are equal except for names and blocks on every machine of a grid are one layer, the first of
    them. Einsums are distinguished if the workload, or the search, depends on symbols of the grid, or if the
    search has rules on rank variables, tensors or Einsums by name. `given`: constraints of the call.
    """
    bound = None if _by_name(spec, given) or relevant_symbols((spec,), grid, given) else _bound(spec, grid)
    result: dict[object, list[str]] = {}
    blocks = spec.raw_workload.blocks if spec.raw_workload else {e.name: "" for e in spec.workload}
    for name in blocks:
        alone = None if bound is None else bound.only(name)
        key = name if alone is None else _structure(alone, alone.workload.einsums[0])
        result.setdefault(key, []).append(name)
    return tuple((spec.only(alike[0]), Counter(blocks[n] for n in alike)) for alike in result.values())


def _by_name(spec: Spec, given: ExploreSection) -> bool:
    """Whether a search has rules on names of the workload."""
    for s in (spec.raw_explore or ExploreSection(), given):
        rules = s.memories.values()
        if s.loop_order or s.compute or s.fuse or s.unfused or s.fanouts:
            return True
        if any(rule != MemoryRule(reuse=rule.reuse) for rule in rules):
            return True
    return False


def _bound(spec: Spec, grid: Grid) -> Spec | None:
    """The spec on the first valid machine, if any."""
    for number in range(grid.size):
        values = {n: v for n, v in grid.point(number).items() if n in spec.symbols}
        with suppress(SpecError):
            bound = spec.bind(**values)
            _ = bound.arch, bound.workload
            return bound
    return None


def _structure(spec: Spec, einsum: Einsum) -> object:
    """Everything of an Einsum that costs depend on, without names: variables and tensors are numbered."""
    numbers = {v: f"v{i}" for i, v in enumerate(einsum.rank_variables)}
    tensors = {t: i for i, t in enumerate(einsum.tensors)}
    accesses = tuple(
        (
            tensors[a.tensor], tuple(_renamed(e, numbers) for e in a.projection), a.output, a.bits_per_value,
            a.persistent, a.backing_scale, repr(a.density), a.default, a.accumulates,
            _renamed_all(a.guard, numbers), tensors.get(a.stands_for, a.stands_for),
        )
        for a in einsum.accesses
    )  # fmt: skip
    return (
        _renamed_all(einsum.constraints, numbers), accesses, einsum.is_copy, einsum.n_instances,
        ExecutedOperators.of(einsum), tuple(_rules(c, einsum, tensors) for c in spec.arch.components),
    )  # fmt: skip


def _renamed_all(constraints: Iterable[Constraint], numbers: Mapping[str, str]) -> object:
    return frozenset((_renamed(c.expr, numbers), c.kind, c.modulus) for c in constraints)


def _renamed(expr: Affine, numbers: Mapping[str, str]) -> object:
    return frozenset((numbers[v], c) for v, c in expr.terms), expr.constant


def _rules(c: Component, einsum: Einsum, tensors: Mapping[str, int]) -> object:
    """The tensors that a component keeps, may keep, and shares along each of its fanouts."""
    kept = tuple(
        None if rule is None else frozenset(tensors[t] for t in rule.tensors(einsum.name) if t in tensors)
        for rule in (c.keep, c.may_keep)
    )
    shared = (frozenset(i for t, i in tensors.items() if d.reuses(einsum.name, t)) for d in c.spatial)
    return kept, tuple(shared)


def combined(layers: Sequence[tuple[Figures, int | float]], over: Sequence[str]) -> Combined:
    """The undominated combinations in the figures `over`.

    `layers`: the figures of each layer's mappings, and the number of its executions; or of each network's
    combinations, and its weight. Energies, times and moved bits add over layers and executions; of working
    sets the largest counts. Figures of one network have no weight. A combination with a dominated part is
    dominated, so that layers are joined one by one.
    """
    result = Combined({}, np.zeros((1, 0), np.int64))
    for figures, times in layers:
        look("which mappings of layers go together")
        count = len(next(iter(figures.values())))
        before = np.repeat(np.arange(len(result)), count)
        here = np.tile(np.arange(count), len(result))
        joined = {
            name: _joined(name, result.figures.get(name), values, times, before, here)
            for name, values in figures.items()
        }
        picks = np.concatenate([result.picks[before], here[:, None]], axis=1)
        kept = (
            undominated(np.stack([np.asarray(joined[name], float) for name in over]))
            if len(picks)
            else picks[:, 0]
        )
        result = Combined(joined, picks).only(np.sort(kept))
    return result


def _joined(
    name: str, so_far: Array | None, values: Array, times: int | float, before: Array, here: Array
) -> Array:
    figure, network = whose(name)
    if objective_of(figure).word in LARGEST:
        return values[here] if so_far is None else np.maximum(so_far[before], values[here])
    added = values[here] * (1 if network else times)
    return added if so_far is None else so_far[before] + added
