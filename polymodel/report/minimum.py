"""The least value of a closed form under a capacity, as a formula: what textbooks derive by hand.

Forms whose tiles divide are sums of products of powers. A tile size of which more costs nothing and saves
nothing is taken at an end of its range; those that are left are found where the gradients of the form and of
the capacity point the same way (Lagrange), for up to two of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from polymodel.errors import Diagnostic, Refused, SpecError

if TYPE_CHECKING:
    pass

Expression = Any  # of SymPy
Ends = Mapping[
    Any, tuple[Expression, Expression]
]  # symbol -> the least and the largest value that it may have
_DIGITS = 60  # of the numbers at which roots are told apart
NUMERIC = "find it by numbers: pm.compile(spec) in an optimiser, or pm.sweep"


@dataclass(frozen=True)
class Minimum:
    """The least value of an objective over real tile sizes.

    `value`: an expression in the capacity and the extents; `at`: tile size -> where it is taken. It holds
    where every tile size of `at` lies within its range, that is for capacities that are neither tiny nor so
    large that a whole operand fits.
    """

    value: Expression
    at: Mapping[str, Expression]

    def leading(self, symbol: Any) -> Expression:
        """The value for large values of a symbol: the terms without it, and of those with it what falls most
        slowly, as 2*K*M*N/sqrt(S) + M*N of a matmul."""
        import sympy

        small, apart = sympy.Symbol("_small", positive=True), sympy.Integer(0)
        symbol = sympy.Symbol(symbol, positive=True) if isinstance(symbol, str) else symbol
        by_power: dict[Any, Any] = {}
        for term in sympy.Add.make_args(self.value):
            turned = sympy.simplify(term.subs(symbol, small**-2))
            if not turned.has(small):
                apart += turned
                continue
            first = turned.as_leading_term(small)
            power = first.as_coeff_exponent(small)[1]
            by_power[power] = by_power.get(power, 0) + first
        for _, terms in sorted(by_power.items()):
            whole = sympy.simplify(terms.subs(small, 1 / sympy.sqrt(symbol)))
            if whole != 0:
                return apart + sympy.powdenest(whole, force=True)
        return apart


def minimum(objective: Expression, held: Expression, capacity: Expression, ends: Ends) -> Minimum:
    """Where an objective is least while `held` is at most `capacity`.

    `ends`: the symbols that may be chosen, with their ranges. Raises Refused where there is no formula,
    SpecError where nothing is to be chosen.
    """
    import sympy

    objective, held = sympy.sympify(objective), sympy.sympify(held)
    for form in (objective, held):
        rough = form.atoms(sympy.ceiling, sympy.floor, sympy.Piecewise, sympy.Max, sympy.Min)
        if rough:
            what = f"{min(map(str, rough), key=len)} has no derivative"
            raise Refused(
                what, f"take the forms under assume='divides', or {NUMERIC}", code="unsupported-symbol"
            )
    if not ends:
        remedy = "leave tile sizes symbols: closed_forms(spec), or closed_forms(spec, tiles=True)"
        message = "no tile size is a symbol, so that there is nothing to choose"
        raise SpecError([Diagnostic(message, remedy, code="nothing-to-show")])
    chosen: dict[Any, Expression] = {}
    free = list(ends)
    while True:
        found = next(((x, end) for x in free if (end := _end(objective, held, x, ends[x])) is not None), None)
        if found is None:
            break
        x, end = found
        free.remove(x)
        objective, held = objective.subs(x, end), held.subs(x, end)
        chosen = {y: v.subs(x, end) for y, v in chosen.items()} | {x: end}
    inside = _inside(objective, held, capacity, free) if free else {}
    # Term by term: what does not depend on the capacity stays apart.
    value = sum(sympy.factor(t.subs(inside)) for t in sympy.Add.make_args(sympy.expand(objective)))
    at = {x: sympy.simplify(sympy.sympify(v).subs(inside)) for x, v in (chosen | inside).items()}
    return Minimum(value, {x.name: at[x] for x in ends})


def _end(
    objective: Expression, held: Expression, x: Any, ends: tuple[Expression, Expression]
) -> Expression | None:
    """The end of its range that is best for a symbol whatever the others are; None if there is none such."""
    costs, takes = _direction(objective, x), _direction(held, x)
    if costs is None or takes is None:
        return None
    if costs >= 0 and takes >= 0:
        return ends[0]
    return ends[1] if costs <= 0 and takes <= 0 else None


def _direction(form: Expression, x: Any) -> int | None:
    """1 if a form grows with x wherever symbols are positive, -1 if it falls, 0 if it has no x."""
    import sympy

    slope = sympy.expand(sympy.diff(form, x))
    if slope == 0:
        return 0
    terms = sympy.Add.make_args(slope)
    if all(t.is_positive for t in terms):
        return 1
    return -1 if all(t.is_negative for t in terms) else None


def _inside(
    objective: Expression, held: Expression, capacity: Expression, free: Sequence[Any]
) -> dict[Any, Any]:
    """Values of the symbols that are left, at which the capacity is used up and no exchange of two pays."""
    import sympy

    if len(free) > 2:
        names = ", ".join(x.name for x in free)
        message = f"{names} depend on each other: no formula for more than two"
        raise Refused(message, NUMERIC, code="unsupported-symbol")
    # Positive reals: positive integers would hide roots.
    real = {x: sympy.Symbol(x.name, positive=True) for x in {*free, *sympy.sympify(capacity).free_symbols}}
    f, g, most = (sympy.sympify(e).subs(real) for e in (objective, held, capacity))
    symbols = [real[x] for x in free]
    equations = [sympy.together(g - most)]
    if len(free) == 2:
        x, y = symbols
        balance = sympy.diff(f, x) * sympy.diff(g, y) - sympy.diff(f, y) * sympy.diff(g, x)
        equations.append(sympy.numer(sympy.together(balance)))
    found = []
    for solution in _solutions(equations, symbols):
        value = f.subs(solution)
        if value.has(sympy.zoo, sympy.nan) or any(v.free_symbols & set(symbols) for v in solution.values()):
            continue
        found.append((solution, value))
    if not found:
        message = f"{', '.join(x.name for x in free)}: no formula was found"
        raise Refused(message, NUMERIC, code="unsupported-symbol")
    best = _best(found, f, g, {real[x] for x in sympy.sympify(capacity).free_symbols})
    if best is None:
        names = ", ".join(x.name for x in free)
        message = f"{names}: no formula was found whose tile sizes are above 0"
        raise Refused(message, NUMERIC, code="unsupported-symbol")
    back = {new: old for old, new in real.items()}
    return {x: best[real[x]].subs(back) for x in free}


def _best(
    found: Sequence[tuple[dict[Any, Any], Expression]], f: Expression, g: Expression, capacity: set[Any]
) -> dict[Any, Any] | None:
    """Of several points the one that is best for a large capacity, of those whose tile sizes are above 0 and
    where more room saves something; None if there is none such. Roots are told apart at numbers: extents of
    any size, or if the capacity is a number too small for them, of little more than 1."""
    import sympy

    others = sorted({t for _, v in found for t in v.free_symbols} - capacity, key=str)
    for extents in (
        [sympy.Integer(sympy.prime(4 + i)) for i in range(len(others))],
        [1 + sympy.Rational(1, sympy.prime(4 + i)) for i in range(len(others))],
    ):
        trial = dict(zip(others, extents, strict=True)) | {s: sympy.Integer(10) ** 30 for s in capacity}
        valued = []
        for point, value in found:
            there = {x: sympy.N(v.subs(trial), _DIGITS) for x, v in point.items()}
            if not all(v.is_real and v > 0 for v in there.values()):
                continue
            x = next(iter(there))
            saved, taken = (sympy.N(e.diff(x).subs(trial).subs(there), _DIGITS) for e in (f, g))
            if saved * taken <= 0:
                valued.append((sympy.N(value.subs(trial), _DIGITS), point))
        if valued:
            return min(valued, key=lambda pair: pair[0])[1]
    return None


def _solutions(equations: Sequence[Expression], symbols: Sequence[Any]) -> list[dict[Any, Any]]:
    """Positive solutions of one equation in one symbol, or of two in two."""
    import sympy

    if len(symbols) == 1:
        return [{symbols[0]: v} for v in sympy.solve(equations[0], symbols[0])]
    x, y = symbols
    result: list[dict[Any, Any]] = []
    for factor, _ in sympy.factor_list(equations[1])[1]:
        if not factor.has(x) or not factor.has(y):
            continue
        for ratio in sympy.solve(factor, y):
            for v in sympy.solve(sympy.numer(sympy.together(equations[0].subs(y, ratio))), x):
                result.append({x: v, y: sympy.simplify(ratio.subs(x, v))})
    return result
