"""Where closed forms hold: the conditions on the values of their symbols.

A form is exact for every tile that fits its enclosing one, and for every extent if these are symbols. It is
not valid for illegal mappings: tiles that do not fit, more instances than a fanout has, violated dependences.
If two Einsums share a tensor under rank variables of different names, the form assumes equal ranges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from polymodel.analysis.result import Problem
from polymodel.analysis.symbolic.atoms import SIZE, Atom
from polymodel.analysis.symbolic.forms import (
    Chain,
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
from polymodel.errors import Diagnostic, Refused
from polymodel.mapping.resolve import ResolvedMapping, bind_tree
from polymodel.schedule.legality import check
from polymodel.spec.faults import Faults
from polymodel.workload.einsum import is_range_bound, resized

if TYPE_CHECKING:
    import sympy


# Which loops must run once so that dependences between Einsums hold at other sizes.
#
# Whether a dependence breaks depends on which loops run more than once, that is, have a tile smaller than the
# enclosing one: the more of them do, the more dependences break. So each loop is tried alone, with all others
# running once.

Size = int | str
Pair = tuple[Size, Size]  # an enclosing tile and a tile in it


@dataclass(frozen=True)
class Breaking:
    """Dependences that the mapping violates at other sizes.

    `sizes`: rank variable -> symbol of its extent; `equal`: sizes that are the same.
    """

    problem: Problem
    chains: tuple[Chain, ...]
    sizes: Mapping[str, str]
    equal: tuple[tuple[object, object], ...]

    def at(self, values: Mapping[str, int]) -> tuple[Diagnostic, ...]:
        """The dependences that the mapping violates at these sizes."""
        if not self._depends:
            return ()
        cascade = resized(self.problem.cascade, {v: values[s] for v, s in self.sizes.items()})
        tree = bind_tree(ResolvedMapping(self.problem.tree), values, Faults()).tree
        return check(Problem(cascade, self.problem.hierarchy, tree))

    @property
    def _depends(self) -> bool:
        return bool(self.problem.cascade.intermediates or self.problem.cascade.recurrent)

    @property
    def once(self) -> tuple[tuple[Size, Size, str], ...]:
        """Return (enclosing tile, tile, violation if it runs more often) for each loop that must run once."""
        return self._conditions[0]

    @property
    def further(self) -> bool:
        """Return whether there may be other violations, which are found only at values of the symbols."""
        return self._conditions[1]

    @cached_property
    def _conditions(self) -> tuple[tuple[tuple[Size, Size, str], ...], bool]:
        if not self._depends:
            return (), False
        pairs = tuple(dict.fromkeys(p for chain in self.chains for p in _pairs(chain)))
        plain = all(isinstance(s, (int, str)) for chain in self.chains for s in chain)
        if plain and self._tried(set(), pairs) == "":
            return (), False
        once = []
        for pair in pairs:
            why = self._tried(set(pairs) - {pair}, pairs)
            if why:
                once.append((*pair, why))
        rest = self._tried({(a, b) for a, b, _ in once}, pairs)
        return tuple(once), not plain or rest != ""

    def _tried(self, single: set[Pair], pairs: tuple[Pair, ...]) -> str | None:
        """Return the violation if these loops run once and all others more often; None if that cannot be
        decided."""
        values = assigned(pairs, single, self.equal, {n for chain in self.chains for n in names_in(chain)})
        if values is None:
            return None
        try:
            broken = self.at(values)
        except Refused:
            return None
        return broken[0].message.partition(" (for example")[0] if broken else ""


def _pairs(chain: Chain) -> Iterator[Pair]:
    for outer, tile in pairwise(chain):
        plain = isinstance(outer, (int, str)) and isinstance(tile, (int, str))
        if plain and (isinstance(outer, str) or isinstance(tile, str)):
            yield outer, tile  # type: ignore[misc]  # both are plain


def assigned(
    pairs: tuple[Pair, ...],
    single: set[Pair],
    equal: tuple[tuple[object, object], ...],
    symbols: set[str],
) -> dict[str, int] | None:
    """A value for each symbol, such that pairs in `single` are equal and in all others the first is
    larger."""
    for least, factor in ((2, 2), (1, 2), (1, 1)):
        result = _assigned(pairs, {*single, *equal}, single, symbols, (least, factor))
        if result is not None:
            return result
    return None


def _assigned(
    pairs: tuple[Pair, ...],
    equal: set[tuple[object, object]],
    single: set[Pair],
    symbols: set[str],
    growth: tuple[int, int],
) -> dict[str, int] | None:
    """The smallest values from the innermost tiles on, each a multiple of the one inside, or 1 more."""
    same: dict[object, object] = {}

    def root(size: object) -> object:
        while size in same:
            size = same[size]
        return size

    for a, b in equal:
        one, other = sorted((root(a), root(b)), key=lambda s: not isinstance(s, int))
        if one != other:
            if isinstance(other, int):
                return None
            same[other] = one
    inner: dict[object, set[object]] = {root(s): set() for s in (*symbols, *(s for p in pairs for s in p))}
    for a, b in pairs:
        if (a, b) not in single:
            inner[root(a)].add(root(b))
    known = _grown(inner, *growth)
    return None if known is None else {s: known[root(s)] for s in symbols}


def _grown(inner: Mapping[object, set[object]], least: int, factor: int) -> dict[object, int] | None:
    """A number for each size that is larger than all sizes inside it; None if there is none."""
    known: dict[object, int] = {}
    open_ = list(inner)
    while open_:
        ready = [s for s in open_ if inner[s] <= known.keys()]
        if not ready:
            return None
        for s in ready:
            below = max((known[t] for t in inner[s]), default=0)
            needed = max(least, below * factor if factor > 1 else below + 1)
            known[s] = s if isinstance(s, int) else needed
            if known[s] <= below:
                return None
        open_ = [s for s in open_ if s not in known]
    return known


# The domain.

Side = ChainSize | Form


@dataclass(frozen=True)
class DomainCondition:
    """A condition with two sides; `about`: its purpose."""

    left: Side
    right: Side
    about: str
    relation: Literal["<=", "=", "divides"] = "<="

    @property
    def symbols(self) -> frozenset[str]:
        return _names(self.left) | _names(self.right)

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether it holds at these values. Raises KeyError if a symbol has no value."""
        left, right = _at(self.left, values), _at(self.right, values)
        if self.relation == "divides":
            return right % left == 0
        return left == right if self.relation == "=" else left <= right

    def text(self, renderer: Renderer) -> str:
        """`TM <= M`, with symbols and SymPy expressions as they are."""
        left, right = self.sides(renderer)
        return f"{left} {self.relation} {right}"

    def excess(self, renderer: Renderer) -> sympy.Expr:
        """At most 0 if it holds; exactly 0 for `=` and `divides`."""
        left, right = self.sides(renderer)
        return right % left if self.relation == "divides" else left - right

    def sides(self, renderer: Renderer) -> tuple[sympy.Expr, sympy.Expr]:
        """Both sides in SymPy."""
        return _expression(self.left, renderer), _expression(self.right, renderer)


