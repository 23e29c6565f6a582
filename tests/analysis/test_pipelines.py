"""Pipelines: slots and working sets worked by hand, and exact = enumerate on generated ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from hypothesis import assume, given, settings

import polymodel as pm
from polymodel.analysis.enumerate import ENGINE as REFEREE
from polymodel.analysis.enumerate import violation
from polymodel.analysis.exact import ENGINE as EXACT
from polymodel.analysis.result import Analysis, Engine, PipelineRun, Problem, StageWork
from polymodel.analysis.symbolic import ENGINE as SYMBOLIC
from polymodel.errors import NotSeparable, Refused
from polymodel.mapping.looptree import ComputeNode, LoopTree, Split, pipelines
from polymodel.report.closed import symbolic_report
from tests.analysis.test_agreement import SETTINGS, differences, drawing
from tests.faults import refused
from tests.overlapped import lawless_overlapped
from tests.report.test_closed import tile_values

ENGINES = [EXACT, REFEREE]
MACHINE = """
arch:
  nodes:
  - !Memory {name: DRAM, tensors: {keep: ~Intermediates, may_keep: All}}
  - !Memory {name: GLB, tensors: {may_keep: All}}
  - !Compute {name: A}
  - !Compute {name: B}
  - !Compute {name: C}
"""
# T1[m, n1] = 6 operations per m, T2: 15, T3: 10 and reads T1 again.
CHAIN = """
workload:
  rank_sizes: {M: 10, N0: 2, N1: 3, N2: 5}
  bits_per_value: {All: 8}
  einsums:
  - T1[m, n1] = T0[m, n0] * W0[n0, n1]
  - T2[m, n2] = T1[m, n1] * W1[n1, n2]
"""
SKIP = CHAIN + "  - T3[m, n1] = T2[m, n2] * T1[m, n1]\n"
HEAD = """
mapping:
  nodes:
  - !Storage {component: DRAM, tensors: [T0, W0, W1, T2]}
  - !Storage {component: GLB, tensors: [W0, W1]}
"""
SPLIT = """
  - !Storage {component: GLB, tensors: [T0, T1, T2]}
  - !Pipeline
    nodes:
    - !Nested {nodes: [!Compute {einsum: T1, component: A}]}
    - !Nested {nodes: [!Compute {einsum: T2, component: B}]}
