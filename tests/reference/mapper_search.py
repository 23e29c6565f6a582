"""Our search beside another tool's, on the same workload, architecture and settings (`mapper-oracle/1`).

Every mapping that ours returns is evaluated and has to fit and to cost what the search said. Its optima and
front are those of the case where an exhaustive search confirmed them, else at least as good: nothing that the
tool found, by its own figures or by ours, beats what we found.
"""

from __future__ import annotations

from math import isclose
from typing import Any

import polymodel as pm
from polymodel.analysis.result import Problem
from polymodel.api.evaluation import evaluate_problem
from polymodel.errors import PolymodelError
from polymodel.mapper.records import Candidate, Limits, Request, SearchResult
from polymodel.mapper.search import search
from tests.reference.common import Outcome
from tests.reference.mapper_spec import Numbers, minimum_usage, spec_of

Pair = tuple[float, float]
OBJECTIVES = ("energy", "latency", "energy_delay")
VERDICT_KEYS = (
    "method energy_optimum wall_s latency_optimum front points accelforge_energy_is_optimal"
    " accelforge_front_equal compulsory_energy_bound accelforge_energy_over_bound best_unfused_energy"
    " best_fused_energy best_per_structure accelforge_mapping_counted_exactly count_diffs relies_on_lowering"
    " energy_optimum_with_lowered_occupancy energy_optimum_without_lowering count_diffs_against_enumeration"
    " counts_of_energy_optimum_against_enumeration note notes"
).split()


def limits_of(case: Numbers, outcome: Outcome) -> Limits:
    """The tool's settings as ours; those that are not understood are mismatches."""
    given = dict((case.get("mapper") or {}).get("settings") or {})
    fused, per_variable = (
        given.pop(name, default)
        for name, default in (("max_fused_loops", None), ("max_fused_loops_per_rank_variable", 1))
    )
    ordered = given.pop("force_memory_hierarchy_order", True)
    uneven = given.pop("explore_imperfect_temporal_loops", False)
    spread = given.pop("explore_imperfect_spatial_loops", False)
    if spread and any(c.get("spatial") for c in case["arch"]):
        outcome.mismatches.append("our search has no spatial tiles that do not divide")
    if given:
        outcome.mismatches.append(f"settings not understood: {', '.join(sorted(given))}")
    return Limits(
        max_fused_loops=None if fused in (None, "inf", float("inf")) else int(fused),
        max_fused_loops_per_rank_variable=int(per_variable),
        sizes="all" if uneven else "divisors",
        force_memory_order=bool(ordered),
        min_utilisation=minimum_usage(case["arch"]),
    )


def compare(outcome: Outcome, case: Numbers, spec: pm.Spec, evaluated: list[list[Pair]]) -> None:
    """`evaluated`: per run the tool's mappings as we count them, those that our search has in its space."""
    verdict = case.get("verification") or {}
    outcome.unknown("verification", verdict, VERDICT_KEYS)
    limits = limits_of(case, outcome)
    for run, pairs in zip(case["runs"], evaluated, strict=True):
        objectives = tuple(run["objectives"])
        strange = sorted(set(objectives) - set(OBJECTIVES))
        if strange:
            outcome.mismatches.append(f"objectives not understood: {', '.join(strange)}")
            continue
        found = _searched(outcome, spec, Request(objectives=objectives, limits=limits))
        if found is not None:
            _check_run(outcome, run, found, pairs, verdict)
    if "energy_optimum_without_lowering" in verdict:
        whole = _searched(outcome, spec_of(case), Request(objectives=("energy",), limits=limits))
        if whole is not None and whole.candidates:
            least = whole.candidates[0].energy
            outcome.equal("energy with whole tiles", least, verdict["energy_optimum_without_lowering"])


def _searched(outcome: Outcome, spec: pm.Spec, request: Request) -> SearchResult | None:
    """The search's answer, each mapping evaluated."""
    label = "+".join(request.objectives)
    try:
        found = search(spec.workload, spec.arch, request)
    except PolymodelError as fault:
        outcome.mismatches.append(f"search for {label}: {fault}")
        return None
    outcome.seconds = (outcome.seconds or 0.0) + found.seconds
    if not found.complete:
        outcome.mismatches.append(f"search for {label} is not complete: {'; '.join(found.unsearched)}")
    for number, candidate in enumerate(found.candidates):
        _confirm(outcome, spec, f"{label} mapping {number + 1}", candidate)
    return found


