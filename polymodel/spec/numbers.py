"""Numbers written as expressions: `8 * 614e9`, `1.6e13`, `inf`, `2 * TN`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from polymodel.spec.faults import Faults, Path, TextFault, UnknownName, close_to, suggestion
from polymodel.spec.scan import Binary, Call, Name, Number, Tree, Unary, names_in, parse_arithmetic

Value = int | float
_LARGEST = 10**60
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}")
_CONSTANTS: dict[str, Value] = {"inf": math.inf, "infinity": math.inf}
_FUNCTIONS = ("min", "max", "ceil", "floor", "log2", "sqrt")


def symbols_in(text: Value | str) -> tuple[str, ...]:
    """Names in the expression that are neither constants nor functions, in order."""
    if not isinstance(text, str):
        return ()
    names = (n.name for n in names_in(parse_arithmetic(text)))
    return tuple(dict.fromkeys(n for n in names if n.lower() not in _CONSTANTS))


def evaluate_number(text: Value | str, symbols: Mapping[str, Value | None] | None = None) -> Value:
    """The value of a number or expression; an int wherever the result is one.

    Raises TextFault for syntax, unknown or unbound names (`UnboundSymbol`), and magnitudes out of bounds.
    """
    if not isinstance(text, str):
        return _bounded(text, 0)
    if _DATE.fullmatch(text.strip()):
        year, month, day = text.strip().split("-")
        remedy = f"write one number; for a difference {int(year)} - {int(month)} - {int(day)}"
        raise TextFault(f"{text.strip()} is a date, not a number", 0, remedy)
    return value_of(parse_arithmetic(text), symbols or {})


def _bounded(value: Value, offset: int) -> Value:
    """A number as it was written: finite ones stay below 1e60, so that no arithmetic with them overflows."""
    if value != value:
        raise TextFault("nan is not a number", offset, "write a number, or inf where there is no limit")
    if abs(value) > _LARGEST and abs(value) != math.inf:
        raise TextFault("the number is too large", offset, "numbers must stay below 1e60; inf is no limit")
    return value


def plain_number(text: str) -> Value | None:
    """The number that a text writes without any expression, or None."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


class UnboundSymbol(TextFault):
    """A symbol that is declared but has no value yet."""

    code = "unbound-symbol"


def value_of(tree: Tree, symbols: Mapping[str, Value | None]) -> Value:
    """The value of arithmetic that has been parsed. Raises TextFault, as `evaluate_number`."""
    if isinstance(tree, Number):
        return _bounded(tree.value, tree.offset)
    if isinstance(tree, Name):
        return _named(tree, symbols)
    if isinstance(tree, Unary):
        value = value_of(tree.operand, symbols)
        return -value if tree.op == "-" else value
    if isinstance(tree, Call):
        return _called(tree, [value_of(a, symbols) for a in tree.arguments])
    return _combined(tree, value_of(tree.left, symbols), value_of(tree.right, symbols))


def _named(tree: Name, symbols: Mapping[str, Value | None]) -> Value:
    if tree.name in symbols:
        value = symbols[tree.name]
        if value is None:
            raise UnboundSymbol(
                f"symbol {tree.name} has no value", tree.offset, f"bind it: spec.bind({tree.name}=...)"
            )
        return value
    if tree.name.lower() in _CONSTANTS:
        return _CONSTANTS[tree.name.lower()]
    near = close_to(tree.name, symbols)
    declare = f"declare it: symbols: {{{tree.name}: ...}}, or give it a value: --set {tree.name}=..."
    near = f"did you mean {near}?" if near else declare
    raise UnknownName(f"unknown symbol {tree.name}", tree.offset, near)


def _called(tree: Call, values: list[Value]) -> Value:
    if tree.name not in _FUNCTIONS:
        raise TextFault(
            f"unknown function {tree.name}", tree.offset, suggestion(tree.name, _FUNCTIONS, "functions")
        )
    if tree.name in ("min", "max"):
        return min(values) if tree.name == "min" else max(values)
    if len(values) != 1:
        raise TextFault(f"{tree.name} takes one number", tree.offset, f"write {tree.name}(x)")
    return _rounded(tree, values[0])


