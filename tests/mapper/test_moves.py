"""Mappings that moves add: pipelines against every pipeline of small spaces, and what is told."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import polymodel as pm
from polymodel.loading import Spec
from polymodel.mapping.looptree import pipelines
from tests.faults import faults, refused
from tests.mapper.brute_pipelines import Referee, space_of
from tests.mapper.test_halos import spec_of

PIPELINES: dict[str, Any] = {"moves": "pipelines"}
CLOSE = 1e-9


def least(spec: Spec, objective: str, **constraints: Any) -> float:
    return float(pm.explore(spec, objectives=objective, constraints=constraints).best().value(objective))


def check(seed: int) -> tuple[bool, bool]:
    """Whether the referee decides that nothing is better, and whether pipelines help."""
    pick = Random(seed)
    spec, objective = space_of(pick), pick.choice(("latency", "latency", "edp", "energy"))
    found, plain = least(spec, objective, **PIPELINES), least(spec, objective)
    assert found <= plain * (1 + CLOSE)
    referee = Referee(spec, objective)
    best, tree = referee.least(found)
    assert best >= found * (1 - CLOSE), f"{seed}, {objective}: {best} and not {found}\n{tree}"
    return referee.decided, found < plain * (1 - CLOSE)


@pytest.mark.parametrize("seed", [0, 3, 4, 8])
def test_no_pipeline_of_a_small_space_is_better(seed: int) -> None:
    assert check(seed) == (True, True)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 80, 20))
def test_no_pipeline_of_many_small_spaces_is_better(first: int) -> None:
    told = [check(seed) for seed in range(first, first + 20)]
    assert sum(decided for decided, _ in told) >= 17
    assert any(helps for _, helps in told)


def test_a_pipeline_on_two_engines() -> None:
    """Lower latency at the same energy; the front says what it is, and its points are those of `evaluate`."""
    spec = pm.load("two_engines", "matmul_chain_2")
    plain, front = (pm.explore(spec, objectives="latency", constraints=c) for c in (None, PIPELINES))
    best, before = front.best(), plain.best()
    by_hand = pm.evaluate(pm.load("two_engines", "matmul_chain_2/pipeline"))
    assert best.latency < 0.7 * before.latency
    assert best.energy == pytest.approx(before.energy)
    assert best.latency < 1.02 * by_hand.total_latency
    (split,) = pipelines(best.mapping)
    assert split.einsums == ("Matmul1", "Matmul2")
    assert best.report.total_latency == best.latency
    assert front.bounds["latency"] == pytest.approx(before.latency)  # of the space
    assert front.gap == 0
    (note,) = (n for n in front.notes if "with pipelines were evaluated" in n)
    assert "below the bounds" in note
    assert best.fused_loops.endswith(" pipelined")


def test_the_same_answer_each_time() -> None:
    spec = space_of(Random(4))
    one, other = (pm.explore(spec, constraints=PIPELINES) for _ in range(2))
    assert [(p.values, p.mapping) for p in one] == [(p.values, p.mapping) for p in other]


def test_limits_hold_for_pipelines() -> None:
    """A latency that only pipelines reach, and a working set that they must not exceed."""
    spec = pm.load("two_engines", "matmul_chain_2")
    assert not len(pm.explore(spec, objectives="energy", limits=["latency <= 2.5 us"]))
    front = pm.explore(spec, objectives="energy", limits=["latency <= 2.5 us"], constraints=PIPELINES)
    assert front.best().latency <= 2.5e-6
    small = pm.explore(spec, objectives="latency", limits=["working_set:GLB <= 8 KiB"], constraints=PIPELINES)
    assert all(p.value("working_set:GLB") <= 8 * 8192 for p in small)


def test_units_that_the_exploration_chooses_are_kept() -> None:
    spec = pm.load("two_engines", "matmul_chain_2")
    asked = {**PIPELINES, "compute": {"Matmul1": "EngineB", "Matmul2": "EngineB"}}
    assert not any(pipelines(p.mapping) for p in pm.explore(spec, constraints=asked))
    asked["compute"] = {"Matmul1": "EngineB"}
    best = pm.explore(spec, objectives="latency", constraints=asked).best()
    assert "on EngineB" in repr(best.mapping).split("Matmul1")[-1][:20]


def test_a_first_tile_hides_what_is_loaded_first() -> None:
    """A pipeline with a first tile is faster than those by hand and without one."""
    spec = pm.load("two_engines", "matmul_chain_2")
    asked = {"moves": ["pipelines", "initial_tiles"]}
    best = pm.explore(spec, objectives="latency", constraints=asked).best()
    by_hand = pm.evaluate(pm.load("two_engines", "matmul_chain_2/pipeline"))
    assert best.latency < by_hand.total_latency
    assert best.report.total_latency == best.latency
    assert " first " in best.fused_loops


@pytest.mark.parametrize("bits", [72, 80, 96])
def test_first_tiles_fit_where_tiles_that_divide_do_not(bits: int) -> None:
    """Layers of 8 or 12 rows: fewer tiles, the first one smaller or larger, save energy."""
    spec = spec_of(8 if bits < 96 else 12, 3, 1, 0, bits, 2)
    assert least(spec, "energy", moves="initial_tiles") < least(spec, "energy") * (1 - CLOSE)


def test_distribute_takes_moves() -> None:
    spec = pm.load("two_engines", "matmul_chain_2")
    alone = least(spec, "latency", **PIPELINES)
    found = pm.distribute(spec, [1], split="m", objective="latency", constraints=PIPELINES)
    assert found[0].figures["latency"] == pytest.approx(alone)


def test_a_limit_of_time_holds() -> None:
    front = pm.explore(
        pm.load("two_engines", "attention"), objectives="latency", constraints=PIPELINES, time_limit=3
    )
    assert len(front)
    assert front.found.moves is False
    assert any("the time limit was reached before the others" in n for n in front.notes)


def test_what_is_not_covered_is_told() -> None:
    spec = pm.load("two_engines", "matmul_chain_2")
    with refused("unsupported-constraint", "moves"):
        pm.mapspace(spec, PIPELINES)
    with faults("unknown-choice", at="constraints.moves[0]"):
        pm.explore(spec, constraints={"moves": ["overlap"]})
    ruled = {"moves": "initial_tiles", "memories": {"GLB": {"factors": {"m": 4}}}}
    with refused("unsupported-constraint", "first tiles"):
        pm.explore(spec, constraints=ruled)
    (reason, *_) = (
        r for r in pm.excluded_by(pm.load("two_engines", "matmul_chain_2/pipeline")) if "stages" in r
    )
    assert "Matmul1, Matmul2: they overlap as stages of a pipeline" in reason


def test_nothing_is_searched_for_pipelines_where_time_does_not_count() -> None:
    front = pm.explore(pm.load("two_engines", "matmul_chain_2"), objectives="energy", constraints=PIPELINES)
    assert front.found.stages[-1].points == 0
    assert front.found.moves
