"""The tokens and the syntax tree that all expression languages of a spec share.

No text is ever handed to Python's own evaluator: the grammar below is all there is. Length and
depth are bounded, so that no expression can exhaust time or memory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from polymodel.spec.faults import TextFault

MAX_LENGTH = 2000
MAX_DEPTH = 40
# A chain a + b + c is as deep a tree as it has operators, and whatever reads the tree calls itself.
MAX_OPERATORS = 300

_TOKEN = re.compile(
    r"(?P<space>[ \t\r\n]+)"
    r"|(?P<number>(?:[0-9][0-9_]*\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<op>\*\*|//|<=|>=|==|!=|&&|\|\||[-+*/%<>=~&|()\[\],.:{}])",
    re.ASCII,
)


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    offset: int


@dataclass(frozen=True)
class Number:
    value: int | float
    offset: int


@dataclass(frozen=True)
class Name:
    name: str
    offset: int


@dataclass(frozen=True)
class Unary:
    op: str
    operand: Tree
    offset: int


@dataclass(frozen=True)
class Binary:
    op: str
    left: Tree
    right: Tree
    offset: int


@dataclass(frozen=True)
class Call:
    name: str
    arguments: tuple[Tree, ...]
    offset: int


Tree = Number | Name | Unary | Binary | Call


def tokens(text: str) -> tuple[Token, ...]:
    """The tokens of `text`, ending with one of kind `end`."""
    if len(text) > MAX_LENGTH:
        raise TextFault(f"the expression has {len(text)} characters", 0, f"keep it under {MAX_LENGTH}")
    found: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise TextFault(
                f"unexpected character {text[at]!r}",
                at,
                "expressions are made of numbers, names, operators and parentheses only",
            )
        if match.lastgroup != "space":
            found.append(Token(match.lastgroup or "", match.group(), at))
        at = match.end()
    found.append(Token("end", "", len(text)))
    return tuple(found)


def number_of(token: Token) -> int | float:
    """The value of a number token; at most 40 digits."""
    text = token.text.replace("_", "")
    if len(text) > 40:
        raise TextFault("the number is too long", token.offset, "write it with an exponent, e.g. 1e20")
    if text.isdigit():
        return int(text)
    value = float(text)
    if value == float("inf"):
        raise TextFault(f"{token.text} is too large", token.offset, "write inf if you mean no limit")
    return value


# What people write behind a number; numbers here are bits, joules, seconds, watts and hertz.
_UNITS = {
    **{f"{p}B": f"8*{1024**n} (bits)" for n, p in enumerate("KMGT", 1)},
    **{f"{p}iB": f"8*{1024**n} (bits)" for n, p in enumerate("KMGT", 1)},
    **{f"{p}b": f"1e{3 * n} (bits)" for n, p in enumerate("kMGT", 1)},
    **{f"{p}Hz": f"1e{3 * n} (hertz)" for n, p in enumerate("kMGT", 1)},
    **{f"{p}J": f"1e-{3 * n} (joules)" for n, p in enumerate("munpf", 1)},
    **{f"{p}s": f"1e-{3 * n} (seconds)" for n, p in enumerate("munpf", 1)},
    **{f"{p}W": f"1e-{3 * n} (watts)" for n, p in enumerate("munpf", 1)},
    "kB": "8*1024 (bits)", "B": "8 (bits)", "bytes": "8 (bits)", "bit": "1 (bits)", "bits": "1 (bits)",
}  # fmt: skip


class Cursor:
    """Walks over tokens; every reader of an expression language is built on it."""

    def __init__(self, text: str) -> None:
        self.tokens = tokens(text)
        self.at = 0
        self.depth = 0
        self.operators = 0

    @property
    def now(self) -> Token:
        return self.tokens[self.at]

    def ahead(self, steps: int = 1) -> Token:
        return self.tokens[min(self.at + steps, len(self.tokens) - 1)]

    def next(self) -> Token:
        token = self.now
        if token.kind != "end":
            self.at += 1
        return token

    def take(self, *texts: str) -> Token | None:
        """The current token if it is one of `texts` (not a number), else None."""
        if self.now.kind in ("op", "name") and self.now.text in texts:
            return self.next()
        return None

    def need(self, text: str, why: str) -> Token:
        token = self.take(text)
        if token is None:
            self.missing_operator()
            message = f"expected {text!r} {why}, found {self.found()}"
            raise TextFault(message, self.now.offset, f"add {text!r}")
        return token

    def found(self) -> str:
        return repr(self.now.text) if self.now.kind != "end" else "the end"

    def finish(self) -> None:
        """Fault unless everything has been read."""
        if self.now.kind == "end":
            return
        self.missing_operator()
        raise TextFault(f"unexpected {self.now.text!r}", self.now.offset, "remove it, or add an operator")

    def missing_operator(self) -> None:
        """Fault if a number stands right in front of a name, as in `2p`."""
        before = self.tokens[self.at - 1] if self.at else self.now
        if before.kind == "number" and self.now.kind == "name":
            number, name = before.text, self.now.text
            raise TextFault(
                f"an operator is missing in front of {name!r}",
                self.now.offset,
                f"write {number}*{_UNITS[name]}" if name in _UNITS else f"write {number}*{name}",
            )

    def inner(self) -> Tree:
        """What may stand in parentheses, or as an argument."""
        return arithmetic(self)

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TextFault("the expression is nested too deeply", self.now.offset, "split it up")

    def shallower(self) -> None:
        self.depth -= 1

    def operator(self, *texts: str) -> Token | None:
        """Like `take`, for an operator that may be repeated: all of an expression are counted."""
        token = self.take(*texts)
        if token is not None:
            self.operators += 1
            if self.operators > MAX_OPERATORS:
                message = f"the expression has more than {MAX_OPERATORS} operators"
                raise TextFault(message, token.offset, "split it up")
        return token


def arithmetic(cursor: Cursor) -> Tree:
    """Read `+ - * / // % mod **`, parentheses, names and calls with Python's precedence."""
    left = _term(cursor)
    while token := cursor.operator("+", "-"):
        left = Binary(token.text, left, _term(cursor), token.offset)
    return left


