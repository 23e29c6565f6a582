"""Mappings of several layers together: what all of them cost, and which combinations none beats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polymodel.affine import Affine
from polymodel.architecture.hierarchy import Component
from polymodel.governor import look
from polymodel.loading import Spec
from polymodel.objectives import objective_of
from polymodel.pareto import undominated
from polymodel.workload.einsum import Einsum

Array = Any
LARGEST = ("working_set",)  # of which several layers, one after the other, need the most of any


@dataclass(frozen=True)
class Combined:
    """Combinations of one mapping per layer. `figures`: name -> values; `picks` [combination, layer]: which
    mapping."""

    figures: Mapping[str, Array]
    picks: Array

    def __len__(self) -> int:
        return len(self.picks)

    def only(self, places: Array) -> Combined:
        """Some of them, in this order."""
        return Combined({n: v[places] for n, v in self.figures.items()}, self.picks[places])


def separate(spec: Spec) -> tuple[tuple[Spec, int], ...]:
    """Each Einsum of a spec as a layer of its own, with how often it is there: Einsums that are equal but for
    names are one layer, the first of them."""
    found: dict[object, list[Spec]] = {}
    for einsum in spec.workload:
        alone = spec.only(einsum.name)
        found.setdefault(_structure(alone, alone.workload.einsums[0]), []).append(alone)
    return tuple((alike[0], len(alike)) for alike in found.values())


def _structure(spec: Spec, einsum: Einsum) -> object:
    """All of an Einsum that costs depend on, without names: variables and tensors are numbered."""
    numbers = {v: f"v{i}" for i, v in enumerate(einsum.rank_variables)}
    tensors = {t: i for i, t in enumerate(einsum.tensors)}
    accesses = tuple(
        (
            tensors[a.tensor], tuple(_renamed(e, numbers) for e in a.projection), a.output, a.bits_per_value,
            a.persistent, a.backing_scale, repr(a.density), a.accumulates,
        )
        for a in einsum.accesses
    )  # fmt: skip
    constraints = frozenset((_renamed(c.expr, numbers), c.kind, c.modulus) for c in einsum.constraints)
    return (
        constraints, accesses, einsum.is_copy, einsum.n_instances, einsum.operator,
        tuple(_rules(c, einsum, tensors) for c in spec.arch.components),
    )  # fmt: skip


def _renamed(expr: Affine, numbers: Mapping[str, str]) -> object:
    return frozenset((numbers[v], c) for v, c in expr.terms), expr.constant


def _rules(c: Component, einsum: Einsum, tensors: Mapping[str, int]) -> object:
    """Which tensors a component keeps, may keep, and shares along each of its fanouts."""
    kept = tuple(
        None if rule is None else frozenset(tensors[t] for t in rule.tensors(einsum.name) if t in tensors)
        for rule in (c.keep, c.may_keep)
    )
    shared = (frozenset(i for t, i in tensors.items() if d.reuses(einsum.name, t)) for d in c.spatial)
    return kept, tuple(shared)


def combined(layers: Sequence[tuple[Mapping[str, Array], int]], over: Sequence[str]) -> Combined:
    """The combinations that no other one beats in every figure that is named in `over`.

    `layers`: the figures of each layer's mappings, and how often the layer is executed. Energies, times and
    bits that move add up over layers and executions; of working sets the largest counts. A combination of
    which one part is beaten is beaten itself, so that layers are joined one by one.
    """
    found = Combined({}, np.zeros((1, 0), np.int64))
    for figures, times in layers:
        look("which mappings of layers go together")
        count = len(next(iter(figures.values())))
        before = np.repeat(np.arange(len(found)), count)
        here = np.tile(np.arange(count), len(found))
        joined = {
            name: _joined(name, found.figures.get(name), values, times, before, here)
            for name, values in figures.items()
        }
        picks = np.concatenate([found.picks[before], here[:, None]], axis=1)
        kept = (
            undominated(np.stack([np.asarray(joined[name], float) for name in over]))
            if len(picks)
            else picks[:, 0]
        )
        found = Combined(joined, picks).only(np.sort(kept))
    return found


def _joined(name: str, so_far: Array | None, values: Array, times: int, before: Array, here: Array) -> Array:
    if objective_of(name).word in LARGEST:
        return values[here] if so_far is None else np.maximum(so_far[before], values[here])
    return values[here] * times if so_far is None else so_far[before] + values[here] * times
