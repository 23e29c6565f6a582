"""What all slopes share: which Einsums have one, the two levels they are over, and the width of elements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from polymodel.architecture.hierarchy import Component, Hierarchy
from polymodel.errors import Diagnostic, NotSeparable, Refused, SpecError
from polymodel.slopes.tile_sizes import extent, overlapping
from polymodel.workload.einsum import Einsum, require_plain

MOST_VARIABLES = 7


def plain_hierarchy() -> Hierarchy:
    """Two memories and a compute unit, for specs without an architecture."""
    return Hierarchy(
        (Component("DRAM", "memory"), Component("Buffer", "memory"), Component("MAC", "compute"))
    )


def two_levels(hierarchy: Hierarchy) -> tuple[str, str, str]:
    """The two outermost memories and the first compute unit; SpecError where there are none."""
    memories = list(hierarchy.memories)
    units = [c.name for c in hierarchy.components if c.computes]
    if len(memories) < 2 or not units:
        raise SpecError(
            [Diagnostic("a ski slope needs two memories and a compute unit", "add them to `arch:`")]
        )
    return memories[0], memories[1], units[0]


BY_HAND = "write a mapping by hand and evaluate or sweep it"


def check_einsum(one: Einsum) -> None:
    """One or two rank variables per rank, a box, one output, and few enough variables."""
    from polymodel.analysis.symbolic.layout import check_box

    require_plain([one], "slopes cover", BY_HAND, products=True)
    check_box(one)
    for t in one.tensors:
        overlapping(one, one.access_of(t))
    if len(one.rank_variables) > MOST_VARIABLES:
        raise Refused(
            f"{one.name} has {len(one.rank_variables)} rank variables; ski slopes go to {MOST_VARIABLES}",
            "sweep the tile sizes instead: polymodel.sweep",
        )
    if len(one.outputs) != 1:
        raise NotSeparable(f"{one.name} has {len(one.outputs)} outputs", "give it one")


def weights_of(one: Einsum, unit: str) -> dict[str, int]:
    """What one element of each tensor counts: 1 in words, its width in bits."""
    return {a.tensor: 1 if unit == "words" else a.bits_per_value for a in one.accesses}


def check_counts(einsums: Iterable[Einsum], weights: Mapping[str, int]) -> None:
    """Refused where traffic, which is at most one transfer per operation and access, twice for outputs, may
    leave 64 bits."""
    most = 0
    for one in einsums:
        operations = prod(extent(one, v) for v in one.rank_variables)
        most += 2 * operations * sum(weights[a.tensor] for a in one.accesses)
        if most >= 2**62:
            raise Refused(
                f"traffic of {one.name} may exceed 2^62", "count in words, or take smaller rank sizes"
            )
