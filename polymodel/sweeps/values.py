"""The values that a symbol may be swept over: numbers, divisors or all sizes of a rank variable, powers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from polymodel import factoring
from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.frozen import dataclass
from polymodel.governor import charge, tick
from polymodel.spec.faults import as_number, as_whole, shown, suggestion

Number = int | float
MAX_CHOICES = 20_000_000
_EACH = 150  # bytes of a value while values are listed


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


def wrong(message: str, remedy: str = "", *, code: str) -> SpecError:
    """A SpecError with one fault."""
    return SpecError([Diagnostic(message, remedy, code=code)])


def of_symbol(name: str, error: SpecError) -> SpecError:
    """Return the faults of an error, attributed to the values of one symbol."""
    return SpecError([replace(d, path=d.path or f"symbols.{name}") for d in error.diagnostics])


def numbers_of(name: str, choice: Choice, extents: Mapping[str, int]) -> tuple[Number, ...]:
    """The values of one symbol, in order, without repetition.

    Raises SpecError for anything that is not a number.
    """
    found: Iterable[object]
    if isinstance(choice, Divisors):
        found = factoring.divisors(_extent(choice.of, extents), MAX_CHOICES)
    elif isinstance(choice, AllSizes):
        found = range(1, _extent(choice.of, extents) + 1)
        _check_count(name, len_of(found))
    elif isinstance(choice, Powers):
        if (as_whole(choice.base) or 0) < 2:
            remedy = 'write e.g. powers(2, "m")'
            message = f"powers of {choice.base!r} of symbol {name} do not grow"
            raise wrong(message, remedy, code="not-a-number")
        most = _extent(choice.up_to, extents)
        found = [choice.base**k for k in range(most.bit_length()) if choice.base**k <= most]
    elif as_number(choice) is not None:
        found = [choice]
    elif isinstance(choice, str):
        message = f"symbol {name}: `{choice}` is an expression"
        raise wrong(message, "give numbers to sweep over", code="wrong-type")
    elif not isinstance(choice, Iterable):
        message = f"symbol {name}: {shown(choice)} has no values"
        raise wrong(message, 'give numbers, or divisors("m")', code="missing-value")
    else:
        found = choice
        if isinstance(choice, range):
            _check_count(name, len_of(choice))
    values: dict[Number, None] = {}
    for value in found:
        values[_number(name, value)] = None
        tick(f"listing the values of {name}")
    if not values:
        message = f"symbol {name} has no values to sweep over"
        raise wrong(message, "give at least one number", code="missing-value")
    return tuple(values)


def len_of(numbers: range) -> int:
    """The length of a range of any size; `len` ends at 2^63."""
    return max(0, -((numbers.start - numbers.stop) // numbers.step))


def _check_count(name: str, count: int) -> None:
    """Raises Refused for too many values, and MemoryUp if memory is limited and too small."""
    if count > MAX_CHOICES:
        remedy = f"give it at most {MAX_CHOICES:,} values, e.g. its divisors or powers"
        raise Refused(f"symbol {name} has {count:,} values", remedy, code="too-large")
    charge(_EACH * count, f"listing the {count:,} values of {name}", "give it fewer values")


def _number(name: str, value: object) -> Number:
    plain = as_number(value)
    if plain is None or plain != plain:
        message = f"symbol {name}: {value!r} is not a number"
        raise wrong(message, "give numbers to sweep over", code="not-a-number")
    return plain


def _extent(of: int | str, extents: Mapping[str, int]) -> int:
    if isinstance(of, str):
        if of not in extents:
            message = f"unknown rank variable {of}"
            raise wrong(message, suggestion(of, extents, "rank variables"), code="unknown-name")
        return extents[of]
    size = as_whole(of)
    if size is None or size < 1:
        message = f"{shown(of)} has no sizes"
        raise wrong(message, "give a rank variable, or a whole number of at least 1", code="missing-value")
    return size
