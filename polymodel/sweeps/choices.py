"""Values of a symbol as text, for the command line and the `sweep:` section."""

from __future__ import annotations

import re
from collections.abc import Mapping

from polymodel.errors import SpecError
from polymodel.spec.faults import Faults, close_to
from polymodel.spec.numbers import plain_number
from polymodel.sweeps.expressions import FUNCTIONS
from polymodel.sweeps.values import Choice, all_sizes, divisors, of_symbol, powers, wrong

_CALL = re.compile(r"\s*(\w+)\s*\(([^()]*)\)\s*\Z")
_SPAN = re.compile(
    r"\s*([0-9]{1,18})\s*(?:\.\.+|:|-|\bto\b)\s*([0-9]{1,18})(?:\s*(?:\.\.+|:)\s*([0-9]{1,18}))?\s*\Z"
)
_CHOICES = ("divisors", "all_sizes", "powers", "range")
FORMS = "1,2,4 or divisors(m), all_sizes(m), powers(2, m), range(1, 65), or an expression such as 2*TM"


def choice_of(name: str, text: str) -> Choice:
    """The values written as `1,2,4`, `divisors(m)`, `all_sizes(m)`, `powers(2, m)`, `range(1, 65, 4)` or an
    expression."""
    call = _CALL.match(text)
    if call is not None and call.group(1) in _CHOICES:
        return _called(name, call.group(1), [a.strip() for a in call.group(2).split(",")])
    if call is not None and call.group(1) not in FUNCTIONS:
        near = close_to(call.group(1), (*_CHOICES, *FUNCTIONS))
        remedy = f"did you mean {near}({call.group(2)})?" if near else f"write {FORMS}"
        raise wrong(f"symbol {name}: unknown function {call.group(1)}", remedy, code="unknown-name")
    span = _SPAN.match(text)
    if span is not None and int(span.group(1)) < int(span.group(2)):
        first, last, step = span.groups()
        meant = f"range({first}, {int(last) + 1}{f', {step}' if step else ''})"
        what = f"symbol {name}: `{text.strip()}` is not a range"
        raise wrong(what, f"write {meant}, whose end is left out", code="wrong-type")
    parts = _parts(text)
    numbers = [plain_number(p) for p in parts]
    if all(n is not None for n in numbers):
        return [n for n in numbers if n is not None]
    if len(parts) > 1:
        raise wrong(f"symbol {name}: `{text}` is not a list of numbers", f"write {FORMS}", code="wrong-type")
    return text.strip()


def _parts(text: str) -> list[str]:
    """The text split at commas, except those between the arguments of a function."""
    result, depth = [""], 0
    for sign in text:
        depth += (sign == "(") - (sign == ")")
        if sign == "," and depth <= 0:
            result.append("")
        else:
            result[-1] += sign
    return [p.strip() for p in result]


def _called(name: str, function: str, arguments: list[str]) -> Choice:
    try:
        if function == "range":
            return range(*(int(a) for a in arguments))
        if function == "powers":
            base, up_to = arguments
            return powers(int(base), _of(up_to))
        (of,) = arguments
        return divisors(_of(of)) if function == "divisors" else all_sizes(_of(of))
    except (ValueError, TypeError):
        given = ", ".join(arguments)
        message = f"symbol {name}: {function}({given}) is not understood"
        raise wrong(message, f"write {FORMS}", code="wrong-type") from None


def _of(text: str) -> int | str:
    if text.isascii() and text.isdigit():
        return int(text)
    if not text.isidentifier():
        raise ValueError(text)
    return text


def choices_of(symbols: Mapping[str, Choice], faults: Faults) -> Mapping[str, Choice]:
    """The valid symbols of a call or a `sweep:` section (texts as on the command line).

    Faults of the others are reported.
    """
    result: dict[str, Choice] = {}
    for name, choice in symbols.items():
        try:
            result[name] = choice_of(name, choice) if isinstance(choice, str) else choice
        except SpecError as error:
            faults.extend(of_symbol(name, error).diagnostics)
    return result
