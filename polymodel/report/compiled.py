"""`compile_cell`: a SymPy expression of a closed form as exact integer code on numpy arrays.

`sympy.lambdify` writes ceiling(M/T) as `numpy.ceil(M/T)`, a float64 quotient, which is wrong from 2^53 on,
and int64 products wrap around silently. Here quotients stay pairs of integers until they are rounded.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.frozen import dataclass
from polymodel.report.exact_arrays import (
    MOST,
    ONE,
    Array,
    ExactArithmetic,
    ExactRatio,
    RoundedArray,
    Value,
    constant,
    either,
    floats,
    whole,
)
from polymodel.spec.faults import listed

if TYPE_CHECKING:
    import sympy

    from polymodel.analysis.symbolic.domain import Domain

Input = Any  # an integer, or an array of integers
Truth = tuple[Array, Array | None]
FLOAT_WHOLE = 2.0**53
_RELATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "Equality": operator.eq, "Unequality": operator.ne, "StrictLessThan": operator.lt,
    "LessThan": operator.le, "StrictGreaterThan": operator.gt, "GreaterThan": operator.ge,
}  # fmt: skip
_WHOLE_ONLY = ("floor", "ceiling", "Mod")


@dataclass(frozen=True)
class Instruction:
    """One operation on earlier results: `kind` is its class in SymPy; `payload` a number or a symbol's
    position; `last`: results that no later step needs."""

    kind: str
    parts: tuple[int, ...]
    payload: Any = None
    last: tuple[int, ...] = ()


@dataclass(frozen=True)
class CompiledCell:
    """A closed form as a function of arrays: call it with one value per name of `names`.

    `limits`: expressions that must be 0 (True) or at most 0 (False) for the form to hold, and the condition
    as text.
    """

    names: tuple[str, ...]
    steps: tuple[Instruction, ...]
    limits: tuple[tuple[CompiledCell, bool, str], ...] = ()

    def __call__(self, *values: Input) -> Any:
        """The form's values, arrays broadcast against each other.

        int64 where they are whole; Python integers in an object array, with a RuntimeWarning, where a bound
        on the way exceeds int64; float64 for forms with floats (joules, seconds) and for quotients that
        do not divide. Numbers give a number. Raises SpecError for values that are not integers, for points
        outside the domain, and where a divisor is 0 or no condition of a Piecewise holds.
        """
        if len(values) != len(self.names):
            message = f"{len(values)} values for {len(self.names)} symbols"
            raise _wrong(message, ", ".join(self.names), code="wrong-count")
        inputs = [whole(_integers(n, v)) for n, v in zip(self.names, values, strict=True)]
        for limit, equal, told in self.limits:
            beyond = limit(*values)
            bad = np.not_equal(beyond, 0) if equal else np.greater(beyond, 0)
            if np.any(bad):
                self._tell(bad, inputs, f"outside the domain of the closed forms, {told},")
        numbers = ExactArithmetic()
        results: list[Any] = []
        for step in self.steps:
            results.append(_done(step, results, inputs, numbers))
            for i in step.last:
                results[i] = None
        found = results[-1]
        if found.bad is not None and np.any(found.bad):
            self._tell(found.bad, inputs, "division by zero, or no condition holds,")
        made = _finished(found, numbers)
        if made.dtype == object or numbers.whole.widest:
            warnings.warn(
                f"values up to {float(numbers.whole.widest):.3g} do not fit int64: Python integers used",
                RuntimeWarning,
                stacklevel=2,
            )
        return made.item() if all(np.ndim(v) == 0 for v in values) else made

    def _tell(self, bad: Array, inputs: Sequence[Any], what: str) -> None:
        arrays = np.broadcast_arrays(bad, *(i.array for i in inputs))
        at = np.unravel_index(int(np.argmax(arrays[0])), arrays[0].shape)
        point = ", ".join(f"{n}={a[at]}" for n, a in zip(self.names, arrays[1:], strict=True))
        raise _wrong(f"{what} at {point}", "leave such points out", code="undefined-result")


def compile_cell(
    cell: object, symbols: Iterable[sympy.Symbol | str], *, domain: Domain | None = None
) -> CompiledCell:
    """The exact numpy function of a closed form, its arguments in the order of `symbols`.

    `cell`: a SymPy expression of integer symbols, such as a cell of `closed_forms(spec)`, or a number; of
    sums, products, quotients, whole powers, ceiling, floor, Mod, Max, Min, Abs and Piecewise.
    `symbols`: SymPy symbols or their names, e.g. `closed_forms(spec).symbols`.
    `domain`: of the closed forms, `closed_forms(spec).domain`; the function then refuses points outside it.
    Raises SpecError for a symbol that is not listed, Refused for other functions and for rounding of floats.

    >>> m, t = sympy.symbols("m t", integer=True, positive=True)
    >>> compile_cell(sympy.ceiling(m / t), [m, t])(2**60 + 1, 2)
    576460752303423489
    """
    import sympy

    given: object = tuple(symbols) if isinstance(symbols, Mapping) else symbols
    names = tuple(str(s) for s in listed("symbols", given, "closed_forms(spec).symbols"))
    if len({*names}) < len(names):
        raise _wrong(f"symbols named twice: {', '.join(names)}", "list each name once", code="duplicate-name")
    expr = sympy.sympify(cell) if isinstance(cell, (int, float)) else cell  # of a text it would run code
    if not isinstance(expr, sympy.Expr):
        message = f"{cell!r} is not a SymPy expression"
        raise _wrong(message, "give a cell with a formula or a number", code="wrong-type")
    limits = () if domain is None else _limits(domain, names)
    return CompiledCell(names, _with_last(_ExpressionWalk(names).walk(expr)), limits)


def _limits(domain: Domain, names: tuple[str, ...]) -> tuple[tuple[CompiledCell, bool, str], ...]:
    """Symbols from 1 on, and the conditions over the symbols that are listed."""
    if domain.breaking.further:
        message = "which dependences the mapping keeps is known at values only"
        raise Refused(message, "use forms.at, point by point", code="unsupported-symbol")
    given = [n for n in names if n in domain.analysis.symbols]
    result = [(f"{n} >= 1", False, 1 - domain.renderer.symbols[n]) for n in given]
    for condition in domain.conditions:
        if condition.symbols <= {*names}:
            excess = condition.excess(domain.renderer)
            result.append((condition.text(domain.renderer), condition.relation != "<=", excess))
    return tuple((compile_cell(expr, names), equal, text) for text, equal, expr in result)


class _ExpressionWalk:
    """Steps of an expression in execution order, each common subexpression once."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = {n: i for i, n in enumerate(names)}
        self.steps: list[Instruction] = []
        self.rounded: list[bool] = []
        self.places: dict[object, int] = {}

    def walk(self, expr: sympy.Basic) -> list[Instruction]:
        pending: list[tuple[sympy.Basic, bool]] = [(expr, False)]
        while pending:  # no recursion: a sum over many phases may be deep
            node, ready = pending.pop()
            if node in self.places:
                continue
            if ready or not node.args:
                self.places[node] = self._step(node)
            else:
                pending.append((node, True))
                pending += [(a, False) for a in node.args]
        return self.steps

    def _step(self, node: sympy.Basic) -> int:
        kind, parts = _kind(node), tuple(self.places[a] for a in node.args)
        payload: Any = None
        inexact = any(self.rounded[p] for p in parts) and kind not in _RELATIONS
        if kind == "Symbol":
            if node.name not in self.names:
                message = f"symbol {node.name} is not listed"
                raise _wrong(message, f"symbols given: {', '.join(self.names)}", code="unknown-name")
            payload = self.names[node.name]
        elif kind == "Rational":
            payload = int(node.p), int(node.q)
        elif kind == "Float":
            payload, inexact = float(node), True
        elif kind == "Pow":
            exponent = node.args[1]
            if not exponent.is_Integer:
                message = f"{node} has an exponent that is not whole"
                raise Refused(message, "evaluate it with lambdify", code="unsupported-operation")
            payload, parts = int(exponent), parts[:1]
        elif kind in _WHOLE_ONLY and inexact:
            message = f"{node} rounds a float, which is not exact"
            raise Refused(message, "write decimals as fractions", code="unsupported-operation")
        self.steps.append(Instruction(kind, parts, payload))
        self.rounded.append(inexact)
        return len(self.steps) - 1


