"""What every point's costs are made of: linear forms with weights, maxima, limits (docs/develop/rules.md).

Meaning comes from `cost`: seconds per bit from `port_time`, actions per element from `whole_actions`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from polymodel.analysis.engine import Problem
from polymodel.analysis.result import Analysis
from polymodel.analysis.symbolic import refuse_rounding
from polymodel.analysis.symbolic.forms import Factor, Form, Held
from polymodel.analysis.symbolic.records import SymbolicAnalysis
from polymodel.architecture.hierarchy import Component
from polymodel.cost.actions import movement_actions, whole_actions
from polymodel.cost.area import area_items
from polymodel.cost.context import Counts
from polymodel.cost.ports import port_time

Linear = tuple[int, int]  # (row, scale); row -1 is the constant 1


class Rows:
    """Forms that have to be evaluated, each once up to a factor."""

    def __init__(self) -> None:
        self.forms: list[Form] = []
        self.scales: list[int] = []  # the largest factor that each form is taken with
        self._index: dict[frozenset[tuple[frozenset[tuple[Factor, int]], int]], int] = {}

    def add(self, form: Form) -> Linear:
        """Where the form's value is found."""
        constant = form.constant
        if constant is not None:
            return -1, constant
        scale = math.gcd(*(c for _, c in form.terms))
        counted = [({a: p.count(a) for a in p}, c // scale) for p, c in form.terms]
        key = frozenset((frozenset(atoms.items()), c) for atoms, c in counted)
        if key not in self._index:
            self._index[key] = len(self.forms)
            self.forms.append(Form(tuple((p, c // scale) for p, c in form.terms)))
            self.scales.append(scale)
        index = self._index[key]
        self.scales[index] = max(self.scales[index], scale)
        return index, scale


@dataclass(frozen=True)
class Busy:
    """Seconds of one component for one Einsum: largest of `sides` (sums of seconds per unit x count),
    plus `added` wherever anything moves, all times `times`."""

    sides: tuple[tuple[tuple[float, Linear], ...], ...]
    added: float
    moved: tuple[Linear, ...]
    times: int


@dataclass(frozen=True)
class Phase:
    """One sum of buffets: exact rows, and held bits that round up (row, denominator, count)."""

    whole: Linear
    rounded: tuple[tuple[Linear, int, int], ...] = ()


@dataclass(frozen=True)
class Limit:
    """A working set or a number of instances against what there is; `have` inf never limits.

    `illegal`: a mapping beyond it is no mapping at all, and has no costs.
    """

    name: str
    reason: str
    phases: tuple[Phase, ...]
    have: float
    illegal: bool = False


@dataclass(frozen=True)
class Costing:
    """One architecture's costs over shared rows. `accesses`: (component, read or write) -> bits; `slots`: as
    `cost.figures.slots`; `area`: square metres."""

    accesses: tuple[tuple[str, str, Linear], ...]
    energy: tuple[tuple[float, Linear], ...]
    leak: float
    latency: tuple[tuple[Busy, ...], ...]
    limits: tuple[Limit, ...]
    slots: tuple[Linear, Linear]
    area: float


@dataclass
class Sums:
    """Forms added up under a key."""

    found: dict[tuple[str, str], Form] = field(default_factory=dict)

    def add(self, key: tuple[str, str], form: Form) -> None:
        if form.terms:
            self.found[key] = self.found[key] + form if key in self.found else form


def costing(problem: Problem, forms: SymbolicAnalysis, rows: Rows) -> Costing:
    """The costs of every point of `forms` on `problem.hierarchy`; new forms go into `rows`.

    Raises NotSeparable where transfers are rounded up to whole actions.
    """
    refuse_rounding(problem)
    counts = Counts(problem, Analysis("symbolic", (), (), (), (), ()))
    bits, actions = _moved(counts, forms)
    hierarchy = problem.hierarchy
    energy = [(hierarchy[c].action(a).energy, rows.add(f)) for (c, a), f in actions.found.items()]
    order = {c.name: i for i, c in enumerate(hierarchy.components)}
    accesses = sorted(bits.found.items(), key=lambda item: (order[item[0][0]], item[0][1]))
    return Costing(
        tuple((c, way, rows.add(f)) for (c, way), f in accesses),
        tuple((each, linear) for each, linear in energy if each),
        math.fsum(c.leak_power * hierarchy.instances(c.name) for c in hierarchy.components),
        tuple(tuple(_busy(counts, forms, e, rows)) for e in problem.tree.einsums),
        (*_fanouts(problem, forms, rows), *_capacities(problem, forms, rows)),
        _slots(counts, forms, rows),
        math.fsum(item.area for item in area_items(hierarchy)),
    )


def _slots(counts: Counts, forms: SymbolicAnalysis, rows: Rows) -> tuple[Linear, Linear]:
    executed, places = Form(), Form()
    for c in forms.compute:
        n = counts.executions(c.einsum)
        executed += c.operations * n
        places += c.busiest * (n * counts.problem.hierarchy.instances(c.component))
    return rows.add(executed), rows.add(places)


def _moved(counts: Counts, forms: SymbolicAnalysis) -> tuple[Sums, Sums]:
    """Bits per (component, read or write), and actions per (component, action); no action rounds here."""
    bits, actions = Sums(), Sums()
    hierarchy = counts.problem.hierarchy
    for t in forms.traffic:
        n, width = counts.executions(t.einsum), counts.bits(t.tensor)
        read, write = movement_actions(hierarchy[t.component])
        for action, form in ((read, t.reads_fill + t.reads_drain), (write, t.writes_drain + t.writes_fill)):
            bits.add((t.component, action.name), form * (n * width))
            actions.add((t.component, action.name), form * (whole_actions(action, 1, width) * n))
    for p in forms.tolls:
        n, width = counts.executions(p.einsum), counts.bits(p.tensor)
        for action, form in zip(movement_actions(hierarchy[p.component]), (p.down, p.up), strict=True):
            bits.add((p.component, action.name), form * (n * width))
            actions.add((p.component, action.name), form * (whole_actions(action, 1, width) * n))
    for c in forms.compute:
        actions.add((c.component, "compute"), c.operations * counts.executions(c.einsum))
    return bits, actions


def _busy(counts: Counts, forms: SymbolicAnalysis, einsum: str, rows: Rows) -> Iterator[Busy]:
    n = counts.executions(einsum)
    hierarchy = counts.problem.hierarchy
    for load in forms.loads:
        if load.einsum == einsum:
            c = hierarchy[load.component]
            moved = tuple(rows.add(f) for f in (load.reads, load.writes) if f.terms)
            yield Busy(_sides(c, load.reads, load.writes, rows), c.fill_drain_latency, moved, n)
    for work in forms.compute:
        if work.einsum == einsum and work.operations.terms:
            c = hierarchy[work.component]
            side = ((1 / c.action("compute").throughput, rows.add(work.busiest)),)
            yield Busy((side,), c.fill_drain_latency, (rows.add(work.operations),), n)


def _sides(
    c: Component, reads: Form, writes: Form, rows: Rows
) -> tuple[tuple[tuple[float, Linear], ...], ...]:
    rates = port_time(c, (1, 0)), port_time(c, (0, 1))
    if c.ports == "shared" and rates[0] == rates[1]:
        return (((rates[0], rows.add(reads + writes)),),) if rates[0] else ()
    pieces = tuple(
        (rate, rows.add(form))
        for rate, form in zip(rates, (reads, writes), strict=True)
        if rate and form.terms
    )
    return (pieces,) if c.ports == "shared" else tuple((p,) for p in pieces)


def _fanouts(problem: Problem, forms: SymbolicAnalysis, rows: Rows) -> Iterator[Limit]:
    """Spatial loops over one dimension: the product of their trips must fit its fanout."""
    needs: dict[tuple[str, str], dict[Linear, None]] = {}
    for _, component, dim, form in forms.fanouts:
        needs.setdefault((component, dim), {})[rows.add(form)] = None
    for (component, dim), found in needs.items():
        have = problem.hierarchy[component].dim(dim).fanout
        yield Limit(
            f"{component}.{dim}",
            f"{component}.{dim}: more instances needed than there are",
            tuple(Phase(linear) for linear in found),
            have,
            True,
        )


def _capacities(problem: Problem, forms: SymbolicAnalysis, rows: Rows) -> Iterator[Limit]:
    """The working set of each memory under its allocation, outermost memory first."""
    for c in problem.hierarchy.components:
        phases: dict[Phase, None] = {}
        held = [p for w in forms.working_sets if (w.component, w.measure) == (c.name, c.allocation)
                for p in w.peak.phases]  # fmt: skip
        for phase in _largest(held):
            phases[_phase(phase, rows)] = None
        if phases:
            reason = f"{c.name}: working set larger than its size"
            yield Limit(c.name, reason, tuple(phases), c.size_bits)


def _largest(phases: list[tuple[Held, ...]]) -> list[tuple[Held, ...]]:
    """Phases that no other phase contains."""
    kinds: dict[frozenset[tuple[object, int]], tuple[Held, ...]] = {}
    for phase in phases:
        counted: dict[tuple[object, ...], int] = {}
        for h in phase:
            key = (h.elements, h.bits, h.numerator, h.denominator, h.count)
            counted[key] = counted.get(key, 0) + 1
        kinds[frozenset(counted.items())] = phase
    return [p for k, p in kinds.items() if not any(k < other for other in kinds)]


def _phase(phase: tuple[Held, ...], rows: Rows) -> Phase:
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
    """The whole numbers among fixed symbols."""
    return {n: int(v) for n, v in fixed.items() if isinstance(v, (int, float)) and v == v // 1}
