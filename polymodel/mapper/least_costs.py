"""What every whole mapping of a space costs at least, as far as a search knows by now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from polymodel.objectives import uses

Line = tuple[float, float, float]  # a mixture of energy and latency, and what it is at least
CLOSE = 1e-9  # relative: sums of floats in another order differ by less


@dataclass
class Least:
    """Of one part of the space: joules, seconds, and their product."""

    energy: float = 0.0
    latency: float = 0.0
    edp: float = 0.0

    def corner(self, mixtures: Sequence[Line]) -> float:
        """The least energy times latency: it is at a corner of what the other bounds leave."""
        lines = [(1.0, 0.0, self.energy), (0.0, 1.0, self.latency), *mixtures]
        corners = [
            e * t
            for a, b in combinations(lines, 2)
            for e, t in _crossing(a, b)
            if all(w * e + v * t >= least * (1 - CLOSE) for w, v, least in lines)
        ]
        return min(corners, default=self.energy * self.latency) * (1 - 2 * CLOSE)


def _crossing(a: Line, b: Line) -> Iterator[tuple[float, float]]:
    scale = a[0] * b[1] - a[1] * b[0]
    if scale:
        yield (a[2] * b[1] - a[1] * b[2]) / scale, (a[0] * b[2] - a[2] * b[0]) / scale


@dataclass
class LeastCosts:
    """Of all parts of the space that are searched one after another; the bounds only rise."""

    parts: list[Least] = field(default_factory=lambda: [Least()])

    def raised(
        self, part: int, energy: float = 0.0, latency: float = 0.0, mixtures: Sequence[Line] = ()
    ) -> None:
        """A part costs at least so much."""
        mine = self.parts[part]
        mine.energy, mine.latency = max(mine.energy, energy), max(mine.latency, latency)
        mine.edp = max(mine.edp, mine.corner(mixtures))

    def of(self, objective: str) -> float:
        """The least value of an objective of energy and latency; 0 of another."""
        figures = {figure for figure, _ in uses(objective)}
        name = "edp" if figures == {"energy", "latency"} else "".join(figures)
        return min(float(getattr(part, name, 0.0)) for part in self.parts)
