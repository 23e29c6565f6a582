"""The arithmetic of Einsums: affine expressions of their indices, and their operators by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from polymodel.frozen import dataclass
from polymodel.integers import np

if TYPE_CHECKING:
    from numpy.typing import NDArray


# Integer affine expressions and constraints over rank variables: plain data, no library.


@dataclass(frozen=True)
class Affine:
    """`sum(coefficient * variable) + constant`; terms sorted by first appearance, coefficients non-zero."""

    terms: tuple[tuple[str, int], ...] = ()
    constant: int = 0

    @staticmethod
    def variable(name: str) -> Affine:
        return Affine(((name, 1),))

    @cached_property
    def variables(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.terms)

    def coefficient(self, name: str) -> int:
        return dict(self.terms).get(name, 0)

    def value(self, point: Mapping[str, int]) -> int:
        return self.constant + sum(c * point[v] for v, c in self.terms)

    def __add__(self, other: Affine) -> Affine:
        total = dict(self.terms)
        for name, c in other.terms:
            total[name] = total.get(name, 0) + c
        kept = tuple((v, c) for v, c in total.items() if c)
        return Affine(kept, self.constant + other.constant)

    def scaled(self, factor: int) -> Affine:
        if factor == 0:
            return Affine()
        return Affine(tuple((v, c * factor) for v, c in self.terms), self.constant * factor)

    def __sub__(self, other: Affine) -> Affine:
        return self + other.scaled(-1)

    def __str__(self) -> str:
        text = ""
        for name, c in self.terms:
            sign = "-" if c < 0 else "+"
            body = name if abs(c) == 1 else f"{abs(c)}*{name}"
            text += f" {sign} {body}" if text else (f"-{body}" if c < 0 else body)
        if self.constant or not text:
            sign = "-" if self.constant < 0 else "+"
            text += f" {sign} {abs(self.constant)}" if text else str(self.constant)
        return text


@dataclass(frozen=True)
class Constraint:
    """`expr >= 0` (ge), `expr == 0` (eq) or `expr mod modulus == 0` (mod)."""

    expr: Affine
    kind: Literal["ge", "eq", "mod"] = "ge"
    modulus: int = 0

    def holds(self, point: Mapping[str, int]) -> bool:
        value = self.expr.value(point)
        if self.kind == "ge":
            return value >= 0
        if self.kind == "eq":
            return value == 0
        return value % self.modulus == 0

    def __str__(self) -> str:
        if self.kind == "mod":
            return f"({self.expr}) mod {self.modulus} = 0"
        return f"{self.expr} {'>=' if self.kind == 'ge' else '='} 0"


# Operators by name: their algebra (identity, annihilator, f(0)), their cost class, and their NumPy function.
#
# One table serves sparse counts (which zeros make an operation ineffectual), execution, texts and energies.

Array: TypeAlias = "NDArray[Any]"
Form = Callable[..., Any]


@dataclass(frozen=True)
class Operator:
    """One operator. `arity` 2 combines any number of operands from the left.

    `identity`: x op identity = x; `annihilator`: x op annihilator = annihilator; `at_zero`: f(0) of a unary
    operator. None if there is no such number. `cost`: its cost class. `computes`: a function of arrays, or
    the name of a NumPy ufunc.
    """

    name: str
    arity: int
    computes: Form | str
    identity: float | None = None
    annihilator: float | None = None
    at_zero: float | None = None
    commutes: bool = False
    cost: str = "special"
    sign: str = ""
    aliases: tuple[str, ...] = ()

    @property
    def form(self) -> Form:
        """The function of arrays; of NumPy's, the ufunc itself."""
        result: Form = getattr(np, self.computes) if isinstance(self.computes, str) else self.computes
        return result

    def takes(self, operands: int) -> bool:
        """True if a formula may apply it to so many operands."""
        return operands == 1 if self.arity == 1 else operands >= 2

    def joined(self, operands: list[Array]) -> Array:
        """The operator applied to its operands, from the left."""
        if self.arity == 1:
            return np.asarray(self.form(operands[0]))
        result = operands[0]
        for other in operands[1:]:
            result = self.form(result, other)
        return result

    def of_some(self, values: Sequence[float | None]) -> float | None:
        """The result of numbers, of which None is any finite one; None where it depends on these."""
        if None not in values:
            with np.errstate(all="ignore"):
                result = float(self.form(*(np.float64(x) for x in values if x is not None)))
            return None if math.isnan(result) else result
        fixed = next((x for x in values if x is not None), None)
        if fixed is None:
            return None
        if fixed == self.annihilator:
            return fixed  # of a finite number
        first = values[0] == fixed
        if self.name == "div" and first and fixed == 0:
            return 0.0  # what is divided by is not zero
        if self.name in ("add", "sub") and math.isinf(fixed):
            return fixed if first or self.name == "add" else -fixed
        return None


def _erf(x: Array) -> Array:
    return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x))


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-np.asarray(x, dtype=np.float64))))


def _compare(x: Array, y: Array) -> Array:
    return np.asarray(np.greater(x, y), dtype=np.float64)


def _take(x: Array, y: Array) -> Array:
    """The second operand where the first is not zero."""
    return np.asarray(np.where(np.asarray(x) != 0, y, 0))