"""


def problem_of(text: str, folder: Path) -> Problem:
    file = folder / "pipeline.yaml"
    file.write_text(text, encoding="utf-8")
    spec = pm.load(str(file))
    assert spec.mapping is not None
    return Problem(spec.workload, spec.arch, spec.mapping)


def rows(loop: str) -> str:
    return HEAD + loop + SPLIT


def operations(run: PipelineRun) -> Counter[tuple[str, tuple[int, ...]]]:
    """Phase and operations per stage -> how many slots."""
    found: Counter[tuple[str, tuple[int, ...]]] = Counter()
    for slot in run.slots:
        done = []
        for stage in slot.stages:
            assert all(isinstance(w, StageWork) for w in stage)
            done.append(sum(w.operations for w in stage if isinstance(w, StageWork)))
        found[slot.phase, tuple(done)] += slot.count
    return found


def bits(analysis: Analysis, measure: str) -> dict[str, dict[str, int]]:
    """Einsum -> tensor -> bits in the GLB at the peak."""
    return {
        w.einsum: {r.tensor: r.bits for r in w.residents}
        for w in analysis.working_sets
        if w.component == "GLB" and w.measure == measure
    }


@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)
def test_perfect_tiles(engine: Engine, tmp_path: Path) -> None:
    problem = problem_of(MACHINE + CHAIN + rows("  - !Temporal {rank_variable: m, tile_shape: 2}"), tmp_path)
    (run,) = engine.analyse(problem).pipelines
    assert operations(run) == {("fill", (12, 0)): 1, ("steady", (12, 30)): 4, ("drain", (0, 30)): 1}


@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)
def test_imperfect_tiles_meet_the_tiles_before_them(engine: Engine, tmp_path: Path) -> None:
    """10 = 4 + 4 + 2 rows: while the first stage does the last 2, the second still has 4."""
    problem = problem_of(MACHINE + CHAIN + rows("  - !Temporal {rank_variable: m, tile_shape: 4}"), tmp_path)
    (run,) = engine.analyse(problem).pipelines
    assert operations(run) == {
        ("fill", (24, 0)): 1,
        ("steady", (24, 60)): 1,
        ("steady", (12, 60)): 1,
        ("drain", (0, 30)): 1,
    }


@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)
def test_when_and_where_bits_move(engine: Engine, tmp_path: Path) -> None:
    """4 rows of T0 come in each slot, W0 and W1 (6 and 15 values) in the first one of their stage."""
    problem = problem_of(MACHINE + CHAIN + rows("  - !Temporal {rank_variable: m, tile_shape: 4}"), tmp_path)
    (run,) = engine.analyse(problem).pipelines
    moved = {
        (slot.phase, work.einsum, work.operations): dict(work.loads)["DRAM"]
        for slot in run.slots
        for stage in slot.stages
        for work in stage
        if isinstance(work, StageWork)
    }
    assert moved.pop(("steady", "T2", 60)) in (((8 * 15, 8 * 20),), ((0, 8 * 20),))
    assert moved == {
        ("fill", "T1", 24): ((8 * (8 + 6), 0),),
        ("steady", "T1", 24): ((8 * 8, 0),),
        ("steady", "T1", 12): ((8 * 4, 0),),
        ("drain", "T2", 30): ((0, 8 * 10),),
    }
    joint = {dict(s.shared)["DRAM"] for s in run.slots if s.shared}
    assert joint == {((8 * (8 + 15), 8 * 20),), ((8 * 4, 8 * 20),)}


@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)
def test_outer_loops_restart_the_pipeline(engine: Engine, tmp_path: Path) -> None:
    """6 = 4 + 2 rows in tiles of 6 (10 = 6 + 4): two wraps, of two iterations and one."""
    loops = "  - !Temporal {rank_variable: m, tile_shape: 6}\n  - !Temporal {rank_variable: m, tile_shape: 4}"
    (run,) = engine.analyse(problem_of(MACHINE + CHAIN + rows(loops), tmp_path)).pipelines
    assert operations(run) == {
        ("fill", (24, 0)): 2,
        ("steady", (12, 60)): 1,
        ("drain", (0, 30)): 1,
        ("drain", (0, 60)): 1,
    }


@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)
def test_without_a_loop_stages_take_turns(engine: Engine, tmp_path: Path) -> None:
    (run,) = engine.analyse(problem_of(MACHINE + CHAIN + rows(""), tmp_path)).pipelines
    assert operations(run) == {("fill", (60, 0)): 1, ("drain", (0, 150)): 1}


@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)
def test_hand_over_holds_two_tiles(engine: Engine, tmp_path: Path) -> None:
    """4 rows of T0 (2), T1 (3) and T2 (5) beside the weights; T1 twice, as it is written and read at once."""
    problem = problem_of(MACHINE + CHAIN + rows("  - !Temporal {rank_variable: m, tile_shape: 4}"), tmp_path)
    analysis = engine.analyse(problem)
    held = {"W0": 48, "W1": 120, "T0": 64, "T1": 2 * 96, "T2": 160}
    assert bits(analysis, "tile") == bits(analysis, "reserved") == {"T1": held, "T2": held}
    assert max(b.tile_max for b in analysis.buffets if b.tensor == "T1") == 12


THREE = """
mapping:
  nodes:
  - !Storage {component: DRAM, tensors: [T0, W0, W1, T3]}
  - !Storage {component: GLB, tensors: [W0, W1]}
  - !Temporal {rank_variable: m, tile_shape: 3}
  - !Storage {component: GLB, tensors: [T1, T2]}
  - !Pipeline
    nodes:
    - !Nested
      nodes:
      - !Storage {component: GLB, tensors: [T0]}
      - !Compute {einsum: T1, component: A}
    - !Nested {nodes: [!Compute {einsum: T2, component: B}]}
    - !Nested
      nodes:
      - !Temporal {rank_variable: m, tile_shape: 1}
      - !Storage {component: GLB, tensors: [T3]}
      - !Compute {einsum: T3, component: C}
