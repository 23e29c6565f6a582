"""Closed forms as plain text that needs no typesetting, ⌈M/TM⌉, and as LaTeX."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from sympy.printing.str import StrPrinter

if TYPE_CHECKING:
    import sympy


class _Printer(StrPrinter):  # type: ignore[misc]  # sympy has no types
    """Brackets for rounding, words for choices."""

    def _print_ceiling(self, expr: sympy.Expr) -> str:
        return f"⌈{self._print(expr.args[0])}⌉"

    def _print_floor(self, expr: sympy.Expr) -> str:
        return f"⌊{self._print(expr.args[0])}⌋"

    def _print_Max(self, expr: sympy.Expr) -> str:  # sympy looks for this name
        return f"max({', '.join(self._print(a) for a in expr.args)})"

    def _print_Min(self, expr: sympy.Expr) -> str:  # sympy looks for this name
        return f"min({', '.join(self._print(a) for a in expr.args)})"

    def _print_Mod(self, expr: sympy.Expr) -> str:  # sympy looks for this name
        return f"({self._print(expr.args[0])} mod {self._print(expr.args[1])})"

    def _print_Piecewise(self, expr: sympy.Expr) -> str:  # sympy looks for this name
        parts = []
        for value, condition in expr.args:
            otherwise = str(condition) == "True"  # SymPy has truth values of its own
            said = self._print(value)
            parts.append(f"else {said}" if otherwise else f"{said} if {self._print(condition)}")
        return f"({', '.join(parts)})"

    def _print_Equality(self, expr: sympy.Expr) -> str:  # sympy looks for this name
        return f"{self._print(expr.args[0])} = {self._print(expr.args[1])}"


MOST_TERMS = 64  # of a sum that is factored: sums of many cases are none the shorter for it


def factored(found: object) -> object:
    """A sum with its common factors extracted, quotients unchanged: M*N*(K/TN + K/TM + 1)."""
    import sympy

    if not isinstance(found, sympy.Add) or len(found.args) > MOST_TERMS:
        return found
    if found.has(sympy.Piecewise, sympy.Float):
        return found
    quotients = {p: sympy.Dummy() for p in found.atoms(sympy.Pow) if p.exp.is_negative}
    product = _turned(sympy.factor(found.xreplace(quotients))).xreplace({d: p for p, d in quotients.items()})
    return min((found, product), key=lambda form: form.count_ops())


def _turned(product: Any) -> Any:
    """A product without a minus sign before a sum: M*(a + b) for -M*(-a - b)."""
    import sympy

    sums = [a for a in product.args if isinstance(a, sympy.Add)] if isinstance(product, sympy.Mul) else []
    if not sums or product.as_coeff_Mul()[0] >= 0:
        return product
    others = [a for a in product.args if a is not sums[0]]
    return sympy.Mul(-1, *others) * sympy.Add(*(-t for t in sums[0].args))


def text(found: object) -> str:
    """A cell in a line of text: `16·⌈128/TM⌉`."""
    import sympy

    if found is None:
        return "-"
    if isinstance(found, float):
        return f"{found:.6g}"
    if not isinstance(found, sympy.Basic):
        return str(found)
    written: str = _Printer({"full_prec": False}).doprint(found)
    return written.replace("**", "^").replace("*", "·").replace("<=", "≤").replace(">=", "≥")


_SPECIAL = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    **{c: rf"\{c}" for c in "&%$#_{}"},
}  # fmt: skip


def latex(form: sympy.Basic) -> str:
    """A formula in LaTeX, without dollar signs.

    SymPy's own `latex` typesets the name TM like the product of T and M; here the tile size TM is T with the
    index M, and any other name of several letters a word in italics (`\\mathit`).
    """
    import sympy

    names = {s: _typeset(s.name) for s in form.free_symbols if len(s.name) > 1}
    written: str = sympy.latex(form, symbol_names=names)
    return written


def _typeset(name: str) -> str:
    tile = re.fullmatch(r"T([A-Za-z])(?:_?(\d+))?", name)
    if tile:
        return f"T_{{{tile[1]}{',' + tile[2] if tile[2] else ''}}}"
    numbered = re.fullmatch(r"([A-Za-z])_?(\d+)", name)
    if numbered:
        return f"{numbered[1]}_{{{numbered[2]}}}"
    word = name.replace("_", r"\_")
    return rf"\mathit{{{word}}}"


def latex_cell(found: object) -> str:
    """A cell in LaTeX: formulas and numbers in mathematics, `$16 \\left\\lceil 128/TM \\right\\rceil$`."""
    import sympy

    if isinstance(found, sympy.Basic | int | float) and not isinstance(found, bool):
        shown = sympy.Float(found, 6) if isinstance(found, float) else sympy.sympify(found)
        return f"${latex(shown)}$"
    return "".join(_SPECIAL.get(c, c) for c in text(found))
