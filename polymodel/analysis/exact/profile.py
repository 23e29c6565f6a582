"""Tile sizes and fills at every stamp, as dense arrays: sums of products of one array per factor.

`transfers.moved` sums the same over time; here the temporal counters are kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from polymodel.analysis.exact.buffets import shape_of
from polymodel.analysis.exact.cached_counts import Array, CountProduct, dense, resident_tally, tally
from polymodel.analysis.exact.transfers import modes
from polymodel.errors import Refused
from polymodel.schedule.touch import StampAxis, Touch

LIMIT = 20_000_000


@dataclass(frozen=True)
class Profile:
    """Elements per stamp.

    `positions`: the remaining coordinates of a stamp (path order), `axes`: their meaning; `shape`: one more
    than the largest counter of each. `terms` add up to the counts.
    """

    positions: tuple[int, ...]
    axes: tuple[StampAxis, ...]
    shape: tuple[int, ...]
    terms: tuple[CountProduct, ...]

    def array(self) -> Array:
        """The counts, one axis per stamp coordinate. Raises Refused above 20 million stamps."""
        if prod(self.shape) > LIMIT:
            message = f"there are {prod(self.shape):,} stamps to show, at most {LIMIT:,} are"
            raise Refused(message, "use larger tiles", code="too-large")
        return dense(self.terms, self.positions, self.shape)

    @property
    def total(self) -> int:
        """The sum over all stamps, without an array of them."""
        return sum(t.total for t in self.terms)


def sizes_at(touch: Touch) -> Profile:
    """The number of elements touched at each stamp (t, p)."""
    parts = []
    for f in touch.factors:
        s = shape_of(f)
        parts.append(_in_path_order((*f.spatial, *f.temporal), tally(s, s.np + s.nt)))
    return _profile(touch, frozenset(), (CountProduct(1, tuple(parts)),))


def fills_at(
    now: Touch, held: Touch, carries: Iterable[int], together: frozenset[int] = frozenset()
) -> Profile:
    """The number of elements of `now` that must be filled at each stamp, since `held` did not keep them.

    `carries`: stamp positions over whose steps `held` stays. Instances along the spatial positions `together`
    move an element once: these coordinates are not part of the result.
    """
    drops = [tuple(k for k, a in enumerate(f.spatial) if a in together) for f in now.factors]
    kept = [tuple(a for a in (*f.spatial, *f.temporal) if a not in together) for f in now.factors]
    whole = (
        _in_path_order(left, tally(shape_of(f), len(left), drop))
        for f, left, drop in zip(now.factors, kept, drops, strict=True)
    )
    terms = [CountProduct(1, tuple(whole))]
    for axis in sorted(carries):
        seen = modes(held.factors, axis)
        if seen is None:
            continue
        stays = (
            _in_path_order(left, resident_tally(shape_of(f), h.text, mode, False, len(left), drop))
            for f, h, mode, left, drop in zip(now.factors, held.factors, seen, kept, drops, strict=True)
        )
        terms.append(CountProduct(-1, tuple(stays)))
    return _profile(now, together, tuple(terms))


def _in_path_order(axes: tuple[int, ...], array: Array) -> tuple[tuple[int, ...], Array]:
    """Factors have spatial coordinates first; stamps have them in the order of the loops."""
    order = sorted(range(len(axes)), key=lambda k: axes[k])
    return tuple(axes[k] for k in order), array.transpose(order)


def _profile(touch: Touch, together: frozenset[int], terms: tuple[CountProduct, ...]) -> Profile:
    extents: dict[int, int] = {}
    for axes, array in terms[0].parts:  # what stays is no more than what is touched
        extents |= dict(zip(axes, array.shape, strict=True))
    left = tuple(k for k in range(len(touch.axes)) if k not in together)
    return Profile(left, tuple(touch.axes[k] for k in left), tuple(extents[k] for k in left), terms)
