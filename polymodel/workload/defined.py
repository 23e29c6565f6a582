"""Operators that a workload defines: formulas of their operands, put in the place of their names.

What becomes of zeros, what an operation costs as and how it is computed follow from the formula as they do
for any other; no code comes with a spec. A definition may use those before it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from polymodel.arithmetic import OPERATORS
from polymodel.spec.expressions import Binary, Call, Name, NumberNode, Tree, Unary, names_in, parse_arithmetic
from polymodel.spec.faults import Faults, Path, TextFault, suggestion
from polymodel.spec.numbers import Value, evaluate_number
from polymodel.spec.section_schemas import OperatorSpec, Workload

Operations = tuple[tuple[str, str | None], ...]
_OPERAND = re.compile(r"_\d+")
MOST, DEEPEST = 5_000, 100  # parts of a formula in which all names are replaced, and how deep they stand


@dataclass(frozen=True)
class Definition:
    """A formula of `_0`, `_1`; of one that reduces, the number that leaves others as they are; the operator
    that it costs as ("" for the outermost one)."""

    tree: Tree
    arity: int
    identity: float | None
    cost: str


def definitions(
    workload: Workload, symbols: Mapping[str, Value | None], faults: Faults
) -> dict[str, Definition]:
    """By name, checked; faults go to `faults`."""
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
            continue
        result[name] = made
    return result


def _definition(
    given: OperatorSpec, known: Mapping[str, Definition], symbols: Mapping[str, Value | None]
) -> Definition:
    tree = _expanded(parse_arithmetic(given.form), known)
    operands = {n.name for n in names_in(tree)}
    places = {int(n[1:]) for n in operands if _OPERAND.fullmatch(n)}
    if len(places) != len(operands) or places not in ({0}, {0, 1}):
        message = f"{given.form} is not a formula of one operand or two"
        raise TextFault(message, 0, "write _0, or _0 and _1", code="invalid-operator")
    if given.cost and given.cost not in OPERATORS:
        near = suggestion(given.cost, OPERATORS, "operators")
        what = f"{given.cost} is not an operator that it could cost as"
        raise TextFault(what, 0, near, code="invalid-operator")
    identity = None if given.identity is None else float(evaluate_number(given.identity, symbols))
    return Definition(tree, len(places), identity, given.cost)


def _check(made: Definition) -> None:
    """All functions are known and have their operands. With an identity an operator reduces: that leaves
    numbers as they are, and the order of operands, in which mappings differ, leaves the result as it is."""
    for name, operands in _uses(made.tree):
        if name not in OPERATORS:
            what = "function" if name.isidentifier() else "operator"
            fault = f"unknown {what} {name}"
            raise TextFault(fault, 0, suggestion(name, OPERATORS, "operators"), code="unknown-name")
        if not OPERATORS[name].takes(operands):
            raise TextFault(
                f"{name} takes {OPERATORS[name].arity} operands, not {operands}", 0, code="wrong-count"
            )
    if made.identity is None:
        return
    if made.arity != 2:
        message = "an operator of one operand has no identity"
        raise TextFault(message, 0, "leave identity out", code="invalid-operator")
    import numpy as np

    from polymodel.workload.values import evaluated

    def joined(x: object, y: object) -> Any:
        return evaluated(made.tree, {"_0": np.asarray(x), "_1": np.asarray(y)}, "identity")

    others = np.array([-2.5, -1.0, 0.0, 0.5, 3.0])
    x, y, z = np.meshgrid(others, others, others)
    with np.errstate(all="ignore"):
        for result in (joined(made.identity, others), joined(others, made.identity)):
            if not np.allclose(result, others, rtol=1e-12, atol=1e-12):
                what = f"{made.identity:g} does not leave other operands as they are"
                raise TextFault(
                    what, 0, "give the number that does, or leave identity out", code="invalid-operator"
                )
        for one, other in (
            (joined(x, y), joined(y, x)),
            (joined(joined(x, y), z), joined(x, joined(y, z))),
        ):
            if not np.allclose(one, other, rtol=1e-9, atol=1e-9, equal_nan=True):
                what = "what it reduces to depends on the order of its operands"
                raise TextFault(
                    what,
                    0,
                    "leave identity out: it joins operands, but reduces none",
                    code="invalid-operator",
                )


def _uses(tree: Tree) -> list[tuple[str, int]]:
    """Functions and operators of a formula, with the number of their operands; powers are known to all."""
    if isinstance(tree, Call):
        return [(tree.name, len(tree.arguments)), *(u for a in tree.arguments for u in _uses(a))]
    if isinstance(tree, Unary):
        return _uses(tree.operand)
    if not isinstance(tree, Binary):
        return []
    mine = [] if tree.op == "**" else [(tree.op, 2)]
    return [*mine, *_uses(tree.left), *_uses(tree.right)]


def _expanded(tree: Tree, known: Mapping[str, Definition]) -> Tree:
    """The formula with the definitions in the place of their names."""
    if isinstance(tree, Unary):
        return replace(tree, operand=_expanded(tree.operand, known))
    if isinstance(tree, Binary):
        return replace(tree, left=_expanded(tree.left, known), right=_expanded(tree.right, known))
    if not isinstance(tree, Call):
        return tree
    arguments = tuple(_expanded(a, known) for a in tree.arguments)
    if tree.name not in known:
        return replace(tree, arguments=arguments)
    return _applied(tree.name, known[tree.name], arguments)


def _applied(name: str, definition: Definition, arguments: Sequence[Tree]) -> Tree:
    """A definition of some operands; of two operands it joins any number from the left."""
    if len(arguments) < definition.arity or (definition.arity == 1 and len(arguments) > 1):
        message = f"{name} takes {definition.arity} operands, not {len(arguments)}"
        raise TextFault(message, 0, code="wrong-count")
    result = _within_bounds(_put(definition.tree, arguments[: definition.arity]))
    for other in arguments[definition.arity :]:
        result = _within_bounds(_put(definition.tree, (result, other)))
    return result


def _within_bounds(tree: Tree) -> Tree:
    """The formula, if it is no giant; operands that stand in it several times count each time."""
    open_, count = [(tree, 1)], 0
    while open_:
        (part, depth), count = open_.pop(), count + 1
        if count > MOST or depth > DEEPEST:
            what = f"with all definitions in it the formula has more than {MOST} parts, or {DEEPEST} levels"
            raise TextFault(what, 0, "use fewer definitions within definitions", code="too-large")
        inner = part.arguments if isinstance(part, Call) else ()
        inner = (part.operand,) if isinstance(part, Unary) else inner
        inner = (part.left, part.right) if isinstance(part, Binary) else inner
        open_ += [(p, depth + 1) for p in inner]
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


def with_definitions(operations: Operations, operands: int, known: Mapping[str, Definition]) -> Operations:
    """The operations of an Einsum of so many operands, with formulas in the place of names that are defined;
    beside them what `map` costs as, and the identity of `reduce`. Raises TextFault."""
    result: list[tuple[str, str | None]] = []
    for kind, text in operations:
        words = {*re.findall(r"[A-Za-z_]\w*", text or "")} & known.keys()
        if text is None or not words:
            result.append((kind, text))
            continue
        if text in known:
            definition = known[text]
            names = {"map": operands, "reduce": 2, "populate": 1}[kind]
            given = ["_"] if kind == "populate" else [f"_{i}" for i in range(names)]
            tree = _applied(text, definition, [Name(n, 0) for n in given])
            if kind == "reduce" and definition.identity is None:
                message = f"{text} reduces nothing, as it has no identity"
                raise TextFault(message, 0, "give identity", code="invalid-operator")
            result += [("identity", repr(definition.identity))] if kind == "reduce" else []
            # Of one operand without `map` an operation costs as what sums up.
            priced = kind == "map" or (kind == "reduce" and operands == 1 and not dict(operations).get("map"))
            result += [("cost", definition.cost)] if priced and definition.cost else []
        else:
            tree = _expanded(parse_arithmetic(text), known)
        formula = _text(tree)
        parse_arithmetic(formula)  # within the bounds of formulas
        result.append((kind, formula))
    return tuple(result)
