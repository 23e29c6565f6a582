"""The least value of a closed form under a capacity, as a formula: the derivation that textbooks do by hand.

Forms whose tiles divide are sums of products of powers. A tile size that always saves or always costs when it
grows is taken at an end of its range; the others are at points where the gradients of the form and of the
capacity are parallel (Lagrange): sizes that are a multiple of another one are eliminated first, and up to
three are solved for. A size that is a root of a polynomial of degree three or more is kept as that
polynomial.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from itertools import combinations, permutations
from typing import Any

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.frozen import dataclass
from polymodel.report.growth import DIGITS, leading_of, one_sign, real_roots, root_growth, solved

Expression = Any  # of SymPy
Ends = Mapping[Any, tuple[Expression, Expression]]  # symbol -> its least and its largest value
_ROUNDING = 1e-12  # relative
_SHOWN = 15  # digits of results
_MOST_TERMS = 12  # of equations that are solved together; elimination takes minutes of larger ones
DIVIDING = "take the forms of tiles that divide: --assume divides, assume='divides' in Python"
NUMERIC = "find it by numbers: polymodel sweep, or pm.compile(spec) in an optimiser"


@dataclass(frozen=True)
class Minimum:
    """The least value of an objective over real tile sizes.

    `value`: an expression in the capacity and the extents; `at`: tile size -> its best value. Both hold where
    every tile size of `at` lies within its range (`ranges`: tile size -> the least and the greatest): for
    capacities that are neither tiny nor so large that a whole operand fits. The greatest is half of the
    enclosing tile, since no larger size but the whole divides it. `roots`: size -> a polynomial that is 0 at
    its best value, for sizes without an expression in radicals; `value` and `at` then contain that size as a
    symbol (`numbers` has their values). `where`: expressions that are not below 0 where the formula holds, if
    the capacity limits the largest of several peaks: one for each of the others. `problem`: the objective,
    the limited figure, the capacity, and the ranges of the symbols to choose.
    """

    value: Expression
    at: Mapping[str, Expression]
    roots: Mapping[str, Expression] = field(default_factory=dict)
    where: tuple[Expression, ...] = ()
    ranges: Mapping[str, tuple[Expression, Expression]] = field(default_factory=dict)
    problem: tuple[Expression, Expression, Expression, Ends] | None = field(default=None, repr=False)

    def leading(self, symbol: Any) -> Expression:
        """The value for large values of a symbol: the terms without it, and of those with it what falls most
        slowly, as 2*K*M*N/sqrt(S) + M*N of a matmul. Refused where no radicals tell the growth of a root."""
        import sympy

        symbol = sympy.Symbol(symbol, positive=True) if isinstance(symbol, str) else symbol
        known = {}
        for name, polynomial in self.roots.items():
            size = sympy.Symbol(name, positive=True)

            def there(trial: Mapping[Any, Any], name: str = name) -> Expression:
                return self._there(trial)[1][name]

            known[size] = root_growth(polynomial, size, symbol, there)
        terms = sympy.Add.make_args(self.value)
        moving = [t for t in terms if t.has(symbol, *known)]
        apart = sympy.Add(*(t for t in terms if t not in moving))
        return apart + leading_of(sympy.Add(*moving), symbol, known) if moving else apart

    def numbers(self, **values: float) -> Minimum:
        """The same with a number for every symbol. Where the formula does not hold, because a tile size lies
        outside its range or another peak is the largest, the problem is solved anew for these numbers: each
        size is then the whole enclosing tile, or at most half of it. Raises SpecError for unknown names, for
        missing ones, and where not even the smallest tiles fit; Refused if there is no formula."""
        import sympy

        sizes = set(self.roots)
        every = [self.value, *self.at.values(), *self.roots.values(), *self.where]
        every += [end for ends in self.ranges.values() for end in ends]
        sizes |= set(self.at)
        names = {s.name: s for e in every for s in sympy.sympify(e).free_symbols if s.name not in sizes}
        remedy = f"give a number each for {', '.join(sorted(names))}"
        faults = [
            Diagnostic(f"{n} {why}", remedy, n, code="unknown-name")
            for n, why in (
                *((n, "is no symbol of this formula") for n in values if n not in names),
                *((n, "has no number") for n in names if n not in values),
            )
        ]
        if faults:
            raise SpecError(faults)
        trial = {names[n]: sympy.nsimplify(v) for n, v in values.items()}
        value, at = self._there(trial)
        there = trial | {s: at[s.name] for e in self.where for s in e.free_symbols if s.name in sizes}
        above = [sympy.N(e.subs(there), DIGITS) for e in self.where]
        if self.problem is None:
            self._require_ranges(trial, at)
        elif any(e < 0 for e in above) or self._beyond(trial, at):
            value, at = _least_at(*self._with_numbers(trial))
            above = []
        best = {n: sympy.N(v, _SHOWN) for n, v in at.items()}
        where = tuple(sympy.N(e, _SHOWN) for e in above)
        return replace(self, value=sympy.N(value, _SHOWN), at=best, roots={}, where=where)

    def plot(
        self, symbol: str, low: float, high: float, *, name: str = "value", ax: Any = None, **values: float
    ) -> Any:
        """The least value while a symbol runs from `low` to `high`: `report.plots_slope.least_axes`."""
        from polymodel.report.plots_slope import least_axes

        return least_axes(self, symbol, low, high, name=name, ax=ax, **values)

    def _with_numbers(self, trial: Mapping[Any, Any]) -> tuple[Expression, Expression, Expression, Ends]:
        """Return the problem with numbers for all symbols."""
        assert self.problem is not None
        *forms, ends = self.problem
        narrow = {x: (low.subs(trial), high.subs(trial)) for x, (low, high) in ends.items()}
        objective, held, capacity = (f.subs(trial) for f in forms)
        return objective, held, capacity, narrow

    def _beyond(self, trial: Mapping[Any, Any], at: Mapping[str, Expression]) -> list[tuple[str, str, Any]]:
        """The tile sizes outside their ranges at these numbers: name, side, and the end as an expression."""
        result = []
        for name, (least, greatest) in self.ranges.items():
            for end, side in ((least, "below"), (greatest, "above")):
                bound = _at_sizes(end, trial, at)
                beyond = at[name] - bound if side == "above" else bound - at[name]
                if beyond > _ROUNDING * abs(bound):
                    result.append((name, side, end))
        return result

    def _require_ranges(self, trial: Mapping[Any, Any], at: Mapping[str, Expression]) -> None:
        """Raise SpecError if a tile size lies outside its range at these numbers."""
        import sympy

        faults = []
        for name, side, end in self._beyond(trial, at):
            bound = _at_sizes(end, trial, at)
            shown = end if sympy.sympify(end).is_number else f"{end} = {sympy.N(bound, 6)}"
            message = f"{name} = {sympy.N(at[name], 6)} is {side} {shown}"
            more = "smaller" if side == "above" else "larger"
            remedy = f"the formula does not hold: give a {more} capacity, or {NUMERIC}"
            faults.append(Diagnostic(message, remedy, name, code="out-of-range"))
        if faults:
            raise SpecError(faults)

    def _there(self, trial: Mapping[Any, Any]) -> tuple[Expression, dict[str, Expression]]:
        """Return the least value, and the tile sizes, at numbers of all symbols.

        If weights are equal, quotients of their differences may be 0 / 0: the problem is then solved again
        for these numbers.
        """
        import sympy

        if not self.roots:
            at = {n: sympy.N(sympy.sympify(v).subs(trial), DIGITS) for n, v in self.at.items()}
            return sympy.N(self.value.subs(trial), DIGITS), at
        (name, polynomial), *_ = self.roots.items()
        size = sympy.Symbol(name, positive=True)
        found = []
        for root in real_roots(polynomial.subs(trial), size):
            there = {**trial, size: root}
            at = {n: sympy.N(sympy.sympify(v).subs(there), DIGITS) for n, v in self.at.items()}
            value = sympy.N(self.value.subs(there), DIGITS)
            if value.is_real and all(v.is_real and v > 0 for v in at.values()):
                found.append((value, at))
        if not found and self.problem is not None:
            return replace(minimum(*self._with_numbers(trial)), problem=None)._there({})
        if not found:
            message = f"no size of {name} is above 0 there"
            raise Refused(message, "give a larger capacity", code="unsupported-symbol")
        return min(found, key=lambda pair: pair[0])


def _at_sizes(end: Expression, trial: Mapping[Any, Any], at: Mapping[str, Expression]) -> Expression:
    """Return an end of a range at numbers; `at` gives those of the tile sizes."""
    import sympy

    bound = sympy.sympify(end).subs(trial)
    return bound.subs({s: at[s.name] for s in bound.free_symbols if s.name in at})


def _least_at(
    objective: Expression, held: Expression, capacity: Expression, ends: Ends
) -> tuple[Expression, dict[str, Expression]]:
    """The least value and the sizes for numbers of all other symbols, where each size is the whole enclosing
    tile or at most half of it."""
    import sympy

    regimes = list(_regimes(objective, held, capacity, ends, {}))
    if not regimes:
        most = sympy.N(capacity, 6)
        message = f"no tiles fit into {most}"
        raise SpecError([Diagnostic(message, "give a larger capacity", code="out-of-range")])
    return min(regimes, key=lambda pair: pair[0])


def _regimes(
    objective: Expression, held: Expression, capacity: Expression, ends: Ends, fixed: Mapping[Any, Expression]
) -> Iterator[tuple[Expression, dict[str, Expression]]]:
    """The best value and sizes for each choice of the sizes that are at an end of their range. All other
    symbols have numbers; `fixed`: sizes that are chosen already."""
    import sympy

    if held.subs({x: low for x, (low, _) in ends.items()}) > capacity:
        return
    if not ends:
        yield sympy.N(objective, DIGITS), {x.name: sympy.N(v, DIGITS) for x, v in fixed.items()}
        return
    found = minimum(objective, held, capacity, ends)
    value, at = found._there({})
    sizes = {x: at[x.name] for x in ends}
    beyond = {name for name, _, _ in found._beyond({}, at)}
    if not beyond and abs(sympy.N(objective.subs(sizes), DIGITS) - value) > _ROUNDING * abs(value):
        beyond = {x.name for x in ends if sizes[x] != ends[x][1]}  # exactly two tiles may be another case
    if not beyond:
        yield value, {**at, **{x.name: sympy.N(v, DIGITS) for x, v in fixed.items()}}
        return
    x = next(x for x in ends if x.name in beyond)
    low, most = ends[x]
    for size in {low, most / 2, most}:
        if low <= size <= most:
            there = {x: size}
            left = {y: (a.subs(there), b.subs(there)) for y, (a, b) in ends.items() if y != x}
            yield from _regimes(objective.subs(there), held.subs(there), capacity, left, {**fixed, **there})


def minimum(objective: Expression, held: Expression, capacity: Expression, ends: Ends) -> Minimum:
    """The tile sizes at which an objective is least while `held` is at most `capacity`.

    `ends`: the symbols that may be chosen, with their ranges. Raises Refused where there is no formula,
    SpecError if there is nothing to choose.
    """
    import sympy

    if not ends:
        remedy = "write symbols as tile sizes, or make them symbols: --tiles, tiles=True in Python"
        message = "no tile size is a symbol, so that there is nothing to choose"
        raise SpecError([Diagnostic(message, remedy, code="nothing-to-show")])
    whole, left = [sympy.sympify(f) for f in (objective, held)], dict(ends)
    chosen: dict[Any, Expression] = {}
    uncut: set[Any] = set()  # sizes that are best as the whole enclosing tile
    while True:
        form, *peaks = _smooth(whole, left)
        found = next(((x, end) for x in left if (end := _end(form, peaks, x, left[x])) is not None), None)
        if found is None:
            break
        x, end = found
        if end == left[x][1]:
            uncut.add(x)
        else:
            whole = [_of_several_tiles(f, {x: left[x]}) for f in whole]
        whole = [f.subs(x, end) for f in whole]
        chosen = {y: v.subs(x, end) for y, v in chosen.items()} | {x: end}
        left = {y: (low.subs(x, end), high.subs(x, end)) for y, (low, high) in left.items() if y != x}
    refusals: list[Refused] = []
    for peak in peaks:
        try:
            inside, roots = _inside(form, peak, capacity, list(left)) if left else ({}, {})
        except Refused as refusal:
            refusals.append(refusal)
            continue
        # Term by term, so that terms without the capacity stay separate.
        value = sum(sympy.factor(t.subs(inside)) for t in sympy.Add.make_args(sympy.expand(form)))
        at = {x: _short(sympy.sympify(v).subs(inside)) for x, v in (chosen | inside).items()}
        sizes = {x.name: at[x] for x in ends}
        ranges = {x.name: (low, most if x in uncut else most / 2) for x, (low, most) in ends.items()}
        solved_for = objective, held, sympy.sympify(capacity), ends
        one = Minimum(value, sizes, {x.name: p for x, p in roots.items()}, ranges=ranges, problem=solved_for)
        above = [sympy.factor((peak - p).subs(inside)) for p in peaks if p is not peak]
        if not above or _is_largest(one, above, sympy.sympify(capacity).free_symbols):
            return replace(one, where=tuple(above))
    if refusals:
        raise refusals[0]
    message = f"which of {len(peaks)} peaks uses up the capacity depends on the sizes"
    raise Refused(message, NUMERIC, code="unsupported-symbol")


def _smooth(forms: Sequence[Expression], ends: Ends) -> list[Expression]:
    """An objective, and the peaks of which the largest is limited, where each loop has several tiles. Raises
    Refused for forms without a derivative."""
    import sympy

    from polymodel.analysis.symbolic.region_terms import RegionCount

    listed = {count for f in forms for count in f.atoms(RegionCount)}
    if listed:
        what = f"{min(map(str, listed), key=len)} is counted at whole tile sizes, and has no derivative"
        raise Refused(what, NUMERIC, code="unsupported-symbol")
    objective, held = (_without_less(_of_several_tiles(f, ends)) for f in forms)
    result = [objective, *(held.args if isinstance(held, sympy.Max) else (held,))]
    for form in result:
        rough = form.atoms(sympy.ceiling, sympy.floor, sympy.Piecewise, sympy.Max, sympy.Min)
        if rough:
            first = min(rough, key=lambda case: len(str(case)))
            others = sorted(s.name for s in first.free_symbols - {*ends})
            numbers = " ".join(f"--at {n}=..." for n in others)
            known = f"give numbers for {', '.join(others)}: {numbers}, forms.at(...) in Python; or "
            remedy = f"{known if others else ''}{DIVIDING}; or {NUMERIC}"
            raise Refused(f"{first} has no derivative", remedy, code="unsupported-symbol")
    return result


def _of_several_tiles(form: Expression, ends: Ends) -> Expression:
    """The form where more than two tiles of each size are in the enclosing one, so that first, last and
    single tiles are not separate cases."""
    import sympy

    less = {x: sympy.Dummy(positive=True) for x, (_, most) in ends.items() if most.is_finite is not False}
    there = {x: ends[x][1] / 2 - d for x, d in less.items()}
    back = {d: ends[x][1] / 2 - x for x, d in less.items()}
    while True:
        cases = form.atoms(sympy.Piecewise, sympy.Min, sympy.Max)
        inner = [c for c in cases if not any(c is not o and c.has(o) for o in cases)]
        told = {c: c.subs(there, simultaneous=True).subs(back) for c in inner}
        told = {c: sympy.expand(v) for c, v in told.items() if not v.has(type(c))}
        if not told:
            return form
        form = form.xreplace(told)


def _is_largest(found: Minimum, above: Sequence[Expression], capacity: set[Any]) -> bool:
    """True if the peak that fills a large capacity exceeds all others at these values."""
    import sympy

    others = {t for e in (found.value, *above, *found.at.values()) for t in e.free_symbols} - capacity
    names = sorted((t for t in others if t.name not in found.roots), key=str)
    trial = {t: sympy.Integer(sympy.prime(4 + i)) for i, t in enumerate(names)}
    trial |= {s: sympy.Integer(10) ** 30 for s in capacity}
    sizes = found._there(trial)[1]
    there = {**trial, **{s: sizes[s.name] for e in above for s in e.free_symbols if s.name in found.roots}}
    return all(sympy.N(e.subs(there), DIGITS) >= 0 for e in above)


def _short(form: Expression) -> Expression:
    """Simplified, unless the expression is long."""
    import sympy

    return sympy.simplify(form) if form.count_ops() < 200 else form


def _without_less(form: Expression) -> Expression:
    """The form without arguments of maxima that never exceed another one while every symbol is at least 1."""
    import sympy

    def no_less(more: Expression, less: Expression) -> bool:
        difference = more - less
        shifted = sympy.expand(difference.subs({s: 1 + s for s in difference.free_symbols}))
        return all(t.is_nonnegative for t in sympy.Add.make_args(shifted))

    def largest(*arguments: Expression) -> Expression:
        kept: list[Expression] = []
        for one in arguments:
            if not any(no_less(other, one) for other in kept):
                kept = [*(other for other in kept if not no_less(one, other)), one]
        return sympy.Max(*kept)

    return form.replace(sympy.Max, largest)


def _end(
    objective: Expression, peaks: Sequence[Expression], x: Any, ends: tuple[Expression, Expression]
) -> Expression | None:
    """The end of its range that is best for a symbol whatever the others are; None if it depends on them."""
    costs, every = _direction(objective, x), {_direction(peak, x) for peak in peaks}
    takes = next(iter(every - {0}), 0) if len(every - {0}) < 2 else None
    if costs is None or takes is None:
        return None
    if costs >= 0 and takes >= 0:
        return ends[0]
    return ends[1] if costs <= 0 and takes <= 0 else None


def _direction(form: Expression, x: Any) -> int | None:
    """1 if a form increases with x wherever symbols are positive, -1 if it decreases, 0 if it does not depend
    on x."""
    import sympy

    slope = sympy.expand(sympy.diff(form, x))
    if slope == 0:
        return 0
    terms = sympy.Add.make_args(slope)
    if all(t.is_positive for t in terms):
        return 1
    return -1 if all(t.is_negative for t in terms) else None


@dataclass(frozen=True)
class _Point:
    """Sizes at which no exchange of two is an improvement; `root`: a polynomial in one of them whose value is
    0, or None."""

    sizes: Mapping[Any, Expression]
    root: tuple[Any, Expression] | None = None


def _inside(
    objective: Expression, held: Expression, capacity: Expression, free: Sequence[Any]
) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """Values of the symbols that are left, at which the capacity is used up and no exchange of two pays; and
    polynomials of those that are roots."""
    import sympy

    # Positive reals: positive integers would hide roots.
    real = {x: sympy.Symbol(x.name, positive=True) for x in {*free, *sympy.sympify(capacity).free_symbols}}
    f, g, most = (sympy.sympify(e).subs(real) for e in (objective, held, capacity))
    f = sympy.nsimplify(f, rational=True)  # joules are floats, with which elimination rounds
    multiples = _multiples(f, g, [real[x] for x in free])
    f, g = f.subs(multiples), g.subs(multiples)
    symbols = [real[x] for x in free if real[x] not in multiples]
    if len(symbols) > 3:
        names = ", ".join(x.name for x in symbols)
        message = f"{names} depend on each other: no formula for more than three independent sizes"
        raise Refused(message, NUMERIC, code="unsupported-symbol")
    found = _solutions(f, g, most, symbols)
    names = ", ".join(x.name for x in free)
    if not found:
        raise Refused(f"{names}: no formula was found", NUMERIC, code="unsupported-symbol")
    best = _best(found, f, g, {real[x] for x in sympy.sympify(capacity).free_symbols})
    if best is None:
        message = f"{names}: no formula was found whose tile sizes are above 0"
        raise Refused(message, NUMERIC, code="unsupported-symbol")
    sizes = {**best.sizes, **{x: v.subs(best.sizes) for x, v in multiples.items()}}
    back = {real[x]: x for x in real if best.root is None or real[x] != best.root[0]}
    roots = {best.root[0]: best.root[1].subs(back)} if best.root else {}
    return {x: sizes[real[x]].subs(back) for x in free}, roots


def _multiples(f: Expression, g: Expression, symbols: Sequence[Any]) -> dict[Any, Expression]:
    """Return, of at least three symbols, those that are an expression of another one at every point at which
    no exchange of the two is an improvement."""
    import sympy

    result: dict[Any, Expression] = {}
    left = list(symbols)
    while len(left) > 2:
        for x, y in permutations(left, 2):
            factors = [p for p in _balance(f, g, x, y) if not one_sign(p)]
            if len(factors) == 1 and sympy.degree(factors[0], y) == 1:
                ratio = sympy.solve(factors[0], y)[0]
                if ratio.free_symbols & set(left) == {x} and one_sign(sympy.numer(ratio)):
                    break
        else:
            return result
        left.remove(y)
        f, g = f.subs(y, ratio), g.subs(y, ratio)
        result = {z: v.subs(y, ratio) for z, v in result.items()} | {y: ratio}
    return result


def _balance(f: Expression, g: Expression, x: Any, y: Any) -> list[Expression]:
    """Return polynomials, one of which is 0 if no exchange of x and y is an improvement."""
    import sympy

    difference = sympy.diff(f, x) * sympy.diff(g, y) - sympy.diff(f, y) * sympy.diff(g, x)
    numerator = sympy.numer(sympy.together(difference))
    return [p for p, _ in sympy.factor_list(numerator)[1] if p.has(x) or p.has(y)]


def _best(found: Sequence[_Point], f: Expression, g: Expression, capacity: set[Any]) -> _Point | None:
    """Of several points the one that is best for a large capacity, of those whose tile sizes are above 0 and
    where more room saves something; None if there is none such. Roots are told apart at numbers: extents of
    any size, or if the capacity is a number too small for them, of little more than 1."""
    import sympy

    sizes = {x for point in found for x in point.sizes}
    others = sorted({t for e in (f, g) for t in e.free_symbols} - capacity - sizes, key=str)
    for extents in (
        [sympy.Integer(sympy.prime(4 + i)) for i in range(len(others))],
        [1 + sympy.Rational(1, sympy.prime(4 + i)) for i in range(len(others))],
    ):
        trial = dict(zip(others, extents, strict=True)) | {s: sympy.Integer(10) ** 30 for s in capacity}
        valued = []
        for point in found:
            for there in _numbers(point, trial):
                x = next(iter(there))
                saved, taken = (sympy.N(e.diff(x).subs(trial).subs(there), DIGITS) for e in (f, g))
                if saved * taken <= 0:
                    valued.append((sympy.N(f.subs(trial).subs(there), DIGITS), point))
        if valued:
            return min(valued, key=lambda pair: pair[0])[1]
    return None


def _numbers(point: _Point, trial: Mapping[Any, Any]) -> list[dict[Any, Any]]:
    """Return the tile sizes of a point, all above 0, at numbers of all other symbols."""
    import sympy

    several = [dict(trial)]
    if point.root:
        x, polynomial = point.root
        several = [{**trial, x: root} for root in real_roots(polynomial.subs(trial), x)]
    result = []
    for values in several:
        there = {x: sympy.N(v.subs(values), DIGITS) for x, v in point.sizes.items()}
        if all(v.is_real and v > 0 for v in there.values()):
            result.append(there)
    return result


def _solutions(f: Expression, g: Expression, most: Expression, symbols: Sequence[Any]) -> list[_Point]:
    """Return the points where one symbol uses up the capacity, or two do and no exchange improves it."""
    import sympy

    if len(symbols) == 1:
        return _of_one(g - most, symbols[0], {})
    result: list[_Point] = []
    if len(symbols) == 3:
        return _of_three(f, g - most, symbols)
    for factor in _balance(f, g, *symbols):
        if one_sign(factor):
            continue
        found: list[_Point] = []
        for x, y in permutations(symbols):
            room = sympy.numer(sympy.together(g - most))
            ratios = solved(factor, y) if factor.has(x) and factor.has(y) else None
            ways = [partial(_along, g - most, x, y, ratios)] if ratios is not None else []
            if sympy.degree(room, y) == 1:
                rest = sympy.solve(room, y)[0]
                ways.append(partial(_of_one, factor.subs(y, rest), x, {y: rest}))
            for way in ways:
                points = way()
                if points and (not found or all(p.root is None for p in points)):
                    found = points
                if found and all(p.root is None for p in found):
                    break
            if found:
                break
        result += found
    return result


def _of_three(f: Expression, room: Expression, symbols: Sequence[Any]) -> list[_Point]:
    """The points of three symbols: a polynomial in one of them, of which the others are expressions, by
    elimination (a Groebner basis in lexicographic order)."""
    import sympy

    pairs = list(combinations(symbols, 2))
    balances = [[p for p in _balance(f, room, x, y) if not one_sign(p)] for x, y in pairs]
    equations = [*(sympy.Mul(*factors) for factors in balances), sympy.numer(sympy.together(room))]
    if max(len(sympy.Add.make_args(sympy.expand(e))) for e in equations) > _MOST_TERMS:
        return []
    x, *others = symbols
    basis = sympy.groebner(equations, *others, x, order="lex")
    ratios = {}
    for y in others:
        linear = [e for e in basis.exprs if e.free_symbols & {*symbols} == {x, y} and sympy.degree(e, y) == 1]
        if not linear:
            return []
        ratios[y] = sympy.solve(linear[0], y)[0]
    alone = [e for e in basis.exprs if e.free_symbols & {*symbols} == {x}]
    return _of_one(alone[0], x, ratios) if len(alone) == 1 else []


def _along(room: Expression, x: Any, y: Any, ratios: Sequence[Expression]) -> list[_Point]:
    """The points that use up the capacity where one symbol is any of several expressions in the other."""
    import sympy

    result: list[_Point] = []
    for ratio in ratios:
        if not ratio.has(sympy.Pow) or ratio.is_rational_function(x):
            result += _of_one(room.subs(y, ratio), x, {y: ratio})
        else:
            result += _with_roots(room.subs(y, ratio), x, y, ratio)
    return result


def _of_one(equation: Expression, x: Any, others: Mapping[Any, Expression]) -> list[_Point]:
    """Return the points given by an equation in one symbol, with the others as expressions of it."""
    import sympy

    numerator = sympy.numer(sympy.together(equation))
    result = []
    for polynomial, _ in sympy.factor_list(numerator)[1]:
        if not polynomial.has(x):
            continue
        roots = solved(polynomial, x)
        if roots is None:
            result.append(_Point({x: x, **others}, (x, sympy.collect(sympy.expand(polynomial), x))))
        for v in roots or ():
            result.append(_Point({x: v, **{y: _short(e.subs(x, v)) for y, e in others.items()}}))
    return [p for p in result if not any(v.has(sympy.zoo, sympy.nan) for v in p.sizes.values())]


def _with_roots(equation: Expression, x: Any, y: Any, ratio: Expression) -> list[_Point]:
    """The points of an equation with radicals of its symbol, if these are plain powers."""
    import sympy

    numerator = sympy.numer(sympy.together(sympy.powdenest(sympy.expand(equation), force=True)))
    root = sympy.Symbol("_root", positive=True)
    turned = sympy.expand(sympy.powdenest(numerator.subs(x, root**2), force=True))
    if not turned.is_polynomial(root):
        return []
    values = solved(turned, root)
    points = [{x: v**2, y: _short(ratio.subs(x, v**2))} for v in values or ()]
    return [_Point(p) for p in points]
