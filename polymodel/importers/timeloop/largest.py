"""Find the factors that Timeloop's `maximize_dims` asks for: those of the largest product that fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from polymodel.factoring import divisors
from polymodel.governor import tick


@dataclass(frozen=True)
class LargestFactors:
    """The largest product of one factor per variable that is at most the capacity.

    `factors`: variable -> factor, None where several choices have this product. `uneven`: a variable whose
    tiles, parted unevenly, would keep more in use on average; empty if there is none.
    """

    product: int
    factors: Mapping[str, int] | None
    uneven: str = ""


def largest_factors(sizes: Mapping[str, int], capacity: int) -> LargestFactors:
    """Return the factors of the largest product: each a divisor of the size of its variable, together at most
    `capacity`.

    The size of a variable that is too large for what others leave may also be parted into the fewest steps
    that fit, the last one smaller: 15 on 12 instances are 8 and 7, on average 7.5. Where this is more than
    the product of any divisors, `uneven` has the variable.
    """
    chosen = _products(sizes, capacity)
    best = max(chosen)
    found = chosen[best]
    for v, size in sizes.items():
        others = _products({o: n for o, n in sizes.items() if o != v}, capacity)
        for d in divisors(size):
            for product in others:
                tick()
                left, rest = capacity // (d * product), size // d
                if rest > left > 1 and d * product * rest > best * -(-rest // left):
                    return LargestFactors(best, found, v)
    return LargestFactors(best, found)


def _products(sizes: Mapping[str, int], capacity: int) -> dict[int, dict[str, int] | None]:
    """Return product -> its factors, None where several choices have it; of products up to the capacity."""
    result: dict[int, dict[str, int] | None] = {1: {}}
    for v, size in sizes.items():
        longer: dict[int, dict[str, int] | None] = {}
        for product, factors in result.items():
            for d in divisors(size):
                tick()
                if product * d > capacity:
                    break
                one = None if factors is None else {**factors, v: d}
                longer[product * d] = None if product * d in longer else one
        result = longer
    return result
