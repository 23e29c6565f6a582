"""Objectives and limits: the front is that of all mappings, listed and evaluated one by one."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import polymodel as pm
from tests.mapper.brute_evaluated import Listed
from tests.mapper.brute_trees import sampled
from tests.mapper.test_brute import Case
from tests.seeds import seeds

FLAT = Case((2, 2, 2), (40,), write=1.5, rates=(1, 16)).spec


def wide() -> pm.Spec:
    """One product over two instances of the compute unit, below a toll; what waits leaks."""
    actions = [{"name": a, "energy": 4, "throughput": 16} for a in ("read", "write")]
    dims = [{"name": "X", "fanout": 2, "broadcast_partials": True}]
    return pm.load(
        {
            "schema_version": 1,
            "workload": {
                "rank_sizes": {"M": 2, "K": 2, "N": 4},
                "bits_per_value": {"A": 8, "B": 4, "Z": 16},
                "einsums": ["Z[m, n] = A[m, k] * B[k, n]"],
            },
            "arch": {
                "nodes": [
                    {"type": "Memory", "name": "DRAM", "size": "inf", "actions": actions, "leak_power": 2,
                     "tensors": {"keep": "All"}},
                    {"type": "Toll", "name": "NoC", "tensors": {"keep": "A | Z"}, "actions": actions[:1]},
                    {"type": "Memory", "name": "GLB", "size": 96, "actions": actions, "area": 2e-6},
                    {"type": "Compute", "name": "MAC", "spatial": dims, "area": 1e-6,
                     "actions": [{"name": "compute", "energy": 2, "throughput": 4}]},
                ]
            },
        }
    )  # fmt: skip


CHAIN = Case((4, 2, 3, 2), (72,), write=1.5, rates=(1, 16))
WORDS = (
    "energy",
    "latency",
    "edp",
    "utilisation",
    "working_set:GLB",
    "accesses:DRAM",
    "reads:GLB",
    "writes:GLB",
)
ADDABLE = tuple(w for w in WORDS if w != "utilisation")


def drawn(pick: Random, scales: dict[str, float]) -> tuple[list[str], dict[str, float]]:
    """One to three objectives, one of them perhaps a weighted sum, and figures that are limited."""
    objectives = pick.sample(WORDS, pick.choice((1, 1, 2, 3)))
    if pick.random() < 0.5:
        some = pick.sample(ADDABLE, 2)
        objectives[0] = " + ".join(f"{pick.choice((1, 2, 5)) / scales[w]:.6g}*{w}" for w in some)
    limited = pick.sample(WORDS, pick.choice((0, 1, 2)))
    return objectives, {w: scales[w] * pick.choice((0.8, 1.0, 1.3)) for w in limited}


def best(values: np.ndarray, most: list[bool]) -> set[tuple[float, ...]]:
    """The rows that no other beats, pair by pair."""
    scores = np.where(most, -values, values)
    beaten = [bool(((scores <= row).all(axis=1) & (scores < row).any(axis=1)).any()) for row in scores]
    return {tuple(map(float, row)) for row, bad in zip(values, beaten, strict=True) if not bad}


def told(front: pm.Front) -> list[tuple[float, ...]]:
    return sorted(p.values for p in front)


def kept(report: pm.Report, limits: dict[str, float]) -> bool:
    """Whether a mapping fits and keeps the limits."""
    obeyed = (
        report.value(n) >= most * (1 - 1e-12) if n == "utilisation" else report.value(n) <= most * (1 + 1e-12)
        for n, most in limits.items()
    )
    return report.feasible and all(obeyed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "rounds"), [(FLAT, 3), pytest.param(wide(), 12, marks=pytest.mark.slow)], ids=("flat", "wide")
)
def test_fronts_are_those_of_all_mappings(spec: pm.Spec, rounds: int) -> None:
    pick = Random(1)
    every = [pm.evaluate_problem(pm.Problem(spec.workload, spec.arch, t)) for t in Listed(spec).trees()]
    fitting = [r for r in every if r.feasible]
    scales = {w: float(np.median([r.value(w) for r in fitting])) for w in WORDS}
    empty = 0
    for _ in range(rounds):
        objectives, limits = drawn(pick, scales)
        some = [r for r in fitting if kept(r, limits)]
        front = pm.explore(spec, objectives=objectives, limits=limits)
        if not some:
            empty += 1
            assert not len(front), (objectives, limits)
            continue
        values = np.array([[r.value(o) for o in objectives] for r in some])
        expected = sorted(best(np.round(values, 18), [o == "utilisation" for o in objectives]))
        assert told(front) == [pytest.approx(row, rel=1e-9) for row in expected], (objectives, limits)
        assert all(kept(p.report, limits) for p in front)
        assert set(front.gaps.values()) == {0.0}
    assert empty < rounds


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(2, range(12)))
def test_no_fused_mapping_is_better(seed: int) -> None:
    pick, spec = Random(seed), CHAIN.spec
    trees = [sampled(spec.workload, spec.arch, pick).tree for _ in range(40)]
    reports = [pm.evaluate_problem(pm.Problem(spec.workload, spec.arch, t)) for t in trees]
    fitting = [r for r in reports if r.feasible]
    scales = {w: float(np.median([r.value(w) for r in fitting])) for w in WORDS}
    objectives, limits = drawn(pick, scales)
    front = pm.explore(spec, objectives=objectives, limits=limits)
    points = np.array([p.scores for p in front]).reshape(len(front), len(objectives))
    for report in (r for r in fitting if kept(r, limits)):
        mine = [1 / report.value(o) if o == "utilisation" else report.value(o) for o in objectives]
        assert (points <= np.array(mine) * (1 + 1e-9)).all(axis=1).any(), (objectives, limits)
    assert all(kept(p.report, limits) for p in front)
