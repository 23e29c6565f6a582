"""Working sets of sparse tiles against sizes: expected bits, and how probable it is that they do not fit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from polymodel.analysis.result import Analysis, Problem, Resident
from polymodel.sparse.actions.data import TensorData
from polymodel.sparse.actions.places import seen_by
from polymodel.sparse.actions.records import Footprint, SparseCounts
from polymodel.sparse.density.model import Label


@dataclass(frozen=True)
class Capacity:
    """One memory during one Einsum, bits of its busiest instance. `bits`: expected (of actual data: exact).

    `p_overflow`: probability that the working set exceeds the size; its `label` is `bound` where it is only
    known not to be more (several sparse tiles together: Cantelli's inequality).
    """

    component: str
    einsum: str
    dense_bits: int
    bits: float
    capacity_bits: float
    p_overflow: float
    label: Label

    @property
    def fits(self) -> bool:
        """True if the expected working set fits."""
        return self.bits <= self.capacity_bits


def capacity_checks(
    problem: Problem, analysis: Analysis, counts: SparseCounts, data: Mapping[str, TensorData]
) -> tuple[Capacity, ...]:
    """One record per working set that its memory's size is checked with."""
    held = {(f.node, f.tensor): f for f in counts.footprints}
    found = []
    for peak in analysis.working_sets:
        component = problem.hierarchy[peak.component]
        if peak.measure != component.allocation:
            continue
        sparse = [(r, held[r.node, r.tensor]) for r in peak.residents if (r.node, r.tensor) in held]
        rest = peak.bits - sum(r.bits for r, _ in sparse)
        bits = rest + sum(_scaled(r, f, f.bits) for r, f in sparse)
        seen = seen_by(problem.cascade[peak.einsum], data)
        chance, label = _overflow(component.size_bits - rest, sparse, seen)
        if all(f.label == "exact" for _, f in sparse):
            label = "exact"
        size = component.size_bits
        found.append(Capacity(peak.component, peak.einsum, peak.bits, bits, size, chance, label))
    return tuple(found)


def _scaled(resident: Resident, tile: Footprint, bits: float) -> float:
    """Bits of what is resident, which may be more or less than one tile."""
    return resident.bits * bits / tile.dense_bits if tile.dense_bits else 0.0


def _overflow(
    room: float, sparse: Sequence[tuple[Resident, Footprint]], data: Mapping[str, TensorData]
) -> tuple[float, Label]:
    """Probability that sparse tiles take more than what dense ones leave."""
    if math.isinf(room):
        return 0.0, "exact"
    mean = sum(_scaled(r, f, f.bits) for r, f in sparse)
    random = [(r, f) for r, f in sparse if f.spread]
    if not random:
        return float(mean > room), "exact"
    if len(random) == 1:
        (resident, tile), fixed = random[0], mean
        fixed -= _scaled(resident, tile, tile.bits)
        each = _scaled(resident, tile, tile.bits_per_nonzero)
        spare = (room - fixed - _scaled(resident, tile, tile.base_bits)) / each
        if spare < -1e-9:
            return 1.0, "expected"
        model = data[tile.tensor].model
        assert model is not None, "only tensors with a model have tiles of different occupancies"
        most = min(math.floor(spare + 1e-9), tile.points)
        return float(np.clip(1 - model.cdf(tile.extents, most), 0, 1)), "expected"
    variance = sum(_scaled(r, f, f.spread) ** 2 for r, f in random)
    slack = room - mean
    if slack <= 0:
        return 1.0, "bound"
    return variance / (variance + slack**2), "bound"
