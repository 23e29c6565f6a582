"""What each memory must hold against what it can hold (bits of one instance)."""

from __future__ import annotations

import math
from fractions import Fraction

from polymodel.analysis.result import Resident, WorkingSet
from polymodel.architecture.hierarchy import Component
from polymodel.cost.context import Counts
from polymodel.cost.records import Need, Violation
from polymodel.errors import Refused


def needs(counts: Counts) -> tuple[Need, ...]:
    """Every working set with its component's capacity, outermost component first."""
    hierarchy = counts.problem.hierarchy
    level = {c.name: i for i, c in enumerate(hierarchy.components)}
    order = {name: i for i, name in enumerate(counts.einsums)}
    found = [_need(counts, w, hierarchy[w.component]) for w in counts.analysis.working_sets]
    return tuple(sorted(found, key=lambda n: (level[n.component], order[n.einsum], n.measure)))


def _need(counts: Counts, peak: WorkingSet, component: Component) -> Need:
    bits, residents = peak.bits, peak.residents
    if not counts.problem.hierarchy.assume_overlap and component.buffering == "double":
        bits, residents = _doubled(counts, peak)
    return Need(
        peak.component, peak.einsum, peak.measure, bits, component.size_bits, component.allocation, residents
    )


def _doubled(counts: Counts, peak: WorkingSet) -> tuple[int, tuple[Resident, ...]]:
    """Twice each tile that is refilled from a parent; backing tiles are never refilled.

    The peak of a mixed component may lie in another phase once some tiles are doubled.
    """
    refilled = {
        counts.parents[b.node, b.tensor] is not None
        for b in counts.analysis.buffets
        if b.component == peak.component
    }
    if refilled <= {False}:
        return peak.bits, peak.residents
    if refilled == {True, False} and peak.residents:
        raise Refused(
            f"assume_overlap: false: {peak.component} is double-buffered and holds both refilled and backing "
            f"tiles, so its peak during {peak.einsum} is not counted",
            f"give {peak.component} `buffering: single`, or leave assume_overlap true",
        )
    return 2 * peak.bits, tuple(Resident(r.node, r.tensor, 2 * r.bits) for r in peak.residents)


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
