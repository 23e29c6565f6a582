"""The costs of a template's counts: the rules of `polymodel.cost`, applied to linear forms over terms.

A term is a product of one factor per group of rank variables. `terms` counts the transfers with them. The
cost rules build formulas from these counts (`cost.algebra`), which are then converted: energy to one linear
form, latency to a sum of maxima.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cache, reduce
from itertools import product
from typing import Any, NamedTuple, TypeVar

import numpy as np

from polymodel.analysis.result import Analysis, Problem, TollTraffic, Traffic
from polymodel.architecture.hierarchy import ActionCost
from polymodel.cost.algebra import FORMULAS, ExactCount, Formula, Largest, Over, ScaledPart, Sum, Where
from polymodel.cost.energy import action_energies
from polymodel.cost.latency import component_times, einsum_times
from polymodel.cost.records import Counts
from polymodel.frozen import dataclass

Array = Any
LinearForm = dict[Any, float]  # coefficients by term
Costs = TypeVar("Costs")
MOST_KNOWN = 4096  # costs that are remembered per Einsum
Alternatives = list[tuple[LinearForm, float]]  # (form, constant added where it is above 0): a maximum


def plus(a: LinearForm, b: LinearForm, times: float = 1.0) -> LinearForm:
    """a + times * b."""
    if not a:
        return {term: product for term, c in b.items() if (product := times * c)}
    result = dict(a)
    for term, c in b.items():
        result[term] = result.get(term, 0.0) + times * c
    return result if all(result.values()) else {t: c for t, c in result.items() if c}


def total(forms: Iterable[LinearForm]) -> LinearForm:
    """The sum of the forms."""
    return weighted((form, 1.0) for form in forms)


def weighted(parts: Iterable[tuple[LinearForm, float]]) -> LinearForm:
    """The weighted sum of the forms."""
    result: LinearForm = {}
    for form, times in parts:
        for term, c in form.items():
            result[term] = result.get(term, 0.0) + times * c
    return result if all(result.values()) else {t: c for t, c in result.items() if c}


END = -1
OPERATIONS = -1
INSTANCES = -2
Fans = frozenset[int]
NONE: Fans = frozenset()


class VisitStep(NamedTuple):
    """Steps that advance the loop over a bundle (`variable`: its first) in the block below a level, and none
    further out. `inner`: the bundles whose loops stand further in in this block."""

    level: int
    variable: int
    inner: frozenset[int]


class Term(NamedTuple):
    """Elements of `operand` (`OPERATIONS`: iterations; `INSTANCES`: instances in use along the fanouts of
    `spread`) in all tiles at `level` (`END`: one by one). `spread`: fanouts of which every instance has them,
    although it could share them. `tile`: elements of the largest tile instead; `into`: at most the elements
    of it that are live during the loops down to that level. `reaching`: (fanout, number): each counted once
    per instance of the fanout by bundles from that number on. `each`: elements of one tile instead, with
    those of the instances along `union` for which it is read. `slides`: without the elements that remain
    across the iterations of the loop over this variable directly above the level. `behind`: for a recurrent
    output, the elements read of the previous generation instead. `alive`: for a recurrent tile, one
    generation, which is the minimum that is live. `since`: tiles stay over the loops that do not index the
    operand, in the blocks from that below this level on (-1: none). `step`: only those elements that stay
    over these steps from one visit to the next."""

    operand: int
    level: int
    union: Fans = NONE
    split: Fans = NONE
    own: Fans = NONE
    spread: Fans = NONE
    tile: bool = False
    into: int | None = None
    reaching: tuple[int, int] | None = None
    each: bool = False
    slides: int = -1
    behind: bool = False
    alive: bool = False
    since: int = -1
    step: VisitStep | None = None

    @property
    def of_one_generation(self) -> bool:
        """Return whether it counts elements of one generation, as each transfer of the previous one does."""
        return self.alive or (self.each and self.behind)

    def repeated(self, bundle: int) -> Fans:
        """Return the fanout whose instances by a bundle count, if any."""
        counts = self.reaching is not None and bundle >= self.reaching[1]
        return frozenset([self.reaching[0]]) if self.reaching is not None and counts else NONE


@dataclass(frozen=True)
class Transfers:
    """The number of transfers of `size` elements in which the elements of `moved` cross a link; like a term,
    a product of one factor per group."""

    moved: Term
    size: Term


@dataclass(frozen=True)
class Actions:
    """The number of whole actions for equal transfers of values of `bits` bits each."""

    transfers: Transfers
    bits: int
    per_action: int


Part = Term | Transfers  # products of one factor per group
Key = Term | Actions  # the keys of a form
Form = LinearForm


def parts(forms: Iterable[Form]) -> tuple[Part, ...]:
    """The products from which the values of forms are computed."""
    result: dict[Part, None] = {}
    for key in (key for form in forms for key in form):
        for part in (key.transfers, key.transfers.size) if isinstance(key, Actions) else (key,):
            result[part] = None
    return tuple(result)


def worth(key: Key, value: Callable[[Part], Array]) -> Array:
    """The value of one key of a form, `value` giving that of a product; it is monotone in each product."""
    if not isinstance(key, Actions):
        return value(key)
    filled = np.ceil(value(key.transfers.size) * key.bits / key.per_action)
    return value(key.transfers) * filled


@dataclass(frozen=True)
class LinearCount:
    """A linear form as a count of `cost.algebra.ExactCount`, of which only whether it is empty is known."""

    terms: Mapping[Hashable, float]

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    @property
    def constant(self) -> int | None:
        return None if self.terms else 0

    def __add__(self, other: LinearCount | int) -> LinearCount:
        if isinstance(other, LinearCount):
            return LinearCount(plus(dict(self.terms), dict(other.terms)))
        assert other == 0, "counts of templates have no constant part"
        return self

    def __mul__(self, times: float) -> LinearCount:
        return LinearCount({term: product for term, c in self.terms.items() if (product := times * c)})


def count(form: LinearForm) -> Any:
    """The form as a number of the cost rules."""
    linear: Any = LinearCount(form)
    return ExactCount(linear)


@dataclass(frozen=True)
class PricedTimes:
    """The latency of one execution: the sum over `stages` of each stage's largest alternative.

    The first stage overlaps; refills that wait have stages of their own. `names`: the components of the
    first stage's alternatives.
    """

    stages: tuple[tuple[tuple[LinearForm, float], ...], ...]
    names: tuple[str, ...]

    @property
    def forms(self) -> list[LinearForm]:
        return [form for stage in self.stages for form, _ in stage]

    def seconds(self, value: Callable[[LinearForm], Array]) -> Array:
        """The latency, with `value` giving the value of each form."""
        nothing = value({})
        each = ((_begun(value(form), fixed) for form, fixed in stage) for stage in self.stages)
        return sum((reduce(np.maximum, times, nothing) for times in each), start=nothing)


def _begun(seconds: Array, fixed: float) -> Array:
    return np.where(seconds > 0, seconds + fixed, 0.0) if fixed else seconds


class CountPlaceholders:
    """Placeholders for the counts of a template while the cost rules run: one term per nonempty count.

    The formulas then depend only on which counts exist, not on their values.
    """

    def __init__(self) -> None:
        self.forms: list[LinearForm] = []

    def count(self, form: LinearForm) -> Any:
        """Return a number of the cost rules that represents the form."""
        if not form:
            return EMPTY
        self.forms.append(form)
        return _numbered(len(self.forms) - 1)

    def filled_in(self, form: LinearForm) -> LinearForm:
        """Return a form over placeholders as one over the terms of the counts."""
        return weighted((self.forms[number], times) for number, times in form.items())


EMPTY = count({})


@cache
def _numbered(number: int) -> Any:
    """Return the placeholder with this number."""
    return count({number: 1.0})


class LinearCounts(Counts):
    """Counts as linear forms.

    `filled`: actions per component, tensor and kind of access, where transfers are rounded up to whole
    actions.
    """

    def __init__(
        self, problem: Problem, analysis: Analysis, filled: Mapping[tuple[str, str, str], Any]
    ) -> None:
        super().__init__(problem, analysis)
        self.filled = filled

    def actions(self, moved: Traffic | TollTraffic, kind: str, action: ActionCost) -> Any:
        if not action.rounds(self.bits(moved.tensor)):
            return super().actions(moved, kind, action)
        return self.filled.get((moved.component, moved.tensor, kind), EMPTY)


Filled = tuple[tuple[tuple[str, str, str], Any], ...]


class CountPrices:
    """The costs of the only Einsum of a problem.

    The cost rules run once for all templates that move the same tensors at the same components.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._of_nodes: dict[Hashable, Any] = {}
        self._known: dict[tuple[Analysis, Filled], tuple[LinearForm, PricedTimes]] = {}

    def of(
        self, analysis: Analysis, filled: Filled, counts: CountPlaceholders
    ) -> tuple[LinearForm, PricedTimes]:
        """Return energy (J) of all actions and latency; `filled` as in `LinearCounts`; `counts`: the forms
        that placeholders represent."""
        key = analysis, filled
        if key not in self._known:
            self._known[key] = priced(self.problem, analysis, dict(filled))
        energy, times = self._known[key]
        each = (tuple((counts.filled_in(form), fixed) for form, fixed in stage) for stage in times.stages)
        return counts.filled_in(energy), PricedTimes(tuple(each), times.names)

    def of_nodes(self, key: Hashable, made: Callable[[], Costs]) -> Costs:
        """Return the costs of all templates that agree in `key`, which `made` computes."""
        if key not in self._of_nodes:
            if len(self._of_nodes) >= MOST_KNOWN:
                self._of_nodes.clear()
            self._of_nodes[key] = made()
        result: Costs = self._of_nodes[key]
        return result


