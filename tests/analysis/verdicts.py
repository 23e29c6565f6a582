"""Every door asked about one generated spec: what differs in verdict or in numbers.

A verdict is `legal`, `illegal` (SpecError) or `unknown` (Refused by what decides for all doors). Engines may
leave out what they cannot count: `symbolic` and `closed_forms` by NotSeparable, `exact` by Refused.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import product
from math import isclose
from random import Random
from typing import Any

import polymodel as pm
from polymodel.analysis.enumerate import ENGINE as REFEREE
from polymodel.analysis.enumerate import violation
from polymodel.analysis.exact import ENGINE as EXACT
from polymodel.analysis.symbolic import ENGINE as SYMBOLIC
from polymodel.errors import InternalError, NotSeparable, Refused, SpecError
from polymodel.reuse import Reuse
from polymodel.schedule.legality import check, faults_of
from tests.analysis.test_agreement import differences
from tests.specs import Drawn, drawn

POINTS = 4  # of a grid of tile sizes, asked one by one
ENGINES = ("exact", "enumerate", "symbolic")
REUSES = tuple(Reuse)
# What breaks is a finding of that spec, and the others are asked.
BREAKS = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


@dataclass
class Found:
    """What came of some specs; `differences`: number of the spec and what differs."""

    counts: Counter[str] = field(default_factory=Counter)
    differences: list[tuple[int, str]] = field(default_factory=list)

    def add(self, other: Found) -> None:
        self.counts.update(other.counts)
        self.differences += other.differences


@dataclass(frozen=True)
class Answer:
    """What one door says: the verdict, why, and its report if there is one."""

    verdict: str
    why: str = ""
    report: Any = None


def evaluated(spec: pm.Spec, engine: str = "auto", **values: int) -> Answer:
    """What `evaluate` says of a spec at tile sizes."""
    try:
        return Answer("legal", "", pm.evaluate(spec, engine=engine, symbols=values))
    except SpecError as fault:
        return Answer("illegal", fault.diagnostics[0].message)
    except NotSeparable as refusal:
        return Answer("left out", refusal.message)
    except Refused as refusal:
        return Answer("refused", refusal.message)


def asked(number: int, seed: int) -> Found:
    """Draw one spec, ask every door, and note what differs."""
    one = drawn(Random(f"{seed}/{number}"))
    found = Found()
    found.counts["specs"] += 1
    found.counts["fused"] += one.fused
    found.counts["three or more Einsums"] += one.stages > 2
    for line in _asked(one, found.counts):
        found.differences.append((number, line))
    return found


def _asked(one: Drawn, counts: Counter[str]) -> list[str]:
    try:
        spec = pm.load(one.document)
    except SpecError:
        counts["illegal"] += 1
        counts["illegal as loaded"] += 1
        return []  # no door is reached without loading
    try:
        bound = spec.bind(**one.values)
    except SpecError:
        bound = None
    auto = evaluated(spec if bound is None else bound, **({} if bound else one.values))
    counts["illegal"] += auto.verdict == "illegal"
    counts["refused"] += auto.verdict == "refused"
    return [
        *(
            [f"bind: illegal, evaluate: {auto.verdict}"]
            if bound is None and auto.verdict != "illegal"
            else []
        ),
        *(_validated(bound, one, auto) if bound is not None else []),
        *(_engines(bound, auto, counts) if bound is not None else []),
        *(under_policies(auto.report.problem, counts) if auto.report is not None else []),
        *_swept(spec, one, auto, counts),
        *(in_closed_forms(bound, auto, counts) if bound is not None else []),
    ]


def counted(spec: pm.Spec, bound: pm.Spec, one: Drawn, counts: Counter[str]) -> list[str]:
    """What engines, sweeps and closed forms say otherwise of a legal spec."""
    auto = evaluated(bound)
    found = [*_engines(bound, auto, counts), *_swept(spec, one, auto, counts)]
    return [*found, *in_closed_forms(bound, auto, counts)]


def _validated(bound: pm.Spec, one: Drawn, auto: Answer) -> list[str]:
    """The gate, as `polymodel validate` has it, and the referee of the gate."""
    assert bound.mapping is not None
    problem = pm.Problem(bound.workload, bound.arch, bound.mapping)
    try:
        said = "illegal" if faults_of(problem) else "legal"
    except Refused as refusal:
        said = "legal" if isinstance(refusal, NotSeparable) else "refused"
    uncounted = auto.verdict == "refused" and said == "legal"  # no engine's rules reach so far
    found = [f"validate: {said}, evaluate: {auto.verdict} ({auto.why})"]
    found = [] if said == auto.verdict or uncounted else found
    for policy in (None, one.policy):
        try:
            mine = bool(check(problem, policy))
        except Refused:
            continue
        try:
            theirs = violation(problem, policy)
        except Refused as refusal:
            if not mine:
                found.append(f"{policy}: legal to the gate, the referee refuses: {refusal.message}")
            continue
        if mine != (theirs is not None):
            found.append(f"{policy}: gate {mine}, referee {theirs}")
    return found


def _engines(bound: pm.Spec, auto: Answer, counts: Counter[str]) -> list[str]:
    found = []
    answers = {e: evaluated(bound, e) for e in ENGINES}
    for engine, answer in answers.items():
        allowed = {auto.verdict, *(("left out",) if engine == "symbolic" else ())}
        if auto.verdict in ("legal", "refused"):  # the referee counts more
            allowed |= {"exact": {"refused"}, "enumerate": {"legal"}}.get(engine, set())
        if answer.verdict not in allowed:
            found.append(f"{engine}: {answer.verdict} ({answer.why}), auto: {auto.verdict} ({auto.why})")
        if answer.verdict == "illegal" and answer.why != auto.why:
            found.append(f"{engine}: {answer.why}; auto: {auto.why}")
    reports = {e: a.report for e, a in answers.items() if a.report is not None}
    referee = reports.pop("enumerate", None)
    counts["enumerated"] += referee is not None
    counts["exact"] += "exact" in reports
    counts["closed"] += "symbolic" in reports
    for engine, report in reports.items() if referee is not None else ():
        found += [f"{engine}: {x}" for x in differences(report.analysis, referee.analysis)[:3]]
    return found


def under_policies(
    problem: pm.Problem, counts: Counter[str], policies: tuple[Reuse, ...] = REUSES
) -> list[str]:
    """What engines count differently under a reuse policy that takes the place of every node's own.

    Policies that break a dependence are left out: their verdicts are compared elsewhere.
    """
    found = []
    for policy in policies:
        try:
            if check(problem, policy):
                continue
            referee = REFEREE.analyse(problem, reuse=policy)
        except Refused:
            continue
        counts["counted under another policy"] += 1
        for engine in (EXACT, SYMBOLIC):
            try:
                ours = engine.analyse(problem, reuse=policy)
            except Refused:
                counts[f"{engine.name} leaves out another policy"] += 1
                continue
            counts[f"{engine.name} under another policy"] += 1
            found += [f"{engine.name}, {policy}: {x}" for x in differences(ours, referee)[:3]]
    return found


def _swept(spec: pm.Spec, one: Drawn, auto: Answer, counts: Counter[str]) -> list[str]:
    """Every point of a small grid as `evaluate` has it."""
    if not one.values:
        return []
    grid = {s: _sizes(one, s) for s in one.values}
    own = tuple(one.values.values())
    points = {
        p: auto if p == own else evaluated(spec, **dict(zip(grid, p, strict=True)))
        for p in product(*grid.values())
    }
    counts["points"] += len(points)
    counts["illegal points"] += sum(a.verdict == "illegal" for a in points.values())
    legal = {p: a.report for p, a in points.items() if a.report is not None}
    counts["grids with legal and illegal points"] += 0 < len(legal) < len(points)
    try:
        swept = pm.sweep(spec, grid, objectives=("energy", "latency"), keep="all")
    except SpecError as fault:
        why = fault.diagnostics[0].message
        return [f"sweep: illegal ({why}), but legal at {list(legal)[:2]}"] if legal else []
    except Refused as refusal:
        return [f"sweep: refused ({refusal.message})"]
    counts["grids swept"] += 1
    frame = swept.frame
    rows = {tuple(int(x) for x in row): i for i, row in enumerate(frame[list(grid)].itertuples(index=False))}
    if rows.keys() != legal.keys():
        return [f"sweep keeps {sorted(rows)}, evaluate {sorted(legal)}"]
    found = []
    for p, i in rows.items():
        for name, mine in (
            ("energy", legal[p].total_energy),
            ("latency", legal[p].total_latency),
            ("feasible", legal[p].feasible),
        ):
            theirs = float(frame[name].iloc[i])
            if not isclose(mine, theirs, rel_tol=1e-9):
                found.append(f"sweep at {p}: {name} {theirs}, evaluate {mine}")
    fits = ("larger than its size", "is too small during")
    wrong = sum(n for why, n in swept.infeasible.items() if not any(x in why for x in fits))
    if wrong != len(points) - len(legal):
        found.append(f"sweep: {swept.infeasible}, illegal to evaluate: {len(points) - len(legal)}")
    return found


def _sizes(one: Drawn, symbol: str) -> list[int]:
    """Sizes of a symbol, with its own and one beyond what encloses it."""
    most = one.most[symbol]
    each = int(POINTS ** (1 / len(one.values)))
    own = one.values[symbol]
    others = [s for s in (most, 1, most + 1, 2) if s != own]
    return sorted([own, *others[: each - 1]])


def in_closed_forms(bound: pm.Spec, auto: Answer, counts: Counter[str]) -> list[str]:
    """Closed forms of the bound spec, at its own tile sizes."""
    try:
        forms = pm.closed_forms(bound, tiles=True)
    except NotSeparable:
        return []
    except SpecError:
        return [] if auto.verdict == "illegal" else [f"closed_forms: illegal, evaluate: {auto.verdict}"]
    except Refused:
        return [] if auto.verdict == "refused" else [f"closed_forms: refused, evaluate: {auto.verdict}"]
    if auto.report is None:
        found = [f"closed_forms: legal, evaluate: {auto.verdict} ({auto.why})"]
        return [] if auto.verdict == "refused" else found
    counts["closed forms"] += 1
    values = _named_values(bound, forms)
    found = differences(forms.analysis.at(values), auto.report.analysis)
    return [f"closed_forms: {x}" for x in found[:3]]


def _named_values(spec: pm.Spec, forms: Any) -> dict[str, int]:
    """The numbers that the symbols of closed forms stand for: loops side by side in preorder."""
    values: dict[str, int] = {}
    assert spec.mapping is not None
    trees = zip(spec.mapping.walk(), forms.problem.tree.walk(), strict=True)
    for (_, plain, _), (_, named, _) in trees:
        for number, symbol in zip(getattr(plain, "sizes", ()), getattr(named, "sizes", ()), strict=True):
            if isinstance(symbol, str):
                values[symbol] = int(number)
    return values


def explored(number: int, seed: int) -> Found:
    """Answers of `explore` for the workload and machine of one spec: legal, with the same numbers."""
    one = drawn(Random(f"{seed}/{number}"))
    found = Found()
    document = {k: v for k, v in one.document.items() if k not in ("mapping", "symbols")}
    try:
        front = pm.explore(pm.load(document), time_limit=5)
    except (SpecError, Refused):
        return found
    except InternalError as bug:
        found.differences.append((number, f"explore: {bug}"))
        return found
    found.counts["explored"] += 1
    for point in front.points:
        for engine in ("exact", "enumerate"):
            answer = evaluated(pm.load(document).with_mapping(point.mapping), engine)
            if answer.report is None:
                found.differences.append((number, f"explore: {engine} {answer.verdict} ({answer.why})"))
            elif not isclose(answer.report.total_energy, point.energy, rel_tol=1e-9):
                found.differences.append((number, f"explore: {engine} {answer.report.total_energy}"))
    return found
