"""Common parts of all slopes: which Einsums have one, their two levels, and the width of elements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod

from polymodel.analysis.symbolic.spaces import carried_line, same_elements
from polymodel.architecture.hierarchy import Component, Hierarchy
from polymodel.errors import Diagnostic, NotSeparable, Refused, SpecError
from polymodel.slopes.tile_sizes import extent, overlapping, with_neighbours
from polymodel.workload.einsum import Cascade, Einsum, require_plain

MOST_VARIABLES = 7


def plain_hierarchy() -> Hierarchy:
    """Return two memories and a compute unit, for specs without an architecture."""
    return Hierarchy(
        (Component("DRAM", "memory"), Component("Buffer", "memory"), Component("MAC", "compute"))
    )


def two_levels(hierarchy: Hierarchy) -> tuple[str, str, str]:
    """Return the two outermost memories and the first compute unit. Raises SpecError if they are missing."""
    memories = list(hierarchy.memories)
    units = [c.name for c in hierarchy.components if c.computes]
    if len(memories) < 2 or not units:
        message = "a ski slope needs two memories and a compute unit"
        raise SpecError([Diagnostic(message, "add them to `arch:`", code="missing-component")])
    return memories[0], memories[1], units[0]


BY_HAND = "write a mapping by hand and evaluate or sweep it"


def check_einsum(one: Einsum) -> None:
    """Raise NotSeparable or Refused for Einsums without a slope.

    They need one or two rank variables per rank, a box, one output, and few enough variables. Several
    elements of a tensor must be evenly spaced; of a recurrent tensor only the previous generation may be
    read.
    """
    from polymodel.analysis.symbolic.layout import check_box

    require_plain(Cascade((one,)), "slopes cover", BY_HAND, products=True, carried=True, several=True)
    carried_along(one)
    flat = with_neighbours(one)
    for t in one.tensors:
        if t not in Cascade((one,)).recurrent and len({a.projection for a in flat.accesses_of(t)}) > 1:
            subject = f"{one.name} accesses {t} at several elements"
            message = f"{subject}; slopes cover elements that stand evenly apart along ranks"
            raise Refused(message, BY_HAND, code="unsupported-einsum")
    alone = replace(flat, accesses=tuple(map(flat.access_of, flat.tensors)))
    check_box(alone)
    for access in alone.accesses:
        overlapping(alone, access)
    if len(one.rank_variables) > MOST_VARIABLES:
        raise Refused(
            f"{one.name} has {len(one.rank_variables)} rank variables; ski slopes go to {MOST_VARIABLES}",
            "sweep the tile sizes instead: polymodel.sweep",
            code="unsupported-einsum",
        )
    if len(one.outputs) != 1:
        message = f"{one.name} has {len(one.outputs)} outputs"
        raise NotSeparable(message, "give it one", code="unsupported-einsum")


def carried_along(one: Einsum) -> str:
    """Return the rank variable along which an Einsum continues from the previous generation of its output; ""
    if it does not.

    Raises Refused for other reads, and if it also accumulates.
    """
    cascade = Cascade((one,))
    if not cascade.recurrent:
        return ""
    tensor = cascade.recurrent[0]
    line, write = carried_line(cascade, one, tensor), one.access_of(tensor)
    index = write.projection[line.rank]
    away = {index.constant - a.projection[line.rank].constant for a in one.accesses_of(tensor)}
    alike = same_elements(one, line, tensor) and all(
        a.projection[line.rank].terms == index.terms for a in one.accesses_of(tensor)
    )
    if not alike or away != {0, 1} or len(index.variables) != 1:
        message = f"{one.name} reads {tensor} at another step than the preceding generation"
        raise Refused(message, BY_HAND, code="unsupported-recurrence")
    if any(a.stands_for for a in one.accesses):
        subject = f"{one.name} reads a tensor in place of what is before the first generation of {tensor}"
        raise Refused(f"{subject}; slopes cover numbers there", BY_HAND, code="unsupported-recurrence")
    summed = [v for v in one.rank_variables if v not in write.variables]
    if summed:
        message = f"{one.name} carries {tensor} forward and sums up over {summed[0]}"
        raise Refused(message, BY_HAND, code="unsupported-recurrence")
    return index.variables[0]


def read_once(cascade: Cascade, only: Iterable[str] | None = None) -> tuple[Einsum, ...]:
    """Return the Einsums (`only` some) with one access of each tensor, since an element that one operation
    reads several times is filled once.

    Raises Refused if one reads several elements, has a recurrent tensor, or passes on a tensor that results
    are added to.
    """
    require_plain(cascade, "slopes of chains and graphs cover", BY_HAND, products=True)
    for one in cascade:
        for made in (a.tensor for a in one.outputs if a.accumulates):
            for reader in cascade.consumers(made):
                subject = f"{one.name} adds to {made}, which {reader.name} reads"
                message = f"{subject}; slopes of chains and graphs hand on what is made anew"
                raise Refused(message, BY_HAND, code="unsupported-recurrence")
    names = None if only is None else set(only)
    chosen = (e for e in cascade if names is None or e.name in names)
    return tuple(replace(e, accesses=tuple(dict.fromkeys(e.accesses))) for e in chosen)


def weights_of(one: Einsum, unit: str) -> dict[str, int]:
    """Return the weight of one element of each tensor: 1 in words, its width in bits."""
    return {a.tensor: 1 if unit == "words" else a.bits_per_value for a in one.accesses}


def check_counts(einsums: Iterable[Einsum], weights: Mapping[str, int]) -> None:
    """Raise Refused if traffic may exceed 64 bits. It is at most one transfer per operation and access, twice
    for outputs."""
    most = 0
    for one in einsums:
        operations = prod(extent(one, v) for v in one.rank_variables)
        most += 2 * operations * sum(weights[a.tensor] for a in one.accesses)
        if most >= 2**62:
            message = f"traffic of {one.name} may exceed 2^62"
            raise Refused(message, "count in words, or take smaller rank sizes", code="number-too-large")
