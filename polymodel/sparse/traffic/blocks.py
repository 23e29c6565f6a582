"""Which Einsums run fused, and how long the cascade takes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from polymodel.sparse.traffic.records import EinsumTraffic
from polymodel.spec.teaal.records import TeaalSpec

_UNITS = ("Compute", "Intersector", "Merger", "Sequencer")


def fused_blocks(spec: TeaalSpec) -> tuple[tuple[str, ...], ...]:
    """Which Einsums run at once (TeAAL, MICRO'23, section 4.3).

    Consecutive Einsums share a block if they run on the same architecture, have the same loops above their
    first spatial one, and use no unit in common. An Einsum without spacetime is alone.
    """
    blocks: list[list[str]] = []
    state: tuple[str, tuple[str, ...]] | None = None
    used: set[str] = set()
    for expression in spec.expressions:
        name = expression.name
        bound = spec.bindings_of(name)
        mapping = spec.mapping_of(name)
        units = set()
        if bound.bindings:
            components = spec.configuration(bound.config).components
            units = {c.name for c in components if c.kind in _UNITS and bound.of(c.name)}
        outer = None
        if mapping.spacetime is not None:
            space = {s.rank for s in mapping.spacetime.space}
            first = (i for i, r in enumerate(mapping.loop_order) if r in space)
            outer = mapping.loop_order[: next(first, len(mapping.loop_order))]
        here = None if outer is None else (bound.config, outer)
        if here is not None and here == state and not used & units:
            blocks[-1].append(name)
            used |= units
        else:
            blocks.append([name])
            used, state = set(units), here
    return tuple(tuple(b) for b in blocks)


def total_time(einsums: Sequence[EinsumTraffic], blocks: Iterable[Iterable[str]]) -> float | None:
    """Per block the busiest component, its times in the Einsums of the block summed; the blocks summed."""
    by_name = {e.einsum: e for e in einsums}
    total: float | None = None
    for block in blocks:
        sums: dict[str, float] = {}
        for name in block:
            for component, time in by_name[name].times.items():
                if time is None:
                    return None
                sums[component] = sums[component] + time if component in sums else time
        busiest = max(sums.values(), default=0.0)
        total = busiest if total is None else total + busiest
    return total
