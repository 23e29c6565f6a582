"""A search ends in time with the best so far, also where a step never asks, or memory runs out."""

from __future__ import annotations

import importlib
import subprocess
import sys
import time
from itertools import count
from math import inf
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import polymodel as pm
from polymodel.mapper import budget, completion_bounds, first_mappings, tile_chains
from polymodel.mapper.completion_bounds import CompletionBounds
from polymodel.mapper.diagnosis import Relaxer
from polymodel.mapper.pmappings import Explorer
from tests.seeds import seeds

TINY: list[dict[str, object]] = [
    {"type": "Memory", "name": "DRAM", "tensors": {"keep": "All"}},
    {"type": "Memory", "name": "GLB", "size": 3, "tensors": {"keep": "All"}},
    {"type": "Compute", "name": "MAC"},
]
BUSY = 6.0  # seconds that a busy machine may take beyond what a quiet one does
deepening = importlib.import_module("polymodel.mapper.iterative_deepening")
confirm = importlib.import_module("polymodel.mapper.confirm")


def endless(*args: Any, **options: Any) -> Any:
    for number in count():
        np.sqrt(number)


def large(*args: Any, **options: Any) -> Any:
    return np.ones(10**10)


@pytest.fixture
def spec() -> pm.Spec:
    return pm.load("matmul_chain_2", "simple_two_level")


@pytest.mark.thin(99)
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("where", "name"),
    seeds(
        2, [(deepening, "lower_bounds_of"), (CompletionBounds, "work_out"), (CompletionBounds, "__init__")]
    ),
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_a_step_that_never_asks(
    where: Any, name: str, workers: int, spec: pm.Spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, endless)
    begun = time.monotonic()
    found = pm.explore(spec, time_limit=1, workers=workers)
    assert time.monotonic() - begun < 2 + BUSY
    assert len(found) > 0
    assert not found.complete
    assert "the time limit of 1 s was reached" in repr(found)


@pytest.mark.parametrize("workload", ["matmul", "matmul_chain_3", "attention_one_pass"])
def test_a_machine_so_slow_that_nothing_is_searched_in_time(
    workload: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at the clock takes a minute of it: there is a mapping all the same."""
    now = count(step=60)
    clock = SimpleNamespace(perf_counter=lambda: next(now), monotonic=lambda: 0.0)
    monkeypatch.setattr(budget, "time", clock)
    found = pm.explore(pm.load(workload, "simple_two_level"), time_limit=20)
    assert len(found) == 1
    assert not found.complete
    assert 0 < found.gap < inf


@pytest.mark.parametrize("turn", range(1, 9))
def test_bounds_that_are_half_computed(turn: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time is over within the shortest paths: those computed before stay valid and complete."""
    spec = pm.load("matmul", "simple_two_level")
    plain, calls = completion_bounds._least, count(1)

    def late(*args: Any) -> Any:
        if next(calls) == turn:
            raise budget.Late
        return plain(*args)

    monkeypatch.setattr(completion_bounds, "_least", late)
    found = pm.explore(spec, objectives=["energy"])
    assert len(found) > 0
    assert not found.complete
    monkeypatch.setattr(completion_bounds, "_least", plain)
    best = pm.explore(spec, objectives=["energy"]).points[0]
    assert found.points[0].energy >= best.energy >= found.found.bounds[0]


@pytest.mark.slow
def test_what_the_guess_has_found_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time is over at its second Einsum: first mappings are the answer, and no more is looked at."""
    spec, looked = pm.load("matmul_chain_2", "edge_npu"), []
    plain = Explorer.pmappings

    def slow_at_first(self: Explorer, *args: Any) -> Any:
        looked.append(self.space.name)
        if len(looked) == 2:
            endless()
        return plain(self, *args)

    monkeypatch.setattr(Explorer, "pmappings", slow_at_first)
    monkeypatch.setattr(budget, "GRACE", 20.0)
    for steps in ("FAIR", "IMPROVED", "LEAST_IMPROVED"):
        monkeypatch.setattr(first_mappings, steps, 1)  # so that there is time for the guess
    found = pm.explore(spec, time_limit=8)
    first, second = (e.name for e in spec.workload)
    assert looked == [first, second]
    assert len(found) > 0
    assert not found.complete


@pytest.mark.slow
def test_an_evaluation_that_takes_long(spec: pm.Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    """The points keep the figures of the search."""
    whole = pm.explore(spec)
    monkeypatch.setattr(confirm, "_known", endless)
    begun = time.monotonic()
    found = pm.explore(spec, time_limit=2)
    assert time.monotonic() - begun < 3 + BUSY
    assert np.allclose([p.values for p in found], [p.values for p in whole], rtol=1e-9, atol=0)
    assert not any(p.found.confirmed for p in found)


def test_a_diagnosis_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not tried is named."""
    spec = pm.load("matmul", {"arch": {"nodes": TINY}}, M=4, K=2, N=2)
    monkeypatch.setattr(Relaxer, "admits", endless)
    begun = time.monotonic()
    found = pm.explore(spec, time_limit=2)
    assert time.monotonic() - begun < 3 + BUSY
    assert not found
    assert "not tried for want of time" in repr(found)


@pytest.mark.parametrize("workers", [1, 2])
def test_memory_that_runs_out(workers: int, spec: pm.Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deepening, "lower_bounds_of", large)
    with pm.limits(memory="300MB"):
        found = pm.explore(spec, workers=workers)
    assert len(found) > 0
    assert not found.complete
    assert "memory ran out, so that there may be better mappings" in repr(found)
    assert pm.explore(spec, time_limit=20).found.memory  # the system's own refusal


@pytest.mark.slow
def test_time_that_others_took_is_a_part_of_a_commands() -> None:
    code = (
        "import sys, time, polymodel.cli.app as app, polymodel.cli.explore as cli\n"
        "load = cli.load_spec\n"
        "def slowly(*args):\n    time.sleep(3)\n    return load(*args)\n"
        "cli.load_spec = slowly\n"
        "sys.exit(app.main())"
    )
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", code, "explore", "gpt3_6.7B", "tpu_v4i", "--time-limit", "5"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert time.monotonic() - begun < 6 + BUSY
    assert done.returncode in (0, 1)
    assert "the time limit of 5 s was reached" in done.stdout


def test_an_answer_takes_a_larger_share_of_the_time_on_a_busy_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert budget.time_of_search(inf) is None
    assert budget.time_of_search(20) == pytest.approx(18)
    monkeypatch.setattr(budget, "crowded", lambda: 10.0)
    assert budget.time_of_search(20) == pytest.approx(18)
    assert budget.time_of_search(5) == pytest.approx(3.5)
    assert budget.time_of_search(1) == pytest.approx(0.5)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [3, 10, 20])
