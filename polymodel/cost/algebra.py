"""The numbers that cost rules work on: plain ones, arrays, closed forms, and numbers with slopes.

A rule adds, multiplies and divides; for a maximum, a sum of many parts or a test whether anything moves, it
calls the algebra, so that each rule is written once. `NUMBERS`: Python's numbers, for evaluations. `ARRAYS`:
NumPy arrays, for sweeps on sparse data. `FORMULAS`: records the operations, for closed forms and other
sweeps. `Slopes`: numbers with their derivatives by each number of the architecture.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, Protocol

from polymodel.analysis.symbolic.forms import Form, HeldBuffet, PeakForm
from polymodel.frozen import dataclass
from polymodel.integers import np

Number = Any  # a number of an algebra


class Algebra(Protocol):
    """The operations of one kind of number."""

    def largest(self, parts: Iterable[Number]) -> Number:
        """The largest of several nonnegative numbers, 0 if there is none."""
        ...

    def total(self, parts: Iterable[Number]) -> Number:
        """The sum of many numbers, rounded once."""
        ...

    def where_moved(self, moved: Number, then: Number) -> Number:
        """`then` where the count `moved` is above 0, otherwise 0."""
        ...

    def slowest(self, times: Mapping[str, Number]) -> str:
        """The name with the largest time (the first one on ties); empty where that is undecided."""
        ...

    def repeated(self, seconds: Number, times: Number) -> Number:
        """`seconds` multiplied by the count `times`."""
        ...


def nothing(count: Number) -> bool:
    """True if the count is known to be 0 everywhere, without computing it."""
    return not getattr(count, "ndim", 0) and not count


class NumberAlgebra:
    """Integers, fractions and floats. Engines omit what moves nothing, so that every count is above 0."""

    def largest(self, parts: Iterable[Number]) -> Number:
        return max(parts, default=0.0)

    def total(self, parts: Iterable[Number]) -> Number:
        return math.fsum(parts)

    def where_moved(self, moved: Number, then: Number) -> Number:
        return then

    def slowest(self, times: Mapping[str, Number]) -> str:
        return max(times, key=lambda name: times[name], default="")

    def repeated(self, seconds: Number, times: Number) -> Number:
        return seconds * times


class ArrayAlgebra:
    """NumPy arrays that broadcast against each other, and plain numbers."""

    def largest(self, parts: Iterable[Number]) -> Number:
        return reduce(np.maximum, parts, 0.0)

    def total(self, parts: Iterable[Number]) -> Number:
        return sum(parts, start=np.zeros(()))

    def where_moved(self, moved: Number, then: Number) -> Number:
        return np.where(np.asarray(moved) > 0, then, 0.0) if then else 0.0

    def slowest(self, times: Mapping[str, Number]) -> str:
        return ""

    def repeated(self, seconds: Number, times: Number) -> Number:
        return seconds * times


NUMBERS = NumberAlgebra()
ARRAYS = ArrayAlgebra()


# Costs in closed form: operations are recorded, and evaluated for given tile sizes. `value` does the same
# operations in the same order as an evaluation in numbers.

Part = Any  # a Formula, a PeakForm or a number


class Formula:
    """A number that depends on tile sizes."""

    def __add__(self, other: Part) -> Part:
        return self if not isinstance(other, Formula) and not other else Sum((self, other))

    def __radd__(self, other: Part) -> Part:
        return self if not other else Sum((other, self))

    def __mul__(self, other: Part) -> Part:
        if isinstance(other, Formula):
            return FormulaProduct(self, other)
        return self if other == 1 else ScaledPart(self, other) if other else 0.0

    def __rmul__(self, other: Part) -> Part:
        return self * other

    def __truediv__(self, other: Part) -> Part:
        if isinstance(other, Formula):
            return Ratio(self, other)
        return 0.0 if math.isinf(other) else Over(self, other)


@dataclass(frozen=True)
class ExactCount(Formula):
    """An integer count. Sums and products with integers are counts again."""

    form: Form

    def __bool__(self) -> bool:
        """False if it is 0 for all tile sizes."""
        return bool(self.form.terms)

    def __add__(self, other: Part) -> Part:
        if isinstance(other, ExactCount):
            return ExactCount(self.form + other.form)
        return ExactCount(self.form + other) if isinstance(other, int) else super().__add__(other)

    def __radd__(self, other: Part) -> Part:
        return ExactCount(self.form + other) if isinstance(other, int) else super().__radd__(other)

    def __mul__(self, other: Part) -> Part:
        if isinstance(other, ExactCount):
            return ExactCount(self.form * other.form)
        return ExactCount(self.form * other) if isinstance(other, int) else super().__mul__(other)


@dataclass(frozen=True)
class ScaledPart(Formula):
    """A part times a number."""

    part: Part
    factor: float


@dataclass(frozen=True)
class Over(Formula):
    """A part divided by a number."""

    part: Part
    divisor: float


@dataclass(frozen=True)
class Sum(Formula):
    """The sum of parts, rounded once."""

    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Largest(Formula):
    """The largest of several parts, 0 if there is none."""

    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Where(Formula):
    """A part where a count is above 0, otherwise 0."""

    count: ExactCount
    part: Part


@dataclass(frozen=True)
class FormulaProduct(Formula):
    """The product of two formulas."""

    one: Formula
    other: Formula


@dataclass(frozen=True)
class Ratio(Formula):
    """The quotient of two formulas; NaN where the divisor is 0."""

    over: Formula
    under: Formula


@dataclass(frozen=True)
class StageShare(Formula):
    """The time of a pipeline slot that is booked to one Einsum.

    Zero unless its stage is the slowest (the first one on ties); otherwise its own time, or its share of the
    `joint` time of a component that several stages load, if that is longer.
    """

    own: Part
    stages: tuple[Part, ...]
    stage: int
    joint: Part
    items: int

    def of(self, own: float, stages: Sequence[float], joint: float) -> float:
        """The booked time for given numbers."""
        slowest = max(stages)
        if stages.index(slowest) != self.stage:
            return 0.0
        if joint <= slowest:
            return own
        return joint * (own / slowest if slowest else 1 / self.items)


class Formulas:
    """The algebra of formulas and numbers. See `Algebra`."""

    def largest(self, parts: Iterable[Part]) -> Part:
        found = list(dict.fromkeys(parts))
        numbers = [p for p in found if isinstance(p, (int, float))]
        open_ = [p for p in found if not isinstance(p, (int, float))]
        if any(numbers):
            open_.append(max(numbers))
        return open_[0] if len(open_) == 1 else Largest(tuple(open_)) if open_ else 0.0

    def total(self, parts: Iterable[Part]) -> Part:
        result = tuple(p for p in parts if isinstance(p, Formula) or p)
        return result[0] if len(result) == 1 else Sum(result) if result else 0.0

    def where_moved(self, moved: Part, then: Part) -> Part:
        if not isinstance(moved, ExactCount) or not then:
            return then if moved else 0.0
        constant = moved.form.constant
        if constant is not None:
            return then if constant > 0 else 0.0
        return Where(moved, then)

    def slowest(self, times: Mapping[str, Part]) -> str:
        return ""

    def repeated(self, seconds: Part, times: Part) -> Part:
        """A nonnegative count is moved into the parts, so that the terms of sums remain counts."""
        if isinstance(seconds, ExactCount) or not isinstance(times, ExactCount):
            return seconds * times
        if isinstance(seconds, ScaledPart):
            return ScaledPart(self.repeated(seconds.part, times), seconds.factor)
        if isinstance(seconds, Over):
            return Over(self.repeated(seconds.part, times), seconds.divisor)
        if isinstance(seconds, Where):
            return Where(seconds.count, self.repeated(seconds.part, times))
        if isinstance(seconds, (Sum, Largest)):
            return type(seconds)(tuple(self.repeated(part, times) for part in seconds.parts))
        return times * seconds if seconds else 0.0


FORMULAS = Formulas()


def value(formula: Part, at: Mapping[str, int]) -> Any:
    """The number for given values of the symbols."""
    if isinstance(formula, (Form, HeldBuffet)):
        return formula.at(at)
    if isinstance(formula, PeakForm):
        return formula.at(at)[0]
    if isinstance(formula, ExactCount):
        return formula.form.at(at)
    if isinstance(formula, ScaledPart):
        return value(formula.part, at) * formula.factor
    if isinstance(formula, Over):
        return value(formula.part, at) / formula.divisor
    if isinstance(formula, Sum):
        return math.fsum(value(p, at) for p in formula.parts)
    if isinstance(formula, Largest):
        return max((value(p, at) for p in formula.parts), default=0)
    if isinstance(formula, Where):
        return value(formula.part, at) if value(formula.count, at) > 0 else 0.0
    if isinstance(formula, FormulaProduct):
        return value(formula.one, at) * value(formula.other, at)
    if isinstance(formula, StageShare):
        stages = [value(p, at) for p in formula.stages]
        return formula.of(value(formula.own, at), stages, value(formula.joint, at))
    if isinstance(formula, Ratio):
        under = value(formula.under, at)
        return value(formula.over, at) / under if under else math.nan
    return formula


# Numbers with their derivatives by each number of the architecture. Applied to a hierarchy of `Slope`s, the
# cost rules give slopes. Where several parts tie for a maximum, the result has two slopes: as a number grows,
# the steepest of the tied parts counts, as it shrinks, the least steep.

TIE = 1e-12  # relative difference of times that is due to rounding


@dataclass(frozen=True)
class Knob:
    """One number of the architecture.

    `name`: energy, throughput, leak_power, size, fill_drain_latency, energy_per_bit_hop or hop_latency.
    `component`: `PE.X` for the link of a fanout dimension. `action`: empty except for energy and throughput.
    """

    component: str
    action: str
    name: str


Sides = tuple[float, float]  # derivative of the result by a number: as it grows, as it shrinks
NONE: Sides = (0.0, 0.0)


class Slope(float):
    """A nonnegative number with its derivative by each knob that it depends on."""

    slopes: Mapping[Knob, Sides]

    def __new__(cls, value: float, slopes: Mapping[Knob, Sides]) -> Slope:
        result = super().__new__(cls, value)
        result.slopes = slopes
        return result

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
    """The algebra of slopes and floats. See `Algebra`."""

    def largest(self, parts: Iterable[Any]) -> Slope:
        result = [p if isinstance(p, Slope) else Slope(p, {}) for p in parts]
        top = max(map(float, result), default=0.0)
        return Slope(top, _joined([p for p in result if p >= top * (1 - TIE)], max, min))

    def total(self, parts: Iterable[Any]) -> Slope:
        result = list(parts)
        return _total(result, math.fsum(result))

    def where_moved(self, moved: Any, then: Any) -> Any:
        return then

    def slowest(self, times: Mapping[str, Any]) -> str:
        return max(times, key=lambda name: float(times[name]), default="")

    def repeated(self, seconds: Any, times: Any) -> Any:
        return seconds * times


SLOPES = Slopes()