_KNOWN = frozenset(
    ("Symbol", "Add", "Mul", "Pow", "Max", "Min", "Abs", "Piecewise", "ExprCondPair", "And", "Or", "Not")
) | {*_RELATIONS, *_WHOLE_ONLY}


def _kind(node: sympy.Basic) -> str:
    import sympy

    if isinstance(node, sympy.Rational):
        return "Rational"
    if isinstance(node, sympy.Float) or node in (sympy.oo, -sympy.oo):
        return "Float"
    if isinstance(node, (sympy.logic.boolalg.BooleanTrue, sympy.logic.boolalg.BooleanFalse)):
        return "true" if node else "false"
    kind = "Symbol" if node.is_Symbol else type(node).__name__
    if kind not in _KNOWN:
        message = f"{kind} has no exact integer code ({node})"
        raise Refused(message, "evaluate it with lambdify", code="unsupported-operation")
    return kind


def _with_last(steps: Sequence[Instruction]) -> tuple[Instruction, ...]:
    """The steps, each with the results for which it is the last use."""
    needed: set[int] = set()
    result: list[Instruction] = []
    for step in reversed(steps):
        last = tuple(sorted({*step.parts} - needed))
        needed |= {*last}
        result.append(Instruction(step.kind, step.parts, step.payload, last))
    return tuple(reversed(result))


