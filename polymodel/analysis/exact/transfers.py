"""The number of elements that cross a link, per instance of either end."""

from __future__ import annotations

from collections.abc import Iterable

from polymodel.analysis.exact.buffets import shape_of, transition_mode
from polymodel.analysis.exact.cached_counts import CountProduct, resident_tally, tally
from polymodel.polyhedra.steps import Mode
from polymodel.schedule.touch import Factor, Touch


def modes(factors: tuple[Factor, ...], axis: int) -> list[Mode] | None:
    """The transition at `axis` as each factor sees it; None if it never happens."""
    result = []
    for factor in factors:
        mode = transition_mode(factor, axis)
        if mode is None:
            return None
        result.append(mode)
    return result


def moved(
    now: Touch,
    held: Touch,
    carries: Iterable[int],
    charge: int,
    shared: frozenset[int],
    *,
    forward: bool = False,
    per: int = 0,
) -> tuple[CountProduct, ...]:
    """Elements that are touched in `now` and not held at the neighbouring visit.

    `carries`: axis positions over whose transitions `held` stays. `charge`: the number of leading axes of the
    instance that is charged. Instances along the spatial axes `shared` move an element together, once.
    `forward`: the following visit counts (drains) instead of the preceding one (fills). `per`: counts for
    each value of the temporal counters of this many outer loops.
    """
    layout = []
    for factor in now.factors:
        keep = sum(1 for a in factor.spatial if a < charge)
        drop = tuple(k for k, a in enumerate(factor.spatial) if a >= charge and a in shared)
        stamps = sum(1 for a in factor.temporal if a < per)
        axes = (*factor.spatial[:keep], *factor.temporal[:stamps])
        layout.append((factor, axes, keep, drop, stamps))
    products = [
        CountProduct(1, tuple((axes, tally(shape_of(f), keep, drop, n)) for f, axes, keep, drop, n in layout))
    ]
    for axis in sorted(carries):
        seen = modes(held.factors, axis)
        if seen is None:
            continue
        parts = tuple(
            (axes, resident_tally(shape_of(f), h.text, mode, forward, keep, drop, n))
            for (f, axes, keep, drop, n), h, mode in zip(layout, held.factors, seen, strict=True)
        )
        products.append(CountProduct(-1, parts))
    return tuple(products)