"""


@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)
def test_three_stages_and_a_tensor_that_skips_one(engine: Engine, tmp_path: Path) -> None:
    """10 = 3 + 3 + 3 + 1 rows of 6, 15 and 15 operations; T1 lives over three stages, T2 over two."""
    analysis = engine.analyse(problem_of(MACHINE + SKIP + THREE, tmp_path))
    (run,) = analysis.pipelines
    assert operations(run) == {
        ("fill", (18, 0, 0)): 1,
        ("fill", (18, 45, 0)): 1,
        ("steady", (18, 45, 45)): 1,
        ("steady", (6, 45, 45)): 1,
        ("drain", (0, 15, 45)): 1,
        ("drain", (0, 0, 15)): 1,
    }
    held = {"W0": 48, "W1": 120, "T0": 48, "T1": 3 * 72, "T2": 2 * 120, "T3": 24}
    assert bits(analysis, "tile") == dict.fromkeys(("T1", "T2", "T3"), held)


NESTED = """
mapping:
  nodes:
  - !Storage {component: DRAM, tensors: [T0, W0, W1, T3]}
  - !Storage {component: GLB, tensors: [W0, W1]}
  - !Temporal {rank_variable: m, tile_shape: 4}
  - !Storage {component: GLB, tensors: [T0, T1, T2, T3]}
  - !Pipeline
    nodes:
    - !Nested {nodes: [!Compute {einsum: T1, component: A}]}
    - !KIND
      nodes:
      - !Nested {nodes: [!Compute {einsum: T2, component: B}]}
      - !Nested {nodes: [!Compute {einsum: T3, component: C}]}
"""


@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)
def test_a_sequential_branch_is_one_stage(engine: Engine, tmp_path: Path) -> None:
    text = MACHINE + SKIP + NESTED.replace("KIND", "Sequential")
    (run,) = engine.analyse(problem_of(text, tmp_path)).pipelines
    assert [p.stages for p in pipelines(problem_of(text, tmp_path).tree)] == [(("T1",), ("T2", "T3"))]
    assert operations(run) == {
        ("fill", (24, 0)): 1,
        ("steady", (24, 120)): 1,
        ("steady", (12, 120)): 1,
        ("drain", (0, 60)): 1,
    }


@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)
def test_a_pipeline_below_a_loop_of_a_branch(engine: Engine, tmp_path: Path) -> None:
    """In each slot of 4 rows the inner pipeline runs two iterations, of 3 rows and 1 (of 2 rows: one)."""
    head, tail = NESTED.split("    - !KIND\n")
    inner = "".join(f"  {line}\n" for line in ("    - !Pipeline\n" + tail).splitlines())
    loop = "    - !Nested\n      nodes:\n      - !Temporal {rank_variable: m, tile_shape: 3}\n"
    (run,) = engine.analyse(problem_of(MACHINE + SKIP + head + loop + inner, tmp_path)).pipelines
    found: dict[tuple[str, int], object] = {}
    for slot in run.slots:
        first = sum(w.operations for w in slot.stages[0] if isinstance(w, StageWork))
        for item in slot.stages[1]:
            assert isinstance(item, PipelineRun)
            found[slot.phase, first] = operations(item)
    whole = {("fill", (45, 0)): 1, ("steady", (15, 45)): 1, ("drain", (0, 15)): 1}
    assert found == {
        ("steady", 24): whole,
        ("steady", 12): whole,
        ("drain", 0): {("fill", (30, 0)): 1, ("drain", (0, 30)): 1},
    }


def test_counts_are_those_of_a_sequential(tmp_path: Path) -> None:
    """Energy and traffic do not change, only when things happen."""
    text = MACHINE + CHAIN + rows("  - !Temporal {rank_variable: m, tile_shape: 4}")
    one = EXACT.analyse(problem_of(text, tmp_path))
    other = EXACT.analyse(problem_of(text.replace("!Pipeline", "!Sequential"), tmp_path))
    assert other.pipelines == ()
    assert replace(one, pipelines=(), working_sets=()) == replace(other, working_sets=())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            CHAIN + rows("  - !Temporal {rank_variable: m, tile_shape: 4, initial_tile_shape: 2}"),
            "below loops with a first tile of their own overlap",
        ),
        (CHAIN + rows("  - !Temporal {rank_variable: n2, tile_shape: 1}"), "below loops that do not bind T1"),
        (
            SKIP + NESTED.replace("KIND", "Pipeline"),
            "inside a stage of another one overlap, which has no closed form",
        ),
    ],
    ids=["first tiles", "not bound", "nested"],
)
def test_closed_forms_are_refused_by_name(text: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(NotSeparable, match=reason):
        SYMBOLIC.analyse(problem_of(MACHINE + text, tmp_path))


COSTS = """
arch:
  nodes:
  - !Memory
    name: DRAM
    leak_power: 0.5
    actions: [{name: read, energy: 1, throughput: 13}, {name: write, energy: 2, throughput: 17}]
    tensors: {keep: ~Intermediates, may_keep: All}
  - !Memory
    name: GLB
    size: 600
    fill_drain_latency: 0.125
    actions: [{name: read, energy: 1, throughput: 50}, {name: write, energy: 2, throughput: 90}]
    tensors: {may_keep: All}
  - !Compute {name: A, fill_drain_latency: 0.25, actions: [{name: compute, energy: 1, throughput: 5}]}
  - !Compute {name: B, actions: [{name: compute, energy: 1, throughput: 11}]}
