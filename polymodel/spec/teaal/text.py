"""The short texts of a TeAAL spec: expressions, rank keys, partitioning operations, stamps, names of levels.

Every reader raises TextFault, with the offset of the fault in the text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import get_args

from polymodel.spec.expressions import Binary, Name, Token, TokenCursor, Tree, arithmetic, number_of
from polymodel.spec.faults import TextFault, close_to, suggestion
from polymodel.spec.numbers import affine_of
from polymodel.spec.teaal.records import (
    Directive,
    Expression,
    FactorProduct,
    Index,
    IndexedTensor,
    Kind,
    Stamp,
    Take,
)

EXAMPLE = "write e.g. Z[m, n] = A[k, m] * B[k, n]"
KINDS: tuple[Kind, ...] = get_args(Kind)
LED = ("uniform_occupancy", "follow")
# A partitioner of the user's: cuts of a leader, like those of uniform_occupancy.
_OWN = re.compile(r"\s*[A-Za-z_]\w*\s*\(\s*[A-Za-z_]\w*\s*\.\s*\w+\s*\)\s*", re.ASCII)
_OCCUPANCY = "write e.g. uniform_occupancy(A.32)"


@dataclass(frozen=True)
class Located:
    """A tensor of an expression, with the positions of the tensor and its indices in the text."""

    operand: IndexedTensor
    offset: int
    indices: tuple[int, ...]


@dataclass(frozen=True)
class ParsedExpression:
    """`tensors`: the output, then the operands in order of the text."""

    expression: Expression
    tensors: tuple[Located, ...]
    scalars: tuple[tuple[str, int], ...] = ()

    def renamed(self, output: str, operands: Mapping[str, str]) -> ParsedExpression:
        """With another name for the output, and other names for those of the operands that have one."""

        def operand(found: IndexedTensor) -> IndexedTensor:
            return replace(found, tensor=operands.get(found.tensor, found.tensor))

        def factors(term: FactorProduct | Take) -> FactorProduct | Take:
            if isinstance(term, Take):
                return replace(term, factors=tuple(operand(f) for f in term.factors))
            own = tuple(operand(f) if isinstance(f, IndexedTensor) else f for f in term.factors)
            return replace(term, factors=own)

        made = replace(self.expression.output, tensor=output)
        terms = tuple(factors(t) for t in self.expression.terms)
        others = (replace(t, operand=operand(t.operand)) for t in self.tensors[1:])
        return replace(
            self,
            expression=replace(self.expression, output=made, terms=terms),
            tensors=(replace(self.tensors[0], operand=made), *others),
        )


class _TeaalReader:
    def __init__(self, text: str, variables: Collection[str] | None = None) -> None:
        self.cursor = TokenCursor(text)
        self.variables = variables
        self.tensors: list[Located] = []
        self.scalars: list[tuple[str, int]] = []
        self.sums: list[tuple[str, int]] = []

    def name(self, what: str) -> Token:
        token = self.cursor.now
        if token.kind != "name":
            raise TextFault(f"expected {what}, found {self.cursor.shown()}", token.offset, EXAMPLE)
        return self.cursor.next()

    def operand(self, name: Token) -> IndexedTensor:
        """The indices of a tensor whose name has been read."""
        c = self.cursor
        c.need("[", f"after tensor {name.text}")
        found: list[Index] = []
        places: list[int] = []
        while not c.take("]"):
            if found:
                c.need(",", "between indices")
            places.append(c.now.offset)
            found.append(self.index())
        operand = IndexedTensor(name.text, tuple(found))
        self.tensors.append(Located(operand, name.offset, tuple(places)))
        return operand

    def index(self) -> Index:
        """Parse a sum of multiples of rank variables and a constant."""
        start = self.cursor.now.offset
        tree = arithmetic(self.cursor)
        self.cursor.missing_operator()
        if self.cursor.now.text == "[":
            where = self.cursor.now.offset
            raise TextFault("a `]` is missing before this tensor's indices", where, "close the bracket")
        strides: dict[str, str] = {}
        result = affine_of(self.without_strides(tree, strides), {})
        if not result.terms:
            message = "the index has no rank variable"
            raise TextFault(message, start, "write a rank variable", code="unknown-name")
        return Index(result.terms, tuple(strides.items()), result.constant)

    def without_strides(self, tree: Tree, strides: dict[str, str]) -> Tree:
        """The index without scalars that multiply a rank variable, which are noted by variable."""
        if not isinstance(tree, Binary) or self.variables is None:
            return tree
        sides = [s for s in (tree.left, tree.right) if isinstance(s, Name)]
        scalars = [s for s in sides if s.name not in self.variables]
        if tree.op == "*" and len(sides) == 2 and len(scalars) == 1:
            (variable,) = (s for s in sides if s is not scalars[0])
            if strides.setdefault(variable.name, scalars[0].name) != scalars[0].name:
                what = f"{variable.name} has two strides, {strides[variable.name]} and {scalars[0].name}"
                remedy = "write one multiple of each rank variable"
                raise TextFault(what, scalars[0].offset, remedy, code="inconsistent-values")
            return variable
        left, right = self.without_strides(tree.left, strides), self.without_strides(tree.right, strides)
        if (left, right) != (tree.left, tree.right) and tree.op != "+":
            raise TextFault("a stride stands in a sum alone", tree.offset, "write e.g. g*x + r")
        return replace(tree, left=left, right=right)

    def factor(self) -> IndexedTensor | str | float:
        token = self.cursor.now
        sign = -1 if self.cursor.take("-") else 1
        token = self.cursor.now
        if token.kind == "number":
            self.cursor.next()
            return float(sign * number_of(token))
        if sign < 0:
            raise TextFault("a minus sign stands in front of numbers only", token.offset, "write -1 * ...")
        name = self.name("a tensor, a scalar or a number")
        if name.text == "take" and self.cursor.now.text == "(":
            raise TextFault("take(...) is a term of its own", name.offset, "give it an Einsum of its own")
        if self.cursor.now.text == "[":
            return self.operand(name)
        if self.cursor.now.text == "(":
            message = f"unknown function {name.text}"
            raise TextFault(message, name.offset, "the only function is take(...)", code="unknown-name")
        self.scalars.append((name.text, name.offset))
        return name.text

    def terms(self) -> list[FactorProduct | Take]:
        """Parse terms that are added or subtracted; those within a `sum(K).(...)` are included."""
        result: list[FactorProduct | Take] = []
        while not result or self.cursor.now.text in ("+", "-"):
            sign = self.sign(result)
            summed = self.cursor.now.text == "sum" and self.cursor.ahead().text == "("
            result += [self.signed(t, sign) for t in (self.summed() if summed else [self.term()])]
        return result

    def sign(self, before: list[FactorProduct | Take]) -> Token | None:
        """The sign in front of a term that follows others; the first has none."""
        return self.cursor.next() if before else None

    def signed(self, term: FactorProduct | Take, sign: Token | None) -> FactorProduct | Take:
        if sign is None or sign.text == "+":
            return term
        if isinstance(term, Take):
            raise TextFault("take(...) is not subtracted", sign.offset, "give it an Einsum of its own")
        return replace(term, negative=not term.negative)

    def term(self) -> FactorProduct | Take:
        if self.cursor.now.text == "take" and self.cursor.ahead().text == "(":
            return self.taken()
        factors = [self.factor()]
        while self.cursor.take("*"):
            factors.append(self.factor())
        return FactorProduct(tuple(factors))

    def summed(self) -> list[FactorProduct | Take]:
        """`sum(K, M).(A[k, m] * B[k])`, in older files: the ranks are those that the output lacks.

        Several terms, `sum(J).(C[i, j] + T[i, j])`, are summed up one by one. A term without one of the ranks
        would count once per coordinate of it in the sum, and once on its own, so it is refused there.
        """
        c = self.cursor
        c.next()
        c.next()
        ranks: list[Token] = []
        while not c.take(")"):
            if ranks:
                c.need(",", "between the ranks of sum")
            ranks.append(self.name("a rank"))
        c.need(".", "after the ranks of sum")
        c.need("(", "around what is summed up")
        result = self.terms_of_sum([r.text for r in ranks])
        c.need(")", "after what is summed up")
        if not all(isinstance(term, FactorProduct) for term in result):
            raise TextFault("sum is of a product", ranks[0].offset if ranks else 0, "write take(...) alone")
        self.sums += [(r.text, r.offset) for r in ranks]
        return result

    def terms_of_sum(self, ranks: list[str]) -> list[FactorProduct | Take]:
        result: list[FactorProduct | Take] = []
        lacking: tuple[str, int] | None = None
        while not result or self.cursor.now.text in ("+", "-"):
            sign = self.sign(result)
            start, before = self.cursor.now.offset, len(self.tensors)
            result.append(self.signed(self.term(), sign))
            own = self.tensors[before:]
            has = {v.upper() for t in own for index in t.operand.indices for v, _ in index.terms}
            lacking = lacking or next(((r, start) for r in ranks if r not in has), None)
        if lacking is not None and len(result) > 1:
            what = f"a term of this sum over {lacking[0]} does not have rank {lacking[0]}"
            raise TextFault(what, lacking[1], "take the term out of the sum", code="invalid-einsum")
        return result

    def taken(self) -> Take:
        c = self.cursor
        start = c.next().offset
        c.next()
        factors: list[IndexedTensor | str | float] = []
        while c.now.kind == "name" or c.ahead().text == ",":
            factors.append(self.factor())
            c.need(",", "after a factor of take")
        token = c.now
        if token.kind != "number" or not token.text.isdigit():
            message = f"expected the number of the factor that take gives, found {c.shown()}"
            raise TextFault(message, token.offset, "write e.g. take(A[k, m], B[k, n], 1)")
        which = int(c.next().text)
        c.need(")", "after take's number")
        tensors = [i for i, f in enumerate(factors) if isinstance(f, IndexedTensor)]
        if not tensors:
            raise TextFault("take needs tensors", start, "write e.g. take(A[k, m], B[k, n], 1)")
        if which >= len(factors):
            message = f"take gives factor number {which}, but has {len(factors)}, counted from 0"
            raise TextFault(message, token.offset, f"write a number from 0 to {len(factors) - 1}")
        operands = tuple(f for f in factors if isinstance(f, IndexedTensor))
        scalars = tuple((i, f) for i, f in enumerate(factors) if not isinstance(f, IndexedTensor))
        return Take(operands, tensors.index(which) if which in tensors else -1, scalars)


def parse_expression(text: str, variables: Collection[str] | None = None) -> ParsedExpression:
    """`T[idx, ..] = term ((+ | -) term)*` with `term = factor (* factor)*` or `take(factor, .., n)`.

    `variables`: names of rank variables; any other name in an index is a scalar that is a stride.
    """
    reader = _TeaalReader(text, variables)
    c = reader.cursor
    output = reader.operand(reader.name("the output tensor"))
    c.need("=", "after the output")
    terms = reader.terms()
    if c.now.text == "/":
        raise TextFault("there is no division", c.now.offset, "multiply by a tensor that holds the inverse")
    c.finish()
    kept = {v.upper() for index in output.indices for v, _ in index.terms}
    for rank, offset in reader.sums:
        if rank in kept:
            what = f"rank {rank} is summed up, and the output has it"
            remedy = "sum over the ranks that the output does not have"
            raise TextFault(what, offset, remedy, code="invalid-einsum")
    expression = Expression(output, tuple(terms), " ".join(text.split()))
    return ParsedExpression(expression, tuple(reader.tensors), tuple(reader.scalars))


def parse_declared(text: str) -> tuple[str, tuple[str, ...]]:
    """`A[K, M]`, a tensor and its ranks in the list of older files."""
    reader = _TeaalReader(text)
    c = reader.cursor
    tensor = reader.name("a tensor").text
    c.need("[", f"after tensor {tensor}")
    ranks: list[str] = []
    while not c.take("]"):
        if ranks:
            c.need(",", "between ranks")
        ranks.append(reader.name("a rank").text)
    c.finish()
    return tensor, tuple(ranks)


def parse_ranks(text: str) -> tuple[str, ...]:
    """`K`, or `(M, K0)` for ranks that are flattened together."""
    reader = _TeaalReader(text)
    c = reader.cursor
    remedy = "write a rank, or (R, S) to flatten two"
    if not c.take("("):
        result = [_rank(reader, remedy)]
    else:
        result = [_rank(reader, remedy)]
        while c.take(","):
            result.append(_rank(reader, remedy))
        c.need(")", "after the ranks")
    c.finish()
    return tuple(result)


def _rank(reader: _TeaalReader, remedy: str) -> str:
    token = reader.cursor.now
    if token.kind != "name":
        raise TextFault(f"expected a rank, found {reader.cursor.shown()}", token.offset, remedy)
    return reader.cursor.next().text


def parse_directive(text: str) -> Directive:
    """One operation of a partitioning, e.g. `uniform_shape(32)` or `uniform_occupancy(A.K0)`."""
    reader = _TeaalReader(text)
    c = reader.cursor
    token = c.now
    names = ", ".join(f"{k}(...)" for k in KINDS)
    if token.kind != "name":
        raise TextFault(f"expected an operation, found {c.shown()}", token.offset, f"one of {names}")
    kind = next((k for k in KINDS if token.text in (k, _camel(k))), None)
    partitioner = "" if kind is not None or close_to(token.text, KINDS) else token.text
    if kind is None and not (partitioner and _OWN.fullmatch(text)):
        raise TextFault(
            f"unknown operation {token.text}",
            token.offset,
            suggestion(token.text, KINDS, "operations"),
            code="unknown-choice",
        )
    kind = kind or "uniform_occupancy"
    c.next()
    c.need("(", f"after {kind}")
    leader = ""
    size: int | str = 0
    if kind in LED:
        leader = _leader(reader, kind)
    if kind == "uniform_occupancy":
        size = _occupancy(reader, leader)
    elif kind not in LED and kind != "flatten":
        size = _size(reader, kind)
    if kind == "flatten" and c.now.text != ")":
        raise TextFault("flatten takes no argument", c.now.offset, "write flatten() and the ranks as the key")
    c.need(")", f"after the argument of {kind}")
    c.finish()
    return Directive(kind, size, leader, partitioner)


def _camel(kind: str) -> str:
    """The name of an operation in older files: uniformShape."""
    first, *others = kind.split("_")
    return first + "".join(word.title() for word in others)


def _leader(reader: _TeaalReader, kind: str) -> str:
    token = reader.cursor.now
    if token.kind != "name":
        remedy = _OCCUPANCY if kind == "uniform_occupancy" else "write e.g. follow(A)"
        raise TextFault(f"{kind} needs a leader, found {reader.cursor.shown()}", token.offset, remedy)
    return reader.cursor.next().text


def _occupancy(reader: _TeaalReader, leader: str) -> int | str:
    """Parse the size after the leader: the scanner reads `.32` as one number."""
    c = reader.cursor
    token = c.now
    if token.kind == "number" and token.text.startswith(".") and token.text[1:].isdigit():
        c.next()
        return _positive(int(token.text[1:]), token.offset + 1, "uniform_occupancy")
    if c.take(".") is None:
        message = f"uniform_occupancy({leader}) needs the size of the parts"
        raise TextFault(message, token.offset, _OCCUPANCY)
    return _size(reader, "uniform_occupancy")


def _size(reader: _TeaalReader, kind: str) -> int | str:
    c = reader.cursor
    token = c.now
    if c.take("-"):
        shown = c.next().text
        what = f"{kind}({'-'}{shown}): the size is below 1"
        raise TextFault(what, token.offset, "write a size of at least 1", code="not-positive-integer")
    if token.kind == "name":
        return c.next().text
    if token.kind != "number":
        message = f"{kind} needs a size, found {c.shown()}"
        raise TextFault(message, token.offset, f"write a number or the name of a symbol: {kind}(8)")
    value = number_of(c.next())
    if value != int(value):
        fault = f"{kind}({token.text}): the size is not a whole number"
        raise TextFault(fault, token.offset, "write a whole number", code="not-an-integer")
    return _positive(int(value), token.offset, kind)


def _positive(value: int, offset: int, kind: str) -> int:
    if value < 1:
        message = f"{kind}: the size {value} is below 1"
        raise TextFault(message, offset, "write a size of at least 1", code="not-positive-integer")
    if value >= 2**63:
        what = f"{kind}: the size {value} is above 64 bits"
        raise TextFault(what, offset, "write a smaller size", code="number-too-large")
    return value


def parse_stamp(text: str) -> Stamp:
    """`K0`, `K0.pos` or `K0.coord`."""
    reader = _TeaalReader(text)
    c = reader.cursor
    rank = _rank(reader, "write a rank of the loop order")
    style = "pos"
    if c.take("."):
        token = c.now
        if token.text not in ("pos", "coord"):
            message = f"{rank} cannot be stamped by {token.text or 'nothing'}"
            raise TextFault(message, token.offset, suggestion(token.text, ("pos", "coord"), "write one of"))
        style = c.next().text
    c.finish()
    return Stamp(rank, "coord" if style == "coord" else "pos")


def parse_level(text: str) -> tuple[str, int]:
    """`PE`, or `PE[0..31]` for 32 of them."""
    name, bracket, rest = text.partition("[")
    reader = _TeaalReader(name)
    token = reader.cursor.now
    if token.kind != "name":
        message = f"{text!r} is not a name of a level"
        raise TextFault(message, 0, "write e.g. PE or PE[0..31]", code="invalid-name")
    reader.cursor.next()
    reader.cursor.finish()
    if not bracket:
        return token.text, 1
    first, dots, last = rest.removesuffix("]").partition("..")
    digits = last.strip()
    if (
        not rest.endswith("]")
        or not dots
        or first.strip() != "0"
        or not digits.isdecimal()
        or len(digits) > 18
    ):
        raise TextFault(
            f"{text!r}: the instances are not a range from 0", len(name), "write e.g. PE[0..31] for 32"
        )
    return token.text, int(last) + 1