def _term(cursor: Cursor) -> Tree:
    left = _factor(cursor)
    while token := cursor.operator("*", "/", "//", "%", "mod"):
        op = "%" if token.text == "mod" else token.text
        left = Binary(op, left, _factor(cursor), token.offset)
    return left


def _factor(cursor: Cursor) -> Tree:
    cursor.deeper()
    token = cursor.take("-", "+")
    if token is not None:
        tree: Tree = Unary(token.text, _factor(cursor), token.offset)
    else:
        tree = _atom(cursor)
        power = cursor.take("**")
        if power is not None:
            tree = Binary("**", tree, _factor(cursor), power.offset)
    cursor.shallower()
    return tree


_RESERVED = ("and", "or", "not", "mod", "exists", "if", "else", "for", "lambda", "in", "is")


def _atom(cursor: Cursor) -> Tree:
    token = cursor.now
    if token.kind == "number":
        cursor.next()
        return Number(number_of(token), token.offset)
    if token.kind == "name" and token.text not in _RESERVED:
        cursor.next()
        if cursor.take("("):
            return Call(token.text, _arguments(cursor), token.offset)
        if cursor.now.text == ".":
            raise TextFault(f"{token.text}. is not a number", cursor.now.offset, "use names without dots")
        return Name(token.text, token.offset)
    if cursor.take("("):
        inner = cursor.inner()
        cursor.need(")", "to close the parenthesis")
        return inner
    raise TextFault(
        f"expected a number, a name or '(', found {cursor.found()}", token.offset, "complete the expression"
    )


def _arguments(cursor: Cursor) -> tuple[Tree, ...]:
    found = [cursor.inner()]
    while cursor.take(","):
        found.append(cursor.inner())
    cursor.need(")", "after the arguments")
    return tuple(found)


_CONDITIONS = ("if", "else", "and", "or", "not", "<", "<=", ">", ">=", "==", "!=")


def parse_arithmetic(text: str) -> Tree:
    """The syntax tree of one arithmetic expression. Raises TextFault."""
    cursor = Cursor(text)
    tree = arithmetic(cursor)
    if cursor.now.text in _CONDITIONS:
        remedy = "let a template decide: {{ 16 if W > 8 else 4 }}, with a value for W (--var W=9)"
        raise TextFault(f"{cursor.now.text!r}: there are no conditions here", cursor.now.offset, remedy)
    cursor.finish()
    return tree


def names_in(tree: Tree) -> tuple[Name, ...]:
    """Every name in the tree, left to right."""
    if isinstance(tree, Name):
        return (tree,)
    if isinstance(tree, Unary):
        return names_in(tree.operand)
    if isinstance(tree, Binary):
        return names_in(tree.left) + names_in(tree.right)
    if isinstance(tree, Call):
        return tuple(n for a in tree.arguments for n in names_in(a))
    return ()
