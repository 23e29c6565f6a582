"""Determine the result of an operation with zero operands: products, sums, and functions of one operand that
preserve zeros."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Protocol

from polymodel.arithmetic import OPERATORS, keeping_zero, names_of
from polymodel.errors import Refused
from polymodel.spec.expressions import Binary, Call, Name, NumberNode, Tree, Unary, parse_arithmetic, parts_of
from polymodel.spec.faults import TextFault
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess

MULTIPLY = (None, *names_of("mul"))
UNION = names_of("add", "sub", "max", "min")
KEEPS = keeping_zero()  # f(0) = 0, of one operand


class Zeros(Protocol):
    """Whether a tensor has zeros."""

    @property
    def dense(self) -> bool: ...


def is_union(einsum: Einsum) -> bool:
    """Return True for sums, where one operand alone produces a result, so that an absent operand does not
    make the operation idle.

    Return False where one absent operand determines the result (infinity does in a sum, and leaves a minimum
    unchanged), and where the result must not be left out although all operands are absent (a maximum over
    sums changes if sums that are 0 are left out).
    """
    if not _is_sum(einsum) or _deciding(einsum):
        return False
    return _left_out(einsum) == _value(einsum, {a: a.default for a in einsum.inputs})


def _is_sum(einsum: Einsum) -> bool:
    """Return True for sums, differences, maxima and minima, given by name or as formulas in which each
    operand occurs once."""
    operation = dict(einsum.operations).get("map")
    if operation is None or operation in OPERATORS:
        return operation in UNION
    try:
        open_: list[Tree] = [parse_arithmetic(operation)]
    except TextFault:
        return False
    words: set[str] = set()
    leaves: list[str] = []
    while open_:
        tree = open_.pop()
        if isinstance(tree, Name):
            leaves.append(tree.name)
        elif isinstance(tree, (Binary, Call)):
            word = tree.op if isinstance(tree, Binary) else tree.name
            words.add(OPERATORS[word].name if word in UNION else "")
        elif isinstance(tree, NumberNode):
            return False
        open_ += parts_of(tree)
    places = {name: i for i, a in enumerate(einsum.operands) for name in (f"_{i}", a.tensor)}
    met = sorted(places.get(name, -1) for name in leaves)
    one_kind = words <= {"add", "sub"} or words in ({"max"}, {"min"})
    return bool(words) and one_kind and met == list(range(len(einsum.operands)))


def is_known(einsum: Einsum, absent: Iterable[str]) -> bool:
    """Return True if every operation with an absent operand gives only what is absent from the result.

    `absent`: the tensors that have absent points.
    """
    sparse = {*absent}
    if not _differs_from_zero(einsum):
        return is_union(einsum) or _followed(einsum, sparse, 0.0)
    nothing, output = _nothing(einsum), einsum.outputs[0]
    stops = sparse - {a.tensor for a in unstopped(einsum)}
    if stops & {a.tensor for a in einsum.inputs} and nothing != output.default and output.tensor in sparse:
        return False
    return is_union(einsum) or _followed(einsum, sparse, nothing)


def _followed(einsum: Einsum, sparse: Container[str], nothing: float | None) -> bool:
    """Return whether each absent operand either makes the operation idle by itself, or does not contribute to
    making it idle even together with others."""
    passing = [a for a in unstopped(einsum) if a.tensor in sparse]
    if passing and not _computes(einsum):
        return False
    groups = (some for n in range(1, len(passing) + 1) for some in combinations(passing, n))
    reached = (_value(einsum, {a: a.default for a in some}) for some in groups)
    return nothing is None or nothing not in reached


def unstopped(einsum: Einsum) -> tuple[TensorAccess, ...]:
    """Return the operands whose absence does not make the operation idle, although the operation is not a
    sum: exp(0) is 1. Their values at absent points are computed with like any other value, so that their
    sparsity ends here."""
    if einsum.is_copy or is_union(einsum):
        return ()
    nothing = _left_out(einsum)
    return tuple(a for a in einsum.inputs if nothing is None or not _absorbs(einsum, a, nothing))


def stopped_by(einsum: Einsum) -> tuple[tuple[TensorAccess, ...], float]:
    """Return the operands whose absence alone determines the result of an operation, and that result.

    For a maximum, an engine that computes values also leaves out products that are 0, and takes the maximum
    with 0 once at the end. A machine, which counts no operations that it skips, does not (see `unstopped`).
    """
    if einsum.is_copy:
        return einsum.operands, einsum.operands[0].default
    nothing = _left_out(einsum) if _holds_others(einsum) else 0.0
    if nothing is None or is_union(einsum):
        return (), 0.0
    return tuple(a for a in einsum.operands if _absorbs(einsum, a, nothing)), nothing


def stopping(einsum: Einsum, tensor: str) -> bool:
    """Return whether the absence of an operand with this name makes any operation idle, or leaves out a term
    of a sum."""
    passing = unstopped(einsum)
    reads = [a for a in einsum.inputs if a.tensor == tensor]
    return not reads or any(a not in passing for a in reads)


def _computes(einsum: Einsum) -> bool:
    """Return whether the function of the operation is known for all values of its operands."""
    operation = dict(einsum.operations).get("map") or "mul"
    said = "at_zero" in dict(einsum.operations) and len(einsum.operands) == 1
    return said or operation in OPERATORS or all(name in OPERATORS for name in _called(operation))


def _called(operation: str) -> Iterator[str]:
    """Yield the functions that a formula calls, or the word itself if the operation is a single word."""
    try:
        open_ = [parse_arithmetic(operation)]
    except TextFault:
        yield operation
        return
    if isinstance(open_[0], Name) and not open_[0].name.startswith("_"):
        yield operation
    while open_:
        tree = open_.pop()
        if isinstance(tree, Call):
            yield tree.name
        open_ += parts_of(tree)


def _nothing(einsum: Einsum) -> float | None:
    """Return the result for which an operation may be left out: the value that is absent from its output, or
    the one that leaves a reduction unchanged. Return None if it is not known."""
    output = einsum.outputs[0]
    joins = output.accumulates or {*einsum.rank_variables} - {*output.variables}
    return _identity(einsum) if joins else output.default


def _left_out(einsum: Einsum) -> float | None:
    """Return the result for which an operation may be left out where zeros are left out: 0, unless this would
    change the reduction."""
    return _nothing(einsum) if _differs_from_zero(einsum) else 0.0


def _holds_others(einsum: Einsum) -> bool:
    """Return whether some absent point holds a number other than 0, or the output is updated with an
    operation other than a sum."""
    updates = any(a.accumulates for a in einsum.outputs)
    return any(a.default for a in einsum.accesses) or (updates and _identity(einsum) != 0)


def _differs_from_zero(einsum: Einsum) -> bool:
    """Return whether some absent point holds a number other than 0, or zeros change the reduction, as in a
    product or a maximum."""
    return any(a.default for a in einsum.accesses) or _nothing(einsum) != 0


def _deciding(einsum: Einsum) -> list[TensorAccess]:
    """Return the operands whose absence alone allows the operation to be left out, where `default` gives the
    value of absent points."""
    nothing = _nothing(einsum) if _differs_from_zero(einsum) else None
    return [] if nothing is None else [a for a in einsum.inputs if _absorbs(einsum, a, nothing)]


def _identity(einsum: Einsum) -> float | None:
    """Return the identity element of an Einsum's reduction; None if it is not known."""
    operations = dict(einsum.operations)
    if operations.get("identity"):
        return float(operations["identity"] or 0)
    result = OPERATORS.get(operations.get("reduce") or "add")
    return result.identity if result is not None else None


