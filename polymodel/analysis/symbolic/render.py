"""Closed forms as SymPy expressions, made on demand.

Tiles are legal, 1 <= tile <= enclosing tile, so `min(X, t)` is written `t` wherever X encloses t.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Literal

from polymodel.analysis.symbolic.atoms import NumberTable, Value
from polymodel.analysis.symbolic.forms import Chain, Factor, Form, HeldBuffet, PeakForm, names_in, size_in
from polymodel.analysis.symbolic.pair_atoms import StepOverlap

if TYPE_CHECKING:
    import sympy

Assume = Literal["divides"] | None


class Expressions:
    """`Ops` on SymPy integers. `nested`: pairs (tile, enclosing tile) of every chain."""

    def __init__(self, nested: Iterable[tuple[Value, Value]], divides: bool) -> None:
        import sympy

        self.sp = sympy
        self.nested = frozenset(nested)
        self.divides = divides
        # Expressions that are at least 1 because tiles are legal.
        self.one_or_more: set[Value] = {size for pair in self.nested for size in pair}

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "sp"}

    def __setstate__(self, state: dict[str, object]) -> None:
        """Import SymPy again, since modules are not pickled."""
        import sympy

        vars(self).update(state, sp=sympy)

    def fits(self, inner: Value, outer: Value) -> bool:
        """True if `inner <= outer` for all legal tiles."""
        if inner == outer:
            return True
        if self.is_number(inner) and self.is_number(outer):
            return bool(inner <= outer)
        if inner == 1:  # the remainder of a tile may be empty
            return bool(outer.is_Symbol) or outer in self.one_or_more
        return (inner, outer) in self.nested

    def is_number(self, a: Value) -> bool:
        return isinstance(a, int) or a.is_Integer

    def floordiv(self, a: Value, b: Value) -> Value:
        return self._quotient(a, b, self.sp.floor)

    def ceildiv(self, a: Value, b: Value) -> Value:
        return self._quotient(a, b, self.sp.ceiling)

    def _quotient(self, a: Value, b: Value, rounded: Value) -> Value:
        if self.is_number(a) and self.is_number(b):
            return rounded(self.sp.Rational(int(a), int(b)))
        whole = self.divides and self.fits(b, a)
        result = self.sp.sympify(a) / b if whole else rounded(self.sp.sympify(a) / b)
        if self.fits(b, a):
            self.one_or_more.add(result)
        return result

    def least(self, a: Value, b: Value) -> Value:
        if self.fits(b, a):
            return b
        return a if self.fits(a, b) else self.sp.Min(a, b)

    def most(self, a: Value, b: Value) -> Value:
        if self.fits(b, a):
            return a
        return b if self.fits(a, b) else self.sp.Max(a, b)

    def beyond(self, a: Value, b: Value) -> Value:
        if self.is_number(a) and self.is_number(b):
            return max(int(a) - int(b), 0)
        if self.fits(a, b):
            return 0
        return self.sp.sympify(a) - b if self.fits(b, a) else self.sp.Max(0, a - b)

    def above_zero(self, a: Value) -> Value:
        if self.is_number(a):
            return max(int(a), 0)
        if a + 1 in self.one_or_more or a in self.one_or_more:
            return a
        return self.sp.Max(0, a)

    def le(self, a: Value, b: Value) -> Value:
        if self.fits(a, b):
            return 1
        if self.is_number(a) and self.is_number(b):
            return 0
        condition = self.sp.Eq(a, b) if self.fits(b, a) else self.sp.Le(a, b)
        return self.sp.Piecewise((1, condition), (0, True))

    def positive(self, a: Value) -> Value:
        if self.is_number(a):
            return int(int(a) > 0)
        if a.is_Symbol or a in self.one_or_more:
            return 1
        return self.sp.Piecewise((1, self.sp.Gt(a, 0)), (0, True))

    def counted(self, table: NumberTable, sizes: Sequence[Value]) -> Value:
        from polymodel.analysis.symbolic.atoms import RoundedActions
        from polymodel.analysis.symbolic.pair_atoms import Tabled
        from polymodel.analysis.symbolic.region_terms import term

        if isinstance(table, RoundedActions):
            return table.by(self, sizes)
        assert isinstance(table, Tabled)
        return term(table, sizes)


class Renderer:
    """SymPy for forms and peaks; every atom is rendered once.

    `chains`: the sizes of each rank variable's loops, outermost (its extent) first. `assume="divides"`:
    every tile divides its enclosing one, which gives the textbook forms.
    """

    def __init__(self, chains: Iterable[Chain], assume: Assume = None) -> None:
        self._chains = tuple(chains)
        self._divides = assume == "divides"
        self._atoms: dict[Factor, sympy.Expr] = {}

    @cached_property
    def symbols(self) -> dict[str, sympy.Symbol]:
        """Positive integer symbols by name."""
        import sympy

        names = dict.fromkeys(s for chain in self._chains for s in names_in(chain))
        return {n: sympy.Symbol(n, integer=True, positive=True) for n in names}

    @cached_property
    def ops(self) -> Expressions:
        import sympy

        pairs = []
        for chain in self._chains:
            sizes = [size_in(s, self.symbols, sympy.Max) for s in chain]
            pairs += [(inner, outer) for outer, inner in combinations(sizes, 2)]
        return Expressions(pairs, self._divides)

    def atom(self, atom: Factor) -> sympy.Expr:
        result = self._atoms.get(atom)
        if result is None:
            result = self.ops.sp.sympify(atom.value(self.ops, self.symbols))
            if self._divides and isinstance(atom, StepOverlap):
                result = self.ops.sp.expand_mul(result)  # a last tile begins at X - t, not at (X/t - 1) t
            self._atoms[atom] = result
        return result

    def form(self, form: Form) -> sympy.Expr:
        """The sum of products, as it is."""
        sp = self.ops.sp
        return sp.Add(*(sp.Mul(c, *(self.atom(a) for a in product)) for product, c in form.terms))

    def buffet_bits(self, held: HeldBuffet) -> sympy.Expr:
        """Bits of one buffet."""
        sp = self.ops.sp
        bits = self.form(held.elements) * held.bits * held.numerator
        return (bits if held.denominator == 1 else sp.ceiling(bits / held.denominator)) * held.count

    def peak(self, peak: PeakForm) -> sympy.Expr:
        """Bits at the largest phase."""
        sp = self.ops.sp
        return self.largest([sp.Add(*(self.buffet_bits(h) for h in phase)) for phase in peak.phases])

    def largest(self, parts: Iterable[sympy.Expr]) -> sympy.Expr:
        """Max of the parts.

        SymPy's own comparison of all pairs is slow, so only numbers are compared.
        """
        sp = self.ops.sp
        different = list(dict.fromkeys(parts))
        numbers = [p for p in different if p.is_number]
        open_ = [p for p in different if not p.is_number]
        if numbers and (not open_ or max(numbers) != 0):
            open_.append(max(numbers))
        if not open_:
            return sp.Integer(0)
        return open_[0] if len(open_) == 1 else sp.Max(*open_, evaluate=False)
