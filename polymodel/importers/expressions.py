"""Evaluate expressions of other tools' files: arithmetic, Python's conditions, `16 if depth > 64 else 8`, and
a few Python functions.

They are parsed by polymodel and never evaluated by Python.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import replace

from polymodel.spec.expressions import Binary, Call, Name, NumberNode, TokenCursor, Tree, Unary, arithmetic
from polymodel.spec.numbers import Value, evaluate_number, value_of

Known = Mapping[str, Value | None]
_COMPARE: dict[str, Callable[[Value, Value], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_TRUTH = {"True": 1, "False": 0}
_FUNCTIONS: dict[str, Callable[[Value], Value]] = {"round": round, "abs": abs, "int": int, "float": float}


def evaluate(text: Value | str, known: Known) -> Value:
    """Return the value of a number or expression. Raises TextFault. Only the chosen side of a condition is
    evaluated."""
    if not isinstance(text, str):
        return evaluate_number(text, known)
    cursor = _Cursor(text)
    tree = cursor.inner()
    cursor.finish()
    return _value(tree, known)


class _Cursor(TokenCursor):
    """Parser in which conditions may occur wherever parentheses or arguments may."""

    def inner(self) -> Tree:
        return _choice(self)


# A condition is represented as a call of a reserved word, which no other call can have; a comparison is an
# operation. `_plain` replaces them by the selected side, or by the number.


def _choice(cursor: TokenCursor) -> Tree:
    cursor.deeper()
    result = _either(cursor)
    token = cursor.operator("if")
    if token is not None:
        condition = _either(cursor)
        cursor.need("else", "after the condition")
        result = Call("if", (condition, result, _choice(cursor)), token.offset)
    cursor.shallower()
    return result


def _either(cursor: TokenCursor) -> Tree:
    return _joined(cursor, "or", lambda c: _joined(c, "and", _negated))


def _joined(cursor: TokenCursor, word: str, read: Callable[[TokenCursor], Tree]) -> Tree:
    result = [read(cursor)]
    offset = cursor.now.offset
    while cursor.operator(word):
        result.append(read(cursor))
    return result[0] if len(result) == 1 else Call(word, tuple(result), offset)


def _negated(cursor: TokenCursor) -> Tree:
    token = cursor.operator("not")
    if token is None:
        return _compared(cursor)
    cursor.deeper()
    inner = _negated(cursor)
    cursor.shallower()
    return Call("not", (inner,), token.offset)


def _compared(cursor: TokenCursor) -> Tree:
    left = arithmetic(cursor)
    result: list[Tree] = []
    while token := cursor.operator(*_COMPARE):
        right = arithmetic(cursor)
        result.append(Binary(token.text, left, right, token.offset))
        left = right
    return result[0] if len(result) == 1 else Call("and", tuple(result), result[0].offset) if result else left


def _value(tree: Tree, known: Known) -> Value:
    return value_of(_plain(tree, known), known)


def _plain(tree: Tree, known: Known) -> Tree:
    """Return the tree with arithmetic alone, with each condition evaluated."""
    if isinstance(tree, Name) and tree.name in _TRUTH and tree.name not in known:
        return NumberNode(_TRUTH[tree.name], tree.offset)
    if isinstance(tree, Unary):
        return replace(tree, operand=_plain(tree.operand, known))
    if isinstance(tree, Binary):
        if tree.op in _COMPARE:
            holds = _COMPARE[tree.op](_value(tree.left, known), _value(tree.right, known))
            return NumberNode(int(holds), tree.offset)
        return replace(tree, left=_plain(tree.left, known), right=_plain(tree.right, known))
    if isinstance(tree, Call):
        return _called(tree, known)
    return tree


def _called(tree: Call, known: Known) -> Tree:
    if tree.name == "if":
        condition, chosen, other = tree.arguments
        return _plain(chosen if _value(condition, known) else other, known)
    if tree.name == "not":
        return NumberNode(int(not _value(tree.arguments[0], known)), tree.offset)
    if tree.name in ("and", "or"):
        # As in Python, the result is the first operand that determines it, and later ones are not evaluated.
        for part in tree.arguments[:-1]:
            value = _value(part, known)
            if bool(value) == (tree.name == "or"):
                return NumberNode(value, tree.offset)
        return _plain(tree.arguments[-1], known)
    if tree.name in _FUNCTIONS and len(tree.arguments) == 1:
        value = _value(tree.arguments[0], known)
        if value in (float("inf"), float("-inf")):
            return NumberNode(value, tree.offset)
        return NumberNode(_FUNCTIONS[tree.name](value), tree.offset)
    return replace(tree, arguments=tuple(_plain(a, known) for a in tree.arguments))
