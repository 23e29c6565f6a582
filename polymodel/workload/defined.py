"""Operators that a workload defines: each is a formula of its operands, substituted for the operator's name.

The sparsity rules, the cost and the executable form of such an operator follow from its formula, as they do
for any formula; a spec never brings code. A definition may use those before it. An operator defined without a
formula is opaque: it is counted under its own name and cannot be executed.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from polymodel.arithmetic import OPERATORS, is_priced
from polymodel.spec.expressions import (
    Binary,
    Call,
    Name,
    NumberNode,
    Tree,
    Unary,
    names_in,
    operators_in,
    parse_arithmetic,
    parts_of,
)
from polymodel.spec.faults import Faults, Path, TextFault, suggestion
from polymodel.spec.numbers import Value, evaluate_number
from polymodel.spec.section_schemas import OperatorSpec, Workload

Operations = tuple[tuple[str, str | None], ...]
_OPERAND = re.compile(r"_\d+")
_WORD = re.compile(r"[A-Za-z_]\w*")
MOST, DEEPEST = 5_000, 100  # the most nodes of an expanded formula, and its greatest depth


@dataclass(frozen=True)
class Definition:
    """One defined operator: its formula over `_0`, `_1`, ... (None for an opaque operator); for a reduction
    its identity element; the operators it costs as, separated by spaces; `facts`, what is known of its
    behaviour on zeros."""

    tree: Tree | None
    arity: int
    identity: float | None
    cost: str
    facts: tuple[tuple[str, float], ...] = ()


def definitions(
    workload: Workload, symbols: Mapping[str, Value | None], faults: Faults
) -> dict[str, Definition]:
    """The checked definitions by name; faults are added to `faults`."""
    result: dict[str, Definition] = {}
    for name, given in workload.operators.items():
        path: Path = ("workload", "operators", name)
        if name in OPERATORS or _OPERAND.fullmatch(name):
            what = "an operator already" if name in OPERATORS else "what operands are called in formulas"
            faults.add(path, f"{name} is {what}", "give it another name", key=True, code="name-conflict")
            continue
        try:
            made = _definition(given, result, symbols)
            _check(made)
        except TextFault as fault:
            faults.add(path, fault.message, fault.remedy or "", code=fault.code)
            made = Definition(None, 0, None, "")  # each fault is reported once
        result[name] = made
    return result


def _definition(
    given: OperatorSpec, known: Mapping[str, Definition], symbols: Mapping[str, Value | None]
) -> Definition:
    numbers = {
        name: float(evaluate_number(value, symbols))
        for name in ("identity", "annihilator", "at_zero")
        for value in (getattr(given, name),)
        if value is not None
    }
    identity = numbers.pop("identity", None)
    facts = tuple(numbers.items())
    cost = OPERATORS[given.cost].name if given.cost in OPERATORS else given.cost
    if given.cost and not is_priced(given.cost):
        near = suggestion(given.cost, OPERATORS, "operators")
        what = f"{given.cost} is not an operator that it could cost as"
        raise TextFault(what, 0, near, code="invalid-operator")
    if given.form is None:
        return Definition(None, 0, identity, cost, facts)
    tree = _expanded(parse_arithmetic(given.form), known)
    operands = {n.name for n in names_in(tree)}
    places = {int(n[1:]) for n in operands if _OPERAND.fullmatch(n)}
    if len(places) != len(operands) or not places or places != set(range(len(places))):
        message = f"{given.form} is not a formula of operands"
        raise TextFault(message, 0, "write _0, _1 and so on, without gaps", code="invalid-operator")
    costs = operators_in(parse_arithmetic(given.form), _costs(known))
    return Definition(tree, len(places), identity, cost or " ".join(costs.elements()), facts)


def _costs(known: Mapping[str, Definition]) -> dict[str, str]:
    return {name: one.cost for name, one in known.items()}


def _check(made: Definition) -> None:
    """Check that all functions are known and have their number of operands. An operator with an identity
    element may reduce: the identity must leave numbers unchanged, and the result must not depend on the order
    of operands, since mappings reorder them."""
    if made.tree is None:
        return
    _require_known(made.tree, {})
    if made.identity is None and not made.facts:
        return
    if made.arity != 2 and made.identity is not None:
        many = "one operand" if made.arity == 1 else f"{made.arity} operands"
        message = f"an operator of {many} has no identity"
        raise TextFault(message, 0, "leave identity out", code="invalid-operator")
    import numpy as np

    from polymodel.workload.values import evaluated

    def joined(*operands: object) -> Any:
        named = {f"_{i}": np.asarray(x) for i, x in enumerate(operands)}
        return evaluated(made.tree, named, "identity")  # type: ignore[arg-type]  # there is a formula

    others = np.array([-2.5, -1.0, 0.0, 0.5, 3.0])
    with np.errstate(all="ignore"):
        for name, value in made.facts:
            if name == "at_zero":
                true = made.arity == 1 and np.allclose(joined(0.0), value)
            else:
                places = range(made.arity)
                given = ([value if i == k else others for i in places] for k in places)
                true = made.arity > 1 and all(np.allclose(joined(*g), value) for g in given)
            if not true:
                what, remedy = (
                    f"{name} of its formula is not {value:g}",
                    "leave it out: it follows from the formula",
                )
                raise TextFault(what, 0, remedy, code="invalid-operator")
        if made.identity is None:
            return
        x, y, z = np.meshgrid(others, others, others)
        for result in (joined(made.identity, others), joined(others, made.identity)):
            if not np.allclose(result, others, rtol=1e-12, atol=1e-12):
                what = f"{made.identity:g} does not leave other operands as they are"
                remedy = "give the number that does, or leave identity out"
                raise TextFault(what, 0, remedy, code="invalid-operator")
        for one, other in (
            (joined(x, y), joined(y, x)),
            (joined(joined(x, y), z), joined(x, joined(y, z))),
        ):
            if not np.allclose(one, other, rtol=1e-9, atol=1e-9, equal_nan=True):
                what = "what it reduces to depends on the order of its operands"
                remedy = "leave identity out: it joins operands, but reduces none"
                raise TextFault(what, 0, remedy, code="invalid-operator")


def _require_known(tree: Tree, known: Mapping[str, Definition]) -> None:
    """All functions are known and have their operands. Raises TextFault."""
    for name, operands in _uses(tree):
        if name in OPERATORS and not OPERATORS[name].takes(operands):
            message = f"{name} takes {OPERATORS[name].arity} operands, not {operands}"
            raise TextFault(message, 0, code="wrong-count")
        if name not in OPERATORS and name not in known:
            raise _unknown(name, "function" if name.isidentifier() else "operator", known)


def _unknown(name: str, what: str, known: Mapping[str, Definition]) -> TextFault:
    near = suggestion(name, [*dict.fromkeys(o.name for o in OPERATORS.values()), *known], "operators")
    define = f"or define it: operators: {{{name}: {{form: ...}}}}; without `form` it is only counted"
    remedy = f"{near}; {define}" if name.isidentifier() else near
    return TextFault(f"unknown {what} {name}", 0, remedy, code="unknown-name")


def _uses(tree: Tree) -> list[tuple[str, int]]:
    """The functions and operators of a formula with their numbers of operands; powers are always known."""
    if isinstance(tree, Call):
        return [(tree.name, len(tree.arguments)), *(u for a in tree.arguments for u in _uses(a))]
    if isinstance(tree, Unary):
        return _uses(tree.operand)
    if not isinstance(tree, Binary):
        return []
    mine = [] if tree.op == "**" else [(tree.op, 2)]
    return [*mine, *_uses(tree.left), *_uses(tree.right)]


def _expanded(tree: Tree, known: Mapping[str, Definition]) -> Tree:
    """The formula with every defined operator replaced by its definition."""
    if isinstance(tree, Unary):
        return replace(tree, operand=_expanded(tree.operand, known))
    if isinstance(tree, Binary):
        return replace(tree, left=_expanded(tree.left, known), right=_expanded(tree.right, known))
    if not isinstance(tree, Call):
        return tree
    arguments = tuple(_expanded(a, known) for a in tree.arguments)
    if tree.name not in known or known[tree.name].tree is None:
        return replace(tree, arguments=arguments)
    return _applied(tree.name, known[tree.name], arguments)


def _applied(name: str, definition: Definition, arguments: Sequence[Tree]) -> Tree:
    """A definition applied to operands; a binary one is folded over more operands from the left."""
    if len(arguments) < definition.arity or (definition.arity != 2 and len(arguments) > definition.arity):
        message = f"{name} takes {definition.arity} operands, not {len(arguments)}"
        raise TextFault(message, 0, code="wrong-count")
    assert definition.tree is not None, "what is only counted stays a name"
    result = _within_bounds(_put(definition.tree, arguments[: definition.arity]))
    for other in arguments[definition.arity :]:
        result = _within_bounds(_put(definition.tree, (result, other)))
    return result


def _within_bounds(tree: Tree) -> Tree:
    """The formula, unless it exceeds the size limit; an operand that occurs several times counts each
    time."""
    open_, count = [(tree, 1)], 0
    while open_:
        (part, depth), count = open_.pop(), count + 1
        if count > MOST or depth > DEEPEST:
            what = f"with all definitions in it the formula has more than {MOST} parts, or {DEEPEST} levels"
            raise TextFault(what, 0, "use fewer definitions within definitions", code="too-large")
        open_ += [(p, depth + 1) for p in parts_of(part)]
    return tree


def _put(tree: Tree, operands: Sequence[Tree]) -> Tree:
    if isinstance(tree, Name):
        return operands[int(tree.name[1:])]
    if isinstance(tree, Unary):
        return replace(tree, operand=_put(tree.operand, operands))
    if isinstance(tree, Binary):
        return replace(tree, left=_put(tree.left, operands), right=_put(tree.right, operands))
    if isinstance(tree, Call):
        return replace(tree, arguments=tuple(_put(a, operands) for a in tree.arguments))
    return tree


def _text(tree: Tree) -> str:
    if isinstance(tree, NumberNode):
        return repr(tree.value)
    if isinstance(tree, Name):
        return tree.name
    if isinstance(tree, Unary):
        return f"({tree.op}{_text(tree.operand)})"
    if isinstance(tree, Binary):
        return f"({_text(tree.left)} {tree.op} {_text(tree.right)})"
    return f"{tree.name}({', '.join(map(_text, tree.arguments))})"


def with_definitions(
    operations: Operations,
    operands: Sequence[str],
    known: Mapping[str, Definition],
    names: Container[str],
    path: Path,
    faults: Faults,
) -> Operations:
    """The checked operations of one Einsum with defined operators expanded; with them the operators that
    `map` costs as, the identity element of `reduce`, and what is known of `map` on zeros. `names`: further
    names that formulas may use."""
    result: list[tuple[str, str | None]] = []
    for kind, text in operations:
        try:
            result += _defined(kind, text or "", operations, operands, known, names)
        except TextFault as fault:
            faults.add((*path, kind), fault.message, fault.remedy or "", code=fault.code)
    return tuple(result)


def _defined(
    kind: str,
    text: str,
    operations: Operations,
    operands: Sequence[str],
    known: Mapping[str, Definition],
    names: Container[str],
) -> Iterator[tuple[str, str | None]]:
    """One operation expanded, with its cost class, identity element and facts on zeros."""
    if not text:
        yield kind, None
        return
    several = {"map": len(operands), "reduce": 2, "populate": 1}[kind]
    steps = [step.strip() for step in text.split(";")] if kind == "populate" else [text.strip()]
    made = [_checked(kind, step, several, operands, known, names) for step in steps]
    definition = known.get(steps[0])
    if kind == "reduce" and definition is not None:
        if definition.identity is None and definition.tree is not None:
            message = f"{text} reduces nothing, as it has no identity"
            raise TextFault(message, 0, "give identity", code="invalid-operator")
        if definition.identity is not None:
            yield "identity", repr(definition.identity)
    if kind == "map" and definition is not None and definition.tree is None:
        yield from ((name, repr(value)) for name, value in definition.facts)
    # An operation of one operand without `map` costs as its reduction.
    alone = len(operands) == 1 and not dict(operations).get("map")
    cost = _cost_of(steps[0], several, known) if kind == "map" or (kind == "reduce" and alone) else ""
    if cost:
        yield "cost", cost
    yield kind, "; ".join(made)


def _cost_of(text: str, several: int, known: Mapping[str, Definition]) -> str:
    """The operators that an operation costs as according to its definition, "" without one."""
    if not {*_WORD.findall(text)} & known.keys():
        return ""
    if text in known:
        return " ".join([known[text].cost or text] * (max(several - 1, 1) if known[text].arity == 2 else 1))
    return " ".join(operators_in(parse_arithmetic(text), _costs(known)).elements())


def _checked(
    kind: str,
    text: str,
    several: int,
    operands: Sequence[str],
    known: Mapping[str, Definition],
    names: Container[str],
) -> str:
    """One operation in executable form: an operator of the table, or a formula in which definitions are
    expanded."""
    if text in OPERATORS:
        one = OPERATORS[text]
        if not (one.takes(several) or (kind == "map" and several == 1)):
            many = "1 operand" if one.arity == 1 else f"{one.arity} operands"
            remedy = f"write a formula: {text}(_0) * _1" if one.arity == 1 and several > 1 else ""
            raise TextFault(f"{text} takes {many}, not {several}", 0, remedy, code="wrong-count")
        if kind == "reduce" and (one.identity is None or not one.commutes):
            what = f"{text} reduces nothing: what it gives depends on the order of operands"
            raise TextFault(what, 0, "use add, mul, max or min", code="invalid-operator")
        return text
    if text.isidentifier():
        if text in known and known[text].tree is None:
            return text
        if text in known:
            given = ["_"] if kind == "populate" else [f"_{i}" for i in range(several)]
            return _text_within_bounds(_applied(text, known[text], [Name(n, 0) for n in given]))
        if kind == "populate" or text not in (*operands, *(f"_{i}" for i in range(several))):
            raise _unknown(text, "operator", known)
    tree = parse_arithmetic(text)
    _require_known(tree, known)
    own = {"_", "_0"} if kind == "populate" else {f"_{i}" for i in range(several)}
    for name in _free(tree, known):
        if name not in own and name not in operands and name not in names and kind != "populate":
            near = suggestion(name, [*sorted(own), *operands], "operands")
            raise TextFault(f"{name} is none of the operands", 0, near, code="unknown-name")
    if not {*_WORD.findall(text)} & known.keys():
        return text
    return _text_within_bounds(_expanded(tree, known))


def _free(tree: Tree, known: Mapping[str, Definition]) -> Iterator[str]:
    """The names in a formula, without the arguments of opaque operators."""
    if isinstance(tree, Call) and tree.name in known and known[tree.name].tree is None:
        return
    if isinstance(tree, Name):
        yield tree.name
    for part in parts_of(tree):
        yield from _free(part, known)


def _text_within_bounds(tree: Tree) -> str:
    formula = _text(tree)
    parse_arithmetic(formula)  # within the size limit of formulas
    return formula
