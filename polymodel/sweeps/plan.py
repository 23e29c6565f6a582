"""The formulas of `cost` as operations on rows of exact counts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from polymodel.analysis.result import Problem
from polymodel.analysis.symbolic.forms import Factor, Form, HeldBuffet, SymbolicAnalysis
from polymodel.cost.algebra import FORMULAS, ExactCount, Largest, Over, Part, ScaledPart, Sum, Where
from polymodel.cost.costs import (
    area_items,
    in_formulas,
    memory_bits,
    needs,
    parts_of_latency,
    slots,
    toll_bits,
)
from polymodel.cost.energy import action_energies, leak_power
from polymodel.cost.latency import component_times
from polymodel.cost.records import Counts
from polymodel.errors import InternalError
from polymodel.frozen import dataclass


class Linear(NamedTuple):
    """A row times a factor; row -1 is the constant 1."""

    row: int
    scale: int


class FormRows:
    """The forms to evaluate; forms that differ only by a factor share a row."""

    def __init__(self) -> None:
        self.forms: list[Form] = []
        self.scales: list[int] = []  # the largest factor that each form is used with
        self._index: dict[frozenset[tuple[frozenset[tuple[Factor, int]], int]], int] = {}

    def add(self, form: Form) -> Linear:
        """The row and factor that give the form's value."""
        constant = form.constant
        if constant is not None:
            return Linear(-1, constant)
        scale = math.gcd(*(c for _, c in form.terms))
        counted = [({a: p.count(a) for a in p}, c // scale) for p, c in form.terms]
        key = frozenset((frozenset(atoms.items()), c) for atoms, c in counted)
        if key not in self._index:
            self._index[key] = len(self.forms)
            self.forms.append(Form(tuple((p, c // scale) for p, c in form.terms)))
            self.scales.append(scale)
        index = self._index[key]
        self.scales[index] = max(self.scales[index], scale)
        return Linear(index, scale)


@dataclass(frozen=True)
class LinearForm:
    """`constant + sum of weight * row`, in floats."""

    weights: tuple[tuple[int, float], ...]
    constant: float = 0.0


@dataclass(frozen=True)
class Most:
    """The largest of several parts."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Present:
    """A part where a count is above 0, otherwise 0."""

    moved: Linear
    part: Node


@dataclass(frozen=True)
class Total:
    """The sum of several parts."""

    parts: tuple[Node, ...]


Node = LinearForm | Most | Present | Total


def compiled(formula: Part, rows: FormRows, factor: float = 1.0) -> Node:
    """A cost as operations on rows; factors go into weights, and counts of equal weight into one row."""
    terms = _Terms({}, 0.0, [])
    terms.add(formula, factor)
    found: dict[int, float] = {}
    constant = terms.constant
    for weight, form in terms.sums.items():
        index, scale = rows.add(form)
        if index < 0:
            constant += weight * scale
        else:
            found[index] = found.get(index, 0.0) + weight * scale
    line = LinearForm(tuple(found.items()), constant)
    parts = [_part(part, rows, f) for f, part in terms.others]
    if not parts:
        return line
    if line.weights or constant:
        parts.append(line)
    return parts[0] if len(parts) == 1 else Total(tuple(parts))


def _part(formula: Largest | Where, rows: FormRows, factor: float) -> Node:
    if isinstance(formula, Where):
        return Present(rows.add(formula.count.form), compiled(formula.part, rows, factor))
    parts: list[Node] = []
    for part in formula.parts:
        found = compiled(part, rows, factor)
        parts += found.parts if isinstance(found, Most) else (found,)
    return Most(tuple(dict.fromkeys(parts)))


@dataclass
class _Terms:
    """A sum: counts by weight, a constant, and other parts with their weights."""

    sums: dict[float, Form]
    constant: float
    others: list[tuple[float, Largest | Where]]

    def add(self, formula: Part, factor: float) -> None:
        """Add a formula times a positive factor."""
        if isinstance(formula, ExactCount):
            self.sums[factor] = self.sums.get(factor, Form()) + formula.form
        elif isinstance(formula, ScaledPart):
            self.add(formula.part, factor * formula.factor)
        elif isinstance(formula, Over):
            self.add(formula.part, factor / formula.divisor)
        elif isinstance(formula, Sum):
            for part in formula.parts:
                self.add(part, factor)
        elif isinstance(formula, (Largest, Where)):
            self.others.append((factor, formula))
        elif isinstance(formula, (int, float)):
            self.constant += factor * formula
        else:
            raise InternalError(f"a sweep has no operation for {type(formula).__name__}")


@dataclass(frozen=True)
class Phase:
    """A sum of buffets: exact rows, and held bits that round up (row, denominator, count)."""

    whole: Linear
    rounded: tuple[tuple[Linear, int, int], ...] = ()


@dataclass(frozen=True)
class Limit:
    """A working set, or a number of instances, and its limit; infinite `have` means no limit.

    `illegal`: beyond it, a mapping is illegal and has no costs.
    """

    name: str
    reason: str
    phases: tuple[Phase, ...]
    have: float
    illegal: bool = False


@dataclass(frozen=True)
class Costing:
    """One architecture's costs over shared rows.

    `accesses`: (component, `reads` or `writes`) -> bits; `energy`: joules of all actions; `leak`: watts;
    `latency`: seconds per Einsum or pipeline; `slots`: as `cost.costs.slots`; `area`: square metres.
    """

    accesses: tuple[tuple[str, str, Linear], ...]
    energy: LinearForm
    leak: float
    latency: tuple[Node, ...]
    limits: tuple[Limit, ...]
    slots: tuple[Linear, Linear]
    area: float


def costing(problem: Problem, forms: SymbolicAnalysis, rows: FormRows) -> Costing:
    """The costs of every point of `forms` on `problem.hierarchy`, by the rules of an evaluation.

    New forms are added to `rows`.
    """
    counts = Counts(problem, in_formulas(forms))
    energy = compiled(FORMULAS.total(i.energy for i in action_energies(counts)), rows)
    assert isinstance(energy, LinearForm), "joules of actions are sums of counts"
    seconds = parts_of_latency(counts, component_times(counts, FORMULAS), FORMULAS)
    hierarchy = problem.hierarchy
    return Costing(
        tuple(_accesses(counts, rows)),
        energy,
        leak_power(hierarchy),
        tuple(compiled(part, rows) for part in seconds),
        (*_fanouts(problem, forms, rows), *_capacities(counts, rows)),
        (_linear(slots(counts)[0], rows), _linear(slots(counts)[1], rows)),
        math.fsum(item.area for item in area_items(hierarchy)),
    )


def _linear(count: Part, rows: FormRows) -> Linear:
    return rows.add(count.form) if isinstance(count, ExactCount) else Linear(-1, count)


def _accesses(counts: Counts, rows: FormRows) -> Iterator[tuple[str, str, Linear]]:
    bits = memory_bits(counts) | toll_bits(counts)
    order = counts.problem.hierarchy.index
    for component, way in sorted(bits, key=lambda key: (order(key[0]), key[1])):
        if bits[component, way]:
            yield component, way, _linear(bits[component, way], rows)


def _fanouts(problem: Problem, forms: SymbolicAnalysis, rows: FormRows) -> Iterator[Limit]:
    """Limits of fanouts: the product of the trips of spatial loops over each dimension."""
    needs: dict[tuple[str, str], dict[Linear, None]] = {}
    for _, component, dim, form in forms.fanouts:
        needs.setdefault((component, dim), {})[rows.add(form)] = None
    for (component, dim), found in needs.items():
        have = problem.hierarchy[component].dim(dim).fanout
        yield Limit(
            f"{component}.{dim}",
            f"{component}.{dim}: more instances needed than available",
            tuple(Phase(linear) for linear in found),
            have,
            True,
        )


def _capacities(counts: Counts, rows: FormRows) -> Iterator[Limit]:
    """The working set of each memory under its allocation, outermost memory first."""
    needed = [n for n in needs(counts) if n.counts]
    for c in counts.problem.hierarchy.components:
        phases: dict[Phase, None] = {}
        peaks: list[Any] = [n.bits for n in needed if n.component == c.name]
        for phase in _largest([p for peak in peaks for p in peak.phases]):
            phases[_phase(phase, rows)] = None
        if phases:
            reason = f"{c.name}: working set larger than its size"
            yield Limit(c.name, reason, tuple(phases), c.size_bits)


def _largest(phases: list[tuple[HeldBuffet, ...]]) -> list[tuple[HeldBuffet, ...]]:
    """Phases that no other phase contains."""
    kinds: dict[frozenset[tuple[object, int]], tuple[HeldBuffet, ...]] = {}
    for phase in phases:
        counted: dict[tuple[object, ...], int] = {}
        for h in phase:
            key = (h.elements, h.bits, h.numerator, h.denominator, h.count)
            counted[key] = counted.get(key, 0) + 1
        kinds[frozenset(counted.items())] = phase
    return [p for k, p in kinds.items() if not any(k < other for other in kinds)]


def _phase(phase: tuple[HeldBuffet, ...], rows: FormRows) -> Phase:
    whole, rounded = Form(), []
    for h in phase:
        bits = h.elements * (h.bits * h.numerator)
        if h.denominator == 1:
            whole = whole + bits * h.count
        elif bits.constant is not None:
            whole = whole + -(-bits.constant // h.denominator) * h.count
        else:
            rounded.append((rows.add(bits), h.denominator, h.count))
    return Phase(rows.add(whole), tuple(rounded))


def values_of(fixed: Mapping[str, object]) -> dict[str, int]:
    """The integers among fixed symbols."""
    return {n: int(v) for n, v in fixed.items() if isinstance(v, (int, float)) and v == v // 1}
