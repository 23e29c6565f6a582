"""Expressions and comparisons over symbols, evaluated on whole arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np

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
)
from polymodel.spec.expressions import parse_arithmetic as parse
from polymodel.spec.faults import TextFault, suggestion
from polymodel.spec.numbers import LARGEST, symbols_in
from polymodel.sweeps.values import wrong

Value = Any  # a number or an array of numbers

_COMPARE: dict[str, Callable[[Value, Value], Value]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "=": np.equal,
    "==": np.equal,
    "!=": np.not_equal,
}
_BINARY: dict[str, Callable[[Value, Value], Value]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.true_divide,
    "//": np.floor_divide,
    "%": np.remainder,
    "**": np.float_power,
}
_ROUNDING: dict[str, Callable[[Value], Value]] = {
    "ceil": np.ceil,
    "floor": np.floor,
    "log2": np.log2,
    "sqrt": np.sqrt,
}
FUNCTIONS = (*_ROUNDING, "min", "max")


@dataclass(frozen=True)
class SymbolConstraint:
    """A comparison such as `TM0 <= TM1 < 2*TN and ...`; `holds` evaluates it for arrays of values."""

    text: str
    sides: tuple[tuple[str, Tree, Tree], ...]

    @property
    def names(self) -> frozenset[str]:
        trees = [t for _, left, right in self.sides for t in (left, right)]
        return frozenset(n.name for t in trees for n in names_in(t))

    def holds(self, values: Mapping[str, Value]) -> Value:
        """True where every comparison holds (broadcast over the arrays).

        False where a side has no value, such as the root of a negative number.
        """
        with np.errstate(all="ignore"):
            each = [_COMPARE[op](of_tree(a, values), of_tree(b, values)) for op, a, b in self.sides]
        return reduce(np.logical_and, each)


def constraint(text: str) -> SymbolConstraint:
    """The comparisons of a `where` text. Raises SpecError for bad syntax."""
    try:
        cursor = TokenCursor(text)
        sides: list[tuple[str, Tree, Tree]] = []
        while True:
            left = arithmetic(cursor)
            token = cursor.take(*_COMPARE)
            if token is None:
                raise TextFault("a constraint needs a comparison", cursor.now.offset, "write TM0 <= TM1")
            while token is not None:
                right = arithmetic(cursor)
                sides.append((token.text, left, right))
                left, token = right, cursor.take(*_COMPARE)
            if not cursor.take("and", "&&"):
                cursor.finish()
                return SymbolConstraint(text, tuple(sides))
    except TextFault as fault:
        raise wrong(f"where `{text}`: {fault.message}", fault.remedy, code=fault.code) from fault


def of_text(text: str, values: Mapping[str, Value]) -> Value:
    """The value of an expression over arrays. Raises SpecError for bad syntax or unknown names."""
    try:
        tree = parse(text)
    except TextFault as fault:
        raise wrong(f"`{text}`: {fault.message}", fault.remedy, code=fault.code) from fault
    return of_tree(tree, values)


def names_of(text: str) -> frozenset[str]:
    """The names in an expression. Raises SpecError for bad syntax."""
    try:
        return frozenset(symbols_in(text))
    except TextFault as fault:
        raise wrong(f"`{text}`: {fault.message}", fault.remedy, code=fault.code) from fault


def of_tree(tree: Tree, values: Mapping[str, Value]) -> Value:
    """The value of a syntax tree, elementwise."""
    if isinstance(tree, NumberNode):
        return tree.value
    if isinstance(tree, Name):
        if tree.name not in values:
            message = f"unknown symbol {tree.name}"
            raise wrong(message, suggestion(tree.name, values, "symbols"), code="unknown-name")
        return values[tree.name]
    if isinstance(tree, Unary):
        value = of_tree(tree.operand, values)
        return -value if tree.op == "-" else value
    if isinstance(tree, Call):
        inner = tree.arguments[0] if len(tree.arguments) == 1 else None
        if tree.name in ("ceil", "floor") and isinstance(inner, Binary) and inner.op == "/":
            sides = of_tree(inner.left, values), of_tree(inner.right, values)
            if all(_size(s) is not None for s in sides):
                return _rounded(tree.name, *sides)
        return _called(tree, [of_tree(a, values) for a in tree.arguments])
    left, right = of_tree(tree.left, values), of_tree(tree.right, values)
    return _combined(tree, left, right)


def _combined(tree: Binary, left: Value, right: Value) -> Value:
    if tree.op in ("/", "//", "%") and np.any(np.equal(right, 0)):
        raise wrong("division by zero", "change the divisor", code="undefined-result")
    sizes = _size(left), _size(right)
    if any(s is not None and s > LARGEST for s in sizes):
        raise wrong("a number is too large", "numbers must stay below 1e60", code="number-too-large")
    a, b = (s or 0 for s in sizes)
    exact = None not in sizes and tree.op not in ("/", "**")
    if exact and max(a, b, a * b if tree.op == "*" else a + b) >= 2**63:  # int64 would overflow silently
        left, right = _own(left), _own(right)
    elif not exact:
        left, right = _floating(left), _floating(right)
    result = _BINARY[tree.op](left, right)
    if tree.op == "**" and np.all(np.abs(result) < 2.0**53) and np.all(result == np.floor(result)):
        return np.asarray(result).astype(np.int64)
    return result


def _size(value: Value) -> int | None:
    """The largest magnitude among integers; None for floats."""
    array = np.asarray(value)
    if array.dtype.kind not in "iuO":
        return None
    return max(abs(int(array.max())), abs(int(array.min()))) if array.size else 0


def _own(value: Value) -> Value:
    """The value as Python's numbers; numpy's do not mix with integers beyond 64 bits."""
    return np.asarray(value).astype(object)


def _floating(value: Value) -> Value:
    """The value in floating point, if it consists of Python's numbers."""
    return np.asarray(value, float) if np.asarray(value).dtype.kind == "O" else value


def _roomy(values: list[Value]) -> list[Value]:
    """The values, as Python's numbers if one of them exceeds 64 bits."""
    wide = max(_size(v) or 0 for v in values) >= 2**63
    return [_own(v) for v in values] if wide else values


def _rounded(name: str, left: Value, right: Value) -> Value:
    """A quotient of integers, rounded without using floats."""
    if np.any(np.equal(right, 0)):
        raise wrong("division by zero", "change the divisor", code="undefined-result")
    left, right = _roomy([left, right])
    return left // right if name == "floor" else -(-left // right)


def _called(tree: Call, values: list[Value]) -> Value:
    if tree.name in ("min", "max"):
        values = _roomy(values)
        return reduce(np.minimum if tree.name == "min" else np.maximum, values)
    if tree.name not in _ROUNDING or len(values) != 1:
        message = f"unknown function {tree.name}"
        raise wrong(message, suggestion(tree.name, FUNCTIONS, "functions"), code="unknown-name")
    value = values[0]
    if tree.name in ("ceil", "floor") and _size(value) is not None:
        return value
    value = _floating(value)
    return _ROUNDING[tree.name](value)
