"""Einsums in one line of text, `Y[m, n] = A[m, k] * B[k, n]`, and Einsums that update a tensor in place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from polymodel.arithmetic import OPERATORS
from polymodel.spec.base import fault, passed_on
from polymodel.spec.expressions import Name, TokenCursor, arithmetic
from polymodel.spec.faults import TextFault
from polymodel.spec.numbers import affine_of

if TYPE_CHECKING:
    from polymodel.spec.section_schemas import Einsum, TensorAccess

AccessText = tuple[str, tuple[tuple[str, str], ...], bool]


class EinsumText:
    """A parsed one-line Einsum: accesses as (tensor, ((rank, expression text), ...), output). `updates`: the
    sign before `=`."""

    def __init__(
        self,
        accesses: tuple[AccessText, ...],
        joined: str,
        updates: str = "",
    ) -> None:
        self.accesses = accesses
        self.joined = joined
        self.updates = updates


# Operator signs that one-line Einsums do not have -> the operators' names.
_OPERATIONS = {"-": "sub", "/": "div", "//": "div", "%": "mod", "**": "pow", "|": "or", "&": "and"}
_LONG = (
    "write the long form, {{name: ..., tensor_accesses: [...], operations: {{map: {}}}}} "
    "(docs/howto/workload.md)"
)


def parse_einsum(text: str) -> EinsumText:
    """`T1[m, n1] = T0[m, n0] * W0[n0, n1]`, ranks named with `I[H=p+r]`, `+=` and `*=` update what is there.

    Raises TextFault.
    """
    cursor = TokenCursor(text)
    output = _access(cursor, text)
    if cursor.now.text == "==":
        raise TextFault("`==` compares; an Einsum is made with `=`", cursor.now.offset, "write one `=`")
    updates = cursor.now.text if cursor.now.text in ("+", "*") and cursor.ahead().text == "=" else ""
    if updates:
        cursor.next()
    cursor.need("=", "after the output")
    inputs = [_access(cursor, text)]
    joined = ""
    while token := cursor.take("*", "+"):
        if joined and token.text != joined:
            remedy = "write one Einsum for each, or the long form with e.g. `operations: {map: _0 * _1 + _2}`"
            raise TextFault("`*` and `+` are mixed", token.offset, remedy)
        joined = token.text
        inputs.append(_access(cursor, text))
    if cursor.now.text in _OPERATIONS:
        sign = cursor.now.text
        what = f"`{sign}` is not an operator of one-line Einsums, which know `*` and `+`"
        raise TextFault(what, cursor.now.offset, _LONG.format(_OPERATIONS[sign]))
    cursor.finish()
    return EinsumText(((*output, True), *((*i, False) for i in inputs)), joined, updates)


def _access(cursor: TokenCursor, text: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    token = cursor.now
    if token.kind != "name":
        raise TextFault(
            f"expected a tensor, found {cursor.shown()}",
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


def _rank(cursor: TokenCursor, text: str) -> tuple[str, str]:
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


class _Reordered(str):
    """A one-line Einsum that lists the ranks of a tensor in another order than an earlier one."""

    message: str
    remedy: str
    offset: int


def in_rank_order(value: object) -> object:
    """One-line Einsums; ranks are named after variables, so that T[n, m] would be read as T[m, n]."""
    if not isinstance(value, (list, tuple)):
        return value
    first: dict[str, list[str]] = {}
    return [_in_order(item, first) if isinstance(item, str) else item for item in value]


def _in_order(text: str, first: dict[str, list[str]]) -> str:
    for access in re.finditer(r"([A-Za-z_]\w*)\s*\[([\w\s,]*)\]", text):
        tensor, names = access[1], [n.strip() for n in access[2].split(",")]
        known = first.setdefault(tensor, names)
        if known != names and sorted(known) == sorted(names) and len({*names}) == len(names):
            result = _Reordered(text)
            same = ", ".join(f"{n.upper()}={n}" for n in known)
            turned = ", ".join(f"{r.upper()}={n}" for r, n in zip(known, names, strict=True))
            result.message = (
                f"{tensor} is indexed [{', '.join(names)}] here and [{', '.join(known)}] above; ranks are "
                f"named after their variables, so both are {tensor}[{same}]"
            )
            result.remedy = f"write {tensor}[{turned}] for a transpose, or {tensor}[{', '.join(known)}]"
            result.offset = access.start()
            return result
    return text


def as_mapping(value: object) -> object:
    """`Y[m, n] = A[m, k] * B[k, n]` as the mapping it stands for."""
    if not isinstance(value, str):
        return value
    if isinstance(value, _Reordered):
        raise fault(value.message, value.remedy, value.offset, code="shape-mismatch")
    try:
        parsed = parse_einsum(value)
    except TextFault as found:
        raise passed_on(found, "write e.g. Y[m, n] = A[m, k] * B[k, n]") from found
    accesses: list[dict[str, object]] = []
    output, *read = parsed.accesses
    for tensor, ranks, made in (*read, output):
        if len({r for r, _ in ranks}) < len(ranks):
            message = f"tensor {tensor} has a rank twice"
            raise fault(message, "name each rank: T[A=m, B=m]", code="duplicate-name")
        access: dict[str, object] = {"name": tensor, "projection": dict(ranks), "output": made}
        accesses.append(access | ({"accumulate": True} if made and parsed.updates else {}))
    operations = {"map": "add"} if parsed.joined == "+" else {}
    operations |= {"reduce": "mul"} if parsed.updates == "*" else {}
    einsum: dict[str, object] = {"name": output[0], "tensor_accesses": accesses}
    return einsum | ({"operations": operations} if operations else {})


def updated_in_place(einsum: Einsum) -> Einsum:
    """`Z[m] = Z[m] * A[m]` as the update of Z that it is: results are joined with what Z holds."""
    outputs = [a for a in einsum.tensor_accesses if a.output]
    before = [
        a for a in einsum.tensor_accesses
        if not a.output and any((a.name, _index(a)) == (o.name, _index(o)) for o in outputs)
    ]  # fmt: skip
    if not before or len(outputs) > 1 or outputs[0].accumulate:
        return einsum
    read = [a for a in einsum.tensor_accesses if not a.output and a is not before[0]]
    text, reduced = einsum.operations.map or "mul", einsum.operations.reduce
    join, tensor = OPERATORS.get(text), outputs[0].name
    updates = join is not None and join.commutes and join.identity is not None
    if reduced not in (None, text) and OPERATORS.get(reduced or "") is not join:
        updates = False
    if not updates or not read or len(before) > 1 or einsum.operations.populate:
        message = (
            f"{einsum.name} reads and writes {tensor} at one index: the cascade is cyclic, but for updates "
        )
        message += "by add, mul, max or min of other tensors"
        raise fault(message, _instead(tensor, text), code="cyclic-cascade")
    assert join is not None
    free = [v for a in read for v in _variables(a) if v not in _variables(outputs[0])]
    if free:
        message = f"{tensor} is read in every iteration of {free[0]}, over which it is summed up"
        once = f"write {tensor}[...] {join.sign}= ..., which reads it once"
        if not join.sign:
            once = (
                f"do not read {tensor}; write accumulate: True at the output, operations: {{reduce: {text}}}"
            )
        raise fault(message, once, code="illegal-dependence")
    operations = {"map": text} if len(read) > 1 else {}
    operations |= {"reduce": join.name} if join.name != "add" else {}
    accesses = (*read, outputs[0].model_copy(update={"accumulate": True}))
    made = type(einsum.operations)(**operations)
    return einsum.model_copy(update={"tensor_accesses": accesses, "operations": made})


def _index(access: TensorAccess) -> dict[str, str]:
    given = access.projection
    return (
        {r: str(x) for r, x in given.items()} if isinstance(given, Mapping) else {v.upper(): v for v in given}
    )


def _variables(access: TensorAccess) -> list[str]:
    return re.findall(r"[A-Za-z_]\w*", " ".join(_index(access).values()))


def _instead(tensor: str, text: str) -> str:
    """The form to write instead of an invalid in-place update."""
    name = OPERATORS[text].name if text in OPERATORS else ""
    inverse = {"sub": ("-_0", "add"), "div": ("1 / _0", "mul")}.get(name)
    if inverse:
        operations = f"operations: {{map: {inverse[0]}, reduce: {inverse[1]}}}"
        return f"write {operations}, accumulate: True at the output, and do not read {tensor}"
    return f"give the result another name, or carry {tensor} forward along a rank: [P=p+1] of [p]"
