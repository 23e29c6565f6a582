"""Numbers that know how they change with each number of the architecture.

Run over a hierarchy of `Slope`s the cost rules give slopes. Where several parts tie for a maximum, the
result has two: as a number grows the steepest of those that tie counts, as it shrinks the least steep.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

TIE = 1e-12  # times that differ by no more than rounding


@dataclass(frozen=True)
class Knob:
    """One number: `name` is energy, throughput, leak_power, size, fill_drain_latency or energy_per_bit_hop.

    `component` is `PE.X` for the link of a fanout dimension; `action` is empty but for energy and throughput.
    """

    component: str
    action: str
    name: str


Sides = tuple[float, float]  # change of the result over change of a number: as it grows, as it shrinks
NONE: Sides = (0.0, 0.0)


class Slope(float):
    """A number that is not negative, with its slope in each knob that it depends on."""

    slopes: Mapping[Knob, Sides]

    def __new__(cls, value: float, slopes: Mapping[Knob, Sides]) -> Slope:
        found = super().__new__(cls, value)
        found.slopes = slopes
        return found

    def __add__(self, other: float) -> Slope:
        return _total((self, other), float(self) + float(other))

    __radd__ = __add__

    def __mul__(self, other: float) -> Slope:
        parts = _scaled(self, float(other)), _scaled(other, float(self))
        return _total(parts, float(self) * float(other))

    __rmul__ = __mul__

    def __truediv__(self, other: float) -> Slope:
        inverse = 1 / float(other)
        parts = _scaled(self, inverse), _scaled(other, -float(self) * inverse * inverse)
        return _total(parts, float(self) / float(other))

    def __rtruediv__(self, other: float) -> Slope:
        return Slope(other, {}) / self


def _scaled(number: float, factor: float) -> Slope:
    slopes = number.slopes if isinstance(number, Slope) else {}
    return Slope(number, {k: (up * factor, down * factor) for k, (up, down) in slopes.items()})


def _total(parts: Iterable[float], value: float) -> Slope:
    return Slope(value, _joined([p for p in parts if isinstance(p, Slope)], math.fsum, math.fsum))


def _joined(
    parts: list[Slope], up: Callable[[list[float]], float], down: Callable[[list[float]], float]
) -> dict[Knob, Sides]:
    knobs = dict.fromkeys(k for p in parts for k in p.slopes)
    each = {k: [p.slopes.get(k, NONE) for p in parts] for k in knobs}
    return {k: (up([u for u, _ in sides]), down([d for _, d in sides])) for k, sides in each.items()}


class Slopes:
    """The algebra (`cost.algebra.Algebra`) of slopes, and of floats among them."""

    def largest(self, parts: Iterable[Any]) -> Slope:
        found = [p if isinstance(p, Slope) else Slope(p, {}) for p in parts]
        top = max(map(float, found), default=0.0)
        return Slope(top, _joined([p for p in found if p >= top * (1 - TIE)], max, min))

    def total(self, parts: Iterable[Any]) -> Slope:
        found = list(parts)
        return _total(found, math.fsum(found))

    def where_moved(self, moved: Any, then: Any) -> Any:
        return then

    def slowest(self, times: Mapping[str, Any]) -> str:
        return max(times, key=lambda name: float(times[name]), default="")


SLOPES = Slopes()
