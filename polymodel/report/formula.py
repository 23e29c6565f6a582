"""Closed forms as plain text and as HTML that needs nothing to set it: ⌈M/TM⌉, not LaTeX."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING

from sympy.printing.str import StrPrinter

from polymodel.report.table import Column, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    import sympy

_POWER = re.compile(r"\^(\w+|\([^()]*\))")
_MOST_ROWS = 60  # of a table in a terminal


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


def html(found: object) -> str:
    """The same as HTML, powers raised."""
    written = text(found)
    raised = _POWER.sub(lambda m: f"<sup>{m[1].strip('()')}</sup>", escape(written, quote=False))
    wrap = "nowrap" if len(written) <= _LINE else "normal"
    return f'<span class="formula" style="white-space: {wrap}">{raised}</span>'


def table_text(name: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A whole table for a terminal."""
    shown = tuple(tuple(text(c) for c in row) for row in rows[:_MOST_ROWS])
    lines = Table(name, tuple(Column(c) for c in columns), shown).text(indent="")
    more = len(rows) - _MOST_ROWS
    return lines + (f"\n... {more} more rows in .frame()" if more > 0 else "")


_LINE = 60  # characters of a formula that stay on one line
# Notebooks keep cells on one line; a long formula would run off the page.
_CELL = "text-align: left; white-space: normal; max-width: 32em; overflow-wrap: anywhere"


def table_html(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A whole table for a notebook or a page."""
    head = "".join(f'<th scope="col">{escape(Column(c).heading)}</th>' for c in columns)
    body = "\n".join(
        "<tr>" + "".join(f'<td style="{_CELL}">{html(c)}</td>' for c in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"
