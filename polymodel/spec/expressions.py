"""The expression languages of a spec: tokens and syntax trees that all share, and set expressions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Literal

from polymodel.arithmetic import OPERATORS
from polymodel.frozen import dataclass
from polymodel.spec.faults import TextFault, UnknownName, suggestion

# The tokens and the syntax tree that all expression languages of a spec share.
#
# No text is ever handed to Python's own evaluator: the grammar below is all there is. Length and
# depth are bounded, so that no expression can exhaust time or memory.

MAX_LENGTH = 2000
MAX_DEPTH = 40
# The tree of a chain a + b + c is as deep as it has operators, and all code that reads trees is recursive.
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
class NumberNode:
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


Tree = NumberNode | Name | Unary | Binary | Call


def tokens(text: str) -> tuple[Token, ...]:
    """The tokens of `text`, ending with one of kind `end`."""
    if len(text) > MAX_LENGTH:
        message = f"the expression has {len(text)} characters"
        raise TextFault(message, 0, f"keep it under {MAX_LENGTH}", code="too-large")
    result: list[Token] = []
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
            result.append(Token(match.lastgroup or "", match.group(), at))
        at = match.end()
    result.append(Token("end", "", len(text)))
    return tuple(result)


def number_of(token: Token) -> int | float:
    """The value of a number token; at most 40 digits."""
    text = token.text.replace("_", "")
    if len(text) > 40:
        message = "the number is too long"
        remedy = "write it with an exponent, e.g. 1e20"
        raise TextFault(message, token.offset, remedy, code="number-too-large")
    if text.isdigit():
        return int(text)
    value = float(text)
    if value == float("inf"):
        what = f"{token.text} is too large"
        raise TextFault(what, token.offset, "write inf if you mean no limit", code="number-too-large")
    return value


# Unit suffixes that users append to numbers; plain numbers are bits, joules, seconds, watts and hertz.
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


class TokenCursor:
    """A position in a list of tokens; the readers of all expression languages are built on it."""

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
            message = f"expected {text!r} {why}, found {self.shown()}"
            raise TextFault(message, self.now.offset, f"add {text!r}")
        return token

    def shown(self) -> str:
        return repr(self.now.text) if self.now.kind != "end" else "the end"

    def finish(self) -> None:
        """Fault unless all tokens have been read."""
        if self.now.kind == "end":
            return
        self.missing_operator()
        raise TextFault(f"unexpected {self.now.text!r}", self.now.offset, "remove it, or add an operator")

    def missing_operator(self) -> None:
        """Fault if a number immediately precedes a name, as in `2p`."""
        before = self.tokens[self.at - 1] if self.at else self.now
        if before.kind == "number" and self.now.kind == "name":
            number, name = before.text, self.now.text
            remedy = f"write {number}*{_UNITS.get(name, name)}"
            if name in _UNITS and self.tokens[self.at + 1].kind != "end":
                remedy += ", or put the unit at the end of the expression"
            raise TextFault(f"an operator is missing in front of {name!r}", self.now.offset, remedy)

    def inner(self) -> Tree:
        """Read what may be in parentheses, or an argument."""
        return arithmetic(self)

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            message = "the expression is nested too deeply"
            raise TextFault(message, self.now.offset, "split it up", code="too-large")

    def shallower(self) -> None:
        self.depth -= 1

    def operator(self, *texts: str) -> Token | None:
        """Like `take`, for an operator that may be repeated; all operators of an expression are counted
        against a limit."""
        token = self.take(*texts)
        if token is not None:
            self.operators += 1
            if self.operators > MAX_OPERATORS:
                message = f"the expression has more than {MAX_OPERATORS} operators"
                raise TextFault(message, token.offset, "split it up", code="too-large")
        return token


def arithmetic(cursor: TokenCursor) -> Tree:
    """Read `+ - * / // % mod **`, parentheses, names and calls with Python's precedence."""
    left = _term(cursor)
    while token := cursor.operator("+", "-"):
        left = Binary(token.text, left, _term(cursor), token.offset)
    return left


def _term(cursor: TokenCursor) -> Tree:
    left = _factor(cursor)
    while token := cursor.operator("*", "/", "//", "%", "mod"):
        op = "%" if token.text == "mod" else token.text
        left = Binary(op, left, _factor(cursor), token.offset)
    return left


def _factor(cursor: TokenCursor) -> Tree:
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


