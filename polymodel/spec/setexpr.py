"""Set expressions over the tensors (or rank variables) of one Einsum.

`~` binds tightest, then `-`, then `&`, then `|`. The universe is the Einsum's own tensors: `All`
and `~` refer to them, a tensor of another Einsum is the empty set, an unknown name is a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from polymodel.spec.faults import TextFault, UnknownName, suggestion
from polymodel.spec.scan import Cursor

KEYWORDS = ("All", "Tensors", "Inputs", "Outputs", "Intermediates", "Shared", "Persistent", "Nothing")
# Names that packaged machines use, and that a workload gives to its tensors.
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
    """A set of tensors or of rank variables; `both` marks the empty set that is either."""

    kind: Kind | Literal["either"]
    members: frozenset[str]


@dataclass(frozen=True)
class SetScope:
    """What names mean for one Einsum.

    `tensors`, `rank_variables`: the universes, in order. `named`: Inputs, Outputs, ... by name.
    `known`: every tensor of the workload. `variables_of`: rank variables of each tensor here.
    `rename`: the set a rename stands for, None if there is no such rename; it may raise TextFault.
    `component`: what the named component keeps, None if there is no such component.
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
    cursor = Cursor(text)
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
    """Names in the tree, left to right; those in front of `.tensors` are components."""
    if isinstance(tree, SetName):
        return (tree,)
    if isinstance(tree, Complement):
        return set_names(tree.operand)
    if isinstance(tree, SetOperation):
        return set_names(tree.left) + set_names(tree.right)
    return set_names(tree.base)


def _union(cursor: Cursor) -> SetTree:
    left = _intersection(cursor)
    while token := cursor.operator("|"):
        left = SetOperation("|", left, _intersection(cursor), token.offset)
    return left


def _intersection(cursor: Cursor) -> SetTree:
    left = _difference(cursor)
    while token := cursor.operator("&"):
        left = SetOperation("&", left, _difference(cursor), token.offset)
    return left


def _difference(cursor: Cursor) -> SetTree:
    left = _operand(cursor)
    while token := cursor.operator("-"):
        left = SetOperation("-", left, _operand(cursor), token.offset)
    return left


def _operand(cursor: Cursor) -> SetTree:
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
                )
            tree = Attribute(tree, word.text, dot.offset)
    cursor.shallower()
    return tree


def _primary(cursor: Cursor) -> SetTree:
    token = cursor.now
    if cursor.take("("):
        inner = _union(cursor)
        cursor.need(")", "to close the parenthesis")
        return inner
    _refuse_words(cursor)
    if token.kind != "name":
        raise TextFault(f"expected a name, found {cursor.found()}", token.offset, "operators are ~ & | -")
    cursor.next()
    if cursor.now.text == "(":
        _empty_call(cursor, token.text)
    return SetName(token.text, token.offset)


def _refuse_words(cursor: Cursor) -> None:
    sign = {"and": "&", "or": "|", "not": "~"}.get(cursor.now.text)
    if sign:
        raise TextFault(f"`{cursor.now.text}` is no set operator", cursor.now.offset, f"write {sign}")


def _empty_call(cursor: Cursor, name: str) -> None:
    at = cursor.next().offset
    if name not in KEYWORDS or not cursor.take(")"):
        raise TextFault(f"{name}(...) is no set", at, "only the predefined sets may be called, as Outputs()")


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
        raise TextFault("tensors and rank variables are mixed", tree.offset, "append .rank_variables")
    joined = left.kind if right.kind == "either" else right.kind
    if tree.op == "|":
        return NamedSet(joined, left.members | right.members)
    if tree.op == "&":
        return NamedSet(joined, left.members & right.members)
    return NamedSet(joined, left.members - right.members)


def _both(one: SetTree, other: SetTree, scope: SetScope) -> tuple[NamedSet, NamedSet]:
    """The two sides of an operator; unknown names of both are told at once."""
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
    found = evaluate_set(tree, scope)
    if found.kind == "rank_variables":
        raise TextFault("the expression gives rank variables, not tensors", 0, "remove .rank_variables")
    return found.members


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
        raise TextFault(f"{name} is a component", tree.offset, f"write {name}.tensors")
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
            )
        raise TextFault(".tensors follows a component's name", tree.offset, "write e.g. ~DRAM.tensors")
    tensors = evaluate_set(tree.base, scope)
    if tensors.kind == "rank_variables":
        raise TextFault(".rank_variables follows tensors", tree.offset, "remove one .rank_variables")
    members = [scope.variables_of.get(t, frozenset()) for t in tensors.members]
    return NamedSet("rank_variables", frozenset().union(*members))