_JOINS = (
    Operator("mul", 2, "multiply", 1, 0, None, True, "multiply", "*", ("multiply", "times")),
    Operator("add", 2, "add", 0, None, None, True, "add", "+", ("plus", "sum")),
    Operator("sub", 2, "subtract", 0, None, None, False, "add", "-", ("subtract", "minus")),
    Operator("div", 2, "divide", 1, None, None, False, "divide", "/", ("divide",)),
    Operator("max", 2, "maximum", -math.inf, math.inf, None, True, "compare", "", ("maximum",)),
    Operator("min", 2, "minimum", math.inf, -math.inf, None, True, "compare", "", ("minimum",)),
    Operator("compare", 2, _compare, None, None, None, False, "compare", "", ("greater",)),
    Operator("select", 2, _take, None, 0, None, False, "move", "", ("take",)),
)


def _unary(
    name: str, computes: Form | str, at_zero: float | None, cost: str = "special", *aliases: str
) -> Operator:
    return Operator(name, 1, computes, at_zero=at_zero, cost=cost, aliases=aliases)


_FUNCTIONS = (
    _unary("identity", "positive", 0, "move", "copy"),
    _unary("abs", "abs", 0, "compare"),
    _unary("neg", "negative", 0, "add", "negate"),
    _unary("relu", lambda x: np.maximum(x, 0), 0, "compare"),
    _unary("relu6", lambda x: np.clip(x, 0, 6), 0, "compare"),
    _unary("leaky_relu", lambda x: np.where(x > 0, x, 0.01 * x), 0, "compare"),
    _unary("elu", lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))), 0),
    _unary("selu", lambda x: 1.0507009873554805 * np.where(
        x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0))), 0),
    _unary("gelu", lambda x: 0.5 * x * (1 + _erf(x / math.sqrt(2))), 0),
    _unary("silu", lambda x: x * _sigmoid(x), 0, "special", "swish"),
    _unary("mish", lambda x: x * np.tanh(np.logaddexp(0, x)), 0),
    _unary("softsign", lambda x: x / (1 + np.abs(x)), 0, "divide"),
    _unary("hardswish", lambda x: x * np.clip(x + 3, 0, 6) / 6, 0, "multiply"),
    _unary("tanh", "tanh", 0),
    _unary("sin", "sin", 0),
    _unary("tan", "tan", 0),
    _unary("asin", "arcsin", 0),
    _unary("atan", "arctan", 0),
    _unary("sinh", "sinh", 0),
    _unary("sqrt", "sqrt", 0),
    _unary("square", "square", 0, "multiply"),
    _unary("cbrt", "cbrt", 0),
    _unary("sign", "sign", 0, "compare"),
    _unary("floor", "floor", 0, "add"),
    _unary("ceil", "ceil", 0, "add"),
    _unary("round", "round", 0, "add"),
    _unary("expm1", "expm1", 0),
    _unary("log1p", "log1p", 0),
    _unary("erf", _erf, 0),
    _unary("exp", "exp", 1),
    _unary("log", "log", -math.inf),
    _unary("cos", "cos", 1),
    _unary("sigmoid", _sigmoid, 0.5),
    _unary("softplus", lambda x: np.logaddexp(0, x), math.log(2)),
    _unary("rsqrt", lambda x: 1 / np.sqrt(x), math.inf),
    _unary("reciprocal", lambda x: 1 / x, math.inf, "divide"),
)  # fmt: skip

OPERATORS: dict[str, Operator] = {
    name: one
    for one in (*_JOINS, *_FUNCTIONS)
    for name in (one.name, *one.aliases, *((one.sign,) if one.sign else ()))
}


@dataclass(frozen=True)
class Semiring:
    """What the signs of a sum of products stand for, by name: `*` for `map`, `+` and sums over ranks for
    `reduce`."""

    map: str = "mul"
    reduce: str = "add"

    @property
    def multiply(self) -> Operator:
        return OPERATORS[self.map]

    @property
    def add(self) -> Operator:
        return OPERATORS[self.reduce]

    @property
    def ordinary(self) -> bool:
        """Whether they stand for themselves."""
        return (self.multiply.name, self.add.name) == ("mul", "add")

    @property
    def absent(self) -> float:
        """What points hold that no sum is changed by: those that a sparse tensor leaves out."""
        return self.add.identity or 0.0

    @property
    def leaves_out(self) -> bool:
        """Whether a product that lacks an operand is absent as well, whatever the others are."""
        sides = ([self.absent, None], [None, self.absent])
        return all(self.multiply.of_some(side) == self.absent for side in sides)


ORDINARY = Semiring()
# The cost class of operators without an action of their own.
COST_CLASSES = frozenset(one.cost for one in OPERATORS.values())
# Operators that are written between their operands, by name.
SIGNS: dict[str, str] = {name: one.sign for name, one in OPERATORS.items() if one.sign}


def is_priced(name: str) -> bool:
    """Whether an action of a compute unit may have this name: that of an operator, or of a class of them."""
    return name in OPERATORS or name in COST_CLASSES


def names_of(*wanted: str) -> tuple[str, ...]:
    """Every name of some operators."""
    return tuple(name for name, one in OPERATORS.items() if one.name in wanted)


def keeping_zero() -> tuple[str, ...]:
    """Names of the functions of one operand with f(0) = 0."""
    return tuple(name for name, one in OPERATORS.items() if one.arity == 1 and one.at_zero == 0)
