"""First mappings fit and evaluate to their figures; bounds are below every mapping, and only rise."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from math import inf, isinf
from random import Random
from typing import Any

import pandas as pd
import pytest

import polymodel as pm
from polymodel.mapper import first_mappings
from polymodel.mapper.aims import corner
from polymodel.mapper.budget import Watch
from polymodel.mapper.confirm import confirmed
from polymodel.mapper.full_mappings import candidates_of
from polymodel.mapper.lower_bounds import compulsory
from polymodel.mapper.records import Limits, Progress, Request, gap_of
from polymodel.mapper.search import search
from polymodel.mapper.space import EinsumSpace, einsum_spaces
from tests.mapper.test_brute import KINDS, TINY, Case, random_case
from tests.mapper.test_windows import memory
from tests.seeds import seeds


def spaces_of(spec: pm.Spec, limits: Limits) -> tuple[EinsumSpace, ...]:
    return einsum_spaces(spec.workload, spec.arch, limits)


def first_of(spec: pm.Spec, request: Request) -> list[tuple[float, ...]]:
    """Values of first mappings, each evaluated."""
    spaces = spaces_of(spec, request.limits)
    work = first_mappings.deepened(spaces, request, Watch(request, time.perf_counter(), 1))
    assert work is not None
    found = candidates_of(work.wholes, spaces, request)
    for candidate in found:
        confirmed(spec, candidate)
    return [c.values for c in found]


SPECS = [
    ("matmul", "simple_two_level", {}),
    ("matmul_chain_2", "edge_npu", {}),
    ("attention", "simple_two_level", {}),
    ("conv2d", "eyeriss_like", {}),
    ("matmul_chain_3", "edge_npu", {}),
    ("conv2d", "tpu_v4i", {"STRIDE": 2}),
    ("gpt3_6.7B", "tpu_v4i", {"N_TOKENS": 64}),
]


@pytest.mark.parametrize(("workload", "machine", "symbols"), seeds(1, SPECS))
def test_first_mappings_evaluate_to_their_figures(
    workload: str, machine: str, symbols: dict[str, int]
) -> None:
    spec = pm.load(workload, machine, **symbols)
    for objectives in (("energy",), ("latency", "energy", "working_set")):
        assert first_of(spec, Request(objectives))


@pytest.mark.slow
def test_a_run_of_einsums_shares_a_loop_where_what_they_exchange_does_not_fit_whole() -> None:
    spec = pm.load("matmul_chain_2", "simple_two_level", M=4096, N0=16, N1=256, N2=16)
    apart = pm.explore(spec, objectives="energy", constraints={"unfused": "T1"}).best().energy
    assert first_of(spec, Request(("energy",)))[0][0] < 0.8 * apart


@pytest.mark.slow
def test_plans_are_varied_where_what_fits_first_is_not_what_is_worth_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first intermediate takes the room in which the larger one behind it would save more."""
    spec = pm.load("matmul_chain_3", "simple_two_level", M=1024, N0=64, N1=16, N2=64, N3=64)
    varied = first_of(spec, Request(("energy",)))
    monkeypatch.setattr(first_mappings, "MOVES", (0,))
    monkeypatch.setattr(first_mappings, "LEAST_MOVES", 0)
    assert min(varied)[0] < 0.9 * min(first_of(spec, Request(("energy",))))[0]


@pytest.mark.slow
def test_plans_are_varied_for_every_objective() -> None:
    spec = pm.load("matmul_chain_3", "simple_two_level", M=1024, N0=64, N1=16, N2=64, N3=64)
    both = first_of(spec, Request(("latency", "energy")))
    least = min(energy for (energy,) in first_of(spec, Request(("energy",))))
    assert min(energy for _, energy in both) == pytest.approx(least, rel=1e-12)


@pytest.mark.slow
def test_sums_stay_above_a_loop_that_einsums_share() -> None:
    """The shared loop goes over what the second Einsum sums over; its result stays in the buffer."""
    spec = pm.load("matmul_chain_2", "simple_two_level", M=64, N0=64, N1=4096, N2=64)
    best = pm.explore(spec, objectives="energy").best()
    assert "n1" in str(best.fused_loops)
    assert first_of(spec, Request(("energy",)))[0][0] == pytest.approx(best.energy)


@pytest.mark.thin(99)
@pytest.mark.parametrize("kind", seeds(1, KINDS))
def test_bounds_are_below_every_mapping_and_rise(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_mappings, "MANY", 0)
    monkeypatch.setattr(first_mappings, "SEVERAL", 0)
    pick = Random(f"bounds {kind}")
    for _ in range(2):
        case = random_case(kind, pick)
        spec, limits = case.spec, Limits(sizes="all" if case.every else "divisors")
        each = [compulsory(s) for s in spaces_of(spec, limits)]
        for objective, at in (("energy", 0), ("latency", 1), ("edp", None)):
            told: list[Progress] = []
            found = search(spec.workload, spec.arch, Request((objective,), limits, progress=told.append))
            if not found.candidates:
                continue
            least = found.candidates[0].values[0]
            bounds = [p.bound for p in told]
            assert bounds == sorted(bounds)
            assert all(b <= least * (1 + 1e-9) for b in bounds)
            assert all(p.best is None or p.best >= least * (1 - 1e-9) for p in told)
            assert found.bounds == (least,)
            if at is not None:
                assert sum(e[at] for e in each) <= least * (1 + 1e-9)