def _confirm(outcome: Outcome, spec: pm.Spec, where: str, candidate: Candidate) -> None:
    try:
        report = evaluate_problem(
            Problem(spec.workload, spec.arch, spec.with_mapping(candidate.tree).mapping)
        )
    except PolymodelError as fault:
        outcome.mismatches.append(f"{where} is not evaluated: {fault}")
        return
    outcome.equal(f"{where} energy evaluated", report.costs.total_energy, candidate.energy)
    outcome.equal(f"{where} latency evaluated", float(report.costs.total_latency), candidate.latency)
    outcome.mismatches += [f"{where}: {violation}" for violation in report.costs.violations]


def _check_run(
    outcome: Outcome, run: Numbers, found: SearchResult, pairs: list[Pair], verdict: Numbers
) -> None:
    label = "+".join(run["objectives"])
    ours = [(c.energy, c.latency) for c in found.candidates]
    if not ours:
        outcome.mismatches.append(f"{label}: our search found nothing, the tool {len(pairs)} mappings")
        return
    best = {"energy": min(e for e, _ in ours), "latency": min(x for _, x in ours)}
    best["energy_delay"] = min(e * x for e, x in ours)
    proven = bool(verdict.get("accelforge_energy_is_optimal")) and not verdict.get("relies_on_lowering")
    for name, theirs in (run.get("optimum") or {}).items():
        if name not in best:
            outcome.mismatches.append(f"{label}: optimum of {name} is not understood")
            continue
        sure = proven if name == "energy" else bool(verdict.get("accelforge_front_equal"))
        (outcome.equal if sure else outcome.at_most)(f"{label}: least {name}", best[name], theirs)
    _check_optimum(outcome, label, run, best, verdict)
    both = {"energy", "latency"} <= set(run["objectives"])
    if both:
        _check_fronts(outcome, label, run, ours, verdict)
    for pair in pairs:
        outcome.checked += 1
        if not any(_no_worse(o, pair, run["objectives"]) for o in ours):
            outcome.mismatches.append(
                f"{label}: {pair}, the tool's mapping as we count it, beats our front {ours}"
            )


def _check_optimum(
    outcome: Outcome, label: str, run: Numbers, best: dict[str, float], verdict: Numbers
) -> None:
    """The exhaustive searches' own figures, and the bound that no mapping passes."""
    for name in ("energy", "latency"):
        if name in run["objectives"] and f"{name}_optimum" in verdict:
            outcome.equal(f"{label}: least {name}, exhaustive", best[name], verdict[f"{name}_optimum"])
    lowered = verdict.get("energy_optimum_with_lowered_occupancy")
    if "energy" in run["objectives"] and lowered is not None:
        outcome.at_most(f"{label}: least energy, lowered", best["energy"], lowered)
    bound = verdict.get("compulsory_energy_bound")
    if bound is not None:
        outcome.at_most(f"{label}: compulsory energy", bound, best["energy"])


def _check_fronts(outcome: Outcome, label: str, run: Numbers, ours: list[Pair], verdict: Numbers) -> None:
    exhaustive, theirs = verdict.get("front"), run.get("front")
    sure = [(exhaustive, "exhaustive")] if exhaustive else []
    if theirs and verdict.get("accelforge_front_equal"):
        sure.append((theirs, "the tool's"))
    for front, whose in sure:
        outcome.checked += 2 * len(front)
        if not _same(ours, [(e, x) for e, x in front]):
            outcome.mismatches.append(f"{label}: our front {sorted(ours)}, {whose} {front}")
    for e, x in theirs or ():
        outcome.checked += 1
        if not any(_no_worse(o, (e, x), run["objectives"]) for o in ours):
            outcome.mismatches.append(f"{label}: the tool's {(e, x)} beats our front {sorted(ours)}")


def _same(ours: list[Pair], theirs: list[Pair]) -> bool:
    pairs = zip(sorted(ours), sorted(theirs), strict=False)
    return len(ours) == len(theirs) and all(_close(a, b) and _close(x, y) for (a, x), (b, y) in pairs)


def _no_worse(ours: Pair, theirs: Pair, objectives: list[str]) -> bool:
    """Ours is at most theirs in every objective asked for, up to rounding."""

    def figures(pair: Pair) -> dict[str, float]:
        return {"energy": pair[0], "latency": pair[1], "energy_delay": pair[0] * pair[1]}

    a, b = figures(ours), figures(theirs)
    return all(a[name] <= b[name] or _close(a[name], b[name]) for name in objectives)


def _close(a: Any, b: Any) -> bool:
    return isclose(a, b, rel_tol=1e-12)