def _done(step: Instruction, results: Sequence[Any], inputs: Sequence[Any], do: ExactArithmetic) -> Any:
    """The result of one step: a Value, or for conditions a truth value."""
    parts = [results[i] for i in step.parts]
    kind = step.kind
    if kind == "Symbol":
        return ExactRatio(inputs[step.payload], ONE)
    if kind == "Rational":
        return ExactRatio(constant(step.payload[0]), constant(step.payload[1]))
    if kind == "Float":
        return RoundedArray(np.asarray(step.payload))
    if kind in ("true", "false"):
        return np.asarray(kind == "true"), None
    if kind in ("Add", "Mul"):
        return reduce(do.add if kind == "Add" else do.times, parts)
    if kind == "Pow":
        base = parts[0] if step.payload > 0 else do.inverse(parts[0])
        return reduce(do.times, [base] * abs(step.payload))
    if kind in ("Max", "Min"):
        better = operator.ge if kind == "Max" else operator.le
        result = reduce(lambda a, b: do.select(do.compared(better, a, b)[0], a, b), parts)
        return replace(result, bad=either(*(p.bad for p in parts)))
    if kind in _RELATIONS:
        return do.compared(_RELATIONS[kind], parts[0], parts[1])
    if kind in ("And", "Or", "Not", "ExprCondPair"):
        return _logic(kind, parts)
    if kind == "Piecewise":
        return _pieces(parts, do)
    one = {"floor": do.floor, "ceiling": do.ceiling, "Abs": do.magnitude}
    return do.remainder(parts[0], parts[1]) if kind == "Mod" else one[kind](parts[0])


def _logic(kind: str, parts: list[Any]) -> Any:
    if kind == "ExprCondPair":
        return tuple(parts)
    if kind == "Not":
        return np.logical_not(parts[0][0]), parts[0][1]
    both = np.logical_and if kind == "And" else np.logical_or
    return reduce(both, (p[0] for p in parts)), either(*(p[1] for p in parts))


def _pieces(pairs: list[tuple[Value, Truth]], do: ExactArithmetic) -> Value:
    """The first piece whose condition holds; bad where none does."""
    result: Value = ExactRatio(constant(0), ONE, np.True_)
    for value, (holds, bad) in reversed(pairs):
        result = do.select(holds, value, result)
        if bad is not None:
            result = replace(result, bad=either(result.bad, bad))
    return result


def _finished(found: Value, do: ExactArithmetic) -> Array:
    if isinstance(found, RoundedArray):
        return found.array
    if found.bottom.constant != 1:
        rest = do.whole.remainder(found.top, found.bottom)
        if np.any(rest.array != 0):
            return floats(found)
    return do.whole.floordiv(found.top, found.bottom).tighten().array


def _integers(name: str, value: Input) -> Array:
    """The values as int64, or as Python integers if they do not fit."""
    array = np.asarray(value)
    if array.dtype.kind == "f" and np.all(array == np.floor(array)) and np.all(np.abs(array) < FLOAT_WHOLE):
        return array.astype(np.int64)
    if array.dtype.kind == "i":
        # -2^63 has no negative in int64.
        small = array.dtype != np.int64 or not array.size or int(array.min()) >= -MOST
        return array.astype(np.int64 if small else object)
    if array.dtype.kind == "u":
        return array.astype(object)
    if array.dtype == object and all(type(x) is int or isinstance(x, np.integer) for x in array.flat):
        return np.frompyfunc(int, 1, 1)(array) if array.ndim else np.asarray(int(array.item()), object)
    message = f"{name}: values are not integers"
    raise _wrong(message, "give an integer or an array of integers", code="not-an-integer")


def _wrong(message: str, remedy: str, *, code: str) -> SpecError:
    return SpecError([Diagnostic(message, remedy, code=code)])
