"""What each memory must hold against what it can hold (bits of one instance)."""

from __future__ import annotations

import math
from fractions import Fraction

from polymodel.analysis.result import WorkingSet
from polymodel.architecture.hierarchy import Component
from polymodel.cost.context import Counts
from polymodel.cost.records import Need, Violation


def needs(counts: Counts) -> tuple[Need, ...]:
    """Every working set with its component's capacity, outermost component first."""
    hierarchy = counts.problem.hierarchy
    level = {c.name: i for i, c in enumerate(hierarchy.components)}
    order = {name: i for i, name in enumerate(counts.einsums)}
    found = [_need(w, hierarchy[w.component]) for w in counts.analysis.working_sets]
    return tuple(sorted(found, key=lambda n: (level[n.component], order[n.einsum], n.measure)))


def _need(peak: WorkingSet, component: Component) -> Need:
    return Need(
        peak.component,
        peak.einsum,
        peak.measure,
        peak.bits,
        component.size_bits,
        component.allocation,
        peak.residents,
    )


def violations(found: tuple[Need, ...]) -> tuple[Violation, ...]:
    """The needs that count for their memory's `allocation` and exceed its capacity."""
    return tuple(
        Violation(
            n.component,
            n.einsum,
            tuple(dict.fromkeys(r.tensor for r in n.residents)),
            n.bits,
            n.capacity_bits,
            n.allocation,
        )
        for n in found
        if n.counts and not n.fits
    )


def stored_bits(counts: Counts, tensor: str, elements: int | Fraction, backing: bool) -> int:
    """Bits that so many elements occupy; a backing node's are scaled and rounded up."""
    access = counts.accesses[tensor]
    scale = access.backing_scale if backing else Fraction(1)
    return math.ceil(elements * access.bits_per_value * scale)