def _absorbs(einsum: Einsum, access: TensorAccess, result: float) -> bool:
    """Return whether the operation gives `result` where this operand is absent, whatever the others are."""
    place = next(a for a in einsum.operands if a.tensor == access.stands_for) if access.stands_for else access
    return _value(einsum, {place: access.default}) == result


def _value(einsum: Einsum, known: Mapping[TensorAccess, float]) -> float | None:
    """Return the result of an Einsum's operation for some known operands, the others being any finite
    numbers; None if it depends on them."""
    operation = dict(einsum.operations).get("map") or "mul"
    values = [known.get(a) for a in einsum.operands]
    if operation in OPERATORS:
        result = OPERATORS[operation]
        if result.arity == 1 or len(values) == 1:
            return result.of_some(values) if result.arity == 1 else values[0]
        joined = values[0]
        for value in values[1:]:
            joined = result.of_some([joined, value])
        return joined
    said = {k: float(v or 0) for k, v in einsum.operations if k in ("at_zero", "annihilator")}
    if said:
        return said.get("at_zero") if values == [0.0] else _fixed(said, values)
    named = {f"_{i}": x for i, x in enumerate(values)}
    alone = {a.tensor for a in einsum.operands if len({*einsum.accesses_of(a.tensor)}) == 1}
    pairs = zip(einsum.operands, values, strict=True)
    named |= {a.tensor: x for a, x in pairs if a.tensor in alone}
    try:
        return _evaluated(parse_arithmetic(operation), named)
    except TextFault:
        return None