def priced(
    problem: Problem, analysis: Analysis, filled: Mapping[tuple[str, str, str], Any]
) -> tuple[LinearForm, PricedTimes]:
    """Energy (J) of all actions and latency of the only Einsum of a problem; `filled` as in
    `LinearCounts`."""
    counts = LinearCounts(problem, analysis, filled)
    energy = linear(FORMULAS.total(item.energy for item in action_energies(counts)))
    rows = component_times(counts, FORMULAS)
    if problem.hierarchy.assume_overlap:
        each = [(row.component, a) for row in rows for a in alternatives(row.seconds)]
        return energy, PricedTimes((tuple(a for _, a in each),), tuple(name for name, _ in each))
    (one,) = (t for t in einsum_times(counts, rows, (), FORMULAS) if t.einsum == counts.einsums[0])
    waits = sum(isinstance(r.seconds, Formula) for r in one.refills)
    return energy, PricedTimes(tuple(map(tuple, stages(one.seconds, waits))), ())


def linear(part: Any) -> LinearForm:
    """A formula of the cost rules as one linear form."""
    if isinstance(part, ExactCount):
        return dict(part.form.terms)
    if isinstance(part, ScaledPart):
        return plus({}, linear(part.part), part.factor)
    if isinstance(part, Over):
        return plus({}, linear(part.part), 1 / part.divisor)
    if isinstance(part, Sum):
        return total(map(linear, part.parts))
    assert not part, f"{type(part).__name__} is not linear in the counts"
    return {}