def _atom(cursor: TokenCursor) -> Tree:
    token = cursor.now
    if token.kind == "number":
        cursor.next()
        return NumberNode(number_of(token), token.offset)
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
        f"expected a number, a name or '(', found {cursor.shown()}", token.offset, "complete the expression"
    )


def _arguments(cursor: TokenCursor) -> tuple[Tree, ...]:
    result = [cursor.inner()]
    while cursor.take(","):
        result.append(cursor.inner())
    cursor.need(")", "after the arguments")
    return tuple(result)


_CONDITIONS = ("if", "else", "and", "or", "not", "<", "<=", ">", ">=", "==", "!=")


def parse_arithmetic(text: str) -> Tree:
    """The syntax tree of one arithmetic expression. Raises TextFault."""
    cursor = TokenCursor(text)
    tree = arithmetic(cursor)
    if cursor.now.text in _CONDITIONS:
        remedy = "let a template decide: {{ 16 if W > 8 else 4 }}, with a value for W (--var W=9)"
        raise TextFault(f"{cursor.now.text!r}: there are no conditions here", cursor.now.offset, remedy)
    cursor.finish()
    return tree


def parts_of(tree: Tree) -> tuple[Tree, ...]:
    """The operands of a sign, an operator or a function, left to right."""
    if isinstance(tree, Unary):
        return (tree.operand,)
    if isinstance(tree, Binary):
        return (tree.left, tree.right)
    return tree.arguments if isinstance(tree, Call) else ()


def names_in(tree: Tree) -> tuple[Name, ...]:
    """Every name in the tree, left to right."""
    return (tree,) if isinstance(tree, Name) else tuple(n for p in parts_of(tree) for n in names_in(p))


def operators_in(tree: Tree, costs: Mapping[str, str] | None = None) -> Counter[str]:
    """The number of occurrences of each operator in a formula; parts that are made of numbers alone cost
    nothing. `costs`: for functions outside the table, the operators that each costs as, separated by spaces.
    """
    result: Counter[str] = Counter()
    for part in parts_of(tree) if names_in(tree) else ():
        result += operators_in(part, costs)
    if not names_in(tree) or isinstance(tree, (Name, NumberNode)):
        return result
    if isinstance(tree, Call):
        word, times = tree.name, max(len(tree.arguments) - 1, 1)
    else:
        word, times = ("neg" if isinstance(tree, Unary) else tree.op), 1
    if isinstance(tree, Unary) and tree.op != "-":
        return result
    word = "pow" if word == "**" else word
    known = (costs or {}).get(word, "").split() or [OPERATORS[word].name if word in OPERATORS else word]
    return result + Counter({name: n * times for name, n in Counter(known).items()})


def operators_named(text: str, operands: int) -> tuple[tuple[str, int], ...]:
    """The operators of an operation with so many operands, given by name or as a formula; sorted, with their
    multiplicities."""
    if text in OPERATORS:
        return ((OPERATORS[text].name, operands - 1 if OPERATORS[text].arity == 2 else 1),)
    try:
        return tuple(sorted(operators_in(parse_arithmetic(text)).items()))
    except TextFault:
        return ((text, 1),)


# Set expressions over the tensors (or rank variables) of one Einsum.
#
# `~` binds tightest, then `-`, then `&`, then `|`. The universe is the Einsum's own tensors: `All`
# and `~` refer to them, a tensor of another Einsum is the empty set, an unknown name is a fault.

KEYWORDS = ("All", "Tensors", "Inputs", "Outputs", "Intermediates", "Shared", "Persistent", "Nothing")
# Set names that packaged architectures use, and that a workload assigns to its tensors.
_PARTS = {"input": "Inputs", "weight": "Inputs", "output": "Outputs"}
Kind = Literal["tensors", "rank_variables"]


@dataclass(frozen=True)
class SetName:
    name: str
    offset: int


@dataclass(frozen=True)
class Complement:
    operand: SetTree
    offset: int


@dataclass(frozen=True)
class SetOperation:
    op: str
    left: SetTree
    right: SetTree
    offset: int


@dataclass(frozen=True)
class Attribute:
    base: SetTree
    name: str
    offset: int


SetTree = SetName | Complement | SetOperation | Attribute


@dataclass(frozen=True)
class NamedSet:
    """A set of tensors or of rank variables; `both` marks the empty set, which is either."""

    kind: Kind | Literal["either"]
    members: frozenset[str]


