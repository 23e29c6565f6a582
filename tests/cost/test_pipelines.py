"""Latency of pipelines: slots worked by hand, what books them, and slopes against finite differences."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import polymodel as pm
from polymodel.analysis.enumerate import ENGINE as REFEREE
from polymodel.analysis.enumerate import violation
from polymodel.analysis.result import Problem
from polymodel.architecture.hierarchy import ActionCost
from polymodel.cost.costs import costs
from polymodel.errors import Refused
from polymodel.mapping.looptree import pipelines
from tests.cost.test_sensitivity import check
from tests.overlapped import lawless_overlapped

# T1 takes 6 operations per row, T2 15; B is twice as fast as A.
TEXT = """
arch:
  nodes:
  - !Memory
    name: DRAM
    tensors: {keep: ~Intermediates, may_keep: All}
    actions: [{name: read, energy: 1, throughput: DRAM}, {name: write, energy: 1, throughput: DRAM}]
  - !Memory {name: GLB, leak_power: 2, tensors: {may_keep: All}}
  - !Compute {name: A, fill_drain_latency: WAIT, actions: [{name: compute, energy: 1, throughput: 1}]}
  - !Compute {name: B, actions: [{name: compute, energy: 1, throughput: 2}]}
workload:
  rank_sizes: {M: 10, N0: 2, N1: 3, N2: 5}
  bits_per_value: {All: 8}
  n_instances: TIMES
  einsums:
  - T1[m, n1] = T0[m, n0] * W0[n0, n1]
  - T2[m, n2] = T1[m, n1] * W1[n1, n2]
mapping:
  nodes:
  - !Storage {component: DRAM, tensors: [T0, W0, W1, T2]}
  - !Storage {component: GLB, tensors: [W0, W1]}
  - !Temporal {rank_variable: m, tile_shape: TM}
  - !Storage {component: GLB, tensors: [T0, T1, T2]}
  - !Pipeline
    nodes:
    - !Nested {nodes: [!Compute {einsum: T1, component: A}]}
    - !Nested {nodes: [!Compute {einsum: T2, component: B}]}
