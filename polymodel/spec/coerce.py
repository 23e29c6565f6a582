"""What calls are given, as plain Python objects: numbers of other libraries, tables, lists and words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Rational, Real
from typing import TypeVar, cast

from polymodel.errors import Diagnostic, SpecError
from polymodel.spec.faults import suggestion

Number = int | float
DEEPEST = 60  # tables and lists in each other, as in a file
T = TypeVar("T")


def as_number(value: object) -> Number | None:
    """A number of numpy, pandas, SymPy or `fractions` as an int or a float of exactly the same value.

    None for truth values, texts, and numbers that no float holds, such as a third; nan stays nan.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, Rational) and value.denominator == 1:
        return int(value.numerator)
    if isinstance(value, Real):
        try:
            found = float(value)
        except OverflowError:
            return None
        return found if found == value or found != found else None
    item = getattr(value, "item", None)
    if getattr(value, "shape", None) == () and callable(item):  # an array of no axes
        inner: object = item()
        return None if type(inner) is type(value) else as_number(inner)
    return None


def as_whole(value: object) -> int | None:
    """The same for whole numbers: None for a float, also for one without a fraction."""
    found = as_number(value)
    return found if isinstance(found, int) else None


def plainly(value: T, depth: int = 0) -> T:
    """The same value with plain numbers in the place of other libraries', in tables and lists as well.

    What is nested deeper than any spec, or in itself, stays as it is: who reads it refuses it.
    """
    found: object = value
    if type(value) in (dict, list, tuple):
        assert isinstance(value, (dict, list, tuple))
        if depth > DEEPEST:
            return value
        if isinstance(value, dict):
            found = {k: plainly(v, depth + 1) for k, v in value.items()}
        else:
            found = type(value)(plainly(v, depth + 1) for v in value)
    elif value is not None and type(value) not in (str, bool, int, float):
        number = as_number(value)
        found = value if number is None else number
    return cast(T, found)  # a number of another class counts as the same type


def by_name(argument: str, given: object, example: str) -> dict[str, object]:
    """A table from names to values, its numbers plain. SpecError where `argument` is something else."""
    if not isinstance(given, Mapping):
        raise SpecError(
            [Diagnostic(f"{shown(given)} is no table of values by name", f"write e.g. {example}", argument)]
        )
    wrong = [name for name in given if not isinstance(name, str)]
    if wrong:
        raise SpecError(
            [Diagnostic(f"{name!r} is no name", f"write e.g. {example}", argument) for name in wrong]
        )
    return {name: plainly(value) for name, value in given.items()}


def listed(argument: str, given: object, example: str) -> tuple[object, ...]:
    """What several values are given as, one after the other; a text is one of them. SpecError otherwise."""
    if isinstance(given, str):
        return (given,)
    if not isinstance(given, Iterable) or isinstance(given, Mapping):
        raise SpecError([Diagnostic(f"{shown(given)} is no list", f"write e.g. {example}", argument)])
    return tuple(given)


def unknown(argument: str, given: object, known: Iterable[str], what: str) -> Diagnostic:
    """The fault of a word that is none of the known ones; `what` is their plural."""
    return Diagnostic(
        f"there is no {what.removesuffix('s')} {given!r}", suggestion(str(given), known, what), argument
    )


def check_classes(made: object, remedy: str, classes: Mapping[str, type | tuple[type, ...]]) -> None:
    """Raises SpecError with every field of an object that is of another class than these.

    A class that users know by another name has it in `CALLED`.
    """
    faults = []
    for name, known in classes.items():
        value = getattr(made, name)
        if not isinstance(value, known):
            of = known if isinstance(known, tuple) else (known,)
            wanted = " or ".join(getattr(c, "CALLED", c.__name__) for c in of if c is not type(None))
            what = f"{type(made).__name__}: {shown(value)} is no {wanted}"
            faults.append(Diagnostic(what, remedy, name))
    if faults:
        raise SpecError(faults)


def shown(value: object) -> str:
    """A wrong value, briefly."""
    plain = value is None or isinstance(value, (str, int, float))
    return repr(value) if plain else f"a {type(value).__name__}"
