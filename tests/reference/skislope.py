"""Ski slopes of single matmuls: Pareto sets of (capacity, accesses), keep-all and with bypass."""

from __future__ import annotations

import polymodel as pm
from tests.reference.common import Outcome

KEY = "single_mm_"


def is_case(name: str) -> bool:
    return name.startswith(KEY)


def check(case: dict, name: str) -> Outcome:
    """Compare both Pareto sets point by point; each point is two numbers."""
    outcome = Outcome(name)
    work = case["workload"]
    spec = pm.load(
        {
            "schema_version": 1,
            "workload": {
                "rank_sizes": {r: int(work[r]) for r in "MKN"},
                "bits_per_value": {"All": 8},
                "einsums": ["Z[m, n] = A[m, k] * B[k, n]"],
            },
        }
    )
    for key, bypass in (("pareto", False), ("pareto_with_bypass", True)):
        if key not in case:
            continue
        theirs = [(p["buffer_words"], p["accesses_words"]) for p in case[key]]
        found = pm.ski_slope(spec, bypass=bypass)
        ours = [(p.capacity, p.accesses) for p in found.points]
        outcome.checked += 2 * len(theirs)
        missing = [p for p in theirs if p not in set(ours)]
        extra = [p for p in ours if p not in set(theirs)]
        outcome.mismatches += [f"{key}: {p} words and accesses are not on our curve" for p in missing]
        outcome.mismatches += [f"{key}: {p} words and accesses are not on theirs" for p in extra]
    for key, ours_ in (
        ("algorithmic_min_accesses_words", pm.ski_slope(spec).least),
        ("max_effectual_buffer_words", pm.ski_slope(spec).points[-1].capacity),
    ):
        if key in case:
            outcome.checked += 1
            if case[key] != ours_:
                outcome.mismatches.append(f"{key}: {ours_}, reference {case[key]}")
    return outcome