@dataclass(frozen=True)
class SetScope:
    """The meaning of names in one Einsum.

    `tensors`, `rank_variables`: the universes, in order. `named`: Inputs, Outputs, ... by name. `known`:
    every tensor of the workload. `variables_of`: the rank variables of each tensor here. `rename`: the set of
    a rename, None if there is no such rename; it may raise TextFault. `component`: the set that the named
    component keeps, None if there is no such component.
    """

    einsum: str
    tensors: tuple[str, ...]
    rank_variables: tuple[str, ...]
    named: Mapping[str, frozenset[str]]
    known: frozenset[str]
    variables_of: Mapping[str, frozenset[str]]
    rename: Callable[[str], NamedSet | None] = field(default=lambda name: None)
    rename_names: tuple[str, ...] = ()
    component: Callable[[str], frozenset[str] | None] = field(default=lambda name: None)
    component_names: tuple[str, ...] = ()
    known_variables: frozenset[str] = frozenset()


def parse_set(text: str, *, key: bool = False) -> SetTree:
    """The syntax tree of a set expression. `key` allows the lone word Other. Raises TextFault."""
    cursor = TokenCursor(text)
    if cursor.now.kind == "end":
        raise TextFault("the set expression is empty", 0, "write a tensor, All or Nothing")
    tree = _union(cursor)
    _refuse_words(cursor)
    cursor.finish()
    lone = isinstance(tree, SetName) and tree.name == "Other"
    for name in set_names(tree):
        if name.name == "Other" and not (lone and key):
            raise TextFault(
                "Other stands alone in dictionary keys only", name.offset, "write ~(...) for all the rest"
            )
    return tree


def set_names(tree: SetTree) -> tuple[SetName, ...]:
    """Names in the tree, left to right; a name before `.tensors` is a component."""
    if isinstance(tree, SetName):
        return (tree,)
    if isinstance(tree, Complement):
        return set_names(tree.operand)
    if isinstance(tree, SetOperation):
        return set_names(tree.left) + set_names(tree.right)
    return set_names(tree.base)


def _union(cursor: TokenCursor) -> SetTree:
    left = _intersection(cursor)
    while token := cursor.operator("|"):
        left = SetOperation("|", left, _intersection(cursor), token.offset)
    return left


def _intersection(cursor: TokenCursor) -> SetTree:
    left = _difference(cursor)
    while token := cursor.operator("&"):
        left = SetOperation("&", left, _difference(cursor), token.offset)
    return left


def _difference(cursor: TokenCursor) -> SetTree:
    left = _operand(cursor)
    while token := cursor.operator("-"):
        left = SetOperation("-", left, _operand(cursor), token.offset)
    return left


def _operand(cursor: TokenCursor) -> SetTree:
    cursor.deeper()
    token = cursor.now
    if cursor.take("~"):
        tree: SetTree = Complement(_operand(cursor), token.offset)
    else:
        tree = _primary(cursor)
        while dot := cursor.operator("."):
            word = cursor.next()
            if word.text not in ("tensors", "rank_variables"):
                raise TextFault(
                    f"unknown attribute {word.text!r}",
                    word.offset,
                    suggestion(word.text, ("tensors", "rank_variables"), "attributes"),
                    code="unknown-name",
                )
            tree = Attribute(tree, word.text, dot.offset)
    cursor.shallower()
    return tree


def _primary(cursor: TokenCursor) -> SetTree:
    token = cursor.now
    if cursor.take("("):
        inner = _union(cursor)
        cursor.need(")", "to close the parenthesis")
        return inner
    _refuse_words(cursor)
    if token.kind != "name":
        raise TextFault(f"expected a name, found {cursor.shown()}", token.offset, "operators are ~ & | -")
    cursor.next()
    if cursor.now.text == "(":
        _empty_call(cursor, token.text)
    return SetName(token.text, token.offset)


def _refuse_words(cursor: TokenCursor) -> None:
    sign = {"and": "&", "or": "|", "not": "~"}.get(cursor.now.text)
    if sign:
        raise TextFault(f"`{cursor.now.text}` is not a set operator", cursor.now.offset, f"write {sign}")


def _empty_call(cursor: TokenCursor, name: str) -> None:
    at = cursor.next().offset
    if name not in KEYWORDS or not cursor.take(")"):
        remedy = "only the predefined sets may be called, as Outputs()"
        raise TextFault(f"{name}(...) is not a set", at, remedy)