def test_there_is_an_answer_on_a_busy_machine(limit: int) -> None:
    """Beside six processes that do nothing but use processors."""
    words = ["-m", "polymodel", "explore", "resnet_basic_block", "edge_npu", "--time-limit", str(limit)]
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(6)]
    try:
        begun = time.monotonic()
        done = subprocess.run(
            [sys.executable, *words], capture_output=True, text=True, timeout=600, check=False
        )
        seconds = time.monotonic() - begun
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert done.returncode == 0, done.stderr
    assert "the best found may exceed the optimum: energy by" in done.stdout
    assert f"the time limit of {limit} s was reached" in done.stdout
    assert seconds < 1.1 * limit + 2 * BUSY


def test_threads_end_with_their_block() -> None:
    begun = time.monotonic()
    with pytest.raises(pm.TimeUp), pm.limits(time=0.3), budget.Threads(2) as pool:
        list(pool.each(endless, range(5)))
    assert time.monotonic() - begun < 0.3 + BUSY
    with budget.Threads(2) as pool:
        assert list(pool.each(abs, (-1, 2, -3))) == [1, 2, 3]


def test_too_many_tile_sizes_end_a_search_with_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """All sizes of the second matmul under the first one's loops are more than are listed; those that divide
    are not, and are in the space as well."""
    spec = pm.load("matmul_chain_2", "simple_two_level", M=12, N0=6, N1=6, N2=6)
    whole = pm.explore(spec, objectives="energy", constraints={"sizes": "all"})
    divisors = pm.explore(spec, objectives="energy")
    assert whole.complete
    monkeypatch.setattr(tile_chains, "MOST_CHAINS", 15)

    cut = pm.explore(spec, objectives="energy", constraints={"sizes": "all"})
    assert not cut.complete
    assert whole.best().energy <= cut.best().energy <= divisors.best().energy
    assert cut.bounds["energy"] <= whole.best().energy
    assert "more than 15 chains of tile sizes of" in str(cut)
    assert "so that there may be better mappings" in str(cut)