symbols: {TM: 4, DRAM: inf, WAIT: 0, TIMES: 1}
"""


@pytest.fixture
def spec(tmp_path: Path) -> pm.Spec:
    file = tmp_path / "pipeline.yaml"
    file.write_text(TEXT, encoding="utf-8")
    return pm.load(str(file))


@pytest.mark.parametrize("engine", ["auto", "exact", "enumerate"])
def test_slots_last_as_long_as_their_slowest_stage(spec: pm.Spec, engine: str) -> None:
    """Rows 4 + 4 + 2 take 24, 24, 12 and 30, 30, 15: slots of 24, 30, 30 and 15."""
    report = pm.evaluate(spec, engine=engine)
    (whole,) = report.costs.pipelines
    assert (whole.fill, whole.steady, whole.drain) == (24, 60, 15)
    assert (whole.fill_slots, whole.steady_slots, whole.drain_slots) == (1, 2, 1)
    assert [(s.busy, s.sets, s.slots) for s in whole.stages] == [(60, 24, 3), (75, 75, 3)]
    assert report.total_latency == whole.seconds == 99
    assert {t.einsum: (t.seconds, t.limiting) for t in report.costs.latency} == {
        "T1": (24, "A"),
        "T2": (75, "B"),
    }
    assert math.fsum(i.energy for i in report.costs.energy if i.action == "leak") == 2 * 99


def test_a_faster_second_stage_waits_for_the_first(spec: pm.Spec) -> None:
    """2 rows each: 12 against 15 seconds; 5 rows: 30 against 37.5."""
    assert pm.evaluate(spec, symbols={"TM": 2}).total_latency == 12 + 4 * 15 + 15
    assert pm.evaluate(spec, symbols={"TM": 5}).total_latency == 30 + 37.5 + 37.5
    assert pm.evaluate(spec, symbols={"TM": 10}).total_latency == 60 + 75
    assert pm.evaluate(spec, symbols={"TM": 1}).total_latency == 6 + 10 * 7.5


def test_a_memory_that_stages_share_takes_the_sum_of_their_loads(spec: pm.Spec) -> None:
    """At 8 bits/s: T0 and W0 8 + 6 values, then T0, W1 and T2 8 + 15 + 20, then 4 + 20, then 10."""
    report = pm.evaluate(spec.bind(DRAM=8))
    assert report.total_latency == 24 + 43 + 30 + 15
    assert {t.einsum: t.limiting for t in report.costs.latency} == {"T1": "A", "T2": "B"}
    slower = pm.evaluate(spec.bind(DRAM=4))
    assert slower.total_latency == 28 + 86 + 48 + 20
    assert {t.limiting for t in slower.costs.latency} == {"DRAM"}
    assert dict(zip(slower.bottleneck["component"], slower.bottleneck["rank"], strict=True))["DRAM"] == 1


def test_units_fill_and_drain_in_every_slot(spec: pm.Spec) -> None:
    """A takes 10 more in each of its three slots: 34, 34 and 22 against 30, 30 and 15."""
    assert pm.evaluate(spec.bind(WAIT=10)).total_latency == 34 + 34 + 30 + 15


def test_executions_multiply_slots_and_seconds(spec: pm.Spec) -> None:
    report = pm.evaluate(spec.bind(TIMES=3))
    assert report.total_latency == 3 * 99
    assert report.costs.pipelines[0].slots == 3 * 4
    assert report.table("pipelines").rows[-1][3] == 12


def test_bottleneck_says_what_the_pipeline_gains(spec: pm.Spec) -> None:
    """Without A only B works: 0 + 30 + 30 + 15; without B: 24 + 24 + 12 + 0."""
    rows = {x.component: x for x in pm.evaluate(spec).costs.limiters if x.rank == 1}
    assert rows["A"].speedup == pytest.approx(99 / 75)
    assert rows["B"].speedup == pytest.approx(99 / 60)
    assert (rows["A"].slack, rows["B"].slack) == (39, 24)


def test_sweeps_take_pipelines(spec: pm.Spec) -> None:
    found = pm.sweep(spec, {"TM": [1, 2, 4, 5, 10]}, keep="all").frame
    assert dict(zip(found["TM"], found["latency"], strict=True)) == {1: 81, 2: 87, 4: 99, 5: 105, 10: 135}


@st.composite
def priced(draw: st.DrawFn) -> Problem:
    """A drawn pipeline with small whole numbers everywhere, so that times often tie."""
    problem = draw(st.one_of(lawless_overlapped(), lawless_overlapped(fused=True)))
    assume(pipelines(problem.tree))
    assume(len({e.n_instances for e in problem.cascade.einsums}) == 1)
    numbers = st.sampled_from([1.0, 2.0, 4.0])
    components = []
    for c in problem.hierarchy.components:
        names = {"compute": ("compute",), "container": ()}.get(c.kind, ("read", "write"))
        components.append(replace(
            c, actions=tuple(ActionCost(n, draw(numbers), draw(numbers)) for n in names),
            ports=draw(st.sampled_from(["shared", "separate"])), leak_power=draw(st.sampled_from([0.0, 1.0])),
            fill_drain_latency=0.0 if c.kind == "container" else draw(st.sampled_from([0.0, 0.0, 3.0])),
        ))  # fmt: skip
    return replace(problem, hierarchy=replace(problem.hierarchy, components=tuple(components)))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(priced(), st.sampled_from(["energy", "latency"]))
def test_pipelines_add_up_and_answer_to_their_numbers(problem: Problem, of: str) -> None:
    try:
        assume(violation(problem) is None)
        analysis = REFEREE.analyse(problem)
    except Refused:
        assume(False)
    found = costs(problem, analysis)
    for p in found.pipelines:
        assert math.fsum(s for _, _, s in p.booked) == pytest.approx(p.seconds)
        assert max(s.busy for s in p.stages) <= p.seconds * (1 + 1e-12)
        assert math.fsum(s.sets for s in p.stages) == pytest.approx(p.seconds)
    inside = {e for p in found.pipelines for e in p.einsums}
    apart = math.fsum(t.seconds for t in found.latency if t.einsum not in inside)
    assert found.total_latency == pytest.approx(apart + math.fsum(p.seconds for p in found.pipelines))
    check(problem, "latency" if of == "latency" else "energy")
