"""Closed forms as data: sums of products of atoms, and the maxima over phases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from polymodel.analysis.symbolic.atoms import Atom, Leaf, Level, Size, atom
from polymodel.analysis.symbolic.cuts import Cut, Step, Tied
from polymodel.analysis.symbolic.meets import Meet
from polymodel.analysis.symbolic.ops import INTEGERS

Factor = Atom | Meet | Cut | Step
Product = tuple[Factor, ...]


_ONE: tuple[tuple[Product, int], ...] = (((), 1),)  # the terms of the number 1


def _key(a: Factor) -> tuple[str, ...]:
    if isinstance(a, Meet):
        return (repr(a.p), repr(a.r), repr((a.a, a.b, a.any)))
    if isinstance(a, Tied):
        return (repr(a.region), repr((a.u, a.v)), repr(a))
    return (str(a.extent), repr(a.levels), repr(a.leaf))


@dataclass(frozen=True)
class Form:
    """`sum of coefficient * product of atoms`: integer-valued, exact for every tile size.

    The coefficient of the empty product is the constant. Forms are equal if they are written alike.
    """

    terms: tuple[tuple[Product, int], ...] = ()

    @cached_property
    def symbols(self) -> frozenset[str]:
        return frozenset(s for product, _ in self.terms for a in product for s in a.symbols)

    @property
    def constant(self) -> int | None:
        """The number, if it depends on no symbol."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and not self.terms[0][0]:
            return self.terms[0][1]
        return None

    def __add__(self, other: Form | int) -> Form:
        if isinstance(other, int):
            other = number(other)
        return _collected([*self.terms, *other.terms])

    def __sub__(self, other: Form | int) -> Form:
        return self + other * -1

    def __mul__(self, other: Form | int) -> Form:
        if isinstance(other, int):
            return Form(tuple((p, c * other) for p, c in self.terms)) if other else Form()
        if other.terms == _ONE:
            return self
        if self.terms == _ONE:
            return other
        return _collected(
            (tuple(sorted((*p, *q), key=_key)), c * d) for p, c in self.terms for q, d in other.terms
        )

    def at(self, values: Mapping[str, int]) -> int:
        """The number for given symbols (each name -> int). KeyError if one is missing."""
        total = 0
        for product, coefficient in self.terms:
            for a in product:
                coefficient *= _number(a, values)
            total += coefficient
        return total


def _number(a: Factor, values: Mapping[str, int]) -> int:
    return int(a.value(INTEGERS, values))


def _collected(terms: Iterable[tuple[Product, int]]) -> Form:
    found: dict[Product, int] = {}
    for product, coefficient in terms:
        found[product] = found.get(product, 0) + coefficient
    return Form(tuple((p, c) for p, c in found.items() if c))


ZERO = Form()


def number(n: int) -> Form:
    """A constant form."""
    return Form((((), n),)) if n else ZERO


def of_atom(a: Factor) -> Form:
    """One atom as a form; its number if it depends on no symbol."""
    if isinstance(a, Atom) and not a.levels and a.leaf.kind == "one":
        return number(1)  # no space is empty
    if not a.symbols:
        return number(_number(a, {}))
    return Form((((a,), 1),))


@lru_cache(maxsize=8192)  # a mapping asks for the same sums in many places, and under each reuse policy again
def summed(extent: Size, levels: tuple[Level, ...], leaf: Leaf) -> Form:
    """The sum of `leaf` over the tiles that the levels cut from an extent."""
    return of_atom(atom(extent, levels, leaf))


def product(forms: Iterable[Form]) -> Form:
    result = number(1)
    for f in forms:
        result = result * f
    return result


@dataclass(frozen=True)
class Held:
    """One buffet in a working set: `ceil(elements * bits * numerator / denominator) * count` bits."""

    node: int
    tensor: str
    elements: Form
    bits: int
    numerator: int = 1
    denominator: int = 1
    count: int = 1

    def of(self, elements: Form) -> Held:
        """The same buffet with so many elements."""
        return self if elements is self.elements else replace(self, elements=elements)

    def at(self, values: Mapping[str, int]) -> int:
        bits = self.elements.at(values) * self.bits * self.numerator
        return -(-bits // self.denominator) * self.count


@dataclass(frozen=True)
class Peak:
    """The largest of several sums of buffets, one sum per phase that may be the peak."""

    phases: tuple[tuple[Held, ...], ...]

    @cached_property
    def symbols(self) -> frozenset[str]:
        return frozenset(s for phase in self.phases for h in phase for s in h.elements.symbols)

    def at(self, values: Mapping[str, int]) -> tuple[int, tuple[tuple[Held, int], ...]]:
        """(bits at the peak, who holds how many of them)."""
        best: tuple[int, tuple[tuple[Held, int], ...]] = (0, ())
        for phase in self.phases:
            each = tuple((h, h.at(values)) for h in phase)
            total = sum(n for _, n in each)
            if total > best[0]:
                best = total, each
        return best


def leading(phases: Sequence[tuple[Form, tuple[Held, ...]]]) -> tuple[tuple[Held, ...], ...]:
    """The phases that may be the peak, out of (1 if there is such a phase, what is held then).

    Left out: a phase of which another one, there whenever it is, holds all and perhaps more; of those that
    depend on no symbol all but the largest.
    """
    bits: dict[Held, int] = {}
    found: dict[tuple[frozenset[Factor | Form], int], tuple[Held, ...]] = {}
    for there, held in phases:
        here = tuple(h for h in held if h.elements != ZERO)
        if there == ZERO or not here:
            continue
        every = sum(1 << bits.setdefault(h, len(bits)) for h in here)
        found[_conditions(there), every] = tuple(h.of(h.elements * there) for h in here)
    kept = [
        phase
        for (there, every), phase in found.items()
        if not any(
            (other, more) != (there, every) and other <= there and every & ~more == 0 for other, more in found
        )
    ]
    fixed = (p for p in kept if _is_fixed(p))
    largest = max(fixed, key=lambda p: sum(h.at({}) for h in p), default=())
    return tuple(p for p in kept if p is largest or not _is_fixed(p))


def _is_fixed(phase: tuple[Held, ...]) -> bool:
    return all(h.elements.constant is not None for h in phase)


def _conditions(there: Form) -> frozenset[Factor | Form]:
    """Factors of a form that is 0 or 1, which is 1 where all of them are."""
    ((factors, coefficient), *rest) = there.terms
    return frozenset(factors) if coefficient == 1 and not rest else frozenset((there,))
