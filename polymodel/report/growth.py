"""Signs of formulas, their asymptotic growth in a symbol, and roots of polynomials in radicals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from polymodel.errors import Refused

Expression = Any  # of SymPy
Growth = tuple[Expression, Expression]  # a coefficient and a power: for large S it is coefficient * S**power
DIGITS = 60  # of the numbers that distinguish roots
NUMERIC = "take its value at numbers: the minimum's numbers(...)"


def solved(polynomial: Expression, x: Any) -> list[Expression] | None:
    """The nonzero roots of a polynomial by square roots, or by a root of one power; None where these do not
    suffice. Exact roots only for polynomials with numeric coefficients."""
    import sympy

    try:
        one = sympy.Poly(polynomial, x)
    except sympy.PolynomialError:
        return None
    terms = one.terms()
    if len(terms) == 1:
        return []
    if one.degree() == 2 and not one_sign(one.LC()) and one_sign(one.nth(0)):
        return _inverted(*one.all_coeffs())
    if one.degree() <= 2:
        found: list[Expression] = sympy.solve(one.as_expr(), x)
        return [r for r in found if r != 0]
    if len(terms) == 2:
        ((more,), high), ((less,), low) = terms
        ratio = sympy.factor(-low / high)
        root = sympy.powdenest(ratio ** sympy.Rational(1, more - less), force=True)
        return [root] if (more - less) % 2 else [root, -root]
    if not one.free_symbols_in_domain and all(c.is_rational for c in one.all_coeffs()):
        return [r for r in sympy.real_roots(one) if r != 0]
    return None


def one_sign(form: Expression) -> bool:
    """True if it is plain that a sum is nonzero wherever its symbols are positive."""
    import sympy

    terms = sympy.Add.make_args(sympy.expand(form))
    return all(t.is_positive for t in terms) or all(t.is_negative for t in terms)


def negative_where(form: Expression, ends: Mapping[Any, tuple[Expression, Expression]]) -> Expression:
    """The condition under which a formula is below 0, as a SymPy relation, or true or false.

    Symbols are at least 1, and each of `ends` is at most the second of its pair. Factors whose sign follows
    from that are left out.
    """
    import sympy

    numerator, denominator = sympy.fraction(sympy.factor(sympy.together(form)))
    sign, rest, nonzero = 1, sympy.Integer(1), []
    for factor in (*sympy.Mul.make_args(numerator), *sympy.Mul.make_args(denominator)):
        base, power = factor.as_base_exp()
        known = _sign(base, ends)
        if known is None:
            rest *= factor
            continue
        one, sure = known
        sign *= one**power if power.is_integer else 1
        nonzero += [] if sure else [sympy.Ne(base, 0)]
    if rest == 1:
        return sympy.false if sign > 0 else sympy.And(*nonzero)
    return sympy.And(sympy.StrictLessThan(sympy.expand(sign * rest), 0), *nonzero)


def _sign(form: Expression, ends: Mapping[Any, tuple[Expression, Expression]]) -> tuple[int, bool] | None:
    """Return 1 or -1 if a formula is nowhere below, or above, 0, and whether it is certainly nonzero
    there."""
    import sympy

    for x, (_, most) in ends.items():  # of a chain of tiles the outermost first
        if most.is_Symbol:
            form = form.subs(most, x + sympy.Dummy(nonnegative=True))
    form = form.subs({s: 1 + sympy.Dummy(nonnegative=True) for s in form.free_symbols if s.is_positive})
    terms = sympy.Add.make_args(sympy.expand(form))
    for one in (1, -1):
        if all((one * t).is_nonnegative for t in terms):
            return one, any((one * t).is_positive for t in terms)
    return None


def _inverted(square: Expression, once: Expression, constant: Expression) -> list[Expression]:
    """Return the roots of a quadratic whose first coefficient may be 0 and whose last one is not, as
    quotients with the square root in the denominator, so that none is 0 / 0 where the first coefficient is
    0."""
    import sympy

    inside = sympy.factor(once**2 - 4 * square * constant)
    parts = [a.as_base_exp() for a in sympy.Mul.make_args(inside)]
    outer = sympy.Mul(*(b ** (e / 2) for b, e in parts if e.is_even))
    root = outer * sympy.sqrt(sympy.Mul(*(b**e for b, e in parts if not e.is_even)))
    return [
        sympy.factor_terms(sympy.cancel(2 * constant / outer) / sympy.expand((s * root - once) / outer))
        for s in (1, -1)
    ]


def grown(form: Expression, symbol: Any, known: Mapping[Any, Growth]) -> Growth:
    """The leading term of a formula for large values of a symbol; `known`: those of other symbols."""
    import sympy

    if not form.has(symbol, *known):
        return form, sympy.Integer(0)
    if form == symbol:
        return sympy.Integer(1), sympy.Integer(1)
    if form in known:
        return known[form]
    parts = [grown(a, symbol, known) for a in form.args]
    if form.is_Mul:
        return sympy.Mul(*(c for c, _ in parts)), sympy.Add(*(p for _, p in parts))
    if form.is_Pow and parts[1][1] == 0 and form.exp.is_number:
        base, power = parts[0]
        return sympy.powdenest(base**form.exp, force=True), power * form.exp
    if form.is_Add:
        most = max(p for _, p in parts)
        coefficient = sympy.Add(*(c for c, p in parts if p == most))
        if not _is_zero(coefficient):
            return coefficient, most
        if not form.has(*known):
            return _by_series(form, symbol)
    what = f"how {form} grows with {symbol} is not known"
    raise Refused(what, NUMERIC, code="unsupported-symbol")


def leading_of(form: Expression, symbol: Any, known: Mapping[Any, Growth]) -> Expression:
    """The leading term for large values of a symbol."""
    import sympy

    coefficient, power = grown(form, symbol, known)
    return sympy.powdenest(_plain(coefficient) * symbol**power, force=True)


def _plain(coefficient: Expression) -> Expression:
    import sympy

    return sympy.simplify(coefficient) if coefficient.count_ops() < 200 else coefficient


def _is_zero(form: Expression) -> bool:
    """True if the expression is 0; tested numerically first, since most are not."""
    import sympy

    names = sorted(form.free_symbols, key=str)
    values = {s: sympy.Integer(sympy.prime(9 + i)) for i, s in enumerate(names)}
    if abs(sympy.N(form.subs(values), DIGITS)) > sympy.Float(10) ** -40:
        return False
    return bool(sympy.simplify(form) == 0)


def _by_series(form: Expression, symbol: Any) -> Growth:
    """The leading term of a sum whose largest terms cancel."""
    import sympy

    small = sympy.Symbol("_small", positive=True)
    first = sympy.simplify(form.subs(symbol, small**-2)).as_leading_term(small)
    coefficient, power = first.as_coeff_exponent(small)
    return coefficient, -power / 2


def root_growth(
    polynomial: Expression, x: Any, symbol: Any, at: Callable[[Mapping[Any, Any]], Expression]
) -> Growth:
    """The growth of a root of a polynomial in a symbol (Newton's polygon); `at`: the root at numbers of all
    symbols, which selects the root."""
    import sympy

    one = sympy.Poly(polynomial, x)
    terms = {k: grown(sympy.factor(c), symbol, {}) for (k,), c in one.terms()}
    names = sorted(one.free_symbols_in_domain - {symbol}, key=str)
    values = {s: sympy.Integer(sympy.prime(4 + i)) for i, s in enumerate(names)}
    near, far = (at({**values, symbol: sympy.Integer(10) ** n}) for n in (30, 60))
    rate = sympy.log(far / near, 10) / 30
    powers = {(terms[i][1] - terms[j][1]) / (j - i) for i in terms for j in terms if i < j}
    power = min(powers, key=lambda q: abs(sympy.N(rate - q)))
    most = max(p + k * power for k, (_, p) in terms.items())
    edge = sum(c * x**k for k, (c, p) in terms.items() if p + k * power == most)
    roots = solved(edge, x)
    if not roots:
        what = f"how {x} grows with {symbol} is a root that no radicals tell"
        raise Refused(what, NUMERIC, code="unsupported-symbol")
    meant = far / sympy.Integer(10) ** (60 * power)
    return min(roots, key=lambda r: abs(sympy.N(r.subs(values) - meant, DIGITS))), power


def real_roots(polynomial: Expression, x: Any) -> list[Expression]:
    """The roots above 0 of a polynomial with numbers."""
    import sympy

    one = sympy.Poly(polynomial, x)
    numbers = sympy.Poly([sympy.nsimplify(c) for c in one.all_coeffs()], x)
    try:
        roots = sympy.real_roots(numbers)
    except NotImplementedError:  # irrational numbers
        roots = numbers.nroots(n=DIGITS, maxsteps=500)
    return [r for r in (sympy.N(r, DIGITS) for r in roots) if r.is_real and r > 0]