def _rounded(tree: Call, value: Value) -> Value:
    if math.isinf(value) or math.isnan(value):
        raise TextFault(f"{tree.name} of {value} is not a number", tree.offset, "use a finite argument")
    if tree.name == "ceil":
        return math.ceil(value)
    if tree.name == "floor":
        return math.floor(value)
    if (value <= 0 and tree.name == "log2") or value < 0:
        raise TextFault(f"{tree.name} of {value} is not defined", tree.offset, "use a positive argument")
    return _tidy(math.log2(value) if tree.name == "log2" else math.sqrt(value))


def _tidy(value: float) -> Value:
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _combined(tree: Binary, left: Value, right: Value) -> Value:
    try:
        value = _apply(tree, left, right)
    except ZeroDivisionError as error:
        raise TextFault("division by zero", tree.offset, "change the divisor") from error
    except (OverflowError, ValueError) as error:
        raise TextFault("the result is out of range", tree.offset, "use smaller numbers") from error
    if isinstance(value, complex) or value != value:
        raise TextFault("the result is not a real number", tree.offset, "change the operands")
    given = math.inf in (abs(left), abs(right))
    if abs(value) > _LARGEST and not given:
        raise TextFault("the result is too large", tree.offset, "numbers must stay below 1e60")
    return value


def _apply(tree: Binary, left: Value, right: Value) -> Value:
    if tree.op == "+":
        return left + right
    if tree.op == "-":
        return left - right
    if tree.op == "*":
        return left * right
    if tree.op == "/":
        exact = isinstance(left, int) and isinstance(right, int) and right != 0 and left % right == 0
        return left // right if exact else left / right
    if tree.op == "//":
        return left // right
    if tree.op == "%":
        return left % right
    return _power(tree, left, right)


def _power(tree: Binary, base: Value, exponent: Value) -> Value:
    size = abs(exponent) * math.log10(max(abs(base), 2)) if not math.isinf(base) else 0
    if size > 60:
        raise TextFault("the power is too large", tree.offset, "numbers must stay below 1e60")
    value: Value | complex = base**exponent
    if isinstance(value, complex):
        raise TextFault("the power is not a real number", tree.offset, "use a non-negative base")
    return value


@dataclass(frozen=True)
class Numbers:
    """Evaluates expressions against symbols; a value out of bounds is a fault and becomes the default."""

    symbols: Mapping[str, Value | None]
    faults: Faults

    def _value(self, text: Value | str, path: Path) -> Value | None:
        try:
            return evaluate_number(text, self.symbols)
        except TextFault as fault:
            self.faults.text(path, fault)
            return None

    def at_least_zero(self, text: Value | str, path: Path, what: str) -> float:
        """A finite number of at least 0."""
        value = self._value(text, path)
        if value is None:
            return 0.0
        if value < 0:
            self.faults.add(path, f"negative {what} {value}", "write a number of at least 0")
            return 0.0
        if math.isinf(value):
            self.faults.add(path, f"infinite {what}", "write a finite number")
            return 0.0
        return float(value)

    def positive(self, text: Value | str, path: Path, what: str, *, finite: bool = False) -> float:
        """A number above 0; `inf` unless it must be finite."""
        value = self._value(text, path)
        if value is None:
            return 1.0
        if value == 0:
            remedy = "write a finite number above 0" if finite else "write a number above 0, or inf"
            self.faults.add(path, f"zero {what}", remedy)
            return 1.0
        if value < 0:
            self.faults.add(path, f"negative {what} {value}", "write a number above 0")
            return 1.0
        if finite and math.isinf(value):
            self.faults.add(path, f"infinite {what}", "write a finite number")
            return 1.0
        return float(value)

    def whole(self, text: Value | str, path: Path, what: str) -> int:
        """A whole number of at least 1."""
        value = self._value(text, path)
        if value is None:
            return 1
        if math.isinf(value) or value < 1 or value != int(value):
            self.faults.add(path, f"{what} {value} is not a whole number of at least 1", "write 1, 2, 3, ...")
            return 1
        return int(value)
