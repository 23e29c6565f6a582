"""Ski slopes: Pareto sets of (capacity, accesses), of single matmuls and of chains of two, fused and not."""

from __future__ import annotations

from collections.abc import Sequence

import polymodel as pm
from tests.reference.common import Outcome

SINGLE, CHAINS = "single_mm_", ("chain_", "gpt")
CURVES = {
    "unfused_pareto": "unfused",
    "untiled_fusion_pareto": "untiled_fused",
    "ffmr_drop": "ffmr_drop",
    "ffmr_retain": "ffmr_retain",
}


def is_case(name: str) -> bool:
    return name.startswith((SINGLE, *CHAINS))


def check(case: dict, name: str) -> Outcome:
    """Compare all Pareto sets point by point; each point is two numbers."""
    outcome = Outcome(name)
    if name.startswith(CHAINS):
        _chain(case, outcome)
    else:
        _single(case, outcome)
    return outcome


def workload(sizes: dict[str, int], *einsums: str) -> pm.Spec:
    """Einsums without an architecture, one word per element."""
    return pm.load(
        {
            "schema_version": 1,
            "workload": {
                "rank_sizes": {r.upper(): int(n) for r, n in sizes.items()},
                "bits_per_value": {"All": 8},
                "einsums": list(einsums),
            },
        }
    )


def _single(case: dict, outcome: Outcome) -> None:
    spec = workload({r: case["workload"][r] for r in "MKN"}, "Z[m, n] = A[m, k] * B[k, n]")
    for key, bypass in (("pareto", False), ("pareto_with_bypass", True)):
        if key in case:
            _compare(outcome, key, case[key], pm.ski_slope(spec, bypass=bypass).points)
    for key, ours in (
        ("algorithmic_min_accesses_words", pm.ski_slope(spec).least),
        ("max_effectual_buffer_words", pm.ski_slope(spec).points[-1].capacity),
    ):
        if key in case:
            outcome.equal(key, ours, case[key])


def _chain(case: dict, outcome: Outcome) -> None:
    sizes = {name: size for name, size in case["workload"].items() if name != "einsums"}
    found = pm.chain_slope(workload(sizes, *case["workload"]["einsums"]))
    for key, curve in CURVES.items():
        if key in case:
            points = case[key]["pareto"] if isinstance(case[key], dict) else case[key]
            _compare(outcome, key, points, found.curves[curve])
    for key, ours in (
        ("algorithmic_min_unfused", found.least_unfused),
        ("algorithmic_min_fused", found.least_fused),
    ):
        if key in case:
            outcome.equal(key, ours, case[key])


def _compare(outcome: Outcome, key: str, reference: Sequence, points: Sequence) -> None:
    """Reference points are dictionaries or pairs."""
    theirs = [
        (p["buffer_words"], p["accesses_words"]) if isinstance(p, dict) else tuple(p) for p in reference
    ]
    ours = [(p.capacity, p.accesses) for p in points]
    outcome.checked += 2 * len(theirs)
    missing = [p for p in theirs if p not in set(ours)]
    extra = [p for p in ours if p not in set(theirs)]
    outcome.mismatches += [f"{key}: {p} words and accesses are not on our curve" for p in missing]
    outcome.mismatches += [f"{key}: {p} words and accesses are not on theirs" for p in extra]
