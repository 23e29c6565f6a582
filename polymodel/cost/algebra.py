"""What cost rules need of numbers beside `+`, `*` and `/`, so that each rule stands once.

A rule adds, multiplies and divides; where it takes a maximum, adds up many parts or asks whether anything
moves at all, it asks the algebra. `NUMBERS` are Python's: an evaluation. `ARRAYS` are NumPy's: sweeps on
sparse data. `cost.formula.FORMULAS` writes the operations down: closed forms, and what other sweeps work
out. `cost.slopes.SLOPES` has the slope of each result in each number of the architecture.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any, Protocol

from polymodel.arrays import np

Number = Any  # what an algebra works with


class Algebra(Protocol):
    """The operations of one kind of number."""

    def largest(self, parts: Iterable[Number]) -> Number:
        """The largest of several numbers that are not negative, 0 if there is none."""
        ...

    def total(self, parts: Iterable[Number]) -> Number:
        """The sum of many numbers, rounded once."""
        ...

    def where_moved(self, moved: Number, then: Number) -> Number:
        """`then` where the count `moved` is above 0, else 0."""
        ...

    def slowest(self, times: Mapping[str, Number]) -> str:
        """The name with the largest time (the first of them), empty where that is not decided."""
        ...


def nothing(count: Number) -> bool:
    """True if it is 0 everywhere, as far as is known without working it out."""
    return not getattr(count, "ndim", 0) and not count


class Numbers:
    """Integers, fractions and floats. Engines leave out what moves nothing, so all that is there moves."""

    def largest(self, parts: Iterable[Number]) -> Number:
        return max(parts, default=0.0)

    def total(self, parts: Iterable[Number]) -> Number:
        return math.fsum(parts)

    def where_moved(self, moved: Number, then: Number) -> Number:
        return then

    def slowest(self, times: Mapping[str, Number]) -> str:
        return max(times, key=lambda name: times[name], default="")


class Arrays:
    """NumPy arrays that broadcast against each other, and numbers among them."""

    def largest(self, parts: Iterable[Number]) -> Number:
        return reduce(np.maximum, parts, 0.0)

    def total(self, parts: Iterable[Number]) -> Number:
        return sum(parts, start=np.zeros(()))

    def where_moved(self, moved: Number, then: Number) -> Number:
        return np.where(np.asarray(moved) > 0, then, 0.0) if then else 0.0

    def slowest(self, times: Mapping[str, Number]) -> str:
        return ""


NUMBERS = Numbers()
ARRAYS = Arrays()
