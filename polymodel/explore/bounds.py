"""Branch and bound: what whole mappings that are known already rule out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from polymodel.explore.undominated import undominated

Array = Any
ROUNDING = 1e-9  # sums of floats in another order may differ by less
TOGETHER = 8  # known mappings compared at once


@dataclass(frozen=True)
class Bound:
    """Figures of known whole mappings (`known` [figures, m]: energy and latency, as far as they are
    objectives, then peaks), and the least that what is not counted yet adds to each (`rest`)."""

    known: Array
    rest: tuple[float, ...]

    def hopeful(self, figures: Sequence[Array]) -> Array:
        """False where some known mapping is better in every figure, whatever is added."""
        values = np.stack([f + r for f, r in zip(figures, self.rest, strict=True)])
        known = self.known * (1 + ROUNDING)
        if len(values) == 1:
            found: Array = values[0] <= known[0].min()
        elif len(values) == 2:
            # Of the known mappings with less energy, the last one has the least latency.
            place = np.searchsorted(known[0], values[0], side="left") - 1
            found = (place < 0) | (known[1][np.maximum(place, 0)] >= values[1])
        else:
            found = _against(known, values)
        return found

    def with_rest(self, rest: Sequence[float]) -> Bound:
        return replace(self, rest=tuple(rest))


def bound_of(figures: Sequence[Array], before: Bound | None = None) -> Bound | None:
    """The bound that known mappings and those of an earlier bound give; None without any."""
    if before is not None:
        figures = [np.concatenate([f, k]) for f, k in zip(figures, before.known, strict=True)]
    if not len(figures) or not len(figures[0]):
        return None
    kept = undominated(figures, np.zeros(len(figures[0]), np.int64))
    known = np.stack([f[kept] for f in figures])
    return Bound(known[:, np.lexsort(known[::-1])], (0.0,) * len(known))


def _against(known: Array, values: Array) -> Array:
    """False where some column of `known` is below in every row.

    Those that lie lowest on the whole come first: they rule out most points, and the others see few.
    """
    ranks = np.argsort(np.argsort(known, axis=1), axis=1)
    order = np.argsort(ranks.sum(axis=0), kind="stable")
    left = np.arange(values.shape[1])
    for begin in range(0, known.shape[1], TOGETHER):
        some = known[:, order[begin : begin + TOGETHER]]
        better = np.ones((some.shape[1], len(left)), bool)
        for k, v in zip(some, values[:, left], strict=True):
            better &= k[:, None] < v[None, :]
        left = left[~better.any(axis=0)]
        if not len(left):
            break
    found = np.zeros(values.shape[1], bool)
    found[left] = True
    return found