"""
SIZES = """
mapping:
  nodes:
  - !Storage {component: DRAM, tensors: [T0, W0, W1, T2]}
  - !Temporal {rank_variable: m, tile_shape: OUTER}
  - !Storage {component: GLB, tensors: [W0, W1]}
  - !Temporal {rank_variable: m, tile_shape: INNER}
  - !Storage {component: GLB, tensors: [T1, T2]}
  - !Pipeline
    nodes:
    - !Nested
      nodes:
      - !Temporal {rank_variable: n0, tile_shape: N0}
      - !Storage {component: GLB, tensors: [T0]}
      - !Compute {einsum: T1, component: A}
    - !Nested {nodes: [!Compute {einsum: T2, component: B}]}
"""


@pytest.mark.slow
def test_every_point_of_a_sweep_costs_what_it_costs_alone(tmp_path: Path) -> None:
    """Fill, drain and what is booked to each Einsum, leakage, and what fits, at uneven tiles of two loops."""
    file = tmp_path / "pipeline.yaml"
    file.write_text(f"symbols: {{OUTER: 4, INNER: 2, N0: 1}}\n{COSTS}{CHAIN}{SIZES}", encoding="utf-8")
    spec = pm.load(str(file))
    closed, compiled = pm.closed_forms(spec), pm.compile(spec)
    found = pm.sweep(spec, {"OUTER": range(1, 11), "INNER": range(1, 11), "N0": (1, 2)}, keep="all").frame
    assert 0 < found.feasible.sum() < len(found) == 2 * 55
    some = found.iloc[::19]
    again = compiled(some[["OUTER", "INNER", "N0"]])
    assert again.latency.tolist() == pytest.approx(some.latency.tolist(), rel=1e-12)
    for row in some.to_dict("records"):
        point = {name: int(row[name]) for name in ("OUTER", "INNER", "N0")}
        report = pm.evaluate(spec.bind(**point), engine="exact")
        each = [t.seconds for t in report.costs.latency]
        told = closed.table("summary").at(point)
        assert [r["latency_s"] for r in told] == pytest.approx([*each, sum(each)], rel=1e-12)
        figures = [sum(each), sum(i.energy for i in report.costs.energy)]
        assert [row["latency"], row["energy"]] == pytest.approx(figures, rel=1e-12)
        assert row["feasible"] == (not report.costs.violations)


@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)
@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("name: GLB,", "name: GLB, allocation: live,", "GLB has allocation: live, and stages of a Pipeline"),
        (
            "name: DRAM,",
            "name: DRAM, actions: [{name: read, energy: 1, throughput: 1, bits_per_action: 64}],",
            "DRAM moves 64 bits per read, which does not divide the bits of T0",
        ),
        ("{name: GLB, tensors", "{name: GLB, buffering: single, tensors", "refills of GLB wait"),
    ],
    ids=["live", "rounding", "single buffered"],
)
def test_refused_by_name(engine: Engine, old: str, new: str, reason: str, tmp_path: Path) -> None:
    text = MACHINE + CHAIN + rows("  - !Temporal {rank_variable: m, tile_shape: 4}")
    if "buffering" in new:
        text = text.replace("arch:\n", "arch:\n  assume_overlap: false\n")
    problem = problem_of(text.replace(old, new), tmp_path)
    with pytest.raises(Refused, match=reason):
        engine.analyse(problem)


@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)
def test_stages_of_one_compute_unit_are_refused(engine: Engine, tmp_path: Path) -> None:
    problem = problem_of(MACHINE + CHAIN + rows(""), tmp_path)
    split = problem.tree.nodes[-1]
    assert isinstance(split, Split)
    same = Split((split.branches[0], (ComputeNode("T2", "A"),)), pipeline=True)
    tree = LoopTree((*problem.tree.nodes[:-1], same))
    with refused("unsupported-pipeline", "T1", "T2", "A"):
        engine.analyse(replace(problem, tree=tree))


def compare(problem: Problem, tally: Counter[str]) -> None:
    """Whole analyses agree, slots included."""
    found = pipelines(problem.tree)
    assume(found)
    try:
        assume(violation(problem) is None)
        referee = REFEREE.analyse(problem, live=True)
    except Refused:
        tally["outside"] += 1
        return
    try:
        ours = EXACT.analyse(problem, live=True)
    except Refused:
        tally["refused"] += 1
        return
    tally["agreed"] += 1
    tally["closed"] += has_closed_forms(problem, referee)
    tally["nested"] += any(p.outer is not None for p in found)
    tally["overlapping"] += any(s.phase == "steady" for run in ours.pipelines for s in run.slots)
    told = differences(ours, referee)
    if ours.pipelines != referee.pipelines:
        told += ["slots differ", *map(str, ours.pipelines), *map(str, referee.pipelines)]
    assert not told, "\n".join([*told, drawing(problem)])


def has_closed_forms(problem: Problem, referee: Analysis) -> bool:
    """Whether there are closed forms of the problem with a symbol for each tile size; if so they agree."""
    try:
        closed = symbolic_report(problem, tiles=True)
    except NotSeparable:
        return False
    ours = closed.analysis.at(tile_values(closed.problem.tree, problem.tree))
    rows = tuple(w for w in referee.working_sets if w.measure != "live")
    buffets = tuple(replace(b, live=None) for b in referee.buffets)
    told = differences(ours, replace(referee, working_sets=rows, buffets=buffets))
    if ours.pipelines != referee.pipelines:
        told += ["slots differ", *map(str, ours.pipelines), *map(str, referee.pipelines)]
    assert not told, "\n".join([*told, drawing(problem)])
    return True


def run_many(count: int, kind: str) -> Counter[str]:
    tally: Counter[str] = Counter()

    @settings(max_examples=count, **SETTINGS)
    @given(lawless_overlapped(fused=kind == "inferred", simple=kind == "boxes"))
    def agree(problem: Problem) -> None:
        compare(problem, tally)

    cast(Callable[[], None], agree)()
    return tally


@pytest.mark.parametrize("kind", ["shared loops", "inferred"])
@pytest.mark.thin(99)
def test_pipelines_agree(kind: str) -> None:
    tally = run_many(20, kind)
    assert tally["overlapping"] > 3, tally
    assert tally["refused"] < 0.25 * tally["agreed"], tally


def test_pipelines_of_boxes_have_closed_forms() -> None:
    tally = run_many(8, "boxes")
    assert tally["closed"] > 0.7 * tally["agreed"], tally


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["shared loops", "inferred", "boxes"])
def test_pipelines_agree_at_length(kind: str) -> None:
    tally = run_many(3_000, kind)
    assert tally["nested"] > 100 or kind == "boxes", tally
    assert tally["refused"] < 0.2 * tally["agreed"], tally
    assert tally["closed"] > {"shared loops": 100, "inferred": 10, "boxes": 2_000}[kind], tally