@dataclass(frozen=True)
class Domain:
    """The conditions under which closed forms hold; all symbols are integers from 1 on.

    `sizes`: rank variable -> symbol that stands for its extent. `divides`: textbook forms.
    """

    problem: Problem
    analysis: SymbolicAnalysis
    sizes: Mapping[str, str] = field(default_factory=dict)
    divides: bool = False

    @cached_property
    def stated(self) -> tuple[DomainCondition, ...]:
        """All conditions except those that dependences impose."""
        result = [*_fitting(self.analysis, self.divides), *self._same(), *self._boxes(), *self._instances()]
        return tuple(dict.fromkeys(c for c in result if c.symbols))

    @cached_property
    def renderer(self) -> Renderer:
        return Renderer(self.analysis.chains)

    @cached_property
    def breaking(self) -> Breaking:
        """Return the conditions that dependences between Einsums require."""
        equal = tuple((c.left, c.right) for c in self.stated if c.relation == "=")
        return Breaking(self.problem, self.analysis.chains, self.sizes, equal)

    @cached_property
    def conditions(self) -> tuple[DomainCondition, ...]:
        once = (
            DomainCondition(tile, outer, f"a loop that must run once: {why}", "=")
            for outer, tile, why in self.breaking.once
        )
        return (*self.stated, *once)

    @cached_property
    def texts(self) -> tuple[str, ...]:
        """The conditions as texts: `TM <= M`, `M = P`."""
        result = [c.text(self.renderer) for c in self.conditions]
        more = ["the mapping keeps its dependences"] if self.breaking.further else []
        return tuple(dict.fromkeys((*result, *more)))

    def __str__(self) -> str:
        symbols = ", ".join(self.analysis.symbols)
        if not symbols:
            return "no symbols"
        whole = f"{symbols}: whole {'number' if len(self.analysis.symbols) == 1 else 'numbers'} from 1 on"
        return "; ".join((whole, *self.texts))

    def faults(self, values: Mapping[str, int]) -> list[Diagnostic]:
        """The conditions that values of some or all symbols violate, one diagnostic each."""
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
            f"{given} {few} outside the domain of these closed forms: {asked}",
            f"stay within {self}",
            code="out-of-range",
        )

    def _same(self) -> Iterator[DomainCondition]:
        for one, other, tensor in self.analysis.same:
            yield DomainCondition(one, other, f"Einsums share {tensor} in equal ranges", "=")

    def _boxes(self) -> Iterator[DomainCondition]:
        """Constraints that the box must imply, as it does in the spec."""
        for e in self.problem.cascade.einsums if self.sizes else ():
            box = dict(zip(e.rank_variables, e.bounds, strict=True))
            for c in e.constraints:
                if is_range_bound(c) or c.kind != "ge":
                    continue
                least, needed = c.expr.constant, Form()
                for v, k in c.expr.terms:
                    low, high = box[v]
                    if k < 0 and v in self.sizes:
                        least += k * (low - 1)
                        needed = needed + of_atom(Atom(self.sizes[v], (), SIZE)) * -k
                    else:
                        least += min(k * low, k * high if v not in self.sizes else k * low)
                yield DomainCondition(needed, number(least), f"{e.name} is a box within {c}")

    def _instances(self) -> Iterator[DomainCondition]:
        for _, component, dim, form in self.analysis.fanouts:
            have = self.problem.hierarchy[component].dim(dim).fanout
            yield DomainCondition(form, number(have), f"instances of {component}.{dim}")


def _fitting(analysis: SymbolicAnalysis, divides: bool) -> Iterator[DomainCondition]:
    for chain in analysis.chains:
        for outer, tile in pairwise(chain):
            # Each size of a loop with a first tile has a chain of its own; and no size is below 1.
            if not isinstance(tile, Larger) and tile != 1:
                yield DomainCondition(tile, outer, "a tile is no larger than its enclosing one")
                if divides:
                    yield DomainCondition(
                        tile, outer, "the textbook forms are for tiles that divide", "divides"
                    )


def _names(side: Side) -> frozenset[str]:
    return side.symbols if isinstance(side, Form) else frozenset(names_in((side,)))


def _at(side: Side, values: Mapping[str, int]) -> int:
    return side.at(values) if isinstance(side, Form) else int(size_in(side, values))


def _expression(side: Side, renderer: Renderer) -> sympy.Expr:
    sp = renderer.ops.sp
    if isinstance(side, Form):
        return sp.sympify(renderer.form(side))
    return sp.sympify(size_in(side, renderer.symbols, sp.Max))
