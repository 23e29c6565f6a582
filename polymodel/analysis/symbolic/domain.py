"""Where closed forms hold: what the values of their symbols must satisfy.

A form is exact for every tile that fits its enclosing one, and for every extent if these are symbols. It says
nothing of mappings that are none: tiles that do not fit, more instances than a fanout has, dependences
that break. And where two Einsums share a tensor under rank variables of different names, it has been made
for equal ranges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from polymodel.analysis.result import Problem
from polymodel.analysis.symbolic.atoms import SIZE, Atom
from polymodel.analysis.symbolic.breaking import Breaking
from polymodel.analysis.symbolic.forms import (
    ChainSize,
    Form,
    Larger,
    SymbolicAnalysis,
    names_in,
    number,
    of_atom,
    size_in,
)
from polymodel.analysis.symbolic.render import Renderer
from polymodel.errors import Diagnostic
from polymodel.workload.einsum import bounds_alone

if TYPE_CHECKING:
    import sympy

Side = ChainSize | Form


@dataclass(frozen=True)
class Condition:
    """What the values of two sides must satisfy; `about` says what for."""

    left: Side
    right: Side
    about: str
    relation: Literal["<=", "=", "divides"] = "<="

    @property
    def symbols(self) -> frozenset[str]:
        return _names(self.left) | _names(self.right)

    def holds(self, values: Mapping[str, int]) -> bool:
        """KeyError if a symbol has no value."""
        left, right = _at(self.left, values), _at(self.right, values)
        if self.relation == "divides":
            return right % left == 0
        return left == right if self.relation == "=" else left <= right

    def text(self, renderer: Renderer) -> str:
        """`TM <= M`, symbols and SymPy expressions as they stand."""
        left, right = self.sides(renderer)
        return f"{left} {self.relation} {right}"

    def excess(self, renderer: Renderer) -> sympy.Expr:
        """At most 0 where it holds; of `=` and `divides` just 0."""
        left, right = self.sides(renderer)
        return right % left if self.relation == "divides" else left - right

    def sides(self, renderer: Renderer) -> tuple[sympy.Expr, sympy.Expr]:
        """Both sides in SymPy."""
        return _expression(self.left, renderer), _expression(self.right, renderer)


@dataclass(frozen=True)
class Domain:
    """The conditions under which closed forms hold; all symbols are whole numbers from 1 on.

    `sizes`: rank variable -> symbol that stands for its extent. `divides`: textbook forms.
    """

    problem: Problem
    analysis: SymbolicAnalysis
    sizes: Mapping[str, str] = field(default_factory=dict)
    divides: bool = False

    @cached_property
    def stated(self) -> tuple[Condition, ...]:
        """All but those that dependences ask for."""
        found = [*_fitting(self.analysis, self.divides), *self._same(), *self._boxes(), *self._instances()]
        return tuple(dict.fromkeys(c for c in found if c.symbols))

    @cached_property
    def renderer(self) -> Renderer:
        return Renderer(self.analysis.chains)

    @cached_property
    def breaking(self) -> Breaking:
        """What dependences between Einsums ask for."""
        equal = tuple((c.left, c.right) for c in self.stated if c.relation == "=")
        return Breaking(self.problem, self.analysis.chains, self.sizes, equal)

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        once = (
            Condition(tile, outer, f"a loop that must run once: {why}", "=")
            for outer, tile, why in self.breaking.once
        )
        return (*self.stated, *once)

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The conditions as people read them: `TM <= M`, `M = P`."""
        found = [c.text(self.renderer) for c in self.conditions]
        more = ["the mapping keeps its dependences"] if self.breaking.further else []
        return tuple(dict.fromkeys((*found, *more)))

    def __str__(self) -> str:
        symbols = ", ".join(self.analysis.symbols)
        if not symbols:
            return "no symbols"
        whole = f"{symbols}: whole {'number' if len(self.analysis.symbols) == 1 else 'numbers'} from 1 on"
        return "; ".join((whole, *self.texts))

    def faults(self, values: Mapping[str, int]) -> list[Diagnostic]:
        """What values of some or all symbols violate, one diagnostic each."""
        broken = [c for c in self.stated if c.symbols <= values.keys() and not c.holds(values)]
        if not broken:
            broken = [c for c in self.conditions if c.symbols <= values.keys() and not c.holds(values)]
        if broken:
            return [self._outside(values, c.symbols, f"{c.text(self.renderer)} ({c.about})") for c in broken]
        if values.keys() >= set(self.analysis.symbols):
            every = frozenset(self.analysis.symbols)
            return [self._outside(values, every, d.message) for d in self.breaking.at(values)]
        return []

    def _outside(self, values: Mapping[str, int], names: frozenset[str], asked: str) -> Diagnostic:
        given = ", ".join(f"{n} = {values[n]}" for n in self.analysis.symbols if n in names)
        few = "is" if len(names) == 1 else "are"
        return Diagnostic(
            f"{given} {few} outside the domain of these closed forms: {asked}", f"stay within {self}"
        )

    def _same(self) -> Iterator[Condition]:
        for one, other, tensor in self.analysis.same:
            yield Condition(one, other, f"Einsums share {tensor} in equal ranges", "=")

    def _boxes(self) -> Iterator[Condition]:
        """Constraints that the box must imply, as it does in the spec."""
        for e in self.problem.cascade.einsums if self.sizes else ():
            box = dict(zip(e.rank_variables, e.bounds, strict=True))
            for c in e.constraints:
                if bounds_alone(c) or c.kind != "ge":
                    continue
                least, needed = c.expr.constant, Form()
                for v, k in c.expr.terms:
                    low, high = box[v]
                    if k < 0 and v in self.sizes:
                        least += k * (low - 1)
                        needed = needed + of_atom(Atom(self.sizes[v], (), SIZE)) * -k
                    else:
                        least += min(k * low, k * high if v not in self.sizes else k * low)
                yield Condition(needed, number(least), f"{e.name} is a box within {c}")

    def _instances(self) -> Iterator[Condition]:
        for _, component, dim, form in self.analysis.fanouts:
            have = self.problem.hierarchy[component].dim(dim).fanout
            yield Condition(form, number(have), f"instances of {component}.{dim}")


def _fitting(analysis: SymbolicAnalysis, divides: bool) -> Iterator[Condition]:
    for chain in analysis.chains:
        for outer, tile in pairwise(chain):
            # Either size of a loop with a first tile has a chain of its own; and no size is below 1.
            if not isinstance(tile, Larger) and tile != 1:
                yield Condition(tile, outer, "a tile is no larger than its enclosing one")
                if divides:
                    yield Condition(tile, outer, "the textbook forms are for tiles that divide", "divides")


def _names(side: Side) -> frozenset[str]:
    return side.symbols if isinstance(side, Form) else frozenset(names_in((side,)))


def _at(side: Side, values: Mapping[str, int]) -> int:
    return side.at(values) if isinstance(side, Form) else int(size_in(side, values))


def _expression(side: Side, renderer: Renderer) -> sympy.Expr:
    sp = renderer.ops.sp
    if isinstance(side, Form):
        return sp.sympify(renderer.form(side))
    return sp.sympify(size_in(side, renderer.symbols, sp.Max))