def alternatives(part: Any) -> Alternatives:
    """A formula of the cost rules as a maximum of several linear forms."""
    if isinstance(part, Largest):
        return [a for p in part.parts for a in alternatives(p)]
    if isinstance(part, (ScaledPart, Over)):
        scale = part.factor if isinstance(part, ScaledPart) else 1 / part.divisor
        return [(plus({}, form, scale), fixed * scale) for form, fixed in alternatives(part.part)]
    if isinstance(part, Where):
        return [({}, float(part.part))]  # the form that the condition depends on is added beside it
    if isinstance(part, Sum):
        return [_added(chosen) for chosen in product(*map(alternatives, part.parts))]
    return [(linear(part), 0.0)]


def _added(chosen: Iterable[tuple[LinearForm, float]]) -> tuple[LinearForm, float]:
    forms, fixed = zip(*chosen, strict=True)
    return total(forms), sum(fixed)


def stages(part: Any, waits: int) -> Sequence[Alternatives]:
    """The stages of a latency with `waits` refills that add to it."""
    if not waits:
        return [alternatives(part)]
    assert isinstance(part, Sum), "refills that wait are added to the rest"
    rest, refills = part.parts
    return [alternatives(rest), *map(alternatives, refills.parts if waits > 1 else (refills,))]
