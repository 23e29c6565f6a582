"""Numbers and affine expressions as text: `8 * 614e9`, `2 * TN`, `2.5 pJ`, `2p + r`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from polymodel.arithmetic import Affine, Constraint
from polymodel.frozen import dataclass
from polymodel.spec.expressions import (
    Binary,
    Call,
    Name,
    NumberNode,
    TokenCursor,
    Tree,
    Unary,
    arithmetic,
    names_in,
    parse_arithmetic,
)
from polymodel.spec.faults import Faults, Path, TextFault, UnknownName, close_to, suggestion

Value = int | float
LARGEST = 10**60  # bound on all given and computed numbers, so that no arithmetic overflows
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
        raise TextFault(f"{text.strip()} is a date, not a number", 0, remedy, code="not-a-number")
    return value_of(parse_arithmetic(text), symbols or {})


def _too_large(what: object, offset: int, remedy: str = "numbers must stay below 1e60") -> TextFault:
    return TextFault(f"{what} is too large", offset, remedy, code="number-too-large")


def _undefined(message: str, offset: int, remedy: str) -> TextFault:
    return TextFault(message, offset, remedy, code="undefined-result")


def _bounded(value: Value, offset: int) -> Value:
    """A number as written; finite ones are at most LARGEST."""
    if value != value:
        message = "nan is not a number"
        remedy = "write a number, or inf where there is no limit"
        raise TextFault(message, offset, remedy, code="not-a-number")
    if abs(value) > LARGEST and abs(value) != math.inf:
        raise _too_large("the number", offset, "numbers must stay below 1e60; inf means no limit")
    return value


def plain_number(text: str) -> Value | None:
    """The number if the text is a plain number rather than an expression, else None."""
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
    if isinstance(tree, NumberNode):
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
                f"symbol {tree.name} has no value",
                tree.offset,
                f"give it one: --set {tree.name}=..., in Python spec.bind({tree.name}=...)",
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
            f"unknown function {tree.name}",
            tree.offset,
            suggestion(tree.name, _FUNCTIONS, "functions"),
            code="unknown-name",
        )
    if tree.name in ("min", "max"):
        return min(values) if tree.name == "min" else max(values)
    if len(values) != 1:
        message = f"{tree.name} takes one number"
        raise TextFault(message, tree.offset, f"write {tree.name}(x)", code="wrong-count")
    return _rounded(tree, values[0])


def _rounded(tree: Call, value: Value) -> Value:
    if math.isinf(value) or math.isnan(value):
        raise _undefined(f"{tree.name} of {value} is not a number", tree.offset, "use a finite argument")
    if tree.name == "ceil":
        return math.ceil(value)
    if tree.name == "floor":
        return math.floor(value)
    if (value <= 0 and tree.name == "log2") or value < 0:
        raise _undefined(f"{tree.name} of {value} is not defined", tree.offset, "use a positive argument")
    return _tidy(math.log2(value) if tree.name == "log2" else math.sqrt(value))


def _tidy(value: float) -> Value:
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _combined(tree: Binary, left: Value, right: Value) -> Value:
    try:
        value = _apply(tree, left, right)
    except ZeroDivisionError as error:
        raise _undefined("division by zero", tree.offset, "change the divisor") from error
    except (OverflowError, ValueError) as error:
        raise _undefined("the result is out of range", tree.offset, "use smaller numbers") from error
    if isinstance(value, complex) or value != value:
        raise _undefined("the result is not a real number", tree.offset, "change the operands")
    given = math.inf in (abs(left), abs(right))
    if abs(value) > LARGEST and not given:
        raise _too_large("the result", tree.offset)
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
        raise _too_large("the power", tree.offset)
    value: Value | complex = base**exponent
    if isinstance(value, complex):
        raise _undefined("the power is not a real number", tree.offset, "use a non-negative base")
    return value


@dataclass(frozen=True)
class Numbers:
    """Evaluates expressions over symbols; a value out of bounds is a fault and is replaced by the default."""

    symbols: Mapping[str, Value | None]
    faults: Faults

    def _value(self, text: Value | str, path: Path) -> Value | None:
        try:
            return evaluate_number(text, self.symbols)
        except TextFault as fault:
            self.faults.text(path, fault)
            return None

    def in_text(self, given: object, path: Path) -> object:
        """The number of a text that is arithmetic or contains a symbol; any other value unchanged."""
        if not isinstance(given, str):
            return given
        if not {*re.findall(r"[A-Za-z_]\w*", given)} & {*self.symbols}:
            try:
                return evaluate_number(given)
            except TextFault:
                return given
        return self._value(given, path)

    def at_least_zero(self, text: Value | str, path: Path, what: str) -> float:
        """A finite number of at least 0."""
        value = self._value(text, path)
        if value is None or self._outside(value, path, what, "write a number of at least 0", finite=True):
            return 0.0
        return float(value)

    def positive(self, text: Value | str, path: Path, what: str, *, finite: bool = False) -> float:
        """A positive number; `inf` is allowed unless it must be finite."""
        value = self._value(text, path)
        if value is None:
            return 1.0
        if value == 0:
            remedy = "write a finite number above 0" if finite else "write a number above 0, or inf"
            self.faults.add(path, f"zero {what}", remedy, code="out-of-range")
            return 1.0
        return 1.0 if self._outside(value, path, what, "write a number above 0", finite) else float(value)

    def _outside(self, value: Value, path: Path, what: str, remedy: str, finite: bool) -> bool:
        """Adds a fault for a negative number, and for an infinite one where it must be finite."""
        if value < 0:
            self.faults.add(path, f"negative {what} {value}", remedy, code="out-of-range")
        elif finite and math.isinf(value):
            self.faults.add(path, f"infinite {what}", "write a finite number", code="out-of-range")
        return value < 0 or (finite and math.isinf(value))

    def whole(self, text: Value | str, path: Path, what: str) -> int:
        """A positive integer."""
        value = self._value(text, path)
        if value is None:
            return 1
        if math.isinf(value) or value < 1 or value != int(value):
            message = f"{what} {value} is not a whole number of at least 1"
            self.faults.add(path, message, "write 1, 2, 3, ...", code="not-positive-integer")
            return 1
        return int(value)


# Numbers with a unit: `2.5 pJ`, `64 KiB`, `25.6 GB/s`, `1 GHz`, `0.8 mm^2`.
#
# They become numbers in the units of the architecture (joules, bits, bits or operations per second, hertz,
# watts, seconds, square metres) as they are read; an expression with symbols stays one: `(8 * TN) * 8192`.

_DECIMAL = {
    "f": -15, "p": -12, "n": -9, "u": -6, "µ": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15,
}  # fmt: skip
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_DATA = {"b": 1, "bit": 1, "bits": 1, "B": 8, "byte": 8, "bytes": 8}
_LENGTHS = {"m": 0, "mm": -6, "um": -12, "µm": -12, "nm": -18}
_WORD = r"(?P<unit>[^\W\d_]+(\^?2)?(/[^\W\d_]+)?)\s*"
_NUMBER = r"\s*[0-9][0-9.]*([eE][+-]?[0-9]+)?"
_LITERAL = re.compile(_NUMBER)
_ADJOINING = re.compile(f"(?P<number>{_NUMBER}){_WORD}")
_APART = re.compile(rf"(?P<number>.*[\w.)])\s+{_WORD}", re.DOTALL)


@dataclass(frozen=True)
class Dimension:
    """The physical dimension of a key. `examples`: how values are written; `units`: symbol -> (integer
    factor, power of ten)."""

    name: str
    base: str
    examples: str
    units: Mapping[str, tuple[int, int]]


def _prefixed(*symbols: str) -> dict[str, tuple[int, int]]:
    return {prefix + s: (1, power) for s in symbols for prefix, power in _DECIMAL.items()}


def _amounts(end: str = "") -> dict[str, tuple[int, int]]:
    large = {p: n for p, n in _DECIMAL.items() if n >= 0}
    result = {f"{p}{s}{end}": (bits, n) for s, bits in _DATA.items() for p, n in large.items()}
    result |= {f"{p}{s}{end}": (bits * n, 0) for s, bits in _DATA.items() for p, n in _BINARY.items()}
    return result


ENERGY = Dimension("energy", "joules", "2.5 pJ", _prefixed("J"))
POWER = Dimension("power", "watts", "28 W or 3 mW", _prefixed("W"))
TIME = Dimension("time", "seconds", "20 ns", _prefixed("s"))
FREQUENCY = Dimension("frequency", "hertz", "1 GHz", _prefixed("Hz"))
DATA = Dimension("size", "bits", "64 KiB or 512 kb", _amounts())
RATE = Dimension("throughput", "bits per second", "25.6 GB/s", _amounts("/s"))
WORK = Dimension("throughput", "operations per second", "1 Gop/s", _prefixed("op/s", "ops/s"))
AREA = Dimension(
    "area", "square metres", "0.8 mm^2",
    {f"{unit}{power}": (1, n) for unit, n in _LENGTHS.items() for power in ("^2", "2")},
)  # fmt: skip
_KNOWN = (ENERGY, POWER, TIME, FREQUENCY, DATA, RATE, WORK, AREA)


def in_base_units(text: object, dimension: Dimension) -> object:
    """A text with a unit as a number in base units, or as an expression if it contains symbols; a text
    without a unit unchanged. Raises TextFault at a unit that does not fit the dimension."""
    if not isinstance(text, str):
        return text
    found = _ADJOINING.fullmatch(text) or _APART.fullmatch(text)
    if found is None:
        return text
    # The two Unicode characters for micro look alike.
    number, unit, at = found["number"], found["unit"].replace("\u03bc", "\u00b5"), found.start("unit")
    if unit not in dimension.units:
        raise _foreign(unit, at, dimension)
    factor, power = dimension.units[unit]
    if symbols_in(number):
        scale = factor * 10**power if power >= 0 else float(f"{factor}e{power}")
        return f"({number.strip()}) * {scale!r}"
    return _scaled(number.strip(), evaluate_number(number), factor, power)


def amount_in(text: str, unit: str) -> Value | None:
    """The number in units of `unit`, from a number with or without a unit; None for any other text."""
    dimension = next((d for d in (ENERGY, TIME, DATA, AREA) if unit in d.units), None)
    try:
        result = in_base_units(text, dimension) if dimension is not None else text
    except TextFault:
        return None
    if isinstance(result, str):
        return float(result) if _LITERAL.fullmatch(result.strip()) else None
    return result if isinstance(result, (int, float)) else None


def _scaled(text: str, value: Value, factor: int, power: int) -> Value:
    """Exact for integers; for a decimal number the float nearest to the written value."""
    if isinstance(value, int):
        return value * factor * 10**power if power >= 0 else float(f"{value * factor}e{power}")
    if factor == 1 and _LITERAL.fullmatch(text) and "e" not in text.lower():
        exact = float(f"{text}e{power}")
    else:
        exact = value * factor * (10.0**power if power >= 0 else 1) / (1 if power >= 0 else 10.0**-power)
    return int(exact) if power >= 0 and exact.is_integer() and abs(exact) < 2**53 else exact


def _foreign(unit: str, at: int, dimension: Dimension) -> TextFault:
    other = next((d for d in _KNOWN if unit in d.units), None)
    remedy = f"write e.g. {dimension.examples}, or a number of {dimension.base}"
    if other is not None:
        what = f"{unit} is a unit of {other.name} ({other.base}), not {dimension.base}"
        return TextFault(what, at, remedy, code="wrong-unit")
    if unit.removesuffix("/s") in ("KB", "Kb"):
        right = "kB (1000 bytes) or KiB (1024 bytes)" if "B" in unit else "kb (1000 bits) or Kib (1024 bits)"
        return TextFault(f"{unit} may mean two sizes", at, f"write {right}", code="wrong-unit")
    if dimension is ENERGY and unit.partition("/")[0] in ENERGY.units:
        fault = f"{unit} is not a unit here"
        return TextFault(fault, at, _energy_alone(*unit.split("/", 1)), code="wrong-unit")
    alike = (u for u in dimension.units if u.lower() == unit.lower())
    near = next(alike, None) or close_to(unit, dimension.units)
    message = f"unknown unit {unit}"
    return TextFault(message, at, f"did you mean {near}? {remedy}" if near else remedy, code="wrong-unit")


def _energy_alone(unit: str, per: str) -> str:
    """The remedy for an energy with a denominator: the key already implies it."""
    if per in ("B", "byte", "bytes"):
        return f"energies are per bit: divide by 8, e.g. write 16 / 8 {unit} for 16 {unit}/{per}"
    return f"write {unit} alone: energies of reads and writes are per bit, those of compute per operation"


# Affine expressions over rank variables, and constraints in ISL's notation.

Symbols = Mapping[str, Value | None]
_COMPARE = ("<", "<=", ">", ">=", "=", "==", "!=")
_REFUSED = {
    "or": "a union of ranges is not supported; write one Einsum per range",
    "not": "write the opposite comparison",
    "exists": "write the divisibility as `m mod 2 = 0`",
}


def parse_affine(text: str | int, symbols: Symbols | None = None) -> Affine:
    """`2*p + 3*r - 1` as an Affine; names in `symbols` are replaced by their values.

    Raises TextFault for products of variables, division, and other forms that are not affine.
    """
    if isinstance(text, int):
        return Affine((), text)
    return affine_of(parse_arithmetic(text), symbols or {})


def affine_of(tree: Tree, symbols: Symbols) -> Affine:
    """The affine expression that a syntax tree stands for. Raises TextFault."""
    if isinstance(tree, NumberNode):
        return Affine((), _whole(tree.value, tree.offset))
    if isinstance(tree, Name):
        value = symbols.get(tree.name)
        if tree.name in symbols and value is not None:
            return Affine((), _whole(value, tree.offset))
        return Affine.variable(tree.name)
    if isinstance(tree, Unary):
        return affine_of(tree.operand, symbols).scaled(-1 if tree.op == "-" else 1)
    if isinstance(tree, Call):
        message = f"{tree.name}(...) is not affine"
        raise TextFault(message, tree.offset, "use sums of multiples of rank variables", code="not-affine")
    return _binary(tree, affine_of(tree.left, symbols), affine_of(tree.right, symbols))


def _whole(value: Value, offset: int) -> int:
    if isinstance(value, float) and not value.is_integer():
        message = f"{value} is not a whole number"
        raise TextFault(message, offset, "coefficients are integers", code="not-an-integer")
    if abs(value) > 2**62:
        raise _too_large(value, offset, "coefficients must stay below 2**62")
    return int(value)


def _binary(tree: Binary, left: Affine, right: Affine) -> Affine:
    if tree.op == "+":
        return left + right
    if tree.op == "-":
        return left - right
    if tree.op == "*" and not left.terms:
        return right.scaled(left.constant)
    if tree.op == "*" and not right.terms:
        return left.scaled(right.constant)
    if not left.terms and not right.terms:
        value = evaluate_number(f"({left.constant}) {tree.op} ({right.constant})")
        return Affine((), _whole(value, tree.offset))
    what = "a product of rank variables" if tree.op == "*" else f"{tree.op!r} of a rank variable"
    message = f"{what} is not affine"
    remedy = "use sums of integer multiples of rank variables, e.g. 2*p + r"
    raise TextFault(message, tree.offset, remedy, code="not-affine")


def parse_constraints(text: str, symbols: Symbols | None = None) -> tuple[Constraint, ...]:
    """`0 <= m < 128 and m mod 2 = 0` as Constraints. Raises TextFault."""
    cursor = TokenCursor(text)
    result = list(_chain(cursor, symbols or {}))
    while True:
        if cursor.take("and", "&&"):
            result.extend(_chain(cursor, symbols or {}))
            continue
        _refuse_connective(cursor)
        cursor.finish()
        return tuple(result)


def _refuse_connective(cursor: TokenCursor) -> None:
    word = "or" if cursor.now.text == "||" else cursor.now.text
    if word in _REFUSED:
        raise TextFault(f"`{cursor.now.text}` is not supported", cursor.now.offset, _REFUSED[word])


def _chain(cursor: TokenCursor, symbols: Symbols) -> tuple[Constraint, ...]:
    _refuse_connective(cursor)
    sides = [arithmetic(cursor)]
    comparisons: list[tuple[str, int]] = []
    while token := cursor.take(*_COMPARE):
        comparisons.append((token.text, token.offset))
        _refuse_connective(cursor)
        sides.append(arithmetic(cursor))
    if not comparisons:
        raise TextFault("a constraint needs a comparison", cursor.now.offset, "write e.g. 0 <= m < 128")
    return tuple(
        _comparison(op, at, sides[i], sides[i + 1], symbols) for i, (op, at) in enumerate(comparisons)
    )


def _comparison(op: str, at: int, left: Tree, right: Tree, symbols: Symbols) -> Constraint:
    if op == "!=":
        raise TextFault("`!=` is not supported", at, "write one Einsum per range")
    for side, other in ((left, right), (right, left)):
        if isinstance(side, Binary) and side.op == "%" and affine_of(side.left, symbols).terms:
            return _modular(side, affine_of(other, symbols), op, at, symbols)
    low, high = affine_of(left, symbols), affine_of(right, symbols)
    if op in ("=", "=="):
        return Constraint(low - high, "eq")
    if op in (">", ">="):
        low, high = high, low
    return Constraint(high - low - Affine((), 1 if op in ("<", ">") else 0), "ge")


def _modular(side: Binary, other: Affine, op: str, at: int, symbols: Symbols) -> Constraint:
    modulus = affine_of(side.right, symbols)
    if modulus.terms or modulus.constant < 1:
        raise TextFault("the modulus must be a positive number", side.offset, "write e.g. m mod 2 = 0")
    if op not in ("=", "==") or other.terms or not 0 <= other.constant < modulus.constant:
        raise TextFault(
            "a remainder can only be set equal to a number below the modulus", at, "write e.g. m mod 2 = 0"
        )
    return Constraint(affine_of(side.left, symbols) - other, "mod", modulus.constant)
