"""Closed forms as plain text, which needs nothing to set it: ⌈M/TM⌉, not LaTeX."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
            otherwise = str(condition) == "True"  # SymPy has a truth of its own
            said = self._print(value)
            parts.append(f"else {said}" if otherwise else f"{said} if {self._print(condition)}")
        return f"({', '.join(parts)})"

    def _print_Equality(self, expr: sympy.Expr) -> str:  # sympy looks for this name
        return f"{self._print(expr.args[0])} = {self._print(expr.args[1])}"


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
