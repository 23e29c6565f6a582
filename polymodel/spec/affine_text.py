"""Affine expressions over rank variables, and constraints in ISL's notation."""

from __future__ import annotations

from collections.abc import Mapping

from polymodel.affine import Affine, Constraint
from polymodel.spec.faults import TextFault
from polymodel.spec.numbers import Value, evaluate_number
from polymodel.spec.scan import Binary, Call, Cursor, Name, Number, Tree, Unary, arithmetic, parse_arithmetic

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
    if isinstance(tree, Number):
        return Affine((), _whole(tree.value, tree.offset))
    if isinstance(tree, Name):
        value = symbols.get(tree.name)
        if tree.name in symbols and value is not None:
            return Affine((), _whole(value, tree.offset))
        return Affine.variable(tree.name)
    if isinstance(tree, Unary):
        return affine_of(tree.operand, symbols).scaled(-1 if tree.op == "-" else 1)
    if isinstance(tree, Call):
        raise TextFault(
            f"{tree.name}(...) is not affine", tree.offset, "use sums of multiples of rank variables"
        )
    return _binary(tree, affine_of(tree.left, symbols), affine_of(tree.right, symbols))


def _whole(value: Value, offset: int) -> int:
    if isinstance(value, float) and not value.is_integer():
        raise TextFault(f"{value} is not a whole number", offset, "coefficients are integers")
    if abs(value) > 2**62:
        raise TextFault(f"{value} is too large", offset, "coefficients must stay below 2**62")
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
    raise TextFault(
        f"{what} is not affine", tree.offset, "use sums of integer multiples of rank variables, e.g. 2*p + r"
    )


def parse_constraints(text: str, symbols: Symbols | None = None) -> tuple[Constraint, ...]:
    """`0 <= m < 128 and m mod 2 = 0` as Constraints. Raises TextFault."""
    cursor = Cursor(text)
    found = list(_chain(cursor, symbols or {}))
    while True:
        if cursor.take("and", "&&"):
            found.extend(_chain(cursor, symbols or {}))
            continue
        _refuse_connective(cursor)
        cursor.finish()
        return tuple(found)


def _refuse_connective(cursor: Cursor) -> None:
    word = "or" if cursor.now.text == "||" else cursor.now.text
    if word in _REFUSED:
        raise TextFault(f"`{cursor.now.text}` is not supported", cursor.now.offset, _REFUSED[word])


def _chain(cursor: Cursor, symbols: Symbols) -> tuple[Constraint, ...]:
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


AccessText = tuple[str, tuple[tuple[str, str], ...], bool]


class EinsumText:
    """A parsed one-line Einsum: accesses as (tensor, ((rank, expression text), ...), output)."""

    def __init__(
        self,
        accesses: tuple[AccessText, ...],
        joined: str,
        accumulates: bool = False,
    ) -> None:
        self.accesses = accesses
        self.joined = joined
        self.accumulates = accumulates


# Signs of operations that one-line Einsums do not know -> their names.
_OPERATIONS = {"-": "sub", "/": "div", "//": "div", "%": "mod", "**": "pow", "|": "or", "&": "and"}
_LONG = (
    "write the long form, {{name: ..., tensor_accesses: [...], operations: {{map: {}}}}} "
    "(docs/howto/workload.md)"
)


def parse_einsum(text: str) -> EinsumText:
    """`T1[m, n1] = T0[m, n0] * W0[n0, n1]`, ranks named with `I[H=p+r]`, `+=` adds to what is there.

    Raises TextFault.
    """
    cursor = Cursor(text)
    output = _access(cursor, text)
    if cursor.now.text == "==":
        raise TextFault("`==` compares; an Einsum is made with `=`", cursor.now.offset, "write one `=`")
    accumulates = cursor.now.text == "+" and cursor.ahead().text == "="
    if accumulates:
        cursor.next()
    cursor.need("=", "after the output")
    inputs = [_access(cursor, text)]
    joined = ""
    while token := cursor.take("*", "+"):
        if joined and token.text != joined:
            raise TextFault("`*` and `+` are mixed", token.offset, "write one Einsum for each")
        joined = token.text
        inputs.append(_access(cursor, text))
    if cursor.now.text in _OPERATIONS:
        sign = cursor.now.text
        what = f"`{sign}` is not an operator of one-line Einsums, which know `*` and `+`"
        raise TextFault(what, cursor.now.offset, _LONG.format(_OPERATIONS[sign]))
    cursor.finish()
    return EinsumText(((*output, True), *((*i, False) for i in inputs)), joined, accumulates)


def _access(cursor: Cursor, text: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    token = cursor.now
    if token.kind != "name":
        raise TextFault(
            f"expected a tensor, found {cursor.found()}",
            token.offset,
            "write e.g. Y[m, n] = A[m, k] * B[k, n]",
        )
    cursor.next()
    if cursor.now.text == "(" and cursor.ahead(2).text == "[":
        what = f"{token.text}(...): one-line Einsums have no functions"
        raise TextFault(what, token.offset, _LONG.format(token.text))
    if cursor.now.text == "(":
        what = f"{token.text}(...) gives a tensor a name for its part, as AccelForge's files do"
        remedy = f"write {token.text}[...]; names go into `renames:` (see docs/howto/workload.md)"
        raise TextFault(what, cursor.now.offset, remedy)
    cursor.need("[", f"after tensor {token.text}")
    ranks: list[tuple[str, str]] = []
    while not cursor.take("]"):
        if ranks:
            cursor.need(",", "between ranks")
        ranks.append(_rank(cursor, text))
    return token.text, tuple(ranks)


def _rank(cursor: Cursor, text: str) -> tuple[str, str]:
    named = cursor.now.kind == "name" and cursor.ahead().text == "="
    rank = ""
    if named:
        rank = cursor.next().text
        cursor.next()
    start = cursor.now.offset
    tree = arithmetic(cursor)
    if cursor.now.text == "[":
        raise TextFault("a `]` is missing before this tensor's ranks", cursor.now.offset, "close the bracket")
    affine_of(tree, {})
    last = cursor.tokens[cursor.at - 1]
    written = text[start : last.offset + len(last.text)]
    if not rank:
        if not isinstance(tree, Name):
            raise TextFault(f"the rank that {written} indexes has no name", start, f"name it: [H={written}]")
        rank = tree.name.upper()
    return rank, written
