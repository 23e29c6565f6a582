"""What a symbol may be swept over: numbers, divisors or all sizes of a rank variable, powers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from polymodel.errors import Diagnostic, SpecError
from polymodel.spec.faults import suggestion
from polymodel.spec.plain import as_number, as_whole, shown

Number = int | float


@dataclass(frozen=True)
class Divisors:
    """All divisors of a number, or of the extent of a rank variable, in ascending order."""

    of: int | str


@dataclass(frozen=True)
class AllSizes:
    """1, 2, ..., up to a number or the extent of a rank variable."""

    of: int | str


@dataclass(frozen=True)
class Powers:
    """Powers of `base` from 1 up to a number or the extent of a rank variable."""

    base: int
    up_to: int | str


Choice = Divisors | AllSizes | Powers | Iterable[Number] | Number | str


def divisors(of: int | str) -> Divisors:
    """All divisors of a number or of a rank variable's extent: `divisors("m")`."""
    return Divisors(of)


def all_sizes(of: int | str) -> AllSizes:
    """Every size from 1 to a number or a rank variable's extent."""
    return AllSizes(of)


def powers(base: int, up_to: int | str) -> Powers:
    """1, base, base^2, ... up to a number or a rank variable's extent."""
    return Powers(base, up_to)


def wrong(message: str, remedy: str = "") -> SpecError:
    """A SpecError with one fault."""
    return SpecError([Diagnostic(message, remedy)])


def of_symbol(name: str, error: SpecError) -> SpecError:
    """The same faults, of the values of one symbol."""
    return SpecError([replace(d, path=d.path or f"symbols.{name}") for d in error.diagnostics])


def numbers_of(name: str, choice: Choice, extents: Mapping[str, int]) -> tuple[Number, ...]:
    """The values of one symbol, in order, each once. SpecError for anything that is no number."""
    found: Iterable[object]
    if isinstance(choice, Divisors):
        n = _extent(choice.of, extents)
        small = [d for d in range(1, math.isqrt(n) + 1) if n % d == 0]
        found = sorted({*small, *(n // d for d in small)})
    elif isinstance(choice, AllSizes):
        found = range(1, _extent(choice.of, extents) + 1)
    elif isinstance(choice, Powers):
        if (as_whole(choice.base) or 0) < 2:
            remedy = 'write e.g. powers(2, "m")'
            raise wrong(f"powers of {choice.base!r} of symbol {name} do not grow", remedy)
        most = _extent(choice.up_to, extents)
        found = [choice.base**k for k in range(most.bit_length()) if choice.base**k <= most]
    elif as_number(choice) is not None:
        found = [choice]
    elif isinstance(choice, str):
        raise wrong(f"symbol {name}: `{choice}` is an expression", "give numbers to sweep over")
    elif not isinstance(choice, Iterable):
        raise wrong(f"symbol {name}: {shown(choice)} has no values", 'give numbers, or divisors("m")')
    else:
        found = choice
    values: dict[Number, None] = {}
    for value in found:
        values[_number(name, value)] = None
    if not values:
        raise wrong(f"symbol {name} has no values to sweep over", "give at least one number")
    return tuple(values)


def _number(name: str, value: object) -> Number:
    plain = as_number(value)
    if plain is None or plain != plain:
        raise wrong(f"symbol {name}: {value!r} is not a number", "give numbers to sweep over")
    return plain


def _extent(of: int | str, extents: Mapping[str, int]) -> int:
    if isinstance(of, str):
        if of not in extents:
            raise wrong(f"unknown rank variable {of}", suggestion(of, extents, "rank variables"))
        return extents[of]
    size = as_whole(of)
    if size is None or size < 1:
        raise wrong(f"{shown(of)} has no sizes", "give a rank variable, or a whole number of at least 1")
    return size
