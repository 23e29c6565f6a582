"""Costs in closed form: each operation is written down, and worked out for given tile sizes.

`value` does the same operations in the same order as an evaluation in numbers does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from polymodel.analysis.symbolic.forms import Form, Held, Peak

Part = Any  # a Formula, a Peak or a number


class Formula:
    """A number that depends on tile sizes."""

    def __add__(self, other: Part) -> Part:
        return self if not isinstance(other, Formula) and not other else Sum((self, other))

    def __radd__(self, other: Part) -> Part:
        return self if not other else Sum((other, self))

    def __mul__(self, other: Part) -> Part:
        if isinstance(other, Formula):
            return Product(self, other)
        return self if other == 1 else Times(self, other) if other else 0.0

    def __rmul__(self, other: Part) -> Part:
        return self * other

    def __truediv__(self, other: Part) -> Part:
        if isinstance(other, Formula):
            return Ratio(self, other)
        return 0.0 if math.isinf(other) else Over(self, other)


@dataclass(frozen=True)
class Exact(Formula):
    """An integer count. Sums with integers and products with them are counts again."""

    form: Form

    def __bool__(self) -> bool:
        """False if it is 0 for all tile sizes."""
        return bool(self.form.terms)

    def __add__(self, other: Part) -> Part:
        if isinstance(other, Exact):
            return Exact(self.form + other.form)
        return Exact(self.form + other) if isinstance(other, int) else super().__add__(other)

    def __radd__(self, other: Part) -> Part:
        return Exact(self.form + other) if isinstance(other, int) else super().__radd__(other)

    def __mul__(self, other: Part) -> Part:
        if isinstance(other, Exact):
            return Exact(self.form * other.form)
        return Exact(self.form * other) if isinstance(other, int) else super().__mul__(other)


@dataclass(frozen=True)
class Times(Formula):
    """A part times a number."""

    part: Part
    factor: float


@dataclass(frozen=True)
class Over(Formula):
    """A part over a number."""

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
    """A part where a count is above 0, else 0."""

    count: Exact
    part: Part


@dataclass(frozen=True)
class Product(Formula):
    """One formula times another."""

    one: Formula
    other: Formula


@dataclass(frozen=True)
class Ratio(Formula):
    """One formula over another; not a number where that is zero."""

    over: Formula
    under: Formula


class Formulas:
    """The algebra (`cost.algebra.Algebra`) of formulas, and of numbers among them."""

    def largest(self, parts: Iterable[Part]) -> Part:
        found = list(dict.fromkeys(parts))
        numbers = [p for p in found if isinstance(p, (int, float))]
        open_ = [p for p in found if not isinstance(p, (int, float))]
        if any(numbers):
            open_.append(max(numbers))
        return open_[0] if len(open_) == 1 else Largest(tuple(open_)) if open_ else 0.0

    def total(self, parts: Iterable[Part]) -> Part:
        found = tuple(p for p in parts if isinstance(p, Formula) or p)
        return found[0] if len(found) == 1 else Sum(found) if found else 0.0

    def where_moved(self, moved: Part, then: Part) -> Part:
        if not isinstance(moved, Exact) or not then:
            return then if moved else 0.0
        constant = moved.form.constant
        if constant is not None:
            return then if constant > 0 else 0.0
        return Where(moved, then)

    def slowest(self, times: Mapping[str, Part]) -> str:
        return ""


FORMULAS = Formulas()


def value(formula: Part, at: Mapping[str, int]) -> Any:
    """The number for given symbols."""
    if isinstance(formula, (Form, Held)):
        return formula.at(at)
    if isinstance(formula, Peak):
        return formula.at(at)[0]
    if isinstance(formula, Exact):
        return formula.form.at(at)
    if isinstance(formula, Times):
        return value(formula.part, at) * formula.factor
    if isinstance(formula, Over):
        return value(formula.part, at) / formula.divisor
    if isinstance(formula, Sum):
        return math.fsum(value(p, at) for p in formula.parts)
    if isinstance(formula, Largest):
        return max((value(p, at) for p in formula.parts), default=0)
    if isinstance(formula, Where):
        return value(formula.part, at) if value(formula.count, at) > 0 else 0.0
    if isinstance(formula, Product):
        return value(formula.one, at) * value(formula.other, at)
    if isinstance(formula, Ratio):
        under = value(formula.under, at)
        return value(formula.over, at) / under if under else math.nan
    return formula