def _fixed(said: Mapping[str, float], values: Sequence[float | None]) -> float | None:
    """Return the result of an operator without a formula, which is known where an operand annihilates the
    others; else None."""
    annihilator = said.get("annihilator")
    return annihilator if len(values) > 1 and annihilator in values else None


def _evaluated(tree: Tree, named: Mapping[str, float | None]) -> float | None:
    """Evaluate a formula in which names without a value denote any finite number. Return None if the result
    depends on them."""
    if isinstance(tree, NumberNode):
        return float(tree.value)
    if isinstance(tree, Name):
        return named.get(tree.name)
    if isinstance(tree, Unary):
        value = _evaluated(tree.operand, named)
        return -value if tree.op == "-" and value is not None else value
    sides = [_evaluated(side, named) for side in parts_of(tree)]
    if isinstance(tree, Binary) and tree.op == "**":
        raised = isinstance(tree.right, NumberNode) and tree.right.value > 0
        return 0.0 if raised and sides[0] == 0 else None
    result = OPERATORS.get(tree.op if isinstance(tree, Binary) else tree.name)
    if result is None or not result.takes(len(sides)):
        return None
    joined = sides[0]
    for side in sides[1:]:
        joined = result.of_some([joined, side])
    return joined if result.arity == 2 else result.of_some(sides)


def require_known(einsum: Einsum, data: Mapping[str, Zeros]) -> None:
    """Raise Refused where zeros reach an operation whose result for zeros is not known. Operands without
    zeros are not examined."""
    sparse = list(dict.fromkeys(a.tensor for a in einsum.inputs if not data[a.tensor].dense))
    results = [a.tensor for a in einsum.outputs if a.tensor not in data or not data[a.tensor].dense]
    if not sparse or is_known(einsum, [*sparse, *results]):
        return
    operation = dict(einsum.operations).get("map")
    if _differs_from_zero(einsum):
        held = ", ".join(f"{a.default:g} in {a.tensor}" for a in einsum.accesses)
        raise Refused(
            f"{einsum.name}: {operation or 'mul'} of what is absent in {', '.join(sparse)} is not what is "
            f"absent in its result (absent points hold {held})",
            "say by `default` what absent points of the result hold, or by `densities` that there are none",
            code="unsupported-operation",
        )
    names = ", ".join(sparse)
    given = ", ".join(f"{t}: 1" for t in sparse)
    if _computes(einsum):
        raise Refused(
            f"{einsum.name}: {operation} is zero where several of its operands are together, which is not "
            f"followed, and {names} may hold zeros",
            f"make the sum an Einsum of its own, or say that there are none (densities: {{{given}}})",
            code="unsupported-operation",
        )
    raise Refused(
        f"{einsum.name}: nothing says what {operation} of zero is, and {names} may hold zeros",
        f"say what it computes (operators: {{{operation}: {{form: ...}}}}), "
        f"or that {names} {'has' if len(sparse) == 1 else 'have'} none (densities: {{{given}}})",
        code="unsupported-operation",
    )


class PlacedZeros(Zeros, Protocol):
    """Whether a tensor has zeros, and whether their positions are known."""

    @property
    def placeless(self) -> bool: ...

    @property
    def actual(self) -> object: ...


def require_carried_anywhere(cascade: Cascade, data: Mapping[str, PlacedZeros]) -> None:
    """Raise Refused where the zeros of a recurrent tensor, or of the values before its first generation, have
    known positions: sparse counts do not follow which of them each iteration reads."""
    for einsum in cascade.einsums:
        for access in einsum.accesses:
            known = data[access.tensor]
            if not access.guard or known.dense:
                continue
            if access.stands_for or known.actual is not None or not known.placeless:
                what = (
                    f"stands before the first generation of {access.stands_for}"
                    if access.stands_for
                    else ("is carried from one iteration to the next")
                )
                raise Refused(
                    f"{access.tensor} {what}, and its zeros lie at known places; sparse counts do not "
                    "follow which of them are read",
                    f"give it a uniform density, or none (densities: {{{access.tensor}: 1}}), or run the "
                    "cascade on data (pm.execute)",
                    code="unsupported-recurrence",
                )


def empty_before(cascade: Cascade) -> frozenset[str]:
    """Return the recurrent tensors whose elements before the first generation are absent."""
    absent = {a.tensor: a.default for e in cascade.einsums for a in e.accesses}
    beyond = {**dict(cascade.init), **dict(cascade.boundary)}
    return frozenset(t for t, value in cascade.init if value == beyond[t] == absent.get(t, 0.0))
