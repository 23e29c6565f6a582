"""What every whole mapping of a space costs at least, as far as a search knows by now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from polymodel.mapper.aims import Aims

Array = Any
Line = tuple[float, float, float]  # a mixture of energy and latency, and what it is at least
CLOSE = 1e-9  # relative: sums of floats in another order differ by less


@dataclass
class Least:
    """Of one part of the space: the figures that add up, and energy times latency."""

    sums: Array
    edp: float = 0.0


def corner(energy: float, latency: float, mixtures: Sequence[Line]) -> float:
    """The least energy times latency: it is at a corner of what the bounds leave."""
    lines = [(1.0, 0.0, energy), (0.0, 1.0, latency), *mixtures]
    corners = [
        e * t
        for a, b in combinations(lines, 2)
        for e, t in _crossing(a, b)
        if all(w * e + v * t >= least * (1 - CLOSE) for w, v, least in lines)
    ]
    return min(corners, default=energy * latency) * (1 - 2 * CLOSE)


def _crossing(a: Line, b: Line) -> Iterator[tuple[float, float]]:
    scale = a[0] * b[1] - a[1] * b[0]
    if scale:
        yield (a[2] * b[1] - a[1] * b[2]) / scale, (a[0] * b[2] - a[2] * b[0]) / scale


@dataclass
class LeastCosts:
    """Of all parts of the space that are searched one after another; the bounds only rise. Nothing is known
    without `aims`."""

    aims: Aims | None = None
    parts: list[Least] = field(default_factory=list)

    def raised(self, part: int, sums: Array, mixtures: Sequence[Line] = ()) -> None:
        """A part costs at least so much: the figures that add up, and mixtures of the first two."""
        if self.aims is None:
            return
        mine = self.parts[part]
        mine.sums = np.maximum(mine.sums, sums)
        if self.aims.energy and self.aims.latency:
            energy, latency = mine.sums[:2].tolist()
            mine.edp = max(mine.edp, corner(energy, latency, mixtures))

    def of(self, objective: str) -> float:
        """The least score of an objective: nothing is known of the peaks of memories."""
        if self.aims is None:
            return 0.0
        if objective == "edp":
            return min(part.edp for part in self.parts)
        none = [0.0] * len(self.aims.peaks)
        return min(float(self.aims.score(objective, [*part.sums.tolist(), *none])) for part in self.parts)


def nothing_known(aims: Aims, parts: int) -> LeastCosts:
    """Of so many parts."""
    return LeastCosts(aims, [Least(np.zeros(len(aims.added))) for _ in range(parts)])
