"""What a cell of a symbolic table may be: a formula that is turned into SymPy when it is looked at."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polymodel.analysis.symbolic.forms import Form, Held, Peak
from polymodel.analysis.symbolic.render import Renderer

if TYPE_CHECKING:
    import sympy


@dataclass(frozen=True)
class Weighted:
    """`constant + sum of weight * part`; joules, seconds."""

    parts: tuple[tuple[float, Formula], ...]
    constant: float = 0.0


@dataclass(frozen=True)
class Largest:
    """The largest of several formulas, 0 if there is none."""

    parts: tuple[Formula, ...]


@dataclass(frozen=True)
class Ratio:
    """One formula over another; not a number where that is zero."""

    over: Form
    under: Form


Formula = Form | Held | Peak | Weighted | Largest | Ratio
Cell = Formula | int | float | str | bool | None


def filled(cell: Cell, renderer: Renderer, values: Mapping[str, int]) -> object:
    """A formula in SymPy, or its number if `values` has every symbol; other cells as they are."""
    if not isinstance(cell, Formula):
        return cell
    if values and values.keys() >= renderer.symbols.keys():
        return value(cell, values)
    found = expression(cell, renderer)
    return found.subs({renderer.symbols[n]: v for n, v in values.items()}) if values else found


def expression(formula: Formula, renderer: Renderer) -> sympy.Expr:
    """The formula in SymPy."""
    sp = renderer.ops.sp
    if isinstance(formula, Form):
        return renderer.form(formula)
    if isinstance(formula, Held):
        return renderer.held(formula)
    if isinstance(formula, Peak):
        return renderer.peak(formula)
    parts: list[sympy.Expr]
    if isinstance(formula, Ratio):
        return sp.sympify(renderer.form(formula.over)) / renderer.form(formula.under)
    if isinstance(formula, Largest):
        return renderer.largest(expression(p, renderer) for p in formula.parts)
    # 1.0 times a formula would be written so.
    found = [(weight, expression(p, renderer)) for weight, p in formula.parts if weight]
    parts = [part if weight == 1 else weight * part for weight, part in found]
    return sp.Add(*parts, *([formula.constant] if formula.constant else []))


def value(formula: Formula, at: Mapping[str, int]) -> int | float:
    """The number for given symbols."""
    if isinstance(formula, (Form, Held)):
        return formula.at(at)
    if isinstance(formula, Peak):
        return formula.at(at)[0]
    if isinstance(formula, Largest):
        return max((value(p, at) for p in formula.parts), default=0)
    if isinstance(formula, Ratio):
        under = formula.under.at(at)
        return formula.over.at(at) / under if under else math.nan
    return sum((w * value(p, at) for w, p in formula.parts), formula.constant)