@pytest.mark.parametrize("case", seeds(2, TINY), ids=str)
def test_first_mappings_leave_the_front_as_it_is(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = case.spec
    limits = Limits(sizes="all" if case.every else "divisors", force_memory_order=case.ordered)
    plain = search(spec.workload, spec.arch, Request(limits=limits)).candidates
    monkeypatch.setattr(first_mappings, "MANY", 0)
    for several in (20, 0):  # after the first one that is found, and after better ones
        monkeypatch.setattr(first_mappings, "SEVERAL", several)
        other = search(spec.workload, spec.arch, Request(limits=limits)).candidates
        assert [c.values for c in other] == [pytest.approx(c.values, rel=1e-12) for c in plain]


def test_templates_that_rules_leave_no_tile_sizes_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below a fused loop over p no F is fetched once: no chain of tile sizes of the padded p is left."""
    shape = {"p": "0 <= p < 3", "r": "0 <= r < 3"}
    work = {
        "iteration_space_shape": shape, "rank_sizes": {"W": 3}, "bits_per_value": {"All": 8},
        "einsums": ["T[p] = I[W=p+r-1] * F[r]", "O[p] = T[p]"],
    }  # fmt: skip
    nodes = [
        memory("DRAM", 64, "inf", 16, tensors={"keep": "~T", "may_keep": "All"}),
        memory("GLB", 4, 32, 32),
        {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 2, "throughput": 1}]},
    ]
    spec = pm.load({"schema_version": 1, "workload": work, "arch": {"nodes": nodes}})
    once = {"memories": {"GLB": {"keep": "F", "no_refetch": "F"}}}
    plain = [(p.energy, p.latency) for p in pm.explore(spec, constraints=once)]
    monkeypatch.setattr(first_mappings, "MANY", 0)
    monkeypatch.setattr(first_mappings, "SEVERAL", 0)
    assert plain
    assert [(p.energy, p.latency) for p in pm.explore(spec, constraints=once)] == plain


def test_there_is_an_answer_whatever_the_time() -> None:
    found = pm.explore(pm.load("gpt3_6.7B", "tpu_v4i"), objectives="energy", time_limit=1e-9)
    assert len(found) == 1
    assert found[0].figures.confirmed
    assert not found.complete
    assert 0 < found.gap < inf
    assert found.bounds["energy"] * (1 + found.gap) == pytest.approx(found[0].energy)
    assert "the best found may exceed the optimum: energy by" in repr(found)
    assert found.exported().frame()["gap"].tolist() == [found.gap]
    row = found.least.iloc[0]
    assert (row["objective"], row["gap"]) == ("energy", found.gap)


def test_an_exact_front_has_no_gap() -> None:
    spec = pm.load("matmul_chain_2", "simple_two_level", M=4, N0=4, N1=4, N2=4)
    exact = pm.explore(spec, objectives=("energy", "working_set"))
    assert exact.gap == 0
    assert exact.gaps == {"energy": 0.0, "working_set:GLB": 0.0}
    assert "gap" not in exact.exported().frame()
    assert isinstance(exact.least, pd.DataFrame)
    near = pm.explore(spec, eps=0.1)
    assert 0 <= near.gap <= 0.1 + 1e-9


def test_what_is_near_enough_to_its_bound_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Proven by the bound alone, where `eps` allows it; else the search goes on."""
    monkeypatch.setattr(first_mappings, "MANY", 0)
    spec = pm.load("matmul_chain_2", "simple_two_level", M=8, N0=4, N1=4, N2=4)
    exact = pm.explore(spec, objectives="latency")
    near = pm.explore(spec, objectives="latency", eps=0.01)
    assert near.complete
    assert near.gap <= 0.01
    assert near.best().latency <= 1.01 * exact.best().latency
    assert all(s.of.startswith("join ") for s in near.found.stages)


def test_nothing_found_in_time_is_no_proof() -> None:
    """A search that is stopped says nothing of constraints."""
    spec = pm.load("matmul_chain_2", "simple_two_level", M=16)
    empty = pm.explore(spec, constraints={"memories": {"GLB": {"keep": "All"}}})
    stopped = pm.Front(spec, empty.request, replace(empty.found, complete=False), ())
    assert "no mapping was found: the search ended before" in repr(stopped)
    assert isinf(stopped.gap)
    with pytest.raises(pm.SpecError) as caught:
        stopped.best()
    assert "relax" not in str(caught.value)
    assert "allow more time" in str(caught.value)


def test_the_least_product_is_at_a_corner() -> None:
    assert corner(2.0, 3.0, ()) == pytest.approx(6)
    assert corner(2.0, 3.0, [(1.0, 1.0, 7.0)]) == pytest.approx(min(2 * 5, 4 * 3))
    assert gap_of(3.0, 2.0) == 0.5
    assert gap_of(0.0, 0.0) == 0
    assert isinf(gap_of(1.0, 0.0))


def test_the_plan_that_is_best_at_once_is_looked_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where time is over soon, descents from the others do not take it."""
    joins: list[tuple[str, int, float]] = []
    join = first_mappings._OfPlan.join

    def noted(plan: first_mappings._OfPlan, looked_for: Callable[..., Any]) -> None:
        join(plan, looked_for)
        joins.append((looked_for.__name__, id(plan), plan.least["energy"]))

    monkeypatch.setattr(first_mappings._OfPlan, "join", noted)
    monkeypatch.setattr(first_mappings, "MOVES", ())
    assert first_of(pm.load("matmul_chain_2", "edge_npu"), Request(("energy",)))
    at_once = {plan: least for name, plan, least in joins if name == "first"}
    fair = [plan for name, plan, _ in joins if name == "fair"]
    assert len(fair) > 1
    assert fair == sorted(at_once, key=lambda plan: at_once[plan]) != list(at_once)