def evaluate_set(tree: SetTree, scope: SetScope) -> NamedSet:
    """The set for one Einsum. Raises TextFault for unknown names and mixed kinds."""
    if isinstance(tree, SetName):
        return _lookup(tree, scope)
    if isinstance(tree, Attribute):
        return _attribute(tree, scope)
    if isinstance(tree, Complement):
        inner = evaluate_set(tree.operand, scope)
        universe = scope.rank_variables if inner.kind == "rank_variables" else scope.tensors
        kind: Kind = "rank_variables" if inner.kind == "rank_variables" else "tensors"
        return NamedSet(kind, frozenset(universe) - inner.members)
    left, right = _both(tree.left, tree.right, scope)
    kinds = {left.kind, right.kind} - {"either"}
    if len(kinds) > 1:
        message = "tensors and rank variables are mixed"
        raise TextFault(message, tree.offset, "append .rank_variables", code="wrong-type")
    joined = left.kind if right.kind == "either" else right.kind
    if tree.op == "|":
        return NamedSet(joined, left.members | right.members)
    if tree.op == "&":
        return NamedSet(joined, left.members & right.members)
    return NamedSet(joined, left.members - right.members)


def _both(one: SetTree, other: SetTree, scope: SetScope) -> tuple[NamedSet, NamedSet]:
    """The values of both operands; unknown names in either are reported together."""
    try:
        left = evaluate_set(one, scope)
    except UnknownName as first:
        try:
            evaluate_set(other, scope)
        except UnknownName as second:
            messages, remedies = (first.message, second.message), (first.remedy, second.remedy)
            told = (" and ".join(dict.fromkeys(messages)), "; ".join(dict.fromkeys(remedies)))
            raise UnknownName(told[0], first.offset, told[1]) from second
        raise
    return left, evaluate_set(other, scope)


def tensor_set(tree: SetTree, scope: SetScope) -> frozenset[str]:
    """Like `evaluate_set`, but rank variables are a fault."""
    result = evaluate_set(tree, scope)
    if result.kind == "rank_variables":
        message = "the expression gives rank variables, not tensors"
        raise TextFault(message, 0, "remove .rank_variables", code="wrong-type")
    return result.members


def _lookup(tree: SetName, scope: SetScope) -> NamedSet:
    name = tree.name
    if name == "Nothing":
        return NamedSet("either", frozenset())
    if name in scope.named:
        return NamedSet("tensors", scope.named[name])
    try:
        renamed = scope.rename(name)
    except TextFault as fault:
        raise type(fault)(fault.message, tree.offset, fault.remedy) from fault
    if renamed is not None:
        return renamed
    if name in scope.known:
        return NamedSet("tensors", frozenset({name}) & frozenset(scope.tensors))
    if name in scope.rank_variables or name in scope.known_variables:
        return NamedSet("rank_variables", frozenset({name}) & frozenset(scope.rank_variables))
    if name in scope.component_names:
        raise TextFault(f"{name} is a component", tree.offset, f"write {name}.tensors", code="wrong-type")
    words = [*sorted(scope.known), *scope.named, "Nothing", *scope.rename_names]
    remedy = suggestion(name, words, "names")
    if name in _PARTS:
        tensors = sorted(scope.named.get(_PARTS[name], ()))
        one = tensors[-1 if name == "weight" else 0] if tensors else "A"
        remedy = f"name a tensor so in the Einsum: `renames: {{{name}: {one}}}` (docs/howto/workload.md)"
    raise UnknownName(f"unknown name {name}", tree.offset, remedy)


def _attribute(tree: Attribute, scope: SetScope) -> NamedSet:
    if tree.name == "tensors":
        if isinstance(tree.base, SetName):
            kept = scope.component(tree.base.name)
            if kept is not None:
                return NamedSet("tensors", kept)
            known = scope.component_names
            raise TextFault(
                f"unknown component {tree.base.name}",
                tree.base.offset,
                suggestion(tree.base.name, known, "components") if known else "components are not known here",
                code="unknown-name",
            )
        raise TextFault(".tensors follows a component's name", tree.offset, "write e.g. ~DRAM.tensors")
    tensors = evaluate_set(tree.base, scope)
    if tensors.kind == "rank_variables":
        raise TextFault(".rank_variables follows tensors", tree.offset, "remove one .rank_variables")
    members = [scope.variables_of.get(t, frozenset()) for t in tensors.members]
    return NamedSet("rank_variables", frozenset().union(*members))
